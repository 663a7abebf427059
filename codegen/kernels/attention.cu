/* Flash attention, one kernel a function: what codegen/kernels/attention.c says of definitions holds here too, and
 *
 *   SHARED            bytes of dynamic shared memory
 *
 * The functions that copy operands are called by whole warps, for one key at a time. The R = H/G query heads of a key
 * head share its keys: a block works on one (batch, key head) and 64 of its S*R lines (query, head), against blocks of
 * 32 keys. A thread has 4 x 2 scores of a tile, and of the result 4 lines and every 16th element. */
#define LINES 64
#define KEYS 32
#define THREADS 256
#define WARPS (THREADS / 32)
#define D_ROW ((D) | 1) /* odd: threads that read a column touch all banks */
#define E_ROW (((E) + 15) / 16 * 16)
#define R ((H) / (G))
#define MASK_LINES (MASK_BY_HEAD || MASK_BY_ROW ? LINES : 1)

typedef struct NAME(work) {
  float q[LINES * D_ROW]; /* [line][d], scaled */
  float k[KEYS * D_ROW], v[KEYS * E_ROW];
  float s[LINES * (KEYS + 1)]; /* [line][key]: scores, then their exponentials */
  float top[LINES], sum[LINES], decay[LINES];
#if MASK
  float m[MASK_LINES * KEYS];
#endif
} NAME(work);
static_assert(sizeof(NAME(work)) <= SHARED, "shared memory");

/* Lines first .. first + lines; a warp loads one at a time. Lines behind the last are zeros. */
static __device__ void NAME(load_lines)(const moec_kernel_args *a, NAME(work) * w, int64_t b, int64_t g, int64_t first,
                                        int64_t lines) {
  const int lane = threadIdx.x % 32;
  for (int l = threadIdx.x / 32; l < LINES; l += WARPS) {
    float *q = w->q + l * D_ROW;
    float top = -INFINITY;
    if (l < lines) {
      const int64_t i = (first + l) / R, h = g * R + (first + l) % R;
      NAME(q)(a, b, h, i, q);
      __syncwarp();
#if SINK
      NAME(sink)(a, h, &top);
#endif
    }
    for (int d = lane; d < (D); d += 32) q[d] = l < lines ? q[d] * SCALE : 0;
    if (lane == 0) w->top[l] = top, w->sum[l] = top == -INFINITY ? 0 : 1; /* exp(sink - top) */
  }
}

/* Keys j0 .. j0 + n, and the mask of all lines. */
static __device__ void NAME(load_keys)(const moec_kernel_args *a, NAME(work) * w, int64_t b, int64_t g, int64_t first,
                                       int64_t lines, int64_t j0, int64_t n) {
  const int lane = threadIdx.x % 32;
  for (int j = threadIdx.x / 32; j < KEYS; j += WARPS) {
    float *k = w->k + j * D_ROW, *v = w->v + j * E_ROW;
    if (j < n) {
      NAME(k)(a, b, g, j0 + j, j0 + j + 1, k);
      NAME(v)(a, b, g, j0 + j, j0 + j + 1, v);
    } else {
      for (int d = lane; d < (D); d += 32) k[d] = 0;
      for (int e = lane; e < (E); e += 32) v[e] = 0;
    }
  }
#if MASK
  for (int l = threadIdx.x / 32; l < MASK_LINES && l < lines; l += WARPS)
    NAME(mask)(a, b, g * R + (first + l) % R, (first + l) / R, j0, j0 + n, w->m + l * KEYS);
#endif
}

/* A score as it enters the softmax: capped, hidden keys -inf. */
MOEC_INLINE float NAME(finish)(const NAME(work) * w, float x, int l, int j, bool visible) {
  if (SOFTCAP > 0) x = SOFTCAP * moec_tanh_f32(x / SOFTCAP);
#if MASK == 1
  visible = visible && w->m[(MASK_LINES > 1 ? l : 0) * KEYS + j] == 0;
#elif MASK == 2
  x += w->m[(MASK_LINES > 1 ? l : 0) * KEYS + j];
#endif
  return visible ? x : -INFINITY;
}

/* w->s = the scores of a tile; |last|: the last key each of this thread's lines may see. */
static __device__ void NAME(scores)(NAME(work) * w, int64_t j0, const int64_t *last) {
  const int row = threadIdx.x / 16, column = threadIdx.x % 16;
  float x[4][2] = {};
#pragma unroll 4
  for (int d = 0; d < (D); d++) {
    float q[4], k[2];
    for (int r = 0; r < 4; r++) q[r] = w->q[(row + 16 * r) * D_ROW + d];
    for (int c = 0; c < 2; c++) k[c] = w->k[(column + 16 * c) * D_ROW + d];
    for (int r = 0; r < 4; r++)
      for (int c = 0; c < 2; c++) x[r][c] += q[r] * k[c];
  }
  for (int r = 0; r < 4; r++)
    for (int c = 0; c < 2; c++) {
      const int l = row + 16 * r, j = column + 16 * c;
      w->s[l * (KEYS + 1) + j] = NAME(finish)(w, x[r][c], l, j, j0 + j <= last[r]);
    }
}

