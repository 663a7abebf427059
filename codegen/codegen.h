/* From a fused module to an executable file. */
#ifndef MOEC_CODEGEN_CODEGEN_H
#define MOEC_CODEGEN_CODEGEN_H

#include "codegen/report.h"
#include "ir/ir.h"

/* How the weighted rows of experts are summed by token: codegen/plan_combine.c. */
typedef enum moec_combine { MOEC_COMBINE_FUSED, MOEC_COMBINE_SUM, MOEC_COMBINE_BMM } moec_combine;

typedef struct moec_codegen_options {
  const void *stub;         /* bytes of the runtime stub */
  size_t stub_size;
  const moec_report_input *report; /* the partition report kept in the file is made from it */
  const char *options_text; /* for `info`: the options that change the result */
  const char *cuda;         /* architecture of the GPU, "sm_90a"; NULL: the cpu target */
  moec_combine combine;
  bool embed_weights;       /* all weights are copied into the file, which then needs no other */
  const char *dump_dir;     /* also write the emitted sources there; NULL: not */
} moec_codegen_options;

/* The partition report of |m| with what code generation knows of its kernels and, with in->training, of its plan; *out
 * is the caller's. |cuda|: as moec_codegen_options has it. Needs no compiler. */
moec_status *moec_codegen_report(moec_module *m, const moec_report_input *in, const char *cuda, moec_combine combine,
                                 json_t **out) MOEC_MUST_USE;

/* Emits and compiles the kernels of |m| (every function went through the fuse pass), builds the
 * plan and writes the executable |path|, whole or not at all. The C compiler is $CC, else cc; that of CUDA is NVRTC
 * (codegen/nvrtc.h). The same module and options give the same bytes, wherever the files lie. */
moec_status *moec_codegen(moec_module *m, const moec_codegen_options *options, const char *path) MOEC_MUST_USE;

#endif
