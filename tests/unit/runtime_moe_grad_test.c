/* The steps of the backward of experts against the interpreter, and what steps of the restore and
 * its gradient ask of their operands. */
#include <math.h>

#include "base/tensor.h"
#include "include/moec.h"
#include "ir/builder.h"
#include "ir/interp.h"
#include "tests/unit/runtime_step.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* The only result of |op| on |in|, by its meaning. */
static moec_tensor interpret(moec_op op, const void *attrs, uint32_t n_in, const moec_tensor *in) {
  moec_module *m = moec_module_create();
  moec_builder b = moec_builder_on(moec_fn_get(m, moec_fn_add(m, "main")));
  moec_value v[4];
  moec_tensor y;
  for (uint32_t i = 0; i < n_in; i++) {
    moec_dim dims[MOEC_MAX_RANK];
    for (uint32_t k = 0; k < in[i].rank; k++) dims[k] = moec_dim_const(m, in[i].dims[k]);
    v[i] = moec_add_input(b.g, "x", moec_type_make(m, in[i].dtype, in[i].rank, dims));
  }
  moec_add_output(b.g, "y", moec_b_op(&b, op, attrs, n_in, v, 1));
  UNIT_OK(moec_builder_end(&b));
  UNIT_OK(moec_interp_run(m, (moec_fn){1}, in, n_in, &y, 1, NULL));
  moec_module_destroy(m);
  return y;
}

static void check_equal(const moec_tensor *got, const moec_tensor *want) {
  UNIT_TRUE(got->dtype == want->dtype && got->rank == want->rank);
  for (uint32_t i = 0; i < want->rank; i++) UNIT_TRUE(got->dims[i] == want->dims[i]);
  for (int64_t i = 0; i < moec_tensor_numel(want); i++) {
    double x = step_at(got, i), y = step_at(want, i);
    if (!(x == y || (isnan(x) && isnan(y))))
      ck_abort_msg("element %lld: %g, expected %g", (long long)i, x, y);
  }
}

/* ---- sums over the rows of experts --------------------------------------------------------- */

enum { SPREAD, EVERY_OTHER, ALL_TO_FIRST, ALL_TO_LAST };

typedef struct sorted {
  int64_t n, experts, m, k;
  int skew;
} sorted;

static moec_tensor make_offsets(const sorted *r) {
  const int64_t ends = r->experts + 1;
  moec_tensor t;
  UNIT_OK(moec_tensor_init(&t, MOEC_I32, 1, &ends));
  int32_t *at = t.data;
  for (int64_t e = 1; e <= r->experts; e++) {
    int64_t end = r->n * e / r->experts;
    if (r->skew == EVERY_OTHER) end = r->n * ((e + 1) / 2) / ((r->experts + 1) / 2);
    if (r->skew == ALL_TO_FIRST) end = r->n;
    if (r->skew == ALL_TO_LAST) end = 0;
    at[e] = (int32_t)(e == r->experts ? r->n : end);
  }
  return t;
}

static void check_outer(const sorted *r, const moec_tensor *dy, const moec_tensor *x,
                        const moec_tensor *offsets) {
  const int64_t dims[] = {r->experts, r->m, r->k};
  const moec_tensor in[] = {*dy, *x, *offsets};
  one_step s = {.op = MOEC_STEP_MOE_GROUPED_OUTER,
                .n_in = 3,
                .n_out = 1,
                .in = {dy, x, offsets},
                .out = {step_tensor(x->dtype, 3, dims)}};
  step_run_all(&s);
  moec_tensor want = interpret(MOEC_OP_MOE_GROUPED_OUTER, NULL, 3, in);
  check_equal(&s.out[0], &want);
  step_fini(&s);
  moec_tensor_fini(&want);
}

