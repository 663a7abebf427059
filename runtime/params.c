#include "runtime/params.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/convert.h"

/* ---- files ------------------------------------------------------------------------------- */

static moec_status *find_file(const char *name, const moec_rt_weights *w, char *path, size_t size) {
  char tried[1024] = "";
  size_t used = 0;
  for (size_t i = 0; i < sizeof w->dirs / sizeof *w->dirs; i++) {
    if (!w->dirs[i]) continue;
    int n = snprintf(path, size, "%s/%s", w->dirs[i], name);
    if (n > 0 && (size_t)n < size && !access(path, F_OK)) return NULL;
    n = snprintf(tried + used, sizeof tried - used, "%s%s", used ? ", " : "", w->dirs[i]);
    used = n < 0 || (size_t)n >= sizeof tried - used ? sizeof tried - 1 : used + (size_t)n;
  }
  return moec_error(MOEC_INVALID_ARGUMENT,
                    "weights: expected a file %s in the folder of --weights or MOEC_WEIGHTS or "
                    "beside the model, got none in: %s",
                    name, used ? tried : "no folder");
}

static moec_status *open_file(const moec_rt_plan *p, uint32_t i, const moec_rt_weights *w,
                              moec_map *out) {
  const moec_plan_file *f = &p->files[i];
  char path[PATH_MAX];
  MOEC_TRY(find_file(moec_rt_str(p, f->name), w, path, sizeof path));
  MOEC_TRY(moec_map_user_file(path, out));
  if (out->size == f->size) return NULL;
  return moec_error(MOEC_INVALID_ARGUMENT,
                    "%s: expected the %" PRIu64 " bytes that the model was compiled with, got %zu",
                    path, f->size, out->size);
}

typedef struct hashing {
  const moec_map *files;
  uint8_t (*sha256)[32]; /* by file */
} hashing;

static void hash_files(void *ctx, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const hashing *h = ctx;
  for (int64_t i = begin; i < end; i++)
    moec_sha256(h->files[i].data, h->files[i].size, h->sha256[i]);
}

static moec_status *check_hashes(const moec_rt_plan *p, moec_rt_pool *pool,
                                 const moec_rt_params *x) {
  hashing h = {.files = x->files};
  moec_status *s = MOEC_RT_NEW(p->mem, h.sha256, p->n_files, "weights");
  if (s) return s;
  moec_rt_parallel_for(pool, p->n_files, 1, hash_files, &h);
  for (uint32_t i = 0; !s && i < p->n_files; i++) {
    const uint8_t *want = p->files[i].sha256, *got = h.sha256[i];
    if (!memcmp(want, got, sizeof h.sha256[i])) continue;
    s = moec_error(MOEC_INVALID_ARGUMENT,
                   "%s: expected the contents that the model was compiled with, sha256 "
                   "%02x%02x%02x%02x..., got %02x%02x%02x%02x...",
                   moec_rt_str(p, p->files[i].name), want[0], want[1], want[2], want[3], got[0],
                   got[1], got[2], got[3]);
  }
  moec_rt_free(p->mem, h.sha256);
  return s;
}

static moec_status *open_files(const moec_rt_plan *p, moec_rt_pool *pool, const moec_rt_weights *w,
                               moec_rt_params *x) {
  MOEC_TRY(MOEC_RT_NEW(p->mem, x->files, p->n_files, "weights"));
  x->n_files = p->n_files;
  for (uint32_t i = 0; i < p->n_files; i++) MOEC_TRY(open_file(p, i, w, &x->files[i]));
  return w->trust ? NULL : check_hashes(p, pool, x);
}

/* ---- one piece --------------------------------------------------------------------------- */

/* Axes of a piece in the parameter's order, neighbours merged where both sides allow it. */
typedef struct walk {
  uint32_t rank;
  int64_t size[MOEC_PLAN_MAX_RANK], to[MOEC_PLAN_MAX_RANK], from[MOEC_PLAN_MAX_RANK]; /* strides */
  moec_dtype dst_type, src_type;
} walk;

static const uint8_t *piece_bytes(const moec_rt_plan *p, const moec_rt_params *x,
                                  const moec_plan_piece *piece) {
  return (piece->file == MOEC_NONE ? p->data : x->files[piece->file].data) + piece->offset;
}

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

