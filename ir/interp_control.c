/* Ops that run functions: call, if, loop, and composites, whose functions are their bodies. */
#include <stdlib.h>
#include <string.h>

#include "ir/builder.h"
#include "ir/interp_internal.h"

MOEC_KERNEL(call) {
  return moec_interp_call(s->ip, ((const moec_attrs_CALL *)s->attrs)->fn, s->n_in, s->in, s->n_out,
                          s->out);
}

MOEC_KERNEL(if) {
  const moec_attrs_IF *a = s->attrs;
  bool c = *(const int64_t *)s->in[0]->data != 0;
  return moec_interp_call(s->ip, c ? a->then_fn : a->else_fn, s->n_in - 1, s->in + 1, s->n_out,
                          s->out);
}

/* ---- loop --------------------------------------------------------------------------------- */

typedef struct loop {
  moec_step *s;
  uint32_t carried, n_in, n_res; /* operands and results of the body */
  const moec_tensor **in;        /* i, c, carried, captured */
  moec_tensor *state;            /* carried values of our own; empty before the first round */
  moec_tensor *res;              /* c, carried, scanned */
} loop;

static void free_all(moec_interp *ip, moec_tensor *t, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) moec_interp_free(ip, &t[i]);
}

/* Row |round| of every scanned output. */
static moec_status *store_scanned(loop *l, int64_t round) {
  for (uint32_t i = l->carried; i < l->s->n_out; i++) {
    const moec_tensor *row = &l->res[1 + i];
    moec_tensor *y = &l->s->out[i];
    size_t bytes = moec_tensor_bytes(row);
    if (!y->data) MOEC_TRY(moec_interp_new(l->s->ip, y->dtype, y->rank, y->dims, y));
    if (round >= y->dims[0] || bytes * (size_t)y->dims[0] != moec_tensor_bytes(y))
      return MOEC_RUN_ERROR("round %lld does not fit scanned result %u", (long long)round, i);
    memcpy((char *)y->data + (size_t)round * bytes, row->data, bytes);
  }
  return NULL;
}

static moec_status *loop_round(loop *l, int64_t round, bool *go_on) {
  const moec_attrs_LOOP *a = l->s->attrs;
  MOEC_TRY(moec_interp_call(l->s->ip, a->body, l->n_in, l->in, l->n_res, l->res));
  *go_on = *(const int64_t *)l->res[0].data != 0;
  moec_status *e = store_scanned(l, round);
  for (uint32_t i = 0; !e && i < l->carried; i++) {
    moec_interp_free(l->s->ip, &l->state[i]);
    l->state[i] = l->res[1 + i];
    l->res[1 + i] = (moec_tensor){0};
    l->in[2 + i] = &l->state[i];
  }
  free_all(l->s->ip, l->res, l->n_res);
  return e;
}

static moec_status *loop_run(loop *l) {
  moec_step *s = l->s;
  int64_t trip = *(const int64_t *)s->in[0]->data, round = 0, go = 0;
  bool go_on = *(const int64_t *)s->in[1]->data != 0;
  moec_tensor i = {.dtype = MOEC_I64, .data = &round}, c = {.dtype = MOEC_I64, .data = &go};
  l->in[0] = &i, l->in[1] = &c;
  for (; go_on && round < trip; round++) {
    go = go_on;
    MOEC_TRY(loop_round(l, round, &go_on));
  }
  for (uint32_t k = 0; k < l->carried; k++) {
    if (l->state[k].data)
      s->out[k] = l->state[k], l->state[k] = (moec_tensor){0};
    else
      MOEC_TRY(moec_interp_copy(s->ip, s->in[2 + k], &s->out[k]));
  }
  for (uint32_t k = l->carried; k < s->n_out; k++) {
    moec_tensor *y = &s->out[k];
    if (y->dims[0] != round)
      return MOEC_RUN_ERROR("expected %lld rounds, got %lld", (long long)y->dims[0],
                            (long long)round);
    if (!y->data) MOEC_TRY(moec_interp_new(s->ip, y->dtype, y->rank, y->dims, y));
  }
  return NULL;
}

MOEC_KERNEL(loop) {
  loop l = {.s = s,
            .carried = (uint32_t)((const moec_attrs_LOOP *)s->attrs)->carried,
            .n_in = s->n_in,
            .n_res = s->n_out + 1};
  l.in = calloc(l.n_in, sizeof *l.in);
  l.state = calloc(l.carried + 1, sizeof *l.state);
  l.res = calloc(l.n_res, sizeof *l.res);
  moec_status *e = NULL;
  if (!l.in || !l.state || !l.res) {
    e = moec_error(MOEC_OUT_OF_MEMORY, "no memory for a loop");
  } else {
    memcpy(l.in, s->in, l.n_in * sizeof *l.in);
    e = loop_run(&l);
    free_all(s->ip, l.state, l.carried);
  }
  free(l.in);
  free(l.state);
  free(l.res);
  return e;
}

/* ---- composites --------------------------------------------------------------------------- */

/* A function holding the body of the node: its inputs are the node's operands that are there. */
static moec_status *build_body(const moec_step *s, moec_fn *out) {
  moec_module *m = s->ip->m;
  moec_value *in = MOEC_NEW_ARRAY(m->arena, moec_value, s->n_in + 1);
  moec_value *res = MOEC_NEW_ARRAY(m->arena, moec_value, s->n_out + 1);
  *out = moec_fn_add(m, moec_op_get(s->op)->text);
  moec_graph *g = moec_fn_get(m, *out);
  for (uint32_t i = 0; i < s->n_in; i++) {
    moec_value v = moec_in(s->g, s->n, i);
    if (v.i) in[i] = moec_add_input(g, "", moec_value_get(s->g, v)->type);
  }
  moec_builder b = moec_builder_on(g);
  moec_status *e = moec_body_build(&b, s->op, s->attrs, s->n_in, in, s->n_out, res);
  moec_status *e2 = moec_builder_end(&b);
  if (e) moec_status_free(e2);
  if (e || e2) return e ? e : e2;
  for (uint32_t i = 0; i < s->n_out; i++) moec_add_output(g, "", res[i]);
  return NULL;
}

MOEC_KERNEL(composite) {
  moec_interp *ip = s->ip;
  moec_fn body = {0};
  bool cached = s->fn.i < ip->source->n_fns; /* bodies within bodies are built each time */
  if (cached) {
    if (!ip->bodies[s->fn.i])
      ip->bodies[s->fn.i] = MOEC_NEW_ARRAY(ip->m->arena, moec_fn, s->g->n_nodes);
    body = ip->bodies[s->fn.i][s->n.i];
  }
  if (!body.i) MOEC_TRY(build_body(s, &body));
  if (cached) ip->bodies[s->fn.i][s->n.i] = body;
  const moec_tensor **in = calloc(s->n_in + 1, sizeof *in);
  if (!in) return moec_error(MOEC_OUT_OF_MEMORY, "no memory for operands");
  uint32_t n = 0;
  for (uint32_t i = 0; i < s->n_in; i++)
    if (s->in[i]) in[n++] = s->in[i];
  moec_status *e = moec_interp_call(ip, body, n, in, s->n_out, s->out);
  free(in);
  return e;
}
