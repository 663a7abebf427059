/* JSON of functions and their regions, and of work that is hoisted out of the step. */
#include "codegen/report_internal.h"

static const char *const kind_text[] = {
#define REPORT_KIND_TEXT(name, text, people) text,
    REPORT_KINDS(REPORT_KIND_TEXT)
#undef REPORT_KIND_TEXT
};
static const char *const at_text[] = {"load", "bind", "step"};

/* ---- operands ----------------------------------------------------------------------------- */

static json_t *operand_json(const report *r, const report_fn *f, const report_edge *e) {
  const char *from = "region";
  int64_t index = e->from;
  if (e->from == REPORT_NONE) {
    moec_node n = moec_def(f->g, e->v);
    bool param = moec_report_param_at(f, e->v, f->caller, f->call).i != 0;
    from = param ? "parameter" : n.i ? moec_op_get(moec_op_of(f->g, n))->text : "input";
    index = n.i ? -1 : (int64_t)moec_value_get(f->g, e->v)->slot;
  }
  json_t *o = moec_report_object();
  moec_report_set(o, "from", moec_report_str(from));
  moec_report_set_int(o, "index", index);
  moec_report_set(o, "type", moec_report_type(r, moec_value_get(f->g, e->v)->type));
  moec_report_set(o, "bytes", moec_report_size(r, moec_report_edge_bytes(r, f, e)));
  return o;
}

/* What others read of the region |index|, each value once. */
static json_t *outputs_json(const report *r, const report_fn *f, uint32_t index) {
  json_t *list = moec_report_array();
  for (size_t i = 0; i < f->n_edges; i++) {
    const report_edge *e = &f->edges[i];
    if (e->from != index) continue;
    bool first = true;
    for (size_t k = 0; k < i && first; k++) first = f->edges[k].v.i != e->v.i;
    if (!first) continue;
    json_t *o = moec_report_object();
    moec_report_set(o, "type", moec_report_type(r, moec_value_get(f->g, e->v)->type));
    report_edge whole = {.v = e->v};
    moec_report_set(o, "bytes", moec_report_size(r, moec_report_edge_bytes(r, f, &whole)));
    moec_report_add(list, o);
  }
  return list;
}

/* ---- regions ------------------------------------------------------------------------------ */

static json_t *what_json(const report *r, const report_fn *f, const report_region *reg) {
  if (moec_op_of(f->g, reg->node) != MOEC_OP_FUSED || !r->in->kernel_what) return json_null();
  return moec_report_str(r->in->kernel_what[MOEC_ATTRS(f->g, reg->node, FUSED)->fn.i]);
}

static json_t *region_json(const report *r, const report_fn *f, uint32_t index) {
  const report_region *reg = &f->regions[index];
  const moec_graph *k = moec_report_kernel(r, f, reg);
  json_t *o = moec_report_object(), *inputs = moec_report_array();
  for (uint32_t i = 0; i < reg->n_edges; i++) moec_report_add(inputs, operand_json(r, f, &f->edges[reg->edges + i]));
  moec_report_set(o, "kind", moec_report_str(kind_text[reg->kind]));
  moec_report_set(o, "title", moec_report_str(moec_report_title(r, f, reg)));
  moec_report_set(o, "what", what_json(r, f, reg));
  moec_report_set(o, "at", moec_report_str(at_text[reg->at]));
  moec_report_set(o, "stage", moec_report_str(reg->stage));
  moec_report_set(o, "ops", k ? moec_report_ops(k) : moec_report_array());
  moec_report_set(o, "rows", k ? moec_report_size(r, MOEC_ATTRS(f->g, reg->node, FUSED)->rows) : json_null());
  moec_report_set(o, "inputs", inputs);
  moec_report_set(o, "outputs", outputs_json(r, f, index));
  moec_report_set(o, "flops", moec_report_size(r, reg->flops));
  moec_report_set(o, "bytes", moec_report_size(r, reg->bytes));
  if (reg->kind == REPORT_GEMM) moec_report_set(o, "gemm", moec_report_gemm(r, f, reg));
  if (reg->kind == REPORT_ATTENTION) moec_report_set(o, "attention", moec_report_attention(r, f, reg));
  if (reg->kind == REPORT_EXPERT) moec_report_set(o, "expert", moec_report_expert(r, f, reg));
  if (reg->kind == REPORT_CALL)
    moec_report_set_int(o, "function", r->index_of[MOEC_ATTRS(f->g, reg->node, CALL)->fn.i]);
  return o;
}

/* ---- functions ---------------------------------------------------------------------------- */

