/* The gradient of flash attention, one kernel a function: what codegen/kernels/attention_grad.c says of definitions
 * holds here too, and SHARED is the bytes of dynamic shared memory.
 *
 * Three kinds of tasks, each for a block: dq of 32 lines (query, head) of a (batch, key head), against all keys
 * they see; dk and dv of 32 keys, against all lines that see them; dsink of a head. So nobody adds to another's
 * results: sums need no atomics and have one order. Scores and probabilities are made again from lse, in both. A
 * thread has 2 x 2 of a tile, and of a result two rows and every 16th element. */
#define SIDE 32
#define THREADS 256
#define WARPS (THREADS / 32)
#define D_ROW ((D) | 1)
#define E_ROW ((E) | 1)
#define R ((H) / (G))
#define KEY_TASKS (DK >= 0 || DV >= 0)
#define MASK_LINES (MASK_BY_HEAD || MASK_BY_ROW ? SIDE : 1)

typedef struct NAME(work) {
  float q[SIDE * D_ROW], dy[SIDE * E_ROW]; /* [line][d], q scaled */
  float k[SIDE * D_ROW], v[SIDE * E_ROW];  /* [key][d] */
  float s[SIDE * (SIDE + 1)];              /* [line][key]: probabilities */
  float g[SIDE * (SIDE + 1)];              /* [line][key]: gradients of the scaled products */
  float y[WARPS * (E)];
  float lse[SIDE], delta[SIDE];
#if MASK
  float m[MASK_LINES * SIDE];
#endif
} NAME(work);
static_assert(sizeof(NAME(work)) <= SHARED, "shared memory");

/* Sizes, read once. */
typedef struct NAME(sizes) {
  int64_t s, t, lines;
} NAME(sizes);

/* dy of a line and, of all lanes, its lse and delta. No visible key: exp(-inf - 0) is 0. */
static __device__ void NAME(line)(const moec_kernel_args *a, int64_t b, int64_t h, int64_t i, float *dy, float *y,
                                  float *lse, float *delta) {
  float sum = 0;
  NAME(dy)(a, b, h, i, dy);
  NAME(y)(a, b, h, i, y);
  NAME(lse)(a, b, h, i, lse);
  if (*lse == -INFINITY) *lse = 0;
  __syncwarp();
  for (int e = threadIdx.x % 32; e < (E); e += 32) sum += dy[e] * y[e];
  MOEC_WARP_JOIN(float, sum, sum += other;)
  *delta = sum;
}

static __device__ void NAME(load_lines)(const moec_kernel_args *a, NAME(work) * w, NAME(sizes) z, int64_t b, int64_t g,
                                        int64_t first) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int l = warp; l < SIDE; l += WARPS) {
    float *q = w->q + l * D_ROW, *dy = w->dy + l * E_ROW, lse = 0, delta = 0;
    const int64_t i = (first + l) / R, h = g * R + (first + l) % R;
    if (first + l < z.lines) {
      NAME(q)(a, b, h, i, q);
      NAME(line)(a, b, h, i, dy, w->y + warp * (E), &lse, &delta);
    } else {
      for (int e = lane; e < (E); e += 32) dy[e] = 0;
    }
    __syncwarp();
    for (int d = lane; d < (D); d += 32) q[d] = first + l < z.lines ? q[d] * SCALE : 0;
    if (lane == 0) w->lse[l] = lse, w->delta[l] = delta;
  }
}

static __device__ void NAME(load_keys)(const moec_kernel_args *a, NAME(work) * w, NAME(sizes) z, int64_t b, int64_t g,
                                       int64_t j0) {
  const int lane = threadIdx.x % 32;
  for (int j = threadIdx.x / 32; j < SIDE; j += WARPS) {
    float *k = w->k + j * D_ROW, *v = w->v + j * E_ROW;
    if (j0 + j < z.t) {
      NAME(k)(a, b, g, j0 + j, j0 + j + 1, k);
      NAME(v)(a, b, g, j0 + j, j0 + j + 1, v);
    } else {
      for (int d = lane; d < (D); d += 32) k[d] = 0;
      for (int e = lane; e < (E); e += 32) v[e] = 0;
    }
  }
}

#if MASK
static __device__ void NAME(load_mask)(const moec_kernel_args *a, NAME(work) * w, NAME(sizes) z, int64_t b, int64_t g,
                                       int64_t first, int64_t j0) {
  for (int l = threadIdx.x / 32; l < MASK_LINES && first + l < z.lines; l += WARPS)
    NAME(mask)(a, b, g * R + (first + l) % R, (first + l) / R, j0, moec_least(j0 + SIDE, z.t), w->m + l * SIDE);
}
#endif

