/* ---- rows of experts -------------------------------------------------------------------------------
 * dispatch copies each token's row to its assignments, weighted or not; combine sums them back in one pass, in the
 * order of slots, rounded once. Both are bound by memory: a thread moves 16 bytes at a time where rows begin at
 * multiples of 16 bytes, else an element, and has several of them on their way before it needs the first. */

typedef union NAME(row_part) {
  uint4 bits;
  T v[16 / sizeof(T)];
} NAME(row_part);

/* |each| elements, as many as a part has or one; known where this is inlined. What is read or written once does not
 * stay in the cache. */
MOEC_INLINE NAME(row_part) NAME(row_load)(const T *from, int each) {
  NAME(row_part) p;
  if (each > 1) p.bits = *(const uint4 *)from;
  else p.v[0] = *from;
  return p;
}
MOEC_INLINE NAME(row_part) NAME(row_load_once)(const T *from, int each) {
  NAME(row_part) p;
  if (each > 1) p.bits = __ldcs((const uint4 *)from);
  else p.v[0] = *from;
  return p;
}
MOEC_INLINE void NAME(row_store)(T *to, NAME(row_part) p, int each) {
  if (each > 1) __stcs((uint4 *)to, p.bits);
  else *to = p.v[0];
}

MOEC_INLINE SUM NAME(row_weight)(const void *w, int32_t dtype, int64_t a) {
  if (!w) return 1;
  return sizeof(SUM) > 4 ? (SUM)moec_load_f64(dtype, w, a) : (SUM)moec_load_f32(dtype, w, a);
}

/* A warp copies a row, times f where |scaled|. */
MOEC_INLINE void NAME(copy_row)(const T *from, T *to, int64_t width, bool scaled, SUM f, int self, int each) {
  enum { AHEAD = 8 };
  for (int64_t first = self * each; first < width; first += 32 * AHEAD * each) {
    NAME(row_part) p[AHEAD];
#pragma unroll
    for (int s = 0; s < AHEAD; s++)
      if (first + 32 * s * each < width) p[s] = NAME(row_load)(from + first + 32 * s * each, each);
#pragma unroll
    for (int s = 0; s < AHEAD; s++) {
      if (first + 32 * s * each >= width) continue;
#pragma unroll
      for (int c = 0; c < each; c++)
        if (scaled) p[s].v[c] = STORE(LOAD(p[s].v[c]) * f);
      NAME(row_store)(to + first + 32 * s * each, p[s], each);
    }
  }
}

/* Rows are taken from GROUPS places at once: the tokens of an expert rise, so that the rows a token goes to are
 * written at about the same time, while its own is in the cache. */
extern "C" __global__ void __launch_bounds__(256)
NAME(dispatch)(const T *__restrict__ x, const int32_t *__restrict__ perm, const void *__restrict__ w, int32_t w_dtype,
               T *__restrict__ rows, int64_t n, int64_t k, int64_t width, int32_t *fault) {
  enum { EACH = 16 / sizeof(T), GROUPS = 64 };
  MOEC_WARP_TEAM
  const int64_t groups = k ? GROUPS : 1, each = (n + groups - 1) / groups;
  for (int64_t i = team; i < groups * each; i += n_teams) {
    const int64_t r = k ? i % GROUPS * each + i / GROUPS : i;
    if (r >= n) continue;
    int64_t a = perm[r];
    if (a < 0 || a >= n) a = 0, *fault = 1;
    const T *from = x + (k ? (int64_t)((uint32_t)a / (uint32_t)k) : r) * width;
    T *to = rows + r * width;
    const SUM f = NAME(row_weight)(w, w_dtype, a);
    if (width % EACH) NAME(copy_row)(from, to, width, w, f, self, 1);
    else NAME(copy_row)(from, to, width, w, f, self, EACH);
  }
}

