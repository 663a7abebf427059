/* The library kernels of a cubin against the steps of the cpu: run by fibers of the processor, or on a GPU
 * (tests/gpu/library_test.c). */
#include "tests/support/library.h"

/* ---- routing ------------------------------------------------------------------------------- */

typedef struct routes {
  moec_tensor experts_of, perm, inv, offsets;
} routes;

static routes make_routes(int64_t tokens, int64_t k, int64_t experts, int64_t used) {
  routes r = {FILL(MOEC_I64, used, tokens, k), MAKE(MOEC_I32, tokens * k),
              MAKE(MOEC_I32, tokens * k), MAKE(MOEC_I32, experts + 1)};
  int64_t per_block = 1024, n = tokens * k, blocks = n ? (n + per_block - 1) / per_block : 1;
  moec_tensor counts = MAKE(MOEC_I32, experts * blocks);
  launch l = {.p = {r.experts_of.data, counts.data, r.offsets.data, r.perm.data, r.inv.data},
              .n = {n, experts, per_block, blocks}};
  if (blocks > 1) run("plan_count", MOEC_DTYPE_NONE, (unsigned)blocks, 1024, call_plan_count, &l);
  run("plan_fill", MOEC_DTYPE_NONE, (unsigned)blocks, 1024, call_plan_fill, &l);
  ck_assert_int_eq(l.fault, 0);
  drop(&counts);
  return r;
}

static void end_routes(routes *r) {
  drop(&r->experts_of);
  drop(&r->perm);
  drop(&r->inv);
  drop(&r->offsets);
}

START_TEST(plan_sorts_stably) {
  static const int64_t cases[][4] = {
      {100, 4, 8, 8}, {300, 8, 200, 70}, {37, 2, 5, 1}, {0, 2, 5, 5}, {1, 1, 1, 1}, {300, 4, 520, 520}};
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
      drop(&want);
    }
    end_routes(&r);
  }
}
END_TEST

START_TEST(plan_clamps_what_is_no_expert) {
  moec_tensor experts_of = MAKE(MOEC_I64, 40), offsets = MAKE(MOEC_I32, 4);
  moec_tensor perm = MAKE(MOEC_I32, 40), inv = MAKE(MOEC_I32, 40);
  for (int i = 0; i < 40; i++) ((int64_t *)experts_of.data)[i] = i % 2 ? 7 : -1;
  launch l = {.p = {experts_of.data, NULL, offsets.data, perm.data, inv.data}, .n = {40, 3, 1024, 1}};
  run("plan_fill", MOEC_DTYPE_NONE, 1, 1024, call_plan_fill, &l);
  ck_assert_int_eq(l.fault, 1);
  const int32_t want[] = {0, 20, 20, 40};
  ck_assert_mem_eq(offsets.data, want, sizeof want);
  for (int i = 0; i < 40; i++) ck_assert_int_eq(((int32_t *)perm.data)[((int32_t *)inv.data)[i]], i);
  drop(&experts_of), drop(&offsets), drop(&perm), drop(&inv);
}
END_TEST

static void check_topk(moec_dtype t, int64_t outer, int64_t n, int64_t inner, int64_t k,
                       bool largest) {
  moec_tensor x = FILL(t, 50, outer, n, inner), v = MAKE(t, outer, k, inner),
              i = MAKE(MOEC_I64, outer, k, inner);
  if (t == MOEC_F32 && moec_tensor_numel(&x))
    ((float *)x.data)[0] = NAN, ((float *)x.data)[inner] = -INFINITY, ((float *)x.data)[1] = -0.0f;
  launch l = {.p = {x.data, v.data, i.data}, .n = {outer, n, inner, k}, .i = {largest}};
  run("topk", t, BLOCKS, 128, call_topk, &l);
  for (uint32_t r = 0; r < 2; r++) {
    one_step s = {
        .op = MOEC_STEP_TOPK, .n_in = 1, .n_out = 2, .n_ints = 2, .in = {&x}, .ints = {1, largest}};
    s.out[0] = SHAPED(t, outer, k, inner), s.out[1] = SHAPED(MOEC_I64, outer, k, inner);
    moec_tensor want = cpu(&s, r);
    same("topk", r ? &i : &v, &want, 0);
    drop(&want);
  }
  drop(&x), drop(&v), drop(&i);
}

