/* MoE layers: the stages of an expert region in order, and all layers of the model. */
#include <string.h>

#include "codegen/report_internal.h"

/* ---- the parts of one region ---------------------------------------------------------------- */

typedef struct parts {
  moec_node plan, dispatch, weight, combine;
  moec_node fc1[4], fc2[2]; /* by what they read: dispatched rows, or an activation */
  uint32_t n_fc1, n_fc2;
  uint32_t n_between; /* nodes between fc1 and fc2 */
} parts;

static bool inside(const report_fn *f, const report_region *reg, uint32_t n) {
  return f->region_of[n] == (uint32_t)(reg - f->regions);
}

static parts parts_of(const report_fn *f, const report_region *reg) {
  const moec_graph *g = f->g;
  parts p = {.plan = reg->node, .combine = reg->combine};
  for (uint32_t n = reg->first.i; n <= reg->last.i; n++) {
    if (!inside(f, reg, n) || n == reg->add.i) continue;
    moec_value rows = f->source[moec_in(g, (moec_node){n}, 0).i];
    switch (g->nodes[n].op) {
      case MOEC_OP_MOE_DISPATCH: p.dispatch.i = n; break;
      case MOEC_OP_MOE_WEIGHT: p.weight.i = n; break;
      case MOEC_OP_MOE_GROUPED_DOT:
        if (moec_def_op(g, rows) == MOEC_OP_MOE_DISPATCH && p.n_fc1 < 4)
          p.fc1[p.n_fc1++].i = n;
        else if (p.n_fc2 < 2)
          p.fc2[p.n_fc2++].i = n;
        break;
      case MOEC_OP_MOE_PLAN:
      case MOEC_OP_MOE_GROUPED_OUTER:
      case MOEC_OP_MOE_GROUP_SUM:
      case MOEC_OP_MOE_COMBINE: break;
      default: p.n_between++; break;
    }
  }
  return p;
}

static int64_t top_k(const report *r, const report_fn *f, const report_region *reg) {
  int64_t k = 0;
  moec_dim_is_const(r->m, moec_ty(f->g, moec_in(f->g, reg->node, 0)).dims[1], &k);
  return k;
}

static moec_dim last_dim(const moec_graph *g, moec_value v) {
  moec_type_info t = moec_ty(g, v);
  return t.rank ? t.dims[t.rank - 1] : (moec_dim){0};
}

static moec_dim hidden_of(const report_fn *f, const parts *p) {
  return p->dispatch.i ? last_dim(f->g, moec_out(f->g, p->dispatch, 0)) : (moec_dim){0};
}

static moec_dim intermediate_of(const report_fn *f, const parts *p) {
  return p->n_fc2 ? last_dim(f->g, moec_in(f->g, p->fc2[0], 0)) : (moec_dim){0};
}

/* ---- routing: the regions before the plan ---------------------------------------------------- */

static report_region *maker(report_fn *f, moec_value v) {
  uint32_t i = v.i ? f->region_of[moec_def(f->g, f->source[v.i]).i] : REPORT_NONE;
  return i == REPORT_NONE ? NULL : &f->regions[i];
}

/* Marks what leads to |reg| with |stage|, up to and including the nearest GEMMs. */
static void mark_up(report_fn *f, report_region *reg, const char *stage, int depth) {
  if (!reg || reg->stage || depth == 0 || reg->at != MOEC_AT_STEP || reg->kind == REPORT_EXPERT ||
      reg->kind == REPORT_CALL || reg->kind == REPORT_ATTENTION)
    return;
  reg->stage = stage;
  if (reg->kind == REPORT_GEMM) return;
  for (uint32_t i = 0; i < reg->n_edges; i++) mark_up(f, maker(f, f->edges[reg->edges + i].v), stage, depth - 1);
}

void moec_report_stages(report *r, report_fn *f) {
  (void)r;
  for (uint32_t i = 0; i < f->n_regions; i++) {
    const report_region *reg = &f->regions[i];
    if (reg->kind != REPORT_EXPERT) continue;
    parts p = parts_of(f, reg);
    report_region *select = maker(f, moec_in(f->g, p.plan, 0));
    if (select && !select->stage) {
      select->stage = "select";
      for (uint32_t k = 0; k < select->n_edges; k++) mark_up(f, maker(f, f->edges[select->edges + k].v), "score", 8);
    }
    report_region *weights = p.weight.i ? maker(f, moec_in(f->g, p.weight, 1)) : NULL;
    if (weights && !weights->stage) weights->stage = "weights";
  }
}

/* ---- stages in order ------------------------------------------------------------------------- */

static const struct { const char *stage, *why; } reasons[] = {
    {"plan", "one stable sort of the assignments by expert serves every later stage"},
    {"dispatch", "rows move into the order of their experts"},
    {"fc1", "grouped GEMM: one product an expert, empty experts included"},
    {"activation", "generated kernel between two grouped GEMMs"},
    {"fc2", "grouped GEMM: one product an expert, empty experts included"},
    {"weight", "done in the combine's pass: f32, rounded once"},
    {"combine", "rows return to the order of tokens; the sum over slots is rounded once"},
};

