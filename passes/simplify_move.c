/* Rules on one movement op over another: reshape, transpose, slice, pad, reverse.
 *
 * Canonical, from the leaves up: slice, transpose, reshape, broadcast; each at most once where the two can be joined.
 * */
#include <string.h>

#include "passes/simplify.h"

#define NO ((moec_value){0})

static moec_value only_in(moec_simplifier *s, moec_node n) { return moec_in(s->g, n, 0); }
static moec_type_info out_ty(moec_simplifier *s, moec_node n) { return moec_ty(s->g, moec_out(s->g, n, 0)); }
static moec_value in_of(moec_simplifier *s, moec_value v) { return moec_in(s->g, moec_def(s->g, v), 0); }

static moec_value same_type(moec_simplifier *s, moec_node n) {
  moec_value x = only_in(s, n);
  return moec_value_get(s->g, x)->type.i == moec_value_get(s->g, moec_out(s->g, n, 0))->type.i ? x : NO;
}

/* ---- reshape ----------------------------------------------------------------------------------- */

static moec_value reshape_reshape(moec_simplifier *s, moec_node n) {
  moec_value x = only_in(s, n);
  moec_type_info t = out_ty(s, n);
  return moec_def_op(s->g, x) == MOEC_OP_RESHAPE ? moec_s_reshape(s, in_of(s, x), t.rank, t.dims) : NO;
}

/* A reshape of what a scalar fills, or of a scalar, is filled by it. */
static moec_value reshape_fill(moec_simplifier *s, moec_node n) {
  moec_value x = only_in(s, n);
  moec_type_info t = out_ty(s, n);
  if (moec_def_op(s->g, x) == MOEC_OP_BROADCAST) x = in_of(s, x);
  return moec_ty(s->g, x).rank == 0 ? moec_s_broadcast(s, x, t.rank, t.dims, NULL) : NO;
}

/* reshape(broadcast(x)) that adds or removes axes of size 1 only: another broadcast of x. */
static moec_value reshape_broadcast(moec_simplifier *s, moec_node n) {
  moec_value x = only_in(s, n);
  if (moec_def_op(s->g, x) != MOEC_OP_BROADCAST) return NO;
  moec_ints inner = MOEC_ATTRS(s->g, moec_def(s->g, x), BROADCAST)->map;
  moec_type_info from = moec_ty(s->g, x), to = out_ty(s, n), src = moec_ty(s->g, in_of(s, x));
  int64_t place[MOEC_MAX_RANK], map[MOEC_MAX_RANK]; /* axis of x -> axis of the result */
  uint32_t k = 0;
  for (uint32_t i = 0; i < from.rank; i++) {
    place[i] = -1;
    if (moec_s_is_unit(s->m, from.dims[i])) continue;
    while (k < to.rank && moec_s_is_unit(s->m, to.dims[k])) k++;
    if (k == to.rank || !moec_dim_eq(from.dims[i], to.dims[k])) return NO;
    place[i] = k++;
  }
  for (; k < to.rank; k++)
    if (!moec_s_is_unit(s->m, to.dims[k])) return NO;
  for (uint32_t i = 0; i < inner.n; i++) {
    map[i] = place[inner.v[i]];
    if (map[i] < 0 || moec_s_is_unit(s->m, src.dims[i])) return NO; /* not canonical yet */
  }
  return moec_s_broadcast(s, in_of(s, x), to.rank, to.dims, map);
}

/* ---- transpose --------------------------------------------------------------------------------- */

static moec_ints perm_of(moec_simplifier *s, moec_node n) { return MOEC_ATTRS(s->g, n, TRANSPOSE)->perm; }

static moec_value transpose_transpose(moec_simplifier *s, moec_node n) {
  moec_value x = only_in(s, n);
  if (moec_def_op(s->g, x) != MOEC_OP_TRANSPOSE) return NO;
  moec_ints outer = perm_of(s, n), inner = perm_of(s, moec_def(s->g, x));
  int64_t perm[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < outer.n; i++) perm[i] = inner.v[outer.v[i]];
  return moec_b_transpose(&s->b, in_of(s, x), perm);
}

/* Only axes of size 1 move: a reshape. */
static moec_value transpose_units(moec_simplifier *s, moec_node n) {
  moec_ints perm = perm_of(s, n);
  moec_type_info t = out_ty(s, n);
  int64_t last = -1;
  for (uint32_t i = 0; i < perm.n; i++) {
    if (moec_s_is_unit(s->m, t.dims[i])) continue;
    if (perm.v[i] < last) return NO;
    last = perm.v[i];
  }
  return moec_s_reshape(s, only_in(s, n), t.rank, t.dims);
}

