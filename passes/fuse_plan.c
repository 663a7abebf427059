/* Which values are stored, and which kernel computes what.
 *
 * Values that have to lie in memory (operands of library nodes, outputs) are roots of kernels. Then, from the outputs
 * towards the inputs, each value that kernels read is either computed where it is read, or stored, as the root of a
 * kernel of its own. It is stored where several kernels read it and computing it again costs more (fuse_cost.c), and
 * where a kernel cannot compute it on the way: a reduction that has not exactly one element a row of that kernel.
 * Kernels with one root cannot form cycles; joining kernels is the next step (fuse_merge.c). */
#include "passes/fuse.h"

enum { MAX_HEAVY_READS = 4 };

bool moec_fuse_is_library(moec_op op) {
  switch (moec_op_cls(op)) {
    case MOEC_CLASS_DOT: case MOEC_CLASS_SORT: case MOEC_CLASS_SCAN: case MOEC_CLASS_EFFECT: case MOEC_CLASS_CONTROL:
    case MOEC_CLASS_MOE: return true;
    default:
      return op == MOEC_OP_SCATTER_ELEMENTS || op == MOEC_OP_SCATTER_ND || op == MOEC_OP_LINEAR_CROSS_ENTROPY;
  }
}

bool moec_fuse_is_attention(moec_op op) { return op == MOEC_OP_ATTENTION || op == MOEC_OP_ATTENTION_GRAD; }

bool moec_fuse_is_implied(const moec_graph *g, moec_node n, uint32_t i) {
  moec_op op = moec_op_of(g, n);
  bool scatter = op == MOEC_OP_SCATTER_ELEMENTS || op == MOEC_OP_SCATTER_ND;
  return scatter && i == 0 && moec_is_zeros(g, moec_in(g, n, 0));
}

bool moec_fuse_is_fusable(const moec_graph *g, moec_node n) {
  enum { LARGEST_CONST = 64 };
  const moec_node_info *p = moec_node_get(g, n);
  if (!n.i || p->op == MOEC_OP_PARAM || moec_fuse_is_library(p->op)) return false;
  if (p->op != MOEC_OP_CONST) return true;
  const moec_const *c = MOEC_ATTRS(g, n, CONST)->data;
  return c->size <= LARGEST_CONST * moec_dtype_get(moec_ty(g, moec_out(g, n, 0)).dtype)->bytes;
}

moec_value moec_fuse_source(const moec_graph *g, moec_value v) {
  while (moec_def_op(g, v) == MOEC_OP_RESHAPE) v = moec_in(g, moec_def(g, v), 0);
  return v;
}

uint32_t moec_fuse_kernel(const moec_fuse_plan *p, moec_value v) {
  uint32_t k = p->kernel_of[v.i];
  while (p->kernels[k].into) k = p->kernels[k].into;
  return k;
}

moec_value moec_fuse_space(const moec_graph *g, moec_value root) {
  return moec_def_op(g, root) == MOEC_OP_BLOCK_SUM ? moec_in(g, moec_def(g, root), 0) : root;
}

int moec_fuse_prefix(const moec_fuse_plan *p, moec_value v, moec_dim rows) {
  moec_type_info t = moec_ty(p->g, moec_fuse_space(p->g, v));
  moec_dim d = moec_dim_const(p->m, 1);
  int longest = -1; /* axes of size 1 behind the rows count as rows: all axes where nothing is a column */
  for (uint32_t k = 0; k <= t.rank; k++) {
    if (moec_dim_eq(d, rows)) longest = (int)k;
    if (k < t.rank) d = moec_dim_mul(p->m, d, t.dims[k]);
  }
  return longest;
}

static moec_dim leading(const moec_fuse_plan *p, moec_value v, int k) {
  moec_type_info t = moec_ty(p->g, v);
  moec_dim d = moec_dim_const(p->m, 1);
  for (int i = 0; i < k; i++) d = moec_dim_mul(p->m, d, t.dims[i]);
  return d;
}

moec_dim moec_fuse_rows(const moec_fuse_plan *p, uint32_t kernel) {
  const moec_kernel *k = &p->kernels[kernel];
  moec_value space = moec_fuse_space(p->g, k->roots[0]);
  return leading(p, space, k->row_axes < 0 ? (int)moec_ty(p->g, space).rank : k->row_axes);
}

/* ---- reads ------------------------------------------------------------------------------------- */

static void add_read(moec_fuse_plan *p, moec_value v, uint32_t kernel, const moec_access *a) {
  moec_reads *r = p->reads[v.i];
  while (r && r->kernel != kernel) r = r->next;
  if (!r) {
    r = MOEC_NEW(p->m->arena, moec_reads);
    r->kernel = kernel;
    r->next = p->reads[v.i];
    p->reads[v.i] = r;
  }
  for (uint32_t i = 0; i < r->n; i++)
    if (r->at[i].sig == a->sig) return;
  if (r->n == MOEC_MAX_READS) r->overflow = true;
  else r->at[r->n++] = *a;
}

