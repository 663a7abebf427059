/* The CUDA device of the runtime on the driver of tests/support/fake_cuda.h: what it launches, copies, allocates and
 * waits for. Kernels are the C functions that the CPU runs, so results must be those of the CPU. */
#include "include/cuda_abi.h"
#include "runtime/model.h"
#include "tests/support/fake_device.h"
#include "tests/unit/train_sample.h"

#include <math.h>
#include <unistd.h>

#include "tests/unit/plan_sample.h"
#include "tests/unit/runtime_step.h"

static train_setup files;

static moec_model *open_cuda(uint8_t **file) { return train_open(&files, fake_target(train_build()), 2, file); }

static moec_status *try_open(plan_builder *b, int describe, moec_model **m, uint8_t **file) {
  size_t size;
  moec_options o = {.weights_dir = files.dir, .describe = describe};
  *file = pb_finish(b, NULL, &files.object, &size);
  free(b);
  return moec_open_memory(*file, size, &o, m);
}

/* ---- without a driver -------------------------------------------------------------------- */

START_TEST(missing) {
  uint8_t *file;
  moec_model *m;
  if (fake) return; /* there is one now */
  void *real = dlopen("libcuda.so.1", RTLD_NOW);
  if (!real) {
    UNIT_FAILS(try_open(fake_target(train_build()), 0, &m, &file), MOEC_UNSUPPORTED,
               "needs a CUDA device: libcuda.so.1 not found");
    free(file);
  } else {
    dlclose(real);
  }
  UNIT_OK(try_open(fake_target(train_build()), 1, &m, &file));
  moec_counters c;
  UNIT_OK(moec_bind_sizes(m, 1, (const char *[]){"n"}, (int64_t[]){16}));
  UNIT_OK(moec_place(m, MOEC_TRAIN));
  moec_counters_get(m, &c);
  UNIT_TRUE(c.program_bytes[MOEC_TRAIN] >= 3 * 16 * sizeof(float) && c.kernels_per_step == 1);
  train_io t;
  train_fill(&t, 1);
  train_give(m, "x", t.x, 16);
  UNIT_FAILS(moec_forward(m), MOEC_UNSUPPORTED, "opened to be run");
  moec_close(m);
  free(file);
}
END_TEST

START_TEST(refused) {
  uint8_t *file;
  moec_model *m;
  fake_begin(NULL);
  fake->devices = 0;
  UNIT_FAILS(try_open(fake_target(train_build()), 0, &m, &file), MOEC_UNSUPPORTED,
             "needs a CUDA device: the driver has none");
  free(file);
  fake_begin(NULL);
  fake->fail_allocs = 1;
  UNIT_FAILS(try_open(fake_target(train_build()), 0, &m, &file), MOEC_OUT_OF_MEMORY, "no memory for");
  free(file);
  plan_builder *b = fake_target(train_build());
  b->kernels[0].threads = 48;
  UNIT_FAILS(try_open(b, 0, &m, &file), MOEC_INVALID_MODEL, "kernel twice: expected a multiple of 32 threads");
  free(file);
  b = fake_target(train_build());
  b->kernels[1].name = pb_str(b, "absent");
  UNIT_FAILS(try_open(b, 0, &m, &file), MOEC_DEVICE, "expected a kernel named 'absent'");
  free(file);
  UNIT_TRUE(fake->live == 0);
}
END_TEST

/* ---- programs ---------------------------------------------------------------------------- */

static const float *output(moec_model *m, const char *name) {
  uint32_t i;
  moec_view v;
  UNIT_OK(moec_find(m, MOEC_OUTPUTS, name, &i));
  UNIT_OK(moec_output(m, i, &v));
  return v.data;
}

START_TEST(forward) {
  uint8_t *files_of[2];
  train_io t;
  train_fill(&t, 3);
  fake_begin(fake_run);
  moec_model *gpu = open_cuda(&files_of[0]), *cpu = train_open(&files, train_build(), 2, &files_of[1]);
  UNIT_TRUE(fake->n_launches == 1 && !strcmp(fake->launches[0].name, "twice")); /* load */
  for (int64_t n = 16; n <= 32; n += 16) {
    train_give(gpu, "x", t.x, n), train_give(cpu, "x", t.x, n);
    UNIT_OK(moec_forward(gpu));
    UNIT_OK(moec_forward(cpu));
    UNIT_TRUE(!memcmp(output(gpu, "y"), output(cpu, "y"), (size_t)n * sizeof(float)));
  }
  /* Again: the input goes in; nothing is allocated; one wait, for the faults; results are read once. */
  fake_cuda before = *fake;
  moec_counters c;
  UNIT_OK(moec_forward(gpu));
  UNIT_TRUE(fake->writes == before.writes + 1 && fake->n_launches == before.n_launches + 1);
  UNIT_TRUE(fake->allocs == before.allocs && fake->waits == before.waits + 1 && fake->reads == before.reads + 1);
  (void)output(gpu, "y"), (void)output(gpu, "y");
  UNIT_TRUE(fake->reads == before.reads + 2);
  moec_counters_get(gpu, &c);
  UNIT_TRUE(c.allocations_after_first == 0 && c.device_bytes > 0 && c.device_peak_bytes >= c.device_bytes);
  moec_close(gpu), moec_close(cpu);
  free(files_of[0]), free(files_of[1]);
  UNIT_TRUE(fake->live == 0);
}
END_TEST

