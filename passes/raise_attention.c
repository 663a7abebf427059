/* Attention from products and softmax; grouped heads undone.
 *
 *   q ──┐
 *   k ─(dot)─ *scale ─ [c*tanh(./c)] ─ +mask ─ [concat sink] ─ softmax ─ [drop sink] ─┐
 *   v ──────────────────────────────────────────────────────────────────────────────(dot)── y
 *                                                        =>  attention(q, k, v, mask, sink)
 *
 *   axes       scores are [S,T], [B,S,T], [B,H,S,T] or [B,G,H/G,S,T]; q, k, v lie behind any movement
 *   scale      on the scores, on q, on k, or in parts
 *   mask       added, in several parts; or select(mask, scores, -inf or below -10000), either way round; added
 *              before the scaling too. It stays the value that it is, with size 1 where it repeats
 *   softmax    of x - max(x) too; a select that replaces its NaNs by 0; casts around it
 *   k, v       heads repeated by broadcast and reshape become G heads, here and in an attention that
 *              came as one op
 *   rejects    scores that are no product, a mask inside the softcap, an operand that several axes share */
#include <string.h>

#include "passes/match.h"

#define MAX_MASKS 6

typedef struct mask_part {
  moec_value v;   /* of the shape of the scores */
  double factor;  /* of a float mask */
  bool boolean, inverted;
} mask_part;

typedef struct pattern {
  moec_node qk, pv;
  uint32_t rank;            /* of the scores; the last axis is T, the one before S */
  uint32_t p_side;          /* which operand of pv the probabilities are */
  uint32_t q_side;          /* which operand of qk is q */
  double scale, softcap;
  mask_part masks[MAX_MASKS];
  uint32_t n_masks;
  moec_value sink;          /* the column, {0}: none */
  const char *why;          /* rejected because */
} pattern;

/* ---- from the softmax down to the product of q and k -------------------------------------------- */

/* x where v = x - max(x) over the last axis, else v: softmax does not see the difference. */
static moec_value skip_max(moec_graph *g, moec_value v) {
  moec_value x, max, y;
  moec_trace t;
  if (!moec_m_binary(g, v, MOEC_OP_SUB, &x, &max) || !moec_trace_begin(&t, g, max)) return v;
  moec_trace_moves(&t);
  uint32_t rank = moec_ty(g, v).rank;
  if (!moec_m_unary(g, t.cur, MOEC_OP_REDUCE_MAX, &y) || y.i != x.i || !moec_trace_repeats(&t, rank - 1)) return v;
  moec_ints axes = MOEC_ATTRS(g, moec_def(g, t.cur), REDUCE_MAX)->axes;
  if (axes.n != 1 || axes.v[0] != (int64_t)rank - 1) return v;
  for (uint32_t i = 0; i + 1 < rank; i++)
    if (!moec_trace_same_axis(&t, i, i)) return v;
  return x;
}

static bool add_mask(pattern *p, mask_part part) {
  if (p->softcap != 0 || p->n_masks == MAX_MASKS) {
    p->why = p->softcap != 0 ? "a mask stands inside the softcap" : "it has too many masks";
    return false;
  }
  p->masks[p->n_masks++] = part;
  return true;
}

static bool peel(moec_graph *g, moec_value v, double factor, pattern *p);

/* v = a + b: one side leads to a product, the other is the mask. */
static bool peel_add(moec_graph *g, moec_value a, moec_value b, double factor, pattern *p) {
  pattern left = *p, right = *p;
  bool l = add_mask(&left, (mask_part){b, factor, false, false}) && peel(g, a, factor, &left);
  bool r = add_mask(&right, (mask_part){a, factor, false, false}) && peel(g, b, factor, &right);
  if (l != r) {
    *p = l ? left : right;
    return true;
  }
  p->why = l ? "its scores are a sum of two products" : left.why;
  return false;
}

static bool peel_select(moec_graph *g, moec_value v, double factor, pattern *p) {
  moec_node n = moec_def(g, v);
  for (uint32_t i = 1; i < 3; i++) {
    double c;
    if (!moec_m_scalar(g, moec_in(g, n, i), &c) || c > -1e4) continue;
    mask_part part = {moec_in(g, n, 0), 1, true, i == 1};
    return add_mask(p, part) && peel(g, moec_in(g, n, 3 - i), factor, p);
  }
  p->why = "a select among its scores has no very negative side";
  return false;
}

