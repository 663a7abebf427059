/* Iterative wire-format scan, driven by protobuf-c's own descriptors. */
#include "frontend/prescan.h"

#include <string.h>

enum { MAX_DEPTH = 100, MAX_MESSAGES = 4000000 };

/* One open message. */
typedef struct level {
  const ProtobufCMessageDescriptor *desc;
  size_t end;
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

/* UTF-8 without NUL. */
static bool good_text(const uint8_t *p, size_t n) {
  for (size_t i = 0; i < n;) {
    uint8_t c = p[i++];
    int more = c < 0x80 ? 0 : (c & 0xe0) == 0xc0 ? 1 : (c & 0xf0) == 0xe0 ? 2 : (c & 0xf8) == 0xf0 ? 3 : -1;
    if (c == 0 || more < 0 || (size_t)more > n - i) return false;
    for (; more; more--)
      if ((p[i++] & 0xc0) != 0x80) return false;
  }
  return true;
}

static bool is_named(const ProtobufCMessageDescriptor *d, const char *name) { return strcmp(d->short_name, name) == 0; }

/* A length-delimited field of |n| bytes at s->at. */
static moec_status *delimited(scan *s, const ProtobufCFieldDescriptor *f, size_t n) {
  const level *here = &s->stack[s->depth];
  if (f && f->type == PROTOBUF_C_TYPE_MESSAGE) {
    if (++s->out->n_messages > MAX_MESSAGES) return BROKEN("more than %d messages", MAX_MESSAGES);
    if (s->depth + 1 == MAX_DEPTH) return BROKEN("nested deeper than %d messages at byte %zu", MAX_DEPTH, s->at);
    level next = {f->descriptor, s->at + n, false};
    next.initializer = s->depth == 1 && is_named(here->desc, "GraphProto") && strcmp(f->name, "initializer") == 0;
    if (next.initializer)
      MOEC_PUSH(s->arena, s->out->raw_offset, s->out->n_initializers, s->out->cap_initializers, 0);
    s->stack[++s->depth] = next;
    return NULL;
  }
  if (f && f->type == PROTOBUF_C_TYPE_STRING && !good_text(s->data + s->at, n))
    return BROKEN("%s.%s at byte %zu is no UTF-8 text, or holds a NUL", here->desc->short_name, f->name, s->at);
  if (f && here->initializer && strcmp(f->name, "raw_data") == 0)
    s->out->raw_offset[s->out->n_initializers - 1] = s->at;
  s->at += n;
  return NULL;
}

static moec_status *field(scan *s) {
  const level *here = &s->stack[s->depth];
  uint64_t tag, n;
  MOEC_TRY(varint(s, &tag));
  if (tag >> 3 == 0 || tag >> 3 > 536870911) return BROKEN("not a protobuf file: field number %llu at byte %zu", (unsigned long long)(tag >> 3), s->at);
  const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(here->desc, (unsigned)(tag >> 3));
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
  s.stack[0] = (level){root, size, false};
  while (s.depth > 0 || s.at < size) {
    if (s.at == s.stack[s.depth].end) s.depth--;
    else MOEC_TRY(field(&s));
  }
  return NULL;
}
