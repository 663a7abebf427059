/* gpt-oss: attention with a sink a head, in every second layer within a window; experts with biases, gate and up
 * interleaved, weights [E, in, out]. */
#include <math.h>

#include "models/family.h"

/* softmax over the keys and one more logit, the head's sink, whose probability goes nowhere. */
static moec_wv sink_attention_body(moec_llm *m, const moec_gqa *a, const moec_wv *in) {
  moec_writer *w = m->w;
  moec_wv kv[2], axis = W_I64(w, 1, -1);
  for (int i = 0; i < 2; i++) { /* each key head once for every query head of its group */
    moec_wv grouped =
        W(w, "Expand", W(w, "Unsqueeze", in[1 + i], W_I64(w, 1, 2)), W_I64(w, 5, 1, 1, a->heads / a->kv_heads, 1, 1));
    moec_wv shape = WA(w, "Concat", W_ATTRS(W_INT("axis", 0)),
                       WA(w, "Shape", W_ATTRS(W_INT("start", 0), W_INT("end", 1)), in[1 + i]), W_I64(w, 1, a->heads),
                       WA(w, "Shape", W_ATTRS(W_INT("start", 2), W_INT("end", 4)), in[1 + i]));
    kv[i] = W(w, "Reshape", grouped, shape);
  }
  moec_wv scores = W(w, "MatMul", in[0], WA(w, "Transpose", W_ATTRS(W_INTS("perm", 4, 0, 1, 3, 2)), kv[0]));
  scores = moec_l_mul(m, scores, moec_w_float(w, m->dtype, 1 / sqrt((double)a->head_dim)));
  scores = moec_l_add(m, scores, in[3]);
  moec_wv one = WA(w, "Concat", W_ATTRS(W_INT("axis", 0)),
                   WA(w, "Shape", W_ATTRS(W_INT("start", 0), W_INT("end", 3)), scores), W_I64(w, 1, 1));
  moec_wv sinks = W(w, "Expand", L_RESHAPE(m, in[4], 4, 1, a->heads, 1, 1), one);
  moec_wv p = WA(w, "Concat", W_ATTRS(W_INT("axis", -1)), scores, sinks);
  p = WA(w, "Softmax", W_ATTRS(W_INT("axis", -1)), p);
  p = W(w, "Slice", p, W_I64(w, 1, 0), axis, axis);
  return W(w, "MatMul", p, kv[1]);
}

static moec_wv sink_attention(moec_llm *m, const moec_gqa *a, moec_wv q, moec_wv k, moec_wv v) {
  static const char *const names[5] = {"q", "k", "v", "mask", "sinks"};
  moec_wv formal[5];
  const char *scope = m->at;
  moec_wv in[5] = {q, k, v, moec_l_causal_mask(m, a->window),
                   moec_l_vector(m, "sinks", MOEC_CK_NORMAL, m->dtype, a->heads)};
  if (moec_w_fn_begin(m->w, "SinkAttention", "attention whose softmax has one more logit, the sink of the head", 5,
                      names, formal)) {
    moec_w_scope(m->w, "%s", "");
    moec_wv y = sink_attention_body(m, a, formal);
    moec_w_fn_end(m->w, 1, &y);
  }
  moec_w_scope(m->w, "%s", scope);
  return moec_w_call(m->w, "SinkAttention", 5, in);
}

static moec_wv attention(moec_llm *m, moec_wv x, const moec_gqa *a) {
  moec_wv q = moec_l_gqa_rotated(m, x, a, "q", a->heads), k = moec_l_gqa_rotated(m, x, a, "k", a->kv_heads);
  moec_wv v = moec_l_linear(m, x, "v_proj", m->hidden, a->kv_heads * a->head_dim, a->bias);
  moec_wv y = sink_attention(m, a, q, k, moec_l_heads(m, v, a->kv_heads, a->head_dim));
  return moec_l_linear(m, moec_l_join_heads(m, y, a->heads * a->head_dim), "o_proj", a->heads * a->head_dim, m->hidden,
                       a->out_bias);
}

static moec_moe read_experts(moec_llm *m) {
  return (moec_moe){.experts = moec_cfg_int(m->c, "num_local_experts|num_experts"),
                    .k = moec_cfg_int(m->c, "num_experts_per_tok|experts_per_token"),
                    .inner = moec_cfg_int(m->c, "intermediate_size"),
                    .score = MOEC_SCORE_SOFTMAX_OF_CHOSEN,
                    .scale = 1,
                    .act = MOEC_ACT_OAI,
                    .alpha = moec_cfg_num_or(m->c, "swiglu_alpha", 1.702),
                    .limit = moec_cfg_num_or(m->c, "swiglu_limit", 7),
                    .interleaved = true,
                    .input_major = true,
                    .bias = true,
                    .gate = "router.weight",
                    .router_bias = "router.bias"};
}

void moec_model_gpt_oss(moec_llm *m) {
  static const moec_cfg_default absent[] = {
      {"num_key_value_heads", "8", false}, {"head_dim", "64", false}, {"sliding_window", "128", false},
      {"rms_norm_eps", "1e-5", false}, {"rope_theta", "150000.0", false}, {.key = NULL}};
  static const moec_cfg_default context[] = {
      {"rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 32.0, \"beta_fast\": 32.0, \"beta_slow\": 1.0, "
                       "\"truncate\": false, \"original_max_position_embeddings\": 4096}", true},
      {.key = NULL}};
  static const char *const known[] = {"full_attention", "sliding_attention", NULL};
  moec_l_begin(m, absent);
  moec_cfg_want_str(m->c, "hidden_act", "silu");
  moec_cfg_ignore(m->c, "initial_context_length");
  moec_gqa a = moec_l_gqa_sizes(m);
  int64_t window = moec_cfg_int_or(m->c, "sliding_window", 0);
  a.bias = a.out_bias = moec_cfg_bool_or(m->c, "attention_bias", true);
  moec_moe moe = read_experts(m);
  moec_wv x = moec_l_embed(m);
  if (!moec_cfg_has(m->c, "rope_parameters|rope_scaling")) moec_cfg_defaults(m->c, context);
  moec_l_rope_tables(m, a.head_dim, &a.rope);
  for (int64_t i = 0; i < m->n_layers; i++) {
    moec_l_at(m, "layers.%lld", (long long)i);
    moec_wv h = moec_l_norm(m, x, "input_layernorm", m->hidden);
    moec_l_at(m, "layers.%lld.self_attn", (long long)i);
    a.window = moec_l_layer_is(m, "layer_types", i, "sliding_attention", known, i % 2 == 0) ? window : 0;
    x = moec_l_add(m, x, attention(m, h, &a));
    moec_l_at(m, "layers.%lld", (long long)i);
    h = moec_l_norm(m, x, "post_attention_layernorm", m->hidden);
    moec_l_at(m, "layers.%lld.mlp", (long long)i);
    x = moec_l_add(m, x, moec_l_moe(m, h, &moe));
  }
  moec_l_logits(m, x);
}
