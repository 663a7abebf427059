/* Numbers in text that programs read: with a point, whatever LC_NUMERIC of the process says. Thread-safe. */
#ifndef MOEC_BASE_NUMBER_H
#define MOEC_BASE_NUMBER_H

#include <stdarg.h>
#include <stddef.h>

/* As strtod(), snprintf() and vsnprintf() in the locale "C". moec_buf_printf() and moec_arena_printf() print so too. */
double moec_strtod(const char *text, char **end);
int moec_snprintf(char *out, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int moec_vsnprintf(char *out, size_t size, const char *fmt, va_list args) __attribute__((format(printf, 3, 0)));

#endif
