/* The bodies of composites: cases worked out by hand, attention and the expert region against
 * plain loops, and inlining. */
#include "ir/builder.h"
#include "tests/unit/opcase.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const char *const cases[] = {
    "softmax(f32[2,2] 0 0 1 nan) axis=1 -> f32[2,2] 0.5 0.5 nan nan",
    "softmax(f32[3] 1000 1000 -inf) axis=0 -> f32[3] 0.5 0.5 0",
    "softmax(f32[2,2] 0 1 0 2) axis=0 -> f32[2,2] 0.5 0.268941421 0.5 0.731058579",
    "softmax(f32[2,0]) axis=1 -> f32[2,0]",
    "softmax(bf16[3] 0 0 0) axis=0 -> bf16[3] 0.333984375 0.333984375 0.333984375",
    "rms_norm(f32[1,2] 3 4; f32[2] 1 10) eps=0 -> f32[1,2] 0.848528137 11.3137085; f32[1,1] "
    "0.282842712",
    "rms_norm(f32[2] 3 4; _) eps=0 -> f32[2] 0.848528137 1.13137085",
    "rms_norm(f32[2] 0 0) eps=0.25 -> f32[2] 0 0; f32[1] 2",
    "rms_norm(f32[0,2]; f32[2] 1 1) -> f32[0,2]; f32[0,1]",
    "rms_norm(f64[1] 2) eps=0 -> f64[1] 1; f32[1] 0.5",
    "rms_norm(bf16[2] 3 4; bf16[2] 3 3) eps=0 -> bf16[2] 2.546875 3.40625",
    "rope(f32[1,4] 1 2 3 4; f32[1,2] 0 1; f32[1,2] 1 0) -> f32[1,4] -3 2 1 4",
    "rope(f32[1,4] 1 2 3 4; f32[1,2] 0 1; f32[1,2] 1 0) pairs_in=1 -> f32[1,4] -2 3 1 4",
    "rope(f32[1,4] 1 2 3 4; f32[1,2] 0 1; f32[1,2] 1 0) pairs_out=1 -> f32[1,4] -3 1 2 4",
    "rope(f32[1,4] 1 2 3 4; f32[1,2] 0 1; f32[1,2] 1 0) pairs_in=1 pairs_out=1"
    " -> f32[1,4] -2 1 3 4",
    "rope(f32[2,2] 1 2 3 4; f32[1,1] 0; f32[1,1] 1) -> f32[2,2] -2 1 -4 3",
    "rope(f32[0,4]; f32[1,2] 0 1; f32[1,2] 1 0) pairs_in=1 -> f32[0,4]",
    "swiglu(f32[2] 0 2; f32[2] 5 3) -> f32[2] 0 5.28478247",
    "swiglu(f32[2] 9 -9; f32[2] 8 -8) alpha=1.702 beta=1 limit=7 -> f32[2] 55.9996259 1.19986e-5",
    "swiglu(f32[1] nan; f32[1] 1) limit=7 -> f32[1] nan",
    /* One query, keys 0 and ln 3: probabilities 1/4 and 3/4. */
    "attention(f32[1,1,1,1] 1; f32[1,2,1,1] 0 1.098612289; f32[1,2,1,1] 4 8)"
    " -> f32[1,1,1,1] 7; f32[1,1,1] 1.386294361",
    "attention(f32[1,1,1,1] 1; f32[1,2,1,1] 0 1.098612289; f32[1,2,1,1] 4 8; _; f32[1] "
    "1.386294361) -> f32[1,1,1,1] 3.5; f32[1,1,1] 2.079441542",
    "attention(f32[1,1,1,1] 1; f32[1,2,1,1] 0 1; f32[1,2,1,1] 4 8; bool[1,1,1,2] 0 0)"
    " -> f32[1,1,1,1] 0; f32[1,1,1] -inf",
    "attention(f32[1,1,1,1] 1; f32[1,2,1,1] 0 1; f32[1,2,1,1] 4 8; f32[1,1,1,2] -inf -inf;"
    " f32[1] 2) -> f32[1,1,1,1] 0; f32[1,1,1] 2",
    "attention(f32[1,1,1,1] 1; f32[1,0,1,1]; f32[1,0,1,1]) -> f32[1,1,1,1] 0; f32[1,1,1] -inf",
    "attention(f32[1,0,1,1]; f32[1,2,1,1] 1 2; f32[1,2,1,1] 3 4) causal=1 -> f32[1,0,1,1]",
    /* Three queries, one key: only the last sees it. */
    "attention(f32[1,3,1,1] 1 1 1; f32[1,1,1,1] 1; f32[1,1,1,1] 5) causal=1"
    " -> f32[1,3,1,1] 0 0 5; f32[1,3,1] -inf -inf 1",
    "attention_grad(f32[1,1,1,1] 1; f32[1,2,1,1] 0 1.098612289; f32[1,2,1,1] 4 8; _; _;"
    " f32[1,1,1,1] 7; f32[1,1,1] 1.386294361; f32[1,1,1,1] 1)"
    " -> f32[1,1,1,1] 0.823959217; f32[1,2,1,1] -0.75 0.75; f32[1,2,1,1] 0.25 0.75",
    "attention_grad(f32[1,1,1,1] 1; f32[1,2,1,1] 0 1.098612289; f32[1,2,1,1] 4 8; _; f32[1] 1.386294361;"
    " f32[1,1,1,1] 3.5; f32[1,1,1] 2.079441542; f32[1,1,1,1] 1)"
    " -> f32[1,1,1,1] 1.853908237; f32[1,2,1,1] 0.0625 1.6875; f32[1,2,1,1] 0.125 0.375; f32[1] -1.75",
    "block_sum(f32[5,2] 1 2 3 4 5 6 7 8 9 10) size=2 -> f32[3,2] 4 6 12 14 9 10",
    "block_sum(f32[2,2,1] 1 2 3 4) leading=2 size=3 -> f32[2,1] 6 4",
    "block_sum(i64[3] 1 2 3) size=8 -> i64[1] 6",
    "block_sum(f32[0,2]) size=4 -> f32[0,2]",
    /* Rows (0, ln 3) and, with one label ignored, (ln 3, 0). */
    "cross_entropy(f32[2,2] 0 1.098612289 1.098612289 0; i64[2] 0 0)"
    " -> f32[2] 1.386294361 0.2876820724; f32[2] 1.386294361 1.386294361",
    "cross_entropy(f32[2,2] 0 1.098612289 1.098612289 0; i64[2] -100 1)"
    " -> f32[2] 0 1.386294361; f32[2] 1.386294361 1.386294361",
    "cross_entropy(f32[2,2] 0 0 0 0; i64[2] 1 7) ignore=7 -> f32[2] 0.6931471806 0",
    "cross_entropy(f32[2,2] 0 0 0 0; i64[2] 1 -1) ignore=1 ! index -3 is out of range",
    "cross_entropy(f32[2,2] 0 0 0 0; i64[2] 1 -1) ignore=-1 -> f32[2] 0.6931471806 0",
    "cross_entropy(f32[1,2] 0 0; i64[1] -100) ignore=-1 ! index -102 is out of range",
    "cross_entropy(f32[1,2] 0 0; i64[1] 2) ! index 2 is out of range",
    "cross_entropy(f32[0,5]; i64[0]) -> f32[0]; f32[0]",
    "cross_entropy(f32[4,2] 1000 1000 -inf 2 inf 1 nan 1; i64[4] 1 1 1 -100)"
    " -> f32[4] 0.6931471806 0 inf 0; f32[4] 1000.693147 2 inf nan",
    "cross_entropy(f32[2,2] -inf 2 -inf -inf; i64[2] 0 -100) -> f32[2] inf 0; f32[2] 2 -inf",
    "cross_entropy(f32[2,2] -inf -inf nan 0; i64[2] 0 1) -> f32[2] nan nan",
    "cross_entropy(bf16[1,2] 256 0; i64[1] 0) -> f32[1] 0; f32[1] 256",
    "cross_entropy(f64[1,2] 0 0; i64[1] 0) -> f32[1] 0.6931471806",
    "moe.select(f32[2,3] 1 3 3 nan 0 5) k=2 -> i64[2,2] 1 2 0 2",
    "moe.select(f32[0,3]) k=1 -> i64[0,1]",
    "moe.plan(i64[2,2] 1 0 0 3) experts=5 -> i32[4] 1 2 0 3; i32[4] 2 0 1 3; i32[6] 0 2 3 3 4 4",
    /* x = [1 2], w = [ln 3, 0] by the vocabulary: logits 1.0986 0, 2.1972 0 */
    "linear_cross_entropy(f32[2,1] 1 2; f32[2,1] 1.0986122887 0; i64[2] 0 1; f32[2] 1 0.5) chunk=1"
    " -> f32[2] 0.2876820724 2.302585093; f32[2,1] -0.2746530722 0.4943755299; f32[2,1] 0.65 -0.65",
    "linear_cross_entropy(f32[2,1] 1 2; f32[1,2] 1.0986122887 0; i64[2] 0 1; f32[2] 1 0.5) transposed=0 chunk=2"
    " -> f32[2] 0.2876820724 2.302585093; f32[2,1] -0.2746530722 0.4943755299; f32[1,2] 0.65 -0.65",
    "linear_cross_entropy(f32[2,1] 1 2; f32[2,1] 1.0986122887 0; i64[2] -100 1; f32[2] inf 0.5) chunk=2"
    " -> f32[2] 0 2.302585093; f32[2,1] 0 0.4943755299; f32[2,1] 0.9 -0.9",
    "linear_cross_entropy(f32[1,1] nan; f32[2,1] 1 0; i64[1] 7; f32[1] 1) ignore=7 chunk=1"
    " -> f32[1] 0; f32[1,1] 0; f32[2,1] nan nan",
    "linear_cross_entropy(f32[0,1]; f32[2,1] 1 0; i64[0]; f32[0]) chunk=1 -> f32[0]; f32[0,1]; f32[2,1] 0 0",
    "linear_cross_entropy(f32[1,1] 1; f32[2,1] 1 0; i64[1] 2; f32[1] 1) chunk=1 ! index 2 is out of range",
    "linear_cross_entropy(bf16[1,1] 1; bf16[2,1] 256 0; i64[1] 1; f32[1] 1) chunk=1"
    " -> f32[1] 256; bf16[1,1] 256; bf16[2,1] 1 -1",
    "moe.plan(i64[3,1] 1 1 1) experts=3 -> i32[3] 0 1 2; i32[3] 0 1 2; i32[4] 0 0 3 3",
    "moe.plan(i64[0,2]) experts=2 -> i32[0]; i32[0]; i32[3] 0 0 0",
    "moe.dispatch(f32[2,2] 1 2 3 4; i32[4] 1 2 0 3) k=2 -> f32[4,2] 1 2 3 4 1 2 3 4",
    "moe.dispatch(f32[0,2]; i32[0]) k=2 -> f32[0,2]",
    "moe.grouped_dot(f32[3,2] 1 2 3 4 5 6; f32[3,1,2] 1 1 7 7 2 2; i32[4] 0 2 2 3)"
    " -> f32[3,1] 3 7 22",
    "moe.grouped_dot(f32[3,2] 1 2 3 4 5 6; f32[2,2,1] 7 7 1 2; i32[3] 0 0 3; f32[2,1] 9 100)"
    " transposed=0 -> f32[3,1] 105 111 117",
    "moe.grouped_dot(f32[0,2]; f32[2,1,2] 1 1 1 1; i32[3] 0 0 0) -> f32[0,1]",
    "moe.grouped_dot(f32[1,1] 1; f32[1,1,1] 1; i32[2] 0 0) ! index 1 is out of range",
    "moe.grouped_dot(bf16[1,1] 1; bf16[1,1,1] 256; i32[2] 0 1; bf16[1,1] 1.5) -> bf16[1,1] 258",
    "moe.weight(f32[4,1] 1 2 3 4; f32[2,2] 10 20 30 40; i32[4] 1 2 0 3)"
    " -> f32[4,1] 20 60 30 160",
    "moe.weight(bf16[1,1] 3; f32[1,1] 0.3333333433; i32[1] 0) -> bf16[1,1] 1",
    "moe.weight(f32[0,1]; f32[0,2]; i32[0]) -> f32[0,1]",
    "moe.combine(f32[4,1] 1 2 3 4; i32[4] 2 0 1 3) k=2 -> f32[2,1] 4 6",
    "moe.combine(f32[4,1] 1e8 1 -1e8 5; i32[4] 0 1 2 3) k=4 -> f32[1,1] 5",
    "moe.combine(f32[0,1]; i32[0]) k=2 -> f32[0,1]",
    "moe.grouped_outer(f32[3,1] 1 2 3; f32[3,2] 1 2 3 4 5 6; i32[4] 0 2 2 3)"
    " -> f32[3,1,2] 7 10 0 0 15 18",
    "moe.grouped_outer(f32[2,2] 1 2 3 4; f32[2,1] 10 100; i32[2] 0 2) -> f32[1,2,1] 310 420",
    /* Rows of one expert leave the others alone, and so do rows of none. */
    "moe.grouped_outer(f32[3,1] 1 nan 5; f32[3,1] 2 inf nan; i32[4] 0 1 2 2)"
    " -> f32[3,1,1] 2 nan 0",
    "moe.grouped_outer(f32[0,1]; f32[0,2]; i32[3] 0 0 0) -> f32[2,1,2] 0 0 0 0",
    "moe.grouped_outer(f32[2,0]; f32[2,2] 1 2 3 4; i32[2] 0 2) -> f32[1,0,2]",
    "moe.grouped_outer(bf16[3,1] 256 1 1; bf16[3,1] 1 1 1; i32[2] 0 3) -> bf16[1,1,1] 258",
    "moe.group_sum(f32[3,2] 1 2 3 4 5 6; i32[4] 0 2 2 3) -> f32[3,2] 4 6 0 0 5 6",
    "moe.group_sum(f32[3,1] 1 nan 5; i32[4] 0 1 2 2) -> f32[3,1] 1 nan 0",
    "moe.group_sum(f32[0,2]; i32[3] 0 0 0) -> f32[2,2] 0 0 0 0",
    "moe.group_sum(bf16[3,1] 256 1 1; i32[2] 0 3) -> bf16[1,1] 258",
};

