/* Local functions, and graphs inside nodes. */
#include "frontend/frontend.h"
#include "tests/unit/onnxwire.h"

typedef struct run_case {
  const char *text, *inputs, *results;
} run_case;

static void run_all(size_t n, const run_case *cases) {
  for (size_t i = 0; i < n; i++) onnxwire_run(cases[i].text, cases[i].inputs, cases[i].results);
}

#define RUN_TEST(name, ...)                                    \
  START_TEST(name) {                                           \
    static const run_case cases_[] = {__VA_ARGS__};            \
    run_all(sizeof cases_ / sizeof *cases_, cases_);           \
  }                                                            \
  END_TEST

/* ---- functions ---------------------------------------------------------------------------- */

#define X2 WIRE_VALUE("input", "x", 1, WIRE_SYM("n"))
#define ON "f32[3] 1 -2 3"
#define CALLS(functions, nodes) \
  "ir_version:10 opset_import{version:17} opset_import{domain:'my' version:1} " functions " graph{name:'g' " nodes X2 \
  WIRE_Y "}"
#define FN(name, in, out, body) "functions{domain:'my' name:'" name \
  "' opset_import{version:17} opset_import{domain:'my' version:1} " in " " out " " body "}"
#define NODE(op, in, out, more) "node{op_type:'" op "' " in " output:'" out "' " more "}"
#define CALL(op, in, out, more) "node{domain:'my' op_type:'" op "' name:'call' " in " output:'" out "' " more "}"
#define FLOAT_ATTR(name, value) "attribute{name:'" name "' type:1 f:" value "}"
#define REF(name, to, type) "attribute{name:'" name "' ref_attr_name:'" to "' type:" #type "}"
/* FunctionProto.attribute_proto, which the schema doesn't know: name 'slope', f = 0.5, type FLOAT */
#define DEFAULT_SLOPE "#5a0f0a05736c6f7065150000003fa00101 "

#define LEAKY FN("Leaky", "input:'a'", "output:'b' attribute:'slope'", NODE("LeakyRelu", "input:'a'", "b", \
  REF("alpha", "slope", 1)))
#define LEAKY_DEFAULT FN("Leaky", "input:'a'", "output:'b'", DEFAULT_SLOPE NODE("LeakyRelu", "input:'a'", "b", \
  REF("alpha", "slope", 1)))
#define TWICE FN("Twice", "input:'a'", "output:'b'", NODE("Add", "input:'a' input:'a'", "b", ""))
#define FOUR FN("Four", "input:'a'", "output:'b'", CALL("Twice", "input:'a'", "t", "") CALL("Twice", "input:'t'", "b", \
  ""))

