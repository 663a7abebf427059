/* After fuse, a function is a list of calls: this says so, or names the node that is none. */
#include "passes/fuse.h"

/* All readers of |v| take it as implied, or as what implied zeros are made of. */
static bool is_implied(const moec_graph *g, moec_value v) {
  for (uint32_t n = 1; n < g->n_nodes; n++)
    for (uint32_t i = 0; i < g->nodes[n].n_in; i++) {
      moec_node id = {n};
      if (moec_in(g, id, i).i != v.i || moec_fuse_is_implied(g, id, i)) continue;
      if (moec_op_of(g, id) != MOEC_OP_BROADCAST || !moec_is_zeros(g, moec_out(g, id, 0))) return false;
    }
  return true;
}

static bool is_top_level(const moec_graph *g, moec_node n) {
  moec_op op = moec_op_of(g, n);
  if (op == MOEC_OP_PARAM || op == MOEC_OP_RESHAPE || moec_fuse_is_library(op)) return true;
  bool small = op == MOEC_OP_CONST && moec_fuse_is_fusable(g, n);
  if (op == MOEC_OP_BROADCAST || small) return is_implied(g, moec_out(g, n, 0));
  if (op == MOEC_OP_CONST) return true; /* a table */
  return moec_fuse_is_epilogue(g, n);
}

static moec_status *check_top(const moec_graph *g) {
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    const moec_node_info *p = &g->nodes[n];
    if (is_top_level(g, (moec_node){n})) continue;
    return MOEC_BUG("fuse: @\"%s\": expected calls of kernels and of the library only, got %s \"%s\"",
                    moec_sym_str(g->m, g->name), moec_op_get(p->op)->text, moec_sym_str(g->m, p->loc));
  }
  return NULL;
}

moec_status *moec_fuse_check(const moec_module *m) {
  bool *kernel = MOEC_NEW_ARRAY(m->arena, bool, m->n_fns);
  for (size_t f = 1; f < m->n_fns; f++)
    for (uint32_t n = 1; n < m->fns[f]->n_nodes; n++) {
      if (m->fns[f]->nodes[n].op != MOEC_OP_FUSED) continue;
      kernel[MOEC_ATTRS(m->fns[f], ((moec_node){n}), FUSED)->fn.i] = true;
    }
  for (size_t f = 1; f < m->n_fns; f++)
    if (!kernel[f]) MOEC_TRY(check_top(m->fns[f])); /* what kernels hold, the verifier knows */
  return NULL;
}
