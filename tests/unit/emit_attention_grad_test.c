/* Emitted kernels of attention's gradient against the interpreter. y and lse are what attention gives for the same
 * random inputs, so probabilities sum to one and hidden rows have their -inf. */
#include "codegen/emit.h"
#include "ir/interp.h"
#include "tests/unit/emit.h"

typedef struct config {
  const char *name, *sizes; /* "B=2 S=5 T=7": symbols; S and T in that order */
  const char *dtype;
  int h, g, d, e;
  const char *scale, *softcap;
  bool causal;
  const char *mask_type; /* of %4, the mask or what it is computed from: "bool[B, 1, S, T]"; NULL: no mask */
  const char *mask;      /* lines that compute %5 from it; NULL: %4 itself */
  bool sink;
  const char *wanted; /* "qkv", "qkvs": results, as they stand in the function */
} config;

#define ONE "0x1p+0"
#define HALF "0x1p-1"
#define NO "0x0p+0"

/* Keys up to the query's and not more than 15 before it; of those, the ones that %4[B, T] shows. */
#define WINDOW                                                                         \
  "%20 = iota() {dtype = i64, shape = [B, 1, S, T], axis = 2} : i64[B, 1, S, T]\n"     \
  "%21 = iota() {dtype = i64, shape = [B, 1, S, T], axis = 3} : i64[B, 1, S, T]\n"     \
  "%22 = size() {value = T - S} : i64[]\n"                                             \
  "%23 = broadcast(%22) {shape = [B, 1, S, T], map = []} : i64[B, 1, S, T]\n"          \
  "%24 = add(%20, %23) : i64[B, 1, S, T]\n%25 = le(%21, %24) : bool[B, 1, S, T]\n"     \
  "%26 = sub(%24, %21) : i64[B, 1, S, T]\n%27 = const() {data = i64[] [16]} : i64[]\n" \
  "%28 = broadcast(%27) {shape = [B, 1, S, T], map = []} : i64[B, 1, S, T]\n"          \
  "%29 = lt(%26, %28) : bool[B, 1, S, T]\n%30 = and(%25, %29) : bool[B, 1, S, T]\n"    \
  "%31 = broadcast(%4) {shape = [B, 1, S, T], map = [0, 3]} : bool[B, 1, S, T]\n"      \
  "%5 = and(%30, %31) : bool[B, 1, S, T]\n"
/* -inf where %4 is negative, else %4. */
#define SOME_INF                                                                                 \
  "%20 = const() {data = f32[] [0x0p+0]} : f32[]\n%21 = const() {data = f32[] [-inf]} : f32[]\n" \
  "%22 = broadcast(%20) {shape = [B, H, S, T], map = []} : f32[B, H, S, T]\n"                    \
  "%23 = broadcast(%21) {shape = [B, H, S, T], map = []} : f32[B, H, S, T]\n"                    \
  "%24 = lt(%4, %22) : bool[B, H, S, T]\n%5 = select(%24, %23, %4) : f32[B, H, S, T]\n"

