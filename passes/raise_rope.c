/* Rotary embeddings from their spellings. With x = [a | b] (halves) or a, b its even and odd elements:
 *
 *   rotated      x*C + concat(-b, a)*S              C and S as wide as x, both halves equal
 *   halves       concat(a*c - b*s, b*c + a*s)       a, b slices of step 1
 *   pairs        the same with slices of step 2     the result is [a | b]:      pairs_in
 *   interleaved  reshape(stack(a*c - b*s, ...))     the result is pairs again:  pairs_in, pairs_out
 *   partial      concat(one of these, rest of x)    rope of the slice; the concat stays
 *                                                                         =>  rope(x, c, s)
 *
 * c and s keep size 1 along axes where they repeat. A C of full width is cut to its first half if
 * both halves are provably equal: concat(v, v) under cos, sin, scaling, casts, movement or a gather of rows, or a
 * stored table with equal halves. Parameters below c and s are no weights: they stop being trainable.
 *
 *   rejects  a C whose halves may differ; a and b from different values; other signs */
#include <string.h>

#include "passes/match.h"

/* x = |width| elements of |axis| of |base| from |start| on, moved as |t| tells: simplify puts slices
 * below transpositions, and slices of slices are one slice. */
typedef struct span {
  moec_trace t; /* of a: its last axis comes from |axis| of cur */
  moec_value base;
  uint32_t axis;
  moec_dim start, width;
} span;

typedef struct rope {
  span x;
  moec_value c, s; /* of the shape of x, or of its half */
  bool pairs_in, pairs_out;
  bool full; /* c and s are as wide as x, not as its half */
} rope;

static int64_t last_axis(const moec_graph *g, moec_value v) { return (int64_t)moec_ty(g, v).rank - 1; }

/* The axis that the last axis of the top comes from, if it comes whole. */
static bool axis_below(const moec_trace *t, uint32_t *axis) {
  uint32_t last = moec_ty(t->g, t->top).rank - 1, rank = moec_ty(t->g, t->cur).rank;
  if (t->of_top[last].n != 1) return false;
  for (*axis = 0; *axis < rank; ++*axis)
    if (moec_trace_same_axis(t, last, *axis)) return true;
  return false;
}

/* |v| moves a slice: of |x->base|, |x->width| elements. */
static bool match_slice(moec_graph *g, moec_value v, span *x, int64_t *step) {
  if (moec_ty(g, v).rank == 0 || !moec_trace_begin(&x->t, g, v)) return false;
  moec_trace_moves(&x->t);
  return axis_below(&x->t, &x->axis) && moec_m_slice(g, x->t.cur, x->axis, &x->base, &x->start, &x->width, step);
}

/* a and b are the two halves of one x, or its even and odd elements. */
static bool match_halves(moec_graph *g, moec_value a, moec_value b, span *x, bool *pairs) {
  moec_module *m = g->m;
  span y;
  int64_t a_step, b_step;
  if (!match_slice(g, a, x, &a_step) || !match_slice(g, b, &y, &b_step)) return false;
  if (x->base.i != y.base.i || !moec_trace_alike(&x->t, &y.t)) return false;
  if (!moec_dim_eq(x->width, y.width) || a_step != b_step || a_step > 2) return false;
  *pairs = a_step == 2;
  moec_dim apart = *pairs ? moec_dim_const(m, 1) : x->width;
  x->width = moec_dim_mul(m, x->width, moec_dim_const(m, 2));
  return moec_dim_eq(y.start, moec_dim_add(m, x->start, apart));
}

static bool is_span(moec_graph *g, moec_value v, const span *x) {
  moec_trace t;
  uint32_t axis;
  if (!moec_trace_begin(&t, g, v)) return false;
  do {
    moec_value base;
    moec_dim start, size;
    int64_t step;
    if (!axis_below(&t, &axis) || axis != x->axis || !moec_trace_alike(&t, &x->t)) continue;
    if (t.cur.i == x->base.i)
      return moec_dim_is(g->m, x->start, 0) && moec_dim_eq(moec_ty(g, t.cur).dims[axis], x->width);
    if (moec_m_slice(g, t.cur, axis, &base, &start, &size, &step) && base.i == x->base.i && step == 1 &&
        moec_dim_eq(start, x->start) && moec_dim_eq(size, x->width))
      return true;
  } while (moec_trace_step(&t));
  return false;
}

