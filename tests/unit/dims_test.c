/* Dim expressions: random ones against plain evaluation, exporters' spellings, limits. A wrong simplification
 * here would be a silently wrong program, so every rule is met thousands of times. */
#include "base/size.h"
#include "ir/ir.h"
#include "tests/unit/unit.h"

static uint64_t state;

static uint32_t pick(uint32_t n) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(state >> 33) % n;
}

static const char *text(const moec_module *m, moec_dim d) {
  static char keep[4][16384];
  static int next;
  char *out = keep[next++ % 4];
  moec_buf b = {0};
  moec_dim_print(&b, m, d);
  snprintf(out, sizeof keep[0], "%s", moec_buf_str(&b));
  moec_buf_fini(&b);
  return out;
}

/* ---- random expressions and what they mean -------------------------------------------------- */

enum { CONST, SYMBOL, ADD, SUB, MUL, FLOORDIV, CEILDIV, MOD, MIN, MAX, N_OPS, N_SYMBOLS = 3 };

typedef struct expr {
  int op;
  int64_t value; /* of a constant; which symbol */
  struct expr *a, *b;
} expr;

static const char *const symbols[N_SYMBOLS] = {"batch", "seq", "n"};

/* Denominators are mostly small constants, as in shapes; sometimes anything. */
static expr *random_expr(moec_arena *a, int depth, bool denominator) {
  expr *e = MOEC_NEW(a, expr);
  if (denominator && pick(4)) {
    e->value = 1 + pick(5);
  } else if (depth == 0 || pick(6) == 0) {
    e->op = pick(3) ? SYMBOL : CONST;
    e->value = e->op == SYMBOL ? pick(N_SYMBOLS) : (int64_t)pick(13) - 4;
  } else {
    e->op = ADD + (int)pick(N_OPS - ADD);
    e->a = random_expr(a, depth - 1, false);
    e->b = random_expr(a, depth - 1, e->op >= FLOORDIV && e->op <= MOD);
  }
  return e;
}

static moec_dim build(moec_module *m, const expr *e) {
  typedef moec_dim (*dim_fn)(moec_module *, moec_dim, moec_dim);
  static const dim_fn fns[N_OPS] = {
      [ADD] = moec_dim_add,           [SUB] = moec_dim_sub,         [MUL] = moec_dim_mul,
      [FLOORDIV] = moec_dim_floordiv, [CEILDIV] = moec_dim_ceildiv, [MOD] = moec_dim_mod,
      [MIN] = moec_dim_min,           [MAX] = moec_dim_max};
  if (e->op == CONST) return moec_dim_const(m, e->value);
  if (e->op == SYMBOL) return moec_dim_symbol(m, symbols[e->value]);
  return fns[e->op](m, build(m, e->a), build(m, e->b));
}

/* False where it divides by zero or overflows. */
static bool value_of(const expr *e, const int64_t *s, int64_t *out) {
  int64_t a, b;
  if (e->op == CONST) return *out = e->value, true;
  if (e->op == SYMBOL) return *out = s[e->value], true;
  if (!value_of(e->a, s, &a) || !value_of(e->b, s, &b)) return false;
  if (e->op >= FLOORDIV && e->op <= MOD && b == 0) return false;
  switch (e->op) {
    case ADD: return moec_add_i64(a, b, out);
    case SUB: return moec_add_i64(a, -b, out);
    case MUL: return moec_mul_i64(a, b, out);
    case FLOORDIV: return *out = moec_floordiv(a, b), true;
    case CEILDIV: return *out = -moec_floordiv(-a, b), true;
    case MOD: return *out = moec_floormod(a, b), true;
    case MIN: return *out = a < b ? a : b, true;
    default: return *out = a > b ? a : b, true;
  }
}

/* Values of the symbols for trial |i|: first all small ones, then random ones. */
static void symbol_values(int i, int64_t *s) {
  for (int k = 0; k < N_SYMBOLS; k++, i /= 4) s[k] = i < 64 && i >= 0 ? i % 4 : 0;
}

enum { TRIALS = 84 };

static void trial(int i, int64_t *s) {
  symbol_values(i, s);
  for (int k = 0; i >= 64 && k < N_SYMBOLS; k++) s[k] = pick(i < 74 ? 12 : 1000);
}

