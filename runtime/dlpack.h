/* The binary interface of DLPack, versions 0 and 1: how libraries pass tensors to each other without
 * a copy. Layout and names are those of the public standard. */
#ifndef MOEC_RUNTIME_DLPACK_H
#define MOEC_RUNTIME_DLPACK_H

#include <stdint.h>

enum { MOEC_DL_MAJOR = 1, MOEC_DL_MINOR = 0 };
enum { MOEC_DL_CPU = 1 };        /* DLDeviceType */
enum { MOEC_DL_READ_ONLY = 1u }; /* flags */
enum moec_dl_code {
  MOEC_DL_INT,
  MOEC_DL_UINT,
  MOEC_DL_FLOAT,
  MOEC_DL_BFLOAT = 4,
  MOEC_DL_BOOL = 6
};

typedef struct DLPackVersion {
  uint32_t major, minor;
} DLPackVersion;

typedef struct DLDevice {
  int32_t device_type, device_id;
} DLDevice;

typedef struct DLDataType {
  uint8_t code, bits;
  uint16_t lanes;
} DLDataType;

typedef struct DLTensor {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides; /* in elements; NULL: row-major */
  uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned *self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;

#endif
