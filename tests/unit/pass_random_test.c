/* Random graphs compute the same before and after simplify and after fuse. MOEC_SEED=N runs one graph and prints it;
 * MOEC_ROUNDS=N runs more than the usual number. */
#include <math.h>

#include "ir/builder.h"
#include "ir/interp.h"
#include "passes/pass.h"
#include "tests/unit/unit.h"

static uint64_t state;

static uint32_t pick(uint32_t n) { /* 0 .. n-1 */
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return (uint32_t)((state * 2685821657736338717u) >> 33) % n;
}

enum { MAX_POOL = 96, SIZE_A = 3, SIZE_B = 2, LARGEST = 2000 };

typedef struct maker {
  moec_module *m;
  moec_builder b;
  moec_value pool[MAX_POOL];
  uint32_t n;
} maker;

static moec_type_info ty(const maker *k, moec_value v) { return moec_ty(k->b.g, v); }
static moec_dim con(maker *k, int64_t v) { return moec_dim_const(k->m, v); }

static int64_t size_of(const maker *k, moec_dim d) {
  int64_t symbols[2] = {SIZE_A, SIZE_B}, v = 0;
  UNIT_OK(moec_dim_eval(k->m, d, symbols, &v));
  return v;
}

static int64_t numel(const maker *k, moec_value v) {
  int64_t n = 1;
  for (uint32_t i = 0; i < ty(k, v).rank; i++) n *= size_of(k, ty(k, v).dims[i]);
  return n;
}

static void keep(maker *k, moec_value v) {
  if (v.i && k->n < MAX_POOL && ty(k, v).rank <= 5 && numel(k, v) <= LARGEST) k->pool[k->n++] = v;
}

static moec_value any(maker *k) { return k->pool[pick(k->n)]; }

/* A value of the given dtype class: 'F', 'I' or 'B'; pool[0..2] are one of each. */
static moec_value any_of(maker *k, char cls) {
  for (int i = 0; i < 20; i++) {
    moec_value v = any(k);
    if (moec_dtype_get(ty(k, v).dtype)->cls == cls) return v;
  }
  return k->pool[cls == 'F' ? 0 : cls == 'I' ? 1 : 2];
}

static moec_dim any_dim(maker *k) {
  static const int64_t sizes[] = {1, 2, 3, 4};
  uint32_t i = pick(6);
  return i < 4 ? con(k, sizes[i]) : moec_dim_symbol(k->m, i == 4 ? "a" : "b");
}

/* Another value of |x|'s type, or |x|. */
static moec_value like(maker *k, moec_value x) {
  for (int i = 0; i < 30; i++) {
    moec_value v = any(k);
    if (moec_value_get(k->b.g, v)->type.i == moec_value_get(k->b.g, x)->type.i) return v;
  }
  return x;
}

static moec_value filled(maker *k, moec_value x) {
  static const double numbers[] = {0, 1, -1, 2, 0.5, 3};
  double c = numbers[pick(6)];
  moec_type_info t = ty(k, x);
  if (!moec_dtype_is_float(t.dtype)) c = (double)(int64_t)c;
  return moec_b_fill(&k->b, moec_b_scalar_f(&k->b, t.dtype, c), t.rank, t.dims);
}

/* ---- one step each ----------------------------------------------------------------------------- */

static void unary(maker *k) {
  static const moec_op ops[] = {MOEC_OP_NEG, MOEC_OP_ABS, MOEC_OP_TANH, MOEC_OP_SIGMOID, MOEC_OP_COS, MOEC_OP_SIN};
  keep(k, moec_b_unary(&k->b, ops[pick(6)], any_of(k, 'F')));
}

static void root(maker *k) { /* of what is well above zero: no amplification */
  moec_value x = any_of(k, 'F');
  x = moec_b_binary(&k->b, MOEC_OP_ADD, moec_b_unary(&k->b, MOEC_OP_ABS, x), moec_b_scalar_f(&k->b, MOEC_F32, 1));
  x = moec_b_unary(&k->b, MOEC_OP_SQRT, x);
  keep(k, pick(2) ? moec_b_unary(&k->b, MOEC_OP_RECIP, x) : x);
}

