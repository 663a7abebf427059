/* Functions: F becomes F_fwd and F_bwd.
 *
 *   F_fwd(x, params) -> y, saved...          F_bwd(x, params, saved..., dy) -> dx, dparams
 *
 * F with its gradient is built as one graph first. Then the gradient part is cut off: where it reads a forward value,
 * that value is either saved - an extra result of F_fwd - or computed again from what is saved, inside F_bwd. What is
 * saved is the one difference between the modes of recompute:
 *
 *   none    results of contractions, attention, the expert region and other work that is not worth doing twice;
 *           elementwise ops, norms and movement are computed again, since reading their operands costs what reading
 *           their result would; unless work of that kind reads it both here and there, so that it has to lie in memory
 *           both times, or it is a reduction, one number for many
 *   block   the routing only (select and plan): a replay must take the same routes. In a bf16 model also the product of
 *           the router, which is one of f32 and slow there, and small. Everything else is computed again
 *
 * Recompute-skip is liveness: nothing in the gradient part reads the output of the span, so the residual add,
 * moe.combine, moe.weight and fc2 (see grad_moe.c) are not in F_bwd unless something else needs them. */
#include <string.h>

#include "passes/grad.h"
#include "passes/precision.h"

/* Where an operand of a call of F_bwd comes from. */
typedef enum source_kind { FROM_INPUT, FROM_SAVED, FROM_ADJOINT } source_kind;
typedef struct source {
  source_kind kind;
  uint32_t i; /* number of the input, the saved value or the output */
} source;

typedef struct moec_grad_variant {
  moec_fn fn, fwd, bwd;
  uint32_t n_in, n_out, n_saved, n_sources;
  uint8_t *wanted; /* by input of fn: its gradient is asked for */
  uint8_t *active; /* by input of fn: its gradient is a result of bwd; not if no path leads to it */
  uint8_t *given;  /* by output of fn: its adjoint is an operand of bwd */
  uint8_t *streams; /* by input of fn: an activation of f32 in a bf16 model */
  source *sources; /* operands of bwd */
} variant;

/* ---- one graph of F and its gradient -------------------------------------------------------- */

typedef struct joint {
  moec_module *m;
  moec_grad grad;
  moec_graph *g;
  variant *v;
  moec_value *seeds; /* by output of F: its adjoint, an input of g behind F's */
  moec_value *dx;    /* by input of F: its gradient, {0} where not active */
  uint32_t n_f;      /* nodes 1 .. n_f-1 are F's */
  uint8_t *saved, *needed; /* by value */
  const char *reader;      /* what keeps moe.combine in the replay; NULL: nothing does */
} joint;

static bool wanted_input(void *user, const moec_graph *g, moec_value v) {
  const variant *k = user;
  for (uint32_t i = 0; i < k->n_in; i++)
    if (g->inputs[i].i == v.i) return k->wanted[i];
  return false;
}

/* Between functions, what the gradient of such an activation is lies in bf16: an input of F, or an output like one. */
static moec_dtype handed_on(const moec_graph *g, moec_value x) {
  moec_dtype t = moec_ty(g, x).dtype;
  return t == MOEC_F32 ? MOEC_BF16 : t;
}

static bool is_stream(const variant *v, const moec_graph *g, moec_value y) {
  for (uint32_t i = 0; i < v->n_in; i++)
    if (v->streams[i] && moec_value_get(g, g->inputs[i])->type.i == moec_value_get(g, y)->type.i) return true;
  return false;
}

static moec_graph *copy_graph(moec_module *m, moec_fn f) {
  moec_graph *copy = moec_fn_get(m, moec_fn_add(m, ""));
  moec_graph_copy(copy, moec_fn_get(m, f));
  return copy;
}

