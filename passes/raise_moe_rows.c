/* Expert rows: from values over assignments (token-major, T*k) to rows sorted by expert.
 *
 *   repeat(x)                 =>  moe.dispatch(x, perm)
 *   dot(W[idx], rows)         =>  moe.grouped_dot(rows, W, offsets)      + B[idx] => its bias
 *   rows * routing weight     =>  moe.weight(rows, w, perm)
 *   elementwise, slices, concatenations, reductions of the other axes: the same op on [N, ...]
 *
 *   rejects  rows that are not token-major, movement that mixes assignments with features, a value
 *            per assignment that is no factor, biases added to something else than a product */
#include <string.h>

#include "passes/raise_moe.h"

static moec_value fail(moec_layer *l, const char *why) {
  if (!l->why) l->why = why;
  return (moec_value){0};
}

static bool is_inside(const moec_layer *l, moec_value v) { return v.i < l->n_inside && l->inside[v.i]; }

uint32_t moec_layer_row_axes(const moec_layer *l, moec_value v) {
  moec_type_info t = moec_ty(l->g, v);
  moec_dim n = moec_dim_const(l->g->m, 1);
  for (uint32_t i = 0; i < t.rank; i++) {
    n = moec_dim_mul(l->g->m, n, t.dims[i]);
    if (moec_dim_eq(n, l->rows)) return i + 1;
  }
  return 0;
}

moec_value moec_layer_flat(moec_layer *l, moec_value rows) {
  if (!rows.i) return rows;
  moec_type_info t = moec_ty(l->g, rows);
  moec_dim dims[2] = {l->rows, moec_dim_const(l->g->m, 1)};
  for (uint32_t i = 1; i < t.rank; i++) dims[1] = moec_dim_mul(l->g->m, dims[1], t.dims[i]);
  return moec_b_reshape(l->b, rows, 2, dims);
}

moec_value moec_layer_shaped(moec_layer *l, moec_value rows, moec_value like, uint32_t skip) {
  if (!rows.i) return rows;
  moec_type_info t = moec_ty(l->g, like);
  moec_dim dims[MOEC_MAX_RANK + 1] = {l->rows};
  for (uint32_t i = skip; i < t.rank; i++) dims[i - skip + 1] = t.dims[i];
  return moec_b_reshape(l->b, rows, t.rank - skip + 1, dims);
}

/* ---- what enters ---------------------------------------------------------------------------------- */

/* The factors of the first |n| axes of the top without the minor ones, k in all, which repeat. *constant:
 * all of them repeat, and none was left out. */
static bool split_slots(moec_layer *l, const moec_trace *t, uint32_t n, moec_factors *tokens, bool *constant) {
  moec_dim k = moec_dim_const(l->g->m, 1);
  memset(tokens, 0, sizeof *tokens);
  *constant = true;
  for (uint32_t i = 0; i < n; i++) {
    moec_factors_append(tokens, &t->of_top[i]);
    *constant = *constant && moec_trace_repeats(t, i);
  }
  if (*constant) return true;
  while (tokens->n && t->repeated[tokens->f[tokens->n - 1]] && !moec_dim_is(l->g->m, k, l->k))
    k = moec_dim_mul(l->g->m, k, t->size[tokens->f[--tokens->n]]);
  return moec_dim_is(l->g->m, k, l->k);
}

moec_value moec_layer_weight(moec_layer *l, moec_value v) {
  moec_trace t;
  moec_factors all = {0};
  uint32_t n = moec_layer_row_axes(l, v);
  if (is_inside(l, v) || n == 0 || !moec_trace_begin(&t, l->g, v)) return (moec_value){0};
  moec_trace_moves(&t);
  bool varies = false;
  for (uint32_t i = 0; i < moec_ty(l->g, v).rank; i++) {
    if (i >= n && !moec_trace_repeats(&t, i)) return (moec_value){0};
    if (i < n) moec_factors_append(&all, &t.of_top[i]);
    if (i < n) varies = varies || !moec_trace_repeats(&t, i);
  }
  if (!varies) return (moec_value){0};
  moec_value w = moec_trace_build(l->b, &t, 1, &all);
  moec_dim dims[2] = {l->tokens, moec_dim_const(l->g->m, l->k)};
  return w.i ? moec_b_reshape(l->b, w, 2, dims) : w;
}

