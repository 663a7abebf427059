/* Modules: creation, parameter records, constraints, deep copies. */
#include <stdlib.h>
#include <string.h>

#include "base/fresh.h"
#include "ir/ir_internal.h"

moec_module *moec_module_create(void) {
  moec_arena *arena = moec_arena_create();
  moec_module *m = MOEC_NEW(arena, moec_module);
  m->arena = arena;
  m->syms = moec_sym_table_create(arena);
  m->dims = moec_dim_table_create(arena);
  m->types = moec_type_table_create(arena);
  MOEC_PUSH(arena, m->fns, m->n_fns, m->cap_fns, NULL);
  MOEC_PUSH(arena, m->params, m->n_params, m->cap_params, (moec_param_info){0});
  return m;
}

void moec_module_destroy(moec_module *m) {
  if (!m) return;
  for (size_t i = 0; i < m->n_files; i++)
    if (m->files[i].owned) moec_unmap(&m->files[i].map);
  moec_arena_destroy(m->arena);
}

moec_fn moec_fn_add(moec_module *m, const char *name) {
  moec_graph *g = MOEC_NEW(m->arena, moec_graph);
  g->m = m;
  g->name = moec_sym_make(m, name);
  MOEC_PUSH(m->arena, g->values, g->n_values, g->cap_values, (moec_value_info){0});
  MOEC_PUSH(m->arena, g->nodes, g->n_nodes, g->cap_nodes, (moec_node_info){0});
  moec_fn f = {(uint32_t)m->n_fns};
  MOEC_PUSH(m->arena, m->fns, m->n_fns, m->cap_fns, g);
  return f;
}

moec_param moec_param_add(moec_module *m, const moec_param_info *info) {
  moec_param p = {(uint32_t)m->n_params};
  moec_param_info copy = *info;
  copy.pieces = info->n_pieces ? moec_arena_copy(m->arena, info->pieces, info->n_pieces * sizeof *info->pieces) : NULL;
  MOEC_PUSH(m->arena, m->params, m->n_params, m->cap_params, copy);
  return p;
}

moec_param_info *moec_param_get(const moec_module *m, moec_param p) { return &m->params[p.i]; }
uint32_t moec_param_count(const moec_module *m) { return (uint32_t)m->n_params - 1; }

/* Where the constraint of |a| and |b| stands in the hash table, or would. */
static size_t constraint_slot(const moec_module *m, moec_dim a, moec_dim b) {
  uint32_t key[2] = {a.i, b.i};
  size_t i = (size_t)moec_hash(MOEC_HASH_SEED, key, sizeof key) & (m->n_constraint_slots - 1);
  for (; m->constraint_slots[i]; i = (i + 1) & (m->n_constraint_slots - 1)) {
    const moec_constraint *c = &m->constraints[m->constraint_slots[i] - 1];
    if (moec_dim_eq(c->a, a) && moec_dim_eq(c->b, b)) break;
  }
  return i;
}

/* Brings the hash table up to date, with room for one more. */
static void hash_constraints(moec_module *m) {
  if (2 * (m->n_constraints + 1) > m->n_constraint_slots) {
    m->n_constraint_slots = m->n_constraint_slots ? m->n_constraint_slots : 64;
    while (2 * (m->n_constraints + 1) > m->n_constraint_slots) m->n_constraint_slots *= 2;
    m->constraint_slots = MOEC_NEW_ARRAY(m->arena, uint32_t, m->n_constraint_slots);
    m->n_hashed = 0;
  }
  for (; m->n_hashed < m->n_constraints; m->n_hashed++) {
    const moec_constraint *c = &m->constraints[m->n_hashed];
    m->constraint_slots[constraint_slot(m, c->a, c->b)] = (uint32_t)m->n_hashed + 1;
  }
}

void moec_constrain_equal(moec_module *m, moec_dim a, moec_dim b, const char *where, const char *what) {
  if (moec_dim_eq(a, b)) return;
  hash_constraints(m);
  if (m->constraint_slots[constraint_slot(m, a, b)]) return; /* one report a pair is enough */
  moec_constraint c = {a, b, moec_sym_make(m, where), moec_sym_make(m, what)};
  MOEC_PUSH(m->arena, m->constraints, m->n_constraints, m->cap_constraints, c);
}

/* ---- loading a parameter ----------------------------------------------------------------- */

/* Of weights made from a seed: *made is the caller's. */
static moec_status *make_piece(const char *name, const moec_piece *pc, size_t bytes, void **made) {
  moec_fresh fresh;
  MOEC_TRY(moec_fresh_parse(name, &fresh));
  *made = malloc(bytes ? bytes : 1);
  if (!*made) return moec_error(MOEC_OUT_OF_MEMORY, "no memory for %zu bytes of weights", bytes);
  moec_fresh_fill(&fresh, pc->dtype, *made, bytes / moec_dtype_get(pc->dtype)->bytes, pc->offset);
  return NULL;
}

