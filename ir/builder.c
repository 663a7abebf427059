/* Graph building helpers. */
#include "ir/builder.h"

#include <math.h>
#include <string.h>

#include "ir/infer.h"

void moec_b_fail(moec_builder *b, moec_status *s) {
  if (!s) return;
  if (b->error) moec_status_free(s);
  else b->error = s;
}

moec_type_info moec_b_ty(const moec_builder *b, moec_value v) { return moec_ty(b->g, v); }

moec_dim moec_b_dim(const moec_builder *b, moec_value v, int64_t axis) {
  moec_type_info t = moec_ty(b->g, v);
  if (axis < 0) axis += t.rank;
  return axis >= 0 && axis < (int64_t)t.rank ? t.dims[axis] : (moec_dim){0};
}

moec_value moec_b_op(moec_builder *b, moec_op op, const void *attrs, uint32_t n_in, const moec_value *in,
                     uint32_t n_out) {
  moec_node n;
  if (b->error) return (moec_value){0};
  b->error = moec_add_node(b->g, op, attrs, n_in, in, n_out, &n);
  return b->error ? (moec_value){0} : moec_out(b->g, n, 0);
}

moec_value moec_b_unary(moec_builder *b, moec_op op, moec_value x) { return moec_b_op(b, op, NULL, 1, &x, 1); }

/* ---- broadcasting ------------------------------------------------------------------------- */

static moec_status *broadcast_dim(moec_module *m, moec_dim a, moec_dim b, const char *where, moec_dim *out) {
  int64_t x, y;
  *out = a;
  if (moec_dim_eq(a, b) || moec_dim_is(m, b, 1)) return NULL;
  *out = b;
  if (moec_dim_is(m, a, 1)) return NULL;
  bool ca = moec_dim_is_const(m, a, &x), cb = moec_dim_is_const(m, b, &y);
  if (ca && cb)
    return moec_error(MOEC_INVALID_MODEL, "expected shapes that broadcast, got sizes %lld and %lld", (long long)x,
                      (long long)y);
  moec_constrain_equal(m, a, b, where, "operands must have equal sizes");
  *out = ca ? a : b;
  return NULL;
}

moec_status *moec_broadcast_shapes(moec_module *m, moec_type_info a, moec_type_info b, const char *where,
                                   uint32_t *out_rank, moec_dim *out_dims) {
  uint32_t rank = a.rank > b.rank ? a.rank : b.rank;
  moec_dim one = moec_dim_const(m, 1);
  for (uint32_t i = 0; i < rank; i++) {
    moec_dim x = i + a.rank >= rank ? a.dims[i + a.rank - rank] : one;
    moec_dim y = i + b.rank >= rank ? b.dims[i + b.rank - rank] : one;
    MOEC_TRY(broadcast_dim(m, x, y, where, &out_dims[i]));
  }
  *out_rank = rank;
  return NULL;
}

moec_value moec_b_broadcast_to(moec_builder *b, moec_value x, uint32_t rank, const moec_dim *shape) {
  if (b->error) return (moec_value){0};
  moec_module *m = b->g->m;
  moec_type_info t = moec_ty(b->g, x);
  if (t.rank == rank && (rank == 0 || memcmp(t.dims, shape, rank * sizeof *shape) == 0)) return x;
  if (t.rank > rank) {
    moec_b_fail(b, moec_error(MOEC_INVALID_MODEL, "cannot broadcast rank %u to rank %u", t.rank, rank));
    return (moec_value){0};
  }
  int64_t map[MOEC_MAX_RANK];
  moec_dim aligned[MOEC_MAX_RANK]; /* x's shape where sizes are equal only by constraint */
  bool same = t.rank == rank;
  for (uint32_t i = 0; i < t.rank; i++) {
    moec_dim want = shape[rank - t.rank + i];
    map[i] = (int64_t)(rank - t.rank + i);
    aligned[i] = moec_dim_is(m, t.dims[i], 1) ? t.dims[i] : want;
    same = same && moec_dim_eq(aligned[i], want);
    if (!moec_dim_eq(aligned[i], t.dims[i]))
      moec_constrain_equal(m, t.dims[i], want, moec_sym_str(m, b->g->loc), "operands must have equal sizes");
  }
  if (t.rank && memcmp(aligned, t.dims, t.rank * sizeof *aligned) != 0) x = moec_b_reshape(b, x, t.rank, aligned);
  if (same) return x;
  moec_attrs_BROADCAST a = {.shape = {rank, shape}, .map = {t.rank, map}};
  return moec_b_op(b, MOEC_OP_BROADCAST, &a, 1, &x, 1);
}

