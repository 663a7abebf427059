/* The library kernels of a cubin, run by fibers of the processor, against the steps of the cpu. */
#define EMIT_CUDA
#include <math.h>

#include "codegen/emit.h"
#include "codegen/plan_build.h"
#include "include/cuda_abi.h"
#include "tests/support/cuda_emulation.h"
#include "tests/unit/runtime_step.h"

#undef UNIT_BEFORE
#define UNIT_BEFORE \
  if (!emulation_possible()) return puts("skipped: no C++ compiler"), 77;

enum { BLOCKS = 3 };

/* ---- kernels ------------------------------------------------------------------------------- */

/* Every text, in every dtype of |dtypes|. */
static emulation *open_library(void) {
  static const moec_dtype dtypes[] = {MOEC_F32, MOEC_F64, MOEC_BF16, MOEC_F16,
                                      MOEC_I64, MOEC_I32, MOEC_U8};
  enum { DTYPES = sizeof dtypes / sizeof *dtypes };
  moec_plan_tensor tensors[DTYPES] = {{0}};
  uint32_t pool[DTYPES * 4];
  moec_plan_step steps[DTYPES * MOEC_STEP_COUNT];
  moec_plan_tables t = {.tensors = tensors, .pool = pool, .steps = steps};
  for (uint32_t d = 0; d < DTYPES; d++) {
    tensors[d].dtype = (uint32_t)dtypes[d];
    for (uint32_t i = 0; i < 4; i++) pool[4 * d + i] = d;
    for (uint32_t op = 0; op < MOEC_STEP_COUNT; op++) {
      bool floats = op != MOEC_STEP_TOPK && op != MOEC_STEP_CUMSUM && op != MOEC_STEP_SCATTER_ND &&
                    op != MOEC_STEP_SCATTER_ELEMENTS;
      if (floats && !moec_dtype_is_float(dtypes[d])) continue;
      steps[t.n_steps++] = (moec_plan_step){.op = op, .args = 4 * d, .n_in = 3, .n_out = 1};
    }
  }
  moec_buf text = {0};
  moec_emit_cuda_prelude(&text);
  moec_emit_cuda_library(&text, &t);
  emulation *e = emulation_open(&text);
  moec_buf_fini(&text);
  return e;
}

/* A launch: pointers, sizes and flags of a kernel, in the order of their kinds. */
typedef struct launch {
  void *fn;
  void *p[8];
  int64_t n[8];
  int32_t i[4], fault;
  moec_cuda_shape shape[2];
  moec_cuda_conv conv;
} launch;

#define BODY(name, params, args)        \
  static void call_##name(void *user) { \
    launch *l = user;                   \
    void(*f) params;                    \
    memcpy(&f, &l->fn, sizeof f);       \
    f args;                             \
  }
#define P void *
#define N int64_t
#define I int32_t
BODY(topk, (P, P, P, N, N, N, N, I),
     (l->p[0], l->p[1], l->p[2], l->n[0], l->n[1], l->n[2], l->n[3], l->i[0]))
BODY(cumsum, (P, P, N, N, N, I, I), (l->p[0], l->p[1], l->n[0], l->n[1], l->n[2], l->i[0], l->i[1]))
BODY(scatter_elements, (P, P, I, P, moec_cuda_shape, moec_cuda_shape, N, I, P),
     (l->p[0], l->p[1], l->i[0], l->p[2], l->shape[0], l->shape[1], l->n[0], l->i[1], &l->fault))
BODY(scatter_nd, (P, P, I, P, moec_cuda_shape, N, N, N, I, P),
     (l->p[0], l->p[1], l->i[0], l->p[2], l->shape[0], l->n[0], l->n[1], l->n[2], l->i[1],
      &l->fault))