static moec_status *build_joint(joint *j, moec_grad_calls *calls) {
  moec_arena *a = j->m->arena;
  variant *v = j->v;
  moec_graph *g = j->g = copy_graph(j->m, v->fn);
  j->grad.calls = calls;
  MOEC_TRY(moec_grad_begin(&j->grad, g, wanted_input, v));
  j->n_f = (uint32_t)g->n_nodes;
  j->seeds = MOEC_NEW_ARRAY(a, moec_value, v->n_out + 1);
  j->dx = MOEC_NEW_ARRAY(a, moec_value, v->n_in + 1);
  for (uint32_t i = 0; i < v->n_out; i++) {
    moec_value y = g->outputs[i];
    if (!v->given[i] || !moec_grad_wants(&j->grad, y)) continue;
    moec_type t = moec_value_get(g, y)->type;
    if (is_stream(v, g, y)) t = moec_type_with_dtype(j->m, t, handed_on(g, y));
    j->seeds[i] = moec_add_input(g, "dy", t);
    moec_grad_add(&j->grad, y, moec_b_cast(&j->grad.b, j->seeds[i], moec_ty(g, y).dtype));
  }
  MOEC_TRY(moec_grad_sweep(&j->grad));
  for (uint32_t i = 0; i < v->n_in; i++)
    if (v->active[i]) j->dx[i] = j->grad.adjoint[g->inputs[i].i];
  for (uint32_t i = 0; i < v->n_in; i++)
    if (j->dx[i].i && v->streams[i]) j->dx[i] = moec_b_cast(&j->grad.b, j->dx[i], handed_on(g, g->inputs[i]));
  return moec_builder_end(&j->grad.b);
}

/* ---- what is saved ------------------------------------------------------------------------ */

/* Computed again even where memory is no concern: its result takes as long to read as its operands. */
static bool is_cheap(moec_op op) {
  switch (moec_op_cls(op)) {
    case MOEC_CLASS_LEAF:
    case MOEC_CLASS_UNARY:
    case MOEC_CLASS_BINARY:
    case MOEC_CLASS_COMPARE:
    case MOEC_CLASS_SELECT:
    case MOEC_CLASS_CAST:
    case MOEC_CLASS_REDUCE:
    case MOEC_CLASS_MOVE: return true;
    case MOEC_CLASS_INDEX: return op == MOEC_OP_GATHER || op == MOEC_OP_GATHER_ELEMENTS || op == MOEC_OP_GATHER_ND;
    case MOEC_CLASS_COMPOSITE:
      return op == MOEC_OP_SOFTMAX || op == MOEC_OP_RMS_NORM || op == MOEC_OP_ROPE || op == MOEC_OP_SWIGLU;
    default: return false;
  }
}

static bool is_saved(moec_recompute mode, moec_op op, bool router) {
  if (mode != MOEC_RECOMPUTE_BLOCK) return !is_cheap(op);
  return op == MOEC_OP_MOE_SELECT || op == MOEC_OP_MOE_PLAN || router;
}

static void need(joint *j, moec_value v) { j->needed[v.i] = 1; }

/* Marks what has to lie in memory for node |n|. Not a mask, nor rows to weight: both are computed in place. */
static void mark_operands(const moec_graph *g, uint32_t n, uint8_t *stored) {
  const moec_node_info *p = &g->nodes[n];
  bool attention = p->op == MOEC_OP_ATTENTION || p->op == MOEC_OP_ATTENTION_GRAD;
  for (uint32_t i = 0; i < p->n_in && !is_cheap(p->op); i++) {
    moec_value v = g->edges[p->in + i];
    while (moec_def_op(g, v) == MOEC_OP_RESHAPE) v = moec_in(g, moec_def(g, v), 0);
    if (attention ? i != 3 : p->op != MOEC_OP_MOE_WEIGHT || i != 0) stored[v.i] = 1;
  }
}

static bool lies_there_twice(const moec_graph *g, uint32_t n, const uint8_t *forward, const uint8_t *backward) {
  uint32_t v = g->edges[g->nodes[n].out].i;
  return forward[v] && backward[v] && moec_op_cls(g->nodes[n].op) != MOEC_CLASS_LEAF;
}

