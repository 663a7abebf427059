/* Importers of If and Loop. Where the condition or the number of rounds is known, the graphs inside are imported in
 * place, once or round by round, in a scope within the scope: nothing of the control remains. Else they become
 * functions, and what they read from around them becomes operands. */
#include <string.h>

#include "frontend/import_internal.h"
#include "frontend/ops.h"

enum { MAX_NESTING = 32, MAX_UNROLLED = 20000 };
#define BAD(...) moec_error(MOEC_INVALID_MODEL, __VA_ARGS__)

static moec_status *graph_attr(moec_onnx *n, const char *name, const Onnx__GraphProto **out) {
  const Onnx__AttributeProto *a = moec_onnx_attr(n, name);
  if (!a || !a->g) return moec_onnx_bad(n, "attribute \"%s\": expected a graph", name);
  *out = a->g;
  return NULL;
}

/* Imports the nodes of |g| into the current scope, which its inputs are in. */
static moec_status *import_inside(moec_onnx *n, const Onnx__GraphProto *g) {
  moec_import *x = n->x;
  size_t unsupported = x->n_unsupported;
  moec_sym loc = n->b->g->loc;
  if (x->nesting == MAX_NESTING) return BAD("graphs nested deeper than %d", MAX_NESTING);
  x->nesting++;
  moec_status *s = moec_add_initializers(x, g);
  if (!s) s = moec_import_nodes(x, g->n_node, g->node);
  x->nesting--;
  n->b->g->loc = loc;
  if (!s && x->n_unsupported > unsupported) s = moec_error(MOEC_UNSUPPORTED, "a graph inside has unsupported nodes");
  return s;
}

/* Gives |inner| the name |name| with the meaning of |e|. */
static moec_status *define(moec_onnx *n, moec_scope *inner, const char *name, const moec_entry *e) {
  moec_entry copy = *e;
  moec_entry *to = moec_scope_find(inner, name) ? NULL : moec_scope_add(inner, n->m->arena, name);
  if (!to) return BAD("the name \"%s\" is defined twice", name);
  copy.name = to->name;
  *to = copy;
  return NULL;
}

static moec_status *find(const moec_scope *s, const char *name, moec_entry *out) {
  const moec_entry *e = moec_scope_find(s, name);
  if (!e) return BAD("output \"%s\": nobody defines it", name);
  *out = *e;
  return NULL;
}

static void give(moec_onnx *n, uint32_t i, const moec_entry *e) {
  moec_entry *to = moec_out_entry(n, i);
  if (!to) return;
  const char *name = to->name;
  *to = *e;
  to->name = name;
}

/* ---- in place ----------------------------------------------------------------------------- */

/* One pass through |g|, whose inputs mean |in|; |out|: what its outputs mean. */
static moec_status *in_place(moec_onnx *n, const Onnx__GraphProto *g, const moec_entry *in, moec_entry *out) {
  moec_scope *outer = n->x->scope, inner;
  moec_scope_init(&inner, n->m->arena);
  inner.parent = outer;
  for (size_t i = 0; i < g->n_input; i++) MOEC_TRY(define(n, &inner, g->input[i]->name, &in[i]));
  n->x->scope = &inner;
  moec_status *s = import_inside(n, g);
  n->x->scope = outer;
  MOEC_TRY(s);
  for (size_t i = 0; i < g->n_output; i++) MOEC_TRY(find(&inner, g->output[i]->name, &out[i]));
  return NULL;
}

static moec_entry constant(moec_onnx *n, moec_dtype t, int64_t v) {
  moec_dim *d = MOEC_NEW(n->m->arena, moec_dim);
  *d = moec_dim_const(n->m, v);
  return (moec_entry){.known = true, .n = 1, .content = d, .dtype = t};
}

/* Operand |i| when it is one constant. */
static bool known(moec_onnx *n, uint32_t i, int64_t *out) {
  moec_entry *e = moec_onnx_entry(n, i);
  if (e && !e->known && e->tensor) moec_b_fail(n->b, moec_initializer_content(n->x, e));
  return e && e->known && e->n == 1 && moec_dim_is_const(n->m, e->content[0], out);
}

/* ---- as functions ------------------------------------------------------------------------- */

/* What graphs inside a node read from around it. */
typedef struct captures {
  moec_onnx *n;
  moec_scope names; /* entries as the inner scope gets them; v: the operand in the outer graph */
} captures;

