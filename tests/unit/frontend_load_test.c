/* Sizes: what the inputs leave open, what the command line fixes, what nodes compute from them; external weights. */
#include <sys/stat.h>

#include "frontend/frontend.h"
#include "tests/unit/onnxwire.h"

#define INPUT(name, dims) "input{name:'" name "' type{tensor_type{elem_type:1 shape{" dims "}}}}"
#define PARAM(text) "dim{dim_param:'" text "'}"
#define VALUE(n) "dim{dim_value:" #n "}"
#define INTS(name, n, values) \
  "initializer{name:'" name "' data_type:7 dims:" #n " int64_data:" values "}"
#define SCALAR(name, value) "initializer{name:'" name "' data_type:7 int64_data:" #value "}"
#define NODE(op, in, out) "node{" in " output:'" out "' op_type:'" op "'}"
#define CONCAT(in, out) \
  "node{" in " output:'" out "' op_type:'Concat' attribute{name:'axis' type:2 i:0}}"
#define MODEL(opset, text) "ir_version:10 opset_import{version:" #opset "} graph{name:'g' " text "}"

/* ---- symbols ------------------------------------------------------------------------------- */

static void write_bytes(const char *path, const void *data, size_t n) {
  UNIT_OK(moec_write_file(path, data, n, 0644));
}

/* Imports |text| as a file of folder |dir|. */
static moec_status *import_file(const char *dir, const char *text,
                                const moec_import_options *options, moec_module **out) {
  char path[256];
  moec_buf b = onnxwire(text);
  write_bytes(unit_path(path, dir, "model.onnx"), moec_buf_str(&b), b.size);
  moec_buf_fini(&b);
  return moec_import_onnx(path, options, out);
}

static char *type_text(const moec_module *m, moec_value v) {
  moec_buf b = {0};
  moec_type_print(&b, m, moec_value_get(moec_main(m), v)->type);
  char *s = strdup(moec_buf_str(&b));
  moec_buf_fini(&b);
  return s;
}

/* The types of the inputs of |text| with the sizes |options| fixes. */
static void check_inputs(const char *text, const moec_import_options *options,
                         const char *const *want) {
  moec_module *m;
  char *dir = unit_folder();
  UNIT_OK(import_file(dir, text, options, &m));
  for (size_t i = 0; want[i]; i++) {
    char *got = type_text(m, moec_main(m)->inputs[i]);
    ck_assert_str_eq(got, want[i]);
    free(got);
  }
  moec_module_destroy(m);
  unit_remove(dir);
}

#define THREE                                                                                \
  MODEL(17,                                                                                  \
        NODE("Abs", "input:'x'", "y") INPUT("x", PARAM("batch") PARAM("2*seq + 1") VALUE(4)) \
            INPUT("u", "dim{} " PARAM("dim_0") "dim{}") INPUT(                               \
                "v", PARAM("batch") PARAM("Max(1, seq)") PARAM("seq // 2")) "output{name:'y'}")

/* Sizes without a name get one that nobody has. */
START_TEST(open_sizes_are_symbols) {
  check_inputs(THREE, &(moec_import_options){0},
               (const char *const[]){"f32[batch, 2*seq + 1, 4]", "f32[dim_1, dim_0, dim_2]",
                                     "f32[batch, max(seq, 1), floordiv(seq, 2)]", NULL});
}
END_TEST

START_TEST(sizes_can_be_fixed) {
  const moec_dim_setting dims[] = {{"seq", 16}, {"dim_2", 3}};
  check_inputs(THREE, &(moec_import_options){.dims = dims, .n_dims = 2},
               (const char *const[]){"f32[batch, 33, 4]", "f32[dim_1, dim_0, 3]",
                                     "f32[batch, 16, 8]", NULL});
}
END_TEST

#define META(key, value) "metadata_props{key:'" key "' value:'" value "'}"
#define ADD_SCALED MODEL(17, "node{input:'x' input:'w' output:'y' op_type:'Mul'}" INPUT("x", VALUE(2)) \
  "initializer{name:'w' data_type:1 dims:2 float_data:1. float_data:2.} output{name:'y'}")

