/* Schedules, sizes, placement, threads and counters, with kernels from the system's compiler. */
#include <math.h>

#include "base/tensor.h"
#include "include/moec.h"
#include "tests/unit/plan_builder.h"

static const char source[] =
    "#include \"include/plan.h\"\n"
    /* y = 2 * w */
    "void twice(const moec_kernel_args *a, int64_t begin, int64_t end) {\n"
    "  for (int64_t i = begin; i < end; i++) ((float *)a->buf[1])[i] = 2 * ((const float "
    "*)a->buf[0])[i];\n"
    "}\n"
    /* y[i] = i + seq */
    "void ramp(const moec_kernel_args *a, int64_t begin, int64_t end) {\n"
    "  for (int64_t i = begin; i < end; i++) ((float *)a->buf[0])[i] = (float)(i + a->sym[1]);\n"
    "}\n"
    /* y[b, s] = x[b, s] + ramp[s] * w2[s % 4], through scratch of seq floats; rows are b */
    "void mix(const moec_kernel_args *a, int64_t begin, int64_t end) {\n"
    "  int64_t seq = a->sym[1];\n"
    "  float *t = a->scratch;\n"
    "  for (int64_t r = begin; r < end; r++) {\n"
    "    for (int64_t s = 0; s < seq; s++) t[s] = ((const float *)a->buf[1])[s] * ((const float "
    "*)a->buf[2])[s % 4];\n"
    "    for (int64_t s = 0; s < seq; s++) ((float *)a->buf[3])[r * seq + s] = ((const float "
    "*)a->buf[0])[r * seq + s] + t[s];\n"
    "  }\n"
    "}\n"
    /* y = table[index] */
    "void pick(const moec_kernel_args *a, int64_t begin, int64_t end) {\n"
    "  for (int64_t i = begin; i < end; i++) {\n"
    "    int64_t k = ((const int64_t *)a->buf[1])[i];\n"
    "    if (k < 0 || k >= 4) *a->fault = 1, k = 0;\n"
    "    ((float *)a->buf[2])[i] = ((const float *)a->buf[0])[k];\n"
    "  }\n"
    "}\n";

static char *dir;
static moec_map object;

static const float weights[] = {1, 2, 3, 4};

/* y = x + ramp(seq) * (2 w), a chain of copies of it, and z = w2[index]. Inputs x [batch, seq],
 * index [2*seq + 1]. Schedules: w2 at load, ramp at bind, the rest at each step. */
static plan_builder *build(int64_t fixed_batch) {
  plan_builder *b = pb_create();
  moec_expr_ref batch = pb_symbol(b, "batch", fixed_batch), seq = pb_symbol(b, "seq", -1),
                four = pb_const(b, 4);
  moec_expr_ref odd =
      pb_expr(b, MOEC_EXPR_ADD, pb_expr(b, MOEC_EXPR_MUL, pb_const(b, 2), seq), pb_const(b, 1));
  const moec_expr_ref table[] = {four}, line[] = {seq}, square[] = {batch, seq}, list[] = {odd};
  uint32_t w = pb_tensor(b, MOEC_BUFFER_PARAM, MOEC_F32, 1, table);
  uint32_t piece = PB_ADD(b, pieces,
                          (moec_plan_piece){.file = MOEC_NONE,
                                            .dtype = MOEC_F32,
                                            .rank = 1,
                                            .shape = {4},
                                            .offset = pb_data(b, weights, sizeof weights)});
  PB_ADD(b, params,
         (moec_plan_param){.name = pb_str(b, "w"),
                           .tensor = w,
                           .storage = MOEC_F32,
                           .shard_axis = -1,
                           .trainable = 1,
                           .pieces = piece,
                           .n_pieces = 1,
                           .grad = MOEC_NONE});
  uint32_t w2 = pb_tensor(b, MOEC_BUFFER_LOAD, MOEC_F32, 1, table);
  uint32_t ramp = pb_tensor(b, MOEC_BUFFER_BIND, MOEC_F32, 1, line);
  uint32_t x = pb_tensor(b, MOEC_BUFFER_INPUT, MOEC_F32, 2, square),
           index = pb_tensor(b, MOEC_BUFFER_INPUT, MOEC_I64, 1, list);
  uint32_t mixed = pb_tensor(b, MOEC_BUFFER_STEP, MOEC_F32, 2, square), t = mixed;
  uint32_t y = pb_tensor(b, MOEC_BUFFER_OUTPUT, MOEC_F32, 2, square),
           z = pb_tensor(b, MOEC_BUFFER_OUTPUT, MOEC_F32, 1, list);
  moec_expr_ref none = pb_const(b, 0), room = pb_expr(b, MOEC_EXPR_MUL, four, seq);
  pb_launch(b, MOEC_AT_LOAD, pb_kernel(b, "twice", four, none), 1, 1, (uint32_t[]){w, w2});
  pb_launch(b, MOEC_AT_BIND, pb_kernel(b, "ramp", seq, none), 0, 1, (uint32_t[]){ramp});
  pb_launch(b, MOEC_AT_STEP, pb_kernel(b, "mix", batch, room), 3, 1,
            (uint32_t[]){x, ramp, w2, mixed});
  for (int i = 0; i < 5; i++) { /* only two of these can be alive at once */
    uint32_t next = pb_tensor(b, MOEC_BUFFER_STEP, MOEC_F32, 2, square);
    pb_step(b, MOEC_AT_STEP, MOEC_STEP_COPY, 1, 1, (uint32_t[]){t, next}, 0, NULL);
    t = next;
  }
  pb_launch(b, MOEC_AT_STEP, pb_kernel(b, "pick", odd, none), 2, 1, (uint32_t[]){w2, index, z});
  pb_step(b, MOEC_AT_STEP, MOEC_STEP_COPY, 1, 1, (uint32_t[]){t, y}, 0, NULL);
  pb_input(b, "x", x), pb_input(b, "index", index);
  pb_output(b, "y", y), pb_output(b, "z", z);
  PB_ADD(b, constraints,
         (moec_plan_constraint){pb_expr(b, MOEC_EXPR_MOD, seq, pb_const(b, 2)), none,
                                pb_str(b, "view"), pb_str(b, "reshape: pairs"),
                                pb_str(b, "seq % 2 == 0")});
  return b;
}