static moec_value build_span(moec_builder *b, const span *x) {
  moec_trace t = x->t;
  uint32_t rank = moec_ty(b->g, t.top).rank;
  t.cur = moec_b_slice(b, x->base, x->axis, x->start, x->width);
  t.size[t.of_top[rank - 1].f[0]] = x->width;
  return b->error ? (moec_value){0} : moec_trace_build(b, &t, rank, t.of_top);
}

/* ---- halves and pairs --------------------------------------------------------------------------- */

/* minus = a*c - b*s and plus = b*c + a*s, each product either way round. */
static bool match_rotation(moec_graph *g, moec_value minus, moec_value plus, rope *r) {
  moec_value m[2], p[2], ac[2], bs[2], x[2], y[2];
  if (!moec_m_binary(g, minus, MOEC_OP_SUB, &m[0], &m[1]) || !moec_m_binary(g, plus, MOEC_OP_ADD, &p[0], &p[1]))
    return false;
  if (!moec_m_binary(g, m[0], MOEC_OP_MUL, &ac[0], &ac[1]) || !moec_m_binary(g, m[1], MOEC_OP_MUL, &bs[0], &bs[1]))
    return false;
  if (!moec_m_binary(g, p[0], MOEC_OP_MUL, &x[0], &x[1]) || !moec_m_binary(g, p[1], MOEC_OP_MUL, &y[0], &y[1]))
    return false;
  for (uint32_t k = 0; k < 4; k++) {
    moec_value a = ac[k & 1], c = ac[~k & 1], b = bs[k >> 1], s = bs[~(k >> 1) & 1];
    if (!match_halves(g, a, b, &r->x, &r->pairs_in)) continue;
    bool bc[2] = {(x[0].i == b.i && x[1].i == c.i) || (x[1].i == b.i && x[0].i == c.i),
                  (y[0].i == b.i && y[1].i == c.i) || (y[1].i == b.i && y[0].i == c.i)};
    bool as[2] = {(x[0].i == a.i && x[1].i == s.i) || (x[1].i == a.i && x[0].i == s.i),
                  (y[0].i == a.i && y[1].i == s.i) || (y[1].i == a.i && y[0].i == s.i)};
    if (!(bc[0] && as[1]) && !(bc[1] && as[0])) continue;
    r->c = c;
    r->s = s;
    r->full = false;
    return true;
  }
  return false;
}

/* |v| = x[..., 1], that is x with a new last axis. */
static bool match_column(const moec_graph *g, moec_value v, moec_value *x) {
  if (!moec_m_unary(g, v, MOEC_OP_RESHAPE, x)) return false;
  moec_type_info t = moec_ty(g, v), u = moec_ty(g, *x);
  if (t.rank != u.rank + 1 || !moec_dim_is(g->m, t.dims[t.rank - 1], 1)) return false;
  for (uint32_t i = 0; i < u.rank; i++)
    if (!moec_dim_eq(t.dims[i], u.dims[i])) return false;
  return true;
}

/* reshape(concat(P[..., 1], Q[..., 1])): the pairs stand together again. */
static bool match_stack(moec_graph *g, moec_value v, rope *r) {
  moec_value stack, p, q;
  if (!moec_m_unary(g, v, MOEC_OP_RESHAPE, &stack) || !moec_m_binary(g, stack, MOEC_OP_CONCAT, &p, &q)) return false;
  if (moec_node_get(g, moec_def(g, stack))->n_in != 2 || moec_ty(g, stack).rank != moec_ty(g, v).rank + 1) return false;
  if (MOEC_ATTRS(g, moec_def(g, stack), CONCAT)->axis != last_axis(g, stack)) return false;
  if (!match_column(g, p, &p) || !match_column(g, q, &q) || !match_rotation(g, p, q, r)) return false;
  r->pairs_out = true;
  moec_type_info t = moec_ty(g, v), u = moec_ty(g, p);
  for (uint32_t i = 0; i + 1 < t.rank; i++)
    if (!moec_dim_eq(t.dims[i], u.dims[i])) return false;
  return moec_dim_eq(t.dims[t.rank - 1], r->x.width);
}

/* ---- rotated ------------------------------------------------------------------------------------ */