#ifdef EMIT_HALVES /* what tensor cores do: vectors of halves, by 16 bytes */
static const config configs[] = {
    {"plain", "B=2 S=5 T=7", "bf16", 4, 4, 24, 16, HALF, NO, false, NULL, NULL, false, "qkv"},
    {"gqa causal", "B=1 S=70 T=70", "bf16", 4, 2, 16, 16, "0x1p-2", NO, true, NULL, NULL, false, "qkv"},
    {"T > S", "B=1 S=9 T=150", "f16", 2, 1, 8, 24, HALF, NO, true, NULL, NULL, false, "qkv"},
    {"T < S with sinks", "B=1 S=40 T=9", "bf16", 2, 2, 8, 8, HALF, NO, true, NULL, NULL, true, "qkvs"},
    {"softcap and sinks", "B=2 S=20 T=20", "f16", 4, 2, 24, 8, HALF, "0x1.8p+1", true, NULL, NULL, true, "qkvs"},
    {"one query", "B=2 S=1 T=80", "bf16", 8, 8, 16, 16, "0x1p-2", NO, true, NULL, NULL, false, "qkv"},
    {"wide heads", "B=1 S=17 T=20", "bf16", 1, 1, 136, 256, "0x1p-4", NO, true, NULL, NULL, false, "qkv"},
    {"no batch", "B=0 S=5 T=7", "bf16", 4, 2, 8, 8, ONE, NO, true, NULL, NULL, true, "qkvs"},
    {"no queries", "B=2 S=0 T=7", "bf16", 4, 2, 8, 8, ONE, NO, false, NULL, NULL, true, "qkvs"},
    {"no keys", "B=2 S=7 T=0", "bf16", 4, 2, 8, 8, ONE, NO, false, NULL, NULL, true, "qkvs"},
    {"added by query", "B=2 S=20 T=70", "bf16", 4, 2, 24, 8, HALF, NO, false, "bf16[B, 1, S, T]", NULL, false, "qkv"},
    {"added by key", "B=2 S=20 T=33", "f16", 4, 2, 24, 8, HALF, NO, false, "f16[B, 1, 1, T]", NULL, false, "qkv"},
    {"bool by head", "B=2 S=20 T=40", "bf16", 4, 2, 8, 8, HALF, NO, false, "bool[B, 4, 1, T]", NULL, false, "qkv"},
    {"hidden rows", "B=2 S=20 T=20", "bf16", 4, 2, 8, 8, HALF, NO, true, "bool[B, 1, S, 1]", NULL, false, "qkv"},
    {"hidden rows with sinks", "B=2 S=20 T=20", "bf16", 4, 2, 8, 8, HALF, NO, true, "bool[B, 1, S, 1]", NULL, true,
     "qkvs"},
    {"window with sinks", "B=1 S=70 T=70", "bf16", 4, 2, 16, 16, "0x1p-2", NO, false, "bool[B, T]", WINDOW, true,
     "qkvs"},
    {"dq only", "B=2 S=20 T=33", "bf16", 4, 2, 8, 8, HALF, NO, true, NULL, NULL, false, "q"},
    {"dk only", "B=2 S=20 T=33", "bf16", 4, 2, 8, 8, HALF, NO, true, NULL, NULL, false, "k"},
    {"dv only", "B=2 S=20 T=33", "bf16", 4, 2, 8, 8, HALF, NO, true, NULL, NULL, false, "v"},
    {"dsink and dq", "B=2 S=20 T=33", "bf16", 4, 2, 8, 8, HALF, NO, true, NULL, NULL, true, "sq"},
};
#else
static const config configs[] = {
    {"plain", "B=2 S=5 T=7", "f32", 4, 4, 24, 12, HALF, NO, false, NULL, NULL, false, "qkv"},
    {"gqa causal", "B=2 S=70 T=70", "f32", 8, 2, 16, 16, "0x1p-2", NO, true, NULL, NULL, false, "qkv"},
    {"one key head", "B=1 S=37 T=37", "f32", 6, 1, 8, 8, "0x1p-2", NO, true, NULL, NULL, true, "qkvs"},
    {"odd sizes, T > S", "B=2 S=9 T=150", "f32", 2, 1, 7, 5, HALF, NO, true, NULL, NULL, false, "qkv"},
    {"T < S", "B=2 S=40 T=9", "f32", 2, 2, 7, 9, HALF, NO, true, NULL, NULL, false, "qkv"},
    {"T < S with sinks", "B=2 S=40 T=9", "f32", 2, 2, 7, 9, HALF, NO, true, NULL, NULL, true, "qkvs"},
    {"one query", "B=2 S=1 T=150", "f32", 8, 8, 64, 64, "0x1p-3", NO, true, NULL, NULL, false, "qkv"},
    {"one query, many heads", "B=2 S=1 T=33", "f32", 12, 1, 64, 64, "0x1p-3", NO, true, NULL, NULL, true, "qkvs"},
    {"one key", "B=2 S=1 T=1", "f32", 2, 1, 3, 3, ONE, NO, true, NULL, NULL, true, "qkvs"},
    {"wide heads", "B=1 S=33 T=40", "f32", 2, 2, 192, 128, "0x1p-4", NO, true, NULL, NULL, false, "qkv"},
    {"softcap", "B=2 S=20 T=35", "f32", 4, 2, 24, 12, ONE, "0x1.8p+1", false, NULL, NULL, false, "qkv"},
    {"softcap and sinks", "B=2 S=20 T=20", "f32", 4, 2, 24, 12, ONE, "0x1.8p+1", true, NULL, NULL, true, "qkvs"},
    {"bf16", "B=2 S=40 T=40", "bf16", 4, 2, 24, 12, "0x1p-2", NO, true, NULL, NULL, true, "qkvs"},
    {"f16", "B=2 S=40 T=40", "f16", 4, 2, 24, 12, "0x1p-2", NO, true, NULL, NULL, false, "qkv"},
    {"no batch", "B=0 S=5 T=7", "f32", 4, 2, 8, 8, ONE, NO, true, NULL, NULL, true, "qkvs"},
    {"no queries", "B=2 S=0 T=7", "f32", 4, 2, 8, 8, ONE, NO, false, NULL, NULL, true, "qkvs"},
    {"no keys", "B=2 S=7 T=0", "f32", 4, 2, 8, 8, ONE, NO, false, NULL, NULL, true, "qkvs"},
    {"added everywhere", "B=2 S=20 T=90", "f32", 4, 2, 24, 12, HALF, NO, false, "f32[B, 4, S, T]", NULL, false, "qkv"},
    {"added by query", "B=2 S=20 T=90", "f32", 4, 2, 24, 12, HALF, NO, false, "f32[B, 1, S, T]", NULL, true, "qkvs"},
    {"added by head", "B=2 S=20 T=90", "f32", 4, 2, 24, 12, HALF, NO, true, "f32[1, 4, 1, T]", NULL, false, "qkv"},
    {"added by key", "B=2 S=20 T=33", "f32", 4, 2, 24, 12, HALF, NO, false, "f32[B, 1, 1, T]", NULL, false, "qkv"},
    {"added by row", "B=2 S=20 T=33", "f32", 4, 4, 24, 12, HALF, NO, false, "f32[1, 4, S, 1]", NULL, false, "qkv"},
    {"added to all alike", "B=2 S=20 T=33", "f32", 4, 2, 24, 12, HALF, NO, false, "f32[1, 1, 1, 1]", NULL, false,
     "qkv"},
    {"added, some -inf, softcap", "B=2 H=4 S=20 T=33", "f32", 4, 2, 24, 12, HALF, ONE, false, "f32[B, H, S, T]",
     SOME_INF, false, "qkv"},
    {"bf16 added", "B=2 S=20 T=33", "bf16", 4, 2, 24, 12, HALF, NO, false, "bf16[B, 1, S, T]", NULL, false, "qkv"},
    {"bool everywhere", "B=2 S=20 T=40", "f32", 4, 2, 24, 12, HALF, NO, false, "bool[B, 4, S, T]", NULL, false, "qkv"},
    {"bool by query", "B=2 S=20 T=40", "f32", 4, 2, 24, 12, HALF, NO, true, "bool[1, 1, S, T]", NULL, true, "qkvs"},
    {"bool by key", "B=2 S=20 T=90", "f32", 4, 2, 24, 12, HALF, NO, true, "bool[B, 1, 1, T]", NULL, false, "qkv"},
    {"bool by head", "B=2 S=20 T=40", "f32", 4, 2, 24, 12, HALF, NO, false, "bool[B, 4, 1, T]", NULL, false, "qkv"},
    {"hidden rows", "B=2 S=20 T=20", "f32", 4, 2, 24, 12, HALF, NO, true, "bool[B, 1, S, 1]", NULL, false, "qkv"},
    {"hidden rows with sinks", "B=2 S=20 T=20", "f32", 4, 2, 24, 12, HALF, NO, true, "bool[B, 1, S, 1]", NULL, true,
     "qkvs"},
    {"window", "B=2 S=100 T=170", "f32", 4, 2, 24, 12, HALF, NO, false, "bool[B, T]", WINDOW, false, "qkv"},
    {"window with sinks", "B=2 S=70 T=70", "f32", 4, 2, 64, 64, "0x1p-3", NO, false, "bool[B, T]", WINDOW, true,
     "qkvs"},
    {"dq only", "B=2 S=20 T=33", "f32", 4, 2, 24, 12, HALF, NO, true, NULL, NULL, false, "q"},
    {"dk only", "B=2 S=20 T=33", "f32", 4, 2, 24, 12, HALF, NO, true, NULL, NULL, false, "k"},
    {"dv only", "B=2 S=20 T=33", "f32", 4, 2, 24, 12, HALF, NO, true, NULL, NULL, false, "v"},
    {"dsink only", "B=2 S=20 T=33", "f32", 4, 2, 24, 12, HALF, NO, true, NULL, NULL, true, "s"},
    {"dsink and dq", "B=2 S=20 T=33", "f32", 4, 2, 24, 12, HALF, NO, true, NULL, NULL, true, "sq"},
};
#endif
/* Sanitizers watch every change of stacks: fibers run one config of |APART| there. */
#if defined EMIT_CUDA && defined __SANITIZE_ADDRESS__
enum { APART = 6, SEEDS = 1 };
#else
enum { APART = 1, SEEDS = 2 };
#endif
enum { CONFIGS = (sizeof configs / sizeof *configs + APART - 1) / APART };

