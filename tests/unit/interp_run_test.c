/* The interpreter's sizes and options. */
#include "ir/builder.h"
#include "tests/unit/opcase.h"

static moec_graph *add_fn(moec_module *m, const char *name) {
  return moec_fn_get(m, moec_fn_add(m, name));
}

static moec_type vector(moec_module *m, moec_dtype t, moec_dim d) {
  return moec_type_make(m, t, 1, &d);
}

static moec_tensor tensor(const char *text) {
  moec_tensor t;
  opcase_tensor(&text, &t);
  return t;
}

/* ---- sizes -------------------------------------------------------------------------------- */

/* ids i64[batch, seq], mask f32[2*batch + 1], rest f32[seq*batch] */
static moec_module *symbolic(void) {
  moec_module *m = moec_module_create();
  moec_graph *g = add_fn(m, "main");
  moec_dim b = moec_dim_symbol(m, "batch"), s = moec_dim_symbol(m, "seq"), dims[2] = {b, s};
  moec_dim two = moec_dim_const(m, 2), four = moec_dim_const(m, 4);
  moec_dim odd = moec_dim_add(m, moec_dim_mul(m, two, b), moec_dim_const(m, 1));
  moec_value mask = moec_add_input(g, "mask", vector(m, MOEC_F32, odd));
  moec_value rest = moec_add_input(g, "rest", vector(m, MOEC_F32, moec_dim_mul(m, s, b)));
  moec_add_input(g, "last", moec_type_make(m, MOEC_F32, 2, dims));
  moec_add_output(g, "mask", mask);
  moec_add_output(g, "rest", rest);
  moec_constrain_equal(m, moec_dim_mul(m, four, moec_dim_floordiv(m, s, four)), s, "node_view_7",
                       "reshape: 4 groups");
  return m;
}

static moec_status *bind(int64_t mask, int64_t rest, int64_t last0, int64_t last1, int64_t *out) {
  moec_module *m = symbolic();
  moec_tensor in[3] = {{MOEC_F32, 1, {mask}, NULL},
                       {MOEC_F32, 1, {rest}, NULL},
                       {MOEC_F32, 2, {last0, last1}, NULL}};
  moec_status *s = moec_bind_symbols(m, moec_main(m), in, 3, out);
  moec_module_destroy(m);
  return s;
}

START_TEST(test_bind) {
  int64_t v[2];
  UNIT_OK(bind(5, 8, 2, 4, v));
  ck_assert_int_eq(v[0], 2);
  ck_assert_int_eq(v[1], 4);
  UNIT_OK(bind(1, 0, 0, 0, v));
  UNIT_FAILS(bind(5, 8, 2, 5, v), MOEC_INVALID_ARGUMENT,
             "input \"rest\": axis 0 is 8, expected batch*seq = 10");
  UNIT_FAILS(bind(4, 8, 2, 4, v), MOEC_INVALID_ARGUMENT,
             "input \"mask\": axis 0 is 4, expected 2*batch + 1 = 5");
  UNIT_FAILS(bind(5, 12, 2, 6, v), MOEC_INVALID_ARGUMENT,
             "node \"node_view_7\": needs seq % 4 == 0 (reshape: 4 groups), "
             "which does not hold with seq = 6");
}
END_TEST

START_TEST(test_bind_linear) {
  moec_module *m = moec_module_create();
  moec_graph *g = add_fn(m, "main");
  moec_dim b = moec_dim_symbol(m, "b"), s = moec_dim_symbol(m, "s"), u = moec_dim_symbol(m, "u");
  moec_dim two = moec_dim_const(m, 2);
  moec_add_input(g, "x", vector(m, MOEC_F32, moec_dim_mul(m, b, s)));
  moec_add_input(g, "y", vector(m, MOEC_F32, moec_dim_add(m, moec_dim_mul(m, b, two), two)));
  moec_constrain_equal(m, u, moec_dim_mul(m, s, two), "n", "sizes");
  moec_tensor in[2] = {{MOEC_F32, 1, {12}, NULL}, {MOEC_F32, 1, {8}, NULL}};
  int64_t v[3];
  UNIT_OK(moec_bind_symbols(m, g, in, 2, v));
  ck_assert_int_eq(v[0], 3);
  ck_assert_int_eq(v[1], 4);
  ck_assert_int_eq(v[2], 8);
  in[1].dims[0] = 7;
  UNIT_FAILS(moec_bind_symbols(m, g, in, 2, v), MOEC_INVALID_ARGUMENT,
             "axis 0 is 12, expected b*s");
  in[1].rank = 0;
  UNIT_FAILS(moec_bind_symbols(m, g, in, 2, v), MOEC_INVALID_ARGUMENT,
             "input \"y\": expected rank 1, got 0");
  UNIT_FAILS(moec_bind_symbols(m, g, in, 1, v), MOEC_INVALID_ARGUMENT, "expected 2 inputs, got 1");
  moec_module_destroy(m);
}
END_TEST

