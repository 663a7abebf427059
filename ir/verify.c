/* The verifier: every rule of docs/ir.md that can be checked on a module at rest. It runs after each
 * pass in every build, and on every parsed text: handles are not trusted. */
#include "ir/ir_internal.h"

#define BROKEN(...) moec_error(MOEC_INVALID_MODEL, __VA_ARGS__)

/* ---- handles: everything that later checks follow without asking ---------------------------- */

static moec_status *check_type(const moec_module *m, moec_type t) {
  moec_type_info i = moec_type_get(m, t);
  if (!i.dtype) return BROKEN("it has no type");
  for (uint32_t k = 0; k < i.rank; k++) {
    int64_t v = 0;
    if (!moec_dim_known(i.dims[k])) return BROKEN("the size of axis %u is unknown", k);
    if (moec_dim_is_const(m, i.dims[k], &v) && v < 0)
      return BROKEN("the size of axis %u is negative: %lld", k, (long long)v);
  }
  return NULL;
}

/* Defaults: of main only, and the value must be one of the type. */
static moec_status *check_default(const moec_graph *g, const moec_value_info *v) {
  uint64_t bytes = 0;
  moec_dtype t = moec_type_get(g->m, v->type).dtype;
  if (!v->has_default) return NULL;
  if (!moec_is_entry(g)) return BROKEN("only inputs of entry functions may have a default");
  moec_store_f64(t, &bytes, 0, v->dflt);
  if (moec_load_f64(t, &bytes, 0) != v->dflt)
    return BROKEN("its default %g is no %s", v->dflt, moec_dtype_get(t)->text);
  return NULL;
}

static moec_status *check_input(const moec_graph *g, const moec_value_info *v) {
  MOEC_TRY(check_type(g->m, v->type));
  return check_default(g, v);
}

static moec_status *check_tables(const moec_graph *g) {
  if (g->n_values < 1 || g->n_nodes < 1) return BROKEN("value 0 and node 0 are missing");
  for (size_t i = 0; i < g->n_inputs; i++) {
    moec_value v = g->inputs[i];
    if (v.i == 0 || v.i >= g->n_values || g->values[v.i].def.i || g->values[v.i].slot != i)
      return BROKEN("input %zu is no input value", i);
    MOEC_TRY(
        moec_context(check_input(g, &g->values[v.i]), "input %zu \"%s\"", i, moec_sym_str(g->m, g->values[v.i].name)));
  }
  for (size_t i = 0; i < g->n_outputs; i++)
    if (g->outputs[i].i == 0 || g->outputs[i].i >= g->n_values)
      return BROKEN("output %zu \"%s\" is no value", i, moec_sym_str(g->m, g->output_names[i]));
  return NULL;
}

/* The operand or result ranges of a node lie in the edge array and hold values of the graph. */
static moec_status *check_edges(const moec_graph *g, uint32_t n) {
  const moec_node_info *p = &g->nodes[n];
  if (p->in > g->n_edges || p->n_in > g->n_edges - p->in || p->out > g->n_edges || p->n_out > g->n_edges - p->out)
    return BROKEN("edges out of range");
  for (uint32_t i = 0; i < p->n_in; i++)
    if (g->edges[p->in + i].i >= g->n_values) return BROKEN("operand %u is no value", i);
  for (uint32_t i = 0; i < p->n_out; i++) {
    moec_value v = g->edges[p->out + i];
    if (v.i == 0 || v.i >= g->n_values || g->values[v.i].def.i != n || g->values[v.i].slot != i)
      return BROKEN("result %u does not point back", i);
  }
  return NULL;
}

/* Functions and parameters that attributes name. */
static moec_status *check_attrs(const moec_graph *g, const moec_node_info *p, const moec_op_info *info) {
  if (!p->attrs && info->n_attrs) return BROKEN("attributes are missing");
  for (uint32_t i = 0; i < info->n_attrs; i++) {
    const moec_attr_info *a = &info->attrs[i];
    const void *at = (const char *)p->attrs + a->offset;
    uint32_t handle = a->kind == MOEC_ATTR_FN      ? ((const moec_fn *)at)->i
                      : a->kind == MOEC_ATTR_PARAM ? ((const moec_param *)at)->i
                                                   : 1;
    size_t n = a->kind == MOEC_ATTR_FN ? g->m->n_fns : a->kind == MOEC_ATTR_PARAM ? g->m->n_params : 2;
    if (handle == 0 || handle >= n) return BROKEN("%s: expected a number in 1..%zu, got %u", a->name, n - 1, handle);
  }
  return NULL;
}

