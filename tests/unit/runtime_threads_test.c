#include <stdatomic.h>

#include "runtime/threads.h"
#include "tests/unit/unit.h"

enum { MOST = 3000 };

typedef struct count {
  _Atomic int seen[MOST];
  _Atomic int busy[64]; /* by thread: two calls at once have different ones */
  int threads;
  int64_t grain, range;
} count;

static void visit(void *ctx, int64_t begin, int64_t end, int thread) {
  count *c = ctx;
  UNIT_TRUE(thread >= 0 && thread < c->threads && begin < end && end <= c->range);
  UNIT_TRUE(end - begin >= c->grain || end == c->range);
  UNIT_TRUE(atomic_fetch_add(&c->busy[thread], 1) == 0);
  for (int64_t i = begin; i < end; i++) atomic_fetch_add(&c->seen[i], 1);
  atomic_fetch_sub(&c->busy[thread], 1);
}

START_TEST(test_everything_is_visited_once) {
  moec_rt_memory mem = {0};
  for (int threads = 1; threads <= 5; threads++) {
    moec_rt_pool *pool;
    UNIT_OK(moec_rt_pool_create(&mem, threads, &pool));
    ck_assert_int_eq(moec_rt_pool_threads(pool), threads);
    for (int64_t range = 0; range < MOST; range += 1 + range / 3) {
      for (int64_t grain = 1; grain < 200; grain *= 7) {
        count c = {.threads = threads, .grain = grain, .range = range};
        moec_rt_parallel_for(pool, range, grain, visit, &c);
        for (int64_t i = 0; i < range; i++) UNIT_TRUE(atomic_load(&c.seen[i]) == 1);
      }
    }
    moec_rt_pool_destroy(pool);
  }
  ck_assert_uint_eq(mem.live, 0);
}
END_TEST

/* Alone, the same chunks are the caller's; afterwards the others help again. Many jobs one after another: some are
 * over before a worker has begun. */
START_TEST(test_alone_and_late_workers) {
  moec_rt_memory mem = {0};
  moec_rt_pool *pool;
  UNIT_OK(moec_rt_pool_create(&mem, 4, &pool));
  for (int i = 0; i < 4000; i++) {
    bool alone = i % 5 == 0;
    count c = {.threads = alone ? 1 : 4, .grain = 3, .range = 2 + i % 40};
    moec_rt_pool_alone(pool, alone);
    moec_rt_parallel_for(pool, c.range, c.grain, visit, &c);
    for (int64_t k = 0; k < c.range; k++) UNIT_TRUE(atomic_load(&c.seen[k]) == 1);
  }
  moec_rt_pool_destroy(pool);
  ck_assert_uint_eq(mem.live, 0);
}
END_TEST

START_TEST(test_how_many_threads) {
  moec_rt_memory mem = {0};
  moec_rt_pool *pool;
  ck_assert_int_eq(setenv("MOEC_THREADS", "3", 1), 0);
  UNIT_OK(moec_rt_pool_create(&mem, 0, &pool));
  ck_assert_int_eq(moec_rt_pool_threads(pool), 3);
  moec_rt_pool_destroy(pool);
  UNIT_OK(moec_rt_pool_create(&mem, 2, &pool)); /* what is asked for goes first */
  ck_assert_int_eq(moec_rt_pool_threads(pool), 2);
  moec_rt_pool_destroy(pool);
  static const char *const wrong[] = {"0", "-1", "2x", "1025", "99999999999999999999"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    ck_assert_int_eq(setenv("MOEC_THREADS", wrong[i], 1), 0);
    UNIT_FAILS(moec_rt_pool_create(&mem, 0, &pool), MOEC_INVALID_ARGUMENT,
               "MOEC_THREADS: expected 1 to 1024, got '");
  }
  ck_assert_int_eq(unsetenv("MOEC_THREADS"), 0);
  UNIT_FAILS(moec_rt_pool_create(&mem, -1, &pool), MOEC_INVALID_ARGUMENT,
             "threads: expected 0 to 1024, got -1");
  UNIT_OK(moec_rt_pool_create(&mem, 0, &pool));
  UNIT_TRUE(moec_rt_pool_threads(pool) >= 1);
  moec_rt_pool_destroy(pool);
}
END_TEST

UNIT_MAIN("threads", test_everything_is_visited_once, test_alone_and_late_workers,
          test_how_many_threads)
