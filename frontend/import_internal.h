/* The importer's state: shared by load.c, import.c and initializer.c. */
#ifndef MOEC_FRONTEND_IMPORT_INTERNAL_H
#define MOEC_FRONTEND_IMPORT_INTERNAL_H

#include "frontend/names.h"
#include "frontend/prescan.h"

struct moec_import {
  moec_module *m;
  moec_builder b;
  const moec_import_options *options;
  const char *dir;              /* of external data; NULL: none allowed */
  const Onnx__ModelProto *model;
  struct moec_defaults *defaults; /* of functions' attributes: frontend/functions.c */
  moec_scope functions;           /* entry.initializer: index + 1; made by the first call of moec_find_function() */
  ProtobufCAllocator *allocator; /* limited; what it gives lives until the end of the import */
  Onnx__OperatorSetIdProto **opsets; /* of the graph or function being imported */
  size_t n_opsets;
  moec_prescan scan;
  uint32_t model_file;          /* index of the model's own mapping in m->files */
  moec_scope *scope;            /* of the graph or function being imported */
  int depth;                    /* of local function calls */
  int nesting;                  /* of graphs in graphs */
  size_t n_inlined;             /* nodes of functions and inner graphs, once a call or round */
  moec_buf unsupported;         /* messages so far */
  size_t n_unsupported;
};

/* frontend/check.c: what must hold of a model before its nodes are looked at; fills in what protobuf leaves out. */
moec_status *moec_check_model(Onnx__ModelProto *p, moec_arena *a) MOEC_MUST_USE;
moec_status *moec_check_attribute(Onnx__AttributeProto *a, bool in_function) MOEC_MUST_USE;
const char *moec_onnx_domain(const char *domain); /* "" for "ai.onnx" and for none */

/* frontend/graph.c: the model's graph becomes function 1. */
moec_status *moec_import_main(moec_import *x) MOEC_MUST_USE;

/* frontend/graph.c: the initializers of |g| as names of x->scope; the value that a name has, for a reader called
 * |what|. */
moec_status *moec_add_initializers(moec_import *x, const Onnx__GraphProto *g) MOEC_MUST_USE;
moec_status *moec_value_of(moec_import *x, char *name, const char *what, moec_value *out) MOEC_MUST_USE;

/* frontend/order.c: calls |fn| for every name that graphs in |p|'s attributes read, and graphs in those. */
typedef moec_status *(*moec_name_fn)(void *user, const char *name);
moec_status *moec_inner_names(const Onnx__NodeProto *p, moec_name_fn fn, void *user) MOEC_MUST_USE;

/* frontend/functions.c: the local function that |p| calls, NULL when it calls none; a call. */
const Onnx__FunctionProto *moec_find_function(moec_import *x, const Onnx__NodeProto *p);
moec_status *moec_inline_function(moec_onnx *n, const Onnx__FunctionProto *f) MOEC_MUST_USE;

/* frontend/import.c: the entry of result i, made when it isn't there; NULL when nobody wants it. */
moec_entry *moec_out_entry(moec_onnx *n, uint32_t i);
/* frontend/metadata.c: what the model's metadata_props say about names of the graph in x->scope. */
moec_status *moec_read_metadata(moec_import *x) MOEC_MUST_USE;

/* Types that hold 2^63 elements or more are refused. */
moec_status *moec_check_countable(moec_module *m, moec_type t) MOEC_MUST_USE;

/* frontend/external.c: the file and offset of a tensor's |bytes| of external data. */
/* Whether the tensor at |at| has no bytes but is made from a seed: base/fresh.h. */
bool moec_is_made(const moec_module *m, const moec_place *at);
moec_status *moec_external_data(moec_import *x, const Onnx__TensorProto *t, size_t bytes, uint32_t *file,
                                uint64_t *offset) MOEC_MUST_USE;

/* frontend/initializer.c: the value of an initializer, made on first use. */
moec_status *moec_make_initializer(moec_import *x, moec_entry *e) MOEC_MUST_USE;
/* Content of a small integer initializer, when it has one. */
moec_status *moec_initializer_content(moec_import *x, moec_entry *e) MOEC_MUST_USE;

/* frontend/order.c: indices of |nodes| such that operands come first; an error names a node on a cycle
 * or a name nobody defines. */
moec_status *moec_order_nodes(moec_import *x, size_t n, Onnx__NodeProto **nodes, size_t **out_order) MOEC_MUST_USE;

/* frontend/import.c: all nodes of a graph or function in x->scope. */
moec_status *moec_import_nodes(moec_import *x, size_t n, Onnx__NodeProto **nodes) MOEC_MUST_USE;

#endif
