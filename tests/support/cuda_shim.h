// Emitted CUDA as C++ of the host: what the language adds, for tests/support/cuda_emulation.h. Headers of the system
// would disagree with the types of codegen/kernels/prelude.cu, so there are none.
#define __global__
#define __device__ __attribute__((unused))
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static

struct float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
// A wide read at a place that isn't a multiple of its size would be an error of the device.
template <class T> static inline T __ldg(const T *at) {
  if ((unsigned long long)at % sizeof(T)) __builtin_trap();
  return *at;
}

// The thread that runs. |wait|: until those lanes of its warp, 0: the threads of its block, have come here. |slot|: by
// thread.
struct moec_emulated {
  struct {
    unsigned x, y, z;
  } thread, block, grid, size;
  void (*wait)(unsigned mates);
  unsigned long long *slot;
};
extern "C" {
moec_emulated *moec_emulated_now;
}
#define threadIdx (moec_emulated_now->thread)
#define blockIdx (moec_emulated_now->block)
#define gridDim (moec_emulated_now->grid)
#define blockDim (moec_emulated_now->size)
#define __syncthreads() moec_emulated_now->wait(0)
static inline void __syncwarp(unsigned mates = 0xffffffffu) { moec_emulated_now->wait(mates); }

template <class To, class From> static inline To moec_bit_cast(From v) {
  To r;
  static_assert(sizeof r == sizeof v, "");
  __builtin_memcpy(&r, &v, sizeof r);
  return r;
}
static inline float __uint_as_float(unsigned v) { return moec_bit_cast<float>(v); }
static inline unsigned __float_as_uint(float v) { return moec_bit_cast<unsigned>(v); }
static inline long long __double_as_longlong(double v) { return moec_bit_cast<long long>(v); }
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __ffs(unsigned v) { return __builtin_ffs((int)v); }

// The value that lane |from| of the warp, one of |mates|, gives.
template <class T> static T moec_exchange(unsigned mates, T v, int from) {
  unsigned me = threadIdx.x;
  __builtin_memcpy(&moec_emulated_now->slot[me], &v, sizeof v);
  __syncwarp(mates);
  __builtin_memcpy(&v, &moec_emulated_now->slot[(me & ~31u) + (unsigned)from], sizeof v);
  __syncwarp(mates);
  return v;
}
template <class T> static T __shfl_xor_sync(unsigned mates, T v, int mask) {
  return moec_exchange(mates, v, (int)(threadIdx.x % 32) ^ mask);
}
template <class T> static T __shfl_sync(unsigned mates, T v, int lane) {
  return moec_exchange(mates, v, lane);
}
template <class T> static T __shfl_up_sync(unsigned mates, T v, int delta) {
  int lane = (int)(threadIdx.x % 32);
  return moec_exchange(mates, v, lane >= delta ? lane - delta : lane);
}
static inline unsigned __ballot_sync(unsigned mates, int v) {
  unsigned r = 0;
  for (int lane = 0; lane < 32; lane++) r |= (moec_exchange(mates, v, lane) != 0 ? 1u : 0u) << lane;
  return r;
}
template <class T> static unsigned __match_any_sync(unsigned mates, T v) {
  unsigned r = 0;
  for (int lane = 0; lane < 32; lane++) r |= (moec_exchange(mates, v, lane) == v ? 1u : 0u) << lane;
  return r;
}
template <class T> static T __reduce_max_sync(unsigned mates, T v) {
  T r = v;
  for (int lane = 0; lane < 32; lane++) {
    T other = moec_exchange(mates, v, lane);
    r = other > r ? other : r;
  }
  return r;
}
template <class T> static T __reduce_min_sync(unsigned mates, T v) {
  T r = v;
  for (int lane = 0; lane < 32; lane++) {
    T other = moec_exchange(mates, v, lane);
    r = other < r ? other : r;
  }
  return r;
}
template <class T> static T __ldcs(const T *from) { return *from; }
template <class T> static void __stcs(T *to, T v) { *to = v; }
static inline int atomicAdd(int *at, int v) { return *at += v, *at - v; }
static inline int __syncthreads_or(int v) {
  static int any;
  if (threadIdx.x == 0) any = 0;
  __syncthreads();
  if (v) any = 1;
  __syncthreads();
  int r = any;
  __syncthreads();
  return r;
}

