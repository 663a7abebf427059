/* DeepSeek-V3: latent attention; sigmoid routing with a bias for the choice, limited to the groups whose two best
 * experts are best; shared experts. */
#include <math.h>

#include "models/family.h"

void moec_model_deepseek_v3(moec_llm *m) {
  static const moec_cfg_default absent[] = {
      {"q_lora_rank", "1536", false}, {"n_shared_experts", "1", false}, {"n_group", "8", false},
      {"topk_group", "4", false}, {"first_k_dense_replace", "3", false}, {"routed_scaling_factor", "2.5", false},
      {.key = NULL}};
  moec_l_begin(m, absent);
  moec_deepseek d = moec_l_deepseek_sizes(m);
  moec_cfg_want_str(m->c, "scoring_func", "sigmoid");
  moec_cfg_want_str(m->c, "topk_method", "noaux_tc");
  d.moe.score = MOEC_SCORE_SIGMOID;
  d.moe.choice_bias = true;
  d.moe.normalise = moec_cfg_bool_or(m->c, "norm_topk_prob", true);
  d.moe.sum_eps = 1e-20;
  d.moe.groups = moec_cfg_int_or(m->c, "n_group", 1);
  d.moe.groups_kept = moec_cfg_int_or(m->c, "topk_group", 1);
  d.moe.group_score = MOEC_GROUP_BY_TOP2;
  d.moe.excluded = -INFINITY;
  moec_wv x = moec_l_embed(m);
  moec_l_rope_tables(m, d.attention.rotary, &d.attention.rope);
  d.attention.rope.interleaved = moec_cfg_bool_or(m->c, "rope_interleave", true);
  d.attention.scale *= d.attention.rope.mscale_all * d.attention.rope.mscale_all;
  moec_l_deepseek_layers(m, x, &d);
}
