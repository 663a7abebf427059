/* Tensors of more than 2^31 elements on a GPU: rows of experts, a pointwise kernel, a gather. Some rows of each are
 * compared, the first and the last among them. Needs 16 GiB of the device's memory. */
#include <math.h>

#include "codegen/emit.h"
#include "codegen/plan_build.h"
#include "tests/support/gpu.h"
#define EMIT_CUDA
#include "tests/unit/emit.h"

#undef UNIT_BEFORE
#define UNIT_BEFORE \
  if (!gpu_possible()) return 77;

enum { WIDTH = 2048, HALF = 768, ROWS = 1100000, LONG = 2800000, SAMPLES = 64, BLOCKS = 132 * 8 };

#define TABLE "%1 \"x\" : bf16[N, 2048], %2 \"i\" : i64[M]"
static const emit_case cases[] = {
    {"swiglu", "N=2800000", "768*N", "%1 \"x\" : bf16[N, 1536]", "%5 \"y\"",
     "%2 = slice(%1) {start = [0, 0], size = [N, 768], step = [1, 1]} : bf16[N, 768]\n"
     "%3 = slice(%1) {start = [0, 768], size = [N, 768], step = [1, 1]} : bf16[N, 768]\n"
     "%5 = swiglu(%2, %3) {alpha = 0x1p+0, beta = 0x0p+0, limit = 0x0p+0} : bf16[N, 768]\n", 0},
    {"gather", "N=1100000 M=1100000", "2048*M", TABLE, "%3 \"y\"",
     "%3 = gather(%1, %2) {axis = 0} : bf16[M, 2048]\n", 0},
};
enum { CASES = sizeof cases / sizeof *cases };

typedef struct state {
  gpu machine;
  emit_run runs[CASES];
} state;
static state on;

/* rows.cu and random.cu in bf16, and the kernels of the cases. */
static void open_kernels(void) {
  moec_plan_tensor tensor = {.dtype = MOEC_BF16};
  uint32_t pool[4] = {0};
  moec_plan_step steps[] = {{.op = MOEC_STEP_MOE_COMBINE, .n_in = 3, .n_out = 1},
                            {.op = MOEC_STEP_RANDOM, .n_in = 3, .n_out = 1}};
  moec_plan_tables t = {.tensors = &tensor, .pool = pool, .steps = steps, .n_steps = 2};
  moec_buf text = {0};
  moec_emit_cuda_prelude(&text);
  moec_emit_cuda_library(&text, &t);
  for (size_t i = 0; i < CASES; i++) {
    char symbol[32];
    emit_run *r = &on.runs[i];
    snprintf(symbol, sizeof symbol, "k%zu", i);
    UNIT_OK(emit_build(&cases[i], r));
    UNIT_OK(moec_emit_cuda_kernel(&text, r->m->arena, r->k, symbol, &r->launch));
  }
  gpu_open(&on.machine, moec_buf_str(&text));
  moec_buf_fini(&text);
}

static void *room(int64_t elements, size_t size) {
  moec_cu_address at;
  gpu_check(&on.machine, on.machine.cu.alloc(&at, (size_t)elements * size), "cuMemAlloc");
  return (void *)(uintptr_t)at;
}

static void drop(void *p) { gpu_check(&on.machine, on.machine.cu.free((moec_cu_address)(uintptr_t)p), "cuMemFree"); }

static void copy(void *to, const void *from, int64_t elements, size_t size, bool to_device) {
  const gpu *g = &on.machine;
  size_t bytes = (size_t)elements * size;
  gpu_check(g, to_device ? g->cu.write((moec_cu_address)(uintptr_t)to, from, bytes, NULL)
                         : g->cu.read(to, (moec_cu_address)(uintptr_t)from, bytes, NULL), "a copy");
  gpu_check(g, g->cu.stream_wait(NULL), "a copy");
}

static void *random_numbers(int64_t n, int64_t seed) {
  void *x = room(n, 2);
  int32_t kind = 1;
  void *arguments[] = {&x, &n, &kind, &seed};
  gpu_launch(&on.machine, "moec_random_bf16", BLOCKS, 256, arguments);
  return x;
}

/* Row |r| of rows of |width|, as numbers. */
static void row(const void *x, int64_t r, int64_t width, double *out) {
  uint16_t bits[2 * WIDTH];
  copy(bits, (const uint16_t *)x + r * width, width, 2, false);
  for (int64_t i = 0; i < width; i++) out[i] = moec_load_f64(MOEC_BF16, bits, (size_t)i);
}

/* Sample s of n rows: from the first to the last. */
static int64_t sample(int64_t s, int64_t n) { return s * (n - 1) / (SAMPLES - 1); }

static void near(const char *what, int64_t r, int64_t i, double got, double want, double tolerance) {
  if (!(fabs(got - want) <= tolerance * fmax(1, fabs(want))))
    ck_abort_msg("%s: row %lld, element %lld: got %.9g, expected %.9g", what, (long long)r, (long long)i, got, want);
}

