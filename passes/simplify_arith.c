/* Rules on arithmetic. "Filled" is a value all of whose elements are one constant. */
#include <math.h>
#include <string.h>

#include "passes/simplify.h"

#define NO ((moec_value){0})

static moec_value in0(moec_simplifier *s, moec_node n) { return moec_in(s->g, n, 0); }
static moec_value in1(moec_simplifier *s, moec_node n) { return moec_in(s->g, n, 1); }
static moec_type out_type(moec_simplifier *s, moec_node n) { return moec_value_get(s->g, moec_out(s->g, n, 0))->type; }
static bool is_float(moec_simplifier *s, moec_value v) { return moec_dtype_is_float(moec_ty(s->g, v).dtype); }

/* The operand of the unary node |op| that defines |v|; {0}: another op does. */
static moec_value under(moec_simplifier *s, moec_op op, moec_value v) {
  return moec_def_op(s->g, v) == op ? moec_in(s->g, moec_def(s->g, v), 0) : NO;
}

/* Filled operands stand second. */
static moec_value filled_second(moec_simplifier *s, moec_node n) {
  moec_op op = moec_op_of(s->g, n);
  if (!moec_s_fill(s->g, in0(s, n)) || moec_s_fill(s->g, in1(s, n))) return NO;
  return moec_s_op(s, op, in1(s, n), in0(s, n));
}

/* ---- operands that change nothing ----------------------------------------------------------- */

/* x + 0: x (for x = -0 and 0 = +0 the sum is +0). */
static moec_value add_zero(moec_simplifier *s, moec_node n) { return moec_s_is(s->g, in1(s, n), 0) ? in0(s, n) : NO; }
static moec_value by_one(moec_simplifier *s, moec_node n) { return moec_s_is(s->g, in1(s, n), 1) ? in0(s, n) : NO; }

/* x * 0 in integers. */
static moec_value mul_zero(moec_simplifier *s, moec_node n) {
  return !is_float(s, in0(s, n)) && moec_s_is(s->g, in1(s, n), 0) ? in1(s, n) : NO;
}

static moec_value sub_self(moec_simplifier *s, moec_node n) {
  if (in0(s, n).i != in1(s, n).i || is_float(s, in0(s, n))) return NO;
  return moec_s_int_like(s, out_type(s, n), 0);
}

static moec_value same_operands(moec_simplifier *s, moec_node n) {
  return in0(s, n).i == in1(s, n).i ? in0(s, n) : NO;
}

/* max(x, -inf): x, NaN included. */
static moec_value max_lowest(moec_simplifier *s, moec_node n) {
  return is_float(s, in0(s, n)) && moec_s_is(s->g, in1(s, n), -INFINITY) ? in0(s, n) : NO;
}
static moec_value min_highest(moec_simplifier *s, moec_node n) {
  return is_float(s, in0(s, n)) && moec_s_is(s->g, in1(s, n), INFINITY) ? in0(s, n) : NO;
}

/* ---- negation -------------------------------------------------------------------------------- */

static moec_value neg_neg(moec_simplifier *s, moec_node n) { return under(s, MOEC_OP_NEG, in0(s, n)); }

/* x + -y: x - y, either way round. */
static moec_value add_neg(moec_simplifier *s, moec_node n) {
  moec_value y = under(s, MOEC_OP_NEG, in1(s, n));
  if (y.i) return moec_s_op(s, MOEC_OP_SUB, in0(s, n), y);
  y = under(s, MOEC_OP_NEG, in0(s, n));
  return y.i ? moec_s_op(s, MOEC_OP_SUB, in1(s, n), y) : NO;
}

static moec_value sub_neg(moec_simplifier *s, moec_node n) {
  moec_value y = under(s, MOEC_OP_NEG, in1(s, n));
  return y.i ? moec_s_op(s, MOEC_OP_ADD, in0(s, n), y) : NO;
}

/* 0 - x: -x (0 - 0 is +0, -0 is not). */
static moec_value sub_from_zero(moec_simplifier *s, moec_node n) {
  return moec_s_is(s->g, in0(s, n), 0) ? moec_s_op(s, MOEC_OP_NEG, in1(s, n), NO) : NO;
}

/* x - c: x + -c, so that sums with constants have one spelling. */
static moec_value sub_constant(moec_simplifier *s, moec_node n) {
  if (!moec_s_fill(s->g, in1(s, n))) return NO;
  return moec_s_op(s, MOEC_OP_ADD, in0(s, n), moec_s_op(s, MOEC_OP_NEG, in1(s, n), NO));
}