START_TEST(metadata_gives_defaults_and_buffers) {
  moec_module *m;
  UNIT_OK(onnxwire_import(ADD_SCALED META("moec.default.x", "0.1") META("author", "who"), &m));
  const moec_value_info *x = moec_value_get(moec_main(m), moec_main(m)->inputs[0]);
  ck_assert(x->has_default && x->dflt == (double)0.1f);
  ck_assert(moec_param_get(m, (moec_param){1})->trainable);
  moec_module_destroy(m);
  UNIT_OK(onnxwire_import(ADD_SCALED META("moec.trainable.w", "0"), &m));
  ck_assert(!moec_value_get(moec_main(m), moec_main(m)->inputs[0])->has_default);
  ck_assert(!moec_param_get(m, (moec_param){1})->trainable);
  moec_module_destroy(m);
}
END_TEST

ONNXWIRE_TEST(wrong_metadata_is_refused,
              {ADD_SCALED META("moec.default.x", "1 "),
                  "metadata_props: \"moec.default.x\": expected a number, got \"1 \""},
              {ADD_SCALED META("moec.default.x", ""), "expected a number, got \"\""},
              {ADD_SCALED META("moec.default.x", "nan"), "its default nan is no f32"},
              {ADD_SCALED META("moec.default.w", "1"), "the model has no input \"w\""},
              {ADD_SCALED META("moec.default.y", "1"), "the model has no input \"y\""},
              {ADD_SCALED META("moec.trainable.x", "0"), "the model has no initializer \"x\""},
              {ADD_SCALED META("moec.trainable.w", "yes"), "expected 0, got \"yes\""},
              {MODEL(17, NODE("Abs", "input:'x'",
                  "y") "input{name:'x' type{tensor_type{elem_type:7 shape{}}}} output{name:'y'}") META("moec.default.x",
                  "0.5"),
               "its default 0.5 is no i64"})

static const onnxwire_case wrong_inputs[] = {
    {MODEL(17, NODE("Abs", "input:'x'", "y") INPUT("x", PARAM("a $ b")) "output{name:'y'}"),
     "input \"x\": axis 0: size \"a $ b\": expected the end at column 3"},
    {MODEL(17, NODE("Abs", "input:'x'", "y") INPUT("x", VALUE(-1)) "output{name:'y'}"),
     "input \"x\": size of axis 0 is negative: -1"},
    {MODEL(17, NODE("Abs", "input:'x'", "y")
                   INPUT("x", PARAM("9223372036854775807*n*8")) "output{name:'y'}"),
     "64 bits"},
    {MODEL(17, NODE("Abs", "input:'x'", "y") INPUT("x", "*13{" VALUE(1) "}") "output{name:'y'}"),
     "rank at most 12, got 13"},
    {MODEL(17, NODE("Abs", "input:'x'", "y")
                   INPUT("x", "*2{" VALUE(4611686018427387904) "}") "output{name:'y'}"),
     "input \"x\""}};

START_TEST(wrong_sizes_are_named) {
  onnxwire_check(sizeof wrong_inputs / sizeof *wrong_inputs, wrong_inputs);
}
END_TEST

/* ---- what nodes compute from sizes ----------------------------------------------------------- */

