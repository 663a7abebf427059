/* f32 to bf16 where the time goes: products with parameters, the rows of experts, attention, and what is stored between
 * them; everything else is computed in f32.
 *
 *   operands narrow   dot with a parameter, moe.dispatch, grouped_dot, weight, combine, attention; embeddings
 *   result narrow     of these, but for a dot or combine that is read by more than such operands: its sums leave as
 *                     f32. So the residual stream, which it adds to, is f32, and what norms, rope and gates read
 *   as their operand  ops that move elements
 *   f32               all other arithmetic: norms, softmax, rope, gates, routers, losses; what gets into a recurrence
 *
 * Logits, which are many, are rounded as results of the model. Rows of experts stay narrow: there are k times as many
 * of them as of tokens, and their sum is f32.
 *
 * A product whose result picks experts (or any top-k) stays f32, parameter included: what a router is unsure of should
 * not depend on rounding. Its gradients are products of bf16 again (passes/grad_dot.c). Where a value of one kind meets
 * an op of the other there is a cast; fusion puts it into a kernel, so that memory holds the narrow value. Accumulation
 * is in f32 everywhere. The parameters that only narrow ops read are bf16; norms' weights and the like stay f32. */
#include "passes/precision.h"

typedef struct narrowing {
  moec_graph *g;
  bool *of_param;      /* by value: a parameter, or made from parameters by movement alone */
  bool *routes;        /* by node: a product that picks experts */
  bool *recurrent;     /* by node: its result gets into a recurrence */
  bool *narrow;        /* by value */
  bool *read_narrow;   /* by value: all that read it take bf16, or it is a result of the model */
  moec_value *cast[2]; /* by value: to f32, to bf16; {0}: not there */
} narrowing;

static bool is_f32(const moec_graph *g, moec_value v) { return v.i && moec_ty(g, v).dtype == MOEC_F32; }

/* ---- what is what --------------------------------------------------------------------------- */

static void find_params(narrowing *w) {
  moec_graph *g = w->g;
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    moec_node node = {n};
    moec_op op = moec_op_of(g, node);
    bool is = op == MOEC_OP_PARAM || (moec_op_cls(op) == MOEC_CLASS_MOVE && op != MOEC_OP_PAD);
    for (uint32_t i = 0; i < moec_node_get(g, node)->n_in; i++) is = is && w->of_param[moec_in(g, node, i).i];
    w->of_param[moec_out(g, node, 0).i] = is;
  }
}

/* A product with a parameter, but of no router. */
static bool has_param(const narrowing *w, moec_node n) {
  moec_op op = moec_op_of(w->g, n);
  if (op == MOEC_OP_MOE_GROUPED_DOT) return true;
  return op == MOEC_OP_DOT && !w->routes[n.i] &&
         (w->of_param[moec_in(w->g, n, 0).i] || w->of_param[moec_in(w->g, n, 1).i]);
}

/* The operands that node |n| wants narrow, one bit each; 0: it is computed in f32. */
static uint32_t narrow_operands(const narrowing *w, moec_node n) {
  if (w->recurrent[n.i]) return 0;
  switch (moec_op_of(w->g, n)) {
    case MOEC_OP_DOT: return has_param(w, n) ? 3 : 0;
    case MOEC_OP_GATHER: return w->of_param[moec_in(w->g, n, 0).i] ? 1 : 0;
    case MOEC_OP_MOE_DISPATCH:
    case MOEC_OP_MOE_WEIGHT:
    case MOEC_OP_MOE_COMBINE: return 1;
    case MOEC_OP_MOE_GROUPED_DOT: return 1 | 2 | 8;
    case MOEC_OP_ATTENTION: return 1 | 2 | 4 | 8 | 16; /* a bool mask is no f32 */
    default: return 0;
  }
}

/* Whether the sums of |n| leave as f32: of a product that is read by more than other products. */
static bool sums_stay(const narrowing *w, moec_node n) {
  moec_op op = moec_op_of(w->g, n);
  return (op == MOEC_OP_DOT || op == MOEC_OP_MOE_COMBINE) && !w->read_narrow[moec_out(w->g, n, 0).i];
}

static bool moves(moec_op op) { return moec_op_cls(op) == MOEC_CLASS_MOVE && op != MOEC_OP_PAD; }

