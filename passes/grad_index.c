/* Gradients of gather and scatter: one is the other's adjoint. */
#include "passes/grad.h"

typedef moec_builder B;
typedef moec_value V;

static V zeros(moec_grad *c, moec_dtype t, uint32_t rank, const moec_dim *dims) {
  return moec_b_fill(&c->b, moec_b_scalar_f(&c->b, t, 0), rank, dims);
}

static V zeros_like(moec_grad *c, V x) {
  moec_type_info t = moec_ty(c->g, x);
  return zeros(c, t.dtype, t.rank, t.dims);
}

static V scatter_elements(moec_grad *c, V x, V index, V u, int64_t axis, int64_t reduction) {
  moec_attrs_SCATTER_ELEMENTS a = {.axis = axis, .reduction = reduction};
  V in[3] = {x, index, u};
  return moec_b_op(&c->b, MOEC_OP_SCATTER_ELEMENTS, &a, 3, in, 1);
}

static V scatter_nd(moec_grad *c, V x, V index, V u, int64_t reduction) {
  moec_attrs_SCATTER_ND a = {.reduction = reduction};
  V in[3] = {x, index, u};
  return moec_b_op(&c->b, MOEC_OP_SCATTER_ND, &a, 3, in, 1);
}

/* y = x[..., i, ...]: rows of dy are added up at i, with the gathered axis in front. */
void moec_grad_gather(moec_grad *c, moec_node n, const V *dy) {
  B *b = &c->b;
  V x = moec_in(c->g, n, 0), index = moec_in(c->g, n, 1);
  uint32_t axis = (uint32_t)MOEC_ATTRS(c->g, n, GATHER)->axis, ri = moec_ty(c->g, index).rank;
  moec_type_info t = moec_ty(c->g, x);
  uint32_t rank = t.rank - 1 + ri;
  int64_t front[MOEC_MAX_RANK], back[MOEC_MAX_RANK];
  moec_dim dims[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < rank; i++) front[i] = i < ri ? axis + i : i < ri + axis ? i - ri : i;
  dims[0] = t.dims[axis];
  for (uint32_t i = 0, k = 1; i < t.rank; i++)
    if (i != axis) dims[k++] = t.dims[i];
  for (uint32_t i = 0; i < t.rank; i++) back[i] = i == axis ? 0 : i < axis ? i + 1 : i;
  V u = moec_b_transpose(b, dy[0], front), at = moec_b_unsqueeze(b, index, -1);
  V sum = scatter_nd(c, zeros(c, t.dtype, t.rank, dims), at, u, 1);
  moec_grad_add(c, x, moec_b_transpose(b, sum, back));
}

/* Indices that are positions of distinct elements, counted from the front: what top-k gives. */
static bool is_choice(const moec_graph *g, V index) {
  moec_op op = moec_def_op(g, index);
  return op == MOEC_OP_MOE_SELECT || op == MOEC_OP_TOPK;
}

/* Few choices a row along the last axis: dx[..., e] = sum over j of (i[..., j] == e ? dy[..., j] : 0), which is
 * elementwise. */
static V one_hot_sum(moec_grad *c, V x, V index, V dy) {
  B *b = &c->b;
  moec_type_info t = moec_ty(c->g, x);
  V place = moec_b_iota(b, moec_ty(c->g, index).dtype, 1, &t.dims[t.rank - 1], 0);
  /* [..., e, j] */
  V hit = moec_b_binary(b, MOEC_OP_EQ, moec_b_unsqueeze(b, index, -2), moec_b_unsqueeze(b, place, -1));
  V part = moec_b_select(b, hit, moec_b_unsqueeze(b, dy, -2), moec_b_scalar_f(b, t.dtype, 0));
  return moec_b_reduce(b, MOEC_OP_REDUCE_SUM, part, -1, false);
}

enum { MAX_ONE_HOT = 16 };

void moec_grad_gather_elements(moec_grad *c, moec_node n, const V *dy) {
  V x = moec_in(c->g, n, 0), index = moec_in(c->g, n, 1);
  int64_t axis = MOEC_ATTRS(c->g, n, GATHER_ELEMENTS)->axis, k;
  moec_type_info t = moec_ty(c->g, x), i = moec_ty(c->g, index);
  bool same_rows = true;
  for (uint32_t a = 0; a + 1 < t.rank; a++) same_rows = same_rows && moec_dim_eq(t.dims[a], i.dims[a]);
  bool few = axis + 1 == t.rank && same_rows && moec_dim_is_const(c->m, i.dims[axis], &k) && k <= MAX_ONE_HOT;
  moec_grad_add(c, x, few && is_choice(c->g, index) ? one_hot_sum(c, x, index, dy[0])
                                                    : scatter_elements(c, zeros_like(c, x), index, dy[0], axis, 1));
}

/* Indices with the positions on the batch axes written in front. */
static V full_index(moec_grad *c, V index, uint32_t batch_dims) {
  B *b = &c->b;
  moec_type_info t = moec_ty(c->g, index);
  moec_dim dims[MOEC_MAX_RANK];
  V parts[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < t.rank; i++) dims[i] = t.dims[i];
  dims[t.rank - 1] = moec_dim_const(c->m, 1);
  for (uint32_t i = 0; i < batch_dims; i++) parts[i] = moec_b_iota(b, t.dtype, t.rank, dims, i);
  parts[batch_dims] = index;
  return moec_b_concat(b, batch_dims + 1, parts, -1);
}

