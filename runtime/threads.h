/* A small pool of threads.
 *
 * Results must not depend on the number of threads, so work is cut into chunks by its range
 * and grain alone; threads only take chunks. The calling thread works too.
 * Thread-compatible: one moec_rt_parallel_for() at a time per pool, never from inside one. */
#ifndef MOEC_RUNTIME_THREADS_H
#define MOEC_RUNTIME_THREADS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/memory.h"

typedef struct moec_rt_pool moec_rt_pool;

/* Handles [begin, end); |thread| is below moec_rt_pool_threads() and no two calls that run at
 * the same time have the same one. */
typedef void (*moec_rt_range_fn)(void *ctx, int64_t begin, int64_t end, int thread);

/* |threads|: 0 means MOEC_THREADS or, without it, the processors this process may use. */
moec_status *moec_rt_pool_create(moec_rt_memory *mem, int threads,
                                 moec_rt_pool **out) MOEC_MUST_USE;
void moec_rt_pool_destroy(moec_rt_pool *pool); /* NULL is fine */
int moec_rt_pool_threads(const moec_rt_pool *pool);
/* Whether work that follows is too little to call other threads for: chunks stay what they are. */
void moec_rt_pool_alone(moec_rt_pool *pool, bool alone);

/* Calls |fn| on chunks that cover [0, range) once; each but the last has at least |grain|. */
void moec_rt_parallel_for(moec_rt_pool *pool, int64_t range, int64_t grain, moec_rt_range_fn fn,
                          void *ctx);

#endif
