/* The body of attention. */
#include "ir/body_attention.h"

#include <math.h>

void moec_attention_sizes(moec_body *k, moec_attention_shape *n) {
  n->b = moec_b_dim(k->b, k->in[0], 0);
  n->s = moec_b_dim(k->b, k->in[0], 1);
  n->h = moec_b_dim(k->b, k->in[0], 2);
  n->d = moec_b_dim(k->b, k->in[0], 3);
  n->t = moec_b_dim(k->b, k->in[1], 1);
  n->g = moec_b_dim(k->b, k->in[1], 2);
  n->e = moec_b_dim(k->b, k->in[2], 3);
  n->r = moec_dim_floordiv(k->m, n->h, n->g);
}

moec_value moec_attention_split(moec_body *k, const moec_attention_shape *n, moec_value x, moec_dim size) {
  moec_dim split[5] = {n->b, n->s, n->g, n->r, size};
  return moec_b_reshape(k->b, x, 5, split);
}

moec_value moec_attention_scores(moec_body *k, const moec_attention_shape *n, moec_dtype wide) {
  moec_builder *b = k->b;
  moec_value q = moec_attention_split(k, n, moec_b_cast(b, k->in[0], wide), n->d);
  moec_value in[2] = {q, moec_b_cast(b, k->in[1], wide)};
  int64_t lb[2] = {0, 2}, rb[2] = {0, 2}, lc[1] = {4}, rc[1] = {3};
  moec_attrs_DOT dot = {
      .lhs_batch = {2, lb}, .rhs_batch = {2, rb}, .lhs_contract = {1, lc}, .rhs_contract = {1, rc}};
  moec_value x = moec_b_op(b, MOEC_OP_DOT, &dot, 2, in, 1);
  if (n->scale != 1) x = moec_b_with(b, MOEC_OP_MUL, x, n->scale);
  if (n->softcap > 0) {
    x = moec_b_unary(b, MOEC_OP_TANH, moec_b_with(b, MOEC_OP_DIV, x, n->softcap));
    x = moec_b_with(b, MOEC_OP_MUL, x, n->softcap);
  }
  return x;
}

static moec_value hide(moec_body *k, moec_value visible, moec_value scores) {
  moec_value low = moec_b_scalar_f(k->b, moec_b_ty(k->b, scores).dtype, -INFINITY);
  return moec_b_select(k->b, visible, scores, low);
}

/* Query i, the last S of T positions, sees keys up to i + T - S. */
static moec_value apply_causal(moec_body *k, const moec_attention_shape *n, moec_value scores) {
  moec_builder *b = k->b;
  moec_value query = moec_b_binary(b, MOEC_OP_ADD, moec_b_iota(b, MOEC_I64, 1, &n->s, 0),
                                   moec_b_size(b, moec_dim_sub(k->m, n->t, n->s)));
  moec_value key = moec_b_iota(b, MOEC_I64, 1, &n->t, 0);
  for (int i = 0; i < 2; i++) query = moec_b_unsqueeze(b, query, -1); /* [S, 1, 1] */
  return hide(k, moec_b_binary(b, MOEC_OP_LE, key, query), scores);
}

/* mask[B|1, H|1, S|1, T|1] as [B|1, G|1, S|1, R|1, T|1]. */
static moec_value apply_mask(moec_body *k, const moec_attention_shape *n, moec_value scores) {
  moec_builder *b = k->b;
  moec_value mask = moec_body_in(k, 3);
  if (!mask.i) return scores;
  moec_dim one = moec_dim_const(k->m, 1);
  bool per_head = !moec_dim_is(k->m, moec_b_dim(b, mask, 1), 1);
  moec_dim split[5] = {moec_b_dim(b, mask, 0), per_head ? n->g : one, per_head ? n->r : one,
                       moec_b_dim(b, mask, 2), moec_b_dim(b, mask, 3)};
  mask = moec_b_transpose(b, moec_b_reshape(b, mask, 5, split), (int64_t[]){0, 1, 3, 2, 4});
  if (moec_b_ty(b, mask).dtype == MOEC_BOOL) return hide(k, mask, scores);
  return moec_b_binary(b, MOEC_OP_ADD, scores, moec_b_cast(b, mask, moec_b_ty(b, scores).dtype));
}

