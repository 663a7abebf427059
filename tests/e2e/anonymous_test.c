/* The partition does not depend on what a file calls things: after renaming every value and node,
 * dropping all metadata and shuffling nodes and initializers, `inspect --format json` is the same
 * up to names. */
#include <jansson.h>

#include "base/arena.h"
#include "frontend/frontend.h" /* for the generated onnx.pb-c.h */
#include "onnx.pb-c.h"
#include "tests/support/run.h"

static const char *const models[] = {"qwen3_moe/model",  "qwen3_moe/model_train",   "qwen3_moe/model_bf16",
                                     "mixtral/model",    "deepseek_v3/model",       "gpt_oss/model",
                                     "minimax_m3/model", "qwen3_5_moe/model_static"};
enum { N_MODELS = sizeof models / sizeof *models };

static uint64_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

static bool is_interface(const Onnx__GraphProto *g, const char *name) {
  for (size_t i = 0; i < g->n_input; i++)
    if (strcmp(g->input[i]->name, name) == 0) return true;
  for (size_t i = 0; i < g->n_output; i++)
    if (strcmp(g->output[i]->name, name) == 0) return true;
  return false;
}

/* The message lives in an arena: it is edited freely and freed as a whole. */
static void *arena_alloc(void *arena, size_t size) { return moec_arena_alloc(arena, size ? size : 1); }
static void arena_free(void *arena, void *p) { (void)arena, (void)p; }

/* A new name that depends on the old one only: equal names stay equal. */
static void rename_value(moec_arena *a, const Onnx__GraphProto *g, char **name) {
  if (!**name || is_interface(g, *name)) return;
  uint64_t h = moec_hash(MOEC_HASH_SEED, *name, strlen(*name)) * 2654435761u;
  *name = moec_arena_printf(a, "v%016llx", (unsigned long long)h);
}

static void shuffle(void **items, size_t n, uint64_t *state) {
  for (size_t i = n; i > 1; i--) {
    size_t k = next_random(state) % i;
    void *swap = items[i - 1];
    items[i - 1] = items[k];
    items[k] = swap;
  }
}

static void anonymise(moec_arena *a, Onnx__ModelProto *m) {
  Onnx__GraphProto *g = m->graph;
  uint64_t state = 11;
  for (size_t i = 0; i < g->n_node; i++) {
    Onnx__NodeProto *n = g->node[i];
    for (size_t k = 0; k < n->n_input; k++) rename_value(a, g, &n->input[k]);
    for (size_t k = 0; k < n->n_output; k++) rename_value(a, g, &n->output[k]);
    n->doc_string = NULL;
    n->name = moec_arena_printf(a, "n%llu", (unsigned long long)next_random(&state));
    n->base.n_unknown_fields = 0; /* metadata_props */
  }
  for (size_t i = 0; i < g->n_initializer; i++) rename_value(a, g, &g->initializer[i]->name);
  g->n_value_info = 0;
  g->base.n_unknown_fields = 0;
  m->n_metadata_props = 0;
  shuffle((void **)g->node, g->n_node, &state);
  shuffle((void **)g->initializer, g->n_initializer, &state);
}

/* The model |path|, anonymous, as |dir|/model.onnx. */
static void write_anonymous(const char *path, const char *dir) {
  moec_map file;
  char out[256];
  UNIT_OK(moec_map_user_file(path, &file));
  moec_arena *a = moec_arena_create();
  ProtobufCAllocator allocator = {arena_alloc, arena_free, a};
  Onnx__ModelProto *m = onnx__model_proto__unpack(&allocator, file.size, file.data);
  ck_assert_ptr_nonnull(m);
  anonymise(a, m);
  uint8_t *bytes = malloc(onnx__model_proto__get_packed_size(m));
  size_t size = onnx__model_proto__pack(m, bytes);
  UNIT_OK(moec_write_file(unit_path(out, dir, "model.onnx"), bytes, size, 0644));
  free(bytes);
  moec_arena_destroy(a);
  moec_unmap(&file);
}

static json_t *inspect(const char *dir, const char *path) {
  char out[256];
  json_error_t error;
  RUN_OK(dir, "$MOEC inspect %s --format json -o %s/report.json", path, dir);
  json_t *report = json_load_file(unit_path(out, dir, "report.json"), 0, &error);
  ck_assert_ptr_nonnull(report);
  return report;
}

/* Fields that hold names of the source. */
static bool names_source(const char *key) {
  static const char *const keys[] = {"model", "name", "fc1", "fc2", "router", "remarks", "where", "node", "weights"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (strcmp(keys[i], key) == 0) return true;
  return false;
}

static void check_same(const json_t *a, const json_t *b, const char *key) {
  if (json_typeof(a) != json_typeof(b)) ck_abort_msg("\"%s\" changes its type", key);
  if (json_is_object(a)) {
    const char *k;
    json_t *v;
    ck_assert_uint_eq(json_object_size(a), json_object_size(b));
    json_object_foreach((json_t *)(uintptr_t)a, k, v) {
      json_t *w = json_object_get(b, k);
      if (!w) ck_abort_msg("\"%s\" is missing", k);
      check_same(v, w, k);
    }
  } else if (json_is_array(a)) {
    if (json_array_size(a) != json_array_size(b)) ck_abort_msg("\"%s\" changes its length", key);
    for (size_t i = 0; i < json_array_size(a); i++) check_same(json_array_get(a, i), json_array_get(b, i), key);
  } else if (!json_equal(a, b) && !(json_is_string(a) && names_source(key))) {
    char *x = json_dumps(a, JSON_ENCODE_ANY), *y = json_dumps(b, JSON_ENCODE_ANY);
    ck_abort_msg("\"%s\": %s became %s", key, x, y);
  }
}

START_TEST(names_and_order_do_not_matter) {
  char *dir = unit_folder(), path[256], out[256];
  snprintf(path, sizeof path, "tests/data/%s.onnx", models[_i]);
  json_t *before = inspect(dir, path);
  write_anonymous(path, dir);
  json_t *after = inspect(dir, unit_path(out, dir, "model.onnx"));
  ck_assert_uint_gt(json_array_size(json_object_get(before, "moe_layers")), 0);
  check_same(before, after, "report");
  json_decref(before);
  json_decref(after);
  unit_remove(dir);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("anonymous");
  TCase *tcase = tcase_create("anonymous");
  tcase_set_timeout(tcase, 0);
  tcase_add_loop_test(tcase, names_and_order_do_not_matter, 0, N_MODELS);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
