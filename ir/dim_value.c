/* What holds of dim expressions for all sizes, and their values for given ones. Recursion goes as deep as atoms
 * stand in atoms, which ir/dims.c limits. */
#include "base/size.h"
#include "ir/ir_internal.h"

/* ---- proofs ------------------------------------------------------------------------------- */

/* A constant that the atom is never below, for symbols of at least |low|; false: none known. */
static bool atom_bound(const moec_module *m, uint32_t atom, int64_t low, int64_t *bound);

/* Sum over terms of coeff * (product of atom bounds): sound for positive coefficients. */
static bool lower_bound(const moec_module *m, moec_dim d, int64_t low, int64_t *bound) {
  int64_t sum = 0;
  if (!d.i) return false;
  for (uint32_t i = 0; i < moec_dim_n_terms(m, d); i++) {
    moec_dim_term t = moec_dim_get_term(m, d, i);
    int64_t product = t.coeff, b;
    if (t.n_atoms && product < 0) return false;
    for (uint32_t k = 0; k < t.n_atoms; k++)
      if (!atom_bound(m, t.atoms[k], low, &b) || b < 0 || !moec_mul_i64(product, b, &product))
        return false;
    if (!moec_add_i64(sum, product, &sum)) return false;
  }
  *bound = sum;
  return true;
}

static bool atom_bound(const moec_module *m, uint32_t atom, int64_t low, int64_t *bound) {
  const moec_dim_atom info = moec_dim_get_atom(m, atom), *x = &info;
  int64_t a, b;
  bool ka, kb;
  switch (x->op) {
    case MOEC_DIM_SYMBOL: *bound = low; return true;
    case MOEC_DIM_MOD: *bound = 0; return moec_dim_is_const(m, x->b, &b) && b > 0;
    case MOEC_DIM_FLOORDIV:
      if (!moec_dim_is_const(m, x->b, &b) || b <= 0 || !lower_bound(m, x->a, low, &a)) return false;
      *bound = moec_floordiv(a, b);
      return true;
    case MOEC_DIM_MIN:
    case MOEC_DIM_MAX:
      ka = lower_bound(m, x->a, low, &a);
      kb = lower_bound(m, x->b, low, &b);
      if (x->op == MOEC_DIM_MIN) {
        *bound = ka && kb ? (a < b ? a : b) : 0;
        return ka && kb;
      }
      *bound = ka && kb ? (a > b ? a : b) : ka ? a : b;
      return ka || kb;
  }
  return false;
}

bool moec_dim_is_nonneg(const moec_module *m, moec_dim d) {
  int64_t b;
  return lower_bound(m, d, 0, &b) && b >= 0;
}

bool moec_dim_is_positive(const moec_module *m, moec_dim d) {
  int64_t b;
  return lower_bound(m, d, 1, &b) && b >= 1;
}

/* ---- evaluation and substitution ---------------------------------------------------------- */

static moec_status *eval_atom(const moec_module *m, uint32_t atom, const int64_t *symbols,
                              int64_t *out) {
  const moec_dim_atom info = moec_dim_get_atom(m, atom), *x = &info;
  int64_t a = 0, b = 0;
  if (x->op == MOEC_DIM_SYMBOL) {
    *out = symbols[x->symbol];
    return NULL;
  }
  MOEC_TRY(moec_dim_eval(m, x->a, symbols, &a));
  MOEC_TRY(moec_dim_eval(m, x->b, symbols, &b));
  bool divides = x->op == MOEC_DIM_FLOORDIV || x->op == MOEC_DIM_MOD;
  if (divides && (b == 0 || (b == -1 && a == INT64_MIN)))
    return moec_error(MOEC_INVALID_ARGUMENT, "a size divides by zero");
  switch (x->op) {
    case MOEC_DIM_FLOORDIV: *out = moec_floordiv(a, b); break;
    case MOEC_DIM_MOD: *out = moec_floormod(a, b); break;
    case MOEC_DIM_MIN: *out = a < b ? a : b; break;
    case MOEC_DIM_MAX: *out = a > b ? a : b; break;
    case MOEC_DIM_SYMBOL: break;
  }
  return NULL;
}

moec_status *moec_dim_eval(const moec_module *m, moec_dim d, const int64_t *symbols, int64_t *out) {
  int64_t sum = 0;
  if (!d.i) return moec_error(MOEC_INVALID_ARGUMENT, "an unknown size has no value");
  for (uint32_t i = 0; i < moec_dim_n_terms(m, d); i++) {
    moec_dim_term t = moec_dim_get_term(m, d, i);
    int64_t product = t.coeff, x = 0;
    for (uint32_t k = 0; k < t.n_atoms; k++) {
      MOEC_TRY(eval_atom(m, t.atoms[k], symbols, &x));
      if (!moec_mul_i64(product, x, &product))
        return moec_error(MOEC_INVALID_ARGUMENT, "a size exceeds 64 bits");
    }
    if (!moec_add_i64(sum, product, &sum))
      return moec_error(MOEC_INVALID_ARGUMENT, "a size exceeds 64 bits");
  }
  *out = sum;
  return NULL;
}

static moec_dim subst_atom(moec_module *m, uint32_t atom, const moec_dim *map) {
  moec_dim_atom x = moec_dim_get_atom(m, atom);
  if (x.op == MOEC_DIM_SYMBOL)
    return map[x.symbol].i ? map[x.symbol] : moec_dim_symbol(m, moec_dim_symbol_name(m, x.symbol));
  moec_dim a = moec_dim_subst(m, x.a, map), b = moec_dim_subst(m, x.b, map);
  switch (x.op) {
    case MOEC_DIM_FLOORDIV: return moec_dim_floordiv(m, a, b);
    case MOEC_DIM_MOD: return moec_dim_mod(m, a, b);
    case MOEC_DIM_MIN: return moec_dim_min(m, a, b);
    case MOEC_DIM_MAX: return moec_dim_max(m, a, b);
    case MOEC_DIM_SYMBOL: break;
  }
  return (moec_dim){0};
}

moec_dim moec_dim_subst(moec_module *m, moec_dim d, const moec_dim *map) {
  if (!d.i) return d;
  moec_dim sum = moec_dim_const(m, 0);
  for (uint32_t i = 0; i < moec_dim_n_terms(m, d); i++) {
    moec_dim_term x = moec_dim_get_term(m, d, i);
    moec_dim product = moec_dim_const(m, x.coeff);
    for (uint32_t k = 0; k < x.n_atoms; k++)
      product = moec_dim_mul(m, product, subst_atom(m, x.atoms[k], map));
    sum = moec_dim_add(m, sum, product);
  }
  return sum;
}
