/* What gets into a recurrence over tokens.
 *
 *     x ──► dot ──► conv, norm ... ──┐
 *     x ──► dot ──► decay ► cumsum ──┴─► dot of activations ──► ...      all of this, and what x is made of
 *
 * Linear attention sums products of keys and values over all tokens so far, and norms what comes out, be it a small
 * difference of large sums: it takes what its operands are off by several times over, and hands it on to the next. */
#include "passes/precision.h"

/* By value: reaches the results as a float, not as an index or the condition of a choice. */
static bool *find_carried(const moec_graph *g, uint32_t n_nodes) {
  bool *carried = MOEC_NEW_ARRAY(g->m->arena, bool, g->n_values);
  for (size_t i = 0; i < g->n_outputs; i++) carried[g->outputs[i].i] = true;
  for (uint32_t n = n_nodes; n-- > 1;) { /* array order is topological */
    const moec_node_info *p = &g->nodes[n];
    bool read = false;
    for (uint32_t i = 0; i < p->n_out; i++) read = read || carried[g->edges[p->out + i].i];
    for (uint32_t i = 0; read && i < p->n_in; i++) {
      moec_value v = g->edges[p->in + i];
      if (v.i && moec_dtype_is_float(moec_ty(g, v).dtype)) carried[v.i] = true;
    }
  }
  carried[0] = false;
  return carried;
}

static bool any_of(const moec_graph *g, uint32_t from, uint32_t n, const bool *is) {
  for (uint32_t i = 0; i < n; i++)
    if (is[g->edges[from + i].i]) return true;
  return false;
}

/* By value: comes from a sum over all that was before, of a decay, or from a loop. */
static bool *find_late(const moec_graph *g, uint32_t n_nodes, const bool *carried) {
  bool *late = MOEC_NEW_ARRAY(g->m->arena, bool, g->n_values);
  for (uint32_t n = 1; n < n_nodes; n++) {
    const moec_node_info *p = &g->nodes[n];
    bool sums = (p->op == MOEC_OP_CUMSUM || p->op == MOEC_OP_LOOP) && any_of(g, p->out, p->n_out, carried);
    bool is = sums || any_of(g, p->in, p->n_in, late);
    for (uint32_t i = 0; i < p->n_out; i++) late[g->edges[p->out + i].i] = is;
  }
  return late;
}

void moec_find_recurrent(const moec_graph *g, uint32_t n_nodes, const bool *of_param, bool *recurrent) {
  bool *carried = find_carried(g, n_nodes), *late = find_late(g, n_nodes, carried);
  bool *into = MOEC_NEW_ARRAY(g->m->arena, bool, g->n_values);
  for (uint32_t n = n_nodes; n-- > 1;) {
    const moec_node_info *p = &g->nodes[n];
    bool product = p->op == MOEC_OP_DOT && any_of(g, p->out, p->n_out, carried) &&
                   any_of(g, p->in, p->n_in, late) && !any_of(g, p->in, p->n_in, of_param);
    recurrent[n] = product || p->op == MOEC_OP_LOOP || any_of(g, p->out, p->n_out, into);
    for (uint32_t i = 0; recurrent[n] && i < p->n_in; i++) into[g->edges[p->in + i].i] = true;
    into[0] = false;
  }
}
