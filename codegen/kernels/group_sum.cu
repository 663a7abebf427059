/* ---- sums of the rows of experts ------------------------------------------------------------------ */

typedef union NAME(sum_part) {
  uint4 bits;
  T v[16 / sizeof(T)];
} NAME(sum_part);

/* A block sums 32 * |each| columns of an expert, |each| a thread; eight threads a column take every eighth row. */
MOEC_INLINE void NAME(sum_columns)(const T *x, const int32_t *offsets, void *y, int32_t y_dtype, int64_t experts,
                                   int64_t m, SUM (*sums)[16 / sizeof(T)][32], int each) {
  enum { WARPS = 8, AHEAD = 4, EACH = 16 / sizeof(T) };
  const int64_t across = (m + 32 * each - 1) / (32 * each);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int64_t part = blockIdx.x; part < experts * across; part += gridDim.x) {
    const int64_t e = part / across, j = (part % across * 32 + lane) * each, end = j < m ? offsets[e + 1] : 0;
    SUM sum[EACH] = {};
    for (int64_t r = offsets[e] + warp; r < end; r += WARPS * AHEAD) {
      NAME(sum_part) p[AHEAD];
#pragma unroll
      for (int s = 0; s < AHEAD; s++) {
        if (r + WARPS * s >= end) continue;
        const T *from = x + (r + WARPS * s) * m + j;
        if (each > 1) p[s].bits = *(const uint4 *)from;
        else p[s].v[0] = *from;
      }
#pragma unroll
      for (int s = 0; s < AHEAD; s++)
#pragma unroll
        for (int c = 0; c < each; c++)
          if (r + WARPS * s < end) sum[c] += LOAD(p[s].v[c]);
    }
#pragma unroll
    for (int c = 0; c < each; c++) sums[warp][c][lane] = sum[c];
    __syncthreads();
    for (int c = warp; c < each; c += WARPS) {
      SUM all = sums[0][c][lane];
      for (int w = 1; w < WARPS; w++) all += sums[w][c][lane];
      if (j + c < m) moec_store_any(y_dtype, y, e * m + j + c, all);
    }
    __syncthreads();
  }
}

extern "C" __global__ void __launch_bounds__(256)
NAME(group_sum)(const T *__restrict__ x, const int32_t *__restrict__ offsets, void *__restrict__ y, int32_t y_dtype,
                int64_t n, int64_t experts, int64_t m) {
  enum { EACH = 16 / sizeof(T) };
  __shared__ SUM sums[8][EACH][32];
  if (m % EACH) NAME(sum_columns)(x, offsets, y, y_dtype, experts, m, sums, 1);
  else NAME(sum_columns)(x, offsets, y, y_dtype, experts, m, sums, EACH);
}
