/* Errors are values: a moec_status pointer, NULL meaning "ok".
 *
 * Ownership: whoever receives a non-NULL status owns it and ends it with
 * moec_status_free() or by returning it. Making a status cannot fail: when memory
 * is out, a static status is returned (freeing it is fine).
 * Thread rule: a status belongs to one thread at a time. */
#ifndef MOEC_BASE_STATUS_H
#define MOEC_BASE_STATUS_H

#include <stdarg.h>
#include <stdbool.h>

#if defined(__GNUC__)
#define MOEC_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define MOEC_MUST_USE __attribute__((warn_unused_result))
#define MOEC_NEVER_NULL __attribute__((returns_nonnull)) /* MOEC_TRY(moec_error()) returns */
#else
#define MOEC_PRINTF(fmt, args)
#define MOEC_MUST_USE
#define MOEC_NEVER_NULL
#endif

/* CODE(name, text, exit status of a tool that stops with it) -- when to use it */
#define MOEC_STATUS_CODES(CODE)                                                               \
  CODE(INVALID_MODEL, "invalid model", 2)       /* a file breaks its format's rules        */ \
  CODE(UNSUPPORTED, "unsupported", 2)           /* legal, but moec has no such thing       */ \
  CODE(INVALID_ARGUMENT, "invalid argument", 2) /* the caller or the command line is wrong */ \
  CODE(OUT_OF_MEMORY, "out of memory", 1)       /* host or device memory, or a byte limit  */ \
  CODE(IO, "input/output error", 1)             /* the operating system refused            */ \
  CODE(DEVICE, "device error", 1)               /* the accelerator or its driver refused   */ \
  CODE(INTERNAL, "internal error", 1)           /* a broken invariant: a bug in moec       */

typedef enum moec_code {
  MOEC_OK = 0,
#define MOEC_CODE_ENUM(name, text, exit_status) MOEC_##name,
  MOEC_STATUS_CODES(MOEC_CODE_ENUM)
#undef MOEC_CODE_ENUM
} moec_code;

typedef struct moec_status moec_status;

/* A new status. The message says what was expected, what was got, and where; no newline. */
moec_status *moec_error(moec_code code, const char *fmt, ...) MOEC_PRINTF(2, 3) MOEC_NEVER_NULL;
moec_status *moec_errorv(moec_code code, const char *fmt, va_list args)
    MOEC_PRINTF(2, 0) MOEC_NEVER_NULL;
/* moec_error(MOEC_INVALID_ARGUMENT, ...): what a caller or a command line gave is wrong. */
moec_status *moec_wrong(const char *fmt, ...) MOEC_PRINTF(1, 2) MOEC_NEVER_NULL;

/* Puts "context: " before the message of |s| and returns it; NULL stays NULL. */
moec_status *moec_context(moec_status *s, const char *fmt, ...) MOEC_PRINTF(2, 3);

/* Code and message; valid until |s| is freed. NULL gives MOEC_OK and "ok". */
moec_code moec_status_code(const moec_status *s);
const char *moec_status_message(const moec_status *s);

/* The exit status a command line tool ends with: 0, 1 or 2. */
int moec_status_exit(const moec_status *s);

void moec_status_free(moec_status *s); /* NULL is fine */

/* Returns from the enclosing function when |expr| is an error. */
#define MOEC_TRY(expr)               \
  do {                               \
    moec_status *moec_try_ = (expr); \
    if (moec_try_) return moec_try_; \
  } while (0)

/* A broken invariant, reported with its place in the source. */
#define MOEC_BUG(...) moec_error_at(__FILE__, __LINE__, __VA_ARGS__)
moec_status *moec_error_at(const char *file, int line, const char *fmt, ...)
    MOEC_PRINTF(3, 4) MOEC_NEVER_NULL;

#endif
