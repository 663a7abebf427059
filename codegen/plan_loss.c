/* The step of a linear layer's loss: beside the node's results it has room for the logits of the tokens that it
 * works on at a time, which lives as long as the step. */
#include "codegen/plan_flatten.h"

/* [chunk, lead]: rows of whole 16 bytes. */
static moec_type room_for(const frame *f, moec_node n) {
  moec_module *m = f->g->m;
  const moec_attrs_LINEAR_CROSS_ENTROPY *a = MOEC_ATTRS(f->g, n, LINEAR_CROSS_ENTROPY);
  moec_type_info w = moec_ty(f->g, moec_in(f->g, n, 1));
  moec_dim whole = moec_dim_const(m, 16 / (int64_t)moec_dtype_get(w.dtype)->bytes);
  moec_dim lead = moec_dim_mul(m, whole, moec_dim_ceildiv(m, w.dims[a->transposed ? 0 : 1], whole));
  return moec_type_make(m, w.dtype, 2, (moec_dim[]){a->chunk, lead});
}

/* Two operations for each element of the logits and of x's or w's other axis: the logits, dx and dw. */
static moec_dim flops_of(const frame *f, moec_node n) {
  moec_module *m = f->g->m;
  int64_t products = 1;
  for (uint32_t i = 1; i < 3; i++) products += moec_use_count(f->g, moec_out(f->g, n, i)) > 0;
  moec_dim tokens = moec_ty(f->g, moec_in(f->g, n, 0)).dims[0];
  moec_dim matrix = moec_type_numel(m, moec_value_get(f->g, moec_in(f->g, n, 1))->type);
  return moec_dim_mul(m, moec_dim_mul(m, tokens, matrix), moec_dim_const(m, 2 * products));
}

moec_status *moec_flat_loss(flattener *c, frame *f, moec_node n) {
  enum { IN = 4, OUT = 3 };
  moec_plan_step step = no_step;
  MOEC_TRY(moec_plan_library_step(c->t, f->g, n, &step));
  step.flops = moec_plan_expr_of(c->t, flops_of(f, n));
  MOEC_TRY(moec_flat_emit(c, f, n, step, IN, &f->g->edges[moec_node_get(f->g, n)->in], false));
  moec_plan_step *made = &c->t->steps[c->t->n_steps - 1];
  static const moec_buffer_kind kinds[] = {MOEC_BUFFER_LOAD, MOEC_BUFFER_BIND};
  uint32_t args[IN + OUT + 1];
  for (uint32_t i = 0; i < IN + OUT; i++) args[i] = c->t->pool[made->args + i];
  moec_buffer_kind kind = made->schedule < MOEC_AT_STEP ? kinds[made->schedule] : MOEC_BUFFER_STEP;
  args[IN + OUT] = moec_flat_tensor(c, kind, room_for(f, n), "");
  made->args = moec_plan_pool(c->t, IN + OUT + 1, args);
  made->n_out = OUT + 1;
  return NULL;
}
