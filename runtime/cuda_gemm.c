/* gemm steps through cuBLAS. It stores matrices by columns: y = a b by rows is y' = b' a' by columns, so b comes first.
 * f32 is multiplied as f32; 16-bit types accumulate in f32 and are rounded once. */
#include <inttypes.h>

#include "runtime/cuda.h"

enum { WORKSPACE = 32 << 20 }; /* what the library's fastest algorithms take on large GPUs */

static moec_status *check(const moec_model *m, int status, const char *what) {
  (void)m;
  if (!status) return NULL;
  return moec_error(MOEC_DEVICE, "cuBLAS: %s: status %d", what, status);
}

static bool multiplies(uint32_t op) { return op == MOEC_STEP_GEMM || op == MOEC_STEP_LINEAR_CROSS_ENTROPY; }

uint64_t moec_rt_cuda_blas_bytes(const moec_rt_plan *p) {
  uint32_t i = 0;
  while (i < p->n_steps && !multiplies(p->steps[i].op)) i++;
  return i == p->n_steps ? 0 : WORKSPACE;
}

moec_status *moec_rt_cuda_blas_open(moec_model *m) {
  moec_rt_cuda *c = m->cuda;
  if (!moec_rt_cuda_blas_bytes(&m->plan)) return NULL;
  MOEC_TRY(moec_cublas_load(&c->blas));
  MOEC_TRY(check(m, c->blas.create(&c->handle), "cublasCreate"));
  MOEC_TRY(check(m, c->blas.set_stream(c->handle, c->stream), "cublasSetStream"));
  MOEC_TRY(moec_rt_device_reserve(m, &c->workspace, WORKSPACE, "cuBLAS"));
  MOEC_TRY(check(m, c->blas.set_workspace(c->handle, c->workspace.data, WORKSPACE), "cublasSetWorkspace"));
  return check(m, c->blas.set_math(c->handle, MOEC_CUBLAS_WHOLE_SUMS), "cublasSetMathMode");
}

void moec_rt_cuda_blas_close(moec_model *m) {
  if (m->cuda->handle) (void)m->cuda->blas.destroy(m->cuda->handle);
  m->cuda->handle = NULL;
  moec_cublas_unload(&m->cuda->blas);
}

/* The library's name of a float type. */
static const struct {
  bool there;
  int type, compute;
} types[MOEC_DTYPE_COUNT] = {
    [MOEC_F32] = {true, MOEC_CUBLAS_F32, MOEC_CUBLAS_IN_F32},
    [MOEC_F64] = {true, MOEC_CUBLAS_F64, MOEC_CUBLAS_IN_F64},
    [MOEC_F16] = {true, MOEC_CUBLAS_F16, MOEC_CUBLAS_IN_F32},
    [MOEC_BF16] = {true, MOEC_CUBLAS_BF16, MOEC_CUBLAS_IN_F32},
};

moec_status *moec_rt_cuda_gemm_check(const moec_rt_call *c) {
  moec_dtype t = moec_rt_in(c, 0)->dtype;
  if (types[t].there) return NULL;
  return moec_rt_op_error(c, MOEC_UNSUPPORTED, "a CUDA device multiplies matrices of floats, got %s",
                          moec_dtype_get(t)->text);
}

/* ---- one product ------------------------------------------------------------------------- */

/* A matrix of |rows| x |cols|, element (r, c) at r * row + c * col, as the library takes its transpose: rows of the
 * matrix are columns |lead| apart, or it is stored the other way round. */
typedef struct layout {
  int transposed;
  int64_t lead;
} layout;

/* One stride is 1 or its axis has size 1: the check of the step saw to it. */
static layout layout_of(int64_t rows, int64_t cols, int64_t row, int64_t col) {
  bool plain = col == 1 || cols <= 1; /* rows are contiguous */
  int64_t lead = !plain ? col : rows > 1 ? row : cols;
  return (layout){plain ? MOEC_CUBLAS_PLAIN : MOEC_CUBLAS_TRANSPOSED, lead < 1 ? 1 : lead};
}

typedef struct axis {
  int64_t size, a, b, y; /* steps in elements */
} axis;

typedef struct product {
  int64_t m, n, k, y_lead; /* rows of y are y_lead apart */
  layout a, b;
  axis axes[MOEC_PLAN_MAX_RANK + 1];
  uint32_t n_axes; /* the last is the batch of one call */
} product;

/* An axis that goes on where the one inside of it ends is one with it. */
static void push_axis(product *p, axis x) {
  axis *inner = p->n_axes ? &p->axes[p->n_axes - 1] : NULL;
  if (x.size == 1) return;
  if (inner && x.a == inner->a * inner->size && x.b == inner->b * inner->size) {
    inner->size *= x.size;
    return;
  }
  p->axes[p->n_axes++] = x;
}

