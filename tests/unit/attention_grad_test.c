/* The gradient of attention against differences of attention itself, both through their bodies and in double. */
#include <math.h>

#include "ir/builder.h"
#include "ir/interp.h"
#include "tests/unit/unit.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef struct config {
  const char *what;
  int64_t b, s, t, h, g, d, e;
  double scale, softcap;
  bool causal;
  moec_dtype mask;   /* NONE: none */
  int64_t masked[4]; /* its shape */
  bool sink;
} config;

static const config configs[] = {
    {"plain", 2, 3, 3, 2, 2, 4, 4, 0.5, 0, false, MOEC_DTYPE_NONE, {0}, false},
    {"grouped, other sizes of v", 2, 3, 5, 6, 2, 4, 3, 0.5, 0, false, MOEC_DTYPE_NONE, {0}, false},
    {"one key head, causal", 1, 4, 4, 4, 1, 2, 2, 1, 0, true, MOEC_DTYPE_NONE, {0}, false},
    {"causal, longer keys", 2, 2, 5, 4, 2, 3, 3, 1, 0, true, MOEC_DTYPE_NONE, {0}, true},
    {"causal, rows without a key", 1, 5, 2, 2, 1, 3, 3, 1, 0, true, MOEC_DTYPE_NONE, {0}, false},
    {"causal, rows with a sink only", 1, 5, 2, 2, 1, 3, 3, 1, 0, true, MOEC_DTYPE_NONE, {0}, true},
    {"one query", 2, 1, 7, 4, 2, 3, 3, 1, 0, true, MOEC_DTYPE_NONE, {0}, true},
    {"bool mask a head", 2, 3, 4, 4, 2, 3, 3, 1, 0, false, MOEC_BOOL, {2, 4, 3, 4}, false},
    {"bool mask a batch", 2, 3, 4, 4, 2, 3, 3, 1, 0, true, MOEC_BOOL, {2, 1, 1, 4}, true},
    {"bool mask of rows", 2, 6, 4, 4, 2, 3, 3, 1, 0, false, MOEC_BOOL, {1, 1, 6, 1}, false},
    {"added mask", 2, 3, 4, 4, 2, 3, 3, 1, 0, false, MOEC_F32, {1, 1, 3, 4}, true},
    {"added mask a head", 1, 3, 4, 4, 2, 3, 3, 1, 0, false, MOEC_F32, {1, 4, 3, 1}, false},
    {"softcap", 1, 3, 4, 2, 2, 3, 3, 8, 2, true, MOEC_DTYPE_NONE, {0}, true},
    {"no keys", 1, 2, 0, 2, 2, 3, 3, 1, 0, false, MOEC_DTYPE_NONE, {0}, true},
    {"no batch", 0, 2, 2, 2, 2, 3, 3, 1, 0, false, MOEC_DTYPE_NONE, {0}, true},
};

/* Operands of the op: q, k, v, mask, sink, y, lse, dy; given are all but y and lse. */
enum { Q, K, V, MASK, SINK, Y, LSE, DY, OPERANDS };

static bool is_given(const config *c, int i) {
  return i == MASK ? c->mask != MOEC_DTYPE_NONE : i == SINK ? c->sink : i != Y && i != LSE;
}

static uint32_t shape_of(const config *c, int i, int64_t dims[4]) {
  const int64_t shapes[OPERANDS][4] = {[Q] = {c->b, c->s, c->h, c->d},
                                       [K] = {c->b, c->t, c->g, c->d},
                                       [V] = {c->b, c->t, c->g, c->e},
                                       [MASK] = {c->masked[0], c->masked[1], c->masked[2], c->masked[3]},
                                       [SINK] = {c->h},
                                       [DY] = {c->b, c->s, c->h, c->e}};
  memcpy(dims, shapes[i], sizeof shapes[i]);
  return i == SINK ? 1 : 4;
}

