/* The importer of com.microsoft::GroupQueryAttention, as a forward pass without a cache: every sequence begins at its
 * first token. Then the lengths that the operator gets (seqlens_k) only say which rows at the end are padding, and a
 * causal mask keeps those from all others: they are ignored, and results in padded rows are not onnxruntime's. */
#include <math.h>
#include <string.h>

#include "frontend/ops.h"

enum {
  QUERY,
  KEY,
  VALUE,
  PAST_KEY,
  PAST_VALUE,
  SEQLENS,
  TOTAL,
  COS,
  SIN,
  POSITIONS,
  BIAS,
  SINK,
  K_SCALE,
  V_SCALE,
  Q_NORM,
  K_NORM,
  N_OPERANDS
};

typedef struct gqa {
  moec_onnx *n;
  moec_value in[N_OPERANDS];
  int64_t heads, kv_heads;
  moec_value q, k, v; /* [B, S, heads, size] */
} gqa;

static moec_status *refuse(moec_onnx *n) {
  static const struct {
    uint32_t i;
    const char *name;
  } operands[] = {{PAST_KEY, "past_key"}, {PAST_VALUE, "past_value"}, {K_SCALE, "k_scale"}, {V_SCALE, "v_scale"}};
  static const struct {
    const char *name;
    int64_t only;
  } ints[] = {{"causal", 1}, {"qk_output", 0}, {"sliding_window_cache", 0}, {"kv_cache_bit_width", 0}};
  static const char *const texts[] = {"k_quant_type", "v_quant_type"};
  for (size_t i = 0; i < sizeof operands / sizeof *operands; i++)
    if (moec_onnx_has(n, operands[i].i))
      return moec_onnx_unsupported(n, "operand %u (%s) is given: a cache of keys and values is not supported",
                                   operands[i].i, operands[i].name);
  for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
    if (moec_attr_int(n, ints[i].name, ints[i].only) != ints[i].only)
      return moec_onnx_unsupported(n, "%s: expected %lld", ints[i].name, (long long)ints[i].only);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (strcmp(moec_attr_string(n, texts[i], "NONE"), "NONE") != 0)
      return moec_onnx_unsupported(n, "%s: expected NONE", texts[i]);
  if (moec_onnx_wants(n, 3)) return moec_onnx_unsupported(n, "result 3 (output_qk) is used");
  return moec_builder_end(n->b);
}

/* ---- operands ----------------------------------------------------------------------------- */

/* The part of x[B, S, all*size] that belongs to heads from .. from+count of |all|, as [B, S, count, size]. */
static moec_status *take_heads(gqa *g, moec_value x, int64_t all, int64_t from, int64_t count, moec_value *out) {
  moec_onnx *n = g->n;
  moec_type_info t = moec_b_ty(n->b, x);
  moec_dim size = t.rank == 3 ? moec_dim_exact_div(n->m, t.dims[2], moec_dim_const(n->m, all)) : (moec_dim){0};
  if (!moec_dim_known(size))
    return moec_onnx_bad(n, "expected [B, S, %lld whole heads], got %s", (long long)all, moec_onnx_text(n, x));
  moec_dim dims[4] = {t.dims[0], t.dims[1], moec_dim_const(n->m, all), size};
  x = moec_b_reshape(n->b, x, 4, dims);
  *out = moec_b_slice(n->b, x, 2, moec_dim_const(n->m, from), moec_dim_const(n->m, count));
  return moec_builder_end(n->b);
}

static moec_status *read_heads(gqa *g) {
  moec_onnx *n = g->n;
  enum { MOST = 1 << 20 };
  g->heads = moec_attr_int(n, "num_heads", 0), g->kv_heads = moec_attr_int(n, "kv_num_heads", 0);
  if (g->heads < 1 || g->kv_heads < 1 || g->heads > MOST || g->heads % g->kv_heads)
    return moec_onnx_bad(n, "expected num_heads to be a multiple of kv_num_heads, got %lld and %lld",
                         (long long)g->heads, (long long)g->kv_heads);
  MOEC_TRY(moec_onnx_operands(n, 1, N_OPERANDS, g->in));
  if (!g->in[KEY].i != !g->in[VALUE].i) return moec_onnx_bad(n, "expected both key and value, or neither");
  int64_t all = g->heads + 2 * g->kv_heads;
  if (g->in[KEY].i) {
    MOEC_TRY(take_heads(g, g->in[QUERY], g->heads, 0, g->heads, &g->q));
    MOEC_TRY(take_heads(g, g->in[KEY], g->kv_heads, 0, g->kv_heads, &g->k));
    return take_heads(g, g->in[VALUE], g->kv_heads, 0, g->kv_heads, &g->v);
  }
  MOEC_TRY(take_heads(g, g->in[QUERY], all, 0, g->heads, &g->q));
  MOEC_TRY(take_heads(g, g->in[QUERY], all, g->heads, g->kv_heads, &g->k));
  return take_heads(g, g->in[QUERY], all, g->heads + g->kv_heads, g->kv_heads, &g->v);
}

