#include "base/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

enum { MAX_HEADER = 100000000 };

struct moec_safetensors {
  moec_map map;
  size_t n;
  moec_st_entry *entries;        /* by offset */
  const moec_st_entry **by_name; /* by strcmp() */
  char *names;                   /* all names, each with its NUL */
};

/* An array's |i|th element as an integer >= 0; -1 when it is anything else. */
static int64_t natural(const json_t *array, size_t i) {
  const json_t *v = json_array_get(array, i);
  return json_is_integer(v) && json_integer_value(v) >= 0 ? json_integer_value(v) : -1;
}

/* Fills |e| but for its name from one member of the header. The data's range is relative to
 * |data_start|; that it lies inside the file is seen when all ranges are known. */
static moec_status *parse_entry(const json_t *v, const moec_map *m, size_t data_start,
                                moec_st_entry *e) {
  const json_t *dtype = json_object_get(v, "dtype"), *shape = json_object_get(v, "shape");
  const json_t *range = json_object_get(v, "data_offsets");
  if (!json_is_string(dtype) || !json_is_array(shape) || json_array_size(range) != 2) {
    return moec_error(MOEC_INVALID_MODEL, "expected dtype, shape and two data_offsets, got less");
  }
  moec_tensor *t = &e->tensor;
  t->dtype = moec_dtype_from_safetensors(json_string_value(dtype));
  if (!t->dtype) {
    return moec_error(MOEC_UNSUPPORTED, "expected a known dtype, got '%.40s'",
                      json_string_value(dtype));
  }
  if (json_array_size(shape) > MOEC_MAX_RANK) {
    return moec_error(MOEC_UNSUPPORTED, "expected at most %d dims, got %zu", MOEC_MAX_RANK,
                      json_array_size(shape));
  }
  t->rank = (uint32_t)json_array_size(shape);
  for (uint32_t i = 0; i < t->rank; i++) {
    t->dims[i] = natural(shape, i);
    if (t->dims[i] < 0) {
      return moec_error(MOEC_INVALID_MODEL, "expected dims that are integers >= 0, got others");
    }
  }
  int64_t begin = natural(range, 0), end = natural(range, 1);
  if (begin < 0 || end < begin || (uint64_t)end > m->size - data_start) {
    return moec_error(MOEC_INVALID_MODEL, "expected data_offsets inside the file, got others");
  }
  size_t bytes;
  moec_status *s = moec_shape_bytes(t->dtype, t->rank, t->dims, &bytes);
  if (s || bytes != (size_t)(end - begin)) {
    moec_status_free(s);
    return moec_error(MOEC_INVALID_MODEL,
                      "expected data_offsets that fit dtype and shape, got %" PRId64 " bytes",
                      end - begin);
  }
  e->file_offset = data_start + (uint64_t)begin;
  t->data = (void *)(uintptr_t)(m->data + e->file_offset);
  return NULL;
}

/* By place; of entries that begin together the empty ones come first. */
static int compare_place(const void *pa, const void *pb) {
  const moec_st_entry *a = pa, *b = pb;
  if (a->file_offset != b->file_offset) return a->file_offset < b->file_offset ? -1 : 1;
  size_t na = moec_tensor_bytes(&a->tensor), nb = moec_tensor_bytes(&b->tensor);
  if ((na == 0) != (nb == 0)) return na == 0 ? -1 : 1;
  return strcmp(a->name, b->name);
}

static int compare_name(const void *pa, const void *pb) {
  return strcmp((*(const moec_st_entry *const *)pa)->name,
                (*(const moec_st_entry *const *)pb)->name);
}

static moec_status *check_contiguous(const moec_safetensors *st, size_t data_start) {
  uint64_t at = data_start;
  for (size_t i = 0; i < st->n; i++) {
    const moec_st_entry *e = &st->entries[i];
    if (e->file_offset != at) {
      return moec_error(MOEC_INVALID_MODEL,
                        "expected tensor '%.200s' at byte %" PRIu64 ", got %" PRIu64 " (%s)",
                        e->name, at, e->file_offset, e->file_offset < at ? "an overlap" : "a hole");
    }
    at += moec_tensor_bytes(&e->tensor);
  }
  if (at == st->map.size) return NULL;
  return moec_error(MOEC_INVALID_MODEL, "expected the file to end at byte %" PRIu64 ", got %zu", at,
                    st->map.size);
}

