/* Copies |n| elements between types. Strides are in elements. Floats round to nearest even;
 * everything else as moec_load_* and moec_store_* of base/dtype.h. |src| may be unaligned, |dst|
 * not. Thread-safe. */
#ifndef MOEC_RUNTIME_CONVERT_H
#define MOEC_RUNTIME_CONVERT_H

#include "base/dtype.h"

/* For functions whose loops should be vectorised: GCC does that for loops of unknown length from
 * -O3 on, clang always. */
#if defined(__GNUC__) && !defined(__clang__)
#define MOEC_RT_VECTOR __attribute__((optimize("O3")))
#else
#define MOEC_RT_VECTOR
#endif

void moec_rt_convert(moec_dtype to, void *dst, int64_t dst_stride, moec_dtype from, const void *src,
                     int64_t src_stride, int64_t n);

#endif