START_TEST(test_every_composite) {
  bool covered[MOEC_OP_COUNT] = {false};
  for (size_t i = 0; i < COUNT(cases); i++) covered[opcase_run(cases[i], NULL)] = true;
  for (int op = 1; op < MOEC_OP_COUNT; op++)
    if (!covered[op] && moec_op_cls((moec_op)op) >= MOEC_CLASS_COMPOSITE)
      ck_abort_msg("op %s has no case", moec_op_get((moec_op)op)->text);
}
END_TEST

/* ---- helpers ------------------------------------------------------------------------------ */

/* Numbers in [-1, 1), the same on every run. */
static void fill(moec_tensor *t, uint32_t seed) {
  uint32_t x = seed * 2654435761u + 1;
  for (int64_t i = 0; i < moec_tensor_numel(t); i++) {
    x = x * 1664525u + 1013904223u;
    double v = (double)(x >> 8) * 0x1p-23 - 1;
    if (t->dtype == MOEC_BOOL)
      moec_store_i64(t->dtype, t->data, (size_t)i, v > -0.3);
    else
      moec_store_f64(t->dtype, t->data, (size_t)i, v);
  }
}

static moec_tensor random_tensor(moec_dtype t, uint32_t rank, const int64_t *dims, uint32_t seed) {
  moec_tensor x;
  UNIT_OK(moec_tensor_init(&x, t, rank, dims));
  fill(&x, seed);
  return x;
}