static void check_sum(const sorted *r, const moec_tensor *x, const moec_tensor *offsets) {
  const int64_t dims[] = {r->experts, r->k};
  const moec_tensor in[] = {*x, *offsets};
  one_step s = {.op = MOEC_STEP_MOE_GROUP_SUM,
                .n_in = 2,
                .n_out = 1,
                .in = {x, offsets},
                .out = {step_tensor(x->dtype, 2, dims)}};
  step_run_all(&s);
  moec_tensor want = interpret(MOEC_OP_MOE_GROUP_SUM, NULL, 2, in);
  check_equal(&s.out[0], &want);
  step_fini(&s);
  moec_tensor_fini(&want);
}

static void check_rows_of(const sorted *r, moec_dtype type, bool with_nan) {
  unsigned seed = 7;
  const int64_t dy_dims[] = {r->n, r->m}, x_dims[] = {r->n, r->k};
  moec_tensor dy = step_random(type, 2, dy_dims, &seed), x = step_random(type, 2, x_dims, &seed);
  moec_tensor offsets = make_offsets(r);
  if (with_nan && r->n && r->k) moec_store_f64(type, x.data, 0, (double)NAN);
  check_outer(r, &dy, &x, &offsets);
  check_sum(r, &x, &offsets);
  moec_tensor_fini(&dy);
  moec_tensor_fini(&x);
  moec_tensor_fini(&offsets);
}

START_TEST(test_rows_of_experts) {
  static const int64_t ks[] = {1, 2, 4, 6, 8};
  static const moec_dtype types[] = {MOEC_F32, MOEC_BF16, MOEC_F16, MOEC_F64};
  for (size_t i = 0; i < COUNT(ks); i++)
    for (int skew = 0; skew < 4; skew++)
      for (size_t t = 0; t < COUNT(types); t++) {
        sorted r = {.n = 7 * ks[i], .experts = 9, .m = 13, .k = 5, .skew = skew};
        check_rows_of(&r, types[t], t == 0);
      }
}
END_TEST

START_TEST(test_extremes) {
  static const sorted all[] = {
      {0, 4, 5, 3, SPREAD},             /* no tokens: zeros */
      {1, 4, 5, 3, ALL_TO_LAST},        /* one row */
      {1, 1, 1, 1, SPREAD},             /* one of everything */
      {3, 64, 33, 17, SPREAD},          /* more experts than rows */
      {500, 3, 130, 129, ALL_TO_FIRST}, /* several tiles an expert */
      {500, 3, 131, 127, EVERY_OTHER},  /* the last tiles are smaller */
      {40, 3, 1, 300, SPREAD},          /* vectors instead of matrices */
      {40, 3, 300, 1, SPREAD},
      {6, 2, 0, 4, SPREAD}, /* results without elements */
      {6, 2, 4, 0, SPREAD},
      {90, 4, 3, 700, EVERY_OTHER}, /* rows longer than a part */
  };
  for (size_t i = 0; i < COUNT(all); i++) {
    check_rows_of(&all[i], MOEC_F32, false);
    check_rows_of(&all[i], MOEC_BF16, false);
  }
}
END_TEST

/* Gradients in f32 of rows in bf16 are not rounded. */
START_TEST(test_wide_results) {
  const sorted r = {.n = 21, .experts = 3, .m = 6, .k = 5};
  unsigned seed = 3;
  const int64_t dy_dims[] = {r.n, r.m}, x_dims[] = {r.n, r.k}, dims[] = {r.experts, r.m, r.k};
  moec_tensor wide[3] = {step_random(MOEC_F32, 2, dy_dims, &seed),
                         step_random(MOEC_F32, 2, x_dims, &seed), make_offsets(&r)};
  seed = 3;
  moec_tensor dy = step_random(MOEC_BF16, 2, dy_dims, &seed),
              x = step_random(MOEC_BF16, 2, x_dims, &seed);
  one_step s = {.op = MOEC_STEP_MOE_GROUPED_OUTER,
                .n_in = 3,
                .n_out = 1,
                .in = {&dy, &x, &wide[2]},
                .out = {step_tensor(MOEC_F32, 3, dims)}};
  step_run_all(&s);
  moec_tensor want = interpret(MOEC_OP_MOE_GROUPED_OUTER, NULL, 3, wide);
  check_equal(&s.out[0], &want);
  step_fini(&s);
  moec_tensor_fini(&want);
  moec_tensor_fini(&dy);
  moec_tensor_fini(&x);
  for (int i = 0; i < 3; i++) moec_tensor_fini(&wide[i]);
}
END_TEST

