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

/* Files decide what is computed here, so everything has a limit; beyond it a dim is unknown. */
enum {
  MAX_TERMS = 256,      /* of a dim */
  MAX_PRODUCTS = 4096,  /* of terms, in one multiplication, before equal ones are joined */
  MAX_SIZE = 1024,      /* of a dim as a tree: terms, atoms and what is inside of atoms */
  MAX_DEPTH = 32,       /* of atoms inside of atoms: functions here recurse */
  MAX_SYMBOLS = 4096,
  MAX_TOTAL = 1 << 23   /* sizes of all dims together */
};

typedef struct poly {
  uint32_t n;
  moec_dim_term *terms;
  uint32_t size, depth;
} poly;

struct moec_dim_table {
  moec_arena *arena;
  poly *dims; /* dims[0]: unknown */
  size_t n_dims, cap_dims;
  moec_dim_atom *atoms; /* atoms[0] unused */
  size_t n_atoms, cap_atoms;
  const char **symbols;
  size_t n_symbols, cap_symbols;
  uint32_t *symbol_of; /* by moec_sym: symbol + 1 */
  size_t n_symbol_of;
  size_t next_fresh; /* no smaller number is free after fresh_stem */
  moec_sym fresh_stem;
  uint32_t *slots, *atom_slots; /* hash tables of dims and atoms, 0: empty */
  size_t n_slots, n_atom_slots;
  size_t total; /* sizes of all dims */
};

