/* Type inference of gather, scatter, contractions, ordering and control. */
#include "ir/infer.h"

static moec_status *check_index(moec_module *m, moec_type t) {
  moec_dtype d = moec_type_get(m, t).dtype;
  return d == MOEC_I64 || d == MOEC_I32 ? NULL : BAD("expected i64 or i32 indices, got %s", moec_type_text(m, t));
}

INFER(gather) {
  UNUSED_INFER_ARGS;
  int64_t axis = ((const moec_attrs_GATHER *)attrs)->axis;
  moec_type_info x = moec_type_get(m, in[0]), i = moec_type_get(m, in[1]);
  MOEC_TRY(check_index(m, in[1]));
  MOEC_TRY(moec_check_axis(axis, x.rank, "axis"));
  if (x.rank + i.rank - 1 > MOEC_MAX_RANK) return BAD("expected rank at most %d", MOEC_MAX_RANK);
  moec_dim dims[MOEC_MAX_RANK];
  uint32_t n = 0;
  for (int64_t k = 0; k < axis; k++) dims[n++] = x.dims[k];
  for (uint32_t k = 0; k < i.rank; k++) dims[n++] = i.dims[k];
  for (uint32_t k = (uint32_t)axis + 1; k < x.rank; k++) dims[n++] = x.dims[k];
  out[0] = moec_type_make(m, x.dtype, n, dims);
  return NULL;
}

INFER(gather_elements) {
  UNUSED_INFER_ARGS;
  moec_type_info x = moec_type_get(m, in[0]), i = moec_type_get(m, in[1]);
  MOEC_TRY(check_index(m, in[1]));
  MOEC_TRY(moec_check_axis(((const moec_attrs_GATHER_ELEMENTS *)attrs)->axis, x.rank, "axis"));
  MOEC_TRY(moec_check_rank(m, in[1], x.rank, "indices"));
  out[0] = moec_type_make(m, x.dtype, i.rank, i.dims);
  return NULL;
}

/* Last axis of the index tensor, a constant in 1..limit. */
static moec_status *index_depth(moec_module *m, moec_type t, uint32_t limit, int64_t *out_q) {
  moec_type_info i = moec_type_get(m, t);
  if (i.rank == 0 || !moec_dim_is_const(m, i.dims[i.rank - 1], out_q) || *out_q < 1 || *out_q > (int64_t)limit)
    return BAD("expected indices whose last axis is a constant in 1..%u, got %s", limit, moec_type_text(m, t));
  return NULL;
}

INFER(gather_nd) {
  UNUSED_INFER_ARGS;
  int64_t b = ((const moec_attrs_GATHER_ND *)attrs)->batch_dims, q;
  moec_type_info x = moec_type_get(m, in[0]), i = moec_type_get(m, in[1]);
  MOEC_TRY(check_index(m, in[1]));
  if (b < 0 || b >= (int64_t)x.rank || b >= (int64_t)i.rank) return BAD("batch_dims %lld out of range", (long long)b);
  MOEC_TRY(index_depth(m, in[1], x.rank - (uint32_t)b, &q));
  moec_dim dims[2 * MOEC_MAX_RANK];
  uint32_t n = 0;
  for (uint32_t k = 0; k + 1 < i.rank; k++) dims[n++] = i.dims[k];
  for (uint32_t k = (uint32_t)(b + q); k < x.rank; k++) dims[n++] = x.dims[k];
  if (n > MOEC_MAX_RANK) return BAD("expected rank at most %d", MOEC_MAX_RANK);
  out[0] = moec_type_make(m, x.dtype, n, dims);
  return NULL;
}

static moec_status *check_reduction(int64_t r) {
  return r >= 0 && r <= 4 ? NULL : BAD("expected a reduction in 0..4, got %lld", (long long)r);
}

