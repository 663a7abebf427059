/* Outline: equal half-blocks of the residual stream become one function, called many times.
 *
 *   embedding ──x0──►(+)──x1──►(+)──x2── ... ──► tail          x_i: the residual stream
 *               └ attention ┘  └ MoE ┘
 *
 * The stream starts at a float value made from graph inputs (the embedding). In topological order,
 * a value is a cut where it is the only live value that depends on the stream's start; a cut is
 * kept where it is a residual add, that is, an add that reaches the previous kept cut. What lies
 * between two kept cuts is a half-block. Its function takes the incoming cut, the invariants (values that
 * do not depend on the stream: rope tables, masks) and its parameters. Cheap invariants - constants,
 * iotas, elementwise and movement ops - are copied into the function rather than passed, so that a mask stays an
 * expression that the attention kernel can evaluate in place, never a seq x seq buffer.
 *
 * Two half-blocks whose functions are equal node by node share one. No names, no metadata, no node order
 * of the file take part. */
#include <stdio.h>
#include <string.h>

#include "ir/half.h"
#include "passes/pass.h"

typedef struct outliner {
  moec_module *m;
  moec_graph *g;       /* main */
  uint8_t *on_stream;  /* by node of main before any call was added: depends on the stream's start */
  uint8_t *from_input; /* by value of main before any call was added: depends on inputs of the model */
  moec_value *cuts;    /* start, then every kept cut in order */
  size_t n_cuts, cap_cuts;
  moec_fn *fns;        /* distinct half-block functions */
  size_t n_fns, cap_fns;
  size_t n_of_kind[MOEC_HALF_MLP + 1];
} outliner;

/* ---- finding the stream ------------------------------------------------------------------- */

/* Marks the nodes that depend on |start|. Array order is topological after compaction. */
static void mark_stream(outliner *o, moec_value start) {
  const moec_graph *g = o->g;
  memset(o->on_stream, 0, g->n_nodes);
  for (uint32_t n = 1; n < g->n_nodes; n++)
    for (uint32_t i = 0; i < g->nodes[n].n_in && !o->on_stream[n]; i++) {
      moec_value v = moec_in(g, (moec_node){n}, i);
      o->on_stream[n] = v.i == start.i || o->on_stream[moec_def(g, v).i];
    }
}

/* Whether |v| reaches |target| through adds and reshapes only. */
static bool reaches(const moec_graph *g, moec_value v, moec_value target, int depth) {
  if (v.i == target.i) return true;
  if (depth == 0) return false;
  moec_op op = moec_def_op(g, v);
  if (op != MOEC_OP_ADD && op != MOEC_OP_RESHAPE) return false;
  moec_node n = moec_def(g, v);
  for (uint32_t i = 0; i < moec_node_get(g, n)->n_in; i++)
    if (reaches(g, moec_in(g, n, i), target, depth - 1)) return true;
  return false;
}

static bool is_residual_add(const moec_graph *g, moec_value v, moec_value previous) {
  return moec_def_op(g, v) == MOEC_OP_ADD && reaches(g, v, previous, 8);
}

/* Counts down the stream values still needed, by array order; keeps residual cuts. */
static void find_cuts(outliner *o, moec_value start) {
  moec_graph *g = o->g;
  mark_stream(o, start);
  uint32_t *left = MOEC_NEW_ARRAY(o->m->arena, uint32_t, g->n_values);
  for (uint32_t v = 1; v < g->n_values; v++) left[v] = moec_use_count(g, (moec_value){v});
  o->n_cuts = 0;
  MOEC_PUSH(o->m->arena, o->cuts, o->n_cuts, o->cap_cuts, start);
  size_t live = 1;
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    if (!o->on_stream[n]) continue;
    const moec_node_info *p = &g->nodes[n];
    for (uint32_t i = 0; i < p->n_in; i++) {
      moec_value v = g->edges[p->in + i];
      bool stream = v.i == start.i || o->on_stream[moec_def(g, v).i];
      if (stream && --left[v.i] == 0) live--;
    }
    for (uint32_t i = 0; i < p->n_out; i++) live += left[g->edges[p->out + i].i] > 0;
    moec_value v = g->edges[p->out];
    if (live == 1 && left[v.i] > 0 && is_residual_add(g, v, o->cuts[o->n_cuts - 1]))
      MOEC_PUSH(o->m->arena, o->cuts, o->n_cuts, o->cap_cuts, v);
  }
}

/* A float value none of whose operands is a float that depends on graph inputs, or such a value in another dtype: what
 * is added to is that. */
static bool is_source(const moec_graph *g, const uint8_t *from_input, moec_value v) {
  if (!moec_dtype_is_float(moec_ty(g, v).dtype)) return false;
  if (moec_def_op(g, v) == MOEC_OP_CAST && moec_dtype_is_float(moec_ty(g, moec_in(g, moec_def(g, v), 0)).dtype))
    v = moec_in(g, moec_def(g, v), 0);
  moec_node n = moec_def(g, v);
  if (!n.i) return true; /* a float graph input */
  bool step = false;
  for (uint32_t i = 0; i < moec_node_get(g, n)->n_in; i++) {
    moec_value x = moec_in(g, n, i);
    if (!x.i || !from_input[x.i]) continue;
    if (moec_dtype_is_float(moec_ty(g, x).dtype)) return false;
    step = true;
  }
  return step;
}