/* Scores of a router that broke: NaN, both infinities, both zeros, many ties; a row of nothing else. */
static void check_select(moec_dtype t, int64_t tokens, int64_t experts, int64_t k) {
  static const double odd[] = {NAN, INFINITY, -INFINITY, -0.0, 0.0, 1};
  moec_tensor x = FILL(t, 0, tokens, experts), i = MAKE(MOEC_I64, tokens, k);
  for (int64_t e = 0; e < tokens * experts; e++)
    if (e < 6 * experts || uniform() < 0.5)
      moec_store_f64(t, x.data, (size_t)e, odd[e < 6 * experts ? e / experts : (int64_t)(uniform() * 6)]);
  launch l = {.p = {x.data, NULL, i.data}, .n = {tokens, experts, 1, k}, .i = {1}};
  run("topk", t, BLOCKS, 128, call_topk, &l);
  one_step s = {.op = MOEC_STEP_MOE_SELECT, .n_in = 1, .n_out = 1, .in = {&x}};
  s.out[0] = SHAPED(MOEC_I64, tokens, k);
  moec_tensor want = cpu(&s, 0);
  same("select", &i, &want, 0);
  drop(&want), drop(&x), drop(&i);
}

START_TEST(broken_scores_are_ordered) {
  check_select(MOEC_F32, 20, 128, 8);
  check_select(MOEC_F32, 8, 7, 7);
  check_select(MOEC_F32, 9, 200, 1);
  check_select(MOEC_BF16, 9, 64, 6);
  check_select(MOEC_F16, 9, 32, 4);
  check_select(MOEC_F64, 9, 128, 2);
}
END_TEST

START_TEST(topk_orders) {
  check_topk(MOEC_F32, 7, 40, 1, 6, true);
  check_topk(MOEC_F32, 2, 130, 3, 100, true);
  check_topk(MOEC_F64, 3, 33, 2, 33, false);
  check_topk(MOEC_BF16, 5, 64, 1, 8, true);
  check_topk(MOEC_I32, 2, 90, 2, 70, false);
  check_topk(MOEC_U8, 2, 20, 1, 4, true);
  check_topk(MOEC_F32, 9, 128, 1, 8, true);
  check_topk(MOEC_F32, 4, 256, 2, 32, false);
  check_topk(MOEC_F16, 3, 3, 1, 3, false);
  check_topk(MOEC_F32, 2, 257, 1, 33, true);
  check_topk(MOEC_F32, 0, 8, 1, 2, true);
  check_topk(MOEC_F32, 3, 8, 0, 2, true);
  check_topk(MOEC_BF16, 3, 8, 1, 0, true);
}
END_TEST

/* ---- rows ---------------------------------------------------------------------------------- */

