/* Kernel IR as source text. */
#ifndef MOEC_CODEGEN_EMIT_H
#define MOEC_CODEGEN_EMIT_H

#include "base/buf.h"
#include "codegen/kernel.h"

/* C text: types, helpers and math, once a file; then any number of kernels, each a
 * moec_kernel_fn named |symbol|. Same kernels, same bytes. */
void moec_emit_c_prelude(moec_buf *b);
void moec_emit_c_kernel(moec_buf *b, const moec_kernel *k, const char *symbol);

#endif
