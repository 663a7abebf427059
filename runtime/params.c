#include "runtime/params.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/pieces.h"

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
                              moec_map *out, char **out_path, moec_fresh *fresh) {
  const moec_plan_file *f = &p->files[i];
  char path[PATH_MAX];
  if (moec_fresh_is(moec_rt_str(p, f->name))) return moec_fresh_parse(moec_rt_str(p, f->name), fresh);
  MOEC_TRY(find_file(moec_rt_str(p, f->name), w, path, sizeof path));
  MOEC_TRY(moec_map_user_file(path, out));
  MOEC_TRY(MOEC_RT_NEW(p->mem, *out_path, strlen(path) + 1, "weights"));
  memcpy(*out_path, path, strlen(path) + 1);
  if (out->size == f->size) return NULL;
  return moec_error(MOEC_INVALID_ARGUMENT,
                    "%s: expected the %" PRIu64 " bytes that the model was compiled with, got %zu",
                    path, f->size, out->size);
}

static moec_status *check_digests(const moec_rt_plan *p, int threads, const moec_rt_params *x) {
  for (uint32_t i = 0; i < p->n_files; i++) {
    const uint8_t *want = p->files[i].sha256;
    if (!x->paths[i]) continue;
    uint8_t got[32];
    MOEC_TRY(moec_map_digest(&x->files[i], threads, got));
    if (!memcmp(want, got, sizeof got)) continue;
    return moec_error(MOEC_INVALID_ARGUMENT,
                      "%s: expected the contents that the model was compiled with, digest "
                      "%02x%02x%02x%02x..., got %02x%02x%02x%02x...",
                      moec_rt_str(p, p->files[i].name), want[0], want[1], want[2], want[3], got[0],
                      got[1], got[2], got[3]);
  }
  return NULL;
}

static moec_status *open_files(const moec_rt_plan *p, moec_rt_pool *pool, const moec_rt_weights *w,
                               moec_rt_params *x) {
  MOEC_TRY(MOEC_RT_NEW(p->mem, x->files, p->n_files, "weights"));
  MOEC_TRY(MOEC_RT_NEW(p->mem, x->paths, p->n_files, "weights"));
  MOEC_TRY(MOEC_RT_NEW(p->mem, x->fresh, p->n_files, "weights"));
  x->n_files = p->n_files;
  for (uint32_t i = 0; i < p->n_files; i++) {
    MOEC_TRY(open_file(p, i, w, &x->files[i], &x->paths[i], &x->fresh[i]));
  }
  return w->trust ? NULL : check_digests(p, moec_rt_pool_threads(pool), x);
}

const uint8_t *moec_rt_piece_bytes(const moec_rt_plan *p, const moec_rt_params *x,
                                   const moec_plan_piece *piece) {
  return (piece->file == MOEC_NONE ? p->data : x->files[piece->file].data) + piece->offset;
}

/* ---- parameters -------------------------------------------------------------------------- */

