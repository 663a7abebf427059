/* bench: times steps on random inputs and reports what they do. Inputs with a default are left out.
 * A step is forward; or forward, loss and backward (train); or that and an update (step). */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/status.h"
#include "runtime/cli_stages.h"
#include "runtime/threads.h"

typedef enum bench_mode { FORWARD, TRAIN, STEP, MODES } bench_mode;
static const struct {
  const char *name;
  moec_program program;
} modes[MODES] = {{"forward", MOEC_FORWARD}, {"train", MOEC_TRAIN}, {"step", MOEC_TRAIN}};

typedef struct bench {
  bench_mode mode;
  moec_rt_list dims;
  const char *mode_name, *json;
  int steps, warmup, seed;
  moec_options options;
  moec_model *m;
  moec_tensor *inputs;
  int64_t ids; /* integer inputs are below this */
  double *ms;  /* by step, sorted afterwards */
  double open_ms, bind_ms, first_ms;
  uint64_t allocations; /* until the first step was done; then: made after it */
} bench;

static moec_status *run_step(bench *b) {
  if (b->mode == FORWARD) return moec_forward(b->m);
  MOEC_TRY(moec_loss_and_gradients(b->m, 0, NULL));
  return b->mode == STEP ? moec_optimizer_step(b->m) : NULL;
}

static uint64_t allocations(const bench *b) {
  moec_counters c;
  moec_counters_get(b->m, &c);
  return c.allocations;
}

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- inputs ------------------------------------------------------------------------------ */

static uint64_t next(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

/* Floats uniform in [-1, 1), bools either, integers uniform in [0, ids). */
static void fill(const bench *b, moec_tensor *t, uint64_t *state) {
  int64_t n = moec_tensor_numel(t);
  char cls = moec_dtype_get(t->dtype)->cls;
  for (int64_t i = 0; i < n; i++) {
    uint64_t r = next(state);
    if (cls == 'F')
      moec_store_f64(t->dtype, t->data, (size_t)i, (double)(r >> 40) * 0x1p-23 - 1);
    else
      moec_store_i64(t->dtype, t->data, (size_t)i, (int64_t)(r >> 1) % (cls == 'B' ? 2 : b->ids));
  }
}

static moec_status *make_inputs(bench *b) {
  uint32_t n = moec_count(b->m, MOEC_INPUTS);
  b->inputs = calloc((size_t)n + 1, sizeof *b->inputs);
  if (!b->inputs) return moec_error(MOEC_OUT_OF_MEMORY, "no memory for inputs");
  for (uint32_t i = 0; i < n; i++) {
    moec_view v;
    moec_description d;
    MOEC_TRY(moec_describe(b->m, MOEC_INPUTS, i, &d));
    if (d.has_default || !(d.programs >> modes[b->mode].program & 1)) continue;
    MOEC_TRY(moec_shape(b->m, MOEC_INPUTS, i, &v));
    MOEC_TRY(moec_tensor_init(&b->inputs[i], (moec_dtype)v.dtype, v.rank, v.dims));
    v.data = b->inputs[i].data;
    MOEC_TRY(moec_input_borrow(b->m, i, &v));
  }
  return NULL;
}

/* Nothing in a model says how large the tables are that integers index: the bound is halved until
 * no index is out of range. A step stops at its first fault, so this is quick. */
static moec_status *first_step(bench *b) {
  enum { LARGEST = 1 << 17 };
  for (b->ids = LARGEST;; b->ids /= 2) {
    uint64_t state = (uint64_t)b->seed;
    for (uint32_t i = 0; i < moec_count(b->m, MOEC_INPUTS); i++)
      if (b->inputs[i].dtype) fill(b, &b->inputs[i], &state);
    double start = now_ms();
    moec_status *s = run_step(b);
    b->first_ms = now_ms() - start;
    b->allocations = allocations(b);
    if (!s || b->ids == 1 || moec_status_code(s) != MOEC_INVALID_ARGUMENT) return s;
    moec_status_free(s);
  }
}

/* Positions of the first integer input, or rows of the first input. */
static int64_t tokens(const bench *b) {
  uint32_t n = moec_count(b->m, MOEC_INPUTS);
  for (uint32_t i = 0; i < n; i++) {
    char cls = moec_dtype_get(b->inputs[i].dtype)->cls;
    if ((cls == 'I' || cls == 'U') && b->inputs[i].rank) return moec_tensor_numel(&b->inputs[i]);
  }
  int64_t rows = n ? 1 : 0;
  for (uint32_t a = 0; n && a + 1 < b->inputs[0].rank; a++) rows *= b->inputs[0].dims[a];
  return rows;
}

/* ---- times ------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static moec_status *measure(bench *b) {
  for (int i = 0; i < b->warmup; i++) MOEC_TRY(run_step(b));
  b->ms = calloc((size_t)b->steps, sizeof *b->ms);
  if (!b->ms) return moec_error(MOEC_OUT_OF_MEMORY, "no memory for %d times", b->steps);
  for (int i = 0; i < b->steps; i++) {
    double start = now_ms();
    MOEC_TRY(run_step(b));
    b->ms[i] = now_ms() - start;
  }
  qsort(b->ms, (size_t)b->steps, sizeof *b->ms, by_value);
  b->allocations = allocations(b) - b->allocations;
  /* Once more with a clock around each step, which the times above should not carry. */
  moec_time_steps(b->m, 1);
  return run_step(b);
}