static void check_value(const moec_module *m, const expr *e, moec_dim d) {
  bool nonneg = moec_dim_is_nonneg(m, d), positive = moec_dim_is_positive(m, d);
  for (int i = 0; i < TRIALS; i++) {
    int64_t s[N_SYMBOLS], want, got;
    trial(i, s);
    if (!value_of(e, s, &want)) continue;
    moec_status *error = moec_dim_eval(m, d, s, &got);
    if (error)
      ck_abort_msg("%s at %lld %lld %lld: %s", text(m, d), (long long)s[0], (long long)s[1],
                   (long long)s[2], moec_status_message(error));
    if (got != want)
      ck_abort_msg("%s at %lld %lld %lld: expected %lld, got %lld", text(m, d), (long long)s[0],
                   (long long)s[1], (long long)s[2], (long long)want, (long long)got);
    if (nonneg && got < 0) ck_abort_msg("%s is not always >= 0", text(m, d));
    if (positive && s[0] && s[1] && s[2] && got < 1)
      ck_abort_msg("%s is not always >= 1", text(m, d));
  }
}

static moec_module *module_with_symbols(bool backwards) {
  moec_module *m = moec_module_create();
  for (int i = 0; i < N_SYMBOLS; i++)
    moec_dim_symbol(m, symbols[backwards ? N_SYMBOLS - 1 - i : i]);
  return m;
}

/* Reading the text gives the same dim; an order of creation of symbols does not show in it. */
static void check_text(moec_module *m, const expr *e, moec_dim d) {
  moec_dim again;
  UNIT_OK(moec_dim_parse(m, text(m, d), &again));
  if (!moec_dim_eq(again, d)) ck_abort_msg("%s is read as %s", text(m, d), text(m, again));
  moec_module *other = module_with_symbols(true);
  const char *there = text(other, build(other, e));
  if (strcmp(text(m, d), there) != 0)
    ck_abort_msg("%s depends on the order of symbols: %s", text(m, d), there);
  moec_module_destroy(other);
}

START_TEST(test_random_expressions) {
  moec_arena *a = moec_arena_create();
  moec_module *m = module_with_symbols(false);
  int known = 0;
  state = 1;
  for (int i = 0; i < 12000; i++) {
    if (i % 500 == 0) {
      moec_module_destroy(m), moec_arena_destroy(a);
      m = module_with_symbols(false), a = moec_arena_create();
    }
    const expr *e = random_expr(a, 1 + i % 4, false);
    moec_dim d = build(m, e);
    if (!moec_dim_known(d)) continue;
    known++;
    check_value(m, e, d);
    check_text(m, e, d);
  }
  ck_assert_int_gt(known, 10000);
  moec_module_destroy(m);
  moec_arena_destroy(a);
}
END_TEST

START_TEST(test_random_substitution) {
  moec_arena *a = moec_arena_create();
  moec_module *m = module_with_symbols(false);
  state = 2;
  for (int i = 0; i < 3000; i++) {
    const expr *e = random_expr(a, 1 + i % 3, false), *by[N_SYMBOLS];
    moec_dim map[N_SYMBOLS], d = build(m, e);
    for (int k = 0; k < N_SYMBOLS; k++)
      by[k] = random_expr(a, (int)pick(2), false), map[k] = build(m, by[k]);
    moec_dim got = moec_dim_known(d) ? moec_dim_subst(m, d, map) : d;
    for (int t = 0; moec_dim_known(got) && t < TRIALS; t++) {
      int64_t s[N_SYMBOLS], inner[N_SYMBOLS], want, v;
      bool defined = true;
      trial(t, s);
      for (int k = 0; k < N_SYMBOLS; k++) {
        if (!moec_dim_known(map[k]))
          inner[k] = s[k];
        else
          defined = defined && value_of(by[k], s, &inner[k]) && inner[k] >= 0; /* sizes are */
      }
      if (!defined || !value_of(e, inner, &want)) continue;
      UNIT_OK(moec_dim_eval(m, got, s, &v));
      if (v != want)
        ck_abort_msg("%s became %s: expected %lld, got %lld", text(m, d), text(m, got),
                     (long long)want, (long long)v);
    }
  }
  moec_module_destroy(m);
  moec_arena_destroy(a);
}
END_TEST

