/* The settings of a training: one table for flags, for the file beside the state and for defaults. */
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/status.h"
#include "runtime/cli_train.h"

/* ---- the table --------------------------------------------------------------------------------- */

#define AT(field) offsetof(moec_rt_settings, field)
static const struct setting {
  const char *flag; /* without its dashes the key in the file */
  moec_rt_flag_kind kind;
  size_t offset;
  int min;
  double otherwise; /* NAN: see moec_rt_settings_default() */
  bool adamw;       /* of AdamW alone */
} table[] = {
    {"--data", MOEC_RT_TEXT, AT(data), 0, NAN, false},
    {"--steps", MOEC_RT_INT, AT(steps), 1, NAN, false},
    {"--batch", MOEC_RT_INT, AT(batch), 1, NAN, false},
    {"--seq", MOEC_RT_INT, AT(seq), 2, NAN, false},
    {"--accumulate", MOEC_RT_INT, AT(accumulate), 1, 1, false},
    {"--optimizer", MOEC_RT_TEXT, AT(optimizer), 0, NAN, false},
    {"--lr", MOEC_RT_REAL, AT(lr), 0, NAN, false},
    {"--weight-decay", MOEC_RT_REAL, AT(weight_decay), 0, NAN, false},
    {"--beta1", MOEC_RT_REAL, AT(beta1), 0, NAN, true},
    {"--beta2", MOEC_RT_REAL, AT(beta2), 0, NAN, true},
    {"--eps", MOEC_RT_REAL, AT(eps), 0, NAN, true},
    {"--warmup", MOEC_RT_INT, AT(warmup), 0, 0, false},
    {"--clip", MOEC_RT_REAL, AT(clip), 0, 1, false},
    {"--seed", MOEC_RT_INT, AT(seed), 0, 0, false},
    {"--save-every", MOEC_RT_INT, AT(save_every), 1, 100, false},
};
#undef AT
enum { N = sizeof table / sizeof *table };
_Static_assert((int)N == (int)MOEC_RT_SETTINGS, "room for every flag");

static void *field(moec_rt_settings *s, size_t i) { return (char *)s + table[i].offset; }
static const char *key(size_t i) { return table[i].flag + 2; }

static bool given(const moec_rt_settings *s, size_t i) {
  const void *at = (const char *)s + table[i].offset;
  if (table[i].kind == MOEC_RT_TEXT) return *(const char *const *)at != NULL;
  return table[i].kind == MOEC_RT_INT ? *(const int *)at != INT_MIN : !isnan(*(const double *)at);
}

size_t moec_rt_settings_flags(moec_rt_settings *s, moec_rt_flag out[MOEC_RT_SETTINGS]) {
  *s = (moec_rt_settings){0};
  for (size_t i = 0; i < N; i++) {
    out[i] = (moec_rt_flag){table[i].flag, table[i].kind, field(s, i), table[i].min};
    if (table[i].kind == MOEC_RT_INT) *(int *)field(s, i) = INT_MIN;
    if (table[i].kind == MOEC_RT_REAL) *(double *)field(s, i) = NAN;
  }
  return N;
}

/* ---- the file ---------------------------------------------------------------------------------- */

static moec_status *take(moec_rt_settings *s, size_t i, const json_t *v) {
  switch (table[i].kind) {
    case MOEC_RT_TEXT:
      if (!json_is_string(v)) return moec_wrong("%s: expected a string", key(i));
      *(const char **)field(s, i) = json_string_value(v);
      return NULL;
    case MOEC_RT_INT:
      if (!json_is_integer(v) || json_integer_value(v) < table[i].min || json_integer_value(v) > INT_MAX)
        return moec_wrong("%s: expected an integer of at least %d", key(i), table[i].min);
      *(int *)field(s, i) = (int)json_integer_value(v);
      return NULL;
    default:
      if (!json_is_number(v) || json_number_value(v) < table[i].min)
        return moec_wrong("%s: expected a number of at least %d", key(i), table[i].min);
      *(double *)field(s, i) = json_number_value(v);
      return NULL;
  }
}

