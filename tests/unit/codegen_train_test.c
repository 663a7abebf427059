/* The ops that training brings, fused, compiled and run, against the interpreter; and which steps become of them. */
#include <math.h>
#include <unistd.h>

#include "base/tensor.h"
#include "codegen/codegen.h"
#include "include/moec.h"
#include "ir/interp.h"
#include "passes/pass.h"
#include "tests/unit/unit.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
enum { MAX = 6 };

/* ---- a module as a file -------------------------------------------------------------------- */

/* |text| after a symbol tokens: "fn @main..." */
static moec_module *parse(const char *text) {
  moec_buf b = {0};
  moec_module *m = NULL;
  moec_buf_printf(&b, "module \"t\" {\n  symbols tokens\n}\n%s", text);
  UNIT_OK(moec_parse(moec_buf_str(&b), &m));
  UNIT_OK(moec_verify(m));
  moec_buf_fini(&b);
  return m;
}

static moec_model *compile(const char *text, int threads) {
  char path[] = "/tmp/moec-train-XXXXXX";
  int fd = mkstemp(path);
  ck_assert_int_ge(fd, 0);
  close(fd);
  moec_module *m = parse(text);
  moec_compile_options o = {.target = MOEC_TARGET_CPU, .precision = MOEC_PRECISION_F32};
  moec_pass_ctx cx = {.options = &o};
  UNIT_OK(moec_run_pass(m, "fuse", &cx));
  moec_report_input report = {0};
  moec_codegen_options c = {.stub = "", .report = &report, .options_text = ""};
  UNIT_OK(moec_codegen(m, &c, path));
  moec_module_destroy(m);
  moec_options open = {.threads = threads};
  moec_model *r;
  UNIT_OK(moec_open(path, &open, &r));
  unlink(path);
  return r;
}

static uint64_t steps_of(const moec_model *m, const char *name) {
  for (uint32_t i = 0; i < moec_step_class_count(m); i++) {
    moec_step_class c;
    UNIT_OK(moec_step_class_get(m, i, &c));
    if (!strcmp(c.name, name)) return c.steps;
  }
  ck_abort_msg("no class of steps '%s'", name);
}

/* ---- running both -------------------------------------------------------------------------- */

static void give(moec_model *m, const moec_tensor *in, size_t n) {
  for (uint32_t i = 0; i < n; i++) {
    moec_view v = {.data = in[i].data, .dtype = (int)in[i].dtype, .rank = in[i].rank};
    memcpy(v.dims, in[i].dims, sizeof in[i].dims);
    UNIT_OK(moec_input_borrow(m, i, &v));
  }
}

static void check_output(const moec_model *m, uint32_t i, const moec_tensor *want,
                         double tolerance) {
  moec_view v;
  UNIT_OK(moec_output(m, i, &v));
  ck_assert_int_eq(v.dtype, (int)want->dtype);
  for (int64_t k = 0; k < moec_tensor_numel(want); k++) {
    double x = moec_load_f64(want->dtype, v.data, (size_t)k),
           y = moec_load_f64(want->dtype, want->data, (size_t)k);
    bool same = x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= tolerance * fmax(1, fabs(y));
    if (!same) ck_abort_msg("output %u, element %lld: %.9g, expected %.9g", i, (long long)k, x, y);
  }
}

/* The compiled |text| on |in| gives what it means. */
static void check_run(moec_model *m, const char *text, const moec_tensor *in, size_t n_in,
                      double tolerance) {
  moec_module *module = parse(text);
  moec_tensor want[MAX];
  size_t n_out = moec_main(module)->n_outputs;
  UNIT_OK(moec_interp_run(module, (moec_fn){1}, in, n_in, want, n_out, NULL));
  give(m, in, n_in);
  UNIT_OK(moec_forward(m));
  for (uint32_t i = 0; i < n_out; i++) {
    check_output(m, i, &want[i], tolerance);
    moec_tensor_fini(&want[i]);
  }
  moec_module_destroy(module);
}

/* Quarters in [-2, 2). */
static moec_tensor some(moec_dtype t, uint32_t rank, const int64_t *dims, uint32_t seed) {
  moec_tensor x;
  UNIT_OK(moec_tensor_init(&x, t, rank, dims));
  for (int64_t i = 0; i < moec_tensor_numel(&x); i++) {
    seed = seed * 1664525u + 1013904223u;
    moec_store_f64(t, x.data, (size_t)i, (double)(seed >> 28) / 4 - 2);
  }
  return x;
}

