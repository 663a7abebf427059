/* Memory that an optimizer may write to. Until the first update parameters lie where they were
 * loaded, in mapped files for the most part; then every one that is trained gets an f32 master. */
#include <string.h>

#include "runtime/convert.h"
#include "runtime/model.h"

static const moec_plan_tensor *tensor_of(const moec_model *m, const moec_rt_leaf *l) {
  return &m->plan.tensors[m->plan.params[l->param].tensor];
}

static uint64_t rounded(uint64_t bytes) { return (bytes / MOEC_RT_ALIGN + 1) * MOEC_RT_ALIGN; }

/* Whether the compute copy is among those made on loading. */
static bool is_private(const moec_model *m, const void *data) {
  const moec_rt_arena *a = &m->params.copies;
  return a->data && (const uint8_t *)data >= a->data && (const uint8_t *)data < a->data + a->size;
}

/* Bytes of the new compute copy and of the master, 0 where there is need of none. */
static void bytes_of(const moec_model *m, const moec_rt_leaf *l, uint64_t *copy, uint64_t *master) {
  const moec_plan_tensor *t = tensor_of(m, l);
  uint64_t element = moec_dtype_get((moec_dtype)t->dtype)->bytes;
  *copy = is_private(m, m->host[l->weight]) ? 0 : rounded((uint64_t)l->n * element);
  *master = t->dtype == MOEC_F32 ? 0 : rounded((uint64_t)l->n * sizeof(float));
}

static void move(moec_model *m, uint32_t k, uint8_t *to) {
  const moec_rt_plan *p = &m->plan;
  moec_rt_leaf *l = &m->train.leaves[k];
  const moec_plan_tensor *t = tensor_of(m, l);
  uint64_t copy, master;
  bytes_of(m, l, &copy, &master);
  void *from = m->host[l->weight];
  if (copy) {
    if (l->n) memcpy(to, from, (size_t)l->n * moec_dtype_get((moec_dtype)t->dtype)->bytes);
    for (uint32_t i = 0; i < p->n_params; i++) {
      if (m->train.leaf_of[i] == k) m->host[p->tensors[p->params[i].tensor].buffer] = to;
    }
  }
  l->master = master ? (void *)(to + copy) : m->host[l->weight];
  if (master) moec_rt_convert(MOEC_F32, l->master, 1, (moec_dtype)t->dtype, from, 1, l->n);
}

moec_status *moec_rt_masters_make(moec_model *m) {
  moec_rt_train *t = &m->train;
  uint64_t total = 0, at = 0, copy, master;
  if (!t->n || t->leaves[0].master) return NULL;
  for (uint32_t k = 0; k < t->n; k++) {
    bytes_of(m, &t->leaves[k], &copy, &master);
    if (__builtin_add_overflow(total, copy, &total) ||
        __builtin_add_overflow(total, master, &total)) {
      return moec_rt_no_memory("parameters to be trained", UINT64_MAX);
    }
  }
  if (total) {
    MOEC_TRY(moec_rt_arena_reserve(&m->memory, &t->weights, total, "parameters to be trained"));
  }
  for (uint32_t k = 0; k < t->n; k++) {
    bytes_of(m, &t->leaves[k], &copy, &master);
    move(m, k, total ? t->weights.data + at : NULL); /* NULL: nothing in it has a size */
    at += copy + master;
  }
  return NULL;
}

/* What of |schedule| depends on what was updated, again. */
static moec_status *run_derived(moec_model *m, moec_schedule schedule, const moec_rt_binding *b) {
  const moec_rt_plan *p = &m->plan;
  MOEC_TRY(m->device->begin(m, schedule, b));
  for (uint32_t i = p->schedule_begin[schedule]; i < p->schedule_begin[schedule + 1]; i++) {
    if (m->train.derived[i]) MOEC_TRY(moec_rt_run_step(m, i, b));
  }
  return m->device->end(m, schedule);
}

moec_status *moec_rt_masters_apply(moec_model *m) {
  for (uint32_t k = 0; k < m->train.n; k++) {
    const moec_rt_leaf *l = &m->train.leaves[k];
    moec_dtype type = (moec_dtype)tensor_of(m, l)->dtype;
    if (type == MOEC_F32) continue;
    moec_rt_convert(type, m->host[l->weight], 1, MOEC_F32, l->master, 1, l->n);
  }
  MOEC_TRY(moec_rt_copies_update(m));
  MOEC_TRY(run_derived(m, MOEC_AT_LOAD, m->fixed));
  return m->bound ? run_derived(m, MOEC_AT_BIND, m->bound) : NULL;
}

moec_status *moec_rt_moments_make(moec_model *m, const moec_optimizer *o) {
  moec_rt_train *t = &m->train;
  uint64_t each = o->kind == MOEC_ADAMW ? 2 : o->momentum != 0, total = 0, at = 0;
  if (!each || !t->n || t->leaves[0].first) return NULL;
  for (uint32_t k = 0; k < t->n; k++) {
    if (__builtin_add_overflow(total, each * rounded((uint64_t)t->leaves[k].n * sizeof(float)),
                               &total)) {
      return moec_rt_no_memory("moments", UINT64_MAX);
    }
  }
  MOEC_TRY(moec_rt_arena_reserve(&m->memory, &t->moments, total, "moments"));
  memset(t->moments.data, 0, total);
  for (uint32_t k = 0; k < t->n; k++) {
    moec_rt_leaf *l = &t->leaves[k];
    uint64_t bytes = rounded((uint64_t)l->n * sizeof(float));
    l->first = (void *)(t->moments.data + at);
    if (each == 2) l->second = (void *)(t->moments.data + at + bytes);
    at += each * bytes;
  }
  return NULL;
}
