/* Importers: movement. Targets of reshape, expand and slice are dims by now. */
#include <stdlib.h>
#include <string.h>

#include "frontend/ops.h"

/* Operand 0 with its type; an error when it could not be made. */
static moec_status *operand(moec_onnx *n, moec_value *x, moec_type_info *t) {
  *x = moec_onnx_in(n, 0);
  MOEC_TRY(moec_builder_end(n->b));
  if (!x->i) return moec_onnx_bad(n, "operand 0 is missing");
  *t = moec_b_ty(n->b, *x);
  return NULL;
}

static moec_status *check_rank(moec_onnx *n, size_t rank) {
  return rank <= MOEC_MAX_RANK ? NULL : moec_onnx_bad(n, "expected rank at most %d, got %zu", MOEC_MAX_RANK, rank);
}

/* ---- Reshape ------------------------------------------------------------------------------ */

/* The size of the axis given as -1: what the others leave. */
static moec_status *infer_size(moec_onnx *n, moec_dim total, moec_dim rest, moec_dim *out) {
  *out = moec_dim_exact_div(n->m, total, rest);
  if (!out->i) *out = moec_dim_floordiv(n->m, total, rest); /* moec_b_reshape adds the constraint */
  return out->i ? NULL : moec_onnx_bad(n, "the size given as -1 cannot be found: the others multiply to 0");
}

IMPORTER(reshape) {
  moec_value x;
  moec_type_info t;
  moec_dims target;
  moec_dim dims[MOEC_MAX_RANK], rest = moec_dim_const(n->m, 1);
  int unknown = -1;
  bool zero_is_zero = moec_attr_int(n, "allowzero", 0) != 0;
  MOEC_TRY(operand(n, &x, &t));
  MOEC_TRY(moec_onnx_content(n, 1, &target));
  MOEC_TRY(check_rank(n, target.n));
  for (uint32_t i = 0; i < target.n; i++) {
    dims[i] = target.v[i];
    int64_t v;
    bool constant = moec_dim_is_const(n->m, dims[i], &v);
    if (constant && v == -1) {
      if (unknown >= 0) return moec_onnx_bad(n, "-1 stands twice in the target shape");
      unknown = (int)i;
      continue;
    }
    if (constant && v < -1) return moec_onnx_bad(n, "size of axis %u is negative: %lld", i, (long long)v);
    if (constant && v == 0 && !zero_is_zero) {
      if (i >= t.rank) return moec_onnx_bad(n, "axis %u is 0 (keep), but the operand has rank %u", i, t.rank);
      dims[i] = t.dims[i];
    }
    rest = moec_dim_mul(n->m, rest, dims[i]);
  }
  moec_dim total = moec_type_numel(n->m, moec_value_get(n->b->g, x)->type);
  if (unknown >= 0) MOEC_TRY(infer_size(n, total, rest, &dims[unknown]));
  return moec_onnx_result(n, moec_b_reshape(n->b, x, target.n, dims));
}

IMPORTER(flatten) {
  moec_value x;
  moec_type_info t;
  MOEC_TRY(operand(n, &x, &t));
  int64_t axis = moec_attr_int(n, "axis", 1);
  if (axis < 0) axis += t.rank;
  if (axis < 0 || axis > (int64_t)t.rank) return moec_onnx_bad(n, "axis %lld is out of range", (long long)axis);
  moec_dim dims[2] = {moec_dim_const(n->m, 1), moec_dim_const(n->m, 1)};
  for (uint32_t i = 0; i < t.rank; i++) dims[i >= axis] = moec_dim_mul(n->m, dims[i >= axis], t.dims[i]);
  return moec_onnx_result(n, moec_b_reshape(n->b, x, 2, dims));
}

IMPORTER(transpose) {
  moec_value x;
  moec_type_info t;
  moec_ints perm;
  int64_t reversed[MOEC_MAX_RANK];
  MOEC_TRY(operand(n, &x, &t));
  if (!moec_attr_ints(n, "perm", &perm)) {
    for (uint32_t i = 0; i < t.rank; i++) reversed[i] = t.rank - 1 - i;
    perm = (moec_ints){t.rank, reversed};
  }
  if (perm.n != t.rank) return moec_onnx_bad(n, "perm: expected %u entries, got %u", t.rank, perm.n);
  return moec_onnx_result(n, moec_b_transpose(n->b, x, perm.v));
}