/* From a product of q and k, and one of dy and v: the probability, and the gradient of the scaled product. */
MOEC_INLINE void NAME(differentiate)(NAME(work) * w, int l, int j, bool visible, float x, float g) {
  float slope;
  x = moec_softcap(x, SOFTCAP, &slope);
#if MASK == 1
  visible = visible && w->m[(MASK_LINES > 1 ? l : 0) * SIDE + j] == 0;
#elif MASK == 2
  if (visible) x += w->m[(MASK_LINES > 1 ? l : 0) * SIDE + j];
#endif
  const float p = moec_exp_f32((visible ? x : -INFINITY) - w->lse[l]);
  w->s[l * (SIDE + 1) + j] = p;
  w->g[l * (SIDE + 1) + j] = p * (g - w->delta[l]) * slope;
}

/* w->s and w->g of lines from |first| and keys from |j0|, which are loaded. */
static __device__ void NAME(tile)(NAME(work) * w, NAME(sizes) z, int64_t first, int64_t j0) {
  const int row = threadIdx.x / 16, column = threadIdx.x % 16;
  float x[2][2] = {}, y[2][2] = {};
#pragma unroll 4
  for (int d = 0; d < (D); d++)
    for (int r = 0; r < 2; r++)
      for (int c = 0; c < 2; c++) x[r][c] += w->q[(row + 16 * r) * D_ROW + d] * w->k[(column + 16 * c) * D_ROW + d];
#pragma unroll 4
  for (int e = 0; e < (E); e++)
    for (int r = 0; r < 2; r++)
      for (int c = 0; c < 2; c++) y[r][c] += w->dy[(row + 16 * r) * E_ROW + e] * w->v[(column + 16 * c) * E_ROW + e];
  for (int r = 0; r < 2; r++)
    for (int c = 0; c < 2; c++) {
      const int l = row + 16 * r, j = column + 16 * c;
      const int64_t i = (first + l) / R;
      const bool visible = first + l < z.lines && j0 + j < z.t && (!CAUSAL || j0 + j <= i + z.t - z.s);
      NAME(differentiate)(w, l, j, visible, x[r][c], y[r][c]);
    }
}

enum { NAME(D_EACH) = ((D) + 15) / 16, NAME(E_EACH) = ((E) + 15) / 16 };

/* sum[r][c] += for i: m[i * m_step + (row + 16 r) * m_row] * x[i][column + 16 c], x of |size| columns */
#define ADD(sum, each, m, m_row, m_step, x, x_row, size)                                                         \
  for (int i = 0; i < SIDE; i++) {                                                                               \
    const float m0 = (m)[i * (m_step) + row * (m_row)], m1 = (m)[i * (m_step) + (row + 16) * (m_row)];           \
    _Pragma("unroll") for (int c = 0; c < each; c++) {                                                           \
      const float v = column + 16 * c < (size) ? (x)[i * (x_row) + column + 16 * c] : 0;                         \
      sum[0][c] += m0 * v, sum[1][c] += m1 * v;                                                                  \
    }                                                                                                            \
  }

#if DQ >= 0
static __device__ void NAME(line_task)(const moec_kernel_args *a, NAME(work) * w, NAME(sizes) z, int64_t b, int64_t g,
                                       int64_t first) {
  const int row = threadIdx.x / 16, column = threadIdx.x % 16;
  const int64_t last = moec_least(first + SIDE, z.lines) - 1;
  const int64_t end = CAUSAL ? moec_least(z.t, last / R + z.t - z.s + 1) : z.t;
  float dq[2][NAME(D_EACH)] = {};
  NAME(load_lines)(a, w, z, b, g, first);
  for (int64_t j0 = 0; j0 < end; j0 += SIDE) {
    NAME(load_keys)(a, w, z, b, g, j0);
#if MASK
    NAME(load_mask)(a, w, z, b, g, first, j0);
#endif
    __syncthreads();
    NAME(tile)(w, z, first, j0);
    __syncthreads();
    ADD(dq, NAME(D_EACH), w->g, SIDE + 1, 1, w->k, D_ROW, D)
    __syncthreads();
  }
  OUT_TYPE *out = (OUT_TYPE *)a->buf[DQ];
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int64_t at = first + row + 16 * r, i = at / R, h = g * R + at % R;
#pragma unroll
    for (int c = 0; c < NAME(D_EACH); c++)
      if (at < z.lines && column + 16 * c < (D))
        out[((b * z.s + i) * (H) + h) * (D) + column + 16 * c] = STORE(dq[r][c] * SCALE);
  }
}
#endif

