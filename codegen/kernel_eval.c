/* The element of a value at an index: pulled from the function's outputs back to its inputs. Nothing
 * is materialised here; each (value, index) is evaluated once. */
#include "codegen/kernel_build.h"

#include <string.h>

void moec_keval_init(moec_keval *ev, moec_kpool *p, moec_kernel *k, const moec_graph *fn) {
  *ev = (moec_keval){
      .p = p, .k = k, .fn = fn, .memo = MOEC_NEW_ARRAY(p->arena, moec_kmemo *, fn->n_values)};
}

static moec_kx unsupported(moec_keval *ev, moec_op op) {
  moec_kpool_fail(ev->p, moec_error(MOEC_UNSUPPORTED, "kernel: %s is not an op of fused functions",
                                    moec_op_get(op)->text));
  return moec_kx_i64(ev->p, 0);
}

/* ---- positions ------------------------------------------------------------------------------ */

moec_kcoord moec_kx_flatten(moec_kpool *p, const moec_kcoord *index, moec_type_info t) {
  moec_kcoord r = {moec_kx_i64(p, 0), {0}};
  moec_dim stride = moec_dim_const(p->m, 1);
  for (uint32_t i = t.rank; i-- > 0;) {
    r.e = moec_kx_add(p, r.e, moec_kx_scale(p, index[i].e, stride));
    if (index[i].guard.i) r.guard = moec_kx_and(p, r.guard, index[i].guard);
    stride = moec_dim_mul(p->m, stride, t.dims[i]);
  }
  return r;
}

void moec_kx_unflatten(moec_kpool *p, moec_kcoord flat, moec_type_info t, moec_kcoord *index) {
  for (uint32_t i = t.rank; i-- > 0;) {
    bool first = i == 0; /* the outermost coordinate needs no MOD */
    index[i] = (moec_kcoord){first ? flat.e : moec_kx_mod(p, flat.e, t.dims[i]), flat.guard};
    if (moec_dim_is(p->m, t.dims[i], 1)) index[i].e = moec_kx_i64(p, 0);
    if (!first) flat.e = moec_kx_div(p, flat.e, t.dims[i]);
  }
}

/* ---- leaves --------------------------------------------------------------------------------- */

static moec_kx element_of(moec_kpool *p, moec_dtype t, const void *bytes, size_t i) {
  if (moec_dtype_is_float(t)) return moec_kx_num(p, t, moec_load_f64(t, bytes, i));
  return moec_kx_int(p, t, moec_load_i64(t, bytes, i));
}

static moec_kx constant(moec_keval *ev, moec_node n, const moec_kcoord *index) {
  const moec_const *c = MOEC_ATTRS(ev->fn, n, CONST)->data;
  moec_type_info t = moec_type_get(ev->p->m, c->type);
  size_t size = moec_dtype_get(t.dtype)->bytes, count = c->size / size;
  const char *bytes = c->bytes;
  bool uniform = count > 0;
  for (size_t i = 1; uniform && i < count; i++)
    uniform = memcmp(bytes, bytes + i * size, size) == 0;
  if (uniform) return element_of(ev->p, t.dtype, bytes, 0);
  uint32_t b = ev->k->n_in + ev->k->n_out;
  while (b < ev->k->n_bufs && ev->k->bufs[b].data != c) b++;
  if (b == ev->k->n_bufs)
    MOEC_PUSH(ev->p->arena, ev->k->bufs, ev->k->n_bufs, ev->k->cap_bufs,
              ((moec_kbuf){.dtype = t.dtype, .data = c}));
  moec_kcoord at = moec_kx_flatten(ev->p, index, t);
  return moec_kx_load(ev->p, b, t.dtype, at.e, at.guard);
}

static moec_kx leaf(moec_keval *ev, moec_node n, const moec_kcoord *index) {
  moec_kpool *p = ev->p;
  switch (moec_op_of(ev->fn, n)) {
    case MOEC_OP_CONST: return constant(ev, n, index);
    case MOEC_OP_SIZE: return moec_kx_size(p, MOEC_ATTRS(ev->fn, n, SIZE)->value);
    case MOEC_OP_IOTA: {
      const moec_attrs_IOTA *a = MOEC_ATTRS(ev->fn, n, IOTA);
      moec_kx i = index[a->axis].e;
      return moec_kx_apply(p, MOEC_OP_CAST, a->dtype, 1, &i);
    }
    default: return unsupported(ev, moec_op_of(ev->fn, n));
  }
}

