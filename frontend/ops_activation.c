/* Importers of the rarer activations, and of elementwise operators with a rule of their own. */
#include <math.h>

#include "frontend/ops.h"

/* |x| where it is above |limit|, |y| elsewhere. */
static moec_value above(moec_builder *b, moec_value x, double limit, moec_value y) {
  return moec_b_select(b, moec_with(b, MOEC_OP_GT, x, limit), x, y);
}

IMPORTER(selu) {
  moec_builder *b = n->b;
  moec_value x;
  MOEC_TRY(moec_onnx_operands(n, 1, 1, &x));
  double alpha = moec_attr_float(n, "alpha", 1.67326319217681884765625),
         gamma = moec_attr_float(n, "gamma", 1.05070102214813232421875);
  moec_value low = moec_with(b, MOEC_OP_MUL, moec_b_unary(b, MOEC_OP_EXPM1, x), alpha);
  return moec_onnx_result(n, moec_with(b, MOEC_OP_MUL, above(b, x, 0, low), gamma));
}

/* max(0, x) + min(0, alpha * (exp(x/alpha) - 1)) */
IMPORTER(celu) {
  moec_builder *b = n->b;
  moec_value x;
  double alpha = moec_attr_float(n, "alpha", 1);
  MOEC_TRY(moec_onnx_operands(n, 1, 1, &x));
  moec_value low =
      moec_with(b, MOEC_OP_MUL, moec_b_unary(b, MOEC_OP_EXPM1, moec_with(b, MOEC_OP_DIV, x, alpha)), alpha);
  return moec_onnx_result(
      n, moec_b_binary(b, MOEC_OP_ADD, moec_with(b, MOEC_OP_MAX, x, 0), moec_with(b, MOEC_OP_MIN, low, 0)));
}

IMPORTER(thresholded_relu) {
  moec_value x;
  MOEC_TRY(moec_onnx_operands(n, 1, 1, &x));
  return moec_onnx_result(n, above(n->b, x, moec_attr_float(n, "alpha", 1), moec_like(n->b, x, 0)));
}

IMPORTER(softsign) {
  moec_value x;
  MOEC_TRY(moec_onnx_operands(n, 1, 1, &x));
  moec_value size = moec_with(n->b, MOEC_OP_ADD, moec_b_unary(n->b, MOEC_OP_ABS, x), 1);
  return moec_onnx_result(n, moec_b_binary(n->b, MOEC_OP_DIV, x, size));
}

/* x + bias below -lambd, x - bias above lambd, 0 between. */
IMPORTER(shrink) {
  moec_builder *b = n->b;
  moec_value x;
  double bias = moec_attr_float(n, "bias", 0), lambd = moec_attr_float(n, "lambd", 0.5);
  MOEC_TRY(moec_onnx_operands(n, 1, 1, &x));
  moec_dtype t = moec_b_ty(b, x).dtype;
  moec_value wide = moec_b_cast(b, x, moec_inner(t));
  moec_value high = moec_b_select(b, moec_with(b, MOEC_OP_GT, wide, lambd), moec_with(b, MOEC_OP_SUB, wide, bias),
                                  moec_like(b, wide, 0));
  moec_value y = moec_b_select(b, moec_with(b, MOEC_OP_LT, wide, -lambd), moec_with(b, MOEC_OP_ADD, wide, bias), high);
  return moec_onnx_result(n, moec_b_cast(b, y, t));
}

/* x * tanh(log(1 + exp(x))); the logarithm as in softplus. */
IMPORTER(mish) {
  moec_builder *b = n->b;
  moec_value x;
  MOEC_TRY(moec_onnx_operands(n, 1, 1, &x));
  moec_value e = moec_b_unary(b, MOEC_OP_EXP, moec_b_unary(b, MOEC_OP_NEG, moec_b_unary(b, MOEC_OP_ABS, x)));
  moec_value plus = moec_b_binary(b, MOEC_OP_ADD, moec_with(b, MOEC_OP_MAX, x, 0), moec_b_unary(b, MOEC_OP_LOG1P, e));
  return moec_onnx_result(n, moec_b_binary(b, MOEC_OP_MUL, x, moec_b_unary(b, MOEC_OP_TANH, plus)));
}

