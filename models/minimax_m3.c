/* MiniMax-M3, the text model: norms scale by 1 + weight; queries and keys are normalised by head and partly rotated;
 * sigmoid routing with a bias for the choice, a shared expert; dense layers first. Sparse attention layers look
 * only at blocks of keys that a small indexer chooses for each query. */
#include <math.h>
#include <string.h>

#include "models/family.h"

typedef struct minimax {
  moec_gqa attention;
  moec_moe moe;
  int64_t dense, shared;
  moec_config *released; /* sparse_attention_config; NULL: none */
  int64_t block, index_heads, index_dim, local, kept; /* of sparse layers */
  double alpha, limit, scale;
} minimax;

/* ---- the indexer ------------------------------------------------------------------------------ */

static moec_wv range(moec_llm *m, moec_wv n) { return W(m->w, "Range", moec_w_int(m->w, 0), n, moec_w_int(m->w, 1)); }

/* [.., seq, keys] scores as [.., seq, blocks]: the best of each block; the last one may be short. */
static moec_wv block_scores(moec_llm *m, const minimax *s, moec_wv scores, moec_wv seq, moec_wv blocks) {
  moec_writer *w = m->w;
  moec_wv low = moec_w_float(w, MOEC_F32, -INFINITY), block = moec_w_int(w, s->block), end = W_I64(w, 1, -1);
  moec_wv missing = W(w, "Unsqueeze", W(w, "Sub", W(w, "Mul", blocks, block), seq), W_I64(w, 1, 0));
  moec_wv pads = WA(w, "Concat", W_ATTRS(W_INT("axis", 0)), W_I64(w, 7, 0, 0, 0, 0, 0, 0, 0), missing);
  scores = W(w, "Pad", scores, pads, low);
  moec_wv shape =
      WA(w, "Concat", W_ATTRS(W_INT("axis", 0)), WA(w, "Shape", W_ATTRS(W_INT("start", 0), W_INT("end", 3)), scores),
         W(w, "Unsqueeze", blocks, W_I64(w, 1, 0)), W_I64(w, 1, s->block));
  return WA(w, "ReduceMax", W_ATTRS(W_INT("keepdims", 0)), W(w, "Reshape", scores, shape), end);
}

/* A query's own block and those just before it, which are always chosen: bool [seq, blocks]. */
static moec_wv near_blocks(moec_llm *m, const minimax *s, moec_wv query, moec_wv blocks) {
  moec_writer *w = m->w;
  moec_wv own = W(w, "Div", query, moec_w_int(w, s->block)), b = range(m, blocks);
  return W(w, "And", W(w, "LessOrEqual", b, own), W(w, "Greater", b, W(w, "Sub", own, moec_w_int(w, s->local))));
}

/* q [batch, index heads, seq, dim], k [batch, 1, seq, dim] to bool [batch, index heads, seq, keys]. */
static moec_wv choose_body(moec_llm *m, const minimax *s, const moec_wv *in) {
  moec_writer *w = m->w;
  moec_wv q = moec_l_cast(m, in[0], m->dtype, MOEC_F32), k = moec_l_cast(m, in[1], m->dtype, MOEC_F32);
  moec_wv scores = W(w, "MatMul", q, WA(w, "Transpose", W_ATTRS(W_INTS("perm", 4, 0, 1, 3, 2)), k));
  moec_wv seq = W(w, "Squeeze", WA(w, "Shape", W_ATTRS(W_INT("start", 2), W_INT("end", 3)), in[0]));
  moec_wv low = moec_w_float(w, MOEC_F32, -INFINITY), key = range(m, seq),
          query = W(w, "Unsqueeze", key, W_I64(w, 1, 1));
  moec_wv blocks = W(w, "Div", W(w, "Add", seq, moec_w_int(w, s->block - 1)), moec_w_int(w, s->block));
  scores = W(w, "Where", W(w, "LessOrEqual", key, query), scores, low);
  scores = block_scores(m, s, scores, seq, blocks);
  if (s->local) scores = W(w, "Where", near_blocks(m, s, query, blocks), moec_w_float(w, MOEC_F32, INFINITY), scores);
  moec_wv top[2], two[2] = {scores, W(w, "Unsqueeze", W(w, "Min", moec_w_int(w, s->kept), blocks), W_I64(w, 1, 0))};
  moec_w_node(w, "", "TopK", W_ATTRS(W_INT("axis", -1), W_INT("largest", 1), W_INT("sorted", 1)), 2, two, 2, top, NULL);
  moec_wv real = moec_l_cast(m, W(w, "Greater", top[0], low), MOEC_BOOL, MOEC_F32); /* blocks in the future are none */
  moec_wv none = W(w, "Expand", moec_w_float(w, MOEC_F32, 0), W(w, "Shape", scores));
  moec_wv chosen = WA(w, "ScatterElements", W_ATTRS(W_INT("axis", -1)), none, top[1], real);
  moec_wv by_key = W(w, "Div", key, moec_w_int(w, s->block));
  return moec_l_cast(m, WA(w, "Gather", W_ATTRS(W_INT("axis", -1)), chosen, by_key), MOEC_F32, MOEC_BOOL);
}

