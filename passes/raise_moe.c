/* Expert layers.
 *
 *   score[T,E] ── top-k ──┬── indices ─────────────┬───────────────────────┐
 *                         └ values ─ weight math ─┐│                       │
 *   x[T,H] ── repeat k ── dot(W1[idx]) ─ act ─────┼── dot(W2[idx]) ─ (*) ─ sum over k ── y[T,H]
 *
 *   => moe.select ► weight math ► moe.plan ► moe.dispatch ► moe.grouped_dot ► act ► moe.grouped_dot ► moe.weight ►
 *   moe.combine
 *
 * Anchor: a top-k over the expert axis whose indices select expert weights, by
 *   gather or gather_nd of W[E, ...] (indices clipped, reshaped): this file and raise_moe_rows.c
 *   masks over all experts: raise_moe_dense.c
 * Combined by: a sum over the slots; the sum of slices, one a slot; a product with the routing weights over the
 * slots; scattered addition to zeros at row / k; nothing where k is 1. Narrow rows may be summed in f32 and narrowed
 * again. Shared experts, scores, group masks and scaling of weights or of the result stay as they are.
 *
 *   rejects  top-ks that select no weights; smallest-k; slot-major rows. Those that choose groups of experts or keys of
 *            attention are passed over */
#include <string.h>

#include "passes/raise_moe.h"

/* ---- the router ------------------------------------------------------------------------------------ */

/* A clip that changes no index below |experts|. */
static bool skip_clip(const moec_graph *g, moec_value v, moec_value *x) {
  double c;
  if (moec_m_with_scalar(g, v, MOEC_OP_MAX, x, &c)) return c <= 0;
  if (moec_m_with_scalar(g, v, MOEC_OP_MIN, x, &c)) return true; /* the bound is checked by the caller's size */
  return moec_m_unary(g, v, MOEC_OP_CAST, x) && !moec_dtype_is_float(moec_ty(g, *x).dtype);
}

/* The least upper bound that MINs above the top-k set; they must not cut experts off. */
static bool clips_above(const moec_graph *g, moec_value v, int64_t experts) {
  moec_value x;
  double c;
  return !moec_m_with_scalar(g, v, MOEC_OP_MIN, &x, &c) || c >= (double)(experts - 1);
}

static bool is_index_output(const moec_graph *g, moec_value v) {
  return moec_def_op(g, v) == MOEC_OP_TOPK && moec_value_get(g, v)->slot == 1;
}

bool moec_layer_indices(moec_graph *g, moec_value v, moec_trace *t) {
  moec_value x, bounds[8];
  uint32_t n = 0;
  if (!moec_trace_begin(t, g, v)) return false;
  for (;;) {
    moec_trace_moves(t);
    if (is_index_output(g, t->cur)) break;
    if (n == 8 || !skip_clip(g, t->cur, &x)) return false;
    bounds[n++] = t->cur;
    moec_trace_enter(t, x);
  }
  moec_type_info scores = moec_ty(g, moec_in(g, moec_def(g, t->cur), 0));
  int64_t experts;
  if (!moec_dim_is_const(g->m, scores.dims[scores.rank - 1], &experts)) return false;
  for (uint32_t i = 0; i < n; i++)
    if (!clips_above(g, bounds[i], experts)) return false;
  moec_factors want = {0}, have = {0};
  for (uint32_t i = 0; i < moec_ty(g, v).rank; i++) moec_factors_append(&want, &t->of_top[i]);
  for (uint32_t i = 0; i < moec_ty(g, t->cur).rank; i++) moec_factors_append(&have, &t->of_cur[i]);
  return want.n == have.n && memcmp(want.f, have.f, want.n) == 0; /* in order, none repeated */
}

