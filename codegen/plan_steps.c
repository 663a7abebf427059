/* Library steps: which runtime step does an IR op, and with which integers. */
#include <string.h>

#include "codegen/plan_build.h"
#include "ir/matrix.h"

/* The attributes a step takes, in order, by IR op; KIND of ops.def. */
typedef struct step_rule {
  moec_op op;
  moec_step_op step;
  const char *ints[4]; /* names of integer or bool attributes */
} step_rule;

static const step_rule rules[] = {
    {MOEC_OP_CUMSUM, MOEC_STEP_CUMSUM, {"axis", "reverse", "exclusive"}},
    {MOEC_OP_TOPK, MOEC_STEP_TOPK, {"axis", "largest"}},
    {MOEC_OP_SCATTER_ELEMENTS, MOEC_STEP_SCATTER_ELEMENTS, {"axis", "reduction"}},
    {MOEC_OP_SCATTER_ND, MOEC_STEP_SCATTER_ND, {"reduction"}},
    {MOEC_OP_RANDOM, MOEC_STEP_RANDOM, {"kind", "seed"}},
    {MOEC_OP_MOE_SELECT, MOEC_STEP_MOE_SELECT, {NULL}},
    {MOEC_OP_MOE_PLAN, MOEC_STEP_MOE_PLAN, {NULL}},
    {MOEC_OP_MOE_DISPATCH, MOEC_STEP_MOE_DISPATCH, {"k"}},
    {MOEC_OP_MOE_GROUPED_DOT, MOEC_STEP_MOE_GROUPED_DOT, {"transposed"}},
    {MOEC_OP_MOE_WEIGHT, MOEC_STEP_MOE_WEIGHT, {NULL}},
    {MOEC_OP_MOE_COMBINE, MOEC_STEP_MOE_COMBINE, {"k"}},
    {MOEC_OP_MOE_GROUPED_OUTER, MOEC_STEP_MOE_GROUPED_OUTER, {NULL}},
    {MOEC_OP_MOE_GROUP_SUM, MOEC_STEP_MOE_GROUP_SUM, {NULL}},
    {MOEC_OP_LINEAR_CROSS_ENTROPY, MOEC_STEP_LINEAR_CROSS_ENTROPY, {"transposed", "ignore"}},
};

static int64_t int_attr(const moec_node_info *p, const char *name) {
  const moec_op_info *info = moec_op_get(p->op);
  for (uint32_t i = 0; i < info->n_attrs; i++) {
    const char *at = (const char *)p->attrs + info->attrs[i].offset;
    if (strcmp(info->attrs[i].name, name) != 0) continue;
    return info->attrs[i].kind == MOEC_ATTR_B ? *(const bool *)(const void *)at : *(const int64_t *)(const void *)at;
  }
  return 0;
}

/* ---- floating point operations ------------------------------------------------------------ */

static moec_dim dot_flops(moec_module *m, const moec_graph *g, moec_node n) {
  const moec_attrs_DOT *a = MOEC_ATTRS(g, n, DOT);
  moec_dim f = moec_dim_mul(m, moec_dim_const(m, 2), moec_type_numel(m, moec_value_get(g, moec_out(g, n, 0))->type));
  for (uint32_t i = 0; i < a->lhs_contract.n; i++)
    f = moec_dim_mul(m, f, moec_ty(g, moec_in(g, n, 0)).dims[a->lhs_contract.v[i]]);
  return f;
}

moec_dim moec_plan_flops(moec_module *m, const moec_graph *g, moec_node n) {
  moec_dim out = moec_type_numel(m, moec_value_get(g, moec_out(g, n, 0))->type);
  switch (moec_op_of(g, n)) {
    case MOEC_OP_MOE_GROUPED_DOT:
      return moec_dim_mul(m, moec_dim_mul(m, out, moec_ty(g, moec_in(g, n, 0)).dims[1]), moec_dim_const(m, 2));
    case MOEC_OP_MOE_COMBINE: return moec_dim_mul(m, out, moec_dim_const(m, 2 * MOEC_ATTRS(g, n, MOE_COMBINE)->k));
    case MOEC_OP_MOE_GROUPED_OUTER: { /* the outer product of each row once, whatever its expert */
      moec_type_info dy = moec_ty(g, moec_in(g, n, 0)), x = moec_ty(g, moec_in(g, n, 1));
      return moec_dim_mul(m, moec_dim_mul(m, moec_dim_mul(m, dy.dims[0], dy.dims[1]), x.dims[1]), moec_dim_const(m, 2));
    }
    case MOEC_OP_MOE_GROUP_SUM: return moec_type_numel(m, moec_value_get(g, moec_in(g, n, 0))->type);
    case MOEC_OP_MOE_WEIGHT:
    case MOEC_OP_CUMSUM: return out;
    default: return moec_dim_const(m, 0);
  }
}

