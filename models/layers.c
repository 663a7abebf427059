/* Weights, norms, products, heads: what every decoder model is made of. */
#include "models/layers.h"

#include <stdio.h>
#include <string.h>

#define BAD(...) moec_error(MOEC_INVALID_MODEL, __VA_ARGS__)

/* ---- modules and weights -------------------------------------------------------------------- */

void moec_l_at(moec_llm *m, const char *fmt, ...) {
  char text[256];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  m->at = moec_arena_printf(m->arena, "model%s%s", *text ? "." : "", text);
  m->stored = moec_arena_printf(m->arena, "%s%s%s", m->stored_root, *text ? "." : "", text);
  moec_w_scope(m->w, "%s", m->at);
}

void moec_l_stored_as(moec_llm *m, const char *last) {
  const char *dot = strrchr(m->stored, '.');
  m->stored = moec_arena_printf(m->arena, "%.*s.%s", (int)(dot ? dot - m->stored : 0), m->stored, last);
}

bool moec_l_has(moec_llm *m, const char *name) {
  return moec_ck_has(m->ck, moec_arena_printf(m->arena, "%s.%s", m->stored, name));
}

/* The path of a weight in the checkpoint: its name of today, or the older one where only that is there. */
static const char *stored_path(moec_llm *m, const char *name) {
  const char *path = moec_arena_printf(m->arena, "%s.%s", m->stored, name);
  if (moec_ck_has(m->ck, path)) return path;
  for (const moec_l_alias *a = m->aliases; a && a->now; a++) {
    size_t n = strlen(a->now);
    if (strncmp(name, a->now, n) != 0) continue;
    const char *old = moec_arena_printf(m->arena, "%s.%s%s", m->stored, a->then, name + n);
    if (moec_ck_has(m->ck, old)) return old;
  }
  return path;
}

/* |ones|: axes of size 1 that the initializer has in front of what is stored. */
static moec_wv stored_weight(moec_llm *m, const char *name, const char *stored, moec_ck_init init, moec_dtype t,
                             uint32_t rank, const int64_t *dims, uint32_t ones) {
  moec_ck_tensor found;
  const char *path = stored_path(m, stored ? stored : name);
  if (moec_w_failed(m->w)) return (moec_wv){0};
  moec_status *s = moec_ck_find(m->ck, path, init, rank - ones, dims + ones, &found);
  moec_w_fail(m->w, s);
  if (s) return (moec_wv){0};
  moec_wv v = moec_w_external(m->w, moec_arena_printf(m->arena, "%s.%s", m->at, name), found.dtype, rank, dims,
                              found.file, found.offset);
  return moec_l_cast(m, v, found.dtype, t);
}

moec_wv moec_l_weight(moec_llm *m, const char *name, const char *stored, moec_ck_init init, moec_dtype t, uint32_t rank,
                      const int64_t *dims) {
  return stored_weight(m, name, stored, init, t, rank, dims, 0);
}

moec_wv moec_l_piece(moec_llm *m, const char *name, const char *stored, const int64_t dims[2]) {
  const int64_t whole[3] = {1, dims[0], dims[1]};
  return stored_weight(m, name, stored, MOEC_CK_NORMAL, m->dtype, 3, whole, 1);
}

moec_wv moec_l_vector(moec_llm *m, const char *name, moec_ck_init init, moec_dtype t, int64_t n) {
  return moec_l_weight(m, name, NULL, init, t, 1, &n);
}

void moec_l_untrained(moec_llm *m, const char *name) {
  moec_w_metadata(m->w, moec_arena_printf(m->arena, "moec.trainable.%s.%s", m->at, name), "0");
}

/* ---- small ones ------------------------------------------------------------------------------- */

moec_wv moec_l_cast(moec_llm *m, moec_wv x, moec_dtype from, moec_dtype to) {
  return from == to ? x : WA(m->w, "Cast", W_ATTRS(W_INT("to", moec_dtype_get(to)->onnx)), x);
}

moec_wv moec_l_add(moec_llm *m, moec_wv x, moec_wv y) { return W(m->w, "Add", x, y); }

moec_wv moec_l_mul(moec_llm *m, moec_wv x, moec_wv y) { return W(m->w, "Mul", x, y); }

moec_wv moec_l_reshape(moec_llm *m, moec_wv x, uint32_t rank, const int64_t *shape) {
  return W(m->w, "Reshape", x, moec_w_ints(m->w, rank, shape));
}

