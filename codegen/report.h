/* The partition report: what `moec inspect` shows.
 *
 * One data model, several views. The model is JSON: it is built from a module (moec_report_build), or
 * read back from an executable, which carries it as text (moec_report_parse), and drawn by
 * moec_report_render. It holds no path and no time; two files of one model that differ in names,
 * metadata and node order give the same report up to those names. */
#ifndef MOEC_CODEGEN_REPORT_H
#define MOEC_CODEGEN_REPORT_H

#include "base/json.h"
#include "ir/ir.h"

typedef struct moec_report_dim { const char *name; int64_t value; } moec_report_dim;

/* How a module with the entries for training was compiled, in words. */
typedef struct moec_report_training {
  const char *loss;         /* "next-token", or the output that is the loss */
  double aux_loss, z_loss;
  const char *recompute, *skip_combine;
  const json_t *other;      /* the report with the other mode of recompute, to compare; NULL: none */
} moec_report_training;

typedef struct moec_report_input {
  const char *model; /* file name without folder; NULL: the module's name */
  const char *const *remarks;
  size_t n_remarks;
  /* Where sizes are evaluated. A symbol that is not listed: batch (or a first axis) is 1, seq (or the second
   * axis of an integer matrix) is 128, any other is 1. */
  const moec_report_dim *dims;
  size_t n_dims;
  /* What code generation knows of the kernel of function f, at [f.i]; NULL, here or there: the report estimates. */
  const char *const *kernel_what;
  const moec_dim *kernel_flops;
  const moec_report_training *training; /* NULL: the report says nothing of it */
} moec_report_input;

/* |m| went through outline and fuse; its use lists are rebuilt and dim expressions added. *out is
 * the caller's: json_decref(). An unknown or impossible dim is INVALID_ARGUMENT. */
moec_status *moec_report_build(moec_module *m, const moec_report_input *in, json_t **out) MOEC_MUST_USE;

/* Reads and checks a report's text: INVALID_MODEL names the first field that is wrong. */
moec_status *moec_report_parse(const char *text, size_t size, json_t **out) MOEC_MUST_USE;

/* Appends the report as |format| to |out|. The report is checked first; an unknown format is
 * INVALID_ARGUMENT and lists the formats. */
moec_status *moec_report_render(const json_t *report, const char *format, moec_buf *out) MOEC_MUST_USE;

#endif