RUN_TEST(functions_are_inlined, {CALLS(TWICE, CALL("Twice", "input:'x'", "y", "")), ON, "f32[3] 2 -4 6"},
         {CALLS(FOUR TWICE, CALL("Four", "input:'x'", "t", "") CALL("Four", "input:'t'", "y", "")), ON,
          "f32[3] 16 -32 48"},
         /* attributes: given, by default, and neither */
         {CALLS(LEAKY, CALL("Leaky", "input:'x'", "y", FLOAT_ATTR("slope", "0.25"))), ON, "f32[3] 1 -.5 3"},
         {CALLS(LEAKY_DEFAULT, CALL("Leaky", "input:'x'", "y", FLOAT_ATTR("slope", "0.25"))), ON, "f32[3] 1 -.5 3"},
         {CALLS(LEAKY_DEFAULT, CALL("Leaky", "input:'x'", "y", "")), ON, "f32[3] 1 -1 3"},
         {CALLS(LEAKY, CALL("Leaky", "input:'x'", "y", "")), ON, "f32[3] 1 -.02 3"},
         /* operands left out stay absent inside, in the middle and at the end */
         {CALLS(FN("Limit", "input:'a' input:'lo' input:'hi'", "output:'b'",
                   NODE("Clip", "input:'a' input:'lo' input:'hi'", "b", "")),
                CALL("Limit", "input:'x' input:'' input:'two'", "y",
                     "") "initializer{name:'two' data_type:1 float_data:2.0}"),
          ON, "f32[3] 1 -2 2"},
         {CALLS(FN("Limit", "input:'a' input:'lo' input:'hi'", "output:'b'",
                   NODE("Clip", "input:'a' input:'lo' input:'hi'", "b", "")),
                CALL("Limit", "input:'x'", "y", "")),
          ON, ON},
         /* sizes pass through calls */
         {CALLS(FN("Row", "input:'a' input:'s'", "output:'b'",
                   NODE("Concat", "input:'one' input:'s'", "t", "attribute{name:'axis' type:2 i:0}")
                       NODE("Constant", "", "one", "attribute{name:'value_ints' type:7 ints:1}")
                           NODE("Reshape", "input:'a' input:'t'", "b", "")),
                NODE("Shape", "input:'x'", "s", "") CALL("Row", "input:'x' input:'s'", "y", "")),
          ON, "f32[1,3] 1 -2 3"},
         /* a function has its own opset: Softmax-11 works on all axes from axis on */
         {"ir_version:10 opset_import{version:17} opset_import{domain:'my' version:1} functions{domain:'my' name:'Old' "
          "opset_import{version:11} input:'a' "
          "output:'b' node{op_type:'Softmax' input:'a' output:'b'}} graph{name:'g' " CALL("Old", "input:'x'", "y", "")
              WIRE_VALUE("input", "x", 1, WIRE_DIM(1) WIRE_DIM(2) WIRE_DIM(2)) WIRE_Y "}",
          "f32[1,2,2] 0 0 0 0", "f32[1,2,2] .25 .25 .25 .25"})

#define SELF FN("Self", "input:'a'", "output:'b'", CALL("Self", "input:'a'", "b", ""))
/* twenty functions, each calling the next one eight times: 8^20 nodes */
#define EIGHT(op) CALL(op, "input:'a'", "b", "") CALL(op, "input:'b'", "c", "") CALL(op, "input:'c'", "d", "") \
  CALL(op, "input:'d'", "e", "") \
  CALL(op, "input:'e'", "f", "") CALL(op, "input:'f'", "g", "") CALL(op, "input:'g'", "h", "") \
  CALL(op, "input:'h'", "i", "")
#define LEVEL(name, next) FN(name, "input:'a'", "output:'i'", EIGHT(next))
#define BOMB LEVEL("a", "b") LEVEL("b", "c") LEVEL("c", "d") LEVEL("d", "e") LEVEL("e", "f") LEVEL("f", "g") \
  LEVEL("g", "h") LEVEL("h", "i") \
  LEVEL("i", "j") FN("j", "input:'a'", "output:'b'", NODE("Neg", "input:'a'", "b", ""))

