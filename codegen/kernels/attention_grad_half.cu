/* The gradient of flash attention on tensor cores, for operands of 16 bits that are views of arguments. What
 * codegen/kernels/attention_grad.c says of definitions holds here too, but only the mask and the sink have functions:
 *
 *   Q_LINE(b, i, h) K_LINE(b, j, h) V_LINE(b, j, h) Y_LINE(b, i, h) DY_LINE(b, i, h)
 *                     where a vector begins, at a multiple of 16 bytes
 *   LSE_LINE(b, i, h) where its log-sum-exp is
 *   MULTIPLY PAIR LOAD    moec_multiply_bf16, moec_pair_bf16 and moec_load_bf16, or those of f16
 *   SHARED            bytes of dynamic shared memory
 *
 * The tasks of codegen/kernels/attention_grad.cu, with larger tiles: dq of 64 lines (query, head), a warp having 16 of
 * them; dk and dv of 64 keys, a warp having 16, against 32 lines at a time; dsink of a head. Probabilities and
 * gradients of scores are rounded to 16 bits for their products, sums are of f32 and have one order. */
#include "codegen/kernels/tensor.cu"
#define LINES 64
#define KEYS 64
#define SEEN 32 /* lines at a time in front of keys */
#define THREADS 128
#define WARPS (THREADS / 32)
#define D_ROW (((D) + 15) / 16 * 16 + 8) /* rows of 16 bytes more: those of a tile are in different banks */
#define E_ROW (((E) + 15) / 16 * 16 + 8)
#define R ((H) / (G))
#define KEY_TASKS (DK >= 0 || DV >= 0)
#define MASK_LINES (MASK_BY_HEAD || MASK_BY_ROW ? LINES : 1)

typedef struct NAME(work) {
  uint16_t q[LINES * D_ROW], dy[LINES * E_ROW], k[KEYS * D_ROW], v[KEYS * E_ROW];
  float lse[LINES], delta[LINES];
#if MASK
  float m[MASK_LINES * KEYS];
#endif
} NAME(work);
static_assert(sizeof(NAME(work)) <= SHARED, "shared memory");

enum { NAME(D_STEPS) = ((D) + 15) / 16, NAME(E_STEPS) = ((E) + 15) / 16 };

/* Sizes, read once. */
typedef struct NAME(sizes) {
  int64_t s, t, lines;
} NAME(sizes);

/* Of all lanes of a warp: the sum of dy * y of a line. */
static __device__ float NAME(delta)(const moec_kernel_args *a, int64_t b, int64_t h, int64_t i) {
  const int lane = threadIdx.x % 32;
  float sum = 0;
  for (int c = lane * 8; c < (E); c += 256) {
    const uint4 x = *(const uint4 *)(Y_LINE(b, i, h) + c), y = *(const uint4 *)(DY_LINE(b, i, h) + c);
    const uint32_t u[4] = {x.x, x.y, x.z, x.w}, v[4] = {y.x, y.y, y.z, y.w};
    for (int p = 0; p < 4; p++) {
      sum += LOAD((uint16_t)u[p]) * LOAD((uint16_t)v[p]);
      sum += LOAD((uint16_t)(u[p] >> 16)) * LOAD((uint16_t)(v[p] >> 16));
    }
  }
  MOEC_WARP_JOIN(float, sum, sum += other;)
  return sum;
}

/* |n| lines from |first| on; behind the last zeros. */
static __device__ void NAME(load_lines)(const moec_kernel_args *a, NAME(work) * w, NAME(sizes) z, int64_t b, int64_t g,
                                        int64_t first, int n) {
  for (int x = threadIdx.x; x < n * ((D) / 8); x += THREADS) {
    const int l = x / ((D) / 8), c = x % ((D) / 8) * 8;
    const int64_t at = first + l < z.lines ? first + l : first;
    moec_copy_16(w->q + l * D_ROW + c, Q_LINE(b, at / R, g * R + at % R) + c, first + l < z.lines);
  }
  for (int x = threadIdx.x; x < n * ((E) / 8); x += THREADS) {
    const int l = x / ((E) / 8), c = x % ((E) / 8) * 8;
    const int64_t at = first + l < z.lines ? first + l : first;
    moec_copy_16(w->dy + l * E_ROW + c, DY_LINE(b, at / R, g * R + at % R) + c, first + l < z.lines);
  }
  for (int l = threadIdx.x / 32; l < n; l += WARPS) {
    const bool there = first + l < z.lines;
    const int64_t at = there ? first + l : first;
    const float delta = NAME(delta)(a, b, g * R + at % R, at / R), lse = *LSE_LINE(b, at / R, g * R + at % R);
    if (threadIdx.x % 32) continue;
    w->lse[l] = there && lse != -INFINITY ? lse : 0; /* no visible key: exp(-inf - 0) is 0 */
    w->delta[l] = there ? delta : 0;
  }
}