moec_value moec_layer_dispatch(moec_layer *l, moec_value x) {
  if (!x.i || !moec_dim_eq(moec_b_dim(l->b, x, 0), l->tokens)) return fail(l, "tokens are not laid out row by row");
  for (uint32_t i = 0; i < l->n_dispatched; i++)
    if (moec_m_same(l->g, l->dispatched[i][0], x)) return l->dispatched[i][1];
  moec_layer_plan(l);
  moec_attrs_MOE_DISPATCH a = {.k = l->k};
  moec_value in[2] = {x, l->perm}, y = moec_b_op(l->b, MOEC_OP_MOE_DISPATCH, &a, 2, in, 1);
  if (l->n_dispatched < MOEC_MAX_DISPATCHED) {
    l->dispatched[l->n_dispatched][0] = x;
    l->dispatched[l->n_dispatched++][1] = y;
  }
  return y;
}

/* A value that depends on no expert, of tokens or the same for all; {0} without a reason: it differs between slots. */
static moec_value enter(moec_layer *l, moec_value v) {
  moec_trace t;
  moec_factors axes[2] = {0}, all[MOEC_MAX_RANK] = {0};
  bool constant;
  uint32_t n = moec_layer_row_axes(l, v), rank = moec_ty(l->g, v).rank;
  if (n == 0 || !moec_trace_begin(&t, l->g, v)) return fail(l, "an operand has no axis of assignments");
  moec_trace_moves(&t);
  if (!split_slots(l, &t, n, &axes[0], &constant)) return (moec_value){0};
  if (constant) {
    for (uint32_t i = 0; i < n; i++) moec_factors_append(&all[0], &t.of_top[i]);
    for (uint32_t i = n; i < rank; i++) all[i - n + 1] = t.of_top[i];
    return moec_trace_build(l->b, &t, rank - n + 1, all);
  }
  for (uint32_t i = n; i < rank; i++) moec_factors_append(&axes[1], &t.of_top[i]);
  return moec_layer_shaped(l, moec_layer_dispatch(l, moec_trace_build(l->b, &t, 2, axes)), v, n);
}

/* ---- products with gathered weights ---------------------------------------------------------------- */

bool moec_layer_gather(const moec_layer *l, moec_value v, moec_trace *t, moec_node *gather) {
  moec_graph *g = l->g;
  moec_trace index;
  moec_value x;
  if (!is_inside(l, v) || !moec_trace_begin(t, g, v)) return false;
  moec_trace_moves(t);
  while (moec_m_unary(g, t->cur, MOEC_OP_CAST, &x)) {
    moec_trace_enter(t, x);
    moec_trace_moves(t);
  }
  moec_op op = moec_def_op(g, t->cur);
  *gather = moec_def(g, t->cur);
  if (op != MOEC_OP_GATHER && op != MOEC_OP_GATHER_ND) return false;
  return moec_layer_indices(g, moec_in(g, *gather, 1), &index) && moec_def(g, index.cur).i == l->topk.i;
}

typedef struct product {
  moec_node dot;
  uint32_t side;      /* the operand that holds gathered weights */
  moec_trace weights;
  moec_node gather;
  bool transposed;    /* W[E,M,K] */
} product;

static moec_ints batch_of(const moec_graph *g, moec_node n, uint32_t side) {
  const moec_attrs_DOT *a = MOEC_ATTRS(g, n, DOT);
  return side ? a->rhs_batch : a->lhs_batch;
}

static int64_t contract_of(const moec_graph *g, moec_node n, uint32_t side) {
  const moec_attrs_DOT *a = MOEC_ATTRS(g, n, DOT);
  moec_ints c = side ? a->rhs_contract : a->lhs_contract;
  return c.n == 1 ? c.v[0] : -1;
}

/* Appends the factors of the weights' axes in the order the output has them. */
static void output_factors(const moec_graph *g, const product *p, moec_factors *out) {
  moec_ints batch = batch_of(g, p->dot, p->side);
  uint32_t used = 1u << contract_of(g, p->dot, p->side);
  for (uint32_t i = 0; i < batch.n; i++) {
    moec_factors_append(out, &p->weights.of_top[batch.v[i]]);
    used |= 1u << batch.v[i];
  }
  for (uint32_t i = 0; i < moec_ty(g, moec_in(g, p->dot, p->side)).rank; i++)
    if (!(used >> i & 1)) moec_factors_append(out, &p->weights.of_top[i]);
}

/* Rows of experts times their matrices: the gathered [rows..., A, B] is contracted along one of A, B,
 * and the output runs over the rows, then over the other one. */