/* a*b divided by b is a; what exact_div finds multiplies back. */
START_TEST(test_random_division) {
  moec_arena *a = moec_arena_create();
  moec_module *m = module_with_symbols(false);
  state = 3;
  for (int i = 0; i < 6000; i++) {
    moec_dim x = build(m, random_expr(a, 1 + i % 3, false)),
             y = build(m, random_expr(a, 1 + i % 2, false));
    moec_dim xy = moec_dim_mul(m, x, y), q = moec_dim_exact_div(m, xy, y),
             p = moec_dim_exact_div(m, x, y);
    if (!moec_dim_known(xy) || moec_dim_is(m, y, 0)) continue;
    if (!moec_dim_eq(q, x))
      ck_abort_msg("(%s) / (%s): expected %s, got %s", text(m, xy), text(m, y), text(m, x),
                   text(m, q));
    UNIT_TRUE(moec_dim_eq(moec_dim_floordiv(m, xy, y), x) &&
              moec_dim_eq(moec_dim_ceildiv(m, xy, y), x));
    UNIT_TRUE(moec_dim_is(m, moec_dim_mod(m, xy, y), 0));
    if (moec_dim_known(p)) UNIT_TRUE(moec_dim_eq(moec_dim_mul(m, p, y), x));
    UNIT_TRUE(moec_dim_eq(xy, moec_dim_mul(m, y, x)));
    UNIT_TRUE(moec_dim_eq(moec_dim_add(m, x, y), moec_dim_add(m, y, x)));
    UNIT_TRUE(moec_dim_eq(moec_dim_sub(m, moec_dim_add(m, x, y), y), x));
    UNIT_TRUE(moec_dim_eq(moec_dim_min(m, x, y), moec_dim_min(m, y, x)));
    UNIT_TRUE(moec_dim_eq(moec_dim_max(m, x, y), moec_dim_max(m, y, x)));
  }
  moec_module_destroy(m);
  moec_arena_destroy(a);
}
END_TEST

/* ---- written out ---------------------------------------------------------------------------- */

static const struct {
  const char *in, *out;
} spellings[] = {{"seq", "seq"},
                 {"2*seq*batch + 1 - 1", "2*batch*seq"},
                 {"batch*seq + seq*batch", "2*batch*seq"},
                 {" ( seq + 3 ) // 4 ", "floordiv(seq + 3, 4)"},
                 {"-seq+seq", "0"},
                 {"--seq", "seq"},
                 {"seq-(-1)", "seq + 1"},
                 {"2*(s0//2)", "2*floordiv(s0, 2)"},
                 {"Max(1, Min(u0, 8), 0)", "max(min(u0, 8), 1)"},
                 {"seq % 4", "mod(seq, 4)"},
                 {"Mod(seq, 4)", "mod(seq, 4)"},
                 {"FloorDiv(4*seq, 4)", "seq"},
                 {"floordiv(4*seq + 6, 4)", "seq + 1"},
                 {"ceildiv(4*seq + 6, 4)", "seq + 2"},
                 {"(batch*seq*64)//(64*seq)", "batch"},
                 {"mod(8*seq + 3, 4)", "3"},
                 {"min(seq, seq + 1)", "seq"},
                 {"max(seq, 0)", "seq"},
                 {"min(min(seq, 3), seq)", "min(seq, 3)"},
                 {"floordiv(-seq, 4)", "-floordiv(seq + 3, 4)"},
                 {"ceildiv(seq, 4)", "floordiv(seq + 3, 4)"},
                 {"ceildiv(2*seq - 7, 4)", "floordiv(2*seq, 4) - 1"},
                 {"-ceildiv(-seq - 3, 4)", "floordiv(seq + 3, 4)"},
                 {"floordiv(seq, -4)", "-floordiv(seq + 3, 4)"},
                 {"floordiv(-a, -b)", "floordiv(a, b)"},
                 {"ceildiv(a, b) + floordiv(-a, b)", "0"},
                 {"-7//2", "-4"},
                 {"(a+b)*(a-b)", "a*a - b*b"},
                 {"(a*a - b*b)//(a+b)", "a - b"},
                 {"unk__12.dim_0", "unk__12.dim_0"},
                 {"a*b//b", "a"},
                 {"10//3*2", "6"},
                 {"9223372036854775807", "9223372036854775807"},
                 {"-9223372036854775808", "-9223372036854775808"},
                 {"max", "max"},
                 {"min * max", "max*min"},
                 {"l\xc3\xa4nge", "l\xc3\xa4nge"},
                 {"floor(s0/2)", "floordiv(s0, 2)"},
                 {"sym_size_int_3 + 1", "sym_size_int_3 + 1"}};

START_TEST(test_spellings) {
  moec_module *m = moec_module_create();
  for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
    moec_dim d;
    moec_status *s = moec_dim_parse(m, spellings[i].in, &d);
    if (s) ck_abort_msg("%s: %s", spellings[i].in, moec_status_message(s));
    ck_assert_str_eq(text(m, d), spellings[i].out);
  }
  moec_module_destroy(m);
}
END_TEST

