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

/* The leaves of a sum of sums that nobody else reads. */
enum { MAX_LEAVES = 16 };
typedef struct leaves {
  moec_value v[MAX_LEAVES];
  uint32_t n, n_others; /* library results nobody else reads, but for |n_others| */
  moec_value other;     /* one of the others: it lies in memory */
  bool fits;
} leaves;

static bool is_inner_sum(const moec_graph *g, moec_value v) {
  return moec_def_op(g, v) == MOEC_OP_ADD && moec_use_count(g, v) == 1;
}

static void find_leaves(const moec_graph *g, moec_value v, leaves *l) {
  if (is_inner_sum(g, v)) {
    for (uint32_t i = 0; i < 2; i++) find_leaves(g, moec_in(g, moec_def(g, v), i), l);
  } else if (l->n == MAX_LEAVES) {
    l->fits = false;
  } else if (is_sole_result(g, v)) {
    l->v[l->n++] = v;
  } else {
    l->n_others++;
    l->other = v;
    l->fits = l->fits && l->n_others == 1 && lies_in_memory(g, NULL, v);
  }
}

/* Each addition has a library result to one side, and to the other a value in memory or such a sum. */
static bool is_chain(const moec_graph *g, moec_node n) {
  for (;;) {
    moec_value x = moec_in(g, n, 0), y = moec_in(g, n, 1);
    if (!is_sole_result(g, x) && !is_sole_result(g, y)) return false;
    moec_value rest = is_sole_result(g, y) ? x : y;
    if (!is_inner_sum(g, rest)) return true;
    n = moec_def(g, rest);
  }
}

/* residual + (a + b), where a and b are library results nobody else reads (a routed expert's and a shared expert's; the
 * gradients by way of queries, keys and values): (residual + a) + b, so that each library call adds to what is there.
 * Sums of floats in another order: a few roundings apart. */
static moec_status *reorder(moec_graph *g, moec_node n) {
  leaves l = {.fits = true};
  for (uint32_t i = 0; i < 2; i++) find_leaves(g, moec_in(g, n, i), &l);
  if (!l.fits || l.n + l.n_others < 3 || is_chain(g, n)) return NULL;
  uint32_t k = 0;
  moec_value sum = l.n_others ? l.other : l.v[k++];
  g->loc = moec_node_get(g, n)->loc;
  for (; k + 1 < l.n; k++) {
    moec_value in[2] = {sum, l.v[k]};
    moec_node inner;
    MOEC_TRY(moec_add_node(g, MOEC_OP_ADD, NULL, 2, in, 1, &inner));
    sum = moec_out(g, inner, 0);
  }
  moec_set_input(g, n, 0, sum);
  moec_set_input(g, n, 1, l.v[k]);
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
