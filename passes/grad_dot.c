/* Gradients of contractions: contractions with the other operand. */
#include "passes/grad.h"

typedef moec_builder B;
typedef moec_value V;

/* Where the axes of one operand of a dot went. */
typedef struct side {
  uint32_t rank, n_free;
  int64_t free[MOEC_MAX_RANK];
  moec_ints batch, contract;
} side;

static side read_side(const moec_grad *c, V x, moec_ints batch, moec_ints contract) {
  side s = {.rank = moec_ty(c->g, x).rank, .batch = batch, .contract = contract};
  uint32_t used = 0;
  for (uint32_t i = 0; i < batch.n; i++) used |= 1u << batch.v[i];
  for (uint32_t i = 0; i < contract.n; i++) used |= 1u << contract.v[i];
  for (uint32_t i = 0; i < s.rank; i++)
    if (!(used >> i & 1)) s.free[s.n_free++] = i;
  return s;
}

static uint32_t rank_among(moec_ints list, int64_t axis) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < list.n; i++) n += list.v[i] < axis;
  return n;
}

/* Whether |v| is an f32 parameter of a bf16 model. Its product is in f32 for the sake of what reads its result: routes,
 * or a recurrence. Gradients are linear in what comes back, so its own are products like all others. */
static bool is_wide_parameter(const moec_grad *c, V v) {
  moec_op op = moec_def_op(c->g, v);
  return c->narrow && moec_ty(c->g, v).dtype == MOEC_F32 && (!moec_def(c->g, v).i || op == MOEC_OP_PARAM);
}

/* |v| as |t|: the forward graph may have that already. */
static V as(moec_grad *c, V v, moec_dtype t) {
  for (uint32_t i = 0; i < moec_uses_count(&c->uses, v); i++) {
    moec_node n = moec_uses_get(&c->uses, v, i);
    if (moec_op_of(c->g, n) == MOEC_OP_CAST && MOEC_ATTRS(c->g, n, CAST)->dtype == t) return moec_out(c->g, n, 0);
  }
  return moec_b_cast(&c->b, v, t);
}

/* The gradient of operand |a|, dy being [batch, free axes of both] with those of b from |b_at|: dy times b over b's
 * free axes gives [batch, a's free axes, b's contracted axes ascending], which is a's shape up to order. */
static V operand_gradient(moec_grad *c, const side *a, const side *b, V other, V dy, uint32_t b_at) {
  int64_t dy_batch[MOEC_MAX_RANK], dy_contract[MOEC_MAX_RANK], perm[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < a->batch.n; i++) dy_batch[i] = i;
  for (uint32_t i = 0; i < b->n_free; i++) dy_contract[i] = b_at + i;
  moec_attrs_DOT attrs = {.lhs_batch = {a->batch.n, dy_batch}, .rhs_batch = b->batch,
                          .lhs_contract = {b->n_free, dy_contract}, .rhs_contract = {b->n_free, b->free}};
  V in[2] = {dy, other}, d = moec_b_op(&c->b, MOEC_OP_DOT, &attrs, 2, in, 1);
  for (uint32_t i = 0; i < a->batch.n; i++) perm[a->batch.v[i]] = i;
  for (uint32_t i = 0; i < a->n_free; i++) perm[a->free[i]] = a->batch.n + i;
  for (uint32_t i = 0; i < a->contract.n; i++)
    perm[a->contract.v[i]] = a->batch.n + a->n_free + rank_among(b->contract, b->contract.v[i]);
  return moec_b_transpose(&c->b, d, perm);
}

void moec_grad_dot(moec_grad *c, moec_node n, const V *dy) {
  const moec_attrs_DOT *a = MOEC_ATTRS(c->g, n, DOT);
  V x = moec_in(c->g, n, 0), y = moec_in(c->g, n, 1);
  side sx = read_side(c, x, a->lhs_batch, a->lhs_contract), sy = read_side(c, y, a->rhs_batch, a->rhs_contract);
  uint32_t x_at = a->lhs_batch.n, y_at = x_at + sx.n_free;
  moec_dtype t = moec_ty(c->g, x).dtype, in = is_wide_parameter(c, x) || is_wide_parameter(c, y) ? MOEC_BF16 : t;
  V d = moec_b_cast(&c->b, dy[0], in), dx, dw;
  if (moec_grad_wants(c, x)) {
    dx = operand_gradient(c, &sx, &sy, as(c, y, in), d, y_at);
    moec_grad_add(c, x, moec_b_cast(&c->b, dx, t));
  }
  if (moec_grad_wants(c, y)) {
    dw = operand_gradient(c, &sy, &sx, as(c, x, in), d, x_at);
    moec_grad_add(c, y, moec_b_cast(&c->b, dw, t));
  }
}

/* ---- convolution -------------------------------------------------------------------------- */

