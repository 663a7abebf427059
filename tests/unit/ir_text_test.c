/* The text form: what is printed is read back to the same bytes; what is wrong has a line and a column. */
#include <dirent.h>

#include "ir/ir.h"
#include "tests/unit/unit.h"

static char *text_of(const moec_module *m) {
  moec_buf b = {0};
  moec_print(&b, m);
  char *s = strdup(moec_buf_str(&b));
  moec_buf_fini(&b);
  ck_assert_ptr_nonnull(s);
  return s;
}

/* Read and printed; the module verifies, and a copy of it prints the same. */
static char *reprint(const char *text) {
  moec_module *m;
  UNIT_OK(moec_parse(text, &m));
  UNIT_OK(moec_verify(m));
  moec_module *copy = moec_module_clone(m);
  char *s = text_of(m), *same = text_of(copy);
  ck_assert_str_eq(s, same);
  UNIT_OK(moec_verify(copy));
  moec_module_destroy(m), moec_module_destroy(copy);
  free(same);
  return s;
}

static char *read_text(const char *path) {
  moec_map map;
  UNIT_OK(moec_map_user_file(path, &map));
  char *s = calloc(map.size + 1, 1);
  ck_assert_ptr_nonnull(s);
  memcpy(s, map.data, map.size);
  moec_unmap(&map);
  return s;
}

/* Every tests/ir/X.ir is in the form that the printer writes. */
START_TEST(test_files) {
  DIR *dir = opendir("tests/ir");
  int count = 0;
  ck_assert_ptr_nonnull(dir);
  for (struct dirent *e; (e = readdir(dir));) {
    char path[512];
    if (!strstr(e->d_name, ".ir")) continue;
    snprintf(path, sizeof path, "tests/ir/%s", e->d_name);
    char *want = read_text(path), *got = reprint(want);
    if (getenv("MOEC_UPDATE"))
      UNIT_OK(moec_write_file(path, got, strlen(got), 0644));
    else
      ck_assert_str_eq(want, got);
    free(want), free(got);
    count++;
  }
  closedir(dir);
  ck_assert_int_ge(count, 3);
}
END_TEST

/* Any spelling, one canonical text. */
static const struct {
  const char *in, *out;
} spellings[] = {
    {"module \"\"{}\nfn @\"main\"(%1\"x\":f32[n//2,-1+n+2])->(%1\"\"){}",
     "module \"\" {\n  symbols n\n}\nfn @\"main\"(%1 \"x\" : f32[floordiv(n, 2), n + 1]) -> (%1 "
     "\"\") {\n}\n"},
    {"; a comment\nmodule \"\\x41\" { symbols b, a ; another\n}\nfn @\"f\"(%1 \"\" : f32[a*b*2]) "
     "-> (%1 \"\") { }",
     "module \"A\" {\n  symbols b, a\n}\nfn @\"f\"(%1 \"\" : f32[2*a*b]) -> (%1 \"\") {\n}\n"}};

START_TEST(test_spellings) {
  for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
    char *got = reprint(spellings[i].in);
    ck_assert_str_eq(got, spellings[i].out);
    free(got);
  }
}
END_TEST

/* Names of any bytes but NUL, in every place that has one. */
START_TEST(test_names) {
  char name[256];
  for (int i = 1; i < 256; i++) name[i - 1] = (char)i;
  name[255] = 0;
  moec_module *m = moec_module_create();
  m->name = moec_sym_make(m, name);
  moec_graph *g = moec_fn_get(m, moec_fn_add(m, name));
  moec_dim n = moec_dim_symbol(m, "l\xc3\xa4nge");
  moec_type t = moec_type_make(m, MOEC_F32, 1, &n);
  moec_value x = moec_add_input(g, name, t);
  moec_node node;
  g->loc = moec_sym_make(m, name);
  UNIT_OK(moec_add_node(g, MOEC_OP_NEG, NULL, 1, &x, 1, &node));
  moec_add_output(g, name, moec_out(g, node, 0));
  moec_constrain_equal(m, n, moec_dim_const(m, 4), name, name);
  char *first = text_of(m), *second = reprint(first);
  ck_assert_str_eq(first, second);
  free(first), free(second);
  moec_module_destroy(m);
}
END_TEST

