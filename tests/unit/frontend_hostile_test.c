/* Files that are damaged, or made to do harm. */
#include <sys/stat.h>

#include "frontend/frontend.h"

#include "tests/unit/onnxwire.h"

/* ---- wire format -------------------------------------------------------------------------- */

#define GOOD                                                                                                      \
  WIRE_MODEL("node{input:'x' input:'w' output:'t' op_type:'Add' name:'add'}"                                      \
             "node{input:'t' input:'s' output:'y' op_type:'Reshape' name:'view' attribute{name:'allowzero' i:0 " \
             "type:2}}" \
             "initializer{name:'w' data_type:1 dims:3 raw_data:'abcdefghijkl'}"                                   \
             WIRE_INTS("s", 2, "int64_data:3 int64_data:2") WIRE_X WIRE_Y)

/* The graph is the last field, so a file that ends early has no whole graph. */
START_TEST(every_cut_is_refused) {
  moec_buf b = onnxwire(GOOD);
  moec_module *m = NULL;
  UNIT_OK(moec_import_onnx_memory(moec_buf_str(&b), b.size, &m));
  moec_module_destroy(m);
  for (size_t n = 0; n < b.size; n++) {
    char *part = malloc(n + 1); /* its own block: a read behind it is seen */
    memcpy(part, moec_buf_str(&b), n);
    moec_status *s = moec_import_onnx_memory(part, n, &m);
    if (moec_status_code(s) != MOEC_INVALID_MODEL) ck_abort_msg("%zu bytes: %s", n, moec_status_message(s));
    moec_status_free(s);
    free(part);
  }
  moec_buf_fini(&b);
}
END_TEST

/* Any byte may be anything: a model or an error, nothing else. */
START_TEST(every_byte_may_be_wrong) {
  static const uint8_t masks[] = {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff, 0x7f};
  moec_buf b = onnxwire(GOOD);
  for (size_t i = 0; i < b.size; i++) {
    for (size_t k = 0; k < sizeof masks; k++) {
      moec_module *m = NULL;
      b.data[i] = (char)(b.data[i] ^ masks[k]);
      moec_status_free(moec_import_onnx_memory(b.data, b.size, &m));
      moec_module_destroy(m);
      b.data[i] = (char)(b.data[i] ^ masks[k]);
    }
  }
  moec_buf_fini(&b);
}
END_TEST

ONNXWIRE_TEST(
    wire_format, {GOOD, NULL}, {"", "empty file"}, {"#00", "field number 0"}, {"#0b", "wire type 3"},
    {"#08", "cut short"}, {"#08ffffffffffffffffffff01", "more than 10 bytes"}, {"#3aff", "cut short"},
    {"#3a7f", "needs 127 bytes"}, {"#3affffffffffffffffff01", "needs 18446744073709551615 bytes"},
        {"#a53e000000", "needs 4 bytes"},
    {"#a13e000000", "needs 8 bytes"}, {"#3a023aff", "cut short"}, {"#3a030a7f00", "needs 127 bytes"},
    {"ir_version:'x'", "ir_version"}, {"graph:1", "graph"}, {"ir_version:8", "expected a model with a graph"},
    {"ir_version:8 graph{} graph{}", "ModelProto.graph stands twice"},
    {WIRE_MODEL("input{name:'x' type{tensor_type{elem_type:1} tensor_type{elem_type:1}}}"), "tensor_type stands twice"},
    {WIRE_MODEL("name:'a\\x00b'"), "NUL"}, {WIRE_MODEL("name:'\\xff'"), "UTF-8"}, {WIRE_MODEL("name:'\\xc0\\x80'"),
        "UTF-8"},
    {WIRE_MODEL("name:'\\xe0\\x80\\x80'"), "UTF-8"}, {WIRE_MODEL("name:'\\xed\\xa0\\x80'"), "UTF-8"},
    {WIRE_MODEL("name:'\\xf4\\x90\\x80\\x80'"), "UTF-8"}, {WIRE_MODEL("name:'\\xe2\\x82'"), "UTF-8"},
    {WIRE_MODEL("node{input:'x\\x00' output:'y' op_type:'Abs'}" WIRE_X WIRE_Y), "NodeProto.input"},
    {WIRE_MODEL("doc_string:'gr\\xc3\\xbc\\xc3\\x9fe \\xe2\\x82\\xac \\xf0\\x9f\\x98\\x80'" WIRE_ABS WIRE_X WIRE_Y),
        NULL},
    {"999:1 " WIRE_MODEL("998:'y'" WIRE_ABS WIRE_X WIRE_Y), NULL})

