/* Counter-based random numbers: the generator of docs/ir.md (`random`). Element |i| of a seed is always the
 * same, whoever draws it and in whatever order. */
#ifndef MOEC_BASE_RANDOM_H
#define MOEC_BASE_RANDOM_H

#include "base/dtype.h"

/* splitmix64: number |state| of a sequence of well mixed 64-bit numbers, whose states are MOEC_MIX_STEP apart. */
#define MOEC_MIX_STEP 0x9e3779b97f4a7c15u
static inline uint64_t moec_mix(uint64_t state) {
  uint64_t z = state + MOEC_MIX_STEP;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

/* |kind| 0: uniform in [0, 1), cut to the bits of the float dtype |t| so that rounding never gives 1;
 * 1: standard normal. */
double moec_random(moec_dtype t, int64_t kind, int64_t seed, int64_t i);

#endif