/* ---- the restore and its gradient ---------------------------------------------------------- */

/* A permutation of n and its inverse. */
static void permute(int64_t n, moec_tensor *perm, moec_tensor *inv) {
  UNIT_OK(moec_tensor_init(perm, MOEC_I32, 1, &n));
  UNIT_OK(moec_tensor_init(inv, MOEC_I32, 1, &n));
  int32_t *p = perm->data, *q = inv->data;
  uint64_t state = 5;
  for (int64_t i = 0; i < n; i++) p[i] = (int32_t)i;
  for (int64_t i = n - 1; i > 0; i--) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    int64_t j = (int64_t)(state >> 33) % (i + 1);
    int32_t t = p[i];
    p[i] = p[j], p[j] = t;
  }
  for (int64_t i = 0; i < n; i++) q[p[i]] = (int32_t)i;
}

/* y = sum of w * rows against the interpreter's weight and combine, in f32 so that nothing is rounded between. */
static void check_restore(int64_t tokens, int64_t k, int64_t width) {
  unsigned seed = 9;
  const int64_t rows_dims[] = {tokens * k, width}, w_dims[] = {tokens, k},
                y_dims[] = {tokens, width};
  moec_tensor perm, inv, x = step_random(MOEC_F32, 2, rows_dims, &seed),
                         w = step_random(MOEC_F32, 2, w_dims, &seed);
  permute(tokens * k, &perm, &inv);
  one_step s = {.op = MOEC_STEP_MOE_COMBINE,
                .n_in = 4,
                .n_out = 1,
                .n_ints = 1,
                .ints = {k},
                .in = {&x, &inv, &w, NULL},
                .out = {step_tensor(MOEC_F32, 2, y_dims)}};
  step_run_all(&s);
  moec_attrs_MOE_COMBINE a = {.k = k};
  moec_tensor weighted = interpret(MOEC_OP_MOE_WEIGHT, NULL, 3, (moec_tensor[]){x, w, perm});
  moec_tensor want = interpret(MOEC_OP_MOE_COMBINE, &a, 2, (moec_tensor[]){weighted, inv});
  check_equal(&s.out[0], &want);
  step_fini(&s);
  moec_tensor *all[] = {&perm, &inv, &x, &w, &weighted, &want};
  for (size_t i = 0; i < COUNT(all); i++) moec_tensor_fini(all[i]);
}

/* rows[r] = w[perm[r]] * dy[perm[r] / k] against the interpreter's dispatch and weight. */
static void check_restore_grad(moec_dtype type, int64_t tokens, int64_t k, int64_t width) {
  unsigned seed = 4;
  const int64_t rows_dims[] = {tokens * k, width}, w_dims[] = {tokens, k},
                y_dims[] = {tokens, width};
  moec_tensor perm, inv, dy = step_random(type, 2, y_dims, &seed),
                         w = step_random(MOEC_F32, 2, w_dims, &seed);
  permute(tokens * k, &perm, &inv);
  one_step s = {.op = MOEC_STEP_MOE_DISPATCH,
                .n_in = 3,
                .n_out = 1,
                .n_ints = 1,
                .ints = {k},
                .in = {&dy, &perm, &w},
                .out = {step_tensor(type, 2, rows_dims)}};
  step_run_all(&s);
  moec_attrs_MOE_DISPATCH a = {.k = k};
  moec_tensor rows = interpret(MOEC_OP_MOE_DISPATCH, &a, 2, (moec_tensor[]){dy, perm});
  moec_tensor want = interpret(MOEC_OP_MOE_WEIGHT, NULL, 3, (moec_tensor[]){rows, w, perm});
  check_equal(&s.out[0], &want);
  step_fini(&s);
  moec_tensor *all[] = {&perm, &inv, &dy, &w, &rows, &want};
  for (size_t i = 0; i < COUNT(all); i++) moec_tensor_fini(all[i]);
}

