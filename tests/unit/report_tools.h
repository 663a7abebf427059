/* For tests of reports: drawing, paths into the JSON, and damage. */
#ifndef MOEC_TESTS_REPORT_TOOLS_H
#define MOEC_TESTS_REPORT_TOOLS_H

#include "codegen/report.h"
#include "tests/unit/unit.h"

static inline char *render(const json_t *r, const char *format) {
  moec_buf b = {0};
  UNIT_OK(moec_report_render(r, format, &b));
  char *text = strdup(moec_buf_str(&b));
  moec_buf_fini(&b);
  return text;
}

/* The value at "functions.1.regions.0.title": numbers index lists. */
static inline const json_t *at(const json_t *v, const char *path) {
  char key[64];
  while (v && *path) {
    size_t n = strcspn(path, ".");
    snprintf(key, sizeof key, "%.*s", (int)n, path);
    v = json_is_array(v) ? json_array_get(v, (size_t)atoi(key)) : json_object_get(v, key);
    path += n + (path[n] == '.');
  }
  return v;
}

static inline const char *text_at(const json_t *r, const char *path) {
  const char *s = json_string_value(at(r, path));
  if (!s) ck_abort_msg("no text at %s", path);
  return s;
}

static inline long long int_at(const json_t *r, const char *path) {
  if (!json_is_integer(at(r, path))) ck_abort_msg("no integer at %s", path);
  return json_integer_value(at(r, path));
}

/* A DOT text whose braces and quotes close. */
static inline void check_balanced(const char *s) {
  int depth = 0;
  bool quoted = false;
  for (const char *p = s; *p; p++) {
    if (quoted && *p == '\\') p++;
    else if (*p == '"') quoted = !quoted;
    else if (!quoted) depth += (*p == '{') - (*p == '}');
    ck_assert_int_ge(depth, 0);
  }
  ck_assert(depth == 0 && !quoted);
}

/* Values of the report replaced or removed, one at a time: an error or a drawing, never a crash. */
static inline size_t damage(json_t *root, json_t *v, size_t n) {
  static const char *const views[] = {"text", "dot", "text", "dot", "html"};
  const char *key;
  void *next;
  json_t *child;
  json_object_foreach_safe(v, next, key, child) {
    char name[64];
    snprintf(name, sizeof name, "%s", key);
    json_incref(child);
    for (size_t k = 0; k < 2; k++, n++) {
      json_t *others[] = {NULL,         json_null(),  json_integer(-7), json_integer(1LL << 60), json_string("x"),
                          json_array(), json_object()};
      moec_buf b = {0};
      json_t *other = others[n % 7];
      if (other) json_object_set(v, name, other);
      else json_object_del(v, name);
      moec_status_free(moec_report_render(root, views[n % 5], &b));
      moec_buf_fini(&b);
      for (size_t i = 0; i < 7; i++) json_decref(others[i]);
    }
    json_object_set_new(v, name, child);
    n = damage(root, child, n);
  }
  size_t size = json_array_size(v);
  if (size) n = damage(root, json_array_get(v, 0), n);
  if (size > 1) n = damage(root, json_array_get(v, size - 1), n);
  return n;
}

#endif