/* Of any size, in page-locked memory that the model keeps: nothing waits for them. */
START_TEST(large_inputs) {
  enum { N = 1 << 16 };
  static float x[2 * N];
  const int64_t n = N;
  moec_tensor in = {.dtype = MOEC_F32, .rank = 1, .dims = {n}, .data = x};
  one_step s = {.op = MOEC_STEP_COPY, .n_in = 1, .n_out = 1, .in = {&in}, .out = {step_tensor(MOEC_F32, 1, &n)}};
  size_t size;
  moec_model *m;
  moec_view v;
  fake_begin(NULL);
  uint8_t *file = step_file_for(&s, "cuda:sm_90a", &size);
  for (int i = 0; i < 2 * N; i++) x[i] = (float)i;
  UNIT_OK(moec_open_memory(file, size, NULL, &m));
  for (int i = 0; i < 3; i++) {
    const moec_view given = {x + i * N / 2, MOEC_DTYPE_F32, 1, {n}};
    fake_cuda before = *fake;
    UNIT_OK(moec_input_borrow(m, 0, &given));
    if (i == 2) UNIT_OK(moec_rt_copies_inputs(m, MOEC_AT_STEP, m->input_data)); /* a step that went no further */
    UNIT_OK(moec_forward(m));
    UNIT_TRUE(fake->waits == before.waits + 1 + (i == 2)); /* its end */
    UNIT_TRUE(!i || fake->allocs == before.allocs);
    UNIT_OK(moec_output(m, 0, &v));
    UNIT_TRUE(!memcmp(v.data, given.data, N * sizeof(float)));
  }
  moec_close(m);
  UNIT_OK(moec_open_memory(file, size, NULL, &m));
  UNIT_OK(moec_input_borrow(m, 0, &(moec_view){x, MOEC_DTYPE_F32, 1, {n}}));
  UNIT_OK(moec_bind_shapes(m, &(moec_view){x, MOEC_DTYPE_F32, 1, {n}}));
  fake->fail_allocs = 100;
  UNIT_FAILS(moec_forward(m), MOEC_OUT_OF_MEMORY, "no memory for");
  fake->fail_allocs = 0;
  UNIT_OK(moec_forward(m));
  moec_close(m);
  free(file);
  UNIT_TRUE(fake->live == 0);
}
END_TEST

START_TEST(faults) {
  uint8_t *file;
  train_io t;
  fake_begin(fake_run);
  moec_model *m = open_cuda(&file);
  train_fill(&t, 1);
  train_give(m, "x", t.x, 8), train_give(m, "labels", t.other, 8);
  t.other[3] = 2e6f;
  UNIT_FAILS(moec_loss_and_gradients(m, 0, NULL), MOEC_INVALID_ARGUMENT, "node \"the_node\": an index is out of range");
  fake->fail_launch = 3; /* a step behind the one that complains: nothing of it is left for the next run */
  UNIT_FAILS(moec_loss_and_gradients(m, 0, NULL), MOEC_OUT_OF_MEMORY, "cuLaunchKernel");
  t.other[3] = 0;
  UNIT_OK(moec_loss_and_gradients(m, 0, NULL));
  moec_close(m);
  free(file);
}
END_TEST

START_TEST(poisoned) {
  uint8_t *file;
  train_io t;
  fake_begin(fake_run);
  setenv("MOEC_POISON", "1", 1);
  moec_model *m = open_cuda(&file);
  unsetenv("MOEC_POISON");
  train_fill(&t, 1);
  train_give(m, "x", t.x, 8);
  fake->kernel = NULL; /* nothing is computed: the poison stays */
  uint64_t fills = fake->fills;
  UNIT_OK(moec_forward(m));
  UNIT_TRUE(fake->fills == fills + 2); /* the arena, and the result of the step */
  UNIT_TRUE(isnan(output(m, "y")[0]) && isnan(output(m, "y")[7]));
  moec_close(m);
  free(file);
}
END_TEST

static void same_gradients(moec_model *a, moec_model *b) {
  for (uint32_t i = 0; i < moec_count(a, MOEC_PARAMETERS); i++) {
    moec_description d;
    moec_view x, y;
    UNIT_OK(moec_describe(a, MOEC_PARAMETERS, i, &d));
    if (!d.has_gradient) continue;
    UNIT_OK(moec_gradient(a, i, &x));
    UNIT_OK(moec_gradient(b, i, &y));
    UNIT_TRUE(!memcmp(x.data, y.data, 4 * sizeof(float)));
  }
}

