#include "frontend/torch_meta.h"

#include <stdbool.h>
#include <string.h>

enum { METADATA_PROPS = 4 }; /* ValueInfoProto.metadata_props, since onnx 1.16 */

static const char kind_key[] = "pkg.torch.export.graph_signature.InputSpec.kind";

/* A length and that many bytes at *p, before |end|; false when there are none. */
static bool read_bytes(const uint8_t **p, const uint8_t *end, const uint8_t **out, size_t *n) {
  uint64_t length = 0;
  for (unsigned shift = 0; *p < end && shift < 63; shift += 7) {
    uint8_t byte = *(*p)++;
    length |= (uint64_t)(byte & 127) << shift;
    if (byte & 128) continue;
    if (length > (size_t)(end - *p)) return false;
    *out = *p, *n = (size_t)length;
    *p += length;
    return true;
  }
  return false;
}

static bool is_text(const uint8_t *p, size_t n, const char *text) {
  return n == strlen(text) && memcmp(p, text, n) == 0;
}

/* A length and a StringStringEntryProto: key = 1, value = 2. */
static moec_torch_kind kind_of_entry(const uint8_t *p, const uint8_t *end) {
  const uint8_t *text[2] = {NULL, NULL}, *entry;
  size_t n[2] = {0, 0}, size;
  if (!read_bytes(&p, end, &entry, &size)) return MOEC_TORCH_UNKNOWN;
  p = entry, end = entry + size;
  while (p < end) {
    uint8_t tag = *p++;
    if (tag != (1 << 3 | 2) && tag != (2 << 3 | 2)) return MOEC_TORCH_UNKNOWN;
    if (!read_bytes(&p, end, &text[tag >> 4], &n[tag >> 4])) return MOEC_TORCH_UNKNOWN;
  }
  if (!text[0] || !text[1] || !is_text(text[0], n[0], kind_key)) return MOEC_TORCH_UNKNOWN;
  return is_text(text[1], n[1], "PARAMETER") ? MOEC_TORCH_PARAMETER : MOEC_TORCH_OTHER;
}

moec_torch_kind moec_torch_kind_of(const Onnx__ValueInfoProto *v) {
  for (unsigned i = 0; i < v->base.n_unknown_fields; i++) {
    const ProtobufCMessageUnknownField *f = &v->base.unknown_fields[i];
    if (f->tag != METADATA_PROPS || f->wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED) continue;
    moec_torch_kind kind = kind_of_entry(f->data, f->data + f->len);
    if (kind) return kind;
  }
  return MOEC_TORCH_UNKNOWN;
}
