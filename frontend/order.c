/* Topological order of nodes by name: files in any order are accepted, cycles are not. */
#include <string.h>

#include "frontend/import_internal.h"

#define BAD(...) moec_error(MOEC_INVALID_MODEL, __VA_ARGS__)

typedef struct producers {
  moec_scope names; /* entry.initializer: index of the producing node + 1 */
} producers;

static moec_status *collect(moec_import *x, size_t n, Onnx__NodeProto **nodes, producers *p) {
  moec_scope_init(&p->names, x->m->arena);
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < nodes[i]->n_output; k++) {
      const char *name = nodes[i]->output[k];
      if (!*name) continue;
      moec_entry *e = moec_scope_find(x->scope, name) ? NULL : moec_scope_add(&p->names, x->m->arena, name);
      if (!e)
        return BAD("node %zu \"%s\" (%s): the name \"%s\" is defined twice", i, nodes[i]->name, nodes[i]->op_type,
                   name);
      e->initializer = i + 1;
    }
  return NULL;
}

/* ---- what a node reads -------------------------------------------------------------------- */

moec_status *moec_inner_names(const Onnx__NodeProto *p, moec_name_fn fn, void *user) {
  for (size_t i = 0; i < p->n_attribute; i++) {
    const Onnx__GraphProto *g = p->attribute[i]->g;
    for (size_t k = 0; g && k < g->n_output; k++) MOEC_TRY(fn(user, g->output[k]->name));
    for (size_t k = 0; g && k < g->n_node; k++) {
      for (size_t j = 0; j < g->node[k]->n_input; j++) MOEC_TRY(fn(user, g->node[k]->input[j]));
      MOEC_TRY(moec_inner_names(g->node[k], fn, user)); /* as deep as messages, which the pre-scan bounds */
    }
  }
  return NULL;
}

/* Nodes that node |i| needs: those that make its operands, and names that graphs inside it read. */
typedef struct needs {
  const moec_import *x;
  const producers *p;
  size_t *v, n, cap;
} needs;

static moec_status *need_inner(void *user, const char *name) {
  needs *d = user;
  const moec_entry *e = moec_scope_find(&d->p->names, name); /* none: the inner graph defines it, or nobody */
  if (e) MOEC_PUSH(d->x->m->arena, d->v, d->n, d->cap, e->initializer - 1);
  return NULL;
}

static moec_status *needs_of(const moec_import *x, const producers *p, Onnx__NodeProto **nodes, size_t i, needs *out) {
  const Onnx__NodeProto *node = nodes[i];
  *out = (needs){x, p, NULL, 0, 0};
  for (size_t k = 0; k < node->n_input; k++) {
    const char *name = node->input[k];
    if (!*name || moec_scope_find(x->scope, name)) continue;
    if (!moec_scope_find(&p->names, name))
      return BAD("node %zu \"%s\" (%s): operand %zu: nobody defines \"%s\"", i, node->name, node->op_type, k, name);
    MOEC_TRY(need_inner(out, name));
  }
  return moec_inner_names(node, need_inner, out);
}

/* ---- order -------------------------------------------------------------------------------- */

typedef struct frame {
  size_t node, next;
  needs needs;
} frame;

typedef struct ordering {
  moec_import *x;
  producers p;
  Onnx__NodeProto **nodes;
  uint8_t *state;
  frame *stack;
  size_t depth, cap;
  size_t *order, n_order;
} ordering;

enum { NEW, OPEN, DONE };

static moec_status *open_node(ordering *o, size_t node) {
  frame f = {.node = node};
  o->state[node] = OPEN;
  MOEC_TRY(needs_of(o->x, &o->p, o->nodes, node, &f.needs));
  MOEC_PUSH(o->x->m->arena, o->stack, o->depth, o->cap, f);
  return NULL;
}

/* Depth-first, operands first; a node met while it is open lies on a cycle. */
static moec_status *visit(ordering *o, size_t root) {
  if (o->state[root] == NEW) MOEC_TRY(open_node(o, root));
  while (o->depth) {
    frame *f = &o->stack[o->depth - 1];
    if (f->next == f->needs.n) {
      o->state[f->node] = DONE;
      o->order[o->n_order++] = f->node;
      o->depth--;
      continue;
    }
    size_t d = f->needs.v[f->next++];
    const Onnx__NodeProto *node = o->nodes[f->node];
    if (o->state[d] == OPEN) return BAD("node %zu \"%s\" (%s) depends on itself", f->node, node->name, node->op_type);
    if (o->state[d] == NEW) MOEC_TRY(open_node(o, d));
  }
  return NULL;
}

moec_status *moec_order_nodes(moec_import *x, size_t n, Onnx__NodeProto **nodes, size_t **out_order) {
  ordering o = {.x = x, .nodes = nodes, .state = MOEC_NEW_ARRAY(x->m->arena, uint8_t, n + 1)};
  *out_order = o.order = MOEC_NEW_ARRAY(x->m->arena, size_t, n + 1);
  MOEC_TRY(collect(x, n, nodes, &o.p));
  for (size_t i = 0; i < n; i++) MOEC_TRY(visit(&o, i));
  return NULL;
}
