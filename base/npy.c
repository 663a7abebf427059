/* NumPy's .npy files. The header is the text of a Python dict; only what numpy writes for
 * plain arrays is accepted: three keys, each once, in any order. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/outfile.h"
#include "base/size.h"
#include "base/tensor.h"

typedef struct npy_type {
  const char *descr;
  moec_dtype dtype;
} npy_type;

static const npy_type npy_types[] = {{"<f4", MOEC_F32}, {"<f8", MOEC_F64}, {"<f2", MOEC_F16},
                                     {"<i8", MOEC_I64}, {"<i4", MOEC_I32}, {"<i2", MOEC_I16},
                                     {"|i1", MOEC_I8},  {"<u8", MOEC_U64}, {"<u4", MOEC_U32},
                                     {"<u2", MOEC_U16}, {"|u1", MOEC_U8},  {"|b1", MOEC_BOOL}};
enum { NPY_TYPES = sizeof npy_types / sizeof *npy_types };

typedef struct cursor {
  const char *start, *p, *end;
} cursor;

static moec_status *expected(const cursor *c, const char *what) {
  size_t at = (size_t)(c->p - c->start);
  if (c->p == c->end) {
    return moec_error(MOEC_INVALID_MODEL, "expected %s, got the end of the header", what);
  }
  return moec_error(MOEC_INVALID_MODEL, "expected %s, got '%c' at byte %zu of the header", what,
                    *c->p, at);
}

/* Skips blanks, then |ch| when it comes next. */
static bool eat(cursor *c, char ch) {
  while (c->p < c->end && *c->p == ' ') c->p++;
  if (c->p == c->end || *c->p != ch) return false;
  c->p++;
  return true;
}

static moec_status *parse_string(cursor *c, char out[32]) {
  char quote = eat(c, '\'') ? '\'' : eat(c, '"') ? '"' : 0;
  if (!quote) return expected(c, "a quoted string");
  size_t n = 0;
  for (; c->p < c->end && *c->p != quote; c->p++) {
    if (n == 31 || *c->p == '\\' || *c->p < 0x20) return expected(c, "a short plain string");
    out[n++] = *c->p;
  }
  out[n] = 0;
  return eat(c, quote) ? NULL : expected(c, "a closing quote");
}

static moec_status *parse_descr(cursor *c, moec_tensor *t) {
  char descr[32];
  if (eat(c, '[')) {
    return moec_error(MOEC_UNSUPPORTED, "expected an array of numbers, got one of records");
  }
  MOEC_TRY(parse_string(c, descr));
  for (int i = 0; i < NPY_TYPES; i++) {
    if (!strcmp(descr, npy_types[i].descr)) t->dtype = npy_types[i].dtype;
  }
  if (t->dtype) return NULL;
  return moec_error(
      MOEC_UNSUPPORTED,
      "expected little-endian floats of 2 to 8 bytes, integers or bool, got descr '%s'", descr);
}

static moec_status *parse_order(cursor *c) {
  eat(c, ' ');
  size_t left = (size_t)(c->end - c->p);
  if (left >= 4 && !memcmp(c->p, "True", 4)) {
    return moec_error(MOEC_UNSUPPORTED, "expected an array in C order, got fortran order");
  }
  if (left < 5 || memcmp(c->p, "False", 5)) return expected(c, "True or False");
  c->p += 5;
  return NULL;
}

static moec_status *parse_dim(cursor *c, int64_t *out) {
  eat(c, ' ');
  if (c->p == c->end || *c->p < '0' || *c->p > '9') return expected(c, "a dim >= 0");
  if (*c->p == '0' && c->p + 1 < c->end && c->p[1] >= '0' && c->p[1] <= '9') {
    return expected(c, "a dim without leading zeros");
  }
  int64_t v = 0;
  for (; c->p < c->end && *c->p >= '0' && *c->p <= '9'; c->p++) {
    if (!moec_mul_i64(v, 10, &v) || !moec_add_i64(v, *c->p - '0', &v)) {
      return expected(c, "a dim below 2^63");
    }
  }
  *out = v;
  return NULL;
}

static moec_status *parse_shape(cursor *c, moec_tensor *t) {
  if (!eat(c, '(')) return expected(c, "a tuple");
  bool comma = true;
  while (!eat(c, ')')) {
    if (!comma) return expected(c, "',' or ')'");
    if (t->rank == MOEC_MAX_RANK) {
      return moec_error(MOEC_UNSUPPORTED, "expected at most %d dims, got more", MOEC_MAX_RANK);
    }
    MOEC_TRY(parse_dim(c, &t->dims[t->rank++]));
    comma = eat(c, ',');
  }
  /* "(3)" is a number in Python, not a tuple. */
  return t->rank == 1 && !comma ? expected(c, "',' in a tuple of one dim") : NULL;
}