/* A message |depth| deep: graph, node, attribute, graph, node ... */
static moec_buf nested(int depth) {
  static const uint32_t fields[3] = {1, 5, 6}; /* GraphProto.node, NodeProto.attribute, AttributeProto.g */
  moec_buf b = {0};
  size_t *sizes = malloc(sizeof *sizes * (size_t)(depth + 1));
  sizes[depth] = 0;
  for (int i = depth - 1; i >= 0; i--) {
    size_t digits = 1;
    for (size_t v = sizes[i + 1]; v > 127; v >>= 7) digits++;
    sizes[i] = sizes[i + 1] + 1 + digits;
  }
  onnxwire_varint(&b, 8), onnxwire_varint(&b, 8);
  onnxwire_varint(&b, 7 << 3 | 2), onnxwire_varint(&b, sizes[0]);
  for (int i = 0; i < depth; i++) onnxwire_varint(&b, fields[i % 3] << 3 | 2), onnxwire_varint(&b, sizes[i + 1]);
  free(sizes);
  return b;
}

START_TEST(depth_is_limited) {
  static const int depths[] = {99, 100, 1000, 100000};
  for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
    moec_module *m = NULL;
    moec_buf b = nested(depths[i]);
    UNIT_FAILS(moec_import_onnx_memory(moec_buf_str(&b), b.size, &m), MOEC_INVALID_MODEL, i ? "nested deeper" : "");
    moec_buf_fini(&b);
  }
}
END_TEST

