/* Importers: gather, scatter, ordering, prefix sums. */
#include <string.h>

#include "frontend/import.h"

static moec_status *operands(moec_onnx *n, uint32_t count, moec_value *v) {
  for (uint32_t i = 0; i < count; i++) {
    v[i] = moec_onnx_in(n, i);
    if (!v[i].i && !n->b->error) return moec_onnx_bad(n, "operand %u is missing", i);
  }
  return moec_builder_end(n->b);
}

IMPORTER(gather) {
  moec_value in[2];
  uint32_t axis;
  MOEC_TRY(operands(n, 2, in));
  MOEC_TRY(moec_onnx_axis(n, moec_attr_int(n, "axis", 0), moec_b_ty(n->b, in[0]).rank, &axis));
  moec_attrs_GATHER a = {.axis = axis};
  return moec_onnx_result(n, moec_b_op(n->b, MOEC_OP_GATHER, &a, 2, in, 1));
}

IMPORTER(gather_elements) {
  moec_value in[2];
  uint32_t axis;
  MOEC_TRY(operands(n, 2, in));
  MOEC_TRY(moec_onnx_axis(n, moec_attr_int(n, "axis", 0), moec_b_ty(n->b, in[0]).rank, &axis));
  moec_attrs_GATHER_ELEMENTS a = {.axis = axis};
  return moec_onnx_result(n, moec_b_op(n->b, MOEC_OP_GATHER_ELEMENTS, &a, 2, in, 1));
}

IMPORTER(gather_nd) {
  moec_value in[2];
  MOEC_TRY(operands(n, 2, in));
  moec_attrs_GATHER_ND a = {.batch_dims = moec_attr_int(n, "batch_dims", 0)};
  return moec_onnx_result(n, moec_b_op(n->b, MOEC_OP_GATHER_ND, &a, 2, in, 1));
}

/* The attribute "reduction" as the IR's number. */
static moec_status *reduction(moec_onnx *n, int64_t *out) {
  static const char *const names[] = {"none", "add", "mul", "max", "min"};
  const char *text = moec_attr_string(n, "reduction", "none");
  for (*out = 0; *out < 5; ++*out)
    if (strcmp(names[*out], text) == 0) return NULL;
  return moec_onnx_bad(n, "reduction: expected none, add, mul, max or min, got \"%s\"", text);
}

IMPORTER(scatter_elements) {
  moec_value in[3];
  uint32_t axis;
  moec_attrs_SCATTER_ELEMENTS a;
  MOEC_TRY(operands(n, 3, in));
  MOEC_TRY(moec_onnx_axis(n, moec_attr_int(n, "axis", 0), moec_b_ty(n->b, in[0]).rank, &axis));
  a.axis = axis;
  MOEC_TRY(reduction(n, &a.reduction));
  return moec_onnx_result(n, moec_b_op(n->b, MOEC_OP_SCATTER_ELEMENTS, &a, 3, in, 1));
}

IMPORTER(scatter_nd) {
  moec_value in[3];
  moec_attrs_SCATTER_ND a;
  MOEC_TRY(operands(n, 3, in));
  MOEC_TRY(reduction(n, &a.reduction));
  return moec_onnx_result(n, moec_b_op(n->b, MOEC_OP_SCATTER_ND, &a, 3, in, 1));
}

IMPORTER(topk) {
  moec_value x = moec_onnx_in(n, 0);
  moec_dims k;
  uint32_t axis;
  MOEC_TRY(moec_onnx_content(n, 1, &k));
  MOEC_TRY(moec_builder_end(n->b));
  if (k.n != 1) return moec_onnx_bad(n, "k: expected one number");
  MOEC_TRY(moec_onnx_axis(n, moec_attr_int(n, "axis", -1), moec_b_ty(n->b, x).rank, &axis));
  moec_attrs_TOPK a = {.k = k.v[0], .axis = axis, .largest = moec_attr_int(n, "largest", 1) != 0};
  moec_value values = moec_b_op(n->b, MOEC_OP_TOPK, &a, 1, &x, 2);
  MOEC_TRY(moec_builder_end(n->b));
  moec_onnx_out(n, 0, values);
  moec_onnx_out(n, 1, moec_out(n->b->g, moec_def(n->b->g, values), 1));
  return NULL;
}

/* NonZero, as in loops over experts, and its kin. */
IMPORTER(sized_by_data) {
  return moec_onnx_unsupported(
      n, "the size of its result depends on data; experts: export with gathered weights or masks");
}

/* ArgMax and ArgMin: the first (or last) extreme element. */
IMPORTER(arg_extreme) {
  moec_value x = moec_onnx_in(n, 0);
  uint32_t axis;
  MOEC_TRY(moec_builder_end(n->b));
  if (!x.i) return moec_onnx_bad(n, "operand 0 is missing");
  moec_type_info t = moec_b_ty(n->b, x);
  MOEC_TRY(moec_onnx_axis(n, moec_attr_int(n, "axis", 0), t.rank, &axis));
  bool last = moec_attr_int(n, "select_last_index", 0) != 0;
  int64_t at = axis;
  if (last) { /* the first one of the reversed axis */
    moec_attrs_REVERSE r = {.axes = {1, &at}};
    x = moec_b_op(n->b, MOEC_OP_REVERSE, &r, 1, &x, 1);
  }
  moec_attrs_TOPK a = {.k = moec_dim_const(n->m, 1), .axis = axis, .largest = n->op == MOEC_OP_MAX};
  moec_value v = moec_b_op(n->b, MOEC_OP_TOPK, &a, 1, &x, 2);
  if (n->b->error) return moec_builder_end(n->b);
  v = moec_out(n->b->g, moec_def(n->b->g, v), 1);
  if (last) {
    moec_dim top = moec_dim_sub(n->m, t.dims[axis], moec_dim_const(n->m, 1));
    v = moec_b_binary(n->b, MOEC_OP_SUB, moec_b_size(n->b, top), v);
  }
  return moec_onnx_result(n, moec_attr_int(n, "keepdims", 1) ? v : moec_b_squeeze(n->b, v, axis));
}

IMPORTER(cumsum) {
  moec_value x = moec_onnx_in(n, 0);
  moec_ints at;
  uint32_t axis;
  MOEC_TRY(moec_onnx_ints(n, 1, &at));
  MOEC_TRY(moec_builder_end(n->b));
  if (at.n != 1) return moec_onnx_bad(n, "axis: expected one number");
  MOEC_TRY(moec_onnx_axis(n, at.v[0], moec_b_ty(n->b, x).rank, &axis));
  moec_attrs_CUMSUM a = {.axis = axis, .reverse = moec_attr_int(n, "reverse", 0) != 0, .exclusive = moec_attr_int(n,
      "exclusive", 0) != 0};
  return moec_onnx_result(n, moec_b_op(n->b, MOEC_OP_CUMSUM, &a, 1, &x, 1));
}
