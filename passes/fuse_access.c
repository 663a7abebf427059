/* How a kernel reads a value: for each axis, which of the root's axes select the position.
 *
 * Starting from a root, labels are pushed from a node's result to its operands. They answer two questions: does a
 * reduction have one element a row of the root (then it is computed once a row), and is row r of a value what row r
 * of the root reads (then both can be results of one kernel). */
#include <string.h>

#include "base/file.h"
#include "passes/fuse.h"

static bool unit(const moec_graph *g, moec_dim d) { return moec_dim_is(g->m, d, 1); }

static moec_axis_label vague(uint32_t mask) { return (moec_axis_label){0, 0, mask}; }
static bool is_exact(moec_axis_label l) { return l.hi > l.lo; }

static moec_dim span(const moec_graph *g, moec_type_info t, uint32_t lo, uint32_t hi) {
  moec_dim d = moec_dim_const(g->m, 1);
  for (uint32_t i = lo; i < hi; i++) d = moec_dim_mul(g->m, d, t.dims[i]);
  return d;
}

/* Drops what is not exact after all: an axis of another size than the root axes it follows; sets the signature. */
static moec_access settled(const moec_graph *g, moec_value root, moec_value v, moec_access a, uint64_t sig) {
  moec_type_info t = moec_ty(g, v), r = moec_ty(g, root);
  bool all = true;
  for (uint32_t i = 0; i < t.rank; i++) {
    moec_axis_label *l = &a.axis[i];
    if (unit(g, t.dims[i])) *l = vague(0);
    else if (is_exact(*l) && !moec_dim_eq(t.dims[i], span(g, r, l->lo, l->hi))) *l = vague(l->mask);
    all = all && (is_exact(*l) || l->mask == 0 || l->mask == MOEC_LABEL_LOOP);
  }
  a.sig = all ? moec_hash(MOEC_HASH_SEED, a.axis, t.rank * sizeof a.axis[0]) : sig;
  return a;
}

moec_access moec_access_root(const moec_graph *g, moec_value root) {
  moec_access a = {0};
  for (uint32_t i = 0; i < moec_ty(g, root).rank; i++)
    a.axis[i] = (moec_axis_label){(uint16_t)i, (uint16_t)(i + 1), 1u << i};
  return settled(g, root, root, a, 1);
}

moec_access moec_access_opaque(uint64_t seed) {
  moec_access a = {.sig = seed};
  for (uint32_t i = 0; i < MOEC_MAX_RANK; i++) a.axis[i] = vague(~0u);
  return a;
}

/* ---- reshape: axes fall into groups of equal element counts -------------------------------------- */

typedef struct axes {
  const moec_graph *g;
  moec_type_info t;
  uint32_t at, end; /* the current group: axes at .. end-1 */
} axes;

static moec_dim product(const axes *a) { return span(a->g, a->t, a->at, a->end); }

/* The next smallest group: extends the side that is short. False at the end of both. */
static bool next_group(axes *out, axes *in) {
  out->at = out->end, in->at = in->end;
  if (out->end == out->t.rank && in->end == in->t.rank) return false;
  if (out->end < out->t.rank) out->end++;
  if (in->end < in->t.rank) in->end++;
  for (;;) {
    moec_dim a = product(out), b = product(in);
    if (moec_dim_eq(a, b)) return true;
    bool in_short = moec_dim_known(moec_dim_exact_div(out->g->m, a, b));
    if (in_short && in->end < in->t.rank) in->end++;
    else if (out->end < out->t.rank) out->end++;
    else if (in->end < in->t.rank) in->end++;
    else return true;
  }
}

