/* Leaves: parameters, constants, sizes, iota, random numbers. */
#include "base/random.h"
#include "ir/interp_internal.h"

void moec_interp_read(const moec_tensor *t, moec_tensor *out) {
  int64_t n = moec_tensor_numel(out);
  for (int64_t i = 0; i < n; i++) {
    if (moec_is_f64(out))
      ((double *)out->data)[i] = moec_load_f64(t->dtype, t->data, (size_t)i);
    else
      ((int64_t *)out->data)[i] = moec_load_i64(t->dtype, t->data, (size_t)i);
  }
}

MOEC_KERNEL(param) {
  moec_tensor t;
  MOEC_TRY(moec_param_load(s->ip->m, ((const moec_attrs_PARAM *)s->attrs)->param, &t));
  moec_interp_read(&t, &s->out[0]);
  moec_tensor_fini(&t);
  return NULL;
}

MOEC_KERNEL(const) {
  const moec_const *c = ((const moec_attrs_CONST *)s->attrs)->data;
  moec_tensor t = s->out[0];
  t.dtype = moec_step_result(s, 0);
  if (moec_tensor_bytes(&t) != c->size)
    return MOEC_RUN_ERROR("expected %zu bytes of data, got %zu", moec_tensor_bytes(&t), c->size);
  t.data = (void *)(uintptr_t)c->bytes;
  moec_interp_read(&t, &s->out[0]);
  return NULL;
}

MOEC_KERNEL(size) {
  return moec_interp_dim(s->ip, ((const moec_attrs_SIZE *)s->attrs)->value, s->out[0].data);
}

MOEC_KERNEL(iota) {
  uint32_t axis = (uint32_t)((const moec_attrs_IOTA *)s->attrs)->axis;
  const moec_tensor *y = &s->out[0];
  int64_t n = moec_tensor_numel(y), inner = moec_span(y->dims, axis + 1, y->rank);
  for (int64_t i = 0; i < n; i++) {
    int64_t v = i / inner % y->dims[axis];
    if (moec_is_f64(y))
      ((double *)y->data)[i] = (double)v;
    else
      ((int64_t *)y->data)[i] = v;
  }
  return NULL;
}

MOEC_KERNEL(random) {
  const moec_attrs_RANDOM *a = s->attrs;
  double *y = s->out[0].data;
  int64_t n = moec_tensor_numel(&s->out[0]);
  for (int64_t i = 0; i < n; i++) y[i] = moec_random(a->dtype, a->kind, a->seed, i);
  return NULL;
}