/* By value: depends on the adjoints that F_bwd gets. The other values of the gradient part could be made in F_fwd. */
static uint8_t *find_late(const joint *j) {
  const moec_graph *g = j->g;
  uint8_t *late = MOEC_NEW_ARRAY(j->m->arena, uint8_t, g->n_values);
  for (uint32_t i = 0; i < j->v->n_out; i++) late[j->seeds[i].i] = 1;
  late[0] = 0;
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    const moec_node_info *p = &g->nodes[n];
    uint8_t any = 0;
    for (uint32_t i = 0; i < p->n_in; i++) any |= late[g->edges[p->in + i].i];
    for (uint32_t i = 0; i < p->n_out; i++) late[g->edges[p->out + i].i] = any;
  }
  return late;
}

static bool is_one_for_many(const moec_graph *g, moec_node n, const uint8_t *late) {
  enum { MANY = 32 };
  if (moec_op_cls(moec_op_of(g, n)) != MOEC_CLASS_REDUCE || late[moec_out(g, n, 0).i]) return false;
  moec_ints axes = MOEC_ATTRS(g, n, REDUCE_SUM)->axes; /* the four structs are alike */
  int64_t each, all = 1;
  for (uint32_t i = 0; i < axes.n && all < MANY; i++)
    all *= moec_dim_is_const(g->m, moec_ty(g, moec_in(g, n, 0)).dims[axes.v[i]], &each) ? each : MANY;
  return all >= MANY;
}

/* Marks what F_bwd holds and what it reads, from its results backwards. Node order is topological: F's nodes were
 * compacted, the gradient's were appended. */
static void cut(joint *j, moec_recompute mode, bool whole) {
  moec_graph *g = j->g;
  bool *routes = MOEC_NEW_ARRAY(j->m->arena, bool, g->n_nodes);
  uint8_t *forward = MOEC_NEW_ARRAY(j->m->arena, uint8_t, g->n_values);
  uint8_t *backward = MOEC_NEW_ARRAY(j->m->arena, uint8_t, g->n_values), *late = find_late(j);
  moec_find_routers(g, j->n_f, routes);
  for (uint32_t n = 1; n < j->n_f && mode == MOEC_RECOMPUTE_NONE; n++) mark_operands(g, n, forward);
  j->saved = MOEC_NEW_ARRAY(j->m->arena, uint8_t, g->n_values);
  j->needed = MOEC_NEW_ARRAY(j->m->arena, uint8_t, g->n_values);
  for (uint32_t i = 0; i < j->v->n_in; i++) need(j, j->dx[i]);
  for (uint32_t i = 0; whole && i < j->v->n_out; i++) need(j, g->outputs[i]);
  for (uint32_t n = (uint32_t)g->n_nodes; n-- > 1;) {
    const moec_node_info *p = &g->nodes[n];
    bool keep = n < j->n_f && (is_saved(mode, p->op, routes[n] && j->grad.narrow) ||
                               lies_there_twice(g, n, forward, backward));
    keep = keep || (mode == MOEC_RECOMPUTE_NONE && is_one_for_many(g, (moec_node){n}, late));
    bool live = false;
    for (uint32_t i = 0; i < p->n_out; i++) {
      moec_value v = g->edges[p->out + i];
      if (!j->needed[v.i]) continue;
      live = true;
      j->saved[v.i] = keep;
    }
    for (uint32_t i = 0; live && !keep && i < p->n_in; i++) need(j, g->edges[p->in + i]);
    if (live && n >= j->n_f) mark_operands(g, n, backward);
  }
  j->needed[0] = 0;
}

/* ---- the two functions -------------------------------------------------------------------- */

static moec_status *build_fwd(joint *j, const char *name) {
  variant *v = j->v;
  moec_graph *g = moec_fn_get(j->m, v->fwd);
  moec_graph_copy(g, j->g);
  g->name = moec_sym_make(j->m, name);
  g->n_inputs = v->n_in; /* without the adjoints */
  for (uint32_t x = 1; x < j->g->n_values; x++)
    if (j->saved[x]) {
      moec_add_output(g, moec_arena_printf(j->m->arena, "saved%u", v->n_saved), (moec_value){x});
      v->n_saved++;
    }
  return NULL;
}

