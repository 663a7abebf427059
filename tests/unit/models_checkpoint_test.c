/* Folders of weights: one file or shards, hostile indexes, shapes, unused tensors, seeded random files. */
#include <sys/stat.h>

#include "base/safetensors.h"
#include "models/checkpoint.h"
#include "tests/unit/unit.h"

static void put(const char *dir, const char *name, const char *text) {
  char path[256];
  UNIT_OK(moec_write_file(unit_path(path, dir, name), text, strlen(text), 0644));
}

/* A file with f32 [2, 3] tensors of these names. */
static void put_tensors(const char *dir, const char *name, size_t n, const char *const *names) {
  static float data[6] = {0, 1, 2, 3, 4, 5};
  moec_tensor t[4];
  char path[256];
  for (size_t i = 0; i < n; i++) t[i] = (moec_tensor){.dtype = MOEC_F32, .rank = 2, .dims = {2, 3}, .data = data};
  UNIT_OK(moec_safetensors_write(unit_path(path, dir, name), n, names, t));
}

static moec_status *find(moec_checkpoint *ck, const char *name, int64_t a, int64_t b, moec_ck_tensor *out) {
  const int64_t dims[2] = {a, b};
  return moec_ck_find(ck, name, MOEC_CK_NORMAL, 2, dims, out);
}

START_TEST(one_file) {
  static const char *const names[] = {"a", "b", "c"};
  char *dir = unit_folder();
  moec_checkpoint *ck;
  moec_ck_tensor t;
  moec_buf unused = {0};
  put_tensors(dir, "model.safetensors", 3, names);
  UNIT_OK(moec_checkpoint_open(dir, &ck));
  ck_assert(moec_ck_has(ck, "a") && !moec_ck_has(ck, "z"));
  UNIT_OK(find(ck, "b", 2, 3, &t));
  ck_assert_str_eq(t.file, "model.safetensors");
  ck_assert_int_eq(t.dtype, MOEC_F32);
  ck_assert_uint_eq(t.offset % 4, 0);
  UNIT_FAILS(find(ck, "a", 3, 2, &t), MOEC_INVALID_MODEL, "tensor \"a\": expected shape [3, 2], got [2, 3]");
  UNIT_FAILS(find(ck, "z", 2, 3, &t), MOEC_INVALID_MODEL, "tensor \"z\" is missing");
  moec_ck_unused(ck, &unused);
  ck_assert_str_eq(moec_buf_str(&unused), "2 tensors of the checkpoint not used: a, c\n");
  moec_buf_fini(&unused);
  moec_checkpoint_close(ck);
  unit_remove(dir);
}
END_TEST

START_TEST(integers_are_no_weights) {
  static int64_t data[6];
  const char *name = "a";
  moec_tensor t = {.dtype = MOEC_I64, .rank = 2, .dims = {2, 3}, .data = data};
  char *dir = unit_folder(), path[256];
  moec_checkpoint *ck;
  moec_ck_tensor found;
  UNIT_OK(moec_safetensors_write(unit_path(path, dir, "model.safetensors"), 1, &name, &t));
  UNIT_OK(moec_checkpoint_open(dir, &ck));
  UNIT_FAILS(find(ck, "a", 2, 3, &found), MOEC_UNSUPPORTED, "tensor \"a\": expected f32, bf16 or f16, got i64");
  moec_checkpoint_close(ck);
  unit_remove(dir);
}
END_TEST

