/* Flattening a module into a plan: calls are expanded, every value gets a tensor and a buffer,
 * every node a step in the earliest schedule its operands allow.
 *
 * A value's binding time is the latest of its operands': parameters and constants are there at
 * load, sizes at bind, graph inputs at the step. So a block's 1+w runs once on opening and a
 * rope table once a size, though both sit in functions that run every step. */
#include "codegen/plan_build.h"

#include <string.h>
#include <unistd.h>

#include "ir/builder.h"
#include "ir/half.h"

typedef struct slot {
  uint32_t tensor;     /* MOEC_NONE: not computed (yet), or only inside another step */
  moec_schedule at;
  uint32_t moe;        /* expert region the value belongs to, or MOEC_NONE */
} slot;

/* One activation of a function: the tensors of its values. */
typedef struct frame {
  moec_graph *g;
  slot *slots;         /* by value */
  uint32_t call;       /* index into calls */
} frame;

typedef struct flattener {
  moec_plan_tables *t;
  moec_module *m;
  const moec_kernel_set *kernels;
  uint32_t *param_tensor; /* by parameter */
  uint32_t *file_index;   /* by module file: index into plan files */
  uint8_t *fn_static;     /* by function: 1 where no type of it has a symbol */
  moec_schedule program; /* of the entry being flattened */
  uint32_t n_blocks;
} flattener;

static moec_status *flatten(flattener *c, frame *f);

/* ---- tensors ------------------------------------------------------------------------------ */

static uint32_t new_tensor(flattener *c, moec_buffer_kind kind, moec_type type, const char *name) {
  moec_plan_buffer b = {(uint32_t)kind, moec_plan_expr_of(c->t, moec_plan_bytes(c->m, type)), MOEC_NONE, 0,
                        (uint32_t)c->program};
  return moec_plan_tensor_of(c->t, MOEC_TABLE_ADD(c->t, buffers, b), type, name);
}

static bool has_symbols(const moec_module *m, moec_type t) {
  moec_type_info i = moec_type_get(m, t);
  for (uint32_t k = 0; k < i.rank; k++)
    if (!moec_dim_is_const(m, i.dims[k], NULL)) return true;
  return false;
}

/* Result of a step at schedule |at|. */
static slot result(flattener *c, moec_schedule at, moec_type type, uint32_t moe) {
  moec_buffer_kind kind = at == MOEC_AT_LOAD   ? MOEC_BUFFER_LOAD
                          : at == MOEC_AT_BIND ? MOEC_BUFFER_BIND
                                               : MOEC_BUFFER_STEP;
  return (slot){new_tensor(c, kind, type, ""), at, moe};
}

/* ---- parameters and constants ------------------------------------------------------------- */

/* Bytes of pieces from files without a name are inlined in the model: copied into the data section. */
static moec_status *add_piece(flattener *c, const moec_param_info *p, const moec_piece *pc) {
  moec_plan_piece r = {.file = MOEC_NONE, .dtype = (uint32_t)pc->dtype, .rank = pc->rank, .offset = pc->offset};
  r.name = moec_plan_sym(c->t, pc->name);
  for (uint32_t i = 0; i < pc->rank; i++) r.shape[i] = pc->shape[i], r.start[i] = pc->start[i], r.perm[i] = pc->perm[i];
  size_t size;
  MOEC_TRY(moec_shape_bytes(pc->dtype, pc->rank, pc->shape, &size));
  if (pc->file == UINT32_MAX) {
    if (!pc->inline_bytes && size)
      return moec_error(MOEC_INVALID_ARGUMENT, "parameter \"%s\" has no bytes", moec_sym_str(c->m, p->name));
    r.offset = moec_plan_data(c->t, pc->inline_bytes, size);
  } else if (c->file_index[pc->file] == MOEC_NONE) {
    r.offset = moec_plan_data(c->t, c->m->files[pc->file].map.data + pc->offset, size);
  } else {
    r.file = c->file_index[pc->file];
  }
  MOEC_TABLE_ADD(c->t, pieces, r);
  return NULL;
}

