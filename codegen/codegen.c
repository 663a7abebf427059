/* The last stage: kernels, plan, executable. */
#include "codegen/codegen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/outfile.h"
#include "base/size.h"
#include "codegen/cc.h"
#include "codegen/emit.h"
#include "codegen/kernel.h"
#include "codegen/plan_build.h"

/* Kernel IR, text and plan record of every fused function. */
static moec_status *build_kernels(moec_module *m, moec_plan_tables *t, moec_kernel_set *set, moec_buf *source) {
  moec_arena *a = t->arena;
  set->n = m->n_fns;
  set->kernels = MOEC_NEW_ARRAY(a, moec_kernel *, m->n_fns);
  set->plan_index = MOEC_NEW_ARRAY(a, uint32_t, m->n_fns);
  moec_emit_c_prelude(source);
  for (size_t f = 1; f < m->n_fns; f++) {
    const moec_graph *g = m->fns[f];
    for (size_t n = 1; n < g->n_nodes; n++) {
      if (g->nodes[n].op != MOEC_OP_FUSED) continue;
      const moec_attrs_FUSED *attrs = g->nodes[n].attrs;
      uint32_t id = attrs->fn.i;
      if (set->kernels[id]) continue;
      const char *name = moec_sym_str(m, m->fns[id]->name);
      moec_kernel *k = NULL;
      MOEC_TRY(moec_context(moec_kernel_build(a, m, m->fns[id], attrs->rows, &k), "kernel %s", name));
      moec_emit_c_kernel(source, k, name);
      set->kernels[id] = k;
      moec_plan_kernel r = {moec_plan_str(t, name), moec_plan_str(t, k->what), moec_plan_expr_of(t, k->range),
                            moec_plan_expr_of(t, k->scratch), moec_plan_expr_of(t, k->flops), k->grain};
      set->plan_index[id] = MOEC_TABLE_ADD(t, kernels, r);
    }
  }
  return NULL;
}

/* ---- the report --------------------------------------------------------------------------- */

static moec_status *report_of(moec_module *m, const moec_kernel_set *set, moec_arena *a, const moec_report_input *in, json_t **out) {
  moec_report_input all = *in;
  const char **what = MOEC_NEW_ARRAY(a, const char *, set->n);
  moec_dim *flops = MOEC_NEW_ARRAY(a, moec_dim, set->n);
  for (size_t i = 0; i < set->n; i++)
    if (set->kernels[i]) what[i] = set->kernels[i]->what, flops[i] = set->kernels[i]->flops;
  all.kernel_what = what;
  all.kernel_flops = flops;
  return moec_report_build(m, &all, out);
}

moec_status *moec_codegen_report(moec_module *m, const moec_report_input *in, json_t **out) {
  moec_arena *arena = moec_arena_create();
  moec_plan_tables t;
  moec_kernel_set set = {0};
  moec_buf source = {0};
  *out = NULL;
  moec_plan_tables_init(&t, arena, m);
  moec_status *s = build_kernels(m, &t, &set, &source);
  if (!s) s = report_of(m, &set, arena, in, out);
  moec_buf_fini(&source);
  moec_plan_tables_fini(&t);
  moec_arena_destroy(arena);
  return s;
}

/* The report as text, malloc'ed. */
static moec_status *report_text(moec_module *m, const moec_kernel_set *set, moec_arena *a, const moec_report_input *in, char **out) {
  json_t *report = NULL;
  MOEC_TRY(report_of(m, set, a, in, &report));
  *out = json_dumps(report, JSON_COMPACT);
  json_decref(report);
  return *out ? NULL : moec_error(MOEC_OUT_OF_MEMORY, "writing the report");
}

/* ---- the file ----------------------------------------------------------------------------- */

typedef struct artifact {
  moec_buf plan, kernels;
  const moec_buf *data;
  char *report;
} artifact;

