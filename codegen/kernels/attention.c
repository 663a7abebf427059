/* Flash attention, one function a kernel. The emitter defines in front of this text
 *
 *   NAME(x), KERNEL   names: functions of this kernel, the kernel itself
 *   S T H G D E       queries, keys, query heads, key heads, sizes of q/k and of v vectors
 *   SCALE SOFTCAP     SOFTCAP 0: none
 *   CAUSAL            query i sees keys up to i + T - S
 *   MASK              0: none, 1: hidden keys are -inf, 2: added to the scores
 *   MASK_BY_HEAD MASK_BY_ROW   what the mask depends on besides batch and key
 *   SINK LSE          whether there are these; LSE_BUFFER its buffer
 *   OUT OUT_TYPE STORE(x)      buffer of the result, its element type, conversion to it
 *
 * and functions that copy operands to floats:
 *
 *   NAME(q)(a, b, h, i, out)            out[D]
 *   NAME(k)(a, b, h, j0, j1, out)       out[j1 - j0][D], h: a key head
 *   NAME(v)(a, b, h, j0, j1, out)       out[j1 - j0][E_ROW]
 *   NAME(mask)(a, b, h, i, j0, j1, out) out[j1 - j0]
 *   NAME(sink)(a, h, out)               out[1]
 *
 * The R = H/G query heads of a key head share its keys: one task is one (batch, key head) and up to 32 of its S*R
 * rows (query, head), which are the lanes of all vector arithmetic. Keys come in blocks; a row's
 * maximum and sum are corrected as they grow (online softmax). */
#ifndef KERNEL /* alone, for checks of this file */
#include "codegen/kernels/prelude.c"
#define NAME(x) attention_##x
#define KERNEL attention
enum { S = 5, T = 7, H = 4, G = 2, D = 24, E = 12 };
#define SCALE 0.25f
#define SOFTCAP 30.0f
#define CAUSAL 1
#define MASK 2
#define MASK_BY_HEAD 1
#define MASK_BY_ROW 1
#define SINK 1
#define LSE 1
#define LSE_BUFFER 6
#define OUT 5
#define OUT_TYPE float
#define STORE(x) (x)
static void NAME(q)(const moec_kernel_args *a, int64_t b, int64_t h, int64_t i, float *out);
static void NAME(k)(const moec_kernel_args *a, int64_t b, int64_t h, int64_t j0, int64_t j1,
                    float *out);
static void NAME(v)(const moec_kernel_args *a, int64_t b, int64_t h, int64_t j0, int64_t j1,
                    float *out);
static void NAME(mask)(const moec_kernel_args *a, int64_t b, int64_t h, int64_t i, int64_t j0,
                       int64_t j1, float *out);
static void NAME(sink)(const moec_kernel_args *a, int64_t h, float *out);
#endif

#define LANES 32
#define D_E_MAX ((D) > (E) ? (D) : (E))
#define KEYS             \
  (D_E_MAX <= 64    ? 64 \
   : D_E_MAX <= 128 ? 32 \
                    : 16) /* a block of keys stays in the first level cache */
#define E_ROW (((E) + 7) / 8 * 8)
#define R ((H) / (G))

/* The thread's scratch. */
typedef struct NAME(work) {
  float q[(D)*LANES];     /* [d][lane], scaled */
  float s[KEYS * LANES];  /* [key][lane]: scores, then their exponentials */
  float m[KEYS * LANES];  /* [key][lane]: mask */
  float k[KEYS * (D)];    /* [key][d] */
  float v[KEYS * E_ROW];  /* [key][e] */
  float o[E_ROW * LANES]; /* [e][lane]: result so far */
  float row[D_E_MAX + KEYS];
} NAME(work);

/* s[j][lane] = sum over d of k[j][d] * q[d][lane]: eight vectors are summed at a time. */
MOEC_INLINE void NAME(scores)(NAME(work) * w, int64_t n, const int nv) {
  const int step = 8 / nv;
  const moec_v8 *q = (const moec_v8 *)w->q;
  for (int64_t j = 0; j < n; j += step) {
    moec_v8 x[8] = {{0}};
    for (int64_t d = 0; d < (D); d++) {
#pragma GCC unroll 8
      for (int r = 0; r < 8; r++) x[r] += w->k[(j + r / nv) * (D) + d] * q[d * nv + r % nv];
    }
#pragma GCC unroll 8
    for (int r = 0; r < 8; r++) ((moec_v8 *)w->s)[j * nv + r] = x[r];
  }
}

