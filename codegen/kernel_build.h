/* Inside kernel construction: the expression pool, evaluation, scheduling. */
#ifndef MOEC_CODEGEN_KERNEL_BUILD_H
#define MOEC_CODEGEN_KERNEL_BUILD_H

#include "codegen/kernel.h"

/* ---- expressions (kernel_expr.c, kernel_index.c) ------------------------------------------ */

typedef struct moec_kpool {
  moec_arena *arena;
  moec_module *m;
  moec_kx_node *nodes; /* nodes[0]: none */
  size_t n, cap;
  uint32_t *slots; /* hash table, 0: empty */
  size_t n_slots;
  moec_kvar *vars;
  size_t n_vars, cap_vars;
  moec_status *error; /* the first; owned until kernel_build hands it out */
} moec_kpool;

void moec_kpool_init(moec_kpool *p, moec_arena *arena, moec_module *m);
void moec_kpool_fail(moec_kpool *p, moec_status *s); /* keeps the first, frees later ones */
static inline const moec_kx_node *moec_kx_get(const moec_kpool *p, moec_kx e) {
  return &p->nodes[e.i];
}
static inline bool moec_kx_eq(moec_kx a, moec_kx b) { return a.i == b.i; }
moec_kx moec_kx_intern(moec_kpool *p, moec_kx_node n); /* copies its arrays */

/* The variable of this range and copy number; made on first use. */
moec_kx moec_kx_var(moec_kpool *p, moec_kvar_kind kind, moec_dim lo, moec_dim hi, uint32_t copy);

/* Integers. */
moec_kx moec_kx_size(moec_kpool *p, moec_dim d);
moec_kx moec_kx_i64(moec_kpool *p, int64_t v);
moec_kx moec_kx_add(moec_kpool *p, moec_kx a, moec_kx b);
moec_kx moec_kx_sub(moec_kpool *p, moec_kx a, moec_kx b);
moec_kx moec_kx_scale(moec_kpool *p, moec_kx a, moec_dim by);
moec_kx moec_kx_div(moec_kpool *p, moec_kx a, moec_dim by);
moec_kx moec_kx_mod(moec_kpool *p, moec_kx a, moec_dim by);
bool moec_kx_ranged(const moec_kpool *p, moec_kx a); /* an integer of known range */
/* Known truth of "a op b" of ranged integers: 1, 0, or -1 where it is not known. */
int moec_kx_decide(moec_kpool *p, moec_op op, moec_kx a, moec_kx b);
/* A sum's coefficient of an atom; the zero size when it doesn't occur. */
moec_dim moec_kx_coeff(moec_kpool *p, moec_kx sum, moec_kx atom);

/* Values. */
moec_kx moec_kx_num(moec_kpool *p, moec_dtype t, double v);
moec_kx moec_kx_int(moec_kpool *p, moec_dtype t, int64_t v);
static inline moec_kx moec_kx_bool(moec_kpool *p, bool v) { return moec_kx_int(p, MOEC_BOOL, v); }
bool moec_kx_is_bool(const moec_kpool *p, moec_kx e, bool v); /* the constant |v| */
moec_kx moec_kx_load(moec_kpool *p, uint32_t buffer, moec_dtype t, moec_kx index, moec_kx guard);
moec_kx moec_kx_wrap(moec_kpool *p, moec_kx index, moec_dim n, moec_kx guard);
moec_kx moec_kx_reduce(moec_kpool *p, moec_op op, moec_kx var, moec_kx body);
/* |t|: dtype of the result. Folds constants, decided comparisons and selects. */
moec_kx moec_kx_apply(moec_kpool *p, moec_op op, moec_dtype t, uint32_t n, const moec_kx *args);
moec_kx moec_kx_and(moec_kpool *p, moec_kx a, moec_kx b); /* guards: none means true */
/* The value a reduction starts from. */
moec_kx moec_kx_start(moec_kpool *p, moec_op op, moec_dtype t);
/* The dtype that values of dtype |t| are computed in. */
static inline moec_dtype moec_kx_dtype(moec_dtype t) {
  return t == MOEC_F16 || t == MOEC_BF16 ? MOEC_F32 : t;
}

/* ---- evaluation (kernel_eval.c, kernel_move.c) --------------------------------------------- */

/* One coordinate of an element; |guard|, if given, says when it is inside its axis. */
typedef struct moec_kcoord {
  moec_kx e, guard;
} moec_kcoord;

typedef struct moec_kmemo {
  const moec_kcoord *index;
  moec_kx result;
  struct moec_kmemo *next;
} moec_kmemo;

typedef struct moec_keval {
  moec_kpool *p;
  moec_kernel *k; /* buffers */
  const moec_graph *fn;
  moec_kmemo **memo; /* by value */
  uint32_t depth;
} moec_keval;

void moec_keval_init(moec_keval *ev, moec_kpool *p, moec_kernel *k, const moec_graph *fn);
/* The element of |v| at |index|, one coordinate an axis. */
moec_kx moec_keval_at(moec_keval *ev, moec_value v, const moec_kcoord *index);
/* The same for ops that only move (kernel_move.c) and gathers (kernel_gather.c). */
moec_kx moec_keval_move(moec_keval *ev, moec_node n, const moec_kcoord *index);
moec_kx moec_keval_gather(moec_keval *ev, moec_node n, const moec_kcoord *index);
/* Row-major position of |index| in a tensor of shape |t|. */
moec_kcoord moec_kx_flatten(moec_kpool *p, const moec_kcoord *index, moec_type_info t);
/* The reverse, into t.rank coordinates. */
void moec_kx_unflatten(moec_kpool *p, moec_kcoord flat, moec_type_info t, moec_kcoord *index);