/* Everything node |n| reads when its result is read as |a| from the kernel. */
static void read_operands(moec_fuse_plan *p, uint32_t kernel, moec_node n, const moec_access *a) {
  moec_value root = moec_fuse_space(p->g, p->kernels[kernel].roots[0]);
  for (uint32_t i = 0; i < moec_node_get(p->g, n)->n_in; i++) {
    moec_value x = moec_in(p->g, n, i);
    if (!x.i) continue;
    moec_access in = p->kernels[kernel].attention ? moec_access_opaque(a->sig)
                                                  : moec_access_operand(p->g, root, n, i, a);
    add_read(p, x, kernel, &in);
  }
}

/* ---- kernels ------------------------------------------------------------------------------------ */

static uint32_t new_kernel(moec_fuse_plan *p, moec_value root) {
  moec_node n = moec_def(p->g, root);
  moec_kernel k = {.origin = root, .roots = {root}, .n_roots = 1, .n_nodes = 1, .row_axes = -1, .first_node = n.i,
      .last_node = n.i};
  uint32_t id = (uint32_t)p->n_kernels;
  MOEC_PUSH(p->m->arena, p->kernels, p->n_kernels, p->cap_kernels, k);
  p->place[root.i] = MOEC_PLACE_STORED;
  p->kernel_of[root.i] = id;
  return id;
}

/* Whether a reduction (or a transcendental function of few elements) may fix the kernel's rows to |rows| axes. */
static bool rows_fit(const moec_fuse_plan *p, const moec_kernel *k, int rows) {
  enum { FEW_ROWS = 8, LONG_ROW = 16384 };
  moec_value root = moec_fuse_space(p->g, k->roots[0]);
  if (rows < 0) return false;
  if (k->row_axes >= 0) return moec_dim_eq(leading(p, root, rows), leading(p, root, k->row_axes));
  /* a handful of very long rows would leave the machine idle: the reduction gets its own kernel */
  double all = moec_fuse_numel(p, root), n = 1;
  for (int i = 0; i < rows; i++) {
    int64_t d = 1;
    moec_status_free(moec_dim_eval(p->m, moec_ty(p->g, root).dims[i], p->symbols, &d));
    n *= (double)d;
  }
  return n >= FEW_ROWS || all / (n > 0 ? n : 1) <= LONG_ROW;
}

static void fix_rows(moec_kernel *k, int rows) {
  if (k->row_axes < 0) k->row_axes = rows;
}

/* Whether kernel |r->kernel| can compute node |n| on its way; fixes its rows where |n| asks for it. */
static bool fits(moec_fuse_plan *p, moec_value v, moec_node n, const moec_reads *r) {
  moec_kernel *k = &p->kernels[r->kernel];
  moec_op op = moec_op_of(p->g, n);
  bool reduce = moec_op_cls(op) == MOEC_CLASS_REDUCE, heavy = moec_fuse_is_heavy(op);
  moec_value root = moec_fuse_space(p->g, k->roots[0]);
  if (r->overflow || moec_fuse_is_attention(op) || op == MOEC_OP_BLOCK_SUM) return false;
  if (k->n_nodes >= MOEC_MAX_KERNEL_NODES) return false;
  if (k->attention) return !reduce;
  if (moec_op_is_elementwise(op) && r->n > MAX_HEAVY_READS) return false;
  if (!reduce && !heavy) return true;
  bool spread = heavy && moec_fuse_numel(p, v) * 4 <= moec_fuse_numel(p, root) && moec_ty(p->g, v).rank > 0;
  if (!reduce && !spread) return true;
  for (uint32_t i = 0; i < r->n; i++)
    if (!rows_fit(p, k, moec_access_rows(p->g, root, v, &r->at[i]))) return false;
  fix_rows(k, moec_access_rows(p->g, root, v, &r->at[0]));
  return true;
}

static void compute_inline(moec_fuse_plan *p, moec_value v, moec_node n) {
  p->place[v.i] = MOEC_PLACE_INLINE;
  for (const moec_reads *r = p->reads[v.i]; r; r = r->next) {
    p->kernels[r->kernel].n_nodes++;
    for (uint32_t i = 0; i < r->n; i++) read_operands(p, r->kernel, n, &r->at[i]);
  }
}

