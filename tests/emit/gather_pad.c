/* gather_pad: gather f32[B, 7] */
void gather_pad(const moec_kernel_args *a, int64_t begin, int64_t end) {
  const int64_t s1 = a->sym[1];
  const float *restrict const b0 = a->buf[0];
  const int64_t *restrict const b1 = a->buf[1];
  const float *restrict const b2 = a->buf[2];
  float *restrict const b3 = a->buf[3];
  const float t0 = b2[0];
  const bool t1 = s1 > 0;
  for (int64_t row = begin; row < end; row++) {
#pragma omp simd
    for (int64_t c1 = 0; c1 < 1; c1++) {
      b3[row * 7 + c1] = t0;
    }
    const int64_t t2 = moec_wrap(b1[row], s1, a->fault);
#pragma omp simd
    for (int64_t c2 = 1; c2 < 7; c2++) {
      b3[row * 7 + c2] = t1 ? b0[c2 + t2 * 6 - 1] : 0;
    }
  }
}
