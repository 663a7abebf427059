/* linear_cross_entropy on the device: for each chunk of tokens three products, and between the first and the others a
 * kernel that makes losses of logits and gradients in their place. */
#include "runtime/cuda.h"
#include "runtime/loss.h"

/* An empty sum is 0; a product with no elements is nothing. */
static moec_status *multiply(moec_model *m, const moec_rt_loss *l, moec_rt_loss_product which, int64_t first,
                             int64_t rows) {
  moec_rt_gemm g;
  if (!moec_rt_loss_gemm(l, which, first, rows, &g)) return NULL;
  if (g.m && g.n && g.k) return moec_rt_cuda_multiply(m, &g);
  uint64_t bytes = (uint64_t)(g.m * g.y_rows) * moec_dtype_get(g.y_dtype)->bytes;
  return bytes && !g.accumulate ? m->device->fill(m, g.y, 0, bytes) : NULL;
}

static moec_status *run_chunk(moec_model *m, const moec_rt_call *c, const moec_rt_loss *l, int64_t first,
                              int64_t rows) {
  void *logits = l->room->data;
  const int64_t *labels = (const int64_t *)l->labels->data + first;
  const float *scale = (const float *)l->scale->data + first;
  float *nll = l->nll ? (float *)l->nll->data + first : NULL;
  int64_t v = l->vocabulary, lead = l->lead, ignore = l->ignore;
  int32_t *fault = moec_rt_cuda_fault(m, c->step);
  void *parameters[] = {&logits, &labels, &scale, &nll, &rows, &v, &lead, &ignore, &fault};
  MOEC_TRY(multiply(m, l, MOEC_RT_LOGITS, first, rows));
  MOEC_TRY(moec_rt_cuda_launch(m, "loss", l->x->dtype, rows, 1, parameters));
  MOEC_TRY(multiply(m, l, MOEC_RT_LOSS_DX, first, rows));
  return multiply(m, l, MOEC_RT_LOSS_DW, first, rows);
}

moec_status *moec_rt_cuda_loss(moec_model *m, const moec_rt_call *c) {
  moec_rt_loss l = moec_rt_loss_of(c);
  if (!l.tokens && l.dw) MOEC_TRY(m->device->fill(m, l.dw->data, 0, moec_tensor_bytes(l.dw)));
  for (int64_t t = 0; t < l.tokens; t += l.chunk)
    MOEC_TRY(run_chunk(m, c, &l, t, l.tokens - t < l.chunk ? l.tokens - t : l.chunk));
  return NULL;
}
