/* Type inference of the composites and of the expert region. Letters as in docs/ir.md. */
#include "ir/infer.h"

static moec_status *check_float(moec_module *m, moec_type t) {
  return moec_dtype_is_float(moec_type_get(m, t).dtype) ? NULL : BAD("expected floats, got %s", moec_type_text(m, t));
}

/* |t| must be |dtype| of the given shape; sizes that may be equal pass. */
static moec_status *expect(moec_module *m, moec_type t, moec_dtype dtype, uint32_t rank, const moec_dim *dims,
                           const char *what) {
  moec_type_info i = moec_type_get(m, t);
  if (!t.i || i.dtype != dtype || i.rank != rank)
    return BAD("%s: expected %s, got %s", what, moec_type_text(m, moec_type_make(m, dtype, rank, dims)),
               t.i ? moec_type_text(m, t) : "nothing");
  for (uint32_t k = 0; k < rank; k++) MOEC_TRY(moec_check_dims(m, dims[k], i.dims[k], what));
  return NULL;
}

INFER(softmax) {
  UNUSED_INFER_ARGS;
  MOEC_TRY(check_float(m, in[0]));
  MOEC_TRY(moec_check_axis(((const moec_attrs_SOFTMAX *)attrs)->axis, moec_type_get(m, in[0]).rank, "axis"));
  out[0] = in[0];
  return NULL;
}

INFER(rms_norm) {
  UNUSED_INFER_ARGS;
  moec_type_info x = moec_type_get(m, in[0]);
  MOEC_TRY(check_float(m, in[0]));
  if (x.rank < 1) return BAD("x: expected rank at least 1");
  if (n_in > 1 && in[1].i) MOEC_TRY(expect(m, in[1], x.dtype, 1, &x.dims[x.rank - 1], "w[D]"));
  out[0] = in[0];
  if (n_out > 1) {
    moec_dim dims[MOEC_MAX_RANK];
    for (uint32_t i = 0; i + 1 < x.rank; i++) dims[i] = x.dims[i];
    dims[x.rank - 1] = moec_dim_const(m, 1);
    out[1] = moec_type_make(m, MOEC_F32, x.rank, dims);
  }
  return NULL;
}

INFER(rope) {
  UNUSED_INFER_ARGS;
  moec_type_info x = moec_type_get(m, in[0]);
  MOEC_TRY(check_float(m, in[0]));
  if (x.rank < 1) return BAD("x: expected rank at least 1");
  moec_dim half = moec_dim_exact_div(m, x.dims[x.rank - 1], moec_dim_const(m, 2));
  if (!moec_dim_known(half)) return BAD("x: expected an even last axis, got %s", moec_type_text(m, in[0]));
  for (uint32_t k = 1; k < 3; k++) {
    moec_type_info c = moec_type_get(m, in[k]);
    if (!in[k].i || c.rank != x.rank || c.dtype != x.dtype)
      return BAD("%s: expected %s of rank %u, got %s", k == 1 ? "cos" : "sin", moec_dtype_get(x.dtype)->text, x.rank,
                 in[k].i ? moec_type_text(m, in[k]) : "nothing");
    MOEC_TRY(moec_check_dims(m, c.dims[x.rank - 1], half, "last axis of cos and sin"));
    for (uint32_t i = 0; i + 1 < x.rank; i++)
      if (!moec_dim_is(m, c.dims[i], 1)) MOEC_TRY(moec_check_dims(m, c.dims[i], x.dims[i], "cos and sin"));
  }
  out[0] = in[0];
  return NULL;
}

INFER(swiglu) {
  UNUSED_INFER_ARGS;
  MOEC_TRY(check_float(m, in[0]));
  if (in[1].i != in[0].i) return BAD("u: expected %s, got %s", moec_type_text(m, in[0]), moec_type_text(m, in[1]));
  out[0] = in[0];
  return NULL;
}

