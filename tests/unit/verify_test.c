/* moec_verify: what it refuses, in texts and in modules that no text could hold. */
#include "ir/ir.h"
#include "tests/unit/unit.h"

#define HEAD "module \"\" {\n  symbols n\n}\n"
#define MAIN(inputs, results, nodes) HEAD "fn @\"main\"(" inputs ") -> (" results ") {\n" nodes "}\n"
#define X "%1 \"x\" : f32[n, 4]"
#define RECORD "trainable = true, group = dense, shard_axis = -1, tie = 0, storage = f32, compute = f32, master = " \
  "none, "
#define PARAM(type, attrs) "module \"\" {\n  symbols n\n  file \"f\"\n  param @\"w\" : " type " {" attrs \
  "}\n}\nfn @\"main\"() -> () {\n}\n"
#define BODY "fn @\"body\"(%1 \"\" : i64[], %2 \"\" : bool[]) -> (%2 \"\") {\n}\n"

static const struct { const char *text, *message;
} broken[] = {
    /* defaults */
    {MAIN("%1 \"x\" : i64[n] = 0.5", "", ""), "input 0 \"x\": its default 0.5 is no i64"},
    {MAIN("%1 \"x\" : f32[n] = nan", "", ""), "its default nan is no f32"},
    {MAIN("%1 \"x\" : bool[n] = 2", "", ""), "its default 2 is no bool"},
    /* types and arities */
    {MAIN("%1 \"x\" : none[]", "", ""), "function @\"main\": input 0 \"x\": it has no type"},
    {MAIN("%1 \"x\" : f32[?]", "", ""), "the size of axis 0 is unknown"},
    {MAIN("%1 \"x\" : f32[-1]", "", ""), "the size of axis 0 is negative: -1"},
    {MAIN(X, "", "  %2 = neg() : f32[n, 4] @\"loc\"\n"),
     "function @\"main\": node 1 \"loc\" (neg): expected 1 to 1 operands, got 0"},
    {MAIN(X, "", "  %2 = neg(_) : f32[n, 4]\n"), "operand 0 is absent"},
    {MAIN(X, "", "  %2, %3 = neg(%1) : f32[n, 4], f32[]\n"), "expected 1 to 1 results, got 2"},
    {MAIN(X, "", "  %2 = neg(%1) : f32[n, 5]\n"), "result 0: expected f32[n, 4], got f32[n, 5]"},
    {MAIN(X, "", "  %2 = neg(%1) : none[]\n"), "result 0: expected f32[n, 4], got none[]"},
    {MAIN(X, "", "  %2 = cast(%1) {dtype = none} : none[n, 4]\n"), "result 0"},
    {MAIN(X, "", "  %2 = softmax(%1) {axis = 2} : f32[n, 4]\n"),
     "axis: expected an axis in 0..1, got 2"},
    {MAIN(X, "", "  %2 = softmax(%1) {axis = -1} : f32[n, 4]\n"),
     "axis: expected an axis in 0..1, got -1"},
    {MAIN(X, "", "  %2 = reduce_sum(%1) {axes = [1, 0]} : f32[]\n"), "ascending"},
    {MAIN(X, "",
          "  %2 = add(%1, %3) : f32[n, 4]\n  %3 = iota() {dtype = f32, shape = [4], axis = 0} : "
          "f32[4]\n"),
     "expected operands of one type"},
    /* rules beside inference */
    {MAIN("%1 \"\" : i32[2]", "", "  %2 = exp(%1) : i32[2]\n"),
     "(exp): expected floats, got i32[2]"},
    {MAIN("%1 \"\" : i32[2]", "", "  %2 = isnan(%1) : bool[2]\n"), "expected floats"},
    {MAIN("%1 \"\" : bool[2]", "", "  %2 = reduce_sum(%1) {axes = [0]} : bool[]\n"),
     "expected numbers, got bool[2]"},
    {MAIN("%1 \"\" : bool[2]", "",
          "  %2 = cumsum(%1) {axis = 0, reverse = false, exclusive = false} : bool[2]\n"),
     "expected numbers"},
    {MAIN("", "", "  %1 = iota() {dtype = bool, shape = [4], axis = 0} : bool[4]\n"),
     "expected an integer or float dtype"},
    {MAIN("", "", "  %1 = iota() {dtype = none, shape = [4], axis = 0} : none[4]\n"),
     "expected an integer or float dtype"},
    {MAIN("%1 \"\" : i64[2, 2]", "",
          "  %2, %3, %4 = moe.plan(%1) {experts = 9223372036854775807} : i32[4], i32[4], i32[1]\n"),
     "experts: expected a number of 32 bits"},
    {MAIN("%1 \"\" : f32[1, 1, 4], %2 \"\" : f32[1, 1, 1]", "",
          "  %3 = conv(%1, %2) {strides = [1], pads = [9223372036854775807, 1], dilations = [1], "
          "groups = 1} : f32[]\n"),
     "pads: expected a number of 32 bits"},
    {MAIN("%1 \"\" : f32[1, 2, 4], %2 \"\" : f32[3, 1, 1]", "",
          "  %3 = conv(%1, %2) {strides = [1], pads = [0, 0], dilations = [1], groups = 2} : "
          "f32[1, 3, 4]\n"),
     "expected groups to divide M"},
    /* order */
    {MAIN(X, "%2 \"\"", "  %2 = add(%1, %3) : f32[n, 4]\n  %3 = neg(%2) : f32[n, 4]\n"),
     "depends on itself"},
    {MAIN(X, "%2 \"\"",
          "  %2 = neg(%3) : f32[n, 4] @\"behind\"\n  %3 = neg(%3) : f32[n, 4] @\"on it\"\n"),
     "node 2 \"on it\" (neg) depends on itself"},
    /* functions */
    {HEAD "fn @\"f\"() -> (%1 \"\") {\n  %1 = call() {fn = @\"f\"} : f32[]\n}\n",
     "function @\"f\" calls itself"},
    {MAIN("%1 \"\" : f32[n, 4], %2 \"\" : i32[n]", "",
          "  %3 = cross_entropy(%1, %2) {ignore = -100} : f32[n]\n"),
     "labels[T]: expected i64[n], got i32[n]"},
    {MAIN("%1 \"\" : f32[3, 4], %2 \"\" : i64[2]", "",
          "  %3 = cross_entropy(%1, %2) {ignore = -100} : f32[3]\n"),
     "labels[T]"},
    {MAIN("%1 \"\" : i32[n, 4], %2 \"\" : i64[n]", "",
          "  %3 = cross_entropy(%1, %2) {ignore = -100} : f32[n]\n"),
     "expected floats, got i32[n, 4]"},
    {MAIN("%1 \"\" : f32[n, 4], %2 \"\" : f32[n, 3], %3 \"\" : i64[2]", "",
          "  %4 = moe.grouped_outer(%1, %2, %3) : f32[1, 4, 3]\n"),
     "offsets[E+1]: expected i32 of rank 1, got i64[2]"},
    {MAIN("%1 \"\" : f32[n, 4], %2 \"\" : f16[n, 3], %3 \"\" : i32[2]", "",
          "  %4 = moe.grouped_outer(%1, %2, %3) : f32[1, 4, 3]\n"),
     "x[N,K]: expected f32[n, 3], got f16[n, 3]"},
    {MAIN("%1 \"\" : f32[5, 4], %2 \"\" : f32[6, 3], %3 \"\" : i32[2]", "",
          "  %4 = moe.grouped_outer(%1, %2, %3) : f32[1, 4, 3]\n"),
     "x[N,K]"},
    {MAIN("%1 \"\" : f32[n, 4], %2 \"\" : f32[n, 3], %3 \"\" : i32[3]", "",
          "  %4 = moe.grouped_outer(%1, %2, %3) : f32[2, 3, 4]\n"),
     "result 0: expected f32[2, 4, 3], got f32[2, 3, 4]"},
    {MAIN("%1 \"\" : f32[n, 4], %2 \"\" : i32[0]", "",
          "  %3 = moe.group_sum(%1, %2) : f32[0, 4]\n"),
     "offsets[E+1]: expected at least 1 element, got i32[0]"},
    {MAIN("%1 \"\" : i64[n, 4], %2 \"\" : i32[3]", "",
          "  %3 = moe.group_sum(%1, %2) : i64[2, 4]\n"),
     "expected floats"},
    {HEAD "fn @\"f\"() -> (%1 \"\") {\n  %1 = call() {fn = @\"g\"} : f32[]\n}\nfn @\"g\"() -> (%1 "
          "\"\") {\n  %1 = "
          "call() {fn = @\"f\"} : f32[]\n}\n",
     "function @\"f\" calls itself"},
    {MAIN(X, "", "  %2 = call(%1) {fn = @\"f\"} : f32[]\n") "fn @\"f\"() -> () {\n}\n",
     "expected 0 operands, got 1"},
    {MAIN(X, "",
          "  %2 = call(%1) {fn = @\"f\"} : f32[]\n") "fn @\"f\"(%1 \"\" : f32[]) -> () {\n}\n",
     "operand 0: expected f32[], got f32[n, 4]"},
    {MAIN(X, "", "  %2 = call(%1) {fn = @\"f\"} : f32[n, 4]\n") "fn @\"f\"(" X ") -> () {\n}\n",
     "expected 0 results, got 1"},
    {MAIN(X, "", "  %2 = call(%1) {fn = @\"f\"} : f32[]\n") "fn @\"f\"(" X ") -> (%1 \"\") {\n}\n",
     "result 0: expected f32[n, 4], got f32[]"},
    {MAIN("%1 \"\" : i64[], %2 \"\" : i64[]", "",
          "  loop(%1, %2) {body = @\"body\", carried = 0, trips = 1}\n") BODY,
     "expected a trip count i64[] and a condition bool[]"},
    {MAIN("%1 \"\" : i64[], %2 \"\" : bool[]", "",
          "  loop(%1, %2) {body = @\"b\", carried = 0, trips = 1}\n") "fn @\"b\"(%1 \"\" : i64[], "
                                                                      "%2 \"\" : bool[]) -> "
                                                                      "(%1 \"\") {\n}\n",
     "body: expected bool[] as "
     "first output"},
    {MAIN("%1 \"\" : i64[], %2 \"\" : bool[]", "",
          "  loop(%1, %2) {body = @\"b\", carried = 0, trips = 1}\n") "fn @\"b\"(%1 \"\" : bool[], "
                                                                      "%2 \"\" : bool[]) -> "
                                                                      "(%1 \"\") {\n}\n",
     "body: expected i64[] and "
     "bool[]"},
    {MAIN(X, "",
          "  %2 = fused(%1) {fn = @\"f\", rows = 4} : f32[n, 4]\n") "fn @\"f\"(" X
                                                                    ") -> (%2 \"\") {\n  %2 = "
                                                                    "neg(%1) : f32[n, 4]\n}\n",
     "rows = 4 is no product of the first axes of result 0, f32[n, 4]"},
    {MAIN(X, "", "  %2 = fused(%1) {fn = @\"k\", rows = n} : f32[n, 4]\n") "fn @\"k\"(" X
                                                                           ") -> (%2 \"\") {\n  %2 "
                                                                           "= softmax(%1) {axis = "
                                                                           "1} : f32[n, 4]\n}\n",
     "kernel @\"k\" holds softmax"},
    {MAIN(X, "",
          "  %2 = fused(%1) {fn = @\"k\", rows = n} : f32[n, 4]\n") "fn @\"k\"(" X
                                                                    ") -> (%2 \"\") {\n  %2 = "
                                                                    "cumsum(%1) {axis = 1, reverse "
                                                                    "= false, exclusive = false} : "
                                                                    "f32[n, 4]\n}\n",
     "kernel @\"k\" holds cumsum"},
    {MAIN(X, "",
          "  %2 = fused(%1) {fn = @\"k\", rows = n} : f32[n, 4]\n") "fn @\"k\"(" X
                                                                    ") -> (%2 \"\") {\n  %2 = "
                                                                    "call(%1) {fn = @\"f\"} : "
                                                                    "f32[n, 4]\n}\nfn @\"f\"(" X
                                                                    ") -> (%1 \"\") {\n}\n",
     "kernel @\"k\" holds call"},
    /* parameters */
    {PARAM("f32[n]", RECORD "pieces = []"), "parameter @\"w\": size of axis 0 is not constant"},
    {PARAM("f32[2]",
           "trainable = true, group = expert, shard_axis = 1, tie = 0, storage = f32, compute = "
           "f32, master "
           "= none, pieces = []"),
     "shard_axis"},
    {PARAM("f32[2]", RECORD "pieces = [{name = \"\", file = 0, offset = 0, dtype = f16, shape = "
                            "[2], perm = [0], start "
                            "= [0]}]"),
     "piece 0: expected f32 as the parameter is stored, got f16"},
};

