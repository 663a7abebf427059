/* Attention with grouped queries, as most families have it. */
#include <math.h>

#include "models/family.h"

moec_gqa moec_l_gqa_sizes(moec_llm *m) {
  moec_gqa a = {.heads = moec_cfg_int(m->c, "num_attention_heads")};
  a.kv_heads = moec_cfg_int_or(m->c, "num_key_value_heads", a.heads);
  a.head_dim = moec_cfg_int_or(m->c, "head_dim", m->hidden / a.heads);
  if (a.kv_heads < 1 || a.head_dim < 1 || a.heads % a.kv_heads)
    moec_cfg_fail(
        m->c,
        moec_error(MOEC_INVALID_MODEL,
                   "config.json: num_attention_heads, num_key_value_heads: expected whole groups, got %lld and %lld",
                   (long long)a.heads, (long long)a.kv_heads));
  if (a.kv_heads < 1) a.kv_heads = 1;
  if (a.head_dim < 1) a.head_dim = 1;
  return a;
}

moec_wv moec_l_gqa_rotated(moec_llm *m, moec_wv x, const moec_gqa *a, const char *name, int64_t heads) {
  moec_wv y =
      moec_l_linear(m, x, moec_arena_printf(m->arena, "%s_proj", name), m->hidden, heads * a->head_dim, a->bias);
  y = L_RESHAPE(m, y, 4, 0, 0, heads, a->head_dim);
  if (a->norms) y = moec_l_norm(m, y, moec_arena_printf(m->arena, "%s_norm", name), a->head_dim);
  y = WA(m->w, "Transpose", W_ATTRS(W_INTS("perm", 4, 0, 2, 1, 3)), y);
  return moec_l_rotate(m, &a->rope, y, heads);
}

moec_wv moec_l_gqa(moec_llm *m, moec_wv x, const moec_gqa *a) {
  moec_wv q = moec_l_gqa_rotated(m, x, a, "q", a->heads);
  moec_wv k = moec_l_gqa_rotated(m, x, a, "k", a->kv_heads);
  moec_wv v = moec_l_linear(m, x, "v_proj", m->hidden, a->kv_heads * a->head_dim, a->bias);
  moec_wv y =
      moec_l_attention(m, q, k, moec_l_heads(m, v, a->kv_heads, a->head_dim), 1 / sqrt((double)a->head_dim), a->window);
  y = moec_l_join_heads(m, y, a->heads * a->head_dim);
  return moec_l_linear(m, y, "o_proj", a->heads * a->head_dim, m->hidden, a->out_bias);
}
