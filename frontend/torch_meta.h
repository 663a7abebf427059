/* What torch.onnx.export says about initializers. It writes, as metadata of a value_info with the initializer's name,
 * which kind of input of the exported program it was. The schema moec is built with (1.12) doesn't know the field. */
#ifndef MOEC_FRONTEND_TORCH_META_H
#define MOEC_FRONTEND_TORCH_META_H

#include "onnx.pb-c.h"

typedef enum moec_torch_kind {
  MOEC_TORCH_UNKNOWN,   /* no metadata: another exporter, or a tensor that an optimiser made */
  MOEC_TORCH_PARAMETER, /* torch.nn.Parameter */
  MOEC_TORCH_OTHER      /* buffers and constants */
} moec_torch_kind;

moec_torch_kind moec_torch_kind_of(const Onnx__ValueInfoProto *v);

#endif