START_TEST(broken_texts_are_refused) {
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
    moec_module *m = NULL;
    UNIT_OK(moec_context(moec_parse(broken[i].text, &m), "%s", broken[i].text));
    moec_status *s = moec_verify(m);
    if (!s || !strstr(moec_status_message(s), broken[i].message))
      ck_abort_msg("%s\nexpected '%s', got '%s'", broken[i].text, broken[i].message, moec_status_message(s));
    ck_assert_int_ne(moec_status_code(s), MOEC_INTERNAL);
    moec_status_free(s);
    moec_module_destroy(m);
  }
}
END_TEST

/* ---- modules that no text could hold ---------------------------------------------------------- */

typedef struct sample {
  moec_module *m;
  moec_graph *g;
  moec_value x, y; /* y = x + x */
  moec_node add;
} sample;

static sample sample_make(void) {
  sample s = {.m = moec_module_create()};
  s.g = moec_fn_get(s.m, moec_fn_add(s.m, "main"));
  s.x = moec_add_input(s.g, "x", moec_type_scalar(s.m, MOEC_F32));
  moec_value in[2] = {s.x, s.x};
  UNIT_OK(moec_add_node(s.g, MOEC_OP_ADD, NULL, 2, in, 1, &s.add));
  s.y = moec_out(s.g, s.add, 0);
  moec_add_output(s.g, "y", s.y);
  UNIT_OK(moec_verify(s.m));
  return s;
}