/* o[e][lane] = o[e][lane] * decay[lane] + sum over j of v[j][e] * s[j][lane] */
MOEC_INLINE void NAME(values)(NAME(work) * w, int64_t n, const float *decay, const int nv) {
  const int step = 8 / nv;
  const moec_v8 *s = (const moec_v8 *)w->s, *c = (const moec_v8 *)decay;
  moec_v8 *o = (moec_v8 *)w->o;
  for (int64_t e = 0; e < E_ROW; e += step) {
    moec_v8 x[8];
#pragma GCC unroll 8
    for (int r = 0; r < 8; r++) x[r] = o[e * nv + r] * c[r % nv];
    for (int64_t j = 0; j < n; j++) {
#pragma GCC unroll 8
      for (int r = 0; r < 8; r++) x[r] += w->v[j * E_ROW + e + r / nv] * s[j * nv + r % nv];
    }
#pragma GCC unroll 8
    for (int r = 0; r < 8; r++) o[e * nv + r] = x[r];
  }
}

#if MASK
/* Mask values of keys j0 .. j0 + n for all lanes; false where none of them is visible. */
MOEC_INLINE bool NAME(load_mask)(const moec_kernel_args *a, NAME(work) * w, int64_t b, int64_t g,
                                 int64_t first, int64_t j0, int64_t n, int64_t lanes,
                                 const int width) {
  bool any = false;
  float *row = w->row;
  for (int64_t l = 0; l < width; l++) {
    int64_t at = first + moec_least(l, lanes - 1), i = at / R, r = at % R;
    if (l == 0 || (l < lanes && ((MASK_BY_HEAD && R > 1) || (MASK_BY_ROW && r == 0)))) {
      float top = -INFINITY;
      NAME(mask)(a, b, g * R + r, i, j0, j0 + n, row);
      for (int64_t j = 0; j < n; j++)
        top = row[j] <= top ? top : row[j]; /* NaN counts as visible */
      any = any || !(top == -INFINITY);
    }
    for (int64_t j = 0; j < n; j++) w->m[j * width + l] = row[j];
  }
  return any;
}
#endif

/* Scores of one block as they enter the softmax: capped, hidden keys -inf. */
MOEC_INLINE void NAME(finish_scores)(NAME(work) * w, const int64_t *last, int64_t j0, int64_t n,
                                     const int width) {
  int32_t seen[LANES]; /* the last key of the block a lane may see */
  for (int l = 0; l < width; l++)
    seen[l] = (int32_t)moec_least(moec_greatest(last[l] - j0, -1), KEYS);
  for (int32_t j = 0; j < (int32_t)n; j++) {
    float *s = w->s + j * width;
#pragma omp simd
    for (int l = 0; l < width; l++) {
      float x = s[l];
      if (SOFTCAP > 0) x = SOFTCAP * moec_tanh_f32(x / SOFTCAP);
#if CAUSAL
      x = j <= seen[l] ? x : -INFINITY;
#endif
#if MASK == 1
      x = w->m[j * width + l] == 0 ? x : -INFINITY;
#elif MASK == 2
      x += w->m[j * width + l];
#endif
      s[l] = x;
    }
  }
}

/* One block of keys: w->s becomes exponentials; top, sum and decay (of what was summed before) follow. */
MOEC_INLINE void NAME(softmax)(NAME(work) * w, int64_t n, float *top, float *sum, float *decay,
                               const int width) {
  float more[LANES] = {0}, base[LANES];
  for (int l = 0; l < width; l++) base[l] = top[l];
  for (int64_t j = 0; j < n; j++) {
#pragma omp simd
    for (int l = 0; l < width; l++)
      base[l] = w->s[j * width + l] > base[l] ? w->s[j * width + l] : base[l];
  }
#pragma omp simd
  for (int l = 0; l < width; l++) {
    float old = top[l];
    top[l] = base[l];
    base[l] = base[l] == -INFINITY ? 0 : base[l]; /* nothing visible yet: exp(-inf - 0) is 0 */
    decay[l] = moec_exp_f32(old - base[l]);
  }
  for (int64_t j = 0; j < n; j++) {
#pragma omp simd
    for (int l = 0; l < width; l++) {
      float x = moec_exp_f32(w->s[j * width + l] - base[l]);
      w->s[j * width + l] = x;
      more[l] += x;
    }
  }
#pragma omp simd
  for (int l = 0; l < width; l++) sum[l] = sum[l] * decay[l] + more[l];
}