moec_wv moec_l_slice(moec_llm *m, moec_wv x, int64_t axis, int64_t start, int64_t end) {
  return W(m->w, "Slice", x, W_I64(m->w, 1, start), W_I64(m->w, 1, end), W_I64(m->w, 1, axis));
}

moec_wv moec_l_silu(moec_llm *m, moec_wv x) { return W(m->w, "Mul", x, W(m->w, "Sigmoid", x)); }

/* Weights stay [out, in], as they are stored. */
moec_wv moec_l_linear(moec_llm *m, moec_wv x, const char *name, int64_t in, int64_t out, bool bias) {
  const int64_t dims[2] = {out, in};
  moec_wv weight =
      moec_l_weight(m, moec_arena_printf(m->arena, "%s.weight", name), NULL, MOEC_CK_NORMAL, m->dtype, 2, dims);
  moec_wv y = W(m->w, "MatMul", x, WA(m->w, "Transpose", W_ATTRS(W_INTS("perm", 2, 1, 0)), weight));
  if (!bias) return y;
  return moec_l_add(m, y, moec_l_vector(m, moec_arena_printf(m->arena, "%s.bias", name), MOEC_CK_ZEROS, m->dtype, out));
}

moec_wv moec_l_joined_linear(moec_llm *m, moec_wv x, const char *whole, const char *const *parts, uint32_t n,
                             int64_t in, int64_t out) {
  const int64_t dims[2] = {out, in};
  const char *name = moec_arena_printf(m->arena, "%s.%s.weight", m->at, whole);
  moec_wv *part = MOEC_NEW_ARRAY(m->arena, moec_wv, n), weight;
  for (uint32_t i = 0; i < n; i++) {
    const char *one = moec_arena_printf(m->arena, "%s.weight", parts[i]);
    part[i] = moec_l_weight(m, one, NULL, MOEC_CK_NORMAL, m->dtype, 2, dims);
  }
  moec_w_node(m->w, "", "Concat", W_ATTRS(W_INT("axis", 0)), n, part, 1, &weight, &name);
  return W(m->w, "MatMul", x, WA(m->w, "Transpose", W_ATTRS(W_INTS("perm", 2, 1, 0)), weight));
}

/* A centred scale is 1 + weight, added and multiplied in f32. */
moec_wv moec_l_norm_eps(moec_llm *m, moec_wv x, const char *name, int64_t n, double eps, bool centred) {
  moec_dtype t = centred ? MOEC_F32 : m->dtype;
  moec_wv scale =
      moec_l_vector(m, moec_arena_printf(m->arena, "%s.weight", name), centred ? MOEC_CK_ZEROS : MOEC_CK_ONES, t, n);
  if (centred) scale = moec_l_add(m, scale, moec_w_float(m->w, t, 1));
  x = moec_l_cast(m, x, m->dtype, t);
  x = WA(m->w, "RMSNormalization", W_ATTRS(W_INT("axis", -1), W_FLOAT("epsilon", eps), W_INT("stash_type", 1)), x,
         scale);
  return moec_l_cast(m, x, t, m->dtype);
}

moec_wv moec_l_norm(moec_llm *m, moec_wv x, const char *name, int64_t n) {
  return moec_l_norm_eps(m, x, name, n, m->eps, m->centred);
}

moec_wv moec_l_swiglu_mlp(moec_llm *m, moec_wv x, const char *name, int64_t inner) {
  const char *dot = *name ? "." : "";
  moec_wv gate = moec_l_linear(m, x, moec_arena_printf(m->arena, "%s%sgate_proj", name, dot), m->hidden, inner, false);
  moec_wv up = moec_l_linear(m, x, moec_arena_printf(m->arena, "%s%sup_proj", name, dot), m->hidden, inner, false);
  moec_wv a = moec_l_mul(m, moec_l_silu(m, gate), up);
  return moec_l_linear(m, a, moec_arena_printf(m->arena, "%s%sdown_proj", name, dot), inner, m->hidden, false);
}

moec_wv moec_l_heads(moec_llm *m, moec_wv x, int64_t heads, int64_t dim) {
  return WA(m->w, "Transpose", W_ATTRS(W_INTS("perm", 4, 0, 2, 1, 3)), L_RESHAPE(m, x, 4, 0, 0, heads, dim));
}

moec_wv moec_l_join_heads(moec_llm *m, moec_wv x, int64_t width) {
  return L_RESHAPE(m, WA(m->w, "Transpose", W_ATTRS(W_INTS("perm", 4, 0, 2, 1, 3)), x), 3, 0, 0, width);
}