static moec_status *param_slot(flattener *c, moec_param id, slot *out) {
  const moec_param_info *p = moec_param_get(c->m, id);
  *out = (slot){c->param_tensor[id.i], MOEC_AT_LOAD, MOEC_NONE};
  if (out->tensor != MOEC_NONE) return NULL;
  out->tensor = c->param_tensor[id.i] = new_tensor(c, MOEC_BUFFER_PARAM, p->type, moec_sym_str(c->m, p->name));
  moec_plan_param r = {.name = moec_plan_sym(c->t, p->name), .tensor = out->tensor, .storage = (uint32_t)p->storage};
  r.group = p->group == MOEC_GROUP_EXPERT, r.shard_axis = p->shard_axis, r.trainable = p->trainable, r.tie = p->tie;
  r.pieces = (uint32_t)c->t->n_pieces, r.n_pieces = p->n_pieces, r.grad = MOEC_NONE;
  for (uint32_t i = 0; i < p->n_pieces; i++) MOEC_TRY(add_piece(c, p, &p->pieces[i]));
  MOEC_TABLE_ADD(c->t, params, r);
  return NULL;
}

static slot const_slot(flattener *c, const moec_const *data) {
  slot s = {new_tensor(c, MOEC_BUFFER_CONST, data->type, ""), MOEC_AT_LOAD, MOEC_NONE};
  MOEC_TABLE_ADD(c->t, consts,
                 ((moec_plan_const){s.tensor, 0, moec_plan_data(c->t, data->bytes, data->size), data->size}));
  return s;
}

/* ---- steps -------------------------------------------------------------------------------- */

static moec_status *operand(const frame *f, moec_node n, moec_value v, slot *out) {
  *out = (slot){MOEC_NONE, MOEC_AT_LOAD, MOEC_NONE};
  if (!v.i) return NULL;
  *out = f->slots[v.i];
  if (out->tensor == MOEC_NONE)
    return MOEC_BUG("%s \"%s\": operand %%%u was never materialized", moec_op_get(moec_op_of(f->g, n))->text,
                    moec_sym_str(f->g->m, moec_node_get(f->g, n)->loc), v.i);
  return NULL;
}

/* Whether node |n| can't run before the symbols have values. */
static bool needs_sizes(const flattener *c, const moec_graph *g, moec_node n) {
  for (uint32_t i = 0; i < moec_node_get(g, n)->n_out; i++)
    if (has_symbols(c->m, moec_value_get(g, moec_out(g, n, i))->type)) return true;
  return moec_op_of(g, n) == MOEC_OP_FUSED && !c->fn_static[MOEC_ATTRS(g, n, FUSED)->fn.i];
}

/* Adds |step| reading |in| and writing the outputs of node |n| (those with a use; |keep_all|: all). */
static moec_status *emit(flattener *c, frame *f, moec_node n, moec_plan_step step, uint32_t n_in, const moec_value *in,
                         bool keep_all) {
  const moec_node_info p = *moec_node_get(f->g, n);
  uint32_t *args = MOEC_NEW_ARRAY(c->t->arena, uint32_t, n_in + p.n_out);
  moec_schedule at = p.op == MOEC_OP_RANDOM ? c->program : MOEC_AT_LOAD;
  uint32_t moe = step.moe;
  for (uint32_t i = 0; i < n_in; i++) {
    slot s;
    MOEC_TRY(operand(f, n, in[i], &s));
    args[i] = s.tensor;
    if (s.at > at) at = s.at;
    if (moe == MOEC_NONE && p.op == MOEC_OP_FUSED) moe = s.moe;
  }
  if (at == MOEC_AT_LOAD && needs_sizes(c, f->g, n)) at = MOEC_AT_BIND;
  for (uint32_t i = 0; i < p.n_out; i++) {
    moec_value v = moec_out(f->g, n, i);
    if (keep_all || moec_use_count(f->g, v)) f->slots[v.i] = result(c, at, moec_value_get(f->g, v)->type, moe);
    args[n_in + i] = f->slots[v.i].tensor;
  }
  step.schedule = (uint32_t)at;
  step.args = moec_plan_pool(c->t, n_in + p.n_out, args);
  step.n_in = n_in, step.n_out = p.n_out;
  step.call = f->call;
  step.moe = moe;
  step.where = moec_plan_sym(c->t, p.loc);
  MOEC_TABLE_ADD(c->t, steps, step);
  return NULL;
}