static void binary(maker *k) {
  static const moec_op ops[] = {MOEC_OP_ADD, MOEC_OP_SUB, MOEC_OP_MUL, MOEC_OP_MAX, MOEC_OP_MIN};
  moec_value x = any_of(k, pick(3) ? 'F' : 'I'), y = pick(3) ? like(k, x) : filled(k, x);
  keep(k, pick(4) ? moec_b_binary(&k->b, ops[pick(5)], x, y) : moec_b_binary(&k->b, ops[pick(5)], y, x));
}

static void logic(maker *k) {
  static const moec_op compare[] = {MOEC_OP_EQ, MOEC_OP_NE, MOEC_OP_LT, MOEC_OP_LE, MOEC_OP_GT, MOEC_OP_GE};
  moec_value x = any_of(k, pick(2) ? 'F' : 'I'), c = any_of(k, 'B');
  switch (pick(4)) {
    case 0: keep(k, moec_b_binary(&k->b, compare[pick(6)], x, pick(2) ? like(k, x) : filled(k, x))); break;
    case 1:
      keep(k, moec_b_binary(&k->b, pick(2) ? MOEC_OP_AND : MOEC_OP_OR, c, pick(2) ? like(k, c) : filled(k, c)));
      break;
    case 2: keep(k, moec_b_unary(&k->b, MOEC_OP_NOT, c)); break;
    default:
      c = moec_b_binary(&k->b, MOEC_OP_LT, x, filled(k, x));
      keep(k, moec_b_select(&k->b, c, x, like(k, x)));
  }
}

static void casts(maker *k) {
  static const moec_dtype to[] = {MOEC_F32, MOEC_F32, MOEC_I64, MOEC_I32, MOEC_BOOL};
  moec_value x = pick(2) ? any_of(k, 'I') : any_of(k, 'B');
  x = moec_b_cast(&k->b, x, to[pick(5)]);
  keep(k, ty(k, x).dtype == MOEC_I32 ? moec_b_cast(&k->b, x, MOEC_I64) : x);
}

static void reshape(maker *k) {
  moec_value x = any(k);
  moec_type_info t = ty(k, x);
  moec_dim dims[MOEC_MAX_RANK];
  uint32_t at = pick(t.rank + 1), n = 0;
  bool merge = pick(2) && at + 1 < t.rank;
  for (uint32_t i = 0; i < t.rank; i++) {
    if (i == at && !merge) dims[n++] = con(k, 1);
    if (i == at && merge) dims[n++] = moec_dim_mul(k->m, t.dims[i], t.dims[i + 1]), i++;
    else if (moec_dim_is(k->m, t.dims[i], 4) && pick(2)) dims[n++] = con(k, 2), dims[n++] = con(k, 2);
    else if (!moec_dim_is(k->m, t.dims[i], 1) || pick(2)) dims[n++] = t.dims[i];
  }
  keep(k, moec_b_reshape(&k->b, x, n, dims));
}

static void transpose(maker *k) {
  moec_value x = any(k);
  int64_t perm[MOEC_MAX_RANK];
  uint32_t rank = ty(k, x).rank;
  for (uint32_t i = 0; i < rank; i++) perm[i] = (int64_t)i;
  for (uint32_t i = rank; i > 1; i--) {
    uint32_t j = pick(i);
    int64_t s = perm[j];
    perm[j] = perm[i - 1], perm[i - 1] = s;
  }
  keep(k, moec_b_transpose(&k->b, x, perm));
}

static void broadcast(maker *k) {
  moec_value x = any(k);
  moec_type_info t = ty(k, x);
  moec_dim dims[MOEC_MAX_RANK];
  int64_t map[MOEC_MAX_RANK];
  uint32_t n = 0;
  for (uint32_t i = 0; i < t.rank; i++) {
    if (pick(4) == 0) dims[n++] = any_dim(k);
    map[i] = n;
    dims[n++] = moec_dim_is(k->m, t.dims[i], 1) ? any_dim(k) : t.dims[i];
  }
  if (n < 5 && pick(3) == 0) dims[n++] = any_dim(k);
  moec_attrs_BROADCAST a = {.shape = {n, dims}, .map = {t.rank, map}};
  if (n <= 5) keep(k, moec_b_op(&k->b, MOEC_OP_BROADCAST, &a, 1, &x, 1));
}

