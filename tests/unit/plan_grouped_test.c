/* Which products of experts compute their activation in a plan for CUDA, and whether the product is stored. */
#include "base/buf.h"
#include "codegen/plan_build.h"
#include "passes/pass.h"
#include "tests/unit/unit.h"

typedef struct plan_case {
  const char *name, *results, *nodes;
  int form;     /* moec_activation_form; -1: the product and its activation are two steps */
  bool stored;  /* the product is a result of the step */
  int kernels;  /* steps that are one */
} plan_case;

#define ROWS(columns) " : bf16[rows, " columns "]\n"
#define WIDE(columns) " : f32[rows, " columns "]\n"
#define PRODUCT "%5 = moe.grouped_dot(%1, %2, %3) {transposed = true}" ROWS("32")
#define PART(slice, part, of, start)                                                           \
  slice " = slice(" of ") {start = [0, " start "], size = [rows, 16], step = [1, 1]}" ROWS("16") \
  part " = cast(" slice ") {dtype = f32}" WIDE("16")
#define GATED                                                                               \
  "%10 = sigmoid(%7)" WIDE("16") "%11 = mul(%7, %10)" WIDE("16") "%12 = mul(%11, %9)" WIDE("16") \
  "%13 = cast(%12) {dtype = bf16}" ROWS("16")
#define SWIGLU PART("%6", "%7", "%5", "0") PART("%8", "%9", "%5", "16") GATED

static const plan_case cases[] = {
    {"nothing else reads the product", "%13 \"a\"", PRODUCT SWIGLU, MOEC_ACTIVATION_HALVES, false, 0},
    {"the product is a result", "%13 \"a\", %5 \"y\"", PRODUCT SWIGLU, MOEC_ACTIVATION_HALVES, true, 0},
    {"another product reads it", "%13 \"a\", %14 \"z\"",
     PRODUCT SWIGLU "%14 = moe.grouped_dot(%5, %4, %3) {transposed = false}" ROWS("8"), MOEC_ACTIVATION_HALVES, true,
     0},
    {"each", "%8 \"a\"",
     PRODUCT "%6 = const() {data = bf16[] [0]} : bf16[]\n%7 = broadcast(%6) {shape = [rows, 32], map = []}" ROWS("32")
     "%8 = max(%5, %7)" ROWS("32"), MOEC_ACTIVATION_EACH, false, 0},
    {"another operand", "%13 \"a\"",
     PRODUCT PART("%6", "%7", "%5", "0") PART("%8", "%9", "%1", "0") GATED, -1, true, 1},
    {"two activations", "%13 \"a\", %14 \"b\"", PRODUCT SWIGLU "%14 = neg(%5)" ROWS("32"), -1, true, 2},
    {"a sum of its row", "%6 \"a\"", PRODUCT "%6 = reduce_sum(%5) {axes = [1]} : bf16[rows]\n", -1, true, 1},
};

/* The kernels of |m|, as far as plans know them. */
static void kernels_of(moec_module *m, moec_plan_tables *t, moec_kernel_set *set) {
  *set = (moec_kernel_set){.n = m->n_fns};
  set->kernels = MOEC_NEW_ARRAY(t->arena, moec_kernel *, m->n_fns);
  set->plan_index = MOEC_NEW_ARRAY(t->arena, uint32_t, m->n_fns);
  for (size_t f = 1; f < m->n_fns; f++) {
    const moec_graph *g = m->fns[f];
    for (size_t n = 1; n < g->n_nodes; n++) {
      if (g->nodes[n].op != MOEC_OP_FUSED) continue;
      const moec_attrs_FUSED *a = g->nodes[n].attrs;
      if (set->kernels[a->fn.i]) continue;
      UNIT_OK(moec_kernel_build(t->arena, m, m->fns[a->fn.i], a->rows, &set->kernels[a->fn.i]));
      set->plan_index[a->fn.i] = MOEC_TABLE_ADD(t, kernels, ((moec_plan_kernel){.name = 0}));
    }
  }
}

/* The step of the first product; *kernels: how many steps are one. */
static const moec_plan_step *product_of(const moec_plan_tables *t, int *kernels) {
  const moec_plan_step *found = NULL;
  *kernels = 0;
  for (size_t i = t->n_steps; i-- > 0;) {
    *kernels += t->steps[i].op == MOEC_STEP_KERNEL;
    if (t->steps[i].op == MOEC_STEP_MOE_GROUPED_DOT) found = &t->steps[i];
  }
  ck_assert_ptr_nonnull(found);
  return found;
}

static void check(const plan_case *c, bool cuda) {
  moec_buf text = {0};
  moec_module *m;
  moec_plan_tables t;
  moec_kernel_set set;
  int kernels;
  moec_compile_options o = {.target = MOEC_TARGET_CUDA, .precision = MOEC_PRECISION_BF16};
  moec_pass_ctx cx = {.options = &o};
  moec_arena *arena = moec_arena_create();
  moec_buf_printf(&text,
                  "module \"t\" {\n  symbols rows\n}\n"
                  "fn @\"main\"(%%1 \"x\" : bf16[rows, 16], %%2 \"w\" : bf16[4, 32, 16], %%3 \"offsets\" : i32[5], "
                  "%%4 \"v\" : bf16[4, 32, 8]) -> (%s) {\n%s}\n",
                  c->results, c->nodes);
  UNIT_OK(moec_parse(moec_buf_str(&text), &m));
  UNIT_OK(moec_verify(m));
  UNIT_OK(moec_run_pass(m, "fuse", &cx));
  moec_plan_tables_init(&t, arena, m);
  kernels_of(m, &t, &set);
  set.cuda = cuda;
  UNIT_OK(moec_plan_build(&t, m, &set, MOEC_COMBINE_FUSED));
  const moec_plan_step *s = product_of(&t, &kernels);
  bool fused = cuda && c->form >= 0;
  ck_assert_msg(s->n_out == (fused ? 2 : 1) && s->n_ints == s->n_out, "%s: %u results", c->name, s->n_out);
  ck_assert_msg(kernels == c->kernels + (!fused && c->form >= 0), "%s: %d kernels", c->name, kernels);
  if (fused) ck_assert_msg(t.ints[s->ints + 1] == c->form, "%s: form %d", c->name, (int)t.ints[s->ints + 1]);
  ck_assert_msg((t.pool[s->args + s->n_in] != MOEC_NONE) == (c->stored || !fused), "%s: stored?", c->name);
  if (fused) { /* both results have their own memory, of their own sizes */
    const moec_plan_tensor *a = &t.tensors[t.pool[s->args + s->n_in + 1]];
    ck_assert_uint_ne(s->kernel, MOEC_NONE);
    ck_assert_uint_eq(a->rank, 2);
    if (c->stored) ck_assert_uint_ne(a->buffer, t.tensors[t.pool[s->args + s->n_in]].buffer);
  }
  moec_plan_tables_fini(&t);
  moec_arena_destroy(arena);
  moec_module_destroy(m);
  moec_buf_fini(&text);
}

START_TEST(products) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(&cases[i], true), check(&cases[i], false);
}
END_TEST

UNIT_MAIN("plan_grouped", products)
