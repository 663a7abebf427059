#include "base/json.h"

#include <stdbool.h>

enum { MAX_DEPTH = 64, MAX_VALUES = 4000000 };

/* Bounds what jansson will recurse and allocate, before it does. A value takes a bracket, a
 * comma or a colon, so counting those outside of strings is an upper bound. */
static moec_status *prescan(const char *p, size_t size) {
  size_t depth = 0, values = 0;
  bool in_string = false;
  for (size_t i = 0; i < size; i++) {
    if (in_string) {
      if (p[i] == '\\')
        i++;
      else if (p[i] == '"')
        in_string = false;
      continue;
    }
    switch (p[i]) {
      case '"': in_string = true; break;
      case '[':
      case '{':
        depth++;
        values++;
        break;
      case ']':
      case '}': depth -= depth > 0; break;
      case ',':
      case ':': values++; break;
      default: break;
    }
    if (depth > MAX_DEPTH) {
      return moec_error(MOEC_INVALID_MODEL,
                        "expected JSON of at most %d levels, got more at byte %zu", MAX_DEPTH, i);
    }
    if (values > MAX_VALUES) {
      return moec_error(MOEC_INVALID_MODEL,
                        "expected JSON of at most %d values, got more at byte %zu", MAX_VALUES, i);
    }
  }
  return NULL;
}

moec_status *moec_json_parse(const void *text, size_t size, json_t **out) {
  *out = NULL;
  MOEC_TRY(prescan(text, size));
  json_error_t error;
  *out = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
  if (*out) return NULL;
  moec_code code =
      json_error_code(&error) == json_error_out_of_memory ? MOEC_OUT_OF_MEMORY : MOEC_INVALID_MODEL;
  return moec_error(code, "expected JSON, got a mistake at line %d, column %d: %s", error.line,
                    error.column, error.text);
}
