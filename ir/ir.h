/* The intermediate representation.
 *
 * A module owns everything in one arena: interned strings, dim expressions and types,
 * parameter records, size constraints, and functions. Function 1 is the entry ("main").
 * A function is an SSA graph in dense arrays; handles are 32-bit indexes wrapped in distinct
 * structs, 0 meaning "none" (an absent optional input, ONNX's ""). Pointers into the arrays
 * (moec_node_get ...) are valid until the next node or value is added.
 *
 * Node order in the arrays carries no meaning between passes: a pass may append nodes
 * anywhere; moec_compact() drops what no output needs and renumbers in depth-first order from
 * the outputs. Dumps are therefore canonical: they don't depend on the order in a file.
 *
 * Thread-compatible: one thread at a time per module. */
#ifndef MOEC_IR_IR_H
#define MOEC_IR_IR_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/dtype.h"
#include "base/file.h"
#include "base/status.h"
#include "base/tensor.h"
#include "ir/dims.h"

typedef struct moec_module moec_module;
typedef struct moec_graph moec_graph;

typedef struct { uint32_t i; } moec_type;  /* interned: equal types have equal i */
typedef struct { uint32_t i; } moec_value; /* of one graph */
typedef struct { uint32_t i; } moec_node;  /* of one graph */
typedef struct { uint32_t i; } moec_fn;    /* a function of the module */
typedef struct { uint32_t i; } moec_param; /* a parameter record of the module */

/* ---- ops and attributes, from ops.def ---------------------------------------------------- */

typedef enum moec_op {
  MOEC_OP_NONE = 0,
#define OP(NAME, ...) MOEC_OP_##NAME,
#include "ir/ops.def"
#undef OP
  MOEC_OP_COUNT
} moec_op;

typedef enum moec_op_class {
  MOEC_CLASS_LEAF,
  MOEC_CLASS_UNARY,
  MOEC_CLASS_BINARY,
  MOEC_CLASS_COMPARE,
  MOEC_CLASS_SELECT,
  MOEC_CLASS_CAST,
  MOEC_CLASS_REDUCE,
  MOEC_CLASS_SCAN,
  MOEC_CLASS_MOVE,
  MOEC_CLASS_INDEX,
  MOEC_CLASS_DOT,
  MOEC_CLASS_SORT,
  MOEC_CLASS_EFFECT,
  MOEC_CLASS_CONTROL,
  MOEC_CLASS_COMPOSITE,
  MOEC_CLASS_MOE
} moec_op_class;

/* Attribute lists live in the module's arena. */
typedef struct moec_ints { uint32_t n; const int64_t *v; } moec_ints;
typedef struct moec_dims { uint32_t n; const moec_dim *v; } moec_dims;

/* The bytes of a constant: dense, row-major, static shape. Owned by the arena or a mapping
 * that outlives the module. */
typedef struct moec_const { moec_type type; const void *bytes; size_t size; } moec_const;

typedef int64_t moec_attr_I;
typedef double moec_attr_F;
typedef bool moec_attr_B;
typedef moec_dtype moec_attr_E;
typedef moec_sym moec_attr_S;
typedef moec_ints moec_attr_INTS;
typedef moec_dims moec_attr_DIMS;
typedef moec_dim moec_attr_DIM;
typedef moec_fn moec_attr_FN;
typedef moec_param moec_attr_PARAM;
typedef const moec_const *moec_attr_DATA;

/* moec_attrs_TOPK and so on; the last member only keeps empty structs legal C. */
#define ATTR(OPNAME, KIND, name, dflt) moec_attr_##KIND name;
#define OP(NAME, text, min_in, max_in, min_out, max_out, cls, infer, attrs) \
  typedef struct moec_attrs_##NAME { attrs char pad_; } moec_attrs_##NAME;
#include "ir/ops.def"
#undef OP
#undef ATTR

typedef enum moec_attr_kind {
  MOEC_ATTR_I, MOEC_ATTR_F, MOEC_ATTR_B, MOEC_ATTR_E, MOEC_ATTR_S, MOEC_ATTR_INTS, MOEC_ATTR_DIMS,
  MOEC_ATTR_DIM, MOEC_ATTR_FN, MOEC_ATTR_PARAM, MOEC_ATTR_DATA
} moec_attr_kind;

typedef struct moec_attr_info {
  const char *name;
  moec_attr_kind kind;
  uint16_t offset; /* in the attribute struct */
} moec_attr_info;

