/* Use-def matching helpers; contracts in match.h. */
#include "passes/match.h"

#include <math.h>
#include <string.h>

/* ---- single nodes --------------------------------------------------------------------------- */

bool moec_m_unary(const moec_graph *g, moec_value v, moec_op op, moec_value *x) {
  if (moec_def_op(g, v) != op) return false;
  *x = moec_in(g, moec_def(g, v), 0);
  return true;
}

bool moec_m_binary(const moec_graph *g, moec_value v, moec_op op, moec_value *x, moec_value *y) {
  if (moec_def_op(g, v) != op) return false;
  *x = moec_in(g, moec_def(g, v), 0);
  *y = moec_in(g, moec_def(g, v), 1);
  return true;
}

static double element(moec_dtype t, const void *bytes, size_t i) {
  return moec_dtype_is_float(t) ? moec_load_f64(t, bytes, i) : (double)moec_load_i64(t, bytes, i);
}

static bool uniform(moec_dtype t, const void *bytes, size_t n, double *out) {
  if (n == 0) return false;
  *out = element(t, bytes, 0);
  for (size_t i = 1; i < n; i++)
    if (element(t, bytes, i) != *out) return false;
  return true;
}

static bool const_scalar(const moec_graph *g, moec_node n, double *out) {
  const moec_const *c = MOEC_ATTRS(g, n, CONST)->data;
  moec_dtype t = moec_type_get(g->m, c->type).dtype;
  size_t bytes = moec_dtype_get(t)->bytes;
  return uniform(t, c->bytes, bytes ? c->size / bytes : 0, out);
}

/* A one-element parameter that training does not change is a constant. */
static bool param_scalar(const moec_graph *g, moec_node n, double *out) {
  moec_param p = MOEC_ATTRS(g, n, PARAM)->param;
  const moec_param_info *info = moec_param_get(g->m, p);
  if (info->trainable || !moec_dim_is(g->m, moec_type_numel(g->m, info->type), 1)) return false;
  moec_tensor t;
  moec_status *s = moec_param_load(g->m, p, &t);
  if (s) {
    moec_status_free(s);
    return false;
  }
  *out = element(t.dtype, t.data, 0);
  moec_tensor_fini(&t);
  return true;
}

bool moec_m_scalar(const moec_graph *g, moec_value v, double *out) {
  while (v.i) {
    moec_node n = moec_def(g, v);
    switch (moec_def_op(g, v)) {
      case MOEC_OP_CONST: return const_scalar(g, n, out);
      case MOEC_OP_PARAM: return param_scalar(g, n, out);
      case MOEC_OP_RESHAPE:
      case MOEC_OP_TRANSPOSE:
      case MOEC_OP_BROADCAST:
      case MOEC_OP_SLICE:
      case MOEC_OP_CAST: v = moec_in(g, n, 0); break;
      default: return false;
    }
  }
  return false;
}

static bool is_commutative(moec_op op) {
  return op == MOEC_OP_ADD || op == MOEC_OP_MUL || op == MOEC_OP_MAX || op == MOEC_OP_MIN;
}

bool moec_m_with_scalar(const moec_graph *g, moec_value v, moec_op op, moec_value *x, double *c) {
  moec_value a, b;
  if (!moec_m_binary(g, v, op, &a, &b)) return false;
  *x = a;
  if (moec_m_scalar(g, b, c)) return true;
  *x = b;
  return is_commutative(op) && moec_m_scalar(g, a, c);
}

bool moec_m_scaled(const moec_graph *g, moec_value v, moec_value *x, double *c) {
  if (moec_m_with_scalar(g, v, MOEC_OP_MUL, x, c)) return true;
  if (!moec_m_with_scalar(g, v, MOEC_OP_DIV, x, c) || *c == 0) return false;
  *c = 1 / *c;
  return true;
}

bool moec_m_square(const moec_graph *g, moec_value v, moec_value *x) {
  moec_value y;
  double c;
  if (moec_m_binary(g, v, MOEC_OP_MUL, x, &y)) return x->i == y.i;
  return moec_m_with_scalar(g, v, MOEC_OP_POW, x, &c) && c == 2;
}