static void sample_is_broken(sample *s, const char *message) {
  UNIT_FAILS(moec_verify(s->m), MOEC_INVALID_MODEL, message);
  moec_module_destroy(s->m);
}

START_TEST(handles_out_of_range_are_refused) {
  sample s = sample_make();
  moec_set_input(s.g, s.add, 1, (moec_value){77});
  sample_is_broken(&s, "operand 1 is no value");
  s = sample_make();
  s.g->outputs[0].i = 77;
  sample_is_broken(&s, "output 0 \"y\" is no value");
  s = sample_make();
  s.g->inputs[0].i = 77;
  sample_is_broken(&s, "input 0 is no input value");
  s = sample_make();
  moec_node_get(s.g, s.add)->op = (moec_op)1000;
  sample_is_broken(&s, "there is no op 1000");
  s = sample_make();
  moec_node_get(s.g, s.add)->n_in = UINT32_MAX;
  sample_is_broken(&s, "edges out of range");
  s = sample_make();
  moec_value_get(s.g, s.y)->slot = 1;
  sample_is_broken(&s, "result 0 does not point back");
  s = sample_make();
  moec_remove_node(s.g, s.add);
  sample_is_broken(&s, "has no node");
  s = sample_make();
  moec_value_get(s.g, s.y)->def.i = 0;
  sample_is_broken(&s, "does not point back");
}
END_TEST

