/* rope: mul+sub+add f32[B, S, 4, 16] */
void rope(const moec_kernel_args *a, int64_t begin, int64_t end) {
  const int64_t s1 = a->sym[1];
  const float *restrict const b0 = a->buf[0];
  const float *restrict const b1 = a->buf[1];
  const float *restrict const b2 = a->buf[2];
  float *restrict const b3 = a->buf[3];
  for (int64_t row = begin; row < end; row++) {
    const int64_t t0 = row % s1;
    const int64_t t1 = row / s1;
    for (int64_t c1 = 0; c1 < 4; c1++) {
#pragma omp simd
      for (int64_t c2 = 0; c2 < 8; c2++) {
        const float t2 = b0[c1 * (16 * s1) + c2 + t0 * 16 + t1 * (64 * s1)];
        const float t3 = b1[row * 8 + c2];
        const float t4 = b0[c1 * (16 * s1) + c2 + t0 * 16 + t1 * (64 * s1) + 8];
        const float t5 = b2[row * 8 + c2];
        b3[row * 64 + c1 * 16 + c2] = (t2 * t3) - (t4 * t5);
        b3[row * 64 + c1 * 16 + c2 + 8] = (t4 * t3) + (t2 * t5);
      }
    }
  }
}
