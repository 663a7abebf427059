/* Expert layers that compute every expert on every token, and keep the k chosen ones by a mask.
 *
 *   chain    sum over e of mlp_e(x[T,H]) * r_e[T,1]              one subgraph an expert, all of the same form
 *   batched  reduce_sum over e of mlp(x, W[E,..])[E,T,H] * r[E,T,1], or with the axes [T,E,H]
 *
 * The routing r[T,E] is zero but at the chosen experts:
 *   scatter_elements(0, idx, w);  sum over slots of onehot(idx) * w or select(idx == e, w, 0);
 *   a product, quotient or cast of such a matrix
 *
 * One expert's weights are values that differ between the subgraphs (stacked here; slices of a stack
 * are that stack), or the batch of a product.
 *
 *   rejects  weights inside the experts, subgraphs of different form, a sum over fewer than E experts */
#include <string.h>

#include "passes/raise_moe.h"

#define MAX_TERMS 1024

typedef struct dense {
  moec_layer *l;
  bool chain;        /* |n| subgraphs; else one with an expert axis */
  uint32_t n;
  bool experts_last; /* batched: axes [T.., E, ...] rather than [E, T.., ...] */
  uint32_t depth;
  struct memo *memo; /* values seen, in the arena */
} dense;

/* One list of alike values and its rows. */
typedef struct memo {
  const moec_value *values;
  moec_value rows;
  struct memo *next;
} memo;

static moec_value fail(moec_layer *l, const char *why) {
  if (!l->why) l->why = why;
  return (moec_value){0};
}

/* ---- routing ---------------------------------------------------------------------------------------- */

static bool is_chosen(moec_layer *l, moec_value v, moec_trace *t) {
  return moec_layer_indices(l->g, v, t) && moec_def(l->g, t->cur).i == l->topk.i;
}

/* |v| = 1 or true where an expert is chosen: onehot[.., k, E] = (idx == e); for one expert, *expert >= 0. */
static bool match_onehot(moec_layer *l, moec_value v, moec_trace *t, int64_t *expert) {
  moec_graph *g = l->g;
  moec_value x[2];
  double c;
  while (moec_m_unary(g, v, MOEC_OP_CAST, &v)) {}
  if (!moec_m_binary(g, v, MOEC_OP_EQ, &x[0], &x[1])) return false;
  for (uint32_t i = 0; i < 2; i++) {
    moec_trace e;
    if (!moec_trace_begin(t, g, x[i]) || !moec_trace_begin(&e, g, x[1 - i])) return false;
    moec_trace_moves(t);
    if (moec_def(g, t->cur).i != l->topk.i || moec_value_get(g, t->cur)->slot != 1) continue;
    *expert = -1;
    if (moec_m_scalar(g, x[1 - i], &c)) {
      *expert = (int64_t)c;
      return c >= 0 && c < (double)l->experts;
    }
    moec_trace_moves(&e);
    uint32_t last = moec_ty(g, v).rank - 1;
    return moec_def_op(g, e.cur) == MOEC_OP_IOTA && moec_ty(g, e.cur).rank == 1 && moec_trace_same_axis(&e, last, 0) &&
           moec_trace_repeats(t, last);
  }
  return false;
}

/* v = onehot * w or select(onehot, w, 0): the w. */
static bool match_masked(moec_layer *l, moec_value v, moec_value *w, moec_trace *t, int64_t *expert) {
  moec_graph *g = l->g;
  moec_value x[2];
  double zero;
  if (moec_def_op(g, v) == MOEC_OP_SELECT) {
    moec_node n = moec_def(g, v);
    *w = moec_in(g, n, 1);
    return moec_m_scalar(g, moec_in(g, n, 2), &zero) && zero == 0 && match_onehot(l, moec_in(g, n, 0), t, expert);
  }
  if (!moec_m_binary(g, v, MOEC_OP_MUL, &x[0], &x[1])) return false;
  *w = x[1];
  if (match_onehot(l, x[0], t, expert)) return true;
  *w = x[0];
  return match_onehot(l, x[1], t, expert);
}