moec_value moec_m_uncast(const moec_graph *g, moec_value v) {
  moec_value x;
  while (moec_m_unary(g, v, MOEC_OP_CAST, &x) && moec_dtype_is_float(moec_ty(g, v).dtype) &&
         moec_dtype_is_float(moec_ty(g, x).dtype))
    v = x;
  return v;
}

bool moec_m_slice(const moec_graph *g, moec_value v, int64_t axis, moec_value *x, moec_dim *start, moec_dim *size,
                  int64_t *step) {
  if (!moec_m_unary(g, v, MOEC_OP_SLICE, x)) return false;
  const moec_attrs_SLICE *a = MOEC_ATTRS(g, moec_def(g, v), SLICE);
  moec_type_info t = moec_ty(g, *x);
  if (axis < 0 || axis >= (int64_t)t.rank) return false;
  for (uint32_t i = 0; i < t.rank; i++)
    if ((int64_t)i != axis && !moec_dim_eq(a->size.v[i], t.dims[i])) return false;
  *start = a->start.v[axis];
  *size = a->size.v[axis];
  *step = a->step.v[axis];
  return true;
}

bool moec_m_same(const moec_graph *g, moec_value a, moec_value b) {
  while (a.i != b.i) {
    moec_op op = moec_def_op(g, a);
    if (op == MOEC_OP_NONE || moec_op_cls(op) != MOEC_CLASS_MOVE || op != moec_def_op(g, b)) return false;
    moec_node x = moec_def(g, a), y = moec_def(g, b);
    if (moec_node_get(g, x)->n_in != 1 || moec_node_get(g, y)->n_in != 1) return false;
    if (!moec_attrs_equal(op, moec_node_get(g, x)->attrs, moec_node_get(g, y)->attrs)) return false;
    a = moec_in(g, x, 0);
    b = moec_in(g, y, 0);
  }
  return true;
}

bool moec_m_close(double a, double b) { return fabs(a - b) <= 1e-6 * fmax(fabs(a), fabs(b)); }

const char *moec_m_name(const moec_graph *g, moec_node n) {
  const char *s = moec_sym_str(g->m, moec_node_get(g, n)->loc);
  return *s ? moec_arena_printf(g->m->arena, "\"%s\"", s) : moec_arena_printf(g->m->arena, "node %u", n.i);
}

/* ---- use lists -------------------------------------------------------------------------------- */

moec_uses moec_uses_now(moec_graph *g) {
  moec_build_uses(g);
  return (moec_uses){g, g->n_values, g->use_start, g->use_nodes};
}

uint32_t moec_uses_count(const moec_uses *u, moec_value v) {
  return v.i < u->n_values ? u->start[v.i + 1] - u->start[v.i] : 0;
}

moec_node moec_uses_get(const moec_uses *u, moec_value v, uint32_t i) { return u->nodes[u->start[v.i] + i]; }

moec_node moec_uses_only(const moec_uses *u, moec_value v) {
  if (moec_uses_count(u, v) != 1 || moec_is_output(u->g, v)) return (moec_node){0};
  return moec_uses_get(u, v, 0);
}

/* ---- tracing movement ------------------------------------------------------------------------- */

static bool add_factor(moec_trace *t, moec_dim size, uint32_t axis, uint8_t *out) {
  if (t->n == MOEC_MAX_FACTORS) return false;
  t->size[t->n] = size;
  t->repeated[t->n] = false;
  t->axis[t->n] = (uint8_t)axis;
  *out = (uint8_t)t->n++;
  return true;
}

static void push(moec_factors *l, uint8_t f) {
  if (l->n < MOEC_MAX_FACTORS) l->f[l->n++] = f;
}

void moec_factors_append(moec_factors *to, const moec_factors *from) {
  for (uint32_t i = 0; i < from->n; i++) push(to, from->f[i]);
}