IMPORTER(squeeze) {
  moec_value x;
  moec_type_info t;
  moec_ints axes;
  bool given;
  moec_dim dims[MOEC_MAX_RANK];
  uint32_t rank = 0, k = 0;
  MOEC_TRY(operand(n, &x, &t));
  MOEC_TRY(moec_onnx_axes(n, "axes", 1, t.rank, &axes, &given));
  for (uint32_t i = 0; i < t.rank; i++) {
    bool named = k < axes.n && axes.v[k] == i;
    k += named;
    if (named && moec_dim_is_const(n->m, t.dims[i], NULL) && !moec_dim_is(n->m, t.dims[i], 1))
      return moec_onnx_bad(n, "axis %u has not size 1", i);
    if (given ? named : moec_dim_is(n->m, t.dims[i], 1)) continue;
    dims[rank++] = t.dims[i];
  }
  return moec_onnx_result(n, moec_b_reshape(n->b, x, rank, dims));
}

IMPORTER(unsqueeze) {
  moec_value x;
  moec_type_info t;
  moec_ints raw, axes;
  bool given;
  moec_dim dims[MOEC_MAX_RANK];
  MOEC_TRY(operand(n, &x, &t));
  if (!moec_attr_ints(n, "axes", &raw)) MOEC_TRY(moec_onnx_ints(n, 1, &raw));
  MOEC_TRY(check_rank(n, (size_t)t.rank + raw.n));
  MOEC_TRY(moec_onnx_axes(n, "axes", 1, t.rank + raw.n, &axes, &given));
  for (uint32_t i = 0, k = 0, j = 0; i < t.rank + raw.n; i++) {
    if (k < axes.n && axes.v[k] == i) dims[i] = moec_dim_const(n->m, 1), k++;
    else dims[i] = t.dims[j++];
  }
  return moec_onnx_result(n, moec_b_reshape(n->b, x, t.rank + raw.n, dims));
}

/* ---- Expand, Tile ------------------------------------------------------------------------- */

IMPORTER(expand) {
  moec_value x;
  moec_type_info t;
  moec_dims target;
  uint32_t rank = 0;
  moec_dim dims[MOEC_MAX_RANK];
  MOEC_TRY(operand(n, &x, &t));
  MOEC_TRY(moec_onnx_content(n, 1, &target));
  MOEC_TRY(check_rank(n, target.n));
  moec_type_info want = {t.dtype, target.n, target.v};
  MOEC_TRY(moec_broadcast_shapes(n->m, t, want, moec_sym_str(n->m, n->b->g->loc), &rank, dims));
  return moec_onnx_result(n, moec_b_broadcast_to(n->b, x, rank, dims));
}

/* Axis i repeated r times: [.., d, ..] to [.., r, d, ..] to [.., r*d, ..]. */
IMPORTER(tile) {
  moec_value x;
  moec_type_info t;
  moec_dims repeats;
  MOEC_TRY(operand(n, &x, &t));
  MOEC_TRY(moec_onnx_content(n, 1, &repeats));
  if (repeats.n != t.rank) return moec_onnx_bad(n, "repeats: expected %u entries, got %u", t.rank, repeats.n);
  moec_dim dims[MOEC_MAX_RANK + 1], final[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < t.rank; i++) final[i] = t.dims[i];
  for (uint32_t i = 0; i < t.rank && !n->b->error; i++) {
    if (moec_dim_is(n->m, repeats.v[i], 1)) continue;
    MOEC_TRY(check_rank(n, t.rank + 1));
    x = moec_b_unsqueeze(n->b, x, i);
    for (uint32_t k = 0; k <= t.rank; k++) dims[k] = k < i ? final[k] : k == i ? repeats.v[i] : final[k - 1];
    x = moec_b_broadcast_to(n->b, x, t.rank + 1, dims);
    final[i] = moec_dim_mul(n->m, final[i], repeats.v[i]);
    x = moec_b_reshape(n->b, x, t.rank, final);
  }
  return moec_onnx_result(n, x);
}