/* ---- the restore and its gradient ---------------------------------------------------------- */

#define PLAN                                         \
  "  %4 = moe.select(%2) {k = 2} : i64[tokens, 2]\n" \
  "  %5, %6, %7 = moe.plan(%4) {experts = 4} : i32[2*tokens], i32[2*tokens], i32[5]\n"
#define ROWS " : f32[2*tokens, 5]\n"
#define FN(results, nodes)                                                              \
  "fn @\"main\"(%1 \"x\" : f32[tokens, 5], %2 \"scores\" : f32[tokens, 4], %3 \"w\" : " \
  "f32[tokens, 2]) -> (" results ") {\n" PLAN nodes "}\n"
#define DISPATCHED "  %8 = moe.dispatch(%1, %5) {k = 2}" ROWS "  %9 = moe.weight(%8, %3, %5)" ROWS

static const struct region {
  const char *text;
  uint64_t dispatch, weight, combine;
} regions[] = {
    /* the gradient of a restore: rows of tokens, weighted, in one step */
    {FN("%9 \"y\"", DISPATCHED), 1, 0, 0},
    /* the rows as they are have a reader too */
    {FN("%8 \"rows\", %9 \"y\"", DISPATCHED), 2, 0, 0},
    /* weighted twice: by all readers */
    {FN("%9 \"y\", %11 \"z\"",
        DISPATCHED "  %10 = neg(%3) : f32[tokens, 2]\n  %11 = moe.weight(%8, %10, %5)" ROWS),
     2, 0, 0},
    /* weights in another order of rows */
    {FN("%9 \"y\"",
        "  %8 = moe.dispatch(%1, %5) {k = 2}" ROWS "  %9 = moe.weight(%8, %3, %6)" ROWS),
     1, 1, 0},
    /* weight and combine: the fused weighted restore, whatever gave the rows */
    {FN("%10 \"y\"", DISPATCHED "  %10 = moe.combine(%9, %6) {k = 2} : f32[tokens, 5]\n"), 1, 0, 1},
    {FN("%9 \"rows\", %10 \"y\"",
        DISPATCHED "  %10 = moe.combine(%9, %6) {k = 2} : f32[tokens, 5]\n"),
     1, 0, 1},
    {FN("%10 \"y\"", DISPATCHED "  %10 = moe.combine(%9, %5) {k = 2} : f32[tokens, 5]\n"), 1, 0, 1},
};

START_TEST(test_steps_of_a_region) {
  static const int64_t tokens[] = {1, 0, 2, 7};
  for (size_t i = 0; i < COUNT(regions); i++) {
    moec_model *m = compile(regions[i].text, 2);
    for (size_t t = 0; t < COUNT(tokens); t++) {
      const int64_t dims[3][2] = {{tokens[t], 5}, {tokens[t], 4}, {tokens[t], 2}};
      moec_tensor in[3];
      for (uint32_t k = 0; k < 3; k++) in[k] = some(MOEC_F32, 2, dims[k], k + (uint32_t)i);
      check_run(m, regions[i].text, in, 3, 0);
      for (int k = 0; k < 3; k++) moec_tensor_fini(&in[k]);
    }
    if (steps_of(m, "moe.dispatch") != regions[i].dispatch ||
        steps_of(m, "moe.weight") != regions[i].weight ||
        steps_of(m, "moe.combine") != regions[i].combine)
      ck_abort_msg("region %zu: %d dispatches, %d weights, %d combines", i,
                   (int)steps_of(m, "moe.dispatch"), (int)steps_of(m, "moe.weight"),
                   (int)steps_of(m, "moe.combine"));
    moec_close(m);
  }
}
END_TEST

/* What the report says a gradient of a restore moves: the rows of 7 tokens, weights and the order of rows are read
 * once, rows written once; the plan comes on top, the dispatch is done in the same step. */
