/* What training does with arrays of a CUDA device: the kernels of codegen/kernels/update.cu. */
#include "runtime/cuda.h"

enum { PER_BLOCK = 2048 };

/* Outside of programs. */
static moec_status *launch(moec_model *m, const char *name, int64_t work, int64_t per_block, void **parameters) {
  MOEC_TRY(moec_rt_cuda_enter(m));
  return moec_rt_cuda_launch(m, name, MOEC_DTYPE_NONE, work, per_block, parameters);
}

static moec_status *add(moec_model *m, float *to, bool more, moec_dtype type, const void *from,
                        const moec_cuda_scale *scale, int64_t n) {
  int32_t again = more, dtype = (int32_t)type;
  void *parameters[] = {&to, &again, &from, &dtype, &scale, &n};
  return launch(m, "add", n, PER_BLOCK, parameters);
}

static moec_status *narrow(moec_model *m, moec_dtype type, void *to, const float *from, int64_t n) {
  int32_t to_dtype = (int32_t)type, from_dtype = MOEC_F32;
  void *parameters[] = {&to, &to_dtype, &from, &from_dtype, &n};
  return launch(m, "cast", n, PER_BLOCK, parameters);
}

static moec_status *squares(moec_model *m, moec_dtype type, const void *from, int64_t n, double *sums) {
  int32_t dtype = (int32_t)type;
  void *parameters[] = {&from, &dtype, &n, &sums};
  return launch(m, "square_sum", n, MOEC_RT_SQUARES, parameters);
}

static moec_status *clip(moec_model *m, const double *sums, int64_t n, double max_norm, moec_cuda_scale *scale) {
  void *parameters[] = {&sums, &n, &max_norm, &scale};
  MOEC_TRY(moec_rt_cuda_enter(m));
  return moec_rt_cuda_launch_blocks(m, "clip", MOEC_DTYPE_NONE, 1, parameters);
}

/* Every block once: at 28 bytes an element those that come again after a few waves read 10 % less in the same time. */
static moec_status *update(moec_model *m, const moec_rt_update *u) {
  moec_rt_update v = *u; /* parameters are not const */
  int32_t g_dtype = (int32_t)v.g_type, copy_dtype = (int32_t)v.copy_type;
  void *adamw[] = {&v.w, &v.first, &v.second, &v.g, &g_dtype, &v.copy, &copy_dtype, &v.n, &v.by, &v.scale};
  void *sgd[] = {&v.w, &v.first, &v.g, &g_dtype, &v.copy, &copy_dtype, &v.n, &v.by, &v.scale};
  int64_t blocks = v.n / PER_BLOCK + (v.n % PER_BLOCK != 0);
  if (blocks > INT32_MAX) blocks = INT32_MAX; /* as many as a launch can have */
  if (!blocks) return NULL;
  MOEC_TRY(moec_rt_cuda_enter(m));
  return moec_rt_cuda_launch_blocks(m, v.adamw ? "adamw" : "sgd", MOEC_DTYPE_NONE, blocks, v.adamw ? adamw : sgd);
}

const moec_rt_train_ops moec_rt_train_cuda = {add, narrow, squares, clip, update};
