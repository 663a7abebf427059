/* The iteration space: rows in parallel, below them loops over column axes. */
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

/* The rows that an element of output |o| sums up, 0: it is no such sum; and the value that has one element a row. */
static int64_t chunk_of(const moec_graph *fn, size_t o) {
  moec_node n = moec_def(fn, fn->outputs[o]);
  return moec_op_of(fn, n) == MOEC_OP_BLOCK_SUM ? MOEC_ATTRS(fn, n, BLOCK_SUM)->size : 0;
}

static moec_value element_of(const moec_graph *fn, size_t o) {
  return chunk_of(fn, o) ? moec_in(fn, moec_def(fn, fn->outputs[o]), 0) : fn->outputs[o];
}

static bool same_axes(const moec_kgroup *a, const moec_kgroup *b) {
  if (a->n_axes != b->n_axes) return false;
  for (uint32_t i = 0; i < a->n_axes; i++)
    if (!moec_dim_eq(a->axes[i], b->axes[i])) return false;
  return true;
}

void moec_kgroup_reset(moec_module *m, moec_kgroup *g) {
  g->n_loops = 0;
  for (uint32_t i = 0; i < g->n_axes; i++) {
    bool joined = i > 0 && (g->merge >> (i - 1) & 1);
    moec_kaxis *last = &g->loops[g->n_loops - joined];
    if (joined)
      last->size = moec_dim_mul(m, last->size, g->axes[i]);
    else
      *last = (moec_kaxis){.size = g->axes[i], .axis = g->n_loops++, .modulus = 1};
  }
}

