/* Nodes of expert regions whose work another node's step does. */
#include "codegen/plan_build.h"

moec_node moec_plan_only_reader(const moec_graph *g, moec_value v) {
  for (;;) {
    if (moec_use_count(g, v) != 1 || moec_is_output(g, v)) return (moec_node){0};
    moec_node n = g->use_nodes[g->use_start[v.i]];
    if (moec_op_of(g, n) != MOEC_OP_RESHAPE) return n;
    v = moec_out(g, n, 0);
  }
}

bool moec_plan_is_restored(const moec_graph *g, moec_node n) {
  moec_value rows = moec_out(g, n, 0);
  moec_node reader = moec_plan_only_reader(g, rows), plan = moec_def(g, moec_in(g, n, 2));
  if (!reader.i || moec_op_of(g, reader) != MOEC_OP_MOE_COMBINE || moec_in(g, reader, 0).i != rows.i) return false;
  return moec_op_of(g, plan) == MOEC_OP_MOE_PLAN && moec_in(g, n, 2).i == moec_out(g, plan, 0).i &&
         moec_in(g, reader, 1).i == moec_out(g, plan, 1).i;
}

moec_node moec_plan_weighted_dispatch(const moec_graph *g, moec_node n) {
  if (moec_op_of(g, n) != MOEC_OP_MOE_WEIGHT || moec_plan_is_restored(g, n)) return (moec_node){0};
  moec_value rows = moec_in(g, n, 0);
  moec_node d = moec_def(g, rows);
  bool joined = moec_op_of(g, d) == MOEC_OP_MOE_DISPATCH && moec_in(g, d, 1).i == moec_in(g, n, 2).i &&
                moec_in(g, n, 1).i != rows.i;
  return joined ? d : (moec_node){0};
}

bool moec_plan_only_weighted(const moec_graph *g, moec_node n) {
  moec_value v = moec_out(g, n, 0);
  uint32_t uses = moec_use_count(g, v);
  if (uses == 0 || moec_is_output(g, v)) return false;
  for (uint32_t i = 0; i < uses; i++)
    if (moec_plan_weighted_dispatch(g, g->use_nodes[g->use_start[v.i] + i]).i != n.i) return false;
  return true;
}
