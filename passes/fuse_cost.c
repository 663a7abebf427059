/* Estimates in bytes: is a value that several kernels read stored, or computed again in each?
 *
 * Stored, it is written once and read by each; computed again, what it is made from is read by each. A reduction on the
 * way is a leaf: it is stored, one element for many, so that a norm is computed again from its row and one number of
 * the row, and a broadcast is not stored. Computing again must also be cheap, which depends on the target:
 *
 *   cpu     movement, casts, a few arithmetic ops; no transcendental functions
 *   cuda    a byte of memory costs as much as several ops, so what is saved in bytes may be spent in ops; a
 *           transcendental function counts as a dozen */
#include <math.h>

#include "passes/fuse.h"

double moec_fuse_numel(const moec_fuse_plan *p, moec_value v) {
  moec_type_info t = moec_ty(p->g, v);
  double n = 1;
  for (uint32_t i = 0; i < t.rank; i++) {
    int64_t d = 1;
    moec_status_free(moec_dim_eval(p->m, t.dims[i], p->symbols, &d)); /* an estimate: 1 where it can't be told */
    n *= (double)d;
  }
  return n;
}

double moec_fuse_bytes(const moec_fuse_plan *p, moec_value v) {
  return moec_fuse_numel(p, v) * (double)moec_dtype_get(moec_ty(p->g, v).dtype)->bytes;
}

bool moec_fuse_is_heavy(moec_op op) {
  switch (op) {
    case MOEC_OP_EXP: case MOEC_OP_EXPM1: case MOEC_OP_LOG: case MOEC_OP_LOG1P: case MOEC_OP_SIN: case MOEC_OP_COS:
    case MOEC_OP_TAN: case MOEC_OP_ASIN: case MOEC_OP_ACOS: case MOEC_OP_ATAN: case MOEC_OP_SINH: case MOEC_OP_COSH:
    case MOEC_OP_ASINH: case MOEC_OP_ACOSH: case MOEC_OP_ATANH: case MOEC_OP_TANH: case MOEC_OP_SIGMOID:
    case MOEC_OP_ERF: case MOEC_OP_POW: return true;
    default: return false;
  }
}

/* Ops that computing an element again may take: |ops|, and |ops_a_byte| for each byte that it saves. */
struct moec_fuse_machine {
  double ops, ops_a_byte, heavy; /* heavy: what a transcendental function counts as */
  uint32_t big; /* leaves about as large as the value that may be read for it */
};

static const moec_fuse_machine machines[] = {
    [MOEC_TARGET_CPU] = {.ops = 3, .ops_a_byte = 0, .heavy = HUGE_VAL, .big = 1},
    [MOEC_TARGET_CUDA] = {.ops = 3, .ops_a_byte = 4, .heavy = 12, .big = 2},
};

const moec_fuse_machine *moec_fuse_machine_of(moec_target t) { return &machines[t]; }

typedef struct tally {
  double ops;       /* arithmetic, an element of the value asked about */
  uint32_t visits;  /* a bound on the walk */
  uint32_t big;     /* leaves about as large as the value */
  double bytes;     /* of leaves */
  double numel;     /* of the value asked about */
  moec_value asked;
  bool never;
} tally;

enum { MAX_VISITS = 48, SIZE_ONLY_OPS = 24, FEW = 4 };

/* Adds what computing |v| costs; |needed|: elements of it that are needed. */
static void count(const moec_fuse_plan *p, moec_value v, double needed, tally *t) {
  const moec_graph *g = p->g;
  moec_node n = moec_def(g, v);
  if (t->never || ++t->visits > MAX_VISITS) {
    t->never = true;
    return;
  }
  moec_op op = moec_op_of(g, n);
  double numel = moec_fuse_numel(p, v);
  if (needed > numel) needed = numel;
  bool reduce = moec_op_cls(op) == MOEC_CLASS_REDUCE;
  bool stored = p->must[v.i] || ((p->likely_stored[v.i] || (reduce && numel * FEW <= t->numel)) && v.i != t->asked.i);
  bool leaf = !n.i || !moec_fuse_is_fusable(g, n) || stored || p->epilogue[n.i];
  if (leaf) {
    t->bytes += needed * (double)moec_dtype_get(moec_ty(g, v).dtype)->bytes;
    t->big += needed * 2 >= t->numel;
    return;
  }
  if (reduce || moec_fuse_is_attention(op)) {
    t->never = true;
    return;
  }
  if (moec_op_is_elementwise(op) && op != MOEC_OP_CAST)
    t->ops += (moec_fuse_is_heavy(op) ? p->machine->heavy : 1) * needed / t->numel;
  for (uint32_t i = 0; i < moec_node_get(g, n)->n_in; i++) count(p, moec_in(g, n, i), needed, t);
}

bool moec_fuse_recompute(const moec_fuse_plan *p, moec_value v, uint32_t readers) {
  const moec_fuse_machine *m = p->machine;
  tally t = {.numel = moec_fuse_numel(p, v), .asked = v};
  count(p, v, t.numel, &t);
  if (t.never || t.big > m->big) return false;
  double stored = moec_fuse_bytes(p, v);
  double saved = t.bytes + (1 + readers) * stored - readers * t.bytes;
  double limit = t.bytes * 8 <= stored ? SIZE_ONLY_OPS : m->ops;
  return saved >= 0 && t.ops <= limit + m->ops_a_byte * saved / (t.numel * (readers - 1));
}

/* A mask stays in the attention that reads it, as long as that takes no more than arithmetic: codegen sees there what
 * it is, and can tell a library that has the same attention (codegen/kernel_attention_views.c). */
bool moec_fuse_stays_mask(const moec_fuse_plan *p, moec_value v, const moec_reads *reads) {
  tally t = {.numel = moec_fuse_numel(p, v), .asked = v};
  for (const moec_reads *r = reads; r; r = r->next)
    if (!p->kernels[r->kernel].attention) return false;
  count(p, v, t.numel, &t);
  return !t.never && t.ops <= p->machine->ops;
}

/* Several nodes read it and it is not worth computing again: other values may count on reading it from memory. In
 * topological order, so that what |v| is made of is decided. */
void moec_fuse_foresee(moec_fuse_plan *p) {
  for (uint32_t n = 1; n < p->g->n_nodes; n++) {
    moec_value v = moec_out(p->g, (moec_node){n}, 0);
    if (!v.i || !moec_fuse_is_fusable(p->g, (moec_node){n}) || moec_op_of(p->g, (moec_node){n}) == MOEC_OP_RESHAPE)
      continue;
    uint32_t uses = moec_use_count(p->g, v);
    p->likely_stored[v.i] = uses > 1 && !moec_fuse_recompute(p, v, uses);
  }
}
