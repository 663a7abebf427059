#include "runtime/threads.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
  MAX_THREADS = 1024,
  MAX_CHUNKS = 128, /* of one range: enough to balance, few enough to cost nothing */
  SPINS = 1500      /* about 50 us: the usual time between two steps */
};

typedef struct worker {
  pthread_t thread;
  moec_rt_pool *pool;
  int index;
  pthread_mutex_t lock; /* for sleeping only */
  pthread_cond_t wake;
  _Atomic uint32_t posted; /* jobs offered to this worker so far */
  _Atomic bool offer;      /* of the job at hand, until the worker takes it or the caller takes it back */
} worker;

struct moec_rt_pool {
  moec_rt_memory *mem;
  int threads, started; /* threads counts the caller */
  int spins;
  bool alone; /* the caller works by itself */
  worker *workers; /* threads - 1 */
  /* the job at hand */
  moec_rt_range_fn fn;
  void *ctx;
  int64_t range, chunk;
  _Atomic int64_t next;
  _Atomic int busy; /* workers that have not finished it */
  _Atomic bool stop;
  pthread_mutex_t lock;
  pthread_cond_t done;
};

static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

static void take_chunks(moec_rt_pool *p, int thread) {
  for (;;) {
    int64_t begin = atomic_fetch_add_explicit(&p->next, p->chunk, memory_order_relaxed);
    if (begin >= p->range) return;
    int64_t left = p->range - begin;
    p->fn(p->ctx, begin, begin + (left < p->chunk ? left : p->chunk), thread);
  }
}

static void wait_for_job(worker *w, uint32_t seen) {
  for (int i = 0; i < w->pool->spins; i++) {
    if (atomic_load_explicit(&w->posted, memory_order_acquire) != seen) return;
    relax();
  }
  pthread_mutex_lock(&w->lock);
  while (atomic_load_explicit(&w->posted, memory_order_acquire) == seen) {
    pthread_cond_wait(&w->wake, &w->lock);
  }
  pthread_mutex_unlock(&w->lock);
}

static void *worker_main(void *arg) {
  worker *w = arg;
  moec_rt_pool *p = w->pool;
  for (uint32_t seen = 0;; seen++) {
    wait_for_job(w, seen);
    if (atomic_load(&p->stop)) return NULL;
    if (!atomic_exchange(&w->offer, false)) continue; /* it came too late */
    take_chunks(p, w->index);
    if (atomic_fetch_sub(&p->busy, 1) == 1) {
      pthread_mutex_lock(&p->lock);
      pthread_cond_signal(&p->done);
      pthread_mutex_unlock(&p->lock);
    }
  }
}

static void post(worker *w) {
  pthread_mutex_lock(&w->lock);
  atomic_fetch_add_explicit(&w->posted, 1, memory_order_release);
  pthread_cond_signal(&w->wake);
  pthread_mutex_unlock(&w->lock);
}

void moec_rt_parallel_for(moec_rt_pool *p, int64_t range, int64_t grain, moec_rt_range_fn fn,
                          void *ctx) {
  if (range <= 0) return;
  int64_t chunk = (range - 1) / MAX_CHUNKS + 1;
  if (chunk < grain) chunk = grain;
  int64_t chunks = (range - 1) / chunk + 1;
  p->fn = fn;
  p->ctx = ctx;
  p->range = range;
  p->chunk = chunk;
  atomic_store_explicit(&p->next, 0, memory_order_relaxed);
  int helpers = chunks < p->threads ? (int)chunks - 1 : p->threads - 1;
  if (p->alone) helpers = 0;
  atomic_store(&p->busy, helpers);
  for (int i = 0; i < helpers; i++) {
    atomic_store(&p->workers[i].offer, true);
    post(&p->workers[i]);
  }
  take_chunks(p, 0);
  /* Nothing is left: a worker that the system has not run yet is not waited for. */
  for (int i = 0; i < helpers; i++) {
    if (atomic_exchange(&p->workers[i].offer, false)) atomic_fetch_sub(&p->busy, 1);
  }
  for (int i = 0; i < p->spins && atomic_load(&p->busy); i++) relax();
  if (!atomic_load(&p->busy)) return;
  pthread_mutex_lock(&p->lock);
  while (atomic_load(&p->busy)) pthread_cond_wait(&p->done, &p->lock);
  pthread_mutex_unlock(&p->lock);
}

static int usable_processors(void) {
  cpu_set_t set;
  int n = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
  return n < 1 ? 1 : n;
}

static moec_status *choose_threads(int asked, int *out) {
  *out = asked;
  const char *text = getenv("MOEC_THREADS");
  if (!asked && text && *text) {
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno || *end || n < 1 || n > MAX_THREADS) {
      return moec_error(MOEC_INVALID_ARGUMENT, "MOEC_THREADS: expected 1 to %d, got '%s'",
                        (int)MAX_THREADS, text);
    }
    *out = (int)n;
  }
  if (!*out) *out = usable_processors();
  if (*out < 0 || *out > MAX_THREADS) {
    return moec_error(MOEC_INVALID_ARGUMENT, "threads: expected 0 to %d, got %d", (int)MAX_THREADS,
                      *out);
  }
  return NULL;
}

static moec_status *start_workers(moec_rt_pool *p) {
  for (int i = 0; i < p->threads - 1; i++) {
    worker *w = &p->workers[i];
    w->pool = p;
    w->index = i + 1;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    int error = pthread_create(&w->thread, NULL, worker_main, w);
    if (error) {
      pthread_cond_destroy(&w->wake);
      pthread_mutex_destroy(&w->lock);
      return moec_error(MOEC_IO, "cannot start thread %d of %d: %s", i + 2, p->threads,
                        strerror(error));
    }
    p->started++;
  }
  return NULL;
}

moec_status *moec_rt_pool_create(moec_rt_memory *mem, int threads, moec_rt_pool **out) {
  *out = NULL;
  MOEC_TRY(choose_threads(threads, &threads));
  moec_rt_pool *p;
  MOEC_TRY(MOEC_RT_NEW(mem, p, 1, "threads"));
  p->mem = mem;
  p->threads = threads;
  /* Spinning on a processor that another thread needs would only slow that one down. */
  p->spins = threads <= usable_processors() ? SPINS : 0;
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->done, NULL);
  moec_status *s = MOEC_RT_NEW(mem, p->workers, threads - 1, "threads");
  if (!s) s = start_workers(p);
  if (s) {
    moec_rt_pool_destroy(p);
    return s;
  }
  *out = p;
  return NULL;
}

void moec_rt_pool_destroy(moec_rt_pool *p) {
  if (!p) return;
  atomic_store(&p->stop, true);
  for (int i = 0; i < p->started; i++) {
    worker *w = &p->workers[i];
    post(w);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
  }
  pthread_cond_destroy(&p->done);
  pthread_mutex_destroy(&p->lock);
  moec_rt_free(p->mem, p->workers);
  moec_rt_free(p->mem, p);
}

void moec_rt_pool_alone(moec_rt_pool *p, bool alone) { p->alone = alone; }

int moec_rt_pool_threads(const moec_rt_pool *p) { return p->threads; }
