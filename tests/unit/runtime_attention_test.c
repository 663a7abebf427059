/* Attention by a library in the place of its kernels: when, on which operands, and with which results. The library is
 * tests/support/fake_cudnn.c, which computes whatever graph it is given. */
#include <dlfcn.h>
#include <math.h>

#include "tests/unit/plan_builder.h"

#include "include/moec.h"
#include "tests/support/fake_cuda.h"

static fake_cuda *fake;

typedef struct config {
  int64_t h, g, d, e;
  bool causal;
} config;

enum { B = 2, MOST_S = 40, MOST = 2000 };

/* k and v are stored in one row, k first: strided views. */
typedef struct sample {
  config c;
  int64_t s;
  uint16_t q[MOST], kv[MOST], dy[MOST];
  int64_t mask[B * MOST_S];
} sample;

/* ---- the plan ---------------------------------------------------------------------------- */

static moec_plan_view view(plan_builder *b, uint32_t arg, moec_expr_ref s, int64_t row, int64_t head, int64_t offset) {
  moec_expr_ref step = pb_const(b, row);
  return (moec_plan_view){arg, pb_const(b, offset), {pb_expr(b, MOEC_EXPR_MUL, s, step), step, pb_const(b, head)}};
}

static void describe(plan_builder *b, const config *c, moec_expr_ref s, uint32_t kernel, bool grad) {
  int64_t h = c->h, g = c->g, d = c->d, e = c->e, row = g * (d + e);
  moec_plan_attention a = {.kernel = kernel, .grad = grad, .causal = c->causal, .dtype = MOEC_BF16, .scale = 0.25f};
  a.b = pb_const(b, B), a.s = a.t = s, a.h = pb_const(b, h), a.g = pb_const(b, g);
  a.d = pb_const(b, d), a.e = pb_const(b, e);
  a.ones = pb_list(b, 1, (uint32_t[]){2}), a.n_ones = 1;
  for (int o = 0; o < MOEC_ATTENTION_OPERANDS; o++) a.operands[o].arg = MOEC_NONE;
  a.operands[MOEC_ATTENTION_Q] = view(b, 0, s, h * d, d, 0);
  a.operands[MOEC_ATTENTION_K] = view(b, 1, s, row, d, 0);
  a.operands[MOEC_ATTENTION_V] = view(b, 1, s, row, e, g * d);
  a.operands[MOEC_ATTENTION_Y] = view(b, 3, s, h * e, e, 0);
  a.operands[MOEC_ATTENTION_LSE] = view(b, 4, s, h, 1, 0);
  if (grad) {
    a.operands[MOEC_ATTENTION_DY] = view(b, 5, s, h * e, e, 0);
    a.operands[MOEC_ATTENTION_DQ] = view(b, 6, s, h * d, d, 0);
    a.operands[MOEC_ATTENTION_DK] = view(b, 7, s, g * d, d, 0);
    a.operands[MOEC_ATTENTION_DV] = view(b, 8, s, g * e, e, 0);
  }
  PB_ADD(b, attentions, a);
}

static uint32_t tensor(plan_builder *b, moec_buffer_kind kind, moec_dtype t, moec_expr_ref s, int64_t heads,
                       int64_t width) {
  const moec_expr_ref dims[] = {pb_const(b, B), s, pb_const(b, heads), pb_const(b, width)};
  return pb_tensor(b, kind, t, 4, dims);
}

