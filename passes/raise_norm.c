/* rms_norm and softmax from their arithmetic.
 *
 *   x ──┬────────────────────────────────────────────(*)── [cast] ──(*)── y      =>  rms_norm(x, w)
 *       └ x*x ─ sum(last) ─ /n ─ + eps ─ 1/sqrt ─ bcast ┘    w[D] ─ bcast ┘
 *
 *   square   x*x, pow(x, 2)                     mean   sum * (1/n), sum / n
 *   1/sqrt   rsqrt, recip(sqrt), 1 / sqrt, pow(u, -1/2); x / sqrt(u) in place of the product
 *   weight   none, or any value that varies along the last axis only (1 + w is such a value); a weight
 *            used by a product whose other side has more readers stays a product
 *   casts    narrower x widened before, narrowed right after the first product: rms_norm of the narrow
 *            x, which computes in f32 anyway; else the casts stay outside
 *   rejects  sums that are not divided by n (L2 norms), means over other axes, a square of another value
 *
 *   x ── - ── exp ──┬──────────────── (/) ── y                                   =>  softmax(x)
 *   └ max(axis) ┘   └ sum(axis) ─ bcast ┘
 *
 *   rejects  exponentials of values from which no maximum was taken */
#include "passes/match.h"

typedef struct norm {
  moec_value x;
  double eps;
} norm;

/* ---- 1 / sqrt(mean(x^2) + eps) ------------------------------------------------------------------ */

static bool enter_unary(moec_trace *t, moec_op op) {
  moec_value x;
  moec_trace_moves(t);
  if (!moec_m_unary(t->g, t->cur, op, &x)) return false;
  moec_trace_enter(t, x);
  return true;
}

/* From r to u where r = 1 / sqrt(u); with |inverted| r = sqrt(u). */
static bool enter_rsqrt(moec_trace *t, bool inverted) {
  moec_value x, y;
  double c;
  if (inverted) return enter_unary(t, MOEC_OP_SQRT);
  if (enter_unary(t, MOEC_OP_RSQRT)) return true;
  if (enter_unary(t, MOEC_OP_RECIP)) return enter_unary(t, MOEC_OP_SQRT);
  if (moec_m_binary(t->g, t->cur, MOEC_OP_DIV, &y, &x) && moec_m_scalar(t->g, y, &c) && c == 1) {
    moec_trace_enter(t, x);
    return enter_unary(t, MOEC_OP_SQRT);
  }
  if (!moec_m_with_scalar(t->g, t->cur, MOEC_OP_POW, &x, &c) || c != -0.5) return false;
  moec_trace_enter(t, x);
  return true;
}

/* cur = sum over the last axis of the square of x, the other axes lying as in the top. */
static bool is_sum_of_squares(const moec_trace *t, moec_value x) {
  const moec_graph *g = t->g;
  moec_value square, y;
  uint32_t rank = moec_ty(g, x).rank;
  if (!moec_m_unary(g, t->cur, MOEC_OP_REDUCE_SUM, &square)) return false;
  moec_ints axes = MOEC_ATTRS(g, moec_def(g, t->cur), REDUCE_SUM)->axes;
  if (axes.n != 1 || axes.v[0] != (int64_t)rank - 1 || moec_ty(g, square).rank != rank) return false;
  if (!moec_m_square(g, square, &y) || y.i != x.i) return false;
  for (uint32_t i = 0; i + 1 < rank; i++)
    if (!moec_trace_same_axis(t, i, i)) return false;
  return moec_trace_repeats(t, rank - 1);
}

/* r, of the shape of x, is 1/sqrt(mean(x^2) + eps) (sqrt(...) when inverted). */
static bool match_inverse_rms(moec_graph *g, moec_pass_ctx *cx, moec_value x, moec_value r, bool inverted, norm *out) {
  moec_trace t;
  moec_value u;
  double c = 1;
  int64_t n;
  moec_type_info type = moec_ty(g, x);
  if (type.rank < 1 || !moec_trace_begin(&t, g, r) || !enter_rsqrt(&t, inverted)) return false;
  moec_trace_moves(&t);
  if (!moec_m_with_scalar(g, t.cur, MOEC_OP_ADD, &u, &out->eps)) return false;
  moec_trace_enter(&t, u);
  moec_trace_moves(&t);
  bool mean = moec_m_scaled(g, t.cur, &u, &c);
  if (mean) moec_trace_enter(&t, u);
  moec_trace_moves(&t);
  if (!mean || !is_sum_of_squares(&t, x)) return false; /* without a factor it is an L2 norm */
  if (moec_dim_is_const(g->m, type.dims[type.rank - 1], &n) && moec_m_close(c * (double)n, 1)) {
    out->x = x;
    return true;
  }
  moec_remark(cx, g->m,
              "not recognised as rms_norm: %s normalises by a sum of squares that is not divided by their number",
              moec_m_name(g, moec_def(g, r)));
  return false;
}