moec_value moec_b_binary(moec_builder *b, moec_op op, moec_value x, moec_value y) {
  if (b->error) return (moec_value){0};
  uint32_t rank = 0;
  moec_dim dims[MOEC_MAX_RANK];
  moec_b_fail(b, moec_broadcast_shapes(b->g->m, moec_ty(b->g, x), moec_ty(b->g, y), moec_sym_str(b->g->m, b->g->loc),
                                       &rank, dims));
  moec_value in[2] = {moec_b_broadcast_to(b, x, rank, dims), moec_b_broadcast_to(b, y, rank, dims)};
  return moec_b_op(b, op, NULL, 2, in, 1);
}

moec_value moec_b_select(moec_builder *b, moec_value c, moec_value x, moec_value y) {
  if (b->error) return (moec_value){0};
  moec_module *m = b->g->m;
  const char *where = moec_sym_str(m, b->g->loc);
  uint32_t rank = 0;
  moec_dim dims[MOEC_MAX_RANK], all[MOEC_MAX_RANK];
  moec_b_fail(b, moec_broadcast_shapes(m, moec_ty(b->g, x), moec_ty(b->g, y), where, &rank, dims));
  if (b->error) return (moec_value){0};
  moec_b_fail(b, moec_broadcast_shapes(m, moec_ty(b->g, c), (moec_type_info){MOEC_F32, rank, dims}, where, &rank, all));
  moec_value in[3] = {moec_b_broadcast_to(b, c, rank, all), moec_b_broadcast_to(b, x, rank, all),
                      moec_b_broadcast_to(b, y, rank, all)};
  return moec_b_op(b, MOEC_OP_SELECT, NULL, 3, in, 1);
}

moec_value moec_b_cast(moec_builder *b, moec_value x, moec_dtype t) {
  if (b->error || moec_ty(b->g, x).dtype == t) return x;
  moec_attrs_CAST a = {.dtype = t};
  return moec_b_op(b, MOEC_OP_CAST, &a, 1, &x, 1);
}

/* ---- leaves ------------------------------------------------------------------------------- */

moec_value moec_b_const(moec_builder *b, moec_type t, const void *bytes, size_t size) {
  moec_arena *a = b->g->m->arena;
  moec_const *c = MOEC_NEW(a, moec_const);
  *c = (moec_const){t, moec_arena_copy(a, bytes, size), size};
  moec_attrs_CONST attrs = {.data = c};
  return moec_b_op(b, MOEC_OP_CONST, &attrs, 0, NULL, 1);
}

moec_value moec_b_scalar_f(moec_builder *b, moec_dtype t, double v) {
  uint8_t bytes[8] = {0};
  moec_store_f64(t, bytes, 0, v);
  return moec_b_const(b, moec_type_scalar(b->g->m, t), bytes, moec_dtype_get(t)->bytes);
}

moec_value moec_b_scalar_i(moec_builder *b, moec_dtype t, int64_t v) {
  uint8_t bytes[8] = {0};
  moec_store_i64(t, bytes, 0, v);
  return moec_b_const(b, moec_type_scalar(b->g->m, t), bytes, moec_dtype_get(t)->bytes);
}

moec_value moec_b_size(moec_builder *b, moec_dim d) {
  int64_t v;
  if (moec_dim_is_const(b->g->m, d, &v)) return moec_b_scalar_i(b, MOEC_I64, v);
  moec_attrs_SIZE a = {.value = d};
  return moec_b_op(b, MOEC_OP_SIZE, &a, 0, NULL, 1);
}

moec_value moec_b_iota(moec_builder *b, moec_dtype t, uint32_t rank, const moec_dim *shape, int64_t axis) {
  moec_attrs_IOTA a = {.dtype = t, .shape = {rank, shape}, .axis = axis < 0 ? axis + rank : axis};
  return moec_b_op(b, MOEC_OP_IOTA, &a, 0, NULL, 1);
}

