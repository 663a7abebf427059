/* A kernel of attention or of its gradient: the text of codegen/kernels/attention.c or attention_grad.c with these
 * parameters, and functions that fetch its operands. */
#ifndef MOEC_CODEGEN_KERNEL_ATTENTION_H
#define MOEC_CODEGEN_KERNEL_ATTENTION_H

#include "codegen/kernel_build.h"

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

/* What is known of a mask. */
typedef enum moec_kmask {
  MOEC_KMASK_ANY,   /* nothing */
  MOEC_KMASK_NONE,  /* nothing is hidden and nothing added */
  MOEC_KMASK_CAUSAL /* as none, but a query sees no key behind it: j <= i + T - S */
} moec_kmask;

/* An operand that is nothing but elements of argument |arg|: where element [b, row, head, 0] is, and the next of the
 * last axis behind it. */
typedef struct moec_kview {
  bool is;
  uint32_t arg;
  moec_dim offset, strides[3]; /* in elements, of batch, row and head */
} moec_kview;

typedef struct moec_kattention {
  moec_dim b, s, t, h, g;
  int64_t d, e;
  float scale, softcap;
  bool grad, causal, mask_bool, mask_by_head, mask_by_row;
  moec_dtype dtype;                           /* of the results but lse */
  uint32_t results[4];                        /* buffers, by number of the result; MOEC_NO_BUFFER: not wanted */
  moec_kernel *operands[MOEC_KOPERAND_COUNT]; /* fill a local array; NULL: absent */
  moec_kview views[MOEC_KOPERAND_COUNT];
  moec_kmask seen; /* what the mask is where all elements of arguments |ones| are one */
  uint32_t *ones, n_ones;
} moec_kattention;
#define MOEC_NO_BUFFER UINT32_MAX

/* codegen/kernel_attention_views.c. Fills the view of operand |o|, whose value at [row[0], row[1], row[2], d] is
 * |value|. */
void moec_kattention_view(moec_kattention *t, moec_kpool *p, const moec_kernel *k, moec_koperand o, moec_kx value,
                          const moec_kx *row, moec_kx d);
/* Fills |seen| and |ones| for the mask |value|, added to the score of |query| and |key|. */
void moec_kattention_mask(moec_kattention *t, moec_kpool *p, const moec_kernel *k, moec_kx value, moec_kx query,
                          moec_kx key);

#endif
