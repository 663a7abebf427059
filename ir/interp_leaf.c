/* Leaves: parameters, constants, sizes, iota, random numbers. */
#include <math.h>

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

/* ---- random numbers: the generator of docs/ir.md ------------------------------------------ */

static uint64_t mix(uint64_t z) { /* splitmix64 */
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

/* Significant bits of a float dtype, at most the 24 that are drawn. */
static int precision(moec_dtype t) { return t == MOEC_BF16 ? 8 : t == MOEC_F16 ? 11 : 24; }

/* |v| in [0, 1) cut to |bits| significant bits: rounding could give 1. */
static double cut(double v, int bits) {
  int exponent;
  double mantissa = frexp(v, &exponent);
  return ldexp(floor(ldexp(mantissa, bits)), exponent - bits);
}

MOEC_KERNEL(random) {
  const moec_attrs_RANDOM *a = s->attrs;
  double *y = s->out[0].data;
  int64_t n = moec_tensor_numel(&s->out[0]);
  uint64_t seed = mix((uint64_t)a->seed);
  int bits = precision(a->dtype);
  for (int64_t i = 0; i < n; i++) {
    uint64_t h = mix(seed + (uint64_t)i);
    double u = (double)(h >> 40) * 0x1p-24, v = (double)(h >> 16 & 0xffffff) * 0x1p-24;
    y[i] = a->kind == 0 ? cut(u, bits) : sqrt(-2 * log(1 - u)) * cos(2 * M_PI * v);
  }
  return NULL;
}
