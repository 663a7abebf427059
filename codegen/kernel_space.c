/* The iteration space: rows in parallel, below them loops over column axes, cut where conditions
 * change. */
#include <string.h>

#include "codegen/kernel_build.h"

/* ---- rows and columns ----------------------------------------------------------------------- */

/* The number of leading axes whose product is |rows|, the most there are; -1: there are none. */
static int64_t match_rows(moec_module *m, moec_type_info t, moec_dim rows) {
  moec_dim n = moec_dim_const(m, 1);
  int64_t found = moec_dim_eq(n, rows) ? 0 : -1;
  for (uint32_t i = 0; i < t.rank; i++) {
    n = moec_dim_mul(m, n, t.dims[i]);
    if (moec_dim_eq(n, rows)) found = (int64_t)i + 1;
  }
  return found;
}

static bool same_axes(const moec_kgroup *a, const moec_kgroup *b) {
  if (a->n_axes != b->n_axes) return false;
  for (uint32_t i = 0; i < a->n_axes; i++)
    if (!moec_dim_eq(a->axes[i], b->axes[i])) return false;
  return true;
}

bool moec_kspace_init(moec_kspace *s, moec_arena *a, const moec_graph *fn, moec_dim rows) {
  *s = (moec_kspace){.row_kind = MOEC_KVAR_ROW, .rows = rows};
  s->group_of = MOEC_NEW_ARRAY(a, uint32_t, fn->n_outputs);
  s->row_axes = MOEC_NEW_ARRAY(a, uint32_t, fn->n_outputs);
  for (size_t o = 0; o < fn->n_outputs; o++) {
    moec_type_info t = moec_ty(fn, fn->outputs[o]);
    int64_t n = match_rows(fn->m, t, rows);
    if (n < 0) return false;
    s->row_axes[o] = (uint32_t)n;
    moec_kgroup g = {0};
    for (uint32_t i = (uint32_t)n; i < t.rank; i++)
      if (!moec_dim_is(fn->m, t.dims[i], 1)) g.axes[g.n_axes++] = t.dims[i];
    g.merge = g.n_axes ? (1u << (g.n_axes - 1)) - 1 : 0;
    uint32_t k = 0;
    while (k < s->n_groups && !same_axes(&s->groups[k], &g)) k++;
    if (k == s->n_groups) {
      if (k == sizeof s->groups / sizeof *s->groups) return false;
      s->groups[s->n_groups++] = g;
    }
    s->group_of[o] = k;
  }
  return true;
}

/* ---- evaluation ----------------------------------------------------------------------------- */

/* A position in one group's columns while pieces of its axes are chosen. */
typedef struct cursor {
  moec_kspace *s;
  moec_keval *ev;
  moec_kloops *out;
  uint32_t group;
  uint32_t n_loops;
  moec_dim sizes[MOEC_MAX_RANK]; /* of the merged axes */
  moec_kx at[MOEC_MAX_RANK];     /* coordinates of the merged axes */
  uint32_t n_vars, vars[MOEC_MAX_RANK];
} cursor;

static moec_knest *nest_for(cursor *c) {
  moec_kloops *l = c->out;
  for (size_t i = 0; i < l->n_nests; i++)
    if (l->nests[i].n_vars == c->n_vars && memcmp(l->nests[i].vars, c->vars, c->n_vars * sizeof *c->vars) == 0)
      return &l->nests[i];
  moec_knest n = {.n_vars = c->n_vars};
  memcpy(n.vars, c->vars, c->n_vars * sizeof *c->vars);
  MOEC_PUSH(c->ev->p->arena, l->nests, l->n_nests, l->cap_nests, n);
  return &l->nests[l->n_nests - 1];
}

/* The full index of output |o|: rows, then the axes of each merged loop. */
static void output_index(cursor *c, size_t o, moec_kcoord *index) {
  moec_kpool *p = c->ev->p;
  moec_type_info t = moec_ty(c->ev->fn, c->ev->fn->outputs[o]);
  const moec_kgroup *g = &c->s->groups[c->group];
  moec_kx row = c->out->row;
  if (c->s->row_kind == MOEC_KVAR_BLOCK)
    row = moec_kx_add(p, row, moec_kx_var(p, MOEC_KVAR_LANE, moec_dim_const(p->m, 0), moec_dim_const(p->m, MOEC_KERNEL_LANES), 0));
  uint32_t rows = c->s->row_axes[o], axis = 0, loop = 0;
  moec_kx_unflatten(p, (moec_kcoord){row, {0}}, (moec_type_info){t.dtype, rows, t.dims}, index);
  for (uint32_t i = rows; i < t.rank;) {
    uint32_t end = i; /* axes i .. end are one loop; those of size 1 may stand between them */
    if (moec_dim_is(p->m, t.dims[i], 1)) {
      index[i++] = (moec_kcoord){moec_kx_i64(p, 0), {0}};
      continue;
    }
    for (bool more = true; more && end < t.rank; end++) {
      if (moec_dim_is(p->m, t.dims[end], 1)) continue;
      more = axis + 1 < g->n_axes && (g->merge >> axis & 1);
      axis++;
    }
    moec_kx_unflatten(p, (moec_kcoord){c->at[loop++], {0}}, (moec_type_info){t.dtype, end - i, t.dims + i}, index + i);
    i = end;
  }
}