static plan_builder *build(const config *c) {
  plan_builder *b = pb_create();
  moec_expr_ref s = pb_symbol(b, "s", -1), none = pb_const(b, 0);
  static const char *const names[] = {"y", "lse", "dq", "dk", "dv"};
  uint32_t q = tensor(b, MOEC_BUFFER_INPUT, MOEC_BF16, s, c->h, c->d);
  uint32_t kv = tensor(b, MOEC_BUFFER_INPUT, MOEC_BF16, s, 1, c->g * (c->d + c->e));
  uint32_t mask = tensor(b, MOEC_BUFFER_INPUT, MOEC_I64, s, 1, 1);
  uint32_t dy = tensor(b, MOEC_BUFFER_INPUT, MOEC_BF16, s, c->h, c->e);
  const uint32_t out[] = {
      tensor(b, MOEC_BUFFER_OUTPUT, MOEC_BF16, s, c->h, c->e), tensor(b, MOEC_BUFFER_OUTPUT, MOEC_F32, s, c->h, 1),
      tensor(b, MOEC_BUFFER_OUTPUT, MOEC_BF16, s, c->h, c->d), tensor(b, MOEC_BUFFER_OUTPUT, MOEC_BF16, s, c->g, c->d),
      tensor(b, MOEC_BUFFER_OUTPUT, MOEC_BF16, s, c->g, c->e)};
  b->target = pb_str(b, "cuda:sm_90a");
  pb_input(b, "q", q), pb_input(b, "kv", kv), pb_input(b, "dy", dy);
  uint32_t io = pb_input(b, "mask", mask);
  b->inputs[io].has_default = 1, b->inputs[io].dflt = 1;
  for (int i = 0; i < 5; i++) pb_output(b, names[i], out[i]);
  uint32_t forward = pb_kernel(b, "forward", pb_const(b, 1), none), gradient = pb_kernel(b, "gradient", s, none);
  for (uint32_t i = 0; i < 2; i++) b->kernels[i].threads = b->kernels[i].teams = 64;
  describe(b, c, s, forward, false), describe(b, c, s, gradient, true);
  pb_launch(b, MOEC_AT_STEP, forward, 3, 2, (uint32_t[]){q, kv, mask, out[0], out[1]});
  pb_launch(b, MOEC_AT_STEP, gradient, 6, 3,
            (uint32_t[]){q, kv, mask, out[0], out[1], dy, out[2], out[3], out[4]});
  return b;
}

static moec_status *finish(plan_builder *b, moec_model **m, uint8_t **file) {
  static const moec_map cubin = {.data = (const uint8_t *)"cubin", .size = 5};
  size_t size;
  UNIT_TRUE(fake->live == 0);
  *fake = (fake_cuda){.devices = 1};
  *file = pb_finish(b, NULL, &cubin, &size);
  free(b);
  return moec_open_memory(*file, size, NULL, m);
}

static void end(moec_model *m, uint8_t *file) {
  moec_close(m);
  free(file);
  UNIT_TRUE(fake->live == 0);
}

/* ---- the reference ----------------------------------------------------------------------- */

static void fill(sample *x, const config *c, int64_t s) {
  *x = (sample){.c = *c, .s = s};
  uint32_t seed = 7;
  uint16_t *const all[] = {x->q, x->kv, x->dy};
  for (int k = 0; k < 3; k++)
    for (int i = 0; i < MOST; i++) {
      seed = seed * 1664525 + 1013904223;
      all[k][i] = moec_f32_to_bf16((float)((double)(seed >> 8) / (1 << 23) - 1) * 2);
    }
  for (int i = 0; i < B * MOST_S; i++) x->mask[i] = 1;
}

static double value(const uint16_t *x, int64_t i) { return (double)moec_bf16_to_f32(x[i]); }

typedef struct results {
  double y[MOST], lse[MOST], dq[MOST], dk[MOST], dv[MOST];
} results;

