/* Importers of elementwise operators. */
#include <math.h>
#include <string.h>

#include "frontend/ops.h"

/* ---- one operand -------------------------------------------------------------------------- */

IMPORTER(unary) {
  moec_value x;
  MOEC_TRY(moec_onnx_operands(n, 1, 1, &x));
  return moec_onnx_result(n, moec_b_unary(n->b, n->op, x));
}

IMPORTER(relu) {
  moec_value x;
  MOEC_TRY(moec_onnx_operands(n, 1, 1, &x));
  return moec_onnx_result(n, moec_with(n->b, MOEC_OP_MAX, x, 0));
}

static moec_value where_negative(moec_builder *b, moec_value x, moec_value y) {
  return moec_b_select(b, moec_with(b, MOEC_OP_LT, x, 0), y, x);
}

IMPORTER(leaky_relu) {
  moec_value x;
  MOEC_TRY(moec_onnx_operands(n, 1, 1, &x));
  return moec_onnx_result(
      n,
      where_negative(n->b, x, moec_with(n->b, MOEC_OP_MUL, x, moec_attr_float(n, "alpha", 0.01))));
}

IMPORTER(elu) {
  moec_value x;
  MOEC_TRY(moec_onnx_operands(n, 1, 1, &x));
  moec_value y = moec_with(n->b, MOEC_OP_MUL, moec_b_unary(n->b, MOEC_OP_EXPM1, x),
                           moec_attr_float(n, "alpha", 1));
  return moec_onnx_result(n, where_negative(n->b, x, y));
}

/* log(1 + exp(x)) in the form that neither overflows nor loses small results. */
IMPORTER(softplus) {
  moec_builder *b = n->b;
  moec_value x;
  MOEC_TRY(moec_onnx_operands(n, 1, 1, &x));
  moec_value e =
      moec_b_unary(b, MOEC_OP_EXP, moec_b_unary(b, MOEC_OP_NEG, moec_b_unary(b, MOEC_OP_ABS, x)));
  moec_value y = moec_b_binary(b, MOEC_OP_ADD, moec_with(b, MOEC_OP_MAX, x, 0),
                               moec_b_unary(b, MOEC_OP_LOG1P, e));
  return moec_onnx_result(n, y);
}

IMPORTER(swish) {
  moec_value x;
  MOEC_TRY(moec_onnx_operands(n, 1, 1, &x));
  return moec_onnx_result(n, moec_swish(n->b, x, moec_attr_float(n, "alpha", 1)));
}

IMPORTER(quick_gelu) {
  moec_value x;
  MOEC_TRY(moec_onnx_operands(n, 1, 1, &x));
  return moec_onnx_result(n, moec_swish(n->b, x, moec_attr_float(n, "alpha", 1.702f)));
}

static moec_value hard_sigmoid(moec_builder *b, moec_value x, double alpha, double beta) {
  moec_value y = moec_with(b, MOEC_OP_ADD, moec_with(b, MOEC_OP_MUL, x, alpha), beta);
  return moec_with(b, MOEC_OP_MAX, moec_with(b, MOEC_OP_MIN, y, 1), 0);
}

IMPORTER(hard_sigmoid) {
  moec_value x;
  MOEC_TRY(moec_onnx_operands(n, 1, 1, &x));
  return moec_onnx_result(
      n, hard_sigmoid(n->b, x, moec_attr_float(n, "alpha", 0.2f), moec_attr_float(n, "beta", 0.5)));
}

IMPORTER(hard_swish) {
  moec_value x;
  MOEC_TRY(moec_onnx_operands(n, 1, 1, &x));
  return moec_onnx_result(n,
                          moec_b_binary(n->b, MOEC_OP_MUL, x, hard_sigmoid(n->b, x, 1.0 / 6, 0.5)));
}

/* ---- gelu --------------------------------------------------------------------------------- */

moec_value moec_gelu(moec_builder *b, moec_value x, bool tanh_form) {
  moec_value inner;
  if (tanh_form) { /* tanh(sqrt(2/pi) * (x + 0.044715 x^3)) */
    moec_value cube = moec_b_binary(b, MOEC_OP_MUL, moec_b_binary(b, MOEC_OP_MUL, x, x), x);
    inner = moec_b_binary(b, MOEC_OP_ADD, x, moec_with(b, MOEC_OP_MUL, cube, 0.044715));
    inner = moec_b_unary(b, MOEC_OP_TANH, moec_with(b, MOEC_OP_MUL, inner, sqrt(2 / M_PI)));
  } else {
    inner = moec_b_unary(b, MOEC_OP_ERF, moec_with(b, MOEC_OP_MUL, x, sqrt(0.5)));
  }
  moec_value half = moec_with(b, MOEC_OP_MUL, x, 0.5);
  return moec_b_binary(b, MOEC_OP_MUL, half, moec_with(b, MOEC_OP_ADD, inner, 1));
}

