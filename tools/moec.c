/* The moec command line: import, compile, inspect. The only file that knows both the compiler and
 * the runtime. Everything that can go wrong is one line on stderr, "moec: error: ...", and an exit
 * status: 1 failed while running, 2 wrong usage or wrong input. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "codegen/codegen.h"
#include "frontend/frontend.h"
#include "include/plan.h"
#include "models/models.h"
#include "passes/pass.h"
#include "tools/arguments.h"
#include "tools/see_cuda.h"

extern const char moec_stub_begin[], moec_stub_end[];

static const char usage[] =
    "usage: moec import DIR -o MODEL.onnx [--init SEED|zeros [--seeded]] [--set KEY=VALUE ...]\n"
    "            DIR: config.json and *.safetensors of a Hugging Face checkpoint; --init: random weights, or a file of "
    "holes;\n            --seeded: no file, the executable makes the weights when it is opened\n"
    "       moec compile MODEL.onnx -o EXE [--weights DIR] [--target cpu|cuda[:sm_90a]]\n"
    "            [--precision f32|bf16] [--combine-impl fused_weighted_sum|weighted_sum|legacy_bmm]\n"
    "            [--dim NAME=N ...] [--embed-weights] [--dump-dir DIR] [--remarks]\n"
    "            [--train [--loss next-token|OUTPUT] [--aux-loss C] [--z-loss C]\n"
    "             [--recompute none|block] [--skip-recompute-combine auto|on|off]\n"
    "             [--train-params GLOB ...] [--freeze GLOB ...]]\n"
    "            without --target: cuda where a device is seen, else cpu\n"
    "       moec inspect FILE [--format text|json|dot|html] [-o OUT] [--dim NAME=N ...] [--train ...]\n"
    "            FILE: a model (.onnx) or an executable made by moec compile\n";

/* ---- the pipeline ------------------------------------------------------------------------- */

typedef struct dumper {
  const char *dir;
  int n;
} dumper;

static moec_status *dump_after(void *user, const char *pass, moec_module *m) {
  dumper *d = user;
  char path[4096];
  moec_buf b = {0};
  snprintf(path, sizeof path, "%s/%02d-%s.ir", d->dir, d->n++, pass);
  moec_print(&b, m);
  moec_status *s = moec_write_file(path, moec_buf_str(&b), b.size, 0644);
  moec_buf_fini(&b);
  return s;
}

static moec_status *expect_folder(const char *name, const char *dir) {
  struct stat st;
  if (stat(dir, &st) == 0 && S_ISDIR(st.st_mode)) return NULL;
  return moec_error(MOEC_INVALID_ARGUMENT, "%s: expected a folder, got \"%s\"", name, dir);
}

static moec_status *prepare_dump(const char *dir) {
  if (mkdir(dir, 0755) == 0 || errno == EEXIST) return expect_folder("--dump-dir", dir);
  moec_code code = errno == ENOENT || errno == ENOTDIR ? MOEC_INVALID_ARGUMENT : MOEC_IO;
  return moec_error(code, "cannot make the folder \"%s\": %s", dir, strerror(errno));
}

/* What is written must not replace what was read. */
static moec_status *spare(const char *output, const moec_map *read) {
  struct stat st;
  if (!output || stat(output, &st) != 0 || read->device != st.st_dev || read->inode != st.st_ino) return NULL;
  return moec_error(MOEC_INVALID_ARGUMENT, "-o %s: expected another file than those that are read", output);
}