START_TEST(shards_and_links) {
  static const char *const first[] = {"a"}, *const second[] = {"b"};
  char *dir = unit_folder(), path[256], to[256];
  moec_checkpoint *ck;
  moec_ck_tensor t;
  put_tensors(dir, "blob", 1, first); /* hub caches are links into a store */
  ck_assert_int_eq(symlink(unit_path(to, dir, "blob"), unit_path(path, dir, "model-1.safetensors")), 0);
  put_tensors(dir, "model-2.safetensors", 1, second);
  put(dir, "model.safetensors.index.json",
      "{\"metadata\": {}, \"weight_map\": {\"a\": \"model-1.safetensors\", \"b\": \"model-2.safetensors\", \"c\": "
      "\"model-2.safetensors\", "
      "\"d\": \"model-3.safetensors\"}}");
  UNIT_OK(moec_checkpoint_open(dir, &ck));
  UNIT_OK(find(ck, "a", 2, 3, &t));
  ck_assert_str_eq(t.file, "model-1.safetensors");
  UNIT_OK(find(ck, "b", 2, 3, &t));
  ck_assert_str_eq(t.file, "model-2.safetensors");
  UNIT_FAILS(find(ck, "c", 2, 3, &t), MOEC_INVALID_MODEL, "model-2.safetensors: tensor \"c\" is missing");
  UNIT_FAILS(find(ck, "d", 2, 3, &t), MOEC_INVALID_ARGUMENT, "model-3.safetensors");
  UNIT_FAILS(find(ck, "e", 2, 3, &t), MOEC_INVALID_MODEL, "index.json: tensor \"e\" is missing");
  moec_checkpoint_close(ck);
  unit_remove(dir);
}
END_TEST

