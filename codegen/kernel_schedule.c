/* From result expressions to statements. What depends on fewer variables than the loop it is needed
 * in is computed in front of that loop; a reduction becomes a loop at the outermost place that
 * binds its variables. Names and row temporaries last until the end of the loop they were made in. */
#include "codegen/kernel_build.h"

typedef enum action { STORES, ACCUMULATE, RESET, GATHER, FILL } action;

/* What happens inside loops over |vars|. */
typedef struct nest {
  uint32_t n_vars;
  uint32_t vars[MOEC_MAX_RANK + 2];
  action act;
  const moec_kstore *stores; /* STORES */
  size_t n_stores;
  moec_kx *accs; /* ACCUMULATE: these reductions; the others work on accs[0] */
  uint32_t n_accs;
  uint32_t temp; /* RESET, GATHER, FILL */
  bool lasting;  /* a sum over the rows of a chunk: known from here to the end of the chunk */
} nest;

typedef struct undo {
  uint32_t e;
  bool temp;
} undo;

typedef struct scheduler {
  moec_kpool *p;
  moec_kernel *k;
  moec_kuses uses;
  bool *named;
  uint32_t *temp; /* by expression: 1 + the temporary that holds it */
  undo *undo;
  size_t n_undo, cap_undo;
  uint32_t *seen, stamp;
  moec_kstmts *out;
  uint32_t var;   /* of the innermost open loop */
  uint64_t outer; /* variables bound outside of it */
  moec_dim trips; /* how often the current statement runs */
  moec_dim stack; /* bytes of temporaries on the stack */
} scheduler;

static void emit_nests(scheduler *s, const nest *nests, size_t n, uint32_t depth, uint64_t bound);
static void need(scheduler *s, moec_kx e, uint64_t bound, bool name);

static bool is_leaf(const moec_kx_node *n) {
  return n->kind == MOEC_KX_VAR || n->kind == MOEC_KX_INT || n->kind == MOEC_KX_NUM ||
         (n->kind == MOEC_KX_SUM && n->n_args == 0);
}

/* ---- bookkeeping ---------------------------------------------------------------------------- */

static void set_named(scheduler *s, moec_kx e) {
  s->named[e.i] = true;
  MOEC_PUSH(s->p->arena, s->undo, s->n_undo, s->cap_undo, ((undo){e.i, false}));
}

static void set_temp(scheduler *s, moec_kx e, uint32_t temp) {
  s->temp[e.i] = temp + 1;
  MOEC_PUSH(s->p->arena, s->undo, s->n_undo, s->cap_undo, ((undo){e.i, true}));
}

static void forget(scheduler *s, size_t mark) {
  for (; s->n_undo > mark; s->n_undo--) {
    const undo *u = &s->undo[s->n_undo - 1];
    if (u->temp)
      s->temp[u->e] = 0;
    else
      s->named[u->e] = false;
  }
}

/* Float operations printed in place for |e|. */
static int64_t count_ops(const scheduler *s, moec_kx e, int depth) {
  const moec_kx_node *n = moec_kx_get(s->p, e);
  int64_t ops = n->kind == MOEC_KX_APPLY && moec_dtype_is_float(n->dtype) && n->op != MOEC_OP_CAST;
  for (uint32_t i = 0; i < n->n_args && depth < 64; i++)
    if (!s->named[n->args[i].i] && n->kind != MOEC_KX_REDUCE)
      ops += count_ops(s, n->args[i], depth + 1);
  return ops;
}

static void count(scheduler *s, int64_t ops) {
  moec_module *m = s->p->m;
  s->k->flops = moec_dim_add(m, s->k->flops, moec_dim_mul(m, s->trips, moec_dim_const(m, ops)));
}

static void push(scheduler *s, moec_kstmt st) {
  MOEC_PUSH(s->p->arena, s->out->v, s->out->n, s->out->cap, st);
}

static moec_dim extent(const moec_kpool *p, uint32_t var) {
  const moec_kvar *v = &p->vars[var];
  if (v->kind == MOEC_KVAR_LANE) return moec_dim_const(p->m, MOEC_KERNEL_LANES);
  return moec_dim_sub(p->m, v->hi, v->lo);
}

