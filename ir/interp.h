/* The reference interpreter: the oracle of every pass and kernel. It runs any module, also as
 * imported, slowly and plainly: values are double (floats) or int64 (the rest), rounded to the
 * value's dtype after each node. Composites run through their bodies. */
#ifndef MOEC_IR_INTERP_H
#define MOEC_IR_INTERP_H

#include "ir/ir.h"

typedef struct moec_interp_options {
  bool f64;               /* no rounding of floats: everything in double */
  size_t memory_limit;    /* bytes of live intermediate values; 0: 8 GiB */
  /* Called after each node with its outputs, NULL: not. For finding the first diverging node
   * and for reading routes. |values| are f64/i64 tensors valid during the call. */
  void (*trace)(void *user, const moec_graph *g, moec_node n, const moec_tensor *values);
  void *user;
} moec_interp_options;

/* Runs |fn|. Symbols are bound from the inputs' shapes, checked against every input's type and
 * every constraint. |outputs|: room for the function's outputs, each owned by the caller
 * afterwards, with the dtype of the value (f64 when options.f64 and a float). */
moec_status *moec_interp_run(const moec_module *m, moec_fn fn, const moec_tensor *inputs, size_t n_inputs,
                             moec_tensor *outputs, size_t n_outputs, const moec_interp_options *options) MOEC_MUST_USE;

/* Symbol values from input shapes: solves dims that are a symbol or linear in one unbound symbol;
 * |symbols| has moec_dim_symbol_count() entries, -1 meaning not bound. Checks the rest. */
moec_status *moec_bind_symbols(const moec_module *m, const moec_graph *g, const moec_tensor *inputs, size_t n_inputs,
                               int64_t *symbols) MOEC_MUST_USE;

#endif
