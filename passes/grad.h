/* Gradients as graphs: what the files of the grad pass share.
 *
 *   grad.c           the pass: the entries train and vjp, outputs grad.NAME
 *   grad_sweep.c     reverse sweep over one graph: adjoints of values from adjoints of its results
 *   grad_rules.def   one line an op: the function that adds its operands' adjoints
 *   grad_*.c         those functions
 *   grad_call.c      functions: F becomes F_fwd (with residual outputs) and F_bwd
 *   grad_note.c      what is saved, computed again and left out, for the report
 *
 * The adjoint of a value is the gradient of the loss with respect to it; {0} is zero. */
#ifndef MOEC_PASSES_GRAD_H
#define MOEC_PASSES_GRAD_H

#include "passes/match.h"
#include "passes/pass.h"

/* One reverse sweep. Values made before the sweep are forward values; everything added is behind them. */
typedef struct moec_grad {
  moec_module *m;
  moec_graph *g;       /* compacted: array order is topological */
  moec_builder b;      /* on g */
  size_t n_values, n_nodes; /* forward ones */
  uint8_t *active;     /* by forward value: depends differentiably on a value gradients are asked for */
  moec_value *adjoint; /* by forward value */
  moec_uses uses;      /* of the forward graph */
  struct moec_grad_calls *calls; /* NULL: calls are refused */
  bool narrow;         /* there are parameters in bf16 */
} moec_grad;

/* Adds the adjoints of node |n|'s operands, from dy[i], those of its outputs (at least one is not {0}). */
typedef void (*moec_grad_rule)(moec_grad *c, moec_node n, const moec_value *dy);

/* Whether the gradient of |v| is asked for: contributions to others are dropped. */
static inline bool moec_grad_wants(const moec_grad *c, moec_value v) {
  return v.i && v.i < c->n_values && c->active[v.i];
}
/* adjoint(v) += dv, if it is wanted. |dv| has v's type. */
void moec_grad_add(moec_grad *c, moec_value v, moec_value dv);

/* The rule of |op|; NULL: none. moec_grad_none: results of |op| have no gradient, being indices, comparisons or steps.
 * */
moec_grad_rule moec_grad_rule_of(moec_op op);
void moec_grad_none(moec_grad *c, moec_node n, const moec_value *dy);
#define GRAD(OP, rule) void moec_grad_##rule(moec_grad *c, moec_node n, const moec_value *dy);
#include "passes/grad_rules.def"
#undef GRAD

/* Says of a function input or the result of a `param` whether its gradient is asked for. */
typedef bool (*moec_grad_wanted)(void *user, const moec_graph *g, moec_value v);

/* Gets |g| ready and fills |c|: spells out composites that have no rule as they stand, gives attention its log-sum-exp,
 * compacts, and marks what is active. Old handles into |g| are invalid afterwards. */
moec_status *moec_grad_begin(moec_grad *c, moec_graph *g, moec_grad_wanted wanted, void *user) MOEC_MUST_USE;
/* Sweeps backwards from the adjoints set so far; the adjoints of all active values are in c->adjoint afterwards. */
moec_status *moec_grad_sweep(moec_grad *c) MOEC_MUST_USE;

/* The adjoint of slice |a| of a value of type |to|: |d| back in its place, zeros around it. passes/grad_move.c */
moec_value moec_grad_unslice(moec_grad *c, moec_value d, const moec_attrs_SLICE *a, moec_type_info to);

/* ---- calls (passes/grad_call.c) ------------------------------------------------------------- */

/* The functions differentiated so far: each once for each set of active operands and results, whatever the number of
 * calls. */
typedef struct moec_grad_calls {
  moec_pass_ctx *cx;
  struct moec_grad_variant *v; /* arena */
  size_t n, cap;
} moec_grad_calls;

/* Adds |replay| to the module's list with the work of its function: nodes 1 .. n_f-1 of |g|. By value of |g|: whether
 * the forward function saves it; whether the gradient needs it. passes/grad_note.c */
void moec_grad_note(moec_replay replay, const moec_graph *g, uint32_t n_f, const uint8_t *saved, const uint8_t *needed);

#endif