#if KEY_TASKS
#define STORE_KEYS(buffer, sum, each, size)                                                        \
  _Pragma("unroll") for (int r = 0; r < 2; r++) _Pragma("unroll") for (int c = 0; c < each; c++) { \
    const int64_t j = j0 + row + 16 * r;                                                           \
    if (j < z.t && column + 16 * c < (size))                                                       \
      ((OUT_TYPE *)a->buf[buffer])[((b * z.t + j) * (G) + g) * (size) + column + 16 * c] = STORE(sum[r][c]); \
  }

static __device__ void NAME(key_task)(const moec_kernel_args *a, NAME(work) * w, NAME(sizes) z, int64_t b, int64_t g,
                                      int64_t j0) {
  const int row = threadIdx.x / 16, column = threadIdx.x % 16;
  float dk[2][NAME(D_EACH)] = {}, dv[2][NAME(E_EACH)] = {};
  const int64_t seen = CAUSAL ? moec_greatest(j0 - (z.t - z.s), 0) * R / SIDE * SIDE : 0; /* the first that sees it */
  NAME(load_keys)(a, w, z, b, g, j0);
  for (int64_t first = seen; first < z.lines; first += SIDE) {
    NAME(load_lines)(a, w, z, b, g, first);
#if MASK
    NAME(load_mask)(a, w, z, b, g, first, j0);
#endif
    __syncthreads();
    NAME(tile)(w, z, first, j0);
    __syncthreads();
    if (DK >= 0) ADD(dk, NAME(D_EACH), w->g, 1, SIDE + 1, w->q, D_ROW, D)
    if (DV >= 0) ADD(dv, NAME(E_EACH), w->s, 1, SIDE + 1, w->dy, E_ROW, E)
    __syncthreads();
  }
#if DK >= 0
  STORE_KEYS(DK, dk, NAME(D_EACH), D)
#endif
#if DV >= 0
  STORE_KEYS(DV, dv, NAME(E_EACH), E)
#endif
}
#undef STORE_KEYS
#endif

#if DSINK >= 0
/* dsink[h]: as many terms as there are queries, so the sum is a double. A warp takes every eighth. */
static __device__ void NAME(sink_task)(const moec_kernel_args *a, NAME(work) * w, NAME(sizes) z, int64_t batches,
                                       int64_t h) {
  MOEC_BLOCK_TEAM
  (void)team, (void)n_teams;
  const int warp = self / 32;
  double sum = 0;
  float sink;
  NAME(sink)(a, h, &sink);
  for (int64_t at = warp; at < batches * z.s; at += WARPS) {
    float lse, delta;
    NAME(line)(a, at / z.s, h, at % z.s, w->dy + warp * E_ROW, w->y + warp * (E), &lse, &delta);
    if (self % 32 == 0) sum -= (double)(moec_exp_f32(sink - lse) * delta);
    __syncwarp();
  }
  MOEC_BLOCK_JOIN(double, sum, sum += other;, WARPS)
  if (self == 0) ((OUT_TYPE *)a->buf[DSINK])[h] = STORE((float)sum);
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
KERNEL(const __grid_constant__ moec_kernel_args args, int64_t n_rows) {
  const moec_kernel_args *const a = &args;
  NAME(work) *w = (NAME(work) *)moec_dynamic;
  const int64_t queries = (S), batches = (B), pairs = batches * (G);
  const NAME(sizes) z = {queries, (T), queries * R};
  const int64_t lines = (z.lines + SIDE - 1) / SIDE, keys = (z.t + SIDE - 1) / SIDE;
  const int64_t line_tasks = DQ >= 0 ? pairs * lines : 0, key_tasks = KEY_TASKS ? pairs * keys : 0;
  (void)line_tasks, (void)key_tasks, (void)keys;
  for (int64_t task = blockIdx.x; task < n_rows; task += gridDim.x) {
    int64_t t = task;
#if KEY_TASKS
    if (t >= 0 && t < key_tasks) NAME(key_task)(a, w, z, t / keys / (G), t / keys % (G), t % keys * SIDE);
#endif
    t -= key_tasks;
#if DQ >= 0
    if (t >= 0 && t < line_tasks)
      NAME(line_task)(a, w, z, t / lines / (G), t / lines % (G), (lines - 1 - t % lines) * SIDE);
#endif
    t -= line_tasks;
#if DSINK >= 0
    if (t >= 0) NAME(sink_task)(a, w, z, batches, t);
#endif
    __syncthreads();
  }
}

#undef ADD
#undef SIDE
#undef THREADS
#undef WARPS
#undef D_ROW
#undef E_ROW
#undef R
#undef KEY_TASKS
#undef MASK_LINES
