/* Rules on index arithmetic: integer values that are base + coef * (position on one axis).
 *
 * Exporters spell positions, shifted positions and tests on them with Range, Slice, Concat, Sub, Equal; "is this a
 * packed sequence" is a dozen nodes whose value never varies. Here each becomes iota * coef + base on a vector,
 * broadcast to its shape, and comparisons between two of them whose outcome is certain become constants. */
#include <string.h>

#include "passes/simplify_affine.h"

#define NO ((moec_value){0})

static bool integer(moec_dtype t) { return t == MOEC_I64 || t == MOEC_I32; }
static moec_value in_of(const moec_simplifier *s, moec_value v) { return moec_in(s->g, moec_def(s->g, v), 0); }

/* ---- reading ------------------------------------------------------------------------------------ */

static bool combine(moec_simplifier *s, const moec_affine *x, const moec_affine *y, int64_t sign, moec_affine *out) {
  if (x->axis >= 0 && y->axis >= 0 && x->axis != y->axis) return false;
  *out = *x;
  if (y->axis >= 0) out->axis = y->axis;
  out->coef = (x->axis >= 0 ? x->coef : 0) + sign * (y->axis >= 0 ? y->coef : 0);
  if (out->coef == 0) out->axis = -1;
  out->base = sign > 0 ? moec_dim_add(s->m, x->base, y->base) : moec_dim_sub(s->m, x->base, y->base);
  return moec_dim_known(out->base);
}

static void scale(moec_simplifier *s, moec_affine *a, int64_t by) {
  a->base = moec_dim_mul(s->m, a->base, moec_dim_const(s->m, by));
  a->coef *= by;
  if (a->coef == 0) a->axis = -1;
}

/* The axis of |to| that holds the k-th axis of |from| not of size 1, for equal such axes; -1: none. */
static int64_t same_axis(moec_simplifier *s, moec_type_info from, moec_type_info to, int64_t axis) {
  uint32_t i = 0;
  for (uint32_t k = 0; k < from.rank; k++) {
    if (moec_s_is_unit(s->m, from.dims[k])) continue;
    while (i < to.rank && moec_s_is_unit(s->m, to.dims[i])) i++;
    if (i == to.rank || !moec_dim_eq(from.dims[k], to.dims[i])) return -1;
    if ((int64_t)k == axis) return (int64_t)i;
    i++;
  }
  return -1;
}

static bool affine_vector(moec_simplifier *s, moec_value v, moec_affine *out) {
  const moec_const *c = MOEC_ATTRS(s->g, moec_def(s->g, v), CONST)->data;
  moec_type_info t = moec_ty(s->g, v);
  size_t n = c->size / moec_dtype_get(t.dtype)->bytes;
  int64_t axis = -1; /* the only one longer than 1 */
  for (uint32_t i = 0; i < t.rank; i++) {
    if (moec_s_is_unit(s->m, t.dims[i])) continue;
    if (axis >= 0) return false;
    axis = (int64_t)i;
  }
  if (axis < 0 || n < 2) return false;
  int64_t first = moec_load_i64(t.dtype, c->bytes, 0), step, diff;
  if (__builtin_sub_overflow(moec_load_i64(t.dtype, c->bytes, 1), first, &step)) return false;
  for (size_t i = 1; i + 1 < n; i++)
    if (__builtin_sub_overflow(moec_load_i64(t.dtype, c->bytes, i + 1), moec_load_i64(t.dtype, c->bytes, i), &diff) ||
        diff != step)
      return false;
  *out = (moec_affine){moec_dim_const(s->m, first), axis, step};
  return true;
}

static bool affine_slice(moec_simplifier *s, moec_value v, moec_affine *out) {
  const moec_attrs_SLICE *a = MOEC_ATTRS(s->g, moec_def(s->g, v), SLICE);
  if (!moec_s_affine(s, in_of(s, v), out)) return false;
  if (out->axis < 0) return true;
  moec_dim skip = moec_dim_mul(s->m, a->start.v[out->axis], moec_dim_const(s->m, out->coef));
  out->base = moec_dim_add(s->m, out->base, skip);
  out->coef *= a->step.v[out->axis];
  return moec_dim_known(out->base);
}