static void find_readers(narrowing *w) {
  const moec_graph *g = w->g;
  for (size_t v = 1; v < g->n_values; v++) w->read_narrow[v] = true;
  for (uint32_t n = (uint32_t)g->n_nodes; n-- > 1;) { /* array order is topological */
    moec_node node = {n};
    uint32_t wants = narrow_operands(w, node);
    bool passes = moves(moec_op_of(g, node)) && w->read_narrow[moec_out(g, node, 0).i];
    for (uint32_t i = 0; i < moec_node_get(g, node)->n_in; i++)
      if (!passes && !(wants >> i & 1)) w->read_narrow[moec_in(g, node, i).i] = false;
  }
}

/* ---- parameters ----------------------------------------------------------------------------- */

/* Whether every use of |v|, of a parameter, is a narrow operand, through movement. */
static bool only_narrow(const narrowing *w, moec_value v) {
  const moec_graph *g = w->g;
  if (moec_is_output(g, v)) return false;
  for (uint32_t u = g->use_start[v.i]; u < g->use_start[v.i + 1]; u++) {
    moec_node n = g->use_nodes[u];
    if (w->of_param[moec_out(g, n, 0).i]) {
      if (!only_narrow(w, moec_out(g, n, 0))) return false;
      continue;
    }
    uint32_t wants = narrow_operands(w, n);
    for (uint32_t i = 0; i < moec_node_get(g, n)->n_in; i++)
      if (moec_in(g, n, i).i == v.i && !(wants >> i & 1)) return false;
  }
  return g->use_start[v.i] < g->use_start[v.i + 1];
}

static void set_narrow(narrowing *w, moec_value v) {
  w->narrow[v.i] = true;
  moec_set_type(w->g, v, moec_type_with_dtype(w->g->m, moec_value_get(w->g, v)->type, MOEC_BF16));
}

static void narrow_params(narrowing *w) {
  moec_graph *g = w->g;
  moec_build_uses(g);
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    moec_value v = moec_out(g, (moec_node){n}, 0);
    if (moec_op_of(g, (moec_node){n}) == MOEC_OP_PARAM && is_f32(g, v)) w->narrow[v.i] = only_narrow(w, v);
  }
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    moec_node node = {n};
    if (moec_op_of(g, node) != MOEC_OP_PARAM || !w->narrow[moec_out(g, node, 0).i]) continue;
    moec_param_info *p = &g->m->params[MOEC_ATTRS(g, node, PARAM)->param.i];
    p->compute = MOEC_BF16;
    p->type = moec_type_with_dtype(g->m, p->type, MOEC_BF16);
    set_narrow(w, moec_out(g, node, 0));
  }
}

/* ---- casts ---------------------------------------------------------------------------------- */

/* |v| in the wanted kind. */
static moec_status *as(narrowing *w, moec_value v, bool narrow, moec_value *out) {
  *out = v;
  if (!v.i || w->narrow[v.i] == narrow || (!w->narrow[v.i] && !is_f32(w->g, v))) return NULL;
  moec_value *made = &w->cast[narrow][v.i];
  if (!made->i) {
    moec_builder b = moec_builder_on(w->g);
    *made = moec_b_cast(&b, v, narrow ? MOEC_BF16 : MOEC_F32);
    MOEC_TRY(moec_builder_end(&b));
    w->narrow[made->i] = narrow;
  }
  *out = *made;
  return NULL;
}

static moec_status *set_operand(narrowing *w, moec_node n, uint32_t i, bool narrow) {
  moec_value v;
  MOEC_TRY(as(w, moec_in(w->g, n, i), narrow, &v));
  if (v.i != moec_in(w->g, n, i).i) moec_set_input(w->g, n, i, v);
  return NULL;
}

/* Movement: narrow where all that is moved is. */
static bool moves_narrow(const narrowing *w, moec_node n) {
  moec_op op = moec_op_of(w->g, n);
  uint32_t moved = op == MOEC_OP_GATHER || op == MOEC_OP_GATHER_ELEMENTS || op == MOEC_OP_GATHER_ND
                       ? 1
                       : moec_node_get(w->g, n)->n_in;
  if (moec_op_cls(op) != MOEC_CLASS_MOVE && moved > 1) return false;
  if (moec_op_cls(op) != MOEC_CLASS_MOVE && op != MOEC_OP_GATHER && op != MOEC_OP_GATHER_ELEMENTS &&
      op != MOEC_OP_GATHER_ND)
    return false;
  for (uint32_t i = 0; i < moved; i++)
    if (!w->narrow[moec_in(w->g, n, i).i]) return false;
  return moved > 0;
}

