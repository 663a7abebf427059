/* What the plan says of attention kernels to a library: which operands are views of arguments, and what a mask is where
 * the arguments it is computed from are ones. */
#include "tests/unit/emit.h"

#include "codegen/plan_build.h"

/* ---- records as text --------------------------------------------------------------------- */

static int64_t value(const moec_plan_tables *t, moec_expr_ref e, const int64_t *sizes) {
  const moec_plan_expr *x = &t->exprs[e];
  if (x->op == MOEC_EXPR_CONST) return x->imm;
  if (x->op == MOEC_EXPR_SYMBOL) return sizes[x->a];
  int64_t a = value(t, x->a, sizes), b = value(t, x->b, sizes);
  UNIT_TRUE(x->op == MOEC_EXPR_ADD || x->op == MOEC_EXPR_MUL);
  return x->op == MOEC_EXPR_ADD ? a + b : a * b;
}

/* "forward causal bf16 2 5 5 4 2 16 16; ones 3; q 0 0 320 64 16; ...": sizes, then a view an operand. */
static void print(moec_buf *b, const moec_plan_tables *t, const moec_plan_attention *a, const int64_t *sizes) {
  static const char *const names[] = {"q", "k", "v", "y", "lse", "dy", "dq", "dk", "dv"};
  const moec_expr_ref dims[] = {a->b, a->s, a->t, a->h, a->g, a->d, a->e};
  moec_buf_printf(b, "%s %s %s", a->grad ? "gradient" : "forward", a->causal ? "causal" : "seen",
                  moec_dtype_get((moec_dtype)a->dtype)->text);
  for (int i = 0; i < 7; i++) moec_buf_printf(b, " %lld", (long long)value(t, dims[i], sizes));
  if (a->n_ones) moec_buf_puts(b, "; ones");
  for (uint32_t i = 0; i < a->n_ones; i++) moec_buf_printf(b, " %u", t->pool[a->ones + i]);
  for (int o = 0; o < MOEC_ATTENTION_OPERANDS; o++) {
    const moec_plan_view *v = &a->operands[o];
    if (v->arg == MOEC_NONE) continue;
    moec_buf_printf(b, "; %s %u %lld", names[o], v->arg, (long long)value(t, v->offset, sizes));
    for (int i = 0; i < 3; i++) moec_buf_printf(b, " %lld", (long long)value(t, v->strides[i], sizes));
  }
}

/* The record of the kernel of |c| begins with |want|; NULL: there is none. */
static void expect(const emit_case *c, const char *want) {
  emit_run r;
  moec_plan_tables t;
  moec_buf text = {0};
  UNIT_OK(emit_build(c, &r));
  moec_plan_tables_init(&t, r.m->arena, r.m);
  moec_plan_add_attention(&t, r.k, 7);
  if (t.n_attentions) print(&text, &t, &t.attentions[0], r.sizes);
  if (t.n_attentions) ck_assert_uint_eq(t.attentions[0].kernel, 7);
  bool fits = want ? t.n_attentions == 1 && !strncmp(moec_buf_str(&text), want, strlen(want)) : !t.n_attentions;
  if (!fits) ck_abort_msg("%s: expected %s, got %s", c->name, want ? want : "none", moec_buf_str(&text));
  moec_buf_fini(&text);
  moec_plan_tables_fini(&t);
  moec_module_destroy(r.m);
}

/* ---- views ------------------------------------------------------------------------------- */

#define QKV                                                                                      \
  "%1 \"q\" : bf16[B, S, 4, 16], %2 \"k\" : bf16[B, S, 2, 16], %3 \"v\" : bf16[B, S, 2, 16]"
#define ATTENTION(operands, more)                                                                \
  "%9 = attention(" operands ") {scale = 0x1p-2, softcap = " more "} : bf16[B, S, 4, 16]\n"
#define SIZES "forward causal bf16 2 5 5 4 2 16 16"

