/* Inside plan building: one activation of a function being flattened. Shared by plan_build.c (nodes), plan_combine.c
 * (the weighted restore), plan_loss.c and plan_entries.c (the module around them). */
#ifndef MOEC_CODEGEN_PLAN_FLATTEN_H
#define MOEC_CODEGEN_PLAN_FLATTEN_H

#include "codegen/plan_build.h"

typedef struct slot {
  uint32_t tensor;     /* MOEC_NONE: not computed (yet), or only inside another step */
  moec_schedule at;
  uint32_t moe;        /* expert region the value belongs to, or MOEC_NONE */
} slot;

/* One activation of a function: the tensors of its values. */
typedef struct frame {
  moec_graph *g;
  slot *slots;         /* by value */
  uint32_t call;       /* index into calls */
} frame;

typedef struct flattener {
  moec_plan_tables *t;
  moec_module *m;
  const moec_kernel_set *kernels;
  uint32_t *param_tensor; /* by parameter */
  uint32_t *file_index;   /* by module file: index into plan files */
  uint8_t *fn_static;     /* by function: 1 where no type of it has a symbol */
  moec_combine combine;
  moec_schedule program; /* of the entry being flattened */
} flattener;

static const moec_plan_step no_step = {.kernel = MOEC_NONE, .moe = MOEC_NONE};

/* A tensor with a buffer of its own, for the program being flattened. */
uint32_t moec_flat_tensor(flattener *c, moec_buffer_kind kind, moec_type type, const char *name);
bool moec_flat_has_symbols(const moec_module *m, moec_type t);
/* Adds |step| reading |in| and writing the outputs of node |n| (those with a use; |keep_all|: all). */
moec_status *moec_flat_emit(flattener *c, frame *f, moec_node n, moec_plan_step step, uint32_t n_in,
                            const moec_value *in, bool keep_all) MOEC_MUST_USE;
/* moe.combine as node |n| writes it: |combine| is |n| itself or the operand its add absorbed; |residual| may be {0}. */
moec_status *moec_flat_combine(flattener *c, frame *f, moec_node n, moec_node combine,
                               moec_value residual) MOEC_MUST_USE;
/* The loss of a linear layer, with room for its logits. codegen/plan_loss.c */
moec_status *moec_flat_loss(flattener *c, frame *f, moec_node n) MOEC_MUST_USE;
/* moe.grouped_dot, with its activation where it has one. codegen/plan_grouped.c */
moec_status *moec_flat_grouped_dot(flattener *c, frame *f, moec_node n, uint32_t moe) MOEC_MUST_USE;
/* Whether fused node |n| is the activation that the step of its operand computes. */
bool moec_flat_in_dot(const flattener *c, const moec_graph *g, moec_node n);
/* Whether the step of its combine applies the weights of moe.weight |n|: not with --combine-impl weighted_sum. */
bool moec_flat_joins(const flattener *c, const moec_graph *g, moec_node n);

/* Steps and slots of every node of |f|, calls included. */
moec_status *moec_flatten(flattener *c, frame *f) MOEC_MUST_USE;

#endif
