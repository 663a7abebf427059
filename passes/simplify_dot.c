/* Rules on dot: it reads its operands as they lie.
 *
 * Canonical: no operand is a transpose that the dimension numbers can express, none has axes of size 1, contracted
 * pairs ascend on the left, an operand without free axes stands first, and a dot that contracts nothing is a product.
 * */
#include <string.h>

#include "passes/simplify.h"

#define NO ((moec_value){0})

/* A dot taken apart, with room to renumber. Side 0 is x, side 1 is y. */
typedef struct dot {
  moec_value in[2];
  uint32_t n_batch, n_contract;
  moec_dtype dtype;
  int64_t batch[2][MOEC_MAX_RANK], contract[2][MOEC_MAX_RANK];
} dot;

static void copy_axes(int64_t *to, moec_ints from) {
  if (from.n) memcpy(to, from.v, from.n * sizeof *to);
}

static dot read_dot(moec_simplifier *s, moec_node n) {
  const moec_attrs_DOT *a = MOEC_ATTRS(s->g, n, DOT);
  dot d = {.in = {moec_in(s->g, n, 0), moec_in(s->g, n, 1)}, .n_batch = a->lhs_batch.n,
      .n_contract = a->lhs_contract.n, .dtype = a->dtype};
  copy_axes(d.batch[0], a->lhs_batch);
  copy_axes(d.batch[1], a->rhs_batch);
  copy_axes(d.contract[0], a->lhs_contract);
  copy_axes(d.contract[1], a->rhs_contract);
  return d;
}

static moec_value build_dot(moec_simplifier *s, const dot *d) {
  moec_attrs_DOT a = {.lhs_batch = {d->n_batch, d->batch[0]}, .rhs_batch = {d->n_batch, d->batch[1]},
                      .lhs_contract = {d->n_contract, d->contract[0]}, .rhs_contract = {d->n_contract, d->contract[1]},
                      .dtype = d->dtype};
  return moec_b_op(&s->b, MOEC_OP_DOT, &a, 2, d->in, 1);
}

static uint32_t rank_of(moec_simplifier *s, moec_value v) { return moec_ty(s->g, v).rank; }

/* Free axes of side |k|, ascending; returns their number. */
static uint32_t free_axes(moec_simplifier *s, const dot *d, int k, int64_t *out) {
  uint32_t used = 0, n = 0;
  for (uint32_t i = 0; i < d->n_batch; i++) used |= 1u << d->batch[k][i];
  for (uint32_t i = 0; i < d->n_contract; i++) used |= 1u << d->contract[k][i];
  for (uint32_t i = 0; i < rank_of(s, d->in[k]); i++)
    if (!(used >> i & 1)) out[n++] = (int64_t)i;
  return n;
}

static void renumber(dot *d, int k, const int64_t *to) {
  for (uint32_t i = 0; i < d->n_batch; i++) d->batch[k][i] = to[d->batch[k][i]];
  for (uint32_t i = 0; i < d->n_contract; i++) d->contract[k][i] = to[d->contract[k][i]];
}

static void swap_sides(dot *d) {
  dot t = *d;
  for (int k = 0; k < 2; k++) {
    d->in[k] = t.in[1 - k];
    memcpy(d->batch[k], t.batch[1 - k], sizeof d->batch[k]);
    memcpy(d->contract[k], t.contract[1 - k], sizeof d->contract[k]);
  }
}

/* ---- rules ---------------------------------------------------------------------------------------- */

/* A transposed operand, where the order of its free axes stays. */
static moec_value dot_transpose(moec_simplifier *s, moec_node n) {
  dot d = read_dot(s, n);
  bool changed = false;
  for (int k = 0; k < 2; k++) {
    if (moec_def_op(s->g, d.in[k]) != MOEC_OP_TRANSPOSE) continue;
    moec_node t = moec_def(s->g, d.in[k]);
    const int64_t *perm = MOEC_ATTRS(s->g, t, TRANSPOSE)->perm.v;
    int64_t axes[MOEC_MAX_RANK];
    uint32_t n_free = free_axes(s, &d, k, axes);
    bool ascending = true;
    for (uint32_t i = 0; i + 1 < n_free; i++) ascending = ascending && perm[axes[i]] < perm[axes[i + 1]];
    if (!ascending) continue;
    renumber(&d, k, perm);
    d.in[k] = moec_in(s->g, t, 0);
    changed = true;
  }
  return changed ? build_dot(s, &d) : NO;
}

/* Drops the pairs of |axes| whose two sizes are 1; marks them in |drop|. */
static uint32_t drop_pairs(moec_simplifier *s, const dot *d, uint32_t n, int64_t axes[2][MOEC_MAX_RANK],
                           uint32_t drop[2]) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < n; i++) {
    bool unit = true;
    for (int k = 0; k < 2; k++) unit = unit && moec_s_is_unit(s->m, moec_ty(s->g, d->in[k]).dims[axes[k][i]]);
    for (int k = 0; k < 2; k++) {
      if (unit) drop[k] |= 1u << axes[k][i];
      else axes[k][kept] = axes[k][i];
    }
    kept += !unit;
  }
  return kept;
}

