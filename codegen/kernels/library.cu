/* ---- what library kernels share ---------------------------------------------------------------- */

/* moec_dtype of base/dtype.h. */
enum { MOEC_F32 = 1, MOEC_F64, MOEC_F16, MOEC_BF16, MOEC_I64, MOEC_I32, MOEC_I16, MOEC_I8, MOEC_U64, MOEC_U32, MOEC_U16,
       MOEC_U8, MOEC_BOOL };

typedef struct moec_cuda_shape {
  int64_t rank, dims[12];
} moec_cuda_shape;

/* Element i of floats of any dtype. */
MOEC_INLINE double moec_load_f64(int32_t dtype, const void *x, int64_t i) {
  if (dtype == MOEC_F32) return ((const float *)x)[i];
  if (dtype == MOEC_BF16) return moec_load_bf16(((const uint16_t *)x)[i]);
  if (dtype == MOEC_F16) return moec_load_f16(((const uint16_t *)x)[i]);
  return ((const double *)x)[i];
}
MOEC_INLINE float moec_load_f32(int32_t dtype, const void *x, int64_t i) {
  if (dtype == MOEC_F32) return ((const float *)x)[i];
  if (dtype == MOEC_BF16) return moec_load_bf16(((const uint16_t *)x)[i]);
  if (dtype == MOEC_F16) return moec_load_f16(((const uint16_t *)x)[i]);
  return (float)((const double *)x)[i];
}
MOEC_INLINE void moec_store_any(int32_t dtype, void *y, int64_t i, double v) {
  if (dtype == MOEC_F32) ((float *)y)[i] = (float)v;
  else if (dtype == MOEC_BF16) ((uint16_t *)y)[i] = moec_store_bf16((float)v);
  else if (dtype == MOEC_F16) ((uint16_t *)y)[i] = moec_store_f16((float)v);
  else ((double *)y)[i] = v;
}
MOEC_INLINE void moec_store_any(int32_t dtype, void *y, int64_t i, float v) {
  if (dtype == MOEC_F32) ((float *)y)[i] = v;
  else if (dtype == MOEC_BF16) ((uint16_t *)y)[i] = moec_store_bf16(v);
  else if (dtype == MOEC_F16) ((uint16_t *)y)[i] = moec_store_f16(v);
  else ((double *)y)[i] = v;
}

MOEC_INLINE int64_t moec_index(int32_t dtype, const void *i, int64_t at) {
  return dtype == MOEC_I64 ? ((const int64_t *)i)[at] : ((const int32_t *)i)[at];
}

/* 2^x, a few units in its last place from it; 0 where that is no normal number. */
MOEC_INLINE float moec_exp2_f32(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/* splitmix64, as base/random.h. */
MOEC_INLINE uint64_t moec_mix(uint64_t state) {
  uint64_t z = state + 0x9e3779b97f4a7c15ULL;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
  return z ^ z >> 31;
}

/* This thread's first element and the step to its next, over all blocks. */
#define MOEC_FIRST ((int64_t)blockIdx.x * blockDim.x + threadIdx.x)
#define MOEC_STEP ((int64_t)gridDim.x * blockDim.x)