/* One query of one head: adds to the gradients of its keys. */
static void one_query(const sample *x, int64_t b, int64_t i, int64_t h, results *r) {
  const config *c = &x->c;
  const int64_t g = h * c->g / c->h, row = c->g * (c->d + c->e), n = c->causal ? i + 1 : x->s;
  const int64_t line = (b * x->s + i) * c->h + h;
  double p[MOST_S], slope[MOST_S], sum = 0, delta = 0;
  for (int64_t j = 0; j < n; j++) {
    double score = 0;
    slope[j] = 0;
    for (int64_t k = 0; k < c->d; k++)
      score += value(x->q, line * c->d + k) * value(x->kv, (b * x->s + j) * row + g * c->d + k);
    for (int64_t k = 0; k < c->e; k++)
      slope[j] += value(x->dy, line * c->e + k) * value(x->kv, (b * x->s + j) * row + c->g * c->d + g * c->e + k);
    sum += p[j] = exp(score * 0.25);
  }
  r->lse[line] = log(sum);
  for (int64_t j = 0; j < n; j++) delta += (p[j] /= sum) * slope[j];
  for (int64_t j = 0; j < n; j++) {
    const int64_t key = (b * x->s + j) * c->g + g;
    const double ds = p[j] * (slope[j] - delta) * 0.25;
    for (int64_t k = 0; k < c->e; k++) {
      r->y[line * c->e + k] += p[j] * value(x->kv, (b * x->s + j) * row + c->g * c->d + g * c->e + k);
      r->dv[key * c->e + k] += p[j] * value(x->dy, line * c->e + k);
    }
    for (int64_t k = 0; k < c->d; k++) {
      r->dq[line * c->d + k] += ds * value(x->kv, (b * x->s + j) * row + g * c->d + k);
      r->dk[key * c->d + k] += ds * value(x->q, line * c->d + k);
    }
  }
}

static void close_to(moec_model *m, uint32_t output, const double *want) {
  moec_view v;
  UNIT_OK(moec_output(m, output, &v));
  const moec_tensor t = {.dtype = (moec_dtype)v.dtype, .rank = v.rank, .data = v.data};
  int64_t n = v.dims[0] * v.dims[1] * v.dims[2] * v.dims[3];
  for (int64_t i = 0; i < n; i++) {
    double got = moec_load_f64(t.dtype, t.data, (size_t)i);
    if (!(fabs(got - want[i]) <= 0.01 + 0.01 * fabs(want[i])))
      ck_abort_msg("output %u at %lld: expected %g, got %g", output, (long long)i, want[i], got);
  }
}

static void check_results(moec_model *m, const sample *x) {
  static results r;
  memset(&r, 0, sizeof r);
  for (int64_t b = 0; b < B; b++)
    for (int64_t i = 0; i < x->s; i++)
      for (int64_t h = 0; h < x->c.h; h++) one_query(x, b, i, h, &r);
  const double *const want[] = {r.y, r.lse, r.dq, r.dk, r.dv};
  for (uint32_t i = 0; i < 5; i++) close_to(m, i, want[i]);
}

/* ---- runs -------------------------------------------------------------------------------- */

static void give(moec_model *m, sample *x, bool mask) {
  const config *c = &x->c;
  const moec_view views[] = {{x->q, MOEC_DTYPE_BF16, 4, {B, x->s, c->h, c->d}},
                             {x->kv, MOEC_DTYPE_BF16, 4, {B, x->s, 1, c->g * (c->d + c->e)}},
                             {x->dy, MOEC_DTYPE_BF16, 4, {B, x->s, c->h, c->e}},
                             {x->mask, MOEC_DTYPE_I64, 4, {B, x->s, 1, 1}}};
  for (uint32_t i = 0; i < 4; i++) {
    if (i < 3 || mask) UNIT_OK(moec_input_borrow(m, i, &views[i]));
    else UNIT_OK(moec_input_omit(m, i));
  }
}

static const char *last_note; /* of the last step */

/* Runs and expects the library for both steps, or their kernels. */
static void expect(moec_model *m, bool by_library) {
  fake_cuda before = *fake;
  moec_counters c;
  UNIT_OK(moec_forward(m));
  moec_counters_get(m, &c);
  ck_assert_uint_eq(fake->attentions - before.attentions, by_library ? 2 : 0);
  ck_assert_uint_eq(fake->n_launches - before.n_launches, by_library ? 0 : 2);
  ck_assert_uint_eq(c.attention_by_library, by_library ? 2 : 0);
  ck_assert_uint_eq(c.allocations_after_first, 0);
  last_note = moec_attention_note(m);
  ck_assert_int_eq(!*last_note, by_library);
}

