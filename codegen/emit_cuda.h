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
  bool registers;  /* own, and of a loop with trips: an element for each iteration of a thread */
  bool of_slices;  /* what each slice gathered is joined behind the sliced loop */
  moec_dim offset; /* in the team's scratch */
} moec_cuda_temp;

/* How a loop over a variable is shared out: a thread takes |v| iterations at a time, and then those |v| * width further
 * on. Loads and stores of neighbours by neighbouring iterations are one, as wide as they are. */
typedef struct moec_cuda_share {
  uint32_t v;
  uint32_t trips; /* what a thread takes, at most, where that is few: unrolled; 0: a loop of any length */
  bool exact;     /* every thread takes that much */
} moec_cuda_share;

/* A wide load reads in turn i what load |x|, of an earlier loop, read in turn i + |later|. */
typedef struct moec_cuda_same {
  moec_kx x; /* itself, where there is no earlier one */
  uint32_t later;
} moec_cuda_same;

/* While a loop with |v| > 1 or |trips| is printed: its body apart from what stands around it. */
typedef struct moec_cuda_open {
  const moec_kstmt *loop;
  moec_buf body, *outer;
  moec_kx *loads; /* wide ones, numbered as |numbers| says */
  uint32_t *numbers;
  const moec_kstmt **stores;
  size_t n_loads, cap_loads, n_numbers, cap_numbers, n_stores, cap_stores;
} moec_cuda_open;

/* A team of |width| threads works on one row. The iterations of some loops are shared out among them; everything else
 * all of them do, except that one writes. A team of |slices| times |width| threads also shares out the iterations of
 * the loop |sliced| around those: each slice goes through every slices-th row of a chunk. */
typedef struct moec_lanes {
  moec_arena *a;
  uint32_t threads, teams, width, slices;
  const moec_kstmt *sliced;
  bool operand;             /* a function that a warp runs; |out| is the caller's */
  const moec_kstmt **loops; /* those shared out */
  size_t n_loops, cap_loops;
  moec_cuda_share *shares; /* by variable */
  moec_cuda_same *same;    /* by expression: a load that a thread did in an earlier loop */
  bool *keep;              /* by expression: a load that later loops need again stays in registers */
  bool *again;             /* by expression: a load that several loops do */
  uint32_t registers;      /* for what is kept and for temporaries, of 4 bytes */
  moec_cuda_temp *temps;   /* by temporary */
  moec_dim scratch;        /* bytes a team */
  /* while printing */
  uint32_t inside;  /* open loops of |loops| */
  bool in_slice;    /* in the sliced loop */
  bool behind;      /* behind it, until the end of the loop around it: one slice goes on */
  moec_cuda_open *open;
  uint32_t *kept; /* by expression: 1 + the number of the registers it is in */
  int *kept_at;   /* and how deep they were declared */
  uint32_t n_vectors;
} moec_lanes;

moec_lanes *moec_lanes_of(moec_arena *a, const moec_kernel *k, bool operand);
bool moec_lanes_share(const moec_lanes *l, const moec_kstmt *loop);
/* Whether |st|, a statement that all threads of the team come to, writes a temporary that others read. */
bool moec_lanes_publish(const moec_lanes *l, const moec_kstmt *st);
/* Whether |var| is one of the temporary's. */
bool moec_lanes_has_var(const moec_ktemp *t, uint32_t var);

/* emit_cuda_attention.c: which text of codegen/kernels a kernel of attention is, and how it is launched. */
struct moec_kattention;
typedef struct moec_cuda_attention {
  bool half;      /* on tensor cores: attention_half.cu, attention_grad_half.cu */
  int64_t shared; /* bytes of its work struct */
  uint32_t threads;
  moec_dim rows; /* tasks */
} moec_cuda_attention;
moec_cuda_attention moec_cuda_attention_of(moec_module *m, const struct moec_kattention *t);

/* emit_cuda_vector.c: the elements of |var| that a thread takes at a time in all |loops| over it; at most |most|. */
uint32_t moec_vector_of(moec_arena *a, const moec_kernel *k, const moec_kstmt *const *loops, size_t n, uint32_t var);
/* Whether load |x| (store |st|) in a loop over |var| reads (writes) |v| neighbours, at a multiple of |v|. */
bool moec_vector_load(const moec_kernel *k, moec_kx x, uint32_t var, uint32_t v);
bool moec_vector_store(const moec_kernel *k, const moec_kstmt *st, uint32_t var, uint32_t v);
/* Whether |x|, in a loop over |var|, reads the same as |y| in one over |other|, where both count from their beginnings;
 * |by|: and so many elements further on. */
bool moec_vector_again(const moec_kernel *k, moec_kx x, uint32_t var, moec_kx y, uint32_t other, int64_t *by);
/* The loads that the body of |loop| prints and that depend on its variable. */
size_t moec_vector_loads(moec_arena *a, const moec_kernel *k, const moec_kstmt *loop, moec_kx **out);

/* emit_cuda_wide.c: loops of several elements at a time, as the target's hooks. */
void moec_wide_begin(moec_emit *e, const moec_kstmt *loop);
void moec_wide_end(moec_emit *e); /* prints it all */
bool moec_wide_load(moec_emit *e, moec_kx x);
bool moec_wide_store(moec_emit *e, const moec_kstmt *st);
bool moec_wide_place(moec_emit *e, uint32_t temp);
void moec_wide_forget(moec_emit *e); /* at the end of a loop: what was kept in it */
/* emit_cuda.c: bounds of an inner loop, printed; who stores. */
void moec_cuda_bounds(moec_emit *e, uint32_t var, moec_buf *lo, moec_buf *hi);
const char *moec_cuda_guard(moec_emit *e, const moec_kstmt *st);

#endif