moec_value moec_b_fill(moec_builder *b, moec_value scalar, uint32_t rank, const moec_dim *shape) {
  if (rank == 0) return scalar;
  moec_attrs_BROADCAST a = {.shape = {rank, shape}};
  return moec_b_op(b, MOEC_OP_BROADCAST, &a, 1, &scalar, 1);
}

/* ---- movement ----------------------------------------------------------------------------- */

moec_value moec_b_reshape(moec_builder *b, moec_value x, uint32_t rank, const moec_dim *shape) {
  if (b->error) return (moec_value){0};
  moec_module *m = b->g->m;
  moec_type_info t = moec_ty(b->g, x);
  if (t.rank == rank && (rank == 0 || memcmp(t.dims, shape, rank * sizeof *shape) == 0)) return x;
  moec_attrs_RESHAPE a = {.shape = {rank, shape}};
  moec_value y = moec_b_op(b, MOEC_OP_RESHAPE, &a, 1, &x, 1);
  if (b->error) return y;
  moec_dim from = moec_type_numel(m, moec_value_get(b->g, x)->type),
           to = moec_type_numel(m, moec_value_get(b->g, y)->type);
  moec_constrain_equal(m, from, to, moec_sym_str(m, b->g->loc), "reshape: element counts must be equal");
  return y;
}

moec_value moec_b_transpose(moec_builder *b, moec_value x, const int64_t *perm) {
  if (b->error) return (moec_value){0};
  uint32_t rank = moec_ty(b->g, x).rank;
  bool identity = true;
  for (uint32_t i = 0; i < rank; i++) identity = identity && perm[i] == (int64_t)i;
  if (identity) return x;
  moec_attrs_TRANSPOSE a = {.perm = {rank, perm}};
  return moec_b_op(b, MOEC_OP_TRANSPOSE, &a, 1, &x, 1);
}

moec_value moec_b_unsqueeze(moec_builder *b, moec_value x, int64_t axis) {
  if (b->error) return (moec_value){0};
  moec_type_info t = moec_ty(b->g, x);
  moec_dim dims[MOEC_MAX_RANK + 1];
  if (axis < 0) axis += t.rank + 1;
  if (axis < 0 || axis > (int64_t)t.rank || t.rank + 1 > MOEC_MAX_RANK) {
    moec_b_fail(b, moec_error(MOEC_INVALID_MODEL, "unsqueeze: axis out of range"));
    return (moec_value){0};
  }
  for (int64_t i = 0, k = 0; i <= (int64_t)t.rank; i++) dims[i] = i == axis ? moec_dim_const(b->g->m, 1) : t.dims[k++];
  return moec_b_reshape(b, x, t.rank + 1, dims);
}

moec_value moec_b_squeeze(moec_builder *b, moec_value x, int64_t axis) {
  if (b->error) return (moec_value){0};
  moec_type_info t = moec_ty(b->g, x);
  moec_dim dims[MOEC_MAX_RANK];
  uint32_t n = 0;
  if (axis < 0) axis += t.rank;
  for (uint32_t i = 0; i < t.rank; i++)
    if ((int64_t)i != axis) dims[n++] = t.dims[i];
  return moec_b_reshape(b, x, n, dims);
}

moec_value moec_b_slice(moec_builder *b, moec_value x, int64_t axis, moec_dim start, moec_dim size) {
  return moec_b_slice_by(b, x, axis, start, size, 1);
}

moec_value moec_b_slice_by(moec_builder *b, moec_value x, int64_t axis, moec_dim start, moec_dim size, int64_t step) {
  if (b->error) return (moec_value){0};
  moec_module *m = b->g->m;
  moec_type_info t = moec_ty(b->g, x);
  moec_dim starts[MOEC_MAX_RANK], sizes[MOEC_MAX_RANK];
  int64_t steps[MOEC_MAX_RANK];
  if (axis < 0) axis += t.rank;
  for (uint32_t i = 0; i < t.rank; i++) {
    starts[i] = (int64_t)i == axis ? start : moec_dim_const(m, 0);
    sizes[i] = (int64_t)i == axis ? size : t.dims[i];
    steps[i] = (int64_t)i == axis ? step : 1;
  }
  if (t.rank && moec_dim_is(m, start, 0) && moec_dim_eq(size, t.dims[axis])) return x;
  moec_attrs_SLICE a = {.start = {t.rank, starts}, .size = {t.rank, sizes}, .step = {t.rank, steps}};
  return moec_b_op(b, MOEC_OP_SLICE, &a, 1, &x, 1);
}