static const struct {
  const char *in, *error;
} wrong[] = {{"", "expected a number, a symbol or '(' at column 1"},
             {"seq +", "at column 6"},
             {"(seq", "expected ')' at column 5"},
             {"seq)", "expected the end at column 4"},
             {"min(seq)", "expected ','"},
             {"min(seq, 1", "expected ')'"},
             {"2 seq", "expected the end at column 3"},
             {"seq ** 2", "at column 6"},
             {"a/2", "at column 2"},
             {"floor(a)", "expected '/'"},
             {"9223372036854775808", "64 bits"},
             {"-9223372036854775809", "64 bits"},
             {"9223372036854775807*2", "64 bits"},
             {"seq // 0", "64 bits"},
             {"seq % 0", "64 bits"},
             {"a$", "the end"}};

START_TEST(test_wrong_texts) {
  moec_module *m = moec_module_create();
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    moec_dim d;
    moec_status *s = moec_dim_parse(m, wrong[i].in, &d);
    if (!s) ck_abort_msg("'%s' is read as %s", wrong[i].in, text(m, d));
    UNIT_FAILS(s, MOEC_INVALID_MODEL, wrong[i].error);
  }
  moec_module_destroy(m);
}
END_TEST

/* Every corner of 64 bits either is computed or gives the unknown dim. */
START_TEST(test_corners) {
  static const int64_t v[] = {INT64_MIN, INT64_MIN + 1, -2, -1, 0, 1, 2, INT64_MAX - 1, INT64_MAX};
  moec_module *m = moec_module_create();
  moec_dim s = moec_dim_symbol(m, "s");
  for (size_t i = 0; i < 9; i++)
    for (size_t k = 0; k < 9; k++)
      for (int with = 0; with < 2; with++) {
        moec_dim a = moec_dim_const(m, v[i]), b = moec_dim_const(m, v[k]);
        if (with) a = moec_dim_mul(m, a, s);
        moec_dim d[8] = {moec_dim_add(m, a, b),     moec_dim_sub(m, a, b),
                         moec_dim_mul(m, a, b),     moec_dim_floordiv(m, a, b),
                         moec_dim_ceildiv(m, a, b), moec_dim_mod(m, a, b),
                         moec_dim_min(m, a, b),     moec_dim_max(m, a, b)};
        for (int j = 0; j < 8; j++) {
          moec_dim again = {0};
          if (moec_dim_known(d[j])) UNIT_OK(moec_dim_parse(m, text(m, d[j]), &again));
          UNIT_TRUE(moec_dim_eq(again, d[j]));
        }
        UNIT_TRUE(v[k] != 0 ||
                  (!moec_dim_known(d[3]) && !moec_dim_known(d[4]) && !moec_dim_known(d[5])));
      }
  int64_t big = INT64_MAX, out;
  UNIT_FAILS(moec_dim_eval(m, moec_dim_mul(m, s, s), &big, &out), MOEC_INVALID_ARGUMENT, "64 bits");
  UNIT_FAILS(moec_dim_eval(m, (moec_dim){0}, &big, &out), MOEC_INVALID_ARGUMENT, "unknown");
  big = 0;
  UNIT_FAILS(moec_dim_eval(m, moec_dim_floordiv(m, moec_dim_const(m, 3), s), &big, &out),
             MOEC_INVALID_ARGUMENT, "by zero");
  moec_module_destroy(m);
}
END_TEST

/* ---- limits and fresh symbols --------------------------------------------------------------- */

/* What grows without bound becomes unknown, soon and with little memory. */
START_TEST(test_limits) {
  moec_module *m = moec_module_create();
  moec_dim x = moec_dim_symbol(m, "x"), one = moec_dim_const(m, 1), d = x, e = x, f = x, g = x,
           h = x;
  for (int i = 0; i < 10000; i++) {
    d = moec_dim_add(m, moec_dim_mul(m, d, moec_dim_add(m, moec_dim_fresh(m, "a"), one)),
                     one); /* terms */
    e = moec_dim_floordiv(m, moec_dim_add(m, moec_dim_mul(m, e, e), one),
                          moec_dim_const(m, 7));                                /* size */
    f = moec_dim_floordiv(m, moec_dim_add(m, f, one), moec_dim_symbol(m, "y")); /* depth */
    g = moec_dim_mul(m, g, x);                                                  /* degree */
    h = moec_dim_mod(m, moec_dim_min(m, moec_dim_add(m, h, x), moec_dim_max(m, h, one)),
                     moec_dim_const(m, 1000)); /* a tree */
  }
  UNIT_TRUE(!moec_dim_known(d) && !moec_dim_known(e) && !moec_dim_known(f) && !moec_dim_known(g) &&
            !moec_dim_known(h));
  UNIT_TRUE(!moec_dim_known(moec_dim_symbol(m, "the_last_straw")));
  ck_assert_uint_lt(moec_arena_bytes(m->arena), 64 << 20);
  moec_module_destroy(m);
}
END_TEST

