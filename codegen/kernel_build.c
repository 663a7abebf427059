/* Chooses the iteration space of a fused function and builds its kernel. A space is tried by
 * evaluating the outputs over it: one expression pool a try. */
#include <string.h>

#include "codegen/kernel_build.h"

typedef struct builder {
  moec_arena *arena;
  moec_module *m;
  const moec_graph *fn;
  moec_kernel *k;
  moec_kpool pool; /* of the last try */
  moec_kspace space;
  moec_kloops loops;
} builder;

/* ---- one try -------------------------------------------------------------------------------- */

static moec_status *evaluate(builder *b) {
  moec_kernel *k = MOEC_NEW(b->arena, moec_kernel);
  *k = (moec_kernel){
      .m = b->m, .n_in = (uint32_t)b->fn->n_inputs, .n_out = (uint32_t)b->fn->n_outputs};
  for (uint32_t i = 0; i < k->n_in + k->n_out; i++) {
    moec_value v = i < k->n_in ? b->fn->inputs[i] : b->fn->outputs[i - k->n_in];
    moec_kbuf buf = {.dtype = moec_ty(b->fn, v).dtype, .output = i >= k->n_in, .arg = i};
    MOEC_PUSH(b->arena, k->bufs, k->n_bufs, k->cap_bufs, buf);
  }
  moec_keval ev;
  moec_kpool_init(&b->pool, b->arena, b->m);
  moec_keval_init(&ev, &b->pool, k, b->fn);
  moec_kspace_eval(&b->space, &ev, &b->loops);
  b->k = k;
  moec_status *s = b->pool.error;
  b->pool.error = NULL;
  return s;
}

/* Variables that some DIV or MOD depends on. */
static uint64_t divided(const builder *b) {
  uint64_t vars = 0;
  for (size_t i = 0; i < b->loops.n_nests; i++)
    for (size_t k = 0; k < b->loops.nests[i].n_stores; k++) {
      const moec_kstore *st = &b->loops.nests[i].stores[k];
      vars |= moec_kx_get(&b->pool, st->value)->divs | moec_kx_get(&b->pool, st->index)->divs;
    }
  return vars;
}

/* The merge to try after |merge|: fewer pairs, then none. */
static uint32_t next_merge(uint32_t merge, uint32_t n_axes) {
  uint32_t all = 1u << (n_axes - 1);
  int pairs = __builtin_popcount(merge);
  for (uint32_t m = merge + 1; m < all; m++)
    if (__builtin_popcount(m) == pairs) return m;
  for (uint32_t m = 0; m < all; m++)
    if (__builtin_popcount(m) == pairs - 1) return m;
  return 0;
}

/* Column axes become one loop where their coordinates are only used together; then axes are cut. */
static moec_status *refine(builder *b) {
  for (int tries = 0; tries < 64; tries++) {
    bool again = false;
    MOEC_TRY(evaluate(b));
    uint64_t vars = divided(b);
    for (uint32_t i = 0; i < b->space.n_groups; i++) {
      moec_kgroup *g = &b->space.groups[i];
      if (!g->merge || !(g->vars & vars)) continue;
      g->merge = next_merge(g->merge, g->n_axes);
      moec_kgroup_reset(b->m, g);
      again = true;
    }
    if (!again) break;
  }
  for (int tries = 0; tries < 8 && moec_kspace_cut(&b->space, &b->pool, &b->loops); tries++)
    MOEC_TRY(evaluate(b));
  return NULL;
}

/* ---- which rows ----------------------------------------------------------------------------- */

typedef struct reduces {
  uint32_t total, per_element, strided;
} reduces;

/* A reduction is per element when no two elements of a row need the same one. */
static void count_reduces(builder *b, moec_kx e, uint64_t columns, bool *seen, reduces *r) {
  if (seen[e.i]) return;
  seen[e.i] = true;
  moec_kx_node n = *moec_kx_get(&b->pool, e);
  if (n.kind == MOEC_KX_REDUCE) {
    bool strided = moec_kx_strided(&b->pool, e, moec_kx_get(&b->pool, b->loops.row)->id);
    r->total++;
    r->strided += strided;
    r->per_element += columns ? !(columns & ~n.vars) : strided;
  }
  for (uint32_t i = 0; i < n.n_args; i++) count_reduces(b, n.args[i], columns, seen, r);
}

