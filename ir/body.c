/* Bodies of composites: their meaning in primitives, as docs/ir.md states it. Here the way in and
 * the composites of dense layers. */
#include "ir/body_internal.h"

void moec_body_softmax(moec_body *k) {
  moec_builder *b = k->b;
  int64_t axis = ((const moec_attrs_SOFTMAX *)k->attrs)->axis;
  moec_dtype t = moec_b_ty(b, k->in[0]).dtype;
  moec_value x = moec_b_cast(b, k->in[0], moec_wide(t));
  moec_value top = moec_b_reduce(b, MOEC_OP_REDUCE_MAX, x, axis, true);
  moec_value e = moec_b_unary(b, MOEC_OP_EXP, moec_b_binary(b, MOEC_OP_SUB, x, top));
  moec_value sum = moec_b_reduce(b, MOEC_OP_REDUCE_SUM, e, axis, true);
  k->out[0] = moec_b_cast(b, moec_b_binary(b, MOEC_OP_DIV, e, sum), t);
}

void moec_body_rms_norm(moec_body *k) {
  moec_builder *b = k->b;
  double eps = ((const moec_attrs_RMS_NORM *)k->attrs)->eps;
  moec_dtype t = moec_b_ty(b, k->in[0]).dtype, wide = moec_wide(t);
  moec_value x = moec_b_cast(b, k->in[0], wide), w = moec_body_in(k, 1);
  moec_value n = moec_b_cast(b, moec_b_size(b, moec_b_dim(b, x, -1)), wide);
  moec_value sum =
      moec_b_reduce(b, MOEC_OP_REDUCE_SUM, moec_b_binary(b, MOEC_OP_MUL, x, x), -1, true);
  moec_value mean = moec_b_binary(b, MOEC_OP_DIV, sum, n);
  moec_value r = moec_b_unary(b, MOEC_OP_RSQRT, moec_b_with(b, MOEC_OP_ADD, mean, eps));
  moec_value y = moec_b_cast(b, moec_b_binary(b, MOEC_OP_MUL, x, r), t);
  k->out[0] = w.i ? moec_b_binary(b, MOEC_OP_MUL, y, w) : y;
  if (k->n_out > 1) k->out[1] = moec_b_cast(b, r, MOEC_F32);
}

/* Element |which| of every pair: x[..., D] as [..., D/2, 2]. */
static moec_value pair_element(moec_body *k, moec_value pairs, int64_t which) {
  moec_dim at = moec_dim_const(k->m, which), one = moec_dim_const(k->m, 1);
  return moec_b_squeeze(k->b, moec_b_slice(k->b, pairs, -1, at, one), -1);
}

/* The operands of the rotation: halves of the last axis, or its even and odd elements. */
static void split_pairs(moec_body *k, moec_value x, moec_dim half, bool pairs, moec_value out[2]) {
  moec_builder *b = k->b;
  moec_type_info t = moec_b_ty(b, x);
  if (!pairs) {
    out[0] = moec_b_slice(b, x, -1, moec_dim_const(k->m, 0), half);
    out[1] = moec_b_slice(b, x, -1, half, half);
    return;
  }
  moec_dim dims[MOEC_MAX_RANK + 1];
  for (uint32_t i = 0; i + 1 < t.rank; i++) dims[i] = t.dims[i];
  if (t.rank + 1 > MOEC_MAX_RANK || t.rank == 0) {
    moec_b_fail(b, moec_error(MOEC_UNSUPPORTED, "expected rank 1 to %d, got %u", MOEC_MAX_RANK - 1,
                              t.rank));
    return;
  }
  dims[t.rank - 1] = half, dims[t.rank] = moec_dim_const(k->m, 2);
  moec_value split = moec_b_reshape(b, x, t.rank + 1, dims);
  out[0] = pair_element(k, split, 0);
  out[1] = pair_element(k, split, 1);
}

void moec_body_rope(moec_body *k) {
  moec_builder *b = k->b;
  const moec_attrs_ROPE *a = k->attrs;
  moec_value x = k->in[0], c = k->in[1], s = k->in[2], half[2] = {{0}, {0}}, y[2];
  moec_type_info t = moec_b_ty(b, x);
  split_pairs(k, x, moec_dim_exact_div(k->m, moec_b_dim(b, x, -1), moec_dim_const(k->m, 2)),
              a->pairs_in, half);
  y[0] = moec_b_binary(b, MOEC_OP_SUB, moec_b_binary(b, MOEC_OP_MUL, half[0], c),
                       moec_b_binary(b, MOEC_OP_MUL, half[1], s));
  y[1] = moec_b_binary(b, MOEC_OP_ADD, moec_b_binary(b, MOEC_OP_MUL, half[1], c),
                       moec_b_binary(b, MOEC_OP_MUL, half[0], s));
  if (a->pairs_out)
    for (int i = 0; i < 2; i++) y[i] = moec_b_unsqueeze(b, y[i], -1);
  k->out[0] = moec_b_reshape(b, moec_b_concat(b, 2, y, -1), t.rank, t.dims);
}

void moec_body_swiglu(moec_body *k) {
  moec_builder *b = k->b;
  const moec_attrs_SWIGLU *a = k->attrs;
  moec_value g = k->in[0], u = k->in[1];
  if (a->limit > 0) {
    g = moec_b_with(b, MOEC_OP_MIN, g, a->limit);
    u = moec_b_with(b, MOEC_OP_MAX, moec_b_with(b, MOEC_OP_MIN, u, a->limit), -a->limit);
  }
  moec_value gate = a->alpha == 1 ? g : moec_b_with(b, MOEC_OP_MUL, g, a->alpha);
  gate = moec_b_binary(b, MOEC_OP_MUL, g, moec_b_unary(b, MOEC_OP_SIGMOID, gate));
  if (a->beta != 0) u = moec_b_with(b, MOEC_OP_ADD, u, a->beta);
  k->out[0] = moec_b_binary(b, MOEC_OP_MUL, gate, u);
}