static float at(const moec_tensor *t, int64_t i) { return ((const float *)t->data)[i]; }

static void compare(const moec_tensor *got, const double *want, int64_t n, const char *what) {
  ck_assert_int_eq(moec_tensor_numel(got), n);
  for (int64_t i = 0; i < n; i++)
    if (fabs((double)at(got, i) - want[i]) > 1e-5 * fmax(1, fabs(want[i])))
      ck_abort_msg("%s: element %lld: got %.9g, expected %.9g", what, (long long)i,
                   (double)at(got, i), want[i]);
}

/* ---- attention against loops -------------------------------------------------------------- */

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
    {"grouped", 2, 3, 5, 6, 2, 4, 3, 0.5, 0, false, MOEC_DTYPE_NONE, {0}, false},
    {"one key head, causal", 1, 4, 4, 4, 1, 2, 2, 1, 0, true, MOEC_DTYPE_NONE, {0}, false},
    {"causal, longer keys", 2, 2, 5, 4, 2, 3, 3, 1, 0, true, MOEC_DTYPE_NONE, {0}, false},
    {"causal, longer queries", 1, 5, 2, 2, 1, 3, 3, 1, 0, true, MOEC_DTYPE_NONE, {0}, true},
    {"bool mask a head", 2, 3, 4, 4, 2, 3, 3, 1, 0, false, MOEC_BOOL, {2, 4, 3, 4}, false},
    {"bool mask a batch", 2, 3, 4, 4, 2, 3, 3, 1, 0, true, MOEC_BOOL, {2, 1, 1, 4}, true},
    {"added mask", 2, 3, 4, 4, 2, 3, 3, 1, 0, false, MOEC_F32, {1, 1, 3, 4}, true},
    {"added mask a head", 1, 3, 4, 4, 2, 3, 3, 1, 0, false, MOEC_F32, {1, 4, 3, 1}, false},
    {"softcap", 1, 3, 4, 2, 2, 3, 3, 8, 2, true, MOEC_DTYPE_NONE, {0}, true},
};