static bool match_product(moec_layer *l, moec_node n, product *p) {
  moec_graph *g = l->g;
  p->dot = n;
  for (p->side = 0; p->side < 2; p->side++)
    if (moec_layer_gather(l, moec_in(g, n, p->side), &p->weights, &p->gather)) break;
  if (p->side == 2 || contract_of(g, n, p->side) < 0) return false;
  uint32_t rank = moec_ty(g, p->weights.cur).rank;
  if (moec_ty(g, moec_in(g, p->gather, 0)).rank != 3 || rank < 3) return false;
  uint32_t k = (uint32_t)contract_of(g, n, p->side);
  bool last = moec_trace_same_axis(&p->weights, k, rank - 1);
  if (p->weights.of_top[k].n == 0 || (!last && !moec_trace_same_axis(&p->weights, k, rank - 2))) return false;
  p->transposed = last;
  moec_factors want = {0}, have = {0};
  for (uint32_t i = 0; i + 2 < rank; i++) moec_factors_append(&want, &p->weights.of_cur[i]);
  moec_factors_append(&want, &p->weights.of_cur[last ? rank - 2 : rank - 1]);
  output_factors(g, p, &have);
  return want.n == have.n && memcmp(want.f, have.f, want.n) == 0;
}

/* Tokens that were not repeated: x[T, K] against weights of T*k assignments. */
static moec_value enter_tokens(moec_layer *l, moec_value v, int64_t contract) {
  moec_trace t;
  moec_factors axes[2] = {0};
  if (!moec_trace_begin(&t, l->g, v)) return (moec_value){0};
  moec_trace_moves(&t);
  for (uint32_t i = 0; i < moec_ty(l->g, v).rank; i++) moec_factors_append(&axes[(int64_t)i == contract], &t.of_top[i]);
  return moec_layer_dispatch(l, moec_trace_build(l->b, &t, 2, axes));
}

static moec_value rows_of_dot(moec_layer *l, moec_node n) {
  moec_graph *g = l->g;
  product p;
  if (!match_product(l, n, &p)) return fail(l, "a product is none of rows with the weights of their experts");
  moec_value u = moec_in(g, n, 1 - p.side), out = moec_out(g, n, 0), x;
  moec_dim k = moec_b_dim(l->b, u, contract_of(g, n, 1 - p.side));
  uint32_t rows = moec_layer_row_axes(l, u);
  if (rows && rows <= (uint32_t)contract_of(g, n, 1 - p.side)) x = moec_layer_flat(l, moec_layer_rows(l, u));
  else if (is_inside(l, u)) return fail(l, "rows of experts are not token-major");
  else x = enter_tokens(l, u, contract_of(g, n, 1 - p.side));
  if (!x.i) return x;
  if (!moec_dim_eq(moec_b_dim(l->b, x, 1), k)) return fail(l, "a product has more than rows and one feature axis");
  moec_layer_plan(l);
  moec_attrs_MOE_GROUPED_DOT a = {.transposed = p.transposed};
  moec_value in[3] = {x, moec_b_cast(l->b, moec_in(g, p.gather, 0), moec_ty(g, out).dtype), l->offsets};
  return moec_layer_shaped(l, moec_b_op(l->b, MOEC_OP_MOE_GROUPED_DOT, &a, 3, in, 1), out, moec_layer_row_axes(l, out));
}

/* v = product + B[idx]: the product with a bias; {0} without a reason: no such sum. */
static moec_value rows_of_bias(moec_layer *l, moec_value v) {
  moec_graph *g = l->g;
  for (uint32_t i = 0; moec_def_op(g, v) == MOEC_OP_ADD && i < 2; i++) {
    moec_trace t;
    moec_node gather;
    moec_value in[4];
    if (!moec_layer_gather(l, moec_in(g, moec_def(g, v), i), &t, &gather)) continue;
    if (moec_ty(g, moec_in(g, gather, 0)).rank != 2) continue;
    moec_value y = moec_layer_rows(l, moec_in(g, moec_def(g, v), 1 - i));
    if (!y.i) return y;
    while (moec_def_op(g, y) == MOEC_OP_RESHAPE) y = moec_in(g, moec_def(g, y), 0);
    moec_node n = moec_def(g, y);
    if (moec_op_of(g, n) != MOEC_OP_MOE_GROUPED_DOT || moec_node_get(g, n)->n_in != 3)
      return fail(l, "a gathered bias is not added to a product");
    for (uint32_t k = 0; k < 3; k++) in[k] = moec_in(g, n, k);
    in[3] = moec_b_cast(l->b, moec_in(g, gather, 0), moec_ty(g, y).dtype);
    if (!moec_dim_eq(moec_b_dim(l->b, in[3], 1), moec_b_dim(l->b, y, 1)))
      return fail(l, "a gathered bias has another width than its product");
    y = moec_b_op(l->b, MOEC_OP_MOE_GROUPED_DOT, moec_node_get(g, n)->attrs, 4, in, 1);
    return moec_layer_shaped(l, y, v, moec_layer_row_axes(l, v));
  }
  return (moec_value){0};
}