static moec_model *open_plan(plan_builder *b, int threads, uint8_t **file) {
  size_t size;
  moec_model *m;
  moec_options o = {.threads = threads};
  *file = pb_finish(b, NULL, &object, &size);
  free(b);
  UNIT_OK(moec_open_memory(*file, size, &o, &m));
  return m;
}

typedef struct io {
  float x[4096];
  int64_t index[4096];
  moec_view vx, vi;
} io;

static void set(io *t, int64_t batch, int64_t seq) {
  for (int64_t i = 0; i < batch * seq; i++) t->x[i] = (float)(i % 17);
  for (int64_t i = 0; i < 2 * seq + 1; i++) t->index[i] = i % 4;
  t->vx = (moec_view){t->x, MOEC_DTYPE_F32, 2, {batch, seq}};
  t->vi = (moec_view){t->index, MOEC_DTYPE_I64, 1, {2 * seq + 1}};
}

static void step(moec_model *m, io *t, int64_t batch, int64_t seq) {
  moec_view y, z;
  set(t, batch, seq);
  UNIT_OK(moec_input_borrow(m, 0, &t->vx));
  UNIT_OK(moec_input_copy(m, 1, &t->vi));
  UNIT_OK(moec_forward(m));
  UNIT_OK(moec_output(m, 0, &y));
  UNIT_OK(moec_output(m, 1, &z));
  UNIT_TRUE(y.rank == 2 && y.dims[0] == batch && y.dims[1] == seq && z.dims[0] == 2 * seq + 1);
  UNIT_TRUE(((uintptr_t)y.data & 63) == 0);
  for (int64_t i = 0; i < batch * seq; i++) {
    int64_t s = i % seq;
    float want = t->x[i] + (float)(s + seq) * 2 * weights[s % 4];
    UNIT_TRUE(((float *)y.data)[i] == want);
  }
  for (int64_t i = 0; i < 2 * seq + 1; i++) UNIT_TRUE(((float *)z.data)[i] == 2 * weights[i & 3]);
}