static void check_rows(moec_dtype t, moec_dtype y_type, int64_t tokens, int64_t k, int64_t width, bool weighted,
                       bool residual) {
  routes r = make_routes(tokens, k, 6, 4);
  moec_tensor x = FILL(t, 0, tokens, width), w = FILL(MOEC_F32, 0, tokens, k),
              rows = MAKE(t, tokens * k, width);
  moec_tensor add = FILL(y_type, 0, tokens, width), y = MAKE(y_type, tokens, width),
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
  drop(&want);
  launch m = {
      .p = {rows.data, r.perm.data, w.data, z.data}, .n = {tokens * k, 0, width}, .i = {MOEC_F32}};
  run("dispatch", t, BLOCKS, 256, call_dispatch, &m);
  s = (one_step){.op = MOEC_STEP_MOE_WEIGHT, .n_in = 3, .n_out = 1, .in = {&rows, &w, &r.perm}};
  s.out[0] = SHAPED(t, tokens * k, width);
  want = cpu(&s, 0);
  same("weight", &z, &want, 0);
  drop(&want);
  launch c = {.p = {rows.data, r.inv.data, wp, residual ? add.data : NULL, y.data},
              .n = {tokens, k, width},
              .i = {MOEC_F32, (int32_t)y_type}};
  run("combine", t, BLOCKS, 256, call_combine, &c);
  s = (one_step){.op = MOEC_STEP_MOE_COMBINE,
                 .n_in = 4,
                 .n_out = 1,
                 .n_ints = 1,
                 .in = {&rows, &r.inv, weights, residual ? &add : NULL},
                 .ints = {k}};
  s.out[0] = SHAPED(y_type, tokens, width);
  want = cpu(&s, 0);
  same("combine", &y, &want, tolerance_of(y_type));
  drop(&want);
  ck_assert_int_eq(l.fault | m.fault | c.fault, 0);
  drop(&x), drop(&w), drop(&rows), drop(&add);
  drop(&y), drop(&z);
  end_routes(&r);
}

START_TEST(rows_go_and_come_back) {
  check_rows(MOEC_F32, MOEC_F32, 50, 2, 70, true, true);
  check_rows(MOEC_F32, MOEC_F32, 9, 4, 33, false, false);
  check_rows(MOEC_BF16, MOEC_BF16, 21, 3, 40, true, true);
  check_rows(MOEC_F64, MOEC_F64, 5, 2, 8, true, false);
  check_rows(MOEC_F32, MOEC_F32, 0, 2, 8, true, true);
  check_rows(MOEC_BF16, MOEC_BF16, 1, 1, 8, true, true);
  check_rows(MOEC_BF16, MOEC_BF16, 20, 6, 2056, true, false);
  check_rows(MOEC_F32, MOEC_F32, 7, 10, 1028, false, true);
  check_rows(MOEC_F16, MOEC_F16, 3, 8, 513, true, true);
  check_rows(MOEC_BF16, MOEC_F32, 21, 3, 40, true, true);
  check_rows(MOEC_BF16, MOEC_F32, 20, 6, 2056, false, false);
  check_rows(MOEC_F16, MOEC_F32, 3, 8, 513, true, true);
  check_rows(MOEC_F32, MOEC_F32, 5, 2, 0, true, true);
  check_rows(MOEC_BF16, MOEC_BF16, 0, 3, 0, false, false);
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
  drop(&want);
  launch o = {
      .p = {y.data, x.data, r.offsets.data, dw.data}, .n = {n, EXPERTS, m, k}, .i = {MOEC_F32}};
  run("grouped_outer", t, BLOCKS, 256, call_grouped_outer, &o);
  s = (one_step){
      .op = MOEC_STEP_MOE_GROUPED_OUTER, .n_in = 3, .n_out = 1, .in = {&y, &x, &r.offsets}};
  s.out[0] = SHAPED(MOEC_F32, EXPERTS, m, k);
  want = cpu(&s, 0);
  same("grouped_outer", &dw, &want, 3e-5);
  drop(&want);
  launch g = {.p = {y.data, r.offsets.data, db.data}, .n = {n, EXPERTS, m}, .i = {(int32_t)t}};
  run("group_sum", t, BLOCKS, 256, call_group_sum, &g);
  s = (one_step){.op = MOEC_STEP_MOE_GROUP_SUM, .n_in = 2, .n_out = 1, .in = {&y, &r.offsets}};
  s.out[0] = SHAPED(t, EXPERTS, m);
  want = cpu(&s, 0);
  same("group_sum", &db, &want, 4 * tolerance_of(t));
  drop(&want);
  drop(&x), drop(&w), drop(&b), drop(&y);
  drop(&dw), drop(&db);
  end_routes(&r);
}

