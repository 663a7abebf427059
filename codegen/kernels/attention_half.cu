/* Flash attention on tensor cores, for operands of 16 bits that are views of arguments. What
 * codegen/kernels/attention.c says of definitions holds here too, but q, k and v have no functions:
 *
 *   Q_LINE(b, i, h) K_LINE(b, j, h) V_LINE(b, j, h)   where a vector begins, at a multiple of 16 bytes
 *   MULTIPLY PAIR     moec_multiply_bf16 and moec_pair_bf16, or those of f16
 *   SHARED            bytes of dynamic shared memory
 *
 * A block works on 64 of the S*R lines (query, head) of a (batch, key head), against blocks of 64 keys; a warp has 16
 * lines. Keys are copied while values are multiplied, and values while keys are. Probabilities are rounded to 16 bits
 * for the product with values, sums are of f32. */
#include "codegen/kernels/tensor.cu"
#define LINES 64
#define KEYS 64
#define THREADS 128
#define WARPS (THREADS / 32)
#define D_ROW (((D) + 15) / 16 * 16 + 8) /* rows of 16 bytes more: those of a tile are in different banks */
#define E_ROW (((E) + 15) / 16 * 16 + 8)
#define R ((H) / (G))
#define MASK_LINES (MASK_BY_HEAD || MASK_BY_ROW ? LINES : 1)

typedef struct NAME(work) {
  uint16_t q[LINES * D_ROW], k[KEYS * D_ROW], v[KEYS * E_ROW];
#if MASK
  float m[MASK_LINES * KEYS];
#endif
} NAME(work);
static_assert(sizeof(NAME(work)) <= SHARED, "shared memory");

