/* Rules on gather and scatter whose indices are known: they are movement.
 *
 * Dropped with the indices is their range check; it is dropped only where it is proved, or where the index is taken
 * fewer times than before. */
#include <string.h>

#include "passes/simplify_affine.h"

#define NO ((moec_value){0})

static moec_value in0(moec_simplifier *s, moec_node n) { return moec_in(s->g, n, 0); }
static moec_value in1(moec_simplifier *s, moec_node n) { return moec_in(s->g, n, 1); }

static moec_value slice_axis(moec_simplifier *s, moec_value x, int64_t axis, moec_dim start, moec_dim size) {
  return moec_b_slice(&s->b, x, axis, start, size);
}

static moec_value gather(moec_simplifier *s, moec_value x, moec_value i, int64_t axis) {
  moec_attrs_GATHER a = {.axis = axis};
  moec_value in[2] = {x, i};
  return moec_b_op(&s->b, MOEC_OP_GATHER, &a, 2, in, 1);
}

/* The part of |x| along |axis| that base, base + 1, ... picks, |size| of them; {0}: not proved to lie inside. */
static moec_value picked(moec_simplifier *s, moec_value x, int64_t axis, moec_dim base, moec_dim size) {
  moec_dim have = moec_ty(s->g, x).dims[axis];
  int64_t at, n;
  if (moec_dim_is_const(s->m, base, &at) && at < 0) { /* from the end */
    if (!moec_dim_is(s->m, size, 1) || !moec_dim_is_const(s->m, have, &n)) return NO;
    base = moec_dim_add(s->m, base, have);
  }
  if (!moec_dim_is_nonneg(s->m, base) || !moec_s_le(s->m, moec_dim_add(s->m, base, size), have)) return NO;
  return slice_axis(s, x, axis, base, size);
}

/* ---- gather ------------------------------------------------------------------------------------- */

/* Broadcasts |y| = gather of the index's source to the shape of node |n|'s result. */
static moec_value spread(moec_simplifier *s, moec_node n, moec_value y, int64_t axis, uint32_t rank,
                         const int64_t *index_map) {
  moec_type_info x = moec_ty(s->g, in0(s, n)), i = moec_ty(s->g, in1(s, n)), to = moec_ty(s->g, moec_out(s->g, n, 0));
  int64_t map[2 * MOEC_MAX_RANK];
  uint32_t k = 0;
  for (int64_t a = 0; a < axis; a++) map[k++] = a;
  for (uint32_t a = 0; a < rank; a++) map[k++] = axis + index_map[a];
  for (uint32_t a = (uint32_t)axis + 1; a < x.rank; a++) map[k++] = a - 1 + i.rank;
  return moec_s_broadcast(s, y, to.rank, to.dims, map);
}

/* gather(x, broadcast(i)): broadcast(gather(x, i)); reshapes that insert axes of size 1 too. */
static moec_value gather_view(moec_simplifier *s, moec_node n) {
  moec_view v;
  int64_t axis = MOEC_ATTRS(s->g, n, GATHER)->axis;
  if (!moec_s_view(s->g, in1(s, n), &v) || moec_ty(s->g, in0(s, n)).rank + v.rank > MOEC_MAX_RANK) return NO;
  return spread(s, n, gather(s, in0(s, n), v.source, axis), axis, v.rank, v.map);
}

/* gather(x, reshape(i)): a reshape. */
static moec_value gather_reshape(moec_simplifier *s, moec_node n) {
  if (moec_def_op(s->g, in1(s, n)) != MOEC_OP_RESHAPE) return NO;
  moec_value i = moec_in(s->g, moec_def(s->g, in1(s, n)), 0);
  if (moec_ty(s->g, in0(s, n)).rank + moec_ty(s->g, i).rank > MOEC_MAX_RANK) return NO;
  moec_type_info to = moec_ty(s->g, moec_out(s->g, n, 0));
  return moec_s_reshape(s, gather(s, in0(s, n), i, MOEC_ATTRS(s->g, n, GATHER)->axis), to.rank, to.dims);
}

