/* What every emitted C kernel stands on: the calling convention, integer and half precision
 * semantics of docs/ir.md, and float functions that vectorise. Compiled with -O3 -fopenmp-simd
 * -fno-math-errno -fno-trapping-math, never with -ffast-math. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct moec_kernel_args {
  void *const *buf;   /* inputs, then outputs */
  const int64_t *sym; /* symbol values */
  void *scratch;      /* 64-byte aligned, of this thread */
  int32_t *fault;     /* set to 1 where an index is out of range */
} moec_kernel_args;

typedef float moec_v8 __attribute__((vector_size(32), may_alias)); /* eight lanes */

#define MOEC_INLINE static inline __attribute__((always_inline, unused))

#include "codegen/kernels/arith.h"

/* ---- half precision ------------------------------------------------------------------------- */

typedef union moec_bits {
  float f;
  uint32_t u;
  int32_t i;
} moec_bits;
MOEC_INLINE float moec_float_of(uint32_t u) { return (moec_bits){.u = u}.f; }
MOEC_INLINE uint32_t moec_bits_of(float f) { return (moec_bits){.f = f}.u; }

MOEC_INLINE float moec_load_bf16(uint16_t v) { return moec_float_of((uint32_t)v << 16); }
MOEC_INLINE uint16_t moec_store_bf16(float f) {
  uint32_t u = moec_bits_of(f);
  uint32_t even = (u + 0x7fffu + (u >> 16 & 1)) >> 16; /* to nearest, ties to even */
  return (uint16_t)(f != f ? u >> 16 | 0x40u : even);
}

/* The exponents differ by 112; multiplying makes denormals right. */
MOEC_INLINE float moec_load_f16(uint16_t v) {
  uint32_t m = (uint32_t)(v & 0x7fff) << 13;
  uint32_t u = moec_bits_of(moec_float_of(m) * 0x1p112f);
  return moec_float_of((m >= 0x7c00u << 13 ? m | 0x7f800000u : u) | (uint32_t)(v & 0x8000) << 16);
}
MOEC_INLINE uint16_t moec_store_f16(float f) {
  uint32_t u = moec_bits_of(f), a = u & 0x7fffffffu;
  uint32_t normal = (a - (112u << 23) + 0xfffu + (a >> 13 & 1)) >> 13;
  uint32_t tiny =
      moec_bits_of(moec_float_of(a) + 0.5f) - moec_bits_of(0.5f); /* the sum rounds at 2^-24 */
  uint32_t r = a < 113u << 23 ? tiny : normal;
  r = a >= 0x477ff000u ? 0x7c00u : r; /* 65520 and above */
  r = a > 0x7f800000u ? 0x7e00u | (a >> 13 & 0x1ffu) : r;
  return (uint16_t)(r | (u >> 16 & 0x8000u));
}
MOEC_INLINE float moec_round_bf16(float f) { return moec_load_bf16(moec_store_bf16(f)); }
MOEC_INLINE float moec_round_f16(float f) { return moec_load_f16(moec_store_f16(f)); }

/* ---- float functions ------------------------------------------------------------------------ */

/* exp(x) for f32, below 1.1 units in the last place; denormal results included. With x = n ln 2 + r:
 * 2^n in two factors, so that the last product rounds once. */
MOEC_INLINE float moec_exp_f32(float x) {
  float c = x > 89.0f ? 89.0f : x;
  c = c < -104.0f ? -104.0f : c;
  float m = __builtin_fmaf(c, 0x1.715476p+0f, 0x1.8p+23f); /* n in the low bits */
  float n = m - 0x1.8p+23f;
  float r = __builtin_fmaf(n, -0x1.62e400p-1f, c);
  r = __builtin_fmaf(n, -0x1.7f7d1cp-20f, r);
  float p = __builtin_fmaf(1.9875691500e-4f, r, 1.3981999507e-3f);
  p = __builtin_fmaf(p, r, 8.3334519073e-3f);
  p = __builtin_fmaf(p, r, 4.1665795894e-2f);
  p = __builtin_fmaf(p, r, 1.6666665459e-1f);
  p = __builtin_fmaf(p, r, 5.0000001201e-1f);
  p = __builtin_fmaf(p, r * r, r) + 1.0f;
  int32_t i = (int32_t)(moec_bits_of(m) - 0x4b400000u), h = i >> 1;
  return p * moec_float_of((uint32_t)(h + 127) << 23) *
         moec_float_of((uint32_t)(i - h + 127) << 23);
}