static json_t *counts_json(const report_fn *f) {
  int64_t n[REPORT_KIND_COUNT] = {0}, views = 0, leaves = 0;
  for (uint32_t i = 0; i < f->n_regions; i++) n[f->regions[i].kind]++;
  n[REPORT_KERNEL] = -n[REPORT_ATTENTION]; /* kernels inside expert regions count too */
  for (uint32_t i = 1; i < f->g->n_nodes; i++) {
    n[REPORT_KERNEL] += f->g->nodes[i].op == MOEC_OP_FUSED;
    views += f->g->nodes[i].op == MOEC_OP_RESHAPE;
    leaves += moec_op_cls(f->g->nodes[i].op) == MOEC_CLASS_LEAF;
  }
  json_t *o = moec_report_object();
  moec_report_set_int(o, "nodes", (json_int_t)f->g->n_nodes - 1);
  for (size_t k = 0; k < REPORT_KIND_COUNT; k++) moec_report_set_int(o, kind_text[k], n[k]);
  moec_report_set_int(o, "views", views);
  moec_report_set_int(o, "leaves", leaves);
  return o;
}

static const char *input_role(const report_fn *f, size_t i) {
  if (!f->caller) return "input";
  if (moec_report_param_at(f, f->g->inputs[i], f->caller, f->call).i) return "parameter";
  if (f->in_at[i] != MOEC_AT_STEP) return "invariant";
  return i == 0 ? "residual stream" : "value";
}

static json_t *interface_json(const report *r, const report_fn *f, json_t *outputs) {
  json_t *inputs = moec_report_array();
  for (size_t i = 0; i < f->g->n_inputs; i++) {
    json_t *o = moec_report_object();
    moec_report_set(o, "role", moec_report_str(input_role(f, i)));
    moec_report_set(o, "type", moec_report_type(r, moec_value_get(f->g, f->g->inputs[i])->type));
    moec_report_set(o, "at", moec_report_str(at_text[f->at[f->g->inputs[i].i]]));
    moec_report_add(inputs, o);
  }
  for (size_t i = 0; i < f->g->n_outputs; i++)
    moec_report_add(outputs, moec_report_type(r, moec_value_get(f->g, f->g->outputs[i])->type));
  return inputs;
}

static json_t *function_json(const report *r, const report_fn *f) {
  json_t *o = moec_report_object(), *regions = moec_report_array(), *outputs = moec_report_array();
  moec_dim flops = moec_dim_const(r->m, 0), bytes = flops;
  for (uint32_t i = 0; i < f->n_regions; i++) {
    moec_report_add(regions, region_json(r, f, i));
    if (f->regions[i].at != MOEC_AT_STEP || f->regions[i].kind == REPORT_CALL) continue; /* functions count for
                                                                                            themselves */
    flops = moec_dim_add(r->m, flops, f->regions[i].flops);
    bytes = moec_dim_add(r->m, bytes, f->regions[i].bytes);
  }
  char hash[17];
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)f->hash);
  moec_report_set(o, "name", moec_report_str(f->name));
  moec_report_set(o, "kind", moec_report_str(f->fn.i == 1 ? "main" : moec_half_text(f->half)));
  moec_report_set_int(o, "calls", f->n_calls);
  moec_report_set(o, "hash", moec_report_str(hash));
  moec_report_set(o, "counts", counts_json(f));
  moec_report_set(o, "flops", moec_report_size(r, flops));
  moec_report_set(o, "bytes", moec_report_size(r, bytes));
  moec_report_set(o, "parameters", moec_report_param_sums(r, f));
  moec_report_set(o, "inputs", interface_json(r, f, outputs));
  moec_report_set(o, "outputs", outputs);
  moec_report_set(o, "regions", regions);
  moec_report_set(o, "cuts", moec_report_cuts(r, f));
  return o;
}

json_t *moec_report_functions(report *r) {
  json_t *list = moec_report_array();
  for (size_t i = 0; i < r->n_fns; i++) moec_report_add(list, function_json(r, &r->fns[i]));
  return list;
}

/* Regions that run before the step: once a load, or once for each set of sizes. */
json_t *moec_report_hoisted(const report *r) {
  json_t *list = moec_report_array();
  for (size_t i = 0; i < r->n_fns; i++)
    for (uint32_t k = 0; k < r->fns[i].n_regions; k++) {
      const report_fn *f = &r->fns[i];
      if (f->regions[k].at == MOEC_AT_STEP) continue;
      json_t *o = moec_report_object();
      moec_report_set_int(o, "function", (json_int_t)i);
      moec_report_set_int(o, "region", k);
      moec_report_set(o, "at", moec_report_str(at_text[f->regions[k].at]));
      moec_report_set(o, "title", moec_report_str(moec_report_title(r, f, &f->regions[k])));
      moec_report_set(o, "type",
                      moec_report_type(r, moec_value_get(f->g, moec_out(f->g, f->regions[k].node, 0))->type));
      moec_report_set_int(o, "calls", f->n_calls);
      moec_report_set(o, "flops", moec_report_size(r, f->regions[k].flops));
      moec_report_add(list, o);
    }
  return list;
}