MOEC_INLINE void NAME(store)(const moec_kernel_args *a, const NAME(work) * w, int64_t b, int64_t g,
                             int64_t first, int64_t lanes, const float *top, const float *sum,
                             const int width) {
  OUT_TYPE *restrict out = a->buf[OUT];
  for (int64_t l = 0; l < lanes; l++) {
    int64_t i = (first + l) / R, h = g * R + (first + l) % R, at = (b * (S) + i) * (H) + h;
    float total = sum[l] == 0 ? 1 : sum[l]; /* no visible key: zeros */
    for (int64_t e = 0; e < (E); e++) out[at * (E) + e] = STORE(w->o[e * width + l] / total);
#if LSE
    ((float *)a->buf[LSE_BUFFER])[at] = (top[l] == -INFINITY ? 0 : top[l]) + logf(sum[l]);
#else
    (void)top;
#endif
  }
}

/* Rows first .. first + lanes of key head g of batch b; nv: vectors of 8 lanes. */
MOEC_INLINE void NAME(task)(const moec_kernel_args *a, int64_t b, int64_t g, int64_t first,
                            int64_t lanes, const int nv) {
  NAME(work) *w = a->scratch;
  const int width = 8 * nv;
  float top[LANES], sum[LANES], decay[LANES] __attribute__((aligned(32)));
  int64_t last[LANES];                  /* the last key a lane may see */
  for (int64_t l = 0; l < width; l++) { /* lanes without a row repeat the last */
    int64_t at = first + moec_least(l, lanes - 1), i = at / R, h = g * R + at % R;
    NAME(q)(a, b, h, i, w->row);
    for (int64_t d = 0; d < (D); d++) w->q[d * width + l] = w->row[d] * SCALE;
    top[l] = -INFINITY, sum[l] = 0;
    last[l] = CAUSAL ? i + (T) - (S) : (T)-1;
#if SINK
    NAME(sink)(a, h, &top[l]);
    sum[l] = top[l] == -INFINITY ? 0 : 1; /* exp(sink - top) */
#endif
  }
  for (int64_t k = 0; k < E_ROW * width; k++) w->o[k] = 0;
  const int64_t end = moec_least(T, last[width - 1] + 1);
  for (int64_t j0 = 0; j0 < end; j0 += KEYS) {
    const int64_t n = moec_least(end - j0, KEYS);
#if MASK
    if (!NAME(load_mask)(a, w, b, g, first, j0, n, lanes, width)) continue;
#endif
    NAME(k)(a, b, g, j0, j0 + n, w->k);
    NAME(scores)(w, n, nv);
    if (MASK || SOFTCAP > 0 || (CAUSAL && j0 + n - 1 > last[0]))
      NAME(finish_scores)(w, last, j0, n, width);
    NAME(softmax)(w, n, top, sum, decay, width);
    NAME(v)(a, b, g, j0, j0 + n, w->v);
    NAME(values)(w, n, decay, nv);
  }
  NAME(store)(a, w, b, g, first, lanes, top, sum, width);
}

void KERNEL(const moec_kernel_args *a, int64_t begin, int64_t end) {
  const int64_t rows = (int64_t)(S)*R, blocks = (rows + LANES - 1) / LANES;
  for (int64_t t = begin; t < end; t++) {
    const int64_t first = t % blocks * LANES, lanes = moec_least(rows - first, LANES);
    const int64_t b = t / blocks / (G), g = t / blocks % (G);
    if (lanes <= 8)
      NAME(task)(a, b, g, first, lanes, 1);
    else if (lanes <= 16)
      NAME(task)(a, b, g, first, lanes, 2);
    else
      NAME(task)(a, b, g, first, lanes, 4);
  }
}

#undef LANES
#undef D_E_MAX
#undef KEYS
#undef E_ROW
#undef R