/* All dims together have a limit too; what is there stays usable. */
START_TEST(test_total_limit) {
  moec_module *m = moec_module_create();
  moec_dim sum = moec_dim_const(m, 0);
  for (int i = 0; i < 200; i++) sum = moec_dim_add(m, sum, moec_dim_fresh(m, "a"));
  UNIT_TRUE(moec_dim_known(sum));
  moec_dim d = sum;
  for (int i = 0; i < 100000 && moec_dim_known(d); i++)
    d = moec_dim_add(m, sum, moec_dim_const(m, i + 1));
  UNIT_TRUE(!moec_dim_known(d));
  UNIT_TRUE(moec_dim_eq(moec_dim_add(m, sum, moec_dim_const(m, 0)), sum));
  ck_assert_uint_lt(moec_arena_bytes(m->arena), 1u << 30);
  moec_module_destroy(m);
}
END_TEST

START_TEST(test_deep_text) {
  enum { DEPTH = 100000 };
  moec_module *m = moec_module_create();
  char *s = malloc(6 * DEPTH + 2);
  ck_assert_ptr_nonnull(s);
  static const char *const opening[] = {"(", "-", "min(1,", "a*("};
  for (int i = 0; i < 4; i++) {
    char *at = s;
    for (int k = 0; k < DEPTH; k++) at += sprintf(at, "%s", opening[i]);
    moec_dim d;
    UNIT_FAILS(moec_dim_parse(m, s, &d), MOEC_INVALID_MODEL, "less nesting");
  }
  free(s);
  moec_module_destroy(m);
}
END_TEST

/* What a reader is told of two sizes that must be equal. */
START_TEST(test_relations) {
  static const struct { const char *x, *y, *want; } cases[] = {
      {"min(seq, 1)", "1", "seq >= 1"},           {"8", "min(2*seq, 8)", "2*seq >= 8"},
      {"max(seq, 16)", "16", "seq <= 16"},        {"max(a, b)", "a", "b <= a"},
      {"4*floordiv(seq, 4)", "seq", "seq % 4 == 0"}, {"seq + 1", "2*floordiv(seq + 1, 2)", "(seq + 1) % 2 == 0"},
      {"3*floordiv(seq, 4)", "seq", "3*floordiv(seq, 4) == seq"}, {"min(seq, 2)", "1", "min(seq, 2) == 1"},
      {"a*b", "12", "a*b == 12"},                 {"-min(a, 1)", "1", "-min(a, 1) == 1"},
  };
  moec_module *m = moec_module_create();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    moec_dim x, y;
    moec_buf b = {0};
    UNIT_OK(moec_dim_parse(m, cases[i].x, &x));
    UNIT_OK(moec_dim_parse(m, cases[i].y, &y));
    moec_dim_print_equal(&b, m, x, y);
    ck_assert_str_eq(moec_buf_str(&b), cases[i].want);
    moec_buf_fini(&b);
  }
  moec_module_destroy(m);
}
END_TEST

START_TEST(test_fresh_symbols) {
  moec_module *m = moec_module_create();
  moec_dim_symbol(m, "dim_1");
  static const char *const want[] = {"dim_0", "dim_2", "dim_3"};
  for (int i = 0; i < 3; i++) ck_assert_str_eq(text(m, moec_dim_fresh(m, "dim")), want[i]);
  ck_assert_str_eq(text(m, moec_dim_fresh(m, "n")), "n_0");
  moec_dim_symbol(m, "dim_4");
  ck_assert_str_eq(text(m, moec_dim_fresh(m, "dim")), "dim_5");
  ck_assert_uint_eq(moec_dim_symbol_count(m), 7);
  moec_module_destroy(m);
}
END_TEST

UNIT_MAIN("dims", test_random_expressions, test_random_substitution, test_random_division,
          test_spellings, test_wrong_texts, test_corners, test_limits, test_total_limit,
          test_deep_text, test_relations, test_fresh_symbols)
