/* Sizes at run time: symbols from the shapes of inputs, then the checks. */
#include "base/size.h"
#include "ir/interp_internal.h"

/* ---- which symbols a dim has -------------------------------------------------------------- */

static bool atom_bound(const moec_module *m, uint32_t atom, const int64_t *symbols) {
  moec_dim_atom a = moec_dim_get_atom(m, atom);
  if (a.op == MOEC_DIM_SYMBOL) return symbols[a.symbol] >= 0;
  return moec_dim_bound(m, a.a, symbols) && moec_dim_bound(m, a.b, symbols);
}

bool moec_dim_bound(const moec_module *m, moec_dim d, const int64_t *symbols) {
  if (!moec_dim_known(d)) return false;
  for (uint32_t i = 0; i < moec_dim_n_terms(m, d); i++) {
    moec_dim_term t = moec_dim_get_term(m, d, i);
    for (uint32_t k = 0; k < t.n_atoms; k++)
      if (!atom_bound(m, t.atoms[k], symbols)) return false;
  }
  return true;
}

static bool has_symbol(const moec_module *m, moec_dim d, uint32_t symbol) {
  for (uint32_t i = 0; moec_dim_known(d) && i < moec_dim_n_terms(m, d); i++) {
    moec_dim_term t = moec_dim_get_term(m, d, i);
    for (uint32_t k = 0; k < t.n_atoms; k++) {
      moec_dim_atom a = moec_dim_get_atom(m, t.atoms[k]);
      if (a.op == MOEC_DIM_SYMBOL ? a.symbol == symbol
                                  : has_symbol(m, a.a, symbol) || has_symbol(m, a.b, symbol))
        return true;
    }
  }
  return false;
}

/* Whether |d| is a linear function of its only symbol that is not bound. */
static bool one_unknown(const moec_module *m, moec_dim d, const int64_t *symbols, uint32_t *out) {
  bool found = false;
  for (uint32_t i = 0; moec_dim_known(d) && i < moec_dim_n_terms(m, d); i++) {
    moec_dim_term t = moec_dim_get_term(m, d, i);
    bool in_term = false;
    for (uint32_t k = 0; k < t.n_atoms; k++) {
      if (atom_bound(m, t.atoms[k], symbols)) continue;
      moec_dim_atom a = moec_dim_get_atom(m, t.atoms[k]);
      if (a.op != MOEC_DIM_SYMBOL || in_term || (found && a.symbol != *out)) return false;
      *out = a.symbol;
      in_term = found = true;
    }
  }
  return found;
}

static bool is_symbol(const moec_module *m, moec_dim d) {
  if (!moec_dim_known(d) || moec_dim_n_terms(m, d) != 1) return false;
  moec_dim_term t = moec_dim_get_term(m, d, 0);
  return t.coeff == 1 && t.n_atoms == 1 && moec_dim_get_atom(m, t.atoms[0]).op == MOEC_DIM_SYMBOL;
}

/* ---- solving ------------------------------------------------------------------------------ */

/* Binds the unknown of |d| == |value| where there is exactly one; sets *progress. A value that no
 * size fits binds nothing: the checks report it. */
static moec_status *solve(const moec_module *m, moec_dim d, int64_t value, int64_t *symbols,
                          bool *progress) {
  uint32_t x = 0;
  int64_t rest, scale, room;
  if (!one_unknown(m, d, symbols, &x)) return NULL;
  symbols[x] = 0;
  moec_status *e = moec_dim_eval(m, d, symbols, &rest);
  symbols[x] = 1;
  if (!e) e = moec_dim_eval(m, d, symbols, &scale);
  symbols[x] = -1;
  if (e) return e;
  if (!moec_add_i64(scale, -rest, &scale) || !moec_add_i64(value, -rest, &room)) return NULL;
  if (scale == 0 || room % scale != 0 || room / scale < 0) return NULL;
  symbols[x] = room / scale;
  *progress = true;
  return NULL;
}

/* One round over inputs and constraints; |exact|: only dims that are a symbol. */
static moec_status *solve_round(const moec_module *m, const moec_graph *g,
                                const moec_tensor *inputs, bool exact, int64_t *symbols,
                                bool *progress) {
  for (size_t i = 0; i < g->n_inputs; i++) {
    moec_type_info t = moec_ty(g, g->inputs[i]);
    for (uint32_t k = 0; k < t.rank; k++)
      if (!exact || is_symbol(m, t.dims[k]))
        MOEC_TRY(moec_context(solve(m, t.dims[k], inputs[i].dims[k], symbols, progress),
                              "input %zu", i));
  }
  for (size_t i = 0; !exact && i < m->n_constraints; i++) {
    moec_dim a = m->constraints[i].a, b = m->constraints[i].b;
    bool known_a = moec_dim_bound(m, a, symbols);
    int64_t value;
    if (known_a == moec_dim_bound(m, b, symbols)) continue;
    MOEC_TRY(moec_dim_eval(m, known_a ? a : b, symbols, &value));
    MOEC_TRY(solve(m, known_a ? b : a, value, symbols, progress));
  }
  return NULL;
}

