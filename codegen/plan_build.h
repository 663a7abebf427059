/* Flattening: a fused module becomes the plan's steps, tensors and buffers. */
#ifndef MOEC_CODEGEN_PLAN_BUILD_H
#define MOEC_CODEGEN_PLAN_BUILD_H

#include "codegen/codegen.h"
#include "codegen/kernel.h"
#include "codegen/plan_tables.h"

/* One generated kernel a fused function; kernels[f.i] for function f, NULL for the others. */
typedef struct moec_kernel_set {
  moec_kernel **kernels;
  uint32_t *plan_index; /* by function: index into the plan's kernels */
  bool cuda;            /* the target: products of experts may have activations */
  size_t n;             /* m->n_fns */
} moec_kernel_set;

/* Fills |t| from |m|, in which every function went through the fuse pass; without the digests of files. Errors name
 * nodes that have no runtime step. */
moec_status *moec_plan_build(moec_plan_tables *t, moec_module *m, const moec_kernel_set *kernels,
                             moec_combine combine) MOEC_MUST_USE;
/* The digests of the files of |t|, which was built from |m|: reads every byte of them. */
moec_status *moec_plan_digests(moec_plan_tables *t, const moec_module *m) MOEC_MUST_USE;

/* codegen/plan_steps.c: the library step of a node: step op and integer attributes. */
moec_status *moec_plan_library_step(moec_plan_tables *t, const moec_graph *g, moec_node n,
                                    moec_plan_step *step) MOEC_MUST_USE;
/* The floating point operations of a library step but conv and dot. */
moec_dim moec_plan_flops(moec_module *m, const moec_graph *g, moec_node n);
/* The ints of a GEMM for a dot node, or UNSUPPORTED when strides can't say it. */
moec_status *moec_plan_gemm(moec_plan_tables *t, const moec_graph *g, moec_node n, moec_plan_step *step) MOEC_MUST_USE;

/* codegen/plan_moe.c; all want use lists.
 * The only reader of |v|, looking through reshapes; {0} when there are several. */
moec_node moec_plan_only_reader(const moec_graph *g, moec_value v);
/* Whether the step of a combine applies the weights of node |n|: their orders of rows are those of one plan. */
bool moec_plan_is_restored(const moec_graph *g, moec_node n);
/* The dispatch whose rows node |n| weights, as the gradient of a restore does: one step reads the rows of the tokens
 * and writes them weighted. {0}: none. */
moec_node moec_plan_weighted_dispatch(const moec_graph *g, moec_node n);
/* Whether all readers of dispatch |n| do its work. */
bool moec_plan_only_weighted(const moec_graph *g, moec_node n);

/* codegen/emit_cuda_library.c: the library kernels for the steps of |t|, behind the prelude. */
void moec_emit_cuda_library(moec_buf *b, const moec_plan_tables *t);
/* codegen/emit_cuda_grouped.c: behind those, products of experts on matrix units, where |t| has some in bf16; with the
 * activations that they have, which are kernels of |kernels|. */
void moec_emit_cuda_grouped(moec_buf *b, const moec_plan_tables *t, const moec_kernel_set *kernels);

/* codegen/plan_peak.c: what one run of a program costs at the sizes |symbols|; -1: not known there, or too large. */
typedef struct moec_plan_cost {
  int64_t steps, kernels; /* kernels: those of the steps that are launches of generated kernels */
  int64_t flops;
  int64_t peak;           /* bytes of the arena that the runtime places the program's buffers in */
} moec_plan_cost;
moec_plan_cost moec_plan_cost_of(const moec_plan_tables *t, moec_schedule program, const int64_t *symbols);

/* codegen/report_train.c: adds "training" to the report |out| of |m|, with in->training set; |t| is the finished
 * plan. */
moec_status *moec_report_add_training(moec_module *m, const moec_report_input *in, const moec_plan_tables *t,
                                      json_t *out) MOEC_MUST_USE;

/* codegen/plan_attention.c: a record of |k|, number |kernel| of the plan, where a library may do the same. */
void moec_plan_add_attention(moec_plan_tables *t, const moec_kernel *k, uint32_t kernel);

/* codegen/plan_lifetimes.c: schedules sorted, accumulators aliased, first and last use of step buffers. */
void moec_plan_lifetimes(moec_plan_tables *t);

#endif
