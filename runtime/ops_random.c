/* random: the numbers of docs/ir.md. Element i of a seed depends on nothing else. */
#include "base/random.h"
#include "runtime/ops.h"

enum { KIND, SEED };

moec_status *moec_rt_check_RANDOM(const moec_rt_call *c, moec_rt_need *need) {
  (void)need;
  moec_dtype t = moec_rt_out(c, 0)->dtype;
  if (moec_dtype_is_float(t)) return NULL;
  return moec_rt_mismatch(c, "expected floats, got %s", moec_dtype_get(t)->text);
}

static void draw(void *ctx, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const moec_rt_call *c = ctx;
  const moec_tensor *y = moec_rt_out(c, 0);
  for (int64_t i = begin; i < end; i++) {
    double r = moec_random(y->dtype, c->ints[KIND], c->ints[SEED], i);
    moec_store_f64(y->dtype, y->data, (size_t)i, r);
  }
}

moec_status *moec_rt_run_RANDOM(const moec_rt_call *c) {
  moec_rt_parallel_for(c->pool, moec_tensor_numel(moec_rt_out(c, 0)), moec_rt_grain(16), draw,
                       (void *)(uintptr_t)c);
  return NULL;
}