static const moec_plan_step no_step = {.kernel = MOEC_NONE, .moe = MOEC_NONE};

static moec_status *do_fused(flattener *c, frame *f, moec_node n) {
  const moec_node_info p = *moec_node_get(f->g, n);
  moec_plan_step step = no_step;
  step.op = MOEC_STEP_KERNEL;
  step.kernel = c->kernels->plan_index[MOEC_ATTRS(f->g, n, FUSED)->fn.i];
  step.flops = c->t->kernels[step.kernel].flops;
  return emit(c, f, n, step, p.n_in, &f->g->edges[p.in], true);
}

/* ---- accumulating dots and the weighted restore --------------------------------------------- */

/* |v| without the reshapes above it. */
static moec_value through_reshapes(const moec_graph *g, moec_value v) {
  while (moec_def_op(g, v) == MOEC_OP_RESHAPE) v = moec_in(g, moec_def(g, v), 0);
  return v;
}

static bool absorbs_add(moec_op op) { return op == MOEC_OP_DOT || op == MOEC_OP_MOE_COMBINE; }

/* The operand of add |n| that is a dot or combine read by nothing else: computed by the add's own step. */
static int absorbed_operand(const moec_graph *g, moec_node n) {
  if (moec_op_of(g, n) != MOEC_OP_ADD) return -1;
  for (int i = 1; i >= 0; i--) {
    moec_value v = through_reshapes(g, moec_in(g, n, (uint32_t)i));
    if (absorbs_add(moec_def_op(g, v)) && moec_plan_only_reader(g, v).i == n.i) return i;
  }
  return -1;
}

/* Nodes whose work is done by the step of their only reader, or of all their readers. */
static bool deferred(const moec_graph *g, moec_node n) {
  moec_op op = moec_op_of(g, n);
  moec_value v = moec_out(g, n, 0);
  if (op == MOEC_OP_MOE_WEIGHT) return moec_plan_is_restored(g, n);
  if (op == MOEC_OP_MOE_DISPATCH) return moec_plan_only_weighted(g, n);
  moec_node reader = moec_plan_only_reader(g, v);
  if (!reader.i) return false;
  if (!absorbs_add(op)) return false;
  int i = absorbed_operand(g, reader);
  return i >= 0 && through_reshapes(g, moec_in(g, reader, (uint32_t)i)).i == v.i;
}

/* moe.combine as node |n| writes it: |combine| is |n| itself or the operand its add absorbed. */
static moec_status *do_combine(flattener *c, frame *f, moec_node n, moec_node combine, moec_value residual) {
  const moec_graph *g = f->g;
  moec_plan_step step = no_step;
  MOEC_TRY(moec_plan_library_step(c->t, g, combine, &step));
  moec_value rows = moec_in(g, combine, 0), in[4] = {rows, moec_in(g, combine, 1), {0}, residual};
  moec_node weight = moec_def(g, rows);
  if (moec_op_of(g, weight) == MOEC_OP_MOE_WEIGHT && deferred(g, weight))
    in[0] = moec_in(g, weight, 0), in[2] = moec_in(g, weight, 1);
  step.moe = f->slots[in[1].i].moe;
  MOEC_TRY(emit(c, f, n, step, 4, in, true));
  f->slots[moec_out(g, n, 0).i].moe = MOEC_NONE; /* the region ends here */
  return NULL;
}

