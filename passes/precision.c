/* Precision: the dtype every op computes and stores in.
 *
 * Every float is computed and stored as f32, whatever the model says: bf16 and f16 parameters keep their storage dtype
 * and get an f32 compute copy at load, activations are f32, casts between float dtypes vanish. That is never less exact
 * than the model asked for, and the CPU has no faster narrow arithmetic to win by rounding. f64 models stay f64. For
 * bf16, which only the cuda target has, some of it becomes bf16 then: passes/precision_narrow.c. */
#include "passes/precision.h"

static bool narrow(moec_dtype t) { return t == MOEC_BF16 || t == MOEC_F16; }

static moec_type widen(moec_module *m, moec_type t) {
  return narrow(moec_type_get(m, t).dtype) ? moec_type_with_dtype(m, t, MOEC_F32) : t;
}

/* The same constant in f32. */
static const moec_const *widen_const(moec_module *m, const moec_const *c) {
  moec_dtype from = moec_type_get(m, c->type).dtype;
  size_t n = c->size / moec_dtype_get(from)->bytes;
  float *data = MOEC_NEW_ARRAY(m->arena, float, n + 1);
  for (size_t i = 0; i < n; i++) data[i] = (float)moec_load_f64(from, c->bytes, i);
  moec_const *wide = MOEC_NEW(m->arena, moec_const);
  *wide = (moec_const){widen(m, c->type), data, n * sizeof *data};
  return wide;
}

/* Attribute structs are the node's own copies: edited in place. */
static void widen_attrs(moec_module *m, moec_node_info *p) {
  const moec_op_info *info = moec_op_get(p->op);
  for (uint32_t i = 0; i < info->n_attrs; i++) {
    void *at = (char *)(uintptr_t)p->attrs + info->attrs[i].offset;
    if (info->attrs[i].kind == MOEC_ATTR_E && narrow(*(moec_dtype *)at)) *(moec_dtype *)at = MOEC_F32;
    if (info->attrs[i].kind == MOEC_ATTR_DATA) {
      const moec_const **c = at;
      if (narrow(moec_type_get(m, (*c)->type).dtype)) *c = widen_const(m, *c);
    }
  }
}

static void widen_graph(moec_module *m, moec_graph *g) {
  for (size_t v = 1; v < g->n_values; v++) {
    bool input = g->values[v].def.i == 0;
    /* the types of graph inputs and outputs are the model's interface: see below */
    if (!(input && g == moec_main(m))) moec_set_type(g, (moec_value){(uint32_t)v}, widen(m, g->values[v].type));
  }
  for (size_t n = 1; n < g->n_nodes; n++) widen_attrs(m, &g->nodes[n]);
}

/* A narrow input of main is cast once; everything behind it is f32. Narrow outputs come out as f32. */
static moec_status *widen_inputs(moec_graph *g) {
  for (size_t i = 0; i < g->n_inputs; i++) {
    moec_value v = g->inputs[i];
    if (!narrow(moec_ty(g, v).dtype)) continue;
    moec_builder b = moec_builder_on(g);
    moec_value wide = moec_b_cast(&b, v, MOEC_F32);
    MOEC_TRY(moec_builder_end(&b));
    moec_replace_uses(g, v, wide);
    moec_set_input(g, moec_def(g, wide), 0, v);
  }
  return NULL;
}

/* Whether the module is to compute in bf16: because it is asked for or, on a GPU, because the model does. */
static bool wants_bf16(const moec_module *m, const moec_compile_options *o) {
  bool bf16 = o->precision == MOEC_PRECISION_BF16;
  for (size_t i = 1; i < m->n_params && o->precision == MOEC_PRECISION_MODEL && o->target == MOEC_TARGET_CUDA; i++)
    bf16 = bf16 || m->params[i].compute == MOEC_BF16;
  return bf16;
}

moec_status *moec_pass_precision(moec_module *m, moec_pass_ctx *cx) {
  bool bf16 = wants_bf16(m, cx->options);
  for (size_t i = 1; i < m->n_params; i++) {
    moec_param_info *p = &m->params[i];
    if (narrow(p->compute)) p->compute = MOEC_F32;
    p->type = widen(m, p->type);
  }
  for (size_t f = 1; f < m->n_fns; f++) widen_graph(m, m->fns[f]);
  MOEC_TRY(widen_inputs(moec_main(m)));
  return bf16 ? moec_narrow(m, cx) : NULL;
}