INFER(scatter_elements) {
  UNUSED_INFER_ARGS;
  const moec_attrs_SCATTER_ELEMENTS *a = attrs;
  moec_type_info x = moec_type_get(m, in[0]), u = moec_type_get(m, in[2]);
  MOEC_TRY(check_index(m, in[1]));
  MOEC_TRY(check_reduction(a->reduction));
  MOEC_TRY(moec_check_axis(a->axis, x.rank, "axis"));
  if (moec_type_with_dtype(m, in[1], x.dtype).i != in[2].i || u.rank != x.rank)
    return BAD("expected indices and updates of one shape and the operand's rank, got %s and %s",
               moec_type_text(m, in[1]), moec_type_text(m, in[2]));
  out[0] = in[0];
  return NULL;
}

INFER(scatter_nd) {
  UNUSED_INFER_ARGS;
  moec_type_info x = moec_type_get(m, in[0]), i = moec_type_get(m, in[1]), u = moec_type_get(m, in[2]);
  int64_t q;
  MOEC_TRY(check_index(m, in[1]));
  MOEC_TRY(check_reduction(((const moec_attrs_SCATTER_ND *)attrs)->reduction));
  MOEC_TRY(index_depth(m, in[1], x.rank, &q));
  if (u.dtype != x.dtype || u.rank != i.rank - 1 + x.rank - (uint32_t)q)
    return BAD("expected updates of rank %u and dtype of the operand, got %s", i.rank - 1 + x.rank - (uint32_t)q,
               moec_type_text(m, in[2]));
  for (uint32_t k = 0; k < u.rank; k++)
    MOEC_TRY(
        moec_check_dims(m, u.dims[k], k + 1 < i.rank ? i.dims[k] : x.dims[(uint32_t)q + k + 1 - i.rank], "updates"));
  out[0] = in[0];
  return NULL;
}

/* ---- contractions ------------------------------------------------------------------------- */

/* Marks |axes| in a bit set; an axis named twice is an error. */
static moec_status *mark_axes(moec_ints axes, uint32_t rank, const char *what, uint32_t *mask) {
  for (uint32_t i = 0; i < axes.n; i++) {
    MOEC_TRY(moec_check_axis(axes.v[i], rank, what));
    if (*mask >> axes.v[i] & 1) return BAD("%s: axis %lld stands twice", what, (long long)axes.v[i]);
    *mask |= 1u << axes.v[i];
  }
  return NULL;
}

INFER(dot) {
  UNUSED_INFER_ARGS;
  const moec_attrs_DOT *a = attrs;
  moec_type_info x = moec_type_get(m, in[0]), y = moec_type_get(m, in[1]);
  uint32_t used_x = 0, used_y = 0, n = 0;
  if (x.dtype != y.dtype)
    return BAD("expected operands of one dtype, got %s and %s", moec_type_text(m, in[0]), moec_type_text(m, in[1]));
  if (a->lhs_batch.n != a->rhs_batch.n || a->lhs_contract.n != a->rhs_contract.n)
    return BAD("expected batch and contract lists of equal lengths on both sides");
  MOEC_TRY(mark_axes(a->lhs_batch, x.rank, "lhs_batch", &used_x));
  MOEC_TRY(mark_axes(a->lhs_contract, x.rank, "lhs_contract", &used_x));
  MOEC_TRY(mark_axes(a->rhs_batch, y.rank, "rhs_batch", &used_y));
  MOEC_TRY(mark_axes(a->rhs_contract, y.rank, "rhs_contract", &used_y));
  moec_dim dims[2 * MOEC_MAX_RANK];
  for (uint32_t i = 0; i < a->lhs_batch.n; i++) {
    MOEC_TRY(moec_check_dims(m, x.dims[a->lhs_batch.v[i]], y.dims[a->rhs_batch.v[i]], "batch"));
    dims[n++] = x.dims[a->lhs_batch.v[i]];
  }
  for (uint32_t i = 0; i < a->lhs_contract.n; i++)
    MOEC_TRY(moec_check_dims(m, x.dims[a->lhs_contract.v[i]], y.dims[a->rhs_contract.v[i]], "contract"));
  for (uint32_t i = 0; i < x.rank; i++)
    if (!(used_x >> i & 1)) dims[n++] = x.dims[i];
  for (uint32_t i = 0; i < y.rank; i++)
    if (!(used_y >> i & 1)) dims[n++] = y.dims[i];
  if (n > MOEC_MAX_RANK) return BAD("expected rank at most %d", MOEC_MAX_RANK);
  MOEC_TRY(moec_check_result(x.dtype, a->dtype));
  out[0] = moec_type_make(m, a->dtype ? a->dtype : x.dtype, n, dims);
  return NULL;
}