/* transpose(broadcast(x)): a broadcast of x, itself transposed where the order of its axes changes. */
static moec_value transpose_broadcast(moec_simplifier *s, moec_node n) {
  moec_value x = only_in(s, n);
  if (moec_def_op(s->g, x) != MOEC_OP_BROADCAST) return NO;
  moec_ints perm = perm_of(s, n), map = MOEC_ATTRS(s->g, moec_def(s->g, x), BROADCAST)->map;
  moec_type_info t = out_ty(s, n);
  int64_t inner_perm[MOEC_MAX_RANK], new_map[MOEC_MAX_RANK];
  uint32_t k = 0;
  for (uint32_t i = 0; i < perm.n; i++)
    for (uint32_t j = 0; j < map.n; j++)
      if (map.v[j] == perm.v[i]) inner_perm[k] = (int64_t)j, new_map[k++] = (int64_t)i;
  return moec_s_broadcast(s, moec_b_transpose(&s->b, in_of(s, x), inner_perm), t.rank, t.dims, new_map);
}

/* transpose(reshape(x)) whose reshape inserts axes of size 1: transpose first, where that leaves x as it is. */
static moec_value transpose_inserted(moec_simplifier *s, moec_node n) {
  moec_view v;
  moec_value x = only_in(s, n);
  if (moec_def_op(s->g, x) != MOEC_OP_RESHAPE || !moec_s_view(s->g, x, &v)) return NO;
  moec_ints perm = perm_of(s, n);
  moec_type_info t = out_ty(s, n);
  int64_t inner[MOEC_MAX_RANK];
  uint32_t k = 0;
  for (uint32_t i = 0; i < perm.n; i++)
    for (uint32_t j = 0; j < v.rank; j++)
      if (v.map[j] == perm.v[i]) inner[k++] = (int64_t)j;
  return moec_s_reshape(s, moec_b_transpose(&s->b, v.source, inner), t.rank, t.dims);
}

/* transpose(op(broadcasts)), read by nothing else: op(other broadcasts), where no source is transposed for it. */
static moec_value transpose_elementwise(moec_simplifier *s, moec_node n) {
  moec_value x = only_in(s, n), in[3];
  moec_node e = moec_def(s->g, x);
  if (!moec_op_is_elementwise(moec_op_of(s->g, e)) || x.i >= s->n_uses || s->uses[x.i] != 1) return NO;
  moec_ints perm = perm_of(s, n);
  moec_type_info t = out_ty(s, n);
  uint32_t n_in = moec_node_get(s->g, e)->n_in;
  for (uint32_t k = 0; k < n_in; k++) {
    moec_view v;
    int64_t map[MOEC_MAX_RANK];
    if (!moec_s_view(s->g, moec_in(s->g, e, k), &v)) return NO;
    for (uint32_t j = 0; j < v.rank; j++) {
      for (uint32_t i = 0; i < perm.n; i++)
        if (perm.v[i] == v.map[j]) map[j] = (int64_t)i;
      if (j && map[j] < map[j - 1]) return NO;
    }
    in[k] = moec_s_broadcast(s, v.source, t.rank, t.dims, map);
  }
  return moec_b_op(&s->b, moec_op_of(s->g, e), moec_node_get(s->g, e)->attrs, n_in, in, 1);
}

/* ---- slice --------------------------------------------------------------------------------------- */

static const moec_attrs_SLICE *slice_of(moec_simplifier *s, moec_node n) { return MOEC_ATTRS(s->g, n, SLICE); }

static bool axis_whole(moec_simplifier *s, const moec_attrs_SLICE *a, moec_type_info from, uint32_t i) {
  return moec_dim_eq(a->size.v[i], from.dims[i]) && moec_dim_is(s->m, a->start.v[i], 0) && a->step.v[i] == 1;
}

static moec_value slice_op(moec_simplifier *s, moec_value x, uint32_t rank, const moec_dim *start, const moec_dim *size,
                           const int64_t *step) {
  moec_attrs_SLICE a = {.start = {rank, start}, .size = {rank, size}, .step = {rank, step}};
  return moec_b_op(&s->b, MOEC_OP_SLICE, &a, 1, &x, 1);
}