/* q, k, v, mask? and sink? fit each other. */
static moec_status *check_attention(moec_module *m, uint32_t n_in, const moec_type *in) {
  moec_type_info q = moec_type_get(m, in[0]), k = moec_type_get(m, in[1]), v = moec_type_get(m, in[2]);
  MOEC_TRY(check_float(m, in[0]));
  for (uint32_t i = 0; i < 3; i++) MOEC_TRY(moec_check_rank(m, in[i], 4, "q, k, v"));
  moec_dim want_k[4] = {q.dims[0], k.dims[1], k.dims[2], q.dims[3]},
           want_v[4] = {q.dims[0], k.dims[1], k.dims[2], v.dims[3]};
  MOEC_TRY(expect(m, in[1], q.dtype, 4, want_k, "k[B,T,G,D]"));
  MOEC_TRY(expect(m, in[2], q.dtype, 4, want_v, "v[B,T,G,E]"));
  int64_t h, g;
  if (moec_dim_is_const(m, q.dims[2], &h) && moec_dim_is_const(m, k.dims[2], &g) && (g < 1 || h % g != 0))
    return BAD("expected G to divide H, got H = %lld and G = %lld", (long long)h, (long long)g);
  if (n_in > 3 && in[3].i) {
    moec_type_info mask = moec_type_get(m, in[3]);
    moec_dim full[4] = {q.dims[0], q.dims[2], q.dims[1], k.dims[1]};
    if (mask.rank != 4 || (mask.dtype != MOEC_BOOL && mask.dtype != q.dtype))
      return BAD("mask: expected bool or %s of rank 4, got %s", moec_dtype_get(q.dtype)->text,
                 moec_type_text(m, in[3]));
    for (uint32_t i = 0; i < 4; i++)
      if (!moec_dim_is(m, mask.dims[i], 1)) MOEC_TRY(moec_check_dims(m, mask.dims[i], full[i], "mask"));
  }
  return n_in > 4 && in[4].i ? expect(m, in[4], q.dtype, 1, &q.dims[2], "sink[H]") : NULL;
}

INFER(attention) {
  UNUSED_INFER_ARGS;
  MOEC_TRY(check_attention(m, n_in, in));
  moec_type_info q = moec_type_get(m, in[0]);
  moec_dim dims[4] = {q.dims[0], q.dims[1], q.dims[2], moec_type_get(m, in[2]).dims[3]};
  out[0] = moec_type_make(m, q.dtype, 4, dims);
  if (n_out > 1) out[1] = moec_type_make(m, MOEC_F32, 3, q.dims);
  return NULL;
}

INFER(attention_grad) {
  UNUSED_INFER_ARGS;
  if (n_in != 8) return BAD("expected 8 operands, of which the mask and the sink may be absent, got %u", n_in);
  MOEC_TRY(check_attention(m, n_in, in));
  moec_type_info q = moec_type_get(m, in[0]);
  moec_dim dims[4] = {q.dims[0], q.dims[1], q.dims[2], moec_type_get(m, in[2]).dims[3]};
  MOEC_TRY(expect(m, in[5], q.dtype, 4, dims, "y[B,S,H,E]"));
  MOEC_TRY(expect(m, in[6], MOEC_F32, 3, dims, "lse[B,S,H]"));
  MOEC_TRY(expect(m, in[7], q.dtype, 4, dims, "dy[B,S,H,E]"));
  if (n_out > 3 && !in[4].i) return BAD("dsink: expected a sink to take the gradient of, got none");
  for (uint32_t i = 0; i < 3; i++) out[i] = in[i];
  if (n_out > 3) out[3] = in[4];
  return NULL;
}

INFER(cross_entropy) {
  UNUSED_INFER_ARGS;
  moec_type_info x = moec_type_get(m, in[0]);
  MOEC_TRY(check_float(m, in[0]));
  MOEC_TRY(moec_check_rank(m, in[0], 2, "logits[T,V]"));
  MOEC_TRY(expect(m, in[1], MOEC_I64, 1, x.dims, "labels[T]"));
  for (uint32_t i = 0; i < n_out; i++) out[i] = moec_type_make(m, MOEC_F32, 1, x.dims);
  return NULL;
}