static moec_status *parse_header(cursor *c, moec_tensor *t) {
  static const char *const keys[3] = {"descr", "fortran_order", "shape"};
  bool seen[3] = {false}, comma = true;
  if (!eat(c, '{')) return expected(c, "'{'");
  while (!eat(c, '}')) {
    char key[32];
    if (!comma) return expected(c, "',' or '}'");
    MOEC_TRY(parse_string(c, key));
    int k = 0;
    while (k < 3 && strcmp(key, keys[k])) k++;
    if (k == 3 || seen[k]) {
      return moec_error(MOEC_INVALID_MODEL,
                        "expected descr, fortran_order and shape once each, got '%s'", key);
    }
    seen[k] = true;
    if (!eat(c, ':')) return expected(c, "':'");
    MOEC_TRY(k == 0 ? parse_descr(c, t) : k == 1 ? parse_order(c) : parse_shape(c, t));
    comma = eat(c, ',');
  }
  for (int k = 0; k < 3; k++) {
    if (!seen[k]) return moec_error(MOEC_INVALID_MODEL, "expected the key %s, got none", keys[k]);
  }
  if (!eat(c, '\n') || c->p != c->end) return expected(c, "one newline at the end");
  return NULL;
}

/* The place of the header and of the data behind it. */
static moec_status *find_header(const moec_map *m, cursor *c) {
  const uint8_t *p = m->data;
  if (m->size < 10 || memcmp(p, "\x93NUMPY", 6)) {
    return moec_error(MOEC_INVALID_MODEL, "expected a .npy file, got something else");
  }
  if (p[6] < 1 || p[6] > 3 || p[7] != 0) {
    return moec_error(MOEC_UNSUPPORTED, "expected .npy version 1.0, 2.0 or 3.0, got %d.%d", p[6],
                      p[7]);
  }
  size_t start = p[6] == 1 ? 10 : 12, length = p[8] | (size_t)p[9] << 8;
  if (p[6] > 1 && m->size >= 12) length |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
  if (m->size < start || length > m->size - start) {
    return moec_error(MOEC_INVALID_MODEL, "expected a header of %zu bytes, got a file of %zu",
                      length, m->size);
  }
  c->start = c->p = (const char *)p + start;
  c->end = c->p + length;
  return NULL;
}

static moec_status *read_map(const moec_map *m, moec_tensor *out) {
  cursor c;
  moec_tensor t = {0};
  size_t bytes;
  MOEC_TRY(find_header(m, &c));
  MOEC_TRY(parse_header(&c, &t));
  moec_status *s = moec_shape_bytes(t.dtype, t.rank, t.dims, &bytes);
  size_t got = m->size - (size_t)((const uint8_t *)c.end - m->data);
  if (s || bytes != got) {
    moec_status_free(s);
    return moec_error(MOEC_INVALID_MODEL,
                      "expected data of the header's shape, got %zu bytes of data", got);
  }
  MOEC_TRY(moec_tensor_init(out, t.dtype, t.rank, t.dims));
  if (bytes) memcpy(out->data, c.end, bytes);
  if (t.dtype == MOEC_BOOL) { /* kernels rely on 0 and 1 */
    uint8_t *b = out->data;
    for (size_t i = 0; i < bytes; i++) b[i] = b[i] != 0;
  }
  return NULL;
}

moec_status *moec_npy_read(const char *path, moec_tensor *out) {
  *out = (moec_tensor){0};
  moec_map map;
  MOEC_TRY(moec_map_user_file(path, &map));
  moec_status *s = read_map(&map, out);
  moec_unmap(&map);
  return moec_context(s, "%s", path);
}

/* Magic, version 1.0, length, header; the data behind it is aligned to 64 bytes. */
static void write_header(moec_buf *b, moec_dtype dtype, const moec_tensor *t) {
  const char *descr = "";
  for (int i = 0; i < NPY_TYPES; i++) {
    if (npy_types[i].dtype == dtype) descr = npy_types[i].descr;
  }
  moec_buf_write(b, "\x93NUMPY\x01\x00\x00\x00", 10);
  moec_buf_printf(b, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
  for (uint32_t i = 0; i < t->rank; i++) moec_buf_printf(b, "%" PRId64 ", ", t->dims[i]);
  moec_buf_puts(b, "), }");
  while (b->size % 64 != 63) moec_buf_putc(b, ' ');
  moec_buf_putc(b, '\n');
  b->data[8] = (char)((b->size - 10) & 255);
  b->data[9] = (char)((b->size - 10) >> 8);
}

/* Half-width floats, which numpy has or reads only in part, as f32. */
static moec_status *write_widened(moec_outfile *f, const moec_tensor *t) {
  float part[4096];
  size_t n = (size_t)moec_tensor_numel(t);
  for (size_t i = 0; i < n;) {
    size_t k = 0;
    while (k < 4096 && i < n) part[k++] = (float)moec_load_f64(t->dtype, t->data, i++);
    MOEC_TRY(moec_outfile_write(f, part, k * sizeof *part));
  }
  return NULL;
}

moec_status *moec_npy_write(const char *path, const moec_tensor *t) {
  size_t bytes;
  MOEC_TRY(moec_context(moec_shape_bytes(t->dtype, t->rank, t->dims, &bytes), "writing %s", path));
  if (bytes && !t->data) {
    return moec_error(MOEC_INVALID_ARGUMENT, "writing %s: expected a tensor with data, got none",
                      path);
  }
  moec_outfile *f;
  MOEC_TRY(moec_outfile_begin(path, 0644, &f));
  bool widen = t->dtype == MOEC_F16 || t->dtype == MOEC_BF16;
  moec_buf header = {0};
  write_header(&header, widen ? MOEC_F32 : t->dtype, t);
  moec_status *s = moec_outfile_write(f, header.data, header.size);
  if (!s) s = widen ? write_widened(f, t) : moec_outfile_write(f, t->data, bytes);
  moec_buf_fini(&header);
  return moec_outfile_end(f, s);
}
