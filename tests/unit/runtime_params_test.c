/* Parameters from pieces: gathered, converted, mapped, shared; and the files they come from. */
#include "base/tensor.h"
#include "include/moec.h"
#include "tests/unit/plan_builder.h"

static uint32_t add_param(plan_builder *b, const char *name, moec_dtype type, uint32_t rank,
                          const int64_t *dims, uint32_t pieces, uint32_t n, uint32_t tie) {
  moec_tensor t = {.dtype = type, .rank = rank};
  memcpy(t.dims, dims, rank * sizeof *dims);
  uint32_t w = pb_static(b, MOEC_BUFFER_PARAM, &t);
  PB_ADD(b, params,
         (moec_plan_param){.name = pb_str(b, name),
                           .tensor = w,
                           .storage = MOEC_F32,
                           .group = n > 1,
                           .shard_axis = -1,
                           .tie = tie,
                           .pieces = pieces,
                           .n_pieces = n,
                           .grad = MOEC_NONE});
  return w;
}

static void add_file(plan_builder *b, const char *name, const void *bytes, size_t size) {
  moec_plan_file f = {.name = pb_str(b, name), .size = size};
  const moec_map whole = {.data = bytes, .size = size};
  UNIT_OK(moec_map_digest(&whole, 1, f.sha256));
  PB_ADD(b, files, f);
}

/* ---- gathering --------------------------------------------------------------------------- */

enum { A = 3, B = 70, C = 45 }; /* larger than a square of the transposing copy */

/* Parameter [2, A, B, C] of two pieces, each stored in another order of its axes. */
static void check_pieces(moec_dtype stored, moec_dtype type, const uint32_t *perm) {
  const uint32_t sizes[] = {A, B, C};
  size_t one = (size_t)A * B * C, bytes = moec_dtype_get(stored)->bytes;
  plan_builder *b = pb_create();
  uint8_t *data = malloc(2 * one * bytes);
  moec_plan_piece p[2];
  for (int e = 0; e < 2; e++) {
    p[e] = (moec_plan_piece){
        .file = MOEC_NONE, .dtype = stored, .rank = 4, .shape = {1}, .start = {e}};
    /* stored axis perm[i] + 1 becomes axis i + 1 */
    for (int i = 0; i < 3; i++) {
      p[e].perm[i + 1] = perm[i] + 1;
      p[e].shape[perm[i] + 1] = sizes[i];
    }
  }
  for (size_t i = 0; i < 2 * one; i++) moec_store_f64(stored, data, i, (double)(i % 251));
  for (int e = 0; e < 2; e++) { /* an odd address: files need not align anything */
    p[e].offset = pb_data(b, data, 2 * one * bytes) + (size_t)e * one * bytes;
    PB_ADD(b, pieces, p[e]);
    b->n_data = 0; /* both read the same bytes */
  }
  b->n_data = 2 * one * bytes;
  add_param(b, "experts", type, 4, (int64_t[]){2, A, B, C}, 0, 2, 0);
  size_t size;
  moec_model *m;
  moec_view v;
  uint8_t *file = pb_finish(b, NULL, NULL, &size);
  UNIT_OK(moec_open_memory(file, size, &(moec_options){.threads = 2}, &m));
  UNIT_OK(moec_parameter(m, 0, &v));
  for (size_t e = 0; e < 2; e++)
    for (size_t i = 0; i < A; i++)
      for (size_t j = 0; j < B; j++)
        for (size_t k = 0; k < C; k++) {
          const size_t at[] = {i, j, k};
          size_t from = e;
          for (uint32_t s = 0; s < 3; s++) { /* row-major over the stored axes */
            uint32_t axis = 0;
            while (perm[axis] != s) axis++;
            from = from * sizes[axis] + at[axis];
          }
          double got = moec_load_f64(type, v.data, ((e * A + i) * B + j) * C + k);
          UNIT_TRUE(got == moec_load_f64(stored, data, from));
        }
  moec_close(m);
  free(file);
  free(data);
  free(b);
}

START_TEST(test_pieces_of_any_order_and_type) {
  static const uint32_t perms[][3] = {{0, 1, 2}, {0, 2, 1}, {2, 1, 0},
                                      {1, 2, 0}, {2, 0, 1}, {1, 0, 2}};
  static const moec_dtype types[][2] = {
      {MOEC_F32, MOEC_F32},  {MOEC_BF16, MOEC_F32}, {MOEC_F16, MOEC_F32},
      {MOEC_F32, MOEC_BF16}, {MOEC_F64, MOEC_F32},  {MOEC_U8, MOEC_F32},
      {MOEC_I32, MOEC_I64},  {MOEC_I64, MOEC_I64},  {MOEC_F32, MOEC_F16}};
  for (size_t i = 0; i < sizeof perms / sizeof *perms; i++) {
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
      if (moec_dtype_get(types[t][0])->bytes < 8) check_pieces(types[t][0], types[t][1], perms[i]);
    }
  }
}
END_TEST

/* ---- files ------------------------------------------------------------------------------- */

typedef struct weights {
  uint8_t bytes[256];
} weights;

