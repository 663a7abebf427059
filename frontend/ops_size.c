/* Importers: sizes, constants and what is made from them; casts and identities. */
#include <math.h>
#include <string.h>

#include "frontend/import.h"

IMPORTER(identity) {
  const moec_entry *e = moec_onnx_entry(n, 0);
  if (e && e->sequence) return moec_onnx_unsupported(n, "operand 0 is a sequence");
  return moec_onnx_result(n, moec_onnx_in(n, 0));
}

/* At inference dropout is the identity; a used mask is all true. */
IMPORTER(dropout) {
  moec_value x = moec_onnx_in(n, 0);
  if (moec_onnx_has(n, 2)) return moec_onnx_unsupported(n, "training_mode");
  if (n->p->n_output > 1 && !n->b->error) {
    moec_type_info t = moec_b_ty(n->b, x);
    moec_onnx_out(n, 1, moec_b_fill(n->b, moec_b_scalar_i(n->b, MOEC_BOOL, 1), t.rank, t.dims));
  }
  return moec_onnx_result(n, x);
}

IMPORTER(cast) {
  int64_t to = moec_attr_int(n, "to", 0);
  moec_dtype t = moec_dtype_from_onnx((int)to);
  if (!t) return moec_onnx_unsupported(n, "cast to element type %lld", (long long)to);
  return moec_onnx_result(n, moec_b_cast(n->b, moec_onnx_in(n, 0), t));
}

IMPORTER(cast_like) {
  moec_dtype t = moec_onnx_dtype(n, 1);
  if (!t) return moec_onnx_bad(n, "operand 1 is missing");
  return moec_onnx_result(n, moec_b_cast(n->b, moec_onnx_in(n, 0), t));
}

IMPORTER(where) {
  moec_value c = moec_onnx_in(n, 0), x = moec_onnx_in(n, 1), y = moec_onnx_in(n, 2);
  return moec_onnx_result(n, moec_b_select(n->b, c, x, y));
}

IMPORTER(shape) {
  moec_value x = moec_onnx_in(n, 0);
  MOEC_TRY(moec_builder_end(n->b));
  moec_type_info t = moec_b_ty(n->b, x);
  if (!x.i) return moec_onnx_bad(n, "operand 0 is missing");
  int64_t start = moec_attr_int(n, "start", 0), end = moec_attr_int(n, "end", t.rank), r = t.rank;
  start = start < -r ? 0 : start < 0 ? start + r : start > r ? r : start;
  end = end < -r ? 0 : end < 0 ? end + r : end > r ? r : end;
  if (end < start) end = start;
  moec_onnx_out_content(n, 0, MOEC_I64, 1, (uint32_t)(end - start), end > start ? t.dims + start : NULL);
  return NULL;
}

IMPORTER(size) {
  moec_value x = moec_onnx_in(n, 0);
  MOEC_TRY(moec_builder_end(n->b));
  moec_dim d = moec_type_numel(n->m, moec_value_get(n->b->g, x)->type);
  moec_onnx_out_content(n, 0, MOEC_I64, 0, 1, &d);
  return NULL;
}

/* ---- Constant ----------------------------------------------------------------------------- */

enum { MAX_CONTENT = 256 }; /* longer lists are data */

static moec_status *give_ints(moec_onnx *n, uint32_t rank, size_t count, const int64_t *v) {
  moec_dim shape = moec_dim_const(n->m, (int64_t)count), d[MAX_CONTENT];
  if (count > MAX_CONTENT)
    return moec_onnx_result(n, moec_b_const(n->b, moec_type_make(n->m, MOEC_I64, rank, &shape), v, count * sizeof *v));
  for (size_t i = 0; i < count; i++) d[i] = moec_dim_const(n->m, v[i]);
  moec_onnx_out_content(n, 0, MOEC_I64, rank, (uint32_t)count, d);
  return NULL;
}

static moec_status *give_floats(moec_onnx *n, uint32_t rank, size_t count, const float *v) {
  moec_dim shape = moec_dim_const(n->m, (int64_t)count);
  return moec_onnx_result(n, moec_b_const(n->b, moec_type_make(n->m, MOEC_F32, rank, &shape), v, count * sizeof *v));
}

