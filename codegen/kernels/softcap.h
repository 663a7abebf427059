/* What prelude.c and prelude.cu have behind their moec_tanh_f32(). */

/* A score |x| as a cap leaves it, cap * tanh(x / cap), and the slope there. No cap: 0. */
MOEC_INLINE float moec_softcap(float x, float cap, float *slope) {
  *slope = 1;
  if (!(cap > 0)) return x;
  const float y = moec_tanh_f32(x / cap);
  *slope = 1 - y * y;
  return cap * y;
}
