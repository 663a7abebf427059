/* The gradient of every op that has one against central differences of the op itself, in double on the interpreter; and
 * the gradient of that gradient. A line of passes/grad_rules.def without a case here fails the test. */
#include <math.h>

#include "ir/interp.h"
#include "passes/grad.h"
#include "tests/unit/unit.h"

typedef struct op_case {
  const char *inputs; /* types; of all inputs the gradient is asked for */
  const char *body;   /* makes %100 from %1, %2 ... */
  double lo, hi;      /* elements are drawn from here; 0, 0: -2 to 2 */
} op_case;

#define UNARY(op) {"f64[2, 3]", "%100 = " op "(%1) : f64[2, 3]\n", 0, 0}
#define UNARY_IN(op, lo, hi) {"f64[2, 3]", "%100 = " op "(%1) : f64[2, 3]\n", lo, hi}
#define BINARY(op) {"f64[2, 3]; f64[2, 3]", "%100 = " op "(%1, %2) : f64[2, 3]\n", 0, 0}
#define PLAN                                                                                              \
  "%50 = const() {data = i64[3, 2] [2, 0, 0, 2, 2, 3]} : i64[3, 2]\n"                                     \
  "%51, %52, %53 = moe.plan(%50) {experts = 4} : i32[6], i32[6], i32[5]\n"

