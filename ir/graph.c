/* Graphs: values, nodes, the five edits, use lists, compaction. */
#include <string.h>

#include "ir/ir_internal.h"

static void drop_uses(moec_graph *g) {
  g->use_start = NULL; /* the arena keeps the bytes; only the claim that they are true ends */
  g->use_nodes = NULL;
}

moec_value moec_new_value(moec_graph *g, moec_type t, moec_node def, uint32_t slot) {
  moec_value v = {(uint32_t)g->n_values};
  MOEC_PUSH(g->m->arena, g->values, g->n_values, g->cap_values,
            ((moec_value_info){.type = t, .def = def, .slot = slot}));
  return v;
}

moec_value moec_add_input(moec_graph *g, const char *name, moec_type t) {
  moec_value v = moec_new_value(g, t, (moec_node){0}, (uint32_t)g->n_inputs);
  moec_value_get(g, v)->name = moec_sym_make(g->m, name);
  MOEC_PUSH(g->m->arena, g->inputs, g->n_inputs, g->cap_inputs, v);
  return v;
}

void moec_add_output(moec_graph *g, const char *name, moec_value v) {
  size_t n = g->n_outputs;
  MOEC_PUSH(g->m->arena, g->output_names, n, g->cap_output_names, moec_sym_make(g->m, name));
  MOEC_PUSH(g->m->arena, g->outputs, g->n_outputs, g->cap_outputs, v);
  drop_uses(g);
}

moec_op moec_def_op(const moec_graph *g, moec_value v) { return g->nodes[g->values[v.i].def.i].op; }

bool moec_is_zeros(const moec_graph *g, moec_value v) {
  if (moec_def_op(g, v) != MOEC_OP_BROADCAST) return false;
  moec_value x = moec_in(g, moec_def(g, v), 0);
  if (moec_def_op(g, x) != MOEC_OP_CONST) return false;
  const moec_const *c = MOEC_ATTRS(g, moec_def(g, x), CONST)->data;
  for (size_t i = 0; i < c->size; i++)
    if (((const char *)c->bytes)[i]) return false;
  return true;
}

moec_type_info moec_ty(const moec_graph *g, moec_value v) { return moec_type_get(g->m, g->values[v.i].type); }

static moec_status *check_arity(const moec_graph *g, const moec_op_info *info, uint32_t n_in, uint32_t n_out) {
  const char *loc = moec_sym_str(g->m, g->loc);
  if (n_in < info->min_in || n_in > info->max_in)
    return moec_error(MOEC_INVALID_MODEL, "%s \"%s\": expected %u to %u operands, got %u", info->text, loc,
                      info->min_in, info->max_in, n_in);
  if (n_out < info->min_out || n_out > info->max_out)
    return moec_error(MOEC_INVALID_MODEL, "%s \"%s\": expected %u to %u results, got %u", info->text, loc,
                      info->min_out, info->max_out, n_out);
  return NULL;
}

/* Infers into |out|, naming the node in errors. */
static moec_status *infer(moec_graph *g, const moec_op_info *info, const void *attrs, uint32_t n_in,
                          const moec_value *in, uint32_t n_out, moec_type *out) {
  moec_type small[16];
  moec_type *types = n_in <= 16 ? small : MOEC_NEW_ARRAY(g->m->arena, moec_type, n_in);
  for (uint32_t i = 0; i < n_in; i++) {
    if (in[i].i >= g->n_values) return MOEC_BUG("%s: operand %u is no value of this graph", info->text, i);
    types[i] = g->values[in[i].i].type;
    if (i < info->min_in && !types[i].i)
      return moec_error(MOEC_INVALID_MODEL, "%s \"%s\": operand %u is absent", info->text, moec_sym_str(g->m, g->loc),
                        i);
  }
  return moec_context(info->infer(g->m, attrs, n_in, types, n_out, out), "%s \"%s\"", info->text,
                      moec_sym_str(g->m, g->loc));
}

moec_status *moec_add_node(moec_graph *g, moec_op op, const void *attrs, uint32_t n_in, const moec_value *in,
                           uint32_t n_out, moec_node *out_node) {
  const moec_op_info *info = moec_op_get(op);
  moec_arena *a = g->m->arena;
  *out_node = (moec_node){0};
  MOEC_TRY(check_arity(g, info, n_in, n_out));
  const void *copy = moec_attrs_copy(g->m, op, attrs);
  moec_type *types = MOEC_NEW_ARRAY(a, moec_type, n_out + 1);
  MOEC_TRY(infer(g, info, copy, n_in, in, n_out, types));
  moec_node id = {(uint32_t)g->n_nodes};
  moec_node_info node = {op, n_in, n_out, (uint32_t)g->n_edges, (uint32_t)g->n_edges + n_in, copy, g->loc};
  for (uint32_t i = 0; i < n_in; i++) MOEC_PUSH(a, g->edges, g->n_edges, g->cap_edges, in[i]);
  for (uint32_t i = 0; i < n_out; i++) {
    moec_value v = moec_new_value(g, types[i], id, i);
    MOEC_PUSH(a, g->edges, g->n_edges, g->cap_edges, v);
  }
  MOEC_PUSH(a, g->nodes, g->n_nodes, g->cap_nodes, node);
  drop_uses(g);
  *out_node = id;
  return NULL;
}

