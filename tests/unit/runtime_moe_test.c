/* The expert engine against plain loops. */
#include <math.h>

#include "base/tensor.h"
#include "include/moec.h"
#include "tests/unit/runtime_step.h"

typedef struct layer {
  int64_t tokens, experts, k, in, out;
  int skew; /* 0: spread; 1: all choices to few experts; 2: the last gets all it can */
} layer;

/* Different experts for one token, as a selection gives them. */
static moec_tensor choices(const layer *l) {
  const int64_t dims[] = {l->tokens, l->k};
  moec_tensor t;
  UNIT_OK(moec_tensor_init(&t, MOEC_I64, 2, dims));
  for (int64_t i = 0; i < l->tokens; i++) {
    for (int64_t j = 0; j < l->k; j++) {
      int64_t first = l->skew == 0 ? i * 7 : l->skew == 1 ? 1 : l->experts - 1;
      ((int64_t *)t.data)[i * l->k + j] =
          (first + j * (l->skew == 0 ? 1 : l->experts - 1)) % l->experts;
    }
  }
  return t;
}

static void check_plan(const layer *l, const moec_tensor *chosen, one_step *plan) {
  int64_t n = l->tokens * l->k, ends = l->experts + 1, row = 0;
  *plan = (one_step){.op = MOEC_STEP_MOE_PLAN,
                     .n_in = 1,
                     .n_out = 3,
                     .in = {chosen},
                     .out = {step_tensor(MOEC_I32, 1, &n), step_tensor(MOEC_I32, 1, &n),
                             step_tensor(MOEC_I32, 1, &ends)}};
  step_run_all(plan);
  const int32_t *perm = plan->out[0].data, *inv = plan->out[1].data, *offsets = plan->out[2].data;
  for (int64_t e = 0; e < l->experts; e++) {
    UNIT_TRUE(offsets[e] == row);
    for (int64_t a = 0; a < n; a++) {
      if (((int64_t *)chosen->data)[a] != e) continue;
      UNIT_TRUE(perm[row] == a && inv[a] == row);
      row++;
    }
  }
  UNIT_TRUE(offsets[l->experts] == n && row == n);
}

static void check_dispatch(const layer *l, const moec_tensor *x, const one_step *plan,
                           one_step *rows) {
  const int64_t dims[] = {l->tokens * l->k, l->in};
  *rows = (one_step){.op = MOEC_STEP_MOE_DISPATCH,
                     .n_in = 2,
                     .n_out = 1,
                     .n_ints = 1,
                     .ints = {l->k},
                     .in = {x, &plan->out[0]},
                     .out = {step_tensor(x->dtype, 2, dims)}};
  step_run_all(rows);
  for (int64_t r = 0; r < dims[0]; r++) {
    int64_t token = ((int32_t *)plan->out[0].data)[r] / l->k;
    for (int64_t i = 0; i < l->in; i++) {
      UNIT_TRUE(step_at(&rows->out[0], r * l->in + i) == step_at(x, token * l->in + i));
    }
  }
}

static void check_grouped(const layer *l, const one_step *plan, const moec_tensor *rows,
                          moec_dtype type, bool transposed, bool with_bias, one_step *y) {
  unsigned seed = 5;
  const int64_t w_dims[] = {l->experts, transposed ? l->out : l->in, transposed ? l->in : l->out};
  const int64_t b_dims[] = {l->experts, l->out}, y_dims[] = {l->tokens * l->k, l->out};
  moec_tensor w = step_random(type, 3, w_dims, &seed), bias = step_random(type, 2, b_dims, &seed);
  const int32_t *offsets = plan->out[2].data;
  *y = (one_step){.op = MOEC_STEP_MOE_GROUPED_DOT,
                  .n_in = 4,
                  .n_out = 1,
                  .n_ints = 1,
                  .ints = {transposed},
                  .in = {rows, &w, &plan->out[2], with_bias ? &bias : NULL},
                  .out = {step_tensor(type, 2, y_dims)}};
  step_run_all(y);
  double tolerance = type == MOEC_BF16 ? 0.01 : 0;
  for (int64_t e = 0; e < l->experts; e++)
    for (int64_t r = offsets[e]; r < offsets[e + 1]; r++)
      for (int64_t m = 0; m < l->out; m++) {
        double sum = with_bias ? step_at(&bias, e * l->out + m) : 0;
        for (int64_t k = 0; k < l->in; k++) {
          int64_t at = transposed ? m * l->in + k : k * l->out + m;
          sum += step_at(rows, r * l->in + k) * step_at(&w, e * l->in * l->out + at);
        }
        UNIT_TRUE(fabs(step_at(&y->out[0], r * l->out + m) - sum) <= tolerance * (fabs(sum) + 1));
      }
  moec_tensor_fini(&w);
  moec_tensor_fini(&bias);
}

