/* The pass pipeline. A pass is one function in a file of its own and one line in passes.def. */
#ifndef MOEC_PASSES_PASS_H
#define MOEC_PASSES_PASS_H

#include "ir/builder.h"
#include "ir/ir.h"

typedef enum moec_precision {
  MOEC_PRECISION_MODEL,
  MOEC_PRECISION_F32,
  MOEC_PRECISION_BF16,
  MOEC_PRECISION_F16
} moec_precision;
typedef enum moec_target { MOEC_TARGET_CPU, MOEC_TARGET_CUDA } moec_target;

typedef enum moec_recompute { MOEC_RECOMPUTE_NONE, MOEC_RECOMPUTE_BLOCK } moec_recompute;
/* Whether the replay of a span may leave out what only its output needed: where nothing else does; never; or else an
 * error. */
typedef enum moec_skip { MOEC_SKIP_AUTO, MOEC_SKIP_OFF, MOEC_SKIP_ON } moec_skip;

typedef struct moec_compile_options {
  moec_target target;
  moec_precision precision;
  /* training; the rest counts only with |train| */
  bool train;
  const char *loss;        /* NULL or "next-token"; else the output that is the loss */
  double aux_loss, z_loss; /* coefficients of the routers' losses; 0: none */
  moec_recompute recompute;
  moec_skip skip_combine;
  const char *const *rules; /* "+GLOB" trains, "-GLOB" freezes parameters; in order, the last that matches counts */
  size_t n_rules;
} moec_compile_options;

/* Remarks: why something was not done, one line each ("not recognised as ...: ..."). */
typedef struct moec_remarks {
  const char **lines; /* in the module's arena */
  size_t n, cap;
} moec_remarks;

typedef struct moec_pass_ctx {
  const moec_compile_options *options;
  moec_remarks remarks;
  /* Called after each pass with the module verified, NULL: not. For --dump-dir and tests. */
  moec_status *(*after)(void *user, const char *pass, moec_module *m);
  void *user;
} moec_pass_ctx;

void moec_remark(moec_pass_ctx *cx, moec_module *m, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

typedef moec_status *(*moec_pass_fn)(moec_module *m, moec_pass_ctx *cx);
#define PASS(name, what) moec_status *moec_pass_##name(moec_module *m, moec_pass_ctx *cx) MOEC_MUST_USE;
#include "passes/passes.def"
#undef PASS

/* Runs every pass of passes.def in order: compaction and the verifier after each, in every build. */
moec_status *moec_run_passes(moec_module *m, moec_pass_ctx *cx) MOEC_MUST_USE;
/* Runs one pass by name, then compacts and verifies; for tests. */
moec_status *moec_run_pass(moec_module *m, const char *name, moec_pass_ctx *cx) MOEC_MUST_USE;

#endif
