/* Mixtral: grouped-query attention, every layer a mixture of experts. */
#include <math.h>

#include "models/family.h"

void moec_model_mixtral(moec_llm *m) {
  static const moec_cfg_default absent[] = {
      {"num_key_value_heads", "8", false}, {"rms_norm_eps", "1e-5", false}, {"rope_theta", "1000000.0", false},
      {.key = NULL}};
  static const char *const stored[] = {"w1", "w3", "w2"};
  moec_l_begin(m, absent);
  moec_cfg_want_str(m->c, "hidden_act", "silu");
  moec_gqa a = moec_l_gqa_sizes(m);
  a.window = moec_cfg_int_or(m->c, "sliding_window", 0);
  moec_moe moe = {.experts = moec_cfg_int(m->c, "num_local_experts"),
                  .k = moec_cfg_int(m->c, "num_experts_per_tok"),
                  .inner = moec_cfg_int(m->c, "intermediate_size"),
                  .score = MOEC_SCORE_SOFTMAX,
                  .normalise = true,
                  .scale = 1,
                  .gate = "gate.weight",
                  .expert = stored};
  moec_wv x = moec_l_embed(m);
  moec_l_rope_tables(m, a.head_dim, &a.rope);
  for (int64_t i = 0; i < m->n_layers; i++) {
    moec_l_at(m, "layers.%lld", (long long)i);
    moec_wv h = moec_l_norm(m, x, "input_layernorm", m->hidden);
    moec_l_at(m, "layers.%lld.self_attn", (long long)i);
    x = moec_l_add(m, x, moec_l_gqa(m, h, &a));
    moec_l_at(m, "layers.%lld", (long long)i);
    h = moec_l_norm(m, x, "post_attention_layernorm", m->hidden);
    moec_l_at(m, "layers.%lld.mlp", (long long)i);
    if (!moec_l_has(m, "gate.weight")) moec_l_stored_as(m, "block_sparse_moe");
    x = moec_l_add(m, x, moec_l_moe(m, h, &moe));
  }
  moec_l_logits(m, x);
}
