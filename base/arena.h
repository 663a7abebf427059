/* A bump allocator: many small objects, freed together.
 *
 * Memory is zeroed and aligned to 16 bytes. An allocation never returns NULL: when the
 * host is out of memory the process ends with a message, since a compiler has nothing
 * sensible left to do. Code that reads untrusted files bounds what it allocates first
 * (frontend/prescan.h), so a file cannot bring that about by itself.
 * Thread-compatible: one thread at a time. */
#ifndef MOEC_BASE_ARENA_H
#define MOEC_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

typedef struct moec_arena moec_arena;

moec_arena *moec_arena_create(void);
void moec_arena_destroy(moec_arena *a); /* NULL is fine */

void *moec_arena_alloc(moec_arena *a, size_t bytes);
void *moec_arena_copy(moec_arena *a, const void *src, size_t bytes);
char *moec_arena_strdup(moec_arena *a, const char *s);
char *moec_arena_printf(moec_arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
size_t moec_arena_bytes(const moec_arena *a); /* bytes handed out so far */

/* Room for |need| elements of |size| bytes in a growable array living in |a|: returns |old|
 * or a bigger copy of it, and updates *cap. After a move |old| must not be used again:
 * AddressSanitizer reports it. */
void *moec_arena_grow(moec_arena *a, void *old, size_t *cap, size_t need, size_t size);

#define MOEC_NEW(arena, type) ((type *)moec_arena_alloc((arena), sizeof(type)))
#define MOEC_NEW_ARRAY(arena, type, n) \
  ((type *)moec_arena_alloc((arena), moec_size_mul_or_die(sizeof(type), (n))))
/* Appends one element to the array |ptr| with count |n| and capacity |cap| in |arena|. */
#define MOEC_PUSH(arena, ptr, n, cap, elem)                                          \
  do {                                                                               \
    (ptr) = moec_arena_grow((arena), (ptr), &(cap), (size_t)(n) + 1, sizeof *(ptr)); \
    (ptr)[(n)++] = (elem);                                                           \
  } while (0)

size_t moec_size_mul_or_die(size_t a, size_t b);

/* Ends the process with "moec: error: out of memory" and exit status 1. */
_Noreturn void moec_die_out_of_memory(void);

#endif