static const op_case cases[] = {
    UNARY("neg"), UNARY("abs"), UNARY("exp"), UNARY("expm1"), UNARY_IN("log", 0.5, 2), UNARY_IN("log1p", -0.5, 2),
    UNARY_IN("sqrt", 0.5, 2), UNARY_IN("rsqrt", 0.5, 2), UNARY_IN("recip", 0.5, 2), UNARY("sin"), UNARY("cos"),
    UNARY_IN("tan", -1, 1), UNARY_IN("asin", -0.8, 0.8), UNARY_IN("acos", -0.8, 0.8), UNARY("atan"), UNARY("sinh"),
    UNARY("cosh"),
    UNARY("asinh"), UNARY_IN("acosh", 1.5, 3), UNARY_IN("atanh", -0.8, 0.8), UNARY("tanh"), UNARY("sigmoid"),
    UNARY("erf"),
    BINARY("add"), BINARY("sub"), BINARY("mul"), BINARY("max"), BINARY("min"),
    {"f64[2, 3]; f64[2, 3]", "%100 = div(%1, %2) : f64[2, 3]\n", 0.5, 2},
    {"f64[2, 3]; f64[2, 3]", "%100 = pow(%1, %2) : f64[2, 3]\n", 0.5, 2},
    {"f64[2, 3]; f64[2, 3]", "%100 = mod(%1, %2) : f64[2, 3]\n", 0.5, 2},
    {"f64[2, 3]; f64[2, 3]", "%100 = rem(%1, %2) : f64[2, 3]\n", -2, -0.5},
    {"f64[3]; f64[3]", "%9 = const() {data = bool[3] [1, 0, 1]} : bool[3]\n%100 = select(%9, %1, %2) : f64[3]\n", 0, 0},
    {"f64[3]; f64[3]", "%9 = mul(%1, %1) : f64[3]\n%10 = cast(%9) {dtype = f32} : f32[3]\n%11 = cast(%10) {dtype = "
                       "f64} : f64[3]\n"
                       "%100 = mul(%11, %2) : f64[3]\n", 0, 0},
    {"f64[2, 3, 2]", "%100 = reduce_sum(%1) {axes = [0, 2]} : f64[3]\n", 0, 0},
    {"f64[2, 3, 2]", "%100 = reduce_prod(%1) {axes = [0, 2]} : f64[3]\n", 0, 0},
    {"f64[2, 3, 2]", "%100 = reduce_max(%1) {axes = [1]} : f64[2, 2]\n", 0, 0},
    {"f64[2, 3, 2]", "%100 = reduce_min(%1) {axes = [0, 1]} : f64[2]\n", 0, 0},
    {"f64[2, 4]", "%100 = cumsum(%1) {axis = 1, reverse = false, exclusive = true} : f64[2, 4]\n", 0, 0},
    {"f64[2, 4]", "%100 = cumsum(%1) {axis = 0, reverse = true, exclusive = false} : f64[2, 4]\n", 0, 0},
    {"f64[2, 6]", "%100 = reshape(%1) {shape = [3, 4]} : f64[3, 4]\n", 0, 0},
    {"f64[2, 3, 4]", "%100 = transpose(%1) {perm = [2, 0, 1]} : f64[4, 2, 3]\n", 0, 0},
    {"f64[1, 3]", "%100 = broadcast(%1) {shape = [2, 4, 3], map = [1, 2]} : f64[2, 4, 3]\n", 0, 0},
    {"f64[7, 3]", "%100 = slice(%1) {start = [1, 1], size = [3, 2], step = [2, 1]} : f64[3, 2]\n", 0, 0},
    {"f64[2, 2]; f64[]", "%100 = pad(%1, %2) {lo = [1, 0], hi = [0, 2]} : f64[3, 4]\n", 0, 0},
    {"f64[2, 1]; f64[2, 3]", "%100 = concat(%1, %2, %1) {axis = 1} : f64[2, 5]\n", 0, 0},
    {"f64[2, 3]", "%100 = reverse(%1) {axes = [1]} : f64[2, 3]\n", 0, 0},
    {"f64[2, 4, 3]", "%9 = const() {data = i64[2, 2] [3, -1, 0, 3]} : i64[2, 2]\n"
                     "%100 = gather(%1, %9) {axis = 1} : f64[2, 2, 2, 3]\n", 0, 0},
    {"f64[2, 4]", "%9 = const() {data = i64[2, 3] [3, 0, 3, 1, -1, 2]} : i64[2, 3]\n"
                  "%100 = gather_elements(%1, %9) {axis = 1} : f64[2, 3]\n", 0, 0},
    {"f64[3, 5]; f64[3, 5]", "%9 = moe.select(%2) {k = 2} : i64[3, 2]\n%10 = gather_elements(%1, %9) {axis = 1} : "
                             "f64[3, 2]\n"
                             "%11 = reduce_sum(%2) {axes = [1]} : f64[3]\n%12 = broadcast(%11) {shape = [3, 2], map = "
                             "[0]} : f64[3, 2]\n"
                             "%100 = mul(%10, %12) : f64[3, 2]\n", 0, 0},
    {"f64[2, 3, 2]", "%9 = const() {data = i64[2, 2, 1] [2, 2, 0, 1]} : i64[2, 2, 1]\n"
                     "%100 = gather_nd(%1, %9) {batch_dims = 1} : f64[2, 2, 2]\n", 0, 0},
    {"f64[2, 3]; f64[2, 3]", "%9 = const() {data = i64[2, 3] [1, 1, 0, 2, 2, 2]} : i64[2, 3]\n"
                             "%100 = scatter_elements(%1, %9, %2) {axis = 1, reduction = 0} : f64[2, 3]\n", 0, 0},
    {"f64[2, 3]; f64[2, 3]", "%9 = const() {data = i64[2, 3] [1, 1, 0, 2, 2, 2]} : i64[2, 3]\n"
                             "%100 = scatter_elements(%1, %9, %2) {axis = 1, reduction = 1} : f64[2, 3]\n", 0, 0},
    {"f64[4, 2]; f64[3, 2]", "%9 = const() {data = i64[3, 1] [1, 1, 3]} : i64[3, 1]\n"
                             "%100 = scatter_nd(%1, %9, %2) {reduction = 0} : f64[4, 2]\n", 0, 0},
    {"f64[4, 2]; f64[3, 2]", "%9 = const() {data = i64[3, 1] [1, 1, 3]} : i64[3, 1]\n"
                             "%100 = scatter_nd(%1, %9, %2) {reduction = 1} : f64[4, 2]\n", 0, 0},
    {"f64[3, 5]", "%100, %9 = topk(%1) {k = 2, axis = 1, largest = true} : f64[3, 2], i64[3, 2]\n", 0, 0},
    {"f64[2, 3, 4]; f64[4, 2, 5]", "%100 = dot(%1, %2) {lhs_batch = [0], rhs_batch = [1], lhs_contract = [2], "
                                   "rhs_contract = [0]}"
                                   " : f64[2, 3, 5]\n", 0, 0},
    {"f64[2, 3, 4]; f64[4, 5, 2]", "%100 = dot(%1, %2) {lhs_batch = [], rhs_batch = [], lhs_contract = [0, 2], "
                                   "rhs_contract = [2, 0]}"
                                   " : f64[3, 5]\n", 0, 0},
    {"f64[2, 4, 7]; f64[6, 2, 3]", "%100 = conv(%1, %2) {strides = [2], pads = [1, 2], dilations = [2], groups = 2} : "
                                   "f64[2, 6, 3]\n",
     0, 0},
    {"f64[1, 2, 4, 4]; f64[2, 2, 2, 3]",
        "%100 = conv(%1, %2) {strides = [1, 1], pads = [0, 1, 0, 1], dilations = [1, 1], groups = 1}"
                                         " : f64[1, 2, 3, 4]\n", 0, 0},
    {"f64[2, 3, 2]", "%100 = softmax(%1) {axis = 1} : f64[2, 3, 2]\n", 0, 0},
    {"f64[2, 4]; f64[4]", "%100 = rms_norm(%1, %2) {eps = 0x1p-10} : f64[2, 4]\n", 0, 0},
    {"f64[2, 4]", "%100 = rms_norm(%1, _) {eps = 0x1p-10} : f64[2, 4]\n", 0, 0},
    {"f64[2, 4]; f64[1, 2]; f64[1, 2]", "%100 = rope(%1, %2, %3) {pairs_in = true, pairs_out = false} : f64[2, 4]\n", 0,
        0},
    {"f64[2, 4]", "%8 = const() {data = f64[1, 2] [0.6, 0.8]} : f64[1, 2]\n%9 = const() {data = f64[1, 2] [0.8, -0.6]} "
                  ": f64[1, 2]\n"
                  "%100 = rope(%1, %8, %9) {pairs_in = false, pairs_out = true} : f64[2, 4]\n", 0, 0},
    {"f64[2, 3]; f64[2, 3]", "%100 = swiglu(%1, %2) {alpha = 0x1p+0, beta = 0x0p+0, limit = 0x0p+0} : f64[2, 3]\n", 0,
        0},
    {"f64[2, 3]; f64[2, 3]", "%100 = swiglu(%1, %2) {alpha = 1.702, beta = 0x1p+0, limit = 0x1p+0} : f64[2, 3]\n", 0,
        0},
    {"f64[1, 3, 4, 2]; f64[1, 3, 2, 2]; f64[1, 3, 2, 3]; f64[4]",
     "%100 = attention(%1, %2, %3, _, %4) {scale = 0x1p-1, softcap = 0x0p+0, causal = true} : f64[1, 3, 4, 3]\n", 0, 0},
    {"f64[1, 2, 2, 2]; f64[1, 3, 2, 2]; f64[1, 3, 2, 2]; f64[1, 1, 2, 3]",
     "%100 = attention(%1, %2, %3, %4) {scale = 0x1p-1, softcap = 0x1p+1, causal = false} : f64[1, 2, 2, 2]\n", 0, 0},
    {"f64[3, 4]", "%9 = const() {data = i64[3] [2, -100, 0]} : i64[3]\n"
                  "%10, %11 = cross_entropy(%1, %9) {ignore = -100} : f32[3], f32[3]\n"
                  "%12 = add(%10, %11) : f32[3]\n%100 = cast(%12) {dtype = f64} : f64[3]\n", 0, 0},
    /* by its body: of the loss and of the gradient by x, then of the gradient by w */
    {"f64[3, 2]; f64[4, 2]", "%8 = const() {data = f32[3] [0.5, 1, -0.25]} : f32[3]\n"
                             "%9 = const() {data = i64[3] [2, -100, 0]} : i64[3]\n"
                             "%10, %11, %12 = linear_cross_entropy(%1, %2, %9, %8) {transposed = true, ignore = -100, "
                             "chunk = 2} : f32[3], f64[3, 2], f64[4, 2]\n"
                             "%13 = cast(%10) {dtype = f64} : f64[3]\n%14 = reduce_sum(%11) {axes = [1]} : f64[3]\n"
                             "%100 = add(%13, %14) : f64[3]\n", 0, 0},
    {"f64[3, 2]; f64[2, 4]", "%8 = const() {data = f32[3] [0.5, 1, -0.25]} : f32[3]\n"
                             "%9 = const() {data = i64[3] [2, -100, 0]} : i64[3]\n"
                             "%10, %11, %100 = linear_cross_entropy(%1, %2, %9, %8) {transposed = false, "
                             "ignore = -100, chunk = 2} : f32[3], f64[3, 2], f64[2, 4]\n", 0, 0},
    {"f64[3, 5]", PLAN "%100 = moe.dispatch(%1, %51) {k = 2} : f64[6, 5]\n", 0, 0},
    {"f64[6, 3]; f64[4, 2, 3]; f64[4, 2]",
     PLAN "%100 = moe.grouped_dot(%1, %2, %53, %3) {transposed = true} : f64[6, 2]\n", 0, 0},
    {"f64[6, 3]; f64[4, 3, 2]", PLAN "%100 = moe.grouped_dot(%1, %2, %53) {transposed = false} : f64[6, 2]\n", 0, 0},
    {"f64[6, 3]; f64[3, 2]", PLAN "%100 = moe.weight(%1, %2, %51) : f64[6, 3]\n", 0, 0},
    {"f64[6, 3]", PLAN "%100 = moe.combine(%1, %52) {k = 2} : f64[3, 3]\n", 0, 0},
    /* the whole region: the routing weights' gradient goes around fc2 */
    {"f64[3, 5]; f64[3, 2]; f64[4, 6, 5]; f64[4, 5, 3]; f64[4, 5]",
     PLAN "%60 = moe.dispatch(%1, %51) {k = 2} : f64[6, 5]\n"
          "%61 = moe.grouped_dot(%60, %3, %53) {transposed = true} : f64[6, 6]\n"
          "%62 = slice(%61) {start = [0, 0], size = [6, 3], step = [1, 1]} : f64[6, 3]\n"
          "%63 = slice(%61) {start = [0, 3], size = [6, 3], step = [1, 1]} : f64[6, 3]\n"
          "%64 = swiglu(%62, %63) {alpha = 0x1p+0, beta = 0x0p+0, limit = 0x0p+0} : f64[6, 3]\n"
          "%65 = moe.grouped_dot(%64, %4, %53, %5) {transposed = true} : f64[6, 5]\n"
          "%66 = moe.weight(%65, %2, %51) : f64[6, 5]\n"
          "%100 = moe.combine(%66, %52) {k = 2} : f64[3, 5]\n", 0, 0},
};
enum { N_CASES = sizeof cases / sizeof *cases };

