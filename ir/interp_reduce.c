/* Reductions, prefix sums, ordering. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/interp_internal.h"

/* ---- reductions --------------------------------------------------------------------------- */

typedef struct reduction {
  moec_op by;                   /* the binary op that folds */
  double f;                     /* of an empty range */
  int64_t (*limit)(moec_dtype); /* the same for integers: this, or */
  int64_t i;                    /* this */
} reduction;

static const reduction reduce_table[MOEC_OP_COUNT] = {
    [MOEC_OP_REDUCE_SUM] = {MOEC_OP_ADD, 0, NULL, 0},
    [MOEC_OP_REDUCE_PROD] = {MOEC_OP_MUL, 1, NULL, 1},
    [MOEC_OP_REDUCE_MAX] = {MOEC_OP_MAX, -INFINITY, moec_int_lowest, 0},
    [MOEC_OP_REDUCE_MIN] = {MOEC_OP_MIN, INFINITY, moec_int_highest, 0},
};

/* |x| with the reduced axes last, as [kept, reduced]: itself when they are last already. */
static moec_status *axes_last(moec_step *s, moec_ints axes, moec_tensor *scratch,
                              const void **out) {
  const moec_tensor *x = s->in[0];
  int64_t dense[MOEC_MAX_RANK], dims[MOEC_MAX_RANK], from[MOEC_MAX_RANK], to[MOEC_MAX_RANK];
  uint32_t n = 0, kept = x->rank - axes.n;
  bool reduced[MOEC_MAX_RANK] = {false};
  for (uint32_t i = 0; i < axes.n; i++) reduced[axes.v[i]] = true;
  *out = x->data;
  if (axes.n == 0 || axes.v[0] == (int64_t)kept) return NULL; /* they ascend */
  moec_dense_strides(x->rank, x->dims, dense);
  for (int pass = 0; pass < 2; pass++)
    for (uint32_t i = 0; i < x->rank; i++)
      if (reduced[i] == (pass == 1)) from[n] = dense[i], dims[n++] = x->dims[i];
  MOEC_TRY(moec_interp_new(s->ip, x->dtype, x->rank, dims, scratch));
  moec_dense_strides(x->rank, dims, to);
  moec_strided_copy(x->rank, dims, scratch->data, to, x->data, from);
  *out = scratch->data;
  return NULL;
}

MOEC_KERNEL(reduce) {
  moec_ints axes = ((const moec_attrs_REDUCE_SUM *)s->attrs)->axes; /* the four are alike */
  const reduction *r = &reduce_table[s->op];
  moec_scalar2 fn = moec_scalar_binary(r->by);
  moec_dtype t = moec_step_dtype(s, 0);
  moec_tensor scratch = {0};
  const void *x = NULL;
  MOEC_TRY(axes_last(s, axes, &scratch, &x));
  int64_t rows = moec_tensor_numel(&s->out[0]), n = 1;
  for (uint32_t i = 0; i < axes.n; i++) n *= s->in[0]->dims[axes.v[i]];
  if (moec_is_f64(s->in[0])) {
    const double *p = x;
    double *y = s->out[0].data;
    for (int64_t i = 0; i < rows; i++) {
      y[i] = r->f;
      for (int64_t k = 0; k < n; k++) y[i] = fn.f(y[i], p[i * n + k]);
    }
  } else {
    const int64_t *p = x;
    int64_t *y = s->out[0].data, empty = r->limit ? r->limit(t) : r->i;
    int64_t (*f)(int64_t, int64_t) = t == MOEC_U64 && fn.u ? fn.u : fn.i;
    for (int64_t i = 0; i < rows; i++) {
      y[i] = empty;
      for (int64_t k = 0; k < n; k++) y[i] = f(y[i], p[i * n + k]);
    }
  }
  moec_interp_free(s->ip, &scratch);
  return NULL;
}

/* ---- prefix sums -------------------------------------------------------------------------- */

