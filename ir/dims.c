/* Dim expressions: interned integer polynomials.
 *
 * A dim is a sorted list of terms, a term a coefficient times a sorted list of atoms, an atom a
 * symbol or an opaque operation on two dims. Sorting goes by content (names of symbols, then
 * structure), never by order of creation, so that equal models print equal texts. Dim 0 is "unknown". */
#include "ir/dims.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "ir/ir_internal.h"

typedef struct poly {
  uint32_t n;
  moec_dim_term *terms;
} poly;

struct moec_dim_table {
  moec_arena *arena;
  poly *dims; /* dims[0]: unknown */
  size_t n_dims, cap_dims;
  moec_dim_atom *atoms;
  size_t n_atoms, cap_atoms;
  const char **symbols;
  size_t n_symbols, cap_symbols;
  uint32_t *slots; /* hash table of dims, 0: empty */
  size_t n_slots;
};

struct moec_dim_table *moec_dim_table_create(moec_arena *arena) {
  struct moec_dim_table *t = MOEC_NEW(arena, struct moec_dim_table);
  t->arena = arena;
  MOEC_PUSH(arena, t->dims, t->n_dims, t->cap_dims, ((poly){0, NULL}));
  t->n_slots = 256;
  t->slots = MOEC_NEW_ARRAY(arena, uint32_t, t->n_slots);
  return t;
}

/* ---- order by content --------------------------------------------------------------------- */

static int compare_dims(const struct moec_dim_table *t, moec_dim a, moec_dim b);

static int compare_atoms(const struct moec_dim_table *t, uint32_t a, uint32_t b) {
  if (a == b) return 0;
  const moec_dim_atom *x = &t->atoms[a], *y = &t->atoms[b];
  if (x->op != y->op) return x->op < y->op ? -1 : 1;
  if (x->op == MOEC_DIM_SYMBOL) return strcmp(t->symbols[x->symbol], t->symbols[y->symbol]);
  int c = compare_dims(t, x->a, y->a);
  return c ? c : compare_dims(t, x->b, y->b);
}

/* Higher degree first, then atoms in order. */
static int compare_monomials(const struct moec_dim_table *t, const moec_dim_term *x, const moec_dim_term *y) {
  if (x->n_atoms != y->n_atoms) return x->n_atoms > y->n_atoms ? -1 : 1;
  for (uint32_t i = 0; i < x->n_atoms; i++) {
    int c = compare_atoms(t, x->atoms[i], y->atoms[i]);
    if (c) return c;
  }
  return 0;
}

static int compare_dims(const struct moec_dim_table *t, moec_dim a, moec_dim b) {
  if (a.i == b.i) return 0;
  const poly *x = &t->dims[a.i], *y = &t->dims[b.i];
  for (uint32_t i = 0; i < x->n && i < y->n; i++) {
    int c = compare_monomials(t, &x->terms[i], &y->terms[i]);
    if (c) return c;
    if (x->terms[i].coeff != y->terms[i].coeff) return x->terms[i].coeff < y->terms[i].coeff ? -1 : 1;
  }
  return x->n < y->n ? -1 : x->n > y->n;
}

/* ---- interning ---------------------------------------------------------------------------- */

static uint64_t hash_poly(const poly *p) {
  uint64_t h = MOEC_HASH_SEED;
  for (uint32_t i = 0; i < p->n; i++) {
    h = moec_hash(h, &p->terms[i].coeff, sizeof p->terms[i].coeff);
    h = moec_hash(h, p->terms[i].atoms, p->terms[i].n_atoms * sizeof(uint32_t));
  }
  return h;
}

static bool same_poly(const poly *a, const poly *b) {
  if (a->n != b->n) return false;
  for (uint32_t i = 0; i < a->n; i++) {
    const moec_dim_term *x = &a->terms[i], *y = &b->terms[i];
    if (x->coeff != y->coeff || x->n_atoms != y->n_atoms) return false;
    if (x->n_atoms && memcmp(x->atoms, y->atoms, x->n_atoms * sizeof *x->atoms) != 0) return false;
  }
  return true;
}

static size_t slot_of(const struct moec_dim_table *t, const poly *p) {
  size_t i = (size_t)hash_poly(p) & (t->n_slots - 1);
  while (t->slots[i] && !same_poly(&t->dims[t->slots[i]], p)) i = (i + 1) & (t->n_slots - 1);
  return i;
}