/* main(operands given) -> sum of y * dy, dq, dk, dv, dsink?: floats of dtype |t|. */
static moec_module *module_of(const config *c, moec_dtype t) {
  moec_module *m = moec_module_create();
  moec_builder b = moec_builder_on(moec_fn_get(m, moec_fn_add(m, "main")));
  moec_value v[OPERANDS] = {{0}};
  for (int i = 0; i < OPERANDS; i++) {
    int64_t sizes[4];
    moec_dim dims[4];
    if (!is_given(c, i)) continue;
    uint32_t rank = shape_of(c, i, sizes);
    for (uint32_t k = 0; k < rank; k++) dims[k] = moec_dim_const(m, sizes[k]);
    moec_dtype dtype = i == MASK && c->mask == MOEC_BOOL ? MOEC_BOOL : t;
    v[i] = moec_add_input(b.g, "", moec_type_make(m, dtype, rank, dims));
  }
  moec_attrs_ATTENTION a = {.scale = c->scale, .softcap = c->softcap, .causal = c->causal};
  moec_attrs_ATTENTION_GRAD da = {.scale = c->scale, .softcap = c->softcap, .causal = c->causal};
  v[Y] = moec_b_op(&b, MOEC_OP_ATTENTION, &a, 5, v, 2);
  UNIT_OK(moec_builder_end(&b));
  v[LSE] = moec_out(b.g, moec_def(b.g, v[Y]), 1);
  moec_value loss = moec_b_binary(&b, MOEC_OP_MUL, v[Y], v[DY]);
  for (int i = 0; i < 4; i++) loss = moec_b_reduce(&b, MOEC_OP_REDUCE_SUM, loss, 0, false);
  moec_add_output(b.g, "loss", loss);
  uint32_t n_out = c->sink ? 4 : 3;
  moec_value dq = moec_b_op(&b, MOEC_OP_ATTENTION_GRAD, &da, OPERANDS, v, n_out);
  UNIT_OK(moec_builder_end(&b));
  for (uint32_t i = 0; i < n_out; i++) moec_add_output(b.g, "", moec_out(b.g, moec_def(b.g, dq), i));
  UNIT_OK(moec_verify(m));
  return m;
}

/* Numbers in [-1, 1), the same on every run; of dtype |t|, those that bf16 has. */
static moec_tensor random_tensor(moec_dtype t, uint32_t rank, const int64_t *dims, uint32_t seed) {
  moec_tensor x;
  uint32_t s = seed * 2654435761u + 1;
  UNIT_OK(moec_tensor_init(&x, t, rank, dims));
  for (int64_t i = 0; i < moec_tensor_numel(&x); i++) {
    s = s * 1664525u + 1013904223u;
    double v = (double)(s >> 25) * 0x1p-6 - 1;
    if (t == MOEC_BOOL) moec_store_i64(t, x.data, (size_t)i, v > -0.3);
    else moec_store_f64(t, x.data, (size_t)i, v);
  }
  return x;
}

static size_t make_operands(const config *c, moec_dtype t, uint32_t seed, moec_tensor *in) {
  size_t n = 0;
  for (int i = 0; i < OPERANDS; i++) {
    int64_t dims[4];
    if (!is_given(c, i)) continue;
    uint32_t rank = shape_of(c, i, dims);
    in[n++] = random_tensor(i == MASK && c->mask == MOEC_BOOL ? MOEC_BOOL : t, rank, dims, seed + (uint32_t)i);
  }
  return n;
}

static const moec_interp_options exact = {.f64 = true};

static double loss_at(const config *c, const moec_module *m, const moec_tensor *in, size_t n_in) {
  moec_tensor out[5];
  UNIT_OK(moec_interp_run(m, (moec_fn){1}, in, n_in, out, c->sink ? 5 : 4, &exact));
  double loss = ((double *)out[0].data)[0];
  for (int i = 0; i < (c->sink ? 5 : 4); i++) moec_tensor_fini(&out[i]);
  return loss;
}