START_TEST(views) {
  expect(&(emit_case){"dense", "B=2 S=5", "B*S", QKV, "%9 \"y\"", ATTENTION("%1, %2, %3", "0x0p+0, causal = true"), 0},
         SIZES "; q 0 0 320 64 16; k 1 0 160 32 16; v 2 0 160 32 16; y 3 0 320 64 16");
  expect(&(emit_case){"with lse", "B=2 S=5", "B*S", QKV, "%9 \"y\", %10 \"lse\"",
                      "%9, %10 = attention(%1, %2, %3) {scale = 0x1p-2, softcap = 0x0p+0, causal = false} : "
                      "bf16[B, S, 4, 16], f32[B, S, 4]\n", 0},
         "forward seen bf16 2 5 5 4 2 16 16; q 0 0 320 64 16; k 1 0 160 32 16; v 2 0 160 32 16; y 3 0 320 64 16; "
         "lse 4 0 20 4 1");
  /* q, k and v are parts of one row; k is stored by heads. */
  expect(&(emit_case){"parts", "B=2 S=5", "B*S", "%1 \"qv\" : bf16[B, S, 96], %2 \"k\" : bf16[B, 2, S, 16]", "%9 \"y\"",
                      "%3 = slice(%1) {start = [0, 0, 0], size = [B, S, 64], step = [1, 1, 1]} : bf16[B, S, 64]\n"
                      "%4 = reshape(%3) {shape = [B, S, 4, 16]} : bf16[B, S, 4, 16]\n"
                      "%5 = slice(%1) {start = [0, 0, 64], size = [B, S, 32], step = [1, 1, 1]} : bf16[B, S, 32]\n"
                      "%6 = reshape(%5) {shape = [B, S, 2, 16]} : bf16[B, S, 2, 16]\n"
                      "%7 = transpose(%2) {perm = [0, 2, 1, 3]} : bf16[B, S, 2, 16]\n"
                      ATTENTION("%4, %7, %6", "0x0p+0, causal = true"), 0},
         SIZES "; q 0 0 480 96 16; k 1 0 160 16 80; v 0 64 480 96 16; y 2 0 320 64 16");
}
END_TEST

START_TEST(gradient) {
  expect(&(emit_case){"gradient", "B=2 S=5", "B*S",
                      QKV ", %4 \"y\" : bf16[B, S, 4, 16], %5 \"lse\" : f32[B, S, 4], %6 \"dy\" : bf16[B, S, 4, 16]",
                      "%8 \"dk\", %7 \"dq\", %9 \"dv\"",
                      "%7, %8, %9 = attention_grad(%1, %2, %3, _, _, %4, %5, %6) {scale = 0x1p-2, softcap = 0x0p+0, "
                      "causal = true} : bf16[B, S, 4, 16], bf16[B, S, 2, 16], bf16[B, S, 2, 16]\n", 0},
         "gradient causal bf16 2 5 5 4 2 16 16; q 0 0 320 64 16; k 1 0 160 32 16; v 2 0 160 32 16; y 3 0 320 64 16; "
         "lse 4 0 20 4 1; dy 5 0 320 64 16; dq 7 0 320 64 16; dk 6 0 160 32 16; dv 8 0 160 32 16");
  expect(&(emit_case){"two of three", "B=2 S=5", "B*S",
                      QKV ", %4 \"y\" : bf16[B, S, 4, 16], %5 \"lse\" : f32[B, S, 4], %6 \"dy\" : bf16[B, S, 4, 16]",
                      "%8 \"dk\", %7 \"dq\"",
                      "%7, %8, %9 = attention_grad(%1, %2, %3, _, _, %4, %5, %6) {scale = 0x1p-2, softcap = 0x0p+0, "
                      "causal = true} : bf16[B, S, 4, 16], bf16[B, S, 2, 16], bf16[B, S, 2, 16]\n", 0}, NULL);
}
END_TEST

