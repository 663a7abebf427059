/* Work and traffic of a region: floating point operations, and bytes that it reads from and
 * writes to memory, each value once. Attention counts all pairs, masked or not. */
#include "codegen/plan_build.h"
#include "codegen/report_internal.h"

static moec_dim numel(const report *r, const moec_graph *g, moec_value v) {
  return moec_type_numel(r->m, moec_value_get(g, v)->type);
}

static moec_dim times(const report *r, moec_dim a, int64_t k) { return moec_dim_mul(r->m, a, moec_dim_const(r->m, k)); }

/* ---- operations --------------------------------------------------------------------------- */

/* Operations an element: of the result for most ops, of the operand for those that reduce. */
typedef struct cost { moec_op op; int per_result, per_operand; } cost;
static const cost costs[] = {
    {MOEC_OP_SOFTMAX, 5, 0},   {MOEC_OP_RMS_NORM, 4, 0},   {MOEC_OP_ROPE, 3, 0},        {MOEC_OP_SWIGLU, 6, 0},
    {MOEC_OP_CAST, 0, 0},      {MOEC_OP_SELECT, 1, 0},     {MOEC_OP_CUMSUM, 1, 0},      {MOEC_OP_REDUCE_SUM, 0, 1},
    {MOEC_OP_REDUCE_MAX, 0, 1}, {MOEC_OP_REDUCE_MIN, 0, 1}, {MOEC_OP_REDUCE_PROD, 0, 1}, {MOEC_OP_MOE_WEIGHT, 1, 0},
    {MOEC_OP_MOE_GROUP_SUM, 0, 1},
};

static moec_dim dot_flops(const report *r, const moec_graph *g, moec_node n) {
  const moec_attrs_DOT *a = MOEC_ATTRS(g, n, DOT);
  moec_dim f = times(r, numel(r, g, moec_out(g, n, 0)), 2);
  for (uint32_t i = 0; i < a->lhs_contract.n; i++)
    f = moec_dim_mul(r->m, f, moec_ty(g, moec_in(g, n, 0)).dims[a->lhs_contract.v[i]]);
  return f;
}

/* Two products and a softmax over B*H*S*T scores. */
static moec_dim attention_flops(const report *r, const moec_graph *g, moec_node n) {
  moec_type_info q = moec_ty(g, moec_in(g, n, 0)), k = moec_ty(g, moec_in(g, n, 1)), v = moec_ty(g, moec_in(g, n, 2));
  moec_dim scores = k.dims[1];
  for (int i = 0; i < 3; i++) scores = moec_dim_mul(r->m, scores, q.dims[i]);
  moec_dim head = times(r, moec_dim_add(r->m, q.dims[3], v.dims[3]), 2);
  return moec_dim_mul(r->m, scores, moec_dim_add(r->m, head, moec_dim_const(r->m, 5)));
}

/* Five products, those of the scores and of the gradients of probabilities, q, k and v. */
static moec_dim attention_grad_flops(const report *r, const moec_graph *g, moec_node n) {
  moec_type_info q = moec_ty(g, moec_in(g, n, 0)), k = moec_ty(g, moec_in(g, n, 1)), v = moec_ty(g, moec_in(g, n, 2));
  moec_dim scores = k.dims[1];
  for (int i = 0; i < 3; i++) scores = moec_dim_mul(r->m, scores, q.dims[i]);
  moec_dim head = moec_dim_add(r->m, times(r, q.dims[3], 6), times(r, v.dims[3], 4));
  return moec_dim_mul(r->m, scores, moec_dim_add(r->m, head, moec_dim_const(r->m, 8)));
}

static moec_dim conv_flops(const report *r, const moec_graph *g, moec_node n) {
  moec_dim f = times(r, numel(r, g, moec_out(g, n, 0)), 2);
  moec_type_info w = moec_ty(g, moec_in(g, n, 1));
  for (uint32_t i = 1; i < w.rank; i++) f = moec_dim_mul(r->m, f, w.dims[i]);
  return f;
}

