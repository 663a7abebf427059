#include "base/dtype.h"

#include <math.h>
#include <string.h>

static const moec_dtype_info infos[MOEC_DTYPE_COUNT] = {
#define INFO(name, text, bytes, cls, onnx, st, c) [MOEC_##name] = {text, bytes, cls, onnx, st, c},
    MOEC_DTYPES(INFO)
#undef INFO
};

const moec_dtype_info *moec_dtype_get(moec_dtype t) {
  return &infos[(unsigned)t < MOEC_DTYPE_COUNT ? t : MOEC_DTYPE_NONE];
}

moec_dtype moec_dtype_from_text(const char *text) {
  for (int t = 1; text && t < MOEC_DTYPE_COUNT; t++) {
    if (!strcmp(text, infos[t].text)) return (moec_dtype)t;
  }
  return MOEC_DTYPE_NONE;
}

moec_dtype moec_dtype_from_onnx(int code) {
  for (int t = 1; t < MOEC_DTYPE_COUNT; t++) {
    if (code == infos[t].onnx) return (moec_dtype)t;
  }
  return MOEC_DTYPE_NONE;
}

moec_dtype moec_dtype_from_safetensors(const char *s) {
  for (int t = 1; s && t < MOEC_DTYPE_COUNT; t++) {
    if (!strcmp(s, infos[t].safetensors)) return (moec_dtype)t;
  }
  return MOEC_DTYPE_NONE;
}

static uint32_t bits_of(float v) {
  uint32_t x;
  memcpy(&x, &v, sizeof x);
  return x;
}

static float float_of(uint32_t x) {
  float v;
  memcpy(&v, &x, sizeof v);
  return v;
}

float moec_bf16_to_f32(uint16_t v) { return float_of((uint32_t)v << 16); }

uint16_t moec_f32_to_bf16(float v) {
  uint32_t x = bits_of(v);
  if (v != v) return (uint16_t)(x >> 16 | 0x40); /* quiet: rounding could make it infinite */
  return (uint16_t)((x + 0x7fff + (x >> 16 & 1)) >> 16);
}

