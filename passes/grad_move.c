/* Gradients of reductions, scans and movement: sums where elements were repeated, zeros where they were dropped. */
#include "passes/grad.h"

typedef moec_builder B;
typedef moec_value V;

static moec_dim size_at(const moec_grad *c, V v, uint32_t axis) { return moec_ty(c->g, v).dims[axis]; }
static V zero_of(moec_grad *c, V like) { return moec_b_scalar_f(&c->b, moec_ty(c->g, like).dtype, 0); }

static V reduce_axes(B *b, moec_op op, V x, uint32_t n, const int64_t *axes) {
  moec_attrs_REDUCE_SUM a = {.axes = {n, axes}}; /* the four structs are alike */
  return n ? moec_b_op(b, op, &a, 1, &x, 1) : x;
}

/* |v| of a reduction of x over |axes|, repeated to x's shape. */
static V spread(moec_grad *c, V v, V x, moec_ints axes) {
  moec_type_info t = moec_ty(c->g, x);
  int64_t map[MOEC_MAX_RANK];
  uint32_t n = 0, k = 0;
  for (uint32_t i = 0; i < t.rank; i++) {
    if (k < axes.n && axes.v[k] == i) k++;
    else map[n++] = i;
  }
  moec_attrs_BROADCAST a = {.shape = {t.rank, t.dims}, .map = {n, map}};
  return axes.n ? moec_b_op(&c->b, MOEC_OP_BROADCAST, &a, 1, &v, 1) : v;
}

/* ---- reductions --------------------------------------------------------------------------- */

void moec_grad_reduce_sum(moec_grad *c, moec_node n, const V *dy) {
  V x = moec_in(c->g, n, 0);
  moec_grad_add(c, x, spread(c, dy[0], x, MOEC_ATTRS(c->g, n, REDUCE_SUM)->axes));
}

/* Equal extremes share alike, as in torch.amax. */
void moec_grad_reduce_max_min(moec_grad *c, moec_node n, const V *dy) {
  B *b = &c->b;
  V x = moec_in(c->g, n, 0);
  moec_ints axes = MOEC_ATTRS(c->g, n, REDUCE_MAX)->axes;
  V hit = moec_b_binary(b, MOEC_OP_EQ, x, spread(c, moec_out(c->g, n, 0), x, axes));
  V share = moec_b_cast(b, hit, moec_ty(c->g, x).dtype);
  V count = spread(c, reduce_axes(b, MOEC_OP_REDUCE_SUM, share, axes.n, axes.v), x, axes);
  V part = moec_b_binary(b, MOEC_OP_DIV, spread(c, dy[0], x, axes), count);
  moec_grad_add(c, x, moec_b_select(b, hit, part, zero_of(c, x)));
}

/* x [..., D] over its last axis: the product of all elements but one, for each, without dividing by it. */
static V others(moec_grad *c, V x) {
  B *b = &c->b;
  moec_type_info t = moec_ty(c->g, x);
  moec_dim dims[MOEC_MAX_RANK + 1];
  int64_t map[MOEC_MAX_RANK];
  moec_dim d = t.dims[t.rank - 1];
  for (uint32_t i = 0; i < t.rank; i++) dims[i] = t.dims[i], map[i] = i + 1 == t.rank ? i + 1 : i;
  dims[t.rank] = d;
  moec_attrs_BROADCAST a = {.shape = {t.rank + 1, dims}, .map = {t.rank, map}};
  V all = moec_b_op(b, MOEC_OP_BROADCAST, &a, 1, &x, 1); /* [..., i, j] = x_j */
  moec_dim square[2] = {d, d};
  V self = moec_b_binary(b, MOEC_OP_EQ, moec_b_iota(b, MOEC_I64, 2, square, 0), moec_b_iota(b, MOEC_I64, 2, square, 1));
  all = moec_b_select(b, self, moec_b_scalar_f(b, t.dtype, 1), all);
  return moec_b_reduce(b, MOEC_OP_REDUCE_PROD, all, -1, false);
}