/* Parts of a batch, clipping, updates and what they make stale: as on the CPU to the last bit. */
START_TEST(training) {
  uint8_t *files_of[2];
  train_io t[2];
  fake_begin(fake_run);
  moec_model *m[2] = {open_cuda(&files_of[0]), train_open(&files, train_build(), 2, &files_of[1])};
  moec_optimizer o;
  moec_optimizer_defaults(MOEC_ADAMW, &o);
  for (int step = 0; step < 4; step++) {
    double loss[2], norm[2];
    for (int part = 0; part < 2; part++) {
      train_fill(&t[part], step * 2 + part);
      for (int k = 0; k < 2; k++) {
        train_give(m[k], "x", t[part].x, 16), train_give(m[k], "labels", t[part].other, 16);
        UNIT_OK(moec_loss_and_gradients(m[k], step % 2, &loss[k]));
      }
      UNIT_TRUE(loss[0] == loss[1]);
      if (step != 2) same_gradients(m[0], m[1]); /* step 2: they stay on the device until the update */
    }
    for (int k = 0; k < 2; k++) {
      UNIT_OK(moec_optimizer_set(m[k], &o));
      if (step == 3) UNIT_OK(moec_clip_gradients(m[k], 0.5, &norm[k]));
      UNIT_OK(moec_optimizer_step(m[k]));
    }
    if (step == 3) UNIT_TRUE(norm[0] == norm[1]);
    UNIT_TRUE(!memcmp(train_parameter(m[0], "w"), train_parameter(m[1], "w"), sizeof train_w));
  }
  for (int k = 0; k < 2; k++) UNIT_OK(moec_forward(m[k]));
  UNIT_TRUE(!memcmp(output(m[0], "y"), output(m[1], "y"), 16 * sizeof(float)));
  for (int k = 0; k < 2; k++) moec_close(m[k]), free(files_of[k]);
  UNIT_TRUE(fake->live == 0);
}
END_TEST

/* Without being asked for, gradients don't leave the device. */
START_TEST(lazy) {
  uint8_t *file;
  train_io t;
  fake_begin(fake_run);
  moec_model *m = open_cuda(&file);
  train_fill(&t, 1);
  train_give(m, "x", t.x, 8), train_give(m, "labels", t.other, 8);
  UNIT_OK(moec_loss_and_gradients(m, 0, NULL));
  fake_cuda before = *fake;
  UNIT_OK(moec_loss_and_gradients(m, 0, NULL));
  UNIT_TRUE(fake->reads == before.reads + 1 && fake->waits == before.waits + 1); /* the faults */
  UNIT_TRUE(fake->allocs == before.allocs && fake->writes == before.writes + 1);
  moec_close(m);
  free(file);
}
END_TEST

/* Whole steps of training wait for nothing but the ends of their parts, copy nothing back but what says that no index
 * was out of range, and allocate nothing after the first. */
START_TEST(updates) {
  uint8_t *file;
  train_io t;
  moec_optimizer o;
  moec_counters c;
  fake_begin(fake_run);
  moec_model *m = open_cuda(&file);
  moec_optimizer_defaults(MOEC_ADAMW, &o);
  UNIT_OK(moec_optimizer_set(m, &o));
  train_fill(&t, 1);
  train_give(m, "x", t.x, 8), train_give(m, "labels", t.other, 8);
  uint64_t planned = 0;
  for (int step = 0; step < 3; step++) {
    fake_cuda before = *fake;
    UNIT_OK(moec_loss_and_gradients(m, 0, NULL));
    UNIT_OK(moec_loss_and_gradients(m, 1, NULL));
    UNIT_OK(moec_scale_gradients(m, 0.5));
    UNIT_OK(moec_clip_gradients(m, 0.1, NULL));
    UNIT_OK(moec_optimizer_step(m));
    moec_counters_get(m, &c);
    if (!step) planned = c.planned_update_bytes;
    UNIT_TRUE(c.optimizer_bytes == planned && c.planned_update_bytes == planned);
    if (!step) continue;
    UNIT_TRUE(fake->waits == before.waits + 3 && fake->reads == before.reads + 3); /* was the norm before finite? */
    UNIT_TRUE(fake->allocs == before.allocs);
  }
  moec_counters_get(m, &c);
  ck_assert_uint_eq(c.device_peak_bytes,
                    c.planned_bytes[MOEC_TRAIN] + c.planned_accumulate_bytes + c.planned_update_bytes);
  UNIT_TRUE(c.updates == 3 && c.gradient_bytes > 0 && c.optimizer_bytes >= 2 * 8 * sizeof(float));
  moec_close(m);
  free(file);
}
END_TEST

