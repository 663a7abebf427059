/* Arithmetic of docs/ir.md that is one text in C and in CUDA: sizes, integers, conversions, and the float functions
 * that both languages have. In front of it MOEC_INLINE is defined. */

/* ---- sizes ---------------------------------------------------------------------------------- */

MOEC_INLINE int64_t moec_floordiv(int64_t a, int64_t b) {
  if (b == 0) return 0;
  int64_t q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0));
}
MOEC_INLINE int64_t moec_floormod(int64_t a, int64_t b) { return a - b * moec_floordiv(a, b); }
MOEC_INLINE int64_t moec_least(int64_t a, int64_t b) { return a < b ? a : b; }
MOEC_INLINE int64_t moec_greatest(int64_t a, int64_t b) { return a > b ? a : b; }

/* Index i of an axis of size n: negative counts from the end; outside is a fault and gives a
 * legal index, where there is one. */
MOEC_INLINE int64_t moec_wrap(int64_t i, int64_t n, int32_t *fault) {
  i += i < 0 ? n : 0;
  if (__builtin_expect(i < 0 || i >= n, 0)) {
    *fault = 1;
    i = i < 0 || n < 1 ? 0 : n - 1;
  }
  return i;
}

/* ---- integers: wrapping, total division ----------------------------------------------------- */

/* clang-format off */
#define MOEC_INTEGER(t, T, W, LEAST)                                                               \
  MOEC_INLINE T moec_add_##t(T a, T b) { return (T)((W)a + (W)b); }                                \
  MOEC_INLINE T moec_sub_##t(T a, T b) { return (T)((W)a - (W)b); }                                \
  MOEC_INLINE T moec_mul_##t(T a, T b) { return (T)((W)a * (W)b); }                                \
  MOEC_INLINE T moec_neg_##t(T a) { return (T)((W)0 - (W)a); }                                     \
  MOEC_INLINE T moec_abs_##t(T a) { return a < 0 ? moec_neg_##t(a) : a; }                          \
  MOEC_INLINE T moec_sign_##t(T a) { return (T)((a > 0) - (a < 0)); }                              \
  MOEC_INLINE T moec_div_##t(T a, T b) {                                                           \
    return b == 0 ? 0 : (LEAST) < 0 && b == (T)-1 ? moec_neg_##t(a) : (T)(a / b);                  \
  }                                                                                                \
  MOEC_INLINE T moec_rem_##t(T a, T b) {                                                           \
    return b == 0 || ((LEAST) < 0 && b == (T)-1) ? 0 : (T)(a % b);                                 \
  }                                                                                                \
  MOEC_INLINE T moec_mod_##t(T a, T b) {                                                           \
    T r = moec_rem_##t(a, b);                                                                      \
    return r != 0 && (r < 0) != (b < 0) ? (T)(r + b) : r;                                          \
  }                                                                                                \
  MOEC_INLINE T moec_max_##t(T a, T b) { return a > b ? a : b; }                                   \
  MOEC_INLINE T moec_min_##t(T a, T b) { return a < b ? a : b; }                                   \
  MOEC_INLINE T moec_and_##t(T a, T b) { return (T)(a & b); }                                      \
  MOEC_INLINE T moec_or_##t(T a, T b) { return (T)(a | b); }                                       \
  MOEC_INLINE T moec_xor_##t(T a, T b) { return (T)(a ^ b); }                                      \
  MOEC_INLINE T moec_not_##t(T a) { return (T)~a; }                                                \
  MOEC_INLINE T moec_pow_##t(T a, T b) {                                                           \
    T r = 1;                                                                                       \
    if (b < 0) return a == 1 ? 1 : a == (T)-1 ? (b % 2 ? a : 1) : 0;                               \
    for (; b; b = (T)(b / 2), a = moec_mul_##t(a, a)) r = b % 2 ? moec_mul_##t(r, a) : r;          \
    return r;                                                                                      \
  }
/* W: unsigned and at least 32 bits, so that products don't overflow after promotion. */
MOEC_INTEGER(i64, int64_t, uint64_t, INT64_MIN)
MOEC_INTEGER(i32, int32_t, uint32_t, INT32_MIN)
MOEC_INTEGER(i16, int16_t, uint32_t, INT16_MIN)
MOEC_INTEGER(i8, int8_t, uint32_t, INT8_MIN)
MOEC_INTEGER(u64, uint64_t, uint64_t, 0)
MOEC_INTEGER(u32, uint32_t, uint32_t, 0)
MOEC_INTEGER(u16, uint16_t, uint32_t, 0)
MOEC_INTEGER(u8, uint8_t, uint32_t, 0)

