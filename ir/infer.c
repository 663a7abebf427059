/* Type inference of the primitives: leaves, elementwise, reductions, movement. */
#include "ir/infer.h"

const char *moec_type_text(moec_module *m, moec_type t) {
  moec_buf b = {0};
  moec_type_print(&b, m, t);
  const char *s = moec_arena_strdup(m->arena, moec_buf_str(&b));
  moec_buf_fini(&b);
  return s;
}

const char *moec_dim_text(moec_module *m, moec_dim d) {
  moec_buf b = {0};
  moec_dim_print(&b, m, d);
  const char *s = moec_arena_strdup(m->arena, moec_buf_str(&b));
  moec_buf_fini(&b);
  return s;
}

moec_status *moec_check_axis(int64_t axis, uint32_t rank, const char *what) {
  if (axis >= 0 && axis < (int64_t)rank) return NULL;
  return BAD("%s: expected an axis in 0..%d, got %lld", what, (int)rank - 1, (long long)axis);
}

moec_status *moec_check_axes(moec_ints axes, uint32_t rank, const char *what) {
  for (uint32_t i = 0; i < axes.n; i++) {
    MOEC_TRY(moec_check_axis(axes.v[i], rank, what));
    if (i && axes.v[i] <= axes.v[i - 1]) return BAD("%s: expected ascending axes", what);
  }
  return NULL;
}

moec_status *moec_check_result(moec_dtype operands, moec_dtype result) {
  bool narrow = operands == MOEC_BF16 || operands == MOEC_F16;
  if (!result || result == operands || (narrow && result == MOEC_F32)) return NULL;
  return BAD("dtype: expected that of the operands, or f32 where they are narrower, got %s",
             moec_dtype_get(result)->text);
}

moec_status *moec_check_dims(moec_module *m, moec_dim a, moec_dim b, const char *what) {
  if (moec_dim_eq(a, b)) return NULL;
  int64_t x, y;
  if (moec_dim_is_const(m, a, &x) && moec_dim_is_const(m, b, &y))
    return BAD("%s: expected equal sizes, got %lld and %lld", what, (long long)x, (long long)y);
  return NULL;
}

moec_status *moec_check_rank(moec_module *m, moec_type t, uint32_t rank, const char *what) {
  if (t.i && moec_type_get(m, t).rank == rank) return NULL;
  return BAD("%s: expected rank %u, got %s", what, rank, t.i ? moec_type_text(m, t) : "nothing");
}

static moec_status *check_shape(moec_module *m, moec_dims shape) {
  if (shape.n > MOEC_MAX_RANK) return BAD("expected rank at most %d, got %u", MOEC_MAX_RANK, shape.n);
  for (uint32_t i = 0; i < shape.n; i++) {
    int64_t v;
    if (!moec_dim_known(shape.v[i])) return BAD("size of axis %u is unknown", i);
    if (moec_dim_is_const(m, shape.v[i], &v) && v < 0) return BAD("size of axis %u is negative: %lld", i, (long long)v);
  }
  return NULL;
}

/* ---- leaves ------------------------------------------------------------------------------- */

INFER(param) {
  UNUSED_INFER_ARGS;
  moec_param p = ((const moec_attrs_PARAM *)attrs)->param;
  if (p.i == 0 || p.i >= m->n_params) return BAD("expected a parameter record, got number %u", p.i);
  out[0] = m->params[p.i].type;
  return NULL;
}

INFER(const) {
  UNUSED_INFER_ARGS;
  const moec_const *c = ((const moec_attrs_CONST *)attrs)->data;
  if (!c) return BAD("expected data");
  out[0] = c->type;
  return NULL;
}

INFER(size) {
  UNUSED_INFER_ARGS;
  if (!moec_dim_known(((const moec_attrs_SIZE *)attrs)->value)) return BAD("unknown size");
  out[0] = moec_type_scalar(m, MOEC_I64);
  return NULL;
}

INFER(iota) {
  UNUSED_INFER_ARGS;
  const moec_attrs_IOTA *a = attrs;
  MOEC_TRY(check_shape(m, a->shape));
  MOEC_TRY(moec_check_axis(a->axis, a->shape.n, "axis"));
  out[0] = moec_type_make(m, a->dtype, a->shape.n, a->shape.v);
  return NULL;
}

INFER(random) {
  UNUSED_INFER_ARGS;
  const moec_attrs_RANDOM *a = attrs;
  MOEC_TRY(check_shape(m, a->shape));
  if (!moec_dtype_is_float(a->dtype)) return BAD("expected a float dtype");
  if (a->kind < 0 || a->kind > 1) return BAD("expected kind 0 or 1, got %lld", (long long)a->kind);
  out[0] = moec_type_make(m, a->dtype, a->shape.n, a->shape.v);
  return NULL;
}

/* ---- elementwise -------------------------------------------------------------------------- */

static moec_status *same_types(moec_module *m, uint32_t n, const moec_type *in) {
  for (uint32_t i = 0; i < n; i++) {
    if (!in[i].i) return BAD("operand %u is absent", i);
    if (in[i].i != in[0].i)
      return BAD("expected operands of one type, got %s and %s", moec_type_text(m, in[0]), moec_type_text(m, in[i]));
  }
  return NULL;
}