/* ---- modules ------------------------------------------------------------------------------ */

/* Appends |text| with its values numbered in the order in which they come: map[] by number in the case. */
static void append_numbered(moec_buf *b, const char *text, int *map, int *last) {
  for (const char *at = text; *at; at++) {
    char *end = NULL;
    moec_buf_putc(b, *at);
    if (*at != '%') continue;
    long number = strtol(at + 1, &end, 10);
    UNIT_TRUE(number > 0 && number < 128);
    if (!map[number]) map[number] = ++*last;
    moec_buf_printf(b, "%d", map[number]);
    at = end - 1;
  }
}

static moec_module *parse_case(const op_case *c) {
  moec_buf text = {0}, body = {0};
  moec_module *m = NULL;
  int map[128] = {0}, last = 0;
  moec_buf_puts(&text, "module \"\" {\n}\nfn @\"main\"(");
  for (const char *at = c->inputs; *at;) {
    size_t length = strcspn(at, ";");
    map[last + 1] = last + 1;
    last++;
    moec_buf_printf(&text, "%s%%%d \"x%d\" : %.*s", last > 1 ? ", " : "", last, last, (int)length, at);
    at += length + (at[length] == ';');
  }
  append_numbered(&body, c->body, map, &last);
  moec_buf_printf(&text, ") -> (%%%d \"y\") {\n%s}\n", map[100], moec_buf_str(&body));
  moec_status *s = moec_parse(moec_buf_str(&text), &m);
  if (s) ck_abort_msg("%s: %s", moec_buf_str(&text), moec_status_message(s));
  moec_buf_fini(&text);
  moec_buf_fini(&body);
  return m;
}