bool moec_layer_begin(moec_layer *l, moec_builder *b, moec_node topk) {
  moec_graph *g = b->g;
  const moec_attrs_TOPK *a = MOEC_ATTRS(g, topk, TOPK);
  moec_type_info t = moec_ty(g, moec_in(g, topk, 0));
  *l = (moec_layer){.b = b, .g = g, .topk = topk};
  if (!a->largest || t.rank < 2 || (a->axis != -1 && a->axis != (int64_t)t.rank - 1)) return false;
  if (!moec_dim_is_const(g->m, a->k, &l->k) || l->k < 1) return false;
  if (!moec_dim_is_const(g->m, t.dims[t.rank - 1], &l->experts)) return false;
  l->tokens = moec_dim_const(g->m, 1);
  for (uint32_t i = 0; i + 1 < t.rank; i++) l->tokens = moec_dim_mul(g->m, l->tokens, t.dims[i]);
  l->rows = moec_dim_mul(g->m, l->tokens, moec_dim_const(g->m, l->k));
  return moec_dim_known(l->rows);
}

void moec_layer_plan(moec_layer *l) {
  if (l->select.i || l->b->error) return;
  moec_graph *g = l->g;
  moec_dim dims[2] = {l->tokens, moec_dim_const(g->m, l->experts)};
  moec_value scores = moec_b_reshape(l->b, moec_in(g, l->topk, 0), 2, dims);
  moec_attrs_MOE_SELECT s = {.k = l->k};
  moec_attrs_MOE_PLAN p = {.experts = l->experts};
  l->select = moec_b_op(l->b, MOEC_OP_MOE_SELECT, &s, 1, &scores, 1);
  l->perm = moec_b_op(l->b, MOEC_OP_MOE_PLAN, &p, 1, &l->select, 3);
  if (l->b->error) return;
  l->inv = moec_out(g, moec_def(g, l->perm), 1);
  l->offsets = moec_out(g, moec_def(g, l->perm), 2);
}

void moec_layer_take_router(moec_layer *l) {
  moec_graph *g = l->g;
  moec_value values = moec_out(g, l->topk, 0), indices = moec_out(g, l->topk, 1);
  moec_type_info t = moec_ty(g, indices);
  moec_layer_plan(l);
  moec_value chosen = moec_b_reshape(l->b, l->select, t.rank, t.dims);
  moec_attrs_GATHER_ELEMENTS a = {.axis = t.rank - 1};
  moec_value in[2] = {moec_in(g, l->topk, 0), chosen};
  moec_value picked = moec_b_op(l->b, MOEC_OP_GATHER_ELEMENTS, &a, 2, in, 1);
  if (l->b->error) return;
  moec_replace_uses(g, indices, chosen);
  moec_replace_uses(g, values, picked);
}

/* ---- what depends on expert weights ----------------------------------------------------------------- */

/* Marks values made from weights gathered by the indices of |topk|; false: there are none. Operands
 * precede their readers here: modules are compacted between passes. */
static bool mark_inside(moec_layer *l, uint8_t *inside, size_t n_nodes) {
  moec_graph *g = l->g;
  bool any = false;
  for (uint32_t n = 1; n < n_nodes; n++) {
    moec_node node = {n};
    const moec_node_info *info = moec_node_get(g, node);
    bool in = false;
    for (uint32_t i = 0; info->op && i < info->n_in; i++) in = in || inside[moec_in(g, node, i).i];
    if (info->op == MOEC_OP_GATHER || info->op == MOEC_OP_GATHER_ND) {
      moec_trace t = {0};
      moec_type_info w = moec_ty(g, moec_in(g, node, 0));
      bool axis0 = info->op == MOEC_OP_GATHER ? MOEC_ATTRS(g, node, GATHER)->axis == 0
                                              : MOEC_ATTRS(g, node, GATHER_ND)->batch_dims == 0 &&
                                                    moec_dim_is(g->m, moec_b_dim(l->b, moec_in(g, node, 1), -1), 1);
      bool of_experts =
          axis0 && (w.rank == 2 || w.rank == 3) && moec_dim_is(g->m, w.dims[0], l->experts);
      bool ordered = of_experts && moec_layer_indices(g, moec_in(g, node, 1), &t);
      bool chosen = t.cur.i && is_index_output(g, t.cur) && moec_def(g, t.cur).i == l->topk.i,
           expert = ordered && chosen;
      l->disordered = l->disordered || (chosen && !ordered);
      in = in || expert;
      any = any || (expert && w.rank == 3);
    }
    for (uint32_t i = 0; in && i < info->n_out; i++) inside[moec_out(g, node, i).i] = 1;
  }
  return any;
}