INFER(linear_cross_entropy) {
  UNUSED_INFER_ARGS;
  const moec_attrs_LINEAR_CROSS_ENTROPY *a = attrs;
  bool t = a->transposed;
  MOEC_TRY(check_float(m, in[0]));
  MOEC_TRY(moec_check_rank(m, in[0], 2, "x[T,H]"));
  MOEC_TRY(moec_check_rank(m, in[1], 2, "w"));
  moec_type_info x = moec_type_get(m, in[0]), w = moec_type_get(m, in[1]);
  if (w.dtype != x.dtype) return BAD("w: expected dtype of x, got %s", moec_type_text(m, in[1]));
  MOEC_TRY(moec_check_dims(m, x.dims[1], w.dims[t ? 1 : 0], "H of x and w"));
  MOEC_TRY(expect(m, in[2], MOEC_I64, 1, x.dims, "labels[T]"));
  MOEC_TRY(expect(m, in[3], MOEC_F32, 1, x.dims, "scale[T]"));
  int64_t chunk;
  if (!moec_dim_known(a->chunk) || (moec_dim_is_const(m, a->chunk, &chunk) && chunk < 0))
    return BAD("chunk: expected a number of tokens");
  out[0] = moec_type_make(m, MOEC_F32, 1, x.dims);
  out[1] = in[0];
  out[2] = in[1];
  return NULL;
}

/* ---- the expert region -------------------------------------------------------------------- */

INFER(moe_select) {
  UNUSED_INFER_ARGS;
  int64_t k = ((const moec_attrs_MOE_SELECT *)attrs)->k, e;
  MOEC_TRY(check_float(m, in[0]));
  MOEC_TRY(moec_check_rank(m, in[0], 2, "s[T,E]"));
  moec_type_info s = moec_type_get(m, in[0]);
  if (k < 1 || (moec_dim_is_const(m, s.dims[1], &e) && k > e))
    return BAD("k: expected 1..E, got %lld for %s", (long long)k, moec_type_text(m, in[0]));
  moec_dim dims[2] = {s.dims[0], moec_dim_const(m, k)};
  out[0] = moec_type_make(m, MOEC_I64, 2, dims);
  return NULL;
}

INFER(moe_plan) {
  UNUSED_INFER_ARGS;
  int64_t e = ((const moec_attrs_MOE_PLAN *)attrs)->experts;
  moec_type_info i = moec_type_get(m, in[0]);
  if (i.dtype != MOEC_I64 || i.rank != 2)
    return BAD("i[T,k]: expected i64 of rank 2, got %s", moec_type_text(m, in[0]));
  if (e < 1) return BAD("experts: expected at least 1, got %lld", (long long)e);
  moec_dim n = moec_type_numel(m, in[0]), e1 = moec_dim_add(m, moec_dim_const(m, e), moec_dim_const(m, 1));
  if (!moec_dim_known(e1)) return BAD("experts: %lld are too many", (long long)e);
  out[0] = out[1] = moec_type_make(m, MOEC_I32, 1, &n);
  out[2] = moec_type_make(m, MOEC_I32, 1, &e1);
  return NULL;
}

INFER(moe_dispatch) {
  UNUSED_INFER_ARGS;
  int64_t k = ((const moec_attrs_MOE_DISPATCH *)attrs)->k;
  MOEC_TRY(moec_check_rank(m, in[0], 2, "x[T,H]"));
  moec_type_info x = moec_type_get(m, in[0]);
  if (k < 1) return BAD("k: expected at least 1, got %lld", (long long)k);
  moec_dim dims[2] = {moec_dim_mul(m, x.dims[0], moec_dim_const(m, k)), x.dims[1]};
  MOEC_TRY(expect(m, in[1], MOEC_I32, 1, dims, "perm[N]"));
  out[0] = moec_type_make(m, x.dtype, 2, dims);
  return NULL;
}

INFER(moe_grouped_dot) {
  UNUSED_INFER_ARGS;
  bool t = ((const moec_attrs_MOE_GROUPED_DOT *)attrs)->transposed;
  MOEC_TRY(moec_check_rank(m, in[0], 2, "rows[N,K]"));
  MOEC_TRY(moec_check_rank(m, in[1], 3, "w"));
  moec_type_info x = moec_type_get(m, in[0]), w = moec_type_get(m, in[1]);
  if (w.dtype != x.dtype) return BAD("w: expected dtype of rows, got %s", moec_type_text(m, in[1]));
  MOEC_TRY(moec_check_dims(m, x.dims[1], w.dims[t ? 2 : 1], "K of rows and w"));
  moec_dim e1 = moec_dim_add(m, w.dims[0], moec_dim_const(m, 1)), mm = w.dims[t ? 1 : 2];
  MOEC_TRY(expect(m, in[2], MOEC_I32, 1, &e1, "offsets[E+1]"));
  moec_dim bias[2] = {w.dims[0], mm}, dims[2] = {x.dims[0], mm};
  if (n_in > 3 && in[3].i) MOEC_TRY(expect(m, in[3], x.dtype, 2, bias, "bias[E,M]"));
  out[0] = moec_type_make(m, x.dtype, 2, dims);
  return NULL;
}

