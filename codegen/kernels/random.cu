/* ---- random: the numbers of docs/ir.md -------------------------------------------------------------- */

extern "C" __global__ void __launch_bounds__(256) NAME(random)(T *y, int64_t n, int32_t kind, int64_t seed) {
  const int bits = sizeof(T) != 2 ? 24 : LOAD((T)0x3f80) == 1 ? 8 : 11; /* of bf16, whose 1 this is, or f16 */
  for (int64_t i = MOEC_FIRST; i < n; i += MOEC_STEP) {
    const uint64_t h = moec_mix(moec_mix((uint64_t)seed) + (uint64_t)i);
    const double u = (double)(h >> 40) * 0x1p-24, v = (double)(h >> 16 & 0xffffff) * 0x1p-24;
    int exponent = 0;
    const double mantissa = frexp(u, &exponent);
    const double r = kind == 0 ? ldexp(floor(ldexp(mantissa, bits)), exponent - bits)
                               : sqrt(-2 * log(1 - u)) * cos(2 * 3.14159265358979323846 * v);
    y[i] = STORE((SUM)r);
  }
}
