/* ONNX files as text, for tests that need files no library would write:
 *
 *     ir_version:8 opset_import{version:17} graph{node{input:'x' output:'y' op_type:'Abs'}}
 *
 * A field is named as in onnx.proto, or given by its number where the schema doesn't know it. Values: an integer, a
 * float (1.5), 'bytes' with \xHH escapes, {a message}. '#0a05' puts raw bytes where a field could stand; '*3{...}'
 * repeats what is in braces. The encoder checks nothing that a reader should. */
#ifndef MOEC_TESTS_ONNXWIRE_H
#define MOEC_TESTS_ONNXWIRE_H

#include "base/buf.h"
#include "frontend/frontend.h"
#include "onnx.pb-c.h"
#include "tests/unit/opcase.h"
#include "tests/unit/unit.h"

static inline void onnxwire_varint(moec_buf *b, uint64_t v) {
  for (; v > 127; v >>= 7) moec_buf_putc(b, (char)(v | 128));
  moec_buf_putc(b, (char)v);
}

static inline void onnxwire_bytes(moec_buf *b, uint32_t field, const void *data, size_t n) {
  onnxwire_varint(b, (uint64_t)field << 3 | 2);
  onnxwire_varint(b, n);
  moec_buf_write(b, data, n);
}

static inline const char *onnxwire_blank(const char *p) { return p + strspn(p, " \n\t"); }

static inline uint8_t onnxwire_hex(const char *p) {
  char text[3] = {p[0], p[1], 0}, *end;
  unsigned long v = strtoul(text, &end, 16);
  if (*end) ck_abort_msg("expected two hexadecimal digits at '%s'", p);
  return (uint8_t)v;
}

/* 'text' at |p|; returns what follows. */
static inline const char *onnxwire_quoted(moec_buf *out, const char *p) {
  for (p++; *p != '\''; p++) {
    if (!*p) ck_abort_msg("a text without an end");
    if (p[0] == '\\' && p[1] == 'x')
      moec_buf_putc(out, (char)onnxwire_hex(p + 2)), p += 3;
    else
      moec_buf_putc(out, *p);
  }
  return p + 1;
}

static inline const char *onnxwire_fields(moec_buf *b, const ProtobufCMessageDescriptor *d, const char *p);

static inline const char *onnxwire_message(moec_buf *out, const ProtobufCMessageDescriptor *d, const char *p) {
  p = onnxwire_fields(out, d, p);
  if (*p != '}') ck_abort_msg("expected '}' at '%.40s'", p);
  return p + 1;
}

/* A scalar after ':'. */
static inline const char *onnxwire_scalar(moec_buf *b, uint32_t field, const char *p) {
  char *end;
  long long v = strtoll(p, &end, 10);
  if (*end == '.') {
    float f = strtof(p, &end);
    onnxwire_varint(b, (uint64_t)field << 3 | 5);
    moec_buf_write(b, &f, sizeof f);
  } else {
    onnxwire_varint(b, (uint64_t)field << 3);
    onnxwire_varint(b, (uint64_t)v);
  }
  return end;
}

static inline const char *onnxwire_field(moec_buf *b, const ProtobufCMessageDescriptor *d, const char *p) {
  char name[64];
  size_t n = strcspn(p, ":{");
  snprintf(name, sizeof name, "%.*s", (int)n, p);
  const ProtobufCFieldDescriptor *f = d ? protobuf_c_message_descriptor_get_field_by_name(d, name) : NULL;
  uint32_t field = f ? f->id : (uint32_t)strtoul(name, NULL, 10);
  if (!field) ck_abort_msg("no field '%s'", name);
  p += n;
  if (*p == ':' && p[1] != '\'') return onnxwire_scalar(b, field, p + 1);
  moec_buf inner = {0};
  p = *p == ':' ? onnxwire_quoted(&inner, p + 1)
                : onnxwire_message(&inner, f && f->type == PROTOBUF_C_TYPE_MESSAGE ? f->descriptor : NULL, p + 1);
  onnxwire_bytes(b, field, moec_buf_str(&inner), inner.size);
  moec_buf_fini(&inner);
  return p;
}

static inline const char *onnxwire_fields(moec_buf *b, const ProtobufCMessageDescriptor *d, const char *p) {
  for (p = onnxwire_blank(p); *p && *p != '}'; p = onnxwire_blank(p)) {
    if (*p == '#') {
      for (p++; *p && !strchr(" \n}", *p); p += 2) moec_buf_putc(b, (char)onnxwire_hex(p));
    } else if (*p == '*') {
      char *body;
      moec_buf once = {0};
      long times = strtol(p + 1, &body, 10);
      p = onnxwire_message(&once, d, body + 1);
      for (long i = 0; i < times; i++) moec_buf_write(b, moec_buf_str(&once), once.size);
      moec_buf_fini(&once);
    } else {
      p = onnxwire_field(b, d, p);
    }
  }
  return p;
}

