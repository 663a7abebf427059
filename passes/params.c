/* Parameters: initializers behind transposes, stacks and concatenations become one record.
 *
 *   W0[I,H] ─ reshape [1,I,H] ┐
 *   W1[I,H] ─ reshape [1,I,H] ┼ concat(0) ──►  one parameter [E,I,H] with E pieces
 *   ...                       ┘
 *
 * A record's pieces say where its bytes lie in the source; loading, saving, gradients and optimizer state
 * share that one bijection, and nothing is copied at run time. A value is absorbed when it is made
 * from parameters alone by transpose, concat and reshapes that add or drop axes of size 1, and
 * when nothing else reads those parameters (else they would exist twice). A reshape at the end stays: it
 * costs nothing, and the record keeps the shape by which its source, and its gradient, are known. */
#include <string.h>

#include "passes/pass.h"

typedef struct absorber {
  moec_module *m;
  moec_graph *g;
  moec_param *made; /* by value: the record that the value is or became, {0}: none */
  bool *absorbed;   /* by record: its pieces are now another record's too */
} absorber;

static bool movable(moec_op op) {
  return op == MOEC_OP_TRANSPOSE || op == MOEC_OP_CONCAT || op == MOEC_OP_RESHAPE;
}

static void shape_of(const moec_module *m, moec_type t, int64_t *dims) {
  moec_type_info i = moec_type_get(m, t);
  for (uint32_t k = 0; k < i.rank; k++) moec_dim_is_const(m, i.dims[k], &dims[k]);
}

/* ---- moving the pieces of one record -------------------------------------------------------- */

static void transpose_pieces(moec_param_info *p, moec_ints perm) {
  for (uint32_t i = 0; i < p->n_pieces; i++) {
    moec_piece old = p->pieces[i];
    for (uint32_t k = 0; k < perm.n; k++) {
      p->pieces[i].start[k] = old.start[perm.v[k]];
      p->pieces[i].perm[k] = old.perm[perm.v[k]];
    }
  }
}

/* Maps each axis of the old shape that is not 1 to the next such axis of the new shape. False when
 * the two shapes differ in more than axes of size 1. */
static bool match_axes(uint32_t n_old, const int64_t *old, uint32_t n_new, const int64_t *now, uint32_t *map) {
  uint32_t k = 0;
  for (uint32_t i = 0; i < n_old; i++) {
    map[i] = UINT32_MAX;
    if (old[i] == 1) continue;
    while (k < n_new && now[k] == 1) k++;
    if (k == n_new || now[k] != old[i]) return false;
    map[i] = k++;
  }
  while (k < n_new && now[k] == 1) k++;
  return k == n_new;
}

/* A piece whose stored array has axes of size 1 dropped, and one added in front for each new axis. */
static bool reshape_piece(moec_piece *pc, const uint32_t *map, uint32_t n_old, uint32_t n_new) {
  moec_piece old = *pc;
  int64_t sizes[MOEC_MAX_RANK], starts[MOEC_MAX_RANK];
  uint32_t stored_of[MOEC_MAX_RANK]; /* by new axis: the old stored axis */
  for (uint32_t k = 0; k < n_new; k++) sizes[k] = 1, starts[k] = 0, stored_of[k] = UINT32_MAX;
  for (uint32_t i = 0; i < n_old; i++) {
    if (map[i] == UINT32_MAX) continue;
    sizes[map[i]] = old.shape[old.perm[i]], starts[map[i]] = old.start[i], stored_of[map[i]] = old.perm[i];
  }
  /* new stored order: new axes of size 1 first, then the old stored order */
  uint32_t n = 0;
  pc->rank = n_new;
  for (uint32_t k = 0; k < n_new; k++)
    if (stored_of[k] == UINT32_MAX) pc->shape[n] = 1, pc->perm[k] = n++;
  for (uint32_t s = 0; s < n_old; s++)
    for (uint32_t k = 0; k < n_new; k++)
      if (stored_of[k] == s) pc->shape[n] = sizes[k], pc->perm[k] = n++;
  for (uint32_t k = 0; k < n_new; k++) pc->start[k] = starts[k];
  return n == n_new;
}

static bool reshape_pieces(const absorber *a, moec_param_info *p, moec_type to) {
  int64_t old[MOEC_MAX_RANK], now[MOEC_MAX_RANK];
  uint32_t map[MOEC_MAX_RANK], n_old = moec_type_get(a->m, p->type).rank, n_new = moec_type_get(a->m, to).rank;
  shape_of(a->m, p->type, old);
  shape_of(a->m, to, now);
  if (!match_axes(n_old, old, n_new, now, map)) return false;
  for (uint32_t i = 0; i < p->n_pieces; i++)
    if (!reshape_piece(&p->pieces[i], map, n_old, n_new)) return false;
  if (p->shard_axis >= 0) { /* an axis of size 1 that went is not sharded */
    uint32_t to_axis = map[p->shard_axis];
    p->shard_axis = to_axis == UINT32_MAX ? -1 : (int32_t)to_axis;
  }
  return true;
}

