/* The other library steps: against hand-worked values and plain loops. */
#include <math.h>

#include "base/tensor.h"
#include "include/moec.h"
#include "tests/unit/runtime_step.h"

#define TENSOR(name, type_, rank_, ...) \
  moec_tensor name = {.dtype = type_, .rank = rank_, .dims = __VA_ARGS__}

static void expect(const moec_tensor *t, const double *want) {
  for (int64_t i = 0; i < moec_tensor_numel(t); i++) {
    double got = step_at(t, i);
    if (got != want[i] && !(isnan(got) && isnan(want[i]))) {
      ck_abort_msg("element %d: expected %g, got %g", (int)i, want[i], got);
    }
  }
}

/* ---- topk -------------------------------------------------------------------------------- */

static void topk(const moec_tensor *x, int64_t k, int64_t axis, bool largest, one_step *s) {
  *s = (one_step){
      .op = MOEC_STEP_TOPK, .n_in = 1, .n_out = 2, .n_ints = 2, .ints = {axis, largest}, .in = {x}};
  s->out[0] = step_tensor(x->dtype, x->rank, x->dims);
  s->out[1] = step_tensor(MOEC_I64, x->rank, x->dims);
  s->out[0].dims[axis] = s->out[1].dims[axis] = k;
  step_run_all(s);
}

START_TEST(test_topk_ties_and_nan) {
  float values[] = {1, NAN, 3, -0.0f, 3, 0, -INFINITY, NAN};
  TENSOR(x, MOEC_F32, 1, {8});
  x.data = values;
  one_step s;
  topk(&x, 8, 0, true, &s);
  expect(&s.out[1], (double[]){1, 7, 2, 4, 0, 3, 5, 6});
  expect(&s.out[0], (double[]){NAN, NAN, 3, 3, 1, 0, 0, -INFINITY});
  step_fini(&s);
  topk(&x, 5, 0, false, &s);
  expect(&s.out[1], (double[]){6, 3, 5, 0, 2});
  step_fini(&s);
}
END_TEST

START_TEST(test_topk_sorts_lines_of_any_axis) {
  unsigned seed = 3;
  const int64_t dims[] = {2, 150, 3};
  static const moec_dtype types[] = {MOEC_F32, MOEC_F64, MOEC_BF16, MOEC_I64, MOEC_I32, MOEC_U8};
  for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
    for (int largest = 0; largest < 2; largest++) {
      moec_tensor x = step_random(types[t], 3, dims, &seed);
      one_step few, many;
      topk(&x, 9, 1, largest, &few);
      topk(&x, 150, 1, largest, &many);
      for (int64_t o = 0; o < 2; o++)
        for (int64_t i = 0; i < 3; i++)
          for (int64_t j = 0; j < 150; j++) {
            int64_t at = (o * 150 + j) * 3 + i, small = (o * 9 + j) * 3 + i;
            int64_t index = ((int64_t *)many.out[1].data)[at];
            double v = step_at(&many.out[0], at);
            UNIT_TRUE(v == step_at(&x, (o * 150 + index) * 3 + i));
            if (j < 9)
              UNIT_TRUE(((int64_t *)few.out[1].data)[small] == index &&
                        step_at(&few.out[0], small) == v);
            if (j == 0) continue;
            double before = step_at(&many.out[0], at - 3);
            UNIT_TRUE(before == v ? ((int64_t *)many.out[1].data)[at - 3] < index
                                  : (before > v) == largest);
          }
      step_fini(&few);
      step_fini(&many);
      moec_tensor_fini(&x);
    }
  }
}
END_TEST

