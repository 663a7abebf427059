/* codegen/report_mask.c: what an attention mask computes. */
#ifndef MOEC_CODEGEN_REPORT_MASK_H
#define MOEC_CODEGEN_REPORT_MASK_H

#include "codegen/report_internal.h"

typedef struct report_mask {
  const char *text; /* "j <= i and j > i - 8"; "" where every key is seen */
  bool causal;
  int64_t window;   /* keys a query sees, itself included; 0: no window */
  uint32_t reads;   /* bit set of inputs of the kernel that it reads */
  moec_dim offset;  /* keys - queries: how far a causal bound may be off the diagonal */
} report_mask;

/* |mask| of graph |g|, of rank 4: [batch, heads, queries, keys]. */
void moec_report_mask(const report *r, const moec_graph *g, moec_value mask, moec_dim offset, report_mask *out);

#endif
