/* ---- norm and optimizers ---------------------------------------------------------------------------
 * As runtime/optimizer.c. What changes from step to step lies in device memory. */
typedef struct moec_cuda_update {
  float lr, raw_lr, beta2, eps, grow1, grow2, scale, momentum, clip;
} moec_cuda_update;

/* partial[block] = the sum of the squares of every element that is this block's. */
extern "C" __global__ void __launch_bounds__(256)
moec_square_sum(const void *__restrict__ x, int32_t dtype, int64_t n, double *partial) {
  MOEC_BLOCK_TEAM
  (void)team, (void)n_teams;
  double sum = 0;
  for (int64_t i = MOEC_FIRST; i < n; i += MOEC_STEP) {
    const double v = moec_load_f64(dtype, x, i);
    sum += v * v;
  }
  MOEC_BLOCK_JOIN(double, sum, sum += other;, 8)
  if (self == 0) partial[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(256)
moec_clip_scale(const double *__restrict__ partial, int64_t n, float max_norm, moec_cuda_update *u, float *norm) {
  MOEC_BLOCK_TEAM
  (void)team, (void)n_teams;
  double sum = 0;
  for (int64_t i = self; i < n; i += 256) sum += partial[i];
  MOEC_BLOCK_JOIN(double, sum, sum += other;, 8)
  if (self) return;
  *norm = (float)sqrt(sum);
  u->clip = max_norm < *norm ? max_norm / *norm : 1.0f;
}

/* The compute copy of an element; none where |copy| is NULL. */
MOEC_INLINE void moec_refresh(void *copy, int32_t dtype, int64_t i, float w) {
  if (copy) moec_store_any(dtype, copy, i, w);
}

extern "C" __global__ void __launch_bounds__(256)
moec_adamw(float *__restrict__ w, float *__restrict__ first, float *__restrict__ second, const void *__restrict__ g,
           int32_t g_dtype, void *__restrict__ copy, int32_t copy_dtype, float decay, int64_t n,
           const moec_cuda_update *__restrict__ u) {
  const float keep = 1 - u->raw_lr * decay;
  for (int64_t i = MOEC_FIRST; i < n; i += MOEC_STEP) {
    const float d = moec_load_f32(g_dtype, g, i) * u->clip;
    const float a = first[i] + (d - first[i]) * u->grow1, b = second[i] * u->beta2 + d * d * u->grow2;
    const float v = w[i] * keep - u->lr * (a / (sqrtf(b) * u->scale + u->eps));
    first[i] = a, second[i] = b, w[i] = v;
    moec_refresh(copy, copy_dtype, i, v);
  }
}

extern "C" __global__ void __launch_bounds__(256)
moec_sgd(float *__restrict__ w, float *__restrict__ first, const void *__restrict__ g, int32_t g_dtype,
         void *__restrict__ copy, int32_t copy_dtype, float decay, int64_t n, const moec_cuda_update *__restrict__ u) {
  for (int64_t i = MOEC_FIRST; i < n; i += MOEC_STEP) {
    float d = moec_load_f32(g_dtype, g, i) * u->clip + decay * w[i];
    if (first) d = first[i] = (u->momentum != 0 ? first[i] * u->momentum : 0) + d;
    const float v = w[i] - u->lr * d;
    w[i] = v;
    moec_refresh(copy, copy_dtype, i, v);
  }
}
