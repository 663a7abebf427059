#include "runtime/ops.h"

#include <inttypes.h>
#include <stdio.h>

enum { MANY = INT32_MAX, MAX_SPATIAL = MOEC_PLAN_MAX_RANK - 2 };

/* ---- the integers of a step, checked on opening ------------------------------------------ */

static moec_status *check_flag(const moec_rt_record *r, const char *what, int64_t v, int64_t max) {
  if (v >= 0 && v <= max) return NULL;
  return moec_rt_bad(r, "%s: expected 0 to %" PRId64 ", got %" PRId64, what, max, v);
}

static moec_status *ints_gemm(const moec_rt_record *r, const int64_t *v, uint32_t n) {
  if (v[0] < 0 || v[0] > MOEC_PLAN_MAX_RANK || n != 8 + 3 * (uint64_t)v[0]) {
    return moec_rt_bad(r,
                       "gemm: expected 8 integers and 3 for each of at most %d batch axes, got "
                       "%u for %" PRId64 " axes",
                       MOEC_PLAN_MAX_RANK, n, v[0]);
  }
  for (uint32_t i = 1; i < n; i++) {
    if (v[i] < 0 || v[i] >= r->p->n_exprs) {
      return moec_rt_bad(r, "gemm: integer %u: expected an expression below %u, got %" PRId64, i,
                         r->p->n_exprs, v[i]);
    }
  }
  return NULL;
}

static moec_status *ints_conv(const moec_rt_record *r, const int64_t *v, uint32_t n) {
  if (v[0] < 0 || v[0] > MAX_SPATIAL || n != 2 + 4 * (uint64_t)v[0]) {
    return moec_rt_bad(r,
                       "conv: expected 2 integers and 4 for each of at most %d axes, got %u for "
                       "%" PRId64 " axes",
                       (int)MAX_SPATIAL, n, v[0]);
  }
  for (int64_t i = 0; i < v[0]; i++) {
    int64_t stride = v[1 + i], dilation = v[1 + 3 * v[0] + i];
    int64_t lo = v[1 + v[0] + i], hi = v[1 + 2 * v[0] + i];
    if (stride < 1 || stride > INT32_MAX || dilation < 1 || dilation > INT32_MAX ||
        lo < INT32_MIN || lo > INT32_MAX || hi < INT32_MIN || hi > INT32_MAX) {
      return moec_rt_bad(r,
                         "conv: axis %" PRId64
                         ": expected stride and dilation of at least 1, "
                         "got %" PRId64 " and %" PRId64,
                         i, stride, dilation);
    }
  }
  if (v[n - 1] < 1) return moec_rt_bad(r, "conv: expected 1 group or more, got %" PRId64, v[n - 1]);
  return NULL;
}

static moec_status *ints_cumsum(const moec_rt_record *r, const int64_t *v, uint32_t n) {
  (void)n;
  MOEC_TRY(check_flag(r, "axis", v[0], MOEC_PLAN_MAX_RANK - 1));
  MOEC_TRY(check_flag(r, "reverse", v[1], 1));
  return check_flag(r, "exclusive", v[2], 1);
}

static moec_status *ints_topk(const moec_rt_record *r, const int64_t *v, uint32_t n) {
  (void)n;
  MOEC_TRY(check_flag(r, "axis", v[0], MOEC_PLAN_MAX_RANK - 1));
  return check_flag(r, "largest", v[1], 1);
}

static moec_status *ints_scatter(const moec_rt_record *r, const int64_t *v, uint32_t n) {
  if (n == 2) MOEC_TRY(check_flag(r, "axis", v[0], MOEC_PLAN_MAX_RANK - 1));
  return check_flag(r, "reduction", v[n - 1], 4);
}

static moec_status *ints_random(const moec_rt_record *r, const int64_t *v, uint32_t n) {
  (void)n;
  return check_flag(r, "kind", v[0], 1);
}

static moec_status *ints_k(const moec_rt_record *r, const int64_t *v, uint32_t n) {
  (void)n;
  return v[0] >= 1 ? NULL : moec_rt_bad(r, "k: expected at least 1, got %" PRId64, v[0]);
}

static moec_status *ints_transposed(const moec_rt_record *r, const int64_t *v, uint32_t n) {
  (void)n;
  return check_flag(r, "transposed", v[0], 1);
}

static moec_status *ints_grouped_dot(const moec_rt_record *r, const int64_t *v, uint32_t n) {
  uint32_t results = r->p->steps[r->i].n_out;
  if (n != results) return moec_rt_bad(r, "grouped_dot: expected %u integers with as many results, got %u", results, n);
  MOEC_TRY(check_flag(r, "transposed", v[0], 1));
  return n == 1 ? NULL : check_flag(r, "activation", v[1], MOEC_ACTIVATION_FORMS - 1);
}

/* ---- the table --------------------------------------------------------------------------- */

#define TEXT(NAME, text) static const char text_##NAME[] = text;
MOEC_PLAN_STEPS(TEXT)
#undef TEXT

