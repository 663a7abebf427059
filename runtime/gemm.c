#include "runtime/gemm.h"

#include <cblas.h>
#include <limits.h>
#include <string.h>

#include "runtime/convert.h"

/* ---- tiles ------------------------------------------------------------------------------- */

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

moec_rt_tiles moec_rt_gemm_tiles(int64_t m, int64_t n, int64_t k) {
  /* About 50 us of work a tile, and at most so many tiles that rearranging the rows, which every
   * tile does for itself and uses once a column, costs little. */
  enum { WORTH = 1 << 21, MOST = 64, STEP = 16, LEAST_ROWS = 32, LEAST_COLUMNS = 128 };
  moec_rt_tiles t = {m < 1 ? 1 : m, n < 1 ? 1 : n, 1, 1};
  double work = (double)m * (double)n * (double)k;
  int64_t wanted = work / WORTH >= MOST ? MOST : (int64_t)(work / WORTH);
  while (t.rows * t.cols < wanted) {
    bool by_rows = t.m >= 2 * LEAST_ROWS && (t.m >= t.n || t.n < 2 * LEAST_COLUMNS);
    int64_t *size = by_rows ? &t.m : &t.n;
    if (!by_rows && t.n < 2 * LEAST_COLUMNS) break;
    *size = ceil_div(ceil_div(*size, 2), STEP) * STEP;
    t.rows = ceil_div(m, t.m);
    t.cols = ceil_div(n, t.n);
  }
  return t;
}

static const uint8_t *at(const moec_rt_matrix *x, int64_t row, int64_t col) {
  int64_t offset = (row * x->rows + col * x->cols) * (int64_t)moec_dtype_get(x->dtype)->bytes;
  return (const uint8_t *)x->data + offset;
}

moec_rt_gemm moec_rt_gemm_tile(const moec_rt_gemm *g, int64_t row, int64_t m, int64_t col,
                               int64_t n) {
  moec_rt_gemm t = *g;
  t.m = m;
  t.n = n;
  t.a.data = at(&g->a, row, 0);
  t.b.data = at(&g->b, 0, col);
  t.y = (uint8_t *)g->y + (row * g->y_rows + col) * (int64_t)moec_dtype_get(g->y_dtype)->bytes;
  return t;
}

/* ---- the library ------------------------------------------------------------------------- */

/* How BLAS walks a row-major matrix: as it is, or as the transpose of what lies there. */
typedef struct layout {
  bool transposed;
  int64_t lead;
} layout;

static layout layout_of(const moec_rt_matrix *x, int64_t rows, int64_t cols) {
  if (x->cols == 1 || cols <= 1) {
    int64_t lead = rows > 1 ? x->rows : cols;
    return (layout){false, lead < 1 ? 1 : lead};
  }
  int64_t lead = x->cols;
  return (layout){true, lead < 1 ? 1 : lead};
}

bool moec_rt_matrix_fits(const moec_rt_matrix *x, int64_t rows, int64_t cols) {
  if (rows > INT_MAX || cols > INT_MAX) return false;
  if (rows <= 0 || cols <= 0) return true;
  layout l = layout_of(x, rows, cols);
  if (l.lead > INT_MAX) return false;
  if (!l.transposed) return l.lead >= cols && (rows == 1 || x->rows == l.lead);
  return (rows == 1 || x->rows == 1) && l.lead >= rows && x->cols == l.lead;
}

