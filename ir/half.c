#include "ir/half.h"

static bool has_op(const moec_graph *g, moec_op op) {
  for (size_t n = 1; n < g->n_nodes; n++)
    if (g->nodes[n].op == op) return true;
  return false;
}

static bool has_attention(const moec_graph *g) {
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    if (g->nodes[n].op != MOEC_OP_FUSED) continue;
    if (has_op(moec_fn_get(g->m, MOEC_ATTRS(g, (moec_node){n}, FUSED)->fn), MOEC_OP_ATTENTION)) return true;
  }
  return has_op(g, MOEC_OP_ATTENTION);
}

/* Array order is topological after compaction. */
static bool mixes_tokens(const moec_graph *g, const bool *computed) {
  if (has_op(g, MOEC_OP_CONV) || has_op(g, MOEC_OP_CUMSUM)) return true;
  bool *is_computed = MOEC_NEW_ARRAY(g->m->arena, bool, g->n_values);
  for (size_t i = 0; i < g->n_inputs; i++) is_computed[g->inputs[i].i] = computed[i];
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    const moec_node_info *p = &g->nodes[n];
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->n_in; i++) count += is_computed[g->edges[p->in + i].i];
    if (p->op == MOEC_OP_DOT && count == 2) return true;
    for (uint32_t i = 0; i < p->n_out; i++) is_computed[g->edges[p->out + i].i] = count || p->op == MOEC_OP_RANDOM;
  }
  return false;
}

moec_half moec_half_of(const moec_graph *g, const bool *computed) {
  if (has_attention(g)) return MOEC_HALF_ATTENTION;
  if (has_op(g, MOEC_OP_MOE_COMBINE)) return MOEC_HALF_MOE;
  return mixes_tokens(g, computed) ? MOEC_HALF_MIXER : MOEC_HALF_MLP;
}

const char *moec_half_text(moec_half half) {
  static const char *const text[] = {"attention", "mixer", "moe", "mlp"};
  return text[half];
}
