/* Size expressions: their values, their text, and solving them for a symbol. */
#ifndef MOEC_RUNTIME_SIZES_H
#define MOEC_RUNTIME_SIZES_H

#include "runtime/plan_read.h"

/* The value of a symbol that is not bound and of what depends on it, overflows or divides by 0. */
#define MOEC_RT_UNKNOWN INT64_MIN

/* symbols[n_symbols]: the fixed ones, the others unknown. */
void moec_rt_symbols_fixed(const moec_rt_plan *p, int64_t *symbols);
/* values[n_exprs] from symbols[n_symbols]. */
void moec_rt_eval(const moec_rt_plan *p, const int64_t *symbols, int64_t *values);

/* "2*batch + 1", cut with "..." where it does not fit |size|. Returns |out|. */
const char *moec_rt_expr_text(const moec_rt_plan *p, moec_expr_ref e, char *out, size_t size);
enum { MOEC_RT_EXPR_TEXT = 160 }; /* a good |size| */

/* When |e| is coef * symbol + rest in exactly one unbound symbol: true with these. |values| as
 * moec_rt_eval() left them. */
typedef struct moec_rt_linear {
  uint32_t symbol;
  int64_t coef, rest;
} moec_rt_linear;
bool moec_rt_expr_linear(const moec_rt_plan *p, moec_expr_ref e, const int64_t *values,
                         moec_rt_linear *out);

#endif