static void store(moec_fuse_plan *p, moec_value v, moec_node n) {
  uint32_t k = new_kernel(p, v);
  moec_access a = moec_access_root(p->g, moec_fuse_space(p->g, v));
  if (moec_op_of(p->g, n) == MOEC_OP_BLOCK_SUM) {
    const moec_attrs_BLOCK_SUM *sum = MOEC_ATTRS(p->g, n, BLOCK_SUM);
    fix_rows(&p->kernels[k], (int)sum->leading);
    p->kernels[k].block = sum->size;
    add_read(p, moec_in(p->g, n, 0), k, &a);
    return;
  }
  if (moec_op_cls(moec_op_of(p->g, n)) == MOEC_CLASS_REDUCE) fix_rows(&p->kernels[k], (int)moec_ty(p->g, v).rank);
  read_operands(p, k, n, &a);
}

static void decide_value(moec_fuse_plan *p, moec_value v, moec_node n) {
  moec_op op = moec_op_of(p->g, n);
  if (op == MOEC_OP_RESHAPE) { /* another name for the same bytes, wherever it is read */
    if (p->reads[v.i]) compute_inline(p, v, n);
    return;
  }
  uint32_t readers = 0;
  bool ok = !p->must[v.i];
  for (const moec_reads *r = p->reads[v.i]; r; r = r->next) readers++;
  if (!readers && !p->must[v.i]) return;
  if (ok && readers > 1)
    ok = moec_op_cls(op) != MOEC_CLASS_REDUCE &&
         (moec_fuse_recompute(p, v, readers) || moec_fuse_stays_mask(p, v, p->reads[v.i]));
  for (const moec_reads *r = p->reads[v.i]; ok && r; r = r->next) ok = fits(p, v, n, r);
  if (ok) compute_inline(p, v, n);
  else store(p, v, n);
}

static void decide_attention(moec_fuse_plan *p, moec_node n) {
  uint32_t k = new_kernel(p, moec_out(p->g, n, 0));
  moec_kernel *kernel = &p->kernels[k];
  kernel->attention = true;
  /* rows are batch, query and head; results of the gradient share none */
  kernel->row_axes = moec_op_of(p->g, n) == MOEC_OP_ATTENTION ? 3 : 0;
  for (uint32_t i = 1; i < moec_node_get(p->g, n)->n_out; i++) {
    moec_value result = moec_out(p->g, n, i);
    kernel->roots[kernel->n_roots++] = result;
    p->place[result.i] = MOEC_PLACE_STORED;
    p->kernel_of[result.i] = k;
  }
  moec_access a = moec_access_opaque(1);
  read_operands(p, k, n, &a);
}

/* ---- one function ---------------------------------------------------------------------------------- */

static void need(moec_fuse_plan *p, moec_value v) {
  if (v.i) p->must[moec_fuse_source(p->g, v).i] = 1;
}

static void mark_needed(moec_fuse_plan *p) {
  const moec_graph *g = p->g;
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    const moec_node_info *d = &g->nodes[n];
    bool attention = moec_fuse_is_attention(d->op);
    if (d->op == MOEC_OP_BLOCK_SUM) need(p, g->edges[d->out]);
    if (!attention && !moec_fuse_is_library(d->op) && !p->epilogue[n]) continue;
    for (uint32_t i = 0; i < d->n_in; i++)
      if ((!attention || i != 3) && !moec_fuse_is_implied(g, (moec_node){n}, i)) /* its mask is computed in place */
        need(p, g->edges[d->in + i]);
  }
  for (size_t i = 0; i < g->n_outputs; i++) need(p, g->outputs[i]);
}

static void mark_outside(moec_fuse_plan *p) {
  const moec_graph *g = p->g;
  for (uint32_t v = 1; v < g->n_values; v++) {
    moec_node n = g->values[v].def;
    if (!moec_fuse_is_fusable(g, n) || p->epilogue[n.i]) p->place[v] = MOEC_PLACE_OUTSIDE;
  }
}

moec_status *moec_fuse_decide(moec_fuse_plan *p) {
  moec_graph *g = p->g;
  moec_build_uses(g);
  mark_needed(p);
  moec_fuse_epilogues(p);
  mark_needed(p); /* operands of epilogues, too */
  mark_outside(p);
  moec_fuse_foresee(p);
  for (uint32_t n = (uint32_t)g->n_nodes - 1; n > 0; n--) {
    moec_node id = {n};
    const moec_node_info *d = &g->nodes[n];
    if (moec_fuse_is_attention(d->op)) {
      decide_attention(p, id);
      continue;
    }
    if (!moec_fuse_is_fusable(g, id) || p->epilogue[n]) continue;
    if (d->n_out != 1) return MOEC_BUG("fuse: %s has %u results", moec_op_get(d->op)->text, d->n_out);
    decide_value(p, moec_out(g, id, 0), id);
  }
  return NULL;
}