#define MOEC_MAX_ATTRS 8
#define MOEC_MANY UINT16_MAX

/* Types of the outputs from attributes and input types; out[] has room for |n_out|. Absent
 * inputs have type {0}. Errors quote the letters of docs/ir.md. */
typedef moec_status *(*moec_infer_fn)(moec_module *m, const void *attrs, uint32_t n_in,
                                      const moec_type *in, uint32_t n_out, moec_type *out);

typedef struct moec_op_info {
  const char *name; /* "TOPK" */
  const char *text; /* "topk" */
  uint16_t min_in, max_in, min_out, max_out;
  moec_op_class cls;
  moec_infer_fn infer;
  uint16_t attrs_size, n_attrs;
  moec_attr_info attrs[MOEC_MAX_ATTRS + 1]; /* n_attrs of them */
} moec_op_info;

const moec_op_info *moec_op_get(moec_op op);
moec_op moec_op_from_text(const char *text); /* MOEC_OP_NONE when unknown */
static inline moec_op_class moec_op_cls(moec_op op) { return moec_op_get(op)->cls; }
bool moec_op_is_elementwise(moec_op op); /* UNARY BINARY COMPARE SELECT CAST */

/* ---- types ------------------------------------------------------------------------------- */

/* Rank 0 is a scalar. Returned pointers into the type table stay valid (arena). */
typedef struct moec_type_info { moec_dtype dtype; uint32_t rank; const moec_dim *dims; } moec_type_info;

moec_type moec_type_make(moec_module *m, moec_dtype dtype, uint32_t rank, const moec_dim *dims);
moec_type moec_type_scalar(moec_module *m, moec_dtype dtype);
moec_type moec_type_with_dtype(moec_module *m, moec_type t, moec_dtype dtype);
moec_type_info moec_type_get(const moec_module *m, moec_type t);
moec_dim moec_type_numel(moec_module *m, moec_type t);
void moec_type_print(moec_buf *b, const moec_module *m, moec_type t); /* f32[batch, seq, 64] */

/* ---- parameters -------------------------------------------------------------------------- */

/* Where bytes of weights come from: a mapped file, or the model file's own inline data. */
typedef struct moec_file {
  moec_sym name;     /* without folder; "" for data inlined in the model; or how weights are made (base/fresh.h) */
  moec_map map;
  bool owned;        /* the module unmaps it on destroy */
} moec_file;

/* A rectangular part of a parameter stored contiguously in one file:
 *   parameter[start .. start+size) = permute(stored)   with stored of shape |shape|, row-major,
 *   and stored axis perm[i] becoming axis i of the slice. */
typedef struct moec_piece {
  uint32_t file;       /* index into moec_module.files; UINT32_MAX: bytes live at |inline_bytes| */
  uint64_t offset;     /* from the start of the file; of weights that are made: where their sequence starts */
  const void *inline_bytes; /* the data when file is UINT32_MAX (arena or model mapping) */
  moec_dtype dtype;    /* as stored */
  uint32_t rank;       /* of the parameter; at most MOEC_MAX_RANK */
  int64_t shape[MOEC_MAX_RANK]; /* as stored */
  uint32_t perm[MOEC_MAX_RANK];
  int64_t start[MOEC_MAX_RANK]; /* in the parameter */
  moec_sym name;       /* of the tensor in the source */
} moec_piece;

typedef enum moec_param_group { MOEC_GROUP_DENSE, MOEC_GROUP_EXPERT } moec_param_group;

typedef struct moec_param_info {
  moec_sym name;          /* as in the source */
  moec_type type;         /* logical; static shape */
  bool trainable;         /* decided by frontend and passes; --train-params / --freeze overrule */
  uint32_t tie;           /* tie set: parameters with equal nonzero tie share storage; 0: none */
  moec_param_group group; /* EXPERT: axis |shard_axis| runs over experts */
  int32_t shard_axis;     /* -1: replicated */
  moec_dtype storage;     /* in the source */
  moec_dtype compute;     /* of the copy that kernels read */
  moec_dtype master;      /* of the optimizer's copy; NONE: none */
  uint32_t n_pieces;
  moec_piece *pieces;     /* arena */
} moec_param_info;

moec_param moec_param_add(moec_module *m, const moec_param_info *info); /* copies *info */
moec_param_info *moec_param_get(const moec_module *m, moec_param p);
uint32_t moec_param_count(const moec_module *m); /* handles 1 .. count */
/* The parameter's dense values in its storage dtype, gathered from its pieces. |out| owned by
 * the caller. */