/* A norm that is not finite, and that nobody asked for: no update, and an error as soon as something waits anyway. */
START_TEST(wild) {
  uint8_t *file;
  train_io t;
  moec_optimizer o;
  fake_begin(fake_run);
  moec_model *m = open_cuda(&file);
  moec_optimizer_defaults(MOEC_SGD, &o);
  UNIT_OK(moec_optimizer_set(m, &o));
  train_fill(&t, 1);
  train_give(m, "x", t.x, 8), train_give(m, "labels", t.other, 8);
  t.x[3] = INFINITY;
  UNIT_OK(moec_loss_and_gradients(m, 0, NULL));
  UNIT_OK(moec_clip_gradients(m, 1, NULL));
  UNIT_OK(moec_optimizer_step(m));
  UNIT_TRUE(!memcmp(train_parameter(m, "w"), train_w, sizeof train_w));
  t.x[3] = 0;
  UNIT_FAILS(moec_loss_and_gradients(m, 0, NULL), MOEC_INVALID_ARGUMENT, "expected a finite norm when they were");
  UNIT_OK(moec_loss_and_gradients(m, 0, NULL));
  UNIT_OK(moec_clip_gradients(m, 1, NULL));
  UNIT_OK(moec_optimizer_step(m));
  UNIT_TRUE(memcmp(train_parameter(m, "w"), train_w, sizeof train_w));
  UNIT_OK(moec_loss_and_gradients(m, 0, NULL));
  moec_close(m);
  free(file);
}
END_TEST

/* ---- library steps ----------------------------------------------------------------------- */

/* A product by the fake library and on the CPU; all sums are exact. */
static void same_product(one_step *s, uint64_t calls, uint64_t batch) {
  size_t size;
  one_step cpu = *s, gpu = *s;
  moec_model *m;
  UNIT_OK(step_run(&cpu, 1));
  fake_begin(NULL);
  uint8_t *file = step_file_for(&gpu, "cuda:sm_90a", &size);
  UNIT_OK(moec_open_memory(file, size, NULL, &m));
  UNIT_OK(step_forward(&gpu, m));
  moec_close(m);
  free(file);
  UNIT_TRUE(fake->gemms == calls && fake->gemm_batch == batch && fake->live == 0);
  UNIT_TRUE(!memcmp(cpu.out[0].data, gpu.out[0].data, moec_tensor_bytes(&cpu.out[0])));
  step_fini(&cpu), step_fini(&gpu);
}

START_TEST(products) {
  enum { M = 3, N = 5, K = 4 };
  unsigned seed = 1;
  for (int how = 0; how < 16; how++) { /* both orders of both operands, f32 and f64, with and without an addend */
    moec_dtype type = how & 4 ? MOEC_F64 : MOEC_F32;
    const int64_t flat_a[] = {2, M * K}, flat_b[] = {2, K * N}, y[] = {2, M, N};
    moec_tensor a = step_random(type, 2, flat_a, &seed), b = step_random(type, 2, flat_b, &seed);
    moec_tensor c = step_random(type, 3, y, &seed);
    one_step s = {MOEC_STEP_GEMM, 3, 1, 11, {&a, &b, how & 8 ? &c : NULL}, {step_tensor(type, 3, y)},
                  {1, M, N, K, how & 1 ? 1 : K, how & 1 ? M : 1, how & 2 ? 1 : N, how & 2 ? K : 1, 2, M * K, K * N},
                  true};
    same_product(&s, 1, 2);
    moec_tensor_fini(&a), moec_tensor_fini(&b), moec_tensor_fini(&c);
  }
  /* a [2, 3, M, K], b [3, K, N] for each of 2: axes that are not one; then [2, 3] that are, a row and a column. */
  const int64_t many_a[] = {6 * M * K}, many_b[] = {6 * K * N}, y[] = {2, 3, M, N}, row[] = {6, 1, 1};
  moec_tensor a = step_random(MOEC_F32, 1, many_a, &seed), b = step_random(MOEC_F32, 1, many_b, &seed);
  one_step apart = {MOEC_STEP_GEMM, 2, 1, 14, {&a, &b}, {step_tensor(MOEC_F32, 4, y)},
                    {2, M, N, K, K, 1, N, 1, 2, 3 * M * K, 0, 3, M * K, K * N}, true};
  same_product(&apart, 2, 6);
  one_step whole = {MOEC_STEP_GEMM, 2, 1, 14, {&a, &b}, {step_tensor(MOEC_F32, 4, y)},
                    {2, M, N, K, K, 1, N, 1, 2, 3 * M * K, 3 * K * N, 3, M * K, K * N}, true};
  same_product(&whole, 1, 6);
  one_step dot = {MOEC_STEP_GEMM, 2, 1, 11, {&a, &b}, {step_tensor(MOEC_F32, 3, row)},
                  {1, 1, 1, K, 1, 3, 2, 1, 6, K, N}, true};
  same_product(&dot, 1, 6);
  moec_tensor_fini(&a), moec_tensor_fini(&b);
  const int64_t none[] = {M, 0}, also[] = {0, N}, zeros[] = {M, N};
  a = step_tensor(MOEC_F32, 2, none), b = step_tensor(MOEC_F32, 2, also);
  one_step empty = {MOEC_STEP_GEMM, 2, 1, 8, {&a, &b}, {step_tensor(MOEC_F32, 2, zeros)},
                    {0, M, N, 0, 1, 1, N, 1}, true};
  same_product(&empty, 0, 0);
}
END_TEST

