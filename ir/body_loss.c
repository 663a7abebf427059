/* The bodies of cross_entropy and of the loss with its product and gradients. */
#include <math.h>

#include "ir/body_internal.h"

/* log(sum(exp(x))) of each row of x[T, V] as a sum of two, [T, 1]: the largest element and the rest. */
typedef struct log_sum {
  moec_value top, rest;
} log_sum;

/* Where the largest element is infinite (no element, all -inf, one of inf), x - top would be NaN. */
static log_sum log_sum_exp(moec_builder *b, moec_value x) {
  moec_dtype t = moec_b_ty(b, x).dtype;
  moec_value top = moec_b_reduce(b, MOEC_OP_REDUCE_MAX, x, 1, true);
  moec_value unbound = moec_b_unary(b, MOEC_OP_ISINF, top);
  top = moec_b_select(b, unbound, moec_b_scalar_f(b, t, 0), top);
  moec_value e = moec_b_unary(b, MOEC_OP_EXP, moec_b_binary(b, MOEC_OP_SUB, x, top));
  moec_value sum = moec_b_reduce(b, MOEC_OP_REDUCE_SUM, e, 1, true);
  return (log_sum){top, moec_b_unary(b, MOEC_OP_LOG, sum)};
}

/* A gather counts negative indices from the end; as labels they are out of range: -1 becomes -1 - V. */
static moec_value refuse_negative(moec_body *k, moec_value label) {
  moec_builder *b = k->b;
  moec_value v = moec_b_size(b, moec_b_dim(b, k->in[0], 1));
  moec_value negative = moec_b_binary(b, MOEC_OP_LT, label, moec_b_scalar_i(b, MOEC_I64, 0));
  return moec_b_select(b, negative, moec_b_binary(b, MOEC_OP_SUB, label, v), label);
}

void moec_body_cross_entropy(moec_body *k) {
  moec_builder *b = k->b;
  int64_t ignore = ((const moec_attrs_CROSS_ENTROPY *)k->attrs)->ignore;
  moec_dtype wide = moec_wide(moec_b_ty(b, k->in[0]).dtype);
  moec_value x = moec_b_cast(b, k->in[0], wide), label = moec_b_unsqueeze(b, k->in[1], -1);
  moec_value ignored = moec_b_binary(b, MOEC_OP_EQ, label, moec_b_scalar_i(b, MOEC_I64, ignore));
  label = moec_b_select(b, ignored, moec_b_scalar_i(b, MOEC_I64, 0), refuse_negative(k, label));
  moec_attrs_GATHER_ELEMENTS at = {.axis = 1};
  moec_value in[2] = {x, label}, own = moec_b_op(b, MOEC_OP_GATHER_ELEMENTS, &at, 2, in, 1);
  log_sum lse = log_sum_exp(b, x);
  /* The small part last: lse - own would lose it to the rounding of large logits. */
  moec_value nll =
      moec_b_binary(b, MOEC_OP_SUB, lse.rest, moec_b_binary(b, MOEC_OP_SUB, own, lse.top));
  nll = moec_b_select(b, ignored, moec_b_scalar_f(b, wide, 0), nll);
  k->out[0] = moec_b_cast(b, moec_b_squeeze(b, nll, -1), MOEC_F32);
  if (k->n_out < 2) return;
  moec_value sum = moec_b_binary(b, MOEC_OP_ADD, lse.top, lse.rest);
  k->out[1] = moec_b_cast(b, moec_b_squeeze(b, sum, -1), MOEC_F32);
}

/* x or logits times w, or the gradient of the logits times x: contracts axis |i| of |a| with axis |j| of |c|. */
static moec_value product(moec_builder *b, moec_value a, int64_t i, moec_value c, int64_t j) {
  moec_attrs_DOT d = {.lhs_contract = {1, &i}, .rhs_contract = {1, &j}};
  return moec_b_op(b, MOEC_OP_DOT, &d, 2, (moec_value[]){a, c}, 1);
}

/* The gradient of the sum of scale * nll with respect to |logits|. */
static moec_value slope_of(moec_body *k, moec_value logits, moec_value lse) {
  moec_builder *b = k->b;
  const moec_attrs_LINEAR_CROSS_ENTROPY *a = k->attrs;
  moec_dtype t = moec_b_ty(b, logits).dtype, wide = moec_wide(t);
  moec_value zero = moec_b_scalar_f(b, wide, 0), label = moec_b_unsqueeze(b, k->in[2], -1);
  moec_value scale = moec_b_unsqueeze(b, moec_b_cast(b, k->in[3], wide), -1);
  moec_value x = moec_b_cast(b, logits, wide), rest = moec_b_unsqueeze(b, moec_b_cast(b, lse, wide), -1);
  moec_value p = moec_b_unary(b, MOEC_OP_EXP, moec_b_binary(b, MOEC_OP_SUB, x, rest));
  moec_dim vocab = moec_b_dim(b, logits, -1);
  moec_value hit = moec_b_binary(b, MOEC_OP_EQ, label, moec_b_iota(b, MOEC_I64, 1, &vocab, 0));
  p = moec_b_binary(b, MOEC_OP_SUB, p, moec_b_select(b, hit, moec_b_scalar_f(b, wide, 1), zero));
  moec_value counted = moec_b_binary(b, MOEC_OP_NE, label, moec_b_scalar_i(b, MOEC_I64, a->ignore));
  return moec_b_cast(b, moec_b_select(b, counted, moec_b_binary(b, MOEC_OP_MUL, scale, p), zero), t);
}

void moec_body_linear_cross_entropy(moec_body *k) {
  moec_builder *b = k->b;
  const moec_attrs_LINEAR_CROSS_ENTROPY *a = k->attrs;
  moec_attrs_CROSS_ENTROPY rows = {.ignore = a->ignore};
  int64_t vocab = a->transposed ? 0 : 1;
  moec_value x = k->in[0], w = k->in[1], logits = product(b, x, 1, w, !vocab);
  moec_value nll = moec_b_op(b, MOEC_OP_CROSS_ENTROPY, &rows, 2, (moec_value[]){logits, k->in[2]}, 2);
  if (b->error) return;
  moec_value d = slope_of(k, logits, moec_out(b->g, moec_def(b->g, nll), 1));
  k->out[0] = nll;
  k->out[1] = product(b, d, 1, w, vocab);
  k->out[2] = a->transposed ? product(b, d, 0, x, 0) : product(b, x, 0, d, 0);
}
