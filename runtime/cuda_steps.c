/* Library steps on the device: the kernels of include/cuda_abi.h with their operands. What check() of the step promised
 * about shapes and types holds here. */
#include <inttypes.h>

#include "runtime/cuda.h"

static moec_cuda_shape shape_of(const moec_tensor *t) {
  moec_cuda_shape s = {.rank = t->rank};
  for (uint32_t a = 0; a < t->rank; a++) s.dims[a] = t->dims[a];
  return s;
}

/* Parts of a row of |width| elements that a warp works on, as include/cuda_abi.h has them. */
static int64_t parts_of(const moec_tensor *t, int64_t width) {
  int64_t bytes = (int64_t)moec_dtype_get(t->dtype)->bytes;
  return moec_rt_ceil_div(width, width * bytes % 16 ? 32 : 512 / bytes);
}

/* y = x, where they are not the same already; no x: zeros. */
static moec_status *start_as(moec_model *m, const moec_tensor *x, const moec_tensor *y) {
  size_t bytes = moec_tensor_bytes(y);
  if (!bytes || (x && x->data == y->data)) return NULL;
  if (!x) return m->device->fill(m, y->data, 0, bytes);
  int error = m->cuda->cu.copy(moec_rt_address(y->data), moec_rt_address(x->data), bytes, m->cuda->stream);
  return moec_cu_check(&m->cuda->cu, error, "copying on the device");
}

static moec_status *run_copy(moec_model *m, const moec_rt_call *c) {
  return start_as(m, moec_rt_in(c, 0), moec_rt_out(c, 0));
}

static moec_status *run_cumsum(moec_model *m, const moec_rt_call *c) {
  moec_tensor x = *moec_rt_in(c, 0), y = *moec_rt_out(c, 0);
  moec_rt_axis a = moec_rt_axis_of(&x, c->ints[0]);
  int32_t reverse = (int32_t)c->ints[1], exclusive = (int32_t)c->ints[2];
  void *parameters[] = {&x.data, &y.data, &a.outer, &a.n, &a.inner, &reverse, &exclusive};
  return moec_rt_cuda_launch(m, "cumsum", x.dtype, a.n ? a.outer * a.inner : 0, 4, parameters);
}

static moec_status *choose(moec_model *m, const moec_tensor *x, moec_rt_axis a, void *values, void *indices, int64_t k,
                           int32_t largest) {
  void *data = x->data;
  void *parameters[] = {&data, &values, &indices, &a.outer, &a.n, &a.inner, &k, &largest};
  return moec_rt_cuda_launch(m, "topk", x->dtype, k ? a.outer * a.inner : 0, 4, parameters);
}

static moec_status *run_topk(moec_model *m, const moec_rt_call *c) {
  const moec_tensor *x = moec_rt_in(c, 0), *values = moec_rt_out(c, 0), *indices = moec_rt_out(c, 1);
  const moec_tensor *any = values ? values : indices;
  if (!any) return NULL;
  return choose(m, x, moec_rt_axis_of(x, c->ints[0]), moec_rt_data_of(values), moec_rt_data_of(indices),
                any->dims[c->ints[0]], (int32_t)c->ints[1]);
}

static moec_status *run_select(moec_model *m, const moec_rt_call *c) {
  const moec_tensor *s = moec_rt_in(c, 0), *i = moec_rt_out(c, 0);
  return choose(m, s, (moec_rt_axis){s->dims[0], s->dims[1], 1}, NULL, i->data, i->dims[1], 1);
}

static moec_status *run_scatter_elements(moec_model *m, const moec_rt_call *c) {
  moec_tensor i = *moec_rt_in(c, 1), u = *moec_rt_in(c, 2), y = *moec_rt_out(c, 0);
  moec_cuda_shape y_shape = shape_of(&y), i_shape = shape_of(&i);
  int64_t axis = c->ints[0], n = moec_tensor_numel(&i);
  int32_t i_dtype = moec_rt_dtype_of(&i), reduction = (int32_t)c->ints[1], *fault = moec_rt_cuda_fault(m, c->step);
  MOEC_TRY(start_as(m, moec_rt_in(c, 0), &y));
  void *parameters[] = {&y.data, &i.data, &i_dtype, &u.data, &y_shape, &i_shape, &axis, &reduction, &fault};
  return moec_rt_cuda_launch(m, "scatter_elements", y.dtype, n ? n / i.dims[axis] : 0, 128, parameters);
}