static double mask_at(const config *c, const moec_tensor *m, int64_t b, int64_t h, int64_t i,
                      int64_t j) {
  int64_t at4[4] = {b, h, i, j}, off = 0;
  for (int k = 0; k < 4; k++) off = off * c->masked[k] + (c->masked[k] == 1 ? 0 : at4[k]);
  if (c->mask == MOEC_BOOL) return ((const uint8_t *)m->data)[off] ? 0 : -INFINITY;
  return (double)at(m, off);
}

/* One query: y[E] and the log-sum-exp. in: q, k, v, mask, sink. */
static double attend(const config *c, const moec_tensor *in, int64_t b, int64_t i, int64_t h,
                     double *y) {
  int64_t g = h / (c->h / c->g);
  double sum = c->sink ? exp((double)at(&in[4], h)) : 0;
  for (int64_t e = 0; e < c->e; e++) y[e] = 0;
  for (int64_t j = 0; j < c->t; j++) {
    double x = 0;
    for (int64_t d = 0; d < c->d; d++)
      x += (double)at(&in[0], ((b * c->s + i) * c->h + h) * c->d + d) *
           (double)at(&in[1], ((b * c->t + j) * c->g + g) * c->d + d);
    x *= c->scale;
    if (c->softcap > 0) x = c->softcap * tanh(x / c->softcap);
    if (c->mask) x += mask_at(c, &in[3], b, h, i, j);
    if (c->causal && j > i + c->t - c->s) x = -INFINITY;
    sum += exp(x);
    for (int64_t e = 0; e < c->e; e++)
      y[e] += exp(x) * (double)at(&in[2], ((b * c->t + j) * c->g + g) * c->e + e);
  }
  for (int64_t e = 0; e < c->e && sum > 0; e++) y[e] /= sum;
  return log(sum);
}

