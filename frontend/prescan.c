/* Iterative wire-format scan, driven by protobuf-c's own descriptors. */
#include "frontend/prescan.h"

#include <string.h>

enum { MAX_DEPTH = 100, MAX_MESSAGES = 4000000 };

/* One open message. */
typedef struct level {
  const ProtobufCMessageDescriptor *desc;
  size_t end;
  uint64_t seen;    /* bit i: field i of the descriptor, a message that may stand once */
  bool initializer; /* a TensorProto of the main graph's initializer list */
} level;

typedef struct scan {
  const uint8_t *data;
  size_t at;
  level stack[MAX_DEPTH];
  int depth;
  moec_arena *arena;
  moec_prescan *out;
} scan;

#define BROKEN(...) moec_error(MOEC_INVALID_MODEL, __VA_ARGS__)

static moec_status *varint(scan *s, uint64_t *out) {
  size_t end = s->stack[s->depth].end;
  *out = 0;
  for (unsigned shift = 0; shift < 70; shift += 7) {
    if (s->at >= end) return BROKEN("the file is cut short: a number ends outside its message, at byte %zu", s->at);
    uint8_t byte = s->data[s->at++];
    if (shift < 64) *out |= (uint64_t)(byte & 127) << shift;
    if (!(byte & 128)) return NULL;
  }
  return BROKEN("not a protobuf file: a number of more than 10 bytes at byte %zu", s->at);
}

/* Length of the UTF-8 character at |p|, 0 when there is none: NUL, overlong and surrogate forms are not. */
static size_t character(const uint8_t *p, size_t n) {
  static const uint32_t least[5] = {0, 1, 0x80, 0x800, 0x10000};
  size_t length = p[0] < 0x80 ? 1 : p[0] >> 5 == 6 ? 2 : p[0] >> 4 == 14 ? 3 : p[0] >> 3 == 30 ? 4 : 0;
  if (length == 0 || length > n) return 0;
  uint32_t c = length == 1 ? p[0] : p[0] & (0x7fu >> length);
  for (size_t i = 1; i < length; i++) {
    if ((p[i] & 0xc0) != 0x80) return 0;
    c = c << 6 | (p[i] & 0x3f);
  }
  return c >= least[length] && c <= 0x10ffff && (c < 0xd800 || c > 0xdfff) ? length : 0;
}

static bool good_text(const uint8_t *p, size_t n) {
  for (size_t i = 0, k; i < n; i += k)
    if ((k = character(p + i, n - i)) == 0) return false;
  return true;
}

static bool is_named(const ProtobufCMessageDescriptor *d, const char *name) { return strcmp(d->short_name, name) == 0; }

/* A message field of |n| bytes at s->at. protobuf merges a message that stands twice; moec wants to know which. */
static moec_status *open_message(scan *s, const ProtobufCFieldDescriptor *f, size_t n) {
  level *here = &s->stack[s->depth];
  size_t index = (size_t)(f - here->desc->fields);
  if (++s->out->n_messages > MAX_MESSAGES) return BROKEN("more than %d messages", MAX_MESSAGES);
  if (s->depth + 1 == MAX_DEPTH) return BROKEN("nested deeper than %d messages at byte %zu", MAX_DEPTH, s->at);
  if (f->label != PROTOBUF_C_LABEL_REPEATED && index < 64) {
    if (here->seen >> index & 1)
      return BROKEN("%s.%s stands twice, at byte %zu", here->desc->short_name, f->name, s->at);
    here->seen |= (uint64_t)1 << index;
  }
  level next = {f->descriptor, s->at + n, 0, false};
  next.initializer = s->depth == 1 && is_named(here->desc, "GraphProto") && strcmp(f->name, "initializer") == 0;
  if (next.initializer)
    MOEC_PUSH(s->arena, s->out->raw_offset, s->out->n_initializers, s->out->cap_initializers, 0);
  s->stack[++s->depth] = next;
  return NULL;
}

/* A length-delimited field of |n| bytes at s->at. */
static moec_status *delimited(scan *s, const ProtobufCFieldDescriptor *f, size_t n) {
  const level *here = &s->stack[s->depth];
  if (f && f->type == PROTOBUF_C_TYPE_MESSAGE) return open_message(s, f, n);
  if (f && f->type == PROTOBUF_C_TYPE_STRING && !good_text(s->data + s->at, n))
    return BROKEN("%s.%s at byte %zu is no UTF-8 text, or holds a NUL", here->desc->short_name, f->name, s->at);
  if (f && here->initializer && strcmp(f->name, "raw_data") == 0)
    s->out->raw_offset[s->out->n_initializers - 1] = s->at;
  s->at += n;
  return NULL;
}

/* The wire type of one element of |f|. */
static unsigned wire_type(const ProtobufCFieldDescriptor *f) {
  switch (f->type) {
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32: return 5;
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64: return 1;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE: return 2;
    default: return 0;
  }
}

static moec_status *field(scan *s) {
  const level *here = &s->stack[s->depth];
  uint64_t tag, n;
  MOEC_TRY(varint(s, &tag));
  if (tag >> 3 == 0 || tag >> 3 > 536870911)
    return BROKEN("not a protobuf file: field number %llu at byte %zu", (unsigned long long)(tag >> 3), s->at);
  const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(here->desc, (unsigned)(tag >> 3));
  bool packed = f && f->label == PROTOBUF_C_LABEL_REPEATED && (tag & 7) == 2;
  if (f && !packed && wire_type(f) != (tag & 7))
    return BROKEN("not an ONNX file: %s.%s at byte %zu has wire type %d", here->desc->short_name, f->name, s->at,
                  (int)(tag & 7));
  switch (tag & 7) {
    case 0: return varint(s, &n);
    case 1: n = 8; break;
    case 5: n = 4; break;
    case 2: MOEC_TRY(varint(s, &n)); break;
    default: return BROKEN("not a protobuf file: wire type %d at byte %zu", (int)(tag & 7), s->at);
  }
  if (n > here->end - s->at)
    return BROKEN("the file is cut short or damaged: %s at byte %zu needs %llu bytes, its message has %zu",
                  f ? f->name : "a field", s->at, (unsigned long long)n, here->end - s->at);
  if ((tag & 7) == 2) return delimited(s, f, (size_t)n);
  s->at += (size_t)n;
  return NULL;
}

moec_status *moec_prescan_wire(moec_arena *a, const ProtobufCMessageDescriptor *root, const uint8_t *data, size_t size,
                               moec_prescan *out) {
  scan s = {.data = data, .arena = a, .out = out};
  *out = (moec_prescan){0};
  s.stack[0] = (level){root, size, 0, false};
  while (s.depth > 0 || s.at < size) {
    if (s.at == s.stack[s.depth].end) s.depth--;
    else MOEC_TRY(field(&s));
  }
  return NULL;
}