/* ---- options ------------------------------------------------------------------------------ */

typedef struct traced {
  size_t n;
  moec_op ops[8];
} traced;

static void on_node(void *user, const moec_graph *g, moec_node n, const moec_tensor *values) {
  traced *t = user;
  ck_assert_int_eq(values[0].dtype, MOEC_F64);
  if (t->n < 8) t->ops[t->n++] = moec_op_of(g, n);
}

START_TEST(test_options) {
  moec_module *m = moec_module_create();
  moec_builder b = moec_builder_on(add_fn(m, "main"));
  moec_value x = moec_add_input(b.g, "x", vector(m, MOEC_F32, moec_dim_symbol(m, "n")));
  moec_value y = moec_b_unary(&b, MOEC_OP_EXP, x);
  moec_b_unary(&b, MOEC_OP_TANH, x); /* nobody needs it: not run */
  moec_attrs_SOFTMAX axis = {.axis = 0};
  moec_value z = moec_b_op(&b, MOEC_OP_SOFTMAX, &axis, 1, &y, 1);
  moec_add_output(b.g, "z", z);
  UNIT_OK(moec_builder_end(&b));
  moec_tensor in = tensor("f32[2] 0 1"), out;
  traced t = {0};
  moec_interp_options o = {.f64 = true, .trace = on_node, .user = &t};
  UNIT_OK(moec_interp_run(m, (moec_fn){1}, &in, 1, &out, 1, &o));
  ck_assert_uint_eq(t.n, 2);
  ck_assert_int_eq(t.ops[0], MOEC_OP_EXP);
  ck_assert_int_eq(t.ops[1], MOEC_OP_SOFTMAX);
  ck_assert_int_eq(out.dtype, MOEC_F64);
  double want = 1 / (1 + exp(exp(1) - 1));
  ck_assert(fabs(*(double *)out.data - want) < 1e-15);
  moec_tensor_fini(&out);
  o = (moec_interp_options){.memory_limit = 40};
  UNIT_FAILS(moec_interp_run(m, (moec_fn){1}, &in, 1, &out, 1, &o), MOEC_OUT_OF_MEMORY,
             "expected at most 40 bytes");
  in.dtype = MOEC_I32;
  UNIT_FAILS(moec_interp_run(m, (moec_fn){1}, &in, 1, &out, 1, NULL), MOEC_INVALID_ARGUMENT,
             "input \"x\": expected f32, got i32");
  moec_tensor_fini(&in);
  moec_module_destroy(m);
}
END_TEST

/* A reshape takes over elements only of a value that nobody reads any more. */
START_TEST(test_lifetimes) {
  moec_module *m = moec_module_create();
  moec_builder b = moec_builder_on(add_fn(m, "main"));
  moec_dim flat = moec_dim_const(m, 4), square[2] = {moec_dim_const(m, 2), moec_dim_const(m, 2)};
  moec_value x = moec_add_input(b.g, "x", vector(m, MOEC_F32, flat));
  moec_value y = moec_b_unary(&b, MOEC_OP_NEG, x), r = moec_b_reshape(&b, y, 2, square);
  moec_value once = moec_b_reshape(&b, moec_b_unary(&b, MOEC_OP_ABS, y), 2, square);
  moec_value outputs[] = {r, y, once, r, x, moec_b_reshape(&b, x, 2, square)};
  for (size_t i = 0; i < 6; i++) moec_add_output(b.g, "", outputs[i]);
  UNIT_OK(moec_builder_end(&b));
  moec_tensor in = tensor("f32[4] 1 2 3 4"), out[6];
  UNIT_OK(moec_interp_run(m, (moec_fn){1}, &in, 1, out, 6, NULL));
  for (size_t i = 0; i < 6; i++) {
    ck_assert(((float *)out[i].data)[3] == (i < 2 || i == 3 ? -4.0f : 4.0f));
    moec_tensor_fini(&out[i]);
  }
  moec_tensor_fini(&in);
  moec_module_destroy(m);
}
END_TEST

UNIT_MAIN("interp_run", test_bind, test_bind_linear, test_options, test_lifetimes)
