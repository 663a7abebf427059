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
#define PRODUCT "%6 = moe.grouped_dot(%1, %2, %3) {transposed = true}" ROWS("32")
#define PART(slice, part, of, start)                                                           \
  slice " = slice(" of ") {start = [0, " start "], size = [rows, 16], step = [1, 1]}" ROWS("16") \
  part " = cast(" slice ") {dtype = f32}" WIDE("16")
#define GATED                                                                               \
  "%11 = sigmoid(%8)" WIDE("16") "%12 = mul(%8, %11)" WIDE("16") "%13 = mul(%12, %10)" WIDE("16") \
  "%14 = cast(%13) {dtype = bf16}" ROWS("16")
#define SWIGLU PART("%7", "%8", "%6", "0") PART("%9", "%10", "%6", "16") GATED

static const plan_case cases[] = {
    {"nothing else reads the product", "%14 \"a\"", PRODUCT SWIGLU, MOEC_ACTIVATION_HALVES, false, 0},
    {"the product is a result", "%14 \"a\", %6 \"y\"", PRODUCT SWIGLU, MOEC_ACTIVATION_HALVES, true, 0},
    {"another product reads it", "%14 \"a\", %15 \"z\"",
     PRODUCT SWIGLU "%15 = moe.grouped_dot(%6, %4, %3) {transposed = false}" ROWS("8"), MOEC_ACTIVATION_HALVES, true,
     0},
    {"each", "%9 \"a\"",
     PRODUCT "%7 = const() {data = bf16[] [0]} : bf16[]\n%8 = broadcast(%7) {shape = [rows, 32], map = []}" ROWS("32")
     "%9 = max(%6, %8)" ROWS("32"), MOEC_ACTIVATION_EACH, false, 0},
    {"another operand", "%14 \"a\"",
     PRODUCT PART("%7", "%8", "%6", "0") PART("%9", "%10", "%1", "0") GATED, -1, true, 1},
    {"rows of another length", "%8 \"a\"",
     PRODUCT "%7 = reshape(%6) {shape = [2*rows, 16]} : bf16[2*rows, 16]\n%8 = neg(%7) : bf16[2*rows, 16]\n", -1, true,
     1},
    {"two activations", "%14 \"a\", %15 \"b\"", PRODUCT SWIGLU "%15 = neg(%6)" ROWS("32"), -1, true, 2},
    {"a sum of its row", "%7 \"a\"", PRODUCT "%7 = reduce_sum(%6) {axes = [1]} : bf16[rows]\n", -1, true, 1},
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

typedef struct planned {
  moec_arena *arena;
  moec_module *m;
  moec_plan_tables t;
} planned;

static void build(planned *p, const char *results, const char *nodes, bool cuda) {
  moec_buf text = {0};
  moec_kernel_set set;
  moec_compile_options o = {.target = MOEC_TARGET_CUDA, .precision = MOEC_PRECISION_BF16};
  moec_pass_ctx cx = {.options = &o};
  moec_buf_printf(&text,
                  "module \"t\" {\n  symbols rows\n}\n"
                  "fn @\"main\"(%%1 \"x\" : bf16[rows, 16], %%2 \"w\" : bf16[4, 32, 16], %%3 \"offsets\" : i32[5], "
                  "%%4 \"v\" : bf16[4, 32, 8], %%5 \"u\" : bf16[4, 32, 16]) -> (%s) {\n%s}\n",
                  results, nodes);
  UNIT_OK(moec_parse(moec_buf_str(&text), &p->m));
  UNIT_OK(moec_verify(p->m));
  UNIT_OK(moec_run_pass(p->m, "fuse", &cx));
  p->arena = moec_arena_create();
  moec_plan_tables_init(&p->t, p->arena, p->m);
  kernels_of(p->m, &p->t, &set);
  set.cuda = cuda;
  UNIT_OK(moec_plan_build(&p->t, p->m, &set, MOEC_COMBINE_FUSED));
  moec_buf_fini(&text);
}

static void destroy(planned *p) {
  moec_plan_tables_fini(&p->t);
  moec_arena_destroy(p->arena);
  moec_module_destroy(p->m);
}

static void check(const plan_case *c, bool cuda) {
  planned p;
  int kernels;
  build(&p, c->results, c->nodes, cuda);
  const moec_plan_tables *t = &p.t;
  const moec_plan_step *s = product_of(t, &kernels);
  bool fused = cuda && c->form >= 0;
  ck_assert_msg(s->n_out == (fused ? 2 : 1) && s->n_ints == s->n_out, "%s: %u results", c->name, s->n_out);
  ck_assert_msg(kernels == c->kernels + (!fused && c->form >= 0), "%s: %d kernels", c->name, kernels);
  if (fused) ck_assert_msg(t->ints[s->ints + 1] == c->form, "%s: form %d", c->name, (int)t->ints[s->ints + 1]);
  ck_assert_msg((t->pool[s->args + s->n_in] != MOEC_NONE) == (c->stored || !fused), "%s: stored?", c->name);
  if (fused) { /* both results have their own memory, of their own sizes */
    const moec_plan_tensor *a = &t->tensors[t->pool[s->args + s->n_in + 1]];
    ck_assert_uint_ne(s->kernel, MOEC_NONE);
    ck_assert_uint_eq(a->rank, 2);
    if (c->stored) ck_assert_uint_ne(a->buffer, t->tensors[t->pool[s->args + s->n_in]].buffer);
  }
  destroy(&p);
}

START_TEST(products) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(&cases[i], true), check(&cases[i], false);
}
END_TEST

/* A product that nothing reads but the caller has no activation, whatever is read behind it. */
START_TEST(neighbours) {
  planned p;
  int kernels;
  build(&p, "%6 \"y\", %10 \"a\"",
        PRODUCT "%7 = moe.grouped_dot(%1, %5, %3) {transposed = true}" ROWS("32")
        "%8 = const() {data = bf16[] [0]} : bf16[]\n%9 = broadcast(%8) {shape = [rows, 32], map = []}" ROWS("32")
        "%10 = max(%7, %9)" ROWS("32"), true);
  ck_assert_uint_eq(product_of(&p.t, &kernels)->n_out, 1);
  ck_assert_int_eq(kernels, 0);
  destroy(&p);
}
END_TEST

UNIT_MAIN("plan_grouped", products, neighbours)