/* Import and every pass. */
static moec_status *front(const arguments *a, const moec_compile_options *o, moec_pass_ctx *cx, moec_module **out) {
  moec_dim_setting dims[MAX_LIST];
  dumper d = {a->dump_dir, 0};
  for (int i = 0; i < a->n_list; i++) MOEC_TRY(moec_arguments_dim(a->list[i], &dims[i]));
  moec_import_options io = {.weights_dir = a->weights, .dims = dims, .n_dims = (size_t)a->n_list};
  if (a->weights) MOEC_TRY(expect_folder("--weights", a->weights));
  if (a->dump_dir) MOEC_TRY(prepare_dump(a->dump_dir));
  MOEC_TRY(moec_import_onnx(a->input, &io, out));
  for (size_t i = 0; i < (*out)->n_files; i++) MOEC_TRY(spare(a->output, &(*out)->files[i].map));
  *cx = (moec_pass_ctx){.options = o};
  if (a->dump_dir) {
    MOEC_TRY(dump_after(&d, "import", *out));
    cx->after = dump_after;
    cx->user = &d;
  }
  return moec_run_passes(*out, cx);
}

/* The options that change what the executable computes, as `info` shows them. */
static void describe_options(const arguments *a, moec_buf *b) {
  const struct { const char *flag, *value; } shown[] = {
      {"--precision", a->precision}, {"--loss", a->loss}, {"--aux-loss", a->aux_loss}, {"--z-loss", a->z_loss},
      {"--recompute", a->recompute}, {"--skip-recompute-combine", a->skip}, {"--combine-impl", a->combine}};
  const char *cuda = moec_arguments_cuda(a);
  moec_buf_printf(b, "--target %s%s", cuda ? "cuda:" : "cpu", cuda ? cuda : "");
  if (a->train) moec_buf_puts(b, " --train");
  for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
    if (shown[i].value) moec_buf_printf(b, " %s %s", shown[i].flag, shown[i].value);
  for (int i = 0; i < a->n_rules; i++)
    moec_buf_printf(b, " %s %s", a->rules[i][0] == '+' ? "--train-params" : "--freeze", a->rules[i] + 1);
}

/* ---- the report --------------------------------------------------------------------------- */

typedef struct report_parts {
  moec_report_input in;
  moec_report_training training;
  moec_combine combine;
  json_t *other; /* owned */
} report_parts;

static void describe_report(const arguments *a, const moec_pass_ctx *cx, report_parts *out) {
  const moec_compile_options *o = cx->options;
  out->in = (moec_report_input){.remarks = cx->remarks.lines, .n_remarks = cx->remarks.n};
  if (!o->train) return;
  out->training = (moec_report_training){.loss = a->loss ? a->loss : "next-token", .aux_loss = o->aux_loss,
      .z_loss = o->z_loss, .recompute = moec_recompute_words[o->recompute],
      .skip_combine = moec_skip_words[o->skip_combine],
      .other = out->other};
  out->in.training = &out->training;
}

/* The model once more with the other mode of recompute: what its plan needs is shown beside this one's. */
static moec_status *report_of_other(const arguments *a, const moec_compile_options *o, report_parts *p) {
  moec_compile_options flipped = *o;
  arguments quiet = *a;
  report_parts alone = {.combine = p->combine};
  moec_pass_ctx cx;
  moec_module *m = NULL;
  quiet.dump_dir = NULL;
  flipped.recompute = o->recompute == MOEC_RECOMPUTE_BLOCK ? MOEC_RECOMPUTE_NONE : MOEC_RECOMPUTE_BLOCK;
  if (o->skip_combine == MOEC_SKIP_ON) flipped.skip_combine = MOEC_SKIP_AUTO; /* not asked of that mode */
  moec_status *s = front(&quiet, &flipped, &cx, &m);
  if (!s) {
    describe_report(a, &cx, &alone);
    s = moec_codegen_report(m, &alone.in, moec_arguments_cuda(a), alone.combine, &p->other);
  }
  moec_module_destroy(m);
  return moec_context(s, "with --recompute %s, to compare", moec_recompute_words[flipped.recompute]);
}

static moec_status *prepare_report(const arguments *a, const moec_pass_ctx *cx, report_parts *out) {
  static const char *const combine[] = {"fused_weighted_sum", "weighted_sum", "legacy_bmm"};
  int choice;
  MOEC_TRY(moec_arguments_choice("--combine-impl", a->combine, 3, combine, 0, &choice));
  *out = (report_parts){.combine = (moec_combine)choice};
  if (cx->options->train) MOEC_TRY(report_of_other(a, cx->options, out));
  describe_report(a, cx, out);
  return NULL;
}

