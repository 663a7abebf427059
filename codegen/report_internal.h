/* Shared by codegen/report*.c: how a function is cut into regions, and small JSON helpers. */
#ifndef MOEC_CODEGEN_REPORT_INTERNAL_H
#define MOEC_CODEGEN_REPORT_INTERNAL_H

#include "codegen/plan_build.h"
#include "codegen/report.h"
#include "include/plan.h"
#include "ir/half.h"

#define REPORT_FORMAT "moec-report"
#define REPORT_VERSION 1
#define REPORT_NONE UINT32_MAX

/* KIND(NAME, text, what people call it) */
#define REPORT_KINDS(KIND)                          \
  KIND(KERNEL, "kernel", "generated kernel")        \
  KIND(ATTENTION, "attention", "attention kernel")  \
  KIND(GEMM, "gemm", "library GEMM")                \
  KIND(LIBRARY, "library", "library step")          \
  KIND(EXPERT, "expert", "opaque expert region")    \
  KIND(CALL, "call", "call of a function")

typedef enum report_kind {
#define REPORT_KIND_ENUM(name, text, people) REPORT_##name,
  REPORT_KINDS(REPORT_KIND_ENUM)
#undef REPORT_KIND_ENUM
  REPORT_KIND_COUNT
} report_kind;

/* What runs as one step, or as one opaque call: its nodes are those with region_of[] equal to
 * its index. Regions are in an order of execution. */
typedef struct report_region {
  report_kind kind;
  moec_node node;    /* the fused call, dot, moe.plan, call ... */
  moec_node first, last; /* in array order */
  moec_node combine; /* EXPERT: the moe.combine */
  moec_node add;     /* the residual add done in the epilogue; {0}: none */
  moec_schedule at;
  const char *stage; /* of routing: "score", "select", "weights"; else NULL */
  moec_dim flops, bytes;
  uint32_t edges, n_edges; /* of its operands */
} report_region;

/* Value |v| (a value that is no view) is made by region |from| and read by region |to|. */
typedef struct report_edge {
  moec_value v;
  uint32_t from, to;  /* REPORT_NONE: function input or leaf; function output */
  moec_node reader;   /* the first in region |to|; {0} for an output */
  uint32_t slot;      /* which operand of it, or which output */
} report_edge;

typedef struct report_fn {
  moec_fn fn;
  moec_graph *g;
  const char *name;
  moec_half half;          /* of a decoder block; not of main */
  uint32_t n_calls;        /* in one run of the model */
  moec_graph *caller;      /* of the first call, which stands for the others */
  moec_node call;
  moec_schedule *in_at;    /* by input */
  moec_schedule *at;       /* by value */
  moec_value *source;      /* by value: itself without the views above it */
  uint32_t *region_of;     /* by node; REPORT_NONE: a leaf or a view */
  report_region *regions;
  uint32_t n_regions;
  report_edge *edges;      /* operands of regions in order, then function outputs */
  size_t n_edges, cap_edges;
  uint64_t hash;
} report_fn;

typedef struct report_block { uint32_t n, *fns; uint32_t count; } report_block;

typedef struct report {
  moec_module *m;
  const moec_report_input *in;
  moec_arena *arena;        /* of the report, gone when it is built */
  int64_t *symbols;         /* values by symbol index */
  bool *given;              /* by symbol: the caller chose the value */
  uint32_t *symbol_order;   /* symbols as the model's inputs introduce them */
  uint64_t *symbol_rank;    /* by symbol: its place in that order */
  report_fn *fns;           /* fns[0] is main, then in order of first call */
  size_t n_fns, cap_fns;
  uint32_t *index_of;       /* by moec_fn: index into fns, REPORT_NONE: no unit of reuse */
} report;

/* ---- codegen/report_regions.c -------------------------------------------------------------- */
void moec_report_analyse(report *r); /* finds functions, regions, edges, binding times */
moec_graph *moec_report_kernel(const report *r, const report_fn *f, const report_region *reg); /* NULL: none */
/* The node of |g| with op |op| that comes first; {0}: none. */
moec_node moec_report_find(const moec_graph *g, moec_op op);
/* The only reader of |v|, looking through views; {0} when there are several. */
moec_node moec_report_only_reader(const moec_graph *g, moec_value v);
/* Value behind a function input in the caller of the first call, views removed; {0} in main. */
moec_value moec_report_argument(const report_fn *f, moec_value input);
/* The parameter that |v| of |g| is; {0}: it is none. */
moec_param moec_report_param_of(const moec_graph *g, moec_value v);
/* The same for a value of function |f|, seen from the call |call| in |caller|. */
moec_param moec_report_param_at(const report_fn *f, moec_value v, const moec_graph *caller, moec_node call);