/* w->s becomes exponentials; top, sum and decay (of what was summed before) follow. A lane has a key. */
static __device__ void NAME(softmax)(NAME(work) * w) {
  const int lane = threadIdx.x % 32;
  for (int l = threadIdx.x / 32; l < LINES; l += WARPS) {
    float *s = w->s + l * (KEYS + 1) + lane;
    float top = *s > w->top[l] ? *s : w->top[l];
    for (int d = 16; d; d >>= 1) {
      float other = __shfl_xor_sync(0xffffffffu, top, d);
      top = other > top ? other : top;
    }
    const float base = top == -INFINITY ? 0 : top; /* nothing visible yet: exp(-inf - 0) is 0 */
    float x = moec_exp_f32(*s - base), more = x;
    *s = x;
    for (int d = 16; d; d >>= 1) more += __shfl_xor_sync(0xffffffffu, more, d);
    if (lane) continue;
    const float decay = moec_exp_f32(w->top[l] - base);
    w->decay[l] = decay, w->sum[l] = w->sum[l] * decay + more, w->top[l] = top;
  }
}

enum { NAME(EACH) = E_ROW / 16 };

/* o = o * decay + exponentials times values */
static __device__ void NAME(values)(const NAME(work) * w, float (*o)[NAME(EACH)]) {
  const int row = threadIdx.x / 16, column = threadIdx.x % 16;
  for (int r = 0; r < 4; r++)
    for (int c = 0; c < NAME(EACH); c++) o[r][c] *= w->decay[row + 16 * r];
#pragma unroll 2
  for (int j = 0; j < KEYS; j++) {
    float s[4];
    for (int r = 0; r < 4; r++) s[r] = w->s[(row + 16 * r) * (KEYS + 1) + j];
#pragma unroll
    for (int c = 0; c < NAME(EACH); c++) {
      const float v = w->v[j * E_ROW + column + 16 * c];
      for (int r = 0; r < 4; r++) o[r][c] += s[r] * v;
    }
  }
}

static __device__ void NAME(store)(const moec_kernel_args *a, const NAME(work) * w, int64_t b, int64_t g,
                                   int64_t first, int64_t lines, const float (*o)[NAME(EACH)]) {
  const int row = threadIdx.x / 16, column = threadIdx.x % 16;
  OUT_TYPE *out = (OUT_TYPE *)a->buf[OUT];
#pragma unroll
  for (int r = 0; r < 4; r++) {
    const int l = row + 16 * r;
    if (l >= lines) continue;
    const int64_t at = (b * (S) + (first + l) / R) * (H) + g * R + (first + l) % R;
    const float total = w->sum[l] == 0 ? 1 : w->sum[l]; /* no visible key: zeros */
#pragma unroll
    for (int c = 0; c < NAME(EACH); c++)
      if (column + 16 * c < (E)) out[at * (E) + column + 16 * c] = STORE(o[r][c] / total);
#if LSE
    const float base = w->top[l] == -INFINITY ? 0 : w->top[l];
    if (column == 0) ((float *)a->buf[LSE_BUFFER])[at] = base + logf(w->sum[l]);
#endif
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
KERNEL(const __grid_constant__ moec_kernel_args args, int64_t n_rows) {
  const moec_kernel_args *const a = &args;
  NAME(work) *w = (NAME(work) *)moec_dynamic;
  const int64_t queries = (S), keys = (T), all = queries * R, blocks = (all + LINES - 1) / LINES;
  for (int64_t t = blockIdx.x; t < n_rows; t += gridDim.x) {
    const int64_t first = (blocks - 1 - t % blocks) * LINES; /* the longest first */
    const int64_t lines = moec_least(all - first, LINES), b = t / blocks / (G), g = t / blocks % (G);
    int64_t last[4], end = CAUSAL ? moec_least(keys, (first + lines - 1) / R + keys - queries + 1) : keys;
    for (int r = 0; r < 4; r++) {
      const int64_t i = (first + threadIdx.x / 16 + 16 * r) / R;
      last[r] = CAUSAL ? moec_least(i + keys - queries, keys - 1) : keys - 1;
    }
    float o[4][NAME(EACH)] = {};
    NAME(load_lines)(a, w, b, g, first, lines);
    for (int64_t j0 = 0; j0 < end; j0 += KEYS) {
      NAME(load_keys)(a, w, b, g, first, lines, j0, moec_least(end - j0, KEYS));
      __syncthreads();
      NAME(scores)(w, j0, last);
      __syncthreads();
      NAME(softmax)(w);
      __syncthreads();
      NAME(values)(w, o);
      __syncthreads();
    }
    __syncthreads();
    NAME(store)(a, w, b, g, first, lines, o);
    __syncthreads();
  }
}

#undef LINES
#undef KEYS
#undef THREADS
#undef WARPS
#undef D_ROW
#undef E_ROW
#undef R
#undef MASK_LINES
