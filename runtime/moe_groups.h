/* The rows of the experts, sorted by expert: those of expert e are offsets[e] .. offsets[e + 1].
 * Work on them is cut into tiles. The tiles of all experts are one list that threads take from, so
 * that a crowded expert is worked on by all of them. */
#ifndef MOEC_RUNTIME_MOE_GROUPS_H
#define MOEC_RUNTIME_MOE_GROUPS_H

#include "runtime/ops.h"

typedef struct moec_rt_groups {
  const int32_t *offsets;
  int64_t experts;
  int64_t *first_tile; /* [experts], in shared scratch */
} moec_rt_groups;

/* Unless the offsets rise from 0 to |rows|. */
moec_status *moec_rt_groups_check(const moec_rt_call *c, const moec_rt_groups *g,
                                  int64_t rows) MOEC_MUST_USE;

/* The expert whose tiles include |tile|: the last one that starts at or before it. */
int64_t moec_rt_groups_find(const moec_rt_groups *g, int64_t tile);

static inline int64_t moec_rt_groups_size(const moec_rt_groups *g, int64_t e) {
  return g->offsets[e + 1] - g->offsets[e];
}

#endif
