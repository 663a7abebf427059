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

#define FAMILY(type, object, fn) void moec_model_##fn(moec_llm *m);
#include "models/families.def"
#undef FAMILY

#endif
