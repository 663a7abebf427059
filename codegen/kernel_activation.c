/* Kernels that compute each element from one or two elements of the same row of their operand, and nothing else:
 *
 *   b1[row * 768 + c1] = f(b0[row * 1536 + c1], b0[row * 1536 + c1 + 768])     halves
 *   b1[row] = f(b0[row * 2], b0[row * 2 + 1])                                  neighbours, of rows in one piece
 *   b1[row] = f(b0[row])                                                       each */
#include "codegen/kernel_activation.h"

/* ---- indices as sums -------------------------------------------------------------------------- */

/* The coefficient of |atom| in index |x|. */
static moec_dim coefficient(const moec_kernel *k, moec_kx x, moec_kx atom) {
  const moec_kx_node *n = &k->nodes[x.i];
  if (x.i == atom.i) return moec_dim_const(k->m, 1);
  for (uint32_t i = 0; n->kind == MOEC_KX_SUM && i < n->n_args; i++)
    if (n->args[i].i == atom.i) return n->coeffs[i];
  return moec_dim_const(k->m, 0);
}

static uint32_t n_atoms(const moec_kernel *k, moec_kx x) {
  const moec_kx_node *n = &k->nodes[x.i];
  return n->kind == MOEC_KX_SUM ? n->n_args : 1;
}
static moec_kx atom_of(const moec_kernel *k, moec_kx x, uint32_t i) {
  const moec_kx_node *n = &k->nodes[x.i];
  return n->kind == MOEC_KX_SUM ? n->args[i] : x;
}
static moec_dim constant_of(const moec_kernel *k, moec_kx x) {
  const moec_kx_node *n = &k->nodes[x.i];
  return n->kind == MOEC_KX_SUM ? n->dim : moec_dim_const(k->m, 0);
}

/* |load| - by * |store| where that is a number, and in no atom but |but| anything else; -1: it isn't. */
static int64_t distance(const moec_kernel *k, moec_kx load, moec_kx store, int64_t by, moec_kx but) {
  moec_dim factor = moec_dim_const(k->m, by);
  int64_t d;
  if (n_atoms(k, load) != n_atoms(k, store)) return -1;
  for (uint32_t i = 0; i < n_atoms(k, store); i++) {
    moec_kx atom = atom_of(k, store, i);
    moec_dim want = coefficient(k, store, atom);
    if (atom.i != but.i) want = moec_dim_mul(k->m, want, factor);
    if (!moec_dim_eq(coefficient(k, load, atom), want)) return -1;
  }
  moec_dim from = moec_dim_mul(k->m, constant_of(k, store), factor);
  return moec_dim_is_const(k->m, moec_dim_sub(k->m, constant_of(k, load), from), &d) && d >= 0 ? d : -1;
}

/* The columns of a result whose index is row * columns + column, and that column; 0: it is another. */
static int64_t columns_of(const moec_kernel *k, moec_kx store, moec_kx *column) {
  int64_t columns;
  if (n_atoms(k, store) != 2 || !moec_dim_is(k->m, constant_of(k, store), 0)) return 0;
  for (uint32_t i = 0; i < 2; i++) {
    moec_kx row = atom_of(k, store, !i), c = atom_of(k, store, i);
    const moec_kx_node *r = &k->nodes[row.i], *n = &k->nodes[c.i];
    if (r->kind != MOEC_KX_VAR || k->vars[r->id].kind != MOEC_KVAR_ROW) continue;
    if (n->kind != MOEC_KX_VAR || k->vars[n->id].kind != MOEC_KVAR_LOOP) continue;
    const moec_kvar *v = &k->vars[n->id];
    if (!moec_dim_is(k->m, v->lo, 0) || !moec_dim_is_const(k->m, v->hi, &columns)) continue;
    if (!moec_dim_is(k->m, coefficient(k, store, row), columns) || !moec_dim_is(k->m, coefficient(k, store, c), 1))
      continue;
    *column = c;
    return columns;
  }
  return 0;
}

int moec_kactivation_operand(const moec_kernel *k, const moec_kactivation *a, moec_kx load) {
  const moec_kx_node *n = &k->nodes[load.i];
  moec_kx index = n->args[0], column = {0};
  if (n->id != 0 || n->n_args != 1) return -1;
  if (a->form == MOEC_ACTIVATION_EACH) return distance(k, index, a->store->index, 1, column) == 0 ? 0 : -1;
  if (a->form == MOEC_ACTIVATION_NEIGHBOURS) {
    int64_t d = distance(k, index, a->store->index, 2, column);
    return d == 0 || d == 1 ? (int)d : -1;
  }
  int64_t columns = columns_of(k, a->store->index, &column);
  int64_t d = columns ? distance(k, index, a->store->index, 2, column) : -1;
  return d == 0 ? 0 : d > 0 && d == columns ? 1 : -1;
}

/* ---- the kernel ------------------------------------------------------------------------------- */

/* Whether |body| is loops around names and one store, which is found. */
static bool find_store(const moec_kstmts *body, moec_kactivation *a) {
  for (size_t i = 0; i < body->n; i++) {
    const moec_kstmt *st = &body->v[i];
    bool store = st->kind == MOEC_KSTMT_STORE, loop = st->kind == MOEC_KSTMT_LOOP;
    if (!store && !loop && st->kind != MOEC_KSTMT_LET) return false;
    if (store && a->store) return false;
    if (store) a->store = st;
    if (loop && !find_store(&st->body, a)) return false;
  }
  return true;
}

/* Whether |x| is computed from elements of the form alone; what it needs is noted. */
static bool fits(const moec_kernel *k, moec_kactivation *a, moec_kx x) {
  const moec_kx_node *n = &k->nodes[x.i];
  if (a->needs[x.i]) return true;
  a->needs[x.i] = true;
  if (n->kind == MOEC_KX_LOAD) return moec_kactivation_operand(k, a, x) >= 0;
  if (n->kind == MOEC_KX_NUM || n->kind == MOEC_KX_INT) return true;
  if (n->kind != MOEC_KX_APPLY) return false;
  for (uint32_t i = 0; i < n->n_args; i++)
    if (!fits(k, a, n->args[i])) return false;
  return true;
}

bool moec_kernel_activation(moec_arena *arena, const moec_kernel *k, moec_kactivation *out) {
  moec_kactivation a = {0};
  if (k->attention || k->chunk || k->n_temps || k->n_in != 1 || k->n_out != 1 || k->n_bufs != 2) return false;
  if (k->bufs[0].dtype != MOEC_BF16 || k->bufs[1].dtype != MOEC_BF16) return false;
  if (!find_store(&k->body, &a) || !a.store) return false;
  for (int form = 0; form < MOEC_ACTIVATION_FORMS; form++) {
    a.form = (moec_activation_form)form;
    a.needs = MOEC_NEW_ARRAY(arena, bool, k->n_nodes + 1);
    if (!fits(k, &a, a.store->e)) continue;
    *out = a;
    return true;
  }
  return false;
}