static moec_type type4(moec_module *m, moec_dtype t, const int64_t *dims, bool symbolic) {
  moec_dim d[4];
  for (int i = 0; i < 4; i++) d[i] = moec_dim_const(m, dims[i]);
  if (symbolic) d[0] = moec_dim_symbol(m, "batch");
  return moec_type_make(m, t, 4, d);
}

static void check_attention(const config *c, uint32_t seed) {
  moec_module *m = moec_module_create();
  moec_builder b = moec_builder_on(moec_fn_get(m, moec_fn_add(m, "main")));
  const int64_t shapes[3][4] = {
      {c->b, c->s, c->h, c->d}, {c->b, c->t, c->g, c->d}, {c->b, c->t, c->g, c->e}};
  moec_tensor in[5] = {{0}}, given[5], out[2];
  moec_value v[5] = {{0}};
  size_t n = 0;
  for (uint32_t i = 0; i < 3; i++) {
    in[i] = random_tensor(MOEC_F32, 4, shapes[i], seed + i);
    v[i] = moec_add_input(b.g, "", type4(m, MOEC_F32, shapes[i], true));
  }
  if (c->mask) {
    in[3] = random_tensor(c->mask, 4, c->masked, seed + 3);
    v[3] = moec_add_input(b.g, "mask", type4(m, c->mask, c->masked, c->masked[0] != 1));
  }
  if (c->sink) {
    moec_dim h = moec_dim_const(m, c->h);
    in[4] = random_tensor(MOEC_F32, 1, &c->h, seed + 4);
    v[4] = moec_add_input(b.g, "sink", moec_type_make(m, MOEC_F32, 1, &h));
  }
  for (int i = 0; i < 5; i++)
    if (v[i].i) given[n++] = in[i];
  moec_attrs_ATTENTION a = {.scale = c->scale, .softcap = c->softcap, .causal = c->causal};
  moec_value y = moec_b_op(&b, MOEC_OP_ATTENTION, &a, 5, v, 2);
  UNIT_OK(moec_builder_end(&b));
  moec_add_output(b.g, "y", y);
  moec_add_output(b.g, "lse", moec_out(b.g, moec_def(b.g, y), 1));
  UNIT_OK(moec_interp_run(m, (moec_fn){1}, given, n, out, 2, NULL));
  double want[512] = {0}, lse[128] = {0};
  int64_t rows = 0;
  for (int64_t bi = 0; bi < c->b; bi++)
    for (int64_t i = 0; i < c->s; i++)
      for (int64_t h = 0; h < c->h; h++, rows++)
        lse[rows] = attend(c, in, bi, i, h, want + rows * c->e);
  compare(&out[0], want, rows * c->e, c->what);
  for (int64_t i = 0; i < rows; i++)
    if (isinf(lse[i]))
      ck_assert(isinf(at(&out[1], i)) && at(&out[1], i) < 0), lse[i] = 0,
                                                              ((float *)out[1].data)[i] = 0;
  compare(&out[1], lse, rows, c->what);
  for (int i = 0; i < 5; i++) moec_tensor_fini(&in[i]);
  for (int i = 0; i < 2; i++) moec_tensor_fini(&out[i]);
  moec_module_destroy(m);
}