/* ---- reductions ----------------------------------------------------------------------------- */

#define UNROLL 8 /* a reduction of at most so many elements has no loop */

typedef struct reduction {
  moec_op op;
  moec_value x;
  moec_ints axes;
  moec_type_info t;
  moec_kcoord at[MOEC_MAX_RANK]; /* kept coordinates; those of |axes| are filled in */
} reduction;

/* A variable 0 .. n that nothing in |taken| uses. Equal ranges give equal variables, so that two
 * passes over a row have equal expressions. */
static moec_kx fresh_var(moec_kpool *p, moec_dim n, uint64_t taken) {
  for (uint32_t copy = 0;; copy++) {
    moec_kx v = moec_kx_var(p, MOEC_KVAR_LOOP, moec_dim_const(p->m, 0), n, copy);
    if (!(moec_kx_get(p, v)->vars & taken) || p->error) return v;
  }
}

static uint64_t vars_of(const moec_kpool *p, const moec_kcoord *index, uint32_t rank) {
  uint64_t vars = 0;
  for (uint32_t i = 0; i < rank; i++) {
    vars |= moec_kx_get(p, index[i].e)->vars;
    if (index[i].guard.i) vars |= moec_kx_get(p, index[i].guard)->vars;
  }
  return vars;
}

static moec_kx unrolled(moec_keval *ev, reduction *r, uint32_t axis, moec_kx sum) {
  moec_kpool *p = ev->p;
  int64_t n = 0;
  if (axis == r->axes.n) {
    moec_kx x = moec_keval_at(ev, r->x, r->at), both[2] = {sum, x};
    moec_dtype t = moec_kx_get(p, x)->dtype;
    return sum.i ? moec_kx_apply(p, moec_kx_join(r->op, t), t, 2, both) : x;
  }
  moec_dim_is_const(p->m, r->t.dims[r->axes.v[axis]], &n);
  for (int64_t i = 0; i < n; i++) {
    r->at[r->axes.v[axis]] = (moec_kcoord){moec_kx_i64(p, i), {0}};
    sum = unrolled(ev, r, axis + 1, sum);
  }
  return sum;
}

/* One loop over all reduced axes, which are adjacent; {0} when the coordinates don't come apart. */
static moec_kx one_loop(moec_keval *ev, reduction *r, uint64_t taken) {
  moec_kpool *p = ev->p;
  moec_type_info flat = {r->t.dtype, r->axes.n, r->t.dims + r->axes.v[0]};
  moec_dim n = moec_dim_const(p->m, 1);
  for (uint32_t i = 0; i < flat.rank; i++) n = moec_dim_mul(p->m, n, flat.dims[i]);
  moec_kx v = fresh_var(p, n, taken);
  moec_kx_unflatten(p, (moec_kcoord){v, {0}}, flat, r->at + r->axes.v[0]);
  moec_kx body = moec_keval_at(ev, r->x, r->at);
  if (flat.rank > 1 && (moec_kx_get(p, body)->divs & moec_kx_get(p, v)->vars)) return (moec_kx){0};
  return moec_kx_reduce(p, r->op, v, body);
}

static moec_kx nested_loops(moec_keval *ev, reduction *r, uint64_t taken) {
  moec_kpool *p = ev->p;
  moec_kx vars[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < r->axes.n; i++) {
    vars[i] = fresh_var(p, r->t.dims[r->axes.v[i]], taken);
    taken |= moec_kx_get(p, vars[i])->vars;
    r->at[r->axes.v[i]] = (moec_kcoord){vars[i], {0}};
  }
  moec_kx e = moec_keval_at(ev, r->x, r->at);
  for (uint32_t i = r->axes.n; i-- > 0;) e = moec_kx_reduce(p, r->op, vars[i], e);
  return e;
}

