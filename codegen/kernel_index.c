/* Integer arithmetic in normal form: a sum of sizes times atoms. An atom is a variable, a DIV or MOD
 * that did not simplify, or a loaded value. */
#include <string.h>

#include "codegen/kernel_build.h"

/* A sum being built. */
typedef struct sum {
  moec_dim c;
  uint32_t n;
  moec_kx atom[64];
  moec_dim coeff[64];
} sum;

static bool is_zero(const moec_kpool *p, moec_dim d) { return moec_dim_is(p->m, d, 0); }
static moec_dim zero(const moec_kpool *p) { return moec_dim_const(p->m, 0); }

static sum sum_of(const moec_kpool *p, moec_kx e) {
  const moec_kx_node *n = moec_kx_get(p, e);
  sum s = {.c = zero(p)};
  if (n->kind != MOEC_KX_SUM) {
    s.n = 1, s.atom[0] = e, s.coeff[0] = moec_dim_const(p->m, 1);
    return s;
  }
  s.c = n->dim, s.n = n->n_args;
  if (s.n)
    memcpy(s.atom, n->args, s.n * sizeof *s.atom),
        memcpy(s.coeff, n->coeffs, s.n * sizeof *s.coeff);
  return s;
}

/* Adds coeff * atom, keeping atoms sorted and coefficients nonzero. */
static void sum_term(moec_kpool *p, sum *s, moec_kx atom, moec_dim coeff) {
  uint32_t i = 0;
  while (i < s->n && s->atom[i].i < atom.i) i++;
  if (i < s->n && moec_kx_eq(s->atom[i], atom)) {
    s->coeff[i] = moec_dim_add(p->m, s->coeff[i], coeff);
    if (!is_zero(p, s->coeff[i])) return;
    s->n--;
    memmove(s->atom + i, s->atom + i + 1, (s->n - i) * sizeof *s->atom);
    memmove(s->coeff + i, s->coeff + i + 1, (s->n - i) * sizeof *s->coeff);
    return;
  }
  if (is_zero(p, coeff)) return;
  if (s->n == 64) {
    moec_kpool_fail(
        p, moec_error(MOEC_UNSUPPORTED, "kernel: expected index arithmetic of at most 64 terms"));
    return;
  }
  memmove(s->atom + i + 1, s->atom + i, (s->n - i) * sizeof *s->atom);
  memmove(s->coeff + i + 1, s->coeff + i, (s->n - i) * sizeof *s->coeff);
  s->atom[i] = atom, s->coeff[i] = coeff, s->n++;
}

static void sum_add(moec_kpool *p, sum *s, moec_kx e, moec_dim by) {
  sum t = sum_of(p, e);
  s->c = moec_dim_add(p->m, s->c, moec_dim_mul(p->m, t.c, by));
  for (uint32_t i = 0; i < t.n; i++) sum_term(p, s, t.atom[i], moec_dim_mul(p->m, t.coeff[i], by));
}

/* ---- range ---------------------------------------------------------------------------------- */

/* The least (greatest) value of a sum, {0} where it isn't known. */
static moec_dim bound(const moec_kpool *p, const sum *s, bool greatest) {
  moec_dim r = s->c;
  for (uint32_t i = 0; i < s->n; i++) {
    const moec_kx_node *a = moec_kx_get(p, s->atom[i]);
    moec_dim minus = moec_dim_sub(p->m, zero(p), s->coeff[i]);
    bool up = moec_dim_is_nonneg(p->m, s->coeff[i]);
    if (!up && !moec_dim_is_nonneg(p->m, minus)) return (moec_dim){0};
    r = moec_dim_add(p->m, r, moec_dim_mul(p->m, s->coeff[i], up == greatest ? a->hi : a->lo));
  }
  return r;
}

static bool nonneg(const moec_kpool *p, moec_dim d) {
  return moec_dim_known(d) && moec_dim_is_nonneg(p->m, d);
}

/* 0 <= s < n, proved. */
static bool inside(const moec_kpool *p, const sum *s, moec_dim n) {
  moec_dim one = moec_dim_const(p->m, 1), hi = bound(p, s, true);
  return nonneg(p, bound(p, s, false)) && moec_dim_known(hi) &&
         nonneg(p, moec_dim_sub(p->m, moec_dim_sub(p->m, n, one), hi));
}

/* ---- sums ----------------------------------------------------------------------------------- */