static void eval_outputs(cursor *c) {
  const moec_graph *fn = c->ev->fn;
  for (size_t o = 0; o < fn->n_outputs && !c->ev->p->error; o++) {
    if (c->s->group_of[o] != c->group) continue;
    moec_kcoord index[MOEC_MAX_RANK];
    output_index(c, o, index);
    moec_kx value = moec_keval_at(c->ev, fn->outputs[o], index);
    moec_kx at = moec_kx_flatten(c->ev->p, index, moec_ty(fn, fn->outputs[o])).e;
    moec_knest *n = nest_for(c);
    MOEC_PUSH(c->ev->p->arena, n->stores, n->n_stores, n->cap_stores, ((moec_kstore){c->ev->k->n_in + (uint32_t)o, at, value}));
  }
}

/* Goes through the pieces of merged axis |axis| and of those inside it. */
static void pieces(cursor *c, uint32_t axis) {
  moec_kpool *p = c->ev->p;
  moec_kgroup *g = &c->s->groups[c->group];
  if (axis == c->n_loops) {
    eval_outputs(c);
    return;
  }
  const moec_kcuts *cuts = &g->cuts[axis];
  int64_t modulus = cuts->modulus > 1 ? cuts->modulus : 1;
  moec_dim mod = moec_dim_const(p->m, modulus), lo = moec_dim_const(p->m, 0);
  uint32_t copy = 0; /* axes of one size outside this one */
  for (uint32_t i = 0; i < axis; i++) copy += moec_dim_eq(c->sizes[i], c->sizes[axis]);
  for (uint32_t i = 0; i <= cuts->n; i++) {
    moec_dim hi = i < cuts->n ? cuts->at[i] : c->sizes[axis];
    moec_kx var = moec_kx_var(p, MOEC_KVAR_LOOP, moec_dim_floordiv(p->m, lo, mod), moec_dim_floordiv(p->m, hi, mod), copy);
    c->vars[c->n_vars++] = moec_kx_get(p, var)->id;
    g->vars |= moec_kx_get(p, var)->vars;
    for (int64_t r = 0; r < modulus; r++) {
      c->at[axis] = moec_kx_add(p, moec_kx_scale(p, var, mod), moec_kx_i64(p, r));
      pieces(c, axis + 1);
    }
    c->n_vars--;
    lo = hi;
  }
}

void moec_kspace_eval(moec_kspace *s, moec_keval *ev, moec_kloops *out) {
  moec_kpool *p = ev->p;
  moec_dim zero = moec_dim_const(p->m, 0);
  *out = (moec_kloops){.row = moec_kx_var(p, s->row_kind, zero, s->rows, 0)};
  for (uint32_t k = 0; k < s->n_groups; k++) {
    moec_kgroup *g = &s->groups[k];
    cursor c = {.s = s, .ev = ev, .out = out, .group = k};
    for (uint32_t i = 0; i < g->n_axes; i++) {
      bool joined = i > 0 && (g->merge >> (i - 1) & 1);
      if (joined) c.sizes[c.n_loops - 1] = moec_dim_mul(p->m, c.sizes[c.n_loops - 1], g->axes[i]);
      else c.sizes[c.n_loops++] = g->axes[i];
    }
    g->vars = 0;
    if (s->row_kind == MOEC_KVAR_BLOCK) { /* rows themselves are the only columns */
      moec_kx lane = moec_kx_var(p, MOEC_KVAR_LANE, zero, moec_dim_const(p->m, MOEC_KERNEL_LANES), 0);
      c.vars[c.n_vars++] = moec_kx_get(p, lane)->id;
    }
    pieces(&c, 0);
  }
}

/* ---- cuts ----------------------------------------------------------------------------------- */

static bool nonneg(moec_module *m, moec_dim d) { return moec_dim_known(d) && moec_dim_is_nonneg(m, d); }

/* Inserts |at| where it has a place between the others, proved for all sizes. */
static bool add_cut(moec_module *m, moec_kcuts *c, moec_dim at, moec_dim size) {
  uint32_t i = 0;
  if (c->n == MOEC_MAX_CUTS || c->modulus > 1 || moec_dim_is(m, at, 0) || moec_dim_eq(at, size)) return false;
  if (!nonneg(m, at) || !nonneg(m, moec_dim_sub(m, size, at))) return false;
  while (i < c->n && nonneg(m, moec_dim_sub(m, at, c->at[i]))) {
    if (moec_dim_eq(at, c->at[i])) return false;
    i++;
  }
  if (i < c->n && !nonneg(m, moec_dim_sub(m, c->at[i], at))) return false;
  memmove(c->at + i + 1, c->at + i, (c->n - i) * sizeof *c->at);
  c->at[i] = at;
  c->n++;
  return true;
}

