/* Integer values that are base + coef * (position on |axis|). */
#ifndef MOEC_PASSES_SIMPLIFY_AFFINE_H
#define MOEC_PASSES_SIMPLIFY_AFFINE_H

#include "passes/simplify.h"

typedef struct moec_affine {
  moec_dim base;
  int64_t axis; /* -1: the same everywhere */
  int64_t coef; /* 0 where axis is -1 */
} moec_affine;

bool moec_s_affine(moec_simplifier *s, moec_value v, moec_affine *out);
moec_value moec_s_affine_value(moec_simplifier *s, moec_type type, moec_affine a);

#endif