/* Text of a config, for as long as its case is used. */
typedef struct text {
  char symbols[64], inputs[768], outputs[64], body[4096];
} text;

static int mask_value(const config *c) { return c->mask ? 5 : 4; }

/* Operands q, k, v, mask, sink of both ops, as they stand in parentheses. */
static void operands(const config *c, char *out, size_t size) {
  char mask[16] = "_";
  if (c->mask_type) snprintf(mask, sizeof mask, "%%%d", mask_value(c));
  snprintf(out, size, "%%1, %%2, %%3, %s, %s", mask, c->sink ? "%6" : "_");
}

static size_t inputs(const config *c, char *out, size_t size) {
  const char *t = c->dtype;
  int n =
      snprintf(out, size, "%%1 \"q\" : %s[B, S, %d, %d], %%2 \"k\" : %s[B, T, %d, %d], %%3 \"v\" : %s[B, T, %d, %d]", t,
               c->h, c->d, t, c->g, c->d, t, c->g, c->e);
  if (c->mask_type) n += snprintf(out + n, size - (size_t)n, ", %%4 \"m\" : %s", c->mask_type);
  if (c->sink) n += snprintf(out + n, size - (size_t)n, ", %%6 \"s\" : %s[%d]", t, c->h);
  return (size_t)n;
}