START_TEST(test_topk_of_unsigned_and_bounds) {
  uint64_t values[] = {1, UINT64_MAX, 0};
  TENSOR(x, MOEC_U64, 1, {3});
  x.data = values;
  one_step s;
  topk(&x, 0, 0, true, &s);
  step_fini(&s);
  topk(&x, 3, 0, true, &s);
  expect(&s.out[1], (double[]){1, 0, 2});
  step_fini(&s);
  s = (one_step){
      .op = MOEC_STEP_TOPK, .n_in = 1, .n_out = 2, .n_ints = 2, .ints = {0, 1}, .in = {&x}};
  const int64_t four = 4;
  s.out[1] = step_tensor(MOEC_I64, 1, &four);
  UNIT_FAILS(step_run(&s, 1), MOEC_INVALID_ARGUMENT, "topk: expected k of at most 3, got 4");
}
END_TEST

/* ---- cumsum, copy, random ---------------------------------------------------------------- */

START_TEST(test_cumsum) {
  int64_t values[] = {1, 2, 3, 4, 5, 6};
  static const double want[4][6] = {
      {1, 2, 4, 6, 9, 12}, {0, 0, 1, 2, 4, 6}, {9, 12, 8, 10, 5, 6}, {8, 10, 5, 6, 0, 0}};
  static const moec_dtype types[] = {MOEC_I64, MOEC_F32};
  for (int t = 0; t < 2; t++) {
    const int64_t dims[] = {3, 2};
    moec_tensor x;
    UNIT_OK(moec_tensor_init(&x, types[t], 2, dims));
    for (size_t i = 0; i < 6; i++) moec_store_i64(types[t], x.data, i, values[i]);
    for (int flags = 0; flags < 4; flags++) {
      one_step s = {.op = MOEC_STEP_CUMSUM,
                    .n_in = 1,
                    .n_out = 1,
                    .n_ints = 3,
                    .in = {&x},
                    .ints = {0, flags >> 1, flags & 1},
                    .out = {step_tensor(types[t], 2, dims)}};
      step_run_all(&s);
      expect(&s.out[0], want[flags]);
      step_fini(&s);
    }
    moec_tensor_fini(&x);
  }
}
END_TEST

START_TEST(test_copy) {
  unsigned seed = 2;
  const int64_t dims[] = {100001}, other[] = {100001, 1};
  moec_tensor x = step_random(MOEC_F32, 1, dims, &seed);
  one_step s = {.op = MOEC_STEP_COPY,
                .n_in = 1,
                .n_out = 1,
                .in = {&x},
                .out = {step_tensor(MOEC_F32, 2, other)}};
  step_run_all(&s);
  UNIT_TRUE(!memcmp(s.out[0].data, x.data, moec_tensor_bytes(&x)));
  step_fini(&s);
  s.out[0] = step_tensor(MOEC_F64, 1, dims);
  UNIT_FAILS(step_run(&s, 1), MOEC_INVALID_MODEL, "copy: expected operands of equal bytes");
  moec_tensor_fini(&x);
}
END_TEST

START_TEST(test_random_is_the_same_every_time) {
  const int64_t dims[] = {50000};
  for (int kind = 0; kind < 2; kind++) {
    one_step s = {.op = MOEC_STEP_RANDOM,
                  .n_out = 1,
                  .n_ints = 2,
                  .ints = {kind, 42},
                  .out = {step_tensor(MOEC_F32, 1, dims)}};
    step_run_all(&s);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < dims[0]; i++) {
      double v = step_at(&s.out[0], i);
      UNIT_TRUE(kind || (v >= 0 && v < 1));
      sum += v / (double)dims[0];
      squares += v * v / (double)dims[0];
    }
    UNIT_TRUE(fabs(sum - (kind ? 0 : 0.5)) < 0.02 && fabs(squares - (kind ? 1 : 1.0 / 3)) < 0.03);
    step_fini(&s);
  }
}
END_TEST

/* ---- scatter ----------------------------------------------------------------------------- */

