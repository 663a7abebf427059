/* Rules on comparisons, bools and select. */
#include "passes/simplify.h"

#define NO ((moec_value){0})

static moec_value in0(moec_simplifier *s, moec_node n) { return moec_in(s->g, n, 0); }
static moec_value in1(moec_simplifier *s, moec_node n) { return moec_in(s->g, n, 1); }
static moec_value in2(moec_simplifier *s, moec_node n) { return moec_in(s->g, n, 2); }
static moec_dtype dtype(moec_simplifier *s, moec_value v) { return moec_ty(s->g, v).dtype; }
static bool is_true(moec_simplifier *s, moec_value v) { return dtype(s, v) == MOEC_BOOL && moec_s_is(s->g, v, 1); }
static bool is_false(moec_simplifier *s, moec_value v) { return dtype(s, v) == MOEC_BOOL && moec_s_is(s->g, v, 0); }
static moec_value negate(moec_simplifier *s, moec_value v) { return moec_s_op(s, MOEC_OP_NOT, v, NO); }

/* ---- comparisons ------------------------------------------------------------------------------ */

/* The comparison that holds for (y, x) where |op| holds for (x, y). */
static moec_op mirrored(moec_op op) {
  switch (op) {
    case MOEC_OP_LT: return MOEC_OP_GT;
    case MOEC_OP_LE: return MOEC_OP_GE;
    case MOEC_OP_GT: return MOEC_OP_LT;
    case MOEC_OP_GE: return MOEC_OP_LE;
    default: return op;
  }
}

/* The comparison that holds where |op| does not; NONE for floats where NaN makes both false. */
static moec_op inverse(moec_op op, bool floats) {
  switch (op) {
    case MOEC_OP_EQ: return MOEC_OP_NE;
    case MOEC_OP_NE: return MOEC_OP_EQ;
    case MOEC_OP_LT: return floats ? MOEC_OP_NONE : MOEC_OP_GE;
    case MOEC_OP_LE: return floats ? MOEC_OP_NONE : MOEC_OP_GT;
    case MOEC_OP_GT: return floats ? MOEC_OP_NONE : MOEC_OP_LE;
    case MOEC_OP_GE: return floats ? MOEC_OP_NONE : MOEC_OP_LT;
    default: return MOEC_OP_NONE;
  }
}

/* A filled operand stands second. */
static moec_value filled_second(moec_simplifier *s, moec_node n) {
  if (!moec_s_fill(s->g, in0(s, n)) || moec_s_fill(s->g, in1(s, n))) return NO;
  return moec_s_op(s, mirrored(moec_op_of(s->g, n)), in1(s, n), in0(s, n));
}

/* x > y between computed values: y < x. */
static moec_value less_only(moec_simplifier *s, moec_node n) {
  if (moec_s_fill(s->g, in1(s, n))) return NO;
  return moec_s_op(s, mirrored(moec_op_of(s->g, n)), in1(s, n), in0(s, n));
}

/* x == x and so on, in what has no NaN. */
static moec_value compare_self(moec_simplifier *s, moec_node n) {
  moec_op op = moec_op_of(s->g, n);
  if (in0(s, n).i != in1(s, n).i || moec_dtype_is_float(dtype(s, in0(s, n)))) return NO;
  bool holds = op == MOEC_OP_EQ || op == MOEC_OP_LE || op == MOEC_OP_GE;
  return moec_s_int_like(s, moec_value_get(s->g, moec_out(s->g, n, 0))->type, holds);
}

/* Bools against constants: x == true is x, x == false is not(x). */
static moec_value eq_bool(moec_simplifier *s, moec_node n) {
  if (is_true(s, in1(s, n))) return in0(s, n);
  return is_false(s, in1(s, n)) ? negate(s, in0(s, n)) : NO;
}
static moec_value ne_bool(moec_simplifier *s, moec_node n) {
  if (is_false(s, in1(s, n))) return in0(s, n);
  return is_true(s, in1(s, n)) ? negate(s, in0(s, n)) : NO;
}