moec_status *moec_param_load(const moec_module *m, moec_param p, moec_tensor *out) MOEC_MUST_USE;

/* ---- module and graphs ------------------------------------------------------------------- */

/* Two sizes that must agree at run time (a Reshape whose element counts are not provably
 * equal, say). Checked at bind; the message names |where| and quotes |what|. */
typedef struct moec_constraint { moec_dim a, b; moec_sym where; moec_sym what; } moec_constraint;

/* What became of the work of a function in its backward function: nodes by op, or by their part of an expert layer. */
typedef struct moec_replay_work {
  const char *what;              /* "dot", "fc2" */
  uint32_t saved, again, left_out; /* result saved by the forward function; computed again; neither: nobody reads it */
} moec_replay_work;

/* A function and what differentiation made of it; for reports. No part of a module's text, and not copied with it. */
typedef struct moec_replay {
  moec_sym fn;
  const moec_graph *forward, *backward;
  const char *reader; /* what keeps moe.combine in the replay, "op node"; NULL: nothing does */
  moec_replay_work *work;
  size_t n_work, cap_work;
} moec_replay;

struct moec_module {
  moec_arena *arena;
  struct moec_dim_table *dims;   /* ir/dims.c; symbols too */
  struct moec_type_table *types; /* ir/types.c */
  struct moec_sym_table *syms;   /* ir/syms.c */
  moec_graph **fns;              /* fns[1] = main; fns[0] unused */
  size_t n_fns, cap_fns;
  moec_param_info *params;
  size_t n_params, cap_params;
  moec_constraint *constraints;
  size_t n_constraints, cap_constraints;
  uint32_t *constraint_slots;    /* hash table: index + 1 of the first n_hashed constraints */
  size_t n_constraint_slots, n_hashed;
  moec_file *files;
  size_t n_files, cap_files;
  moec_replay *replays;          /* what the grad pass differentiated */
  size_t n_replays, cap_replays;
  moec_sym name;                 /* of the source model: file name without folder */
};

moec_module *moec_module_create(void);
void moec_module_destroy(moec_module *m); /* NULL is fine */
/* Deep copy sharing nothing but file mappings, which the original must outlive. */
moec_module *moec_module_clone(const moec_module *m);
void moec_constrain_equal(moec_module *m, moec_dim a, moec_dim b, const char *where, const char *what);

moec_sym moec_sym_make(moec_module *m, const char *s); /* interned; "" is {0} */
const char *moec_sym_str(const moec_module *m, moec_sym s);

typedef struct moec_node_info {
  moec_op op;              /* NONE: removed */
  uint32_t n_in, n_out;
  uint32_t in, out;        /* offsets into graph->edges */
  const void *attrs;       /* moec_attrs_<OP>, in the arena */
  moec_sym loc;            /* name of the source node, for messages */
} moec_node_info;

typedef struct moec_value_info {
  moec_type type;
  moec_node def;           /* {0}: a function input */
  uint32_t slot;           /* which output of def, or which input of the function */
  moec_sym name;           /* source name, may be "" */
  bool has_default;        /* an input of main that may be left out: */
  double dflt;             /* each of its elements is this then; exact in the value's dtype */
} moec_value_info;

struct moec_graph {
  moec_module *m;
  moec_sym name;
  moec_value_info *values; /* values[0] unused */
  size_t n_values, cap_values;
  moec_node_info *nodes;   /* nodes[0] unused */
  size_t n_nodes, cap_nodes;
  moec_value *edges;
  size_t n_edges, cap_edges;
  moec_value *inputs;
  size_t n_inputs, cap_inputs;
  moec_value *outputs;
  moec_sym *output_names;  /* parallel to outputs */
  size_t n_outputs, cap_outputs, cap_output_names;
  moec_sym loc;            /* given to nodes added from now on */
  bool entry;              /* callable from outside (main always is): compaction keeps it */
  /* use lists, built by moec_build_uses(): uses of value v are use_nodes[use_start[v] ..
   * use_start[v+1]); NULL when stale */
  uint32_t *use_start;
  moec_node *use_nodes;
};