START_TEST(test_schedules_and_counters) {
  for (int threads = 1; threads <= 3; threads++) {
    uint8_t *file;
    moec_model *m = open_plan(build(-1), threads, &file);
    static io t;
    moec_counters c;
    step(m, &t, 4, 6);
    step(m, &t, 4, 6);
    step(m, &t, 30, 100);
    step(m, &t, 30, 100);
    moec_counters_get(m, &c);
    uint64_t before = c.allocations;
    for (int i = 0; i < 5; i++) { /* sizes seen before: nothing is allocated */
      step(m, &t, 4, 6);
      step(m, &t, 30, 100);
    }
    step(m, &t, 0, 6); /* new sizes, smaller */
    step(m, &t, 3, 0);
    moec_counters_get(m, &c);
    ck_assert_uint_eq(c.forwards, 16);
    ck_assert_uint_eq(c.placements, 4);
    ck_assert_uint_eq(c.binds, 14);
    ck_assert_uint_eq(c.allocations_after_first, 0);
    ck_assert_uint_le(c.allocations, before + 2 * 5); /* the two new sizes */
    ck_assert_uint_eq(c.kernels_per_step, 2);
    ck_assert_uint_eq(c.library_per_step, 6);
    ck_assert_uint_eq(c.moe_per_step, 0);
    ck_assert_uint_eq(c.compilations, 0);
    ck_assert_uint_eq(c.threads, (uint64_t)threads);
    /* y and two of the chain, of 30*100 floats, and z. */
    ck_assert_uint_eq(c.step_bytes, 2 * 12032 + 832);
    moec_close(m);
    free(file);
  }
}
END_TEST

START_TEST(test_descriptions) {
  uint8_t *file;
  moec_model *m = open_plan(build(-1), 1, &file);
  moec_description d;
  uint32_t i;
  int64_t value;
  moec_view v;
  moec_counters c;
  ck_assert_uint_eq(moec_count(m, MOEC_INPUTS), 2);
  ck_assert_uint_eq(moec_count(m, MOEC_PARAMETERS), 1);
  UNIT_OK(moec_describe(m, MOEC_INPUTS, 1, &d));
  ck_assert_str_eq(d.name, "index");
  ck_assert_str_eq(d.dtype_name, "i64");
  ck_assert_str_eq(d.dims[0], "2*seq + 1");
  UNIT_OK(moec_describe(m, MOEC_PARAMETERS, 0, &d));
  UNIT_TRUE(d.trainable && !d.expert && !strcmp(d.dims[0], "4"));
  UNIT_OK(moec_find(m, MOEC_OUTPUTS, "z", &i));
  ck_assert_uint_eq(i, 1);
  UNIT_FAILS(moec_find(m, MOEC_OUTPUTS, "q", &i), MOEC_INVALID_ARGUMENT,
             "output \"q\": the model has none of this name, but: y, z");
  UNIT_FAILS(moec_describe(m, MOEC_INPUTS, 2, &d), MOEC_INVALID_ARGUMENT,
             "input: expected an index below 2, got 2");
  UNIT_OK(moec_symbol(m, 1, NULL, &value));
  ck_assert_int_eq(value, -1);
  UNIT_FAILS(moec_shape(m, MOEC_INPUTS, 0, &v), MOEC_INVALID_ARGUMENT,
             "expected sizes to be bound");
  UNIT_FAILS(moec_output(m, 0, &v), MOEC_INVALID_ARGUMENT, "expected a step");
  const char *names[] = {"batch", "seq"};
  UNIT_OK(moec_bind_sizes(m, 2, names, (int64_t[]){2, 8}));
  moec_counters_get(m, &c);
  UNIT_TRUE(c.step_bytes == 0 && c.program_bytes[MOEC_FORWARD] > 0); /* nothing has run yet */
  UNIT_OK(moec_shape(m, MOEC_INPUTS, 1, &v));
  ck_assert_int_eq(v.dims[0], 17);
  UNIT_OK(moec_symbol(m, 1, NULL, &value));
  ck_assert_int_eq(value, 8);
  UNIT_OK(moec_parameter(m, 0, &v));
  UNIT_TRUE(!memcmp(v.data, weights, sizeof weights));
  moec_close(m);
  free(file);
}
END_TEST

