/* run: inputs from .npy files, one step of forward, outputs to .npy files or as a line each. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "runtime/cli_io.h"
#include "runtime/ops.h"

typedef struct run {
  moec_rt_list inputs, outputs;
  const char *routes_out;
  moec_options options;
  moec_model *m;
  moec_tensor *tensors; /* by input; dtype NONE: not given */
  const char **files;   /* by output; NULL: not asked for */
} run;

enum { FORWARD = 1u << MOEC_FORWARD };

/* ---- outputs ----------------------------------------------------------------------------- */

static moec_status *choose_outputs(run *r) {
  for (size_t k = 0; k < r->outputs.n; k++) {
    char name[MOEC_RT_NAME];
    const char *file;
    uint32_t i;
    moec_description d;
    MOEC_TRY(moec_rt_split("--output", r->outputs.items[k], name, sizeof name, &file));
    MOEC_TRY(moec_find(r->m, MOEC_OUTPUTS, name, &i));
    MOEC_TRY(moec_describe(r->m, MOEC_OUTPUTS, i, &d));
    if (!(d.programs & FORWARD))
      return moec_wrong("output \"%s\": forward has no such output", name);
    if (r->files[i]) return moec_wrong("output \"%s\" was given twice", name);
    r->files[i] = file;
  }
  return NULL;
}

static moec_status *print_summary(run *r, uint32_t i) {
  moec_view v;
  moec_description d;
  char shape[MOEC_RT_SHAPE_TEXT];
  MOEC_TRY(moec_describe(r->m, MOEC_OUTPUTS, i, &d));
  MOEC_TRY(moec_output(r->m, i, &v));
  moec_tensor t = moec_rt_as_tensor(&v);
  int64_t n = moec_tensor_numel(&t), nans = 0;
  double min = INFINITY, max = -INFINITY, sum = 0;
  for (int64_t k = 0; k < n; k++) {
    double x = moec_load_f64(t.dtype, t.data, (size_t)k);
    nans += isnan(x) != 0;
    min = x < min ? x : min;
    max = x > max ? x : max;
    sum += x;
  }
  printf("%s %s", d.name, moec_rt_shape_text(t.dtype, t.rank, t.dims, shape, sizeof shape));
  if (n) printf(" min %g max %g mean %g", min, max, sum / (double)n);
  if (nans) printf(" (%" PRId64 " NaN)", nans);
  putchar('\n');
  return NULL;
}

static moec_status *write_outputs(run *r) {
  for (uint32_t i = 0; i < moec_count(r->m, MOEC_OUTPUTS); i++) {
    moec_description d;
    MOEC_TRY(moec_describe(r->m, MOEC_OUTPUTS, i, &d));
    if (r->outputs.n == 0 && d.programs & FORWARD) MOEC_TRY(print_summary(r, i));
    if (!r->files[i]) continue;
    moec_view v;
    MOEC_TRY(moec_output(r->m, i, &v));
    moec_tensor t = moec_rt_as_tensor(&v);
    MOEC_TRY(moec_npy_write(r->files[i], &t));
  }
  return NULL;
}

static moec_status *write_routes(const run *r) {
  moec_rt_bag bag = {0};
  moec_status *s = moec_rt_bag_add_routes(&bag, r->m);
  if (!s) s = moec_rt_bag_write(&bag, r->routes_out);
  moec_rt_bag_fini(&bag);
  return s;
}

/* ---- the command ------------------------------------------------------------------------- */

static moec_status *work(run *r, int argc, char **argv) {
  bool trust = false;
  const moec_rt_flag flags[] = {
      {"--input", MOEC_RT_LIST, &r->inputs, 0},
      {"--output", MOEC_RT_LIST, &r->outputs, 0},
      {"--routes-out", MOEC_RT_TEXT, &r->routes_out, 0},
      {"--weights", MOEC_RT_TEXT, &r->options.weights_dir, 0},
      {"--threads", MOEC_RT_INT, &r->options.threads, 1},
      {"--trust-weights", MOEC_RT_SWITCH, &trust, 0},
  };
  MOEC_TRY(moec_rt_flags_parse(flags, sizeof flags / sizeof *flags, argc, argv));
  r->options.trust_weights = trust;
  MOEC_TRY(moec_rt_open_self(&r->options, &r->m));
  r->files = calloc((size_t)moec_count(r->m, MOEC_OUTPUTS) + 1, sizeof *r->files);
  if (!r->files) return moec_error(MOEC_OUT_OF_MEMORY, "no memory for outputs");
  MOEC_TRY(choose_outputs(r));
  MOEC_TRY(moec_rt_read_inputs(r->m, &r->inputs, FORWARD, &r->tensors));
  MOEC_TRY(moec_forward(r->m));
  MOEC_TRY(write_outputs(r));
  return r->routes_out ? write_routes(r) : NULL;
}

moec_status *moec_rt_cli_run(int argc, char **argv) {
  run r = {0};
  moec_status *s = work(&r, argc, argv);
  moec_rt_free_inputs(r.m, r.tensors);
  free(r.files);
  moec_close(r.m);
  moec_rt_list_fini(&r.inputs);
  moec_rt_list_fini(&r.outputs);
  return s;
}
