/* ---- topk and moe.select ---------------------------------------------------------------------------
 * A warp works on a line. Few: one pass over it for each place, which finds the first of those that come after the one
 * of the place before. Many: each element counts those before it. Neither needs memory. */

/* Elements are ordered by key, NaN above everything, -0 equal to 0; of equal ones the lower index comes first. */
MOEC_INLINE uint64_t NAME(key)(T x, bool largest) {
#if IS_FLOAT
  const double v = (double)LOAD(x) + 0.0;
  uint64_t key = (uint64_t)__double_as_longlong(v);
  key = v != v ? UINT64_MAX : key >> 63 ? ~key : key | (uint64_t)1 << 63;
#else
  uint64_t key = (uint64_t)(int64_t)x;
  if (IS_SIGNED) key ^= (uint64_t)1 << 63;
#endif
  return largest ? key : ~key;
}
MOEC_INLINE bool NAME(before)(uint64_t key, int64_t index, uint64_t other_key, int64_t other) {
  return key != other_key ? key > other_key : index < other;
}

extern "C" __global__ void __launch_bounds__(128)
NAME(topk)(const T *__restrict__ x, T *__restrict__ values, int64_t *__restrict__ indices, int64_t outer, int64_t n,
           int64_t inner, int64_t k, int32_t largest) {
  enum { FEW = 64 };
  MOEC_WARP_TEAM
  for (int64_t line = team; line < outer * inner; line += n_teams) {
    const T *from = x + line / inner * n * inner + line % inner;
    const int64_t to = line / inner * k * inner + line % inner;
    uint64_t last_key = 0;
    int64_t last = -1;
    for (int64_t place = 0; place < k && k <= FEW; place++) {
      uint64_t best_key = 0;
      int64_t best = n;
      for (int64_t i = self; i < n; i += 32) {
        const uint64_t key = NAME(key)(from[i * inner], largest);
        const bool later = last < 0 || NAME(before)(last_key, last, key, i);
        if (later && (best == n || NAME(before)(key, i, best_key, best))) best_key = key, best = i;
      }
      for (int d = 16; d; d >>= 1) {
        const uint64_t key = __shfl_xor_sync(0xffffffffu, best_key, d);
        const int64_t i = __shfl_xor_sync(0xffffffffu, best, d);
        if (i < n && (best == n || NAME(before)(key, i, best_key, best))) best_key = key, best = i;
      }
      last_key = best_key, last = best;
      if (self == 0 && indices) indices[to + place * inner] = best;
      if (self == 0 && values) values[to + place * inner] = from[best * inner];
    }
    for (int64_t i = self; i < n && k > FEW; i += 32) {
      const uint64_t key = NAME(key)(from[i * inner], largest);
      int64_t place = 0;
      for (int64_t j = 0; j < n; j++) place += NAME(before)(NAME(key)(from[j * inner], largest), j, key, i);
      if (place < k && indices) indices[to + place * inner] = i;
      if (place < k && values) values[to + place * inner] = from[i * inner];
    }
  }
}
