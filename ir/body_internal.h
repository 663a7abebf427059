/* What the bodies of composites share. */
#ifndef MOEC_IR_BODY_INTERNAL_H
#define MOEC_IR_BODY_INTERNAL_H

#include "ir/builder.h"

/* A composite being spelled out: operands in, results out. Errors stay in the builder. */
typedef struct moec_body {
  moec_builder *b;
  moec_module *m;
  const void *attrs;
  uint32_t n_in, n_out;
  const moec_value *in;
  moec_value *out;
} moec_body;

typedef void (*moec_body_fn)(moec_body *k);

/* moec_body_<infer>() for the ops of classes COMPOSITE and MOE. */
#define OP(NAME, text, min_in, max_in, min_out, max_out, cls, infer, attrs) \
  void moec_body_##infer(moec_body *k);
#include "ir/ops.def"
#undef OP

static inline moec_value moec_body_in(const moec_body *k, uint32_t i) {
  return i < k->n_in ? k->in[i] : (moec_value){0};
}

#endif
