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
  size_t n;             /* m->n_fns */
} moec_kernel_set;

/* Fills |t| from |m|, in which every function went through the fuse pass. Errors name nodes that
 * have no runtime step. */
moec_status *moec_plan_build(moec_plan_tables *t, moec_module *m, const moec_kernel_set *kernels,
                             moec_combine combine) MOEC_MUST_USE;

/* codegen/plan_steps.c: the library step of a node: step op and integer attributes. */
moec_status *moec_plan_library_step(moec_plan_tables *t, const moec_graph *g, moec_node n,
                                    moec_plan_step *step) MOEC_MUST_USE;
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

/* codegen/plan_lifetimes.c: schedules sorted, accumulators aliased, first and last use of step buffers. */
void moec_plan_lifetimes(moec_plan_tables *t);

#endif
