/* The module around the nodes: programs with their inputs and outputs, gradients, symbols, constraints, files,
 * functions. */
#include <string.h>
#include <unistd.h>

#include "base/fresh.h"
#include "codegen/plan_flatten.h"

static void add_io(flattener *c, frame *f) {
  moec_graph *g = f->g;
  for (size_t i = 0; i < g->n_inputs; i++) {
    moec_value v = g->inputs[i];
    const char *name = moec_sym_str(c->m, moec_value_get(g, v)->name);
    uint32_t tensor = moec_flat_tensor(c, MOEC_BUFFER_INPUT, moec_value_get(g, v)->type, name);
    f->slots[v.i] = (slot){tensor, c->program, MOEC_NONE};
    const moec_value_info *info = moec_value_get(g, v);
    MOEC_TABLE_ADD(c->t, inputs, ((moec_plan_io){.name = moec_plan_str(c->t, name),
                                                 .tensor = tensor,
                                                 .has_default = info->has_default,
                                                 .schedule = (uint32_t)c->program,
                                                 .dflt = info->dflt}));
  }
}

static uint32_t buffer_of(const flattener *c, uint32_t tensor) { return c->t->tensors[tensor].buffer; }

static void add_copy(flattener *c, uint32_t from, uint32_t to) {
  uint32_t args[2] = {from, to};
  moec_plan_step step = no_step;
  step.op = MOEC_STEP_COPY, step.schedule = (uint32_t)c->program, step.n_in = step.n_out = 1;
  step.args = moec_plan_pool(c->t, 2, args), step.flops = moec_plan_expr_const(c->t, 0);
  MOEC_TABLE_ADD(c->t, steps, step);
}

/* The parameter whose gradient is called |name|; MOEC_NONE: none. */
static uint32_t gradient_of(const flattener *c, const char *name) {
  if (strncmp(name, "grad.", 5) != 0) return MOEC_NONE;
  for (uint32_t i = 0; i < c->t->n_params; i++)
    if (strcmp(moec_plan_text(c->t, c->t->params[i].name), name + 5) == 0) return i;
  return MOEC_NONE;
}

/* A gradient has one buffer, written by the program that runs. */
static void add_gradient(flattener *c, uint32_t param, uint32_t tensor, moec_type type) {
  moec_plan_param *p = &c->t->params[param];
  moec_plan_buffer *b = &c->t->buffers[buffer_of(c, tensor)];
  if (p->grad == MOEC_NONE && b->kind == MOEC_BUFFER_STEP) {
    b->kind = MOEC_BUFFER_GRAD;
    p->grad = tensor;
    return;
  }
  if (p->grad == MOEC_NONE) p->grad = moec_flat_tensor(c, MOEC_BUFFER_GRAD, type, "");
  uint32_t from = buffer_of(c, tensor), to = buffer_of(c, p->grad);
  if (b->kind != MOEC_BUFFER_STEP) {
    add_copy(c, tensor, p->grad);
    return;
  }
  for (size_t k = 0; k < c->t->n_tensors; k++)
    if (c->t->tensors[k].buffer == from) c->t->tensors[k].buffer = to;
}

/* An output owns its buffer: one that is an input, a parameter or another output is copied. */
static void add_output(flattener *c, uint32_t tensor, moec_type type, const char *name) {
  if (c->t->buffers[buffer_of(c, tensor)].kind == MOEC_BUFFER_STEP) {
    c->t->buffers[buffer_of(c, tensor)].kind = MOEC_BUFFER_OUTPUT;
  } else {
    uint32_t copy = moec_flat_tensor(c, MOEC_BUFFER_OUTPUT, type, name);
    add_copy(c, tensor, copy);
    tensor = copy;
  }
  moec_plan_io r = {.name = moec_plan_str(c->t, name), .tensor = tensor, .schedule = (uint32_t)c->program};
  MOEC_TABLE_ADD(c->t, outputs, r);
}

static void add_outputs(flattener *c, frame *f) {
  moec_graph *g = f->g;
  for (size_t i = 0; i < g->n_outputs; i++) {
    const char *name = moec_sym_str(c->m, g->output_names[i]);
    moec_type type = moec_value_get(g, g->outputs[i])->type;
    uint32_t tensor = f->slots[g->outputs[i].i].tensor, param = gradient_of(c, name);
    if (param != MOEC_NONE && c->program != MOEC_AT_STEP) add_gradient(c, param, tensor, type);
    else add_output(c, tensor, type, name);
  }
}

static void add_symbols_and_constraints(flattener *c) {
  moec_module *m = c->m;
  for (uint32_t i = 0; i < moec_dim_symbol_count(m); i++)
    MOEC_TABLE_ADD(c->t, symbols, ((moec_plan_symbol){moec_plan_str(c->t, moec_dim_symbol_name(m, i)), 0, -1}));
  for (size_t i = 0; i < m->n_constraints; i++) {
    const moec_constraint *k = &m->constraints[i];
    moec_buf text = {0};
    moec_dim_print_equal(&text, m, k->a, k->b);
    moec_plan_constraint r = {moec_plan_expr_of(c->t, k->a), moec_plan_expr_of(c->t, k->b),
                              moec_plan_sym(c->t, k->where), moec_plan_sym(c->t, k->what),
                              moec_plan_str(c->t, moec_buf_str(&text))};
    MOEC_TABLE_ADD(c->t, constraints, r);
    moec_buf_fini(&text);
  }
}

