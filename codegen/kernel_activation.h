/* Kernels that another one may do to its results before it stores them. */
#ifndef MOEC_CODEGEN_KERNEL_ACTIVATION_H
#define MOEC_CODEGEN_KERNEL_ACTIVATION_H

#include "base/buf.h"
#include "codegen/kernel.h"
#include "include/plan.h"

typedef struct moec_kactivation {
  moec_activation_form form;
  const moec_kstmt *store; /* of the result */
  bool *needs;             /* by expression: part of the result's value, not of an index */
} moec_kactivation;

/* Whether |k| has one operand and one result, both bf16, and is of one of the forms; *out lives in |arena|. */
bool moec_kernel_activation(moec_arena *arena, const moec_kernel *k, moec_kactivation *out);
/* Which of the one or two elements load |load| reads; -1: another one. */
int moec_kactivation_operand(const moec_kernel *k, const moec_kactivation *a, moec_kx load);

/* codegen/emit_cuda_grouped.c: the device function |symbol|_element of one or two floats, which are rounded to bf16:
 * what |k|, whose kernel is |symbol|, computes of them, before it rounds it. */
void moec_emit_cuda_element(moec_buf *b, const moec_kernel *k, moec_kactivation *a, const char *symbol);

#endif