static moec_status *do_dot(flattener *c, frame *f, moec_node n, moec_node dot, moec_value acc) {
  moec_plan_step step = no_step;
  MOEC_TRY(moec_plan_gemm(c->t, f->g, dot, &step));
  moec_value in[3] = {moec_in(f->g, dot, 0), moec_in(f->g, dot, 1), acc};
  return emit(c, f, n, step, 3, in, true);
}

static moec_status *do_add(flattener *c, frame *f, moec_node n) {
  int i = absorbed_operand(f->g, n);
  if (i < 0)
    return MOEC_BUG("add \"%s\" was left outside kernels but has nothing to accumulate into",
                    moec_sym_str(c->m, moec_node_get(f->g, n)->loc));
  moec_value v = through_reshapes(f->g, moec_in(f->g, n, (uint32_t)i)), other = moec_in(f->g, n, (uint32_t)!i);
  moec_node producer = moec_def(f->g, v);
  return moec_op_of(f->g, producer) == MOEC_OP_DOT ? do_dot(c, f, n, producer, other)
                                                   : do_combine(c, f, n, producer, other);
}

/* ---- the expert region -------------------------------------------------------------------- */

/* moe.plan opens a region: its layer record gets the routes. */
static moec_status *do_moe_plan(flattener *c, frame *f, moec_node n) {
  const moec_graph *g = f->g;
  moec_plan_step step = no_step;
  moec_plan_moe layer = {.call = f->call, .weights = MOEC_NONE, .schedule = (uint32_t)c->program,
      .name = moec_plan_sym(c->t, moec_node_get(g, n)->loc)};
  layer.indices = f->slots[moec_in(g, n, 0).i].tensor;
  layer.experts = (uint32_t)MOEC_ATTRS(g, n, MOE_PLAN)->experts;
  int64_t k = 0;
  moec_dim_is_const(c->m, moec_ty(g, moec_in(g, n, 0)).dims[1], &k);
  layer.k = (uint32_t)k;
  step.moe = MOEC_TABLE_ADD(c->t, moe_layers, layer);
  MOEC_TRY(moec_plan_library_step(c->t, g, n, &step));
  moec_value in = moec_in(g, n, 0);
  MOEC_TRY(emit(c, f, n, step, 1, &in, true));
  c->t->moe_layers[step.moe].offsets = f->slots[moec_out(g, n, 2).i].tensor;
  for (uint32_t i = 1; i < g->n_nodes; i++) { /* the weights that join this plan's rows */
    moec_node w = {i};
    if (moec_op_of(g, w) == MOEC_OP_MOE_WEIGHT && moec_in(g, w, 2).i == moec_out(g, n, 0).i)
      /* value; tensor below */
      f->slots[moec_in(g, w, 1).i].moe = MOEC_NONE, c->t->moe_layers[step.moe].weights = moec_in(g, w, 1).i;
  }
  return NULL;
}

/* ---- nodes -------------------------------------------------------------------------------- */

