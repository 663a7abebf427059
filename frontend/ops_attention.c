/* Importers of rotary embeddings and attention. */
#include <math.h>

#include "frontend/ops.h"

/* ---- rotary embedding --------------------------------------------------------------------- */

/* The operands of either operator. */
typedef struct rotary {
  moec_value x, cos, sin, positions; /* positions may be absent */
  bool interleaved;
  int64_t heads, dim; /* 0: from the shapes */
} rotary;

/* One cache as [B|1, S, half], with an axis of 1 put in where x has its heads. */
static moec_value cache_rows(moec_onnx *n, const rotary *r, moec_value cache, uint32_t heads_axis) {
  moec_builder *b = n->b;
  if (r->positions.i) {
    moec_attrs_GATHER a = {.axis = 0};
    moec_value in[2] = {cache, r->positions};
    cache = moec_b_op(b, MOEC_OP_GATHER, &a, 2, in, 1);
  }
  return moec_b_unsqueeze(b, moec_b_cast(b, cache, moec_b_ty(b, r->x).dtype), heads_axis);
}

/* x as [B, H, S, D], or [B, S, H, D] where the source has [B, S, hidden]. */
static moec_status *split_heads(moec_onnx *n, const rotary *r, moec_value *out) {
  moec_type_info t = moec_b_ty(n->b, r->x);
  *out = r->x;
  if (t.rank == 4) return NULL;
  if (t.rank != 3)
    return moec_onnx_bad(n, "x: expected rank 3 or 4, got %s", moec_onnx_text(n, r->x));
  moec_dim heads = moec_dim_const(n->m, r->heads), size;
  if (r->heads > 0) {
    size = moec_dim_exact_div(n->m, t.dims[2], heads);
  } else { /* com.microsoft: the cache covers a whole head */
    size = moec_dim_mul(n->m, moec_b_dim(n->b, r->cos, -1), moec_dim_const(n->m, 2));
    heads = moec_dim_exact_div(n->m, t.dims[2], size);
  }
  if (!moec_dim_known(heads) || !moec_dim_known(size))
    return moec_onnx_bad(n, "x: expected a last axis of whole heads (num_heads = %lld), got %s",
                         (long long)r->heads, moec_onnx_text(n, r->x));
  moec_dim dims[4] = {t.dims[0], t.dims[1], heads, size};
  *out = moec_b_reshape(n->b, r->x, 4, dims);
  return moec_builder_end(n->b);
}

static moec_status *check_rotary(moec_onnx *n, const rotary *r) {
  uint32_t rank = r->positions.i ? 2 : 3;
  moec_value caches[2] = {r->cos, r->sin};
  for (int i = 0; i < 2; i++)
    if (moec_b_ty(n->b, caches[i]).rank != rank)
      return moec_onnx_bad(n, "%s cache: expected rank %u %s position ids, got %s",
                           i ? "sin" : "cos", rank, r->positions.i ? "with" : "without",
                           moec_onnx_text(n, caches[i]));
  if (r->positions.i && moec_b_ty(n->b, r->positions).rank != 2)
    return moec_onnx_bad(n, "position ids: expected rank 2, got %s",
                         moec_onnx_text(n, r->positions));
  if (r->dim < 0 || r->dim % 2)
    return moec_onnx_bad(n, "rotary_embedding_dim: expected an even number, got %lld",
                         (long long)r->dim);
  if (r->heads < 0)
    return moec_onnx_bad(n, "num_heads: expected at least 0, got %lld", (long long)r->heads);
  return NULL;
}