START_TEST(results_of_the_library) {
  static const config configs[] = {
      {4, 2, 16, 16, true}, {4, 4, 8, 24, true}, {2, 1, 24, 8, false}, {3, 3, 8, 8, false}};
  static sample x;
  for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
    moec_model *m;
    uint8_t *file;
    UNIT_OK(finish(build(&configs[i]), &m, &file));
    for (int64_t s = 9; s > 0; s -= 4) {
      fill(&x, &configs[i], s);
      give(m, &x, false);
      moec_counters before, after;
      moec_counters_get(m, &before);
      expect(m, true);
      check_results(m, &x);
      expect(m, true);
      moec_counters_get(m, &after);
      ck_assert_uint_eq(after.compilations, before.compilations + 2); /* one for each of them */
    }
    end(m, file);
  }
}
END_TEST

static const config usual = {4, 2, 16, 16, true};

/* The kernels know the mask, the library does not. */
START_TEST(masks) {
  static sample x;
  moec_model *m;
  uint8_t *file;
  UNIT_OK(finish(build(&usual), &m, &file));
  fill(&x, &usual, 5);
  give(m, &x, false), expect(m, true);
  give(m, &x, true), expect(m, true);
  x.mask[0] = 0, expect(m, false);
  UNIT_TRUE(strstr(last_note, "an input of the mask is not all ones") != NULL);
  x.mask[0] = 1, x.mask[B * 5 - 1] = 0, expect(m, false);
  x.mask[B * 5 - 1] = 1, expect(m, true);
  for (int i = 0; i < B * 5; i++) x.mask[i] = 2; /* what else is true is not asked */
  expect(m, false);
  give(m, &x, false), expect(m, true);
  check_results(m, &x);
  end(m, file);
}
END_TEST

static void by_kernels(plan_builder *b, const config *c, const char *note) {
  static sample x;
  moec_model *m;
  uint8_t *file;
  UNIT_OK(finish(b, &m, &file));
  fill(&x, c, 5);
  give(m, &x, false), expect(m, false);
  ck_assert_msg(strstr(last_note, note) != NULL, "expected %s, got %s", note, last_note);
  end(m, file);
}

START_TEST(refused) {
  static const char unfit[] = "no attention of these sizes and strides";
  static const config narrow = {4, 2, 12, 16, true};
  by_kernels(build(&narrow), &narrow, unfit);
  plan_builder *b = build(&usual);
  for (int i = 0; i < 2; i++) b->attentions[i].d = pb_const(b, 264); /* more than any has */
  by_kernels(b, &usual, unfit);
  b = build(&usual);
  for (int i = 0; i < 2; i++) b->attentions[i].t = pb_const(b, 3); /* causal, but not as many keys as queries */
  by_kernels(b, &usual, unfit);
  b = build(&usual);
  for (int i = 0; i < 2; i++) b->attentions[i].operands[MOEC_ATTENTION_K].offset = pb_const(b, 1); /* not aligned */
  by_kernels(b, &usual, unfit);
  setenv("MOEC_CUDNN", "none", 1);
  by_kernels(build(&usual), &usual, "MOEC_CUDNN=none");
  unsetenv("MOEC_CUDNN");
  static sample x;
  moec_model *m;
  uint8_t *file;
  UNIT_OK(finish(build(&usual), &m, &file));
  fake->no_engine = true;
  fill(&x, &usual, 5);
  give(m, &x, false), expect(m, false);
  UNIT_TRUE(strstr(last_note, "cuDNN: it has no engine for these sizes") != NULL);
  fake->no_engine = false;
  expect(m, false); /* asked once a size */
  fill(&x, &usual, 6);
  give(m, &x, false), expect(m, true);
  end(m, file);
}
END_TEST