static double mean(const bench *b) {
  double sum = 0;
  for (int i = 0; i < b->steps; i++) sum += b->ms[i];
  return sum / b->steps;
}

static double median(const bench *b) {
  return (b->ms[(b->steps - 1) / 2] + b->ms[b->steps / 2]) / 2;
}

/* The smallest time that |percent| of the steps do not exceed. */
static double quantile(const bench *b, int percent) {
  int rank = (percent * b->steps + 99) / 100;
  return b->ms[rank < 1 ? 0 : rank - 1];
}

/* ---- the report -------------------------------------------------------------------------- */

static json_t *sizes_json(const moec_model *m) {
  json_t *o = json_object();
  for (uint32_t i = 0; i < moec_symbol_count(m); i++) {
    const char *name;
    int64_t value;
    moec_status_free(moec_symbol(m, i, &name, &value)); /* |i| is in range */
    json_object_set_new(o, name, json_integer(value));
  }
  return o;
}

static json_t *classes_json(const moec_model *m) {
  json_t *o = json_object();
  for (uint32_t i = 0; i < moec_step_class_count(m); i++) {
    moec_step_class c;
    moec_status_free(moec_step_class_get(m, i, &c)); /* |i| is in range */
    if (!c.steps) continue;
    json_object_set_new(
        o, c.name,
        json_pack("{s:I, s:I, s:I, s:f}", "steps", (json_int_t)c.steps, "bytes",
                  (json_int_t)c.bytes, "flops", (json_int_t)c.flops, "ms", (double)c.ns / 1e6));
  }
  return o;
}

static json_t *stages_json(const moec_model *m, moec_program program) {
  moec_rt_stages all;
  json_t *o = json_object();
  moec_rt_stages_count(m, program, &all);
  for (size_t i = 0; i < all.n; i++)
    json_object_set_new(o, all.of[i].name, json_integer((json_int_t)all.of[i].calls));
  return o;
}

static json_t *counters_json(const bench *b) {
  moec_counters c;
  moec_counters_get(b->m, &c);
  const struct {
    const char *name;
    uint64_t value;
  } rows[] = {
      {"threads", c.threads},
      {"kernels_per_step", c.kernels_per_step},
      {"library_calls_per_step", c.library_per_step},
      {"moe_calls_per_step", c.moe_per_step},
      {"steps_in_moe_calls", c.steps_in_regions},
      {"flops_per_step", c.flops_per_step},
      {"compilations", c.compilations},
      {"allocations_after_first_step", b->allocations},
      {"parameter_bytes_copied", c.parameter_bytes},
      {"parameter_bytes_mapped", c.mapped_bytes},
      {"load_arena_bytes", c.load_bytes},
      {"bind_arena_bytes", c.bind_bytes},
      {"step_arena_bytes", c.step_bytes},
      {"gradient_bytes", c.gradient_bytes},
      {"optimizer_bytes", c.optimizer_bytes},
      {"peak_bytes", c.peak_bytes},
  };
  json_t *o = json_object();
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    json_object_set_new(o, rows[i].name, json_integer((json_int_t)rows[i].value));
  }
  return o;
}

static json_t *report(const bench *b) {
  double half = median(b);
  json_t *o =
      json_pack("{s:s, s:o, s:i, s:i, s:I, s:s, s:{s:f, s:f, s:f, s:f, s:f}, s:f, s:f, s:f}",
                "mode", modes[b->mode].name, "dims", sizes_json(b->m), "steps", b->steps, "warmup",
                b->warmup, "tokens", (json_int_t)tokens(b), "inputs",
                "random: floats in [-1, 1), integers in [0, integer_bound)", "ms", "mean", mean(b),
                "median", half, "p95", quantile(b, 95), "min", b->ms[0], "max", b->ms[b->steps - 1],
                "open_ms", b->open_ms, "bind_ms", b->bind_ms, "first_step_ms", b->first_ms);
  json_t *all = json_array();
  for (int i = 0; i < b->steps; i++) json_array_append_new(all, json_real(b->ms[i]));
  json_object_set_new(json_object_get(o, "ms"), "all", all);
  json_object_set_new(o, "integer_bound", json_integer(b->ids));
  json_object_set_new(o, "seed", json_integer(b->seed));
  json_object_set_new(o, "tokens_per_second",
                      json_real(half > 0 ? (double)tokens(b) / half * 1e3 : 0));
  json_object_update_new(o, counters_json(b));
  json_object_set_new(o, "moe_stages", stages_json(b->m, modes[b->mode].program));
  json_object_set_new(o, "classes", classes_json(b->m));
  return o;
}

