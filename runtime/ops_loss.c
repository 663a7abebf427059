/* linear_cross_entropy: the loss of a linear layer and its gradients. A chunk of tokens at a time has logits: their
 * losses and, in their place, their gradients are made row by row, then multiplied with w and x. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/convert.h"
#include "runtime/loss.h"

moec_rt_loss moec_rt_loss_of(const moec_rt_call *c) {
  moec_rt_loss l = {.x = moec_rt_in(c, 0),
                    .w = moec_rt_in(c, 1),
                    .labels = moec_rt_in(c, 2),
                    .scale = moec_rt_in(c, 3),
                    .nll = moec_rt_out(c, 0),
                    .dx = moec_rt_out(c, 1),
                    .dw = moec_rt_out(c, 2),
                    .room = moec_rt_out(c, 3),
                    .transposed = c->ints[0] != 0,
                    .ignore = c->ints[1]};
  l.tokens = l.x->dims[0], l.hidden = l.x->dims[1];
  l.vocabulary = l.w->dims[l.transposed ? 0 : 1];
  l.chunk = l.room->dims[0], l.lead = l.room->dims[1];
  return l;
}

/* ---- what it takes ----------------------------------------------------------------------- */

static moec_status *check_room(const moec_rt_call *c, const moec_rt_loss *l) {
  int64_t bytes = (int64_t)moec_dtype_get(l->x->dtype)->bytes;
  bool fits = l->room->dtype == l->x->dtype && l->lead >= l->vocabulary && l->lead <= INT32_MAX &&
              l->lead * bytes % 16 == 0 && (l->chunk > 0 || l->tokens == 0);
  if (fits) return NULL;
  char got[MOEC_RT_SHAPE_TEXT];
  return moec_rt_mismatch(c, "expected room for logits %s[tokens, %" PRId64 " or more] in rows of 16 bytes, got %s",
                          moec_dtype_get(l->x->dtype)->text, l->vocabulary,
                          moec_rt_shape_text(l->room->dtype, l->room->rank, l->room->dims, got, sizeof got));
}

moec_status *moec_rt_check_LINEAR_CROSS_ENTROPY(const moec_rt_call *c, moec_rt_need *need) {
  const moec_tensor *x = moec_rt_in(c, 0), *w = moec_rt_in(c, 1), *room = moec_rt_out(c, 3);
  char a[MOEC_RT_SHAPE_TEXT], b[MOEC_RT_SHAPE_TEXT];
  bool floats = x->dtype == MOEC_F32 || x->dtype == MOEC_BF16 || x->dtype == MOEC_F16;
  if (x->rank != 2 || w->rank != 2 || room->rank != 2 || !floats || w->dtype != x->dtype)
    return moec_rt_mismatch(c, "expected x [tokens, h] and w [v, h] of one of f32, bf16 and f16, got %s and %s",
                            moec_rt_shape_text(x->dtype, x->rank, x->dims, a, sizeof a),
                            moec_rt_shape_text(w->dtype, w->rank, w->dims, b, sizeof b));
  moec_rt_loss l = moec_rt_loss_of(c);
  const int64_t with_h[] = {l.transposed ? l.vocabulary : l.hidden, l.transposed ? l.hidden : l.vocabulary};
  if (l.tokens > INT32_MAX || l.hidden > INT32_MAX || l.vocabulary > INT32_MAX)
    return moec_rt_mismatch(c, "expected sizes below 2^31, got %" PRId64 " tokens, h %" PRId64 " and v %" PRId64,
                            l.tokens, l.hidden, l.vocabulary);
  MOEC_TRY(moec_rt_expect(c, "w", w, x->dtype, 2, with_h));
  MOEC_TRY(moec_rt_expect(c, "labels", l.labels, MOEC_I64, 1, x->dims));
  MOEC_TRY(moec_rt_expect(c, "scale", l.scale, MOEC_F32, 1, x->dims));
  MOEC_TRY(check_room(c, &l));
  if (l.nll) MOEC_TRY(moec_rt_expect(c, "losses", l.nll, MOEC_F32, 1, x->dims));
  if (l.dx) MOEC_TRY(moec_rt_expect(c, "the gradient of x", l.dx, x->dtype, 2, x->dims));
  if (l.dw) MOEC_TRY(moec_rt_expect(c, "the gradient of w", l.dw, x->dtype, 2, w->dims));
  need->thread = moec_rt_gemm_scratch(x->dtype, x->dtype, x->dtype);
  return NULL;
}

/* ---- products ---------------------------------------------------------------------------- */

bool moec_rt_loss_gemm(const moec_rt_loss *l, moec_rt_loss_product which, int64_t first, int64_t rows,
                       moec_rt_gemm *out) {
  moec_dtype t = l->x->dtype;
  int64_t at = first * l->hidden * (int64_t)moec_dtype_get(t)->bytes, h = l->hidden, v = l->vocabulary;
  const moec_rt_matrix x = {(const uint8_t *)l->x->data + at, t, h, 1}, back = {x.data, t, 1, h};
  const moec_rt_matrix logits = {l->room->data, t, l->lead, 1}, columns = {l->room->data, t, 1, l->lead};
  const moec_rt_matrix by_token = {l->w->data, t, l->transposed ? 1 : v, l->transposed ? h : 1};
  const moec_rt_matrix by_word = {l->w->data, t, l->transposed ? h : 1, l->transposed ? 1 : v};
  *out = (moec_rt_gemm){.y_dtype = t};
  switch (which) {
    case MOEC_RT_LOGITS:
      out->m = rows, out->n = v, out->k = h, out->a = x, out->b = by_token, out->y_rows = l->lead;
      out->y = l->room->data;
      return true;
    case MOEC_RT_LOSS_DX:
      if (!l->dx) return false;
      out->m = rows, out->n = h, out->k = v, out->a = logits, out->b = by_word, out->y_rows = h;
      out->y = (uint8_t *)l->dx->data + at;
      return true;
    default:
      if (!l->dw) return false;
      out->k = rows, out->y = l->dw->data, out->accumulate = first > 0;
      if (l->transposed) out->m = v, out->n = h, out->a = columns, out->b = x, out->y_rows = h;
      else out->m = h, out->n = v, out->a = back, out->b = logits, out->y_rows = v;
      return true;
  }
}