/* *made, where it is set, is what *out points to and is freed by the caller. */
static moec_status *piece_bytes(const moec_module *m, const moec_param_info *p, const moec_piece *pc,
                                const uint8_t **out, void **made) {
  size_t need;
  MOEC_TRY(moec_shape_bytes(pc->dtype, pc->rank, pc->shape, &need));
  if (pc->file == UINT32_MAX) {
    *out = pc->inline_bytes;
    if (pc->inline_bytes || need == 0) return NULL;
    return moec_error(MOEC_INVALID_ARGUMENT, "parameter \"%s\": its bytes are not part of this text form",
                      moec_sym_str(m, p->name));
  }
  const moec_file *f = &m->files[pc->file];
  if (moec_fresh_is(moec_sym_str(m, f->name))) {
    MOEC_TRY(make_piece(moec_sym_str(m, f->name), pc, need, made));
    *out = *made;
    return NULL;
  }
  if (pc->offset > f->map.size || need > f->map.size - pc->offset)
    return moec_error(MOEC_INVALID_MODEL, "parameter \"%s\": expected %zu bytes at offset %llu of \"%s\", file has %zu",
                      moec_sym_str(m, p->name), need, (unsigned long long)pc->offset, moec_sym_str(m, f->name),
                      f->map.size);
  *out = f->map.data + pc->offset;
  return NULL;
}

/* Copies one piece into its slice of the dense parameter. */
static void piece_scatter(const moec_piece *pc, const uint8_t *src, size_t elem, const moec_tensor *dst) {
  int64_t dst_stride[MOEC_MAX_RANK], src_to_dst[MOEC_MAX_RANK], base = 0, s = 1, numel = 1;
  for (uint32_t i = pc->rank; i-- > 0; s *= dst->dims[i]) dst_stride[i] = s;
  for (uint32_t i = 0; i < pc->rank; i++) base += pc->start[i] * dst_stride[i];
  for (uint32_t i = 0; i < pc->rank; i++) src_to_dst[pc->perm[i]] = dst_stride[i];
  for (uint32_t i = 0; i < pc->rank; i++) numel *= pc->shape[i];
  int64_t idx[MOEC_MAX_RANK] = {0};
  uint8_t *out = dst->data;
  uint32_t last = pc->rank ? pc->rank - 1 : 0;
  int64_t run = pc->rank ? pc->shape[last] : 1;
  bool dense_run = pc->rank == 0 || src_to_dst[last] == 1;
  for (int64_t at = 0; at < numel; at += run) {
    int64_t off = base;
    for (uint32_t i = 0; i < last; i++) off += idx[i] * src_to_dst[i];
    const uint8_t *in = src + (size_t)at * elem;
    if (dense_run) {
      memcpy(out + (size_t)off * elem, in, (size_t)run * elem);
    } else {
      for (int64_t j = 0; j < run; j++)
        memcpy(out + (size_t)(off + j * src_to_dst[last]) * elem, in + (size_t)j * elem, elem);
    }
    for (uint32_t i = last; i-- > 0;) {
      if (++idx[i] < pc->shape[i]) break;
      idx[i] = 0;
    }
  }
}

moec_status *moec_param_load(const moec_module *m, moec_param p, moec_tensor *out) {
  const moec_param_info *info = moec_param_get(m, p);
  moec_type_info t = moec_type_get(m, info->type);
  int64_t dims[MOEC_MAX_RANK];
  *out = (moec_tensor){0};
  for (uint32_t i = 0; i < t.rank; i++)
    if (!moec_dim_is_const(m, t.dims[i], &dims[i]))
      return MOEC_BUG("parameter \"%s\" has a symbolic shape", moec_sym_str(m, info->name));
  MOEC_TRY(moec_tensor_init(out, info->storage, t.rank, dims));
  for (uint32_t i = 0; i < info->n_pieces; i++) {
    const uint8_t *src = NULL;
    void *made = NULL;
    moec_status *s = piece_bytes(m, info, &info->pieces[i], &src, &made);
    if (s) {
      moec_tensor_fini(out);
      return s;
    }
    if (src && moec_tensor_numel(out))
      piece_scatter(&info->pieces[i], src, moec_dtype_get(info->storage)->bytes, out);
    free(made);
  }
  return NULL;
}

/* ---- deep copy ---------------------------------------------------------------------------- */

typedef struct cloner {
  const moec_module *src;
  moec_module *dst;
  moec_dim *symbols; /* by symbol index */
} cloner;

static moec_dim clone_dim(const cloner *c, moec_dim d);

static moec_dim clone_atom(const cloner *c, uint32_t atom) {
  moec_dim_atom a = moec_dim_get_atom(c->src, atom);
  moec_module *m = c->dst;
  switch (a.op) {
    case MOEC_DIM_SYMBOL: return c->symbols[a.symbol];
    case MOEC_DIM_FLOORDIV: return moec_dim_floordiv(m, clone_dim(c, a.a), clone_dim(c, a.b));
    case MOEC_DIM_MOD: return moec_dim_mod(m, clone_dim(c, a.a), clone_dim(c, a.b));
    case MOEC_DIM_MIN: return moec_dim_min(m, clone_dim(c, a.a), clone_dim(c, a.b));
    case MOEC_DIM_MAX: return moec_dim_max(m, clone_dim(c, a.a), clone_dim(c, a.b));
  }
  return (moec_dim){0};
}