/* Parts that continue one another along the axis; a part of size 1 has any coefficient there. */
static bool affine_concat(moec_simplifier *s, moec_value v, moec_affine *out) {
  moec_node n = moec_def(s->g, v);
  int64_t axis = MOEC_ATTRS(s->g, n, CONCAT)->axis, coef = 0;
  bool known = false;
  moec_affine a;
  for (uint32_t i = 0; i < moec_node_get(s->g, n)->n_in; i++) { /* the coefficient, from a part that has one */
    if (!moec_s_affine(s, moec_in(s->g, n, i), &a) || (a.axis >= 0 && a.axis != axis)) return false;
    if (moec_s_is_unit(s->m, moec_ty(s->g, moec_in(s->g, n, i)).dims[axis])) continue;
    if (known && a.coef != coef) return false;
    coef = a.coef, known = true;
  }
  if (!known) return false;
  moec_dim at = {0};
  for (uint32_t i = 0; i < moec_node_get(s->g, n)->n_in; i++) {
    moec_value x = moec_in(s->g, n, i);
    if (!moec_s_affine(s, x, &a)) return false;
    if (i == 0) *out = (moec_affine){a.base, coef ? axis : -1, coef}, at = a.base;
    if (!moec_dim_eq(at, a.base)) return false;
    at = moec_dim_add(s->m, at, moec_dim_mul(s->m, moec_ty(s->g, x).dims[axis], moec_dim_const(s->m, coef)));
  }
  return true;
}

static bool affine_move(moec_simplifier *s, moec_value v, moec_affine *out) {
  moec_node n = moec_def(s->g, v);
  if (!moec_s_affine(s, in_of(s, v), out)) return false;
  if (out->axis < 0) return true;
  if (moec_op_of(s->g, n) == MOEC_OP_RESHAPE) {
    out->axis = same_axis(s, moec_ty(s->g, in_of(s, v)), moec_ty(s->g, v), out->axis);
    return out->axis >= 0;
  }
  if (moec_op_of(s->g, n) == MOEC_OP_TRANSPOSE) {
    moec_ints perm = MOEC_ATTRS(s->g, n, TRANSPOSE)->perm;
    for (uint32_t i = 0; i < perm.n; i++)
      if (perm.v[i] == out->axis) return out->axis = (int64_t)i, true;
    return false;
  }
  out->axis = MOEC_ATTRS(s->g, n, BROADCAST)->map.v[out->axis];
  return true;
}

static bool affine_binary(moec_simplifier *s, moec_value v, moec_affine *out) {
  moec_node n = moec_def(s->g, v);
  moec_affine x, y;
  int64_t c;
  if (!moec_s_affine(s, moec_in(s->g, n, 0), &x)) return false;
  if (moec_op_of(s->g, n) == MOEC_OP_MUL) {
    if (!moec_s_fill_int(s->g, moec_in(s->g, n, 1), &c)) return false;
    scale(s, &x, c);
    *out = x;
    return moec_dim_known(x.base);
  }
  return moec_s_affine(s, moec_in(s->g, n, 1), &y) &&
         combine(s, &x, &y, moec_op_of(s->g, n) == MOEC_OP_ADD ? 1 : -1, out);
}

/* Operands are canonical, so this looks a few nodes deep only. */
bool moec_s_affine(moec_simplifier *s, moec_value v, moec_affine *out) {
  int64_t c;
  if (!integer(moec_ty(s->g, v).dtype)) return false;
  if (moec_s_fill_int(s->g, v, &c)) {
    *out = (moec_affine){moec_dim_const(s->m, c), -1, 0};
    return true;
  }
  switch (moec_def_op(s->g, v)) {
    case MOEC_OP_SIZE:
      *out = (moec_affine){MOEC_ATTRS(s->g, moec_def(s->g, v), SIZE)->value, -1, 0};
      return true;
    case MOEC_OP_IOTA:
      *out = (moec_affine){moec_dim_const(s->m, 0), MOEC_ATTRS(s->g, moec_def(s->g, v), IOTA)->axis, 1};
      return true;
    case MOEC_OP_CONST: return affine_vector(s, v, out);
    case MOEC_OP_CAST: return moec_s_affine(s, in_of(s, v), out);
    case MOEC_OP_NEG:
      if (!moec_s_affine(s, in_of(s, v), out)) return false;
      scale(s, out, -1);
      return moec_dim_known(out->base);
    case MOEC_OP_ADD: case MOEC_OP_SUB: case MOEC_OP_MUL: return affine_binary(s, v, out);
    case MOEC_OP_BROADCAST: case MOEC_OP_RESHAPE: case MOEC_OP_TRANSPOSE: return affine_move(s, v, out);
    case MOEC_OP_SLICE: return affine_slice(s, v, out);
    case MOEC_OP_CONCAT: return affine_concat(s, v, out);
    default: return false;
  }
}

