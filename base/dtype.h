/* Element types, one line each: DTYPE(NAME, text, bytes, class, ONNX TensorProto code,
 * safetensors name, C type of emitted code). Classes: F float, I signed, U unsigned, B bool. */
#ifndef MOEC_BASE_DTYPE_H
#define MOEC_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MOEC_DTYPES(DTYPE)                            \
  DTYPE(F32, "f32", 4, 'F', 1, "F32", "float")        \
  DTYPE(F64, "f64", 8, 'F', 11, "F64", "double")      \
  DTYPE(F16, "f16", 2, 'F', 10, "F16", "uint16_t")    \
  DTYPE(BF16, "bf16", 2, 'F', 16, "BF16", "uint16_t") \
  DTYPE(I64, "i64", 8, 'I', 7, "I64", "int64_t")      \
  DTYPE(I32, "i32", 4, 'I', 6, "I32", "int32_t")      \
  DTYPE(I16, "i16", 2, 'I', 5, "I16", "int16_t")      \
  DTYPE(I8, "i8", 1, 'I', 3, "I8", "int8_t")          \
  DTYPE(U64, "u64", 8, 'U', 13, "U64", "uint64_t")    \
  DTYPE(U32, "u32", 4, 'U', 12, "U32", "uint32_t")    \
  DTYPE(U16, "u16", 2, 'U', 4, "U16", "uint16_t")     \
  DTYPE(U8, "u8", 1, 'U', 2, "U8", "uint8_t")         \
  DTYPE(BOOL, "bool", 1, 'B', 9, "BOOL", "uint8_t")

/* clang-format off */
typedef enum moec_dtype {
  MOEC_DTYPE_NONE = 0,
#define MOEC_DTYPE_ENUM(name, text, bytes, cls, onnx, st, c) MOEC_##name,
  MOEC_DTYPES(MOEC_DTYPE_ENUM)
#undef MOEC_DTYPE_ENUM
  MOEC_DTYPE_COUNT
} moec_dtype;
/* clang-format on */

typedef struct moec_dtype_info {
  const char *text;        /* "f32" */
  size_t bytes;            /* of one element */
  char cls;                /* 'F', 'I', 'U' or 'B' */
  int onnx;                /* TensorProto.DataType */
  const char *safetensors; /* "F32" */
  const char *c;           /* "float" */
} moec_dtype_info;

const moec_dtype_info *moec_dtype_get(moec_dtype t);   /* a zeroed record for NONE */
moec_dtype moec_dtype_from_text(const char *text);     /* NONE when unknown */
moec_dtype moec_dtype_from_onnx(int code);             /* NONE when unknown */
moec_dtype moec_dtype_from_safetensors(const char *s); /* NONE when unknown */
static inline bool moec_dtype_is_float(moec_dtype t) { return moec_dtype_get(t)->cls == 'F'; }

/* IEEE conversions, round to nearest even; NaN stays NaN. */
float moec_bf16_to_f32(uint16_t v);
uint16_t moec_f32_to_bf16(float v);
float moec_f16_to_f32(uint16_t v);
uint16_t moec_f32_to_f16(float v);

/* Element |i| of an array of type |t| as double / int64 (bool: 0 or 1), and back (saturating
 * nothing: integers wrap as a C cast does, floats to integers truncate toward zero and
 * saturate at the ends, NaN gives 0; anything nonzero becomes true). */
double moec_load_f64(moec_dtype t, const void *data, size_t i);
int64_t moec_load_i64(moec_dtype t, const void *data, size_t i);
void moec_store_f64(moec_dtype t, void *data, size_t i, double v);
void moec_store_i64(moec_dtype t, void *data, size_t i, int64_t v);

#endif