/* |v| = concat(-b, a) of the halves of x. */
static bool match_rotated(moec_graph *g, moec_value v, span *x) {
  moec_value minus_b, a, b;
  bool pairs;
  if (!moec_m_binary(g, v, MOEC_OP_CONCAT, &minus_b, &a) || moec_node_get(g, moec_def(g, v))->n_in != 2) return false;
  if (MOEC_ATTRS(g, moec_def(g, v), CONCAT)->axis != last_axis(g, v)) return false;
  return moec_m_unary(g, minus_b, MOEC_OP_NEG, &b) && match_halves(g, a, b, x, &pairs) && !pairs;
}

static bool match_sum(moec_graph *g, moec_value v, rope *r) {
  moec_value p[2], u[2], w[2];
  if (!moec_m_binary(g, v, MOEC_OP_ADD, &p[0], &p[1])) return false;
  for (uint32_t i = 0; i < 2; i++) {
    if (!moec_m_binary(g, p[i], MOEC_OP_MUL, &u[0], &u[1]) || !moec_m_binary(g, p[1 - i], MOEC_OP_MUL, &w[0], &w[1]))
      return false;
    for (uint32_t k = 0; k < 2; k++) {
      if (!match_rotated(g, w[k], &r->x) || (!is_span(g, u[0], &r->x) && !is_span(g, u[1], &r->x))) continue;
      r->s = w[1 - k];
      r->c = u[is_span(g, u[0], &r->x)];
      r->full = true;
      r->pairs_in = r->pairs_out = false;
      return true;
    }
  }
  return false;
}

/* ---- full-width tables -------------------------------------------------------------------------- */

static bool halves_equal_bytes(moec_dtype dtype, int64_t width, const void *data, size_t size) {
  size_t half = (size_t)width / 2 * moec_dtype_get(dtype)->bytes;
  if (width % 2 || half == 0) return false;
  for (size_t at = 0; at + 2 * half <= size; at += 2 * half)
    if (memcmp((const char *)data + at, (const char *)data + at + half, half) != 0) return false;
  return true;
}

/* A constant or parameter whose rows repeat their first half. */
static bool stored_halves_equal(const moec_graph *g, moec_value v, uint32_t axis) {
  moec_type_info t = moec_ty(g, v);
  moec_node n = moec_def(g, v);
  int64_t width;
  if (axis + 1 != t.rank || !moec_dim_is_const(g->m, t.dims[axis], &width)) return false;
  if (moec_op_of(g, n) == MOEC_OP_CONST) {
    const moec_const *c = MOEC_ATTRS(g, n, CONST)->data;
    return halves_equal_bytes(t.dtype, width, c->bytes, c->size);
  }
  moec_tensor data;
  moec_status *s = moec_op_of(g, n) == MOEC_OP_PARAM ? moec_param_load(g->m, MOEC_ATTRS(g, n, PARAM)->param, &data)
                                                     : moec_error(MOEC_INVALID_ARGUMENT, "no stored value");
  bool equal = !s && halves_equal_bytes(data.dtype, width, data.data, moec_tensor_bytes(&data));
  if (!s) moec_tensor_fini(&data);
  moec_status_free(s);
  return equal;
}

/* One step down through what acts on each element, or each row, alone; false at anything else. */
static bool enter_row_op(moec_trace *t) {
  const moec_graph *g = t->g;
  moec_trace inner;
  moec_value x;
  double c;
  moec_op op = moec_def_op(g, t->cur);
  if (op == MOEC_OP_COS || op == MOEC_OP_SIN || op == MOEC_OP_CAST) {
    moec_trace_enter(t, moec_in(g, moec_def(g, t->cur), 0));
    return true;
  }
  if (moec_m_scaled(g, t->cur, &x, &c)) {
    moec_trace_enter(t, x);
    return true;
  }
  /* rows of a table: its last axis is the last axis here */
  if (op != MOEC_OP_GATHER || MOEC_ATTRS(g, moec_def(g, t->cur), GATHER)->axis != 0) return false;
  x = moec_in(g, moec_def(g, t->cur), 0);
  uint32_t rank = moec_ty(g, t->cur).rank, table = moec_ty(g, x).rank;
  if (table < 2 || !moec_trace_same_axis(t, moec_ty(g, t->top).rank - 1, rank - 1) ||
      !moec_trace_begin(&inner, t->g, x))
    return false;
  *t = inner;
  return true;
}