/* moe.combine with and without weights and residual; moe.weight before it gives the same in f32. */
static void check_combine(const layer *l, const one_step *plan, const moec_tensor *rows,
                          moec_dtype type, int flags) {
  unsigned seed = 9;
  const int64_t w_dims[] = {l->tokens, l->k}, y_dims[] = {l->tokens, l->out};
  moec_tensor w = step_random(MOEC_F32, 2, w_dims, &seed),
              residual = step_random(type, 2, y_dims, &seed);
  const int32_t *inv = plan->out[1].data;
  one_step y = {.op = MOEC_STEP_MOE_COMBINE,
                .n_in = 4,
                .n_out = 1,
                .n_ints = 1,
                .ints = {l->k},
                .in = {rows, &plan->out[1], flags & 1 ? &w : NULL, flags & 2 ? &residual : NULL},
                .out = {step_tensor(type, 2, y_dims)}};
  step_run_all(&y);
  moec_tensor one;
  UNIT_OK(moec_tensor_init(&one, type, 0, NULL));
  for (int64_t t = 0; t < l->tokens; t++)
    for (int64_t i = 0; i < l->out; i++) {
      float sum = 0; /* in slot order, rounded once */
      for (int64_t s = 0; s < l->k; s++) {
        float v = (float)step_at(rows, (int64_t)inv[t * l->k + s] * l->out + i);
        sum += flags & 1 ? v * (float)step_at(&w, t * l->k + s) : v;
      }
      if (flags & 2) sum += (float)step_at(&residual, t * l->out + i);
      moec_store_f64(type, one.data, 0, (double)sum);
      UNIT_TRUE(step_at(&y.out[0], t * l->out + i) == step_at(&one, 0));
    }
  step_fini(&y);
  moec_tensor_fini(&one);
  moec_tensor_fini(&w);
  moec_tensor_fini(&residual);
}

static void check_weight(const layer *l, const one_step *plan, const moec_tensor *rows) {
  unsigned seed = 3;
  const int64_t w_dims[] = {l->tokens, l->k};
  moec_tensor w = step_random(MOEC_F32, 2, w_dims, &seed);
  one_step y = {.op = MOEC_STEP_MOE_WEIGHT,
                .n_in = 3,
                .n_out = 1,
                .in = {rows, &w, &plan->out[0]},
                .out = {step_tensor(rows->dtype, 2, rows->dims)}};
  step_run_all(&y);
  for (int64_t r = 0; r < rows->dims[0]; r++)
    for (int64_t i = 0; i < l->out; i++) {
      double want = step_at(rows, r * l->out + i) * step_at(&w, ((int32_t *)plan->out[0].data)[r]);
      UNIT_TRUE(fabs(step_at(&y.out[0], r * l->out + i) - want) <= 0.005 * fabs(want));
    }
  step_fini(&y);
  moec_tensor_fini(&w);
}

static void check_layer(const layer *l, moec_dtype type) {
  unsigned seed = 11;
  const int64_t x_dims[] = {l->tokens, l->in};
  moec_tensor x = step_random(type, 2, x_dims, &seed), chosen = choices(l);
  one_step plan, rows, y;
  check_plan(l, &chosen, &plan);
  check_dispatch(l, &x, &plan, &rows);
  for (int flags = 0; flags < 4; flags++) {
    check_grouped(l, &plan, &rows.out[0], type, flags & 1, flags & 2, &y);
    check_combine(l, &plan, &y.out[0], type, flags);
    if (flags == 0) check_weight(l, &plan, &y.out[0]);
    step_fini(&y);
  }
  step_fini(&plan);
  step_fini(&rows);
  moec_tensor_fini(&x);
  moec_tensor_fini(&chosen);
}

START_TEST(test_layers) {
  static const int64_t ks[] = {1, 2, 3, 4, 6, 8};
  for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
    for (int skew = 0; skew < 3; skew++) {
      layer l = {.tokens = 23, .experts = 11, .k = ks[i], .in = 13, .out = 7, .skew = skew};
      check_layer(&l, MOEC_F32);
    }
  }
}
END_TEST

START_TEST(test_extremes) {
  static const layer layers[] = {
      {0, 4, 2, 8, 8, 0},       /* no tokens */
      {1, 4, 2, 5, 3, 0},       /* one token, empty experts */
      {1, 1, 1, 1, 1, 0},       /* one of everything */
      {700, 3, 1, 33, 129, 2},  /* one expert gets all: cut by rows */
      {3000, 64, 6, 1, 1, 0},   /* several blocks of assignments */
      {3, 128, 8, 600, 550, 0}, /* more experts than rows, rows longer than a part */
      {9, 5, 2, 0, 4, 0},       /* rows of nothing: sums are 0 */
  };
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) check_layer(&layers[i], MOEC_F32);
}
END_TEST

