/* Hash-consed expressions and what is derived from their operands: variables, level, cost. */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "codegen/kernel_build.h"

void moec_kpool_init(moec_kpool *p, moec_arena *arena, moec_module *m) {
  *p = (moec_kpool){.arena = arena, .m = m, .n_slots = 256};
  p->slots = MOEC_NEW_ARRAY(arena, uint32_t, p->n_slots);
  MOEC_PUSH(arena, p->nodes, p->n, p->cap, (moec_kx_node){0});
}

void moec_kpool_fail(moec_kpool *p, moec_status *s) {
  if (!p->error)
    p->error = s;
  else
    moec_status_free(s);
}

/* ---- hash consing --------------------------------------------------------------------------- */

static uint64_t mix(uint64_t h, uint64_t v) {
  h = (h ^ v) * 0x9e3779b97f4a7c15u;
  return h ^ h >> 29;
}

static uint64_t hash(const moec_kx_node *n) {
  uint64_t bits, h = mix((uint64_t)n->kind, (uint64_t)n->op);
  memcpy(&bits, &n->num, sizeof bits);
  h = mix(mix(h, (uint64_t)n->dtype), n->id);
  h = mix(mix(mix(h, n->dim.i), bits), (uint64_t)n->num_i);
  for (uint32_t i = 0; i < n->n_args; i++) h = mix(h, n->args[i].i);
  for (uint32_t i = 0; n->coeffs && i < n->n_args; i++) h = mix(h, n->coeffs[i].i);
  return h;
}

static bool equal(const moec_kx_node *a, const moec_kx_node *b) {
  size_t bytes = a->n_args * sizeof *a->args;
  return a->kind == b->kind && a->op == b->op && a->dtype == b->dtype && a->id == b->id &&
         a->n_args == b->n_args && a->dim.i == b->dim.i &&
         memcmp(&a->num, &b->num, sizeof a->num) == 0 && a->num_i == b->num_i &&
         !a->coeffs == !b->coeffs && (!bytes || memcmp(a->args, b->args, bytes) == 0) &&
         (!bytes || !a->coeffs || memcmp(a->coeffs, b->coeffs, bytes) == 0);
}

static size_t slot_of(const moec_kpool *p, const moec_kx_node *n) {
  size_t i = (size_t)hash(n) & (p->n_slots - 1);
  while (p->slots[i] && !equal(&p->nodes[p->slots[i]], n)) i = (i + 1) & (p->n_slots - 1);
  return i;
}

static void rehash(moec_kpool *p) {
  p->n_slots *= 2;
  p->slots = MOEC_NEW_ARRAY(p->arena, uint32_t, p->n_slots);
  for (uint32_t i = 1; i < p->n; i++) p->slots[slot_of(p, &p->nodes[i])] = i;
}