/* a: the first 16 floats in place; b: the next, unaligned; c: tied to a. */
static uint8_t *file_model(const weights *w, size_t *size) {
  plan_builder *b = pb_create();
  add_file(b, "weights.bin", w->bytes, sizeof w->bytes);
  PB_ADD(b, pieces, (moec_plan_piece){.dtype = MOEC_F32, .rank = 1, .shape = {16}, .offset = 64});
  PB_ADD(b, pieces, (moec_plan_piece){.dtype = MOEC_F32, .rank = 1, .shape = {16}, .offset = 129});
  PB_ADD(b, pieces,
         (moec_plan_piece){
             .dtype = MOEC_F32, .rank = 2, .shape = {4, 2}, .perm = {1, 0}, .offset = 4});
  PB_ADD(b, pieces, (moec_plan_piece){.dtype = MOEC_F32, .rank = 1, .shape = {16}, .offset = 192});
  const int64_t n = 16, dims[] = {2, 4};
  add_param(b, "a", MOEC_F32, 1, &n, 0, 1, 1);
  add_param(b, "b", MOEC_F32, 1, &n, 1, 1, 0);
  add_param(b, "c", MOEC_F32, 1, &n, 3, 1, 1);
  add_param(b, "d", MOEC_F32, 2, dims, 2, 1, 2);
  add_param(b, "e", MOEC_F32, 2, dims, 2, 1, 2);
  uint8_t *file = pb_finish(b, NULL, NULL, size);
  free(b);
  return file;
}

static weights some_weights(void) {
  weights w;
  for (size_t i = 0; i < sizeof w.bytes; i++) w.bytes[i] = (uint8_t)i;
  return w;
}

START_TEST(test_mapped_copied_and_tied) {
  weights w = some_weights();
  char *dir = unit_folder(), path[256];
  size_t size;
  uint8_t *file = file_model(&w, &size);
  moec_model *m;
  moec_view v[5];
  moec_counters c;
  UNIT_OK(moec_write_file(unit_path(path, dir, "weights.bin"), w.bytes, sizeof w.bytes, 0644));
  UNIT_OK(moec_open_memory(file, size, &(moec_options){.weights_dir = dir}, &m));
  for (uint32_t i = 0; i < 5; i++) UNIT_OK(moec_parameter(m, i, &v[i]));
  UNIT_TRUE(!memcmp(v[0].data, w.bytes + 64, 64) && !memcmp(v[1].data, w.bytes + 129, 64));
  UNIT_TRUE(v[2].data == v[0].data && v[4].data == v[3].data);
  for (int i = 0; i < 8; i++)
    UNIT_TRUE(!memcmp((char *)v[3].data + 4 * i, w.bytes + 4 + 4 * (i / 4 + (i & 3) * 2), 4));
  moec_counters_get(m, &c);
  ck_assert_uint_eq(c.mapped_bytes, 64);
  UNIT_TRUE(c.parameter_bytes >= 64 + 32 && c.parameter_bytes <= 512);
  moec_close(m);
  free(file);
  unit_remove(dir);
}
END_TEST

START_TEST(test_where_weights_are_found) {
  weights w = some_weights();
  char *dir = unit_folder(), *other = unit_folder(), path[256], real[256];
  size_t size;
  uint8_t *file = file_model(&w, &size);
  moec_model *m;
  UNIT_OK(moec_write_file(unit_path(real, other, "blob"), w.bytes, sizeof w.bytes, 0644));
  UNIT_OK(moec_write_file(unit_path(path, dir, "model"), file, size, 0755));
  UNIT_FAILS(moec_open(path, NULL, &m), MOEC_INVALID_ARGUMENT,
             "weights: expected a file weights.bin in the folder of --weights");
  ck_assert_int_eq(setenv("MOEC_WEIGHTS", other, 1), 0);
  UNIT_FAILS(moec_open(path, NULL, &m), MOEC_INVALID_ARGUMENT, other);
  char link[256];
  ck_assert_int_eq(symlink(real, unit_path(link, other, "weights.bin")),
                   0); /* folders a user names may have links */
  UNIT_OK(moec_open(path, NULL, &m));
  moec_close(m);
  ck_assert_int_eq(unsetenv("MOEC_WEIGHTS"), 0);
  UNIT_OK(moec_write_file(unit_path(link, dir, "weights.bin"), w.bytes, sizeof w.bytes,
                          0644)); /* beside the model */
  UNIT_OK(moec_open(path, NULL, &m));
  moec_close(m);
  free(file);
  unit_remove(dir);
  unit_remove(other);
}
END_TEST

START_TEST(test_other_weights_are_refused) {
  weights w = some_weights();
  char *dir = unit_folder(), path[256];
  size_t size;
  uint8_t *file = file_model(&w, &size);
  moec_options o = {.weights_dir = dir};
  moec_model *m;
  w.bytes[0] ^= 1;
  UNIT_OK(moec_write_file(unit_path(path, dir, "weights.bin"), w.bytes, sizeof w.bytes, 0644));
  UNIT_FAILS(moec_open_memory(file, size, &o, &m), MOEC_INVALID_ARGUMENT,
             "weights.bin: expected the contents that the model was compiled with");
  o.trust_weights = 1;
  UNIT_OK(moec_open_memory(file, size, &o, &m));
  moec_close(m);
  UNIT_OK(moec_write_file(path, w.bytes, 255, 0644));
  UNIT_FAILS(moec_open_memory(file, size, &o, &m), MOEC_INVALID_ARGUMENT,
             "weights.bin: expected the 256 bytes that the model was compiled with, got 255");
  free(file);
  unit_remove(dir);
}
END_TEST

UNIT_MAIN("params", test_pieces_of_any_order_and_type, test_mapped_copied_and_tied,
          test_where_weights_are_found, test_other_weights_are_refused)
