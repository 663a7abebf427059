/* Checkpoints as the hub has them: text models inside models that see images, names of released files, shards,
 * caches of symbolic links, half precision. All are made from the references of tests/data and must give the same
 * logits. */
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"
#include "models/models.h"
#include "tests/support/run.h"

enum { MAX_TENSORS = 1024, SHARDS = 2 };

/* The tensors of a checkpoint being made; data belongs to |source|, or to |own|. */
typedef struct hub {
  moec_safetensors *source;
  char *names[MAX_TENSORS];
  moec_tensor tensors[MAX_TENSORS];
  bool own[MAX_TENSORS];
  size_t n;
} hub;

static void put(hub *h, const char *name, moec_tensor t, bool own) {
  ck_assert_uint_lt(h->n, MAX_TENSORS);
  h->names[h->n] = strdup(name);
  h->own[h->n] = own;
  h->tensors[h->n++] = t;
}

/* Rows [from, from + count) of |t|, borrowed. */
static moec_tensor rows(const moec_tensor *t, int64_t from, int64_t count) {
  moec_tensor r = *t;
  r.data = (char *)t->data + moec_tensor_bytes(t) / (size_t)t->dims[0] * (size_t)from;
  r.dims[0] = count;
  return r;
}

static moec_tensor without_first_axis(moec_tensor t) {
  memmove(t.dims, t.dims + 1, --t.rank * sizeof *t.dims);
  return t;
}

static void replace(char *name, size_t size, const char *from, const char *to) {
  char *at = strstr(name, from), rest[256];
  if (!at) return;
  snprintf(rest, sizeof rest, "%s", at + strlen(from));
  snprintf(at, size - (size_t)(at - name), "%s%s", to, rest);
}

/* ---- names --------------------------------------------------------------------------------------- */

/* Stacked experts one by one: gate and up [E, 2I, H], or down [E, H, I]. */
static void put_experts(hub *h, const char *module, const moec_tensor *t, bool both) {
  char name[256];
  for (int64_t e = 0; e < t->dims[0]; e++) {
    moec_tensor one = without_first_axis(rows(t, e, 1));
    for (int i = 0; i < (both ? 2 : 1); i++) {
      snprintf(name, sizeof name, "%s.%lld.%s.weight", module, (long long)e, !both ? "w2" : i ? "w3" : "w1");
      put(h, name, both ? rows(&one, i * (one.dims[0] / 2), one.dims[0] / 2) : one, false);
    }
  }
}

static void put_minimax(hub *h, const char *source, const moec_tensor *t) {
  char name[256], *at;
  snprintf(name, sizeof name, "language_model.%s", source);
  if (!strstr(name, "layers.0.")) replace(name, sizeof name, ".mlp.", ".block_sparse_moe.");
  replace(name, sizeof name, ".indexer.", ".index_");
  replace(name, sizeof name, ".gate.e_score", ".e_score");
  if ((at = strstr(name, ".experts.gate_up_proj"))) {
    at[8] = '\0';
    put_experts(h, name, t, true);
  } else if ((at = strstr(name, ".experts.down_proj"))) {
    at[8] = '\0';
    put_experts(h, name, t, false);
  } else if (strstr(name, ".gate_up_proj")) {
    replace(name, sizeof name, "gate_up_proj", "gate_proj");
    put(h, name, rows(t, 0, t->dims[0] / 2), false);
    replace(name, sizeof name, "gate_proj", "up_proj");
    put(h, name, rows(t, t->dims[0] / 2, t->dims[0] / 2), false);
  } else {
    put(h, name, *t, false);
  }
}

/* All experts of a layer in one tensor: gate and up of one expert behind each other, or down. */
static void put_fused(hub *h, const char *layer, const char *what, int64_t experts) {
  static const char *const parts[2][2] = {{"gate_proj", "up_proj"}, {"down_proj", NULL}};
  bool down = strcmp(what, "down_proj") == 0;
  char name[256];
  moec_tensor whole = {0};
  size_t at = 0;
  for (int64_t e = 0; e < experts; e++)
    for (int p = 0; p < 2 && parts[down][p]; p++) {
      snprintf(name, sizeof name, "%s.mlp.experts.%lld.%s.weight", layer, (long long)e, parts[down][p]);
      const moec_st_entry *x = moec_safetensors_find(h->source, name);
      if (!x) ck_abort_msg("no %s", name);
      const int64_t dims[3] = {experts, x->tensor.dims[0] * (down ? 1 : 2), x->tensor.dims[1]};
      if (!whole.data) UNIT_OK(moec_tensor_init(&whole, x->tensor.dtype, 3, dims));
      memcpy((char *)whole.data + at, x->tensor.data, moec_tensor_bytes(&x->tensor));
      at += moec_tensor_bytes(&x->tensor);
    }
  snprintf(name, sizeof name, "%s.mlp.experts.%s", layer, what);
  replace(name, sizeof name, "model.", "model.language_model.");
  put(h, name, whole, true);
}

