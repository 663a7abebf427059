/* include/moec.h: tensors from and to other libraries. */
#include "runtime/dlpack.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/model.h"

/* ---- element types ----------------------------------------------------------------------- */

/* By class of base/dtype.h; bf16 has a code of its own. */
static uint8_t code_of(moec_dtype t) {
  switch (moec_dtype_get(t)->cls) {
    case 'F': return t == MOEC_BF16 ? MOEC_DL_BFLOAT : MOEC_DL_FLOAT;
    case 'I': return MOEC_DL_INT;
    case 'U': return MOEC_DL_UINT;
    default: return MOEC_DL_BOOL;
  }
}

static DLDataType type_of(moec_dtype t) {
  return (DLDataType){code_of(t), (uint8_t)(8 * moec_dtype_get(t)->bytes), 1};
}

static moec_dtype from_type(DLDataType d) {
  for (int t = MOEC_DTYPE_NONE + 1; t < MOEC_DTYPE_COUNT; t++) {
    DLDataType x = type_of((moec_dtype)t);
    if (x.code == d.code && x.bits == d.bits && d.lanes == 1) return (moec_dtype)t;
  }
  return MOEC_DTYPE_NONE;
}

/* ---- in ---------------------------------------------------------------------------------- */

/* Strides of axes with one element, and of tensors without any, say nothing. */
static bool is_dense(const DLTensor *t) {
  int64_t step = 1;
  if (!t->strides) return true;
  for (int32_t a = 0; a < t->ndim; a++) {
    if (t->shape[a] == 0) return true;
  }
  for (int32_t a = t->ndim; a-- > 0;) {
    if (t->shape[a] != 1 && t->strides[a] != step) return false;
    if (__builtin_mul_overflow(step, t->shape[a], &step)) return false;
  }
  return true;
}

static moec_status *to_view(const char *name, const DLTensor *t, moec_view *out) {
  moec_dtype dtype = from_type(t->dtype);
  if (t->device.device_type != MOEC_DL_CPU) {
    return moec_error(MOEC_UNSUPPORTED,
                      "input \"%s\": expected a tensor in host memory, DLPack device %d, got %d",
                      name, (int)MOEC_DL_CPU, (int)t->device.device_type);
  }
  if (dtype == MOEC_DTYPE_NONE) {
    return moec_error(MOEC_UNSUPPORTED,
                      "input \"%s\": DLPack type code %u of %u bits and %u lanes is no type here",
                      name, t->dtype.code, t->dtype.bits, t->dtype.lanes);
  }
  if (t->ndim < 0 || t->ndim > MOEC_MAX_DIMS) {
    return moec_error(MOEC_INVALID_ARGUMENT, "input \"%s\": expected rank 0 to %d, got %d", name,
                      MOEC_MAX_DIMS, (int)t->ndim);
  }
  if (!is_dense(t)) {
    return moec_error(MOEC_UNSUPPORTED,
                      "input \"%s\": expected a dense row-major tensor, got other strides", name);
  }
  *out = (moec_view){.dtype = (int)dtype, .rank = (uint32_t)t->ndim};
  out->data = t->data ? (uint8_t *)t->data + t->byte_offset : NULL;
  for (int32_t a = 0; a < t->ndim; a++) out->dims[a] = t->shape[a];
  return NULL;
}

static moec_status *take(moec_model *m, uint32_t i, const DLTensor *t, void *owner,
                         void (*release)(void *)) {
  moec_view v;
  const char *name = i < m->n_ins ? m->ins[i].name : "";
  MOEC_TRY(to_view(name, t, &v));
  MOEC_TRY(moec_input_borrow(m, i, &v));
  m->inputs[i].owner = owner;
  m->inputs[i].release = release;
  return NULL;
}

static void release_versioned(void *owner) {
  DLManagedTensorVersioned *t = owner;
  if (t->deleter) t->deleter(t);
}

static void release_unversioned(void *owner) {
  DLManagedTensor *t = owner;
  if (t->deleter) t->deleter(t);
}

moec_status *moec_input_dlpack(moec_model *m, uint32_t i, DLManagedTensorVersioned *t) {
  if (t->version.major != MOEC_DL_MAJOR) {
    return moec_error(MOEC_UNSUPPORTED, "DLPack: expected version %d, got version %" PRIu32,
                      (int)MOEC_DL_MAJOR, t->version.major);
  }
  return take(m, i, &t->dl_tensor, t, release_versioned);
}

moec_status *moec_input_dlpack_unversioned(moec_model *m, uint32_t i, DLManagedTensor *t) {
  return take(m, i, &t->dl_tensor, t, release_unversioned);
}

/* ---- out --------------------------------------------------------------------------------- */

/* What the deleter gets back: the model lives as long. */
typedef struct lent {
  moec_model *m;
  int64_t shape[MOEC_MAX_DIMS];
  union {
    DLManagedTensorVersioned versioned;
    DLManagedTensor unversioned;
  } as;
} lent;

static void end(lent *l) {
  moec_model *m = l->m;
  free(l);
  moec_rt_release(m);
}

static void delete_versioned(DLManagedTensorVersioned *t) { end(t->manager_ctx); }
static void delete_unversioned(DLManagedTensor *t) { end(t->manager_ctx); }

static moec_status *lend(moec_model *m, const moec_view *v, lent **out, DLTensor *t) {
  if (v->dtype <= MOEC_DTYPE_NONE || v->dtype >= MOEC_DTYPE_COUNT || v->rank > MOEC_MAX_DIMS) {
    return moec_error(MOEC_INVALID_ARGUMENT, "DLPack: expected a view of this model");
  }
  lent *l = *out = malloc(sizeof *l);
  if (!l) return moec_error(MOEC_OUT_OF_MEMORY, "no memory for a DLPack tensor");
  l->m = m;
  memcpy(l->shape, v->dims, sizeof l->shape);
  *t = (DLTensor){.data = v->data,
                  .device = {MOEC_DL_CPU, 0},
                  .ndim = (int32_t)v->rank,
                  .dtype = type_of((moec_dtype)v->dtype),
                  .shape = l->shape};
  atomic_fetch_add(&m->refs, 1);
  return NULL;
}

/* Parameters may lie in mapped files, and are not the caller's to write to anyway. */
static bool is_read_only(const moec_model *m, const void *data) {
  for (uint32_t i = 0; i < m->plan.n_params; i++) {
    if (m->host[m->plan.tensors[m->plan.params[i].tensor].buffer] == data) return true;
  }
  return false;
}

moec_status *moec_dlpack(moec_model *m, const moec_view *view, DLManagedTensorVersioned **out) {
  lent *l;
  DLTensor t;
  *out = NULL;
  MOEC_TRY(lend(m, view, &l, &t));
  l->as.versioned = (DLManagedTensorVersioned){.version = {MOEC_DL_MAJOR, MOEC_DL_MINOR},
                                               .manager_ctx = l,
                                               .deleter = delete_versioned,
                                               .dl_tensor = t};
  if (is_read_only(m, view->data)) l->as.versioned.flags = MOEC_DL_READ_ONLY;
  *out = &l->as.versioned;
  return NULL;
}

moec_status *moec_dlpack_unversioned(moec_model *m, const moec_view *view, DLManagedTensor **out) {
  lent *l;
  DLTensor t;
  *out = NULL;
  MOEC_TRY(lend(m, view, &l, &t));
  l->as.unversioned =
      (DLManagedTensor){.manager_ctx = l, .deleter = delete_unversioned, .dl_tensor = t};
  *out = &l->as.unversioned;
  return NULL;
}