static moec_dim intern(struct moec_dim_table *t, poly p) {
  size_t i = slot_of(t, &p);
  if (t->slots[i]) return (moec_dim){t->slots[i]};
  uint32_t id = (uint32_t)t->n_dims;
  MOEC_PUSH(t->arena, t->dims, t->n_dims, t->cap_dims, p);
  t->slots[i] = id;
  if (t->n_dims * 2 > t->n_slots) {
    t->n_slots *= 2;
    t->slots = MOEC_NEW_ARRAY(t->arena, uint32_t, t->n_slots);
    for (uint32_t k = 1; k < t->n_dims; k++) t->slots[slot_of(t, &t->dims[k])] = k;
  }
  return (moec_dim){id};
}

/* Sorts, merges equal monomials, drops zeros, interns. */
static moec_dim normalise(struct moec_dim_table *t, moec_dim_term *terms, uint32_t n) {
  for (uint32_t i = 1; i < n; i++) /* few terms: insertion sort */
    for (uint32_t k = i; k && compare_monomials(t, &terms[k - 1], &terms[k]) > 0; k--) {
      moec_dim_term swap = terms[k];
      terms[k] = terms[k - 1];
      terms[k - 1] = swap;
    }
  uint32_t out = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (out && compare_monomials(t, &terms[out - 1], &terms[i]) == 0) {
      if (!moec_add_i64(terms[out - 1].coeff, terms[i].coeff, &terms[out - 1].coeff)) return (moec_dim){0};
    } else {
      if (out && terms[out - 1].coeff == 0) out--;
      terms[out++] = terms[i];
    }
  }
  if (out && terms[out - 1].coeff == 0) out--;
  return intern(t, (poly){out, terms});
}

static moec_dim atom_dim(struct moec_dim_table *t, uint32_t atom) {
  uint32_t *atoms = MOEC_NEW(t->arena, uint32_t);
  moec_dim_term *term = MOEC_NEW(t->arena, moec_dim_term);
  *atoms = atom;
  *term = (moec_dim_term){1, 1, atoms};
  return intern(t, (poly){1, term});
}

static moec_dim make_atom(struct moec_dim_table *t, moec_dim_atom a) {
  for (uint32_t i = 0; i < t->n_atoms; i++) {
    const moec_dim_atom *x = &t->atoms[i];
    if (x->op == a.op && x->symbol == a.symbol && x->a.i == a.a.i && x->b.i == a.b.i) return atom_dim(t, i);
  }
  MOEC_PUSH(t->arena, t->atoms, t->n_atoms, t->cap_atoms, a);
  return atom_dim(t, (uint32_t)t->n_atoms - 1);
}

/* ---- constants and symbols ---------------------------------------------------------------- */

moec_dim moec_dim_const(moec_module *m, int64_t v) {
  moec_dim_term *term = MOEC_NEW(m->arena, moec_dim_term);
  *term = (moec_dim_term){v, 0, NULL};
  return intern(m->dims, (poly){v != 0, term});
}

moec_dim moec_dim_symbol(moec_module *m, const char *name) {
  struct moec_dim_table *t = m->dims;
  uint32_t i = 0;
  while (i < t->n_symbols && strcmp(t->symbols[i], name) != 0) i++;
  if (i == t->n_symbols) MOEC_PUSH(t->arena, t->symbols, t->n_symbols, t->cap_symbols, moec_arena_strdup(t->arena, name));
  return make_atom(t, (moec_dim_atom){MOEC_DIM_SYMBOL, i, {0}, {0}});
}

moec_dim moec_dim_fresh(moec_module *m, const char *stem) {
  struct moec_dim_table *t = m->dims;
  for (size_t n = 0;; n++) {
    const char *name = moec_arena_printf(t->arena, "%s_%zu", stem, n);
    bool taken = false;
    for (uint32_t i = 0; i < t->n_symbols; i++) taken = taken || strcmp(t->symbols[i], name) == 0;
    if (!taken) return moec_dim_symbol(m, name);
  }
}

uint32_t moec_dim_symbol_count(const moec_module *m) { return (uint32_t)m->dims->n_symbols; }
const char *moec_dim_symbol_name(const moec_module *m, uint32_t index) { return m->dims->symbols[index]; }