/* Strides that cuDNN is told must be numbers of 64 bits. */
START_TEST(too_many_scores) {
  static const config plain = {4, 2, 16, 16, false};
  plan_builder *b = build(&plain);
  const moec_expr_ref many = pb_const(b, INT32_MAX), none = pb_const(b, 0);
  for (int i = 0; i < 2; i++) {
    moec_plan_attention *a = &b->attentions[i];
    a->b = a->s = a->t = a->h = a->g = many;
    for (int o = 0; o < MOEC_ATTENTION_OPERANDS; o++)
      for (int k = 0; k < 3; k++) a->operands[o].strides[k] = none; /* all of them lie inside */
  }
  by_kernels(b, &plain, "no attention of these sizes and strides");
}
END_TEST

static uint64_t planned(void) {
  static sample x;
  moec_model *m;
  moec_counters c;
  uint8_t *file;
  UNIT_OK(finish(build(&usual), &m, &file));
  fill(&x, &usual, 5);
  give(m, &x, false);
  UNIT_OK(moec_forward(m));
  moec_counters_get(m, &c);
  ck_assert_uint_eq(c.planned_bytes[MOEC_FORWARD], c.device_peak_bytes);
  end(m, file);
  return c.planned_bytes[MOEC_FORWARD];
}

/* What the library works in is planned. */
START_TEST(room) {
  uint64_t with = planned();
  setenv("MOEC_CUDNN", "none", 1);
  uint64_t without = planned();
  unsetenv("MOEC_CUDNN");
  ck_assert_uint_eq(with - without, 1024 + 256 + B * 5 * 4 * 16 * 4); /* the gradient's: its own, delta, dq in f32 */
}
END_TEST

START_TEST(views_outside) {
  static sample x;
  const int64_t offsets[] = {8, -8, INT64_MAX - 7};
  for (size_t i = 0; i < 3; i++) {
    moec_model *m;
    uint8_t *file;
    plan_builder *b = build(&usual);
    b->attentions[0].operands[MOEC_ATTENTION_Q].offset = pb_const(b, offsets[i]);
    UNIT_OK(finish(b, &m, &file));
    fill(&x, &usual, 5);
    give(m, &x, false);
    UNIT_FAILS(moec_forward(m), MOEC_INVALID_MODEL, "attention: operand 0: expected a view inside its tensor");
    end(m, file);
  }
}
END_TEST

/* More sizes than plans are kept: those not used for the longest time are made again. */
START_TEST(many_sizes) {
  static const config small = {2, 1, 8, 8, true};
  static sample x;
  moec_model *m;
  uint8_t *file;
  UNIT_OK(finish(build(&small), &m, &file));
  for (int round = 0; round < 2; round++)
    for (int64_t s = 1; s <= MOST_S; s++) {
      fill(&x, &small, s);
      give(m, &x, false);
      fake_cuda before = *fake;
      UNIT_OK(moec_forward(m));
      UNIT_TRUE(fake->attentions == before.attentions + 2 && fake->n_launches == before.n_launches);
    }
  check_results(m, &x);
  end(m, file);
}
END_TEST

/* ---- records that lie -------------------------------------------------------------------- */

static void lie(plan_builder *b, const char *text) {
  moec_model *m;
  uint8_t *file;
  UNIT_FAILS(finish(b, &m, &file), MOEC_INVALID_MODEL, text);
  free(file);
}

/* LIE(text, change to |b|) */
#define LIE(text, ...)               \
  do {                               \
    plan_builder *b = build(&usual); \
    __VA_ARGS__;                     \
    lie(b, text);                    \
  } while (0)

