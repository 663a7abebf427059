/* Importers of reductions. */
#include "frontend/ops.h"

moec_value moec_reduce_axes(moec_builder *b, moec_op op, moec_value x, moec_ints axes, bool keep) {
  if (axes.n == 0 || b->error) return x;
  moec_type_info t = moec_b_ty(b, x);
  moec_attrs_REDUCE_SUM a = {.axes = axes}; /* the four structs are alike */
  moec_value y = moec_b_op(b, op, &a, 1, &x, 1);
  if (!keep) return y;
  moec_dim dims[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < t.rank; i++) dims[i] = t.dims[i];
  for (uint32_t i = 0; i < axes.n; i++) dims[axes.v[i]] = moec_dim_const(b->g->m, 1);
  return moec_b_reshape(b, y, t.rank, dims);
}

/* How many elements go into one result, as a scalar of |dtype|. */
static moec_value count_of(moec_builder *b, moec_value x, moec_ints axes, moec_dtype dtype) {
  moec_dim count = moec_dim_const(b->g->m, 1);
  int64_t v;
  for (uint32_t i = 0; i < axes.n; i++)
    count = moec_dim_mul(b->g->m, count, moec_b_dim(b, x, axes.v[i]));
  if (!moec_dim_is_const(b->g->m, count, &v)) return moec_b_cast(b, moec_b_size(b, count), dtype);
  return moec_dtype_is_float(dtype) ? moec_b_scalar_f(b, dtype, (double)v)
                                    : moec_b_scalar_i(b, dtype, v);
}

moec_value moec_mean_axes(moec_builder *b, moec_value x, moec_ints axes, bool keep) {
  moec_value count = count_of(b, x, axes, moec_b_ty(b, x).dtype);
  return moec_b_binary(b, MOEC_OP_DIV, moec_reduce_axes(b, MOEC_OP_REDUCE_SUM, x, axes, keep),
                       count);
}

/* The operand and what to reduce. */
typedef struct reduction {
  moec_value x;
  moec_dtype dtype,
      inner; /* of the operand; of sums on the way, which must not be rounded to a narrow type */
  moec_ints axes;
  bool keep;
} reduction;

/* Axes are an attribute before opset 13 (ReduceSum) and 18 (the others), an operand since then. No axes mean all
 * of them, or none with noop_with_empty_axes. */
static moec_status *read_reduction(moec_onnx *n, reduction *out) {
  bool given;
  MOEC_TRY(moec_onnx_operands(n, 1, 1, &out->x));
  moec_type_info t = moec_b_ty(n->b, out->x);
  MOEC_TRY(moec_onnx_axes(n, "axes", 1, t.rank, &out->axes, &given));
  out->keep = moec_attr_int(n, "keepdims", 1) != 0;
  out->dtype = t.dtype;
  out->inner = moec_inner(t.dtype);
  if (out->axes.n || moec_attr_int(n, "noop_with_empty_axes", 0)) return NULL;
  int64_t *all = MOEC_NEW_ARRAY(n->m->arena, int64_t, MOEC_MAX_RANK);
  for (uint32_t i = 0; i < t.rank; i++) all[i] = i;
  out->axes = (moec_ints){t.rank, all};
  return NULL;
}

IMPORTER(reduce) {
  reduction r;
  MOEC_TRY(read_reduction(n, &r));
  return moec_onnx_result(n, moec_reduce_axes(n->b, n->op, r.x, r.axes, r.keep));
}

/* Integers keep integer arithmetic: the quotient is truncated. */
IMPORTER(reduce_mean) {
  reduction r;
  MOEC_TRY(read_reduction(n, &r));
  moec_dtype inner = moec_dtype_is_float(r.dtype) ? r.inner : r.dtype;
  moec_value y = moec_mean_axes(n->b, moec_b_cast(n->b, r.x, inner), r.axes, r.keep);
  return moec_onnx_result(n, moec_b_cast(n->b, y, r.dtype));
}

static moec_value sum_square(moec_onnx *n, const reduction *r, moec_dtype inner) {
  moec_value x = moec_b_cast(n->b, r->x, inner);
  return moec_reduce_axes(n->b, MOEC_OP_REDUCE_SUM, moec_b_binary(n->b, MOEC_OP_MUL, x, x), r->axes,
                          r->keep);
}

IMPORTER(reduce_sum_square) {
  reduction r;
  MOEC_TRY(read_reduction(n, &r));
  moec_dtype inner = moec_dtype_is_float(r.dtype) ? r.inner : r.dtype;
  return moec_onnx_result(n, moec_b_cast(n->b, sum_square(n, &r, inner), r.dtype));
}

IMPORTER(reduce_l1) {
  reduction r;
  MOEC_TRY(read_reduction(n, &r));
  return moec_onnx_result(
      n, moec_reduce_axes(n->b, MOEC_OP_REDUCE_SUM, moec_b_unary(n->b, MOEC_OP_ABS, r.x), r.axes,
                          r.keep));
}

IMPORTER(reduce_l2) {
  reduction r;
  MOEC_TRY(read_reduction(n, &r));
  moec_value y = moec_b_unary(n->b, MOEC_OP_SQRT, sum_square(n, &r, r.inner));
  return moec_onnx_result(n, moec_b_cast(n->b, y, r.dtype));
}

IMPORTER(reduce_log_sum) {
  reduction r;
  MOEC_TRY(read_reduction(n, &r));
  moec_value sum = moec_reduce_axes(n->b, MOEC_OP_REDUCE_SUM, moec_b_cast(n->b, r.x, r.inner), r.axes, r.keep);
  return moec_onnx_result(n, moec_b_cast(n->b, moec_b_unary(n->b, MOEC_OP_LOG, sum), r.dtype));
}

/* The maximum is taken out, so that no exponential overflows; not where it is infinite, since inf - inf is NaN. */
IMPORTER(reduce_log_sum_exp) {
  moec_builder *b = n->b;
  reduction r;
  MOEC_TRY(read_reduction(n, &r));
  if (r.axes.n == 0) return moec_onnx_result(n, r.x);
  moec_value x = moec_b_cast(b, r.x, r.inner);
  moec_value top = moec_reduce_axes(b, MOEC_OP_REDUCE_MAX, x, r.axes, true);
  top = moec_b_select(b, moec_b_unary(b, MOEC_OP_ISINF, top), moec_like(b, top, 0), top);
  moec_value e = moec_b_unary(b, MOEC_OP_EXP, moec_b_binary(b, MOEC_OP_SUB, x, top));
  moec_value sum = moec_reduce_axes(b, MOEC_OP_REDUCE_SUM, e, r.axes, r.keep);
  moec_type_info t = moec_b_ty(b, sum);
  top = moec_b_reshape(b, top, t.rank, t.dims);
  moec_value y = moec_b_binary(b, MOEC_OP_ADD, moec_b_unary(b, MOEC_OP_LOG, sum), top);
  return moec_onnx_result(n, moec_b_cast(b, y, r.dtype));
}
