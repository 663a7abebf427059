/* The gradient of the weighted restore as one kernel, for bench/restore.py: d_rows = weight * dy[token], d_weight =
 * dy[token] . row. No compiled model launches it: theirs take the weights' gradient behind the second product. A warp
 * works on an assignment; nobody else writes what it writes. */
extern "C" __global__ void __launch_bounds__(256)
bench_restore_grad(const uint16_t *__restrict__ dy, const uint16_t *__restrict__ rows, const int32_t *__restrict__ inv,
                   const float *__restrict__ w, uint16_t *__restrict__ d_rows, float *__restrict__ d_w, int64_t n,
                   int64_t k, int64_t width) {
  enum { AHEAD = 4, EACH = 8 };
  typedef union part {
    uint4 bits;
    uint16_t v[EACH];
  } part;
  MOEC_WARP_TEAM
  for (int64_t a = team; a < n; a += n_teams) {
    const int64_t row = inv[a], token = (uint32_t)a / (uint32_t)k;
    const float f = w[a];
    float sum = 0;
    for (int64_t first = self * EACH; first < width; first += 32 * EACH * AHEAD) {
      part x[AHEAD], d[AHEAD];
#pragma unroll
      for (int s = 0; s < AHEAD; s++) {
        const int64_t i = first + 32 * EACH * s;
        if (i < width) x[s].bits = *(const uint4 *)(rows + row * width + i);
        if (i < width) d[s].bits = *(const uint4 *)(dy + token * width + i);
      }
#pragma unroll
      for (int s = 0; s < AHEAD; s++) {
        const int64_t i = first + 32 * EACH * s;
        if (i >= width) continue;
#pragma unroll
        for (int c = 0; c < EACH; c++) {
          const float g = moec_load_bf16(d[s].v[c]);
          sum += g * moec_load_bf16(x[s].v[c]);
          d[s].v[c] = moec_store_bf16(g * f);
        }
        *(uint4 *)(d_rows + row * width + i) = d[s].bits;
      }
    }
    for (int distance = 16; distance; distance >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (self == 0) d_w[a] = sum;
  }
}
