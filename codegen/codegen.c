/* The last stage: kernels, plan, executable. */
#include "codegen/codegen.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "codegen/cc.h"
#include "codegen/emit.h"
#include "codegen/kernel.h"
#include "codegen/nvrtc.h"
#include "codegen/plan_build.h"

/* Text and plan record of kernel |k|. */
static moec_status *emit(moec_plan_tables *t, const moec_kernel *k, const char *name, const char *cuda,
                         moec_buf *source, moec_plan_kernel *out) {
  moec_plan_kernel r = {.name = moec_plan_str(t, name), .what = moec_plan_str(t, k->what)};
  moec_cuda_launch launch = {.rows = k->range, .scratch = k->scratch};
  if (cuda) {
    MOEC_TRY(moec_emit_cuda_kernel(source, t->arena, k, name, &launch));
  } else {
    moec_emit_c_kernel(source, k, name);
    r.grain = k->grain;
  }
  r.rows = moec_plan_expr_of(t, launch.rows), r.scratch = moec_plan_expr_of(t, launch.scratch);
  r.flops = moec_plan_expr_of(t, k->flops);
  r.threads = launch.threads, r.teams = launch.teams, r.shared = launch.shared;
  *out = r;
  return NULL;
}

/* Kernel IR, text and plan record of every fused function. */
static moec_status *build_kernels(moec_module *m, moec_plan_tables *t, const char *cuda, moec_kernel_set *set,
                                  moec_buf *source) {
  moec_arena *a = t->arena;
  set->n = m->n_fns, set->cuda = cuda != NULL;
  set->kernels = MOEC_NEW_ARRAY(a, moec_kernel *, m->n_fns);
  set->plan_index = MOEC_NEW_ARRAY(a, uint32_t, m->n_fns);
  if (cuda) moec_emit_cuda_prelude(source);
  else moec_emit_c_prelude(source);
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
      moec_plan_kernel r;
      MOEC_TRY(emit(t, k, name, cuda, source, &r));
      set->kernels[id] = k;
      set->plan_index[id] = MOEC_TABLE_ADD(t, kernels, r);
      if (cuda) moec_plan_add_attention(t, k, set->plan_index[id]);
    }
  }
  return NULL;
}

/* ---- the report --------------------------------------------------------------------------- */

/* |in| with what is known of the kernels. */
static moec_report_input with_kernels(const moec_report_input *in, const moec_kernel_set *set, moec_arena *a) {
  moec_report_input all = *in;
  const char **what = MOEC_NEW_ARRAY(a, const char *, set->n);
  moec_dim *flops = MOEC_NEW_ARRAY(a, moec_dim, set->n);
  for (size_t i = 0; i < set->n; i++)
    if (set->kernels[i]) what[i] = set->kernels[i]->what, flops[i] = set->kernels[i]->flops;
  all.kernel_what = what;
  all.kernel_flops = flops;
  return all;
}