/* ---- writing -------------------------------------------------------------------------------------- */

static moec_value filled_with(moec_simplifier *s, moec_dtype t, moec_dim d, uint32_t rank, const moec_dim *shape) {
  int64_t c;
  moec_value v =
      moec_dim_is_const(s->m, d, &c) ? moec_b_scalar_i(&s->b, t, c) : moec_b_cast(&s->b, moec_b_size(&s->b, d), t);
  return moec_s_broadcast(s, v, rank, shape, NULL);
}

moec_value moec_s_affine_value(moec_simplifier *s, moec_type type, moec_affine a) {
  moec_type_info t = moec_type_get(s->m, type);
  if (a.axis < 0) return filled_with(s, t.dtype, a.base, t.rank, t.dims);
  const moec_dim *d = &t.dims[a.axis];
  moec_value v = moec_b_iota(&s->b, t.dtype, 1, d, 0);
  if (a.coef != 1) v = moec_s_op(s, MOEC_OP_MUL, v, filled_with(s, t.dtype, moec_dim_const(s->m, a.coef), 1, d));
  if (!moec_dim_is(s->m, a.base, 0)) v = moec_s_op(s, MOEC_OP_ADD, v, filled_with(s, t.dtype, a.base, 1, d));
  return moec_s_broadcast(s, v, t.rank, t.dims, &a.axis);
}

/* iota, iota * c, either plus a filled value: what moec_s_affine_value() makes. */
static bool written_so(moec_simplifier *s, moec_node n) {
  moec_value x = moec_in(s->g, n, 0);
  int64_t c;
  if (moec_op_of(s->g, n) == MOEC_OP_ADD && moec_def_op(s->g, x) == MOEC_OP_MUL)
    return written_so(s, moec_def(s->g, x));
  bool mul = moec_op_of(s->g, n) == MOEC_OP_MUL;
  if (!mul && moec_op_of(s->g, n) != MOEC_OP_ADD) return false;
  if (moec_def_op(s->g, x) != MOEC_OP_IOTA || moec_ty(s->g, x).rank != 1) return false;
  moec_affine a;
  return mul ? moec_s_fill_int(s->g, moec_in(s->g, n, 1), &c) : moec_s_affine(s, moec_in(s->g, n, 1), &a) && a.axis < 0;
}

/* Anything that is affine, in its canonical form. */
static moec_value canonical(moec_simplifier *s, moec_node n) {
  moec_value y = moec_out(s->g, n, 0);
  moec_type_info t = moec_ty(s->g, y);
  moec_affine a;
  if (t.rank == 0 || !integer(t.dtype) || written_so(s, n) || !moec_s_affine(s, y, &a)) return NO;
  return moec_s_affine_value(s, moec_value_get(s->g, y)->type, a);
}

/* A constant 0, 1, 2, ... of at least four elements is an iota. */
static moec_value constant_ramp(moec_simplifier *s, moec_node n) {
  moec_value y = moec_out(s->g, n, 0);
  moec_affine a;
  int64_t size;
  if (!integer(moec_ty(s->g, y).dtype) || !moec_s_affine(s, y, &a) || a.axis < 0 || a.coef != 1) return NO;
  if (!moec_dim_is(s->m, a.base, 0) || !moec_dim_is_const(s->m, moec_ty(s->g, y).dims[a.axis], &size) || size < 4)
    return NO;
  return moec_s_affine_value(s, moec_value_get(s->g, y)->type, a);
}

/* iota of more than one axis is a broadcast of a vector; along an axis of size 1 it is 0. */
static moec_value iota_vector(moec_simplifier *s, moec_node n) {
  const moec_attrs_IOTA *a = MOEC_ATTRS(s->g, n, IOTA);
  moec_type t = moec_value_get(s->g, moec_out(s->g, n, 0))->type;
  moec_dim d = a->shape.v[a->axis];
  if (moec_s_is_unit(s->m, d)) return moec_s_number_like(s, t, 0);
  if (a->shape.n == 1) return NO;
  return moec_s_broadcast(s, moec_b_iota(&s->b, a->dtype, 1, &d, 0), a->shape.n, a->shape.v, &a->axis);
}