INFER(same) {
  UNUSED_INFER_ARGS;
  MOEC_TRY(same_types(m, n_in, in));
  if (moec_type_get(m, in[0]).dtype == MOEC_BOOL) return BAD("expected numbers, got bool");
  out[0] = in[0];
  return NULL;
}

INFER(logical) {
  UNUSED_INFER_ARGS;
  MOEC_TRY(same_types(m, n_in, in));
  if (moec_dtype_is_float(moec_type_get(m, in[0]).dtype)) return BAD("expected bool or integers");
  out[0] = in[0];
  return NULL;
}

INFER(compare) {
  UNUSED_INFER_ARGS;
  MOEC_TRY(same_types(m, n_in, in));
  out[0] = moec_type_with_dtype(m, in[0], MOEC_BOOL);
  return NULL;
}

INFER(select) {
  UNUSED_INFER_ARGS;
  MOEC_TRY(same_types(m, 2, in + 1));
  if (!in[0].i || in[0].i != moec_type_with_dtype(m, in[1], MOEC_BOOL).i)
    return BAD("expected a bool condition of the operands' shape, got %s for %s", moec_type_text(m, in[0]),
               moec_type_text(m, in[1]));
  out[0] = in[1];
  return NULL;
}

INFER(cast) {
  UNUSED_INFER_ARGS;
  if (!in[0].i) return BAD("operand 0 is absent");
  out[0] = moec_type_with_dtype(m, in[0], ((const moec_attrs_CAST *)attrs)->dtype);
  return NULL;
}

/* ---- reductions and scans ----------------------------------------------------------------- */

INFER(reduce) {
  UNUSED_INFER_ARGS;
  moec_ints axes = ((const moec_attrs_REDUCE_SUM *)attrs)->axes; /* the four structs are alike */
  moec_type_info t = moec_type_get(m, in[0]);
  MOEC_TRY(moec_check_axes(axes, t.rank, "axes"));
  moec_dim dims[MOEC_MAX_RANK];
  uint32_t n = 0, k = 0;
  for (uint32_t i = 0; i < t.rank; i++) {
    if (k < axes.n && axes.v[k] == (int64_t)i) k++;
    else dims[n++] = t.dims[i];
  }
  out[0] = moec_type_make(m, t.dtype, n, dims);
  return NULL;
}

INFER(block_sum) {
  UNUSED_INFER_ARGS;
  const moec_attrs_BLOCK_SUM *a = attrs;
  moec_type_info t = moec_type_get(m, in[0]);
  if (a->leading < 1 || a->leading > (int64_t)t.rank)
    return BAD("leading: expected 1 to %u axes, got %lld", t.rank, (long long)a->leading);
  if (a->size < 1) return BAD("size: expected at least 1 row, got %lld", (long long)a->size);
  if (t.dtype == MOEC_BOOL) return BAD("expected numbers, got %s", moec_type_text(m, in[0]));
  uint32_t k = (uint32_t)a->leading;
  moec_dim dims[MOEC_MAX_RANK], rows = moec_dim_const(m, 1);
  for (uint32_t i = 0; i < k; i++) rows = moec_dim_mul(m, rows, t.dims[i]);
  dims[0] = moec_dim_ceildiv(m, rows, moec_dim_const(m, a->size));
  for (uint32_t i = k; i < t.rank; i++) dims[1 + i - k] = t.dims[i];
  out[0] = moec_type_make(m, t.dtype, t.rank - k + 1, dims);
  return NULL;
}

INFER(scan) {
  UNUSED_INFER_ARGS;
  MOEC_TRY(moec_check_axis(((const moec_attrs_CUMSUM *)attrs)->axis, moec_type_get(m, in[0]).rank, "axis"));
  out[0] = in[0];
  return NULL;
}

/* ---- movement ----------------------------------------------------------------------------- */

INFER(reshape) {
  UNUSED_INFER_ARGS;
  moec_dims shape = ((const moec_attrs_RESHAPE *)attrs)->shape;
  MOEC_TRY(check_shape(m, shape));
  out[0] = moec_type_make(m, moec_type_get(m, in[0]).dtype, shape.n, shape.v);
  moec_dim a = moec_type_numel(m, in[0]), b = moec_type_numel(m, out[0]);
  int64_t x, y;
  if (moec_dim_is_const(m, a, &x) && moec_dim_is_const(m, b, &y) && x != y)
    return BAD("expected equal element counts, got %s to %s", moec_type_text(m, in[0]), moec_type_text(m, out[0]));
  return NULL;
}

INFER(transpose) {
  UNUSED_INFER_ARGS;
  moec_ints perm = ((const moec_attrs_TRANSPOSE *)attrs)->perm;
  moec_type_info t = moec_type_get(m, in[0]);
  if (perm.n != t.rank) return BAD("perm: expected %u entries, got %u", t.rank, perm.n);
  moec_dim dims[MOEC_MAX_RANK];
  uint32_t seen = 0;
  for (uint32_t i = 0; i < perm.n; i++) {
    MOEC_TRY(moec_check_axis(perm.v[i], t.rank, "perm"));
    if (seen >> perm.v[i] & 1) return BAD("perm: axis %lld stands twice", (long long)perm.v[i]);
    seen |= 1u << perm.v[i];
    dims[i] = t.dims[perm.v[i]];
  }
  out[0] = moec_type_make(m, t.dtype, t.rank, dims);
  return NULL;
}

