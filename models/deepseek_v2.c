/* DeepSeek-V2: latent attention; softmax routing, in V2 itself limited to the best groups of experts by their
 * maximum; shared experts. transformers does not read norm_topk_prob. */
#include <string.h>

#include "models/family.h"

static void read_router(moec_llm *m, moec_moe *s) {
  const char *method = moec_cfg_str_or(m->c, "topk_method", "greedy");
  int64_t groups = moec_cfg_int_or(m->c, "n_group", 0), kept = moec_cfg_int_or(m->c, "topk_group", 0);
  moec_cfg_want_str(m->c, "scoring_func", "softmax");
  s->score = MOEC_SCORE_SOFTMAX;
  if (moec_cfg_bool_or(m->c, "norm_topk_prob", false))
    moec_buf_printf(
        m->remarks,
        "config.json: norm_topk_prob is not read by transformers' deepseek_v2: weights are not normalised\n");
  if (strcmp(method, "greedy") == 0) return;
  if (strcmp(method, "group_limited_greedy") != 0)
    moec_cfg_fail(
        m->c, moec_error(MOEC_UNSUPPORTED,
                         "config.json: topk_method: expected greedy or group_limited_greedy, got \"%.60s\"", method));
  s->groups = groups, s->groups_kept = kept;
  s->group_score = MOEC_GROUP_BY_MAX;
}

void moec_model_deepseek_v2(moec_llm *m) {
  static const moec_cfg_default absent[] = {
      {"q_lora_rank", "1536", false}, {"n_shared_experts", "2", false}, {.key = NULL}};
  moec_l_begin(m, absent);
  moec_deepseek d = moec_l_deepseek_sizes(m);
  read_router(m, &d.moe);
  moec_wv x = moec_l_embed(m);
  moec_l_rope_tables(m, d.attention.rotary, &d.attention.rope);
  d.attention.rope.interleaved = true;
  d.attention.scale *= d.attention.rope.mscale_all * d.attention.rope.mscale_all;
  moec_l_deepseek_layers(m, x, &d);
}