/* Both halves of |v| along its last axis are equal for all inputs. */
static bool halves_equal(moec_graph *g, moec_value v) {
  moec_trace t;
  if (!moec_trace_begin(&t, g, v)) return false;
  do moec_trace_moves(&t);
  while (enter_row_op(&t));
  uint32_t axis;
  moec_node n = moec_def(g, t.cur);
  if (!axis_below(&t, &axis)) return false;
  if (moec_op_of(g, n) != MOEC_OP_CONCAT) return stored_halves_equal(g, t.cur, axis);
  return MOEC_ATTRS(g, n, CONCAT)->axis == (int64_t)axis && moec_node_get(g, n)->n_in == 2 &&
         moec_in(g, n, 0).i == moec_in(g, n, 1).i;
}

/* What cosines and sines are made of - stored tables, inverse frequencies - are no weights. */
static void freeze(moec_graph *g, moec_value v, uint32_t depth) {
  moec_node n = moec_def(g, v);
  if (!v.i || !moec_dtype_is_float(moec_ty(g, v).dtype)) return;
  if (moec_op_of(g, n) == MOEC_OP_PARAM) moec_param_get(g->m, MOEC_ATTRS(g, n, PARAM)->param)->trainable = false;
  for (uint32_t i = 0; depth > 0 && i < moec_node_get(g, n)->n_in; i++) freeze(g, moec_in(g, n, i), depth - 1);
}

/* ---- the pass ----------------------------------------------------------------------------------- */

/* The first half of |v| along |axis|, cut as early as possible: cos(concat(f, f)) gives cos(f). */
static moec_value first_half(moec_builder *b, moec_value v, int64_t axis) {
  moec_graph *g = b->g;
  moec_node n = moec_def(g, v);
  moec_op op = moec_def_op(g, v);
  moec_value x;
  double c;
  if (op == MOEC_OP_CONCAT && MOEC_ATTRS(g, n, CONCAT)->axis == axis) return moec_in(g, n, 0);
  if (op == MOEC_OP_COS || op == MOEC_OP_SIN || op == MOEC_OP_CAST) {
    x = first_half(b, moec_in(g, n, 0), axis);
    return moec_b_op(b, op, moec_node_get(g, n)->attrs, 1, &x, 1);
  }
  if (moec_m_with_scalar(g, v, MOEC_OP_MUL, &x, &c) || moec_m_with_scalar(g, v, MOEC_OP_DIV, &x, &c)) {
    moec_value half = first_half(b, x, axis);
    return moec_b_binary(b, op, half, moec_b_scalar_f(b, moec_ty(g, half).dtype, c));
  }
  moec_dim half = moec_dim_exact_div(g->m, moec_b_dim(b, v, axis), moec_dim_const(g->m, 2));
  return moec_b_slice(b, v, axis, moec_dim_const(g->m, 0), half);
}

/* |v| with size 1 along the axes where it repeats; its first half when |full|. */
static moec_value table(moec_builder *b, moec_value v, bool full) {
  moec_trace t;
  if (!moec_trace_begin(&t, b->g, v)) return (moec_value){0};
  moec_trace_moves(&t);
  uint32_t last = moec_ty(b->g, v).rank - 1, axis;
  if (t.of_top[last].n == 0 || moec_trace_repeats(&t, last)) return (moec_value){0};
  if (full && axis_below(&t, &axis)) {
    t.cur = first_half(b, t.cur, axis);
    t.size[t.of_top[last].f[0]] = moec_b_dim(b, t.cur, axis);
    full = false;
  }
  moec_value y = moec_trace_unbroadcast(b, &t);
  return full && y.i ? first_half(b, y, last) : y;
}

/* {0}: no rope after all. */
static moec_value build(moec_builder *b, moec_pass_ctx *cx, moec_value v, const rope *r) {
  moec_graph *g = b->g;
  for (uint32_t i = 0; i < 2 && r->full; i++) {
    moec_value wide = i ? r->s : r->c;
    if (halves_equal(g, wide)) continue;
    moec_remark(cx, g->m, "not recognised as rope: the two halves of the %s of %s are not provably equal",
                i ? "sine" : "cosine", moec_m_name(g, moec_def(g, v)));
    return (moec_value){0};
  }
  moec_value in[3] = {build_span(b, &r->x), table(b, r->c, r->full), table(b, r->s, r->full)};
  if (!in[0].i || !in[1].i || !in[2].i) return (moec_value){0};
  moec_attrs_ROPE a = {.pairs_in = r->pairs_in, .pairs_out = r->pairs_out};
  return moec_b_op(b, MOEC_OP_ROPE, &a, 3, in, 1);
}