/* |v|, multiplied by |factor|, is what softmax sees. */
static bool peel(moec_graph *g, moec_value v, double factor, pattern *p) {
  moec_value x, y;
  double c;
  v = skip_max(g, moec_m_uncast(g, v));
  if (moec_m_scaled(g, v, &x, &c)) return peel(g, x, factor * c, p);
  if (moec_m_binary(g, v, MOEC_OP_ADD, &x, &y)) return peel_add(g, x, y, factor, p);
  if (moec_def_op(g, v) == MOEC_OP_SELECT) return peel_select(g, v, factor, p);
  if (moec_m_unary(g, v, MOEC_OP_TANH, &x)) {
    if (p->softcap != 0 || factor <= 0) return false;
    p->softcap = factor;
    return peel(g, x, 1, p);
  }
  if (moec_def_op(g, v) != MOEC_OP_DOT) {
    p->why = "its scores come from no product of q and k";
    return false;
  }
  p->qk = moec_def(g, v);
  p->scale = p->softcap != 0 ? factor * p->softcap : factor;
  return moec_ty(g, v).rank == p->rank;
}

/* |w| = concat(scores, one column): splits the sink off. */
static bool split_sink(moec_graph *g, moec_value *w, moec_dim keys, pattern *p) {
  moec_value scores, column;
  *w = skip_max(g, moec_m_uncast(g, *w));
  if (!moec_m_binary(g, *w, MOEC_OP_CONCAT, &scores, &column)) return false;
  moec_node n = moec_def(g, *w);
  moec_type_info t = moec_ty(g, scores);
  if (moec_node_get(g, n)->n_in != 2 || MOEC_ATTRS(g, n, CONCAT)->axis != (int64_t)t.rank - 1) return false;
  if (!moec_dim_eq(t.dims[t.rank - 1], keys) || !moec_dim_is(g->m, moec_ty(g, column).dims[t.rank - 1], 1))
    return false;
  *w = scores;
  p->sink = column;
  return true;
}

/* |v|, an operand of a product, holds probabilities. */
static bool match_probabilities(moec_graph *g, moec_value v, pattern *p) {
  moec_value x;
  moec_dim start, size = {0};
  int64_t step;
  double zero;
  v = moec_m_uncast(g, v);
  if (moec_def_op(g, v) == MOEC_OP_SELECT) { /* select(isnan(p), 0, p) */
    moec_node n = moec_def(g, v);
    if (!moec_m_unary(g, moec_in(g, n, 0), MOEC_OP_ISNAN, &x) || x.i != moec_in(g, n, 2).i) return false;
    if (!moec_m_scalar(g, moec_in(g, n, 1), &zero) || zero != 0) return false;
    v = moec_m_uncast(g, x);
  }
  p->rank = moec_ty(g, v).rank;
  if (p->rank < 2 || p->rank > 5) return false;
  bool sliced = moec_m_slice(g, v, (int64_t)p->rank - 1, &x, &start, &size, &step);
  if (sliced && (!moec_dim_is(g->m, start, 0) || step != 1)) return false;
  if (sliced) v = moec_m_uncast(g, x);
  if (!moec_m_unary(g, v, MOEC_OP_SOFTMAX, &x)) return false;
  int64_t axis = MOEC_ATTRS(g, moec_def(g, v), SOFTMAX)->axis;
  if (axis != (int64_t)p->rank - 1 && axis != -1) return false;
  p->why = "a column other than a sink is cut off its probabilities";
  if (sliced && !split_sink(g, &x, size, p)) return false;
  p->why = "its scores have another shape than the product";
  return peel(g, x, 1, p);
}

/* ---- axes of the two products -------------------------------------------------------------------- */

