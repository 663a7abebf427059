/* What every emitted CUDA kernel stands on: the calling convention, integer and half precision semantics of docs/ir.md,
 * teams of threads. Compiled by NVRTC, which brings no headers. */
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define INT64_C(x) x##LL
#define UINT64_C(x) x##ULL
#define INT8_MIN (-128)
#define INT16_MIN (-32768)
#define INT32_MIN (-2147483647 - 1)
#define INT64_MIN (-9223372036854775807LL - 1)
#define INT8_MAX 127
#define INT16_MAX 32767
#define INT32_MAX 2147483647
#define INT64_MAX 9223372036854775807LL
#define UINT8_MAX 255
#define UINT16_MAX 65535
#define UINT32_MAX 4294967295u
#define UINT64_MAX 18446744073709551615ULL
#define INFINITY __builtin_bit_cast(float, 0x7f800000)
#define NAN __builtin_bit_cast(float, 0x7fc00000)

typedef struct moec_kernel_args {
  void *const *buf;   /* inputs, then outputs */
  const int64_t *sym; /* symbol values */
  void *scratch;      /* of all teams */
  int32_t *fault;     /* set to 1 where an index is out of range */
} moec_kernel_args;

#define MOEC_INLINE static __device__ __forceinline__

#include "codegen/kernels/arith.h"

/* ---- half precision ------------------------------------------------------------------------- */

MOEC_INLINE float moec_load_bf16(uint16_t v) { return __uint_as_float((uint32_t)v << 16); }
MOEC_INLINE uint16_t moec_store_bf16(float f) {
  uint16_t v;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(v) : "f"(f));
  return v;
}
MOEC_INLINE float moec_load_f16(uint16_t v) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v));
  return f;
}
MOEC_INLINE uint16_t moec_store_f16(float f) {
  uint16_t v;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(v) : "f"(f));
  return v;
}
/* Two at once. */
MOEC_INLINE uint32_t moec_pair_bf16(float low, float high) {
  uint32_t v;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
  return v;
}
MOEC_INLINE uint32_t moec_pair_f16(float low, float high) {
  uint32_t v;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
  return v;
}
MOEC_INLINE float moec_round_bf16(float f) { return moec_load_bf16(moec_store_bf16(f)); }
MOEC_INLINE float moec_round_f16(float f) { return moec_load_f16(moec_store_f16(f)); }

/* ---- float functions ------------------------------------------------------------------------ */

MOEC_INLINE float moec_exp_f32(float x) { return expf(x); }
MOEC_INLINE float moec_log_f32(float x) { return logf(x); }
MOEC_INLINE float moec_tanh_f32(float x) { return tanhf(x); }
#include "codegen/kernels/softcap.h"
MOEC_INLINE float moec_erf_f32(float x) { return erff(x); }
MOEC_INLINE float moec_sigmoid_f32(float x) {
  float e = expf(-fabsf(x));
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}
/* Where halves go in or out: off by 2 units in the last place, and by half a one of the argument. */
MOEC_INLINE float moec_rough_exp(float x) { return __expf(x); }
MOEC_INLINE float moec_rough_sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

/* ---- several elements at a time --------------------------------------------------------------- */

/* moec_f32x4: four neighbours, at a multiple of their size or of 16 bytes. Moved in the widest pieces there are. What a
 * kernel reads it doesn't write, so that the compiler may keep what was read; what is reread shall need no registers
 * between the loops. */
#define MOEC_VECTOR(t, T, n, piece)                                              \
  typedef union moec_##t##x##n {                                                 \
    T v[n];                                                                      \
    piece p[sizeof(T) * n / sizeof(piece)];                                      \
  } moec_##t##x##n;                                                              \
  MOEC_INLINE moec_##t##x##n moec_read_##t##x##n(const T *at) {                  \
    moec_##t##x##n r;                                                            \
    for (int i = 0; i < (int)(sizeof r / sizeof(piece)); i++)                    \
      r.p[i] = __ldg((const piece *)at + i);                                     \
    return r;                                                                    \
  }                                                                              \
  MOEC_INLINE moec_##t##x##n moec_reread_##t##x##n(const T *at) {                \
    moec_##t##x##n r;                                                            \
    for (int i = 0; i < (int)(sizeof r / sizeof(piece)); i++) r.p[i] = ((const piece *)at)[i]; \
    return r;                                                                    \
  }
#define MOEC_VECTOR_WRITE(t, T, n, piece)                                        \
  MOEC_INLINE void moec_write_##t##x##n(T *at, const T *v) {                     \
    moec_##t##x##n r;                                                            \
    for (int i = 0; i < n; i++) r.v[i] = v[i];                                   \
    for (int i = 0; i < (int)(sizeof r / sizeof(piece)); i++) ((piece *)at)[i] = r.p[i]; \
  }
#define MOEC_VECTORS(MAKE, t, T, two, four, eight) MAKE(t, T, 2, two) MAKE(t, T, 4, four) MAKE(t, T, 8, eight)
/* clang-format off */
#define MOEC_VECTORS_OF(MAKE)                                                     \
  MOEC_VECTORS(MAKE, f32, float, uint2, uint4, uint4)                             \
  MOEC_VECTORS(MAKE, f64, double, uint4, uint4, uint4)                            \
  MOEC_VECTORS(MAKE, i64, int64_t, uint4, uint4, uint4)                           \
  MOEC_VECTORS(MAKE, i32, int32_t, uint2, uint4, uint4)                           \
  MOEC_VECTORS(MAKE, i16, int16_t, uint32_t, uint2, uint4)                        \
  MOEC_VECTORS(MAKE, i8, int8_t, uint16_t, uint32_t, uint2)                       \
  MOEC_VECTORS(MAKE, u64, uint64_t, uint4, uint4, uint4)                          \
  MOEC_VECTORS(MAKE, u32, uint32_t, uint2, uint4, uint4)                          \
  MOEC_VECTORS(MAKE, u16, uint16_t, uint32_t, uint2, uint4)                       \
  MOEC_VECTORS(MAKE, u8, uint8_t, uint16_t, uint32_t, uint2)                      \
  MOEC_VECTORS(MAKE, bool, uint8_t, uint16_t, uint32_t, uint2)
