/* Weights that are made from a seed: base/fresh.h. Elements are made in the order in which a file would have them, some
 * rows at a time, and go their way from there as those of a file do. */
#include <string.h>

#include "runtime/convert.h"
#include "runtime/model.h"
#include "runtime/pieces.h"

enum { CHUNK = 1 << 18 }; /* elements made at a time, or one row */

/* The first axis, as stored, that has several rows: its size, and the elements of each. */
typedef struct rows {
  uint32_t axis;
  int64_t n, each;
} rows;

static rows rows_of(const moec_plan_piece *x) {
  rows r = {0, x->rank ? x->shape[0] : 1, 1};
  for (uint32_t a = 0; a < x->rank; a++)
    if (!x->shape[a]) return (rows){0}; /* the other sizes may be any */
  while (r.n == 1 && r.axis + 1 < x->rank) r.n = x->shape[++r.axis];
  for (uint32_t a = r.axis + 1; a < x->rank; a++) r.each *= x->shape[a]; /* checked on opening */
  return r;
}

static int64_t at_a_time(const rows *r) {
  int64_t n = r->each ? CHUNK / r->each : r->n;
  return n < 1 ? 1 : n < r->n ? n : r->n;
}

uint64_t moec_rt_piece_room(const moec_rt_params *x, const moec_plan_piece *piece) {
  rows r = rows_of(piece);
  if (!moec_rt_piece_made(x, piece)) return 0;
  return (uint64_t)(at_a_time(&r) * r.each) * moec_dtype_get((moec_dtype)piece->dtype)->bytes;
}

void moec_rt_piece_read(const moec_rt_plan *p, const moec_rt_params *x, const moec_plan_piece *piece, void *out) {
  rows r = rows_of(piece);
  uint64_t n = (uint64_t)(r.n * r.each);
  if (moec_rt_piece_made(x, piece))
    moec_fresh_fill(&x->fresh[piece->file], (moec_dtype)piece->dtype, out, n, piece->offset);
  else if (n)
    memcpy(out, moec_rt_piece_bytes(p, x, piece), n * moec_dtype_get((moec_dtype)piece->dtype)->bytes);
}

void moec_rt_piece_get(const moec_rt_plan *p, const moec_rt_params *x, const moec_plan_piece *piece,
                       const moec_plan_tensor *t, void *parameter, void *room) {
  rows r = rows_of(piece);
  if (!moec_rt_piece_made(x, piece)) {
    moec_rt_piece_load(p, piece, t, parameter, moec_rt_piece_bytes(p, x, piece));
    return;
  }
  for (int64_t at = 0, step = at_a_time(&r); at < r.n; at += step) {
    moec_plan_piece some = *piece;
    int64_t n = r.n - at < step ? r.n - at : step;
    if (piece->rank) some.shape[r.axis] = n;
    for (uint32_t a = 0; a < piece->rank; a++) some.start[a] += piece->perm[a] == r.axis ? at : 0;
    moec_fresh_fill(&x->fresh[piece->file], (moec_dtype)piece->dtype, room, (size_t)(n * r.each),
                    piece->offset + (uint64_t)(at * r.each));
    moec_rt_piece_load(p, &some, t, parameter, room);
  }
}

/* ---- to a device ------------------------------------------------------------------------- */

bool moec_rt_param_streams(const moec_rt_plan *p, const moec_rt_params *x, uint32_t i) {
  const moec_plan_param *param = &p->params[i];
  int64_t first;
  for (uint32_t k = 0; k < param->n_pieces; k++) {
    const moec_plan_piece *piece = &p->pieces[param->pieces + k];
    if (!moec_rt_piece_made(x, piece) || !moec_rt_piece_is_run(p, piece, &p->tensors[param->tensor], &first))
      return false;
  }
  return param->n_pieces == 1; /* several may overlap */
}

typedef struct window {
  const moec_fresh *fresh;
  moec_dtype from, to;
  uint64_t start; /* of the sequence */
  uint8_t *out, *room;
} window;

static void make_chunks(void *ctx, int64_t begin, int64_t end, int thread) {
  const window *w = ctx;
  for (int64_t at = begin; at < end; at += CHUNK) {
    int64_t n = end - at < CHUNK ? end - at : CHUNK;
    uint8_t *out = w->out + (uint64_t)at * moec_dtype_get(w->to)->bytes;
    uint8_t *made = w->from == w->to ? out : w->room + (uint64_t)thread * CHUNK * sizeof(double);
    moec_fresh_fill(w->fresh, w->from, made, (size_t)n, w->start + (uint64_t)at);
    if (made != out) moec_rt_convert(w->to, out, 1, w->from, made, 1, n);
  }
}

static moec_status *stream(moec_model *m, const moec_plan_param *param, uint8_t *staging, uint8_t *room, int64_t most) {
  const moec_plan_piece *piece = &m->plan.pieces[param->pieces];
  const moec_plan_tensor *t = &m->plan.tensors[param->tensor];
  uint64_t size = moec_dtype_get((moec_dtype)t->dtype)->bytes;
  rows r = rows_of(piece);
  uint8_t *to = m->buffers[t->buffer];
  for (int64_t at = 0, all = r.n * r.each; at < all; at += most) {
    int64_t n = all - at < most ? all - at : most;
    window w = {&m->params.fresh[piece->file], (moec_dtype)piece->dtype, (moec_dtype)t->dtype,
                piece->offset + (uint64_t)at, staging, room};
    moec_rt_parallel_for(m->pool, n, CHUNK, make_chunks, &w);
    MOEC_TRY(m->device->write(m, to + (uint64_t)at * size, staging, (uint64_t)n * size));
  }
  return NULL;
}

/* By the device itself. */
static moec_status *make_there(moec_model *m, const moec_plan_param *param) {
  const moec_plan_piece *piece = &m->plan.pieces[param->pieces];
  const moec_plan_tensor *t = &m->plan.tensors[param->tensor];
  rows r = rows_of(piece);
  return m->device->normal(m, m->buffers[t->buffer], (moec_dtype)t->dtype, (moec_dtype)piece->dtype, piece->offset,
                           moec_fresh_scale(&m->params.fresh[piece->file]), r.n * r.each);
}

static bool made_there(const moec_model *m, const moec_plan_param *param) {
  const moec_plan_piece *piece = &m->plan.pieces[param->pieces];
  return m->device->normal && m->params.fresh[piece->file].kind == MOEC_FRESH_NORMAL && piece->dtype != MOEC_F64;
}

moec_status *moec_rt_param_stream(moec_model *m, uint32_t i) {
  enum { MOST = 1 << 24 }; /* elements */
  const moec_plan_param *param = &m->plan.params[i];
  if (made_there(m, param)) return make_there(m, param);
  uint64_t bytes = (uint64_t)m->plan.static_values[moec_rt_buffer_of(&m->plan, param->tensor)->bytes];
  uint64_t size = moec_dtype_get((moec_dtype)m->plan.tensors[param->tensor].dtype)->bytes;
  uint8_t *staging = moec_rt_alloc(&m->memory, bytes < MOST * size ? bytes : MOST * size, false);
  uint8_t *room = moec_rt_alloc(&m->memory, (uint64_t)moec_rt_pool_threads(m->pool) * CHUNK * sizeof(double), false);
  moec_status *s = staging && room ? stream(m, param, staging, room, MOST)
                                   : moec_rt_no_memory("a parameter", MOST * size);
  moec_rt_free(&m->memory, staging);
  moec_rt_free(&m->memory, room);
  return s;
}
