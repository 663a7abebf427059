/* What other parts need to know about half-block functions. */
#ifndef MOEC_PASSES_OUTLINE_H
#define MOEC_PASSES_OUTLINE_H

#include "ir/ir.h"

/* A half-block adds one thing to the residual stream. */
typedef enum moec_half_kind { MOEC_HALF_MIXER, MOEC_HALF_ATTENTION, MOEC_HALF_MLP, MOEC_HALF_MOE } moec_half_kind;
moec_half_kind moec_half_kind_of(const moec_graph *f); /* before fuse; attention is looked for at top level */
const char *moec_half_kind_text(moec_half_kind kind);  /* "attention" */

#endif
