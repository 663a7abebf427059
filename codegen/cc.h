/* Running the system's C compiler on emitted text. */
#ifndef MOEC_CODEGEN_CC_H
#define MOEC_CODEGEN_CC_H

#include "base/buf.h"
#include "base/status.h"

/* The instruction set emitted kernels are compiled for and need at run time: "x86-64-v3", or
 * "baseline" on other processors. */
const char *moec_cc_cpu(void);

/* Compiles |source| to a shared object, appended to |out|. Works in a temporary folder of its own with
 * relative names, so that no path gets into the result. */
moec_status *moec_cc_shared(const char *source, moec_buf *out) MOEC_MUST_USE;

#endif
