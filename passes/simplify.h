/* What the files of simplify share: the rewriter, the shape of a rule, and questions rules ask. */
#ifndef MOEC_PASSES_SIMPLIFY_H
#define MOEC_PASSES_SIMPLIFY_H

#include "ir/builder.h"
#include "ir/ir.h"

typedef struct moec_simplifier {
  moec_module *m;
  moec_graph *g;
  moec_builder b;     /* rules add nodes through it */
  moec_value *remap;  /* by value: what took its place; {0}: nothing did */
  size_t n_remap, cap_remap;
  uint32_t *table;    /* nodes by hash of op, attributes and operands; open addressing, 0: free */
  size_t table_size, table_used;
  const uint32_t *uses; /* use counts at the start of the sweep, by value */
  size_t n_uses;
  size_t rewrites, limit;
} moec_simplifier;

/* Requirements for every rule:
 *   1. It returns a value of exactly the type of node |n|'s only result, or {0} for "does not apply"; the
 *      rewriter checks the type.
 *   2. It changes no value: not for NaN, infinities, empty axes or rank 0. Allowed differences, each named at its
 *      rule: the sign of zero, one rounding of rsqrt, an out-of-range index error that no longer occurs because no
 *      element is asked for, and what NaN or infinite scores behind an attention mask do to their rows.
 *   3. It makes progress: fewer or cheaper ops, or a step towards the canonical form described at its rule, which no
 *      other rule undoes. The rewriter stops with an internal error when rewriting does not end.
 *   4. It reads only operands (never users); operands are canonical already when it runs.
 *   5. It has a test, tests/passes/simplify/<behaviour>.ir. */
typedef moec_value (*moec_rule_fn)(moec_simplifier *s, moec_node n);

typedef struct moec_rule {
  const char *name;
  moec_op op; /* NONE: every elementwise op */
  moec_rule_fn apply;
} moec_rule;

/* One table a family; each ends with an empty line. */
extern const moec_rule moec_rules_const[];     /* passes/simplify_const.c */
extern const moec_rule moec_rules_arith[];     /* passes/simplify_arith.c */
extern const moec_rule moec_rules_logic[];     /* passes/simplify_logic.c */
extern const moec_rule moec_rules_broadcast[]; /* passes/simplify_broadcast.c */
extern const moec_rule moec_rules_move[];      /* passes/simplify_move.c */
extern const moec_rule moec_rules_join[];      /* passes/simplify_join.c */
extern const moec_rule moec_rules_affine[];    /* passes/simplify_affine.c */
extern const moec_rule moec_rules_index[];     /* passes/simplify_index.c */
extern const moec_rule moec_rules_reduce[];    /* passes/simplify_reduce.c */
extern const moec_rule moec_rules_dot[];       /* passes/simplify_dot.c */
extern const moec_rule moec_rules_attention[]; /* passes/simplify_attention.c */

/* Simplifies one function to a fixpoint; compacts it. */
moec_status *moec_simplify_graph(moec_graph *g) MOEC_MUST_USE;

/* ---- questions (passes/simplify_util.c) --------------------------------------------------- */

/* The element that fills |v|: of a constant of one element, or of a broadcast of one. NULL: not such. */
const moec_const *moec_s_fill(const moec_graph *g, moec_value v);
bool moec_s_fill_float(const moec_graph *g, moec_value v, double *out); /* any dtype, as double */
bool moec_s_fill_int(const moec_graph *g, moec_value v, int64_t *out);  /* integers and bool */
/* |v| is filled with exactly this number. */
bool moec_s_is(const moec_graph *g, moec_value v, double number);

bool moec_s_is_unit(const moec_module *m, moec_dim d); /* the constant 1 */
bool moec_s_same_dims(uint32_t rank, const moec_dim *a, const moec_dim *b);
/* a <= b for all sizes: proved. */
bool moec_s_le(moec_module *m, moec_dim a, moec_dim b);

/* |v| seen as a broadcast: a broadcast, or a reshape that only inserts axes of size 1. */
typedef struct moec_view {
  moec_value source;
  uint32_t rank;              /* of the source */
  int64_t map[MOEC_MAX_RANK]; /* source axis -> axis of v */
} moec_view;
bool moec_s_view(const moec_graph *g, moec_value v, moec_view *out);

/* ---- building ----------------------------------------------------------------------------- */

moec_value moec_s_fill_like(moec_simplifier *s, moec_type t, const moec_const *element);
moec_value moec_s_number_like(moec_simplifier *s, moec_type t, double number); /* small integers and exact floats */
moec_value moec_s_int_like(moec_simplifier *s, moec_type t, int64_t number);
moec_value moec_s_op(moec_simplifier *s, moec_op op, moec_value x, moec_value y); /* y {0}: one operand */
/* Without the constraint that moec_b_reshape() records: the rule knows that the counts agree. */
moec_value moec_s_reshape(moec_simplifier *s, moec_value x, uint32_t rank, const moec_dim *shape);
moec_value moec_s_broadcast(moec_simplifier *s, moec_value x, uint32_t rank, const moec_dim *shape, const int64_t *map);
/* |x| without its axes of size 1. */
moec_value moec_s_squeeze(moec_simplifier *s, moec_value x);

#endif