static __device__ void NAME(load_keys)(const moec_kernel_args *a, NAME(work) * w, NAME(sizes) z, int64_t b, int64_t g,
                                       int64_t j0) {
  for (int x = threadIdx.x; x < KEYS * ((D) / 8); x += THREADS) {
    const int j = x / ((D) / 8), c = x % ((D) / 8) * 8;
    moec_copy_16(w->k + j * D_ROW + c, K_LINE(b, j0 + j < z.t ? j0 + j : j0, g) + c, j0 + j < z.t);
  }
  for (int x = threadIdx.x; x < KEYS * ((E) / 8); x += THREADS) {
    const int j = x / ((E) / 8), c = x % ((E) / 8) * 8;
    moec_copy_16(w->v + j * E_ROW + c, V_LINE(b, j0 + j < z.t ? j0 + j : j0, g) + c, j0 + j < z.t);
  }
}

#if MASK
static __device__ void NAME(load_mask)(const moec_kernel_args *a, NAME(work) * w, NAME(sizes) z, int64_t b, int64_t g,
                                       int64_t first, int n, int64_t j0) {
  for (int l = threadIdx.x / 32; l < MASK_LINES && l < n && first + l < z.lines; l += WARPS)
    NAME(mask)(a, b, g * R + (first + l) % R, (first + l) / R, j0, moec_least(j0 + KEYS, z.t), w->m + l * KEYS);
}
#endif

/* x[tile][4] = 16 rows of a times rows of b, tiles of 8 rows; both of |row| elements and 16 * steps columns. */
MOEC_INLINE void NAME(products)(const uint16_t *a, const uint16_t *b, int row, int steps, int tiles, float (*x)[4]) {
  const int lane = threadIdx.x % 32, tile = lane / 8, r = lane % 8;
#pragma unroll
  for (int t = 0; t < tiles; t++)
    for (int i = 0; i < 4; i++) x[t][i] = 0;
#pragma unroll
  for (int c = 0; c < steps; c++) {
    uint32_t u[4], v[4];
    moec_load_tiles(u, a + (tile % 2 * 8 + r) * row + c * 16 + tile / 2 * 8);
#pragma unroll
    for (int t = 0; t < tiles; t += 2) {
      moec_load_tiles(v, b + (t * 8 + tile / 2 * 8 + r) * row + c * 16 + tile % 2 * 8);
      MULTIPLY(x[t], u, v[0], v[1]);
      MULTIPLY(x[t + 1], u, v[2], v[3]);
    }
  }
}

/* sum[tile][4] += x, rounded, of 16 x 8 * tiles, times rows b. */
MOEC_INLINE void NAME(accumulate)(float (*sum)[4], const float (*x)[4], int tiles, const uint16_t *b, int row,
                                  int steps) {
  const int lane = threadIdx.x % 32, tile = lane / 8, r = lane % 8;
#pragma unroll
  for (int t = 0; t < tiles; t += 2) {
    const uint32_t u[4] = {PAIR(x[t][0], x[t][1]), PAIR(x[t][2], x[t][3]), PAIR(x[t + 1][0], x[t + 1][1]),
                           PAIR(x[t + 1][2], x[t + 1][3])};
#pragma unroll
    for (int c = 0; c < steps; c++) {
      uint32_t v[4];
      moec_load_tiles_across(v, b + (t * 8 + tile % 2 * 8 + r) * row + c * 16 + tile / 2 * 8);
      MULTIPLY(sum[2 * c], u, v[0], v[1]);
      MULTIPLY(sum[2 * c + 1], u, v[2], v[3]);
    }
  }
}