/* Neighbours of a concatenation that are the two results of a rotation become one part. */
static void rewrite_concat(moec_builder *b, moec_pass_ctx *cx, moec_value v) {
  moec_graph *g = b->g;
  moec_node n = moec_def(g, v);
  int64_t axis = MOEC_ATTRS(g, n, CONCAT)->axis;
  uint32_t n_in = moec_node_get(g, n)->n_in, n_parts = 0;
  if (axis != last_axis(g, v)) return;
  moec_value *parts = MOEC_NEW_ARRAY(g->m->arena, moec_value, n_in);
  for (uint32_t i = 0; i < n_in; i++) {
    rope r = {0};
    moec_value y = {0};
    if (i + 1 < n_in && match_rotation(g, moec_in(g, n, i), moec_in(g, n, i + 1), &r)) y = build(b, cx, v, &r);
    parts[n_parts++] = y.i ? y : moec_in(g, n, i);
    i += y.i != 0;
  }
  if (n_parts == n_in) return;
  moec_value y = moec_b_concat(b, n_parts, parts, axis);
  if (!b->error) moec_replace_uses(g, v, y);
}

/* rope(transpose(x)) = transpose(rope(x)) where the last axis stays: so the transpositions that
 * bring heads forward before and back after a rope meet, and vanish. */
static void sink_transpose(moec_builder *b, moec_node n) {
  moec_graph *g = b->g;
  moec_value x, in[3], old = moec_out(g, n, 0);
  if (!moec_m_unary(g, moec_in(g, n, 0), MOEC_OP_TRANSPOSE, &x)) return;
  moec_ints perm = MOEC_ATTRS(g, moec_def(g, moec_in(g, n, 0)), TRANSPOSE)->perm;
  int64_t inverse[MOEC_MAX_RANK];
  if (perm.v[perm.n - 1] != (int64_t)perm.n - 1) return;
  for (uint32_t i = 0; i < perm.n; i++) inverse[perm.v[i]] = i;
  in[0] = x;
  for (uint32_t i = 1; i < 3; i++) in[i] = moec_b_transpose(b, moec_in(g, n, i), inverse);
  moec_value y = moec_b_op(b, MOEC_OP_ROPE, moec_node_get(g, n)->attrs, 3, in, 1);
  y = moec_b_transpose(b, y, perm.v);
  if (!b->error) moec_replace_uses(g, old, y);
}

static moec_status *raise_graph(moec_graph *g, moec_pass_ctx *cx) {
  moec_builder b = moec_builder_on(g);
  size_t end = g->n_nodes;
  for (uint32_t n = 1; n < end && !b.error; n++) {
    if (!g->nodes[n].op || g->nodes[n].n_out != 1) continue;
    moec_value v = moec_out(g, (moec_node){n}, 0);
    rope r = {0};
    g->loc = g->nodes[n].loc;
    if (g->nodes[n].op == MOEC_OP_CONCAT) rewrite_concat(&b, cx, v);
    if (!match_stack(g, v, &r) && !match_sum(g, v, &r)) continue;
    moec_value y = build(&b, cx, v, &r);
    if (y.i) moec_replace_uses(g, v, y);
  }
  end = g->n_nodes;
  for (uint32_t n = 1; n < end && !b.error; n++) {
    g->loc = g->nodes[n].loc;
    if (g->nodes[n].op != MOEC_OP_ROPE) continue;
    for (uint32_t i = 1; i < 3; i++) freeze(g, moec_in(g, (moec_node){n}, i), 12);
    sink_transpose(&b, (moec_node){n});
  }
  return moec_builder_end(&b);
}

moec_status *moec_pass_raise_rope(moec_module *m, moec_pass_ctx *cx) {
  for (size_t f = 1; f < m->n_fns; f++) MOEC_TRY(raise_graph(m->fns[f], cx));
  return NULL;
}