/* ---- conv --------------------------------------------------------------------------------- */

static moec_status *conv_step(moec_plan_tables *t, const moec_graph *g, moec_node n, moec_plan_step *step) {
  const moec_attrs_CONV *a = MOEC_ATTRS(g, n, CONV);
  moec_module *m = t->m;
  step->op = MOEC_STEP_CONV;
  step->ints = (uint32_t)t->n_ints;
  MOEC_TABLE_ADD(t, ints, (int64_t)a->strides.n);
  for (uint32_t i = 0; i < a->strides.n; i++) MOEC_TABLE_ADD(t, ints, a->strides.v[i]);
  for (uint32_t i = 0; i < a->pads.n; i++) MOEC_TABLE_ADD(t, ints, a->pads.v[i]);
  for (uint32_t i = 0; i < a->dilations.n; i++) MOEC_TABLE_ADD(t, ints, a->dilations.v[i]);
  MOEC_TABLE_ADD(t, ints, a->groups);
  step->n_ints = (uint32_t)t->n_ints - step->ints;
  moec_type_info w = moec_ty(g, moec_in(g, n, 1));
  moec_dim f = moec_dim_mul(m, moec_dim_const(m, 2), moec_type_numel(m, moec_value_get(g, moec_out(g, n, 0))->type));
  for (uint32_t i = 1; i < w.rank; i++) f = moec_dim_mul(m, f, w.dims[i]);
  step->flops = moec_plan_expr_of(t, f);
  return NULL;
}

moec_status *moec_plan_library_step(moec_plan_tables *t, const moec_graph *g, moec_node n, moec_plan_step *step) {
  const moec_node_info *p = moec_node_get(g, n);
  if (p->op == MOEC_OP_CONV) return conv_step(t, g, n, step);
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    if (rules[i].op != p->op) continue;
    step->op = (uint32_t)rules[i].step;
    step->ints = (uint32_t)t->n_ints;
    for (size_t k = 0; k < 4 && rules[i].ints[k]; k++) MOEC_TABLE_ADD(t, ints, int_attr(p, rules[i].ints[k]));
    step->n_ints = (uint32_t)t->n_ints - step->ints;
    step->flops = moec_plan_expr_of(t, moec_plan_flops(t->m, g, n));
    return NULL;
  }
  return moec_error(MOEC_UNSUPPORTED, "%s \"%s\": the cpu target has no step for it", moec_op_get(p->op)->text,
                    moec_sym_str(t->m, p->loc));
}

/* ---- dot as a strided GEMM ------------------------------------------------------------------ */

moec_status *moec_plan_gemm(moec_plan_tables *t, const moec_graph *g, moec_node n, moec_plan_step *step) {
  moec_module *m = t->m;
  const moec_attrs_DOT *a = MOEC_ATTRS(g, n, DOT);
  moec_matrix_side x, y;
  bool ok = moec_matrix_side_of(g, n, 0, &x) && moec_matrix_side_of(g, n, 1, &y);
  if (!ok)
    return moec_error(MOEC_UNSUPPORTED, "dot \"%s\": its operands are no strided matrices",
                      moec_sym_str(m, moec_node_get(g, n)->loc));
  step->op = MOEC_STEP_GEMM;
  step->ints = (uint32_t)t->n_ints;
  MOEC_TABLE_ADD(t, ints, (int64_t)a->lhs_batch.n);
  const moec_dim head[] = {x.free_size,  y.free_size,  x.sum_size,   x.free_stride,
                           x.sum_stride, y.sum_stride, y.free_stride};
  for (size_t i = 0; i < 7; i++) MOEC_TABLE_ADD(t, ints, (int64_t)moec_plan_expr_of(t, head[i]));
  for (uint32_t i = 0; i < a->lhs_batch.n; i++) {
    int64_t p = a->lhs_batch.v[i], q = a->rhs_batch.v[i];
    MOEC_TABLE_ADD(t, ints, (int64_t)moec_plan_expr_of(t, x.type.dims[p]));
    MOEC_TABLE_ADD(t, ints, (int64_t)moec_plan_expr_of(t, x.stride[p]));
    MOEC_TABLE_ADD(t, ints, (int64_t)moec_plan_expr_of(t, y.stride[q]));
  }
  step->n_ints = (uint32_t)t->n_ints - step->ints;
  step->flops = moec_plan_expr_of(t, dot_flops(m, g, n));
  return NULL;
}
