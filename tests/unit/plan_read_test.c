/* Files that are no plans, and plans that lie. */
#include "runtime/plan_read.h"
#include "base/tensor.h"
#include "include/moec.h"
#include "tests/unit/plan_sample.h"

static uint8_t *sample(size_t *size) {
  plan_builder *b = sample_build();
  uint8_t *file = pb_finish(b, NULL, NULL, size);
  free(b);
  return file;
}

static moec_status *open_bytes(const void *bytes, size_t size) {
  moec_rt_memory mem = {0};
  moec_rt_plan p;
  moec_status *s = moec_rt_plan_open_memory(&mem, bytes, size, false, &p);
  if (!s) moec_rt_plan_fini(&p);
  ck_assert_uint_eq(mem.live, 0);
  return s;
}

/* ---- whole files ------------------------------------------------------------------------- */

static void run_with(moec_model *m, int64_t batch, int64_t seq) {
  static float x[4096];
  static int64_t ids[4096];
  const moec_view vx = {x, MOEC_DTYPE_F32, 2, {batch * seq, 8}},
                  vi = {ids, MOEC_DTYPE_I64, 2, {batch, seq}};
  moec_layer_routes r;
  moec_view y;
  for (int i = 0; i < 4096; i++) x[i] = (float)(i % 13);
  UNIT_OK(moec_input_borrow(m, 0, &vx));
  UNIT_OK(moec_input_borrow(m, 1, &vi));
  UNIT_OK(moec_forward(m));
  UNIT_OK(moec_output(m, 0, &y)); /* the experts' weights are 0: the residual is left */
  for (int64_t i = 0; i < batch * seq * 8; i++) UNIT_TRUE(((float *)y.data)[i] == x[i]);
  UNIT_OK(moec_output(m, 1, &y)); /* as is the convolution's */
  UNIT_TRUE(y.dims[2] == seq + 3);
  UNIT_OK(moec_route(m, 0, &r));
  UNIT_TRUE(r.experts == 4 && r.indices.dims[0] == batch * seq && r.indices.dims[1] == 2 &&
            r.weights.data);
  for (int64_t i = 0; i < batch * seq * 2; i++)
    UNIT_TRUE(((int64_t *)r.indices.data)[i] == (i & 1)); /* all scores are equal */
  for (int64_t e = 0; e < 5; e++)
    UNIT_TRUE(((int32_t *)r.offsets.data)[e] == (e > 1 ? 2 : e) * batch * seq);
}

START_TEST(test_sample_runs) {
  size_t size;
  uint8_t *file = sample(&size), *odd = malloc(size + 1);
  moec_model *m;
  moec_counters c;
  memcpy(odd + 1, file, size);
  for (int i = 0; i < 2; i++) { /* aligned and not */
    UNIT_OK(moec_open_memory(i ? odd + 1 : file, size, NULL, &m));
    run_with(m, 2, 5);
    run_with(m, 1, 1);
    moec_counters_get(m, &c);
    ck_assert_uint_eq(c.moe_per_step, 1);
    ck_assert_uint_eq(c.steps_in_regions, 1);
    moec_close(m);
  }
  free(odd);
  free(file);
}
END_TEST

