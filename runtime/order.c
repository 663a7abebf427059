#include "runtime/order.h"

#include <string.h>

uint64_t moec_rt_key(moec_dtype t, const void *data, size_t i, bool largest) {
  const uint64_t sign = 1ull << 63;
  uint64_t key;
  if (moec_dtype_is_float(t)) {
    double v = t == MOEC_F32 ? (double)((const float *)data)[i] : moec_load_f64(t, data, i);
    if (v != v) {
      key = UINT64_MAX;
    } else {
      v += 0.0; /* -0 becomes 0 */
      memcpy(&key, &v, sizeof key);
      key = key & sign ? ~key : key | sign;
    }
  } else {
    key = (uint64_t)moec_load_i64(t, data, i);
    if (moec_dtype_get(t)->cls == 'I') key ^= sign;
  }
  return largest ? key : ~key;
}

static bool before(moec_rt_item a, moec_rt_item b) {
  return a.key != b.key ? a.key > b.key : a.index < b.index;
}

/* Few: the best so far, kept in order. Later elements have higher indices, so one that equals
 * the last of the best does not come before it. */
static void select_few(moec_dtype t, const void *data, int64_t step, int64_t n, int64_t k,
                       bool largest, moec_rt_item *best) {
  int64_t have = 0;
  for (int64_t i = 0; i < n; i++) {
    uint64_t key = moec_rt_key(t, data, (size_t)(i * step), largest);
    if (have == k && key <= best[k - 1].key) continue;
    int64_t at = have < k ? have++ : k - 1;
    for (; at > 0 && key > best[at - 1].key; at--) best[at] = best[at - 1];
    best[at] = (moec_rt_item){key, i};
  }
}

/* Many: a merge sort, bottom up, between the two halves of |items|; returns the half with the
 * result. */
static moec_rt_item *sort(moec_rt_item *items, int64_t n) {
  moec_rt_item *from = items, *to = items + n;
  for (int64_t width = 1; width < n; width *= 2) {
    for (int64_t begin = 0; begin < n; begin += 2 * width) {
      int64_t mid = begin + width < n ? begin + width : n;
      int64_t end = mid + width < n ? mid + width : n;
      int64_t a = begin, b = mid;
      for (int64_t i = begin; i < end; i++) {
        bool left = a < mid && (b == end || before(from[a], from[b]));
        to[i] = left ? from[a++] : from[b++];
      }
    }
    moec_rt_item *t = from;
    from = to;
    to = t;
  }
  return from;
}

enum { FEW = 64 };

uint64_t moec_rt_top_scratch(int64_t n, int64_t k) {
  return (k <= FEW ? (uint64_t)FEW : 2 * (uint64_t)n) * sizeof(moec_rt_item);
}

void moec_rt_top(moec_dtype t, const void *data, int64_t step, int64_t n, int64_t k, bool largest,
                 void *scratch, moec_rt_item **best) {
  *best = scratch;
  if (k == 0) return;
  if (k <= FEW) {
    select_few(t, data, step, n, k, largest, scratch);
    return;
  }
  moec_rt_item *items = scratch;
  for (int64_t i = 0; i < n; i++) {
    items[i] = (moec_rt_item){moec_rt_key(t, data, (size_t)(i * step), largest), i};
  }
  *best = sort(items, n);
}