/* ---- combining -------------------------------------------------------------------------------------- */

/* The sum of |v|, whose leading axes are T*k assignments, over the slots, of the type of |like|. */
static bool combine(moec_layer *l, moec_value v, moec_value like) {
  moec_value rows = moec_layer_flat(l, moec_layer_rows(l, v));
  if (!rows.i) return false;
  moec_type_info t = moec_ty(l->g, like);
  moec_layer_plan(l);
  moec_attrs_MOE_COMBINE a = {.k = l->k};
  moec_value in[2] = {rows, l->inv};
  moec_value y = moec_b_reshape(l->b, moec_b_op(l->b, MOEC_OP_MOE_COMBINE, &a, 2, in, 1), t.rank, t.dims);
  if (l->b->error) return false;
  moec_replace_uses(l->g, like, moec_b_cast(l->b, y, t.dtype));
  moec_layer_take_router(l);
  return true;
}

/* Axis |axis| of |v| is the slot axis: the last of its axes of assignments. */
static bool is_slot_axis(const moec_layer *l, moec_value v, int64_t axis) {
  return moec_layer_row_axes(l, v) == (uint32_t)axis + 1 && moec_dim_is(l->g->m, moec_ty(l->g, v).dims[axis], l->k);
}

/* sum(cast(rows)) narrowed again by every reader is the combine of the narrow rows. */
static bool combine_narrow(moec_layer *l, const moec_uses *uses, moec_value x, moec_value sum) {
  moec_graph *g = l->g;
  moec_value narrow;
  if (!moec_m_unary(g, x, MOEC_OP_CAST, &narrow) || moec_uses_count(uses, sum) != 1) return false;
  moec_value out = moec_out(g, moec_uses_only(uses, sum), 0);
  if (!out.i || moec_def_op(g, out) != MOEC_OP_CAST || moec_ty(g, out).dtype != moec_ty(g, narrow).dtype) return false;
  return moec_dtype_is_float(moec_ty(g, narrow).dtype) && combine(l, narrow, out);
}

static bool combine_sum(moec_layer *l, const moec_uses *uses, moec_node n) {
  moec_graph *g = l->g;
  moec_ints axes = MOEC_ATTRS(g, n, REDUCE_SUM)->axes;
  moec_value x = moec_in(g, n, 0), y = moec_out(g, n, 0);
  if (axes.n != 1 || !is_slot_axis(l, x, axes.v[0])) return false;
  return combine_narrow(l, uses, x, y) || combine(l, x, y);
}

/* Product of the routing weights [T.., k] with rows [T.., k, H] over the slots. */
static bool combine_dot(moec_layer *l, moec_node n) {
  moec_graph *g = l->g;
  const moec_attrs_DOT *a = MOEC_ATTRS(g, n, DOT);
  for (uint32_t side = 0; side < 2; side++) {
    moec_value rows = moec_in(g, n, side), w = moec_in(g, n, 1 - side);
    moec_ints c = side ? a->rhs_contract : a->lhs_contract;
    if (w.i >= l->n_inside || l->inside[w.i] || c.n != 1 || !is_slot_axis(l, rows, c.v[0])) continue;
    moec_dim dims[2] = {l->tokens, moec_dim_const(g->m, l->k)};
    moec_ints wc = side ? a->lhs_contract : a->rhs_contract;
    uint32_t last = moec_ty(g, w).rank - 1; /* [.., k] or [.., k, 1]: the same order of elements */
    bool ordered =
        wc.v[0] == (int64_t)last || (wc.v[0] + 1 == (int64_t)last && moec_dim_is(g->m, moec_ty(g, w).dims[last], 1));
    if (!ordered || !moec_dim_eq(moec_type_numel(g->m, moec_value_get(g, w)->type), l->rows)) continue;
    moec_value in[3] = {moec_layer_flat(l, moec_layer_rows(l, rows)), moec_b_reshape(l->b, w, 2, dims), l->perm};
    moec_value y = moec_out(g, n, 0);
    if (!in[0].i) return false;
    moec_layer_plan(l);
    in[2] = l->perm;
    moec_attrs_MOE_COMBINE k = {.k = l->k};
    moec_value sum[2] = {moec_b_op(l->b, MOEC_OP_MOE_WEIGHT, NULL, 3, in, 1), l->inv};
    moec_type_info t = moec_ty(g, y);
    moec_value z = moec_b_reshape(l->b, moec_b_op(l->b, MOEC_OP_MOE_COMBINE, &k, 2, sum, 1), t.rank, t.dims);
    if (l->b->error) return false;
    moec_replace_uses(g, y, z);
    moec_layer_take_router(l);
    return true;
  }
  return false;
}