/* Labels of a group with several axes on a side: |label| are those of the result's axes. */
static void label_group(const axes *out, const axes *in, moec_type_info root, const moec_access *a, moec_access *to) {
  uint32_t mask = 0, lo = UINT32_MAX, hi = 0, n_in = 0, last = 0;
  bool exact = true;
  for (uint32_t i = out->at; i < out->end; i++) {
    moec_axis_label l = a->axis[i];
    mask |= l.mask;
    if (unit(out->g, out->t.dims[i])) continue;
    exact = exact && is_exact(l) && (lo == UINT32_MAX || l.lo == hi);
    if (lo == UINT32_MAX) lo = l.lo;
    hi = l.hi;
  }
  for (uint32_t i = in->at; i < in->end; i++) {
    to->axis[i] = vague(mask);
    if (!unit(in->g, in->t.dims[i])) n_in++, last = i;
  }
  if (!exact || lo == UINT32_MAX) return;
  if (n_in == 1) {
    to->axis[last] = (moec_axis_label){(uint16_t)lo, (uint16_t)hi, mask};
    return;
  }
  /* the operand's axes are the root's own, merged on the way here */
  moec_access split = *to;
  for (uint32_t i = in->at; i < in->end; i++) {
    if (unit(in->g, in->t.dims[i])) continue;
    while (lo < hi && unit(in->g, root.dims[lo])) lo++;
    if (lo == hi || !moec_dim_eq(root.dims[lo], in->t.dims[i])) return;
    split.axis[i] = (moec_axis_label){(uint16_t)lo, (uint16_t)(lo + 1), 1u << lo};
    lo++;
  }
  *to = split;
}

static void through_reshape(const moec_graph *g, moec_value root, moec_node n, const moec_access *a, moec_access *to) {
  axes out = {g, moec_ty(g, moec_out(g, n, 0)), 0, 0}, in = {g, moec_ty(g, moec_in(g, n, 0)), 0, 0};
  while (next_group(&out, &in)) {
    if (out.end == out.at + 1 && in.end == in.at + 1) to->axis[in.at] = a->axis[out.at];
    else label_group(&out, &in, moec_ty(g, root), a, to);
  }
}

/* ---- gathers ---------------------------------------------------------------------------------------- */

static uint32_t masks(const moec_access *a, uint32_t from, uint32_t to) {
  uint32_t mask = 0;
  for (uint32_t i = from; i < to; i++) mask |= a->axis[i].mask;
  return mask;
}

static void through_gather(const moec_graph *g, moec_node n, uint32_t operand, const moec_access *a, moec_access *to) {
  uint32_t axis = (uint32_t)MOEC_ATTRS(g, n, GATHER)->axis;
  uint32_t xr = moec_ty(g, moec_in(g, n, 0)).rank, ir = moec_ty(g, moec_in(g, n, 1)).rank;
  if (operand == 1) {
    for (uint32_t i = 0; i < ir; i++) to->axis[i] = a->axis[axis + i];
    return;
  }
  for (uint32_t i = 0; i < xr; i++) {
    if (i < axis) to->axis[i] = a->axis[i];
    else if (i == axis) to->axis[i] = vague(masks(a, axis, axis + ir));
    else to->axis[i] = a->axis[i - 1 + ir];
  }
}

static void through_gather_nd(const moec_graph *g, moec_node n, uint32_t operand, const moec_access *a,
                              moec_access *to) {
  uint32_t b = (uint32_t)MOEC_ATTRS(g, n, GATHER_ND)->batch_dims;
  moec_type_info x = moec_ty(g, moec_in(g, n, 0)), i = moec_ty(g, moec_in(g, n, 1));
  int64_t q = 1;
  moec_dim_is_const(g->m, i.dims[i.rank - 1], &q);
  if (operand == 1) { /* each place reads its whole index */
    for (uint32_t k = 0; k + 1 < i.rank; k++) to->axis[k] = a->axis[k];
    to->axis[i.rank - 1] = vague(MOEC_LABEL_LOOP);
    return;
  }
  uint32_t picked = b + (uint32_t)q;
  for (uint32_t k = 0; k < x.rank; k++) {
    if (k < b) to->axis[k] = a->axis[k];
    else if (k < picked) to->axis[k] = vague(masks(a, 0, i.rank - 1));
    else to->axis[k] = a->axis[i.rank - 1 + k - picked];
  }
}

/* ---- all ops ------------------------------------------------------------------------------------------ */

static void through_reduce(const moec_graph *g, moec_node n, const moec_access *a, moec_access *to) {
  moec_ints reduced = MOEC_ATTRS(g, n, REDUCE_SUM)->axes; /* the four structs are alike */
  for (uint32_t i = 0, k = 0, j = 0; i < moec_ty(g, moec_in(g, n, 0)).rank; i++) {
    bool gone = j < reduced.n && reduced.v[j] == (int64_t)i;
    to->axis[i] = gone ? vague(MOEC_LABEL_LOOP) : a->axis[k];
    j += gone, k += !gone;
  }
}