static void slice(maker *k) {
  moec_value x = any(k);
  moec_type_info t = ty(k, x);
  moec_dim start[MOEC_MAX_RANK], size[MOEC_MAX_RANK];
  int64_t step[MOEC_MAX_RANK], d;
  for (uint32_t i = 0; i < t.rank; i++) {
    start[i] = con(k, 0), size[i] = t.dims[i], step[i] = 1;
    if (!moec_dim_is_const(k->m, t.dims[i], &d) || d < 2 || pick(2)) continue;
    int64_t from = pick((uint32_t)d);
    step[i] = 1 + pick(2);
    start[i] = con(k, from);
    size[i] = con(k, 1 + pick((uint32_t)((d - from - 1) / step[i] + 1)));
  }
  moec_attrs_SLICE a = {.start = {t.rank, start}, .size = {t.rank, size}, .step = {t.rank, step}};
  keep(k, moec_b_op(&k->b, MOEC_OP_SLICE, &a, 1, &x, 1));
}

static void joins(maker *k) {
  moec_value x = any(k);
  moec_type_info t = ty(k, x);
  if (t.rank == 0) return;
  int64_t axis = pick(t.rank);
  if (pick(3) == 0) {
    moec_attrs_REVERSE a = {.axes = {1, &axis}};
    keep(k, moec_b_op(&k->b, MOEC_OP_REVERSE, &a, 1, &x, 1));
    return;
  }
  moec_dim one = con(k, 1), half;
  moec_value in[3] = {x, pick(2) ? like(k, x) : filled(k, x), x};
  if (pick(2) && moec_dim_is(k->m, t.dims[axis], 4)) { /* two slices that may lie side by side */
    half = con(k, 2);
    in[0] = moec_b_slice(&k->b, x, axis, con(k, 0), half);
    in[1] = moec_b_slice(&k->b, x, axis, con(k, 1 + pick(2)), half);
  } else if (pick(2)) {
    in[1] = moec_b_slice(&k->b, in[1], axis, con(k, 0), one);
  }
  keep(k, moec_b_concat(&k->b, 2 + pick(2), in, axis));
}

static void reduce(maker *k) {
  static const moec_op ops[] = {MOEC_OP_REDUCE_SUM, MOEC_OP_REDUCE_MAX, MOEC_OP_REDUCE_MIN};
  moec_value x = any_of(k, 'F');
  uint32_t rank = ty(k, x).rank;
  if (rank) keep(k, moec_b_reduce(&k->b, ops[pick(3)], x, pick(rank), pick(2)));
}

static void norm(maker *k) {
  moec_value x = any_of(k, 'F');
  uint32_t rank = ty(k, x).rank;
  if (rank == 0) return;
  moec_attrs_SOFTMAX s = {.axis = pick(rank)};
  moec_attrs_RMS_NORM r = {.eps = 0.25};
  keep(k, pick(2) ? moec_b_op(&k->b, MOEC_OP_SOFTMAX, &s, 1, &x, 1) : moec_b_op(&k->b, MOEC_OP_RMS_NORM, &r, 1, &x, 1));
}

static void ramp(maker *k) {
  moec_dim dims[3] = {any_dim(k), any_dim(k), any_dim(k)};
  uint32_t rank = 1 + pick(3);
  keep(k, moec_b_iota(&k->b, MOEC_I64, rank, dims, pick(rank)));
}