/* ---- codegen/report_symbols.c, report_hash.c, report_cost.c -------------------------------- */
moec_status *moec_report_symbols(report *r) MOEC_MUST_USE;
uint64_t moec_report_hash(const report *r, const moec_graph *g);
moec_dim moec_report_flops(const report *r, const report_fn *f, const report_region *reg);
moec_dim moec_report_bytes(const report *r, const report_fn *f, const report_region *reg);
moec_dim moec_report_node_flops(const report *r, const moec_graph *g, moec_node n);
moec_dim moec_report_node_bytes(const report *r, const report_fn *f, moec_node n);
moec_dim moec_report_edge_bytes(const report *r, const report_fn *f, const report_edge *e);

/* ---- JSON of parts: each returns a new reference ------------------------------------------- */
json_t *moec_report_functions(report *r);                                   /* report_functions.c */
json_t *moec_report_parameters(report *r);                                  /* report_params.c */
json_t *moec_report_param_sums(const report *r, const report_fn *f);
json_t *moec_report_cuts(const report *r, const report_fn *f);              /* report_cuts.c */
json_t *moec_report_ops(const moec_graph *g);                               /* report_describe.c */
const char *moec_report_title(const report *r, const report_fn *f, const report_region *reg);
json_t *moec_report_gemm(const report *r, const report_fn *f, const report_region *reg);
json_t *moec_report_attention(const report *r, const report_fn *f, const report_region *reg); /* report_attention.c */
json_t *moec_report_expert(const report *r, const report_fn *f, const report_region *reg);    /* report_moe.c */
json_t *moec_report_moe_layers(const report *r, const uint32_t *block_of_call);
void moec_report_stages(report *r, report_fn *f); /* marks score, select and weights regions */
json_t *moec_report_hoisted(const report *r);                               /* report_functions.c */
/* Adds "blocks", "sequence" and "runs"; gives the block of each node of main (REPORT_NONE: none). */
uint32_t *moec_report_blocks(const report *r, json_t *out);                 /* report_blocks.c */

/* ---- codegen/report_json.c ----------------------------------------------------------------- */
/* Out of memory ends the process, as in base/arena.h; bytes that are no UTF-8 become '?'. */
json_t *moec_report_str(const char *s); /* NULL: null */
json_t *moec_report_size(const report *r, moec_dim d); /* {"text", "value"}; value null where unknown */
json_t *moec_report_type(const report *r, moec_type t); /* "f32[batch, seq]" */
void moec_report_set(json_t *object, const char *key, json_t *value); /* takes |value| */
void moec_report_add(json_t *array, json_t *value);
json_t *moec_report_object(void);
json_t *moec_report_array(void);
static inline void moec_report_set_int(json_t *o, const char *key, int64_t v) {
  moec_report_set(o, key, json_integer(v));
}

/* Reading a checked report: absent fields give 0, "" and the like. */
int64_t moec_report_int(const json_t *o, const char *key);
const char *moec_report_text(const json_t *o, const char *key);
const char *moec_report_text_at(const json_t *array, size_t i);
int64_t moec_report_value(const json_t *o, const char *key); /* of a size; -1: unknown */
/* "1.23 M" with |unit| behind; bytes count in powers of 1024. */
void moec_report_human(moec_buf *b, int64_t v, const char *unit);
void moec_report_human_bytes(moec_buf *b, int64_t v);

/* ---- views --------------------------------------------------------------------------------- */
moec_status *moec_report_check(const json_t *root) MOEC_MUST_USE;
void moec_report_view_json(const json_t *root, moec_buf *out);
void moec_report_view_text(const json_t *root, moec_buf *out);
void moec_report_view_dot(const json_t *root, moec_buf *out);
void moec_report_view_html(const json_t *root, moec_buf *out);

#endif
