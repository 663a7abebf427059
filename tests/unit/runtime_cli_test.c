/* The command line of a compiled model, as a user meets it: the stub of this build with a plan
 * behind it. */
#include <jansson.h>
#include <sys/wait.h>

#include "base/safetensors.h"
#include "base/tensor.h"
#include "include/moec.h"
#include "tests/unit/plan_sample.h"

static char *dir;

/* Runs "model ARGUMENTS" in |dir|; stdout and stderr together into |text|. Gives the exit status. */
static int model(char *text, size_t size, const char *arguments) {
  char command[1024];
  snprintf(command, sizeof command, "cd %s && ./model %s 2>&1", dir, arguments);
  FILE *f = popen(command, "r");
  ck_assert_ptr_nonnull(f);
  size_t n = fread(text, 1, size - 1, f);
  text[n] = 0;
  int status = pclose(f);
  ck_assert_msg(WIFEXITED(status), "%s: ended by a signal", command);
  return WEXITSTATUS(status);
}

/* One line "moec: error: ... TEXT ..." and this exit status. */
static void fails(const char *arguments, int status, const char *text) {
  static char got[1 << 14];
  int exit_status = model(got, sizeof got, arguments);
  if (exit_status != status || strncmp(got, "moec: error: ", 13) || !strstr(got, text) ||
      strchr(got, '\n') != got + strlen(got) - 1) {
    ck_abort_msg("%s: expected status %d and '%s', got %d and '%s'", arguments, status, text,
                 exit_status, got);
  }
}

static void succeeds(const char *arguments, const char *text) {
  static char got[1 << 14];
  int status = model(got, sizeof got, arguments);
  if (status || !strstr(got, text))
    ck_abort_msg("%s: expected '%s', got %d and '%s'", arguments, text, status, got);
}

static void write_npy(const char *name, moec_dtype type, uint32_t rank, const int64_t *dims,
                      int64_t first) {
  char path[256];
  moec_tensor t;
  UNIT_OK(moec_tensor_init(&t, type, rank, dims));
  for (int64_t i = 0; i < moec_tensor_numel(&t); i++)
    moec_store_i64(type, t.data, (size_t)i, first + i);
  UNIT_OK(moec_npy_write(unit_path(path, dir, name), &t));
  moec_tensor_fini(&t);
}

static void setup(void) {
  const char *build = getenv("MOEC_BUILD");
  char path[256];
  moec_map stub;
  size_t size;
  dir = unit_folder();
  UNIT_OK(moec_map_user_file(unit_path(path, build ? build : ".", "moec-stub"), &stub));
  plan_builder *b = sample_build();
  uint8_t *file = pb_finish(b, &stub, NULL, &size);
  UNIT_OK(moec_write_file(unit_path(path, dir, "model"), file, size, 0755));
  moec_unmap(&stub);
  free(file);
  free(b);
  write_npy("x.npy", MOEC_F32, 2, (int64_t[]){6, 8}, 1);
  write_npy("ids.npy", MOEC_I64, 2, (int64_t[]){2, 3}, 0);
  write_npy("ids32.npy", MOEC_I32, 2, (int64_t[]){2, 3}, 0);
  write_npy("x64.npy", MOEC_F64, 2, (int64_t[]){6, 8}, 1);
  write_npy("ids4.npy", MOEC_I64, 2, (int64_t[]){2, 4}, 0);
}

static void teardown(void) { unit_remove(dir); }

static bool exists(const char *name) {
  char path[256];
  return access(unit_path(path, dir, name), F_OK) == 0;
}

START_TEST(test_run) {
  char path[256];
  moec_tensor y;
  moec_safetensors *st;
  succeeds("run --input x=x.npy --input=ids=ids.npy",
           "y f32[6, 8] min 1 max 48 mean 24.5\nz f32[2, 8, 6] min 0 max 0 mean 0\n");
  succeeds(
      "run --input x=x.npy --input ids=ids32.npy --output y=y.npy --threads 2 --routes-out "
      "r.safetensors",
      "");
  UNIT_OK(moec_npy_read(unit_path(path, dir, "y.npy"), &y));
  UNIT_TRUE(y.dims[0] == 6 && ((float *)y.data)[47] == 48);
  moec_tensor_fini(&y);
  UNIT_OK(moec_safetensors_open(unit_path(path, dir, "r.safetensors"), &st));
  ck_assert_uint_eq(moec_safetensors_count(st), 2);
  const moec_st_entry *i = moec_safetensors_find(st, "route.0.indices"),
                      *w = moec_safetensors_find(st, "route.0.weights");
  UNIT_TRUE(i && w && i->tensor.dtype == MOEC_I64 && w->tensor.dtype == MOEC_F32 &&
            i->tensor.dims[0] == 6 && w->tensor.dims[1] == 2);
  moec_safetensors_close(st);
}
END_TEST