/* A list that says something about each layer has an entry for each; 0: there is no list. */
static size_t layer_list(moec_llm *m, moec_config *c, const char *key) {
  size_t n = moec_cfg_list(c, key);
  if (n == 0 || n >= (size_t)m->n_layers) return n;
  moec_cfg_fail(c, BAD("config.json: %s: expected one entry for each of %lld layers, got %zu", key,
                       (long long)m->n_layers, n));
  return 0;
}

bool moec_l_layer_flag(moec_llm *m, moec_config *c, const char *key, int64_t i, bool dflt) {
  return c && layer_list(m, c, key) ? moec_cfg_list_int(c, key, (size_t)i) != 0 : dflt;
}

bool moec_l_layer_is(moec_llm *m, const char *key, int64_t i, const char *name, const char *const *known, bool dflt) {
  if (layer_list(m, m->c, key) == 0) return dflt;
  const char *kind = moec_cfg_list_str(m->c, key, (size_t)i);
  for (; *known; known++)
    if (strcmp(kind, *known) == 0) return strcmp(kind, name) == 0;
  moec_cfg_fail(
      m->c, moec_error(MOEC_UNSUPPORTED, "config.json: %s: layer %lld is a \"%s\", which this model does not have", key,
                       (long long)i, kind));
  return dflt;
}

/* ---- the frame -------------------------------------------------------------------------------- */

/* Keys of every model that change nothing in a forward pass over whole sequences. */
static const char no_effect[] =
    "architectures transformers_version bos_token_id eos_token_id pad_token_id use_cache torch_dtype dtype "
    "initializer_range "
    "max_position_embeddings output_router_logits router_aux_loss_coef model_type _name_or_path auto_map "
    "pretraining_tp "
    "return_dict output_attentions output_hidden_states sep_token_id cache_implementation _attn_implementation "
    "attn_implementation "
    "aux_loss_alpha seq_aux ep_size router_z_loss_coef max_window_layers num_nextn_predict_layers id2label label2id "
    "chunk_size_feed_forward is_encoder_decoder problem_type unk_token_id image_token_id quantization_config";

void moec_l_ignore_common(moec_config *c) { moec_cfg_ignore(c, no_effect); }

/* Factors of training: they are no part of a forward pass, but nobody should think they are there. */
static void note_training_only(moec_llm *m) {
  static const char *const keys[] = {"attention_dropout", "router_jitter_noise", "hidden_dropout", "resid_pdrop",
                                     "embd_pdrop"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    double v = moec_cfg_num_or(m->c, keys[i], 0);
    if (v != 0) moec_buf_printf(m->remarks, "config.json: %s = %g acts in training only and is left out\n", keys[i], v);
  }
}

void moec_l_begin(moec_llm *m, const moec_cfg_default *d) {
  static const char *const dims[2] = {"batch", "seq"};
  moec_writer *w = m->w;
  moec_cfg_defaults(m->c, d);
  moec_l_ignore_common(m->c);
  note_training_only(m);
  m->hidden = moec_cfg_int(m->c, "hidden_size");
  m->n_layers = moec_cfg_int(m->c, "num_hidden_layers");
  m->vocab = moec_cfg_int(m->c, "vocab_size");
  m->eps = moec_cfg_num_or(m->c, "rms_norm_eps", 1e-6);
  m->tied = moec_cfg_bool_or(m->c, "tie_word_embeddings", m->tied);
  moec_l_at(m, "%s", "");
  m->ids = moec_w_input(w, "input_ids", MOEC_I64, 2, dims);
  moec_wv mask = moec_w_input(w, "attention_mask", MOEC_I64, 2, dims);
  moec_w_metadata(w, "moec.default.attention_mask", "1");
  m->visible = WA(w, "Cast", W_ATTRS(W_INT("to", moec_dtype_get(MOEC_BOOL)->onnx)), mask);
}

/* The least finite number of a type: added to a score it hides a key, yet a query without any key gets no NaN. */
static moec_wv least(moec_llm *m) {
  double v = m->dtype == MOEC_F16 ? -65504. : m->dtype == MOEC_BF16 ? -0x1.fep127 : -0x1.fffffep127;
  return moec_w_float(m->w, m->dtype, v);
}

