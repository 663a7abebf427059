/* Matrix products on one thread, and how to cut a large one into tiles. Thread-safe. */
#ifndef MOEC_RUNTIME_GEMM_H
#define MOEC_RUNTIME_GEMM_H

#include "base/dtype.h"

/* Element (r, c) is at data[r * rows + c * cols]. */
typedef struct moec_rt_matrix {
  const void *data;
  moec_dtype dtype;
  int64_t rows, cols; /* strides in elements */
} moec_rt_matrix;

typedef struct moec_rt_gemm {
  int64_t m, n, k;
  moec_rt_matrix a, b; /* [m, k], [k, n] */
  void *y;             /* [m, n], rows of |y_rows| elements */
  moec_dtype y_dtype;
  int64_t y_rows;
  bool accumulate; /* y += a * b, else y = a * b */
} moec_rt_gemm;

/* Bytes of scratch that moec_rt_gemm_run() needs for these types; 0 for f32 and f64. */
uint64_t moec_rt_gemm_scratch(moec_dtype a, moec_dtype b, moec_dtype y);
/* Whether the library can walk |x|, a [rows, cols] matrix: one stride is 1 or its axis has size 1,
 * the other is at least the contiguous axis, everything fits 32 bits. */
bool moec_rt_matrix_fits(const moec_rt_matrix *x, int64_t rows, int64_t cols);
/* The product, if it is one of f32 rows with a matrix stored by columns (b.rows == 1) and this processor has the
 * vectors; else nothing and false. All operands are f32. */
bool moec_rt_gemm_rows(const moec_rt_gemm *g);
/* Floats accumulate in at least f32, integers wrap. */
void moec_rt_gemm_run(const moec_rt_gemm *g, void *scratch);

/* Rows [row, row + m) and columns [col, col + n) of |g| as a product of its own. */
moec_rt_gemm moec_rt_gemm_tile(const moec_rt_gemm *g, int64_t row, int64_t m, int64_t col,
                               int64_t n);

/* Tiles of m x n x k, by its sizes alone so that results do not depend on threads. */
typedef struct moec_rt_tiles {
  int64_t m, n;       /* of a tile */
  int64_t rows, cols; /* how many tiles */
} moec_rt_tiles;
moec_rt_tiles moec_rt_gemm_tiles(int64_t m, int64_t n, int64_t k);

#endif