START_TEST(no_views) {
  static const char *const inputs = "%1 \"q\" : bf16[B, S, 4, 16], %2 \"k\" : bf16[B, S, 2, 8], %3 \"v\" : "
                                    "bf16[B, S, 2, 16]";
  expect(&(emit_case){"two arguments", "B=2 S=5", "B*S", inputs, "%9 \"y\"",
                      "%4 = concat(%2, %2) {axis = 3} : bf16[B, S, 2, 16]\n"
                      ATTENTION("%1, %4, %3", "0x0p+0, causal = true"), 0}, NULL);
  expect(&(emit_case){"rounded", "B=2 S=5", "B*S", "%1 \"q\" : f32[B, S, 4, 16], %2 \"k\" : bf16[B, S, 2, 16]",
                      "%9 \"y\"", "%3 = cast(%1) {dtype = bf16} : bf16[B, S, 4, 16]\n"
                      ATTENTION("%3, %2, %2", "0x0p+0, causal = true"), 0}, NULL);
  expect(&(emit_case){"every other", "B=2 S=5", "B*S", "%1 \"q\" : bf16[B, S, 4, 32], %2 \"k\" : bf16[B, S, 2, 16]",
                      "%9 \"y\"",
                      "%3 = slice(%1) {start = [0, 0, 0, 0], size = [B, S, 4, 16], step = [1, 1, 1, 2]} : "
                      "bf16[B, S, 4, 16]\n" ATTENTION("%3, %2, %2", "0x0p+0, causal = true"), 0}, NULL);
  expect(&(emit_case){"softcap", "B=2 S=5", "B*S", QKV, "%9 \"y\"",
                      ATTENTION("%1, %2, %3", "0x1p+3, causal = true"), 0}, NULL);
  expect(&(emit_case){"sink", "B=2 S=5", "B*S", QKV ", %4 \"sink\" : bf16[4]", "%9 \"y\"",
                      ATTENTION("%1, %2, %3, _, %4", "0x0p+0, causal = true"), 0}, NULL);
  expect(&(emit_case){"f32", "B=2 S=5", "B*S", "%1 \"q\" : f32[B, S, 4, 16], %2 \"k\" : f32[B, S, 4, 16]", "%9 \"y\"",
                      "%9 = attention(%1, %2, %2) {scale = 0x1p-2, softcap = 0x0p+0, causal = true} : "
                      "f32[B, S, 4, 16]\n", 0}, NULL);
}
END_TEST

/* ---- masks ------------------------------------------------------------------------------- */

/* With mask |lines|, which compute %5 from the argument %4. */
static void mask(const char *name, const char *argument, const char *lines, bool causal, const char *want) {
  moec_buf inputs = {0}, body = {0};
  moec_buf_printf(&inputs, "%s%s%s", QKV, *argument ? ", " : "", argument);
  moec_buf_printf(&body, "%s%%9 = attention(%%1, %%2, %%3, %%5) {scale = 0x1p-2, softcap = 0x0p+0, causal = %s} : "
                  "bf16[B, S, 4, 16]\n", lines, causal ? "true" : "false");
  expect(&(emit_case){name, "B=2 S=5", "B*S", moec_buf_str(&inputs), "%9 \"y\"", moec_buf_str(&body), 0}, want);
  moec_buf_fini(&inputs);
  moec_buf_fini(&body);
}

#define PAD "%4 \"pad\" : i64[B, S]"
#define ONES "forward causal bf16 2 5 5 4 2 16 16; ones 3; q"
/* %22: 0 where %4 shows the key, |least| elsewhere. */
#define ADDED(least)                                                                                  \
  "%16 = cast(%4) {dtype = bool} : bool[B, S]\n"                                                      \
  "%17 = const() {data = f32[] [0x0p+0]} : f32[]\n%18 = const() {data = f32[] [" least "]} : f32[]\n" \
  "%19 = broadcast(%17) {shape = [B, S], map = []} : f32[B, S]\n"                                     \
  "%20 = broadcast(%18) {shape = [B, S], map = []} : f32[B, S]\n"                                     \
  "%22 = select(%16, %19, %20) : f32[B, S]\n"
/* %35: whether the key is not behind the query. */
#define PAST                                                                                      \
  "%31 = iota() {dtype = i64, shape = [B, 1, S, S], axis = 2} : i64[B, 1, S, S]\n"                \
  "%32 = iota() {dtype = i64, shape = [B, 1, S, S], axis = 3} : i64[B, 1, S, S]\n"
#define SHOWN                                                                                     \
  "%33 = const() {data = i64[] [0]} : i64[]\n%34 = broadcast(%33) {shape = [B, S], map = []} : i64[B, S]\n" \
  "%36 = ne(%4, %34) : bool[B, S]\n%37 = broadcast(%36) {shape = [B, 1, S, S], map = [0, 3]} : bool[B, 1, S, S]\n"