IMPORTER(is_inf) {
  moec_builder *b = n->b;
  moec_value x;
  bool negative = moec_attr_int(n, "detect_negative", 1) != 0, positive = moec_attr_int(n, "detect_positive", 1) != 0;
  MOEC_TRY(moec_onnx_operands(n, 1, 1, &x));
  if (negative && positive) return moec_onnx_result(n, moec_b_unary(b, MOEC_OP_ISINF, x));
  if (negative || positive) return moec_onnx_result(n, moec_with(b, MOEC_OP_EQ, x, negative ? -INFINITY : INFINITY));
  moec_type_info t = moec_b_ty(b, x);
  return moec_onnx_result(n, moec_b_fill(b, moec_b_scalar_i(b, MOEC_BOOL, 0), t.rank, t.dims));
}

IMPORTER(mean) {
  moec_value x;
  uint32_t count = moec_onnx_n_in(n);
  MOEC_TRY(moec_onnx_operands(n, count ? count : 1, 1, &x));
  for (uint32_t i = 1; i < count; i++) x = moec_b_binary(n->b, MOEC_OP_ADD, x, moec_onnx_in(n, i));
  return moec_onnx_result(n, moec_with(n->b, MOEC_OP_DIV, x, count));
}

/* Of integers; Not is that of bools. */
IMPORTER(bitwise_not) {
  moec_value x;
  MOEC_TRY(moec_onnx_operands(n, 1, 1, &x));
  moec_dtype t = moec_b_ty(n->b, x).dtype;
  if (moec_dtype_is_float(t) || t == MOEC_BOOL)
    return moec_onnx_bad(n, "operand 0: expected integers, got %s", moec_onnx_text(n, x));
  return moec_onnx_result(n, moec_b_binary(n->b, MOEC_OP_XOR, x, moec_b_scalar_i(n->b, t, -1)));
}

/* 1 at the first of the largest elements of an axis, 0 elsewhere. Before opset 13 all axes from |axis| on count as one.
 * */
IMPORTER(hardmax) {
  moec_builder *b = n->b;
  moec_value x;
  uint32_t axis;
  MOEC_TRY(moec_onnx_operands(n, 1, 1, &x));
  moec_type_info whole = moec_b_ty(b, x);
  MOEC_TRY(moec_onnx_axis(n, moec_attr_int(n, "axis", n->opset < 13 ? 1 : -1), whole.rank, &axis));
  if (n->opset < 13) {
    moec_dim dims[2] = {moec_dim_const(n->m, 1), moec_dim_const(n->m, 1)};
    for (uint32_t i = 0; i < whole.rank; i++) dims[i >= axis] = moec_dim_mul(n->m, dims[i >= axis], whole.dims[i]);
    x = moec_b_reshape(b, x, 2, dims);
    axis = 1;
  }
  moec_attrs_TOPK a = {.k = moec_dim_const(n->m, 1), .axis = axis, .largest = true};
  moec_value top = moec_b_op(b, MOEC_OP_TOPK, &a, 1, &x, 2);
  MOEC_TRY(moec_builder_end(b));
  moec_type_info t = moec_b_ty(b, x);
  moec_value hit = moec_b_binary(b, MOEC_OP_EQ, moec_b_iota(b, MOEC_I64, t.rank, t.dims, axis),
                                 moec_out(b->g, moec_def(b->g, top), 1));
  return moec_onnx_result(n, moec_b_reshape(b, moec_b_cast(b, hit, t.dtype), whole.rank, whole.dims));
}

/* x over its norm along an axis; 0 where the norm is. */
IMPORTER(lp_normalization) {
  moec_builder *b = n->b;
  moec_value x;
  uint32_t axis;
  int64_t p = moec_attr_int(n, "p", 2);
  if (p != 1 && p != 2) return moec_onnx_bad(n, "p: expected 1 or 2, got %lld", (long long)p);
  MOEC_TRY(moec_onnx_operands(n, 1, 1, &x));
  moec_dtype t = moec_b_ty(b, x).dtype;
  MOEC_TRY(moec_onnx_axis(n, moec_attr_int(n, "axis", -1), moec_b_ty(b, x).rank, &axis));
  moec_value wide = moec_b_cast(b, x, moec_inner(t));
  moec_value size = p == 1 ? moec_b_unary(b, MOEC_OP_ABS, wide) : moec_b_binary(b, MOEC_OP_MUL, wide, wide);
  size = moec_b_reduce(b, MOEC_OP_REDUCE_SUM, size, axis, true);
  if (p == 2) size = moec_b_unary(b, MOEC_OP_SQRT, size);
  size = moec_b_select(b, moec_with(b, MOEC_OP_EQ, size, 0), moec_like(b, size, 1), size);
  return moec_onnx_result(n, moec_b_cast(b, moec_b_binary(b, MOEC_OP_DIV, wide, size), t));
}
