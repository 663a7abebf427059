/* Dim expressions as text: our own spelling, and the spellings of exporters on the way in. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ir/ir_internal.h"

/* ---- printing ----------------------------------------------------------------------------- */

static void print_atom(moec_buf *b, const moec_module *m, uint32_t atom) {
  static const char *const names[] = {[MOEC_DIM_SYMBOL] = "", [MOEC_DIM_FLOORDIV] = "floordiv", [MOEC_DIM_MOD] = "mod",
                                      [MOEC_DIM_MIN] = "min", [MOEC_DIM_MAX] = "max"};
  moec_dim_atom a = moec_dim_get_atom(m, atom);
  if (a.op == MOEC_DIM_SYMBOL) {
    moec_buf_puts(b, moec_dim_symbol_name(m, a.symbol));
    return;
  }
  moec_buf_printf(b, "%s(", names[a.op]);
  moec_dim_print(b, m, a.a);
  moec_buf_puts(b, ", ");
  moec_dim_print(b, m, a.b);
  moec_buf_putc(b, ')');
}

static void print_term(moec_buf *b, const moec_module *m, moec_dim_term t, bool first) {
  uint64_t size = t.coeff < 0 ? 0 - (uint64_t)t.coeff : (uint64_t)t.coeff;
  if (!first) moec_buf_puts(b, t.coeff == INT64_MIN ? " + -" : t.coeff < 0 ? " - " : " + "); /* 2^63 is no number */
  else if (t.coeff < 0) moec_buf_putc(b, '-');
  if (size != 1 || t.n_atoms == 0) {
    moec_buf_printf(b, "%" PRIu64, size);
    if (t.n_atoms) moec_buf_putc(b, '*');
  }
  for (uint32_t i = 0; i < t.n_atoms; i++) {
    if (i) moec_buf_putc(b, '*');
    print_atom(b, m, t.atoms[i]);
  }
}

void moec_dim_print(moec_buf *b, const moec_module *m, moec_dim d) {
  uint32_t n = moec_dim_n_terms(m, d);
  if (!moec_dim_known(d)) moec_buf_putc(b, '?');
  else if (n == 0) moec_buf_putc(b, '0');
  for (uint32_t i = 0; i < n; i++) print_term(b, m, moec_dim_get_term(m, d, i), i == 0);
}

/* Whether |d| is a constant times one atom. */
static bool lone_atom(const moec_module *m, moec_dim d, int64_t *coeff, moec_dim_atom *atom) {
  if (!moec_dim_known(d) || moec_dim_n_terms(m, d) != 1) return false;
  moec_dim_term t = moec_dim_get_term(m, d, 0);
  if (t.n_atoms != 1) return false;
  *coeff = t.coeff;
  *atom = moec_dim_get_atom(m, t.atoms[0]);
  return true;
}

/* x == y, where it says less than it seems to; false: it does not. */
static bool print_relation(moec_buf *b, const moec_module *m, moec_dim x, moec_dim y) {
  int64_t coeff, step;
  moec_dim_atom a;
  if (!lone_atom(m, x, &coeff, &a)) return false;
  bool extreme = coeff == 1 && (a.op == MOEC_DIM_MIN || a.op == MOEC_DIM_MAX);
  if (extreme && (moec_dim_eq(a.a, y) || moec_dim_eq(a.b, y))) {
    moec_dim_print(b, m, moec_dim_eq(a.a, y) ? a.b : a.a);
    moec_buf_puts(b, a.op == MOEC_DIM_MIN ? " >= " : " <= ");
    moec_dim_print(b, m, y);
    return true;
  }
  if (a.op == MOEC_DIM_FLOORDIV && moec_dim_eq(a.a, y) && moec_dim_is_const(m, a.b, &step) && step == coeff) {
    bool sum = moec_dim_n_terms(m, y) > 1;
    if (sum) moec_buf_putc(b, '(');
    moec_dim_print(b, m, y);
    moec_buf_printf(b, "%s %% %" PRId64 " == 0", sum ? ")" : "", step);
    return true;
  }
  return false;
}

void moec_dim_print_equal(moec_buf *b, const moec_module *m, moec_dim x, moec_dim y) {
  if (print_relation(b, m, x, y) || print_relation(b, m, y, x)) return;
  moec_dim_print(b, m, x);
  moec_buf_puts(b, " == ");
  moec_dim_print(b, m, y);
}

/* ---- parsing: sum := product {+|- product}; product := unary {*|//|% unary} ------------------ */

enum { MAX_DEPTH = 64 };

typedef struct reader {
  moec_module *m;
  const char *text, *at;
  int depth;
  moec_status *error;
} reader;

static moec_dim read_sum(reader *r);
static moec_dim read_unary(reader *r);

static moec_dim fail(reader *r, const char *expected) {
  if (!r->error)
    r->error = moec_error(MOEC_INVALID_MODEL, "size \"%.80s\": expected %s at column %td", r->text, expected,
                          r->at - r->text + 1);
  return (moec_dim){0};
}

