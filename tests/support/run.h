/* Running programs and comparing tensors, for end-to-end tests. */
#ifndef MOEC_TESTS_SUPPORT_RUN_H
#define MOEC_TESTS_SUPPORT_RUN_H

#include <math.h>
#include <stdarg.h>
#include <sys/wait.h>

#include "base/safetensors.h"
#include "base/tensor.h"
#include "tests/unit/unit.h"

/* Runs a shell command; its exit status, or -1 when a signal ended it. Output goes to |dir|/log. */
static inline int run_command(const char *dir, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline int run_command(const char *dir, const char *fmt, ...) {
  char command[8192], whole[8448];
  va_list args;
  va_start(args, fmt);
  vsnprintf(command, sizeof command, fmt, args);
  va_end(args);
  snprintf(whole, sizeof whole, "{ %s ; } > %s/log 2>&1", command, dir);
  int status = system(whole);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The command succeeds; on failure its output is in the message. */
#define RUN_OK(dir, ...)                                                                      \
  do {                                                                                        \
    int run_status_ = run_command((dir), __VA_ARGS__);                                        \
    if (run_status_ != 0) ck_abort_msg("exit status %d: %s", run_status_, run_log((dir)));    \
  } while (0)

static inline const char *run_log(const char *dir) {
  static char text[4096]; /* of a test program: overwritten by the next call */
  char path[256];
  FILE *f = fopen(unit_path(path, dir, "log"), "r");
  size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
  if (f) fclose(f);
  text[n] = '\0';
  return text;
}

/* Largest absolute difference; shapes must be equal. NaN against a number counts as infinite. */
static inline double max_abs_diff(const moec_tensor *a, const moec_tensor *b) {
  ck_assert_uint_eq(a->rank, b->rank);
  for (uint32_t i = 0; i < a->rank; i++) ck_assert_int_eq(a->dims[i], b->dims[i]);
  double worst = 0;
  size_t n = (size_t)moec_tensor_numel(a);
  for (size_t i = 0; i < n; i++) {
    double x = moec_load_f64(a->dtype, a->data, i), y = moec_load_f64(b->dtype, b->data, i);
    double d = fabs(x - y);
    if (isnan(x) && isnan(y)) d = 0;
    if (isnan(d)) return INFINITY;
    if (d > worst) worst = d;
  }
  return worst;
}

/* |a - b| / |b| in the Euclidean norm. */
static inline double relative_l2(const moec_tensor *a, const moec_tensor *b) {
  double num = 0, den = 0;
  size_t n = (size_t)moec_tensor_numel(b);
  ck_assert_int_eq(moec_tensor_numel(a), moec_tensor_numel(b));
  for (size_t i = 0; i < n; i++) {
    double x = moec_load_f64(a->dtype, a->data, i), y = moec_load_f64(b->dtype, b->data, i);
    num += (x - y) * (x - y);
    den += y * y;
  }
  return sqrt(num / den);
}

#endif
