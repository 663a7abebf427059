/* Memory that an optimizer may write to, on the device. Until the first update parameters lie where they were loaded,
 * in mapped files for the most part where that is the host; then every one that is trained gets an f32 master. */
#include <stdlib.h>
#include <string.h>

#include "runtime/convert.h"
#include "runtime/model.h"
#include "runtime/pieces.h"

static const moec_plan_param *param_of(const moec_model *m, const moec_rt_leaf *l) {
  return &m->plan.params[l->param];
}

static uint64_t element(moec_dtype type) { return moec_dtype_get(type)->bytes; }

/* Whether the compute copy lies where it can be written: on a device, and among those made on loading. */
static bool is_private(const moec_model *m, const void *data) {
  const moec_rt_arena *a = &m->params.copies;
  if (!m->device->in_host) return true;
  return a->data && (const uint8_t *)data >= a->data && (const uint8_t *)data < a->data + a->size;
}

/* Bytes of the new compute copy and of the master, 0 where there is need of none. */
static void bytes_of(const moec_model *m, const moec_rt_leaf *l, uint64_t *copy, uint64_t *master) {
  *copy = is_private(m, m->buffers[l->weight]) ? 0 : moec_rt_rounded((uint64_t)l->n * element(l->type));
  *master = l->type == MOEC_F32 ? 0 : moec_rt_rounded((uint64_t)l->n * sizeof(float));
}

/* The buffers of all parameters that share the storage of leaf |k|. */
static void set_address(const moec_model *m, void **addresses, uint32_t k, void *to) {
  const moec_rt_plan *p = &m->plan;
  for (uint32_t i = 0; i < p->n_params; i++) {
    if (m->train.leaf_of[i] == k) addresses[p->tensors[p->params[i].tensor].buffer] = to;
  }
}

/* ---- values ------------------------------------------------------------------------------ */

/* As the leaf's source has them, which may be more exact than the compute copy. */
static moec_status *load_values(const moec_model *m, const moec_rt_leaf *l, float *to) {
  const moec_rt_plan *p = &m->plan;
  const moec_plan_param *x = param_of(m, l);
  moec_plan_tensor wide = p->tensors[x->tensor];
  uint64_t most = 0;
  wide.dtype = MOEC_F32;
  for (uint32_t k = 0; k < x->n_pieces; k++) {
    uint64_t bytes = moec_rt_piece_room(&m->params, &p->pieces[x->pieces + k]);
    if (bytes > most) most = bytes;
  }
  void *room = malloc(most + 1);
  if (!room) return moec_rt_no_memory("a parameter", most);
  if (l->n && x->n_pieces != 1) memset(to, 0, (size_t)l->n * sizeof *to); /* as params.c has it */
  for (uint32_t k = 0; k < x->n_pieces; k++)
    moec_rt_piece_get(p, &m->params, &p->pieces[x->pieces + k], &wide, to, room);
  free(room);
  return NULL;
}

moec_status *moec_rt_leaf_values(const moec_model *m, const moec_rt_leaf *l, float *to) {
  if (!l->master) return load_values(m, l, to);
  return m->device->read((moec_model *)(uintptr_t)m, to, l->master, (uint64_t)l->n * sizeof *to);
}

/* A master from the compute copy where that is as exact as the source, on the device. */
static moec_status *fill_master(moec_model *m, const moec_rt_leaf *l) {
  const moec_plan_param *x = param_of(m, l);
  bool exact = true;
  for (uint32_t k = 0; k < x->n_pieces; k++) exact = exact && m->plan.pieces[x->pieces + k].dtype == l->type;
  if (exact) return m->device->train->add(m, l->master, false, l->type, m->buffers[l->weight], NULL, l->n);
  if (m->device->in_host) return load_values(m, l, l->master);
  uint64_t bytes = (uint64_t)l->n * sizeof(float);
  float *values = moec_rt_alloc(&m->memory, bytes, false);
  if (!values) return moec_rt_no_memory("a parameter to be trained", bytes);
  moec_status *s = load_values(m, l, values);
  if (!s) s = m->device->write(m, l->master, values, bytes);
  moec_rt_free(&m->memory, values);
  return s;
}

/* ---- masters ----------------------------------------------------------------------------- */

static moec_status *move(moec_model *m, uint32_t k, uint8_t *to) {
  moec_rt_leaf *l = &m->train.leaves[k];
  uint64_t copy, master;
  bytes_of(m, l, &copy, &master);
  if (copy) {
    if (l->n) memmove(to, m->buffers[l->weight], (size_t)l->n * element(l->type)); /* both are the host's */
    set_address(m, m->buffers, k, to);
  }
  l->master = master ? (void *)(to + copy) : m->buffers[l->weight];
  return master ? fill_master(m, l) : NULL;
}

/* Bytes of all masters and moved copies; UINT64_MAX where there are too many. */
static uint64_t all_bytes(const moec_model *m) {
  uint64_t total = 0, copy, master;
  for (uint32_t k = 0; k < m->train.n; k++) {
    bytes_of(m, &m->train.leaves[k], &copy, &master);
    if (__builtin_add_overflow(total, copy, &total) || __builtin_add_overflow(total, master, &total)) return UINT64_MAX;
  }
  return total;
}

