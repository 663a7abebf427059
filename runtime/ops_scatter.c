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
static void update(const moec_tensor *y, int64_t to, const moec_tensor *u, int64_t from, int64_t n, int64_t how) {
  moec_dtype t = y->dtype;
  size_t bytes = moec_dtype_get(t)->bytes;
  if (how == ASSIGN) {
    memcpy((uint8_t *)y->data + (size_t)to * bytes, (uint8_t *)u->data + (size_t)from * bytes, (size_t)n * bytes);
    return;
  }
  if (how == ADD && t == MOEC_F32) { /* gradients */
    float *restrict a = (float *)y->data + to;
    const float *restrict b = (const float *)u->data + from;
    for (int64_t i = 0; i < n; i++) a[i] += b[i];
    return;
  }
  bool floats = moec_dtype_is_float(t), is_unsigned = moec_dtype_get(t)->cls != 'I';
  for (int64_t i = 0; i < n; i++) {
    size_t a = (size_t)(to + i), b = (size_t)(from + i);
    if (floats) {
      moec_store_f64(t, y->data, a, combine_f(how, moec_load_f64(t, y->data, a), moec_load_f64(t, u->data, b)));
    } else {
      int64_t x = moec_load_i64(t, y->data, a);
      moec_store_i64(t, y->data, a, combine_i(how, x, moec_load_i64(t, u->data, b), is_unsigned));
    }
  }
}

/* x, or y of the same type and shape where x, being zeros, is left out. */
static const moec_tensor *shape_of(const moec_rt_call *c) {
  const moec_tensor *x = moec_rt_in(c, 0);
  return x ? x : moec_rt_out(c, 0);
}

static moec_status *check_common(const moec_rt_call *c) {
  const moec_tensor *x = shape_of(c), *i = moec_rt_in(c, 1), *u = moec_rt_in(c, 2);
  if (!is_index(i->dtype) || u->dtype != x->dtype) {
    return moec_rt_mismatch(c, "expected indices i64 or i32 and updates %s, got %s and %s",
                            moec_dtype_get(x->dtype)->text, moec_dtype_get(i->dtype)->text,
                            moec_dtype_get(u->dtype)->text);
  }
  return moec_rt_expect(c, "a result", moec_rt_out(c, 0), x->dtype, x->rank, x->dims);
}

/* ---- where it begins: x ------------------------------------------------------------------- */

enum { PAGE = 4096 };

static void copy_pages(void *ctx, int64_t begin, int64_t end, int thread) {
  const moec_rt_call *c = ctx;
  const moec_tensor *x = moec_rt_in(c, 0), *y = moec_rt_out(c, 0);
  size_t bytes = moec_tensor_bytes(y), at = (size_t)begin * PAGE, to = (size_t)end * PAGE;
  (void)thread;
  if (to > bytes) to = bytes;
  if (x) memcpy((uint8_t *)y->data + at, (const uint8_t *)x->data + at, to - at);
  else memset((uint8_t *)y->data + at, 0, to - at);
}

static void copy_x(const moec_rt_call *c) {
  const moec_tensor *x = moec_rt_in(c, 0), *y = moec_rt_out(c, 0);
  if (x && x->data == y->data) return;
  int64_t pages = (int64_t)((moec_tensor_bytes(y) + PAGE - 1) / PAGE);
  moec_rt_parallel_for(c->pool, pages, 16, copy_pages, (void *)(uintptr_t)c);
}

static moec_status *out_of_range(const moec_rt_call *c, int64_t at) {
  const moec_tensor *i = moec_rt_in(c, 1);
  return moec_rt_op_error(c, MOEC_INVALID_ARGUMENT, "an index is out of range: %" PRId64,
                          moec_load_i64(i->dtype, i->data, (size_t)at));
}

/* ---- scatter_elements --------------------------------------------------------------------
 * Elements that differ in another axis than the one that is indexed never meet: lines along it are independent. A task
 * takes a range of (outer, inner) positions, and goes along the axis in order. */

moec_status *moec_rt_check_SCATTER_ELEMENTS(const moec_rt_call *c, moec_rt_need *need) {
  (void)need;
  MOEC_TRY(check_common(c));
  const moec_tensor *x = shape_of(c), *i = moec_rt_in(c, 1);
  int64_t axis = c->ints[0];
  bool fits = axis < (int64_t)x->rank && i->rank == x->rank;
  for (uint32_t a = 0; fits && a < x->rank; a++) fits = a == axis || i->dims[a] <= x->dims[a];
  if (!fits) return moec_rt_mismatch(c, "expected indices inside x but for axis %" PRId64, axis);
  return moec_rt_expect(c, "updates", moec_rt_in(c, 2), x->dtype, i->rank, i->dims);
}

/* The offset in |y| of row-major position |at| on axes from .. to-1 of |i|, the other axes being 0. */
static int64_t offset(const moec_tensor *i, const moec_tensor *y, uint32_t from, uint32_t to, int64_t at) {
  int64_t r = 0, stride = 1;
  for (uint32_t a = y->rank; a-- > to;) stride *= y->dims[a];
  for (uint32_t a = to; a-- > from; stride *= y->dims[a]) {
    r += at % i->dims[a] * stride;
    at /= i->dims[a];
  }
  return r;
}

