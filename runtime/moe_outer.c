/* moe.grouped_outer: the weight gradient of each expert, dy^T x over its rows, as one matrix product
 * an expert. All experts have results of one size; one without rows gets zeros. */
#include "base/size.h"
#include "runtime/gemm.h"
#include "runtime/moe_groups.h"

typedef struct outer {
  const moec_rt_call *c;
  const moec_tensor *dy, *x, *y;
  moec_rt_groups groups;
  int64_t m, k;
} outer;

static outer read_outer(const moec_rt_call *c) {
  outer o = {.c = c, .dy = moec_rt_in(c, 0), .x = moec_rt_in(c, 1), .y = moec_rt_out(c, 0)};
  o.m = o.dy->dims[1];
  o.k = o.x->dims[1];
  o.groups = (moec_rt_groups){moec_rt_in(c, 2)->data, moec_rt_in(c, 2)->dims[0] - 1,
                              (int64_t *)(void *)c->shared};
  return o;
}

moec_status *moec_rt_check_MOE_GROUPED_OUTER(const moec_rt_call *c, moec_rt_need *need) {
  const moec_tensor *dy = moec_rt_in(c, 0), *x = moec_rt_in(c, 1), *y = moec_rt_out(c, 0);
  const moec_tensor *offsets = moec_rt_in(c, 2);
  char a[MOEC_RT_SHAPE_TEXT], b[MOEC_RT_SHAPE_TEXT];
  if (dy->rank != 2 || x->rank != 2 || dy->dims[0] != x->dims[0] || dy->dtype != x->dtype ||
      !moec_dtype_is_float(x->dtype)) {
    return moec_rt_mismatch(c, "expected rows [n, m] and [n, k] of one float type, got %s and %s",
                            moec_rt_shape_text(dy->dtype, dy->rank, dy->dims, a, sizeof a),
                            moec_rt_shape_text(x->dtype, x->rank, x->dims, b, sizeof b));
  }
  if (offsets->dtype != MOEC_I32 || offsets->rank != 1 || offsets->dims[0] < 1)
    return moec_rt_mismatch(c, "expected offsets i32 [experts + 1]");
  outer o = read_outer(c);
  if (o.k > INT32_MAX || o.m > INT32_MAX || x->dims[0] > INT32_MAX)
    return moec_rt_mismatch(c, "expected sizes below 2^31");
  if (!moec_dtype_is_float(y->dtype)) return moec_rt_mismatch(c, "expected a float result");
  const int64_t out[] = {o.groups.experts, o.m, o.k};
  need->thread = moec_rt_gemm_scratch(dy->dtype, x->dtype, y->dtype);
  need->shared = moec_rt_array((uint64_t)o.groups.experts, sizeof(int64_t));
  return moec_rt_expect(c, "a result", y, y->dtype, 3, out);
}

static moec_rt_tiles tiles_of(const outer *o, int64_t e) {
  return moec_rt_gemm_tiles(o->m, o->k, moec_rt_groups_size(&o->groups, e));
}

/* The result of expert |e| as a whole: the rows are what is summed over. */
static moec_rt_gemm product_of(const outer *o, int64_t e) {
  int64_t first = o->groups.offsets[e], size = (int64_t)moec_dtype_get(o->x->dtype)->bytes;
  moec_rt_gemm p = {.m = o->m,
                    .n = o->k,
                    .k = moec_rt_groups_size(&o->groups, e),
                    .y_dtype = o->y->dtype,
                    .y_rows = o->k};
  p.a = (moec_rt_matrix){(const uint8_t *)o->dy->data + first * o->m * size, o->dy->dtype, 1, o->m};
  p.b = (moec_rt_matrix){(const uint8_t *)o->x->data + first * o->k * size, o->x->dtype, o->k, 1};
  p.y = (uint8_t *)o->y->data + e * o->m * o->k * (int64_t)moec_dtype_get(o->y->dtype)->bytes;
  return p;
}

static void run_tiles(void *ctx, int64_t begin, int64_t end, int thread) {
  const outer *o = ctx;
  for (int64_t i = begin; i < end; i++) {
    int64_t e = moec_rt_groups_find(&o->groups, i), tile = i - o->groups.first_tile[e];
    moec_rt_tiles t = tiles_of(o, e);
    moec_rt_gemm p = product_of(o, e);
    int64_t row = tile / t.cols * t.m, col = tile % t.cols * t.n;
    p = moec_rt_gemm_tile(&p, row, p.m - row < t.m ? p.m - row : t.m, col,
                          p.n - col < t.n ? p.n - col : t.n);
    moec_rt_gemm_run(&p, moec_rt_scratch(o->c, thread));
  }
}

moec_status *moec_rt_run_MOE_GROUPED_OUTER(const moec_rt_call *c) {
  outer o = read_outer(c);
  int64_t total = 0;
  MOEC_TRY(moec_rt_groups_check(c, &o.groups, o.x->dims[0]));
  if (o.m == 0 || o.k == 0 || o.groups.experts == 0) return NULL;
  for (int64_t e = 0; e < o.groups.experts; e++) {
    o.groups.first_tile[e] = total;
    moec_rt_tiles t = tiles_of(&o, e);
    total += t.rows * t.cols;
  }
  /* Writing the result costs too, also where there are no rows. */
  double work = (double)(o.x->dims[0] + o.groups.experts) * (double)o.m * (double)o.k;
  double cost = work / (double)total / 8;
  moec_rt_parallel_for(c->pool, total, moec_rt_grain(cost > 1e9 ? 1000000000 : (int64_t)cost),
                       run_tiles, &o);
  return NULL;
}
