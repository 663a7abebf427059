/* grad: one step of loss and gradients, everything that comes out into one .safetensors file. Where an
 * input `grad.OUTPUT` is given, the gradients are those of the outputs' product with it instead. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/safetensors.h"
#include "base/status.h"
#include "runtime/cli_io.h"
#include "runtime/convert.h"

typedef struct grad {
  moec_rt_list inputs;
  const char *out, *routes;
  bool outputs;
  moec_options options;
  moec_model *m;
  moec_tensor *tensors; /* by input */
  moec_tensor *forced;  /* by MoE layer */
  uint32_t n_forced;
  moec_rt_bag bag;
} grad;

/* ---- routes ------------------------------------------------------------------------------ */

static moec_status *force_layer(grad *g, const moec_safetensors *st, uint32_t layer) {
  char name[40];
  moec_tensor *to = &g->forced[layer];
  snprintf(name, sizeof name, "route.%u.indices", layer);
  const moec_st_entry *e = moec_safetensors_find(st, name);
  if (!e) return moec_wrong("expected a tensor %s, got none", name);
  const moec_tensor *t = &e->tensor;
  if (t->dtype != MOEC_I64 || t->rank != 2) {
    return moec_wrong("%s: expected i64 of rank 2, got %s of rank %u", name,
                      moec_dtype_get(t->dtype)->text, t->rank);
  }
  MOEC_TRY(moec_tensor_init(to, MOEC_I64, 2, t->dims)); /* in the file it is not aligned */
  if (moec_tensor_bytes(t)) memcpy(to->data, t->data, moec_tensor_bytes(t));
  const moec_view v = {to->data, MOEC_DTYPE_I64, 2, {t->dims[0], t->dims[1]}};
  return moec_force_routes(g->m, layer, &v);
}

/* Every layer's: half a file of routes is a mistake. */
static moec_status *force_routes(grad *g) {
  moec_safetensors *st;
  g->n_forced = moec_route_count(g->m);
  if (!g->n_forced) return moec_wrong("--routes: this model has no MoE layer");
  g->forced = calloc(g->n_forced, sizeof *g->forced);
  if (!g->forced) return moec_error(MOEC_OUT_OF_MEMORY, "no memory for routes");
  MOEC_TRY(moec_safetensors_open(g->routes, &st));
  moec_status *s = NULL;
  for (uint32_t i = 0; !s && i < g->n_forced; i++) s = force_layer(g, st, i);
  moec_safetensors_close(st);
  return moec_context(s, "%s", g->routes);
}

/* ---- the step ---------------------------------------------------------------------------- */

/* MOEC_VJP where an input is given that only it has. */
static moec_status *choose_program(const grad *g, moec_program *out) {
  *out = moec_has_program(g->m, MOEC_TRAIN) ? MOEC_TRAIN : MOEC_VJP;
  for (size_t k = 0; k < g->inputs.n; k++) {
    char name[MOEC_RT_NAME];
    const char *file;
    uint32_t i;
    moec_description d;
    MOEC_TRY(moec_rt_split("--input", g->inputs.items[k], name, sizeof name, &file));
    MOEC_TRY(moec_find(g->m, MOEC_INPUTS, name, &i));
    MOEC_TRY(moec_describe(g->m, MOEC_INPUTS, i, &d));
    if (d.programs == 1u << MOEC_VJP) *out = MOEC_VJP;
  }
  return NULL;
}

/* A trainable parameter that no gradient reaches: zeros, as many as it has elements. */
static moec_status *add_zeros(grad *g, uint32_t i, const char *name) {
  moec_view v;
  moec_tensor zeros;
  MOEC_TRY(moec_parameter(g->m, i, &v));
  MOEC_TRY(moec_tensor_init(&zeros, MOEC_F32, v.rank, v.dims));
  v.dtype = MOEC_DTYPE_F32;
  v.data = zeros.data;
  moec_status *s = moec_rt_bag_add(&g->bag, "grad.", name, &v, MOEC_DTYPE_NONE);
  moec_tensor_fini(&zeros);
  return s;
}