/* F_bwd under construction. */
typedef struct backward {
  joint *j;
  moec_graph *g;
  moec_value *map; /* by value of the joint graph */
  size_t cap_sources;
} backward;

static void operand(backward *k, moec_value x, source from, const char *what) {
  variant *v = k->j->v;
  const char *name = moec_arena_printf(k->j->m->arena, "%s%u", what, from.i);
  k->map[x.i] = moec_add_input(k->g, name, moec_value_get(k->j->g, x)->type);
  size_t n = v->n_sources;
  MOEC_PUSH(k->j->m->arena, v->sources, n, k->cap_sources, from);
  v->n_sources = (uint32_t)n;
}

static void operands(backward *k) {
  joint *j = k->j;
  uint32_t saved = 0;
  for (uint32_t i = 0; i < j->v->n_in; i++)
    if (j->needed[j->g->inputs[i].i]) operand(k, j->g->inputs[i], (source){FROM_INPUT, i}, "in");
  for (uint32_t x = 1; x < j->g->n_values; x++)
    if (j->saved[x]) operand(k, (moec_value){x}, (source){FROM_SAVED, saved++}, "saved");
  for (uint32_t i = 0; i < j->v->n_out; i++)
    if (j->seeds[i].i && j->needed[j->seeds[i].i]) operand(k, j->seeds[i], (source){FROM_ADJOINT, i}, "dy");
}

static moec_status *copy_node(backward *k, moec_node n) {
  const moec_graph *from = k->j->g;
  const moec_node_info p = *moec_node_get(from, n);
  moec_value *in = MOEC_NEW_ARRAY(k->j->m->arena, moec_value, p.n_in + 1);
  moec_node copy;
  for (uint32_t i = 0; i < p.n_in; i++) in[i] = k->map[from->edges[p.in + i].i];
  k->g->loc = p.loc;
  MOEC_TRY(moec_add_node(k->g, p.op, p.attrs, p.n_in, in, p.n_out, &copy));
  for (uint32_t i = 0; i < p.n_out; i++)
    if (!k->map[from->edges[p.out + i].i].i) k->map[from->edges[p.out + i].i] = moec_out(k->g, copy, i);
  return NULL;
}

static bool is_live(const joint *j, moec_node n) {
  bool live = false;
  for (uint32_t i = 0; i < moec_node_get(j->g, n)->n_out; i++) {
    moec_value v = moec_out(j->g, n, i);
    live |= j->needed[v.i] && !j->saved[v.i];
  }
  return live;
}

static moec_status *build_bwd(joint *j, const char *name, bool whole) {
  backward k = {j, moec_fn_get(j->m, j->v->bwd), MOEC_NEW_ARRAY(j->m->arena, moec_value, j->g->n_values), 0};
  k.g->name = moec_sym_make(j->m, name);
  operands(&k);
  for (uint32_t n = 1; n < j->g->n_nodes; n++)
    if (is_live(j, (moec_node){n})) MOEC_TRY(copy_node(&k, (moec_node){n}));
  for (uint32_t i = 0; i < j->v->n_in; i++)
    if (j->dx[i].i) moec_add_output(k.g, moec_arena_printf(j->m->arena, "d_in%u", i), k.map[j->dx[i].i]);
  for (uint32_t i = 0; whole && i < j->v->n_out; i++) /* nobody reads these: --skip-recompute-combine off */
    moec_add_output(k.g, moec_arena_printf(j->m->arena, "replayed%u", i), k.map[j->g->outputs[i].i]);
  return NULL;
}

/* ---- recompute-skip ----------------------------------------------------------------------- */

/* Whether |x| is the combined output, or another view of it. */
static bool is_combined(const joint *j, moec_value x) {
  while (moec_def_op(j->g, x) == MOEC_OP_RESHAPE || moec_def_op(j->g, x) == MOEC_OP_TRANSPOSE)
    x = moec_in(j->g, moec_def(j->g, x), 0);
  return moec_def(j->g, x).i < j->n_f && moec_def_op(j->g, x) == MOEC_OP_MOE_COMBINE;
}

