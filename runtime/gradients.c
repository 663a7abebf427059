/* include/moec.h: reading gradients, scaling and clipping them. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/convert.h"
#include "runtime/model.h"

/* ---- where they are ---------------------------------------------------------------------- */

uint64_t moec_rt_scalars_bytes(const moec_model *m) {
  return sizeof(moec_cuda_scale) + m->train.n * sizeof(moec_cuda_update);
}

static int64_t chunks_of(const moec_rt_leaf *l) { return l->n / MOEC_RT_SQUARES + (l->n % MOEC_RT_SQUARES != 0); }

uint64_t moec_rt_norm_bytes(const moec_model *m) {
  uint64_t all = 0;
  for (uint32_t k = 0; k < m->train.n; k++) all += (uint64_t)chunks_of(&m->train.leaves[k]);
  return all * sizeof(double);
}

moec_status *moec_rt_scalars_make(moec_model *m) {
  moec_rt_train *t = &m->train;
  const moec_cuda_scale one = {.scale = 1, .before = 1};
  if (t->scalars.data) return NULL;
  MOEC_TRY(moec_rt_device_reserve(m, &t->chunks, moec_rt_norm_bytes(m), "the norm of gradients"));
  MOEC_TRY(moec_rt_device_reserve(m, &t->scalars, moec_rt_scalars_bytes(m), "scalars of updates"));
  return m->device->write(m, t->scalars.data, &one, sizeof one);
}

static moec_cuda_scale *scale_at(const moec_rt_train *t) { return (void *)t->scalars.data; }

const moec_cuda_scale *moec_rt_scale(const moec_model *m) { return m->train.scaled ? scale_at(&m->train) : NULL; }

/* Makes gradients what they are stored as, in f32. A program's stay where they are if |in_place| and they can. */
static moec_status *settle(moec_model *m, bool in_place) {
  moec_rt_train *t = &m->train;
  for (uint32_t k = 0; k < t->n; k++) {
    moec_rt_leaf *l = &t->leaves[k];
    if (!l->has_grad) continue;
    bool stays = l->at_type == MOEC_F32 && in_place;
    if (!stays) MOEC_TRY(moec_rt_device_reserve(m, &t->sums, t->float_bytes, "sums of gradients"));
    float *to = stays ? l->at : (void *)(t->sums.data + l->offset);
    if (to == l->at && !t->scaled) continue;
    MOEC_TRY(m->device->train->add(m, to, false, l->at_type, l->at, moec_rt_scale(m), l->n));
    l->at = to, l->at_type = MOEC_F32;
  }
  t->scaled = false;
  return NULL;
}

moec_status *moec_rt_gradients_return(moec_model *m) {
  moec_rt_train *t = &m->train;
  if (!t->is_lent || m->device->in_host) return NULL;
  MOEC_TRY(moec_rt_device_reserve(m, &t->sums, t->float_bytes, "sums of gradients"));
  for (uint32_t k = 0; k < t->n; k++) {
    moec_rt_leaf *l = &t->leaves[k];
    if (!l->has_grad) continue;
    l->at = t->sums.data + l->offset, l->at_type = MOEC_F32;
    MOEC_TRY(m->device->write(m, l->at, t->lent.data + l->offset, (uint64_t)l->n * sizeof(float)));
  }
  t->is_lent = t->scaled = false;
  return NULL;
}

moec_status *moec_rt_gradients_sum(moec_model *m) {
  MOEC_TRY(moec_rt_gradients_return(m));
  return settle(m, false);
}

/* ---- reading ----------------------------------------------------------------------------- */

/* The gradient of |l| into |to|, of the host, in f32. |room|: as many bytes as it has. */
static moec_status *read_leaf(moec_model *m, const moec_rt_leaf *l, float scale, void *room, float *to) {
  void *at = l->at_type == MOEC_F32 ? to : room;
  MOEC_TRY(m->device->read(m, at, l->at, (uint64_t)l->n * moec_dtype_get(l->at_type)->bytes));
  if (at == room) moec_rt_convert(MOEC_F32, to, 1, l->at_type, room, 1, l->n);
  for (int64_t i = 0; i < l->n && m->train.scaled; i++) to[i] *= scale;
  return NULL;
}

/* All gradients into |lent|. */
static moec_status *lend(moec_model *m) {
  moec_rt_train *t = &m->train;
  moec_cuda_scale scale = {.scale = 1};
  uint64_t most = 0;
  if (t->is_lent) return NULL;
  for (uint32_t k = 0; k < t->n; k++) {
    uint64_t bytes = (uint64_t)t->leaves[k].n * sizeof(float);
    if (bytes > most) most = bytes;
  }
  if (t->scaled) MOEC_TRY(m->device->read(m, &scale, scale_at(t), sizeof scale));
  MOEC_TRY(moec_rt_arena_reserve(&m->memory, &t->lent, t->float_bytes, "gradients"));
  void *room = moec_rt_alloc(&m->memory, most, false);
  moec_status *s = room ? NULL : moec_rt_no_memory("a gradient", most);
  for (uint32_t k = 0; k < t->n && !s; k++) {
    const moec_rt_leaf *l = &t->leaves[k];
    if (l->has_grad) s = read_leaf(m, l, scale.scale, room, (void *)(t->lent.data + l->offset));
  }
  moec_rt_free(&m->memory, room);
  t->is_lent = !s;
  return s;
}