/* Batch axes from the inside out, then the largest of them last. False where there is nothing to do. */
static bool read_product(const moec_rt_call *c, product *p) {
  const int64_t *e = c->ints + 1, *v = c->values;
  *p = (product){.m = v[e[0]], .n = v[e[1]], .k = v[e[2]], .y_lead = v[e[1]]};
  p->a = layout_of(p->m, p->k, v[e[3]], v[e[4]]);
  p->b = layout_of(p->k, p->n, v[e[5]], v[e[6]]);
  int64_t y = p->m * p->n;
  for (int64_t i = c->ints[0]; i-- > 0;) {
    int64_t size = v[e[7 + 3 * i]];
    if (!size) return false;
    push_axis(p, (axis){size, v[e[8 + 3 * i]], v[e[9 + 3 * i]], y});
    y *= size;
  }
  if (!p->n_axes) p->axes[p->n_axes++] = (axis){1, 0, 0, 0};
  uint32_t largest = 0;
  for (uint32_t i = 1; i < p->n_axes; i++) largest = p->axes[i].size > p->axes[largest].size ? i : largest;
  axis last = p->axes[p->n_axes - 1];
  p->axes[p->n_axes - 1] = p->axes[largest];
  p->axes[largest] = last;
  return y != 0;
}

/* ---- calls ------------------------------------------------------------------------------- */

typedef struct operands {
  const uint8_t *a, *b;
  uint8_t *y;
  moec_dtype type, y_type;
  bool add; /* to what y holds */
} operands;

static moec_status *call_library(moec_model *m, const product *p, const operands *o, int64_t a, int64_t b, int64_t y) {
  const float one = 1, beta = o->add ? 1 : 0;
  const double one64 = 1, beta64 = o->add ? 1 : 0;
  const axis *batch = &p->axes[p->n_axes - 1];
  bool wide = o->type == MOEC_F64;
  int64_t bytes = (int64_t)moec_dtype_get(o->type)->bytes, y_bytes = (int64_t)moec_dtype_get(o->y_type)->bytes;
  int type = types[o->type].type;
  int status = m->cuda->blas.gemm(
      m->cuda->handle, p->b.transposed, p->a.transposed, p->n, p->m, p->k, wide ? (const void *)&one64 : &one,
      o->b + b * bytes, type, p->b.lead, batch->b, o->a + a * bytes, type, p->a.lead, batch->a,
      wide ? (const void *)&beta64 : &beta, o->y + y * y_bytes, types[o->y_type].type, p->y_lead, batch->y, batch->size,
      types[o->type].compute, MOEC_CUBLAS_ANY_ALGORITHM);
  return check(m, status, "cublasGemmStridedBatchedEx");
}

/* One call for each position of all batch axes but the last. */
static moec_status *call_each(moec_model *m, const product *p, const operands *o) {
  int64_t count = 1;
  for (uint32_t i = 0; i + 1 < p->n_axes; i++) count *= p->axes[i].size;
  for (int64_t at = 0; at < count; at++) {
    int64_t left = at, a = 0, b = 0, y = 0;
    for (uint32_t i = 0; i + 1 < p->n_axes; i++) {
      int64_t k = left % p->axes[i].size;
      left /= p->axes[i].size;
      a += k * p->axes[i].a, b += k * p->axes[i].b, y += k * p->axes[i].y;
    }
    MOEC_TRY(call_library(m, p, o, a, b, y));
  }
  return NULL;
}

moec_status *moec_rt_cuda_gemm(moec_model *m, const moec_rt_call *c) {
  const moec_tensor *a = moec_rt_in(c, 0), *b = moec_rt_in(c, 1), *add = moec_rt_in(c, 2), *y = moec_rt_out(c, 0);
  product p;
  if (!read_product(c, &p)) return NULL;
  if (add && add->data != y->data) {
    int error = m->cuda->cu.copy(moec_rt_address(y->data), moec_rt_address(add->data), moec_tensor_bytes(y),
                                 m->cuda->stream);
    MOEC_TRY(moec_cu_check(&m->cuda->cu, error, "copying on the device"));
  }
  if (!p.k) return add ? NULL : m->device->fill(m, y->data, 0, moec_tensor_bytes(y));
  operands o = {a->data, b->data, y->data, a->dtype, y->dtype, add != NULL};
  return call_each(m, &p, &o);
}

moec_status *moec_rt_cuda_multiply(moec_model *m, const moec_rt_gemm *g) {
  product p = {.m = g->m, .n = g->n, .k = g->k, .y_lead = g->y_rows, .axes = {{1, 0, 0, 0}}, .n_axes = 1};
  operands o = {g->a.data, g->b.data, g->y, g->a.dtype, g->y_dtype, g->accumulate};
  if (!g->m || !g->n || !g->k) return NULL;
  p.a = layout_of(g->m, g->k, g->a.rows, g->a.cols);
  p.b = layout_of(g->k, g->n, g->b.rows, g->b.cols);
  return call_library(m, &p, &o, 0, 0, 0);
}
