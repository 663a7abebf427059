/* Library steps: which runtime step does an IR op, and with which integers. */
#include <string.h>

#include "codegen/plan_build.h"

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

static moec_dim step_flops(moec_module *m, const moec_graph *g, moec_node n) {
  moec_dim out = moec_type_numel(m, moec_value_get(g, moec_out(g, n, 0))->type);
  switch (moec_op_of(g, n)) {
    case MOEC_OP_MOE_GROUPED_DOT: return moec_dim_mul(m, moec_dim_mul(m, out, moec_ty(g, moec_in(g, n, 0)).dims[1]), moec_dim_const(m, 2));
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
    step->flops = moec_plan_expr_of(t, step_flops(t->m, g, n));
    return NULL;
  }
  return moec_error(MOEC_UNSUPPORTED, "%s \"%s\": the cpu target has no step for it", moec_op_get(p->op)->text,
                    moec_sym_str(t->m, p->loc));
}

/* ---- dot as a strided GEMM ------------------------------------------------------------------ */

/* One side of a dot seen as a matrix with batch axes: strides in elements. */
typedef struct side {
  moec_type_info type;
  moec_dim stride[MOEC_MAX_RANK];
  uint32_t used; /* bit set of batch and contracted axes */
} side;

static side make_side(moec_module *m, const moec_graph *g, moec_value v, moec_ints batch, moec_ints contract) {
  side s = {.type = moec_ty(g, v)};
  moec_dim stride = moec_dim_const(m, 1);
  for (uint32_t i = s.type.rank; i-- > 0;) {
    s.stride[i] = stride;
    stride = moec_dim_mul(m, stride, s.type.dims[i]);
  }
  for (uint32_t i = 0; i < batch.n; i++) s.used |= 1u << batch.v[i];
  for (uint32_t i = 0; i < contract.n; i++) s.used |= 1u << contract.v[i];
  return s;
}

/* Several axes as one of size *size and stride *stride: each must be dense over the next.
 * Axes of size 1 don't matter. False when no single stride says it. */
static bool collapse(moec_module *m, const side *s, uint32_t n, const uint32_t *axes, moec_dim *size, moec_dim *stride) {
  *size = moec_dim_const(m, 1);
  *stride = moec_dim_const(m, 1);
  bool any = false;
  for (uint32_t i = n; i-- > 0;) {
    uint32_t x = axes[i];
    if (moec_dim_is(m, s->type.dims[x], 1)) continue;
    if (any && !moec_dim_eq(s->stride[x], moec_dim_mul(m, *stride, *size))) return false;
    if (!any) *stride = s->stride[x];
    *size = moec_dim_mul(m, *size, s->type.dims[x]);
    any = true;
  }
  return true;
}

static uint32_t free_axes(const side *s, uint32_t *axes) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < s->type.rank; i++)
    if (!(s->used >> i & 1)) axes[n++] = i;
  return n;
}

static uint32_t list_axes(moec_ints list, uint32_t *axes) {
  for (uint32_t i = 0; i < list.n; i++) axes[i] = (uint32_t)list.v[i];
  return list.n;
}

/* Whether BLAS can read a matrix with these strides: one of them is 1, or its axis has one element. */
static bool blas_strides(moec_module *m, moec_dim s0, moec_dim n0, moec_dim s1, moec_dim n1) {
  return moec_dim_is(m, s0, 1) || moec_dim_is(m, s1, 1) || moec_dim_is(m, n0, 1) || moec_dim_is(m, n1, 1);
}

moec_status *moec_plan_gemm(moec_plan_tables *t, const moec_graph *g, moec_node n, moec_plan_step *step) {
  moec_module *m = t->m;
  const moec_attrs_DOT *a = MOEC_ATTRS(g, n, DOT);
  side x = make_side(m, g, moec_in(g, n, 0), a->lhs_batch, a->lhs_contract);
  side y = make_side(m, g, moec_in(g, n, 1), a->rhs_batch, a->rhs_contract);
  uint32_t xf[MOEC_MAX_RANK], yf[MOEC_MAX_RANK], xc[MOEC_MAX_RANK], yc[MOEC_MAX_RANK];
  uint32_t n_xf = free_axes(&x, xf), n_yf = free_axes(&y, yf);
  uint32_t n_xc = list_axes(a->lhs_contract, xc), n_yc = list_axes(a->rhs_contract, yc);
  moec_dim M, N, K, K2, a_m, a_k, b_k, b_n;
  bool ok = collapse(m, &x, n_xf, xf, &M, &a_m) && collapse(m, &y, n_yf, yf, &N, &b_n) &&
            collapse(m, &x, n_xc, xc, &K, &a_k) && collapse(m, &y, n_yc, yc, &K2, &b_k);
  ok = ok && blas_strides(m, a_m, M, a_k, K) && blas_strides(m, b_k, K, b_n, N);
  if (!ok)
    return moec_error(MOEC_UNSUPPORTED, "dot \"%s\": its operands are no strided matrices",
                      moec_sym_str(m, moec_node_get(g, n)->loc));
  step->op = MOEC_STEP_GEMM;
  step->ints = (uint32_t)t->n_ints;
  MOEC_TABLE_ADD(t, ints, (int64_t)a->lhs_batch.n);
  const moec_dim head[] = {M, N, K, a_m, a_k, b_k, b_n};
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
