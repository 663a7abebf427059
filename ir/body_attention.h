/* What the bodies of attention and of its gradient share. Query heads are split in G groups of R = H/G, one group a
 * key head, so scores are [B, G, S, R, T]: that is how the product of q[B,S,G,R,D] and k[B,T,G,D] comes out. */
#ifndef MOEC_IR_BODY_ATTENTION_H
#define MOEC_IR_BODY_ATTENTION_H

#include "ir/body_internal.h"

/* Sizes of the operands, and the attributes: operands 0 to 4 are q, k, v, mask, sink of both ops. */
typedef struct moec_attention_shape {
  moec_dim b, s, h, d, t, g, r, e;
  double scale, softcap;
  bool causal;
} moec_attention_shape;

void moec_attention_sizes(moec_body *k, moec_attention_shape *n);
/* x[B,S,H,size] as [B,S,G,R,size]. */
moec_value moec_attention_split(moec_body *k, const moec_attention_shape *n, moec_value x, moec_dim size);
/* q·k, scaled and capped: [B,G,S,R,T] in dtype |wide|. */
moec_value moec_attention_scores(moec_body *k, const moec_attention_shape *n, moec_dtype wide);
/* Scores as they enter the softmax: hidden keys are -inf, an added mask is added. */
moec_value moec_attention_visible(moec_body *k, const moec_attention_shape *n, moec_value scores);
/* sink[H] as [G,1,R,1] in dtype |wide|; {0}: none. */
moec_value moec_attention_sink(moec_body *k, const moec_attention_shape *n, moec_dtype wide);

#endif
