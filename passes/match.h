/* Small helpers of the recognisers (passes/raise_*.c): they read the graph along use-def edges
 * and never look at names, node order or use counts of the file.
 *
 * Equal subexpressions are one value here: simplify ran before. */
#ifndef MOEC_PASSES_MATCH_H
#define MOEC_PASSES_MATCH_H

#include "ir/builder.h"
#include "ir/ir.h"
#include "passes/pass.h"

/* ---- single nodes --------------------------------------------------------------------------- */

bool moec_m_unary(const moec_graph *g, moec_value v, moec_op op, moec_value *x);
bool moec_m_binary(const moec_graph *g, moec_value v, moec_op op, moec_value *x, moec_value *y);
/* Every element of |v| is the constant *out: seen through movement and casts. */
bool moec_m_scalar(const moec_graph *g, moec_value v, double *out);
/* v = x op constant, with the constant on either side where |op| is commutative. */
bool moec_m_with_scalar(const moec_graph *g, moec_value v, moec_op op, moec_value *x, double *c);
/* v = x * c or x / c; *c is the factor. */
bool moec_m_scaled(const moec_graph *g, moec_value v, moec_value *x, double *c);
/* v = x^2, as a product or a power. */
bool moec_m_square(const moec_graph *g, moec_value v, moec_value *x);
/* |v| without the casts between float types above it. */
moec_value moec_m_uncast(const moec_graph *g, moec_value v);
/* v = slice of x along |axis| only; start and size of that axis. */
bool moec_m_slice(const moec_graph *g, moec_value v, int64_t axis, moec_value *x, moec_dim *start, moec_dim *size,
                  int64_t *step);
/* Equal values that were built more than once: the same movement of the same value. */
bool moec_m_same(const moec_graph *g, moec_value a, moec_value b);
bool moec_m_close(double a, double b); /* equal up to the rounding of an f32 constant */
/* For messages: the node's name in the source, else "node N". In the module's arena. */
const char *moec_m_name(const moec_graph *g, moec_node n);

/* ---- use lists, as they were at one moment ---------------------------------------------------- */

/* Values made later have no entry; edges changed later do not show. */
typedef struct moec_uses {
  const moec_graph *g;
  size_t n_values;
  const uint32_t *start;
  const moec_node *nodes;
} moec_uses;
moec_uses moec_uses_now(moec_graph *g);
uint32_t moec_uses_count(const moec_uses *u, moec_value v); /* without graph outputs */
moec_node moec_uses_get(const moec_uses *u, moec_value v, uint32_t i);
/* The only node that reads |v|, which is no output of the graph; {0} otherwise. */
moec_node moec_uses_only(const moec_uses *u, moec_value v);

/* ---- tracing movement ------------------------------------------------------------------------- */

/* Where the elements of a value come from, through reshape, transpose and broadcast. The axes of
 * the value at the top are split into factors as far as reshapes ask for it:
 *
 *   top  [B, H, T, D] = reshape(broadcast([B, G, 1, T, D]))     axis H = factors G, r
 *   cur  [B, G, T, D]                                           r is repeated: cur lacks it
 *
 * Each axis of top and of cur is a list of factors, major first; axes of size 1 have none. */
#define MOEC_MAX_FACTORS 16
typedef struct moec_factors { uint32_t n; uint8_t f[MOEC_MAX_FACTORS]; } moec_factors;
typedef struct moec_trace {
  moec_graph *g;
  moec_value top, cur;
  uint32_t n;                     /* factors */
  moec_dim size[MOEC_MAX_FACTORS];
  bool repeated[MOEC_MAX_FACTORS]; /* cur does not depend on it */
  uint8_t axis[MOEC_MAX_FACTORS];  /* the axis of top it belongs to */
  moec_factors of_top[MOEC_MAX_RANK], of_cur[MOEC_MAX_RANK];
} moec_trace;

bool moec_trace_begin(moec_trace *t, moec_graph *g, moec_value v);
/* Down through movement ops as far as their factors can be told. */
void moec_trace_moves(moec_trace *t);
bool moec_trace_step(moec_trace *t); /* one op; false where there is none */
/* From an elementwise node (or cast) to its operand |x|, which has its shape. */
static inline void moec_trace_enter(moec_trace *t, moec_value x) { t->cur = x; }
/* Axis |axis| of top is repeated all along resp. is exactly axis |cur_axis| of cur. */
bool moec_trace_repeats(const moec_trace *t, uint32_t axis);
bool moec_trace_same_axis(const moec_trace *t, uint32_t axis, uint32_t cur_axis);
/* The same movement, but for the sizes. */
bool moec_trace_alike(const moec_trace *a, const moec_trace *b);
/* The top with repeated axes dropped to size 1: what a broadcast would start from. */
moec_value moec_trace_unbroadcast(moec_builder *b, const moec_trace *t);
/* A value with these axes, each a product of factors, from cur: transposed, reshaped, and
 * broadcast along repeated factors. {0} where it takes too many axes. Every factor of cur
 * must be listed once. */
moec_value moec_trace_build(moec_builder *b, const moec_trace *t, uint32_t rank, const moec_factors *axes);
moec_dim moec_factors_size(const moec_trace *t, const moec_factors *l);
void moec_factors_append(moec_factors *to, const moec_factors *from);

#endif
