/* The gradient of flash attention, one function a kernel. The emitter defines in front of this text what it defines
 * for attention.c but its results, and
 *
 *   B                 batches
 *   DQ DK DV DSINK    buffers of the results; -1: not wanted
 *   OUT_TYPE STORE(x) their element type, conversion to it
 *
 * and functions that copy operands to floats:
 *
 *   NAME(q)(a, b, h, i, out), NAME(y), NAME(dy)   out[D], out[E], out[E]
 *   NAME(k)(a, b, h, j0, j1, out)                 out[j1 - j0][D_ROW], h: a key head
 *   NAME(v)(a, b, h, j0, j1, out)                 out[j1 - j0][E_ROW]
 *   NAME(mask)(a, b, h, i, j0, j1, out)           out[j1 - j0]
 *   NAME(lse)(a, b, h, i, out), NAME(sink)(a, h, out)   out[1]
 *
 * The R = H/G query heads of a key head share its keys: a line is a (query, head) of one (batch, key head), and there
 * are S*R of them. One task is one (batch, key head): nobody else adds to its dq, dk and dv, so sums need no atomics
 * and have one order, whatever the number of threads. It takes up to 32 lines at a time, the lanes of all vector
 * arithmetic, against blocks of keys; scores and probabilities are made again from lse, tile by tile. dq stays in the
 * lanes, dk and dv of all keys in the scratch. (Tasks of lines for dq and others of keys for dk and dv would be more of
 * them, but each has to make the probabilities and their gradients: seven products a tile, not five, and half as slow
 * again.) Further tasks sum one head's dsink each. */
#ifndef KERNEL /* alone, for checks of this file */
#include "codegen/kernels/prelude.c"
#define NAME(x) attention_grad_##x
#define KERNEL attention_grad
enum { B = 2, S = 5, T = 7, H = 4, G = 2, D = 24, E = 12 };
#define SCALE 0.25f
#define SOFTCAP 30.0f
#define CAUSAL 1
#define MASK 2
#define MASK_BY_HEAD 1
#define MASK_BY_ROW 1
#define SINK 1
#define DQ 8
#define DK 9
#define DV 10
#define DSINK 11
#define OUT_TYPE float
#define STORE(x) (x)
static void NAME(q)(const moec_kernel_args *a, int64_t b, int64_t h, int64_t i, float *out);
static void NAME(k)(const moec_kernel_args *a, int64_t b, int64_t h, int64_t j0, int64_t j1, float *out);
static void NAME(v)(const moec_kernel_args *a, int64_t b, int64_t h, int64_t j0, int64_t j1, float *out);
static void NAME(mask)(const moec_kernel_args *a, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t j1, float *out);
static void NAME(sink)(const moec_kernel_args *a, int64_t h, float *out);
static void NAME(y)(const moec_kernel_args *a, int64_t b, int64_t h, int64_t i, float *out);
static void NAME(lse)(const moec_kernel_args *a, int64_t b, int64_t h, int64_t i, float *out);
static void NAME(dy)(const moec_kernel_args *a, int64_t b, int64_t h, int64_t i, float *out);
#endif

#define LANES 32
#define KEYS 32 /* a block of keys; a multiple of 8 */
#define D_ROW (((D) + 7) / 8 * 8)
#define E_ROW (((E) + 7) / 8 * 8)
#define R ((H) / (G))
#define PAIRS (DQ >= 0 || DK >= 0 || DV >= 0) /* whether there are tasks of a batch and a key head */

/* The thread's scratch; behind it dk[T + 8][D_ROW] and dv[T + 8][E_ROW], those wanted. */
typedef struct NAME(work) {
  float q[LANES * D_ROW], dy[LANES * E_ROW];           /* [lane][d], q scaled */
  float q_lanes[D_ROW * LANES], dy_lanes[E_ROW * LANES]; /* [d][lane] */
  float k[KEYS * D_ROW], v[KEYS * E_ROW];              /* [key][d] */
  float s[KEYS * LANES];                               /* [key][lane]: scores, then probabilities */
  float g[KEYS * LANES]; /* [key][lane]: gradients of the probabilities, then of the scores */
  float m[KEYS * LANES]; /* [key][lane]: mask */
  float dq[D_ROW * LANES];                             /* [d][lane] so far */
  float lse[LANES], delta[LANES];
  int64_t last[LANES]; /* the last key a lane may see */
  float row[E_ROW + KEYS];
} __attribute__((aligned(64))) NAME(work);

