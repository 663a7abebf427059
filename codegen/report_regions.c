/* How a function is cut into regions, each of which runs as one step or one opaque call; which
 * values cross the cuts; and when each region can run.
 *
 *   param, const, size, iota    leaves: no region
 *   reshape                     a view: no region, its readers read what it views
 *   fused                       a kernel; with an attention inside, an attention kernel
 *   dot (+ add)                 a library GEMM; an add that is the only reader of a dot or of a moe.combine is
 *                               done in its epilogue, as in codegen/plan_build.c
 *   moe.plan ... moe.combine    one expert region: everything that depends on the plan, up to the combine
 *   call                        a function of the model
 *   anything else               a library step */
#include <string.h>

#include "codegen/plan_tables.h"
#include "codegen/report_internal.h"

moec_node moec_report_find(const moec_graph *g, moec_op op) {
  for (uint32_t n = 1; n < g->n_nodes; n++)
    if (g->nodes[n].op == op) return (moec_node){n};
  return (moec_node){0};
}

moec_graph *moec_report_kernel(const report *r, const report_fn *f, const report_region *reg) {
  if (moec_op_of(f->g, reg->node) != MOEC_OP_FUSED) return NULL;
  return moec_fn_get(r->m, MOEC_ATTRS(f->g, reg->node, FUSED)->fn);
}

static moec_value through_views(const moec_graph *g, moec_value v) {
  while (v.i && moec_def_op(g, v) == MOEC_OP_RESHAPE) v = moec_in(g, moec_def(g, v), 0);
  return v;
}

moec_value moec_report_argument(const report_fn *f, moec_value input) {
  if (!f->caller || !input.i || moec_def(f->g, input).i) return (moec_value){0};
  return through_views(f->caller, moec_in(f->caller, f->call, moec_value_get(f->g, input)->slot));
}

moec_param moec_report_param_of(const moec_graph *g, moec_value v) {
  v = through_views(g, v);
  if (!v.i || moec_def_op(g, v) != MOEC_OP_PARAM) return (moec_param){0};
  return MOEC_ATTRS(g, moec_def(g, v), PARAM)->param;
}

moec_param moec_report_param_at(const report_fn *f, moec_value v, const moec_graph *caller, moec_node call) {
  v = through_views(f->g, v);
  if (!v.i || moec_def(f->g, v).i) return moec_report_param_of(f->g, v);
  if (!caller) return (moec_param){0};
  return moec_report_param_of(caller, moec_in(caller, call, moec_value_get(f->g, v)->slot));
}

/* ---- epilogues ---------------------------------------------------------------------------- */

moec_node moec_report_only_reader(const moec_graph *g, moec_value v) {
  while (moec_use_count(g, v) == 1 && !moec_is_output(g, v)) {
    moec_node n = g->use_nodes[g->use_start[v.i]];
    if (moec_op_of(g, n) != MOEC_OP_RESHAPE) return n;
    v = moec_out(g, n, 0);
  }
  return (moec_node){0};
}

/* The dot or moe.combine that add |n| is the epilogue of; {0}: none. */
static moec_node epilogue_of(const moec_graph *g, moec_node n) {
  if (moec_op_of(g, n) != MOEC_OP_ADD) return (moec_node){0};
  for (uint32_t i = 2; i-- > 0;) {
    moec_value v = through_views(g, moec_in(g, n, i));
    moec_op op = moec_def_op(g, v);
    if ((op == MOEC_OP_DOT || op == MOEC_OP_MOE_COMBINE) && moec_report_only_reader(g, v).i == n.i)
      return moec_def(g, v);
  }
  return (moec_node){0};
}

/* ---- nodes to regions --------------------------------------------------------------------- */

static bool is_leaf(moec_op op) {
  return op == MOEC_OP_NONE || moec_op_cls(op) == MOEC_CLASS_LEAF || op == MOEC_OP_RESHAPE;
}

static report_kind kind_of(const report *r, const moec_graph *g, moec_node n) {
  switch (moec_op_of(g, n)) {
    case MOEC_OP_FUSED: {
      const moec_graph *k = moec_fn_get(r->m, MOEC_ATTRS(g, n, FUSED)->fn);
      return moec_report_find(k, MOEC_OP_ATTENTION).i ? REPORT_ATTENTION : REPORT_KERNEL;
    }
    case MOEC_OP_ATTENTION: return REPORT_ATTENTION;
    case MOEC_OP_DOT: return REPORT_GEMM;
    case MOEC_OP_MOE_PLAN: return REPORT_EXPERT;
    case MOEC_OP_CALL: return REPORT_CALL;
    default: return REPORT_LIBRARY;
  }
}