static void print_report(const bench *b) {
  moec_counters c;
  moec_counters_get(b->m, &c);
  double half = median(b);
  printf("%s, %d steps on %" PRIu64 " threads, %" PRId64 " tokens, random integers below %" PRId64
         "\n",
         modes[b->mode].name, b->steps, c.threads, tokens(b), b->ids);
  printf(
      "ms: mean %.3f  median %.3f  p95 %.3f  min %.3f  max %.3f  (open %.1f, bind %.1f, first "
      "%.1f)\n",
      mean(b), half, quantile(b, 95), b->ms[0], b->ms[b->steps - 1], b->open_ms, b->bind_ms,
      b->first_ms);
  if (half > 0) {
    printf("tokens/s: %.1f  GFLOP/s: %.2f\n", (double)tokens(b) / half * 1e3,
           (double)c.flops_per_step / half / 1e6);
  }
  printf("per step: %" PRIu64 " kernels, %" PRIu64 " library calls, %" PRIu64
         " MoE calls of %" PRIu64 " steps\n",
         c.kernels_per_step, c.library_per_step, c.moe_per_step,
         c.steps_in_regions + c.moe_per_step);
  printf("compilations %" PRIu64 ", allocations after the first step %" PRIu64 "\n", c.compilations,
         b->allocations);
  printf("bytes: step arena %" PRIu64 ", bind arena %" PRIu64 ", load arena %" PRIu64
         ", parameters %" PRIu64 " copied and %" PRIu64 " mapped, peak %" PRIu64 "\n",
         c.step_bytes, c.bind_bytes, c.load_bytes, c.parameter_bytes, c.mapped_bytes, c.peak_bytes);
  if (b->mode != FORWARD) {
    printf("bytes: gradients %" PRIu64 ", optimizer %" PRIu64 "\n", c.gradient_bytes,
           c.optimizer_bytes);
  }
  moec_rt_stages_print(b->m, modes[b->mode].program);
  for (uint32_t i = 0; i < moec_step_class_count(b->m); i++) {
    moec_step_class k;
    moec_status_free(moec_step_class_get(b->m, i, &k));
    if (!k.steps) continue;
    printf("  %-18s %6" PRIu64 " steps %12.3f ms %14" PRIu64 " bytes\n", k.name, k.steps,
           (double)k.ns / 1e6, k.bytes);
  }
}

static moec_status *write_report(const bench *b) {
  json_t *o = report(b);
  char *text = o ? json_dumps(o, JSON_INDENT(2)) : NULL;
  json_decref(o);
  if (!text) return moec_error(MOEC_OUT_OF_MEMORY, "no memory for the report");
  moec_status *s = moec_write_file(b->json, text, strlen(text), 0644);
  free(text);
  return s;
}

/* ---- the command ------------------------------------------------------------------------- */

static moec_status *choose_mode(bench *b) {
  if (!b->mode_name) return NULL;
  for (b->mode = FORWARD; b->mode < MODES; b->mode++) {
    if (!strcmp(modes[b->mode].name, b->mode_name)) return NULL;
  }
  b->mode = FORWARD;
  return moec_error(MOEC_INVALID_ARGUMENT, "--mode: expected forward, train or step, got '%s'",
                    b->mode_name);
}

/* Small steps: the losses of random data should stay finite. */
static moec_status *choose_optimizer(bench *b) {
  moec_optimizer o;
  moec_optimizer_defaults(MOEC_ADAMW, &o);
  o.lr = 1e-6;
  return moec_optimizer_set(b->m, &o);
}

static moec_status *work(bench *b, int argc, char **argv) {
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
  };
  MOEC_TRY(moec_rt_flags_parse(flags, sizeof flags / sizeof *flags, argc, argv));
  MOEC_TRY(choose_mode(b));
  b->options.trust_weights = trust;
  double start = now_ms();
  MOEC_TRY(moec_rt_open_self(&b->options, &b->m));
  double opened = now_ms();
  if (!moec_has_program(b->m, modes[b->mode].program)) {
    return moec_error(MOEC_INVALID_ARGUMENT, "--mode %s: this model was compiled without --train",
                      b->mode_name);
  }
  if (b->mode == STEP) MOEC_TRY(choose_optimizer(b));
  MOEC_TRY(moec_rt_bind_dims(b->m, &b->dims));
  b->open_ms = opened - start;
  b->bind_ms = now_ms() - opened;
  MOEC_TRY(make_inputs(b));
  MOEC_TRY(first_step(b));
  MOEC_TRY(measure(b));
  print_report(b);
  return b->json ? write_report(b) : NULL;
}

moec_status *moec_rt_cli_bench(int argc, char **argv) {
  bench b = {.steps = 20, .warmup = 3};
  moec_status *s = work(&b, argc, argv);
  for (uint32_t i = 0; b.inputs && i < moec_count(b.m, MOEC_INPUTS); i++)
    moec_tensor_fini(&b.inputs[i]);
  free(b.inputs);
  free(b.ms);
  moec_close(b.m);
  moec_rt_list_fini(&b.dims);
  return s;
}