static emit_case forward_case(const config *c, text *x) {
  char in[64];
  operands(c, in, sizeof in);
  inputs(c, x->inputs, sizeof x->inputs);
  snprintf(x->body, sizeof x->body,
           "%s%%7, %%8 = attention(%s) {scale = %s, softcap = %s, causal = %s} : %s[B, S, %d, %d], f32[B, S, %d]\n",
           c->mask ? c->mask : "", in, c->scale, c->softcap, c->causal ? "true" : "false", c->dtype, c->h, c->e, c->h);
  return (emit_case){.name = c->name,
                     .symbols = c->sizes,
                     .rows = "B*S",
                     .inputs = x->inputs,
                     .outputs = "%7 \"y\", %8 \"l\"",
                     .body = x->body};
}

static emit_case grad_case(const config *c, text *x) {
  static const char order[] = "qkvs";
  char in[64];
  const char *t = c->dtype;
  operands(c, in, sizeof in);
  size_t n = inputs(c, x->inputs, sizeof x->inputs);
  snprintf(x->inputs + n, sizeof x->inputs - n,
           ", %%7 \"y\" : %s[B, S, %d, %d], %%8 \"l\" : f32[B, S, %d], %%9 \"dy\" : %s[B, S, %d, %d]", t, c->h, c->e,
           c->h, t, c->h, c->e);
  n = 0;
  for (const char *w = c->wanted; *w; w++)
    n += (size_t)snprintf(x->outputs + n, sizeof x->outputs - n, "%s%%%d \"d%c\"", w == c->wanted ? "" : ", ",
                          10 + (int)(strchr(order, *w) - order), *w);
  n = (size_t)snprintf(
      x->body, sizeof x->body,
      "%s%%10, %%11, %%12%s = attention_grad(%s, %%7, %%8, %%9) {scale = %s, softcap = %s, causal = %s} : ",
      c->mask ? c->mask : "", c->sink ? ", %13" : "", in, c->scale, c->softcap, c->causal ? "true" : "false");
  n += (size_t)snprintf(x->body + n, sizeof x->body - n, "%s[B, S, %d, %d], %s[B, T, %d, %d], %s[B, T, %d, %d]", t,
                        c->h, c->d, t, c->g, c->d, t, c->g, c->e);
  if (c->sink) n += (size_t)snprintf(x->body + n, sizeof x->body - n, ", %s[%d]", t, c->h);
  snprintf(x->body + n, sizeof x->body - n, "\n");
#ifdef EMIT_HALVES
  const double tolerance = 1.0 / 32; /* gradients of scores are rounded before they are summed */
#else
  const double tolerance = strcmp(t, "f32") ? 0 : 2e-5;
#endif
  return (emit_case){c->name, c->sizes, "1", x->inputs, x->outputs, x->body, tolerance};
}