/* __metadata__ is a map of strings; its content is nobody's business here. */
static moec_status *check_metadata(json_t *v) {
  bool good = json_is_object(v);
  const char *key;
  json_t *member;
  json_object_foreach (v, key, member) good = good && json_is_string(member);
  return good ? NULL
              : moec_error(MOEC_INVALID_MODEL, "expected __metadata__ to be a map of strings");
}

/* Room for the entries and their names. */
static moec_status *allocate(moec_safetensors *st, json_t *header) {
  size_t names = 1;
  const char *key;
  json_t *v;
  json_object_foreach (header, key, v) names += strlen(key) + 1;
  size_t n = json_object_size(header) + 1; /* never zero */
  st->entries = calloc(n, sizeof *st->entries);
  st->by_name = calloc(n, sizeof *st->by_name);
  st->names = malloc(names);
  if (st->entries && st->by_name && st->names) return NULL;
  return moec_error(MOEC_OUT_OF_MEMORY, "no memory for the header's %zu tensors", n - 1);
}

static moec_status *build(moec_safetensors *st, json_t *header, size_t data_start) {
  if (!json_is_object(header)) {
    return moec_error(MOEC_INVALID_MODEL, "expected a header that is an object, got another value");
  }
  MOEC_TRY(allocate(st, header));
  char *name = st->names;
  const char *key;
  json_t *v;
  json_object_foreach (header, key, v) {
    if (!strcmp(key, "__metadata__")) {
      MOEC_TRY(check_metadata(v));
      continue;
    }
    moec_st_entry *e = &st->entries[st->n++];
    e->name = name;
    name = stpcpy(name, key) + 1;
    MOEC_TRY(moec_context(parse_entry(v, &st->map, data_start, e), "tensor '%.200s'", key));
  }
  qsort(st->entries, st->n, sizeof *st->entries, compare_place);
  for (size_t i = 0; i < st->n; i++) st->by_name[i] = &st->entries[i];
  qsort(st->by_name, st->n, sizeof *st->by_name, compare_name);
  return check_contiguous(st, data_start);
}

static moec_status *parse(moec_safetensors *st) {
  const moec_map *m = &st->map;
  if (m->size < 10) {
    return moec_error(MOEC_INVALID_MODEL, "expected at least 10 bytes, got %zu", m->size);
  }
  uint64_t length = 0;
  for (int i = 7; i >= 0; i--) length = length << 8 | m->data[i];
  if (length > MAX_HEADER || length > m->size - 8) {
    return moec_error(MOEC_INVALID_MODEL,
                      "expected a header of at most %d bytes inside the file of %zu, got %" PRIu64,
                      MAX_HEADER, m->size, length);
  }
  if (m->data[8] != '{') {
    return moec_error(MOEC_INVALID_MODEL, "expected a header that begins with '{', got byte %d",
                      m->data[8]);
  }
  json_t *header;
  MOEC_TRY(moec_json_parse(m->data + 8, (size_t)length, &header));
  moec_status *s = build(st, header, 8 + (size_t)length);
  json_decref(header);
  return s;
}

moec_status *moec_safetensors_open(const char *path, moec_safetensors **out) {
  *out = NULL;
  moec_safetensors *st = calloc(1, sizeof *st);
  if (!st) return moec_error(MOEC_OUT_OF_MEMORY, "out of memory");
  moec_status *s = moec_map_user_file(path, &st->map);
  if (!s) s = moec_context(parse(st), "%s", path);
  if (s)
    moec_safetensors_close(st);
  else
    *out = st;
  return s;
}

void moec_safetensors_close(moec_safetensors *st) {
  if (!st) return;
  moec_unmap(&st->map);
  free(st->entries);
  free(st->by_name);
  free(st->names);
  free(st);
}

size_t moec_safetensors_count(const moec_safetensors *st) { return st->n; }

const moec_st_entry *moec_safetensors_at(const moec_safetensors *st, size_t i) {
  return i < st->n ? &st->entries[i] : NULL;
}

const moec_st_entry *moec_safetensors_find(const moec_safetensors *st, const char *name) {
  moec_st_entry wanted = {.name = name};
  const moec_st_entry *key = &wanted;
  const moec_st_entry **found =
      bsearch(&key, st->by_name, st->n, sizeof *st->by_name, compare_name);
  return found ? *found : NULL;
}
