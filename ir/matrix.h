/* A dot as a product of strided matrices, with batch axes: what a BLAS library takes without copies. */
#ifndef MOEC_IR_MATRIX_H
#define MOEC_IR_MATRIX_H

#include "ir/ir.h"

/* One side of a dot. Several axes count as one where each is dense over the next: [batch, seq, H] has one axis of size
 * batch*seq and stride H. Axes of size 1 don't matter. Strides are in elements. */
typedef struct moec_matrix_side {
  moec_type_info type;
  moec_dim stride[MOEC_MAX_RANK];  /* by axis; the operand is dense and row-major */
  moec_dim free_size, free_stride; /* M or N */
  moec_dim sum_size, sum_stride;   /* K */
} moec_matrix_side;

/* Side |which| (0 left, 1 right) of dot |n|. False where no two strides describe it, or neither of them is 1. */
bool moec_matrix_side_of(const moec_graph *g, moec_node n, int which, moec_matrix_side *out);
/* The free axes of that side, ascending; returns their number. |axes| has room for MOEC_MAX_RANK. */
uint32_t moec_dot_free_axes(const moec_graph *g, moec_node n, int which, int64_t *axes);

#endif