INFER(conv) {
  UNUSED_INFER_ARGS;
  const moec_attrs_CONV *a = attrs;
  moec_type_info x = moec_type_get(m, in[0]), w = moec_type_get(m, in[1]);
  if (x.rank < 3 || w.rank != x.rank) return BAD("expected operands of equal rank, at least 3");
  uint32_t d = x.rank - 2;
  if (a->strides.n != d || a->dilations.n != d || a->pads.n != 2 * d)
    return BAD("expected %u strides and dilations and %u pads", d, 2 * d);
  if (a->groups < 1) return BAD("expected groups of at least 1, got %lld", (long long)a->groups);
  MOEC_TRY(moec_check_dims(m, x.dims[1], moec_dim_mul(m, w.dims[1], moec_dim_const(m, a->groups)), "channels"));
  moec_dim dims[MOEC_MAX_RANK] = {x.dims[0], w.dims[0]};
  for (uint32_t i = 0; i < d; i++) {
    if (a->strides.v[i] < 1 || a->dilations.v[i] < 1) return BAD("expected strides and dilations of at least 1");
    moec_dim one = moec_dim_const(m, 1);
    moec_dim span = moec_dim_mul(m, moec_dim_sub(m, w.dims[i + 2], one), moec_dim_const(m, a->dilations.v[i]));
    moec_dim pads = moec_dim_add(m, moec_dim_const(m, a->pads.v[i]), moec_dim_const(m, a->pads.v[i + d]));
    moec_dim room = moec_dim_add(m, x.dims[i + 2], pads);
    room = moec_dim_sub(m, moec_dim_sub(m, room, span), one);
    dims[i + 2] = moec_dim_add(m, moec_dim_floordiv(m, room, moec_dim_const(m, a->strides.v[i])), one);
    if (!moec_dim_known(dims[i + 2])) return BAD("size of axis %u is unknown", i + 2);
  }
  out[0] = moec_type_make(m, x.dtype, x.rank, dims);
  return NULL;
}

INFER(topk) {
  UNUSED_INFER_ARGS;
  const moec_attrs_TOPK *a = attrs;
  moec_type_info t = moec_type_get(m, in[0]);
  MOEC_TRY(moec_check_axis(a->axis, t.rank, "axis"));
  int64_t k, have;
  if (!moec_dim_known(a->k)) return BAD("k is unknown");
  if (moec_dim_is_const(m, a->k, &k) && (k < 0 || (moec_dim_is_const(m, t.dims[a->axis], &have) && k > have)))
    return BAD("k = %lld exceeds axis %lld of %s", (long long)k, (long long)a->axis, moec_type_text(m, in[0]));
  moec_dim dims[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < t.rank; i++) dims[i] = (int64_t)i == a->axis ? a->k : t.dims[i];
  out[0] = moec_type_make(m, t.dtype, t.rank, dims);
  out[1] = moec_type_make(m, MOEC_I64, t.rank, dims);
  return NULL;
}

/* ---- control ------------------------------------------------------------------------------ */

static moec_status *get_fn(moec_module *m, moec_fn f, const char *what, const moec_graph **out) {
  if (f.i == 0 || f.i >= m->n_fns) return BAD("%s: expected a function, got number %u", what, f.i);
  *out = m->fns[f.i];
  return NULL;
}

