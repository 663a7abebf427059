/* Loss in chunks: the product that makes logits, their cross entropy and its gradient become one node, which never has
 * all logits in memory.
 *
 *     x[.., H] ──┬──► dot ──► (cast, reshape) ──┬──► cross_entropy ──► nll, lse            linear_cross_entropy
 *     w ─────────┤                              └──► sub lse ► exp ► sub one at label           │    │    │
 *                │                                         ► mul scale ──► (cast, reshape)      ▼    ▼    ▼
 *                └──► dot ──► dx    dot ──► dw   ◄──────────────┘                              nll  dx   dw
 *
 * It runs behind grad, whose rule for cross_entropy (passes/grad_composite.c) writes the lower half. w is [V, H] or
 * [H, V]; dx and dw are both optional. What reads the logits besides, a loss that weighs rows by what it computed from
 * them, or arithmetic between product and loss (a softcap) leaves the graph as it is, with a remark. */
#include "passes/match.h"

typedef struct head {
  moec_module *m;
  moec_graph *g;
  moec_uses uses;
  moec_node loss, dot;            /* cross_entropy and the product */
  moec_value x, w, logits, scale; /* logits as the loss reads them, scale[T] */
  bool transposed;                /* w is [V, H] */
  moec_value slope;               /* the gradient of the logits as its products read it */
  moec_node dx, dw;               /* these products; {0}: none */
  bool swapped;                   /* dw has the axes of the other kind of w */
  const char *why;                /* not */
} head;

static bool no(head *h, const char *why) {
  h->why = why;
  return false;
}

static bool only_moves(const moec_graph *g, moec_node n) {
  return moec_op_of(g, n) == MOEC_OP_RESHAPE ||
         (moec_op_of(g, n) == MOEC_OP_CAST && moec_dtype_is_float(moec_ty(g, moec_out(g, n, 0)).dtype));
}

/* ---- the upper half ------------------------------------------------------------------------- */

/* From the logits up to their product; nothing else reads what lies between. */
static bool find_product(head *h) {
  moec_graph *g = h->g;
  moec_value v = h->logits = moec_in(g, h->loss, 0);
  if (moec_uses_count(&h->uses, v) != 2 || moec_is_output(g, v)) return no(h, "its logits are read elsewhere too");
  for (; only_moves(g, moec_def(g, v)); v = moec_in(g, moec_def(g, v), 0))
    if (v.i != h->logits.i && !moec_uses_only(&h->uses, v).i) return no(h, "its logits are read elsewhere too");
  h->dot = moec_def(g, v);
  if (moec_op_of(g, h->dot) != MOEC_OP_DOT) return no(h, "its logits are no matrix product");
  if (v.i != h->logits.i && !moec_uses_only(&h->uses, v).i) return no(h, "its logits are read elsewhere too");
  const moec_attrs_DOT *a = MOEC_ATTRS(g, h->dot, DOT);
  h->x = moec_in(g, h->dot, 0), h->w = moec_in(g, h->dot, 1);
  moec_type_info x = moec_ty(g, h->x), w = moec_ty(g, h->w), y = moec_ty(g, v), rows = moec_ty(g, h->logits);
  bool plain = !a->lhs_batch.n && a->lhs_contract.n == 1 && a->lhs_contract.v[0] + 1 == (int64_t)x.rank && w.rank == 2;
  if (!plain || !moec_dim_eq(y.dims[y.rank - 1], rows.dims[1])) return no(h, "its logits are not one product a token");
  h->transposed = a->rhs_contract.v[0] == 1;
  return true;
}

/* ---- the lower half ------------------------------------------------------------------------- */

/* The only reader of |v|, if it is an |op|; its result. */
static moec_value next(const head *h, moec_value v, moec_op op) {
  moec_node n = v.i ? moec_uses_only(&h->uses, v) : (moec_node){0};
  return n.i && moec_op_of(h->g, n) == op ? moec_out(h->g, n, 0) : (moec_value){0};
}