/* The result, which is f32, says so: an attribute of its own copy. */
static void keep_sums(const narrowing *w, moec_node n) {
  moec_node_info *p = moec_node_get(w->g, n);
  void *attrs = (void *)(uintptr_t)p->attrs;
  if (p->op == MOEC_OP_DOT) ((moec_attrs_DOT *)attrs)->dtype = MOEC_F32;
  else ((moec_attrs_MOE_COMBINE *)attrs)->dtype = MOEC_F32;
}

static moec_status *narrow_node(narrowing *w, moec_node n) {
  uint32_t wants = narrow_operands(w, n), n_in = moec_node_get(w->g, n)->n_in;
  moec_value y = moec_out(w->g, n, 0);
  if (!wants && moves_narrow(w, n)) {
    set_narrow(w, y);
    return NULL;
  }
  if (!is_f32(w->g, y)) wants = 0; /* f64 */
  for (uint32_t i = 0; i < n_in; i++)
    if (w->narrow[moec_in(w->g, n, i).i] || is_f32(w->g, moec_in(w->g, n, i)))
      MOEC_TRY(set_operand(w, n, i, wants >> i & 1));
  if (wants && sums_stay(w, n)) keep_sums(w, n);
  else if (wants) set_narrow(w, y);
  return NULL;
}

/* Where bf16 was asked for, it is to be near f32; a model that is bf16 itself stays that. */
static void keep_recurrent(narrowing *w, moec_pass_ctx *cx, uint32_t n_nodes) {
  if (cx->options->precision != MOEC_PRECISION_BF16) return;
  uint32_t kept = 0;
  moec_find_recurrent(w->g, n_nodes, w->of_param, w->recurrent);
  for (uint32_t n = 1; n < n_nodes; n++) kept += w->recurrent[n] && has_param(w, (moec_node){n});
  if (kept)
    moec_remark(cx, w->g->m, "precision: %u products with parameters stay f32: they get into linear attention, which "
                "makes what they are off by many times larger", kept);
}

moec_status *moec_narrow(moec_module *m, moec_pass_ctx *cx) {
  moec_graph *g = moec_main(m);
  size_t n_values = g->n_values, n_nodes = g->n_nodes, most = 2 * n_values; /* each may be cast, once */
  narrowing w = {.g = g};
  w.of_param = MOEC_NEW_ARRAY(m->arena, bool, most);
  w.narrow = MOEC_NEW_ARRAY(m->arena, bool, most);
  w.routes = MOEC_NEW_ARRAY(m->arena, bool, n_nodes);
  for (int i = 0; i < 2; i++) w.cast[i] = MOEC_NEW_ARRAY(m->arena, moec_value, most);
  find_params(&w);
  w.recurrent = MOEC_NEW_ARRAY(m->arena, bool, n_nodes);
  moec_find_routers(g, (uint32_t)n_nodes, w.routes);
  keep_recurrent(&w, cx, (uint32_t)n_nodes);
  w.read_narrow = MOEC_NEW_ARRAY(m->arena, bool, most);
  find_readers(&w);
  narrow_params(&w);
  for (uint32_t n = 1; n < n_nodes; n++)
    if (moec_op_of(g, (moec_node){n}) != MOEC_OP_PARAM) MOEC_TRY(narrow_node(&w, (moec_node){n}));
  for (size_t i = 0; i < g->n_outputs; i++) MOEC_TRY(as(&w, g->outputs[i], false, &g->outputs[i]));
  return NULL;
}

/* ---- for fusion ----------------------------------------------------------------------------- */

/* A reshape between kernels is only another name of a value. A cast behind it would be a kernel by itself; in front of
 * it, it belongs to the kernel that makes the value. */
moec_status *moec_narrow_before_reshapes(moec_graph *g) {
  size_t n_nodes = g->n_nodes;
  for (uint32_t n = 1; n < n_nodes; n++) {
    moec_node cast = {n};
    if (moec_op_of(g, cast) != MOEC_OP_CAST) continue;
    moec_value x = moec_in(g, cast, 0), y = moec_out(g, cast, 0);
    moec_type_info t = moec_ty(g, y);
    if (!is_f32(g, x) || (t.dtype != MOEC_BF16 && t.dtype != MOEC_F16)) continue;
    if (moec_def_op(g, x) != MOEC_OP_RESHAPE) continue;
    while (moec_def_op(g, x) == MOEC_OP_RESHAPE) x = moec_in(g, moec_def(g, x), 0);
    moec_builder b = moec_builder_on(g);
    moec_value made = moec_b_reshape(&b, moec_b_cast(&b, x, t.dtype), t.rank, t.dims);
    MOEC_TRY(moec_builder_end(&b));
    moec_replace_uses(g, y, made);
  }
  return NULL;
}