/* ---- names -------------------------------------------------------------------------------- */

/* What two names of stacked parameters share: "layers.0.experts.0.w1", "layers.0.experts.1.w1"
 * give "layers.0.experts.*.w1". */
static moec_sym shared_name(moec_module *m, const char *a, const char *b) {
  size_t n = strlen(a), k = strlen(b), head = 0, tail = 0;
  while (head < n && head < k && a[head] == b[head]) head++;
  while (tail + head < n && tail + head < k && a[n - 1 - tail] == b[k - 1 - tail]) tail++;
  while (head && a[head - 1] != '.') head--;
  while (tail && a[n - tail] != '.') tail--;
  return moec_sym_make(m, moec_arena_printf(m->arena, "%.*s*%s", (int)head, a, a + n - tail));
}

/* ---- absorbing one node --------------------------------------------------------------------- */

static moec_param_info start_record(const absorber *a, moec_param id) {
  moec_param_info p = *moec_param_get(a->m, id);
  p.pieces = moec_arena_copy(a->m->arena, p.pieces, p.n_pieces * sizeof *p.pieces);
  return p;
}

/* Appends the pieces of |more| behind those of |p|, |at| along |axis|. */
static void append_pieces(absorber *a, moec_param_info *p, const moec_param_info *more, int64_t axis, int64_t at) {
  moec_piece *all = MOEC_NEW_ARRAY(a->m->arena, moec_piece, p->n_pieces + more->n_pieces);
  memcpy(all, p->pieces, p->n_pieces * sizeof *all);
  for (uint32_t i = 0; i < more->n_pieces; i++) {
    all[p->n_pieces + i] = more->pieces[i];
    all[p->n_pieces + i].start[axis] += at;
  }
  p->pieces = all;
  p->n_pieces += more->n_pieces;
}

static bool concat_records(absorber *a, moec_node n, moec_param_info *p) {
  int64_t axis = MOEC_ATTRS(a->g, n, CONCAT)->axis, dims[MOEC_MAX_RANK], at;
  shape_of(a->m, p->type, dims);
  at = dims[axis];
  for (uint32_t i = 1; i < moec_node_get(a->g, n)->n_in; i++) {
    const moec_param_info *q = moec_param_get(a->m, a->made[moec_in(a->g, n, i).i]);
    if (q->storage != p->storage || q->trainable != p->trainable) return false;
    append_pieces(a, p, q, axis, at);
    p->name = shared_name(a->m, moec_sym_str(a->m, p->name), moec_sym_str(a->m, q->name));
    shape_of(a->m, q->type, dims);
    at += dims[axis];
  }
  return true;
}

static bool absorb(absorber *a, moec_node n, moec_param_info *p) {
  moec_value y = moec_out(a->g, n, 0);
  for (uint32_t i = 0; i < moec_node_get(a->g, n)->n_in; i++) {
    moec_value x = moec_in(a->g, n, i);
    if (!a->made[x.i].i || moec_use_count(a->g, x) != 1) return false;
  }
  *p = start_record(a, a->made[moec_in(a->g, n, 0).i]);
  const char *name = moec_sym_str(a->m, moec_value_get(a->g, y)->name);
  bool ok = true;
  if (moec_op_of(a->g, n) == MOEC_OP_TRANSPOSE) {
    moec_ints perm = MOEC_ATTRS(a->g, n, TRANSPOSE)->perm;
    transpose_pieces(p, perm);
    for (uint32_t k = 0; p->shard_axis >= 0 && k < perm.n; k++)
      if (perm.v[k] == p->shard_axis) {
        p->shard_axis = (int32_t)k;
        break;
      }
  } else if (moec_op_of(a->g, n) == MOEC_OP_CONCAT) {
    ok = concat_records(a, n, p);
    if (strchr(name, '.')) /* a module's path: better than what the parts share */
      p->name = moec_value_get(a->g, y)->name;
  } else {
    ok = reshape_pieces(a, p, moec_value_get(a->g, y)->type);
  }
  p->type = moec_value_get(a->g, y)->type;
  for (uint32_t i = 0; ok && i < moec_node_get(a->g, n)->n_in; i++)
    a->absorbed[a->made[moec_in(a->g, n, i).i].i] = true;
  return ok;
}

/* Experts: the weights of grouped dots run over experts on axis 0. */
static void mark_experts(absorber *a) {
  for (uint32_t n = 1; n < a->g->n_nodes; n++) {
    if (a->g->nodes[n].op != MOEC_OP_MOE_GROUPED_DOT) continue;
    for (uint32_t i = 1; i < a->g->nodes[n].n_in; i += 2) { /* weights and bias */
      moec_value v = moec_in(a->g, (moec_node){n}, i);
      if (moec_def_op(a->g, v) != MOEC_OP_PARAM) continue;
      moec_param_info *p = moec_param_get(a->m, MOEC_ATTRS(a->g, moec_def(a->g, v), PARAM)->param);
      p->group = MOEC_GROUP_EXPERT;
      p->shard_axis = 0;
    }
  }
}

