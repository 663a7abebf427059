/* Counter-based random numbers: the generator of docs/ir.md (`random`). Element |i| of a seed is always the
 * same, whoever draws it and in whatever order. */
#ifndef MOEC_BASE_RANDOM_H
#define MOEC_BASE_RANDOM_H

#include "base/dtype.h"

/* |kind| 0: uniform in [0, 1), cut to the bits of the float dtype |t| so that rounding never gives 1;
 * 1: standard normal. */
double moec_random(moec_dtype t, int64_t kind, int64_t seed, int64_t i);

#endif