/* One tap t of the kernel: y[n, g, m, o...] += sum over c of w[g, m, c, t] x[n, g, c, o*stride + t*dilation - pad]. */
typedef struct conv {
  moec_grad *c;
  const moec_attrs_CONV *a;
  V x, w, dy;                  /* x[N, C, D...], w[M, C/groups, K...], dy[N, M, O...] */
  uint32_t d;                  /* spatial axes */
  moec_dim n, cg, mg;          /* batch, channels and features a group */
  int64_t taps[MOEC_MAX_RANK]; /* kernel sizes */
} conv;

static bool read_conv(moec_grad *c, moec_node n, V dy, conv *k) {
  *k = (conv){.c = c, .a = MOEC_ATTRS(c->g, n, CONV), .x = moec_in(c->g, n, 0), .w = moec_in(c->g, n, 1), .dy = dy};
  moec_type_info t = moec_ty(c->g, k->x), w = moec_ty(c->g, k->w);
  int64_t features, all = 1;
  k->d = t.rank - 2;
  k->n = t.dims[0], k->cg = w.dims[1];
  bool fixed = moec_dim_is_const(c->m, w.dims[0], &features);
  for (uint32_t i = 0; i < k->d; i++) {
    fixed = fixed && moec_dim_is_const(c->m, w.dims[2 + i], &k->taps[i]);
    if (fixed) all *= k->taps[i];
  }
  if (!fixed || all > 4096) {
    moec_b_fail(&c->b,
                moec_error(MOEC_UNSUPPORTED, "expected a convolution kernel of a fixed size and at most 4096 taps"));
    return false;
  }
  k->mg = moec_dim_const(c->m, features / k->a->groups);
  return true;
}

/* x padded: [N, C, P...], P = D + pads. */
static V padded(const conv *k) {
  moec_dim lo[MOEC_MAX_RANK], hi[MOEC_MAX_RANK];
  lo[0] = lo[1] = hi[0] = hi[1] = moec_dim_const(k->c->m, 0);
  for (uint32_t i = 0; i < k->d; i++) {
    lo[2 + i] = moec_dim_const(k->c->m, k->a->pads.v[i]);
    hi[2 + i] = moec_dim_const(k->c->m, k->a->pads.v[k->d + i]);
  }
  moec_attrs_PAD a = {.lo = {k->d + 2, lo}, .hi = {k->d + 2, hi}};
  V in[2] = {k->x, moec_b_scalar_f(&k->c->b, moec_ty(k->c->g, k->x).dtype, 0)};
  return moec_b_op(&k->c->b, MOEC_OP_PAD, &a, 2, in, 1);
}

/* [N, groups * per, S...] as [N, groups, per, S...]. */
static V grouped(const conv *k, V v, moec_dim per) {
  moec_type_info t = moec_ty(k->c->g, v);
  moec_dim dims[MOEC_MAX_RANK + 1] = {t.dims[0], moec_dim_const(k->c->m, k->a->groups), per};
  for (uint32_t i = 0; i < k->d; i++) dims[3 + i] = t.dims[2 + i];
  return moec_b_reshape(&k->c->b, v, k->d + 3, dims);
}

/* The part of the padded input that tap |at| reads: [N, C, O...]. Also its attributes, for the way back. */
static V window(const conv *k, V from, const int64_t *at, moec_attrs_SLICE *a, moec_dim *start, moec_dim *size,
                int64_t *step) {
  moec_type_info p = moec_ty(k->c->g, from), y = moec_ty(k->c->g, k->dy);
  for (uint32_t i = 0; i < k->d + 2; i++) {
    start[i] = moec_dim_const(k->c->m, i < 2 ? 0 : at[i - 2] * k->a->dilations.v[i - 2]);
    size[i] = i < 2 ? p.dims[i] : y.dims[i];
    step[i] = i < 2 ? 1 : k->a->strides.v[i - 2];
  }
  *a = (moec_attrs_SLICE){.start = {k->d + 2, start}, .size = {k->d + 2, size}, .step = {k->d + 2, step}};
  return moec_b_op(&k->c->b, MOEC_OP_SLICE, a, 1, &from, 1);
}

/* w[M, C/groups] of one tap, as [groups, M/groups, C/groups]. */
static V tap_weights(const conv *k, const int64_t *at) {
  V w = k->w;
  for (uint32_t i = 0; i < k->d; i++) {
    w = moec_b_slice(&k->c->b, w, 2, moec_dim_const(k->c->m, at[i]), moec_dim_const(k->c->m, 1));
    w = moec_b_squeeze(&k->c->b, w, 2);
  }
  moec_dim dims[3] = {moec_dim_const(k->c->m, k->a->groups), k->mg, k->cg};
  return moec_b_reshape(&k->c->b, w, 3, dims);
}