/* The start whose stream has the most cuts; false where no stream has any. */
static bool find_stream(outliner *o) {
  moec_graph *g = o->g;
  uint8_t *from_input = o->from_input = MOEC_NEW_ARRAY(o->m->arena, uint8_t, g->n_values);
  for (size_t i = 0; i < g->n_inputs; i++) from_input[g->inputs[i].i] = 1;
  moec_value best = {0};
  size_t most = 1;
  for (uint32_t v = 1; v < g->n_values; v++) {
    moec_node n = moec_def(g, (moec_value){v});
    for (uint32_t i = 0; n.i && i < moec_node_get(g, n)->n_in; i++)
      if (from_input[moec_in(g, n, i).i]) from_input[v] = 1;
    if (!from_input[v] || !is_source(g, from_input, (moec_value){v})) continue;
    find_cuts(o, (moec_value){v});
    if (o->n_cuts > most) most = o->n_cuts, best.i = v;
  }
  if (!best.i) return false;
  find_cuts(o, best);
  return true;
}

/* ---- building a function from a half-block ------------------------------------------------- */

typedef struct builder_state {
  outliner *o;
  moec_graph *f;
  moec_value *map;    /* main value -> value of f; 0: not there */
  moec_value *args;   /* main values passed, parallel to f's inputs */
  size_t n_args, cap_args;
  const uint8_t *params_of; /* by main node: 1 where the node reads parameters and constants only */
} builder_state;

/* Invariants that are copied into the function: cheap to compute again, and better seen than passed. */
static bool copied(const builder_state *s, moec_value v) {
  const moec_graph *g = s->o->g;
  moec_node n = moec_def(g, v);
  switch (moec_op_cls(moec_op_of(g, n))) {
    case MOEC_CLASS_LEAF:
      if (moec_op_of(g, n) == MOEC_OP_CONST) return MOEC_ATTRS(g, n, CONST)->data->size <= 512;
      return moec_op_of(g, n) != MOEC_OP_PARAM;
    case MOEC_CLASS_COMPARE:
    case MOEC_CLASS_SELECT:
    case MOEC_CLASS_CAST:
    case MOEC_CLASS_BINARY:
    case MOEC_CLASS_MOVE: return true;
    case MOEC_CLASS_INDEX:
      return moec_op_of(g, n) == MOEC_OP_GATHER || moec_op_of(g, n) == MOEC_OP_GATHER_ND || s->params_of[n.i];
    case MOEC_CLASS_UNARY: {
      moec_op op = moec_op_of(g, n);
      return op == MOEC_OP_NOT || op == MOEC_OP_NEG || s->params_of[n.i];
    }
    default: return s->params_of[n.i]; /* what is made from parameters alone belongs to the block */
  }
}

static moec_value as_input(builder_state *s, moec_value v) {
  moec_graph *g = s->o->g;
  char name[16];
  snprintf(name, sizeof name, "in%zu", s->n_args);
  s->map[v.i] = moec_add_input(s->f, name, moec_value_get(g, v)->type);
  MOEC_PUSH(s->o->m->arena, s->args, s->n_args, s->cap_args, v);
  return s->map[v.i];
}

/* Copies the nodes that |root| needs, operands first; iterative. */
static moec_status *copy_into(builder_state *s, moec_value root) {
  moec_graph *g = s->o->g;
  moec_arena *a = s->o->m->arena;
  moec_value *stack = NULL;
  size_t n_stack = 0, cap = 0;
  MOEC_PUSH(a, stack, n_stack, cap, root);
  while (n_stack) {
    moec_value v = stack[n_stack - 1];
    moec_node n = moec_def(g, v);
    if (s->map[v.i].i || !v.i) {
      n_stack--;
      continue;
    }
    if (!n.i || (!s->o->on_stream[n.i] && !copied(s, v))) {
      as_input(s, v);
      n_stack--;
      continue;
    }
    const moec_node_info p = *moec_node_get(g, n);
    size_t before = n_stack;
    for (uint32_t i = p.n_in; i-- > 0;) {
      moec_value x = g->edges[p.in + i];
      if (x.i && !s->map[x.i].i) MOEC_PUSH(a, stack, n_stack, cap, x);
    }
    if (n_stack > before) continue;
    n_stack--;
    moec_value *in = MOEC_NEW_ARRAY(a, moec_value, p.n_in + 1);
    for (uint32_t i = 0; i < p.n_in; i++) in[i] = s->map[g->edges[p.in + i].i];
    moec_node copy;
    s->f->loc = p.loc;
    MOEC_TRY(moec_add_node(s->f, p.op, p.attrs, p.n_in, in, p.n_out, &copy));
    for (uint32_t i = 0; i < p.n_out; i++) s->map[g->edges[p.out + i].i] = moec_out(s->f, copy, i);
  }
  return NULL;
}