/* The axis of operand |side| of dot |n| that output axis |axis| reads; -1: none. */
static int64_t dot_axis(const moec_graph *g, moec_node n, uint32_t side, uint32_t axis) {
  const moec_attrs_DOT *a = MOEC_ATTRS(g, n, DOT);
  moec_ints batch[2] = {a->lhs_batch, a->rhs_batch}, contract[2] = {a->lhs_contract, a->rhs_contract};
  if (axis < batch[0].n) return batch[side].v[axis];
  axis -= batch[0].n;
  for (uint32_t s = 0; s < 2; s++) {
    uint32_t used = 0, rank = moec_ty(g, moec_in(g, n, s)).rank;
    for (uint32_t i = 0; i < batch[s].n; i++) used |= 1u << batch[s].v[i];
    for (uint32_t i = 0; i < contract[s].n; i++) used |= 1u << contract[s].v[i];
    for (uint32_t i = 0; i < rank; i++) {
      if (used >> i & 1) continue;
      if (axis-- == 0) return s == side ? (int64_t)i : -1;
    }
  }
  return -1;
}

static moec_ints contracted(const moec_graph *g, moec_node n, uint32_t side) {
  const moec_attrs_DOT *a = MOEC_ATTRS(g, n, DOT);
  return side ? a->rhs_contract : a->lhs_contract;
}

/* An operand brought to [B, rows, heads, width]: its factors by role. */
typedef struct operand {
  moec_trace t;
  moec_factors axes[4]; /* B, S or T, H or G, D or E */
  double scale;
} operand;

enum { ROLE_B, ROLE_ROWS, ROLE_HEADS, ROLE_WIDTH };

static uint32_t role_of(uint32_t rank, uint32_t score_axis) {
  if (score_axis + 2 >= rank) return ROLE_ROWS;
  return score_axis == 0 ? ROLE_B : ROLE_HEADS;
}

/* Traces |v| through movement and scaling (scaling only if |scaled|). */
static bool trace_operand(moec_graph *g, moec_value v, bool scaled, operand *o) {
  moec_value x;
  double c;
  o->scale = 1;
  if (!moec_trace_begin(&o->t, g, v)) return false;
  moec_trace_moves(&o->t);
  while (scaled && moec_m_scaled(g, o->t.cur, &x, &c)) {
    o->scale *= c;
    moec_trace_enter(&o->t, x);
    moec_trace_moves(&o->t);
  }
  return true;
}

/* q (|rows| = the axis S) or k (the axis T) out of the first product. */
static bool match_qk_operand(moec_graph *g, pattern *p, uint32_t side, uint32_t rows, operand *o) {
  moec_ints c = contracted(g, p->qk, side);
  moec_value v = moec_in(g, p->qk, side);
  bool grouped = false;
  if (c.n != 1 || !trace_operand(g, v, true, o)) return false;
  for (uint32_t i = 0; i < p->rank; i++) {
    int64_t axis = dot_axis(g, p->qk, side, i);
    bool other = i + 2 >= p->rank && i != rows; /* T of q, S of k */
    bool optional = role_of(p->rank, i) == ROLE_HEADS && rows == p->rank - 1;
    if (axis < 0 ? !(other || optional) : other || (grouped && optional)) return false;
    grouped = grouped || (axis < 0 && optional); /* k lacks the minor part of the heads */
    if (axis >= 0) moec_factors_append(&o->axes[role_of(p->rank, i)], &o->t.of_top[axis]);
  }
  moec_factors_append(&o->axes[ROLE_WIDTH], &o->t.of_top[c.v[0]]);
  return true;
}

static bool match_v(moec_graph *g, pattern *p, operand *o) {
  uint32_t side = 1 - p->p_side, taken = 0;
  moec_ints pc = contracted(g, p->pv, p->p_side), vc = contracted(g, p->pv, side);
  moec_value v = moec_in(g, p->pv, side);
  if (pc.n != 1 || pc.v[0] != (int64_t)p->rank - 1 || !trace_operand(g, v, false, o)) return false;
  moec_factors_append(&o->axes[ROLE_ROWS], &o->t.of_top[vc.v[0]]);
  taken = 1u << vc.v[0];
  moec_type_info out = moec_ty(g, moec_out(g, p->pv, 0));
  int64_t v_axis[MOEC_MAX_RANK];
  memset(v_axis, -1, sizeof v_axis);
  for (uint32_t j = 0; j < out.rank; j++) {
    int64_t i = dot_axis(g, p->pv, p->p_side, j);
    if (i >= 0) v_axis[i] = dot_axis(g, p->pv, side, j);
  }
  for (uint32_t i = 0; i + 1 < p->rank; i++) {
    uint32_t role = role_of(p->rank, i);
    bool in_k = dot_axis(g, p->qk, 1 - p->q_side, i) >= 0;
    if ((v_axis[i] >= 0) != (role == ROLE_ROWS ? false : in_k)) return false;
    if (v_axis[i] < 0) continue;
    moec_factors_append(&o->axes[role], &o->t.of_top[v_axis[i]]);
    taken |= 1u << v_axis[i];
  }
  uint32_t width = 0, n = 0, rank = moec_ty(g, v).rank;
  for (uint32_t i = 0; i < rank; i++)
    if (!(taken >> i & 1)) width = i, n++;
  if (n == 1) moec_factors_append(&o->axes[ROLE_WIDTH], &o->t.of_top[width]);
  return n == 1;
}