bool moec_trace_begin(moec_trace *t, moec_graph *g, moec_value v) {
  memset(t, 0, sizeof *t);
  t->g = g;
  t->top = t->cur = v;
  moec_type_info type = moec_ty(g, v);
  for (uint32_t i = 0; i < type.rank; i++) {
    uint8_t f;
    if (moec_dim_is(g->m, type.dims[i], 1)) continue;
    if (!add_factor(t, type.dims[i], i, &f)) return false;
    push(&t->of_top[i], f);
    push(&t->of_cur[i], f);
  }
  return true;
}

/* Factor |f| becomes |hi| elements of a new minor factor of size |lo|, returned in *out. */
static bool split(moec_trace *t, uint8_t f, moec_dim hi, moec_dim lo, uint8_t *out) {
  if (!add_factor(t, lo, t->axis[f], out)) return false;
  t->size[f] = hi;
  moec_factors *l = &t->of_top[t->axis[f]], old = *l;
  l->n = 0;
  for (uint32_t i = 0; i < old.n; i++) {
    push(l, old.f[i]);
    if (old.f[i] == f) push(l, *out);
  }
  return true;
}

/* The factors of y in row-major order, dealt out to the axes of x. */
static bool trace_reshape(moec_trace *t, moec_value x) {
  moec_module *m = t->g->m;
  moec_type_info from = moec_ty(t->g, x), to = moec_ty(t->g, t->cur);
  moec_factors all = {0}, out[MOEC_MAX_RANK] = {0};
  for (uint32_t i = 0; i < to.rank; i++) moec_factors_append(&all, &t->of_cur[i]);
  uint32_t at = 0;
  for (uint32_t i = 0; i < from.rank; i++) {
    moec_dim need = from.dims[i];
    while (!moec_dim_is(m, need, 1)) {
      if (at == all.n) return false;
      uint8_t f = all.f[at], lo;
      moec_dim rest = moec_dim_exact_div(m, need, t->size[f]);
      if (moec_dim_known(rest)) {
        push(&out[i], f);
        need = rest;
        at++;
        continue;
      }
      rest = moec_dim_exact_div(m, t->size[f], need);
      if (!moec_dim_known(rest) || !split(t, f, need, rest, &lo)) return false;
      push(&out[i], f);
      all.f[at] = lo;
      need = moec_dim_const(m, 1);
    }
  }
  if (at != all.n) return false;
  memcpy(t->of_cur, out, sizeof out);
  return true;
}

static bool trace_transpose(moec_trace *t, moec_value x) {
  moec_ints perm = MOEC_ATTRS(t->g, moec_def(t->g, t->cur), TRANSPOSE)->perm;
  moec_factors out[MOEC_MAX_RANK] = {0};
  (void)x;
  for (uint32_t i = 0; i < perm.n; i++) out[perm.v[i]] = t->of_cur[i];
  memcpy(t->of_cur, out, sizeof out);
  return true;
}

static bool trace_broadcast(moec_trace *t, moec_value x) {
  moec_ints map = MOEC_ATTRS(t->g, moec_def(t->g, t->cur), BROADCAST)->map;
  moec_type_info from = moec_ty(t->g, x), to = moec_ty(t->g, t->cur);
  moec_factors out[MOEC_MAX_RANK] = {0};
  uint32_t kept = 0;
  for (uint32_t i = 0; i < map.n; i++) {
    if (moec_dim_is(t->g->m, from.dims[i], 1)) continue;
    out[i] = t->of_cur[map.v[i]];
    kept |= 1u << map.v[i];
  }
  for (uint32_t j = 0; j < to.rank; j++)
    for (uint32_t k = 0; !(kept >> j & 1) && k < t->of_cur[j].n; k++) t->repeated[t->of_cur[j].f[k]] = true;
  memcpy(t->of_cur, out, sizeof out);
  return true;
}

bool moec_trace_step(moec_trace *t) {
  static const struct { moec_op op; bool (*step)(moec_trace *, moec_value); } steps[] = {
      {MOEC_OP_RESHAPE, trace_reshape}, {MOEC_OP_TRANSPOSE, trace_transpose}, {MOEC_OP_BROADCAST, trace_broadcast}};
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    moec_value x;
    if (!moec_m_unary(t->g, t->cur, steps[i].op, &x)) continue;
    moec_trace before = *t;
    if (steps[i].step(t, x)) {
      t->cur = x;
      return true;
    }
    *t = before; /* a half-done reshape may have split factors */
  }
  return false;
}