/* The mask [batch, heads, seq, keys] of a sparse layer. */
static moec_wv sparse_mask(moec_llm *m, moec_wv x, const minimax *s) {
  static const char *const names[2] = {"q", "k"};
  moec_wv in[2], formal[2];
  const char *at = m->at;
  for (int i = 0; i < 2; i++) {
    int64_t heads = i ? 1 : s->index_heads;
    moec_wv y = moec_l_linear(m, x, moec_arena_printf(m->arena, "indexer.%s_proj", names[i]), m->hidden,
                              heads * s->index_dim, false);
    y = moec_l_norm(m, L_RESHAPE(m, y, 4, 0, 0, heads, s->index_dim),
                    moec_arena_printf(m->arena, "indexer.%s_norm", names[i]), s->index_dim);
    in[i] =
        moec_l_rotate(m, &s->attention.rope, WA(m->w, "Transpose", W_ATTRS(W_INTS("perm", 4, 0, 2, 1, 3)), y), heads);
  }
  if (moec_w_fn_begin(m->w, "ChooseBlocks", "which keys a query sees: blocks with the best scores, and those nearby", 2,
                      names, formal)) {
    moec_w_scope(m->w, "%s", "");
    moec_wv y = choose_body(m, s, formal);
    moec_w_fn_end(m->w, 1, &y);
  }
  moec_w_scope(m->w, "%s", at);
  moec_wv chosen = W(m->w, "Unsqueeze", moec_w_call(m->w, "ChooseBlocks", 2, in), W_I64(m->w, 1, 2));
  chosen = W(m->w, "Expand", chosen, W_I64(m->w, 5, 1, 1, s->attention.heads / s->index_heads, 1, 1));
  moec_wv seq = WA(m->w, "Shape", W_ATTRS(W_INT("start", 1), W_INT("end", 2)), m->ids);
  moec_wv shape = WA(m->w, "Concat", W_ATTRS(W_INT("axis", 0)), W_I64(m->w, 2, -1, s->attention.heads), seq, seq);
  return moec_l_hide(m, W(m->w, "Reshape", chosen, shape));
}

/* ---- layers ------------------------------------------------------------------------------------- */

static moec_wv attention(moec_llm *m, moec_wv x, const minimax *s, bool sparse) {
  const moec_gqa *a = &s->attention;
  if (!sparse) return moec_l_gqa(m, x, a);
  moec_wv mask = sparse_mask(m, x, s);
  moec_wv q = moec_l_gqa_rotated(m, x, a, "q", a->heads), k = moec_l_gqa_rotated(m, x, a, "k", a->kv_heads);
  moec_wv v = moec_l_heads(m, moec_l_linear(m, x, "v_proj", m->hidden, a->kv_heads * a->head_dim, false), a->kv_heads,
                           a->head_dim);
  moec_wv y = moec_l_masked_attention(m, q, k, v, 1 / sqrt((double)a->head_dim), mask);
  return moec_l_linear(m, moec_l_join_heads(m, y, a->heads * a->head_dim), "o_proj", a->heads * a->head_dim, m->hidden,
                       false);
}