static bool take(reader *r, const char *token) {
  while (isspace((unsigned char)*r->at)) r->at++;
  size_t n = strlen(token);
  if (strncmp(r->at, token, n) != 0) return false;
  r->at += n;
  return true;
}

typedef moec_dim (*dim_fn)(moec_module *m, moec_dim a, moec_dim b);

static const struct { const char *name; dim_fn fn; } functions[] = {
    {"floordiv", moec_dim_floordiv}, {"ceildiv", moec_dim_ceildiv}, {"mod", moec_dim_mod},   {"min", moec_dim_min},
    {"max", moec_dim_max},           {"FloorDiv", moec_dim_floordiv}, {"Mod", moec_dim_mod}, {"Min", moec_dim_min},
    {"Max", moec_dim_max},
};

/* "(a, b, ...)" folded from the left. */
static moec_dim read_call(reader *r, dim_fn fn) {
  moec_dim x = read_sum(r);
  if (!take(r, ",")) return fail(r, "','");
  do x = fn(r->m, x, read_sum(r));
  while (!r->error && take(r, ","));
  return take(r, ")") ? x : fail(r, "')'");
}

static bool name_char(char c, bool first) {
  return isalpha((unsigned char)c) || c == '_' || (!first && (isdigit((unsigned char)c) || c == '.')) ||
         (unsigned char)c >= 128;
}

/* "floor(a / b)", as sympy writes a // b. */
static moec_dim read_floor(reader *r) {
  moec_dim x = read_unary(r);
  while (!r->error && take(r, "*")) x = moec_dim_mul(r->m, x, read_unary(r));
  if (!take(r, "/")) return fail(r, "'/'");
  x = moec_dim_floordiv(r->m, x, read_unary(r));
  return take(r, ")") ? x : fail(r, "')'");
}

static moec_dim read_name(reader *r) {
  char name[128];
  size_t n = 0;
  while (name_char(r->at[n], n == 0) && n + 1 < sizeof name) n++;
  if (n == 0 || n + 1 == sizeof name) return fail(r, "a number, a symbol or '('");
  memcpy(name, r->at, n);
  name[n] = '\0';
  r->at += n;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (strcmp(functions[i].name, name) == 0 && take(r, "(")) return read_call(r, functions[i].fn);
  if (strcmp(name, "floor") == 0 && take(r, "(")) return read_floor(r);
  moec_dim x = moec_dim_symbol(r->m, name);
  return moec_dim_known(x) ? x : fail(r, "fewer different symbols");
}

static moec_dim read_number(reader *r, bool negative) {
  char *end;
  errno = 0;
  unsigned long long v = strtoull(r->at, &end, 10);
  if (errno || v > (unsigned long long)INT64_MAX + negative) return fail(r, "a number of 64 bits");
  r->at = end;
  return moec_dim_const(r->m, negative ? (int64_t)(0 - v) : (int64_t)v);
}

static moec_dim read_unary(reader *r) {
  moec_dim x;
  if (r->error) return (moec_dim){0};
  if (++r->depth > MAX_DEPTH) return fail(r, "less nesting");
  if (take(r, "-")) {
    if (isdigit((unsigned char)*r->at)) x = read_number(r, true);
    else x = moec_dim_sub(r->m, moec_dim_const(r->m, 0), read_unary(r));
  } else if (take(r, "(")) {
    x = read_sum(r);
    if (!take(r, ")")) x = fail(r, "')'");
  } else if (isdigit((unsigned char)*r->at)) {
    x = read_number(r, false);
  } else {
    x = read_name(r);
  }
  r->depth--;
  return x;
}

static moec_dim read_product(reader *r) {
  moec_dim x = read_unary(r);
  while (!r->error) {
    if (take(r, "//")) x = moec_dim_floordiv(r->m, x, read_unary(r));
    else if (take(r, "*")) x = moec_dim_mul(r->m, x, read_unary(r));
    else if (take(r, "%")) x = moec_dim_mod(r->m, x, read_unary(r));
    else break;
  }
  return x;
}

static moec_dim read_sum(reader *r) {
  moec_dim x = read_product(r);
  while (!r->error) {
    if (take(r, "+")) x = moec_dim_add(r->m, x, read_product(r));
    else if (take(r, "-")) x = moec_dim_sub(r->m, x, read_product(r));
    else break;
  }
  return x;
}

moec_status *moec_dim_parse(moec_module *m, const char *text, moec_dim *out) {
  reader r = {.m = m, .text = text, .at = text};
  *out = (moec_dim){0};
  if (strcmp(text, "?") == 0) return NULL;
  moec_dim d = read_sum(&r);
  while (isspace((unsigned char)*r.at)) r.at++;
  if (!r.error && *r.at) fail(&r, "the end");
  if (!r.error && !moec_dim_known(d)) fail(&r, "a size of 64 bits");
  if (r.error) return r.error;
  *out = d;
  return NULL;
}
