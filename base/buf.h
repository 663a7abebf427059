/* A growable text buffer with printf; always NUL-terminated. Out of memory ends the process,
 * as in base/arena.h. Thread-compatible. */
#ifndef MOEC_BASE_BUF_H
#define MOEC_BASE_BUF_H

#include <stdarg.h>
#include <stddef.h>

typedef struct moec_buf {
  char *data; /* NULL until the first write; read through moec_buf_str() */
  size_t size, cap;
} moec_buf;

void moec_buf_fini(moec_buf *b); /* frees; {0} is a valid empty buffer */
void moec_buf_putc(moec_buf *b, char c);
void moec_buf_puts(moec_buf *b, const char *s);
void moec_buf_write(moec_buf *b, const void *data, size_t size);
void moec_buf_printf(moec_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void moec_buf_vprintf(moec_buf *b, const char *fmt, va_list args)
    __attribute__((format(printf, 2, 0)));
const char *moec_buf_str(const moec_buf *b); /* "" when empty; valid until the next write */

#endif
