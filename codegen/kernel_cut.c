/* Column loops are cut where a condition on their coordinate changes, and split in two where the
 * coordinate is divided: what is left inside is free of both, and vectorises. */
#include <string.h>

#include "codegen/kernel_build.h"

typedef struct cutter {
  moec_kpool *p;
  moec_kgroup *g;
  moec_kaxis *loop;
  moec_kx var;
  bool *seen;
  int64_t divisor; /* the greatest constant the coordinate is divided by; 0: none */
  moec_dim size;   /* or a size it is divided by */
} cutter;

static bool nonneg(moec_module *m, moec_dim d) {
  return moec_dim_known(d) && moec_dim_is_nonneg(m, d);
}

/* Inserts |at| where it has a place between the others, proved for all sizes. */
static void add_cut(moec_module *m, moec_kaxis *x, moec_dim at) {
  uint32_t i = 0;
  if (x->n_cuts == MOEC_MAX_CUTS || moec_dim_is(m, at, 0) || moec_dim_eq(at, x->size)) return;
  if (!nonneg(m, at) || !nonneg(m, moec_dim_sub(m, x->size, at))) return;
  while (i < x->n_cuts && nonneg(m, moec_dim_sub(m, at, x->cuts[i]))) {
    if (moec_dim_eq(at, x->cuts[i])) return;
    i++;
  }
  if (i < x->n_cuts && !nonneg(m, moec_dim_sub(m, x->cuts[i], at))) return;
  memmove(x->cuts + i + 1, x->cuts + i, (x->n_cuts - i) * sizeof *x->cuts);
  x->cuts[i] = at;
  x->n_cuts++;
}

/* The condition |op| on a - b, where that is var + rest or rest - var: its truth changes at one
 * coordinate (at two for equality). */
static void condition(cutter *c, moec_op op, moec_kx difference) {
  moec_kpool *p = c->p;
  moec_dim coeff = moec_kx_coeff(p, difference, c->var), one = moec_dim_const(p->m, 1);
  bool up = moec_dim_eq(coeff, one);
  if (!up && !moec_dim_is(p->m, coeff, -1)) return;
  moec_kx_node rest = *moec_kx_get(p, moec_kx_sub(p, difference, moec_kx_scale(p, c->var, coeff)));
  if (rest.kind != MOEC_KX_SUM || rest.n_args) return;
  moec_dim equal_at = up ? moec_dim_sub(p->m, moec_dim_const(p->m, 0), rest.dim) : rest.dim;
  bool equality = op == MOEC_OP_EQ || op == MOEC_OP_NE;
  bool before = equality ||
                (up ? op == MOEC_OP_LT || op == MOEC_OP_GE : op == MOEC_OP_GT || op == MOEC_OP_LE);
  if (before) add_cut(p->m, c->loop, equal_at);
  if (equality || !before) add_cut(p->m, c->loop, moec_dim_add(p->m, equal_at, one));
}

/* The coordinate divided by |n|. */
static void division(cutter *c, moec_dim n) {
  moec_dim outer = moec_dim_exact_div(c->p->m, c->loop->size, n);
  int64_t v;
  if (!moec_dim_known(outer) || moec_dim_is(c->p->m, outer, 1)) return;
  if (!moec_dim_is_const(c->p->m, n, &v))
    c->size = n;
  else if (v > c->divisor)
    c->divisor = v;
}

/* Reductions are looked into for divisions only: their conditions are on their own variables. */
static void look(cutter *c, moec_kx e, bool conditions) {
  moec_kx_node n = *moec_kx_get(c->p, e);
  if (!(n.vars & moec_kx_get(c->p, c->var)->vars) || c->seen[e.i]) return;
  c->seen[e.i] = true;
  bool compare = n.kind == MOEC_KX_APPLY && moec_op_cls(n.op) == MOEC_CLASS_COMPARE;
  if (conditions && compare && moec_kx_ranged(c->p, n.args[0]) && moec_kx_ranged(c->p, n.args[1]))
    condition(c, n.op, moec_kx_sub(c->p, n.args[0], n.args[1]));
  if ((n.kind == MOEC_KX_DIV || n.kind == MOEC_KX_MOD) && moec_kx_eq(n.args[0], c->var))
    division(c, n.dim);
  for (uint32_t i = 0; i < n.n_args; i++)
    look(c, n.args[i], conditions && n.kind != MOEC_KX_REDUCE);
}

/* Loop |k| becomes size/inner loops around a loop of |inner|. */
static bool split(moec_kgroup *g, moec_module *m, uint32_t k, moec_dim inner) {
  if (g->n_loops == MOEC_MAX_RANK) return false;
  moec_kaxis *x = &g->loops[k];
  memmove(x + 1, x, (g->n_loops - k) * sizeof *x);
  g->n_loops++;
  x[0] = (moec_kaxis){
      .size = moec_dim_exact_div(m, x[1].size, inner), .axis = x[1].axis, .modulus = 1};
  x[1] = (moec_kaxis){.size = inner, .axis = x[0].axis, .modulus = 1};
  return true;
}

/* Few remainders are unrolled, many become a loop. Returns whether loop |k| changed. */
static bool refine(cutter *c, uint32_t k) {
  moec_module *m = c->p->m;
  if (c->divisor > 4) return split(c->g, m, k, moec_dim_const(m, c->divisor));
  if (moec_dim_known(c->size)) return split(c->g, m, k, c->size);
  if (c->divisor > 1) {
    c->loop->modulus = c->divisor;
    c->loop->n_cuts = 0; /* an unrolled loop is not cut as well */
    return true;
  }
  return c->loop->n_cuts > 0;
}

bool moec_kspace_cut(moec_kspace *s, moec_kpool *p, const moec_kloops *loops) {
  bool changed = false;
  size_t n_nodes = p->n; /* differences are new expressions, but not looked at */
  for (uint32_t i = 0; i < s->n_groups; i++) {
    moec_kgroup *g = &s->groups[i];
    bool again = false; /* a split moves the loops behind it: look again at what it gives */
    for (uint32_t k = 0; k < g->n_loops && !again; k++) {
      cutter c = {.p = p, .g = g, .loop = &g->loops[k]};
      if (c.loop->n_cuts || c.loop->modulus > 1) continue;
      uint32_t n_loops = g->n_loops;
      c.seen = MOEC_NEW_ARRAY(p->arena, bool, n_nodes);
      c.var = moec_kloop_var(p, g, k, moec_dim_const(p->m, 0), c.loop->size);
      for (size_t w = 0; w < loops->n_nests; w++)
        for (size_t t = 0; t < loops->nests[w].n_stores; t++)
          look(&c, moec_kstore_operand(p, &loops->nests[w].stores[t]), true);
      bool here = refine(&c, k);
      changed = changed || here;
      again = g->n_loops != n_loops;
    }
  }
  return changed;
}