/* From a product of q and k, and one of dy and v: the probability, and the gradient of the scaled product. */
MOEC_INLINE void NAME(differentiate)(const NAME(work) * w, NAME(sizes) z, int64_t first, int l, int64_t j0, int j,
                                     float *score, float *gradient) {
  bool visible = first + l < z.lines && j0 + j < z.t && (!CAUSAL || j0 + j <= (first + l) / R + z.t - z.s);
  float slope, x = moec_softcap(*score * SCALE, SOFTCAP, &slope);
#if MASK == 1
  visible = visible && w->m[(MASK_LINES > 1 ? l : 0) * KEYS + j] == 0;
#elif MASK == 2
  if (visible) x += w->m[(MASK_LINES > 1 ? l : 0) * KEYS + j];
#endif
  const float p = visible ? __expf(x - w->lse[l]) : 0;
  *score = p;
  *gradient = p * (*gradient - w->delta[l]) * slope;
}

/* Row |at| of 16 in a result of vectors of |size|, in the lines of a warp's tiles: those of a lane. */
#define STORE_ROWS(buffer, sum, steps, size, by, there, index)                                          \
  _Pragma("unroll") for (int r = 0; r < 2; r++) {                                                       \
    const int64_t at = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + r * 8;                            \
    if (!(there)) continue;                                                                             \
    uint32_t *out = (uint32_t *)((OUT_TYPE *)a->buf[buffer] + (index) * (size));                        \
    _Pragma("unroll") for (int t = 0; t < 2 * (steps); t++)                                             \
      if (t * 8 < (size)) out[t * 4 + threadIdx.x % 4] = PAIR(sum[t][2 * r] * (by), sum[t][2 * r + 1] * (by)); \
  }