/* The bytes of the file when they are the parameter itself, else NULL. */
static const uint8_t *as_mapped(const moec_rt_plan *p, const moec_rt_params *x,
                                const moec_plan_param *param) {
  const moec_plan_tensor *t = &p->tensors[param->tensor];
  const moec_plan_piece *piece = &p->pieces[param->pieces];
  if (param->n_pieces != 1 || piece->dtype != t->dtype || moec_rt_piece_made(x, piece)) return NULL;
  if (!moec_rt_piece_is_whole(p, piece, t)) return NULL;
  const uint8_t *bytes = moec_rt_piece_bytes(p, x, piece);
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

/* The first parameter that shares storage with parameter |i|, or |i| itself. */
static uint32_t tied_to(const moec_rt_plan *p, uint32_t i) {
  for (uint32_t j = 0; p->params[i].tie && j < i; j++) {
    if (p->params[j].tie == p->params[i].tie &&
        same_type(p, p->params[j].tensor, p->params[i].tensor)) {
      return j;
    }
  }
  return i;
}

typedef struct loading {
  const moec_rt_plan *p;
  const moec_rt_params *x;
  void *const *buffers;
  const uint8_t *copied; /* by parameter */
  uint8_t *room;         /* of all threads */
  uint64_t room_each;
} loading;

static void copy_params(void *ctx, int64_t begin, int64_t end, int thread) {
  const loading *l = ctx;
  void *room = l->room + l->room_each * (uint64_t)thread;
  for (int64_t i = begin; i < end; i++) {
    const moec_plan_param *param = &l->p->params[i];
    const moec_plan_tensor *t = &l->p->tensors[param->tensor];
    if (!l->copied[i]) continue;
    /* Pieces that overlap leave a hole; it must not show what was in memory before. */
    size_t bytes = (size_t)l->p->static_values[l->p->buffers[t->buffer].bytes];
    if (param->n_pieces != 1) memset(l->buffers[t->buffer], 0, bytes);
    for (uint32_t k = 0; k < param->n_pieces; k++)
      moec_rt_piece_get(l->p, l->x, &l->p->pieces[param->pieces + k], t, l->buffers[t->buffer], room);
  }
}

static moec_status *copy_all(const moec_rt_plan *p, moec_rt_pool *pool, void **buffers, const uint8_t *copied,
                             const moec_rt_params *x) {
  loading l = {p, x, buffers, copied, NULL, 0};
  for (uint32_t i = 0; i < p->n_params; i++) {
    for (uint32_t k = 0; copied[i] && k < p->params[i].n_pieces; k++) {
      uint64_t bytes = moec_rt_piece_room(x, &p->pieces[p->params[i].pieces + k]);
      if (bytes > l.room_each) l.room_each = bytes;
    }
  }
  l.room_each = (l.room_each + MOEC_RT_ALIGN - 1) / MOEC_RT_ALIGN * MOEC_RT_ALIGN;
  uint64_t all = moec_rt_array(l.room_each, (uint64_t)moec_rt_pool_threads(pool));
  MOEC_TRY(MOEC_RT_NEW(p->mem, l.room, all, "parameters"));
  moec_rt_parallel_for(pool, p->n_params, 1, copy_params, &l);
  moec_rt_free(p->mem, l.room);
  return NULL;
}

static uint64_t room(const moec_rt_plan *p, uint32_t b) {
  return ((uint64_t)p->static_values[p->buffers[b].bytes] / MOEC_RT_ALIGN + 1) * MOEC_RT_ALIGN;
}

/* An address for every parameter: in a file, shared with an earlier one, or among the copies,
 * whose contents are still to come. */
static moec_status *place(const moec_rt_plan *p, bool elsewhere, void **buffers, uint8_t *copied,
                          moec_rt_params *x) {
  uint64_t total = 0, at = 0;
  for (uint32_t i = 0; i < p->n_params; i++) {
    uint32_t b = p->tensors[p->params[i].tensor].buffer;
    if (buffers[b] || tied_to(p, i) != i) continue; /* tied, by naming the same buffer perhaps */
    if (elsewhere && moec_rt_param_streams(p, x, i)) continue;
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
    if (!buffers[b]) buffers[b] = buffers[p->tensors[p->params[tied_to(p, i)].tensor].buffer];
    if (buffers[b] || (elsewhere && moec_rt_param_streams(p, x, tied_to(p, i)))) continue;
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
  moec_status *s = place(p, w->elsewhere, buffers, copied, x);
  if (!s) s = copy_all(p, pool, buffers, copied, x);
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
  for (uint32_t i = 0; i < x->n_files; i++) {
    if (x->paths && x->paths[i]) moec_unmap(&x->files[i]);
    if (x->paths) moec_rt_free(x->mem, x->paths[i]);
  }
  moec_rt_free(x->mem, x->files);
  moec_rt_free(x->mem, x->paths);
  moec_rt_free(x->mem, x->fresh);
  moec_rt_arena_fini(x->mem, &x->copies);
  *x = (moec_rt_params){0};
}