START_TEST(test_wrong_usage) {
  fails("", 2, "expected a command: run, bench, info, grad or train");
  fails("ran", 2, "unknown command 'ran'");
  fails("run --inptu x=x.npy", 2, "unknown argument '--inptu': expected one of --input, --output");
  fails("run --input", 2, "--input: expected a value, got none");
  fails("run --input x", 2, "--input: expected NAME=VALUE, got 'x'");
  fails("run --threads 0", 2, "--threads: expected an integer of at least 1, got '0'");
  fails("run --trust-weights=yes", 2, "--trust-weights: expected no value");
  fails("run --routes-out a --routes-out b", 2, "--routes-out was given twice");
  fails("grad", 2, "compiled without --train");
  fails("train --steps 1", 2, "compiled without --train");
  fails("bench --dim batch=2", 2, "expected --dim seq=N, got none");
  fails("bench --dim batch=2 --dim seq=two", 2,
        "--dim: expected an integer of at least 0, got 'two'");
  fails("bench --dim batch=2 --dim seq=3 --mode train", 2,
        "--mode train: this model was compiled without --train");
  fails("bench --mode sideways", 2, "--mode: expected forward, train or step, got 'sideways'");
  succeeds("--help", "usage:");
  succeeds("--help", "[--kernels]");
}
END_TEST

START_TEST(test_wrong_input) {
  fails("run --input x=x.npy", 2, "input \"ids\": expected --input ids=FILE.npy, got none");
  fails("run --input x=x.npy --input x=x.npy", 2, "input \"x\" was given twice");
  fails("run --input q=x.npy", 2, "input \"q\": the model has none of this name, but: x, ids");
  fails("run --input x=none.npy", 2, "none.npy");
  fails("run --input x=model", 2, "input \"x\"");
  fails("run --input x=x64.npy --input ids=ids.npy", 2,
        "input \"x\": expected f32 of rank 2, got f64 of rank 2");
  fails("run --input x=ids.npy --input ids=ids.npy", 2,
        "input \"x\": expected f32 of rank 2, got i64 of rank 2");
  fails("run --input x=x.npy --input ids=ids4.npy --output y=no.npy", 2,
        "input \"x\": axis 0: expected size");
  fails("run --input x=x.npy --input ids=ids.npy --output y=no.npy --output yy=no2.npy", 2,
        "output \"yy\"");
  fails("run --input x=x.npy --input ids=ids.npy --output y=no.npy --output y=no.npy", 2,
        "output \"y\" was given twice");
  UNIT_TRUE(!exists("no.npy"));
  fails("run --input x=x.npy --input ids=ids.npy --output y=absent/no.npy", 2, "absent/no.npy");
}
END_TEST

START_TEST(test_bench) {
  char path[256];
  json_error_t e;
  succeeds("bench --dim batch=2 --dim seq=3 --steps 5 --warmup 1 --json out.json --threads 2",
           "ms: mean");
  json_t *o = json_load_file(unit_path(path, dir, "out.json"), 0, &e);
  ck_assert_ptr_nonnull(o);
  static const struct {
    const char *name;
    int64_t value;
  } want[] = {{"steps", 5},
              {"tokens", 6},
              {"moe_calls_per_step", 1},
              {"compilations", 0},
              {"allocations_after_first_step", 0},
              {"kernels_per_step", 0},
              {"threads", 2}};
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    ck_assert_msg(json_integer_value(json_object_get(o, want[i].name)) == want[i].value, "%s",
                  want[i].name);
  }
  const char *names[] = {"min", "median", "p95", "max"};
  double last = 0;
  for (int i = 0; i < 4; i++) {
    double v = json_number_value(json_object_get(json_object_get(o, "ms"), names[i]));
    UNIT_TRUE(v >= last && v > 0);
    last = v;
  }
  json_decref(o);
}
END_TEST

START_TEST(test_info) {
  succeeds("info", "  x f32[batch*seq, 8]\n");
  succeeds("info --dim batch=2 --dim seq=3", "MoE calls a step       1\n");
  fails("info --dim batch=2", 2, "expected --dim seq=N");
}
END_TEST

START_TEST(test_cut_executable) {
  char command[1024];
  snprintf(command, sizeof command,
           "cd %s && mv model whole && head -c -1000 whole > model && chmod +x model", dir);
  ck_assert_int_eq(system(command), 0);
  fails("info", 2, "/model: expected a compiled model, which ends with a ");
  snprintf(command, sizeof command, "cd %s && mv whole model", dir);
  ck_assert_int_eq(system(command), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cli");
  TCase *tcase = tcase_create("cli");
  const TTest *const tests[] = {test_run,   test_wrong_usage, test_wrong_input,
                                test_bench, test_info,        test_cut_executable};
  tcase_add_unchecked_fixture(tcase, setup, teardown);
  tcase_set_timeout(tcase, 60);
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(tcase, tests[i]);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