/* Inputs of |x| but y, lse, dy give y and lse. */
static void attend(const config *c, emit_memory *x) {
  text t;
  emit_case f = forward_case(c, &t);
  int64_t sizes[16];
  moec_module *m = emit_module(&f, sizes);
  moec_tensor out[2];
  UNIT_OK(moec_interp_run(m, (moec_fn){1}, x->t, x->n_in - 3, out, 2, NULL));
  for (int i = 0; i < 2; i++) {
    memcpy(x->t[x->n_in - 3 + (size_t)i].data, out[i].data, moec_tensor_bytes(&out[i]));
    moec_tensor_fini(&out[i]);
  }
  moec_module_destroy(m);
}

/* One task after the other, last first, into other memory: the same bytes. */
static void check_any_order(const config *c, const emit_run *r, const emit_memory *x) {
  emit_memory other = *x;
  for (size_t i = x->n_in; i < x->n_in + x->n_out; i++) {
    size_t bytes = moec_tensor_bytes(&x->t[i]);
    other.buf[i] = malloc(bytes + 1);
    memset(other.buf[i], 0x5a, bytes);
  }
  emit_call_backwards(r, &other);
  for (size_t i = x->n_in; i < x->n_in + x->n_out; i++) {
    if (memcmp(other.buf[i], x->buf[i], moec_tensor_bytes(&x->t[i])) != 0)
      ck_abort_msg("%s: result %zu depends on the order of tasks", c->name, i - x->n_in);
    free(other.buf[i]);
  }
}

static void check(const config *c, const emit_case *k, const emit_run *r, uint64_t seed) {
  emit_memory x;
  moec_tensor want[EMIT_MAX];
  emit_alloc(&x, r, seed);
  attend(c, &x);
  moec_status *s = moec_interp_run(r->m, (moec_fn){1}, x.t, x.n_in, want, x.n_out, NULL);
  if (s) ck_abort_msg("%s: interpreter: %s", c->name, moec_status_message(s));
  ck_assert_int_eq(emit_call(r, &x), 0);
  for (size_t i = 0; i < x.n_out; i++) {
    emit_compare(k, &x.t[x.n_in + i], &want[i], i);
    moec_tensor_fini(&want[i]);
  }
  check_any_order(c, r, &x);
  emit_free(&x);
}