START_TEST(test_scatter_elements) {
  double values[] = {1, 2, 3, 4, 5, 6}, updates[] = {20, 20, 40, 50};
  int64_t index[] = {1, 2, -1, 1};
  static const moec_dtype types[] = {MOEC_F32, MOEC_I32, MOEC_U8};
  /* row 0 gets 20 at 1, 20 at 2; row 1 gets 40 at the last, 50 at 1 */
  static const double rows[5][6] = {{1, 20, 20, 4, 50, 40},
                                    {1, 22, 23, 4, 55, 46},
                                    {1, 40, 60, 4, 250, 240},
                                    {1, 20, 20, 4, 50, 40},
                                    {1, 2, 3, 4, 5, 6}};
  for (int t = 0; t < 3; t++) {
    for (int how = 0; how < 5; how++) {
      const int64_t dims[] = {2, 3}, u_dims[] = {2, 2};
      moec_tensor x, u;
      UNIT_OK(moec_tensor_init(&x, types[t], 2, dims));
      UNIT_OK(moec_tensor_init(&u, types[t], 2, u_dims));
      for (size_t i = 0; i < 6; i++) moec_store_f64(types[t], x.data, i, values[i]);
      for (size_t i = 0; i < 4; i++) moec_store_f64(types[t], u.data, i, updates[i]);
      TENSOR(at, MOEC_I64, 2, {2, 2});
      at.data = index;
      one_step s = {.op = MOEC_STEP_SCATTER_ELEMENTS,
                    .n_in = 3,
                    .n_out = 1,
                    .n_ints = 2,
                    .in = {&x, &at, &u},
                    .ints = {1, how},
                    .out = {step_tensor(types[t], 2, dims)}};
      step_run_all(&s);
      expect(&s.out[0], rows[how]);
      step_fini(&s);
      index[2] = 3;
      UNIT_FAILS(step_run(&s, 1), MOEC_INVALID_ARGUMENT,
                 "scatter_elements: an index is out of range: 3");
      index[2] = -1;
      moec_tensor_fini(&x);
      moec_tensor_fini(&u);
    }
  }
}
END_TEST

START_TEST(test_scatter_nd) {
  float x[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, u[] = {20, 21, 30, 31, 40, 41};
  int32_t index[] = {1, 2, 0,
                     0, 1, -1}; /* [3, 2] into [2, 3, 2]: rows of 2, the first place twice */
  TENSOR(tx, MOEC_F32, 3, {2, 3, 2});
  TENSOR(tu, MOEC_F32, 2, {3, 2});
  TENSOR(ti, MOEC_I32, 2, {3, 2});
  tx.data = x, tu.data = u, ti.data = index;
  one_step s = {.op = MOEC_STEP_SCATTER_ND,
                .n_in = 3,
                .n_out = 1,
                .n_ints = 1,
                .in = {&tx, &ti, &tu},
                .out = {step_tensor(MOEC_F32, 3, tx.dims)}};
  step_run_all(&s);
  expect(&s.out[0], (double[]){30, 31, 2, 3, 4, 5, 6, 7, 8, 9, 40, 41});
  step_fini(&s);
  s.ints[0] = 1;
  step_run_all(&s);
  expect(&s.out[0], (double[]){30, 32, 2, 3, 4, 5, 6, 7, 8, 9, 70, 73});
  step_fini(&s);
  index[0] = 2;
  UNIT_FAILS(step_run(&s, 1), MOEC_INVALID_ARGUMENT, "scatter_nd: an index is out of range: 2");
}
END_TEST

START_TEST(test_scatter_of_the_farthest_indices) {
  const int64_t far[] = {INT64_MIN, INT64_MIN + 1, INT64_MAX, INT64_MAX - 1, -4, 3};
  float x[6] = {0}, u[2] = {0};
  TENSOR(tx, MOEC_F32, 2, {3, 2});
  TENSOR(tu, MOEC_F32, 2, {1, 2});
  tx.data = x, tu.data = u;
  for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
    int64_t index[2] = {far[i], 0};
    TENSOR(by_row, MOEC_I64, 2, {1, 1});
    TENSOR(by_element, MOEC_I64, 2, {1, 2});
    by_row.data = by_element.data = index;
    one_step s = {.op = MOEC_STEP_SCATTER_ND, .n_in = 3, .n_out = 1, .n_ints = 1, .in = {&tx, &by_row, &tu},
                  .out = {step_tensor(MOEC_F32, 2, tx.dims)}};
    UNIT_FAILS(step_run(&s, 1), MOEC_INVALID_ARGUMENT, "scatter_nd: an index is out of range: ");
    s.op = MOEC_STEP_SCATTER_ELEMENTS, s.n_ints = 2, s.in[1] = &by_element;
    UNIT_FAILS(step_run(&s, 1), MOEC_INVALID_ARGUMENT, "scatter_elements: an index is out of range: ");
  }
}
END_TEST