#if DQ >= 0
static __device__ void NAME(line_task)(const moec_kernel_args *a, NAME(work) * w, NAME(sizes) z, int64_t b, int64_t g,
                                       int64_t first) {
  const int lane = threadIdx.x % 32, own = threadIdx.x / 32 * 16;
  const int64_t last = moec_least(first + LINES, z.lines) - 1;
  const int64_t end = CAUSAL ? moec_least(z.t, last / R + z.t - z.s + 1) : z.t;
  float dq[2 * NAME(D_STEPS)][4] = {}, x[KEYS / 8][4], y[KEYS / 8][4];
  NAME(load_lines)(a, w, z, b, g, first, LINES);
  for (int64_t j0 = 0; j0 < end; j0 += KEYS) {
    NAME(load_keys)(a, w, z, b, g, j0);
#if MASK
    NAME(load_mask)(a, w, z, b, g, first, LINES, j0);
#endif
    moec_copies_wait();
    __syncthreads();
    NAME(products)(w->q + own * D_ROW, w->k, D_ROW, NAME(D_STEPS), KEYS / 8, x);
    NAME(products)(w->dy + own * E_ROW, w->v, E_ROW, NAME(E_STEPS), KEYS / 8, y);
#pragma unroll
    for (int t = 0; t < KEYS / 8; t++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        NAME(differentiate)(w, z, first, own + lane / 4 + i / 2 * 8, j0, t * 8 + lane % 4 * 2 + i % 2, &x[t][i],
                            &y[t][i]);
    NAME(accumulate)(dq, y, KEYS / 8, w->k, D_ROW, NAME(D_STEPS));
    __syncthreads();
  }
  moec_copies_wait();
  STORE_ROWS(DQ, dq, NAME(D_STEPS), D, SCALE, first + at < z.lines,
             (b * z.s + (first + at) / R) * (H) + g * R + (first + at) % R)
}
#endif

#if KEY_TASKS
static __device__ void NAME(key_task)(const moec_kernel_args *a, NAME(work) * w, NAME(sizes) z, int64_t b, int64_t g,
                                      int64_t j0) {
  const int lane = threadIdx.x % 32, own = threadIdx.x / 32 * 16;
  float dk[2 * NAME(D_STEPS)][4] = {}, dv[2 * NAME(E_STEPS)][4] = {}, x[SEEN / 8][4], y[SEEN / 8][4];
  const int64_t seen = CAUSAL ? moec_greatest(j0 - (z.t - z.s), 0) * R / SEEN * SEEN : 0; /* the first that sees it */
  NAME(load_keys)(a, w, z, b, g, j0);
  for (int64_t first = seen; first < z.lines; first += SEEN) {
    NAME(load_lines)(a, w, z, b, g, first, SEEN);
#if MASK
    NAME(load_mask)(a, w, z, b, g, first, SEEN, j0);
#endif
    moec_copies_wait();
    __syncthreads();
    NAME(products)(w->k + own * D_ROW, w->q, D_ROW, NAME(D_STEPS), SEEN / 8, x);
    NAME(products)(w->v + own * E_ROW, w->dy, E_ROW, NAME(E_STEPS), SEEN / 8, y);
#pragma unroll
    for (int t = 0; t < SEEN / 8; t++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        NAME(differentiate)(w, z, first, t * 8 + lane % 4 * 2 + i % 2, j0, own + lane / 4 + i / 2 * 8, &x[t][i],
                            &y[t][i]);
    if (DV >= 0) NAME(accumulate)(dv, x, SEEN / 8, w->dy, E_ROW, NAME(E_STEPS));
    if (DK >= 0) NAME(accumulate)(dk, y, SEEN / 8, w->q, D_ROW, NAME(D_STEPS));
    __syncthreads();
  }
  moec_copies_wait();
#if DK >= 0
  STORE_ROWS(DK, dk, NAME(D_STEPS), D, SCALE, j0 + at < z.t, (b * z.t + j0 + at) * (G) + g)
#endif
#if DV >= 0
  STORE_ROWS(DV, dv, NAME(E_STEPS), E, 1, j0 + at < z.t, (b * z.t + j0 + at) * (G) + g)
#endif
}
#endif

#if DSINK >= 0
/* dsink[h]: as many terms as there are queries, so the sum is a double. A warp takes every fourth. */
static __device__ void NAME(sink_task)(const moec_kernel_args *a, NAME(sizes) z, int64_t batches, int64_t h) {
  MOEC_BLOCK_TEAM
  (void)team, (void)n_teams;
  const int warp = self / 32;
  double sum = 0;
  float sink;
  NAME(sink)(a, h, &sink);
  for (int64_t at = warp; at < batches * z.s; at += WARPS) {
    const float delta = NAME(delta)(a, at / z.s, h, at % z.s), lse = *LSE_LINE(at / z.s, at % z.s, h);
    if (self % 32 == 0) sum -= (double)(moec_exp_f32(sink - (lse == -INFINITY ? 0 : lse)) * delta);
  }
  MOEC_BLOCK_JOIN(double, sum, sum += other;, WARPS)
  if (self == 0) ((OUT_TYPE *)a->buf[DSINK])[h] = STORE((float)sum);
}
#endif

/* Columns behind the last up to a multiple of 16 are zeros, once. */
#define PAD(rows, row, size)                                                 \
  for (int x = threadIdx.x; (size) % 16 && x < (rows) * 8; x += THREADS)     \
    w->row[x / 8 * (size##_ROW) + (size) + x % 8] = 0;

extern "C" __global__ void __launch_bounds__(THREADS)
KERNEL(const __grid_constant__ moec_kernel_args args, int64_t n_rows) {
  const moec_kernel_args *const a = &args;
  NAME(work) *w = (NAME(work) *)moec_dynamic;
  const int64_t queries = (S), batches = (B), pairs = batches * (G);
  const NAME(sizes) z = {queries, (T), queries * R};
  const int64_t lines = (z.lines + LINES - 1) / LINES, keys = (z.t + KEYS - 1) / KEYS;
  const int64_t line_tasks = DQ >= 0 ? pairs * lines : 0, key_tasks = KEY_TASKS ? pairs * keys : 0;
  (void)line_tasks, (void)key_tasks, (void)keys;
  PAD(LINES, q, D)
  PAD(LINES, dy, E)
  PAD(KEYS, k, D)
  PAD(KEYS, v, E)
  for (int64_t task = blockIdx.x; task < n_rows; task += gridDim.x) {
    int64_t t = task;
    __syncthreads();
#if KEY_TASKS
    if (t >= 0 && t < key_tasks) NAME(key_task)(a, w, z, t / keys / (G), t / keys % (G), t % keys * KEYS);
#endif
    t -= key_tasks;
#if DQ >= 0
    if (t >= 0 && t < line_tasks)
      NAME(line_task)(a, w, z, t / lines / (G), t / lines % (G), (lines - 1 - t % lines) * LINES);
#endif
    t -= line_tasks;
#if DSINK >= 0
    if (t >= 0) NAME(sink_task)(a, z, batches, t);
#endif
  }
}

#undef STORE_ROWS
#undef PAD
#undef LINES
#undef KEYS
#undef SEEN
#undef THREADS
#undef WARPS
#undef D_ROW
#undef E_ROW
#undef R
#undef KEY_TASKS
#undef MASK_LINES