IMPORTER(gelu) {
  moec_value x;
  const char *form = moec_attr_string(n, "approximate", "none");
  bool tanh_form = strcmp(form, "tanh") == 0;
  if (!tanh_form && strcmp(form, "none") != 0)
    return moec_onnx_bad(n, "approximate: expected none or tanh, got \"%s\"", form);
  MOEC_TRY(moec_onnx_operands(n, 1, 1, &x));
  return moec_onnx_result(n, moec_gelu(n->b, x, tanh_form));
}

IMPORTER(fast_gelu) {
  moec_value in[2];
  MOEC_TRY(moec_onnx_operands(n, 1, 2, in));
  moec_value x = in[1].i ? moec_b_binary(n->b, MOEC_OP_ADD, in[0], in[1]) : in[0];
  return moec_onnx_result(n, moec_gelu(n->b, x, true));
}

/* ---- several operands --------------------------------------------------------------------- */

/* Opset 6 has the limits as attributes. The upper limit wins where they cross. */
IMPORTER(clip) {
  static const char *const names[2] = {"min", "max"};
  static const moec_op ops[2] = {MOEC_OP_MAX, MOEC_OP_MIN};
  moec_value in[3] = {{0}, {0}, {0}};
  MOEC_TRY(moec_onnx_operands(n, 1, n->opset < 11 ? 1 : 3, in));
  moec_value x = in[0];
  for (int i = 0; i < 2; i++) {
    if (n->opset < 11 && moec_onnx_attr(n, names[i]))
      x = moec_with(n->b, ops[i], x, moec_attr_float(n, names[i], 0));
    if (in[i + 1].i) x = moec_b_binary(n->b, ops[i], x, in[i + 1]);
  }
  return moec_onnx_result(n, x);
}

IMPORTER(binary) {
  moec_value in[2];
  MOEC_TRY(moec_onnx_operands(n, 2, 2, in));
  return moec_onnx_result(n, moec_b_binary(n->b, n->op, in[0], in[1]));
}

/* The result has the base's type. An integer to the power of a float is computed in f64, since casting the
 * exponent would lose its fraction. */
IMPORTER(pow) {
  moec_value in[2];
  MOEC_TRY(moec_onnx_operands(n, 2, 2, in));
  moec_dtype t = moec_b_ty(n->b, in[0]).dtype, e = moec_b_ty(n->b, in[1]).dtype;
  moec_dtype inner = moec_dtype_is_float(e) && !moec_dtype_is_float(t) ? MOEC_F64 : t;
  moec_value y = moec_b_binary(n->b, MOEC_OP_POW, moec_b_cast(n->b, in[0], inner),
                               moec_b_cast(n->b, in[1], inner));
  return moec_onnx_result(n, moec_b_cast(n->b, y, t));
}

/* Floats need fmod before opset 28. */
IMPORTER(mod) {
  moec_value in[2];
  bool fmod_form = moec_attr_int(n, "fmod", 0) != 0;
  MOEC_TRY(moec_onnx_operands(n, 2, 2, in));
  if (!fmod_form && n->opset < 28 && moec_dtype_is_float(moec_b_ty(n->b, in[0]).dtype))
    return moec_onnx_bad(n, "expected fmod = 1 for floats, got 0");
  return moec_onnx_result(n,
                          moec_b_binary(n->b, fmod_form ? MOEC_OP_REM : MOEC_OP_MOD, in[0], in[1]));
}

IMPORTER(variadic) {
  moec_value x;
  MOEC_TRY(moec_onnx_operands(n, moec_onnx_n_in(n) ? moec_onnx_n_in(n) : 1, 1, &x));
  for (uint32_t i = 1; i < moec_onnx_n_in(n); i++)
    x = moec_b_binary(n->b, n->op, x, moec_onnx_in(n, i));
  return moec_onnx_result(n, x);
}

IMPORTER(prelu) {
  moec_value in[2];
  MOEC_TRY(moec_onnx_operands(n, 2, 2, in));
  return moec_onnx_result(
      n, where_negative(n->b, in[0], moec_b_binary(n->b, MOEC_OP_MUL, in[0], in[1])));
}

IMPORTER(swiglu) {
  moec_value in[2];
  moec_dim dims[MOEC_MAX_RANK];
  uint32_t rank;
  MOEC_TRY(moec_onnx_operands(n, 2, 2, in));
  MOEC_TRY(moec_broadcast_shapes(n->m, moec_b_ty(n->b, in[0]), moec_b_ty(n->b, in[1]),
                                 moec_sym_str(n->m, n->b->g->loc), &rank, dims));
  for (int i = 0; i < 2; i++) in[i] = moec_b_broadcast_to(n->b, in[i], rank, dims);
  moec_attrs_SWIGLU a = {.alpha = moec_attr_float(n, "alpha", 1)};
  return moec_onnx_result(n, moec_b_op(n->b, MOEC_OP_SWIGLU, &a, 2, in, 1));
}
