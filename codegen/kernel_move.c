/* Ops that only move elements are index arithmetic. */
#include <string.h>

#include "codegen/kernel_build.h"

/* ---- reshape -------------------------------------------------------------------------------- */

/* Axes from .. to of a shape. */
static moec_type_info part(moec_type_info t, uint32_t from, uint32_t to) {
  return (moec_type_info){t.dtype, to - from, to > from ? t.dims + from : NULL};
}

static moec_dim product(moec_module *m, moec_type_info t) {
  moec_dim r = moec_dim_const(m, 1);
  for (uint32_t i = 0; i < t.rank; i++) r = moec_dim_mul(m, r, t.dims[i]);
  return r;
}

/* Works on the smallest groups of axes with equal products: [B, S, H*D] to [B*S, H, D] is [B, S] to
 * [B*S] and [H*D] to [H, D]. So a coordinate depends on, and is guarded by, few others. */
static void reshape_index(moec_kpool *p, moec_type_info x, moec_type_info y,
                          const moec_kcoord *index, moec_kcoord *out) {
  uint32_t i = 0, k = 0; /* axes of x and y done */
  while (i < x.rank || k < y.rank) {
    uint32_t a = i, b = k;
    bool found = false;
    for (a = i; a <= x.rank && !found; a++)
      for (b = k; b <= y.rank && !found; b++)
        found = (a > i || b > k) &&
                moec_dim_eq(product(p->m, part(x, i, a)), product(p->m, part(y, k, b)));
    if (found)
      a--, b--;
    else
      a = x.rank, b = y.rank; /* equal only by constraint */
    moec_kcoord flat = moec_kx_flatten(p, b > k ? index + k : NULL, part(y, k, b));
    moec_kx_unflatten(p, flat, part(x, i, a), out + i);
    i = a, k = b;
  }
}

static moec_kx reshape(moec_keval *ev, moec_node n, const moec_kcoord *index) {
  moec_kcoord at[MOEC_MAX_RANK];
  moec_value x = moec_in(ev->fn, n, 0);
  reshape_index(ev->p, moec_ty(ev->fn, x), moec_ty(ev->fn, moec_out(ev->fn, n, 0)), index, at);
  return moec_keval_at(ev, x, at);
}

/* ---- one coordinate at a time --------------------------------------------------------------- */

static moec_kx transpose(moec_keval *ev, moec_node n, const moec_kcoord *index) {
  moec_kcoord at[MOEC_MAX_RANK];
  moec_ints perm = MOEC_ATTRS(ev->fn, n, TRANSPOSE)->perm;
  for (uint32_t i = 0; i < perm.n; i++) at[perm.v[i]] = index[i];
  return moec_keval_at(ev, moec_in(ev->fn, n, 0), at);
}

static moec_kx broadcast(moec_keval *ev, moec_node n, const moec_kcoord *index) {
  moec_kcoord at[MOEC_MAX_RANK];
  const moec_attrs_BROADCAST *a = MOEC_ATTRS(ev->fn, n, BROADCAST);
  moec_value x = moec_in(ev->fn, n, 0);
  moec_type_info t = moec_ty(ev->fn, x);
  for (uint32_t i = 0; i < t.rank; i++) {
    at[i] = index[a->map.v[i]];
    if (moec_dim_is(ev->p->m, t.dims[i], 1)) at[i] = (moec_kcoord){moec_kx_i64(ev->p, 0), {0}};
  }
  return moec_keval_at(ev, x, at);
}

static moec_kx slice(moec_keval *ev, moec_node n, const moec_kcoord *index) {
  moec_kcoord at[MOEC_MAX_RANK];
  moec_kpool *p = ev->p;
  const moec_attrs_SLICE *a = MOEC_ATTRS(ev->fn, n, SLICE);
  for (uint32_t i = 0; i < a->start.n; i++) {
    moec_kx step = moec_kx_scale(p, index[i].e, moec_dim_const(p->m, a->step.v[i]));
    at[i] = (moec_kcoord){moec_kx_add(p, moec_kx_size(p, a->start.v[i]), step), index[i].guard};
  }
  return moec_keval_at(ev, moec_in(ev->fn, n, 0), at);
}

static moec_kx reverse(moec_keval *ev, moec_node n, const moec_kcoord *index) {
  moec_kcoord at[MOEC_MAX_RANK];
  moec_kpool *p = ev->p;
  moec_value x = moec_in(ev->fn, n, 0);
  moec_type_info t = moec_ty(ev->fn, x);
  moec_ints axes = MOEC_ATTRS(ev->fn, n, REVERSE)->axes;
  if (t.rank) memcpy(at, index, t.rank * sizeof *at);
  for (uint32_t k = 0; k < axes.n; k++) {
    moec_dim last = moec_dim_sub(p->m, t.dims[axes.v[k]], moec_dim_const(p->m, 1));
    at[axes.v[k]].e = moec_kx_sub(p, moec_kx_size(p, last), index[axes.v[k]].e);
  }
  return moec_keval_at(ev, x, at);
}

