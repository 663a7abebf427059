#include "base/number.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

/* The locale of this thread until leave(); 0 where there is no memory for one, which that of "C" needs none of. */
static locale_t enter(locale_t *c) {
  *c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  return *c ? uselocale(*c) : (locale_t)0;
}

static void leave(locale_t before, locale_t c) {
  if (!c) return;
  uselocale(before);
  freelocale(c);
}

double moec_strtod(const char *text, char **end) {
  locale_t c, before = enter(&c);
  double v = strtod(text, end);
  leave(before, c);
  return v;
}

int moec_vsnprintf(char *out, size_t size, const char *fmt, va_list args) {
  locale_t c, before = enter(&c);
  int n = vsnprintf(out, size, fmt, args);
  leave(before, c);
  return n;
}

int moec_snprintf(char *out, size_t size, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  int n = moec_vsnprintf(out, size, fmt, args);
  va_end(args);
  return n;
}