/* Whether a value made from parameters alone: by node, array order. */
static uint8_t *mark_params(outliner *o) {
  const moec_graph *g = o->g;
  uint8_t *pure = MOEC_NEW_ARRAY(o->m->arena, uint8_t, g->n_nodes);
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    const moec_node_info *p = &g->nodes[n];
    bool param = p->op == MOEC_OP_PARAM, ok = p->op != MOEC_OP_SIZE && p->op != MOEC_OP_RANDOM;
    for (uint32_t i = 0; i < p->n_in; i++) {
      moec_value v = g->edges[p->in + i];
      moec_node d = moec_def(g, v);
      if (!v.i || moec_op_of(g, d) == MOEC_OP_CONST) continue;
      ok = ok && d.i && (pure[d.i] || moec_op_of(g, d) == MOEC_OP_PARAM);
      param = param || d.i;
    }
    pure[n] = ok && param && p->n_in > 0;
  }
  return pure;
}

/* ---- equality ----------------------------------------------------------------------------- */

static bool graphs_equal(const moec_graph *a, const moec_graph *b) {
  if (a->n_nodes != b->n_nodes || a->n_values != b->n_values || a->n_inputs != b->n_inputs || a->n_edges != b->n_edges)
    return false;
  for (size_t i = 1; i < a->n_values; i++)
    if (a->values[i].type.i != b->values[i].type.i) return false;
  if (memcmp(a->edges, b->edges, a->n_edges * sizeof *a->edges) != 0) return false;
  for (size_t i = 1; i < a->n_nodes; i++) {
    const moec_node_info *x = &a->nodes[i], *y = &b->nodes[i];
    if (x->op != y->op || x->n_in != y->n_in || x->n_out != y->n_out || !moec_attrs_equal(x->op, x->attrs, y->attrs))
      return false;
  }
  return a->n_outputs == b->n_outputs && memcmp(a->outputs, b->outputs, a->n_outputs * sizeof *a->outputs) == 0;
}

/* Names for readers of dumps and reports: "attention0", "moe0", "attention1". */
static moec_sym name_of(const builder_state *s) {
  outliner *o = s->o;
  bool *computed = MOEC_NEW_ARRAY(o->m->arena, bool, s->n_args);
  for (size_t i = 0; i < s->n_args; i++) /* the first is the residual stream, since the last call a new value */
    computed[i] = i == 0 || o->from_input[s->args[i].i];
  moec_half half = moec_half_of(s->f, computed);
  return moec_sym_make(o->m, moec_arena_printf(o->m->arena, "%s%zu", moec_half_text(half), o->n_of_kind[half]++));
}

/* The function equal to |f|, the one |s| built, which was just added as the last one; |f| stays when it is new. */
static moec_fn share(const builder_state *s, moec_fn f) {
  outliner *o = s->o;
  for (size_t i = 0; i < o->n_fns; i++)
    if (graphs_equal(moec_fn_get(o->m, o->fns[i]), s->f)) return o->fns[i];
  s->f->name = name_of(s);
  MOEC_PUSH(o->m->arena, o->fns, o->n_fns, o->cap_fns, f);
  return f;
}

/* Replaces the half-block that ends in cut |k| by a call. */
static moec_status *outline_half(outliner *o, size_t k, const uint8_t *params_of) {
  moec_arena *a = o->m->arena;
  moec_value from = o->cuts[k - 1], to = o->cuts[k];
  moec_fn f = moec_fn_add(o->m, "half");
  builder_state s = {.o = o, .f = moec_fn_get(o->m, f), .params_of = params_of,
                     .map = MOEC_NEW_ARRAY(a, moec_value, o->g->n_values)};
  as_input(&s, from);
  MOEC_TRY(copy_into(&s, to));
  moec_add_output(s.f, "out", s.map[to.i]);
  moec_compact(s.f);
  moec_attrs_CALL attrs = {.fn = share(&s, f)};
  moec_node call;
  o->g->loc = moec_node_get(o->g, moec_def(o->g, to))->loc;
  MOEC_TRY(moec_add_node(o->g, MOEC_OP_CALL, &attrs, (uint32_t)s.n_args, s.args, 1, &call));
  moec_replace_uses(o->g, to, moec_out(o->g, call, 0));
  o->cuts[k] = moec_out(o->g, call, 0);
  return NULL;
}

moec_status *moec_pass_outline(moec_module *m, moec_pass_ctx *cx) {
  moec_graph *g = moec_main(m);
  outliner o = {.m = m, .g = g, .on_stream = MOEC_NEW_ARRAY(m->arena, uint8_t, g->n_nodes)};
  moec_build_uses(g);
  if (!find_stream(&o)) {
    moec_remark(cx, m, "outline: no residual stream found; the model is one region");
    return NULL;
  }
  uint8_t *params_of = mark_params(&o);
  for (size_t k = 1; k < o.n_cuts; k++) MOEC_TRY(outline_half(&o, k, params_of));
  return NULL;
}
