/* Qwen3.5-MoE, the text model: three layers of linear attention (gated delta net) to one of full attention with a
 * gated output; every layer with experts and a gated shared expert. Norms scale by 1 + weight, but for the one
 * inside linear attention. */
#include <math.h>

#include "models/family.h"

typedef struct qwen {
  moec_gqa attention;
  moec_moe moe;
  int64_t shared;
  int64_t k_heads, v_heads, k_dim, v_dim, taps; /* of linear attention */
} qwen;

/* ---- linear attention --------------------------------------------------------------------------- */

/* A causal convolution along the sequence for each feature by itself, then silu. */
static moec_wv short_conv(moec_llm *m, const qwen *s, moec_wv x, int64_t width) {
  const int64_t dims[3] = {width, 1, s->taps};
  moec_wv weight = moec_l_weight(m, "conv1d.weight", NULL, MOEC_CK_NORMAL, m->dtype, 3, dims);
  x = WA(m->w, "Transpose", W_ATTRS(W_INTS("perm", 3, 0, 2, 1)), x);
  x = WA(m->w, "Conv",
         W_ATTRS(W_INT("group", width), W_INTS("kernel_shape", 1, s->taps), W_INTS("pads", 2, s->taps - 1, 0)), x,
         weight);
  return WA(m->w, "Transpose", W_ATTRS(W_INTS("perm", 3, 0, 2, 1)), moec_l_silu(m, x));
}

/* q or k: its heads, each for several heads of v, in f32. */
static moec_wv shared_heads(moec_llm *m, const qwen *s, moec_wv x) {
  int64_t times = s->v_heads / s->k_heads;
  x = L_RESHAPE(m, x, 5, 0, 0, s->k_heads, 1, s->k_dim);
  if (times > 1) x = W(m->w, "Expand", x, W_I64(m->w, 5, 1, 1, 1, times, 1));
  return moec_l_cast(m, moec_l_heads(m, x, s->v_heads, s->k_dim), m->dtype, MOEC_F32);
}

/* -exp(A_log) softplus(a + dt_bias), the logarithm of what the state keeps. */
static moec_wv decay(moec_llm *m, const qwen *s, moec_wv x) {
  moec_wv a = moec_l_cast(m, moec_l_linear(m, x, "in_proj_a", m->hidden, s->v_heads, false), m->dtype, MOEC_F32);
  moec_wv rate = W(m->w, "Neg", W(m->w, "Exp", moec_l_vector(m, "A_log", MOEC_CK_LOG_UNIFORM, MOEC_F32, s->v_heads)));
  moec_wv bias = moec_l_vector(m, "dt_bias", MOEC_CK_ONES, MOEC_F32, s->v_heads);
  return moec_l_mul(m, rate, W(m->w, "Softplus", moec_l_add(m, a, bias)));
}

static moec_wv linear_attention(moec_llm *m, moec_wv x, const qwen *s) {
  int64_t keys = s->k_heads * s->k_dim, values = s->v_heads * s->v_dim;
  const moec_wattr *swap = W_ATTRS(W_INTS("perm", 3, 0, 2, 1)), *back = W_ATTRS(W_INTS("perm", 4, 0, 2, 1, 3));
  moec_wv part[3], real = moec_l_cast(m, m->visible, MOEC_BOOL, m->dtype);
  x = moec_l_mul(m, x, W(m->w, "Unsqueeze", real, W_I64(m->w, 1, 2)));
  moec_wv both =
      short_conv(m, s, moec_l_linear(m, x, "in_proj_qkv", m->hidden, 2 * keys + values, false), 2 * keys + values);
  moec_wv split[2] = {both, W_I64(m->w, 3, keys, keys, values)};
  moec_w_node(m->w, "", "Split", W_ATTRS(W_INT("axis", -1)), 2, split, 3, part, NULL);
  moec_wv gate = moec_l_linear(m, x, "in_proj_z", m->hidden, values, false);
  moec_wv beta = moec_l_cast(m, W(m->w, "Sigmoid", moec_l_linear(m, x, "in_proj_b", m->hidden, s->v_heads, false)),
                             m->dtype, MOEC_F32);
  moec_wv v = moec_l_cast(m, moec_l_heads(m, part[2], s->v_heads, s->v_dim), m->dtype, MOEC_F32);
  moec_wv in[5] = {shared_heads(m, s, part[0]), shared_heads(m, s, part[1]), v,
                   WA(m->w, "Transpose", swap, decay(m, s, x)), WA(m->w, "Transpose", swap, beta)};
  moec_wv y = WA(m->w, "Transpose", back, moec_l_gated_delta(m, in, s->k_dim, s->v_dim));
  y = moec_l_norm_eps(m, moec_l_cast(m, y, MOEC_F32, m->dtype), "norm", s->v_dim, m->eps, false);
  y = moec_l_mul(m, y, moec_l_silu(m, L_RESHAPE(m, gate, 4, 0, 0, s->v_heads, s->v_dim)));
  return moec_l_linear(m, L_RESHAPE(m, y, 3, 0, 0, values), "out_proj", values, m->hidden, false);
}

/* ---- full attention ------------------------------------------------------------------------------- */

