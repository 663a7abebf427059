/* bench of a model for CUDA, on the driver of tests/support/fake_cuda.h, whose clock goes on by a millisecond with each
 * kernel: counts and times are exact. */
#include <jansson.h>
#include <sys/wait.h>

#include "runtime/cli_bench.h"
#include "tests/unit/plan_sample.h"

static char *dir;
static json_t *report;
static char text[1 << 14];

static void make_model(void) {
  const char *build = getenv("MOEC_BUILD");
  char path[256];
  moec_map stub, cubin = {.data = (const uint8_t *)"cubin", .size = 5};
  size_t size;
  ck_assert_ptr_nonnull(build);
  UNIT_OK(moec_map_user_file(unit_path(path, build, "moec-stub"), &stub));
  plan_builder *b = sample_build();
  b->target = pb_str(b, "cuda:sm_90a");
  uint8_t *file = pb_finish(b, &stub, &cubin, &size);
  UNIT_OK(moec_write_file(unit_path(path, dir, "model"), file, size, 0755));
  moec_unmap(&stub);
  free(file);
  free(b);
}

static void setup(void) {
  char command[1024], path[256];
  json_error_t error;
  dir = unit_folder();
  make_model();
  snprintf(command, sizeof command,
           "cd %s && LD_LIBRARY_PATH=$MOEC_BUILD/fake ./model bench --dim batch=2 --dim seq=3 --steps 4 --warmup 1 "
           "--kernels --json out.json 2>&1",
           dir);
  FILE *f = popen(command, "r");
  ck_assert_ptr_nonnull(f);
  text[fread(text, 1, sizeof text - 1, f)] = 0;
  int status = pclose(f);
  ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "%s", text);
  report = json_load_file(unit_path(path, dir, "out.json"), 0, &error);
  ck_assert_ptr_nonnull(report);
}

static void teardown(void) {
  json_decref(report);
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
  } want[] = {{"generated", 0, 0, 0}, {"library", 8, 8, 2}, {"moe", 9, 11, 0}, {"copy", 1, 0, 1}, {"all", 18, 19, 3}};
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    ck_assert_int_eq(number(c, want[i].kind, "steps"), want[i].steps);
    ck_assert_int_eq(number(c, want[i].kind, "kernels"), want[i].kernels);
    ck_assert_int_eq(number(c, want[i].kind, "copies"), want[i].copies);
    ck_assert_int_eq(number(c, want[i].kind, "fills"), 0);
    ck_assert_int_eq(number(c, want[i].kind, "others"), 0);
  }
  UNIT_TRUE(json_is_true(json_object_get(c, "counted")));
  UNIT_TRUE(strstr(text, "launches per step: 19 kernels: generated 0 (0.000 ms), library 8 (7.000 ms), moe 11 (11.000 "
                         "ms); 3 copies, 0 fills, 0 others\n"));
}
END_TEST

/* Four steps: their ends are waited for, both inputs go in, the faults come out. */
START_TEST(window) {
  const json_t *o = json_object_get(report, "measured");
  static const struct {
    const char *name;
    int64_t value;
  } want[] = {{"allocations", 0},
              {"compilations", 0},
              {"waits", 4},
              {"copies_to_device", 8},
              {"bytes_to_device", 4 * (6 * 8 * 4 + 6 * 8)},
              {"copies_from_device", 4},
              {"bytes_from_device", 4 * 18 * 4}};
  for (size_t i = 0; i < sizeof want / sizeof *want; i++)
    ck_assert_msg(json_integer_value(json_object_get(o, want[i].name)) == want[i].value, "%s", want[i].name);
  UNIT_TRUE(strstr(text, "per step: 1 waits (at its end), 2 copies of 240 bytes to the device, 1 of 72 bytes from it"));
}
END_TEST

/* Sorted by time; the plan of experts is three launches, the product is none of the driver's. */
START_TEST(kernels) {
  const json_t *list = json_object_get(report, "kernels"), *first = json_array_get(list, 0);
  double last = 1e9, all = 0;
  ck_assert_str_eq(json_string_value(json_object_get(first, "name")), "plan");
  ck_assert_str_eq(json_string_value(json_object_get(first, "what")), "i64[6, 2] -> i32[12], i32[12], i32[5]");
  ck_assert_str_eq(json_string_value(json_object_get(first, "function")), ""); /* its steps are of no call */
  UNIT_TRUE(json_integer_value(json_object_get(first, "kernels")) == 3);
  UNIT_TRUE(json_integer_value(json_object_get(first, "operand_bytes")) == 6 * 2 * 8 + 2 * 12 * 4 + 5 * 4);
  for (size_t i = 0; i < json_array_size(list); i++) {
    double ms = json_number_value(json_object_get(json_array_get(list, i), "ms"));
    UNIT_TRUE(ms <= last && ms >= 0);
    last = ms, all += ms;
  }
  UNIT_TRUE(all == 18 && json_array_size(list) == 18);
  UNIT_TRUE(strstr(text, "    3.000  16.7     1       3       0     0.0                   plan: i64[6, 2] -> "));
}
END_TEST

START_TEST(refused) {
  moec_rt_bench b = {.steps = 4, .before = {.device_waits = 9, .allocations = 7}};
  b.after = b.before;
  b.after.device_waits = 13;
  UNIT_OK(moec_rt_bench_check(&b));
  b.after.device_waits = 14;
  UNIT_FAILS(moec_rt_bench_check(&b), MOEC_INTERNAL, "no wait but the 4 at their ends, got 0, 0 and 5 waits");
  b.updates = true;
  UNIT_OK(moec_rt_bench_check(&b));
  b.after.allocations = 8;
  UNIT_FAILS(moec_rt_bench_check(&b), MOEC_INTERNAL, "expected no allocation, no compilation");
  b.after.allocations = 7, b.after.compilations = 1;
  moec_status *s = moec_rt_bench_check(&b);
  ck_assert_int_eq(moec_status_exit(s), 1);
  moec_status_free(s);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {census, window, kernels, refused};
  Suite *suite = suite_create("runtime_bench");
  TCase *tcase = tcase_create("bench");
  tcase_set_timeout(tcase, 0);
  tcase_add_unchecked_fixture(tcase, setup, teardown);
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(tcase, tests[i]);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
