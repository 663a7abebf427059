/* The library steps: a table of what each takes, and one function that runs it. */
#ifndef MOEC_RUNTIME_OPS_H
#define MOEC_RUNTIME_OPS_H

#include "base/tensor.h"
#include "runtime/plan_read.h"
#include "runtime/threads.h"

enum { MOEC_RT_MAX_ARGS = 8 }; /* of a library step; kernels may have more */

/* A library step with its operands. */
typedef struct moec_rt_call {
  const moec_rt_plan *plan;
  const moec_plan_step *step;
  const int64_t *values;             /* of the expressions */
  moec_tensor arg[MOEC_RT_MAX_ARGS]; /* inputs, outputs; dtype NONE: absent; data NULL in check() */
  const int64_t *ints;
  moec_rt_pool *pool;
  uint8_t *scratch; /* scratch_size bytes for each thread, one after the other */
  uint64_t scratch_size;
  uint8_t *shared; /* as much as check() asked for */
} moec_rt_call;

static inline const moec_tensor *moec_rt_in(const moec_rt_call *c, uint32_t i) {
  return i < c->step->n_in && c->arg[i].dtype != MOEC_DTYPE_NONE ? &c->arg[i] : NULL;
}
static inline const moec_tensor *moec_rt_out(const moec_rt_call *c, uint32_t i) {
  const moec_tensor *t = &c->arg[c->step->n_in + i];
  return i < c->step->n_out && t->dtype != MOEC_DTYPE_NONE ? t : NULL;
}

/* Bytes of temporary memory a step needs for these sizes. */
typedef struct moec_rt_need {
  uint64_t thread, shared;
} moec_rt_need;

typedef struct moec_rt_op {
  const char *text;
  uint32_t min_in, max_in, optional_in; /* optional_*: bit i: operand i may be MOEC_NONE */
  uint32_t min_out, max_out, optional_out;
  uint32_t min_ints, max_ints;
  /* On opening: the integers by themselves; NULL: any. */
  moec_status *(*check_ints)(const moec_rt_record *r, const int64_t *ints, uint32_t n);
  /* When sizes are bound: shapes, types, and what run() may then take for granted. */
  moec_status *(*check)(const moec_rt_call *c, moec_rt_need *need);
  moec_status *(*run)(const moec_rt_call *c); /* NULL for kernels, which exec.c launches */
} moec_rt_op;

const moec_rt_op *moec_rt_op_get(uint32_t op); /* a moec_step_op */

/* Errors of check() and run(): 'node "NAME": gemm: expected ..., got ...'. */
moec_status *moec_rt_mismatch(const moec_rt_call *c, const char *fmt, ...) MOEC_PRINTF(2, 3);
/* The same with another code. */
moec_status *moec_rt_op_error(const moec_rt_call *c, moec_code code, const char *fmt, ...)
    MOEC_PRINTF(3, 4);

/* "f32[2, 3]". Returns |out|. */
enum { MOEC_RT_SHAPE_TEXT = 320 };
const char *moec_rt_shape_text(moec_dtype dtype, uint32_t rank, const int64_t *dims, char *out,
                               size_t size);

/* "expected WHAT" unless |t| has this dtype and shape. */
moec_status *moec_rt_expect(const moec_rt_call *c, const char *what, const moec_tensor *t,
                            moec_dtype dtype, uint32_t rank, const int64_t *dims) MOEC_MUST_USE;
bool moec_rt_same_shape(const moec_tensor *a, const moec_tensor *b);

/* An axis splits a row-major tensor into outer x n x inner elements. */
typedef struct moec_rt_axis {
  int64_t outer, n, inner;
} moec_rt_axis;
moec_rt_axis moec_rt_axis_of(const moec_tensor *t, int64_t axis);

/* The scratch of |thread|. */
static inline void *moec_rt_scratch(const moec_rt_call *c, int thread) {
  return c->scratch + (uint64_t)thread * c->scratch_size;
}

/* Rows a thread should take at least when a row costs about |cost| elementary operations. */
static inline int64_t moec_rt_grain(int64_t cost) {
  enum { WORTH = 1 << 15 };
  return cost >= WORTH ? 1 : WORTH / (cost < 1 ? 1 : cost);
}

/* STEP(NAME): check and run of each library step; one file a family: ops_*.c, moe_*.c. */
#define MOEC_RT_DECLARE(NAME, text)                                             \
  moec_status *moec_rt_check_##NAME(const moec_rt_call *c, moec_rt_need *need); \
  moec_status *moec_rt_run_##NAME(const moec_rt_call *c);
MOEC_PLAN_STEPS(MOEC_RT_DECLARE)
#undef MOEC_RT_DECLARE

#endif
