/* bench: times steps on random inputs and reports what they do. Inputs with a default are left out.
 * A step is forward; or forward, loss and backward (train); or that and an update (step). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/random.h"
#include "base/status.h"
#include "runtime/cli_bench.h"

static const struct {
  const char *name;
  moec_program program;
  bool updates;
} modes[] = {{"forward", MOEC_FORWARD, false}, {"train", MOEC_TRAIN, false}, {"step", MOEC_TRAIN, true}};

static moec_status *run_step(moec_rt_bench *b) {
  if (b->program == MOEC_FORWARD) return moec_forward(b->m);
  MOEC_TRY(moec_loss_and_gradients(b->m, 0, NULL));
  return b->updates ? moec_optimizer_step(b->m) : NULL;
}

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- inputs ------------------------------------------------------------------------------ */

/* Floats uniform in [-1, 1), bools either, integers uniform in [0, ids). */
static void fill(const moec_rt_bench *b, moec_tensor *t, uint64_t *state) {
  int64_t n = moec_tensor_numel(t);
  char cls = moec_dtype_get(t->dtype)->cls;
  for (int64_t i = 0; i < n; i++) {
    uint64_t r = moec_mix(*state);
    *state += MOEC_MIX_STEP;
    if (cls == 'F')
      moec_store_f64(t->dtype, t->data, (size_t)i, (double)(r >> 40) * 0x1p-23 - 1);
    else
      moec_store_i64(t->dtype, t->data, (size_t)i, (int64_t)(r >> 1) % (cls == 'B' ? 2 : b->ids));
  }
}

static moec_status *make_inputs(moec_rt_bench *b) {
  uint32_t n = moec_count(b->m, MOEC_INPUTS);
  b->inputs = calloc((size_t)n + 1, sizeof *b->inputs);
  if (!b->inputs) return moec_error(MOEC_OUT_OF_MEMORY, "no memory for inputs");
  for (uint32_t i = 0; i < n; i++) {
    moec_view v;
    moec_description d;
    MOEC_TRY(moec_describe(b->m, MOEC_INPUTS, i, &d));
    if (d.has_default || !(d.programs >> b->program & 1)) continue;
    MOEC_TRY(moec_shape(b->m, MOEC_INPUTS, i, &v));
    MOEC_TRY(moec_tensor_init(&b->inputs[i], (moec_dtype)v.dtype, v.rank, v.dims));
    v.data = b->inputs[i].data;
    MOEC_TRY(moec_input_borrow(b->m, i, &v));
  }
  return NULL;
}

/* Nothing in a model says how large the tables are that integers index: the bound is halved until
 * no index is out of range. A step stops at its first fault, so this is quick. */
static moec_status *first_step(moec_rt_bench *b) {
  enum { LARGEST = 1 << 17 };
  for (b->ids = LARGEST;; b->ids /= 2) {
    uint64_t state = (uint64_t)b->seed;
    for (uint32_t i = 0; i < moec_count(b->m, MOEC_INPUTS); i++)
      if (b->inputs[i].dtype) fill(b, &b->inputs[i], &state);
    double start = now_ms();
    moec_status *s = run_step(b);
    b->first_ms = now_ms() - start;
    moec_counters_get(b->m, &b->before);
    b->allocations = b->before.allocations;
    if (!s || b->ids == 1 || moec_status_code(s) != MOEC_INVALID_ARGUMENT) return s;
    moec_status_free(s);
  }
}

/* ---- times ------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* A step's own wait is the end of its measured time; an update that follows it waits for nothing. */
moec_status *moec_rt_bench_check(const moec_rt_bench *b) {
  const moec_counters *x = &b->before, *y = &b->after;
  uint64_t allocations = y->allocations - x->allocations, compilations = y->compilations - x->compilations;
  uint64_t waits = y->device_waits - x->device_waits, ends = y->device_waits ? (uint64_t)b->steps : 0;
  if (!allocations && !compilations && waits == ends) return NULL;
  return moec_error(MOEC_INTERNAL, "measured steps: expected no allocation, no compilation and no wait but the %" PRIu64
                    " at their ends, got %" PRIu64 ", %" PRIu64 " and %" PRIu64 " waits", ends, allocations,
                    compilations, waits);
}

/* Steps once more with a clock around each of their own, which the times above should not carry. */
static moec_status *time_kernels(moec_rt_bench *b) {
  enum { ENOUGH = 5 };
  b->timed = b->steps < ENOUGH ? b->steps : ENOUGH;
  moec_time_steps(b->m, 1);
  for (int i = 0; i < b->timed; i++) MOEC_TRY(run_step(b));
  return moec_rt_table_take(b->m, b->program, b->timed, &b->table);
}

