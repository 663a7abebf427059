/* Attention with latent keys and values (MLA), as DeepSeek-V2 and V3 have it.
 *
 *   q    = q_b(norm(q_a(x))), or q_proj(x)          heads of [nope | rope] features
 *   c, r = split(kv_a(x))                           r: the rotated part of all keys
 *   k, v = split(kv_b(norm(c)))                     heads of [nope | v] features */
#include <math.h>

#include "models/family.h"

/* The default of transformers' norm class: rms_norm_eps is not for these. */
static const double latent_eps = 1e-6;

moec_mla moec_l_mla_sizes(moec_llm *m) {
  moec_mla a = {.heads = moec_cfg_int(m->c, "num_attention_heads"),
                .q_rank = moec_cfg_int_or(m->c, "q_lora_rank", 0),
                .kv_rank = moec_cfg_int(m->c, "kv_lora_rank"),
                .nope = moec_cfg_int(m->c, "qk_nope_head_dim"),
                .rotary = moec_cfg_int(m->c, "qk_rope_head_dim"),
                .value = moec_cfg_int(m->c, "v_head_dim"),
                .bias = moec_cfg_bool_or(m->c, "attention_bias", false)};
  a.scale = 1 / sqrt((double)(a.nope + a.rotary));
  moec_cfg_ignore(m->c, "head_dim qk_head_dim");
  int64_t kv = moec_cfg_int_or(m->c, "num_key_value_heads", a.heads);
  if (kv != a.heads)
    moec_cfg_fail(m->c, moec_error(MOEC_UNSUPPORTED,
                                   "config.json: num_key_value_heads: expected the %lld attention heads, got %lld",
                                   (long long)a.heads, (long long)kv));
  return a;
}

static void split(moec_llm *m, moec_wv x, int64_t first, int64_t second, moec_wv out[2]) {
  moec_wv in[2] = {x, W_I64(m->w, 2, first, second)};
  moec_w_node(m->w, "", "Split", W_ATTRS(W_INT("axis", -1)), 2, in, 2, out, NULL);
}

static moec_wv join(moec_llm *m, moec_wv a, moec_wv b) { return WA(m->w, "Concat", W_ATTRS(W_INT("axis", -1)), a, b); }

static moec_wv queries(moec_llm *m, moec_wv x, const moec_mla *a) {
  moec_wv part[2];
  int64_t dim = a->nope + a->rotary;
  if (a->q_rank) {
    x = moec_l_linear(m, x, "q_a_proj", m->hidden, a->q_rank, a->bias);
    x = moec_l_norm_eps(m, x, "q_a_layernorm", a->q_rank, latent_eps, false);
    x = moec_l_linear(m, x, "q_b_proj", a->q_rank, a->heads * dim, false);
  } else {
    x = moec_l_linear(m, x, "q_proj", m->hidden, a->heads * dim, false);
  }
  split(m, moec_l_heads(m, x, a->heads, dim), a->nope, a->rotary, part);
  return join(m, part[0], moec_l_rotate(m, &a->rope, part[1], a->heads));
}

moec_wv moec_l_mla(moec_llm *m, moec_wv x, const moec_mla *a) {
  moec_wv latent[2], kv[2], q = queries(m, x, a);
  split(m, moec_l_linear(m, x, "kv_a_proj_with_mqa", m->hidden, a->kv_rank + a->rotary, a->bias), a->kv_rank, a->rotary,
        latent);
  moec_wv rotated = moec_l_rotate(m, &a->rope, moec_l_heads(m, latent[1], 1, a->rotary), 1);
  rotated = W(m->w, "Expand", rotated, W_I64(m->w, 4, 1, a->heads, 1, 1));
  moec_wv y = moec_l_norm_eps(m, latent[0], "kv_a_layernorm", a->kv_rank, latent_eps, false);
  y = moec_l_linear(m, y, "kv_b_proj", a->kv_rank, a->heads * (a->nope + a->value), false);
  split(m, moec_l_heads(m, y, a->heads, a->nope + a->value), a->nope, a->value, kv);
  y = moec_l_attention(m, q, join(m, kv[0], rotated), kv[1], a->scale, 0);
  y = moec_l_join_heads(m, y, a->heads * a->value);
  return moec_l_linear(m, y, "o_proj", a->heads * a->value, m->hidden, a->bias);
}