/* Only the first |dim| elements of each head turn. */
static moec_status *rotate(moec_onnx *n, const rotary *r) {
  moec_builder *b = n->b;
  moec_value x;
  MOEC_TRY(check_rotary(n, r));
  MOEC_TRY(split_heads(n, r, &x));
  moec_type_info whole = moec_b_ty(b, r->x);
  uint32_t heads_axis = whole.rank == 4 ? 1 : 2, seq_axis = 3 - heads_axis;
  moec_dim size = moec_b_dim(b, x, 3), dim = r->dim ? moec_dim_const(n->m, r->dim) : size,
           zero = moec_dim_const(n->m, 0);
  moec_value part = moec_b_slice(b, x, 3, zero, dim);
  moec_value in[3] = {part, cache_rows(n, r, r->cos, heads_axis),
                      cache_rows(n, r, r->sin, heads_axis)};
  MOEC_TRY(moec_builder_end(b));
  moec_dim half = moec_dim_exact_div(n->m, dim, moec_dim_const(n->m, 2));
  for (int i = 1; i < 3; i++) {
    moec_dim batch = moec_b_dim(b, in[i], 0);
    if (!moec_dim_is(n->m, batch, 1))
      moec_same_size(n, batch, moec_b_dim(b, x, 0), "rotary embedding: batch of the caches");
    moec_same_size(n, moec_b_dim(b, in[i], seq_axis), moec_b_dim(b, x, seq_axis),
                   "rotary embedding: length of the caches");
    if (moec_dim_known(half))
      moec_same_size(n, moec_b_dim(b, in[i], 3), half, "rotary embedding: last axis of the caches");
  }
  moec_attrs_ROPE a = {.pairs_in = r->interleaved, .pairs_out = r->interleaved};
  moec_value y = moec_b_op(b, MOEC_OP_ROPE, &a, 3, in, 1);
  if (!moec_dim_eq(dim, size)) {
    moec_value both[2] = {y, moec_b_slice(b, x, 3, dim, moec_dim_sub(n->m, size, dim))};
    y = moec_b_concat(b, 2, both, 3);
  }
  return moec_onnx_result(n, moec_b_reshape(b, y, whole.rank, whole.dims));
}

static rotary read_rotary_attrs(const moec_onnx *n) {
  return (rotary){.interleaved = moec_attr_int(n, "interleaved", 0) != 0,
                  .heads = moec_attr_int(n, "num_heads", 0),
                  .dim = moec_attr_int(n, "rotary_embedding_dim", 0)};
}

IMPORTER(rotary_embedding) {
  moec_value in[4];
  rotary r = read_rotary_attrs(n);
  MOEC_TRY(moec_onnx_operands(n, 3, 4, in));
  r.x = in[0], r.cos = in[1], r.sin = in[2], r.positions = in[3];
  if (moec_b_ty(n->b, r.x).rank == 3 && r.heads < 1)
    return moec_onnx_bad(n, "num_heads: expected at least 1 for an operand of rank 3");
  return rotate(n, &r);
}

/* Position ids of one element are the first position of the sequence. */
IMPORTER(ms_rotary_embedding) {
  moec_builder *b = n->b;
  moec_value in[4];
  rotary r = read_rotary_attrs(n);
  if (moec_attr_float(n, "scale", 1) != 1)
    return moec_onnx_unsupported(n, "scale: expected 1, got %g", moec_attr_float(n, "scale", 1));
  if (moec_attr_int(n, "is_packed_batching", 0))
    return moec_onnx_unsupported(n, "is_packed_batching = 1");
  MOEC_TRY(moec_onnx_operands(n, 4, 4, in));
  r.x = in[0], r.positions = in[1], r.cos = in[2], r.sin = in[3];
  moec_type_info p = moec_b_ty(b, r.positions);
  if (p.rank == 1) {
    moec_dim dims[2] = {moec_dim_const(n->m, 1),
                        moec_b_dim(b, r.x, moec_b_ty(b, r.x).rank == 4 ? 2 : 1)};
    if (!moec_dim_known(dims[1]))
      return moec_onnx_bad(n, "x: expected rank 3 or 4, got %s", moec_onnx_text(n, r.x));
    moec_same_size(n, p.dims[0], dims[0],
                   "rotary embedding: position ids of rank 1 have one element");
    moec_value first = moec_b_reshape(b, r.positions, 1, dims);
    r.positions = moec_b_binary(b, MOEC_OP_ADD, moec_b_iota(b, p.dtype, 2, dims, 1), first);
    MOEC_TRY(moec_builder_end(b));
  }
  return rotate(n, &r);
}