/* The kernel of linear_cross_entropy, for f32. */
static void run_loss(const char *name, const fake_launch *l, void **parameters) {
  float *x = *(float **)parameters[0], *nll = *(float **)parameters[3];
  const int64_t *labels = *(int64_t **)parameters[1], *n[4];
  const float *scale = *(float **)parameters[2];
  for (int i = 0; i < 4; i++) n[i] = parameters[4 + i];
  UNIT_TRUE(!strcmp(name, "moec_loss_f32") && l->blocks == *n[0] && l->threads == 1024);
  for (int64_t r = 0; r < *n[0]; r++, x += *n[2]) {
    double sum = 0;
    for (int64_t i = 0; i < *n[1]; i++) sum += exp((double)x[i]);
    bool counts = labels[r] != *n[3];
    nll[r] = counts ? (float)(log(sum) - (double)x[labels[r]]) : 0;
    for (int64_t i = 0; i < *n[1]; i++)
      x[i] = counts ? scale[r] * (float)(exp((double)x[i]) / sum - (i == labels[r])) : 0;
  }
}

/* A loss in chunks: three products and a kernel for each; dw sums up. */
START_TEST(chunks) {
  enum { TOKENS = 7, HIDDEN = 3, WORDS = 9, CHUNK = 3, CHUNKS = 3 };
  unsigned seed = 3;
  size_t size;
  moec_model *m;
  for (int transposed = 0; transposed < 2; transposed++) {
    const int64_t x_dims[] = {TOKENS, HIDDEN}, room[] = {CHUNK, 12};
    const int64_t w_dims[] = {transposed ? WORDS : HIDDEN, transposed ? HIDDEN : WORDS};
    moec_tensor x = step_random(MOEC_F32, 2, x_dims, &seed), w = step_random(MOEC_F32, 2, w_dims, &seed), labels;
    moec_tensor scale = step_random(MOEC_F32, 1, x_dims, &seed);
    UNIT_OK(moec_tensor_init(&labels, MOEC_I64, 1, x_dims));
    for (int64_t t = 0; t < TOKENS; t++) ((int64_t *)labels.data)[t] = t == 4 ? -100 : t * 5 % WORDS;
    one_step cpu = {MOEC_STEP_LINEAR_CROSS_ENTROPY, 4, 4, 2, {&x, &w, &labels, &scale},
                    {step_tensor(MOEC_F32, 1, x_dims), step_tensor(MOEC_F32, 2, x_dims),
                     step_tensor(MOEC_F32, 2, w_dims), step_tensor(MOEC_F32, 2, room)},
                    {transposed, -100}, false}, gpu = cpu;
    UNIT_OK(step_run(&cpu, 1));
    fake_begin(run_loss);
    uint8_t *file = step_file_for(&gpu, "cuda:sm_90a", &size);
    UNIT_OK(moec_open_memory(file, size, NULL, &m));
    UNIT_OK(step_forward(&gpu, m));
    moec_close(m);
    free(file);
    UNIT_TRUE(fake->gemms == 3 * CHUNKS && fake->n_launches == CHUNKS && fake->live == 0);
    for (int r = 0; r < 3; r++)
      for (int64_t i = 0; i < moec_tensor_numel(&cpu.out[r]); i++)
        UNIT_TRUE(fabs(step_at(&cpu.out[r], i) - step_at(&gpu.out[r], i)) <= 1e-5);
    step_fini(&cpu), step_fini(&gpu);
    moec_tensor_fini(&x), moec_tensor_fini(&w), moec_tensor_fini(&labels), moec_tensor_fini(&scale);
  }
}
END_TEST

START_TEST(integers) {
  const int64_t dims[] = {2, 2};
  unsigned seed = 1;
  size_t size;
  moec_model *m;
  moec_tensor a = step_random(MOEC_I64, 2, dims, &seed);
  one_step s = {MOEC_STEP_GEMM, 2, 1, 8, {&a, &a}, {step_tensor(MOEC_I64, 2, dims)}, {0, 2, 2, 2, 2, 1, 2, 1}, true};
  fake_begin(NULL);
  uint8_t *file = step_file_for(&s, "cuda:sm_90a", &size);
  UNIT_OK(moec_open_memory(file, size, NULL, &m));
  UNIT_FAILS(step_forward(&s, m), MOEC_UNSUPPORTED, "a CUDA device multiplies matrices of floats, got i64");
  moec_close(m);
  free(file);
  moec_tensor_fini(&a);
}
END_TEST

