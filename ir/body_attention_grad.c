/* The body of attention's gradient: the softmax is not computed again but read off lse, so a probability is one
 * exponential of a score. */
#include <math.h>

#include "ir/body_attention.h"

/* x times y, summed over the listed pairs of axes; axes 0 and |group| of them are batch and key head. */
static moec_value contract(moec_builder *b, moec_value x, int64_t x_group, moec_value y, int64_t y_group, uint32_t n,
                           const int64_t *x_axes, const int64_t *y_axes) {
  int64_t lb[2] = {0, x_group}, rb[2] = {0, y_group};
  moec_attrs_DOT dot = {
      .lhs_batch = {2, lb}, .rhs_batch = {2, rb}, .lhs_contract = {n, x_axes}, .rhs_contract = {n, y_axes}};
  moec_value in[2] = {x, y};
  return moec_b_op(b, MOEC_OP_DOT, &dot, 2, in, 1);
}

/* x[B,S,H] as [B,G,S,R,1]. */
static moec_value by_row(moec_body *k, const moec_attention_shape *n, moec_value x) {
  x = moec_attention_split(k, n, x, moec_dim_const(k->m, 1));
  return moec_b_transpose(k->b, x, (int64_t[]){0, 2, 1, 3, 4});
}

/* lse[B,G,S,R,1], but 0 for a row without a visible key: there -inf - -inf would be NaN, and exp(-inf - 0) is the 0
 * that is asked for. */
static moec_value finite_lse(moec_body *k, const moec_attention_shape *n, moec_dtype wide) {
  moec_builder *b = k->b;
  moec_value lse = by_row(k, n, moec_b_cast(b, k->in[6], wide));
  moec_value none = moec_b_binary(b, MOEC_OP_EQ, lse, moec_b_scalar_f(b, wide, -INFINITY));
  return moec_b_select(b, none, moec_b_scalar_f(b, wide, 0), lse);
}

static moec_value exp_of_difference(moec_builder *b, moec_value x, moec_value y) {
  return moec_b_unary(b, MOEC_OP_EXP, moec_b_binary(b, MOEC_OP_SUB, x, y));
}

/* Gradients of q·k from those of the scores: the scale, and softcap's 1 - tanh². */
static moec_value through_scores(moec_body *k, const moec_attention_shape *n, moec_value scores, moec_value dx) {
  moec_builder *b = k->b;
  if (n->softcap > 0) {
    moec_value tanh = moec_b_with(b, MOEC_OP_DIV, scores, n->softcap);
    moec_value one = moec_b_scalar_f(b, moec_b_ty(b, scores).dtype, 1);
    moec_value slope = moec_b_binary(b, MOEC_OP_SUB, one, moec_b_binary(b, MOEC_OP_MUL, tanh, tanh));
    dx = moec_b_binary(b, MOEC_OP_MUL, dx, slope);
  }
  return n->scale != 1 ? moec_b_with(b, MOEC_OP_MUL, dx, n->scale) : dx;
}

/* -sum over b, s of exp(sink - lse) * delta. */
static moec_value sink_gradient(moec_body *k, const moec_attention_shape *n, moec_value lse, moec_value delta) {
  moec_builder *b = k->b;
  moec_value p = exp_of_difference(b, moec_attention_sink(k, n, moec_b_ty(b, lse).dtype), lse);
  moec_value x = moec_b_binary(b, MOEC_OP_MUL, p, delta);
  for (int i = 0; i < 2; i++) x = moec_b_reduce(b, MOEC_OP_REDUCE_SUM, x, i, false); /* batch, then query */
  return moec_b_unary(b, MOEC_OP_NEG, moec_b_reshape(b, x, 1, &n->h));
}

void moec_body_attention_grad(moec_body *k) {
  moec_builder *b = k->b;
  const moec_attrs_ATTENTION_GRAD *a = k->attrs;
  moec_attention_shape n = {.scale = a->scale, .softcap = a->softcap, .causal = a->causal};
  moec_attention_sizes(k, &n);
  moec_dtype t = moec_b_ty(b, k->in[0]).dtype, wide = moec_wide(t);
  moec_value y = moec_b_cast(b, k->in[5], wide), dy = moec_b_cast(b, k->in[7], wide);
  moec_value delta = moec_b_reduce(b, MOEC_OP_REDUCE_SUM, moec_b_binary(b, MOEC_OP_MUL, dy, y), -1, false);
  moec_value scores = moec_attention_scores(k, &n, wide), lse = finite_lse(k, &n, wide);
  moec_value p = exp_of_difference(b, moec_attention_visible(k, &n, scores), lse);
  moec_value q = moec_attention_split(k, &n, moec_b_cast(b, k->in[0], wide), n.d);
  dy = moec_attention_split(k, &n, dy, n.e);
  delta = by_row(k, &n, delta);
  moec_value dp = contract(b, dy, 2, moec_b_cast(b, k->in[2], wide), 2, 1, (int64_t[]){4}, (int64_t[]){3});
  moec_value dx = moec_b_binary(b, MOEC_OP_MUL, p, moec_b_binary(b, MOEC_OP_SUB, dp, delta));
  moec_value ds = through_scores(k, &n, scores, dx);
  moec_value dq = contract(b, ds, 1, moec_b_cast(b, k->in[1], wide), 2, 1, (int64_t[]){4}, (int64_t[]){1});
  moec_dim whole[4] = {n.b, n.s, n.h, n.d};
  dq = moec_b_reshape(b, moec_b_transpose(b, dq, (int64_t[]){0, 2, 1, 3, 4}), 4, whole);
  /* rows of a key head: queries and its query heads */
  moec_value dk = contract(b, ds, 1, q, 2, 2, (int64_t[]){2, 3}, (int64_t[]){1, 3});
  moec_value dv = contract(b, p, 1, dy, 2, 2, (int64_t[]){2, 3}, (int64_t[]){1, 3});
  k->out[0] = moec_b_cast(b, dq, t);
  k->out[1] = moec_b_cast(b, moec_b_transpose(b, dk, (int64_t[]){0, 2, 1, 3}), t);
  k->out[2] = moec_b_cast(b, moec_b_transpose(b, dv, (int64_t[]){0, 2, 1, 3}), t);
  if (k->n_out > 3) k->out[3] = moec_b_cast(b, sink_gradient(k, &n, lse, delta), t);
}