static void pad_to(moec_buf *b, size_t align) {
  while (b->size % align) moec_buf_putc(b, '\0');
}

/* Payload and footer; the payload's offset in the file is |offset|. */
static void assemble(const artifact *x, uint64_t offset, moec_buf *payload, moec_footer *footer) {
  size_t report = x->report ? strlen(x->report) : 0;
  *footer = (moec_footer){.payload_offset = offset, .version = MOEC_PLAN_VERSION};
  moec_buf_write(payload, x->plan.data, x->plan.size);
  footer->plan_size = x->plan.size;
  pad_to(payload, MOEC_PAGE);
  footer->kernels_offset = payload->size, footer->kernels_size = x->kernels.size;
  if (x->kernels.size) moec_buf_write(payload, x->kernels.data, x->kernels.size);
  pad_to(payload, MOEC_PAGE);
  footer->data_offset = payload->size, footer->data_size = x->data->size;
  if (x->data->size) moec_buf_write(payload, x->data->data, x->data->size);
  footer->report_offset = payload->size, footer->report_size = report;
  if (report) moec_buf_write(payload, x->report, report);
  pad_to(payload, 8);
  footer->payload_size = payload->size;
  moec_sha256(payload->data, payload->size, footer->sha256);
  memcpy(footer->magic, MOEC_FOOTER_MAGIC, sizeof footer->magic);
}

static moec_status *write_file(const moec_codegen_options *o, const artifact *x, const char *path) {
  static const char zeros[MOEC_PAGE];
  moec_outfile *f = NULL;
  moec_buf payload = {0};
  moec_footer footer;
  size_t offset = moec_align_up(o->stub_size, MOEC_PAGE);
  assemble(x, offset, &payload, &footer);
  moec_status *s = moec_outfile_begin(path, 0755, &f);
  if (!s) s = moec_outfile_write(f, o->stub, o->stub_size);
  if (!s) s = moec_outfile_write(f, zeros, offset - o->stub_size);
  if (!s) s = moec_outfile_write(f, payload.data, payload.size);
  if (!s) s = moec_outfile_write(f, &footer, sizeof footer);
  s = moec_outfile_end(f, s);
  moec_buf_fini(&payload);
  return s;
}

static moec_status *generate(moec_module *m, const moec_codegen_options *o, moec_plan_tables *t, artifact *x, const char *path) {
  moec_kernel_set set = {0};
  moec_buf source = {0};
  char dump[4096];
  moec_status *s = build_kernels(m, t, &set, &source);
  if (!s && o->dump_dir) {
    snprintf(dump, sizeof dump, "%s/kernels.c", o->dump_dir);
    s = moec_write_file(dump, moec_buf_str(&source), source.size, 0644);
  }
  if (!s && o->report) s = report_text(m, &set, t->arena, o->report, &x->report);
  if (!s) s = moec_plan_build(t, m, &set);
  if (!s && t->n_kernels) s = moec_cc_shared(moec_buf_str(&source), &x->kernels);
  if (!s) {
    moec_plan_header head = {.model = moec_plan_sym(t, m->name), .options = moec_plan_str(t, o->options_text)};
    head.target = moec_plan_str(t, "cpu");
    head.cpu = moec_plan_str(t, moec_cc_cpu());
    moec_plan_serialize(t, head, &x->plan);
    x->data = &t->data;
    s = write_file(o, x, path);
  }
  moec_buf_fini(&source);
  return s;
}

moec_status *moec_codegen(moec_module *m, const moec_codegen_options *options, const char *path) {
  moec_arena *arena = moec_arena_create();
  moec_plan_tables t;
  artifact x = {0};
  moec_plan_tables_init(&t, arena, m);
  moec_status *s = generate(m, options, &t, &x, path);
  free(x.report);
  moec_buf_fini(&x.plan);
  moec_buf_fini(&x.kernels);
  moec_plan_tables_fini(&t);
  moec_arena_destroy(arena);
  return s;
}