static moec_status *compile_module(const arguments *a, moec_module *m, const moec_pass_ctx *cx) {
  moec_buf options = {0};
  report_parts report;
  MOEC_TRY(prepare_report(a, cx, &report));
  moec_codegen_options o = {.stub = moec_stub_begin, .stub_size = (size_t)(moec_stub_end - moec_stub_begin)};
  o.report = &report.in;
  describe_options(a, &options);
  o.options_text = moec_buf_str(&options);
  o.combine = report.combine;
  o.embed_weights = a->embed_weights;
  o.dump_dir = a->dump_dir;
  o.cuda = moec_arguments_cuda(a);
  moec_status *s = moec_codegen(m, &o, a->output);
  moec_buf_fini(&options);
  json_decref(report.other);
  for (size_t i = 0; !s && a->remarks && i < cx->remarks.n; i++)
    fprintf(stderr, "moec: remark: %s\n", cx->remarks.lines[i]);
  return s;
}

/* Without --target: for a CUDA device where one is seen, else for the processor. */
static moec_status *compile_command(const arguments *given) {
  arguments with = *given, *a = &with;
  moec_compile_options o;
  moec_pass_ctx cx;
  moec_module *m = NULL;
  if (!a->output) return moec_error(MOEC_INVALID_ARGUMENT, "compile: expected -o EXE");
  if (!a->target) a->target = moec_sees_cuda() ? "cuda" : "cpu";
  MOEC_TRY(moec_arguments_options(a, &o));
  moec_status *s = front(a, &o, &cx, &m);
  if (!s) s = compile_module(a, m, &cx);
  moec_module_destroy(m);
  return s;
}

/* ---- import ------------------------------------------------------------------------------- */

static moec_status *import_command(const arguments *a) {
  moec_checkpoint_options o = {.output = a->output, .init = a->init != NULL, .sets = a->list,
      .n_sets = (size_t)a->n_list};
  moec_buf remarks = {0};
  char *end;
  if (!a->output) return moec_error(MOEC_INVALID_ARGUMENT, "import: expected -o MODEL.onnx");
  o.zeros = a->init && strcmp(a->init, "zeros") == 0;
  if (a->init && !o.zeros) {
    errno = 0;
    o.seed = strtoull(a->init, &end, 10);
    if (errno || *end || a->init[0] < '0' || a->init[0] > '9')
      return moec_error(MOEC_INVALID_ARGUMENT, "--init: expected a seed, a number, or zeros, got \"%s\"", a->init);
  }
  o.seeded = a->seeded;
  if (o.seeded && (!a->init || o.zeros)) return moec_error(MOEC_INVALID_ARGUMENT, "--seeded needs --init SEED");
  moec_status *s = moec_import_checkpoint(a->input, &o, &remarks);
  for (const char *at = moec_buf_str(&remarks); !s && *at; at += strcspn(at, "\n"), at += *at == '\n')
    fprintf(stderr, "moec: remark: %.*s\n", (int)strcspn(at, "\n"), at);
  moec_buf_fini(&remarks);
  return s;
}

/* ---- inspect ------------------------------------------------------------------------------ */

/* The report that |f| points to in the file that it ends. */
static moec_status *report_in(const moec_map *map, const moec_footer *f, json_t **out) {
  uint64_t room = map->size - sizeof *f;
  uint8_t sha256[sizeof f->sha256];
  if (f->payload_offset > room || f->payload_size != room - f->payload_offset || f->report_offset > f->payload_size ||
      f->report_size > f->payload_size - f->report_offset)
    return moec_error(MOEC_INVALID_MODEL, "the executable is damaged: its footer points outside the file");
  moec_sha256(map->data, room + offsetof(moec_footer, sha256), sha256);
  if (memcmp(sha256, f->sha256, sizeof sha256) != 0)
    return moec_error(MOEC_INVALID_MODEL,
                      "expected a file with the sha256 of its footer: it was edited or is damaged");
  return moec_report_parse((const char *)map->data + f->payload_offset + f->report_offset, f->report_size, out);
}