/* Operand types in[0..n) must be those of the function's inputs from |first| on. */
static moec_status *match_inputs(moec_module *m, const moec_graph *g, size_t first, uint32_t n, const moec_type *in) {
  if (g->n_inputs != first + n)
    return BAD("@\"%s\": expected %zu operands, got %zu", moec_sym_str(m, g->name), g->n_inputs, first + n);
  for (uint32_t i = 0; i < n; i++) {
    moec_type want = g->values[g->inputs[first + i].i].type;
    if (want.i != in[i].i)
      return BAD("@\"%s\": operand %u: expected %s, got %s", moec_sym_str(m, g->name), i, moec_type_text(m, want),
                 in[i].i ? moec_type_text(m, in[i]) : "nothing");
  }
  return NULL;
}

static moec_status *copy_outputs(moec_module *m, const moec_graph *g, size_t first, uint32_t n, moec_type *out) {
  if (g->n_outputs != first + n)
    return BAD("@\"%s\": expected %zu results, got %zu", moec_sym_str(m, g->name), g->n_outputs, first + n);
  for (uint32_t i = 0; i < n; i++) out[i] = g->values[g->outputs[first + i].i].type;
  return NULL;
}

INFER(call) {
  UNUSED_INFER_ARGS;
  const moec_graph *g = NULL;
  MOEC_TRY(get_fn(m, ((const moec_attrs_CALL *)attrs)->fn, "fn", &g));
  MOEC_TRY(match_inputs(m, g, 0, n_in, in));
  return copy_outputs(m, g, 0, n_out, out);
}

INFER(if) {
  UNUSED_INFER_ARGS;
  const moec_attrs_IF *a = attrs;
  const moec_graph *t = NULL, *e = NULL;
  moec_type other;
  if (in[0].i != moec_type_scalar(m, MOEC_BOOL).i) return BAD("expected a bool scalar as condition");
  MOEC_TRY(get_fn(m, a->then_fn, "then_fn", &t));
  MOEC_TRY(get_fn(m, a->else_fn, "else_fn", &e));
  MOEC_TRY(match_inputs(m, t, 0, n_in - 1, in + 1));
  MOEC_TRY(match_inputs(m, e, 0, n_in - 1, in + 1));
  MOEC_TRY(copy_outputs(m, t, 0, n_out, out));
  if (e->n_outputs != n_out) return BAD("expected both branches to have %u results", n_out);
  for (uint32_t i = 0; i < n_out; i++) {
    other = e->values[e->outputs[i].i].type;
    if (other.i != out[i].i)
      return BAD("result %u: branches have types %s and %s", i, moec_type_text(m, out[i]), moec_type_text(m, other));
  }
  return NULL;
}

INFER(loop) {
  UNUSED_INFER_ARGS;
  const moec_attrs_LOOP *a = attrs;
  const moec_graph *g = NULL;
  MOEC_TRY(get_fn(m, a->body, "body", &g));
  if (a->carried < 0 || a->carried > n_in - 2 || a->carried > n_out)
    return BAD("carried: expected at most %u, got %lld", n_in - 2, (long long)a->carried);
  uint32_t c = (uint32_t)a->carried;
  if (n_out > c && !moec_dim_known(a->trips)) return BAD("scanned results need a known trip count");
  MOEC_TRY(match_inputs(m, g, 2, n_in - 2, in + 2));
  if (g->n_outputs != 1 + n_out) return BAD("body: expected %u results, got %zu", 1 + n_out, g->n_outputs);
  for (uint32_t i = 0; i < c; i++) {
    out[i] = g->values[g->outputs[1 + i].i].type;
    if (out[i].i != in[2 + i].i) return BAD("carried value %u changes its type in the body", i);
  }
  for (uint32_t i = c; i < n_out; i++) {
    moec_type_info t = moec_ty(g, g->outputs[1 + i]);
    moec_dim dims[MOEC_MAX_RANK + 1];
    if (t.rank + 1 > MOEC_MAX_RANK) return BAD("expected rank at most %d", MOEC_MAX_RANK);
    dims[0] = a->trips;
    for (uint32_t k = 0; k < t.rank; k++) dims[k + 1] = t.dims[k];
    out[i] = moec_type_make(m, t.dtype, t.rank + 1, dims);
  }
  return NULL;
}