static moec_status *capture(void *user, const char *name) {
  captures *c = user;
  moec_import *x = c->n->x;
  moec_entry *e = *name ? moec_scope_find(x->scope, name) : NULL;
  if (!e || moec_scope_find(&c->names, name)) return NULL;
  moec_entry copy = *e;
  if (e->sequence) return moec_error(MOEC_UNSUPPORTED, "\"%s\" is a sequence", name);
  if (e->v.i || e->tensor) MOEC_TRY(moec_value_of(x, moec_arena_strdup(x->m->arena, name), name, &copy.v));
  else if (!e->known && !e->absent) return BAD("\"%s\" has no value", name);
  if (e->tensor && !e->known) MOEC_TRY(moec_initializer_content(x, e));
  copy.known = e->known, copy.rank = e->rank, copy.n = e->n, copy.content = e->content;
  if (e->known) copy.dtype = e->dtype;
  copy.tensor = NULL; /* its value is an operand */
  return define(c->n, &c->names, name, &copy);
}

/* The graph |g| as a function: |n_own| inputs of the types of |own|, then the captured values. */
static moec_status *make_fn(captures *c, const Onnx__GraphProto *g, const char *what, size_t n_own,
                            const moec_type *own, moec_fn *out) {
  moec_onnx *n = c->n;
  moec_import *x = n->x;
  moec_scope *outer = x->scope, inner;
  moec_graph *around = n->b->g;
  *out = moec_fn_add(n->m, moec_arena_printf(n->m->arena, "%s.%s", moec_sym_str(n->m, around->loc), what));
  moec_graph *f = moec_fn_get(n->m, *out);
  moec_scope_init(&inner, n->m->arena);
  for (size_t i = 0; i < n_own; i++) {
    moec_entry e = {.v = moec_add_input(f, g->input[i]->name, own[i])};
    MOEC_TRY(define(n, &inner, g->input[i]->name, &e));
  }
  for (size_t i = 0; i < c->names.n; i++) {
    moec_entry e = c->names.entries[i];
    if (e.v.i) e.v = moec_add_input(f, e.name, moec_value_get(around, e.v)->type);
    MOEC_TRY(define(n, &inner, e.name, &e));
  }
  x->scope = &inner, n->b->g = f, f->loc = around->loc;
  moec_status *s = import_inside(n, g);
  for (size_t i = 0; !s && i < g->n_output; i++) {
    moec_value v = {0};
    s = moec_value_of(x, g->output[i]->name, g->output[i]->name, &v);
    if (!s) moec_add_output(f, g->output[i]->name, v);
  }
  x->scope = outer, n->b->g = around;
  return s;
}

/* Operands of the node: |head|, then the captured values. */
static const moec_value *with_captures(const captures *c, uint32_t n_head, const moec_value *head, uint32_t *count) {
  moec_value *in = MOEC_NEW_ARRAY(c->n->m->arena, moec_value, n_head + c->names.n);
  for (*count = 0; *count < n_head; ++*count) in[*count] = head[*count];
  for (size_t i = 0; i < c->names.n; i++)
    if (c->names.entries[i].v.i) in[(*count)++] = c->names.entries[i].v;
  return in;
}

static moec_status *give_outs(moec_onnx *n, moec_value first, uint32_t count) {
  MOEC_TRY(moec_builder_end(n->b));
  for (uint32_t i = 0; i < count && i < n->p->n_output; i++)
    moec_onnx_out(n, i, moec_out(n->b->g, moec_def(n->b->g, first), i));
  return NULL;
}

/* A scalar of dtype |t| from operand |i|, or from |dflt| where it is absent. */
static moec_value scalar(moec_onnx *n, uint32_t i, moec_dtype t, int64_t dflt) {
  if (!moec_onnx_has(n, i)) return moec_b_scalar_i(n->b, t, dflt);
  moec_value v = moec_onnx_in(n, i);
  if (!n->b->error && moec_b_ty(n->b, v).dtype != t)
    moec_b_fail(n->b, BAD("operand %u: expected %s, got %s", i, moec_dtype_get(t)->text, moec_onnx_text(n, v)));
  return moec_b_reshape(n->b, v, 0, NULL);
}

/* ---- If ----------------------------------------------------------------------------------- */