INFER(broadcast) {
  UNUSED_INFER_ARGS;
  const moec_attrs_BROADCAST *a = attrs;
  moec_type_info t = moec_type_get(m, in[0]);
  MOEC_TRY(check_shape(m, a->shape));
  if (a->map.n != t.rank) return BAD("map: expected %u entries, got %u", t.rank, a->map.n);
  MOEC_TRY(moec_check_axes(a->map, a->shape.n, "map"));
  for (uint32_t i = 0; i < t.rank; i++)
    if (!moec_dim_is(m, t.dims[i], 1)) MOEC_TRY(moec_check_dims(m, t.dims[i], a->shape.v[a->map.v[i]], "broadcast"));
  out[0] = moec_type_make(m, t.dtype, a->shape.n, a->shape.v);
  return NULL;
}

INFER(slice) {
  UNUSED_INFER_ARGS;
  const moec_attrs_SLICE *a = attrs;
  moec_type_info t = moec_type_get(m, in[0]);
  if (a->start.n != t.rank || a->size.n != t.rank || a->step.n != t.rank)
    return BAD("expected start, size and step of %u entries", t.rank);
  MOEC_TRY(check_shape(m, a->size));
  for (uint32_t i = 0; i < t.rank; i++) {
    int64_t start, size, have;
    if (a->step.v[i] < 1) return BAD("step: expected at least 1, got %lld", (long long)a->step.v[i]);
    if (!moec_dim_known(a->start.v[i])) return BAD("start of axis %u is unknown", i);
    if (!moec_dim_is_const(m, a->start.v[i], &start) || !moec_dim_is_const(m, a->size.v[i], &size)) continue;
    if (start < 0) return BAD("start of axis %u is negative: %lld", i, (long long)start);
    if (moec_dim_is_const(m, t.dims[i], &have) && size > 0 &&
        (start >= have || (size - 1) > (have - 1 - start) / a->step.v[i]))
      return BAD("axis %u of %s has no %lld elements from %lld on", i, moec_type_text(m, in[0]), (long long)size,
                 (long long)start);
  }
  out[0] = moec_type_make(m, t.dtype, t.rank, a->size.v);
  return NULL;
}

INFER(pad) {
  UNUSED_INFER_ARGS;
  const moec_attrs_PAD *a = attrs;
  moec_type_info t = moec_type_get(m, in[0]);
  if (a->lo.n != t.rank || a->hi.n != t.rank) return BAD("expected lo and hi of %u entries", t.rank);
  if (in[1].i != moec_type_scalar(m, t.dtype).i) return BAD("expected a scalar of the operand's dtype");
  moec_dim dims[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < t.rank; i++) {
    int64_t lo, hi;
    if ((moec_dim_is_const(m, a->lo.v[i], &lo) && lo < 0) || (moec_dim_is_const(m, a->hi.v[i], &hi) && hi < 0))
      return BAD("expected lo and hi of at least 0 at axis %u", i);
    dims[i] = moec_dim_add(m, t.dims[i], moec_dim_add(m, a->lo.v[i], a->hi.v[i]));
    if (!moec_dim_known(dims[i])) return BAD("size of axis %u is unknown", i);
  }
  out[0] = moec_type_make(m, t.dtype, t.rank, dims);
  return NULL;
}

INFER(concat) {
  UNUSED_INFER_ARGS;
  int64_t axis = ((const moec_attrs_CONCAT *)attrs)->axis;
  moec_type_info t = moec_type_get(m, in[0]);
  MOEC_TRY(moec_check_axis(axis, t.rank, "axis"));
  moec_dim dims[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < t.rank; i++) dims[i] = t.dims[i];
  for (uint32_t k = 1; k < n_in; k++) {
    moec_type_info u = moec_type_get(m, in[k]);
    if (u.dtype != t.dtype || u.rank != t.rank)
      return BAD("expected operands like %s, got %s", moec_type_text(m, in[0]), moec_type_text(m, in[k]));
    for (uint32_t i = 0; i < t.rank; i++)
      if ((int64_t)i != axis) MOEC_TRY(moec_check_dims(m, t.dims[i], u.dims[i], "concat"));
    dims[axis] = moec_dim_add(m, dims[axis], u.dims[axis]);
  }
  if (!moec_dim_known(dims[axis])) return BAD("size of axis %lld is unknown", (long long)axis);
  out[0] = moec_type_make(m, t.dtype, t.rank, dims);
  return NULL;
}

INFER(reverse) {
  UNUSED_INFER_ARGS;
  MOEC_TRY(moec_check_axes(((const moec_attrs_REVERSE *)attrs)->axes, moec_type_get(m, in[0]).rank, "axes"));
  out[0] = in[0];
  return NULL;
}
