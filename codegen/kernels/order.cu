/* ---- the order of updates ---------------------------------------------------------------------------
 * scatter_nd applies the updates of a place in row-major order: here its rows are sorted by place, equal ones by row.
 * A row's key is its place, with the row in the |bits| below it; no two are equal. Blocks sort chunks of keys; then
 * each key looks up, in all other chunks, how many are smaller, which is where it belongs. */

enum { MOEC_ORDER_CHUNK = 1024, MOEC_ORDER_THREADS = MOEC_ORDER_CHUNK / 2 };

/* The index at |at| of an axis of |n|, counted from the end where negative; -1 and a fault where out of range. */
MOEC_INLINE int64_t moec_place_at(int32_t dtype, const void *i, int64_t at, int64_t n, int32_t *fault) {
  int64_t v = moec_index(dtype, i, at);
  v += v < 0 ? n : 0;
  if (v >= 0 && v < n) return v;
  *fault = 1;
  return -1;
}

/* Which slice of y row |r| of i[rows, q] names; behind the last and a fault where out of range. */
MOEC_INLINE int64_t moec_slice_of(const void *i, int32_t dtype, int64_t r, int64_t q, const moec_cuda_shape *y_shape,
                                  int64_t slices, int32_t *fault) {
  int64_t to = 0;
  for (int64_t d = 0; d < q; d++) {
    const int64_t at = moec_place_at(dtype, i, r * q + d, y_shape->dims[d], fault);
    if (at < 0) return slices;
    to = to * y_shape->dims[d] + at;
  }
  return to;
}

/* A block sorts a chunk by exchanges of pairs, one a thread: every other run of |run| keys falls. Pairs at most 32
 * apart are of 64 keys that one warp has. */
extern "C" __global__ void __launch_bounds__(512)
moec_order_chunks(const void *i, int32_t i_dtype, const __grid_constant__ moec_cuda_shape y_shape, int64_t q,
                  int64_t rows, int64_t slices, int32_t bits, int64_t *chunks, int32_t *fault) {
  __shared__ int64_t keys[MOEC_ORDER_CHUNK];
  const int64_t n_chunks = (rows + MOEC_ORDER_CHUNK - 1) / MOEC_ORDER_CHUNK;
  for (int64_t chunk = blockIdx.x; chunk < n_chunks; chunk += gridDim.x) {
    for (int k = threadIdx.x; k < MOEC_ORDER_CHUNK; k += MOEC_ORDER_THREADS) {
      const int64_t r = chunk * MOEC_ORDER_CHUNK + k;
      keys[k] = INT64_MAX;
      if (r < rows) keys[k] = moec_slice_of(i, i_dtype, r, q, &y_shape, slices, fault) << bits | r;
    }
    __syncthreads();
    for (int run = 2; run <= MOEC_ORDER_CHUNK; run *= 2) {
      for (int d = run / 2; d; d /= 2) {
        const int low = threadIdx.x / d * 2 * d + threadIdx.x % d;
        const int64_t a = keys[low], b = keys[low + d];
        if ((a > b) == !(low & run)) keys[low] = b, keys[low + d] = a;
        if (d > 32) __syncthreads();
        else __syncwarp();
      }
      __syncthreads();
    }
    for (int k = threadIdx.x; k < MOEC_ORDER_CHUNK; k += MOEC_ORDER_THREADS)
      chunks[chunk * MOEC_ORDER_CHUNK + k] = keys[k];
    __syncthreads();
  }
}

/* How many keys of |SIDE| chunks, from |chunk| on, are less than |key|: steps of all searches by turns. */
MOEC_INLINE int64_t moec_order_less(const int64_t *chunks, int64_t chunk, int64_t n_chunks, int64_t own, int64_t key) {
  enum { SIDE = 8 };
  int32_t at[SIDE] = {};
  int64_t less = 0;
  for (int half = MOEC_ORDER_CHUNK / 2; half; half /= 2)
#pragma unroll
    for (int s = 0; s < SIDE; s++)
      if (chunk + s < n_chunks && chunks[(chunk + s) * MOEC_ORDER_CHUNK + at[s] + half - 1] < key) at[s] += half;
#pragma unroll
  for (int s = 0; s < SIDE; s++)
    if (chunk + s < n_chunks && chunk + s != own)
      less += at[s] + (chunks[(chunk + s) * MOEC_ORDER_CHUNK + at[s]] < key);
  return less;
}

extern "C" __global__ void __launch_bounds__(256)
moec_order_merge(const int64_t *__restrict__ chunks, int64_t rows, int64_t *__restrict__ sorted) {
  const int64_t n_chunks = (rows + MOEC_ORDER_CHUNK - 1) / MOEC_ORDER_CHUNK;
  for (int64_t k = MOEC_FIRST; k < rows; k += MOEC_STEP) {
    const int64_t key = chunks[k], own = k / MOEC_ORDER_CHUNK;
    int64_t at = k % MOEC_ORDER_CHUNK;
    for (int64_t chunk = 0; chunk < n_chunks; chunk += 8) at += moec_order_less(chunks, chunk, n_chunks, own, key);
    sorted[at] = key;
  }
}