static bool match_norm(moec_graph *g, moec_pass_ctx *cx, moec_value v, norm *out) {
  moec_value a, b;
  if (moec_m_binary(g, v, MOEC_OP_DIV, &a, &b)) return match_inverse_rms(g, cx, a, b, true, out);
  if (!moec_m_binary(g, v, MOEC_OP_MUL, &a, &b)) return false;
  return match_inverse_rms(g, cx, a, b, false, out) || match_inverse_rms(g, cx, b, a, false, out);
}

/* All readers of |v| cast it to |to|. */
static bool only_cast_to(const moec_uses *u, moec_value v, moec_dtype to) {
  uint32_t n = moec_uses_count(u, v);
  if (n == 0 || moec_is_output(u->g, v)) return false;
  for (uint32_t i = 0; i < n; i++) {
    moec_node user = moec_uses_get(u, v, i);
    if (moec_op_of(u->g, user) != MOEC_OP_CAST || MOEC_ATTRS(u->g, user, CAST)->dtype != to) return false;
  }
  return true;
}

static void rewrite_norm(moec_builder *b, const moec_uses *uses, moec_value v, const norm *p) {
  moec_graph *g = b->g;
  moec_value narrow = moec_m_uncast(g, p->x);
  moec_attrs_RMS_NORM a = {.eps = p->eps};
  moec_dtype t = moec_ty(g, narrow).dtype;
  bool inside = moec_dtype_get(t)->bytes < moec_dtype_get(moec_ty(g, p->x).dtype)->bytes && only_cast_to(uses, v, t);
  moec_value in[2] = {inside ? narrow : p->x, {0}};
  moec_value y = moec_b_op(b, MOEC_OP_RMS_NORM, &a, 2, in, 1);
  if (b->error) return;
  if (!inside) {
    moec_replace_uses(g, v, y);
    return;
  }
  for (uint32_t i = 0; i < moec_uses_count(uses, v); i++)
    moec_replace_uses(g, moec_out(g, moec_uses_get(uses, v, i), 0), y);
}

/* ---- weights ------------------------------------------------------------------------------------ */

/* |v| repeats a vector over all axes but the last: that vector, else {0}. */
static moec_value weight_vector(moec_builder *b, moec_value v) {
  moec_trace t;
  uint32_t rank = moec_ty(b->g, v).rank;
  if (rank == 0 || !moec_trace_begin(&t, b->g, v)) return (moec_value){0};
  moec_trace_moves(&t);
  for (uint32_t i = 0; i + 1 < rank; i++)
    if (!moec_trace_repeats(&t, i)) return (moec_value){0};
  if (t.of_top[rank - 1].n == 0 || moec_trace_repeats(&t, rank - 1)) return (moec_value){0};
  return moec_trace_build(b, &t, 1, &t.of_top[rank - 1]);
}

static void rewrite_weight(moec_builder *b, const moec_uses *uses, moec_value v) {
  moec_graph *g = b->g;
  moec_value side[2];
  if (!moec_m_binary(g, v, MOEC_OP_MUL, &side[0], &side[1])) return;
  for (uint32_t i = 0; i < 2; i++) {
    moec_node n = moec_def(g, side[i]);
    if (moec_def_op(g, side[i]) != MOEC_OP_RMS_NORM || moec_in(g, n, 1).i || moec_node_get(g, n)->n_out > 1 ||
        !moec_uses_only(uses, side[i]).i)
      continue;
    moec_value in[2] = {moec_in(g, n, 0), weight_vector(b, side[1 - i])};
    if (!in[1].i) continue;
    moec_value y = moec_b_op(b, MOEC_OP_RMS_NORM, moec_node_get(g, n)->attrs, 2, in, 1);
    if (!b->error) moec_replace_uses(g, v, y);
    return;
  }
}

/* ---- softmax ------------------------------------------------------------------------------------ */

