/* NVIDIA's run-time compiler, loaded when it is needed: nothing links it, and it needs no GPU. */
#ifndef MOEC_CODEGEN_NVRTC_H
#define MOEC_CODEGEN_NVRTC_H

#include "base/buf.h"
#include "base/status.h"

/* Compiles CUDA text to a cubin for |arch|, "sm_90a", appended to |out|. The library is the file $MOEC_NVRTC, else
 * libnvrtc.so.13, .12 or libnvrtc.so where the loader finds them; UNSUPPORTED where it finds none. |how|, if not NULL,
 * gets version and options: "nvrtc 13.0 --gpu-architecture=sm_90a ...". The same text, version and architecture give
 * the same bytes. */
moec_status *moec_nvrtc_cubin(const char *source, const char *arch, moec_buf *out, moec_buf *how) MOEC_MUST_USE;

#endif
