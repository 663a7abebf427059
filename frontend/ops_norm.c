/* Importers of softmax and of normalisation. */
#include "frontend/ops.h"

/* ---- softmax ------------------------------------------------------------------------------ */

/* The operand and the one axis to work on. Before opset 13 all axes from |axis| on count as one. */
typedef struct soft {
  moec_value x;
  moec_type_info type; /* of the result */
  uint32_t axis;
} soft;

static moec_status *read_soft(moec_onnx *n, soft *out) {
  MOEC_TRY(moec_onnx_operands(n, 1, 1, &out->x));
  out->type = moec_b_ty(n->b, out->x);
  uint32_t rank = out->type.rank;
  MOEC_TRY(moec_onnx_axis(n, moec_attr_int(n, "axis", n->opset < 13 ? 1 : -1), rank, &out->axis));
  if (n->opset >= 13 || out->axis + 1 == rank) return NULL;
  moec_dim dims[2] = {moec_dim_const(n->m, 1), moec_dim_const(n->m, 1)};
  for (uint32_t i = 0; i < rank; i++)
    dims[i >= out->axis] = moec_dim_mul(n->m, dims[i >= out->axis], out->type.dims[i]);
  out->x = moec_b_reshape(n->b, out->x, 2, dims);
  out->axis = 1;
  return NULL;
}

IMPORTER(softmax) {
  soft s;
  MOEC_TRY(read_soft(n, &s));
  moec_attrs_SOFTMAX a = {.axis = s.axis};
  moec_value y = moec_b_op(n->b, MOEC_OP_SOFTMAX, &a, 1, &s.x, 1);
  return moec_onnx_result(n, moec_b_reshape(n->b, y, s.type.rank, s.type.dims));
}

IMPORTER(log_softmax) {
  moec_builder *b = n->b;
  soft s;
  MOEC_TRY(read_soft(n, &s));
  moec_value x = moec_b_cast(b, s.x, moec_inner(s.type.dtype));
  x = moec_b_binary(b, MOEC_OP_SUB, x, moec_b_reduce(b, MOEC_OP_REDUCE_MAX, x, s.axis, true));
  moec_value sum =
      moec_b_reduce(b, MOEC_OP_REDUCE_SUM, moec_b_unary(b, MOEC_OP_EXP, x), s.axis, true);
  moec_value y = moec_b_cast(b, moec_b_binary(b, MOEC_OP_SUB, x, moec_b_unary(b, MOEC_OP_LOG, sum)),
                             s.type.dtype);
  return moec_onnx_result(n, moec_b_reshape(b, y, s.type.rank, s.type.dims));
}

/* ---- rms normalisation -------------------------------------------------------------------- */

/* Whether scale's shape is that of the axes from |axis| on of x. */
static bool covers(moec_type_info x, moec_type_info scale, uint32_t axis) {
  if (scale.rank != x.rank - axis) return false;
  for (uint32_t i = 0; i < scale.rank; i++)
    if (!moec_dim_eq(scale.dims[i], x.dims[axis + i])) return false;
  return true;
}

/* Normalises over the axes from |axis| on, which are one axis for the composite. A scale of another dtype or shape
 * is multiplied afterwards: the composite has a vector of x's dtype. *out_inv, unless NULL: the factor, f32. */
static moec_value rms_norm(moec_onnx *n, moec_value x, moec_value scale, uint32_t axis, double eps,
                           moec_value *out_inv) {
  moec_builder *b = n->b;
  moec_type_info t = moec_b_ty(b, x), s = moec_b_ty(b, scale);
  moec_dim dims[MOEC_MAX_RANK];
  bool inside = s.dtype == t.dtype && covers(t, s, axis);
  for (uint32_t i = 0; i < t.rank; i++) dims[i] = t.dims[i];
  for (uint32_t i = axis + 1; i < t.rank; i++)
    dims[axis] = moec_dim_mul(n->m, dims[axis], t.dims[i]);
  if (s.dtype != t.dtype) x = moec_b_cast(b, x, moec_inner(t.dtype));
  moec_value in[2] = {moec_b_reshape(b, x, axis + 1, dims),
                      inside ? moec_b_reshape(b, scale, 1, &dims[axis]) : (moec_value){0}};
  moec_attrs_RMS_NORM a = {.eps = eps};
  moec_value y = moec_b_op(b, MOEC_OP_RMS_NORM, &a, inside ? 2 : 1, in, out_inv ? 2 : 1);
  if (b->error) return y;
  for (uint32_t i = axis; i < t.rank; i++) dims[i] = moec_dim_const(n->m, 1);
  if (out_inv) *out_inv = moec_b_reshape(b, moec_out(b->g, moec_def(b->g, y), 1), t.rank, dims);
  y = moec_b_reshape(b, y, t.rank, t.dims);
  return inside ? y : moec_b_binary(b, MOEC_OP_MUL, moec_b_cast(b, y, s.dtype), scale);
}

