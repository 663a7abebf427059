/* Questions rules ask about values, and the nodes they build. */
#include <string.h>

#include "passes/simplify.h"

const moec_const *moec_s_fill(const moec_graph *g, moec_value v) {
  if (moec_def_op(g, v) == MOEC_OP_BROADCAST) {
    moec_value x = moec_in(g, moec_def(g, v), 0);
    return moec_ty(g, x).rank == 0 ? moec_s_fill(g, x) : NULL;
  }
  if (moec_def_op(g, v) != MOEC_OP_CONST) return NULL;
  const moec_const *c = MOEC_ATTRS(g, moec_def(g, v), CONST)->data;
  return c->size == moec_dtype_get(moec_ty(g, v).dtype)->bytes ? c : NULL;
}

bool moec_s_fill_float(const moec_graph *g, moec_value v, double *out) {
  const moec_const *c = moec_s_fill(g, v);
  if (c) *out = moec_load_f64(moec_ty(g, v).dtype, c->bytes, 0);
  return c != NULL;
}

bool moec_s_fill_int(const moec_graph *g, moec_value v, int64_t *out) {
  const moec_const *c = moec_s_fill(g, v);
  if (!c || moec_dtype_is_float(moec_ty(g, v).dtype)) return false;
  *out = moec_load_i64(moec_ty(g, v).dtype, c->bytes, 0);
  return true;
}

bool moec_s_is(const moec_graph *g, moec_value v, double number) {
  double x;
  return moec_s_fill_float(g, v, &x) && x == number;
}

bool moec_s_is_unit(const moec_module *m, moec_dim d) { return moec_dim_is(m, d, 1); }

bool moec_s_same_dims(uint32_t rank, const moec_dim *a, const moec_dim *b) {
  return rank == 0 || memcmp(a, b, rank * sizeof *a) == 0;
}

bool moec_s_le(moec_module *m, moec_dim a, moec_dim b) {
  moec_dim d = moec_dim_sub(m, b, a);
  return moec_dim_known(d) && moec_dim_is_nonneg(m, d);
}

/* Aligns the axes of |from| with those of |to|, which may have more axes of size 1 between. */
static bool inserted_units(const moec_module *m, moec_type_info from, moec_type_info to, int64_t *map) {
  uint32_t k = 0;
  for (uint32_t i = 0; i < to.rank; i++) {
    uint32_t left = from.rank - k;
    if (left && moec_dim_eq(from.dims[k], to.dims[i])) map[k++] = (int64_t)i;
    else if (!moec_s_is_unit(m, to.dims[i])) return false;
  }
  return k == from.rank;
}

bool moec_s_view(const moec_graph *g, moec_value v, moec_view *out) {
  moec_op op = moec_def_op(g, v);
  if (op != MOEC_OP_BROADCAST && op != MOEC_OP_RESHAPE) return false;
  moec_node n = moec_def(g, v);
  out->source = moec_in(g, n, 0);
  out->rank = moec_ty(g, out->source).rank;
  if (op == MOEC_OP_RESHAPE) return inserted_units(g->m, moec_ty(g, out->source), moec_ty(g, v), out->map);
  if (out->rank) memcpy(out->map, MOEC_ATTRS(g, n, BROADCAST)->map.v, out->rank * sizeof *out->map);
  return true;
}

/* ---- building ----------------------------------------------------------------------------- */

moec_value moec_s_fill_like(moec_simplifier *s, moec_type t, const moec_const *element) {
  moec_type_info i = moec_type_get(s->m, t);
  moec_value c = moec_b_const(&s->b, moec_type_scalar(s->m, i.dtype), element->bytes, element->size);
  return moec_b_fill(&s->b, c, i.rank, i.dims);
}

moec_value moec_s_number_like(moec_simplifier *s, moec_type t, double number) {
  moec_type_info i = moec_type_get(s->m, t);
  return moec_b_fill(&s->b, moec_b_scalar_f(&s->b, i.dtype, number), i.rank, i.dims);
}

moec_value moec_s_int_like(moec_simplifier *s, moec_type t, int64_t number) {
  moec_type_info i = moec_type_get(s->m, t);
  return moec_b_fill(&s->b, moec_b_scalar_i(&s->b, i.dtype, number), i.rank, i.dims);
}

moec_value moec_s_op(moec_simplifier *s, moec_op op, moec_value x, moec_value y) {
  moec_value in[2] = {x, y};
  return moec_b_op(&s->b, op, NULL, y.i ? 2 : 1, in, 1);
}

moec_value moec_s_reshape(moec_simplifier *s, moec_value x, uint32_t rank, const moec_dim *shape) {
  moec_type_info t = moec_b_ty(&s->b, x);
  if (t.rank == rank && moec_s_same_dims(rank, t.dims, shape)) return x;
  moec_attrs_RESHAPE a = {.shape = {rank, shape}};
  return moec_b_op(&s->b, MOEC_OP_RESHAPE, &a, 1, &x, 1);
}

moec_value moec_s_broadcast(moec_simplifier *s, moec_value x, uint32_t rank, const moec_dim *shape,
                            const int64_t *map) {
  moec_type_info t = moec_b_ty(&s->b, x);
  if (t.rank == rank && moec_s_same_dims(rank, t.dims, shape)) return x;
  moec_attrs_BROADCAST a = {.shape = {rank, shape}, .map = {t.rank, map}};
  return moec_b_op(&s->b, MOEC_OP_BROADCAST, &a, 1, &x, 1);
}

moec_value moec_s_squeeze(moec_simplifier *s, moec_value x) {
  moec_type_info t = moec_b_ty(&s->b, x);
  moec_dim dims[MOEC_MAX_RANK];
  uint32_t n = 0;
  for (uint32_t i = 0; i < t.rank; i++)
    if (!moec_s_is_unit(s->m, t.dims[i])) dims[n++] = t.dims[i];
  return moec_s_reshape(s, x, n, dims);
}