uint32_t moec_dim_n_terms(const moec_module *m, moec_dim d) { return m->dims->dims[d.i].n; }
moec_dim_term moec_dim_get_term(const moec_module *m, moec_dim d, uint32_t i) { return m->dims->dims[d.i].terms[i]; }
moec_dim_atom moec_dim_get_atom(const moec_module *m, uint32_t atom) { return m->dims->atoms[atom]; }

bool moec_dim_is_const(const moec_module *m, moec_dim d, int64_t *out) {
  const poly *p = &m->dims->dims[d.i];
  if (!d.i || p->n > 1 || (p->n == 1 && p->terms[0].n_atoms)) return false;
  if (out) *out = p->n ? p->terms[0].coeff : 0;
  return true;
}

bool moec_dim_is(const moec_module *m, moec_dim d, int64_t value) {
  int64_t v;
  return moec_dim_is_const(m, d, &v) && v == value;
}

/* ---- ring operations ---------------------------------------------------------------------- */

/* a + factor * b */
static moec_dim add_scaled(moec_module *m, moec_dim a, moec_dim b, int64_t factor) {
  struct moec_dim_table *t = m->dims;
  if (!a.i || !b.i) return (moec_dim){0};
  poly x = t->dims[a.i], y = t->dims[b.i];
  moec_dim_term *terms = MOEC_NEW_ARRAY(t->arena, moec_dim_term, x.n + y.n + 1);
  if (x.n) memcpy(terms, x.terms, x.n * sizeof *terms);
  for (uint32_t i = 0; i < y.n; i++) {
    terms[x.n + i] = y.terms[i];
    if (!moec_mul_i64(y.terms[i].coeff, factor, &terms[x.n + i].coeff)) return (moec_dim){0};
  }
  return normalise(t, terms, x.n + y.n);
}

moec_dim moec_dim_add(moec_module *m, moec_dim a, moec_dim b) { return add_scaled(m, a, b, 1); }
moec_dim moec_dim_sub(moec_module *m, moec_dim a, moec_dim b) { return add_scaled(m, a, b, -1); }

/* Product of two terms; false on overflow. */
static bool mul_terms(struct moec_dim_table *t, const moec_dim_term *x, const moec_dim_term *y, moec_dim_term *out) {
  uint32_t n = x->n_atoms + y->n_atoms, i = 0, k = 0;
  uint32_t *atoms = MOEC_NEW_ARRAY(t->arena, uint32_t, n + 1);
  for (uint32_t at = 0; at < n; at++) {
    bool left = k == y->n_atoms || (i < x->n_atoms && compare_atoms(t, x->atoms[i], y->atoms[k]) <= 0);
    atoms[at] = left ? x->atoms[i++] : y->atoms[k++];
  }
  *out = (moec_dim_term){0, n, atoms};
  return moec_mul_i64(x->coeff, y->coeff, &out->coeff);
}

moec_dim moec_dim_mul(moec_module *m, moec_dim a, moec_dim b) {
  struct moec_dim_table *t = m->dims;
  if (!a.i || !b.i) return (moec_dim){0};
  if (moec_dim_is(m, a, 1)) return b;
  if (moec_dim_is(m, b, 1)) return a;
  poly x = t->dims[a.i], y = t->dims[b.i];
  moec_dim_term *terms = MOEC_NEW_ARRAY(t->arena, moec_dim_term, (size_t)x.n * y.n + 1);
  for (uint32_t i = 0; i < x.n; i++)
    for (uint32_t k = 0; k < y.n; k++)
      if (!mul_terms(t, &x.terms[i], &y.terms[k], &terms[i * y.n + k])) return (moec_dim){0};
  return normalise(t, terms, x.n * y.n);
}

/* x / y as a term, when y's atoms are among x's and its coefficient divides. */
static bool div_terms(struct moec_dim_table *t, const moec_dim_term *x, const moec_dim_term *y, moec_dim_term *out) {
  if (y->coeff == 0 || x->coeff % y->coeff != 0 || (y->coeff == -1 && x->coeff == INT64_MIN)) return false;
  uint32_t *atoms = MOEC_NEW_ARRAY(t->arena, uint32_t, x->n_atoms + 1), n = 0, k = 0;
  for (uint32_t i = 0; i < x->n_atoms; i++) {
    if (k < y->n_atoms && x->atoms[i] == y->atoms[k]) k++;
    else atoms[n++] = x->atoms[i];
  }
  *out = (moec_dim_term){x->coeff / y->coeff, n, atoms};
  return k == y->n_atoms;
}

