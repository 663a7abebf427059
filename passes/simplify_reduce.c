/* Rules on reductions and prefix sums. */
#include <string.h>

#include "passes/simplify.h"

#define NO ((moec_value){0})

static moec_value only_in(moec_simplifier *s, moec_node n) { return moec_in(s->g, n, 0); }
/* The attribute structs of the four reductions are alike. */
static moec_ints axes_of(moec_simplifier *s, moec_node n) { return MOEC_ATTRS(s->g, n, REDUCE_SUM)->axes; }

static moec_value reduce(moec_simplifier *s, moec_op op, moec_value x, uint32_t n_axes, const int64_t *axes) {
  moec_attrs_REDUCE_SUM a = {.axes = {n_axes, axes}};
  return moec_b_op(&s->b, op, &a, 1, &x, 1);
}

static moec_value reduce_nothing(moec_simplifier *s, moec_node n) { return axes_of(s, n).n == 0 ? only_in(s, n) : NO; }

/* Axes of size 1 are dropped by a reshape. */
static moec_value reduce_units(moec_simplifier *s, moec_node n) {
  moec_value x = only_in(s, n);
  moec_type_info t = moec_ty(s->g, x);
  moec_ints axes = axes_of(s, n);
  moec_dim dims[MOEC_MAX_RANK];
  int64_t left[MOEC_MAX_RANK];
  uint32_t k = 0, rank = 0, j = 0;
  for (uint32_t i = 0; i < t.rank; i++) {
    bool reduced = j < axes.n && axes.v[j] == (int64_t)i;
    j += reduced;
    if (reduced && moec_s_is_unit(s->m, t.dims[i])) continue;
    if (reduced) left[k++] = rank;
    dims[rank++] = t.dims[i];
  }
  if (rank == t.rank) return NO;
  x = moec_s_reshape(s, x, rank, dims);
  return k ? reduce(s, moec_op_of(s->g, n), x, k, left) : x;
}

/* reduce(transpose(x)): transpose(reduce(x)); sums may add in another order, which reductions leave open. */
static moec_value reduce_transpose(moec_simplifier *s, moec_node n) {
  moec_value x = only_in(s, n);
  if (moec_def_op(s->g, x) != MOEC_OP_TRANSPOSE) return NO;
  moec_ints perm = MOEC_ATTRS(s->g, moec_def(s->g, x), TRANSPOSE)->perm, axes = axes_of(s, n);
  uint32_t reduced = 0, k = 0, kept = 0;
  for (uint32_t i = 0; i < axes.n; i++) reduced |= 1u << perm.v[axes.v[i]];
  int64_t inner[MOEC_MAX_RANK], place[MOEC_MAX_RANK], outer[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < perm.n; i++) {
    if (reduced >> i & 1) inner[k++] = (int64_t)i;
    else place[i] = kept++;
  }
  kept = 0;
  for (uint32_t i = 0; i < perm.n; i++)
    if (!(reduced >> perm.v[i] & 1)) outer[kept++] = place[perm.v[i]];
  moec_value y = reduce(s, moec_op_of(s->g, n), moec_in(s->g, moec_def(s->g, x), 0), k, inner);
  return moec_b_transpose(&s->b, y, outer);
}

/* reduce(reshape(x)) whose reshape inserts axes of size 1: a reshape of reduce(x). */
static moec_value reduce_inserted(moec_simplifier *s, moec_node n) {
  moec_view v;
  moec_value x = only_in(s, n);
  if (moec_def_op(s->g, x) != MOEC_OP_RESHAPE || !moec_s_view(s->g, x, &v)) return NO;
  moec_ints axes = axes_of(s, n);
  int64_t inner[MOEC_MAX_RANK];
  uint32_t k = 0;
  for (uint32_t i = 0; i < v.rank; i++)
    for (uint32_t j = 0; j < axes.n; j++)
      if (axes.v[j] == v.map[i]) inner[k++] = (int64_t)i;
  moec_type_info t = moec_ty(s->g, moec_out(s->g, n, 0));
  moec_value y = k ? reduce(s, moec_op_of(s->g, n), v.source, k, inner) : v.source;
  return moec_s_reshape(s, y, t.rank, t.dims);
}

/* Prefix sums of zeros are zeros. */
static moec_value cumsum_zero(moec_simplifier *s, moec_node n) {
  return moec_s_is(s->g, only_in(s, n), 0) ? only_in(s, n) : NO;
}

#define EACH_REDUCE(name, rule)                                                                          \
  {"reduce_sum " name, MOEC_OP_REDUCE_SUM, rule}, {"reduce_prod " name, MOEC_OP_REDUCE_PROD, rule},     \
      {"reduce_max " name, MOEC_OP_REDUCE_MAX, rule}, {"reduce_min " name, MOEC_OP_REDUCE_MIN, rule}

const moec_rule moec_rules_reduce[] = {
    EACH_REDUCE("over no axes", reduce_nothing),
    EACH_REDUCE("of inserted axes", reduce_inserted),
    EACH_REDUCE("over axes of size 1", reduce_units),
    EACH_REDUCE("of a transpose", reduce_transpose),
    {"cumsum of zeros", MOEC_OP_CUMSUM, cumsum_zero},
    {0},
};
