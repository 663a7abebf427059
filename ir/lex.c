/* Tokens of the text form. */
#include "ir/lex.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

void moec_lex_fail(moec_lexer *l, const char *fmt, ...) {
  if (l->error) return;
  int line = 1, column = 1;
  for (const char *p = l->text; p < l->at; p++) {
    column++;
    if (*p == '\n') line++, column = 1;
  }
  va_list args;
  va_start(args, fmt);
  l->error = moec_context(moec_errorv(MOEC_INVALID_MODEL, fmt, args), "line %d, column %d", line, column);
  va_end(args);
}

static void skip(moec_lexer *l) {
  for (;;) {
    while (isspace((unsigned char)*l->at)) l->at++;
    if (*l->at != ';') return;
    while (*l->at && *l->at != '\n') l->at++; /* a comment */
  }
}

static bool word_char(char c) { return isalnum((unsigned char)c) || c == '_' || c == '.' || (unsigned char)c >= 128; }

bool moec_lex_take(moec_lexer *l, const char *token) {
  size_t n = strlen(token);
  if (l->error) return false;
  skip(l);
  if (strncmp(l->at, token, n) != 0 || (word_char(token[n - 1]) && word_char(l->at[n]))) return false;
  l->at += n;
  return true;
}

bool moec_lex_sees(moec_lexer *l, char c) {
  if (l->error) return false;
  skip(l);
  return *l->at == c;
}

void moec_lex_expect(moec_lexer *l, const char *token) {
  if (!moec_lex_take(l, token)) moec_lex_fail(l, "expected '%s'", token);
}