/* Two slots a token; row r is of assignment ROWS - 1 - r. */
START_TEST(rows_go_and_come_back) {
  open_kernels();
  enum { K = 2, TOKENS = ROWS / K };
  int64_t n = ROWS, k = K, tokens = TOKENS, width = WIDTH;
  int32_t *order = malloc(ROWS * sizeof *order), w_dtype = MOEC_F32, y_dtype = MOEC_BF16, fault = 0;
  float *weights = malloc(ROWS * sizeof *weights);
  for (int32_t r = 0; r < ROWS; r++) order[r] = ROWS - 1 - r, weights[r] = (float)(r % 64 + 1) / 64;
  void *rows = random_numbers(n * width, 1), *index = room(n, 4), *w = room(n, 4), *y = room(tokens * width, 2);
  void *fault_at = room(1, 4), *none = NULL;
  copy(index, order, n, 4, true), copy(w, weights, n, 4, true), copy(fault_at, &fault, 1, 4, true);
  void *combine[] = {&rows, &index, &w, &w_dtype, &none, &y, &y_dtype, &tokens, &k, &width, &fault_at};
  gpu_launch(&on.machine, "moec_combine_bf16", BLOCKS, 256, combine);
  for (int64_t s = 0; s < SAMPLES; s++) {
    double a[WIDTH], b[WIDTH], got[WIDTH];
    const int64_t t = sample(s, TOKENS);
    row(rows, ROWS - 1 - 2 * t, width, a), row(rows, ROWS - 2 - 2 * t, width, b), row(y, t, width, got);
    for (int i = 0; i < WIDTH; i++)
      near("combine", t, i, got[i], a[i] * (double)weights[2 * t] + b[i] * (double)weights[2 * t + 1], 1.0 / 128);
  }
  void *dispatch[] = {&y, &index, &none, &w_dtype, &rows, &n, &k, &width, &fault_at};
  gpu_launch(&on.machine, "moec_dispatch_bf16", BLOCKS, 256, dispatch);
  for (int64_t s = 0; s < SAMPLES; s++) {
    double got[WIDTH], want[WIDTH];
    const int64_t r = sample(s, ROWS);
    row(rows, r, width, got), row(y, (ROWS - 1 - r) / K, width, want);
    for (int i = 0; i < WIDTH; i++) near("dispatch", r, i, got[i], want[i], 0);
  }
  copy(&fault, fault_at, 1, 4, false);
  ck_assert_int_eq(fault, 0);
  drop(rows), drop(index), drop(w), drop(y), drop(fault_at);
  free(order), free(weights);
}
END_TEST

/* Kernel |i| of the cases on up to three buffers. */
static void run_case(size_t i, void *const *buffers) {
  emit_run *r = &on.runs[i];
  int32_t fault = 0;
  void *table = room(3, sizeof *buffers), *sizes = room(2, 8), *fault_at = room(1, 4);
  copy(table, buffers, 3, sizeof *buffers, true), copy(sizes, r->sizes, 2, 8, true), copy(fault_at, &fault, 1, 4, true);
  moec_kernel_args args = {table, sizes, NULL, fault_at};
  int64_t rows = emit_eval(r->m, r->launch.rows, r->sizes);
  ck_assert_int_eq(emit_eval(r->m, r->launch.scratch, r->sizes), 0);
  ck_assert_uint_eq(r->launch.shared, 0);
  char symbol[32];
  snprintf(symbol, sizeof symbol, "k%zu", i);
  void *arguments[] = {&args, &rows};
  gpu_launch(&on.machine, symbol, BLOCKS, r->launch.threads, arguments);
  copy(&fault, fault_at, 1, 4, false);
  ck_assert_int_eq(fault, 0);
  drop(table), drop(sizes), drop(fault_at);
}

START_TEST(pointwise) {
  void *x = random_numbers((int64_t)LONG * 2 * HALF, 2), *y = room((int64_t)LONG * HALF, 2);
  run_case(0, (void *[]){x, y, NULL});
  for (int64_t s = 0; s < SAMPLES; s++) {
    double in[2 * HALF], got[HALF];
    const int64_t r = sample(s, LONG);
    row(x, r, 2 * HALF, in), row(y, r, HALF, got);
    for (int i = 0; i < HALF; i++) near("swiglu", r, i, got[i], in[i] / (1 + exp(-in[i])) * in[HALF + i], 1.0 / 64);
  }
  drop(x), drop(y);
}
END_TEST

START_TEST(gathered) {
  int64_t *order = malloc(ROWS * sizeof *order);
  for (int64_t r = 0; r < ROWS; r++) order[r] = ROWS - 1 - r;
  void *x = random_numbers((int64_t)ROWS * WIDTH, 3), *i = room(ROWS, 8), *y = room((int64_t)ROWS * WIDTH, 2);
  copy(i, order, ROWS, 8, true);
  run_case(1, (void *[]){x, i, y});
  for (int64_t s = 0; s < SAMPLES; s++) {
    double got[WIDTH], want[WIDTH];
    const int64_t r = sample(s, ROWS);
    row(y, r, WIDTH, got), row(x, ROWS - 1 - r, WIDTH, want);
    for (int c = 0; c < WIDTH; c++) near("gather", r, c, got[c], want[c], 0);
  }
  drop(x), drop(i), drop(y);
  free(order);
}
END_TEST

START_TEST(kernels_close) {
  for (size_t i = 0; i < CASES; i++) moec_module_destroy(on.runs[i].m);
  gpu_close(&on.machine);
}
END_TEST

UNIT_MAIN("gpu_large", rows_go_and_come_back, pointwise, gathered, kernels_close)