static moec_status *add_gradients(grad *g) {
  for (uint32_t i = 0; i < moec_count(g->m, MOEC_PARAMETERS); i++) {
    moec_description d;
    moec_view v;
    MOEC_TRY(moec_describe(g->m, MOEC_PARAMETERS, i, &d));
    if (!d.has_gradient && d.trainable) MOEC_TRY(add_zeros(g, i, d.name));
    if (!d.has_gradient) continue;
    MOEC_TRY(moec_gradient(g->m, i, &v));
    MOEC_TRY(moec_rt_bag_add(&g->bag, "grad.", d.name, &v, MOEC_DTYPE_NONE));
  }
  return NULL;
}

/* How many rows each expert of |layer| got, i64 [experts]: of the forward pass, also where it is replayed. */
static moec_status *add_counts(grad *g, uint32_t layer) {
  moec_layer_routes l;
  moec_tensor counts;
  char name[40];
  MOEC_TRY(moec_route(g->m, layer, &l));
  if (!l.offsets.data) return NULL;
  const int32_t *offsets = l.offsets.data;
  int64_t experts = l.offsets.dims[0] - 1;
  MOEC_TRY(moec_tensor_init(&counts, MOEC_I64, 1, &experts));
  for (int64_t e = 0; e < experts; e++) ((int64_t *)counts.data)[e] = offsets[e + 1] - offsets[e];
  snprintf(name, sizeof name, "%u", layer);
  const moec_view v = {counts.data, MOEC_DTYPE_I64, 1, {experts}};
  moec_status *s = moec_rt_bag_add(&g->bag, "tokens_per_expert.", name, &v, MOEC_DTYPE_NONE);
  moec_tensor_fini(&counts);
  return s;
}

static moec_status *run(grad *g) {
  moec_program program;
  MOEC_TRY(choose_program(g, &program));
  unsigned programs = 1u << program | (g->outputs ? 1u << MOEC_FORWARD : 0);
  MOEC_TRY(moec_rt_read_inputs(g->m, &g->inputs, programs, &g->tensors));
  if (g->routes) MOEC_TRY(force_routes(g));
  if (g->outputs) {
    MOEC_TRY(moec_forward(g->m));
    MOEC_TRY(moec_rt_bag_add_outputs(&g->bag, g->m, MOEC_FORWARD, "output."));
  }
  MOEC_TRY(program == MOEC_TRAIN ? moec_loss_and_gradients(g->m, 0, NULL) : moec_vjp(g->m, 0));
  MOEC_TRY(moec_rt_bag_add_outputs(&g->bag, g->m, program, ""));
  MOEC_TRY(moec_rt_bag_add_routes(&g->bag, g->m));
  for (uint32_t i = 0; i < moec_route_count(g->m); i++) MOEC_TRY(add_counts(g, i));
  MOEC_TRY(add_gradients(g));
  return moec_rt_bag_write(&g->bag, g->out);
}

static moec_status *work(grad *g, int argc, char **argv) {
  bool trust = false;
  const moec_rt_flag flags[] = {
      {"--input", MOEC_RT_LIST, &g->inputs, 0},
      {"-o", MOEC_RT_TEXT, &g->out, 0},
      {"--routes", MOEC_RT_TEXT, &g->routes, 0},
      {"--outputs", MOEC_RT_SWITCH, &g->outputs, 0},
      {"--weights", MOEC_RT_TEXT, &g->options.weights_dir, 0},
      {"--threads", MOEC_RT_INT, &g->options.threads, 1},
      {"--trust-weights", MOEC_RT_SWITCH, &trust, 0},
  };
  MOEC_TRY(moec_rt_flags_parse(flags, sizeof flags / sizeof *flags, argc, argv));
  g->options.trust_weights = trust;
  MOEC_TRY(moec_rt_open_self(&g->options, &g->m));
  if (!moec_has_program(g->m, MOEC_TRAIN) && !moec_has_program(g->m, MOEC_VJP)) {
    return moec_loss_and_gradients(g->m, 0, NULL); /* says so */
  }
  if (!g->out) return moec_wrong("expected -o OUT.safetensors, got none");
  return run(g);
}

moec_status *moec_rt_cli_grad(int argc, char **argv) {
  grad g = {0};
  moec_status *s = work(&g, argc, argv);
  moec_rt_free_inputs(g.m, g.tensors);
  for (uint32_t i = 0; g.forced && i < g.n_forced; i++) moec_tensor_fini(&g.forced[i]);
  free(g.forced);
  moec_rt_bag_fini(&g.bag);
  moec_close(g.m);
  moec_rt_list_fini(&g.inputs);
  return s;
}
