/* Products of experts on the device: on matrix units where TMA can read the operands, else by plain kernels. */
#include <stdio.h>

#include "runtime/cuda.h"

/* ---- which kernel ------------------------------------------------------------------------ */

/* A product's sizes: n rows of all experts, matrices of m by k. */
typedef struct sizes {
  int64_t n, experts, m, k;
} sizes;

/* Rows of 16 bytes' multiples, as TMA takes them; coordinates of 32 bits. */
static bool on_matrix_units(const moec_tensor *operand, const moec_tensor *y, const sizes *z) {
  bool types = operand->dtype == MOEC_BF16 && (y->dtype == MOEC_BF16 || y->dtype == MOEC_F32);
  bool rows = z->k % 8 == 0 && z->m % 8 == 0 && z->k > 0 && z->m > 0 && z->n > 0;
  bool small = z->n < INT32_MAX / 2 && z->k < INT32_MAX / 2 && z->m < INT32_MAX / 2;
  return types && rows && small && z->experts <= MOEC_CUDA_WGMMA_EXPERTS;
}

/* ---- operands for TMA -------------------------------------------------------------------- */

/* |t| as a stack of |count| matrices of |rows| by |columns|, read or written in boxes of |deep| times |high| rows by
 * 64. */
static moec_status *describe(moec_model *m, const moec_tensor *t, int64_t count, int64_t rows, int64_t columns,
                             uint32_t deep, uint32_t high, moec_cuda_tensor_map *out) {
  enum { BF16 = 9, SWIZZLE_128 = 3, PROMOTE_256 = 3 }; /* CUtensorMapDataType, CUtensorMapSwizzle, ...L2promotion */
  const uint64_t dims[] = {(uint64_t)columns, (uint64_t)rows, (uint64_t)count};
  const uint64_t strides[] = {(uint64_t)columns * 2, (uint64_t)columns * (uint64_t)rows * 2};
  const uint32_t box[] = {64, high, deep}, steps[] = {1, 1, 1};
  int error = m->cuda->cu.tensor_map(out, BF16, 3, t->data, dims, strides, box, steps, 0, SWIZZLE_128, PROMOTE_256, 0);
  return moec_cu_check(&m->cuda->cu, error, "cuTensorMapEncodeTiled");
}

enum { LOADED = 64, STORED = 16 }; /* rows of a box */

/* Results of other types are not stored by TMA; the kernel gets any valid map. */
static moec_status *describe_result(moec_model *m, const moec_tensor *y, int64_t count, int64_t rows, int64_t columns,
                                    const moec_cuda_tensor_map *other, moec_cuda_tensor_map *out) {
  if (y->dtype == MOEC_BF16) return describe(m, y, count, rows, columns, 1, STORED, out);
  *out = *other;
  return NULL;
}

/* ---- launches ---------------------------------------------------------------------------- */

/* What blocks take turns by. */
uint64_t moec_rt_cuda_grouped_bytes(void) { return 2 * sizeof(int32_t); }

moec_status *moec_rt_cuda_grouped_open(moec_model *m) {
  const uint64_t bytes = moec_rt_cuda_grouped_bytes();
  MOEC_TRY(moec_rt_device_reserve(m, &m->cuda->turn, bytes, "products of experts"));
  return m->device->fill(m, m->cuda->turn.data, 0, bytes);
}

static const char *const names[MOEC_RT_CUDA_WGMMA] = {
#define NAME(name) "moec_" #name,
    MOEC_CUDA_WGMMA_KERNELS(NAME)
#undef NAME
};
enum {
#define NUMBER(name) KERNEL_##name,
  MOEC_CUDA_WGMMA_KERNELS(NUMBER)
#undef NUMBER
};

/* Launches |*f|, which is |name|, found when it is launched first. A block stays on its multiprocessor. */
static moec_status *launch_found(moec_model *m, moec_cu_function *f, const char *name, void **parameters) {
  moec_rt_cuda *c = m->cuda;
  if (!*f) {
    moec_cu_function found;
    MOEC_TRY(moec_context(moec_cu_check(&c->cu, c->cu.module_function(&found, c->module, name), "cuModuleGetFunction"),
                          "expected a kernel named '%s'", name));
    int error = c->cu.function_set(found, MOEC_CU_FUNCTION_SHARED_BYTES, MOEC_CUDA_WGMMA_SHARED);
    MOEC_TRY(moec_context(moec_cu_check(&c->cu, error, "cuFuncSetAttribute"), "kernel %s: %d bytes of shared memory",
                          name, MOEC_CUDA_WGMMA_SHARED));
    *f = found;
  }
  int error = c->cu.launch(*f, (unsigned)c->multiprocessors, 1, 1, MOEC_CUDA_WGMMA_THREADS, 1, 1,
                           MOEC_CUDA_WGMMA_SHARED, c->stream, parameters, NULL);
  return moec_context(moec_cu_check(&c->cu, error, "cuLaunchKernel"), "%s", name);
}

