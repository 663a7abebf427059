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

/* In memory whatever happens to this add. |p|, where there is a plan already, knows more of them. */
static bool lies_in_memory(const moec_graph *g, const moec_fuse_plan *p, moec_value v) {
  v = moec_fuse_source(g, v);
  moec_node n = moec_def(g, v);
  if (!n.i || moec_fuse_is_library(moec_op_of(g, n)) || (p && (p->must[v.i] || p->epilogue[n.i]))) return true;
  if (moec_op_of(g, n) == MOEC_OP_PARAM) return false; /* a bias is not to be copied first */
  return moec_fuse_is_fusable(g, n) && moec_op_of(g, n) != MOEC_OP_BROADCAST && moec_op_of(g, n) != MOEC_OP_CONST &&
         moec_use_count(g, v) > 1;
}

bool moec_fuse_is_epilogue(const moec_graph *g, moec_node n) {
  if (moec_op_of(g, n) != MOEC_OP_ADD || !moec_dtype_is_float(moec_ty(g, moec_out(g, n, 0)).dtype)) return false;
  return accumulates(moec_def_op(g, moec_fuse_source(g, moec_in(g, n, 0)))) ||
         accumulates(moec_def_op(g, moec_fuse_source(g, moec_in(g, n, 1))));
}

/* residual + (a + b), where a and b are library results nobody else reads (a routed expert's and a shared expert's):
 * (residual + a) + b, so that each library call adds to what is there. Sums of floats in another order: one rounding
 * apart. */
static moec_status *reorder(moec_graph *g, moec_node n) {
  for (uint32_t k = 0; k < 2; k++) {
    moec_value sum = moec_in(g, n, k), rest = moec_in(g, n, 1 - k);
    moec_node s = moec_def(g, sum);
    if (moec_op_of(g, s) != MOEC_OP_ADD || moec_use_count(g, sum) != 1 || !lies_in_memory(g, NULL, rest)) continue;
    moec_value a = moec_in(g, s, 0), b = moec_in(g, s, 1), in[2] = {rest, a};
    if (!is_sole_result(g, a) || !is_sole_result(g, b)) continue;
    moec_node inner;
    g->loc = moec_node_get(g, s)->loc;
    MOEC_TRY(moec_add_node(g, MOEC_OP_ADD, NULL, 2, in, 1, &inner));
    moec_set_input(g, n, 0, moec_out(g, inner, 0));
    moec_set_input(g, n, 1, b);
    return NULL;
  }
  return NULL;
}

moec_status *moec_fuse_reorder(moec_graph *g) {
  size_t n_nodes = g->n_nodes;
  moec_build_uses(g);
  for (uint32_t n = 1; n < n_nodes; n++) {
    moec_node id = {n};
    if (moec_op_of(g, id) != MOEC_OP_ADD || !moec_dtype_is_float(moec_ty(g, moec_out(g, id, 0)).dtype)) continue;
    MOEC_TRY(reorder(g, id));
    if (!g->use_start) moec_build_uses(g); /* rare: once a layer */
  }
  moec_compact(g);
  return NULL;
}

/* Needs use lists. In topological order, so that a sum onto an epilogue's result is seen as lying in memory. */
void moec_fuse_epilogues(moec_fuse_plan *p) {
  const moec_graph *g = p->g;
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    moec_node id = {n};
    if (!moec_fuse_is_epilogue(g, id)) continue;
    moec_value x = moec_in(g, id, 0), y = moec_in(g, id, 1);
    p->epilogue[n] =
        (is_sole_result(g, x) && lies_in_memory(g, p, y)) || (is_sole_result(g, y) && lies_in_memory(g, p, x));
  }
}