static moec_status *check_sizes(gqa *g) {
  moec_onnx *n = g->n;
  moec_builder *b = n->b;
  const moec_value others[2] = {g->k, g->v};
  for (int i = 0; i < 2; i++) {
    moec_same_size(n, moec_b_dim(b, g->q, 0), moec_b_dim(b, others[i], 0), "attention: batch sizes");
    moec_same_size(n, moec_b_dim(b, g->q, 1), moec_b_dim(b, others[i], 1),
                   "attention: without a cache there are as many keys as queries");
  }
  moec_same_size(n, moec_b_dim(b, g->q, 3), moec_b_dim(b, g->k, 3), "attention: head sizes of Q and K");
  return moec_builder_end(b);
}

/* ---- on the way to the scores ------------------------------------------------------------- */

static moec_status *normalise(gqa *g, moec_value *x, uint32_t weight) {
  moec_onnx *n = g->n;
  if (!g->in[weight].i) return NULL;
  moec_attrs_RMS_NORM a = {.eps = moec_attr_float(n, "qk_norm_epsilon", 1e-6f)};
  moec_value in[2] = {*x, moec_b_cast(n->b, g->in[weight], moec_b_ty(n->b, *x).dtype)};
  *x = moec_b_op(n->b, MOEC_OP_RMS_NORM, &a, 2, in, 1);
  return moec_builder_end(n->b);
}

/* Rows of a cache [max, half] for the positions, as [1, S, 1, half]. Of position_ids[B, S] onnxruntime reads the very
 * first element in a pass without a cache, and counts on from there for every sequence; so does moec. */
static moec_status *cache_rows(gqa *g, uint32_t which, moec_value *out) {
  moec_onnx *n = g->n;
  moec_builder *b = n->b;
  moec_value cache = g->in[which], first = g->in[POSITIONS];
  if (!cache.i) return moec_onnx_bad(n, "operand %u is missing for do_rotary = 1", which);
  moec_type_info t = moec_b_ty(b, cache);
  if (t.rank != 2) return moec_onnx_bad(n, "operand %u: expected rank 2, got %s", which, moec_onnx_text(n, cache));
  cache = moec_b_cast(b, cache, moec_b_ty(b, g->q).dtype);
  moec_dim s = moec_b_dim(b, g->q, 1), one = moec_dim_const(n->m, 1), zero = moec_dim_const(n->m, 0);
  if (first.i) {
    if (moec_b_ty(b, first).rank != 2)
      return moec_onnx_bad(n, "operand %d (position_ids): expected rank 2, got %s", POSITIONS,
                           moec_onnx_text(n, first));
    first = moec_b_slice(b, moec_b_slice(b, first, 0, zero, one), 1, zero, one);
    moec_value at = moec_b_binary(b, MOEC_OP_ADD, moec_b_iota(b, moec_b_ty(b, first).dtype, 1, &s, 0),
                                  moec_b_reshape(b, first, 0, NULL));
    moec_attrs_GATHER a = {.axis = 0};
    moec_value in[2] = {cache, at};
    cache = moec_b_op(b, MOEC_OP_GATHER, &a, 2, in, 1);
  } else {
    moec_same_size(n, moec_dim_min(n->m, s, t.dims[0]), s, "attention: the sequence is longer than the rotary caches");
    cache = moec_b_slice(b, cache, 0, zero, s);
  }
  moec_dim dims[4] = {one, s, one, t.dims[1]};
  *out = moec_b_reshape(b, cache, 4, dims);
  return moec_builder_end(b);
}

/* Turns the first 2*half elements of each head. */
static moec_status *turn(gqa *g, moec_value *x, moec_value cos, moec_value sin) {
  moec_onnx *n = g->n;
  moec_builder *b = n->b;
  bool pairs = moec_attr_int(n, "rotary_interleaved", 0) != 0;
  moec_dim size = moec_b_dim(b, *x, 3), dim = moec_dim_mul(n->m, moec_b_dim(b, cos, 3), moec_dim_const(n->m, 2));
  moec_attrs_ROPE a = {.pairs_in = pairs, .pairs_out = pairs};
  moec_value in[3] = {moec_b_slice(b, *x, 3, moec_dim_const(n->m, 0), dim), cos, sin};
  moec_value y = moec_b_op(b, MOEC_OP_ROPE, &a, 3, in, 1);
  if (!moec_dim_eq(dim, size)) {
    moec_value both[2] = {y, moec_b_slice(b, *x, 3, dim, moec_dim_sub(n->m, size, dim))};
    y = moec_b_concat(b, 2, both, 3);
  }
  *x = y;
  return moec_builder_end(b);
}

static moec_status *rotate(gqa *g) {
  moec_value cos, sin;
  if (!moec_attr_int(g->n, "do_rotary", 0)) return NULL;
  MOEC_TRY(cache_rows(g, COS, &cos));
  MOEC_TRY(cache_rows(g, SIN, &sin));
  MOEC_TRY(turn(g, &g->q, cos, sin));
  return turn(g, &g->k, cos, sin);
}