ONNXWIRE_TEST(
    functions_that_are_wrong,
    {CALLS(SELF, CALL("Self", "input:'x'", "y", "")), "deeper than 32, or themselves"},
    {CALLS(BOMB, CALL("a", "input:'x'", "y", "")), "come to more than 300000 nodes"},
    {CALLS(TWICE, CALL("Twice", "input:'x'", "y", "attribute{name:'alpha' f:2.0 type:1}")),
     "expected attributes that it declares, got \"alpha\""},
    {CALLS(TWICE TWICE, CALL("Twice", "input:'x'", "y", "")),
     "the function \"my::Twice\" stands twice"},
    {CALLS(TWICE, CALL("Twice", "input:'x' input:'x'", "y", "")),
     "node 0 \"call\" (my::Twice-1): expected at most 1 operands"},
    {CALLS(FN("F", "input:'a' input:'a'", "output:'b'", NODE("Neg", "input:'a'", "b", "")),
           CALL("F", "input:'x'", "y", "")),
     "\"a\" is defined twice"},
    {CALLS(FN("F", "input:'a'", "output:'b'", NODE("Neg", "input:'a'", "c", "")),
           CALL("F", "input:'x'", "y", "")),
     "result \"b\": nobody defines it"},
    {CALLS(FN("F", "input:'a'", "output:'b'", NODE("Neg", "input:'x'", "b", "")),
           CALL("F", "input:'x'", "y", "")),
     "nobody defines \"x\""},
    {CALLS(FN("F", "input:'a'", "output:'b'", NODE("Fnord", "input:'a'", "b", "name:'p'")),
           CALL("F", "input:'x'", "y", "")),
     "node 0 \"call\" (my::F-1): in function \"F\": node 0 \"p\" (Fnord-17): unknown operator"},
    {CALLS(FN("F", "input:'a' input:'z'", "output:'b'",
              NODE("Add", "input:'a' input:'z'", "b", "")),
           CALL("F", "input:'x'", "y", "")),
     "operand 1 is missing"},
    {CALLS(LEAKY, CALL("Leaky", "input:'x'", "y", "attribute{name:'slope' type:2 i:1}")),
     "expected type 1, got type 2"},
    {CALLS("", NODE("LeakyRelu", "input:'x'", "y", REF("alpha", "slope", 1))),
     "refers to one of a function"},
    {CALLS(FN("F", "input:'a'", "output:'b'", "#5a7f0a " NODE("Neg", "input:'a'", "b", "")),
           CALL("F", "input:'x'", "y", "")),
     "needs 127 bytes"},
    {CALLS(FN("F", "input:'a'", "output:'b'",
              "#5a020aff " NODE("LeakyRelu", "input:'a'", "b", REF("alpha", "slope", 1))),
           CALL("F", "input:'x'", "y", "")),
     "cut short"})

/* ---- If ----------------------------------------------------------------------------------- */

#define GRAPH(name, body) "attribute{name:'" name "' type:5 g{name:'inner' " body "}}"
#define BRANCH(name, op, in) GRAPH(name, NODE(op, in, name ".out", "") "output{name:'" name ".out'}")
#define IF(cond, out, then_body, else_body) NODE("If", "input:'" cond "'", out, then_body else_body)
#define NEG_OR_TWICE(cond) IF(cond, "y", BRANCH("then_branch", "Neg", "input:'x'"), BRANCH("else_branch", "Add", \
  "input:'x' input:'x'"))
#define GRAPHS(body) "ir_version:10 opset_import{version:17} graph{name:'g' " body WIRE_Y "}"
#define COND WIRE_VALUE("input", "c", 9, "")

