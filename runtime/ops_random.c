/* random: the numbers of docs/ir.md. Element i of a seed depends on nothing else. */
#include <math.h>

#include "runtime/ops.h"

enum { KIND, SEED };

moec_status *moec_rt_check_RANDOM(const moec_rt_call *c, moec_rt_need *need) {
  (void)need;
  moec_dtype t = moec_rt_out(c, 0)->dtype;
  if (moec_dtype_is_float(t)) return NULL;
  return moec_rt_mismatch(c, "expected floats, got %s", moec_dtype_get(t)->text);
}

static uint64_t mix(uint64_t z) { /* splitmix64 */
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

/* Significant bits of a float dtype, at most the 24 that are drawn. */
static int precision(moec_dtype t) { return t == MOEC_BF16 ? 8 : t == MOEC_F16 ? 11 : 24; }

/* |v| in [0, 1) cut to |bits| significant bits: rounding could give 1. */
static double cut(double v, int bits) {
  int exponent;
  double mantissa = frexp(v, &exponent);
  return ldexp(floor(ldexp(mantissa, bits)), exponent - bits);
}

static void draw(void *ctx, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const moec_rt_call *c = ctx;
  const moec_tensor *y = moec_rt_out(c, 0);
  uint64_t seed = mix((uint64_t)c->ints[SEED]);
  int bits = precision(y->dtype);
  for (int64_t i = begin; i < end; i++) {
    uint64_t h = mix(seed + (uint64_t)i);
    double u = (double)(h >> 40) * 0x1p-24, v = (double)(h >> 16 & 0xffffff) * 0x1p-24;
    double r = c->ints[KIND] == 0 ? cut(u, bits) : sqrt(-2 * log(1 - u)) * cos(2 * M_PI * v);
    moec_store_f64(y->dtype, y->data, (size_t)i, r);
  }
}

moec_status *moec_rt_run_RANDOM(const moec_rt_call *c) {
  moec_rt_parallel_for(c->pool, moec_tensor_numel(moec_rt_out(c, 0)), moec_rt_grain(16), draw,
                       (void *)(uintptr_t)c);
  return NULL;
}
