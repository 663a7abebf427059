/* ---- rows of experts -------------------------------------------------------------------------------
 * dispatch copies each token's row to its assignments, weighted or not; combine sums them back in one pass, in the
 * order of slots, rounded once. A warp works on a row. */

/* An index of |n| rows; outside is a fault. */
MOEC_INLINE int64_t NAME(row_at)(const int32_t *index, int64_t at, int64_t n, int32_t *fault) {
  int64_t i = index[at];
  if (i >= 0 && i < n) return i;
  *fault = 1;
  return 0;
}

extern "C" __global__ void __launch_bounds__(256)
NAME(dispatch)(const T *__restrict__ x, const int32_t *__restrict__ perm, const void *__restrict__ w, int32_t w_dtype,
               T *__restrict__ rows, int64_t n, int64_t k, int64_t width, int32_t *fault) {
  MOEC_WARP_TEAM
  for (int64_t r = team; r < n; r += n_teams) {
    const int64_t a = NAME(row_at)(perm, r, n, fault);
    const T *from = x + (k ? a / k : r) * width;
    T *to = rows + r * width;
    if (!w) {
      for (int64_t i = self; i < width; i += 32) to[i] = from[i];
      continue;
    }
    const SUM f = (SUM)moec_load_f64(w_dtype, w, a);
    for (int64_t i = self; i < width; i += 32) to[i] = STORE(LOAD(from[i]) * f);
  }
}

extern "C" __global__ void __launch_bounds__(256)
NAME(combine)(const T *__restrict__ rows, const int32_t *__restrict__ inv, const void *__restrict__ w, int32_t w_dtype,
              const T *residual, T *y, int64_t tokens, int64_t k, int64_t width, int32_t *fault) {
  MOEC_WARP_TEAM
  for (int64_t t = team; t < tokens; t += n_teams)
    for (int64_t i = self; i < width; i += 32) {
      SUM sum = 0;
      for (int64_t slot = 0; slot < k; slot++) {
        const int64_t a = t * k + slot;
        const SUM v = LOAD(rows[NAME(row_at)(inv, a, tokens * k, fault) * width + i]);
        sum += w ? v * (SUM)moec_load_f64(w_dtype, w, a) : v;
      }
      if (residual) sum += LOAD(residual[t * width + i]);
      y[t * width + i] = STORE(sum);
    }
}
