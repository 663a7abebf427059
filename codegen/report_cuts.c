/* Why each cut is where it is: one reason for every value that crosses from one region to
 * another, or leaves the function. The first rule that holds gives the reason. */
#include <string.h>

#include "codegen/report_internal.h"

typedef struct cut {
  const report *r;
  const report_fn *f;
  const report_edge *e;
  const report_region *from, *to; /* NULL: function input; function output */
  moec_op reader;                 /* op of the first node that reads the value */
  uint32_t n_readers;             /* regions that read it */
} cut;

typedef struct rule {
  const char *reason;
  bool (*when)(const cut *c);
  const char *why; /* %1: number of readers, %2 and %3: rows of the two kernels, %4: step that reads or writes */
} rule;

static bool is_kernel(const report_region *x) { return x && (x->kind == REPORT_KERNEL || x->kind == REPORT_ATTENTION); }
static bool is_main(const cut *c) { return !c->f->caller; }

static moec_dim rows_of(const cut *c, const report_region *x) {
  return moec_op_of(c->f->g, x->node) == MOEC_OP_FUSED ? MOEC_ATTRS(c->f->g, x->node, FUSED)->rows : (moec_dim){0};
}

/* Whether the kernel |x| has an op of class |cls| on the way. */
static bool kernel_has(const cut *c, const report_region *x, moec_op_class cls) {
  const moec_graph *k = moec_report_kernel(c->r, c->f, x);
  for (uint32_t n = 1; k && n < k->n_nodes; n++)
    if (moec_op_cls(k->nodes[n].op) == cls) return true;
  return false;
}

/* Whether the reading kernel gathers from the value. */
static bool gathers(const cut *c) {
  const moec_graph *k = moec_report_kernel(c->r, c->f, c->to);
  for (uint32_t n = 1; k && n < k->n_nodes; n++)
    if (moec_op_cls(k->nodes[n].op) == MOEC_CLASS_INDEX && moec_in(k, (moec_node){n}, 0).i == k->inputs[c->e->slot].i)
      return true;
  return false;
}

static bool other_rows(const cut *c) {
  return is_kernel(c->from) && is_kernel(c->to) && !moec_dim_eq(rows_of(c, c->from), rows_of(c, c->to));
}

static bool model_output(const cut *c) { return !c->to && is_main(c); }
static bool span_end(const cut *c) { return !c->to; }
static bool span_start(const cut *c) { return !c->from && c->to->at == MOEC_AT_STEP; }
static bool hoisted(const cut *c) { return c->from && c->to && c->from->at < c->to->at; }
static bool next_call(const cut *c) { return c->to->kind == REPORT_CALL && c->from->kind == REPORT_CALL; }
static bool into_call(const cut *c) { return c->to->kind == REPORT_CALL; }
static bool from_call(const cut *c) { return c->from->kind == REPORT_CALL; }
static bool into_plan(const cut *c) { return c->reader == MOEC_OP_MOE_PLAN; }
static bool into_dispatch(const cut *c) { return c->reader == MOEC_OP_MOE_DISPATCH; }
static bool into_weight(const cut *c) { return c->reader == MOEC_OP_MOE_WEIGHT; }
static bool into_expert(const cut *c) {
  return c->to->kind == REPORT_EXPERT && c->to->add.i && c->reader == MOEC_OP_ADD;
}
static bool into_experts(const cut *c) { return c->to->kind == REPORT_EXPERT; }
static bool from_expert(const cut *c) { return c->from->kind == REPORT_EXPERT; }
static bool into_select(const cut *c) { return c->reader == MOEC_OP_MOE_SELECT; }
static bool accumulates(const cut *c) { return c->to->kind == REPORT_GEMM && c->reader == MOEC_OP_ADD; }
static bool into_gemm(const cut *c) { return c->to->kind == REPORT_GEMM; }
static bool into_attention(const cut *c) { return c->to->kind == REPORT_ATTENTION; }
static bool from_gemm(const cut *c) { return c->from->kind == REPORT_GEMM; }
static bool from_attention(const cut *c) { return c->from->kind == REPORT_ATTENTION; }
static bool into_library(const cut *c) { return c->to->kind == REPORT_LIBRARY; }
static bool from_library(const cut *c) { return c->from->kind == REPORT_LIBRARY; }
static bool many_readers(const cut *c) { return c->n_readers > 1; }
static bool has_reduction(const cut *c, const report_region *x) {
  return kernel_has(c, x, MOEC_CLASS_REDUCE) || kernel_has(c, x, MOEC_CLASS_COMPOSITE);
}
static bool reduces(const cut *c) { return other_rows(c) && (has_reduction(c, c->from) || has_reduction(c, c->to)); }
static bool always(const cut *c) { return c != NULL; }