/* Axes of size 1 are taken off the operands and put back on the result. */
static moec_value dot_units(moec_simplifier *s, moec_node n) {
  dot d = read_dot(s, n);
  uint32_t drop[2] = {0, 0};
  for (int k = 0; k < 2; k++) {
    int64_t axes[MOEC_MAX_RANK];
    uint32_t n_free = free_axes(s, &d, k, axes);
    for (uint32_t i = 0; i < n_free; i++)
      if (moec_s_is_unit(s->m, moec_ty(s->g, d.in[k]).dims[axes[i]])) drop[k] |= 1u << axes[i];
  }
  d.n_batch = drop_pairs(s, &d, d.n_batch, d.batch, drop);
  d.n_contract = drop_pairs(s, &d, d.n_contract, d.contract, drop);
  if (!drop[0] && !drop[1]) return NO;
  for (int k = 0; k < 2; k++) {
    moec_type_info t = moec_ty(s->g, d.in[k]);
    moec_dim dims[MOEC_MAX_RANK];
    int64_t to[MOEC_MAX_RANK];
    uint32_t rank = 0;
    for (uint32_t i = 0; i < t.rank; i++) {
      to[i] = rank;
      if (!(drop[k] >> i & 1)) dims[rank++] = t.dims[i];
    }
    renumber(&d, k, to);
    d.in[k] = moec_s_reshape(s, d.in[k], rank, dims);
  }
  moec_type_info t = moec_ty(s->g, moec_out(s->g, n, 0));
  return moec_s_reshape(s, build_dot(s, &d), t.rank, t.dims);
}

/* Nothing contracted: an elementwise product of broadcasts. Narrow floats round once either way. */
static moec_value dot_product(moec_simplifier *s, moec_node n) {
  dot d = read_dot(s, n);
  if (d.n_contract) return NO;
  moec_type_info t = moec_ty(s->g, moec_out(s->g, n, 0));
  int64_t axes[2][MOEC_MAX_RANK], perm[MOEC_MAX_RANK], map[MOEC_MAX_RANK];
  uint32_t n_free[2] = {free_axes(s, &d, 0, axes[0]), free_axes(s, &d, 1, axes[1])};
  for (int k = 0; k < 2; k++) {
    for (uint32_t i = 0; i < d.n_batch; i++) perm[i] = d.batch[k][i], map[i] = (int64_t)i;
    for (uint32_t i = 0; i < n_free[k]; i++) {
      perm[d.n_batch + i] = axes[k][i];
      map[d.n_batch + i] = d.n_batch + i + (k ? n_free[0] : 0);
    }
    moec_value x = moec_b_transpose(&s->b, moec_b_cast(&s->b, d.in[k], t.dtype), perm);
    d.in[k] = moec_s_broadcast(s, x, t.rank, t.dims, map);
  }
  return moec_s_op(s, MOEC_OP_MUL, d.in[0], d.in[1]);
}

/* The operand without free axes first: the result is the same either way. */
static moec_value dot_order(moec_simplifier *s, moec_node n) {
  dot d = read_dot(s, n);
  int64_t axes[MOEC_MAX_RANK];
  if (free_axes(s, &d, 1, axes) != 0 || free_axes(s, &d, 0, axes) == 0) return NO;
  swap_sides(&d);
  moec_value y = build_dot(s, &d); /* batch sizes come from the left: equal by constraint only, the types differ */
  return moec_value_get(s->g, y)->type.i == moec_value_get(s->g, moec_out(s->g, n, 0))->type.i ? y : NO;
}

/* Contracted pairs ascend on the left side. */
static moec_value dot_contract_order(moec_simplifier *s, moec_node n) {
  dot d = read_dot(s, n);
  bool changed = false;
  for (uint32_t i = 1; i < d.n_contract; i++)
    for (uint32_t j = i; j && d.contract[0][j] < d.contract[0][j - 1]; j--) {
      for (int k = 0; k < 2; k++) {
        int64_t t = d.contract[k][j];
        d.contract[k][j] = d.contract[k][j - 1];
        d.contract[k][j - 1] = t;
      }
      changed = true;
    }
  return changed ? build_dot(s, &d) : NO;
}

/* transpose(dot(x, y)) that puts y's free axes before x's: dot(y, x), where nothing else reads the first dot. */
static moec_value transpose_dot(moec_simplifier *s, moec_node n) {
  moec_value z = moec_in(s->g, n, 0);
  if (moec_def_op(s->g, z) != MOEC_OP_DOT || z.i >= s->n_uses || s->uses[z.i] != 1) return NO;
  dot d = read_dot(s, moec_def(s->g, z));
  int64_t axes[MOEC_MAX_RANK];
  uint32_t nx = free_axes(s, &d, 0, axes), ny = free_axes(s, &d, 1, axes);
  moec_ints perm = MOEC_ATTRS(s->g, n, TRANSPOSE)->perm;
  for (uint32_t i = 0; i < perm.n; i++) {
    uint32_t f = i - d.n_batch;
    int64_t want = i < d.n_batch ? (int64_t)i : f < ny ? d.n_batch + nx + f : (int64_t)i - ny;
    if (perm.v[i] != want) return NO;
  }
  swap_sides(&d);
  moec_value y = build_dot(s, &d);
  return moec_value_get(s->g, y)->type.i == moec_value_get(s->g, moec_out(s->g, n, 0))->type.i ? y : NO;
}

const moec_rule moec_rules_dot[] = {
    {"dot of a transpose", MOEC_OP_DOT, dot_transpose},
    {"dot of axes of size 1", MOEC_OP_DOT, dot_units},
    {"dot that contracts nothing", MOEC_OP_DOT, dot_product},
    {"dot: operand without free axes first", MOEC_OP_DOT, dot_order},
    {"dot: contracted pairs in order", MOEC_OP_DOT, dot_contract_order},
    {"transpose of a dot", MOEC_OP_TRANSPOSE, transpose_dot},
    {0},
};
