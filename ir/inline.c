/* Composites that nobody claims become their bodies. */
#include "ir/builder.h"

typedef struct inliner {
  moec_graph *g;
  moec_value *map; /* by value of the old graph and of bodies: what it became; {0}: itself */
  size_t n_map, cap_map;
} inliner;

static bool has_body(moec_op op) {
  moec_op_class c = moec_op_cls(op);
  return op && (c == MOEC_CLASS_COMPOSITE || c == MOEC_CLASS_MOE);
}

/* A body can end in one of its operands, which may be mapped itself. */
static moec_value resolve(const inliner *k, moec_value v) {
  while (v.i < k->n_map && k->map[v.i].i) v = k->map[v.i];
  return v;
}

static void map_value(inliner *k, moec_value from, moec_value to) {
  moec_arena *a = k->g->m->arena;
  while (k->n_map <= from.i) MOEC_PUSH(a, k->map, k->n_map, k->cap_map, (moec_value){0});
  k->map[from.i] = to;
  if (!moec_value_get(k->g, to)->name.i)
    moec_value_get(k->g, to)->name = moec_value_get(k->g, from)->name;
}

static moec_status *inline_node(inliner *k, moec_node n) {
  moec_graph *g = k->g;
  moec_node_info p = *moec_node_get(g, n);
  moec_value *in = MOEC_NEW_ARRAY(g->m->arena, moec_value, p.n_in + 1);
  moec_value *out = MOEC_NEW_ARRAY(g->m->arena, moec_value, p.n_out + 1);
  for (uint32_t i = 0; i < p.n_in; i++) in[i] = moec_in(g, n, i);
  moec_builder b = moec_builder_on(g);
  g->loc = p.loc;
  MOEC_TRY(moec_context(moec_body_build(&b, p.op, p.attrs, p.n_in, in, p.n_out, out), "\"%s\"",
                        moec_sym_str(g->m, p.loc)));
  for (uint32_t i = 0; i < p.n_out; i++) map_value(k, moec_out(g, n, i), out[i]);
  moec_remove_node(g, n);
  return NULL;
}

static void rewrite_uses(const inliner *k) {
  moec_graph *g = k->g;
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    moec_node node = {n};
    uint32_t n_in = moec_op_of(g, node) ? moec_node_get(g, node)->n_in : 0;
    for (uint32_t i = 0; i < n_in; i++) {
      moec_value v = moec_in(g, node, i), to = resolve(k, v);
      if (to.i != v.i) moec_set_input(g, node, i, to);
    }
  }
  for (size_t i = 0; i < g->n_outputs; i++) g->outputs[i] = resolve(k, g->outputs[i]);
}

moec_status *moec_inline_composites_of(moec_graph *g, moec_keep_fn keep, void *user) {
  inliner k = {.g = g};
  moec_sym loc = g->loc;
  moec_status *e = NULL;
  /* Bodies are appended, so this loop meets the composites in them too. */
  for (uint32_t n = 1; !e && n < g->n_nodes; n++) {
    moec_node node = {n};
    if (!has_body(moec_op_of(g, node)) || (keep && keep(user, g, node))) continue;
    e = inline_node(&k, node);
  }
  g->loc = loc;
  rewrite_uses(&k);
  moec_compact(g);
  return e;
}

moec_status *moec_inline_composites(moec_module *m, moec_keep_fn keep, void *user) {
  for (size_t i = 1; i < m->n_fns; i++) MOEC_TRY(moec_inline_composites_of(m->fns[i], keep, user));
  return NULL;
}