/* One score: *s becomes its probability, *g, the gradient of that, becomes the gradient of the scaled product. */
MOEC_INLINE void NAME(differentiate)(float *s, float *g, float mask, bool visible, float lse, float delta) {
  float slope, x = moec_softcap(*s, SOFTCAP, &slope);
  if (CAUSAL) x = visible ? x : -INFINITY;
  if (MASK == 1) x = mask == 0 ? x : -INFINITY;
  if (MASK == 2) x += mask;
  float p = moec_exp_f32(x - lse);
  *s = p;
  *g = p * (*g - delta) * slope;
}

/* lse of a line, and delta, which dy of that line is given for. No visible key: exp(-inf - 0) is 0. */
MOEC_INLINE void NAME(line)(const moec_kernel_args *a, int64_t b, int64_t h, int64_t i, const float *dy, float *y,
                            float *lse, float *delta) {
  float sum = 0;
  NAME(lse)(a, b, h, i, lse);
  if (*lse == -INFINITY) *lse = 0;
  NAME(y)(a, b, h, i, y);
#pragma omp simd reduction(+ : sum)
  for (int64_t e = 0; e < (E); e++) sum += dy[e] * y[e];
  *delta = sum;
}

#if PAIRS
#if MASK
/* Mask values of keys j0 .. j0 + n for all lanes; false where none of them is visible. */
MOEC_INLINE bool NAME(load_mask)(const moec_kernel_args *a, NAME(work) * w, int64_t b, int64_t g, int64_t first,
                                 int64_t j0, int64_t n, int64_t lanes, const int width) {
  bool any = false;
  float *row = w->row;
  for (int64_t l = 0; l < width; l++) {
    int64_t at = first + moec_least(l, lanes - 1), i = at / R, r = at % R;
    if (l == 0 || (l < lanes && ((MASK_BY_HEAD && R > 1) || (MASK_BY_ROW && r == 0)))) {
      float top = -INFINITY;
      NAME(mask)(a, b, g * R + r, i, j0, j0 + n, row);
      for (int64_t j = 0; j < n; j++) top = row[j] <= top ? top : row[j]; /* NaN counts as visible */
      any = any || !(top == -INFINITY);
    }
    for (int64_t j = 0; j < n; j++) w->m[j * width + l] = row[j];
  }
  return any;
}
#endif

/* What the lanes hold of lines first .. first + lanes; lanes without a line repeat the last. */
MOEC_INLINE void NAME(load_lines)(const moec_kernel_args *a, NAME(work) * w, int64_t b, int64_t g, int64_t first,
                                  int64_t lanes, const int width) {
  for (int64_t l = 0; l < width; l++) {
    int64_t at = first + moec_least(l, lanes - 1), i = at / R, h = g * R + at % R;
    float *q = w->q + l * D_ROW, *dy = w->dy + l * E_ROW;
    for (int64_t d = (D); d < D_ROW; d++) q[d] = 0;
    for (int64_t e = (E); e < E_ROW; e++) dy[e] = 0;
    NAME(q)(a, b, h, i, q);
    NAME(dy)(a, b, h, i, dy);
    NAME(line)(a, b, h, i, dy, w->row, &w->lse[l], &w->delta[l]);
    w->last[l] = CAUSAL ? i + (T) - (S) : (T)-1;
    for (int64_t d = 0; d < D_ROW; d++) w->q_lanes[d * width + l] = q[d] *= SCALE;
    for (int64_t e = 0; e < E_ROW; e++) w->dy_lanes[e * width + l] = dy[e];
  }
}

/* w->s and w->g of n keys from j0: from products to probabilities and gradients of scores. */
MOEC_INLINE void NAME(differentiate_tile)(NAME(work) * w, int64_t j0, int64_t n, const int width) {
  int32_t seen[LANES]; /* the last key of the block a lane may see */
  for (int l = 0; l < width; l++) seen[l] = (int32_t)moec_least(moec_greatest(w->last[l] - j0, -1), KEYS);
  for (int32_t j = 0; j < (int32_t)n; j++) {
    float *s = w->s + j * width, *g = w->g + j * width;
    const float *m = w->m + j * width;
#pragma omp simd
    for (int l = 0; l < width; l++)
      NAME(differentiate)(&s[l], &g[l], MASK ? m[l] : 0, j <= seen[l], w->lse[l], w->delta[l]);
  }
}

