/* Products of experts in bf16 on a GPU, those on matrix units and the plain ones, against the cpu's; with activations,
 * against the products alone. */
#define EMIT_CUDA
#include <math.h>

#include "codegen/embedded.h"
#include "codegen/emit.h"
#include "codegen/plan_build.h"
#include "tests/support/gpu.h"
#include "tests/unit/runtime_step.h"

#undef UNIT_BEFORE
#define UNIT_BEFORE \
  if (!gpu_possible()) return 77;

/* Activations: their kernels, the one of halves for rows of 12 elements, and what products do. */
static const char activations[] =
    "#define KERNEL(name, first, second) \\\n"
    "  MOEC_INLINE float name##_element(float x0, float x1) { return moec_max_f32(x0, 0.25f * x1) + 0.5f * x1; } \\\n"
    "  extern \"C\" __global__ void name(const __grid_constant__ moec_kernel_args args, int64_t n_rows) { \\\n"
    "    const uint16_t *x = (const uint16_t *)args.buf[0]; \\\n"
    "    MOEC_THREAD_TEAM \\\n"
    "    for (int64_t i = team; i < n_rows; i += n_teams) \\\n"
    "      ((uint16_t *)args.buf[1])[i] = moec_store_bf16(name##_element(first, second)); \\\n"
    "  } \\\n"
    "  MOEC_WG_ACTIVATION(moec_wgmma_dot_##name, MOEC_WG_DOT, FORM_##name, name##_element) \\\n"
    "  MOEC_WG_ACTIVATION(moec_wgmma_dot_t_##name, MOEC_WG_DOT_T, FORM_##name, name##_element)\n"
    "#define FORM_each MOEC_WG_EACH\n#define FORM_halves MOEC_WG_HALVES\n#define FORM_neighbours MOEC_WG_NEIGHBOURS\n"
    "#define AT(i) moec_load_bf16(x[i])\n"
    "KERNEL(each, AT(i), 0)\n"
    "KERNEL(halves, AT(i / 6 * 12 + i % 6), AT(i / 6 * 12 + i % 6 + 6))\n"
    "KERNEL(neighbours, AT(2 * i), AT(2 * i + 1))\n";
static const char *const names[MOEC_ACTIVATION_FORMS] = {"each", "halves", "neighbours"};

/* The kernels of bf16 products. */
static void compile(moec_buf *cubin) {
  moec_plan_tensor tensor = {.dtype = MOEC_BF16};
  uint32_t pool[4] = {0};
  moec_plan_step steps[] = {{.op = MOEC_STEP_MOE_GROUPED_DOT, .n_in = 3, .n_out = 1},
                            {.op = MOEC_STEP_MOE_GROUPED_OUTER, .n_in = 3, .n_out = 1}};
  moec_plan_tables t = {.tensors = &tensor, .pool = pool, .steps = steps, .n_steps = 2};
  moec_buf text = {0};
  moec_emit_cuda_prelude(&text);
  moec_emit_cuda_library(&text, &t);
  moec_emit_cuda_grouped(&text, &t, NULL);
  moec_embedded_write(&text, "grouped_activation.cu");
  moec_buf_puts(&text, activations);
  UNIT_OK(moec_nvrtc_cubin(moec_buf_str(&text), "sm_90a", cubin, NULL));
  moec_buf_fini(&text);
}

static moec_buf cubin;
static gpu held;
static unsigned seed = 1;

static uint32_t next(uint32_t limit) { return seed = seed * 1664525u + 1013904223u, (seed >> 8) % limit; }

/* As on the cpu, which sums in another order: results are sums of up to |depth| products of at most 4. */
static void same(one_step *s, int64_t depth, const char *what) {
  one_step cpu = *s, device = *s;
  size_t size;
  moec_model *m;
  moec_map object = {.data = (const uint8_t *)cubin.data, .size = cubin.size};
  UNIT_OK(step_run(&cpu, 2));
  setenv("MOEC_POISON", "1", 1);
  uint8_t *file = step_file_with(&device, "cuda:sm_90a", &object, &size);
  UNIT_OK(moec_open_memory(file, size, NULL, &m));
  UNIT_OK(step_forward(&device, m));
  moec_close(m);
  free(file);
  double off = (cpu.out[0].dtype == MOEC_BF16 ? 1.0 / 256 : 1e-6), most = 4 * sqrt((double)depth) + 4;
  for (int64_t i = 0; i < moec_tensor_numel(&cpu.out[0]); i++) {
    double g = step_at(&device.out[0], i), c = step_at(&cpu.out[0], i);
    if (!(fabs(g - c) <= off * (fabs(c) > most ? fabs(c) : most)))
      ck_abort_msg("%s: element %lld: got %.9g, expected %.9g", what, (long long)i, g, c);
  }
  step_fini(&cpu), step_fini(&device);
}