START_TEST(lies) {
  LIE("attention 0: kernel: expected an index below 2, got 2", b->attentions[0].kernel = 2);
  LIE("attention 1: expected one of kernel 0, got another", b->attentions[1] = b->attentions[0]);
  LIE("attention 0: grad: expected an index below 2, got 2", b->attentions[0].grad = 2);
  LIE("attention 0: causal: expected an index below 2, got 7", b->attentions[0].causal = 7);
  LIE("attention 0: dtype: expected f16 or bf16, got type 1", b->attentions[0].dtype = MOEC_F32);
  LIE("attention 0: size: expected an index below", b->attentions[0].e = MOEC_NONE);
  LIE("attention 0: ones: expected a range inside", b->attentions[0].n_ones = 4000);
  LIE("attention 0: operand 2: expected an argument", b->attentions[0].operands[2].arg = MOEC_NONE);
  LIE("attention 0: operand 8: expected none", b->attentions[0].operands[8].arg = 1);
  LIE("attention 1: operand 4: expected an argument", b->attentions[1].operands[4].arg = MOEC_NONE);
  LIE("attention 0: offset: expected an index below", b->attentions[0].operands[0].offset = MOEC_NONE);
  LIE("attention 0: stride: expected an index below", b->attentions[0].operands[0].strides[2] = MOEC_NONE);
  LIE("step 0: attention: ones: expected an index below 3, got 3", b->pool[b->attentions[0].ones] = 3);
  LIE("step 0: attention: operand: expected an index below 5, got 5", b->attentions[0].operands[0].arg = 5);
  LIE("step 0: attention: operand 0: expected an operand of type bf16", b->attentions[0].operands[0].arg = 2);
  LIE("step 0: attention: operand 0: expected an operand of type bf16", b->attentions[0].operands[0].arg = 3);
  LIE("step 0: attention: operand 4: expected a result of type f32", b->attentions[0].operands[4].arg = 3);
  LIE("step 1: attention: operand 6: expected a result of type bf16", b->attentions[1].operands[6].arg = 0);
}
END_TEST

/* Whatever a word of the records says: it is refused, or nothing outside of memory is touched. */
START_TEST(any_word_may_lie) {
  static const uint32_t values[] = {0, 1, 2, 5, 8, 20, 60, 0x7fffffff, MOEC_NONE};
  static const moec_map cubin = {.data = (const uint8_t *)"cubin", .size = 5};
  static const config small = {2, 1, 8, 8, true};
  static sample x;
  size_t size, opened = 0;
  plan_builder *b = build(&small);
  uint8_t *file = pb_finish(b, NULL, &cubin, &size);
  free(b);
  const moec_plan_section at = ((const moec_plan_header *)(const void *)file)->attentions;
  uint32_t *words = (uint32_t *)(void *)(file + at.offset);
  fill(&x, &small, 5);
  for (size_t i = 0; i < at.count * sizeof(moec_plan_attention) / sizeof *words; i++) {
    const uint32_t good = words[i];
    for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
      moec_model *m;
      words[i] = values[k];
      pb_hash(file, size);
      moec_status *s = moec_open_memory(file, size, NULL, &m);
      opened += !s;
      if (!s) {
        give(m, &x, false);
        moec_status_free(moec_forward(m));
        moec_close(m);
      }
      moec_status_free(s);
      UNIT_TRUE(fake->live == 0);
    }
    words[i] = good;
  }
  UNIT_TRUE(opened > 100);
  free(file);
}
END_TEST

static void setup(void) {
  static const char *const names[] = {"libcuda.so.1", "libcublas.so.13", "libcudnn.so.9"};
  const char *build_dir = getenv("MOEC_BUILD");
  char path[512];
  ck_assert_ptr_nonnull(build_dir);
  for (int i = 0; i < 3; i++) {
    snprintf(path, sizeof path, "%s/fake/%s", build_dir, names[i]);
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    ck_assert_msg(library != NULL, "%s", dlerror());
    void *symbol = i ? NULL : dlsym(library, "fake_cuda_get");
    fake_cuda *(*get)(void);
    if (i) continue;
    ck_assert_ptr_nonnull(symbol);
    memcpy(&get, &symbol, sizeof get);
    fake = get();
  }
}

int main(void) {
  const TTest *const tests[] = {results_of_the_library, masks, refused, too_many_scores, room,
                                views_outside, many_sizes, lies, any_word_may_lie};
  Suite *suite = suite_create("runtime_attention");
  TCase *tc = tcase_create("fake library");
  tcase_set_timeout(tc, 0);
  tcase_add_unchecked_fixture(tc, setup, NULL);
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(tc, tests[i]);
  suite_add_tcase(suite, tc);
  return unit_run(suite);
}