/* By node: the node that stands for its region; 0 for leaves and views. Array order is topological. */
static uint32_t *find_leaders(const report *r, const moec_graph *g) {
  uint32_t *leader = MOEC_NEW_ARRAY(r->arena, uint32_t, g->n_nodes);
  uint32_t *plan = MOEC_NEW_ARRAY(r->arena, uint32_t, g->n_nodes); /* the expert region a node is inside of */
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    const moec_node_info *p = &g->nodes[n];
    if (p->op == MOEC_OP_MOE_PLAN) plan[n] = n;
    for (uint32_t i = 0; i < p->n_in && !plan[n]; i++) {
      moec_node d = moec_def(g, g->edges[p->in + i]);
      if (moec_op_of(g, d) != MOEC_OP_MOE_COMBINE) plan[n] = plan[d.i];
    }
    if (is_leaf(p->op)) continue;
    moec_node main_part = epilogue_of(g, (moec_node){n});
    leader[n] = main_part.i ? leader[main_part.i] : plan[n] ? plan[n] : n;
  }
  return leader;
}

/* Regions in the order of their last nodes: then whatever a region reads was made before. */
static void make_regions(const report *r, report_fn *f) {
  moec_graph *g = f->g;
  uint32_t *leader = find_leaders(r, g), *last = MOEC_NEW_ARRAY(r->arena, uint32_t, g->n_nodes);
  uint32_t *index = MOEC_NEW_ARRAY(r->arena, uint32_t, g->n_nodes);
  for (uint32_t n = 1; n < g->n_nodes; n++) last[leader[n]] = n;
  f->region_of = MOEC_NEW_ARRAY(r->arena, uint32_t, g->n_nodes);
  f->regions = MOEC_NEW_ARRAY(r->arena, report_region, g->n_nodes);
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    uint32_t l = leader[n];
    if (!l || last[l] != n) continue;
    index[l] = f->n_regions;
    f->regions[f->n_regions++] = (report_region){.kind = kind_of(r, g, (moec_node){l}), .node = {l}, .last = {n}};
  }
  f->region_of[0] = REPORT_NONE;
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    f->region_of[n] = leader[n] ? index[leader[n]] : REPORT_NONE;
    if (!leader[n]) continue;
    report_region *reg = &f->regions[index[leader[n]]];
    if (!reg->first.i) reg->first.i = n;
    if (g->nodes[n].op == MOEC_OP_MOE_COMBINE) reg->combine.i = n;
    if (epilogue_of(g, (moec_node){n}).i) reg->add.i = n;
  }
}

/* ---- what crosses the cuts ---------------------------------------------------------------- */

static void add_edge(const report *r, report_fn *f, report_edge e) {
  MOEC_PUSH(r->arena, f->edges, f->n_edges, f->cap_edges, e);
}

static void region_edges(const report *r, report_fn *f, uint32_t index, uint32_t *seen) {
  report_region *reg = &f->regions[index];
  const moec_graph *g = f->g;
  reg->edges = (uint32_t)f->n_edges;
  for (uint32_t n = reg->first.i; n <= reg->last.i; n++) {
    if (f->region_of[n] != index) continue;
    const moec_node_info *p = &g->nodes[n];
    for (uint32_t i = 0; i < p->n_in; i++) {
      moec_value v = f->source[g->edges[p->in + i].i];
      uint32_t from = f->region_of[moec_def(g, v).i];
      if (!v.i || from == index || seen[v.i] == index + 1) continue;
      seen[v.i] = index + 1;
      add_edge(r, f, (report_edge){v, from, index, {n}, i});
    }
  }
  reg->n_edges = (uint32_t)f->n_edges - reg->edges;
}

static void find_edges(const report *r, report_fn *f) {
  uint32_t *seen = MOEC_NEW_ARRAY(r->arena, uint32_t, f->g->n_values);
  f->source = MOEC_NEW_ARRAY(r->arena, moec_value, f->g->n_values);
  for (uint32_t v = 1; v < f->g->n_values; v++) f->source[v] = through_views(f->g, (moec_value){v});
  for (uint32_t i = 0; i < f->n_regions; i++) region_edges(r, f, i, seen);
  for (size_t i = 0; i < f->g->n_outputs; i++) {
    moec_value v = f->source[f->g->outputs[i].i];
    add_edge(r, f, (report_edge){v, f->region_of[moec_def(f->g, v).i], REPORT_NONE, {0}, (uint32_t)i});
  }
}

/* ---- binding times ------------------------------------------------------------------------ */

static bool has_symbols(const moec_module *m, moec_type t) {
  moec_type_info i = moec_type_get(m, t);
  for (uint32_t k = 0; k < i.rank; k++)
    if (!moec_dim_is_const(m, i.dims[k], NULL)) return true;
  return false;
}

static bool graph_has_symbols(const moec_graph *g) {
  for (uint32_t v = 1; v < g->n_values; v++)
    if (has_symbols(g->m, g->values[v].type)) return true;
  return moec_report_find(g, MOEC_OP_SIZE).i != 0;
}