typedef struct tiled {
  const moec_rt_call *c;
  moec_rt_gemm whole;
  moec_rt_tiles tiles;
} tiled;

static void run_tiles(void *ctx, int64_t begin, int64_t end, int thread) {
  const tiled *w = ctx;
  const moec_rt_tiles *t = &w->tiles;
  for (int64_t i = begin; i < end; i++) {
    int64_t row = i / t->cols * t->m, col = i % t->cols * t->n, m = w->whole.m - row, n = w->whole.n - col;
    moec_rt_gemm g = moec_rt_gemm_tile(&w->whole, row, m < t->m ? m : t->m, col, n < t->n ? n : t->n);
    moec_rt_gemm_run(&g, moec_rt_scratch(w->c, thread));
  }
}

static void multiply(const moec_rt_call *c, const moec_rt_loss *l, moec_rt_loss_product which, int64_t first,
                     int64_t rows) {
  tiled w = {.c = c};
  if (!moec_rt_loss_gemm(l, which, first, rows, &w.whole) || !w.whole.m || !w.whole.n) return;
  w.tiles = moec_rt_gemm_tiles(w.whole.m, w.whole.n, w.whole.k);
  double cost = (double)w.tiles.m * (double)w.tiles.n * (double)w.whole.k / 8;
  moec_rt_parallel_for(c->pool, w.tiles.rows * w.tiles.cols, moec_rt_grain(cost > 1e9 ? 1000000000 : (int64_t)cost),
                       run_tiles, &w);
}

/* ---- rows -------------------------------------------------------------------------------- */

static moec_status *check_labels(const moec_rt_call *c, const moec_rt_loss *l) {
  const int64_t *label = l->labels->data;
  for (int64_t t = 0; t < l->tokens; t++)
    if (label[t] != l->ignore && (label[t] < 0 || label[t] >= l->vocabulary))
      return moec_rt_op_error(c, MOEC_INVALID_ARGUMENT,
                              "an index is out of range: expected labels below %" PRId64 ", token %" PRId64
                              " has %" PRId64,
                              l->vocabulary, t, label[t]);
  return NULL;
}

typedef struct chunk {
  const moec_rt_loss *l;
  int64_t first;
} chunk;

/* The largest of x, as a finite number. */
MOEC_RT_VECTOR static float largest(const float *x, int64_t n) {
  float top = -FLT_MAX;
  for (int64_t i = 0; i < n; i++) top = x[i] > top ? x[i] : top;
  return top > FLT_MAX ? FLT_MAX : top;
}

MOEC_RT_VECTOR static void scale_by(float *x, int64_t n, float f) {
  for (int64_t i = 0; i < n; i++) x[i] *= f;
}

/* The loss of a row of logits, which become its gradient. */
static float run_row(float *x, int64_t n, int64_t label, float scale) {
  float top = largest(x, n), own = x[label];
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += (double)(x[i] = expf(x[i] - top));
  scale_by(x, n, (float)((double)scale / sum));
  x[label] -= scale;
  return (float)log(sum) - (own - top); /* the small part last: it would be lost to large logits */
}

static void run_rows(void *ctx, int64_t begin, int64_t end, int thread) {
  const chunk *k = ctx;
  const moec_rt_loss *l = k->l;
  (void)thread;
  for (int64_t r = begin; r < end; r++) {
    int64_t t = k->first + r, label = ((const int64_t *)l->labels->data)[t];
    float *row = (float *)l->room->data + r * l->lead, nll = 0;
    if (label == l->ignore) memset(row, 0, (size_t)l->vocabulary * sizeof *row);
    else nll = run_row(row, l->vocabulary, label, ((const float *)l->scale->data)[t]);
    if (l->nll) ((float *)l->nll->data)[t] = nll;
  }
}

static void run_chunk(const moec_rt_call *c, const moec_rt_loss *l, int64_t first, int64_t rows) {
  enum { COST = 16 }; /* of an element */
  chunk k = {l, first};
  multiply(c, l, MOEC_RT_LOGITS, first, rows);
  moec_rt_parallel_for(c->pool, rows, moec_rt_grain(l->vocabulary * COST), run_rows, &k);
  multiply(c, l, MOEC_RT_LOSS_DX, first, rows);
  multiply(c, l, MOEC_RT_LOSS_DW, first, rows);
}

moec_status *moec_rt_run_LINEAR_CROSS_ENTROPY(const moec_rt_call *c) {
  moec_rt_loss l = moec_rt_loss_of(c);
  if (l.x->dtype != MOEC_F32)
    return moec_rt_op_error(c, MOEC_UNSUPPORTED, "the cpu computes it in f32, got %s",
                            moec_dtype_get(l.x->dtype)->text);
  MOEC_TRY(check_labels(c, &l));
  if (!l.tokens && l.dw && moec_tensor_bytes(l.dw)) memset(l.dw->data, 0, moec_tensor_bytes(l.dw));
  for (int64_t t = 0; t < l.tokens; t += l.chunk)
    run_chunk(c, &l, t, l.tokens - t < l.chunk ? l.tokens - t : l.chunk);
  return NULL;
}
