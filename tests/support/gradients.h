/* Gradients of a run against those of transformers. */
#ifndef MOEC_TESTS_SUPPORT_GRADIENTS_H
#define MOEC_TESTS_SUPPORT_GRADIENTS_H

#include "tests/support/run.h"

/* "grad.m.model.x" is the parameter "model.x" of transformers. */
static inline const moec_st_entry *golden_gradient(const moec_safetensors *golden, const char *output) {
  char name[256];
  const moec_st_entry *e = moec_safetensors_find(golden, output);
  if (e || strncmp(output, "grad.m.", 7) != 0) return e;
  snprintf(name, sizeof name, "grad.%s", output + 7);
  return moec_safetensors_find(golden, name);
}

static inline double norm(const moec_tensor *t) {
  double sum = 0;
  for (size_t i = 0; i < (size_t)moec_tensor_numel(t); i++) {
    double x = moec_load_f64(t->dtype, t->data, i);
    sum += x * x;
  }
  return sqrt(sum);
}

/* Relative L2; absolute where golden is about zero. */
static inline double gradient_error(const char *name, const moec_tensor *got, const moec_tensor *want) {
  if (got->rank != want->rank || memcmp(got->dims, want->dims, got->rank * sizeof *got->dims) != 0)
    ck_abort_msg("%s: expected the shape of the parameter", name);
  return norm(want) < 1e-7 ? norm(got) : relative_l2(got, want);
}

#endif