/* Addition of rows to zeros at the token that each row belongs to. */
static bool combine_scatter(moec_layer *l, moec_node n) {
  moec_graph *g = l->g;
  bool nd = moec_op_of(g, n) == MOEC_OP_SCATTER_ND;
  moec_value rows = moec_in(g, n, 2);
  double zero;
  moec_trace t;
  if ((nd ? MOEC_ATTRS(g, n, SCATTER_ND)->reduction : MOEC_ATTRS(g, n, SCATTER_ELEMENTS)->reduction) != 1) return false;
  if (!nd && MOEC_ATTRS(g, n, SCATTER_ELEMENTS)->axis != 0) return false;
  if (!moec_m_scalar(g, moec_in(g, n, 0), &zero) || zero != 0 || moec_ty(g, moec_in(g, n, 0)).rank != 2) return false;
  if (moec_layer_row_axes(l, rows) != 1 || moec_ty(g, rows).rank != 2 || !moec_trace_begin(&t, g, moec_in(g, n, 1)))
    return false;
  moec_trace_moves(&t);
  moec_factors at = t.of_top[0];
  moec_dim k = moec_dim_const(g->m, 1);
  while (at.n && t.repeated[at.f[at.n - 1]]) k = moec_dim_mul(g->m, k, t.size[at.f[--at.n]]);
  if (!moec_dim_is(g->m, k, l->k) || !moec_trace_repeats(&t, 1) || moec_def_op(g, t.cur) != MOEC_OP_IOTA) return false;
  int64_t axis = MOEC_ATTRS(g, moec_def(g, t.cur), IOTA)->axis;
  for (uint32_t i = 0; i < moec_ty(g, t.cur).rank; i++) {
    const moec_factors *f = &t.of_cur[i];
    if ((int64_t)i == axis ? f->n != at.n || memcmp(f->f, at.f, at.n) != 0 : f->n != 0) return false;
  }
  return combine(l, rows, moec_out(g, n, 0));
}

/* The slot that term |v| of a sum takes out of |x|[T.., k, H]; -1: none. */
static int64_t slot_of(const moec_layer *l, moec_value v, moec_value *x) {
  moec_graph *g = l->g;
  moec_dim start, size;
  int64_t step, slot;
  while (moec_def_op(g, v) == MOEC_OP_RESHAPE) v = moec_in(g, moec_def(g, v), 0);
  if (moec_def_op(g, v) != MOEC_OP_SLICE) return -1;
  uint32_t axes = moec_layer_row_axes(l, moec_in(g, moec_def(g, v), 0));
  if (axes < 2 || !moec_m_slice(g, v, axes - 1, x, &start, &size, &step) || !is_slot_axis(l, *x, axes - 1)) return -1;
  return moec_dim_is(g->m, size, 1) && moec_dim_is_const(g->m, start, &slot) ? slot : -1;
}