START_TEST(test_types) {
  layer l = {.tokens = 40, .experts = 4, .k = 2, .in = 300, .out = 20, .skew = 1};
  check_layer(&l, MOEC_BF16);
  l.in = 12;
  check_layer(&l, MOEC_F64);
}
END_TEST

START_TEST(test_wrong_expert) {
  const int64_t dims[] = {2, 2}, n = 4, ends = 4;
  for (int64_t wrong = -1; wrong <= 3; wrong += 4) {
    int64_t chosen[] = {0, 2, 1, wrong};
    moec_tensor t = {.dtype = MOEC_I64, .rank = 2, .dims = {dims[0], dims[1]}, .data = chosen};
    one_step plan = {.op = MOEC_STEP_MOE_PLAN,
                     .n_in = 1,
                     .n_out = 3,
                     .in = {&t},
                     .out = {step_tensor(MOEC_I32, 1, &n), step_tensor(MOEC_I32, 1, &n),
                             step_tensor(MOEC_I32, 1, &ends)}};
    UNIT_FAILS(step_run(&plan, 2), MOEC_INVALID_ARGUMENT,
               "node \"the_node\": moe.plan: token 1, choice 1: expected an expert below 3, got");
  }
}
END_TEST

START_TEST(test_wrong_rows) {
  const int64_t x_dims[] = {2, 3}, r_dims[] = {4, 3};
  int32_t perm[] = {0, 1, 4, 2};
  unsigned seed = 1;
  moec_tensor x = step_random(MOEC_F32, 2, x_dims, &seed),
              p = {.dtype = MOEC_I32, .rank = 1, .dims = {4}, .data = perm};
  one_step s = {.op = MOEC_STEP_MOE_DISPATCH,
                .n_in = 2,
                .n_out = 1,
                .n_ints = 1,
                .ints = {2},
                .in = {&x, &p},
                .out = {step_tensor(MOEC_F32, 2, r_dims)}};
  UNIT_FAILS(step_run(&s, 1), MOEC_INVALID_ARGUMENT, "moe.dispatch: an index is out of range");
  moec_tensor rows = step_random(MOEC_F32, 2, r_dims, &seed);
  one_step c = {.op = MOEC_STEP_MOE_COMBINE,
                .n_in = 2,
                .n_out = 1,
                .n_ints = 1,
                .ints = {2},
                .in = {&rows, &p},
                .out = {step_tensor(MOEC_F32, 2, x_dims)}};
  UNIT_FAILS(step_run(&c, 1), MOEC_INVALID_ARGUMENT, "moe.combine: an index is out of range");
  const int64_t w_dims[] = {2, 3, 3};
  int32_t ends[] = {0, 5, 4};
  moec_tensor w = step_random(MOEC_F32, 3, w_dims, &seed),
              o = {.dtype = MOEC_I32, .rank = 1, .dims = {3}, .data = ends};
  one_step g = {.op = MOEC_STEP_MOE_GROUPED_DOT,
                .n_in = 3,
                .n_out = 1,
                .n_ints = 1,
                .in = {&rows, &w, &o},
                .out = {step_tensor(MOEC_F32, 2, r_dims)}};
  UNIT_FAILS(step_run(&g, 1), MOEC_INVALID_ARGUMENT, "expected offsets that rise from 0 to 4");
  w.dims[0] = 0, o.dims[0] = 1;
  UNIT_FAILS(step_run(&g, 1), MOEC_INVALID_MODEL, "expected an expert for 4 rows, got none");
  w.dims[0] = 2;
  moec_tensor_fini(&w);
  moec_tensor_fini(&rows);
  moec_tensor_fini(&x);
}
END_TEST

START_TEST(test_select_prefers_nan_then_lower_index) {
  const float n = NAN, i = INFINITY;
  float scores[] = {1, 3, 3, 0, -1, 3, n, 2, 2, 1, n, -i, -0.0f, 0, -1, -2, -3, -4};
  static const int64_t want[] = {1, 2, 5, 0, 4, 1, 0, 1, 2};
  const int64_t dims[] = {3, 6}, out[] = {3, 3};
  moec_tensor s = {.dtype = MOEC_F32, .rank = 2, .dims = {dims[0], dims[1]}, .data = scores};
  one_step step = {.op = MOEC_STEP_MOE_SELECT,
                   .n_in = 1,
                   .n_out = 1,
                   .in = {&s},
                   .out = {step_tensor(MOEC_I64, 2, out)}};
  step_run_all(&step);
  UNIT_TRUE(!memcmp(step.out[0].data, want, sizeof want));
  step_fini(&step);
}
END_TEST

UNIT_MAIN("moe", test_layers, test_extremes, test_types, test_wrong_expert, test_wrong_rows,
          test_select_prefers_nan_then_lower_index)
