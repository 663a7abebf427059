/* What the importers share: values by name, symbolic contents, attributes, and how a node hands in its
 * results.
 *
 * Shape arithmetic is resolved here and nowhere else. A small integer value carries its *content* as dims:
 * Shape gives [batch, seq], Gather picks one, Concat joins them, and Reshape reads its target from there. Such
 * values become nodes of the graph only if something uses them as data. */
#ifndef MOEC_FRONTEND_IMPORT_H
#define MOEC_FRONTEND_IMPORT_H

#include "frontend/frontend.h"
#include "frontend/torch_meta.h"
#include "ir/builder.h"
#include "onnx.pb-c.h"

typedef struct moec_import moec_import;

/* A name's meaning: a value, a content, a not yet made initializer, a sequence, or several of these. */
typedef struct moec_entry {
  const char *name;
  moec_value v;                     /* {0}: not made yet */
  const Onnx__TensorProto *tensor;  /* an initializer */
  size_t initializer;               /* its index + 1 in the main graph, 0: elsewhere */
  moec_torch_kind torch;            /* what torch calls it */
  bool listed;                      /* also a graph input */
  bool absent;                      /* an operand that the call of a function leaves out */
  bool known;                       /* content is valid */
  uint32_t rank, n;                 /* of the content: rank 0 or 1, n elements */
  const moec_dim *content;
  moec_dtype dtype;                 /* of the content: an integer type or bool */
  const moec_value *sequence;
  uint32_t n_sequence;
} moec_entry;

typedef struct moec_scope {
  moec_entry *entries;
  size_t n, cap;
  uint32_t *slots; /* hash table: entry index + 1 */
  size_t n_slots;
  const struct moec_scope *parent; /* of the graph around this one */
} moec_scope;

/* A node being imported. */
typedef struct moec_onnx {
  moec_import *x;
  const Onnx__NodeProto *p;
  moec_builder *b;
  moec_module *m;
  int64_t opset;    /* of the node's domain */
  moec_op op;       /* from onnx_ops.def, where the importer is shared by several ops */
  const char *what; /* for messages: node 12 "name" (Op-13) */
  bool *read;       /* by attribute: somebody asked for it; NULL where there are none */
} moec_onnx;

typedef moec_status *(*moec_import_fn)(moec_onnx *n);

typedef struct moec_import_rule {
  const char *domain, *name;
  int since, until; /* opset versions this importer knows, inclusive */
  uint16_t max_in, max_out; /* MOEC_MANY: no limit */
  moec_import_fn fn;
  moec_op op;
} moec_import_rule;

const moec_import_rule *moec_find_import_rule(const char *domain, const char *name, int64_t opset, bool *known_name);

/* ---- operands and results ----------------------------------------------------------------- */

uint32_t moec_onnx_n_in(const moec_onnx *n);
bool moec_onnx_has(const moec_onnx *n, uint32_t i);             /* operand i is given */
moec_entry *moec_onnx_entry(const moec_onnx *n, uint32_t i);     /* NULL when absent */
/* Operand i as a value; {0} when absent. Makes it where only its content exists. */
moec_value moec_onnx_in(moec_onnx *n, uint32_t i);
moec_dtype moec_onnx_dtype(moec_onnx *n, uint32_t i);
/* Content of operand i; an error where it depends on data. */
moec_status *moec_onnx_content(moec_onnx *n, uint32_t i, moec_dims *out) MOEC_MUST_USE;
moec_status *moec_onnx_ints(moec_onnx *n, uint32_t i, moec_ints *out) MOEC_MUST_USE; /* constants only */
void moec_onnx_out(moec_onnx *n, uint32_t i, moec_value v);
void moec_onnx_out_content(moec_onnx *n, uint32_t i, moec_dtype t, uint32_t rank, uint32_t count,
                           const moec_dim *content);
/* The entry of result |name|, once something was given for it. */
moec_entry *moec_scope_of(const moec_onnx *n, const char *name);
/* The end of most importers: result 0, and the builder's error. */
moec_status *moec_onnx_result(moec_onnx *n, moec_value v) MOEC_MUST_USE;
moec_status *moec_onnx_unsupported(moec_onnx *n, const char *fmt, ...) MOEC_PRINTF(2, 3) MOEC_NEVER_NULL;
moec_status *moec_onnx_bad(moec_onnx *n, const char *fmt, ...) MOEC_PRINTF(2, 3) MOEC_NEVER_NULL;

/* ---- attributes --------------------------------------------------------------------------- */

const Onnx__AttributeProto *moec_onnx_attr(const moec_onnx *n, const char *name);
int64_t moec_attr_int(const moec_onnx *n, const char *name, int64_t dflt);
double moec_attr_float(const moec_onnx *n, const char *name, double dflt);
const char *moec_attr_string(const moec_onnx *n, const char *name, const char *dflt);
bool moec_attr_ints(const moec_onnx *n, const char *name, moec_ints *out);
/* Axis in [0, rank), negative ones counted from the end. */
moec_status *moec_onnx_axis(moec_onnx *n, int64_t axis, uint32_t rank, uint32_t *out) MOEC_MUST_USE;
/* Sorted axes from attribute or operand |i|; n = 0 with *given false when there are none. */
moec_status *moec_onnx_axes(moec_onnx *n, const char *attr, uint32_t i, uint32_t rank, moec_ints *out,
                            bool *given) MOEC_MUST_USE;

/* Where in a file the bytes of a tensor are. */
typedef struct moec_place {
  uint32_t file; /* of the module's files; UINT32_MAX: in none */
  uint64_t offset;
} moec_place;

/* A tensor's element type, checked shape and bytes. |out->data| is to be read only: raw bytes are those of the message,
 * external ones those of the mapping, wherever they begin; typed fields are packed into the arena. |place| may be
 * NULL; it tells of external data only. */
moec_status *moec_onnx_tensor(moec_import *x, const Onnx__TensorProto *t, moec_tensor *out,
                              moec_place *place) MOEC_MUST_USE;
moec_value moec_onnx_const(moec_onnx *n, const Onnx__TensorProto *t);

/* Nodes that only compute sizes: *done when the result's content was found (frontend/content.c). */
moec_status *moec_import_content(moec_onnx *n, bool *done) MOEC_MUST_USE;

#define IMPORTER(name) moec_status *moec_import_##name(moec_onnx *n)
#define ONNX(domain, name, since, until, max_in, max_out, fn, op) moec_status *moec_import_##fn(moec_onnx *n);
#include "frontend/onnx_ops.def"
#undef ONNX

#endif