START_TEST(test_restore_and_its_gradient) {
  static const int64_t ks[] = {1, 2, 4, 6, 8}, widths[] = {0, 1, 3, 65, 511, 513, 1031},
                       tokens[] = {0, 1, 2, 19};
  static const moec_dtype types[] = {MOEC_F32, MOEC_BF16, MOEC_F16, MOEC_F64};
  for (size_t i = 0; i < COUNT(ks); i++)
    for (size_t j = 0; j < COUNT(widths); j++)
      for (size_t l = 0; l < COUNT(tokens); l++) {
        check_restore(tokens[l], ks[i], widths[j]);
        for (size_t t = 0; t < COUNT(types); t++)
          check_restore_grad(types[t], tokens[l], ks[i], widths[j]);
      }
}
END_TEST

/* ---- what steps ask of their operands ------------------------------------------------------ */

typedef struct operands {
  moec_step_op op;
  const char *in[5], *out; /* "f32[4,3]"; NULL: absent */
  int64_t k;               /* 0: the step has no integers */
  const char *message;     /* NULL: fits */
} operands;

static moec_tensor parse_tensor(const char *text) {
  char dtype[8];
  int64_t dims[3] = {0};
  uint32_t rank = 0;
  size_t n = strcspn(text, "[");
  memcpy(dtype, text, n), dtype[n] = 0;
  for (const char *p = text + n; *p == '[' || *p == ','; rank++)
    dims[rank] = strtoll(p + 1, (char **)(uintptr_t)&p, 10);
  moec_tensor t;
  UNIT_OK(moec_tensor_init(&t, moec_dtype_from_text(dtype), rank, dims));
  return t;
}

static void check_operands(const operands *o) {
  moec_tensor in[5], out = parse_tensor(o->out);
  one_step s = {.op = o->op, .n_out = 1, .n_ints = o->k > 0, .ints = {o->k}};
  for (uint32_t i = 0; i < 5 && o->in[i]; i++, s.n_in++) {
    bool absent = o->in[i][0] == '_';
    if (!absent) in[i] = parse_tensor(o->in[i]);
    s.in[i] = absent ? NULL : &in[i];
  }
  s.out[0] = step_tensor(out.dtype, out.rank, out.dims);
  moec_status *r = step_run(&s, 2);
  if (!o->message && r) ck_abort_msg("%s: %s", o->in[0], moec_status_message(r));
  if (o->message && (!r || !strstr(moec_status_message(r), o->message)))
    ck_abort_msg("expected '%s', got '%s'", o->message, r ? moec_status_message(r) : "no error");
  moec_status_free(r);
  step_fini(&s);
  moec_tensor_fini(&out);
  for (uint32_t i = 0; i < s.n_in; i++)
    if (s.in[i]) moec_tensor_fini(&in[i]);
}

#define COMBINE MOEC_STEP_MOE_COMBINE
#define DISPATCH MOEC_STEP_MOE_DISPATCH
#define WEIGHT MOEC_STEP_MOE_WEIGHT
#define OUTER MOEC_STEP_MOE_GROUPED_OUTER
#define SUM MOEC_STEP_MOE_GROUP_SUM

