/* Pieces of parameters: between the order and type of a file and those of the parameter. */
#include "runtime/pieces.h"

#include "runtime/convert.h"

/* ---- walking both sides at once ---------------------------------------------------------- */

/* Axes of a piece in the parameter's order, neighbours merged where both sides allow it. */
typedef struct walk {
  uint32_t rank;
  int64_t size[MOEC_PLAN_MAX_RANK], to[MOEC_PLAN_MAX_RANK], from[MOEC_PLAN_MAX_RANK]; /* strides */
  moec_dtype dst_type, src_type;
} walk;

static void add_axis(walk *w, int64_t size, int64_t to, int64_t from) {
  if (size == 1) return;
  if (w->rank && w->to[w->rank - 1] == size * to && w->from[w->rank - 1] == size * from) {
    w->size[w->rank - 1] *= size;
    w->to[w->rank - 1] = to;
    w->from[w->rank - 1] = from;
    return;
  }
  w->size[w->rank] = size;
  w->to[w->rank] = to;
  w->from[w->rank++] = from;
}

static bool is_empty(const moec_plan_piece *piece) {
  for (uint32_t a = 0; a < piece->rank; a++)
    if (!piece->shape[a]) return true;
  return false;
}

/* The walk from |piece| to the parameter; returns the offset of its first element there. */
static int64_t plan_walk(const moec_rt_plan *p, const moec_plan_piece *piece,
                         const moec_plan_tensor *t, walk *w) {
  int64_t to[MOEC_PLAN_MAX_RANK], from[MOEC_PLAN_MAX_RANK], to_step = 1, from_step = 1, first = 0;
  *w = (walk){.dst_type = (moec_dtype)t->dtype, .src_type = (moec_dtype)piece->dtype};
  if (is_empty(piece)) { /* its other sizes may be any */
    w->rank = 1, w->to[0] = w->from[0] = 1;
    return 0;
  }
  for (uint32_t a = t->rank; a-- > 0;) {
    to[a] = to_step;
    to_step *= p->static_values[p->pool[t->dims + a]];
    from[a] = from_step;
    from_step *= piece->shape[a];
    first += piece->start[a] * to[a];
  }
  for (uint32_t a = 0; a < t->rank; a++) {
    uint32_t stored = piece->perm[a];
    add_axis(w, piece->shape[stored], to[a], from[stored]);
  }
  if (!w->rank) {
    w->rank = 1;
    w->size[0] = w->to[0] = w->from[0] = 1;
  }
  return first;
}

static void move(const walk *w, uint8_t *dst, int64_t to, const uint8_t *src, int64_t from,
                 uint32_t axis, int64_t n) {
  moec_rt_convert(w->dst_type, dst + to * (int64_t)moec_dtype_get(w->dst_type)->bytes, w->to[axis],
                  w->src_type, src + from * (int64_t)moec_dtype_get(w->src_type)->bytes,
                  w->from[axis], n);
}

/* Two axes in squares: one of them is contiguous where it is read, the other where it is
 * written, and a square of both fits the cache. */
static void move_plane(const walk *w, uint8_t *dst, int64_t to, const uint8_t *src, int64_t from,
                       uint32_t a, uint32_t b) {
  enum { SQUARE = 32 };
  for (int64_t i0 = 0; i0 < w->size[a]; i0 += SQUARE) {
    int64_t i1 = i0 + SQUARE < w->size[a] ? i0 + SQUARE : w->size[a];
    for (int64_t j0 = 0; j0 < w->size[b]; j0 += SQUARE) {
      int64_t n = w->size[b] - j0 < SQUARE ? w->size[b] - j0 : SQUARE;
      for (int64_t i = i0; i < i1; i++) {
        move(w, dst, to + i * w->to[a] + j0 * w->to[b], src,
             from + i * w->from[a] + j0 * w->from[b], b, n);
      }
    }
  }
}

static void copy(const walk *w, uint8_t *dst, int64_t to, const uint8_t *src, int64_t from) {
  uint32_t last = w->rank - 1, plane = last;
  for (uint32_t a = 0; a < last && w->from[last] != 1; a++) {
    if (w->from[a] == 1) plane = a;
  }
  int64_t at[MOEC_PLAN_MAX_RANK] = {0};
  for (uint32_t a = 0; a < w->rank; a++) {
    if (w->size[a] == 0) return;
  }
  for (;;) {
    if (plane == last)
      move(w, dst, to, src, from, last, w->size[last]);
    else
      move_plane(w, dst, to, src, from, plane, last);
    uint32_t a = last;
    for (;;) { /* the next position of the other axes */
      if (a-- == 0) return;
      if (a == plane) continue;
      to += w->to[a];
      from += w->from[a];
      if (++at[a] < w->size[a]) break;
      to -= at[a] * w->to[a];
      from -= at[a] * w->from[a];
      at[a] = 0;
    }
  }
}

/* ---- one piece --------------------------------------------------------------------------- */

bool moec_rt_piece_is_whole(const moec_rt_plan *p, const moec_plan_piece *piece,
                            const moec_plan_tensor *t) {
  walk w;
  return plan_walk(p, piece, t, &w) == 0 && w.rank == 1 && w.to[0] == 1 && w.from[0] == 1;
}

bool moec_rt_piece_is_run(const moec_rt_plan *p, const moec_plan_piece *piece, const moec_plan_tensor *t,
                          int64_t *first) {
  walk w;
  *first = plan_walk(p, piece, t, &w);
  return w.rank == 1 && w.to[0] == 1 && w.from[0] == 1;
}

void moec_rt_piece_load(const moec_rt_plan *p, const moec_plan_piece *piece,
                        const moec_plan_tensor *t, void *parameter, const uint8_t *bytes) {
  walk w;
  int64_t first = plan_walk(p, piece, t, &w);
  copy(&w, parameter, first, bytes, 0);
}

void moec_rt_piece_store(const moec_rt_plan *p, const moec_plan_piece *piece,
                         const moec_plan_tensor *t, moec_dtype type, const void *parameter,
                         void *bytes) {
  walk w;
  int64_t first = plan_walk(p, piece, t, &w);
  for (uint32_t a = 0; a < w.rank; a++) {
    int64_t to = w.to[a];
    w.to[a] = w.from[a];
    w.from[a] = to;
  }
  w.dst_type = (moec_dtype)piece->dtype;
  w.src_type = type;
  copy(&w, bytes, 0, parameter, first);
}