static reduces all_reduces(builder *b) {
  reduces r = {0};
  for (size_t i = 0; i < b->loops.n_nests; i++) {
    const moec_knest *nest = &b->loops.nests[i];
    bool *seen = MOEC_NEW_ARRAY(b->arena, bool, b->pool.n);
    uint64_t columns = 0;
    for (uint32_t v = 0; v < nest->n_vars; v++) columns |= UINT64_C(1) << nest->vars[v];
    for (size_t k = 0; k < nest->n_stores; k++)
      count_reduces(b, nest->stores[k].value, columns, seen, &r);
  }
  return r;
}

static bool equal_sizes(const builder *b) {
  moec_dim n = moec_type_numel(b->m, moec_value_get(b->fn, b->fn->outputs[0])->type);
  for (size_t i = 1; i < b->fn->n_outputs; i++)
    if (!moec_dim_eq(n, moec_type_numel(b->m, moec_value_get(b->fn, b->fn->outputs[i])->type)))
      return false;
  return true;
}

/* Rows so that the columns are the last axis, or more of them where those are short and constant. */
static moec_dim rows_before_last(const builder *b) {
  moec_type_info t = {0};
  for (size_t i = 0; i < b->fn->n_outputs; i++) {
    moec_type_info o = moec_ty(b->fn, b->fn->outputs[i]);
    if (o.rank >= t.rank) t = o;
  }
  uint32_t n = t.rank ? t.rank - 1 : 0;
  moec_dim columns = t.rank ? t.dims[n] : moec_dim_const(b->m, 1), rows = moec_dim_const(b->m, 1);
  int64_t have, more;
  while (n > 0 && moec_dim_is_const(b->m, columns, &have) && have < 32 &&
         moec_dim_is_const(b->m, t.dims[n - 1], &more) && more < 1024)
    columns = moec_dim_mul(b->m, columns, t.dims[--n]);
  for (uint32_t i = 0; i < n; i++) rows = moec_dim_mul(b->m, rows, t.dims[i]);
  return rows;
}

/* Keeps the current try unless |rows| of |kind| works and leaves no DIV of the row index behind. */
static void try_space(builder *b, moec_kvar_kind kind, moec_dim rows, bool divs_allowed) {
  builder other = *b;
  if (!moec_kspace_init(&other.space, b->arena, b->fn, rows)) return;
  other.space.row_kind = kind;
  moec_status *s = refine(&other);
  if (!s && (divs_allowed || !(divided(&other) & moec_kx_get(&other.pool, other.loops.row)->vars)))
    *b = other;
  moec_status_free(s);
}

/* Given rows are kept where a row has something of its own (a reduction). Else the finest rows are best: single
 * elements when no coordinate is needed, in blocks when a reduction runs over memory across them. */
static void choose_space(builder *b) {
  reduces r = all_reduces(b);
  if (r.per_element < r.total || !equal_sizes(b)) return;
  moec_dim all = moec_type_numel(b->m, moec_value_get(b->fn, b->fn->outputs[0])->type),
           given = b->space.rows;
  try_space(b, MOEC_KVAR_ROW, all, false);
  bool single = moec_dim_eq(b->space.rows, all),
       divs = divided(b) & moec_kx_get(&b->pool, b->loops.row)->vars;
  if (single && all_reduces(b).strided) {
    try_space(b, MOEC_KVAR_BLOCK, all, true);
    return;
  }
  int64_t v;
  bool few = moec_dim_is_const(b->m, given, &v) && v < 64;
  bool wide = !moec_dim_is_const(b->m, moec_dim_exact_div(b->m, all, given), &v);
  if (single ? divs : few || wide) try_space(b, MOEC_KVAR_ROW, rows_before_last(b), true);
}