static void put_qwen(hub *h, const char *source, const moec_tensor *t) {
  char name[256], *end;
  snprintf(name, sizeof name, "%s", source);
  if ((end = strstr(name, ".mlp.experts."))) {
    if (!strstr(name, ".experts.0.gate_proj")) return;
    *end = '\0';
    put_fused(h, name, "gate_up_proj", 8);
    put_fused(h, name, "down_proj", 8);
    return;
  }
  replace(name, sizeof name, "model.", "model.language_model.");
  put(h, name, *t, false);
}

static void put_as(hub *h, const char *source, const moec_tensor *t, moec_dtype dtype) {
  moec_tensor to;
  UNIT_OK(moec_tensor_init(&to, dtype, t->rank, t->dims));
  for (size_t i = 0; i < (size_t)moec_tensor_numel(t); i++)
    moec_store_f64(dtype, to.data, i, moec_load_f64(t->dtype, t->data, i));
  put(h, source, to, true);
}

static void put_bf16(hub *h, const char *source, const moec_tensor *t) { put_as(h, source, t, MOEC_BF16); }
static void put_f16(hub *h, const char *source, const moec_tensor *t) { put_as(h, source, t, MOEC_F16); }

/* ---- configurations -------------------------------------------------------------------------------- */

static json_t *wrapped(const char *type, json_t *text) {
  return json_pack("{s:s, s:[s], s:o, s:{s:i}, s:b}", "model_type", type, "architectures", "ForConditionalGeneration",
                   "text_config", text, "vision_config", "depth", 2, "tie_word_embeddings", 0);
}

/* Lists by layer and the indexer's sizes as the released file has them. */
static json_t *minimax_config(json_t *text) {
  static const char *const gone[] = {"layer_types", "mlp_layer_types", "index_n_heads", "index_head_dim",
                                     "index_block_size", "index_topk_blocks", "index_local_blocks"};
  json_t *sparse = json_pack(
      "{s:b, s:O, s:O, s:O, s:O, s:O, s:s, s:i, s:[iii], s:[iii]}", "use_sparse_attention", 1, "sparse_num_index_heads",
      json_object_get(text, gone[2]), "sparse_index_dim", json_object_get(text, gone[3]), "sparse_block_size",
      json_object_get(text, gone[4]), "sparse_topk_blocks", json_object_get(text, gone[5]), "sparse_local_block",
      json_object_get(text, gone[6]), "sparse_score_type", "max", "sparse_init_block", 0, "sparse_attention_freq", 0, 0,
      1, "sparse_disable_index_value", 0, 0, 1);
  ck_assert_ptr_nonnull(sparse);
  for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) json_object_del(text, gone[i]);
  json_object_set_new(text, "sparse_attention_config", sparse);
  json_object_set_new(text, "moe_layer_freq", json_pack("[iii]", 0, 1, 1));
  return wrapped("minimax_m3_vl", text);
}

static json_t *qwen_config(json_t *text) { return wrapped("qwen3_5_moe", text); }
static json_t *same_config(json_t *text) { return text; }

/* ---- files --------------------------------------------------------------------------------------- */

static void link_blob(const char *dir, const char *name) {
  char from[256], to[256], target[256];
  snprintf(from, sizeof from, "%s/snapshots/1/%s", dir, name);
  snprintf(to, sizeof to, "%s/blobs/of-%s", dir, name);
  snprintf(target, sizeof target, "../../blobs/of-%s", name);
  ck_assert_int_eq(rename(from, to), 0);
  ck_assert_int_eq(symlink(target, from), 0);
}

static void write_json(const char *path, json_t *v) {
  char *text = json_dumps(v, JSON_INDENT(1));
  ck_assert_ptr_nonnull(text);
  UNIT_OK(moec_write_file(path, text, strlen(text), 0644));
  free(text);
  json_decref(v);
}

/* The first half of the tensors in one shard, the second in another; all files are links into blobs/. */
static void write_shards(const hub *h, const char *dir) {
  char name[64], path[256];
  json_t *map = json_object();
  for (size_t i = 0; i < SHARDS; i++) {
    size_t begin = h->n * i / SHARDS, end = h->n * (i + 1) / SHARDS;
    snprintf(name, sizeof name, "model-%05zu-of-%05d.safetensors", i + 1, SHARDS);
    snprintf(path, sizeof path, "%s/snapshots/1/%s", dir, name);
    UNIT_OK(moec_safetensors_write(path, end - begin, (const char *const *)h->names + begin, h->tensors + begin));
    for (size_t k = begin; k < end; k++) json_object_set_new(map, h->names[k], json_string(name));
    link_blob(dir, name);
  }
  snprintf(path, sizeof path, "%s/snapshots/1/model.safetensors.index.json", dir);
  write_json(path, json_pack("{s:{s:i}, s:o}", "metadata", "total_size", 1, "weight_map", map));
  link_blob(dir, "model.safetensors.index.json");
}

