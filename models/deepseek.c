/* What DeepSeek-V2 and V3 share: the frame of their layers. */
#include "models/family.h"

moec_deepseek moec_l_deepseek_sizes(moec_llm *m) {
  static const char *const stored[] = {"gate_proj", "up_proj", "down_proj"};
  moec_deepseek d = {.attention = moec_l_mla_sizes(m), .dense = moec_cfg_int(m->c, "intermediate_size")};
  moec_cfg_want_str(m->c, "hidden_act", "silu");
  moec_cfg_want_num(m->c, "moe_layer_freq", 1);
  moec_cfg_want_bool(m->c, "mlp_bias", false);
  d.moe = (moec_moe){.experts = moec_cfg_int(m->c, "n_routed_experts|num_local_experts"),
                     .k = moec_cfg_int(m->c, "num_experts_per_tok"),
                     .inner = moec_cfg_int(m->c, "moe_intermediate_size"),
                     .scale = moec_cfg_num_or(m->c, "routed_scaling_factor", 1),
                     .wide_router = true,
                     .gate = "gate.weight",
                     .expert = stored};
  d.shared = d.moe.inner * moec_cfg_int_or(m->c, "n_shared_experts", 0);
  return d;
}

static bool is_dense(moec_llm *m, int64_t i) {
  static const char *const known[] = {"dense", "sparse", NULL};
  return moec_l_layer_is(m, "mlp_layer_types", i, "dense", known,
                         i < moec_cfg_int_or(m->c, "first_k_dense_replace", 0));
}

static moec_wv experts(moec_llm *m, moec_wv h, const moec_deepseek *d) {
  moec_wv y = moec_l_moe(m, h, &d->moe);
  return d->shared ? moec_l_add(m, y, moec_l_swiglu_mlp(m, h, "shared_experts", d->shared)) : y;
}

void moec_l_deepseek_layers(moec_llm *m, moec_wv x, const moec_deepseek *d) {
  for (int64_t i = 0; i < m->n_layers; i++) {
    moec_l_at(m, "layers.%lld", (long long)i);
    moec_wv h = moec_l_norm(m, x, "input_layernorm", m->hidden);
    moec_l_at(m, "layers.%lld.self_attn", (long long)i);
    x = moec_l_add(m, x, moec_l_mla(m, h, &d->attention));
    moec_l_at(m, "layers.%lld", (long long)i);
    h = moec_l_norm(m, x, "post_attention_layernorm", m->hidden);
    moec_l_at(m, "layers.%lld.mlp", (long long)i);
    x = moec_l_add(m, x, is_dense(m, i) ? moec_l_swiglu_mlp(m, h, "", d->dense) : experts(m, h, d));
  }
  moec_l_logits(m, x);
}