/* What an op costs next to an addition, roughly; ops not listed cost 1. */
static uint32_t op_cost(moec_op op, moec_dtype t) {
  static const struct {
    moec_op op;
    uint32_t cost;
  } table[] = {
      {MOEC_OP_EXP, 16},   {MOEC_OP_EXPM1, 30},   {MOEC_OP_LOG, 20},   {MOEC_OP_LOG1P, 30},
      {MOEC_OP_TANH, 24},  {MOEC_OP_SIGMOID, 24}, {MOEC_OP_ERF, 24},   {MOEC_OP_POW, 60},
      {MOEC_OP_SIN, 40},   {MOEC_OP_COS, 40},     {MOEC_OP_TAN, 60},   {MOEC_OP_ASIN, 40},
      {MOEC_OP_ACOS, 40},  {MOEC_OP_ATAN, 40},    {MOEC_OP_SINH, 40},  {MOEC_OP_COSH, 40},
      {MOEC_OP_ASINH, 60}, {MOEC_OP_ACOSH, 60},   {MOEC_OP_ATANH, 60}, {MOEC_OP_DIV, 4},
      {MOEC_OP_SQRT, 4},   {MOEC_OP_RSQRT, 8},    {MOEC_OP_RECIP, 4},  {MOEC_OP_MOD, 20},
      {MOEC_OP_REM, 20},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (table[i].op == op) return table[i].cost;
  return op == MOEC_OP_CAST && (t == MOEC_F16 || t == MOEC_BF16) ? 4 : 1;
}

static uint64_t chunk_bit(const moec_kpool *p) {
  for (uint32_t i = 0; i < p->n_vars; i++)
    if (p->vars[i].kind == MOEC_KVAR_CHUNK) return UINT64_C(1) << i;
  return 0;
}

static void derive(const moec_kpool *p, moec_kx_node *n) {
  uint32_t cost = n->kind == MOEC_KX_APPLY  ? op_cost(n->op, n->dtype)
                  : n->kind == MOEC_KX_LOAD ? 1
                                            : 0;
  if (n->kind == MOEC_KX_DIV || n->kind == MOEC_KX_MOD || n->kind == MOEC_KX_WRAP) cost = 8;
  for (uint32_t i = 0; i < n->n_args; i++) {
    const moec_kx_node *a = moec_kx_get(p, n->args[i]);
    n->vars |= a->vars;
    n->divs |= a->divs;
    if (a->level > n->level) n->level = a->level;
    cost += a->cost;
    if (cost > 1u << 20) cost = 1u << 20;
  }
  n->cost = cost;
  if (n->kind == MOEC_KX_VAR) n->vars = UINT64_C(1) << n->id;
  bool over_chunk = (n->kind == MOEC_KX_VAR || n->kind == MOEC_KX_REDUCE) && p->vars[n->id].kind == MOEC_KVAR_CHUNK_ROW;
  if (over_chunk) n->vars |= chunk_bit(p); /* which rows, and how many */
  if (n->kind == MOEC_KX_DIV || n->kind == MOEC_KX_MOD) n->divs = n->vars;
  if (n->kind == MOEC_KX_REDUCE) {
    n->divs &= ~(UINT64_C(1) << n->id);
    n->vars &= ~(UINT64_C(1) << n->id);
    n->level++;
    n->cost = 0;
  }
}

moec_kx moec_kx_intern(moec_kpool *p, moec_kx_node n) {
  size_t i = slot_of(p, &n);
  if (p->slots[i]) return (moec_kx){p->slots[i]};
  derive(p, &n);
  if (n.n_args) n.args = moec_arena_copy(p->arena, n.args, n.n_args * sizeof *n.args);
  if (n.n_args && n.coeffs)
    n.coeffs = moec_arena_copy(p->arena, n.coeffs, n.n_args * sizeof *n.coeffs);
  uint32_t id = (uint32_t)p->n;
  if (id == 100000)
    moec_kpool_fail(p,
                    moec_error(MOEC_UNSUPPORTED, "kernel: expected fewer than 100000 expressions"));
  MOEC_PUSH(p->arena, p->nodes, p->n, p->cap, n);
  p->slots[i] = id;
  if (p->n * 2 > p->n_slots) rehash(p);
  return (moec_kx){id};
}

moec_kx moec_kx_var(moec_kpool *p, moec_kvar_kind kind, moec_dim lo, moec_dim hi, uint32_t copy) {
  moec_kvar v = {kind, lo, hi, copy};
  uint32_t id = 0;
  while (id < p->n_vars && !(p->vars[id].kind == kind && p->vars[id].lo.i == lo.i &&
                             p->vars[id].hi.i == hi.i && p->vars[id].copy == copy))
    id++;
  if (id == p->n_vars) MOEC_PUSH(p->arena, p->vars, p->n_vars, p->cap_vars, v);
  if (id >= 64) {
    moec_kpool_fail(p, moec_error(MOEC_UNSUPPORTED, "kernel: expected at most 64 loop variables"));
    id = 63;
  }
  moec_dim last = moec_dim_sub(p->m, hi, moec_dim_const(p->m, 1));
  return moec_kx_intern(
      p, (moec_kx_node){.kind = MOEC_KX_VAR, .dtype = MOEC_I64, .id = id, .lo = lo, .hi = last});
}

moec_kx moec_kx_chunk(moec_kpool *p) {
  for (uint32_t i = 0; i < p->n_vars; i++)
    if (p->vars[i].kind == MOEC_KVAR_CHUNK)
      return moec_kx_var(p, MOEC_KVAR_CHUNK, p->vars[i].lo, p->vars[i].hi, 0);
  return (moec_kx){0};
}

/* ---- values --------------------------------------------------------------------------------- */

moec_kx moec_kx_num(moec_kpool *p, moec_dtype t, double v) {
  return moec_kx_intern(p,
                        (moec_kx_node){.kind = MOEC_KX_NUM, .dtype = moec_kx_dtype(t), .num = v});
}

moec_kx moec_kx_int(moec_kpool *p, moec_dtype t, int64_t v) {
  /* Sizes and positions are sums, so that they simplify; anything huge is just a value. */
  if ((t == MOEC_I64 || t == MOEC_I32) && v > -(INT64_C(1) << 53) && v < INT64_C(1) << 53)
    return moec_kx_i64(p, v);
  return moec_kx_intern(p, (moec_kx_node){.kind = MOEC_KX_INT, .dtype = t, .num_i = v});
}

bool moec_kx_is_bool(const moec_kpool *p, moec_kx e, bool v) {
  const moec_kx_node *n = moec_kx_get(p, e);
  return n->kind == MOEC_KX_INT && n->dtype == MOEC_BOOL && (n->num_i != 0) == v;
}

moec_kx moec_kx_load(moec_kpool *p, uint32_t buffer, moec_dtype t, moec_kx index, moec_kx guard) {
  if (guard.i && moec_kx_is_bool(p, guard, true)) guard = (moec_kx){0};
  moec_kx args[2] = {index, guard};
  return moec_kx_intern(p, (moec_kx_node){.kind = MOEC_KX_LOAD,
                                          .dtype = moec_kx_dtype(t),
                                          .id = buffer,
                                          .n_args = guard.i ? 2 : 1,
                                          .args = args});
}

moec_kx moec_kx_wrap(moec_kpool *p, moec_kx index, moec_dim n, moec_kx guard) {
  moec_kx size = moec_kx_size(p, n);
  if (moec_kx_ranged(p, index) && moec_kx_decide(p, MOEC_OP_GE, index, moec_kx_i64(p, 0)) == 1 &&
      moec_kx_decide(p, MOEC_OP_LT, index, size) == 1)
    return index;
  moec_kx args[2] = {index, guard};
  moec_dim one = moec_dim_const(p->m, 1);
  return moec_kx_intern(p, (moec_kx_node){.kind = MOEC_KX_WRAP,
                                          .dtype = MOEC_I64,
                                          .n_args = guard.i ? 2 : 1,
                                          .args = args,
                                          .dim = n,
                                          .lo = moec_dim_const(p->m, 0),
                                          .hi = moec_dim_sub(p->m, n, one)});
}

moec_kx moec_kx_reduce(moec_kpool *p, moec_op op, moec_kx var, moec_kx body) {
  return moec_kx_intern(p, (moec_kx_node){.kind = MOEC_KX_REDUCE,
                                          .op = op,
                                          .dtype = moec_kx_get(p, body)->dtype,
                                          .id = moec_kx_get(p, var)->id,
                                          .n_args = 1,
                                          .args = &body});
}

moec_kx moec_kx_and(moec_kpool *p, moec_kx a, moec_kx b) {
  if (!a.i || moec_kx_eq(a, b)) return b;
  if (!b.i) return a;
  return moec_kx_apply(p, MOEC_OP_AND, MOEC_BOOL, 2, (moec_kx[]){a, b});
}

/* ---- reductions: where they start, how two partial results join ----------------------------- */

static int64_t int_limit(moec_dtype t, bool greatest) {
  unsigned bits = (unsigned)moec_dtype_get(t)->bytes * 8;
  if (moec_dtype_get(t)->cls == 'U') return greatest ? (int64_t)(UINT64_MAX >> (64 - bits)) : 0;
  int64_t top = (int64_t)(UINT64_MAX >> (65 - bits));
  return greatest ? top : -top - 1;
}

moec_kx moec_kx_start(moec_kpool *p, moec_op op, moec_dtype t) {
  bool low = op == MOEC_OP_REDUCE_MAX, one = op == MOEC_OP_REDUCE_PROD,
       sum = op == MOEC_OP_REDUCE_SUM;
  if (t == MOEC_BOOL) return moec_kx_bool(p, one || op == MOEC_OP_REDUCE_MIN);
  if (moec_dtype_is_float(t))
    return moec_kx_num(p, t, sum ? 0 : one ? 1 : low ? -HUGE_VAL : HUGE_VAL);
  return moec_kx_int(p, t, sum ? 0 : one ? 1 : int_limit(t, !low));
}

moec_op moec_kx_join(moec_op op, moec_dtype t) {
  bool b = t == MOEC_BOOL;
  switch (op) {
    case MOEC_OP_REDUCE_SUM: return b ? MOEC_OP_OR : MOEC_OP_ADD;
    case MOEC_OP_REDUCE_PROD: return b ? MOEC_OP_AND : MOEC_OP_MUL;
    case MOEC_OP_REDUCE_MAX: return b ? MOEC_OP_OR : MOEC_OP_MAX;
    default: return b ? MOEC_OP_AND : MOEC_OP_MIN;
  }
}