START_TEST(functions_and_parameters_must_exist) {
  sample s = sample_make();
  moec_attrs_CALL call = {.fn = {5}};
  moec_attrs_PARAM param = {.param = {1}};
  moec_node_get(s.g, s.add)->op = MOEC_OP_CALL, moec_node_get(s.g, s.add)->attrs = &call;
  sample_is_broken(&s, "fn: expected a number in 1..1, got 5");
  s = sample_make();
  moec_node_get(s.g, s.add)->op = MOEC_OP_CALL, moec_node_get(s.g, s.add)->attrs = NULL;
  sample_is_broken(&s, "attributes are missing");
  s = sample_make();
  moec_node_get(s.g, s.add)->op = MOEC_OP_PARAM, moec_node_get(s.g, s.add)->attrs = &param,
                     moec_node_get(s.g, s.add)->n_in = 0;
  sample_is_broken(&s, "param: expected a number in");
  moec_module *none = moec_module_create();
  UNIT_FAILS(moec_verify(none), MOEC_INVALID_MODEL, "no function");
  moec_module_destroy(none);
}
END_TEST

/* A callee is looked into only after its own handles were checked. */
START_TEST(callees_are_checked_before_their_callers) {
  static const char *const text =
      MAIN(X, "", "  %2 = call(%1) {fn = @\"f\"} : f32[n, 4]\n") "fn @\"f\"(" X ") -> (%1 \"\") {\n}\n";
  moec_module *m = NULL;
  UNIT_OK(moec_parse(text, &m));
  m->fns[2]->inputs[0].i = m->fns[2]->outputs[0].i = 1u << 30;
  UNIT_FAILS(moec_verify(m), MOEC_INVALID_MODEL, "function @\"f\": input 0");
  moec_module_destroy(m);
}
END_TEST