START_TEST(test_attention) {
  for (size_t i = 0; i < COUNT(configs); i++) check_attention(&configs[i], (uint32_t)i * 16);
}
END_TEST

/* ---- the expert region -------------------------------------------------------------------- */

enum { HIDDEN = 3, INNER = 4, EXPERTS = 5, SLOTS = 2 };

/* scores[T, E], x[T, HIDDEN], w_up[E, INNER, HIDDEN], w_down[E, INNER, HIDDEN] (not transposed),
 * bias[E, HIDDEN], weights[T, SLOTS] -> y[T, HIDDEN], with T a symbol. */
static moec_module *region(void) {
  moec_module *m = moec_module_create();
  moec_builder b = moec_builder_on(moec_fn_get(m, moec_fn_add(m, "main")));
  moec_dim t = moec_dim_symbol(m, "tokens"), h = moec_dim_const(m, HIDDEN);
  moec_dim e = moec_dim_const(m, EXPERTS), f = moec_dim_const(m, INNER);
  moec_dim shapes[6][3] = {{t, e},    {t, h}, {e, f, h},
                           {e, f, h}, {e, h}, {t, moec_dim_const(m, SLOTS)}};
  moec_value in[6];
  for (int i = 0; i < 6; i++)
    in[i] =
        moec_add_input(b.g, "", moec_type_make(m, MOEC_F32, i == 2 || i == 3 ? 3 : 2, shapes[i]));
  moec_attrs_MOE_SELECT select = {.k = SLOTS};
  moec_attrs_MOE_PLAN plan = {.experts = EXPERTS};
  moec_attrs_MOE_DISPATCH dispatch = {.k = SLOTS};
  moec_attrs_MOE_GROUPED_DOT up = {.transposed = true}, down = {.transposed = false};
  moec_attrs_MOE_COMBINE combine = {.k = SLOTS};
  moec_value picked = moec_b_op(&b, MOEC_OP_MOE_SELECT, &select, 1, in, 1);
  moec_value perm = moec_b_op(&b, MOEC_OP_MOE_PLAN, &plan, 1, &picked, 3);
  UNIT_OK(moec_builder_end(&b));
  moec_node p = moec_def(b.g, perm);
  moec_value inv = moec_out(b.g, p, 1), offsets = moec_out(b.g, p, 2);
  moec_value y = moec_b_op(&b, MOEC_OP_MOE_DISPATCH, &dispatch, 2, (moec_value[]){in[1], perm}, 1);
  y = moec_b_op(&b, MOEC_OP_MOE_GROUPED_DOT, &up, 3, (moec_value[]){y, in[2], offsets}, 1);
  y = moec_b_op(&b, MOEC_OP_MOE_GROUPED_DOT, &down, 4, (moec_value[]){y, in[3], offsets, in[4]}, 1);
  y = moec_b_op(&b, MOEC_OP_MOE_WEIGHT, NULL, 3, (moec_value[]){y, in[5], perm}, 1);
  y = moec_b_op(&b, MOEC_OP_MOE_COMBINE, &combine, 2, (moec_value[]){y, inv}, 1);
  moec_add_output(b.g, "y", y);
  UNIT_OK(moec_builder_end(&b));
  return m;
}