/* The file that |text| describes. */
static inline moec_buf onnxwire(const char *text) {
  moec_buf b = {0};
  const char *end = onnxwire_fields(&b, &onnx__model_proto__descriptor, text);
  if (*end) ck_abort_msg("expected the end at '%.40s'", end);
  return b;
}

/* Imports |text|; the module refers to bytes that are gone, so only its shape may be looked at. */
static inline moec_status *onnxwire_import(const char *text, moec_module **out) {
  moec_buf b = onnxwire(text);
  moec_status *s = moec_import_onnx_memory(moec_buf_str(&b), b.size, out);
  moec_buf_fini(&b);
  return s;
}

/* A text, and what the error must say; NULL: no error. */
typedef struct onnxwire_case {
  const char *text, *error;
} onnxwire_case;

static inline void onnxwire_check(size_t n, const onnxwire_case *cases) {
  int wrong = 0;
  for (size_t i = 0; i < n; i++) {
    moec_module *m = NULL;
    moec_status *s = onnxwire_import(cases[i].text, &m);
    bool good = cases[i].error ? s && strstr(moec_status_message(s), cases[i].error) : !s;
    if (!good)
      fprintf(stderr, "case %zu: expected '%s', got '%s' for\n  %s\n", i, cases[i].error ? cases[i].error : "ok",
              moec_status_message(s), cases[i].text);
    wrong += !good;
    if (s && m) ck_abort_msg("an error with a module");
    moec_status_free(s);
    moec_module_destroy(m);
  }
  ck_assert_int_eq(wrong, 0);
}

#define ONNXWIRE_TEST(name, ...)                                       \
  START_TEST(name) {                                                   \
    static const onnxwire_case cases_[] = {__VA_ARGS__};               \
    onnxwire_check(sizeof cases_ / sizeof *cases_, cases_);            \
  }                                                                    \
  END_TEST

/* The model |text| run on |inputs| gives |results|, both as in opcase.h: "f32[2] 1 2; i64[1] 0". */
static inline void onnxwire_run(const char *text, const char *inputs, const char *results) {
  moec_tensor in[OPCASE_MAX], want[OPCASE_MAX], got[OPCASE_MAX] = {{0}};
  uint32_t n_in = 0, n_out = 0;
  moec_module *m = NULL;
  moec_buf b = onnxwire(text);
  for (const char *p = inputs; *p; p += *p == ';') opcase_tensor(&p, &in[n_in++]);
  for (const char *p = results; *p; p += *p == ';') opcase_tensor(&p, &want[n_out++]);
  moec_status *s = moec_import_onnx_memory(moec_buf_str(&b), b.size, &m);
  if (!s) s = moec_interp_run(m, (moec_fn){1}, in, n_in, got, n_out, NULL);
  if (s) ck_abort_msg("%s: %s", text, moec_status_message(s));
  for (uint32_t i = 0; i < n_out; i++) opcase_compare(text, i, &got[i], &want[i], 2e-6);
  for (uint32_t i = 0; i < n_out; i++) moec_tensor_fini(&got[i]), moec_tensor_fini(&want[i]);
  for (uint32_t i = 0; i < n_in; i++) moec_tensor_fini(&in[i]);
  moec_module_destroy(m);
  moec_buf_fini(&b);
}

/* Pieces of texts. */
#define WIRE_MODEL(...) "ir_version:8 opset_import{version:17} graph{name:'g' " __VA_ARGS__ "}"
#define WIRE_VALUE(kind, name, type, dims) \
  kind "{name:'" name "' type{tensor_type{elem_type:" #type " shape{" dims "}}}}"
#define WIRE_DIM(n) "dim{dim_value:" #n "}"
#define WIRE_SYM(s) "dim{dim_param:'" s "'}"
#define WIRE_X WIRE_VALUE("input", "x", 1, WIRE_DIM(2) WIRE_DIM(3))
#define WIRE_Y "output{name:'y'}"
#define WIRE_ABS "node{input:'x' output:'y' op_type:'Abs'}"
#define WIRE_INTS(name, count, values) "initializer{name:'" name "' data_type:7 dims:" #count " " values "}"

#endif