typedef struct cutter {
  moec_kpool *p;
  moec_kx var;
  moec_dim size;
  moec_kcuts *cuts;
  bool *seen;
  bool changed;
} cutter;

/* The condition |op| on a - b, where a - b is var + rest or rest - var: its truth changes at one coordinate
 * (at two for equality). */
static void cut_at(cutter *c, moec_op op, moec_kx difference) {
  moec_kpool *p = c->p;
  moec_dim coeff = moec_kx_coeff(p, difference, c->var);
  bool up = moec_dim_is(p->m, coeff, 1);
  if (!up && !moec_dim_is(p->m, coeff, -1)) return;
  const moec_kx_node *rest = moec_kx_get(p, moec_kx_sub(p, difference, moec_kx_scale(p, c->var, coeff)));
  if (rest->kind != MOEC_KX_SUM || rest->n_args) return;
  moec_dim one = moec_dim_const(p->m, 1);
  moec_dim zero_at = up ? moec_dim_sub(p->m, moec_dim_const(p->m, 0), rest->dim) : rest->dim; /* a == b there */
  bool equality = op == MOEC_OP_EQ || op == MOEC_OP_NE;
  bool before = equality || (up ? op == MOEC_OP_LT || op == MOEC_OP_GE : op == MOEC_OP_GT || op == MOEC_OP_LE);
  bool after = equality || !before;
  if (before) c->changed |= add_cut(p->m, c->cuts, zero_at, c->size);
  if (after) c->changed |= add_cut(p->m, c->cuts, moec_dim_add(p->m, zero_at, one), c->size);
}

/* Conditions on coordinate mod m: one loop iteration handles m of them. */
static void cut_modulus(cutter *c, moec_kx difference) {
  moec_kpool *p = c->p;
  moec_kx_node d = *moec_kx_get(p, difference);
  for (uint32_t i = 0; i < (d.kind == MOEC_KX_SUM ? d.n_args : 1); i++) {
    const moec_kx_node *a = d.kind == MOEC_KX_SUM ? moec_kx_get(p, d.args[i]) : &d;
    int64_t m, size;
    if (a->kind != MOEC_KX_MOD || !moec_kx_eq(a->args[0], c->var) || c->cuts->n || c->cuts->modulus > 1) continue;
    if (!moec_dim_is_const(p->m, a->dim, &m) || m > 4) continue;
    bool even = moec_dim_is_const(p->m, c->size, &size) ? size % m == 0 : moec_dim_known(moec_dim_exact_div(p->m, c->size, a->dim));
    if (!even) continue;
    c->cuts->modulus = m;
    c->changed = true;
  }
}

static void find_cuts(cutter *c, moec_kx e) {
  moec_kx_node n = *moec_kx_get(c->p, e);
  if (!(n.vars & moec_kx_get(c->p, c->var)->vars) || c->seen[e.i] || n.kind == MOEC_KX_REDUCE) return;
  c->seen[e.i] = true;
  if (n.kind == MOEC_KX_APPLY && moec_op_cls(n.op) == MOEC_CLASS_COMPARE && moec_kx_ranged(c->p, n.args[0]) &&
      moec_kx_ranged(c->p, n.args[1])) {
    moec_kx difference = moec_kx_sub(c->p, n.args[0], n.args[1]);
    cut_at(c, n.op, difference);
    cut_modulus(c, difference);
  }
  for (uint32_t i = 0; i < n.n_args; i++) find_cuts(c, n.args[i]);
}

bool moec_kspace_cut(moec_kspace *s, moec_kpool *p, const moec_kloops *loops) {
  bool changed = false;
  size_t n_nodes = p->n + 4096; /* differences are new expressions, but not looked at */
  for (uint32_t k = 0; k < s->n_groups; k++) {
    moec_kgroup *g = &s->groups[k];
    moec_dim size = {0};
    uint32_t loop = 0, copy;
    moec_dim sizes[MOEC_MAX_RANK];
    for (uint32_t i = 0; i < g->n_axes; i++) {
      bool joins = i + 1 < g->n_axes && (g->merge >> i & 1);
      size = moec_dim_known(size) ? moec_dim_mul(p->m, size, g->axes[i]) : g->axes[i];
      if (joins) continue;
      copy = 0;
      for (uint32_t b = 0; b < loop; b++) copy += moec_dim_eq(sizes[b], size);
      cutter c = {.p = p, .size = size, .cuts = &g->cuts[loop], .seen = MOEC_NEW_ARRAY(p->arena, bool, n_nodes)};
      bool whole = g->cuts[loop].n == 0 && g->cuts[loop].modulus <= 1; /* an axis is cut once */
      c.var = moec_kx_var(p, MOEC_KVAR_LOOP, moec_dim_const(p->m, 0), size, copy);
      for (size_t w = 0; whole && w < loops->n_nests; w++)
        for (size_t t = 0; t < loops->nests[w].n_stores; t++) find_cuts(&c, loops->nests[w].stores[t].value);
      changed |= c.changed;
      sizes[loop++] = size;
      size = (moec_dim){0};
    }
  }
  return changed;
}