/* y[HIDDEN] of token |t|: the best experts of its row of scores, one after the other. */
static void mix_token(const moec_tensor *in, int64_t t, double *y) {
  bool taken[EXPERTS] = {false};
  for (int h = 0; h < HIDDEN; h++) y[h] = 0;
  for (int slot = 0; slot < SLOTS; slot++) {
    int64_t best = -1;
    for (int64_t e = 0; e < EXPERTS; e++)
      if (!taken[e] && (best < 0 || at(&in[0], t * EXPERTS + e) > at(&in[0], t * EXPERTS + best)))
        best = e;
    taken[best] = true;
    double weight = (double)at(&in[5], t * SLOTS + slot);
    for (int h = 0; h < HIDDEN; h++) y[h] += weight * (double)at(&in[4], best * HIDDEN + h);
    for (int f = 0; f < INNER; f++) {
      double up = 0;
      for (int h = 0; h < HIDDEN; h++)
        up += (double)at(&in[2], (best * INNER + f) * HIDDEN + h) *
              (double)at(&in[1], t * HIDDEN + h);
      for (int h = 0; h < HIDDEN; h++)
        y[h] += weight * up * (double)at(&in[3], (best * INNER + f) * HIDDEN + h);
    }
  }
}

/* |spread| false: every token picks the same two experts, which leaves the others empty. */
static void region_inputs(int64_t tokens, bool spread, moec_tensor in[6]) {
  const int64_t shapes[6][3] = {{tokens, EXPERTS},        {tokens, HIDDEN},
                                {EXPERTS, INNER, HIDDEN}, {EXPERTS, INNER, HIDDEN},
                                {EXPERTS, HIDDEN},        {tokens, SLOTS}};
  for (uint32_t i = 0; i < 6; i++)
    in[i] = random_tensor(MOEC_F32, i == 2 || i == 3 ? 3 : 2, shapes[i], i + 40);
  for (int64_t i = 0; i < tokens * EXPERTS && !spread; i++)
    ((float *)in[0].data)[i] = i % EXPERTS == 3 || i % EXPERTS == 1 ? 1 : 0;
}