/* No bytes, but a slice of it would have 2^80 elements. Inputs like that are refused where they are given. */
START_TEST(test_strides_of_more_than_64_bits) {
  const int64_t large = (int64_t)1 << 40, dims[] = {0, large, large};
  float none[1] = {0};
  TENSOR(tx, MOEC_F32, 1, {0});
  tx.data = none;
  one_step s = {.op = MOEC_STEP_COPY, .n_in = 1, .n_out = 1, .in = {&tx}, .out = {step_tensor(MOEC_F32, 3, dims)}};
  UNIT_FAILS(step_run(&s, 1), MOEC_INVALID_ARGUMENT, "expected strides of 64 bits, got axes from 2 on");
}
END_TEST

/* Rows of gradients added up at their tokens, from zeros: some tokens often, most never. */
START_TEST(test_scatter_from_zeros) {
  enum { V = 50, T = 300, H = 200 };
  static float u[T * H], sum[V * H];
  static double want[V * H];
  static int64_t index[T];
  for (int t = 0; t < T; t++) {
    index[t] = t % 7 ? t * t % V : 3;
    for (int h = 0; h < H; h++) {
      u[t * H + h] = (float)((t * 31 + h * 17) % 101) / 7.0f;
      sum[index[t] * H + h] += u[t * H + h];
    }
  }
  for (int i = 0; i < V * H; i++) want[i] = (double)sum[i];
  TENSOR(tu, MOEC_F32, 2, {T, H});
  TENSOR(ti, MOEC_I64, 2, {T, 1});
  tu.data = u, ti.data = index;
  one_step s = {.op = MOEC_STEP_SCATTER_ND,
                .n_in = 3,
                .n_out = 1,
                .n_ints = 1,
                .in = {NULL, &ti, &tu},
                .ints = {1},
                .out = {step_tensor(MOEC_F32, 2, (int64_t[]){V, H})}};
  step_run_all(&s);
  expect(&s.out[0], want); /* the same bits: the order of the rows */
  step_fini(&s);
}
END_TEST

/* ---- conv -------------------------------------------------------------------------------- */

typedef struct conv_case {
  int64_t n, c, m, groups, d, in[2], kernel[2], stride[2], lo[2], hi[2], dilation[2];
  moec_dtype type;
} conv_case;

static double conv_at(const conv_case *k, const moec_tensor *x, const moec_tensor *w, int64_t n,
                      int64_t m, const int64_t *o) {
  double sum = 0;
  int64_t each = k->c / k->groups, group = m / (k->m / k->groups);
  for (int64_t c = 0; c < each; c++)
    for (int64_t a = 0; a < k->kernel[0]; a++)
      for (int64_t b = 0; b < k->kernel[1]; b++) {
        int64_t i = o[0] * k->stride[0] + a * k->dilation[0] - k->lo[0];
        int64_t j = o[1] * k->stride[1] + b * k->dilation[1] - k->lo[1];
        if (i < 0 || i >= k->in[0] || j < 0 || j >= k->in[1]) continue;
        sum += step_at(x, ((n * k->c + group * each + c) * k->in[0] + i) * k->in[1] + j) *
               step_at(w, ((m * each + c) * k->kernel[0] + a) * k->kernel[1] + b);
      }
  return sum;
}

