/* Interned strings: an open-addressing table of offsets into an array of arena strings. */
#include <string.h>

#include "ir/ir_internal.h"

struct moec_sym_table {
  moec_arena *arena;
  const char **strings; /* strings[0] is "" */
  size_t n, cap;
  uint32_t *slots; /* 0: empty */
  size_t n_slots;  /* a power of two */
};

struct moec_sym_table *moec_sym_table_create(moec_arena *arena) {
  struct moec_sym_table *t = MOEC_NEW(arena, struct moec_sym_table);
  t->arena = arena;
  MOEC_PUSH(arena, t->strings, t->n, t->cap, "");
  t->n_slots = 64;
  t->slots = MOEC_NEW_ARRAY(arena, uint32_t, t->n_slots);
  return t;
}

static size_t slot_of(const struct moec_sym_table *t, const char *s) {
  size_t i = (size_t)moec_hash(MOEC_HASH_SEED, s, strlen(s)) & (t->n_slots - 1);
  while (t->slots[i] && strcmp(t->strings[t->slots[i]], s) != 0) i = (i + 1) & (t->n_slots - 1);
  return i;
}

static void rehash(struct moec_sym_table *t) {
  t->n_slots *= 2;
  t->slots = MOEC_NEW_ARRAY(t->arena, uint32_t, t->n_slots);
  for (uint32_t i = 1; i < t->n; i++) t->slots[slot_of(t, t->strings[i])] = i;
}

moec_sym moec_sym_make(moec_module *m, const char *s) {
  struct moec_sym_table *t = m->syms;
  if (!s || !*s) return (moec_sym){0};
  size_t i = slot_of(t, s);
  if (t->slots[i]) return (moec_sym){t->slots[i]};
  uint32_t id = (uint32_t)t->n;
  MOEC_PUSH(t->arena, t->strings, t->n, t->cap, moec_arena_strdup(t->arena, s));
  t->slots[i] = id;
  if (t->n * 2 > t->n_slots) rehash(t);
  return (moec_sym){id};
}

const char *moec_sym_str(const moec_module *m, moec_sym s) { return m->syms->strings[s.i]; }

void moec_sym_table_replay(moec_module *dst, const moec_module *src) {
  for (size_t i = 1; i < src->syms->n; i++) moec_sym_make(dst, src->syms->strings[i]);
}
