/* The commands of a model compiled with --train, as a user meets them; and forced routes. */
#include <jansson.h>
#include <math.h>
#include <sys/wait.h>

#include "base/safetensors.h"
#include "include/moec.h"
#include "tests/unit/plan_sample.h"
#include "tests/unit/train_sample.h"

static train_setup files;

/* Runs "./model ARGUMENTS"; stdout and stderr together into |text|. Gives the exit status. */
static int model(char *text, size_t size, const char *arguments) {
  char command[1024];
  snprintf(command, sizeof command, "cd %s && ./model %s 2>&1", files.dir, arguments);
  FILE *f = popen(command, "r");
  ck_assert_ptr_nonnull(f);
  size_t n = fread(text, 1, size - 1, f);
  text[n] = 0;
  int status = pclose(f);
  ck_assert_msg(WIFEXITED(status), "%s: ended by a signal", command);
  return WEXITSTATUS(status);
}

static void expect(const char *arguments, int status, const char *text) {
  static char got[1 << 14];
  int exit_status = model(got, sizeof got, arguments);
  if (exit_status != status || !strstr(got, text)) {
    ck_abort_msg("%s: expected status %d and '%s', got %d and '%s'", arguments, status, text,
                 exit_status, got);
  }
}

static void write_npy(const char *name, float *data, int64_t n) {
  char path[256];
  const moec_tensor t = {.dtype = MOEC_F32, .rank = 1, .dims = {n}, .data = data};
  UNIT_OK(moec_npy_write(unit_path(path, files.dir, name), &t));
}

enum { N = 24 };
static train_io io;

static void setup(void) {
  const char *build = getenv("MOEC_BUILD");
  char path[256];
  moec_map stub;
  size_t size;
  files = train_start();
  UNIT_OK(moec_map_user_file(unit_path(path, build ? build : ".", "moec-stub"), &stub));
  plan_builder *b = train_build();
  uint8_t *file = pb_finish(b, &stub, &files.object, &size);
  UNIT_OK(moec_write_file(unit_path(path, files.dir, "model"), file, size, 0755));
  moec_unmap(&stub);
  free(file);
  free(b);
  train_fill(&io, 4);
  write_npy("x.npy", io.x, N);
  write_npy("other.npy", io.other, N);
}

static void teardown(void) { train_stop(&files); }

static void check(moec_safetensors *st, const char *name, uint32_t rank, const double *want,
                  int64_t n) {
  const moec_st_entry *e = moec_safetensors_find(st, name);
  ck_assert_msg(e != NULL, "expected %s", name);
  UNIT_TRUE(e->tensor.dtype == MOEC_F32 && e->tensor.rank == rank &&
            moec_tensor_numel(&e->tensor) == n);
  for (int64_t i = 0; i < n; i++) {
    float got;
    memcpy(&got, (const uint8_t *)e->tensor.data + 4 * i, 4);
    UNIT_TRUE(fabs((double)got - want[i]) <= 1e-5 * (1 + fabs(want[i])));
  }
}

START_TEST(test_grad) {
  char path[256];
  moec_safetensors *st;
  expect("grad --input x=x.npy --input labels=other.npy -o out --outputs", 0, "");
  train_want r = train_reference(N, train_w, train_v, io.x, io.other, NULL);
  UNIT_OK(moec_safetensors_open(unit_path(path, files.dir, "out"), &st));
  ck_assert_uint_eq(moec_safetensors_count(st), 7);
  check(st, "loss", 0, &r.loss, 1);
  check(st, "output.y", 1, r.y, N);
  check(st, "grad.x", 1, r.dx, N);
  check(st, "grad.w", 1, r.w, 4);
  check(st, "grad.t", 1, r.w, 4);
  check(st, "grad.v", 2, r.v, 4);
  check(st, "grad.c", 1, (double[4]){0}, 4); /* no gradient reaches it */
  moec_safetensors_close(st);
  expect("grad --input x=x.npy --input grad.y=other.npy -o out", 0, "");
  r = train_reference(N, train_w, train_v, io.x, NULL, io.other);
  UNIT_OK(moec_safetensors_open(path, &st));
  ck_assert_uint_eq(moec_safetensors_count(st), 5);
  check(st, "grad.v", 2, r.v, 4);
  check(st, "grad.x", 1, r.dx, N);
  moec_safetensors_close(st);
}
END_TEST

START_TEST(test_wrong_usage) {
  expect("grad --input x=x.npy -o out", 2,
         "input \"labels\": expected --input labels=FILE.npy, got none");
  expect("grad --input x=x.npy --input labels=other.npy", 2, "expected -o OUT.safetensors");
  expect("grad --input x=x.npy --input labels=other.npy -o out --routes out", 2,
         "--routes: this model has no MoE layer");
  expect("grad --input x=x.npy --input labels=other.npy --input grad.y=x.npy -o out", 2,
         "input \"labels\": this command does not read it");
  expect("run --input x=x.npy --input labels=other.npy", 2, "this command does not read it");
  expect("run --input x=x.npy --output loss=l.npy", 2, "forward has no such output");
  expect("run --input x=x.npy", 0, "y f32[24] min");
  expect("train", 2, "train gives only input_ids and labels");
}
END_TEST