/* i[rows, q] names slices of y, each of so many elements. */
typedef struct slicing {
  int64_t q, rows, slices, size;
} slicing;

static slicing slicing_of(const moec_tensor *i, const moec_tensor *y) {
  slicing s = {.q = i->dims[i->rank - 1], .rows = 1, .slices = 1, .size = 1};
  for (uint32_t a = 0; a + 1 < i->rank; a++) s.rows *= i->dims[a];
  for (int64_t a = 0; a < (int64_t)y->rank; a++) *(a < s.q ? &s.slices : &s.size) *= y->dims[a];
  return s;
}

enum { ORDER_CHUNK = 1024 };

/* The keys of order.cu: first those of the chunks, then, where there is more than one, all of them. */
static uint64_t order_room(int64_t rows) {
  int64_t chunks = moec_rt_ceil_div(rows, ORDER_CHUNK);
  return moec_rt_array((uint64_t)(chunks * ORDER_CHUNK + (chunks > 1 ? rows : 0)), sizeof(int64_t));
}

/* Bits that hold every row. */
static int32_t row_bits(int64_t rows) {
  int32_t bits = 0;
  while (bits < 62 && (int64_t)1 << bits < rows) bits++;
  return bits;
}

static moec_status *sort_rows(moec_model *m, const moec_rt_call *c, slicing s, void **sorted) {
  moec_tensor i = *moec_rt_in(c, 1);
  moec_cuda_shape y_shape = shape_of(moec_rt_out(c, 0));
  int32_t i_dtype = moec_rt_dtype_of(&i), *fault = moec_rt_cuda_fault(m, c->step);
  int32_t bits = row_bits(s.rows);
  int64_t chunks = moec_rt_ceil_div(s.rows, ORDER_CHUNK);
  void *keys = m->shared.data;
  if (s.slices >= INT64_MAX >> bits) {
    return moec_rt_op_error(c, MOEC_INVALID_ARGUMENT, "expected places and updates of 62 bits together, got %" PRId64
                            " places, %" PRId64 " updates", s.slices, s.rows);
  }
  *sorted = chunks > 1 ? (int64_t *)keys + chunks * ORDER_CHUNK : keys;
  void *sort[] = {&i.data, &i_dtype, &y_shape, &s.q, &s.rows, &s.slices, &bits, &keys, &fault};
  MOEC_TRY(moec_rt_cuda_launch(m, "order_chunks", MOEC_DTYPE_NONE, s.rows, ORDER_CHUNK, sort));
  void *merge[] = {&keys, &s.rows, sorted};
  return chunks > 1 ? moec_rt_cuda_launch(m, "order_merge", MOEC_DTYPE_NONE, s.rows, 256, merge) : NULL;
}

static moec_status *run_scatter_nd(moec_model *m, const moec_rt_call *c) {
  moec_tensor u = *moec_rt_in(c, 2), y = *moec_rt_out(c, 0);
  slicing s = slicing_of(moec_rt_in(c, 1), &y);
  int32_t reduction = (int32_t)c->ints[0], bits = row_bits(s.rows);
  void *sorted = NULL;
  MOEC_TRY(start_as(m, moec_rt_in(c, 0), &y));
  if (!s.rows || !s.size) return NULL;
  MOEC_TRY(sort_rows(m, c, s, &sorted));
  void *parameters[] = {&y.data, &u.data, &sorted, &s.rows, &s.slices, &bits, &s.size, &reduction};
  return moec_rt_cuda_launch(m, "scatter_nd", y.dtype, s.rows * parts_of(&y, s.size), 8, parameters);
}

static moec_status *run_random(moec_model *m, const moec_rt_call *c) {
  moec_tensor y = *moec_rt_out(c, 0);
  int64_t n = moec_tensor_numel(&y), seed = c->ints[1];
  int32_t kind = (int32_t)c->ints[0];
  void *parameters[] = {&y.data, &n, &kind, &seed};
  return moec_rt_cuda_launch(m, "random", y.dtype, n, 1024, parameters);
}