/* ---- the other ops --------------------------------------------------------------------------------- */

/* v = rows * routing weight; {0} without a reason: no such product. */
static moec_value rows_of_weighted(moec_layer *l, moec_value v) {
  moec_graph *g = l->g;
  for (uint32_t i = 0; moec_def_op(g, v) == MOEC_OP_MUL && i < 2; i++) {
    moec_value w = moec_layer_weight(l, moec_in(g, moec_def(g, v), i));
    if (!w.i) continue;
    moec_value rows = moec_layer_flat(l, moec_layer_rows(l, moec_in(g, moec_def(g, v), 1 - i)));
    if (!rows.i) return rows;
    moec_layer_plan(l);
    moec_value in[3] = {rows, w, l->perm};
    return moec_layer_shaped(l, moec_b_op(l->b, MOEC_OP_MOE_WEIGHT, NULL, 3, in, 1), v, moec_layer_row_axes(l, v));
  }
  return (moec_value){0};
}

/* The same op on rows: every operand has the axes of |v|. */
static moec_value rows_of_elementwise(moec_layer *l, moec_value v) {
  moec_node n = moec_def(l->g, v);
  moec_value in[3];
  uint32_t n_in = moec_node_get(l->g, n)->n_in;
  for (uint32_t i = 0; i < n_in && i < 3; i++) {
    in[i] = moec_layer_rows(l, moec_in(l->g, n, i));
    if (!in[i].i) return in[i];
  }
  return moec_b_op(l->b, moec_op_of(l->g, n), moec_node_get(l->g, n)->attrs, n_in, in, 1);
}

static moec_value rows_of_transpose(moec_layer *l, moec_value v, moec_value x, uint32_t skip) {
  moec_ints perm = MOEC_ATTRS(l->g, moec_def(l->g, v), TRANSPOSE)->perm;
  int64_t p[MOEC_MAX_RANK] = {0};
  for (uint32_t i = 0; i < perm.n; i++) {
    if (i < skip ? perm.v[i] != (int64_t)i : perm.v[i] < (int64_t)skip)
      return fail(l, "a transposition mixes assignments with features");
    if (i >= skip) p[i - skip + 1] = perm.v[i] - skip + 1;
  }
  return moec_b_transpose(l->b, x, p);
}

static moec_value rows_of_broadcast(moec_layer *l, moec_value v, moec_value x, uint32_t skip) {
  moec_ints map = MOEC_ATTRS(l->g, moec_def(l->g, v), BROADCAST)->map;
  moec_type_info t = moec_ty(l->g, v);
  moec_dim dims[MOEC_MAX_RANK + 1] = {l->rows};
  int64_t to[MOEC_MAX_RANK + 1] = {0};
  for (uint32_t i = 0; i < skip; i++)
    if (i >= map.n || map.v[i] != (int64_t)i) return fail(l, "rows of experts are repeated");
  for (uint32_t i = skip; i < t.rank; i++) dims[i - skip + 1] = t.dims[i];
  for (uint32_t i = skip; i < map.n; i++) to[i - skip + 1] = map.v[i] - skip + 1;
  moec_attrs_BROADCAST a = {.shape = {t.rank - skip + 1, dims}, .map = {map.n - skip + 1, to}};
  return moec_b_op(l->b, MOEC_OP_BROADCAST, &a, 1, &x, 1);
}

static moec_value rows_of_slice(moec_layer *l, moec_value v, moec_value x, uint32_t skip) {
  const moec_attrs_SLICE *s = MOEC_ATTRS(l->g, moec_def(l->g, v), SLICE);
  moec_type_info t = moec_ty(l->g, moec_in(l->g, moec_def(l->g, v), 0));
  moec_dim start[MOEC_MAX_RANK + 1] = {moec_dim_const(l->g->m, 0)}, size[MOEC_MAX_RANK + 1] = {l->rows};
  int64_t step[MOEC_MAX_RANK + 1] = {1};
  for (uint32_t i = 0; i < t.rank; i++) {
    if (i < skip && !moec_dim_eq(s->size.v[i], t.dims[i])) return fail(l, "some assignments are cut off");
    if (i < skip) continue;
    start[i - skip + 1] = s->start.v[i];
    size[i - skip + 1] = s->size.v[i];
    step[i - skip + 1] = s->step.v[i];
  }
  uint32_t rank = t.rank - skip + 1;
  moec_attrs_SLICE a = {.start = {rank, start}, .size = {rank, size}, .step = {rank, step}};
  return moec_b_op(l->b, MOEC_OP_SLICE, &a, 1, &x, 1);
}

