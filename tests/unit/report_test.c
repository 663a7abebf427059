/* The partition report: a small fused module to JSON and to every view, and reports nobody vouches for. */
#include "codegen/report.h"

#include "tests/unit/report_tools.h"

/* One block of one MoE half-block called twice between an embedding and a head. */
static const char model[] =
    "module \"small.onnx\" {\n"
    "  symbols batch, seq\n"
    "  param @\"embed\" : f32[10, 4] {trainable = true, group = dense, shard_axis = -1, tie = 0, storage = f32, "
    "compute "
    "= f32, master = none, pieces = []}\n"
    "  param @\"n0\" : f32[4] {trainable = true, group = dense, shard_axis = -1, tie = 0, storage = f32, compute = "
    "f32, "
    "master = none, pieces = []}\n"
    "  param @\"r0\" : f32[6, 4] {trainable = true, group = dense, shard_axis = -1, tie = 0, storage = f32, compute = "
    "f32, master = none, pieces = []}\n"
    "  param @\"up0\" : f32[6, 8, 4] {trainable = true, group = expert, shard_axis = 0, tie = 0, storage = bf16, "
    "compute = f32, master = none, pieces = []}\n"
    "  param @\"down0\" : f32[6, 4, 8] {trainable = true, group = expert, shard_axis = 0, tie = 0, storage = bf16, "
    "compute = f32, master = none, pieces = []}\n"
    "  param @\"up1\" : f32[6, 8, 4] {trainable = true, group = expert, shard_axis = 0, tie = 0, storage = bf16, "
    "compute = f32, master = none, pieces = []}\n"
    "  param @\"spare\" : f32[7] {trainable = true, group = dense, shard_axis = -1, tie = 0, storage = f32, compute = "
    "f32, master = none, pieces = []}\n"
    "}\n"
    "fn @\"main\"(%1 \"ids\" : i64[batch, seq]) -> (%12 \"logits\") {\n"
    "  %2 = param() {param = @\"embed\"} : f32[10, 4]\n"
    "  %3 = fused(%2, %1) {fn = @\"k_embed\", rows = batch*seq} : f32[batch, seq, 4]\n"
    "  %4 = param() {param = @\"n0\"} : f32[4]\n"
    "  %5 = param() {param = @\"r0\"} : f32[6, 4]\n"
    "  %6 = fused() {fn = @\"k_scale\", rows = seq} : f32[seq]\n"
    "  %7 = param() {param = @\"up0\"} : f32[6, 8, 4]\n"
    "  %8 = param() {param = @\"down0\"} : f32[6, 4, 8]\n"
    "  %9 = call(%3, %4, %5, %6, %7, %8) {fn = @\"moe0\"} : f32[batch, seq, 4]\n"
    "  %10 = param() {param = @\"up1\"} : f32[6, 8, 4]\n"
    "  %11 = call(%9, %4, %5, %6, %10, %8) {fn = @\"moe0\"} : f32[batch, seq, 4]\n"
    "  %12 = dot(%11, %2) {lhs_batch = [], rhs_batch = [], lhs_contract = [2], rhs_contract = [1]} : f32[batch, seq, "
    "10]\n"
    "}\n"
    "fn @\"k_embed\"(%1 \"a\" : f32[10, 4], %2 \"b\" : i64[batch, seq]) -> (%3 \"o\") {\n"
    "  %3 = gather(%1, %2) {axis = 0} : f32[batch, seq, 4]\n"
    "}\n"
    "fn @\"k_scale\"() -> (%2 \"o\") {\n"
    "  %1 = iota() {dtype = f32, shape = [seq], axis = 0} : f32[seq]\n"
    "  %2 = cos(%1) : f32[seq]\n"
    "}\n"
    "fn @\"moe0\"(%1 \"x\" : f32[batch, seq, 4], %2 \"n\" : f32[4], %3 \"r\" : f32[6, 4], %4 \"s\" : f32[seq], %5 "
    "\"u\" "
    ": f32[6, 8, 4], %6 \"d\" : f32[6, 4, 8]) -> (%21 \"y\") {\n"
    "  %7 = fused(%1, %2, %4) {fn = @\"k_norm\", rows = batch*seq} : f32[batch*seq, 4]\n"
    "  %8 = dot(%7, %3) {lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [1]} : f32[batch*seq, 6]\n"
    "  %9 = moe.select(%8) {k = 2} : i64[batch*seq, 2]\n"
    "  %10 = fused(%8, %9) {fn = @\"k_weights\", rows = batch*seq} : f32[batch*seq, 2]\n"
    "  %11, %12, %13 = moe.plan(%9) {experts = 6} : i32[2*batch*seq], i32[2*batch*seq], i32[7] @\"experts\"\n"
    "  %14 = moe.dispatch(%7, %11) {k = 2} : f32[2*batch*seq, 4]\n"
    "  %15 = moe.grouped_dot(%14, %5, %13) {transposed = true} : f32[2*batch*seq, 8]\n"
    "  %16 = fused(%15) {fn = @\"k_act\", rows = 2*batch*seq} : f32[2*batch*seq, 8]\n"
    "  %17 = moe.grouped_dot(%16, %6, %13) {transposed = true} : f32[2*batch*seq, 4]\n"
    "  %18 = moe.weight(%17, %10, %11) : f32[2*batch*seq, 4]\n"
    "  %19 = moe.combine(%18, %12) {k = 2} : f32[batch*seq, 4]\n"
    "  %20 = reshape(%19) {shape = [batch, seq, 4]} : f32[batch, seq, 4]\n"
    "  %21 = add(%1, %20) : f32[batch, seq, 4]\n"
    "}\n"
    "fn @\"k_norm\"(%1 \"x\" : f32[batch, seq, 4], %2 \"w\" : f32[4], %3 \"s\" : f32[seq]) -> (%19 \"o\") {\n"
    "  %4 = mul(%1, %1) : f32[batch, seq, 4]\n"
    "  %5 = reduce_sum(%4) {axes = [2]} : f32[batch, seq]\n"
    "  %6 = const() {data = f32[] [0x1p-2]} : f32[]\n"
    "  %7 = broadcast(%6) {shape = [batch, seq], map = []} : f32[batch, seq]\n"
    "  %8 = mul(%5, %7) : f32[batch, seq]\n"
    "  %9 = const() {data = f32[] [0x1p-20]} : f32[]\n"
    "  %10 = broadcast(%9) {shape = [batch, seq], map = []} : f32[batch, seq]\n"
    "  %11 = add(%8, %10) : f32[batch, seq]\n"
    "  %12 = rsqrt(%11) : f32[batch, seq]\n"
    "  %13 = broadcast(%12) {shape = [batch, seq, 4], map = [0, 1]} : f32[batch, seq, 4]\n"
    "  %14 = mul(%1, %13) : f32[batch, seq, 4]\n"
    "  %15 = broadcast(%2) {shape = [batch, seq, 4], map = [2]} : f32[batch, seq, 4]\n"
    "  %16 = mul(%14, %15) : f32[batch, seq, 4]\n"
    "  %17 = broadcast(%3) {shape = [batch, seq, 4], map = [1]} : f32[batch, seq, 4]\n"
    "  %18 = mul(%16, %17) : f32[batch, seq, 4]\n"
    "  %19 = reshape(%18) {shape = [batch*seq, 4]} : f32[batch*seq, 4]\n"
    "}\n"
    "fn @\"k_weights\"(%1 \"s\" : f32[batch*seq, 6], %2 \"i\" : i64[batch*seq, 2]) -> (%4 \"o\") {\n"
    "  %3 = gather_elements(%1, %2) {axis = 1} : f32[batch*seq, 2]\n"
    "  %4 = sigmoid(%3) : f32[batch*seq, 2]\n"
    "}\n"
    "fn @\"k_act\"(%1 \"h\" : f32[2*batch*seq, 8]) -> (%3 \"o\") {\n"
    "  %2 = sigmoid(%1) : f32[2*batch*seq, 8]\n"
    "  %3 = mul(%1, %2) : f32[2*batch*seq, 8]\n"
    "}\n";

