#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct moec_status {
  moec_code code;
  char *message;
};

/* Longer messages are cut: names that come from files can be of any length. */
enum { MAX_MESSAGE = 1 << 16 };

/* Returned when there is no memory for a real one; never written to, never freed. */
static const moec_status out_of_memory = {MOEC_OUT_OF_MEMORY, (char *)"out of memory"};

static moec_status *out_of_memory_status(void) { return (moec_status *)&out_of_memory; }

/* A message is one line that is safe to show on a terminal, whatever a file's strings hold. */
static void clean(char *s) {
  for (size_t i = 0; s[i]; i++) {
    unsigned char c = (unsigned char)s[i];
    if (i >= MAX_MESSAGE) {
      memcpy(s + i - 3, "...", 4);
      return;
    }
    if (c == '\n' || c == '\t')
      s[i] = ' ';
    else if (c < 0x20 || c == 0x7f)
      s[i] = '?';
  }
}

/* Takes over |text|, NULL meaning that there was no memory for it. */
static moec_status *make(moec_code code, char *text) {
  moec_status *s = text ? malloc(sizeof *s) : NULL;
  if (!s) {
    free(text);
    return out_of_memory_status();
  }
  clean(text);
  s->code = code == MOEC_OK ? MOEC_INTERNAL : code;
  s->message = text;
  return s;
}

moec_status *moec_errorv(moec_code code, const char *fmt, va_list args) {
  char *text = NULL;
  if (vasprintf(&text, fmt, args) < 0) text = NULL;
  return make(code, text);
}

moec_status *moec_error(moec_code code, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  moec_status *s = moec_errorv(code, fmt, args);
  va_end(args);
  return s;
}

moec_status *moec_wrong(const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  moec_status *s = moec_errorv(MOEC_INVALID_ARGUMENT, fmt, args);
  va_end(args);
  return s;
}

moec_status *moec_error_at(const char *file, int line, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  moec_status *s = moec_errorv(MOEC_INTERNAL, fmt, args);
  va_end(args);
  return moec_context(s, "%s:%d", file, line);
}

moec_status *moec_context(moec_status *s, const char *fmt, ...) {
  if (!s || s == &out_of_memory) return s;
  char *context = NULL, *text = NULL;
  va_list args;
  va_start(args, fmt);
  if (vasprintf(&context, fmt, args) < 0) context = NULL;
  va_end(args);
  if (context && asprintf(&text, "%s: %s", context, s->message) < 0) text = NULL;
  free(context);
  if (!text) return s; /* the error itself matters more than where it came from */
  clean(text);
  free(s->message);
  s->message = text;
  return s;
}

moec_code moec_status_code(const moec_status *s) { return s ? s->code : MOEC_OK; }

const char *moec_status_message(const moec_status *s) { return s ? s->message : "ok"; }

int moec_status_exit(const moec_status *s) {
  switch (moec_status_code(s)) {
    case MOEC_OK: return 0;
#define EXIT_CASE(name, text, exit_status) \
  case MOEC_##name: return exit_status;
      MOEC_STATUS_CODES(EXIT_CASE)
#undef EXIT_CASE
  }
  return 1;
}

void moec_status_free(moec_status *s) {
  if (!s || s == &out_of_memory) return;
  free(s->message);
  free(s);
}
