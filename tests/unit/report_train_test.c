/* The report's part on training: programs, planned memory, what functions save, replay and leave out. */
#include "codegen/codegen.h"
#include "passes/pass.h"
#include "tests/unit/report_tools.h"

#define PARAM(name, shape, trainable, group, axis)                                                                  \
  "  param @\"" name "\" : f32" shape " {trainable = " trainable ", group = " group ", shard_axis = " axis          \
  ", tie = 0, storage = f32, compute = f32, master = none, pieces = []}\n"

/* An expert layer called twice; |after| stands between combine and residual. Nothing differentiable reads "step". */
static moec_module *two_layers(const char *after) {
  static const char begin[] =
      "module \"two\" {\n  symbols t\n"
      PARAM("router", "[4, 4]", "true", "dense", "-1")
      PARAM("w1", "[4, 6, 4]", "true", "expert", "0")
      PARAM("w2", "[4, 4, 3]", "true", "expert", "0")
      PARAM("step", "[4]", "true", "dense", "-1")
      PARAM("fixed", "[4]", "false", "dense", "-1")
      "}\n"
      "fn @\"main\"(%1 \"x\" : f32[t, 4]) -> (%12 \"y\", %14 \"cost\") {\n"
      "  %2 = param() {param = @\"router\"} : f32[4, 4]\n"
      "  %3 = param() {param = @\"w1\"} : f32[4, 6, 4]\n"
      "  %4 = param() {param = @\"w2\"} : f32[4, 4, 3]\n"
      "  %5 = call(%1, %2, %3, %4) {fn = @\"moe\"} : f32[t, 4]\n"
      "  %6 = call(%5, %2, %3, %4) {fn = @\"moe\"} : f32[t, 4]\n"
      "  %7 = param() {param = @\"step\"} : f32[4]\n"
      "  %8 = floor(%7) : f32[4]\n"
      "  %9 = param() {param = @\"fixed\"} : f32[4]\n"
      "  %10 = mul(%8, %9) : f32[4]\n"
      "  %11 = broadcast(%10) {shape = [t, 4], map = [1]} : f32[t, 4]\n"
      "  %12 = add(%6, %11) : f32[t, 4]\n"
      "  %13 = mul(%12, %12) : f32[t, 4]\n"
      "  %14 = reduce_sum(%13) {axes = [0, 1]} : f32[]\n"
      "}\n"
      "fn @\"moe\"(%1 \"x\" : f32[t, 4], %2 \"router\" : f32[4, 4], %3 \"w1\" : f32[4, 6, 4], "
      "%4 \"w2\" : f32[4, 4, 3]) -> (%21 \"y\") {\n"
      "  %5 = dot(%1, %2) {lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [1]} : f32[t, 4]\n"
      "  %6 = softmax(%5) {axis = 1} : f32[t, 4]\n"
      "  %7 = moe.select(%6) {k = 2} : i64[t, 2]\n"
      "  %8 = gather_elements(%6, %7) {axis = 1} : f32[t, 2]\n"
      "  %9, %10, %11 = moe.plan(%7) {experts = 4} : i32[2*t], i32[2*t], i32[5]\n"
      "  %12 = moe.dispatch(%1, %9) {k = 2} : f32[2*t, 4]\n"
      "  %13 = moe.grouped_dot(%12, %3, %11) {transposed = true} : f32[2*t, 6]\n"
      "  %14 = slice(%13) {start = [0, 0], size = [2*t, 3], step = [1, 1]} : f32[2*t, 3]\n"
      "  %15 = slice(%13) {start = [0, 3], size = [2*t, 3], step = [1, 1]} : f32[2*t, 3]\n"
      "  %16 = swiglu(%14, %15) {alpha = 0x1p+0, beta = 0x0p+0, limit = 0x0p+0} : f32[2*t, 3]\n"
      "  %17 = moe.grouped_dot(%16, %4, %11) {transposed = true} : f32[2*t, 4]\n"
      "  %18 = moe.weight(%17, %8, %9) : f32[2*t, 4]\n"
      "  %19 = moe.combine(%18, %10) {k = 2} : f32[t, 4]\n";
  moec_module *m = NULL;
  char *text = malloc(sizeof begin + strlen(after) + 4);
  sprintf(text, "%s%s}\n", begin, after);
  UNIT_OK(moec_parse(text, &m));
  UNIT_OK(moec_verify(m));
  free(text);
  return m;
}

