/* ---- the loss over a large vocabulary ----------------------------------------------------------------
 * Rows of logits become their losses and, in place, the gradients of these. A block works on a row, which it reads once
 * for the largest element and the sum of the exponentials together, each thread rescaling its sum where it meets a
 * larger element, and once more to write. The first KEPT vectors of every thread stay in registers in between; the rest
 * comes from the L2 cache, which has room for what all multiprocessors left there.
 *
 * Powers are of 2: e^x = 2^(x LOG2E). The same rounded constant everywhere makes it the softmax of logits changed by
 * less than half a unit in their last place. */

typedef struct alignas(16) NAME(vector) {
  T of[16 / sizeof(T)];
} NAME(vector);

enum { NAME(WIDTH) = 16 / sizeof(T), NAME(KEPT) = 5, NAME(THREADS) = 1024 };

#define LOSS_LOG2E 1.4426950408889634f
#define LOSS_LN2 0.6931471805599453f
#define LOSS_LARGEST 3e38f

/* The sum of 2^(x LOG2E - base). base is finite also for infinities, so that differences are no NaN: a row of -inf has
 * the sum 0, one with +inf the sum inf. */
typedef struct NAME(running) {
  float base, sum;
} NAME(running);

/* Elements i, i + 1, ... of |v|. */
MOEC_INLINE void NAME(count)(NAME(running) *r, NAME(vector) x, int64_t i, int64_t v) {
  float of[NAME(WIDTH)], top = -INFINITY;
#pragma unroll
  for (int k = 0; k < NAME(WIDTH); k++) of[k] = (float)LOAD(x.of[k]);
  if (i + NAME(WIDTH) > v)
#pragma unroll
    for (int k = 0; k < NAME(WIDTH); k++) of[k] = i + k < v ? of[k] : -INFINITY;
#pragma unroll
  for (int k = 0; k < NAME(WIDTH); k++) top = fmaxf(top, of[k]);
  top *= LOSS_LOG2E;
  if (top > r->base) {
    if (top > LOSS_LARGEST) top = LOSS_LARGEST;
    r->sum *= moec_exp2_f32(r->base - top);
    r->base = top;
  }
#pragma unroll
  for (int k = 0; k < NAME(WIDTH); k++) r->sum += moec_exp2_f32(of[k] * LOSS_LOG2E - r->base);
}

/* The gradients by the way of the sum; |p|: scale / sum. Elements behind the row are written too: nobody reads them. */
MOEC_INLINE NAME(vector) NAME(slope)(NAME(vector) x, float base, float p) {
  NAME(vector) y;
#pragma unroll
  for (int k = 0; k < NAME(WIDTH); k++) y.of[k] = STORE(moec_exp2_f32((float)LOAD(x.of[k]) * LOSS_LOG2E - base) * p);
  return y;
}

/* Vector number |k| of this thread. */
#define LOSS_AT(row, k) (*(NAME(vector) *)((row) + first + (k) * step))

extern "C" __global__ void __launch_bounds__(1024)
NAME(loss)(T *logits, const int64_t *__restrict__ labels, const float *__restrict__ scale, float *__restrict__ nll,
           int64_t rows, int64_t v, int64_t lead, int64_t ignore, int32_t *fault) {
  MOEC_BLOCK_TEAM
  const int64_t first = (int64_t)self * NAME(WIDTH), step = NAME(THREADS) * NAME(WIDTH);
  const int n = first < v ? (int)((v - first + step - 1) / step) : 0; /* vectors of this thread */
  for (int64_t r = team; r < rows; r += n_teams) {
    T *row = logits + r * lead;
    int64_t label = labels[r];
    if (label == ignore) {
      NAME(vector) zero = {};
      for (int k = 0; k < n; k++) LOSS_AT(row, k) = zero;
      if (self == 0 && nll) nll[r] = 0;
      continue;
    }
    if (label < 0 || label >= v) *fault = 1, label = 0;
    const float own = v ? (float)LOAD(row[label]) : 0, g = scale[r];
    NAME(vector) kept[NAME(KEPT)];
    NAME(running) my = {-LOSS_LARGEST, 0};
#pragma unroll
    for (int k = 0; k < NAME(KEPT); k++)
      if (k < n) kept[k] = LOSS_AT(row, k);
#pragma unroll
    for (int k = 0; k < NAME(KEPT); k++)
      if (k < n) NAME(count)(&my, kept[k], first + k * step, v);
#pragma unroll 4
    for (int k = NAME(KEPT); k < n; k++) NAME(count)(&my, LOSS_AT(row, k), first + k * step, v);
    float base = my.base;
    MOEC_BLOCK_JOIN(float, base, if (other > base) base = other;, NAME(THREADS) / 32)
    float sum = my.sum * moec_exp2_f32(my.base - base);
    MOEC_BLOCK_JOIN(float, sum, sum += other;, NAME(THREADS) / 32)
    if (self == 0 && nll) nll[r] = moec_log_f32(sum) - (own * LOSS_LOG2E - base) * LOSS_LN2;
    const float p = g / sum;
#pragma unroll 4
    for (int k = NAME(KEPT); k < n; k++) LOSS_AT(row, k) = NAME(slope)(LOSS_AT(row, k), base, p);
#pragma unroll
    for (int k = 0; k < NAME(KEPT); k++)
      if (k < n) LOSS_AT(row, k) = NAME(slope)(kept[k], base, p);
    if (v && label / NAME(WIDTH) % NAME(THREADS) == self) /* it wrote there */
      row[label] = STORE(moec_exp2_f32(own * LOSS_LOG2E - base) * p - g);
  }
}

#undef LOSS_AT
#undef LOSS_LOG2E
#undef LOSS_LN2
#undef LOSS_LARGEST