/* Every query has its row: ONNX lets sizes of a mask be 1, ONNX Runtime does not. */
static moec_wv padding_mask(moec_llm *m) {
  moec_writer *w = m->w;
  moec_wv keys = W(w, "Where", m->visible, moec_w_float(w, m->dtype, 0), least(m));
  moec_wv seq = WA(w, "Shape", W_ATTRS(W_INT("start", 1), W_INT("end", 2)), m->ids);
  moec_wv rows = WA(w, "Concat", W_ATTRS(W_INT("axis", 0)), W_I64(w, 2, 1, 1), seq, W_I64(w, 1, 1));
  return W(w, "Expand", W(w, "Unsqueeze", keys, W_I64(w, 2, 1, 2)), rows);
}

moec_wv moec_l_embed(moec_llm *m) {
  const int64_t dims[2] = {m->vocab, m->hidden};
  moec_ck_tensor found = {0};
  if (!moec_w_failed(m->w))
    moec_w_fail(m->w, moec_ck_find(m->ck, moec_arena_printf(m->arena, "%s.embed_tokens.weight", m->stored_root),
                                   MOEC_CK_NORMAL, 2, dims, &found));
  m->dtype = found.dtype ? found.dtype : MOEC_F32;
  m->pad = padding_mask(m);
  moec_wv table = moec_l_weight(m, "embed_tokens.weight", NULL, MOEC_CK_NORMAL, m->dtype, 2, dims);
  return WA(m->w, "Gather", W_ATTRS(W_INT("axis", 0)), table, m->ids);
}

void moec_l_logits(moec_llm *m, moec_wv x) {
  static const char *const names[2] = {"batch", "seq"};
  const char *dims[3] = {names[0], names[1], moec_arena_printf(m->arena, "%lld", (long long)m->vocab)};
  const int64_t shape[2] = {m->vocab, m->hidden};
  moec_l_at(m, "%s", "");
  x = moec_l_norm(m, x, "norm", m->hidden);
  moec_wv weight = {"model.embed_tokens.weight"};
  if (!m->tied) {
    m->at = "lm_head", m->stored = m->stored_head;
    weight = moec_l_weight(m, "weight", NULL, MOEC_CK_NORMAL, m->dtype, 2, shape);
  }
  x = W(m->w, "MatMul", x, WA(m->w, "Transpose", W_ATTRS(W_INTS("perm", 2, 1, 0)), weight));
  moec_w_output(m->w, "logits", x, m->dtype, 3, dims);
}

/* ---- attention ---------------------------------------------------------------------------------- */

moec_wv moec_l_rotate(moec_llm *m, const moec_rope *r, moec_wv x, int64_t heads) {
  return WA(
      m->w, "RotaryEmbedding",
      W_ATTRS(W_INT("interleaved", r->interleaved), W_INT("rotary_embedding_dim", r->dim), W_INT("num_heads", heads)),
      x, r->cos, r->sin);
}

moec_wv moec_l_causal(moec_llm *m, int64_t window) {
  moec_writer *w = m->w;
  moec_wv seq = WA(w, "Shape", W_ATTRS(W_INT("start", 1), W_INT("end", 2)), m->ids);
  moec_wv key = W(w, "Range", moec_w_int(w, 0), W(w, "Squeeze", seq), moec_w_int(w, 1));
  moec_wv query = W(w, "Unsqueeze", key, W_I64(w, 1, 1));
  moec_wv seen = W(w, "LessOrEqual", key, query);
  if (window) seen = W(w, "And", seen, W(w, "Greater", key, W(w, "Sub", query, moec_w_int(w, window))));
  return seen;
}

moec_wv moec_l_hide(moec_llm *m, moec_wv seen) {
  moec_writer *w = m->w;
  seen = W(w, "And", seen, W(w, "Unsqueeze", m->visible, W_I64(w, 2, 1, 2)));
  return W(w, "Where", seen, moec_w_float(w, m->dtype, 0), least(m));
}

moec_wv moec_l_causal_mask(moec_llm *m, int64_t window) { return moec_l_hide(m, moec_l_causal(m, window)); }

moec_wv moec_l_masked_attention(moec_llm *m, moec_wv q, moec_wv k, moec_wv v, double scale, moec_wv mask) {
  return WA(m->w, "Attention", W_ATTRS(W_INT("is_causal", 1), W_FLOAT("scale", scale)), q, k, v, mask);
}

moec_wv moec_l_attention(moec_llm *m, moec_wv q, moec_wv k, moec_wv v, double scale, int64_t window) {
  return moec_l_masked_attention(m, q, k, v, scale, window ? moec_l_causal_mask(m, window) : m->pad);
}
