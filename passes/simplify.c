/* Simplify: equal computations become equal graphs, and recognisers see few spellings.
 *
 * One sweep visits the nodes in topological order. A node's operands are replaced by what they became; then the
 * first rule that applies gives a replacement, whose new nodes are simplified at once, the same way; where none
 * applies, an equal node seen earlier takes its place. Replacements live in a table (remap) and are applied as operands
 * are read, so a sweep costs the nodes it looks at. Sweeps repeat until one changes nothing; a second one usually does.
 *
 * The canonical form, in short (each rule says its part):
 *   - constants: one element and equal elements are broadcasts of a scalar; scalars are folded;
 *   - movement, from the leaves up: slice, reshape, transpose, broadcast; a broadcast's operand has no axis of size 1;
 *     elementwise ops run on the smallest shape their operands need, before the broadcast;
 *   - index arithmetic on one axis is iota * c + d;
 *   - filled operands of commutative ops and comparisons stand second; no gt or ge between two computed values;
 *   - dot reads its operands as they lie: no transposes, no axes of size 1, the operand without free axes first. */
#include "passes/simplify.h"

#include <string.h>

#include "base/file.h"
#include "passes/pass.h"

static const moec_rule *const families[] = {
    moec_rules_const,  moec_rules_arith,  moec_rules_logic, moec_rules_broadcast, moec_rules_move,
    moec_rules_join,   moec_rules_affine, moec_rules_index, moec_rules_reduce,    moec_rules_dot,
    moec_rules_attention,
};

/* ---- replacements -------------------------------------------------------------------------- */

static moec_value resolve(const moec_simplifier *s, moec_value v) {
  while (v.i < s->n_remap && s->remap[v.i].i) v = s->remap[v.i];
  return v;
}

static void replace(moec_simplifier *s, moec_value from, moec_value to) {
  if (from.i == to.i) return;
  while (s->n_remap < s->g->n_values) MOEC_PUSH(s->m->arena, s->remap, s->n_remap, s->cap_remap, (moec_value){0});
  s->remap[from.i] = to;
}

/* ---- common subexpressions ----------------------------------------------------------------- */

static bool commutes(moec_op op) {
  switch (op) {
    case MOEC_OP_ADD: case MOEC_OP_MUL: case MOEC_OP_MAX: case MOEC_OP_MIN: case MOEC_OP_AND: case MOEC_OP_OR:
    case MOEC_OP_XOR: case MOEC_OP_EQ: case MOEC_OP_NE: return true;
    default: return false;
  }
}

static bool sharable(moec_op op) {
  moec_op_class c = moec_op_cls(op);
  return c != MOEC_CLASS_EFFECT && c != MOEC_CLASS_CONTROL;
}

static uint64_t node_hash(const moec_graph *g, moec_node n) {
  const moec_node_info *p = moec_node_get(g, n);
  const moec_value *in = g->edges + p->in;
  uint64_t h = moec_hash(MOEC_HASH_SEED, &p->op, sizeof p->op);
  h = moec_attrs_hash(moec_hash(h, &p->n_out, sizeof p->n_out), p->op, p->attrs);
  if (commutes(p->op)) {
    uint32_t pair[2] = {in[0].i < in[1].i ? in[0].i : in[1].i, in[0].i < in[1].i ? in[1].i : in[0].i};
    return moec_hash(h, pair, sizeof pair);
  }
  return p->n_in ? moec_hash(h, in, p->n_in * sizeof *in) : h;
}

static bool nodes_equal(const moec_graph *g, moec_node a, moec_node b) {
  const moec_node_info *p = moec_node_get(g, a), *q = moec_node_get(g, b);
  const moec_value *x = g->edges + p->in, *y = g->edges + q->in;
  if (p->op != q->op || p->n_in != q->n_in || p->n_out != q->n_out) return false;
  bool same = !p->n_in || memcmp(x, y, p->n_in * sizeof *x) == 0;
  if (!same && commutes(p->op)) same = x[0].i == y[1].i && x[1].i == y[0].i;
  return same && moec_attrs_equal(p->op, p->attrs, q->attrs);
}

static void table_add(moec_simplifier *s, uint32_t n) {
  size_t i = node_hash(s->g, (moec_node){n}) & (s->table_size - 1);
  while (s->table[i]) i = (i + 1) & (s->table_size - 1);
  s->table[i] = n;
  s->table_used++;
}

static void table_grow(moec_simplifier *s) {
  uint32_t *old = s->table;
  size_t old_size = s->table_size;
  s->table_size = old_size ? 2 * old_size : 1024;
  s->table = MOEC_NEW_ARRAY(s->m->arena, uint32_t, s->table_size);
  s->table_used = 0;
  for (size_t i = 0; i < old_size; i++)
    if (old[i]) table_add(s, old[i]);
}

