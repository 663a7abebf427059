/* Building graphs with few words. A builder keeps the first error and does nothing afterwards
 * (values become {0}), so a sequence of calls needs one check at its end: moec_builder_end().
 * Every function infers types and returns the (first) output. */
#ifndef MOEC_IR_BUILDER_H
#define MOEC_IR_BUILDER_H

#include "ir/ir.h"

typedef struct moec_builder {
  moec_graph *g;
  moec_status *error; /* owned until moec_builder_end() hands it out */
} moec_builder;

static inline moec_builder moec_builder_on(moec_graph *g) { return (moec_builder){g, NULL}; }
static inline moec_status *moec_builder_end(moec_builder *b) {
  moec_status *s = b->error;
  b->error = NULL;
  return s;
}
void moec_b_fail(moec_builder *b, moec_status *s); /* keeps the first; frees later ones */
moec_type_info moec_b_ty(const moec_builder *b, moec_value v);
moec_dim moec_b_dim(const moec_builder *b, moec_value v, int64_t axis); /* negative: from the end */

/* Any op. For several outputs read them with moec_out(b->g, moec_def(b->g, v), i). */
moec_value moec_b_op(moec_builder *b, moec_op op, const void *attrs, uint32_t n_in, const moec_value *in,
                     uint32_t n_out);
moec_value moec_b_unary(moec_builder *b, moec_op op, moec_value x);
/* Operands of equal dtype; shapes are broadcast against each other by ONNX's (numpy's) rule. */
moec_value moec_b_binary(moec_builder *b, moec_op op, moec_value x, moec_value y);
moec_value moec_b_select(moec_builder *b, moec_value c, moec_value x, moec_value y); /* broadcasts too */
moec_value moec_b_cast(moec_builder *b, moec_value x, moec_dtype t); /* x itself when it has that dtype */

moec_value moec_b_scalar_f(moec_builder *b, moec_dtype t, double v);
moec_value moec_b_scalar_i(moec_builder *b, moec_dtype t, int64_t v);
/* op(x, c) with a constant of x's dtype. */
static inline moec_value moec_b_with(moec_builder *b, moec_op op, moec_value x, double c) {
  return moec_b_binary(b, op, x, moec_b_scalar_f(b, moec_b_ty(b, x).dtype, c));
}
/* The dtype that inner results of floats have: f32 where |t| is narrower. */
static inline moec_dtype moec_wide(moec_dtype t) { return t == MOEC_F16 || t == MOEC_BF16 ? MOEC_F32 : t; }
moec_value moec_b_const(moec_builder *b, moec_type t, const void *bytes, size_t size); /* copies */
moec_value moec_b_size(moec_builder *b, moec_dim d); /* i64 scalar */
moec_value moec_b_iota(moec_builder *b, moec_dtype t, uint32_t rank, const moec_dim *shape, int64_t axis);
moec_value moec_b_fill(moec_builder *b, moec_value scalar, uint32_t rank, const moec_dim *shape);

moec_value moec_b_reshape(moec_builder *b, moec_value x, uint32_t rank, const moec_dim *shape);
moec_value moec_b_transpose(moec_builder *b, moec_value x, const int64_t *perm);
/* numpy broadcast of x to |shape| (aligned at the right); x itself when equal. */
moec_value moec_b_broadcast_to(moec_builder *b, moec_value x, uint32_t rank, const moec_dim *shape);
moec_value moec_b_unsqueeze(moec_builder *b, moec_value x, int64_t axis);
moec_value moec_b_squeeze(moec_builder *b, moec_value x, int64_t axis);
/* One axis only; step 1. */
moec_value moec_b_slice(moec_builder *b, moec_value x, int64_t axis, moec_dim start, moec_dim size);
/* Every |step|-th element. */
moec_value moec_b_slice_by(moec_builder *b, moec_value x, int64_t axis, moec_dim start, moec_dim size, int64_t step);
moec_value moec_b_concat(moec_builder *b, uint32_t n, const moec_value *in, int64_t axis);
/* op: one of the REDUCE_ ops; the axis is dropped, or kept as 1 when |keep|. */
moec_value moec_b_reduce(moec_builder *b, moec_op op, moec_value x, int64_t axis, bool keep);
/* x[..., m, k] times y[..., k, n] with numpy's batch broadcasting: ONNX MatMul (rank 1 too). */
moec_value moec_b_matmul(moec_builder *b, moec_value x, moec_value y);

/* The numpy broadcast of two shapes; unequal symbolic sizes become a constraint. */
moec_status *moec_broadcast_shapes(moec_module *m, moec_type_info a, moec_type_info b, const char *where,
                                   uint32_t *out_rank, moec_dim *out_dims) MOEC_MUST_USE;

/* Composites: adds the body of node |n| of |g| in primitives (or in lower composites) to builder
 * |b|, reading |in| (parallel to the node's inputs), and returns its outputs in |out|. */
moec_status *moec_body_build(moec_builder *b, moec_op op, const void *attrs, uint32_t n_in, const moec_value *in,
                             uint32_t n_out, moec_value *out) MOEC_MUST_USE;

/* Replaces every composite that |keep| does not claim (NULL: all of them) by its body, also in
 * bodies, and compacts every function. */
typedef bool (*moec_keep_fn)(void *user, const moec_graph *g, moec_node n);
/* of one function */
moec_status *moec_inline_composites_of(moec_graph *g, moec_keep_fn keep, void *user) MOEC_MUST_USE;
moec_status *moec_inline_composites(moec_module *m, moec_keep_fn keep, void *user) MOEC_MUST_USE;

#endif
