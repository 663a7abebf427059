/* Dots that no library reads as they lie: the operand is transposed in front, to [batch, free, contracted] axes, which
 * is a strided matrix always. Forward graphs rarely need it; gradients do, where heads lie between the tokens. */
#include "ir/builder.h"
#include "ir/matrix.h"
#include "passes/fuse.h"

/* The other order of side |which|; its axis lists in |a| are renumbered. */
static moec_value as_matrix(moec_builder *b, moec_node n, int which, moec_attrs_DOT *a) {
  moec_ints *batch = which ? &a->rhs_batch : &a->lhs_batch, *sum = which ? &a->rhs_contract : &a->lhs_contract;
  moec_value x = moec_in(b->g, n, (uint32_t)which);
  int64_t perm[MOEC_MAX_RANK], *to = MOEC_NEW_ARRAY(b->g->m->arena, int64_t, MOEC_MAX_RANK);
  uint32_t at = 0;
  for (uint32_t i = 0; i < batch->n; i++) perm[at++] = batch->v[i];
  at += moec_dot_free_axes(b->g, n, which, &perm[at]);
  for (uint32_t i = 0; i < sum->n; i++) perm[at++] = sum->v[i];
  for (uint32_t i = 0; i < at; i++) to[i] = i;
  batch->v = to;
  sum->v = to + (at - sum->n);
  return moec_b_transpose(b, x, perm);
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
