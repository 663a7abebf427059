/* An open-addressing table of names. */
#include "frontend/names.h"

#include <string.h>

void moec_scope_init(moec_scope *s, moec_arena *a) {
  *s = (moec_scope){.n_slots = 64};
  s->slots = MOEC_NEW_ARRAY(a, uint32_t, s->n_slots);
}

static size_t slot_of(const moec_scope *s, const char *name) {
  size_t i = (size_t)moec_hash(MOEC_HASH_SEED, name, strlen(name)) & (s->n_slots - 1);
  while (s->slots[i] && strcmp(s->entries[s->slots[i] - 1].name, name) != 0) i = (i + 1) & (s->n_slots - 1);
  return i;
}

moec_entry *moec_scope_find(const moec_scope *s, const char *name) {
  for (; s; s = s->parent) {
    uint32_t i = s->slots[slot_of(s, name)];
    if (i) return &s->entries[i - 1];
  }
  return NULL;
}

moec_entry *moec_scope_add(moec_scope *s, moec_arena *a, const char *name) {
  size_t i = slot_of(s, name);
  if (s->slots[i]) return NULL;
  MOEC_PUSH(a, s->entries, s->n, s->cap, ((moec_entry){.name = name}));
  s->slots[i] = (uint32_t)s->n;
  if (s->n * 2 > s->n_slots) {
    s->n_slots *= 2;
    s->slots = MOEC_NEW_ARRAY(a, uint32_t, s->n_slots);
    for (size_t k = 0; k < s->n; k++) s->slots[slot_of(s, s->entries[k].name)] = (uint32_t)k + 1;
  }
  return &s->entries[s->n - 1];
}