/* Gives |m| the entry vjp and makes it main, all else dropped: its gradient can be taken again. */
static void differentiate(moec_module *m, const char *what) {
  const moec_compile_options options = {.train = true};
  moec_pass_ctx cx = {.options = &options};
  moec_status *s = moec_run_pass(m, "grad", &cx);
  if (s) ck_abort_msg("%s: %s", what, moec_status_message(s));
}

static moec_fn find_fn(const moec_module *m, const char *name) {
  for (uint32_t i = 1; i < m->n_fns; i++)
    if (strcmp(moec_sym_str(m, m->fns[i]->name), name) == 0) return (moec_fn){i};
  ck_abort_msg("no function %s", name);
}

static void make_main(moec_module *m, moec_fn f) {
  moec_graph *g = moec_fn_get(m, f);
  m->fns[f.i] = m->fns[1];
  m->fns[f.i]->entry = false;
  m->fns[1] = g;
  g->entry = false;
  g->name = moec_sym_make(m, "main");
  moec_compact_all(m);
}

/* ---- running ------------------------------------------------------------------------------ */

static double draw(uint64_t *state, double lo, double hi) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return lo + (hi - lo) * (double)(*state >> 11) / 9007199254740992.0;
}

static void make_inputs(const moec_graph *g, const op_case *c, moec_tensor *in) {
  uint64_t state = 7;
  for (size_t i = 0; i < g->n_inputs; i++) {
    moec_type_info t = moec_ty(g, g->inputs[i]);
    int64_t dims[MOEC_MAX_RANK];
    for (uint32_t k = 0; k < t.rank; k++) UNIT_TRUE(moec_dim_is_const(g->m, t.dims[k], &dims[k]));
    UNIT_OK(moec_tensor_init(&in[i], t.dtype, t.rank, dims));
    for (int64_t k = 0; k < moec_tensor_numel(&in[i]); k++)
      ((double *)in[i].data)[k] = c->lo == c->hi ? draw(&state, -2, 2) : draw(&state, c->lo, c->hi);
  }
}

