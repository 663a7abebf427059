/* Gradients of the composites of dense layers, in closed form. Others are differentiated through their bodies. */
#include "passes/grad.h"

typedef moec_builder B;
typedef moec_value V;

static V binary(B *b, moec_op op, V x, V y) { return moec_b_binary(b, op, x, y); }
static V mul(B *b, V x, V y) { return binary(b, MOEC_OP_MUL, x, y); }
static V sub(B *b, V x, V y) { return binary(b, MOEC_OP_SUB, x, y); }
static V sum_last(B *b, V x) { return moec_b_reduce(b, MOEC_OP_REDUCE_SUM, x, -1, true); }

/* The sum of |x| over all axes but its last |keep|. */
static V sum_leading(B *b, V x, uint32_t keep) {
  int64_t axes[MOEC_MAX_RANK];
  uint32_t n = moec_b_ty(b, x).rank - keep;
  for (uint32_t i = 0; i < n; i++) axes[i] = i;
  moec_attrs_REDUCE_SUM a = {.axes = {n, axes}};
  return n ? moec_b_op(b, MOEC_OP_REDUCE_SUM, &a, 1, &x, 1) : x;
}

/* dx = y * (dy - sum(dy * y)). */
void moec_grad_softmax(moec_grad *c, moec_node n, const V *dy) {
  B *b = &c->b;
  V x = moec_in(c->g, n, 0);
  int64_t axis = MOEC_ATTRS(c->g, n, SOFTMAX)->axis;
  moec_dtype t = moec_ty(c->g, x).dtype, wide = moec_wide(t);
  V y = moec_b_cast(b, moec_out(c->g, n, 0), wide), d = moec_b_cast(b, dy[0], wide);
  V mean = moec_b_reduce(b, MOEC_OP_REDUCE_SUM, mul(b, d, y), axis, true);
  moec_grad_add(c, x, moec_b_cast(b, mul(b, y, sub(b, d, mean)), t));
}

/* y = x r w, r = (mean(x^2) + eps)^-1/2. With h = x r and g = dy w:
 *   dx = r (g - h mean(g h)) - dr r^3 x / D,   dw = sum over rows of dy h. */
void moec_grad_rms_norm(moec_grad *c, moec_node n, const V *dy) {
  B *b = &c->b;
  V in = moec_in(c->g, n, 0), w = moec_in(c->g, n, 1), dx = {0};
  moec_dtype t = moec_ty(c->g, in).dtype, wide = moec_wide(t);
  V x = moec_b_cast(b, in, wide);
  V size = moec_b_cast(b, moec_b_size(b, moec_b_dim(b, x, -1)), wide);
  V mean = binary(b, MOEC_OP_DIV, sum_last(b, mul(b, x, x)), size);
  V r = moec_b_unary(b, MOEC_OP_RSQRT, moec_b_with(b, MOEC_OP_ADD, mean, MOEC_ATTRS(c->g, n, RMS_NORM)->eps));
  if (dy[0].i) {
    V d = moec_b_cast(b, dy[0], wide), h = mul(b, x, r);
    V g = w.i ? mul(b, d, moec_b_cast(b, w, wide)) : d;
    dx = mul(b, r, sub(b, g, mul(b, h, binary(b, MOEC_OP_DIV, sum_last(b, mul(b, g, h)), size))));
    if (moec_grad_wants(c, w))
      moec_grad_add(c, w, moec_b_cast(b, sum_leading(b, mul(b, d, h), 1), moec_ty(c->g, w).dtype));
  }
  if (moec_node_get(c->g, n)->n_out > 1 && dy[1].i) {
    V r3 = mul(b, r, mul(b, r, r)), d = mul(b, moec_b_cast(b, dy[1], wide), binary(b, MOEC_OP_DIV, r3, size));
    V part = moec_b_unary(b, MOEC_OP_NEG, mul(b, x, d));
    dx = dx.i ? binary(b, MOEC_OP_ADD, dx, part) : part;
  }
  if (moec_grad_wants(c, in)) moec_grad_add(c, in, moec_b_cast(b, dx, t));
}

/* A rotation's adjoint is the rotation back. */
void moec_grad_rope(moec_grad *c, moec_node n, const V *dy) {
  const moec_attrs_ROPE *a = MOEC_ATTRS(c->g, n, ROPE);
  moec_attrs_ROPE back = {.pairs_in = a->pairs_out, .pairs_out = a->pairs_in};
  V in[3] = {dy[0], moec_in(c->g, n, 1), moec_b_unary(&c->b, MOEC_OP_NEG, moec_in(c->g, n, 2))};
  moec_grad_add(c, moec_in(c->g, n, 0), moec_b_op(&c->b, MOEC_OP_ROPE, &back, 3, in, 1));
}

/* Where |x| lies inside the limits; |low|: below too. */
static V inside(B *b, V x, double limit, bool low) {
  V at = moec_b_scalar_f(b, moec_b_ty(b, x).dtype, limit);
  V ok = binary(b, MOEC_OP_LE, x, at);
  return low ? binary(b, MOEC_OP_AND, ok, binary(b, MOEC_OP_GE, x, moec_b_unary(b, MOEC_OP_NEG, at))) : ok;
}

