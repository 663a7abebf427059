/* ---- sums, norm and optimizers -----------------------------------------------------------------------
 * As runtime/train_cpu.c. Eight elements a thread, 16 bytes at a time. What changes from step to step lies in device
 * memory. */
typedef struct moec_cuda_scale {
  double norm;
  float scale, before;
  int32_t bad, reserved;
} moec_cuda_scale;

typedef struct moec_cuda_update {
  float lr, keep, decay, beta2, eps, grow1, grow2, root, momentum;
} moec_cuda_update;

/* This thread's |count| elements from i on, up to eight. */
#define MOEC_EIGHTS                                                                                      \
  int64_t i = 8 * MOEC_FIRST, count = n - i < 8 ? n - i : 8; i < n;                                      \
  i += 8 * MOEC_STEP, count = n - i < 8 ? n - i : 8

/* Elements i, i + 1 ... of floats of any dtype but f64; i is a multiple of 8, x of 16 bytes. */
MOEC_INLINE void moec_load_eight(int32_t dtype, const void *x, int64_t i, int64_t count, float v[8]) {
  if (count < 8) {
    for (int k = 0; k < 8; k++) v[k] = k < count ? moec_load_f32(dtype, x, i + k) : 0.0f;
  } else if (dtype == MOEC_F32) {
    const float4 a = ((const float4 *)x)[i / 4], b = ((const float4 *)x)[i / 4 + 1];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
  } else {
    const uint4 a = ((const uint4 *)x)[i / 8];
    const uint32_t words[4] = {a.x, a.y, a.z, a.w};
    for (int k = 0; k < 8; k++) {
      const uint16_t half = (uint16_t)(words[k / 2] >> 16 * (k % 2));
      v[k] = dtype == MOEC_BF16 ? moec_load_bf16(half) : moec_load_f16(half);
    }
  }
}

MOEC_INLINE void moec_store_eight(int32_t dtype, void *y, int64_t i, int64_t count, const float v[8]) {
  if (count < 8) {
    for (int k = 0; k < count; k++) moec_store_any(dtype, y, i + k, v[k]);
  } else if (dtype == MOEC_F32) {
    float4 a, b;
    a.x = v[0], a.y = v[1], a.z = v[2], a.w = v[3], b.x = v[4], b.y = v[5], b.z = v[6], b.w = v[7];
    ((float4 *)y)[i / 4] = a, ((float4 *)y)[i / 4 + 1] = b;
  } else {
    uint32_t words[4];
    for (int k = 0; k < 4; k++) {
      const bool bf16 = dtype == MOEC_BF16;
      const uint32_t low = bf16 ? moec_store_bf16(v[2 * k]) : moec_store_f16(v[2 * k]);
      const uint32_t high = bf16 ? moec_store_bf16(v[2 * k + 1]) : moec_store_f16(v[2 * k + 1]);
      words[k] = low | high << 16;
    }
    uint4 a;
    a.x = words[0], a.y = words[1], a.z = words[2], a.w = words[3];
    ((uint4 *)y)[i / 8] = a;
  }
}

MOEC_INLINE float moec_scale_of(const moec_cuda_scale *s) { return s ? s->scale : 1.0f; }

extern "C" __global__ void __launch_bounds__(256)
moec_add(float *to, int32_t more, const void *from, int32_t dtype, const moec_cuda_scale *s, int64_t n) {
  const float scale = moec_scale_of(s);
  for (MOEC_EIGHTS) {
    float a[8], b[8];
    moec_load_eight(dtype, from, i, count, a);
    for (int k = 0; k < 8; k++) a[k] *= scale;
    if (more) moec_load_eight(MOEC_F32, to, i, count, b);
    for (int k = 0; k < 8 && more; k++) a[k] += b[k];
    moec_store_eight(MOEC_F32, to, i, count, a);
  }
}

