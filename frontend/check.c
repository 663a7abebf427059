/* What must hold of a model before anything in it is imported, whatever its operators are. On the way, what protobuf
 * leaves out is filled in: unset strings become "", attributes get their type. */
#include <string.h>

#include "frontend/import_internal.h"

enum {
  MAX_IR_VERSION = 14,
  MAX_OPSET = 28,
  MAX_FUNCTIONS = 10000,
  MAX_OPSETS = 1000,
  MAX_ATTRIBUTES = 256,
  MAX_PROPERTIES = 10000
};
#define BAD(...) moec_error(MOEC_INVALID_MODEL, __VA_ARGS__)

static char nothing[1]; /* never written to */

static void fill(char **s) {
  if (!*s) *s = nothing;
}

/* ---- attributes --------------------------------------------------------------------------- */

enum {
#define TYPE(name) name = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__##name
  TYPE(FLOAT),
  TYPE(INT),
  TYPE(STRING),
  TYPE(TENSOR),
  TYPE(GRAPH),
  TYPE(FLOATS),
  TYPE(INTS),
  TYPE(STRINGS),
  TYPE(TENSORS),
  TYPE(GRAPHS),
  TYPE(SPARSE_TENSOR),
  TYPE(SPARSE_TENSORS),
  TYPE(TYPE_PROTO),
  TYPE(TYPE_PROTOS),
  N_TYPES
#undef TYPE
};

/* Bit i: there is a value of type i. */
static uint32_t values_of(const Onnx__AttributeProto *a) {
  const bool has[N_TYPES] = {
      [FLOAT] = a->has_f, [INT] = a->has_i, [STRING] = a->has_s, [TENSOR] = a->t, [GRAPH] = a->g,
      [FLOATS] = a->n_floats, [INTS] = a->n_ints, [STRINGS] = a->n_strings, [TENSORS] = a->n_tensors,
      [GRAPHS] = a->n_graphs,
      [SPARSE_TENSOR] = a->sparse_tensor, [SPARSE_TENSORS] = a->n_sparse_tensors, [TYPE_PROTO] = a->tp, [TYPE_PROTOS] =
      a->n_type_protos};
  uint32_t bits = 0;
  for (int i = 0; i < N_TYPES; i++) bits |= (uint32_t)has[i] << i;
  return bits;
}

/* One value, of the type that the attribute says it has. Lists may be empty, and writers of the proto3 form of the
 * schema leave out zeros. */
static moec_status *check_value(Onnx__AttributeProto *a, bool in_function) {
  static const uint32_t may_be_absent = 1u << FLOAT | 1u << INT | 1u << STRING | 1u << FLOATS | 1u << INTS |
                                        1u << STRINGS | 1u << TENSORS | 1u << GRAPHS | 1u << SPARSE_TENSORS |
                                        1u << TYPE_PROTOS;
  uint32_t have = values_of(a), type = a->has_type ? (uint32_t)a->type : 0;
  if (!*a->name) return BAD("an attribute has no name");
  if (type >= N_TYPES) return BAD("attribute \"%s\": unknown type %d", a->name, (int)a->type);
  if (a->ref_attr_name && *a->ref_attr_name) {
    if (!in_function) return BAD("attribute \"%s\" refers to one of a function, but is in none", a->name);
    return have ? BAD("attribute \"%s\" has a value and refers to another one", a->name) : NULL;
  }
  if (have & (have - 1)) return BAD("attribute \"%s\": expected one value, got several", a->name);
  if (!type) {
    if (!have) return BAD("attribute \"%s\" has neither a type nor a value", a->name);
    type = (uint32_t)__builtin_ctz(have);
    a->type = (Onnx__AttributeProto__AttributeType)type, a->has_type = true;
  }
  if (have != 1u << type && (have || !(may_be_absent >> type & 1)))
    return BAD("attribute \"%s\": expected a value of type %u, got %s", a->name, type,
               have ? "one of another type" : "none");
  if (type == FLOAT) a->has_f = true;
  if (type == INT) a->has_i = true;
  if (type == STRING) a->has_s = true;
  return NULL;
}

/* ---- nodes -------------------------------------------------------------------------------- */

/* |depth|: of graphs in attributes; the pre-scan bounds it. */
static moec_status *check_nodes(size_t n, Onnx__NodeProto **nodes, bool in_function);

static moec_status *check_graph(Onnx__GraphProto *g, bool in_function) {
  fill(&g->name);
  if (g->n_sparse_initializer) return moec_error(MOEC_UNSUPPORTED, "graph \"%s\" has sparse initializers", g->name);
  for (size_t i = 0; i < g->n_initializer; i++) fill(&g->initializer[i]->name);
  for (size_t i = 0; i < g->n_input; i++) fill(&g->input[i]->name);
  for (size_t i = 0; i < g->n_output; i++) fill(&g->output[i]->name);
  for (size_t i = 0; i < g->n_value_info; i++) fill(&g->value_info[i]->name);
  return check_nodes(g->n_node, g->node, in_function);
}