static bool needs_sizes(const report *r, const moec_graph *g, moec_node n) {
  moec_op op = moec_op_of(g, n);
  if (op == MOEC_OP_SIZE) return true;
  for (uint32_t i = 0; i < moec_node_get(g, n)->n_out; i++)
    if (has_symbols(r->m, moec_value_get(g, moec_out(g, n, i))->type)) return true;
  return op == MOEC_OP_FUSED && graph_has_symbols(moec_fn_get(r->m, MOEC_ATTRS(g, n, FUSED)->fn));
}

static moec_schedule max_at(moec_schedule a, moec_schedule b) { return a > b ? a : b; }

/* A region runs when its latest operand is there; an expert region as one call, so all of it then. */
static void find_times(const report *r, report_fn *f) {
  const moec_graph *g = f->g;
  f->at = MOEC_NEW_ARRAY(r->arena, moec_schedule, g->n_values);
  for (size_t i = 0; i < g->n_inputs; i++) f->at[g->inputs[i].i] = f->in_at ? f->in_at[i] : MOEC_AT_STEP;
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    const moec_node_info *p = &g->nodes[n];
    moec_schedule at = p->op == MOEC_OP_RANDOM ? MOEC_AT_STEP : MOEC_AT_LOAD;
    for (uint32_t i = 0; i < p->n_in; i++) at = max_at(at, f->at[g->edges[p->in + i].i]);
    if (at == MOEC_AT_LOAD && p->op != MOEC_OP_CALL && needs_sizes(r, g, (moec_node){n})) at = MOEC_AT_BIND;
    for (uint32_t i = 0; i < p->n_out; i++) f->at[g->edges[p->out + i].i] = at;
    if (f->region_of[n] == REPORT_NONE) continue;
    report_region *reg = &f->regions[f->region_of[n]];
    reg->at = max_at(reg->at, at);
  }
}

/* ---- functions ---------------------------------------------------------------------------- */

static moec_half half_of(const report *r, const report_fn *f) {
  bool *computed = MOEC_NEW_ARRAY(r->arena, bool, f->g->n_inputs);
  for (size_t i = 0; i < f->g->n_inputs; i++) computed[i] = !f->in_at || f->in_at[i] == MOEC_AT_STEP;
  return moec_half_of(f->g, computed);
}

static void add_calls(report *r, uint32_t caller) {
  for (uint32_t i = 0; i < r->fns[caller].n_regions; i++) {
    report_fn *c = &r->fns[caller];
    moec_node n = c->regions[i].node;
    if (c->regions[i].kind != REPORT_CALL) continue;
    moec_fn fn = MOEC_ATTRS(c->g, n, CALL)->fn;
    if (r->index_of[fn.i] == REPORT_NONE) {
      r->index_of[fn.i] = (uint32_t)r->n_fns;
      report_fn add = {.fn = fn, .g = moec_fn_get(r->m, fn), .caller = c->g, .call = n};
      add.name = moec_sym_str(r->m, add.g->name);
      add.in_at = MOEC_NEW_ARRAY(r->arena, moec_schedule, add.g->n_inputs);
      MOEC_PUSH(r->arena, r->fns, r->n_fns, r->cap_fns, add);
    }
    report_fn *f = &r->fns[r->index_of[fn.i]];
    c = &r->fns[caller]; /* the table may have moved */
    f->n_calls += c->n_calls;
    for (uint32_t k = 0; k < f->g->n_inputs; k++)
      f->in_at[k] = max_at(f->in_at[k], c->at[moec_in(c->g, n, k).i]);
  }
}

void moec_report_analyse(report *r) {
  r->index_of = MOEC_NEW_ARRAY(r->arena, uint32_t, r->m->n_fns);
  for (size_t i = 0; i < r->m->n_fns; i++) r->index_of[i] = REPORT_NONE;
  report_fn main_fn = {.fn = {1}, .g = moec_main(r->m), .name = "main", .n_calls = 1};
  r->index_of[1] = 0;
  MOEC_PUSH(r->arena, r->fns, r->n_fns, r->cap_fns, main_fn);
  for (uint32_t i = 0; i < r->n_fns; i++) { /* the list grows by the functions called */
    report_fn *f = &r->fns[i];
    moec_build_uses(f->g);
    make_regions(r, f);
    find_edges(r, f);
    find_times(r, f);
    f->half = half_of(r, f);
    f->hash = moec_report_hash(r, f->g);
    moec_report_stages(r, f);
    add_calls(r, i);
  }
  for (size_t i = r->n_fns; i-- > 0;) /* callees before callers */
    for (uint32_t k = 0; k < r->fns[i].n_regions; k++) {
      report_region *reg = &r->fns[i].regions[k];
      reg->flops = moec_report_flops(r, &r->fns[i], reg);
      reg->bytes = moec_report_bytes(r, &r->fns[i], reg);
    }
}