/* |v| is x[T] as [T, V], an equal value in each row. */
static bool along_rows(const moec_graph *g, moec_value v, moec_value *x) {
  if (moec_def_op(g, v) != MOEC_OP_BROADCAST) return false;
  moec_ints map = MOEC_ATTRS(g, moec_def(g, v), BROADCAST)->map;
  moec_value column = moec_in(g, moec_def(g, v), 0);
  if (map.n != 2 || moec_def_op(g, column) != MOEC_OP_RESHAPE) return false;
  *x = moec_in(g, moec_def(g, column), 0);
  return moec_ty(g, *x).rank == 1 && moec_dim_is(g->m, moec_ty(g, column).dims[1], 1);
}

/* 1 at the label of each row. */
static bool at_label(const head *h, moec_value v) {
  const moec_graph *g = h->g;
  moec_value hit, label, labels, iota;
  double one, zero;
  if (moec_def_op(g, v) != MOEC_OP_SELECT) return false;
  moec_node n = moec_def(g, v);
  hit = moec_in(g, n, 0);
  if (!moec_m_scalar(g, moec_in(g, n, 1), &one) || !moec_m_scalar(g, moec_in(g, n, 2), &zero)) return false;
  if (one != 1 || zero != 0 || !moec_m_binary(g, hit, MOEC_OP_EQ, &label, &iota)) return false;
  if (!along_rows(g, label, &labels) || labels.i != moec_in(g, h->loss, 1).i) return false;
  if (moec_def_op(g, iota) != MOEC_OP_BROADCAST) return false;
  moec_ints map = MOEC_ATTRS(g, moec_def(g, iota), BROADCAST)->map;
  return map.n == 1 && map.v[0] == 1 && moec_def_op(g, moec_in(g, moec_def(g, iota), 0)) == MOEC_OP_IOTA;
}

/* scale * (exp(logits - lse) - one at the label): from lse down. */
static bool find_gradient(head *h) {
  moec_graph *g = h->g;
  moec_value lse = next(h, next(h, moec_out(g, h->loss, 1), MOEC_OP_RESHAPE), MOEC_OP_BROADCAST), of, x, y;
  moec_value shifted = next(h, lse, MOEC_OP_SUB), p = next(h, shifted, MOEC_OP_EXP);
  moec_value d = next(h, p, MOEC_OP_SUB), slope = next(h, d, MOEC_OP_MUL);
  if (!slope.i || !along_rows(g, lse, &of)) return no(h, "its log-sum-exp is read elsewhere too");
  moec_value from = moec_in(g, moec_def(g, shifted), 0);
  if (from.i != h->logits.i && moec_m_uncast(g, from).i != h->logits.i)
    return no(h, "its gradient is of another form");
  if (moec_in(g, moec_def(g, shifted), 1).i != lse.i || moec_in(g, moec_def(g, d), 0).i != p.i ||
      !at_label(h, moec_in(g, moec_def(g, d), 1)))
    return no(h, "its gradient is of another form");
  x = moec_in(g, moec_def(g, slope), 0), y = moec_in(g, moec_def(g, slope), 1);
  if (!along_rows(g, x.i == d.i ? y : x, &h->scale)) return no(h, "the gradients of its rows are not one number each");
  h->slope = slope;
  for (moec_node n = moec_uses_only(&h->uses, slope); n.i && only_moves(g, n); n = moec_uses_only(&h->uses, h->slope))
    h->slope = moec_out(g, n, 0);
  return true;
}

/* ---- the products with the gradient --------------------------------------------------------- */

static bool is_dx(const head *h, const moec_attrs_DOT *a, moec_value lhs, moec_value rhs) {
  int64_t last = (int64_t)moec_ty(h->g, h->slope).rank - 1;
  return lhs.i == h->slope.i && rhs.i == h->w.i && a->lhs_contract.n == 1 && a->lhs_contract.v[0] == last &&
         a->rhs_contract.v[0] == (h->transposed ? 0 : 1);
}

