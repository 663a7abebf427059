/* Kernels with the same rows become one.
 *
 * Two cases, both greedy and in topological order:
 *   1. Kernel B reads a result of kernel A, and row r of B needs row r of A only: the read is saved (and the write,
 *   where
 *      nobody else reads it). The usual one: h = x + y is stored, and norm(h) too.
 *   2. A and B read the same value row by row, and neither needs the other: one read is saved. Only where that read is
 *   a
 *      good part of the traffic of the smaller one, or where the two read the same values altogether: cos and sin
 *      of the same angles.
 * Merging never adds traffic. It is refused where a path A -> other units -> B would become a cycle, and
 * where the kernel would get too big. */
#include "passes/fuse.h"

/* Units of the schedule: kernels by number, then the other top-level nodes, offset by n_kernels. */
typedef struct merger {
  moec_fuse_plan *p;
  uint32_t n_units;
  uint32_t *start, *to; /* successors of unit u: to[start[u] .. start[u+1]) */
  uint32_t *in_start;   /* values that kernel k reads from memory: in[in_start[k] .. in_start[k+1]) */
  moec_value *in;
  uint32_t *stamp, now; /* visited marks */
  uint32_t *stack;
} merger;

static uint32_t rep(const moec_fuse_plan *p, uint32_t kernel) {
  while (p->kernels[kernel].into) kernel = p->kernels[kernel].into;
  return kernel;
}

/* ---- the graph of units ----------------------------------------------------------------------------- */

/* The unit that makes |v|; 0: the function's inputs and parameters. */
static uint32_t maker(const merger *g, moec_value v) {
  const moec_fuse_plan *p = g->p;
  v = moec_fuse_source(p->g, v);
  if (p->place[v.i] == MOEC_PLACE_STORED) return p->kernel_of[v.i];
  moec_node n = moec_def(p->g, v);
  bool top = n.i && (moec_fuse_is_library(moec_op_of(p->g, n)) || p->epilogue[n.i]);
  return top ? (uint32_t)p->n_kernels + n.i : 0;
}

/* Calls |edge| for each dependence; once to count, once to fill. */
static void each_edge(merger *g, void (*edge)(merger *g, uint32_t from, uint32_t to)) {
  const moec_fuse_plan *p = g->p;
  for (uint32_t v = 1; v < p->g->n_values; v++) {
    uint32_t from = maker(g, (moec_value){v});
    for (const moec_reads *r = p->reads[v]; from && r; r = r->next)
      if (p->place[v] != MOEC_PLACE_INLINE || moec_def_op(p->g, (moec_value){v}) == MOEC_OP_RESHAPE)
        edge(g, from, r->kernel);
  }
  for (uint32_t n = 1; n < p->g->n_nodes; n++) {
    const moec_node_info *d = &p->g->nodes[n];
    if (!moec_fuse_is_library(d->op) && !p->epilogue[n]) continue;
    for (uint32_t i = 0; i < d->n_in; i++) {
      uint32_t from = maker(g, p->g->edges[d->in + i]);
      if (from) edge(g, from, (uint32_t)p->n_kernels + n);
    }
  }
}

static void count_edge(merger *g, uint32_t from, uint32_t to) {
  (void)to;
  g->start[from + 1]++;
}

static void fill_edge(merger *g, uint32_t from, uint32_t to) { g->to[g->stack[from]++] = to; }

static void build_units(merger *g) {
  moec_fuse_plan *p = g->p;
  moec_arena *a = p->m->arena;
  g->n_units = (uint32_t)(p->n_kernels + p->g->n_nodes);
  g->start = MOEC_NEW_ARRAY(a, uint32_t, g->n_units + 2);
  each_edge(g, count_edge);
  for (uint32_t u = 0; u <= g->n_units; u++) g->start[u + 1] += g->start[u];
  g->stack = moec_arena_copy(a, g->start, (g->n_units + 1) * sizeof *g->stack);
  g->to = MOEC_NEW_ARRAY(a, uint32_t, g->start[g->n_units] + 1);
  each_edge(g, fill_edge);
  g->stamp = MOEC_NEW_ARRAY(a, uint32_t, g->n_units);
  g->stack = MOEC_NEW_ARRAY(a, uint32_t, g->n_units);
}