bool moec_kspace_init(moec_kspace *s, moec_arena *a, const moec_graph *fn, moec_dim rows) {
  *s = (moec_kspace){.row_kind = MOEC_KVAR_ROW, .rows = rows};
  s->group_of = MOEC_NEW_ARRAY(a, uint32_t, fn->n_outputs);
  s->row_axes = MOEC_NEW_ARRAY(a, uint32_t, fn->n_outputs);
  for (size_t o = 0; o < fn->n_outputs; o++) {
    moec_type_info t = moec_ty(fn, element_of(fn, o));
    int64_t n = match_rows(fn->m, t, rows), chunk = chunk_of(fn, o);
    if (chunk && s->chunk && chunk != s->chunk) return false;
    if (chunk) s->chunk = chunk, s->row_kind = MOEC_KVAR_CHUNK_ROW;
    if (n < 0) return false;
    /* match_rows counts axes of size 1 behind the rows, too */
    if (chunk) n = MOEC_ATTRS(fn, moec_def(fn, fn->outputs[o]), BLOCK_SUM)->leading;
    s->row_axes[o] = (uint32_t)n;
    moec_kgroup g = {0};
    for (uint32_t i = (uint32_t)n; i < t.rank; i++)
      if (!moec_dim_is(fn->m, t.dims[i], 1)) g.axes[g.n_axes++] = t.dims[i];
    g.merge = g.n_axes ? (1u << (g.n_axes - 1)) - 1 : 0;
    moec_kgroup_reset(fn->m, &g);
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

/* Blocks of rows, |chunk| each but the last. */
static moec_dim chunks_of(moec_module *m, const moec_kspace *s) {
  return moec_dim_ceildiv(m, s->rows, moec_dim_const(m, s->chunk));
}

/* ---- evaluation ----------------------------------------------------------------------------- */

/* A position in one group's columns while pieces of its axes are chosen. */
typedef struct cursor {
  moec_kspace *s;
  moec_keval *ev;
  moec_kloops *out;
  uint32_t group;
  moec_kx at[MOEC_MAX_RANK]; /* coordinates in the loops */
  uint32_t n_vars, vars[MOEC_MAX_RANK];
} cursor;

static moec_knest *nest_for(cursor *c) {
  moec_kloops *l = c->out;
  for (size_t i = 0; i < l->n_nests; i++)
    if (l->nests[i].n_vars == c->n_vars &&
        memcmp(l->nests[i].vars, c->vars, c->n_vars * sizeof *c->vars) == 0)
      return &l->nests[i];
  moec_knest n = {.n_vars = c->n_vars};
  memcpy(n.vars, c->vars, c->n_vars * sizeof *c->vars);
  MOEC_PUSH(c->ev->p->arena, l->nests, l->n_nests, l->cap_nests, n);
  return &l->nests[l->n_nests - 1];
}

/* The coordinate in a merged axis, from those of its loops. */
static moec_kx merged_coordinate(cursor *c, uint32_t axis) {
  moec_kpool *p = c->ev->p;
  const moec_kgroup *g = &c->s->groups[c->group];
  moec_kx at = moec_kx_i64(p, 0);
  for (uint32_t i = 0; i < g->n_loops; i++)
    if (g->loops[i].axis == axis)
      at = moec_kx_add(p, moec_kx_scale(p, at, g->loops[i].size), c->at[i]);
  return at;
}

/* The full index of output |o|: rows, then the axes that each merged axis stands for. */
static void output_index(cursor *c, size_t o, moec_kcoord *index) {
  moec_kpool *p = c->ev->p;
  moec_type_info t = moec_ty(c->ev->fn, element_of(c->ev->fn, o));
  const moec_kgroup *g = &c->s->groups[c->group];
  moec_kx row = c->out->row;
  if (c->s->row_kind == MOEC_KVAR_BLOCK)
    row = moec_kx_add(p, row,
                      moec_kx_var(p, MOEC_KVAR_LANE, moec_dim_const(p->m, 0),
                                  moec_dim_const(p->m, MOEC_KERNEL_LANES), 0));
  uint32_t rows = c->s->row_axes[o], axis = 0, merged = 0;
  moec_kx_unflatten(p, (moec_kcoord){row, {0}}, (moec_type_info){t.dtype, rows, t.dims}, index);
  for (uint32_t i = rows; i < t.rank;) {
    uint32_t end = i; /* axes i .. end are merged; those of size 1 may stand between them */
    if (moec_dim_is(p->m, t.dims[i], 1)) {
      index[i++] = (moec_kcoord){moec_kx_i64(p, 0), {0}};
      continue;
    }
    for (bool more = true; more && end < t.rank; end++) {
      if (moec_dim_is(p->m, t.dims[end], 1)) continue;
      more = axis + 1 < g->n_axes && (g->merge >> axis & 1);
      axis++;
    }
    moec_kx_unflatten(p, (moec_kcoord){merged_coordinate(c, merged++), {0}},
                      (moec_type_info){t.dtype, end - i, t.dims + i}, index + i);
    i = end;
  }
}

static void eval_outputs(cursor *c) {
  const moec_graph *fn = c->ev->fn;
  for (size_t o = 0; o < fn->n_outputs && !c->ev->p->error; o++) {
    if (c->s->group_of[o] != c->group) continue;
    moec_kcoord index[MOEC_MAX_RANK];
    output_index(c, o, index);
    moec_kstore st = {.buffer = c->ev->k->n_in + (uint32_t)o, .of_chunk = chunk_of(fn, o) != 0};
    st.value = moec_keval_at(c->ev, element_of(fn, o), index);
    if (st.of_chunk) {
      st.value = moec_kx_reduce(c->ev->p, MOEC_OP_REDUCE_SUM, c->out->row, st.value);
      moec_kcoord first = {moec_kx_chunk(c->ev->p), {0}}; /* one row axis is left */
      uint32_t rows = c->s->row_axes[o], columns = moec_ty(fn, element_of(fn, o)).rank - rows;
      memmove(index + 1, index + rows, columns * sizeof *index);
      index[0] = first;
    }
    st.index = moec_kx_flatten(c->ev->p, index, moec_ty(fn, fn->outputs[o])).e;
    moec_knest *n = nest_for(c);
    MOEC_PUSH(c->ev->p->arena, n->stores, n->n_stores, n->cap_stores, st);
  }
}

/* The iterations of loop |k|, or of each of its pieces where those are of one size, that of the first. */
static moec_dim trips(moec_module *m, const moec_kaxis *x) {
  for (uint32_t i = 0; i < x->n_cuts; i++) {
    moec_dim end = i + 1 < x->n_cuts ? x->cuts[i + 1] : x->size;
    if (!moec_dim_eq(moec_dim_sub(m, end, x->cuts[i]), x->cuts[0])) return x->size;
  }
  return x->n_cuts ? x->cuts[0] : x->size;
}

moec_kx moec_kloop_var(moec_kpool *p, const moec_kgroup *g, uint32_t k, moec_dim lo, moec_dim hi) {
  uint32_t copy = 0; /* of whole ranges: the loops of this size outside; other pieces are not shared between loops */
  moec_dim n = trips(p->m, &g->loops[k]);
  bool whole = moec_dim_is(p->m, lo, 0) && moec_dim_eq(hi, n);
  for (uint32_t i = 0; i < k; i++) copy += moec_dim_eq(trips(p->m, &g->loops[i]), n);
  if (!whole) copy = MOEC_MAX_RANK + k;
  return moec_kx_var(p, MOEC_KVAR_LOOP, lo, hi, copy);
}

/* Goes through the pieces of loop |k| and of those inside it. Pieces of one size are one loop, which handles an element
 * of each: what they have in common, as the halves of a rotation have, is there once. */
static void pieces(cursor *c, uint32_t k) {
  moec_kpool *p = c->ev->p;
  moec_kgroup *g = &c->s->groups[c->group];
  if (k == g->n_loops) {
    eval_outputs(c);
    return;
  }
  const moec_kaxis *x = &g->loops[k];
  moec_dim mod = moec_dim_const(p->m, x->modulus), zero = moec_dim_const(p->m, 0), lo = zero, n = trips(p->m, x);
  bool alike = !moec_dim_eq(n, x->size);
  for (uint32_t i = 0; i <= x->n_cuts; i++) {
    moec_dim hi = i < x->n_cuts ? x->cuts[i] : x->size, first = alike ? lo : zero;
    moec_kx var = alike ? moec_kloop_var(p, g, k, zero, n)
                        : moec_kloop_var(p, g, k, moec_dim_floordiv(p->m, lo, mod), moec_dim_floordiv(p->m, hi, mod));
    c->vars[c->n_vars++] = moec_kx_get(p, var)->id;
    g->vars |= moec_kx_get(p, var)->vars;
    for (int64_t r = 0; r < x->modulus; r++) {
      moec_kx offset = moec_kx_add(p, moec_kx_size(p, first), moec_kx_i64(p, r));
      c->at[k] = moec_kx_add(p, moec_kx_scale(p, var, mod), offset);
      pieces(c, k + 1);
    }
    c->n_vars--;
    lo = hi;
  }
}

void moec_kspace_eval(moec_kspace *s, moec_keval *ev, moec_kloops *out) {
  moec_kpool *p = ev->p;
  moec_dim zero = moec_dim_const(p->m, 0);
  if (s->chunk) moec_kx_var(p, MOEC_KVAR_CHUNK, zero, chunks_of(p->m, s), 0); /* before what depends on it */
  *out = (moec_kloops){.row = moec_kx_var(p, s->row_kind, zero, s->rows, 0)};
  for (uint32_t k = 0; k < s->n_groups; k++) {
    moec_kgroup *g = &s->groups[k];
    cursor c = {.s = s, .ev = ev, .out = out, .group = k};
    g->vars = 0;
    if (s->row_kind == MOEC_KVAR_BLOCK) { /* rows themselves are the only columns */
      moec_kx lane =
          moec_kx_var(p, MOEC_KVAR_LANE, zero, moec_dim_const(p->m, MOEC_KERNEL_LANES), 0);
      c.vars[c.n_vars++] = moec_kx_get(p, lane)->id;
    }
    pieces(&c, 0);
  }
}