/* The sum over slots of masked weights: |w| as [T,k]; *expert as in match_onehot. */
static moec_value slot_sum(moec_layer *l, moec_value v, int64_t *expert) {
  moec_graph *g = l->g;
  moec_value x, w;
  moec_trace t, s;
  moec_factors axes[2] = {0};
  if (!moec_m_unary(g, v, MOEC_OP_REDUCE_SUM, &x) || !match_masked(l, x, &w, &t, expert)) return (moec_value){0};
  moec_ints sum = MOEC_ATTRS(g, moec_def(g, v), REDUCE_SUM)->axes;
  uint32_t rank = moec_ty(g, x).rank, slot = rank - (*expert < 0 ? 2 : 1), idx = moec_ty(g, t.cur).rank;
  if (sum.n != 1 || sum.v[0] != (int64_t)slot || !moec_trace_same_axis(&t, slot, idx - 1)) return (moec_value){0};
  if (!moec_trace_begin(&s, g, w)) return (moec_value){0};
  moec_trace_moves(&s);
  if (*expert < 0 && !moec_trace_repeats(&s, rank - 1)) return (moec_value){0};
  for (uint32_t i = 0; i <= slot; i++) moec_factors_append(&axes[i == slot], &s.of_top[i]);
  moec_value y = moec_trace_build(l->b, &s, 2, axes);
  return y.i && moec_dim_eq(moec_b_dim(l->b, y, 0), l->tokens) ? y : (moec_value){0};
}

/* |v|[T.., E] is zero but at the chosen experts. */
static bool is_masked_matrix(moec_layer *l, moec_value v, uint32_t depth) {
  moec_graph *g = l->g;
  moec_node n = moec_def(g, v);
  moec_trace t;
  int64_t expert;
  double zero;
  switch (moec_op_of(g, n)) {
    case MOEC_OP_SCATTER_ELEMENTS:
      return MOEC_ATTRS(g, n, SCATTER_ELEMENTS)->axis == (int64_t)moec_ty(g, v).rank - 1 &&
             MOEC_ATTRS(g, n, SCATTER_ELEMENTS)->reduction <= 1 && moec_m_scalar(g, moec_in(g, n, 0), &zero) &&
             zero == 0 && is_chosen(l, moec_in(g, n, 1), &t);
    case MOEC_OP_REDUCE_SUM: return slot_sum(l, v, &expert).i && expert < 0;
    case MOEC_OP_DIV:
    case MOEC_OP_CAST: return depth > 0 && is_masked_matrix(l, moec_in(g, n, 0), depth - 1);
    case MOEC_OP_MUL:
      return depth > 0 &&
             (is_masked_matrix(l, moec_in(g, n, 0), depth - 1) || is_masked_matrix(l, moec_in(g, n, 1), depth - 1));
    default: return false;
  }
}

/* The weights [T,k] that the matrix |v|[T.., E] spreads; {0}: it is none. */
static moec_value matrix_weights(moec_layer *l, moec_value v) {
  moec_graph *g = l->g;
  moec_type_info idx = moec_ty(g, moec_out(g, l->topk, 1)), t = moec_ty(g, v);
  moec_dim dims[2] = {l->tokens, moec_dim_const(g->m, l->k)};
  int64_t expert;
  if (t.rank != idx.rank || !moec_dim_is(g->m, t.dims[t.rank - 1], l->experts) || !is_masked_matrix(l, v, 4))
    return (moec_value){0};
  moec_value w = slot_sum(l, v, &expert);
  if (w.i) return w;
  if (moec_def_op(g, v) == MOEC_OP_SCATTER_ELEMENTS)
    return moec_b_reshape(l->b, moec_in(g, moec_def(g, v), 2), 2, dims);
  moec_value in[2] = {v, moec_out(g, l->topk, 1)};
  moec_attrs_GATHER_ELEMENTS a = {.axis = t.rank - 1};
  return moec_b_reshape(l->b, moec_b_op(l->b, MOEC_OP_GATHER_ELEMENTS, &a, 2, in, 1), 2, dims);
}

/* ---- the experts' subgraphs -------------------------------------------------------------------------- */

static moec_value dense_rows(dense *d, const moec_value *v);

/* The number of leading axes of |v| before its features: tokens, and the expert axis when batched. */
static uint32_t lead(const dense *d, moec_value v) {
  moec_module *m = d->l->g->m;
  moec_type_info t = moec_ty(d->l->g, v);
  moec_dim n = moec_dim_const(m, 1);
  uint32_t i = d->chain || d->experts_last ? 0 : 1;
  if (i && (t.rank == 0 || !moec_dim_is(m, t.dims[0], d->l->experts))) return 0;
  for (; i < t.rank; i++) {
    n = moec_dim_mul(m, n, t.dims[i]);
    if (!moec_dim_eq(n, d->l->tokens)) continue;
    if (d->chain || !d->experts_last) return i + 1;
    return i + 1 < t.rank && moec_dim_is(m, t.dims[i + 1], d->l->experts) ? i + 2 : 0;
  }
  return 0;
}

