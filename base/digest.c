/* The digest of a large file: SHA-256 over the SHA-256s of its blocks. Threads share the blocks; one that is a hole of
 * a sparse file is known without being read. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/file.h"

enum { BLOCK = 1 << 22, MOST_THREADS = 256 };

typedef struct work {
  const moec_map *m;
  uint8_t (*sums)[32]; /* by block */
  size_t blocks;
  _Atomic size_t next;
  uint8_t zeros[32]; /* of a block of zeros */
} work;

static bool is_hole(const moec_map *m, size_t from, size_t to) {
  size_t low = 0, high = m->n_extents;
  if (!m->extents) return false;
  while (low < high) { /* the first extent that ends behind |from| */
    size_t mid = (low + high) / 2;
    if (m->extents[mid].end <= from)
      low = mid + 1;
    else
      high = mid;
  }
  return low == m->n_extents || m->extents[low].begin >= to;
}

static void *take_blocks(void *arg) {
  work *w = arg;
  for (size_t i; (i = atomic_fetch_add(&w->next, 1)) < w->blocks;) {
    size_t at = i * BLOCK, size = w->m->size - at < BLOCK ? w->m->size - at : BLOCK;
    if (size == BLOCK && is_hole(w->m, at, at + size)) {
      memcpy(w->sums[i], w->zeros, sizeof w->zeros);
      continue;
    }
    moec_sha256(w->m->data + at, size, w->sums[i]);
    /* Not needed soon: a model larger than memory should not look as if all of it were in use. Memory that is no
     * file's would lose its contents. */
    if (w->m->inode) madvise((void *)(uintptr_t)(w->m->data + at), size, MADV_DONTNEED);
  }
  return NULL;
}

static moec_status *hash_zeros(work *w) {
  if (!w->m->extents) return NULL;
  void *zeros = calloc(1, BLOCK);
  if (!zeros) return moec_error(MOEC_OUT_OF_MEMORY, "no memory to check a file");
  moec_sha256(zeros, BLOCK, w->zeros);
  free(zeros);
  return NULL;
}

moec_status *moec_map_digest(const moec_map *m, int threads, uint8_t out[32]) {
  pthread_t started[MOST_THREADS];
  int n = 0;
  work w = {.m = m, .blocks = m->size / BLOCK + (m->size % BLOCK != 0)};
  w.sums = malloc((w.blocks + 1) * sizeof *w.sums);
  if (!w.sums) return moec_error(MOEC_OUT_OF_MEMORY, "no memory to check a file");
  moec_status *s = hash_zeros(&w);
  if (!s) {
    /* The caller works too; fewer threads than asked for only take longer. */
    while (n < threads - 1 && n < MOST_THREADS && (size_t)n + 1 < w.blocks)
      if (pthread_create(&started[n], NULL, take_blocks, &w)) break;
      else n++;
    take_blocks(&w);
    while (n) pthread_join(started[--n], NULL);
    moec_sha256(w.sums, w.blocks * sizeof *w.sums, out);
  }
  free(w.sums);
  return s;
}
