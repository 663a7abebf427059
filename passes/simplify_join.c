/* Rules on concat: its operands, and what reads it. */
#include <string.h>

#include "passes/simplify.h"

#define NO ((moec_value){0})
enum { MAX_OPERANDS = 64 };

static int64_t axis_of(moec_simplifier *s, moec_node n) { return MOEC_ATTRS(s->g, n, CONCAT)->axis; }
static uint32_t count_of(moec_simplifier *s, moec_node n) { return moec_node_get(s->g, n)->n_in; }
static moec_dim extent(moec_simplifier *s, moec_value v, int64_t axis) { return moec_ty(s->g, v).dims[axis]; }

/* A concat of operands that a rule chose; {0} where their sum has another type than node |n|'s result. */
static moec_value concat(moec_simplifier *s, moec_node n, uint32_t k, const moec_value *in, int64_t axis) {
  moec_value y = moec_b_concat(&s->b, k, in, axis);
  moec_type want = moec_value_get(s->g, moec_out(s->g, n, 0))->type;
  return y.i && moec_value_get(s->g, y)->type.i == want.i ? y : NO;
}

/* Of one operand: the operand. Empty operands fall out. Concats of one axis join. */
static moec_value flat(moec_simplifier *s, moec_node n) {
  int64_t axis = axis_of(s, n);
  moec_value in[MAX_OPERANDS];
  uint32_t k = 0, n_in = count_of(s, n);
  bool changed = n_in == 1;
  for (uint32_t i = 0; i < n_in; i++) {
    moec_value x = moec_in(s->g, n, i);
    moec_node d = moec_def(s->g, x);
    bool nested = moec_op_of(s->g, d) == MOEC_OP_CONCAT && axis_of(s, d) == axis;
    bool empty = moec_dim_is(s->m, extent(s, x, axis), 0) && n_in > 1 && !(k == 0 && i + 1 == n_in);
    uint32_t parts = empty ? 0 : nested ? count_of(s, d) : 1;
    if (k + parts > MAX_OPERANDS) return NO;
    for (uint32_t j = 0; j < parts; j++) in[k++] = nested ? moec_in(s->g, d, j) : x;
    changed = changed || empty || nested;
  }
  return changed ? concat(s, n, k, in, axis) : NO;
}

/* ---- neighbours that are slices of one value ---------------------------------------------------- */

/* One slice for two that lie side by side in the same value; {0}: they don't. */
static moec_value join_slices(moec_simplifier *s, moec_value x, moec_value y, int64_t axis) {
  if (moec_def_op(s->g, x) != MOEC_OP_SLICE || moec_def_op(s->g, y) != MOEC_OP_SLICE) return NO;
  moec_node p = moec_def(s->g, x), q = moec_def(s->g, y);
  moec_value from = moec_in(s->g, p, 0);
  const moec_attrs_SLICE *a = MOEC_ATTRS(s->g, p, SLICE), *b = MOEC_ATTRS(s->g, q, SLICE);
  if (from.i != moec_in(s->g, q, 0).i || a->step.v[axis] != 1 || b->step.v[axis] != 1) return NO;
  for (uint32_t i = 0; i < a->start.n; i++) {
    if ((int64_t)i == axis) continue;
    if (!moec_dim_eq(a->start.v[i], b->start.v[i]) || !moec_dim_eq(a->size.v[i], b->size.v[i]) ||
        a->step.v[i] != b->step.v[i])
      return NO;
  }
  if (!moec_dim_eq(moec_dim_add(s->m, a->start.v[axis], a->size.v[axis]), b->start.v[axis])) return NO;
  moec_dim size[MOEC_MAX_RANK];
  memcpy(size, a->size.v, a->size.n * sizeof *size);
  size[axis] = moec_dim_add(s->m, a->size.v[axis], b->size.v[axis]);
  moec_attrs_SLICE attrs = {.start = a->start, .size = {a->size.n, size}, .step = a->step};
  return moec_b_op(&s->b, MOEC_OP_SLICE, &attrs, 1, &from, 1);
}

static moec_value adjacent_slices(moec_simplifier *s, moec_node n) {
  moec_value in[MAX_OPERANDS];
  uint32_t k = 0, n_in = count_of(s, n);
  if (n_in > MAX_OPERANDS) return NO;
  for (uint32_t i = 0; i < n_in; i++) {
    moec_value x = moec_in(s->g, n, i), joined = k ? join_slices(s, in[k - 1], x, axis_of(s, n)) : NO;
    if (joined.i) in[k - 1] = joined;
    else in[k++] = x;
  }
  return k < n_in ? concat(s, n, k, in, axis_of(s, n)) : NO;
}

/* ---- operands of one kind ------------------------------------------------------------------------ */

/* The scalar that |v| is a broadcast of; {0}: none. */
static moec_value scalar_of(moec_simplifier *s, moec_value v) {
  if (moec_def_op(s->g, v) != MOEC_OP_BROADCAST) return NO;
  moec_value x = moec_in(s->g, moec_def(s->g, v), 0);
  return moec_ty(s->g, x).rank == 0 ? x : NO;
}