static moec_status *run_conv(moec_model *m, const moec_rt_call *c) {
  moec_tensor x = *moec_rt_in(c, 0), w = *moec_rt_in(c, 1), y = *moec_rt_out(c, 0);
  const int64_t *ints = c->ints + 1, d = c->ints[0];
  moec_cuda_conv v = {.n = x.dims[0],
                      .channels = x.dims[1],
                      .m = w.dims[0],
                      .groups = c->ints[c->step->n_ints - 1],
                      .axes = d};
  for (int64_t i = 0; i < d; i++) {
    v.in[i] = x.dims[2 + i], v.kernel[i] = w.dims[2 + i], v.out[i] = y.dims[2 + i];
    v.stride[i] = ints[i], v.pad[i] = ints[d + i], v.dilation[i] = ints[3 * d + i];
  }
  void *parameters[] = {&x.data, &w.data, &y.data, &v};
  return moec_rt_cuda_launch(m, "conv", x.dtype, moec_tensor_numel(&y), 256, parameters);
}

/* ---- experts ----------------------------------------------------------------------------- */

/* Assignments of a block: all of few, which saves a launch; more of them where there are many, so that there are 128
 * blocks at most. */
static int64_t per_block_of(int64_t n) {
  enum { FEW = 4096, MOST_BLOCKS = 128, LEAST = 1024 };
  return n <= FEW ? FEW : moec_rt_ceil_div(moec_rt_ceil_div(n, MOST_BLOCKS), LEAST) * LEAST;
}

static int64_t plan_blocks(int64_t n) { return n ? moec_rt_ceil_div(n, per_block_of(n)) : 1; }

static moec_status *run_plan(moec_model *m, const moec_rt_call *c) {
  moec_tensor chosen = *moec_rt_in(c, 0), perm = *moec_rt_out(c, 0), inv = *moec_rt_out(c, 1);
  moec_tensor offsets = *moec_rt_out(c, 2);
  int64_t n = moec_tensor_numel(&chosen), experts = offsets.dims[0] - 1, per_block = per_block_of(n);
  int64_t blocks = plan_blocks(n);
  void *counts = m->shared.data;
  int32_t *fault = moec_rt_cuda_fault(m, c->step);
  void *count[] = {&chosen.data, &n, &experts, &per_block, &counts};
  void *fill[] = {&chosen.data, &n, &experts, &per_block, &counts, &perm.data, &inv.data, &offsets.data, &fault};
  if (blocks > 1) MOEC_TRY(moec_rt_cuda_launch_blocks(m, "plan_count", MOEC_DTYPE_NONE, blocks, count));
  return moec_rt_cuda_launch_blocks(m, "plan_fill", MOEC_DTYPE_NONE, blocks, fill);
}

static moec_status *dispatch(moec_model *m, const moec_rt_call *c, const moec_tensor *x, const moec_tensor *perm,
                             const moec_tensor *w, int64_t k) {
  moec_tensor y = *moec_rt_out(c, 0);
  void *from = x->data, *index = perm->data, *weights = moec_rt_data_of(w);
  int64_t n = perm->dims[0], width = x->dims[1];
  int32_t w_dtype = moec_rt_dtype_of(w), *fault = moec_rt_cuda_fault(m, c->step);
  void *parameters[] = {&from, &index, &weights, &w_dtype, &y.data, &n, &k, &width, &fault};
  return moec_rt_cuda_launch(m, "dispatch", x->dtype, width ? n : 0, 8, parameters);
}

static moec_status *run_dispatch(moec_model *m, const moec_rt_call *c) {
  return dispatch(m, c, moec_rt_in(c, 0), moec_rt_in(c, 1), moec_rt_in(c, 2), c->ints[0]);
}

static moec_status *run_weight(moec_model *m, const moec_rt_call *c) {
  return dispatch(m, c, moec_rt_in(c, 0), moec_rt_in(c, 2), moec_rt_in(c, 1), 0);
}