struct moec_dim_table *moec_dim_table_create(moec_arena *arena) {
  struct moec_dim_table *t = MOEC_NEW(arena, struct moec_dim_table);
  t->arena = arena;
  MOEC_PUSH(arena, t->dims, t->n_dims, t->cap_dims, ((poly){0, NULL, 0, 0}));
  MOEC_PUSH(arena, t->atoms, t->n_atoms, t->cap_atoms, ((moec_dim_atom){MOEC_DIM_SYMBOL, 0, {0}, {0}}));
  t->n_slots = t->n_atom_slots = 256;
  t->slots = MOEC_NEW_ARRAY(arena, uint32_t, t->n_slots);
  t->atom_slots = MOEC_NEW_ARRAY(arena, uint32_t, t->n_atom_slots);
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

/* Size and depth of |p|; false: beyond the limits. */
static bool measure(const struct moec_dim_table *t, poly *p) {
  p->size = p->n, p->depth = 0;
  for (uint32_t i = 0; i < p->n; i++)
    for (uint32_t k = 0; k < p->terms[i].n_atoms; k++) {
      const moec_dim_atom *x = &t->atoms[p->terms[i].atoms[k]];
      const poly *a = &t->dims[x->a.i], *b = &t->dims[x->b.i]; /* of a symbol: dim 0, which is empty */
      uint32_t depth = x->op == MOEC_DIM_SYMBOL ? 0 : 1 + (a->depth > b->depth ? a->depth : b->depth);
      p->size += 1 + a->size + b->size;
      if (depth > p->depth) p->depth = depth;
      if (p->size > MAX_SIZE || p->depth > MAX_DEPTH) return false;
    }
  return p->n <= MAX_TERMS;
}

/* |p| borrows its terms, which are copied when they are new. */
static moec_dim intern(struct moec_dim_table *t, poly p) {
  size_t i = slot_of(t, &p);
  if (t->slots[i]) return (moec_dim){t->slots[i]};
  if (!measure(t, &p) || t->total + p.size > MAX_TOTAL) return (moec_dim){0};
  t->total += 1 + p.size;
  p.terms = moec_arena_copy(t->arena, p.terms, p.n * sizeof *p.terms);
  for (uint32_t k = 0; k < p.n; k++)
    p.terms[k].atoms = moec_arena_copy(t->arena, p.terms[k].atoms, p.terms[k].n_atoms * sizeof(uint32_t));
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

static int order_terms(const void *x, const void *y, void *table) { return compare_monomials(table, x, y); }

/* Sorts, merges equal monomials, drops zeros, interns. */
static moec_dim normalise(struct moec_dim_table *t, moec_dim_term *terms, uint32_t n) {
  uint32_t out = 0;
  if (n > 1) qsort_r(terms, n, sizeof *terms, order_terms, t);
  for (uint32_t i = 0; i < n; i++) {
    if (out && compare_monomials(t, &terms[out - 1], &terms[i]) == 0) {
      if (!moec_add_i64(terms[out - 1].coeff, terms[i].coeff, &terms[out - 1].coeff)) return (moec_dim){0};
    } else {
      if (out && terms[out - 1].coeff == 0) out--;
      terms[out++] = terms[i];
    }
  }
  if (out && terms[out - 1].coeff == 0) out--;
  return intern(t, (poly){out, terms, 0, 0});
}

static moec_dim atom_dim(struct moec_dim_table *t, uint32_t atom) {
  moec_dim_term term = {1, 1, &atom};
  return intern(t, (poly){1, &term, 0, 0});
}

static size_t atom_slot(const struct moec_dim_table *t, const moec_dim_atom *a) {
  uint32_t key[4] = {(uint32_t)a->op, a->symbol, a->a.i, a->b.i};
  size_t i = (size_t)moec_hash(MOEC_HASH_SEED, key, sizeof key) & (t->n_atom_slots - 1);
  for (; t->atom_slots[i]; i = (i + 1) & (t->n_atom_slots - 1)) {
    const moec_dim_atom *x = &t->atoms[t->atom_slots[i]];
    if (x->op == a->op && x->symbol == a->symbol && x->a.i == a->a.i && x->b.i == a->b.i) break;
  }
  return i;
}

static moec_dim make_atom(struct moec_dim_table *t, moec_dim_atom a) {
  if (a.op != MOEC_DIM_SYMBOL && (!a.a.i || !a.b.i)) return (moec_dim){0};
  size_t i = atom_slot(t, &a);
  if (!t->atom_slots[i]) {
    t->atom_slots[i] = (uint32_t)t->n_atoms;
    MOEC_PUSH(t->arena, t->atoms, t->n_atoms, t->cap_atoms, a);
    if (t->n_atoms * 2 > t->n_atom_slots) {
      t->n_atom_slots *= 2;
      t->atom_slots = MOEC_NEW_ARRAY(t->arena, uint32_t, t->n_atom_slots);
      for (uint32_t k = 1; k < t->n_atoms; k++) t->atom_slots[atom_slot(t, &t->atoms[k])] = k;
    }
    i = atom_slot(t, &a);
  }
  return atom_dim(t, t->atom_slots[i]);
}

/* ---- constants and symbols ---------------------------------------------------------------- */

moec_dim moec_dim_const(moec_module *m, int64_t v) {
  moec_dim_term term = {v, 0, NULL};
  return intern(m->dims, (poly){v != 0, &term, 0, 0});
}

/* Where the index + 1 of the symbol called |name| stands; 0: there is none. */
static uint32_t *symbol_slot(moec_module *m, moec_sym name) {
  struct moec_dim_table *t = m->dims;
  if (name.i >= t->n_symbol_of)
    t->symbol_of = moec_arena_grow(t->arena, t->symbol_of, &t->n_symbol_of, (size_t)name.i + 1, sizeof *t->symbol_of);
  return &t->symbol_of[name.i];
}

moec_dim moec_dim_symbol(moec_module *m, const char *name) {
  struct moec_dim_table *t = m->dims;
  moec_sym s = moec_sym_make(m, name);
  uint32_t *slot = symbol_slot(m, s);
  if (!*slot) {
    if (t->n_symbols == MAX_SYMBOLS) return (moec_dim){0};
    MOEC_PUSH(t->arena, t->symbols, t->n_symbols, t->cap_symbols, moec_sym_str(m, s));
    *slot = (uint32_t)t->n_symbols;
  }
  return make_atom(t, (moec_dim_atom){MOEC_DIM_SYMBOL, *slot - 1, {0}, {0}});
}

moec_dim moec_dim_fresh(moec_module *m, const char *stem) {
  struct moec_dim_table *t = m->dims;
  moec_sym s = moec_sym_make(m, stem);
  if (s.i != t->fresh_stem.i) t->fresh_stem = s, t->next_fresh = 0;
  for (;; t->next_fresh++) {
    const char *name = moec_arena_printf(t->arena, "%s_%zu", stem, t->next_fresh);
    if (!*symbol_slot(m, moec_sym_make(m, name))) return moec_dim_symbol(m, name);
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
  moec_dim_term terms[2 * MAX_TERMS];
  if (!a.i || !b.i) return (moec_dim){0};
  const poly *x = &t->dims[a.i], *y = &t->dims[b.i];
  if (x->n) memcpy(terms, x->terms, x->n * sizeof *terms);
  for (uint32_t i = 0; i < y->n; i++) {
    terms[x->n + i] = y->terms[i];
    if (!moec_mul_i64(y->terms[i].coeff, factor, &terms[x->n + i].coeff)) return (moec_dim){0};
  }
  return normalise(t, terms, x->n + y->n);
}

moec_dim moec_dim_add(moec_module *m, moec_dim a, moec_dim b) { return add_scaled(m, a, b, 1); }
moec_dim moec_dim_sub(moec_module *m, moec_dim a, moec_dim b) { return add_scaled(m, a, b, -1); }

/* Product of two terms, its atoms at |atoms|; false on overflow. */
static bool mul_terms(const struct moec_dim_table *t, const moec_dim_term *x, const moec_dim_term *y, uint32_t *atoms,
                      moec_dim_term *out) {
  uint32_t n = x->n_atoms + y->n_atoms, i = 0, k = 0;
  for (uint32_t at = 0; at < n; at++) {
    bool left = k == y->n_atoms || (i < x->n_atoms && compare_atoms(t, x->atoms[i], y->atoms[k]) <= 0);
    atoms[at] = left ? x->atoms[i++] : y->atoms[k++];
  }
  *out = (moec_dim_term){0, n, atoms};
  return moec_mul_i64(x->coeff, y->coeff, &out->coeff);
}

static uint32_t count_atoms(const poly *p) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->n; i++) n += p->terms[i].n_atoms;
  return n;
}

moec_dim moec_dim_mul(moec_module *m, moec_dim a, moec_dim b) {
  struct moec_dim_table *t = m->dims;
  if (!a.i || !b.i) return (moec_dim){0};
  if (moec_dim_is(m, a, 1)) return b;
  if (moec_dim_is(m, b, 1)) return a;
  const poly *x = &t->dims[a.i], *y = &t->dims[b.i];
  uint32_t n = x->n * y->n, n_atoms = count_atoms(x) * y->n + count_atoms(y) * x->n;
  if (n > MAX_PRODUCTS || n_atoms > 16 * MAX_PRODUCTS) return (moec_dim){0};
  moec_dim_term few[16], *terms = n <= 16 ? few : malloc(n * sizeof *terms);
  uint32_t some[64], *atoms = n_atoms <= 64 ? some : malloc(n_atoms * sizeof *atoms), at = 0;
  bool fits = terms && atoms;
  for (uint32_t i = 0; fits && i < n; i++) {
    fits = mul_terms(t, &x->terms[i / y->n], &y->terms[i % y->n], atoms + at, &terms[i]);
    at += terms[i].n_atoms;
  }
  moec_dim product = fits ? normalise(t, terms, n) : (moec_dim){0};
  if (terms != few) free(terms);
  if (atoms != some) free(atoms);
  return product;
}

/* x / y as a term, its atoms at |atoms|, when y's atoms are among x's and its coefficient divides. */
static bool div_terms(const moec_dim_term *x, const moec_dim_term *y, uint32_t *atoms, moec_dim_term *out) {
  uint32_t n = 0, k = 0;
  if (y->coeff == 0 || (y->coeff == -1 && x->coeff == INT64_MIN) || x->coeff % y->coeff != 0) return false;
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
    uint32_t atoms[MAX_SIZE];
    moec_dim_term q;
    if (!div_terms(&t->dims[rest.i].terms[0], &t->dims[b.i].terms[0], atoms, &q)) return (moec_dim){0};
    moec_dim qd = intern(t, (poly){1, &q, 0, 0});
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
  moec_dim_term in[MAX_TERMS], out[MAX_TERMS];
  uint32_t n_in = 0, n_out = 0;
  for (uint32_t i = 0; i < p.n; i++) {
    moec_dim_term x = p.terms[i];
    int64_t q = moec_floordiv(x.coeff, c), r = moec_floormod(x.coeff, c);
    if (x.n_atoms && r) q = 0, r = x.coeff; /* a symbol's coefficient moves as a whole */
    if (q) in[n_in] = x, in[n_in++].coeff = q;
    if (r) out[n_out] = x, out[n_out++].coeff = r;
  }
  *rest = normalise(t, out, n_out);
  moec_dim whole = normalise(t, in, n_in);
  if (!whole.i) *rest = whole;
  return whole;
}

static bool leads_negative(const moec_module *m, moec_dim d) { return m->dims->dims[d.i].terms[0].coeff < 0; }
static moec_dim negated(moec_module *m, moec_dim d) { return moec_dim_sub(m, moec_dim_const(m, 0), d); }

/* The only division kept as an atom. Divisors lead with a positive coefficient; by a constant c, the numerator does
 * too, and its own constant is in 0 .. c-1. */
moec_dim moec_dim_floordiv(moec_module *m, moec_dim a, moec_dim b) {
  int64_t x, c;
  if (!a.i || !b.i || moec_dim_is(m, b, 0)) return (moec_dim){0};
  moec_dim exact = moec_dim_exact_div(m, a, b), rest = a, whole = moec_dim_const(m, 0);
  if (exact.i) return exact;
  if (moec_dim_is_const(m, a, &x) && moec_dim_is_const(m, b, &c) && !(x == INT64_MIN && c == -1))
    return moec_dim_const(m, moec_floordiv(x, c));
  if (leads_negative(m, b)) return moec_dim_floordiv(m, negated(m, a), negated(m, b));
  if (moec_dim_is_const(m, b, &c)) {
    whole = pull_multiples(m, a, c, &rest);
    if (!rest.i) return rest;
    if (moec_dim_is_const(m, rest, &x)) return moec_dim_add(m, whole, moec_dim_const(m, moec_floordiv(x, c)));
    if (leads_negative(m, rest)) { /* floor(-x / c) = -ceil(x / c) = -floor((x + c - 1) / c) */
      moec_dim up = moec_dim_add(m, negated(m, rest), moec_dim_const(m, c - 1));
      return moec_dim_sub(m, whole, moec_dim_floordiv(m, up, b));
    }
  }
  return moec_dim_add(m, whole, make_atom(m->dims, (moec_dim_atom){MOEC_DIM_FLOORDIV, 0, rest, b}));
}

moec_dim moec_dim_ceildiv(moec_module *m, moec_dim a, moec_dim b) {
  return negated(m, moec_dim_floordiv(m, negated(m, a), b));
}

moec_dim moec_dim_mod(moec_module *m, moec_dim a, moec_dim b) {
  int64_t x, c;
  if (!a.i || !b.i || moec_dim_is(m, b, 0)) return (moec_dim){0};
  if (moec_dim_exact_div(m, a, b).i) return moec_dim_const(m, 0);
  moec_dim rest = a;
  if (moec_dim_is_const(m, b, &c)) {
    if (c > 0) pull_multiples(m, a, c, &rest);
    if (c == -1) return moec_dim_const(m, 0);
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