IMPORTER(if) {
  const Onnx__GraphProto *branch[2];
  int64_t cond;
  MOEC_TRY(graph_attr(n, "else_branch", &branch[0]));
  MOEC_TRY(graph_attr(n, "then_branch", &branch[1]));
  for (int i = 0; i < 2; i++)
    if (branch[i]->n_input || branch[i]->n_output != n->p->n_output)
      return moec_onnx_bad(n, "expected branches without inputs and with %zu outputs", n->p->n_output);
  if (!moec_onnx_has(n, 0)) return moec_onnx_bad(n, "operand 0 is missing");
  if (known(n, 0, &cond)) {
    moec_entry *out = MOEC_NEW_ARRAY(n->m->arena, moec_entry, n->p->n_output + 1);
    MOEC_TRY(in_place(n, branch[cond != 0], NULL, out));
    for (uint32_t i = 0; i < n->p->n_output; i++) give(n, i, &out[i]);
    return NULL;
  }
  captures c = {.n = n};
  moec_attrs_IF a = {.then_fn = {0}};
  uint32_t count;
  moec_value head = scalar(n, 0, MOEC_BOOL, 0);
  MOEC_TRY(moec_builder_end(n->b));
  moec_scope_init(&c.names, n->m->arena);
  MOEC_TRY(moec_inner_names(n->p, capture, &c));
  MOEC_TRY(make_fn(&c, branch[1], "then", 0, NULL, &a.then_fn));
  MOEC_TRY(make_fn(&c, branch[0], "else", 0, NULL, &a.else_fn));
  const moec_value *in = with_captures(&c, 1, &head, &count);
  return give_outs(n, moec_b_op(n->b, MOEC_OP_IF, &a, count, in, (uint32_t)n->p->n_output), (uint32_t)n->p->n_output);
}

/* ---- Loop --------------------------------------------------------------------------------- */

typedef struct loop {
  moec_onnx *n;
  const Onnx__GraphProto *body; /* inputs: round, condition, carried; outputs: condition, carried, scanned */
  uint32_t carried, scanned;
} loop;

/* Whether the body hands its condition on as it got it, or as a constant that is true. */
static bool goes_on(const loop *l) {
  const Onnx__GraphProto *g = l->body;
  const char *name = g->output[0]->name;
  for (size_t i = g->n_node; i-- > 0;) { /* nodes are almost always in order */
    const Onnx__NodeProto *p = g->node[i];
    if (p->n_output != 1 || strcmp(p->output[0], name) != 0) continue;
    if (strcmp(p->op_type, "Identity") == 0 && p->n_input == 1) name = p->input[0];
    else if (strcmp(p->op_type, "Constant") == 0 && p->n_attribute == 1 && p->attribute[0]->t) {
      moec_tensor t;
      moec_status *s = moec_onnx_tensor(l->n->x, p->attribute[0]->t, &t, NULL);
      bool yes = !s && t.dtype == MOEC_BOOL && moec_tensor_numel(&t) == 1 && moec_load_i64(t.dtype, t.data, 0);
      moec_status_free(s);
      return yes;
    }
  }
  return strcmp(name, g->input[1]->name) == 0;
}

/* The value of an entry, whatever form its meaning has. */
static moec_status *value_of_entry(moec_onnx *n, const moec_entry *e, moec_value *out) {
  moec_scope one, *outer = n->x->scope;
  moec_scope_init(&one, n->m->arena);
  MOEC_TRY(define(n, &one, e->name, e));
  n->x->scope = &one;
  moec_status *s = moec_value_of(n->x, moec_arena_strdup(n->m->arena, e->name), e->name, out);
  n->x->scope = outer;
  return s;
}

