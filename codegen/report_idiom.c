/* What a kernel's arithmetic amounts to. Composites are spelt out when kernels are made; people know them
 * by name:
 *
 *   rms_norm   x * rsqrt(sum(x*x) * c + eps)
 *   softmax    e / sum(e) with e = exp(x - max(x))
 *   rope       a*c - b*s beside b*c + a*s
 *   swiglu     g * sigmoid(alpha*g) * (...); silu without the last factor
 *
 * Each match explains some nodes; what is left is named after its ops. */
#include "codegen/report_idiom.h"

#include <string.h>

/* |v| without movement, casts and scaling axes. */
static moec_value plain(const moec_graph *g, moec_value v) {
  for (;;) {
    moec_op op = moec_def_op(g, v);
    bool passes = op == MOEC_OP_BROADCAST || op == MOEC_OP_RESHAPE || op == MOEC_OP_TRANSPOSE || op == MOEC_OP_CAST;
    if (!v.i || !passes) return v;
    v = moec_in(g, moec_def(g, v), 0);
  }
}

static moec_value operand(const moec_graph *g, moec_value v, uint32_t i) {
  return plain(g, moec_in(g, moec_def(g, v), i));
}
static moec_op op_of(const moec_graph *g, moec_value v) { return moec_def_op(g, v); }
static bool is_const(const moec_graph *g, moec_value v) { return op_of(g, v) == MOEC_OP_CONST; }

/* ---- patterns: whether node |v| is the root of one --------------------------------------------- */

static bool is_rms_norm(const moec_graph *g, moec_value v) {
  if (op_of(g, v) != MOEC_OP_RSQRT) return false;
  moec_value x = operand(g, v, 0);
  for (int depth = 0; depth < 4 && op_of(g, x) != MOEC_OP_REDUCE_SUM; depth++) {
    moec_op op = op_of(g, x);
    if (op != MOEC_OP_ADD && op != MOEC_OP_MUL && op != MOEC_OP_DIV && op != MOEC_OP_MAX) return false;
    x = is_const(g, operand(g, x, 0)) ? operand(g, x, 1) : operand(g, x, 0);
  }
  if (op_of(g, x) != MOEC_OP_REDUCE_SUM) return false;
  moec_value square = operand(g, x, 0);
  return op_of(g, square) == MOEC_OP_MUL && operand(g, square, 0).i == operand(g, square, 1).i;
}

static bool is_softmax(const moec_graph *g, moec_value v) {
  if (op_of(g, v) != MOEC_OP_DIV) return false;
  moec_value e = operand(g, v, 0), sum = operand(g, v, 1);
  if (op_of(g, e) != MOEC_OP_EXP || op_of(g, sum) != MOEC_OP_REDUCE_SUM || operand(g, sum, 0).i != e.i) return false;
  moec_value d = operand(g, e, 0);
  return op_of(g, d) == MOEC_OP_SUB && op_of(g, operand(g, d, 1)) == MOEC_OP_REDUCE_MAX;
}

/* The four factors of a sum or difference of two products. */
static bool factors(const moec_graph *g, moec_value v, moec_value out[4]) {
  for (uint32_t i = 0; i < 2; i++) {
    moec_value p = operand(g, v, i);
    if (op_of(g, p) != MOEC_OP_MUL) return false;
    out[2 * i] = operand(g, p, 0), out[2 * i + 1] = operand(g, p, 1);
  }
  return true;
}

static bool same_factors(const moec_value a[4], const moec_value b[4]) {
  for (int i = 0; i < 4; i++) {
    int n = 0, m = 0;
    for (int k = 0; k < 4; k++) n += a[k].i == a[i].i, m += b[k].i == a[i].i;
    if (n != m) return false;
  }
  return true;
}

static bool is_rope(const moec_graph *g, moec_value v) {
  moec_value a[4], b[4];
  if (op_of(g, v) != MOEC_OP_SUB || !factors(g, v, a)) return false;
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    if (g->nodes[n].op != MOEC_OP_ADD) continue;
    if (factors(g, moec_out(g, (moec_node){n}, 0), b) && same_factors(a, b)) return true;
  }
  return false;
}

/* g * sigmoid(alpha*g). */
static bool is_silu(const moec_graph *g, moec_value v) {
  if (op_of(g, v) != MOEC_OP_MUL) return false;
  for (uint32_t i = 0; i < 2; i++) {
    moec_value s = operand(g, v, i), x = operand(g, v, 1 - i);
    if (op_of(g, s) != MOEC_OP_SIGMOID) continue;
    moec_value arg = operand(g, s, 0);
    if (arg.i == x.i) return true;
    if (op_of(g, arg) == MOEC_OP_MUL && (operand(g, arg, 0).i == x.i || operand(g, arg, 1).i == x.i)) return true;
  }
  return false;
}

static bool is_swiglu(const moec_graph *g, moec_value v) {
  if (op_of(g, v) != MOEC_OP_MUL || is_silu(g, v)) return false;
  for (uint32_t i = 0; i < 2; i++)
    if (is_silu(g, operand(g, v, i)) && !is_const(g, operand(g, v, 1 - i))) return true;
  return false;
}

/* A silu that is no part of a swiglu. */
static bool is_lone_silu(const moec_graph *g, moec_value v) {
  if (!is_silu(g, v)) return false;
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    moec_value y = moec_out(g, (moec_node){n}, 0);
    if (is_swiglu(g, y) && (operand(g, y, 0).i == v.i || operand(g, y, 1).i == v.i)) return false;
  }
  return true;
}