moec_dim moec_report_node_flops(const report *r, const moec_graph *g, moec_node n) {
  moec_op op = moec_op_of(g, n);
  moec_dim out = numel(r, g, moec_out(g, n, 0));
  switch (op) {
    case MOEC_OP_DOT: return dot_flops(r, g, n);
    case MOEC_OP_CONV: return conv_flops(r, g, n);
    case MOEC_OP_ATTENTION: return attention_flops(r, g, n);
    case MOEC_OP_ATTENTION_GRAD: return attention_grad_flops(r, g, n);
    case MOEC_OP_MOE_GROUPED_DOT: return times(r, moec_dim_mul(r->m, out, moec_ty(g, moec_in(g, n, 0)).dims[1]), 2);
    case MOEC_OP_MOE_COMBINE: return times(r, out, MOEC_ATTRS(g, n, MOE_COMBINE)->k);
    case MOEC_OP_MOE_GROUPED_OUTER: { /* the outer product of each row once, whatever its expert */
      moec_type_info dy = moec_ty(g, moec_in(g, n, 0)), x = moec_ty(g, moec_in(g, n, 1));
      return times(r, moec_dim_mul(r->m, moec_dim_mul(r->m, dy.dims[0], dy.dims[1]), x.dims[1]), 2);
    }
    case MOEC_OP_FUSED: {
      moec_fn fn = MOEC_ATTRS(g, n, FUSED)->fn;
      const moec_graph *k = moec_fn_get(r->m, fn);
      if (r->in->kernel_flops && moec_dim_known(r->in->kernel_flops[fn.i])) return r->in->kernel_flops[fn.i];
      moec_dim sum = moec_dim_const(r->m, 0);
      for (uint32_t i = 1; i < k->n_nodes; i++)
        sum = moec_dim_add(r->m, sum, moec_report_node_flops(r, k, (moec_node){i}));
      return sum;
    }
    default: break;
  }
  for (size_t i = 0; i < sizeof costs / sizeof *costs; i++)
    if (costs[i].op == op)
      return costs[i].per_operand ? times(r, numel(r, g, moec_in(g, n, 0)), costs[i].per_operand)
                                  : times(r, out, costs[i].per_result);
  bool counts = moec_op_is_elementwise(op) && moec_dtype_is_float(moec_ty(g, moec_out(g, n, 0)).dtype);
  return counts ? out : moec_dim_const(r->m, 0);
}

/* One run of the function that call region |reg| calls, at its own binding times. */
static moec_dim call_cost(const report *r, const report_fn *f, const report_region *reg, bool bytes) {
  const report_fn *callee = &r->fns[r->index_of[MOEC_ATTRS(f->g, reg->node, CALL)->fn.i]];
  moec_dim sum = moec_dim_const(r->m, 0);
  for (uint32_t i = 0; i < callee->n_regions; i++)
    if (callee->regions[i].at == MOEC_AT_STEP)
      sum = moec_dim_add(r->m, sum, bytes ? callee->regions[i].bytes : callee->regions[i].flops);
  return sum;
}

moec_dim moec_report_flops(const report *r, const report_fn *f, const report_region *reg) {
  if (reg->kind == REPORT_CALL) return call_cost(r, f, reg, false);
  moec_dim sum = moec_dim_const(r->m, 0);
  uint32_t index = (uint32_t)(reg - f->regions);
  for (uint32_t n = reg->first.i; n <= reg->last.i; n++)
    if (f->region_of[n] == index) sum = moec_dim_add(r->m, sum, moec_report_node_flops(r, f->g, (moec_node){n}));
  return sum;
}

/* ---- traffic ------------------------------------------------------------------------------ */

/* Bytes of fused input |in| that a kernel reads: what it gathers from it where it reads it by gathers only. */
static moec_dim fused_read(const report *r, const moec_graph *k, moec_value in) {
  moec_dim sum = moec_dim_const(r->m, 0);
  moec_dim whole = moec_plan_bytes(r->m, moec_value_get(k, in)->type);
  for (uint32_t n = 1; n < k->n_nodes; n++)
    for (uint32_t i = 0; i < k->nodes[n].n_in; i++) {
      if (moec_in(k, (moec_node){n}, i).i != in.i) continue;
      moec_op op = k->nodes[n].op;
      if (i != 0 || (op != MOEC_OP_GATHER && op != MOEC_OP_GATHER_ND && op != MOEC_OP_GATHER_ELEMENTS)) return whole;
      sum = moec_dim_add(r->m, sum, moec_plan_bytes(r->m, moec_value_get(k, moec_out(k, (moec_node){n}, 0))->type));
    }
  return sum;
}

