#include "base/dtype.h"

#include <inttypes.h>
#include <math.h>

#include "base/tensor.h"
#include "tests/unit/unit.h"

START_TEST(names_and_codes_map_back) {
  for (int i = 1; i < MOEC_DTYPE_COUNT; i++) {
    moec_dtype t = (moec_dtype)i;
    const moec_dtype_info *info = moec_dtype_get(t);
    ck_assert_int_eq(moec_dtype_from_text(info->text), t);
    ck_assert_int_eq(moec_dtype_from_onnx(info->onnx), t);
    ck_assert_int_eq(moec_dtype_from_safetensors(info->safetensors), t);
  }
  ck_assert_int_eq(moec_dtype_from_text("f33"), MOEC_DTYPE_NONE);
  ck_assert_int_eq(moec_dtype_from_text(NULL), MOEC_DTYPE_NONE);
  ck_assert_int_eq(moec_dtype_from_onnx(0), MOEC_DTYPE_NONE);
  ck_assert_int_eq(moec_dtype_from_safetensors("F8_E4M3"), MOEC_DTYPE_NONE);
  ck_assert_uint_eq(moec_dtype_get((moec_dtype)99)->bytes, 0);
  ck_assert(moec_dtype_is_float(MOEC_BF16) && !moec_dtype_is_float(MOEC_BOOL));
}
END_TEST

static float half(moec_dtype t, uint16_t v) {
  return t == MOEC_F16 ? moec_f16_to_f32(v) : moec_bf16_to_f32(v);
}

START_TEST(halves_map_back) {
  for (uint32_t i = 0; i < 65536; i++) {
    uint16_t v = (uint16_t)i;
    float h = moec_f16_to_f32(v), b = moec_bf16_to_f32(v);
    uint16_t h_back = moec_f32_to_f16(h), b_back = moec_f32_to_bf16(b);
    UNIT_TRUE(isnan(h) ? isnan(moec_f16_to_f32(h_back)) : h_back == v);
    UNIT_TRUE(isnan(b) ? isnan(moec_bf16_to_f32(b_back)) : b_back == v);
  }
}
END_TEST

/* |got| is the half nearest to |v|, the even one of two: judged by its two neighbours, with
 * infinity standing where the next finite number would be. */
static void check_nearest(moec_dtype t, double v, uint16_t got) {
  uint16_t magnitude = got & 0x7fff, infinity = t == MOEC_F16 ? 0x7c00 : 0x7f80;
  UNIT_TRUE(magnitude <= infinity && (got >> 15) == (uint16_t)(signbit(v) != 0));
  double step_to_infinity = t == MOEC_F16 ? 0x1p16 : 0x1p128, near[3];
  for (int k = 0; k < 3; k++) {
    int m = magnitude + k - 1;
    near[k] = m < 0 || m > infinity ? INFINITY
              : m == infinity       ? step_to_infinity
                                    : (double)half(t, (uint16_t)m);
    near[k] = fabs(near[k] - fabs(v));
  }
  bool nearest = near[1] <= near[0] && near[1] <= near[2];
  bool no_tie = near[1] < near[0] && near[1] < near[2];
  if (!nearest || (got & 1 && !no_tie)) ck_abort_msg("%a gave 0x%x", v, (unsigned)got);
}