START_TEST(test_cut_and_edited_files) {
  size_t size;
  uint8_t *file = sample(&size);
  char *dir = unit_folder(), path[256];
  moec_model *m;
  UNIT_FAILS(open_bytes("", 0), MOEC_INVALID_MODEL,
             "expected a compiled model, which ends with a 120-byte moec footer, got 0 bytes");
  for (size_t n = 1; n < size; n += n < size - 300 ? 97 : 1) {
    UNIT_FAILS(open_bytes(file, n), MOEC_INVALID_MODEL, "cut or stripped");
  }
  UNIT_OK(moec_write_file(unit_path(path, dir, "model"), file, size - 7, 0755));
  UNIT_FAILS(moec_open(path, NULL, &m), MOEC_INVALID_MODEL, "/model: expected a compiled model");
  for (size_t at = 0; at < size; at += 131) {
    file[at] ^= 1;
    moec_status *s = open_bytes(file, size);
    UNIT_TRUE(s != NULL);
    moec_status_free(s);
    file[at] ^= 1;
  }
  file[300] ^= 1;
  UNIT_FAILS(open_bytes(file, size), MOEC_INVALID_MODEL, "the file was edited");
  UNIT_FAILS(moec_open("/nonexistent/model", NULL, &m), MOEC_INVALID_ARGUMENT,
             "/nonexistent/model");
  UNIT_FAILS(moec_open(NULL, NULL, &m), MOEC_INVALID_ARGUMENT, "expected the path of a model");
  unit_remove(dir);
  free(file);
}
END_TEST

START_TEST(test_footer_that_lies) {
  size_t size;
  uint8_t *file = sample(&size);
  moec_footer *f = (void *)(file + size - sizeof *f), good = *f;
  f->payload_offset = MOEC_PAGE;
  UNIT_FAILS(open_bytes(file, size), MOEC_INVALID_MODEL, "footer: expected the payload between");
  *f = good, f->payload_size = UINT64_MAX;
  UNIT_FAILS(open_bytes(file, size), MOEC_INVALID_MODEL, "footer: expected the payload between");
  *f = good, f->plan_size = f->payload_size + 1;
  UNIT_FAILS(open_bytes(file, size), MOEC_INVALID_MODEL, "footer: expected the plan inside");
  *f = good, f->kernels_size = UINT64_MAX;
  UNIT_FAILS(open_bytes(file, size), MOEC_INVALID_MODEL, "footer: expected the kernels inside");
  *f = good, f->data_offset += 8;
  UNIT_FAILS(open_bytes(file, size), MOEC_INVALID_MODEL, "footer: expected the data inside");
  *f = good, f->report_offset = f->payload_size, f->report_size = 1;
  UNIT_FAILS(open_bytes(file, size), MOEC_INVALID_MODEL, "footer: expected the report inside");
  *f = good, f->version = 1;
  UNIT_FAILS(open_bytes(file, size), MOEC_INVALID_MODEL,
             "expected a model of format version 5, got version 1");
  free(file);
}
END_TEST

/* ---- single records ---------------------------------------------------------------------- */

/* Every message says what was expected and what was got. */
static moec_status *complete(moec_status *s) {
  const char *text = s && moec_status_code(s) != MOEC_OUT_OF_MEMORY ? moec_status_message(s) : "expected, got";
  if (!strstr(text, "expected") || !strstr(text, "got")) ck_abort_msg("incomplete: %s", text);
  return s;
}

static void refused(plan_builder *b, const char *text) {
  size_t size;
  uint8_t *file = pb_finish(b, NULL, NULL, &size);
  UNIT_FAILS(complete(open_bytes(file, size)), MOEC_INVALID_MODEL, text);
  free(file);
  free(b);
}

/* REFUSED(text, change to |b|) */
#define REFUSED(text, ...)            \
  do {                                \
    plan_builder *b = sample_build(); \
    __VA_ARGS__;                      \
    refused(b, text);                 \
  } while (0)