/* A new temporary for values of |e| over the variables |vars|. */
static uint32_t new_temp(scheduler *s, moec_kx e, uint64_t vars) {
  moec_module *m = s->p->m;
  moec_ktemp t = {.dtype = moec_kx_get(s->p, e)->dtype, .count = moec_dim_const(m, 1)};
  for (uint32_t v = 0; v < s->p->n_vars && t.n_vars < 8; v++) {
    if (!(vars >> v & 1)) continue;
    t.vars[t.n_vars++] = v;
    t.count = moec_dim_mul(m, t.count, extent(s->p, v));
  }
  int64_t bytes, stack;
  moec_dim size =
      moec_dim_mul(m, t.count, moec_dim_const(m, (int64_t)moec_dtype_get(t.dtype)->bytes));
  moec_dim total = moec_dim_add(m, s->stack, size);
  t.on_stack =
      moec_dim_is_const(m, size, &bytes) && moec_dim_is_const(m, total, &stack) && stack <= 65536;
  if (t.on_stack) {
    s->stack = total;
  } else { /* at a multiple of 64 bytes */
    moec_dim line = moec_dim_const(m, 64);
    t.offset = s->k->scratch;
    s->k->scratch =
        moec_dim_add(m, t.offset, moec_dim_mul(m, moec_dim_ceildiv(m, size, line), line));
  }
  MOEC_PUSH(s->p->arena, s->k->temps, s->k->n_temps, s->k->cap_temps, t);
  return (uint32_t)s->k->n_temps - 1;
}

/* ---- reductions ----------------------------------------------------------------------------- */

typedef struct stride_search {
  moec_kpool *p;
  moec_kx var, own;
  bool *seen, along, along_own;
} stride_search;

/* Whether some load under |e| walks along the variable, or along the reduction's own. */
static void strides(stride_search *w, moec_kx e) {
  moec_kpool *p = w->p;
  moec_kx_node n = *moec_kx_get(p, e);
  if (w->seen[e.i] || !(n.vars & moec_kx_get(p, w->own)->vars)) return;
  w->seen[e.i] = true;
  if (n.kind == MOEC_KX_LOAD) {
    w->along = w->along || moec_dim_is(p->m, moec_kx_coeff(p, n.args[0], w->var), 1);
    w->along_own = w->along_own || moec_dim_is(p->m, moec_kx_coeff(p, n.args[0], w->own), 1);
  }
  for (uint32_t i = 0; i < n.n_args; i++) strides(w, n.args[i]);
}

static moec_kx var_node(moec_kpool *p, uint32_t var) {
  moec_kvar v = p->vars[var];
  return moec_kx_var(p, v.kind, v.lo, v.hi, v.copy);
}

bool moec_kx_strided(moec_kpool *p, moec_kx e, uint32_t var) {
  moec_kx body = moec_kx_get(p, e)->args[0];
  stride_search w = {.p = p, .var = var_node(p, var), .own = var_node(p, moec_kx_get(p, e)->id)};
  w.seen = MOEC_NEW_ARRAY(p->arena, bool, p->n);
  strides(&w, body);
  return w.along && !w.along_own;
}

/* A loop in place: reductions over the same variable that don't feed each other share it. */
static void reduce_here(scheduler *s, moec_kx e, uint64_t bound) {
  const moec_kx_node *n = moec_kx_get(s->p, e);
  nest loop = {.n_vars = 1, .vars = {n->id}, .act = ACCUMULATE};
  loop.accs = MOEC_NEW_ARRAY(s->p->arena, moec_kx, s->uses.n_reduces + 1);
  loop.accs[loop.n_accs++] = e;
  for (size_t i = 0; i < s->uses.n_reduces; i++) {
    moec_kx r = s->uses.reduces[i];
    const moec_kx_node *peer = moec_kx_get(s->p, r);
    if (peer->id == n->id && peer->level == n->level && !(peer->vars & ~bound) &&
        !moec_kx_eq(r, e) && !s->named[r.i] && !s->temp[r.i])
      loop.accs[loop.n_accs++] = r;
  }
  emit_nests(s, &loop, 1, 0, bound);
  for (uint32_t i = 0; i < loop.n_accs; i++) set_named(s, loop.accs[i]);
}

