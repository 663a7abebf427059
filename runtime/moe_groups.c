#include "runtime/moe_groups.h"

#include <inttypes.h>

moec_status *moec_rt_groups_check(const moec_rt_call *c, const moec_rt_groups *g, int64_t rows) {
  bool rising = g->offsets[0] == 0 && g->offsets[g->experts] == rows;
  for (int64_t e = 0; e < g->experts && rising; e++) rising = g->offsets[e + 1] >= g->offsets[e];
  if (rising) return NULL;
  return moec_rt_op_error(c, MOEC_INVALID_ARGUMENT, "expected offsets that rise from 0 to %" PRId64,
                          rows);
}

int64_t moec_rt_groups_find(const moec_rt_groups *g, int64_t tile) {
  int64_t low = 0, high = g->experts - 1;
  while (low < high) {
    int64_t mid = (low + high + 1) / 2;
    if (g->first_tile[mid] <= tile)
      low = mid;
    else
      high = mid - 1;
  }
  return low;
}