/* Lines first .. first + lanes against all keys they see; nv: vectors of 8 lanes. */
MOEC_INLINE void NAME(lines)(const moec_kernel_args *a, int64_t b, int64_t g, int64_t first, int64_t lanes, float *dk,
                             float *dv, const int nv) {
  NAME(work) *w = a->scratch;
  const int width = 8 * nv;
  NAME(load_lines)(a, w, b, g, first, lanes, width);
  for (int64_t k = 0; k < D_ROW * width; k++) w->dq[k] = 0;
  const int64_t end = moec_least(T, w->last[width - 1] + 1);
  for (int64_t j0 = 0; j0 < end; j0 += KEYS) {
    const int64_t n = moec_least((T)-j0, KEYS); /* whole blocks: rows of dk and dv behind them would be others' */
#if MASK
    if (!NAME(load_mask)(a, w, b, g, first, j0, n, lanes, width)) continue;
#endif
    NAME(k)(a, b, g, j0, j0 + n, w->k);
    NAME(v)(a, b, g, j0, j0 + n, w->v);
    moec_tile_products(w->k, D_ROW, w->q_lanes, w->s, D, n, nv);
    moec_tile_products(w->v, E_ROW, w->dy_lanes, w->g, E, n, nv);
    NAME(differentiate_tile)(w, j0, n, width);
    if (DQ >= 0) moec_tile_sums(w->k, D_ROW, w->g, w->dq, n, nv);
    if (DK >= 0) moec_tile_add(w->g, width, w->q, dk + j0 * D_ROW, D_ROW, lanes, n);
    if (DV >= 0) moec_tile_add(w->s, width, w->dy, dv + j0 * E_ROW, E_ROW, lanes, n);
  }
#if DQ >= 0
  OUT_TYPE *restrict out = a->buf[DQ];
  for (int64_t l = 0; l < lanes; l++) {
    int64_t i = (first + l) / R, h = g * R + (first + l) % R, at = (b * (S) + i) * (H) + h;
    for (int64_t d = 0; d < (D); d++) out[at * (D) + d] = STORE(w->dq[d * width + l] * SCALE);
  }
#endif
}

static void NAME(store_keys)(const moec_kernel_args *a, int buffer, const float *sum, int64_t b, int64_t g,
                             int64_t size, int64_t stride) {
  OUT_TYPE *restrict out = a->buf[buffer];
  for (int64_t j = 0; j < (T); j++)
    for (int64_t d = 0; d < size; d++) out[((b * (T) + j) * (G) + g) * size + d] = STORE(sum[j * stride + d]);
}

static void NAME(pair)(const moec_kernel_args *a, int64_t b, int64_t g) {
  const int64_t lines = (int64_t)(S)*R;
  float *dk = (float *)((NAME(work) *)a->scratch + 1), *dv = dk + (DK >= 0 ? ((T) + 8) * D_ROW : 0);
  if (DK >= 0) memset(dk, 0, (size_t)(((T) + 8) * D_ROW) * sizeof *dk);
  if (DV >= 0) memset(dv, 0, (size_t)(((T) + 8) * E_ROW) * sizeof *dv);
  for (int64_t first = 0; first < lines; first += LANES) {
    const int64_t lanes = moec_least(lines - first, LANES);
    if (lanes <= 8)
      NAME(lines)(a, b, g, first, lanes, dk, dv, 1);
    else if (lanes <= 16)
      NAME(lines)(a, b, g, first, lanes, dk, dv, 2);
    else
      NAME(lines)(a, b, g, first, lanes, dk, dv, 4);
  }
  if (DK >= 0) NAME(store_keys)(a, DK, dk, b, g, D, D_ROW);
  if (DV >= 0) NAME(store_keys)(a, DV, dv, b, g, E, E_ROW);
}
#endif

#if DSINK >= 0
/* dsink[h]: as many terms as there are queries, so the sum is a double. */
static void NAME(sink_task)(const moec_kernel_args *a, int64_t batches, int64_t h) {
  NAME(work) *w = a->scratch;
  double sum = 0;
  float sink;
  NAME(sink)(a, h, &sink);
  for (int64_t at = 0; at < batches * (S); at++) {
    float lse, delta;
    NAME(dy)(a, at / (S), h, at % (S), w->dy);
    NAME(line)(a, at / (S), h, at % (S), w->dy, w->row, &lse, &delta);
    sum -= (double)(moec_exp_f32(sink - lse) * delta);
  }
  ((OUT_TYPE *)a->buf[DSINK])[h] = STORE((float)sum);
}
#endif

/* Tasks: each (batch, key head), then dsink of each query head. */
void KERNEL(const moec_kernel_args *a, int64_t begin, int64_t end) {
  const int64_t pairs = PAIRS ? (int64_t)(B) * (G) : 0;
  for (int64_t t = begin; t < end; t++) {
#if PAIRS
    if (t < pairs) NAME(pair)(a, t / (G), t % (G));
#endif
#if DSINK >= 0
    if (t >= pairs) NAME(sink_task)(a, B, t - pairs);
#endif
  }
}

#undef LANES
#undef KEYS
#undef D_ROW
#undef E_ROW
#undef R
#undef PAIRS