/* Indices base, base + 1, ...: a slice. */
static moec_value gather_ramp(moec_simplifier *s, moec_node n) {
  int64_t axis = MOEC_ATTRS(s->g, n, GATHER)->axis;
  moec_type_info i = moec_ty(s->g, in1(s, n)), to = moec_ty(s->g, moec_out(s->g, n, 0));
  moec_affine a;
  if (i.rank > 1 || !moec_s_affine(s, in1(s, n), &a)) return NO;
  if (i.rank == 1 && (a.axis != 0 || a.coef != 1)) return NO;
  moec_value y = picked(s, in0(s, n), axis, a.base, i.rank ? i.dims[0] : moec_dim_const(s->m, 1));
  return y.i ? moec_s_reshape(s, y, to.rank, to.dims) : NO;
}

/* ---- gather_nd ------------------------------------------------------------------------------------ */

/* One index a place: gather along the first axis. */
static moec_value gather_nd_single(moec_simplifier *s, moec_node n) {
  moec_type_info i = moec_ty(s->g, in1(s, n));
  if (MOEC_ATTRS(s->g, n, GATHER_ND)->batch_dims != 0 || !moec_s_is_unit(s->m, i.dims[i.rank - 1])) return NO;
  return gather(s, in0(s, n), moec_s_reshape(s, in1(s, n), i.rank - 1, i.dims), 0);
}

typedef struct grid {
  uint32_t q;
  moec_affine part[MOEC_MAX_RANK];
} grid;

/* Indices that are a concat, along their last axis, of q parts that vary along one axis each. */
static bool read_grid(moec_simplifier *s, moec_value i, grid *out) {
  moec_node cat = moec_def(s->g, i);
  moec_type_info t = moec_ty(s->g, i);
  uint32_t used = 0;
  if (moec_op_of(s->g, cat) != MOEC_OP_CONCAT || MOEC_ATTRS(s->g, cat, CONCAT)->axis != (int64_t)t.rank - 1)
    return false;
  out->q = moec_node_get(s->g, cat)->n_in;
  for (uint32_t k = 0; k < out->q; k++) {
    moec_value x = moec_in(s->g, cat, k);
    moec_affine *a = &out->part[k];
    if (k == MOEC_MAX_RANK || !moec_s_is_unit(s->m, moec_ty(s->g, x).dims[t.rank - 1]) || !moec_s_affine(s, x, a))
      return false;
    if (a->axis >= 0 && (a->coef != 1 || (used >> a->axis & 1))) return false;
    if (a->axis >= 0) used |= 1u << a->axis;
  }
  return true;
}

/* y[p] = x[p_a + base, p_b + base, ...]: slices of x, transposed where a, b, ... don't ascend, broadcast along the
 * axes of the indices that no part varies along. */
static moec_value gather_nd_grid(moec_simplifier *s, moec_node n) {
  grid g;
  moec_value x = in0(s, n);
  moec_type_info i = moec_ty(s->g, in1(s, n)), to = moec_ty(s->g, moec_out(s->g, n, 0)), t = moec_ty(s->g, x);
  if (MOEC_ATTRS(s->g, n, GATHER_ND)->batch_dims != 0 || !read_grid(s, in1(s, n), &g)) return NO;
  moec_dim one = moec_dim_const(s->m, 1), dims[MOEC_MAX_RANK];
  uint32_t kept = 0;
  int64_t place[MOEC_MAX_RANK], perm[MOEC_MAX_RANK], map[MOEC_MAX_RANK]; /* of the kept axes of x: axis of the result */
  for (uint32_t k = 0; k < t.rank; k++) {
    bool varies = k >= g.q || g.part[k].axis >= 0;
    if (k < g.q) {
      x = picked(s, x, k, g.part[k].base, varies ? i.dims[g.part[k].axis] : one);
      if (!x.i) return NO;
    }
    if (!varies) continue;
    dims[kept] = moec_ty(s->g, x).dims[k];
    place[kept++] = k < g.q ? g.part[k].axis : (int64_t)(i.rank - 1 + k - g.q);
  }
  x = moec_s_reshape(s, x, kept, dims);
  uint32_t order = 0;
  for (uint32_t a = 0; a < to.rank; a++)
    for (uint32_t k = 0; k < kept; k++)
      if (place[k] == (int64_t)a) perm[order] = (int64_t)k, map[order++] = (int64_t)a;
  return moec_s_broadcast(s, moec_b_transpose(&s->b, x, perm), to.rank, to.dims, map);
}

