/* Elementwise operations on expressions, and what is known about them without running. Rules keep
 * NaN, infinities and the sign of zero. */
#include <math.h>

#include "codegen/kernel_build.h"

static bool num(const moec_kpool *p, moec_kx e, double *v) {
  const moec_kx_node *n = moec_kx_get(p, e);
  *v = n->num;
  return n->kind == MOEC_KX_NUM;
}

static bool is_num(const moec_kpool *p, moec_kx e, double v) {
  double have;
  return num(p, e, &have) && have == v && signbit(have) == signbit(v);
}

/* A constant size. */
static bool constant(const moec_kpool *p, moec_kx e, int64_t *v) {
  const moec_kx_node *n = moec_kx_get(p, e);
  return n->kind == MOEC_KX_SUM && n->n_args == 0 && moec_dim_is_const(p->m, n->dim, v);
}

/* ---- floats --------------------------------------------------------------------------------- */

static moec_kx fold_float(moec_kpool *p, moec_op op, moec_dtype t, const moec_kx *a, uint32_t n) {
  double x = 0, y = 0, r;
  if (!num(p, a[0], &x) || (n > 1 && !num(p, a[1], &y))) return (moec_kx){0};
  switch (op) {
    case MOEC_OP_ADD: r = x + y; break;
    case MOEC_OP_SUB: r = x - y; break;
    case MOEC_OP_MUL: r = x * y; break;
    case MOEC_OP_DIV: r = x / y; break;
    case MOEC_OP_NEG: r = -x; break;
    case MOEC_OP_ABS: r = fabs(x); break;
    case MOEC_OP_SQRT: r = sqrt(x); break;
    case MOEC_OP_RECIP: r = 1 / x; break;
    default: return (moec_kx){0};
  }
  return moec_kx_num(p, t, t == MOEC_F32 ? (double)(float)r : r);
}

static moec_kx simplify_float(moec_kpool *p, moec_op op, moec_dtype t, const moec_kx *a) {
  switch (op) {
    case MOEC_OP_MUL:
      if (is_num(p, a[0], 1)) return a[1];
      return is_num(p, a[1], 1) ? a[0] : (moec_kx){0};
    case MOEC_OP_DIV: return is_num(p, a[1], 1) ? a[0] : (moec_kx){0};
    case MOEC_OP_ADD:
      return is_num(p, a[1], -0.0) ? a[0] : is_num(p, a[0], -0.0) ? a[1] : (moec_kx){0};
    case MOEC_OP_SUB: return is_num(p, a[1], 0) ? a[0] : (moec_kx){0};
    case MOEC_OP_POW:
      if (is_num(p, a[1], 1)) return a[0];
      if (is_num(p, a[1], 2)) return moec_kx_apply(p, MOEC_OP_MUL, t, 2, (moec_kx[]){a[0], a[0]});
      return (moec_kx){0};
    default: return (moec_kx){0};
  }
}

/* ---- integers ------------------------------------------------------------------------------- */

/* Arithmetic on integers of known range stays in normal form: iota, sizes and constants are small,
 * so it doesn't wrap. */
static moec_kx ranged_int(moec_kpool *p, moec_op op, const moec_kx *a, uint32_t n) {
  int64_t v;
  for (uint32_t i = 0; i < n; i++)
    if (!moec_kx_ranged(p, a[i])) return (moec_kx){0};
  moec_dim one = moec_dim_const(p->m, 1);
  switch (op) {
    case MOEC_OP_ADD: return moec_kx_add(p, a[0], a[1]);
    case MOEC_OP_SUB: return moec_kx_sub(p, a[0], a[1]);
    case MOEC_OP_NEG: return moec_kx_scale(p, a[0], moec_dim_const(p->m, -1));
    case MOEC_OP_MUL:
      if (moec_kx_get(p, a[0])->n_args == 0 && moec_kx_get(p, a[0])->kind == MOEC_KX_SUM)
        return moec_kx_scale(p, a[1], moec_kx_get(p, a[0])->dim);
      if (moec_kx_get(p, a[1])->n_args == 0 && moec_kx_get(p, a[1])->kind == MOEC_KX_SUM)
        return moec_kx_scale(p, a[0], moec_kx_get(p, a[1])->dim);
      return (moec_kx){0};
    case MOEC_OP_DIV:
    case MOEC_OP_MOD:
    case MOEC_OP_REM:
      if (!constant(p, a[1], &v) || v < 1) return (moec_kx){0};
      if (op != MOEC_OP_MOD && moec_kx_decide(p, MOEC_OP_GE, a[0], moec_kx_i64(p, 0)) != 1)
        return (moec_kx){0};
      return op == MOEC_OP_DIV ? moec_kx_div(p, a[0], moec_dim_const(p->m, v))
                               : moec_kx_mod(p, a[0], moec_dim_const(p->m, v));
    case MOEC_OP_MAX:
    case MOEC_OP_MIN: {
      int less = moec_kx_decide(p, MOEC_OP_LT, a[0],
                                moec_kx_add(p, a[1], moec_kx_size(p, one))); /* a0 <= a1 */
      if (less < 0) return (moec_kx){0};
      return (less == 1) == (op == MOEC_OP_MIN) ? a[0] : a[1];
    }
    default: return (moec_kx){0};
  }
}