/* Weights of min(E, rows) experts: more cannot have a row. */
static moec_dim expert_read(const report *r, const moec_graph *g, moec_node n, moec_value w) {
  moec_type_info t = moec_ty(g, w);
  moec_dim bytes = moec_dim_const(r->m, (int64_t)moec_dtype_get(t.dtype)->bytes);
  for (uint32_t i = 1; i < t.rank; i++) bytes = moec_dim_mul(r->m, bytes, t.dims[i]);
  return moec_dim_mul(r->m, bytes, moec_dim_min(r->m, t.dims[0], moec_ty(g, moec_in(g, n, 0)).dims[0]));
}

/* Bytes that operand |slot| of node |n| makes it read. */
static moec_dim operand_bytes(const report *r, const moec_graph *g, moec_node n, uint32_t slot) {
  moec_value v = moec_in(g, n, slot);
  moec_op op = moec_op_of(g, n);
  if (!v.i) return moec_dim_const(r->m, 0);
  if (op == MOEC_OP_FUSED) {
    const moec_graph *k = moec_fn_get(r->m, MOEC_ATTRS(g, n, FUSED)->fn);
    return fused_read(r, k, k->inputs[slot]);
  }
  if (op == MOEC_OP_MOE_GROUPED_DOT && slot == 1) return expert_read(r, g, n, v);
  return moec_plan_bytes(r->m, moec_value_get(g, v)->type);
}

moec_dim moec_report_edge_bytes(const report *r, const report_fn *f, const report_edge *e) {
  if (!e->reader.i) return moec_plan_bytes(r->m, moec_value_get(f->g, e->v)->type);
  return operand_bytes(r, f->g, e->reader, e->slot);
}

/* One node that goes through memory. A moe.weight that only its combine reads is done there: it costs its weights. */
moec_dim moec_report_node_bytes(const report *r, const report_fn *f, moec_node n) {
  const moec_node_info *p = moec_node_get(f->g, n);
  moec_dim none = moec_dim_const(r->m, 0);
  if (p->op == MOEC_OP_MOE_WEIGHT && moec_plan_is_restored(f->g, n)) return operand_bytes(r, f->g, n, 1);
  if (p->op == MOEC_OP_MOE_DISPATCH && moec_plan_only_weighted(f->g, n)) return none;
  moec_node from = moec_plan_weighted_dispatch(f->g, n); /* reads the dispatch's operand in place of its result */
  moec_dim sum = none;
  for (uint32_t i = 0; i < p->n_in; i++) {
    bool dispatched = from.i && i == 0;
    sum = moec_dim_add(r->m, sum, operand_bytes(r, f->g, dispatched ? from : n, i));
  }
  for (uint32_t i = 0; i < p->n_out; i++)
    sum = moec_dim_add(r->m, sum, moec_plan_bytes(r->m, moec_value_get(f->g, f->g->edges[p->out + i])->type));
  return sum;
}

/* The residual add of an epilogue reads one operand more than its producer; the result is written once. */
static moec_dim epilogue_bytes(const report *r, const report_fn *f, const report_region *reg) {
  moec_value x = moec_in(f->g, reg->add, 0);
  return moec_plan_bytes(r->m, moec_value_get(f->g, x)->type);
}

moec_dim moec_report_bytes(const report *r, const report_fn *f, const report_region *reg) {
  if (reg->kind == REPORT_CALL) return call_cost(r, f, reg, true);
  moec_dim sum = moec_dim_const(r->m, 0);
  uint32_t index = (uint32_t)(reg - f->regions);
  for (uint32_t n = reg->first.i; n <= reg->last.i; n++)
    if (f->region_of[n] == index && n != reg->add.i)
      sum = moec_dim_add(r->m, sum, moec_report_node_bytes(r, f, (moec_node){n}));
  return reg->add.i ? moec_dim_add(r->m, sum, epilogue_bytes(r, f, reg)) : sum;
}
