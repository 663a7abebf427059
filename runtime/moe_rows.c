/* The movement of rows around the experts: dispatch copies each token's row to its assignments,
 * weight scales them, combine sums them back in one pass; a dispatch with weights, which is how the
 * gradient of the restore comes back, does both in one. Sums and products are f32 (f64 where the
 * rows are), rounded once. */
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "base/size.h"
#include "runtime/convert.h"
#include "runtime/ops.h"

typedef struct moving {
  const moec_rt_call *c;
  const moec_tensor *x, *w, *y; /* rows, weights or NULL, result */
  const int32_t *index;         /* perm or inv */
  int64_t n, k, width;          /* assignments, of each token, elements of a row */
  _Atomic bool wrong;           /* an index pointed outside */
} moving;

static moec_status *finish(const moving *m) {
  if (!atomic_load(&m->wrong)) return NULL;
  return moec_rt_op_error(m->c, MOEC_INVALID_ARGUMENT, "an index is out of range");
}

/* rows[n, width], where n is a multiple of k, and an index of n. */
static moec_status *check_rows(const moec_rt_call *c, const moec_tensor *rows, int64_t k,
                               const moec_tensor *index) {
  if (rows->rank != 2) return moec_rt_mismatch(c, "expected rows of rank 2, got %u", rows->rank);
  if (rows->dims[0] % k) {
    return moec_rt_mismatch(c, "expected a multiple of k = %" PRId64 " rows, got %" PRId64, k,
                            rows->dims[0]);
  }
  return moec_rt_expect(c, "an index", index, MOEC_I32, 1, rows->dims);
}

static moec_status *check_size(const moec_rt_call *c, const char *what, const moec_tensor *t,
                               int64_t times, int64_t want) {
  int64_t n;
  if (moec_mul_i64(moec_tensor_numel(t), times, &n) && n == want) return NULL;
  return moec_rt_mismatch(c, "expected %s of %" PRId64 " elements, got %" PRId64, what,
                          want / times, moec_tensor_numel(t));
}

static const uint8_t *row_at(const moec_tensor *t, int64_t row, int64_t width) {
  return (const uint8_t *)t->data + (size_t)(row * width) * moec_dtype_get(t->dtype)->bytes;
}

/* ---- rows times weights, sums of rows ------------------------------------------------------ */

enum { PART = 512 }; /* elements of a row worked on at a time: they stay in the first cache */

static double weight_at(const moec_tensor *w, int64_t i) {
  return w->dtype == MOEC_F32 ? (double)((const float *)w->data)[i]
                              : moec_load_f64(w->dtype, w->data, (size_t)i);
}

/* ROWS(type, dtype): the two loops in one type. wide_*() gives n elements of a row as that type: in
 * place or converted into |room|. */