/* down(swiglu(gate, up)), where gate and up are one layer that may be stored as two. */
static moec_wv mlp(moec_llm *m, moec_wv x, const char *name, int64_t inner, const minimax *s) {
  moec_wv half[2], both;
  const char *joined = moec_arena_printf(m->arena, "%sgate_up_proj", name);
  const char *parts[2] = {moec_arena_printf(m->arena, "%sgate_proj", name),
                          moec_arena_printf(m->arena, "%sup_proj", name)};
  bool apart = moec_l_has(m, moec_arena_printf(m->arena, "%s.weight", parts[0]));
  if (apart) both = moec_l_joined_linear(m, x, joined, parts, 2, m->hidden, inner);
  else both = moec_l_linear(m, x, joined, m->hidden, 2 * inner, false);
  moec_w_node(m->w, "", "Split", W_ATTRS(W_INT("axis", -1), W_INT("num_outputs", 2)), 1, &both, 2, half, NULL);
  moec_wv y = moec_l_swiglu_oai(m, half[0], half[1], s->alpha, s->limit);
  return moec_l_linear(m, y, moec_arena_printf(m->arena, "%sdown_proj", name), inner, m->hidden, false);
}

static moec_wv experts(moec_llm *m, moec_wv x, const minimax *s) {
  const char *here = m->stored;
  moec_l_stored_as(m, "block_sparse_moe");
  if (!moec_l_has(m, "gate.weight")) m->stored = here;
  moec_wv y = moec_l_moe(m, x, &s->moe);
  if (s->scale != 1) y = moec_l_mul(m, y, moec_w_float(m->w, m->dtype, s->scale));
  return s->shared ? moec_l_add(m, y, mlp(m, x, "shared_experts.", s->shared, s)) : y;
}

/* ---- config --------------------------------------------------------------------------------------- */

/* Released files have their own object for these; its values count more. */
static int64_t indexer_key(moec_llm *m, const minimax *s, const char *flat, const char *released, int64_t dflt) {
  dflt = moec_cfg_int_or(m->c, flat, dflt);
  return s->released ? moec_cfg_int_or(s->released, released, dflt) : dflt;
}

static void read_indexer(moec_llm *m, minimax *s) {
  s->released = moec_cfg_sub(m->c, "sparse_attention_config");
  if (s->released) {
    moec_cfg_want_str(s->released, "sparse_score_type", "max");
    moec_cfg_want_num(s->released, "sparse_init_block", 0);
  }
  s->block = indexer_key(m, s, "index_block_size", "sparse_block_size", 128);
  s->index_heads = indexer_key(m, s, "index_n_heads", "sparse_num_index_heads", 4);
  s->index_dim = indexer_key(m, s, "index_head_dim", "sparse_index_dim", 128);
  s->local = indexer_key(m, s, "index_local_blocks", "sparse_local_block", 1);
  s->kept = indexer_key(m, s, "index_topk_blocks", "sparse_topk_blocks", 16);
  if (s->block < 1 || s->index_heads < 1 || s->kept < 1 || s->attention.heads % s->index_heads ||
      s->index_dim < s->attention.head_dim / 2)
    moec_cfg_fail(m->c, moec_error(MOEC_INVALID_MODEL,
                                   "config.json: index_block_size, index_n_heads, index_topk_blocks: expected at least "
                                   "1, and index_n_heads to divide the %lld attention heads",
                                   (long long)s->attention.heads));
  if (s->index_heads < 1) s->index_heads = 1;
}

/* An indexer that also has values of its own is another model. */
static bool is_sparse(moec_llm *m, const minimax *s, int64_t i) {
  static const char *const known[] = {"full_attention", "minimax_m3_sparse", NULL};
  bool on = s->released && moec_cfg_bool_or(s->released, "use_sparse_attention", true);
  bool listed = moec_l_layer_flag(m, s->released, "sparse_attention_freq", i, false);
  bool sparse = moec_l_layer_is(m, "layer_types", i, "minimax_m3_sparse", known, on && listed);
  if (sparse && !moec_l_layer_flag(m, s->released, "sparse_disable_index_value", i, true))
    moec_cfg_fail(m->c, moec_error(MOEC_UNSUPPORTED, "config.json: sparse_attention_config.sparse_disable_index_value: "
                                                     "expected 1 for the sparse layer %lld, got 0", (long long)i));
  return sparse;
}

static bool is_dense(moec_llm *m, int64_t i) {
  static const char *const known[] = {"dense", "sparse", NULL};
  bool listed = moec_l_layer_flag(m, m->c, "moe_layer_freq", i, true);
  return moec_l_layer_is(m, "mlp_layer_types", i, "dense", known, !listed);
}