/* Two bytes of file must not become a hundred of memory. */
START_TEST(memory_is_limited) {
  static const struct {
    const char *text, *error;
  } cases[] = {
      {"ir_version:8 opset_import{version:17} graph{*5000000{node{}}}", "messages"},
      {"ir_version:8 opset_import{version:17} graph{*3000000{node{}}}", "memory"},
      {"ir_version:8 *3000000{opset_import{}} graph{}", ""},
      {"ir_version:8 opset_import{version:17} graph{*3000000{initializer{}}}", ""},
      {"ir_version:8 opset_import{version:17} graph{name:'g' node{op_type:'Sum' output:'y' *3000000{input:''}}}", ""},
      {"ir_version:8 opset_import{version:17} graph{name:'g' node{op_type:'Sum' output:'y' "
          "*300000{attribute{name:'a'}}}}", ""},
      {"ir_version:8 opset_import{version:17} graph{name:'g' *300000{input{name:'a'}}}", ""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    moec_module *m = NULL;
    moec_status *s = onnxwire_import(cases[i].text, &m);
    if (!s || !strstr(moec_status_message(s), cases[i].error)) ck_abort_msg("case %zu: %s", i, moec_status_message(s));
    moec_status_free(s);
  }
}
END_TEST

/* ---- models ------------------------------------------------------------------------------- */

ONNXWIRE_TEST(
    models, {"opset_import{version:17} graph{name:'g' " WIRE_ABS WIRE_X WIRE_Y "}", "ir_version"},
    {"ir_version:99 opset_import{version:17} graph{}", "expected ir_version 3..14, got 99"},
    {"ir_version:-1 opset_import{version:17} graph{}", "ir_version"},
    {"ir_version:8 graph{}", "opset_import"},
    {"ir_version:8 opset_import{version:29} graph{}", "expected opset 1..28, got 29"},
    {"ir_version:8 opset_import{version:0} graph{}", "opset 1..28"},
    {"ir_version:8 opset_import{version:17} opset_import{version:18 domain:'ai.onnx'} graph{}", "twice"},
    {"ir_version:8 opset_import{version:4294967313} graph{}", "opset 1..28"},
    {"ir_version:8 opset_import{domain:'com.microsoft' version:1} graph{name:'g' " WIRE_ABS WIRE_X WIRE_Y "}", "opset"},
    {"ir_version:8 opset_import{version:17} metadata_props{key:'a' value:'b'} metadata_props{key:'a' value:'c'} "
        "graph{}", "twice"},
    {WIRE_MODEL(WIRE_ABS WIRE_X), "no output"}, {WIRE_MODEL(WIRE_ABS WIRE_X WIRE_Y WIRE_Y), "twice"},
    {WIRE_MODEL(WIRE_ABS WIRE_X WIRE_X WIRE_Y), "twice"},
    {WIRE_MODEL(WIRE_ABS WIRE_X "output{name:'z'}"), "output \"z\": nobody defines it"},
    {WIRE_MODEL(WIRE_ABS WIRE_X "output{}"), "output"}, {WIRE_MODEL(WIRE_ABS "input{}" WIRE_Y), "no name"},
    {WIRE_MODEL(WIRE_ABS WIRE_X WIRE_Y "sparse_initializer{}"), "sparse"},
    {WIRE_MODEL(WIRE_ABS "input{name:'x'}" WIRE_Y), "expected a tensor"},
    {WIRE_MODEL(WIRE_ABS "input{name:'x' type{sequence_type{}}}" WIRE_Y), "expected a tensor"},
    {WIRE_MODEL(WIRE_ABS "input{name:'x' type{tensor_type{elem_type:1}}}" WIRE_Y), "no shape"},
    {WIRE_MODEL(WIRE_ABS "input{name:'x' type{tensor_type{elem_type:8 shape{}}}}" WIRE_Y), "element type 8"},
    {WIRE_MODEL(WIRE_ABS "input{name:'x' type{tensor_type{elem_type:-5 shape{}}}}" WIRE_Y), "element type -5"},
    {WIRE_MODEL(WIRE_ABS WIRE_VALUE("input", "x", 1, WIRE_DIM(-2)) WIRE_Y), "negative"},
    {WIRE_MODEL(WIRE_ABS WIRE_VALUE("input", "x", 1, "*13{dim{dim_value:1}}") WIRE_Y), "rank at most 12"},
    {WIRE_MODEL(WIRE_ABS WIRE_VALUE("input", "x", 1,
        WIRE_DIM(9223372036854775807) WIRE_DIM(9223372036854775807)) WIRE_Y),
     "2^63"},
    {WIRE_MODEL(WIRE_ABS WIRE_VALUE("input", "x", 1, WIRE_SYM("((((")) WIRE_Y), "axis 0"},
    {WIRE_MODEL(WIRE_ABS WIRE_VALUE("input", "x", 1, WIRE_SYM("n") "dim{}") WIRE_Y), NULL},
    {WIRE_MODEL(WIRE_ABS "value_info{name:'x'}" WIRE_X WIRE_Y), NULL})

ONNXWIRE_TEST(
    nodes,
    {WIRE_MODEL("node{input:'y' output:'z' op_type:'Neg'}" WIRE_ABS WIRE_X "output{name:'z'}"),
     NULL},
    {WIRE_MODEL("node{input:'b' output:'a' op_type:'Neg' name:'p'} node{input:'a' output:'b' "
                "op_type:'Neg' name:'q'}" WIRE_X "output{name:'a'}"),
     "depends on itself"},
    {WIRE_MODEL("node{input:'y' output:'y' op_type:'Neg' name:'p'}" WIRE_X WIRE_Y),
     "\"p\" (Neg) depends on itself"},
    {WIRE_MODEL("node{input:'q' output:'y' op_type:'Neg' name:'p'}" WIRE_X WIRE_Y),
     "nobody defines \"q\""},
    {WIRE_MODEL(WIRE_ABS WIRE_ABS WIRE_X WIRE_Y), "\"y\" is defined twice"},
    {WIRE_MODEL("node{input:'x' output:'x' op_type:'Abs'}" WIRE_X "output{name:'x'}"),
     "\"x\" is defined twice"},
    {WIRE_MODEL("node{input:'x' output:'y'}" WIRE_X WIRE_Y), "has no operator"},
    {WIRE_MODEL("node{op_type:'Abs'}" WIRE_ABS WIRE_X WIRE_Y), "neither operands nor results"},
    {WIRE_MODEL("node{input:'x' output:'y' op_type:'Fnord' name:'p'}" WIRE_X WIRE_Y),
     "node 0 \"p\" (Fnord-17): unknown operator"},
    {WIRE_MODEL(
         "node{input:'x' output:'y' op_type:'Abs' domain:'org.acme' name:'p'}" WIRE_X WIRE_Y),
     "(org.acme::Abs-1)"},
    {WIRE_MODEL("node{output:'y' op_type:'Abs'}" WIRE_X WIRE_Y), "operand 0 is missing"},
    {WIRE_MODEL("node{input:'' output:'y' op_type:'Abs'}" WIRE_X WIRE_Y), "operand 0 is missing"},
    {WIRE_MODEL("node{input:'x' input:'x' output:'y' op_type:'Abs'}" WIRE_X WIRE_Y),
     "at most 1 operand"},
    {WIRE_MODEL("node{input:'x' input:'x' input:'x' output:'y' op_type:'Add'}" WIRE_X WIRE_Y),
     "at most 2 operands"},
    {WIRE_MODEL("node{input:'x' output:'y' output:'z' op_type:'Abs'}" WIRE_X WIRE_Y),
     "at most 1 result"},
    {WIRE_MODEL("node{input:'x' output:'y' op_type:'Softmax' attribute{name:'axis' i:1 type:2} "
                "attribute{name:'axis' "
                "i:1 type:2}}" WIRE_X WIRE_Y),
     "\"axis\" stands twice"},
    {WIRE_MODEL(
         "node{input:'x' output:'y' op_type:'Softmax' attribute{name:'axis' f:1.0 type:1}}" WIRE_X
             WIRE_Y),
     "\"axis\""},
    {WIRE_MODEL(
         "node{input:'x' output:'y' op_type:'Softmax' attribute{name:'axis' f:1.0 type:2}}" WIRE_X
             WIRE_Y),
     "\"axis\""},
    {WIRE_MODEL("node{input:'x' output:'y' op_type:'Softmax' attribute{name:'axis' i:1 s:'x' "
                "type:2}}" WIRE_X WIRE_Y),
     "\"axis\""},
    {WIRE_MODEL("node{input:'x' output:'y' op_type:'Softmax' attribute{name:'axis' type:99}}" WIRE_X
                    WIRE_Y),
     "\"axis\""},
    {WIRE_MODEL(WIRE_ABS WIRE_X WIRE_VALUE("output", "y", 7, WIRE_DIM(2) WIRE_DIM(3))),
     "output \"y\": expected the declared i64, got f32"},
    {WIRE_MODEL(WIRE_ABS WIRE_X WIRE_VALUE("output", "y", 1, WIRE_DIM(9))), NULL},
    {WIRE_MODEL("node{input:'x' output:'y' op_type:'Softmax' attribute{i:1 type:2}}" WIRE_X WIRE_Y),
     "attribute"},
    {WIRE_MODEL(
         "node{input:'x' output:'y' op_type:'Softmax' attribute{name:'axis' i:1}}" WIRE_X WIRE_Y),
     NULL},
    {WIRE_MODEL("node{input:'x' output:'a' op_type:'Fnord' name:'p'} node{input:'x' output:'b' "
                "op_type:'Gnarf' "
                "name:'q'}"
                "node{input:'a' input:'b' output:'y' op_type:'Add'}" WIRE_X WIRE_Y),
     "2 unsupported nodes: node 0 \"p\" (Fnord-17): "
     "unknown operator; node 1 \"q\" (Gnarf-17): unknown operator"})

/* ---- tensors ------------------------------------------------------------------------------ */

#define ADD_W(w) WIRE_MODEL("node{input:'x' input:'w' output:'y' op_type:'Add'} initializer{" w "}" WIRE_X WIRE_Y)
#define CONST_W(w) WIRE_MODEL("node{output:'w' op_type:'Constant' attribute{name:'value' type:4 t{" w "}}}" \
                              "node{input:'x' input:'w' output:'y' op_type:'Add'}" WIRE_X WIRE_Y)