static void through_move(const moec_graph *g, moec_value root, moec_node n, const moec_access *a, moec_access *to) {
  switch (moec_op_of(g, n)) {
    case MOEC_OP_RESHAPE: through_reshape(g, root, n, a, to); break;
    case MOEC_OP_TRANSPOSE: {
      moec_ints perm = MOEC_ATTRS(g, n, TRANSPOSE)->perm;
      for (uint32_t i = 0; i < perm.n; i++) to->axis[perm.v[i]] = a->axis[i];
      break;
    }
    case MOEC_OP_BROADCAST: {
      moec_ints map = MOEC_ATTRS(g, n, BROADCAST)->map;
      for (uint32_t i = 0; i < map.n; i++) to->axis[i] = a->axis[map.v[i]];
      break;
    }
    case MOEC_OP_REVERSE: {
      moec_ints reversed = MOEC_ATTRS(g, n, REVERSE)->axes;
      *to = *a;
      for (uint32_t i = 0; i < reversed.n; i++) to->axis[reversed.v[i]] = vague(a->axis[reversed.v[i]].mask);
      break;
    }
    default: *to = *a; /* slice, pad, concat: sizes tell */
  }
}

moec_access moec_access_operand(const moec_graph *g, moec_value root, moec_node n, uint32_t i, const moec_access *out) {
  const moec_node_info *p = moec_node_get(g, n);
  moec_access to = {0};
  moec_op_class c = moec_op_cls(p->op);
  if (moec_op_is_elementwise(p->op)) return *out;
  if (c == MOEC_CLASS_REDUCE) {
    through_reduce(g, n, out, &to);
  } else if (c == MOEC_CLASS_MOVE) {
    if (p->op != MOEC_OP_PAD || i == 0) through_move(g, root, n, out, &to);
  } else if (p->op == MOEC_OP_GATHER) {
    through_gather(g, n, i, out, &to);
  } else if (p->op == MOEC_OP_GATHER_ND) {
    through_gather_nd(g, n, i, out, &to);
  } else { /* gather_elements */
    uint32_t axis = (uint32_t)MOEC_ATTRS(g, n, GATHER_ELEMENTS)->axis, rank = moec_ty(g, moec_out(g, n, 0)).rank;
    to = *out;
    if (i == 0) to.axis[axis] = vague(masks(out, 0, rank));
  }
  uint64_t sig = moec_hash(out->sig, &p->op, sizeof p->op);
  sig = moec_attrs_hash(moec_hash(sig, &i, sizeof i), p->op, p->attrs);
  return settled(g, root, moec_in(g, n, i), to, sig);
}

/* ---- questions ------------------------------------------------------------------------------------------ */

int moec_access_rows(const moec_graph *g, moec_value root, moec_value v, const moec_access *a) {
  moec_type_info t = moec_ty(g, v), r = moec_ty(g, root);
  uint32_t used = 0;
  int rows = 0;
  for (uint32_t i = 0; i < t.rank; i++) {
    moec_axis_label l = a->axis[i];
    if (unit(g, t.dims[i])) continue;
    if (!is_exact(l)) return -1;
    for (uint32_t k = l.lo; k < l.hi; k++) {
      if (used >> k & 1) return -1;
      used |= 1u << k;
      if ((int)k >= rows) rows = (int)k + 1;
    }
  }
  for (int k = 0; k < rows; k++)
    if (!(used >> k & 1) && !unit(g, r.dims[k])) return -1;
  return rows;
}

bool moec_access_aligned(const moec_graph *g, moec_value root, int kr, moec_value v, int kv, const moec_access *a) {
  moec_type_info t = moec_ty(g, v), r = moec_ty(g, root);
  int next = 0;
  for (int i = 0; i < kv; i++) {
    moec_axis_label l = a->axis[i];
    if (unit(g, t.dims[i])) continue;
    if (!is_exact(l)) return false;
    while (next < l.lo && unit(g, r.dims[next])) next++;
    if (l.lo != next || l.hi > kr) return false;
    next = l.hi;
  }
  for (; next < kr; next++)
    if (!unit(g, r.dims[next])) return false;
  return true;
}