/* Computes |e| for all values of |over| into a temporary, in front of a loop. */
static void materialise(scheduler *s, moec_kx e, uint64_t over, uint64_t bound) {
  moec_kpool *p = s->p;
  uint32_t temp = new_temp(s, e, over);
  moec_ktemp t = s->k->temps[temp];
  moec_kx_node n = *moec_kx_get(p, e);
  nest fill = {.n_vars = t.n_vars, .act = FILL, .accs = &e, .n_accs = 1, .temp = temp};
  for (uint32_t i = 0; i < t.n_vars; i++) fill.vars[i] = t.vars[i];
  if (n.kind == MOEC_KX_REDUCE && moec_kx_strided(p, e, t.vars[t.n_vars - 1])) {
    fill.act = RESET;
    emit_nests(s, &fill, 1, 0, bound);
    fill.act = GATHER;
    for (uint32_t i = t.n_vars; i > 0; i--) fill.vars[i] = fill.vars[i - 1];
    fill.vars[0] = n.id;
    fill.n_vars++;
  }
  emit_nests(s, &fill, 1, 0, bound);
  set_temp(s, e, temp);
}

/* ---- names ---------------------------------------------------------------------------------- */

/* Makes |e| printable where the variables |bound| are: names what has to have a name. */
static void need(scheduler *s, moec_kx e, uint64_t bound, bool name) {
  if (!e.i || s->named[e.i]) return;
  moec_kx_node n = *moec_kx_get(s->p, e);
  if (is_leaf(&n)) return;
  if (s->temp[e.i]) {
    push(s, (moec_kstmt){.kind = MOEC_KSTMT_RECALL, .e = e, .id = s->temp[e.i] - 1});
    set_named(s, e);
    return;
  }
  if (n.kind == MOEC_KX_REDUCE) {
    reduce_here(s, e, bound);
    return;
  }
  for (uint32_t i = 0; i < n.n_args; i++) need(s, n.args[i], bound, s->uses.count[n.args[i].i] > 1);
  bool save = s->uses.keep[e.i] && (n.vars >> s->var & 1) &&
              !(n.vars & ~(s->outer | UINT64_C(1) << s->var));
  if ((!name && !save) || n.kind == MOEC_KX_SUM) return;
  count(s, count_ops(s, e, 0));
  push(s, (moec_kstmt){.kind = MOEC_KSTMT_LET, .e = e});
  set_named(s, e);
  if (!save) return;
  uint32_t temp = new_temp(s, e, UINT64_C(1) << s->var);
  push(s, (moec_kstmt){.kind = MOEC_KSTMT_SAVE, .e = e, .id = temp});
}

/* In front of the loop over |var|: computes what doesn't depend on it. */
static void hoist(scheduler *s, moec_kx e, uint64_t bound, uint32_t var, uint32_t stamp) {
  if (!e.i || s->named[e.i] || s->temp[e.i] || s->seen[e.i] == stamp) return;
  s->seen[e.i] = stamp;
  moec_kx_node n = *moec_kx_get(s->p, e);
  uint64_t extra = n.vars & ~bound;
  if (is_leaf(&n)) return;
  if (!extra) {
    need(s, e, bound, true);
    return;
  }
  /* needed by loops inside this one, each time the same */
  bool other = !(extra >> var & 1) && !moec_dim_is(s->p->m, extent(s->p, var), 1);
  bool stored = other && (n.kind == MOEC_KX_REDUCE || n.cost >= MOEC_KX_COSTLY);
  if (!stored)
    for (uint32_t i = 0; i < n.n_args; i++) hoist(s, n.args[i], bound, var, stamp);
  if (n.kind == MOEC_KX_REDUCE && extra == UINT64_C(1) << var)
    stored = moec_kx_strided(s->p, e, var);
  if (stored) materialise(s, e, extra, bound);
}

/* ---- loops ---------------------------------------------------------------------------------- */

static void hoist_roots(scheduler *s, const nest *n, uint64_t bound, uint32_t var, uint32_t stamp) {
  for (size_t i = 0; i < n->n_stores; i++) {
    hoist(s, n->stores[i].index, bound, var, stamp);
    hoist(s, n->stores[i].value, bound, var, stamp);
  }
  for (uint32_t i = 0; i < n->n_accs && n->act != RESET; i++) {
    moec_kx_node r = *moec_kx_get(s->p, n->accs[i]);
    if (n->act != FILL)
      hoist(s, r.args[0], bound, var, stamp);
    else
      for (uint32_t k = 0; k < r.n_args; k++) hoist(s, r.args[k], bound, var, stamp);
  }
}

