/* The generated kernels of a plan: a shared object in memory. Thread-safe once loaded. */
#ifndef MOEC_RUNTIME_KERNELS_H
#define MOEC_RUNTIME_KERNELS_H

#include "runtime/plan_read.h"

typedef struct moec_rt_kernels {
  moec_rt_memory *mem;
  void *handle;
  int fd;
  moec_kernel_fn *fn; /* by kernel */
} moec_rt_kernels;

/* Fails, before running any of its code, when this processor lacks the plan's instruction set. */
moec_status *moec_rt_kernels_load(const moec_rt_plan *p, moec_rt_kernels *out) MOEC_MUST_USE;
void moec_rt_kernels_fini(moec_rt_kernels *k);

/* NULL when this processor has every instruction of |level| ("x86-64-v3", "": no demands). */
moec_status *moec_rt_check_cpu(const char *level) MOEC_MUST_USE;

#endif
