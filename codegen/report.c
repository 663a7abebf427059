/* The report as a whole. */
#include <string.h>

#include "base/number.h"
#include "codegen/plan_tables.h"
#include "codegen/report_internal.h"

static json_t *symbols_json(const report *r) {
  json_t *list = moec_report_array();
  for (uint32_t i = 0; i < moec_dim_symbol_count(r->m); i++) {
    uint32_t s = r->symbol_order[i];
    json_t *o = moec_report_object();
    moec_report_set(o, "name", moec_report_str(moec_dim_symbol_name(r->m, s)));
    moec_report_set_int(o, "value", r->symbols[s]);
    moec_report_set(o, "given", json_boolean(r->given[s]));
    moec_report_add(list, o);
  }
  return list;
}

static json_t *constraints_json(const report *r) {
  json_t *list = moec_report_array();
  for (size_t i = 0; i < r->m->n_constraints; i++) {
    const moec_constraint *c = &r->m->constraints[i];
    json_t *o = moec_report_object();
    moec_buf text = {0};
    moec_dim_print_equal(&text, r->m, c->a, c->b);
    moec_report_set(o, "text", moec_report_str(moec_buf_str(&text)));
    moec_buf_fini(&text);
    moec_report_set(o, "what", moec_report_str(moec_sym_str(r->m, c->what)));
    moec_report_add(list, o);
  }
  return list;
}

/* |dflt|: NULL where there is none. */
static json_t *value_json(const report *r, const char *name, moec_type t, const double *dflt) {
  json_t *o = moec_report_object();
  moec_report_set(o, "name", moec_report_str(name));
  moec_report_set(o, "type", moec_report_type(r, t));
  moec_report_set(o, "bytes", moec_report_size(r, moec_plan_bytes(r->m, t)));
  char number[32];
  moec_snprintf(number, sizeof number, "%.17g", dflt ? *dflt : 0);
  if (dflt) moec_report_set(o, "default", moec_report_str(number));
  return o;
}

static void add_interface(const report *r, json_t *out) {
  const moec_graph *g = moec_main(r->m);
  json_t *inputs = moec_report_array(), *outputs = moec_report_array();
  for (size_t i = 0; i < g->n_inputs; i++) {
    const moec_value_info *v = moec_value_get(g, g->inputs[i]);
    moec_report_add(inputs, value_json(r, moec_sym_str(r->m, v->name), v->type, v->has_default ? &v->dflt : NULL));
  }
  for (size_t i = 0; i < g->n_outputs; i++)
    moec_report_add(
        outputs, value_json(r, moec_sym_str(r->m, g->output_names[i]), moec_value_get(g, g->outputs[i])->type, NULL));
  moec_report_set(out, "inputs", inputs);
  moec_report_set(out, "outputs", outputs);
}

/* Kernels are compiled once a fused function and launched once a fused call, inside expert regions too. */
static void count_kernels(const report *r, int64_t *compiled, int64_t *launches) {
  bool *seen = MOEC_NEW_ARRAY(r->arena, bool, r->m->n_fns);
  for (size_t i = 0; i < r->n_fns; i++) {
    const report_fn *f = &r->fns[i];
    for (uint32_t n = 1; n < f->g->n_nodes; n++) {
      if (f->g->nodes[n].op != MOEC_OP_FUSED) continue;
      uint32_t fn = MOEC_ATTRS(f->g, (moec_node){n}, FUSED)->fn.i;
      *compiled += !seen[fn];
      seen[fn] = true;
      if (f->regions[f->region_of[n]].at == MOEC_AT_STEP) *launches += f->n_calls;
    }
  }
}

/* Of one step of the whole model. */
static json_t *totals_json(const report *r) {
  int64_t launched[REPORT_KIND_COUNT] = {0}, compiled = 0, launches = 0;
  moec_dim flops = moec_dim_const(r->m, 0), bytes = flops;
  for (size_t i = 0; i < r->n_fns; i++)
    for (uint32_t k = 0; k < r->fns[i].n_regions; k++) {
      const report_region *reg = &r->fns[i].regions[k];
      if (reg->at != MOEC_AT_STEP) continue;
      launched[reg->kind] += r->fns[i].n_calls;
      if (i != 0) continue; /* calls stand for their functions */
      flops = moec_dim_add(r->m, flops, reg->flops);
      bytes = moec_dim_add(r->m, bytes, reg->bytes);
    }
  count_kernels(r, &compiled, &launches);
  json_t *o = moec_report_object();
  moec_report_set_int(o, "functions", (json_int_t)r->n_fns - 1);
  moec_report_set_int(o, "calls", launched[REPORT_CALL]);
  moec_report_set_int(o, "kernels", compiled);
  moec_report_set_int(o, "kernel_launches", launches);
  moec_report_set_int(o, "gemms", launched[REPORT_GEMM]);
  moec_report_set_int(o, "expert_regions", launched[REPORT_EXPERT]);
  moec_report_set_int(o, "library_steps", launched[REPORT_LIBRARY]);
  moec_report_set(o, "flops", moec_report_size(r, flops));
  moec_report_set(o, "bytes", moec_report_size(r, bytes));
  return o;
}

/* What a reader would wonder about. */
static json_t *notes_json(const report *r) {
  json_t *list = moec_report_array();
  uint32_t n[REPORT_KIND_COUNT] = {0};
  for (size_t i = 0; i < r->n_fns; i++)
    for (uint32_t k = 0; k < r->fns[i].n_regions; k++) n[r->fns[i].regions[k].kind]++;
  if (n[REPORT_EXPERT] && !n[REPORT_KERNEL] && !n[REPORT_ATTENTION] && !n[REPORT_GEMM])
    moec_report_add(list, moec_report_str("the model is one expert region: there is nothing beside it to fuse"));
  if (r->n_fns == 1) moec_report_add(list, moec_report_str("no half-block repeats: the model is one function"));
  return list;
}

static json_t *strings_json(const char *const *lines, size_t n) {
  json_t *list = moec_report_array();
  for (size_t i = 0; i < n; i++) moec_report_add(list, moec_report_str(lines[i]));
  return list;
}

static json_t *report_json(report *r) {
  json_t *o = moec_report_object();
  moec_report_set(o, "format", moec_report_str(REPORT_FORMAT));
  moec_report_set_int(o, "version", REPORT_VERSION);
  moec_report_set(o, "model", moec_report_str(r->in->model ? r->in->model : moec_sym_str(r->m, r->m->name)));
  moec_report_set(o, "symbols", symbols_json(r));
  moec_report_set(o, "constraints", constraints_json(r));
  add_interface(r, o);
  moec_report_set(o, "totals", totals_json(r));
  const uint32_t *block_of_call = moec_report_blocks(r, o);
  moec_report_set(o, "moe_layers", moec_report_moe_layers(r, block_of_call));
  moec_report_set(o, "functions", moec_report_functions(r));
  moec_report_set(o, "hoisted", moec_report_hoisted(r));
  moec_report_set(o, "parameters", moec_report_parameters(r));
  moec_report_set(o, "notes", notes_json(r));
  moec_report_set(o, "remarks", strings_json(r->in->remarks, r->in->n_remarks));
  return o;
}

moec_status *moec_report_build(moec_module *m, const moec_report_input *in, json_t **out) {
  report r = {.m = m, .in = in, .arena = moec_arena_create()};
  *out = NULL;
  moec_status *s = moec_report_symbols(&r);
  if (!s) {
    moec_report_analyse(&r);
    *out = report_json(&r);
  }
  moec_arena_destroy(r.arena);
  return s;
}