static bool all_same(const dense *d, const moec_value *v) {
  for (uint32_t i = 1; i < d->n; i++)
    if (v[i].i != v[0].i) return false;
  return true;
}

static bool same_form(const dense *d, const moec_value *v) {
  moec_graph *g = d->l->g;
  moec_node n = moec_def(g, v[0]);
  for (uint32_t i = 1; i < d->n; i++) {
    moec_node o = moec_def(g, v[i]);
    if (moec_op_of(g, o) != moec_op_of(g, n) || moec_node_get(g, o)->n_in != moec_node_get(g, n)->n_in) return false;
    if (moec_value_get(g, v[i])->type.i != moec_value_get(g, v[0])->type.i) return false;
    if (!moec_attrs_equal(moec_op_of(g, n), moec_node_get(g, n)->attrs, moec_node_get(g, o)->attrs)) return false;
  }
  return moec_op_of(g, n) != MOEC_OP_NONE;
}

static moec_value *operands(const dense *d, const moec_value *v, uint32_t k) {
  moec_value *in = MOEC_NEW_ARRAY(d->l->g->m->arena, moec_value, d->n);
  for (uint32_t i = 0; i < d->n; i++) in[i] = moec_in(d->l->g, moec_def(d->l->g, v[i]), k);
  return in;
}

/* A value of tokens or of features alone, the same for all experts. */
static moec_value dense_enter(dense *d, moec_value v, bool *is_leaf) {
  moec_layer *l = d->l;
  moec_trace t;
  moec_factors axes[2] = {0}, all[MOEC_MAX_RANK] = {0};
  uint32_t skip = lead(d, v), rank = moec_ty(l->g, v).rank;
  *is_leaf = false;
  if (skip == 0 || !moec_trace_begin(&t, l->g, v)) return fail(l, "a value among its experts has no axis of tokens");
  moec_trace_moves(&t);
  if (!d->chain && !moec_trace_repeats(&t, d->experts_last ? skip - 1 : 0)) return (moec_value){0};
  *is_leaf = true;
  bool varies = false;
  for (uint32_t i = 0; i < skip; i++) {
    if (!d->chain && i == (d->experts_last ? skip - 1 : 0)) continue;
    moec_factors_append(&axes[0], &t.of_top[i]);
    varies = varies || !moec_trace_repeats(&t, i);
  }
  for (uint32_t i = skip; i < rank; i++) all[i - skip] = t.of_top[i];
  for (uint32_t i = skip; i < rank; i++) moec_factors_append(&axes[1], &t.of_top[i]);
  if (!varies) {
    moec_value f = moec_trace_build(l->b, &t, rank - skip, all);
    moec_dim dims[MOEC_MAX_RANK + 1] = {l->rows};
    for (uint32_t i = skip; i < rank; i++) dims[i - skip + 1] = moec_factors_size(&t, &all[i - skip]);
    return f.i ? moec_b_broadcast_to(l->b, f, rank - skip + 1, dims) : f;
  }
  return moec_layer_shaped(l, moec_layer_dispatch(l, moec_trace_build(l->b, &t, 2, axes)), v, skip);
}

/* The weights of all experts as one value [E, ...]: the stack that they are slices of, else a concatenation. */
static moec_value stack(const dense *d, const moec_value *w) {
  moec_layer *l = d->l;
  moec_graph *g = l->g;
  moec_value whole = {0}, x;
  moec_type_info t = moec_ty(g, w[0]);
  bool slices = true;
  for (uint32_t e = 0; e < d->n && slices; e++) {
    moec_dim start, size;
    int64_t step;
    moec_value v = w[e];
    while (moec_def_op(g, v) == MOEC_OP_RESHAPE) v = moec_in(g, moec_def(g, v), 0);
    slices = moec_m_slice(g, v, 0, &x, &start, &size, &step) && moec_dim_is(g->m, start, e) &&
             moec_dim_is(g->m, size, 1) && moec_ty(g, x).rank == t.rank + 1 &&
             moec_dim_is(g->m, moec_ty(g, x).dims[0], d->n) && (e == 0 || x.i == whole.i);
    for (uint32_t i = 0; slices && i < t.rank; i++) slices = moec_dim_eq(moec_ty(g, x).dims[i + 1], t.dims[i]);
    whole = x;
  }
  if (slices) return whole;
  moec_value *in = MOEC_NEW_ARRAY(g->m->arena, moec_value, d->n);
  for (uint32_t e = 0; e < d->n; e++) in[e] = moec_b_unsqueeze(l->b, w[e], 0);
  return moec_b_concat(l->b, d->n, in, 0);
}

