/* The float functions of emitted kernels against the C library, in units in the last place. */
#include "codegen/emit.h"
#include "ir/interp.h"
#include "tests/unit/emit.h"

typedef void (*sweep_fn)(const float *x, float *y, int64_t n);

typedef struct function {
  const char *name;
  double (*exact)(double);
  double ulps; /* the most allowed */
} function;

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static const function functions[] = {
    {"exp", exp, 1.1},         {"log", log, 1.1}, {"tanh", tanh, 2},
    {"sigmoid", sigmoid, 2.5}, {"erf", erf, 1.2}, {"rsqrt", NULL, 1.6},
};

enum { BLOCK = 1024 };

static void *load_functions(void) {
  moec_buf b = {0};
  moec_emit_c_prelude(&b);
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    moec_buf_printf(
        &b,
        "void sweep_%s(const float *restrict x, float *restrict y, int64_t n) {\n#pragma omp simd\n"
        "  for (int64_t i = 0; i < n; i++) y[i] = moec_%s_f32(x[i]);\n}\n",
        functions[i].name, functions[i].name);
  moec_buf_puts(&b,
                "void halves(const uint16_t *restrict x, uint16_t *restrict y, int64_t n) "
                "{\n#pragma omp simd\n"
                "  for (int64_t i = 0; i < n; i++) y[i] = moec_store_f16(moec_load_f16(x[i]));\n}\n"
                "void to_half(const float *restrict x, uint16_t *restrict h, uint16_t *restrict b, "
                "int64_t n) {\n#pragma omp simd\n"
                "  for (int64_t i = 0; i < n; i++) h[i] = moec_store_f16(x[i]), b[i] = "
                "moec_store_bf16(x[i]);\n}\n");
  void *lib = emit_load(moec_buf_str(&b));
  moec_buf_fini(&b);
  return lib;
}

/* Distance of |got| from the exact value in units of the float nearest to it. */
static double distance(float got, double want) {
  if (isnan(want)) return isnan(got) ? 0 : HUGE_VAL;
  float near = (float)want;
  if (got == near) return 0;
  if (isinf(near) || isinf(got))
    return fabs(want) > 0x1.fffffdp127 && fabs((double)got) > 0x1.fffffdp127 ? 0 : HUGE_VAL;
  int e;
  frexp(want, &e);
  return fabs((double)got - want) / ldexp(1, e - 24 < -149 ? -149 : e - 24);
}

static double exact_of(const function *f, double x) { return f->exact ? f->exact(x) : 1 / sqrt(x); }

START_TEST(test_sweep) {
  void *lib = load_functions();
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    char name[32];
    sweep_fn sweep;
    double worst = 0;
    float at = 0, x[BLOCK], y[BLOCK];
    snprintf(name, sizeof name, "sweep_%s", functions[i].name);
    *(void **)&sweep = dlsym(lib, name);
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32;
         bits += UINT64_C(4093) * BLOCK) { /* all exponents and signs */
      for (uint32_t k = 0; k < BLOCK; k++) {
        uint32_t u = (uint32_t)(bits + 4093 * k);
        memcpy(&x[k], &u, sizeof u);
      }
      sweep(x, y, BLOCK);
      for (uint32_t k = 0; k < BLOCK; k++) {
        double d = distance(y[k], exact_of(&functions[i], (double)x[k]));
        if (d > worst) worst = d, at = x[k];
      }
    }
    if (getenv("MOEC_EMIT_SHOW"))
      fprintf(stderr, "%s: %.3f ulps at %a\n", functions[i].name, worst, (double)at);
    if (worst > functions[i].ulps)
      ck_abort_msg("%s: %.3f units at %a", functions[i].name, worst, (double)at);
  }
  dlclose(lib);
}
END_TEST

START_TEST(test_edges) {
  static const float edges[] = {
      0.0f,      -0.0f,           INFINITY,         -INFINITY, NAN,    0x1p-149f, -0x1p-149f,
      0x1p-126f, 0x1.fffffep127f, -0x1.fffffep127f, 1,         -1,     88.72f,    88.73f,
      -87.34f,   -103.97f,        -103.98f,         -104,      0.625f, -0.625f,   0.927734375f,
      -9.5f};
  enum { N = sizeof edges / sizeof *edges };
  void *lib = load_functions();
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    char name[32];
    sweep_fn sweep;
    float y[N];
    snprintf(name, sizeof name, "sweep_%s", functions[i].name);
    *(void **)&sweep = dlsym(lib, name);
    sweep(edges, y, N);
    for (size_t k = 0; k < N; k++) {
      double want = exact_of(&functions[i], (double)edges[k]);
      if (distance(y[k], want) > functions[i].ulps)
        ck_abort_msg("%s(%a): got %a, expected %a", functions[i].name, (double)edges[k],
                     (double)y[k], want);
      if (want == 0) ck_assert_int_eq(signbit(y[k]) != 0, signbit(want) != 0);
    }
  }
  dlclose(lib);
}
END_TEST

START_TEST(test_halves) {
  void *lib = load_functions();
  void (*halves)(const uint16_t *, uint16_t *, int64_t);
  void (*to_half)(const float *, uint16_t *, uint16_t *, int64_t);
  *(void **)&halves = dlsym(lib, "halves");
  *(void **)&to_half = dlsym(lib, "to_half");
  static uint16_t in[65536], out[65536];
  for (uint32_t i = 0; i < 65536; i++) in[i] = (uint16_t)i;
  halves(in, out, 65536);
  for (uint32_t i = 0; i < 65536; i++) {
    bool nan = (i & 0x7c00) == 0x7c00 && (i & 0x3ff);
    bool ok = nan ? (out[i] & 0x7c00) == 0x7c00 && (out[i] & 0x3ff) : out[i] == i;
    if (!ok) ck_abort_msg("f16 %04x became %04x", i, out[i]);
  }
  for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += UINT64_C(1021) * BLOCK) {
    float x[BLOCK];
    uint16_t h[BLOCK], b[BLOCK];
    for (uint32_t k = 0; k < BLOCK; k++) {
      uint32_t u = (uint32_t)(bits + 1021 * k);
      memcpy(&x[k], &u, sizeof u);
    }
    to_half(x, h, b, BLOCK);
    for (uint32_t k = 0; k < BLOCK; k++) {
      bool f16 = isnan(x[k]) ? (h[k] & 0x7fff) > 0x7c00 : h[k] == moec_f32_to_f16(x[k]);
      bool bf16 = isnan(x[k]) ? (b[k] & 0x7fff) > 0x7f80 : b[k] == moec_f32_to_bf16(x[k]);
      if (!f16 || !bf16) ck_abort_msg("%a: f16 %04x, bf16 %04x", (double)x[k], h[k], b[k]);
    }
  }
  dlclose(lib);
}
END_TEST

UNIT_MAIN("emit_math", test_sweep, test_edges, test_halves)
