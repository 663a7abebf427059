/* Expressions as text that is C and CUDA. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/emit_print.h"
#include "codegen/kernel_attention.h"

/* ---- literals ------------------------------------------------------------------------------- */

const char *moec_emit_ctype(moec_dtype t) {
  if (t == MOEC_F16 || t == MOEC_BF16) return "float";
  return t == MOEC_BOOL ? "bool" : moec_dtype_get(t)->c;
}

void moec_emit_number(moec_buf *b, moec_dtype t, double v) {
  if (isnan(v))
    moec_buf_puts(b, "NAN");
  else if (isinf(v))
    moec_buf_puts(b, v > 0 ? "INFINITY" : "(-INFINITY)");
  else
    moec_buf_printf(b, signbit(v) ? "(%a%s)" : "%a%s", v, t == MOEC_F64 ? "" : "f");
}

void moec_emit_integer(moec_buf *b, moec_dtype t, int64_t v) {
  if (t == MOEC_U64)
    moec_buf_printf(b, "UINT64_C(%llu)", (unsigned long long)v);
  else if (v == INT64_MIN)
    moec_buf_puts(b, "INT64_MIN");
  else if (v > INT32_MAX || v < -INT32_MAX)
    moec_buf_printf(b, v < 0 ? "(-INT64_C(%llu))" : "INT64_C(%llu)",
                    (unsigned long long)(v < 0 ? -v : v));
  else
    moec_buf_printf(b, v < 0 ? "(%lld)" : "%lld", (long long)v);
}

/* ---- sizes ---------------------------------------------------------------------------------- */

static void atom(moec_emit *e, uint32_t index) {
  static const char *const calls[] = {[MOEC_DIM_FLOORDIV] = "moec_floordiv",
                                      [MOEC_DIM_MOD] = "moec_floormod",
                                      [MOEC_DIM_MIN] = "moec_least",
                                      [MOEC_DIM_MAX] = "moec_greatest"};
  moec_dim_atom a = moec_dim_get_atom(e->k->m, index);
  if (a.op == MOEC_DIM_SYMBOL) {
    e->used[a.symbol] = true;
    moec_buf_printf(e->b, e->direct ? "a->sym[%u]" : "s%u", a.symbol);
    return;
  }
  moec_buf_printf(e->b, "%s(", calls[a.op]);
  moec_emit_dim(e, a.a);
  moec_buf_puts(e->b, ", ");
  moec_emit_dim(e, a.b);
  moec_buf_putc(e->b, ')');
}

/* |v| in front of something it multiplies, or alone; returns whether it printed. */
static bool factor(moec_emit *e, int64_t v, bool alone) {
  if (v == 1 && !alone) return false;
  if (v > INT32_MAX)
    moec_buf_printf(e->b, "INT64_C(%lld)", (long long)v);
  else
    moec_buf_printf(e->b, "%lld", (long long)v);
  return true;
}

static void term(moec_emit *e, moec_dim_term t, bool first) {
  if (first && t.coeff < 0)
    moec_buf_putc(e->b, '-');
  else if (!first)
    moec_buf_puts(e->b, t.coeff < 0 ? " - " : " + ");
  bool printed = factor(e, t.coeff < 0 ? -t.coeff : t.coeff, t.n_atoms == 0);
  for (uint32_t i = 0; i < t.n_atoms; i++) {
    if (printed) moec_buf_puts(e->b, " * ");
    atom(e, t.atoms[i]);
    printed = true;
  }
}

static void dim_terms(moec_emit *e, moec_dim d, bool first) {
  uint32_t n = moec_dim_n_terms(e->k->m, d);
  for (uint32_t i = 0; i < n; i++) term(e, moec_dim_get_term(e->k->m, d, i), first && i == 0);
  if (n == 0 && first) moec_buf_putc(e->b, '0');
}

void moec_emit_dim(moec_emit *e, moec_dim d) {
  uint32_t n = moec_dim_n_terms(e->k->m, d);
  bool plain = n == 0;
  if (n == 1) {
    moec_dim_term t = moec_dim_get_term(e->k->m, d, 0);
    plain = t.coeff >= 0 && t.n_atoms + (t.coeff != 1) <= 1;
  }
  if (!plain) moec_buf_putc(e->b, '(');
  dim_terms(e, d, true);
  if (!plain) moec_buf_putc(e->b, ')');
}