/* Named files are referred to; nameless ones are the model's inline data and get copied. */
static void add_files(flattener *c) {
  moec_module *m = c->m;
  c->file_index = MOEC_NEW_ARRAY(c->t->arena, uint32_t, m->n_files + 1);
  for (size_t i = 0; i < m->n_files; i++) {
    const moec_file *f = &m->files[i];
    c->file_index[i] = MOEC_NONE;
    bool made = moec_fresh_is(moec_sym_str(m, f->name)); /* from a seed: there are no bytes to embed */
    if (f->name.i == 0 || (c->t->embed_weights && !made)) continue;
    moec_plan_file r = {.name = moec_plan_sym(c->t, f->name), .size = f->map.size};
    c->file_index[i] = MOEC_TABLE_ADD(c->t, files, r);
  }
}

moec_status *moec_plan_digests(moec_plan_tables *t, const moec_module *m) {
  if (t->embed_weights) return NULL; /* no file is referred to */
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  size_t n = 0;
  for (size_t i = 0; i < m->n_files; i++)
    if (m->files[i].name.i)
      MOEC_TRY(moec_map_digest(&m->files[i].map, processors < 1 ? 1 : (int)processors, t->files[n++].sha256));
  return NULL;
}

/* The functions that are called, main first; kernels' functions are in the kernel table. Calls named
 * functions of the module until now. */
static void add_functions(flattener *c) {
  uint32_t *index = MOEC_NEW_ARRAY(c->t->arena, uint32_t, c->m->n_fns);
  for (size_t i = 0; i < c->t->n_calls; i++) {
    uint32_t f = c->t->calls[i].function;
    const moec_graph *g = c->m->fns[f];
    if (!index[f]) {
      moec_plan_function r = {.name = moec_plan_sym(c->t, g->name)};
      for (size_t n = 1; n < g->n_nodes; n++) r.n_kernels += g->nodes[n].op == MOEC_OP_FUSED;
      index[f] = MOEC_TABLE_ADD(c->t, functions, r) + 1;
    }
    c->t->calls[i].function = index[f] - 1;
    c->t->functions[index[f] - 1].n_calls++;
  }
}

/* A symbol that no size depends on - it was given a value at import - needs none at run time. */
static void fix_unused_symbols(moec_plan_tables *t) {
  for (uint32_t i = 0; i < t->n_symbols; i++) {
    bool used = false;
    for (size_t k = 0; k < t->n_exprs && !used; k++) used = t->exprs[k].op == MOEC_EXPR_SYMBOL && t->exprs[k].a == i;
    if (!used) t->symbols[i].fixed = 1;
  }
}

static uint8_t *find_static(moec_module *m, moec_arena *a) {
  uint8_t *r = MOEC_NEW_ARRAY(a, uint8_t, m->n_fns);
  for (size_t i = 1; i < m->n_fns; i++) {
    r[i] = 1;
    for (size_t v = 1; v < m->fns[i]->n_values; v++)
      if (moec_flat_has_symbols(m, m->fns[i]->values[v].type)) r[i] = 0;
    for (size_t n = 1; n < m->fns[i]->n_nodes; n++)
      if (m->fns[i]->nodes[n].op == MOEC_OP_SIZE) r[i] = 0;
  }
  return r;
}

/* The programs of a module by the names of their entries. */
static const struct {
  const char *name;
  moec_schedule program;
} programs[] = {{"train", MOEC_AT_TRAIN}, {"vjp", MOEC_AT_VJP}};

static moec_status *program_of(const moec_graph *g, moec_schedule *out) {
  const char *name = moec_sym_str(g->m, g->name);
  *out = MOEC_AT_STEP;
  if (g == moec_main(g->m)) return NULL;
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
    if (strcmp(name, programs[i].name) == 0) *out = programs[i].program;
  return *out == MOEC_AT_STEP ? MOEC_BUG("entry @\"%s\" is no program", name) : NULL;
}

static moec_status *add_entry(flattener *c, uint32_t fn) {
  frame f = {.g = c->m->fns[fn], .slots = MOEC_NEW_ARRAY(c->t->arena, slot, c->m->fns[fn]->n_values)};
  MOEC_TRY(program_of(f.g, &c->program));
  for (size_t i = 0; i < f.g->n_values; i++) f.slots[i] = (slot){MOEC_NONE, MOEC_AT_LOAD, MOEC_NONE};
  f.call = MOEC_TABLE_ADD(c->t, calls, ((moec_plan_call){fn}));
  add_io(c, &f);
  MOEC_TRY(moec_flatten(c, &f));
  add_outputs(c, &f);
  return NULL;
}

moec_status *moec_plan_build(moec_plan_tables *t, moec_module *m, const moec_kernel_set *kernels,
                             moec_combine combine) {
  flattener c = {.t = t, .m = m, .kernels = kernels, .combine = combine};
  c.param_tensor = MOEC_NEW_ARRAY(t->arena, uint32_t, m->n_params);
  for (size_t i = 0; i < m->n_params; i++) c.param_tensor[i] = MOEC_NONE;
  c.fn_static = find_static(m, t->arena);
  add_symbols_and_constraints(&c);
  add_files(&c);
  for (uint32_t i = 1; i < m->n_fns; i++)
    if (moec_is_entry(m->fns[i])) MOEC_TRY(add_entry(&c, i));
  add_functions(&c);
  fix_unused_symbols(t);
  moec_plan_lifetimes(t);
  return NULL;
}