/* clang-format off */
/* OP(NAME, inputs: min, max, optional, outputs: min, max, optional, integers: min, max, check) */
#define LIBRARY_OPS(OP)                                                       \
  OP(COPY,             1, 1, 0,       1, 1, 0,  0, 0,    NULL)                \
  OP(GEMM,             2, 3, 1u << 2, 1, 1, 0,  8, MANY, ints_gemm)           \
  OP(CONV,             2, 2, 0,       1, 1, 0,  2, MANY, ints_conv)           \
  OP(CUMSUM,           1, 1, 0,       1, 1, 0,  3, 3,    ints_cumsum)         \
  OP(TOPK,             1, 1, 0,       2, 2, 3u, 2, 2,    ints_topk)           \
  OP(SCATTER_ELEMENTS, 3, 3, 1u << 0, 1, 1, 0,  2, 2,    ints_scatter)        \
  OP(SCATTER_ND,       3, 3, 1u << 0, 1, 1, 0,  1, 1,    ints_scatter)        \
  OP(RANDOM,           0, 0, 0,       1, 1, 0,  2, 2,    ints_random)         \
  OP(MOE_SELECT,       1, 1, 0,       1, 1, 0,  0, 0,    NULL)                \
  OP(MOE_PLAN,         1, 1, 0,       3, 3, 0,  0, 0,    NULL)                \
  OP(MOE_DISPATCH,     2, 3, 1u << 2, 1, 1, 0,  1, 1,    ints_k)              \
  OP(MOE_GROUPED_DOT,  3, 4, 1u << 3, 1, 2, 1u, 1, 2,    ints_grouped_dot)    \
  OP(MOE_WEIGHT,       3, 3, 0,       1, 1, 0,  0, 0,    NULL)                \
  OP(MOE_COMBINE,      2, 4, 3u << 2, 1, 1, 0,  1, 1,    ints_k)              \
  OP(MOE_GROUPED_OUTER, 3, 3, 0,      1, 1, 0,  0, 0,    NULL)                \
  OP(MOE_GROUP_SUM,    2, 2, 0,       1, 1, 0,  0, 0,    NULL)                \
  OP(LINEAR_CROSS_ENTROPY, 4, 4, 0,   4, 4, 7u, 2, 2,    ints_transposed)

static const moec_rt_op ops[MOEC_STEP_COUNT] = {
    [MOEC_STEP_KERNEL] = {.text = text_KERNEL, .max_in = MANY, .min_out = 1, .max_out = MANY},
#define ROW(NAME, min_in, max_in, opt_in, min_out, max_out, opt_out, min_ints, max_ints, ints)   \
    [MOEC_STEP_##NAME] = {text_##NAME, min_in, max_in, opt_in, min_out, max_out, opt_out,        \
                          min_ints, max_ints, ints, moec_rt_check_##NAME, moec_rt_run_##NAME},
    LIBRARY_OPS(ROW)
#undef ROW
};
/* clang-format on */
#define ONE(...) +1
_Static_assert(1 LIBRARY_OPS(ONE) == MOEC_STEP_COUNT, "a step of include/plan.h has no row here");
#undef ONE

const moec_rt_op *moec_rt_op_get(uint32_t op) { return &ops[op]; }

/* ---- what checks share ------------------------------------------------------------------- */

static moec_status *in_step(const moec_rt_call *c, moec_status *s) {
  return moec_context(s, "node \"%s\": %s", moec_rt_str(c->plan, c->step->where),
                      ops[c->step->op].text);
}

moec_status *moec_rt_mismatch(const moec_rt_call *c, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  moec_status *s = moec_errorv(MOEC_INVALID_MODEL, fmt, args);
  va_end(args);
  return in_step(c, s);
}

moec_status *moec_rt_op_error(const moec_rt_call *c, moec_code code, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  moec_status *s = moec_errorv(code, fmt, args);
  va_end(args);
  return in_step(c, s);
}

const char *moec_rt_shape_text(moec_dtype dtype, uint32_t rank, const int64_t *dims, char *out,
                               size_t size) {
  size_t n = (size_t)snprintf(out, size, "%s[", moec_dtype_get(dtype)->text);
  for (uint32_t i = 0; i < rank && n < size; i++) {
    n += (size_t)snprintf(out + n, size - n, i ? ", %" PRId64 : "%" PRId64, dims[i]);
  }
  if (n < size) snprintf(out + n, size - n, "]");
  return out;
}

moec_status *moec_rt_expect(const moec_rt_call *c, const char *what, const moec_tensor *t,
                            moec_dtype dtype, uint32_t rank, const int64_t *dims) {
  bool same = t->dtype == dtype && t->rank == rank;
  for (uint32_t i = 0; same && i < rank; i++) same = t->dims[i] == dims[i];
  if (same) return NULL;
  char want[MOEC_RT_SHAPE_TEXT], got[MOEC_RT_SHAPE_TEXT];
  return moec_rt_mismatch(c, "expected %s %s, got %s", what,
                          moec_rt_shape_text(dtype, rank, dims, want, sizeof want),
                          moec_rt_shape_text(t->dtype, t->rank, t->dims, got, sizeof got));
}

bool moec_rt_same_shape(const moec_tensor *a, const moec_tensor *b) {
  bool same = a->rank == b->rank;
  for (uint32_t i = 0; same && i < a->rank; i++) same = a->dims[i] == b->dims[i];
  return same;
}

moec_rt_axis moec_rt_axis_of(const moec_tensor *t, int64_t axis) {
  moec_rt_axis a = {1, t->dims[axis], 1};
  for (int64_t i = 0; i < axis; i++) a.outer *= t->dims[i];
  for (int64_t i = axis + 1; i < (int64_t)t->rank; i++) a.inner *= t->dims[i];
  return a;
}