/* ---- integer expressions -------------------------------------------------------------------- */

void moec_emit_var(moec_emit *e, uint32_t var) {
  static const char *const names[] = {[MOEC_KVAR_ROW] = "row",
                                      [MOEC_KVAR_BLOCK] = "block",
                                      [MOEC_KVAR_CHUNK] = "chunk",
                                      [MOEC_KVAR_CHUNK_ROW] = "row",
                                      [MOEC_KVAR_LANE] = "lane",
                                      [MOEC_KVAR_KEY] = "j"};
  static const char *const params[] = {[MOEC_KPARAM_BATCH] = "b",
                                       [MOEC_KPARAM_HEAD] = "h",
                                       [MOEC_KPARAM_QUERY] = "i",
                                       [MOEC_KPARAM_FIRST_KEY] = "j0"};
  moec_kvar_kind kind = e->k->vars[var].kind;
  if (e->first_of == var + 1)
    moec_buf_printf(e->b, "d%u", var);
  else if (kind == MOEC_KVAR_PARAM)
    moec_buf_puts(e->b, params[e->k->vars[var].copy]);
  else if (kind == MOEC_KVAR_LOOP)
    moec_buf_printf(e->b, "c%u", var);
  else
    moec_buf_puts(e->b, names[kind]);
}

static void sum_terms(moec_emit *e, const moec_kx_node *n) {
  bool first = true;
  for (uint32_t i = 0; i < n->n_args; i++) {
    bool minus = moec_dim_n_terms(e->k->m, n->coeffs[i]) == 1 &&
                 moec_dim_get_term(e->k->m, n->coeffs[i], 0).coeff < 0;
    moec_dim c =
        minus ? moec_dim_sub(e->k->m, moec_dim_const(e->k->m, 0), n->coeffs[i]) : n->coeffs[i];
    moec_buf_puts(e->b, minus ? (first ? "-" : " - ") : first ? "" : " + ");
    moec_emit_expr(e, n->args[i]);
    if (!moec_dim_is(e->k->m, c, 1)) {
      moec_buf_puts(e->b, " * ");
      moec_emit_dim(e, c);
    }
    first = false;
  }
  if (first || !moec_dim_is(e->k->m, n->dim, 0)) dim_terms(e, n->dim, first);
}

static void division(moec_emit *e, const moec_kx_node *n) {
  const moec_kx_node *x = &e->k->nodes[n->args[0].i];
  bool div = n->kind == MOEC_KX_DIV,
       plain = moec_dim_known(x->lo) && moec_dim_is_nonneg(e->k->m, x->lo);
  moec_buf_puts(e->b, plain ? "(" : div ? "moec_floordiv(" : "moec_floormod(");
  moec_emit_expr(e, n->args[0]);
  moec_buf_puts(e->b, plain ? (div ? " / " : " % ") : ", ");
  moec_emit_dim(e, n->dim);
  moec_buf_putc(e->b, ')');
}

/* ---- values --------------------------------------------------------------------------------- */

/* What is printed for an op; NULL: a call of moec_<op>_<dtype>. $0 $1 $2 are operands. */
typedef struct op_text {
  moec_op op;
  const char *f, *i, *b;
} op_text;
static const op_text op_texts[] = {
    {MOEC_OP_NEG, "(-$0)", NULL, NULL},
    {MOEC_OP_ADD, "($0 + $1)", NULL, NULL},
    {MOEC_OP_SUB, "($0 - $1)", NULL, NULL},
    {MOEC_OP_MUL, "($0 * $1)", NULL, NULL},
    {MOEC_OP_DIV, "($0 / $1)", NULL, NULL},
    {MOEC_OP_NOT, NULL, NULL, "(!$0)"},
    {MOEC_OP_AND, NULL, NULL, "($0 & $1)"},
    {MOEC_OP_OR, NULL, NULL, "($0 | $1)"},
    {MOEC_OP_XOR, NULL, NULL, "($0 ^ $1)"},
    {MOEC_OP_EQ, "($0 == $1)", "($0 == $1)", "($0 == $1)"},
    {MOEC_OP_NE, "($0 != $1)", "($0 != $1)", "($0 != $1)"},
    {MOEC_OP_LT, "($0 < $1)", "($0 < $1)", "($0 < $1)"},
    {MOEC_OP_LE, "($0 <= $1)", "($0 <= $1)", "($0 <= $1)"},
    {MOEC_OP_GT, "($0 > $1)", "($0 > $1)", "($0 > $1)"},
    {MOEC_OP_GE, "($0 >= $1)", "($0 >= $1)", "($0 >= $1)"},
    {MOEC_OP_SELECT, "($0 ? $1 : $2)", "($0 ? $1 : $2)", "($0 ? $1 : $2)"},
};

