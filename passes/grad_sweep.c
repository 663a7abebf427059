/* The reverse sweep. A value is active where it depends, through ops that have a gradient, on a value whose gradient is
 * asked for; only active values get adjoints, so what needs no gradient costs nothing. */
#include "passes/grad.h"

static const moec_grad_rule rules[MOEC_OP_COUNT] = {
#define GRAD(OP, rule) [MOEC_OP_##OP] = moec_grad_##rule,
#include "passes/grad_rules.def"
#undef GRAD
};

moec_grad_rule moec_grad_rule_of(moec_op op) { return rules[op]; }

void moec_grad_none(moec_grad *c, moec_node n, const moec_value *dy) { (void)c, (void)n, (void)dy; }

void moec_grad_add(moec_grad *c, moec_value v, moec_value dv) {
  if (c->b.error || !moec_grad_wants(c, v)) return;
  moec_value *sum = &c->adjoint[v.i];
  *sum = sum->i ? moec_b_binary(&c->b, MOEC_OP_ADD, *sum, dv) : dv;
}

/* ---- activity ----------------------------------------------------------------------------- */

/* By value; array order is topological. */
static uint8_t *mark_active(moec_graph *g, moec_grad_wanted wanted, void *user) {
  uint8_t *active = MOEC_NEW_ARRAY(g->m->arena, uint8_t, g->n_values);
  for (size_t i = 0; i < g->n_inputs; i++) active[g->inputs[i].i] = wanted(user, g, g->inputs[i]);
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    const moec_node_info *p = &g->nodes[n];
    bool on = false;
    for (uint32_t i = 0; i < p->n_in && !on; i++) on = active[g->edges[p->in + i].i];
    if (p->op == MOEC_OP_PARAM) on = wanted(user, g, g->edges[p->out]);
    else if (rules[p->op] == moec_grad_none) on = false;
    for (uint32_t i = 0; i < p->n_out; i++) {
      moec_value v = g->edges[p->out + i];
      active[v.i] = on && moec_dtype_is_float(moec_ty(g, v).dtype);
    }
  }
  return active;
}

/* ---- getting ready ------------------------------------------------------------------------ */

typedef struct preparation {
  const uint8_t *active; /* by value of the graph before anything was spelled out */
  size_t n_nodes;        /* of it */
  moec_uses uses;        /* of it */
} preparation;

/* Operands that the rule of a composite has no gradient for. */
static uint32_t fixed_operands(moec_op op) {
  switch (op) {
    case MOEC_OP_ROPE: return 1u << 1 | 1u << 2;     /* cosines and sines */
    case MOEC_OP_ATTENTION: return 1u << 3;          /* an added mask */
    case MOEC_OP_CROSS_ENTROPY: return 1u << 1;
    default: return 0;
  }
}

/* Composites that stay: those with a rule that fits, and those no gradient passes through. */
static bool keeps(void *user, const moec_graph *g, moec_node n) {
  const preparation *k = user;
  moec_op op = moec_op_of(g, n);
  bool active = false;
  if (n.i >= k->n_nodes) return rules[op] != NULL;
  for (uint32_t i = 0; i < moec_node_get(g, n)->n_in; i++) active |= k->active[moec_in(g, n, i).i];
  if (!active) return true;
  for (uint32_t i = 0; i < moec_node_get(g, n)->n_in; i++)
    if (fixed_operands(op) >> i & 1 && k->active[moec_in(g, n, i).i]) return false;
  if (op == MOEC_OP_ATTENTION && moec_out(g, n, 1).i && moec_uses_count(&k->uses, moec_out(g, n, 1))) return false;
  return rules[op] != NULL;
}

/* The gradient of attention needs the log-sum-exp of its rows. */
static moec_status *ask_for_lse(moec_graph *g) {
  size_t n_nodes = g->n_nodes;
  for (uint32_t n = 1; n < n_nodes; n++) {
    const moec_node_info p = g->nodes[n];
    moec_value in[5];
    moec_node whole;
    if (p.op != MOEC_OP_ATTENTION || p.n_out > 1) continue;
    for (uint32_t i = 0; i < p.n_in; i++) in[i] = moec_in(g, (moec_node){n}, i);
    g->loc = p.loc;
    MOEC_TRY(moec_add_node(g, p.op, p.attrs, p.n_in, in, 2, &whole));
    moec_replace_uses(g, moec_out(g, (moec_node){n}, 0), moec_out(g, whole, 0));
  }
  return NULL;
}

moec_status *moec_grad_begin(moec_grad *c, moec_graph *g, moec_grad_wanted wanted, void *user) {
  moec_compact(g);
  preparation k = {mark_active(g, wanted, user), g->n_nodes, moec_uses_now(g)};
  MOEC_TRY(moec_inline_composites_of(g, keeps, &k));
  MOEC_TRY(ask_for_lse(g));
  moec_compact(g);
  c->m = g->m;
  c->g = g;
  c->b = moec_builder_on(g);
  c->n_values = g->n_values;
  c->n_nodes = g->n_nodes;
  c->active = mark_active(g, wanted, user);
  c->adjoint = MOEC_NEW_ARRAY(g->m->arena, moec_value, g->n_values);
  c->uses = moec_uses_now(g);
  for (size_t i = 1; i < g->m->n_params; i++) c->narrow = c->narrow || g->m->params[i].compute == MOEC_BF16;
  return NULL;
}

/* ---- the sweep ---------------------------------------------------------------------------- */

static moec_status *sweep_node(moec_grad *c, moec_node n) {
  const moec_node_info p = *moec_node_get(c->g, n);
  moec_value *dy = MOEC_NEW_ARRAY(c->m->arena, moec_value, p.n_out + 1);
  bool any = false, wanted = false;
  for (uint32_t i = 0; i < p.n_out; i++) {
    dy[i] = c->adjoint[moec_out(c->g, n, i).i];
    any |= dy[i].i;
  }
  for (uint32_t i = 0; i < p.n_in; i++) wanted |= moec_grad_wants(c, moec_in(c->g, n, i));
  if (!any || !wanted) return NULL;
  if (!rules[p.op]) {
    return moec_error(MOEC_UNSUPPORTED,
                      "%s \"%s\" has no gradient, but a trainable parameter or a float input needs one through it",
                      moec_op_get(p.op)->text, moec_sym_str(c->m, p.loc));
  }
  c->g->loc = p.loc;
  rules[p.op](c, n, dy);
  return moec_context(moec_builder_end(&c->b), "gradient of %s \"%s\"", moec_op_get(p.op)->text,
                      moec_sym_str(c->m, p.loc));
}

moec_status *moec_grad_sweep(moec_grad *c) {
  for (uint32_t n = (uint32_t)c->n_nodes; n-- > 1;) MOEC_TRY(sweep_node(c, (moec_node){n}));
  return NULL;
}