START_TEST(kernels_compute_what_the_body_says) {
  static text texts[CONFIGS];
  emit_case cases[CONFIGS];
  emit_run *runs = calloc(CONFIGS, sizeof *runs);
  for (size_t i = 0; i < CONFIGS; i++) cases[i] = grad_case(&configs[i * APART], &texts[i]);
  emit_compile(cases, CONFIGS, runs);
  for (size_t i = 0; i < CONFIGS; i++)
    for (uint64_t seed = 1; seed <= SEEDS; seed++) check(&configs[i * APART], &cases[i], &runs[i], seed);
  emit_close(runs);
  for (size_t i = 0; i < CONFIGS; i++) moec_module_destroy(runs[i].m);
  free(runs);
}
END_TEST

#ifdef EMIT_HALVES
/* And of attention itself, in the same configs. */
START_TEST(forward_too) {
  static text texts[CONFIGS];
  emit_case cases[CONFIGS];
  for (size_t i = 0; i < CONFIGS; i++) cases[i] = forward_case(&configs[i * APART], &texts[i]);
  emit_check_all(cases, CONFIGS);
}
END_TEST

UNIT_MAIN("emit_halves", kernels_compute_what_the_body_says, forward_too)
#else
/* Operands that are moved on the way in, results that have other shapes. */
static const emit_case moved[] = {
    {"moved", "B=2 S=40", "1",
     "%1 \"q\" : f32[B, 4, S, 24], %2 \"k\" : f32[B, 2, S, 24], %3 \"v\" : f32[B, S, 24], %4 \"s\" : f32[2, 2], "
     "%5 \"y\" : f32[B, 4, S, 12], %6 \"pos\" : f32[B, 4, S], %7 \"dy\" : f32[B, S, 48]",
     "%21 \"dq\", %22 \"dk\", %18 \"dv\", %23 \"ds\"",
     "%8 = transpose(%1) {perm = [0, 2, 1, 3]} : f32[B, S, 4, 24]\n"
     "%9 = transpose(%2) {perm = [0, 2, 1, 3]} : f32[B, S, 2, 24]\n"
     "%10 = reshape(%3) {shape = [B, S, 2, 12]} : f32[B, S, 2, 12]\n"
     "%11 = reverse(%4) {axes = [1]} : f32[2, 2]\n%12 = reshape(%11) {shape = [4]} : f32[4]\n"
     "%13 = transpose(%5) {perm = [0, 2, 1, 3]} : f32[B, S, 4, 12]\n"
     "%14 = transpose(%6) {perm = [0, 2, 1]} : f32[B, S, 4]\n"
     "%15 = reshape(%7) {shape = [B, S, 4, 12]} : f32[B, S, 4, 12]\n"
     "%16, %17, %18, %19 = attention_grad(%8, %9, %10, _, %12, %13, %14, %15) {scale = 0x1p-4, softcap = 0x0p+0, "
     "causal = true} : f32[B, S, 4, 24], f32[B, S, 2, 24], f32[B, S, 2, 12], f32[4]\n"
     "%21 = reshape(%16) {shape = [B, S, 96]} : f32[B, S, 96]\n"
     "%22 = reshape(%17) {shape = [B*S, 48]} : f32[B*S, 48]\n%23 = reshape(%19) {shape = [2, 2]} : f32[2, 2]\n",
     2e-5},
    {"nan", "B=2 S=20", "1",
     "%1 \"nan\" : f32[B, S, 2, 3], %2 \"k\" : f32[B, S, 2, 3], %3 \"v\" : f32[B, S, 2, 8], "
     "%4 \"y\" : f32[B, S, 2, 8], %5 \"pos\" : f32[B, S, 2], %6 \"dy\" : f32[B, S, 2, 8]",
     "%7 \"dq\", %8 \"dk\", %9 \"dv\"",
     "%7, %8, %9 = attention_grad(%1, %2, %3, _, _, %4, %5, %6) {scale = 0x1p-2, softcap = 0x0p+0, causal = true} : "
     "f32[B, S, 2, 3], f32[B, S, 2, 3], f32[B, S, 2, 8]\n",
     2e-5},
};

START_TEST(operands_are_moved_in_place) { emit_check_all(moved, sizeof moved / sizeof *moved); }
END_TEST

UNIT_MAIN("emit_attention_grad", kernels_compute_what_the_body_says, operands_are_moved_in_place)
#endif
