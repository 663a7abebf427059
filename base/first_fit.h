/* Placement: where blocks of memory lie that are not all alive at the same time. */
#ifndef MOEC_BASE_FIRST_FIT_H
#define MOEC_BASE_FIRST_FIT_H

#include <stdbool.h>
#include <stdint.h>

/* Alive from time |first| to time |last|, both included. */
typedef struct moec_interval {
  uint32_t id, first, last;
  uint64_t size;
  uint64_t offset; /* a result */
} moec_interval;

/* Gives each of |n| intervals an offset: largest first, equals by id, each at the lowest offset where nothing that is
 * alive with it lies. The same intervals give the same places, in whatever order they come. The result is in |placed|,
 * which has room for |n|, by offset; |all| is sorted. *total is the end of the highest. False where that overflows. */
bool moec_first_fit(moec_interval *all, moec_interval *placed, uint32_t n, uint64_t *total);

#endif