void moec_grad_gather_nd(moec_grad *c, moec_node n, const V *dy) {
  V x = moec_in(c->g, n, 0);
  V index = full_index(c, moec_in(c->g, n, 1), (uint32_t)MOEC_ATTRS(c->g, n, GATHER_ND)->batch_dims);
  moec_grad_add(c, x, scatter_nd(c, zeros_like(c, x), index, dy[0], 1));
}

/* ---- scatter ------------------------------------------------------------------------------ */

static V gather_elements(moec_grad *c, V x, V index, int64_t axis) {
  moec_attrs_GATHER_ELEMENTS a = {.axis = axis};
  V in[2] = {x, index};
  return moec_b_op(&c->b, MOEC_OP_GATHER_ELEMENTS, &a, 2, in, 1);
}

static V gather_nd(moec_grad *c, V x, V index) {
  moec_attrs_GATHER_ND a = {.batch_dims = 0};
  V in[2] = {x, index};
  return moec_b_op(&c->b, MOEC_OP_GATHER_ND, &a, 2, in, 1);
}

/* Assignment and addition have gradients; false, with an error, for the others. */
static bool differentiable(moec_grad *c, moec_node n, int64_t reduction) {
  static const char *const text[] = {"none", "add", "mul", "max", "min"};
  if (reduction <= 1) return true;
  moec_b_fail(&c->b, moec_error(MOEC_UNSUPPORTED, "no gradient passes through reduction \"%s\"; expected none or add",
                                text[reduction]));
  (void)n;
  return false;
}

/* Where several updates meet under assignment the last one is there: the others get nothing. */
static V where_it_stayed(moec_grad *c, V mine, V there, V du) {
  V hit = moec_b_binary(&c->b, MOEC_OP_EQ, mine, there);
  return moec_b_select(&c->b, hit, du, moec_b_scalar_f(&c->b, moec_ty(c->g, du).dtype, 0));
}

static V positions_like(moec_grad *c, V x) {
  moec_type_info t = moec_ty(c->g, x);
  return moec_b_fill(&c->b, moec_b_scalar_i(&c->b, MOEC_I64, -1), t.rank, t.dims);
}

void moec_grad_scatter_elements(moec_grad *c, moec_node n, const V *dy) {
  const moec_attrs_SCATTER_ELEMENTS *a = MOEC_ATTRS(c->g, n, SCATTER_ELEMENTS);
  V x = moec_in(c->g, n, 0), index = moec_in(c->g, n, 1), u = moec_in(c->g, n, 2);
  if (!differentiable(c, n, a->reduction)) return;
  if (moec_grad_wants(c, x))
    moec_grad_add(c, x, a->reduction ? dy[0] : scatter_elements(c, dy[0], index, zeros_like(c, u), a->axis, 0));
  if (!moec_grad_wants(c, u)) return;
  V du = gather_elements(c, dy[0], index, a->axis);
  if (!a->reduction) {
    moec_type_info t = moec_ty(c->g, u);
    V mine = moec_b_iota(&c->b, MOEC_I64, t.rank, t.dims, a->axis);
    V there = gather_elements(c, scatter_elements(c, positions_like(c, x), index, mine, a->axis, 0), index, a->axis);
    du = where_it_stayed(c, mine, there, du);
  }
  moec_grad_add(c, u, du);
}

/* The number of each update along the index's batch axes. */
static V update_numbers(moec_grad *c, V index) {
  moec_type_info t = moec_ty(c->g, index);
  moec_dim n = moec_dim_const(c->m, 1);
  for (uint32_t i = 0; i + 1 < t.rank; i++) n = moec_dim_mul(c->m, n, t.dims[i]);
  return moec_b_reshape(&c->b, moec_b_iota(&c->b, MOEC_I64, 1, &n, 0), t.rank - 1, t.dims);
}

void moec_grad_scatter_nd(moec_grad *c, moec_node n, const V *dy) {
  int64_t reduction = MOEC_ATTRS(c->g, n, SCATTER_ND)->reduction;
  V x = moec_in(c->g, n, 0), index = moec_in(c->g, n, 1), u = moec_in(c->g, n, 2);
  if (!differentiable(c, n, reduction)) return;
  if (moec_grad_wants(c, x)) moec_grad_add(c, x, reduction ? dy[0] : scatter_nd(c, dy[0], index, zeros_like(c, u), 0));
  if (!moec_grad_wants(c, u)) return;
  V du = gather_nd(c, dy[0], index);
  if (!reduction) {
    moec_type_info t = moec_ty(c->g, u);
    V mine = update_numbers(c, index);
    for (uint32_t i = moec_ty(c->g, mine).rank; i < t.rank; i++) mine = moec_b_unsqueeze(&c->b, mine, -1);
    mine = moec_b_broadcast_to(&c->b, mine, t.rank, t.dims);
    V there = gather_nd(c, scatter_nd(c, positions_like(c, x), index, mine, 0), index);
    du = where_it_stayed(c, mine, there, du);
  }
  moec_grad_add(c, u, du);
}

/* The chosen values came from where the indices say. */
void moec_grad_topk(moec_grad *c, moec_node n, const V *dy) {
  V x = moec_in(c->g, n, 0), index = moec_out(c->g, n, 1);
  if (dy[0].i)
    moec_grad_add(c, x, scatter_elements(c, zeros_like(c, x), index, dy[0], MOEC_ATTRS(c->g, n, TOPK)->axis, 1));
}
