/* One GPU: its driver, the cubin's functions, one stream. Files: cuda.c opening and memory, cuda_launch.c kernels,
 * cuda_steps.c library steps, cuda_gemm.c products, cuda_grouped.c those of experts, cuda_attention.c attention by
 * cuDNN, cuda_loss.c the loss of a linear layer, cuda_train.c training's arrays, cuda_times.c times and counts. */
#ifndef MOEC_RUNTIME_CUDA_H
#define MOEC_RUNTIME_CUDA_H

#include "include/cuda_abi.h"
#include "runtime/cuda_driver.h"
#include "runtime/gemm.h"
#include "runtime/model.h"

#define MOEC_RT_CUDA_ONE(unit, name, typed, threads) +1
enum { MOEC_RT_CUDA_KERNELS = 0 MOEC_CUDA_KERNELS(MOEC_RT_CUDA_ONE) };
#undef MOEC_RT_CUDA_ONE
#define MOEC_RT_CUDA_ONE(name) +1
enum { MOEC_RT_CUDA_WGMMA = 0 MOEC_CUDA_WGMMA_KERNELS(MOEC_RT_CUDA_ONE) };
#undef MOEC_RT_CUDA_ONE

/* What the kernels of a schedule read to find their operands: symbol values, then addresses, a step's one behind the
 * other. */
typedef struct moec_rt_cuda_table {
  uint64_t *words; /* as they should be */
  uint64_t *sent;  /* as they are on the device */
  uint64_t n;
  bool any; /* |sent| is valid */
  moec_rt_arena on_device;
} moec_rt_cuda_table;

typedef struct moec_rt_cuda {
  moec_cu cu;
  moec_cublas blas;
  moec_cublas_handle handle; /* NULL: no step needs it */
  moec_rt_arena workspace;   /* of cuBLAS */
  struct moec_rt_attention *attention; /* NULL: kernels do it */
  int device;
  moec_cu_context context;
  moec_cu_stream stream;
  moec_cu_module module;
  int64_t multiprocessors, threads; /* threads of a multiprocessor */
  moec_cu_function *kernels;        /* by kernel of the plan */
  moec_cu_function (*library)[MOEC_DTYPE_COUNT]; /* found when first used; type NONE: those without one */
  moec_cu_function wgmma[MOEC_RT_CUDA_WGMMA]; /* found when first used */
  moec_rt_arena turn;                         /* theirs: two zeros */
  moec_cu_function (*activations)[2]; /* by kernel of the plan: those that make it from w [e, k, m] and [e, m, k] */
  moec_rt_cuda_table tables[MOEC_SCHEDULE_COUNT];
  uint64_t *first;  /* by step: its first address in its schedule's table */
  int32_t *faults;  /* by step */
  moec_cu_event *marks; /* [n_steps + 1]: made when first used */
  moec_rt_arena device_faults;
} moec_rt_cuda;

static inline moec_cu_address moec_rt_address(const void *at) { return (moec_cu_address)(uintptr_t)at; }
static inline int64_t moec_rt_ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }
/* Of operands that may be missing, as kernels take them. */
static inline void *moec_rt_data_of(const moec_tensor *t) { return t ? t->data : NULL; }
static inline int32_t moec_rt_dtype_of(const moec_tensor *t) {
  return t ? (int32_t)t->dtype : (int32_t)MOEC_DTYPE_NONE;
}
/* Where step |s| says that an index was out of range. */
static inline int32_t *moec_rt_cuda_fault(const moec_model *m, const moec_plan_step *s) {
  return (int32_t *)(void *)m->cuda->device_faults.data + (s - m->plan.steps);
}

/* ---- cuda.c ---- */
/* Before anything is started: the caller's thread may be another than last time. In a program begin() has done it. */
moec_status *moec_rt_cuda_enter(moec_model *m) MOEC_MUST_USE;
/* What a model with this plan has on its device beside everybody else's; asked without one too. */
uint64_t moec_rt_cuda_own_bytes(const moec_model *m);

