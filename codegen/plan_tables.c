/* Interning into plan tables, and their serial form. */
#include "codegen/plan_tables.h"

#include <string.h>

#include "base/size.h"

void moec_plan_tables_init(moec_plan_tables *t, moec_arena *arena, moec_module *m) {
  *t = (moec_plan_tables){.arena = arena, .m = m};
  MOEC_TABLE_ADD(t, strings, '\0'); /* offset 0 is "" */
}

void moec_plan_tables_fini(moec_plan_tables *t) { moec_buf_fini(&t->data); }

moec_str_ref moec_plan_str(moec_plan_tables *t, const char *s) {
  if (!s || !*s) return 0;
  uint32_t at = (uint32_t)t->n_strings;
  do MOEC_TABLE_ADD(t, strings, *s);
  while (*s++);
  return at;
}

/* Grows a handle-indexed memo so that |i| is inside; new entries are MOEC_NONE. */
static uint32_t *memo(moec_arena *a, uint32_t **table, size_t *n, size_t *cap, uint32_t i) {
  while (*n <= i) MOEC_PUSH(a, *table, *n, *cap, MOEC_NONE);
  return &(*table)[i];
}

moec_str_ref moec_plan_sym(moec_plan_tables *t, moec_sym s) {
  uint32_t *slot = memo(t->arena, &t->str_of_sym, &t->n_str_of_sym, &t->cap_str_of_sym, s.i);
  if (*slot == MOEC_NONE) *slot = moec_plan_str(t, moec_sym_str(t->m, s));
  return *slot;
}

static moec_expr_ref add_expr(moec_plan_tables *t, moec_expr_op op, uint32_t a, uint32_t b, int64_t imm) {
  for (uint32_t i = 0; i < t->n_exprs; i++) { /* few hundred at most: sizes repeat */
    const moec_plan_expr *e = &t->exprs[i];
    if (e->op == (uint32_t)op && e->a == a && e->b == b && e->imm == imm) return i;
  }
  return MOEC_TABLE_ADD(t, exprs, ((moec_plan_expr){(uint32_t)op, a, b, 0, imm}));
}

moec_expr_ref moec_plan_expr_const(moec_plan_tables *t, int64_t v) { return add_expr(t, MOEC_EXPR_CONST, 0, 0, v); }

static moec_expr_ref atom_expr(moec_plan_tables *t, uint32_t atom) {
  static const moec_expr_op ops[] = {
      [MOEC_DIM_FLOORDIV] = MOEC_EXPR_FLOORDIV, [MOEC_DIM_MOD] = MOEC_EXPR_MOD,
      [MOEC_DIM_MIN] = MOEC_EXPR_MIN,           [MOEC_DIM_MAX] = MOEC_EXPR_MAX,
  };
  moec_dim_atom a = moec_dim_get_atom(t->m, atom);
  if (a.op == MOEC_DIM_SYMBOL) return add_expr(t, MOEC_EXPR_SYMBOL, a.symbol, 0, 0);
  moec_expr_ref x = moec_plan_expr_of(t, a.a), y = moec_plan_expr_of(t, a.b);
  return add_expr(t, ops[a.op], x, y, 0);
}

moec_expr_ref moec_plan_expr_of(moec_plan_tables *t, moec_dim d) {
  uint32_t *slot = memo(t->arena, &t->expr_of_dim, &t->n_expr_of_dim, &t->cap_expr_of_dim, d.i);
  if (*slot != MOEC_NONE) return *slot;
  uint32_t n = moec_dim_n_terms(t->m, d);
  moec_expr_ref sum = MOEC_NONE;
  for (uint32_t i = 0; i < n; i++) {
    moec_dim_term term = moec_dim_get_term(t->m, d, i);
    moec_expr_ref product = term.coeff != 1 || term.n_atoms == 0 ? moec_plan_expr_const(t, term.coeff) : MOEC_NONE;
    for (uint32_t k = 0; k < term.n_atoms; k++) {
      moec_expr_ref x = atom_expr(t, term.atoms[k]);
      product = product == MOEC_NONE ? x : add_expr(t, MOEC_EXPR_MUL, product, x, 0);
    }
    sum = sum == MOEC_NONE ? product : add_expr(t, MOEC_EXPR_ADD, sum, product, 0);
  }
  if (sum == MOEC_NONE) sum = moec_plan_expr_const(t, 0);
  t->expr_of_dim[d.i] = sum; /* the memo may have moved */
  return sum;
}

uint32_t moec_plan_pool(moec_plan_tables *t, size_t n, const uint32_t *v) {
  uint32_t at = (uint32_t)t->n_pool;
  for (size_t i = 0; i < n; i++) MOEC_TABLE_ADD(t, pool, v[i]);
  return at;
}

uint64_t moec_plan_data(moec_plan_tables *t, const void *bytes, size_t size) {
  while (t->data.size % 64) moec_buf_putc(&t->data, '\0');
  uint64_t at = t->data.size;
  if (size) moec_buf_write(&t->data, bytes, size);
  return at;
}

moec_dim moec_plan_bytes(moec_module *m, moec_type type) {
  size_t elem = moec_dtype_get(moec_type_get(m, type).dtype)->bytes;
  return moec_dim_mul(m, moec_type_numel(m, type), moec_dim_const(m, (int64_t)elem));
}

uint32_t moec_plan_tensor_of(moec_plan_tables *t, uint32_t buffer, moec_type type, const char *name) {
  moec_type_info i = moec_type_get(t->m, type);
  uint32_t dims[MOEC_MAX_RANK];
  for (uint32_t k = 0; k < i.rank; k++) dims[k] = moec_plan_expr_of(t, i.dims[k]);
  moec_plan_tensor r = {buffer, (uint32_t)i.dtype, i.rank, moec_plan_pool(t, i.rank, dims), moec_plan_str(t, name)};
  return MOEC_TABLE_ADD(t, tensors, r);
}

void moec_plan_serialize(const moec_plan_tables *t, moec_plan_header head, moec_buf *out) {
  size_t start = out->size, at = sizeof head;
  memcpy(head.magic, MOEC_PLAN_MAGIC, sizeof head.magic);
  head.version = MOEC_PLAN_VERSION;
  head.header_size = sizeof head;
#define PLACE(field, type)                                    \
  at = moec_align_up(at, 8);                                  \
  head.field = (moec_plan_section){at, t->n_##field};         \
  at += t->n_##field * sizeof(type);
  MOEC_PLAN_SECTIONS(PLACE)
#undef PLACE
  head.size = at;
  moec_buf_write(out, &head, sizeof head);
#define WRITE(field, type)                                                    \
  while (out->size - start < head.field.offset) moec_buf_putc(out, '\0');     \
  if (t->n_##field) moec_buf_write(out, t->field, t->n_##field * sizeof(type));
  MOEC_PLAN_SECTIONS(WRITE)
#undef WRITE
}