BODY(random, (P, N, I, N), (l->p[0], l->n[0], l->i[0], l->n[1]))
BODY(conv, (P, P, P, moec_cuda_conv), (l->p[0], l->p[1], l->p[2], l->conv))
BODY(plan_count, (P, N, N, N, P, P), (l->p[0], l->n[0], l->n[1], l->n[2], l->p[1], &l->fault))
BODY(plan_scan, (P, N, N, P), (l->p[1], l->n[1], l->n[3], l->p[2]))
BODY(plan_fill, (P, N, N, N, P, P, P),
     (l->p[0], l->n[0], l->n[1], l->n[2], l->p[1], l->p[3], l->p[4]))
BODY(dispatch, (P, P, P, I, P, N, N, N, P),
     (l->p[0], l->p[1], l->p[2], l->i[0], l->p[3], l->n[0], l->n[1], l->n[2], &l->fault))
BODY(combine, (P, P, P, I, P, P, N, N, N, P),
     (l->p[0], l->p[1], l->p[2], l->i[0], l->p[3], l->p[4], l->n[0], l->n[1], l->n[2], &l->fault))
BODY(grouped_dot, (P, P, P, P, I, P, I, N, N, N, N, I),
     (l->p[0], l->p[1], l->p[2], l->p[3], l->i[0], l->p[4], l->i[1], l->n[0], l->n[1], l->n[2],
      l->n[3], l->i[2]))
BODY(grouped_outer, (P, P, P, P, I, N, N, N, N),
     (l->p[0], l->p[1], l->p[2], l->p[3], l->i[0], l->n[0], l->n[1], l->n[2], l->n[3]))
BODY(group_sum, (P, P, P, I, N, N, N),
     (l->p[0], l->p[1], l->p[2], l->i[0], l->n[0], l->n[1], l->n[2]))
#undef P
#undef N
#undef I

static emulation *library;

/* Threads in either order by turns. |dtype| NONE: the name has none. */
static void run(const char *name, moec_dtype dtype, unsigned blocks, unsigned threads,
                void (*body)(void *), launch *l) {
  char symbol[64];
  snprintf(symbol, sizeof symbol, dtype ? "moec_%s_%s" : "moec_%s", name,
           moec_dtype_get(dtype)->text);
  l->fn = dlsym(library->library, symbol);
  if (!l->fn) ck_abort_msg("no kernel %s", symbol);
  library->falling = !library->falling;
  emulation_launch(library, blocks, threads, body, l);
}

/* ---- tensors ------------------------------------------------------------------------------- */

static uint64_t state = 1;
static double uniform(void) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (double)(state >> 33) / 0x1p31;
}

static moec_tensor make(moec_dtype t, uint32_t rank, const int64_t *dims) {
  moec_tensor r;
  UNIT_OK(moec_tensor_init(&r, t, rank, dims));
  return r;
}

/* Floats in (-2, 2) of which some are equal; integers in [0, limit). */
static moec_tensor fill(moec_dtype t, uint32_t rank, const int64_t *dims, int64_t limit) {
  moec_tensor r = make(t, rank, dims);
  for (int64_t i = 0; i < moec_tensor_numel(&r); i++) {
    if (moec_dtype_is_float(t))
      moec_store_f64(t, r.data, (size_t)i, floor(uniform() * 256) / 64 - 2);
    else
      moec_store_i64(t, r.data, (size_t)i, (int64_t)(uniform() * (double)limit));
  }
  return r;
}

static void same(const char *what, const moec_tensor *got, const moec_tensor *want,
                 double tolerance) {
  for (int64_t i = 0; i < moec_tensor_numel(want); i++) {
    double g = moec_load_f64(got->dtype, got->data, (size_t)i),
           w = moec_load_f64(want->dtype, want->data, (size_t)i);
    bool equal = (isnan(g) && isnan(w)) || g == w || fabs(g - w) <= tolerance * fmax(1, fabs(w));
    if (!equal) ck_abort_msg("%s: element %lld: got %.9g, expected %.9g", what, (long long)i, g, w);
  }
}

static double tolerance_of(moec_dtype t) {
  return t == MOEC_BF16 ? 1.0 / 64 : t == MOEC_F16 ? 1.0 / 512 : 2e-6;
}

#define DIMS(...) \
  (const int64_t[]) { __VA_ARGS__ }