/* The report of a module in text form. */
static json_t *report_of(const char *text, const moec_report_input *in) {
  moec_module *m = NULL;
  json_t *r = NULL;
  UNIT_OK(moec_parse(text, &m));
  UNIT_OK(moec_verify(m));
  UNIT_OK(moec_report_build(m, in, &r));
  moec_module_destroy(m);
  return r;
}

static json_t *small(void) {
  static const char *const remarks[] = {"outline: said why"};
  return report_of(model, &(moec_report_input){.remarks = remarks, .n_remarks = 1});
}

START_TEST(the_model) {
  json_t *r = small();
  ck_assert_str_eq(text_at(r, "model"), "small.onnx");
  ck_assert_int_eq(int_at(r, "symbols.0.value"), 1);
  ck_assert_int_eq(int_at(r, "symbols.1.value"), 128);
  ck_assert_int_eq(int_at(r, "inputs.0.bytes.value"), 1024);
  ck_assert_int_eq(int_at(r, "totals.calls"), 2);
  ck_assert_int_eq(int_at(r, "totals.expert_regions"), 2);
  ck_assert_int_eq(int_at(r, "totals.kernels"), 5);
  ck_assert_int_eq(int_at(r, "totals.kernel_launches"), 1 + 2 * 3); /* not the one at bind */
  /* embed 40, n0 4, r0 24; up0, down0, up1 192 each, of which a token takes 2 of 6 */
  ck_assert_int_eq(int_at(r, "parameters.elements"), 68 + 576);
  ck_assert_int_eq(int_at(r, "parameters.bytes"), 68 * 4 + 576 * 2);
  ck_assert_int_eq(int_at(r, "parameters.active"), 68 + 576 / 3);
  ck_assert_int_eq(int_at(r, "parameters.unused.count"), 1);
  ck_assert_str_eq(text_at(r, "remarks.0"), "outline: said why");
  json_decref(r);
}
END_TEST

