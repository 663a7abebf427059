/* What every Check program here shares. */
#ifndef MOEC_TESTS_UNIT_H
#define MOEC_TESTS_UNIT_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/status.h"

/* |expr| gives no error. */
#define UNIT_OK(expr)                                              \
  do {                                                             \
    moec_status *unit_s_ = (expr);                                 \
    if (unit_s_) ck_abort_msg("%s", moec_status_message(unit_s_)); \
  } while (0)

/* |expr| gives an error of this code whose message holds |text|. */
#define UNIT_FAILS(expr, code, text) unit_fails((expr), (code), (text), #expr)
static inline void unit_fails(moec_status *s, moec_code code, const char *text, const char *expr) {
  if (moec_status_code(s) != code || !strstr(moec_status_message(s), text)) {
    ck_abort_msg("%s: expected code %d and '%s', got code %d and '%s'", expr, (int)code, text,
                 (int)moec_status_code(s), moec_status_message(s));
  }
  moec_status_free(s);
}

/* For conditions checked very often: Check writes a record for every ck_assert(). */
#define UNIT_TRUE(expr)                            \
  do {                                             \
    if (!(expr)) ck_abort_msg("not true: " #expr); \
  } while (0)

/* A new empty folder; the caller frees the name and ends it with unit_remove(). */
static inline char *unit_folder(void) {
  char *dir = strdup("/tmp/moec-unit-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(dir));
  return dir;
}

static inline void unit_remove(char *dir) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf '%s'", dir);
  ck_assert_int_eq(system(command), 0);
  free(dir);
}

/* |dir|/|name| in |out|, which it returns. */
static inline const char *unit_path(char out[256], const char *dir, const char *name) {
  ck_assert_int_lt(snprintf(out, 256, "%s/%s", dir, name), 256);
  return out;
}

/* The exit status of a test program; a program that ran no test fails. */
static inline int unit_run(Suite *suite) {
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_NORMAL);
  int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
  srunner_free(runner);
  if (run == 0) fprintf(stderr, "no test was run\n");
  return failed || run == 0;
}

/* main() of a test program: UNIT_MAIN("name", test_a, test_b, ...). A program that cannot run everywhere defines
 * UNIT_BEFORE, which returns 77 from main() where it cannot. */
#define UNIT_BEFORE
#define UNIT_MAIN(name, ...)                                    \
  int main(void) {                                              \
    UNIT_BEFORE                                                 \
    const TTest *const tests[] = {__VA_ARGS__};                 \
    Suite *suite = suite_create(name);                          \
    TCase *tcase = tcase_create(name);                          \
    tcase_set_timeout(tcase, 0); /* ctest has one */            \
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) { \
      tcase_add_test(tcase, tests[i]);                          \
    }                                                           \
    suite_add_tcase(suite, tcase);                              \
    return unit_run(suite);                                     \
  }

#endif