/* Rows padded with zeros to whole blocks. */
void moec_body_block_sum(moec_body *k) {
  moec_builder *b = k->b;
  const moec_attrs_BLOCK_SUM *a = k->attrs;
  moec_type_info t = moec_b_ty(b, k->in[0]);
  uint32_t lead = (uint32_t)a->leading, rank = t.rank - lead + 1;
  moec_dim dims[MOEC_MAX_RANK + 1], lo[MOEC_MAX_RANK], hi[MOEC_MAX_RANK];
  moec_dim size = moec_dim_const(k->m, a->size), zero = moec_dim_const(k->m, 0);
  if (rank == MOEC_MAX_RANK) {
    moec_b_fail(b, moec_error(MOEC_UNSUPPORTED, "expected rank 1 to %d, got %u", MOEC_MAX_RANK - 1, t.rank));
    return;
  }
  dims[0] = moec_dim_const(k->m, 1);
  for (uint32_t i = 0; i < lead; i++) dims[0] = moec_dim_mul(k->m, dims[0], t.dims[i]);
  for (uint32_t i = lead; i < t.rank; i++) dims[1 + i - lead] = t.dims[i];
  for (uint32_t i = 0; i < rank; i++) lo[i] = hi[i] = zero;
  moec_dim rows = dims[0], blocks = moec_dim_ceildiv(k->m, rows, size);
  hi[0] = moec_dim_sub(k->m, moec_dim_mul(k->m, blocks, size), rows);
  moec_attrs_PAD pad = {.lo = {rank, lo}, .hi = {rank, hi}};
  moec_value in[2] = {moec_b_reshape(b, k->in[0], rank, dims), moec_dtype_is_float(t.dtype)
                                                                   ? moec_b_scalar_f(b, t.dtype, 0)
                                                                   : moec_b_scalar_i(b, t.dtype, 0)};
  moec_value padded = moec_b_op(b, MOEC_OP_PAD, &pad, 2, in, 1);
  for (uint32_t i = rank; i > 1; i--) dims[i] = dims[i - 1];
  dims[0] = blocks, dims[1] = size;
  k->out[0] = moec_b_reduce(b, MOEC_OP_REDUCE_SUM, moec_b_reshape(b, padded, rank + 1, dims), 1, false);
}

/* ---- the way in --------------------------------------------------------------------------- */

#define BODY_LEAF(infer) NULL
#define BODY_UNARY(infer) NULL
#define BODY_BINARY(infer) NULL
#define BODY_COMPARE(infer) NULL
#define BODY_SELECT(infer) NULL
#define BODY_CAST(infer) NULL
#define BODY_REDUCE(infer) NULL
#define BODY_SCAN(infer) NULL
#define BODY_MOVE(infer) NULL
#define BODY_INDEX(infer) NULL
#define BODY_DOT(infer) NULL
#define BODY_SORT(infer) NULL
#define BODY_EFFECT(infer) NULL
#define BODY_CONTROL(infer) NULL
#define BODY_COMPOSITE(infer) moec_body_##infer
#define BODY_MOE(infer) moec_body_##infer
#define OP(NAME, text, min_in, max_in, min_out, max_out, cls, infer, attrs) \
  [MOEC_OP_##NAME] = BODY_##cls(infer),
static const moec_body_fn bodies[MOEC_OP_COUNT] = {
#include "ir/ops.def"
};
#undef OP

/* Types that the composite's results have: a body may arrive at sizes that are equal only by a
 * constraint, N against T*k say. */
static moec_status *result_types(moec_body *k, moec_op op, moec_type *out) {
  moec_type *in = MOEC_NEW_ARRAY(k->m->arena, moec_type, k->n_in + 1);
  for (uint32_t i = 0; i < k->n_in; i++) in[i] = moec_value_get(k->b->g, k->in[i])->type;
  return moec_op_get(op)->infer(k->m, k->attrs, k->n_in, in, k->n_out, out);
}

static void fit_result(moec_body *k, moec_op op, uint32_t i, moec_type want) {
  if (k->b->error) return;
  moec_type_info got = moec_b_ty(k->b, k->out[i]), t = moec_type_get(k->m, want);
  if (got.dtype != t.dtype || got.rank != t.rank) {
    moec_b_fail(k->b, MOEC_BUG("body of %s: result %u has another dtype or rank",
                               moec_op_get(op)->text, i));
    return;
  }
  k->out[i] = moec_b_reshape(k->b, k->out[i], t.rank, t.dims);
}

moec_status *moec_body_build(moec_builder *b, moec_op op, const void *attrs, uint32_t n_in,
                             const moec_value *in, uint32_t n_out, moec_value *out) {
  moec_body k = {b, b->g->m, attrs, n_in, n_out, in, out};
  moec_type *types = MOEC_NEW_ARRAY(k.m->arena, moec_type, n_out + 1);
  for (uint32_t i = 0; i < n_out; i++) out[i] = (moec_value){0};
  if (!bodies[op]) return MOEC_BUG("%s has no body", moec_op_get(op)->text);
  if (!b->error) {
    moec_b_fail(b, result_types(&k, op, types));
    if (!b->error) bodies[op](&k);
    for (uint32_t i = 0; i < n_out; i++) fit_result(&k, op, i, types[i]);
  }
  return moec_context(moec_builder_end(b), "body of %s", moec_op_get(op)->text);
}
