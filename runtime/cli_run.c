/* run: inputs from .npy files, one step, outputs to .npy files or as a line each. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/safetensors.h"
#include "base/status.h"
#include "runtime/cli.h"
#include "runtime/convert.h"
#include "runtime/ops.h"

typedef struct run {
  moec_rt_list inputs, outputs;
  const char *routes_out;
  moec_options options;
  moec_model *m;
  moec_tensor *tensors; /* by input; dtype NONE: not given */
  const char **files;   /* by output; NULL: not asked for */
} run;

enum { NAME = 1024 };

static moec_status *wrong(const char *fmt, ...) MOEC_PRINTF(1, 2);
static moec_status *wrong(const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  moec_status *s = moec_errorv(MOEC_INVALID_ARGUMENT, fmt, args);
  va_end(args);
  return s;
}

/* ---- inputs ------------------------------------------------------------------------------ */

static bool is_integer(moec_dtype t) {
  char cls = moec_dtype_get(t)->cls;
  return cls == 'I' || cls == 'U';
}

/* Whether value |i| of |from| is the same number in |to|. */
static bool same_number(const moec_tensor *from, const moec_tensor *to, size_t i) {
  int64_t a = moec_load_i64(from->dtype, from->data, i), b = moec_load_i64(to->dtype, to->data, i);
  bool sign_changes = a < 0 && (moec_dtype_get(from->dtype)->cls != moec_dtype_get(to->dtype)->cls);
  return a == b && !sign_changes;
}

/* |t| as |dtype|: integers where every value survives, f32 to the types .npy files have no
 * room for. Anything else stays as it is, for moec_input_borrow() to refuse. */
static moec_status *convert_input(const char *name, moec_dtype dtype, moec_tensor *t) {
  bool integers = is_integer(dtype) && is_integer(t->dtype);
  bool narrow = t->dtype == MOEC_F32 && (dtype == MOEC_BF16 || dtype == MOEC_F16);
  if (t->dtype == dtype || (!integers && !narrow)) return NULL;
  moec_tensor to;
  MOEC_TRY(moec_tensor_init(&to, dtype, t->rank, t->dims));
  int64_t n = moec_tensor_numel(t);
  moec_rt_convert(dtype, to.data, 1, t->dtype, t->data, 1, n);
  for (int64_t i = 0; integers && i < n; i++) {
    if (same_number(t, &to, (size_t)i)) continue;
    moec_tensor_fini(&to);
    int64_t v = moec_load_i64(t->dtype, t->data, (size_t)i);
    bool huge = v < 0 && moec_dtype_get(t->dtype)->cls == 'U';
    return wrong("input \"%s\": expected %s, got the %s value %s%" PRIu64 ", which is none", name,
                 moec_dtype_get(dtype)->text, moec_dtype_get(t->dtype)->text, v < 0 && !huge ? "-" : "",
                 v < 0 && !huge ? 0 - (uint64_t)v : (uint64_t)v);
  }
  moec_tensor_fini(t);
  *t = to;
  return NULL;
}

static moec_status *read_input(run *r, const char *argument) {
  char name[NAME];
  const char *file;
  uint32_t i;
  moec_description d;
  MOEC_TRY(moec_rt_split("--input", argument, name, sizeof name, &file));
  MOEC_TRY(moec_find(r->m, MOEC_INPUTS, name, &i));
  if (r->tensors[i].dtype != MOEC_DTYPE_NONE) return wrong("input \"%s\" was given twice", name);
  MOEC_TRY(moec_describe(r->m, MOEC_INPUTS, i, &d));
  MOEC_TRY(moec_context(moec_npy_read(file, &r->tensors[i]), "input \"%s\"", name));
  MOEC_TRY(convert_input(name, (moec_dtype)d.dtype, &r->tensors[i]));
  moec_tensor *t = &r->tensors[i];
  moec_view v = {.data = t->data, .dtype = (int)t->dtype, .rank = t->rank};
  memcpy(v.dims, t->dims, sizeof v.dims);
  return moec_input_borrow(r->m, i, &v);
}

static moec_status *read_inputs(run *r) {
  for (size_t k = 0; k < r->inputs.n; k++) MOEC_TRY(read_input(r, r->inputs.items[k]));
  for (uint32_t i = 0; i < moec_count(r->m, MOEC_INPUTS); i++) {
    moec_description d;
    if (r->tensors[i].dtype != MOEC_DTYPE_NONE) continue;
    MOEC_TRY(moec_describe(r->m, MOEC_INPUTS, i, &d));
    if (d.has_default) continue;
    return wrong("input \"%s\": expected --input %s=FILE.npy, got none", d.name, d.name);
  }
  return NULL;
}