#define RESIDUAL                                       \
  "  %20 = reshape(%19) {shape = [t, 4]} : f32[t, 4]\n" \
  "  %21 = add(%1, %20) : f32[t, 4]\n"
#define NORM_FIRST                                                          \
  "  %20 = rms_norm(%19, _) {eps = 0x1p-20} : f32[t, 4] @\"post_norm\"\n"   \
  "  %21 = add(%1, %20) : f32[t, 4]\n"

/* The report with 7 tokens; |train| NULL: of the forward entry alone. */
static json_t *report_of(const char *after, const moec_compile_options *train, const moec_report_training *said) {
  static const moec_report_dim dims[] = {{"t", 7}};
  moec_compile_options none = {0};
  moec_pass_ctx cx = {.options = train ? train : &none};
  moec_module *m = two_layers(after);
  moec_report_input in = {.dims = dims, .n_dims = 1, .training = said};
  json_t *r = NULL;
  UNIT_OK(moec_run_pass(m, "loss", &cx));
  UNIT_OK(moec_run_pass(m, "grad", &cx));
  UNIT_OK(moec_run_pass(m, "fuse", &cx));
  UNIT_OK(moec_codegen_report(m, &in, NULL, MOEC_COMBINE_FUSED, &r));
  moec_module_destroy(m);
  return r;
}

static json_t *trained(const char *after, moec_recompute mode, moec_skip skip, const json_t *other) {
  static const char *const modes[] = {"none", "block"}, *const skips[] = {"auto", "off", "on"};
  moec_compile_options o = {.train = true, .loss = "cost", .recompute = mode, .skip_combine = skip};
  moec_report_training said = {.loss = "cost", .recompute = modes[mode], .skip_combine = skips[skip], .other = other};
  return report_of(after, &o, &said);
}

static json_t *block(void) { return trained(RESIDUAL, MOEC_RECOMPUTE_BLOCK, MOEC_SKIP_AUTO, NULL); }

/* How much of |what| function 0 saves, computes again and leaves out: "1 0 0". */
static const char *fate(const json_t *r, const char *what, char out[32]) {
  const json_t *work = at(r, "training.functions.0.work");
  for (size_t i = 0; i < json_array_size(work); i++) {
    const json_t *w = json_array_get(work, i);
    if (strcmp(text_at(w, "what"), what) != 0) continue;
    snprintf(out, 32, "%lld %lld %lld", int_at(w, "saved"), int_at(w, "again"), int_at(w, "left_out"));
    return out;
  }
  return "absent";
}

static void check_fates(const json_t *r, size_t n, const char *const (*want)[2]) {
  char got[32];
  for (size_t i = 0; i < n; i++)
    if (strcmp(fate(r, want[i][0], got), want[i][1]) != 0)
      ck_abort_msg("%s: expected %s, got %s", want[i][0], want[i][1], fate(r, want[i][0], got));
  ck_assert_uint_eq(json_array_size(at(r, "training.functions.0.work")), n);
}

START_TEST(a_replayed_function) {
  static const char *const want[][2] = {
      {"dot", "0 1 0"}, {"softmax", "0 1 0"}, {"moe.select", "1 0 0"}, {"gather_elements", "0 1 0"},
      {"moe.plan", "1 0 0"}, {"moe.dispatch", "0 1 0"}, {"fc1", "0 1 0"}, {"swiglu", "0 1 0"},
      {"fc2", "0 0 1"}, {"moe.weight", "0 0 1"}, {"moe.combine", "0 0 1"}, {"add", "0 0 1"}};
  json_t *r = block();
  check_fates(r, sizeof want / sizeof *want, want);
  ck_assert_uint_eq(json_array_size(at(r, "training.functions")), 1);
  ck_assert_str_eq(text_at(r, "training.functions.0.name"), "moe");
  ck_assert_str_eq(text_at(r, "training.functions.0.forward"), "moe_fwd");
  ck_assert_str_eq(text_at(r, "training.functions.0.backward"), "moe_bwd");
  ck_assert_int_eq(int_at(r, "training.functions.0.function"), 1);
  ck_assert_int_eq(int_at(r, "training.functions.0.calls"), 2);
  ck_assert_int_eq(int_at(r, "training.functions.0.backward_calls"), 2);
  ck_assert(json_is_null(at(r, "training.functions.0.reader")));
  /* the experts of 7 tokens, both orders of their 14 rows, offsets of 4 experts */
  ck_assert_uint_eq(json_array_size(at(r, "training.functions.0.saved")), 4);
  ck_assert_str_eq(text_at(r, "training.functions.0.saved.0.from"), "moe.select");
  ck_assert_str_eq(text_at(r, "training.functions.0.saved.0.type"), "i64[t, 2]");
  ck_assert_int_eq(int_at(r, "training.functions.0.saved.0.bytes.value"), 7 * 2 * 8);
  ck_assert_int_eq(int_at(r, "training.functions.0.saved_bytes.value"), 7 * 2 * 8 + 2 * 14 * 4 + 5 * 4);
  json_decref(r);
}
END_TEST

