/* gemm: a product of matrices for each position of the batch axes. */
#include <inttypes.h>
#include <string.h>

#include "base/size.h"
#include "runtime/gemm.h"
#include "runtime/ops.h"

/* The integers of the step as values for the sizes bound. */
typedef struct product {
  int64_t m, n, k, a_m, a_k, b_k, b_n, count;
  uint32_t axes; /* of the batch */
  int64_t size[MOEC_PLAN_MAX_RANK], a_step[MOEC_PLAN_MAX_RANK], b_step[MOEC_PLAN_MAX_RANK];
} product;

static product read_product(const moec_rt_call *c) {
  const int64_t *e = c->ints + 1, *v = c->values;
  product p = {.m = v[e[0]],
               .n = v[e[1]],
               .k = v[e[2]],
               .a_m = v[e[3]],
               .a_k = v[e[4]],
               .b_k = v[e[5]],
               .b_n = v[e[6]],
               .count = 1,
               .axes = (uint32_t)c->ints[0]};
  for (uint32_t i = 0; i < p.axes; i++) {
    p.size[i] = v[e[7 + 3 * i]];
    p.a_step[i] = v[e[8 + 3 * i]];
    p.b_step[i] = v[e[9 + 3 * i]];
    p.count *= p.size[i];
  }
  return p;
}

/* Adds (size - 1) * step to *last, the highest offset read; false on overflow or a negative. */
static bool extend(int64_t size, int64_t step, int64_t *last) {
  int64_t r;
  return size >= 0 && step >= 0 && moec_mul_i64(size > 0 ? size - 1 : 0, step, &r) &&
         moec_add_i64(*last, r, last);
}

static bool inside(const product *p, const moec_tensor *a, const moec_tensor *b,
                   const moec_tensor *y) {
  int64_t last_a = 0, last_b = 0, elements = 1;
  bool ok = extend(p->m, p->a_m, &last_a) && extend(p->k, p->a_k, &last_a) &&
            extend(p->k, p->b_k, &last_b) && extend(p->n, p->b_n, &last_b);
  for (uint32_t i = 0; ok && i < p->axes; i++) {
    ok = extend(p->size[i], p->a_step[i], &last_a) && extend(p->size[i], p->b_step[i], &last_b) &&
         moec_mul_i64(elements, p->size[i], &elements);
  }
  ok = ok && moec_mul_i64(elements, p->m, &elements) && moec_mul_i64(elements, p->n, &elements);
  if (!ok || elements != moec_tensor_numel(y)) return false;
  if (elements == 0 || p->k == 0) return true; /* neither operand is read */
  return last_a < moec_tensor_numel(a) && last_b < moec_tensor_numel(b);
}

static bool types_fit(moec_dtype a, moec_dtype b, moec_dtype y) {
  if (a != b) return false;
  return y == a || (y == MOEC_F32 && (a == MOEC_F16 || a == MOEC_BF16));
}

moec_status *moec_rt_check_GEMM(const moec_rt_call *c, moec_rt_need *need) {
  const moec_tensor *a = moec_rt_in(c, 0), *b = moec_rt_in(c, 1), *add = moec_rt_in(c, 2);
  const moec_tensor *y = moec_rt_out(c, 0);
  product p = read_product(c);
  if (!types_fit(a->dtype, b->dtype, y->dtype)) {
    return moec_rt_mismatch(c, "expected operands of one type, got %s, %s -> %s",
                            moec_dtype_get(a->dtype)->text, moec_dtype_get(b->dtype)->text,
                            moec_dtype_get(y->dtype)->text);
  }
  moec_rt_matrix ma = {NULL, a->dtype, p.a_m, p.a_k}, mb = {NULL, b->dtype, p.b_k, p.b_n};
  if (!inside(&p, a, b, y) || !moec_rt_matrix_fits(&ma, p.m, p.k) ||
      !moec_rt_matrix_fits(&mb, p.k, p.n)) {
    return moec_rt_mismatch(c,
                            "sizes %" PRId64 "x%" PRId64 "x%" PRId64 " with strides %" PRId64
                            ", %" PRId64 " and %" PRId64 ", %" PRId64 " do not fit the operands",
                            p.m, p.n, p.k, p.a_m, p.a_k, p.b_k, p.b_n);
  }
  if (add) MOEC_TRY(moec_rt_expect(c, "the third operand", add, y->dtype, y->rank, y->dims));
  need->thread = moec_rt_gemm_scratch(a->dtype, b->dtype, y->dtype);
  return NULL;
}

