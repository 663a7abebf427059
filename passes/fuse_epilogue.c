/* Adds that a library call does on its way out.
 *
 *     residual ─────────────► add          dot (or moe.combine), read by nothing else, perhaps through reshapes,
 *     dot ──► (reshape) ──────┘            and a value that lies in memory anyway
 *
 * The library accumulates into a copy of the other operand, or in place. Against the add as part of the kernel that
 * reads the sum (a norm, say) this is never more kernels, and saves one write and one read of the dot's result. An
 * operand that only this add reads and that a kernel must compute (mul(gate, x)) is no residual: that kernel adds. */
#include "passes/fuse.h"

static bool accumulates(moec_op op) { return op == MOEC_OP_DOT || op == MOEC_OP_MOE_COMBINE; }

/* A library result without another reader, behind reshapes without other readers. */
static bool is_sole_result(const moec_graph *g, moec_value v) {
  while (moec_def_op(g, v) == MOEC_OP_RESHAPE) {
    if (moec_use_count(g, v) != 1) return false;
    v = moec_in(g, moec_def(g, v), 0);
  }
  return accumulates(moec_def_op(g, v)) && moec_use_count(g, v) == 1;
}

/* In memory whatever happens to this add. */
static bool lies_in_memory(const moec_fuse_plan *p, moec_value v) {
  const moec_graph *g = p->g;
  v = moec_fuse_source(g, v);
  moec_node n = moec_def(g, v);
  if (!n.i || moec_fuse_is_library(moec_op_of(g, n)) || p->must[v.i] || p->epilogue[n.i]) return true;
  if (moec_op_of(g, n) == MOEC_OP_PARAM) return false; /* a bias is not to be copied first */
  return moec_fuse_is_fusable(g, n) && moec_op_of(g, n) != MOEC_OP_BROADCAST && moec_op_of(g, n) != MOEC_OP_CONST &&
         moec_use_count(g, v) > 1;
}

bool moec_fuse_is_epilogue(const moec_graph *g, moec_node n) {
  if (moec_op_of(g, n) != MOEC_OP_ADD || !moec_dtype_is_float(moec_ty(g, moec_out(g, n, 0)).dtype)) return false;
  return accumulates(moec_def_op(g, moec_fuse_source(g, moec_in(g, n, 0)))) ||
         accumulates(moec_def_op(g, moec_fuse_source(g, moec_in(g, n, 1))));
}

/* Needs use lists. In topological order, so that a sum onto an epilogue's result is seen as lying in memory. */
void moec_fuse_epilogues(moec_fuse_plan *p) {
  const moec_graph *g = p->g;
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    moec_node id = {n};
    if (!moec_fuse_is_epilogue(g, id)) continue;
    moec_value x = moec_in(g, id, 0), y = moec_in(g, id, 1);
    p->epilogue[n] = (is_sole_result(g, x) && lies_in_memory(p, y)) || (is_sole_result(g, y) && lies_in_memory(p, x));
  }
}