static json_t *new_stage(const char *stage) {
  const char *why = "before the opaque region";
  for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
    if (strcmp(reasons[i].stage, stage) == 0) why = reasons[i].why;
  json_t *o = moec_report_object();
  moec_report_set(o, "stage", moec_report_str(stage));
  moec_report_set(o, "why", moec_report_str(why));
  return o;
}

static void add_stage(const report *r, const report_fn *f, json_t *list, const char *stage, moec_node n) {
  const moec_graph *g = f->g;
  json_t *o = new_stage(stage);
  report_region alone = {.kind = REPORT_KERNEL, .node = n};
  bool fused = moec_op_of(g, n) == MOEC_OP_FUSED;
  moec_report_set_int(o, "region", -1);
  moec_report_set(o, "title",
                  moec_report_str(fused ? moec_report_title(r, f, &alone) : moec_op_get(moec_op_of(g, n))->text));
  moec_report_set(o, "ops", fused ? moec_report_ops(moec_report_kernel(r, f, &alone)) : moec_report_array());
  moec_report_set(o, "type", moec_report_type(r, moec_value_get(g, moec_out(g, n, 0))->type));
  moec_report_set(o, "flops", moec_report_size(r, moec_report_node_flops(r, g, n)));
  moec_report_set(o, "bytes", moec_report_size(r, moec_report_node_bytes(r, f, n)));
  moec_report_add(list, o);
}

static void add_outer_stage(const report *r, const report_fn *f, json_t *list, uint32_t index) {
  const report_region *reg = &f->regions[index];
  const moec_graph *k = moec_report_kernel(r, f, reg);
  json_t *o = new_stage(reg->stage);
  moec_report_set_int(o, "region", index);
  moec_report_set(o, "title", moec_report_str(moec_report_title(r, f, reg)));
  moec_report_set(o, "ops", k ? moec_report_ops(k) : moec_report_array());
  moec_report_set(o, "type", moec_report_type(r, moec_value_get(f->g, moec_out(f->g, reg->node, 0))->type));
  moec_report_set(o, "flops", moec_report_size(r, reg->flops));
  moec_report_set(o, "bytes", moec_report_size(r, reg->bytes));
  moec_report_add(list, o);
}

static json_t *stages(const report *r, const report_fn *f, const report_region *reg, const parts *p) {
  static const char *const before[] = {"score", "select", "weights"};
  json_t *list = moec_report_array();
  for (size_t s = 0; s < 3; s++)
    for (uint32_t i = 0; i < f->n_regions; i++)
      if (f->regions[i].stage && strcmp(f->regions[i].stage, before[s]) == 0) add_outer_stage(r, f, list, i);
  add_stage(r, f, list, "plan", p->plan);
  if (p->dispatch.i) add_stage(r, f, list, "dispatch", p->dispatch);
  for (uint32_t i = 0; i < p->n_fc1; i++) add_stage(r, f, list, "fc1", p->fc1[i]);
  for (uint32_t n = reg->first.i; n <= reg->last.i; n++)
    if (inside(f, reg, n) && moec_op_cls(f->g->nodes[n].op) != MOEC_CLASS_MOE && n != reg->add.i)
      add_stage(r, f, list, "activation", (moec_node){n});
  for (uint32_t i = 0; i < p->n_fc2; i++) add_stage(r, f, list, "fc2", p->fc2[i]);
  if (p->weight.i) add_stage(r, f, list, "weight", p->weight);
  if (p->combine.i) add_stage(r, f, list, "combine", p->combine);
  return list;
}

/* ---- the region as a whole ------------------------------------------------------------------- */

/* GEMMs of a MoE half that belong neither to the router nor to the experts: a shared expert. */
static json_t *shared_expert(const report *r, const report_fn *f) {
  int64_t gemms = 0;
  moec_dim intermediate = {0};
  bool gated = false;
  for (uint32_t i = 0; i < f->n_regions && f->caller; i++) {
    const report_region *reg = &f->regions[i];
    if (reg->kind != REPORT_GEMM || reg->stage) continue;
    moec_dim n = last_dim(f->g, moec_out(f->g, reg->node, 0));
    if (moec_dim_is(r->m, n, 1)) {
      gated = true;
      continue;
    }
    gemms++;
    const moec_attrs_DOT *a = MOEC_ATTRS(f->g, reg->node, DOT);
    if (a->lhs_contract.n == 1) intermediate = moec_ty(f->g, moec_in(f->g, reg->node, 0)).dims[a->lhs_contract.v[0]];
  }
  if (!gemms) return json_null();
  json_t *o = moec_report_object();
  moec_report_set_int(o, "gemms", gemms);
  moec_report_set(o, "intermediate", moec_report_size(r, intermediate));
  moec_report_set(o, "gated", json_boolean(gated));
  return o;
}