float moec_f16_to_f32(uint16_t v) {
  uint32_t sign = (uint32_t)(v & 0x8000) << 16, exponent = v >> 10 & 31, mantissa = v & 0x3ff;
  if (exponent == 31) return float_of(sign | 0x7f800000 | mantissa << 13);
  if (exponent == 0) return float_of(sign | bits_of((float)mantissa * 0x1p-24f));
  return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t moec_f32_to_f16(float v) {
  uint32_t x = bits_of(v), sign = x >> 16 & 0x8000, a = x & 0x7fffffff;
  if (a > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff)); /* NaN */
  if (a >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and more are infinite */
  if (a < 0x38800000) {
    /* Subnormal: the sum's last place is 2^-24, so the addition does the rounding. */
    return (uint16_t)(sign | (bits_of(float_of(a) + 0.5f) - bits_of(0.5f)));
  }
  a += 0xfff + (a >> 13 & 1);
  return (uint16_t)(sign | (a - 0x38000000) >> 13);
}

/* |v| as a float, an inexact result rounded to the neighbour with an odd last bit: rounding
 * that again to f16 or bf16 gives what one rounding of |v| would. */
static float to_float_odd(double v) {
  float f = (float)v;
  if ((double)f == v || v != v) return f;
  uint32_t x = bits_of(f);
  if (fabs((double)f) > fabs(v)) x--;
  return float_of(x | 1);
}

/* The same for integers, which may not be exact as a double either. */
static float i64_to_float_odd(int64_t v) {
  if (v >= -(1ll << 52) && v <= 1ll << 52) return to_float_odd((double)v);
  int64_t low = v & 0xffff, high = (v - low) / 0x10000;
  return to_float_odd((double)(high | (low != 0)) * 0x1p16);
}

static int64_t to_i64(double v) {
  if (v != v) return 0;
  if (v >= 0x1p63) return INT64_MAX;
  return v < -0x1p63 ? INT64_MIN : (int64_t)v;
}

static uint64_t to_u64(double v) {
  if (!(v > 0)) return 0;
  return v >= 0x1p64 ? UINT64_MAX : (uint64_t)v;
}

static int64_t clamp_i64(int64_t v, int64_t low, int64_t high) {
  return v < low ? low : v > high ? high : v;
}

/* Elements are moved with memcpy: data inside a mapped file may be unaligned. */
#define GET(type)                                               \
  __extension__({                                               \
    type x_;                                                    \
    memcpy(&x_, (const char *)data + i * sizeof x_, sizeof x_); \
    x_;                                                         \
  })
#define PUT(type, value)                                  \
  do {                                                    \
    type x_ = (type)(value);                              \
    memcpy((char *)data + i * sizeof x_, &x_, sizeof x_); \
  } while (0)

double moec_load_f64(moec_dtype t, const void *data, size_t i) {
  switch (t) {
    case MOEC_F32: return (double)GET(float);
    case MOEC_F64: return GET(double);
    case MOEC_F16: return (double)moec_f16_to_f32(GET(uint16_t));
    case MOEC_BF16: return (double)moec_bf16_to_f32(GET(uint16_t));
    case MOEC_U64: return (double)GET(uint64_t);
    default: return (double)moec_load_i64(t, data, i);
  }
}

int64_t moec_load_i64(moec_dtype t, const void *data, size_t i) {
  switch (t) {
    case MOEC_I64: return GET(int64_t);
    case MOEC_I32: return GET(int32_t);
    case MOEC_I16: return GET(int16_t);
    case MOEC_I8: return GET(int8_t);
    case MOEC_U64: return (int64_t)GET(uint64_t);
    case MOEC_U32: return GET(uint32_t);
    case MOEC_U16: return GET(uint16_t);
    case MOEC_U8: return GET(uint8_t);
    case MOEC_BOOL: return GET(uint8_t) != 0;
    case MOEC_DTYPE_NONE:
    case MOEC_DTYPE_COUNT: return 0;
    default: return to_i64(moec_load_f64(t, data, i));
  }
}

void moec_store_f64(moec_dtype t, void *data, size_t i, double v) {
  switch (t) {
    case MOEC_F32: PUT(float, v); break;
    case MOEC_F64: PUT(double, v); break;
    case MOEC_F16: PUT(uint16_t, moec_f32_to_f16(to_float_odd(v))); break;
    case MOEC_BF16: PUT(uint16_t, moec_f32_to_bf16(to_float_odd(v))); break;
    case MOEC_I64: PUT(int64_t, to_i64(v)); break;
    case MOEC_I32: PUT(int32_t, clamp_i64(to_i64(v), INT32_MIN, INT32_MAX)); break;
    case MOEC_I16: PUT(int16_t, clamp_i64(to_i64(v), INT16_MIN, INT16_MAX)); break;
    case MOEC_I8: PUT(int8_t, clamp_i64(to_i64(v), INT8_MIN, INT8_MAX)); break;
    case MOEC_U64: PUT(uint64_t, to_u64(v)); break;
    case MOEC_U32: PUT(uint32_t, clamp_i64(to_i64(v), 0, UINT32_MAX)); break;
    case MOEC_U16: PUT(uint16_t, clamp_i64(to_i64(v), 0, UINT16_MAX)); break;
    case MOEC_U8: PUT(uint8_t, clamp_i64(to_i64(v), 0, UINT8_MAX)); break;
    case MOEC_BOOL: PUT(uint8_t, v != 0); break;
    case MOEC_DTYPE_NONE:
    case MOEC_DTYPE_COUNT: break;
  }
}

void moec_store_i64(moec_dtype t, void *data, size_t i, int64_t v) {
  switch (t) {
    case MOEC_F32: PUT(float, v); break;
    case MOEC_F64: PUT(double, v); break;
    case MOEC_F16: PUT(uint16_t, moec_f32_to_f16(i64_to_float_odd(v))); break;
    case MOEC_BF16: PUT(uint16_t, moec_f32_to_bf16(i64_to_float_odd(v))); break;
    case MOEC_I64: PUT(int64_t, v); break;
    case MOEC_I32: PUT(int32_t, v); break;
    case MOEC_I16: PUT(int16_t, v); break;
    case MOEC_I8: PUT(int8_t, v); break;
    case MOEC_U64: PUT(uint64_t, v); break;
    case MOEC_U32: PUT(uint32_t, v); break;
    case MOEC_U16: PUT(uint16_t, v); break;
    case MOEC_U8: PUT(uint8_t, v); break;
    case MOEC_BOOL: PUT(uint8_t, v != 0); break;
    case MOEC_DTYPE_NONE:
    case MOEC_DTYPE_COUNT: break;
  }
}