moec_dim moec_dim_exact_div(moec_module *m, moec_dim a, moec_dim b) {
  struct moec_dim_table *t = m->dims;
  if (!a.i || !b.i || t->dims[b.i].n == 0) return (moec_dim){0};
  moec_dim quotient = moec_dim_const(m, 0), rest = a;
  /* Long division by the leading term; terms are sorted by degree, so each step removes rest's leader. */
  for (int steps = 0; t->dims[rest.i].n && steps < 64; steps++) {
    moec_dim_term *q = MOEC_NEW(t->arena, moec_dim_term);
    if (!div_terms(t, &t->dims[rest.i].terms[0], &t->dims[b.i].terms[0], q)) return (moec_dim){0};
    moec_dim qd = intern(t, (poly){1, q});
    quotient = moec_dim_add(m, quotient, qd);
    rest = moec_dim_sub(m, rest, moec_dim_mul(m, qd, b));
    if (!rest.i || !quotient.i) return (moec_dim){0};
  }
  return t->dims[rest.i].n ? (moec_dim){0} : quotient;
}

/* ---- division, minimum, maximum ----------------------------------------------------------- */

/* The part of |a| whose terms are multiples of the constant c, divided by c; *rest: the other terms. */
static moec_dim pull_multiples(moec_module *m, moec_dim a, int64_t c, moec_dim *rest) {
  struct moec_dim_table *t = m->dims;
  poly p = t->dims[a.i];
  moec_dim_term *in = MOEC_NEW_ARRAY(t->arena, moec_dim_term, p.n + 2), *out = MOEC_NEW_ARRAY(t->arena, moec_dim_term, p.n + 2);
  uint32_t n_in = 0, n_out = 0;
  for (uint32_t i = 0; i < p.n; i++) {
    moec_dim_term x = p.terms[i];
    int64_t q = moec_floordiv(x.coeff, c), r = x.coeff - q * c;
    if (x.n_atoms && r) q = 0, r = x.coeff; /* a symbol's coefficient moves as a whole */
    if (q) in[n_in] = x, in[n_in++].coeff = q;
    if (r) out[n_out] = x, out[n_out++].coeff = r;
  }
  *rest = normalise(t, out, n_out);
  return normalise(t, in, n_in);
}

moec_dim moec_dim_floordiv(moec_module *m, moec_dim a, moec_dim b) {
  int64_t x, c;
  if (!a.i || !b.i || moec_dim_is(m, b, 0)) return (moec_dim){0};
  moec_dim exact = moec_dim_exact_div(m, a, b), rest = a, whole = moec_dim_const(m, 0);
  if (exact.i) return exact;
  if (moec_dim_is_const(m, b, &c) && c > 0) {
    whole = pull_multiples(m, a, c, &rest);
    if (moec_dim_is_const(m, rest, &x)) return moec_dim_add(m, whole, moec_dim_const(m, moec_floordiv(x, c)));
    /* -floor(-x / c) is the ceiling: floor(-x / c) is kept as -ceildiv(x, c) */
    moec_dim neg = moec_dim_sub(m, moec_dim_const(m, 0), rest);
    if (m->dims->dims[rest.i].terms[0].coeff < 0) return moec_dim_sub(m, whole, moec_dim_ceildiv(m, neg, b));
  } else if (moec_dim_is_const(m, a, &x) && moec_dim_is_const(m, b, &c) && !(x == INT64_MIN && c == -1)) {
    return moec_dim_const(m, moec_floordiv(x, c));
  }
  return moec_dim_add(m, whole, make_atom(m->dims, (moec_dim_atom){MOEC_DIM_FLOORDIV, 0, rest, b}));
}

