/* Weights that are made from a seed: base/fresh.h, as parameters of a model on the processor and, through the driver of
 * tests/support/fake_cuda.h, on a device whose host has no copy of them. */
#include "base/fresh.h"
#include "include/moec.h"
#include "tests/support/fake_device.h"

enum { START = 12345, LONG = 700001, ROWS = 6, COLUMNS = 70000 };

START_TEST(names) {
  static const moec_fresh all[] = {
      {MOEC_FRESH_NORMAL, 0.02}, {MOEC_FRESH_NORMAL, 1.0 / 3}, {MOEC_FRESH_ZEROS, 0}, {MOEC_FRESH_ONES, 0},
      {MOEC_FRESH_LOG_UNIFORM, 0}};
  char text[MOEC_FRESH_TEXT];
  moec_fresh f;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    moec_fresh_print(&all[i], text);
    UNIT_TRUE(moec_fresh_is(text));
    UNIT_OK(moec_fresh_parse(text, &f));
    UNIT_TRUE(f.kind == all[i].kind && f.deviation == all[i].deviation);
  }
  UNIT_TRUE(!moec_fresh_is("model.safetensors") && !moec_fresh_is("moec.ini"));
  static const char *const wrong[] = {"moec.init:",         "moec.init:normal",     "moec.init:normal:",
                                      "moec.init:normal:x", "moec.init:normal:-1",  "moec.init:normal:1e999",
                                      "moec.init:ones:1",   "moec.init:one",        "moec.init:normal:1,",
                                      "moec.init:normal: 1"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    UNIT_FAILS(moec_fresh_parse(wrong[i], &f), MOEC_INVALID_MODEL, "weights made from a seed: expected ");
}
END_TEST

/* A part is the part of the whole; the moments are those asked for. */
START_TEST(sequence) {
  enum { N = 100000 };
  static float all[N], part[100];
  const moec_fresh f = {MOEC_FRESH_NORMAL, 0.5};
  double sum = 0, squares = 0;
  moec_fresh_fill(&f, MOEC_F32, all, N, START);
  moec_fresh_fill(&f, MOEC_F32, part, 100, START + 4321);
  UNIT_TRUE(!memcmp(part, all + 4321, sizeof part));
  for (int i = 0; i < N; i++) sum += (double)all[i], squares += (double)all[i] * (double)all[i];
  UNIT_TRUE(sum / N > -0.01 && sum / N < 0.01 && squares / N > 0.245 && squares / N < 0.255);
  uint64_t start = moec_fresh_start(1, "a");
  UNIT_TRUE(start != moec_fresh_start(2, "a") && start != moec_fresh_start(1, "b"));
}
END_TEST

/* ---- in a model -------------------------------------------------------------------------- */

static uint32_t add_param(plan_builder *b, const char *name, moec_dtype type, moec_plan_piece piece) {
  moec_tensor t = {.dtype = type, .rank = piece.rank};
  for (uint32_t a = 0; a < piece.rank; a++) t.dims[a] = piece.shape[piece.perm[a]];
  piece.name = pb_str(b, name);
  uint32_t w = pb_static(b, MOEC_BUFFER_PARAM, &t), at = PB_ADD(b, pieces, piece);
  PB_ADD(b, params, (moec_plan_param){.name = pb_str(b, name), .tensor = w, .storage = piece.dtype, .shard_axis = -1,
                                      .pieces = at, .n_pieces = 1, .grad = MOEC_NONE});
  return w;
}