// What tensor cores do, and copies that are there at once, in place of codegen/kernels/tensor.cu.
#define MOEC_EMULATED
static inline void moec_load_tiles(unsigned *r, const unsigned short *row) {
  unsigned lane = threadIdx.x % 32;
  if ((unsigned long long)row % 16) __builtin_trap();
  for (int t = 0; t < 4; t++) {
    const unsigned short *from = moec_exchange(0xffffffffu, row, t * 8 + (int)lane / 4) + lane % 4 * 2;
    r[t] = from[0] | (unsigned)from[1] << 16;
  }
}
static inline void moec_load_tiles_across(unsigned *r, const unsigned short *row) {
  unsigned lane = threadIdx.x % 32;
  if ((unsigned long long)row % 16) __builtin_trap();
  for (int t = 0; t < 4; t++) {
    unsigned low = moec_exchange(0xffffffffu, row, t * 8 + (int)lane % 4 * 2)[lane / 4];
    r[t] = low | (unsigned)moec_exchange(0xffffffffu, row, t * 8 + (int)lane % 4 * 2 + 1)[lane / 4] << 16;
  }
}
static void moec_multiply_tiles(float *c, const unsigned *a, unsigned b0, unsigned b1, float (*load)(unsigned short)) {
  static unsigned tiles[1024][6];
  unsigned me = threadIdx.x, lane = me % 32;
  unsigned(*warp)[6] = &tiles[me - lane], *own = warp[lane];
  own[0] = a[0], own[1] = a[1], own[2] = a[2], own[3] = a[3], own[4] = b0, own[5] = b1;
  __syncwarp();
  for (unsigned i = 0; i < 4; i++)
    for (unsigned k = 0; k < 16; k++) {
      unsigned q = k % 8 / 2, shift = k % 2 * 16;
      unsigned left = warp[lane / 4 * 4 + q][k / 8 * 2 + i / 2] >> shift;
      unsigned right = warp[(lane % 4 * 2 + i % 2) * 4 + q][4 + k / 8] >> shift;
      c[i] += load((unsigned short)left) * load((unsigned short)right);
    }
  __syncwarp();
}
static inline float moec_emulated_bf16(unsigned short v) { return __uint_as_float((unsigned)v << 16); }
extern "C" {
extern float (*moec_emulated_from_f16)(unsigned short);
}
static inline void moec_multiply_bf16(float *c, const unsigned *a, unsigned b0, unsigned b1) {
  moec_multiply_tiles(c, a, b0, b1, moec_emulated_bf16);
}
static inline void moec_multiply_f16(float *c, const unsigned *a, unsigned b0, unsigned b1) {
  moec_multiply_tiles(c, a, b0, b1, moec_emulated_from_f16);
}
static inline void moec_copy_16(unsigned short *to, const unsigned short *from, bool there) {
  if ((unsigned long long)to % 16 || (unsigned long long)from % 16) __builtin_trap();
  if (there) __builtin_memcpy(to, from, 16);
  else __builtin_memset(to, 0, 16);
}
static inline void moec_copies_wait(void) {}

// Half precision as docs/ir.md has it, in place of instructions; in the test.
extern "C" {
float (*moec_emulated_from_f16)(unsigned short);
unsigned short (*moec_emulated_to_f16)(float);
unsigned short (*moec_emulated_to_bf16)(float);
}

#define MATH1(name) extern "C" double name(double); extern "C" float name##f(float);
#define MATH2(name) extern "C" double name(double, double); extern "C" float name##f(float, float);
MATH1(exp) MATH1(expm1) MATH1(log) MATH1(log1p) MATH1(sqrt) MATH1(sin) MATH1(cos) MATH1(tan) MATH1(asin) MATH1(acos)
MATH1(atan) MATH1(sinh) MATH1(cosh) MATH1(tanh) MATH1(asinh) MATH1(acosh) MATH1(atanh) MATH1(floor) MATH1(ceil)
MATH1(rint) MATH1(erf) MATH1(fabs) MATH1(exp2) MATH2(pow) MATH2(fmod) MATH2(fmax)
static inline float __expf(float x) { return expf(x); }
static inline float __fdividef(float x, float y) { return x / y; }
extern "C" double frexp(double, int *);
extern "C" double ldexp(double, int);