/* Floats to integers truncate and saturate; NaN gives 0. LO and HI are floats: HI is one past the end. */
#define MOEC_TO_INTEGER(t, T, LO, HI, LEAST, GREATEST)                                             \
  MOEC_INLINE T moec_cast_##t##_f32(float x) {                                                     \
    return x >= HI##f ? GREATEST : x > LO##f ? (T)x : x <= LO##f ? LEAST : 0;                      \
  }                                                                                                \
  MOEC_INLINE T moec_cast_##t##_f64(double x) {                                                    \
    return x >= HI ? GREATEST : x > LO ? (T)x : x <= LO ? LEAST : 0;                               \
  }
MOEC_TO_INTEGER(i64, int64_t, -0x1p63, 0x1p63, INT64_MIN, INT64_MAX)
MOEC_TO_INTEGER(i32, int32_t, -0x1p31, 0x1p31, INT32_MIN, INT32_MAX)
MOEC_TO_INTEGER(i16, int16_t, -0x1p15, 0x1p15, INT16_MIN, INT16_MAX)
MOEC_TO_INTEGER(i8, int8_t, -0x1p7, 0x1p7, INT8_MIN, INT8_MAX)
MOEC_TO_INTEGER(u64, uint64_t, -0x0p0, 0x1p64, 0, UINT64_MAX)
MOEC_TO_INTEGER(u32, uint32_t, -0x0p0, 0x1p32, 0, UINT32_MAX)
MOEC_TO_INTEGER(u16, uint16_t, -0x0p0, 0x1p16, 0, UINT16_MAX)
MOEC_TO_INTEGER(u8, uint8_t, -0x0p0, 0x1p8, 0, UINT8_MAX)
/* clang-format on */

/* ---- float functions ------------------------------------------------------------------------ */

MOEC_INLINE double moec_sigmoid_f64(double x) {
  double e = exp(-fabs(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}

/* clang-format off */
#define MOEC_LIBM(name, f, d)                                                                      \
  MOEC_INLINE float moec_##name##_f32(float x) { return f(x); }                                    \
  MOEC_INLINE double moec_##name##_f64(double x) { return d(x); }
MOEC_LIBM(abs, fabsf, fabs)
MOEC_LIBM(expm1, expm1f, expm1)
MOEC_LIBM(log1p, log1pf, log1p)
MOEC_LIBM(sqrt, sqrtf, sqrt)
MOEC_LIBM(sin, sinf, sin)
MOEC_LIBM(cos, cosf, cos)
MOEC_LIBM(tan, tanf, tan)
MOEC_LIBM(asin, asinf, asin)
MOEC_LIBM(acos, acosf, acos)
MOEC_LIBM(atan, atanf, atan)
MOEC_LIBM(sinh, sinhf, sinh)
MOEC_LIBM(cosh, coshf, cosh)
MOEC_LIBM(asinh, asinhf, asinh)
MOEC_LIBM(acosh, acoshf, acosh)
MOEC_LIBM(atanh, atanhf, atanh)
MOEC_LIBM(floor, floorf, floor)
MOEC_LIBM(ceil, ceilf, ceil)
MOEC_LIBM(round, rintf, rint)
MOEC_INLINE double moec_exp_f64(double x) { return exp(x); }
MOEC_INLINE double moec_log_f64(double x) { return log(x); }
MOEC_INLINE double moec_tanh_f64(double x) { return tanh(x); }
MOEC_INLINE double moec_erf_f64(double x) { return erf(x); }

#define MOEC_FLOATS(t, T, s)                                                                       \
  MOEC_INLINE T moec_rsqrt_##t(T x) { return 1 / sqrt##s(x); }                                     \
  MOEC_INLINE T moec_recip_##t(T x) { return 1 / x; }                                              \
  MOEC_INLINE T moec_sign_##t(T x) { return x > 0 ? 1 : x < 0 ? -1 : x; }                          \
  MOEC_INLINE T moec_pow_##t(T x, T y) { return pow##s(x, y); }                                    \
  MOEC_INLINE T moec_rem_##t(T x, T y) { return fmod##s(x, y); }                                   \
  MOEC_INLINE T moec_mod_##t(T x, T y) {                                                           \
    T r = fmod##s(x, y);                                                                           \
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;                                               \
  }                                                                                                \
  MOEC_INLINE bool moec_isnan_##t(T x) { return x != x; }                                          \
  MOEC_INLINE bool moec_isinf_##t(T x) { return fabs##s(x) == INFINITY; }                          \
  /* NaN if either is; as a compare and a select these vectorise */                                \
  MOEC_INLINE T moec_max_##t(T x, T y) { return (x > y) | (x != x) ? x : y; }                      \
  MOEC_INLINE T moec_min_##t(T x, T y) { return (x < y) | (x != x) ? x : y; }
MOEC_FLOATS(f32, float, f)
MOEC_FLOATS(f64, double, )
/* clang-format on */
