/* Rules on attention: its mask, seen for what it is.
 *
 *     select(c, 0, -3.4e38), added   where c holds for the key at the query's own position, or a sink stands beside
 *                                    the keys: c, as a bool mask
 *     j <= i + T - S                 the attribute causal, and no mask
 *     and(j <= i + T - S, rest)      causal, and rest; the condition may lie deeper
 *
 * Positions are index ramps (simplify_affine.h) along the key axis and the query axis of the mask [B|1, H|1, S, T].
 * Kernels skip what causal hides; a mask they have to look at. */
#include "passes/simplify_affine.h"

#define NO ((moec_value){0})

/* A condition on positions, seen through broadcasts and reshapes of it to the mask's shape. */
typedef struct condition {
  moec_value core;
  uint32_t rank;
  int64_t map[MOEC_MAX_RANK]; /* axis of the core -> axis of the mask */
} condition;

enum { QUERY = 2, KEY = 3 };

static condition see_through_from(moec_simplifier *s, condition c) {
  moec_view v;
  while (moec_s_view(s->g, c.core, &v)) {
    for (uint32_t i = 0; i < v.rank; i++) v.map[i] = c.map[v.map[i]];
    c.core = v.source, c.rank = v.rank;
    for (uint32_t i = 0; i < v.rank; i++) c.map[i] = v.map[i];
  }
  return c;
}

static condition see_through(moec_simplifier *s, moec_value mask) {
  condition c = {.core = mask, .rank = moec_ty(s->g, mask).rank};
  for (uint32_t i = 0; i < c.rank; i++) c.map[i] = (int64_t)i;
  return see_through_from(s, c);
}

/* For comparison |v| of core |c|: whether it is "key <= query + T - S + *slack", all of it. */
static bool read_bound(moec_simplifier *s, const condition *c, moec_value v, moec_dim shift, moec_dim *slack) {
  moec_op op = moec_def_op(s->g, v);
  moec_affine x, y;
  if (op != MOEC_OP_LE && op != MOEC_OP_LT) return false;
  moec_node n = moec_def(s->g, v);
  if (!moec_s_affine(s, moec_in(s->g, n, 0), &x) || !moec_s_affine(s, moec_in(s->g, n, 1), &y)) return false;
  if (x.axis < 0 || y.axis < 0 || c->map[x.axis] != KEY || c->map[y.axis] != QUERY || x.coef != 1 || y.coef != 1)
    return false;
  *slack = moec_dim_sub(s->m, moec_dim_sub(s->m, y.base, x.base), shift);
  if (op == MOEC_OP_LT) *slack = moec_dim_sub(s->m, *slack, moec_dim_const(s->m, 1));
  return moec_dim_known(*slack);
}

/* |v| holds for the key at each query's own position, key = query + T - S: proved. */
static bool shows_diagonal(moec_simplifier *s, const condition *c, moec_value v, moec_dim shift, int depth) {
  moec_node n = moec_def(s->g, v);
  moec_op op = moec_op_of(s->g, n);
  moec_affine x, y;
  if (depth == 0) return false;
  if (op == MOEC_OP_AND)
    return shows_diagonal(s, c, moec_in(s->g, n, 0), shift, depth - 1) &&
           shows_diagonal(s, c, moec_in(s->g, n, 1), shift, depth - 1);
  if (op != MOEC_OP_LE && op != MOEC_OP_LT) return false;
  if (!moec_s_affine(s, moec_in(s->g, n, 0), &x) || !moec_s_affine(s, moec_in(s->g, n, 1), &y)) return false;
  if (x.axis < 0 || y.axis < 0 || x.coef != 1 || y.coef != 1) return false;
  bool forward = c->map[x.axis] == KEY && c->map[y.axis] == QUERY,
       back = c->map[x.axis] == QUERY && c->map[y.axis] == KEY;
  if (!forward && !back) return false;
  moec_dim slack = moec_dim_sub(s->m, y.base, x.base);
  slack = forward ? moec_dim_sub(s->m, slack, shift) : moec_dim_add(s->m, slack, shift);
  return moec_s_le(s->m, moec_dim_const(s->m, op == MOEC_OP_LT), slack);
}

static moec_value mask_of(moec_simplifier *s, moec_node n) { return moec_in(s->g, n, 3); }