/* log(x) for f32, below 1 unit: x = 2^e * (1 + f) with 1 + f between sqrt(1/2) and sqrt(2). */
MOEC_INLINE float moec_log_f32(float x) {
  bool tiny = x < 0x1p-126f;
  uint32_t u = moec_bits_of(tiny ? x * 0x1p23f : x);
  uint32_t up = u + 0x004afb0du; /* carries into the exponent from sqrt(2) on */
  float e = (float)((int32_t)(up >> 23) - 127 - (tiny ? 23 : 0));
  float f = moec_float_of((up & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  float z = f * f;
  float p = __builtin_fmaf(7.0376836292e-2f, f, -1.1514610310e-1f);
  p = __builtin_fmaf(p, f, 1.1676998740e-1f);
  p = __builtin_fmaf(p, f, -1.2420140846e-1f);
  p = __builtin_fmaf(p, f, 1.4249322787e-1f);
  p = __builtin_fmaf(p, f, -1.6668057665e-1f);
  p = __builtin_fmaf(p, f, 2.0000714765e-1f);
  p = __builtin_fmaf(p, f, -2.4999993993e-1f);
  p = __builtin_fmaf(p, f, 3.3333331174e-1f);
  p = p * f * z;
  p = __builtin_fmaf(e, -2.12194440e-4f, p);
  p = __builtin_fmaf(z, -0.5f, p);
  float r = __builtin_fmaf(e, 0.693359375f, f + p);
  r = x == 0 ? -INFINITY : r;
  r = x == INFINITY ? x : r;
  return x < 0 || x != x ? NAN : r;
}

MOEC_INLINE float moec_sigmoid_f32(float x) {
  float e = moec_exp_f32(-fabsf(x));
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}

/* tanh(x) for f32, below 2 units. */
MOEC_INLINE float moec_tanh_f32(float x) {
  float a = fabsf(x), z = x * x;
  float p = __builtin_fmaf(-5.70498872745e-3f, z, 2.06390887954e-2f);
  p = __builtin_fmaf(p, z, -5.37397155531e-2f);
  p = __builtin_fmaf(p, z, 1.33314422036e-1f);
  p = __builtin_fmaf(p, z, -3.33332819422e-1f);
  p = __builtin_fmaf(p * z, x, x);
  float q = 1.0f - 2.0f / (moec_exp_f32(a + a) + 1.0f);
  return __builtin_copysignf(a < 0.625f ? p : q, x); /* of -0 too */
}
#include "codegen/kernels/softcap.h"

/* erf(x) for f32, below 1.1 units: a polynomial near 0, else 1 - exp(polynomial). */
MOEC_INLINE float moec_erf_f32(float x) {
  float t = fabsf(x), s = x * x;
  float r = __builtin_fmaf(-0x1.220000p-16f, t, 0x1.91cfb2p-12f);
  float u = __builtin_fmaf(-0x1.fd1438p-9f, t, 0x1.8d6342p-6f);
  r = __builtin_fmaf(r, s, u);
  r = __builtin_fmaf(r, t, -0x1.b55cb8p-4f);
  r = __builtin_fmaf(r, t, -0x1.450aa0p-1f);
  r = __builtin_fmaf(r, t, -0x1.079d0cp-3f);
  r = __builtin_fmaf(r, t, -t);
  float far = __builtin_copysignf(1.0f - moec_exp_f32(r), x);
  float p = __builtin_fmaf(-0x1.38e000p-11f, s, 0x1.471a58p-8f);
  p = __builtin_fmaf(p, s, -0x1.b691b2p-6f);
  p = __builtin_fmaf(p, s, 0x1.ce1c44p-4f);
  p = __builtin_fmaf(p, s, -0x1.812700p-2f);
  p = __builtin_fmaf(p, s, 0x1.06eba8p-3f);
  float near = __builtin_fmaf(p, x, x);
  return t > 0.927734375f ? far : near;
}

#pragma omp declare reduction(moec_max:float                             \
                              : omp_out = moec_max_f32(omp_out, omp_in)) \
    initializer(omp_priv = -INFINITY)
#pragma omp declare reduction(moec_max:double                            \
                              : omp_out = moec_max_f64(omp_out, omp_in)) \
    initializer(omp_priv = -INFINITY)
#pragma omp declare reduction(moec_min:float                             \
                              : omp_out = moec_min_f32(omp_out, omp_in)) \
    initializer(omp_priv = INFINITY)
#pragma omp declare reduction(moec_min:double                            \
                              : omp_out = moec_min_f64(omp_out, omp_in)) \
    initializer(omp_priv = INFINITY)

/* ---- tiles of matrices ---------------------------------------------------------------------- */

