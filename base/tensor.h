/* A dense row-major host tensor: what .npy and .safetensors files, the interpreter and the
 * runtime exchange. */
#ifndef MOEC_BASE_TENSOR_H
#define MOEC_BASE_TENSOR_H

#include "base/dtype.h"
#include "base/status.h"

#define MOEC_MAX_RANK 12

typedef struct moec_tensor {
  moec_dtype dtype;
  uint32_t rank;
  int64_t dims[MOEC_MAX_RANK];
  void *data; /* owned when made by moec_tensor_init; else borrowed, as the maker says */
} moec_tensor;

/* Zeroed data for the given shape; fails on overflow, negative dims or missing memory. */
moec_status *moec_tensor_init(moec_tensor *out, moec_dtype dtype, uint32_t rank,
                              const int64_t *dims) MOEC_MUST_USE;
void moec_tensor_fini(moec_tensor *t); /* frees data, zeroes the record */
int64_t moec_tensor_numel(const moec_tensor *t);
size_t moec_tensor_bytes(const moec_tensor *t);
/* Bytes of a shape, checked. */
moec_status *moec_shape_bytes(moec_dtype dtype, uint32_t rank, const int64_t *dims,
                              size_t *out_bytes) MOEC_MUST_USE;

/* .npy, versions 1 to 3, C order, little endian. Reading refuses fortran order, objects,
 * big endian data and any file whose size does not fit its header. bf16 and f16 tensors are
 * written as f32. |*out| owns its data. Writing goes through a temporary file and rename. */
moec_status *moec_npy_read(const char *path, moec_tensor *out) MOEC_MUST_USE;
moec_status *moec_npy_write(const char *path, const moec_tensor *t) MOEC_MUST_USE;

#endif
