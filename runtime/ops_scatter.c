/* scatter_elements and scatter_nd: x with some elements replaced by, or combined with, updates.
 * Updates are applied in row-major order: of several to one place the last assignment wins, and
 * sums have one order. */
#include <inttypes.h>
#include <string.h>

#include "base/size.h"
#include "runtime/convert.h"
#include "runtime/ops.h"

enum { ASSIGN, ADD, MUL, MAX, MIN };

static bool is_index(moec_dtype t) { return t == MOEC_I64 || t == MOEC_I32; }

/* The index at |at|, counted from the end where negative; -1 where out of range. */
static int64_t read_index(const moec_tensor *i, int64_t at, int64_t size) {
  int64_t v =
      i->dtype == MOEC_I64 ? ((const int64_t *)i->data)[at] : ((const int32_t *)i->data)[at];
  if (v < 0) v += size;
  return v >= 0 && v < size ? v : -1;
}

static double combine_f(int64_t how, double a, double b) {
  switch (how) {
    case ADD: return a + b;
    case MUL: return a * b;
    case MAX: return a != a || a > b ? a : b; /* NaN where either is */
    default: return a != a || a < b ? a : b;
  }
}

static int64_t combine_i(int64_t how, int64_t a, int64_t b, bool is_unsigned) {
  bool above = is_unsigned ? (uint64_t)a > (uint64_t)b : a > b;
  switch (how) {
    case ADD: return (int64_t)((uint64_t)a + (uint64_t)b);
    case MUL: return (int64_t)((uint64_t)a * (uint64_t)b);
    case MAX: return above ? a : b;
    default: return above ? b : a;
  }
}

/* y[to .. to + n) = those elements combined with u[from .. from + n). */
static void update(const moec_tensor *y, int64_t to, const moec_tensor *u, int64_t from, int64_t n,
                   int64_t how) {
  moec_dtype t = y->dtype;
  size_t bytes = moec_dtype_get(t)->bytes;
  if (how == ASSIGN) {
    memcpy((uint8_t *)y->data + (size_t)to * bytes, (uint8_t *)u->data + (size_t)from * bytes,
           (size_t)n * bytes);
    return;
  }
  bool floats = moec_dtype_is_float(t), is_unsigned = moec_dtype_get(t)->cls != 'I';
  for (int64_t i = 0; i < n; i++) {
    size_t a = (size_t)(to + i), b = (size_t)(from + i);
    if (floats) {
      moec_store_f64(t, y->data, a,
                     combine_f(how, moec_load_f64(t, y->data, a), moec_load_f64(t, u->data, b)));
    } else {
      moec_store_i64(
          t, y->data, a,
          combine_i(how, moec_load_i64(t, y->data, a), moec_load_i64(t, u->data, b), is_unsigned));
    }
  }
}

static moec_status *check_common(const moec_rt_call *c) {
  const moec_tensor *x = moec_rt_in(c, 0), *i = moec_rt_in(c, 1), *u = moec_rt_in(c, 2);
  if (!is_index(i->dtype) || u->dtype != x->dtype) {
    return moec_rt_mismatch(c, "expected indices i64 or i32 and updates %s, got %s and %s",
                            moec_dtype_get(x->dtype)->text, moec_dtype_get(i->dtype)->text,
                            moec_dtype_get(u->dtype)->text);
  }
  return moec_rt_expect(c, "a result", moec_rt_out(c, 0), x->dtype, x->rank, x->dims);
}

static void copy_x(const moec_rt_call *c) {
  const moec_tensor *x = moec_rt_in(c, 0), *y = moec_rt_out(c, 0);
  if (x->data != y->data) memcpy(y->data, x->data, moec_tensor_bytes(x));
}

static moec_status *out_of_range(const moec_rt_call *c, int64_t at) {
  const moec_tensor *i = moec_rt_in(c, 1);
  return moec_rt_op_error(c, MOEC_INVALID_ARGUMENT, "an index is out of range: %" PRId64,
                          moec_load_i64(i->dtype, i->data, (size_t)at));
}

/* ---- scatter_elements -------------------------------------------------------------------- */