static bool is_dw(const head *h, const moec_attrs_DOT *a, moec_value lhs, moec_value rhs) {
  uint32_t tokens = moec_ty(h->g, h->x).rank - 1;
  bool same = a->lhs_contract.n == tokens && moec_ty(h->g, h->slope).rank == tokens + 1;
  for (uint32_t i = 0; same && i < tokens; i++)
    same = a->lhs_contract.v[i] == a->rhs_contract.v[i] && a->lhs_contract.v[i] < (int64_t)tokens;
  return same && ((lhs.i == h->slope.i && rhs.i == h->x.i) || (lhs.i == h->x.i && rhs.i == h->slope.i));
}

static bool find_products(head *h) {
  moec_graph *g = h->g;
  uint32_t n_uses = moec_uses_count(&h->uses, h->slope);
  if (moec_is_output(g, h->slope)) return no(h, "the gradient of its logits is a result");
  if (moec_ty(g, h->slope).dtype != moec_ty(g, h->x).dtype) return no(h, "its gradient has another type");
  for (uint32_t i = 0; i < n_uses; i++) {
    moec_node n = moec_uses_get(&h->uses, h->slope, i);
    if (moec_op_of(g, n) != MOEC_OP_DOT) return no(h, "the gradient of its logits is read elsewhere too");
    const moec_attrs_DOT *a = MOEC_ATTRS(g, n, DOT);
    moec_value lhs = moec_in(g, n, 0), rhs = moec_in(g, n, 1);
    bool dx = !a->lhs_batch.n && is_dx(h, a, lhs, rhs), dw = !a->lhs_batch.n && is_dw(h, a, lhs, rhs);
    if ((!dx && !dw) || (dx && h->dx.i) || (dw && h->dw.i))
      return no(h, "the gradient of its logits is read elsewhere too");
    *(dx ? &h->dx : &h->dw) = n;
    if (dw) h->swapped = (lhs.i == h->slope.i) != h->transposed;
  }
  return n_uses ? true : no(h, "nothing reads the gradient of its logits");
}

/* ---- what else must hold -------------------------------------------------------------------- */

/* Whether |v| is computed from node |from|. */
static bool depends(const moec_graph *g, moec_value v, moec_node from, uint8_t *seen) {
  moec_node n = moec_def(g, v);
  if (!v.i || seen[v.i]) return false;
  seen[v.i] = 1;
  if (n.i == from.i) return true;
  for (uint32_t i = 0; n.i && i < moec_node_get(g, n)->n_in; i++)
    if (depends(g, moec_in(g, n, i), from, seen)) return true;
  return false;
}

static bool fits(head *h, moec_target target) {
  moec_dtype t = moec_ty(h->g, h->x).dtype;
  uint8_t *seen = MOEC_NEW_ARRAY(h->m->arena, uint8_t, h->g->n_values);
  bool known = t == MOEC_F32 || (target == MOEC_TARGET_CUDA && t == MOEC_BF16);
  if (!known || moec_ty(h->g, h->scale).dtype != MOEC_F32) return no(h, "the target has no step for its type");
  if (depends(h->g, h->scale, h->dot, seen)) return no(h, "the gradients of its rows depend on the logits");
  return true;
}

static bool matches(head *h, moec_target target) {
  return find_product(h) && find_gradient(h) && find_products(h) && fits(h, target);
}

/* ---- building ------------------------------------------------------------------------------- */

/* Tokens at a time: so many that their logits, in rows of whole 16 bytes, take at most LIMIT of the target. Large
 * products are the faster ones on a GPU; a processor has enough work in few rows. A multiple of 128, or all. */