/* Each makes 't', the target of a reshape of x: f32[b, s, 12]. */
static const struct {
  const char *nodes, *type;
} computed[] = {
    {INTS("t", 2, "0 int64_data:-1"), "f32[b, 12*s]"},
    {NODE("Shape", "input:'x'", "sh") NODE("Gather", "input:'sh' input:'i'", "bs") CONCAT(
         "input:'bs' input:'r'", "t") INTS("i", 2, "1 int64_data:0") INTS("r", 2, "3 int64_data:4"),
     "f32[s, b, 3, 4]"},
    /* the expanded Attention: groups of heads */
    {NODE("Equal", "input:'h' input:'g'", "e") NODE("Not", "input:'e'", "ne")
         NODE("Mod", "input:'h' input:'g'", "m") NODE("Equal", "input:'m' input:'z'", "em")
             NODE("And", "input:'ne' input:'em'", "c") NODE("Div", "input:'h' input:'g'", "d")
                 NODE("Where", "input:'c' input:'d' input:'o'", "k")
                     CONCAT("input:'n' input:'g' input:'k'", "t") INTS("h", 1, "12")
                         INTS("g", 1, "4") INTS("z", 1, "0") INTS("o", 1, "1") INTS("n", 1, "-1"),
     "f32[b*s, 4, 3]"},
    {NODE("Less", "input:'o' input:'g'", "c") NODE("Or", "input:'c' input:'c'", "c1") NODE(
         "Xor", "input:'c1' input:'f'", "c2") NODE("Where", "input:'c2' input:'g' input:'o'", "k")
         CONCAT("input:'n' input:'k'", "t") INTS("g", 1, "4") INTS("o", 1, "1") INTS("n", 1, "-1")
             NODE("Greater", "input:'o' input:'g'", "f"),
     "f32[3*b*s, 4]"},
    {NODE("Shape", "input:'x'", "sh") NODE("GreaterOrEqual", "input:'sh' input:'z'", "c")
         NODE("Where", "input:'c' input:'sh' input:'o'", "t") INTS("z", 1, "0") INTS("o", 1, "1"),
     "f32[b, s, 12]"},
    {NODE("Shape", "input:'x'", "sh") NODE("Equal", "input:'sh' input:'n'", "c")
         NODE("Where", "input:'c' input:'o' input:'sh'", "t") INTS("n", 1, "-1") INTS("o", 1, "1"),
     "f32[b, s, 12]"},
    {NODE("Shape", "input:'x'", "sh") NODE("LessOrEqual", "input:'n' input:'sh'", "c")
         NODE("Where", "input:'c' input:'sh' input:'n'", "t") INTS("n", 1, "-1"),
     "f32[b, s, 12]"},
    {NODE("Shape", "input:'x'", "sh") NODE("ReduceProd", "input:'sh'", "p")
         NODE("Reshape", "input:'p' input:'n'", "t") INTS("n", 1, "-1"),
     "f32[12*b*s]"},
    {NODE("Shape", "input:'x'", "sh") NODE(
         "Slice", "input:'sh' input:'a' input:'e' input:'z' input:'st'", "t") INTS("a", 1, "-1")
         INTS("e", 1, "-9223372036854775808") INTS("z", 1, "0") INTS("st", 1, "-1"),
     "f32[12, s, b]"},
    {NODE("Shape", "input:'x'", "sh")
         NODE("Slice", "input:'sh' input:'a' input:'e' input:'z' input:'st'", "q") INTS("a", 1, "1")
             INTS("e", 1, "9223372036854775807") INTS("z", 1, "0")
                 INTS("st", 1, "9223372036854775807") CONCAT("input:'q' input:'a'", "u")
                     NODE("Mul", "input:'u' input:'w'", "t") INTS("w", 2, "1 int64_data:-1"),
     "f32[s, 12*b]"},
};

START_TEST(targets_are_computed) {
  char text[4096];
  for (size_t i = 0; i < sizeof computed / sizeof *computed; i++) {
    moec_module *m;
    snprintf(text, sizeof text,
             MODEL(19, "%s" NODE("Reshape", "input:'x' input:'t'", "y")
                           INPUT("x", PARAM("b") PARAM("s") VALUE(12)) "output{name:'y'}"),
             computed[i].nodes);
    UNIT_OK(onnxwire_import(text, &m));
    char *got = type_text(m, moec_main(m)->outputs[0]);
    ck_assert_str_eq(got, computed[i].type);
    free(got);
    moec_module_destroy(m);
  }
}
END_TEST