/* In floats: of index ramps the product is the canonical form. */
static moec_value mul_minus_one(moec_simplifier *s, moec_node n) {
  return is_float(s, in0(s, n)) && moec_s_is(s->g, in1(s, n), -1) ? moec_s_op(s, MOEC_OP_NEG, in0(s, n), NO) : NO;
}

/* ---- chains of constants --------------------------------------------------------------------- */

/* (x op c) op d: x op (c op d), in integers, whose sums and products wrap and so associate. */
static moec_value join_constants(moec_simplifier *s, moec_node n) {
  moec_op op = moec_op_of(s->g, n);
  moec_value inner = in0(s, n), d = in1(s, n);
  if (is_float(s, inner) || moec_def_op(s->g, inner) != op || !moec_s_fill(s->g, d)) return NO;
  moec_value c = moec_in(s->g, moec_def(s->g, inner), 1);
  if (!moec_s_fill(s->g, c)) return NO;
  return moec_s_op(s, op, moec_in(s->g, moec_def(s->g, inner), 0), moec_s_op(s, op, c, d));
}

/* ---- division, powers, roots ------------------------------------------------------------------ */

/* x / c for a power of two c whose reciprocal is a normal number: x * (1/c), which rounds alike. */
static moec_value div_power_of_two(moec_simplifier *s, moec_node n) {
  double c;
  int e;
  if (!is_float(s, in0(s, n)) || !moec_s_fill_float(s->g, in1(s, n), &c)) return NO;
  if (!isfinite(c) || fabs(frexp(c, &e)) != 0.5 || e < -13 || e > 14) return NO; /* normal in f16 too */
  return moec_s_op(s, MOEC_OP_MUL, in0(s, n), moec_s_number_like(s, out_type(s, n), 1 / c));
}

/* 1 / x: recip(x). */
static moec_value div_one(moec_simplifier *s, moec_node n) {
  if (!is_float(s, in0(s, n)) || !moec_s_is(s->g, in0(s, n), 1)) return NO;
  return moec_s_op(s, MOEC_OP_RECIP, in1(s, n), NO);
}

/* 1 / sqrt(x): rsqrt(x), which rounds once where the original rounds twice: up to one ulp apart. */
static moec_value recip_sqrt(moec_simplifier *s, moec_node n) {
  moec_value x = under(s, MOEC_OP_SQRT, in0(s, n));
  return x.i ? moec_s_op(s, MOEC_OP_RSQRT, x, NO) : NO;
}

/* sqrt(1 / x): the same note. For x = -0: 1/x is -inf, sqrt of it NaN, and rsqrt(-0) is -inf; a sign of zero. */
static moec_value sqrt_recip(moec_simplifier *s, moec_node n) {
  moec_value x = under(s, MOEC_OP_RECIP, in0(s, n));
  return x.i ? moec_s_op(s, MOEC_OP_RSQRT, x, NO) : NO;
}

/* Powers with a constant exponent that have an op of their own. pow(-inf, 0.5) is +inf and sqrt(-inf) NaN: exporters
 * write pow(x, 0.5) for square roots of sums of squares only, and torch compiles it so. */
static moec_value pow_constant(moec_simplifier *s, moec_node n) {
  moec_value x = in0(s, n);
  double e;
  if (!moec_s_fill_float(s->g, in1(s, n), &e)) return NO;
  if (e == 1) return x;
  if (e == 2) return moec_s_op(s, MOEC_OP_MUL, x, x);
  if (!is_float(s, x)) return NO;
  if (e == 0.5) return moec_s_op(s, MOEC_OP_SQRT, x, NO);
  if (e == -0.5) return moec_s_op(s, MOEC_OP_RSQRT, x, NO);
  if (e == -1) return moec_s_op(s, MOEC_OP_RECIP, x, NO);
  return NO;
}

/* ---- casts ------------------------------------------------------------------------------------ */

/* Bits of an integer dtype, its sign bit not counted; mantissa bits of a float. */
static int value_bits(moec_dtype t) {
  switch (t) {
    case MOEC_BOOL: return 1;
    case MOEC_F16: return 11;
    case MOEC_BF16: return 8;
    case MOEC_F32: return 24;
    case MOEC_F64: return 53;
    default: return (int)moec_dtype_get(t)->bytes * 8 - (moec_dtype_get(t)->cls == 'I');
  }
}

