/* Products of experts, and what is done to their results on the way to memory (CUDA):
 *
 *     moe.grouped_dot ──► fused (codegen/kernel_activation.h) ──►      one step: the activation is computed from
 *           └───────────► other readers, if any                       what the product leaves in registers
 *
 * The product lies in memory only where others read it: forward alone, and forward whose backward computes it again,
 * write and keep the activation instead, which is half as large. */
#include "codegen/kernel_activation.h"
#include "codegen/plan_flatten.h"

static bool fits(const moec_graph *g, moec_node dot, moec_node n, moec_activation_form form) {
  moec_type_info y = moec_ty(g, moec_out(g, dot, 0)), a = moec_ty(g, moec_out(g, n, 0));
  moec_dim parts = moec_dim_const(g->m, form == MOEC_ACTIVATION_EACH ? 1 : 2);
  if (a.rank != 2 || !moec_dim_eq(a.dims[0], y.dims[0])) return false;
  return moec_dim_eq(moec_dim_mul(g->m, a.dims[1], parts), y.dims[1]);
}

/* The reader of |dot|'s result that its step computes, the only such one; {0}: none. */
static moec_node activation_of(const flattener *c, const moec_graph *g, moec_node dot, moec_kactivation *out) {
  moec_value y = moec_out(g, dot, 0);
  moec_node found = {0};
  for (uint32_t u = g->use_start[y.i]; c->kernels->cuda && u < g->use_start[y.i + 1]; u++) {
    moec_node n = g->use_nodes[u];
    moec_kactivation a;
    if (moec_op_of(g, n) != MOEC_OP_FUSED || moec_node_get(g, n)->n_in != 1) continue;
    if (!moec_kernel_activation(c->t->arena, c->kernels->kernels[MOEC_ATTRS(g, n, FUSED)->fn.i], &a)) continue;
    if (!fits(g, dot, n, a.form)) continue;
    if (found.i) return (moec_node){0};
    found = n, *out = a;
  }
  return found;
}

bool moec_flat_in_dot(const flattener *c, const moec_graph *g, moec_node n) {
  moec_kactivation a;
  if (moec_node_get(g, n)->n_in != 1) return false;
  moec_node dot = moec_def(g, moec_in(g, n, 0));
  return moec_op_of(g, dot) == MOEC_OP_MOE_GROUPED_DOT && activation_of(c, g, dot, &a).i == n.i;
}

/* The step that was added last, of |dot|'s operands and the activation: |y| becomes its first result. */
static void add_product(flattener *c, const moec_graph *g, moec_node dot, uint32_t y) {
  moec_plan_step *s = &c->t->steps[c->t->n_steps - 1];
  uint32_t args[6];
  for (uint32_t i = 0; i < s->n_in; i++) args[i] = c->t->pool[s->args + i];
  args[s->n_in] = y, args[s->n_in + 1] = c->t->pool[s->args + s->n_in];
  s->n_out = 2;
  s->args = moec_plan_pool(c->t, s->n_in + 2, args);
  s->where = moec_plan_sym(c->t, moec_node_get(g, dot)->loc);
}

moec_status *moec_flat_grouped_dot(flattener *c, frame *f, moec_node n, uint32_t moe) {
  const moec_graph *g = f->g;
  const moec_node_info p = *moec_node_get(g, n);
  moec_plan_step step = no_step;
  moec_kactivation a;
  moec_value y = moec_out(g, n, 0);
  moec_node act = activation_of(c, g, n, &a);
  MOEC_TRY(moec_plan_library_step(c->t, g, n, &step));
  step.moe = moe;
  if (!act.i) return moec_flat_emit(c, f, n, step, p.n_in, &g->edges[p.in], true);
  uint32_t fn = MOEC_ATTRS(g, act, FUSED)->fn.i;
  moec_dim flops = moec_dim_add(c->m, moec_plan_flops(c->m, g, n), c->kernels->kernels[fn]->flops);
  MOEC_TABLE_ADD(c->t, ints, (int64_t)a.form);
  step.n_ints++;
  step.kernel = c->kernels->plan_index[fn];
  step.flops = moec_plan_expr_of(c->t, flops);
  MOEC_TRY(moec_flat_emit(c, f, act, step, p.n_in, &g->edges[p.in], true));
  slot made = f->slots[moec_out(g, act, 0).i];
  bool kept = moec_use_count(g, y) > 1;
  if (kept) {
    f->slots[y.i] = made;
    moec_buffer_kind kind = (moec_buffer_kind)c->t->buffers[c->t->tensors[made.tensor].buffer].kind;
    f->slots[y.i].tensor = moec_flat_tensor(c, kind, moec_value_get(g, y)->type, "");
  }
  add_product(c, g, n, kept ? f->slots[y.i].tensor : MOEC_NONE);
  return NULL;
}
