/* After fuse, a function is a list of calls: this says so, or names the node that is none. */
#include "passes/fuse.h"

static bool is_top_level(const moec_graph *g, moec_node n) {
  moec_op op = moec_op_of(g, n);
  if (op == MOEC_OP_PARAM || op == MOEC_OP_RESHAPE || moec_fuse_is_library(op)) return true;
  if (op == MOEC_OP_CONST) return !moec_fuse_is_fusable(g, n); /* a table */
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

/* A kernel holds what docs/ir.md lets it hold. */
static moec_status *check_kernel(const moec_graph *g) {
  uint32_t attentions = 0, reductions = 0, sums = 0, results = 0;
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    moec_op op = g->nodes[n].op;
    attentions += moec_fuse_is_attention(op);
    reductions += moec_op_cls(op) == MOEC_CLASS_REDUCE;
    sums += op == MOEC_OP_BLOCK_SUM;
    bool allowed = moec_fuse_is_attention(op) || op == MOEC_OP_BLOCK_SUM ||
                   (op != MOEC_OP_PARAM && moec_op_cls(op) != MOEC_CLASS_COMPOSITE && !moec_fuse_is_library(op));
    if (!allowed)
      return MOEC_BUG("fuse: kernel @\"%s\" holds %s", moec_sym_str(g->m, g->name), moec_op_get(op)->text);
  }
  for (size_t i = 0; i < g->n_outputs; i++) results += moec_def_op(g, g->outputs[i]) == MOEC_OP_BLOCK_SUM;
  if (sums != results) return MOEC_BUG("fuse: kernel @\"%s\" reads a block_sum", moec_sym_str(g->m, g->name));
  if (attentions > 1 || (attentions && reductions))
    return MOEC_BUG("fuse: kernel @\"%s\": expected one attention alone", moec_sym_str(g->m, g->name));
  return NULL;
}

moec_status *moec_fuse_check(const moec_module *m) {
  bool *kernel = MOEC_NEW_ARRAY(m->arena, bool, m->n_fns);
  for (size_t f = 1; f < m->n_fns; f++)
    for (uint32_t n = 1; n < m->fns[f]->n_nodes; n++) {
      if (m->fns[f]->nodes[n].op != MOEC_OP_FUSED) continue;
      kernel[MOEC_ATTRS(m->fns[f], ((moec_node){n}), FUSED)->fn.i] = true;
    }
  for (size_t f = 1; f < m->n_fns; f++) MOEC_TRY(kernel[f] ? check_kernel(m->fns[f]) : check_top(m->fns[f]));
  return NULL;
}