static moec_status *check_handles(const moec_graph *g, uint32_t n) {
  const moec_node_info *p = &g->nodes[n];
  const moec_op_info *info = moec_op_get(p->op);
  if (!info->infer) return BROKEN("there is no op %d", (int)p->op);
  MOEC_TRY(check_edges(g, n));
  if (p->n_in < info->min_in || p->n_in > info->max_in)
    return BROKEN("expected %u to %u operands, got %u", info->min_in, info->max_in, p->n_in);
  if (p->n_out < info->min_out || p->n_out > info->max_out)
    return BROKEN("expected %u to %u results, got %u", info->min_out, info->max_out, p->n_out);
  return check_attrs(g, p, info);
}

/* ---- types -------------------------------------------------------------------------------- */

static moec_status *wrong_type(const moec_module *m, uint32_t i, moec_type want, moec_type have) {
  moec_buf b = {0};
  moec_type_print(&b, m, want);
  moec_buf_puts(&b, ", got ");
  moec_type_print(&b, m, have);
  moec_status *s = BROKEN("result %u: expected %s", i, moec_buf_str(&b));
  moec_buf_fini(&b);
  return s;
}

static moec_status *check_types(moec_graph *g, uint32_t n) {
  const moec_node_info *p = &g->nodes[n];
  const moec_op_info *info = moec_op_get(p->op);
  moec_arena *a = g->m->arena;
  moec_type small[16], *in = p->n_in <= 16 ? small : MOEC_NEW_ARRAY(a, moec_type, p->n_in);
  moec_type some[16], *out = p->n_out <= 16 ? some : MOEC_NEW_ARRAY(a, moec_type, p->n_out);
  for (uint32_t i = 0; i < p->n_in; i++) {
    in[i] = g->values[g->edges[p->in + i].i].type;
    if (i < info->min_in && !in[i].i) return BROKEN("operand %u is absent", i);
  }
  MOEC_TRY(moec_verify_op(g->m, p->op, p->attrs, p->n_in, in));
  MOEC_TRY(info->infer(g->m, p->attrs, p->n_in, in, p->n_out, out));
  for (uint32_t i = 0; i < p->n_out; i++) {
    moec_type have = g->values[g->edges[p->out + i].i].type;
    if (!moec_type_get(g->m, out[i]).dtype) return BROKEN("result %u: expected an element type, got none", i);
    if (have.i != out[i].i) return wrong_type(g->m, i, out[i], have);
    MOEC_TRY(moec_context(check_type(g->m, have), "result %u", i));
  }
  return NULL;
}

/* ---- order -------------------------------------------------------------------------------- */

/* A node that waits for itself: from any waiting one, as many steps back as there are nodes end on a cycle. */
static moec_status *name_cycle(const moec_graph *g, const uint32_t *waits, uint32_t n) {
  for (size_t steps = 0; steps < g->n_nodes; steps++) {
    const moec_node_info *p = &g->nodes[n];
    for (uint32_t i = 0; i < p->n_in; i++) {
      uint32_t d = g->values[g->edges[p->in + i].i].def.i;
      if (!d || !waits[d]) continue;
      n = d;
      break;
    }
  }
  return BROKEN("node %u \"%s\" (%s) depends on itself", n, moec_sym_str(g->m, g->nodes[n].loc),
                moec_op_get(g->nodes[n].op)->text);
}