/* ---- cuda_launch.c ---- */
uint64_t moec_rt_cuda_tables_bytes(const moec_rt_plan *p);
moec_status *moec_rt_cuda_tables_make(moec_model *m) MOEC_MUST_USE;
moec_status *moec_rt_cuda_find_kernels(moec_model *m) MOEC_MUST_USE;
moec_status *moec_rt_cuda_begin(moec_model *m, moec_schedule schedule, const moec_rt_binding *b) MOEC_MUST_USE;
moec_status *moec_rt_cuda_end(moec_model *m, moec_schedule schedule) MOEC_MUST_USE;
moec_status *moec_rt_cuda_kernel(moec_model *m, uint32_t step, const moec_rt_binding *b) MOEC_MUST_USE;
/* Launches the generated kernel of step |s|, which it is or has. */
moec_status *moec_rt_cuda_generated(moec_model *m, const moec_plan_step *s, const int64_t *values) MOEC_MUST_USE;
moec_status *moec_rt_cuda_need(const moec_model *m, const moec_plan_step *s, const moec_rt_binding *b,
                               const moec_rt_call *call, moec_rt_need *need) MOEC_MUST_USE;
/* Launches moec_|name| of include/cuda_abi.h, the one of |type| where it is not NONE, in as many blocks as |work| needs
 * at |per_block|, but not more than the device is good for. Nothing where there is no work. */
moec_status *moec_rt_cuda_launch(moec_model *m, const char *name, moec_dtype type, int64_t work, int64_t per_block,
                                 void **parameters) MOEC_MUST_USE;
/* The same in exactly |blocks| blocks. */
moec_status *moec_rt_cuda_launch_blocks(moec_model *m, const char *name, moec_dtype type, int64_t blocks,
                                        void **parameters) MOEC_MUST_USE;

/* ---- cuda_attention.c ---- */
moec_status *moec_rt_cuda_attention_open(moec_model *m) MOEC_MUST_USE;
void moec_rt_cuda_attention_close(moec_model *m);
/* Raises |need| by what cuDNN works in for the kernel step |s|, where it may run it; its plans are made here. */
moec_status *moec_rt_cuda_attention_need(const moec_model *m, const moec_plan_step *s, const moec_rt_binding *b,
                                         moec_rt_need *need) MOEC_MUST_USE;
/* Chooses for all steps of |schedule|: m->attention_by_library, m->attention_note. */
moec_status *moec_rt_cuda_attention_begin(moec_model *m, moec_schedule schedule,
                                          const moec_rt_binding *b) MOEC_MUST_USE;
/* Starts step |step| where cuDNN was chosen for it. */
moec_status *moec_rt_cuda_attention_run(moec_model *m, uint32_t step, bool *done) MOEC_MUST_USE;

/* ---- cuda_steps.c ---- */
moec_status *moec_rt_cuda_library(moec_model *m, const moec_rt_call *call) MOEC_MUST_USE;
/* Bytes of temporary memory a library step needs. */
uint64_t moec_rt_cuda_room(const moec_rt_call *call);

/* ---- cuda_times.c ---- */
moec_status *moec_rt_cuda_mark(moec_model *m, uint32_t i) MOEC_MUST_USE;
moec_status *moec_rt_cuda_marked(moec_model *m, uint32_t n, uint64_t *ns) MOEC_MUST_USE;
moec_status *moec_rt_cuda_count_begin(moec_model *m) MOEC_MUST_USE;
moec_status *moec_rt_cuda_count_end(moec_model *m, moec_rt_launches *out) MOEC_MUST_USE;
void moec_rt_cuda_marks_fini(moec_model *m);

/* ---- cuda_grouped.c ---- */
uint64_t moec_rt_cuda_grouped_bytes(void);
moec_status *moec_rt_cuda_grouped_open(moec_model *m) MOEC_MUST_USE;
moec_status *moec_rt_cuda_grouped_dot(moec_model *m, const moec_rt_call *call) MOEC_MUST_USE;
uint64_t moec_rt_cuda_grouped_room(const moec_rt_call *call);
moec_status *moec_rt_cuda_grouped_outer(moec_model *m, const moec_rt_call *call) MOEC_MUST_USE;

/* ---- cuda_gemm.c ---- */
uint64_t moec_rt_cuda_blas_bytes(const moec_rt_plan *p);
moec_status *moec_rt_cuda_blas_open(moec_model *m) MOEC_MUST_USE;
void moec_rt_cuda_blas_close(moec_model *m);
moec_status *moec_rt_cuda_gemm_check(const moec_rt_call *call) MOEC_MUST_USE;
moec_status *moec_rt_cuda_gemm(moec_model *m, const moec_rt_call *call) MOEC_MUST_USE;
/* One product of which no size is 0. */
moec_status *moec_rt_cuda_multiply(moec_model *m, const moec_rt_gemm *g) MOEC_MUST_USE;

/* ---- cuda_loss.c ---- */
moec_status *moec_rt_cuda_loss(moec_model *m, const moec_rt_call *call) MOEC_MUST_USE;

#endif