/* ---- attention ---------------------------------------------------------------------------- */

/* What moec has no form for, by operand and result. */
static moec_status *refuse(moec_onnx *n) {
  static const char *const operands[7] = {
      NULL, NULL, NULL, NULL, "past_key", "past_value", "nonpad_kv_seqlen"};
  static const char *const results[4] = {NULL, "present_key", "present_value", "qk_matmul_output"};
  for (uint32_t i = 4; i < 7; i++)
    if (moec_onnx_has(n, i))
      return moec_onnx_unsupported(n, "operand %u (%s) is given", i, operands[i]);
  for (uint32_t i = 1; i < 4; i++)
    if (moec_onnx_wants(n, i))
      return moec_onnx_unsupported(n, "result %u (%s) is used", i, results[i]);
  return NULL;
}

/* Operand i as [B, S, H, D]: [B, H, S, D] transposed, or [B, S, H*D] split. */
static moec_status *bshd(moec_onnx *n, moec_value *x, uint32_t rank, uint32_t i) {
  const char *attr = i ? "kv_num_heads" : "q_num_heads";
  int64_t heads = moec_attr_int(n, attr, 0);
  moec_type_info t = moec_b_ty(n->b, *x);
  if (t.rank != rank || (rank != 3 && rank != 4))
    return moec_onnx_bad(n, "operand %u: expected Q, K and V of equal rank, 3 or 4, got %s", i,
                         moec_onnx_text(n, *x));
  if (rank == 4) {
    *x = moec_b_transpose(n->b, *x, (int64_t[]){0, 2, 1, 3});
    return moec_builder_end(n->b);
  }
  if (heads < 1)
    return moec_onnx_bad(n, "%s: expected at least 1 for operands of rank 3, got %lld", attr,
                         (long long)heads);
  moec_dim h = moec_dim_const(n->m, heads), size = moec_dim_exact_div(n->m, t.dims[2], h);
  if (!moec_dim_known(size))
    return moec_onnx_bad(n, "operand %u: expected a last axis of %lld whole heads, got %s", i,
                         (long long)heads, moec_onnx_text(n, *x));
  moec_dim dims[4] = {t.dims[0], t.dims[1], h, size};
  *x = moec_b_reshape(n->b, *x, 4, dims);
  return moec_builder_end(n->b);
}

/* The mask as [B|1, H|1, S|1, T|1], bool or in q's dtype. */
static moec_status *read_mask(moec_onnx *n, const moec_value *qkv, moec_value *mask) {
  moec_builder *b = n->b;
  moec_type_info t = moec_b_ty(b, *mask);
  if (t.rank > 4)
    return moec_onnx_bad(n, "operand 3 (attn_mask): expected rank at most 4, got %s",
                         moec_onnx_text(n, *mask));
  for (uint32_t i = t.rank; i < 4; i++) *mask = moec_b_unsqueeze(b, *mask, 0);
  if (t.dtype != MOEC_BOOL) *mask = moec_b_cast(b, *mask, moec_b_ty(b, qkv[0]).dtype);
  MOEC_TRY(moec_builder_end(b));
  moec_dim full[4] = {moec_b_dim(b, qkv[0], 0), moec_b_dim(b, qkv[0], 2), moec_b_dim(b, qkv[0], 1),
                      moec_b_dim(b, qkv[1], 1)};
  for (int64_t i = 0; i < 4; i++) {
    moec_dim d = moec_b_dim(b, *mask, i);
    if (!moec_dim_is(n->m, d, 1)) moec_same_size(n, d, full[i], "attention: sizes of the mask");
  }
  return moec_builder_end(b);
}

/* |mask| and |on|, either of which may be absent. */
static void hide_where_not(moec_onnx *n, moec_value on, moec_value *mask) {
  moec_builder *b = n->b;
  if (!mask->i)
    *mask = on;
  else if (moec_b_ty(b, *mask).dtype == MOEC_BOOL)
    *mask = moec_b_binary(b, MOEC_OP_AND, *mask, on);
  else
    *mask = moec_b_select(b, on, *mask, moec_like(b, *mask, -INFINITY));
}

