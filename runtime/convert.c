#include "runtime/convert.h"

#include <string.h>

/* CONVERT(name, to, from, expression of v). Sources are read at any address: files put tensors
 * where they like. */
#define CONVERT(name, to, from, expr)                                                              \
  MOEC_RT_VECTOR static void name(void *dst, int64_t ds, const void *src, int64_t ss, int64_t n) { \
    typedef from unaligned __attribute__((aligned(1), may_alias));                                 \
    to *restrict d = dst;                                                                          \
    const unaligned *restrict s = src;                                                             \
    if (ds == 1 && ss == 1) {                                                                      \
      for (int64_t i = 0; i < n; i++) {                                                            \
        from v = s[i];                                                                             \
        d[i] = (expr);                                                                             \
      }                                                                                            \
      return;                                                                                      \
    }                                                                                              \
    for (int64_t i = 0; i < n; i++) {                                                              \
      from v = s[i * ss];                                                                          \
      d[i * ds] = (expr);                                                                          \
    }                                                                                              \
  }

static inline float bf16(uint16_t v) {
  uint32_t bits = (uint32_t)v << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

CONVERT(copy_1, uint8_t, uint8_t, v)
CONVERT(copy_2, uint16_t, uint16_t, v)
CONVERT(copy_4, uint32_t, uint32_t, v)
CONVERT(copy_8, uint64_t, uint64_t, v)
CONVERT(f32_from_bf16, float, uint16_t, bf16(v))
CONVERT(f32_from_f16, float, uint16_t, moec_f16_to_f32(v))
CONVERT(f32_from_f64, float, double, (float)v)
CONVERT(f64_from_f32, double, float, (double)v)
CONVERT(bf16_from_f32, uint16_t, float, moec_f32_to_bf16(v))
CONVERT(f16_from_f32, uint16_t, float, moec_f32_to_f16(v))
CONVERT(i64_from_i32, int64_t, int32_t, v)
CONVERT(i32_from_i64, int32_t, int64_t, (int32_t)v)

typedef void (*convert_fn)(void *, int64_t, const void *, int64_t, int64_t);

static convert_fn find(moec_dtype to, moec_dtype from) {
  static const struct {
    moec_dtype to, from;
    convert_fn fn;
  } pairs[] = {
      {MOEC_F32, MOEC_BF16, f32_from_bf16}, {MOEC_F32, MOEC_F16, f32_from_f16},
      {MOEC_F32, MOEC_F64, f32_from_f64},   {MOEC_F64, MOEC_F32, f64_from_f32},
      {MOEC_BF16, MOEC_F32, bf16_from_f32}, {MOEC_F16, MOEC_F32, f16_from_f32},
      {MOEC_I64, MOEC_I32, i64_from_i32},   {MOEC_I32, MOEC_I64, i32_from_i64},
  };
  if (to == from) {
    switch (moec_dtype_get(to)->bytes) {
      case 1: return copy_1;
      case 2: return copy_2;
      case 4: return copy_4;
      default: return copy_8;
    }
  }
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    if (pairs[i].to == to && pairs[i].from == from) return pairs[i].fn;
  }
  return NULL;
}

void moec_rt_convert(moec_dtype to, void *dst, int64_t dst_stride, moec_dtype from, const void *src,
                     int64_t src_stride, int64_t n) {
  convert_fn fn = find(to, from);
  if (fn) {
    fn(dst, dst_stride, src, src_stride, n);
    return;
  }
  bool floats = moec_dtype_is_float(to) || moec_dtype_is_float(from);
  size_t bytes = moec_dtype_get(from)->bytes;
  for (int64_t i = 0; i < n; i++) {
    uint64_t element;
    memcpy(&element, (const uint8_t *)src + (size_t)(i * src_stride) * bytes, bytes);
    if (floats)
      moec_store_f64(to, dst, (size_t)(i * dst_stride), moec_load_f64(from, &element, 0));
    else
      moec_store_i64(to, dst, (size_t)(i * dst_stride), moec_load_i64(from, &element, 0));
  }
}
