/* Random functions of movement, elementwise ops, reductions and gathers, as kernels and interpreted. */
#include "codegen/emit.h"
#include "ir/builder.h"
#include "ir/interp.h"
#include "tests/unit/emit.h"

enum { PROGRAMS = 96, STEPS = 9 };

typedef struct maker {
  moec_builder b;
  moec_module *m;
  uint64_t state;
  moec_value pool[STEPS + 4];
  uint32_t n;
} maker;

static uint32_t pick(maker *k, uint32_t n) { return emit_random(&k->state) % n; }

static moec_dim random_dim(maker *k) {
  static const char *const texts[] = {"A", "B", "2", "3", "4", "6", "16", "1", "A*B", "A + 2"};
  moec_dim d;
  UNIT_OK(moec_dim_parse(k->m, texts[pick(k, sizeof texts / sizeof *texts)], &d));
  return d;
}

static moec_value random_input(maker *k, const char *name) {
  moec_dim dims[3];
  uint32_t rank = 1 + pick(k, 3);
  for (uint32_t i = 0; i < rank; i++) dims[i] = random_dim(k);
  return moec_add_input(k->b.g, name, moec_type_make(k->m, MOEC_F32, rank, dims));
}

/* ---- steps ---------------------------------------------------------------------------------- */

static moec_value unary(maker *k, moec_value x) {
  static const moec_op ops[] = {MOEC_OP_NEG, MOEC_OP_ABS, MOEC_OP_SIGMOID, MOEC_OP_TANH,
                                MOEC_OP_ERF};
  return moec_b_unary(&k->b, ops[pick(k, 5)], x);
}

/* Something of x's shape: another value of that shape, or one broadcast to it, or x itself. */
static moec_value like(maker *k, moec_value x) {
  moec_type_info t = moec_b_ty(&k->b, x);
  for (uint32_t tries = 0; tries < 4; tries++) {
    moec_value y = k->pool[pick(k, k->n)];
    moec_type_info u = moec_b_ty(&k->b, y);
    if (moec_value_get(k->b.g, y)->type.i == moec_value_get(k->b.g, x)->type.i) return y;
    if (u.rank == 1 && t.rank > 1 && moec_dim_eq(u.dims[0], t.dims[t.rank - 1]))
      return moec_b_broadcast_to(&k->b, y, t.rank, t.dims);
  }
  return x;
}

static moec_value binary(maker *k, moec_value x) {
  static const moec_op ops[] = {MOEC_OP_ADD, MOEC_OP_SUB, MOEC_OP_MUL, MOEC_OP_MAX, MOEC_OP_MIN};
  return moec_b_binary(&k->b, ops[pick(k, 5)], x, like(k, x));
}

static moec_value transpose(maker *k, moec_value x) {
  int64_t perm[MOEC_MAX_RANK] = {0};
  uint32_t rank = moec_b_ty(&k->b, x).rank;
  for (uint32_t i = 0; i < rank; i++) {
    uint32_t at = pick(k, i + 1);
    perm[i] = perm[at], perm[at] = i;
  }
  return moec_b_transpose(&k->b, x, perm);
}

/* Joins two axes, or splits a constant one. */
static moec_value reshape(maker *k, moec_value x) {
  moec_type_info t = moec_b_ty(&k->b, x);
  moec_dim dims[MOEC_MAX_RANK];
  uint32_t n = 0, axis = t.rank ? pick(k, t.rank) : 0;
  int64_t size;
  for (uint32_t i = 0; i < t.rank; i++) dims[n++] = t.dims[i];
  if (t.rank > 1 && axis + 1 < t.rank && pick(k, 2)) {
    dims[axis] = moec_dim_mul(k->m, dims[axis], dims[axis + 1]);
    memmove(dims + axis + 1, dims + axis + 2, (n - axis - 2) * sizeof *dims);
    n--;
  } else if (t.rank && n < 5 && moec_dim_is_const(k->m, dims[axis], &size) && size % 2 == 0) {
    memmove(dims + axis + 1, dims + axis, (n - axis) * sizeof *dims);
    bool outer = pick(k, 2);
    dims[axis] = moec_dim_const(k->m, outer ? 2 : size / 2),
    dims[axis + 1] = moec_dim_const(k->m, outer ? size / 2 : 2);
    n++;
  }
  return moec_b_reshape(&k->b, x, n, dims);
}

