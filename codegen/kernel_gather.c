/* Gathers: a coordinate that is itself a loaded value. */
#include <string.h>

#include "codegen/kernel_build.h"

/* The coordinate that value |i| gives along an axis of size |n|. */
static moec_kcoord wrapped(moec_kpool *p, moec_kx i, moec_dim n, moec_kx guard) {
  int64_t size;
  moec_kcoord c = {moec_kx_wrap(p, i, n, guard), {0}};
  /* An axis that may be empty has no element to clamp to. */
  if (!moec_dim_is_const(p->m, n, &size) || size < 1)
    c.guard = moec_kx_apply(p, MOEC_OP_GT, MOEC_BOOL, 2,
                            (moec_kx[]){moec_kx_size(p, n), moec_kx_i64(p, 0)});
  return c;
}

static moec_kx guards(moec_kpool *p, const moec_kcoord *index, uint32_t n) {
  moec_kx g = {0};
  for (uint32_t i = 0; i < n; i++)
    if (index[i].guard.i) g = moec_kx_and(p, g, index[i].guard);
  return g;
}

static moec_kx gather(moec_keval *ev, moec_node n, const moec_kcoord *index) {
  moec_kpool *p = ev->p;
  moec_value x = moec_in(ev->fn, n, 0), i = moec_in(ev->fn, n, 1);
  moec_type_info tx = moec_ty(ev->fn, x), ti = moec_ty(ev->fn, i);
  uint32_t axis = (uint32_t)MOEC_ATTRS(ev->fn, n, GATHER)->axis;
  moec_kcoord at[MOEC_MAX_RANK];
  for (uint32_t k = 0; k < axis; k++) at[k] = index[k];
  for (uint32_t k = axis + 1; k < tx.rank; k++) at[k] = index[k - 1 + ti.rank];
  const moec_kcoord *ai = ti.rank ? index + axis : NULL;
  at[axis] = wrapped(p, moec_keval_at(ev, i, ai), tx.dims[axis], guards(p, ai, ti.rank));
  return moec_keval_at(ev, x, at);
}

static moec_kx gather_elements(moec_keval *ev, moec_node n, const moec_kcoord *index) {
  moec_kpool *p = ev->p;
  moec_value x = moec_in(ev->fn, n, 0);
  moec_type_info t = moec_ty(ev->fn, x);
  uint32_t axis = (uint32_t)MOEC_ATTRS(ev->fn, n, GATHER_ELEMENTS)->axis;
  moec_kcoord at[MOEC_MAX_RANK];
  memcpy(at, index, t.rank * sizeof *at);
  at[axis] = wrapped(p, moec_keval_at(ev, moec_in(ev->fn, n, 1), index), t.dims[axis],
                     guards(p, index, t.rank));
  return moec_keval_at(ev, x, at);
}

static moec_kx gather_nd(moec_keval *ev, moec_node n, const moec_kcoord *index) {
  moec_kpool *p = ev->p;
  moec_value x = moec_in(ev->fn, n, 0), i = moec_in(ev->fn, n, 1);
  moec_type_info tx = moec_ty(ev->fn, x), ti = moec_ty(ev->fn, i);
  uint32_t batch = (uint32_t)MOEC_ATTRS(ev->fn, n, GATHER_ND)->batch_dims;
  int64_t q = 0; /* coordinates an index gives */
  moec_dim_is_const(p->m, ti.dims[ti.rank - 1], &q);
  moec_kcoord at[MOEC_MAX_RANK], ai[MOEC_MAX_RANK];
  for (uint32_t k = 0; k < batch; k++) at[k] = index[k];
  for (uint32_t k = 0; k + 1 < ti.rank; k++) ai[k] = index[k];
  moec_kx guard = guards(p, index, ti.rank - 1);
  for (uint32_t k = 0; k < (uint32_t)q; k++) {
    ai[ti.rank - 1] = (moec_kcoord){moec_kx_i64(p, k), {0}};
    at[batch + k] = wrapped(p, moec_keval_at(ev, i, ai), tx.dims[batch + k], guard);
  }
  for (uint32_t k = batch + (uint32_t)q; k < tx.rank; k++)
    at[k] = index[ti.rank - 1 + k - batch - (uint32_t)q];
  return moec_keval_at(ev, x, at);
}

moec_kx moec_keval_gather(moec_keval *ev, moec_node n, const moec_kcoord *index) {
  switch (moec_op_of(ev->fn, n)) {
    case MOEC_OP_GATHER: return gather(ev, n, index);
    case MOEC_OP_GATHER_ELEMENTS: return gather_elements(ev, n, index);
    case MOEC_OP_GATHER_ND: return gather_nd(ev, n, index);
    default:
      moec_kpool_fail(ev->p,
                      moec_error(MOEC_UNSUPPORTED, "kernel: %s is not an op of fused functions",
                                 moec_op_get(moec_op_of(ev->fn, n))->text));
      return moec_kx_i64(ev->p, 0);
  }
}
