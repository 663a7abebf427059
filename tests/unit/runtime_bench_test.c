/* bench of a model for CUDA, on the driver of tests/support/fake_cuda.h, whose clock goes on by a millisecond with each
 * kernel: counts and times are exact. */
#include <jansson.h>
#include <sys/wait.h>

#include "runtime/cli_bench.h"
#include "tests/unit/plan_sample.h"
#include "tests/unit/train_sample.h"

static char *dir;
static json_t *report, *updated;
static char text[1 << 14];

/* Writes |b|, which goes, as the executable |name|. */
static void make_model(plan_builder *b, const char *name) {
  const char *build = getenv("MOEC_BUILD");
  char path[256];
  moec_map stub, cubin = {.data = (const uint8_t *)"cubin", .size = 5};
  size_t size;
  ck_assert_ptr_nonnull(build);
  UNIT_OK(moec_map_user_file(unit_path(path, build, "moec-stub"), &stub));
  b->target = pb_str(b, "cuda:sm_90a");
  for (uint32_t i = 0; i < b->n_kernels; i++) b->kernels[i].threads = b->kernels[i].teams = 64;
  uint8_t *file = pb_finish(b, &stub, &cubin, &size);
  UNIT_OK(moec_write_file(unit_path(path, dir, name), file, size, 0755));
  moec_unmap(&stub);
  free(file);
  free(b);
}

/* What "NAME bench ARGUMENTS" reports; its output is in |text|. */
static json_t *bench(const char *name, const char *arguments) {
  char command[1024], path[256];
  json_error_t error;
  snprintf(command, sizeof command,
           "cd %s && LD_LIBRARY_PATH=$MOEC_BUILD/fake ./%s bench --warmup 1 --json out.json %s 2>&1", dir, name,
           arguments);
  FILE *f = popen(command, "r");
  ck_assert_ptr_nonnull(f);
  text[fread(text, 1, sizeof text - 1, f)] = 0;
  int status = pclose(f);
  ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "%s", text);
  json_t *o = json_load_file(unit_path(path, dir, "out.json"), 0, &error);
  ck_assert_ptr_nonnull(o);
  return o;
}

static void setup(void) {
  char path[256];
  uint8_t bytes[TRAIN_FILE];
  dir = unit_folder();
  train_weights(bytes);
  UNIT_OK(moec_write_file(unit_path(path, dir, "weights.bin"), bytes, sizeof bytes, 0644));
  make_model(train_build(), "trained");
  updated = bench("trained", "--mode step --dim n=16 --steps 3");
  make_model(sample_build(), "model");
  report = bench("model", "--dim batch=2 --dim seq=3 --steps 4 --kernels");
}

static void teardown(void) {
  json_decref(report);
  json_decref(updated);
  unit_remove(dir);
}

static int64_t number(const json_t *o, const char *a, const char *b) {
  return json_integer_value(json_object_get(json_object_get(o, a), b));
}

/* The step list of plan_sample.h: what each launches is in `library` of runtime_cuda_test.c. */
START_TEST(census) {
  const json_t *c = json_object_get(report, "census");
  static const struct {
    const char *kind;
    int64_t steps, kernels, copies;
  } want[] = {{"generated", 0, 0, 0}, {"library", 8, 9, 2}, {"moe", 9, 9, 0}, {"copy", 1, 0, 1}, {"all", 18, 18, 3}};
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    ck_assert_int_eq(number(c, want[i].kind, "steps"), want[i].steps);
    ck_assert_int_eq(number(c, want[i].kind, "kernels"), want[i].kernels);
    ck_assert_int_eq(number(c, want[i].kind, "copies"), want[i].copies);
    ck_assert_int_eq(number(c, want[i].kind, "fills"), 0);
    ck_assert_int_eq(number(c, want[i].kind, "others"), 0);
  }
  UNIT_TRUE(json_is_true(json_object_get(c, "counted")));
  UNIT_TRUE(strstr(text, "launches per step: 18 kernels: generated 0 (0.000 ms), library 9 (8.000 ms), moe 9 (9.000 "
                         "ms); 3 copies, 0 fills, 0 others\n"));
}
END_TEST