#define ROWS(type, wide_dtype)                                                                    \
  static const type *wide_##type(const moec_tensor *t, int64_t row, int64_t width, int64_t from,  \
                                 int64_t n, type *room) {                                         \
    const uint8_t *at = row_at(t, row, width) + (size_t)from * moec_dtype_get(t->dtype)->bytes;   \
    if (t->dtype == wide_dtype) return (const type *)(const void *)at;                            \
    moec_rt_convert(wide_dtype, room, 1, t->dtype, at, 1, n);                                     \
    return room;                                                                                  \
  }                                                                                               \
                                                                                                  \
  static void store_##type(const moec_tensor *t, int64_t row, int64_t width, int64_t from,        \
                           int64_t n, const type *values) {                                       \
    uint8_t *at = (uint8_t *)(uintptr_t)row_at(t, row, width);                                    \
    moec_rt_convert(t->dtype, at + (size_t)from * moec_dtype_get(t->dtype)->bytes, 1, wide_dtype, \
                    values, 1, n);                                                                \
  }                                                                                               \
                                                                                                  \
  /* Row r is that of its token in a dispatch (k > 0), else row r. */                             \
  MOEC_RT_VECTOR static void weight_##type(void *ctx, int64_t begin, int64_t end, int thread) {   \
    (void)thread;                                                                                 \
    moving *m = ctx;                                                                              \
    type room[PART], product[PART];                                                               \
    for (int64_t r = begin; r < end; r++) {                                                       \
      int64_t a = m->index[r];                                                                    \
      if (a < 0 || a >= m->n) {                                                                   \
        atomic_store(&m->wrong, true);                                                            \
        return;                                                                                   \
      }                                                                                           \
      type f = (type)weight_at(m->w, a);                                                          \
      int64_t row = m->k ? a / m->k : r;                                                          \
      for (int64_t from = 0; from < m->width; from += PART) {                                     \
        int64_t n = m->width - from < PART ? m->width - from : PART;                              \
        const type *x = wide_##type(m->x, row, m->width, from, n, room);                          \
        for (int64_t i = 0; i < n; i++) product[i] = x[i] * f;                                    \
        store_##type(m->y, r, m->width, from, n, product);                                        \
      }                                                                                           \
    }                                                                                             \
  }                                                                                               \
                                                                                                  \
  /* Part [from, from + n) of token t into sum. */                                                \
  MOEC_RT_VECTOR static void sum_##type(const moving *m, int64_t t, int64_t from, int64_t n,      \
                                        type *sum) {                                              \
    type room[PART];                                                                              \
    for (int64_t i = 0; i < n; i++) sum[i] = 0;                                                   \
    for (int64_t slot = 0; slot < m->k; slot++) {                                                 \
      int64_t a = t * m->k + slot;                                                                \
      const type *x = wide_##type(m->x, m->index[a], m->width, from, n, room);                    \
      if (!m->w) {                                                                                \
        for (int64_t i = 0; i < n; i++) sum[i] += x[i];                                           \
        continue;                                                                                 \
      }                                                                                           \
      type f = (type)weight_at(m->w, a);                                                          \
      for (int64_t i = 0; i < n; i++) sum[i] += x[i] * f;                                         \
    }                                                                                             \
  }                                                                                               \
                                                                                                  \
  MOEC_RT_VECTOR static void combine_##type(void *ctx, int64_t begin, int64_t end, int thread) {  \
    (void)thread;                                                                                 \
    moving *m = ctx;                                                                              \
    const moec_tensor *residual = moec_rt_in(m->c, 3);                                            \
    type sum[PART], room[PART];                                                                   \
    for (int64_t t = begin; t < end; t++) {                                                       \
      if (!indices_fit(m, t)) return;                                                             \
      for (int64_t from = 0; from < m->width; from += PART) {                                     \
        int64_t n = m->width - from < PART ? m->width - from : PART;                              \
        sum_##type(m, t, from, n, sum);                                                           \
        if (residual) {                                                                           \
          const type *x = wide_##type(residual, t, m->width, from, n, room);                      \
          for (int64_t i = 0; i < n; i++) sum[i] += x[i];                                         \
        }                                                                                         \
        store_##type(m->y, t, m->width, from, n, sum);                                            \
      }                                                                                           \
    }                                                                                             \
  }

static bool indices_fit(moving *m, int64_t t) {
  for (int64_t slot = 0; slot < m->k; slot++) {
    int32_t row = m->index[t * m->k + slot];
    if (row >= 0 && row < m->n) continue;
    atomic_store(&m->wrong, true);
    return false;
  }
  return true;
}

ROWS(float, MOEC_F32)
ROWS(double, MOEC_F64)

static moec_status *check_floats(const moec_rt_call *c) {
  for (uint32_t i = 0; i < c->step->n_in; i++) {
    const moec_tensor *t = moec_rt_in(c, i);
    if (t && t->dtype != MOEC_I32 && !moec_dtype_is_float(t->dtype)) {
      return moec_rt_mismatch(c, "expected floats, got %s", moec_dtype_get(t->dtype)->text);
    }
  }
  return moec_dtype_is_float(moec_rt_out(c, 0)->dtype) &&
                 moec_dtype_is_float(moec_rt_in(c, 0)->dtype)
             ? NULL
             : moec_rt_mismatch(c, "expected rows of floats");
}

/* ---- dispatch ---------------------------------------------------------------------------- */

moec_status *moec_rt_check_MOE_DISPATCH(const moec_rt_call *c, moec_rt_need *need) {
  (void)need;
  const moec_tensor *x = moec_rt_in(c, 0), *w = moec_rt_in(c, 2), *rows = moec_rt_out(c, 0);
  MOEC_TRY(check_rows(c, rows, c->ints[0], moec_rt_in(c, 1)));
  if (x->dtype != rows->dtype) {
    return moec_rt_mismatch(c, "expected one type, got %s -> %s", moec_dtype_get(x->dtype)->text,
                            moec_dtype_get(rows->dtype)->text);
  }
  if (w) MOEC_TRY(check_floats(c));
  if (w) MOEC_TRY(check_size(c, "weights", w, 1, rows->dims[0]));
  return check_size(c, "x", x, c->ints[0], moec_tensor_numel(rows));
}