/* ---- the kernel ----------------------------------------------------------------------------- */

/* "exp+reduce_sum+div f32[batch, seq, 64]": the ops that compute, in order, each once. */
static const char *describe(moec_arena *a, const moec_graph *fn) {
  moec_buf b = {0};
  bool seen[MOEC_OP_COUNT] = {false};
  int n = 0;
  for (size_t i = 1; i < fn->n_nodes; i++) {
    moec_op op = fn->nodes[i].op;
    moec_op_class cls = moec_op_cls(op);
    bool quiet = op == MOEC_OP_NONE || cls == MOEC_CLASS_LEAF || cls == MOEC_CLASS_MOVE;
    if (quiet || seen[op] || n == 8) continue;
    seen[op] = true;
    moec_buf_printf(&b, "%s%s", n++ ? "+" : "", moec_op_get(op)->text);
  }
  if (!n) moec_buf_puts(&b, "move");
  for (size_t i = 0; i < fn->n_outputs; i++) {
    moec_buf_puts(&b, i ? ", " : " ");
    moec_type_print(&b, fn->m, moec_value_get(fn, fn->outputs[i])->type);
  }
  const char *s = moec_arena_strdup(a, moec_buf_str(&b));
  moec_buf_fini(&b);
  return s;
}

/* Rows a thread should take at least: about 20 microseconds of work, sizes taken as 256, and |least|: the lanes of a
 * block read neighbours. */
static uint32_t grain(const moec_kernel *k, moec_dim elements, uint32_t least) {
  uint32_t n = moec_dim_symbol_count(k->m);
  int64_t sizes[64], flops = 0, rows = 1, count = 0;
  if (n > 64) return least;
  for (uint32_t i = 0; i < n; i++) sizes[i] = 256;
  moec_status *s = moec_dim_eval(k->m, k->flops, sizes, &flops);
  if (!s) s = moec_dim_eval(k->m, k->range, sizes, &rows);
  if (!s) s = moec_dim_eval(k->m, elements, sizes, &count);
  moec_status_free(s);
  if (rows < 1) rows = 1;
  int64_t work = flops / rows + 4 * (count / rows) + 1;
  uint32_t rows_worth = work >= 65536 ? 1 : (uint32_t)(65536 / work);
  return rows_worth < least ? least : rows_worth;
}

moec_status *moec_kernel_build(moec_arena *a, moec_module *m, const moec_graph *fn, moec_dim rows,
                               moec_kernel **out) {
  builder b = {.arena = a, .m = m, .fn = fn};
  *out = NULL;
  if (!fn->n_outputs) return MOEC_BUG("fused function without results");
  for (size_t i = 1; i < fn->n_nodes; i++)
    if (fn->nodes[i].op == MOEC_OP_ATTENTION || fn->nodes[i].op == MOEC_OP_ATTENTION_GRAD)
      return moec_kernel_build_attention(a, m, fn, (moec_node){(uint32_t)i}, out);
  if (!moec_kspace_init(&b.space, a, fn, rows))
    return MOEC_BUG("fused function: expected results whose leading axes are the rows of the call");
  MOEC_TRY(refine(&b));
  if (!b.space.chunk) choose_space(&b);
  moec_kernel *k = b.k;
  moec_kschedule(&b.pool, k, b.loops.row, b.loops.nests, b.loops.n_nests);
  if (b.pool.error) return b.pool.error;
  k->what = describe(a, fn);
  k->chunk = b.space.chunk;
  k->range = k->chunk ? moec_dim_ceildiv(m, b.space.rows, moec_dim_const(m, k->chunk)) : b.space.rows;
  k->nodes = b.pool.nodes, k->n_nodes = b.pool.n;
  k->vars = b.pool.vars, k->n_vars = b.pool.n_vars;
  k->grain = grain(k, moec_type_numel(m, moec_value_get(fn, fn->outputs[0])->type),
                   b.space.row_kind == MOEC_KVAR_BLOCK ? MOEC_KERNEL_LANES : 1);
  *out = k;
  return NULL;
}