START_TEST(experts_multiply) {
  check_grouped(MOEC_F32, 100, 5, 40, 70, true, true);
  check_grouped(MOEC_F32, 70, 3, 33, 20, false, false);
  check_grouped(MOEC_F32, 80, 1, 16, 64, false, true);
  check_grouped(MOEC_BF16, 40, 4, 48, 65, true, true);
  check_grouped(MOEC_F64, 10, 5, 7, 9, false, false);
  check_grouped(MOEC_F32, 0, 5, 8, 12, true, true);
  check_grouped(MOEC_F32, 9, 1, 0, 12, false, true);
  check_grouped(MOEC_BF16, 9, 5, 0, 12, true, false);
  check_grouped(MOEC_F32, 9, 5, 8, 0, true, true);
  check_grouped(MOEC_F32, 0, 5, 0, 0, false, false);
}
END_TEST

/* ---- the loss ------------------------------------------------------------------------------ */

/* The loss of |row| and, in its place, the gradient. */
static double expect_row(double *row, int64_t v, int64_t label, double scale) {
  double top = -INFINITY, sum = 0, nll;
  for (int64_t i = 0; i < v; i++) top = fmax(top, row[i]);
  if (isinf(top)) top = 0;
  for (int64_t i = 0; i < v; i++) sum += exp(row[i] - top);
  nll = log(sum) + top - row[label];
  for (int64_t i = 0; i < v; i++) row[i] = (exp(row[i] - top) / sum - (i == label)) * scale;
  return nll;
}

/* Logits of |spread|; |odd|: some rows hold infinities and a NaN. */
static void check_loss(moec_dtype t, int64_t rows, int64_t v, double spread, bool odd) {
  int64_t whole = 16 / (int64_t)moec_dtype_get(t)->bytes, lead = (v + whole - 1) / whole * whole + whole;
  moec_tensor x = MAKE(t, rows, lead), labels = FILL(MOEC_I64, v, rows), scale = FILL(MOEC_F32, 0, rows),
              nll = MAKE(MOEC_F32, rows);
  double *want = calloc((size_t)(rows * v), sizeof *want);
  memset(x.data, 0xff, moec_tensor_bytes(&x)); /* NaN behind the rows */
  for (int64_t i = 0; i < rows * v; i++) {
    double value = (uniform() - 0.5) * spread;
    if (odd && i / v == 1) value = -INFINITY;
    if (odd && i == 2 * v + v / 2) value = INFINITY;
    if (odd && i == 3 * v + v - 1) value = NAN;
    if (odd && i / v == 4 && i % v > 0) value = -INFINITY;
    moec_store_f64(t, x.data, (size_t)(i / v * lead + i % v), value);
    want[i] = moec_load_f64(t, x.data, (size_t)(i / v * lead + i % v));
  }
  int64_t *label = labels.data;
  label[0] = -100, label[rows - 1] = v - 1;
  launch l = {.p = {x.data, labels.data, scale.data, nll.data}, .n = {rows, v, lead, -100}};
  run("loss", t, BLOCKS, 1024, call_loss, &l);
  ck_assert_int_eq(l.fault, 0);
  for (int64_t r = 0; r < rows; r++) {
    double g = ((float *)scale.data)[r], loss = 0, got = ((float *)nll.data)[r];
    if (label[r] >= 0) loss = expect_row(want + r * v, v, label[r], g);
    else memset(want + r * v, 0, (size_t)v * sizeof *want);
    bool same_loss = (isnan(got) && isnan(loss)) || got == loss || fabs(got - loss) <= 3e-6 * fmax(1, fabs(loss));
    if (!same_loss) ck_abort_msg("loss of row %lld: got %.9g, expected %.9g", (long long)r, got, loss);
    for (int64_t i = 0; i < v; i++) {
      double y = want[r * v + i], z = moec_load_f64(t, x.data, (size_t)(r * lead + i));
      bool close = (isnan(y) && isnan(z)) || fabs(y - z) <= (t == MOEC_F32 ? 1e-6 : tolerance_of(t) / 2) * fabs(g);
      if (!close) ck_abort_msg("row %lld, %lld: got %.9g, expected %.9g", (long long)r, (long long)i, z, y);
    }
  }
  label[rows - 1] = v;
  run("loss", t, 1, 1024, call_loss, &l);
  ck_assert_int_eq(l.fault, 1);
  free(want);
  drop(&x), drop(&labels), drop(&scale), drop(&nll);
}