static void check_region(int64_t tokens, bool spread) {
  moec_module *m = region(), *inlined = moec_module_clone(m);
  moec_tensor in[6], out, same;
  double want[64 * HIDDEN];
  region_inputs(tokens, spread, in);
  for (int64_t t = 0; t < tokens; t++) mix_token(in, t, want + t * HIDDEN);
  UNIT_OK(moec_interp_run(m, (moec_fn){1}, in, 6, &out, 1, NULL));
  compare(&out, want, tokens * HIDDEN, "region");
  UNIT_OK(moec_inline_composites(inlined, NULL, NULL));
  UNIT_OK(moec_interp_run(inlined, (moec_fn){1}, in, 6, &same, 1, NULL));
  ck_assert_mem_eq(out.data, same.data, moec_tensor_bytes(&out));
  for (int i = 0; i < 6; i++) moec_tensor_fini(&in[i]);
  moec_tensor_fini(&out);
  moec_tensor_fini(&same);
  moec_module_destroy(m);
  moec_module_destroy(inlined);
}

START_TEST(test_region) {
  static const int64_t tokens[] = {0, 1, 2, 7, 64};
  for (size_t i = 0; i < COUNT(tokens); i++) {
    check_region(tokens[i], true);
    check_region(tokens[i], false);
  }
}
END_TEST

/* ---- inlining ----------------------------------------------------------------------------- */

static size_t count_class(const moec_graph *g, moec_op_class first) {
  size_t n = 0;
  for (size_t i = 1; i < g->n_nodes; i++)
    n += g->nodes[i].op && moec_op_cls(g->nodes[i].op) >= first;
  return n;
}

static bool keep_dots(void *user, const moec_graph *g, moec_node n) {
  ++*(size_t *)user;
  return moec_op_of(g, n) == MOEC_OP_MOE_GROUPED_DOT;
}

START_TEST(test_inline) {
  moec_module *m = region();
  size_t asked = 0;
  moec_sym_make(m, "layer0");
  for (size_t i = 1; i < moec_main(m)->n_nodes; i++)
    moec_main(m)->nodes[i].loc = moec_sym_make(m, "layer0");
  UNIT_OK(moec_inline_composites(m, keep_dots, &asked));
  const moec_graph *g = moec_main(m);
  ck_assert_uint_eq(asked, 7);
  ck_assert_uint_eq(count_class(g, MOEC_CLASS_COMPOSITE), 2);
  for (size_t i = 1; i < g->n_nodes; i++)
    ck_assert_str_eq(moec_sym_str(m, g->nodes[i].loc), "layer0");
  UNIT_OK(moec_inline_composites(m, NULL, NULL));
  ck_assert_uint_eq(count_class(moec_main(m), MOEC_CLASS_COMPOSITE), 0);
  moec_module_destroy(m);
}
END_TEST

UNIT_MAIN("body", test_every_composite, test_attention, test_region, test_inline)