/* Every element of the gradient |got| of operand |x| of |in|. */
static void check_differences(const config *c, const moec_module *m, moec_tensor *in, size_t n_in, moec_tensor *x,
                              const moec_tensor *got) {
  const double step = 1e-5;
  ck_assert_int_eq(moec_tensor_numel(x), moec_tensor_numel(got));
  for (int64_t i = 0; i < moec_tensor_numel(x); i++) {
    double *at = (double *)x->data + i, old = *at, found = ((double *)got->data)[i];
    *at = old + step;
    double up = loss_at(c, m, in, n_in);
    *at = old - step;
    double want = (up - loss_at(c, m, in, n_in)) / (2 * step);
    *at = old;
    if (!(fabs(found - want) <= 1e-8 * fmax(1, fabs(want))))
      ck_abort_msg("%s: operand %d, element %lld: got %.12g, expected %.12g", c->what, (int)(x - in), (long long)i,
                   found, want);
  }
}

static void check_config(const config *c, uint32_t seed) {
  moec_module *m = module_of(c, MOEC_F32);
  moec_tensor in[OPERANDS], out[5];
  size_t n = make_operands(c, MOEC_F64, seed, in);
  UNIT_OK(moec_interp_run(m, (moec_fn){1}, in, n, out, c->sink ? 5 : 4, &exact));
  for (int i = 0; i < 3; i++) check_differences(c, m, in, n, &in[i], &out[1 + i]);
  if (c->sink) check_differences(c, m, in, n, &in[c->mask ? 4 : 3], &out[4]);
  for (size_t i = 0; i < n; i++) moec_tensor_fini(&in[i]);
  for (int i = 0; i < (c->sink ? 5 : 4); i++) moec_tensor_fini(&out[i]);
  moec_module_destroy(m);
}

START_TEST(is_what_differences_of_attention_say) {
  for (size_t i = 0; i < COUNT(configs); i++) check_config(&configs[i], (uint32_t)i * 16);
}
END_TEST

/* ---- narrow floats ------------------------------------------------------------------------ */

/* attention_grad alone: operands in, gradients out. */
static void grads_of(moec_dtype t, moec_tensor *in, moec_tensor *out) {
  moec_module *m = moec_module_create();
  moec_builder b = moec_builder_on(moec_fn_get(m, moec_fn_add(m, "main")));
  moec_value v[OPERANDS] = {{0}};
  moec_tensor given[OPERANDS];
  size_t n = 0;
  for (int i = 0; i < OPERANDS; i++) {
    moec_dim dims[4];
    if (i == MASK) continue;
    for (uint32_t k = 0; k < in[i].rank; k++) dims[k] = moec_dim_const(m, in[i].dims[k]);
    v[i] = moec_add_input(b.g, "", moec_type_make(m, i == LSE ? MOEC_F32 : t, in[i].rank, dims));
    given[n++] = in[i];
  }
  moec_attrs_ATTENTION_GRAD a = {.scale = 0.5, .causal = true};
  moec_value dq = moec_b_op(&b, MOEC_OP_ATTENTION_GRAD, &a, OPERANDS, v, 4);
  UNIT_OK(moec_builder_end(&b));
  for (uint32_t i = 0; i < 4; i++) moec_add_output(b.g, "", moec_out(b.g, moec_def(b.g, dq), i));
  UNIT_OK(moec_interp_run(m, (moec_fn){1}, given, n, out, 4, NULL));
  moec_module_destroy(m);
}

