/* Weights of expert rows go into kernels.
 *
 *     gate_up ──► [act] ──► moe.weight ──► moe.grouped_outer    =>    gate_up, w ──► [act * w] ──► moe.grouped_outer
 *
 * By itself, moe.weight reads and writes all rows once more. Where a kernel makes its rows or reads its result, it is a
 * product with one number a row there: its body. Two are left alone, since another step weights on its way: of what
 * moe.dispatch makes, and for moe.combine. */
#include "ir/builder.h"
#include "passes/fuse.h"

static bool joins_another_step(const moec_graph *g, moec_node n) {
  moec_value y = moec_out(g, n, 0);
  if (moec_def_op(g, moec_fuse_source(g, moec_in(g, n, 0))) == MOEC_OP_MOE_DISPATCH) return true;
  for (uint32_t u = g->use_start[y.i]; u < g->use_start[y.i + 1]; u++)
    if (moec_op_of(g, g->use_nodes[u]) == MOEC_OP_MOE_COMBINE) return true;
  return false;
}

static bool has_kernel_beside(const moec_graph *g, moec_node n) {
  moec_value y = moec_out(g, n, 0);
  if (moec_fuse_is_fusable(g, moec_def(g, moec_fuse_source(g, moec_in(g, n, 0))))) return true;
  for (uint32_t u = g->use_start[y.i]; u < g->use_start[y.i + 1]; u++)
    if (moec_fuse_is_fusable(g, g->use_nodes[u])) return true;
  return false;
}

typedef struct choice {
  bool *inlined; /* by node */
  size_t n;
} choice;

static bool is_kept(void *user, const moec_graph *g, moec_node n) {
  const choice *c = user;
  (void)g;
  return n.i >= c->n || !c->inlined[n.i];
}

moec_status *moec_fuse_weights(moec_graph *g) {
  choice c = {MOEC_NEW_ARRAY(g->m->arena, bool, g->n_nodes), g->n_nodes};
  bool any = false;
  moec_build_uses(g);
  for (uint32_t n = 1; n < c.n; n++) {
    moec_node id = {n};
    if (moec_op_of(g, id) != MOEC_OP_MOE_WEIGHT || joins_another_step(g, id)) continue;
    c.inlined[n] = has_kernel_beside(g, id);
    any = any || c.inlined[n];
  }
  return any ? moec_inline_composites_of(g, is_kept, &c) : NULL;
}
