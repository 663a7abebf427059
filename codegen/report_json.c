/* JSON helpers of the report: building it, and reading a checked one. */
#include <string.h>

#include "codegen/plan_tables.h"
#include "codegen/report_internal.h"

static json_t *made(json_t *v) {
  if (!v) moec_die_out_of_memory();
  return v;
}

/* Names come from files and may hold anything; JSON holds UTF-8. */
json_t *moec_report_str(const char *s) {
  if (!s) return made(json_null());
  json_t *v = json_string(s);
  if (v) return v;
  char *plain = strdup(s);
  if (!plain) moec_die_out_of_memory();
  for (char *p = plain; *p; p++)
    if (*p & 0x80) *p = '?';
  v = made(json_string(plain));
  free(plain);
  return v;
}

json_t *moec_report_object(void) { return made(json_object()); }
json_t *moec_report_array(void) { return made(json_array()); }

void moec_report_set(json_t *object, const char *key, json_t *value) {
  if (json_object_set_new(object, key, made(value))) moec_die_out_of_memory();
}

void moec_report_add(json_t *array, json_t *value) {
  if (json_array_append_new(array, made(value))) moec_die_out_of_memory();
}

json_t *moec_report_size(const report *r, moec_dim d) {
  json_t *o = moec_report_object();
  moec_buf b = {0};
  int64_t value = 0;
  moec_status *s = NULL;
  if (moec_dim_known(d)) {
    moec_dim_print(&b, r->m, d);
    s = moec_dim_eval(r->m, d, r->symbols, &value);
  }
  moec_report_set(o, "text", moec_report_str(moec_dim_known(d) ? moec_buf_str(&b) : "unknown"));
  moec_report_set(o, "value", moec_dim_known(d) && !s ? json_integer(value) : json_null());
  moec_status_free(s);
  moec_buf_fini(&b);
  return o;
}

json_t *moec_report_type(const report *r, moec_type t) {
  moec_buf b = {0};
  moec_type_print(&b, r->m, t);
  json_t *v = moec_report_str(moec_buf_str(&b));
  moec_buf_fini(&b);
  return v;
}

/* ---- reading ------------------------------------------------------------------------------ */

int64_t moec_report_int(const json_t *o, const char *key) { return json_integer_value(json_object_get(o, key)); }

const char *moec_report_text(const json_t *o, const char *key) {
  const char *s = json_string_value(json_object_get(o, key));
  return s ? s : "";
}

const char *moec_report_text_at(const json_t *array, size_t i) {
  const char *s = json_string_value(json_array_get(array, i));
  return s ? s : "";
}

int64_t moec_report_value(const json_t *o, const char *key) {
  const json_t *v = json_object_get(json_object_get(o, key), "value");
  return json_is_integer(v) ? json_integer_value(v) : -1;
}

/* Three digits: 987, 1.23 k, 45.6 M. */
static void scaled(moec_buf *b, int64_t v, double step, const char *const *prefixes, const char *unit) {
  double x = (double)v;
  size_t i = 0;
  while (x >= step * 0.9995 && prefixes[i + 1]) x /= step, i++;
  int digits = i == 0 || x >= 99.95 ? 0 : x >= 9.995 ? 1 : 2;
  moec_buf_printf(b, "%.*f", digits, x);
  if (*prefixes[i] || *unit) moec_buf_printf(b, " %s%s", prefixes[i], unit);
}

void moec_report_human(moec_buf *b, int64_t v, const char *unit) {
  static const char *const prefixes[] = {"", "k", "M", "G", "T", "P", "E", NULL};
  if (v < 0)
    moec_buf_puts(b, "?");
  else
    scaled(b, v, 1000, prefixes, unit);
}

void moec_report_human_bytes(moec_buf *b, int64_t v) {
  static const char *const prefixes[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", NULL};
  if (v < 0)
    moec_buf_puts(b, "?");
  else
    scaled(b, v, 1024, prefixes, "B");
}
