/* Parameters in memory: mapped from a weights file where one piece is the parameter as it is
 * computed with, else gathered from their pieces, or made from a seed. Thread-safe once loaded. */
#ifndef MOEC_RUNTIME_PARAMS_H
#define MOEC_RUNTIME_PARAMS_H

#include "base/fresh.h"
#include "runtime/plan_read.h"
#include "runtime/threads.h"

typedef struct moec_rt_params {
  moec_rt_memory *mem;
  moec_map *files; /* by file of the plan */
  char **paths;    /* where each was found; NULL: its weights are made */
  moec_fresh *fresh; /* by file: how */
  uint32_t n_files;
  moec_rt_arena copies;
  uint64_t mapped_bytes; /* of parameters that were not copied */
} moec_rt_params;

/* Where to look for weights, in this order; each may be NULL. */
typedef struct moec_rt_weights {
  const char *dirs[3];
  bool elsewhere; /* the parameters are wanted in a memory that is not the host's */
  bool trust; /* do not compute the files' hashes; their sizes are compared always */
} moec_rt_weights;

/* Sets buffers[b] of every parameter and constant buffer. NULL: its weights are made where they are wanted. */
moec_status *moec_rt_params_load(const moec_rt_plan *p, moec_rt_pool *pool,
                                 const moec_rt_weights *w, void **buffers,
                                 moec_rt_params *out) MOEC_MUST_USE;
void moec_rt_params_fini(moec_rt_params *x);

#endif
