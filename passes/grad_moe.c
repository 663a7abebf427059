/* Gradients of the expert region. Dispatch and combine are each other's adjoint, so they run on the same kernels (and,
 * between machines, on the same collectives).
 *
 *   rows = dispatch(x)      a = act(rows W1)      y = combine(weight(a W2 + b2, w))
 *
 * The weights' gradient is rowdot(dO, a W2 + b2) = rowdot(dO W2^T, a) + rowdot(dO, b2): written with dO W2^T, which the
 * gradient of a needs anyhow, it does not read the output of fc2, so a replay of the forward pass does not compute fc2.
 * */
#include "passes/grad.h"

typedef moec_builder B;
typedef moec_value V;

static V gather_rows(B *b, V x, V index) {
  moec_attrs_GATHER a = {.axis = 0};
  V in[2] = {x, index};
  return moec_b_op(b, MOEC_OP_GATHER, &a, 2, in, 1);
}

/* One permutation from its inverse: i32 [N]. */
static V inverse(moec_grad *c, V perm) {
  moec_dim n = moec_b_dim(&c->b, perm, 0);
  moec_attrs_SCATTER_ELEMENTS put = {.axis = 0};
  V rows = moec_b_iota(&c->b, MOEC_I32, 1, &n, 0), in[3] = {rows, perm, rows};
  return moec_b_op(&c->b, MOEC_OP_SCATTER_ELEMENTS, &put, 3, in, 1);
}

/* The plan's other permutation: |which| 0 perm, 1 inv. */
static V other_order(moec_grad *c, V order, uint32_t which) {
  if (moec_def_op(c->g, order) == MOEC_OP_MOE_PLAN) return moec_out(c->g, moec_def(c->g, order), which);
  return inverse(c, order);
}

void moec_grad_moe_dispatch(moec_grad *c, moec_node n, const V *dy) {
  moec_attrs_MOE_COMBINE a = {.k = MOEC_ATTRS(c->g, n, MOE_DISPATCH)->k};
  V in[2] = {dy[0], other_order(c, moec_in(c->g, n, 1), 1)};
  moec_grad_add(c, moec_in(c->g, n, 0), moec_b_op(&c->b, MOEC_OP_MOE_COMBINE, &a, 2, in, 1));
}

void moec_grad_moe_combine(moec_grad *c, moec_node n, const V *dy) {
  moec_attrs_MOE_DISPATCH a = {.k = MOEC_ATTRS(c->g, n, MOE_COMBINE)->k};
  V rows = moec_in(c->g, n, 0), d = moec_b_cast(&c->b, dy[0], moec_ty(c->g, rows).dtype);
  V in[2] = {d, other_order(c, moec_in(c->g, n, 1), 0)};
  moec_grad_add(c, rows, moec_b_op(&c->b, MOEC_OP_MOE_DISPATCH, &a, 2, in, 1));
}

/* ---- grouped dot -------------------------------------------------------------------------- */

static V grouped_dot_back(moec_grad *c, moec_node n, V dy) {
  moec_attrs_MOE_GROUPED_DOT a = {.transposed = !MOEC_ATTRS(c->g, n, MOE_GROUPED_DOT)->transposed};
  V in[3] = {dy, moec_in(c->g, n, 1), moec_in(c->g, n, 2)};
  return moec_b_op(&c->b, MOEC_OP_MOE_GROUPED_DOT, &a, 3, in, 1);
}

/* w += the outer products of |dy| and |x|, expert by expert. */
static void add_weight_gradient(moec_grad *c, moec_node n, V dy, V x) {
  bool transposed = MOEC_ATTRS(c->g, n, MOE_GROUPED_DOT)->transposed;
  V w = moec_in(c->g, n, 1), in[3] = {transposed ? dy : x, transposed ? x : dy, moec_in(c->g, n, 2)};
  if (moec_grad_wants(c, w)) moec_grad_add(c, w, moec_b_op(&c->b, MOEC_OP_MOE_GROUPED_OUTER, NULL, 3, in, 1));
}

static void add_bias_gradient(moec_grad *c, moec_node n, V dy) {
  V bias = moec_in(c->g, n, 3), in[2] = {dy, moec_in(c->g, n, 2)};
  if (moec_grad_wants(c, bias)) moec_grad_add(c, bias, moec_b_op(&c->b, MOEC_OP_MOE_GROUP_SUM, NULL, 2, in, 1));
}