START_TEST(hostile_indexes) {
  static const struct { const char *text, *expected; } cases[] = {
      {"[]", "expected an object"},
      {"{}", "weight_map: expected an object"},
      {"{\"weight_map\": []}", "weight_map: expected an object"},
      {"{\"weight_map\": {\"a\": 1}}", "\"a\": expected a file name"},
      {"{\"weight_map\": {\"a\": \"../x.safetensors\"}}", "plain name"},
      {"{\"weight_map\": {\"a\": \"/etc/x.safetensors\"}}", "plain name"},
      {"{\"weight_map\": {\"a\": \"sub/x.safetensors\"}}", "plain name"},
      {"{\"weight_map\": {\"a\": \"\"}}", "plain name"},
      {"{\"weight_map\": {\"a\": \"..\"}}", "plain name"},
      {"{\"weight_map\": {\"a\": \"x.bin\"}}", "expected a .safetensors file"},
      {"{\"weight_map\": {\"a\": \"x\", \"a\": \"y\"}}", "index.json"},
      {"{\"weight_map\": ", "index.json"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *dir = unit_folder();
    moec_checkpoint *ck;
    put(dir, "model.safetensors.index.json", cases[i].text);
    moec_status *s = moec_checkpoint_open(dir, &ck);
    if (!s || !strstr(moec_status_message(s), cases[i].expected))
      ck_abort_msg("%s: got %s", cases[i].text, moec_status_message(s));
    ck_assert_int_eq(moec_status_exit(s), 2);
    moec_status_free(s);
    ck_assert_ptr_null(ck);
    unit_remove(dir);
  }
}
END_TEST

START_TEST(nothing_there_or_no_safetensors) {
  char *dir = unit_folder();
  moec_checkpoint *ck;
  UNIT_FAILS(moec_checkpoint_open(dir, &ck), MOEC_INVALID_ARGUMENT,
             "expected model.safetensors or model.safetensors.index.json");
  put(dir, "model.safetensors", "\x08");
  UNIT_FAILS(moec_checkpoint_open(dir, &ck), MOEC_INVALID_MODEL, "model.safetensors");
  unit_remove(dir);
}
END_TEST

/* The bytes of a planned checkpoint with tensors |names|, written with |seed|. */
static moec_checkpoint *random_file(const char *dir, const char *file, uint64_t seed, size_t n,
                                    const char *const *names, moec_dtype t) {
  char path[256];
  moec_ck_tensor ignored;
  moec_checkpoint *plan = moec_checkpoint_plan(t), *ck;
  for (size_t i = 0; i < n; i++) {
    UNIT_OK(find(plan, names[i], 30, 40, &ignored));
    UNIT_OK(find(plan, names[i], 30, 40, &ignored)); /* asked for twice, written once */
  }
  ck_assert(!moec_ck_has(plan, names[0]));
  UNIT_OK(moec_ck_write_fresh(plan, unit_path(path, dir, file), &(moec_ck_fresh){.seed = seed, .deviation = 0.5}));
  moec_checkpoint_close(plan);
  UNIT_OK(moec_checkpoint_open_file(path, &ck));
  return ck;
}

static uint64_t bytes_of(const char *dir, const char *file, const char *name, double *deviation) {
  char path[256];
  moec_safetensors *st;
  UNIT_OK(moec_safetensors_open(unit_path(path, dir, file), &st));
  const moec_tensor *t = &moec_safetensors_find(st, name)->tensor;
  double sum = 0;
  for (size_t i = 0; i < 1200; i++) sum += moec_load_f64(t->dtype, t->data, i) * moec_load_f64(t->dtype, t->data, i);
  *deviation = sum / 1200;
  uint64_t h = moec_hash(MOEC_HASH_SEED, t->data, moec_tensor_bytes(t));
  moec_safetensors_close(st);
  return h;
}

START_TEST(random_weights_depend_on_seed_and_name_only) {
  static const char *const one[] = {"x"}, *const two[] = {"y", "x"};
  char *dir = unit_folder();
  double variance;
  moec_checkpoint_close(random_file(dir, "1.safetensors", 7, 1, one, MOEC_F32));
  moec_checkpoint_close(random_file(dir, "2.safetensors", 7, 2, two, MOEC_F32));
  moec_checkpoint_close(random_file(dir, "3.safetensors", 8, 1, one, MOEC_F32));
  moec_checkpoint_close(random_file(dir, "4.safetensors", 7, 1, one, MOEC_BF16));
  uint64_t x = bytes_of(dir, "1.safetensors", "x", &variance);
  ck_assert(variance > 0.2 && variance < 0.3);
  ck_assert_uint_eq(x, bytes_of(dir, "2.safetensors", "x", &variance));
  ck_assert_uint_ne(x, bytes_of(dir, "2.safetensors", "y", &variance));
  ck_assert_uint_ne(x, bytes_of(dir, "3.safetensors", "x", &variance));
  ck_assert_uint_eq(x, 206094584486670893u); /* the same on every machine */
  bytes_of(dir, "4.safetensors", "x", &variance);
  ck_assert(variance > 0.2 && variance < 0.3);
  unit_remove(dir);
}
END_TEST

/* Matrices of zeros take no place on the disk; vectors of ones stay what they are. */
START_TEST(zeros_are_holes) {
  char *dir = unit_folder(), path[256];
  moec_checkpoint *plan = moec_checkpoint_plan(MOEC_BF16);
  moec_ck_tensor ignored;
  moec_safetensors *st;
  struct stat info;
  UNIT_OK(moec_ck_find(plan, "big", MOEC_CK_NORMAL, 2, (int64_t[]){1 << 16, 1 << 16}, &ignored));
  UNIT_OK(moec_ck_find(plan, "ones", MOEC_CK_ONES, 1, (int64_t[]){3}, &ignored));
  UNIT_OK(moec_ck_find(plan, "end", MOEC_CK_NORMAL, 1, (int64_t[]){5}, &ignored));
  UNIT_OK(moec_ck_write_fresh(plan, unit_path(path, dir, "z.safetensors"),
                              &(moec_ck_fresh){.zeros = true, .deviation = 1}));
  moec_checkpoint_close(plan);
  ck_assert_int_eq(stat(path, &info), 0);
  ck_assert_int_lt(info.st_blocks, 1 << 11); /* of 8 GiB */
  UNIT_OK(moec_safetensors_open(path, &st));
  const moec_tensor *big = &moec_safetensors_find(st, "big")->tensor,
                    *ones = &moec_safetensors_find(st, "ones")->tensor;
  const moec_tensor *end = &moec_safetensors_find(st, "end")->tensor;
  for (size_t i = 0; i < 3; i++) ck_assert(moec_load_f64(MOEC_BF16, ones->data, i) == 1);
  for (size_t i = 0; i < 5; i++) ck_assert(moec_load_f64(MOEC_BF16, end->data, i) == 0);
  ck_assert(moec_load_f64(MOEC_BF16, big->data, (1u << 31) + 7) == 0);
  moec_safetensors_close(st);
  unit_remove(dir);
}
END_TEST

UNIT_MAIN("models_checkpoint", one_file, integers_are_no_weights, shards_and_links, hostile_indexes,
          nothing_there_or_no_safetensors, random_weights_depend_on_seed_and_name_only, zeros_are_holes)