START_TEST(test_report_of_a_region) {
  const uint64_t rows = 14, x = 7 * 5 * 4, w = rows * 4, order = rows * 4, y = rows * 5 * 4;
  const uint64_t plan = rows * 8 + 2 * order + 5 * 4;
  const moec_report_dim dims[] = {{"tokens", 7}};
  moec_module *m = parse(regions[0].text);
  json_t *report;
  moec_compile_options o = {.target = MOEC_TARGET_CPU, .precision = MOEC_PRECISION_F32};
  moec_pass_ctx cx = {.options = &o};
  UNIT_OK(moec_run_pass(m, "fuse", &cx));
  UNIT_OK(moec_codegen_report(m, &(moec_report_input){.dims = dims, .n_dims = 1}, NULL, MOEC_COMBINE_FUSED, &report));
  char *text = json_dumps(report, JSON_COMPACT);
  json_decref(report);
  moec_buf want = {0};
  moec_buf_printf(&want,
                  "\"flops\":{\"text\":\"10*tokens\",\"value\":70},\"bytes\":{\"text\":\"108*"
                  "tokens + 20\",\"value\":%d}",
                  (int)(plan + x + w + order + y));
  if (!strstr(text, moec_buf_str(&want))) ck_abort_msg("no %s in %s", moec_buf_str(&want), text);
  moec_buf_fini(&want);
  free(text);
  moec_module_destroy(m);
}
END_TEST

/* ---- gradients of expert weights ----------------------------------------------------------- */

static const char gradients[] =
    "fn @\"main\"(%1 \"dy\" : f32[tokens, 7], %2 \"x\" : f32[tokens, 3], %3 \"offsets\" : i32[6]) "
    "-> (%4 \"dw\", %5 \"db\") {\n"
    "  %4 = moe.grouped_outer(%1, %2, %3) : f32[5, 7, 3]\n"
    "  %5 = moe.group_sum(%1, %3) : f32[5, 7]\n"
    "}\n";

START_TEST(test_gradients_of_expert_weights) {
  static const int32_t ends[][6] = {
      {0, 0, 0, 0, 0, 0}, {0, 0, 0, 1, 1, 1}, {0, 9, 9, 9, 9, 9}, {0, 2, 2, 5, 30, 31}};
  moec_model *m = compile(gradients, 2);
  for (size_t i = 0; i < COUNT(ends); i++) {
    const int64_t n = ends[i][5], dims[2][2] = {{n, 7}, {n, 3}};
    moec_tensor in[3] = {
        some(MOEC_F32, 2, dims[0], 1),
        some(MOEC_F32, 2, dims[1], 2),
        {.dtype = MOEC_I32, .rank = 1, .dims = {6}, .data = (void *)(uintptr_t)ends[i]}};
    check_run(m, gradients, in, 3, 0);
    for (int k = 0; k < 2; k++) moec_tensor_fini(&in[k]);
  }
  moec_close(m);
}
END_TEST

/* ---- cross entropy ------------------------------------------------------------------------- */

#define LOSS(T, V)                                                                \
  "fn @\"main\"(%1 \"logits\" : " T "[tokens, " V                                 \
  "], %2 \"labels\" : i64[tokens]) -> (%3 \"nll\", %4 \"lse\") {\n"               \
  "  %3, %4 = cross_entropy(%1, %2) {ignore = -100} : f32[tokens], f32[tokens]\n" \
  "}\n"

typedef struct loss {
  moec_tensor logits, labels;
} loss;

static loss make_loss(moec_dtype t, int64_t tokens, int64_t v, uint32_t seed) {
  const int64_t dims[2] = {tokens, v};
  loss l = {.logits = some(t, 2, dims, seed)};
  UNIT_OK(moec_tensor_init(&l.labels, MOEC_I64, 1, dims));
  for (int64_t i = 0; i < tokens; i++)
    ((int64_t *)l.labels.data)[i] = i % 5 == 3 ? -100 : (i * 7919 + 1) % v;
  return l;
}

static void loss_fini(loss *l) {
  moec_tensor_fini(&l->logits);
  moec_tensor_fini(&l->labels);
}

static void check_loss(moec_model *m, const char *text, const loss *l) {
  check_run(m, text, (moec_tensor[]){l->logits, l->labels}, 2, 2e-6);
}