static moec_status *launch(moec_model *m, int kernel, void **parameters) {
  return launch_found(m, &m->cuda->wgmma[kernel], names[kernel], parameters);
}

static moec_status *dot_by_wgmma(moec_model *m, const moec_rt_call *c, bool transposed, const sizes *z) {
  moec_tensor rows = *moec_rt_in(c, 0), w = *moec_rt_in(c, 1), offsets = *moec_rt_in(c, 2), y = *moec_rt_out(c, 0);
  const moec_tensor *b = moec_rt_in(c, 3);
  void *bias = moec_rt_data_of(b);
  int32_t bias_dtype = moec_rt_dtype_of(b), y_dtype = moec_rt_dtype_of(&y);
  int64_t experts = z->experts, k = z->k, width = z->m;
  void *turn = m->cuda->turn.data;
  moec_cuda_tensor_map of_rows, of_w, of_y;
  MOEC_TRY(describe(m, &rows, 1, z->n, k, 1, LOADED, &of_rows));
  MOEC_TRY(describe(m, &w, experts, w.dims[1], w.dims[2], 1, LOADED, &of_w));
  MOEC_TRY(describe_result(m, &y, 1, z->n, width, &of_rows, &of_y));
  void *parameters[] = {&of_rows, &of_w,    &of_y,    &offsets.data, &bias,  &bias_dtype,
                        &y.data,  &y_dtype, &experts, &k,            &width, &turn};
  return launch(m, transposed ? KERNEL_wgmma_dot_t : KERNEL_wgmma_dot, parameters);
}

/* ---- with an activation ------------------------------------------------------------------ */

static sizes sizes_of(const moec_rt_call *c) {
  const moec_tensor *rows = moec_rt_in(c, 0), *w = moec_rt_in(c, 1);
  bool transposed = c->ints[0];
  return (sizes){rows->dims[0], w->dims[0], w->dims[transposed ? 1 : 2], w->dims[transposed ? 2 : 1]};
}

static bool activated_on_matrix_units(const moec_rt_call *c, const sizes *z) {
  return on_matrix_units(moec_rt_in(c, 0), moec_rt_out(c, 1), z) && moec_rt_out(c, 1)->dims[1] % 8 == 0;
}

/* Bytes of a product that is no result and has to be stored all the same, for its activation to read it. */
uint64_t moec_rt_cuda_grouped_room(const moec_rt_call *c) {
  sizes z = sizes_of(c);
  if (moec_rt_out(c, 0) || activated_on_matrix_units(c, &z)) return 0;
  uint64_t row = moec_rt_array((uint64_t)z.m, moec_dtype_get(moec_rt_in(c, 0)->dtype)->bytes);
  return moec_rt_array((uint64_t)z.n, row);
}

static moec_status *activation_by_wgmma(moec_model *m, const moec_rt_call *c, const sizes *z) {
  const moec_tensor *in = moec_rt_in(c, 0), *w = moec_rt_in(c, 1), *b = moec_rt_in(c, 3), *y = moec_rt_out(c, 0);
  const moec_tensor *result = moec_rt_out(c, 1);
  const char *kernel = moec_rt_str(&m->plan, m->plan.kernels[c->step->kernel].name);
  bool transposed = c->ints[0];
  char name[128];
  void *offsets = moec_rt_in(c, 2)->data, *bias = moec_rt_data_of(b), *product = moec_rt_data_of(y), *to = result->data;
  void *turn = m->cuda->turn.data;
  int32_t bias_dtype = moec_rt_dtype_of(b);
  int64_t experts = z->experts, k = z->k, width = z->m;
  moec_cuda_tensor_map of_rows, of_w, of_y, of_result;
  MOEC_TRY(describe(m, in, 1, z->n, k, 1, LOADED, &of_rows));
  MOEC_TRY(describe(m, w, experts, w->dims[1], w->dims[2], 1, LOADED, &of_w));
  MOEC_TRY(describe(m, result, 1, z->n, result->dims[1], 1, STORED, &of_result));
  of_y = of_result; /* any valid map where it is not stored */
  if (y && c->ints[1] == MOEC_ACTIVATION_HALVES) MOEC_TRY(describe(m, y, z->n, 2, width / 2, STORED, 1, &of_y));
  else if (y) MOEC_TRY(describe(m, y, 1, z->n, width, 1, STORED, &of_y));
  snprintf(name, sizeof name, "moec_wgmma_dot%s_%s", transposed ? "_t" : "", kernel);
  void *parameters[] = {&of_rows, &of_w, &of_y,    &of_result, &offsets, &bias, &bias_dtype,
                        &product, &to,   &experts, &k,         &width,   &turn};
  return launch_found(m, &m->cuda->activations[c->step->kernel][transposed], name, parameters);
}