moec_value moec_attention_visible(moec_body *k, const moec_attention_shape *n, moec_value scores) {
  return apply_mask(k, n, n->causal ? apply_causal(k, n, scores) : scores);
}

moec_value moec_attention_sink(moec_body *k, const moec_attention_shape *n, moec_dtype wide) {
  moec_value sink = moec_body_in(k, 4);
  moec_dim one = moec_dim_const(k->m, 1), split[4] = {n->g, one, n->r, one};
  return sink.i ? moec_b_reshape(k->b, moec_b_cast(k->b, sink, wide), 4, split) : sink;
}

/* Probabilities; *out_lse: the logarithm of the sum of exponentials, [B, G, S, R, 1]. */
static moec_value probabilities(moec_body *k, const moec_attention_shape *n, moec_value scores,
                                moec_value *out_lse) {
  moec_builder *b = k->b;
  moec_dtype wide = moec_b_ty(b, scores).dtype;
  moec_value sink = moec_attention_sink(k, n, wide);
  moec_value top = moec_b_reduce(b, MOEC_OP_REDUCE_MAX, scores, -1, true);
  if (sink.i) top = moec_b_binary(b, MOEC_OP_MAX, top, sink);
  /* Rows without a visible key: -inf - -inf would be NaN, and 0/0 too. */
  moec_value zero = moec_b_scalar_f(b, wide, 0), one = moec_b_scalar_f(b, wide, 1);
  moec_value low = moec_b_scalar_f(b, wide, -INFINITY);
  top = moec_b_select(b, moec_b_binary(b, MOEC_OP_EQ, top, low), zero, top);
  moec_value e = moec_b_unary(b, MOEC_OP_EXP, moec_b_binary(b, MOEC_OP_SUB, scores, top));
  moec_value sum = moec_b_reduce(b, MOEC_OP_REDUCE_SUM, e, -1, true);
  if (sink.i)
    sum = moec_b_binary(b, MOEC_OP_ADD, sum,
                        moec_b_unary(b, MOEC_OP_EXP, moec_b_binary(b, MOEC_OP_SUB, sink, top)));
  *out_lse = moec_b_binary(b, MOEC_OP_ADD, top, moec_b_unary(b, MOEC_OP_LOG, sum));
  moec_value safe = moec_b_select(b, moec_b_binary(b, MOEC_OP_EQ, sum, zero), one, sum);
  return moec_b_binary(b, MOEC_OP_DIV, e, safe);
}

void moec_body_attention(moec_body *k) {
  moec_builder *b = k->b;
  const moec_attrs_ATTENTION *a = k->attrs;
  moec_attention_shape n = {.scale = a->scale, .softcap = a->softcap, .causal = a->causal};
  moec_attention_sizes(k, &n);
  moec_dtype t = moec_b_ty(b, k->in[0]).dtype, wide = moec_wide(t);
  moec_value lse = {0};
  moec_value x = probabilities(k, &n, moec_attention_visible(k, &n, moec_attention_scores(k, &n, wide)), &lse);
  moec_value in[2] = {x, moec_b_cast(b, k->in[2], wide)};
  int64_t lb[2] = {0, 1}, rb[2] = {0, 2}, lc[1] = {4}, rc[1] = {1};
  moec_attrs_DOT dot = {
      .lhs_batch = {2, lb}, .rhs_batch = {2, rb}, .lhs_contract = {1, lc}, .rhs_contract = {1, rc}};
  moec_value y = moec_b_op(b, MOEC_OP_DOT, &dot, 2, in, 1); /* [B, G, S, R, E] */
  y = moec_b_transpose(b, y, (int64_t[]){0, 2, 1, 3, 4});
  moec_dim whole[4] = {n.b, n.s, n.h, n.e};
  k->out[0] = moec_b_cast(b, moec_b_reshape(b, y, 4, whole), t);
  if (k->n_out > 1) {
    lse = moec_b_transpose(b, lse, (int64_t[]){0, 2, 1, 3, 4});
    k->out[1] = moec_b_cast(b, moec_b_reshape(b, lse, 3, whole), MOEC_F32);
  }
}