void moec_trace_moves(moec_trace *t) {
  while (moec_trace_step(t)) {}
}

bool moec_trace_alike(const moec_trace *a, const moec_trace *b) {
  return a->n == b->n && memcmp(a->repeated, b->repeated, sizeof a->repeated) == 0 &&
         memcmp(a->of_top, b->of_top, sizeof a->of_top) == 0 && memcmp(a->of_cur, b->of_cur, sizeof a->of_cur) == 0;
}

bool moec_trace_repeats(const moec_trace *t, uint32_t axis) {
  for (uint32_t i = 0; i < t->of_top[axis].n; i++)
    if (!t->repeated[t->of_top[axis].f[i]]) return false;
  return true;
}

bool moec_trace_same_axis(const moec_trace *t, uint32_t axis, uint32_t cur_axis) {
  const moec_factors *a = &t->of_top[axis], *b = &t->of_cur[cur_axis];
  return a->n == b->n && memcmp(a->f, b->f, a->n) == 0;
}

moec_dim moec_factors_size(const moec_trace *t, const moec_factors *l) {
  moec_dim size = moec_dim_const(t->g->m, 1);
  for (uint32_t i = 0; i < l->n; i++) size = moec_dim_mul(t->g->m, size, t->size[l->f[i]]);
  return size;
}

/* Reshapes cur to one axis a factor and permutes these to the order of |want|. */
static moec_value build_factors(moec_builder *b, const moec_trace *t, const moec_factors *want) {
  moec_factors have = {0};
  moec_dim dims[MOEC_MAX_RANK];
  int64_t perm[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < moec_ty(t->g, t->cur).rank; i++) moec_factors_append(&have, &t->of_cur[i]);
  if (have.n != want->n || have.n > MOEC_MAX_RANK) return (moec_value){0};
  for (uint32_t i = 0; i < have.n; i++) dims[i] = t->size[have.f[i]];
  for (uint32_t i = 0; i < want->n; i++) {
    uint32_t k = 0;
    while (k < have.n && have.f[k] != want->f[i]) k++;
    if (k == have.n) return (moec_value){0};
    perm[i] = k;
  }
  return moec_b_transpose(b, moec_b_reshape(b, t->cur, have.n, dims), perm);
}

moec_value moec_trace_build(moec_builder *b, const moec_trace *t, uint32_t rank, const moec_factors *axes) {
  moec_factors all = {0}, own = {0};
  moec_dim full[MOEC_MAX_RANK], dims[MOEC_MAX_RANK];
  int64_t map[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < rank; i++) {
    dims[i] = moec_factors_size(t, &axes[i]);
    moec_factors_append(&all, &axes[i]);
  }
  if (all.n > MOEC_MAX_RANK) return (moec_value){0};
  for (uint32_t i = 0; i < all.n; i++) {
    full[i] = t->size[all.f[i]];
    if (t->repeated[all.f[i]]) continue;
    map[own.n] = i;
    push(&own, all.f[i]);
  }
  moec_value v = build_factors(b, t, &own);
  if (!v.i) return v;
  if (own.n != all.n) {
    moec_attrs_BROADCAST a = {.shape = {all.n, full}, .map = {own.n, map}};
    v = moec_b_op(b, MOEC_OP_BROADCAST, &a, 1, &v, 1);
  }
  return moec_b_reshape(b, v, rank, dims);
}

moec_value moec_trace_unbroadcast(moec_builder *b, const moec_trace *t) {
  moec_factors axes[MOEC_MAX_RANK] = {0};
  uint32_t rank = moec_ty(t->g, t->top).rank;
  for (uint32_t i = 0; i < rank; i++)
    for (uint32_t k = 0; k < t->of_top[i].n; k++)
      if (!t->repeated[t->of_top[i].f[k]]) push(&axes[i], t->of_top[i].f[k]);
  return moec_trace_build(b, t, rank, axes);
}