moec_fn moec_fn_add(moec_module *m, const char *name);
static inline moec_graph *moec_fn_get(const moec_module *m, moec_fn f) { return m->fns[f.i]; }
static inline moec_graph *moec_main(const moec_module *m) { return m->fns[1]; }
/* main, and the other programs of a module: training and its like. */
static inline bool moec_is_entry(const moec_graph *g) { return g == moec_main(g->m) || g->entry; }

moec_value moec_add_input(moec_graph *g, const char *name, moec_type t);
void moec_add_output(moec_graph *g, const char *name, moec_value v);
/* Makes |to| a copy of |from|, a function of the same module; values and nodes keep their numbers. */
void moec_graph_copy(moec_graph *to, const moec_graph *from);

static inline moec_node_info *moec_node_get(const moec_graph *g, moec_node n) { return &g->nodes[n.i]; }
static inline moec_value_info *moec_value_get(const moec_graph *g, moec_value v) { return &g->values[v.i]; }
static inline moec_value moec_in(const moec_graph *g, moec_node n, uint32_t i) {
  const moec_node_info *p = moec_node_get(g, n);
  return i < p->n_in ? g->edges[p->in + i] : (moec_value){0};
}
static inline moec_value moec_out(const moec_graph *g, moec_node n, uint32_t i) {
  const moec_node_info *p = moec_node_get(g, n);
  return i < p->n_out ? g->edges[p->out + i] : (moec_value){0};
}
static inline moec_op moec_op_of(const moec_graph *g, moec_node n) { return moec_node_get(g, n)->op; }
/* The op that defines |v|; NONE for function inputs and absent values. */
moec_op moec_def_op(const moec_graph *g, moec_value v);
bool moec_is_zeros(const moec_graph *g, moec_value v); /* a broadcast of the constant 0 */
static inline moec_node moec_def(const moec_graph *g, moec_value v) { return g->values[v.i].def; }
moec_type_info moec_ty(const moec_graph *g, moec_value v); /* zeroed for an absent value */
/* The attributes of node |n| as const moec_attrs_NAME *. */
#define MOEC_ATTRS(g, n, NAME) ((const moec_attrs_##NAME *)moec_node_get((g), (n))->attrs)

/* The five edits. add_node copies |attrs| (NULL: defaults), lists inside included, and infers
 * the output types; remove_node needs that no output has a use left. Each makes use lists stale. */
moec_status *moec_add_node(moec_graph *g, moec_op op, const void *attrs, uint32_t n_in, const moec_value *in,
                           uint32_t n_out, moec_node *out_node) MOEC_MUST_USE;
void moec_set_input(moec_graph *g, moec_node n, uint32_t i, moec_value v);
void moec_replace_uses(moec_graph *g, moec_value from, moec_value to); /* outputs of g too */
void moec_remove_node(moec_graph *g, moec_node n);
void moec_set_type(moec_graph *g, moec_value v, moec_type t);

void moec_build_uses(moec_graph *g);
/* After moec_build_uses(): number of node operands plus graph outputs that read |v|. */
uint32_t moec_use_count(const moec_graph *g, moec_value v);
bool moec_is_output(const moec_graph *g, moec_value v);

/* Drops what no output needs and renumbers depth-first from the outputs (function inputs stay
 * in place). Old handles are invalid afterwards. Iterative: any depth. */
void moec_compact(moec_graph *g);
void moec_compact_all(moec_module *m); /* every function; drops functions nobody calls */

/* Default attribute values of an op, as its moec_attrs struct, into |out|. */
void moec_attrs_default(moec_op op, void *out);
/* Attribute equality and hashing, list contents included; FN and PARAM by handle, DATA by bytes. */
bool moec_attrs_equal(moec_op op, const void *a, const void *b);
uint64_t moec_attrs_hash(uint64_t seed, moec_op op, const void *attrs);

/* ---- text form, verifier (docs/ir.md) ------------------------------------------------------ */

void moec_print(moec_buf *b, const moec_module *m); /* the whole module */
void moec_print_fn(moec_buf *b, const moec_graph *g);
/* Reads what moec_print wrote; printing the result gives the same bytes. Inline weight bytes are
 * not part of the text: pieces of a parsed module refer to no data (moec_param_load fails). */
moec_status *moec_parse(const char *text, moec_module **out) MOEC_MUST_USE;

/* Every rule of docs/ir.md: arities, types as inferred, no cycles, outputs defined, handles in
 * range, calls match their function's inputs and outputs. */
moec_status *moec_verify(moec_module *m) MOEC_MUST_USE;

#endif