/* y = |line|; the others are there to be read. */
static plan_builder *build(const char *target, const char *how) {
  plan_builder *b = pb_create();
  if (target) b->target = pb_str(b, target);
  PB_ADD(b, files, (moec_plan_file){.name = pb_str(b, how)});
  PB_ADD(b, files, (moec_plan_file){.name = pb_str(b, "moec.init:ones")});
  const moec_plan_piece line = {.dtype = MOEC_BF16, .rank = 1, .shape = {LONG}, .offset = START};
  moec_plan_piece turned = {.dtype = MOEC_BF16, .rank = 2, .shape = {ROWS, COLUMNS}, .offset = UINT64_MAX - 7};
  turned.perm[0] = 1;
  const moec_plan_piece ones = {.file = 1, .dtype = MOEC_F32, .rank = 1, .shape = {3}};
  uint32_t w = add_param(b, "line", MOEC_BF16, line);
  add_param(b, "wide", MOEC_F32, line);
  add_param(b, "turned", MOEC_F32, turned);
  add_param(b, "ones", MOEC_F32, ones);
  moec_plan_piece empty = {.dtype = MOEC_BF16, .rank = 3, .shape = {0, INT64_MAX / 3, INT64_MAX / 5}};
  for (uint32_t a = 0; a < 3; a++) empty.perm[a] = a;
  add_param(b, "empty", MOEC_F32, empty);
  uint32_t y = pb_tensor(b, MOEC_BUFFER_OUTPUT, MOEC_BF16, 1, (moec_expr_ref[]){pb_const(b, LONG)});
  pb_step(b, MOEC_AT_STEP, MOEC_STEP_COPY, 1, 1, (uint32_t[]){w, y}, 0, NULL);
  pb_output(b, "y", y);
  return b;
}

static moec_status *open_model(const char *target, const char *how, int describe, moec_model **m, uint8_t **file) {
  static const uint8_t cubin[] = "cubin";
  const moec_map object = {.data = cubin, .size = sizeof cubin};
  const moec_options o = {.threads = 3, .describe = describe};
  size_t size;
  plan_builder *b = build(target, how);
  *file = pb_finish(b, NULL, target ? &object : NULL, &size);
  free(b);
  moec_status *s = moec_open_memory(*file, size, &o, m);
  if (s) free(*file);
  return s;
}

static const void *parameter(moec_model *m, const char *name) {
  uint32_t i;
  moec_view v;
  UNIT_OK(moec_find(m, MOEC_PARAMETERS, name, &i));
  UNIT_OK(moec_parameter(m, i, &v));
  return v.data;
}

static void check_values(moec_model *m) {
  const moec_fresh f = {MOEC_FRESH_NORMAL, 0.25};
  uint16_t *want = malloc(LONG * sizeof *want);
  moec_view y;
  moec_fresh_fill(&f, MOEC_BF16, want, LONG, START);
  UNIT_TRUE(!memcmp(parameter(m, "line"), want, LONG * sizeof *want));
  const float *wide = parameter(m, "wide"), *turned = parameter(m, "turned"), *ones = parameter(m, "ones");
  for (size_t i = 0; i < LONG; i++) UNIT_TRUE((double)wide[i] == moec_load_f64(MOEC_BF16, want, i));
  UNIT_OK(moec_forward(m));
  UNIT_OK(moec_output(m, 0, &y));
  UNIT_TRUE(!memcmp(y.data, want, LONG * sizeof *want));
  moec_fresh_fill(&f, MOEC_BF16, want, ROWS * COLUMNS, UINT64_MAX - 7);
  for (size_t r = 0; r < ROWS; r++) {
    for (size_t c = 0; c < COLUMNS; c++)
      UNIT_TRUE((double)turned[c * ROWS + r] == moec_load_f64(MOEC_BF16, want, r * COLUMNS + c));
  }
  UNIT_TRUE(ones[0] == 1 && ones[1] == 1 && ones[2] == 1);
  free(want);
}

START_TEST(on_the_processor) {
  uint8_t *file;
  moec_model *m;
  UNIT_OK(open_model(NULL, "moec.init:normal:0.25", 0, &m, &file));
  check_values(m);
  moec_close(m);
  free(file);
  UNIT_FAILS(open_model(NULL, "moec.init:uniform", 0, &m, &file), MOEC_INVALID_MODEL, "got \"moec.init:uniform\"");
}
END_TEST

/* ---- on a device ------------------------------------------------------------------------- */

