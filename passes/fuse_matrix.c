/* Dots that no library reads as they lie: the operand is transposed in front, to batch, then free, then contracted
 * axes, or the last two the other way round, which is a strided matrix always. Its last axis stays where it is if it
 * can, so that rows move whole. Forward graphs rarely need it; gradients do, where heads lie between the tokens. */
#include <string.h>

#include "ir/builder.h"
#include "ir/matrix.h"
#include "passes/fuse.h"

/* A transpose of |x| that is there already; {0}: none. */
static moec_value find_transpose(const moec_graph *g, moec_value x, uint32_t rank, const int64_t *perm) {
  for (uint32_t i = 1; i < g->n_nodes; i++) {
    moec_node n = {i};
    if (moec_op_of(g, n) != MOEC_OP_TRANSPOSE || moec_in(g, n, 0).i != x.i) continue;
    if (memcmp(MOEC_ATTRS(g, n, TRANSPOSE)->perm.v, perm, rank * sizeof *perm) == 0) return moec_out(g, n, 0);
  }
  return (moec_value){0};
}

/* The other order of side |which|; its axis lists in |a| are renumbered. */
static moec_value as_matrix(moec_builder *b, moec_node n, int which, moec_attrs_DOT *a) {
  moec_ints *batch = which ? &a->rhs_batch : &a->lhs_batch, *sum = which ? &a->rhs_contract : &a->lhs_contract;
  moec_value x = moec_in(b->g, n, (uint32_t)which);
  int64_t perm[MOEC_MAX_RANK], *to = MOEC_NEW_ARRAY(b->g->m->arena, int64_t, MOEC_MAX_RANK);
  uint32_t at = 0, first;
  for (uint32_t i = 0; i < batch->n; i++) perm[at++] = batch->v[i];
  uint32_t n_free = moec_dot_free_axes(b->g, n, which, &perm[at]);
  if (n_free && perm[at + n_free - 1] + 1 == (int64_t)moec_ty(b->g, x).rank) { /* the last axis: free axes last */
    memmove(&perm[at + sum->n], &perm[at], n_free * sizeof *perm);
    first = at;
  } else {
    first = at + n_free;
  }
  for (uint32_t i = 0; i < sum->n; i++) perm[first + i] = sum->v[i];
  at += n_free + sum->n;
  for (uint32_t i = 0; i < at; i++) to[i] = i;
  batch->v = to;
  sum->v = to + first;
  moec_value have = find_transpose(b->g, x, at, perm);
  return have.i ? have : moec_b_transpose(b, x, perm);
}

moec_status *moec_fuse_matrices(moec_graph *g) {
  size_t n_nodes = g->n_nodes;
  for (uint32_t i = 1; i < n_nodes; i++) {
    moec_node n = {i};
    moec_matrix_side side;
    if (moec_op_of(g, n) != MOEC_OP_DOT) continue;
    bool fits[2] = {moec_matrix_side_of(g, n, 0, &side), moec_matrix_side_of(g, n, 1, &side)};
    if (fits[0] && fits[1]) continue;
    moec_builder b = moec_builder_on(g);
    moec_attrs_DOT a = *MOEC_ATTRS(g, n, DOT);
    moec_value in[2];
    g->loc = moec_node_get(g, n)->loc;
    for (int k = 0; k < 2; k++) in[k] = fits[k] ? moec_in(g, n, (uint32_t)k) : as_matrix(&b, n, k, &a);
    moec_value y = moec_b_op(&b, MOEC_OP_DOT, &a, 2, in, 1);
    MOEC_TRY(moec_builder_end(&b));
    moec_replace_uses(g, moec_out(g, n, 0), y);
  }
  return NULL;
}
