/* What the files of the interpreter share. Values are dense tensors of 8-byte elements: f64 where
 * the value is a float, i64 (u64 as its bits, bool as 0 or 1) otherwise. */
#ifndef MOEC_IR_INTERP_INTERNAL_H
#define MOEC_IR_INTERP_INTERNAL_H

#include "ir/interp.h"

typedef struct moec_interp {
  moec_module *m; /* a copy of the caller's module; bodies of composites are added to it */
  const moec_module *source; /* the caller's: its functions have the same numbers and nodes */
  moec_interp_options options;
  const int64_t *symbols; /* -1: not bound */
  size_t live;            /* bytes of intermediate values now */
  uint32_t depth;         /* of calls */
  moec_fn **bodies;       /* by function, then by node: the composite's body, {0}: not built yet */
} moec_interp;

/* One node at work. The kernel fills out[], which has its shape and zeroed data already; ops that
 * run functions find the shape alone and put what the function gave. */
typedef struct moec_step {
  moec_interp *ip;
  moec_fn fn;
  const moec_graph *g;
  moec_node n;
  moec_op op;
  const void *attrs;
  uint32_t n_in, n_out;
  const moec_tensor **in; /* NULL where absent */
  moec_tensor *out;
} moec_step;

typedef moec_status *(*moec_kernel)(moec_step *s);

/* moec_eval_<infer>() for every op that is no composite: ops inferred alike run alike. */
#define MOEC_KERNEL(name) moec_status *moec_eval_##name(moec_step *s)
#define OP(NAME, text, min_in, max_in, min_out, max_out, cls, infer, attrs) MOEC_KERNEL(infer);
#include "ir/ops.def"
#undef OP
MOEC_KERNEL(composite);

/* Counted memory: fails with OUT_OF_MEMORY beyond the limit. */
moec_status *moec_interp_new(moec_interp *ip, moec_dtype dtype, uint32_t rank, const int64_t *dims,
                             moec_tensor *out) MOEC_MUST_USE;
void moec_interp_free(moec_interp *ip, moec_tensor *t); /* an empty record is fine */
moec_status *moec_interp_copy(moec_interp *ip, const moec_tensor *t,
                              moec_tensor *out) MOEC_MUST_USE;
/* The elements of |t|, of any dtype, as those of the value |out| of the same shape. */
void moec_interp_read(const moec_tensor *t, moec_tensor *out);
/* Runs a function. |out| has room for its outputs; on success each is the caller's. */
moec_status *moec_interp_call(moec_interp *ip, moec_fn fn, uint32_t n_in, const moec_tensor **in,
                              uint32_t n_out, moec_tensor *out) MOEC_MUST_USE;
moec_status *moec_interp_dim(const moec_interp *ip, moec_dim d, int64_t *out) MOEC_MUST_USE;
moec_status *moec_interp_shape(const moec_interp *ip, moec_type t, int64_t *dims) MOEC_MUST_USE;

/* Whether |d| has a value: every symbol in it is bound. */
bool moec_dim_bound(const moec_module *m, moec_dim d, const int64_t *symbols);

static inline moec_dtype moec_step_dtype(const moec_step *s, uint32_t input) {
  return moec_ty(s->g, moec_in(s->g, s->n, input)).dtype;
}
static inline moec_dtype moec_step_result(const moec_step *s, uint32_t output) {
  return moec_ty(s->g, moec_out(s->g, s->n, output)).dtype;
}
static inline bool moec_is_f64(const moec_tensor *t) { return t->dtype == MOEC_F64; }

/* A run-time error of the model or of what it was given. */
#define MOEC_RUN_ERROR(...) moec_error(MOEC_INVALID_ARGUMENT, __VA_ARGS__)

/* Product of dims[from .. to). Shapes of existing tensors: no overflow. */
static inline int64_t moec_span(const int64_t *dims, uint32_t from, uint32_t to) {
  int64_t n = 1;
  for (uint32_t i = from; i < to; i++) n *= dims[i];
  return n;
}
void moec_dense_strides(uint32_t rank, const int64_t *dims, int64_t *strides);
/* dst[sum i*dst_stride] = src[sum i*src_stride] for every index i in |dims|; 8-byte elements. */
void moec_strided_copy(uint32_t rank, const int64_t *dims, void *dst, const int64_t *dst_stride,
                       const void *src, const int64_t *src_stride);
/* The next index of |dims| in row-major order; false after the last. Start from zeros, and only
 * when no dim is zero. */
bool moec_next_index(uint32_t rank, const int64_t *dims, int64_t *index);

/* A scalar function of two operands for the three kinds of numbers; reductions use them too. */
typedef struct moec_scalar2 {
  double (*f)(double, double);
  int64_t (*i)(int64_t, int64_t);
  int64_t (*u)(int64_t, int64_t); /* bits of u64; NULL: as i */
} moec_scalar2;
moec_scalar2 moec_scalar_binary(moec_op op); /* NULLs where the op has no such function */

/* |v| as an element of integer dtype |t| would hold it. */
int64_t moec_wrap_int(moec_dtype t, int64_t v);
int64_t moec_int_lowest(moec_dtype t);
int64_t moec_int_highest(moec_dtype t); /* of u64: its bits */

#endif
