/* Attention as a graph of cuDNN's operations, in the form its fused engines know. Axes are [batch, head, row, column];
 * scores are [b, h, s, t] in f32, never stored. Ids of tensors in memory: the operand's number and 1; then numbers by
 * value; then sums in the workspace: a number a row (delta of a gradient; the log-sum-exp where it isn't wanted), and
 * dq in f32. */
#include <math.h>

#include "runtime/cudnn.h"

enum { ID_SCALE = MOEC_CUDNN_OPERANDS + 1, ID_HIDDEN, ID_ONE, ID_SUMS, ID_DQ_SUM, IDS };
enum { N_SCALE, N_HIDDEN, N_ONE };

typedef moec_cudnn_descriptor tensor;

typedef struct graph {
  moec_cudnn_graph *g;
  const moec_cudnn_attention *a;
  moec_cudnn_type type;
  tensor scale;
} graph;

/* ---- tensors ----------------------------------------------------------------------------- */

static tensor number(const graph *x, int64_t id) {
  const int64_t ones[4] = {1, 1, 1, 1};
  return moec_cudnn_tensor(x->g, MOEC_CUDNN_F32, ones, ones, id, true);
}

/* [b, h, s, t], dense; as stored by columns where |transposed|: then it is [b, h, t, s]. */
static tensor scores(const graph *x, moec_cudnn_type type, bool transposed) {
  const moec_cudnn_attention *a = x->a;
  const int64_t dims[4] = {a->b, a->h, transposed ? a->t : a->s, transposed ? a->s : a->t};
  const int64_t strides[4] = {a->h * a->s * a->t, a->s * a->t, transposed ? 1 : a->t, transposed ? a->t : 1};
  return moec_cudnn_tensor(x->g, type, dims, strides, 0, false);
}

/* A number a row, [b, h, s, 1]. */
static tensor rows(const graph *x, int64_t id) {
  const moec_cudnn_attention *a = x->a;
  const int64_t dims[4] = {a->b, a->h, a->s, 1}, strides[4] = {a->h * a->s, a->s, 1, 1};
  return moec_cudnn_tensor(x->g, MOEC_CUDNN_F32, dims, strides, id, false);
}

/* [b, h, rows, n], dense. */
static tensor vectors(const graph *x, moec_cudnn_type type, int64_t n_rows, int64_t n, int64_t id) {
  const moec_cudnn_attention *a = x->a;
  const int64_t dims[4] = {a->b, a->h, n_rows, n}, strides[4] = {a->h * n_rows * n, n_rows * n, n, 1};
  return moec_cudnn_tensor(x->g, type, dims, strides, id, false);
}

static bool is_of_keys(moec_cudnn_operand o) {
  return o == MOEC_CUDNN_K || o == MOEC_CUDNN_V || o == MOEC_CUDNN_DK || o == MOEC_CUDNN_DV;
}

static int64_t width_of(const moec_cudnn_attention *a, moec_cudnn_operand o) {
  bool values = o == MOEC_CUDNN_V || o == MOEC_CUDNN_Y || o == MOEC_CUDNN_DY || o == MOEC_CUDNN_DV;
  return o == MOEC_CUDNN_LSE ? 1 : values ? a->e : a->d;
}

static tensor operand_as(const graph *x, moec_cudnn_operand o, bool transposed, int64_t id) {
  const moec_cudnn_attention *a = x->a;
  const bool keys = is_of_keys(o);
  const int64_t n = keys ? a->t : a->s, width = width_of(a, o), *strides = a->strides[o];
  const int64_t dims[4] = {a->b, keys ? a->g : a->h, transposed ? width : n, transposed ? n : width};
  const int64_t steps[4] = {strides[0], strides[2], transposed ? 1 : strides[1], transposed ? strides[1] : 1};
  return moec_cudnn_tensor(x->g, o == MOEC_CUDNN_LSE ? MOEC_CUDNN_F32 : x->type, dims, steps, id, false);
}

static tensor operand(const graph *x, moec_cudnn_operand o) { return operand_as(x, o, false, (int64_t)o + 1); }
static tensor flipped(const graph *x, moec_cudnn_operand o) { return operand_as(x, o, true, (int64_t)o + 1); }

/* ---- operations -------------------------------------------------------------------------- */

static tensor pointwise(const graph *x, moec_cudnn_pointwise mode, tensor a, tensor b, tensor y) {
  moec_cudnn_add_pointwise(x->g, mode, a, b, NULL, y);
  return y;
}

