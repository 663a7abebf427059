#include "base/tensor.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/size.h"

moec_status *moec_shape_bytes(moec_dtype dtype, uint32_t rank, const int64_t *dims,
                              size_t *out_bytes) {
  *out_bytes = 0;
  size_t element = moec_dtype_get(dtype)->bytes;
  if (!element) return moec_error(MOEC_INVALID_ARGUMENT, "expected an element type, got none");
  if (rank > MOEC_MAX_RANK) {
    return moec_error(MOEC_INVALID_ARGUMENT, "expected a rank of at most %d, got %" PRIu32,
                      MOEC_MAX_RANK, rank);
  }
  /* Zeros are left out of the product that must not overflow: strides of an empty tensor are
   * products of its other dims. */
  int64_t bytes = (int64_t)element;
  bool empty = false;
  for (uint32_t i = 0; i < rank; i++) {
    if (dims[i] < 0) {
      return moec_error(MOEC_INVALID_ARGUMENT, "expected dim %" PRIu32 " >= 0, got %" PRId64, i,
                        dims[i]);
    }
    if (dims[i] == 0)
      empty = true;
    else if (!moec_mul_i64(bytes, dims[i], &bytes)) {
      return moec_error(MOEC_INVALID_ARGUMENT, "expected a tensor below 2^63 bytes, got more");
    }
  }
  if (!empty) *out_bytes = (size_t)bytes;
  return NULL;
}

moec_status *moec_tensor_init(moec_tensor *out, moec_dtype dtype, uint32_t rank,
                              const int64_t *dims) {
  *out = (moec_tensor){0};
  size_t bytes;
  MOEC_TRY(moec_shape_bytes(dtype, rank, dims, &bytes));
  void *data = calloc(1, bytes ? bytes : 1); /* empty tensors have data too: NULL means none */
  if (!data) {
    return moec_error(MOEC_OUT_OF_MEMORY, "no memory for a tensor of %zu bytes", bytes);
  }
  out->dtype = dtype;
  out->rank = rank;
  for (uint32_t i = 0; i < rank; i++) out->dims[i] = dims[i];
  out->data = data;
  return NULL;
}

void moec_tensor_fini(moec_tensor *t) {
  free(t->data);
  *t = (moec_tensor){0};
}

int64_t moec_tensor_numel(const moec_tensor *t) {
  return (int64_t)(moec_tensor_bytes(t) / (t->dtype ? moec_dtype_get(t->dtype)->bytes : 1));
}

size_t moec_tensor_bytes(const moec_tensor *t) {
  size_t bytes = 0;
  moec_status_free(moec_shape_bytes(t->dtype, t->rank, t->dims, &bytes));
  return bytes;
}