static moec_value slice_whole(moec_simplifier *s, moec_node n) {
  moec_type_info from = moec_ty(s->g, only_in(s, n));
  for (uint32_t i = 0; i < from.rank; i++)
    if (!axis_whole(s, slice_of(s, n), from, i)) return NO;
  return only_in(s, n);
}

static moec_value slice_slice(moec_simplifier *s, moec_node n) {
  moec_value x = only_in(s, n);
  if (moec_def_op(s->g, x) != MOEC_OP_SLICE) return NO;
  const moec_attrs_SLICE *o = slice_of(s, n), *i = slice_of(s, moec_def(s->g, x));
  moec_dim start[MOEC_MAX_RANK];
  int64_t step[MOEC_MAX_RANK];
  for (uint32_t k = 0; k < o->start.n; k++) {
    moec_dim skip = moec_dim_mul(s->m, o->start.v[k], moec_dim_const(s->m, i->step.v[k]));
    start[k] = moec_dim_add(s->m, i->start.v[k], skip);
    if (!moec_dim_known(start[k]) || __builtin_mul_overflow(i->step.v[k], o->step.v[k], &step[k])) return NO;
  }
  return slice_op(s, in_of(s, x), o->start.n, start, o->size.v, step);
}

/* slice(broadcast(x)): repeated axes only change their size; the others are sliced in x. */
static moec_value slice_broadcast(moec_simplifier *s, moec_node n) {
  moec_value x = only_in(s, n);
  if (moec_def_op(s->g, x) != MOEC_OP_BROADCAST) return NO;
  const moec_attrs_SLICE *a = slice_of(s, n);
  moec_ints map = MOEC_ATTRS(s->g, moec_def(s->g, x), BROADCAST)->map;
  moec_type_info t = moec_ty(s->g, in_of(s, x)), to = out_ty(s, n);
  moec_dim start[MOEC_MAX_RANK], size[MOEC_MAX_RANK];
  int64_t step[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < t.rank; i++) {
    bool repeated = moec_s_is_unit(s->m, t.dims[i]);
    start[i] = repeated ? moec_dim_const(s->m, 0) : a->start.v[map.v[i]];
    size[i] = repeated ? t.dims[i] : a->size.v[map.v[i]];
    step[i] = repeated ? 1 : a->step.v[map.v[i]];
  }
  moec_value y = t.rank ? slice_op(s, in_of(s, x), t.rank, start, size, step) : in_of(s, x);
  return moec_s_broadcast(s, y, to.rank, to.dims, map.v);
}

/* slice(transpose(x)): transpose(slice(x)). */
static moec_value slice_transpose(moec_simplifier *s, moec_node n) {
  moec_value x = only_in(s, n);
  if (moec_def_op(s->g, x) != MOEC_OP_TRANSPOSE) return NO;
  const moec_attrs_SLICE *a = slice_of(s, n);
  moec_ints perm = perm_of(s, moec_def(s->g, x));
  moec_dim start[MOEC_MAX_RANK], size[MOEC_MAX_RANK];
  int64_t step[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < perm.n; i++) {
    start[perm.v[i]] = a->start.v[i];
    size[perm.v[i]] = a->size.v[i];
    step[perm.v[i]] = a->step.v[i];
  }
  return moec_b_transpose(&s->b, slice_op(s, in_of(s, x), perm.n, start, size, step), perm.v);
}

/* slice(reshape(x)) whose reshape only adds or removes axes of size 1, which stay whole: reshape(slice(x)). */
static moec_value slice_units(moec_simplifier *s, moec_node n) {
  moec_value x = only_in(s, n);
  if (moec_def_op(s->g, x) != MOEC_OP_RESHAPE) return NO;
  const moec_attrs_SLICE *a = slice_of(s, n);
  moec_type_info from = moec_ty(s->g, x), src = moec_ty(s->g, in_of(s, x)), to = out_ty(s, n);
  moec_dim start[MOEC_MAX_RANK], size[MOEC_MAX_RANK];
  int64_t step[MOEC_MAX_RANK];
  uint32_t i = 0;
  if (src.rank == 0) return NO;
  for (uint32_t k = 0; k < src.rank; k++) {
    start[k] = moec_dim_const(s->m, 0), size[k] = src.dims[k], step[k] = 1;
    if (moec_s_is_unit(s->m, src.dims[k])) continue;
    for (; i < from.rank && moec_s_is_unit(s->m, from.dims[i]); i++)
      if (!axis_whole(s, a, from, i)) return NO;
    if (i == from.rank || !moec_dim_eq(from.dims[i], src.dims[k])) return NO;
    start[k] = a->start.v[i], size[k] = a->size.v[i], step[k] = a->step.v[i], i++;
  }
  for (; i < from.rank; i++)
    if (!moec_s_is_unit(s->m, from.dims[i]) || !axis_whole(s, a, from, i)) return NO;
  return moec_s_reshape(s, slice_op(s, in_of(s, x), src.rank, start, size, step), to.rank, to.dims);
}