/* A comparison that depends on the sizes is no constant: here it would shape a value, and is refused. */
static const onnxwire_case depends[] = {
    {MODEL(19, NODE("Shape", "input:'x'", "sh") NODE("Equal", "input:'sh' input:'o'", "c")
                   NODE("Where", "input:'c' input:'n' input:'sh'", "t")
                       NODE("Reshape", "input:'x' input:'t'", "y") INTS("o", 1, "4")
                           INTS("n", 1, "-1") INPUT("x", PARAM("b")) "output{name:'y'}"),
     "node 3 \"\" (Reshape-19): operand 1 \"t\" must be known from sizes"},
    {MODEL(19, NODE("Shape", "input:'x'", "sh") NODE("Greater", "input:'sh' input:'o'", "c")
                   NODE("Where", "input:'c' input:'sh' input:'o'", "t")
                       NODE("Reshape", "input:'x' input:'t'", "y") INTS("o", 1, "0")
                           INPUT("x", PARAM("b")) "output{name:'y'}"),
     "must be known from sizes"}, /* b may be 0 */
    /* a chain that multiplies sums until nothing holds them */
    {MODEL(19,
           NODE("Shape", "input:'x'", "s0") NODE("Slice", "input:'s0' input:'z' input:'o'", "a")
               NODE("Slice", "input:'s0' input:'o' input:'w'", "b") NODE(
                   "Add", "input:'a' input:'b'",
                   "c0") "node{input:'c0' input:'c0' output:'c1' op_type:'Mul'} node{input:'c1' "
                         "input:'c1' output:'c2' op_type:'Mul'} node{input:'c2' input:'c2' "
                         "output:'c3' op_type:'Mul'}"
                         "node{input:'c3' input:'c3' output:'c4' op_type:'Mul'} node{input:'c4' "
                         "input:'c4' output:'c5' op_type:'Mul'} node{input:'c5' input:'c5' "
                         "output:'c6' op_type:'Mul'}" NODE("Reshape", "input:'x' input:'c6'", "y")
                             INTS("z", 1, "0") INTS("o", 1, "1") INTS("w", 1, "2")
                                 INPUT("x", PARAM("p") PARAM("q")) "output{name:'y'}"),
     "node 10 \"\" (Reshape-19): operand 1 \"c6\" must be known from sizes"}};

START_TEST(what_depends_on_sizes_is_no_constant) {
  onnxwire_check(sizeof depends / sizeof *depends, depends);
}
END_TEST

/* Large constants stay constants: nothing is allocated for their elements. */
START_TEST(huge_results_need_no_memory) {
  static const char *const texts[] = {
      MODEL(19, NODE("ConstantOfShape", "input:'t'", "y")
                    INTS("t", 2, "1073741824 int64_data:1073741824") "output{name:'y'}"),
      MODEL(19, NODE("Range", "input:'z' input:'n' input:'o'", "y") SCALAR("z", 0) SCALAR("o", 1)
                    SCALAR("n", 1000000000000000) "output{name:'y'}"),
      MODEL(19, NODE("Expand", "input:'x' input:'t'", "y") INTS("t", 1, "1000000000000000")
                    INPUT("x", VALUE(1)) "output{name:'y'}"),
      MODEL(19, NODE("Tile", "input:'x' input:'t'", "y") INTS("t", 1, "1000000000000000")
                    INPUT("x", VALUE(3)) "output{name:'y'}"),
      MODEL(19, NODE("Pad", "input:'x' input:'t'", "y")
                    INTS("t", 2, "1000000000000000 int64_data:1000000000000000")
                        INPUT("x", VALUE(3)) "output{name:'y'}"),
      MODEL(19,
            NODE("OneHot", "input:'i' input:'n' input:'v'", "y") INTS("i", 3, "1 *2{int64_data:2}")
                SCALAR("n", 1000000000000000) "initializer{name:'v' data_type:1 dims:2 "
                                              "float_data:0.0 float_data:1.0} output{name:'y'}")};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    moec_module *m = NULL;
    moec_status *s = onnxwire_import(texts[i], &m);
    if (s) ck_abort_msg("%zu: %s", i, moec_status_message(s));
    ck_assert_uint_lt(moec_arena_bytes(m->arena), 1 << 20);
    moec_module_destroy(m);
  }
}
END_TEST

/* ---- external weights ------------------------------------------------------------------------ */

#define WEIGHTS(location)                                                                     \
  MODEL(17,                                                                                   \
        "node{input:'x' input:'w' output:'y' op_type:'Add' name:'add'} initializer{name:'w' " \
        "data_type:1 dims:4 data_location:1"                                                  \
        " external_data{key:'location' value:'" location                                      \
        "'}}" INPUT("x", VALUE(4)) "output{name:'y'}")