/* Columns behind the last up to a multiple of 16 are zeros, once. */
#define PAD(rows, row, size)                                                 \
  for (int x = threadIdx.x; (size) % 16 && x < (rows) * 8; x += THREADS)     \
    w->row[x / 8 * (size##_ROW) + (size) + x % 8] = 0;

enum { NAME(D_STEPS) = ((D) + 15) / 16, NAME(E_STEPS) = ((E) + 15) / 16 };

/* What a lane has of the scores of its warp, then of their exponentials: two lines, l / 4 and 8 more. */
typedef struct NAME(lines) {
  float top[2], sum[2], o[2 * NAME(E_STEPS)][4];
} NAME(lines);

static __device__ void NAME(load_lines)(const moec_kernel_args *a, NAME(work) * w, int64_t b, int64_t g, int64_t first,
                                        int64_t lines) {
  for (int x = threadIdx.x; x < LINES * ((D) / 8); x += THREADS) {
    const int l = x / ((D) / 8), c = x % ((D) / 8) * 8;
    const int64_t at = l < lines ? first + l : first;
    moec_copy_16(w->q + l * D_ROW + c, Q_LINE(b, at / R, g * R + at % R) + c, l < lines);
  }
}

/* Keys j0 .. j0 + n; behind them zeros. */
static __device__ void NAME(load_keys)(const moec_kernel_args *a, NAME(work) * w, int64_t b, int64_t g, int64_t j0,
                                       int64_t n) {
  for (int x = threadIdx.x; x < KEYS * ((D) / 8); x += THREADS) {
    const int j = x / ((D) / 8), c = x % ((D) / 8) * 8;
    moec_copy_16(w->k + j * D_ROW + c, K_LINE(b, j0 + (j < n ? j : 0), g) + c, j < n);
  }
}

static __device__ void NAME(load_values)(const moec_kernel_args *a, NAME(work) * w, int64_t b, int64_t g, int64_t j0,
                                         int64_t n) {
  for (int x = threadIdx.x; x < KEYS * ((E) / 8); x += THREADS) {
    const int j = x / ((E) / 8), c = x % ((E) / 8) * 8;
    moec_copy_16(w->v + j * E_ROW + c, V_LINE(b, j0 + (j < n ? j : 0), g) + c, j < n);
  }
}

#if MASK
static __device__ void NAME(load_mask)(const moec_kernel_args *a, NAME(work) * w, int64_t b, int64_t g, int64_t first,
                                       int64_t lines, int64_t j0, int64_t n) {
  for (int l = threadIdx.x / 32; l < MASK_LINES && l < lines; l += WARPS)
    NAME(mask)(a, b, g * R + (first + l) % R, (first + l) / R, j0, j0 + n, w->m + l * KEYS);
}
#endif

/* s[tile][4] = scores of the warp's lines with the keys of w->k, tiles of 8 keys. */
static __device__ void NAME(scores)(const NAME(work) * w, float (*s)[4]) {
  const int lane = threadIdx.x % 32, tile = lane / 8, row = lane % 8, first = threadIdx.x / 32 * 16;
#pragma unroll
  for (int t = 0; t < KEYS / 8; t++)
    for (int i = 0; i < 4; i++) s[t][i] = 0;
#pragma unroll
  for (int d = 0; d < NAME(D_STEPS); d++) {
    uint32_t q[4], k[4];
    moec_load_tiles(q, w->q + (first + tile % 2 * 8 + row) * D_ROW + d * 16 + tile / 2 * 8);
#pragma unroll
    for (int t = 0; t < KEYS / 16; t++) {
      moec_load_tiles(k, w->k + (t * 16 + tile / 2 * 8 + row) * D_ROW + d * 16 + tile % 2 * 8);
      MULTIPLY(s[2 * t], q, k[0], k[1]);
      MULTIPLY(s[2 * t + 1], q, k[2], k[3]);
    }
  }
}

/* Scores as they enter the softmax: scaled, capped, hidden keys -inf. |last|: the last key that a line may see. */
static __device__ void NAME(finish)(const NAME(work) * w, float (*s)[4], int64_t j0, const int64_t *last) {
  const int lane = threadIdx.x % 32, line = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
  for (int t = 0; t < KEYS / 8; t++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int j = t * 8 + lane % 4 * 2 + i % 2, l = line + i / 2 * 8;
      float x = s[t][i] * SCALE;
      bool visible = j0 + j <= last[i / 2];
      if (SOFTCAP > 0) x = SOFTCAP * moec_tanh_f32(x / SOFTCAP);
#if MASK == 1
      visible = visible && w->m[(MASK_LINES > 1 ? l : 0) * KEYS + j] == 0;
#elif MASK == 2
      if (visible) x += w->m[(MASK_LINES > 1 ? l : 0) * KEYS + j];
#endif
      (void)l;
      s[t][i] = visible ? x : -INFINITY;
    }
}

MOEC_INLINE float NAME(greater)(float x, float y) { return x > y ? x : y; }

/* s becomes exponentials; top, sum and o, of what was summed before, follow. */
static __device__ void NAME(softmax)(NAME(lines) * n, float (*s)[4]) {
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float top = n->top[r], more = 0;
    for (int t = 0; t < KEYS / 8; t++) top = NAME(greater)(top, NAME(greater)(s[t][2 * r], s[t][2 * r + 1]));
    for (int d = 1; d < 4; d *= 2) top = NAME(greater)(top, __shfl_xor_sync(0xffffffffu, top, d));
    const float base = top == -INFINITY ? 0 : top; /* nothing visible yet: exp(-inf - 0) is 0 */
    const float decay = __expf(n->top[r] - base);
    for (int t = 0; t < KEYS / 8; t++)
      for (int i = 2 * r; i < 2 * r + 2; i++) s[t][i] = __expf(s[t][i] - base), more += s[t][i];
    for (int d = 1; d < 4; d *= 2) more += __shfl_xor_sync(0xffffffffu, more, d);
    n->sum[r] = n->sum[r] * decay + more, n->top[r] = top;
    for (int t = 0; t < 2 * NAME(E_STEPS); t++) n->o[t][2 * r] *= decay, n->o[t][2 * r + 1] *= decay;
  }
}

/* o += exponentials times the values of w->v */
static __device__ void NAME(values)(const NAME(work) * w, NAME(lines) * n, const float (*s)[4]) {
  const int lane = threadIdx.x % 32, tile = lane / 8, row = lane % 8;
#pragma unroll
  for (int j = 0; j < KEYS / 16; j++) {
    const float *x = s[2 * j], *y = s[2 * j + 1];
    const uint32_t p[4] = {PAIR(x[0], x[1]), PAIR(x[2], x[3]), PAIR(y[0], y[1]), PAIR(y[2], y[3])};
#pragma unroll
    for (int e = 0; e < NAME(E_STEPS); e++) {
      uint32_t v[4];
      moec_load_tiles_across(v, w->v + (j * 16 + tile % 2 * 8 + row) * E_ROW + e * 16 + tile / 2 * 8);
      MULTIPLY(n->o[2 * e], p, v[0], v[1]);
      MULTIPLY(n->o[2 * e + 1], p, v[2], v[3]);
    }
  }
}

static __device__ void NAME(store)(const moec_kernel_args *a, const NAME(lines) * n, int64_t b, int64_t g,
                                   int64_t first, int64_t lines) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int l = threadIdx.x / 32 * 16 + lane / 4 + r * 8;
    if (l >= lines) continue;
    const int64_t at = (b * (S) + (first + l) / R) * (H) + g * R + (first + l) % R;
    const float total = n->sum[r] == 0 ? 1 : n->sum[r]; /* no visible key: zeros */
    uint32_t *out = (uint32_t *)((OUT_TYPE *)a->buf[OUT] + at * (E));
#pragma unroll
    for (int t = 0; t < 2 * NAME(E_STEPS); t++)
      if (t * 8 < (E)) out[t * 4 + lane % 4] = PAIR(n->o[t][2 * r] / total, n->o[t][2 * r + 1] / total);
#if LSE
    const float base = n->top[r] == -INFINITY ? 0 : n->top[r];
    if (lane % 4 == 0) ((float *)a->buf[LSE_BUFFER])[at] = base + logf(n->sum[r]);
#endif
  }
}