static moec_dim chunk_of(const head *h, moec_target target) {
  enum { STEP = 128, CUDA_LIMIT = 1200 << 20, CPU_LIMIT = 160 << 20 };
  moec_module *m = h->m;
  moec_type_info t = moec_ty(h->g, h->logits);
  int64_t bytes = (int64_t)moec_dtype_get(moec_ty(h->g, h->x).dtype)->bytes, whole = 16 / bytes;
  moec_dim lead = moec_dim_mul(m, moec_dim_const(m, whole), moec_dim_ceildiv(m, t.dims[1], moec_dim_const(m, whole)));
  moec_dim limit = moec_dim_const(m, (target == MOEC_TARGET_CUDA ? CUDA_LIMIT : CPU_LIMIT) / (STEP * bytes));
  moec_dim steps = moec_dim_max(m, moec_dim_const(m, 1), moec_dim_floordiv(m, limit, lead));
  return moec_dim_min(m, t.dims[0], moec_dim_mul(m, moec_dim_const(m, STEP), steps));
}

static moec_status *build(head *h, moec_target target) {
  moec_graph *g = h->g;
  moec_builder b = moec_builder_on(g);
  moec_type_info rows = moec_ty(g, h->logits), x = moec_ty(g, h->x);
  moec_attrs_LINEAR_CROSS_ENTROPY a = {.transposed = h->transposed,
                                       .ignore = MOEC_ATTRS(g, h->loss, CROSS_ENTROPY)->ignore,
                                       .chunk = chunk_of(h, target)};
  g->loc = moec_node_get(g, h->dot)->loc;
  moec_value in[4] = {moec_b_reshape(&b, h->x, 2, (moec_dim[]){rows.dims[0], x.dims[x.rank - 1]}), h->w,
                      moec_in(g, h->loss, 1), h->scale};
  moec_value nll = moec_b_op(&b, MOEC_OP_LINEAR_CROSS_ENTROPY, &a, 4, in, 3), dx, dw;
  MOEC_TRY(moec_builder_end(&b));
  dx = moec_out(g, moec_def(g, nll), 1), dw = moec_out(g, moec_def(g, nll), 2);
  if (h->swapped) dw = moec_b_transpose(&b, dw, (int64_t[]){1, 0});
  moec_replace_uses(g, moec_out(g, h->loss, 0), nll);
  if (h->dx.i) moec_replace_uses(g, moec_out(g, h->dx, 0), moec_b_reshape(&b, dx, x.rank, x.dims));
  if (h->dw.i) moec_replace_uses(g, moec_out(g, h->dw, 0), dw);
  return moec_builder_end(&b);
}

static moec_status *rewrite(moec_module *m, moec_graph *g, moec_pass_ctx *cx) {
  size_t n_nodes = g->n_nodes;
  for (uint32_t n = 1; n < n_nodes; n++) {
    head h = {.m = m, .g = g, .loss = {n}};
    if (moec_op_of(g, h.loss) != MOEC_OP_CROSS_ENTROPY || moec_node_get(g, h.loss)->n_out < 2) continue;
    h.uses = moec_uses_now(g);
    bool reads[2]; /* its losses, and for a gradient its log-sum-exp */
    for (uint32_t i = 0; i < 2; i++) reads[i] = moec_uses_count(&h.uses, moec_out(g, h.loss, i)) != 0;
    if (!reads[0] || !reads[1]) continue;
    if (matches(&h, cx->options->target)) MOEC_TRY(build(&h, cx->options->target));
    else moec_remark(cx, m, "the loss %s keeps all logits in memory: %s", moec_m_name(g, h.loss), h.why);
  }
  return NULL;
}

moec_status *moec_pass_loss_chunk(moec_module *m, moec_pass_ctx *cx) {
  for (size_t i = 1; i < m->n_fns; i++)
    if (moec_is_entry(m->fns[i])) MOEC_TRY(rewrite(m, m->fns[i], cx));
  return NULL;
}
