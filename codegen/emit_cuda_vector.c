/* Which loads and stores of a loop are neighbours, so that a thread takes several at once:
 *
 *   b0[row * 2048 + c1]      elements c1 .. c1 + 7, where c1 counts from a multiple of 8 in steps of 8
 *   b1[c1 + t0 * 64]         the rest of the index is a multiple of 8, whatever t0 is
 *   b2[c1 < 64 ? c1 : 0]     not: read one after the other
 *
 * Plan buffers lie at multiples of 16 bytes, so that the place of an element is that of its index. */
#include "codegen/emit_cuda.h"

enum { MOST = 8, BYTES = 16 };

/* ---- multiples -------------------------------------------------------------------------------- */

static bool dim_multiple(const moec_kernel *k, moec_dim d, int64_t v) {
  if (!moec_dim_known(d)) return false;
  for (uint32_t i = 0; i < moec_dim_n_terms(k->m, d); i++)
    if (moec_dim_get_term(k->m, d, i).coeff % v) return false;
  return true;
}

static bool depends(const moec_kernel *k, moec_kx x, uint32_t var) { return k->nodes[x.i].vars >> var & 1; }

/* Whether |x| is a multiple of |v|, where the variable |var|, if it is in |x| just so, is. */
static bool multiple(const moec_kernel *k, moec_kx x, uint32_t var, int64_t v) {
  const moec_kx_node *n = &k->nodes[x.i];
  if (v == 1) return true;
  if (n->kind == MOEC_KX_VAR) return n->id == var;
  if (n->kind != MOEC_KX_SUM || !dim_multiple(k, n->dim, v)) return false;
  for (uint32_t i = 0; i < n->n_args; i++)
    if (!dim_multiple(k, n->coeffs[i], v) && !multiple(k, n->args[i], var, v)) return false;
  return true;
}

/* The factor of |var| in |x|, where |x| depends on it in no other way; 0: it isn't known, or 0. */
static int64_t factor(const moec_kernel *k, moec_kx x, uint32_t var) {
  const moec_kx_node *n = &k->nodes[x.i];
  int64_t found = 0;
  if (n->kind == MOEC_KX_VAR) return n->id == var;
  for (uint32_t i = 0; n->kind == MOEC_KX_SUM && i < n->n_args; i++) {
    const moec_kx_node *arg = &k->nodes[n->args[i].i];
    bool itself = arg->kind == MOEC_KX_VAR && arg->id == var;
    if (itself ? !moec_dim_is_const(k->m, n->coeffs[i], &found) : depends(k, n->args[i], var)) return 0;
  }
  return found;
}

/* Whether condition |x| is the same for v neighbours: c + a < b, c + a >= b, a <= c + b, a > c + b. */
static bool same_for_all(const moec_kernel *k, moec_kx x, uint32_t var, uint32_t v) {
  const moec_kx_node *n = &k->nodes[x.i];
  if (!depends(k, x, var)) return true;
  if (n->kind != MOEC_KX_APPLY) return false;
  if (n->op == MOEC_OP_AND || n->op == MOEC_OP_OR || n->op == MOEC_OP_NOT) {
    for (uint32_t i = 0; i < n->n_args; i++)
      if (!same_for_all(k, n->args[i], var, v)) return false;
    return true;
  }
  bool left = n->op == MOEC_OP_LT || n->op == MOEC_OP_GE, right = n->op == MOEC_OP_LE || n->op == MOEC_OP_GT;
  if (!left && !right) return false;
  moec_kx with = n->args[right], without = n->args[left];
  return !depends(k, without, var) && factor(k, with, var) == 1 && multiple(k, with, var, v) &&
         multiple(k, without, var, v);
}

bool moec_vector_load(const moec_kernel *k, moec_kx x, uint32_t var, uint32_t v) {
  const moec_kx_node *n = &k->nodes[x.i];
  return factor(k, n->args[0], var) == 1 && multiple(k, n->args[0], var, v) &&
         (n->n_args < 2 || same_for_all(k, n->args[1], var, v));
}

bool moec_vector_store(const moec_kernel *k, const moec_kstmt *st, uint32_t var, uint32_t v) {
  return factor(k, st->index, var) == 1 && multiple(k, st->index, var, v);
}

/* The coefficient of |arg| in sum |x|; {0}: it isn't there. */
static moec_dim coefficient(const moec_kx_node *x, moec_kx arg) {
  for (uint32_t i = 0; i < x->n_args; i++)
    if (x->args[i].i == arg.i) return x->coeffs[i];
  return (moec_dim){0};
}

static bool is_var(const moec_kernel *k, moec_kx x, uint32_t var) {
  return k->nodes[x.i].kind == MOEC_KX_VAR && k->nodes[x.i].id == var;
}

bool moec_vector_again(const moec_kernel *k, moec_kx x, uint32_t var, moec_kx y, uint32_t other, int64_t *by) {
  const moec_kx_node *a = &k->nodes[x.i], *b = &k->nodes[y.i];
  if (a->id != b->id || a->n_args > 1 || b->n_args > 1) return false;
  a = &k->nodes[a->args[0].i], b = &k->nodes[b->args[0].i];
  if (a->kind != MOEC_KX_SUM || b->kind != MOEC_KX_SUM || a->n_args != b->n_args) return false;
  for (uint32_t i = 0; i < a->n_args; i++) {
    moec_dim c = coefficient(b, a->args[i]);
    if (!is_var(k, a->args[i], var) && (!moec_dim_known(c) || !moec_dim_eq(c, a->coeffs[i]))) return false;
  }
  moec_dim from = moec_dim_add(k->m, a->dim, k->vars[var].lo), to = moec_dim_add(k->m, b->dim, k->vars[other].lo);
  return moec_dim_is_const(k->m, moec_dim_sub(k->m, from, to), by);
}

