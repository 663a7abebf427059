/* moe.grouped_dot: the rows of each expert, which lie together, times its matrix. The tiles of
 * all experts are one list that threads take from, so that a crowded expert is worked on by all of
 * them and an empty one costs nothing. */
#include <inttypes.h>

#include "base/size.h"
#include "runtime/convert.h"
#include "runtime/gemm.h"
#include "runtime/ops.h"

typedef struct grouped {
  const moec_rt_call *c;
  const moec_tensor *rows, *w, *bias, *y;
  const int32_t *offsets;
  int64_t *first_tile;   /* [experts + 1], in shared scratch */
  int64_t experts, k, m; /* a row has k elements, a result m */
  bool transposed;
} grouped;

static grouped read_grouped(const moec_rt_call *c) {
  grouped g = {.c = c,
               .rows = moec_rt_in(c, 0),
               .w = moec_rt_in(c, 1),
               .bias = moec_rt_in(c, 3),
               .y = moec_rt_out(c, 0),
               .offsets = moec_rt_in(c, 2)->data,
               .first_tile = (int64_t *)(void *)c->shared,
               .transposed = c->ints[0] != 0};
  g.experts = g.w->dims[0];
  g.m = g.w->dims[g.transposed ? 1 : 2];
  g.k = g.w->dims[g.transposed ? 2 : 1];
  return g;
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
                bias[] = {g.experts, g.m};
  const int64_t ends = g.experts + 1;
  if (g.k > INT32_MAX || g.m > INT32_MAX || rows->dims[0] > INT32_MAX) {
    return moec_rt_mismatch(c, "expected sizes below 2^31");
  }
  MOEC_TRY(moec_rt_expect(c, "rows", rows, rows->dtype, 2, in));
  MOEC_TRY(moec_rt_expect(c, "offsets", moec_rt_in(c, 2), MOEC_I32, 1, &ends));
  if (g.bias) MOEC_TRY(moec_rt_expect(c, "a bias", g.bias, g.bias->dtype, 2, bias));
  if (g.bias && !moec_dtype_is_float(g.bias->dtype))
    return moec_rt_mismatch(c, "expected a float bias");
  if (!moec_dtype_is_float(y->dtype)) return moec_rt_mismatch(c, "expected a float result");
  need->thread = moec_rt_gemm_scratch(rows->dtype, w->dtype, y->dtype);
  need->shared = (uint64_t)ends * sizeof(int64_t);
  return moec_rt_expect(c, "a result", y, y->dtype, 2, out);
}

static moec_rt_tiles tiles_of(const grouped *g, int64_t e) {
  return moec_rt_gemm_tiles(g->offsets[e + 1] - g->offsets[e], g->m, g->k);
}

/* The product of expert |e| as a whole. */
static moec_rt_gemm product_of(const grouped *g, int64_t e) {
  int64_t first = g->offsets[e], size = (int64_t)moec_dtype_get(g->w->dtype)->bytes;
  moec_rt_gemm p = {.m = g->offsets[e + 1] - first,
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

/* The expert whose tiles include |tile|: the last one that starts at or before it. */
static int64_t expert_of(const grouped *g, int64_t tile) {
  int64_t low = 0, high = g->experts - 1;
  while (low < high) {
    int64_t mid = (low + high + 1) / 2;
    if (g->first_tile[mid] <= tile)
      low = mid;
    else
      high = mid - 1;
  }
  return low;
}

static void run_tiles(void *ctx, int64_t begin, int64_t end, int thread) {
  const grouped *g = ctx;
  for (int64_t i = begin; i < end; i++) {
    int64_t e = expert_of(g, i), tile = i - g->first_tile[e];
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
  bool rising = g.offsets[0] == 0 && g.offsets[g.experts] == g.rows->dims[0];
  for (int64_t e = 0; e < g.experts && rising; e++) {
    g.first_tile[e] = total;
    rising = g.offsets[e + 1] >= g.offsets[e];
    if (!rising || g.offsets[e + 1] == g.offsets[e]) continue;
    moec_rt_tiles t = tiles_of(&g, e);
    total += t.rows * t.cols;
  }
  if (!rising) {
    return moec_rt_op_error(c, MOEC_INVALID_ARGUMENT,
                            "expected offsets that rise from 0 to %" PRId64, g.rows->dims[0]);
  }
  if (g.m == 0 || total == 0) return NULL;
  double cost = (double)g.rows->dims[0] * (double)g.m * (double)g.k / (double)total / 8;
  moec_rt_parallel_for(c->pool, total, moec_rt_grain(cost > 1e9 ? 1000000000 : (int64_t)cost),
                       run_tiles, &g);
  return NULL;
}