/* ---- comparisons ------------------------------------------------------------------------------------ */

/* x - y >= |least| everywhere: proved. */
static bool at_least(moec_simplifier *s, const moec_affine *diff, moec_dim extent, int64_t least) {
  moec_dim low = diff->base;
  if (diff->axis >= 0 && diff->coef < 0) { /* least at the last position */
    moec_dim last = moec_dim_sub(s->m, extent, moec_dim_const(s->m, 1));
    low = moec_dim_add(s->m, low, moec_dim_mul(s->m, last, moec_dim_const(s->m, diff->coef)));
  }
  return moec_s_le(s->m, moec_dim_const(s->m, least), low);
}

/* diff = x - y of the operands of |n|, and the size of its axis; false where one is not affine. */
static bool difference(moec_simplifier *s, moec_node n, moec_affine *diff, moec_affine *negated, moec_dim *extent) {
  moec_affine x, y;
  moec_value v = moec_in(s->g, n, 0);
  if (!moec_s_affine(s, v, &x) || !moec_s_affine(s, moec_in(s->g, n, 1), &y) || !combine(s, &x, &y, -1, diff))
    return false;
  *extent = diff->axis >= 0 ? moec_ty(s->g, v).dims[diff->axis] : moec_dim_const(s->m, 1);
  *negated = *diff;
  scale(s, negated, -1);
  return moec_dim_known(negated->base);
}

static moec_value certain(moec_simplifier *s, moec_node n) {
  moec_affine d, e;
  moec_dim extent;
  if (!difference(s, n, &d, &e, &extent)) return NO;
  bool ge = at_least(s, &d, extent, 0), gt = at_least(s, &d, extent, 1);
  bool le = at_least(s, &e, extent, 0), lt = at_least(s, &e, extent, 1);
  bool yes = false, no = false;
  switch (moec_op_of(s->g, n)) {
    case MOEC_OP_EQ: yes = ge && le, no = gt || lt; break;
    case MOEC_OP_NE: yes = gt || lt, no = ge && le; break;
    case MOEC_OP_LT: yes = lt, no = ge; break;
    case MOEC_OP_LE: yes = le, no = gt; break;
    case MOEC_OP_GT: yes = gt, no = le; break;
    case MOEC_OP_GE: yes = ge, no = lt; break;
    default: break;
  }
  if (!yes && !no) return NO;
  return moec_s_int_like(s, moec_value_get(s->g, moec_out(s->g, n, 0))->type, yes);
}

/* max or min of two whose order is certain. */
static moec_value certain_order(moec_simplifier *s, moec_node n) {
  moec_affine d, e;
  moec_dim extent;
  if (!difference(s, n, &d, &e, &extent)) return NO;
  bool max = moec_op_of(s->g, n) == MOEC_OP_MAX;
  if (at_least(s, &d, extent, 0)) return moec_in(s->g, n, max ? 0 : 1);
  return at_least(s, &e, extent, 0) ? moec_in(s->g, n, max ? 1 : 0) : NO;
}

const moec_rule moec_rules_affine[] = {
    {"iota of several axes", MOEC_OP_IOTA, iota_vector},
    {"constant 0, 1, 2, ...", MOEC_OP_CONST, constant_ramp},
    {"sum of index ramps", MOEC_OP_ADD, canonical},
    {"difference of index ramps", MOEC_OP_SUB, canonical},
    {"multiple of an index ramp", MOEC_OP_MUL, canonical},
    {"negated index ramp", MOEC_OP_NEG, canonical},
    {"slice of an index ramp", MOEC_OP_SLICE, canonical},
    {"concat of index ramps", MOEC_OP_CONCAT, canonical},
    {"index ramp == index ramp", MOEC_OP_EQ, certain},
    {"index ramp != index ramp", MOEC_OP_NE, certain},
    {"index ramp < index ramp", MOEC_OP_LT, certain},
    {"index ramp <= index ramp", MOEC_OP_LE, certain},
    {"index ramp > index ramp", MOEC_OP_GT, certain},
    {"index ramp >= index ramp", MOEC_OP_GE, certain},
    {"max of index ramps", MOEC_OP_MAX, certain_order},
    {"min of index ramps", MOEC_OP_MIN, certain_order},
    {0},
};
