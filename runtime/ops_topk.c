/* topk: the k first of each line along an axis, in order. */
#include <inttypes.h>

#include "runtime/convert.h"
#include "runtime/ops.h"
#include "runtime/order.h"

enum { AXIS, LARGEST };

static const moec_tensor *any_result(const moec_rt_call *c) {
  return moec_rt_out(c, 0) ? moec_rt_out(c, 0) : moec_rt_out(c, 1);
}

moec_status *moec_rt_check_TOPK(const moec_rt_call *c, moec_rt_need *need) {
  const moec_tensor *x = moec_rt_in(c, 0), *y = any_result(c);
  int64_t axis = c->ints[AXIS], dims[MOEC_MAX_RANK];
  if (axis >= (int64_t)x->rank) {
    return moec_rt_mismatch(c, "expected an axis below %u, got %" PRId64, x->rank, axis);
  }
  if (!y) return NULL;
  int64_t k = y->rank == x->rank ? y->dims[axis] : -1;
  if (k < 0 || k > x->dims[axis]) {
    return moec_rt_op_error(c, MOEC_INVALID_ARGUMENT,
                            "expected k of at most %" PRId64 ", got %" PRId64, x->dims[axis], k);
  }
  for (uint32_t i = 0; i < x->rank; i++) dims[i] = i == axis ? k : x->dims[i];
  const moec_tensor *values = moec_rt_out(c, 0), *indices = moec_rt_out(c, 1);
  if (values) MOEC_TRY(moec_rt_expect(c, "values", values, x->dtype, x->rank, dims));
  if (indices) MOEC_TRY(moec_rt_expect(c, "indices", indices, MOEC_I64, x->rank, dims));
  need->thread = moec_rt_top_scratch(x->dims[axis], k);
  return NULL;
}

static void select_lines(void *ctx, int64_t begin, int64_t end, int thread) {
  const moec_rt_call *c = ctx;
  const moec_tensor *x = moec_rt_in(c, 0), *values = moec_rt_out(c, 0),
                    *indices = moec_rt_out(c, 1);
  moec_rt_axis a = moec_rt_axis_of(x, c->ints[AXIS]);
  int64_t k = any_result(c)->dims[c->ints[AXIS]], bytes = (int64_t)moec_dtype_get(x->dtype)->bytes;
  for (int64_t i = begin; i < end; i++) {
    const uint8_t *line = (uint8_t *)x->data + (i / a.inner * a.n * a.inner + i % a.inner) * bytes;
    int64_t to = i / a.inner * k * a.inner + i % a.inner;
    moec_rt_item *best;
    moec_rt_top(x->dtype, line, a.inner, a.n, k, c->ints[LARGEST] != 0, moec_rt_scratch(c, thread),
                &best);
    for (int64_t j = 0; j < k; j++, to += a.inner) {
      if (indices) ((int64_t *)indices->data)[to] = best[j].index;
      if (values) {
        moec_rt_convert(x->dtype, (uint8_t *)values->data + to * bytes, 1, x->dtype,
                        line + best[j].index * a.inner * bytes, 1, 1);
      }
    }
  }
}

moec_status *moec_rt_run_TOPK(const moec_rt_call *c) {
  if (!any_result(c)) return NULL;
  moec_rt_axis a = moec_rt_axis_of(moec_rt_in(c, 0), c->ints[AXIS]);
  moec_rt_parallel_for(c->pool, a.outer * a.inner, moec_rt_grain(a.n * 8), select_lines,
                       (void *)(uintptr_t)c);
  return NULL;
}