moec_dim moec_dim_ceildiv(moec_module *m, moec_dim a, moec_dim b) {
  int64_t x, c;
  if (!a.i || !b.i || moec_dim_is(m, b, 0)) return (moec_dim){0};
  moec_dim exact = moec_dim_exact_div(m, a, b), rest = a, whole = moec_dim_const(m, 0);
  if (exact.i) return exact;
  if (moec_dim_is_const(m, b, &c) && c > 0) {
    whole = pull_multiples(m, a, c, &rest);
    if (moec_dim_is_const(m, rest, &x)) return moec_dim_add(m, whole, moec_dim_const(m, x != 0));
    moec_dim neg = moec_dim_sub(m, moec_dim_const(m, 0), rest);
    if (m->dims->dims[rest.i].terms[0].coeff < 0) return moec_dim_sub(m, whole, moec_dim_floordiv(m, neg, b));
    /* ceildiv(x + k, c) with a constant k is floordiv(x + k + c - 1, c) when k makes it simpler */
  } else if (moec_dim_is_const(m, a, &x) && moec_dim_is_const(m, b, &c) && x != INT64_MIN) {
    return moec_dim_const(m, -moec_floordiv(-x, c));
  }
  return moec_dim_add(m, whole, make_atom(m->dims, (moec_dim_atom){MOEC_DIM_CEILDIV, 0, rest, b}));
}

moec_dim moec_dim_mod(moec_module *m, moec_dim a, moec_dim b) {
  int64_t x, c;
  if (!a.i || !b.i || moec_dim_is(m, b, 0)) return (moec_dim){0};
  if (moec_dim_exact_div(m, a, b).i) return moec_dim_const(m, 0);
  moec_dim rest = a;
  if (moec_dim_is_const(m, b, &c)) {
    if (c > 0) pull_multiples(m, a, c, &rest);
    if (moec_dim_is_const(m, rest, &x)) return moec_dim_const(m, moec_floormod(x, c));
  }
  return make_atom(m->dims, (moec_dim_atom){MOEC_DIM_MOD, 0, rest, b});
}

static moec_dim extreme(moec_module *m, moec_dim_op op, moec_dim a, moec_dim b) {
  if (!a.i || !b.i) return (moec_dim){0};
  if (a.i == b.i) return a;
  bool want_small = op == MOEC_DIM_MIN;
  if (moec_dim_is_nonneg(m, moec_dim_sub(m, a, b))) return want_small ? b : a;
  if (moec_dim_is_nonneg(m, moec_dim_sub(m, b, a))) return want_small ? a : b;
  if (compare_dims(m->dims, a, b) > 0) {
    moec_dim swap = a;
    a = b;
    b = swap;
  }
  const poly *p = &m->dims->dims[b.i]; /* min(a, min(a, c)) */
  if (p->n == 1 && p->terms[0].coeff == 1 && p->terms[0].n_atoms == 1) {
    moec_dim_atom x = m->dims->atoms[p->terms[0].atoms[0]];
    if (x.op == op && (x.a.i == a.i || x.b.i == a.i)) return b;
  }
  return make_atom(m->dims, (moec_dim_atom){op, 0, a, b});
}

moec_dim moec_dim_min(moec_module *m, moec_dim a, moec_dim b) { return extreme(m, MOEC_DIM_MIN, a, b); }
moec_dim moec_dim_max(moec_module *m, moec_dim a, moec_dim b) { return extreme(m, MOEC_DIM_MAX, a, b); }

/* ---- proofs ------------------------------------------------------------------------------- */

/* A constant that the atom is never below, for symbols of at least |low|; false: none known. */
static bool atom_bound(const moec_module *m, uint32_t atom, int64_t low, int64_t *bound);

/* Sum over terms of coeff * (product of atom bounds): sound for positive coefficients. */
static bool lower_bound(const moec_module *m, moec_dim d, int64_t low, int64_t *bound) {
  const poly *p = &m->dims->dims[d.i];
  int64_t sum = 0;
  if (!d.i) return false;
  for (uint32_t i = 0; i < p->n; i++) {
    int64_t product = p->terms[i].coeff, b;
    if (p->terms[i].n_atoms && product < 0) return false;
    for (uint32_t k = 0; k < p->terms[i].n_atoms; k++)
      if (!atom_bound(m, p->terms[i].atoms[k], low, &b) || b < 0 || !moec_mul_i64(product, b, &product)) return false;
    if (!moec_add_i64(sum, product, &sum)) return false;
  }
  *bound = sum;
  return true;
}

