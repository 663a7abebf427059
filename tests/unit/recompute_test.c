/* What F_fwd and F_bwd hold: the stages of the expert region are counted in both modes of recompute, with and without a
 * reader of the combined output. */
#include "passes/pass.h"
#include "tests/unit/unit.h"

/* One expert layer, called twice, so that its backward function is made once. |after| stands between combine and
 * residual. */
static moec_module *two_layers(const char *after) {
  char text[8192];
  moec_module *m = NULL;
  int n = snprintf(text, sizeof text,
                   "module \"\" {\n  symbols t\n}\n"
                   "fn @\"main\"(%%1 \"x\" : f32[t, 4], %%2 \"router\" : f32[4, 4], %%3 \"w1\" : f32[4, 6, 4], %%4 "
                   "\"w2\" : f32[4, 4, 3]) -> (%%6 \"y\") {\n"
                   "  %%5 = call(%%1, %%2, %%3, %%4) {fn = @\"moe\"} : f32[t, 4]\n"
                   "  %%6 = call(%%5, %%2, %%3, %%4) {fn = @\"moe\"} : f32[t, 4]\n"
                   "}\n"
                   "fn @\"moe\"(%%1 \"x\" : f32[t, 4], %%2 \"router\" : f32[4, 4], %%3 \"w1\" : f32[4, 6, 4], %%4 "
                   "\"w2\" : f32[4, 4, 3]) -> (%%21 \"y\") {\n"
                   "  %%5 = dot(%%1, %%2) {lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [1]} : "
                   "f32[t, 4]\n"
                   "  %%6 = softmax(%%5) {axis = 1} : f32[t, 4]\n"
                   "  %%7 = moe.select(%%6) {k = 2} : i64[t, 2]\n"
                   "  %%8 = gather_elements(%%6, %%7) {axis = 1} : f32[t, 2]\n"
                   "  %%9, %%10, %%11 = moe.plan(%%7) {experts = 4} : i32[2*t], i32[2*t], i32[5]\n"
                   "  %%12 = moe.dispatch(%%1, %%9) {k = 2} : f32[2*t, 4]\n"
                   "  %%13 = moe.grouped_dot(%%12, %%3, %%11) {transposed = true} : f32[2*t, 6]\n"
                   "  %%14 = slice(%%13) {start = [0, 0], size = [2*t, 3], step = [1, 1]} : f32[2*t, 3]\n"
                   "  %%15 = slice(%%13) {start = [0, 3], size = [2*t, 3], step = [1, 1]} : f32[2*t, 3]\n"
                   "  %%16 = swiglu(%%14, %%15) {alpha = 0x1p+0, beta = 0x0p+0, limit = 0x0p+0} : f32[2*t, 3]\n"
                   "  %%17 = moe.grouped_dot(%%16, %%4, %%11) {transposed = true} : f32[2*t, 4]\n"
                   "  %%18 = moe.weight(%%17, %%8, %%9) : f32[2*t, 4]\n"
                   "  %%19 = moe.combine(%%18, %%10) {k = 2} : f32[t, 4]\n"
                   "%s}\n",
                   after);
  UNIT_TRUE(n > 0 && (size_t)n < sizeof text);
  UNIT_OK(moec_parse(text, &m));
  return m;
}

#define RESIDUAL                                             \
  "  %20 = reshape(%19) {shape = [t, 4]} : f32[t, 4]\n"        \
  "  %21 = add(%1, %20) : f32[t, 4]\n"
#define NORM_FIRST                                                             \
  "  %20 = rms_norm(%19, _) {eps = 0x1p-20} : f32[t, 4] @\"post_norm\"\n"      \
  "  %21 = add(%1, %20) : f32[t, 4]\n"

static moec_status *differentiate(moec_module *m, moec_recompute mode, moec_skip skip, moec_pass_ctx *cx,
                                  moec_compile_options *o) {
  *o = (moec_compile_options){.train = true, .recompute = mode, .skip_combine = skip};
  *cx = (moec_pass_ctx){.options = o};
  return moec_run_pass(m, "grad", cx);
}

/* Nodes of |op| in the function whose name ends in |suffix|; there is one such function. */
static int count(const moec_module *m, const char *name, moec_op op) {
  int n = -1;
  for (size_t f = 1; f < m->n_fns; f++) {
    const moec_graph *g = m->fns[f];
    if (strcmp(moec_sym_str(m, g->name), name) != 0) continue;
    UNIT_TRUE(n == -1);
    n = 0;
    for (uint32_t i = 1; i < g->n_nodes; i++) n += g->nodes[i].op == op;
  }
  UNIT_TRUE(n >= 0);
  return n;
}

