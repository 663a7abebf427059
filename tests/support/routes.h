/* Expert routes of a run against those transformers took. */
#ifndef MOEC_TESTS_SUPPORT_ROUTES_H
#define MOEC_TESTS_SUPPORT_ROUTES_H

#include "tests/support/run.h"

/* Row |t| of |idx| holds the experts of golden row |t|, in any order, with equal weights. */
static inline void check_row(const moec_tensor *idx, const moec_tensor *w, const moec_tensor *gold_idx,
                             const moec_tensor *gold_w, int64_t t, const char *name) {
  int64_t k = gold_idx->dims[1];
  for (int64_t i = 0; i < k; i++) {
    int64_t want = moec_load_i64(gold_idx->dtype, gold_idx->data, (size_t)(t * k + i)), at = -1;
    for (int64_t j = 0; j < k; j++)
      if (moec_load_i64(idx->dtype, idx->data, (size_t)(t * k + j)) == want) at = j;
    if (at < 0) ck_abort_msg("%s: token %lld: expert %lld was not chosen", name, (long long)t, (long long)want);
    double a = moec_load_f64(w->dtype, w->data, (size_t)(t * k + at));
    double b = moec_load_f64(gold_w->dtype, gold_w->data, (size_t)(t * k + i));
    if (!(fabs(a - b) <= 1e-5)) ck_abort_msg("%s: token %lld: weight %g, expected %g", name, (long long)t, a, b);
  }
}

/* |dir|/routes.safetensors against the routers of |golden|, layer by layer. */
static inline void check_routes(const char *what, const moec_safetensors *golden, const char *dir) {
  char path[256], name[160];
  moec_safetensors *routes = NULL;
  int layer = 0;
  UNIT_OK(moec_safetensors_open(unit_path(path, dir, "routes.safetensors"), &routes));
  for (size_t i = 0; i < moec_safetensors_count(golden); i++) {
    const moec_st_entry *e = moec_safetensors_at(golden, i);
    size_t n = strlen(e->name);
    if (strncmp(e->name, "router.", 7) != 0 || strcmp(e->name + n - 2, ".2") != 0) continue;
    snprintf(name, sizeof name, "%.*s.1", (int)n - 2, e->name);
    const moec_st_entry *gold_w = moec_safetensors_find(golden, name);
    snprintf(name, sizeof name, "route.%d.indices", layer);
    const moec_st_entry *idx = moec_safetensors_find(routes, name);
    snprintf(name, sizeof name, "route.%d.weights", layer++);
    const moec_st_entry *w = moec_safetensors_find(routes, name);
    if (!idx || !w || !gold_w) ck_abort_msg("%s: %s is missing", what, name);
    ck_assert_int_eq(moec_tensor_numel(&idx->tensor), moec_tensor_numel(&e->tensor));
    for (int64_t t = 0; t < e->tensor.dims[0]; t++)
      check_row(&idx->tensor, &w->tensor, &e->tensor, &gold_w->tensor, t, e->name);
  }
  ck_assert_int_gt(layer, 0);
  ck_assert_uint_eq(moec_safetensors_count(routes), (size_t)(2 * layer));
  moec_safetensors_close(routes);
}

#endif