static uint64_t next_random(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

START_TEST(floats_round_to_nearest_even) {
  uint64_t state = 42;
  for (int i = 0; i < 400000; i++) {
    /* f16's range and somewhat more, many ties: few of the low bits are set. */
    uint32_t bits = (uint32_t)next_random(&state);
    bits = (bits & 0x80001fff) | ((100 + (uint32_t)(next_random(&state) % 50)) << 23) |
           ((uint32_t)next_random(&state) & 0x7fe000);
    if (i & 1) bits &= ~0xfffu;
    if (i & 2) bits &= ~0x1fffu;
    float v;
    memcpy(&v, &bits, sizeof v);
    check_nearest(MOEC_F16, (double)v, moec_f32_to_f16(v));
    check_nearest(MOEC_BF16, (double)v, moec_f32_to_bf16(v));
  }
}
END_TEST

START_TEST(doubles_round_once) {
  uint64_t state = 43;
  for (int i = 0; i < 200000; i++) {
    uint16_t h[2] = {0};
    /* Near the middle of two halves, off by less than a float can show. */
    double low = 1.0 + (double)(next_random(&state) % 1024) * 0x1p-10;
    double v = (low + 0x1p-11) * (1 + ((i & 1) ? 0x1p-40 : -0x1p-40));
    moec_store_f64(MOEC_F16, h, 0, v);
    check_nearest(MOEC_F16, v, h[0]);
    double b = (1.0 + (double)(next_random(&state) % 128) * 0x1p-7 + 0x1p-8) * (1 - 0x1p-45);
    moec_store_f64(MOEC_BF16, h, 1, -b);
    check_nearest(MOEC_BF16, -b, h[1]);
  }
  uint16_t b = 0;
  moec_store_i64(MOEC_BF16, &b, 0, (1ll << 62) + (1ll << 54) + 1); /* just above a tie */
  ck_assert_uint_eq(b, 0x5e81);
  moec_store_i64(MOEC_BF16, &b, 0, -(1ll << 62) - (1ll << 54));
  ck_assert_uint_eq(b, 0xde80);
  moec_store_f64(MOEC_F16, &b, 0, 1e300);
  ck_assert_uint_eq(b, 0x7c00);
  moec_store_f64(MOEC_F16, &b, 0, -1e-300);
  ck_assert_uint_eq(b, 0x8000);
}
END_TEST

START_TEST(known_halves) {
  ck_assert_uint_eq(moec_f32_to_f16(65519.996f), 0x7bff);
  ck_assert_uint_eq(moec_f32_to_f16(65520.0f), 0x7c00);
  ck_assert_uint_eq(moec_f32_to_f16(0x1p-24f), 0x0001);
  ck_assert_uint_eq(moec_f32_to_f16(0x1p-25f), 0x0000);
  ck_assert_uint_eq(moec_f32_to_f16(0x1.8p-24f), 0x0002);
  ck_assert_uint_eq(moec_f32_to_f16(-0.0f), 0x8000);
  ck_assert_uint_eq(moec_f32_to_bf16(0x1.fffffep127f), 0x7f80);
  ck_assert_uint_eq(moec_f32_to_bf16(0x1p-133f), 0x0001);
  uint32_t signalling = 0x7f800001;
  float nan;
  memcpy(&nan, &signalling, sizeof nan);
  ck_assert(isnan(moec_bf16_to_f32(moec_f32_to_bf16(nan))));
  ck_assert(isnan(moec_f16_to_f32(moec_f32_to_f16(nan))));
}
END_TEST

static int64_t through(moec_dtype t, double v) {
  char raw[9] = {0};
  moec_store_f64(t, raw + 1, 0, v); /* unaligned on purpose */
  return moec_load_i64(t, raw + 1, 0);
}

START_TEST(floats_to_integers_saturate) {
  ck_assert_int_eq(through(MOEC_I8, 1e9), 127);
  ck_assert_int_eq(through(MOEC_I8, -1e9), -128);
  ck_assert_int_eq(through(MOEC_I16, -INFINITY), INT16_MIN);
  ck_assert_int_eq(through(MOEC_I32, INFINITY), INT32_MAX);
  ck_assert_int_eq(through(MOEC_I64, 0x1p63), INT64_MAX);
  ck_assert_int_eq(through(MOEC_I64, -0x1p64), INT64_MIN);
  ck_assert_int_eq(through(MOEC_U8, -1.5), 0);
  ck_assert_int_eq(through(MOEC_U16, 1e5), 65535);
  ck_assert_int_eq(through(MOEC_U32, 1e12), UINT32_MAX);
  ck_assert_int_eq(through(MOEC_U64, 1e30), -1);
  ck_assert_int_eq(through(MOEC_I32, NAN), 0);
  ck_assert_int_eq(through(MOEC_U64, NAN), 0);
  ck_assert_int_eq(through(MOEC_I32, -2.9), -2);
  ck_assert_int_eq(through(MOEC_BOOL, 0.25), 1);
  ck_assert_int_eq(through(MOEC_BOOL, -0.0), 0);
  ck_assert_int_eq(through(MOEC_F32, 3e38), INT64_MAX);
}
END_TEST

START_TEST(integers_wrap) {
  char raw[8] = {0};
  moec_store_i64(MOEC_I8, raw, 0, 300);
  ck_assert_int_eq(moec_load_i64(MOEC_I8, raw, 0), 44);
  moec_store_i64(MOEC_U32, raw, 0, -1);
  ck_assert_int_eq(moec_load_i64(MOEC_U32, raw, 0), UINT32_MAX);
  moec_store_i64(MOEC_U64, raw, 0, -1);
  ck_assert_double_eq(moec_load_f64(MOEC_U64, raw, 0), 0x1p64);
  moec_store_i64(MOEC_BOOL, raw, 0, 256);
  ck_assert_int_eq(moec_load_i64(MOEC_BOOL, raw, 0), 1);
}
END_TEST

START_TEST(shapes_are_checked) {
  size_t bytes;
  int64_t dims[13] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  UNIT_OK(moec_shape_bytes(MOEC_F64, 12, dims, &bytes));
  ck_assert_uint_eq(bytes, 8);
  UNIT_FAILS(moec_shape_bytes(MOEC_F64, 13, dims, &bytes), MOEC_INVALID_ARGUMENT, "rank");
  UNIT_FAILS(moec_shape_bytes(MOEC_DTYPE_NONE, 1, dims, &bytes), MOEC_INVALID_ARGUMENT, "type");
  int64_t huge[3] = {1ll << 31, 1ll << 31, 2}, empty[3] = {1ll << 40, 1ll << 40, 0};
  UNIT_FAILS(moec_shape_bytes(MOEC_U8, 3, huge, &bytes), MOEC_INVALID_ARGUMENT, "2^63");
  UNIT_FAILS(moec_shape_bytes(MOEC_U8, 3, empty, &bytes), MOEC_INVALID_ARGUMENT, "2^63");
  UNIT_FAILS(moec_shape_bytes(MOEC_U8, 1, (int64_t[]){-1}, &bytes), MOEC_INVALID_ARGUMENT, ">= 0");
  moec_tensor t;
  UNIT_OK(moec_tensor_init(&t, MOEC_F32, 2, (int64_t[]){0, 5}));
  ck_assert_ptr_nonnull(t.data);
  ck_assert_int_eq(moec_tensor_numel(&t), 0);
  moec_tensor_fini(&t);
  UNIT_OK(moec_tensor_init(&t, MOEC_BF16, 0, NULL));
  ck_assert_int_eq(moec_tensor_numel(&t), 1);
  ck_assert_uint_eq(moec_tensor_bytes(&t), 2);
  moec_tensor_fini(&t);
  ck_assert_int_eq(moec_tensor_numel(&t), 0);
}
END_TEST

UNIT_MAIN("dtype", names_and_codes_map_back, halves_map_back, floats_round_to_nearest_even,
          doubles_round_once, known_halves, floats_to_integers_saturate, integers_wrap,
          shapes_are_checked)