/* Inference alone, as a builder uses it: nothing was checked before. */
START_TEST(inference_keeps_in_range) {
  static const int64_t ones[] = {1}, far[] = {INT64_MAX, INT64_MAX}, far_back[] = {INT64_MIN, INT64_MIN};
  moec_module *m = moec_module_create();
  moec_graph *g = moec_fn_get(m, moec_fn_add(m, "main"));
  moec_dim one = moec_dim_const(m, 1), image[3] = {one, one, moec_dim_symbol(m, "n")}, filter[3] = {one, one, one};
  moec_value in[2] = {moec_add_input(g, "x", moec_type_make(m, MOEC_F32, 3, image)),
                      moec_add_input(g, "w", moec_type_make(m, MOEC_F32, 3, filter))};
  moec_attrs_CONV conv = {.strides = {1, ones}, .pads = {2, far}, .dilations = {1, ones}, .groups = 1};
  moec_node out;
  UNIT_FAILS(moec_add_node(g, MOEC_OP_CONV, &conv, 2, in, 1, &out), MOEC_INVALID_MODEL, "size of axis 2 is unknown");
  conv.pads.v = far_back;
  UNIT_FAILS(moec_add_node(g, MOEC_OP_CONV, &conv, 2, in, 1, &out), MOEC_INVALID_MODEL, "size of axis 2 is unknown");
  moec_value chosen = moec_add_input(g, "i", moec_type_make(m, MOEC_I64, 2, filter));
  moec_attrs_MOE_PLAN plan = {.experts = INT64_MAX};
  UNIT_FAILS(moec_add_node(g, MOEC_OP_MOE_PLAN, &plan, 1, &chosen, 3, &out), MOEC_INVALID_MODEL,
             "experts: 9223372036854775807 are too many");
  moec_module_destroy(m);
}
END_TEST

/* Nothing recurses: chains of 100,000 nodes, the last first, and of 20,000 functions. */
START_TEST(long_chains_are_fine) {
  enum { NODES = 100000, FUNCTIONS = 20000 };
  moec_module *m = NULL;
  moec_buf b = {0};
  moec_buf_puts(&b, HEAD "fn @\"main\"(%1 \"\" : f32[n]) -> (%2 \"\") {\n");
  for (int i = 2; i <= NODES; i++) moec_buf_printf(&b, "  %%%d = neg(%%%d) : f32[n]\n", i, i < NODES ? i + 1 : 1);
  moec_buf_puts(&b, "}\n");
  UNIT_OK(moec_parse(moec_buf_str(&b), &m));
  UNIT_OK(moec_verify(m));
  moec_module_destroy(m);
  moec_buf_fini(&b);
  moec_buf_puts(&b, HEAD);
  for (int i = 1; i <= FUNCTIONS; i++) {
    moec_buf_printf(&b, "fn @\"f%d\"() -> (%%1 \"\") {\n  %%1 = ", i);
    if (i < FUNCTIONS) moec_buf_printf(&b, "call() {fn = @\"f%d\"} : i64[]\n}\n", i + 1);
    else moec_buf_puts(&b, "size() {value = n} : i64[]\n}\n");
  }
  UNIT_OK(moec_parse(moec_buf_str(&b), &m));
  UNIT_OK(moec_verify(m));
  moec_module_destroy(m);
  moec_buf_fini(&b);
}
END_TEST

UNIT_MAIN("verify", broken_texts_are_refused, handles_out_of_range_are_refused, functions_and_parameters_must_exist,
          inference_keeps_in_range,
          callees_are_checked_before_their_callers, long_chains_are_fine)