static moec_status *do_call(flattener *c, frame *f, moec_node n) {
  const moec_node_info p = *moec_node_get(f->g, n);
  moec_fn fn = MOEC_ATTRS(f->g, n, CALL)->fn;
  frame inner = {.g = moec_fn_get(c->m, fn)};
  inner.slots = MOEC_NEW_ARRAY(c->t->arena, slot, inner.g->n_values);
  for (size_t v = 0; v < inner.g->n_values; v++) inner.slots[v] = (slot){MOEC_NONE, MOEC_AT_LOAD, MOEC_NONE};
  bool *computed = MOEC_NEW_ARRAY(c->t->arena, bool, p.n_in);
  for (uint32_t i = 0; i < p.n_in; i++) {
    slot *s = &inner.slots[inner.g->inputs[i].i];
    MOEC_TRY(operand(f, n, f->g->edges[p.in + i], s));
    computed[i] = s->at == c->program;
  }
  bool counted = c->program == MOEC_AT_STEP; /* decoder blocks are counted along the forward program */
  if (counted && (c->n_blocks == 0 || moec_half_starts_block(moec_half_of(inner.g, computed)))) c->n_blocks++;
  inner.call = MOEC_TABLE_ADD(c->t, calls, ((moec_plan_call){fn.i, counted ? c->n_blocks - 1 : MOEC_NONE}));
  MOEC_TRY(flatten(c, &inner));
  for (uint32_t i = 0; i < p.n_out; i++) f->slots[moec_out(f->g, n, i).i] = inner.slots[inner.g->outputs[i].i];
  return NULL;
}

static moec_status *do_reshape(flattener *c, frame *f, moec_node n) {
  moec_value x = moec_in(f->g, n, 0), y = moec_out(f->g, n, 0);
  slot s = f->slots[x.i];
  if (s.tensor != MOEC_NONE) /* else its producer is deferred: the reader looks through this reshape */
    s.tensor = moec_plan_tensor_of(c->t, c->t->tensors[s.tensor].buffer, moec_value_get(f->g, y)->type, "");
  f->slots[y.i] = s;
  return NULL;
}

/* The layer that an operand of a step of an expert region comes from. */
static uint32_t layer_of(const frame *f, uint32_t n_in, const moec_value *in) {
  uint32_t moe = MOEC_NONE;
  for (uint32_t i = 0; i < n_in; i++)
    if (f->slots[in[i].i].moe != MOEC_NONE) moe = f->slots[in[i].i].moe;
  return moe;
}

static moec_status *do_weight(flattener *c, frame *f, moec_node n) {
  const moec_graph *g = f->g;
  moec_node d = moec_plan_weighted_dispatch(g, n);
  moec_plan_step step = no_step, product = no_step;
  moec_value in[3] = {moec_in(g, n, 0), moec_in(g, n, 1), moec_in(g, n, 2)};
  MOEC_TRY(moec_plan_library_step(c->t, g, n, &product));
  step = product;
  if (d.i) {
    MOEC_TRY(moec_plan_library_step(c->t, g, d, &step));
    step.flops = product.flops;
    in[0] = moec_in(g, d, 0), in[1] = moec_in(g, d, 1), in[2] = moec_in(g, n, 1);
  }
  step.moe = layer_of(f, 3, in);
  return emit(c, f, n, step, 3, in, true);
}

static moec_status *do_node(flattener *c, frame *f, moec_node n) {
  const moec_node_info p = *moec_node_get(f->g, n);
  moec_plan_step step = no_step;
  if (deferred(f->g, n)) return NULL;
  switch (p.op) {
    case MOEC_OP_PARAM: return param_slot(c, MOEC_ATTRS(f->g, n, PARAM)->param, &f->slots[moec_out(f->g, n, 0).i]);
    case MOEC_OP_CONST:
      f->slots[moec_out(f->g, n, 0).i] = const_slot(c, MOEC_ATTRS(f->g, n, CONST)->data);
      return NULL;
    case MOEC_OP_RESHAPE: return do_reshape(c, f, n);
    case MOEC_OP_CALL: return do_call(c, f, n);
    case MOEC_OP_FUSED: return do_fused(c, f, n);
    case MOEC_OP_DOT: return do_dot(c, f, n, n, (moec_value){0});
    case MOEC_OP_ADD: return do_add(c, f, n);
    case MOEC_OP_MOE_PLAN: return do_moe_plan(c, f, n);
    case MOEC_OP_MOE_WEIGHT: return do_weight(c, f, n);
    case MOEC_OP_MOE_COMBINE: return do_combine(c, f, n, n, (moec_value){0});
    default: break;
  }
  MOEC_TRY(moec_plan_library_step(c->t, f->g, n, &step));
  if (moec_op_cls(p.op) == MOEC_CLASS_MOE && p.op != MOEC_OP_MOE_SELECT)
    step.moe = layer_of(f, p.n_in, &f->g->edges[p.in]);
  return emit(c, f, n, step, p.n_in, &f->g->edges[p.in], p.op != MOEC_OP_TOPK);
}

