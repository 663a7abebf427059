/* Finding tensors in a checkpoint, and accounting for all of them. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "models/checkpoint_internal.h"

#define BAD(...) moec_error(MOEC_INVALID_MODEL, __VA_ARGS__)
enum { MAX_LISTED = 8 };

static moec_checkpoint *create(const char *dir) {
  moec_arena *arena = moec_arena_create();
  moec_checkpoint *ck = MOEC_NEW(arena, moec_checkpoint);
  ck->arena = arena;
  ck->dir = moec_arena_strdup(arena, dir);
  ck->used = json_object();
  return ck;
}

void moec_checkpoint_close(moec_checkpoint *ck) {
  if (!ck) return;
  for (size_t i = 0; i < ck->n_shards; i++) moec_safetensors_close(ck->shards[i].st);
  json_decref(ck->used);
  json_decref(ck->map);
  moec_arena_destroy(ck->arena);
}

moec_checkpoint *moec_checkpoint_plan(moec_dtype dtype) {
  moec_checkpoint *ck = create("");
  ck->planned = dtype;
  return ck;
}

moec_checkpoint *moec_checkpoint_made(moec_dtype dtype, uint64_t seed, double deviation) {
  moec_checkpoint *ck = moec_checkpoint_plan(dtype);
  ck->made = true, ck->seed = seed, ck->deviation = deviation;
  return ck;
}

/* ---- files -------------------------------------------------------------------------------- */

static moec_status *open_shard(moec_checkpoint *ck, const char *name, const moec_shard **out) {
  for (size_t i = 0; i < ck->n_shards; i++)
    if (strcmp(ck->shards[i].name, name) == 0) {
      *out = &ck->shards[i];
      return NULL;
    }
  moec_shard s = {.name = moec_arena_strdup(ck->arena, name)};
  MOEC_TRY(moec_safetensors_open(moec_arena_printf(ck->arena, "%s/%s", ck->dir, name), &s.st));
  MOEC_PUSH(ck->arena, ck->shards, ck->n_shards, ck->cap_shards, s);
  *out = &ck->shards[ck->n_shards - 1];
  return NULL;
}

/* weight_map: {"tensor": "file"}; files lie in the folder itself. */
static moec_status *check_weight_map(const json_t *map) {
  const char *key;
  json_t *value;
  if (!json_is_object(map)) return BAD("weight_map: expected an object of file names");
  json_object_foreach((json_t *)(uintptr_t)map, key, value) {
    const char *file = json_string_value(value);
    if (!file) return BAD("weight_map: \"%s\": expected a file name", key);
    size_t n = strlen(file);
    if (n == 0 || file[0] == '.' || strchr(file, '/') || strchr(file, '\\'))
      return BAD("weight_map: \"%s\": expected the plain name of a file in the folder, got \"%s\"", key, file);
    if (n < 12 || strcmp(file + n - 12, ".safetensors") != 0)
      return moec_error(MOEC_UNSUPPORTED, "weight_map: \"%s\": expected a .safetensors file, got \"%s\"", key, file);
  }
  return NULL;
}

static moec_status *read_index(moec_checkpoint *ck, const char *path) {
  moec_map map;
  json_t *root = NULL;
  MOEC_TRY(moec_map_user_file(path, &map));
  moec_status *s = moec_json_parse(map.data, map.size, &root);
  moec_unmap(&map);
  if (!s && !json_is_object(root)) s = BAD("expected an object");
  json_t *weights = json_object_get(root, "weight_map");
  if (!s) s = check_weight_map(weights);
  if (!s) ck->map = json_incref(weights);
  json_decref(root);
  return moec_context(s, "%s", path);
}

moec_status *moec_checkpoint_open(const char *dir, moec_checkpoint **out) {
  moec_checkpoint *ck = create(dir);
  const char *single = moec_arena_printf(ck->arena, "%s/model.safetensors", dir);
  const char *index = moec_arena_printf(ck->arena, "%s/model.safetensors.index.json", dir);
  const moec_shard *shard;
  moec_status *s = NULL;
  *out = NULL;
  if (access(single, F_OK) == 0) s = open_shard(ck, "model.safetensors", &shard);
  else if (access(index, F_OK) == 0) s = read_index(ck, index);
  else
    s = moec_error(MOEC_INVALID_ARGUMENT, "%s: expected model.safetensors or model.safetensors.index.json there", dir);
  if (s) moec_checkpoint_close(ck);
  else *out = ck;
  return s;
}

moec_status *moec_checkpoint_open_file(const char *path, moec_checkpoint **out) {
  const char *slash = strrchr(path, '/');
  moec_checkpoint *ck = create("");
  const moec_shard *shard;
  ck->dir = slash ? moec_arena_printf(ck->arena, "%.*s", (int)(slash - path + (slash == path)), path) : ".";
  moec_status *s = open_shard(ck, slash ? slash + 1 : path, &shard);
  *out = s ? NULL : ck;
  if (s) moec_checkpoint_close(ck);
  return s;
}

