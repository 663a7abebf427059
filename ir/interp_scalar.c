/* Elementwise ops: tables of scalar functions. Integers wrap (as unsigned arithmetic, which C
 * defines); narrower ones are cut to their width after the node. */
#include <math.h>
#include <string.h>

#include "ir/interp_internal.h"

/* ---- one operand -------------------------------------------------------------------------- */

static double f_neg(double x) { return -x; }
static double f_sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : x == 0 ? 0 : x; }
static double f_rsqrt(double x) { return 1 / sqrt(x); }
static double f_recip(double x) { return 1 / x; }
static double f_sigmoid(double x) { return 1 / (1 + exp(-x)); }

static int64_t i_neg(int64_t x) { return (int64_t)(0 - (uint64_t)x); }
static int64_t i_abs(int64_t x) { return x < 0 ? i_neg(x) : x; }
static int64_t i_sign(int64_t x) { return (x > 0) - (x < 0); }
static int64_t u_abs(int64_t x) { return x; }
static int64_t u_sign(int64_t x) { return x != 0; }

typedef struct scalar1 {
  double (*f)(double);
  int64_t (*i)(int64_t), (*u)(int64_t); /* NULL: floats only */
} scalar1;

static const scalar1 unary_table[MOEC_OP_COUNT] = {
    [MOEC_OP_NEG] = {f_neg, i_neg, i_neg},       [MOEC_OP_ABS] = {fabs, i_abs, u_abs},
    [MOEC_OP_SIGN] = {f_sign, i_sign, u_sign},   [MOEC_OP_EXP] = {exp, NULL, NULL},
    [MOEC_OP_EXPM1] = {expm1, NULL, NULL},       [MOEC_OP_LOG] = {log, NULL, NULL},
    [MOEC_OP_LOG1P] = {log1p, NULL, NULL},       [MOEC_OP_SQRT] = {sqrt, NULL, NULL},
    [MOEC_OP_RSQRT] = {f_rsqrt, NULL, NULL},     [MOEC_OP_RECIP] = {f_recip, NULL, NULL},
    [MOEC_OP_SIN] = {sin, NULL, NULL},           [MOEC_OP_COS] = {cos, NULL, NULL},
    [MOEC_OP_TAN] = {tan, NULL, NULL},           [MOEC_OP_ASIN] = {asin, NULL, NULL},
    [MOEC_OP_ACOS] = {acos, NULL, NULL},         [MOEC_OP_ATAN] = {atan, NULL, NULL},
    [MOEC_OP_SINH] = {sinh, NULL, NULL},         [MOEC_OP_COSH] = {cosh, NULL, NULL},
    [MOEC_OP_ASINH] = {asinh, NULL, NULL},       [MOEC_OP_ACOSH] = {acosh, NULL, NULL},
    [MOEC_OP_ATANH] = {atanh, NULL, NULL},       [MOEC_OP_TANH] = {tanh, NULL, NULL},
    [MOEC_OP_SIGMOID] = {f_sigmoid, NULL, NULL}, [MOEC_OP_ERF] = {erf, NULL, NULL},
    [MOEC_OP_FLOOR] = {floor, NULL, NULL},       [MOEC_OP_CEIL] = {ceil, NULL, NULL},
    [MOEC_OP_ROUND] = {rint, NULL, NULL},
};

static moec_status *eval_unary(moec_step *s) {
  scalar1 fn = unary_table[s->op];
  moec_dtype t = moec_step_dtype(s, 0);
  int64_t n = moec_tensor_numel(s->in[0]);
  if (moec_is_f64(s->in[0])) {
    const double *x = s->in[0]->data;
    double *y = s->out[0].data;
    if (!fn.f) return MOEC_BUG("no scalar function for floats");
    for (int64_t i = 0; i < n; i++) y[i] = fn.f(x[i]);
    return NULL;
  }
  const int64_t *x = s->in[0]->data;
  int64_t *y = s->out[0].data;
  int64_t (*f)(int64_t) = t == MOEC_U64 ? fn.u : fn.i;
  if (!f) return MOEC_RUN_ERROR("expected floats, got %s", moec_dtype_get(t)->text);
  for (int64_t i = 0; i < n; i++) y[i] = f(x[i]);
  return NULL;
}

/* not, isnan, isinf: dtypes differ from the others. */
static moec_status *eval_not(moec_step *s) {
  const int64_t *x = s->in[0]->data;
  int64_t *y = s->out[0].data;
  bool logical = moec_step_dtype(s, 0) == MOEC_BOOL;
  int64_t n = moec_tensor_numel(s->in[0]);
  for (int64_t i = 0; i < n; i++) y[i] = logical ? !x[i] : ~x[i];
  return NULL;
}