static moec_value grouped_dot(moec_layer *l, moec_value x, moec_value w, bool transposed) {
  if (!x.i) return x;
  moec_layer_plan(l);
  moec_attrs_MOE_GROUPED_DOT a = {.transposed = transposed};
  moec_value in[3] = {moec_layer_flat(l, x), w, l->offsets};
  if (!moec_dim_eq(moec_b_dim(l->b, in[0], 1), moec_b_dim(l->b, w, transposed ? 2 : 1)))
    return fail(l, "a product has more than one feature axis");
  return moec_b_op(l->b, MOEC_OP_MOE_GROUPED_DOT, &a, 3, in, 1);
}

/* dot(u, W_e): one contracted axis, the last of u. */
static moec_value dense_dot(dense *d, const moec_value *v) {
  moec_layer *l = d->l;
  moec_graph *g = l->g;
  const moec_attrs_DOT *a = MOEC_ATTRS(g, moec_def(g, v[0]), DOT);
  moec_value *u = operands(d, v, 0), *w = operands(d, v, 1);
  moec_type_info tu = moec_ty(g, u[0]), tw = moec_ty(g, w[0]);
  if (a->lhs_contract.n != 1 || a->lhs_contract.v[0] != (int64_t)tu.rank - 1)
    return fail(l, "a product of its experts is not of rows with a matrix");
  int64_t c = a->rhs_contract.v[0];
  if (d->chain) {
    if (a->lhs_batch.n || tw.rank != 2 || all_same(d, w))
      return fail(l, "a product of its experts is not of rows with a matrix");
    return moec_layer_shaped(l, grouped_dot(l, dense_rows(d, u), stack(d, w), c == 1), v[0], lead(d, v[0]));
  }
  if (tw.rank != 3 || !moec_dim_is(g->m, tw.dims[0], l->experts) || c == 0)
    return fail(l, "a product of its experts is not batched over them");
  if (a->lhs_batch.n == 1 && a->lhs_batch.v[0] == 0 && a->rhs_batch.v[0] == 0 && !d->experts_last)
    return moec_layer_shaped(l, grouped_dot(l, dense_rows(d, u), w[0], c == 2), v[0], lead(d, v[0]));
  if (a->lhs_batch.n || !d->experts_last) return fail(l, "a product of its experts is not batched over them");
  /* x[T, K] times all matrices: [T, E, M] */
  dense tokens = {.l = l, .chain = true, .n = 1};
  return moec_layer_shaped(l, grouped_dot(l, dense_rows(&tokens, u), w[0], c == 2), v[0], lead(d, v[0]));
}

/* y + b_e, the bias repeated over tokens: into the product that y is. {0} without a reason: no such sum. */
static moec_value dense_bias(dense *d, const moec_value *v) {
  moec_layer *l = d->l;
  moec_graph *g = l->g;
  for (uint32_t side = 0; moec_def_op(g, v[0]) == MOEC_OP_ADD && side < 2; side++) {
    moec_value *b = operands(d, v, side);
    if (d->chain && all_same(d, b)) continue;
    uint32_t skip = lead(d, b[0]), rank = moec_ty(g, b[0]).rank;
    bool vectors = skip > 0;
    for (uint32_t e = 0; e < d->n && vectors; e++) {
      moec_trace t;
      moec_factors axes[2] = {0};
      vectors = moec_trace_begin(&t, g, b[e]);
      moec_trace_moves(&t);
      for (uint32_t i = 0; vectors && i < rank; i++) {
        bool expert = !d->chain && i == (d->experts_last ? skip - 1 : 0);
        if (i < skip && !expert) vectors = moec_trace_repeats(&t, i);
        else if (expert) vectors = !moec_trace_repeats(&t, i);
        if (i >= skip || expert) moec_factors_append(&axes[!d->chain && !expert], &t.of_top[i]);
      }
      if (vectors) b[e] = moec_trace_build(l->b, &t, d->chain ? 1 : 2, axes);
      vectors = vectors && b[e].i;
    }
    if (!vectors) continue;
    moec_value y = dense_rows(d, operands(d, v, 1 - side)), in[4];
    while (y.i && moec_def_op(g, y) == MOEC_OP_RESHAPE) y = moec_in(g, moec_def(g, y), 0);
    if (!y.i || moec_def_op(g, y) != MOEC_OP_MOE_GROUPED_DOT)
      return fail(l, "a bias of its experts is not added to a product");
    for (uint32_t i = 0; i < 3; i++) in[i] = moec_in(g, moec_def(g, y), i);
    in[3] = d->chain ? stack(d, b) : b[0];
    y = moec_b_op(l->b, MOEC_OP_MOE_GROUPED_DOT, moec_node_get(g, moec_def(g, y))->attrs, 4, in, 1);
    return moec_layer_shaped(l, y, v[0], lead(d, v[0]));
  }
  return (moec_value){0};
}

