/* Qwen2-MoE and Qwen3-MoE: layers with experts between dense ones. Qwen3 normalises queries and keys; Qwen2 has
 * biases, and a shared expert behind a gate. */
#include "models/family.h"

typedef struct qwen {
  moec_gqa attention;
  moec_moe moe;
  int64_t dense, shared; /* widths; shared 0: none */
  int64_t step, half_windowed; /* before this layer every second one has the window, */
  bool all_windowed;           /* or all layers have it */
} qwen;

/* Experts in every step-th layer, but not where the list says so. */
static bool has_experts(moec_llm *m, const qwen *q, int64_t i) {
  size_t n = moec_cfg_list(m->c, "mlp_only_layers");
  for (size_t k = 0; k < n; k++)
    if (moec_cfg_list_int(m->c, "mlp_only_layers", k) == i) return false;
  return q->step > 0 && (i + 1) % q->step == 0;
}

/* The window of layer |i|, 0: none. */
static int64_t window_of(moec_llm *m, const qwen *q, int64_t i, int64_t window) {
  static const char *const known[] = {"full_attention", "sliding_attention", NULL};
  bool dflt = q->all_windowed || (i < q->half_windowed && i % 2 == 0);
  return moec_l_layer_is(m, "layer_types", i, "sliding_attention", known, dflt) ? window : 0;
}

static moec_wv shared_expert(moec_llm *m, moec_wv h, int64_t width) {
  moec_wv gate = W(m->w, "Sigmoid", moec_l_linear(m, h, "shared_expert_gate", m->hidden, 1, false));
  return moec_l_mul(m, gate, moec_l_swiglu_mlp(m, h, "shared_expert", width));
}

static void write_layers(moec_llm *m, qwen *q) {
  int64_t window = moec_cfg_int_or(m->c, "sliding_window", 0);
  if (!moec_cfg_bool_or(m->c, "use_sliding_window", false)) window = 0;
  moec_wv x = moec_l_embed(m);
  moec_l_rope_tables(m, q->attention.head_dim, &q->attention.rope);
  for (int64_t i = 0; i < m->n_layers; i++) {
    moec_l_at(m, "layers.%lld", (long long)i);
    moec_wv h = moec_l_norm(m, x, "input_layernorm", m->hidden);
    moec_l_at(m, "layers.%lld.self_attn", (long long)i);
    q->attention.window = window_of(m, q, i, window);
    x = moec_l_add(m, x, moec_l_gqa(m, h, &q->attention));
    moec_l_at(m, "layers.%lld", (long long)i);
    h = moec_l_norm(m, x, "post_attention_layernorm", m->hidden);
    moec_l_at(m, "layers.%lld.mlp", (long long)i);
    moec_wv y = has_experts(m, q, i) ? moec_l_moe(m, h, &q->moe) : moec_l_swiglu_mlp(m, h, "", q->dense);
    if (q->shared && has_experts(m, q, i)) y = moec_l_add(m, y, shared_expert(m, h, q->shared));
    x = moec_l_add(m, x, y);
  }
  moec_l_logits(m, x);
}

static qwen read_config(moec_llm *m) {
  static const char *const stored[] = {"gate_proj", "up_proj", "down_proj"};
  qwen q = {.attention = moec_l_gqa_sizes(m), .step = moec_cfg_int_or(m->c, "decoder_sparse_step", 1)};
  moec_cfg_want_str(m->c, "hidden_act", "silu");
  q.dense = moec_cfg_int(m->c, "intermediate_size");
  q.moe = (moec_moe){.experts = moec_cfg_int(m->c, "num_experts|num_local_experts"),
                     .k = moec_cfg_int(m->c, "num_experts_per_tok"),
                     .inner = moec_cfg_int(m->c, "moe_intermediate_size"),
                     .score = MOEC_SCORE_SOFTMAX,
                     .normalise = moec_cfg_bool_or(m->c, "norm_topk_prob", false),
                     .scale = 1,
                     .gate = "gate.weight",
                     .expert = stored};
  return q;
}

void moec_model_qwen3_moe(moec_llm *m) {
  static const moec_cfg_default absent[] = {
      {"num_key_value_heads", "4", false}, {"sliding_window", "4096", false}, {.key = NULL}};
  moec_l_begin(m, absent);
  qwen q = read_config(m);
  q.attention.bias = q.attention.out_bias = moec_cfg_bool_or(m->c, "attention_bias", false);
  q.attention.norms = q.all_windowed = true;
  if (moec_cfg_bool_or(m->c, "use_sliding_window", false) && moec_cfg_int_or(m->c, "max_window_layers", 0) &&
      !moec_cfg_has(m->c, "layer_types"))
    moec_buf_printf(m->remarks, "config.json: max_window_layers is not read by transformers' qwen3_moe: "
                                "every layer has the window\n");
  write_layers(m, &q);
}

void moec_model_qwen2_moe(moec_llm *m) {
  static const moec_cfg_default absent[] = {
      {"num_key_value_heads", "16", false}, {"sliding_window", "4096", false},
      {"max_window_layers", "28", false}, {.key = NULL}};
  moec_l_begin(m, absent);
  qwen q = read_config(m);
  q.attention.bias = moec_cfg_bool_or(m->c, "qkv_bias", true);
  q.half_windowed = moec_cfg_int_or(m->c, "max_window_layers", 0);
  q.shared = moec_cfg_int(m->c, "shared_expert_intermediate_size");
  write_layers(m, &q);
}