/* c*n*floor(e/n) + c*(e mod n) is c*e: what a reshape there and back leaves. One such pair a call. */
static bool rejoin(moec_kpool *p, sum *s) {
  for (uint32_t i = 0; i < s->n; i++) {
    const moec_kx_node *mod = moec_kx_get(p, s->atom[i]);
    if (mod->kind != MOEC_KX_MOD) continue;
    moec_kx e = mod->args[0], atom = s->atom[i];
    moec_dim c = s->coeff[i], cn = moec_dim_mul(p->m, c, mod->dim);
    sum q = sum_of(p, moec_kx_div(p, e, mod->dim));
    if (q.n != 1 || !is_zero(p, q.c) || !moec_dim_is(p->m, q.coeff[0], 1)) continue;
    for (uint32_t k = 0; k < s->n; k++) {
      if (!moec_kx_eq(s->atom[k], q.atom[0]) || !moec_dim_eq(s->coeff[k], cn)) continue;
      sum_term(p, s, q.atom[0], moec_dim_sub(p->m, zero(p), cn));
      sum_term(p, s, atom, moec_dim_sub(p->m, zero(p), c));
      sum_add(p, s, e, c);
      return true;
    }
  }
  return false;
}

static moec_kx sum_end(moec_kpool *p, sum *s) {
  while (rejoin(p, s)) continue;
  bool known = moec_dim_known(s->c);
  for (uint32_t i = 0; i < s->n; i++) known = known && moec_dim_known(s->coeff[i]);
  if (!known) {
    moec_kpool_fail(p, moec_error(MOEC_UNSUPPORTED, "kernel: index arithmetic overflows 64 bits"));
    s->c = zero(p), s->n = 0;
  }
  if (s->n == 1 && is_zero(p, s->c) && moec_dim_is(p->m, s->coeff[0], 1)) return s->atom[0];
  moec_kx_node n = {.kind = MOEC_KX_SUM,
                    .dtype = MOEC_I64,
                    .dim = s->c,
                    .n_args = s->n,
                    .args = s->atom,
                    .coeffs = s->coeff};
  if (!s->n) n.args = NULL, n.coeffs = NULL;
  n.lo = bound(p, s, false), n.hi = bound(p, s, true);
  return moec_kx_intern(p, n);
}

moec_kx moec_kx_size(moec_kpool *p, moec_dim d) {
  sum s = {.c = d};
  return sum_end(p, &s);
}

moec_kx moec_kx_i64(moec_kpool *p, int64_t v) { return moec_kx_size(p, moec_dim_const(p->m, v)); }

moec_kx moec_kx_add(moec_kpool *p, moec_kx a, moec_kx b) {
  sum s = sum_of(p, a);
  sum_add(p, &s, b, moec_dim_const(p->m, 1));
  return sum_end(p, &s);
}

moec_kx moec_kx_sub(moec_kpool *p, moec_kx a, moec_kx b) {
  sum s = sum_of(p, a);
  sum_add(p, &s, b, moec_dim_const(p->m, -1));
  return sum_end(p, &s);
}

moec_kx moec_kx_scale(moec_kpool *p, moec_kx a, moec_dim by) {
  sum s = {.c = zero(p)};
  sum_add(p, &s, a, by);
  return sum_end(p, &s);
}

moec_dim moec_kx_coeff(moec_kpool *p, moec_kx e, moec_kx atom) {
  sum s = sum_of(p, e);
  for (uint32_t i = 0; i < s.n; i++)
    if (moec_kx_eq(s.atom[i], atom)) return s.coeff[i];
  return zero(p);
}

/* ---- division ------------------------------------------------------------------------------- */

/* e = n*q + rest, each coefficient going where it comes out even. */
static void split(moec_kpool *p, const sum *e, moec_dim n, sum *q, sum *rest) {
  moec_dim d = moec_dim_exact_div(p->m, e->c, n);
  int64_t cv, nv;
  *q = *rest = (sum){.c = zero(p)};
  if (moec_dim_known(d)) {
    q->c = d;
  } else if (moec_dim_is_const(p->m, e->c, &cv) && moec_dim_is_const(p->m, n, &nv)) {
    q->c = moec_dim_floordiv(p->m, e->c, n);
    rest->c = moec_dim_sub(p->m, e->c, moec_dim_mul(p->m, q->c, n));
  } else {
    rest->c = e->c;
  }
  for (uint32_t i = 0; i < e->n; i++) {
    d = moec_dim_exact_div(p->m, e->coeff[i], n);
    if (moec_dim_known(d))
      sum_term(p, q, e->atom[i], d);
    else
      sum_term(p, rest, e->atom[i], e->coeff[i]);
  }
}

/* Looks for g with n = g*m, e = g*u + v, 0 <= v < g: then floor(e/n) = floor(u/m) and
 * e mod n = g*(u mod m) + v. True where found. */
