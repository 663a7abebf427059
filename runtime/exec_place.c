/* Where buffers of a program lie in the arena of programs: largest first, each at the lowest offset
 * where no buffer that lives at the same time is. The same sizes give the same places. */
#include <string.h>

#include "runtime/model.h"

typedef struct block {
  uint32_t buffer, first, last;
  uint64_t size, offset;
} block;

/* Heap sort: no memory of its own, and the order of equals is decided by the index. */
static bool before(const block *a, const block *b) {
  return a->size != b->size ? a->size > b->size : a->buffer < b->buffer;
}

static void sink(block *v, uint32_t root, uint32_t n) {
  for (;;) {
    uint32_t child = 2 * root + 1;
    if (child >= n) return;
    if (child + 1 < n && before(&v[child], &v[child + 1])) child++;
    if (!before(&v[root], &v[child])) return;
    block t = v[root];
    v[root] = v[child];
    v[child] = t;
    root = child;
  }
}

static void sort(block *v, uint32_t n) {
  for (uint32_t i = n / 2; i-- > 0;) sink(v, i, n);
  for (uint32_t end = n; end > 1; end--) {
    block t = v[0];
    v[0] = v[end - 1];
    v[end - 1] = t;
    sink(v, 0, end - 1);
  }
}

/* Lifetimes that the plan leaves open: outputs, from their first writer on to the end; and routes,
 * which can be read after the step. */
static void find_lifetimes(const moec_model *m, moec_schedule program, block *of) {
  const moec_rt_plan *p = &m->plan;
  uint32_t begin = p->schedule_begin[program];
  for (uint32_t b = 0; b < p->n_buffers; b++) {
    bool output = p->buffers[b].kind == MOEC_BUFFER_OUTPUT;
    of[b] = (block){.buffer = b,
                    .first = output ? UINT32_MAX : p->buffers[b].first,
                    .last = output ? UINT32_MAX : p->buffers[b].last};
  }
  for (uint32_t i = begin; i < p->schedule_begin[program + 1]; i++) {
    const moec_plan_step *s = &p->steps[i];
    for (uint32_t k = s->n_in; k < s->n_in + s->n_out; k++) {
      uint32_t t = p->pool[s->args + k];
      if (t == MOEC_NONE) continue;
      block *x = &of[p->tensors[t].buffer];
      if (x->first > i - begin) x->first = i - begin;
    }
  }
  for (uint32_t i = 0; i < p->n_moe_layers; i++) {
    const moec_plan_moe *l = &p->moe_layers[i];
    const uint32_t kept[] = {l->indices, l->weights, l->offsets};
    if (l->schedule != (uint32_t)program) continue;
    for (int k = 0; k < 3; k++) {
      if (kept[k] != MOEC_NONE) of[p->tensors[kept[k]].buffer].last = UINT32_MAX;
    }
  }
}

/* Puts |x| among |placed|, which is sorted by offset. False on overflow. */
static bool put(block *placed, uint32_t n, block x) {
  uint64_t at = 0, end;
  for (uint32_t i = 0; i < n; i++) {
    const block *o = &placed[i];
    if (o->last < x.first || x.last < o->first) continue; /* never alive together */
    if (o->offset >= at && o->offset - at >= x.size) break;
    if (o->offset + o->size > at) at = o->offset + o->size;
  }
  if (__builtin_add_overflow(at, x.size, &end)) return false;
  x.offset = at;
  uint32_t to = n;
  while (to > 0 && placed[to - 1].offset > at) to--;
  memmove(placed + to + 1, placed + to, (n - to) * sizeof *placed);
  placed[to] = x;
  return true;
}

static moec_status *place(moec_model *m, moec_schedule program, const uint64_t *bytes, block *all,
                          block *placed, uint64_t *offset, uint64_t *out_total) {
  const moec_rt_plan *p = &m->plan;
  uint32_t n = 0;
  find_lifetimes(m, program, all);
  for (uint32_t b = 0; b < p->n_buffers; b++) {
    if (!moec_rt_placed(&p->buffers[b], program)) continue;
    if (all[b].first == UINT32_MAX) continue; /* nothing writes it */
    all[n] = all[b];
    all[n++].size = bytes[b];
  }
  sort(all, n);
  *out_total = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (!put(placed, i, all[i])) return moec_rt_no_memory("step buffers", UINT64_MAX);
  }
  for (uint32_t i = 0; i < n; i++) {
    offset[placed[i].buffer] = placed[i].offset;
    uint64_t end = placed[i].offset + placed[i].size;
    if (end > *out_total) *out_total = end;
  }
  return NULL;
}

moec_status *moec_rt_place(moec_model *m, moec_schedule program, const uint64_t *bytes,
                           uint64_t *offset, uint64_t *out_total) {
  block *all = NULL, *placed = NULL;
  moec_status *s = MOEC_RT_NEW(&m->memory, all, m->plan.n_buffers, "placement");
  if (!s) s = MOEC_RT_NEW(&m->memory, placed, m->plan.n_buffers, "placement");
  if (!s) s = place(m, program, bytes, all, placed, offset, out_total);
  moec_rt_free(&m->memory, all);
  moec_rt_free(&m->memory, placed);
  return s;
}