static void index_ops(maker *k) {
  moec_value x = any(k);
  moec_type_info t = ty(k, x);
  if (t.rank == 0) return;
  int64_t axis = pick(t.rank), d;
  moec_dim n = t.dims[axis];
  moec_value i = moec_b_iota(&k->b, MOEC_I64, 1, &n, 0);
  moec_attrs_GATHER g = {.axis = axis};
  if (moec_dim_is_const(k->m, n, &d) && pick(2))
    i = moec_b_scalar_i(&k->b, MOEC_I64, (int64_t)pick((uint32_t)d) - (pick(2) ? d : 0));
  if (pick(2)) i = moec_b_unsqueeze(&k->b, i, 0);
  moec_value in[3] = {x, i};
  if (pick(3)) {
    keep(k, moec_b_op(&k->b, MOEC_OP_GATHER, &g, 2, in, 1));
    return;
  }
  if (!moec_dim_is_const(k->m, t.dims[0], &d)) return;
  /* rows of another value, into x */
  int64_t from = pick((uint32_t)d), count = 1 + pick((uint32_t)(d - from < 4 ? d - from : 4));
  int64_t rows[4] = {from, from + 1, from + 2, from + 3};
  moec_dim shape[2] = {con(k, count), con(k, 1)};
  in[1] = moec_b_const(&k->b, moec_type_make(k->m, MOEC_I64, 2, shape), rows, (size_t)count * sizeof *rows);
  in[2] = moec_b_slice(&k->b, like(k, x), 0, con(k, 0), con(k, count));
  keep(k, moec_b_op(&k->b, MOEC_OP_SCATTER_ND, NULL, 3, in, 1));
}

static void library(maker *k) {
  moec_value x = any_of(k, 'F'), y = pick(2) ? x : any_of(k, 'F');
  moec_type_info t = ty(k, x), u = ty(k, y);
  if (t.rank == 0) return;
  if (pick(4) == 0) {
    moec_attrs_CUMSUM c = {.axis = pick(t.rank)};
    keep(k, moec_b_op(&k->b, MOEC_OP_CUMSUM, &c, 1, &x, 1));
    return;
  }
  int64_t batch[2], contract[2];
  uint32_t n = 0;
  for (uint32_t i = 0; i < t.rank && n == 0; i++)
    for (uint32_t j = 0; j < u.rank && n == 0; j++)
      if (moec_dim_eq(t.dims[i], u.dims[j]) && pick(2)) contract[0] = i, contract[1] = j, n = 1;
  if (n == 0) return;
  uint32_t nb = 0;
  for (uint32_t i = 0; i < t.rank && nb == 0; i++)
    for (uint32_t j = 0; j < u.rank && nb == 0; j++)
      if (moec_dim_eq(t.dims[i], u.dims[j]) && (int64_t)i != contract[0] && (int64_t)j != contract[1] && pick(2))
        batch[0] = i, batch[1] = j, nb = 1;
  moec_attrs_DOT a = {.lhs_batch = {nb, &batch[0]}, .rhs_batch = {nb, &batch[1]}, .lhs_contract = {1, &contract[0]},
      .rhs_contract = {1, &contract[1]}};
  moec_value in[2] = {x, y};
  moec_value z = moec_b_op(&k->b, MOEC_OP_DOT, &a, 2, in, 1);
  keep(k, z);
  if (z.i && pick(2)) keep(k, moec_b_binary(&k->b, MOEC_OP_ADD, z, like(k, z)));
}

/* ---- one graph ------------------------------------------------------------------------------------ */

static moec_module *random_module(uint64_t seed) {
  static void (*const steps[])(maker * k) = {unary,   root,      binary,    binary,  logic,  casts,
                                             reshape, transpose, broadcast, slice,   joins,  reduce,
                                             norm,    ramp,      index_ops, library, library};
  state = seed * 0x9e3779b97f4a7c15u + 1;
  moec_module *m = moec_module_create();
  moec_graph *g = moec_fn_get(m, moec_fn_add(m, "main"));
  maker k = {.m = m, .b = moec_builder_on(g)};
  moec_dim a = moec_dim_symbol(m, "a"), b = moec_dim_symbol(m, "b");
  moec_dim x[3] = {a, b, con(&k, 4)}, y[2] = {b, con(&k, 1)};
  keep(&k, moec_add_input(g, "x", moec_type_make(m, MOEC_F32, 3, x)));
  keep(&k, moec_add_input(g, "i", moec_type_make(m, MOEC_I64, 2, x)));
  keep(&k, moec_add_input(g, "c", moec_type_make(m, MOEC_BOOL, 2, y)));
  keep(&k, moec_add_input(g, "y", moec_type_make(m, MOEC_F32, 3, x)));
  uint32_t n_steps = 4 + pick(50);
  for (uint32_t i = 0; i < n_steps; i++) steps[pick(sizeof steps / sizeof *steps)](&k);
  UNIT_OK(moec_builder_end(&k.b));
  uint32_t n_out = 1 + pick(4);
  for (uint32_t i = 0; i < n_out; i++) moec_add_output(g, "out", k.pool[k.n - 1 - pick(k.n < 6 ? k.n : 6)]);
  moec_compact_all(m);
  UNIT_OK(moec_verify(m));
  return m;
}