/* clang-format on */
MOEC_VECTORS_OF(MOEC_VECTOR)
MOEC_VECTORS_OF(MOEC_VECTOR_WRITE)
/* Halves are written from floats. */
#define MOEC_HALF_WRITE(t, T, n, piece)                                          \
  MOEC_INLINE void moec_write_##t##x##n(T *at, const float *v) {                 \
    union {                                                                      \
      uint32_t pair[n / 2];                                                      \
      piece p;                                                                   \
    } r;                                                                         \
    for (int i = 0; i < n / 2; i++) r.pair[i] = moec_pair_##t(v[2 * i], v[2 * i + 1]); \
    *(piece *)at = r.p;                                                          \
  }
#define MOEC_HALVES(MAKE, t) MOEC_VECTORS(MAKE, t, uint16_t, uint32_t, uint2, uint4)
MOEC_HALVES(MOEC_VECTOR, bf16)
MOEC_HALVES(MOEC_VECTOR, f16)
MOEC_HALVES(MOEC_HALF_WRITE, bf16)
MOEC_HALVES(MOEC_HALF_WRITE, f16)

/* ---- teams ---------------------------------------------------------------------------------- */

extern __shared__ float4 moec_dynamic[];

/* A team works on one row: |team| of |n_teams|, of which a thread is number |self|. */
#define MOEC_THREAD_TEAM                                                \
  const int64_t team = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, \
                n_teams = (int64_t)gridDim.x * blockDim.x;
#define MOEC_WARP_TEAM                                                           \
  const int self = threadIdx.x % 32;                                             \
  const int64_t team = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, \
                n_teams = (int64_t)gridDim.x * (blockDim.x / 32);
/* A team of |width| lanes of a warp: |mates|. */
#define MOEC_LANES(width)                                                           \
  const int self = threadIdx.x % width;                                             \
  const uint32_t mates =                                                            \
      (0xffffffffu >> (32 - width)) << (threadIdx.x % 32 / width * width);
#define MOEC_LANES_TEAM(width)                                                      \
  MOEC_LANES(width)                                                                 \
  const int64_t team = (int64_t)blockIdx.x * (blockDim.x / width) + threadIdx.x / width, \
                n_teams = (int64_t)gridDim.x * (blockDim.x / width);
/* A block of slices of |width| lanes. */
#define MOEC_SLICED_TEAM(width, words)                                              \
  __shared__ uint64_t parts[words];                                                 \
  MOEC_LANES(width)                                                                 \
  const int slice = threadIdx.x / width;                                            \
  const int64_t team = blockIdx.x, n_teams = gridDim.x;
#define MOEC_BLOCK_TEAM        \
  __shared__ uint64_t parts[32]; \
  const int self = threadIdx.x;  \
  const int64_t team = blockIdx.x, n_teams = gridDim.x;

/* |a| of each thread becomes what |update|, which adds |other| to it, makes of all of them, in one order; the same in
 * all threads. */
#define MOEC_WARP_JOIN(type, a, update)                                   \
  for (int distance = 16; distance; distance >>= 1) {                     \
    type other = (type)__shfl_xor_sync(0xffffffffu, a, distance);         \
    update                                                                \
  }                                                                       \
  a = (type)__shfl_sync(0xffffffffu, a, 0);
#define MOEC_BLOCK_JOIN(type, a, update, warps)                           \
  {                                                                       \
    MOEC_WARP_JOIN(type, a, update)                                       \
    if (threadIdx.x % 32 == 0) ((type *)parts)[threadIdx.x / 32] = a;     \
    __syncthreads();                                                      \
    a = ((type *)parts)[0];                                               \
    for (int warp = 1; warp < warps; warp++) {                            \
      type other = ((type *)parts)[warp];                                 \
      update                                                              \
    }                                                                     \
    __syncthreads();                                                      \
  }
#define MOEC_LANES_JOIN(type, a, update, width)                           \
  for (int distance = width / 2; distance; distance >>= 1) {              \
    type other = (type)__shfl_xor_sync(mates, a, distance);               \
    update                                                                \
  }                                                                       \
  a = (type)__shfl_sync(mates, a, threadIdx.x % 32 / width * width);
/* |n| elements at |w| of each slice, |mine|, become in the first slice what |update| makes of all, in order. */
#define MOEC_SLICES_JOIN(type, w, n, width, slices, update)                          \
  {                                                                                  \
    type *const at = w, *const all = (type *)parts;                                  \
    __syncthreads();                                                                 \
    _Pragma("unroll") for (int u = 0; u < n; u++) all[(u * slices + slice) * width + self] = at[u]; \
    __syncthreads();                                                                 \
    if (slice == 0) {                                                                \
      _Pragma("unroll") for (int u = 0; u < n; u++) {                                \
        type mine = at[u];                                                           \
        for (int s = 1; s < slices; s++) {                                           \
          type other = all[(u * slices + s) * width + self];                         \
          update                                                                     \
        }                                                                            \
        at[u] = mine;                                                                \
      }                                                                              \
    }                                                                                \
  }
