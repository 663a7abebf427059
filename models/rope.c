/* Rotary position tables: frequencies as transformers computes them (modeling_rope_utils), rounded to f32.
 *
 *   cos, sin [batch, seq, dim/2] of position * frequency, times the attention factor */
#include <math.h>
#include <string.h>

#include "models/layers.h"

#define TWO_PI 6.283185307179586

typedef struct rope_keys {
  moec_llm *m;
  /* where a scaled rope has its parameters: rope_parameters, or rope_scaling before v5; may be NULL */
  moec_config *c;
  double base;
  int64_t dim;
  double factor;     /* of cos and sin */
  double mscale_all;
} rope_keys;

typedef void (*rope_fn)(rope_keys *k, double *freq); /* freq: dim/2 unscaled ones */

static void rope_default(rope_keys *k, double *freq) { (void)k, (void)freq; }

static void rope_linear(rope_keys *k, double *freq) {
  double factor = moec_cfg_num(k->c, "factor");
  for (int64_t i = 0; i < k->dim / 2; i++) freq[i] /= factor;
}

static void rope_llama3(rope_keys *k, double *freq) {
  double factor = moec_cfg_num(k->c, "factor"), low = moec_cfg_num(k->c, "low_freq_factor");
  double high = moec_cfg_num(k->c, "high_freq_factor"), old = moec_cfg_num(k->c, "original_max_position_embeddings");
  for (int64_t i = 0; i < k->dim / 2; i++) {
    double length = TWO_PI / freq[i], smooth = (old / length - low) / (high - low);
    if (length > old / low) freq[i] /= factor;
    else if (length >= old / high) freq[i] = (1 - smooth) * freq[i] / factor + smooth * freq[i];
  }
}

static double yarn_mscale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1; }

/* The dimension that turns |turns| times over the original context. */
static double yarn_dim(const rope_keys *k, double turns, double context) {
  return (double)k->dim * log(context / (turns * TWO_PI)) / (2 * log(k->base));
}

static void rope_yarn(rope_keys *k, double *freq) {
  double context = moec_cfg_num_or(k->c, "original_max_position_embeddings", 0);
  double longest = moec_cfg_num_or(k->m->c, "max_position_embeddings", 0);
  if (context == 0) context = longest;
  double factor = moec_cfg_has(k->c, "factor") ? moec_cfg_num(k->c, "factor") : longest / context;
  double mscale = moec_cfg_num_or(k->c, "mscale", 0), all = moec_cfg_num_or(k->c, "mscale_all_dim", 0);
  double dflt =
      mscale != 0 && all != 0 ? yarn_mscale(factor, mscale) / yarn_mscale(factor, all) : yarn_mscale(factor, 1);
  k->factor = moec_cfg_num_or(k->c, "attention_factor", dflt);
  k->mscale_all = all != 0 ? yarn_mscale(factor, all) : 1;
  double low = yarn_dim(k, moec_cfg_num_or(k->c, "beta_fast", 32), context);
  double high = yarn_dim(k, moec_cfg_num_or(k->c, "beta_slow", 1), context);
  if (moec_cfg_bool_or(k->c, "truncate", true)) low = floor(low), high = ceil(high);
  low = fmax(low, 0), high = fmin(high, (double)(k->dim - 1));
  if (low == high) high += 0.001;
  for (int64_t i = 0; i < k->dim / 2; i++) {
    double ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1);
    freq[i] = freq[i] / factor * ramp + freq[i] * (1 - ramp);
  }
}

static const struct {
  const char *name;
  rope_fn fn;
} rope_types[] = {{"default", rope_default}, {"linear", rope_linear}, {"llama3", rope_llama3}, {"yarn", rope_yarn},
    {"mrope", rope_default}};