static moec_value slice(maker *k, moec_value x) {
  moec_type_info t = moec_b_ty(&k->b, x);
  int64_t size;
  if (!t.rank) return x;
  int64_t axis = pick(k, t.rank);
  if (!moec_dim_is_const(k->m, t.dims[axis], &size) || size < 2) return x;
  int64_t start = pick(k, (uint32_t)size - 1);
  return moec_b_slice(&k->b, x, axis, moec_dim_const(k->m, start),
                      moec_dim_const(k->m, 1 + pick(k, (uint32_t)(size - start))));
}

static moec_value pad(maker *k, moec_value x) {
  moec_type_info t = moec_b_ty(&k->b, x);
  moec_dim lo[MOEC_MAX_RANK], hi[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < t.rank; i++)
    lo[i] = moec_dim_const(k->m, pick(k, 3)), hi[i] = moec_dim_const(k->m, pick(k, 2));
  moec_attrs_PAD a = {.lo = {t.rank, lo}, .hi = {t.rank, hi}};
  moec_value in[2] = {x, moec_b_scalar_f(&k->b, MOEC_F32, 0.5)};
  return moec_b_op(&k->b, MOEC_OP_PAD, &a, 2, in, 1);
}

static moec_value concat(maker *k, moec_value x) {
  moec_value in[2] = {x, pick(k, 2) ? like(k, x) : unary(k, x)};
  uint32_t rank = moec_b_ty(&k->b, x).rank;
  return rank ? moec_b_concat(&k->b, 2, in, pick(k, rank)) : x;
}

static moec_value reverse(maker *k, moec_value x) {
  uint32_t rank = moec_b_ty(&k->b, x).rank;
  int64_t axis = rank ? pick(k, rank) : 0;
  moec_attrs_REVERSE a = {.axes = {1, &axis}};
  return rank ? moec_b_op(&k->b, MOEC_OP_REVERSE, &a, 1, &x, 1) : x;
}

static moec_value spread(maker *k, moec_value x) {
  moec_type_info t = moec_b_ty(&k->b, x);
  moec_dim dims[MOEC_MAX_RANK];
  int64_t map[MOEC_MAX_RANK];
  uint32_t axis = pick(k, t.rank + 1);
  if (t.rank > 3) return x;
  for (uint32_t i = 0, n = 0; i <= t.rank; i++) {
    if (i == axis)
      dims[i] = moec_dim_const(k->m, 3);
    else
      map[n] = i, dims[i] = t.dims[n++];
  }
  moec_attrs_BROADCAST a = {.shape = {t.rank + 1, dims}, .map = {t.rank, map}};
  return moec_b_op(&k->b, MOEC_OP_BROADCAST, &a, 1, &x, 1);
}

/* x reduced along an axis, often spread again: x - max, x / sum. */
static moec_value reduce(maker *k, moec_value x) {
  static const moec_op ops[] = {MOEC_OP_REDUCE_SUM, MOEC_OP_REDUCE_MAX, MOEC_OP_REDUCE_MIN};
  moec_type_info t = moec_b_ty(&k->b, x);
  if (!t.rank) return x;
  int64_t axis = pick(k, t.rank);
  bool back = pick(k, 3) != 0;
  moec_value r =
      moec_b_reduce(&k->b, ops[pick(k, 3)], moec_b_unary(&k->b, MOEC_OP_TANH, x), axis, back);
  return back ? moec_b_binary(&k->b, MOEC_OP_SUB, x, moec_b_broadcast_to(&k->b, r, t.rank, t.dims))
              : r;
}

static moec_value choose(maker *k, moec_value x) {
  moec_type_info t = moec_b_ty(&k->b, x);
  if (!t.rank) return x;
  moec_value i = moec_b_iota(&k->b, MOEC_I64, t.rank, t.dims, pick(k, t.rank));
  moec_value c = moec_b_binary(&k->b, pick(k, 2) ? MOEC_OP_LT : MOEC_OP_GE, i,
                               moec_b_scalar_i(&k->b, MOEC_I64, pick(k, 6)));
  return moec_b_select(&k->b, c, x, like(k, x));
}

static moec_value gather(maker *k, moec_value x) {
  moec_type_info t = moec_b_ty(&k->b, x);
  int64_t index[4], size = 1;
  if (!t.rank) return x;
  int64_t axis = pick(k, t.rank);
  if (!moec_dim_is_const(k->m, t.dims[axis], &size)) size = 1;
  for (int i = 0; i < 4; i++) index[i] = (int64_t)pick(k, (uint32_t)size * 2) - size;
  moec_dim four = moec_dim_const(k->m, 4);
  moec_value i = moec_b_const(&k->b, moec_type_make(k->m, MOEC_I64, 1, &four), index, sizeof index),
             in[2] = {x, i};
  moec_attrs_GATHER a = {.axis = axis};
  return moec_b_op(&k->b, MOEC_OP_GATHER, &a, 2, in, 1);
}

