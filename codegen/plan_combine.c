/* The end of an expert region: rows weighted and summed by token. Three ways (--combine-impl):
 *
 *   fused_weighted_sum   one step reads the rows, the weights and the residual, and writes each token once
 *   weighted_sum         moe.weight writes the weighted rows, moe.combine sums them
 *   legacy_bmm           rows in the order of their assignments, [T, k, H], times the weights, [T, 1, k]: batched */
#include "codegen/plan_flatten.h"

bool moec_flat_joins(const flattener *c, const moec_graph *g, moec_node n) {
  return c->combine != MOEC_COMBINE_SUM && moec_plan_is_restored(g, n);
}

static uint32_t tensor_of(const frame *f, moec_value v) { return v.i ? f->slots[v.i].tensor : MOEC_NONE; }

static void add_step(flattener *c, frame *f, moec_node n, moec_plan_step step, const uint32_t *args) {
  step.schedule = (uint32_t)c->program;
  step.n_out = 1;
  step.args = moec_plan_pool(c->t, step.n_in + 1, args);
  step.call = f->call;
  step.where = moec_plan_sym(c->t, moec_node_get(f->g, n)->loc);
  MOEC_TABLE_ADD(c->t, steps, step);
}

/* rows[N, H] of experts as rows of assignments: what dispatch does with one slot a token and the inverse order. */
static uint32_t by_assignment(flattener *c, frame *f, moec_node n, moec_value rows, moec_value inv) {
  uint32_t out = moec_flat_tensor(c, MOEC_BUFFER_STEP, moec_value_get(f->g, rows)->type, "");
  moec_plan_step step = no_step;
  step.op = MOEC_STEP_MOE_DISPATCH, step.n_in = 3, step.moe = f->slots[inv.i].moe;
  step.ints = (uint32_t)c->t->n_ints, step.n_ints = 1, step.flops = moec_plan_expr_const(c->t, 0);
  MOEC_TABLE_ADD(c->t, ints, 1);
  add_step(c, f, n, step, (uint32_t[]){tensor_of(f, rows), tensor_of(f, inv), MOEC_NONE, out});
  return out;
}

/* y[T, 1, H] = w[T, 1, k] rows[T, k, H] (+ residual). */
static void add_bmm(flattener *c, frame *f, moec_node n, moec_value w, uint32_t rows, moec_value residual, uint32_t y) {
  moec_module *m = c->m;
  moec_type_info t = moec_ty(f->g, w), out = moec_ty(f->g, moec_out(f->g, n, 0));
  moec_dim one = moec_dim_const(m, 1), h = out.dims[out.rank - 1], tokens = t.dims[0], k = t.dims[1];
  const moec_dim ints[] = {one, h, k, k, one, h, one, tokens, k, moec_dim_mul(m, k, h)};
  moec_dim work = moec_dim_mul(m, moec_dim_mul(m, tokens, k), moec_dim_mul(m, h, moec_dim_const(m, 2)));
  moec_plan_step step = no_step;
  step.op = MOEC_STEP_GEMM, step.n_in = 3;
  step.ints = (uint32_t)c->t->n_ints, step.flops = moec_plan_expr_of(c->t, work);
  MOEC_TABLE_ADD(c->t, ints, 1);
  for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
    int64_t expr = (int64_t)moec_plan_expr_of(c->t, ints[i]);
    MOEC_TABLE_ADD(c->t, ints, expr);
  }
  step.n_ints = (uint32_t)c->t->n_ints - step.ints;
  add_step(c, f, n, step, (uint32_t[]){tensor_of(f, w), rows, tensor_of(f, residual), y});
}

moec_status *moec_flat_combine(flattener *c, frame *f, moec_node n, moec_node combine, moec_value residual) {
  const moec_graph *g = f->g;
  moec_plan_step step = no_step;
  moec_value rows = moec_in(g, combine, 0), y = moec_out(g, n, 0);
  moec_value in[4] = {rows, moec_in(g, combine, 1), {0}, residual};
  moec_node weight = moec_def(g, rows);
  if (moec_op_of(g, weight) == MOEC_OP_MOE_WEIGHT && moec_flat_joins(c, g, weight))
    in[0] = moec_in(g, weight, 0), in[2] = moec_in(g, weight, 1);
  if (c->combine == MOEC_COMBINE_BMM && in[2].i) {
    uint32_t sorted = by_assignment(c, f, n, in[0], in[1]);
    uint32_t sum = moec_flat_tensor(c, MOEC_BUFFER_STEP, moec_value_get(g, y)->type, "");
    f->slots[y.i] = (slot){sum, c->program, MOEC_NONE};
    add_bmm(c, f, n, in[2], sorted, residual, f->slots[y.i].tensor);
    return NULL;
  }
  MOEC_TRY(moec_plan_library_step(c->t, g, combine, &step));
  step.moe = f->slots[in[1].i].moe;
  MOEC_TRY(moec_flat_emit(c, f, n, step, 4, in, true));
  f->slots[y.i].moe = MOEC_NONE; /* the region ends here */
  return NULL;
}