static json_t *read_config(const char *family) {
  char path[256];
  moec_map map;
  json_t *v;
  snprintf(path, sizeof path, "tests/data/%s/config.json", family);
  UNIT_OK(moec_map_user_file(path, &map));
  UNIT_OK(moec_json_parse(map.data, map.size, &v));
  moec_unmap(&map);
  return v;
}

static void make_folders(const char *dir) {
  static const char *const folders[] = {"blobs", "snapshots", "snapshots/1"};
  char path[256];
  for (size_t i = 0; i < 3; i++) ck_assert_int_eq(mkdir(unit_path(path, dir, folders[i]), 0755), 0);
}

/* ---- the test -------------------------------------------------------------------------------------- */

static const struct {
  const char *family;
  void (*put)(hub *h, const char *source, const moec_tensor *t);
  json_t *(*config)(json_t *text);
  double bound; /* relative L2 of the logits */
} cases[] = {{"minimax_m3", put_minimax, minimax_config, 1e-5},
             {"qwen3_5_moe", put_qwen, qwen_config, 1e-4},
             {"qwen3_moe", put_bf16, same_config, 5e-2},
             {"qwen3_moe", put_f16, same_config, 1e-2}};
enum { N_CASES = sizeof cases / sizeof *cases };

static void make_checkpoint(int c, const char *dir) {
  char path[256];
  static hub h; /* large */
  memset(&h, 0, sizeof h);
  snprintf(path, sizeof path, "tests/data/%s/model.safetensors", cases[c].family);
  UNIT_OK(moec_safetensors_open(path, &h.source));
  for (size_t i = 0; i < moec_safetensors_count(h.source); i++) {
    const moec_st_entry *e = moec_safetensors_at(h.source, i);
    cases[c].put(&h, e->name, &e->tensor);
  }
  make_folders(dir);
  write_shards(&h, dir);
  snprintf(path, sizeof path, "%s/snapshots/1/config.json", dir);
  write_json(path, cases[c].config(read_config(cases[c].family)));
  link_blob(dir, "config.json");
  for (size_t i = 0; i < h.n; i++) {
    free(h.names[i]);
    if (h.own[i]) moec_tensor_fini(&h.tensors[i]);
  }
  moec_safetensors_close(h.source);
}

START_TEST(released_layouts_give_the_same_logits) {
  char *dir = unit_folder(), path[256], model[256], golden[256];
  moec_safetensors *st;
  moec_tensor logits;
  moec_buf remarks = {0};
  make_checkpoint(_i, dir);
  snprintf(model, sizeof model, "%s/snapshots/1/model.onnx", dir);
  snprintf(path, sizeof path, "%s/snapshots/1", dir);
  const moec_checkpoint_options options = {.output = model};
  UNIT_OK(moec_import_checkpoint(path, &options, &remarks));
  const char *images = "config.json: keys without a meaning for moec, not used: vision_config\n";
  const char *expected = cases[_i].config == same_config ? "" : images;
  ck_assert_str_eq(remarks.size ? moec_buf_str(&remarks) : "", expected);
  snprintf(golden, sizeof golden, "tests/data/%s/golden.safetensors", cases[_i].family);
  UNIT_OK(moec_safetensors_open(golden, &st));
  UNIT_OK(moec_npy_write(unit_path(path, dir, "ids.npy"), &moec_safetensors_find(st, "input_ids")->tensor));
  RUN_OK(dir, "$MOEC compile %s -o %s/exe --target cpu --weights %s/snapshots/1", model, dir, dir);
  RUN_OK(dir, "MOEC_WEIGHTS=%s/snapshots/1 %s/exe run --input input_ids=%s/ids.npy --output logits=%s/logits.npy", dir,
         dir, dir, dir);
  UNIT_OK(moec_npy_read(unit_path(path, dir, "logits.npy"), &logits));
  double error = relative_l2(&logits, &moec_safetensors_find(st, "logits")->tensor);
  printf("%s: logits off by %.3g (relative L2)\n", cases[_i].family, error);
  if (!(error <= cases[_i].bound)) ck_abort_msg("%s: logits off by %g", cases[_i].family, error);
  moec_tensor_fini(&logits);
  moec_safetensors_close(st);
  moec_buf_fini(&remarks);
  unit_remove(dir);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("hub");
  TCase *tcase = tcase_create("hub");
  tcase_set_timeout(tcase, 0);
  tcase_add_loop_test(tcase, released_layouts_give_the_same_logits, 0, N_CASES);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
