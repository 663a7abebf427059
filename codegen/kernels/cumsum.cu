/* ---- cumsum ----------------------------------------------------------------------------------------
 * A warp works on a line, 32 elements at a time. Floats are summed in f64 and rounded where they are stored. */
#if IS_FLOAT
#define NUMBER double
#else
#define NUMBER uint64_t
#endif

extern "C" __global__ void __launch_bounds__(128)
NAME(cumsum)(const T *__restrict__ x, T *__restrict__ y, int64_t outer, int64_t n, int64_t inner, int32_t reverse,
             int32_t exclusive) {
  MOEC_WARP_TEAM
  for (int64_t line = team; line < outer * inner; line += n_teams) {
    const int64_t first = line / inner * n * inner + line % inner;
    NUMBER carry = 0;
    for (int64_t at = 0; at < n; at += 32) {
      const int64_t i = at + self, place = first + (reverse ? n - 1 - i : i) * inner;
      const NUMBER own = i < n ? (NUMBER)LOAD(x[place]) : 0;
      NUMBER sum = own;
      for (int d = 1; d < 32; d *= 2) {
        const NUMBER other = __shfl_up_sync(0xffffffffu, sum, d);
        if (self >= d) sum += other;
      }
      NUMBER before = __shfl_up_sync(0xffffffffu, sum, 1);
      if (self == 0) before = 0;
#if IS_FLOAT
      if (i < n) y[place] = STORE((SUM)(carry + (exclusive ? before : sum)));
#else
      if (i < n) y[place] = (T)(carry + (exclusive ? before : sum));
#endif
      carry += __shfl_sync(0xffffffffu, sum, 31);
    }
  }
}
#undef NUMBER