/* One kernel, and nothing as large as the logits beside them. */
START_TEST(test_loss_of_many_classes) {
  static const char text[] = LOSS("f32", "151936");
  moec_model *m = compile(text, 2);
  for (int64_t tokens = 3; tokens >= 0; tokens--) {
    loss l = make_loss(MOEC_F32, tokens, 151936, 5);
    check_loss(m, text, &l);
    loss_fini(&l);
  }
  loss l = make_loss(MOEC_F32, 8, 151936, 6);
  check_loss(m, text, &l);
  moec_counters c;
  moec_counters_get(m, &c);
  ck_assert_uint_eq(c.kernels_per_step, 1);
  ck_assert_uint_eq(c.library_per_step, 0);
  ck_assert_uint_lt(c.step_bytes, 16384);
  ck_assert_uint_lt(c.peak_bytes, moec_tensor_bytes(&l.logits) / 4);
  loss_fini(&l);
  moec_close(m);
}
END_TEST

START_TEST(test_loss_of_odd_values) {
  static const struct row {
    float logits[5];
    int64_t label;
  } rows[] = {
      {{1000, 1000, 1000, 1000, 1000}, 4},
      {{-1000, -1001, -999, -1000, -1000}, 2},
      {{3e38f, -3e38f, 0, 0, 0}, 1},
      {{-INFINITY, 1, 2, -INFINITY, 3}, 4},
      {{-INFINITY, 1, 2, -INFINITY, 3}, 0},
      {{-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY}, 0},
      {{-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY}, -100},
      {{INFINITY, 1, 2, 3, 4}, 1},
      {{INFINITY, 1, 2, 3, 4}, 0},
      {{INFINITY, 1, -INFINITY, INFINITY, 4}, 2},
      {{NAN, 1, 2, 3, 4}, 1},
      {{0, 1, 2, 3, NAN}, 4},
      {{NAN, NAN, NAN, NAN, INFINITY}, -100},
      {{1e-30f, 0, -0.0f, 1e-40f, 0}, 2},
  };
  static const char text[] = LOSS("f32", "5");
  moec_model *m = compile(text, 2);
  const int64_t n = COUNT(rows);
  loss l = make_loss(MOEC_F32, n, 5, 1);
  for (int64_t i = 0; i < n; i++) {
    memcpy((float *)l.logits.data + i * 5, rows[i].logits, sizeof rows[i].logits);
    ((int64_t *)l.labels.data)[i] = rows[i].label;
  }
  check_loss(m, text, &l);
  for (int64_t i = 0; i < n; i++) ((int64_t *)l.labels.data)[i] = -100; /* all ignored */
  check_loss(m, text, &l);
  moec_view nll;
  UNIT_OK(moec_output(m, 0, &nll));
  for (int64_t i = 0; i < n; i++) ck_assert_float_eq(((float *)nll.data)[i], 0);
  loss_fini(&l);
  moec_close(m);
}
END_TEST

START_TEST(test_loss_of_labels_out_of_range) {
  static const int64_t wrong[] = {-1, 5, -5, -99, -101, INT64_MAX, INT64_MIN, INT64_C(1) << 32};
  moec_model *m = compile(LOSS("f32", "5"), 2);
  loss l = make_loss(MOEC_F32, 9, 5, 1);
  for (size_t i = 0; i < COUNT(wrong); i++) {
    int64_t *at = (int64_t *)l.labels.data + i % 9, before = *at;
    *at = wrong[i];
    give(m, (moec_tensor[]){l.logits, l.labels}, 2);
    UNIT_FAILS(moec_forward(m), MOEC_INVALID_ARGUMENT, "an index is out of range");
    *at = before;
    UNIT_OK(moec_forward(m));
  }
  loss_fini(&l);
  moec_close(m);
}
END_TEST

START_TEST(test_loss_of_narrow_logits) {
  static const char bf16[] = LOSS("bf16", "1031"), f16[] = LOSS("f16", "1"),
                    f64[] = LOSS("f64", "33");
  static const struct {
    const char *text;
    moec_dtype t;
    int64_t v;
  } all[] = {{bf16, MOEC_BF16, 1031}, {f16, MOEC_F16, 1}, {f64, MOEC_F64, 33}};
  for (size_t i = 0; i < COUNT(all); i++) {
    moec_model *m = compile(all[i].text, 3);
    loss l = make_loss(all[i].t, 21, all[i].v, 3);
    check_loss(m, all[i].text, &l);
    loss_fini(&l);
    moec_close(m);
  }
}
END_TEST

UNIT_MAIN("codegen_train", test_steps_of_a_region, test_report_of_a_region,
          test_gradients_of_expert_weights, test_loss_of_many_classes, test_loss_of_odd_values,
          test_loss_of_labels_out_of_range, test_loss_of_narrow_logits)
