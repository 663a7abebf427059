#include <math.h>

#include "base/tensor.h"
#include "include/moec.h"
#include "tests/unit/runtime_step.h"

typedef struct shape {
  int64_t batch[2], m, n, k;                 /* two batch axes */
  bool a_transposed, b_transposed, b_shared; /* b_shared: one b for the whole first batch axis */
  bool add;
  moec_dtype in, out;
} shape;

typedef struct operand {
  moec_tensor t;
  int64_t rows, cols, batch[2]; /* strides */
} operand;

static operand make(const shape *s, int64_t rows, int64_t cols, bool transposed, bool shared,
                    unsigned *seed) {
  operand o = {.rows = transposed ? 1 : cols, .cols = transposed ? rows : 1};
  const int64_t dims[] = {shared ? 1 : s->batch[0], s->batch[1], transposed ? cols : rows,
                          transposed ? rows : cols};
  o.batch[1] = rows * cols;
  o.batch[0] = shared ? 0 : s->batch[1] * rows * cols;
  o.t = step_random(s->in, 4, dims, seed);
  return o;
}

static double expected(const shape *s, const operand *a, const operand *b, int64_t i0, int64_t i1,
                       int64_t m, int64_t n) {
  double sum = 0;
  for (int64_t k = 0; k < s->k; k++) {
    sum += step_at(&a->t, i0 * a->batch[0] + i1 * a->batch[1] + m * a->rows + k * a->cols) *
           step_at(&b->t, i0 * b->batch[0] + i1 * b->batch[1] + k * b->rows + n * b->cols);
  }
  return sum;
}

static void check(const shape *s) {
  unsigned seed = 7;
  operand a = make(s, s->m, s->k, s->a_transposed, false, &seed);
  operand b = make(s, s->k, s->n, s->b_transposed, s->b_shared, &seed);
  const int64_t dims[] = {s->batch[0], s->batch[1], s->m, s->n};
  moec_tensor c = step_random(s->out, 4, dims, &seed);
  one_step step = {.op = MOEC_STEP_GEMM,
                   .n_in = 3,
                   .n_out = 1,
                   .n_ints = 14,
                   .ints_are_sizes = true,
                   .in = {&a.t, &b.t, s->add ? &c : NULL},
                   .out = {step_tensor(s->out, 4, dims)},
                   .ints = {2, s->m, s->n, s->k, a.rows, a.cols, b.rows, b.cols, s->batch[0],
                            a.batch[0], b.batch[0], s->batch[1], a.batch[1], b.batch[1]}};
  step_run_all(&step);
  int64_t at = 0;
  double tolerance = s->out == MOEC_BF16 ? 0.01 : s->out == MOEC_F16 ? 0.001 : 0;
  for (int64_t i0 = 0; i0 < s->batch[0]; i0++)
    for (int64_t i1 = 0; i1 < s->batch[1]; i1++)
      for (int64_t m = 0; m < s->m; m++)
        for (int64_t n = 0; n < s->n; n++, at++) {
          double want = expected(s, &a, &b, i0, i1, m, n) + (s->add ? step_at(&c, at) : 0);
          UNIT_TRUE(fabs(step_at(&step.out[0], at) - want) <= tolerance * (fabs(want) + 1));
        }
  step_fini(&step);
  moec_tensor_fini(&a.t);
  moec_tensor_fini(&b.t);
  moec_tensor_fini(&c);
}

/* The operands are quarters of at most 2, so sums are exact and every order gives the same. */
START_TEST(test_shapes_strides_and_accumulation) {
  static const int64_t sizes[][3] = {{1, 1, 1},       {1, 7, 5},    {5, 1, 9},    {3, 4, 1},
                                     {2, 3, 4},       {17, 33, 65}, {1, 300, 40}, {300, 1, 40},
                                     {130, 200, 150}, {41, 395, 521}, {9, 13, 259}, {4, 5, 0}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    for (int flags = 0; flags < 16; flags++) {
      shape s = {.batch = {flags & 8 ? 2 : 1, 2},
                 .m = sizes[i][0],
                 .n = sizes[i][1],
                 .k = sizes[i][2],
                 .a_transposed = flags & 1,
                 .b_transposed = flags & 2,
                 .b_shared = flags & 8,
                 .add = flags & 4,
                 .in = MOEC_F32,
                 .out = MOEC_F32};
      check(&s);
      if (flags == 3) { /* too many to run in every type */
        s.in = s.out = MOEC_F64;
        check(&s);
      }
    }
  }
}
END_TEST

