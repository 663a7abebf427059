/* Calls of local functions are inlined: the function's nodes are imported in a scope of their own. */
#include <string.h>

#include "frontend/import_internal.h"

enum { MAX_CALL_DEPTH = 32, ATTRIBUTE_PROTO = 11 }; /* FunctionProto.attribute_proto, since onnx 1.13 */
#define BAD(...) moec_error(MOEC_INVALID_MODEL, __VA_ARGS__)

static const char *full_name(moec_import *x, const char *domain, const char *name) {
  return moec_arena_printf(x->m->arena, "%s::%s", moec_onnx_domain(domain), name);
}

const Onnx__FunctionProto *moec_find_function(moec_import *x, const Onnx__NodeProto *p) {
  const Onnx__ModelProto *m = x->model;
  if (!m->n_functions) return NULL;
  if (!x->functions.n_slots) {
    moec_scope_init(&x->functions, x->m->arena);
    for (size_t i = 0; i < m->n_functions; i++) {
      moec_entry *e =
          moec_scope_add(&x->functions, x->m->arena, full_name(x, m->functions[i]->domain, m->functions[i]->name));
      if (e) e->initializer = i + 1;
    }
  }
  const moec_entry *e = moec_scope_find(&x->functions, full_name(x, p->domain, p->op_type));
  return e ? m->functions[e->initializer - 1] : NULL;
}

/* ---- attributes --------------------------------------------------------------------------- */

/* A field of a message that the schema doesn't know, as the message it is: scanned, unpacked, checked. */
static moec_status *unpack_default(moec_import *x, const ProtobufCMessageUnknownField *f, Onnx__AttributeProto **out) {
  const uint8_t *p = f->data, *end = f->data + f->len;
  moec_prescan scan;
  while (p < end && *p & 128) p++; /* the length; the pre-scan of the file has checked it */
  if (p < end) p++;
  MOEC_TRY(moec_prescan_wire(x->m->arena, &onnx__attribute_proto__descriptor, p, (size_t)(end - p), &scan));
  *out = onnx__attribute_proto__unpack(x->allocator, (size_t)(end - p), p);
  if (!*out) return BAD("a default is damaged, or needs too much memory");
  return moec_check_attribute(*out, false);
}

/* The defaults of a function's attributes, unpacked on first use. */
struct moec_defaults {
  bool read;
  size_t n;
  Onnx__AttributeProto **v;
};