static const char *op_text_of(moec_op op, moec_dtype operands) {
  char cls = moec_dtype_get(operands)->cls;
  for (size_t i = 0; i < sizeof op_texts / sizeof *op_texts; i++)
    if (op_texts[i].op == op)
      return cls == 'F' ? op_texts[i].f : cls == 'B' ? op_texts[i].b : op_texts[i].i;
  return NULL;
}

void moec_emit_op(moec_buf *b, moec_op op, moec_dtype operands, uint32_t n,
                  const char *const *args) {
  const char *text = op_text_of(op, operands);
  if (!text) {
    moec_buf_printf(b, "moec_%s_%s(", moec_op_get(op)->text, moec_dtype_get(operands)->text);
    for (uint32_t i = 0; i < n; i++) moec_buf_printf(b, i ? ", %s" : "%s", args[i]);
    moec_buf_putc(b, ')');
    return;
  }
  for (; *text; text++) {
    if (*text == '$')
      moec_buf_puts(b, args[*++text - '0']);
    else
      moec_buf_putc(b, *text);
  }
}

static void cast(moec_emit *e, const moec_kx_node *n, moec_dtype from) {
  moec_dtype to = (moec_dtype)n->num_i;
  char f = moec_dtype_get(from)->cls, t = moec_dtype_get(to)->cls;
  bool half = to == MOEC_F16 || to == MOEC_BF16;
  if (t == 'B') {
    moec_buf_putc(e->b, '(');
    moec_emit_expr(e, n->args[0]);
    moec_buf_puts(e->b, " != 0)");
    return;
  }
  bool call = half || (f == 'F' && t != 'F');
  if (half)
    moec_buf_printf(e->b, "moec_round_%s(", moec_dtype_get(to)->text);
  else if (call)
    moec_buf_printf(e->b, "moec_cast_%s_%s(", moec_dtype_get(to)->text, moec_dtype_get(from)->text);
  else
    moec_buf_printf(e->b, "((%s)", moec_emit_ctype(to));
  if (call)
    moec_emit_bare(e, n->args[0]);
  else
    moec_emit_expr(e, n->args[0]);
  moec_buf_putc(e->b, ')');
}

static void apply(moec_emit *e, const moec_kx_node *n) {
  moec_dtype operand = e->k->nodes[n->args[n->op == MOEC_OP_SELECT ? 1 : 0].i].dtype;
  if (n->op == MOEC_OP_CAST) {
    cast(e, n, operand);
    return;
  }
  if (n->dtype != MOEC_BOOL) operand = n->dtype; /* positions stand for 32-bit integers too */
  moec_buf text[3] = {{0}}, *b = e->b;
  const char *args[3] = {"", "", ""};
  bool call = !op_text_of(n->op, operand);
  for (uint32_t i = 0; i < n->n_args && i < 3; i++) {
    e->b = &text[i];
    if (call)
      moec_emit_bare(e, n->args[i]);
    else
      moec_emit_expr(e, n->args[i]);
    args[i] = moec_buf_str(&text[i]);
  }
  e->b = b;
  if (e->rough && operand == MOEC_F32 && (n->op == MOEC_OP_EXP || n->op == MOEC_OP_SIGMOID))
    moec_buf_printf(b, "moec_rough_%s(%s)", moec_op_get(n->op)->text, args[0]);
  else
    moec_emit_op(b, n->op, operand, n->n_args, args);
  for (int i = 0; i < 3; i++) moec_buf_fini(&text[i]);
}

