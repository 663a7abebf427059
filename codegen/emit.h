/* Kernel IR as source text. */
#ifndef MOEC_CODEGEN_EMIT_H
#define MOEC_CODEGEN_EMIT_H

#include "base/buf.h"
#include "codegen/kernel.h"

/* C text: types, helpers and math, once a file; then any number of kernels, each a
 * moec_kernel_fn named |symbol|. Same kernels, same bytes. */
void moec_emit_c_prelude(moec_buf *b);
void moec_emit_c_kernel(moec_buf *b, const moec_kernel *k, const char *symbol);

/* How a CUDA kernel is launched: the end of include/plan.h. */
typedef struct moec_cuda_launch {
  moec_dim rows, scratch;
  uint32_t threads, teams, shared;
} moec_cuda_launch;

/* CUDA text, in the same way; |a| keeps what the printer works out. UNSUPPORTED: attention of heads that are too large
 * for the memory of a block. */
void moec_emit_cuda_prelude(moec_buf *b);
moec_status *moec_emit_cuda_kernel(moec_buf *b, moec_arena *a, const moec_kernel *k, const char *symbol,
                                   moec_cuda_launch *out) MOEC_MUST_USE;

#endif