/* A bool cast to a number and compared with one of 0, 1 is the bool or its opposite. */
static moec_value compare_cast_bool(moec_simplifier *s, moec_node n) {
  moec_value c = in0(s, n);
  if (moec_def_op(s->g, c) != MOEC_OP_CAST) return NO;
  moec_value x = moec_in(s->g, moec_def(s->g, c), 0);
  if (dtype(s, x) != MOEC_BOOL) return NO;
  bool zero = moec_s_is(s->g, in1(s, n), 0), one = moec_s_is(s->g, in1(s, n), 1);
  if (!zero && !one) return NO;
  return (moec_op_of(s->g, n) == MOEC_OP_EQ) == one ? x : negate(s, x);
}

/* select(c, a, b) compared with d, all three filled: c, its opposite, or a constant. Exporters test additive masks so.
 * */
static moec_value compare_select(moec_simplifier *s, moec_node n) {
  moec_value sel = in0(s, n), d = in1(s, n), branch[2];
  if (moec_def_op(s->g, sel) != MOEC_OP_SELECT || !moec_s_fill(s->g, d)) return NO;
  moec_node p = moec_def(s->g, sel);
  for (uint32_t k = 0; k < 2; k++) {
    if (!moec_s_fill(s->g, moec_in(s->g, p, k + 1))) return NO;
    branch[k] = moec_s_op(s, moec_op_of(s->g, n), moec_in(s->g, p, k + 1), d);
  }
  moec_value in[3] = {moec_in(s->g, p, 0), branch[0], branch[1]};
  return moec_b_op(&s->b, MOEC_OP_SELECT, NULL, 3, in, 1);
}

/* ---- not, and, or, xor -------------------------------------------------------------------------- */

static moec_value not_not(moec_simplifier *s, moec_node n) {
  return moec_def_op(s->g, in0(s, n)) == MOEC_OP_NOT ? moec_in(s->g, moec_def(s->g, in0(s, n)), 0) : NO;
}

static moec_value not_compare(moec_simplifier *s, moec_node n) {
  moec_node c = moec_def(s->g, in0(s, n));
  if (moec_op_cls(moec_op_of(s->g, c)) != MOEC_CLASS_COMPARE) return NO;
  moec_op op = inverse(moec_op_of(s->g, c), moec_dtype_is_float(dtype(s, moec_in(s->g, c, 0))));
  return op ? moec_s_op(s, op, moec_in(s->g, c, 0), moec_in(s->g, c, 1)) : NO;
}

static moec_value logic_filled_second(moec_simplifier *s, moec_node n) {
  if (!moec_s_fill(s->g, in0(s, n)) || moec_s_fill(s->g, in1(s, n))) return NO;
  return moec_s_op(s, moec_op_of(s->g, n), in1(s, n), in0(s, n));
}

static moec_value and_constant(moec_simplifier *s, moec_node n) {
  if (is_true(s, in1(s, n))) return in0(s, n);
  return moec_s_is(s->g, in1(s, n), 0) ? in1(s, n) : NO;
}
static moec_value or_constant(moec_simplifier *s, moec_node n) {
  if (is_true(s, in1(s, n))) return in1(s, n);
  return moec_s_is(s->g, in1(s, n), 0) ? in0(s, n) : NO;
}
static moec_value xor_constant(moec_simplifier *s, moec_node n) {
  if (is_true(s, in1(s, n))) return negate(s, in0(s, n));
  return moec_s_is(s->g, in1(s, n), 0) ? in0(s, n) : NO;
}
static moec_value same_operands(moec_simplifier *s, moec_node n) {
  return in0(s, n).i == in1(s, n).i ? in0(s, n) : NO;
}

/* ---- select --------------------------------------------------------------------------------------- */

