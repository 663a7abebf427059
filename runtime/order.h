/* Picking the largest of a row. Thread-safe. */
#ifndef MOEC_RUNTIME_ORDER_H
#define MOEC_RUNTIME_ORDER_H

#include "base/dtype.h"

/* An element: a larger key comes first; of equal keys the lower index. */
typedef struct moec_rt_item {
  uint64_t key;
  int64_t index;
} moec_rt_item;

/* The key of element |i|: ordered as the values are, NaN above everything, -0 equal to 0.
 * |largest| false turns the order around. */
uint64_t moec_rt_key(moec_dtype t, const void *data, size_t i, bool largest);

/* best[0 .. k) = the first k of |n| elements, in order. data[i * step]. |scratch|: as many bytes as
 * moec_rt_top_scratch() says. */
uint64_t moec_rt_top_scratch(int64_t n, int64_t k);
void moec_rt_top(moec_dtype t, const void *data, int64_t step, int64_t n, int64_t k, bool largest,
                 void *scratch, moec_rt_item **best);

#endif