typedef void (*normal_fn)(void *, int32_t, int32_t, uint64_t, float, int64_t);
typedef struct normal_call {
  normal_fn fn;
  void **p;
} normal_call;

static void call_normal(void *user) {
  const normal_call *c = user;
  c->fn(*(void **)c->p[0], *(int32_t *)c->p[1], *(int32_t *)c->p[2], *(uint64_t *)c->p[3], *(float *)c->p[4],
        *(int64_t *)c->p[5]);
}

static void run_normal(const char *name, const fake_launch *l, void **parameters) {
  normal_call c = {NULL, parameters};
  void *symbol = dlsym(fake_library->library, name);
  UNIT_TRUE(symbol && !strcmp(name, "moec_normal"));
  memcpy(&c.fn, &symbol, sizeof c.fn);
  emulation_launch(fake_library, l->blocks, l->threads, call_normal, &c);
}

static void load_fake(void) {
  static const char *const libraries[] = {"libcuda.so.1", "libcublas.so.13"};
  const char *build_dir = getenv("MOEC_BUILD");
  fake_cuda *(*get)(void) = NULL;
  ck_assert_ptr_nonnull(build_dir);
  for (int i = 0; i < 2; i++) {
    char path[512];
    snprintf(path, sizeof path, "%s/fake/%s", build_dir, libraries[i]);
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    ck_assert_msg(library != NULL, "%s", dlerror());
    void *symbol = dlsym(library, "fake_cuda_get");
    if (!i) memcpy(&get, &symbol, sizeof get);
  }
  fake = get();
  fake_library = fake_open_library();
  fake_begin(run_normal);
}

/* The device makes |line| and |wide|; the host has the one that is turned round, and makes the ones. */
START_TEST(on_a_device) {
  uint8_t *file;
  moec_model *m;
  moec_counters c;
  UNIT_OK(open_model("cuda:sm_90a", "moec.init:normal:0.25", 1, &m, &file)); /* nothing is made to be described */
  moec_close(m);
  free(file);
  load_fake();
  UNIT_OK(open_model("cuda:sm_90a", "moec.init:normal:0.25", 0, &m, &file));
  moec_counters_get(m, &c);
  uint64_t turned = ROWS * COLUMNS * sizeof(float);
  UNIT_TRUE(c.parameter_bytes >= turned && c.parameter_bytes < turned + 256 && c.live_bytes < turned + (1 << 20));
  UNIT_TRUE(c.device_write_bytes >= turned + 12 && c.device_write_bytes < turned + 4096 && fake->n_launches == 2);
  check_values(m);
  moec_close(m);
  free(file);
  UNIT_TRUE(fake->live == 0);
}
END_TEST

/* Other kinds go through the host's memory, a window at a time. */
START_TEST(through_the_host) {
  uint8_t *file;
  moec_model *m;
  moec_counters c;
  fake_begin(run_normal);
  UNIT_OK(open_model("cuda:sm_90a", "moec.init:log_uniform", 0, &m, &file));
  moec_counters_get(m, &c);
  UNIT_TRUE(c.device_write_bytes >= LONG * 6 + ROWS * COLUMNS * 4 + 12 && !fake->n_launches);
  const moec_fresh f = {MOEC_FRESH_LOG_UNIFORM, 0};
  const float *wide = parameter(m, "wide");
  uint16_t *want = malloc(LONG * sizeof *want);
  moec_fresh_fill(&f, MOEC_BF16, want, LONG, START);
  UNIT_TRUE(!memcmp(parameter(m, "line"), want, LONG * sizeof *want));
  for (size_t i = 0; i < LONG; i++) UNIT_TRUE((double)wide[i] == moec_load_f64(MOEC_BF16, want, i));
  free(want);
  moec_close(m);
  free(file);
  emulation_close(fake_library);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {names, sequence, on_the_processor, on_a_device, through_the_host};
  Suite *suite = suite_create("runtime_made");
  TCase *tcase = tcase_create("made");
  tcase_set_timeout(tcase, 0);
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(tcase, tests[i]);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