START_TEST(test_operands) {
  static const operands all[] = {
      {COMBINE, {"bf16[4,3]", "i32[4]", "f32[2,2]", "f32[2,3]"}, "f32[2,3]", 2, NULL},
      {COMBINE,
       {"f32[2,2,3]", "i32[2]", "f32[2,2]"},
       "f32[2,3]",
       2,
       "expected rows of rank 2, got 3"},
      {COMBINE, {"i32[4,3]", "i32[4]"}, "f32[2,3]", 2, "expected rows of floats"},
      {COMBINE, {"f32[4,3]", "i64[4]"}, "f32[2,3]", 2, "expected an index i32[4], got i64[4]"},
      {COMBINE, {"f32[4,3]", "i32[3]"}, "f32[2,3]", 2, "expected an index i32[4], got i32[3]"},
      {COMBINE,
       {"f32[4,3]", "i32[4]", "f32[2,1]"},
       "f32[2,3]",
       2,
       "expected weights of 4 elements, got 2"},
      {COMBINE, {"f32[4,3]", "i32[4]", "i64[2,2]"}, "f32[2,3]", 2, "expected floats, got i64"},
      {COMBINE,
       {"f32[4,3]", "i32[4]", "_", "f32[2,4]"},
       "f32[2,3]",
       2,
       "expected a residual f32[2, 3], got f32[2, 4]"},
      {COMBINE,
       {"f32[4,3]", "i32[4]", "_", "bf16[2,3]"},
       "f32[2,3]",
       2,
       "expected a residual f32[2, 3], got bf16[2, 3]"},
      {COMBINE, {"f32[4,3]", "i32[4]"}, "f32[3,3]", 2, "expected a result of 6 elements, got 9"},
      {COMBINE, {"f32[4,3]", "i32[4]"}, "i32[2,3]", 2, "expected rows of floats"},
      {COMBINE, {"f32[3,2]", "i32[3]"}, "f32[3,1]", 2, "expected a multiple of k = 2 rows, got 3"},
      {DISPATCH, {"f32[2,3]", "i32[4]", "f32[2,2]"}, "f32[4,3]", 2, NULL},
      {DISPATCH, {"i64[2,3]", "i32[4]"}, "i64[4,3]", 2, NULL},
      {DISPATCH, {"i64[2,3]", "i32[4]", "f32[2,2]"}, "i64[4,3]", 2, "expected floats, got i64"},
      {DISPATCH,
       {"f32[2,3]", "i32[4]", "f32[2,3]"},
       "f32[4,3]",
       2,
       "expected weights of 4 elements, got 6"},
      {DISPATCH, {"f32[2,3]", "i32[4]"}, "bf16[4,3]", 2, "expected one type, got f32 -> bf16"},
      {DISPATCH, {"f32[3,3]", "i32[4]"}, "f32[4,3]", 2, "expected x of 6 elements, got 9"},
      {DISPATCH, {"f32[3,1]", "i32[3]"}, "f32[3,2]", 2, "expected a multiple of k = 2 rows, got 3"},
      {DISPATCH, {"f32[2,3]", "i32[2,2]"}, "f32[4,3]", 2, "expected an index i32[4]"},
      {WEIGHT, {"f32[4,3]", "f32[2,2]", "i32[4]"}, "f32[4,3]", 0, NULL},
      {WEIGHT,
       {"f32[4,3]", "f32[2,1]", "i32[4]"},
       "f32[4,3]",
       0,
       "expected weights of 4 elements, got 2"},
      {WEIGHT,
       {"f32[4,3]", "f32[2,2]", "i32[4]"},
       "f32[4,4]",
       0,
       "expected a result f32[4, 3], got f32[4, 4]"},
      {OUTER,
       {"bf16[4,3]", "bf16[4,2]", "i32[1]"},
       "f32[0,3,2]",
       0,
       "expected offsets that rise from 0 to 4"},
      {OUTER,
       {"f32[4,3]", "f32[5,2]", "i32[3]"},
       "f32[2,3,2]",
       0,
       "expected rows [n, m] and [n, k] of one float type, got f32[4, 3] and f32[5, 2]"},
      {OUTER,
       {"f32[4,3]", "bf16[4,2]", "i32[3]"},
       "f32[2,3,2]",
       0,
       "of one float type, got f32[4, 3] and bf16[4, 2]"},
      {OUTER,
       {"f32[4,3]", "f32[4,2]", "i64[3]"},
       "f32[2,3,2]",
       0,
       "expected offsets i32 [experts + 1]"},
      {OUTER,
       {"f32[4,3]", "f32[4,2]", "i32[3]"},
       "f32[3,3,2]",
       0,
       "expected a result f32[2, 3, 2], got f32[3, 3, 2]"},
      {OUTER, {"f32[4,3]", "f32[4,2]", "i32[3]"}, "i32[2,3,2]", 0, "expected a float result"},
      {OUTER,
       {"f32[4,3]", "f32[4,2]", "i32[3]"},
       "f32[2,3,2]",
       0,
       "expected offsets that rise from 0 to 4"},
      {SUM, {"f32[0,3]", "i32[3]"}, "bf16[2,3]", 0, NULL},
      {SUM, {"i32[4,3]", "i32[3]"}, "f32[2,3]", 0, "expected rows [n, m] of floats, got i32[4, 3]"},
      {SUM, {"f32[4,3]", "i32[0]"}, "f32[2,3]", 0, "expected offsets i32 [experts + 1]"},
      {SUM, {"f32[4,3]", "i32[3]"}, "f32[2,4]", 0, "expected a result f32[2, 3], got f32[2, 4]"},
      {SUM, {"f32[4,3]", "i32[3]"}, "f32[2,3]", 0, "expected offsets that rise from 0 to 4"},
  };
  for (size_t i = 0; i < COUNT(all); i++) check_operands(&all[i]);
}
END_TEST