/* Kahn's algorithm: a node left over is on, or behind, a cycle. */
static moec_status *check_acyclic(moec_graph *g) {
  moec_build_uses(g);
  moec_arena *a = g->m->arena;
  uint32_t *waits = MOEC_NEW_ARRAY(a, uint32_t, g->n_nodes), *queue = MOEC_NEW_ARRAY(a, uint32_t, g->n_nodes);
  size_t n_queue = 0;
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    if (!g->nodes[n].op) continue;
    for (uint32_t i = 0; i < g->nodes[n].n_in; i++) waits[n] += g->values[g->edges[g->nodes[n].in + i].i].def.i != 0;
    if (!waits[n]) queue[n_queue++] = n;
  }
  for (size_t at = 0; at < n_queue; at++) {
    const moec_node_info *p = &g->nodes[queue[at]];
    for (uint32_t i = 0; i < p->n_out; i++) {
      uint32_t v = g->edges[p->out + i].i;
      for (uint32_t u = g->use_start[v]; u < g->use_start[v + 1]; u++)
        if (--waits[g->use_nodes[u].i] == 0) queue[n_queue++] = g->use_nodes[u].i;
    }
  }
  for (uint32_t n = 1; n < g->n_nodes; n++)
    if (waits[n]) return name_cycle(g, waits, n);
  return NULL;
}

/* Values read by a live node or an output must be inputs or come from a live node. */
static moec_status *check_defined(const moec_graph *g, moec_value v) {
  moec_node d = g->values[v.i].def;
  if (d.i && (d.i >= g->n_nodes || !g->nodes[d.i].op)) return BROKEN("value %%%u has no node", v.i);
  if (v.i && !d.i && (g->values[v.i].slot >= g->n_inputs || g->inputs[g->values[v.i].slot].i != v.i))
    return BROKEN("value %%%u is neither an input nor a result", v.i);
  return NULL;
}

typedef moec_status *(*node_check)(moec_graph *g, uint32_t n);

static moec_status *check_operands(moec_graph *g, uint32_t n) {
  MOEC_TRY(check_handles(g, n));
  for (uint32_t i = 0; i < g->nodes[n].n_in; i++) MOEC_TRY(check_defined(g, g->edges[g->nodes[n].in + i]));
  return NULL;
}

static moec_status *check_nodes(moec_graph *g, node_check check) {
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    if (!g->nodes[n].op) continue;
    moec_status *s = check(g, n);
    if (s)
      return moec_context(s, "node %u \"%s\" (%s)", n, moec_sym_str(g->m, g->nodes[n].loc),
                          moec_op_get(g->nodes[n].op)->text);
  }
  return NULL;
}

static moec_status *check_links(moec_graph *g) {
  MOEC_TRY(check_tables(g));
  MOEC_TRY(check_nodes(g, check_operands));
  for (size_t i = 0; i < g->n_outputs; i++)
    MOEC_TRY(
        moec_context(check_defined(g, g->outputs[i]), "output %zu \"%s\"", i, moec_sym_str(g->m, g->output_names[i])));
  return NULL;
}

static moec_status *check_meaning(moec_graph *g) {
  MOEC_TRY(check_acyclic(g));
  return check_nodes(g, check_types);
}

/* ---- calls among functions ------------------------------------------------------------------ */

typedef struct walk {
  uint32_t fn;
  uint32_t node; /* next node to look at */
} walk;

/* Functions that |n| of |g| names, into out; how many. */
static uint32_t callees(const moec_graph *g, uint32_t n, uint32_t out[MOEC_MAX_ATTRS]) {
  const moec_op_info *info = moec_op_get(g->nodes[n].op);
  uint32_t count = 0;
  for (uint32_t i = 0; i < info->n_attrs; i++)
    if (info->attrs[i].kind == MOEC_ATTR_FN)
      out[count++] = ((const moec_fn *)(const void *)((const char *)g->nodes[n].attrs + info->attrs[i].offset))->i;
  return count;
}