/* ---- grouped heads -------------------------------------------------------------------------------- */

/* |l| without the repeated factors at its end: the heads that are stored. */
static moec_factors stored_heads(const moec_trace *t, const moec_factors *l) {
  moec_factors s = *l;
  while (s.n && t->repeated[s.f[s.n - 1]]) s.n--;
  return s;
}

/* Drops repeated heads of k and v where both store the same number. */
static bool group_heads(operand *k, operand *v) {
  moec_factors *a = &k->axes[ROLE_HEADS], *b = &v->axes[ROLE_HEADS];
  moec_factors ka = stored_heads(&k->t, a), vb = stored_heads(&v->t, b);
  if (!moec_dim_eq(moec_factors_size(&k->t, &ka), moec_factors_size(&v->t, &vb))) return false;
  bool dropped = ka.n != a->n || vb.n != b->n;
  *a = ka;
  *b = vb;
  return dropped;
}

/* ---- building ------------------------------------------------------------------------------------- */

/* A mask over scores as [B|1, H|1, S|1, T|1]. */
static moec_value build_mask(moec_builder *b, moec_value v, uint32_t rank) {
  moec_trace t;
  moec_factors axes[4] = {0};
  if (!moec_trace_begin(&t, b->g, v)) return (moec_value){0};
  moec_trace_moves(&t);
  for (uint32_t i = 0; i < rank; i++) {
    uint32_t role = role_of(rank, i), at = role == ROLE_B ? 0 : role == ROLE_HEADS ? 1 : i + 1 == rank ? 3 : 2;
    moec_factors_append(&axes[at], &t.of_top[i]);
  }
  for (uint32_t i = 0; i < 4; i++) {
    bool repeated = true;
    for (uint32_t k = 0; k < axes[i].n; k++) repeated = repeated && t.repeated[axes[i].f[k]];
    if (repeated) axes[i].n = 0;
  }
  return moec_trace_build(b, &t, 4, axes);
}

static moec_value build_masks(moec_builder *b, const pattern *p, moec_dtype dtype) {
  moec_value boolean = {0}, added = {0};
  for (uint32_t i = 0; i < p->n_masks; i++) {
    const mask_part *part = &p->masks[i];
    moec_value v = build_mask(b, part->v, p->rank);
    if (!v.i) return v;
    if (part->boolean) {
      if (part->inverted) v = moec_b_unary(b, MOEC_OP_NOT, v);
      boolean = boolean.i ? moec_b_binary(b, MOEC_OP_AND, boolean, v) : v;
      continue;
    }
    v = moec_b_cast(b, v, dtype);
    if (part->factor != 1) v = moec_b_binary(b, MOEC_OP_MUL, v, moec_b_scalar_f(b, dtype, part->factor));
    added = added.i ? moec_b_binary(b, MOEC_OP_ADD, added, v) : v;
  }
  if (!added.i) return boolean;
  return boolean.i ? moec_b_select(b, boolean, added, moec_b_scalar_f(b, dtype, -__builtin_inf())) : added;
}