/* A sum of k slices, one a slot. */
static bool combine_chain(moec_layer *l, moec_node n) {
  moec_graph *g = l->g;
  moec_value stack[64] = {moec_out(g, n, 0)}, x = {0}, y;
  uint64_t seen = 0;
  uint32_t depth = 1;
  if (l->k < 2 || l->k > 32) return false;
  while (depth) {
    moec_value v = stack[--depth], a, b;
    int64_t slot = slot_of(l, v, &y);
    if (slot < 0) {
      while (moec_def_op(g, v) == MOEC_OP_RESHAPE) v = moec_in(g, moec_def(g, v), 0);
      if (depth + 2 > 64 || !moec_m_binary(g, v, MOEC_OP_ADD, &a, &b)) return false;
      stack[depth++] = a;
      stack[depth++] = b;
      continue;
    }
    if ((x.i && x.i != y.i) || (seen >> slot & 1)) return false;
    x = y;
    seen |= 1ull << slot;
  }
  return seen + 1 == 1ull << l->k && combine(l, x, moec_out(g, n, 0));
}

/* Whether |n| multiplies rows with matrices of their experts. */
static bool is_expert_product(const moec_layer *l, moec_node n) {
  moec_trace t;
  moec_node gather;
  for (uint32_t i = 0; moec_op_of(l->g, n) == MOEC_OP_DOT && i < 2; i++)
    if (moec_layer_gather(l, moec_in(l->g, n, i), &t, &gather)) return true;
  return false;
}

/* What |n| makes of |v| still belongs to the experts: their bias, their routing weight, or the same elements. */
static bool ends_expert(moec_layer *l, moec_node n, moec_value v) {
  moec_op op = moec_op_of(l->g, n);
  moec_trace t;
  moec_node gather;
  if (op == MOEC_OP_RESHAPE) return moec_layer_row_axes(l, moec_out(l->g, n, 0)) > 0;
  if (op != MOEC_OP_ADD && op != MOEC_OP_MUL) return false;
  moec_value other = moec_in(l->g, n, moec_in(l->g, n, 0).i == v.i);
  return op == MOEC_OP_ADD ? moec_layer_gather(l, other, &t, &gather)
                           : moec_layer_weight(l, other).i != 0;
}

/* One expert a token: nothing is summed. The layer ends behind the last product with gathered weights. */
static bool combine_single(moec_layer *l, const moec_uses *uses, size_t n_nodes) {
  moec_value v = {0};
  if (l->k != 1) return false;
  for (uint32_t n = 1; n < n_nodes; n++)
    if (is_expert_product(l, (moec_node){n})) v = moec_out(l->g, (moec_node){n}, 0);
  if (!v.i) return false;
  for (moec_node n = moec_uses_only(uses, v); n.i && ends_expert(l, n, v);
       n = moec_uses_only(uses, v)) {
    v = moec_out(l->g, n, 0);
    if (moec_op_of(l->g, n) == MOEC_OP_MUL) break;
  }
  l->g->loc = moec_node_get(l->g, moec_def(l->g, v))->loc;
  l->why = NULL;
  return combine(l, v, v);
}

static bool combine_at(moec_layer *l, const moec_uses *uses, moec_node n) {
  switch (moec_op_of(l->g, n)) {
    case MOEC_OP_REDUCE_SUM: return combine_sum(l, uses, n);
    case MOEC_OP_DOT: return combine_dot(l, n);
    case MOEC_OP_SCATTER_ND:
    case MOEC_OP_SCATTER_ELEMENTS: return combine_scatter(l, n);
    case MOEC_OP_ADD: return combine_chain(l, n);
    default: return false;
  }
}

/* ---- the pass --------------------------------------------------------------------------------------- */