static void print(const char *what, const moec_module *m) {
  moec_buf b = {0};
  moec_print(&b, m);
  fprintf(stderr, "---- %s\n%s", what, moec_buf_str(&b));
  moec_buf_fini(&b);
}

static void run(moec_module *m, moec_tensor *out) {
  moec_interp_options options = {.f64 = true};
  moec_tensor in[4];
  const moec_graph *g = moec_main(m);
  int64_t symbols[2] = {SIZE_A, SIZE_B};
  uint64_t before = state;
  state = 7777;
  for (size_t i = 0; i < g->n_inputs; i++) {
    moec_type_info t = moec_ty(g, g->inputs[i]);
    int64_t dims[MOEC_MAX_RANK];
    for (uint32_t k = 0; k < t.rank; k++) UNIT_OK(moec_dim_eval(m, t.dims[k], symbols, &dims[k]));
    UNIT_OK(moec_tensor_init(&in[i], t.dtype, t.rank, dims));
    for (int64_t k = 0; k < moec_tensor_numel(&in[i]); k++)
      moec_store_f64(t.dtype, in[i].data, (size_t)k, t.dtype == MOEC_F32 ? pick(1000) / 250.0 - 2 : pick(2));
  }
  state = before;
  UNIT_OK(moec_interp_run(m, (moec_fn){1}, in, g->n_inputs, out, g->n_outputs, &options));
  for (size_t i = 0; i < g->n_inputs; i++) moec_tensor_fini(&in[i]);
}

static void compare(uint64_t seed, const char *pass, moec_module *m, const moec_tensor *want) {
  moec_tensor got[8] = {0};
  run(m, got);
  for (size_t o = 0; o < moec_main(m)->n_outputs; o++) {
    for (int64_t i = 0; i < moec_tensor_numel(&want[o]); i++) {
      double x = moec_load_f64(want[o].dtype, want[o].data, (size_t)i),
             y = moec_load_f64(got[o].dtype, got[o].data, (size_t)i);
      bool same = x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= 1e-6 * (1 + fabs(x));
      if (!same) ck_abort_msg("MOEC_SEED=%llu, %s: output %zu, element %lld: %.17g became %.17g",
                              (unsigned long long)seed, pass, o, (long long)i, x, y);
    }
    moec_tensor_fini(&got[o]);
  }
}

static void check_seed(uint64_t seed, bool verbose) {
  static const char *const passes[] = {"simplify", "fuse"};
  moec_compile_options options = {.target = MOEC_TARGET_CPU, .precision = MOEC_PRECISION_F32};
  moec_pass_ctx cx = {.options = &options};
  moec_tensor want[8] = {0};
  moec_module *m = random_module(seed);
  if (verbose) print("before", m);
  run(m, want);
  for (int i = 0; i < 2; i++) {
    UNIT_OK(moec_context(moec_run_pass(m, passes[i], &cx), "MOEC_SEED=%llu", (unsigned long long)seed));
    if (verbose) print(passes[i], m);
    compare(seed, passes[i], m, want);
  }
  for (size_t i = 0; i < moec_main(m)->n_outputs; i++) moec_tensor_fini(&want[i]);
  moec_module_destroy(m);
}

START_TEST(random_graphs_keep_their_values) {
  const char *seed = getenv("MOEC_SEED"), *rounds = getenv("MOEC_ROUNDS");
  if (seed) {
    check_seed(strtoull(seed, NULL, 10), true);
    return;
  }
  uint64_t n = rounds ? strtoull(rounds, NULL, 10) : 2000;
  for (uint64_t i = 1; i <= n; i++) check_seed(i, false);
}
END_TEST

UNIT_MAIN("pass_random", random_graphs_keep_their_values)
