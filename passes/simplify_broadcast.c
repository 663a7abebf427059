/* Rules on broadcasts and on elementwise ops over broadcasts and reshapes.
 *
 * Canonical: a broadcast's operand has no axis of size 1 (a reshape takes them off), a broadcast that only adds such
 * axes is a reshape (a broadcast, when of a scalar), and elementwise ops stand before the broadcast: exp(broadcast(x))
 * is broadcast(exp(x)), and a sum of [B, 1, S] and [1, 1, S] broadcasts runs on [B, S]. */
#include <string.h>

#include "passes/simplify.h"

#define NO ((moec_value){0})

static moec_value only_in(moec_simplifier *s, moec_node n) { return moec_in(s->g, n, 0); }
static moec_value only_out(moec_simplifier *s, moec_node n) { return moec_out(s->g, n, 0); }

/* ---- broadcast -------------------------------------------------------------------------------- */

static moec_value broadcast_nothing(moec_simplifier *s, moec_node n) {
  moec_value x = only_in(s, n);
  return moec_value_get(s->g, x)->type.i == moec_value_get(s->g, only_out(s, n))->type.i ? x : NO;
}

static moec_value broadcast_broadcast(moec_simplifier *s, moec_node n) {
  moec_value x = only_in(s, n);
  if (moec_def_op(s->g, x) != MOEC_OP_BROADCAST) return NO;
  const moec_attrs_BROADCAST *outer = MOEC_ATTRS(s->g, n, BROADCAST);
  moec_ints inner = MOEC_ATTRS(s->g, moec_def(s->g, x), BROADCAST)->map;
  int64_t map[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < inner.n; i++) map[i] = outer->map.v[inner.v[i]];
  return moec_s_broadcast(s, moec_in(s->g, moec_def(s->g, x), 0), outer->shape.n, outer->shape.v, map);
}

/* An axis of size 1 of the operand is dropped. */
static moec_value broadcast_unit_axis(moec_simplifier *s, moec_node n) {
  const moec_attrs_BROADCAST *a = MOEC_ATTRS(s->g, n, BROADCAST);
  moec_type_info t = moec_ty(s->g, only_in(s, n));
  int64_t map[MOEC_MAX_RANK];
  uint32_t k = 0;
  for (uint32_t i = 0; i < t.rank; i++)
    if (!moec_s_is_unit(s->m, t.dims[i])) map[k++] = a->map.v[i];
  if (k == t.rank) return NO;
  return moec_s_broadcast(s, moec_s_squeeze(s, only_in(s, n)), a->shape.n, a->shape.v, map);
}

/* Only axes of size 1 are new: a reshape. */
static moec_value broadcast_to_units(moec_simplifier *s, moec_node n) {
  const moec_attrs_BROADCAST *a = MOEC_ATTRS(s->g, n, BROADCAST);
  moec_type_info t = moec_ty(s->g, only_in(s, n));
  if (t.rank == 0) return NO;
  uint32_t k = 0;
  for (uint32_t i = 0; i < a->shape.n; i++) {
    bool mapped = k < t.rank && a->map.v[k] == (int64_t)i;
    if (mapped ? !moec_dim_eq(t.dims[k], a->shape.v[i]) : !moec_s_is_unit(s->m, a->shape.v[i])) return NO;
    k += mapped;
  }
  return moec_s_reshape(s, only_in(s, n), a->shape.n, a->shape.v);
}

/* ---- elementwise over broadcasts ------------------------------------------------------------------ */

typedef struct operands {
  uint32_t n;
  moec_view view[3];
} operands;

static bool all_views(moec_simplifier *s, moec_node n, operands *o) {
  o->n = moec_node_get(s->g, n)->n_in;
  for (uint32_t i = 0; i < o->n; i++)
    if (!moec_s_view(s->g, moec_in(s->g, n, i), &o->view[i])) return false;
  return true;
}

/* Operand |v| on the axes |keep| (ascending) of |t| only. */
static moec_value narrowed(moec_simplifier *s, const moec_view *v, moec_type_info t, uint32_t n_keep,
                           const int64_t *keep) {
  moec_dim dims[MOEC_MAX_RANK];
  int64_t map[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < n_keep; i++) dims[i] = t.dims[keep[i]];
  for (uint32_t i = 0, k = 0; i < v->rank; i++) {
    while (keep[k] != v->map[i]) k++;
    map[i] = k;
  }
  return moec_s_broadcast(s, v->source, n_keep, dims, map);
}