/* |t| stands at reduce_OP(x), repeated at the top along the one axis it was taken over. */
static bool is_reduced(moec_trace *t, moec_op op, moec_value x, int64_t *axis) {
  const moec_graph *g = t->g;
  moec_value y;
  moec_trace_moves(t);
  if (!moec_m_unary(g, t->cur, op, &y) || y.i != x.i) return false;
  moec_ints axes = MOEC_ATTRS(g, moec_def(g, t->cur), REDUCE_SUM)->axes; /* the four structs are alike */
  uint32_t rank = moec_ty(g, x).rank;
  if (axes.n != 1 || moec_ty(g, t->top).rank != rank) return false;
  *axis = axes.v[0];
  for (uint32_t i = 0; i < rank; i++) {
    if ((int64_t)i == *axis ? !moec_trace_repeats(t, i) : !moec_trace_same_axis(t, i, i - ((int64_t)i > *axis)))
      return false;
  }
  return true;
}

/* v = e / sum(e) or e * recip(sum(e)). */
static bool match_share(moec_graph *g, moec_value v, moec_value *e, int64_t *axis) {
  moec_value in[2], x;
  moec_trace t;
  bool product = moec_m_binary(g, v, MOEC_OP_MUL, &in[0], &in[1]);
  if (!product && !moec_m_binary(g, v, MOEC_OP_DIV, &in[0], &in[1])) return false;
  for (uint32_t i = 0; i < (product ? 2u : 1u); i++) {
    *e = in[i];
    if (moec_def_op(g, *e) != MOEC_OP_EXP || !moec_trace_begin(&t, g, in[1 - i])) continue;
    moec_trace_moves(&t);
    if (product && !moec_m_unary(g, t.cur, MOEC_OP_RECIP, &x)) continue;
    if (product) moec_trace_enter(&t, x);
    if (is_reduced(&t, MOEC_OP_REDUCE_SUM, *e, axis)) return true;
  }
  return false;
}

static void rewrite_softmax(moec_builder *b, moec_pass_ctx *cx, moec_value v) {
  moec_graph *g = b->g;
  moec_value e, shifted, x, max;
  moec_trace t;
  int64_t axis, max_axis;
  if (!match_share(g, v, &e, &axis) || !moec_m_unary(g, e, MOEC_OP_EXP, &shifted)) return;
  if (!moec_m_binary(g, shifted, MOEC_OP_SUB, &x, &max) || !moec_trace_begin(&t, g, max) ||
      !is_reduced(&t, MOEC_OP_REDUCE_MAX, x, &max_axis) || axis != max_axis) {
    moec_remark(cx, g->m, "not recognised as softmax: %s takes exponentials of values whose maximum was not subtracted",
                moec_m_name(g, moec_def(g, e)));
    return;
  }
  moec_attrs_SOFTMAX a = {.axis = axis};
  moec_value y = moec_b_op(b, MOEC_OP_SOFTMAX, &a, 1, &x, 1);
  if (!b->error) moec_replace_uses(g, v, y);
}

/* ---- the pass ----------------------------------------------------------------------------------- */

static moec_status *raise_graph(moec_graph *g, moec_pass_ctx *cx) {
  moec_builder b = moec_builder_on(g);
  moec_uses uses = moec_uses_now(g);
  size_t end = g->n_nodes;
  for (uint32_t n = 1; n < end && !b.error; n++) {
    norm p;
    if (!g->nodes[n].op || g->nodes[n].n_out != 1) continue;
    moec_value v = moec_out(g, (moec_node){n}, 0);
    g->loc = g->nodes[n].loc;
    if (match_norm(g, cx, v, &p)) rewrite_norm(&b, &uses, v, &p);
    else rewrite_softmax(&b, cx, v);
  }
  MOEC_TRY(moec_builder_end(&b));
  moec_compact(g);
  uses = moec_uses_now(g);
  end = g->n_nodes;
  for (uint32_t n = 1; n < end && !b.error; n++) {
    g->loc = g->nodes[n].loc;
    if (g->nodes[n].op == MOEC_OP_MUL) rewrite_weight(&b, &uses, moec_out(g, (moec_node){n}, 0));
  }
  return moec_builder_end(&b);
}

moec_status *moec_pass_raise_norm(moec_module *m, moec_pass_ctx *cx) {
  for (size_t f = 1; f < m->n_fns; f++) MOEC_TRY(raise_graph(m->fns[f], cx));
  return NULL;
}
