/* ---- products of experts ---------------------------------------------------------------------------
 * A block of 256 threads makes a tile of 64 x 64 elements, 4 x 4 a thread. Which expert a tile of rows belongs to is
 * found from the offsets here, so that nobody waits for them. */

enum { NAME(SIDE) = 64, NAME(DEPTH) = 16 };

/* sum[r][c] += a tile of A[i, k] * B[k, j], element (i, k) at a[i * a_i + k * a_k]; ni, nj: as far as there are. */
static __device__ void NAME(tile)(const T *__restrict__ a, int64_t a_i, int64_t a_k, int64_t ni,
                                  const T *__restrict__ b, int64_t b_j, int64_t b_k, int64_t nj, int64_t nk,
                                  SUM (*sum)[4]) {
  __shared__ SUM as[NAME(DEPTH)][NAME(SIDE) + 1], bs[NAME(DEPTH)][NAME(SIDE) + 1];
  const int row = threadIdx.x / 16, column = threadIdx.x % 16;
  for (int64_t k0 = 0; k0 < nk; k0 += NAME(DEPTH)) {
    for (int t = threadIdx.x; t < NAME(SIDE) * NAME(DEPTH); t += 256) { /* neighbours read neighbours */
      int i = a_k == 1 ? t / NAME(DEPTH) : t % NAME(SIDE), k = a_k == 1 ? t % NAME(DEPTH) : t / NAME(SIDE);
      as[k][i] = i < ni && k0 + k < nk ? (SUM)LOAD(a[i * a_i + (k0 + k) * a_k]) : 0;
      int j = b_k == 1 ? t / NAME(DEPTH) : t % NAME(SIDE);
      k = b_k == 1 ? t % NAME(DEPTH) : t / NAME(SIDE);
      bs[k][j] = j < nj && k0 + k < nk ? (SUM)LOAD(b[j * b_j + (k0 + k) * b_k]) : 0;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < NAME(DEPTH); k++) {
      SUM x[4], y[4];
      for (int r = 0; r < 4; r++) x[r] = as[k][row + 16 * r], y[r] = bs[k][column + 16 * r];
      for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++) sum[r][c] += x[r] * y[c];
    }
    __syncthreads();
  }
}

extern "C" __global__ void __launch_bounds__(256)
NAME(grouped_dot)(const T *__restrict__ rows, const T *__restrict__ w, const int32_t *__restrict__ offsets,
                  const void *__restrict__ bias, int32_t bias_dtype, void *__restrict__ y, int32_t y_dtype, int64_t n,
                  int64_t experts, int64_t k, int64_t m, int32_t transposed) {
  const int64_t side = NAME(SIDE), across = (m + side - 1) / side, most = (n + side - 1) / side + experts;
  const int row = threadIdx.x / 16, column = threadIdx.x % 16;
  int64_t e = 0, before = 0; /* tiles of rows of the experts in front of e */
  for (int64_t tile = blockIdx.x; tile < most * across; tile += gridDim.x) {
    const int64_t down = tile / across, j0 = tile % across * side;
    int64_t have = 0;
    for (; e < experts; e++, before += have) {
      have = (offsets[e + 1] - offsets[e] + side - 1) / side;
      if (down < before + have) break;
    }
    if (e == experts) return;
    const int64_t i0 = offsets[e] + (down - before) * side, ni = moec_least(offsets[e + 1] - i0, side);
    const int64_t nj = moec_least(m - j0, side);
    SUM sum[4][4] = {};
    for (int r = 0; r < 4 && bias; r++)
      for (int c = 0; c < 4; c++)
        if (column + 16 * c < nj) sum[r][c] = (SUM)moec_load_f64(bias_dtype, bias, e * m + j0 + column + 16 * c);
    NAME(tile)(rows + i0 * k, k, 1, ni, w + e * k * m + (transposed ? j0 * k : j0), transposed ? k : 1,
               transposed ? 1 : m, nj, k, sum);
    for (int r = 0; r < 4; r++)
      for (int c = 0; c < 4; c++)
        if (row + 16 * r < ni && column + 16 * c < nj)
          moec_store_any(y_dtype, y, (i0 + row + 16 * r) * m + j0 + column + 16 * c, sum[r][c]);
  }
}

extern "C" __global__ void __launch_bounds__(256)
NAME(grouped_outer)(const T *__restrict__ dy, const T *__restrict__ x, const int32_t *__restrict__ offsets,
                    void *__restrict__ y, int32_t y_dtype, int64_t n, int64_t experts, int64_t m, int64_t k) {
  const int64_t side = NAME(SIDE), down = (m + side - 1) / side, across = (k + side - 1) / side;
  const int row = threadIdx.x / 16, column = threadIdx.x % 16;
  for (int64_t tile = blockIdx.x; tile < experts * down * across; tile += gridDim.x) {
    const int64_t e = tile / across / down, i0 = tile / across % down * side, j0 = tile % across * side;
    const int64_t ni = moec_least(m - i0, side), nj = moec_least(k - j0, side), first = offsets[e];
    SUM sum[4][4] = {};
    NAME(tile)(dy + first * m + i0, 1, m, ni, x + first * k + j0, 1, k, nj, offsets[e + 1] - first, sum);
    for (int r = 0; r < 4; r++)
      for (int c = 0; c < 4; c++)
        if (row + 16 * r < ni && column + 16 * c < nj)
          moec_store_any(y_dtype, y, (e * m + i0 + row + 16 * r) * k + j0 + column + 16 * c, sum[r][c]);
  }
}
