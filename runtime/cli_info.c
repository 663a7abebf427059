/* info: what a compiled model is. */
#include <inttypes.h>
#include <stdio.h>

#include "base/status.h"
#include "runtime/cli.h"
#include "runtime/model.h"

static void print_bytes(const char *what, uint64_t bytes) {
  printf("%-22s %" PRIu64 " (%.1f MiB)\n", what, bytes, (double)bytes / 1048576);
}

static moec_status *print_list(const moec_model *m, moec_list list, const char *title) {
  printf("%s\n", title);
  for (uint32_t i = 0; i < moec_count(m, list); i++) {
    moec_description d;
    MOEC_TRY(moec_describe(m, list, i, &d));
    printf("  %s %s[", d.name, d.dtype_name);
    for (uint32_t a = 0; a < d.rank; a++) printf("%s%s", a ? ", " : "", d.dims[a]);
    putchar(']');
    if (d.has_default) printf(", %g where it is left out", d.default_value);
    putchar('\n');
  }
  return NULL;
}

static void print_params(const moec_rt_plan *p) {
  uint64_t elements[2] = {0}, bytes = 0;
  uint32_t trainable = 0;
  for (uint32_t i = 0; i < p->n_params; i++) {
    const moec_plan_tensor *t = &p->tensors[p->params[i].tensor];
    uint64_t size = (uint64_t)p->static_values[p->buffers[t->buffer].bytes];
    elements[p->params[i].group == 1] += size / moec_dtype_get((moec_dtype)t->dtype)->bytes;
    bytes += size;
    trainable += p->params[i].trainable != 0;
  }
  printf("parameters             %u, %u trainable; %" PRIu64 " elements, %" PRIu64 " of experts\n",
         p->n_params, trainable, elements[0] + elements[1], elements[1]);
  print_bytes("parameter bytes", bytes);
}

static void print_trained(const moec_model *m) {
  if (!moec_has_program(m, MOEC_TRAIN) && !moec_has_program(m, MOEC_VJP)) return;
  puts("trained parameters");
  for (uint32_t i = 0; i < moec_count(m, MOEC_PARAMETERS); i++) {
    moec_description d;
    moec_status_free(moec_describe(m, MOEC_PARAMETERS, i, &d)); /* |i| is in range */
    if (!d.has_gradient) continue;
    printf("  %s %s[", d.name, d.dtype_name);
    for (uint32_t a = 0; a < d.rank; a++) printf("%s%s", a ? ", " : "", d.dims[a]);
    puts(d.expert ? "] experts" : "]");
  }
}

static void print_program(const moec_rt_plan *p) {
  puts("functions");
  for (uint32_t i = 0; i < p->n_functions; i++) {
    const moec_plan_function *f = &p->functions[i];
    printf("  %s: called %u times, %u kernels\n", moec_rt_str(p, f->name), f->n_calls,
           f->n_kernels);
  }
  puts("kernels");
  for (uint32_t i = 0; i < p->n_kernels; i++) {
    printf("  %s: %s\n", moec_rt_str(p, p->kernels[i].name), moec_rt_str(p, p->kernels[i].what));
  }
  puts("MoE layers");
  for (uint32_t i = 0; i < p->n_moe_layers; i++) {
    const moec_plan_moe *l = &p->moe_layers[i];
    if (l->schedule != MOEC_AT_STEP) continue;
    printf("  %u %s: %u experts, %u a token\n", i, moec_rt_str(p, l->name), l->experts, l->k);
  }
  static const char *const schedules[] = {"load", "bind", "forward", "train", "vjp"};
  for (int s = 0; s < MOEC_SCHEDULE_COUNT; s++) {
    printf("steps at %-13s %u\n", schedules[s], p->schedule_begin[s + 1] - p->schedule_begin[s]);
  }
}

static moec_status *print_memory(moec_model *m) {
  static const char *const peaks[] = {"forward peak", "train peak", "vjp peak"};
  static const char *const all[] = {"forward in all", "train in all", "vjp in all"};
  moec_counters c;
  for (int k = 0; k < MOEC_PROGRAM_COUNT; k++) {
    if (moec_has_program(m, (moec_program)k)) MOEC_TRY(moec_place(m, (moec_program)k));
  }
  moec_counters_get(m, &c);
  for (uint32_t i = 0; i < moec_symbol_count(m); i++) {
    const char *name;
    int64_t value;
    MOEC_TRY(moec_symbol(m, i, &name, &value));
    printf("%-22s %" PRId64 "\n", name, value);
  }
  printf("kernels a step         %" PRIu64 "\n", c.kernels_per_step);
  printf("library calls a step   %" PRIu64 "\n", c.library_per_step);
  printf("MoE calls a step       %" PRIu64 "\n", c.moe_per_step);
  printf("flops a step           %" PRIu64 "\n", c.flops_per_step);
  print_bytes("load buffers", c.load_bytes);
  print_bytes("bind buffers", c.bind_bytes);
  for (int k = 0; k < MOEC_PROGRAM_COUNT; k++) {
    if (moec_has_program(m, (moec_program)k)) print_bytes(peaks[k], c.program_bytes[k]);
  }
  for (int k = 0; k < MOEC_PROGRAM_COUNT; k++) {
    if (moec_has_program(m, (moec_program)k)) print_bytes(all[k], c.planned_bytes[k]);
  }
  if (c.planned_update_bytes) print_bytes("and an update (AdamW)", c.planned_update_bytes);
  return NULL;
}

static moec_status *print_all(moec_model *m, const moec_rt_list *dims) {
  const moec_rt_plan *p = &m->plan;
  printf("model                  %s\n", moec_rt_str(p, p->header->model));
  printf("options                %s\n", moec_rt_str(p, p->header->options));
  printf("target                 %s %s\n", moec_rt_str(p, p->header->target),
         moec_rt_str(p, p->header->cpu));
  MOEC_TRY(print_list(m, MOEC_INPUTS, "inputs"));
  MOEC_TRY(print_list(m, MOEC_OUTPUTS, "outputs"));
  print_params(p);
  print_trained(m);
  for (uint32_t i = 0; i < p->n_files; i++) {
    printf("weights                %s, %" PRIu64 " bytes\n", moec_rt_str(p, p->files[i].name),
           p->files[i].size);
  }
  print_program(p);
  return dims->n ? print_memory(m) : NULL;
}

moec_status *moec_rt_cli_info(int argc, char **argv) {
  moec_options options = {.describe = 1};
  moec_rt_list dims = {0};
  bool trust = false;
  moec_model *m = NULL;
  const moec_rt_flag flags[] = {
      {"--dim", MOEC_RT_LIST, &dims, 0},
      {"--weights", MOEC_RT_TEXT, &options.weights_dir, 0},
      {"--threads", MOEC_RT_INT, &options.threads, 1},
      {"--trust-weights", MOEC_RT_SWITCH, &trust, 0},
  };
  moec_status *s = moec_rt_flags_parse(flags, sizeof flags / sizeof *flags, argc, argv);
  options.trust_weights = trust;
  if (!s) s = moec_rt_open_self(&options, &m);
  if (!s && dims.n) s = moec_rt_bind_dims(m, &dims);
  if (!s) s = print_all(m, &dims);
  moec_close(m);
  moec_rt_list_fini(&dims);
  return s;
}