START_TEST(the_moe_function) {
  json_t *r = small();
  const json_t *f = at(r, "functions.1");
  ck_assert_str_eq(text_at(f, "kind"), "moe");
  ck_assert_int_eq(int_at(f, "calls"), 2);
  ck_assert_str_eq(text_at(f, "inputs.0.role"), "residual stream");
  ck_assert_str_eq(text_at(f, "inputs.2.role"), "parameter");
  ck_assert_str_eq(text_at(f, "inputs.3.role"), "invariant");
  ck_assert_str_eq(text_at(f, "regions.0.title"), "mul + rms_norm");
  ck_assert_str_eq(text_at(f, "regions.1.title"), "linear 4 to 6");
  ck_assert_str_eq(text_at(f, "regions.1.gemm.m.text"), "batch*seq");
  ck_assert_int_eq(int_at(f, "regions.1.flops.value"), 2 * 128 * 4 * 6);
  ck_assert_str_eq(text_at(f, "regions.1.stage"), "score");
  ck_assert_str_eq(text_at(f, "regions.2.stage"), "select");
  ck_assert_str_eq(text_at(f, "regions.3.stage"), "weights");
  const json_t *e = at(f, "regions.4.expert");
  ck_assert_int_eq(int_at(e, "experts"), 6);
  ck_assert_int_eq(int_at(e, "k"), 2);
  ck_assert_str_eq(text_at(e, "intermediate.text"), "8");
  ck_assert(json_is_false(at(e, "gated")) && json_is_true(at(e, "adds_residual")) &&
            json_is_null(at(e, "shared_expert")));
  static const char *const stages[] = {"score", "select",     "weights", "plan",   "dispatch",
                                       "fc1",   "activation", "fc2",     "weight", "combine"};
  ck_assert_uint_eq(json_array_size(at(e, "stages")), 10);
  for (size_t i = 0; i < 10; i++)
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(at(e, "stages"), i), "stage")), stages[i]);
  ck_assert_str_eq(text_at(e, "stages.6.title"), "silu");
  json_decref(r);
}
END_TEST

START_TEST(every_cut_has_its_reason) {
  static const struct { int from, to; const char *reason; } cuts[] = {
      {-1, 0, "span_start"},       {0, 1, "gemm_operand"},  {1, 2, "select"},        {1, 3, "gemm_result"},
          {2, 3, "library_result"},
      {2, 4, "expert_plan"},       {0, 4, "expert_dispatch"}, {3, 4, "expert_weight"}, {-1, 4, "span_start"},
          {4, -1, "span_end"},
  };
  json_t *r = small();
  const json_t *list = at(r, "functions.1.cuts");
  ck_assert_uint_eq(json_array_size(list), sizeof cuts / sizeof *cuts);
  for (size_t i = 0; i < json_array_size(list); i++) {
    ck_assert_int_eq(int_at(json_array_get(list, i), "from"), cuts[i].from);
    ck_assert_int_eq(int_at(json_array_get(list, i), "to"), cuts[i].to);
    ck_assert_str_eq(text_at(json_array_get(list, i), "reason"), cuts[i].reason);
    ck_assert_uint_gt(strlen(text_at(json_array_get(list, i), "why")), 10);
  }
  json_decref(r);
}
END_TEST

