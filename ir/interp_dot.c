/* Contractions. Operands of a dot are brought to x[B, M, K] and y[B, K, N], then multiplied with
 * the innermost loop along N: sums run over k in ascending order and compilers vectorise it. */
#include <math.h>
#include <string.h>

#include "ir/interp_internal.h"

/* ---- dot ---------------------------------------------------------------------------------- */

/* Axes of one operand in the order batch, free, contracted (or batch, contracted, free). */
typedef struct operand {
  uint32_t order[MOEC_MAX_RANK], n;
  int64_t batch, free, contract; /* sizes */
} operand;

static void add_axes(operand *o, const moec_tensor *t, moec_ints axes, int64_t *size) {
  *size = 1;
  for (uint32_t i = 0; i < axes.n; i++) {
    o->order[o->n++] = (uint32_t)axes.v[i];
    *size *= t->dims[axes.v[i]];
  }
}

static operand arrange(const moec_tensor *t, moec_ints batch, moec_ints contract, bool free_last) {
  operand o = {.n = 0};
  int64_t rest[MOEC_MAX_RANK];
  moec_ints free = {0, rest};
  for (uint32_t i = 0; i < t->rank; i++) {
    bool used = false;
    for (uint32_t k = 0; k < batch.n; k++) used = used || batch.v[k] == (int64_t)i;
    for (uint32_t k = 0; k < contract.n; k++) used = used || contract.v[k] == (int64_t)i;
    if (!used) rest[free.n++] = (int64_t)i;
  }
  add_axes(&o, t, batch, &o.batch);
  if (!free_last) add_axes(&o, t, free, &o.free);
  add_axes(&o, t, contract, &o.contract);
  if (free_last) add_axes(&o, t, free, &o.free);
  return o;
}

static bool in_order(const operand *o) {
  for (uint32_t i = 0; i < o->n; i++)
    if (o->order[i] != i) return false;
  return true;
}

/* The operand's elements in its order: where they lie when that is the order already, else in
 * |scratch|. */
static moec_status *pack(moec_interp *ip, const moec_tensor *t, const operand *o,
                         moec_tensor *scratch, const void **out) {
  int64_t dense[MOEC_MAX_RANK], dims[MOEC_MAX_RANK], from[MOEC_MAX_RANK], to[MOEC_MAX_RANK];
  *out = t->data;
  if (in_order(o)) return NULL;
  moec_dense_strides(t->rank, t->dims, dense);
  for (uint32_t i = 0; i < t->rank; i++) {
    dims[i] = t->dims[o->order[i]];
    from[i] = dense[o->order[i]];
  }
  MOEC_TRY(moec_interp_new(ip, t->dtype, t->rank, dims, scratch));
  moec_dense_strides(t->rank, dims, to);
  moec_strided_copy(t->rank, dims, scratch->data, to, t->data, from);
  *out = scratch->data;
  return NULL;
}

/* z[M, N] += x[M, K] y[K, N]: four k at a time to touch z less, each sum still in order of k. */
static void multiply_f(int64_t m, int64_t n, int64_t k, const double *x, const double *y,
                       double *restrict z) {
  for (int64_t i = 0; i < m; i++, z += n, x += k) {
    int64_t p = 0;
    for (; p + 4 <= k; p += 4) {
      const double a = x[p], b = x[p + 1], c = x[p + 2], d = x[p + 3], *q = y + p * n;
      for (int64_t j = 0; j < n; j++)
        z[j] = (((z[j] + a * q[j]) + b * q[n + j]) + c * q[2 * n + j]) + d * q[3 * n + j];
    }
    for (; p < k; p++)
      for (int64_t j = 0; j < n; j++) z[j] += x[p] * y[p * n + j];
  }
}

/* The same for y[N, K]: for few rows, whose y is not worth a transposed copy. */
static void multiply_transposed_f(int64_t m, int64_t n, int64_t k, const double *x, const double *y,
                                  double *restrict z) {
  for (int64_t i = 0; i < m; i++, z += n, x += k) {
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) {
      const double *q = y + j * k;
      double a = 0, b = 0, c = 0, d = 0;
      for (int64_t p = 0; p < k; p++) {
        a += x[p] * q[p];
        b += x[p] * q[k + p];
        c += x[p] * q[2 * k + p];
        d += x[p] * q[3 * k + p];
      }
      z[j] = a, z[j + 1] = b, z[j + 2] = c, z[j + 3] = d;
    }
    for (; j < n; j++)
      for (int64_t p = 0; p < k; p++) z[j] += x[p] * y[j * k + p];
  }
}

static void multiply_i(int64_t m, int64_t n, int64_t k, const int64_t *x, const int64_t *y,
                       int64_t *restrict z) {
  moec_scalar2 add = moec_scalar_binary(MOEC_OP_ADD), mul = moec_scalar_binary(MOEC_OP_MUL);
  for (int64_t i = 0; i < m; i++)
    for (int64_t p = 0; p < k; p++)
      for (int64_t j = 0; j < n; j++)
        z[i * n + j] = add.i(z[i * n + j], mul.i(x[i * k + p], y[p * n + j]));
}

