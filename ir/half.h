/* What a function of the model is, by what it computes: half of a decoder block that mixes tokens, or half that
 * works on each by itself. Names take no part. The outline pass, the plan and the report all ask here, so
 * that they cut the model into the same decoder blocks. */
#ifndef MOEC_IR_HALF_H
#define MOEC_IR_HALF_H

#include "ir/ir.h"

typedef enum moec_half {
  MOEC_HALF_ATTENTION, /* has an attention, maybe inside of a kernel */
  MOEC_HALF_MIXER,     /* tokens meet in a scan, a convolution or a product of two computed values */
  MOEC_HALF_MOE,       /* has an expert region */
  MOEC_HALF_MLP        /* none of these */
} moec_half;

/* |computed|: by input of |g|: whether its value depends on inputs of the model, not on parameters and sizes
 * alone. */
moec_half moec_half_of(const moec_graph *g, const bool *computed);

/* "attention", "mixer", "moe", "mlp" */
const char *moec_half_text(moec_half half);

/* A decoder block starts with the half that mixes tokens. */
static inline bool moec_half_starts_block(moec_half half) {
  return half == MOEC_HALF_ATTENTION || half == MOEC_HALF_MIXER;
}

#endif
