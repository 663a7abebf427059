/* Flattening a module into a plan: calls are expanded, every value gets a tensor and a buffer,
 * every node a step in the earliest schedule its operands allow.
 *
 * A value's binding time is the latest of its operands': parameters and constants are there at
 * load, sizes at bind, graph inputs at the step. So a block's 1+w runs once on opening and a
 * rope table once a size, though both sit in functions that run every step. */
#include "codegen/plan_flatten.h"

#include <string.h>
#include <unistd.h>

#include "ir/builder.h"

/* ---- tensors ------------------------------------------------------------------------------ */

uint32_t moec_flat_tensor(flattener *c, moec_buffer_kind kind, moec_type type, const char *name) {
  moec_plan_buffer b = {(uint32_t)kind, moec_plan_expr_of(c->t, moec_plan_bytes(c->m, type)), MOEC_NONE, 0,
                        (uint32_t)c->program};
  return moec_plan_tensor_of(c->t, MOEC_TABLE_ADD(c->t, buffers, b), type, name);
}

bool moec_flat_has_symbols(const moec_module *m, moec_type t) {
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
  return (slot){moec_flat_tensor(c, kind, type, ""), at, moe};
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
  out->tensor = c->param_tensor[id.i] = moec_flat_tensor(c, MOEC_BUFFER_PARAM, p->type, moec_sym_str(c->m, p->name));
  moec_plan_param r = {.name = moec_plan_sym(c->t, p->name), .tensor = out->tensor, .storage = (uint32_t)p->storage};
  r.group = p->group == MOEC_GROUP_EXPERT, r.shard_axis = p->shard_axis, r.trainable = p->trainable, r.tie = p->tie;
  r.pieces = (uint32_t)c->t->n_pieces, r.n_pieces = p->n_pieces, r.grad = MOEC_NONE;
  for (uint32_t i = 0; i < p->n_pieces; i++) MOEC_TRY(add_piece(c, p, &p->pieces[i]));
  MOEC_TABLE_ADD(c->t, params, r);
  return NULL;
}

static slot const_slot(flattener *c, const moec_const *data) {
  slot s = {moec_flat_tensor(c, MOEC_BUFFER_CONST, data->type, ""), MOEC_AT_LOAD, MOEC_NONE};
  MOEC_TABLE_ADD(c->t, consts,
                 ((moec_plan_const){s.tensor, 0, moec_plan_data(c->t, data->bytes, data->size), data->size}));
  return s;
}

/* ---- steps -------------------------------------------------------------------------------- */

static moec_status *operand(const frame *f, moec_node n, moec_value v, slot *out) {
  *out = (slot){MOEC_NONE, MOEC_AT_LOAD, MOEC_NONE};
  if (!v.i || (f->slots[v.i].tensor == MOEC_NONE && moec_is_zeros(f->g, v))) return NULL; /* zeros under a scatter */
  *out = f->slots[v.i];
  if (out->tensor == MOEC_NONE)
    return MOEC_BUG("%s \"%s\": operand %%%u was never materialized", moec_op_get(moec_op_of(f->g, n))->text,
                    moec_sym_str(f->g->m, moec_node_get(f->g, n)->loc), v.i);
  return NULL;
}

/* Whether node |n| can't run before the symbols have values. */
static bool needs_sizes(const flattener *c, const moec_graph *g, moec_node n) {
  for (uint32_t i = 0; i < moec_node_get(g, n)->n_out; i++)
    if (moec_flat_has_symbols(c->m, moec_value_get(g, moec_out(g, n, i))->type)) return true;
  return moec_op_of(g, n) == MOEC_OP_FUSED && !c->fn_static[MOEC_ATTRS(g, n, FUSED)->fn.i];
}