static moec_status *take_all(moec_rt_settings *s, char digest[65]) {
  const char *text = json_string_value(json_object_get(s->file, "data_digest"));
  if (!text || strlen(text) != 64) return moec_wrong("data_digest: expected 64 digits");
  memcpy(digest, text, 65);
  for (size_t i = 0; i < N; i++) {
    const json_t *v = json_object_get(s->file, key(i));
    if (v && !given(s, i)) MOEC_TRY(take(s, i, v));
  }
  return NULL;
}

moec_status *moec_rt_settings_read(moec_rt_settings *s, const char *path, char digest[65]) {
  moec_map map;
  MOEC_TRY(moec_map_user_file(path, &map));
  moec_status *error = moec_json_parse(map.data, map.size, &s->file);
  moec_unmap(&map);
  if (!error) error = take_all(s, digest);
  return moec_context(error, "%s", path);
}

static json_t *value(const moec_rt_settings *s, size_t i) {
  const void *at = (const char *)s + table[i].offset;
  if (table[i].kind == MOEC_RT_TEXT) return json_string(*(const char *const *)at);
  return table[i].kind == MOEC_RT_INT ? json_integer(*(const int *)at) : json_real(*(const double *)at);
}

moec_status *moec_rt_settings_write(const moec_rt_settings *s, const char *path, const char digest[65]) {
  json_t *o = json_pack("{s:s}", "data_digest", digest);
  bool sgd = strcmp(s->optimizer, "sgd") == 0;
  for (size_t i = 0; i < N; i++)
    if (!table[i].adamw || !sgd) json_object_set_new(o, key(i), value(s, i));
  char *text = o ? json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
  json_decref(o);
  if (!text) return moec_error(MOEC_INVALID_ARGUMENT, "%s: cannot write the settings: a path is not UTF-8", path);
  moec_status *error = moec_write_file(path, text, strlen(text), 0644);
  free(text);
  return error;
}

/* ---- defaults ---------------------------------------------------------------------------------- */

static void set_real(double *to, double v) {
  if (isnan(*to)) *to = v;
}

static void set_int(int *to, int v) {
  if (*to == INT_MIN) *to = v;
}

static moec_status *choose_optimizer(moec_rt_settings *s) {
  moec_optimizer o;
  if (!s->optimizer) s->optimizer = "adamw";
  bool sgd = strcmp(s->optimizer, "sgd") == 0;
  if (!sgd && strcmp(s->optimizer, "adamw") != 0)
    return moec_wrong("--optimizer: expected adamw or sgd, got '%s'", s->optimizer);
  for (size_t i = 0; sgd && i < N; i++)
    if (table[i].adamw && given(s, i))
      return moec_wrong("%s means nothing with --optimizer sgd", table[i].flag);
  moec_optimizer_defaults(sgd ? MOEC_SGD : MOEC_ADAMW, &o);
  set_real(&s->lr, o.lr);
  set_real(&s->weight_decay, o.weight_decay);
  set_real(&s->beta1, o.beta1);
  set_real(&s->beta2, o.beta2);
  set_real(&s->eps, o.eps);
  return NULL;
}

moec_status *moec_rt_settings_default(moec_rt_settings *s, int batch, int seq) {
  if (!s->data) return moec_wrong("expected --data FILE, got none");
  if (s->steps == INT_MIN) return moec_wrong("expected --steps N, got none");
  MOEC_TRY(choose_optimizer(s));
  set_int(&s->batch, batch);
  set_int(&s->seq, seq);
  for (size_t i = 0; i < N; i++) {
    if (given(s, i)) continue;
    if (table[i].kind == MOEC_RT_INT) *(int *)field(s, i) = (int)table[i].otherwise;
    else *(double *)field(s, i) = table[i].otherwise;
  }
  return NULL;
}

moec_optimizer moec_rt_settings_optimizer(const moec_rt_settings *s) {
  return (moec_optimizer){.kind = strcmp(s->optimizer, "sgd") ? MOEC_ADAMW : MOEC_SGD,
                          .lr = s->lr,
                          .weight_decay = s->weight_decay,
                          .beta1 = s->beta1,
                          .beta2 = s->beta2,
                          .eps = s->eps};
}

double moec_rt_settings_lr(const moec_rt_settings *s, int64_t step) {
  return step < s->warmup ? s->lr * (double)(step + 1) / s->warmup : s->lr;
}

void moec_rt_settings_fini(moec_rt_settings *s) {
  json_decref(s->file);
  s->file = NULL;
}