static moec_kx reduce(moec_keval *ev, moec_node n, const moec_kcoord *index) {
  moec_kpool *p = ev->p;
  reduction r = {.op = moec_op_of(ev->fn, n), .x = moec_in(ev->fn, n, 0)};
  r.axes = MOEC_ATTRS(ev->fn, n, REDUCE_SUM)->axes; /* the four structs are alike */
  r.t = moec_ty(ev->fn, r.x);
  uint64_t taken = vars_of(p, index, r.t.rank - r.axes.n);
  bool adjacent = true, fixed = true;
  int64_t count = 1;
  for (uint32_t i = 0, kept = 0, k = 0; i < r.t.rank; i++) {
    if (k == r.axes.n || r.axes.v[k] != (int64_t)i) {
      r.at[i] = index[kept++];
      continue;
    }
    int64_t size = 0;
    adjacent = adjacent && (k == 0 || r.axes.v[k - 1] == (int64_t)i - 1);
    fixed = fixed && moec_dim_is_const(p->m, r.t.dims[i], &size) && size <= UNROLL;
    count *= fixed ? size : 1;
    k++;
  }
  if (fixed && count == 0) return moec_kx_start(p, r.op, moec_kx_dtype(r.t.dtype));
  if (fixed && count <= UNROLL) return unrolled(ev, &r, 0, (moec_kx){0});
  moec_kx e = adjacent ? one_loop(ev, &r, taken) : (moec_kx){0};
  return e.i ? e : nested_loops(ev, &r, taken);
}

/* ---- all ops -------------------------------------------------------------------------------- */

static moec_kx elementwise(moec_keval *ev, moec_node n, moec_dtype t, const moec_kcoord *index) {
  moec_kx args[3] = {{0}};
  uint32_t n_in = moec_node_get(ev->fn, n)->n_in;
  for (uint32_t i = 0; i < n_in && i < 3; i++)
    args[i] = moec_keval_at(ev, moec_in(ev->fn, n, i), index);
  moec_op op = moec_op_of(ev->fn, n);
  return moec_kx_apply(ev->p, op, op == MOEC_OP_CAST ? t : moec_kx_dtype(t), n_in, args);
}

static moec_kx compute(moec_keval *ev, moec_value v, moec_type_info t, const moec_kcoord *index) {
  const moec_value_info *info = moec_value_get(ev->fn, v);
  if (!info->def.i) {
    moec_kcoord at = moec_kx_flatten(ev->p, index, t);
    return moec_kx_load(ev->p, info->slot, t.dtype, at.e, at.guard);
  }
  moec_op op = moec_op_of(ev->fn, info->def);
  switch (moec_op_cls(op)) {
    case MOEC_CLASS_LEAF: return leaf(ev, info->def, index);
    case MOEC_CLASS_UNARY:
    case MOEC_CLASS_BINARY:
    case MOEC_CLASS_COMPARE:
    case MOEC_CLASS_SELECT:
    case MOEC_CLASS_CAST: return elementwise(ev, info->def, t.dtype, index);
    case MOEC_CLASS_REDUCE: return reduce(ev, info->def, index);
    case MOEC_CLASS_MOVE: return moec_keval_move(ev, info->def, index);
    case MOEC_CLASS_INDEX: return moec_keval_gather(ev, info->def, index);
    default: return unsupported(ev, op);
  }
}

moec_kx moec_keval_at(moec_keval *ev, moec_value v, const moec_kcoord *index) {
  moec_kpool *p = ev->p;
  moec_type_info t = moec_ty(ev->fn, v);
  size_t bytes = t.rank * sizeof *index;
  for (const moec_kmemo *m = ev->memo[v.i]; m; m = m->next)
    if (!bytes || memcmp(m->index, index, bytes) == 0) return m->result;
  if (p->error || ev->depth > 2000) {
    if (!p->error)
      moec_kpool_fail(p,
                      moec_error(MOEC_UNSUPPORTED, "kernel: expected at most 2000 ops in a chain"));
    return moec_kx_dtype(t.dtype) == t.dtype && !moec_dtype_is_float(t.dtype)
               ? moec_kx_int(p, t.dtype, 0)
               : moec_kx_num(p, t.dtype, 0);
  }
  moec_kmemo *m = MOEC_NEW(p->arena, moec_kmemo);
  m->index = bytes ? moec_arena_copy(p->arena, index, bytes) : NULL;
  ev->depth++;
  m->result = compute(ev, v, t, m->index);
  ev->depth--;
  m->next = ev->memo[v.i];
  ev->memo[v.i] = m;
  return m->result;
}