static moec_value (*const steps[])(maker *, moec_value) = {
    unary, unary,  binary,  binary, binary, transpose, reshape, reshape, slice,
    pad,   concat, reverse, spread, reduce, reduce,    choose,  gather};

/* ---- programs ------------------------------------------------------------------------------- */

/* Elements of |v| with the test's sizes. */
static int64_t elements(maker *k, moec_value v, const int64_t *sizes) {
  return emit_eval(k->m, moec_type_numel(k->m, moec_value_get(k->b.g, v)->type), sizes);
}

static void make(emit_run *r, uint64_t seed) {
  maker k = {.m = moec_module_create(), .state = seed * 77777 + 5};
  r->m = k.m, r->sizes[0] = 3, r->sizes[1] = 5;
  moec_dim_symbol(k.m, "A"), moec_dim_symbol(k.m, "B");
  k.b = moec_builder_on(moec_fn_get(k.m, moec_fn_add(k.m, "main")));
  moec_dim ab[2] = {moec_dim_symbol(k.m, "A"), moec_dim_symbol(k.m, "B")};
  moec_add_input(k.b.g, "sizes", moec_type_make(k.m, MOEC_F32, 2, ab));
  for (int i = 0; i < 2; i++) k.pool[k.n++] = random_input(&k, "x");
  for (int i = 0; i < STEPS; i++) {
    moec_value x = k.pool[k.n - 1 - (pick(&k, 4) == 0)];
    moec_value y = steps[pick(&k, sizeof steps / sizeof *steps)](&k, x);
    if (k.b.error || elements(&k, y, r->sizes) > 20000 || moec_b_ty(&k.b, y).rank > 6) y = x;
    k.pool[k.n++] = y;
  }
  moec_value y = k.pool[k.n - 1], sum = {0};
  uint32_t leading = moec_b_ty(&k.b, y).rank;
  if (leading && pick(&k, 3) == 0) { /* sums over rows, alone or next to the rows */
    moec_attrs_BLOCK_SUM a = {.leading = leading = 1 + pick(&k, leading), .size = 1 + pick(&k, 7)};
    sum = moec_b_op(&k.b, MOEC_OP_BLOCK_SUM, &a, 1, &y, 1);
  }
  UNIT_OK(moec_builder_end(&k.b));
  if (!sum.i || pick(&k, 2)) moec_add_output(k.b.g, "y", y);
  if (sum.i) moec_add_output(k.b.g, "sum", sum);
  moec_compact_all(k.m);
  const moec_graph *g = moec_main(k.m);
  y = sum.i ? moec_in(g, moec_def(g, g->outputs[g->n_outputs - 1]), 0) : g->outputs[0];
  moec_type_info t = moec_ty(g, y);
  moec_dim rows = moec_dim_const(k.m, 1);
  for (uint32_t i = 0, n = sum.i ? leading : pick(&k, t.rank + 1); i < n; i++)
    rows = moec_dim_mul(k.m, rows, t.dims[i]);
  moec_status *s = moec_kernel_build(k.m->arena, k.m, moec_main(k.m), rows, &r->k);
  if (s) ck_abort_msg("program %llu: %s", (unsigned long long)seed, moec_status_message(s));
}

START_TEST(test_random) {
  const char *first = getenv("MOEC_EMIT_SEED");
  uint64_t seed = first ? strtoull(first, NULL, 10) : 1;
  static emit_run runs[PROGRAMS];
  moec_buf source = {0};
  emit_begin(&source);
  for (size_t i = 0; i < PROGRAMS; i++) {
    char symbol[32];
    make(&runs[i], seed + i);
    snprintf(symbol, sizeof symbol, "k%zu", i);
    emit_kernel(&source, &runs[i], symbol);
  }
  emit_open(&source, runs, PROGRAMS);
  for (size_t i = 0; i < PROGRAMS; i++) {
    char symbol[32];
    snprintf(symbol, sizeof symbol, "k%zu", i);
    emit_case c = {.name = symbol, .tolerance = 1e-4};
    for (uint64_t k = 0; k < 2; k++) emit_check(&c, &runs[i], 2 * (seed + i) + k);
    moec_module_destroy(runs[i].m);
  }
  emit_close(runs);
}
END_TEST

UNIT_MAIN("emit_random", test_random)