/* No operand varies along some axis: compute without it. */
static moec_value before_broadcast(moec_simplifier *s, moec_node n) {
  operands o;
  moec_type_info t = moec_ty(s->g, only_out(s, n));
  if (t.rank == 0 || !all_views(s, n, &o)) return NO;
  uint32_t used = 0, n_keep = 0;
  int64_t keep[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < o.n; i++)
    for (uint32_t k = 0; k < o.view[i].rank; k++) used |= 1u << o.view[i].map[k];
  for (uint32_t i = 0; i < t.rank; i++)
    if (used >> i & 1) keep[n_keep++] = (int64_t)i;
  if (n_keep == t.rank) return NO;
  moec_value in[3];
  for (uint32_t i = 0; i < o.n; i++) in[i] = narrowed(s, &o.view[i], t, n_keep, keep);
  moec_value y = moec_b_op(&s->b, moec_op_of(s->g, n), moec_node_get(s->g, n)->attrs, o.n, in, 1);
  return moec_s_broadcast(s, y, t.rank, t.dims, keep);
}

/* The reshape that defines |v| only adds or removes axes of size 1. */
static bool moves_units(moec_simplifier *s, moec_value v) {
  moec_type_info a = moec_ty(s->g, moec_in(s->g, moec_def(s->g, v), 0)), b = moec_ty(s->g, v);
  uint32_t i = 0, k = 0;
  for (;;) {
    while (i < a.rank && moec_s_is_unit(s->m, a.dims[i])) i++;
    while (k < b.rank && moec_s_is_unit(s->m, b.dims[k])) k++;
    if (i == a.rank || k == b.rank) return i == a.rank && k == b.rank;
    if (!moec_dim_eq(a.dims[i++], b.dims[k++])) return false;
  }
}

/* Operands are reshapes of values of one shape (or filled): compute before the reshape. Only where it moves axes of
 * size 1: of mul(y, y) and mul(y, w) with y = reshape(x), one would move and the other not. */
static moec_value before_reshape(moec_simplifier *s, moec_node n) {
  const moec_node_info p = *moec_node_get(s->g, n);
  moec_value in[3], source = NO;
  for (uint32_t i = 0; i < p.n_in; i++) {
    in[i] = s->g->edges[p.in + i];
    if (moec_s_fill(s->g, in[i])) continue;
    if (moec_def_op(s->g, in[i]) != MOEC_OP_RESHAPE || !moves_units(s, in[i])) return NO;
    in[i] = moec_in(s->g, moec_def(s->g, in[i]), 0);
    moec_type_info a = moec_ty(s->g, in[i]), b = moec_ty(s->g, source);
    if (source.i && (a.rank != b.rank || !moec_s_same_dims(a.rank, a.dims, b.dims))) return NO;
    source = in[i];
  }
  if (!source.i) return NO;
  for (uint32_t i = 0; i < p.n_in; i++) {
    const moec_const *c = moec_s_fill(s->g, in[i]);
    moec_type t = moec_type_with_dtype(s->m, moec_value_get(s->g, source)->type, moec_ty(s->g, in[i]).dtype);
    if (c && moec_value_get(s->g, in[i])->type.i != t.i) in[i] = moec_s_fill_like(s, t, c);
  }
  moec_type_info t = moec_ty(s->g, only_out(s, n));
  moec_value y = moec_b_op(&s->b, p.op, p.attrs, p.n_in, in, 1);
  return moec_s_reshape(s, y, t.rank, t.dims);
}

const moec_rule moec_rules_broadcast[] = {
    {"broadcast to the same shape", MOEC_OP_BROADCAST, broadcast_nothing},
    {"broadcast of a broadcast", MOEC_OP_BROADCAST, broadcast_broadcast},
    {"broadcast of an axis of size 1", MOEC_OP_BROADCAST, broadcast_unit_axis},
    {"broadcast to axes of size 1", MOEC_OP_BROADCAST, broadcast_to_units},
    {"elementwise before broadcast", MOEC_OP_NONE, before_broadcast},
    {"elementwise before reshape", MOEC_OP_NONE, before_reshape},
    {0},
};
