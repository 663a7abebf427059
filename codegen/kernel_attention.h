/* A kernel of attention or of its gradient: the text of codegen/kernels/attention.c or attention_grad.c with these
 * parameters, and functions that fetch its operands. */
#ifndef MOEC_CODEGEN_KERNEL_ATTENTION_H
#define MOEC_CODEGEN_KERNEL_ATTENTION_H

#include "codegen/kernel.h"

/* Parameters of operand functions, in this order. */
typedef enum moec_kparam {
  MOEC_KPARAM_BATCH,
  MOEC_KPARAM_HEAD,
  MOEC_KPARAM_QUERY,
  MOEC_KPARAM_FIRST_KEY
} moec_kparam;

/* Operands, in the order of the ops; those behind the sink are the gradient's. */
typedef enum moec_koperand {
  MOEC_KOPERAND_Q,
  MOEC_KOPERAND_K,
  MOEC_KOPERAND_V,
  MOEC_KOPERAND_MASK,
  MOEC_KOPERAND_SINK,
  MOEC_KOPERAND_Y,
  MOEC_KOPERAND_LSE,
  MOEC_KOPERAND_DY,
  MOEC_KOPERAND_COUNT
} moec_koperand;

typedef struct moec_kattention {
  moec_dim b, s, t, h, g;
  int64_t d, e;
  float scale, softcap;
  bool grad, causal, mask_bool, mask_by_head, mask_by_row;
  moec_dtype dtype;                           /* of the results but lse */
  uint32_t results[4];                        /* buffers, by number of the result; MOEC_NO_BUFFER: not wanted */
  moec_kernel *operands[MOEC_KOPERAND_COUNT]; /* fill a local array; NULL: absent */
} moec_kattention;
#define MOEC_NO_BUFFER UINT32_MAX

#endif