START_TEST(blocks_layers_and_hoisted_work) {
  json_t *r = small();
  ck_assert_uint_eq(json_array_size(at(r, "blocks")), 1); /* no half mixes tokens: all halves are one block */
  ck_assert_uint_eq(json_array_size(at(r, "moe_layers")), 2);
  ck_assert_str_eq(text_at(r, "moe_layers.0.fc1"), "up0");
  ck_assert_str_eq(text_at(r, "moe_layers.1.fc1"), "up1");
  ck_assert_str_eq(text_at(r, "moe_layers.1.router"), "r0");
  ck_assert_uint_eq(json_array_size(at(r, "hoisted")), 1);
  ck_assert_str_eq(text_at(r, "hoisted.0.at"), "bind");
  ck_assert_str_eq(text_at(r, "hoisted.0.title"), "cos");
  json_decref(r);
}
END_TEST

START_TEST(sizes_are_the_callers) {
  const moec_report_dim dims[] = {{"seq", 1}, {"batch", 3}};
  json_t *r = report_of(model, &(moec_report_input){.dims = dims, .n_dims = 2});
  ck_assert_int_eq(int_at(r, "functions.1.regions.1.flops.value"), 2 * 3 * 4 * 6);
  json_decref(r);
  moec_module *m = NULL;
  UNIT_OK(moec_parse(model, &m));
  const moec_report_dim wrong[] = {{"sequence", 1}}, zero[] = {{"seq", 0}};
  UNIT_FAILS(moec_report_build(m, &(moec_report_input){.dims = wrong, .n_dims = 1}, &r), MOEC_INVALID_ARGUMENT,
             "(batch, seq), got \"sequence\"");
  UNIT_FAILS(moec_report_build(m, &(moec_report_input){.dims = zero, .n_dims = 1}, &r), MOEC_INVALID_ARGUMENT,
             "1 or more");
  moec_module_destroy(m);
}
END_TEST

START_TEST(text_view) {
  static const char *const lines[] = {
      "small.onnx\n", "  inputs       ids  i64[batch, seq]\n", "  block A      x1   moe0 + moe0\n",
      "  0-1        0          moe0        6          2    4         8        39.4 k      up0\n",
      "moe0  x2   ", "      ~> r1: library GEMM reads its operand from memory\n",
      "      ~> r4: expert region: token order changes at dispatch\n",
      "      ~> end: the span ends at the residual add\n", "                  score      in r1\n",
      "  outline: said why\n",
  };
  json_t *r = small();
  char *s = render(r, "text");
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
    if (!strstr(s, lines[i])) ck_abort_msg("no line '%s' in\n%s", lines[i], s);
  for (const char *p = s; *p; p += strcspn(p, "\n") + 1) ck_assert_uint_le(strcspn(p, "\n"), 100);
  free(s);
  json_decref(r);
}
END_TEST

START_TEST(dot_is_balanced) {
  json_t *r = small();
  char *s = render(r, "dot");
  check_balanced(s);
  ck_assert(strstr(s, "cluster_f1_r4") && strstr(s, "run0"));
  free(s);
  json_decref(r);
}
END_TEST

START_TEST(html_loads_nothing) {
  json_t *r = small();
  char *s = render(r, "html");
  for (const char *p = s; (p = strstr(p, "http")); p++)
    if (strncmp(p, "http://www.w3.org/", 18) != 0 && strncmp(p, "http-", 5) != 0) ck_abort_msg("a link: %.60s", p);
  static const char *const never[] = {"@DATA@", "@STYLE@", "src=", "@import", "url("};
  for (size_t i = 0; i < 5; i++)
    if (strstr(s, never[i])) ck_abort_msg("'%s' in the page", never[i]);
  ck_assert(strstr(s, "<noscript>") && strstr(s, "span ends at the residual add"));
  free(s);
  json_decref(r);
}
END_TEST