/* ---- scheduling (kernel_schedule.c) --------------------------------------------------------- */

/* One result element: where it goes and what it is. */
typedef struct moec_kstore {
  uint32_t buffer;
  moec_kx index, value;
  bool of_chunk; /* |value| is a reduction over the rows of a chunk, stored when they are done */
} moec_kstore;

/* Loops over |vars|, outermost first, around |stores|; nests that begin with the same variables
 * share those loops. */
typedef struct moec_knest {
  uint32_t n_vars;
  uint32_t vars[MOEC_MAX_RANK];
  moec_kstore *stores;
  size_t n_stores, cap_stores;
} moec_knest;

/* Fills k->body, temps, scratch and flops from nests below the row loop |row|, if any; in a kernel with
 * chunks, the row loop is inside the loop over those. */
void moec_kschedule(moec_kpool *p, moec_kernel *k, moec_kx row, const moec_knest *nests,
                    size_t n_nests);
/* Whether reduction |e| reads memory in the order of |var| rather than of its own variable. */
bool moec_kx_strided(moec_kpool *p, moec_kx e, uint32_t var);

/* ---- the iteration space (kernel_space.c) --------------------------------------------------- */

/* One loop over columns. [cuts[i], cuts[i+1]) are separate loops, in which a condition on the
 * coordinate has one value. With modulus m an iteration handles coordinates m*u, m*u + 1, ... */
#define MOEC_MAX_CUTS 8
typedef struct moec_kaxis {
  moec_dim size;
  uint32_t axis; /* the merged axis it belongs to, alone or as one digit of its coordinate */
  uint32_t n_cuts;
  moec_dim cuts[MOEC_MAX_CUTS];
  int64_t modulus; /* 1: none */
} moec_kaxis;

/* Outputs of equal column shape. Adjacent axes i and i+1 are merged where bit i of |merge| is set;
 * a merged axis is one loop, or several where its coordinate is taken apart (a reshape of [H, D] to [H*D]). */
typedef struct moec_kgroup {
  uint32_t n_axes;
  moec_dim axes[MOEC_MAX_RANK]; /* sizes; those of size 1 left out */
  uint32_t merge;
  uint32_t n_loops;
  moec_kaxis loops[MOEC_MAX_RANK];
  uint64_t vars; /* result: the variables of its loops */
} moec_kgroup;

/* A choice of loops, refined until it fits (kernel_build.c). */
typedef struct moec_kspace {
  moec_kvar_kind row_kind; /* ROW, CHUNK_ROW, or BLOCK: rows are the lanes of the innermost loops */
  moec_dim rows;
  int64_t chunk; /* rows of a chunk, where some output is a block_sum; else 0 */
  uint32_t n_groups;
  moec_kgroup groups[16];
  uint32_t *group_of; /* by output */
  uint32_t *row_axes; /* by output: leading axes that are rows */
} moec_kspace;

/* What a space gives. */
typedef struct moec_kloops {
  moec_kx row;
  moec_knest *nests;
  size_t n_nests, cap_nests;
} moec_kloops;

/* Row axes and groups for |rows|; false when some output's shape does not begin with |rows| rows. A
 * block_sum counts with the shape of its operand. */
bool moec_kspace_init(moec_kspace *s, moec_arena *a, const moec_graph *fn, moec_dim rows);
/* One loop for each merged axis. */
void moec_kgroup_reset(moec_module *m, moec_kgroup *g);
/* The variable lo .. hi of loop |k|. */
moec_kx moec_kloop_var(moec_kpool *p, const moec_kgroup *g, uint32_t k, moec_dim lo, moec_dim hi);
/* Evaluates all outputs over the space. */
void moec_kspace_eval(moec_kspace *s, moec_keval *ev, moec_kloops *out);
/* Cuts and splits loops where what was evaluated asks for it; true when something changed
 * (kernel_cut.c). */
bool moec_kspace_cut(moec_kspace *s, moec_kpool *p, const moec_kloops *loops);

/* How often and where an expression is used (kernel_uses.c). */
typedef struct moec_kuses {
  uint32_t *count; /* by expression: operands and stores that read it */
  bool *keep;      /* costly, and several loops over one variable need it: worth a row temporary */
  bool *joins;     /* a reduction that a loop over columns computes on its way */
  moec_kx *reduces;
  size_t n_reduces, cap_reduces;
} moec_kuses;
/* |row|: the row variable of a kernel with chunks, or none. */
void moec_kuses_find(moec_kuses *u, moec_kpool *p, const moec_knest *nests, size_t n_nests, moec_kx row);
/* What a store needs in each iteration of its nest: its value, or what a sum over rows adds up. */
static inline moec_kx moec_kstore_operand(const moec_kpool *p, const moec_kstore *st) {
  return st->of_chunk ? moec_kx_get(p, st->value)->args[0] : st->value;
}
/* The variable of chunks, where there is one. */
moec_kx moec_kx_chunk(moec_kpool *p);
#define MOEC_KX_COSTLY 16 /* cost of an expression that is worth storing */

/* A function holding the attention node |n| (kernel_attention.c). */
moec_status *moec_kernel_build_attention(moec_arena *a, moec_module *m, const moec_graph *fn,
                                         moec_node n, moec_kernel **out) MOEC_MUST_USE;

#endif