/* dw of one tap: dy[N, G, mg, O...] with the window [N, G, cg, O...] over N and O: [G, mg, cg], as [M, cg, 1...]. */
static V tap_weight_gradient(const conv *k, V dy, V part) {
  int64_t batch[1] = {1}, contract[MOEC_MAX_RANK];
  moec_dim dims[MOEC_MAX_RANK];
  contract[0] = 0;
  for (uint32_t i = 0; i < k->d; i++) contract[1 + i] = 3 + i;
  moec_attrs_DOT a = {.lhs_batch = {1, batch}, .rhs_batch = {1, batch},
                      .lhs_contract = {k->d + 1, contract}, .rhs_contract = {k->d + 1, contract}};
  V in[2] = {dy, part}, d = moec_b_op(&k->c->b, MOEC_OP_DOT, &a, 2, in, 1);
  dims[0] = moec_ty(k->c->g, k->w).dims[0], dims[1] = k->cg;
  for (uint32_t i = 0; i < k->d; i++) dims[2 + i] = moec_dim_const(k->c->m, 1);
  return moec_b_reshape(&k->c->b, d, k->d + 2, dims);
}

/* What one tap sends back to its window: [N, C, O...]. */
static V tap_input_gradient(const conv *k, V dy, const int64_t *at) {
  int64_t lhs_batch[1] = {0}, rhs_batch[1] = {1}, lhs_contract[1] = {1}, rhs_contract[1] = {2}, perm[MOEC_MAX_RANK];
  moec_attrs_DOT a = {.lhs_batch = {1, lhs_batch}, .rhs_batch = {1, rhs_batch},
                      .lhs_contract = {1, lhs_contract}, .rhs_contract = {1, rhs_contract}};
  V in[2] = {tap_weights(k, at), dy}, d = moec_b_op(&k->c->b, MOEC_OP_DOT, &a, 2, in, 1); /* [G, cg, N, O...] */
  moec_type_info t = moec_ty(k->c->g, k->x), y = moec_ty(k->c->g, k->dy);
  moec_dim dims[MOEC_MAX_RANK] = {t.dims[0], t.dims[1]};
  perm[0] = 2, perm[1] = 0, perm[2] = 1;
  for (uint32_t i = 0; i < k->d; i++) perm[3 + i] = 3 + i, dims[2 + i] = y.dims[2 + i];
  return moec_b_reshape(&k->c->b, moec_b_transpose(&k->c->b, d, perm), k->d + 2, dims);
}

/* Counts |at| up in row-major order; false after the last tap. */
static bool next_tap(const conv *k, int64_t *at) {
  for (uint32_t i = k->d; i-- > 0;) {
    if (++at[i] < k->taps[i]) return true;
    at[i] = 0;
  }
  return false;
}

void moec_grad_conv(moec_grad *c, moec_node n, const V *dy) {
  conv k;
  if (!read_conv(c, n, dy[0], &k)) return;
  B *b = &c->b;
  V from = padded(&k), by_group = grouped(&k, k.dy, k.mg), dw = {0}, sum = {0};
  moec_type_info p = moec_ty(c->g, from);
  int64_t at[MOEC_MAX_RANK] = {0};
  V *taps = NULL;
  size_t n_taps = 0, cap = 0;
  do {
    moec_attrs_SLICE a;
    moec_dim start[MOEC_MAX_RANK], size[MOEC_MAX_RANK];
    int64_t step[MOEC_MAX_RANK];
    V part = window(&k, from, at, &a, start, size, step);
    if (b->error) return;
    if (moec_grad_wants(c, k.w)) {
      V g = tap_weight_gradient(&k, by_group, grouped(&k, part, k.cg));
      MOEC_PUSH(c->m->arena, taps, n_taps, cap, g);
    }
    if (moec_grad_wants(c, k.x)) {
      V back = moec_grad_unslice(c, tap_input_gradient(&k, by_group, at), &a, p);
      sum = sum.i ? moec_b_binary(b, MOEC_OP_ADD, sum, back) : back;
    }
  } while (!b->error && next_tap(&k, at));
  if (sum.i) { /* the padding falls off */
    moec_type_info t = moec_ty(c->g, k.x);
    for (uint32_t i = 0; i < k.d; i++)
      sum = moec_b_slice(b, sum, 2 + i, moec_dim_const(c->m, k.a->pads.v[i]), t.dims[2 + i]);
    moec_grad_add(c, k.x, sum);
  }
  if (n_taps) { /* [M, cg, taps] as [M, cg, K...] */
    moec_type_info w = moec_ty(c->g, k.w);
    for (size_t i = 0; i < n_taps; i++) {
      moec_dim dims[3] = {w.dims[0], w.dims[1], moec_dim_const(c->m, 1)};
      taps[i] = moec_b_reshape(b, taps[i], 3, dims);
    }
    dw = moec_b_reshape(b, moec_b_concat(b, (uint32_t)n_taps, taps, 2), w.rank, w.dims);
    moec_grad_add(c, k.w, dw);
  }
}
