/* Imported operators: rarer activations, bits, and the corners of movement. Expected values: onnx.reference;
 * LpNormalization with p = 1: onnxruntime, since the reference forgets the absolute value. */
#include "frontend/frontend.h"
#include "tests/unit/onnxcase.h"
#include "tests/unit/onnxwire.h"

ONNXCASE_TEST(
    test_activations,
    "Selu@22(f32[5] -2.5 -1 0 0.5 3) -> f32[5] -1.6137857 -1.1113307 0 0.52535051 3.1521029",
    "Selu@6(f32[5] -2.5 -1 0 0.5 3) alpha=2.0 gamma=3.0 -> f32[5] -5.5074902 -3.7927232 0 1.5 9",
    "Celu@12(f32[5] -2.5 -1 0 0.5 3) -> f32[5] -0.91791499 -0.63212055 0 0.5 3",
    "Celu@12(f32[5] -2.5 -1 0 0.5 3) alpha=2.0 -> f32[5] -1.4269904 -0.78693867 0 0.5 3",
    "ThresholdedRelu@10(f32[5] -2.5 -1 0 0.5 3) -> f32[5] 0 0 0 0 3",
    "ThresholdedRelu@10(f32[5] -2.5 -1 0 0.5 3) alpha=0.25 -> f32[5] 0 0 0 0.5 3",
    "Softsign@1(f32[5] -2.5 -1 0 0.5 3) -> f32[5] -0.71428573 -0.5 0 0.33333334 0.75",
    "Mish@18(f32[5] -2.5 -1 0 0.5 3) -> f32[5] -0.19681621 -0.30340147 0 0.37524518 2.9865351",
    "Shrink@9(f32[5] -2.5 -1 0 0.5 3) -> f32[5] -2.5 -1 0 0 3",
    "Shrink@9(f32[5] -2.5 -1 0 0.5 3) bias=1.5 lambd=1.5 -> f32[5] -1 0 0 0 1.5",
    "Shrink@9(i64[3] -3 0 2) bias=1.0 lambd=1.0 -> i64[3] -2 0 1",
    "IsInf@20(f32[4] 1 inf -inf nan) -> bool[4] 0 1 1 0",
    "IsInf@20(f32[4] 1 inf -inf nan) detect_negative=0 -> bool[4] 0 1 0 0",
    "IsInf@20(f32[4] 1 inf -inf nan) detect_positive=0 -> bool[4] 0 0 1 0",
    "Mean@13(f32[5] -2.5 -1 0 0.5 3; f32[1] 1) -> f32[5] -0.75 0 0.5 0.75 2",
    "Mean@13(f32[5] -2.5 -1 0 0.5 3) -> f32[5] -2.5 -1 0 0.5 3",
    "BitwiseAnd@18(i64[3] 12 -1 7; i64[3] 10 6 -8) -> i64[3] 8 6 0",
    "BitwiseOr@18(i64[3] 12 -1 7; i64[3] 10 6 -8) -> i64[3] 14 -1 -1",
    "BitwiseXor@18(i64[3] 12 -1 7; i64[3] 10 6 -8) -> i64[3] 6 -7 -1",
    "BitwiseNot@18(i64[3] 12 -1 7) -> i64[3] -13 0 -8",
    "BitwiseNot@18(u8[3] 0 255 18) -> u8[3] 255 0 237",
    "Hardmax@13(f32[2,3] 3 3 1 0 2 2) -> f32[2,3] 1 0 0 0 1 0",
    "Hardmax@13(f32[2,3] 3 3 1 0 2 2) axis=0 -> f32[2,3] 1 1 0 0 0 1",
    "LpNormalization@22(f32[2,2] 3 4 0 0) -> f32[2,2] 0.60000002 0.80000001 0 0",
    "LpNormalization@22(f32[2,2] 3 -1 1 1) axis=0 p=1 -> f32[2,2] .75 -.5 .25 .5",
    "ReduceLogSum@13(f32[2,2] 1 2 3 4) axes=[1] keepdims=0 -> f32[2] 1.0986123 1.9459101",
    "Hardmax@11(f32[1,2,2] 0 5 7 7) -> f32[1,2,2] 0 0 1 0",
    "Scatter@9(f32[3] 1 2 3; i64[1] 1; f32[1] 9) -> f32[3] 1 9 3",
    "Scatter@11(f32[3] 1 2 3; i64[1] 1; f32[1] 9) ! not in this opset version",
    "BitwiseNot(f32[1] 1) ! expected integers",
    "LpNormalization(f32[1] 1) p=3 ! p: expected 1 or 2",
    "IsInf@20(f32[4] 1 inf -inf nan) detect_negative=0 detect_positive=0 -> bool[4] 0 0 0 0")