static tensor on_scores(const graph *x, moec_cudnn_pointwise mode, tensor a, tensor b) {
  return pointwise(x, mode, a, b, scores(x, MOEC_CUDNN_F32, false));
}

static tensor reduce(const graph *x, moec_cudnn_reduction mode, tensor a, tensor y) {
  moec_cudnn_add_reduction(x->g, mode, a, y);
  return y;
}

static tensor product(const graph *x, tensor a, tensor b, tensor y) {
  moec_cudnn_add_matmul(x->g, a, b, y);
  return y;
}

/* Scores of keys behind their query become -inf. As many queries as keys: key j is visible to query i from j on. */
static tensor causal(const graph *x, tensor s) {
  if (!x->a->causal) return s;
  tensor row = scores(x, MOEC_CUDNN_I32, false), column = scores(x, MOEC_CUDNN_I32, false);
  tensor visible = scores(x, MOEC_CUDNN_BOOL, false), y = scores(x, MOEC_CUDNN_F32, false);
  moec_cudnn_add_index(x->g, 2, s, row);
  moec_cudnn_add_index(x->g, 3, s, column);
  moec_cudnn_add_pointwise(x->g, MOEC_CUDNN_GE, row, column, NULL, visible);
  moec_cudnn_add_pointwise(x->g, MOEC_CUDNN_SELECT, s, number(x, ID_HIDDEN), visible, y);
  return y;
}

/* ---- graphs ------------------------------------------------------------------------------ */

static void forward(const graph *x) {
  tensor q = operand(x, MOEC_CUDNN_Q), k = flipped(x, MOEC_CUDNN_K), v = operand(x, MOEC_CUDNN_V);
  tensor s = product(x, q, k, scores(x, MOEC_CUDNN_F32, false));
  s = causal(x, on_scores(x, MOEC_CUDNN_MUL, s, x->scale));
  tensor top = reduce(x, MOEC_CUDNN_MAX, s, rows(x, 0));
  tensor e = on_scores(x, MOEC_CUDNN_EXP, on_scores(x, MOEC_CUDNN_SUB, s, top), NULL);
  tensor sum = reduce(x, MOEC_CUDNN_SUM, e, rows(x, 0));
  tensor log = pointwise(x, MOEC_CUDNN_LOG, sum, NULL, rows(x, 0)); /* no engine does without */
  pointwise(x, MOEC_CUDNN_ADD, top, log, x->a->lse ? operand(x, MOEC_CUDNN_LSE) : rows(x, ID_SUMS));
  tensor p = pointwise(x, MOEC_CUDNN_DIV, e, sum, scores(x, x->type, false));
  product(x, p, v, operand(x, MOEC_CUDNN_Y));
}

/* dk = p q and dv = p dy, p of [t, s]; summed over the query heads of a key head. */
static void key_gradient(const graph *x, tensor p, tensor y, moec_cudnn_operand o) {
  const moec_cudnn_attention *a = x->a;
  if (a->h == a->g) {
    product(x, p, y, operand(x, o));
    return;
  }
  tensor each = vectors(x, x->type, a->t, width_of(a, o), 0);
  reduce(x, MOEC_CUDNN_SUM, product(x, p, y, each), operand(x, o));
}

static tensor transpose(const graph *x, tensor s) {
  tensor y = scores(x, x->type, true);
  moec_cudnn_add_reshape(x->g, s, y);
  return y;
}

static void gradient(const graph *x) {
  const moec_cudnn_attention *a = x->a;
  tensor q = operand(x, MOEC_CUDNN_Q), k = flipped(x, MOEC_CUDNN_K), v = flipped(x, MOEC_CUDNN_V);
  tensor y = operand(x, MOEC_CUDNN_Y), dy = operand(x, MOEC_CUDNN_DY), lse = operand(x, MOEC_CUDNN_LSE);
  tensor delta = pointwise(x, MOEC_CUDNN_MUL, dy, y, vectors(x, MOEC_CUDNN_F32, a->s, a->e, 0));
  delta = reduce(x, MOEC_CUDNN_SUM, delta, rows(x, 0));
  delta = pointwise(x, MOEC_CUDNN_MUL, delta, number(x, ID_ONE), rows(x, ID_SUMS));
  tensor s = product(x, q, k, scores(x, MOEC_CUDNN_F32, false));
  s = on_scores(x, MOEC_CUDNN_SUB, on_scores(x, MOEC_CUDNN_MUL, s, x->scale), lse);
  tensor p = on_scores(x, MOEC_CUDNN_EXP, causal(x, s), NULL);
  key_gradient(x, transpose(x, p), dy, MOEC_CUDNN_DV);
  tensor dp = product(x, dy, v, scores(x, MOEC_CUDNN_F32, false));
  tensor ds = on_scores(x, MOEC_CUDNN_MUL, on_scores(x, MOEC_CUDNN_SUB, dp, delta), p);
  ds = on_scores(x, MOEC_CUDNN_MUL, ds, x->scale);
  key_gradient(x, transpose(x, ds), q, MOEC_CUDNN_DK);
  tensor plain = operand_as(x, MOEC_CUDNN_K, false, 0);
  moec_cudnn_add_reshape(x->g, k, plain);
  tensor sum = product(x, ds, plain, vectors(x, MOEC_CUDNN_F32, a->s, a->d, ID_DQ_SUM));
  pointwise(x, MOEC_CUDNN_IDENTITY, sum, NULL, operand(x, MOEC_CUDNN_DQ));
}