INFER(moe_weight) {
  UNUSED_INFER_ARGS;
  MOEC_TRY(moec_check_rank(m, in[0], 2, "rows[N,H]"));
  MOEC_TRY(moec_check_rank(m, in[1], 2, "w[T,k]"));
  MOEC_TRY(check_float(m, in[1]));
  moec_type_info x = moec_type_get(m, in[0]);
  MOEC_TRY(moec_check_dims(m, x.dims[0], moec_type_numel(m, in[1]), "N and T*k"));
  MOEC_TRY(expect(m, in[2], MOEC_I32, 1, x.dims, "perm[N]"));
  out[0] = in[0];
  return NULL;
}

INFER(moe_combine) {
  UNUSED_INFER_ARGS;
  int64_t k = ((const moec_attrs_MOE_COMBINE *)attrs)->k;
  moec_dtype sum = ((const moec_attrs_MOE_COMBINE *)attrs)->dtype;
  MOEC_TRY(moec_check_rank(m, in[0], 2, "rows[N,H]"));
  moec_type_info x = moec_type_get(m, in[0]);
  MOEC_TRY(moec_check_result(x.dtype, sum));
  if (k < 1) return BAD("k: expected at least 1, got %lld", (long long)k);
  MOEC_TRY(expect(m, in[1], MOEC_I32, 1, x.dims, "inv[N]"));
  moec_dim dims[2] = {moec_dim_exact_div(m, x.dims[0], moec_dim_const(m, k)), x.dims[1]};
  if (!moec_dim_known(dims[0]))
    return BAD("rows: expected a multiple of k = %lld rows, got %s", (long long)k, moec_type_text(m, in[0]));
  out[0] = moec_type_make(m, sum ? sum : x.dtype, 2, dims);
  return NULL;
}

/* The E of offsets[E+1]. */
static moec_status *count_groups(moec_module *m, moec_type offsets, moec_dim *out) {
  moec_type_info t = moec_type_get(m, offsets);
  int64_t n;
  if (t.dtype != MOEC_I32 || t.rank != 1)
    return BAD("offsets[E+1]: expected i32 of rank 1, got %s", moec_type_text(m, offsets));
  if (moec_dim_is_const(m, t.dims[0], &n) && n < 1)
    return BAD("offsets[E+1]: expected at least 1 element, got %s", moec_type_text(m, offsets));
  *out = moec_dim_sub(m, t.dims[0], moec_dim_const(m, 1));
  return NULL;
}

INFER(moe_grouped_outer) {
  UNUSED_INFER_ARGS;
  moec_dim e;
  MOEC_TRY(check_float(m, in[0]));
  MOEC_TRY(moec_check_rank(m, in[0], 2, "dy[N,M]"));
  MOEC_TRY(moec_check_rank(m, in[1], 2, "x[N,K]"));
  moec_type_info dy = moec_type_get(m, in[0]), x = moec_type_get(m, in[1]);
  moec_dim want[2] = {dy.dims[0], x.dims[1]};
  MOEC_TRY(expect(m, in[1], dy.dtype, 2, want, "x[N,K]"));
  MOEC_TRY(count_groups(m, in[2], &e));
  out[0] = moec_type_make(m, dy.dtype, 3, (moec_dim[]){e, dy.dims[1], x.dims[1]});
  return NULL;
}

INFER(moe_group_sum) {
  UNUSED_INFER_ARGS;
  moec_dim e;
  MOEC_TRY(check_float(m, in[0]));
  MOEC_TRY(moec_check_rank(m, in[0], 2, "x[N,M]"));
  MOEC_TRY(count_groups(m, in[1], &e));
  moec_type_info x = moec_type_get(m, in[0]);
  out[0] = moec_type_make(m, x.dtype, 2, (moec_dim[]){e, x.dims[1]});
  return NULL;
}