START_TEST(narrow_results_are_rounded_once) {
  const int64_t qd[4] = {1, 5, 4, 3}, kd[4] = {1, 6, 2, 3}, vd[4] = {1, 6, 2, 4}, yd[4] = {1, 5, 4, 4}, hd[1] = {4};
  const int64_t *dims[OPERANDS] = {qd, kd, vd, NULL, hd, yd, yd, yd};
  moec_tensor narrow[OPERANDS] = {{0}}, wide[OPERANDS] = {{0}}, got[4], want[4];
  for (int i = 0; i < OPERANDS; i++) {
    uint32_t rank = i == SINK ? 1 : i == LSE ? 3 : 4;
    if (i == MASK) continue;
    narrow[i] = random_tensor(i == LSE ? MOEC_F32 : MOEC_BF16, rank, dims[i], (uint32_t)i);
    wide[i] = random_tensor(MOEC_F32, rank, dims[i], (uint32_t)i);
  }
  grads_of(MOEC_BF16, narrow, got);
  grads_of(MOEC_F32, wide, want);
  for (int i = 0; i < 4; i++)
    for (int64_t k = 0; k < moec_tensor_numel(&want[i]); k++) {
      uint8_t rounded[2];
      moec_store_f64(MOEC_BF16, rounded, 0, (double)((float *)want[i].data)[k]);
      ck_assert_mem_eq(rounded, (uint8_t *)got[i].data + 2 * k, 2);
    }
  for (int i = 0; i < OPERANDS; i++) moec_tensor_fini(&narrow[i]), moec_tensor_fini(&wide[i]);
  for (int i = 0; i < 4; i++) moec_tensor_fini(&got[i]), moec_tensor_fini(&want[i]);
}
END_TEST

/* ---- what is refused ------------------------------------------------------------------------ */

START_TEST(misfits_are_refused) {
  static const struct {
    int operand; /* missing, or of another shape */
    bool missing;
    uint32_t n_out;
    const char *error;
  } cases[] = {
      {LSE, true, 3, "lse[B,S,H]: expected f32[2, 3, 4], got nothing"},
      {DY, true, 3, "dy[B,S,H,E]: expected f32[2, 3, 4, 6], got nothing"},
      {Y, false, 3, "y[B,S,H,E]: expected equal sizes, got 6 and 7"},
      {LSE, false, 3, "lse[B,S,H]: expected equal sizes, got 4 and 5"},
      {DY, false, 3, "dy[B,S,H,E]: expected equal sizes, got 6 and 7"},
      {SINK, true, 4, "dsink: expected a sink"},
  };
  for (size_t c = 0; c < COUNT(cases); c++) {
    moec_module *m = moec_module_create();
    moec_builder b = moec_builder_on(moec_fn_get(m, moec_fn_add(m, "main")));
    const int64_t sizes[OPERANDS][4] = {{2, 3, 4, 5}, {2, 7, 2, 5}, {2, 7, 2, 6}, {1, 1, 3, 7},
                                        {4},          {2, 3, 4, 6}, {2, 3, 4},    {2, 3, 4, 6}};
    static const uint32_t ranks[OPERANDS] = {4, 4, 4, 4, 1, 4, 3, 4};
    moec_value v[OPERANDS] = {{0}};
    for (int i = 0; i < OPERANDS; i++) {
      moec_dim dims[4];
      for (uint32_t k = 0; k < ranks[i]; k++)
        dims[k] = moec_dim_const(m, sizes[i][k] + (i == cases[c].operand && k + 1 == ranks[i]));
      if (i != cases[c].operand || !cases[c].missing)
        v[i] = moec_add_input(b.g, "", moec_type_make(m, MOEC_F32, ranks[i], dims));
    }
    moec_b_op(&b, MOEC_OP_ATTENTION_GRAD, NULL, OPERANDS, v, cases[c].n_out);
    moec_status *s = moec_builder_end(&b);
    ck_assert_ptr_nonnull(s);
    ck_assert_msg(strstr(moec_status_message(s), cases[c].error) != NULL, "got '%s'", moec_status_message(s));
    moec_status_free(s);
    moec_module_destroy(m);
  }
}
END_TEST

UNIT_MAIN("attention_grad", is_what_differences_of_attention_say, narrow_results_are_rounded_once, misfits_are_refused)
