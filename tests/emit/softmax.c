/* softmax: reduce_max+sub+exp+reduce_sum+div f32[B, S] */
void softmax(const moec_kernel_args *a, int64_t begin, int64_t end) {
  const int64_t s1 = a->sym[1];
  const float *restrict const b0 = a->buf[0];
  float *restrict const b1 = a->buf[1];
  float *restrict const w0 = (void *)((char *)a->scratch + 0);
  for (int64_t row = begin; row < end; row++) {
    float a0 = -INFINITY;
#pragma omp simd reduction(moec_max : a0)
    for (int64_t c1 = 0; c1 < s1; c1++) {
      a0 = moec_max_f32(a0, b0[row * s1 + c1]);
    }
    const float t0 = a0;
    float a1 = 0;
#pragma omp simd reduction(+ : a1)
    for (int64_t c1 = 0; c1 < s1; c1++) {
      const float t2 = b0[row * s1 + c1];
      const float t3 = moec_exp_f32(t2 - t0);
      w0[c1] = t3;
      a1 += t3;
    }
    const float t1 = a1;
#pragma omp simd
    for (int64_t c1 = 0; c1 < s1; c1++) {
      const float t4 = w0[c1];
      b1[row * s1 + c1] = t4 / t1;
    }
  }
}