/* How often a stage runs in one step of a layer. Forward and replay together are select 1, plan 1, dispatch 2, fc1 2,
 * fc2 1, weight 1, combine 1 (docs/design.md); the gradient itself adds the adjoint of each: combine's is a dispatch,
 * dispatch's a combine, each grouped dot's another one and an outer product; weights are applied to the gradient of
 * fc2's operand and to that operand. */
typedef struct stage {
  moec_op op;
  int forward, backward_none, backward_block, gradient;
} stage;

static const stage stages[] = {
    {MOEC_OP_MOE_SELECT, 1, 0, 0, 0}, {MOEC_OP_MOE_PLAN, 1, 0, 0, 0},        {MOEC_OP_MOE_DISPATCH, 1, 0, 1, 1},
    {MOEC_OP_MOE_GROUPED_DOT, 2, 0, 1, 2}, {MOEC_OP_MOE_WEIGHT, 1, 0, 0, 2}, {MOEC_OP_MOE_COMBINE, 1, 0, 0, 1},
    {MOEC_OP_MOE_GROUPED_OUTER, 0, 0, 0, 2}};

static void check_counts(moec_recompute mode) {
  moec_compile_options o;
  moec_pass_ctx cx;
  moec_module *m = two_layers(RESIDUAL);
  UNIT_OK(differentiate(m, mode, MOEC_SKIP_ON, &cx, &o)); /* skippable: "on" is content */
  for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
    const stage *s = &stages[i];
    ck_assert_int_eq(count(m, "moe_fwd", s->op), s->forward);
    int replay = mode == MOEC_RECOMPUTE_BLOCK ? s->backward_block : s->backward_none;
    ck_assert_int_eq(count(m, "moe_bwd", s->op), replay + s->gradient);
  }
  moec_module_destroy(m);
}

START_TEST(stages_with_everything_saved) { check_counts(MOEC_RECOMPUTE_NONE); }
END_TEST

START_TEST(stages_with_blocks_recomputed) { check_counts(MOEC_RECOMPUTE_BLOCK); }
END_TEST

START_TEST(off_replays_the_whole_block) {
  moec_compile_options o;
  moec_pass_ctx cx;
  moec_module *m = two_layers(RESIDUAL);
  UNIT_OK(differentiate(m, MOEC_RECOMPUTE_BLOCK, MOEC_SKIP_OFF, &cx, &o));
  ck_assert_int_eq(count(m, "moe_bwd", MOEC_OP_MOE_COMBINE), 2);
  ck_assert_int_eq(count(m, "moe_bwd", MOEC_OP_MOE_WEIGHT), 3);
  ck_assert_int_eq(count(m, "moe_bwd", MOEC_OP_MOE_GROUPED_DOT), 4);
  moec_module_destroy(m);
}
END_TEST

START_TEST(a_reader_of_the_value_keeps_combine) {
  moec_compile_options o;
  moec_pass_ctx cx;
  moec_module *m = two_layers(NORM_FIRST);
  UNIT_OK(differentiate(m, MOEC_RECOMPUTE_BLOCK, MOEC_SKIP_AUTO, &cx, &o));
  ck_assert_int_eq(count(m, "moe_bwd", MOEC_OP_MOE_COMBINE), 2);
  ck_assert_uint_eq(cx.remarks.n, 1);
  ck_assert_ptr_nonnull(strstr(cx.remarks.lines[0], "keeps moe.combine in its replay"));
  ck_assert_ptr_nonnull(strstr(cx.remarks.lines[0], "\"post_norm\" reads its value"));
  moec_module_destroy(m);
}
END_TEST

START_TEST(on_refuses_what_cannot_be_skipped) {
  moec_compile_options o;
  moec_pass_ctx cx;
  moec_module *m = two_layers(NORM_FIRST);
  UNIT_FAILS(differentiate(m, MOEC_RECOMPUTE_BLOCK, MOEC_SKIP_ON, &cx, &o), MOEC_UNSUPPORTED,
             "\"post_norm\" reads the combined output");
  moec_module_destroy(m);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("recompute");
  TCase *tcase = tcase_create("recompute");
  tcase_add_test(tcase, stages_with_everything_saved);
  tcase_add_test(tcase, stages_with_blocks_recomputed);
  tcase_add_test(tcase, off_replays_the_whole_block);
  tcase_add_test(tcase, a_reader_of_the_value_keeps_combine);
  tcase_add_test(tcase, on_refuses_what_cannot_be_skipped);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