static moec_dim clone_dim(const cloner *c, moec_dim d) {
  if (!moec_dim_known(d)) return d;
  moec_dim sum = moec_dim_const(c->dst, 0);
  for (uint32_t i = 0; i < moec_dim_n_terms(c->src, d); i++) {
    moec_dim_term t = moec_dim_get_term(c->src, d, i);
    moec_dim prod = moec_dim_const(c->dst, t.coeff);
    for (uint32_t k = 0; k < t.n_atoms; k++) prod = moec_dim_mul(c->dst, prod, clone_atom(c, t.atoms[k]));
    sum = moec_dim_add(c->dst, sum, prod);
  }
  return sum;
}

static moec_type clone_type(const cloner *c, moec_type t) {
  moec_type_info i = moec_type_get(c->src, t);
  moec_dim dims[MOEC_MAX_RANK];
  for (uint32_t k = 0; k < i.rank; k++) dims[k] = clone_dim(c, i.dims[k]);
  return i.dtype ? moec_type_make(c->dst, i.dtype, i.rank, dims) : (moec_type){0};
}

static const void *clone_attrs(const cloner *c, moec_op op, const void *attrs) {
  const moec_op_info *info = moec_op_get(op);
  char *copy = (char *)(uintptr_t)moec_attrs_copy(c->dst, op, attrs);
  for (uint32_t i = 0; i < info->n_attrs; i++) {
    void *p = copy + info->attrs[i].offset;
    if (info->attrs[i].kind == MOEC_ATTR_DIM) {
      *(moec_dim *)p = clone_dim(c, *(moec_dim *)p);
    } else if (info->attrs[i].kind == MOEC_ATTR_DIMS) {
      moec_dims *list = p;
      moec_dim *v = MOEC_NEW_ARRAY(c->dst->arena, moec_dim, list->n);
      for (uint32_t k = 0; k < list->n; k++) v[k] = clone_dim(c, list->v[k]);
      list->v = v;
    } else if (info->attrs[i].kind == MOEC_ATTR_DATA) {
      const moec_const *old = *(const moec_const **)p;
      moec_const *data = MOEC_NEW(c->dst->arena, moec_const);
      *data = (moec_const){clone_type(c, old->type), moec_arena_copy(c->dst->arena, old->bytes, old->size), old->size};
      *(const moec_const **)p = data;
    }
  }
  return copy;
}

static void clone_graph(const cloner *c, const moec_graph *g, moec_graph *out) {
  moec_arena *a = c->dst->arena;
  *out = *g;
  out->m = c->dst;
  out->use_start = NULL;
  out->use_nodes = NULL;
#define COPY_ARRAY(field, n, cap) \
  out->field = moec_arena_copy(a, g->field, g->n * sizeof *g->field); \
  out->cap = g->n
  COPY_ARRAY(values, n_values, cap_values);
  COPY_ARRAY(nodes, n_nodes, cap_nodes);
  COPY_ARRAY(edges, n_edges, cap_edges);
  COPY_ARRAY(inputs, n_inputs, cap_inputs);
  COPY_ARRAY(outputs, n_outputs, cap_outputs);
  COPY_ARRAY(output_names, n_outputs, cap_output_names);
#undef COPY_ARRAY
  for (size_t i = 1; i < out->n_values; i++) out->values[i].type = clone_type(c, g->values[i].type);
  for (size_t i = 1; i < out->n_nodes; i++)
    if (out->nodes[i].op) out->nodes[i].attrs = clone_attrs(c, out->nodes[i].op, g->nodes[i].attrs);
}

moec_module *moec_module_clone(const moec_module *src) {
  moec_module *dst = moec_module_create();
  cloner c = {src, dst, MOEC_NEW_ARRAY(dst->arena, moec_dim, moec_dim_symbol_count(src) + 1)};
  moec_sym_table_replay(dst, src);
  for (uint32_t i = 0; i < moec_dim_symbol_count(src); i++)
    c.symbols[i] = moec_dim_symbol(dst, moec_dim_symbol_name(src, i));
  for (size_t i = 1; i < src->n_fns; i++) clone_graph(&c, src->fns[i], moec_fn_get(dst, moec_fn_add(dst, "")));
  for (size_t i = 1; i < src->n_params; i++) {
    moec_param_info p = src->params[i];
    p.type = clone_type(&c, p.type);
    moec_param_add(dst, &p);
  }
  for (size_t i = 0; i < src->n_constraints; i++) {
    const moec_constraint *k = &src->constraints[i];
    moec_constrain_equal(dst, clone_dim(&c, k->a), clone_dim(&c, k->b), moec_sym_str(src, k->where),
                         moec_sym_str(src, k->what));
  }
  for (size_t i = 0; i < src->n_files; i++) {
    moec_file f = src->files[i];
    f.owned = false;
    MOEC_PUSH(dst->arena, dst->files, dst->n_files, dst->cap_files, f);
  }
  dst->name = src->name;
  return dst;
}