static void scatter_lines(void *ctx, int64_t begin, int64_t end, int thread) {
  const moec_rt_call *c = ctx;
  const moec_tensor *i = moec_rt_in(c, 1), *u = moec_rt_in(c, 2), *y = moec_rt_out(c, 0);
  uint32_t axis = (uint32_t)c->ints[0];
  moec_rt_axis from = moec_rt_axis_of(i, axis), to = moec_rt_axis_of(y, axis);
  (void)thread;
  while (begin < end) { /* one outer position at a time, so that inner ones are neighbours */
    int64_t outer = begin / from.inner, first = begin % from.inner, last = first + (end - begin);
    if (last > from.inner) last = from.inner;
    int64_t base = offset(i, y, 0, axis, outer);
    for (int64_t k = 0; k < from.n; k++)
      for (int64_t p = first; p < last; p++) {
        int64_t e = (outer * from.n + k) * from.inner + p;
        int64_t inner = from.inner == to.inner ? p : offset(i, y, axis + 1, y->rank, p);
        update(y, base + read_index(i, e, to.n) * to.inner + inner, u, e, 1, c->ints[1]);
      }
    begin += last - first;
  }
}

moec_status *moec_rt_run_SCATTER_ELEMENTS(const moec_rt_call *c) {
  const moec_tensor *i = moec_rt_in(c, 1), *y = moec_rt_out(c, 0);
  moec_rt_axis a = moec_rt_axis_of(i, c->ints[0]);
  int64_t n = moec_tensor_numel(i);
  for (int64_t e = 0; e < n; e++)
    if (read_index(i, e, y->dims[c->ints[0]]) < 0) return out_of_range(c, e);
  copy_x(c);
  if (n) moec_rt_parallel_for(c->pool, a.outer * a.inner, moec_rt_grain(a.n * 8), scatter_lines, (void *)(uintptr_t)c);
  return NULL;
}

/* ---- scatter_nd --------------------------------------------------------------------------
 * Rows of updates go to rows of y, several maybe to one. A task takes a strip of columns and all rows in order: no two
 * write the same element, whatever the indices, and the order of a sum is that of the rows. */

moec_status *moec_rt_check_SCATTER_ND(const moec_rt_call *c, moec_rt_need *need) {
  MOEC_TRY(check_common(c));
  const moec_tensor *x = shape_of(c), *i = moec_rt_in(c, 1);
  int64_t dims[2 * MOEC_MAX_RANK], q = i->rank ? i->dims[i->rank - 1] : -1, rows = 1;
  if (q < 0 || q > (int64_t)x->rank) {
    return moec_rt_mismatch(c, "expected indices of at most %u axes, got %" PRId64, x->rank, q);
  }
  uint32_t rank = 0;
  for (uint32_t a = 0; a + 1 < i->rank; a++) {
    dims[rank++] = i->dims[a];
    if (!moec_mul_i64(rows, i->dims[a], &rows)) return moec_rt_mismatch(c, "got more rows than can be counted");
  }
  for (uint32_t a = (uint32_t)q; a < x->rank; a++) dims[rank++] = x->dims[a];
  if (rank > MOEC_MAX_RANK) return moec_rt_mismatch(c, "got updates of rank %u", rank);
  need->shared = (uint64_t)rows * sizeof(int64_t);
  return moec_rt_expect(c, "updates", moec_rt_in(c, 2), x->dtype, rank, dims);
}

typedef struct strips {
  const moec_rt_call *c;
  const int64_t *target; /* by row of the updates: where it begins in y */
  int64_t rows, size;    /* elements of a row */
} strips;

static void scatter_strip(void *ctx, int64_t begin, int64_t end, int thread) {
  const strips *s = ctx;
  (void)thread;
  for (int64_t r = 0; r < s->rows; r++)
    update(moec_rt_out(s->c, 0), s->target[r] + begin, moec_rt_in(s->c, 2), r * s->size + begin, end - begin,
           s->c->ints[0]);
}

moec_status *moec_rt_run_SCATTER_ND(const moec_rt_call *c) {
  enum { STRIP = 64 }; /* elements, at least: a few lines of memory */
  const moec_tensor *i = moec_rt_in(c, 1), *y = moec_rt_out(c, 0);
  int64_t q = i->dims[i->rank - 1], *target = (int64_t *)(void *)c->shared;
  strips s = {c, target, 1, 1};
  for (uint32_t a = 0; a + 1 < i->rank; a++) s.rows *= i->dims[a];
  for (uint32_t a = (uint32_t)q; a < y->rank; a++) s.size *= y->dims[a];
  for (int64_t r = 0; r < s.rows; r++) {
    int64_t to = 0;
    for (int64_t a = 0; a < q; a++) {
      int64_t index = read_index(i, r * q + a, y->dims[a]);
      if (index < 0) return out_of_range(c, r * q + a);
      to = to * y->dims[a] + index;
    }
    target[r] = to * s.size;
  }
  copy_x(c);
  int64_t grain = moec_rt_grain(s.rows);
  moec_rt_parallel_for(c->pool, s.size, grain < STRIP ? STRIP : grain, scatter_strip, &s);
  return NULL;
}
