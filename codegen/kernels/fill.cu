/* ---- cast ---------------------------------------------------------------------------------------- */

/* Of bytes, as far as 16 of them fit at a time. */
static __device__ void moec_copy_bytes(void *y, const void *x, int64_t bytes) {
  const int64_t whole = ((uint64_t)x | (uint64_t)y) % 16 ? 0 : bytes / 16;
  for (int64_t i = MOEC_FIRST; i < whole; i += MOEC_STEP) ((uint4 *)y)[i] = ((const uint4 *)x)[i];
  for (int64_t i = whole * 16 + MOEC_FIRST; i < bytes; i += MOEC_STEP) ((uint8_t *)y)[i] = ((const uint8_t *)x)[i];
}

extern "C" __global__ void __launch_bounds__(256)
moec_cast(void *y, int32_t y_dtype, const void *x, int32_t x_dtype, int64_t n) {
  static const int8_t sizes[] = {0, 4, 8, 2, 2, 8, 4, 2, 1, 8, 4, 2, 1, 1};
  if (y_dtype == x_dtype) {
    moec_copy_bytes(y, x, n * sizes[y_dtype]);
    return;
  }
  if (x_dtype == MOEC_F64 || y_dtype == MOEC_F64) {
    for (int64_t i = MOEC_FIRST; i < n; i += MOEC_STEP) moec_store_any(y_dtype, y, i, moec_load_f64(x_dtype, x, i));
    return;
  }
  for (int64_t i = MOEC_FIRST; i < n; i += MOEC_STEP) moec_store_any(y_dtype, y, i, moec_load_f32(x_dtype, x, i));
}

/* ---- weights from a seed: base/fresh.c says what they are ------------------------------------------ */

MOEC_INLINE int32_t moec_fresh_draw(uint64_t h) {
  const uint64_t even = 0x0000ffff0000ffffULL;
  uint64_t g = h * 0xd6e8feb86659fd93ULL;
  g ^= g >> 32;
  const uint64_t pairs = (h & even) + (h >> 16 & even) + (g & even) + (g >> 16 & even);
  return (int32_t)(pairs & 0xffffffff) + (int32_t)(pairs >> 32) - 4 * 65535;
}

extern "C" __global__ void __launch_bounds__(256)
moec_normal(void *y, int32_t dtype, int32_t stored, uint64_t start, float scale, int64_t n) {
  for (int64_t i = MOEC_FIRST; i < n; i += MOEC_STEP) {
    float v = (float)moec_fresh_draw(moec_mix(start + (uint64_t)i)) * scale;
    if (stored == MOEC_BF16) v = moec_load_bf16(moec_store_bf16(v));
    if (stored == MOEC_F16) v = moec_load_f16(moec_store_f16(v));
    moec_store_any(dtype, y, i, v);
  }
}