/* ---- scatter -------------------------------------------------------------------------------------- */

/* |x| with |count| rows from |base| on, along |axis|, replaced by |u|: the rows before, the updates, the rows behind.
 * {0}: not proved to lie inside. */
static moec_value with_rows(moec_simplifier *s, moec_value x, int64_t axis, moec_dim base, moec_dim count,
                            moec_value u) {
  moec_dim have = moec_ty(s->g, x).dims[axis], end = moec_dim_add(s->m, base, count);
  if (!moec_dim_is_nonneg(s->m, base) || !moec_s_le(s->m, end, have)) return NO;
  moec_value part[3];
  uint32_t k = 0;
  if (!moec_dim_is(s->m, base, 0)) part[k++] = slice_axis(s, x, axis, moec_dim_const(s->m, 0), base);
  part[k++] = u;
  moec_dim left = moec_dim_sub(s->m, have, end);
  if (!moec_dim_is(s->m, left, 0)) part[k++] = slice_axis(s, x, axis, end, left);
  moec_value y = moec_b_concat(&s->b, k, part, axis);
  return y.i && moec_value_get(s->g, y)->type.i == moec_value_get(s->g, x)->type.i ? y : NO;
}

/* Assigning whole rows base, base + 1, ... */
static moec_value scatter_nd_rows(moec_simplifier *s, moec_node n) {
  moec_type_info i = moec_ty(s->g, in1(s, n));
  moec_affine a;
  if (MOEC_ATTRS(s->g, n, SCATTER_ND)->reduction != 0 || i.rank != 2 || !moec_s_is_unit(s->m, i.dims[1])) return NO;
  if (!moec_s_affine(s, in1(s, n), &a)) return NO;
  if (!moec_s_is_unit(s->m, i.dims[0]) && (a.axis != 0 || a.coef != 1)) return NO;
  return with_rows(s, in0(s, n), 0, a.base, i.dims[0], moec_in(s->g, n, 2));
}

/* The same with an index for each element. */
static moec_value scatter_elements_rows(moec_simplifier *s, moec_node n) {
  int64_t axis = MOEC_ATTRS(s->g, n, SCATTER_ELEMENTS)->axis;
  moec_type_info i = moec_ty(s->g, in1(s, n)), t = moec_ty(s->g, in0(s, n));
  moec_affine a;
  if (MOEC_ATTRS(s->g, n, SCATTER_ELEMENTS)->reduction != 0 || !moec_s_affine(s, in1(s, n), &a)) return NO;
  for (uint32_t k = 0; k < t.rank; k++)
    if ((int64_t)k != axis && !moec_dim_eq(i.dims[k], t.dims[k])) return NO;
  bool one = moec_s_is_unit(s->m, i.dims[axis]) && a.axis < 0;
  if (!one && (a.axis != axis || a.coef != 1)) return NO;
  return with_rows(s, in0(s, n), axis, a.base, i.dims[axis], moec_in(s->g, n, 2));
}

const moec_rule moec_rules_index[] = {
    {"gather along an index ramp", MOEC_OP_GATHER, gather_ramp},
    {"gather with broadcast indices", MOEC_OP_GATHER, gather_view},
    {"gather with reshaped indices", MOEC_OP_GATHER, gather_reshape},
    {"gather_nd with one index", MOEC_OP_GATHER_ND, gather_nd_single},
    {"gather_nd along index ramps", MOEC_OP_GATHER_ND, gather_nd_grid},
    {"scatter_nd of adjacent rows", MOEC_OP_SCATTER_ND, scatter_nd_rows},
    {"scatter_elements of adjacent rows", MOEC_OP_SCATTER_ELEMENTS, scatter_elements_rows},
    {0},
};
