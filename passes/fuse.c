/* Fuse: every function becomes a list of calls, of kernels and of the target's library.
 *
 *     dot ──► [norm, rope, transpose: one kernel] ──► [attention: one kernel] ──► dot + residual ──► ...
 *
 * Library nodes (dot, conv, topk, cumsum, scatter, random, control, moe.*) stay, with operands and results in memory.
 * Everything between them goes into kernels: functions called by `fused`, whose body is generated code. Composites are
 * inlined first, but for the loss of a linear layer, and for attention and its gradient, which are kernels of their own
 * together with their mask. Stages:
 *
 *     fuse_weight    weights of expert rows go into the kernels beside them (cuda)
 *     fuse_matrix    dots read strided matrices
 *     fuse_split     sums over many rows go in two stages; the first has the rows of what is computed next to it
 *     fuse_epilogue  adds that a library call does on its way out stay adds
 *     fuse_plan      which values are stored, which are computed where they are read (fuse_access, fuse_cost)
 *     fuse_merge     kernels with the same rows that share data become one
 *     fuse_emit      kernels become functions; equal ones are shared, so repeated blocks run the same code
 *     fuse_check     nothing is left over
 *
 * Reshapes of stored values stay outside: they are names for the same bytes. */
#include "passes/fuse.h"
#include "passes/precision.h"

#include "ir/builder.h"
#include "passes/pass.h"
#include "passes/simplify.h"

enum { NOMINAL_SIZE = 128 };

/* Attention kernels compute in f32, on heads of a fixed size. */
static bool has_kernel(const moec_graph *g, moec_node attention) {
  moec_type_info q = moec_ty(g, moec_in(g, attention, 0)), v = moec_ty(g, moec_in(g, attention, 2));
  int64_t d, e;
  return q.dtype != MOEC_F64 && moec_dim_is_const(g->m, q.dims[3], &d) && d > 0 &&
         moec_dim_is_const(g->m, v.dims[3], &e) && e > 0;
}

static bool keeps(void *user, const moec_graph *g, moec_node n) {
  (void)user;
  moec_op op = moec_op_of(g, n);
  if (moec_fuse_is_attention(op)) return has_kernel(g, n);
  return moec_op_cls(op) == MOEC_CLASS_MOE || op == MOEC_OP_LINEAR_CROSS_ENTROPY;
}

static moec_status *fuse_function(moec_module *m, moec_graph *g, moec_target target, moec_fuse_shared *shared) {
  moec_arena *a = m->arena;
  moec_fuse_plan p = {.m = m, .g = g, .machine = moec_fuse_machine_of(target)};
  p.symbols = MOEC_NEW_ARRAY(m->arena, int64_t, moec_dim_symbol_count(m) + 1);
  for (uint32_t i = 0; i < moec_dim_symbol_count(m); i++) p.symbols[i] = NOMINAL_SIZE;
  MOEC_TRY(moec_fuse_matrices(g));
  MOEC_TRY(moec_fuse_split(&p));
  MOEC_TRY(moec_fuse_reorder(g)); /* compacts: array order is topological from here on */
  p.place = MOEC_NEW_ARRAY(a, moec_place, g->n_values);
  p.must = MOEC_NEW_ARRAY(a, uint8_t, g->n_values);
  p.likely_stored = MOEC_NEW_ARRAY(a, uint8_t, g->n_values);
  p.kernel_of = MOEC_NEW_ARRAY(a, uint32_t, g->n_values);
  p.reads = MOEC_NEW_ARRAY(a, moec_reads *, g->n_values);
  p.epilogue = MOEC_NEW_ARRAY(a, uint8_t, g->n_nodes);
  MOEC_PUSH(a, p.kernels, p.n_kernels, p.cap_kernels, (moec_kernel){0});
  MOEC_TRY(moec_fuse_decide(&p));
  moec_fuse_merge(&p);
  return moec_fuse_emit(&p, shared);
}

/* Kernels are named k0, k1, ... in the order of their first calls. */
static void name_kernels(moec_module *m) {
  bool *named = MOEC_NEW_ARRAY(m->arena, bool, m->n_fns);
  int next = 0;
  for (size_t f = 1; f < m->n_fns; f++) {
    const moec_graph *g = m->fns[f];
    for (uint32_t n = 1; n < g->n_nodes; n++) {
      if (g->nodes[n].op != MOEC_OP_FUSED) continue;
      moec_fn k = MOEC_ATTRS(g, ((moec_node){n}), FUSED)->fn;
      if (named[k.i]) continue;
      named[k.i] = true;
      moec_fn_get(m, k)->name = moec_sym_make(m, moec_arena_printf(m->arena, "k%d", next++));
    }
  }
}

moec_status *moec_pass_fuse(moec_module *m, moec_pass_ctx *cx) {
  MOEC_TRY(moec_inline_composites(m, keeps, NULL));
  for (size_t f = 1; f < m->n_fns && cx->options->target == MOEC_TARGET_CUDA; f++)
    MOEC_TRY(moec_fuse_weights(m->fns[f]));
  for (size_t f = 1; f < m->n_fns; f++) MOEC_TRY(moec_narrow_before_reshapes(m->fns[f]));
  MOEC_TRY(moec_pass_simplify(m, cx));
  moec_fuse_shared shared = {0};
  size_t n_fns = m->n_fns; /* kernels are added behind */
  for (size_t f = 1; f < n_fns; f++)
    MOEC_TRY(moec_context(fuse_function(m, m->fns[f], cx->options->target, &shared), "@\"%s\"",
                          moec_sym_str(m, m->fns[f]->name)));
  moec_compact_all(m);
  name_kernels(m);
  return moec_fuse_check(m);
}
