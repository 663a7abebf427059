/* Grad: gradients of the entries for training.
 *
 *   train   main's inputs, labels -> loss, then grad.NAME of every float input and trainable parameter (seed: d loss =
 *   1) vjp     main's inputs, grad.OUTPUT of every float output -> grad.NAME
 *
 * Results stand in the order in which the backward pass comes by them - the last layer's first - so that what
 * depth-first order computes for one is dead before the next. */
#include "passes/grad.h"

#include <fnmatch.h>
#include <string.h>

#include "base/buf.h"

/* ---- what is trained ---------------------------------------------------------------------- */

/* A rule that does nothing is a name that was mistyped: some of those there are help. */
static moec_status *no_such_name(const moec_module *m, const char *rule) {
  enum { SHOWN = 3 };
  moec_buf names = {0};
  for (size_t i = 1; i < m->n_params && i <= SHOWN; i++)
    moec_buf_printf(&names, "%s%s", i > 1 ? ", " : "", moec_sym_str(m, m->params[i].name));
  size_t n = m->n_params - 1;
  moec_status *s = moec_error(MOEC_INVALID_ARGUMENT,
                              "%s: expected the name of one of %zu parameters (%s%s), got \"%s\"",
                              *rule == '+' ? "--train-params" : "--freeze", n, moec_buf_str(&names),
                              n > SHOWN ? ", ..." : "", rule + 1);
  moec_buf_fini(&names);
  return s;
}

static moec_status *apply_rules(moec_module *m, const moec_compile_options *o) {
  for (size_t r = 0; r < o->n_rules; r++) {
    size_t hits = 0;
    for (size_t i = 1; i < m->n_params; i++) {
      moec_param_info *p = &m->params[i];
      if (fnmatch(o->rules[r] + 1, moec_sym_str(m, p->name), 0) != 0) continue;
      p->trainable = o->rules[r][0] == '+' && moec_dtype_is_float(p->storage);
      hits++;
    }
    if (!hits) return no_such_name(m, o->rules[r]);
  }
  return NULL;
}

static bool wanted(void *user, const moec_graph *g, moec_value v) {
  (void)user;
  if (moec_def_op(g, v) == MOEC_OP_PARAM)
    return moec_param_get(g->m, MOEC_ATTRS(g, moec_def(g, v), PARAM)->param)->trainable;
  return moec_dtype_is_float(moec_ty(g, v).dtype);
}

/* ---- results ------------------------------------------------------------------------------ */

static void add_result(moec_grad *c, const char *name, moec_value dv) {
  moec_add_output(c->g, moec_arena_printf(c->m->arena, "grad.%s", name), dv);
}

/* A value that no path leads to, but that the user asks about: a float input. */
static moec_value or_zero(moec_grad *c, moec_value v) {
  moec_type_info t = moec_ty(c->g, v);
  if (c->adjoint[v.i].i) return c->adjoint[v.i];
  return moec_b_fill(&c->b, moec_b_scalar_f(&c->b, t.dtype, 0), t.rank, t.dims);
}

static void add_parameter(moec_grad *c, moec_value v, moec_pass_ctx *cx) {
  const char *name = moec_sym_str(c->m, moec_param_get(c->m, MOEC_ATTRS(c->g, moec_def(c->g, v), PARAM)->param)->name);
  if (c->adjoint[v.i].i) add_result(c, name, c->adjoint[v.i]);
  else moec_remark(cx, c->m, "\"%s\" has no gradient path: it is not updated", name);
}

/* The order in which the sweep was done with them: parameters by their first place in the forward graph, last first. */
static moec_status *add_results(moec_grad *c, size_t n_inputs, moec_pass_ctx *cx) {
  moec_graph *g = c->g;
  uint32_t *first = MOEC_NEW_ARRAY(c->m->arena, uint32_t, c->n_values);
  for (uint32_t n = (uint32_t)c->n_nodes; n-- > 1;)
    for (uint32_t i = 0; i < g->nodes[n].n_in; i++) {
      moec_value v = moec_in(g, (moec_node){n}, i);
      if (v.i < c->n_values) first[v.i] = n; /* results of calls have been replaced by those of F_fwd */
    }
  for (uint32_t n = (uint32_t)c->n_nodes; n-- > 1;)
    for (uint32_t i = 0; i < g->nodes[n].n_in; i++) {
      moec_value v = moec_in(g, (moec_node){n}, i);
      if (v.i >= c->n_values || first[v.i] != n || moec_def_op(g, v) != MOEC_OP_PARAM || !c->active[v.i]) continue;
      add_parameter(c, v, cx);
      first[v.i] = 0;
    }
  for (size_t i = 0; i < n_inputs; i++)
    if (c->active[g->inputs[i].i])
      add_result(c, moec_sym_str(c->m, moec_value_get(g, g->inputs[i])->name), or_zero(c, g->inputs[i]));
  return moec_builder_end(&c->b);
}

/* ---- the entries -------------------------------------------------------------------------- */

static moec_status *differentiate_loss(moec_grad_calls *calls, moec_graph *g) {
  moec_grad c = {.calls = calls};
  size_t n_inputs = g->n_inputs;
  MOEC_TRY(moec_grad_begin(&c, g, wanted, NULL));
  moec_value loss = g->outputs[0];
  if (!moec_grad_wants(&c, loss))
    return moec_error(MOEC_INVALID_ARGUMENT, "--train: the loss depends on no trainable parameter and no float input");
  moec_grad_add(&c, loss, moec_b_scalar_f(&c.b, moec_ty(g, loss).dtype, 1));
  MOEC_TRY(moec_grad_sweep(&c));
  return add_results(&c, n_inputs, calls->cx);
}

/* main with grad.OUTPUT inputs for its float outputs. */
static moec_status *differentiate_outputs(moec_grad_calls *calls, moec_module *m) {
  moec_grad c = {.calls = calls};
  moec_graph *g = moec_fn_get(m, moec_fn_add(m, ""));
  moec_graph_copy(g, moec_main(m));
  g->name = moec_sym_make(m, "vjp");
  g->entry = true;
  size_t n_inputs = g->n_inputs, n_outputs = g->n_outputs;
  MOEC_TRY(moec_grad_begin(&c, g, wanted, NULL));
  for (size_t i = 0; i < n_outputs; i++) {
    moec_value y = g->outputs[i];
    if (!moec_grad_wants(&c, y)) continue;
    const char *name = moec_arena_printf(m->arena, "grad.%s", moec_sym_str(m, g->output_names[i]));
    moec_grad_add(&c, y, moec_add_input(g, name, moec_value_get(g, y)->type));
  }
  g->n_outputs = 0;
  MOEC_TRY(moec_grad_sweep(&c));
  moec_remarks heard = calls->cx->remarks; /* the same as for train */
  moec_status *s = add_results(&c, n_inputs, calls->cx);
  calls->cx->remarks = heard;
  return s;
}

moec_status *moec_pass_grad(moec_module *m, moec_pass_ctx *cx) {
  moec_grad_calls calls = {.cx = cx};
  if (!cx->options->train) return NULL;
  MOEC_TRY(apply_rules(m, cx->options));
  for (size_t i = 2; i < m->n_fns; i++)
    if (m->fns[i]->entry) MOEC_TRY(differentiate_loss(&calls, m->fns[i]));
  return differentiate_outputs(&calls, m);
}