static void check_conv(const conv_case *k) {
  unsigned seed = 4;
  int64_t out[2], d = k->d;
  for (int i = 0; i < 2; i++) {
    int64_t room = k->in[i] + k->lo[i] + k->hi[i] - k->dilation[i] * (k->kernel[i] - 1) - 1;
    out[i] = room < 0 ? 0 : room / k->stride[i] + 1;
  }
  /* One dimension: the first of the two axes has size 1 and is left out. */
  const int64_t x2[] = {k->n, k->c, k->in[0], k->in[1]},
                w2[] = {k->m, k->c / k->groups, k->kernel[0], k->kernel[1]};
  const int64_t y2[] = {k->n, k->m, out[0], out[1]}, x1[] = {k->n, k->c, k->in[1]};
  const int64_t w1[] = {k->m, k->c / k->groups, k->kernel[1]}, y1[] = {k->n, k->m, out[1]};
  moec_tensor x = step_random(k->type, (uint32_t)d + 2, d == 2 ? x2 : x1, &seed);
  moec_tensor w = step_random(k->type, (uint32_t)d + 2, d == 2 ? w2 : w1, &seed);
  one_step s = {.op = MOEC_STEP_CONV,
                .n_in = 2,
                .n_out = 1,
                .in = {&x, &w},
                .out = {step_tensor(k->type, (uint32_t)d + 2, d == 2 ? y2 : y1)}};
  const int64_t *lists[] = {k->stride, k->lo, k->hi, k->dilation};
  s.ints[s.n_ints++] = d;
  for (int l = 0; l < 4; l++)
    for (int64_t i = 2 - d; i < 2; i++) s.ints[s.n_ints++] = lists[l][i];
  s.ints[s.n_ints++] = k->groups;
  step_run_all(&s);
  int64_t at = 0;
  for (int64_t n = 0; n < k->n; n++)
    for (int64_t m = 0; m < k->m; m++)
      for (int64_t i = 0; i < out[0]; i++)
        for (int64_t j = 0; j < out[1]; j++, at++) {
          double want = conv_at(k, &x, &w, n, m, (int64_t[]){i, j});
          UNIT_TRUE(fabs(step_at(&s.out[0], at) - want) <=
                    (k->type == MOEC_BF16 ? 0.01 * fabs(want) : 0));
        }
  step_fini(&s);
  moec_tensor_fini(&x);
  moec_tensor_fini(&w);
}

START_TEST(test_conv) {
  static const conv_case cases[] = {
      /* causal and depthwise, as linear attention has it */
      {2, 6, 6, 6, 1, {1, 9}, {1, 4}, {1, 1}, {0, 3}, {0, 0}, {1, 1}, MOEC_F32},
      {1, 4, 4, 4, 1, {1, 3}, {1, 4}, {1, 1}, {0, 3}, {0, 3}, {1, 1}, MOEC_BF16},
      {2, 4, 6, 2, 2, {7, 9}, {3, 2}, {2, 1}, {1, 0}, {0, 2}, {1, 3}, MOEC_F32},
      {1, 3, 5, 1, 2, {6, 6}, {3, 3}, {1, 2}, {2, 2}, {2, 2}, {2, 1}, MOEC_F64},
      {1, 2, 2, 1, 2, {5, 5}, {3, 3}, {3, 3}, {-1, 0}, {0, -1}, {1, 1}, MOEC_F32}, /* cropped */
      {1, 2, 2, 1, 1, {1, 2}, {1, 5}, {1, 1}, {0, 0}, {0, 0}, {1, 1}, MOEC_F32},   /* no room */
      {0, 2, 2, 1, 1, {1, 8}, {1, 3}, {1, 1}, {0, 0}, {0, 0}, {1, 1}, MOEC_F32},   /* nothing */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_conv(&cases[i]);
}
END_TEST

UNIT_MAIN("ops", test_topk_ties_and_nan, test_topk_sorts_lines_of_any_axis,
          test_topk_of_unsigned_and_bounds, test_cumsum, test_copy,
          test_random_is_the_same_every_time, test_scatter_elements, test_scatter_nd,
          test_scatter_from_zeros, test_scatter_of_the_farthest_indices,
          test_strides_of_more_than_64_bits, test_conv)