/* The statements inside all loops of |n|. */
static void innermost(scheduler *s, const nest *n, uint64_t bound) {
  for (size_t i = 0; i < n->n_stores; i++) {
    need(s, n->stores[i].index, bound, false);
    need(s, n->stores[i].value, bound, s->uses.count[n->stores[i].value.i] > 1);
    count(s, count_ops(s, n->stores[i].value, 0));
    push(s, (moec_kstmt){.kind = MOEC_KSTMT_STORE,
                         .e = n->stores[i].value,
                         .index = n->stores[i].index,
                         .id = n->stores[i].buffer});
  }
  for (uint32_t i = 0; i < n->n_accs; i++) {
    moec_kx e = n->accs[i], x = moec_kx_get(s->p, e)->args[0];
    if (n->act == FILL) need(s, e, bound, true);
    if (n->act == ACCUMULATE || n->act == GATHER) {
      need(s, x, bound, false);
      count(s, count_ops(s, x, 0) + moec_dtype_is_float(moec_kx_get(s->p, e)->dtype));
    }
    moec_kstmt_kind kind = n->act == FILL    ? MOEC_KSTMT_SAVE
                           : n->act == RESET ? MOEC_KSTMT_RESET
                                             : MOEC_KSTMT_GATHER;
    if (n->act != ACCUMULATE) push(s, (moec_kstmt){.kind = kind, .e = e, .id = n->temp});
  }
}

static bool has_loop(const moec_kstmts *body) {
  for (size_t i = 0; i < body->n; i++)
    if (body->v[i].kind == MOEC_KSTMT_LOOP) return true;
  return false;
}

static moec_dim trip_count(const scheduler *s, uint32_t var) {
  const moec_kvar *v = &s->p->vars[var];
  /* the block counts its lanes; the rows of all chunks are counted at once */
  if (v->kind == MOEC_KVAR_LANE || v->kind == MOEC_KVAR_CHUNK) return moec_dim_const(s->p->m, 1);
  return moec_dim_sub(s->p->m, v->hi, v->lo);
}

/* The reductions that the loop over |var| around the stores of |nests| computes as well. */
static nest joining(scheduler *s, const nest *nests, size_t n, uint32_t depth, uint64_t bound) {
  nest r = {.n_vars = depth + 1, .act = ACCUMULATE};
  uint32_t var = nests[0].vars[depth];
  r.accs = MOEC_NEW_ARRAY(s->p->arena, moec_kx, s->uses.n_reduces + 1);
  for (size_t i = 0; i < n; i++)
    if (nests[i].act != STORES || nests[i].n_vars != depth + 1) return r;
  for (size_t i = 0; i < s->uses.n_reduces; i++) {
    moec_kx e = s->uses.reduces[i];
    const moec_kx_node *k = moec_kx_get(s->p, e);
    if (s->uses.joins[e.i] && k->id == var && !(k->vars & ~bound) && !s->named[e.i] && !s->temp[e.i])
      r.accs[r.n_accs++] = e;
  }
  return r;
}

static void emit_loop(scheduler *s, const nest *nests, size_t n, uint32_t depth, uint64_t bound) {
  uint32_t var = nests[0].vars[depth], stamp = ++s->stamp;
  for (size_t i = 0; i < n; i++) hoist_roots(s, &nests[i], bound, var, stamp);
  nest joined = joining(s, nests, n, depth, bound);
  hoist_roots(s, &joined, bound, var, stamp);
  moec_kstmt loop = {.kind = MOEC_KSTMT_LOOP, .id = var, .accs = joined.accs, .n_accs = joined.n_accs};
  for (size_t i = 0; i < n; i++)
    if (nests[i].act == ACCUMULATE && nests[i].n_vars == depth + 1)
      loop.accs = nests[i].accs, loop.n_accs = nests[i].n_accs;
  scheduler outside = *s;
  s->out = &loop.body, s->var = var, s->outer = bound;
  s->trips = moec_dim_mul(s->p->m, s->trips, trip_count(s, var));
  emit_nests(s, nests, n, depth + 1, bound | UINT64_C(1) << var);
  innermost(s, &joined, bound | UINT64_C(1) << var);
  forget(s, outside.n_undo);
  s->out = outside.out, s->var = outside.var, s->outer = outside.outer, s->trips = outside.trips;
  loop.simd = !has_loop(&loop.body);
  push(s, loop);
  for (uint32_t i = 0; i < joined.n_accs; i++) set_named(s, joined.accs[i]);
  for (size_t i = 0; i < loop.body.n;
       i++) /* what the loop kept is there for the loops that follow */
    if (loop.body.v[i].kind == MOEC_KSTMT_SAVE && nests[0].act != FILL)
      set_temp(s, loop.body.v[i].e, loop.body.v[i].id);
}