/* Every library step of a plan is launched by its name, with as many blocks as its work. */
START_TEST(library) {
  static const struct {
    const char *name;
    unsigned blocks, threads;
  } want[] = {
      {"moec_cumsum_f32", 1, 128},       {"moec_topk_f32", 2, 128},        {"moec_topk_f32", 2, 128},
      {"moec_plan_fill", 1, 1024},
      {"moec_dispatch_f32", 2, 256},     {"moec_grouped_dot_f32", 5, 256}, {"moec_dispatch_f32", 2, 256},
      {"moec_combine_f32", 1, 256},      {"moec_dispatch_f32", 2, 256},    {"moec_grouped_outer_f32", 4, 256},
      {"moec_group_sum_f32", 4, 256},    {"moec_random_f32", 1, 256},      {"moec_conv_f32", 1, 256},
      {"moec_random_f32", 1, 256},       {"moec_scatter_elements_f32", 1, 128}, {"moec_random_f32", 1, 256},
      {"moec_order_chunks", 1, 512},     {"moec_scatter_nd_f32", 1, 256},
  };
  enum { N = sizeof want / sizeof *want };
  size_t size;
  moec_model *m;
  float x[64] = {0};
  int64_t ids[8] = {0};
  moec_view views[] = {{x, MOEC_DTYPE_F32, 2, {8, 8}}, {ids, MOEC_DTYPE_I64, 2, {2, 4}}};
  fake_begin(NULL);
  plan_builder *b = fake_target(sample_build());
  moec_map cubin = {.data = (const uint8_t *)"cubin", .size = 5};
  uint8_t *file = pb_finish(b, NULL, &cubin, &size);
  free(b);
  UNIT_OK(moec_open_memory(file, size, NULL, &m));
  for (uint32_t i = 0; i < 2; i++) UNIT_OK(moec_input_borrow(m, i, &views[i]));
  UNIT_OK(moec_forward(m));
  ck_assert_uint_eq(fake->n_launches, N);
  for (int i = 0; i < N; i++) {
    ck_assert_str_eq(fake->launches[i].name, want[i].name);
    ck_assert_uint_eq(fake->launches[i].blocks, want[i].blocks);
    ck_assert_uint_eq(fake->launches[i].threads, want[i].threads);
  }
  ck_assert_uint_eq(fake->gemms, 1);
  moec_layer_routes r;
  UNIT_OK(moec_route(m, 0, &r));
  UNIT_TRUE(r.indices.data && r.offsets.data && r.indices.dims[0] == 8);
  const int64_t forced[16] = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
  const moec_view v = {(void *)(uintptr_t)forced, MOEC_DTYPE_I64, 2, {8, 2}};
  UNIT_OK(moec_force_routes(m, 0, &v));
  UNIT_OK(moec_forward(m));
  UNIT_TRUE(fake->n_launches == 2 * N - 2); /* neither bind nor the choice */
  UNIT_OK(moec_route(m, 0, &r));
  UNIT_TRUE(!memcmp(r.indices.data, forced, sizeof forced));
  moec_close(m);
  free(file);
  UNIT_TRUE(fake->live == 0);
}
END_TEST

static moec_tensor zeros(moec_dtype t, uint32_t rank, const int64_t *dims) {
  moec_tensor x;
  UNIT_OK(moec_tensor_init(&x, t, rank, dims));
  memset(x.data, 0, moec_tensor_bytes(&x));
  return x;
}

/* What product of 2 experts with n rows is launched, and for how many operands TMA gets a description. */
static void check_experts(bool outer, bool transposed, moec_dtype t, int64_t n, int64_t k, int64_t m, const char *want,
                          uint64_t maps) {
  const int64_t left[] = {n, outer ? m : k}, right[] = {n, k}, w[] = {2, transposed ? m : k, transposed ? k : m};
  const int64_t three[] = {3}, sums[] = {2, m, k}, y[] = {n, m};
  moec_tensor a = zeros(t, 2, left), b = outer ? zeros(t, 2, right) : zeros(t, 3, w), o = zeros(MOEC_I32, 1, three);
  one_step s = {.op = outer ? MOEC_STEP_MOE_GROUPED_OUTER : MOEC_STEP_MOE_GROUPED_DOT, .n_in = 3, .n_out = 1,
                .n_ints = outer ? 0 : 1, .in = {&a, &b, &o}, .ints = {transposed}};
  s.out[0] = outer ? step_tensor(t, 3, sums) : step_tensor(t, 2, y);
  size_t size;
  moec_model *model;
  fake_begin(NULL);
  uint8_t *file = step_file_for(&s, "cuda:sm_90a", &size);
  UNIT_OK(moec_open_memory(file, size, NULL, &model));
  UNIT_OK(step_forward(&s, model));
  ck_assert_uint_eq(fake->n_launches, 1);
  ck_assert_str_eq(fake->launches[0].name, want);
  ck_assert_uint_eq(fake->maps, maps);
  if (maps) UNIT_TRUE(fake->launches[0].blocks == 4 && fake->launches[0].shared == MOEC_CUDA_WGMMA_SHARED);
  moec_close(model);
  free(file);
  step_fini(&s);
  moec_tensor_fini(&a), moec_tensor_fini(&b), moec_tensor_fini(&o);
}

