/* Inside the precision pass, and what others need for narrow floats. */
#ifndef MOEC_PASSES_PRECISION_H
#define MOEC_PASSES_PRECISION_H

#include "passes/pass.h"

/* Main, whose floats are all f32 or f64, to bf16 where that pays (passes/precision_narrow.c). */
moec_status *moec_narrow(moec_module *m, moec_pass_ctx *cx) MOEC_MUST_USE;

/* Casts to bf16 or f16 of reshaped values become reshapes of cast ones. */
moec_status *moec_narrow_before_reshapes(moec_graph *g) MOEC_MUST_USE;

/* By node, of the first |n_nodes| of |g|, in topological order: a product that picks experts. passes/routers.c */
void moec_find_routers(const moec_graph *g, uint32_t n_nodes, bool *routes);

/* By node, of the first |n_nodes| of |g|, in topological order: belongs to a recurrence over tokens, or its
 * result gets into one; |of_param| by value: made from parameters alone. passes/recurrences.c */
void moec_find_recurrent(const moec_graph *g, uint32_t n_nodes, const bool *of_param, bool *recurrent);

#endif