static bool has_bias(const report_fn *f, const parts *p) {
  return (p->n_fc1 && moec_in(f->g, p->fc1[0], 3).i) || (p->n_fc2 && moec_in(f->g, p->fc2[0], 3).i);
}

/* Two matrices into one activation: gate and up, side by side or apart. */
static bool is_gated(const report *r, const report_fn *f, const parts *p) {
  if (p->n_fc1 > 1 || !p->n_fc1 || !p->n_fc2) return p->n_fc1 > 1;
  moec_dim rows = last_dim(f->g, moec_out(f->g, p->fc1[0], 0)), half = intermediate_of(f, p);
  return moec_dim_eq(rows, moec_dim_mul(r->m, half, moec_dim_const(r->m, 2)));
}

json_t *moec_report_expert(const report *r, const report_fn *f, const report_region *reg) {
  parts p = parts_of(f, reg);
  json_t *o = moec_report_object();
  moec_report_set_int(o, "experts", MOEC_ATTRS(f->g, p.plan, MOE_PLAN)->experts);
  moec_report_set_int(o, "k", top_k(r, f, reg));
  moec_report_set(o, "hidden", moec_report_size(r, hidden_of(f, &p)));
  moec_report_set(o, "intermediate", moec_report_size(r, intermediate_of(f, &p)));
  moec_report_set(o, "gated", json_boolean(is_gated(r, f, &p)));
  moec_report_set(o, "bias", json_boolean(has_bias(f, &p)));
  moec_report_set(o, "adds_residual", json_boolean(reg->add.i != 0));
  moec_report_set(o, "shared_expert", shared_expert(r, f));
  moec_report_set(o, "stages", stages(r, f, reg, &p));
  return o;
}

/* ---- layers in schedule order ------------------------------------------------------------------ */

static json_t *param_name(const report *r, const report_fn *f, moec_value v, const moec_graph *caller, moec_node call) {
  moec_param p = moec_report_param_at(f, v, caller, call);
  return p.i ? moec_report_str(moec_sym_str(r->m, moec_param_get(r->m, p)->name)) : json_null();
}

/* The weight of the router: of the GEMM that makes the scores. */
static json_t *router_name(const report *r, const report_fn *f, const moec_graph *caller, moec_node call) {
  for (uint32_t i = 0; i < f->n_regions; i++) {
    const report_region *reg = &f->regions[i];
    if (reg->kind == REPORT_GEMM && reg->stage && strcmp(reg->stage, "score") == 0)
      return param_name(r, f, moec_in(f->g, reg->node, 1), caller, call);
  }
  return json_null();
}

static void add_layer(const report *r, json_t *list, uint32_t fn, uint32_t region, uint32_t block,
                      const moec_graph *caller, moec_node call) {
  const report_fn *f = &r->fns[fn];
  const report_region *reg = &f->regions[region];
  parts p = parts_of(f, reg);
  json_t *o = moec_report_object();
  moec_report_set_int(o, "layer", (json_int_t)json_array_size(list));
  moec_report_set_int(o, "block", block == REPORT_NONE ? -1 : (json_int_t)block);
  moec_report_set_int(o, "function", fn);
  moec_report_set_int(o, "region", region);
  moec_report_set_int(o, "experts", MOEC_ATTRS(f->g, p.plan, MOE_PLAN)->experts);
  moec_report_set_int(o, "k", top_k(r, f, reg));
  moec_report_set(o, "hidden", moec_report_size(r, hidden_of(f, &p)));
  moec_report_set(o, "intermediate", moec_report_size(r, intermediate_of(f, &p)));
  moec_report_set(o, "flops", moec_report_size(r, reg->flops));
  moec_report_set(o, "router", router_name(r, f, caller, call));
  moec_report_set(o, "fc1", p.n_fc1 ? param_name(r, f, moec_in(f->g, p.fc1[0], 1), caller, call) : json_null());
  moec_report_set(o, "fc2", p.n_fc2 ? param_name(r, f, moec_in(f->g, p.fc2[0], 1), caller, call) : json_null());
  moec_report_add(list, o);
}

json_t *moec_report_moe_layers(const report *r, const uint32_t *block_of_call) {
  json_t *list = moec_report_array();
  const report_fn *top = &r->fns[0];
  for (uint32_t i = 0; i < top->n_regions; i++) {
    const report_region *reg = &top->regions[i];
    if (reg->kind == REPORT_EXPERT) add_layer(r, list, 0, i, REPORT_NONE, NULL, (moec_node){0});
    if (reg->kind != REPORT_CALL) continue;
    uint32_t fn = r->index_of[MOEC_ATTRS(top->g, reg->node, CALL)->fn.i];
    for (uint32_t k = 0; k < r->fns[fn].n_regions; k++)
      if (r->fns[fn].regions[k].kind == REPORT_EXPERT)
        add_layer(r, list, fn, k, block_of_call[reg->node.i], top->g, reg->node);
  }
  return list;
}