/* On matrix units where TMA can read the operands. */
START_TEST(experts) {
  check_experts(false, true, MOEC_BF16, 9, 16, 24, "moec_wgmma_dot_t", 3);
  check_experts(false, false, MOEC_BF16, 9, 16, 24, "moec_wgmma_dot", 3);
  check_experts(true, false, MOEC_BF16, 9, 16, 24, "moec_wgmma_outer", 3);
  check_experts(false, true, MOEC_BF16, 9, 12, 24, "moec_grouped_dot_bf16", 0);
  check_experts(true, false, MOEC_BF16, 9, 16, 20, "moec_grouped_outer_bf16", 0);
  check_experts(true, false, MOEC_BF16, 0, 16, 24, "moec_grouped_outer_bf16", 0);
  check_experts(false, true, MOEC_F16, 9, 16, 24, "moec_grouped_dot_f16", 0);
}
END_TEST

static const uint8_t cubin[] = "cubin";
static const moec_map object = {.data = cubin, .size = sizeof cubin};

/* The plain product and its activation, as far as the addresses of their operands go. */
static void plain_activation(const char *name, const fake_launch *l, void **p) {
  (void)l;
  if (!strcmp(name, "moec_grouped_dot_bf16")) {
    uint16_t *y = *(void **)p[5];
    int64_t n = *(int64_t *)p[7] * *(int64_t *)p[10];
    for (int64_t i = 0; i < n; i++) moec_store_f64(MOEC_BF16, y, (size_t)i, (double)(i % 16));
  } else if (!strcmp(name, "act")) {
    const moec_kernel_args *a = p[0];
    for (int64_t i = 0; i < *(int64_t *)p[1]; i++)
      moec_store_f64(MOEC_BF16, a->buf[1], (size_t)i, moec_load_f64(MOEC_BF16, a->buf[0], (size_t)(2 * i)) + 100);
  }
}

/* A product of 2 experts with its activation: one launch, or the product by itself and the activation's kernel. */
static void check_activation(bool kept, int form, int64_t n, int64_t k, int64_t m, const char *want, uint64_t maps) {
  const int64_t left[] = {n, k}, w[] = {2, m, k}, three[] = {3}, y[] = {n, m}, act[] = {n, form ? m / 2 : m};
  moec_tensor a = zeros(MOEC_BF16, 2, left), b = zeros(MOEC_BF16, 3, w), o = zeros(MOEC_I32, 1, three);
  one_step s = {.op = MOEC_STEP_MOE_GROUPED_DOT, .n_in = 3, .n_out = 2, .n_ints = 2, .in = {&a, &b, &o},
                .ints = {1, form}};
  if (kept) s.out[0] = step_tensor(MOEC_BF16, 2, y);
  s.out[1] = step_tensor(MOEC_BF16, 2, act);
  size_t size;
  moec_model *model;
  fake_begin(plain_activation);
  uint8_t *file = step_file_naming(&s, "act", n * act[1], "cuda:sm_90a", &object, &size);
  UNIT_OK(moec_open_memory(file, size, NULL, &model));
  UNIT_OK(step_forward(&s, model));
  ck_assert_uint_eq(fake->n_launches, maps ? 1 : 2);
  ck_assert_str_eq(fake->launches[0].name, want);
  ck_assert_uint_eq(fake->maps, maps);
  if (!maps) ck_assert_str_eq(fake->launches[1].name, "act");
  for (int64_t i = 0; i < n * m && !maps; i++) {
    const double product = (double)(i % 16);
    if (kept) UNIT_TRUE(step_at(&s.out[0], i) == product);
    if (form && i % 2 == 0) UNIT_TRUE(step_at(&s.out[1], i / 2) == product + 100);
  }
  moec_close(model);
  free(file);
  step_fini(&s);
  moec_tensor_fini(&a), moec_tensor_fini(&b), moec_tensor_fini(&o);
}

START_TEST(activations) {
  check_activation(false, MOEC_ACTIVATION_HALVES, 9, 16, 32, "moec_wgmma_dot_t_act", 3);
  check_activation(true, MOEC_ACTIVATION_HALVES, 9, 16, 32, "moec_wgmma_dot_t_act", 4);
  check_activation(true, MOEC_ACTIVATION_NEIGHBOURS, 9, 16, 32, "moec_wgmma_dot_t_act", 4);
  check_activation(false, MOEC_ACTIVATION_EACH, 9, 16, 24, "moec_wgmma_dot_t_act", 3);
  for (int kept = 0; kept < 2; kept++) {
    check_activation(kept, MOEC_ACTIVATION_NEIGHBOURS, 9, 16, 24, "moec_grouped_dot_bf16", 0); /* rows of 12 */
    check_activation(kept, MOEC_ACTIVATION_HALVES, 9, 12, 32, "moec_grouped_dot_bf16", 0);
  }
}
END_TEST