moec_status *moec_flat_emit(flattener *c, frame *f, moec_node n, moec_plan_step step, uint32_t n_in,
                            const moec_value *in, bool keep_all) {
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

static moec_status *do_fused(flattener *c, frame *f, moec_node n) {
  const moec_node_info p = *moec_node_get(f->g, n);
  moec_plan_step step = no_step;
  step.op = MOEC_STEP_KERNEL;
  step.kernel = c->kernels->plan_index[MOEC_ATTRS(f->g, n, FUSED)->fn.i];
  step.flops = c->t->kernels[step.kernel].flops;
  return moec_flat_emit(c, f, n, step, p.n_in, &f->g->edges[p.in], true);
}

/* ---- accumulating dots --------------------------------------------- */

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
static bool deferred(const flattener *c, const moec_graph *g, moec_node n) {
  moec_op op = moec_op_of(g, n);
  moec_value v = moec_out(g, n, 0);
  if (op == MOEC_OP_FUSED) return moec_flat_in_dot(c, g, n);
  if (op == MOEC_OP_MOE_WEIGHT) return moec_flat_joins(c, g, n);
  if (op == MOEC_OP_MOE_DISPATCH) return moec_plan_only_weighted(g, n);
  moec_node reader = moec_plan_only_reader(g, v);
  if (!reader.i) return false;
  if (!absorbs_add(op)) return false;
  int i = absorbed_operand(g, reader);
  return i >= 0 && through_reshapes(g, moec_in(g, reader, (uint32_t)i)).i == v.i;
}

static moec_status *do_dot(flattener *c, frame *f, moec_node n, moec_node dot, moec_value acc) {
  moec_plan_step step = no_step;
  MOEC_TRY(moec_plan_gemm(c->t, f->g, dot, &step));
  moec_value in[3] = {moec_in(f->g, dot, 0), moec_in(f->g, dot, 1), acc};
  return moec_flat_emit(c, f, n, step, 3, in, true);
}

static moec_status *do_add(flattener *c, frame *f, moec_node n) {
  int i = absorbed_operand(f->g, n);
  if (i < 0)
    return MOEC_BUG("add \"%s\" was left outside kernels but has nothing to accumulate into",
                    moec_sym_str(c->m, moec_node_get(f->g, n)->loc));
  moec_value v = through_reshapes(f->g, moec_in(f->g, n, (uint32_t)i)), other = moec_in(f->g, n, (uint32_t)!i);
  moec_node producer = moec_def(f->g, v);
  return moec_op_of(f->g, producer) == MOEC_OP_DOT ? do_dot(c, f, n, producer, other)
                                                   : moec_flat_combine(c, f, n, producer, other);
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
  MOEC_TRY(moec_flat_emit(c, f, n, step, 1, &in, true));
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
  for (uint32_t i = 0; i < p.n_in; i++) {
    MOEC_TRY(operand(f, n, f->g->edges[p.in + i], &inner.slots[inner.g->inputs[i].i]));
  }
  inner.call = MOEC_TABLE_ADD(c->t, calls, ((moec_plan_call){fn.i}));
  MOEC_TRY(moec_flatten(c, &inner));
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
  return moec_flat_emit(c, f, n, step, 3, in, true);
}

static moec_status *do_node(flattener *c, frame *f, moec_node n) {
  const moec_node_info p = *moec_node_get(f->g, n);
  moec_plan_step step = no_step;
  if (deferred(c, f->g, n)) return NULL;
  switch (p.op) {
    case MOEC_OP_PARAM: return param_slot(c, MOEC_ATTRS(f->g, n, PARAM)->param, &f->slots[moec_out(f->g, n, 0).i]);
    case MOEC_OP_CONST:
      f->slots[moec_out(f->g, n, 0).i] = const_slot(c, MOEC_ATTRS(f->g, n, CONST)->data);
      return NULL;
    case MOEC_OP_BROADCAST: return NULL; /* zeros, which no step makes */
    case MOEC_OP_RESHAPE: return do_reshape(c, f, n);
    case MOEC_OP_CALL: return do_call(c, f, n);
    case MOEC_OP_FUSED: return do_fused(c, f, n);
    case MOEC_OP_DOT: return do_dot(c, f, n, n, (moec_value){0});
    case MOEC_OP_ADD: return do_add(c, f, n);
    case MOEC_OP_MOE_PLAN: return do_moe_plan(c, f, n);
    case MOEC_OP_MOE_WEIGHT: return do_weight(c, f, n);
    case MOEC_OP_MOE_COMBINE: return moec_flat_combine(c, f, n, n, (moec_value){0});
    case MOEC_OP_MOE_GROUPED_DOT: return moec_flat_grouped_dot(c, f, n, layer_of(f, p.n_in, &f->g->edges[p.in]));
    case MOEC_OP_LINEAR_CROSS_ENTROPY: return moec_flat_loss(c, f, n);
    default: break;
  }
  MOEC_TRY(moec_plan_library_step(c->t, f->g, n, &step));
  if (moec_op_cls(p.op) == MOEC_CLASS_MOE && p.op != MOEC_OP_MOE_SELECT)
    step.moe = layer_of(f, p.n_in, &f->g->edges[p.in]);
  return moec_flat_emit(c, f, n, step, p.n_in, &f->g->edges[p.in], p.op != MOEC_OP_TOPK);
}

moec_status *moec_flatten(flattener *c, frame *f) {
  size_t first_layer = c->t->n_moe_layers;
  moec_build_uses(f->g);
  for (uint32_t n = 1; n < f->g->n_nodes; n++) MOEC_TRY(do_node(c, f, (moec_node){n}));
  for (size_t i = first_layer; i < c->t->n_moe_layers; i++) { /* weights were noted as values of this frame */
    moec_plan_moe *layer = &c->t->moe_layers[i];
    if (layer->call == f->call && layer->weights != MOEC_NONE) layer->weights = f->slots[layer->weights].tensor;
  }
  return NULL;
}
