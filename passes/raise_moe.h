/* What the files of raise_moe share: one expert layer while it is being rewritten. */
#ifndef MOEC_PASSES_RAISE_MOE_H
#define MOEC_PASSES_RAISE_MOE_H

#include "passes/match.h"

#define MOEC_MAX_DISPATCHED 8
typedef struct moec_layer {
  moec_builder *b;
  moec_graph *g;
  moec_node topk;        /* the router's */
  int64_t k, experts;
  moec_dim tokens, rows; /* T, N = T*k */
  moec_value select;     /* [T,k] */
  moec_value perm, inv, offsets;
  const uint8_t *inside; /* by value, up to n_inside: depends on an expert's weights */
  moec_value *memo;      /* by value, up to n_inside: its rows in plan order */
  size_t n_inside;
  moec_value dispatched[MOEC_MAX_DISPATCHED][2]; /* tokens, and their rows */
  uint32_t n_dispatched;
  bool disordered;       /* weights are gathered in another order than token by token */
  const char *why;       /* not recognised because; NULL: no reason yet */
} moec_layer;

/* The router behind indices |v| (any movement and harmless clipping of a top-k's indices):
 * |t| ends at the top-k's second output. */
bool moec_layer_indices(moec_graph *g, moec_value v, moec_trace *t);
/* |topk| chooses its k best along the last axis, k and the axis being constants; fills in the sizes. */
bool moec_layer_begin(moec_layer *l, moec_builder *b, moec_node topk);
/* moe.select and moe.plan, made once. */
void moec_layer_plan(moec_layer *l);
/* Gives the top-k's users what moe.select chose: indices, and values gathered by them. */
void moec_layer_take_router(moec_layer *l);

/* |v|, whose leading axes run over T*k assignments, with its rows in plan order: [N] and v's other
 * axes (passes/raise_moe_rows.c). {0} with l->why where it cannot be told. */
moec_value moec_layer_rows(moec_layer *l, moec_value v);
/* The number of leading axes of |v| whose product is N; 0: none. */
uint32_t moec_layer_row_axes(const moec_layer *l, moec_value v);
/* The operand of a product that is a routing weight: a value per assignment, as [T,k]; else {0}. */
moec_value moec_layer_weight(moec_layer *l, moec_value v);
/* |v| behind movement and casts is weights gathered by the layer's indices: the gather, at which |t| ends. */
bool moec_layer_gather(const moec_layer *l, moec_value v, moec_trace *t, moec_node *gather);
/* The rows of tokens |x|[T,H]; one dispatch for equal tokens. */
moec_value moec_layer_dispatch(moec_layer *l, moec_value x);
/* rows [N, F...] as [N, F]; and back to [N] and the axes of |like| after its first |skip|. */
moec_value moec_layer_flat(moec_layer *l, moec_value rows);
moec_value moec_layer_shaped(moec_layer *l, moec_value rows, moec_value like, uint32_t skip);
/* The movement or reduction that makes |v|, done on |x|, its operand's rows; the operand and |v| have
 * |skip_in| and |skip_out| axes before their features. */
moec_value moec_layer_move(moec_layer *l, moec_value v, moec_value x, uint32_t skip_in, uint32_t skip_out);

/* Layers that compute every expert on every token (passes/raise_moe_dense.c). True when |topk|
 * was taken for the router of one. */
bool moec_layer_dense(moec_layer *l);

#endif