/* Indices are checked where they are used. */
START_TEST(test_indices_out_of_range) {
  static const int32_t wrong[] = {-1, 4, INT32_MAX, INT32_MIN};
  for (size_t i = 0; i < COUNT(wrong); i++) {
    moec_tensor x = parse_tensor("f32[2,3]"), w = parse_tensor("f32[2,2]"),
                rows = parse_tensor("f32[4,3]"), perm = parse_tensor("i32[4]");
    ((int32_t *)perm.data)[2] = wrong[i];
    one_step grad = {.op = DISPATCH,
                     .n_in = 3,
                     .n_out = 1,
                     .n_ints = 1,
                     .ints = {2},
                     .in = {&x, &perm, &w},
                     .out = {step_tensor(MOEC_F32, 2, rows.dims)}};
    UNIT_FAILS(step_run(&grad, 2), MOEC_INVALID_ARGUMENT, "moe.dispatch: an index is out of range");
    one_step restore = {.op = COMBINE,
                        .n_in = 3,
                        .n_out = 1,
                        .n_ints = 1,
                        .ints = {2},
                        .in = {&rows, &perm, &w},
                        .out = {step_tensor(MOEC_F32, 2, x.dims)}};
    UNIT_FAILS(step_run(&restore, 2), MOEC_INVALID_ARGUMENT,
               "moe.combine: an index is out of range");
    one_step weight = {.op = WEIGHT,
                       .n_in = 3,
                       .n_out = 1,
                       .in = {&rows, &w, &perm},
                       .out = {step_tensor(MOEC_F32, 2, rows.dims)}};
    UNIT_FAILS(step_run(&weight, 2), MOEC_INVALID_ARGUMENT, "moe.weight: an index is out of range");
    moec_tensor *all[] = {&x, &w, &rows, &perm};
    for (size_t k = 0; k < COUNT(all); k++) moec_tensor_fini(all[k]);
  }
}
END_TEST

UNIT_MAIN("moe_grad", test_rows_of_experts, test_extremes, test_wide_results,
          test_restore_and_its_gradient, test_operands, test_indices_out_of_range)