/* Every value of |a| is a value of |b|. */
static bool exact(moec_dtype a, moec_dtype b) {
  char ca = moec_dtype_get(a)->cls, cb = moec_dtype_get(b)->cls;
  if (a == b) return true;
  if (cb == 'B') return false;
  if (ca == 'F' && cb == 'F') return b == MOEC_F64 || (b == MOEC_F32 && a != MOEC_F64);
  if (ca == 'F' || (ca == 'I' && cb == 'U')) return false;
  return value_bits(a) <= value_bits(b) && !(b == MOEC_F16 && value_bits(a) > 11);
}

static moec_value cast_same(moec_simplifier *s, moec_node n) {
  return moec_value_get(s->g, in0(s, n))->type.i == out_type(s, n).i ? in0(s, n) : NO;
}

/* cast(cast(x: A) to B) to C, where B holds every A: cast(x) to C. Not from integers through floats to integers:
 * integers wrap and floats saturate. */
static moec_value cast_cast(moec_simplifier *s, moec_node n) {
  moec_value x = under(s, MOEC_OP_CAST, in0(s, n));
  if (!x.i) return NO;
  moec_dtype a = moec_ty(s->g, x).dtype, b = moec_ty(s->g, in0(s, n)).dtype, c = MOEC_ATTRS(s->g, n, CAST)->dtype;
  if (!exact(a, b)) return NO;
  if (!moec_dtype_is_float(a) && moec_dtype_is_float(b) && !moec_dtype_is_float(c) && c != MOEC_BOOL && !exact(a, c))
    return NO;
  return moec_b_cast(&s->b, x, c);
}

/* A cast of an index ramp is a ramp: both round the same integers. */
static moec_value cast_iota(moec_simplifier *s, moec_node n) {
  moec_dtype to = MOEC_ATTRS(s->g, n, CAST)->dtype;
  if (moec_def_op(s->g, in0(s, n)) != MOEC_OP_IOTA || to == MOEC_BOOL) return NO;
  moec_attrs_IOTA a = *MOEC_ATTRS(s->g, moec_def(s->g, in0(s, n)), IOTA);
  if (a.dtype != MOEC_I64 && !(a.dtype == MOEC_I32 && to != MOEC_I64)) return NO;
  if (value_bits(to) < 31 && !moec_dtype_is_float(to)) return NO; /* wraps where a ramp of that dtype may not */
  a.dtype = to;
  return moec_b_op(&s->b, MOEC_OP_IOTA, &a, 0, NULL, 1);
}

const moec_rule moec_rules_arith[] = {
    {"add: filled operand second", MOEC_OP_ADD, filled_second},
    {"mul: filled operand second", MOEC_OP_MUL, filled_second},
    {"max: filled operand second", MOEC_OP_MAX, filled_second},
    {"min: filled operand second", MOEC_OP_MIN, filled_second},
    {"x + 0", MOEC_OP_ADD, add_zero},
    {"x - 0", MOEC_OP_SUB, add_zero},
    {"x * 1", MOEC_OP_MUL, by_one},
    {"x / 1", MOEC_OP_DIV, by_one},
    {"x * 0", MOEC_OP_MUL, mul_zero},
    {"x - x", MOEC_OP_SUB, sub_self},
    {"max(x, x)", MOEC_OP_MAX, same_operands},
    {"min(x, x)", MOEC_OP_MIN, same_operands},
    {"max(x, -inf)", MOEC_OP_MAX, max_lowest},
    {"min(x, inf)", MOEC_OP_MIN, min_highest},
    {"-(-x)", MOEC_OP_NEG, neg_neg},
    {"x + -y", MOEC_OP_ADD, add_neg},
    {"x - -y", MOEC_OP_SUB, sub_neg},
    {"0 - x", MOEC_OP_SUB, sub_from_zero},
    {"x - constant", MOEC_OP_SUB, sub_constant},
    {"x * -1", MOEC_OP_MUL, mul_minus_one},
    {"(x + c) + d", MOEC_OP_ADD, join_constants},
    {"(x * c) * d", MOEC_OP_MUL, join_constants},
    {"x / 2^k", MOEC_OP_DIV, div_power_of_two},
    {"1 / x", MOEC_OP_DIV, div_one},
    {"1 / sqrt(x)", MOEC_OP_RECIP, recip_sqrt},
    {"sqrt(1 / x)", MOEC_OP_SQRT, sqrt_recip},
    {"pow by a constant", MOEC_OP_POW, pow_constant},
    {"cast to the same dtype", MOEC_OP_CAST, cast_same},
    {"cast of an exact cast", MOEC_OP_CAST, cast_cast},
    {"cast of iota", MOEC_OP_CAST, cast_iota},
    {0},
};