static moec_status *eval_class(moec_step *s, int (*is)(double)) {
  const double *x = s->in[0]->data;
  int64_t *y = s->out[0].data;
  if (!moec_is_f64(s->in[0])) return MOEC_RUN_ERROR("expected floats");
  int64_t n = moec_tensor_numel(s->in[0]);
  for (int64_t i = 0; i < n; i++) y[i] = is(x[i]);
  return NULL;
}
static int is_nan(double x) { return isnan(x) != 0; }
static int is_inf(double x) { return isinf(x) != 0; }

/* ---- two operands ------------------------------------------------------------------------- */

static double f_add(double a, double b) { return a + b; }
static double f_sub(double a, double b) { return a - b; }
static double f_mul(double a, double b) { return a * b; }
static double f_div(double a, double b) { return a / b; }
static double f_mod(double a, double b) {
  double r = fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
/* NaN if either is NaN. */
static double f_max(double a, double b) { return a > b || a != a ? a : b; }
static double f_min(double a, double b) { return a < b || a != a ? a : b; }

static int64_t i_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static int64_t i_sub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
static int64_t i_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
static int64_t i_div(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? i_neg(a) : a / b; }
static int64_t i_rem(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
static int64_t i_mod(int64_t a, int64_t b) {
  int64_t r = i_rem(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static int64_t i_max(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t i_min(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t u_div(int64_t a, int64_t b) { return b ? (int64_t)((uint64_t)a / (uint64_t)b) : 0; }
static int64_t u_rem(int64_t a, int64_t b) { return b ? (int64_t)((uint64_t)a % (uint64_t)b) : 0; }
static int64_t u_max(int64_t a, int64_t b) { return (uint64_t)a > (uint64_t)b ? a : b; }
static int64_t u_min(int64_t a, int64_t b) { return (uint64_t)a < (uint64_t)b ? a : b; }

static int64_t u_pow(int64_t a, int64_t b) {
  uint64_t base = (uint64_t)a, e = (uint64_t)b, r = 1;
  for (; e; e >>= 1, base *= base)
    if (e & 1) r *= base;
  return (int64_t)r;
}
/* A negative power is truncated like a quotient: nonzero only for 1 and -1. */
static int64_t i_pow(int64_t a, int64_t b) {
  if (b >= 0) return u_pow(a, b);
  return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
}

static int64_t i_and(int64_t a, int64_t b) { return a & b; }
static int64_t i_or(int64_t a, int64_t b) { return a | b; }
static int64_t i_xor(int64_t a, int64_t b) { return a ^ b; }

static const moec_scalar2 binary_table[MOEC_OP_COUNT] = {
    [MOEC_OP_ADD] = {f_add, i_add, NULL},  [MOEC_OP_SUB] = {f_sub, i_sub, NULL},
    [MOEC_OP_MUL] = {f_mul, i_mul, NULL},  [MOEC_OP_DIV] = {f_div, i_div, u_div},
    [MOEC_OP_POW] = {pow, i_pow, u_pow},   [MOEC_OP_MOD] = {f_mod, i_mod, u_rem},
    [MOEC_OP_REM] = {fmod, i_rem, u_rem},  [MOEC_OP_MAX] = {f_max, i_max, u_max},
    [MOEC_OP_MIN] = {f_min, i_min, u_min}, [MOEC_OP_AND] = {NULL, i_and, NULL},
    [MOEC_OP_OR] = {NULL, i_or, NULL},     [MOEC_OP_XOR] = {NULL, i_xor, NULL},
};

moec_scalar2 moec_scalar_binary(moec_op op) { return binary_table[op]; }

static moec_status *eval_binary(moec_step *s) {
  moec_scalar2 fn = binary_table[s->op];
  moec_dtype t = moec_step_dtype(s, 0);
  int64_t n = moec_tensor_numel(s->in[0]);
  if (moec_is_f64(s->in[0])) {
    const double *x = s->in[0]->data, *y = s->in[1]->data;
    double *z = s->out[0].data;
    if (!fn.f) return MOEC_RUN_ERROR("expected bool or integers, got %s", moec_dtype_get(t)->text);
    for (int64_t i = 0; i < n; i++) z[i] = fn.f(x[i], y[i]);
    return NULL;
  }
  const int64_t *x = s->in[0]->data, *y = s->in[1]->data;
  int64_t *z = s->out[0].data;
  int64_t (*f)(int64_t, int64_t) = t == MOEC_U64 && fn.u ? fn.u : fn.i;
  if (!f) return MOEC_BUG("no scalar function for integers");
  for (int64_t i = 0; i < n; i++) z[i] = f(x[i], y[i]);
  return NULL;
}

/* ---- comparisons -------------------------------------------------------------------------- */

/* All six follow from "less", "equal" and "greater"; NaN is none of the three. */
typedef struct relation {
  bool lt, eq, gt, unordered;
} relation;
static const relation relation_table[MOEC_OP_COUNT] = {
    [MOEC_OP_EQ] = {.eq = true}, [MOEC_OP_NE] = {.lt = true, .gt = true, .unordered = true},
    [MOEC_OP_LT] = {.lt = true}, [MOEC_OP_LE] = {.lt = true, .eq = true},
    [MOEC_OP_GT] = {.gt = true}, [MOEC_OP_GE] = {.gt = true, .eq = true},
};

static bool relate_f(relation r, double a, double b) {
  return a < b ? r.lt : a > b ? r.gt : a == b ? r.eq : r.unordered;
}
static bool relate_i(relation r, int64_t a, int64_t b) {
  return a < b ? r.lt : a > b ? r.gt : r.eq;
}
static bool relate_u(relation r, uint64_t a, uint64_t b) {
  return a < b ? r.lt : a > b ? r.gt : r.eq;
}

MOEC_KERNEL(compare) {
  if (s->op == MOEC_OP_ISNAN) return eval_class(s, is_nan);
  if (s->op == MOEC_OP_ISINF) return eval_class(s, is_inf);
  relation r = relation_table[s->op];
  int64_t n = moec_tensor_numel(s->in[0]), *z = s->out[0].data;
  if (moec_is_f64(s->in[0])) {
    const double *x = s->in[0]->data, *y = s->in[1]->data;
    for (int64_t i = 0; i < n; i++) z[i] = relate_f(r, x[i], y[i]);
    return NULL;
  }
  bool is_unsigned = moec_step_dtype(s, 0) == MOEC_U64;
  const int64_t *x = s->in[0]->data, *y = s->in[1]->data;
  for (int64_t i = 0; i < n; i++)
    z[i] = is_unsigned ? relate_u(r, (uint64_t)x[i], (uint64_t)y[i]) : relate_i(r, x[i], y[i]);
  return NULL;
}

/* Ops with one and with two operands share these inferences, by which kernels are found. */
MOEC_KERNEL(same) { return s->n_in == 1 ? eval_unary(s) : eval_binary(s); }
MOEC_KERNEL(logical) { return s->n_in == 1 ? eval_not(s) : eval_binary(s); }

/* ---- select, cast ------------------------------------------------------------------------- */

MOEC_KERNEL(select) {
  const int64_t *c = s->in[0]->data;
  const char *x = s->in[1]->data, *y = s->in[2]->data;
  char *z = s->out[0].data;
  int64_t n = moec_tensor_numel(s->in[0]);
  for (int64_t i = 0; i < n; i++) memcpy(z + i * 8, (c[i] ? x : y) + i * 8, 8);
  return NULL;
}

/* Integers to floats round once, to the target: by way of f64 there could be two roundings. */
static double int_to_float(moec_dtype from, moec_dtype to, int64_t v, bool exact) {
  uint64_t bytes = 0;
  if (from == MOEC_U64 && v < 0) return (double)(uint64_t)v;
  if (exact) return (double)v;
  moec_store_i64(to, &bytes, 0, v);
  return moec_load_f64(to, &bytes, 0);
}

static int64_t float_to_int(moec_dtype to, double v) {
  uint64_t bytes = 0;
  moec_store_f64(to, &bytes, 0, v);
  return moec_load_i64(to, &bytes, 0);
}

MOEC_KERNEL(cast) {
  moec_dtype from = moec_step_dtype(s, 0), to = moec_step_result(s, 0);
  bool in_f = moec_is_f64(s->in[0]), out_f = moec_is_f64(&s->out[0]);
  const void *x = s->in[0]->data;
  void *y = s->out[0].data;
  int64_t n = moec_tensor_numel(s->in[0]);
  if (in_f == out_f) {
    memcpy(y, x, (size_t)n * 8); /* cut or rounded with every other result */
    return NULL;
  }
  for (int64_t i = 0; i < n; i++) {
    if (out_f)
      ((double *)y)[i] = int_to_float(from, to, ((const int64_t *)x)[i], s->ip->options.f64);
    else
      ((int64_t *)y)[i] = float_to_int(to, ((const double *)x)[i]);
  }
  return NULL;
}

/* ---- widths of integers ------------------------------------------------------------------- */

int64_t moec_wrap_int(moec_dtype t, int64_t v) {
  uint64_t bytes = 0;
  moec_store_i64(t, &bytes, 0, v);
  return moec_load_i64(t, &bytes, 0);
}

int64_t moec_int_lowest(moec_dtype t) {
  const moec_dtype_info *i = moec_dtype_get(t);
  return i->cls == 'I' ? (int64_t)(UINT64_MAX << (8 * i->bytes - 1)) : 0;
}

int64_t moec_int_highest(moec_dtype t) {
  const moec_dtype_info *i = moec_dtype_get(t);
  if (i->cls == 'B') return 1;
  uint64_t ones = UINT64_MAX >> (64 - 8 * i->bytes);
  return (int64_t)(i->cls == 'I' ? ones >> 1 : ones);
}
