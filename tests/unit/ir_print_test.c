/* The text form of single nodes of every op, of texts made to hurt, and of modules that are broken. */
#include "ir/ir.h"
#include "tests/unit/unit.h"

#define HEAD "module \"\" {\n}\n"

static char *print(const moec_module *m) {
  moec_buf b = {0};
  moec_print(&b, m);
  return b.data; /* the caller frees it */
}

/* A module with one node of op |op|: the parser checks neither arity nor types. */
static char *text_of_op(const moec_op_info *info) {
  static const char *const values[] = {
      [MOEC_ATTR_I] = "-3",          [MOEC_ATTR_F] = "0x1p-1",      [MOEC_ATTR_B] = "true",     [MOEC_ATTR_E] = "bf16",
      [MOEC_ATTR_S] = "\"s\"",       [MOEC_ATTR_INTS] = "[1, 2]",   [MOEC_ATTR_DIMS] = "[3, ?]", [MOEC_ATTR_DIM] =
      "n + 7",
      [MOEC_ATTR_FN] = "@\"main\"", [MOEC_ATTR_PARAM] = "@\"w\"", [MOEC_ATTR_DATA] = "i8[1] [4]"};
  moec_buf b = {0};
  moec_buf_puts(
      &b,
      "module \"\" {\n  symbols n\n  param @\"w\" : f32[] {trainable = true, group = dense, shard_axis = -1, tie = 0, "
      "storage = f32, compute = f32, master = none, pieces = []}\n}\nfn @\"main\"() -> () {\n");
  moec_buf_printf(&b, "  %%1 = %s(%%1, _)", info->text);
  for (uint32_t i = 0; i < info->n_attrs; i++)
    moec_buf_printf(&b, "%s%s = %s", i ? ", " : " {", info->attrs[i].name, values[info->attrs[i].kind]);
  moec_buf_printf(&b, "%s : f32[2]\n}\n", info->n_attrs ? "}" : "");
  return b.data;
}

START_TEST(every_op_prints_as_it_reads) {
  for (int op = 1; op < MOEC_OP_COUNT; op++) {
    char *text = text_of_op(moec_op_get((moec_op)op));
    moec_module *m = NULL;
    UNIT_OK(moec_context(moec_parse(text, &m), "%s", text));
    char *got = print(m);
    ck_assert_str_eq(got, text);
    free(got);
    free(text);
    moec_module_destroy(m);
  }
}
END_TEST

/* head, n times part, tail: an error, within little memory and time. */
static void check_hostile(const char *head, const char *part, size_t n, const char *tail) {
  moec_buf b = {0};
  moec_module *m = NULL;
  moec_buf_puts(&b, head);
  for (size_t i = 0; i < n; i++) moec_buf_puts(&b, part);
  moec_buf_puts(&b, tail);
  UNIT_FAILS(moec_parse(moec_buf_str(&b), &m), MOEC_INVALID_MODEL, "line ");
  moec_buf_fini(&b);
}

START_TEST(hostile_texts_end_soon) {
  check_hostile(HEAD "fn @\"main\"(%1 \"\" : f32[", "(", 100000, "");
  check_hostile(HEAD "fn @\"main\"(%1 \"\" : f32[", "-", 100000, "a]) -> () {\n}\n");
  check_hostile(HEAD "fn @\"main\"(%1 \"\" : f32[a", "//b", 100000, "]) -> () {\n}\n");
  check_hostile(HEAD "fn @\"main\"(%1 \"\" : f32[", "a", 100000, "]) -> () {\n}\n");
  check_hostile("module \"", "a", 1000000, "");
  check_hostile(HEAD, "fn @\"\"() -> () {\n", 100000, "");
  check_hostile(HEAD "fn @\"main\"() -> () {\n  ", "a", 100000, "()\n}\n");
  check_hostile(HEAD "fn @\"main\"() -> () {\n  %1 = const() {data = i8[0] ", "[", 100000, "");
  check_hostile(HEAD "fn @\"main\"() -> () {\n", "  %1 = const() {data = f64[1000000] []} : f64[]\n", 1000, "}\n");
}
END_TEST

START_TEST(broken_modules_print_too) {
  moec_module *m = moec_module_create();
  moec_graph *g = moec_fn_get(m, moec_fn_add(m, "main"));
  moec_value x = moec_add_input(g, "x", (moec_type){0});
  moec_node n;
  UNIT_OK(moec_add_node(g, MOEC_OP_SIZE, &(moec_attrs_SIZE){.value = moec_dim_const(m, 3)}, 0, NULL, 1, &n));
  moec_attrs_CALL call = {.fn = {7}};
  moec_attrs_PARAM param = {.param = {7}};
  moec_attrs_CONST data = {0};
  moec_node_get(g, n)->op = MOEC_OP_CALL, moec_node_get(g, n)->attrs = &call;
  moec_add_output(g, "", x);
  moec_add_output(g, "", (moec_value){9});
  char *text = print(m);
  ck_assert_str_eq(text,
                   "module \"\" {\n}\nfn @\"main\"(%1 \"x\" : none[]) -> (%1 \"\", %0 \"\") {\n  %2 = call() {fn = "
                   "@\"\"} : i64[]\n}\n");
  free(text);
  moec_node_get(g, n)->op = MOEC_OP_PARAM, moec_node_get(g, n)->attrs = &param;
  text = print(m);
  ck_assert_ptr_nonnull(strstr(text, "param = @\"\"}"));
  free(text);
  moec_node_get(g, n)->op = MOEC_OP_CONST, moec_node_get(g, n)->attrs = &data;
  text = print(m);
  ck_assert_ptr_nonnull(strstr(text, "data = none[]}"));
  free(text);
  moec_module_destroy(m);
}
END_TEST

UNIT_MAIN("ir_print", every_op_prints_as_it_reads, hostile_texts_end_soon, broken_modules_print_too)