typedef struct work {
  const moec_rt_call *c;
  product p;
  moec_rt_gemm whole; /* of batch position 0 */
  moec_rt_tiles tiles;
  const uint8_t *add; /* NULL: nothing to add, or already in y */
} work;

static moec_rt_gemm at_batch(const work *w, int64_t index) {
  moec_rt_gemm g = w->whole;
  int64_t a = 0, b = 0, left = index;
  for (uint32_t i = w->p.axes; i-- > 0;) {
    int64_t k = left % w->p.size[i];
    left /= w->p.size[i];
    a += k * w->p.a_step[i];
    b += k * w->p.b_step[i];
  }
  g.a.data = (const uint8_t *)g.a.data + a * (int64_t)moec_dtype_get(g.a.dtype)->bytes;
  g.b.data = (const uint8_t *)g.b.data + b * (int64_t)moec_dtype_get(g.b.dtype)->bytes;
  g.y = (uint8_t *)g.y + index * g.m * g.n * (int64_t)moec_dtype_get(g.y_dtype)->bytes;
  return g;
}

static void copy_addend(const work *w, const moec_rt_gemm *g) {
  int64_t bytes = (int64_t)moec_dtype_get(g->y_dtype)->bytes;
  const uint8_t *from = w->add + ((uint8_t *)g->y - (uint8_t *)w->whole.y);
  for (int64_t i = 0; i < g->m; i++) {
    memcpy((uint8_t *)g->y + i * g->y_rows * bytes, from + i * g->y_rows * bytes,
           (size_t)(g->n * bytes));
  }
}

static void run_tiles(void *ctx, int64_t begin, int64_t end, int thread) {
  const work *w = ctx;
  const moec_rt_tiles *t = &w->tiles;
  for (int64_t i = begin; i < end; i++) {
    int64_t tile = i % (t->rows * t->cols);
    int64_t row = tile / t->cols * t->m, col = tile % t->cols * t->n;
    moec_rt_gemm g = at_batch(w, i / (t->rows * t->cols));
    g = moec_rt_gemm_tile(&g, row, w->p.m - row < t->m ? w->p.m - row : t->m, col,
                          w->p.n - col < t->n ? w->p.n - col : t->n);
    if (w->add) copy_addend(w, &g);
    moec_rt_gemm_run(&g, moec_rt_scratch(w->c, thread));
  }
}

moec_status *moec_rt_run_GEMM(const moec_rt_call *c) {
  const moec_tensor *a = moec_rt_in(c, 0), *b = moec_rt_in(c, 1), *add = moec_rt_in(c, 2);
  const moec_tensor *y = moec_rt_out(c, 0);
  work w = {.c = c, .p = read_product(c)};
  const product *p = &w.p;
  if (p->count == 0 || p->m == 0 || p->n == 0) return NULL;
  /* Where nothing is summed up, operands are nowhere and not read: any address will do. */
  void *a_data = p->k ? a->data : y->data, *b_data = p->k ? b->data : y->data;
  w.whole = (moec_rt_gemm){.m = p->m,
                           .n = p->n,
                           .k = p->k,
                           .a = {a_data, a->dtype, p->a_m, p->a_k},
                           .b = {b_data, b->dtype, p->b_k, p->b_n},
                           .y = y->data,
                           .y_dtype = y->dtype,
                           .y_rows = p->n,
                           .accumulate = add != NULL};
  w.tiles = moec_rt_gemm_tiles(p->m, p->n, p->k);
  w.add = add && add->data != y->data ? add->data : NULL;
  double cost = (double)w.tiles.m * (double)w.tiles.n * (double)p->k / 8;
  moec_rt_parallel_for(c->pool, p->count * w.tiles.rows * w.tiles.cols,
                       moec_rt_grain(cost > 1e9 ? 1000000000 : (int64_t)cost), run_tiles, &w);
  return NULL;
}
