/* Gated activations.
 *
 *   g ── [min(., limit)] ──┬── [* alpha] ── sigmoid ─(*)─┐
 *                          └────────────────────────┘    (*)── y        =>  swiglu(g, u)
 *   u ── [max(-limit, min(., limit))] ── [+ beta] ───────┘
 *
 *   order    the three factors multiplied in any order
 *   sigmoid  the op, or 1 / (1 + exp(-z)) as recip or division; g / (1 + exp(-g)) too
 *   clamps   become the limit where both sides have the same one; else they stay outside
 *   rejects  a product with a constant (a scaled activation), products that others read as well */
#include "passes/match.h"

typedef struct gated {
  moec_value g, u;
  double alpha, beta, limit;
} gated;

/* |v| = 1 + exp(-z). */
static bool match_one_plus_exp(const moec_graph *g, moec_value v, moec_value *z) {
  moec_value e, n;
  double one, c;
  if (!moec_m_with_scalar(g, v, MOEC_OP_ADD, &e, &one) || one != 1 || !moec_m_unary(g, e, MOEC_OP_EXP, &n))
    return false;
  return moec_m_unary(g, n, MOEC_OP_NEG, z) || (moec_m_with_scalar(g, n, MOEC_OP_MUL, z, &c) && c == -1);
}

static bool match_sigmoid(const moec_graph *g, moec_value v, moec_value *z) {
  moec_value one, x;
  double c;
  if (moec_m_unary(g, v, MOEC_OP_SIGMOID, z)) return true;
  if (moec_m_unary(g, v, MOEC_OP_RECIP, &x)) return match_one_plus_exp(g, x, z);
  return moec_m_binary(g, v, MOEC_OP_DIV, &one, &x) && moec_m_scalar(g, one, &c) && c == 1 &&
         match_one_plus_exp(g, x, z);
}

/* |v| = sigmoid(alpha * g). */
static bool is_gate(const moec_graph *gr, moec_value v, moec_value g, double *alpha) {
  moec_value z, x;
  *alpha = 1;
  if (!match_sigmoid(gr, v, &z)) return false;
  return z.i == g.i || (moec_m_scaled(gr, z, &x, alpha) && x.i == g.i);
}

/* |v| = g * sigmoid(g) as one division. */
static bool match_quotient(const moec_graph *g, moec_value v, moec_value *x) {
  moec_value d, z;
  return moec_m_binary(g, v, MOEC_OP_DIV, x, &d) && match_one_plus_exp(g, d, &z) && z.i == x->i;
}

/* The three factors of a product: one of its sides is a product that nothing else reads. */
static bool match_factors(const moec_uses *uses, moec_value v, uint32_t inner, moec_value *f) {
  moec_value side[2];
  const moec_graph *g = uses->g;
  if (!moec_m_binary(g, v, MOEC_OP_MUL, &side[0], &side[1])) return false;
  if (!moec_uses_only(uses, side[inner]).i || !moec_m_binary(g, side[inner], MOEC_OP_MUL, &f[0], &f[1])) return false;
  f[2] = side[1 - inner];
  return true;
}

static bool match_gated(const moec_uses *uses, moec_value v, gated *p) {
  const moec_graph *g = uses->g;
  moec_value f[3], side[2];
  for (uint32_t inner = 0; inner < 2; inner++) {
    if (!match_factors(uses, v, inner, f)) continue;
    for (uint32_t k = 0; k < 6; k++) { /* which factor is the gate, which is g */
      uint32_t s = k % 3, x = (s + 1 + k / 3) % 3;
      if (!is_gate(g, f[s], f[x], &p->alpha)) continue;
      p->g = f[x];
      p->u = f[3 - s - x];
      return true;
    }
  }
  for (uint32_t i = 0; moec_m_binary(g, v, MOEC_OP_MUL, &side[0], &side[1]) && i < 2; i++) {
    if (!match_quotient(g, side[i], &p->g)) continue;
    p->u = side[1 - i];
    p->alpha = 1;
    return true;
  }
  return false;
}

/* |v| = clamp(x, -limit, limit). */
static bool match_clamp(const moec_graph *g, moec_value v, moec_value *x, double *limit) {
  moec_value y;
  double lo, hi;
  bool ok = (moec_m_with_scalar(g, v, MOEC_OP_MAX, &y, &lo) && moec_m_with_scalar(g, y, MOEC_OP_MIN, x, &hi)) ||
            (moec_m_with_scalar(g, v, MOEC_OP_MIN, &y, &hi) && moec_m_with_scalar(g, y, MOEC_OP_MAX, x, &lo));
  *limit = ok ? hi : 0;
  return ok && lo == -hi && hi > 0;
}

static void take_beta_and_limit(const moec_graph *g, gated *p) {
  moec_value u, x;
  double c, limit;
  p->beta = 0;
  p->limit = 0;
  if (moec_m_with_scalar(g, p->u, MOEC_OP_ADD, &u, &c)) p->u = u, p->beta = c;
  if (moec_m_with_scalar(g, p->g, MOEC_OP_MIN, &x, &c) && c > 0 && match_clamp(g, p->u, &u, &limit) && limit == c) {
    p->g = x;
    p->u = u;
    p->limit = limit;
  }
}

static moec_status *raise_graph(moec_graph *g, moec_pass_ctx *cx) {
  moec_builder b = moec_builder_on(g);
  moec_uses uses = moec_uses_now(g);
  size_t end = g->n_nodes;
  for (uint32_t n = 1; n < end && !b.error; n++) {
    gated p;
    double c;
    moec_value v = g->nodes[n].op == MOEC_OP_MUL ? moec_out(g, (moec_node){n}, 0) : (moec_value){0};
    if (!v.i || !match_gated(&uses, v, &p)) continue;
    g->loc = g->nodes[n].loc;
    if (moec_m_scalar(g, p.u, &c)) {
      moec_remark(cx, g->m, "not recognised as swiglu: %s multiplies an activation by a constant",
                  moec_m_name(g, (moec_node){n}));
      continue;
    }
    take_beta_and_limit(g, &p);
    moec_attrs_SWIGLU a = {.alpha = p.alpha, .beta = p.beta, .limit = p.limit};
    moec_value in[2] = {p.g, p.u}, y = moec_b_op(&b, MOEC_OP_SWIGLU, &a, 2, in, 1);
    if (!b.error) moec_replace_uses(g, v, y);
  }
  return moec_builder_end(&b);
}

moec_status *moec_pass_raise_swiglu(moec_module *m, moec_pass_ctx *cx) {
  for (size_t f = 1; f < m->n_fns; f++) MOEC_TRY(raise_graph(m->fns[f], cx));
  return NULL;
}