START_TEST(losses_leave_gradients) {
  check_loss(MOEC_F32, 7, 1000, 8, false);
  check_loss(MOEC_F32, 6, 37, 300, true);
  check_loss(MOEC_F32, 2, 1, 1, false);
  check_loss(MOEC_F32, 3, 25001, 20, false); /* more than a thread keeps */
  check_loss(MOEC_BF16, 6, 50003, 20, true);
  check_loss(MOEC_BF16, 5, 61, 8, false);
  check_loss(MOEC_F16, 4, 9001, 12, false);
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
  drop(&want), drop(&x), drop(&y);
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

static void check_scatter_elements(moec_dtype t, int64_t reduction) {
  moec_tensor x = FILL(t, 50, 9, 5, 6), y = MAKE(t, 9, 5, 6);
  moec_tensor i = FILL(MOEC_I32, 5, 8, 12, 6), u = FILL(t, 50, 8, 12, 6);
  memcpy(y.data, x.data, moec_tensor_bytes(&x));
  launch l = {.p = {y.data, i.data, u.data},
              .n = {1},
              .i = {(int32_t)i.dtype, (int32_t)reduction},
              .shape = {shape_of(&x), shape_of(&i)}};
  run("scatter_elements", t, BLOCKS, 128, call_scatter_elements, &l);
  one_step s = {.op = MOEC_STEP_SCATTER_ELEMENTS, .n_in = 3, .n_out = 1, .n_ints = 2, .in = {&x, &i, &u},
                .ints = {1, reduction}};
  s.out[0] = SHAPED(t, 9, 5, 6);
  moec_tensor want = cpu(&s, 0);
  same("scatter_elements", &y, &want, 4 * tolerance_of(t));
  ck_assert_int_eq(l.fault, 0);
  drop(&want), drop(&x), drop(&y), drop(&i), drop(&u);
}

/* Slices of |size| elements; |most|: of how many rows update them. */
static void check_scatter_nd(moec_dtype t, int64_t reduction, int64_t rows, int64_t size, int64_t most) {
  const int64_t padded = (rows + 1023) / 1024 * 1024;
  moec_tensor x = FILL(t, 50, 30, 3, size), y = MAKE(t, 30, 3, size), i = FILL(MOEC_I64, most, rows, 2);
  moec_tensor u = FILL(t, 50, rows, size), keys = MAKE(MOEC_I64, padded + rows);
  for (int64_t r = 0; r < rows; r++) ((int64_t *)i.data)[2 * r + 1] = r % 3 - 3;
  memcpy(y.data, x.data, moec_tensor_bytes(&x));
  int64_t *sorted = (int64_t *)keys.data + (rows > 1024 ? padded : 0);
  launch l = {.p = {y.data, i.data, u.data, keys.data, sorted},
              .n = {2, rows, 90, size},
              .i = {(int32_t)i.dtype, (int32_t)reduction, 13},
              .shape = {shape_of(&x)}};
  run("order_chunks", MOEC_DTYPE_NONE, 2, 512, call_order_chunks, &l);
  if (rows > 1024) run("order_merge", MOEC_DTYPE_NONE, BLOCKS, 256, call_order_merge, &l);
  run("scatter_nd", t, BLOCKS, 256, call_scatter_nd, &l);
  one_step s = {.op = MOEC_STEP_SCATTER_ND, .n_in = 3, .n_out = 1, .n_ints = 1, .in = {&x, &i, &u},
                .ints = {reduction}};
  s.out[0] = SHAPED(t, 30, 3, size);
  moec_tensor want = cpu(&s, 0);
  same("scatter_nd", &y, &want, moec_dtype_is_float(t) && t != MOEC_F32 ? 4 * tolerance_of(t) : 0);
  ck_assert_int_eq(l.fault, 0);
  drop(&want), drop(&x), drop(&y), drop(&i), drop(&u);
  drop(&keys);
}

START_TEST(updates_scatter) {
  for (int64_t reduction = 0; reduction < 5; reduction++) {
    check_scatter_elements(MOEC_F32, reduction);
    check_scatter_elements(MOEC_I32, reduction);
    check_scatter_nd(MOEC_F32, reduction, 40, 30, 30);
    check_scatter_nd(MOEC_I32, reduction, 40, 64, 9);
  }
  check_scatter_nd(MOEC_F32, 1, 5000, 8, 30);
  check_scatter_nd(MOEC_F32, 1, 2100, 130, 1);
  check_scatter_nd(MOEC_BF16, 1, 40, 40, 5);
  check_scatter_nd(MOEC_BF16, 1, 40, 7, 5);
  check_scatter_nd(MOEC_F32, 1, 40, 0, 5);
  check_scatter_nd(MOEC_F32, 0, 0, 8, 5);
}
END_TEST

/* A row that names no place is a fault and updates none. */
START_TEST(no_place_is_updated_by_a_fault) {
  moec_tensor i = MAKE(MOEC_I64, 3), keys = MAKE(MOEC_I64, 2048), y = MAKE(MOEC_F32, 4, 4), u = MAKE(MOEC_F32, 3, 4);
  const int64_t rows[3] = {1, 4, -1}, far[3] = {INT64_MAX, INT64_MIN, -5};
  memcpy(i.data, rows, sizeof rows), memset(y.data, 0, moec_tensor_bytes(&y));
  for (int c = 0; c < 12; c++) ((float *)u.data)[c] = (float)(c / 4 + 1);
  launch l = {.p = {y.data, i.data, u.data, keys.data, keys.data},
              .n = {1, 3, 4, 4},
              .i = {MOEC_I64, 1, 2},
              .shape = {{2, {4, 4}}}};
  run("order_chunks", MOEC_DTYPE_NONE, 1, 512, call_order_chunks, &l);
  run("scatter_nd", MOEC_F32, BLOCKS, 256, call_scatter_nd, &l);
  ck_assert_int_eq(l.fault, 1);
  const float want[16] = {0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 3, 3, 3, 3};
  ck_assert_mem_eq(y.data, want, sizeof want);
  memcpy(i.data, far, sizeof far);
  l.fault = 0;
  run("order_chunks", MOEC_DTYPE_NONE, 1, 512, call_order_chunks, &l);
  run("scatter_nd", MOEC_F32, BLOCKS, 256, call_scatter_nd, &l);
  ck_assert_int_eq(l.fault, 1);
  ck_assert_mem_eq(y.data, want, sizeof want);
  drop(&i), drop(&keys), drop(&y), drop(&u);
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
      drop(&want), drop(&y);
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
  drop(&want), drop(&x), drop(&w), drop(&y);
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
  open_library();
  for (size_t i = 0; i < sizeof promised / sizeof *promised; i++) {
    char symbol[64];
    snprintf(symbol, sizeof symbol, promised[i].typed ? "moec_%s_bf16" : "moec_%s", promised[i].name);
    if (!machine_has(symbol)) ck_abort_msg("no kernel %s", symbol);
  }
}
END_TEST
START_TEST(the_library_closes) { machine_close(); }
END_TEST

UNIT_MAIN("cuda_library", the_library_opens, plan_sorts_stably, plan_clamps_what_is_no_expert, topk_orders,
          broken_scores_are_ordered, rows_go_and_come_back, experts_multiply, losses_leave_gradients,
          sums_run, updates_scatter,
          no_place_is_updated_by_a_fault, numbers_are_random, windows_convolve, the_library_closes)