static moec_status *flatten(flattener *c, frame *f) {
  size_t first_layer = c->t->n_moe_layers;
  moec_build_uses(f->g);
  for (uint32_t n = 1; n < f->g->n_nodes; n++) MOEC_TRY(do_node(c, f, (moec_node){n}));
  for (size_t i = first_layer; i < c->t->n_moe_layers; i++) { /* weights were noted as values of this frame */
    moec_plan_moe *layer = &c->t->moe_layers[i];
    if (layer->call == f->call && layer->weights != MOEC_NONE) layer->weights = f->slots[layer->weights].tensor;
  }
  return NULL;
}

/* ---- the whole module --------------------------------------------------------------------- */

static void add_io(flattener *c, frame *f) {
  moec_graph *g = f->g;
  for (size_t i = 0; i < g->n_inputs; i++) {
    moec_value v = g->inputs[i];
    const char *name = moec_sym_str(c->m, moec_value_get(g, v)->name);
    f->slots[v.i] = (slot){new_tensor(c, MOEC_BUFFER_INPUT, moec_value_get(g, v)->type, name), c->program, MOEC_NONE};
    const moec_value_info *info = moec_value_get(g, v);
    MOEC_TABLE_ADD(c->t, inputs, ((moec_plan_io){.name = moec_plan_str(c->t, name),
                                                 .tensor = f->slots[v.i].tensor,
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
  if (p->grad == MOEC_NONE) p->grad = new_tensor(c, MOEC_BUFFER_GRAD, type, "");
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
    uint32_t copy = new_tensor(c, MOEC_BUFFER_OUTPUT, type, name);
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
static moec_status *add_files(flattener *c) {
  moec_module *m = c->m;
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  c->file_index = MOEC_NEW_ARRAY(c->t->arena, uint32_t, m->n_files + 1);
  for (size_t i = 0; i < m->n_files; i++) {
    const moec_file *f = &m->files[i];
    c->file_index[i] = MOEC_NONE;
    if (f->name.i == 0) continue;
    moec_plan_file r = {.name = moec_plan_sym(c->t, f->name), .size = f->map.size};
    MOEC_TRY(moec_map_digest(&f->map, processors < 1 ? 1 : (int)processors, r.sha256));
    c->file_index[i] = MOEC_TABLE_ADD(c->t, files, r);
  }
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
      if (has_symbols(m, m->fns[i]->values[v].type)) r[i] = 0;
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
  f.call = MOEC_TABLE_ADD(c->t, calls, ((moec_plan_call){fn, MOEC_NONE}));
  add_io(c, &f);
  MOEC_TRY(flatten(c, &f));
  add_outputs(c, &f);
  return NULL;
}

moec_status *moec_plan_build(moec_plan_tables *t, moec_module *m, const moec_kernel_set *kernels) {
  flattener c = {.t = t, .m = m, .kernels = kernels, .param_tensor = MOEC_NEW_ARRAY(t->arena, uint32_t, m->n_params)};
  for (size_t i = 0; i < m->n_params; i++) c.param_tensor[i] = MOEC_NONE;
  c.fn_static = find_static(m, t->arena);
  add_symbols_and_constraints(&c);
  MOEC_TRY(add_files(&c));
  for (uint32_t i = 1; i < m->n_fns; i++)
    if (moec_is_entry(m->fns[i])) MOEC_TRY(add_entry(&c, i));
  add_functions(&c);
  fix_unused_symbols(t);
  moec_plan_lifetimes(t);
  return NULL;
}