/* q_proj gives a query and a gate for each head. */
static moec_wv full_attention(moec_llm *m, moec_wv x, const moec_gqa *a) {
  moec_wv part[2], both = moec_l_linear(m, x, "q_proj", m->hidden, 2 * a->heads * a->head_dim, a->bias);
  both = L_RESHAPE(m, both, 4, 0, 0, a->heads, 2 * a->head_dim);
  moec_w_node(m->w, "", "Split", W_ATTRS(W_INT("axis", -1), W_INT("num_outputs", 2)), 1, &both, 2, part, NULL);
  moec_wv q =
      WA(m->w, "Transpose", W_ATTRS(W_INTS("perm", 4, 0, 2, 1, 3)), moec_l_norm(m, part[0], "q_norm", a->head_dim));
  q = moec_l_rotate(m, &a->rope, q, a->heads);
  moec_wv k = moec_l_gqa_rotated(m, x, a, "k", a->kv_heads);
  moec_wv v = moec_l_heads(m, moec_l_linear(m, x, "v_proj", m->hidden, a->kv_heads * a->head_dim, a->bias), a->kv_heads,
                           a->head_dim);
  int64_t width = a->heads * a->head_dim;
  moec_wv y = moec_l_join_heads(m, moec_l_attention(m, q, k, v, 1 / sqrt((double)a->head_dim), 0), width);
  y = moec_l_mul(m, y, W(m->w, "Sigmoid", L_RESHAPE(m, part[1], 3, 0, 0, width)));
  return moec_l_linear(m, y, "o_proj", width, m->hidden, a->out_bias);
}

/* ---- the model -------------------------------------------------------------------------------------- */

static moec_wv experts(moec_llm *m, moec_wv h, const qwen *s) {
  moec_wv gate = W(m->w, "Sigmoid", moec_l_linear(m, h, "shared_expert_gate", m->hidden, 1, false));
  moec_wv shared = moec_l_mul(m, gate, moec_l_swiglu_mlp(m, h, "shared_expert", s->shared));
  return moec_l_add(m, moec_l_moe(m, h, &s->moe), shared);
}

static qwen read_config(moec_llm *m) {
  static const char *const stored[] = {"gate_proj", "up_proj", "down_proj"};
  qwen s = {.attention = moec_l_gqa_sizes(m), .shared = moec_cfg_int(m->c, "shared_expert_intermediate_size")};
  moec_cfg_want_str(m->c, "hidden_act", "silu");
  moec_cfg_want_bool(m->c, "attn_output_gate", true);
  s.attention.norms = true;
  s.attention.bias = s.attention.out_bias = moec_cfg_bool_or(m->c, "attention_bias", false);
  s.k_heads = moec_cfg_int(m->c, "linear_num_key_heads");
  s.v_heads = moec_cfg_int(m->c, "linear_num_value_heads");
  s.k_dim = moec_cfg_int(m->c, "linear_key_head_dim");
  s.v_dim = moec_cfg_int(m->c, "linear_value_head_dim");
  s.taps = moec_cfg_int(m->c, "linear_conv_kernel_dim");
  if (s.v_heads % s.k_heads)
    moec_cfg_fail(
        m->c,
        moec_error(MOEC_INVALID_MODEL,
                   "config.json: linear_num_value_heads: expected a multiple of linear_num_key_heads (%lld), got %lld",
                   (long long)s.k_heads, (long long)s.v_heads));
  s.moe = (moec_moe){.experts = moec_cfg_int(m->c, "num_experts|num_local_experts"),
                     .k = moec_cfg_int(m->c, "num_experts_per_tok"),
                     .inner = moec_cfg_int(m->c, "moe_intermediate_size"),
                     .score = MOEC_SCORE_SOFTMAX,
                     .normalise = true,
                     .scale = 1,
                     .gate = "gate.weight",
                     .expert = stored};
  return s;
}

void moec_model_qwen3_5_moe(moec_llm *m) {
  static const moec_cfg_default absent[] = {
      {"num_key_value_heads", "2", false}, {"head_dim", "256", false}, {"partial_rotary_factor", "0.25", false},
      {.key = NULL}};
  static const char *const known[] = {"linear_attention", "full_attention", NULL};
  m->centred = true;
  moec_l_begin(m, absent);
  qwen s = read_config(m);
  int64_t interval = moec_cfg_int_or(m->c, "full_attention_interval", 4);
  moec_wv x = moec_l_embed(m);
  moec_l_rope_tables(m, s.attention.head_dim, &s.attention.rope);
  for (int64_t i = 0; i < m->n_layers; i++) {
    bool linear =
        moec_l_layer_is(m, "layer_types", i, "linear_attention", known, interval == 0 || (i + 1) % interval != 0);
    moec_l_at(m, "layers.%lld", (long long)i);
    moec_wv h = moec_l_norm(m, x, "input_layernorm", m->hidden);
    moec_l_at(m, linear ? "layers.%lld.linear_attn" : "layers.%lld.self_attn", (long long)i);
    x = moec_l_add(m, x, linear ? linear_attention(m, h, &s) : full_attention(m, h, &s.attention));
    moec_l_at(m, "layers.%lld", (long long)i);
    h = moec_l_norm(m, x, "post_attention_layernorm", m->hidden);
    moec_l_at(m, "layers.%lld.mlp", (long long)i);
    x = moec_l_add(m, x, experts(m, h, &s));
  }
  moec_l_logits(m, x);
}