/* y = g' s (u' + beta), s = sigmoid(alpha g'): dg' = dy (u' + beta) s (1 + alpha g' (1 - s)), du' = dy g' s. */
void moec_grad_swiglu(moec_grad *c, moec_node n, const V *dy) {
  B *b = &c->b;
  const moec_attrs_SWIGLU *a = MOEC_ATTRS(c->g, n, SWIGLU);
  V g_in = moec_in(c->g, n, 0), u_in = moec_in(c->g, n, 1), g = g_in, u = u_in;
  V zero = moec_b_scalar_f(b, moec_ty(c->g, g).dtype, 0), one = moec_b_scalar_f(b, moec_ty(c->g, g).dtype, 1);
  if (a->limit > 0) {
    g = moec_b_with(b, MOEC_OP_MIN, g, a->limit);
    u = moec_b_with(b, MOEC_OP_MAX, moec_b_with(b, MOEC_OP_MIN, u, a->limit), -a->limit);
  }
  V scaled = a->alpha == 1 ? g : moec_b_with(b, MOEC_OP_MUL, g, a->alpha);
  V s = moec_b_unary(b, MOEC_OP_SIGMOID, scaled), du = mul(b, dy[0], mul(b, g, s));
  V up = a->beta == 0 ? u : moec_b_with(b, MOEC_OP_ADD, u, a->beta);
  V slope = mul(b, s, binary(b, MOEC_OP_ADD, one, mul(b, scaled, sub(b, one, s))));
  V dg = mul(b, mul(b, dy[0], up), slope);
  if (a->limit > 0) {
    dg = moec_b_select(b, inside(b, g_in, a->limit, false), dg, zero);
    du = moec_b_select(b, inside(b, u_in, a->limit, true), du, zero);
  }
  moec_grad_add(c, g_in, dg);
  moec_grad_add(c, u_in, du);
}

void moec_grad_attention(moec_grad *c, moec_node n, const V *dy) {
  const moec_attrs_ATTENTION *a = MOEC_ATTRS(c->g, n, ATTENTION);
  moec_attrs_ATTENTION_GRAD back = {.scale = a->scale, .softcap = a->softcap, .causal = a->causal};
  V sink = moec_in(c->g, n, 4);
  V in[8] = {moec_in(c->g, n, 0), moec_in(c->g, n, 1), moec_in(c->g, n, 2), moec_in(c->g, n, 3), sink,
             moec_out(c->g, n, 0), moec_out(c->g, n, 1), dy[0]};
  bool with_sink = moec_grad_wants(c, sink);
  V dq = moec_b_op(&c->b, MOEC_OP_ATTENTION_GRAD, &back, 8, in, with_sink ? 4 : 3);
  if (c->b.error) return;
  moec_node made = moec_def(c->g, dq);
  for (uint32_t i = 0; i < 3; i++) moec_grad_add(c, in[i], moec_out(c->g, made, i));
  if (with_sink) moec_grad_add(c, sink, moec_out(c->g, made, 3));
}

/* dlogits = p (dnll + dlse) - dnll at the label, p = exp(logits - lse); an ignored row has no nll. */
void moec_grad_cross_entropy(moec_grad *c, moec_node n, const V *dy) {
  B *b = &c->b;
  V in = moec_in(c->g, n, 0), labels = moec_in(c->g, n, 1), lse = {0};
  moec_dtype t = moec_ty(c->g, in).dtype, label_t = moec_ty(c->g, labels).dtype;
  moec_attrs_CROSS_ENTROPY a = *MOEC_ATTRS(c->g, n, CROSS_ENTROPY);
  V x = moec_b_cast(b, in, moec_wide(t)), zero = moec_b_scalar_f(b, moec_wide(t), 0), d = {0},
    operands[2] = {in, labels};
  bool has_lse = moec_node_get(c->g, n)->n_out > 1;
  V again = has_lse ? moec_out(c->g, n, 0) : moec_b_op(b, MOEC_OP_CROSS_ENTROPY, &a, 2, operands, 2);
  if (b->error) return;
  lse = moec_b_unsqueeze(b, moec_b_cast(b, moec_out(c->g, moec_def(c->g, again), 1), moec_wide(t)), -1);
  V p = moec_b_unary(b, MOEC_OP_EXP, sub(b, x, lse));
  if (dy[0].i) {
    V counted = binary(b, MOEC_OP_NE, labels, moec_b_scalar_i(b, label_t, a.ignore));
    V row = moec_b_select(b, counted, moec_b_cast(b, dy[0], moec_wide(t)), zero);
    moec_dim vocab = moec_b_dim(b, x, -1);
    V hit = binary(b, MOEC_OP_EQ, moec_b_unsqueeze(b, labels, -1), moec_b_iota(b, label_t, 1, &vocab, 0));
    V at_label = moec_b_select(b, hit, moec_b_scalar_f(b, moec_wide(t), 1), zero);
    d = mul(b, moec_b_unsqueeze(b, row, -1), sub(b, p, at_label));
  }
  if (has_lse && dy[1].i) {
    V part = mul(b, p, moec_b_unsqueeze(b, moec_b_cast(b, dy[1], moec_wide(t)), -1));
    d = d.i ? binary(b, MOEC_OP_ADD, d, part) : part;
  }
  moec_grad_add(c, in, moec_b_cast(b, d, t));
}