ONNXWIRE_TEST(
    tensors, {ADD_W("name:'w' data_type:1 dims:1 raw_data:'abcd'"), NULL},
    {ADD_W("name:'w' data_type:1 raw_data:'abcd'"), NULL},
    {ADD_W("name:'w' data_type:1 dims:3 raw_data:'abcd'"), "expected 12 bytes of raw data, got 4"},
    {ADD_W("name:'w' data_type:1 dims:1 raw_data:'abcdefgh'"), "expected 4 bytes of raw data, got 8"},
    {ADD_W("name:'w' data_type:1 dims:3"), "expected 3 elements, got 0"},
    {ADD_W("name:'w' data_type:1 dims:1 float_data:1.5 float_data:2.5"), "expected 1 elements, got 2"},
    {ADD_W("name:'w' data_type:1 dims:1 float_data:1.5 raw_data:'abcd'"), "several"},
    {ADD_W("name:'w' data_type:1 dims:1 int32_data:1"), "float_data"},
    {ADD_W("name:'w' data_type:1 dims:1 raw_data:'abcd' int64_data:1"), "several"},
    {ADD_W("name:'w' data_type:1 dims:-1 raw_data:'abcd'"), "negative"},
    {ADD_W("name:'w' data_type:1 dims:4611686018427387904 dims:4 raw_data:'abcd'"), "2^63"},
    {ADD_W("name:'w' data_type:1 dims:4611686018427387905 dims:0 dims:8"), "2^63"},
    {ADD_W("name:'w' data_type:1 dims:1099511627776 raw_data:'abcd'"), "got 4"},
    {ADD_W("name:'w' data_type:1 *13{dims:1} raw_data:'abcd'"), "rank"},
        {ADD_W("name:'w' data_type:8 dims:1 string_data:'a'"), "element type 8"},
    {ADD_W("name:'w' data_type:0 dims:1 raw_data:'abcd'"), "element type 0"}, {ADD_W("name:'w' dims:1 raw_data:'abcd'"),
        "element type"},
    {ADD_W("name:'w' data_type:-1 dims:1 raw_data:'abcd'"), "element type -1"},
    {ADD_W("name:'w' data_type:99 dims:1 raw_data:'abcd'"), "element type 99"},
        {ADD_W("data_type:1 dims:1 raw_data:'abcd'"), "no name"},
    {ADD_W("name:'x' data_type:1 dims:1 raw_data:'abcd'"), "nobody defines \"w\""},
    {ADD_W("name:'w' data_type:1 dims:1 raw_data:'abcd'} initializer{name:'w' data_type:1 dims:1 raw_data:'abcd'"),
        "twice"},
    {ADD_W("name:'w' data_type:1 dims:1 raw_data:'abcd' segment{begin:0 end:1}"), "segment"},
    {ADD_W("name:'w' data_type:7 dims:1 raw_data:'abcdefgh'"), "expected operands of one type"},
    {CONST_W("data_type:1 dims:1 float_data:1.5"), NULL}, {CONST_W("data_type:1 dims:2 float_data:1.5"),
        "expected 2 elements, got 1"},
    {CONST_W("data_type:1 dims:-2 float_data:1.5"), "negative"}, {CONST_W("data_type:8 dims:1 string_data:'a'"),
        "element type 8"},
    {ADD_W("name:'w' data_type:1 dims:1 data_location:1"), "location"},
    {ADD_W("name:'w' data_type:1 dims:1 data_location:1 external_data{key:'location' value:'w.bin'}"), "no folder"},
    {ADD_W("name:'w' data_type:1 dims:1 data_location:7 raw_data:'abcd'"), "data_location"},
    {ADD_W("name:'w' data_type:1 dims:1 data_location:1 raw_data:'abcd' external_data{key:'location' value:'w.bin'}"),
        "external"})