/* Four steps: their ends are waited for, both inputs go in by one copy, each at a multiple of 64 bytes, the faults come
 * out. */
START_TEST(window) {
  const json_t *o = json_object_get(report, "measured");
  static const struct {
    const char *name;
    int64_t value;
  } want[] = {{"allocations", 0},
              {"compilations", 0},
              {"waits", 4},
              {"copies_to_device", 4},
              {"bytes_to_device", 4 * (6 * 8 * 4 + 64)},
              {"copies_from_device", 4},
              {"bytes_from_device", 4 * 18 * 4}};
  for (size_t i = 0; i < sizeof want / sizeof *want; i++)
    ck_assert_msg(json_integer_value(json_object_get(o, want[i].name)) == want[i].value, "%s", want[i].name);
  UNIT_TRUE(strstr(text, "per step: 1 waits (at the end of the program), 1 copies of 256 bytes to the device, 1 of 72 "
                         "bytes from it\n"));
}
END_TEST

/* An update adds copies of what changes from step to step, but no wait. */
START_TEST(updates) {
  const json_t *o = json_object_get(updated, "measured");
  ck_assert_int_eq(json_integer_value(json_object_get(o, "waits")), 3);
  ck_assert_int_eq(json_integer_value(json_object_get(o, "allocations")), 0);
  ck_assert_int_eq(json_integer_value(json_object_get(o, "copies_from_device")), 3);
  UNIT_TRUE(json_integer_value(json_object_get(o, "copies_to_device")) > 3);
  ck_assert_int_eq(number(json_object_get(updated, "census"), "generated", "kernels"), 3);
}
END_TEST

/* Sorted by time; scatter_nd is two launches, the product is none of the driver's. */
START_TEST(kernels) {
  const json_t *list = json_object_get(report, "kernels"), *first = json_array_get(list, 0);
  double last = 1e9, all = 0;
  ck_assert_str_eq(json_string_value(json_object_get(first, "name")), "scatter_nd");
  ck_assert_str_eq(json_string_value(json_object_get(first, "what")), "f32[6, 8], i64[1, 1], f32[1, 8] -> f32[6, 8]");
  ck_assert_str_eq(json_string_value(json_object_get(first, "function")), ""); /* its steps are of no call */
  UNIT_TRUE(json_integer_value(json_object_get(first, "kernels")) == 2);
  UNIT_TRUE(json_integer_value(json_object_get(first, "operand_bytes")) == 2 * 6 * 8 * 4 + 8 + 8 * 4);
  for (size_t i = 0; i < json_array_size(list); i++) {
    double ms = json_number_value(json_object_get(json_array_get(list, i), "ms"));
    UNIT_TRUE(ms <= last && ms >= 0);
    last = ms, all += ms;
  }
  UNIT_TRUE(all == 17 && json_array_size(list) == 18);
  UNIT_TRUE(strstr(text, "    2.000  11.8     1       2       0     0.0                   scatter_nd: f32[6, 8], "));
}
END_TEST

START_TEST(refused) {
  moec_rt_bench b = {.steps = 4, .before = {.device_waits = 9, .allocations = 7}};
  b.after = b.before;
  b.after.device_waits = 13;
  UNIT_OK(moec_rt_bench_check(&b));
  b.after.device_waits = 14;
  UNIT_FAILS(moec_rt_bench_check(&b), MOEC_INTERNAL, "no wait but the 4 at their ends, got 0, 0 and 5 waits");
  b.after.allocations = 8, b.after.device_waits = 13;
  UNIT_FAILS(moec_rt_bench_check(&b), MOEC_INTERNAL, "expected no allocation, no compilation");
  b.after.allocations = 7, b.after.compilations = 1;
  moec_status *s = moec_rt_bench_check(&b);
  ck_assert_int_eq(moec_status_exit(s), 1);
  moec_status_free(s);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {census, window, updates, kernels, refused};
  Suite *suite = suite_create("runtime_bench");
  TCase *tcase = tcase_create("bench");
  tcase_set_timeout(tcase, 0);
  tcase_add_unchecked_fixture(tcase, setup, teardown);
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(tcase, tests[i]);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