/* ---- tensors ------------------------------------------------------------------------------ */

bool moec_ck_has(const moec_checkpoint *ck, const char *name) {
  if (ck->planned) return false;
  return ck->map ? json_object_get(ck->map, name) != NULL : moec_safetensors_find(ck->shards[0].st, name) != NULL;
}

/* The tensor called |name| and its file. */
static moec_status *look_up(moec_checkpoint *ck, const char *name, const moec_shard **shard, const moec_st_entry **e) {
  if (ck->map) {
    const char *file = json_string_value(json_object_get(ck->map, name));
    if (!file) return BAD("model.safetensors.index.json: tensor \"%s\" is missing", name);
    MOEC_TRY(open_shard(ck, file, shard));
  } else {
    *shard = &ck->shards[0];
  }
  *e = moec_safetensors_find((*shard)->st, name);
  return *e ? NULL : BAD("%s: tensor \"%s\" is missing", (*shard)->name, name);
}

static const char *shape_text(moec_arena *a, uint32_t rank, const int64_t *dims) {
  char *text = moec_arena_strdup(a, "");
  for (uint32_t i = 0; i < rank; i++) text = moec_arena_printf(a, "%s%s%lld", text, i ? ", " : "", (long long)dims[i]);
  return moec_arena_printf(a, "[%s]", text);
}

static moec_status *plan(moec_checkpoint *ck, const char *name, moec_ck_init init, uint32_t rank, const int64_t *dims,
                         moec_ck_tensor *out) {
  moec_planned p = {.name = moec_arena_strdup(ck->arena, name), .init = init, .rank = rank};
  memcpy(p.dims, dims, rank * sizeof *dims);
  MOEC_TRY(moec_context(moec_shape_bytes(ck->planned, rank, dims, &p.bytes), "tensor \"%s\"", name));
  if (!json_object_get(ck->used, name)) MOEC_PUSH(ck->arena, ck->plans, ck->n_plans, ck->cap_plans, p);
  json_object_set_new(ck->used, name, json_true());
  *out = (moec_ck_tensor){ck->planned, "planned", 0};
  if (!ck->made) return NULL;
  char text[MOEC_FRESH_TEXT];
  moec_fresh_print(&(moec_fresh){(moec_fresh_kind)init, ck->deviation}, text);
  out->file = moec_arena_strdup(ck->arena, text);
  out->offset = moec_fresh_start(ck->seed, name);
  return NULL;
}

moec_status *moec_ck_find(moec_checkpoint *ck, const char *name, moec_ck_init init, uint32_t rank, const int64_t *dims,
                          moec_ck_tensor *out) {
  const moec_shard *shard;
  const moec_st_entry *e;
  if (ck->planned) return plan(ck, name, init, rank, dims, out);
  MOEC_TRY(look_up(ck, name, &shard, &e));
  const moec_tensor *t = &e->tensor;
  if (t->dtype != MOEC_F32 && t->dtype != MOEC_BF16 && t->dtype != MOEC_F16)
    return moec_error(MOEC_UNSUPPORTED, "%s: tensor \"%s\": expected f32, bf16 or f16, got %s", shard->name, name,
                      moec_dtype_get(t->dtype)->text);
  if (t->rank != rank || memcmp(t->dims, dims, rank * sizeof *dims) != 0)
    return BAD("%s: tensor \"%s\": expected shape %s, got %s", shard->name, name, shape_text(ck->arena, rank, dims),
               shape_text(ck->arena, t->rank, t->dims));
  json_object_set_new(ck->used, name, json_true());
  *out = (moec_ck_tensor){t->dtype, shard->name, e->file_offset};
  return NULL;
}

/* ---- what nobody asked for ------------------------------------------------------------------ */

static void note_unused(const moec_checkpoint *ck, const char *name, size_t *n, moec_buf *b) {
  if (json_object_get(ck->used, name)) return;
  if ((*n)++ < MAX_LISTED) moec_buf_printf(b, "%s%s", *n > 1 ? ", " : "", name);
}

void moec_ck_unused(const moec_checkpoint *ck, moec_buf *out) {
  moec_buf b = {0};
  size_t n = 0;
  const char *key;
  json_t *value;
  if (ck->map) {
    json_object_foreach(ck->map, key, value) note_unused(ck, key, &n, &b);
  } else if (ck->n_shards) {
    for (size_t i = 0; i < moec_safetensors_count(ck->shards[0].st); i++)
      note_unused(ck, moec_safetensors_at(ck->shards[0].st, i)->name, &n, &b);
  }
  if (n)
    moec_buf_printf(out, "%zu tensor%s of the checkpoint not used: %s%s\n", n, n == 1 ? "" : "s", moec_buf_str(&b),
                    n > MAX_LISTED ? ", ..." : "");
  moec_buf_fini(&b);
}