static moec_kx simplify_bool(moec_kpool *p, moec_op op, const moec_kx *a) {
  bool all = op == MOEC_OP_AND; /* the neutral element of and is true, of or and xor false */
  if (op == MOEC_OP_NOT) {
    for (int v = 0; v < 2; v++)
      if (moec_kx_is_bool(p, a[0], v)) return moec_kx_bool(p, !v);
    return (moec_kx){0};
  }
  if (op != MOEC_OP_AND && op != MOEC_OP_OR && op != MOEC_OP_XOR) return (moec_kx){0};
  for (int i = 0; i < 2; i++) {
    if (moec_kx_is_bool(p, a[i], all)) return a[1 - i];
    if (op != MOEC_OP_XOR && moec_kx_is_bool(p, a[i], !all)) return a[i];
  }
  return op != MOEC_OP_XOR && moec_kx_eq(a[0], a[1]) ? a[0] : (moec_kx){0};
}

/* ---- casts ---------------------------------------------------------------------------------- */

static bool is_index_dtype(moec_dtype t) { return t == MOEC_I64 || t == MOEC_I32; }

static moec_kx simplify_cast(moec_kpool *p, moec_dtype to, moec_kx x) {
  const moec_kx_node *n = moec_kx_get(p, x);
  bool half = to == MOEC_F16 || to == MOEC_BF16;
  int64_t c;
  double v;
  if (n->dtype == to && !half) return x;
  if (half && n->kind == MOEC_KX_APPLY && n->op == MOEC_OP_CAST && n->num_i == (int64_t)to)
    return x;
  if (is_index_dtype(to) && moec_kx_ranged(p, x)) return x; /* positions fit in either */
  if (moec_dtype_is_float(to) && constant(p, x, &c) && !half)
    return moec_kx_num(p, to, to == MOEC_F32 ? (double)(float)c : (double)c);
  if (num(p, x, &v) && to == MOEC_F32) return moec_kx_num(p, to, (double)(float)v);
  if (num(p, x, &v) && to == MOEC_F64) return moec_kx_num(p, to, v);
  if (num(p, x, &v) && half) {
    uint16_t bits;
    moec_store_f64(to, &bits, 0, v);
    return moec_kx_num(p, MOEC_F32, moec_load_f64(to, &bits, 0));
  }
  return (moec_kx){0};
}

/* ---- all ops -------------------------------------------------------------------------------- */

static moec_kx simplify(moec_kpool *p, moec_op op, moec_dtype t, uint32_t n, const moec_kx *a) {
  moec_kx r = {0};
  moec_op_class cls = moec_op_cls(op);
  if (cls == MOEC_CLASS_CAST) return simplify_cast(p, t, a[0]);
  if (cls == MOEC_CLASS_SELECT) {
    if (moec_kx_is_bool(p, a[0], true) || moec_kx_eq(a[1], a[2])) return a[1];
    return moec_kx_is_bool(p, a[0], false) ? a[2] : r;
  }
  if (cls == MOEC_CLASS_COMPARE) {
    if (!moec_kx_ranged(p, a[0]) || !moec_kx_ranged(p, a[1])) return r;
    int known = moec_kx_decide(p, op, a[0], a[1]);
    return known < 0 ? r : moec_kx_bool(p, known);
  }
  if (t == MOEC_BOOL) return n ? simplify_bool(p, op, a) : r;
  if (!moec_dtype_is_float(t)) return ranged_int(p, op, a, n);
  r = fold_float(p, op, t, a, n);
  return r.i ? r : simplify_float(p, op, t, a);
}

moec_kx moec_kx_apply(moec_kpool *p, moec_op op, moec_dtype t, uint32_t n, const moec_kx *args) {
  moec_kx r = simplify(p, op, t, n, args);
  if (r.i) return r;
  moec_kx_node node = {
      .kind = MOEC_KX_APPLY, .op = op, .dtype = moec_kx_dtype(t), .n_args = n, .args = args};
  if (op == MOEC_OP_CAST) node.num_i = (int64_t)t; /* rounds to half precision stay visible */
  return moec_kx_intern(p, node);
}