void moec_grad_moe_grouped_dot(moec_grad *c, moec_node n, const V *dy) {
  V x = moec_in(c->g, n, 0);
  if (moec_grad_wants(c, x)) moec_grad_add(c, x, grouped_dot_back(c, n, dy[0]));
  add_weight_gradient(c, n, dy[0], x);
  add_bias_gradient(c, n, dy[0]);
}

/* ---- routing weights ---------------------------------------------------------------------- */

static V weighted(moec_grad *c, V rows, V w, V perm) {
  V in[3] = {rows, w, perm};
  return moec_b_op(&c->b, MOEC_OP_MOE_WEIGHT, NULL, 3, in, 1);
}

/* Inner products of equal rows, in at least f32: [N]. */
static V rowdot(moec_grad *c, V x, V y) {
  B *b = &c->b;
  moec_dtype wide = moec_wide(moec_b_ty(b, x).dtype);
  V product = moec_b_binary(b, MOEC_OP_MUL, moec_b_cast(b, x, wide), moec_b_cast(b, y, wide));
  return moec_b_reduce(b, MOEC_OP_REDUCE_SUM, product, -1, false);
}

/* One number a row, as numbers of assignments in the shape of w[T, k]. */
static void add_scores(moec_grad *c, V w, V by_row, V perm) {
  moec_type_info t = moec_ty(c->g, w);
  V by_assignment = gather_rows(&c->b, by_row, other_order(c, perm, 1));
  moec_grad_add(c, w, moec_b_cast(&c->b, moec_b_reshape(&c->b, by_assignment, t.rank, t.dims), t.dtype));
}

/* The expert of every row: how many experts end at or before it. */
static V row_experts(moec_grad *c, V rows, V offsets, moec_dim experts) {
  B *b = &c->b;
  moec_dim n = moec_b_dim(b, rows, 0);
  V ends = moec_b_slice(b, offsets, 0, moec_dim_const(c->m, 1), experts);
  V row = moec_b_unsqueeze(b, moec_b_iota(b, MOEC_I32, 1, &n, 0), -1);
  V passed = moec_b_cast(b, moec_b_binary(b, MOEC_OP_LE, ends, row), MOEC_I32);
  return moec_b_reduce(b, MOEC_OP_REDUCE_SUM, passed, 1, false);
}

/* Through the weights and fc2 at once; |fc2| is read by nothing but |n|. */
static void weight_and_fc2(moec_grad *c, moec_node n, moec_node fc2, V dy) {
  V w = moec_in(c->g, n, 1), perm = moec_in(c->g, n, 2), a = moec_in(c->g, fc2, 0), bias = moec_in(c->g, fc2, 3);
  V back = grouped_dot_back(c, fc2, dy); /* dO W2^T, not weighted */
  if (moec_grad_wants(c, w)) {
    V score = rowdot(c, back, a);
    if (bias.i) {
      V expert = row_experts(c, dy, moec_in(c->g, fc2, 2), moec_b_dim(&c->b, bias, 0));
      score = moec_b_binary(&c->b, MOEC_OP_ADD, score, rowdot(c, dy, gather_rows(&c->b, bias, expert)));
    }
    add_scores(c, w, score, perm);
  }
  if (moec_grad_wants(c, a)) moec_grad_add(c, a, weighted(c, back, w, perm));
  if (moec_grad_wants(c, moec_in(c->g, fc2, 1))) add_weight_gradient(c, fc2, dy, weighted(c, a, w, perm));
  if (moec_grad_wants(c, bias)) add_bias_gradient(c, fc2, weighted(c, dy, w, perm));
}

void moec_grad_moe_weight(moec_grad *c, moec_node n, const V *dy) {
  V x = moec_in(c->g, n, 0), w = moec_in(c->g, n, 1), perm = moec_in(c->g, n, 2);
  if (moec_def_op(c->g, x) == MOEC_OP_MOE_GROUPED_DOT && moec_uses_only(&c->uses, x).i == n.i) {
    weight_and_fc2(c, n, moec_def(c->g, x), dy[0]);
    return;
  }
  if (moec_grad_wants(c, x)) moec_grad_add(c, x, weighted(c, dy[0], w, perm));
  if (moec_grad_wants(c, w)) add_scores(c, w, rowdot(c, dy[0], x), perm);
}