/* ---- the records that remain ---------------------------------------------------------------- */

/* Calls |visit| for every node of the module that is a parameter. */
static void each_param(absorber *a, void (*visit)(absorber *a, moec_node_info *n, void *user), void *user) {
  for (size_t f = 1; f < a->m->n_fns; f++)
    for (size_t n = 1; n < a->m->fns[f]->n_nodes; n++)
      if (a->m->fns[f]->nodes[n].op == MOEC_OP_PARAM) visit(a, &a->m->fns[f]->nodes[n], user);
}

static moec_param param_of(const moec_node_info *n) { return ((const moec_attrs_PARAM *)n->attrs)->param; }

static void mark_read(absorber *a, moec_node_info *n, void *read) {
  (void)a;
  ((bool *)read)[param_of(n).i] = true;
}

static void renumber(absorber *a, moec_node_info *n, void *now) {
  moec_attrs_PARAM attrs = {.param = ((const moec_param *)now)[param_of(n).i]};
  n->attrs = moec_arena_copy(a->m->arena, &attrs, sizeof attrs);
}

/* A record whose pieces went into another one and that nothing reads by itself exists no more. One that
 * nothing ever read stays: reports say that it is unused. */
static void drop_absorbed(absorber *a) {
  moec_module *m = a->m;
  bool *read = MOEC_NEW_ARRAY(m->arena, bool, m->n_params);
  moec_param *now = MOEC_NEW_ARRAY(m->arena, moec_param, m->n_params);
  uint32_t n = 1;
  each_param(a, mark_read, read);
  for (uint32_t i = 1; i < m->n_params; i++) {
    if (a->absorbed[i] && !read[i]) continue;
    m->params[n] = m->params[i];
    now[i].i = n++;
  }
  m->n_params = n;
  each_param(a, renumber, now);
}

typedef struct name_counts { uint32_t *n; size_t cap; } name_counts; /* by name; 0: no record has it */

static uint32_t *count_of(moec_arena *a, name_counts *c, moec_sym name) {
  c->n = moec_arena_grow(a, c->n, &c->cap, (size_t)name.i + 1, sizeof *c->n);
  return &c->n[name.i];
}

/* Users name parameters: to freeze them, in files of gradients. What two stacks share may be the same
 * ("mlp.*.weight"); later ones get "#2", "#3" ... in the order of records, which follows the graph. */
static void make_names_unique(moec_module *m) {
  name_counts c = {NULL, 0};
  for (size_t i = 1; i < m->n_params; i++) {
    moec_sym name = m->params[i].name;
    const char *shared = moec_sym_str(m, name);
    uint32_t k = *count_of(m->arena, &c, name);
    while (*count_of(m->arena, &c, name)) name = moec_sym_make(m, moec_arena_printf(m->arena, "%s#%u", shared, ++k));
    *count_of(m->arena, &c, m->params[i].name) = k ? k : 1;
    *count_of(m->arena, &c, name) = 1;
    m->params[i].name = name;
  }
}

moec_status *moec_pass_params(moec_module *m, moec_pass_ctx *cx) {
  (void)cx;
  moec_graph *g = moec_main(m);
  size_t n_nodes = g->n_nodes; /* each makes at most one record */
  absorber a = {m, g, MOEC_NEW_ARRAY(m->arena, moec_param, g->n_values),
                MOEC_NEW_ARRAY(m->arena, bool, m->n_params + n_nodes)};
  moec_build_uses(g);
  moec_param *node_record = MOEC_NEW_ARRAY(m->arena, moec_param, n_nodes);
  for (uint32_t n = 1; n < n_nodes; n++) {
    moec_param_info p;
    moec_value y = moec_out(g, (moec_node){n}, 0);
    if (g->nodes[n].op == MOEC_OP_PARAM) a.made[y.i] = param_of(&g->nodes[n]);
    if (!movable(g->nodes[n].op) || !absorb(&a, (moec_node){n}, &p)) continue;
    a.made[y.i] = node_record[n] = moec_param_add(m, &p);
  }
  for (uint32_t n = 1; n < n_nodes; n++) { /* intermediate ones lose their readers and go with compaction */
    if (!node_record[n].i) continue;
    if (g->nodes[n].op == MOEC_OP_RESHAPE) {
      a.absorbed[node_record[n].i] = true;
      continue;
    }
    moec_attrs_PARAM attrs = {.param = node_record[n]};
    moec_node fresh;
    g->loc = g->nodes[n].loc;
    MOEC_TRY(moec_add_node(g, MOEC_OP_PARAM, &attrs, 0, NULL, 1, &fresh));
    moec_replace_uses(g, moec_out(g, (moec_node){n}, 0), moec_out(g, fresh, 0));
  }
  moec_compact(g);
  drop_absorbed(&a);
  make_names_unique(m);
  mark_experts(&a);
  return NULL;
}
