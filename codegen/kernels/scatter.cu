/* ---- scatter ---------------------------------------------------------------------------------------
 * Updates of one place are applied in row-major order, by one thread: sums have one order, of assignments the last
 * wins. y holds x already. */

MOEC_INLINE SUM NAME(joined)(int32_t reduction, SUM a, SUM b) {
#if IS_FLOAT
  const bool above = a != a || a > b, below = a != a || a < b; /* NaN where either is */
#else
  const bool above = IS_SIGNED ? (int64_t)a > (int64_t)b : a > b, below = !above;
#endif
  switch (reduction) {
    case 1: return a + b;
    case 2: return a * b;
    case 3: return above ? a : b;
    case 4: return below ? a : b;
    default: return b;
  }
}

/* The index at |at| of an axis of |n|, counted from the end where negative; -1 and a fault where out of range. */
MOEC_INLINE int64_t NAME(place)(int32_t dtype, const void *i, int64_t at, int64_t n, int32_t *fault) {
  int64_t v = moec_index(dtype, i, at);
  v += v < 0 ? n : 0;
  if (v >= 0 && v < n) return v;
  *fault = 1;
  return -1;
}

/* A thread works on the indices along |axis| with given other coordinates: their places are nobody else's. */
extern "C" __global__ void __launch_bounds__(128)
NAME(scatter_elements)(T *y, const void *__restrict__ i, int32_t i_dtype, const T *__restrict__ u,
                       const __grid_constant__ moec_cuda_shape y_shape, const __grid_constant__ moec_cuda_shape i_shape,
                       int64_t axis, int32_t reduction, int32_t *fault) {
  int64_t lines = 1;
  for (int64_t d = 0; d < i_shape.rank; d++) lines *= d == axis ? 1 : i_shape.dims[d];
  for (int64_t line = MOEC_FIRST; line < lines; line += MOEC_STEP) {
    int64_t rest = line, from = 0, to = 0, i_stride = 1, y_stride = 1, i_step = 0, y_step = 0;
    for (int64_t d = i_shape.rank - 1; d >= 0; d--) {
      if (d == axis) {
        i_step = i_stride, y_step = y_stride;
      } else {
        from += rest % i_shape.dims[d] * i_stride, to += rest % i_shape.dims[d] * y_stride;
        rest /= i_shape.dims[d];
      }
      i_stride *= i_shape.dims[d], y_stride *= y_shape.dims[d];
    }
    for (int64_t k = 0; k < i_shape.dims[axis]; k++, from += i_step) {
      const int64_t at = NAME(place)(i_dtype, i, from, y_shape.dims[axis], fault);
      if (at < 0) continue;
      T *place = y + to + at * y_step;
      *place = reduction ? STORE(NAME(joined)(reduction, LOAD(*place), LOAD(u[from]))) : u[from];
    }
  }
}

/* Which slice of y row |r| of the indices names; -1 and a fault where out of range. */
MOEC_INLINE int64_t NAME(slice)(const void *i, int32_t dtype, int64_t r, int64_t q, const moec_cuda_shape *y_shape,
                                int32_t *fault) {
  int64_t to = 0;
  for (int64_t d = 0; d < q; d++) {
    const int64_t at = NAME(place)(dtype, i, r * q + d, y_shape->dims[d], fault);
    if (at < 0) return -1;
    to = to * y_shape->dims[d] + at;
  }
  return to;
}

/* A block works on a row when it is the first of its slice - the last, of assignments - and then on all rows of that
 * slice, whose updates it adds up in order. */
extern "C" __global__ void __launch_bounds__(256)
NAME(scatter_nd)(T *y, const void *__restrict__ i, int32_t i_dtype, const T *__restrict__ u,
                 const __grid_constant__ moec_cuda_shape y_shape, int64_t q, int64_t rows, int64_t size,
                 int32_t reduction, int32_t *fault) {
  enum { EACH = 4 }; /* elements of the slice a thread has at a time */
  __shared__ uint32_t same[8];
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const int64_t to = NAME(slice)(i, i_dtype, r, q, &y_shape, fault);
    bool other = to < 0;
    for (int64_t s = (reduction ? 0 : r + 1) + threadIdx.x; s < (reduction ? r : rows) && !other; s += 256)
      other = NAME(slice)(i, i_dtype, s, q, &y_shape, fault) == to;
    if (__syncthreads_or(other)) continue;
    for (int64_t first = threadIdx.x; first - threadIdx.x < size; first += 256 * EACH) {
      SUM sum[EACH];
      for (int c = 0; c < EACH; c++) sum[c] = first + 256 * c < size ? (SUM)LOAD(y[to * size + first + 256 * c]) : 0;
      for (int64_t begin = r; begin < rows; begin += 256) {
        const int64_t s = begin + threadIdx.x;
        const bool mine = s < rows && NAME(slice)(i, i_dtype, s, q, &y_shape, fault) == to;
        const uint32_t bits = __ballot_sync(0xffffffffu, mine);
        if (threadIdx.x % 32 == 0) same[threadIdx.x / 32] = bits;
        __syncthreads();
        for (int w = 0; w < 8; w++)
          for (uint32_t left = same[w]; left; left &= left - 1) {
            const T *from = u + (begin + 32 * w + __ffs(left) - 1) * size;
            for (int c = 0; c < EACH; c++)
              if (first + 256 * c < size) sum[c] = NAME(joined)(reduction, sum[c], LOAD(from[first + 256 * c]));
          }
        __syncthreads();
      }
      for (int c = 0; c < EACH; c++)
        if (first + 256 * c < size) y[to * size + first + 256 * c] = STORE(sum[c]);
    }
  }
}
