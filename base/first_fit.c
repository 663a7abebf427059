#include "base/first_fit.h"

#include <string.h>

/* Heap sort: no memory of its own, and the order of equals is decided by the id. */
static bool before(const moec_interval *a, const moec_interval *b) {
  return a->size != b->size ? a->size > b->size : a->id < b->id;
}

static void sink(moec_interval *v, uint32_t root, uint32_t n) {
  for (;;) {
    uint32_t child = 2 * root + 1;
    if (child >= n) return;
    if (child + 1 < n && before(&v[child], &v[child + 1])) child++;
    if (!before(&v[root], &v[child])) return;
    moec_interval t = v[root];
    v[root] = v[child];
    v[child] = t;
    root = child;
  }
}

static void sort(moec_interval *v, uint32_t n) {
  for (uint32_t i = n / 2; i-- > 0;) sink(v, i, n);
  for (uint32_t end = n; end > 1; end--) {
    moec_interval t = v[0];
    v[0] = v[end - 1];
    v[end - 1] = t;
    sink(v, 0, end - 1);
  }
}

/* Puts |x| among |placed|, which is sorted by offset. False on overflow. */
static bool put(moec_interval *placed, uint32_t n, moec_interval x) {
  uint64_t at = 0, end;
  for (uint32_t i = 0; i < n; i++) {
    const moec_interval *o = &placed[i];
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

bool moec_first_fit(moec_interval *all, moec_interval *placed, uint32_t n, uint64_t *total) {
  sort(all, n);
  *total = 0;
  for (uint32_t i = 0; i < n; i++)
    if (!put(placed, i, all[i])) return false;
  for (uint32_t i = 0; i < n; i++) {
    uint64_t end = placed[i].offset + placed[i].size;
    if (end > *total) *total = end;
  }
  return true;
}