/* ---- Slice -------------------------------------------------------------------------------- */

/* The bound |v| where |low| <= v <= |high| is wanted. Sizes are taken to be at least 1 in proofs; where that was
 * needed, it becomes a constraint, so a size of 0 is refused rather than misread. */
static moec_dim clamp_up(moec_onnx *n, moec_dim v, moec_dim high) {
  moec_module *m = n->m;
  moec_dim least = moec_dim_min(m, v, high), room = moec_dim_sub(m, high, v);
  if (moec_dim_eq(least, v) || !moec_dim_is_positive(m, moec_dim_add(m, room, moec_dim_const(m, 1)))) return least;
  moec_constrain_equal(m, least, v, moec_sym_str(m, n->b->g->loc), "slice: bounds must lie inside");
  return v;
}

static moec_dim clamp_down(moec_onnx *n, moec_dim v) {
  moec_module *m = n->m;
  moec_dim most = moec_dim_max(m, v, moec_dim_const(m, 0));
  if (moec_dim_eq(most, v) || !moec_dim_is_positive(m, moec_dim_add(m, v, moec_dim_const(m, 1)))) return most;
  moec_constrain_equal(m, most, v, moec_sym_str(m, n->b->g->loc), "slice: bounds must lie inside");
  return v;
}

/* A bound counted from the start and clamped to 0..size. Symbolic bounds that are negative for some sizes only have no
 * one meaning: those sizes are refused. */
static moec_dim bound(moec_onnx *n, moec_dim v, moec_dim size) {
  moec_module *m = n->m;
  moec_dim zero = moec_dim_const(m, 0);
  int64_t c, s;
  bool constant = moec_dim_is_const(m, v, &c);
  if (constant && moec_dim_is_const(m, size, &s)) {
    if (c < 0) c = c < -s ? 0 : c + s;
    return moec_dim_const(m, c > s ? s : c);
  }
  if (constant && c >= INT32_MAX) return size;
  if (constant && c <= -INT32_MAX) return zero;
  if (constant ? c < 0 : moec_dim_is_positive(m, moec_dim_sub(m, zero, v)))
    return clamp_down(n, clamp_up(n, moec_dim_add(m, size, v), size));
  if (!moec_dim_is_nonneg(m, v)) {
    moec_dim inside = moec_dim_max(m, v, zero);
    moec_constrain_equal(m, inside, v, moec_sym_str(m, n->b->g->loc),
                         "slice: a bound must be negative for all sizes or for none");
  }
  return clamp_up(n, v, size);
}

typedef struct slicing {
  moec_dim start[MOEC_MAX_RANK], size[MOEC_MAX_RANK];
  int64_t step[MOEC_MAX_RANK], reversed[MOEC_MAX_RANK];
  uint32_t n_reversed;
} slicing;

static moec_status *slice_axis(moec_onnx *n, slicing *s, uint32_t axis, moec_dim start, moec_dim end, int64_t step) {
  moec_module *m = n->m;
  moec_dim size = s->size[axis], zero = moec_dim_const(m, 0);
  if (step == 0) return moec_onnx_bad(n, "a step of 0");
  if (step < 0) { /* from the end: the same slice of the reversed axis */
    int64_t a, b, d;
    if (!moec_dim_is_const(m, start, &a) || !moec_dim_is_const(m, end, &b))
      return moec_onnx_unsupported(n, "a negative step with ends that are not constant");
    if (step < -INT32_MAX) step = -INT32_MAX; /* one element either way */
    bool whole = (a == -1 || a >= INT32_MAX) && b <= -INT32_MAX;
    if (!whole) {
      if (!moec_dim_is_const(m, size, &d))
        return moec_onnx_unsupported(n, "a negative step on an axis of symbolic size");
      a = a < 0 ? (a < -d ? -1 : a + d) : a, b = b < 0 ? (b < -d ? -1 : b + d) : b;
      a = a >= d ? d - 1 : a, b = b >= d ? d - 1 : b;
      start = moec_dim_const(m, d - 1 - a), end = moec_dim_const(m, d - 1 - b);
    } else {
      start = zero, end = size;
    }
    s->reversed[s->n_reversed++] = axis;
    step = -step;
  } else {
    start = bound(n, start, size), end = bound(n, end, size);
  }
  moec_dim span = moec_dim_sub(m, end, start);
  moec_dim count = moec_dim_ceildiv(m, span, moec_dim_const(m, step));
  s->start[axis] = start, s->step[axis] = step;
  s->size[axis] = moec_dim_is_positive(m, count) ? count : moec_dim_max(m, count, zero);
  return s->size[axis].i ? NULL : moec_onnx_unsupported(n, "the size of axis %u cannot be found", axis);
}