moec_status *moec_gradient(const moec_model *m, uint32_t i, moec_view *out) {
  const moec_rt_plan *p = &m->plan;
  *out = (moec_view){0};
  MOEC_TRY(moec_rt_need_training(m));
  if (i >= p->n_params) {
    return moec_wrong("parameter: expected an index below %u, got %u", p->n_params, i);
  }
  const char *name = moec_rt_str(p, p->params[i].name);
  uint32_t k = m->train.leaf_of[i];
  if (k == MOEC_NONE) return moec_wrong("parameter \"%s\": it has no gradient", name);
  const moec_rt_leaf *l = &m->train.leaves[k];
  moec_model *own = (moec_model *)(uintptr_t)m; /* what is asked for is made then */
  if (!l->has_grad) return moec_wrong("parameter \"%s\": no gradient was computed", name);
  MOEC_TRY(m->device->in_host ? settle(own, true) : lend(own));
  moec_tensor v;
  moec_rt_tensor_view(m, m->fixed, p->params[i].tensor, &v);
  *out = (moec_view){.dtype = MOEC_DTYPE_F32, .rank = v.rank};
  memcpy(out->dims, v.dims, sizeof out->dims);
  out->data = m->device->in_host ? l->at : m->train.lent.data + l->offset;
  return NULL;
}

moec_status *moec_gradient_of(const moec_model *m, const char *name, moec_view *out) {
  uint32_t i;
  *out = (moec_view){0};
  MOEC_TRY(moec_find(m, MOEC_PARAMETERS, name, &i));
  return moec_gradient(m, i, out);
}

/* ---- scaling ----------------------------------------------------------------------------- */

/* Gradients as they are stored, to be worked on: what was lent is back. */
static moec_status *need_gradients(moec_model *m) {
  MOEC_TRY(moec_rt_need_training(m));
  for (uint32_t k = 0; k < m->train.n; k++) {
    if (!m->train.leaves[k].has_grad) continue;
    MOEC_TRY(moec_rt_gradients_return(m));
    return moec_rt_scalars_make(m);
  }
  return moec_wrong("expected gradients to be computed first, got none");
}

static moec_status *set_scale(moec_model *m, float scale) {
  moec_cuda_scale *s = scale_at(&m->train);
  m->train.scaled = true;
  return m->device->write(m, &s->scale, &scale, sizeof scale);
}

moec_status *moec_scale_gradients(moec_model *m, double factor) {
  MOEC_TRY(need_gradients(m));
  if (!isfinite(factor)) return moec_wrong("expected a finite factor, got %g", factor);
  if (m->train.scaled) MOEC_TRY(settle(m, true));
  return set_scale(m, (float)factor);
}

/* ---- clipping ---------------------------------------------------------------------------- */

/* Sums of squares of chunks of a fixed size, by leaf: the norm does not depend on the number of threads. */
static moec_status *sum_squares(moec_model *m, int64_t *out_n) {
  moec_rt_train *t = &m->train;
  int64_t n = 0;
  double *sums = (void *)t->chunks.data;
  for (uint32_t k = 0; k < t->n; k++) {
    const moec_rt_leaf *l = &t->leaves[k];
    if (!l->has_grad) continue;
    MOEC_TRY(m->device->train->squares(m, l->at_type, l->at, l->n, sums + n));
    n += chunks_of(l);
  }
  *out_n = n;
  return NULL;
}

moec_status *moec_clip_gradients(moec_model *m, double max_norm, double *norm) {
  moec_rt_train *t = &m->train;
  int64_t n;
  MOEC_TRY(need_gradients(m));
  if (!(max_norm > 0)) return moec_wrong("max_norm: expected a positive number, got %g", max_norm);
  MOEC_TRY(sum_squares(m, &n));
  if (!t->scaled) MOEC_TRY(set_scale(m, 1));
  MOEC_TRY(m->device->train->clip(m, (const double *)(void *)t->chunks.data, n, max_norm, scale_at(t)));
  t->unchecked = true;
  if (!norm && !m->device->in_host) return NULL;
  moec_cuda_scale s;
  MOEC_TRY(m->device->read(m, &s, scale_at(t), sizeof s));
  t->unchecked = false;
  if (norm) *norm = s.norm;
  if (!s.bad) return NULL;
  s.scale = s.before, s.bad = 0;
  MOEC_TRY(m->device->write(m, scale_at(t), &s, sizeof s));
  return moec_wrong("gradients: expected a finite norm, got %g", s.norm);
}

moec_status *moec_rt_check_norm(moec_model *m) {
  moec_rt_train *t = &m->train;
  moec_cuda_scale s;
  if (!t->unchecked) return NULL;
  MOEC_TRY(m->device->read(m, &s, scale_at(t), sizeof s));
  t->unchecked = false;
  if (!s.bad) return NULL;
  s.scale = s.before, s.bad = 0;
  MOEC_TRY(m->device->write(m, scale_at(t), &s, sizeof s));
  return moec_wrong(
      "gradients: expected a finite norm when they were clipped last, got %g; they made no update",
      s.norm);
}

moec_status *moec_rt_gradients_forget(moec_model *m) {
  moec_rt_train *t = &m->train;
  const moec_cuda_scale one = {.scale = 1, .before = 1};
  for (uint32_t k = 0; k < t->n; k++) t->leaves[k].has_grad = false;
  t->pending = t->scaled = t->is_lent = t->unchecked = false;
  return t->scalars.data ? m->device->write(m, scale_at(t), &one, sizeof one) : NULL;
}
