/* Gradients of elementwise ops. */
#include <math.h>

#include "passes/grad.h"

typedef moec_builder B;
typedef moec_value V;

static V binary(B *b, moec_op op, V x, V y) { return moec_b_binary(b, op, x, y); }
static V unary(B *b, moec_op op, V x) { return moec_b_unary(b, op, x); }
static V mul(B *b, V x, V y) { return binary(b, MOEC_OP_MUL, x, y); }
static V scaled(B *b, V x, double c) { return moec_b_with(b, MOEC_OP_MUL, x, c); }
static V plus(B *b, V x, double c) { return moec_b_with(b, MOEC_OP_ADD, x, c); }
static V zero_like(B *b, V x) { return moec_b_scalar_f(b, moec_b_ty(b, x).dtype, 0); }
/* 1 - x*x and 1 + x*x under |op|. */
static V square_and(B *b, moec_op op, V x, double c) {
  return binary(b, op, moec_b_scalar_f(b, moec_b_ty(b, x).dtype, c), mul(b, x, x));
}

/* ---- slopes of functions of one operand: y = f(x), dx = dy * slope ------------------------------ */

static V slope_neg(B *b, V x, V y) { return (void)y, moec_b_scalar_f(b, moec_b_ty(b, x).dtype, -1); }
static V slope_abs(B *b, V x, V y) { return (void)y, unary(b, MOEC_OP_SIGN, x); }
static V slope_exp(B *b, V x, V y) { return (void)b, (void)x, y; }
static V slope_expm1(B *b, V x, V y) { return (void)x, plus(b, y, 1); }
static V slope_log(B *b, V x, V y) { return (void)y, unary(b, MOEC_OP_RECIP, x); }
static V slope_log1p(B *b, V x, V y) { return (void)y, unary(b, MOEC_OP_RECIP, plus(b, x, 1)); }
static V slope_sqrt(B *b, V x, V y) { return (void)x, unary(b, MOEC_OP_RECIP, scaled(b, y, 2)); }
static V slope_rsqrt(B *b, V x, V y) { return (void)x, scaled(b, mul(b, y, mul(b, y, y)), -0.5); }
static V slope_recip(B *b, V x, V y) { return (void)x, unary(b, MOEC_OP_NEG, mul(b, y, y)); }
static V slope_sin(B *b, V x, V y) { return (void)y, unary(b, MOEC_OP_COS, x); }
static V slope_cos(B *b, V x, V y) { return (void)y, unary(b, MOEC_OP_NEG, unary(b, MOEC_OP_SIN, x)); }
static V slope_tan(B *b, V x, V y) { return (void)x, square_and(b, MOEC_OP_ADD, y, 1); }
static V slope_asin(B *b, V x, V y) { return (void)y, unary(b, MOEC_OP_RSQRT, square_and(b, MOEC_OP_SUB, x, 1)); }
static V slope_acos(B *b, V x, V y) { return unary(b, MOEC_OP_NEG, slope_asin(b, x, y)); }
static V slope_atan(B *b, V x, V y) { return (void)y, unary(b, MOEC_OP_RECIP, square_and(b, MOEC_OP_ADD, x, 1)); }
static V slope_sinh(B *b, V x, V y) { return (void)y, unary(b, MOEC_OP_COSH, x); }
static V slope_cosh(B *b, V x, V y) { return (void)y, unary(b, MOEC_OP_SINH, x); }
static V slope_asinh(B *b, V x, V y) { return (void)y, unary(b, MOEC_OP_RSQRT, square_and(b, MOEC_OP_ADD, x, 1)); }
static V slope_acosh(B *b, V x, V y) { return (void)y, unary(b, MOEC_OP_RSQRT, plus(b, mul(b, x, x), -1)); }
static V slope_atanh(B *b, V x, V y) { return (void)y, unary(b, MOEC_OP_RECIP, square_and(b, MOEC_OP_SUB, x, 1)); }
static V slope_tanh(B *b, V x, V y) { return (void)x, square_and(b, MOEC_OP_SUB, y, 1); }
static V slope_sigmoid(B *b, V x, V y) { return (void)x, binary(b, MOEC_OP_SUB, y, mul(b, y, y)); }
static V slope_erf(B *b, V x, V y) { /* 2/sqrt(pi) exp(-x*x) */
  (void)y;
  return scaled(b, unary(b, MOEC_OP_EXP, unary(b, MOEC_OP_NEG, mul(b, x, x))), 2 / sqrt(acos(-1.0)));
}

static V (*const slopes[MOEC_OP_COUNT])(B *b, V x, V y) = {
    [MOEC_OP_NEG] = slope_neg,     [MOEC_OP_ABS] = slope_abs,     [MOEC_OP_EXP] = slope_exp,
    [MOEC_OP_EXPM1] = slope_expm1, [MOEC_OP_LOG] = slope_log,     [MOEC_OP_LOG1P] = slope_log1p,
    [MOEC_OP_SQRT] = slope_sqrt,   [MOEC_OP_RSQRT] = slope_rsqrt, [MOEC_OP_RECIP] = slope_recip,
    [MOEC_OP_SIN] = slope_sin,     [MOEC_OP_COS] = slope_cos,     [MOEC_OP_TAN] = slope_tan,
    [MOEC_OP_ASIN] = slope_asin,   [MOEC_OP_ACOS] = slope_acos,   [MOEC_OP_ATAN] = slope_atan,
    [MOEC_OP_SINH] = slope_sinh,   [MOEC_OP_COSH] = slope_cosh,   [MOEC_OP_ASINH] = slope_asinh,
    [MOEC_OP_ACOSH] = slope_acosh, [MOEC_OP_ATANH] = slope_atanh, [MOEC_OP_TANH] = slope_tanh,
    [MOEC_OP_SIGMOID] = slope_sigmoid, [MOEC_OP_ERF] = slope_erf,
};

