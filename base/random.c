/* splitmix64 of seed and counter. */
#include "base/random.h"

#include <math.h>

/* Significant bits of a float dtype, at most the 24 that are drawn. */
static int precision(moec_dtype t) { return t == MOEC_BF16 ? 8 : t == MOEC_F16 ? 11 : 24; }

/* |v| in [0, 1) cut to |bits| significant bits. */
static double cut(double v, int bits) {
  int exponent;
  double mantissa = frexp(v, &exponent);
  return ldexp(floor(ldexp(mantissa, bits)), exponent - bits);
}

double moec_random(moec_dtype t, int64_t kind, int64_t seed, int64_t i) {
  uint64_t h = moec_mix(moec_mix((uint64_t)seed) + (uint64_t)i);
  double u = (double)(h >> 40) * 0x1p-24, v = (double)(h >> 16 & 0xffffff) * 0x1p-24;
  return kind == 0 ? cut(u, precision(t)) : sqrt(-2 * log(1 - u)) * cos(2 * M_PI * v);
}
