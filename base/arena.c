#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/size.h"

/* Under AddressSanitizer the unused part of a chunk is poisoned, a gap is left behind every
 * allocation and arrays that moved are poisoned, so overruns and stale pointers are found
 * as they would be with malloc. */
#if defined(__SANITIZE_ADDRESS__)
#define HAVE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAVE_ASAN 1
#endif
#endif
#ifdef HAVE_ASAN
#include <sanitizer/asan_interface.h>
enum { GAP = 16 };
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
enum { GAP = 0 };
#endif

enum { ALIGN = 16, FIRST_CHUNK = 1 << 16, LAST_CHUNK = 1 << 22 };

typedef struct chunk {
  struct chunk *next;
  size_t size, used;
  _Alignas(ALIGN) unsigned char data[];
} chunk;

struct moec_arena {
  chunk *head;       /* the chunk that small allocations come from; full ones behind it */
  size_t next_chunk; /* doubles up to LAST_CHUNK */
  size_t bytes;
};

void moec_die_out_of_memory(void) {
  fputs("moec: error: out of memory\n", stderr);
  _Exit(1);
}

size_t moec_size_mul_or_die(size_t a, size_t b) {
  size_t r;
  if (!moec_mul_size(a, b, &r)) moec_die_out_of_memory();
  return r;
}

moec_arena *moec_arena_create(void) {
  moec_arena *a = calloc(1, sizeof *a);
  if (!a) moec_die_out_of_memory();
  a->next_chunk = FIRST_CHUNK;
  return a;
}

void moec_arena_destroy(moec_arena *a) {
  if (!a) return;
  for (chunk *c = a->head, *next; c; c = next) {
    next = c->next;
    ASAN_UNPOISON_MEMORY_REGION(c->data, c->size);
    free(c);
  }
  free(a);
}

static chunk *chunk_create(size_t size) {
  size_t bytes;
  if (!moec_add_size(sizeof(chunk), size, &bytes)) moec_die_out_of_memory();
  chunk *c = calloc(1, bytes);
  if (!c) moec_die_out_of_memory();
  c->size = size;
  ASAN_POISON_MEMORY_REGION(c->data, size);
  return c;
}

/* A chunk with room for |need| bytes. A big allocation gets a chunk of its own, put behind
 * the current one, whose rest stays in use. */
static chunk *chunk_for(moec_arena *a, size_t need) {
  if (a->head && a->head->size - a->head->used >= need) return a->head;
  if (need > a->next_chunk / 4 && a->head) {
    chunk *c = chunk_create(need);
    c->next = a->head->next;
    a->head->next = c;
    return c;
  }
  chunk *c = chunk_create(need > a->next_chunk ? need : a->next_chunk);
  if (a->next_chunk < LAST_CHUNK) a->next_chunk *= 2;
  c->next = a->head;
  a->head = c;
  return c;
}

void *moec_arena_alloc(moec_arena *a, size_t bytes) {
  size_t need;
  if (!moec_add_size(bytes ? bytes : 1, ALIGN - 1 + GAP, &need)) moec_die_out_of_memory();
  need &= ~(size_t)(ALIGN - 1);
  chunk *c = chunk_for(a, need);
  void *p = c->data + c->used;
  c->used += need;
  a->bytes += bytes;
  ASAN_UNPOISON_MEMORY_REGION(p, bytes);
  return p;
}

void *moec_arena_copy(moec_arena *a, const void *src, size_t bytes) {
  void *p = moec_arena_alloc(a, bytes);
  if (bytes) memcpy(p, src, bytes);
  return p;
}

char *moec_arena_strdup(moec_arena *a, const char *s) {
  return moec_arena_copy(a, s, strlen(s) + 1);
}

char *moec_arena_printf(moec_arena *a, const char *fmt, ...) {
  va_list args, again;
  va_start(args, fmt);
  va_copy(again, args);
  int n = moec_vsnprintf(NULL, 0, fmt, args);
  va_end(args);
  if (n < 0) moec_die_out_of_memory();
  char *s = moec_arena_alloc(a, (size_t)n + 1);
  moec_vsnprintf(s, (size_t)n + 1, fmt, again);
  va_end(again);
  return s;
}

size_t moec_arena_bytes(const moec_arena *a) { return a->bytes; }

void *moec_arena_grow(moec_arena *a, void *old, size_t *cap, size_t need, size_t size) {
  if (need <= *cap) return old;
  size_t old_cap = *cap, new_cap = old_cap < 4 ? 8 : moec_size_mul_or_die(old_cap, 2);
  if (new_cap < need) new_cap = need;
  void *p = moec_arena_alloc(a, moec_size_mul_or_die(new_cap, size));
  if (old && old_cap) {
    memcpy(p, old, old_cap * size);
    ASAN_POISON_MEMORY_REGION(old, old_cap * size);
  }
  *cap = new_cap;
  return p;
}