static CBLAS_TRANSPOSE flag(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

/* A single row or column is bound by memory: the library's gemv reads the matrix once, where gemm
 * would first copy it. LIBRARY(type, gemm, gemv). */
#define LIBRARY(name, type, gemm, gemv)                                                            \
  static void name(const moec_rt_gemm *g) {                                                        \
    const type *a = g->a.data, *b = g->b.data;                                                     \
    type *y = g->y, beta = g->accumulate ? 1 : 0;                                                  \
    int m = (int)g->m, n = (int)g->n, k = (int)g->k;                                               \
    layout la = layout_of(&g->a, m, k), lb = layout_of(&g->b, k, n);                               \
    if (m == 1) { /* y = b^T a */                                                                  \
      gemv(CblasRowMajor, flag(!lb.transposed), lb.transposed ? n : k, lb.transposed ? k : n, 1,   \
           b, (int)lb.lead, a, k > 1 ? (int)g->a.cols : 1, beta, y, 1);                            \
    } else if (n == 1) {                                                                           \
      gemv(CblasRowMajor, flag(la.transposed), la.transposed ? k : m, la.transposed ? m : k, 1, a, \
           (int)la.lead, b, k > 1 ? (int)g->b.rows : 1, beta, y, (int)g->y_rows);                  \
    } else {                                                                                       \
      gemm(CblasRowMajor, flag(la.transposed), flag(lb.transposed), m, n, k, 1, a, (int)la.lead,   \
           b, (int)lb.lead, beta, y, (int)g->y_rows);                                              \
    }                                                                                              \
  }
LIBRARY(run_f32, float, cblas_sgemm, cblas_sgemv)
LIBRARY(run_f64, double, cblas_dgemm, cblas_dgemv)

/* ---- everything else --------------------------------------------------------------------- */

static void run_integers(const moec_rt_gemm *g) {
  for (int64_t i = 0; i < g->m; i++) {
    for (int64_t j = 0; j < g->n; j++) {
      size_t to = (size_t)(i * g->y_rows + j);
      uint64_t sum = g->accumulate ? (uint64_t)moec_load_i64(g->y_dtype, g->y, to) : 0;
      for (int64_t l = 0; l < g->k; l++) {
        int64_t a = moec_load_i64(g->a.dtype, g->a.data, (size_t)(i * g->a.rows + l * g->a.cols));
        int64_t b = moec_load_i64(g->b.dtype, g->b.data, (size_t)(l * g->b.rows + j * g->b.cols));
        sum += (uint64_t)a * (uint64_t)b;
      }
      moec_store_i64(g->y_dtype, g->y, to, (int64_t)sum);
    }
  }
}

/* Narrow floats go through f32 blocks in scratch; sums stay in f32 until the last one. */
enum { BLOCK = 256 };

static void load_block(const moec_rt_matrix *x, int64_t row, int64_t rows, int64_t col,
                       int64_t cols, float *out) {
  for (int64_t r = 0; r < rows; r++) {
    moec_rt_convert(MOEC_F32, out + r * cols, 1, x->dtype, at(x, row + r, col), x->cols, cols);
  }
}

static void run_block(const moec_rt_gemm *g, float *scratch) {
  float *a = scratch, *b = a + BLOCK * BLOCK, *y = b + BLOCK * BLOCK;
  moec_rt_matrix to = {g->y, g->y_dtype, g->y_rows, 1};
  if (g->accumulate)
    load_block(&to, 0, g->m, 0, g->n, y);
  else
    memset(y, 0, (size_t)(g->m * g->n) * sizeof *y);
  for (int64_t k0 = 0; k0 < g->k; k0 += BLOCK) {
    int64_t k = g->k - k0 < BLOCK ? g->k - k0 : BLOCK;
    load_block(&g->a, 0, g->m, k0, k, a);
    load_block(&g->b, k0, k, 0, g->n, b);
    run_f32(&(moec_rt_gemm){.m = g->m,
                            .n = g->n,
                            .k = k,
                            .a = {a, MOEC_F32, k, 1},
                            .b = {b, MOEC_F32, g->n, 1},
                            .y = y,
                            .y_dtype = MOEC_F32,
                            .y_rows = g->n,
                            .accumulate = true});
  }
  int64_t bytes = (int64_t)moec_dtype_get(g->y_dtype)->bytes;
  for (int64_t r = 0; r < g->m; r++) {
    moec_rt_convert(g->y_dtype, (uint8_t *)g->y + r * g->y_rows * bytes, 1, MOEC_F32, y + r * g->n,
                    1, g->n);
  }
}

static void run_blocks(const moec_rt_gemm *g, void *scratch) {
  for (int64_t i = 0; i < g->m; i += BLOCK) {
    for (int64_t j = 0; j < g->n; j += BLOCK) {
      moec_rt_gemm t = moec_rt_gemm_tile(g, i, g->m - i < BLOCK ? g->m - i : BLOCK, j,
                                         g->n - j < BLOCK ? g->n - j : BLOCK);
      run_block(&t, scratch);
    }
  }
}

static bool all(const moec_rt_gemm *g, moec_dtype t) {
  return g->a.dtype == t && g->b.dtype == t && g->y_dtype == t;
}

uint64_t moec_rt_gemm_scratch(moec_dtype a, moec_dtype b, moec_dtype y) {
  if (a == b && b == y && (a == MOEC_F32 || a == MOEC_F64)) return 0;
  return moec_dtype_is_float(y) ? 3ull * BLOCK * BLOCK * sizeof(float) : 0;
}

void moec_rt_gemm_run(const moec_rt_gemm *g, void *scratch) {
  if (g->m <= 0 || g->n <= 0) return;
  if (g->k <= 0) { /* an empty sum; the library may not look at y at all */
    size_t row = (size_t)g->n * moec_dtype_get(g->y_dtype)->bytes;
    int64_t step = g->y_rows * (int64_t)moec_dtype_get(g->y_dtype)->bytes;
    for (int64_t i = 0; i < g->m && !g->accumulate; i++) memset((uint8_t *)g->y + i * step, 0, row);
  } else if (all(g, MOEC_F32)) {
    if (!moec_rt_gemm_rows(g)) run_f32(g);
  } else if (all(g, MOEC_F64)) {
    run_f64(g);
  } else if (moec_dtype_is_float(g->y_dtype)) {
    run_blocks(g, scratch);
  } else {
    run_integers(g);
  }
}
