/* moe.grouped_dot: the rows of each expert times its matrix. An empty expert costs nothing. */
#include <inttypes.h>

#include "base/size.h"
#include "runtime/convert.h"
#include "runtime/gemm.h"
#include "runtime/moe_groups.h"

typedef struct grouped {
  const moec_rt_call *c;
  const moec_tensor *rows, *w, *bias, *y;
  moec_rt_groups groups;
  int64_t k, m; /* a row has k elements, a result m */
  bool transposed;
} grouped;

static grouped read_grouped(const moec_rt_call *c) {
  grouped g = {.c = c,
               .rows = moec_rt_in(c, 0),
               .w = moec_rt_in(c, 1),
               .bias = moec_rt_in(c, 3),
               .y = moec_rt_out(c, 0),
               .transposed = c->ints[0] != 0};
  g.groups = (moec_rt_groups){moec_rt_in(c, 2)->data, g.w->dims[0], (int64_t *)(void *)c->shared};
  g.m = g.w->dims[g.transposed ? 1 : 2];
  g.k = g.w->dims[g.transposed ? 2 : 1];
  return g;
}

/* Of a product of n rows and m columns, which need not be a result then. */
static moec_status *check_activation(const moec_rt_call *c, int64_t n, int64_t m) {
  const moec_tensor *rows = moec_rt_in(c, 0), *y = moec_rt_out(c, 0), *a = moec_rt_out(c, 1);
  int64_t parts = c->ints[1] == MOEC_ACTIVATION_EACH ? 1 : 2;
  const int64_t dims[] = {n, m / parts};
  if (m % parts) return moec_rt_mismatch(c, "expected an even number of columns, got %" PRId64, m);
  if (y && y->dtype != rows->dtype) return moec_rt_mismatch(c, "expected rows and results of one type");
  if (c->values[c->plan->kernels[c->step->kernel].scratch] != 0)
    return moec_rt_mismatch(c, "expected an activation without scratch");
  return moec_rt_expect(c, "an activation", a, rows->dtype, 2, dims);
}

moec_status *moec_rt_check_MOE_GROUPED_DOT(const moec_rt_call *c, moec_rt_need *need) {
  const moec_tensor *rows = moec_rt_in(c, 0), *w = moec_rt_in(c, 1), *y = moec_rt_out(c, 0);
  char a[MOEC_RT_SHAPE_TEXT], b[MOEC_RT_SHAPE_TEXT];
  if (rows->rank != 2 || w->rank != 3 || !moec_dtype_is_float(w->dtype) ||
      w->dtype != rows->dtype) {
    return moec_rt_mismatch(
        c,
        "expected rows [n, k] and weights [experts, k, m] of one float type, got "
        "%s and %s",
        moec_rt_shape_text(rows->dtype, rows->rank, rows->dims, a, sizeof a),
        moec_rt_shape_text(w->dtype, w->rank, w->dims, b, sizeof b));
  }
  grouped g = read_grouped(c);
  const int64_t in[] = {rows->dims[0], g.k}, out[] = {rows->dims[0], g.m},
                bias[] = {g.groups.experts, g.m};
  const int64_t ends = g.groups.experts + 1;
  if (g.k > INT32_MAX || g.m > INT32_MAX || rows->dims[0] > INT32_MAX) {
    return moec_rt_mismatch(c, "expected sizes below 2^31");
  }
  if (!g.groups.experts && in[0])
    return moec_rt_mismatch(c, "expected an expert for %" PRId64 " rows, got none", in[0]);
  MOEC_TRY(moec_rt_expect(c, "rows", rows, rows->dtype, 2, in));
  MOEC_TRY(moec_rt_expect(c, "offsets", moec_rt_in(c, 2), MOEC_I32, 1, &ends));
  if (g.bias) MOEC_TRY(moec_rt_expect(c, "a bias", g.bias, g.bias->dtype, 2, bias));
  if (g.bias && !moec_dtype_is_float(g.bias->dtype))
    return moec_rt_mismatch(c, "expected a float bias");
  if (c->step->n_out > 1) MOEC_TRY(check_activation(c, in[0], g.m));
  if (!y && c->step->n_out == 1) return moec_rt_mismatch(c, "expected a result, got none");
  if (y && !moec_dtype_is_float(y->dtype)) return moec_rt_mismatch(c, "expected a float result");
  need->thread = moec_rt_gemm_scratch(rows->dtype, w->dtype, y ? y->dtype : rows->dtype);
  need->shared = (uint64_t)ends * sizeof(int64_t);
  return !y ? NULL : moec_rt_expect(c, "a result", y, y->dtype, 2, out);
}