static bool common_factor(moec_kpool *p, const sum *e, moec_dim n, moec_dim *g, moec_dim *m, sum *u,
                          sum *v) {
  for (uint32_t i = 0; i < e->n; i++) {
    *g = e->coeff[i];
    *m = moec_dim_exact_div(p->m, n, *g);
    if (!moec_dim_known(*m) || moec_dim_is(p->m, *g, 1) || !nonneg(p, *g)) continue;
    split(p, e, *g, u, v);
    if (inside(p, v, *g)) return true;
  }
  return false;
}

static moec_kx div_atom(moec_kpool *p, sum *e, moec_dim n) {
  moec_kx x = sum_end(p, e);
  const moec_kx_node *a = moec_kx_get(p, x);
  if (a->kind == MOEC_KX_DIV) return moec_kx_div(p, a->args[0], moec_dim_mul(p->m, a->dim, n));
  moec_kx_node d = {.kind = MOEC_KX_DIV, .dtype = MOEC_I64, .n_args = 1, .args = &x, .dim = n};
  moec_dim one = moec_dim_const(p->m, 1);
  if (nonneg(p, a->lo) && moec_dim_known(a->hi)) {
    moec_dim count = moec_dim_exact_div(p->m, moec_dim_add(p->m, a->hi, one), n);
    d.lo = zero(p);
    d.hi =
        moec_dim_known(count) ? moec_dim_sub(p->m, count, one) : moec_dim_floordiv(p->m, a->hi, n);
  }
  return moec_kx_intern(p, d);
}

moec_kx moec_kx_div(moec_kpool *p, moec_kx x, moec_dim n) {
  if (moec_dim_is(p->m, n, 1)) return x;
  if (is_zero(p, n)) return moec_kx_i64(p, 0);
  sum e = sum_of(p, x), q, rest, u, v;
  moec_dim g, m;
  split(p, &e, n, &q, &rest);
  if (!inside(p, &rest, n)) {
    moec_kx r = common_factor(p, &rest, n, &g, &m, &u, &v) ? moec_kx_div(p, sum_end(p, &u), m)
                                                           : div_atom(p, &rest, n);
    sum_add(p, &q, r, moec_dim_const(p->m, 1));
  }
  return sum_end(p, &q);
}

moec_kx moec_kx_mod(moec_kpool *p, moec_kx x, moec_dim n) {
  if (moec_dim_is(p->m, n, 1) || is_zero(p, n)) return moec_kx_i64(p, 0);
  sum e = sum_of(p, x), q, rest, u, v;
  moec_dim g, m;
  split(p, &e, n, &q, &rest);
  if (inside(p, &rest, n)) return sum_end(p, &rest);
  if (common_factor(p, &rest, n, &g, &m, &u, &v)) {
    sum_add(p, &v, moec_kx_mod(p, sum_end(p, &u), m), g);
    return sum_end(p, &v);
  }
  moec_kx r = sum_end(p, &rest);
  moec_dim last = moec_dim_sub(p->m, n, moec_dim_const(p->m, 1));
  return moec_kx_intern(p, (moec_kx_node){.kind = MOEC_KX_MOD,
                                          .dtype = MOEC_I64,
                                          .n_args = 1,
                                          .args = &r,
                                          .dim = n,
                                          .lo = zero(p),
                                          .hi = last});
}

/* ---- comparisons ---------------------------------------------------------------------------- */

bool moec_kx_ranged(const moec_kpool *p, moec_kx a) {
  const moec_kx_node *n = moec_kx_get(p, a);
  return n->dtype == MOEC_I64 && moec_dim_known(n->lo) && moec_dim_known(n->hi);
}

int moec_kx_decide(moec_kpool *p, moec_op op, moec_kx a, moec_kx b) {
  if (op == MOEC_OP_GT || op == MOEC_OP_LE) {
    int flipped = moec_kx_decide(p, MOEC_OP_LT, b, a);
    return flipped < 0 || op == MOEC_OP_GT ? flipped : !flipped;
  }
  moec_dim one = moec_dim_const(p->m, 1);
  const moec_kx_node *d = moec_kx_get(p, moec_kx_sub(p, a, b));
  bool below = moec_dim_known(d->hi) &&
               nonneg(p, moec_dim_sub(p->m, moec_dim_sub(p->m, zero(p), one), d->hi));
  bool above = moec_dim_known(d->lo) && nonneg(p, moec_dim_sub(p->m, d->lo, one));
  if (op == MOEC_OP_EQ || op == MOEC_OP_NE) {
    bool same = d->kind == MOEC_KX_SUM && !d->n_args && is_zero(p, d->dim);
    if (!same && !below && !above) return -1;
    return same == (op == MOEC_OP_EQ);
  }
  if (below) return op == MOEC_OP_LT;
  if (nonneg(p, d->lo)) return op == MOEC_OP_GE;
  return -1;
}