void moec_set_input(moec_graph *g, moec_node n, uint32_t i, moec_value v) {
  g->edges[moec_node_get(g, n)->in + i] = v;
  drop_uses(g);
}

void moec_replace_uses(moec_graph *g, moec_value from, moec_value to) {
  for (size_t n = 1; n < g->n_nodes; n++) {
    if (!g->nodes[n].op) continue;
    moec_value *in = g->edges + g->nodes[n].in;
    for (uint32_t i = 0; i < g->nodes[n].n_in; i++)
      if (in[i].i == from.i) in[i] = to;
  }
  for (size_t i = 0; i < g->n_outputs; i++)
    if (g->outputs[i].i == from.i) g->outputs[i] = to;
  drop_uses(g);
}

void moec_remove_node(moec_graph *g, moec_node n) {
  g->nodes[n.i].op = MOEC_OP_NONE;
  drop_uses(g);
}

void moec_set_type(moec_graph *g, moec_value v, moec_type t) { g->values[v.i].type = t; }

/* ---- uses --------------------------------------------------------------------------------- */

void moec_build_uses(moec_graph *g) {
  moec_arena *a = g->m->arena;
  uint32_t *start = MOEC_NEW_ARRAY(a, uint32_t, g->n_values + 2);
  for (size_t n = 1; n < g->n_nodes; n++)
    for (uint32_t i = 0; g->nodes[n].op && i < g->nodes[n].n_in; i++) start[g->edges[g->nodes[n].in + i].i + 1]++;
  for (size_t v = 0; v <= g->n_values; v++) start[v + 1] += start[v];
  moec_node *nodes = MOEC_NEW_ARRAY(a, moec_node, start[g->n_values] + 1);
  uint32_t *fill = moec_arena_copy(a, start, (g->n_values + 1) * sizeof *start);
  for (uint32_t n = 1; n < g->n_nodes; n++)
    for (uint32_t i = 0; g->nodes[n].op && i < g->nodes[n].n_in; i++)
      nodes[fill[g->edges[g->nodes[n].in + i].i]++] = (moec_node){n};
  g->use_start = start;
  g->use_nodes = nodes;
}

bool moec_is_output(const moec_graph *g, moec_value v) {
  for (size_t i = 0; i < g->n_outputs; i++)
    if (g->outputs[i].i == v.i) return true;
  return false;
}

uint32_t moec_use_count(const moec_graph *g, moec_value v) {
  uint32_t n = g->use_start[v.i + 1] - g->use_start[v.i];
  for (size_t i = 0; i < g->n_outputs; i++) n += g->outputs[i].i == v.i;
  return n;
}

/* ---- compaction --------------------------------------------------------------------------- */

typedef struct frame {
  uint32_t node, next; /* operand to visit next */
} frame;

typedef struct compactor {
  moec_graph *g;
  moec_graph out;
  uint32_t *new_value; /* by old value; 0: not placed */
  uint8_t *seen;       /* by old node */
  frame *stack;
  size_t n_stack, cap_stack;
} compactor;

static void place(compactor *c, uint32_t n) {
  moec_graph *g = c->g, *o = &c->out;
  moec_arena *a = g->m->arena;
  moec_node_info p = g->nodes[n];
  uint32_t in = p.in, out = p.out;
  moec_node id = {(uint32_t)o->n_nodes};
  p.in = (uint32_t)o->n_edges;
  for (uint32_t i = 0; i < p.n_in; i++)
    MOEC_PUSH(a, o->edges, o->n_edges, o->cap_edges, ((moec_value){c->new_value[g->edges[in + i].i]}));
  p.out = (uint32_t)o->n_edges;
  for (uint32_t i = 0; i < p.n_out; i++) {
    moec_value_info v = g->values[g->edges[out + i].i];
    v.def = id;
    moec_value nv = {(uint32_t)o->n_values};
    MOEC_PUSH(a, o->values, o->n_values, o->cap_values, v);
    MOEC_PUSH(a, o->edges, o->n_edges, o->cap_edges, nv);
    c->new_value[g->edges[out + i].i] = nv.i;
  }
  MOEC_PUSH(a, o->nodes, o->n_nodes, o->cap_nodes, p);
}

static void visit(compactor *c, uint32_t root) {
  moec_graph *g = c->g;
  moec_arena *a = g->m->arena;
  if (!root || c->seen[root]) return;
  c->seen[root] = 1;
  MOEC_PUSH(a, c->stack, c->n_stack, c->cap_stack, ((frame){root, 0}));
  while (c->n_stack) {
    frame *f = &c->stack[c->n_stack - 1];
    const moec_node_info *p = &g->nodes[f->node];
    if (f->next < p->n_in) {
      uint32_t d = g->values[g->edges[p->in + f->next++].i].def.i;
      if (!d || c->seen[d]) continue;
      c->seen[d] = 1;
      MOEC_PUSH(a, c->stack, c->n_stack, c->cap_stack, ((frame){d, 0}));
    } else {
      uint32_t done = f->node;
      c->n_stack--;
      place(c, done);
    }
  }
}