/* Results on the device; the caller's. */
static void on_device(one_step *s, const char *kernel, int64_t rows) {
  size_t size;
  moec_model *m;
  moec_map object = {.data = (const uint8_t *)cubin.data, .size = cubin.size};
  setenv("MOEC_POISON", "1", 1);
  uint8_t *file = step_file_naming(s, kernel, rows, "cuda:sm_90a", &object, &size);
  UNIT_OK(moec_open_memory(file, size, NULL, &m));
  UNIT_OK(step_forward(s, m));
  moec_close(m);
  free(file);
}

static void same_bits(const moec_tensor *got, const moec_tensor *want, const char *what) {
  const uint16_t *a = got->data, *b = want->data;
  for (int64_t i = 0; i < moec_tensor_numel(want); i++)
    if (a[i] != b[i]) ck_abort_msg("%s: element %lld: got 0x%x, expected 0x%x", what, (long long)i, a[i], b[i]);
}

/* What the kernels above compute. */
static moec_tensor activation_of(const moec_tensor *y, int form) {
  const int64_t n = y->dims[0], m = y->dims[1], dims[] = {n, form ? m / 2 : m};
  moec_tensor a;
  UNIT_OK(moec_tensor_init(&a, MOEC_BF16, 2, dims));
  for (int64_t i = 0; i < n * dims[1]; i++) {
    int64_t row = i / dims[1] * m, j = i % dims[1];
    bool halves = form == MOEC_ACTIVATION_HALVES, each = form == MOEC_ACTIVATION_EACH;
    float x0 = (float)step_at(y, row + (halves || each ? j : 2 * j));
    float x1 = each ? 0 : (float)step_at(y, row + (halves ? j + m / 2 : 2 * j + 1));
    moec_store_f64(MOEC_BF16, a.data, (size_t)i, (double)(fmaxf(x0, 0.25f * x1) + 0.5f * x1));
  }
  return a;
}

/* |s|: a product; with an activation, of which the product is a result or not, both have the same bits. */
static void check_activation(const one_step *s, int form, const char *text) {
  one_step alone = *s, with = *s;
  char what[192];
  on_device(&alone, NULL, 0);
  moec_tensor want = activation_of(&alone.out[0], form);
  with.n_out = with.n_ints = 2, with.ints[1] = form;
  for (int kept = 0; kept < 2; kept++) {
    snprintf(what, sizeof what, "%s, %s, product %s", text, names[form], kept ? "kept" : "gone");
    with.out[0] = kept ? s->out[0] : (moec_tensor){0};
    with.out[1] = step_tensor(MOEC_BF16, 2, want.dims);
    on_device(&with, names[form], moec_tensor_numel(&want));
    if (kept) same_bits(&with.out[0], &alone.out[0], what);
    same_bits(&with.out[1], &want, what);
    step_fini(&with);
  }
  moec_tensor_fini(&want);
  step_fini(&alone);
}