static bool atom_bound(const moec_module *m, uint32_t atom, int64_t low, int64_t *bound) {
  const moec_dim_atom *x = &m->dims->atoms[atom];
  int64_t a, b;
  bool ka, kb;
  switch (x->op) {
    case MOEC_DIM_SYMBOL: *bound = low; return true;
    case MOEC_DIM_MOD: *bound = 0; return moec_dim_is_const(m, x->b, &b) && b > 0;
    case MOEC_DIM_FLOORDIV:
    case MOEC_DIM_CEILDIV:
      if (!moec_dim_is_const(m, x->b, &b) || b <= 0 || !lower_bound(m, x->a, low, &a)) return false;
      *bound = x->op == MOEC_DIM_FLOORDIV ? moec_floordiv(a, b) : moec_floordiv(a, b) + (moec_floormod(a, b) != 0);
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

static moec_status *eval_atom(const moec_module *m, uint32_t atom, const int64_t *symbols, int64_t *out) {
  const moec_dim_atom *x = &m->dims->atoms[atom];
  int64_t a = 0, b = 0;
  if (x->op == MOEC_DIM_SYMBOL) {
    *out = symbols[x->symbol];
    return NULL;
  }
  MOEC_TRY(moec_dim_eval(m, x->a, symbols, &a));
  MOEC_TRY(moec_dim_eval(m, x->b, symbols, &b));
  bool divides = x->op == MOEC_DIM_FLOORDIV || x->op == MOEC_DIM_CEILDIV || x->op == MOEC_DIM_MOD;
  if (divides && (b == 0 || (b == -1 && a == INT64_MIN))) return moec_error(MOEC_INVALID_ARGUMENT, "a size divides by zero");
  switch (x->op) {
    case MOEC_DIM_FLOORDIV: *out = moec_floordiv(a, b); break;
    case MOEC_DIM_CEILDIV: *out = moec_floordiv(a, b) + (moec_floormod(a, b) != 0); break;
    case MOEC_DIM_MOD: *out = moec_floormod(a, b); break;
    case MOEC_DIM_MIN: *out = a < b ? a : b; break;
    case MOEC_DIM_MAX: *out = a > b ? a : b; break;
    case MOEC_DIM_SYMBOL: break;
  }
  return NULL;
}

moec_status *moec_dim_eval(const moec_module *m, moec_dim d, const int64_t *symbols, int64_t *out) {
  const poly *p = &m->dims->dims[d.i];
  int64_t sum = 0;
  if (!d.i) return moec_error(MOEC_INVALID_ARGUMENT, "an unknown size has no value");
  for (uint32_t i = 0; i < p->n; i++) {
    int64_t product = p->terms[i].coeff, x = 0;
    for (uint32_t k = 0; k < p->terms[i].n_atoms; k++) {
      MOEC_TRY(eval_atom(m, p->terms[i].atoms[k], symbols, &x));
      if (!moec_mul_i64(product, x, &product)) return moec_error(MOEC_INVALID_ARGUMENT, "a size exceeds 64 bits");
    }
    if (!moec_add_i64(sum, product, &sum)) return moec_error(MOEC_INVALID_ARGUMENT, "a size exceeds 64 bits");
  }
  *out = sum;
  return NULL;
}

static moec_dim subst_atom(moec_module *m, uint32_t atom, const moec_dim *map) {
  moec_dim_atom x = m->dims->atoms[atom];
  if (x.op == MOEC_DIM_SYMBOL) return map[x.symbol].i ? map[x.symbol] : atom_dim(m->dims, atom);
  moec_dim a = moec_dim_subst(m, x.a, map), b = moec_dim_subst(m, x.b, map);
  switch (x.op) {
    case MOEC_DIM_FLOORDIV: return moec_dim_floordiv(m, a, b);
    case MOEC_DIM_CEILDIV: return moec_dim_ceildiv(m, a, b);
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
  for (uint32_t i = 0; i < m->dims->dims[d.i].n; i++) {
    moec_dim_term x = m->dims->dims[d.i].terms[i];
    moec_dim product = moec_dim_const(m, x.coeff);
    for (uint32_t k = 0; k < x.n_atoms; k++) product = moec_dim_mul(m, product, subst_atom(m, x.atoms[k], map));
    sum = moec_dim_add(m, sum, product);
  }
  return sum;
}