/* A stored mask is no weight: one that holds very negative numbers. */
static void freeze_mask(moec_graph *g, moec_value v) {
  moec_trace t;
  moec_tensor data;
  if (!v.i || !moec_trace_begin(&t, g, v)) return;
  moec_trace_moves(&t);
  if (moec_def_op(g, t.cur) != MOEC_OP_PARAM) return;
  moec_param p = MOEC_ATTRS(g, moec_def(g, t.cur), PARAM)->param;
  moec_status *s = moec_param_load(g->m, p, &data);
  for (int64_t i = 0; !s && i < moec_tensor_numel(&data); i++)
    if (moec_load_f64(data.dtype, data.data, (size_t)i) <= -1e4) moec_param_get(g->m, p)->trainable = false;
  if (!s) moec_tensor_fini(&data);
  moec_status_free(s);
}

/* The sink column [B,H,S,1] repeats a vector over the heads: that vector. */
static moec_value build_sink(moec_builder *b, const pattern *p) {
  moec_trace t;
  moec_factors heads = {0};
  if (!moec_trace_begin(&t, b->g, p->sink)) return (moec_value){0};
  moec_trace_moves(&t);
  for (uint32_t i = 0; i + 1 < p->rank; i++) {
    if (role_of(p->rank, i) == ROLE_HEADS) moec_factors_append(&heads, &t.of_top[i]);
    else if (!moec_trace_repeats(&t, i)) return (moec_value){0};
  }
  return moec_trace_build(b, &t, 1, &heads);
}

/* [B,S,H,E] as the second product lays it out. */
static moec_value build_output(moec_builder *b, const pattern *p, moec_value y) {
  moec_graph *g = b->g;
  moec_type_info out = moec_ty(g, moec_out(g, p->pv, 0));
  moec_dim dims[MOEC_MAX_RANK];
  int64_t perm[MOEC_MAX_RANK];
  for (uint32_t j = 0; j < out.rank; j++) {
    int64_t i = dot_axis(g, p->pv, p->p_side, j), s = (int64_t)p->rank - 2, b_axes = p->rank > 2;
    int64_t at = i < 0 ? s + 1 : i == s ? b_axes : i == 0 ? 0 : i + 1; /* of [B, S, heads..., E] */
    perm[j] = at;
    dims[at] = out.dims[j];
  }
  return moec_b_transpose(b, moec_b_reshape(b, y, out.rank, dims), perm);
}

static bool shapes_agree(const moec_graph *g, const moec_value *in) {
  moec_type_info q = moec_ty(g, in[0]), k = moec_ty(g, in[1]), v = moec_ty(g, in[2]);
  int64_t h, n;
  if (!moec_dim_eq(q.dims[0], k.dims[0]) || !moec_dim_eq(q.dims[0], v.dims[0]) || !moec_dim_eq(q.dims[3], k.dims[3]))
    return false;
  if (!moec_dim_eq(k.dims[1], v.dims[1]) || !moec_dim_eq(k.dims[2], v.dims[2])) return false;
  return !moec_dim_is_const(g->m, q.dims[2], &h) || !moec_dim_is_const(g->m, k.dims[2], &n) || (n > 0 && h % n == 0);
}

static void rewrite(moec_builder *b, pattern *p, const operand *o) {
  moec_graph *g = b->g;
  moec_value in[5] = {{0}}, old = moec_out(g, p->pv, 0);
  moec_dtype dtype = MOEC_DTYPE_NONE;
  for (uint32_t i = 0; i < 3; i++) {
    in[i] = moec_trace_build(b, &o[i].t, 4, o[i].axes);
    if (!in[i].i) return;
    moec_dtype t = moec_ty(g, in[i]).dtype;
    if (!dtype || moec_dtype_get(t)->bytes > moec_dtype_get(dtype)->bytes) dtype = t;
  }
  if (!shapes_agree(g, in)) {
    p->why = "the sizes of q, k and v do not fit together";
    return;
  }
  for (uint32_t i = 0; i < 3; i++) in[i] = moec_b_cast(b, in[i], dtype);
  in[3] = build_masks(b, p, dtype);
  if (p->n_masks && !in[3].i) return;
  for (uint32_t i = 0; i < p->n_masks; i++) freeze_mask(g, p->masks[i].v);
  if (p->sink.i) {
    in[4] = build_sink(b, p);
    if (!in[4].i) return;
    in[4] = moec_b_cast(b, in[4], dtype);
  }
  double scale = p->scale * o[0].scale * o[1].scale;
  moec_attrs_ATTENTION a = {.scale = scale, .softcap = p->softcap};
  moec_value y = moec_b_op(b, MOEC_OP_ATTENTION, &a, p->sink.i ? 5 : p->n_masks ? 4 : 3, in, 1);
  y = moec_b_cast(b, build_output(b, p, y), moec_ty(g, old).dtype);
  if (b->error) return;
  moec_replace_uses(g, old, y);
  p->why = NULL;
}