/* A node of the gradient part that reads the combined output for its value. */
static moec_node reader_of_combine(const joint *j) {
  const moec_graph *g = j->g;
  for (uint32_t n = 1; n < g->n_nodes; n++)
    for (uint32_t i = 0; i < g->nodes[n].n_in; i++) {
      moec_value x = moec_in(g, (moec_node){n}, i);
      bool view = g->nodes[n].op == MOEC_OP_RESHAPE || g->nodes[n].op == MOEC_OP_TRANSPOSE;
      if (!view && is_combined(j, x) && is_live(j, (moec_node){n})) return (moec_node){n};
    }
  return (moec_node){0};
}

static moec_status *check_skip(joint *j, moec_pass_ctx *cx) {
  const moec_compile_options *o = cx->options;
  moec_node reader = reader_of_combine(j);
  if (o->recompute != MOEC_RECOMPUTE_BLOCK || !reader.i || o->skip_combine == MOEC_SKIP_OFF) return NULL;
  const char *fn = moec_sym_str(j->m, moec_fn_get(j->m, j->v->fn)->name);
  j->reader = moec_arena_printf(j->m->arena, "%s %s", moec_op_get(moec_op_of(j->g, reader))->text,
                                moec_m_name(j->g, reader));
  if (o->skip_combine == MOEC_SKIP_ON)
    return moec_error(MOEC_UNSUPPORTED,
                      "--skip-recompute-combine on: in %s, %s reads the combined output for its value, so the "
                      "replay has to compute it",
                      fn, j->reader);
  moec_remark(cx, j->m, "recompute: %s keeps moe.combine in its replay: %s reads its value", fn, j->reader);
  return NULL;
}

/* ---- variants ----------------------------------------------------------------------------- */

static moec_status *make_variant(moec_grad_calls *calls, moec_module *m, variant *v) {
  const moec_compile_options *o = calls->cx->options;
  joint j = {.m = m, .v = v};
  bool whole = o->recompute == MOEC_RECOMPUTE_BLOCK && o->skip_combine == MOEC_SKIP_OFF;
  const char *name = moec_sym_str(m, moec_fn_get(m, v->fn)->name);
  MOEC_TRY(moec_context(build_joint(&j, calls), "gradient of @\"%s\"", name));
  cut(&j, o->recompute, whole);
  MOEC_TRY(check_skip(&j, calls->cx));
  v->fwd = moec_fn_add(m, "");
  v->bwd = moec_fn_add(m, "");
  MOEC_TRY(build_fwd(&j, moec_arena_printf(m->arena, "%s_fwd", name)));
  MOEC_TRY(build_bwd(&j, moec_arena_printf(m->arena, "%s_bwd", name), whole));
  for (uint32_t i = 0; i < v->n_in; i++) v->active[i] = j.dx[i].i != 0; /* those that a path leads to */
  moec_replay replay = {.fn = moec_fn_get(m, v->fn)->name, .reader = j.reader};
  replay.forward = moec_fn_get(m, v->fwd), replay.backward = moec_fn_get(m, v->bwd);
  moec_grad_note(replay, j.g, j.n_f, j.saved, j.needed);
  return NULL;
}

static moec_status *variant_of(moec_grad_calls *calls, moec_module *m, const variant *key, const variant **out) {
  for (size_t i = 0; i < calls->n; i++) {
    const variant *v = &calls->v[i];
    if (v->fn.i != key->fn.i || memcmp(v->wanted, key->wanted, key->n_in) != 0 ||
        memcmp(v->given, key->given, key->n_out) != 0 || memcmp(v->streams, key->streams, key->n_in) != 0)
      continue;
    *out = v;
    return NULL;
  }
  variant fresh = *key;
  MOEC_TRY(make_variant(calls, m, &fresh));
  MOEC_PUSH(m->arena, calls->v, calls->n, calls->cap, fresh);
  *out = &calls->v[calls->n - 1];
  return NULL;
}

