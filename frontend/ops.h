/* Small helpers of the importers of single operators (frontend/ops_*.c). */
#ifndef MOEC_FRONTEND_OPS_H
#define MOEC_FRONTEND_OPS_H

#include "frontend/import.h"
#include "ir/infer.h"

/* The first |count| operands as values, absent ones {0}; an error when one of the first |required| is. Afterwards
 * ranks can be looked at: a pending error of the builder has been returned. */
static inline moec_status *moec_onnx_operands(moec_onnx *n, uint32_t required, uint32_t count,
                                              moec_value *out) {
  for (uint32_t i = 0; i < required; i++)
    if (!moec_onnx_has(n, i))
      return moec_onnx_bad(n, "expected at least %u operands, operand %u is missing", required, i);
  for (uint32_t i = 0; i < count; i++) out[i] = moec_onnx_in(n, i);
  return moec_builder_end(n->b);
}

/* Whether result |i| has a name, so that another node may read it. */
static inline bool moec_onnx_wants(const moec_onnx *n, uint32_t i) {
  return i < n->p->n_output && n->p->output[i][0];
}

static inline const char *moec_onnx_text(const moec_onnx *n, moec_value v) {
  return moec_type_text(n->m, moec_value_get(n->b->g, v)->type);
}

/* A constant of x's dtype. */
static inline moec_value moec_like(moec_builder *b, moec_value x, double c) {
  return moec_b_scalar_f(b, moec_b_ty(b, x).dtype, c);
}

/* op(x, c). */
static inline moec_value moec_with(moec_builder *b, moec_op op, moec_value x, double c) {
  return moec_b_binary(b, op, x, moec_like(b, x, c));
}

/* x * sigmoid(alpha * x). */
static inline moec_value moec_swish(moec_builder *b, moec_value x, double alpha) {
  moec_value gate = alpha == 1 ? x : moec_with(b, MOEC_OP_MUL, x, alpha);
  return moec_b_binary(b, MOEC_OP_MUL, x, moec_b_unary(b, MOEC_OP_SIGMOID, gate));
}

/* The dtype of inner results: f32 where |t| is narrower, f64 for integers. */
static inline moec_dtype moec_inner(moec_dtype t) {
  if (t == MOEC_F32 || t == MOEC_F16 || t == MOEC_BF16) return MOEC_F32;
  return MOEC_F64;
}

/* Two sizes that the operator wants equal: checked now when known, else when sizes are bound. */
static inline void moec_same_size(moec_onnx *n, moec_dim a, moec_dim b, const char *what) {
  if (n->b->error || moec_dim_eq(a, b)) return;
  moec_b_fail(n->b, moec_check_dims(n->m, a, b, what));
  if (!n->b->error) moec_constrain_equal(n->m, a, b, moec_sym_str(n->m, n->b->g->loc), what);
}

/* frontend/ops_reduce.c: reduces |axes| (ascending, none: x itself), kept as sizes of 1 when |keep|. */
moec_value moec_reduce_axes(moec_builder *b, moec_op op, moec_value x, moec_ints axes, bool keep);
/* The mean over |axes| of floats. */
moec_value moec_mean_axes(moec_builder *b, moec_value x, moec_ints axes, bool keep);
/* frontend/ops_math.c: gelu by the error function, or by its approximation with tanh. */
moec_value moec_gelu(moec_builder *b, moec_value x, bool tanh_form);

#endif
