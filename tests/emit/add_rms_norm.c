/* add_rms_norm: add+cast+mul+reduce_sum+div+rsqrt bf16[B, S, 64], bf16[B, S, 64] */
void add_rms_norm(const moec_kernel_args *a, int64_t begin, int64_t end) {
  const uint16_t *restrict const b0 = a->buf[0];
  const uint16_t *restrict const b1 = a->buf[1];
  const uint16_t *restrict const b2 = a->buf[2];
  uint16_t *restrict const b3 = a->buf[3];
  uint16_t *restrict const b4 = a->buf[4];
  for (int64_t row = begin; row < end; row++) {
    float a0 = 0;
#pragma omp simd reduction(+ : a0)
    for (int64_t c1 = 0; c1 < 64; c1++) {
      const float t1 = moec_load_bf16(b0[row * 64 + c1]) + moec_load_bf16(b2[row * 64 + c1]);
      a0 += t1 * t1;
    }
    const float t0 = a0;
    const float t2 = moec_rsqrt_f32((t0 / 0x1p+6f) + 0x1.0c6f7ap-20f);
#pragma omp simd
    for (int64_t c1 = 0; c1 < 64; c1++) {
      const float t3 = moec_load_bf16(b0[row * 64 + c1]) + moec_load_bf16(b2[row * 64 + c1]);
      b3[row * 64 + c1] = moec_store_bf16(t3);
      b4[row * 64 + c1] = moec_store_bf16(moec_round_bf16(t3 * t2) * moec_load_bf16(b1[c1]));
    }
  }
}
