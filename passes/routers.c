/* Which products pick experts.
 *
 *     x ──► dot ──► softmax, bias, masks of groups ... ──► moe.select        the dot; a top-k that is none counts, too
 *
 * Other stages of experts and attention on the way are no arithmetic of scores: there it ends. */
#include "passes/precision.h"

static bool ends_scores(moec_op op) {
  moec_op_class c = moec_op_cls(op);
  return op == MOEC_OP_ATTENTION || c == MOEC_CLASS_MOE || c == MOEC_CLASS_CONTROL;
}

void moec_find_routers(const moec_graph *g, uint32_t n_nodes, bool *routes) {
  bool *scores = MOEC_NEW_ARRAY(g->m->arena, bool, g->n_values);
  for (uint32_t n = n_nodes; n-- > 1;) { /* array order is topological */
    const moec_node_info *p = &g->nodes[n];
    bool picks = p->op == MOEC_OP_MOE_SELECT || p->op == MOEC_OP_TOPK, read = false;
    for (uint32_t i = 0; i < p->n_out; i++) read = read || scores[g->edges[p->out + i].i];
    routes[n] = read && p->op == MOEC_OP_DOT;
    if (!picks && (!read || routes[n] || ends_scores(p->op))) continue;
    for (uint32_t i = 0; i < (picks && !read ? 1 : p->n_in); i++) {
      moec_value v = g->edges[p->in + i];
      if (v.i && moec_dtype_is_float(moec_ty(g, v).dtype)) scores[v.i] = true;
    }
  }
}