/* T - S */
static moec_dim shift_of(moec_simplifier *s, moec_node n) {
  return moec_dim_sub(s->m, moec_ty(s->g, moec_in(s->g, n, 1)).dims[1], moec_ty(s->g, moec_in(s->g, n, 0)).dims[1]);
}

static moec_value with_mask(moec_simplifier *s, moec_node n, moec_value mask, bool causal) {
  moec_attrs_ATTENTION a = *MOEC_ATTRS(s->g, n, ATTENTION);
  moec_value in[5];
  uint32_t n_in = moec_node_get(s->g, n)->n_in;
  for (uint32_t i = 0; i < n_in; i++) in[i] = moec_in(s->g, n, i);
  in[3] = mask;
  a.causal = a.causal || causal;
  if (n_in == 4 && !mask.i) n_in = 3;
  return moec_b_op(&s->b, MOEC_OP_ATTENTION, &a, n_in, in, 1);
}

/* Added to finite scores of which one in each row stays (the sink is one), -1e30 or less leaves a probability of
 * exactly 0. */
static moec_value additive_mask(moec_simplifier *s, moec_node n) {
  moec_value mask = mask_of(s, n);
  double low;
  if (!mask.i || moec_ty(s->g, mask).dtype == MOEC_BOOL) return NO;
  condition c = see_through(s, mask);
  moec_node sel = moec_def(s->g, c.core);
  if (moec_op_of(s->g, sel) != MOEC_OP_SELECT || !moec_s_is(s->g, moec_in(s->g, sel, 1), 0)) return NO;
  if (!moec_s_fill_float(s->g, moec_in(s->g, sel, 2), &low) || !(low <= -1e30)) return NO;
  moec_dim shift = shift_of(s, n);
  bool sink = moec_in(s->g, n, 4).i != 0;
  if (!sink && (!moec_dim_is_nonneg(s->m, shift) || !shows_diagonal(s, &c, moec_in(s->g, sel, 0), shift, 8))) return NO;
  moec_type_info t = moec_ty(s->g, mask);
  return with_mask(s, n, moec_s_broadcast(s, moec_in(s->g, sel, 0), t.rank, t.dims, c.map), false);
}

/* Whether |c| is "key <= query + T - S", maybe and'ed with others: these as *rest, broadcast to the mask's type |t|. */
static bool split_causal(moec_simplifier *s, condition c, moec_dim shift, moec_type_info t, int depth,
                         moec_value *rest) {
  moec_dim slack;
  moec_node both = moec_def(s->g, c.core);
  if (read_bound(s, &c, c.core, shift, &slack) && moec_dim_is(s->m, slack, 0)) return true;
  if (depth == 0 || moec_op_of(s->g, both) != MOEC_OP_AND) return false;
  for (uint32_t k = 0; k < 2; k++) {
    condition part = c;
    part.core = moec_in(s->g, both, k);
    if (!split_causal(s, see_through_from(s, part), shift, t, depth - 1, rest)) continue;
    moec_value other = moec_s_broadcast(s, moec_in(s->g, both, 1 - k), t.rank, t.dims, c.map);
    *rest = rest->i ? moec_b_binary(&s->b, MOEC_OP_AND, *rest, other) : other;
    return true;
  }
  return false;
}

static moec_value causal_mask(moec_simplifier *s, moec_node n) {
  moec_value mask = mask_of(s, n), rest = NO;
  if (!mask.i || moec_ty(s->g, mask).dtype != MOEC_BOOL) return NO;
  moec_type_info t = moec_ty(s->g, mask);
  return split_causal(s, see_through(s, mask), shift_of(s, n), t, 8, &rest) ? with_mask(s, n, rest, true) : NO;
}

/* A mask that hides nothing. */
static moec_value no_mask(moec_simplifier *s, moec_node n) {
  moec_value mask = mask_of(s, n);
  if (!mask.i) return NO;
  return moec_s_is(s->g, mask, moec_ty(s->g, mask).dtype == MOEC_BOOL) ? with_mask(s, n, NO, false) : NO;
}

const moec_rule moec_rules_attention[] = {
    {"attention: no mask", MOEC_OP_ATTENTION, no_mask},
    {"attention: additive mask", MOEC_OP_ATTENTION, additive_mask},
    {"attention: causal mask", MOEC_OP_ATTENTION, causal_mask},
    {0},
};
