/* What is inside a region, in a few words and as a list of ops. */
#include "codegen/report_idiom.h"

/* ---- ops of a kernel ---------------------------------------------------------------------- */

json_t *moec_report_ops(const moec_graph *g) {
  uint32_t count[MOEC_OP_COUNT] = {0};
  json_t *list = moec_report_array();
  for (uint32_t n = 1; n < g->n_nodes; n++) count[g->nodes[n].op]++;
  for (uint32_t n = 1; n < g->n_nodes; n++) { /* in order of first appearance */
    moec_op op = g->nodes[n].op;
    if (!count[op] || op == MOEC_OP_NONE) continue;
    json_t *o = moec_report_object();
    moec_report_set(o, "op", moec_report_str(moec_op_get(op)->text));
    moec_report_set_int(o, "count", count[op]);
    moec_report_add(list, o);
    count[op] = 0;
  }
  return list;
}

/* ---- GEMMs -------------------------------------------------------------------------------- */

typedef struct gemm { moec_dim m, n, k, batch; } gemm;

static bool in_list(moec_ints l, uint32_t axis) {
  for (uint32_t i = 0; i < l.n; i++)
    if (l.v[i] == axis) return true;
  return false;
}

static moec_dim free_size(const report *r, const moec_graph *g, moec_value v, moec_ints batch, moec_ints contract) {
  moec_type_info t = moec_ty(g, v);
  moec_dim d = moec_dim_const(r->m, 1);
  for (uint32_t i = 0; i < t.rank; i++)
    if (!in_list(batch, i) && !in_list(contract, i)) d = moec_dim_mul(r->m, d, t.dims[i]);
  return d;
}

static gemm gemm_of(const report *r, const moec_graph *g, moec_node n) {
  const moec_attrs_DOT *a = MOEC_ATTRS(g, n, DOT);
  moec_value x = moec_in(g, n, 0), y = moec_in(g, n, 1);
  gemm s = {.batch = moec_dim_const(r->m, 1), .k = moec_dim_const(r->m, 1)};
  s.m = free_size(r, g, x, a->lhs_batch, a->lhs_contract);
  s.n = free_size(r, g, y, a->rhs_batch, a->rhs_contract);
  for (uint32_t i = 0; i < a->lhs_batch.n; i++)
    s.batch = moec_dim_mul(r->m, s.batch, moec_ty(g, x).dims[a->lhs_batch.v[i]]);
  for (uint32_t i = 0; i < a->lhs_contract.n; i++)
    s.k = moec_dim_mul(r->m, s.k, moec_ty(g, x).dims[a->lhs_contract.v[i]]);
  return s;
}

static bool has_weight(const report_fn *f, moec_node dot) {
  return f->at[moec_in(f->g, dot, 1).i] == MOEC_AT_LOAD;
}

json_t *moec_report_gemm(const report *r, const report_fn *f, const report_region *reg) {
  gemm s = gemm_of(r, f->g, reg->node);
  json_t *o = moec_report_object();
  moec_report_set(o, "m", moec_report_size(r, s.m));
  moec_report_set(o, "n", moec_report_size(r, s.n));
  moec_report_set(o, "k", moec_report_size(r, s.k));
  moec_report_set(o, "batch", moec_report_size(r, s.batch));
  moec_report_set(o, "weight", json_boolean(has_weight(f, reg->node)));
  moec_report_set(o, "accumulates", json_boolean(reg->add.i != 0));
  return o;
}

static const char *gemm_title(const report *r, const report_fn *f, const report_region *reg) {
  gemm s = gemm_of(r, f->g, reg->node);
  int64_t n, k;
  const char *tail = reg->add.i ? ", added in place" : "";
  if (moec_dim_is_const(r->m, s.n, &n) && moec_dim_is_const(r->m, s.k, &k) && has_weight(f, reg->node))
    return moec_arena_printf(r->arena, "linear %lld to %lld%s", (long long)k, (long long)n, tail);
  return moec_arena_printf(r->arena, "%sproduct%s", moec_dim_is(r->m, s.batch, 1) ? "" : "batched ", tail);
}

/* ---- titles ------------------------------------------------------------------------------- */

static const char *expert_title(const report *r, const report_fn *f, const report_region *reg) {
  int64_t experts = MOEC_ATTRS(f->g, reg->node, MOE_PLAN)->experts, k = 0;
  moec_dim_is_const(r->m, moec_ty(f->g, moec_in(f->g, reg->node, 0)).dims[1], &k);
  return moec_arena_printf(r->arena, "%lld experts, %lld a token", (long long)experts, (long long)k);
}

static const char *attention_title(const report *r, const report_fn *f, const report_region *reg) {
  const moec_graph *k = moec_report_kernel(r, f, reg);
  if (!k) k = f->g;
  moec_node n = k == f->g ? reg->node : moec_report_find(k, MOEC_OP_ATTENTION);
  moec_type_info q = moec_ty(k, moec_in(k, n, 0)), kv = moec_ty(k, moec_in(k, n, 1));
  int64_t h = 0, g = 0, d = 0;
  moec_dim_is_const(r->m, q.dims[2], &h);
  moec_dim_is_const(r->m, kv.dims[2], &g);
  moec_dim_is_const(r->m, q.dims[3], &d);
  return moec_arena_printf(r->arena, "attention, %lld heads on %lld, size %lld", (long long)h, (long long)g,
                           (long long)d);
}

const char *moec_report_title(const report *r, const report_fn *f, const report_region *reg) {
  switch (reg->kind) {
    case REPORT_KERNEL: return moec_report_kernel_title(r, moec_report_kernel(r, f, reg));
    case REPORT_ATTENTION: return attention_title(r, f, reg);
    case REPORT_GEMM: return gemm_title(r, f, reg);
    case REPORT_EXPERT: return expert_title(r, f, reg);
    case REPORT_CALL: return r->fns[r->index_of[MOEC_ATTRS(f->g, reg->node, CALL)->fn.i]].name;
    default: return moec_op_get(moec_op_of(f->g, reg->node))->text;
  }
}