/* Key j is visible to query i where i - left <= j <= i + right; a causal mask has right = 0. ONNX aligns these at
 * the first query and key, the composite its causal mask at the last ones: it can say so only where the lengths are
 * equal, and the mask has the rest. */
static void apply_window(moec_onnx *n, moec_dim s, moec_dim t, moec_attrs_ATTENTION *a,
                         moec_value *mask) {
  moec_builder *b = n->b;
  int64_t left = moec_attr_int(n, "left_window_size", -1);
  int64_t right = moec_attr_int(n, "is_causal", 0) ? 0 : moec_attr_int(n, "right_window_size", -1);
  a->causal = right == 0 && moec_dim_eq(s, t);
  if (left < 0 && (right < 0 || a->causal)) return;
  moec_dim dims[4] = {moec_dim_const(n->m, 1), moec_dim_const(n->m, 1), s, t};
  moec_value query = moec_b_iota(b, MOEC_I64, 4, dims, 2),
             key = moec_b_iota(b, MOEC_I64, 4, dims, 3);
  moec_value ahead = moec_b_binary(b, MOEC_OP_SUB, key, query);
  if (right >= 0 && !a->causal)
    hide_where_not(n, moec_b_binary(b, MOEC_OP_LE, ahead, moec_b_scalar_i(b, MOEC_I64, right)),
                   mask);
  if (left >= 0)
    hide_where_not(n, moec_b_binary(b, MOEC_OP_GE, ahead, moec_b_scalar_i(b, MOEC_I64, -left)),
                   mask);
}

static moec_status *read_scale(moec_onnx *n, moec_value q, moec_attrs_ATTENTION *a) {
  int64_t d;
  a->softcap = moec_attr_float(n, "softcap", 0);
  if (!moec_onnx_attr(n, "scale") && !moec_dim_is_const(n->m, moec_b_dim(n->b, q, 3), &d))
    return moec_onnx_unsupported(n, "scale: needed where the head size is not constant");
  /* ONNX scales q and k by its square root each: the same product. */
  a->scale = moec_onnx_attr(n, "scale") ? moec_attr_float(n, "scale", 1)
             : d > 0                    ? 1 / sqrt((double)d)
                                        : 1;
  return NULL;
}

IMPORTER(attention) {
  moec_builder *b = n->b;
  moec_value in[4];
  moec_attrs_ATTENTION a = {.causal = false};
  MOEC_TRY(refuse(n));
  MOEC_TRY(moec_onnx_operands(n, 3, 4, in));
  moec_type_info whole = moec_b_ty(b, in[0]);
  for (uint32_t i = 0; i < 3; i++) MOEC_TRY(bshd(n, &in[i], whole.rank, i));
  MOEC_TRY(read_scale(n, in[0], &a));
  moec_dim s = moec_b_dim(b, in[0], 1), t = moec_b_dim(b, in[1], 1);
  moec_same_size(n, moec_b_dim(b, in[0], 3), moec_b_dim(b, in[1], 3),
                 "attention: head sizes of Q and K");
  moec_same_size(n, t, moec_b_dim(b, in[2], 1), "attention: lengths of K and V");
  for (int i = 1; i < 3; i++)
    moec_same_size(n, moec_b_dim(b, in[0], 0), moec_b_dim(b, in[i], 0), "attention: batch sizes");
  if (in[3].i) MOEC_TRY(read_mask(n, in, &in[3]));
  apply_window(n, s, t, &a, &in[3]);
  moec_value y = moec_b_op(b, MOEC_OP_ATTENTION, &a, in[3].i ? 4 : 3, in, 1);
  if (whole.rank == 4) return moec_onnx_result(n, moec_b_transpose(b, y, (int64_t[]){0, 2, 1, 3}));
  moec_dim dims[3] = {whole.dims[0], s,
                      moec_dim_mul(n->m, moec_b_dim(b, y, 2), moec_b_dim(b, y, 3))};
  return moec_onnx_result(n, moec_b_reshape(b, y, 3, dims));
}
