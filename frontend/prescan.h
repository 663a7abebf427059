/* A look at the wire format before protobuf-c unpacks it. protobuf-c recurses without a limit, turns strings
 * with NULs into shorter ones, and makes ~100 bytes of memory from 2 bytes of file; so depth, counts,
 * lengths and strings are checked first, iteratively. */
#ifndef MOEC_FRONTEND_PRESCAN_H
#define MOEC_FRONTEND_PRESCAN_H

#include <protobuf-c/protobuf-c.h>

#include "base/arena.h"
#include "base/status.h"

typedef struct moec_prescan {
  /* Offset of raw_data of the k-th initializer of the main graph; 0: it has none. */
  uint64_t *raw_offset;
  size_t n_initializers, cap_initializers;
  size_t n_messages;
} moec_prescan;

/* Scans |data| as a message of type |root| (ModelProto). */
moec_status *moec_prescan_wire(moec_arena *a, const ProtobufCMessageDescriptor *root, const uint8_t *data, size_t size,
                               moec_prescan *out) MOEC_MUST_USE;

#endif