/* The sums of |n|, whose loops have been emitted, can be read now. */
static void keep_sums(scheduler *s, const nest *n) {
  for (uint32_t i = 0; i < n->n_accs && n->lasting; i++) {
    if (n->act == RESET) set_temp(s, n->accs[i], n->temp);
    else set_named(s, n->accs[i]);
  }
}

/* Loops first: they may compute what single elements are waiting for. */
static void emit_nests(scheduler *s, const nest *nests, size_t n, uint32_t depth, uint64_t bound) {
  for (size_t i = 0, j; i < n; i = j) {
    j = i + 1;
    if (nests[i].n_vars == depth) {
      if (nests[i].act != STORES) innermost(s, &nests[i], bound);
      continue;
    }
    while (j < n && nests[j].n_vars > depth && nests[j].vars[depth] == nests[i].vars[depth]) j++;
    emit_loop(s, nests + i, j - i, depth, bound);
    for (size_t k = i; k < j && depth == 1; k++) keep_sums(s, &nests[k]);
  }
  for (size_t i = 0; i < n; i++)
    if (nests[i].n_vars == depth && nests[i].act == STORES) innermost(s, &nests[i], bound);
}

/* ---- sums over the rows of a chunk ----------------------------------------------------------- */

/* Those of |from|, each once, and which of their loops they depend on. */
typedef struct sums {
  moec_kx *e;
  uint64_t *vars;
  uint32_t n;
} sums;

static sums find_sums(moec_kpool *p, const moec_knest *from, size_t n_nests) {
  size_t n = 0;
  for (size_t i = 0; i < n_nests; i++) n += from[i].n_stores;
  sums r = {MOEC_NEW_ARRAY(p->arena, moec_kx, n + 1), MOEC_NEW_ARRAY(p->arena, uint64_t, n + 1), 0};
  for (size_t i = 0; i < n_nests; i++)
    for (size_t k = 0; k < from[i].n_stores; k++) {
      uint64_t columns = 0;
      uint32_t at = 0;
      moec_kx e = from[i].stores[k].value;
      if (!from[i].stores[k].of_chunk) continue;
      while (at < r.n && !moec_kx_eq(r.e[at], e)) at++;
      if (at < r.n) continue;
      for (uint32_t v = 0; v < from[i].n_vars; v++) columns |= UINT64_C(1) << from[i].vars[v];
      r.e[r.n] = e;
      r.vars[r.n++] = columns & moec_kx_get(p, e)->vars;
    }
  return r;
}

static nest begin(uint32_t n, const uint32_t *vars, action act) {
  nest r = {.act = act, .n_vars = n};
  for (uint32_t i = 0; i < n; i++) r.vars[i] = vars[i];
  return r;
}

/* Appends the loops of |from| in |columns| that some nest has. */
static void add_columns(nest *to, const moec_knest *from, uint64_t columns) {
  for (uint32_t v = 0; v < from->n_vars; v++)
    if (columns >> from->vars[v] & 1) to->vars[to->n_vars++] = from->vars[v];
}

static bool has_sum(const moec_knest *from, moec_kx e) {
  for (size_t k = 0; k < from->n_stores; k++)
    if (from->stores[k].of_chunk && moec_kx_eq(from->stores[k].value, e)) return true;
  return false;
}

/* The stores of |from| that are sums over rows, or those that are not. */
static void select_stores(moec_kpool *p, nest *to, const moec_knest *from, bool of_chunk) {
  moec_kstore *v = MOEC_NEW_ARRAY(p->arena, moec_kstore, from->n_stores + 1);
  for (size_t k = 0; k < from->n_stores; k++)
    if (from->stores[k].of_chunk == of_chunk) v[to->n_stores++] = from->stores[k];
  to->stores = v;
}

/* For each chunk: an accumulator for every column is reset; rows are gone through, which are stored and added to the
 * accumulators; those are stored. A sum without columns is an accumulator of the loop over rows. */