static moec_status *run_combine(moec_model *m, const moec_rt_call *c) {
  moec_tensor rows = *moec_rt_in(c, 0), inv = *moec_rt_in(c, 1), y = *moec_rt_out(c, 0);
  const moec_tensor *w = moec_rt_in(c, 2);
  void *weights = moec_rt_data_of(w), *residual = moec_rt_data_of(moec_rt_in(c, 3));
  int64_t k = c->ints[0], tokens = rows.dims[0] / k, width = rows.dims[1];
  int32_t w_dtype = moec_rt_dtype_of(w), y_dtype = (int32_t)y.dtype, *fault = moec_rt_cuda_fault(m, c->step);
  void *parameters[] = {&rows.data, &inv.data, &weights, &w_dtype, &residual, &y.data, &y_dtype,
                        &tokens,    &k,        &width,   &fault};
  return moec_rt_cuda_launch(m, "combine", rows.dtype, tokens * parts_of(&rows, width), 8, parameters);
}

static moec_status *run_group_sum(moec_model *m, const moec_rt_call *c) {
  moec_tensor x = *moec_rt_in(c, 0), offsets = *moec_rt_in(c, 1), y = *moec_rt_out(c, 0);
  int32_t y_dtype = moec_rt_dtype_of(&y);
  int64_t n = x.dims[0], experts = offsets.dims[0] - 1, width = x.dims[1];
  void *parameters[] = {&x.data, &offsets.data, &y.data, &y_dtype, &n, &experts, &width};
  return moec_rt_cuda_launch(m, "group_sum", x.dtype, experts * parts_of(&x, width), 1, parameters);
}

/* ---- the table --------------------------------------------------------------------------- */

static moec_status *(*const steps[MOEC_STEP_COUNT])(moec_model *, const moec_rt_call *) = {
    [MOEC_STEP_COPY] = run_copy,
    [MOEC_STEP_GEMM] = moec_rt_cuda_gemm,
    [MOEC_STEP_CONV] = run_conv,
    [MOEC_STEP_CUMSUM] = run_cumsum,
    [MOEC_STEP_TOPK] = run_topk,
    [MOEC_STEP_SCATTER_ELEMENTS] = run_scatter_elements,
    [MOEC_STEP_SCATTER_ND] = run_scatter_nd,
    [MOEC_STEP_RANDOM] = run_random,
    [MOEC_STEP_MOE_SELECT] = run_select,
    [MOEC_STEP_MOE_PLAN] = run_plan,
    [MOEC_STEP_MOE_DISPATCH] = run_dispatch,
    [MOEC_STEP_MOE_GROUPED_DOT] = moec_rt_cuda_grouped_dot,
    [MOEC_STEP_MOE_WEIGHT] = run_weight,
    [MOEC_STEP_MOE_COMBINE] = run_combine,
    [MOEC_STEP_MOE_GROUPED_OUTER] = moec_rt_cuda_grouped_outer,
    [MOEC_STEP_MOE_GROUP_SUM] = run_group_sum,
    [MOEC_STEP_LINEAR_CROSS_ENTROPY] = moec_rt_cuda_loss,
};

moec_status *moec_rt_cuda_library(moec_model *m, const moec_rt_call *c) {
  uint32_t op = c->step->op;
  if (!steps[op]) return moec_rt_op_error(c, MOEC_INTERNAL, "it has no function for CUDA");
  return moec_context(steps[op](m, c), "node \"%s\"", moec_rt_str(&m->plan, c->step->where));
}

uint64_t moec_rt_cuda_room(const moec_rt_call *c) {
  if (c->step->op == MOEC_STEP_SCATTER_ND) return order_room(slicing_of(moec_rt_in(c, 1), moec_rt_out(c, 0)).rows);
  if (c->step->op == MOEC_STEP_MOE_GROUPED_DOT) return moec_rt_cuda_grouped_room(c);
  if (c->step->op != MOEC_STEP_MOE_PLAN) return 0;
  uint64_t experts = (uint64_t)moec_rt_out(c, 2)->dims[0] - 1;
  return moec_rt_array((uint64_t)plan_blocks(moec_tensor_numel(moec_rt_in(c, 0))), experts * sizeof(int32_t));
}