#define RANK(...) (uint32_t)(sizeof(DIMS(__VA_ARGS__)) / sizeof(int64_t))
#define MAKE(t, ...) make(t, RANK(__VA_ARGS__), DIMS(__VA_ARGS__))
#define FILL(t, limit, ...) fill(t, RANK(__VA_ARGS__), DIMS(__VA_ARGS__), limit)

/* The cpu's result number |i| of |s|; further results are dropped. */
static moec_tensor cpu(one_step *s, uint32_t i) {
  UNIT_OK(step_run(s, 1));
  for (uint32_t k = 0; k < s->n_out; k++)
    if (k != i && s->out[k].dtype != MOEC_DTYPE_NONE) moec_tensor_fini(&s->out[k]);
  return s->out[i];
}

static moec_tensor shaped(moec_dtype t, uint32_t rank, const int64_t *dims) {
  moec_tensor r = {.dtype = t, .rank = rank};
  memcpy(r.dims, dims, rank * sizeof *dims);
  return r;
}
#define SHAPED(t, ...) shaped(t, RANK(__VA_ARGS__), DIMS(__VA_ARGS__))

/* ---- routing ------------------------------------------------------------------------------- */

typedef struct routes {
  moec_tensor experts_of, perm, inv, offsets;
} routes;

static routes make_routes(int64_t tokens, int64_t k, int64_t experts, int64_t used) {
  routes r = {FILL(MOEC_I64, used, tokens, k), MAKE(MOEC_I32, tokens * k),
              MAKE(MOEC_I32, tokens * k), MAKE(MOEC_I32, experts + 1)};
  int64_t per_block = 64, n = tokens * k, blocks = n ? (n + per_block - 1) / per_block : 1;
  moec_tensor counts = MAKE(MOEC_I32, experts * blocks);
  launch l = {.p = {r.experts_of.data, counts.data, r.offsets.data, r.perm.data, r.inv.data},
              .n = {n, experts, per_block, blocks}};
  run("plan_count", MOEC_DTYPE_NONE, (unsigned)blocks, 32, call_plan_count, &l);
  run("plan_scan", MOEC_DTYPE_NONE, 1, 1024, call_plan_scan, &l);
  run("plan_fill", MOEC_DTYPE_NONE, (unsigned)blocks, 32, call_plan_fill, &l);
  ck_assert_int_eq(l.fault, 0);
  moec_tensor_fini(&counts);
  return r;
}

static void end_routes(routes *r) {
  moec_tensor_fini(&r->experts_of);
  moec_tensor_fini(&r->perm);
  moec_tensor_fini(&r->inv);
  moec_tensor_fini(&r->offsets);
}