START_TEST(a_reader_is_named) {
  char got[32];
  json_t *r = trained(NORM_FIRST, MOEC_RECOMPUTE_BLOCK, MOEC_SKIP_AUTO, NULL);
  ck_assert_str_eq(text_at(r, "training.functions.0.reader"), "mul \"post_norm\""); /* of its gradient */
  ck_assert_str_eq(fate(r, "moe.combine", got), "0 1 0");
  ck_assert_str_eq(fate(r, "fc2", got), "0 1 0");
  ck_assert_str_eq(fate(r, "add", got), "0 0 1");
  char *text = render(r, "text");
  ck_assert_ptr_nonnull(strstr(text, "moe.combine: mul \"post_norm\" reads its value"));
  free(text);
  json_decref(r);
}
END_TEST

START_TEST(off_leaves_nothing_out) {
  json_t *r = trained(RESIDUAL, MOEC_RECOMPUTE_BLOCK, MOEC_SKIP_OFF, NULL);
  const json_t *work = at(r, "training.functions.0.work");
  for (size_t i = 0; i < json_array_size(work); i++) ck_assert_int_eq(int_at(json_array_get(work, i), "left_out"), 0);
  ck_assert_uint_eq(json_array_size(work), 12);
  json_decref(r);
}
END_TEST

/* Without recompute the results of contractions and of the region are saved; the routing weights are cheap. */
START_TEST(everything_saved) {
  char got[32];
  json_t *other = block(), *r = trained(RESIDUAL, MOEC_RECOMPUTE_NONE, MOEC_SKIP_AUTO, other);
  ck_assert_str_eq(fate(r, "dot", got), "1 0 0");
  ck_assert_str_eq(fate(r, "moe.dispatch", got), "1 0 0");
  ck_assert_str_eq(fate(r, "fc1", got), "1 0 0");
  ck_assert_str_eq(fate(r, "softmax", got), "0 1 0");
  ck_assert_str_eq(fate(r, "moe.combine", got), "0 0 1");
  ck_assert_str_eq(text_at(r, "training.modes.0.recompute"), "none");
  ck_assert_str_eq(text_at(r, "training.modes.1.recompute"), "block");
  ck_assert_int_eq(int_at(r, "training.modes.0.saved"), 2 * int_at(r, "training.functions.0.saved_bytes.value"));
  ck_assert_int_eq(int_at(r, "training.modes.1.saved"), 2 * int_at(other, "training.functions.0.saved_bytes.value"));
  ck_assert_int_eq(int_at(r, "training.modes.0.peak"), int_at(r, "training.programs.1.peak"));
  ck_assert_int_eq(int_at(r, "training.modes.1.peak"), int_at(other, "training.programs.1.peak"));
  ck_assert_int_gt(int_at(r, "training.modes.0.peak"), int_at(r, "training.modes.1.peak"));
  json_t *swapped = trained(RESIDUAL, MOEC_RECOMPUTE_BLOCK, MOEC_SKIP_AUTO, r);
  ck_assert(json_equal(at(swapped, "training.modes"), at(r, "training.modes")));
  json_decref(other), json_decref(r), json_decref(swapped);
}
END_TEST