START_TEST(test_records_that_lie) {
  REFUSED("expression 2: first operand: expected an index below 2, got 2",
          b->exprs[2] = (moec_plan_expr){MOEC_EXPR_ADD, 2, 0, 0, 0});
  REFUSED("expression 0: op: expected an index below 9, got 9", b->exprs[0].op = MOEC_EXPR_OP_COUNT);
  REFUSED("expression 0: symbol: expected an index below 2, got 2", b->exprs[0].a = 2);
  REFUSED("symbol 1: name: expected an index below", b->symbols[1].name = 4000);
  REFUSED("symbol 1: fixed: expected a size or -1, got -2", b->symbols[1].fixed = -2);
  REFUSED("buffer 0: kind: expected an index below 8, got 9", b->buffers[0].kind = 9);
  REFUSED("tensor 0: dtype: expected a type from 1 to 13, got 0", b->tensors[0].dtype = 0);
  REFUSED("tensor 0: rank: expected at most 12, got 13", b->tensors[0].rank = 13);
  REFUSED("tensor 1: dims: expected a range inside", b->tensors[1].dims = UINT32_MAX);
  REFUSED("piece 0: axis 0: expected sizes", b->pieces[0].shape[0] = -1);
  REFUSED("piece 0: expected bytes inside", b->pieces[0].offset = UINT64_MAX);
  REFUSED("piece 1: perm: expected a permutation of 3 axes, got one without 0", b->pieces[1].perm[0] = 1);
  REFUSED("piece 0: file: expected an index below 0, got 0", b->pieces[0].file = 0);
  REFUSED("parameter 0: axis 0: expected a piece inside 8, got 8 starting at 1",
          b->pieces[0].start[0] = 1);
  REFUSED("parameter 0: expected pieces of 8 elements in all, got 7", b->pieces[0].shape[0] = 7);
  REFUSED("parameter 1: expected a buffer of its own", b->params[1] = b->params[0]);
  REFUSED("buffer 0: expected a source of its bytes, got none", b->n_params = 0);
  REFUSED("constant 0: expected bytes inside", b->consts[0].offset += 8);
  REFUSED("constant 0: expected 8 bytes, got 7", b->consts[0].size = 7);
  REFUSED("kernel 0: expected a shared object with it", pb_kernel(b, "k", 0, 0));
  REFUSED("output 0: expected a buffer that lasts, got one of kind 5",
          b->buffers[b->tensors[b->outputs[0].tensor].buffer].kind = MOEC_BUFFER_STEP);
  REFUSED("input 0: expected a buffer of an input, got one of kind 0", b->inputs[0].tensor = 0);
  REFUSED("input 0: schedule: expected a program, 2 to 4, got 1", b->inputs[0].schedule = 1);
  REFUSED("buffer 12: schedule: expected a program, 2 to 4, got 0", b->buffers[12].schedule = 0);
  REFUSED("output 1: expected a buffer of program 4, got one of program 2",
          b->outputs[1].schedule = MOEC_AT_VJP);
  REFUSED("MoE layer 0: expected a buffer of program 3, got one of program 2",
          b->moe_layers[0].schedule = MOEC_AT_TRAIN);
  REFUSED("parameter 0: grad: expected a buffer of a gradient", b->params[0].grad = 0);
  REFUSED("input 0: has_default: expected an index below 2, got 2", b->inputs[0].has_default = 2);
  REFUSED("input 1: default: expected a value of type i64, got 0.5",
          (b->inputs[1].has_default = 1, b->inputs[1].dflt = 0.5));
  REFUSED("constraint 0: b: expected an index below", b->constraints[0].b = MOEC_NONE);
  REFUSED("MoE layer 0: indices: expected an index below", b->moe_layers[0].indices = 4000);
  REFUSED("call 0: function: expected an index below 1, got 1", b->calls[0].function = 1);
  REFUSED("file 0: name: expected a file name without folder, got '../x'",
          PB_ADD(b, files, (moec_plan_file){.name = pb_str(b, "../x")}));
}
END_TEST