static moec_value dense_op(dense *d, const moec_value *v) {
  moec_layer *l = d->l;
  moec_graph *g = l->g;
  moec_node n = moec_def(g, v[0]);
  moec_op op = moec_op_of(g, n);
  moec_value in[3];
  if (op == MOEC_OP_DOT) return dense_dot(d, v);
  in[0] = dense_bias(d, v);
  if (in[0].i || l->why) return in[0];
  uint32_t n_in = moec_node_get(g, n)->n_in;
  if (moec_op_is_elementwise(op) || op == MOEC_OP_SWIGLU) {
    for (uint32_t i = 0; i < n_in; i++) {
      in[i] = dense_rows(d, operands(d, v, i));
      if (!in[i].i) return in[i];
    }
    return moec_b_op(l->b, op, moec_node_get(g, n)->attrs, n_in, in, 1);
  }
  if (n_in != 1) return fail(l, moec_arena_printf(g->m->arena, "the op %s among its experts", moec_op_get(op)->text));
  moec_value *x = operands(d, v, 0);
  uint32_t skip = lead(d, x[0]);
  in[0] = skip ? dense_rows(d, x) : fail(l, "a value among its experts has no axis of tokens");
  return in[0].i ? moec_layer_move(l, v[0], in[0], skip, lead(d, v[0])) : in[0];
}

/* The rows of the chosen experts out of |d->n| alike values (batched: one): [N] and the features. */
static moec_value dense_rows(dense *d, const moec_value *v) {
  moec_layer *l = d->l;
  bool leaf = false;
  moec_value y = {0};
  if (l->b->error || l->why) return y;
  if (d->depth > 64) return fail(l, "its experts are too deep");
  for (memo *k = d->memo; k; k = k->next)
    if (memcmp(k->values, v, d->n * sizeof *v) == 0) return k->rows;
  if (!d->chain || all_same(d, v)) y = dense_enter(d, v[0], &leaf);
  if (leaf || l->why) return y;
  if (!same_form(d, v)) return fail(l, "its experts differ in form");
  d->depth++;
  y = dense_op(d, v);
  d->depth--;
  memo *k = MOEC_NEW(l->g->m->arena, memo);
  *k = (memo){moec_arena_copy(l->g->m->arena, v, d->n * sizeof *v), y, d->memo};
  d->memo = k;
  return y;
}

/* ---- combining --------------------------------------------------------------------------------------- */

static bool combine(moec_layer *l, moec_value rows, moec_value w, moec_value old) {
  rows = moec_layer_flat(l, rows);
  if (!rows.i || l->b->error) return false;
  moec_type_info t = moec_ty(l->g, old);
  moec_value in[3] = {rows, w, l->perm};
  moec_value sum[2] = {moec_b_op(l->b, MOEC_OP_MOE_WEIGHT, NULL, 3, in, 1), l->inv};
  moec_attrs_MOE_COMBINE a = {.k = l->k};
  moec_value y = moec_b_reshape(l->b, moec_b_op(l->b, MOEC_OP_MOE_COMBINE, &a, 2, sum, 1), t.rank, t.dims);
  if (l->b->error) return false;
  moec_replace_uses(l->g, old, y);
  moec_layer_take_router(l);
  return true;
}

/* |v| repeats a column of a routing matrix, or one expert's masked weights, over the features. The
 * expert, and the matrix or the weights. */