START_TEST(masks) {
  mask("added", PAD, ADDED("-0x1.fep+127") "%5 = reshape(%22) {shape = [B, 1, 1, S]} : f32[B, 1, 1, S]\n", true, ONES);
  mask("added, rounded", PAD, ADDED("-0x1.fep+127") "%23 = cast(%22) {dtype = bf16} : bf16[B, S]\n"
       "%5 = reshape(%23) {shape = [B, 1, 1, S]} : bf16[B, 1, 1, S]\n", true, ONES);
  mask("bool", "%4 \"pad\" : bool[B, S]", "%5 = reshape(%4) {shape = [B, 1, 1, S]} : bool[B, 1, 1, S]\n", true, ONES);
  mask("seen", "%4 \"pad\" : bool[B, S]", "%5 = reshape(%4) {shape = [B, 1, 1, S]} : bool[B, 1, 1, S]\n", false,
       "forward seen bf16 2 5 5 4 2 16 16; ones 3; q");
  mask("causal by itself", "", PAST "%5 = le(%32, %31) : bool[B, 1, S, S]\n", false, SIZES "; q");
  mask("causal and padding", PAD, PAST SHOWN "%35 = ge(%31, %32) : bool[B, 1, S, S]\n"
       "%5 = and(%35, %37) : bool[B, 1, S, S]\n", false, ONES);
  mask("causal, added to padding", PAD, PAST ADDED("-0x1.fep+127")
       "%35 = lt(%31, %32) : bool[B, 1, S, S]\n%40 = not(%35) : bool[B, 1, S, S]\n"
       "%41 = broadcast(%17) {shape = [B, 1, S, S], map = []} : f32[B, 1, S, S]\n"
       "%42 = broadcast(%18) {shape = [B, 1, S, S], map = []} : f32[B, 1, S, S]\n"
       "%43 = select(%35, %42, %41) : f32[B, 1, S, S]\n"
       "%44 = broadcast(%22) {shape = [B, 1, S, S], map = [0, 3]} : f32[B, 1, S, S]\n"
       "%5 = add(%43, %44) : f32[B, 1, S, S]\n", false, ONES);
}
END_TEST

START_TEST(other_masks) {
  mask("a stored one", "%4 \"m\" : bf16[B, 1, S, S]", "%5 = reshape(%4) {shape = [B, 1, S, S]} : bf16[B, 1, S, S]\n",
       true, NULL); /* one is added everywhere */
  mask("little is taken away", PAD, ADDED("-0x1p+3") "%23 = cast(%4) {dtype = f32} : f32[B, S]\n"
       "%24 = add(%22, %23) : f32[B, S]\n%5 = reshape(%24) {shape = [B, 1, 1, S]} : f32[B, 1, 1, S]\n", true, NULL);
  mask("hidden where one", PAD, "%20 = cast(%4) {dtype = bool} : bool[B, S]\n%21 = not(%20) : bool[B, S]\n"
       "%5 = reshape(%21) {shape = [B, 1, 1, S]} : bool[B, 1, 1, S]\n", true, NULL);
  mask("window", PAD, PAST SHOWN "%20 = sub(%31, %32) : i64[B, 1, S, S]\n%21 = const() {data = i64[] [3]} : i64[]\n"
       "%22 = broadcast(%21) {shape = [B, 1, S, S], map = []} : i64[B, 1, S, S]\n"
       "%23 = lt(%20, %22) : bool[B, 1, S, S]\n%5 = and(%23, %37) : bool[B, 1, S, S]\n", true, NULL);
  mask("up to the key before", PAD, PAST SHOWN "%35 = lt(%32, %31) : bool[B, 1, S, S]\n"
       "%5 = and(%35, %37) : bool[B, 1, S, S]\n", false, NULL);
  mask("the other way", "", PAST "%5 = le(%31, %32) : bool[B, 1, S, S]\n", false, NULL);
  mask("not all of them", PAD, "%20 = iota() {dtype = i64, shape = [B, S], axis = 1} : i64[B, S]\n"
       "%21 = le(%20, %4) : bool[B, S]\n%5 = reshape(%21) {shape = [B, 1, 1, S]} : bool[B, 1, 1, S]\n", true, NULL);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {views, gradient, no_views, masks, other_masks};
  Suite *suite = suite_create("codegen_attention");
  TCase *tc = tcase_create("records");
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(tc, tests[i]);
  suite_add_tcase(suite, tc);
  return unit_run(suite);
}
