/* Opening a model: mapped, pre-scanned, unpacked into a limited arena, checked, imported. */
#include <string.h>

#include "base/size.h"
#include "frontend/import_internal.h"

#define BAD(...) moec_error(MOEC_INVALID_MODEL, __VA_ARGS__)

/* ---- unpacking ---------------------------------------------------------------------------- */

/* protobuf-c's memory: an arena with a limit, freed as a whole. */
typedef struct limited {
  moec_arena *arena;
  size_t left;
  bool full;
} limited;

static void *limited_alloc(void *user, size_t size) {
  limited *l = user;
  size = moec_align_up(size ? size : 1, 16); /* as the arena counts */
  if (size > l->left) {
    l->full = true;
    return NULL;
  }
  l->left -= size;
  return moec_arena_alloc(l->arena, size);
}

static void limited_free(void *user, void *p) { (void)user, (void)p; }

/* Real models need up to 10 bytes of memory for one of file: names of one letter, sizes of one digit. */
static size_t memory_limit(size_t file_size) {
  const size_t least = 64u << 20, factor = 24;
  return file_size > (SIZE_MAX - least) / factor ? SIZE_MAX : file_size * factor + least;
}

static moec_status *unpack(limited *l, ProtobufCAllocator *allocator, const uint8_t *data, size_t size,
                           Onnx__ModelProto **out) {
  *out = onnx__model_proto__unpack(allocator, size, data);
  if (*out) return NULL;
  if (l->full)
    return BAD("expected a model that needs at most %zu bytes of memory to read, it needs more", memory_limit(size));
  return BAD("not an ONNX model, or damaged: protobuf cannot read it");
}

/* ---- import ------------------------------------------------------------------------------- */

static moec_status *check_settings(const moec_import *x) {
  for (size_t k = 0; k < x->options->n_dims; k++) {
    const moec_dim_setting *d = &x->options->dims[k];
    if (d->value < 0)
      return moec_error(MOEC_INVALID_ARGUMENT, "size \"%s\": expected at least 0, got %lld", d->name,
                        (long long)d->value);
    bool found = false;
    for (uint32_t i = 0; i < moec_dim_symbol_count(x->m); i++)
      found = found || strcmp(moec_dim_symbol_name(x->m, i), d->name) == 0;
    if (!found) return moec_error(MOEC_INVALID_ARGUMENT, "no input has a size \"%s\"", d->name);
  }
  return NULL;
}

static moec_status *unpack_and_import(moec_import *x, const uint8_t *data, size_t size) {
  if (size == 0) return BAD("expected an ONNX model, got an empty file");
  MOEC_TRY(moec_prescan_wire(x->m->arena, &onnx__model_proto__descriptor, data, size, &x->scan));
  limited l = {moec_arena_create(), memory_limit(size), false};
  ProtobufCAllocator allocator = {limited_alloc, limited_free, &l};
  Onnx__ModelProto *model = NULL;
  moec_status *s = unpack(&l, &allocator, data, size, &model);
  if (!s) s = moec_check_model(model, x->m->arena);
  x->model = model, x->allocator = &allocator;
  if (!s) s = moec_import_main(x);
  if (!s) s = check_settings(x);
  moec_arena_destroy(l.arena);
  return s;
}

static moec_status *import_data(const uint8_t *data, size_t size, const char *dir, const moec_import_options *options,
                                moec_module *m) {
  moec_import x = {.m = m, .options = options, .dir = dir};
  moec_file self = {.map = {.data = data, .size = size}}; /* no name: inline data; the caller says who unmaps it */
  x.model_file = (uint32_t)m->n_files;
  MOEC_PUSH(m->arena, m->files, m->n_files, m->cap_files, self);
  moec_status *s = unpack_and_import(&x, data, size);
  moec_status_free(moec_builder_end(&x.b));
  moec_buf_fini(&x.unsupported);
  return s;
}

moec_status *moec_import_onnx_memory(const void *data, size_t size, moec_module **out) {
  const moec_import_options options = {0};
  moec_module *m = moec_module_create();
  *out = NULL;
  moec_status *s = import_data(data, size, NULL, &options, m);
  if (s) moec_module_destroy(m);
  else *out = m;
  return s;
}

moec_status *moec_import_onnx(const char *path, const moec_import_options *options, moec_module **out) {
  moec_map map;
  *out = NULL;
  MOEC_TRY(moec_map_user_file(path, &map));
  moec_module *m = moec_module_create();
  const char *slash = strrchr(path, '/'), *dir = options->weights_dir;
  m->name = moec_sym_make(m, slash ? slash + 1 : path);
  if (!dir) dir = slash ? moec_arena_printf(m->arena, "%.*s", (int)(slash - path + (slash == path)), path) : ".";
  moec_status *s = import_data(map.data, map.size, dir, options, m);
  if (m->n_files) m->files[0] = (moec_file){.map = map, .owned = true};
  if (!m->n_files) moec_unmap(&map);
  if (s) moec_module_destroy(m);
  else *out = m;
  return moec_context(s, "%s", path);
}