static moec_status *check_attributes(Onnx__NodeProto *p, bool in_function) {
  if (p->n_attribute > MAX_ATTRIBUTES)
    return BAD("expected at most %d attributes, got %zu", MAX_ATTRIBUTES, p->n_attribute);
  for (size_t k = 0; k < p->n_attribute; k++) {
    const Onnx__AttributeProto *a = p->attribute[k];
    MOEC_TRY(moec_check_attribute(p->attribute[k], in_function));
    for (size_t j = 0; j < k; j++)
      if (strcmp(p->attribute[j]->name, a->name) == 0) return BAD("attribute \"%s\" stands twice", a->name);
  }
  return NULL;
}

moec_status *moec_check_attribute(Onnx__AttributeProto *a, bool in_function) {
  fill(&a->name);
  MOEC_TRY(check_value(a, in_function));
  if (a->t) fill(&a->t->name);
  if (a->g) MOEC_TRY(check_graph(a->g, in_function));
  for (size_t j = 0; j < a->n_graphs; j++) MOEC_TRY(check_graph(a->graphs[j], in_function));
  return NULL;
}

static moec_status *check_nodes(size_t n, Onnx__NodeProto **nodes, bool in_function) {
  for (size_t i = 0; i < n; i++) {
    Onnx__NodeProto *p = nodes[i];
    fill(&p->name), fill(&p->op_type), fill(&p->domain);
    if (!*p->op_type) return BAD("node %zu \"%s\" has no operator", i, p->name);
    if (p->n_input == 0 && p->n_output == 0)
      return BAD("node %zu \"%s\" (%s) has neither operands nor results", i, p->name, p->op_type);
    if (p->n_input > UINT32_MAX || p->n_output > UINT32_MAX)
      return BAD("node %zu \"%s\" (%s) has too many operands or results", i, p->name, p->op_type);
    MOEC_TRY(moec_context(check_attributes(p, in_function), "node %zu \"%s\" (%s)", i, p->name, p->op_type));
  }
  return NULL;
}

/* ---- the model ---------------------------------------------------------------------------- */

const char *moec_onnx_domain(const char *domain) { return domain && strcmp(domain, "ai.onnx") != 0 ? domain : ""; }

static moec_status *check_opsets(size_t n, Onnx__OperatorSetIdProto **sets) {
  if (n > MAX_OPSETS) return BAD("expected at most %d opset_imports, got %zu", MAX_OPSETS, n);
  for (size_t i = 0; i < n; i++) {
    const char *domain = moec_onnx_domain(sets[i]->domain);
    if (!*domain && (sets[i]->version < 1 || sets[i]->version > MAX_OPSET))
      return moec_error(MOEC_UNSUPPORTED, "expected opset 1..%d, got %lld", MAX_OPSET, (long long)sets[i]->version);
    for (size_t k = 0; k < i; k++)
      if (strcmp(moec_onnx_domain(sets[k]->domain), domain) == 0)
        return BAD("opset_import names the domain \"%s\" twice", *domain ? domain : "ai.onnx");
  }
  return NULL;
}

static moec_status *check_function(Onnx__FunctionProto *f) {
  fill(&f->name), fill(&f->domain);
  if (!*f->name) return BAD("a local function has no name");
  if (f->n_attribute > MAX_ATTRIBUTES)
    return BAD("expected at most %d attributes, got %zu", MAX_ATTRIBUTES, f->n_attribute);
  MOEC_TRY(check_opsets(f->n_opset_import, f->opset_import));
  return check_nodes(f->n_node, f->node, true);
}

static moec_status *check_functions(Onnx__ModelProto *p, moec_arena *a) {
  moec_scope seen;
  moec_scope_init(&seen, a);
  if (p->n_functions > MAX_FUNCTIONS) return BAD("more than %d local functions", MAX_FUNCTIONS);
  for (size_t i = 0; i < p->n_functions; i++) {
    Onnx__FunctionProto *f = p->functions[i];
    MOEC_TRY(moec_context(check_function(f), "function %zu \"%s\"", i, f->name ? f->name : ""));
    const char *full = moec_arena_printf(a, "%s::%s", moec_onnx_domain(f->domain), f->name);
    if (!moec_scope_add(&seen, a, full)) return BAD("the function \"%s\" stands twice", full);
  }
  return NULL;
}

static moec_status *check_properties(size_t n, Onnx__StringStringEntryProto **entries) {
  if (n > MAX_PROPERTIES) return BAD("expected at most %d metadata_props, got %zu", MAX_PROPERTIES, n);
  for (size_t i = 0; i < n; i++) {
    fill(&entries[i]->key);
    for (size_t k = 0; k < i; k++)
      if (strcmp(entries[i]->key, entries[k]->key) == 0)
        return BAD("metadata_props: the key \"%s\" stands twice", entries[i]->key);
  }
  return NULL;
}

moec_status *moec_check_model(Onnx__ModelProto *p, moec_arena *a) {
  if (!p->graph) return BAD("expected a model with a graph");
  if (!p->has_ir_version || p->ir_version < 3 || p->ir_version > MAX_IR_VERSION)
    return BAD("expected ir_version 3..%d, got %lld", MAX_IR_VERSION, p->has_ir_version ? (long long)p->ir_version : 0);
  if (p->n_opset_import == 0) return BAD("expected an opset_import");
  MOEC_TRY(check_opsets(p->n_opset_import, p->opset_import));
  MOEC_TRY(check_properties(p->n_metadata_props, p->metadata_props));
  MOEC_TRY(check_functions(p, a));
  return check_graph(p->graph, false);
}
