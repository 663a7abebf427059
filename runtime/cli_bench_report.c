/* What bench says: on a page, and as JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "runtime/cli_bench.h"
#include "runtime/cli_stages.h"

/* Positions of the first integer input, or rows of the first input. */
static int64_t tokens(const moec_rt_bench *b) {
  uint32_t n = moec_count(b->m, MOEC_INPUTS);
  for (uint32_t i = 0; i < n; i++) {
    char cls = moec_dtype_get(b->inputs[i].dtype)->cls;
    if ((cls == 'I' || cls == 'U') && b->inputs[i].rank) return moec_tensor_numel(&b->inputs[i]);
  }
  int64_t rows = n ? 1 : 0;
  for (uint32_t a = 0; n && a + 1 < b->inputs[0].rank; a++) rows *= b->inputs[0].dims[a];
  return rows;
}

static double mean(const moec_rt_bench *b) {
  double sum = 0;
  for (int i = 0; i < b->steps; i++) sum += b->ms[i];
  return sum / b->steps;
}

static double median(const moec_rt_bench *b) {
  const double *sorted = b->ms + b->steps;
  return (sorted[(b->steps - 1) / 2] + sorted[b->steps / 2]) / 2;
}

/* The smallest time that |percent| of the steps do not exceed; 0: the smallest of all. */
static double quantile(const moec_rt_bench *b, int percent) {
  int rank = (percent * b->steps + 99) / 100;
  return b->ms[b->steps + (rank < 1 ? 0 : rank - 1)];
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

static json_t *classes_json(const moec_model *m, int timed) {
  json_t *o = json_object();
  for (uint32_t i = 0; i < moec_step_class_count(m); i++) {
    moec_step_class c;
    moec_status_free(moec_step_class_get(m, i, &c)); /* |i| is in range */
    if (!c.steps) continue;
    json_object_set_new(
        o, c.name,
        json_pack("{s:I, s:I, s:I, s:f}", "steps", (json_int_t)c.steps, "bytes",
                  (json_int_t)c.bytes, "flops", (json_int_t)c.flops, "ms", (double)c.ns / 1e6 / timed));
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

/* All that the measured steps work with. */
static uint64_t planned(const moec_rt_bench *b, const moec_counters *c) {
  return c->planned_bytes[b->program] + (b->updates ? c->planned_update_bytes : 0);
}

static json_t *counters_json(const moec_rt_bench *b) {
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
      {"attention_by_library", c.attention_by_library},
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
      {"planned_bytes", planned(b, &c)},
      {"device_bytes", c.device_bytes},
      {"device_peak_bytes", c.device_peak_bytes},
  };
  json_t *o = json_object();
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    json_object_set_new(o, rows[i].name, json_integer((json_int_t)rows[i].value));
  }
  return o;
}

/* Of all measured steps together. */
static json_t *window_json(const moec_rt_bench *b) {
  const moec_counters *x = &b->before, *y = &b->after;
  return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "allocations",
                   (json_int_t)(y->allocations - x->allocations), "compilations",
                   (json_int_t)(y->compilations - x->compilations), "waits",
                   (json_int_t)(y->device_waits - x->device_waits), "copies_to_device",
                   (json_int_t)(y->device_writes - x->device_writes), "bytes_to_device",
                   (json_int_t)(y->device_write_bytes - x->device_write_bytes), "copies_from_device",
                   (json_int_t)(y->device_reads - x->device_reads), "bytes_from_device",
                   (json_int_t)(y->device_read_bytes - x->device_read_bytes));
}

static json_t *report(const moec_rt_bench *b) {
  double half = median(b);
  json_t *o =
      json_pack("{s:s, s:o, s:i, s:i, s:I, s:s, s:{s:f, s:f, s:f, s:f, s:f}, s:f, s:f, s:f}",
                "mode", b->mode, "dims", sizes_json(b->m), "steps", b->steps, "warmup",
                b->warmup, "tokens", (json_int_t)tokens(b), "inputs",
                "random: floats in [-1, 1), integers in [0, integer_bound)", "ms", "mean", mean(b),
                "median", half, "p95", quantile(b, 95), "min", quantile(b, 0), "max", quantile(b, 100),
                "open_ms", b->open_ms, "bind_ms", b->bind_ms, "first_step_ms", b->first_ms);
  json_t *all = json_array();
  for (int i = 0; i < b->steps; i++) json_array_append_new(all, json_real(b->ms[i]));
  json_object_set_new(json_object_get(o, "ms"), "all", all);
  json_object_set_new(o, "integer_bound", json_integer(b->ids));
  json_object_set_new(o, "seed", json_integer(b->seed));
  json_object_set_new(o, "tokens_per_second",
                      json_real(half > 0 ? (double)tokens(b) / half * 1e3 : 0));
  json_object_update_new(o, counters_json(b));
  json_object_set_new(o, "attention_note", json_string(moec_attention_note(b->m)));
  json_object_set_new(o, "moe_stages", stages_json(b->m, b->program));
  json_object_set_new(o, "measured", window_json(b));
  json_object_set_new(o, "census", moec_rt_census_json(&b->table));
  json_object_set_new(o, "kernels", moec_rt_table_json(&b->table));
  json_object_set_new(o, "classes", classes_json(b->m, b->timed));
  return o;
}