static bool in_memory(const moec_fuse_plan *p, uint32_t v) {
  return p->place[v] == MOEC_PLACE_STORED || p->place[v] == MOEC_PLACE_OUTSIDE;
}

static void build_inputs(merger *g) {
  const moec_fuse_plan *p = g->p;
  g->in_start = MOEC_NEW_ARRAY(p->m->arena, uint32_t, p->n_kernels + 2);
  for (uint32_t v = 1; v < p->g->n_values; v++)
    for (const moec_reads *r = p->reads[v]; r && in_memory(p, v); r = r->next) g->in_start[r->kernel + 1]++;
  for (size_t k = 0; k < p->n_kernels; k++) g->in_start[k + 1] += g->in_start[k];
  uint32_t *fill = moec_arena_copy(p->m->arena, g->in_start, (p->n_kernels + 1) * sizeof *fill);
  g->in = MOEC_NEW_ARRAY(p->m->arena, moec_value, g->in_start[p->n_kernels] + 1);
  for (uint32_t v = 1; v < p->g->n_values; v++)
    for (const moec_reads *r = p->reads[v]; r && in_memory(p, v); r = r->next)
      g->in[fill[r->kernel]++] = (moec_value){v};
}

static uint32_t unit_rep(const merger *g, uint32_t u) { return u < g->p->n_kernels ? rep(g->p, u) : u; }

static uint32_t first_node(const merger *g, uint32_t u) {
  return u < g->p->n_kernels ? g->p->kernels[u].first_node : u - (uint32_t)g->p->n_kernels;
}

/* No path that ends at |b| passes a unit that begins behind this node: |b|'s last node, or that of a merged kernel
 * which a path could enter late and leave early. */
static uint32_t horizon(const merger *g, uint32_t b) {
  const moec_fuse_plan *p = g->p;
  uint32_t end = p->kernels[b].last_node, before = 0;
  while (end != before) {
    before = end;
    for (uint32_t k = 1; k < p->n_kernels; k++) {
      const moec_kernel *m = &p->kernels[k];
      if (!m->into && m->next_part && m->first_node <= end && m->last_node > end) end = m->last_node;
    }
  }
  return end;
}

/* Puts the successors of unit |u| on the stack, |u| being a representative; true where |b| is among them. */
static bool push_successors(merger *g, uint32_t u, uint32_t a, uint32_t b, uint32_t end, uint32_t *n_stack) {
  bool found = false;
  for (uint32_t part = u;; part = g->p->kernels[part].next_part) {
    for (uint32_t i = g->start[part]; i < g->start[part + 1]; i++) {
      uint32_t w = unit_rep(g, g->to[i]);
      if (w == b) found = true;
      if (w == a || w == b || g->stamp[w] == g->now || first_node(g, w) > end) continue;
      g->stamp[w] = g->now;
      g->stack[(*n_stack)++] = w;
    }
    if (u >= g->p->n_kernels || !g->p->kernels[part].next_part) return found;
  }
}

/* Whether something other than A and B lies on a path from A to B; also a direct path, where |direct|. */
static bool path(merger *g, uint32_t a, uint32_t b, bool direct) {
  uint32_t n_stack = 0, end = horizon(g, b);
  g->now++;
  if (push_successors(g, a, a, b, end, &n_stack) && direct) return true;
  while (n_stack)
    if (push_successors(g, g->stack[--n_stack], a, b, end, &n_stack)) return true;
  return false;
}

/* ---- rows -------------------------------------------------------------------------------------------- */