/* ---- steps ------------------------------------------------------------------------------- */

enum { TILE = 64 }; /* of codegen/kernels/grouped.cu */

/* |y|: the result, or where it is temporary. */
static moec_status *dot_by_plain(moec_model *m, const moec_rt_call *c, void *y, moec_dtype y_type, sizes z) {
  moec_tensor rows = *moec_rt_in(c, 0), w = *moec_rt_in(c, 1), offsets = *moec_rt_in(c, 2);
  const moec_tensor *b = moec_rt_in(c, 3);
  void *bias = moec_rt_data_of(b);
  int32_t bias_dtype = moec_rt_dtype_of(b), y_dtype = (int32_t)y_type, transposed = (int32_t)c->ints[0];
  void *parameters[] = {&rows.data, &w.data,    &offsets.data, &bias, &bias_dtype, &y, &y_dtype,
                        &z.n,       &z.experts, &z.k,          &z.m,  &transposed};
  int64_t work = z.n ? (moec_rt_ceil_div(z.n, TILE) + z.experts) * moec_rt_ceil_div(z.m, TILE) : 0;
  return moec_rt_cuda_launch(m, "grouped_dot", rows.dtype, work, 1, parameters);
}

moec_status *moec_rt_cuda_grouped_dot(moec_model *m, const moec_rt_call *c) {
  const moec_tensor *rows = moec_rt_in(c, 0), *y = moec_rt_out(c, 0);
  sizes z = sizes_of(c);
  if (c->step->n_out == 1) {
    if (on_matrix_units(rows, y, &z)) return dot_by_wgmma(m, c, c->ints[0], &z);
    return dot_by_plain(m, c, y->data, y->dtype, z);
  }
  if (activated_on_matrix_units(c, &z)) return activation_by_wgmma(m, c, &z);
  MOEC_TRY(dot_by_plain(m, c, y ? y->data : m->shared.data, rows->dtype, z));
  return moec_rt_cuda_generated(m, c->step, c->values);
}

moec_status *moec_rt_cuda_grouped_outer(moec_model *m, const moec_rt_call *c) {
  moec_tensor dy = *moec_rt_in(c, 0), x = *moec_rt_in(c, 1), offsets = *moec_rt_in(c, 2), y = *moec_rt_out(c, 0);
  int32_t y_dtype = moec_rt_dtype_of(&y);
  sizes z = {x.dims[0], offsets.dims[0] - 1, dy.dims[1], x.dims[1]};
  if (on_matrix_units(&x, &y, &z)) {
    moec_cuda_tensor_map of_dy, of_x, of_y;
    void *turn = m->cuda->turn.data;
    MOEC_TRY(describe(m, &dy, 1, z.n, z.m, 1, LOADED, &of_dy));
    MOEC_TRY(describe(m, &x, 1, z.n, z.k, 1, LOADED, &of_x));
    MOEC_TRY(describe_result(m, &y, z.experts, z.m, z.k, &of_x, &of_y));
    void *parameters[] = {&of_dy, &of_x, &of_y, &offsets.data, &y.data, &y_dtype, &z.experts, &z.m, &z.k, &turn};
    return launch(m, KERNEL_wgmma_outer, parameters);
  }
  void *parameters[] = {&dy.data, &x.data, &offsets.data, &y.data, &y_dtype, &z.n, &z.experts, &z.m, &z.k};
  int64_t work = z.experts * moec_rt_ceil_div(z.m, TILE) * moec_rt_ceil_div(z.k, TILE);
  return moec_rt_cuda_launch(m, "grouped_outer", x.dtype, work, 1, parameters);
}