START_TEST(test_steps_that_lie) {
  REFUSED("step 0: op: expected an index below 18, got 18", b->steps[0].op = MOEC_STEP_COUNT);
  REFUSED("step 0: schedule: expected an index below 5, got 5", b->steps[0].schedule = 5);
  REFUSED("step 2: expected steps sorted by schedule, got one of 0 behind 1", b->steps[2].schedule = MOEC_AT_LOAD);
  REFUSED("step 0: copy: expected 1 to 1 inputs, got 0", b->steps[0].n_in = 0);
  REFUSED("step 0: args: expected a range inside", b->steps[0].args = b->n_pool);
  REFUSED("step 1: ints: expected a range inside", b->steps[1].ints = b->n_ints);
  REFUSED("step 1: cumsum: expected 3 to 3 integers, got 2", b->steps[1].n_ints = 2);
  REFUSED("step 1: reverse: expected 0 to 1, got 2", b->ints[b->steps[1].ints + 1] = 2);
  REFUSED("step 0: operand: expected an index below", b->pool[b->steps[0].args] = MOEC_NONE);
  REFUSED("step 2: gemm: expected 8 integers and 3 for each", b->ints[b->steps[2].ints] = 1);
  REFUSED("step 2: gemm: integer 1: expected an expression", b->ints[b->steps[2].ints + 1] = -1);
  REFUSED("step 1: operand 1: expected a buffer that schedule 1 can write, got one of kind",
          b->pool[b->steps[1].args + 1] = b->pool[b->steps[0].args + 1]);
  REFUSED("step 1: operand 0: expected a buffer that was written before, got",
          b->pool[b->steps[1].args] = b->pool[b->steps[1].args + 1]);
  REFUSED("step 2: operand 0: expected a buffer that was written before, got",
          b->pool[b->steps[2].args] = b->pool[b->steps[2].args + 2]);
  REFUSED("step 2: kernel: expected an index below 0", b->steps[2].op = MOEC_STEP_KERNEL,
          b->steps[2].n_ints = 0);
}
END_TEST

/* A plan may ask for any amount of memory: AddressSanitizer is to refuse as malloc() does. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }

/* Whatever four bytes of a plan say, opening and running it neither crashes nor leaks. */
static size_t lie(uint8_t *file, size_t size, moec_status *(*run)(moec_model *m)) {
  static const uint32_t words[] = {0, 1, 7, 0x7fffffff, 0x80000000, 0xffffffff, 4096};
  size_t opened = 0;
  moec_footer f;
  memcpy(&f, file + size - sizeof f, sizeof f);
  for (size_t at = 0; at + 4 <= f.plan_size; at += 4) {
    for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
      uint32_t old;
      moec_model *m;
      memcpy(&old, file + at, 4);
      if (old == words[k]) continue;
      memcpy(file + at, &words[k], 4);
      moec_status *s =
          complete(moec_open_memory(file, size, &(moec_options){.threads = 1, .trust_weights = 1}, &m));
      if (!s) {
        s = run(m);
        opened += !s;
        moec_close(m);
      }
      moec_status_free(s);
      memcpy(file + at, &old, 4);
    }
  }
  free(file);
  return opened;
}

static moec_status *run_forward(moec_model *m) {
  static float x[512];
  const moec_view vx = {x, MOEC_DTYPE_F32, 2, {6, 8}}, vi = {x, MOEC_DTYPE_I64, 2, {2, 3}};
  MOEC_TRY(moec_input_borrow(m, 0, &vx));
  MOEC_TRY(moec_input_borrow(m, 1, &vi));
  return moec_forward(m);
}

START_TEST(test_any_word_may_lie) {
  size_t size;
  uint8_t *file = sample(&size);
  UNIT_TRUE(lie(file, size, run_forward) > 100); /* names and such */
}
END_TEST