/* ---- the loads of a loop ------------------------------------------------------------------------ */

typedef struct finder {
  moec_arena *a;
  const moec_kernel *k;
  uint32_t var;
  bool *seen;
  moec_kx *loads;
  size_t n, cap;
} finder;

static void look(finder *f, moec_kx x) {
  const moec_kx_node *n = &f->k->nodes[x.i];
  if (!x.i || f->seen[x.i] || !depends(f->k, x, f->var) || n->kind == MOEC_KX_REDUCE) return;
  f->seen[x.i] = true;
  if (n->kind == MOEC_KX_LOAD) MOEC_PUSH(f->a, f->loads, f->n, f->cap, x);
  for (uint32_t i = 0; i < n->n_args; i++) look(f, n->args[i]);
}

size_t moec_vector_loads(moec_arena *a, const moec_kernel *k, const moec_kstmt *loop, moec_kx **out) {
  finder f = {.a = a, .k = k, .var = loop->id, .seen = MOEC_NEW_ARRAY(a, bool, k->n_nodes + 1)};
  for (size_t i = 0; i < loop->body.n; i++) {
    const moec_kstmt *st = &loop->body.v[i];
    if (st->kind == MOEC_KSTMT_RECALL) f.seen[st->e.i] = true;
    else if (st->kind == MOEC_KSTMT_GATHER) look(&f, k->nodes[st->e.i].args[0]);
    else if (st->kind != MOEC_KSTMT_LOOP) look(&f, st->e);
    if (st->kind == MOEC_KSTMT_STORE) look(&f, st->index);
  }
  for (uint32_t i = 0; i < loop->n_accs; i++) look(&f, k->nodes[loop->accs[i].i].args[0]);
  *out = f.loads;
  return f.n;
}

/* ---- how many at a time -------------------------------------------------------------------------- */

/* Accesses that become wide with |v|, and those that it spreads over more lines than they take one by one. */
typedef struct tally {
  uint32_t wide, narrow, narrowest;
} tally;

static void count(tally *t, const moec_kernel *k, uint32_t buffer, int64_t step, bool wide) {
  uint32_t bytes = (uint32_t)moec_dtype_get(k->bufs[buffer].dtype)->bytes;
  if (wide && bytes < t->narrowest) t->narrowest = bytes;
  t->wide += wide;
  t->narrow += !wide && step == 1;
}

/* A store of more than 16 bytes leaves gaps between those of neighbouring threads; what a load leaves the next finds in
 * the cache. */
static bool stores_fit(const moec_kernel *k, const moec_kstmt *loop, uint32_t v) {
  for (size_t i = 0; i < loop->body.n; i++) {
    const moec_kstmt *st = &loop->body.v[i];
    if (st->kind == MOEC_KSTMT_STORE && moec_vector_store(k, st, loop->id, v) &&
        v * moec_dtype_get(k->bufs[st->id].dtype)->bytes > BYTES)
      return false;
  }
  return true;
}

static void tally_loop(moec_arena *a, const moec_kernel *k, const moec_kstmt *loop, uint32_t v, tally *t) {
  moec_kx *loads;
  size_t n = moec_vector_loads(a, k, loop, &loads);
  for (size_t i = 0; i < n; i++) {
    const moec_kx_node *x = &k->nodes[loads[i].i];
    count(t, k, x->id, factor(k, x->args[0], loop->id), moec_vector_load(k, loads[i], loop->id, v));
  }
  for (size_t i = 0; i < loop->body.n; i++) {
    const moec_kstmt *st = &loop->body.v[i];
    if (st->kind == MOEC_KSTMT_STORE)
      count(t, k, st->id, factor(k, st->index, loop->id), moec_vector_store(k, st, loop->id, v));
  }
}

static bool range_multiple(const moec_kernel *k, const moec_kvar *x, uint32_t v) {
  if (x->kind == MOEC_KVAR_ROW) return dim_multiple(k, k->range, v);
  return x->kind == MOEC_KVAR_LOOP && dim_multiple(k, x->lo, v) && dim_multiple(k, x->hi, v);
}

uint32_t moec_vector_of(moec_arena *a, const moec_kernel *k, const moec_kstmt *const *loops, size_t n, uint32_t var) {
  for (uint32_t v = MOST; v > 1; v /= 2) {
    tally t = {.narrowest = BYTES};
    bool fit = true;
    if (!range_multiple(k, &k->vars[var], v)) continue;
    for (size_t i = 0; i < n; i++) {
      if (loops[i]->id != var) continue;
      if (!loops[i]->simd) return 1;
      tally_loop(a, k, loops[i], v, &t);
      fit = fit && (k->chunk || stores_fit(k, loops[i], v)); /* chunks have few rows on their way: wide loads */
    }
    if (fit && t.wide && t.wide >= t.narrow && v * t.narrowest <= BYTES) return v;
  }
  return 1;
}
