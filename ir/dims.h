/* Dim expressions: sizes as integer polynomials over symbols and over floordiv, mod, min
 * and max terms. Interned in a canonical form (expanded, terms sorted), so two expressions
 * that are equal as polynomials have equal handles: 2*seq*batch and seq*batch + batch*seq. */
#ifndef MOEC_IR_DIMS_H
#define MOEC_IR_DIMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

struct moec_module;

typedef struct { uint32_t i; } moec_sym; /* an interned string; 0 is "" */
typedef struct { uint32_t i; } moec_dim; /* an interned dim expression; 0 is "unknown" */

moec_dim moec_dim_const(struct moec_module *m, int64_t v);
moec_dim moec_dim_symbol(struct moec_module *m, const char *name); /* made on first use */
moec_dim moec_dim_fresh(struct moec_module *m, const char *stem);  /* a new symbol stem_N: data-dependent */

moec_dim moec_dim_add(struct moec_module *m, moec_dim a, moec_dim b);
moec_dim moec_dim_sub(struct moec_module *m, moec_dim a, moec_dim b);
moec_dim moec_dim_mul(struct moec_module *m, moec_dim a, moec_dim b);
/* Exact polynomial division where it comes out even (batch*seq*64 by 64*seq is batch), else an
 * opaque term. Division by zero gives {0}. ceildiv(a, b) is kept as a floordiv. */
moec_dim moec_dim_floordiv(struct moec_module *m, moec_dim a, moec_dim b);
moec_dim moec_dim_ceildiv(struct moec_module *m, moec_dim a, moec_dim b);
moec_dim moec_dim_mod(struct moec_module *m, moec_dim a, moec_dim b);
moec_dim moec_dim_min(struct moec_module *m, moec_dim a, moec_dim b);
moec_dim moec_dim_max(struct moec_module *m, moec_dim a, moec_dim b);
/* a / b as a polynomial, or {0} when it doesn't come out even for all sizes. */
moec_dim moec_dim_exact_div(struct moec_module *m, moec_dim a, moec_dim b);

/* Overflow of 64 bits in a coefficient gives the unknown dim {0}; anything computed from {0} is {0}. */
static inline bool moec_dim_known(moec_dim d) { return d.i != 0; }
static inline bool moec_dim_eq(moec_dim a, moec_dim b) { return a.i == b.i; }
bool moec_dim_is_const(const struct moec_module *m, moec_dim d, int64_t *out_value); /* out may be NULL */
bool moec_dim_is(const struct moec_module *m, moec_dim d, int64_t value);
/* Proofs that hold for all symbols >= 0 resp. >= 1; false means "not proved". */
bool moec_dim_is_nonneg(const struct moec_module *m, moec_dim d);
bool moec_dim_is_positive(const struct moec_module *m, moec_dim d);

/* Symbols, in order of first use: 0 .. count-1. */
uint32_t moec_dim_symbol_count(const struct moec_module *m);
const char *moec_dim_symbol_name(const struct moec_module *m, uint32_t index);
/* Value for given symbol values (indexed by symbol); error on overflow or division by zero. */
moec_status *moec_dim_eval(const struct moec_module *m, moec_dim d, const int64_t *symbols, int64_t *out) MOEC_MUST_USE;
/* Replaces symbols: map[i] for symbol i, {0} keeps it. */
moec_dim moec_dim_subst(struct moec_module *m, moec_dim d, const moec_dim *map);

/* "2*batch*seq + 1", "floordiv(seq + 3, 4)", "min(2, seq)". */
void moec_dim_print(moec_buf *b, const struct moec_module *m, moec_dim d);
/* That x == y, as one would say it: "seq >= 1" for min(seq, 1) == 1, "seq % 4 == 0" for 4*floordiv(seq, 4) == seq. */
void moec_dim_print_equal(moec_buf *b, const struct moec_module *m, moec_dim x, moec_dim y);
/* The same text, and exporters' spellings: a // b, Min(a, b), Max(a, b), unary minus,
 * parentheses, any spacing. */
moec_status *moec_dim_parse(struct moec_module *m, const char *text, moec_dim *out) MOEC_MUST_USE;

/* A closer look, for code that walks expressions (plan writer, emitters). A dim is a sum of
 * terms; a term is coeff times a product of atoms; an atom is a symbol or an opaque
 * operation on two dims. */
typedef enum moec_dim_op {
  MOEC_DIM_SYMBOL, MOEC_DIM_FLOORDIV, MOEC_DIM_MOD, MOEC_DIM_MIN, MOEC_DIM_MAX
} moec_dim_op;
typedef struct moec_dim_atom { moec_dim_op op; uint32_t symbol; moec_dim a, b; } moec_dim_atom;
typedef struct moec_dim_term { int64_t coeff; uint32_t n_atoms; const uint32_t *atoms; } moec_dim_term;
uint32_t moec_dim_n_terms(const struct moec_module *m, moec_dim d);
moec_dim_term moec_dim_get_term(const struct moec_module *m, moec_dim d, uint32_t i);
moec_dim_atom moec_dim_get_atom(const struct moec_module *m, uint32_t atom);

#endif