static moec_status *read_defaults(moec_import *x, const Onnx__FunctionProto *f, struct moec_defaults *d) {
  d->v = MOEC_NEW_ARRAY(x->m->arena, Onnx__AttributeProto *, f->base.n_unknown_fields + 1);
  for (unsigned i = 0; i < f->base.n_unknown_fields; i++) {
    const ProtobufCMessageUnknownField *field = &f->base.unknown_fields[i];
    if (field->tag == ATTRIBUTE_PROTO && field->wire_type == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
      MOEC_TRY(unpack_default(x, field, &d->v[d->n++]));
  }
  d->read = true;
  return NULL;
}

/* The function's default for attribute |name|; NULL when it has none. */
static moec_status *find_default(moec_import *x, const Onnx__FunctionProto *f, const char *name,
                                 const Onnx__AttributeProto **out) {
  const Onnx__ModelProto *model = x->model;
  size_t at = 0;
  if (!x->defaults) x->defaults = MOEC_NEW_ARRAY(x->m->arena, struct moec_defaults, model->n_functions);
  while (model->functions[at] != f) at++;
  struct moec_defaults *d = &x->defaults[at];
  if (!d->read) MOEC_TRY(read_defaults(x, f, d));
  *out = NULL;
  for (size_t i = 0; i < d->n && !*out; i++)
    if (strcmp(d->v[i]->name, name) == 0) *out = d->v[i];
  return NULL;
}

typedef struct call {
  moec_onnx *n;
  const Onnx__FunctionProto *f;
} call;

static moec_status *bind_graph(const call *c, Onnx__GraphProto **g);

/* Replaces a reference (ref_attr_name) by the caller's attribute or the function's default; *out stays NULL where
 * there is neither, which means the operator's default. */
static moec_status *bind_attribute(const call *c, const Onnx__AttributeProto *a, Onnx__AttributeProto **out) {
  moec_arena *arena = c->n->m->arena;
  *out = NULL;
  if (a->ref_attr_name && *a->ref_attr_name) {
    const Onnx__AttributeProto *given = moec_onnx_attr(c->n, a->ref_attr_name);
    if (!given) MOEC_TRY(find_default(c->n->x, c->f, a->ref_attr_name, &given));
    if (!given) return NULL;
    if (a->has_type && a->type && a->type != given->type)
      return BAD("attribute \"%s\": expected type %d, got type %d", a->ref_attr_name, (int)a->type, (int)given->type);
    *out = moec_arena_copy(arena, given, sizeof *given);
    (*out)->name = a->name;
    return NULL;
  }
  *out = moec_arena_copy(arena, a, sizeof *a);
  return a->g ? bind_graph(c, &(*out)->g) : NULL;
}

static moec_status *bind_node(const call *c, const Onnx__NodeProto *inner, Onnx__NodeProto **out) {
  moec_arena *a = c->n->m->arena;
  Onnx__NodeProto *copy = *out = moec_arena_copy(a, inner, sizeof *inner);
  copy->attribute = MOEC_NEW_ARRAY(a, Onnx__AttributeProto *, inner->n_attribute + 1);
  copy->n_attribute = 0;
  for (size_t i = 0; i < inner->n_attribute; i++) {
    Onnx__AttributeProto *bound;
    MOEC_TRY(bind_attribute(c, inner->attribute[i], &bound));
    if (bound) copy->attribute[copy->n_attribute++] = bound;
  }
  return NULL;
}

static moec_status *bind_nodes(const call *c, size_t n, Onnx__NodeProto **nodes, Onnx__NodeProto ***out) {
  *out = MOEC_NEW_ARRAY(c->n->m->arena, Onnx__NodeProto *, n + 1);
  for (size_t i = 0; i < n; i++) MOEC_TRY(bind_node(c, nodes[i], &(*out)[i]));
  return NULL;
}

/* Depth: that of messages, which the pre-scan bounds. */
static moec_status *bind_graph(const call *c, Onnx__GraphProto **g) {
  *g = moec_arena_copy(c->n->m->arena, *g, sizeof **g);
  return bind_nodes(c, (*g)->n_node, (*g)->node, &(*g)->node);
}

/* ---- calls -------------------------------------------------------------------------------- */

/* The function's inputs mean what the call's operands mean. */
static moec_status *bind_inputs(const call *c, moec_scope *inner) {
  moec_onnx *n = c->n;
  for (size_t i = 0; i < c->f->n_input; i++) {
    moec_entry *e = moec_scope_add(inner, n->m->arena, c->f->input[i]);
    if (!e) return BAD("the name \"%s\" is defined twice", c->f->input[i]);
    const moec_entry *given = moec_onnx_entry(n, (uint32_t)i);
    if (!given) {
      e->absent = true;
      continue;
    }
    if (given->tensor && !given->v.i) { /* once for all readers */
      moec_onnx_in(n, (uint32_t)i);
      MOEC_TRY(moec_builder_end(n->b));
    }
    const char *name = e->name;
    *e = *moec_onnx_entry(n, (uint32_t)i);
    e->name = name;
  }
  return NULL;
}

static moec_status *take_results(const call *c, moec_scope *inner) {
  for (uint32_t i = 0; i < c->n->p->n_output; i++) {
    const moec_entry *e = moec_scope_find(inner, c->f->output[i]);
    if (!e) return BAD("result \"%s\": nobody defines it", c->f->output[i]);
    moec_entry *o = moec_out_entry(c->n, i);
    if (!o) continue;
    const char *name = o->name;
    *o = *e;
    o->name = name;
  }
  return NULL;
}

/* The call gives no attribute that the function does not declare. */
static moec_status *check_attributes(const call *c) {
  const Onnx__NodeProto *p = c->n->p;
  for (size_t i = 0; i < p->n_attribute; i++) {
    const Onnx__AttributeProto *known;
    const char *name = p->attribute[i]->name;
    MOEC_TRY(find_default(c->n->x, c->f, name, &known));
    bool declared = known != NULL;
    for (size_t k = 0; k < c->f->n_attribute && !declared; k++)
      declared = strcmp(c->f->attribute[k], name) == 0;
    if (!declared) return BAD("expected attributes that it declares, got \"%s\"", name);
  }
  return NULL;
}

static moec_status *run_call(const call *c, moec_scope *inner) {
  moec_import *x = c->n->x;
  Onnx__NodeProto **nodes;
  MOEC_TRY(check_attributes(c));
  MOEC_TRY(bind_inputs(c, inner));
  MOEC_TRY(bind_nodes(c, c->f->n_node, c->f->node, &nodes));
  moec_scope *scope = x->scope;
  Onnx__OperatorSetIdProto **opsets = x->opsets;
  size_t n_opsets = x->n_opsets;
  x->scope = inner;
  if (c->f->n_opset_import) x->opsets = c->f->opset_import, x->n_opsets = c->f->n_opset_import;
  x->depth++;
  moec_status *s = moec_import_nodes(x, c->f->n_node, nodes);
  x->depth--;
  x->scope = scope, x->opsets = opsets, x->n_opsets = n_opsets;
  MOEC_TRY(s);
  return take_results(c, inner);
}

moec_status *moec_inline_function(moec_onnx *n, const Onnx__FunctionProto *f) {
  call c = {n, f};
  moec_scope inner;
  if (n->x->depth == MAX_CALL_DEPTH)
    return moec_onnx_bad(n, "local functions call each other deeper than %d, or themselves", MAX_CALL_DEPTH);
  if (n->p->n_input > f->n_input || n->p->n_output > f->n_output)
    return moec_onnx_bad(n, "expected at most %zu operands and %zu results", f->n_input, f->n_output);
  moec_scope_init(&inner, n->m->arena);
  return moec_context(run_call(&c, &inner), "in function \"%s\"", f->name);
}
