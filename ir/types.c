/* Interned types. */
#include <string.h>

#include "ir/ir_internal.h"

struct moec_type_table {
  moec_arena *arena;
  moec_type_info *types; /* types[0]: none */
  size_t n, cap;
  uint32_t *slots; /* 0: empty */
  size_t n_slots;  /* a power of two */
};

struct moec_type_table *moec_type_table_create(moec_arena *arena) {
  struct moec_type_table *t = MOEC_NEW(arena, struct moec_type_table);
  t->arena = arena;
  MOEC_PUSH(arena, t->types, t->n, t->cap, ((moec_type_info){MOEC_DTYPE_NONE, 0, NULL}));
  t->n_slots = 64;
  t->slots = MOEC_NEW_ARRAY(arena, uint32_t, t->n_slots);
  return t;
}

static size_t slot_of(const struct moec_type_table *t, moec_type_info key) {
  uint32_t head[2] = {(uint32_t)key.dtype, key.rank};
  uint64_t h = moec_hash(MOEC_HASH_SEED, head, sizeof head);
  h = moec_hash(h, key.dims, key.rank * sizeof(moec_dim));
  size_t i = (size_t)h & (t->n_slots - 1);
  while (t->slots[i]) {
    const moec_type_info *e = &t->types[t->slots[i]];
    if (e->dtype == key.dtype && e->rank == key.rank &&
        (!key.rank || memcmp(e->dims, key.dims, key.rank * sizeof(moec_dim)) == 0))
      break;
    i = (i + 1) & (t->n_slots - 1);
  }
  return i;
}

static void rehash(struct moec_type_table *t) {
  t->n_slots *= 2;
  t->slots = MOEC_NEW_ARRAY(t->arena, uint32_t, t->n_slots);
  for (uint32_t i = 1; i < t->n; i++) t->slots[slot_of(t, t->types[i])] = i;
}

moec_type moec_type_make(moec_module *m, moec_dtype dtype, uint32_t rank, const moec_dim *dims) {
  struct moec_type_table *t = m->types;
  moec_type_info key = {dtype, rank, dims};
  size_t i = slot_of(t, key);
  if (t->slots[i]) return (moec_type){t->slots[i]};
  uint32_t id = (uint32_t)t->n;
  key.dims = rank ? moec_arena_copy(t->arena, dims, rank * sizeof(moec_dim)) : NULL;
  MOEC_PUSH(t->arena, t->types, t->n, t->cap, key);
  t->slots[i] = id;
  if (t->n * 2 > t->n_slots) rehash(t);
  return (moec_type){id};
}

moec_type moec_type_scalar(moec_module *m, moec_dtype dtype) { return moec_type_make(m, dtype, 0, NULL); }

moec_type moec_type_with_dtype(moec_module *m, moec_type t, moec_dtype dtype) {
  moec_type_info i = moec_type_get(m, t);
  return moec_type_make(m, dtype, i.rank, i.dims);
}

moec_type_info moec_type_get(const moec_module *m, moec_type t) { return m->types->types[t.i]; }

moec_dim moec_type_numel(moec_module *m, moec_type t) {
  moec_type_info i = moec_type_get(m, t);
  moec_dim n = moec_dim_const(m, 1);
  for (uint32_t k = 0; k < i.rank; k++) n = moec_dim_mul(m, n, i.dims[k]);
  return n;
}

void moec_type_print(moec_buf *b, const moec_module *m, moec_type t) {
  moec_type_info i = moec_type_get(m, t);
  moec_buf_puts(b, i.dtype ? moec_dtype_get(i.dtype)->text : "none");
  moec_buf_putc(b, '[');
  for (uint32_t k = 0; k < i.rank; k++) {
    if (k) moec_buf_puts(b, ", ");
    moec_dim_print(b, m, i.dims[k]);
  }
  moec_buf_putc(b, ']');
}
