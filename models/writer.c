/* The ONNX writer: protobuf-c records in an arena. */
#include "models/writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/outfile.h"
#include "onnx.pb-c.h"

enum { IR_VERSION = 10, OPSET = 23 };

typedef struct list {
  void **v;
  size_t n, cap;
} list;

/* A constant written before. */
typedef struct constant {
  moec_dtype dtype;
  uint32_t rank;
  int64_t dims[4];
  const void *data;
  size_t size;
  const char *name;
} constant;

/* What nodes go to: the graph or a function. */
typedef struct body {
  list nodes;
  constant *constants;
  size_t n_constants, cap_constants;
} body;

struct moec_writer {
  moec_arena *arena;
  moec_status *error;
  const char *scope;
  uint64_t counter;
  body graph, fn;
  body *at; /* &graph or &fn */
  list inputs, outputs, initializers, functions, metadata;
  Onnx__FunctionProto *open;
};

moec_writer *moec_writer_create(void) {
  moec_arena *arena = moec_arena_create();
  moec_writer *w = MOEC_NEW(arena, moec_writer);
  w->arena = arena;
  w->scope = "";
  w->at = &w->graph;
  return w;
}

void moec_writer_destroy(moec_writer *w) {
  if (!w) return;
  moec_status_free(w->error);
  moec_arena_destroy(w->arena);
}

moec_arena *moec_writer_arena(moec_writer *w) { return w->arena; }

void moec_w_fail(moec_writer *w, moec_status *s) {
  if (w->error) moec_status_free(s);
  else w->error = s;
}

bool moec_w_failed(const moec_writer *w) { return w->error != NULL; }

moec_status *moec_writer_end(moec_writer *w) {
  moec_status *s = w->error;
  w->error = NULL;
  return s;
}

void moec_w_scope(moec_writer *w, const char *fmt, ...) {
  char text[512];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  w->scope = moec_arena_strdup(w->arena, text);
}

/* ---- records ------------------------------------------------------------------------------ */

static void push(moec_writer *w, list *l, void *p) { MOEC_PUSH(w->arena, l->v, l->n, l->cap, p); }

static char *text(moec_writer *w, const char *s) { return moec_arena_strdup(w->arena, s); }

