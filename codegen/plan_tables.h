/* The plan under construction: the tables of include/plan.h as growable arrays, and helpers that
 * intern strings, dims and lists. */
#ifndef MOEC_CODEGEN_PLAN_TABLES_H
#define MOEC_CODEGEN_PLAN_TABLES_H

#include "include/plan.h"
#include "ir/ir.h"

#define MOEC_TABLE_FIELD(field, type) type *field; size_t n_##field, cap_##field;
typedef struct moec_plan_tables {
  moec_arena *arena;
  moec_module *m;
  MOEC_PLAN_SECTIONS(MOEC_TABLE_FIELD)
  uint32_t *expr_of_dim; /* by dim handle, MOEC_NONE: not there */
  size_t n_expr_of_dim, cap_expr_of_dim;
  uint32_t *str_of_sym; /* by symbol handle */
  size_t n_str_of_sym, cap_str_of_sym;
  moec_buf data; /* the data section */
  bool embed_weights; /* weights of files are copied there too */
} moec_plan_tables;
#undef MOEC_TABLE_FIELD

/* Appends to a table and gives the index. */
#define MOEC_TABLE_ADD(t, field, record) moec_table_add_##field((t), (record))
#define MOEC_TABLE_ADDER(field, type)                                                         \
  static inline uint32_t moec_table_add_##field(moec_plan_tables *t, type record) {            \
    MOEC_PUSH(t->arena, t->field, t->n_##field, t->cap_##field, record);                       \
    return (uint32_t)(t->n_##field - 1);                                                       \
  }
MOEC_PLAN_SECTIONS(MOEC_TABLE_ADDER)
#undef MOEC_TABLE_ADDER

void moec_plan_tables_init(moec_plan_tables *t, moec_arena *arena, moec_module *m);
void moec_plan_tables_fini(moec_plan_tables *t); /* the data section; tables belong to the arena */

moec_str_ref moec_plan_str(moec_plan_tables *t, const char *s);
static inline const char *moec_plan_text(const moec_plan_tables *t, moec_str_ref s) { return &t->strings[s]; }
moec_str_ref moec_plan_sym(moec_plan_tables *t, moec_sym s);
moec_expr_ref moec_plan_expr_of(moec_plan_tables *t, moec_dim d);
moec_expr_ref moec_plan_expr_const(moec_plan_tables *t, int64_t v);
uint32_t moec_plan_pool(moec_plan_tables *t, size_t n, const uint32_t *v); /* offset of a copy */
/* Copies bytes into the data section, 64-byte aligned; gives the offset. */
uint64_t moec_plan_data(moec_plan_tables *t, const void *bytes, size_t size);

/* Bytes of a dense value of type |type|, as a dim. */
moec_dim moec_plan_bytes(moec_module *m, moec_type type);
/* A tensor that views |buffer| with the given type. */
uint32_t moec_plan_tensor_of(moec_plan_tables *t, uint32_t buffer, moec_type type, const char *name);

/* The finished plan as one block, appended to |out|. */
void moec_plan_serialize(const moec_plan_tables *t, moec_plan_header head, moec_buf *out);

#endif
