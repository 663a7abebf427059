/* sum_beside: mul+reduce_sum+sub f32[B], f32[B, 32] */
void sum_beside(const moec_kernel_args *a, int64_t begin, int64_t end) {
  const float *restrict const b0 = a->buf[0];
  const float *restrict const b1 = a->buf[1];
  float *restrict const b2 = a->buf[2];
  float *restrict const b3 = a->buf[3];
  for (int64_t row = begin; row < end; row++) {
    float a0 = 0;
#pragma omp simd reduction(+ : a0)
    for (int64_t c1 = 0; c1 < 32; c1++) {
      const float t1 = b1[row * 32 + c1];
      const float t2 = b0[row * 32 + c1] * t1;
      b3[row * 32 + c1] = t2 - t1;
      a0 += t2;
    }
    const float t0 = a0;
    b2[row] = t0;
  }
}