#define HEAD "module \"\" {\n}\n"
#define BODY(text) HEAD "fn @\"main\"(%1 \"x\" : f32[2]) -> (%2 \"y\") {\n  " text "\n}\n"

static const struct {
  const char *text, *error;
} wrong[] = {
    {"", "line 1, column 1: expected 'module'"},
    {"module x", "line 1, column 8: expected '\"'"},
    {"module \"x\n\"", "line 1, column 9: expected a closing quote"},
    {"module \"\\q\" {}", "line 1, column 9: expected \\xHH"},
    {"module \"\\x00\" {}", "expected \\xHH"},
    {"module \"\" {\n  what\n}", "line 2, column 3: expected symbols, constraint"},
    {HEAD, "line 3, column 1: expected a function"},
    {BODY("%2 = call(%1) {fn = @\"main\"#2} : f32[2]"), "there is no function @\"main\"#2"},
    {BODY("%2 = call(%1) {fn = @\"main\"#0} : f32[2]"), "there is no function @\"main\""},
    {HEAD "  fn @\"a\"() -> () {}", "expected 'fn' at the start of a line"},
    {HEAD "fn @\"a\"() -> (%1 \"\") {\n}", "line 3, column 15: value %1 is not defined"},
    {BODY("%3 = neg(%1) : f32[2]"), "line 4, column 5: expected %2, got %3"},
    {BODY("%2 = neg(%3) : f32[2]"), "line 4, column 12: value %3 is not defined"},
    {BODY("%2 = neg(%0) : f32[2]"), "expected a value from %1 on"},
    {" fn", "expected 'module'"},
    {HEAD " fn @\"a\"() -> () {\n}\nfn @\"b\"() -> () {\n}\n", "expected 'fn' at the start of a line"},
    {"module \"\" {\n  symbols n, 3\n}\n", "line 2, column 13: expected the name of a symbol, got '3'"},
    {"module \"\" {\n  param @\"w\" : f32[] {trainable = true, group = dense, shard_axis = 4294967296",
        "expected an axis or -1"},
    {BODY("%2 = nope(%1) : f32[2]"), "line 4, column 12: there is no op 'nope'"},
    {BODY("%2 = neg(%1) : f32[2"), "line 5, column 1: expected ','"},
    {BODY("%2 = neg(%1) : f33[2]"), "expected an element type, got 'f33'"},
    {BODY("%2 = neg(%1) : f32[1,1,1,1,1,1,1,1,1,1,1,1,1]"), "expected at most 12 axes"},
    {BODY("%2 = cumsum(%1) {axis = 0} : f32[2]"), "line 4, column 28: expected ','"},
    {BODY("%2 = cumsum(%1) {axis = x, reverse = true, exclusive = true} : f32[2]"),
     "expected an integer"},
    {BODY("%2 = cumsum(%1) {axis = 99999999999999999999, reverse = true, exclusive = true} : "
          "f32[2]"),
     "64 bits"},
    {BODY("%2 = cumsum(%1) {axis = 0, reverse = yes, exclusive = true} : f32[2]"),
     "expected 'false'"},
    {BODY("%2 = rms_norm(%1) {eps = x} : f32[2]"), "expected a number"},
    {BODY("%2 = call(%1) {fn = @\"f\"} : f32[2]"), "there is no function @\"f\""},
    {BODY("%2 = param() {param = @\"w\"} : f32[2]"), "there is no parameter @\"w\""},
    {BODY("%2 = const() {data = f32[n] [1]} : f32[2]"), "expected constant sizes"},
    {BODY("%2 = const() {data = f32[2] [1]} : f32[2]"), "expected ','"},
    {BODY("%2 = const() {data = f32[4000000000000] [1]} : f32[2]"), "no larger than its text"},
    {BODY("%2 = const() {data = u8[6] base64 \"AAAA\"} : u8[6]"), "expected base64 of 6 bytes"},
    {BODY("%2 = const() {data = u8[3] base64 \"A?AA\"} : u8[3]"), "expected base64"},
    {BODY("%2 = neg(%1) : f32[2 +]"), "line 4, column 22: size"},
    {"module \"\" {\n  param @\"w\" : f32[2] {trainable = true, group = dense, shard_axis = -1, "
     "tie = 0, storage = f32, compute = f32, master = none, pieces = [{name = \"\", file = 0, "
     "offset = 0, dtype = f32, shape = [2], perm = [0], start = [0]}]}\n}\n",
     "expected a file number below 0"},
    {"module \"\" {\n  param @\"w\" : f32[2] {trainable = true, group = dense, shard_axis = -1, "
     "tie = -1, storage = f32",
     "unsigned integer of 32 bits"}};