moec_status *moec_rt_check_SCATTER_ELEMENTS(const moec_rt_call *c, moec_rt_need *need) {
  (void)need;
  MOEC_TRY(check_common(c));
  const moec_tensor *x = moec_rt_in(c, 0), *i = moec_rt_in(c, 1);
  int64_t axis = c->ints[0];
  bool fits = axis < (int64_t)x->rank && i->rank == x->rank;
  for (uint32_t a = 0; fits && a < x->rank; a++) fits = a == axis || i->dims[a] <= x->dims[a];
  if (!fits) return moec_rt_mismatch(c, "expected indices inside x but for axis %" PRId64, axis);
  return moec_rt_expect(c, "updates", moec_rt_in(c, 2), x->dtype, i->rank, i->dims);
}

moec_status *moec_rt_run_SCATTER_ELEMENTS(const moec_rt_call *c) {
  const moec_tensor *x = moec_rt_in(c, 0), *i = moec_rt_in(c, 1), *u = moec_rt_in(c, 2);
  const moec_tensor *y = moec_rt_out(c, 0);
  int64_t axis = c->ints[0], how = c->ints[1], n = moec_tensor_numel(i);
  int64_t at[MOEC_MAX_RANK] = {0}, step[MOEC_MAX_RANK], stride = 1;
  for (uint32_t a = x->rank; a-- > 0; stride *= x->dims[a]) step[a] = stride;
  copy_x(c);
  for (int64_t e = 0; e < n; e++) {
    int64_t index = read_index(i, e, x->dims[axis]), to = 0;
    if (index < 0) return out_of_range(c, e);
    for (uint32_t a = 0; a < x->rank; a++) to += (a == axis ? index : at[a]) * step[a];
    update(y, to, u, e, 1, how);
    for (uint32_t a = x->rank; a-- > 0;) {
      if (++at[a] < i->dims[a]) break;
      at[a] = 0;
    }
  }
  return NULL;
}

/* ---- scatter_nd -------------------------------------------------------------------------- */

moec_status *moec_rt_check_SCATTER_ND(const moec_rt_call *c, moec_rt_need *need) {
  (void)need;
  MOEC_TRY(check_common(c));
  const moec_tensor *x = moec_rt_in(c, 0), *i = moec_rt_in(c, 1);
  int64_t dims[2 * MOEC_MAX_RANK], q = i->rank ? i->dims[i->rank - 1] : -1;
  if (q < 0 || q > (int64_t)x->rank) {
    return moec_rt_mismatch(c, "expected indices of at most %u axes, got %" PRId64, x->rank, q);
  }
  uint32_t rank = 0;
  for (uint32_t a = 0; a + 1 < i->rank; a++) dims[rank++] = i->dims[a];
  for (uint32_t a = (uint32_t)q; a < x->rank; a++) dims[rank++] = x->dims[a];
  if (rank > MOEC_MAX_RANK) return moec_rt_mismatch(c, "got updates of rank %u", rank);
  return moec_rt_expect(c, "updates", moec_rt_in(c, 2), x->dtype, rank, dims);
}

moec_status *moec_rt_run_SCATTER_ND(const moec_rt_call *c) {
  const moec_tensor *x = moec_rt_in(c, 0), *i = moec_rt_in(c, 1), *u = moec_rt_in(c, 2);
  const moec_tensor *y = moec_rt_out(c, 0);
  int64_t q = i->dims[i->rank - 1], rows = 1, size = 1;
  for (uint32_t a = 0; a + 1 < i->rank; a++) rows *= i->dims[a];
  for (uint32_t a = (uint32_t)q; a < x->rank; a++) size *= x->dims[a];
  copy_x(c);
  for (int64_t r = 0; r < rows; r++) {
    int64_t to = 0;
    for (int64_t a = 0; a < q; a++) {
      int64_t index = read_index(i, r * q + a, x->dims[a]);
      if (index < 0) return out_of_range(c, r * q + a);
      to = to * x->dims[a] + index;
    }
    update(y, to * size, u, r * size, size, c->ints[0]);
  }
  return NULL;
}