/* What passes between host and device in a step. */
static void print_window(const moec_rt_bench *b) {
  const moec_counters *x = &b->before, *y = &b->after;
  uint64_t n = (uint64_t)b->steps;
  if (!y->device_bytes) return;
  printf("per step: %" PRIu64 " waits (at the end of the program), %" PRIu64 " copies of %" PRIu64
         " bytes to the device, %" PRIu64 " of %" PRIu64 " bytes from it\n",
         (y->device_waits - x->device_waits) / n, (y->device_writes - x->device_writes) / n,
         (y->device_write_bytes - x->device_write_bytes) / n, (y->device_reads - x->device_reads) / n,
         (y->device_read_bytes - x->device_read_bytes) / n);
  printf("device memory: %" PRIu64 " bytes at most, planned %" PRIu64 " (%+.1f %%)\n", y->device_peak_bytes,
         planned(b, y), 100 * ((double)y->device_peak_bytes / (double)planned(b, y) - 1));
}

void moec_rt_bench_print(const moec_rt_bench *b) {
  moec_counters c;
  moec_counters_get(b->m, &c);
  double half = median(b);
  printf("%s, %d steps on %" PRIu64 " threads, %" PRId64 " tokens, random integers below %" PRId64
         "\n",
         b->mode, b->steps, c.threads, tokens(b), b->ids);
  printf(
      "ms: mean %.3f  median %.3f  p95 %.3f  min %.3f  max %.3f  (open %.1f, bind %.1f, first "
      "%.1f)\n",
      mean(b), half, quantile(b, 95), quantile(b, 0), quantile(b, 100), b->open_ms, b->bind_ms,
      b->first_ms);
  if (half > 0) {
    printf("tokens/s: %.1f  GFLOP/s: %.2f\n", (double)tokens(b) / half * 1e3,
           (double)c.flops_per_step / half / 1e6);
  }
  printf("per step: %" PRIu64 " kernels, %" PRIu64 " library calls, %" PRIu64
         " MoE calls of %" PRIu64 " steps\n",
         c.kernels_per_step, c.library_per_step, c.moe_per_step,
         c.steps_in_regions + c.moe_per_step);
  if (c.attention_by_library) printf("attention by a library: %" PRIu64 " of the kernels\n", c.attention_by_library);
  if (*moec_attention_note(b->m)) printf("attention by its kernels: %s\n", moec_attention_note(b->m));
  printf("compilations %" PRIu64 ", allocations after the first step %" PRIu64 "\n", c.compilations,
         b->allocations);
  printf("bytes: step arena %" PRIu64 ", bind arena %" PRIu64 ", load arena %" PRIu64
         ", parameters %" PRIu64 " copied and %" PRIu64 " mapped, peak %" PRIu64 "\n",
         c.step_bytes, c.bind_bytes, c.load_bytes, c.parameter_bytes, c.mapped_bytes, c.peak_bytes);
  if (b->program != MOEC_FORWARD) {
    printf("bytes: gradients %" PRIu64 ", optimizer %" PRIu64 "\n", c.gradient_bytes,
           c.optimizer_bytes);
  }
  moec_rt_stages_print(b->m, b->program);
  for (uint32_t i = 0; i < moec_step_class_count(b->m); i++) {
    moec_step_class k;
    moec_status_free(moec_step_class_get(b->m, i, &k));
    if (!k.steps) continue;
    printf("  %-18s %6" PRIu64 " steps %12.3f ms %14" PRIu64 " bytes\n", k.name, k.steps,
           (double)k.ns / 1e6 / b->timed, k.bytes);
  }
  moec_rt_census_print(&b->table);
  print_window(b);
  if (b->kernels) moec_rt_table_print(&b->table);
}

moec_status *moec_rt_bench_write(const moec_rt_bench *b) {
  json_t *o = report(b);
  char *text = o ? json_dumps(o, JSON_INDENT(2)) : NULL;
  json_decref(o);
  if (!text) return moec_error(MOEC_OUT_OF_MEMORY, "no memory for the report");
  moec_status *s = moec_write_file(b->json, text, strlen(text), 0644);
  free(text);
  return s;
}

