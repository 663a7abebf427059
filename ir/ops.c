/* The op table, and what follows from it alone: defaults, copies, equality and hashes of
 * attribute structs. */
#include <string.h>

#include "ir/ir_internal.h"

#define MANY MOEC_MANY

/* Attribute counts: one '+1' an attribute. */
enum {
#define ATTR(OPNAME, KIND, name, dflt) +1
#define OP(NAME, text, min_in, max_in, min_out, max_out, cls, infer, attrs) COUNT_##NAME = 0 attrs,
#include "ir/ops.def"
#undef OP
#undef ATTR
};

#define ATTR(OPNAME, KIND, name, dflt) {#name, MOEC_ATTR_##KIND, (uint16_t)offsetof(moec_attrs_##OPNAME, name)},
#define OP(NAME, text, min_in, max_in, min_out, max_out, cls, infer, attrs)                       \
  [MOEC_OP_##NAME] = {#NAME, text, min_in, max_in, min_out, max_out, MOEC_CLASS_##cls,              \
                      moec_infer_##infer, sizeof(moec_attrs_##NAME), COUNT_##NAME, {attrs{NULL, 0, 0}}},
static const moec_op_info op_table[MOEC_OP_COUNT] = {
    [MOEC_OP_NONE] = {"NONE", "none", 0, 0, 0, 0, MOEC_CLASS_LEAF, NULL, 0, 0, {{NULL, 0, 0}}},
#include "ir/ops.def"
};
#undef OP
#undef ATTR

/* One instance of every struct holding the defaults written in the table. */
#define NONE {0}
#define ATTR_DEFAULT_I(d) d
#define ATTR_DEFAULT_F(d) d
#define ATTR_DEFAULT_B(d) d
#define ATTR_DEFAULT_E(d) d
#define ATTR_DEFAULT_S(d) {0}
#define ATTR_DEFAULT_INTS(d) {0, NULL}
#define ATTR_DEFAULT_DIMS(d) {0, NULL}
#define ATTR_DEFAULT_DIM(d) {0}
#define ATTR_DEFAULT_FN(d) {0}
#define ATTR_DEFAULT_PARAM(d) {0}
#define ATTR_DEFAULT_DATA(d) NULL
#define ATTR(OPNAME, KIND, name, dflt) .name = ATTR_DEFAULT_##KIND(dflt),
#define OP(NAME, text, min_in, max_in, min_out, max_out, cls, infer, attrs) \
  static const moec_attrs_##NAME default_##NAME = {attrs.pad_ = 0};
#include "ir/ops.def"
#undef OP
#undef ATTR
static const void *const default_table[MOEC_OP_COUNT] = {
#define OP(NAME, ...) [MOEC_OP_##NAME] = &default_##NAME,
#include "ir/ops.def"
#undef OP
};
const moec_op_info *moec_op_get(moec_op op) { return &op_table[(unsigned)op < MOEC_OP_COUNT ? op : 0]; }

moec_op moec_op_from_text(const char *text) {
  for (int i = 1; i < MOEC_OP_COUNT; i++)
    if (strcmp(op_table[i].text, text) == 0) return (moec_op)i;
  return MOEC_OP_NONE;
}

bool moec_op_is_elementwise(moec_op op) {
  moec_op_class c = moec_op_cls(op);
  return c >= MOEC_CLASS_UNARY && c <= MOEC_CLASS_CAST;
}

void moec_attrs_default(moec_op op, void *out) { memcpy(out, default_table[op], op_table[op].attrs_size); }

/* Size of one list element, 0 for kinds that are no lists. */
static size_t list_elem(moec_attr_kind k) {
  if (k == MOEC_ATTR_INTS) return sizeof(int64_t);
  if (k == MOEC_ATTR_DIMS) return sizeof(moec_dim);
  return 0;
}

static size_t scalar_size(moec_attr_kind k) {
  static const size_t sizes[] = {
      [MOEC_ATTR_I] = sizeof(moec_attr_I), [MOEC_ATTR_F] = sizeof(moec_attr_F), [MOEC_ATTR_B] = sizeof(moec_attr_B),
      [MOEC_ATTR_E] = sizeof(moec_attr_E), [MOEC_ATTR_S] = sizeof(moec_attr_S), [MOEC_ATTR_DIM] = sizeof(moec_attr_DIM),
      [MOEC_ATTR_FN] = sizeof(moec_attr_FN), [MOEC_ATTR_PARAM] = sizeof(moec_attr_PARAM),
  };
  return sizes[k];
}

const void *moec_attrs_copy(moec_module *m, moec_op op, const void *attrs) {
  const moec_op_info *info = moec_op_get(op);
  char *copy = moec_arena_copy(m->arena, attrs ? attrs : default_table[op], info->attrs_size);
  for (uint32_t i = 0; i < info->n_attrs; i++) {
    size_t elem = list_elem(info->attrs[i].kind);
    if (!elem) continue;
    moec_ints *list = (moec_ints *)(void *)(copy + info->attrs[i].offset); /* INTS and DIMS share their layout */
    if (list->n) list->v = moec_arena_copy(m->arena, list->v, list->n * elem);
  }
  return copy;
}

static bool const_equal(const moec_const *a, const moec_const *b) {
  if (a == b) return true;
  return a && b && a->type.i == b->type.i && a->size == b->size && memcmp(a->bytes, b->bytes, a->size) == 0;
}

static bool attr_equal(moec_attr_kind k, const char *a, const char *b) {
  size_t elem = list_elem(k);
  if (elem) {
    const moec_ints *x = (const moec_ints *)(const void *)a, *y = (const moec_ints *)(const void *)b;
    return x->n == y->n && (!x->n || memcmp(x->v, y->v, x->n * elem) == 0);
  }
  if (k == MOEC_ATTR_DATA)
    return const_equal(*(const moec_const *const *)(const void *)a, *(const moec_const *const *)(const void *)b);
  return memcmp(a, b, scalar_size(k)) == 0;
}

bool moec_attrs_equal(moec_op op, const void *a, const void *b) {
  const moec_op_info *info = moec_op_get(op);
  for (uint32_t i = 0; i < info->n_attrs; i++) {
    uint16_t off = info->attrs[i].offset;
    if (!attr_equal(info->attrs[i].kind, (const char *)a + off, (const char *)b + off)) return false;
  }
  return true;
}

uint64_t moec_attrs_hash(uint64_t h, moec_op op, const void *attrs) {
  const moec_op_info *info = moec_op_get(op);
  for (uint32_t i = 0; i < info->n_attrs; i++) {
    const char *p = (const char *)attrs + info->attrs[i].offset;
    size_t elem = list_elem(info->attrs[i].kind);
    if (elem) {
      const moec_ints *x = (const moec_ints *)(const void *)p;
      h = moec_hash(h, &x->n, sizeof x->n);
      if (x->n) h = moec_hash(h, x->v, x->n * elem);
    } else if (info->attrs[i].kind == MOEC_ATTR_DATA) {
      const moec_const *c = *(const moec_const *const *)(const void *)p;
      if (c) h = moec_hash(moec_hash(h, &c->type.i, sizeof c->type.i), c->bytes, c->size);
    } else {
      h = moec_hash(h, p, scalar_size(info->attrs[i].kind));
    }
  }
  return h;
}