/* ---- the rule ----------------------------------------------------------------------------- */

static variant key_of(moec_grad *c, moec_node n, const moec_value *dy) {
  const moec_node_info *p = moec_node_get(c->g, n);
  moec_arena *a = c->m->arena;
  variant k = {.fn = MOEC_ATTRS(c->g, n, CALL)->fn, .n_in = p->n_in, .n_out = p->n_out};
  k.wanted = MOEC_NEW_ARRAY(a, uint8_t, p->n_in + 1);
  k.active = MOEC_NEW_ARRAY(a, uint8_t, p->n_in + 1);
  k.given = MOEC_NEW_ARRAY(a, uint8_t, p->n_out + 1);
  k.streams = MOEC_NEW_ARRAY(a, uint8_t, p->n_in + 1);
  for (uint32_t i = 0; i < p->n_in; i++) k.wanted[i] = k.active[i] = moec_grad_wants(c, moec_in(c->g, n, i));
  for (uint32_t i = 0; i < p->n_out; i++) k.given[i] = dy[i].i != 0;
  for (uint32_t i = 0; i < p->n_in; i++) {
    moec_op op = moec_def_op(c->g, moec_in(c->g, n, i));
    k.streams[i] = c->narrow && k.wanted[i] && moec_ty(c->g, moec_in(c->g, n, i)).dtype == MOEC_F32 &&
                   op != MOEC_OP_NONE && op != MOEC_OP_PARAM;
  }
  return k;
}

static moec_dtype input_dtype(const moec_module *m, moec_fn f, uint32_t i) {
  const moec_graph *g = moec_fn_get(m, f);
  return moec_ty(g, g->inputs[i]).dtype;
}

/* The call of F becomes one of F_fwd, and one of F_bwd is added. */
void moec_grad_call(moec_grad *c, moec_node n, const moec_value *dy) {
  moec_builder *b = &c->b;
  moec_arena *a = c->m->arena;
  const variant *v = NULL;
  if (!c->calls) {
    moec_b_fail(b, MOEC_BUG("a call where none is expected"));
    return;
  }
  variant key = key_of(c, n, dy);
  moec_b_fail(b, variant_of(c->calls, c->m, &key, &v));
  if (b->error) return;
  moec_value *in = MOEC_NEW_ARRAY(a, moec_value, v->n_in + 1), *args = MOEC_NEW_ARRAY(a, moec_value, v->n_sources + 1);
  for (uint32_t i = 0; i < v->n_in; i++) in[i] = moec_in(c->g, n, i);
  moec_attrs_CALL fwd = {.fn = v->fwd}, bwd = {.fn = v->bwd};
  moec_value y = moec_b_op(b, MOEC_OP_CALL, &fwd, v->n_in, in, v->n_out + v->n_saved);
  if (b->error) return;
  moec_node call = moec_def(c->g, y);
  for (uint32_t i = 0; i < v->n_out; i++) moec_replace_uses(c->g, moec_out(c->g, n, i), moec_out(c->g, call, i));
  for (uint32_t i = 0; i < v->n_sources; i++) {
    source s = v->sources[i];
    args[i] = s.kind == FROM_INPUT ? in[s.i] : s.kind == FROM_SAVED ? moec_out(c->g, call, v->n_out + s.i) : dy[s.i];
    if (s.kind == FROM_ADJOINT) args[i] = moec_b_cast(b, args[i], input_dtype(c->m, v->bwd, i));
  }
  uint32_t n_results = (uint32_t)moec_fn_get(c->m, v->bwd)->n_outputs; /* active gradients, then what is replayed */
  if (!n_results) return;
  moec_value d = moec_b_op(b, MOEC_OP_CALL, &bwd, v->n_sources, args, n_results);
  if (b->error) return;
  moec_node call_back = moec_def(c->g, d);
  for (uint32_t i = 0, at = 0; i < v->n_in; i++)
    if (v->active[i])
      moec_grad_add(c, in[i], moec_b_cast(b, moec_out(c->g, call_back, at++), moec_ty(c->g, in[i]).dtype));
}
