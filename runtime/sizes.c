#include "runtime/sizes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"

/* ---- values ------------------------------------------------------------------------------ */

/* No result may equal MOEC_RT_UNKNOWN by accident: it counts as an overflow. */
static bool apply(uint32_t op, int64_t a, int64_t b, int64_t *r) {
  switch (op) {
    case MOEC_EXPR_ADD: return !__builtin_add_overflow(a, b, r);
    case MOEC_EXPR_SUB: return !__builtin_sub_overflow(a, b, r);
    case MOEC_EXPR_MUL: return !__builtin_mul_overflow(a, b, r);
    case MOEC_EXPR_MIN: *r = a < b ? a : b; return true;
    case MOEC_EXPR_MAX: *r = a > b ? a : b; return true;
    default: break;
  }
  if (b == 0) return false; /* INT64_MIN / -1 cannot be: INT64_MIN is "unknown" */
  int64_t floor = moec_floordiv(a, b);
  switch (op) {
    case MOEC_EXPR_FLOORDIV: *r = floor; return true;
    case MOEC_EXPR_MOD: *r = a - floor * b; return true;
    default: return false;
  }
}

void moec_rt_symbols_fixed(const moec_rt_plan *p, int64_t *symbols) {
  for (uint32_t i = 0; i < p->n_symbols; i++) {
    symbols[i] = p->symbols[i].fixed >= 0 ? p->symbols[i].fixed : MOEC_RT_UNKNOWN;
  }
}

void moec_rt_eval(const moec_rt_plan *p, const int64_t *symbols, int64_t *values) {
  for (uint32_t i = 0; i < p->n_exprs; i++) {
    const moec_plan_expr *e = &p->exprs[i];
    int64_t r = MOEC_RT_UNKNOWN;
    if (e->op == MOEC_EXPR_CONST) {
      r = e->imm;
    } else if (e->op == MOEC_EXPR_SYMBOL) {
      r = symbols[e->a];
    } else if (values[e->a] != MOEC_RT_UNKNOWN && values[e->b] != MOEC_RT_UNKNOWN) {
      if (!apply(e->op, values[e->a], values[e->b], &r)) r = MOEC_RT_UNKNOWN;
    }
    values[i] = r;
  }
}

/* ---- text -------------------------------------------------------------------------------- */

/* Expressions share parts, so the text of a small table can be endless and its nesting as deep
 * as the table: printing stops when |out| is full or at MAX_DEPTH. */
enum { MAX_DEPTH = 48 };

typedef struct writer {
  const moec_rt_plan *p;
  char *out;
  size_t size, used; /* used == size: full */
} writer;

static void put(writer *w, const char *s) {
  size_t n = strlen(s), room = w->size - w->used;
  if (n >= room) {
    memcpy(w->out + w->used, s, room);
    w->used = w->size;
  } else {
    memcpy(w->out + w->used, s, n);
    w->used += n;
  }
}

typedef struct op_text {
  const char *call, *between; /* "min(", ", " or NULL, " + " */
  int rank;                   /* an operand of lower rank needs parentheses */
} op_text;

static const op_text op_texts[MOEC_EXPR_OP_COUNT] = {
    [MOEC_EXPR_CONST] = {NULL, NULL, 3},
    [MOEC_EXPR_SYMBOL] = {NULL, NULL, 3},
    [MOEC_EXPR_ADD] = {NULL, " + ", 1},
    [MOEC_EXPR_SUB] = {NULL, " - ", 1},
    [MOEC_EXPR_MUL] = {NULL, "*", 2},
    [MOEC_EXPR_FLOORDIV] = {"floordiv(", ", ", 3},
    [MOEC_EXPR_MOD] = {"mod(", ", ", 3},
    [MOEC_EXPR_MIN] = {"min(", ", ", 3},
    [MOEC_EXPR_MAX] = {"max(", ", ", 3},
};

static void print(writer *w, moec_expr_ref i, int min_rank, int depth) {
  const moec_plan_expr *e = &w->p->exprs[i];
  const op_text *t = &op_texts[e->op];
  if (w->used == w->size) return;
  if (depth == 0) {
    put(w, "...");
  } else if (e->op == MOEC_EXPR_SYMBOL) {
    put(w, moec_rt_str(w->p, w->p->symbols[e->a].name));
  } else if (e->op == MOEC_EXPR_CONST) {
    char number[32];
    snprintf(number, sizeof number, "%" PRId64, e->imm);
    put(w, number);
  } else {
    bool wrap = !t->call && t->rank < min_rank;
    put(w, t->call ? t->call : wrap ? "(" : "");
    print(w, e->a, t->call ? 0 : t->rank, depth - 1);
    put(w, t->between);
    print(w, e->b, t->call ? 0 : t->rank + (e->op == MOEC_EXPR_SUB), depth - 1);
    put(w, t->call || wrap ? ")" : "");
  }
}

const char *moec_rt_expr_text(const moec_rt_plan *p, moec_expr_ref e, char *out, size_t size) {
  writer w = {.p = p, .out = out, .size = size - 1};
  print(&w, e, 0, MAX_DEPTH);
  out[w.used] = 0;
  if (w.used == w.size && size > 4) memcpy(out + size - 4, "...", 4);
  return out;
}

/* ---- solving ----------------------------------------------------------------------------- */

/* The parts of |e|, at most this deep: sizes of real models are far simpler. */
static bool linear(const moec_rt_plan *p, moec_expr_ref i, const int64_t *values, int depth,
                   moec_rt_linear *out) {
  const moec_plan_expr *e = &p->exprs[i];
  if (values[i] != MOEC_RT_UNKNOWN) {
    *out = (moec_rt_linear){MOEC_NONE, 0, values[i]};
    return true;
  }
  if (e->op == MOEC_EXPR_SYMBOL) {
    *out = (moec_rt_linear){e->a, 1, 0};
    return true;
  }
  if (depth == 0 || (e->op != MOEC_EXPR_ADD && e->op != MOEC_EXPR_SUB && e->op != MOEC_EXPR_MUL)) {
    return false;
  }
  moec_rt_linear a, b;
  if (!linear(p, e->a, values, depth - 1, &a) || !linear(p, e->b, values, depth - 1, &b)) {
    return false;
  }
  if (e->op == MOEC_EXPR_MUL) {
    if (a.symbol != MOEC_NONE && b.symbol != MOEC_NONE) return false;
    out->symbol = a.symbol != MOEC_NONE ? a.symbol : b.symbol;
    int64_t factor = a.symbol != MOEC_NONE ? b.rest : a.rest;
    const moec_rt_linear *x = a.symbol != MOEC_NONE ? &a : &b;
    return moec_mul_i64(x->coef, factor, &out->coef) && moec_mul_i64(x->rest, factor, &out->rest);
  }
  if (a.symbol != MOEC_NONE && b.symbol != MOEC_NONE && a.symbol != b.symbol) return false;
  out->symbol = a.symbol != MOEC_NONE ? a.symbol : b.symbol;
  return apply(e->op, a.coef, b.coef, &out->coef) && apply(e->op, a.rest, b.rest, &out->rest);
}

bool moec_rt_expr_linear(const moec_rt_plan *p, moec_expr_ref e, const int64_t *values,
                         moec_rt_linear *out) {
  enum { DEPTH = 12 };
  return linear(p, e, values, DEPTH, out) && out->symbol != MOEC_NONE && out->coef != 0;
}