IMPORTER(constant) {
  if (n->p->n_attribute != 1) return moec_onnx_bad(n, "expected one attribute, got %zu", n->p->n_attribute);
  const Onnx__AttributeProto *a = moec_onnx_attr(n, n->p->attribute[0]->name);
  if (strcmp(a->name, "value_int") == 0) return give_ints(n, 0, 1, &a->i);
  if (strcmp(a->name, "value_ints") == 0) return give_ints(n, 1, a->n_ints, a->ints);
  if (strcmp(a->name, "value_float") == 0) return give_floats(n, 0, 1, &a->f);
  if (strcmp(a->name, "value_floats") == 0) return give_floats(n, 1, a->n_floats, a->floats);
  if (strcmp(a->name, "value") != 0 || !a->t) return moec_onnx_unsupported(n, "attribute \"%s\"", a->name);
  moec_tensor t;
  MOEC_TRY(moec_onnx_tensor(n->x, a->t, &t, NULL));
  int64_t count = moec_tensor_numel(&t);
  if (t.rank <= 1 && count <= MAX_CONTENT && !moec_dtype_is_float(t.dtype)) {
    moec_dim d[MAX_CONTENT];
    for (int64_t i = 0; i < count; i++) d[i] = moec_dim_const(n->m, moec_load_i64(t.dtype, t.data, (size_t)i));
    moec_onnx_out_content(n, 0, t.dtype, t.rank, (uint32_t)count, d);
    return NULL;
  }
  return moec_onnx_result(n, moec_onnx_const(n, a->t));
}

/* ---- fills and ranges --------------------------------------------------------------------- */

static moec_status *check_rank(moec_onnx *n, size_t rank) {
  return rank <= MOEC_MAX_RANK ? NULL : moec_onnx_bad(n, "expected rank at most %d, got %zu", MOEC_MAX_RANK, rank);
}

IMPORTER(constant_of_shape) {
  moec_dims shape;
  MOEC_TRY(moec_onnx_content(n, 0, &shape));
  MOEC_TRY(check_rank(n, shape.n));
  const Onnx__AttributeProto *a = moec_onnx_attr(n, "value");
  moec_value v;
  if (a && a->t) {
    v = moec_onnx_const(n, a->t);
    if (!n->b->error && !moec_dim_is(n->m, moec_type_numel(n->m, moec_value_get(n->b->g, v)->type), 1))
      return moec_onnx_bad(n, "value: expected one element");
    v = moec_b_reshape(n->b, v, 0, NULL);
  } else {
    v = moec_b_scalar_f(n->b, MOEC_F32, 0);
  }
  return moec_onnx_result(n, moec_b_fill(n->b, v, shape.n, shape.v));
}

/* Integers: start + i*delta with sizes known as dims. */
static moec_status *int_range(moec_onnx *n, moec_dtype t) {
  moec_dims start, limit;
  moec_ints delta;
  MOEC_TRY(moec_onnx_content(n, 0, &start));
  MOEC_TRY(moec_onnx_content(n, 1, &limit));
  MOEC_TRY(moec_onnx_ints(n, 2, &delta));
  if (start.n != 1 || limit.n != 1 || delta.n != 1 || delta.v[0] == 0 || delta.v[0] == INT64_MIN)
    return moec_onnx_bad(n, "expected three scalars and a step that is not 0");
  moec_dim span = moec_dim_sub(n->m, limit.v[0], start.v[0]), count;
  if (delta.v[0] > 0) count = moec_dim_ceildiv(n->m, span, moec_dim_const(n->m, delta.v[0]));
  else
    count =
        moec_dim_ceildiv(n->m, moec_dim_sub(n->m, moec_dim_const(n->m, 0), span), moec_dim_const(n->m, -delta.v[0]));
  count = moec_dim_max(n->m, count, moec_dim_const(n->m, 0));
  moec_value v = moec_b_iota(n->b, t, 1, &count, 0);
  if (delta.v[0] != 1) v = moec_b_binary(n->b, MOEC_OP_MUL, v, moec_b_scalar_i(n->b, t, delta.v[0]));
  if (!moec_dim_is(n->m, start.v[0], 0))
    v = moec_b_binary(n->b, MOEC_OP_ADD, v, moec_b_cast(n->b, moec_b_size(n->b, start.v[0]), t));
  return moec_onnx_result(n, v);
}

/* The value of a float scalar that is constant in the file. */
static bool float_scalar(moec_onnx *n, uint32_t i, double *out) {
  moec_value v = moec_onnx_in(n, i);
  if (n->b->error || moec_def_op(n->b->g, v) != MOEC_OP_CONST) return false;
  const moec_const *c = MOEC_ATTRS(n->b->g, moec_def(n->b->g, v), CONST)->data;
  if (c->size != moec_dtype_get(moec_type_get(n->m, c->type).dtype)->bytes) return false;
  *out = moec_load_f64(moec_type_get(n->m, c->type).dtype, c->bytes, 0);
  return true;
}

IMPORTER(range) {
  double start, limit, delta;
  moec_dtype t = moec_onnx_dtype(n, 0);
  if (!moec_dtype_is_float(t)) return int_range(n, t);
  if (!float_scalar(n, 0, &start) || !float_scalar(n, 1, &limit) || !float_scalar(n, 2, &delta) || delta == 0)
    return moec_onnx_unsupported(n, "a range of floats must have constant ends");
  double steps = (limit - start) / delta;
  if (!(steps < 1e9)) return moec_onnx_bad(n, "expected a range of at most 10^9 elements, got %g", steps);
  int64_t count = steps > 0 ? (int64_t)ceil(steps) : 0;
  moec_dim d = moec_dim_const(n->m, count);
  moec_value v = moec_b_binary(n->b, MOEC_OP_MUL, moec_b_iota(n->b, t, 1, &d, 0), moec_b_scalar_f(n->b, t, delta));
  return moec_onnx_result(n, moec_b_binary(n->b, MOEC_OP_ADD, v, moec_b_scalar_f(n->b, t, start)));
}

