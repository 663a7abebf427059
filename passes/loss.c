/* Loss: the entry `train`, which is main with a loss in place of its outputs.
 *
 *   next-token   logits[B,S,V], labels[B,S]: cross entropy of position s against label s+1, mean over labels that are
 *   not -100.
 *                The labels are shifted, not the logits: the last position has the label -100, so nothing of the size
 *                of the logits is copied. Without any valid label the loss is 0.
 *   OUTPUT       a scalar output of the model that is the loss already */
#include "passes/loss.h"

enum { IGNORE = -100 };

static moec_value find_output(const moec_graph *g, const char *name) {
  for (size_t i = 0; i < g->n_outputs; i++)
    if (strcmp(moec_sym_str(g->m, g->output_names[i]), name) == 0) return g->outputs[i];
  return (moec_value){0};
}

static moec_status *no_such_output(const moec_graph *g, const char *name) {
  moec_buf names = {0};
  for (size_t i = 0; i < g->n_outputs; i++)
    moec_buf_printf(&names, "%s\"%s\"", i ? ", " : "", moec_sym_str(g->m, g->output_names[i]));
  moec_status *s = moec_error(MOEC_INVALID_ARGUMENT, "--loss: expected an output \"%s\", the model has %s", name,
                              moec_buf_str(&names));
  moec_buf_fini(&names);
  return s;
}

/* labels[..., 1:] with -100 behind. */
static moec_value shifted(moec_builder *b, moec_value labels) {
  moec_module *m = b->g->m;
  moec_type_info t = moec_ty(b->g, labels);
  moec_dim one = moec_dim_const(m, 1), lo[MOEC_MAX_RANK], hi[MOEC_MAX_RANK], last = t.dims[t.rank - 1];
  moec_value rest = moec_b_slice(b, labels, -1, one, moec_dim_sub(m, last, one));
  for (uint32_t i = 0; i < t.rank; i++) lo[i] = hi[i] = moec_dim_const(m, 0);
  hi[t.rank - 1] = one;
  moec_attrs_PAD a = {.lo = {t.rank, lo}, .hi = {t.rank, hi}};
  moec_value in[2] = {rest, moec_b_scalar_i(b, t.dtype, IGNORE)};
  return moec_b_op(b, MOEC_OP_PAD, &a, 2, in, 1);
}

static moec_value next_token_loss(moec_builder *b, moec_value logits, moec_value labels) {
  moec_module *m = b->g->m;
  moec_type_info t = moec_ty(b->g, logits);
  moec_dim tokens = moec_type_numel(m, moec_value_get(b->g, labels)->type), flat[2] = {tokens, t.dims[t.rank - 1]};
  moec_attrs_CROSS_ENTROPY a = {.ignore = IGNORE};
  moec_value targets = moec_b_reshape(b, shifted(b, labels), 1, &tokens);
  moec_value in[2] = {moec_b_reshape(b, logits, 2, flat), targets};
  moec_value nll = moec_b_op(b, MOEC_OP_CROSS_ENTROPY, &a, 2, in, 2); /* the log-sum-exp is for the gradient */
  moec_value valid = moec_b_binary(b, MOEC_OP_NE, targets, moec_b_scalar_i(b, MOEC_I64, IGNORE));
  moec_value count = moec_b_reduce(b, MOEC_OP_REDUCE_SUM, moec_b_cast(b, valid, MOEC_F32), 0, false);
  moec_value sum = moec_b_reduce(b, MOEC_OP_REDUCE_SUM, nll, 0, false);
  return moec_b_binary(b, MOEC_OP_DIV, sum, moec_b_with(b, MOEC_OP_MAX, count, 1));
}

static moec_status *add_next_token(moec_graph *g, moec_value *out) {
  moec_value logits = find_output(g, "logits");
  moec_type_info t = moec_ty(g, logits);
  if (!logits.i) return no_such_output(g, "logits");
  if (t.rank < 2 || !moec_dtype_is_float(t.dtype))
    return moec_error(MOEC_UNSUPPORTED,
                      "--loss next-token: expected float logits [..., positions, vocabulary], got rank %u", t.rank);
  for (size_t i = 0; i < g->n_inputs; i++)
    if (strcmp(moec_sym_str(g->m, moec_value_get(g, g->inputs[i])->name), "labels") == 0)
      return moec_error(
          MOEC_UNSUPPORTED,
          "--loss next-token adds an input \"labels\", but the model has one; --loss OUTPUT names its own loss");
  moec_builder b = moec_builder_on(g);
  moec_value labels = moec_add_input(g, "labels", moec_type_make(g->m, MOEC_I64, t.rank - 1, t.dims));
  *out = next_token_loss(&b, logits, labels);
  return moec_builder_end(&b);
}

static moec_status *own_loss(moec_graph *g, const char *name, moec_value *out) {
  *out = find_output(g, name);
  if (!out->i) return no_such_output(g, name);
  moec_type_info t = moec_ty(g, *out);
  moec_dim one = moec_dim_const(g->m, 1);
  if (!moec_dtype_is_float(t.dtype) || !moec_dim_eq(moec_type_numel(g->m, moec_value_get(g, *out)->type), one))
    return moec_error(MOEC_INVALID_ARGUMENT, "--loss: expected one float, output \"%s\" is none", name);
  moec_builder b = moec_builder_on(g);
  *out = moec_b_reshape(&b, *out, 0, NULL);
  return moec_builder_end(&b);
}

moec_status *moec_pass_loss(moec_module *m, moec_pass_ctx *cx) {
  const char *name = cx->options->loss;
  moec_value loss = {0};
  if (!cx->options->train) return NULL;
  moec_graph *g = moec_fn_get(m, moec_fn_add(m, ""));
  moec_graph_copy(g, moec_main(m));
  g->name = moec_sym_make(m, "train");
  g->entry = true;
  MOEC_TRY(name && strcmp(name, "next-token") != 0 ? own_loss(g, name, &loss) : add_next_token(g, &loss));
  g->n_outputs = 0;
  moec_add_output(g, "loss", loss);
  return moec_loss_of_routers(g, cx->options->aux_loss, cx->options->z_loss);
}
