/* Rows times a matrix stored by columns: y[m, n] = a[m, k] * b[k, n], a column of b contiguous, as a layer's weights
 * [out, in] lie. A library first copies both operands into an order of its own, which with the few rows of an expert
 * costs as much as the product. Here only the rows are turned around - the lanes of a vector are rows - and the matrix
 * is read as it lies:
 *
 *   for each NB columns, for each 8, 16 or 24 rows, for each KB of k:
 *     x[k][lane] = rows, s[column][lane] += sum over k of b[k][column] * x[k][lane]
 *
 * The sum of an element is taken in the order of k, whatever else is computed with it. */
#include "runtime/gemm.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma")))
#define AVX2_INLINE AVX2 __attribute__((always_inline)) static inline

enum { KB = 256, NB = 384, VECTORS = 3, LANES = 8 * VECTORS, LINE = 16 };

typedef struct block {
  float x[KB * LANES] __attribute__((aligned(32)));
  float s[NB * LANES] __attribute__((aligned(32)));
} block;

/* Eight vectors as the columns of eight rows. */
AVX2_INLINE void transpose(__m256 v[8]) {
  __m256 t[8], u[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    v[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    v[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
}

/* x[k][lane] = a[lane][k]; lanes without a row repeat the last one. */
AVX2 static void load_rows(const float *a, int64_t stride, int64_t rows, int64_t k, int width, float *x) {
  for (int lane = 0; lane < width; lane += 8) {
    const float *row[8];
    for (int i = 0; i < 8; i++) row[i] = a + (lane + i < rows ? lane + i : rows - 1) * stride;
    int64_t j = 0;
    for (; j + 8 <= k; j += 8) {
      __m256 v[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; i++) v[i] = _mm256_loadu_ps(row[i] + j);
      transpose(v);
#pragma GCC unroll 8
      for (int i = 0; i < 8; i++) _mm256_store_ps(x + (j + i) * width + lane, v[i]);
    }
    for (; j < k; j++)
      for (int i = 0; i < 8; i++) x[j * width + lane + i] = row[i][j];
  }
}

/* y[lane][column] = s[column][lane], or += */
AVX2 static void store_rows(const float *s, int width, int64_t rows, int64_t n, float *y, int64_t stride, bool add) {
  for (int64_t lane = 0; lane < rows; lane += 8) {
    int count = rows - lane < 8 ? (int)(rows - lane) : 8;
    int64_t j = 0;
    for (; j + 8 <= n; j += 8) {
      __m256 v[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; i++) v[i] = _mm256_load_ps(s + (j + i) * width + lane);
      transpose(v);
      for (int i = 0; i < count; i++) {
        float *to = y + (lane + i) * stride + j;
        _mm256_storeu_ps(to, add ? _mm256_add_ps(_mm256_loadu_ps(to), v[i]) : v[i]);
      }
    }
    for (; j < n; j++)
      for (int i = 0; i < count; i++) {
        float *to = y + (lane + i) * stride + j;
        *to = add ? *to + s[j * width + lane + i] : s[j * width + lane + i];
      }
  }
}

/* |nc| columns: sums of nc * nv vectors stay in registers. */
AVX2_INLINE void columns(const float *b, int64_t stride, const float *x, int64_t k, float *s, bool first, const int nc,
                         const int nv) {
  __m256 acc[12];
#pragma GCC unroll 12
  for (int i = 0; i < nc * nv; i++) acc[i] = first ? _mm256_setzero_ps() : _mm256_load_ps(s + 8 * i);
  for (int64_t j = 0; j < k; j++) {
    __m256 v[VECTORS];
    if (j % LINE == 0) { /* the columns that come next, a line of each */
#pragma GCC unroll 12
      for (int c = 0; c < nc; c++) _mm_prefetch((const char *)(b + (c + nc) * stride + j), _MM_HINT_T0);
    }
#pragma GCC unroll 3
    for (int i = 0; i < nv; i++) v[i] = _mm256_load_ps(x + (j * nv + i) * 8);
#pragma GCC unroll 12
    for (int c = 0; c < nc; c++) {
      __m256 w = _mm256_broadcast_ss(b + c * stride + j);
#pragma GCC unroll 3
      for (int i = 0; i < nv; i++) acc[c * nv + i] = _mm256_fmadd_ps(w, v[i], acc[c * nv + i]);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < nc * nv; i++) _mm256_store_ps(s + 8 * i, acc[i]);
}

AVX2_INLINE void all_columns(const float *b, int64_t stride, int64_t n, const float *x, int64_t k, float *s, bool first,
                             const int nv) {
  const int nc = 12 / nv;
  int64_t j = 0;
  for (; j + nc <= n; j += nc) columns(b + j * stride, stride, x, k, s + j * 8 * nv, first, nc, nv);
  for (; j < n; j++) columns(b + j * stride, stride, x, k, s + j * 8 * nv, first, 1, nv);
}

/* |rows| <= LANES rows from |row| on, |n| <= NB columns from |n0| on. */
AVX2 static void one_block(const moec_rt_gemm *g, int64_t row, int64_t rows, int64_t n0, int64_t n, block *w) {
  const int nv = (int)((rows + 7) / 8);
  const float *a = (const float *)g->a.data + row * g->a.rows, *b = (const float *)g->b.data + n0 * g->b.cols;
  for (int64_t k0 = 0; k0 < g->k; k0 += KB) {
    int64_t k = g->k - k0 < KB ? g->k - k0 : KB;
    load_rows(a + k0, g->a.rows, rows, k, 8 * nv, w->x);
    if (nv == 1)
      all_columns(b + k0, g->b.cols, n, w->x, k, w->s, k0 == 0, 1);
    else if (nv == 2)
      all_columns(b + k0, g->b.cols, n, w->x, k, w->s, k0 == 0, 2);
    else
      all_columns(b + k0, g->b.cols, n, w->x, k, w->s, k0 == 0, 3);
  }
  store_rows(w->s, 8 * nv, rows, n, (float *)g->y + row * g->y_rows + n0, g->y_rows, g->accumulate);
}

bool moec_rt_gemm_rows(const moec_rt_gemm *g) {
  if (g->m < 2 || g->k < 1 || g->a.cols != 1 || g->b.rows != 1) return false;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return false;
  block w;
  for (int64_t n0 = 0; n0 < g->n; n0 += NB) { /* a block of the matrix stays in the second level cache */
    int64_t n = g->n - n0 < NB ? g->n - n0 : NB;
    for (int64_t row = 0; row < g->m;) { /* as even as vectors allow: 40 rows are 24 + 16 */
      int64_t left = g->m - row, vectors = (left + 7) / 8, parts = (vectors + VECTORS - 1) / VECTORS;
      int64_t rows = (vectors + parts - 1) / parts * 8;
      if (rows > left) rows = left;
      one_block(g, row, rows, n0, n, &w);
      row += rows;
    }
  }
  return true;
}
#else
bool moec_rt_gemm_rows(const moec_rt_gemm *g) {
  (void)g;
  return false;
}
#endif
