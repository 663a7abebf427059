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
      if (!e) return BAD("node %zu \"%s\" (%s): the name \"%s\" is defined twice", i, nodes[i]->name, nodes[i]->op_type, name);
      e->initializer = i + 1;
    }
  return NULL;
}

/* Index of the node that makes operand |k| of node |i|, or SIZE_MAX when it is known already. */
static moec_status *producer(const moec_import *x, const producers *p, size_t i, const Onnx__NodeProto *node, size_t k, size_t *out) {
  const char *name = node->input[k];
  *out = SIZE_MAX;
  if (!*name || moec_scope_find(x->scope, name)) return NULL;
  const moec_entry *e = moec_scope_find(&p->names, name);
  if (!e) return BAD("node %zu \"%s\" (%s): operand %zu: nobody defines \"%s\"", i, node->name, node->op_type, k, name);
  *out = e->initializer - 1;
  return NULL;
}

typedef struct frame {
  size_t node, next;
} frame;

/* Depth-first, operands first; a node met while it is open lies on a cycle. */
static moec_status *visit(moec_import *x, const producers *p, Onnx__NodeProto **nodes, size_t root, uint8_t *state, size_t *order,
                          size_t *n_order) {
  enum { NEW, OPEN, DONE };
  moec_arena *a = x->m->arena;
  frame *stack = NULL;
  size_t depth = 0, cap = 0;
  if (state[root] != NEW) return NULL;
  state[root] = OPEN;
  MOEC_PUSH(a, stack, depth, cap, ((frame){root, 0}));
  while (depth) {
    frame *f = &stack[depth - 1];
    const Onnx__NodeProto *node = nodes[f->node];
    if (f->next == node->n_input) {
      state[f->node] = DONE;
      order[(*n_order)++] = f->node;
      depth--;
      continue;
    }
    size_t d, i = f->node;
    MOEC_TRY(producer(x, p, i, node, f->next++, &d));
    if (d == SIZE_MAX || state[d] == DONE) continue;
    if (state[d] == OPEN) return BAD("node %zu \"%s\" (%s) depends on itself", i, node->name, node->op_type);
    state[d] = OPEN;
    MOEC_PUSH(a, stack, depth, cap, ((frame){d, 0}));
  }
  return NULL;
}

moec_status *moec_order_nodes(moec_import *x, size_t n, Onnx__NodeProto **nodes, size_t **out_order) {
  producers p;
  uint8_t *state = MOEC_NEW_ARRAY(x->m->arena, uint8_t, n + 1);
  size_t *order = MOEC_NEW_ARRAY(x->m->arena, size_t, n + 1), n_order = 0;
  MOEC_TRY(collect(x, n, nodes, &p));
  for (size_t i = 0; i < n; i++) MOEC_TRY(visit(x, &p, nodes, i, state, order, &n_order));
  *out_order = order;
  return NULL;
}