/* ---- masks -------------------------------------------------------------------------------- */

/* The window as a mask: key j is visible to query i where j > i - window. */
static moec_value window_mask(gqa *g, int64_t window) {
  moec_builder *b = g->n->b;
  moec_dim one = moec_dim_const(g->n->m, 1), s = moec_b_dim(b, g->q, 1), dims[4] = {one, one, s, s};
  moec_value behind =
      moec_b_binary(b, MOEC_OP_SUB, moec_b_iota(b, MOEC_I64, 4, dims, 2), moec_b_iota(b, MOEC_I64, 4, dims, 3));
  return moec_b_binary(b, MOEC_OP_LT, behind, moec_b_scalar_i(b, MOEC_I64, window));
}

static moec_status *read_mask(gqa *g, moec_value *out) {
  moec_onnx *n = g->n;
  moec_builder *b = n->b;
  int64_t window = moec_attr_int(n, "local_window_size", -1);
  if (window == 0 || window < -1)
    return moec_onnx_bad(n, "local_window_size: expected -1 or at least 1, got %lld", (long long)window);
  *out = window > 0 ? window_mask(g, window) : (moec_value){0};
  moec_value bias = g->in[BIAS];
  if (!bias.i) return NULL;
  if (moec_b_ty(b, bias).rank != 4)
    return moec_onnx_bad(n, "operand %d (attention_bias): expected rank 4, got %s", BIAS, moec_onnx_text(n, bias));
  const moec_dim full[4] = {moec_b_dim(b, g->q, 0), moec_b_dim(b, g->q, 2), moec_b_dim(b, g->q, 1),
                            moec_b_dim(b, g->k, 1)};
  for (int64_t i = 0; i < 4; i++)
    if (i > 1 || !moec_dim_is(n->m, moec_b_dim(b, bias, i), 1))
      moec_same_size(n, moec_b_dim(b, bias, i), full[i], "attention: sizes of the bias");
  bias = moec_b_cast(b, bias, moec_b_ty(b, g->q).dtype);
  *out = out->i ? moec_b_select(b, *out, bias, moec_like(b, bias, -INFINITY)) : bias;
  return moec_builder_end(b);
}

/* One more key whose score is head_sink, or 0 for smooth_softmax. */
static moec_value read_sink(gqa *g) {
  moec_builder *b = g->n->b;
  moec_dim heads = moec_dim_const(g->n->m, g->heads);
  moec_dtype t = moec_b_ty(b, g->q).dtype;
  if (g->in[SINK].i) return moec_b_cast(b, g->in[SINK], t);
  return moec_attr_int(g->n, "smooth_softmax", -1) > 0 ? moec_b_fill(b, moec_b_scalar_f(b, t, 0), 1, &heads)
                                                       : (moec_value){0};
}

static moec_status *read_attrs(gqa *g, moec_attrs_ATTENTION *a) {
  moec_onnx *n = g->n;
  int64_t d;
  a->causal = true, a->softcap = moec_attr_float(n, "softcap", 0), a->scale = moec_attr_float(n, "scale", 0);
  if (a->scale != 0) return NULL;
  if (!moec_dim_is_const(n->m, moec_b_dim(n->b, g->q, 3), &d) || d < 1)
    return moec_onnx_unsupported(n, "scale: needed where the head size is not constant");
  a->scale = 1 / sqrt((double)d);
  return NULL;
}

IMPORTER(group_query_attention) {
  moec_builder *b = n->b;
  gqa g = {.n = n};
  moec_attrs_ATTENTION a;
  moec_value mask = {0};
  MOEC_TRY(refuse(n));
  MOEC_TRY(read_heads(&g));
  MOEC_TRY(check_sizes(&g));
  MOEC_TRY(normalise(&g, &g.q, Q_NORM));
  MOEC_TRY(normalise(&g, &g.k, K_NORM));
  MOEC_TRY(rotate(&g));
  MOEC_TRY(read_mask(&g, &mask));
  MOEC_TRY(read_attrs(&g, &a));
  moec_value in[5] = {g.q, g.k, g.v, mask, read_sink(&g)};
  moec_value y = moec_b_op(b, MOEC_OP_ATTENTION, &a, in[4].i ? 5 : mask.i ? 4 : 3, in, 1);
  MOEC_TRY(moec_builder_end(b));
  const int64_t bnsh[4] = {0, 2, 1, 3};
  if (moec_onnx_wants(n, 1)) moec_onnx_out(n, 1, moec_b_transpose(b, g.k, bnsh));
  if (moec_onnx_wants(n, 2)) moec_onnx_out(n, 2, moec_b_transpose(b, g.v, bnsh));
  moec_dim dims[3] = {moec_b_dim(b, y, 0), moec_b_dim(b, y, 1),
                      moec_dim_mul(n->m, moec_b_dim(b, y, 2), moec_b_dim(b, y, 3))};
  return moec_onnx_result(n, moec_b_reshape(b, y, 3, dims));
}