bool moec_lex_end(moec_lexer *l) {
  if (l->error) return true;
  skip(l);
  return *l->at == '\0';
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

const char *moec_lex_string(moec_lexer *l) {
  moec_lex_expect(l, "\"");
  if (l->error) return "";
  const char *end = l->at;
  while (*end && *end != '"' && *end != '\n') end++;
  if (*end != '"') {
    moec_lex_fail(l, "expected a closing quote");
    return "";
  }
  char *s = moec_arena_alloc(l->m->arena, (size_t)(end - l->at) + 1);
  size_t n = 0;
  for (const char *p = l->at; p < end; p++) {
    if (*p != '\\') {
      s[n++] = *p;
      continue;
    }
    int hi = p[1] == 'x' ? hex_digit(p[2]) : -1, lo = hi >= 0 ? hex_digit(p[3]) : -1;
    if (lo < 0 || hi * 16 + lo == 0) {
      moec_lex_fail(l, "expected \\xHH in a string");
      return "";
    }
    s[n++] = (char)(unsigned char)(hi * 16 + lo);
    p += 3;
  }
  l->at = end + 1;
  return s;
}

const char *moec_lex_word(moec_lexer *l) {
  if (l->error) return "";
  skip(l);
  size_t n = 0;
  while (word_char(l->at[n])) n++;
  if (n == 0) moec_lex_fail(l, "expected a word");
  const char *s = moec_arena_printf(l->m->arena, "%.*s", (int)(n < 4096 ? n : 0), l->at);
  l->at += n;
  return s;
}

int64_t moec_lex_int(moec_lexer *l) {
  char *end;
  if (l->error) return 0;
  skip(l);
  errno = 0;
  if (!isdigit((unsigned char)l->at[*l->at == '-'])) {
    moec_lex_fail(l, "expected an integer");
    return 0;
  }
  long long v = strtoll(l->at, &end, 10);
  if (errno) moec_lex_fail(l, "expected an integer of 64 bits");
  l->at = end;
  return v;
}

uint32_t moec_lex_u32(moec_lexer *l) {
  int64_t v = moec_lex_int(l);
  if (!l->error && (v < 0 || v > UINT32_MAX)) moec_lex_fail(l, "expected an unsigned integer of 32 bits");
  return l->error ? 0 : (uint32_t)v;
}

uint64_t moec_lex_u64(moec_lexer *l) {
  if (l->error) return 0;
  skip(l);
  char *end = (char *)(uintptr_t)l->at;
  errno = 0;
  unsigned long long v = isdigit((unsigned char)*l->at) ? strtoull(l->at, &end, 10) : 0;
  if (errno || end == l->at) moec_lex_fail(l, "expected an unsigned integer of 64 bits");
  l->at = end;
  return v;
}

double moec_lex_float(moec_lexer *l) {
  char *end;
  if (l->error) return 0;
  skip(l);
  double v = moec_strtod(l->at, &end);
  if (end == l->at) moec_lex_fail(l, "expected a number");
  l->at = end;
  return v;
}

bool moec_lex_bool(moec_lexer *l) {
  if (moec_lex_take(l, "true")) return true;
  moec_lex_expect(l, "false");
  return false;
}

moec_dtype moec_lex_dtype(moec_lexer *l) {
  const char *word = moec_lex_word(l);
  moec_dtype t = moec_dtype_from_text(word);
  if (!t && strcmp(word, "none") != 0) moec_lex_fail(l, "expected an element type, got '%s'", word);
  return t;
}

moec_dim moec_lex_dim(moec_lexer *l) {
  moec_dim d = {0};
  if (l->error) return d;
  skip(l);
  size_t n = 0;
  for (int depth = 0; l->at[n] && l->at[n] != '\n'; n++) {
    char c = l->at[n];
    depth += (c == '(') - (c == ')');
    bool at_word = strncmp(l->at + n, " at \"", 5) == 0;
    if (depth < 0 || (depth == 0 && (strchr(",]}=", c) || at_word))) break;
  }
  if (n > 65536) moec_lex_fail(l, "expected a shorter size");
  if (l->error) return d;
  const char *text = moec_arena_printf(l->m->arena, "%.*s", (int)n, l->at);
  moec_status *s = moec_dim_parse(l->m, text, &d);
  if (s) {
    moec_lex_fail(l, "%s", moec_status_message(s));
    moec_status_free(s);
  }
  l->at += n;
  return d;
}

moec_type moec_lex_type(moec_lexer *l) {
  moec_dim dims[MOEC_MAX_RANK];
  uint32_t rank = 0;
  moec_dtype t = moec_lex_dtype(l);
  moec_lex_expect(l, "[");
  while (!l->error && !moec_lex_take(l, "]")) {
    if (rank) moec_lex_expect(l, ",");
    if (rank == MOEC_MAX_RANK) moec_lex_fail(l, "expected at most %d axes", MOEC_MAX_RANK);
    else dims[rank++] = moec_lex_dim(l);
  }
  if (l->error || !t) return (moec_type){0};
  return moec_type_make(l->m, t, rank, dims);
}

moec_ints moec_lex_ints(moec_lexer *l) {
  int64_t *v = NULL;
  size_t n = 0, cap = 0;
  moec_lex_expect(l, "[");
  while (!l->error && !moec_lex_take(l, "]")) {
    if (n) moec_lex_expect(l, ",");
    MOEC_PUSH(l->m->arena, v, n, cap, moec_lex_int(l));
  }
  return (moec_ints){(uint32_t)n, v};
}

moec_dims moec_lex_dims(moec_lexer *l) {
  moec_dim *v = NULL;
  size_t n = 0, cap = 0;
  moec_lex_expect(l, "[");
  while (!l->error && !moec_lex_take(l, "]")) {
    if (n) moec_lex_expect(l, ",");
    MOEC_PUSH(l->m->arena, v, n, cap, moec_lex_dim(l));
  }
  return (moec_dims){(uint32_t)n, v};
}

/* ---- constants ---------------------------------------------------------------------------- */

static int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

static void read_base64(moec_lexer *l, uint8_t *out, size_t size) {
  const char *s = moec_lex_string(l);
  if (l->error) return;
  if (strlen(s) != (size + 2) / 3 * 4) {
    moec_lex_fail(l, "expected base64 of %zu bytes", size);
    return;
  }
  for (size_t i = 0; i < size; i += 3, s += 4) {
    uint32_t v = 0;
    for (int k = 0; k < 4; k++) {
      int d = s[k] == '=' ? 0 : base64_digit(s[k]);
      if (d < 0) moec_lex_fail(l, "expected base64");
      v = v << 6 | (uint32_t)(d & 63);
    }
    for (size_t k = 0; k < 3 && i + k < size; k++) out[i + k] = (uint8_t)(v >> (16 - 8 * k));
  }
}

static void read_elements(moec_lexer *l, moec_dtype t, uint8_t *out, size_t n) {
  moec_lex_expect(l, "[");
  for (size_t i = 0; i < n && !l->error; i++) {
    if (i) moec_lex_expect(l, ",");
    if (moec_dtype_is_float(t)) {
      moec_store_f64(t, out, i, moec_lex_float(l));
    } else if (t == MOEC_U64) {
      uint64_t v;
      char *end;
      skip(l);
      v = strtoull(l->at, &end, 10);
      if (end == l->at) moec_lex_fail(l, "expected an integer");
      l->at = end;
      memcpy(out + i * 8, &v, 8);
    } else {
      moec_store_i64(t, out, i, moec_lex_int(l));
    }
  }
  moec_lex_expect(l, "]");
}

const moec_const *moec_lex_const(moec_lexer *l) {
  moec_const *c = MOEC_NEW(l->m->arena, moec_const);
  int64_t dims[MOEC_MAX_RANK];
  c->type = moec_lex_type(l);
  if (!l->error && !c->type.i) moec_lex_fail(l, "expected a type");
  if (l->error) return NULL;
  moec_type_info t = moec_type_get(l->m, c->type);
  for (uint32_t i = 0; i < t.rank; i++)
    if (!moec_dim_is_const(l->m, t.dims[i], &dims[i])) {
      moec_lex_fail(l, "expected constant sizes");
      return NULL;
    }
  moec_status *s = moec_shape_bytes(t.dtype, t.rank, dims, &c->size);
  bool encoded = moec_lex_take(l, "base64");
  /* a text can't promise more bytes than it holds */
  if (s || c->size > (encoded ? 1u : 8u) * (size_t)(l->end - l->at)) {
    moec_status_free(s);
    moec_lex_fail(l, "expected a constant no larger than its text");
    return NULL;
  }
  uint8_t *bytes = moec_arena_alloc(l->m->arena, c->size + 1);
  if (encoded) read_base64(l, bytes, c->size);
  else read_elements(l, t.dtype, bytes, c->size / moec_dtype_get(t.dtype)->bytes);
  c->bytes = bytes;
  return l->error ? NULL : c;
}