static moec_status *move_all(moec_model *m, bool any) {
  uint64_t at = 0, copy, master;
  for (uint32_t k = 0; k < m->train.n; k++) {
    bytes_of(m, &m->train.leaves[k], &copy, &master);
    MOEC_TRY(move(m, k, any ? m->train.weights.data + at : NULL)); /* NULL: nothing in it has a size */
    at += copy + master;
  }
  return NULL;
}

moec_status *moec_rt_masters_make(moec_model *m) {
  moec_rt_train *t = &m->train;
  if (!t->n || t->leaves[0].master) return NULL;
  uint64_t total = all_bytes(m);
  if (total) MOEC_TRY(moec_rt_device_reserve(m, &t->weights, total, "parameters to be trained"));
  moec_status *s = move_all(m, total != 0);
  for (uint32_t k = 0; k < t->n && s; k++) t->leaves[k].master = NULL; /* all of them or none */
  return s;
}

/* Steps of |schedule| that depend on what was updated, again. Nothing waits for them: their indices are constants,
 * which loading has checked. */
static moec_status *run_derived(moec_model *m, moec_schedule schedule, const moec_rt_binding *b) {
  const moec_rt_plan *p = &m->plan;
  uint32_t i = p->schedule_begin[schedule], end = p->schedule_begin[schedule + 1];
  while (i < end && !m->train.derived[i]) i++;
  if (i == end) return NULL;
  MOEC_TRY(m->device->begin(m, schedule, b));
  for (; i < end; i++) {
    if (m->train.derived[i]) MOEC_TRY(moec_rt_run_step(m, i, b));
  }
  return NULL;
}

moec_status *moec_rt_derive(moec_model *m) {
  MOEC_TRY(run_derived(m, MOEC_AT_LOAD, m->fixed));
  return m->bound ? run_derived(m, MOEC_AT_BIND, m->bound) : NULL;
}

moec_status *moec_rt_masters_apply(moec_model *m) {
  for (uint32_t k = 0; k < m->train.n; k++) {
    const moec_rt_leaf *l = &m->train.leaves[k];
    if (l->type == MOEC_F32) continue;
    MOEC_TRY(m->device->train->narrow(m, l->type, m->buffers[l->weight], l->master, l->n));
  }
  m->train.is_copied = false;
  return moec_rt_derive(m);
}

/* ---- the host's copies ------------------------------------------------------------------- */

moec_status *moec_rt_copies_fetch(moec_model *m) {
  moec_rt_train *t = &m->train;
  uint64_t total = 0, at = 0;
  if (m->device->in_host || t->is_copied || !t->n || !t->leaves[0].master) return NULL;
  for (uint32_t k = 0; k < t->n; k++) total += moec_rt_rounded((uint64_t)t->leaves[k].n * element(t->leaves[k].type));
  MOEC_TRY(moec_rt_arena_reserve(&m->memory, &t->copies, total, "parameters"));
  for (uint32_t k = 0; k < t->n; k++) {
    const moec_rt_leaf *l = &t->leaves[k];
    uint64_t bytes = (uint64_t)l->n * element(l->type);
    MOEC_TRY(m->device->read(m, t->copies.data + at, m->buffers[l->weight], bytes));
    set_address(m, m->host, k, t->copies.data + at);
    at += moec_rt_rounded(bytes);
  }
  t->is_copied = true;
  return NULL;
}

/* ---- moments ----------------------------------------------------------------------------- */

/* How many of them each element has. */
static uint64_t moments_of(const moec_optimizer *o) { return o->kind == MOEC_ADAMW ? 2 : o->momentum != 0; }

static uint64_t moments_there(const moec_rt_leaf *l) { return l->second ? 2 : l->first != NULL; }

moec_status *moec_rt_moments_make(moec_model *m, const moec_optimizer *o) {
  moec_rt_train *t = &m->train;
  uint64_t each = moments_of(o), total = moec_rt_array(t->float_bytes, each);
  if (!t->n || moments_there(&t->leaves[0]) == each) return NULL;
  for (uint32_t k = 0; k < t->n; k++) t->leaves[k].first = t->leaves[k].second = NULL; /* of an optimizer before it */
  if (!each) return NULL;
  MOEC_TRY(moec_rt_device_reserve(m, &t->moments, total, "moments"));
  MOEC_TRY(m->device->fill(m, t->moments.data, 0, total));
  for (uint32_t k = 0; k < t->n; k++) {
    moec_rt_leaf *l = &t->leaves[k];
    l->first = (void *)(t->moments.data + l->offset);
    if (each == 2) l->second = (void *)(t->moments.data + t->float_bytes + l->offset);
  }
  return NULL;
}

uint64_t moec_rt_update_bytes(const moec_model *m) {
  const moec_rt_train *t = &m->train;
  moec_optimizer o = t->optimizer;
  if (!t->n) return 0;
  if (!t->chosen) moec_optimizer_defaults(MOEC_ADAMW, &o);
  uint64_t weights = t->leaves[0].master ? t->weights.size : all_bytes(m), sum;
  uint64_t scalars = moec_rt_scalars_bytes(m) + moec_rt_norm_bytes(m);
  bool over = __builtin_add_overflow(weights, moec_rt_array(t->float_bytes, moments_of(&o)), &sum);
  return over || __builtin_add_overflow(sum, scalars, &sum) ? UINT64_MAX : sum;
}