moec_status *moec_codegen_report(moec_module *m, const moec_report_input *in, const char *cuda, moec_combine combine,
                                 json_t **out) {
  moec_arena *arena = moec_arena_create();
  moec_plan_tables t;
  moec_kernel_set set = {0};
  moec_buf source = {0};
  *out = NULL;
  moec_plan_tables_init(&t, arena, m);
  moec_status *s = build_kernels(m, &t, cuda, &set, &source);
  moec_report_input all = *in;
  if (!s) all = with_kernels(in, &set, arena);
  if (!s) s = moec_report_build(m, &all, out);
  if (!s && in->training) s = moec_plan_build(&t, m, &set, combine);
  if (!s && in->training) s = moec_report_add_training(m, &all, &t, *out);
  if (s) json_decref(*out), *out = NULL;
  moec_buf_fini(&source);
  moec_plan_tables_fini(&t);
  moec_arena_destroy(arena);
  return s;
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

/* The whole file: stub, payload at a page, footer. The hash covers everything before itself. */
static void assemble(const moec_codegen_options *o, const artifact *x, moec_buf *file) {
  size_t report = x->report ? strlen(x->report) : 0;
  moec_buf_write(file, o->stub, o->stub_size);
  pad_to(file, MOEC_PAGE);
  size_t start = file->size;
  moec_footer f = {.payload_offset = start, .version = MOEC_PLAN_VERSION};
  moec_buf_write(file, x->plan.data, x->plan.size);
  f.plan_size = x->plan.size;
  pad_to(file, MOEC_PAGE);
  f.kernels_offset = file->size - start, f.kernels_size = x->kernels.size;
  if (x->kernels.size) moec_buf_write(file, x->kernels.data, x->kernels.size);
  pad_to(file, MOEC_PAGE);
  f.data_offset = file->size - start, f.data_size = x->data->size;
  if (x->data->size) moec_buf_write(file, x->data->data, x->data->size);
  f.report_offset = file->size - start, f.report_size = report;
  if (report) moec_buf_write(file, x->report, report);
  pad_to(file, 8);
  f.payload_size = file->size - start;
  memcpy(f.magic, MOEC_FOOTER_MAGIC, sizeof f.magic);
  size_t at = file->size;
  moec_buf_write(file, &f, sizeof f);
  moec_sha256(file->data, at + offsetof(moec_footer, sha256),
              (uint8_t *)file->data + at + offsetof(moec_footer, sha256));
}

static moec_status *write_file(const moec_codegen_options *o, const artifact *x, const char *path) {
  moec_buf file = {0};
  assemble(o, x, &file);
  moec_status *s = moec_write_file(path, file.data, file.size, 0755);
  moec_buf_fini(&file);
  return s;
}

/* The source as machine code; |options|, the text kept for `info`, gets how. */
static moec_status *compile(const moec_codegen_options *o, const moec_plan_tables *t, const moec_kernel_set *set,
                            moec_buf *source, moec_buf *kernels, moec_buf *options) {
  if (o->cuda) moec_emit_cuda_library(source, t), moec_emit_cuda_grouped(source, t, set);
  if (o->dump_dir) {
    const char *dump = moec_arena_printf(t->arena, "%s/kernels.%s", o->dump_dir, o->cuda ? "cu" : "c");
    MOEC_TRY(moec_write_file(dump, moec_buf_str(source), source->size, 0644));
  }
  if (!o->cuda) return t->n_kernels ? moec_cc_shared(moec_buf_str(source), kernels) : NULL;
  moec_buf_puts(options, "; ");
  return moec_nvrtc_cubin(moec_buf_str(source), o->cuda, kernels, options);
}

/* Before the plan is built, as when there is no plan. */
static moec_status *begin_report(moec_module *m, const moec_codegen_options *o, const moec_kernel_set *set,
                                 moec_arena *a, json_t **out) {
  moec_report_input in = with_kernels(o->report, set, a);
  return moec_report_build(m, &in, out);
}

/* |report| as text, malloc'ed; with the part on training, for which the plan is needed. */
static moec_status *end_report(moec_module *m, const moec_codegen_options *o, const moec_kernel_set *set,
                               const moec_plan_tables *t, json_t *report, char **out) {
  moec_report_input in = with_kernels(o->report, set, t->arena);
  if (in.training) MOEC_TRY(moec_report_add_training(m, &in, t, report));
  *out = json_dumps(report, JSON_COMPACT);
  return *out ? NULL : moec_error(MOEC_OUT_OF_MEMORY, "writing the report");
}

static moec_status *generate(moec_module *m, const moec_codegen_options *o, moec_plan_tables *t, artifact *x,
                             const char *path) {
  moec_kernel_set set = {0};
  moec_buf source = {0}, options = {0};
  json_t *report = NULL;
  moec_buf_puts(&options, o->options_text);
  moec_status *s = build_kernels(m, t, o->cuda, &set, &source);
  if (!s && o->report) s = begin_report(m, o, &set, t->arena, &report);
  t->embed_weights = o->embed_weights;
  if (!s) s = moec_plan_build(t, m, &set, o->combine);
  if (!s && report) s = end_report(m, o, &set, t, report, &x->report);
  json_decref(report);
  if (!s) s = compile(o, t, &set, &source, &x->kernels, &options);
  if (!s) s = moec_plan_digests(t, m);
  if (!s) {
    moec_plan_header head = {.model = moec_plan_sym(t, m->name), .options = moec_plan_str(t, moec_buf_str(&options))};
    head.target = moec_plan_str(t, o->cuda ? moec_arena_printf(t->arena, "cuda:%s", o->cuda) : "cpu");
    head.cpu = moec_plan_str(t, o->cuda ? "" : moec_cc_cpu());
    moec_plan_serialize(t, head, &x->plan);
    x->data = &t->data;
    s = write_file(o, x, path);
  }
  moec_buf_fini(&source);
  moec_buf_fini(&options);
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
