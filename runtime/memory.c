#include "runtime/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* In front of each block; as large as the alignment so that the block keeps it. */
typedef struct header {
  _Alignas(MOEC_RT_ALIGN) uint64_t bytes;
} header;

enum { HUGE_PAGE = 2 << 20 };

void *moec_rt_alloc(moec_rt_memory *mem, uint64_t bytes, bool zero) {
  header *h = NULL;
  if (bytes <= PTRDIFF_MAX - 2 * HUGE_PAGE) {
    size_t size = sizeof *h + ((size_t)bytes + MOEC_RT_ALIGN - 1) / MOEC_RT_ALIGN * MOEC_RT_ALIGN;
    h = aligned_alloc(MOEC_RT_ALIGN, size);
    /* Large blocks are read and written in whole: fewer page faults and TLB misses. */
    if (h && size >= 4 * HUGE_PAGE) {
      uintptr_t begin = ((uintptr_t)h + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
      uintptr_t end = ((uintptr_t)h + size) & ~(uintptr_t)(HUGE_PAGE - 1);
      (void)madvise((void *)begin, end - begin, MADV_HUGEPAGE); /* refusal costs speed only */
    }
  }
  if (!h) return NULL;
  h->bytes = bytes;
  if (zero) memset(h + 1, 0, (size_t)bytes);
  mem->allocations++;
  mem->live += bytes;
  if (mem->live > mem->peak) mem->peak = mem->live;
  return h + 1;
}

moec_status *moec_rt_no_memory(const char *what, uint64_t bytes) {
  return moec_error(MOEC_OUT_OF_MEMORY, "%s: no memory for %" PRIu64 " bytes", what, bytes);
}

void moec_rt_free(moec_rt_memory *mem, void *p) {
  if (!p) return;
  header *h = (header *)p - 1;
  mem->live -= h->bytes;
  free(h);
}

moec_status *moec_rt_arena_reserve(moec_rt_memory *mem, moec_rt_arena *a, uint64_t bytes,
                                   const char *what) {
  if (a->data && a->size >= bytes) return NULL;
  moec_rt_arena_fini(mem, a);
  a->data = moec_rt_alloc(mem, bytes, false);
  if (!a->data) return moec_rt_no_memory(what, bytes);
  a->size = bytes;
  return NULL;
}

void moec_rt_arena_fini(moec_rt_memory *mem, moec_rt_arena *a) {
  moec_rt_free(mem, a->data);
  *a = (moec_rt_arena){0};
}
