/* ---- topk and moe.select ---------------------------------------------------------------------------
 * A warp works on a line. A short line stays in registers. Of a long one, few: one pass over it for each place, which
 * finds the first of those that come after the one of the place before. Many: each element counts those before it. None
 * needs memory. */

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

/* The order of key() in 32 bits, which is enough for types of up to 32. */
MOEC_INLINE uint32_t NAME(short_key)(T x, bool largest) {
#if IS_FLOAT
  const float v = (float)LOAD(x) + 0.0f;
  uint32_t key = __float_as_uint(v);
  key = v != v ? UINT32_MAX : key >> 31 ? ~key : key | 1u << 31;
#else
  uint32_t key = (uint32_t)(int32_t)x;
  if (IS_SIGNED) key ^= 1u << 31;
#endif
  return largest ? key : ~key;
}

/* Up to 32 of a line of up to 32 * |each| elements: lane p gives the index of place p. */
MOEC_INLINE int32_t NAME(top_short)(const T *from, int32_t n, int64_t inner, int32_t k, bool largest, int self,
                                    int each) {
  uint32_t keys[8], taken = 0;
  int32_t place = 0;
#pragma unroll
  for (int j = 0; j < each; j++)
    keys[j] = j * 32 + self < n ? NAME(short_key)(from[(j * 32 + self) * inner], largest) : 0;
  for (int p = 0; p < k; p++) {
    uint32_t best = 0, index = UINT32_MAX; /* of this lane's that are left */
#pragma unroll
    for (int j = 0; j < each; j++)
      if (j * 32 + self < n && !(taken >> j & 1) && (index == UINT32_MAX || keys[j] > best))
        best = keys[j], index = j * 32 + self;
    const uint32_t most = __reduce_max_sync(0xffffffffu, best);
    const uint32_t first = __reduce_min_sync(0xffffffffu, best == most ? index : UINT32_MAX);
    if (first == index) taken |= 1u << index / 32;
    if (self == p) place = (int32_t)first;
  }
  return place;
}

/* Few of a long line. */
MOEC_INLINE void NAME(top_few)(const T *from, T *values, int64_t *indices, int64_t n, int64_t inner, int64_t k,
                               bool largest, int self) {
  uint64_t last_key = 0;
  int64_t last = -1;
  for (int64_t place = 0; place < k; place++) {
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
    if (self == 0 && indices) indices[place * inner] = best;
    if (self == 0 && values) values[place * inner] = from[best * inner];
  }
}

/* Many of a long line. */
MOEC_INLINE void NAME(top_many)(const T *from, T *values, int64_t *indices, int64_t n, int64_t inner, int64_t k,
                                bool largest, int self) {
  for (int64_t i = self; i < n; i += 32) {
    const uint64_t key = NAME(key)(from[i * inner], largest);
    int64_t place = 0;
    for (int64_t j = 0; j < n; j++) place += NAME(before)(NAME(key)(from[j * inner], largest), j, key, i);
    if (place < k && indices) indices[place * inner] = i;
    if (place < k && values) values[place * inner] = from[i * inner];
  }
}

extern "C" __global__ void __launch_bounds__(128)
NAME(topk)(const T *__restrict__ x, T *__restrict__ values, int64_t *__restrict__ indices, int64_t outer, int64_t n,
           int64_t inner, int64_t k, int32_t largest) {
  enum { FEW = 64, SHORT = 256 };
  const bool is_short = sizeof(T) <= 4 && n <= SHORT && k <= 32;
  MOEC_WARP_TEAM
  for (int64_t line = team; line < outer * inner; line += n_teams) {
    const T *from = x + line / inner * n * inner + line % inner;
    const int64_t to = line / inner * k * inner + line % inner;
    T *best = values ? values + to : values;
    int64_t *which = indices ? indices + to : indices;
    if (!is_short) {
      if (k <= FEW) NAME(top_few)(from, best, which, n, inner, k, largest, self);
      else NAME(top_many)(from, best, which, n, inner, k, largest, self);
      continue;
    }
    const int32_t i = n <= SHORT / 2 ? NAME(top_short)(from, (int32_t)n, inner, (int32_t)k, largest, self, 4)
                                     : NAME(top_short)(from, (int32_t)n, inner, (int32_t)k, largest, self, 8);
    if (self < k && which) which[self * inner] = i;
    if (self < k && best) best[self * inner] = from[i * inner];
  }
}