START_TEST(what_is_trained) {
  json_t *r = block();
  ck_assert_int_eq(int_at(r, "training.parameters.trainable"), 4);
  ck_assert_int_eq(int_at(r, "training.parameters.frozen"), 1);
  ck_assert_int_eq(int_at(r, "training.parameters.elements"), 16 + 96 + 48 + 4);
  ck_assert_int_eq(int_at(r, "training.parameters.gradient_bytes"), 4 * (16 + 96 + 48));
  ck_assert_int_eq(int_at(r, "training.parameters.adamw_bytes"), 8 * (16 + 96 + 48));
  ck_assert_uint_eq(json_array_size(at(r, "training.parameters.without_gradient")), 1);
  ck_assert_str_eq(text_at(r, "training.parameters.without_gradient.0"), "step");
  ck_assert_str_eq(text_at(r, "training.programs.0.name"), "forward");
  ck_assert_str_eq(text_at(r, "training.programs.2.entry"), "vjp");
  ck_assert_int_gt(int_at(r, "training.programs.1.flops"), int_at(r, "training.programs.0.flops"));
  json_decref(r);
}
END_TEST

/* What is said of forward is the same with training and without. */
START_TEST(forward_is_as_without) {
  json_t *r = block(), *forward = report_of(RESIDUAL, NULL, NULL);
  ck_assert(!json_object_get(forward, "training"));
  ck_assert_int_eq(json_object_del(r, "training"), 0);
  ck_assert(json_equal(r, forward));
  json_decref(r), json_decref(forward);
}
END_TEST

START_TEST(every_view_has_it) {
  static const struct { const char *format, *text; } views[] = {
      {"text", "\nTraining\n  loss         cost, and 0.5 times the z-loss\n"},
      {"text", "    leaves out   fc2, moe.weight, moe.combine, add\n"},
      {"text", "not reached  step: no gradient path"},
      {"dot", "t0_fwd -> t0_bwd [label=\"saves 244 B a call\\nleaves out\\nfc2\\nmoe.weight"},
      {"html", "\"left_out\":1"},
      {"html", "function training()"},
      {"html", ".twin"}};
  moec_compile_options o = {.train = true, .loss = "cost", .recompute = MOEC_RECOMPUTE_BLOCK};
  json_t *r = report_of(RESIDUAL, &o, &(moec_report_training){.loss = "cost", .z_loss = 0.5, .recompute = "block",
                                                              .skip_combine = "auto"});
  json_t *forward = report_of(RESIDUAL, NULL, NULL);
  for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
    char *s = render(r, views[i].format), *plain = render(forward, views[i].format);
    if (!strstr(s, views[i].text)) ck_abort_msg("%s: no '%s' in\n%s", views[i].format, views[i].text, s);
    if (strstr(plain, views[i].text)) ck_abort_msg("%s without training: '%s'", views[i].format, views[i].text);
    if (strcmp(views[i].format, "dot") == 0) check_balanced(s);
    free(s), free(plain);
  }
  json_decref(r), json_decref(forward);
}
END_TEST

START_TEST(hostile_and_edited) {
  static const char evil[] = "</script>\"\\\x1b[31m@DATA@<!--\n";
  moec_compile_options o = {.train = true, .loss = "cost"};
  json_t *r = report_of(NORM_FIRST, &o, &(moec_report_training){.loss = evil, .recompute = evil, .skip_combine = evil});
  char *html = render(r, "html"), *text = render(r, "text"), *dot = render(r, "dot"), *json = render(r, "json");
  size_t scripts = 0;
  for (const char *p = html; (p = strstr(p, "</script")); p++) scripts++;
  ck_assert_uint_eq(scripts, 2);
  ck_assert(!strchr(text, 27) && !strchr(dot, 27));
  check_balanced(dot);
  json_t *again = NULL;
  UNIT_OK(moec_report_parse(json, strlen(json), &again));
  ck_assert(json_equal(r, again));
  ck_assert_uint_gt(damage(r, json_object_get(r, "training"), 0), 100);
  moec_buf b = {0};
  json_object_set_new(json_array_get(json_object_get(json_object_get(r, "training"), "functions"), 0), "function",
                      json_integer(2));
  UNIT_FAILS(moec_report_render(r, "text", &b), MOEC_INVALID_MODEL,
             "report: training: functions: [0]: function: expected the number of a function");
  free(html), free(text), free(dot), free(json);
  json_decref(again), json_decref(r);
}
END_TEST

UNIT_MAIN("report_train", a_replayed_function, a_reader_is_named, off_leaves_nothing_out, everything_saved,
          what_is_trained, forward_is_as_without, every_view_has_it, hostile_and_edited)