static int by_value(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Operands of opset 10 and later, attributes before. */
static moec_status *slice_lists(moec_onnx *n, uint32_t rank, moec_dims *starts, moec_dims *ends, moec_ints *axes,
                                moec_ints *steps) {
  int64_t *all = MOEC_NEW_ARRAY(n->m->arena, int64_t, MOEC_MAX_RANK);
  moec_ints a, b;
  if (moec_attr_ints(n, "starts", &a) && moec_attr_ints(n, "ends", &b)) {
    moec_dim *s = MOEC_NEW_ARRAY(n->m->arena, moec_dim, a.n + 1), *e = MOEC_NEW_ARRAY(n->m->arena, moec_dim, b.n + 1);
    for (uint32_t i = 0; i < a.n; i++) s[i] = moec_dim_const(n->m, a.v[i]);
    for (uint32_t i = 0; i < b.n; i++) e[i] = moec_dim_const(n->m, b.v[i]);
    *starts = (moec_dims){a.n, s}, *ends = (moec_dims){b.n, e};
    moec_attr_ints(n, "axes", axes);
  } else {
    MOEC_TRY(moec_onnx_content(n, 1, starts));
    MOEC_TRY(moec_onnx_content(n, 2, ends));
    if (moec_onnx_has(n, 3)) MOEC_TRY(moec_onnx_ints(n, 3, axes));
    if (moec_onnx_has(n, 4)) MOEC_TRY(moec_onnx_ints(n, 4, steps));
  }
  if (!axes->n && starts->n) {
    for (uint32_t i = 0; i < starts->n && i < rank; i++) all[i] = i;
    *axes = (moec_ints){starts->n, all};
  }
  if (starts->n != ends->n || axes->n != starts->n || (steps->n && steps->n != starts->n) || starts->n > rank)
    return moec_onnx_bad(n, "expected starts, ends, axes and steps of one length, at most %u", rank);
  return NULL;
}

IMPORTER(slice) {
  moec_value x;
  moec_type_info t;
  moec_dims starts, ends;
  moec_ints axes = {0, NULL}, steps = {0, NULL};
  slicing s = {.n_reversed = 0};
  uint32_t axis, seen = 0;
  MOEC_TRY(operand(n, &x, &t));
  MOEC_TRY(slice_lists(n, t.rank, &starts, &ends, &axes, &steps));
  for (uint32_t i = 0; i < t.rank; i++) s.start[i] = moec_dim_const(n->m, 0), s.size[i] = t.dims[i], s.step[i] = 1;
  for (uint32_t i = 0; i < starts.n; i++) {
    MOEC_TRY(moec_onnx_axis(n, axes.v[i], t.rank, &axis));
    if (seen >> axis & 1) return moec_onnx_bad(n, "axis %u stands twice", axis);
    seen |= 1u << axis;
    MOEC_TRY(slice_axis(n, &s, axis, starts.v[i], ends.v[i], steps.n ? steps.v[i] : 1));
  }
  if (s.n_reversed) {
    qsort(s.reversed, s.n_reversed, sizeof *s.reversed, by_value); /* axes of the op ascend */
    moec_attrs_REVERSE r = {.axes = {s.n_reversed, s.reversed}};
    x = moec_b_op(n->b, MOEC_OP_REVERSE, &r, 1, &x, 1);
  }
  bool all = true;
  for (uint32_t i = 0; i < t.rank; i++)
    all = all && moec_dim_is(n->m, s.start[i], 0) && moec_dim_eq(s.size[i], t.dims[i]) && s.step[i] == 1;
  if (all) return moec_onnx_result(n, x);
  moec_attrs_SLICE a = {.start = {t.rank, s.start}, .size = {t.rank, s.size}, .step = {t.rank, s.step}};
  return moec_onnx_result(n, moec_b_op(n->b, MOEC_OP_SLICE, &a, 1, &x, 1));
}

/* ---- Pad, Concat, Split ------------------------------------------------------------------- */

/* How much to put before and behind each axis; axes are named by operand 3 since opset 18. */
static moec_status *read_pads(moec_onnx *n, uint32_t rank, moec_dim *lo, moec_dim *hi) {
  moec_ints list, axes = {0, NULL};
  moec_dims pads;
  bool named = n->opset >= 18 && moec_onnx_has(n, 3);
  if (moec_attr_ints(n, n->opset < 2 ? "paddings" : "pads", &list)) {
    moec_dim *v = MOEC_NEW_ARRAY(n->m->arena, moec_dim, list.n + 1);
    for (uint32_t i = 0; i < list.n; i++) v[i] = moec_dim_const(n->m, list.v[i]);
    pads = (moec_dims){list.n, v};
  } else {
    MOEC_TRY(moec_onnx_content(n, 1, &pads));
  }
  if (named) MOEC_TRY(moec_onnx_ints(n, 3, &axes));
  uint32_t count = named ? axes.n : rank, axis, seen = 0;
  if (pads.n != 2 * (uint64_t)count) return moec_onnx_bad(n, "pads: expected %u entries, got %u", 2 * count, pads.n);
  for (uint32_t i = 0; i < rank; i++) lo[i] = hi[i] = moec_dim_const(n->m, 0);
  for (uint32_t i = 0; i < count; i++) {
    MOEC_TRY(moec_onnx_axis(n, named ? axes.v[i] : (int64_t)i, rank, &axis));
    if (seen >> axis & 1) return moec_onnx_bad(n, "axis %u stands twice", axis);
    seen |= 1u << axis;
    lo[axis] = pads.v[i], hi[axis] = pads.v[i + count];
  }
  return NULL;
}

/* The constant |pad| of an end: what it cuts, 0 when it doesn't; the rest stays in *pad. Symbolic ones must not cut. */
static moec_status *take_cut(moec_onnx *n, moec_dim *pad, moec_dim *cut) {
  moec_dim zero = moec_dim_const(n->m, 0);
  int64_t v;
  *cut = zero;
  if (moec_dim_is_const(n->m, *pad, &v)) {
    if (v < -INT32_MAX) return moec_onnx_bad(n, "pads: %lld cuts more than any axis has", (long long)v);
    if (v < 0) *cut = moec_dim_const(n->m, -v), *pad = zero;
  } else if (!moec_dim_is_nonneg(n->m, *pad)) {
    moec_dim most = moec_dim_max(n->m, *pad, zero);
    moec_constrain_equal(n->m, most, *pad, moec_sym_str(n->m, n->b->g->loc), "pad: symbolic pads must not be negative");
  }
  return NULL;
}

IMPORTER(pad) {
  moec_value x, v;
  moec_type_info t;
  moec_dim lo[MOEC_MAX_RANK], hi[MOEC_MAX_RANK], cut[2];
  MOEC_TRY(operand(n, &x, &t));
  if (strcmp(moec_attr_string(n, "mode", "constant"), "constant") != 0)
    return moec_onnx_unsupported(n, "mode other than constant");
  MOEC_TRY(read_pads(n, t.rank, lo, hi));
  for (uint32_t i = 0; i < t.rank; i++) {
    MOEC_TRY(take_cut(n, &lo[i], &cut[0]));
    MOEC_TRY(take_cut(n, &hi[i], &cut[1]));
    if (moec_dim_is(n->m, cut[0], 0) && moec_dim_is(n->m, cut[1], 0)) continue;
    moec_dim size = moec_dim_sub(n->m, moec_b_dim(n->b, x, i), moec_dim_add(n->m, cut[0], cut[1]));
    x = moec_b_slice(n->b, x, i, cut[0], size);
    MOEC_TRY(moec_builder_end(n->b));
  }
  if (moec_onnx_has(n, 2)) v = moec_b_reshape(n->b, moec_onnx_in(n, 2), 0, NULL);
  else if (moec_dtype_is_float(t.dtype)) v = moec_b_scalar_f(n->b, t.dtype, moec_attr_float(n, "value", 0));
  else v = moec_b_scalar_i(n->b, t.dtype, 0);
  moec_attrs_PAD a = {.lo = {t.rank, lo}, .hi = {t.rank, hi}};
  moec_value in[2] = {x, v};
  return moec_onnx_result(n, moec_b_op(n->b, MOEC_OP_PAD, &a, 2, in, 1));
}

/* Unequal sizes of the other axes that may agree at run time become constraints. */
IMPORTER(concat) {
  uint32_t count = moec_onnx_n_in(n), axis, k = 0;
  moec_value *in = MOEC_NEW_ARRAY(n->m->arena, moec_value, count + 1);
  for (uint32_t i = 0; i < count; i++) in[i] = moec_onnx_in(n, i);
  MOEC_TRY(moec_builder_end(n->b));
  if (count == 0 || !in[0].i) return moec_onnx_bad(n, "expected operands");
  moec_type_info first = moec_b_ty(n->b, in[0]);
  MOEC_TRY(moec_onnx_axis(n, moec_attr_int(n, "axis", 0), first.rank, &axis));
  for (uint32_t i = 0; i < count; i++) {
    moec_type_info t = moec_b_ty(n->b, in[i]);
    if (t.rank != first.rank) return moec_onnx_bad(n, "operand %u: expected rank %u, got %u", i, first.rank, t.rank);
    moec_dim dims[MOEC_MAX_RANK];
    for (uint32_t j = 0; j < t.rank; j++) {
      dims[j] = j == axis ? t.dims[j] : first.dims[j];
      moec_same_size(n, t.dims[j], dims[j], "concat: sizes of the other axes must be equal");
    }
    if (moec_dim_is(n->m, t.dims[axis], 0) && count > 1) continue; /* nothing to join */
    in[k++] = moec_b_reshape(n->b, in[i], t.rank, dims);
  }
  if (k == 0) k = 1;
  return moec_onnx_result(n, moec_b_concat(n->b, k, in, axis));
}

enum { MAX_PARTS = 65536 };

/* Sizes of the parts along |axis|. */
static moec_status *split_sizes(moec_onnx *n, moec_dim size, uint32_t operand_index, uint32_t parts, moec_dim *out) {
  moec_ints given;
  if (moec_attr_ints(n, "split", &given) || moec_onnx_has(n, operand_index)) {
    if (!given.n) {
      moec_dims d;
      MOEC_TRY(moec_onnx_content(n, operand_index, &d));
      if (d.n != parts) return moec_onnx_bad(n, "split: expected %u sizes, got %u", parts, d.n);
      for (uint32_t i = 0; i < parts; i++) out[i] = d.v[i];
      return NULL;
    }
    if (given.n != parts) return moec_onnx_bad(n, "split: expected %u sizes, got %u", parts, given.n);
    for (uint32_t i = 0; i < parts; i++) out[i] = moec_dim_const(n->m, given.v[i]);
    return NULL;
  }
  moec_dim each = moec_dim_ceildiv(n->m, size, moec_dim_const(n->m, parts)), used = moec_dim_const(n->m, 0);
  for (uint32_t i = 0; i < parts; i++) {
    out[i] = i + 1 < parts ? each : moec_dim_sub(n->m, size, used); /* the last is smaller when it does not come out
                                                                       even */
    used = moec_dim_add(n->m, used, each);
  }
  return NULL;
}

IMPORTER(split) {
  moec_value x;
  moec_type_info t;
  uint32_t axis, parts = (uint32_t)n->p->n_output;
  MOEC_TRY(operand(n, &x, &t));
  MOEC_TRY(moec_onnx_axis(n, moec_attr_int(n, "axis", 0), t.rank, &axis));
  if (parts == 0 || n->p->n_output > MAX_PARTS)
    return moec_onnx_bad(n, "expected 1 to %d results, got %zu", MAX_PARTS, n->p->n_output);
  moec_dim *sizes = MOEC_NEW_ARRAY(n->m->arena, moec_dim, parts + 1), at = moec_dim_const(n->m, 0);
  MOEC_TRY(split_sizes(n, t.dims[axis], 1, parts, sizes));
  for (uint32_t i = 0; i < parts; i++) {
    moec_onnx_out(n, i, moec_b_slice(n->b, x, axis, at, sizes[i]));
    at = moec_dim_add(n->m, at, sizes[i]);
  }
  MOEC_TRY(moec_builder_end(n->b));
  moec_constrain_equal(n->m, at, t.dims[axis], moec_sym_str(n->m, n->b->g->loc),
                       "split: sizes must add up to the axis");
  int64_t a, b;
  if (moec_dim_is_const(n->m, at, &a) && moec_dim_is_const(n->m, t.dims[axis], &b) && a != b)
    return moec_onnx_bad(n, "split: sizes add up to %lld, the axis has %lld", (long long)a, (long long)b);
  return NULL;
}

/* ---- sequences: they exist during import only ---------------------------------------------- */

IMPORTER(split_to_sequence) {
  moec_value x;
  moec_type_info t;
  moec_ints sizes = {0, NULL};
  uint32_t axis;
  int64_t total;
  MOEC_TRY(operand(n, &x, &t));
  MOEC_TRY(moec_onnx_axis(n, moec_attr_int(n, "axis", 0), t.rank, &axis));
  if (moec_onnx_has(n, 1)) MOEC_TRY(moec_onnx_ints(n, 1, &sizes));
  if (!moec_dim_is_const(n->m, t.dims[axis], &total)) return moec_onnx_unsupported(n, "an axis of symbolic size");
  const moec_entry *e = moec_onnx_entry(n, 1);
  int64_t chunk = !e ? 1 : e->rank == 0 && sizes.n == 1 ? sizes.v[0] : 0; /* a scalar: parts of that size */
  if (e && chunk == 0 && e->rank == 0) return moec_onnx_bad(n, "parts of size 0");
  bool keep = e || moec_attr_int(n, "keepdims", 1);
  moec_value *parts = NULL;
  size_t count = 0, cap = 0;
  for (int64_t at = 0; at < total;) {
    int64_t size = chunk ? chunk : count < sizes.n ? sizes.v[count] : 0;
    if (size <= 0 || count == MAX_PARTS)
      return moec_onnx_bad(n, "split: expected at most %d sizes that add up to %lld", MAX_PARTS, (long long)total);
    if (size > total - at) size = total - at;
    moec_value part = moec_b_slice(n->b, x, axis, moec_dim_const(n->m, at), moec_dim_const(n->m, size));
    if (!keep) part = moec_b_squeeze(n->b, part, axis);
    MOEC_PUSH(n->m->arena, parts, count, cap, part);
    at += size;
  }
  MOEC_TRY(moec_builder_end(n->b));
  if (n->p->n_output < 1 || !n->p->output[0][0]) return NULL;
  moec_onnx_out_content(n, 0, MOEC_I64, 0, 0, NULL);
  moec_entry *out = moec_scope_of(n, n->p->output[0]);
  out->known = false;
  out->sequence = parts, out->n_sequence = (uint32_t)count;
  return NULL;
}

IMPORTER(sequence_at) {
  const moec_entry *e = moec_onnx_entry(n, 0);
  moec_ints at;
  if (!e || !e->sequence) return moec_onnx_unsupported(n, "operand 0 must be a sequence made by SplitToSequence");
  MOEC_TRY(moec_onnx_ints(n, 1, &at));
  int64_t i = at.n == 1 ? at.v[0] : INT64_MAX;
  if (i < 0) i += e->n_sequence;
  if (i < 0 || i >= e->n_sequence)
    return moec_onnx_bad(n, "position %lld of a sequence of %u", at.n ? (long long)at.v[0] : 0, e->n_sequence);
  return moec_onnx_result(n, e->sequence[i]);
}
