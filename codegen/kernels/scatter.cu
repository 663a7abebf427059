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
      const int64_t at = moec_place_at(i_dtype, i, from, y_shape.dims[axis], fault);
      if (at < 0) continue;
      T *place = y + to + at * y_step;
      *place = reduction ? STORE(NAME(joined)(reduction, LOAD(*place), LOAD(u[from]))) : u[from];
    }
  }
}

typedef union NAME(slice_part) {
  uint4 bits;
  T v[16 / sizeof(T)];
} NAME(slice_part);

MOEC_INLINE NAME(slice_part) NAME(slice_load)(const T *from, int each) {
  NAME(slice_part) p;
  if (each > 1) p.bits = *(const uint4 *)from;
  else p.v[0] = *from;
  return p;
}

/* The updates of slice |to|, which begin at |r| of the order, joined to |each| elements of the slice from |i| on,
 * rounded once. The next keys are asked for before the updates of these are needed. */
MOEC_INLINE void NAME(join_updates)(T *y, const T *u, const int64_t *sorted, int64_t r, int64_t to, int64_t rows,
                                    int32_t bits, int64_t size, int64_t i, int32_t reduction, int each) {
  enum { AHEAD = 4, EACH = 16 / sizeof(T) };
  int64_t keys[AHEAD];
  SUM sum[EACH];
#pragma unroll
  for (int s = 0; s < AHEAD; s++) keys[s] = r + s < rows ? sorted[r + s] : INT64_MAX;
  NAME(slice_part) old = NAME(slice_load)(y + to * size + i, each);
#pragma unroll
  for (int c = 0; c < each; c++) sum[c] = LOAD(old.v[c]);
  for (bool more = true; more;) {
    NAME(slice_part) p[AHEAD];
    bool mine[AHEAD];
#pragma unroll
    for (int s = 0; s < AHEAD; s++) {
      mine[s] = keys[s] >> bits == to;
      if (mine[s]) p[s] = NAME(slice_load)(u + (keys[s] - (to << bits)) * size + i, each);
    }
    r += AHEAD, more = mine[AHEAD - 1];
#pragma unroll
    for (int s = 0; s < AHEAD; s++) keys[s] = more && r + s < rows ? sorted[r + s] : INT64_MAX;
#pragma unroll
    for (int s = 0; s < AHEAD; s++)
#pragma unroll
      for (int c = 0; c < each; c++)
        if (mine[s]) sum[c] = NAME(joined)(reduction, sum[c], LOAD(p[s].v[c]));
  }
#pragma unroll
  for (int c = 0; c < each; c++) old.v[c] = STORE(sum[c]);
  if (each > 1) *(uint4 *)(y + to * size + i) = old.bits;
  else y[to * size + i] = old.v[0];
}

/* A warp works on a part of a row of the order, where it is the first of its slice. */
extern "C" __global__ void __launch_bounds__(256)
NAME(scatter_nd)(T *__restrict__ y, const T *__restrict__ u, const int64_t *__restrict__ sorted, int64_t rows,
                 int64_t slices, int32_t bits, int64_t size, int32_t reduction) {
  enum { EACH = 16 / sizeof(T) };
  MOEC_WARP_TEAM
  const int each = size % EACH ? 1 : EACH;
  if (!size) return;
  const int64_t parts = (size + 32 * each - 1) / (32 * each), step = n_teams / parts, rest = n_teams % parts;
  int64_t part = team % parts;
  for (int64_t r = team / parts; r < rows; r += step) {
    const int64_t to = sorted[r] >> bits, i = (part * 32 + self) * each;
    const bool first = to < slices && (r == 0 || sorted[r - 1] >> bits != to);
    if (first && i < size && each > 1) NAME(join_updates)(y, u, sorted, r, to, rows, bits, size, i, reduction, EACH);
    else if (first && i < size) NAME(join_updates)(y, u, sorted, r, to, rows, bits, size, i, reduction, 1);
    part += rest;
    if (part >= parts) part -= parts, r++;
  }
}