static void run(const moec_module *m, moec_fn f, const moec_tensor *in, moec_tensor *out, const char *what) {
  const moec_graph *g = moec_fn_get(m, f);
  const moec_interp_options exact = {.f64 = true};
  moec_status *s = moec_interp_run(m, f, in, g->n_inputs, out, g->n_outputs, &exact);
  if (s) ck_abort_msg("%s: %s", what, moec_status_message(s));
}

static void fini(moec_tensor *t, size_t n) {
  for (size_t i = 0; i < n; i++) moec_tensor_fini(&t[i]);
}

/* sum over the outputs of main of output * seed: the seeds follow the inputs of main in |in|. */
static double weighted_sum(const moec_module *m, const moec_tensor *in, const char *what) {
  const moec_graph *g = moec_main(m);
  moec_tensor out[8];
  double sum = 0;
  run(m, (moec_fn){1}, in, out, what);
  for (size_t i = 0; i < g->n_outputs; i++)
    for (int64_t k = 0; k < moec_tensor_numel(&out[i]); k++) {
      double y = moec_load_f64(out[i].dtype, out[i].data, (size_t)k);
      sum += y * ((const double *)in[g->n_inputs + i].data)[k];
    }
  fini(out, g->n_outputs);
  return sum;
}

/* The gradients that vjp gives, in the order of main's inputs, against central differences. */
static void check_differences(const moec_module *m, const op_case *c, double tolerance) {
  const moec_graph *main = moec_main(m);
  moec_fn f = find_fn(m, "vjp");
  const moec_graph *vjp = moec_fn_get(m, f);
  moec_tensor in[16], out[16];
  UNIT_TRUE(vjp->n_inputs == main->n_inputs + main->n_outputs && vjp->n_inputs <= 16);
  UNIT_TRUE(vjp->n_outputs == main->n_inputs);
  make_inputs(vjp, c, in);
  run(m, f, in, out, c->body);
  for (size_t i = 0; i < main->n_inputs; i++)
    for (int64_t k = 0; k < moec_tensor_numel(&in[i]); k++) {
      double *x = (double *)in[i].data + k, kept = *x, h = 1e-5;
      *x = kept + h;
      double up = weighted_sum(m, in, c->body);
      *x = kept - h;
      double down = weighted_sum(m, in, c->body);
      *x = kept;
      double want = (up - down) / (2 * h), got = moec_load_f64(out[i].dtype, out[i].data, (size_t)k);
      if (!(fabs(got - want) <= tolerance * (1 + fabs(want))))
        ck_abort_msg("%sinput %zu, element %lld: gradient %.10g, difference %.10g", c->body, i, (long long)k, got,
            want);
    }
  fini(in, vjp->n_inputs);
  fini(out, vjp->n_outputs);
}