/* ---- checks ------------------------------------------------------------------------------- */

static moec_status *check_input(const moec_module *m, const moec_graph *g, size_t i,
                                const moec_tensor *got, const int64_t *symbols) {
  moec_type_info t = moec_ty(g, g->inputs[i]);
  const char *name = moec_sym_str(m, moec_value_get(g, g->inputs[i])->name);
  moec_buf text = {0};
  moec_status *e = NULL;
  for (uint32_t k = 0; !e && k < t.rank; k++) {
    int64_t want, literal;
    moec_dim d = t.dims[k];
    text.size = 0;
    moec_dim_print(&text, m, d);
    if (!moec_dim_bound(m, d, symbols)) {
      e = MOEC_RUN_ERROR("input \"%s\": axis %u is %lld, expected %s", name, k,
                         (long long)got->dims[k], moec_buf_str(&text));
    } else if (!(e = moec_dim_eval(m, d, symbols, &want)) && want != got->dims[k]) {
      if (!moec_dim_is_const(m, d, &literal)) moec_buf_printf(&text, " = %lld", (long long)want);
      e = MOEC_RUN_ERROR("input \"%s\": axis %u is %lld, expected %s", name, k,
                         (long long)got->dims[k], moec_buf_str(&text));
    }
  }
  moec_buf_fini(&text);
  return e;
}

static moec_status *constraint_error(const moec_module *m, const moec_constraint *c, const int64_t *symbols) {
  moec_buf text = {0};
  const char *sep = " with ";
  moec_buf_printf(&text, "node \"%s\": needs ", moec_sym_str(m, c->where));
  moec_dim_print_equal(&text, m, c->a, c->b);
  moec_buf_printf(&text, " (%s), which does not hold", moec_sym_str(m, c->what));
  for (uint32_t i = 0; i < moec_dim_symbol_count(m); i++) {
    if (!has_symbol(m, c->a, i) && !has_symbol(m, c->b, i)) continue;
    moec_buf_printf(&text, "%s%s = %lld", sep, moec_dim_symbol_name(m, i), (long long)symbols[i]);
    sep = ", ";
  }
  moec_status *e = MOEC_RUN_ERROR("%s", moec_buf_str(&text));
  moec_buf_fini(&text);
  return e;
}

static moec_status *check_constraint(const moec_module *m, const moec_constraint *c,
                                     const int64_t *symbols) {
  int64_t a, b;
  if (!moec_dim_bound(m, c->a, symbols) || !moec_dim_bound(m, c->b, symbols)) return NULL;
  MOEC_TRY(moec_dim_eval(m, c->a, symbols, &a));
  MOEC_TRY(moec_dim_eval(m, c->b, symbols, &b));
  return a == b ? NULL : constraint_error(m, c, symbols);
}

moec_status *moec_bind_symbols(const moec_module *m, const moec_graph *g, const moec_tensor *inputs,
                               size_t n_inputs, int64_t *symbols) {
  for (uint32_t i = 0; i < moec_dim_symbol_count(m); i++) symbols[i] = -1;
  if (n_inputs != g->n_inputs)
    return MOEC_RUN_ERROR("expected %zu inputs, got %zu", g->n_inputs, n_inputs);
  for (size_t i = 0; i < n_inputs; i++) {
    const char *name = moec_sym_str(m, moec_value_get(g, g->inputs[i])->name);
    uint32_t rank = moec_ty(g, g->inputs[i]).rank;
    if (inputs[i].rank != rank)
      return MOEC_RUN_ERROR("input \"%s\": expected rank %u, got %u", name, rank, inputs[i].rank);
  }
  bool progress = true;
  MOEC_TRY(solve_round(m, g, inputs, true, symbols, &progress));
  while (progress) {
    progress = false;
    MOEC_TRY(solve_round(m, g, inputs, false, symbols, &progress));
  }
  for (size_t i = 0; i < n_inputs; i++) MOEC_TRY(check_input(m, g, i, &inputs[i], symbols));
  for (size_t i = 0; i < m->n_constraints; i++)
    MOEC_TRY(check_constraint(m, &m->constraints[i], symbols));
  return NULL;
}