static moec_status *measure(moec_rt_bench *b) {
  uint64_t first = b->allocations;
  for (int i = 0; i < b->warmup; i++) MOEC_TRY(run_step(b));
  b->ms = calloc(2 * (size_t)b->steps, sizeof *b->ms);
  if (!b->ms) return moec_error(MOEC_OUT_OF_MEMORY, "no memory for %d times", b->steps);
  moec_counters_get(b->m, &b->before);
  for (int i = 0; i < b->steps; i++) {
    double start = now_ms();
    MOEC_TRY(run_step(b));
    b->ms[i] = now_ms() - start;
  }
  moec_counters_get(b->m, &b->after);
  double *sorted = memcpy(b->ms + b->steps, b->ms, (size_t)b->steps * sizeof *b->ms);
  qsort(sorted, (size_t)b->steps, sizeof *sorted, by_value);
  b->allocations = b->after.allocations - first;
  MOEC_TRY(moec_rt_bench_check(b));
  return time_kernels(b);
}

/* ---- the command ------------------------------------------------------------------------- */

static moec_status *choose_mode(moec_rt_bench *b) {
  size_t i = 0, n = sizeof modes / sizeof *modes;
  while (b->mode_name && i < n && strcmp(modes[i].name, b->mode_name)) i++;
  if (i == n) {
    return moec_error(MOEC_INVALID_ARGUMENT, "--mode: expected forward, train or step, got '%s'", b->mode_name);
  }
  b->mode = modes[i].name, b->program = modes[i].program, b->updates = modes[i].updates;
  return NULL;
}

/* Small steps: the losses of random data should stay finite. */
static moec_status *choose_optimizer(moec_rt_bench *b) {
  moec_optimizer o;
  moec_optimizer_defaults(MOEC_ADAMW, &o);
  o.lr = 1e-6;
  return moec_optimizer_set(b->m, &o);
}

static moec_status *work(moec_rt_bench *b, int argc, char **argv) {
  bool trust = false;
  const moec_rt_flag flags[] = {
      {"--dim", MOEC_RT_LIST, &b->dims, 0},
      {"--mode", MOEC_RT_TEXT, &b->mode_name, 0},
      {"--steps", MOEC_RT_INT, &b->steps, 1},
      {"--warmup", MOEC_RT_INT, &b->warmup, 0},
      {"--seed", MOEC_RT_INT, &b->seed, 0},
      {"--json", MOEC_RT_TEXT, &b->json, 0},
      {"--weights", MOEC_RT_TEXT, &b->options.weights_dir, 0},
      {"--threads", MOEC_RT_INT, &b->options.threads, 1},
      {"--trust-weights", MOEC_RT_SWITCH, &trust, 0},
      {"--kernels", MOEC_RT_SWITCH, &b->kernels, 0},
  };
  MOEC_TRY(moec_rt_flags_parse(flags, sizeof flags / sizeof *flags, argc, argv));
  MOEC_TRY(choose_mode(b));
  b->options.trust_weights = trust;
  double start = now_ms();
  MOEC_TRY(moec_rt_open_self(&b->options, &b->m));
  double opened = now_ms();
  if (!moec_has_program(b->m, b->program)) {
    return moec_error(MOEC_INVALID_ARGUMENT, "--mode %s: this model was compiled without --train",
                      b->mode_name);
  }
  if (b->updates) MOEC_TRY(choose_optimizer(b));
  MOEC_TRY(moec_rt_bind_dims(b->m, &b->dims));
  b->open_ms = opened - start;
  b->bind_ms = now_ms() - opened;
  MOEC_TRY(make_inputs(b));
  MOEC_TRY(first_step(b));
  MOEC_TRY(measure(b));
  moec_rt_bench_print(b);
  return b->json ? moec_rt_bench_write(b) : NULL;
}

moec_status *moec_rt_cli_bench(int argc, char **argv) {
  moec_rt_bench b = {.steps = 20, .warmup = 3};
  moec_status *s = work(&b, argc, argv);
  for (uint32_t i = 0; b.inputs && i < moec_count(b.m, MOEC_INPUTS); i++)
    moec_tensor_fini(&b.inputs[i]);
  free(b.inputs);
  free(b.ms);
  moec_rt_table_fini(&b.table);
  moec_close(b.m);
  moec_rt_list_fini(&b.dims);
  return s;
}
