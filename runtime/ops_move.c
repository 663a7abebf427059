/* copy and cumsum. */
#include <inttypes.h>
#include <string.h>

#include "runtime/ops.h"

/* ---- copy -------------------------------------------------------------------------------- */

moec_status *moec_rt_check_COPY(const moec_rt_call *c, moec_rt_need *need) {
  (void)need;
  size_t from = moec_tensor_bytes(moec_rt_in(c, 0)), to = moec_tensor_bytes(moec_rt_out(c, 0));
  if (from == to) return NULL;
  return moec_rt_mismatch(c, "expected operands of equal bytes, got %zu and %zu", from, to);
}

enum { COPY_CHUNK = 1 << 16 };

static void copy_chunks(void *ctx, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const moec_rt_call *c = ctx;
  size_t total = moec_tensor_bytes(moec_rt_in(c, 0)), from = (size_t)begin * COPY_CHUNK;
  size_t to = (size_t)end * COPY_CHUNK;
  memcpy((uint8_t *)moec_rt_out(c, 0)->data + from, (uint8_t *)moec_rt_in(c, 0)->data + from,
         (to < total ? to : total) - from);
}

moec_status *moec_rt_run_COPY(const moec_rt_call *c) {
  size_t total = moec_tensor_bytes(moec_rt_in(c, 0));
  if (moec_rt_in(c, 0)->data == moec_rt_out(c, 0)->data) return NULL;
  moec_rt_parallel_for(c->pool, (int64_t)((total + COPY_CHUNK - 1) / COPY_CHUNK), 1, copy_chunks,
                       (void *)(uintptr_t)c);
  return NULL;
}

/* ---- cumsum ------------------------------------------------------------------------------ */

enum { AXIS, REVERSE, EXCLUSIVE };

moec_status *moec_rt_check_CUMSUM(const moec_rt_call *c, moec_rt_need *need) {
  (void)need;
  const moec_tensor *x = moec_rt_in(c, 0);
  if (c->ints[AXIS] >= (int64_t)x->rank) {
    return moec_rt_mismatch(c, "expected an axis below %u, got %" PRId64, x->rank, c->ints[AXIS]);
  }
  if (x->dtype == MOEC_BOOL) return moec_rt_mismatch(c, "expected numbers, got bool");
  return moec_rt_expect(c, "a result", moec_rt_out(c, 0), x->dtype, x->rank, x->dims);
}

/* One line along the axis; sums are rounded only where they are stored. */
static void scan_line(const moec_rt_call *c, int64_t first, int64_t n, int64_t step) {
  const moec_tensor *x = moec_rt_in(c, 0), *y = moec_rt_out(c, 0);
  bool floats = moec_dtype_is_float(x->dtype), exclusive = c->ints[EXCLUSIVE] != 0;
  double sum = 0;
  uint64_t count = 0;
  if (c->ints[REVERSE]) {
    first += (n - 1) * step;
    step = -step;
  }
  for (int64_t i = 0; i < n; i++) {
    size_t at = (size_t)(first + i * step);
    double before = sum;
    uint64_t count_before = count;
    if (floats) {
      sum += moec_load_f64(x->dtype, x->data, at);
      moec_store_f64(y->dtype, y->data, at, exclusive ? before : sum);
    } else {
      count += (uint64_t)moec_load_i64(x->dtype, x->data, at);
      moec_store_i64(y->dtype, y->data, at, (int64_t)(exclusive ? count_before : count));
    }
  }
}

static void scan_lines(void *ctx, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const moec_rt_call *c = ctx;
  moec_rt_axis a = moec_rt_axis_of(moec_rt_in(c, 0), c->ints[AXIS]);
  for (int64_t i = begin; i < end; i++) {
    scan_line(c, i / a.inner * a.n * a.inner + i % a.inner, a.n, a.inner);
  }
}

moec_status *moec_rt_run_CUMSUM(const moec_rt_call *c) {
  moec_rt_axis a = moec_rt_axis_of(moec_rt_in(c, 0), c->ints[AXIS]);
  moec_rt_parallel_for(c->pool, a.outer * a.inner, moec_rt_grain(a.n * 8), scan_lines,
                       (void *)(uintptr_t)c);
  return NULL;
}
