/* The way into the interpreter and out of it: sizes, inputs, outputs. */
#include "ir/interp.h"

#include <stdlib.h>

#include "ir/interp_internal.h"

#define DEFAULT_MEMORY_LIMIT ((size_t)8 << 30)

/* The caller's tensor as a value: doubles or 64-bit integers. */
static moec_status *take_input(moec_interp *ip, const moec_graph *g, size_t i, const moec_tensor *t,
                               moec_tensor *out) {
  moec_value v = g->inputs[i];
  const char *name = moec_sym_str(ip->m, moec_value_get(g, v)->name);
  moec_dtype want = moec_ty(g, v).dtype;
  bool is_float = moec_dtype_is_float(want);
  if (t->dtype != want && !(ip->options.f64 && is_float && t->dtype == MOEC_F64))
    return MOEC_RUN_ERROR("input \"%s\": expected %s, got %s", name, moec_dtype_get(want)->text,
                          moec_dtype_get(t->dtype)->text);
  if (!t->data && moec_tensor_numel(t))
    return MOEC_RUN_ERROR("input \"%s\": expected data, got none", name);
  MOEC_TRY(moec_context(moec_interp_new(ip, is_float ? MOEC_F64 : MOEC_I64, t->rank, t->dims, out),
                        "input \"%s\"", name));
  moec_interp_read(t, out);
  return NULL;
}

/* A value as the tensor that is handed out. */
static moec_status *give_output(moec_interp *ip, moec_dtype want, moec_tensor *value,
                                moec_tensor *out) {
  bool is_float = moec_is_f64(value);
  MOEC_TRY(moec_tensor_init(out, is_float && ip->options.f64 ? MOEC_F64 : want, value->rank,
                            value->dims));
  int64_t n = moec_tensor_numel(value);
  for (int64_t i = 0; i < n; i++) {
    if (is_float)
      moec_store_f64(out->dtype, out->data, (size_t)i, ((double *)value->data)[i]);
    else
      moec_store_i64(out->dtype, out->data, (size_t)i, ((int64_t *)value->data)[i]);
  }
  moec_interp_free(ip, value);
  return NULL;
}

typedef struct boundary {
  moec_tensor *in, *out; /* values */
  const moec_tensor **in_ptrs;
} boundary;

static moec_status *run_between(moec_interp *ip, moec_fn fn, const moec_tensor *inputs,
                                size_t n_inputs, moec_tensor *outputs, size_t n_outputs,
                                boundary *k) {
  const moec_graph *g = moec_fn_get(ip->m, fn);
  k->in = calloc(n_inputs + 1, sizeof *k->in);
  k->out = calloc(n_outputs + 1, sizeof *k->out);
  k->in_ptrs = calloc(n_inputs + 1, sizeof *k->in_ptrs);
  if (!k->in || !k->out || !k->in_ptrs)
    return moec_error(MOEC_OUT_OF_MEMORY, "no memory for inputs");
  for (size_t i = 0; i < n_inputs; i++) {
    MOEC_TRY(take_input(ip, g, i, &inputs[i], &k->in[i]));
    k->in_ptrs[i] = &k->in[i];
  }
  MOEC_TRY(moec_interp_call(ip, fn, (uint32_t)n_inputs, k->in_ptrs, (uint32_t)n_outputs, k->out));
  for (size_t i = 0; i < n_outputs; i++)
    MOEC_TRY(give_output(ip, moec_ty(g, g->outputs[i]).dtype, &k->out[i], &outputs[i]));
  return NULL;
}

static moec_status *run_module(moec_interp *ip, moec_fn fn, const moec_tensor *inputs,
                               size_t n_inputs, moec_tensor *outputs, size_t n_outputs) {
  boundary k = {0};
  ip->bodies = MOEC_NEW_ARRAY(ip->m->arena, moec_fn *, ip->source->n_fns);
  moec_status *e = run_between(ip, fn, inputs, n_inputs, outputs, n_outputs, &k);
  for (size_t i = 0; k.in && i < n_inputs; i++) moec_interp_free(ip, &k.in[i]);
  for (size_t i = 0; k.out && i < n_outputs; i++) moec_interp_free(ip, &k.out[i]);
  for (size_t i = 0; e && i < n_outputs; i++) moec_tensor_fini(&outputs[i]);
  free(k.in);
  free(k.out);
  free(k.in_ptrs);
  return e;
}

moec_status *moec_interp_run(const moec_module *m, moec_fn fn, const moec_tensor *inputs,
                             size_t n_inputs, moec_tensor *outputs, size_t n_outputs,
                             const moec_interp_options *options) {
  for (size_t i = 0; i < n_outputs; i++) outputs[i] = (moec_tensor){0};
  if (fn.i == 0 || fn.i >= m->n_fns)
    return moec_error(MOEC_INVALID_ARGUMENT, "expected a function, got number %u", fn.i);
  const moec_graph *g = moec_fn_get(m, fn);
  if (n_outputs != g->n_outputs)
    return MOEC_RUN_ERROR("expected room for %zu outputs, got %zu", g->n_outputs, n_outputs);
  int64_t *symbols = calloc(moec_dim_symbol_count(m) + 1, sizeof *symbols);
  if (!symbols) return moec_error(MOEC_OUT_OF_MEMORY, "no memory for symbols");
  moec_status *e = moec_bind_symbols(m, g, inputs, n_inputs, symbols);
  if (!e) {
    moec_interp ip = {.m = moec_module_clone(m), .source = m, .symbols = symbols};
    if (options) ip.options = *options;
    if (!ip.options.memory_limit) ip.options.memory_limit = DEFAULT_MEMORY_LIMIT;
    e = run_module(&ip, fn, inputs, n_inputs, outputs, n_outputs);
    moec_module_destroy(ip.m);
  }
  free(symbols);
  return e;
}
