/* Where every allocation of the runtime is made and counted. After the first step of a size
 * the count must not move: moec_counters_get() shows it.
 * Thread-compatible: a model allocates on its caller's thread only. */
#ifndef MOEC_RUNTIME_MEMORY_H
#define MOEC_RUNTIME_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define MOEC_RT_ALIGN 64u

typedef struct moec_rt_memory {
  uint64_t allocations; /* made so far */
  uint64_t live, peak;  /* bytes */
} moec_rt_memory;

/* |bytes| of memory aligned to MOEC_RT_ALIGN, zeroed when |zero|; NULL when there is none.
 * Zero bytes give a pointer too. Ended with moec_rt_free() of the same |mem|. */
void *moec_rt_alloc(moec_rt_memory *mem, uint64_t bytes, bool zero);
void moec_rt_free(moec_rt_memory *mem, void *p); /* NULL is fine */

/* The bytes of |n| elements of |size|; on overflow a number that moec_rt_alloc() refuses. */
static inline uint64_t moec_rt_array(uint64_t n, uint64_t size) {
  uint64_t r;
  return __builtin_mul_overflow(n, size, &r) ? UINT64_MAX : r;
}
moec_status *moec_rt_no_memory(const char *what, uint64_t bytes);

/* As a status: |ptr| = |n| zeroed elements. |what| is named in the error. */
#define MOEC_RT_NEW(mem, ptr, n, what)                                               \
  (((ptr) = moec_rt_alloc((mem), moec_rt_array((uint64_t)(n), sizeof *(ptr)), true)) \
       ? NULL                                                                        \
       : moec_rt_no_memory((what), moec_rt_array((uint64_t)(n), sizeof *(ptr))))

/* A block that grows and never shrinks; growing loses its contents. */
typedef struct moec_rt_arena {
  uint8_t *data;
  uint64_t size;
} moec_rt_arena;

moec_status *moec_rt_arena_reserve(moec_rt_memory *mem, moec_rt_arena *a, uint64_t bytes,
                                   const char *what) MOEC_MUST_USE;
void moec_rt_arena_fini(moec_rt_memory *mem, moec_rt_arena *a);

#endif