MOEC_KERNEL(scan) {
  const moec_attrs_CUMSUM *a = s->attrs;
  const moec_tensor *x = s->in[0];
  uint32_t axis = (uint32_t)a->axis;
  int64_t outer = moec_span(x->dims, 0, axis), n = x->dims[axis];
  int64_t inner = moec_span(x->dims, axis + 1, x->rank);
  bool is_f64 = moec_is_f64(x);
  moec_scalar2 add = moec_scalar_binary(MOEC_OP_ADD);
  for (int64_t row = 0; row < outer * inner; row++) {
    double sum_f = 0;
    int64_t sum_i = 0, base = row / inner * n * inner + row % inner;
    for (int64_t k = 0; k < n; k++) {
      int64_t at = base + (a->reverse ? n - 1 - k : k) * inner;
      if (is_f64) {
        double v = ((const double *)x->data)[at], before = sum_f;
        sum_f += v;
        ((double *)s->out[0].data)[at] = a->exclusive ? before : sum_f;
      } else {
        int64_t v = ((const int64_t *)x->data)[at], before = sum_i;
        sum_i = add.i(sum_i, v);
        ((int64_t *)s->out[0].data)[at] = a->exclusive ? before : sum_i;
      }
    }
  }
  return NULL;
}

/* ---- ordering ----------------------------------------------------------------------------- */

/* Elements are ordered through keys: unsigned integers that ascend as the values do. NaN is the
 * largest of all, and -0 equals 0. */
typedef struct entry {
  uint64_t key;
  int64_t index;
} entry;

static uint64_t key_f(double v) {
  uint64_t bits;
  if (v != v) return UINT64_MAX;
  if (v == 0) v = 0; /* -0 */
  memcpy(&bits, &v, sizeof bits);
  return bits >> 63 ? ~bits : bits | 1ull << 63;
}

/* Falls by key when |largest|; of equal ones the lower index first. */
static int by_key(const void *a, const void *b, void *largest) {
  const entry *x = a, *y = b;
  if (x->key != y->key) return (x->key < y->key) == *(const bool *)largest ? 1 : -1;
  return x->index < y->index ? -1 : x->index > y->index;
}

static void fill_entries(const moec_step *s, int64_t base, int64_t n, int64_t inner, entry *row) {
  const moec_tensor *x = s->in[0];
  bool is_f64 = moec_is_f64(x);
  uint64_t flip = moec_step_dtype(s, 0) == MOEC_U64 ? 0 : 1ull << 63;
  for (int64_t i = 0; i < n; i++) {
    int64_t at = base + i * inner;
    row[i].index = i;
    row[i].key = is_f64 ? key_f(((const double *)x->data)[at])
                        : (uint64_t)((const int64_t *)x->data)[at] ^ flip;
  }
}

MOEC_KERNEL(topk) {
  const moec_attrs_TOPK *a = s->attrs;
  const moec_tensor *x = s->in[0];
  uint32_t axis = (uint32_t)a->axis;
  int64_t n = x->dims[axis], k = s->out[0].dims[axis], outer = moec_span(x->dims, 0, axis);
  int64_t inner = moec_span(x->dims, axis + 1, x->rank);
  if (k > n)
    return MOEC_RUN_ERROR("k = %lld exceeds axis %u of size %lld", (long long)k, axis,
                          (long long)n);
  entry *row = calloc((size_t)n + 1, sizeof *row);
  if (!row) return moec_error(MOEC_OUT_OF_MEMORY, "no memory to order %lld elements", (long long)n);
  char *values = s->out[0].data;
  int64_t *indices = s->out[1].data;
  bool largest = a->largest;
  for (int64_t r = 0; r < outer * inner; r++) {
    int64_t base = r / inner * n * inner + r % inner, to = r / inner * k * inner + r % inner;
    fill_entries(s, base, n, inner, row);
    qsort_r(row, (size_t)n, sizeof *row, by_key, &largest);
    for (int64_t j = 0; j < k; j++) {
      int64_t at = to + j * inner, from = base + row[j].index * inner;
      memcpy(values + at * 8, (const char *)x->data + from * 8, 8);
      indices[at] = row[j].index;
    }
  }
  free(row);
  return NULL;
}