static const rule rules[] = {
    {"model_output", model_output, "it is an output of the model"},
    {"span_end", span_end, "the span ends at the residual add"},
    {"span_start", span_start, "the span starts at the residual stream"},
    {"binding_time", hoisted, "computed once, at %5, and read at every step"},
    {"residual_add", next_call, "the span ends at the residual add"},
    {"call_argument", into_call, "the residual stream enters the blocks: functions called many times"},
    {"call_result", from_call, "the last span ends at the residual add"},
    {"expert_plan", into_plan, "expert region: assignments are sorted by expert at plan"},
    {"expert_dispatch", into_dispatch, "expert region: token order changes at dispatch"},
    {"expert_weight", into_weight, "expert region: routing weights meet their rows at weight"},
    {"expert_residual", into_expert, "the combine adds it to the restored rows in its own pass"},
    {"expert_operand", into_experts, "the opaque expert region reads its operands from memory"},
    {"expert_combine", from_expert, "the expert region ends at combine: rows are back in token order"},
    {"select", into_select, "select needs all scores of a token"},
    {"gemm_accumulate", accumulates, "the GEMM adds its product onto it in place"},
    {"gemm_operand", into_gemm, "library GEMM reads its operand from memory"},
    {"attention_operand", into_attention, "attention loops over all keys of a query: its operands lie in memory"},
    {"attention_result", from_attention, "attention finishes a query after its last key: other rows than its reader"},
    {"gemm_result", from_gemm, "library GEMM writes its result to memory"},
    {"library_operand", into_library, "library step %4 reads its operand from memory"},
    {"library_result", from_library, "library step %4 writes its result to memory"},
    {"gather", gathers, "read at positions known only at run time"},
    {"other_axis", reduces, "reduction over another axis: rows are %2 here, %3 there"},
    {"many_readers", many_readers, "the value is read by %1 regions"},
    {"other_rows", other_rows, "the parallel index changes from %2 to %3"},
    {"kept_apart", always, "kept apart by the fuse pass"},
};

/* ---- words -------------------------------------------------------------------------------- */

static const char *step_text(const cut *c) {
  const report_region *x = c->to && c->to->kind == REPORT_LIBRARY ? c->to : c->from;
  return x ? moec_op_get(moec_op_of(c->f->g, x->node))->text : "";
}

static json_t *words(const cut *c, const char *why) {
  static const char *const at[] = {"load", "bind", "step"};
  moec_buf b = {0};
  for (const char *p = why; *p; p++) {
    if (*p != '%') {
      moec_buf_putc(&b, *p);
      continue;
    }
    switch (*++p) {
      case '1': moec_buf_printf(&b, "%u", c->n_readers); break;
      case '2': moec_dim_print(&b, c->r->m, rows_of(c, c->from)); break;
      case '3': moec_dim_print(&b, c->r->m, rows_of(c, c->to)); break;
      case '4': moec_buf_puts(&b, step_text(c)); break;
      default: moec_buf_puts(&b, at[c->from->at]); break;
    }
  }
  json_t *v = moec_report_str(moec_buf_str(&b));
  moec_buf_fini(&b);
  return v;
}

/* ---- cuts --------------------------------------------------------------------------------- */

/* Leaves and arguments known before the step are operands, not cuts. */
static bool is_cut(const report_fn *f, const report_edge *e) {
  if (e->from != REPORT_NONE) return true;
  return e->to != REPORT_NONE && f->caller && !moec_def(f->g, e->v).i && moec_value_get(f->g, e->v)->slot == 0 &&
         f->at[e->v.i] == MOEC_AT_STEP;
}

static uint32_t *count_readers(const report *r, const report_fn *f) {
  uint32_t *n = MOEC_NEW_ARRAY(r->arena, uint32_t, f->g->n_values);
  for (size_t i = 0; i < f->n_edges; i++) n[f->edges[i].v.i] += f->edges[i].to != REPORT_NONE;
  return n;
}

static json_t *cut_json(const cut *c) {
  json_t *o = moec_report_object();
  size_t i = 0;
  while (!rules[i].when(c)) i++; /* the last rule always holds */
  moec_report_set_int(o, "from", c->from ? (json_int_t)c->e->from : -1);
  moec_report_set_int(o, "to", c->to ? (json_int_t)c->e->to : -1);
  moec_report_set(o, "type", moec_report_type(c->r, moec_value_get(c->f->g, c->e->v)->type));
  moec_report_set(o, "bytes", moec_report_size(c->r, moec_report_edge_bytes(c->r, c->f, c->e)));
  moec_report_set(o, "reason", moec_report_str(rules[i].reason));
  moec_report_set(o, "why", words(c, rules[i].why));
  return o;
}

json_t *moec_report_cuts(const report *r, const report_fn *f) {
  uint32_t *readers = count_readers(r, f);
  json_t *list = moec_report_array();
  for (size_t i = 0; i < f->n_edges; i++) {
    const report_edge *e = &f->edges[i];
    if (!is_cut(f, e)) continue;
    cut c = {.r = r, .f = f, .e = e, .n_readers = readers[e->v.i], .reader = moec_op_of(f->g, e->reader)};
    if (e->from != REPORT_NONE) c.from = &f->regions[e->from];
    if (e->to != REPORT_NONE) c.to = &f->regions[e->to];
    moec_report_add(list, cut_json(&c));
  }
  return list;
}
