/* What the files of fuse share: how a kernel reads a value, kernels, and the plan of one function. */
#ifndef MOEC_PASSES_FUSE_H
#define MOEC_PASSES_FUSE_H

#include "passes/pass.h"

/* ---- how a kernel reads a value (passes/fuse_access.c) -------------------------------------- */

/* One axis of a value, seen from one element of a kernel's root. Exact: the position on the axis is the position on the
 * root's axes lo .. hi-1, taken as one row-major index, over their whole size. Otherwise the position depends
 * somehow on the root axes in |mask|; bit 31 stands for a reduction's own loop. An axis of size 1 has mask 0. */
typedef struct moec_axis_label {
  uint16_t lo, hi; /* hi > lo: exact */
  uint32_t mask;
} moec_axis_label;

#define MOEC_LABEL_LOOP (1u << 31)

typedef struct moec_access {
  moec_axis_label axis[MOEC_MAX_RANK];
  uint64_t sig; /* equal for equal index maps: such reads compute the value once */
} moec_access;

/* The root read at its own element. */
moec_access moec_access_root(const moec_graph *g, moec_value root);
/* Operand |i| of |n|, whose result is read as |out| from an element of |root|. */
moec_access moec_access_operand(const moec_graph *g, moec_value root, moec_node n, uint32_t i, const moec_access *out);
/* Nothing is known of the index but that it moves. */
moec_access moec_access_opaque(uint64_t seed);
/* The number of leading root axes whose positions, all of them, select the element of |v|: the k for which |v| has one
 * element a row. -1: there is no such number. */
int moec_access_rows(const moec_graph *g, moec_value root, moec_value v, const moec_access *a);
/* Row r of |v|, of the |kv| leading axes, is read by row r of the root, of the |kr| leading axes. */
bool moec_access_aligned(const moec_graph *g, moec_value root, int kr, moec_value v, int kv, const moec_access *a);

/* ---- the plan of one function ----------------------------------------------------------------- */

enum { MOEC_MAX_READS = 16, MOEC_MAX_ROOTS = 8, MOEC_MAX_KERNEL_NODES = 160 };

/* The reads of a value by one kernel. */
typedef struct moec_reads {
  uint32_t kernel, n;
  bool overflow; /* more than MOEC_MAX_READS different ones */
  moec_access at[MOEC_MAX_READS];
  struct moec_reads *next;
} moec_reads;

typedef enum moec_place {
  MOEC_PLACE_NONE,     /* not needed, or not decided */
  MOEC_PLACE_OUTSIDE,  /* function input, parameter, result of a library node, epilogue add, large constant */
  MOEC_PLACE_STORED,   /* root of a kernel */
  MOEC_PLACE_INLINE    /* computed where it is read */
} moec_place;

typedef struct moec_kernel {
  moec_value origin;                /* its root before merging: labels of its reads are relative to its space */
  moec_value roots[MOEC_MAX_ROOTS]; /* ascending */
  uint32_t n_roots, n_nodes;
  int row_axes;        /* of roots[0]'s space; -1: any split is fine (nothing depends on it) */
  int64_t block;       /* rows of a block, where some root is a sum over blocks of rows; else 0 */
  uint32_t into;       /* merged into that kernel; 0: not */
  uint32_t next_part;  /* list of kernels merged into this one */
  uint32_t first_node, last_node; /* of all parts: nodes that define roots */
  bool attention;
} moec_kernel;

typedef struct moec_fuse_machine moec_fuse_machine; /* what arithmetic costs there (passes/fuse_cost.c) */
const moec_fuse_machine *moec_fuse_machine_of(moec_target t);

typedef struct moec_fuse_plan {
  moec_module *m;
  const moec_fuse_machine *machine;
  moec_graph *g;          /* compacted: array order is topological */
  moec_place *place;      /* by value */
  uint8_t *must;          /* by value: has to lie in memory */
  uint8_t *likely_stored; /* by value: several nodes read it, and computing it again is not worth it */
  uint32_t *kernel_of;    /* by value: of a stored one */
  moec_reads **reads;     /* by value */
  uint8_t *epilogue;      /* by node: an add left to the library call before it */
  moec_kernel *kernels;   /* kernels[0] unused */
  size_t n_kernels, cap_kernels;
  int64_t *symbols;       /* nominal sizes, for estimates */
} moec_fuse_plan;