/* An earlier node equal to |n|; |n| itself, entered in the table, where there is none. */
static moec_node find_equal(moec_simplifier *s, moec_node n) {
  if (!sharable(moec_op_of(s->g, n))) return n;
  if (2 * (s->table_used + 1) > s->table_size) table_grow(s);
  for (size_t i = node_hash(s->g, n) & (s->table_size - 1); s->table[i]; i = (i + 1) & (s->table_size - 1))
    if (nodes_equal(s->g, (moec_node){s->table[i]}, n)) return (moec_node){s->table[i]};
  table_add(s, n.i);
  return n;
}

/* ---- one node ------------------------------------------------------------------------------ */

static moec_status *simplify_node(moec_simplifier *s, moec_node n);

/* What the first applicable rule makes of |n|; {0}: none applies. */
static moec_status *apply_rules(moec_simplifier *s, moec_node n, moec_value *out) {
  moec_op op = moec_op_of(s->g, n);
  *out = (moec_value){0};
  for (size_t f = 0; f < sizeof families / sizeof *families; f++)
    for (const moec_rule *r = families[f]; r->name; r++) {
      if (r->op ? r->op != op : !moec_op_is_elementwise(op)) continue;
      *out = r->apply(s, n);
      MOEC_TRY(moec_context(moec_builder_end(&s->b), "simplify rule %s", r->name));
      if (!out->i) continue;
      if (moec_value_get(s->g, *out)->type.i != moec_value_get(s->g, moec_out(s->g, n, 0))->type.i)
        return MOEC_BUG("simplify rule %s changes the type of a value", r->name);
      if (++s->rewrites > s->limit) return MOEC_BUG("simplify: rewriting does not end, last by rule %s", r->name);
      return NULL;
    }
  return NULL;
}

static moec_status *simplify_node(moec_simplifier *s, moec_node n) {
  moec_graph *g = s->g;
  moec_node_info *p = moec_node_get(g, n);
  for (uint32_t i = 0; i < p->n_in; i++) {
    moec_value v = g->edges[p->in + i], to = resolve(s, v);
    if (to.i != v.i) moec_set_input(g, n, i, to);
  }
  g->loc = p->loc;
  uint32_t before = (uint32_t)g->n_nodes;
  moec_value to;
  if (p->n_out == 1) {
    MOEC_TRY(apply_rules(s, n, &to));
    if (to.i) {
      /* Nodes of rules that gave up halfway are there too; nothing reads them. */
      uint32_t after = (uint32_t)g->n_nodes;
      for (uint32_t k = before; k < after; k++) MOEC_TRY(simplify_node(s, (moec_node){k}));
      replace(s, moec_out(g, n, 0), resolve(s, to));
      return NULL;
    }
  }
  moec_node same = find_equal(s, n);
  for (uint32_t i = 0; i < moec_node_get(g, n)->n_out; i++) replace(s, moec_out(g, n, i), moec_out(g, same, i));
  return NULL;
}

/* ---- sweeps --------------------------------------------------------------------------------- */

static moec_status *sweep(moec_simplifier *s, bool *changed) {
  moec_graph *g = s->g;
  moec_build_uses(g);
  uint32_t *uses = MOEC_NEW_ARRAY(s->m->arena, uint32_t, g->n_values);
  for (uint32_t v = 1; v < g->n_values; v++) uses[v] = g->use_start[v + 1] - g->use_start[v];
  for (size_t i = 0; i < g->n_outputs; i++) uses[g->outputs[i].i]++;
  s->uses = uses, s->n_uses = g->n_values;
  size_t n_nodes = g->n_nodes, rewrites = s->rewrites;
  for (uint32_t n = 1; n < n_nodes; n++) MOEC_TRY(simplify_node(s, (moec_node){n}));
  for (size_t i = 0; i < g->n_outputs; i++) g->outputs[i] = resolve(s, g->outputs[i]);
  moec_compact(g);
  *changed = s->rewrites != rewrites;
  return NULL;
}

moec_status *moec_simplify_graph(moec_graph *g) {
  enum { MAX_SWEEPS = 20 };
  moec_compact(g); /* topological order */
  bool changed = true;
  for (int i = 0; i < MAX_SWEEPS && changed; i++) {
    moec_simplifier s = {.m = g->m, .g = g, .b = moec_builder_on(g), .limit = 200 * g->n_nodes + 2000};
    MOEC_TRY(sweep(&s, &changed));
  }
  return NULL;
}

moec_status *moec_pass_simplify(moec_module *m, moec_pass_ctx *cx) {
  (void)cx;
  for (size_t i = 1; i < m->n_fns; i++)
    MOEC_TRY(moec_context(moec_simplify_graph(m->fns[i]), "@\"%s\"", moec_sym_str(m, m->fns[i]->name)));
  return NULL;
}
