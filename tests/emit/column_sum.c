/* column_sum: reduce_sum f32[N] */
void column_sum(const moec_kernel_args *a, int64_t begin, int64_t end) {
  const int64_t s0 = a->sym[0];
  const int64_t s1 = a->sym[1];
  const float *restrict const b0 = a->buf[0];
  float *restrict const b1 = a->buf[1];
  float w0[128] __attribute__((aligned(64)));
  for (int64_t block = begin; block < end; block += 128) {
    const int64_t lanes = moec_least(end - block, 128);
#pragma omp simd
    for (int64_t lane = 0; lane < lanes; lane++) {
      w0[lane] = 0;
    }
    for (int64_t c2 = 0; c2 < s0; c2++) {
#pragma omp simd
      for (int64_t lane = 0; lane < lanes; lane++) {
        w0[lane] = (w0[lane] + b0[block + lane + c2 * s1]);
      }
    }
#pragma omp simd
    for (int64_t lane = 0; lane < lanes; lane++) {
      const float t0 = w0[lane];
      b1[block + lane] = t0;
    }
  }
}
