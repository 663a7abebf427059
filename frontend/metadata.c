/* What moec's own files say in metadata_props, about names of the graph:
 *
 *   moec.default.INPUT = NUMBER       the input may be left out; all its elements are NUMBER then
 *   moec.trainable.INITIALIZER = 0    a buffer: no gradient, no update
 */
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "frontend/import_internal.h"

#define BAD(...) moec_error(MOEC_INVALID_MODEL, __VA_ARGS__)

static moec_status *set_default(moec_import *x, const char *name, const char *value) {
  moec_entry *e = moec_scope_find(x->scope, name);
  char *end;
  if (!e || !e->v.i || moec_def(x->b.g, e->v).i) return BAD("the model has no input \"%s\"", name);
  double v = moec_strtod(value, &end);
  if (end == value || *end) return BAD("expected a number, got \"%.60s\"", value);
  moec_value_info *info = moec_value_get(x->b.g, e->v);
  uint64_t bytes = 0;
  moec_dtype t = moec_type_get(x->m, info->type).dtype;
  moec_store_f64(t, &bytes, 0, v);
  if (moec_dtype_is_float(t)) v = moec_load_f64(t, &bytes, 0); /* rounded; of other types: ir/verify.c */
  info->has_default = true, info->dflt = v;
  return NULL;
}

static moec_status *set_trainable(moec_import *x, const char *name, const char *value) {
  moec_entry *e = moec_scope_find(x->scope, name);
  if (!e || !e->tensor) return BAD("the model has no initializer \"%s\"", name);
  if (strcmp(value, "0") != 0) return BAD("expected 0, got \"%.60s\"", value);
  e->torch = MOEC_TORCH_OTHER;
  return NULL;
}

static const struct {
  const char *prefix;
  moec_status *(*read)(moec_import *x, const char *name, const char *value);
} keys[] = {{"moec.default.", set_default}, {"moec.trainable.", set_trainable}};

moec_status *moec_read_metadata(moec_import *x) {
  for (size_t i = 0; i < x->model->n_metadata_props; i++) {
    const char *key = x->model->metadata_props[i]->key, *value = x->model->metadata_props[i]->value;
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
      size_t n = strlen(keys[k].prefix);
      if (strncmp(key, keys[k].prefix, n) != 0) continue;
      MOEC_TRY(moec_context(keys[k].read(x, key + n, value ? value : ""), "metadata_props: \"%.200s\"", key));
    }
  }
  return NULL;
}