static __device__ void NAME(start)(const moec_kernel_args *a, NAME(lines) * n, int64_t g, int64_t first) {
  const int lane = threadIdx.x % 32;
  for (int r = 0; r < 2; r++) {
    float top = -INFINITY;
#if SINK
    NAME(sink)(a, g * R + (first + threadIdx.x / 32 * 16 + lane / 4 + r * 8) % R, &top);
#endif
    n->top[r] = top, n->sum[r] = top == -INFINITY ? 0 : 1; /* exp(sink - top) */
  }
  (void)lane;
  for (int t = 0; t < 2 * NAME(E_STEPS); t++)
    for (int i = 0; i < 4; i++) n->o[t][i] = 0;
}

/* The lines first .. first + lines against all keys they see, up to |end|. */
static __device__ void NAME(task)(const moec_kernel_args *a, NAME(work) * w, int64_t b, int64_t g, int64_t first,
                                  int64_t lines, int64_t end) {
  const int64_t keys = (T), queries = (S);
  float s[KEYS / 8][4];
  NAME(lines) n;
  int64_t last[2];
  for (int r = 0; r < 2; r++) {
    const int64_t i = (first + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + r * 8) / R;
    last[r] = CAUSAL ? moec_least(i + keys - queries, keys - 1) : keys - 1;
  }
  NAME(start)(a, &n, g, first);
  NAME(load_lines)(a, w, b, g, first, lines);
  if (end > 0) NAME(load_keys)(a, w, b, g, 0, moec_least(end, KEYS));
  for (int64_t j0 = 0; j0 < end; j0 += KEYS) {
    const int64_t left = end - j0;
    moec_copies_wait();
    __syncthreads();
    NAME(load_values)(a, w, b, g, j0, moec_least(left, KEYS));
#if MASK
    NAME(load_mask)(a, w, b, g, first, lines, j0, moec_least(left, KEYS));
#endif
    NAME(scores)(w, s);
    moec_copies_wait();
    __syncthreads();
    if (left > KEYS) NAME(load_keys)(a, w, b, g, j0 + KEYS, moec_least(left - KEYS, KEYS));
    NAME(finish)(w, s, j0, last);
    NAME(softmax)(&n, s);
    NAME(values)(w, &n, s);
  }
  moec_copies_wait();
  NAME(store)(a, &n, b, g, first, lines);
}

extern "C" __global__ void __launch_bounds__(THREADS)
KERNEL(const __grid_constant__ moec_kernel_args args, int64_t n_rows) {
  const moec_kernel_args *const a = &args;
  NAME(work) *w = (NAME(work) *)moec_dynamic;
  const int64_t queries = (S), keys = (T), all = queries * R, blocks = (all + LINES - 1) / LINES;
  PAD(LINES, q, D)
  PAD(KEYS, k, D)
  PAD(KEYS, v, E)
  for (int64_t t = blockIdx.x; t < n_rows; t += gridDim.x) {
    const int64_t first = (blocks - 1 - t % blocks) * LINES; /* the longest first */
    const int64_t lines = moec_least(all - first, LINES), b = t / blocks / (G), g = t / blocks % (G);
    const int64_t end = CAUSAL ? moec_least(keys, (first + lines - 1) / R + keys - queries + 1) : keys;
    __syncthreads();
    NAME(task)(a, w, b, g, first, lines, end);
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
#undef PAD