START_TEST(test_wrong_texts) {
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    moec_module *m = NULL;
    moec_status *s = moec_parse(wrong[i].text, &m);
    if (!s) ck_abort_msg("no error in:\n%s", wrong[i].text);
    UNIT_TRUE(!m);
    UNIT_FAILS(s, MOEC_INVALID_MODEL, wrong[i].error);
  }
}
END_TEST

/* Well-formed texts that the verifier refuses. */
#define PARAM(storage, pieces)                                                                \
  "module \"\" {\n  file \"\"\n  param @\"w\" : f32[2, 3] {trainable = true, group = dense, " \
  "shard_axis = -1, tie = 0, storage = " storage                                              \
  ", compute = f32, master = none, pieces = [{name = \"\", " pieces                           \
  "}]}\n}\nfn @\"main\"(%1 \"\" : f32[]) -> (%1 \"\") {\n}\n"
static const struct {
  const char *text, *error;
} invalid[] = {
    {BODY("%2 = neg(%1) : f32[3]"), "result 0: expected f32[2], got f32[3]"},
    {BODY("%2 = neg() : f32[2]"), "expected 1 to 1 operands, got 0"},
    {BODY("%2 = neg(_) : f32[2]"), "operand 0 is absent"},
    {BODY("%2 = cast(%1) {dtype = none} : none[2]"), "expected an element type, got none"},
    {BODY("%2 = call(%1) {fn = @\"main\"} : f32[2]"), "calls itself"},
    {BODY("%2 = neg(%2) : f32[2]"), "depends on itself"},
    {PARAM("none",
           "file = 0, offset = 0, dtype = f32, shape = [2, 3], perm = [0, 1], start = [0, 0]"),
     "expected element types"},
    {PARAM("f32",
           "file = 0, offset = 0, dtype = none, shape = [2, 3], perm = [0, 1], start = [0, 0]"),
     "piece 0: expected an element type"},
    {PARAM("f32",
           "file = 0, offset = 0, dtype = f32, shape = [2, 3], perm = [0, 0], start = [0, 0]"),
     "no permutation"},
    {PARAM("f32",
           "file = 0, offset = 0, dtype = f32, shape = [3, 2], perm = [0, 1], start = [0, 0]"),
     "not inside"},
    {PARAM("f32",
           "file = 0, offset = 0, dtype = f32, shape = [2, 3], perm = [0, 1], start = [0, 1]"),
     "not inside"},
    {PARAM("f32",
           "file = 0, offset = 0, dtype = f32, shape = [2, -3], perm = [0, 1], start = [0, 0]"),
     "not inside"}};

START_TEST(test_invalid_modules) {
  for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++) {
    moec_module *m;
    UNIT_OK(moec_parse(invalid[i].text, &m));
    UNIT_FAILS(moec_verify(m), MOEC_INVALID_MODEL, invalid[i].error);
    moec_module_destroy(m);
  }
}
END_TEST

/* Cut anywhere, a text is an error or, where only the end is missing, still the module. */
START_TEST(test_cut_texts) {
  char *text = read_text("tests/ir/header.ir");
  size_t n = strlen(text), good = 0;
  while (n) {
    moec_module *m = NULL;
    text[--n] = 0;
    moec_status *s = moec_parse(text, &m);
    UNIT_TRUE(!s == (m != NULL));
    good += !s;
    moec_status_free(s);
    moec_module_destroy(m);
  }
  ck_assert_uint_le(good, 1);
  free(text);
}
END_TEST

UNIT_MAIN("ir_text", test_files, test_spellings, test_names, test_wrong_texts, test_invalid_modules,
          test_cut_texts)