/* ---- choices -------------------------------------------------------------------------------- */

static moec_kx compare(moec_kpool *p, moec_op op, moec_kx a, moec_dim b) {
  return moec_kx_apply(p, op, MOEC_BOOL, 2, (moec_kx[]){a, moec_kx_size(p, b)});
}

static moec_kx choose(moec_keval *ev, moec_kx c, moec_kx x, moec_kx y) {
  return moec_kx_apply(ev->p, MOEC_OP_SELECT, moec_kx_get(ev->p, x)->dtype, 3,
                       (moec_kx[]){c, x, y});
}

static moec_kx pad(moec_keval *ev, moec_node n, const moec_kcoord *index) {
  moec_kcoord at[MOEC_MAX_RANK];
  moec_kpool *p = ev->p;
  const moec_attrs_PAD *a = MOEC_ATTRS(ev->fn, n, PAD);
  moec_value x = moec_in(ev->fn, n, 0);
  moec_type_info t = moec_ty(ev->fn, x);
  moec_kx inside = moec_kx_bool(p, true);
  for (uint32_t i = 0; i < t.rank; i++) {
    moec_dim end = moec_dim_add(p->m, a->lo.v[i], t.dims[i]);
    moec_kx c = moec_kx_and(p, compare(p, MOEC_OP_GE, index[i].e, a->lo.v[i]),
                            compare(p, MOEC_OP_LT, index[i].e, end));
    inside = moec_kx_and(p, inside, c);
    at[i] = (moec_kcoord){moec_kx_sub(p, index[i].e, moec_kx_size(p, a->lo.v[i])), index[i].guard};
    if (!moec_kx_is_bool(p, c, true)) at[i].guard = moec_kx_and(p, at[i].guard, c);
  }
  moec_kx v = moec_keval_at(ev, moec_in(ev->fn, n, 1), NULL);
  return moec_kx_is_bool(p, inside, false) ? v : choose(ev, inside, moec_keval_at(ev, x, at), v);
}

static moec_kx concat(moec_keval *ev, moec_node n, const moec_kcoord *index) {
  moec_kcoord at[MOEC_MAX_RANK];
  moec_kpool *p = ev->p;
  int64_t axis = MOEC_ATTRS(ev->fn, n, CONCAT)->axis;
  uint32_t n_in = moec_node_get(ev->fn, n)->n_in, n_parts = 0;
  moec_kx *parts = MOEC_NEW_ARRAY(p->arena, moec_kx, n_in),
          *before = MOEC_NEW_ARRAY(p->arena, moec_kx, n_in);
  moec_dim start = moec_dim_const(p->m, 0);
  memcpy(at, index, moec_ty(ev->fn, moec_in(ev->fn, n, 0)).rank * sizeof *at);
  for (uint32_t i = 0; i < n_in; i++) {
    moec_value x = moec_in(ev->fn, n, i);
    moec_dim end = moec_dim_add(p->m, start, moec_ty(ev->fn, x).dims[axis]);
    moec_kx from = compare(p, MOEC_OP_GE, index[axis].e, start),
            to = compare(p, MOEC_OP_LT, index[axis].e, end);
    moec_kx here = moec_kx_and(p, from, to);
    at[axis] =
        (moec_kcoord){moec_kx_sub(p, index[axis].e, moec_kx_size(p, start)), index[axis].guard};
    if (!moec_kx_is_bool(p, here, true)) at[axis].guard = moec_kx_and(p, at[axis].guard, here);
    if (!moec_kx_is_bool(p, here, false) && !moec_dim_eq(start, end)) {
      before[n_parts] = to;
      parts[n_parts++] = moec_keval_at(ev, x, at);
    }
    start = end;
  }
  if (!n_parts) { /* no element at all: nobody runs this */
    at[axis] = (moec_kcoord){moec_kx_i64(p, 0), moec_kx_bool(p, false)};
    return moec_keval_at(ev, moec_in(ev->fn, n, 0), at);
  }
  moec_kx r = parts[n_parts - 1];
  for (uint32_t i = n_parts - 1; i-- > 0;) r = choose(ev, before[i], parts[i], r);
  return r;
}

moec_kx moec_keval_move(moec_keval *ev, moec_node n, const moec_kcoord *index) {
  static const struct {
    moec_op op;
    moec_kx (*at)(moec_keval *, moec_node, const moec_kcoord *);
  } table[] = {
      {MOEC_OP_RESHAPE, reshape},
      {MOEC_OP_TRANSPOSE, transpose},
      {MOEC_OP_BROADCAST, broadcast},
      {MOEC_OP_SLICE, slice},
      {MOEC_OP_PAD, pad},
      {MOEC_OP_CONCAT, concat},
      {MOEC_OP_REVERSE, reverse},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (table[i].op == moec_op_of(ev->fn, n)) return table[i].at(ev, n, index);
  moec_kpool_fail(ev->p, MOEC_BUG("%s has no index map", moec_op_get(moec_op_of(ev->fn, n))->text));
  return moec_kx_i64(ev->p, 0);
}