/* ---- plans ------------------------------------------------------------------------------- */

/* Room for |n| floats at *at, a multiple of 256. */
static bool put(uint64_t *at, int64_t n, uint64_t *out) {
  uint64_t bytes;
  *out = *at;
  if (__builtin_mul_overflow((uint64_t)n, sizeof(float), &bytes) || bytes > UINT64_MAX - 255) return false;
  return !__builtin_add_overflow(*at, (bytes + 255) / 256 * 256, at);
}

static moec_status *place(const moec_cudnn_attention *a, uint64_t library, moec_cudnn_plan *p) {
  int64_t lines;
  p->workspace = (library + 255) / 256 * 256;
  bool fits = !__builtin_mul_overflow(a->b * a->h, a->s, &lines) && lines <= INT64_MAX / a->d;
  if (fits && (a->grad || !a->lse)) fits = put(&p->workspace, lines, &p->sums);
  if (fits && a->grad) fits = put(&p->workspace, lines * a->d, &p->dq);
  if (fits) return NULL;
  return moec_error(MOEC_OUT_OF_MEMORY, "attention: the size of its sums is too large");
}

moec_status *moec_cudnn_plan_make(const moec_cudnn *c, const moec_cudnn_attention *a, moec_cudnn_plan *out) {
  moec_cudnn_graph g = {.c = c};
  graph x = {&g, a, a->dtype == MOEC_F16 ? MOEC_CUDNN_F16 : MOEC_CUDNN_BF16, number(&(graph){.g = &g}, ID_SCALE)};
  uint64_t library = 0;
  *out = (moec_cudnn_plan){.of = *a};
  out->numbers[N_SCALE] = a->scale, out->numbers[N_HIDDEN] = -INFINITY, out->numbers[N_ONE] = 1;
  if (a->grad) gradient(&x);
  else forward(&x);
  MOEC_TRY(moec_cudnn_graph_end(&g, &out->plan, &library));
  moec_status *s = place(a, library, out);
  if (s) moec_cudnn_plan_drop(c, out);
  return s;
}

moec_status *moec_cudnn_pack_make(const moec_cudnn *c, const moec_cudnn_plan *p, void *const *operands, void *workspace,
                                  moec_cudnn_descriptor *out) {
  const moec_cudnn_attention *a = &p->of;
  int64_t ids[IDS];
  void *pointers[IDS], *by_id[IDS] = {0};
  uint32_t n = 0;
  for (int o = 0; o < MOEC_CUDNN_OPERANDS; o++) {
    bool of_gradient = o >= MOEC_CUDNN_DY, lse = o == MOEC_CUDNN_LSE;
    if (a->grad || (!of_gradient && (!lse || a->lse))) by_id[o + 1] = operands[o];
  }
  by_id[ID_SCALE] = (void *)(uintptr_t)&p->numbers[N_SCALE];
  if (a->causal) by_id[ID_HIDDEN] = (void *)(uintptr_t)&p->numbers[N_HIDDEN];
  if (a->grad || !a->lse) by_id[ID_SUMS] = (char *)workspace + p->sums;
  if (a->grad) {
    by_id[ID_ONE] = (void *)(uintptr_t)&p->numbers[N_ONE];
    by_id[ID_DQ_SUM] = (char *)workspace + p->dq;
  }
  for (int64_t id = 1; id < IDS; id++) {
    if (by_id[id]) ids[n] = id, pointers[n++] = by_id[id];
  }
  return moec_cudnn_pack(c, n, ids, pointers, workspace, out);
}