RUN_TEST(
    if_chooses_a_branch, {GRAPHS(NEG_OR_TWICE("c") X2 COND), "f32[2] 1 2; bool[] 1", "f32[2] -1 -2"},
    {GRAPHS(NEG_OR_TWICE("c") X2 COND), "f32[2] 1 2; bool[] 0", "f32[2] 2 4"},
    {GRAPHS(NEG_OR_TWICE("c") X2 "initializer{name:'c' data_type:9 int32_data:1}"), "f32[2] 1 2", "f32[2] -1 -2"},
    {GRAPHS(NEG_OR_TWICE("c") X2 "initializer{name:'c' data_type:9 dims:1 int32_data:0}"), "f32[2] 1 2", "f32[2] 2 4"},
    /* a value that only a branch reads is made before it, whatever the order in the file; weights and sizes too */
    {GRAPHS(IF("c", "y",
               GRAPH("then_branch", NODE("Mul", "input:'t' input:'w'", "p", "")
                                        NODE("Reshape", "input:'p' input:'s'", "q", "") "output{name:'q'}"),
               GRAPH("else_branch", "initializer{name:'own' data_type:1 dims:1 float_data:7.0}" NODE(
                                        "Mul", "input:'t' input:'own'", "r", "")
                                        NODE("Reshape", "input:'r' input:'s'", "u", "") "output{name:'u'}"))
                NODE("Neg", "input:'x'", "t", "") NODE("Shape", "input:'x'", "n", "")
                    NODE("Concat", "input:'one' input:'n'", "s", "attribute{name:'axis' type:2 i:0}") WIRE_INTS(
                        "one", 1,
                        "int64_data:1") "initializer{name:'w' data_type:1 dims:2 float_data:10.0 float_data:100.0}" X2
                        COND),
     "f32[2] 1 2; bool[] 1", "f32[1,2] -10 -200"},
    /* a branch that is a name from outside; an If in an If */
    {GRAPHS(IF("c", "y", GRAPH("then_branch", "output{name:'x'}"),
               GRAPH("else_branch", IF("c", "i", BRANCH("then_branch", "Neg", "input:'x'"),
                                       BRANCH("else_branch", "Abs", "input:'x'")) "output{name:'i'}")) X2 COND),
     "f32[2] 1 -2; bool[] 0", "f32[2] 1 2"},
    /* what sizes decide needs no If */
    {GRAPHS(NODE("Shape", "input:'x'", "n", "") NODE("Greater", "input:'n' input:'zero'", "c", "") NEG_OR_TWICE("c")
                WIRE_INTS("zero", 1, "int64_data:0") X2),
     "f32[2] 1 2", "f32[2] -1 -2"})

ONNXWIRE_TEST(
    wrong_ifs,
    {GRAPHS(NODE("If", "input:'c'", "y", BRANCH("then_branch", "Neg", "input:'x'")) X2 COND),
     "\"else_branch\": expected a graph"},
    {GRAPHS(IF("c", "y", BRANCH("then_branch", "Neg", "input:'x'"), GRAPH("else_branch", "")) X2 COND),
     "with 1 outputs"},
    {GRAPHS(IF("c", "y", BRANCH("then_branch", "Neg", "input:'x'"), GRAPH("else_branch", "output{name:'q'}")) X2 COND),
     "nobody defines"},
    {GRAPHS(IF("c", "y", BRANCH("then_branch", "Neg", "input:'y'"), BRANCH("else_branch", "Neg", "input:'x'")) X2 COND),
     "depends on itself"},
    {GRAPHS(IF("c", "y", BRANCH("then_branch", "Neg", "input:'x'"), BRANCH("else_branch", "Shape", "input:'x'"))
                X2 COND),
     "branches have types"},
    {GRAPHS(IF("x", "y", BRANCH("then_branch", "Neg", "input:'x'"), BRANCH("else_branch", "Neg", "input:'x'")) X2),
     "expected bool"},
    {GRAPHS(IF("c", "y", GRAPH("then_branch", NODE("Neg", "input:'x'", "x", "") "output{name:'x'}"),
               BRANCH("else_branch", "Neg", "input:'x'")) X2 COND),
     "defined twice"},
    {GRAPHS(IF("c", "y", BRANCH("then_branch", "Fnord", "input:'x'"), BRANCH("else_branch", "Neg", "input:'x'"))
                X2 COND),
     "(Fnord-17): unknown operator"})

/* ---- Loop --------------------------------------------------------------------------------- */

/* sum += x; scan sum * i */
#define ADD_BODY \
  GRAPH("body", "input{name:'i'} input{name:'c_in'} input{name:'a'}" NODE("Identity", "input:'c_in'", "c_out", "") \
        NODE("Add", "input:'a' input:'x'", "b", "") NODE("Cast", "input:'i'", "f", "attribute{name:'to' type:2 i:1}") \
        NODE("Mul", "input:'b' input:'f'", "s", "") "output{name:'c_out'} output{name:'b'} output{name:'s'}")