/* The reduced axes as one, the last: [kept..., D]; |perm| says how. */
static V reduced_last(moec_grad *c, V x, moec_ints axes, int64_t *perm) {
  moec_type_info t = moec_ty(c->g, x);
  moec_dim dims[MOEC_MAX_RANK], d = moec_dim_const(c->m, 1);
  uint32_t n = 0, k = 0;
  for (uint32_t i = 0; i < t.rank; i++) {
    if (k < axes.n && axes.v[k] == i) k++, d = moec_dim_mul(c->m, d, t.dims[i]);
    else dims[n] = t.dims[i], perm[n++] = i;
  }
  dims[n] = d;
  for (uint32_t i = 0; i < axes.n; i++) perm[n + i] = axes.v[i];
  return moec_b_reshape(&c->b, moec_b_transpose(&c->b, x, perm), n + 1, dims);
}

void moec_grad_reduce_prod(moec_grad *c, moec_node n, const V *dy) {
  B *b = &c->b;
  V x = moec_in(c->g, n, 0);
  moec_ints axes = MOEC_ATTRS(c->g, n, REDUCE_PROD)->axes;
  moec_type_info t = moec_ty(c->g, x);
  int64_t perm[MOEC_MAX_RANK], back[MOEC_MAX_RANK];
  moec_dim moved[MOEC_MAX_RANK];
  if (axes.n == 0) {
    moec_grad_add(c, x, dy[0]);
    return;
  }
  V flat = reduced_last(c, x, axes, perm);
  V dx = moec_b_binary(b, MOEC_OP_MUL, others(c, flat), moec_b_unsqueeze(b, dy[0], -1));
  for (uint32_t i = 0; i < t.rank; i++) moved[i] = t.dims[perm[i]], back[perm[i]] = i;
  moec_grad_add(c, x, moec_b_transpose(b, moec_b_reshape(b, dx, t.rank, moved), back));
}

void moec_grad_cumsum(moec_grad *c, moec_node n, const V *dy) {
  moec_attrs_CUMSUM a = *MOEC_ATTRS(c->g, n, CUMSUM);
  a.reverse = !a.reverse;
  moec_grad_add(c, moec_in(c->g, n, 0), moec_b_op(&c->b, MOEC_OP_CUMSUM, &a, 1, dy, 1));
}

/* ---- movement ----------------------------------------------------------------------------- */

void moec_grad_reshape(moec_grad *c, moec_node n, const V *dy) {
  moec_type_info t = moec_ty(c->g, moec_in(c->g, n, 0));
  moec_grad_add(c, moec_in(c->g, n, 0), moec_b_reshape(&c->b, dy[0], t.rank, t.dims));
}

void moec_grad_transpose(moec_grad *c, moec_node n, const V *dy) {
  moec_ints perm = MOEC_ATTRS(c->g, n, TRANSPOSE)->perm;
  int64_t back[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < perm.n; i++) back[perm.v[i]] = i;
  moec_grad_add(c, moec_in(c->g, n, 0), moec_b_transpose(&c->b, dy[0], back));
}

void moec_grad_broadcast(moec_grad *c, moec_node n, const V *dy) {
  V x = moec_in(c->g, n, 0);
  moec_ints map = MOEC_ATTRS(c->g, n, BROADCAST)->map;
  moec_type_info t = moec_ty(c->g, x), y = moec_ty(c->g, dy[0]);
  int64_t axes[MOEC_MAX_RANK];
  uint32_t n_axes = 0, k = 0;
  for (uint32_t i = 0; i < y.rank; i++) {
    bool kept = k < map.n && map.v[k] == i && moec_dim_eq(t.dims[k], y.dims[i]);
    if (k < map.n && map.v[k] == i) k++;
    if (!kept) axes[n_axes++] = i;
  }
  V sum = reduce_axes(&c->b, MOEC_OP_REDUCE_SUM, dy[0], n_axes, axes);
  moec_grad_add(c, x, moec_b_reshape(&c->b, sum, t.rank, t.dims)); /* axes of size 1 come back */
}