/* ---- outputs ----------------------------------------------------------------------------- */

static moec_status *choose_outputs(run *r) {
  for (size_t k = 0; k < r->outputs.n; k++) {
    char name[NAME];
    const char *file;
    uint32_t i;
    MOEC_TRY(moec_rt_split("--output", r->outputs.items[k], name, sizeof name, &file));
    MOEC_TRY(moec_find(r->m, MOEC_OUTPUTS, name, &i));
    if (r->files[i]) return wrong("output \"%s\" was given twice", name);
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
    if (r->outputs.n == 0) MOEC_TRY(print_summary(r, i));
    if (!r->files[i]) continue;
    moec_view v;
    MOEC_TRY(moec_output(r->m, i, &v));
    moec_tensor t = moec_rt_as_tensor(&v);
    MOEC_TRY(moec_npy_write(r->files[i], &t));
  }
  return NULL;
}

/* ---- routes ------------------------------------------------------------------------------ */

/* A copy of |v| as |dtype| [tokens, k]. */
static moec_status *route_tensor(const moec_view *v, moec_dtype dtype, moec_tensor *out) {
  moec_tensor from = moec_rt_as_tensor(v);
  int64_t k = from.rank ? from.dims[from.rank - 1] : 1, n = moec_tensor_numel(&from);
  const int64_t dims[] = {k ? n / k : 0, k};
  MOEC_TRY(moec_tensor_init(out, dtype, 2, dims));
  moec_rt_convert(dtype, out->data, 1, from.dtype, from.data, 1, n);
  return NULL;
}

static moec_status *collect_routes(run *r, char (*names)[40], moec_tensor *tensors, size_t *n) {
  for (uint32_t i = 0; i < moec_route_count(r->m); i++) {
    moec_layer_routes l;
    MOEC_TRY(moec_route(r->m, i, &l));
    if (l.indices.dtype) {
      snprintf(names[*n], sizeof *names, "route.%u.indices", i);
      MOEC_TRY(route_tensor(&l.indices, MOEC_I64, &tensors[*n]));
      ++*n;
    }
    if (l.weights.dtype) {
      snprintf(names[*n], sizeof *names, "route.%u.weights", i);
      MOEC_TRY(route_tensor(&l.weights, MOEC_F32, &tensors[*n]));
      ++*n;
    }
  }
  return NULL;
}

static moec_status *write_routes(run *r) {
  size_t most = 2 * (size_t)moec_route_count(r->m) + 1, n = 0;
  char(*names)[40] = calloc(most, sizeof *names);
  const char **pointers = calloc(most, sizeof *pointers);
  moec_tensor *tensors = calloc(most, sizeof *tensors);
  moec_status *s = names && pointers && tensors
                       ? collect_routes(r, names, tensors, &n)
                       : moec_error(MOEC_OUT_OF_MEMORY, "no memory for routes");
  for (size_t i = 0; !s && i < n; i++) pointers[i] = names[i];
  if (!s) s = moec_safetensors_write(r->routes_out, n, pointers, tensors);
  for (size_t i = 0; tensors && i < n; i++) moec_tensor_fini(&tensors[i]);
  free(tensors);
  free(pointers);
  free(names);
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
  r->tensors = calloc((size_t)moec_count(r->m, MOEC_INPUTS) + 1, sizeof *r->tensors);
  r->files = calloc((size_t)moec_count(r->m, MOEC_OUTPUTS) + 1, sizeof *r->files);
  if (!r->tensors || !r->files) return moec_error(MOEC_OUT_OF_MEMORY, "no memory for inputs");
  MOEC_TRY(choose_outputs(r));
  MOEC_TRY(read_inputs(r));
  MOEC_TRY(moec_forward(r->m));
  MOEC_TRY(write_outputs(r));
  return r->routes_out ? write_routes(r) : NULL;
}

moec_status *moec_rt_cli_run(int argc, char **argv) {
  run r = {0};
  moec_status *s = work(&r, argc, argv);
  for (uint32_t i = 0; r.tensors && i < moec_count(r.m, MOEC_INPUTS); i++) {
    moec_tensor_fini(&r.tensors[i]);
  }
  free(r.tensors);
  free(r.files);
  moec_close(r.m);
  moec_rt_list_fini(&r.inputs);
  moec_rt_list_fini(&r.outputs);
  return s;
}