ONNXCASE_TEST(
    test_movement,
    "#Pad@18(f32[2,3] 1 2 3 4 5 6; =i64[4] 1 0 0 2; =f32[] 9; =i64[2] 1 0) -> f32[4,4] 9 1 2 3 9 4 5 6 9 9 9 "
    "9 9 9 9 9",
    "Pad@18(f32[2,3] 1 2 3 4 5 6; =i64[2] -1 1; =f32[] 9; =i64[1] -1) -> f32[2,3] 2 3 9 5 6 9",
    "Pad@18(f32[2,3] 1 2 3 4 5 6; =i64[4] 0 0 0 0; =f32[] 9; =i64[2] 1 -1) ! axis 1 stands twice",
    "#Concat@13(f32[1,2,3] 0 0 0 0 0 0; f32[1,3,2] 0 0 0 0 0 0) axis=0 ! expected equal sizes",
    "#Slice@13(f32[2,3] 1 2 3 4 5 6; =i64[2] -1 -1; =i64[2] -9 -9; =i64[2] 1 0; =i64[2] -2 -1) -> f32[2,2] 6 "
    "4 3 1",
    "#Slice@13(f32[5] 1 2 3 4 5; =i64[1] 3000000000; =i64[1] 9) -> f32[0]",
    "#Slice@13(f32[5] 1 2 3 4 5; =i64[1] -4; =i64[1] -1; =i64[1] 0; =i64[1] 9223372036854775807) -> f32[1] 2",
    "Slice@13(f32[5] 1 2 3 4 5; =i64[1] -2; =i64[1] 9223372036854775807) -> f32[2] 4 5")

/* ---- bounds that are sizes ---------------------------------------------------------------- */

#define SIZE_OF_X "node{op_type:'Shape' input:'x' output:'n'} "
#define VEC(name) WIRE_VALUE("input", name, 1, WIRE_SYM("seq"))
#define ON_X(nodes, more) "ir_version:10 opset_import{version:17} graph{name:'g' " SIZE_OF_X nodes more VEC("x") \
  WIRE_Y "}"
#define NODE(op, in, out, attrs) "node{op_type:'" op "' " in " output:'" out "' " attrs "} "
#define ONE WIRE_INTS("one", 1, "int64_data:1") WIRE_INTS("two", 1, "int64_data:2") WIRE_INTS("zero", 1, "int64_data:0")

START_TEST(bounds_of_symbolic_size) {
  /* x[-seq:seq]: a bound that is negative for every size */
  onnxwire_run(ON_X(NODE("Neg", "input:'n'", "m", "") NODE("Slice", "input:'x' input:'m' input:'n'", "y", ""), ONE),
               "f32[3] 1 2 3", "f32[3] 1 2 3");
  /* x[seq-1:seq] and cat(x, 1)[1:seq+1] */
  onnxwire_run(
      ON_X(NODE("Sub", "input:'n' input:'one'", "m", "") NODE("Slice", "input:'x' input:'m' input:'n'", "y", ""), ONE),
      "f32[3] 1 2 3", "f32[1] 3");
  onnxwire_run(ON_X(NODE("Concat", "input:'x' input:'c'", "t", "attribute{name:'axis' type:2 i:0}")
                        NODE("Shape", "input:'t'", "k", "") NODE("Slice", "input:'t' input:'one' input:'k'", "y", ""),
                    ONE "initializer{name:'c' data_type:1 dims:1 float_data:9.0}"),
               "f32[3] 1 2 3", "f32[3] 2 3 9");
  /* pads that are sizes: x to twice its length, and to a multiple of 4 */
  onnxwire_run(ON_X(NODE("Concat", "input:'zero' input:'n'", "p", "attribute{name:'axis' type:2 i:0}")
                        NODE("Pad", "input:'x' input:'p'", "y", ""),
                    ONE),
               "f32[2] 1 2", "f32[4] 1 2 0 0");
  onnxwire_run(ON_X(NODE("Neg", "input:'n'", "m", "") NODE("Mod", "input:'m' input:'four'", "r", "")
                        NODE("Concat", "input:'zero' input:'r'", "p", "attribute{name:'axis' type:2 i:0}")
                            NODE("Pad", "input:'x' input:'p'", "y", ""),
                    ONE WIRE_INTS("four", 1, "int64_data:4")),
               "f32[3] 1 2 3", "f32[4] 1 2 3 0");
}
END_TEST

/* A pad of seq - 2 is none where seq is 1: that size is refused when it is bound, not misread. */
START_TEST(sizes_that_would_be_misread_are_refused) {
  static const char text[] = ON_X(NODE("Sub", "input:'n' input:'two'", "m", "")
                                      NODE("Concat", "input:'zero' input:'m'", "p", "attribute{name:'axis' type:2 i:0}")
                                          NODE("Pad", "input:'x' input:'p'", "y", "name:'widen'"),
                                  ONE);
  moec_module *m = NULL;
  moec_tensor x, out;
  moec_buf b = onnxwire(text);
  onnxwire_run(text, "f32[3] 1 2 3", "f32[4] 1 2 3 0");
  UNIT_OK(moec_import_onnx_memory(moec_buf_str(&b), b.size, &m));
  UNIT_OK(moec_tensor_init(&x, MOEC_F32, 1, (int64_t[]){1}));
  UNIT_FAILS(moec_interp_run(m, (moec_fn){1}, &x, 1, &out, 1, NULL), MOEC_INVALID_ARGUMENT, "widen");
  moec_tensor_fini(&x);
  moec_module_destroy(m);
  moec_buf_fini(&b);
}
END_TEST

UNIT_MAIN("frontend extra", test_activations, test_movement, bounds_of_symbolic_size,
          sizes_that_would_be_misread_are_refused)