static bool match_column(moec_layer *l, moec_value v, int64_t *expert, moec_value *from) {
  moec_graph *g = l->g;
  moec_trace t;
  moec_dim start, size;
  int64_t step;
  if (!moec_trace_begin(&t, g, v)) return false;
  moec_trace_moves(&t);
  uint32_t rank = moec_ty(g, t.cur).rank;
  if (rank && moec_m_slice(g, t.cur, rank - 1, from, &start, &size, &step) && moec_dim_is(g->m, size, 1))
    return moec_dim_is_const(g->m, start, expert) && is_masked_matrix(l, *from, 4);
  *from = slot_sum(l, t.cur, expert);
  return from->i && *expert >= 0;
}

/* term = mlp_e(x) * r_e. */
static bool match_term(moec_layer *l, moec_value v, int64_t *expert, moec_value *mlp, moec_value *from) {
  moec_value x[2];
  if (!moec_m_binary(l->g, v, MOEC_OP_MUL, &x[0], &x[1])) return false;
  for (uint32_t i = 0; i < 2; i++) {
    *mlp = x[1 - i];
    if (match_column(l, x[i], expert, from)) return true;
  }
  return false;
}

static bool raise_chain(moec_layer *l, moec_value root) {
  moec_graph *g = l->g;
  moec_value *mlps = MOEC_NEW_ARRAY(g->m->arena, moec_value, (size_t)l->experts), stack_[MAX_TERMS] = {root},
             from = {0}, y, x;
  uint32_t depth = 1, found = 0;
  while (depth) {
    moec_value v = stack_[--depth], a, b;
    int64_t e;
    if (match_term(l, v, &e, &x, &y)) {
      if (e >= l->experts || mlps[e].i || (from.i && !moec_m_same(g, from, y))) return false;
      mlps[e] = x;
      from = y;
      found++;
      continue;
    }
    if (moec_m_binary(g, v, MOEC_OP_ADD, &a, &b) && depth + 2 <= MAX_TERMS) stack_[depth++] = a, stack_[depth++] = b;
    else if (!moec_m_scalar(g, v, &(double){0})) return false; /* sums start at zeros */
  }
  if (found != (uint32_t)l->experts) return fail(l, "its sum does not run over all experts").i;
  dense d = {.l = l, .chain = true, .n = found};
  moec_value rows = dense_rows(&d, mlps);
  moec_value w = moec_dim_is(g->m, moec_b_dim(l->b, from, -1), l->experts) && is_masked_matrix(l, from, 4)
                     ? matrix_weights(l, from)
                     : from;
  return rows.i && w.i && combine(l, rows, w, root);
}

static bool raise_batched(moec_layer *l, moec_node n) {
  moec_graph *g = l->g;
  moec_value v = moec_in(g, n, 0), x[2];
  moec_ints axes = MOEC_ATTRS(g, n, REDUCE_SUM)->axes;
  if (axes.n != 1 || !moec_dim_is(g->m, moec_ty(g, v).dims[axes.v[0]], l->experts)) return false;
  if (!moec_m_binary(g, v, MOEC_OP_MUL, &x[0], &x[1])) return false;
  for (uint32_t i = 0; i < 2; i++) {
    moec_trace t;
    if (!moec_trace_begin(&t, g, x[i])) continue;
    moec_trace_moves(&t);
    uint32_t rank = moec_ty(g, t.cur).rank;
    if (rank == 0 || !moec_trace_same_axis(&t, (uint32_t)axes.v[0], rank - 1)) continue;
    moec_value w = matrix_weights(l, t.cur), y = x[1 - i];
    if (!w.i) continue;
    dense d = {.l = l, .n = 1, .experts_last = axes.v[0] != 0};
    if (lead(&d, y) == 0 || (d.experts_last && lead(&d, y) != (uint32_t)axes.v[0] + 1)) return false;
    moec_value rows = dense_rows(&d, &y);
    return rows.i && combine(l, rows, w, moec_out(g, n, 0));
  }
  return false;
}

bool moec_layer_dense(moec_layer *l) {
  moec_graph *g = l->g;
  const char *why = NULL;
  size_t end = g->n_nodes;
  for (uint32_t n = (uint32_t)end - 1; n > 0 && !l->b->error; n--) { /* a sum before the sums inside it */
    moec_op op = g->nodes[n].op;
    if (op != MOEC_OP_ADD && op != MOEC_OP_REDUCE_SUM) continue;
    g->loc = g->nodes[n].loc;
    l->why = NULL;
    moec_node node = {n};
    if (op == MOEC_OP_ADD ? raise_chain(l, moec_out(g, node, 0)) : raise_batched(l, node)) return true;
    if (l->why) why = l->why;
  }
  l->why = why;
  return false;
}