static moec_value rows_of_concat(moec_layer *l, moec_value v, uint32_t skip) {
  moec_node n = moec_def(l->g, v);
  int64_t axis = MOEC_ATTRS(l->g, n, CONCAT)->axis;
  uint32_t n_in = moec_node_get(l->g, n)->n_in;
  if (axis < (int64_t)skip) return fail(l, "rows of experts are concatenated");
  moec_value *in = MOEC_NEW_ARRAY(l->g->m->arena, moec_value, n_in);
  for (uint32_t i = 0; i < n_in; i++) {
    in[i] = moec_layer_rows(l, moec_in(l->g, n, i));
    if (!in[i].i) return in[i];
  }
  return moec_b_concat(l->b, n_in, in, axis - skip + 1);
}

static moec_value rows_of_reduce(moec_layer *l, moec_value v, moec_value x, uint32_t skip) {
  moec_ints axes = MOEC_ATTRS(l->g, moec_def(l->g, v), REDUCE_SUM)->axes; /* the four structs are alike */
  int64_t to[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < axes.n; i++) {
    if (axes.v[i] < (int64_t)skip) return fail(l, "assignments are reduced before they are combined");
    to[i] = axes.v[i] - skip + 1;
  }
  moec_attrs_REDUCE_SUM a = {.axes = {axes.n, to}};
  return moec_b_op(l->b, moec_def_op(l->g, v), &a, 1, &x, 1);
}

moec_value moec_layer_move(moec_layer *l, moec_value v, moec_value x, uint32_t skip_in, uint32_t skip_out) {
  moec_op op = moec_def_op(l->g, v);
  switch (op) {
    case MOEC_OP_RESHAPE: return moec_layer_shaped(l, x, v, skip_out);
    case MOEC_OP_TRANSPOSE: return rows_of_transpose(l, v, x, skip_in);
    case MOEC_OP_BROADCAST: return rows_of_broadcast(l, v, x, skip_in);
    case MOEC_OP_SLICE: return rows_of_slice(l, v, x, skip_in);
    default:
      if (moec_op_cls(op) == MOEC_CLASS_REDUCE) return rows_of_reduce(l, v, x, skip_in);
      return fail(l, moec_arena_printf(l->g->m->arena, "the op %s among its experts", moec_op_get(op)->text));
  }
}

static moec_value rows_of_op(moec_layer *l, moec_value v) {
  moec_graph *g = l->g;
  moec_op op = moec_def_op(g, v);
  moec_node n = moec_def(g, v);
  if (op == MOEC_OP_DOT) return rows_of_dot(l, n);
  if (op == MOEC_OP_ADD || op == MOEC_OP_MUL) {
    moec_value y = op == MOEC_OP_ADD ? rows_of_bias(l, v) : rows_of_weighted(l, v);
    if (y.i || l->why) return y;
  }
  if (moec_op_is_elementwise(op) || op == MOEC_OP_SWIGLU) return rows_of_elementwise(l, v);
  if (op == MOEC_OP_GATHER || op == MOEC_OP_GATHER_ND)
    return fail(l, "weights gathered for each assignment are neither a factor of a product nor its bias");
  uint32_t skip = moec_layer_row_axes(l, moec_in(g, n, 0));
  if (skip == 0) return fail(l, "an operand has no axis of assignments");
  if (op == MOEC_OP_CONCAT) return rows_of_concat(l, v, skip);
  moec_value x = moec_layer_rows(l, moec_in(g, n, 0));
  return x.i ? moec_layer_move(l, v, x, skip, moec_layer_row_axes(l, v)) : x;
}

moec_value moec_layer_rows(moec_layer *l, moec_value v) {
  if (l->b->error || l->why) return (moec_value){0};
  if (!is_inside(l, v)) {
    moec_value x = enter(l, v);
    if (x.i || l->why) return x;
    moec_op op = moec_def_op(l->g, v);
    if (v.i >= l->n_inside || !(moec_op_is_elementwise(op) || moec_op_cls(op) == MOEC_CLASS_MOVE))
      return fail(l, "a value for each assignment that is no routing weight enters the experts");
  }
  if (l->memo[v.i].i) return l->memo[v.i];
  if (moec_layer_row_axes(l, v) == 0) return fail(l, "a value among its experts has no axis of assignments");
  moec_value y = rows_of_op(l, v);
  l->memo[v.i] = y;
  return y;
}