IMPORTER(rms_normalization) {
  moec_value in[2], inv = {0};
  uint32_t axis;
  bool wants = moec_onnx_wants(n, 1);
  MOEC_TRY(moec_onnx_operands(n, 2, 2, in));
  MOEC_TRY(moec_onnx_axis(n, moec_attr_int(n, "axis", -1), moec_b_ty(n->b, in[0]).rank, &axis));
  moec_value y =
      rms_norm(n, in[0], in[1], axis, moec_attr_float(n, "epsilon", 1e-5f), wants ? &inv : NULL);
  moec_onnx_out(n, 1, inv);
  return moec_onnx_result(n, y);
}

/* Results: the norm, mean, inverse deviation, and the sum that is the next residual. */
IMPORTER(skip_rms_normalization) {
  moec_value in[4], inv = {0};
  if (moec_onnx_wants(n, 1)) return moec_onnx_unsupported(n, "result 1 (mean) is used");
  bool wants = moec_onnx_wants(n, 2);
  MOEC_TRY(moec_onnx_operands(n, 3, 4, in));
  uint32_t rank = moec_b_ty(n->b, in[0]).rank;
  if (rank < 1) return moec_onnx_bad(n, "operand 0: expected rank at least 1, got 0");
  moec_value sum = moec_b_binary(n->b, MOEC_OP_ADD, in[0], in[1]);
  if (in[3].i) sum = moec_b_binary(n->b, MOEC_OP_ADD, sum, in[3]);
  MOEC_TRY(moec_builder_end(n->b));
  rank = moec_b_ty(n->b, sum).rank;
  moec_value y =
      rms_norm(n, sum, in[2], rank - 1, moec_attr_float(n, "epsilon", 1e-12f), wants ? &inv : NULL);
  moec_onnx_out(n, 2, inv);
  moec_onnx_out(n, 3, sum);
  return moec_onnx_result(n, y);
}

/* ---- layer normalisation ------------------------------------------------------------------ */

/* Mean and deviation are computed in f32 for narrower types, and handed out in the type that stash_type names. */
IMPORTER(layer_normalization) {
  moec_builder *b = n->b;
  moec_value in[3];
  uint32_t axis;
  int64_t axes[MOEC_MAX_RANK];
  int64_t code = moec_attr_int(n, "stash_type", 1);
  moec_dtype stash = moec_dtype_from_onnx(code > 0 && code < 64 ? (int)code : 0);
  if (!moec_dtype_is_float(stash))
    return moec_onnx_unsupported(n, "stash_type: expected a float type, got %lld", (long long)code);
  MOEC_TRY(moec_onnx_operands(n, 2, 3, in));
  moec_type_info t = moec_b_ty(b, in[0]);
  MOEC_TRY(moec_onnx_axis(n, moec_attr_int(n, "axis", -1), t.rank, &axis));
  for (uint32_t i = axis; i < t.rank; i++) axes[i - axis] = i;
  moec_ints over = {t.rank - axis, axes};
  moec_value x = moec_b_cast(b, in[0], moec_inner(t.dtype));
  moec_value mean = moec_mean_axes(b, x, over, true);
  moec_value d = moec_b_binary(b, MOEC_OP_SUB, x, mean);
  moec_value var = moec_mean_axes(b, moec_b_binary(b, MOEC_OP_MUL, d, d), over, true);
  moec_value inv = moec_b_unary(
      b, MOEC_OP_RSQRT, moec_with(b, MOEC_OP_ADD, var, moec_attr_float(n, "epsilon", 1e-5f)));
  moec_value y = moec_b_cast(b, moec_b_binary(b, MOEC_OP_MUL, d, inv), t.dtype);
  y = moec_b_binary(b, MOEC_OP_MUL, y, in[1]);
  if (in[2].i) y = moec_b_binary(b, MOEC_OP_ADD, y, in[2]);
  if (moec_onnx_wants(n, 1)) moec_onnx_out(n, 1, moec_b_cast(b, mean, stash));
  if (moec_onnx_wants(n, 2)) moec_onnx_out(n, 2, moec_b_cast(b, inv, stash));
  return moec_onnx_result(n, y);
}