static void load(moec_emit *e, moec_kx x) {
  const moec_kx_node *n = &e->k->nodes[x.i];
  const moec_kbuf *buf = &e->k->bufs[n->id];
  if (e->target->load && e->target->load(e, x)) return;
  bool half = buf->dtype == MOEC_F16 || buf->dtype == MOEC_BF16, guard = n->n_args > 1;
  e->used_buf[n->id] = true;
  if (guard) {
    moec_buf_putc(e->b, '(');
    moec_emit_expr(e, n->args[1]);
    moec_buf_puts(e->b, " ? ");
  }
  if (half) moec_buf_printf(e->b, "moec_load_%s(", moec_dtype_get(buf->dtype)->text);
  if (buf->data)
    moec_buf_printf(e->b, "%s_k%u[", e->symbol, n->id);
  else
    moec_buf_printf(e->b, "b%u[", n->id);
  moec_emit_bare(e, n->args[0]);
  moec_buf_puts(e->b, half ? "])" : "]");
  if (guard) moec_buf_puts(e->b, " : 0)");
}

static void wrap(moec_emit *e, const moec_kx_node *n) {
  moec_buf_puts(e->b, "moec_wrap(");
  if (n->n_args > 1) {
    moec_emit_expr(e, n->args[1]);
    moec_buf_puts(e->b, " ? ");
  }
  moec_emit_expr(e, n->args[0]);
  moec_buf_puts(e->b, n->n_args > 1 ? " : 0, " : ", ");
  moec_emit_dim(e, n->dim);
  moec_buf_puts(e->b, ", a->fault)");
}

void moec_emit_bare(moec_emit *e, moec_kx x) {
  size_t start = e->b->size;
  moec_emit_expr(e, x);
  char *text = e->b->data + start, *p = text;
  for (int depth = 0; *p; p++) {
    depth += (*p == '(') - (*p == ')');
    if (depth == 0) break;
  }
  if (*text != '(' || *p != ')' || p[1]) return; /* the first parenthesis doesn't end at the end */
  memmove(text, text + 1, (size_t)(p - text));
  e->b->size -= 2;
  e->b->data[e->b->size] = 0;
}

void moec_emit_expr(moec_emit *e, moec_kx x) {
  const moec_kx_node *n = &e->k->nodes[x.i];
  if (e->named[x.i] && !(e->first_of && n->vars >> (e->first_of - 1) & 1)) {
    moec_buf_printf(e->b, "t%u", e->named[x.i] - 1);
    return;
  }
  switch (n->kind) {
    case MOEC_KX_SUM:
      if (!n->n_args) {
        moec_emit_dim(e, n->dim);
        break;
      }
      moec_buf_putc(e->b, '(');
      sum_terms(e, n);
      moec_buf_putc(e->b, ')');
      break;
    case MOEC_KX_VAR: moec_emit_var(e, n->id); break;
    case MOEC_KX_DIV:
    case MOEC_KX_MOD: division(e, n); break;
    case MOEC_KX_INT: moec_emit_integer(e->b, n->dtype, n->num_i); break;
    case MOEC_KX_NUM: moec_emit_number(e->b, n->dtype, n->num); break;
    case MOEC_KX_LOAD: load(e, x); break;
    case MOEC_KX_WRAP: wrap(e, n); break;
    case MOEC_KX_APPLY: apply(e, n); break;
    default:
      moec_buf_printf(e->b, "moec_unnamed_%u", (unsigned)n->kind);
      break; /* does not compile */
  }
}

moec_kx moec_emit_unrounded(const moec_emit *e, moec_dtype t, moec_kx x) {
  const moec_kx_node *n = &e->k->nodes[x.i];
  bool cast = n->kind == MOEC_KX_APPLY && n->op == MOEC_OP_CAST && n->num_i == (int64_t)t;
  return cast && !e->named[x.i] && (t == MOEC_F16 || t == MOEC_BF16) ? n->args[0] : x;
}

void moec_emit_stored(moec_emit *e, moec_dtype t, moec_kx x) {
  bool half = t == MOEC_F16 || t == MOEC_BF16;
  x = moec_emit_unrounded(e, t, x);
  if (half) moec_buf_printf(e->b, "moec_store_%s(", moec_dtype_get(t)->text);
  moec_emit_bare(e, x);
  if (half) moec_buf_putc(e->b, ')');
}