static moec_status *check_pairs(const moec_step *s, moec_ints lhs, moec_ints rhs,
                                const char *what) {
  for (uint32_t i = 0; i < lhs.n; i++) {
    int64_t a = s->in[0]->dims[lhs.v[i]], b = s->in[1]->dims[rhs.v[i]];
    if (a != b)
      return MOEC_RUN_ERROR("%s axes %lld and %lld: expected equal sizes, got %lld and %lld", what,
                            (long long)lhs.v[i], (long long)rhs.v[i], (long long)a, (long long)b);
  }
  return NULL;
}

static void multiply_all(const moec_step *s, const operand *x, const operand *y, bool transposed,
                         const void *a, const void *b) {
  int64_t m = x->free, n = y->free, k = x->contract;
  for (int64_t i = 0; i < x->batch; i++) {
    int64_t xo = i * m * k, yo = i * n * k, zo = i * m * n;
    if (!moec_is_f64(s->in[0]))
      multiply_i(m, n, k, (const int64_t *)a + xo, (const int64_t *)b + yo,
                 (int64_t *)s->out[0].data + zo);
    else if (transposed)
      multiply_transposed_f(m, n, k, (const double *)a + xo, (const double *)b + yo,
                            (double *)s->out[0].data + zo);
    else
      multiply_f(m, n, k, (const double *)a + xo, (const double *)b + yo,
                 (double *)s->out[0].data + zo);
  }
}

MOEC_KERNEL(dot) {
  const moec_attrs_DOT *a = s->attrs;
  moec_tensor x_copy = {0}, y_copy = {0};
  const void *x = NULL, *y = NULL;
  MOEC_TRY(check_pairs(s, a->lhs_batch, a->rhs_batch, "batch"));
  MOEC_TRY(check_pairs(s, a->lhs_contract, a->rhs_contract, "contracted"));
  operand l = arrange(s->in[0], a->lhs_batch, a->lhs_contract, false);
  operand r = arrange(s->in[1], a->rhs_batch, a->rhs_contract, true);
  bool transposed = l.free < 4 && moec_is_f64(s->in[0]) && !in_order(&r);
  if (transposed) r = arrange(s->in[1], a->rhs_batch, a->rhs_contract, false);
  moec_status *e = pack(s->ip, s->in[0], &l, &x_copy, &x);
  if (!e) e = pack(s->ip, s->in[1], &r, &y_copy, &y);
  if (!e) multiply_all(s, &l, &r, transposed, x, y);
  moec_interp_free(s->ip, &x_copy);
  moec_interp_free(s->ip, &y_copy);
  return e;
}

/* ---- conv --------------------------------------------------------------------------------- */

/* Where kernel element |tap| of output position |at| reads in the input's space; -1: padding. */
static int64_t input_offset(const moec_attrs_CONV *a, const moec_tensor *x, const int64_t *at,
                            const int64_t *tap) {
  int64_t off = 0;
  for (uint32_t i = 0; i + 2 < x->rank; i++) {
    int64_t p = at[i] * a->strides.v[i] + tap[i] * a->dilations.v[i] - a->pads.v[i];
    if (p < 0 || p >= x->dims[i + 2]) return -1;
    off = off * x->dims[i + 2] + p;
  }
  return off;
}

/* Integers are summed as doubles too: exact up to 2^53. */
static double conv_one(const moec_step *s, int64_t image, int64_t channel, const int64_t *at) {
  const moec_attrs_CONV *a = s->attrs;
  const moec_tensor *x = s->in[0], *w = s->in[1];
  int64_t per_group = w->dims[1], group = channel / (w->dims[0] / a->groups);
  int64_t x_space = moec_span(x->dims, 2, x->rank), w_space = moec_span(w->dims, 2, w->rank);
  int64_t tap[MOEC_MAX_RANK] = {0}, number = 0;
  double sum = 0;
  if (w_space == 0) return 0;
  do {
    int64_t off = input_offset(a, x, at, tap);
    for (int64_t c = 0; off >= 0 && c < per_group; c++) {
      int64_t xi = ((image * x->dims[1]) + group * per_group + c) * x_space + off;
      int64_t wi = (channel * per_group + c) * w_space + number;
      sum += moec_load_f64(x->dtype, x->data, (size_t)xi) *
             moec_load_f64(w->dtype, w->data, (size_t)wi);
    }
    number++;
  } while (moec_next_index(w->rank - 2, w->dims + 2, tap));
  return sum;
}

MOEC_KERNEL(conv) {
  const moec_attrs_CONV *a = s->attrs;
  const moec_tensor *x = s->in[0], *w = s->in[1], *y = &s->out[0];
  if (w->dtype != x->dtype) return MOEC_RUN_ERROR("expected operands of one kind of number");
  if (x->dims[1] != w->dims[1] * a->groups || w->dims[0] % a->groups != 0)
    return MOEC_RUN_ERROR("%lld channels and %lld filters of %lld do not make %lld groups",
                          (long long)x->dims[1], (long long)w->dims[0], (long long)w->dims[1],
                          (long long)a->groups);
  int64_t n = moec_tensor_numel(y), number = 0, index[MOEC_MAX_RANK] = {0};
  if (n == 0) return NULL;
  do {
    double v = conv_one(s, index[0], index[1], index + 2);
    if (moec_is_f64(y))
      ((double *)y->data)[number++] = v;
    else
      ((int64_t *)y->data)[number++] = (int64_t)v;
  } while (moec_next_index(y->rank, y->dims, index));
  return NULL;
}