#define LOOP(trip, cond) NODE("Loop", "input:'" trip "' input:'" cond "' input:'x'", "y", "output:'z' " ADD_BODY)
#define SUM_LOOP \
  NODE("Loop", "input:'m' input:'c' input:'x'", "y", \
       GRAPH("body", "input{name:'i'} input{name:'c_in'} input{name:'a'}" NODE("Add", "input:'a' input:'x'", "b", "") \
       "output{name:'c_in'} output{name:'b'}"))
#define TRIP(n) "initializer{name:'m' data_type:7 int64_data:" #n "}"
#define TRUE_C "initializer{name:'c' data_type:9 int32_data:1}"
#define Z "output{name:'z'}"
/* doubles x until its sum passes 10 */
#define WHILE_BODY \
  GRAPH("body", "input{name:'i'} input{name:'c_in'} input{name:'a'}" NODE("Add", "input:'a' input:'a'", "b", "") \
        NODE("ReduceSum", "input:'b'", "t", "attribute{name:'keepdims' type:2 i:0}") \
        NODE("Less", "input:'t' input:'ten'", "go", "") \
        "output{name:'go'} output{name:'b'}")

RUN_TEST(
    loops, {GRAPHS(LOOP("m", "") TRIP(3) X2 Z), "f32[2] 1 2", "f32[3,2] 0 0 3 6 8 16; f32[2] 4 8"},
    {GRAPHS(LOOP("m", "c") TRIP(3) TRUE_C X2 Z), "f32[2] 1 2", "f32[3,2] 0 0 3 6 8 16; f32[2] 4 8"},
    {GRAPHS(LOOP("m", "c") TRIP(0) TRUE_C X2), "f32[2] 1 2", "f32[2] 1 2"},
    {GRAPHS(LOOP("m", "c") TRIP(0) TRUE_C X2 Z), "f32[2] 1 2", "f32[0,2]; f32[2] 1 2"},
    {GRAPHS(LOOP("m", "c") TRIP(-4) TRUE_C X2), "f32[2] 1 2", "f32[2] 1 2"},
    /* as many rounds as x has elements: not unrolled, but the stack has a size */
    {GRAPHS(NODE("Size", "input:'x'", "m", "") LOOP("m", "c") TRUE_C X2 Z), "f32[3] 1 2 3",
        "f32[3,3] 0 0 0 3 6 9 8 16 24; f32[3] 4 8 12"},
    {GRAPHS(SUM_LOOP X2 COND WIRE_VALUE("input", "m", 7, "")), "f32[2] 1 2; bool[] 1; i64[] 4", "f32[2] 5 10"},
    {GRAPHS(SUM_LOOP X2 COND WIRE_VALUE("input", "m", 7, "")), "f32[2] 1 2; bool[] 0; i64[] 4", "f32[2] 1 2"},
    {GRAPHS(NODE("Loop", "input:'' input:'' input:'x'", "y",
        WHILE_BODY) "initializer{name:'ten' data_type:1 float_data:10.0}" X2), "f32[2] 1 2", "f32[2] 4 8"})

ONNXWIRE_TEST(wrong_loops,
              {GRAPHS(NODE("Loop", "input:'' input:'' input:'x'", "y", "output:'z' " ADD_BODY) X2), "without an end"},
              {GRAPHS(LOOP("m", "c") X2 COND WIRE_VALUE("input", "m", 7, "") Z), "depends on data"},
              {GRAPHS(NODE("Loop", "input:'m' input:''", "y", ADD_BODY) TRIP(3) X2), "expected a body with 2 inputs"},
              {GRAPHS(NODE("Loop", "input:'m' input:'' input:''", "y", ADD_BODY) TRIP(3) X2), "operand 2 is missing"},
              {GRAPHS(LOOP("m", "c") X2 COND WIRE_VALUE("input", "m", 1, "")), "expected i64"})

UNIT_MAIN("frontend nested", functions_are_inlined, functions_that_are_wrong, if_chooses_a_branch, wrong_ifs, loops,
          wrong_loops)