/* What a plan may not say of a product of 4 rows of 8 elements. */
static const struct bad_activation {
  moec_dtype y; /* NONE: it is no result */
  int64_t m, columns, form;
  uint32_t n_out, n_ints;
  const char *kernel;
  int64_t rows, scratch; /* the kernel's */
  const char *text;
} bad[] = {
    {MOEC_DTYPE_NONE, 16, 16, MOEC_ACTIVATION_HALVES, 2, 2, "act", 32, 0, "expected an activation"},
    {MOEC_DTYPE_NONE, 16, 8, MOEC_ACTIVATION_EACH, 2, 2, "act", 32, 0, "expected an activation"},
    {MOEC_DTYPE_NONE, 16, 16, MOEC_ACTIVATION_FORMS, 2, 2, "act", 32, 0, "activation: expected 0 to 2, got 3"},
    {MOEC_DTYPE_NONE, 16, 16, MOEC_ACTIVATION_EACH, 2, 1, "act", 32, 0, "2 integers with as many results, got 1"},
    {MOEC_DTYPE_NONE, 16, 16, MOEC_ACTIVATION_EACH, 2, 2, NULL, 32, 0, "kernel: expected an index below 0"},
    {MOEC_DTYPE_NONE, 15, 7, MOEC_ACTIVATION_NEIGHBOURS, 2, 2, "act", 28, 0, "an even number of columns, got 15"},
    {MOEC_F32, 16, 16, MOEC_ACTIVATION_EACH, 2, 2, "act", 64, 0, "expected rows and results of one type"},
    {MOEC_DTYPE_NONE, 16, 16, MOEC_ACTIVATION_EACH, 2, 2, "act", 64, 8, "expected an activation without scratch"},
    {MOEC_DTYPE_NONE, 16, 16, MOEC_ACTIVATION_EACH, 2, 2, "act", -1, 0, "expected a size of at least 0, got -1"},
    {MOEC_DTYPE_NONE, 16, 16, 0, 1, 1, NULL, 0, 0, "expected a result, got none"},
};

/* What opening |x| for |target|, or running it, fails with. */
static moec_status *try_activation(const struct bad_activation *x, const char *target, const moec_map *kernels) {
  const int64_t left[] = {4, 8}, w[] = {2, x->m, 8}, three[] = {3}, y[] = {4, x->m}, act[] = {4, x->columns};
  moec_tensor a = zeros(MOEC_BF16, 2, left), b = zeros(MOEC_BF16, 3, w), o = zeros(MOEC_I32, 1, three);
  one_step s = {.op = MOEC_STEP_MOE_GROUPED_DOT, .n_in = 3, .n_out = x->n_out, .n_ints = x->n_ints,
                .in = {&a, &b, &o}, .ints = {1, x->form}};
  size_t size;
  moec_model *model = NULL;
  if (x->y != MOEC_DTYPE_NONE) s.out[0] = step_tensor(x->y, 2, y);
  if (x->n_out > 1) s.out[1] = step_tensor(MOEC_BF16, 2, act);
  fake_begin(plain_activation);
  uint8_t *file = step_file_needing(&s, x->kernel, x->rows, x->scratch, target, kernels, &size);
  moec_status *r = moec_open_memory(file, size, NULL, &model);
  if (!r) r = step_forward(&s, model);
  moec_close(model);
  free(file);
  moec_tensor_fini(&a), moec_tensor_fini(&b), moec_tensor_fini(&o);
  return r;
}

START_TEST(bad_activations) {
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    moec_code code = bad[i].rows < 0 ? MOEC_INVALID_ARGUMENT : MOEC_INVALID_MODEL;
    UNIT_FAILS(try_activation(&bad[i], "cuda:sm_90a", &object), code, bad[i].text);
  }
}
END_TEST

/* The processor has none. */
START_TEST(no_activations) {
  const struct bad_activation x = {MOEC_DTYPE_NONE, 16, 16, MOEC_ACTIVATION_EACH, 2, 2, "twice", 64, 0, NULL};
  UNIT_FAILS(try_activation(&x, "cpu", &files.object), MOEC_UNSUPPORTED, "expected a cuda target");
}
END_TEST

static void setup(void) { files = train_start(); }
static void setup_fake(void) {
  setup();
  fake_load(files.dir);
}
static void teardown(void) { train_stop(&files); }
static void teardown_fake(void) {
  fake_unload();
  teardown();
}

int main(void) {
  if (!emulation_possible()) return puts("skipped: no C++ compiler"), 77;
  const TTest *const tests[] = {refused, forward, large_inputs, faults, poisoned, training, lazy,
                                updates, wild, products, chunks, integers, library,
                               experts, activations, bad_activations, no_activations};
  Suite *suite = suite_create("runtime_cuda");
  TCase *alone = tcase_create("without a driver"), *rest = tcase_create("fake driver");
  tcase_set_timeout(alone, 0), tcase_set_timeout(rest, 0);
  tcase_add_unchecked_fixture(alone, setup, teardown);
  tcase_add_unchecked_fixture(rest, setup_fake, teardown_fake);
  tcase_add_test(alone, missing);
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(rest, tests[i]);
  suite_add_tcase(suite, alone); /* first: a driver that was loaded stays */
  suite_add_tcase(suite, rest);
  return unit_run(suite);
}