/* ---- the pass ------------------------------------------------------------------------------------- */

static void raise_products(moec_builder *b, moec_pass_ctx *cx, moec_node n) {
  moec_graph *g = b->g;
  for (uint32_t side = 0; side < 2; side++) {
    pattern p = {.pv = n, .p_side = side};
    operand o[3] = {0};
    bool found = match_probabilities(g, moec_in(g, n, side), &p);
    if (!found && !p.why) continue;
    if (found) {
      p.q_side = dot_axis(g, p.qk, 1, p.rank - 1) < 0; /* k holds the axis T */
      p.why = "its axes are not those of q, k and v";
      if (match_qk_operand(g, &p, p.q_side, p.rank - 2, &o[0]) &&
          match_qk_operand(g, &p, 1 - p.q_side, p.rank - 1, &o[1]) && match_v(g, &p, &o[2])) {
        p.why = "an operand lies in too many parts";
        (void)group_heads(&o[1], &o[2]);
        rewrite(b, &p, o);
      }
    }
    if (p.why)
      moec_remark(cx, g->m, "not recognised as attention: the product %s of a softmax: %s", moec_m_name(g, n), p.why);
    return;
  }
}

/* k and v of an attention with repeated heads; a mask that repeats along an axis. */
static void raise_grouped(moec_builder *b, moec_node n) {
  moec_graph *g = b->g;
  moec_value in[5] = {moec_in(g, n, 0), moec_in(g, n, 1), moec_in(g, n, 2), moec_in(g, n, 3), moec_in(g, n, 4)},
             mask = in[3];
  uint32_t n_in = moec_node_get(g, n)->n_in, n_out = moec_node_get(g, n)->n_out;
  operand o[2] = {0};
  for (uint32_t i = 0; i < 2; i++) {
    if (!trace_operand(g, in[1 + i], false, &o[i])) return;
    memcpy(o[i].axes, o[i].t.of_top, sizeof o[i].axes);
  }
  bool grouped = group_heads(&o[0], &o[1]);
  for (uint32_t i = 0; grouped && i < 2; i++) {
    in[1 + i] = moec_trace_build(b, &o[i].t, 4, o[i].axes);
    if (!in[1 + i].i) return;
  }
  freeze_mask(g, mask);
  if (mask.i) mask = build_mask(b, mask, 4);
  bool smaller = mask.i && memcmp(moec_ty(g, mask).dims, moec_ty(g, in[3]).dims, 4 * sizeof(moec_dim)) != 0;
  if (smaller) in[3] = mask;
  if (!grouped && !smaller) return;
  moec_value y = moec_b_op(b, MOEC_OP_ATTENTION, moec_node_get(g, n)->attrs, n_in, in, n_out);
  if (b->error) return;
  for (uint32_t i = 0; i < n_out; i++) moec_replace_uses(g, moec_out(g, n, i), moec_out(g, moec_def(g, y), i));
}

static moec_status *raise_graph(moec_graph *g, moec_pass_ctx *cx) {
  moec_builder b = moec_builder_on(g);
  size_t end = g->n_nodes;
  for (uint32_t n = 1; n < end && !b.error; n++) {
    g->loc = g->nodes[n].loc;
    if (g->nodes[n].op == MOEC_OP_DOT) raise_products(&b, cx, (moec_node){n});
    else if (g->nodes[n].op == MOEC_OP_ATTENTION) raise_grouped(&b, (moec_node){n});
  }
  return moec_builder_end(&b);
}

moec_status *moec_pass_raise_attention(moec_module *m, moec_pass_ctx *cx) {
  for (size_t f = 1; f < m->n_fns; f++) MOEC_TRY(raise_graph(m->fns[f], cx));
  return NULL;
}