bool moec_fuse_is_library(moec_op op);
/* Operand |i| of library node |n| that is known without lying in memory: the zeros a scatter adds to. */
bool moec_fuse_is_implied(const moec_graph *g, moec_node n, uint32_t i);
bool moec_fuse_is_attention(moec_op op); /* or its gradient: a kernel of its own */
/* Goes into kernels: what is neither a library node nor a parameter nor a large constant. */
bool moec_fuse_is_fusable(const moec_graph *g, moec_node n);
/* |v| without the reshapes on top of it: they are names for the same bytes. */
moec_value moec_fuse_source(const moec_graph *g, moec_value v);
/* Estimated elements and bytes of a value, symbols taken as 128. */
double moec_fuse_numel(const moec_fuse_plan *p, moec_value v);
double moec_fuse_bytes(const moec_fuse_plan *p, moec_value v);
uint32_t moec_fuse_kernel(const moec_fuse_plan *p, moec_value v); /* after merging */
/* Where the elements of a root are computed: a value of that shape. The root itself, or what a block_sum adds up. */
moec_value moec_fuse_space(const moec_graph *g, moec_value root);
/* Rows of a kernel; its split of roots[0]. */
moec_dim moec_fuse_rows(const moec_fuse_plan *p, uint32_t kernel);
/* The number of leading axes of |v|'s space whose product is |rows|; -1: none. */
int moec_fuse_prefix(const moec_fuse_plan *p, moec_value v, moec_dim rows);

moec_status *moec_fuse_decide(moec_fuse_plan *p) MOEC_MUST_USE; /* passes/fuse_plan.c */
moec_status *moec_fuse_weights(moec_graph *g) MOEC_MUST_USE;      /* passes/fuse_weight.c; before there is a plan */
moec_status *moec_fuse_matrices(moec_graph *g) MOEC_MUST_USE;     /* passes/fuse_matrix.c; before there is a plan */
void moec_fuse_epilogues(moec_fuse_plan *p);                    /* passes/fuse_epilogue.c */
moec_status *moec_fuse_reorder(moec_graph *g) MOEC_MUST_USE;     /* the same file; before there is a plan */
moec_status *moec_fuse_split(moec_fuse_plan *p) MOEC_MUST_USE; /* passes/fuse_split.c; needs graph and symbols only */
/* Whether computing |v| again in |readers| kernels costs no more than storing it. */
bool moec_fuse_recompute(const moec_fuse_plan *p, moec_value v, uint32_t readers); /* passes/fuse_cost.c */
bool moec_fuse_stays_mask(const moec_fuse_plan *p, moec_value v, const moec_reads *reads); /* the same file */
void moec_fuse_foresee(moec_fuse_plan *p); /* fills likely_stored */
bool moec_fuse_is_heavy(moec_op op);       /* transcendental: not worth computing twice */
void moec_fuse_merge(moec_fuse_plan *p);                        /* passes/fuse_merge.c */
/* The distinct kernels of the module so far. */
typedef struct moec_fuse_shared {
  moec_fn *fn;
  uint64_t *hash;
  size_t n, cap, cap_hash;
} moec_fuse_shared;
/* passes/fuse_emit.c */
moec_status *moec_fuse_emit(moec_fuse_plan *p, moec_fuse_shared *shared) MOEC_MUST_USE;
/* Every top-level node is fused, library, param, large const, reshape or an epilogue add. */
moec_status *moec_fuse_check(const moec_module *m) MOEC_MUST_USE; /* passes/fuse_check.c */
bool moec_fuse_is_epilogue(const moec_graph *g, moec_node n);   /* by shape alone: an add of a library result */

#endif
