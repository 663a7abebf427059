/* Products of f32 and f64, by columns as the library stores them; counted in the fake driver. */
#include <stdlib.h>

#include "tests/support/fake_cuda.h"

int cublasCreate_v2(void **out);
int cublasDestroy_v2(void *handle);
int cublasSetStream_v2(void *handle, void *stream);
int cublasSetWorkspace_v2(void *handle, void *at, size_t bytes);
int cublasSetMathMode(void *handle, int mode);
int cublasGemmStridedBatchedEx_64(void *handle, int a_transposed, int b_transposed, int64_t m, int64_t n, int64_t k,
                                  const void *alpha, const void *a, int a_type, int64_t a_lead, long long a_step,
                                  const void *b, int b_type, int64_t b_lead, long long b_step, const void *beta,
                                  void *c, int c_type, int64_t c_lead, long long c_step, int64_t count, int compute,
                                  int algorithm);

enum { OK, INVALID_VALUE = 7, NOT_SUPPORTED = 15, F32 = 0, F64 = 1 };
static char the_handle;

int cublasCreate_v2(void **out) { return *out = &the_handle, fake_cuda_get()->live++, OK; }
int cublasDestroy_v2(void *handle) { return fake_cuda_get()->live--, handle == &the_handle ? OK : INVALID_VALUE; }
int cublasSetStream_v2(void *handle, void *stream) { return handle && stream ? OK : INVALID_VALUE; }
int cublasSetWorkspace_v2(void *handle, void *at, size_t bytes) { return handle && at && bytes ? OK : INVALID_VALUE; }
int cublasSetMathMode(void *handle, int mode) { return handle && mode == 16 ? OK : INVALID_VALUE; }

static double at(const void *data, int type, long long i) {
  return type == F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

typedef struct matrix {
  const void *data;
  int type, transposed;
  long long lead, first;
} matrix;

/* Element (r, c) of what is multiplied. */
static double element(const matrix *x, int64_t r, int64_t c) {
  return at(x->data, x->type, x->first + (x->transposed ? c + r * x->lead : r + c * x->lead));
}

int cublasGemmStridedBatchedEx_64(void *handle, int a_transposed, int b_transposed, int64_t m, int64_t n, int64_t k,
                                  const void *alpha, const void *a, int a_type, int64_t a_lead, long long a_step,
                                  const void *b, int b_type, int64_t b_lead, long long b_step, const void *beta,
                                  void *c, int c_type, int64_t c_lead, long long c_step, int64_t count, int compute,
                                  int algorithm) {
  fake_cuda *fake = fake_cuda_get();
  if (handle != &the_handle || algorithm != -1 || m < 1 || n < 1 || k < 1 || c_lead < m) return INVALID_VALUE;
  if (a_lead < (a_transposed ? k : m) || b_lead < (b_transposed ? n : k)) return INVALID_VALUE;
  if (a_type > F64 || b_type != a_type || c_type != a_type) return NOT_SUPPORTED;
  if (compute != (a_type == F64 ? 70 : 68)) return NOT_SUPPORTED;
  if (fake->recording) return fake->graph[0]++, OK;
  fake->gemms++, fake->gemm_batch += (uint64_t)count;
  for (int64_t i = 0; i < count; i++) {
    matrix x = {a, a_type, a_transposed, a_lead, i * a_step}, y = {b, b_type, b_transposed, b_lead, i * b_step};
    for (int64_t col = 0; col < n; col++) {
      for (int64_t row = 0; row < m; row++) {
        long long to = i * c_step + col * c_lead + row;
        double sum = 0, old = at(beta, a_type, 0);
        for (int64_t j = 0; j < k; j++) sum += element(&x, row, j) * element(&y, j, col);
        sum = sum * at(alpha, a_type, 0) + (old != 0 ? old * at(c, c_type, to) : 0);
        if (c_type == F64) ((double *)c)[to] = sum;
        else ((float *)c)[to] = (float)sum;
      }
    }
  }
  return OK;
}