void moec_grad_unary(moec_grad *c, moec_node n, const V *dy) {
  V x = moec_in(c->g, n, 0), y = moec_out(c->g, n, 0);
  moec_grad_add(c, x, mul(&c->b, dy[0], slopes[moec_op_of(c->g, n)](&c->b, x, y)));
}

/* ---- two operands ------------------------------------------------------------------------- */

void moec_grad_sum(moec_grad *c, moec_node n, const V *dy) {
  moec_grad_add(c, moec_in(c->g, n, 0), dy[0]);
  moec_grad_add(c, moec_in(c->g, n, 1), dy[0]);
}

void moec_grad_difference(moec_grad *c, moec_node n, const V *dy) {
  moec_grad_add(c, moec_in(c->g, n, 0), dy[0]);
  if (moec_grad_wants(c, moec_in(c->g, n, 1))) moec_grad_add(c, moec_in(c->g, n, 1), unary(&c->b, MOEC_OP_NEG, dy[0]));
}

void moec_grad_product(moec_grad *c, moec_node n, const V *dy) {
  V x = moec_in(c->g, n, 0), y = moec_in(c->g, n, 1);
  if (moec_grad_wants(c, x)) moec_grad_add(c, x, mul(&c->b, dy[0], y));
  if (moec_grad_wants(c, y)) moec_grad_add(c, y, mul(&c->b, dy[0], x));
}

/* q = x / y: dx = dy / y, dy = -dq * q / y. */
void moec_grad_quotient(moec_grad *c, moec_node n, const V *dy) {
  V x = moec_in(c->g, n, 0), y = moec_in(c->g, n, 1), q = moec_out(c->g, n, 0);
  V part = binary(&c->b, MOEC_OP_DIV, dy[0], y);
  moec_grad_add(c, x, part);
  if (moec_grad_wants(c, y)) moec_grad_add(c, y, unary(&c->b, MOEC_OP_NEG, mul(&c->b, part, q)));
}

/* x^p: dx = dy * p * x^(p-1), 0 where p is 0; dp = dy * x^p * log x, 0 where x is 0 and p is not negative. */
void moec_grad_power(moec_grad *c, moec_node n, const V *dy) {
  B *b = &c->b;
  V x = moec_in(c->g, n, 0), p = moec_in(c->g, n, 1), y = moec_out(c->g, n, 0), zero = zero_like(b, x);
  if (moec_grad_wants(c, x)) {
    V slope = mul(b, p, binary(b, MOEC_OP_POW, x, plus(b, p, -1)));
    moec_grad_add(c, x, mul(b, dy[0], moec_b_select(b, binary(b, MOEC_OP_EQ, p, zero), zero, slope)));
  }
  if (moec_grad_wants(c, p)) {
    V flat = binary(b, MOEC_OP_AND, binary(b, MOEC_OP_EQ, x, zero), binary(b, MOEC_OP_GE, p, zero));
    moec_grad_add(c, p, mul(b, dy[0], moec_b_select(b, flat, zero, mul(b, y, unary(b, MOEC_OP_LOG, x)))));
  }
}

/* mod and rem: x - y * q with a stepwise constant quotient q = (x - r) / y. */
void moec_grad_remainder(moec_grad *c, moec_node n, const V *dy) {
  B *b = &c->b;
  V x = moec_in(c->g, n, 0), y = moec_in(c->g, n, 1), r = moec_out(c->g, n, 0);
  moec_grad_add(c, x, dy[0]);
  if (!moec_grad_wants(c, y)) return;
  V q = unary(b, MOEC_OP_ROUND, binary(b, MOEC_OP_DIV, binary(b, MOEC_OP_SUB, x, r), y));
  moec_grad_add(c, y, unary(b, MOEC_OP_NEG, mul(b, dy[0], q)));
}

/* The larger (smaller) operand gets it; equal ones share, as in torch.maximum. */
void moec_grad_max_min(moec_grad *c, moec_node n, const V *dy) {
  B *b = &c->b;
  V in[2] = {moec_in(c->g, n, 0), moec_in(c->g, n, 1)}, zero = zero_like(b, dy[0]), half = scaled(b, dy[0], 0.5);
  moec_op wins = moec_op_of(c->g, n) == MOEC_OP_MAX ? MOEC_OP_GT : MOEC_OP_LT;
  V equal = binary(b, MOEC_OP_EQ, in[0], in[1]);
  for (int i = 0; i < 2; i++) {
    if (!moec_grad_wants(c, in[i])) continue;
    V rest = moec_b_select(b, equal, half, zero);
    moec_grad_add(c, in[i], moec_b_select(b, binary(b, wins, in[i], in[!i]), dy[0], rest));
  }
}

void moec_grad_select(moec_grad *c, moec_node n, const V *dy) {
  V cond = moec_in(c->g, n, 0), x = moec_in(c->g, n, 1), y = moec_in(c->g, n, 2), zero = zero_like(&c->b, dy[0]);
  if (moec_grad_wants(c, x)) moec_grad_add(c, x, moec_b_select(&c->b, cond, dy[0], zero));
  if (moec_grad_wants(c, y)) moec_grad_add(c, y, moec_b_select(&c->b, cond, zero, dy[0]));
}

void moec_grad_cast(moec_grad *c, moec_node n, const V *dy) {
  V x = moec_in(c->g, n, 0);
  if (moec_grad_wants(c, x)) moec_grad_add(c, x, moec_b_cast(&c->b, dy[0], moec_ty(c->g, x).dtype));
}