void moec_compact(moec_graph *g) {
  moec_arena *a = g->m->arena;
  compactor c = {.g = g, .out = *g};
  c.new_value = MOEC_NEW_ARRAY(a, uint32_t, g->n_values);
  c.seen = MOEC_NEW_ARRAY(a, uint8_t, g->n_nodes);
  moec_graph *o = &c.out;
  o->values = NULL, o->nodes = NULL, o->edges = NULL;
  o->n_values = o->cap_values = o->n_nodes = o->cap_nodes = o->n_edges = o->cap_edges = 0;
  MOEC_PUSH(a, o->values, o->n_values, o->cap_values, g->values[0]);
  MOEC_PUSH(a, o->nodes, o->n_nodes, o->cap_nodes, g->nodes[0]);
  for (size_t i = 0; i < g->n_inputs; i++) {
    c.new_value[g->inputs[i].i] = (uint32_t)o->n_values;
    MOEC_PUSH(a, o->values, o->n_values, o->cap_values, g->values[g->inputs[i].i]);
  }
  for (size_t i = 0; i < g->n_outputs; i++) visit(&c, g->values[g->outputs[i].i].def.i);
  for (size_t i = 0; i < g->n_inputs; i++) g->inputs[i].i = c.new_value[g->inputs[i].i];
  for (size_t i = 0; i < g->n_outputs; i++) g->outputs[i].i = c.new_value[g->outputs[i].i];
  *g = *o;
  drop_uses(g);
}

void moec_graph_copy(moec_graph *to, const moec_graph *from) {
  moec_arena *a = from->m->arena;
  *to = *from;
#define COPY_ARRAY(field, n, cap) \
  to->field = moec_arena_copy(a, from->field, from->n * sizeof *from->field), to->cap = from->n
  COPY_ARRAY(values, n_values, cap_values);
  COPY_ARRAY(nodes, n_nodes, cap_nodes);
  COPY_ARRAY(edges, n_edges, cap_edges);
  COPY_ARRAY(inputs, n_inputs, cap_inputs);
  COPY_ARRAY(outputs, n_outputs, cap_outputs);
  COPY_ARRAY(output_names, n_outputs, cap_output_names);
#undef COPY_ARRAY
  for (size_t i = 1; i < to->n_nodes; i++) /* passes edit attributes in place */
    if (to->nodes[i].op) to->nodes[i].attrs = moec_attrs_copy(to->m, to->nodes[i].op, to->nodes[i].attrs);
  to->entry = false;
  drop_uses(to);
}

/* ---- unused functions --------------------------------------------------------------------- */

typedef void (*fn_visitor)(void *user, moec_fn *f);

/* Calls |visit_fn| on every FN attribute of the live nodes of |g|. */
static void each_fn_attr(moec_graph *g, fn_visitor visit_fn, void *user) {
  for (size_t n = 1; n < g->n_nodes; n++) {
    const moec_op_info *info = moec_op_get(g->nodes[n].op);
    for (uint32_t i = 0; i < info->n_attrs; i++)
      if (info->attrs[i].kind == MOEC_ATTR_FN)
        visit_fn(user, (moec_fn *)(uintptr_t)((const char *)g->nodes[n].attrs + info->attrs[i].offset));
  }
}

typedef struct marker {
  uint32_t *order; /* new index by old, 0: unreached */
  uint32_t *queue;
  size_t n;
} marker;

static void mark_fn(void *user, moec_fn *f) {
  marker *k = user;
  if (k->order[f->i]) return;
  k->queue[k->n] = f->i;
  k->order[f->i] = (uint32_t)++k->n;
}

static void renumber_fn(void *user, moec_fn *f) { f->i = ((marker *)user)->order[f->i]; }

void moec_compact_all(moec_module *m) {
  for (size_t i = 1; i < m->n_fns; i++) moec_compact(m->fns[i]);
  marker k = {MOEC_NEW_ARRAY(m->arena, uint32_t, m->n_fns), MOEC_NEW_ARRAY(m->arena, uint32_t, m->n_fns), 0};
  for (uint32_t i = 1; i < m->n_fns; i++)
    if (moec_is_entry(m->fns[i])) mark_fn(&k, &(moec_fn){i});
  for (size_t i = 0; i < k.n; i++) each_fn_attr(m->fns[k.queue[i]], mark_fn, &k);
  moec_graph **fns = MOEC_NEW_ARRAY(m->arena, moec_graph *, k.n + 1);
  for (size_t i = 0; i < k.n; i++) fns[i + 1] = m->fns[k.queue[i]];
  for (size_t i = 1; i <= k.n; i++) each_fn_attr(fns[i], renumber_fn, &k);
  m->fns = fns;
  m->n_fns = m->cap_fns = k.n + 1;
}