/* The rows a kernel of both would have; unknown: there is no such number. */
static moec_dim common_rows(const moec_fuse_plan *p, uint32_t a, uint32_t b) {
  const moec_kernel *x = &p->kernels[a], *y = &p->kernels[b];
  moec_dim rows = moec_fuse_rows(p, x->row_axes < 0 && y->row_axes >= 0 ? b : a);
  if (x->row_axes >= 0 && y->row_axes >= 0 && !moec_dim_eq(moec_fuse_rows(p, b), rows)) return (moec_dim){0};
  for (uint32_t i = 0; i < x->n_roots; i++)
    if (moec_fuse_prefix(p, x->roots[i], rows) < 0) return (moec_dim){0};
  for (uint32_t i = 0; i < y->n_roots; i++)
    if (moec_fuse_prefix(p, y->roots[i], rows) < 0) return (moec_dim){0};
  bool flat = x->row_axes < 0 && y->row_axes < 0; /* no columns: results of one size */
  if (flat && !moec_dim_eq(moec_fuse_rows(p, b), rows)) return (moec_dim){0};
  return rows;
}

/* Row r of kernel |b| reads row r of |v| only. */
static bool reads_aligned(const moec_fuse_plan *p, uint32_t b, moec_value v, moec_dim rows) {
  int kv = moec_def_op(p->g, v) == MOEC_OP_BLOCK_SUM ? -1 : moec_fuse_prefix(p, v, rows);
  for (const moec_reads *r = p->reads[v.i]; r; r = r->next) {
    if (rep(p, r->kernel) != b) continue;
    if (kv < 0) return false; /* several rows' sum, or split into other rows */
    moec_value root = moec_fuse_space(p->g, p->kernels[r->kernel].origin);
    int kr = moec_fuse_prefix(p, root, rows);
    if (r->overflow || kr < 0) return false;
    for (uint32_t i = 0; i < r->n; i++)
      if (!moec_access_aligned(p->g, root, kr, v, kv, &r->at[i])) return false;
  }
  return true;
}

static bool sizes_fit(const moec_kernel *x, const moec_kernel *y) {
  return !x->attention && !y->attention && (!x->block || !y->block || x->block == y->block) &&
         x->n_roots + y->n_roots <= MOEC_MAX_ROOTS && x->n_nodes + y->n_nodes <= MOEC_MAX_KERNEL_NODES;
}

static void merge(moec_fuse_plan *p, uint32_t a, uint32_t b, moec_dim rows) {
  moec_kernel *x = &p->kernels[a], *y = &p->kernels[b];
  bool flat = x->row_axes < 0 && y->row_axes < 0;
  for (uint32_t i = 0; i < y->n_roots; i++) { /* ascending order */
    uint32_t k = x->n_roots++;
    for (; k && x->roots[k - 1].i > y->roots[i].i; k--) x->roots[k] = x->roots[k - 1];
    x->roots[k] = y->roots[i];
  }
  x->row_axes = flat ? -1 : moec_fuse_prefix(p, x->roots[0], rows);
  x->n_nodes += y->n_nodes;
  if (y->block) x->block = y->block;
  if (y->first_node < x->first_node) x->first_node = y->first_node;
  if (y->last_node > x->last_node) x->last_node = y->last_node;
  uint32_t last = a;
  while (p->kernels[last].next_part) last = p->kernels[last].next_part;
  p->kernels[last].next_part = b;
  y->into = a;
}

/* ---- the two cases ------------------------------------------------------------------------------------- */

/* Kernel |b| takes in |a|, which makes |v|, or the other way round: they become one. */
static bool merge_with_reader(merger *g, uint32_t a, uint32_t b) {
  moec_fuse_plan *p = g->p;
  if (a == b || !sizes_fit(&p->kernels[a], &p->kernels[b])) return false;
  moec_dim rows = common_rows(p, a, b);
  if (!moec_dim_known(rows)) return false;
  for (uint32_t i = 0; i < p->kernels[a].n_roots; i++)
    if (!reads_aligned(p, b, p->kernels[a].roots[i], rows)) return false;
  if (path(g, a, b, false)) return false;
  merge(p, a, b, rows);
  return true;
}

