/* External data: bytes of tensors in files beside the model, or in a folder that the user named. What the model says
 * about them is untrusted: beside the model, moec_map_inner_file() is the only way to such a file. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fresh.h"
#include "frontend/import_internal.h"

#define BAD(...) moec_error(MOEC_INVALID_MODEL, __VA_ARGS__)

static moec_status *read_u64(const char *key, const char *text, uint64_t *out) {
  char *end;
  errno = 0;
  if (*text < '0' || *text > '9') return BAD("%s: expected a number, got \"%s\"", key, text);
  unsigned long long v = strtoull(text, &end, 10);
  if (errno || *end) return BAD("%s: expected a number of 64 bits, got \"%s\"", key, text);
  *out = v;
  return NULL;
}

/* In a folder that the user named links are followed, since it may be a cache that consists of them; so the model gets
 * to say a plain name only. */
static moec_status *map_in_named_folder(moec_arena *a, const char *dir, const char *location, moec_map *out) {
  if (strchr(location, '/') || strcmp(location, ".") == 0 || strcmp(location, "..") == 0)
    return BAD("external data in a named folder: expected a plain file name, got \"%s\"", location);
  moec_status *s = moec_map_user_file(moec_arena_printf(a, "%s/%s", dir, location), out);
  if (moec_status_code(s) != MOEC_INVALID_ARGUMENT) return s;
  moec_status *bad = BAD("external data: %s", moec_status_message(s)); /* the model asks for it, not the user */
  moec_status_free(s);
  return bad;
}

/* The mapping of file |location|, made once. */
static moec_status *find_file(moec_import *x, const char *location, uint32_t *out) {
  moec_module *m = x->m;
  moec_sym name = moec_sym_make(m, location);
  for (size_t i = 0; i < m->n_files; i++)
    if (m->files[i].name.i == name.i && name.i) {
      *out = (uint32_t)i;
      return NULL;
    }
  moec_file f = {.name = name, .owned = true};
  moec_fresh fresh;
  if (moec_fresh_is(location)) { /* there is no file: whoever loads the parameter makes it */
    MOEC_TRY(moec_fresh_parse(location, &fresh));
    *out = (uint32_t)m->n_files;
    MOEC_PUSH(m->arena, m->files, m->n_files, m->cap_files, f);
    return NULL;
  }
  if (!x->dir) return BAD("external data in \"%s\": a model in memory has no folder", location);
  if (x->options->weights_dir) MOEC_TRY(map_in_named_folder(m->arena, x->dir, location, &f.map));
  else MOEC_TRY(moec_map_inner_file(x->dir, location, &f.map));
  *out = (uint32_t)m->n_files;
  MOEC_PUSH(m->arena, m->files, m->n_files, m->cap_files, f);
  return NULL;
}

typedef struct place {
  const char *location, *offset, *length;
} place;

/* Keys that moec doesn't know (checksum, say) are none of its business. */
static moec_status *read_place(const Onnx__TensorProto *t, place *out) {
  const struct {
    const char *key, **to;
  } keys[] = {{"location", &out->location}, {"offset", &out->offset}, {"length", &out->length}};
  for (size_t i = 0; i < t->n_external_data; i++)
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
      const char *key = t->external_data[i]->key, *value = t->external_data[i]->value;
      if (!key || strcmp(key, keys[k].key) != 0) continue;
      if (*keys[k].to) return BAD("external data: \"%s\" stands twice", key);
      *keys[k].to = value ? value : "";
    }
  return out->location && *out->location ? NULL : BAD("external data without a location");
}

moec_status *moec_external_data(moec_import *x, const Onnx__TensorProto *t, size_t bytes, uint32_t *file,
                                uint64_t *offset) {
  place at = {NULL, NULL, NULL};
  uint64_t length = bytes;
  *offset = 0;
  MOEC_TRY(read_place(t, &at));
  if (at.offset) MOEC_TRY(read_u64("offset", at.offset, offset));
  if (at.length) MOEC_TRY(read_u64("length", at.length, &length));
  if (length != bytes) return BAD("expected %zu bytes of external data, got %llu", bytes, (unsigned long long)length);
  MOEC_TRY(find_file(x, at.location, file));
  if (moec_fresh_is(at.location)) {
    if (moec_dtype_is_float(moec_dtype_from_onnx(t->data_type))) return NULL;
    return moec_error(MOEC_UNSUPPORTED, "weights made from a seed: expected floats");
  }
  uint64_t size = x->m->files[*file].map.size;
  if (*offset > size || bytes > size - *offset)
    return BAD("expected %zu bytes at offset %llu of \"%s\", which has %llu", bytes, (unsigned long long)*offset,
               at.location, (unsigned long long)size);
  return NULL;
}
