/* How expressions are used: reference counts, and which costly ones several loops share. */
#include "codegen/kernel_build.h"

typedef struct walk {
  moec_kpool *p;
  moec_kuses *u;
  uint32_t *seen, stamp; /* by expression: the last walk that came by */
  uint32_t *var;         /* by expression: 1 + the loop variable whose loops are counted */
  uint32_t *loops;       /* by expression: number of loops over it that need the expression */
} walk;

static bool first_visit(walk *w, moec_kx e) {
  if (w->seen[e.i] == w->stamp) return false;
  w->seen[e.i] = w->stamp;
  return true;
}

static void count_uses(walk *w, moec_kx e) {
  if (!e.i) return;
  w->u->count[e.i]++;
  if (!first_visit(w, e)) return;
  const moec_kx_node *n = moec_kx_get(w->p, e);
  if (n->kind == MOEC_KX_REDUCE)
    MOEC_PUSH(w->p->arena, w->u->reduces, w->u->n_reduces, w->u->cap_reduces, e);
  for (uint32_t i = 0; i < n->n_args; i++) count_uses(w, n->args[i]);
}

/* One more loop over |var| needs what |e| is made of. */
static void count_loop(walk *w, moec_kx e, uint32_t var) {
  const moec_kx_node *n = moec_kx_get(w->p, e);
  if (!(n->vars >> var & 1) || !first_visit(w, e)) return;
  if (!w->var[e.i]) w->var[e.i] = var + 1;
  if (w->var[e.i] == var + 1) w->loops[e.i]++;
  if (n->kind == MOEC_KX_REDUCE) return;
  for (uint32_t i = 0; i < n->n_args; i++) count_loop(w, n->args[i], var);
}

/* Marks the outermost shared expressions. */
static void mark_kept(walk *w, moec_kx e, uint32_t var) {
  const moec_kx_node *n = moec_kx_get(w->p, e);
  if (!(n->vars >> var & 1) || !first_visit(w, e) || n->kind == MOEC_KX_REDUCE) return;
  if (w->loops[e.i] > 1 && w->var[e.i] == var + 1 && n->cost >= MOEC_KX_COSTLY) {
    w->u->keep[e.i] = true;
    return;
  }
  for (uint32_t i = 0; i < n->n_args; i++) mark_kept(w, n->args[i], var);
}

/* ---- reductions that join a loop over columns ----------------------------------------------- */

static bool has_reduction(walk *w, moec_kx e) {
  const moec_kx_node *n = moec_kx_get(w->p, e);
  if (!e.i || !first_visit(w, e)) return false;
  if (n->kind == MOEC_KX_REDUCE) return true;
  for (uint32_t i = 0; i < n->n_args; i++)
    if (has_reduction(w, n->args[i])) return true;
  return false;
}

/* One loop over columns, which waits for no reduction. */
static bool is_free(walk *w, const moec_knest *nest) {
  w->stamp++;
  for (size_t k = 0; k < nest->n_stores; k++)
    if (has_reduction(w, nest->stores[k].value) || has_reduction(w, nest->stores[k].index)) return false;
  return nest->n_vars == 1;
}

/* Reductions over the variable of such a loop that wait for none either. */
static void find_joining(walk *w, const moec_knest *nests, size_t n_nests) {
  for (size_t i = 0; i < n_nests; i++) {
    if (!is_free(w, &nests[i])) continue;
    for (size_t k = 0; k < w->u->n_reduces; k++) {
      const moec_kx_node *r = moec_kx_get(w->p, w->u->reduces[k]);
      w->stamp++;
      if (r->id == nests[i].vars[0] && !has_reduction(w, r->args[0])) w->u->joins[w->u->reduces[k].i] = true;
    }
  }
}

/* ---- what loops share ----------------------------------------------------------------------- */

/* Calls |visit| for what each loop computes; |row|: see moec_kuses_find. Reductions of one level over one variable
 * share a loop. */
static void each_loop(walk *w, const moec_knest *nests, size_t n_nests,
                      moec_kx row, void (*visit)(walk *, moec_kx, uint32_t)) {
  const moec_kuses *u = w->u;
  for (size_t i = 0; i < u->n_reduces; i++) {
    const moec_kx_node *r = moec_kx_get(w->p, u->reduces[i]);
    if (row.i && r->id == moec_kx_get(w->p, row)->id) continue; /* over rows: its nest is the loop */
    if (u->joins[u->reduces[i].i]) continue;
    for (size_t k = 0; k < u->n_reduces; k++) {
      const moec_kx_node *s = moec_kx_get(w->p, u->reduces[k]);
      if (s->id != r->id || s->level != r->level || u->joins[u->reduces[k].i]) continue;
      if (k < i) break; /* visited with that one */
      if (k == i) w->stamp++;
      visit(w, s->args[0], s->id);
    }
  }
  for (size_t i = 0; i < n_nests; i++) {
    w->stamp++;
    for (size_t k = 0; nests[i].n_vars && k < nests[i].n_stores; k++)
      visit(w, moec_kstore_operand(w->p, &nests[i].stores[k]), nests[i].vars[nests[i].n_vars - 1]);
    for (size_t k = 0; nests[i].n_vars == 1 && k < u->n_reduces; k++) {
      const moec_kx_node *r = moec_kx_get(w->p, u->reduces[k]);
      if (u->joins[u->reduces[k].i] && r->id == nests[i].vars[0]) visit(w, r->args[0], r->id);
    }
  }
}

void moec_kuses_find(moec_kuses *u, moec_kpool *p, const moec_knest *nests, size_t n_nests, moec_kx row) {
  *u = (moec_kuses){.count = MOEC_NEW_ARRAY(p->arena, uint32_t, p->n),
                    .keep = MOEC_NEW_ARRAY(p->arena, bool, p->n),
                    .joins = MOEC_NEW_ARRAY(p->arena, bool, p->n)};
  walk w = {.p = p, .u = u, .stamp = 1, .seen = MOEC_NEW_ARRAY(p->arena, uint32_t, p->n)};
  w.var = MOEC_NEW_ARRAY(p->arena, uint32_t, p->n);
  w.loops = MOEC_NEW_ARRAY(p->arena, uint32_t, p->n);
  for (size_t i = 0; i < n_nests; i++)
    for (size_t k = 0; k < nests[i].n_stores; k++) {
      count_uses(&w, nests[i].stores[k].value);
      count_uses(&w, nests[i].stores[k].index);
    }
  if (!row.i) find_joining(&w, nests, n_nests); /* the loops of a chunk are many */
  each_loop(&w, nests, n_nests, row, count_loop);
  each_loop(&w, nests, n_nests, row, mark_kept);
}
