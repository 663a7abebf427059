#include "codegen/report_lines.h"

#include <string.h>

/* Bytes that start a code point. */
static bool starts(char c) { return ((unsigned char)c & 0xc0) != 0x80; }

static size_t width(const char *s) {
  size_t n = 0;
  for (; *s; s++) n += starts(*s);
  return n;
}

size_t moec_report_column(const moec_buf *b) {
  const char *text = moec_buf_str(b), *line = strrchr(text, '\n');
  return width(line ? line + 1 : text);
}

void moec_report_pad(moec_buf *b, size_t column) {
  size_t at = moec_report_column(b);
  if (at > column) moec_buf_putc(b, ' ');
  for (; at < column; at++) moec_buf_putc(b, ' ');
}

void moec_report_end_line(moec_buf *b) {
  while (b->size && b->data[b->size - 1] == ' ') b->data[--b->size] = 0;
  moec_buf_putc(b, '\n');
}

void moec_report_label(moec_buf *b, const char *label) {
  moec_buf_puts(b, "  ");
  moec_report_clean(b, label, REPORT_LABEL - 3);
  moec_report_pad(b, REPORT_LABEL);
}

void moec_report_heading(moec_buf *b, const char *title) { moec_buf_printf(b, "\n%s\n", title); }

static void put_clean(moec_buf *b, char c) { moec_buf_putc(b, (unsigned char)c < 32 || c == 127 ? '?' : c); }

void moec_report_clean(moec_buf *b, const char *s, size_t most) {
  size_t n = width(s), at = 0;
  size_t head = n <= most ? n : (most - 1) / 3, tail = n <= most ? 0 : most - 3 - head; /* ends of names say more */
  if (n > most && most < 8) head = most, tail = 0;
  for (; *s; s++) {
    if (starts(*s)) at++;
    if (at <= head || at > n - tail) put_clean(b, *s);
    if (at == head && n > head + tail && (!s[1] || starts(s[1])) && tail) moec_buf_puts(b, "...");
  }
}

void moec_report_wrap(moec_buf *b, const char *s, size_t indent) {
  while (*s) {
    size_t word = strcspn(s, " ");
    if (moec_report_column(b) > indent && moec_report_column(b) + word > REPORT_WIDTH) {
      moec_report_end_line(b);
      moec_report_pad(b, indent);
    }
    for (size_t i = 0; i < word; i++) put_clean(b, s[i]);
    s += word;
    if (*s == ' ') moec_buf_putc(b, ' '), s++;
  }
}

void moec_report_range(moec_buf *b, int64_t first, int64_t last, size_t column) {
  if (first < 0)
    moec_buf_putc(b, '-');
  else if (first == last)
    moec_buf_printf(b, "%lld", (long long)first);
  else
    moec_buf_printf(b, "%lld-%lld", (long long)first, (long long)last);
  moec_report_pad(b, column);
}

void moec_report_many(moec_buf *b, int64_t n, const char *one) {
  moec_buf_printf(b, "%lld %s%s", (long long)n, one, n == 1 ? "" : "s");
}