/* ---- shapes that computations on constants lead to ---------------------------------------- */

#define WITH_INTS(node, ints) WIRE_MODEL("node{" node " output:'y'}" ints WIRE_X WIRE_Y)

ONNXWIRE_TEST(
    sizes, {WITH_INTS("input:'x' input:'s' op_type:'Reshape'", WIRE_INTS("s", 1, "int64_data:7")), "element counts"},
    {WITH_INTS("input:'x' input:'s' op_type:'Reshape'", WIRE_INTS("s", 2, "int64_data:-1 int64_data:-1")),
     "stands twice"},
    {WITH_INTS("input:'x' input:'s' op_type:'Reshape'", WIRE_INTS("s", 1, "int64_data:-7")), "negative"},
    {WITH_INTS("input:'x' input:'s' op_type:'Reshape'", WIRE_INTS("s", 3, "int64_data:0 int64_data:0 int64_data:0")),
     "keep"},
    {WITH_INTS("input:'x' input:'s' op_type:'Reshape'", WIRE_INTS("s", 20, "*20{int64_data:1}")), "rank at most 12"},
    {WITH_INTS("input:'x' input:'s' op_type:'Reshape'", WIRE_INTS("s", 2, "*2{int64_data:4294967296}")), "2^63"},
    {WITH_INTS("input:'x' input:'x' op_type:'Reshape'", ""), "depends on data"},
    {WITH_INTS("input:'x' input:'s' op_type:'Expand'", WIRE_INTS("s", 2, "int64_data:-2 int64_data:3")), "got"},
    {WITH_INTS("input:'x' input:'s' op_type:'Expand'", WIRE_INTS("s", 3, "int64_data:-2 int64_data:2 int64_data:3")),
     "negative"},
    {WITH_INTS("input:'x' input:'s' op_type:'Expand'",
               WIRE_INTS("s", 3, "int64_data:9223372036854775807 int64_data:2 int64_data:3")),
     "2^63"},
    {WITH_INTS("input:'x' input:'s' op_type:'Tile'", WIRE_INTS("s", 2, "int64_data:-2 int64_data:1")), "negative"},
    {WITH_INTS("input:'x' input:'s' op_type:'Tile'", WIRE_INTS("s", 1, "int64_data:2")), "repeats"},
    {WITH_INTS("input:'s' op_type:'ConstantOfShape'", WIRE_INTS("s", 2, "int64_data:-2 int64_data:1")), "negative"},
    {WITH_INTS("input:'s' op_type:'ConstantOfShape'", WIRE_INTS("s", 2, "*2{int64_data:9223372036854775807}")), "2^63"},
    {WITH_INTS("input:'x' input:'s' op_type:'Pad'",
               WIRE_INTS("s", 4, "int64_data:-9223372036854775808 *3{int64_data:0}")),
     "pads"},
    {WITH_INTS("input:'x' input:'s' op_type:'Pad'",
               WIRE_INTS("s", 4, "int64_data:9223372036854775807 *3{int64_data:0}")),
     ""},
    {WITH_INTS("input:'x' input:'s' op_type:'Pad'",
               WIRE_INTS("s", 4, "int64_data:-1 int64_data:0 int64_data:-2 int64_data:0")),
     "axis 0"},
    {WITH_INTS("input:'x' input:'s' op_type:'Pad'", WIRE_INTS("s", 3, "*3{int64_data:0}")), "expected 4 entries"},
    {WITH_INTS("input:'a' input:'b' input:'s' op_type:'Range'",
               "initializer{name:'a' data_type:7 int64_data:0} initializer{name:'b' data_type:7 "
               "int64_data:10} initializer{name:'s' data_type:7 int64_data:-9223372036854775808}"),
     NULL},
    {WITH_INTS("input:'a' input:'b' input:'s' op_type:'Range'",
               "initializer{name:'a' data_type:7 int64_data:-9223372036854775808} initializer{name:'b' "
               "data_type:7 int64_data:9223372036854775807} initializer{name:'s' data_type:7 int64_data:1}"),
     ""},
    {WITH_INTS("input:'a' input:'b' input:'s' op_type:'Range'",
               "initializer{name:'a' data_type:7 int64_data:0} initializer{name:'b' data_type:7 "
               "int64_data:10} initializer{name:'s' data_type:7 int64_data:0}"),
     "not 0"},
    {WITH_INTS("input:'x' input:'s' input:'s' op_type:'Slice'", WIRE_INTS("s", 3, "*3{int64_data:0}")), "one length"},
    {WITH_INTS("input:'x' input:'s' input:'e' op_type:'Slice'",
               WIRE_INTS("s", 1, "int64_data:-9223372036854775808")
                   WIRE_INTS("e", 1, "int64_data:9223372036854775807")),
     NULL},
    {WITH_INTS("input:'x' input:'s' input:'e' input:'a' input:'t' op_type:'Slice'",
               WIRE_INTS("s", 1, "int64_data:9223372036854775807") WIRE_INTS("e", 1, "int64_data:-9223372036854775808")
                   WIRE_INTS("a", 1, "int64_data:1") WIRE_INTS("t", 1, "int64_data:-9223372036854775808")),
     NULL},
    {WITH_INTS("input:'x' input:'s' op_type:'TopK' output:'v'", WIRE_INTS("s", 1, "int64_data:4")), "exceeds axis"},
    {WITH_INTS("input:'x' input:'s' op_type:'TopK' output:'v'", WIRE_INTS("s", 1, "int64_data:-4")), "exceeds axis"},
    {WITH_INTS("input:'x' input:'s' op_type:'Split' output:'a'", WIRE_INTS("s", 2, "int64_data:3 int64_data:-1")), ""},
    {WITH_INTS("input:'x' input:'s' op_type:'Split' output:'a'", WIRE_INTS("s", 2, "int64_data:1 int64_data:2")), ""},
    {WITH_INTS("input:'x' input:'s' op_type:'Squeeze'", WIRE_INTS("s", 1, "int64_data:0")), "not size 1"},
    {WITH_INTS("input:'x' input:'s' op_type:'Unsqueeze'", WIRE_INTS("s", 1, "int64_data:9")), "expected an axis"},
    {WITH_INTS("input:'x' input:'s' op_type:'Unsqueeze'", WIRE_INTS("s", 2, "int64_data:0 int64_data:0")),
     "stands twice"},
    {WITH_INTS("input:'x' input:'s' op_type:'CumSum'", WIRE_INTS("s", 1, "int64_data:2")), "expected an axis"},
    {WITH_INTS("input:'x' op_type:'Transpose' attribute{name:'perm' type:7 ints:0 ints:0}", ""), "twice"},
    {WITH_INTS("input:'x' op_type:'Transpose' attribute{name:'perm' type:7 ints:0 ints:-1}", ""), "expected an axis"},
    {WITH_INTS("input:'x' op_type:'Transpose' attribute{name:'perm' type:7 ints:0}", ""), "expected 2 entries"},
    {WITH_INTS("input:'x' input:'s' op_type:'GatherND'", WIRE_INTS("s", 1, "int64_data:0")), NULL},
    {WITH_INTS("input:'x' op_type:'Cast' attribute{name:'to' type:2 i:99999999999}", ""), "element type"},
    {WITH_INTS("input:'x' op_type:'Softmax' attribute{name:'axis' type:2 i:-9223372036854775808}", ""),
     "expected an axis"},
    /* overflow on the way to a result that has none */
    {WIRE_MODEL("node{input:'e' input:'s' output:'y' op_type:'Tile'}" WIRE_VALUE("input", "e", 1,
                                                                                 WIRE_SYM("n") WIRE_DIM(0))
                    WIRE_Y WIRE_INTS("s", 2, "int64_data:4611686018427387904 int64_data:8")),
     "2^63"},
    {WIRE_MODEL("node{input:'e' input:'s' output:'y' output:'z' output:'u' op_type:'Split'}" WIRE_VALUE("input", "e", 9,
                                                                                                        WIRE_SYM("n"))
                    WIRE_Y WIRE_INTS("s", 3, "*3{int64_data:4611686018427387904}")),
     "unknown"},
    {WIRE_MODEL("node{input:'e' input:'s' output:'y' output:'z' op_type:'Split'}" WIRE_VALUE("input", "e", 9,
                                                                                             WIRE_SYM("n"))
                    WIRE_Y WIRE_INTS("s", 2, "*2{int64_data:4611686018427387904}")),
     "split: sizes must add up to the axis: expected sizes below 2^63"},
    /* lists without an element */
    {WITH_INTS("input:'s' op_type:'Identity'", WIRE_INTS("s", 0, "")), NULL},
    {WITH_INTS("input:'s' op_type:'Neg'", WIRE_INTS("s", 0, "")), NULL},
    {WITH_INTS("input:'s' input:'s' op_type:'Concat' attribute{name:'axis' type:2 i:0}", WIRE_INTS("s", 0, "")), NULL},
    {WITH_INTS("input:'s' input:'t' op_type:'Reshape'", WIRE_INTS("s", 0, "") WIRE_INTS("t", 1, "int64_data:-1")),
     NULL},
    {WITH_INTS("input:'s' op_type:'ReduceProd'", WIRE_INTS("s", 0, "")), NULL},
    {WITH_INTS("input:'x' input:'s' op_type:'Expand'", WIRE_INTS("s", 0, "")), NULL},
    {WITH_INTS("input:'v' op_type:'Shape'", "initializer{name:'v' data_type:1 float_data:1.0}"), NULL},
    /* more elements than the evaluator of sizes keeps */
    {WITH_INTS("input:'s' input:'i' op_type:'Gather'",
               WIRE_INTS("s", 1, "int64_data:7") WIRE_INTS("i", 3000, "*3000{int64_data:0}")),
     NULL},
    {WITH_INTS("input:'i' op_type:'Neg'", WIRE_INTS("i", 3000, "*3000{int64_data:5}")), NULL},
    {WITH_INTS("input:'i' op_type:'Identity'", WIRE_INTS("i", 4000, "*4000{int64_data:5}")), NULL},
    {WITH_INTS("input:'i' input:'i' op_type:'Add'", WIRE_INTS("i", 4000, "*4000{int64_data:5}")), NULL},
    {WITH_INTS("input:'i' input:'s' op_type:'Reshape'",
               WIRE_INTS("i", 4000, "*4000{int64_data:5}") WIRE_INTS("s", 1, "int64_data:-1")),
     NULL},
    {WITH_INTS("input:'i' input:'s' input:'e' op_type:'Slice'",
               WIRE_INTS("i", 4000, "*4000{int64_data:5}") WIRE_INTS("s", 1, "int64_data:0")
                   WIRE_INTS("e", 1, "int64_data:4000")),
     NULL})

UNIT_MAIN("frontend hostile", every_cut_is_refused, every_byte_may_be_wrong, wire_format, depth_is_limited,
          memory_is_limited, models, nodes, tensors, sizes)
