/* Sums over many rows go in two stages.
 *
 *     x [batch, seq, H] ──► reduce_sum over batch, seq ──► [H]
 *     x [batch, seq, H] ──► block_sum ──► [blocks, H] ──► reduce_sum ──► [H]
 *
 * The gradient of a norm's weight, of a bias, a loss: few results, each of all rows. Blocks of rows are summed in
 * parallel, in the kernel that has the rows at hand anyway, and what they leave is little. Blocks have a fixed number
 * of rows, so the result does not depend on the number of threads. Sums of narrow floats stay in f32 until the end.
 *
 * Not where there are few rows, nor where columns are many or of unknown number: those are summed in parallel as they
 * are. */
#include "passes/fuse.h"

#include "ir/builder.h"

enum {
  FEW_ROWS = 256,          /* a constant number below is left alone */
  MANY_COLUMNS = 1 << 20,  /* accumulators of one thread */
  BLOCK_WORK = 1 << 15,    /* elements a block should have: a few microseconds */
  BLOCK_MIN = 32, BLOCK_MAX = 1024 /* rows; the least: what blocks leave is little against what they read */
};

static moec_dim product(const moec_graph *g, moec_type_info t, uint32_t from, uint32_t to) {
  moec_dim d = moec_dim_const(g->m, 1);
  for (uint32_t i = from; i < to; i++) d = moec_dim_mul(g->m, d, t.dims[i]);
  return d;
}

/* Elements of the largest value that |v| is computed from in the same kernel. */
static double largest(const moec_fuse_plan *p, moec_value v, int depth) {
  double most = moec_fuse_numel(p, v);
  moec_node n = moec_def(p->g, v);
  if (!depth || !n.i || !moec_fuse_is_fusable(p->g, n)) return most;
  if (moec_op_cls(moec_op_of(p->g, n)) == MOEC_CLASS_INDEX) return most; /* reads little of a large value */
  for (uint32_t i = 0; i < moec_node_get(p->g, n)->n_in; i++) {
    moec_value x = moec_in(p->g, n, i);
    double m = x.i ? largest(p, x, depth - 1) : 0;
    if (m > most) most = m;
  }
  return most;
}

/* Rows of a block: fewer where a row is more work. */
static int64_t block_size(const moec_fuse_plan *p, moec_value x, moec_dim rows) {
  enum { DEPTH = 6 };
  int64_t n = 1, size = BLOCK_MIN;
  moec_status_free(moec_dim_eval(p->m, rows, p->symbols, &n)); /* an estimate: 1 where it can't be told */
  double work = largest(p, x, DEPTH) / (double)(n > 0 ? n : 1);
  while (size < BLOCK_MAX && (double)size * work < BLOCK_WORK) size *= 2;
  return size;
}

/* The leading axes of |t| that are rows: those that |axes| begins with. Of a sum of everything, the last axis stays a
 * column where its size is known. */
static uint32_t row_axes(const moec_graph *g, moec_type_info t, moec_ints axes) {
  uint32_t k = 0;
  while (k < axes.n && axes.v[k] == (int64_t)k) k++;
  while (k == t.rank && k > 1 && moec_dim_is_const(g->m, t.dims[k - 1], NULL)) {
    int64_t rows;
    if (moec_dim_is_const(g->m, product(g, t, 0, k - 1), &rows) && rows < FEW_ROWS) break;
    k--;
  }
  return k;
}

static bool worthwhile(const moec_graph *g, moec_type_info t, moec_ints axes, uint32_t k) {
  int64_t n, columns = 1;
  if (!k || t.dtype == MOEC_BOOL || (moec_dim_is_const(g->m, product(g, t, 0, k), &n) && n < FEW_ROWS)) return false;
  for (uint32_t i = k, j = 0; i < t.rank; i++) {
    while (j < axes.n && axes.v[j] < (int64_t)i) j++;
    if (j < axes.n && axes.v[j] == (int64_t)i) continue; /* summed within the row */
    if (!moec_dim_is_const(g->m, t.dims[i], &n) || n > MANY_COLUMNS) return false;
    columns *= n;
    if (columns > MANY_COLUMNS) return false;
  }
  return true;
}

static moec_status *split(moec_fuse_plan *p, moec_node n) {
  moec_graph *g = p->g;
  moec_value x = moec_in(g, n, 0), y = moec_out(g, n, 0);
  moec_type_info t = moec_ty(g, x);
  moec_ints axes = MOEC_ATTRS(g, n, REDUCE_SUM)->axes;
  uint32_t k = row_axes(g, t, axes);
  if (!worthwhile(g, t, axes, k)) return NULL;
  int64_t size = block_size(p, x, product(g, t, 0, k)), first = 0;
  moec_builder b = moec_builder_on(g);
  g->loc = moec_node_get(g, n)->loc;
  bool narrow = t.dtype == MOEC_F16 || t.dtype == MOEC_BF16;
  moec_value s = moec_b_cast(&b, x, narrow ? MOEC_F32 : t.dtype);
  moec_attrs_REDUCE_SUM within = {.axes = {axes.n - k, axes.v + k}}, over = {.axes = {1, &first}};
  if (k < axes.n) s = moec_b_op(&b, MOEC_OP_REDUCE_SUM, &within, 1, &s, 1);
  moec_attrs_BLOCK_SUM blocks = {.leading = k, .size = size};
  s = moec_b_op(&b, MOEC_OP_BLOCK_SUM, &blocks, 1, &s, 1);
  s = moec_b_op(&b, MOEC_OP_REDUCE_SUM, &over, 1, &s, 1);
  s = moec_b_cast(&b, s, t.dtype);
  MOEC_TRY(moec_builder_end(&b));
  moec_replace_uses(g, y, s);
  return NULL;
}

moec_status *moec_fuse_split(moec_fuse_plan *p) {
  size_t n_nodes = p->g->n_nodes;
  for (uint32_t n = 1; n < n_nodes; n++)
    if (p->g->nodes[n].op == MOEC_OP_REDUCE_SUM) MOEC_TRY(split(p, (moec_node){n}));
  moec_compact(p->g);
  return NULL;
}