START_TEST(hostile_names) {
  static const char evil[] = "</script><script>alert(1)</script>\"'\\\x1b[31m@DATA@\xff&<!--\n";
  const char *const remarks[] = {evil};
  json_t *r = report_of(model, &(moec_report_input){.model = evil, .remarks = remarks, .n_remarks = 1});
  char *html = render(r, "html"), *text = render(r, "text"), *dot = render(r, "dot"), *json = render(r, "json");
  size_t scripts = 0;
  for (const char *p = html; (p = strstr(p, "</script")); p++) scripts++;
  ck_assert_uint_eq(scripts, 2); /* the page's own */
  ck_assert(!strstr(html, "alert(1)</script>") && !strstr(html, "<script>alert") && !strstr(html, "<!--"));
  ck_assert(!strchr(text, 27) && !strchr(dot, 27));
  ck_assert_ptr_nonnull(strstr(dot, "</script>\\\"'\\\\"));
  json_t *again = NULL;
  UNIT_OK(moec_report_parse(json, strlen(json), &again));
  ck_assert(json_equal(r, again));
  json_decref(again);
  free(html), free(text), free(dot), free(json);
  json_decref(r);
}
END_TEST

START_TEST(same_report_every_time) {
  json_t *a = small(), *b = small();
  static const char *const formats[] = {"json", "text", "dot", "html"};
  for (size_t i = 0; i < 4; i++) {
    char *x = render(a, formats[i]), *y = render(b, formats[i]);
    ck_assert_str_eq(x, y);
    free(x), free(y);
  }
  json_decref(a), json_decref(b);
}
END_TEST

START_TEST(hashes_ignore_names_of_sizes) {
  char *renamed = strdup(model), *p;
  while ((p = strstr(renamed, "seq"))) memcpy(p, "tok", 3);
  json_t *a = small(), *b = report_of(renamed, &(moec_report_input){0});
  ck_assert_str_eq(text_at(a, "functions.1.hash"), text_at(b, "functions.1.hash"));
  ck_assert_str_ne(text_at(a, "functions.0.hash"), text_at(a, "functions.1.hash"));
  ck_assert_int_eq(int_at(b, "symbols.1.value"), 128); /* the second axis of an integer matrix */
  json_decref(a), json_decref(b);
  free(renamed);
}
END_TEST

START_TEST(unknown_formats) {
  json_t *r = small();
  moec_buf b = {0};
  UNIT_FAILS(moec_report_render(r, "pdf", &b), MOEC_INVALID_ARGUMENT, "(text, json, dot, html), got \"pdf\"");
  ck_assert_uint_eq(b.size, 0);
  json_decref(r);
}
END_TEST

START_TEST(edited_reports) {
  json_t *r = small(), *out = NULL;
  ck_assert_uint_gt(damage(r, r, 0), 500);
  char *s = render(r, "json");
  UNIT_FAILS(moec_report_parse(s, strlen(s) / 2, &out), MOEC_INVALID_MODEL, "report: expected JSON");
  UNIT_FAILS(moec_report_parse("[]", 2, &out), MOEC_INVALID_MODEL, "report: expected an object");
  UNIT_FAILS(moec_report_parse("{}", 2, &out), MOEC_INVALID_MODEL, "\"format\": \"moec-report\"");
  json_object_set_new(r, "version", json_integer(9));
  moec_buf b = {0};
  UNIT_FAILS(moec_report_render(r, "text", &b), MOEC_INVALID_MODEL, "expected version 1, got 9");
  json_object_set_new(r, "version", json_integer(1));
  json_object_del(json_array_get(json_object_get(r, "moe_layers"), 1), "k");
  UNIT_FAILS(moec_report_render(r, "text", &b), MOEC_INVALID_MODEL,
             "report: moe_layers: [1]: the field \"k\" is missing");
  free(s);
  json_decref(r);
}
END_TEST

UNIT_MAIN("report", the_model, the_moe_function, every_cut_has_its_reason, blocks_layers_and_hoisted_work,
          sizes_are_the_callers, text_view, dot_is_balanced, html_loads_nothing, hostile_names, same_report_every_time,
          hashes_ignore_names_of_sizes, unknown_formats, edited_reports)
