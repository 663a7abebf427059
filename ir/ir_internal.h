/* What the files of ir/ share and nobody else needs. */
#ifndef MOEC_IR_INTERNAL_H
#define MOEC_IR_INTERNAL_H

#include "ir/ir.h"

struct moec_dim_table *moec_dim_table_create(moec_arena *arena);   /* ir/dims.c */
struct moec_type_table *moec_type_table_create(moec_arena *arena); /* ir/types.c */
struct moec_sym_table *moec_sym_table_create(moec_arena *arena);   /* ir/syms.c */

/* Interns every string of |src| in |dst| in order, so that handles of |src| mean the same there. */
void moec_sym_table_replay(moec_module *dst, const moec_module *src);

/* Rules of docs/ir.md about single ops that inference does not check; inference comes after it.
 * Functions and parameters exist, and operands that must be there are. */
moec_status *moec_verify_op(moec_module *m, moec_op op, const void *attrs, uint32_t n_in,
                            const moec_type *in) MOEC_MUST_USE;

/* A value id in graph |g| with the given type and definition. */
moec_value moec_new_value(moec_graph *g, moec_type t, moec_node def, uint32_t slot);

/* A copy of |attrs| in the arena of |m|, lists included. */
const void *moec_attrs_copy(moec_module *m, moec_op op, const void *attrs);

#define OP(NAME, text, min_in, max_in, min_out, max_out, cls, infer, attrs) MOEC_INFER(infer)
#define MOEC_INFER(name)                                                                          \
  moec_status *moec_infer_##name(moec_module *m, const void *attrs, uint32_t n_in, const moec_type *in, \
                                 uint32_t n_out, moec_type *out) MOEC_MUST_USE;
#include "ir/ops.def"
#undef OP
#undef MOEC_INFER

#endif