/* A copy of protobuf-c's initial record: NEW(w, NodeProto, NODE_PROTO). */
#define NEW(w, type, record) \
  ((Onnx__##type *)moec_arena_copy((w)->arena, &(Onnx__##type)ONNX__##record##__INIT, sizeof(Onnx__##type)))

static Onnx__StringStringEntryProto *entry(moec_writer *w, const char *key, const char *value) {
  Onnx__StringStringEntryProto *e = NEW(w, StringStringEntryProto, STRING_STRING_ENTRY_PROTO);
  e->key = text(w, key);
  e->value = text(w, value);
  return e;
}

void moec_w_metadata(moec_writer *w, const char *key, const char *value) {
  push(w, &w->metadata, entry(w, key, value));
}

static Onnx__TensorShapeProto *shape_of(moec_writer *w, uint32_t rank, const char *const *dims) {
  Onnx__TensorShapeProto *s = NEW(w, TensorShapeProto, TENSOR_SHAPE_PROTO);
  s->n_dim = rank;
  s->dim = MOEC_NEW_ARRAY(w->arena, Onnx__TensorShapeProto__Dimension *, rank + 1);
  for (uint32_t i = 0; i < rank; i++) {
    Onnx__TensorShapeProto__Dimension *d = NEW(w, TensorShapeProto__Dimension, TENSOR_SHAPE_PROTO__DIMENSION);
    bool number = dims[i][0] >= '0' && dims[i][0] <= '9';
    d->value_case = number ? ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE
                           : ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
    if (number) d->dim_value = strtoll(dims[i], NULL, 10);
    else d->dim_param = text(w, dims[i]);
    s->dim[i] = d;
  }
  return s;
}

static Onnx__ValueInfoProto *value_info(moec_writer *w, const char *name, moec_dtype t, uint32_t rank,
                                        const char *const *dims) {
  Onnx__ValueInfoProto *v = NEW(w, ValueInfoProto, VALUE_INFO_PROTO);
  v->name = text(w, name);
  v->type = NEW(w, TypeProto, TYPE_PROTO);
  v->type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
  v->type->tensor_type = NEW(w, TypeProto__Tensor, TYPE_PROTO__TENSOR);
  v->type->tensor_type->has_elem_type = 1;
  v->type->tensor_type->elem_type = moec_dtype_get(t)->onnx;
  v->type->tensor_type->shape = shape_of(w, rank, dims);
  return v;
}

moec_wv moec_w_input(moec_writer *w, const char *name, moec_dtype t, uint32_t rank, const char *const *dims) {
  Onnx__ValueInfoProto *v = value_info(w, name, t, rank, dims);
  push(w, &w->inputs, v);
  return (moec_wv){v->name};
}

void moec_w_output(moec_writer *w, const char *name, moec_wv v, moec_dtype t, uint32_t rank, const char *const *dims) {
  moec_wv out;
  moec_w_node(w, "", "Identity", NULL, 1, &v, 1, &out, &name);
  push(w, &w->outputs, value_info(w, name, t, rank, dims));
}

/* ---- tensors ------------------------------------------------------------------------------ */

static Onnx__TensorProto *tensor(moec_writer *w, moec_dtype t, uint32_t rank, const int64_t *dims) {
  Onnx__TensorProto *p = NEW(w, TensorProto, TENSOR_PROTO);
  p->has_data_type = 1;
  p->data_type = moec_dtype_get(t)->onnx;
  p->n_dims = rank;
  p->dims = moec_arena_copy(w->arena, dims, rank * sizeof *dims);
  return p;
}

moec_wv moec_w_external(moec_writer *w, const char *name, moec_dtype t, uint32_t rank, const int64_t *dims,
                        const char *file, uint64_t offset) {
  size_t bytes = 0;
  char number[32];
  moec_w_fail(w, moec_context(moec_shape_bytes(t, rank, dims, &bytes), "tensor \"%s\"", name));
  if (w->error) return (moec_wv){0};
  Onnx__TensorProto *p = tensor(w, t, rank, dims);
  p->name = text(w, name);
  p->has_data_location = 1;
  p->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
  p->n_external_data = 3;
  p->external_data = MOEC_NEW_ARRAY(w->arena, Onnx__StringStringEntryProto *, 3);
  p->external_data[0] = entry(w, "location", file);
  snprintf(number, sizeof number, "%" PRIu64, offset);
  p->external_data[1] = entry(w, "offset", number);
  snprintf(number, sizeof number, "%zu", bytes);
  p->external_data[2] = entry(w, "length", number);
  push(w, &w->initializers, p);
  return (moec_wv){p->name};
}

static const constant *find_constant(const body *b, const constant *c) {
  for (size_t i = 0; i < b->n_constants; i++) {
    const constant *o = &b->constants[i];
    if (o->dtype == c->dtype && o->rank == c->rank && o->size == c->size &&
        memcmp(o->dims, c->dims, sizeof o->dims) == 0 && memcmp(o->data, c->data, c->size) == 0)
      return o;
  }
  return NULL;
}

static void add_node(moec_writer *w, const char *domain, const char *op, const moec_wattr *attrs,
                     Onnx__AttributeProto *extra, uint32_t n_in, const moec_wv *in, uint32_t n_out, moec_wv *out,
                     const char *const *names);

moec_wv moec_w_const(moec_writer *w, moec_dtype t, uint32_t rank, const int64_t *dims, const void *data) {
  constant c = {.dtype = t, .rank = rank, .data = data};
  moec_wv v = {0};
  if (rank > 4) moec_w_fail(w, MOEC_BUG("a constant of rank %u", rank));
  if (w->error) return v;
  for (uint32_t i = 0; i < rank; i++) c.dims[i] = dims[i];
  moec_w_fail(w, moec_shape_bytes(t, rank, dims, &c.size));
  if (w->error) return v;
  const constant *old = find_constant(w->at, &c);
  if (old) return (moec_wv){old->name};
  Onnx__AttributeProto *a = NEW(w, AttributeProto, ATTRIBUTE_PROTO);
  a->name = text(w, "value");
  a->has_type = 1;
  a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR;
  a->t = tensor(w, t, rank, dims);
  a->t->has_raw_data = 1;
  a->t->raw_data.len = c.size;
  a->t->raw_data.data = moec_arena_copy(w->arena, data, c.size + (c.size == 0));
  add_node(w, "", "Constant", NULL, a, 0, NULL, 1, &v, NULL);
  c.data = a->t->raw_data.data;
  c.name = v.name;
  MOEC_PUSH(w->arena, w->at->constants, w->at->n_constants, w->at->cap_constants, c);
  return v;
}

moec_wv moec_w_ints(moec_writer *w, uint32_t n, const int64_t *v) {
  int64_t dims[1] = {n};
  return moec_w_const(w, MOEC_I64, 1, dims, v);
}

moec_wv moec_w_int(moec_writer *w, int64_t v) { return moec_w_const(w, MOEC_I64, 0, NULL, &v); }

moec_wv moec_w_float(moec_writer *w, moec_dtype t, double v) {
  uint64_t bytes = 0;
  moec_store_f64(t, &bytes, 0, v);
  return moec_w_const(w, t, 0, NULL, &bytes);
}

/* ---- nodes -------------------------------------------------------------------------------- */

static Onnx__AttributeProto *attribute(moec_writer *w, const moec_wattr *from) {
  Onnx__AttributeProto *a = NEW(w, AttributeProto, ATTRIBUTE_PROTO);
  a->name = text(w, from->name);
  a->has_type = 1;
  switch (from->kind) {
    case MOEC_W_I:
      a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT, a->has_i = 1, a->i = from->i;
      break;
    case MOEC_W_F:
      a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT, a->has_f = 1, a->f = (float)from->f;
      break;
    case MOEC_W_S:
      a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING, a->has_s = 1;
      a->s.data = (uint8_t *)text(w, from->s), a->s.len = strlen(from->s);
      break;
    case MOEC_W_IS:
      a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS, a->n_ints = (size_t)from->i;
      a->ints = moec_arena_copy(w->arena, from->ints, a->n_ints * sizeof *a->ints);
      break;
  }
  return a;
}

static void add_node(moec_writer *w, const char *domain, const char *op, const moec_wattr *attrs,
                     Onnx__AttributeProto *extra, uint32_t n_in, const moec_wv *in, uint32_t n_out, moec_wv *out,
                     const char *const *names) {
  list l = {0};
  Onnx__NodeProto *p = NEW(w, NodeProto, NODE_PROTO);
  const char *dot = *w->scope ? "." : "";
  uint64_t id = ++w->counter;
  p->op_type = text(w, op);
  if (*domain) p->domain = text(w, domain);
  p->name = moec_arena_printf(w->arena, "%s%s%s_%" PRIu64, w->scope, dot, op, id);
  for (const moec_wattr *a = attrs; a && a->name; a++) push(w, &l, attribute(w, a));
  if (extra) push(w, &l, extra);
  p->n_attribute = l.n, p->attribute = (Onnx__AttributeProto **)l.v;
  while (n_in && !in[n_in - 1].name) n_in--;
  p->n_input = n_in, p->input = MOEC_NEW_ARRAY(w->arena, char *, n_in + 1);
  for (uint32_t i = 0; i < n_in; i++) p->input[i] = text(w, in[i].name ? in[i].name : "");
  p->n_output = n_out, p->output = MOEC_NEW_ARRAY(w->arena, char *, n_out + 1);
  for (uint32_t i = 0; i < n_out; i++) {
    p->output[i] = names && names[i] ? text(w, names[i])
                                     : moec_arena_printf(w->arena, i ? "%s%s%s_%" PRIu64 ".%u" : "%s%s%s_%" PRIu64,
                                                         w->scope, dot, op, id, i);
    out[i].name = p->output[i];
  }
  push(w, &w->at->nodes, p);
}

void moec_w_node(moec_writer *w, const char *domain, const char *op, const moec_wattr *attrs, uint32_t n_in,
                 const moec_wv *in, uint32_t n_out, moec_wv *out, const char *const *names) {
  memset(out, 0, n_out * sizeof *out);
  if (!w->error) add_node(w, domain, op, attrs, NULL, n_in, in, n_out, out, names);
}

moec_wv moec_w_op(moec_writer *w, const char *op, const moec_wattr *attrs, uint32_t n_in, const moec_wv *in) {
  moec_wv out;
  moec_w_node(w, "", op, attrs, n_in, in, 1, &out, NULL);
  return out;
}

/* ---- functions ---------------------------------------------------------------------------- */

static Onnx__OperatorSetIdProto *opset(moec_writer *w, const char *domain, int64_t version) {
  Onnx__OperatorSetIdProto *o = NEW(w, OperatorSetIdProto, OPERATOR_SET_ID_PROTO);
  o->domain = text(w, domain);
  o->has_version = 1;
  o->version = version;
  return o;
}

/* Both domains, in the model and in every function. */
static Onnx__OperatorSetIdProto **opsets(moec_writer *w, size_t *n) {
  Onnx__OperatorSetIdProto **v = MOEC_NEW_ARRAY(w->arena, Onnx__OperatorSetIdProto *, 2);
  v[0] = opset(w, "", OPSET);
  v[1] = opset(w, "moec", 1);
  *n = 2;
  return v;
}

bool moec_w_fn_begin(moec_writer *w, const char *name, const char *doc, uint32_t n_in, const char *const *in_names,
                     moec_wv *in) {
  if (w->error) return false;
  for (size_t i = 0; i < w->functions.n; i++)
    if (strcmp(((Onnx__FunctionProto *)w->functions.v[i])->name, name) == 0) return false;
  if (w->open) {
    moec_w_fail(w, MOEC_BUG("function \"%s\" inside function \"%s\"", name, w->open->name));
    return false;
  }
  Onnx__FunctionProto *f = NEW(w, FunctionProto, FUNCTION_PROTO);
  f->name = text(w, name);
  f->domain = text(w, "moec");
  f->doc_string = text(w, doc);
  f->n_input = n_in;
  f->input = MOEC_NEW_ARRAY(w->arena, char *, n_in + 1);
  for (uint32_t i = 0; i < n_in; i++) {
    f->input[i] = text(w, in_names[i]);
    in[i].name = f->input[i];
  }
  f->opset_import = opsets(w, &f->n_opset_import);
  memset(&w->fn, 0, sizeof w->fn);
  w->open = f;
  w->at = &w->fn;
  return true;
}

void moec_w_fn_end(moec_writer *w, uint32_t n_out, const moec_wv *out) {
  Onnx__FunctionProto *f = w->open;
  w->open = NULL;
  w->at = &w->graph;
  if (!f || w->error) return;
  f->n_output = n_out;
  f->output = MOEC_NEW_ARRAY(w->arena, char *, n_out + 1);
  for (uint32_t i = 0; i < n_out; i++) f->output[i] = text(w, out[i].name);
  f->n_node = w->fn.nodes.n;
  f->node = (Onnx__NodeProto **)w->fn.nodes.v;
  push(w, &w->functions, f);
}

moec_wv moec_w_call(moec_writer *w, const char *name, uint32_t n_in, const moec_wv *in) {
  moec_wv out;
  moec_w_node(w, "moec", name, NULL, n_in, in, 1, &out, NULL);
  return out;
}

/* ---- the file ----------------------------------------------------------------------------- */

static Onnx__ModelProto *model(moec_writer *w, const char *graph_name) {
  Onnx__ModelProto *m = NEW(w, ModelProto, MODEL_PROTO);
  Onnx__GraphProto *g = NEW(w, GraphProto, GRAPH_PROTO);
  m->has_ir_version = 1;
  m->ir_version = IR_VERSION;
  m->producer_name = text(w, "moec");
  m->opset_import = opsets(w, &m->n_opset_import);
  m->n_functions = w->functions.n, m->functions = (Onnx__FunctionProto **)w->functions.v;
  m->n_metadata_props = w->metadata.n, m->metadata_props = (Onnx__StringStringEntryProto **)w->metadata.v;
  m->graph = g;
  g->name = text(w, graph_name);
  g->n_input = w->inputs.n, g->input = (Onnx__ValueInfoProto **)w->inputs.v;
  g->n_output = w->outputs.n, g->output = (Onnx__ValueInfoProto **)w->outputs.v;
  g->n_initializer = w->initializers.n, g->initializer = (Onnx__TensorProto **)w->initializers.v;
  g->n_node = w->graph.nodes.n, g->node = (Onnx__NodeProto **)w->graph.nodes.v;
  return m;
}

moec_status *moec_writer_save(moec_writer *w, const char *path, const char *graph_name) {
  MOEC_TRY(moec_writer_end(w));
  Onnx__ModelProto *m = model(w, graph_name);
  size_t size = onnx__model_proto__get_packed_size(m);
  uint8_t *bytes = malloc(size);
  if (!bytes) return moec_error(MOEC_OUT_OF_MEMORY, "no memory for a model of %zu bytes", size);
  onnx__model_proto__pack(m, bytes);
  moec_status *s = moec_write_file(path, bytes, size, 0644);
  free(bytes);
  return s;
}