START_TEST(test_binding_errors) {
  uint8_t *file;
  moec_model *m = open_plan(build(4), 1, &file);
  static io t;
  moec_view views[2];
  UNIT_FAILS(moec_forward(m), MOEC_INVALID_ARGUMENT, "input \"x\" is missing");
  set(&t, 4, 6);
  views[0] = t.vx, views[1] = t.vi;
  UNIT_OK(moec_bind_shapes(m, views));
  views[1].dims[0] = 12;
  UNIT_FAILS(moec_bind_shapes(m, views), MOEC_INVALID_ARGUMENT,
             "input \"index\": axis 0: expected size 2*seq + 1 = 13, got 12 with seq = 6");
  views[0].dims[0] = 5;
  UNIT_FAILS(moec_bind_shapes(m, views), MOEC_INVALID_ARGUMENT,
             "input \"x\": axis 0: expected size batch = 4, got 5 with batch = 4");
  set(&t, 4, 7);
  views[0] = t.vx, views[1] = t.vi;
  UNIT_FAILS(moec_bind_shapes(m, views), MOEC_INVALID_ARGUMENT,
             "node \"view\": reshape: pairs: needs seq % 2 == 0, which does not hold with seq = 7");
  views[0].dtype = MOEC_DTYPE_F64;
  UNIT_FAILS(moec_bind_shapes(m, views), MOEC_INVALID_ARGUMENT,
             "input \"x\": expected f32 of rank 2, got f64 of rank 2");
  const char *names[] = {"seq", "bacth"};
  UNIT_FAILS(moec_bind_sizes(m, 2, names, (int64_t[]){6, 4}), MOEC_INVALID_ARGUMENT,
             "size \"bacth\": the model has no such size");
  UNIT_FAILS(moec_bind_sizes(m, 1, names, (int64_t[]){-1}), MOEC_INVALID_ARGUMENT,
             "size \"seq\": expected at least 0, got -1");
  UNIT_FAILS(moec_bind_sizes(m, 0, names, NULL), MOEC_INVALID_ARGUMENT,
             "needs seq % 2 == 0, which is not known");
  UNIT_FAILS(moec_bind_sizes(m, 1, names, (int64_t[]){INT64_MAX / 2 - 1}), MOEC_INVALID_ARGUMENT,
             "expected a size that is known and below 2^63, got");
  names[0] = "batch";
  UNIT_FAILS(moec_bind_sizes(m, 1, names, (int64_t[]){3}), MOEC_INVALID_ARGUMENT,
             "expected 4, which the model was compiled for, got 3");
  UNIT_FAILS(moec_input_borrow(m, 2, &t.vx), MOEC_INVALID_ARGUMENT,
             "input: expected an index below 2");
  t.vx.data = (char *)t.x + 1;
  UNIT_FAILS(moec_input_borrow(m, 0, &t.vx), MOEC_INVALID_ARGUMENT,
             "input \"x\": expected data aligned to 4 bytes");
  t.vx.data = NULL;
  UNIT_FAILS(moec_input_copy(m, 0, &t.vx), MOEC_INVALID_ARGUMENT,
             "input \"x\": expected data, got NULL");
  step(m, &t, 4, 6); /* and none of it broke the model */
  moec_close(m);
  free(file);
}
END_TEST

/* One step without the input "index": all of it is 2. */
static void step_without_index(moec_model *m, io *t, int64_t batch, int64_t seq) {
  moec_view z;
  set(t, batch, seq);
  UNIT_OK(moec_input_borrow(m, 0, &t->vx));
  UNIT_OK(moec_forward(m));
  UNIT_OK(moec_output(m, 1, &z));
  ck_assert_int_eq(z.dims[0], 2 * seq + 1);
  for (int64_t i = 0; i < 2 * seq + 1; i++) UNIT_TRUE(((float *)z.data)[i] == 2 * weights[2]);
}

START_TEST(test_defaults_fill_inputs_that_are_left_out) {
  uint8_t *file;
  plan_builder *b = build(-1);
  b->inputs[1].has_default = 1, b->inputs[1].dflt = 2;
  moec_model *m = open_plan(b, 2, &file);
  moec_description d;
  moec_counters c;
  static io t;
  UNIT_OK(moec_describe(m, MOEC_INPUTS, 1, &d));
  UNIT_TRUE(d.has_default && d.default_value == 2);
  UNIT_OK(moec_describe(m, MOEC_INPUTS, 0, &d));
  UNIT_TRUE(!d.has_default);
  UNIT_FAILS(moec_forward(m), MOEC_INVALID_ARGUMENT, "input \"x\" is missing");
  UNIT_FAILS(moec_input_omit(m, 0), MOEC_INVALID_ARGUMENT, "input \"x\": it has no default");
  step_without_index(m, &t, 2, 6);
  step_without_index(m, &t, 2, 20);
  step_without_index(m, &t, 2, 6);
  step_without_index(m, &t, 3, 0);
  step(m, &t, 2, 6); /* given: it counts */
  UNIT_OK(moec_input_omit(m, 1));
  step_without_index(m, &t, 2, 6);
  moec_counters_get(m, &c);
  ck_assert_uint_eq(c.allocations_after_first, 0);
  moec_view views[2] = {t.vx, {0}};
  UNIT_OK(moec_bind_shapes(m, views));
  moec_close(m);
  free(file);
}
END_TEST

