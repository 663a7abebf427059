/* Dots as strided matrices. */
#include "ir/matrix.h"

static moec_ints batch_axes(const moec_graph *g, moec_node n, int which) {
  const moec_attrs_DOT *a = MOEC_ATTRS(g, n, DOT);
  return which ? a->rhs_batch : a->lhs_batch;
}

static moec_ints sum_axes(const moec_graph *g, moec_node n, int which) {
  const moec_attrs_DOT *a = MOEC_ATTRS(g, n, DOT);
  return which ? a->rhs_contract : a->lhs_contract;
}

uint32_t moec_dot_free_axes(const moec_graph *g, moec_node n, int which, int64_t *axes) {
  moec_ints lists[2] = {batch_axes(g, n, which), sum_axes(g, n, which)};
  uint32_t used = 0, n_free = 0, rank = moec_ty(g, moec_in(g, n, (uint32_t)which)).rank;
  for (int k = 0; k < 2; k++)
    for (uint32_t i = 0; i < lists[k].n; i++) used |= 1u << lists[k].v[i];
  for (uint32_t i = 0; i < rank; i++)
    if (!(used >> i & 1)) axes[n_free++] = (int64_t)i;
  return n_free;
}

/* Several axes as one of size *size and stride *stride. */
static bool collapse(moec_module *m, const moec_matrix_side *s, uint32_t n, const int64_t *axes, moec_dim *size,
                     moec_dim *stride) {
  *size = moec_dim_const(m, 1);
  *stride = moec_dim_const(m, 1);
  bool any = false;
  for (uint32_t i = n; i-- > 0;) {
    int64_t x = axes[i];
    if (moec_dim_is(m, s->type.dims[x], 1)) continue;
    if (any && !moec_dim_eq(s->stride[x], moec_dim_mul(m, *stride, *size))) return false;
    if (!any) *stride = s->stride[x];
    *size = moec_dim_mul(m, *size, s->type.dims[x]);
    any = true;
  }
  return true;
}

bool moec_matrix_side_of(const moec_graph *g, moec_node n, int which, moec_matrix_side *out) {
  moec_module *m = g->m;
  int64_t axes[MOEC_MAX_RANK];
  moec_ints sum = sum_axes(g, n, which);
  *out = (moec_matrix_side){.type = moec_ty(g, moec_in(g, n, (uint32_t)which))};
  moec_dim stride = moec_dim_const(m, 1);
  for (uint32_t i = out->type.rank; i-- > 0;) {
    out->stride[i] = stride;
    stride = moec_dim_mul(m, stride, out->type.dims[i]);
  }
  uint32_t n_free = moec_dot_free_axes(g, n, which, axes);
  bool ok = collapse(m, out, n_free, axes, &out->free_size, &out->free_stride) &&
            collapse(m, out, sum.n, sum.v, &out->sum_size, &out->sum_stride);
  return ok && (moec_dim_is(m, out->free_stride, 1) || moec_dim_is(m, out->sum_stride, 1) ||
                moec_dim_is(m, out->free_size, 1) || moec_dim_is(m, out->sum_size, 1));
}