/* Tiles of 8 * nv lanes, one lane a column; eight vectors are summed at a time. Functions of their own, not inlined:
 * the kernels of a file share them. Strides of |x| and |s| count vectors.
 *
 * products: s[j][lane] (+)= sum over d < size of y[j][d] * x[d][lane], for j < n rounded up to 8 / nv
 * sums:     x[d][lane] += sum over j < n of y[j][d] * s[j][lane], for d < stride, a multiple of 8; packed lanes */
/* clang-format off */
#define MOEC_TILES(nv)                                                                             \
  static __attribute__((noinline, unused)) void moec_tile_products_##nv(                           \
      const float *y, int64_t y_stride, const moec_v8 *x, int64_t x_stride, moec_v8 *s,            \
      int64_t s_stride, int64_t size, int64_t n, bool more) {                                      \
    for (int64_t j = 0; j < n; j += 8 / nv) {                                                      \
      moec_v8 sum[8] = {{0}};                                                                      \
      if (more)                                                                                    \
        _Pragma("GCC unroll 8") for (int r = 0; r < 8; r++)                                        \
          sum[r] = s[(j + r / nv) * s_stride + r % nv];                                            \
      for (int64_t d = 0; d < size; d++)                                                           \
        _Pragma("GCC unroll 8") for (int r = 0; r < 8; r++)                                        \
          sum[r] += y[(j + r / nv) * y_stride + d] * x[d * x_stride + r % nv];                     \
      _Pragma("GCC unroll 8") for (int r = 0; r < 8; r++)                                          \
        s[(j + r / nv) * s_stride + r % nv] = sum[r];                                              \
    }                                                                                              \
  }                                                                                                \
  static __attribute__((noinline, unused)) void moec_tile_sums_##nv(                               \
      const float *y, int64_t stride, const moec_v8 *s, moec_v8 *x, int64_t n) {                   \
    for (int64_t d = 0; d < stride; d += 8 / nv) {                                                 \
      moec_v8 sum[8];                                                                              \
      _Pragma("GCC unroll 8") for (int r = 0; r < 8; r++) sum[r] = x[d * nv + r];                  \
      for (int64_t j = 0; j < n; j++)                                                              \
        _Pragma("GCC unroll 8") for (int r = 0; r < 8; r++)                                        \
          sum[r] += y[j * stride + d + r / nv] * s[j * nv + r % nv];                               \
      _Pragma("GCC unroll 8") for (int r = 0; r < 8; r++) x[d * nv + r] = sum[r];                  \
    }                                                                                              \
  }
MOEC_TILES(1)
MOEC_TILES(2)
MOEC_TILES(4)
/* clang-format on */

/* s[j][lane] = sum over d < size of y[j][d] * x[d][lane] */
MOEC_INLINE void moec_tile_products(const float *y, int64_t stride, const float *x, float *s, int64_t size, int64_t n,
                                    const int nv) {
  const moec_v8 *v = (const moec_v8 *)x;
  moec_v8 *to = (moec_v8 *)s;
  if (nv == 1) moec_tile_products_1(y, stride, v, 1, to, 1, size, n, false);
  if (nv == 2) moec_tile_products_2(y, stride, v, 2, to, 2, size, n, false);
  if (nv == 4) moec_tile_products_4(y, stride, v, 4, to, 4, size, n, false);
}

/* x[d][lane] += sum over j < n of y[j][d] * s[j][lane] */
MOEC_INLINE void moec_tile_sums(const float *y, int64_t stride, const float *s, float *x, int64_t n, const int nv) {
  const moec_v8 *v = (const moec_v8 *)s;
  if (nv == 1) moec_tile_sums_1(y, stride, v, (moec_v8 *)x, n);
  if (nv == 2) moec_tile_sums_2(y, stride, v, (moec_v8 *)x, n);
  if (nv == 4) moec_tile_sums_4(y, stride, v, (moec_v8 *)x, n);
}

/* out[j][d] += sum over l < size of s[j][l] * x[l][d], for d < width, a multiple of 8 and the stride of x and out; for
 * j < n rounded up to 8. */
static __attribute__((unused)) void moec_tile_add(const float *s, int64_t s_stride, const float *x, float *out,
                                                  int64_t width, int64_t size, int64_t n) {
  const moec_v8 *v = (const moec_v8 *)x;
  moec_v8 *to = (moec_v8 *)out;
  int64_t all = width / 8, d = 0;
  for (; d + 4 <= all; d += 4) moec_tile_products_4(s, s_stride, v + d, all, to + d, all, size, n, true);
  for (; d + 2 <= all; d += 2) moec_tile_products_2(s, s_stride, v + d, all, to + d, all, size, n, true);
  for (; d < all; d++) moec_tile_products_1(s, s_stride, v + d, all, to + d, all, size, n, true);
}