/* sums[c] = the sum of the squares of the c-th 16384 elements. */
extern "C" __global__ void __launch_bounds__(256)
moec_square_sum(const void *__restrict__ x, int32_t dtype, int64_t n, double *sums) {
  MOEC_BLOCK_TEAM
  for (int64_t chunk = team; chunk * 16384 < n; chunk += n_teams) {
    const int64_t end = n < (chunk + 1) * 16384 ? n : (chunk + 1) * 16384;
    double sum = 0;
    for (int64_t i = chunk * 16384 + 8 * self; i < end; i += 8 * 256) {
      float v[8];
      moec_load_eight(dtype, x, i, end - i < 8 ? end - i : 8, v);
      for (int k = 0; k < 8; k++) sum += (double)v[k] * v[k];
    }
    MOEC_BLOCK_JOIN(double, sum, sum += other;, 8)
    if (self == 0) sums[chunk] = sum;
  }
}

extern "C" __global__ void __launch_bounds__(1024)
moec_clip(const double *__restrict__ sums, int64_t n, double max_norm, moec_cuda_scale *s) {
  MOEC_BLOCK_TEAM
  (void)team, (void)n_teams;
  double sum = 0;
  for (int64_t i = self; i < n; i += 1024) sum += sums[i];
  MOEC_BLOCK_JOIN(double, sum, sum += other;, 32)
  if (self) return;
  const float scale = s->scale - s->scale == 0 ? s->scale : s->before; /* a norm was not finite, and nobody looked */
  const double norm = sqrt(sum) * fabs((double)scale), factor = max_norm / (norm + 1e-6);
  s->norm = norm;
  s->scale = s->before = scale;
  if (!(norm < INFINITY)) s->scale = NAN, s->bad = 1;
  else if (factor < 1) s->scale = (float)(scale * factor);
}

extern "C" __global__ void __launch_bounds__(256, 3)
moec_adamw(float *__restrict__ w, float *__restrict__ first, float *__restrict__ second, const void *__restrict__ g,
           int32_t g_dtype, void *__restrict__ copy, int32_t copy_dtype, int64_t n,
           const moec_cuda_update *__restrict__ u, const moec_cuda_scale *__restrict__ s) {
  const moec_cuda_update c = *u;
  const float scale = moec_scale_of(s);
  if (!(scale - scale == 0)) return; /* the norm is not finite */
  for (MOEC_EIGHTS) {
    float v[8], a[8], b[8], d[8];
    moec_load_eight(MOEC_F32, w, i, count, v);
    moec_load_eight(MOEC_F32, first, i, count, a);
    moec_load_eight(MOEC_F32, second, i, count, b);
    moec_load_eight(g_dtype, g, i, count, d);
    for (int k = 0; k < 8; k++) {
      d[k] *= scale;
      a[k] += (d[k] - a[k]) * c.grow1;
      b[k] = b[k] * c.beta2 + d[k] * d[k] * c.grow2;
      v[k] = v[k] * c.keep - c.lr * (a[k] / (sqrtf(b[k]) * c.root + c.eps));
    }
    moec_store_eight(MOEC_F32, w, i, count, v);
    moec_store_eight(MOEC_F32, first, i, count, a);
    moec_store_eight(MOEC_F32, second, i, count, b);
    if (copy) moec_store_eight(copy_dtype, copy, i, count, v);
  }
}

extern "C" __global__ void __launch_bounds__(256)
moec_sgd(float *__restrict__ w, float *__restrict__ first, const void *__restrict__ g, int32_t g_dtype,
         void *__restrict__ copy, int32_t copy_dtype, int64_t n, const moec_cuda_update *__restrict__ u,
         const moec_cuda_scale *__restrict__ s) {
  const moec_cuda_update c = *u;
  const float scale = moec_scale_of(s);
  if (!(scale - scale == 0)) return; /* the norm is not finite */
  for (MOEC_EIGHTS) {
    float v[8], a[8], d[8];
    moec_load_eight(MOEC_F32, w, i, count, v);
    moec_load_eight(g_dtype, g, i, count, d);
    if (first) moec_load_eight(MOEC_F32, first, i, count, a);
    for (int k = 0; k < 8; k++) {
      d[k] = d[k] * scale + c.decay * v[k];
      if (first) d[k] = a[k] = a[k] * c.momentum + d[k];
      v[k] -= c.lr * d[k];
    }
    moec_store_eight(MOEC_F32, w, i, count, v);
    if (first) moec_store_eight(MOEC_F32, first, i, count, a);
    if (copy) moec_store_eight(copy_dtype, copy, i, count, v);
  }
}