START_TEST(test_bench) {
  static const struct {
    const char *mode;
    int kernels, allocations;
  } modes[] = {{"forward", 1, 0}, {"train", 3, 0}, {"step", 3, 0}};
  for (int i = 0; i < 3; i++) {
    char command[128], path[256], text[32];
    json_error_t error;
    snprintf(command, sizeof command, "bench --dim n=16 --steps 3 --mode %s --json b.json",
             modes[i].mode);
    snprintf(text, sizeof text, "%s, 3 steps", modes[i].mode);
    expect(command, 0, text);
    json_t *o = json_load_file(unit_path(path, files.dir, "b.json"), 0, &error);
    ck_assert_ptr_nonnull(o);
    ck_assert_str_eq(json_string_value(json_object_get(o, "mode")), modes[i].mode);
    ck_assert_int_eq(json_integer_value(json_object_get(o, "kernels_per_step")), modes[i].kernels);
    ck_assert_int_eq(json_integer_value(json_object_get(o, "allocations_after_first_step")), 0);
    UNIT_TRUE((json_integer_value(json_object_get(o, "gradient_bytes")) > 0) == (i > 0));
    UNIT_TRUE((json_integer_value(json_object_get(o, "optimizer_bytes")) > 0) == (i > 1));
    json_decref(o);
  }
}
END_TEST

START_TEST(test_info) {
  expect("info", 0, "trained parameters\n  w f32[4]\n  t f32[4]\n  v f32[2, 2]\n");
  expect("info --dim n=16", 0, "forward peak           64 ");
  expect("info --dim n=16", 0, "train peak             192 ");
}
END_TEST

/* ---- routes ------------------------------------------------------------------------------ */

static void run_layer(moec_model *m, int64_t *experts) {
  static float x[6 * 8];
  static int64_t ids[6];
  moec_layer_routes r;
  const moec_view vx = {x, MOEC_DTYPE_F32, 2, {6, 8}}, vi = {ids, MOEC_DTYPE_I64, 2, {2, 3}};
  UNIT_OK(moec_input_borrow(m, 0, &vx));
  UNIT_OK(moec_input_borrow(m, 1, &vi));
  UNIT_OK(moec_forward(m));
  UNIT_OK(moec_route(m, 0, &r));
  memcpy(experts, r.indices.data, 12 * sizeof *experts);
}

START_TEST(test_forced_routes) {
  size_t size;
  moec_model *m;
  plan_builder *b = sample_build();
  uint8_t *file = pb_finish(b, NULL, NULL, &size);
  free(b);
  int64_t forced[12], got[12], chosen[12];
  UNIT_OK(moec_open_memory(file, size, NULL, &m));
  for (int i = 0; i < 12; i++) forced[i] = (i / 2 + i % 2 * 2) % 4;
  moec_view v = {forced, MOEC_DTYPE_I64, 2, {6, 2}};
  run_layer(m, chosen);
  UNIT_OK(moec_force_routes(m, 0, &v));
  run_layer(m, got);
  UNIT_TRUE(!memcmp(got, forced, sizeof got) && memcmp(got, chosen, sizeof got));
  v.dims[0] = 5;
  UNIT_OK(moec_force_routes(m, 0, &v));
  UNIT_FAILS(moec_forward(m), MOEC_INVALID_ARGUMENT,
             "node \"the_node\": moe.select: expected routes i64[6, 2], got i64[5, 2]");
  UNIT_OK(moec_force_routes(m, 0, NULL));
  run_layer(m, got);
  UNIT_TRUE(!memcmp(got, chosen, sizeof got));
  forced[3] = 4;
  UNIT_FAILS(moec_force_routes(m, 0, &v), MOEC_INVALID_ARGUMENT,
             "MoE layer 0: token 1, choice 1: expected an expert below 4, got 4");
  forced[3] = forced[2];
  UNIT_FAILS(moec_force_routes(m, 0, &v), MOEC_INVALID_ARGUMENT, "token 1: expected experts that");
  v.dims[1] = 3;
  UNIT_FAILS(moec_force_routes(m, 0, &v), MOEC_INVALID_ARGUMENT,
             "expected indices i64 [tokens, 2]");
  UNIT_FAILS(moec_force_routes(m, 1, &v), MOEC_INVALID_ARGUMENT, "an index below 1, got 1");
  moec_close(m);
  free(file);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("grad");
  TCase *tcase = tcase_create("grad");
  const TTest *const tests[] = {test_grad, test_wrong_usage, test_bench, test_info,
                                test_forced_routes};
  tcase_set_timeout(tcase, 0); /* ctest has one */
  tcase_add_unchecked_fixture(tcase, setup, teardown);
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(tcase, tests[i]);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
