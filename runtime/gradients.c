/* include/moec.h: reading gradients, scaling and clipping them. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/convert.h"
#include "runtime/model.h"

static moec_status *wrong(const char *fmt, ...) MOEC_PRINTF(1, 2);
static moec_status *wrong(const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  moec_status *s = moec_errorv(MOEC_INVALID_ARGUMENT, fmt, args);
  va_end(args);
  return s;
}

moec_status *moec_gradient(const moec_model *m, uint32_t i, moec_view *out) {
  const moec_rt_plan *p = &m->plan;
  *out = (moec_view){0};
  MOEC_TRY(moec_rt_need_training(m));
  if (i >= p->n_params) {
    return wrong("parameter: expected an index below %u, got %u", p->n_params, i);
  }
  const char *name = moec_rt_str(p, p->params[i].name);
  uint32_t k = m->train.leaf_of[i];
  if (k == MOEC_NONE) return wrong("parameter \"%s\": it has no gradient", name);
  const moec_rt_leaf *l = &m->train.leaves[k];
  if (!l->has_grad) return wrong("parameter \"%s\": no gradient was computed", name);
  if (m->copies) MOEC_TRY(moec_rt_gradients_fetch(m->copies->m));
  MOEC_TRY(moec_parameter(m, i, out));
  out->dtype = (int)l->type;
  out->data = m->host[l->grad];
  return NULL;
}

moec_status *moec_gradient_of(const moec_model *m, const char *name, moec_view *out) {
  uint32_t i;
  *out = (moec_view){0};
  MOEC_TRY(moec_find(m, MOEC_PARAMETERS, name, &i));
  return moec_gradient(m, i, out);
}

/* ---- scaling ----------------------------------------------------------------------------- */

static moec_status *need_gradients(moec_model *m) {
  MOEC_TRY(moec_rt_need_training(m));
  for (uint32_t k = 0; k < m->train.n; k++) {
    if (m->train.leaves[k].has_grad) return moec_rt_gradients_fetch(m);
  }
  return wrong("expected gradients to be computed first, got none");
}

typedef struct scaling {
  void *g;
  moec_dtype type;
  float factor;
} scaling;

MOEC_RT_VECTOR static void scale_range(void *ctx, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const scaling *s = ctx;
  float factor = s->factor, room[MOEC_RT_CHUNK];
  for (int64_t i = begin; i < end; i += MOEC_RT_CHUNK) {
    int64_t n = end - i < MOEC_RT_CHUNK ? end - i : MOEC_RT_CHUNK;
    float *g = (float *)(uintptr_t)moec_rt_floats(s->type, s->g, i, n, room);
    for (int64_t k = 0; k < n; k++) g[k] *= factor;
    moec_rt_floats_back(s->type, s->g, i, n, g);
  }
}

static void scale(moec_model *m, double factor) {
  for (uint32_t k = 0; k < m->train.n; k++) {
    const moec_rt_leaf *l = &m->train.leaves[k];
    scaling s = {m->host[l->grad], l->type, (float)factor};
    if (l->has_grad) moec_rt_each(m->pool, l->n, scale_range, &s);
  }
}

moec_status *moec_scale_gradients(moec_model *m, double factor) {
  MOEC_TRY(need_gradients(m));
  if (!isfinite(factor)) return wrong("expected a finite factor, got %g", factor);
  scale(m, factor);
  return NULL;
}

/* ---- clipping ---------------------------------------------------------------------------- */

/* Sums of squares of chunks of a fixed size: the norm does not depend on the number of threads. */
enum { CHUNK = 1 << 14 };

typedef struct squares {
  const void *g;
  moec_dtype type;
  int64_t n;
  double *sums; /* by chunk */
} squares;

static void sum_chunks(void *ctx, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const squares *s = ctx;
  float room[MOEC_RT_CHUNK];
  for (int64_t c = begin; c < end; c++) {
    int64_t last = (c + 1) * CHUNK < s->n ? (c + 1) * CHUNK : s->n;
    double part[4] = {0};
    for (int64_t i = c * CHUNK; i < last; i += MOEC_RT_CHUNK) {
      int64_t n = last - i < MOEC_RT_CHUNK ? last - i : MOEC_RT_CHUNK;
      const float *g = moec_rt_floats(s->type, s->g, i, n, room);
      for (int64_t k = 0; k < n; k++) part[k % 4] += (double)g[k] * (double)g[k];
    }
    s->sums[c] = (part[0] + part[1]) + (part[2] + part[3]);
  }
}

static moec_status *norm_of(moec_model *m, double *out) {
  moec_rt_train *t = &m->train;
  int64_t most = 0;
  for (uint32_t k = 0; k < t->n; k++) most = t->leaves[k].n > most ? t->leaves[k].n : most;
  uint64_t bytes = ((uint64_t)most / CHUNK + 1) * sizeof(double);
  MOEC_TRY(moec_rt_arena_reserve(&m->memory, &t->sums, bytes, "the norm of gradients"));
  double total = 0;
  for (uint32_t k = 0; k < t->n; k++) {
    const moec_rt_leaf *l = &t->leaves[k];
    int64_t chunks = (l->n + CHUNK - 1) / CHUNK;
    squares s = {m->host[l->grad], l->type, l->n, (double *)(void *)t->sums.data};
    if (!l->has_grad) continue;
    moec_rt_parallel_for(m->pool, chunks, 1, sum_chunks, &s);
    for (int64_t c = 0; c < chunks; c++) total += s.sums[c];
  }
  *out = sqrt(total);
  return NULL;
}

moec_status *moec_clip_gradients(moec_model *m, double max_norm, double *norm) {
  double n;
  MOEC_TRY(need_gradients(m));
  if (!(max_norm > 0)) return wrong("max_norm: expected a positive number, got %g", max_norm);
  MOEC_TRY(norm_of(m, &n));
  if (norm) *norm = n;
  if (!isfinite(n)) return wrong("gradients: expected a finite norm, got %g", n);
  if (max_norm / (n + 1e-6) < 1) scale(m, max_norm / (n + 1e-6));
  return NULL;
}