/* The layer whose weights |l->topk| gathers; *gathers: there are such weights. */
static bool raise_gathered(moec_layer *l, const moec_uses *uses, bool *gathers) {
  moec_graph *g = l->g;
  size_t end = g->n_nodes;
  l->n_inside = g->n_values;
  uint8_t *inside = MOEC_NEW_ARRAY(g->m->arena, uint8_t, g->n_values + 1);
  l->memo = MOEC_NEW_ARRAY(g->m->arena, moec_value, g->n_values + 1);
  l->inside = inside;
  const char *why = NULL;
  *gathers = mark_inside(l, inside, end);
  for (uint32_t n = 1; *gathers && n < end && !l->b->error; n++) {
    moec_node node = {n};
    if (!g->nodes[n].op || !g->nodes[n].n_out || !inside[moec_out(g, node, 0).i]) continue;
    g->loc = g->nodes[n].loc;
    l->why = NULL;
    if (combine_at(l, uses, node)) return true;
    if (l->why) why = l->why;
  }
  if (*gathers && combine_single(l, uses, end)) return true;
  if (l->why) why = l->why;
  l->why = why ? why : "nothing sums its experts over the slots";
  return false;
}

/* What a top-k decides goes nowhere but into the scores of another one or into masks of attention: a choice of groups
 * of experts, or of keys. Such a one is no router, and there is nothing to say about it. */
static bool only_limits(const moec_graph *g, moec_node topk) {
  uint8_t *from = MOEC_NEW_ARRAY(g->m->arena, uint8_t, g->n_values);
  bool limits = false;
  for (uint32_t i = 0; i < 2; i++) from[moec_out(g, topk, i).i] = 1;
  from[0] = 0;
  for (uint32_t n = topk.i + 1; n < g->n_nodes; n++) { /* operands precede their readers */
    const moec_node_info *info = &g->nodes[n];
    uint32_t slots = 0;
    for (uint32_t i = 0; info->op && i < info->n_in; i++)
      slots |= (uint32_t)from[moec_in(g, (moec_node){n}, i).i] << i % 32;
    bool mask = info->op == MOEC_OP_ATTENTION && slots == 1 << 3;
    bool end = mask || info->op == MOEC_OP_TOPK || info->op == MOEC_OP_MOE_SELECT;
    limits = limits || (slots && end);
    for (uint32_t i = 0; slots && !end && i < info->n_out; i++) from[moec_out(g, (moec_node){n}, i).i] = 1;
  }
  for (size_t i = 0; i < g->n_outputs; i++) limits = limits && !from[g->outputs[i].i];
  return limits;
}

static void raise_router(moec_builder *b, moec_pass_ctx *cx, const moec_uses *uses, moec_node topk) {
  moec_graph *g = b->g;
  moec_layer l;
  bool gathers = false;
  const char *name = moec_m_name(g, topk);
  if (moec_uses_count(uses, moec_out(g, topk, 1)) == 0 || only_limits(g, topk)) return;
  if (!moec_layer_begin(&l, b, topk)) {
    moec_remark(cx, g->m,
                "top-k at %s not taken for a router: it is not the largest of a constant number along the last axis",
                name);
    return;
  }
  if (raise_gathered(&l, uses, &gathers) || b->error) return;
  if (gathers) {
    moec_remark(cx, g->m, "top-k at %s not taken for a router: its experts are not recognised: %s", name, l.why);
    return;
  }
  l.why = NULL;
  if (moec_layer_dense(&l) || b->error) return;
  if (l.disordered) l.why = "their weights are gathered slot by slot, not token by token";
  if (l.why)
    moec_remark(cx, g->m, "top-k at %s not taken for a router: its experts are not recognised: %s", name, l.why);
  else moec_remark(cx, g->m, "top-k at %s not taken for a router: its indices select no expert weights", name);
}

static moec_status *raise_graph(moec_graph *g, moec_pass_ctx *cx) {
  moec_builder b = moec_builder_on(g);
  moec_uses uses = moec_uses_now(g);
  size_t end = g->n_nodes;
  for (uint32_t n = 1; n < end && !b.error; n++)
    if (g->nodes[n].op == MOEC_OP_TOPK) raise_router(&b, cx, &uses, (moec_node){n});
  return moec_builder_end(&b);
}

moec_status *moec_pass_raise_moe(moec_module *m, moec_pass_ctx *cx) {
  for (size_t f = 1; f < m->n_fns; f++) MOEC_TRY(raise_graph(m->fns[f], cx));
  return NULL;
}