static size_t chunk_nests(scheduler *s, moec_kx row, const moec_knest *from, size_t n_nests, nest *out) {
  moec_kpool *p = s->p;
  uint32_t outer[2] = {moec_kx_get(p, moec_kx_chunk(p))->id, moec_kx_get(p, row)->id};
  sums all = find_sums(p, from, n_nests);
  uint32_t *temp = MOEC_NEW_ARRAY(p->arena, uint32_t, all.n + 1);
  nest flat = begin(2, outer, ACCUMULATE);
  flat.accs = MOEC_NEW_ARRAY(p->arena, moec_kx, all.n + 1), flat.lasting = true;
  size_t n = 0;
  for (size_t i = 0; i < n_nests; i++)
    for (uint32_t k = 0; k < all.n; k++) {
      if (!all.vars[k] || !has_sum(&from[i], all.e[k]) || temp[k]) continue;
      temp[k] = new_temp(s, all.e[k], all.vars[k]) + 1;
      out[n] = begin(1, outer, RESET);
      out[n].accs = &all.e[k], out[n].n_accs = 1, out[n].temp = temp[k] - 1, out[n].lasting = true;
      add_columns(&out[n++], &from[i], all.vars[k]);
    }
  for (size_t i = 0; i < n_nests; i++) {
    out[n] = begin(2, outer, STORES);
    add_columns(&out[n], &from[i], ~UINT64_C(0));
    select_stores(p, &out[n], &from[i], false);
    n += out[n].n_stores > 0;
    for (uint32_t k = 0; k < all.n; k++) {
      if (!temp[k] || !has_sum(&from[i], all.e[k])) continue;
      out[n] = begin(2, outer, GATHER);
      out[n].accs = &all.e[k], out[n].n_accs = 1, out[n].temp = temp[k] - 1;
      add_columns(&out[n++], &from[i], all.vars[k]);
      temp[k] = 0; /* once */
    }
  }
  for (uint32_t k = 0; k < all.n; k++)
    if (!all.vars[k]) flat.accs[flat.n_accs++] = all.e[k];
  if (flat.n_accs) out[n++] = flat;
  for (size_t i = 0; i < n_nests; i++) {
    out[n] = begin(1, outer, STORES);
    add_columns(&out[n], &from[i], ~UINT64_C(0));
    select_stores(p, &out[n], &from[i], true);
    n += out[n].n_stores > 0;
  }
  return n;
}

static size_t row_nests(moec_kpool *p, moec_kx row, const moec_knest *from, size_t n_nests, nest *out) {
  for (size_t i = 0; i < n_nests; i++) {
    out[i] = (nest){.stores = from[i].stores, .n_stores = from[i].n_stores};
    if (row.i) out[i].vars[out[i].n_vars++] = moec_kx_get(p, row)->id;
    add_columns(&out[i], &from[i], ~UINT64_C(0));
  }
  return n_nests;
}

void moec_kschedule(moec_kpool *p, moec_kernel *k, moec_kx row, const moec_knest *from,
                    size_t n_nests) {
  moec_dim one = moec_dim_const(p->m, 1), zero = moec_dim_const(p->m, 0);
  scheduler s = {.p = p, .k = k, .out = &k->body, .trips = one, .stack = zero, .var = 63};
  uint64_t params = 0;
  bool chunks = row.i && p->vars[moec_kx_get(p, row)->id].kind == MOEC_KVAR_CHUNK_ROW;
  k->flops = k->scratch = zero;
  for (uint32_t v = 0; v < p->n_vars && v < 64; v++)
    if (p->vars[v].kind == MOEC_KVAR_PARAM) params |= UINT64_C(1) << v;
  moec_kuses_find(&s.uses, p, from, n_nests, chunks ? row : (moec_kx){0});
  s.named = MOEC_NEW_ARRAY(p->arena, bool, p->n + 64);
  s.temp = MOEC_NEW_ARRAY(p->arena, uint32_t, p->n + 64);
  s.seen = MOEC_NEW_ARRAY(p->arena, uint32_t, p->n + 64);
  size_t n_stores = 0;
  for (size_t i = 0; i < n_nests; i++) n_stores += from[i].n_stores;
  nest *nests = MOEC_NEW_ARRAY(p->arena, nest, 2 * (n_nests + n_stores) + 1);
  size_t n = chunks ? chunk_nests(&s, row, from, n_nests, nests) : row_nests(p, row, from, n_nests, nests);
  emit_nests(&s, nests, n, 0, params);
}