static moec_value select_same(moec_simplifier *s, moec_node n) {
  return in1(s, n).i == in2(s, n).i ? in1(s, n) : NO;
}

static moec_value select_constant(moec_simplifier *s, moec_node n) {
  if (is_true(s, in0(s, n))) return in1(s, n);
  return is_false(s, in0(s, n)) ? in2(s, n) : NO;
}

static moec_value select_not(moec_simplifier *s, moec_node n) {
  if (moec_def_op(s->g, in0(s, n)) != MOEC_OP_NOT) return NO;
  moec_value in[3] = {moec_in(s->g, moec_def(s->g, in0(s, n)), 0), in2(s, n), in1(s, n)};
  return moec_b_op(&s->b, MOEC_OP_SELECT, NULL, 3, in, 1);
}

/* Between bools: and, or, not. */
static moec_value select_bool(moec_simplifier *s, moec_node n) {
  moec_value c = in0(s, n), x = in1(s, n), y = in2(s, n);
  if (is_true(s, x) && is_false(s, y)) return c;
  if (is_false(s, x) && is_true(s, y)) return negate(s, c);
  if (is_false(s, y)) return moec_s_op(s, MOEC_OP_AND, c, x);
  if (is_true(s, x)) return moec_s_op(s, MOEC_OP_OR, c, y);
  return NO;
}

const moec_rule moec_rules_logic[] = {
    {"eq: filled operand second", MOEC_OP_EQ, filled_second},
    {"ne: filled operand second", MOEC_OP_NE, filled_second},
    {"lt: filled operand second", MOEC_OP_LT, filled_second},
    {"le: filled operand second", MOEC_OP_LE, filled_second},
    {"gt: filled operand second", MOEC_OP_GT, filled_second},
    {"ge: filled operand second", MOEC_OP_GE, filled_second},
    {"x > y", MOEC_OP_GT, less_only},
    {"x >= y", MOEC_OP_GE, less_only},
    {"x == x", MOEC_OP_EQ, compare_self},
    {"x != x", MOEC_OP_NE, compare_self},
    {"x < x", MOEC_OP_LT, compare_self},
    {"x <= x", MOEC_OP_LE, compare_self},
    {"x == true", MOEC_OP_EQ, eq_bool},
    {"x != true", MOEC_OP_NE, ne_bool},
    {"cast(bool) == 1", MOEC_OP_EQ, compare_cast_bool},
    {"cast(bool) != 0", MOEC_OP_NE, compare_cast_bool},
    {"select(c, a, b) == d", MOEC_OP_EQ, compare_select},
    {"select(c, a, b) != d", MOEC_OP_NE, compare_select},
    {"select(c, a, b) < d", MOEC_OP_LT, compare_select},
    {"select(c, a, b) <= d", MOEC_OP_LE, compare_select},
    {"select(c, a, b) > d", MOEC_OP_GT, compare_select},
    {"select(c, a, b) >= d", MOEC_OP_GE, compare_select},
    {"not(not x)", MOEC_OP_NOT, not_not},
    {"not(x < y)", MOEC_OP_NOT, not_compare},
    {"and: filled operand second", MOEC_OP_AND, logic_filled_second},
    {"or: filled operand second", MOEC_OP_OR, logic_filled_second},
    {"xor: filled operand second", MOEC_OP_XOR, logic_filled_second},
    {"and with a constant", MOEC_OP_AND, and_constant},
    {"or with a constant", MOEC_OP_OR, or_constant},
    {"xor with a constant", MOEC_OP_XOR, xor_constant},
    {"and(x, x)", MOEC_OP_AND, same_operands},
    {"or(x, x)", MOEC_OP_OR, same_operands},
    {"select(c, x, x)", MOEC_OP_SELECT, select_same},
    {"select by a constant", MOEC_OP_SELECT, select_constant},
    {"select by not(c)", MOEC_OP_SELECT, select_not},
    {"select between bools", MOEC_OP_SELECT, select_bool},
    {0},
};