/* Elements |step| apart along |axis|: zeros between them, none behind the last. */
static V dilate(moec_grad *c, V v, uint32_t axis, int64_t step) {
  moec_module *m = c->m;
  moec_type_info t = moec_ty(c->g, v);
  moec_dim lo[MOEC_MAX_RANK + 1], hi[MOEC_MAX_RANK + 1], dims[MOEC_MAX_RANK];
  V wide = moec_b_unsqueeze(&c->b, v, axis + 1), in[2] = {wide, zero_of(c, v)};
  for (uint32_t i = 0; i <= t.rank; i++) lo[i] = hi[i] = moec_dim_const(m, 0);
  hi[axis + 1] = moec_dim_const(m, step - 1);
  moec_attrs_PAD a = {.lo = {t.rank + 1, lo}, .hi = {t.rank + 1, hi}};
  for (uint32_t i = 0; i < t.rank; i++) dims[i] = t.dims[i];
  dims[axis] = moec_dim_mul(m, dims[axis], moec_dim_const(m, step));
  V y = moec_b_reshape(&c->b, moec_b_op(&c->b, MOEC_OP_PAD, &a, 2, in, 1), t.rank, dims);
  return moec_b_slice(&c->b, y, axis, moec_dim_const(m, 0), moec_dim_sub(m, dims[axis], moec_dim_const(m, step - 1)));
}

V moec_grad_unslice(moec_grad *c, V d, const moec_attrs_SLICE *a, moec_type_info to) {
  moec_dim hi[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < to.rank; i++)
    if (a->step.v[i] != 1 && !moec_dim_is(c->m, a->size.v[i], 0)) d = dilate(c, d, i, a->step.v[i]);
  for (uint32_t i = 0; i < to.rank && !c->b.error; i++)
    hi[i] = moec_dim_sub(c->m, moec_dim_sub(c->m, to.dims[i], a->start.v[i]), size_at(c, d, i));
  moec_attrs_PAD pad = {.lo = a->start, .hi = {to.rank, hi}};
  V in[2] = {d, zero_of(c, d)};
  return moec_b_op(&c->b, MOEC_OP_PAD, &pad, 2, in, 1);
}

void moec_grad_slice(moec_grad *c, moec_node n, const V *dy) {
  V x = moec_in(c->g, n, 0);
  moec_grad_add(c, x, moec_grad_unslice(c, dy[0], MOEC_ATTRS(c->g, n, SLICE), moec_ty(c->g, x)));
}

void moec_grad_pad(moec_grad *c, moec_node n, const V *dy) {
  const moec_attrs_PAD *a = MOEC_ATTRS(c->g, n, PAD);
  V x = moec_in(c->g, n, 0), fill = moec_in(c->g, n, 1);
  moec_type_info t = moec_ty(c->g, x);
  int64_t ones[MOEC_MAX_RANK], axes[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < t.rank; i++) ones[i] = 1, axes[i] = i;
  moec_attrs_SLICE s = {.start = a->lo, .size = {t.rank, t.dims}, .step = {t.rank, ones}};
  V inner = moec_b_op(&c->b, MOEC_OP_SLICE, &s, 1, dy, 1);
  moec_grad_add(c, x, inner);
  if (!moec_grad_wants(c, fill)) return;
  V all = reduce_axes(&c->b, MOEC_OP_REDUCE_SUM, dy[0], t.rank, axes);
  V used = reduce_axes(&c->b, MOEC_OP_REDUCE_SUM, inner, t.rank, axes);
  moec_grad_add(c, fill, moec_b_binary(&c->b, MOEC_OP_SUB, all, used));
}

void moec_grad_concat(moec_grad *c, moec_node n, const V *dy) {
  int64_t axis = MOEC_ATTRS(c->g, n, CONCAT)->axis;
  moec_dim at = moec_dim_const(c->m, 0);
  for (uint32_t i = 0; i < moec_node_get(c->g, n)->n_in; i++) {
    V x = moec_in(c->g, n, i);
    moec_dim size = size_at(c, x, (uint32_t)axis);
    if (moec_grad_wants(c, x)) moec_grad_add(c, x, moec_b_slice(&c->b, dy[0], axis, at, size));
    at = moec_dim_add(c->m, at, size);
  }
}

void moec_grad_reverse(moec_grad *c, moec_node n, const V *dy) {
  moec_grad_add(c, moec_in(c->g, n, 0), moec_b_op(&c->b, MOEC_OP_REVERSE, moec_node_get(c->g, n)->attrs, 1, dy, 1));
}