static void dispatch(void *ctx, int64_t begin, int64_t end, int thread) {
  (void)thread;
  moving *m = ctx;
  size_t bytes = (size_t)m->width * moec_dtype_get(m->x->dtype)->bytes;
  for (int64_t r = begin; r < end; r++) {
    int64_t a = m->index[r];
    if (a < 0 || a >= m->n) {
      atomic_store(&m->wrong, true);
      return;
    }
    memcpy((uint8_t *)m->y->data + (size_t)r * bytes,
           (uint8_t *)m->x->data + (size_t)(a / m->k) * bytes, bytes);
  }
}

moec_status *moec_rt_run_MOE_DISPATCH(const moec_rt_call *c) {
  const moec_tensor *rows = moec_rt_out(c, 0);
  moving m = {.c = c,
              .x = moec_rt_in(c, 0),
              .w = moec_rt_in(c, 2),
              .y = rows,
              .index = moec_rt_in(c, 1)->data,
              .n = rows->dims[0],
              .k = c->ints[0],
              .width = rows->dims[1]};
  if (m.width == 0) return NULL;
  moec_rt_range_fn scaled = rows->dtype == MOEC_F64 ? weight_double : weight_float;
  moec_rt_parallel_for(c->pool, m.n, moec_rt_grain(m.width), m.w ? scaled : dispatch, &m);
  return finish(&m);
}

/* ---- weight and combine ------------------------------------------------------------------ */

moec_status *moec_rt_check_MOE_WEIGHT(const moec_rt_call *c, moec_rt_need *need) {
  (void)need;
  const moec_tensor *rows = moec_rt_in(c, 0);
  MOEC_TRY(check_rows(c, rows, 1, moec_rt_in(c, 2)));
  MOEC_TRY(check_floats(c));
  MOEC_TRY(check_size(c, "weights", moec_rt_in(c, 1), 1, rows->dims[0]));
  return moec_rt_expect(c, "a result", moec_rt_out(c, 0), rows->dtype, 2, rows->dims);
}

moec_status *moec_rt_run_MOE_WEIGHT(const moec_rt_call *c) {
  const moec_tensor *rows = moec_rt_in(c, 0);
  moving m = {.c = c,
              .x = rows,
              .w = moec_rt_in(c, 1),
              .y = moec_rt_out(c, 0),
              .index = moec_rt_in(c, 2)->data,
              .n = rows->dims[0],
              .width = rows->dims[1]};
  moec_rt_parallel_for(c->pool, m.n, moec_rt_grain(m.width),
                       rows->dtype == MOEC_F64 ? weight_double : weight_float, &m);
  return finish(&m);
}

moec_status *moec_rt_check_MOE_COMBINE(const moec_rt_call *c, moec_rt_need *need) {
  (void)need;
  const moec_tensor *rows = moec_rt_in(c, 0), *w = moec_rt_in(c, 2), *residual = moec_rt_in(c, 3);
  const moec_tensor *y = moec_rt_out(c, 0);
  MOEC_TRY(check_rows(c, rows, c->ints[0], moec_rt_in(c, 1)));
  MOEC_TRY(check_floats(c));
  if (y->dtype != rows->dtype && (y->dtype != MOEC_F32 || rows->dtype == MOEC_F64))
    return moec_rt_mismatch(c, "expected the type of the rows or a wider f32, got %s -> %s",
                            moec_dtype_get(rows->dtype)->text, moec_dtype_get(y->dtype)->text);
  if (w) MOEC_TRY(check_size(c, "weights", w, 1, rows->dims[0]));
  if (residual) MOEC_TRY(moec_rt_expect(c, "a residual", residual, y->dtype, y->rank, y->dims));
  return check_size(c, "a result", y, c->ints[0], moec_tensor_numel(rows));
}

moec_status *moec_rt_run_MOE_COMBINE(const moec_rt_call *c) {
  const moec_tensor *rows = moec_rt_in(c, 0);
  moving m = {.c = c,
              .x = rows,
              .w = moec_rt_in(c, 2),
              .y = moec_rt_out(c, 0),
              .index = moec_rt_in(c, 1)->data,
              .n = rows->dims[0],
              .k = c->ints[0],
              .width = rows->dims[1]};
  moec_rt_parallel_for(c->pool, m.n / m.k, moec_rt_grain(m.width * m.k),
                       rows->dtype == MOEC_F64 ? combine_double : combine_float, &m);
  return finish(&m);
}