/* All filled by one scalar: filled by it. */
static moec_value filled_alike(moec_simplifier *s, moec_node n) {
  moec_value first = scalar_of(s, moec_in(s->g, n, 0));
  for (uint32_t i = 0; i < count_of(s, n); i++)
    if (!first.i || scalar_of(s, moec_in(s->g, n, i)).i != first.i) return NO;
  moec_type_info t = moec_ty(s->g, moec_out(s->g, n, 0));
  return moec_s_broadcast(s, first, t.rank, t.dims, NULL);
}

/* All broadcasts (or reshapes that insert axes of size 1) alike: concat before it. */
static moec_value of_views(moec_simplifier *s, moec_node n) {
  moec_view v, w;
  moec_value in[MAX_OPERANDS];
  uint32_t n_in = count_of(s, n), at = UINT32_MAX;
  if (n_in > MAX_OPERANDS || !moec_s_view(s->g, moec_in(s->g, n, 0), &v)) return NO;
  for (uint32_t i = 0; i < v.rank; i++)
    if (v.map[i] == axis_of(s, n)) at = i;
  if (at == UINT32_MAX) return NO;
  moec_type_info t = moec_ty(s->g, v.source);
  for (uint32_t k = 0; k < n_in; k++) {
    if (!moec_s_view(s->g, moec_in(s->g, n, k), &w) || w.rank != v.rank) return NO;
    moec_type_info u = moec_ty(s->g, w.source);
    for (uint32_t i = 0; i < v.rank; i++)
      if (w.map[i] != v.map[i] || (i != at && !moec_dim_eq(t.dims[i], u.dims[i]))) return NO;
    if (!moec_dim_eq(u.dims[at], extent(s, moec_in(s->g, n, k), axis_of(s, n)))) return NO;
    in[k] = w.source;
  }
  moec_type_info to = moec_ty(s->g, moec_out(s->g, n, 0));
  return moec_s_broadcast(s, moec_b_concat(&s->b, n_in, in, (int64_t)at), to.rank, to.dims, v.map);
}

/* ---- readers --------------------------------------------------------------------------------------- */

/* A slice that falls into one operand of a concat is a slice of that operand. */
static moec_value slice_concat(moec_simplifier *s, moec_node n) {
  moec_value c = moec_in(s->g, n, 0);
  if (moec_def_op(s->g, c) != MOEC_OP_CONCAT) return NO;
  moec_node cat = moec_def(s->g, c);
  int64_t axis = axis_of(s, cat);
  const moec_attrs_SLICE *a = MOEC_ATTRS(s->g, n, SLICE);
  moec_dim one = moec_dim_const(s->m, 1), first = a->start.v[axis], begin = moec_dim_const(s->m, 0);
  moec_dim last = moec_dim_mul(s->m, moec_dim_sub(s->m, a->size.v[axis], one), moec_dim_const(s->m, a->step.v[axis]));
  last = moec_dim_add(s->m, first, last);
  for (uint32_t i = 0; i < count_of(s, cat); i++) {
    moec_value x = moec_in(s->g, cat, i);
    moec_dim end = moec_dim_add(s->m, begin, extent(s, x, axis));
    if (moec_s_le(s->m, begin, first) && moec_s_le(s->m, moec_dim_add(s->m, last, one), end)) {
      moec_dim start[MOEC_MAX_RANK];
      memcpy(start, a->start.v, a->start.n * sizeof *start);
      start[axis] = moec_dim_sub(s->m, first, begin);
      moec_attrs_SLICE attrs = {.start = {a->start.n, start}, .size = a->size, .step = a->step};
      return moec_b_op(&s->b, MOEC_OP_SLICE, &attrs, 1, &x, 1);
    }
    begin = end;
  }
  return NO;
}

/* transpose(concat(...)) of operands that are transposes or filled: each transposed on its own. */
static moec_value transpose_concat(moec_simplifier *s, moec_node n) {
  moec_value c = moec_in(s->g, n, 0), in[MAX_OPERANDS];
  if (moec_def_op(s->g, c) != MOEC_OP_CONCAT) return NO;
  moec_node cat = moec_def(s->g, c);
  moec_ints perm = MOEC_ATTRS(s->g, n, TRANSPOSE)->perm;
  uint32_t n_in = count_of(s, cat);
  if (n_in > MAX_OPERANDS) return NO;
  for (uint32_t i = 0; i < n_in; i++) {
    in[i] = moec_in(s->g, cat, i);
    if (moec_def_op(s->g, in[i]) != MOEC_OP_TRANSPOSE && !scalar_of(s, in[i]).i) return NO;
  }
  int64_t axis = 0;
  for (uint32_t i = 0; i < perm.n; i++)
    if (perm.v[i] == axis_of(s, cat)) axis = (int64_t)i;
  for (uint32_t i = 0; i < n_in; i++) in[i] = moec_b_transpose(&s->b, in[i], perm.v);
  return moec_b_concat(&s->b, n_in, in, axis);
}

const moec_rule moec_rules_join[] = {
    {"flat concat", MOEC_OP_CONCAT, flat},
    {"concat of adjacent slices", MOEC_OP_CONCAT, adjacent_slices},
    {"concat of equal filled values", MOEC_OP_CONCAT, filled_alike},
    {"concat of broadcasts", MOEC_OP_CONCAT, of_views},
    {"slice of a concat", MOEC_OP_SLICE, slice_concat},
    {"transpose of a concat", MOEC_OP_TRANSPOSE, transpose_concat},
    {0},
};