static moec_status *unroll(loop *l, int64_t trips) {
  moec_onnx *n = l->n;
  moec_arena *a = n->m->arena;
  moec_entry *in = MOEC_NEW_ARRAY(a, moec_entry, 2 + l->carried),
             *out = MOEC_NEW_ARRAY(a, moec_entry, l->body->n_output);
  moec_value *rows = MOEC_NEW_ARRAY(a, moec_value, (size_t)trips * l->scanned + 1);
  for (uint32_t i = 0; i < l->carried; i++) in[2 + i] = *moec_onnx_entry(n, 2 + i);
  for (int64_t round = 0; round < trips; round++) {
    in[0] = constant(n, MOEC_I64, round), in[1] = constant(n, MOEC_BOOL, 1);
    MOEC_TRY(in_place(n, l->body, in, out));
    for (uint32_t i = 0; i < l->carried; i++) in[2 + i] = out[1 + i];
    for (uint32_t i = 0; i < l->scanned; i++) {
      moec_value v = {0};
      MOEC_TRY(value_of_entry(n, &out[1 + l->carried + i], &v));
      rows[i * (size_t)trips + (size_t)round] = moec_b_unsqueeze(n->b, v, 0);
    }
  }
  for (uint32_t i = 0; i < l->carried; i++) give(n, i, &in[2 + i]);
  for (uint32_t i = 0; i < l->scanned; i++)
    moec_onnx_out(n, l->carried + i, moec_b_concat(n->b, (uint32_t)trips, &rows[i * (size_t)trips], 0));
  return moec_builder_end(n->b);
}

static moec_status *as_function(loop *l) {
  moec_onnx *n = l->n;
  captures c = {.n = n};
  moec_attrs_LOOP a = {.carried = l->carried};
  uint32_t n_head = 2 + l->carried, count;
  moec_value *head = MOEC_NEW_ARRAY(n->m->arena, moec_value, n_head);
  moec_type *types = MOEC_NEW_ARRAY(n->m->arena, moec_type, n_head);
  if (!moec_onnx_has(n, 0) && !moec_onnx_has(n, 1) && goes_on(l)) return moec_onnx_bad(n, "a loop without an end");
  head[0] = scalar(n, 0, MOEC_I64, INT64_MAX), head[1] = scalar(n, 1, MOEC_BOOL, 1);
  for (uint32_t i = 2; i < n_head; i++) head[i] = moec_onnx_in(n, i);
  MOEC_TRY(moec_builder_end(n->b));
  for (uint32_t i = 0; i < n_head; i++) types[i] = moec_value_get(n->b->g, head[i])->type;
  if (l->scanned) {
    moec_dims trips = {0, NULL};
    int64_t first = 1;
    if (!goes_on(l) || (moec_onnx_has(n, 1) && !known(n, 1, &first)) || !first)
      return moec_onnx_unsupported(n, "scanned results of a loop whose number of rounds depends on data");
    MOEC_TRY(moec_onnx_content(n, 0, &trips));
    a.trips = moec_dim_max(n->m, trips.v[0], moec_dim_const(n->m, 0));
  }
  moec_scope_init(&c.names, n->m->arena);
  MOEC_TRY(moec_inner_names(n->p, capture, &c));
  MOEC_TRY(make_fn(&c, l->body, "body", n_head, types, &a.body));
  const moec_value *in = with_captures(&c, n_head, head, &count);
  uint32_t n_out = l->carried + l->scanned;
  return give_outs(n, moec_b_op(n->b, MOEC_OP_LOOP, &a, count, in, n_out), n_out);
}

IMPORTER(loop) {
  loop l = {.n = n};
  int64_t trips = 0, first = 1;
  MOEC_TRY(graph_attr(n, "body", &l.body));
  const Onnx__GraphProto *g = l.body;
  l.carried = moec_onnx_n_in(n) > 2 ? moec_onnx_n_in(n) - 2 : 0;
  if (g->n_input != 2 + (size_t)l.carried || g->n_output < 1 + (size_t)l.carried || n->p->n_output > g->n_output - 1)
    return moec_onnx_bad(n, "expected a body with %u inputs and at least %u outputs", 2 + l.carried, 1 + l.carried);
  l.scanned = (uint32_t)g->n_output - 1 - l.carried;
  for (uint32_t i = 0; i < l.carried; i++)
    if (!moec_onnx_has(n, 2 + i)) return moec_onnx_bad(n, "operand %u is missing", 2 + i);
  bool counted = known(n, 0, &trips) && (!moec_onnx_has(n, 1) || known(n, 1, &first)) && goes_on(&l);
  MOEC_TRY(moec_builder_end(n->b));
  if (counted && (trips < 0 || !first)) trips = 0;
  bool empty = trips == 0 && l.scanned; /* only a body tells the type of nothing */
  if (counted && !empty && trips <= MAX_UNROLLED / ((int64_t)g->n_node + 1)) return unroll(&l, trips);
  return as_function(&l);
}