/* Depth-first with an explicit stack: a function met while it is open calls itself. */
static moec_status *check_recursion(moec_module *m) {
  enum { NEW, OPEN, DONE };
  uint8_t *state = MOEC_NEW_ARRAY(m->arena, uint8_t, m->n_fns);
  walk *stack = MOEC_NEW_ARRAY(m->arena, walk, m->n_fns * MOEC_MAX_ATTRS + 1);
  for (uint32_t root = 1; root < m->n_fns; root++) {
    size_t n = 0;
    if (state[root] == NEW) stack[n++] = (walk){root, 1}, state[root] = OPEN;
    while (n) {
      walk *w = &stack[n - 1];
      const moec_graph *g = m->fns[w->fn];
      uint32_t next[MOEC_MAX_ATTRS], count = 0, opened = 0;
      if (w->node < g->n_nodes) count = callees(g, w->node, next);
      for (uint32_t i = 0; i < count; i++) {
        if (next[i] == 0 || next[i] >= m->n_fns) return BROKEN("a call names no function");
        if (state[next[i]] == OPEN)
          return BROKEN("function @\"%s\" calls itself", moec_sym_str(m, m->fns[next[i]]->name));
        if (state[next[i]] == NEW && !opened) stack[n] = (walk){next[i], 1}, state[next[i]] = OPEN, opened = 1;
      }
      if (opened) n++;
      else if (++w->node >= g->n_nodes) state[w->fn] = DONE, n--;
    }
  }
  return NULL;
}

/* ---- parameter records ---------------------------------------------------------------------- */

/* A piece lies inside of its parameter, of |dims|, and says where each of its axes goes. */
static moec_status *check_piece(const moec_module *m, const moec_param_info *param, const moec_piece *p, uint32_t rank,
                                const int64_t *dims) {
  uint32_t seen = 0;
  if (p->rank != rank) return BROKEN("expected rank %u, got %u", rank, p->rank);
  if (!p->dtype) return BROKEN("expected an element type, got none");
  if (p->dtype != param->storage) /* loading copies elements as they are */
    return BROKEN("expected %s as the parameter is stored, got %s", moec_dtype_get(param->storage)->text,
                  moec_dtype_get(p->dtype)->text);
  if (p->file != UINT32_MAX && p->file >= m->n_files) return BROKEN("there is no file %u", p->file);
  for (uint32_t i = 0; i < rank; i++) {
    uint32_t from = p->perm[i];
    if (from >= rank || seen >> from & 1) return BROKEN("perm is no permutation");
    seen |= 1u << from;
    if (p->shape[from] < 0 || p->start[i] < 0 || p->start[i] > dims[i] || p->shape[from] > dims[i] - p->start[i])
      return BROKEN("axis %u: %lld elements from %lld on are not inside of %lld", i, (long long)p->shape[from],
                    (long long)p->start[i], (long long)dims[i]);
  }
  return NULL;
}

static moec_status *check_param(const moec_module *m, const moec_param_info *p) {
  moec_type_info t = moec_type_get(m, p->type);
  int64_t dims[MOEC_MAX_RANK];
  size_t bytes;
  if (!t.dtype || !p->storage || !p->compute) return BROKEN("expected element types, got none");
  for (uint32_t i = 0; i < t.rank; i++)
    if (!moec_dim_is_const(m, t.dims[i], &dims[i])) return BROKEN("size of axis %u is not constant", i);
  MOEC_TRY(moec_shape_bytes(t.dtype, t.rank, dims, &bytes));
  if (p->shard_axis < -1 || p->shard_axis >= (int32_t)t.rank)
    return BROKEN("expected shard_axis in -1..%d, got %d", (int)t.rank - 1, (int)p->shard_axis);
  for (uint32_t i = 0; i < p->n_pieces; i++)
    MOEC_TRY(moec_context(check_piece(m, p, &p->pieces[i], t.rank, dims), "piece %u", i));
  return NULL;
}

/* ---- the module --------------------------------------------------------------------------- */

static moec_status *check_fns(moec_module *m, moec_status *(*check)(moec_graph *g)) {
  for (size_t i = 1; i < m->n_fns; i++)
    MOEC_TRY(moec_context(check(m->fns[i]), "function @\"%s\"", moec_sym_str(m, m->fns[i]->name)));
  return NULL;
}

moec_status *moec_verify(moec_module *m) {
  if (m->n_fns < 2) return BROKEN("the module has no function");
  for (size_t i = 1; i < m->n_params; i++)
    MOEC_TRY(moec_context(check_param(m, &m->params[i]), "parameter @\"%s\"", moec_sym_str(m, m->params[i].name)));
  MOEC_TRY(check_fns(m, check_links)); /* of all functions before any is looked into by its callers */
  MOEC_TRY(check_recursion(m));
  return check_fns(m, check_meaning);
}