IMPORTER(eye_like) {
  moec_value x = moec_onnx_in(n, 0);
  MOEC_TRY(moec_builder_end(n->b));
  moec_type_info t = moec_b_ty(n->b, x);
  if (t.rank != 2) return moec_onnx_bad(n, "expected rank 2, got %u", t.rank);
  moec_dtype to = moec_dtype_from_onnx((int)moec_attr_int(n, "dtype", moec_dtype_get(t.dtype)->onnx));
  if (!to) return moec_onnx_unsupported(n, "dtype");
  moec_value row = moec_b_iota(n->b, MOEC_I64, 2, t.dims, 0), col = moec_b_iota(n->b, MOEC_I64, 2, t.dims, 1);
  row = moec_b_binary(n->b, MOEC_OP_ADD, row, moec_b_scalar_i(n->b, MOEC_I64, moec_attr_int(n, "k", 0)));
  return moec_onnx_result(n, moec_b_cast(n->b, moec_b_binary(n->b, MOEC_OP_EQ, row, col), to));
}

IMPORTER(one_hot) {
  moec_dims depth;
  moec_value i = moec_onnx_in(n, 0), values = moec_onnx_in(n, 2);
  MOEC_TRY(moec_onnx_content(n, 1, &depth));
  MOEC_TRY(moec_builder_end(n->b));
  moec_type_info t = moec_b_ty(n->b, i);
  uint32_t axis;
  if (depth.n != 1) return moec_onnx_bad(n, "depth: expected one number");
  MOEC_TRY(check_rank(n, t.rank + 1));
  MOEC_TRY(moec_onnx_axis(n, moec_attr_int(n, "axis", -1), t.rank + 1, &axis));
  i = moec_b_unsqueeze(n->b, moec_b_cast(n->b, i, MOEC_I64), axis);
  moec_dim dims[MOEC_MAX_RANK + 1];
  for (uint32_t k = 0, j = 0; k <= t.rank; k++) dims[k] = k == axis ? depth.v[0] : t.dims[j++];
  moec_value size = moec_b_size(n->b, depth.v[0]), zero = moec_b_scalar_i(n->b, MOEC_I64, 0);
  i = moec_b_select(n->b, moec_b_binary(n->b, MOEC_OP_LT, i, zero), moec_b_binary(n->b, MOEC_OP_ADD, i, size), i);
  moec_value hit = moec_b_binary(n->b, MOEC_OP_EQ, i, moec_b_iota(n->b, MOEC_I64, t.rank + 1, dims, axis));
  moec_value off =
      moec_b_squeeze(n->b, moec_b_slice(n->b, values, 0, moec_dim_const(n->m, 0), moec_dim_const(n->m, 1)), 0);
  moec_value on =
      moec_b_squeeze(n->b, moec_b_slice(n->b, values, 0, moec_dim_const(n->m, 1), moec_dim_const(n->m, 1)), 0);
  return moec_onnx_result(n, moec_b_select(n->b, hit, on, off));
}

IMPORTER(trilu) {
  moec_value x = moec_onnx_in(n, 0);
  MOEC_TRY(moec_builder_end(n->b));
  moec_type_info t = moec_b_ty(n->b, x);
  moec_ints k = {0, NULL};
  if (moec_onnx_has(n, 1)) MOEC_TRY(moec_onnx_ints(n, 1, &k));
  if (t.rank < 2) return moec_onnx_bad(n, "expected rank at least 2, got %u", t.rank);
  const moec_dim *last = t.dims + t.rank - 2;
  moec_value row = moec_b_iota(n->b, MOEC_I64, 2, last, 0), col = moec_b_iota(n->b, MOEC_I64, 2, last, 1);
  if (k.n && k.v[0]) row = moec_b_binary(n->b, MOEC_OP_ADD, row, moec_b_scalar_i(n->b, MOEC_I64, k.v[0]));
  moec_value keep = moec_b_binary(n->b, moec_attr_int(n, "upper", 1) ? MOEC_OP_GE : MOEC_OP_LE, col, row);
  if (t.dtype == MOEC_BOOL) return moec_onnx_result(n, moec_b_binary(n->b, MOEC_OP_AND, x, keep));
  moec_value zero =
      moec_dtype_is_float(t.dtype) ? moec_b_scalar_f(n->b, t.dtype, 0) : moec_b_scalar_i(n->b, t.dtype, 0);
  return moec_onnx_result(n, moec_b_select(n->b, keep, x, zero));
}