static bool is_gelu(const moec_graph *g, moec_value v) { return op_of(g, v) == MOEC_OP_ERF; }

/* ---- the table ---------------------------------------------------------------------------- */

typedef struct explained { moec_op op; uint32_t n; } explained;
typedef struct idiom {
  moec_op composite; /* NONE: not one of the IR's */
  const char *name;
  bool (*is_root)(const moec_graph *g, moec_value v);
  explained by[7]; /* nodes that it accounts for */
} idiom;

static const idiom idioms[] = {
    {MOEC_OP_RMS_NORM, "rms_norm", is_rms_norm, {{MOEC_OP_MUL, 4}, {MOEC_OP_DIV, 1}, {MOEC_OP_REDUCE_SUM, 1},
        {MOEC_OP_ADD, 1}, {MOEC_OP_RSQRT, 1}}},
    {MOEC_OP_SOFTMAX, "softmax", is_softmax, {{MOEC_OP_REDUCE_MAX, 1}, {MOEC_OP_SUB, 1}, {MOEC_OP_EXP, 1},
        {MOEC_OP_REDUCE_SUM, 1}, {MOEC_OP_DIV, 1}}},
    {MOEC_OP_ROPE, "rope", is_rope, {{MOEC_OP_MUL, 4}, {MOEC_OP_SUB, 1}, {MOEC_OP_ADD, 1}}},
    {MOEC_OP_SWIGLU, "swiglu", is_swiglu, {{MOEC_OP_SIGMOID, 1}, {MOEC_OP_MUL, 3}, {MOEC_OP_MIN, 2}, {MOEC_OP_MAX, 1},
        {MOEC_OP_ADD, 1}}},
    {MOEC_OP_NONE, "silu", is_lone_silu, {{MOEC_OP_SIGMOID, 1}, {MOEC_OP_MUL, 1}}},
    {MOEC_OP_NONE, "gelu", is_gelu, {{MOEC_OP_ERF, 1}, {MOEC_OP_MUL, 3}, {MOEC_OP_ADD, 1}}},
};
enum { N_IDIOMS = sizeof idioms / sizeof *idioms };

moec_node moec_report_find_idiom(const moec_graph *g, moec_op composite) {
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    if (g->nodes[n].op == composite) return (moec_node){n};
    for (size_t i = 0; i < N_IDIOMS; i++)
      if (idioms[i].composite == composite && idioms[i].is_root(g, moec_out(g, (moec_node){n}, 0)))
        return (moec_node){n};
  }
  return (moec_node){0};
}

/* ---- titles ------------------------------------------------------------------------------- */

/* What people call a kernel by: idioms first, then reductions and gathers, then arithmetic, and
 * movement only where there is nothing else. */
static int rank_of(moec_op op) {
  switch (moec_op_cls(op)) {
    case MOEC_CLASS_COMPOSITE: return 0;
    case MOEC_CLASS_REDUCE:
    case MOEC_CLASS_INDEX: return 1;
    case MOEC_CLASS_UNARY:
    case MOEC_CLASS_BINARY: return 2;
    case MOEC_CLASS_COMPARE:
    case MOEC_CLASS_SELECT: return 3;
    case MOEC_CLASS_CAST:
    case MOEC_CLASS_MOVE: return 4;
    default: return 5;
  }
}

enum { MOST = 3 };
typedef struct name { uint32_t at; const char *text; } name;
typedef struct namer { name names[MOST]; uint32_t n, more; } namer;

static void add_name(namer *t, uint32_t at, const char *text) {
  for (uint32_t i = 0; i < t->n; i++)
    if (strcmp(t->names[i].text, text) == 0) return;
  if (t->n == MOST) {
    t->more++;
    return;
  }
  uint32_t i = t->n++;
  for (; i > 0 && t->names[i - 1].at > at; i--) t->names[i] = t->names[i - 1];
  t->names[i] = (name){at, text};
}

/* Names the idioms of |g| and takes what they explain out of |count|. */
static void name_idioms(const moec_graph *g, namer *t, uint32_t count[MOEC_OP_COUNT]) {
  for (uint32_t n = 1; n < g->n_nodes; n++)
    for (size_t i = 0; i < N_IDIOMS; i++) {
      if (!idioms[i].is_root(g, moec_out(g, (moec_node){n}, 0))) continue;
      add_name(t, n, idioms[i].name);
      for (const explained *e = idioms[i].by; e->n; e++) count[e->op] -= count[e->op] < e->n ? count[e->op] : e->n;
    }
}

const char *moec_report_kernel_title(const report *r, const moec_graph *k) {
  namer t = {0};
  uint32_t count[MOEC_OP_COUNT] = {0};
  for (uint32_t n = 1; n < k->n_nodes; n++) count[k->nodes[n].op]++;
  name_idioms(k, &t, count);
  for (int rank = 0; rank < 6; rank++) {
    if (rank >= 4 && t.n) break;
    for (uint32_t n = 1; n < k->n_nodes; n++) {
      moec_op op = k->nodes[n].op;
      if (op == MOEC_OP_NONE || !count[op] || rank_of(op) != rank) continue;
      count[op] = 0;
      add_name(&t, n, moec_op_get(op)->text);
    }
  }
  moec_buf b = {0};
  for (uint32_t i = 0; i < t.n; i++) moec_buf_printf(&b, "%s%s", i ? " + " : "", t.names[i].text);
  if (t.more) moec_buf_printf(&b, " + %u more", t.more);
  const char *title = moec_arena_strdup(r->arena, b.size ? moec_buf_str(&b) : "copy");
  moec_buf_fini(&b);
  return title;
}