/* ---- reverse, pad ---------------------------------------------------------------------------------- */

/* Axes of size 1 reverse to themselves. */
static moec_value reverse_units(moec_simplifier *s, moec_node n) {
  moec_ints axes = MOEC_ATTRS(s->g, n, REVERSE)->axes;
  moec_type_info t = out_ty(s, n);
  int64_t left[MOEC_MAX_RANK];
  uint32_t k = 0;
  for (uint32_t i = 0; i < axes.n; i++)
    if (!moec_s_is_unit(s->m, t.dims[axes.v[i]])) left[k++] = axes.v[i];
  if (k == 0) return only_in(s, n);
  if (k == axes.n) return NO;
  moec_value x = only_in(s, n);
  moec_attrs_REVERSE a = {.axes = {k, left}};
  return moec_b_op(&s->b, MOEC_OP_REVERSE, &a, 1, &x, 1);
}

/* Axes reversed twice stay as they were. */
static moec_value reverse_reverse(moec_simplifier *s, moec_node n) {
  moec_value x = only_in(s, n);
  if (moec_def_op(s->g, x) != MOEC_OP_REVERSE) return NO;
  moec_ints a = MOEC_ATTRS(s->g, n, REVERSE)->axes, b = MOEC_ATTRS(s->g, moec_def(s->g, x), REVERSE)->axes;
  uint32_t odd = 0, k = 0;
  int64_t axes[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < a.n; i++) odd ^= 1u << a.v[i];
  for (uint32_t i = 0; i < b.n; i++) odd ^= 1u << b.v[i];
  for (uint32_t i = 0; i < MOEC_MAX_RANK; i++)
    if (odd >> i & 1) axes[k++] = (int64_t)i;
  if (k == 0) return in_of(s, x);
  moec_value y = in_of(s, x);
  moec_attrs_REVERSE attrs = {.axes = {k, axes}};
  return moec_b_op(&s->b, MOEC_OP_REVERSE, &attrs, 1, &y, 1);
}

static moec_value pad_nothing(moec_simplifier *s, moec_node n) {
  const moec_attrs_PAD *a = MOEC_ATTRS(s->g, n, PAD);
  for (uint32_t i = 0; i < a->lo.n; i++)
    if (!moec_dim_is(s->m, a->lo.v[i], 0) || !moec_dim_is(s->m, a->hi.v[i], 0)) return NO;
  return only_in(s, n);
}

const moec_rule moec_rules_move[] = {
    {"reshape to the same shape", MOEC_OP_RESHAPE, same_type},
    {"reshape of a reshape", MOEC_OP_RESHAPE, reshape_reshape},
    {"reshape of a filled value", MOEC_OP_RESHAPE, reshape_fill},
    {"reshape of a broadcast", MOEC_OP_RESHAPE, reshape_broadcast},
    {"transpose of a transpose", MOEC_OP_TRANSPOSE, transpose_transpose},
    {"transpose of axes of size 1", MOEC_OP_TRANSPOSE, transpose_units},
    {"transpose of a broadcast", MOEC_OP_TRANSPOSE, transpose_broadcast},
    {"transpose of inserted axes", MOEC_OP_TRANSPOSE, transpose_inserted},
    {"transpose of an op on broadcasts", MOEC_OP_TRANSPOSE, transpose_elementwise},
    {"slice of everything", MOEC_OP_SLICE, slice_whole},
    {"slice of a slice", MOEC_OP_SLICE, slice_slice},
    {"slice of a broadcast", MOEC_OP_SLICE, slice_broadcast},
    {"slice of a transpose", MOEC_OP_SLICE, slice_transpose},
    {"slice of moved axes of size 1", MOEC_OP_SLICE, slice_units},
    {"reverse of axes of size 1", MOEC_OP_REVERSE, reverse_units},
    {"reverse of a reverse", MOEC_OP_REVERSE, reverse_reverse},
    {"pad by nothing", MOEC_OP_PAD, pad_nothing},
    {0},
};
