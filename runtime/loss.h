/* linear_cross_entropy, chunk by chunk: what the processor and a CUDA device have in common. */
#ifndef MOEC_RUNTIME_LOSS_H
#define MOEC_RUNTIME_LOSS_H

#include "runtime/gemm.h"
#include "runtime/ops.h"

typedef struct moec_rt_loss {
  const moec_tensor *x, *w, *labels, *scale, *nll, *dx, *dw, *room; /* nll, dx, dw: NULL: not wanted */
  int64_t tokens, hidden, vocabulary, chunk, lead, ignore;
  bool transposed;
} moec_rt_loss;

moec_rt_loss moec_rt_loss_of(const moec_rt_call *c);

/* For |rows| tokens from |first| on, in this order: logits from x, then (with their gradients in the same place) the
 * rows of dx, then dw, to which all chunks but the first add. False: that one is not wanted. */
typedef enum moec_rt_loss_product { MOEC_RT_LOGITS, MOEC_RT_LOSS_DX, MOEC_RT_LOSS_DW } moec_rt_loss_product;
bool moec_rt_loss_gemm(const moec_rt_loss *l, moec_rt_loss_product which, int64_t first, int64_t rows,
                       moec_rt_gemm *out);

#endif