/* |how|: 0 dot with w [e, m, k], 1 with w [e, k, m], 2 outer. */
static void check(int how, const int32_t *counts, int64_t experts, int64_t k, int64_t m, moec_dtype y,
                  moec_dtype bias) {
  const int64_t ends = experts + 1, w_t[] = {experts, m, k}, w[] = {experts, k, m}, of_bias[] = {experts, m};
  moec_tensor offsets;
  UNIT_OK(moec_tensor_init(&offsets, MOEC_I32, 1, &ends));
  int32_t *o = offsets.data, n = 0;
  for (int64_t e = 0; e < experts; e++) o[e] = n, n += counts[e];
  o[experts] = n;
  const int64_t by_m[] = {n, m}, by_k[] = {n, k};
  moec_tensor a = step_random(MOEC_BF16, 2, how == 2 ? by_m : by_k, &seed), add = {0};
  moec_tensor b = how == 2 ? step_random(MOEC_BF16, 2, by_k, &seed)
                           : step_random(MOEC_BF16, 3, how == 0 ? w_t : w, &seed);
  if (bias != MOEC_DTYPE_NONE) add = step_random(bias, 2, of_bias, &seed);
  one_step s = {.op = how == 2 ? MOEC_STEP_MOE_GROUPED_OUTER : MOEC_STEP_MOE_GROUPED_DOT, .n_in = how == 2 ? 3 : 4,
                .n_out = 1, .n_ints = how == 2 ? 0 : 1, .in = {&a, &b, &offsets, add.data ? &add : NULL},
                .ints = {how == 0}};
  s.out[0] = how == 2 ? step_tensor(y, 3, w_t) : step_tensor(y, 2, by_m);
  char what[128];
  snprintf(what, sizeof what, "form %d, %lld experts, %d rows, k %lld, m %lld", how, (long long)experts, n,
           (long long)k, (long long)m);
  same(&s, how == 2 ? n : k, what);
  if (how < 2 && y == MOEC_BF16 && n) { /* one form each: a model is opened for all of them */
    int form = (int)((k / 8 + m / 8 + how + (add.data != NULL)) % MOEC_ACTIVATION_FORMS);
    bool whole = k % 8 == 0 && m % 16 == 0; /* else the plain kernels, whose one of halves has rows of 12 */
    if (form == MOEC_ACTIVATION_HALVES && !whole && m != 12) form = MOEC_ACTIVATION_EACH;
    check_activation(&s, form, what);
  }
  moec_tensor_fini(&a), moec_tensor_fini(&b), moec_tensor_fini(&offsets), moec_tensor_fini(&add);
}

static void check_all(const int32_t *counts, int64_t experts, int64_t k, int64_t m) {
  for (int how = 0; how < 3; how++) {
    check(how, counts, experts, k, m, MOEC_BF16, MOEC_DTYPE_NONE);
    check(how, counts, experts, k, m, MOEC_F32, how == 2 ? MOEC_DTYPE_NONE : MOEC_F32);
    if (how < 2) check(how, counts, experts, k, m, MOEC_BF16, MOEC_BF16);
  }
}

START_TEST(few_rows) {
  check_all((const int32_t[]){1}, 1, 8, 8);
  check_all((const int32_t[]){0, 1, 0}, 3, 64, 256);
  check_all((const int32_t[]){0, 0}, 2, 16, 24);
  check_all((const int32_t[]){16, 64, 0, 17, 63, 65}, 6, 136, 264);
}
END_TEST

/* Ends of tiles in every direction; empty experts. */
START_TEST(many_rows) {
  check_all((const int32_t[]){128}, 1, 64, 256);
  check_all((const int32_t[]){300, 0, 17, 5, 129, 64, 65, 0}, 8, 200, 520);
  check_all((const int32_t[]){0, 0, 2100, 0}, 4, 72, 264);
  check_all((const int32_t[]){700, 513, 897}, 3, 192, 328);
}
END_TEST

START_TEST(random_rows) {
  for (int round = 0; round < 6; round++) {
    int32_t counts[40];
    int64_t experts = 1 + next(40);
    for (int64_t e = 0; e < experts; e++) counts[e] = next(4) ? (int32_t)next(200) : 0;
    check_all(counts, experts, 8 * (1 + next(24)), 8 * (1 + next(40)));
  }
}
END_TEST

/* Rows that TMA cannot read: the plain kernels. */
START_TEST(odd_sizes) {
  check_all((const int32_t[]){30, 0, 70}, 3, 20, 36);
  check_all((const int32_t[]){30, 1, 70}, 3, 7, 64);
  check_all((const int32_t[]){30, 0, 70}, 3, 16, 12);
}
END_TEST

START_TEST(begins) {
  gpu_hold(&held);
  compile(&cubin);
}
END_TEST

START_TEST(ends) {
  moec_buf_fini(&cubin);
  gpu_let_go(&held);
}
END_TEST

UNIT_MAIN("grouped", begins, few_rows, many_rows, random_rows, odd_sizes, ends)
