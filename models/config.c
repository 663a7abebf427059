/* Typed access to config.json. */
#include "models/config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { MAX_SUBS = 8, MAX_KEY = 128 };

struct moec_config {
  moec_config *top;     /* itself for the file's object */
  json_t *object;       /* owned by top */
  json_t *marks;        /* keys that were read */
  char path[MAX_KEY];   /* "rope_parameters." for messages, "" for the file's object */
  moec_config *subs[MAX_SUBS];
  size_t n_subs;
  moec_status *error; /* of top */
};

void moec_cfg_fail(moec_config *c, moec_status *s) {
  if (c->top->error) moec_status_free(s);
  else c->top->error = s;
}

moec_status *moec_cfg_end(moec_config *c) {
  moec_status *s = c->top->error;
  c->top->error = NULL;
  return s;
}

/* ---- opening ------------------------------------------------------------------------------ */

/* Sets one dotted key; objects on the way must be there. */
static moec_status *apply_set(json_t *object, const char *set) {
  const char *eq = strchr(set, '='), *key = set, *dot;
  char name[MAX_KEY];
  if (!eq || eq == set) return moec_error(MOEC_INVALID_ARGUMENT, "--set: expected KEY=VALUE, got \"%s\"", set);
  while ((dot = memchr(key, '.', (size_t)(eq - key)))) {
    if ((size_t)(dot - key) >= sizeof name)
      return moec_error(MOEC_INVALID_ARGUMENT, "--set %s: the key is too long", set);
    memcpy(name, key, (size_t)(dot - key));
    name[dot - key] = '\0';
    object = json_object_get(object, name);
    if (!json_is_object(object))
      return moec_error(MOEC_INVALID_ARGUMENT, "--set %s: \"%s\" is no object in config.json", set, name);
    key = dot + 1;
  }
  if ((size_t)(eq - key) >= sizeof name || eq == key)
    return moec_error(MOEC_INVALID_ARGUMENT, "--set: expected KEY=VALUE, got \"%s\"", set);
  memcpy(name, key, (size_t)(eq - key));
  name[eq - key] = '\0';
  json_t *value = json_loads(eq + 1, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
  if (!value) value = json_string(eq + 1);
  if (!value || json_object_set_new(object, name, value))
    return moec_error(MOEC_INVALID_ARGUMENT, "--set %s: expected JSON or UTF-8 text behind \"=\"", set);
  return NULL;
}

static moec_config *make(moec_config *top, json_t *object, const char *path) {
  moec_config *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  c->top = top ? top : c;
  c->object = object;
  c->marks = json_object();
  snprintf(c->path, sizeof c->path, "%s", path);
  return c;
}

moec_status *moec_config_open(const char *path, size_t n, const char *const *sets, moec_config **out) {
  moec_map map;
  json_t *object = NULL;
  *out = NULL;
  MOEC_TRY(moec_map_user_file(path, &map));
  moec_status *s = moec_json_parse(map.data, map.size, &object);
  moec_unmap(&map);
  if (!s && !json_is_object(object)) s = moec_error(MOEC_INVALID_MODEL, "expected an object");
  s = moec_context(s, "%s", path);
  for (size_t i = 0; !s && i < n; i++) s = apply_set(object, sets[i]);
  *out = s ? NULL : make(NULL, object, "");
  if (!*out) json_decref(object);
  return !s && !*out ? moec_error(MOEC_OUT_OF_MEMORY, "no memory for %s", path) : s;
}

void moec_config_close(moec_config *c) {
  if (!c) return;
  for (size_t i = 0; i < c->n_subs; i++) moec_config_close(c->subs[i]);
  if (c->top == c) {
    json_decref(c->object);
    moec_status_free(c->error);
  }
  json_decref(c->marks);
  free(c);
}

/* ---- finding ------------------------------------------------------------------------------ */

/* The first of the alternatives that is there; all of them are marked. */
static json_t *find(const moec_config *c, const char *keys, bool mark) {
  json_t *found = NULL;
  char key[MAX_KEY];
  for (const char *at = keys; *at;) {
    size_t n = strcspn(at, "|");
    if (n >= sizeof key) return NULL;
    memcpy(key, at, n);
    key[n] = '\0';
    json_t *v = json_object_get(c->object, key);
    if (v && mark) json_object_set_new(c->marks, key, json_true());
    if (!found && v && !json_is_null(v)) found = v;
    at += n + (at[n] == '|');
  }
  return found;
}

bool moec_cfg_has(const moec_config *c, const char *keys) { return find(c, keys, false) != NULL; }

/* |v| as it stands in the file, cut to a line. */
static void bad_value(moec_config *c, const char *keys, const char *expected, const json_t *v, moec_code code) {
  char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
  moec_cfg_fail(c, moec_error(code, "config.json: %s%s: expected %s, got %.120s", c->path, keys, expected,
                              v ? text ? text : "?" : "nothing"));
  free(text);
}

moec_config *moec_cfg_sub(moec_config *c, const char *key) {
  char path[MAX_KEY];
  json_t *v = find(c, key, true);
  if (!v) return NULL;
  if (!json_is_object(v)) {
    bad_value(c, key, "an object", v, MOEC_INVALID_MODEL);
    return NULL;
  }
  for (size_t i = 0; i < c->n_subs; i++)
    if (c->subs[i]->object == v) return c->subs[i];
  snprintf(path, sizeof path, "%.60s%.60s.", c->path, key);
  moec_config *sub = c->n_subs < MAX_SUBS ? make(c->top, v, path) : NULL;
  if (sub) c->subs[c->n_subs++] = sub;
  return sub;
}

/* ---- values ------------------------------------------------------------------------------- */

static int64_t int_in(moec_config *c, const char *keys, const json_t *v, int64_t low, int64_t dflt) {
  if (json_is_integer(v) && json_integer_value(v) >= low && json_integer_value(v) <= INT32_MAX)
    return json_integer_value(v);
  bad_value(c, keys, low ? "an integer from 1 to 2147483647" : "an integer from 0 to 2147483647", v,
            MOEC_INVALID_MODEL);
  return dflt;
}

int64_t moec_cfg_int(moec_config *c, const char *keys) { return int_in(c, keys, find(c, keys, true), 1, 1); }

int64_t moec_cfg_int_or(moec_config *c, const char *keys, int64_t dflt) {
  const json_t *v = find(c, keys, true);
  return v ? int_in(c, keys, v, 0, dflt) : dflt;
}

static double num_in(moec_config *c, const char *keys, const json_t *v) {
  if (json_is_number(v) && isfinite(json_number_value(v))) return json_number_value(v);
  bad_value(c, keys, "a number", v, MOEC_INVALID_MODEL);
  return 1;
}

double moec_cfg_num(moec_config *c, const char *keys) { return num_in(c, keys, find(c, keys, true)); }

double moec_cfg_num_or(moec_config *c, const char *keys, double dflt) {
  const json_t *v = find(c, keys, true);
  return v ? num_in(c, keys, v) : dflt;
}

bool moec_cfg_bool_or(moec_config *c, const char *keys, bool dflt) {
  const json_t *v = find(c, keys, true);
  if (!v) return dflt;
  if (!json_is_boolean(v)) bad_value(c, keys, "true or false", v, MOEC_INVALID_MODEL);
  return json_is_true(v);
}

const char *moec_cfg_str_or(moec_config *c, const char *keys, const char *dflt) {
  const json_t *v = find(c, keys, true);
  if (!v) return dflt;
  if (json_is_string(v)) return json_string_value(v);
  bad_value(c, keys, "a string", v, MOEC_INVALID_MODEL);
  return dflt ? dflt : "";
}

size_t moec_cfg_list(moec_config *c, const char *keys) {
  const json_t *v = find(c, keys, true);
  if (v && !json_is_array(v)) bad_value(c, keys, "a list", v, MOEC_INVALID_MODEL);
  return json_array_size(v);
}

const char *moec_cfg_list_str(moec_config *c, const char *keys, size_t i) {
  const json_t *v = json_array_get(find(c, keys, true), i);
  if (json_is_string(v)) return json_string_value(v);
  bad_value(c, keys, "a list of strings, one a layer", find(c, keys, true), MOEC_INVALID_MODEL);
  return "";
}

int64_t moec_cfg_list_int(moec_config *c, const char *keys, size_t i) {
  const json_t *v = json_array_get(find(c, keys, true), i);
  if (json_is_integer(v)) return json_integer_value(v);
  if (json_is_boolean(v)) return json_is_true(v);
  bad_value(c, keys, "a list of integers", find(c, keys, true), MOEC_INVALID_MODEL);
  return 0;
}

/* ---- what a file may leave out ---------------------------------------------------------------- */

void moec_cfg_defaults(moec_config *c, const moec_cfg_default *d) {
  for (; d->key; d++) {
    json_t *v = json_object_get(c->object, d->key);
    if (v && !(d->null_too && json_is_null(v))) continue;
    v = json_loads(d->value, JSON_DECODE_ANY, NULL);
    if (!v || json_object_set_new(c->object, d->key, v))
      moec_cfg_fail(c, MOEC_BUG("default of %s: %s", d->key, d->value));
    json_object_set_new(c->marks, d->key, json_true());
  }
}

/* ---- what must be as moec has it ------------------------------------------------------------ */

void moec_cfg_want_str(moec_config *c, const char *keys, const char *want) {
  char expected[MAX_KEY];
  const json_t *v = find(c, keys, true);
  snprintf(expected, sizeof expected, "\"%.100s\"", want);
  if (v && (!json_is_string(v) || strcmp(json_string_value(v), want) != 0))
    bad_value(c, keys, expected, v, MOEC_UNSUPPORTED);
}

void moec_cfg_want_bool(moec_config *c, const char *keys, bool want) {
  const json_t *v = find(c, keys, true);
  if (v && (!json_is_boolean(v) || json_is_true(v) != want))
    bad_value(c, keys, want ? "true" : "false", v, MOEC_UNSUPPORTED);
}

void moec_cfg_want_num(moec_config *c, const char *keys, double want) {
  char expected[MAX_KEY];
  const json_t *v = find(c, keys, true);
  snprintf(expected, sizeof expected, "%g", want);
  if (v && (!json_is_number(v) || json_number_value(v) != want)) bad_value(c, keys, expected, v, MOEC_UNSUPPORTED);
}

void moec_cfg_ignore(moec_config *c, const char *keys) {
  char key[MAX_KEY];
  for (const char *at = keys; *at;) {
    size_t n = strcspn(at, " ");
    if (n && n < sizeof key) {
      memcpy(key, at, n);
      key[n] = '\0';
      find(c, key, true);
    }
    at += n + (at[n] == ' ');
  }
}

/* ---- what nobody read ----------------------------------------------------------------------- */

static void list_unread(const moec_config *c, moec_buf *b) {
  const char *key;
  json_t *value;
  json_object_foreach(c->object, key, value) {
    if (!json_object_get(c->marks, key)) moec_buf_printf(b, "%s%s%.100s", b->size ? ", " : "", c->path, key);
  }
  for (size_t i = 0; i < c->n_subs; i++) list_unread(c->subs[i], b);
}

void moec_cfg_unread(const moec_config *c, moec_buf *out) {
  moec_buf b = {0};
  list_unread(c, &b);
  if (b.size) moec_buf_printf(out, "config.json: keys without a meaning for moec, not used: %s\n", moec_buf_str(&b));
  moec_buf_fini(&b);
}