/* The walk over |piece|; returns the offset of its first element in the parameter. */
static int64_t plan_walk(const moec_rt_plan *p, const moec_plan_piece *piece,
                         const moec_plan_tensor *t, walk *w) {
  int64_t to[MOEC_PLAN_MAX_RANK], from[MOEC_PLAN_MAX_RANK], to_step = 1, from_step = 1, first = 0;
  *w = (walk){.dst_type = (moec_dtype)t->dtype, .src_type = (moec_dtype)piece->dtype};
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

static void copy_piece(const walk *w, uint8_t *dst, int64_t first, const uint8_t *src) {
  uint32_t last = w->rank - 1, plane = last;
  for (uint32_t a = 0; a < last && w->from[last] != 1; a++) {
    if (w->from[a] == 1) plane = a;
  }
  int64_t at[MOEC_PLAN_MAX_RANK] = {0}, to = first, from = 0;
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

/* ---- parameters -------------------------------------------------------------------------- */

/* The bytes of the file when they are the parameter itself, else NULL. */
static const uint8_t *as_mapped(const moec_rt_plan *p, const moec_rt_params *x,
                                const moec_plan_param *param) {
  const moec_plan_tensor *t = &p->tensors[param->tensor];
  const moec_plan_piece *piece = &p->pieces[param->pieces];
  if (param->n_pieces != 1 || piece->dtype != t->dtype) return NULL;
  walk w;
  if (plan_walk(p, piece, t, &w) != 0 || w.rank != 1 || w.to[0] != 1 || w.from[0] != 1) return NULL;
  const uint8_t *bytes = piece_bytes(p, x, piece);
  return (uintptr_t)bytes % moec_dtype_get((moec_dtype)t->dtype)->bytes ? NULL : bytes;
}

static bool same_type(const moec_rt_plan *p, uint32_t i, uint32_t j) {
  const moec_plan_tensor *a = &p->tensors[i], *b = &p->tensors[j];
  bool same = a->dtype == b->dtype && a->rank == b->rank;
  for (uint32_t k = 0; same && k < a->rank; k++) {
    same = p->static_values[p->pool[a->dims + k]] == p->static_values[p->pool[b->dims + k]];
  }
  return same;
}

/* The address of an earlier parameter that shares storage with parameter |i|, or NULL. */
static void *tied(const moec_rt_plan *p, uint32_t i, void *const *buffers) {
  for (uint32_t j = 0; p->params[i].tie && j < i; j++) {
    if (p->params[j].tie == p->params[i].tie &&
        same_type(p, p->params[j].tensor, p->params[i].tensor)) {
      return buffers[p->tensors[p->params[j].tensor].buffer];
    }
  }
  return NULL;
}

typedef struct loading {
  const moec_rt_plan *p;
  const moec_rt_params *x;
  void *const *buffers;
  const uint8_t *copied; /* by parameter */
} loading;

static void copy_params(void *ctx, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const loading *l = ctx;
  for (int64_t i = begin; i < end; i++) {
    const moec_plan_param *param = &l->p->params[i];
    const moec_plan_tensor *t = &l->p->tensors[param->tensor];
    if (!l->copied[i]) continue;
    /* Pieces that overlap leave a hole; it must not show what was in memory before. */
    size_t bytes = (size_t)l->p->static_values[l->p->buffers[t->buffer].bytes];
    if (param->n_pieces != 1) memset(l->buffers[t->buffer], 0, bytes);
    for (uint32_t k = 0; k < param->n_pieces; k++) {
      const moec_plan_piece *piece = &l->p->pieces[param->pieces + k];
      walk w;
      int64_t first = plan_walk(l->p, piece, t, &w);
      copy_piece(&w, l->buffers[t->buffer], first, piece_bytes(l->p, l->x, piece));
    }
  }
}

static uint64_t room(const moec_rt_plan *p, uint32_t b) {
  return ((uint64_t)p->static_values[p->buffers[b].bytes] / MOEC_RT_ALIGN + 1) * MOEC_RT_ALIGN;
}

/* An address for every parameter: in a file, shared with an earlier one, or among the copies,
 * whose contents are still to come. */
static moec_status *place(const moec_rt_plan *p, void **buffers, uint8_t *copied,
                          moec_rt_params *x) {
  uint64_t total = 0, at = 0;
  for (uint32_t i = 0; i < p->n_params; i++) {
    uint32_t b = p->tensors[p->params[i].tensor].buffer;
    if (buffers[b]) continue; /* tied by naming the same buffer */
    buffers[b] = (void *)(uintptr_t)as_mapped(p, x, &p->params[i]);
    if (buffers[b]) {
      x->mapped_bytes += (uint64_t)p->static_values[p->buffers[b].bytes];
    } else if (__builtin_add_overflow(total, room(p, b), &total)) {
      return moec_rt_no_memory("parameters", UINT64_MAX);
    }
  }
  if (total) MOEC_TRY(moec_rt_arena_reserve(p->mem, &x->copies, total, "parameters"));
  for (uint32_t i = 0; i < p->n_params; i++) {
    uint32_t b = p->tensors[p->params[i].tensor].buffer;
    if (!buffers[b]) buffers[b] = tied(p, i, buffers);
    if (buffers[b]) continue;
    buffers[b] = x->copies.data + at;
    at += room(p, b);
    copied[i] = 1;
  }
  return NULL;
}

static moec_status *load(const moec_rt_plan *p, moec_rt_pool *pool, const moec_rt_weights *w,
                         void **buffers, moec_rt_params *x) {
  MOEC_TRY(open_files(p, pool, w, x));
  for (uint32_t i = 0; i < p->n_consts; i++) {
    uint32_t b = p->tensors[p->consts[i].tensor].buffer;
    buffers[b] = (void *)(uintptr_t)(p->data + p->consts[i].offset);
  }
  uint8_t *copied;
  MOEC_TRY(MOEC_RT_NEW(p->mem, copied, p->n_params, "parameters"));
  moec_status *s = place(p, buffers, copied, x);
  if (!s) {
    loading l = {p, x, buffers, copied};
    moec_rt_parallel_for(pool, p->n_params, 1, copy_params, &l);
  }
  moec_rt_free(p->mem, copied);
  return s;
}

moec_status *moec_rt_params_load(const moec_rt_plan *p, moec_rt_pool *pool,
                                 const moec_rt_weights *w, void **buffers, moec_rt_params *out) {
  *out = (moec_rt_params){.mem = p->mem};
  moec_status *s = load(p, pool, w, buffers, out);
  if (s) moec_rt_params_fini(out);
  return moec_context(s, "%s", p->file);
}

void moec_rt_params_fini(moec_rt_params *x) {
  for (uint32_t i = 0; i < x->n_files; i++) moec_unmap(&x->files[i]);
  moec_rt_free(x->mem, x->files);
  moec_rt_arena_fini(x->mem, &x->copies);
  *x = (moec_rt_params){0};
}