/* rope_parameters (v5) says all; before that rope_theta stood beside rope_scaling {type | rope_type, ...}. */
static rope_fn read_keys(rope_keys *k, int64_t head_dim) {
  moec_config *top = k->m->c;
  k->c =
      moec_cfg_has(top, "rope_parameters") ? moec_cfg_sub(top, "rope_parameters") : moec_cfg_sub(top, "rope_scaling");
  double theta = moec_cfg_num_or(top, "rope_theta", 10000), part = moec_cfg_num_or(top, "partial_rotary_factor", 1);
  const char *type = k->c ? moec_cfg_str_or(k->c, "rope_type|type", "default") : "default";
  k->base = k->c ? moec_cfg_num_or(k->c, "rope_theta", theta) : theta;
  part = k->c ? moec_cfg_num_or(k->c, "partial_rotary_factor", part) : part;
  if (k->c) moec_cfg_ignore(k->c, "mrope_section mrope_interleaved"); /* text has one position for all sections */
  k->dim = (int64_t)((double)head_dim * part);
  k->factor = k->mscale_all = 1;
  if (part <= 0 || part > 1 || k->dim < 2 || k->dim % 2 || !(k->base > 0))
    moec_cfg_fail(top, moec_error(MOEC_UNSUPPORTED,
                                  "config.json: rope: expected a positive rope_theta and an even part of the %lld "
                                  "features of a head, got rope_theta %g and partial_rotary_factor %g",
                                  (long long)head_dim, k->base, part));
  for (size_t i = 0; i < sizeof rope_types / sizeof *rope_types; i++)
    if (strcmp(type, rope_types[i].name) == 0) return rope_types[i].fn;
  moec_cfg_fail(top,
                moec_error(MOEC_UNSUPPORTED,
                           "config.json: rope_type: expected default, linear, llama3 or yarn, got \"%.60s\"", type));
  return rope_default;
}

static moec_wv frequencies(rope_keys *k, rope_fn fn) {
  int64_t n = k->dim / 2;
  if (n < 1 || n > 1 << 20) return (moec_wv){0};
  double *freq = MOEC_NEW_ARRAY(k->m->arena, double, (size_t)n);
  float *rounded = MOEC_NEW_ARRAY(k->m->arena, float, (size_t)n);
  for (int64_t i = 0; i < n; i++) freq[i] = 1 / pow(k->base, (double)(2 * i) / (double)k->dim);
  fn(k, freq);
  for (int64_t i = 0; i < n; i++) rounded[i] = (float)freq[i];
  return moec_w_const(k->m->w, MOEC_F32, 1, &n, rounded);
}

void moec_l_rope_tables(moec_llm *m, int64_t head_dim, moec_rope *out) {
  moec_writer *w = m->w;
  rope_keys k = {.m = m};
  rope_fn fn = read_keys(&k, head_dim);
  moec_w_scope(w, "model.rotary_emb");
  moec_wv freq = frequencies(&k, fn);
  moec_wv batch_seq = W(w, "Shape", m->ids);
  moec_wv seq = WA(w, "Shape", W_ATTRS(W_INT("start", 1), W_INT("end", 2)), m->ids);
  moec_wv position = W(w, "Range", moec_w_int(w, 0), W(w, "Squeeze", seq), moec_w_int(w, 1));
  position = moec_l_cast(m, W(w, "Unsqueeze", position, W_I64(w, 1, 1)), MOEC_I64, MOEC_F32);
  moec_wv angle = W(w, "Mul", position, freq); /* [seq, dim/2] */
  moec_wv shape = WA(w, "Concat", W_ATTRS(W_INT("axis", 0)), batch_seq, W_I64(w, 1, k.dim / 2));
  moec_wv table[2] = {W(w, "Cos", angle), W(w, "Sin", angle)};
  for (int i = 0; i < 2; i++) {
    if (k.factor != 1) table[i] = W(w, "Mul", table[i], moec_w_float(w, MOEC_F32, k.factor));
    table[i] = W(w, "Expand", moec_l_cast(m, table[i], MOEC_F32, m->dtype), shape);
  }
  *out = (moec_rope){.dim = k.dim, .cos = table[0], .sin = table[1], .mscale_all = k.mscale_all};
}
