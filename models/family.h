/* What families share beyond layers: attention with grouped queries, and the list of families. */
#ifndef MOEC_MODELS_FAMILY_H
#define MOEC_MODELS_FAMILY_H

#include "models/layers.h"

typedef struct moec_gqa {
  int64_t heads, kv_heads, head_dim, window;
  bool bias, out_bias; /* of q, k, v; of o */
  bool norms;          /* q_norm and k_norm over the features of a head */
  moec_rope rope;
} moec_gqa;

/* Reads num_attention_heads, num_key_value_heads and head_dim. */
moec_gqa moec_l_gqa_sizes(moec_llm *m);
/* The module's q_proj, k_proj, v_proj, o_proj. */
moec_wv moec_l_gqa(moec_llm *m, moec_wv x, const moec_gqa *a);
/* Rotated q or k [batch, heads, seq, head_dim] from |x|; |name|: "q". */
moec_wv moec_l_gqa_rotated(moec_llm *m, moec_wv x, const moec_gqa *a, const char *name, int64_t heads);

/* Latent attention (models/mla.c). */
typedef struct moec_mla {
  int64_t heads, q_rank, kv_rank, nope, rotary, value; /* q_rank 0: queries are not latent */
  bool bias;
  double scale;
  moec_rope rope;
} moec_mla;

moec_mla moec_l_mla_sizes(moec_llm *m);
moec_wv moec_l_mla(moec_llm *m, moec_wv x, const moec_mla *a);

/* The gated delta rule over q, k [batch, heads, seq, dk], v [.., dv], log decay g and beta [batch, heads, seq], all
 * f32 (models/gated_delta.c). */
moec_wv moec_l_gated_delta(moec_llm *m, const moec_wv in[5], int64_t dk, int64_t dv);

/* The layers of DeepSeek models: dense ones first, then experts beside shared ones (models/deepseek.c). */
typedef struct moec_deepseek {
  moec_mla attention;
  moec_moe moe;
  int64_t dense, shared; /* widths; shared 0: none */
} moec_deepseek;

moec_deepseek moec_l_deepseek_sizes(moec_llm *m);
void moec_l_deepseek_layers(moec_llm *m, moec_wv x, const moec_deepseek *d);

#define FAMILY(type, object, fn) void moec_model_##fn(moec_llm *m);
#include "models/families.def"
#undef FAMILY

#endif
