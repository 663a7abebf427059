/* Inside the CUDA printer: which threads do what. */
#ifndef MOEC_CODEGEN_EMIT_CUDA_H
#define MOEC_CODEGEN_EMIT_CUDA_H

#include "codegen/emit_print.h"

/* A row temporary of a team. */
typedef struct moec_cuda_temp {
  bool
      shared; /* in shared memory; else, in a team of one thread or an operand function, local; else scratch */
  bool local;
  bool own;        /* each thread reads only what it wrote itself */
  moec_dim offset; /* in the team's scratch */
} moec_cuda_temp;

/* A team of |width| threads works on one row. The iterations of some loops are shared out among them, a thread taking
 * every width-th; everything else all of them do, except that one writes. */
typedef struct moec_lanes {
  uint32_t threads, teams, width;
  bool operand;             /* a function that a warp runs; |out| is the caller's */
  const moec_kstmt **loops; /* those shared out */
  size_t n_loops, cap_loops;
  moec_cuda_temp *temps; /* by temporary */
  moec_dim scratch;      /* bytes a team */
  uint32_t inside;       /* while printing: open loops of those */
} moec_lanes;

moec_lanes *moec_lanes_of(moec_arena *a, const moec_kernel *k, bool operand);
bool moec_lanes_share(const moec_lanes *l, const moec_kstmt *loop);
/* Whether |st|, a statement that all threads of the team come to, writes a temporary that others read. */
bool moec_lanes_publish(const moec_lanes *l, const moec_kstmt *st);

#endif