START_TEST(gradients_are_those_of_differences) {
  moec_module *m = parse_case(&cases[_i]);
  differentiate(m, cases[_i].body);
  check_differences(m, &cases[_i], 1e-6);
  moec_module_destroy(m);
}
END_TEST

START_TEST(gradients_of_gradients_too) {
  moec_module *m = parse_case(&cases[_i]);
  differentiate(m, cases[_i].body);
  make_main(m, find_fn(m, "vjp"));
  differentiate(m, cases[_i].body);
  check_differences(m, &cases[_i], 1e-5);
  moec_module_destroy(m);
}
END_TEST

/* ---- what has no gradient ------------------------------------------------------------------- */

static bool used[MOEC_OP_COUNT]; /* by the cases; filled by one test alone */

START_TEST(every_rule_has_a_case) {
  for (int i = 0; i < N_CASES; i++) {
    moec_module *m = parse_case(&cases[i]);
    const moec_graph *g = moec_main(m);
    for (uint32_t n = 1; n < g->n_nodes; n++) used[g->nodes[n].op] = true;
    moec_module_destroy(m);
  }
  used[MOEC_OP_CALL] = true; /* tests/e2e/gradient_graph_test.c */
  for (int op = 1; op < MOEC_OP_COUNT; op++) {
    moec_grad_rule rule = moec_grad_rule_of((moec_op)op);
    if (rule && rule != moec_grad_none && !used[op])
      ck_abort_msg("%s has a rule and no case", moec_op_get((moec_op)op)->text);
  }
}
END_TEST

START_TEST(what_has_no_gradient_is_named) {
  const op_case c = {"f64[2, 3]; f64[2, 3]", "%9 = const() {data = i64[2, 3] [1, 1, 0, 2, 2, 2]} : i64[2, 3]\n"
                     "%100 = scatter_elements(%1, %9, %2) {axis = 1, reduction = 2} : f64[2, 3] @\"here\"\n", 0, 0};
  const moec_compile_options options = {.train = true};
  moec_pass_ctx cx = {.options = &options};
  moec_module *m = parse_case(&c);
  UNIT_FAILS(moec_run_pass(m, "grad", &cx), MOEC_UNSUPPORTED,
             "gradient of scatter_elements \"here\": no gradient passes through reduction \"mul\"");
  moec_module_destroy(m);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("gradient");
  TCase *tcase = tcase_create("gradient");
  tcase_set_timeout(tcase, 0);
  tcase_add_loop_test(tcase, gradients_are_those_of_differences, 0, N_CASES);
  tcase_add_loop_test(tcase, gradients_of_gradients_too, 0, N_CASES);
  tcase_add_test(tcase, every_rule_has_a_case);
  tcase_add_test(tcase, what_has_no_gradient_is_named);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