static moec_rt_tiles tiles_of(const grouped *g, int64_t e) {
  return moec_rt_gemm_tiles(moec_rt_groups_size(&g->groups, e), g->m, g->k);
}

/* The product of expert |e| as a whole. */
static moec_rt_gemm product_of(const grouped *g, int64_t e) {
  int64_t first = g->groups.offsets[e], size = (int64_t)moec_dtype_get(g->w->dtype)->bytes;
  moec_rt_gemm p = {.m = moec_rt_groups_size(&g->groups, e),
                    .n = g->m,
                    .k = g->k,
                    .y_dtype = g->y->dtype,
                    .y_rows = g->m,
                    .accumulate = g->bias != NULL};
  p.a = (moec_rt_matrix){(const uint8_t *)g->rows->data + first * g->k * size, g->rows->dtype, g->k,
                         1};
  p.b = (moec_rt_matrix){(const uint8_t *)g->w->data + e * g->k * g->m * size, g->w->dtype,
                         g->transposed ? 1 : g->m, g->transposed ? g->k : 1};
  p.y = (uint8_t *)g->y->data + first * g->m * (int64_t)moec_dtype_get(g->y->dtype)->bytes;
  return p;
}

/* Each row of |p| starts as the bias of its columns. */
static void start_with_bias(const grouped *g, int64_t e, int64_t col, const moec_rt_gemm *p) {
  const uint8_t *bias = (const uint8_t *)g->bias->data +
                        (e * g->m + col) * (int64_t)moec_dtype_get(g->bias->dtype)->bytes;
  int64_t step = p->y_rows * (int64_t)moec_dtype_get(p->y_dtype)->bytes;
  for (int64_t r = 0; r < p->m; r++) {
    moec_rt_convert(p->y_dtype, (uint8_t *)p->y + r * step, 1, g->bias->dtype, bias, 1, p->n);
  }
}

static void run_tiles(void *ctx, int64_t begin, int64_t end, int thread) {
  const grouped *g = ctx;
  for (int64_t i = begin; i < end; i++) {
    int64_t e = moec_rt_groups_find(&g->groups, i), tile = i - g->groups.first_tile[e];
    moec_rt_tiles t = tiles_of(g, e);
    moec_rt_gemm p = product_of(g, e);
    int64_t row = tile / t.cols * t.m, col = tile % t.cols * t.n;
    p = moec_rt_gemm_tile(&p, row, p.m - row < t.m ? p.m - row : t.m, col,
                          p.n - col < t.n ? p.n - col : t.n);
    if (g->bias) start_with_bias(g, e, col, &p);
    moec_rt_gemm_run(&p, moec_rt_scratch(g->c, thread));
  }
}

moec_status *moec_rt_run_MOE_GROUPED_DOT(const moec_rt_call *c) {
  grouped g = read_grouped(c);
  int64_t total = 0;
  if (c->step->n_out > 1)
    return moec_rt_op_error(c, MOEC_UNSUPPORTED, "a product with its activation: expected a cuda target");
  MOEC_TRY(moec_rt_groups_check(c, &g.groups, g.rows->dims[0]));
  for (int64_t e = 0; e < g.groups.experts; e++) {
    g.groups.first_tile[e] = total;
    if (moec_rt_groups_size(&g.groups, e) == 0) continue;
    moec_rt_tiles t = tiles_of(&g, e);
    total += t.rows * t.cols;
  }
  if (g.m == 0 || total == 0) return NULL;
  double cost = (double)g.rows->dims[0] * (double)g.m * (double)g.k / (double)total / 8;
  moec_rt_parallel_for(c->pool, total, moec_rt_grain(cost > 1e9 ? 1000000000 : (int64_t)cost),
                       run_tiles, &g);
  return NULL;
}
