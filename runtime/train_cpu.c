/* What training does with arrays, on all threads of the processor. Elements are worked on in f32, a chunk at a time;
 * what is the same for all of them was worked out in f64. */
#include <math.h>
#include <string.h>

#include "runtime/convert.h"
#include "runtime/model.h"

enum { CHUNK = 256, WORTH = 1 << 14 };

static const void *element(moec_dtype type, const void *data, int64_t i) {
  return (const uint8_t *)data + i * (int64_t)moec_dtype_get(type)->bytes;
}

/* Elements i, i + 1 ... times the scale: those of |data| itself, or |room|. */
static const float *floats(moec_dtype type, const void *data, int64_t i, int64_t n, float scale, float *room) {
  if (type == MOEC_F32 && scale == 1) return element(type, data, i);
  moec_rt_convert(MOEC_F32, room, 1, type, element(type, data, i), 1, n);
  for (int64_t k = 0; k < n; k++) room[k] *= scale;
  return room;
}

static float scale_of(const moec_cuda_scale *s) { return s ? s->scale : 1; }

/* ---- sums -------------------------------------------------------------------------------- */

typedef struct adding {
  float *to;
  bool more;
  moec_dtype type;
  const void *from;
  float scale;
} adding;

MOEC_RT_VECTOR static void add_range(void *ctx, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const adding *a = ctx;
  float room[CHUNK];
  for (int64_t i = begin; i < end; i += CHUNK) {
    int64_t n = end - i < CHUNK ? end - i : CHUNK;
    const float *from = floats(a->type, a->from, i, n, a->scale, room);
    float *to = a->to + i;
    if (!a->more) memmove(to, from, (size_t)n * sizeof *to);
    else for (int64_t k = 0; k < n; k++) to[k] += from[k];
  }
}

static moec_status *add(moec_model *m, float *to, bool more, moec_dtype type, const void *from,
                        const moec_cuda_scale *scale, int64_t n) {
  adding a = {to, more, type, from, scale_of(scale)};
  moec_rt_parallel_for(m->pool, n, WORTH, add_range, &a);
  return NULL;
}

static moec_status *narrow(moec_model *m, moec_dtype type, void *to, const float *from, int64_t n) {
  (void)m;
  moec_rt_convert(type, to, 1, MOEC_F32, from, 1, n);
  return NULL;
}

/* ---- the norm ---------------------------------------------------------------------------- */

typedef struct squares {
  moec_dtype type;
  const void *from;
  int64_t n;
  double *sums;
} squares;

static void sum_chunks(void *ctx, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const squares *s = ctx;
  float room[CHUNK];
  for (int64_t c = begin; c < end; c++) {
    int64_t last = (c + 1) * MOEC_RT_SQUARES < s->n ? (c + 1) * MOEC_RT_SQUARES : s->n;
    double part[4] = {0};
    for (int64_t i = c * MOEC_RT_SQUARES; i < last; i += CHUNK) {
      int64_t n = last - i < CHUNK ? last - i : CHUNK, k = 0;
      const float *g = floats(s->type, s->from, i, n, 1, room);
      for (; k + 4 <= n; k += 4)
        for (int j = 0; j < 4; j++) part[j] += (double)g[k + j] * (double)g[k + j];
      for (; k < n; k++) part[0] += (double)g[k] * (double)g[k];
    }
    s->sums[c] = (part[0] + part[1]) + (part[2] + part[3]);
  }
}

static moec_status *sum_squares(moec_model *m, moec_dtype type, const void *from, int64_t n, double *sums) {
  squares s = {type, from, n, sums};
  moec_rt_parallel_for(m->pool, n / MOEC_RT_SQUARES + (n % MOEC_RT_SQUARES != 0), 1, sum_chunks, &s);
  return NULL;
}

static moec_status *clip(moec_model *m, const double *sums, int64_t n, double max_norm, moec_cuda_scale *s) {
  (void)m;
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += sums[i];
  if (isfinite(s->scale)) s->before = s->scale; /* else a norm was not finite, and nobody looked */
  s->norm = sqrt(sum) * fabs((double)s->before);
  s->scale = s->before;
  double factor = max_norm / (s->norm + 1e-6);
  if (!isfinite(s->norm)) s->scale = NAN, s->bad = 1;
  else if (factor < 1) s->scale = (float)((double)s->scale * factor);
  return NULL;
}

/* ---- updates ----------------------------------------------------------------------------- */

/* A square root that sets errno is not vectorised. */
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("O3", "no-math-errno")))
#endif
static void
adamw(const moec_rt_update *u, const float *restrict g, int64_t at, int64_t n) {
  const moec_cuda_update c = *u->by;
  float *restrict w = u->w + at, *restrict first = u->first + at, *restrict second = u->second + at;
  for (int64_t i = 0; i < n; i++) {
    first[i] += (g[i] - first[i]) * c.grow1;
    second[i] = second[i] * c.beta2 + g[i] * g[i] * c.grow2;
    float root = sqrtf(second[i]) * c.root + c.eps;
    w[i] = w[i] * c.keep - c.lr * (first[i] / root);
  }
}

MOEC_RT_VECTOR static void sgd(const moec_rt_update *u, const float *restrict g, int64_t at, int64_t n) {
  const moec_cuda_update c = *u->by;
  float *restrict w = u->w + at;
  for (int64_t i = 0; i < n; i++) w[i] -= c.lr * (g[i] + c.decay * w[i]);
}

MOEC_RT_VECTOR static void sgd_momentum(const moec_rt_update *u, const float *restrict g, int64_t at, int64_t n) {
  const moec_cuda_update c = *u->by;
  float *restrict w = u->w + at, *restrict first = u->first + at;
  for (int64_t i = 0; i < n; i++) {
    first[i] = first[i] * c.momentum + (g[i] + c.decay * w[i]);
    w[i] -= c.lr * first[i];
  }
}

static void update_range(void *ctx, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const moec_rt_update *u = ctx;
  float room[CHUNK];
  for (int64_t i = begin; i < end; i += CHUNK) {
    int64_t n = end - i < CHUNK ? end - i : CHUNK;
    const float *g = floats(u->g_type, u->g, i, n, scale_of(u->scale), room);
    (u->adamw ? adamw : u->first ? sgd_momentum : sgd)(u, g, i, n);
    if (!u->copy) continue;
    moec_rt_convert(u->copy_type, (void *)(uintptr_t)element(u->copy_type, u->copy, i), 1, MOEC_F32, u->w + i, 1, n);
  }
}

static moec_status *update(moec_model *m, const moec_rt_update *u) {
  if (!isfinite(scale_of(u->scale))) return NULL;
  moec_rt_parallel_for(m->pool, u->n, WORTH, update_range, (void *)(uintptr_t)u);
  return NULL;
}

const moec_rt_train_ops moec_rt_train_cpu = {add, narrow, sum_squares, clip, update};