/* What is left out tells no sizes. */
START_TEST(test_sizes_of_defaults_come_from_other_inputs) {
  uint8_t *file;
  plan_builder *b = build(-1);
  b->inputs[0].has_default = 1;
  moec_model *m = open_plan(b, 1, &file);
  static io t;
  set(&t, 2, 6);
  UNIT_OK(moec_input_borrow(m, 1, &t.vi));
  UNIT_FAILS(moec_forward(m), MOEC_INVALID_ARGUMENT,
             "input \"x\": axis 0: the inputs' shapes do not tell what batch is");
  moec_close(m);
  free(file);
}
END_TEST

START_TEST(test_fault_fails_the_step) {
  uint8_t *file;
  moec_model *m = open_plan(build(-1), 2, &file);
  static io t;
  moec_view v;
  step(m, &t, 2, 6);
  t.index[5] = 4;
  UNIT_OK(moec_input_borrow(m, 1, &t.vi));
  UNIT_FAILS(moec_forward(m), MOEC_INVALID_ARGUMENT, "node \"the_node\": an index is out of range");
  UNIT_FAILS(moec_output(m, 0, &v), MOEC_INVALID_ARGUMENT, "expected a step");
  step(m, &t, 2, 6);
  moec_close(m);
  free(file);
}
END_TEST

START_TEST(test_many_sizes_and_two_models) {
  uint8_t *files[2];
  moec_model *m[2] = {open_plan(build(-1), 2, &files[0]), open_plan(build(-1), 1, &files[1])};
  static io t;
  for (int64_t seq = 0; seq < 160; seq += 2) { /* more than are remembered */
    step(m[0], &t, 2, seq);
    step(m[1], &t, 1, seq);
  }
  step(m[0], &t, 2, 0);
  moec_counters c;
  moec_counters_get(m[0], &c);
  ck_assert_uint_eq(c.placements, 81);
  for (int i = 0; i < 2; i++) {
    moec_close(m[i]);
    free(files[i]);
  }
}
END_TEST

START_TEST(test_kernel_errors) {
  size_t size;
  moec_model *m;
  plan_builder *b = build(-1);
  b->kernels[0].name = pb_str(b, "thrice");
  uint8_t *file = pb_finish(b, NULL, &object, &size);
  UNIT_FAILS(moec_open_memory(file, size, NULL, &m), MOEC_INVALID_MODEL,
             "expected a kernel named 'thrice', got none");
  free(file);
  b->kernels[0].name = pb_str(b, "twice");
  const moec_map junk = {.data = (const uint8_t *)"not an object", .size = 13};
  file = pb_finish(b, NULL, &junk, &size);
  UNIT_FAILS(moec_open_memory(file, size, NULL, &m), MOEC_INVALID_MODEL, "cannot load the kernels");
  free(file);
  b->cpu = pb_str(b, "sparc");
  file = pb_finish(b, NULL, &object, &size);
  UNIT_FAILS(moec_open_memory(file, size, NULL, &m), MOEC_UNSUPPORTED,
             "expected a processor level from x86-64 to x86-64-v4, got 'sparc'");
  free(file);
  b->cpu = pb_str(b, "x86-64");
  file = pb_finish(b, NULL, &object, &size);
  UNIT_OK(moec_open_memory(file, size, NULL, &m));
  moec_close(m);
  free(file);
  free(b);
}
END_TEST

static void setup(void) {
  dir = unit_folder();
  object = pb_compile(dir, source);
}

static void teardown(void) {
  moec_unmap(&object);
  unit_remove(dir);
}

int main(void) {
  Suite *suite = suite_create("exec");
  TCase *tcase = tcase_create("exec");
  const TTest *const tests[] = {test_schedules_and_counters,
                                test_descriptions,
                                test_binding_errors,
                                test_defaults_fill_inputs_that_are_left_out,
                                test_sizes_of_defaults_come_from_other_inputs,
                                test_fault_fails_the_step,
                                test_many_sizes_and_two_models,
                                test_kernel_errors};
  tcase_add_unchecked_fixture(tcase, setup, teardown);
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(tcase, tests[i]);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