moec_value moec_b_concat(moec_builder *b, uint32_t n, const moec_value *in, int64_t axis) {
  if (b->error) return (moec_value){0};
  if (n == 1) return in[0];
  moec_attrs_CONCAT a = {.axis = axis < 0 ? axis + moec_ty(b->g, in[0]).rank : axis};
  return moec_b_op(b, MOEC_OP_CONCAT, &a, n, in, 1);
}

moec_value moec_b_reduce(moec_builder *b, moec_op op, moec_value x, int64_t axis, bool keep) {
  if (b->error) return (moec_value){0};
  if (axis < 0) axis += moec_ty(b->g, x).rank;
  moec_attrs_REDUCE_SUM a = {.axes = {1, &axis}}; /* the four structs are alike */
  moec_value y = moec_b_op(b, op, &a, 1, &x, 1);
  return keep ? moec_b_unsqueeze(b, y, axis) : y;
}

/* ---- matmul ------------------------------------------------------------------------------- */

moec_value moec_b_matmul(moec_builder *b, moec_value x, moec_value y) {
  if (b->error) return (moec_value){0};
  moec_module *m = b->g->m;
  bool row = moec_ty(b->g, x).rank == 1, col = moec_ty(b->g, y).rank == 1;
  if (row) x = moec_b_unsqueeze(b, x, 0);
  if (col) y = moec_b_unsqueeze(b, y, 1);
  if (b->error) return (moec_value){0};
  moec_type_info s = moec_ty(b->g, x), t = moec_ty(b->g, y);
  if (s.rank < 2 || t.rank < 2) {
    moec_b_fail(b, moec_error(MOEC_INVALID_MODEL, "matmul: expected operands of rank at least 1"));
    return (moec_value){0};
  }
  /* A right side without batch axes needs none on the left: they are free axes. */
  uint32_t rank = 0, nb = t.rank == 2 ? 0 : (s.rank > t.rank ? s.rank : t.rank) - 2;
  moec_dim batch[MOEC_MAX_RANK + 2];
  if (nb) {
    moec_type_info sb = {s.dtype, s.rank - 2, s.dims}, tb = {t.dtype, t.rank - 2, t.dims};
    moec_b_fail(b, moec_broadcast_shapes(m, sb, tb, moec_sym_str(m, b->g->loc), &rank, batch));
    batch[nb] = s.dims[s.rank - 2], batch[nb + 1] = s.dims[s.rank - 1];
    x = moec_b_broadcast_to(b, x, nb + 2, batch);
    batch[nb] = t.dims[t.rank - 2], batch[nb + 1] = t.dims[t.rank - 1];
    y = moec_b_broadcast_to(b, y, nb + 2, batch);
  }
  if (b->error) return (moec_value){0};
  int64_t axes[MOEC_MAX_RANK], xk = moec_ty(b->g, x).rank - 1, yk = moec_ty(b->g, y).rank - 2;
  for (uint32_t i = 0; i < nb; i++) axes[i] = (int64_t)i;
  moec_dim kx = moec_b_dim(b, x, xk), ky = moec_b_dim(b, y, yk);
  moec_constrain_equal(m, kx, ky, moec_sym_str(m, b->g->loc), "matmul: contracted sizes must be equal");
  moec_attrs_DOT a = {.lhs_batch = {nb, axes}, .rhs_batch = {nb, axes}, .lhs_contract = {1, &xk}, .rhs_contract =
      {1, &yk}};
  moec_value in[2] = {x, y};
  moec_value z = moec_b_op(b, MOEC_OP_DOT, &a, 2, in, 1);
  if (col) z = moec_b_squeeze(b, z, -1);
  return row ? moec_b_squeeze(b, z, col ? -1 : -2) : z;
}
