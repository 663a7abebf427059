/* softmax_middle: reduce_max+sub+exp+reduce_sum+div f32[B, S, N] */
void softmax_middle(const moec_kernel_args *a, int64_t begin, int64_t end) {
  const int64_t s1 = a->sym[1];
  const int64_t s2 = a->sym[2];
  const float *restrict const b0 = a->buf[0];
  float *restrict const b1 = a->buf[1];
  float *restrict const w0 = (void *)((char *)a->scratch + 0);
  float *restrict const w1 = (void *)((char *)a->scratch + (64 * moec_floordiv((4 * s2 + 63), 64)));
  for (int64_t row = begin; row < end; row++) {
#pragma omp simd
    for (int64_t c2 = 0; c2 < s2; c2++) {
      w0[c2] = -INFINITY;
    }
    for (int64_t c1 = 0; c1 < s1; c1++) {
#pragma omp simd
      for (int64_t c2 = 0; c2 < s2; c2++) {
        w0[c2] = moec_max_f32(w0[c2], b0[row * (s2 * s1) + c1 * s2 + c2]);
      }
    }
#pragma omp simd
    for (int64_t c2 = 0; c2 < s2; c2++) {
      w1[c2] = 0;
    }
    for (int64_t c1 = 0; c1 < s1; c1++) {
#pragma omp simd
      for (int64_t c2 = 0; c2 < s2; c2++) {
        const float t0 = b0[row * (s2 * s1) + c1 * s2 + c2];
        const float t1 = w0[c2];
        w1[c2] = (w1[c2] + moec_exp_f32(t0 - t1));
      }
    }
    for (int64_t c1 = 0; c1 < s1; c1++) {
#pragma omp simd
      for (int64_t c2 = 0; c2 < s2; c2++) {
        const float t2 = b0[row * (s2 * s1) + c1 * s2 + c2];
        const float t3 = w0[c2];
        const float t4 = moec_exp_f32(t2 - t3);
        const float t5 = w1[c2];
        b1[row * (s2 * s1) + c1 * s2 + c2] = t4 / t5;
      }
    }
  }
}