/* Features of a head that turn: rotary_dim, which partial_rotary_factor must agree with where it is given. */
static void read_rope(moec_llm *m, minimax *s) {
  int64_t rotary = moec_cfg_int(m->c, "rotary_dim");
  const char *part = moec_arena_printf(m->arena, "%.17g", (double)rotary / (double)s->attention.head_dim);
  const moec_cfg_default absent[] = {{"partial_rotary_factor", part, false}, {.key = NULL}};
  moec_cfg_defaults(m->c, absent);
  moec_l_rope_tables(m, s->attention.head_dim, &s->attention.rope);
  if (rotary != s->attention.rope.dim)
    moec_cfg_fail(m->c, moec_error(MOEC_INVALID_MODEL,
                                   "config.json: rotary_dim: expected %lld, as partial_rotary_factor says, got %lld",
                                   (long long)s->attention.rope.dim, (long long)rotary));
}

static minimax read_config(moec_llm *m) {
  static const char *const stored[] = {"w1", "w3", "w2"};
  minimax s = {.attention = moec_l_gqa_sizes(m), .dense = moec_cfg_int(m->c, "dense_intermediate_size")};
  moec_cfg_ignore(m->c, "hidden_act"); /* "silu" or "swigluoai": the activation is always swiglu with limits */
  s.attention.norms = true;
  s.shared = moec_cfg_int_or(m->c, "n_shared_experts", 1) * moec_cfg_int_or(m->c, "shared_intermediate_size", 0);
  s.alpha = moec_cfg_num_or(m->c, "swiglu_alpha", 1.702);
  s.limit = moec_cfg_num_or(m->c, "swiglu_limit", 7);
  s.scale = moec_cfg_num_or(m->c, "routed_scaling_factor", 1);
  moec_cfg_want_str(m->c, "scoring_func", "sigmoid");
  moec_cfg_want_str(m->c, "qk_norm_type", "per_head");
  moec_cfg_want_bool(m->c, "use_qk_norm", true);
  moec_cfg_want_bool(m->c, "use_gemma_norm", true);
  moec_cfg_want_bool(m->c, "use_routing_bias", true);
  moec_cfg_ignore(m->c, "num_mtp_modules");
  s.moe = (moec_moe){.experts = moec_cfg_int(m->c, "num_local_experts"),
                     .k = moec_cfg_int(m->c, "num_experts_per_tok"),
                     .inner = moec_cfg_int(m->c, "intermediate_size"),
                     .score = MOEC_SCORE_SIGMOID,
                     .normalise = true,
                     .choice_bias = true,
                     .scale = 1,
                     .act = MOEC_ACT_OAI,
                     .alpha = s.alpha,
                     .limit = s.limit,
                     .wide_router = true,
                     .gate = "gate.weight",
                     .expert = stored};
  read_indexer(m, &s);
  return s;
}

void moec_model_minimax_m3(moec_llm *m) {
  static const moec_cfg_default absent[] = {
      {"num_key_value_heads", "4", false}, {"head_dim", "128", false}, {"rope_theta", "5000000.0", false},
      {"dense_intermediate_size", "12288", false}, {"shared_intermediate_size", "3072", false},
      {"rotary_dim", "64", false}, {"routed_scaling_factor", "2.0", false}, {.key = NULL}};
  static const moec_l_alias released[] = {{"indexer.", "index_"},
                                          {"gate.e_score_correction_bias", "e_score_correction_bias"},
                                          {NULL, NULL}};
  m->aliases = released;
  m->centred = true;
  moec_l_begin(m, absent);
  minimax s = read_config(m);
  moec_wv x = moec_l_embed(m);
  read_rope(m, &s);
  for (int64_t i = 0; i < m->n_layers; i++) {
    moec_l_at(m, "layers.%lld", (long long)i);
    moec_wv h = moec_l_norm(m, x, "input_layernorm", m->hidden);
    moec_l_at(m, "layers.%lld.self_attn", (long long)i);
    x = moec_l_add(m, x, attention(m, h, &s, is_sparse(m, &s, i)));
    moec_l_at(m, "layers.%lld", (long long)i);
    h = moec_l_norm(m, x, "post_attention_layernorm", m->hidden);
    moec_l_at(m, "layers.%lld.mlp", (long long)i);
    x = moec_l_add(m, x, is_dense(m, i) ? mlp(m, h, "", s.dense, &s) : experts(m, h, &s));
  }
  moec_l_logits(m, x);
}