/* w [8], tied to t; loss = w[0], and gradients that are w itself. Nothing else. */
static uint8_t *trained(size_t *size) {
  plan_builder *b = pb_create();
  moec_tensor eight = {.dtype = MOEC_F32, .rank = 1, .dims = {8}}, one = {.dtype = MOEC_F32};
  uint32_t w = sample_param(b, "w", MOEC_BF16, 1, eight.dims);
  uint32_t t = sample_param(b, "t", MOEC_F32, 1, eight.dims);
  uint32_t v = sample_param(b, "v", MOEC_F32, 0, NULL);
  uint32_t loaded = pb_static(b, MOEC_BUFFER_LOAD, &eight);
  pb_step(b, MOEC_AT_LOAD, MOEC_STEP_COPY, 1, 1, (uint32_t[]){w, loaded}, 0, NULL);
  for (int i = 0; i < 3; i++) {
    b->params[i].grad = pb_static(b, MOEC_BUFFER_GRAD, i < 2 ? &eight : &one);
    b->params[i].trainable = 1, b->params[i].tie = i < 2;
  }
  b->program = MOEC_AT_TRAIN;
  uint32_t loss = pb_static(b, MOEC_BUFFER_OUTPUT, &one);
  pb_step(b, MOEC_AT_TRAIN, MOEC_STEP_COPY, 1, 1, (uint32_t[]){w, b->params[0].grad}, 0, NULL);
  pb_step(b, MOEC_AT_TRAIN, MOEC_STEP_COPY, 1, 1, (uint32_t[]){t, b->params[1].grad}, 0, NULL);
  pb_step(b, MOEC_AT_TRAIN, MOEC_STEP_COPY, 1, 1, (uint32_t[]){v, b->params[2].grad}, 0, NULL);
  pb_step(b, MOEC_AT_TRAIN, MOEC_STEP_COPY, 1, 1, (uint32_t[]){v, loss}, 0, NULL);
  pb_output(b, "loss", loss);
  uint8_t *file = pb_finish(b, NULL, NULL, size);
  free(b);
  return file;
}

static moec_status *run_training(moec_model *m) {
  moec_optimizer o;
  double norm;
  moec_optimizer_defaults(MOEC_ADAMW, &o);
  for (int accumulate = 0; accumulate < 2; accumulate++) {
    MOEC_TRY(moec_loss_and_gradients(m, accumulate, NULL));
  }
  MOEC_TRY(moec_clip_gradients(m, 1, &norm));
  MOEC_TRY(moec_optimizer_set(m, &o));
  MOEC_TRY(moec_optimizer_step(m));
  return moec_loss_and_gradients(m, 1, &norm);
}

START_TEST(test_any_word_of_training_may_lie) {
  size_t size;
  uint8_t *file = trained(&size);
  UNIT_TRUE(lie(file, size, run_training) > 100);
}
END_TEST

/* tests/fuzz/corpus/fuzz_plan has these plans, as the fuzzer reads them: plan, data, size of the data. They follow the
 * format with MOEC_UPDATE=1. */
static void check_seed(const char *name, const uint8_t *file, size_t size) {
  char path[256];
  moec_footer f;
  moec_map got;
  memcpy(&f, file + size - sizeof f, sizeof f);
  size_t n = (size_t)(f.plan_size + f.data_size) + 2;
  uint8_t *seed = malloc(n);
  ck_assert_ptr_nonnull(seed);
  memcpy(seed, file + f.payload_offset, f.plan_size);
  memcpy(seed + f.plan_size, file + f.payload_offset + f.data_offset, f.data_size);
  seed[n - 2] = (uint8_t)f.data_size, seed[n - 1] = (uint8_t)(f.data_size >> 8);
  snprintf(path, sizeof path, "tests/fuzz/corpus/fuzz_plan/%s", name);
  if (getenv("MOEC_UPDATE")) UNIT_OK(moec_write_file(path, seed, n, 0644));
  UNIT_OK(moec_map_user_file(path, &got));
  ck_assert_msg(got.size == n && !memcmp(got.data, seed, n), "%s is of another format", path);
  moec_unmap(&got);
  free(seed);
}

START_TEST(test_seeds_of_the_fuzzer) {
  size_t size;
  uint8_t *file = sample(&size);
  check_seed("sample", file, size);
  free(file);
  file = trained(&size);
  check_seed("trained", file, size);
  free(file);
}
END_TEST

UNIT_MAIN("plan_read", test_sample_runs, test_cut_and_edited_files, test_footer_that_lies,
          test_records_that_lie, test_steps_that_lie, test_any_word_may_lie,
          test_any_word_of_training_may_lie, test_seeds_of_the_fuzzer)