static double traffic(const merger *g, uint32_t kernel) {
  const moec_fuse_plan *p = g->p;
  double bytes = 0;
  for (uint32_t i = 0; i < p->kernels[kernel].n_roots; i++) bytes += moec_fuse_bytes(p, p->kernels[kernel].roots[i]);
  return bytes;
}

/* Everything |a| reads is read by |b|. */
static bool reads_within(const merger *g, uint32_t a, uint32_t b) {
  const moec_fuse_plan *p = g->p;
  for (uint32_t i = g->in_start[a]; i < g->in_start[a + 1]; i++) {
    const moec_reads *r = p->reads[g->in[i].i];
    while (r && r->kernel != b) r = r->next;
    if (!r) return false;
  }
  return true;
}

/* Kernels of one part each that read the same values from memory. */
static bool same_reads(const merger *g, uint32_t a, uint32_t b) {
  const moec_kernel *x = &g->p->kernels[a], *y = &g->p->kernels[b];
  return !x->next_part && !y->next_part && reads_within(g, a, b) && reads_within(g, b, a);
}

static bool merge_siblings(merger *g, uint32_t a, uint32_t b, moec_value v) {
  moec_fuse_plan *p = g->p;
  if (a == b || !sizes_fit(&p->kernels[a], &p->kernels[b])) return false;
  double x = traffic(g, a), y = traffic(g, b);
  bool alike = same_reads(g, a, b);
  if (!alike && moec_fuse_bytes(p, v) * 2 < (x < y ? x : y)) return false;
  moec_dim rows = common_rows(p, a, b);
  if (!moec_dim_known(rows)) return false;
  if (!alike && (!reads_aligned(p, a, v, rows) || !reads_aligned(p, b, v, rows))) return false;
  if (path(g, a, b, true) || path(g, b, a, true)) return false;
  merge(p, a, b, rows);
  return true;
}

/* Readers of |v| in ascending order of kernels' roots: the list holds the latest kernel last. */
static uint32_t next_reader(const moec_fuse_plan *p, moec_value v, uint32_t after) {
  uint32_t best = 0;
  for (const moec_reads *r = p->reads[v.i]; r; r = r->next) {
    uint32_t node = moec_def(p->g, p->kernels[r->kernel].origin).i;
    if (node > after && (!best || node < best)) best = node;
  }
  return best;
}

static uint32_t kernel_at(const moec_fuse_plan *p, moec_value v, uint32_t node) {
  for (const moec_reads *r = p->reads[v.i]; r; r = r->next)
    if (moec_def(p->g, p->kernels[r->kernel].origin).i == node) return rep(p, r->kernel);
  return 0;
}

/* Readers looked at for one value: of a mask that all layers read, say, only the first few are tried. */
enum { MAX_READERS = 16 };

void moec_fuse_merge(moec_fuse_plan *p) {
  merger g = {.p = p};
  build_units(&g);
  build_inputs(&g);
  for (uint32_t v = 1; v < p->g->n_values; v++) {
    moec_value id = {v};
    if (p->place[v] != MOEC_PLACE_STORED) continue;
    uint32_t node = next_reader(p, id, 0);
    for (int tries = 0; node && tries < MAX_READERS; tries++) {
      merge_with_reader(&g, moec_fuse_kernel(p, id), kernel_at(p, id, node));
      node = next_reader(p, id, node);
    }
  }
  for (uint32_t v = 1; v < p->g->n_values; v++) {
    moec_value id = {v};
    if (p->place[v] != MOEC_PLACE_STORED && p->place[v] != MOEC_PLACE_OUTSIDE) continue;
    uint32_t node = next_reader(p, id, 0), last = node;
    for (int tries = 0; node && tries < MAX_READERS; tries++) {
      node = next_reader(p, id, node);
      if (node && !merge_siblings(&g, kernel_at(p, id, last), kernel_at(p, id, node), id)) last = node;
    }
  }
}