/* The report kept in an executable; *out NULL when the file is none. */
static moec_status *report_of_executable(const arguments *a, json_t **out) {
  moec_map map;
  moec_footer f;
  *out = NULL;
  MOEC_TRY(moec_map_user_file(a->input, &map));
  moec_status *s = spare(a->output, &map);
  if (!s && map.size > sizeof f) {
    memcpy(&f, map.data + map.size - sizeof f, sizeof f);
    if (memcmp(f.magic, MOEC_FOOTER_MAGIC, sizeof f.magic) == 0) {
      s = report_in(&map, &f, out);
    } else if (memcmp(map.data, "\177ELF", 4) == 0) {
      s = moec_error(MOEC_INVALID_MODEL, "an executable, but moec did not write it or it was cut or stripped");
    }
  }
  moec_unmap(&map);
  return moec_context(s, "%s", a->input);
}

static moec_status *report_of_model(const arguments *a, json_t **out) {
  moec_compile_options o;
  moec_pass_ctx cx;
  moec_module *m = NULL;
  MOEC_TRY(moec_arguments_options(a, &o));
  report_parts p = {0};
  moec_status *s = front(a, &o, &cx, &m);
  if (!s) s = prepare_report(a, &cx, &p);
  if (!s) s = moec_codegen_report(m, &p.in, moec_arguments_cuda(a), p.combine, out);
  json_decref(p.other);
  moec_module_destroy(m);
  return s;
}

/* What an executable is was settled when it was compiled. */
static moec_status *expect_no_model_flags(const arguments *a) {
  const char *given = a->n_list ? "--dim" : a->weights ? "--weights" : a->dump_dir ? "--dump-dir" : NULL;
  if (a->train || a->needs_train) given = a->train ? "--train" : a->needs_train;
  if (!given) return NULL;
  return moec_error(MOEC_INVALID_ARGUMENT, "%s: expected a model, got an executable: %s", given, a->input);
}

static moec_status *inspect_command(const arguments *a) {
  json_t *report = NULL;
  moec_buf b = {0};
  MOEC_TRY(report_of_executable(a, &report));
  moec_status *s = report ? expect_no_model_flags(a) : report_of_model(a, &report);
  if (!s) s = moec_report_render(report, a->format ? a->format : "text", &b);
  json_decref(report);
  if (!s && a->output) s = moec_write_file(a->output, moec_buf_str(&b), b.size, 0644);
  else if (!s && (fwrite(moec_buf_str(&b), 1, b.size, stdout) != b.size || fflush(stdout)))
    s = moec_error(MOEC_IO, "cannot write to stdout: %s", strerror(errno));
  moec_buf_fini(&b);
  return s;
}

/* ---- main --------------------------------------------------------------------------------- */

static const struct { const char *name; moec_status *(*run)(const arguments *a); } commands[] = {
    {"import", import_command},
    {"compile", compile_command},
    {"inspect", inspect_command},
};

static moec_status *dispatch(int argc, char **argv) {
  arguments a;
  if (argc < 2)
    return moec_error(MOEC_INVALID_ARGUMENT,
                      "expected a command: import, compile or inspect (moec --help shows the usage)");
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    if (strcmp(commands[i].name, argv[1]) != 0) continue;
    MOEC_TRY(moec_arguments_parse(argc, argv, &a));
    return commands[i].run(&a);
  }
  return moec_usage_error("unknown command", argv[1]);
}

int main(int argc, char **argv) {
  if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
    return fputs(usage, stdout) < 0 || fflush(stdout);
  moec_status *s = dispatch(argc, argv);
  if (s) fprintf(stderr, "moec: error: %s\n", moec_status_message(s));
  int code = moec_status_exit(s);
  moec_status_free(s);
  return code;
}