/* |error|: NULL where the import works; the weights are looked at then. */
static void check_weights(const char *dir, const char *weights_dir, const char *text,
                          const char *error) {
  const moec_import_options options = {.weights_dir = weights_dir};
  moec_module *m = NULL;
  moec_tensor w;
  moec_status *s = import_file(dir, text, &options, &m);
  if (error) {
    UNIT_FAILS(s, MOEC_INVALID_MODEL, error);
    return;
  }
  UNIT_OK(s);
  UNIT_OK(moec_param_load(m, (moec_param){1}, &w));
  ck_assert(((const float *)w.data)[3] == 4);
  moec_tensor_fini(&w);
  moec_module_destroy(m);
}

/* Beside the model no link is followed. In a folder that the user names, links are (it may be a cache of links), but
 * only plain names are opened. */
START_TEST(weights_are_beside_the_model_or_in_a_named_folder) {
  static const float data[4] = {1, 2, 3, 4};
  char *dir = unit_folder(), *other = unit_folder(), path[256], target[256];
  write_bytes(unit_path(path, other, "real.bin"), data, sizeof data);
  write_bytes(unit_path(path, dir, "plain.bin"), data, sizeof data);
  ck_assert_int_eq(symlink(unit_path(target, other, "real.bin"), unit_path(path, dir, "link.bin")),
                   0);
  ck_assert_int_eq(symlink("real.bin", unit_path(path, other, "link.bin")), 0);
  ck_assert_int_eq(mkdir(unit_path(path, other, "sub"), 0755), 0);
  ck_assert_int_eq(mkdir(unit_path(path, dir, "sub"), 0755), 0);
  write_bytes(unit_path(path, other, "sub/w.bin"), data, sizeof data);
  write_bytes(unit_path(path, dir, "sub/w.bin"), data, sizeof data);

  check_weights(dir, NULL, WEIGHTS("plain.bin"), NULL);
  check_weights(dir, NULL, WEIGHTS("sub/w.bin"), NULL);
  check_weights(dir, NULL, WEIGHTS("link.bin"), "symbolic link");
  check_weights(dir, NULL, WEIGHTS("../x"), "'..'");
  check_weights(dir, NULL, WEIGHTS("/etc/passwd"), "absolute");
  check_weights(dir, NULL, WEIGHTS("sub"), "a folder");
  check_weights(dir, other, WEIGHTS("real.bin"), NULL);
  check_weights(dir, other, WEIGHTS("link.bin"), NULL);
  check_weights(dir, other, WEIGHTS("plain.bin"), "plain.bin");
  check_weights(dir, other, WEIGHTS("sub/w.bin"), "plain file name");
  check_weights(dir, other, WEIGHTS("../x"), "plain file name");
  check_weights(dir, other, WEIGHTS(".."), "plain file name");
  check_weights(dir, other, WEIGHTS("."), "plain file name");
  check_weights(dir, other, WEIGHTS("/etc/passwd"), "plain file name");
  unit_remove(dir), unit_remove(other);
}
END_TEST

/* The nodes of ONNX's own definition of Attention, as its reference writes them. */
START_TEST(the_expanded_attention_is_read) {
  moec_module *m;
  UNIT_OK(moec_import_onnx("tests/fuzz/corpus/fuzz_onnx/expanded_attention",
                           &(moec_import_options){0}, &m));
  char *got = type_text(m, moec_main(m)->outputs[0]);
  ck_assert_str_eq(got, "f32[b, s, 32]");
  free(got);
  moec_module_destroy(m);
}
END_TEST

UNIT_MAIN("frontend load", metadata_gives_defaults_and_buffers, wrong_metadata_is_refused, open_sizes_are_symbols,
          sizes_can_be_fixed, wrong_sizes_are_named, targets_are_computed, what_depends_on_sizes_is_no_constant,
          huge_results_need_no_memory, weights_are_beside_the_model_or_in_a_named_folder,
          the_expanded_attention_is_read)
