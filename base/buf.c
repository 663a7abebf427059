#include "base/buf.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/number.h"
#include "base/size.h"

/* Room for |more| bytes and the NUL behind them. */
static void reserve(moec_buf *b, size_t more) {
  size_t need;
  if (!moec_add_size(b->size, more, &need) || !moec_add_size(need, 1, &need)) {
    moec_die_out_of_memory();
  }
  if (need <= b->cap) return;
  size_t cap = b->cap < 64 ? 64 : b->cap;
  while (cap < need) {
    if (!moec_mul_size(cap, 2, &cap)) cap = need;
  }
  char *data = realloc(b->data, cap);
  if (!data) moec_die_out_of_memory();
  b->data = data;
  b->cap = cap;
}

void moec_buf_fini(moec_buf *b) {
  free(b->data);
  *b = (moec_buf){0};
}

void moec_buf_putc(moec_buf *b, char c) { moec_buf_write(b, &c, 1); }

void moec_buf_puts(moec_buf *b, const char *s) { moec_buf_write(b, s, strlen(s)); }

void moec_buf_write(moec_buf *b, const void *data, size_t size) {
  reserve(b, size);
  if (size) memcpy(b->data + b->size, data, size);
  b->size += size;
  b->data[b->size] = 0;
}

void moec_buf_printf(moec_buf *b, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  moec_buf_vprintf(b, fmt, args);
  va_end(args);
}

void moec_buf_vprintf(moec_buf *b, const char *fmt, va_list args) {
  va_list again;
  va_copy(again, args);
  int n = moec_vsnprintf(NULL, 0, fmt, args);
  if (n < 0) moec_die_out_of_memory();
  reserve(b, (size_t)n);
  moec_vsnprintf(b->data + b->size, (size_t)n + 1, fmt, again);
  b->size += (size_t)n;
  va_end(again);
}

const char *moec_buf_str(const moec_buf *b) { return b->data ? b->data : ""; }