START_TEST(plan_sorts_stably) {
  static const int64_t cases[][4] = {
      {100, 4, 8, 8}, {300, 8, 200, 70}, {37, 2, 5, 1}, {0, 2, 5, 5}, {1, 1, 1, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const int64_t *c = cases[i], n = c[0] * c[1];
    routes r = make_routes(c[0], c[1], c[2], c[3]);
    const moec_tensor *got[] = {&r.perm, &r.inv, &r.offsets};
    for (uint32_t k = 0; k < 3; k++) {
      one_step s = {.op = MOEC_STEP_MOE_PLAN, .n_in = 1, .n_out = 3, .in = {&r.experts_of}};
      s.out[0] = SHAPED(MOEC_I32, n), s.out[1] = SHAPED(MOEC_I32, n),
      s.out[2] = SHAPED(MOEC_I32, c[2] + 1);
      moec_tensor want = cpu(&s, k);
      same("plan", got[k], &want, 0);
      moec_tensor_fini(&want);
    }
    end_routes(&r);
  }
}
END_TEST

START_TEST(plan_clamps_what_is_no_expert) {
  int64_t experts_of[40];
  int32_t counts[3], offsets[4];
  for (int i = 0; i < 40; i++) experts_of[i] = i % 2 ? 7 : -1;
  launch l = {.p = {experts_of, counts, offsets}, .n = {40, 3, 64, 1}};
  run("plan_count", MOEC_DTYPE_NONE, 1, 32, call_plan_count, &l);
  ck_assert_int_eq(l.fault, 1);
  ck_assert_int_eq(counts[0], 20);
  ck_assert_int_eq(counts[2], 20);
}
END_TEST

static void check_topk(moec_dtype t, int64_t outer, int64_t n, int64_t inner, int64_t k,
                       bool largest) {
  moec_tensor x = FILL(t, 50, outer, n, inner), v = MAKE(t, outer, k, inner),
              i = MAKE(MOEC_I64, outer, k, inner);
  if (t == MOEC_F32)
    ((float *)x.data)[0] = NAN, ((float *)x.data)[inner] = -INFINITY, ((float *)x.data)[1] = -0.0f;
  launch l = {.p = {x.data, v.data, i.data}, .n = {outer, n, inner, k}, .i = {largest}};
  run("topk", t, BLOCKS, 128, call_topk, &l);
  for (uint32_t r = 0; r < 2; r++) {
    one_step s = {
        .op = MOEC_STEP_TOPK, .n_in = 1, .n_out = 2, .n_ints = 2, .in = {&x}, .ints = {1, largest}};
    s.out[0] = SHAPED(t, outer, k, inner), s.out[1] = SHAPED(MOEC_I64, outer, k, inner);
    moec_tensor want = cpu(&s, r);
    same("topk", r ? &i : &v, &want, 0);
    moec_tensor_fini(&want);
  }
  moec_tensor_fini(&x), moec_tensor_fini(&v), moec_tensor_fini(&i);
}

START_TEST(topk_orders) {
  check_topk(MOEC_F32, 7, 40, 1, 6, true);
  check_topk(MOEC_F32, 2, 130, 3, 100, true);
  check_topk(MOEC_F64, 3, 33, 2, 33, false);
  check_topk(MOEC_BF16, 5, 64, 1, 8, true);
  check_topk(MOEC_I32, 2, 90, 2, 70, false);
  check_topk(MOEC_U8, 2, 20, 1, 4, true);
}
END_TEST

/* ---- rows ---------------------------------------------------------------------------------- */

static void check_rows(moec_dtype t, int64_t tokens, int64_t k, int64_t width, bool weighted,
                       bool residual) {
  routes r = make_routes(tokens, k, 6, 4);
  moec_tensor x = FILL(t, 0, tokens, width), w = FILL(MOEC_F32, 0, tokens, k),
              rows = MAKE(t, tokens * k, width);
  moec_tensor add = FILL(t, 0, tokens, width), y = MAKE(t, tokens, width),
              z = MAKE(t, tokens * k, width);
  const moec_tensor *weights = weighted ? &w : NULL;
  void *wp = weighted ? w.data : NULL;
  launch l = {
      .p = {x.data, r.perm.data, wp, rows.data}, .n = {tokens * k, k, width}, .i = {MOEC_F32}};
  run("dispatch", t, BLOCKS, 256, call_dispatch, &l);
  one_step s = {.op = MOEC_STEP_MOE_DISPATCH,
                .n_in = 3,
                .n_out = 1,
                .n_ints = 1,
                .in = {&x, &r.perm, weights},
                .ints = {k}};
  s.out[0] = SHAPED(t, tokens * k, width);
  moec_tensor want = cpu(&s, 0);
  same("dispatch", &rows, &want, 0);
  moec_tensor_fini(&want);
  launch m = {
      .p = {rows.data, r.perm.data, w.data, z.data}, .n = {tokens * k, 0, width}, .i = {MOEC_F32}};
  run("dispatch", t, BLOCKS, 256, call_dispatch, &m);
  s = (one_step){.op = MOEC_STEP_MOE_WEIGHT, .n_in = 3, .n_out = 1, .in = {&rows, &w, &r.perm}};
  s.out[0] = SHAPED(t, tokens * k, width);
  want = cpu(&s, 0);
  same("weight", &z, &want, 0);
  moec_tensor_fini(&want);
  launch c = {.p = {rows.data, r.inv.data, wp, residual ? add.data : NULL, y.data},
              .n = {tokens, k, width},
              .i = {MOEC_F32}};
  run("combine", t, BLOCKS, 256, call_combine, &c);
  s = (one_step){.op = MOEC_STEP_MOE_COMBINE,
                 .n_in = 4,
                 .n_out = 1,
                 .n_ints = 1,
                 .in = {&rows, &r.inv, weights, residual ? &add : NULL},
                 .ints = {k}};
  s.out[0] = SHAPED(t, tokens, width);
  want = cpu(&s, 0);
  same("combine", &y, &want, tolerance_of(t));
  moec_tensor_fini(&want);
  ck_assert_int_eq(l.fault | m.fault | c.fault, 0);
  moec_tensor_fini(&x), moec_tensor_fini(&w), moec_tensor_fini(&rows), moec_tensor_fini(&add);
  moec_tensor_fini(&y), moec_tensor_fini(&z);
  end_routes(&r);
}

START_TEST(rows_go_and_come_back) {
  check_rows(MOEC_F32, 50, 2, 70, true, true);
  check_rows(MOEC_F32, 9, 4, 33, false, false);
  check_rows(MOEC_BF16, 21, 3, 40, true, true);
  check_rows(MOEC_F64, 5, 2, 8, true, false);
  check_rows(MOEC_F32, 0, 2, 8, true, true);
}
END_TEST

/* ---- products ------------------------------------------------------------------------------ */

static void check_grouped(moec_dtype t, int64_t tokens, int64_t used, int64_t k, int64_t m,
                          bool transposed, bool bias) {
  enum { EXPERTS = 5 };
  routes r = make_routes(tokens, 2, EXPERTS, used);
  int64_t n = 2 * tokens;
  moec_tensor x = FILL(t, 0, n, k),
              w = transposed ? FILL(t, 0, EXPERTS, m, k) : FILL(t, 0, EXPERTS, k, m);
  moec_tensor b = FILL(t, 0, EXPERTS, m), y = MAKE(t, n, m), dw = MAKE(MOEC_F32, EXPERTS, m, k),
              db = MAKE(t, EXPERTS, m);
  launch l = {.p = {x.data, w.data, r.offsets.data, bias ? b.data : NULL, y.data},
              .n = {n, EXPERTS, k, m},
              .i = {(int32_t)t, (int32_t)t, transposed}};
  run("grouped_dot", t, BLOCKS, 256, call_grouped_dot, &l);
  one_step s = {.op = MOEC_STEP_MOE_GROUPED_DOT,
                .n_in = 4,
                .n_out = 1,
                .n_ints = 1,
                .in = {&x, &w, &r.offsets, bias ? &b : NULL},
                .ints = {transposed}};
  s.out[0] = SHAPED(t, n, m);
  moec_tensor want = cpu(&s, 0);
  same("grouped_dot", &y, &want, 4 * tolerance_of(t));
  moec_tensor_fini(&want);
  launch o = {
      .p = {y.data, x.data, r.offsets.data, dw.data}, .n = {n, EXPERTS, m, k}, .i = {MOEC_F32}};
  run("grouped_outer", t, BLOCKS, 256, call_grouped_outer, &o);
  s = (one_step){
      .op = MOEC_STEP_MOE_GROUPED_OUTER, .n_in = 3, .n_out = 1, .in = {&y, &x, &r.offsets}};
  s.out[0] = SHAPED(MOEC_F32, EXPERTS, m, k);
  want = cpu(&s, 0);
  same("grouped_outer", &dw, &want, 1e-5);
  moec_tensor_fini(&want);
  launch g = {.p = {y.data, r.offsets.data, db.data}, .n = {n, EXPERTS, m}, .i = {(int32_t)t}};
  run("group_sum", t, BLOCKS, 256, call_group_sum, &g);
  s = (one_step){.op = MOEC_STEP_MOE_GROUP_SUM, .n_in = 2, .n_out = 1, .in = {&y, &r.offsets}};
  s.out[0] = SHAPED(t, EXPERTS, m);
  want = cpu(&s, 0);
  same("group_sum", &db, &want, 4 * tolerance_of(t));
  moec_tensor_fini(&want);
  moec_tensor_fini(&x), moec_tensor_fini(&w), moec_tensor_fini(&b), moec_tensor_fini(&y);
  moec_tensor_fini(&dw), moec_tensor_fini(&db);
  end_routes(&r);
}

START_TEST(experts_multiply) {
  check_grouped(MOEC_F32, 100, 5, 40, 70, true, true);
  check_grouped(MOEC_F32, 70, 3, 33, 20, false, false);
  check_grouped(MOEC_F32, 80, 1, 16, 64, false, true);
  check_grouped(MOEC_BF16, 40, 4, 48, 65, true, true);
  check_grouped(MOEC_F64, 10, 5, 7, 9, false, false);
  check_grouped(MOEC_F32, 0, 5, 8, 12, true, true);
}
END_TEST

/* ---- the rest ------------------------------------------------------------------------------ */

static void check_cumsum(moec_dtype t, int64_t n, int64_t inner, bool reverse, bool exclusive) {
  moec_tensor x = FILL(t, 90, 3, n, inner), y = MAKE(t, 3, n, inner);
  launch l = {.p = {x.data, y.data}, .n = {3, n, inner}, .i = {reverse, exclusive}};
  run("cumsum", t, BLOCKS, 128, call_cumsum, &l);
  one_step s = {.op = MOEC_STEP_CUMSUM,
                .n_in = 1,
                .n_out = 1,
                .n_ints = 3,
                .in = {&x},
                .ints = {1, reverse, exclusive}};
  s.out[0] = SHAPED(t, 3, n, inner);
  moec_tensor want = cpu(&s, 0);
  same("cumsum", &y, &want, tolerance_of(t));
  moec_tensor_fini(&want), moec_tensor_fini(&x), moec_tensor_fini(&y);
}

START_TEST(sums_run) {
  check_cumsum(MOEC_F32, 70, 1, false, false);
  check_cumsum(MOEC_F32, 32, 3, true, true);
  check_cumsum(MOEC_BF16, 40, 2, true, false);
  check_cumsum(MOEC_I64, 33, 2, false, true);
}
END_TEST

static moec_cuda_shape shape_of(const moec_tensor *t) {
  moec_cuda_shape r = {.rank = t->rank};
  memcpy(r.dims, t->dims, t->rank * sizeof *r.dims);
  return r;
}

static void check_scatter(moec_dtype t, bool nd, int64_t reduction) {
  moec_tensor x = FILL(t, 50, 9, 5, 6), y = MAKE(t, 9, 5, 6);
  moec_tensor i = nd ? FILL(MOEC_I64, 9, 40, 1) : FILL(MOEC_I32, 5, 8, 12, 6);
  moec_tensor u = nd ? FILL(t, 50, 40, 5, 6) : FILL(t, 50, 8, 12, 6);
  if (nd) ((int64_t *)i.data)[3] = -2;
  memcpy(y.data, x.data, moec_tensor_bytes(&x));
  launch l = {.p = {y.data, i.data, u.data},
              .i = {(int32_t)i.dtype, (int32_t)reduction},
              .shape = {shape_of(&x), shape_of(&i)}};
  one_step s = {.op = nd ? MOEC_STEP_SCATTER_ND : MOEC_STEP_SCATTER_ELEMENTS,
                .n_in = 3,
                .n_out = 1,
                .in = {&x, &i, &u}};
  if (nd) {
    l.n[0] = 1, l.n[1] = 40, l.n[2] = 30, s.n_ints = 1, s.ints[0] = reduction;
    run("scatter_nd", t, BLOCKS, 256, call_scatter_nd, &l);
  } else {
    l.n[0] = 1, s.n_ints = 2, s.ints[0] = 1, s.ints[1] = reduction;
    run("scatter_elements", t, BLOCKS, 128, call_scatter_elements, &l);
  }
  s.out[0] = SHAPED(t, 9, 5, 6);
  moec_tensor want = cpu(&s, 0);
  same(nd ? "scatter_nd" : "scatter_elements", &y, &want, 4 * tolerance_of(t));
  ck_assert_int_eq(l.fault, 0);
  moec_tensor_fini(&want), moec_tensor_fini(&x), moec_tensor_fini(&y), moec_tensor_fini(&i),
      moec_tensor_fini(&u);
}

START_TEST(updates_scatter) {
  for (int64_t reduction = 0; reduction < 5; reduction++)
    for (int nd = 0; nd < 2; nd++) {
      check_scatter(MOEC_F32, nd, reduction);
      check_scatter(MOEC_I32, nd, reduction);
    }
  check_scatter(MOEC_BF16, true, 1);
}
END_TEST

START_TEST(numbers_are_random) {
  static const moec_dtype dtypes[] = {MOEC_F32, MOEC_F64, MOEC_BF16, MOEC_F16};
  for (size_t d = 0; d < 4; d++)
    for (int32_t kind = 0; kind < 2; kind++) {
      moec_tensor y = MAKE(dtypes[d], 3000);
      launch l = {.p = {y.data}, .n = {3000, 77}, .i = {kind}};
      run("random", dtypes[d], BLOCKS, 256, call_random, &l);
      one_step s = {.op = MOEC_STEP_RANDOM, .n_out = 1, .n_ints = 2, .ints = {kind, 77}};
      s.out[0] = SHAPED(dtypes[d], 3000);
      moec_tensor want = cpu(&s, 0);
      same("random", &y, &want, kind ? tolerance_of(dtypes[d]) : 0);
      moec_tensor_fini(&want), moec_tensor_fini(&y);
    }
}
END_TEST

START_TEST(windows_convolve) {
  moec_tensor x = FILL(MOEC_F32, 0, 2, 4, 9, 7), w = FILL(MOEC_F32, 0, 6, 2, 3, 2),
              y = MAKE(MOEC_F32, 2, 6, 5, 8);
  launch l = {.p = {x.data, w.data, y.data}};
  l.conv = (moec_cuda_conv){2, 4, 6, 2, 2, {9, 7}, {3, 2}, {5, 8}, {2, 1}, {1, 1}, {1, 1}};
  run("conv", MOEC_F32, BLOCKS, 256, call_conv, &l);
  one_step s = {.op = MOEC_STEP_CONV,
                .n_in = 2,
                .n_out = 1,
                .n_ints = 10,
                .in = {&x, &w},
                .ints = {2, 2, 1, 1, 1, 1, 1, 1, 1, 2}};
  s.out[0] = SHAPED(MOEC_F32, 2, 6, 5, 8);
  moec_tensor want = cpu(&s, 0);
  same("conv", &y, &want, 1e-5);
  moec_tensor_fini(&want), moec_tensor_fini(&x), moec_tensor_fini(&w), moec_tensor_fini(&y);
}
END_TEST

/* What include/cuda_abi.h promises is there. */
START_TEST(the_library_opens) {
  static const struct {
    const char *name;
    int typed;
  } promised[] = {
#define KERNEL(unit, name, typed, threads) {name, typed},
      MOEC_CUDA_KERNELS(KERNEL)
#undef KERNEL
  };
  library = open_library();
  for (size_t i = 0; i < sizeof promised / sizeof *promised; i++) {
    char symbol[64];
    snprintf(symbol, sizeof symbol, promised[i].typed ? "moec_%s_bf16" : "moec_%s", promised[i].name);
    if (!dlsym(library->library, symbol)) ck_abort_msg("no kernel %s", symbol);
  }
}
END_TEST
START_TEST(the_library_closes) { emulation_close(library); }
END_TEST

UNIT_MAIN("cuda_library", the_library_opens, plan_sorts_stably, plan_clamps_what_is_no_expert,
          topk_orders, rows_go_and_come_back, experts_multiply, sums_run, updates_scatter,
          numbers_are_random, windows_convolve, the_library_closes)