START_TEST(test_types) {
  static const moec_dtype types[][2] = {{MOEC_F64, MOEC_F64}, {MOEC_BF16, MOEC_BF16},
                                        {MOEC_F16, MOEC_F16}, {MOEC_BF16, MOEC_F32},
                                        {MOEC_I64, MOEC_I64}, {MOEC_I32, MOEC_I32}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    for (int flags = 0; flags < 8; flags++) {
      shape s = {.batch = {1, 2},
                 .m = 19,
                 .n = 270,
                 .k = 261,
                 .a_transposed = flags & 1,
                 .b_transposed = flags & 2,
                 .add = flags & 4,
                 .in = types[i][0],
                 .out = types[i][1]};
      check(&s);
    }
  }
}
END_TEST

START_TEST(test_large_products_are_cut_into_tiles) {
  shape s = {.batch = {1, 1},
             .m = 260,
             .n = 500,
             .k = 300,
             .b_transposed = true,
             .add = true,
             .in = MOEC_F32,
             .out = MOEC_F32};
  check(&s);
}
END_TEST

START_TEST(test_empty_results) {
  for (int i = 0; i < 3; i++) {
    shape s = {.batch = {i == 0 ? 0 : 1, 1},
               .m = i == 1 ? 0 : 3,
               .n = i == 2 ? 0 : 4,
               .k = 5,
               .in = MOEC_F32,
               .out = MOEC_F32};
    check(&s);
  }
}
END_TEST

static moec_status *run_with(const int64_t *ints, moec_dtype b_type) {
  unsigned seed = 1;
  const int64_t a_dims[] = {2, 3}, b_dims[] = {3, 4}, y_dims[] = {2, 4};
  moec_tensor a = step_random(MOEC_F32, 2, a_dims, &seed),
              b = step_random(b_type, 2, b_dims, &seed);
  one_step step = {.op = MOEC_STEP_GEMM,
                   .n_in = 2,
                   .n_out = 1,
                   .n_ints = 8,
                   .ints_are_sizes = true,
                   .in = {&a, &b},
                   .out = {step_tensor(MOEC_F32, 2, y_dims)}};
  memcpy(step.ints, ints, 8 * sizeof *ints);
  moec_status *s = step_run(&step, 1);
  step_fini(&step);
  moec_tensor_fini(&a);
  moec_tensor_fini(&b);
  return s;
}

START_TEST(test_what_does_not_fit_is_refused) {
  static const int64_t good[] = {0, 2, 4, 3, 3, 1, 4, 1};
  UNIT_OK(run_with(good, MOEC_F32));
  UNIT_FAILS(run_with(good, MOEC_F64), MOEC_INVALID_MODEL,
             "node \"the_node\": gemm: expected operands of one type");
  static const int64_t bad[][8] = {
      {0, 2, 4, 4, 3, 1, 4, 1},         /* reads behind both operands */
      {0, 3, 4, 3, 3, 1, 4, 1},         /* y has fewer rows */
      {0, 2, 4, 3, 0, 1, 4, 1},         /* rows that overlap */
      {0, 2, 4, 3, 3, 1, 1, 0},         /* columns that overlap */
      {0, 2, 4, 3, 2, 2, 4, 1},         /* neither row- nor column-major */
      {0, 2, 4, 3, -3, 1, 4, 1},        /* backwards */
      {0, 2, 4, 3, INT64_MAX, 1, 4, 1}, /* overflows */
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    UNIT_FAILS(run_with(bad[i], MOEC_F32), MOEC_INVALID_MODEL, "do not fit the operands");
  }
}
END_TEST

UNIT_MAIN("gemm", test_shapes_strides_and_accumulation, test_types,
          test_large_products_are_cut_into_tiles, test_empty_results,
          test_what_does_not_fit_is_refused)