/* The sums of a part, with those of |from| where it is there, as f32. */
MOEC_INLINE void NAME(row_store_wide)(const float *from, float *to, const SUM *sum, int each) {
  union {
    uint4 bits;
    float v[4];
  } p = {};
  if (each % 4) {
    *to = (float)sum[0] + (from ? *from : 0);
    return;
  }
#pragma unroll
  for (int first = 0; first < each; first += 4) {
    if (from) p.bits = *(const uint4 *)(from + first);
#pragma unroll
    for (int c = 0; c < 4; c++) p.v[c] = (from ? p.v[c] : 0) + (float)sum[first + c];
    __stcs((uint4 *)(to + first), p.bits);
  }
}

/* Elements from |i| of a token whose rows are inv[0 .. k), with their weights; then the residual. Rows are asked for
 * before the first is needed. False where an index is outside. */
MOEC_INLINE bool NAME(sum_rows)(const T *rows, const int32_t *inv, const void *w, int32_t w_dtype, int64_t t,
                                const void *residual, void *y, bool wide, int64_t n, int64_t k, int64_t width,
                                int64_t i, int each) {
  enum { SLOTS = 4, EACH = 16 / sizeof(T) };
  SUM sum[EACH] = {};
  bool fit = true;
  for (int64_t first = t * k; first < t * k + k; first += SLOTS) {
    const int have = (int)moec_least(t * k + k - first, SLOTS);
    int32_t row[SLOTS];
    NAME(row_part) p[SLOTS];
#pragma unroll
    for (int s = 0; s < SLOTS; s++) row[s] = s < have ? inv[first + s] : 0;
#pragma unroll
    for (int s = 0; s < SLOTS; s++) {
      const bool inside = row[s] >= 0 && row[s] < n;
      fit = fit && inside;
      if (s < have) p[s] = NAME(row_load_once)(rows + (inside ? row[s] : 0) * width + i, each);
    }
#pragma unroll
    for (int s = 0; s < SLOTS; s++) {
      if (s >= have) continue;
      const SUM f = NAME(row_weight)(w, w_dtype, first + s);
#pragma unroll
      for (int c = 0; c < each; c++) sum[c] += LOAD(p[s].v[c]) * f;
    }
  }
  const int64_t at = t * width + i;
  if (wide) {
    NAME(row_store_wide)(residual ? (const float *)residual + at : (const float *)0, (float *)y + at, sum, each);
    return fit;
  }
  NAME(row_part) p = {};
  if (residual) p = NAME(row_load)((const T *)residual + at, each);
#pragma unroll
  for (int c = 0; c < each; c++) p.v[c] = STORE(residual ? sum[c] + LOAD(p.v[c]) : sum[c]);
  NAME(row_store)((T *)y + at, p, each);
  return fit;
}

/* A warp works on a part of a token at a time, a part of 16 bytes a thread. */
extern "C" __global__ void __launch_bounds__(256)
NAME(combine)(const T *__restrict__ rows, const int32_t *__restrict__ inv, const void *__restrict__ w, int32_t w_dtype,
              const void *residual, void *y, int32_t y_dtype, int64_t tokens, int64_t k, int64_t width,
              int32_t *fault) {
  enum { EACH = 16 / sizeof(T) };
  const bool wide = sizeof(T) < sizeof(float) && y_dtype == MOEC_F32;
  MOEC_WARP_TEAM
  const int each = width % EACH ? 1 : EACH;
  if (!width) return;
  const int64_t parts = (width + 32 * each - 1) / (32 * each), step = n_teams / parts, rest = n_teams % parts;
  int64_t part = team % parts;
  bool fit = true;
  for (int64_t t = team / parts; t < tokens; t += step) {
    const int64_t i = (part * 32 + self) * each;
    if (i < width && each > 1)
      fit = NAME(sum_rows)(rows, inv, w, w_dtype, t, residual, y, wide, tokens * k, k, width, i, EACH) && fit;
    else if (i < width)
      fit = NAME(sum_rows)(rows, inv, w, w_dtype, t, residual, y, wide, tokens * k, k, width, i, 1) && fit;
    part += rest;
    if (part >= parts) part -= parts, t++;
  }
  if (!fit) *fault = 1;
}
