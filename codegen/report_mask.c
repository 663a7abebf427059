/* What a mask computes, as an expression in i (query), j (key), b (batch) and h (head).
 *
 * The mask's graph is read from its result to its leaves while every value's index is carried along: movement
 * ops rewrite the index, an iota is its index, comparisons of sizes linear in i and j become "j <= i"
 * or "j > i - 8". So a causal mask and a window are told apart whatever ops they were made with. */
#include "codegen/report_mask.h"

#include <string.h>

typedef struct term {
  bool linear;       /* i*ci + j*cj + c */
  int64_t ci, cj;
  moec_dim c;
  const char *text;
} term;

typedef struct reader {
  const report *r;
  const moec_graph *g;
  report_mask *out;
  int budget; /* values still to be read: a shared graph could print exponentially */
} reader;

static term value_of(reader *s, moec_value v, const term *index);

/* ---- terms -------------------------------------------------------------------------------- */

static term opaque(const char *text) { return (term){.text = text}; }

/* Any length that a page can show. */
static const char *shorten(const reader *s, const char *text) {
  enum { LONGEST = 240 };
  return strlen(text) <= LONGEST ? text : moec_arena_printf(s->r->arena, "%.*s...", LONGEST, text);
}

static term linear(const reader *s, int64_t ci, int64_t cj, moec_dim c) {
  static const char *const names[] = {"i", "j"};
  const int64_t coeffs[] = {ci, cj};
  moec_buf b = {0};
  for (int k = 0; k < 2; k++) {
    if (!coeffs[k]) continue;
    if (b.size || coeffs[k] < 0) moec_buf_puts(&b, coeffs[k] < 0 ? b.size ? " - " : "-" : " + ");
    int64_t size = coeffs[k] < 0 ? -coeffs[k] : coeffs[k];
    if (size != 1) moec_buf_printf(&b, "%lld*", (long long)size);
    moec_buf_puts(&b, names[k]);
  }
  int64_t known;
  bool number = moec_dim_is_const(s->r->m, c, &known);
  if (!b.size)
    moec_dim_print(&b, s->r->m, c);
  else if (number && known)
    moec_buf_printf(&b, " %c %lld", known < 0 ? '-' : '+', (long long)(known < 0 ? -known : known));
  else if (!number) {
    moec_buf_puts(&b, " + ");
    moec_dim_print(&b, s->r->m, c);
  }
  term t = {true, ci, cj, c, moec_arena_strdup(s->r->arena, moec_buf_str(&b))};
  moec_buf_fini(&b);
  return t;
}

static term constant(const reader *s, int64_t v) { return linear(s, 0, 0, moec_dim_const(s->r->m, v)); }

static bool is_plain(const char *text) { return strpbrk(text, " ?") == NULL; }

static term infix(const reader *s, term a, const char *op, term b) {
  bool pa = is_plain(a.text), pb = is_plain(b.text);
  const char *text = moec_arena_printf(s->r->arena, "%s%s%s %s %s%s%s", pa ? "" : "(", a.text, pa ? "" : ")", op,
                                       pb ? "" : "(", b.text, pb ? "" : ")");
  return opaque(shorten(s, text));
}

/* ---- comparisons -------------------------------------------------------------------------- */

static const struct {
  moec_op op;
  const char *text;
  int toward; /* j below, above the bound */
  bool strict;
} compares[] = {
    {MOEC_OP_LE, "<=", -1, false}, {MOEC_OP_LT, "<", -1, true}, {MOEC_OP_GE, ">=", 1, false},
    {MOEC_OP_GT, ">", 1, true},    {MOEC_OP_EQ, "=", 0, false}, {MOEC_OP_NE, "!=", 0, false},
};

/* j - i on one side, the bound d on the other: notes causality and windows. */
static void classify(reader *s, int toward, bool strict, moec_dim d) {
  moec_module *m = s->r->m;
  if (strict) d = moec_dim_add(m, d, moec_dim_const(m, toward < 0 ? -1 : 1));
  if (toward < 0 && (moec_dim_is(m, d, 0) || moec_dim_eq(d, s->out->offset))) {
    s->out->causal = true;
    return;
  }
  int64_t low;
  if (toward > 0 && moec_dim_is_const(m, d, &low) && low <= 0) s->out->window = 1 - low;
}

static term compare(reader *s, moec_op op, term a, term b, bool conjunct) {
  size_t k = 0;
  while (k < sizeof compares / sizeof *compares && compares[k].op != op) k++;
  if (k == sizeof compares / sizeof *compares) return opaque("?");
  moec_module *m = s->r->m;
  int toward = compares[k].toward;
  int64_t ci = a.ci - b.ci, cj = a.cj - b.cj;
  if (!a.linear || !b.linear || !((ci == -1 && cj == 1) || (ci == 1 && cj == -1)))
    return infix(s, a, compares[k].text, b);
  moec_dim d = moec_dim_sub(m, b.c, a.c); /* cj*j + ci*i op d */
  if (cj < 0) d = moec_dim_sub(m, moec_dim_const(m, 0), d), toward = -toward;
  if (conjunct && toward) classify(s, toward, compares[k].strict, d);
  const char *text = toward == 0          ? compares[k].text
                     : toward < 0         ? compares[k].strict ? "<" : "<="
                     : compares[k].strict ? ">"
                                          : ">=";
  term left = linear(s, 0, 1, moec_dim_const(m, 0)), right = linear(s, 1, 0, d);
  return opaque(moec_arena_printf(s->r->arena, "%s %s %s", left.text, text, right.text));
}

/* ---- movement: the index of the operand ---------------------------------------------------- */

static bool reshape_index(const reader *s, moec_value x, moec_value y, const term *index, term *out) {
  moec_type_info a = moec_ty(s->g, x), b = moec_ty(s->g, y);
  uint32_t k = 0;
  for (uint32_t i = 0; i < a.rank; i++) {
    out[i] = constant(s, 0);
    if (moec_dim_is(s->r->m, a.dims[i], 1)) continue;
    while (k < b.rank && moec_dim_is(s->r->m, b.dims[k], 1)) k++;
    if (k == b.rank || !moec_dim_eq(a.dims[i], b.dims[k])) return false;
    out[i] = index[k++];
  }
  return true;
}

static term step_index(const reader *s, term at, moec_dim start, int64_t step) {
  if (!at.linear) return opaque(moec_arena_printf(s->r->arena, "%s'", at.text));
  return linear(s, at.ci * step, at.cj * step,
                moec_dim_add(s->r->m, start, moec_dim_mul(s->r->m, at.c, moec_dim_const(s->r->m, step))));
}

/* False: not a movement whose index can be told. */
static bool move_index(const reader *s, moec_node n, const term *index, term *out) {
  const moec_graph *g = s->g;
  moec_value x = moec_in(g, n, 0);
  moec_type_info t = moec_ty(g, x);
  switch (moec_op_of(g, n)) {
    case MOEC_OP_RESHAPE: return reshape_index(s, x, moec_out(g, n, 0), index, out);
    case MOEC_OP_TRANSPOSE:
      for (uint32_t i = 0; i < t.rank; i++) out[MOEC_ATTRS(g, n, TRANSPOSE)->perm.v[i]] = index[i];
      return true;
    case MOEC_OP_BROADCAST:
      for (uint32_t i = 0; i < t.rank; i++)
        out[i] = moec_dim_is(s->r->m, t.dims[i], 1) ? constant(s, 0) : index[MOEC_ATTRS(g, n, BROADCAST)->map.v[i]];
      return true;
    case MOEC_OP_SLICE:
      for (uint32_t i = 0; i < t.rank; i++)
        out[i] = step_index(s, index[i], MOEC_ATTRS(g, n, SLICE)->start.v[i], MOEC_ATTRS(g, n, SLICE)->step.v[i]);
      return true;
    default: return false;
  }
}

/* ---- values ------------------------------------------------------------------------------- */

static term read_input(const reader *s, moec_value v, const term *index) {
  moec_type_info t = moec_ty(s->g, v);
  moec_buf b = {0};
  moec_buf_printf(&b, "in%u", moec_value_get(s->g, v)->slot);
  bool any = false;
  for (uint32_t i = 0; i < t.rank; i++) {
    if (moec_dim_is(s->r->m, t.dims[i], 1)) continue;
    moec_buf_printf(&b, "%s%s", any ? ", " : "[", index[i].text);
    any = true;
  }
  if (any) moec_buf_putc(&b, ']');
  s->out->reads |= 1u << (moec_value_get(s->g, v)->slot & 31);
  term out = opaque(moec_arena_strdup(s->r->arena, moec_buf_str(&b)));
  moec_buf_fini(&b);
  return out;
}

static term read_const(const reader *s, const moec_const *d) {
  moec_type_info t = moec_type_get(s->r->m, d->type);
  size_t width = moec_dtype_get(t.dtype)->bytes;
  for (size_t i = width; i < d->size; i += width)
    if (memcmp(d->bytes, (const char *)d->bytes + i, width) != 0) return opaque("table[]");
  if (!d->size) return opaque("0");
  if (t.dtype == MOEC_BOOL) return opaque(moec_load_i64(t.dtype, d->bytes, 0) ? "true" : "false");
  if (!moec_dtype_is_float(t.dtype)) return constant(s, moec_load_i64(t.dtype, d->bytes, 0));
  double v = moec_load_f64(t.dtype, d->bytes, 0);
  return opaque(v < -1e30 ? "-inf" : moec_arena_printf(s->r->arena, "%g", v));
}

static term gathered(reader *s, moec_node n, const term *index) {
  moec_type_info x = moec_ty(s->g, moec_in(s->g, n, 0)), at = moec_ty(s->g, moec_in(s->g, n, 1));
  uint32_t axis = (uint32_t)MOEC_ATTRS(s->g, n, GATHER)->axis;
  term inner[MOEC_MAX_RANK + 1];
  for (uint32_t i = 0; i < axis; i++) inner[i] = index[i];
  inner[axis] = value_of(s, moec_in(s->g, n, 1), index + axis);
  for (uint32_t i = axis + 1; i < x.rank; i++) inner[i] = index[i + at.rank - 1];
  return value_of(s, moec_in(s->g, n, 0), inner);
}

static const struct { moec_op op; const char *text; } infixes[] = {
    {MOEC_OP_AND, "and"}, {MOEC_OP_OR, "or"}, {MOEC_OP_MUL, "*"}, {MOEC_OP_DIV, "/"}, {MOEC_OP_ADD, "+"},
        {MOEC_OP_SUB, "-"},
};

/* Movement whose index cannot be followed: what it moves, at an index nobody can name. */
static term moved(reader *s, moec_node n) {
  moec_value v = moec_out(s->g, n, 0);
  while (moec_op_cls(moec_def_op(s->g, v)) == MOEC_CLASS_MOVE) v = moec_in(s->g, moec_def(s->g, v), 0);
  term index[MOEC_MAX_RANK + 1];
  for (uint32_t i = 0; i <= MOEC_MAX_RANK; i++) index[i] = opaque("..");
  return value_of(s, v, index);
}

static term apply(reader *s, moec_node n, const term *index) {
  moec_op op = moec_op_of(s->g, n);
  const moec_node_info p = *moec_node_get(s->g, n);
  term x[3];
  if (moec_op_cls(op) == MOEC_CLASS_MOVE) return moved(s, n);
  if (!moec_op_is_elementwise(op) || p.n_in > 3)
    return opaque(moec_arena_printf(s->r->arena, "%s(...)", moec_op_get(op)->text));
  for (uint32_t i = 0; i < p.n_in; i++) x[i] = value_of(s, moec_in(s->g, n, i), index);
  if (op == MOEC_OP_CAST) return x[0];
  if (op == MOEC_OP_SELECT)
    return opaque(shorten(s, moec_arena_printf(s->r->arena, "(%s ? %s : %s)", x[0].text, x[1].text, x[2].text)));
  if (p.n_in == 1)
    return opaque(shorten(s, moec_arena_printf(s->r->arena, "%s(%s)", moec_op_get(op)->text, x[0].text)));
  moec_module *m = s->r->m;
  if (x[0].linear && x[1].linear && op == MOEC_OP_ADD)
    return linear(s, x[0].ci + x[1].ci, x[0].cj + x[1].cj, moec_dim_add(m, x[0].c, x[1].c));
  if (x[0].linear && x[1].linear && op == MOEC_OP_SUB)
    return linear(s, x[0].ci - x[1].ci, x[0].cj - x[1].cj, moec_dim_sub(m, x[0].c, x[1].c));
  if (moec_op_cls(op) == MOEC_CLASS_COMPARE) return compare(s, op, x[0], x[1], false);
  for (size_t i = 0; i < sizeof infixes / sizeof *infixes; i++)
    if (infixes[i].op == op) return infix(s, x[0], infixes[i].text, x[1]);
  return opaque(shorten(s, moec_arena_printf(s->r->arena, "%s(%s, %s)", moec_op_get(op)->text, x[0].text, x[1].text)));
}

static term value_of(reader *s, moec_value v, const term *index) {
  moec_node n = moec_def(s->g, v);
  term inner[MOEC_MAX_RANK + 1];
  if (s->budget-- <= 0) return opaque("...");
  if (!n.i) return read_input(s, v, index);
  if (move_index(s, n, index, inner)) return value_of(s, moec_in(s->g, n, 0), inner);
  switch (moec_op_of(s->g, n)) {
    case MOEC_OP_CONST: return read_const(s, MOEC_ATTRS(s->g, n, CONST)->data);
    case MOEC_OP_SIZE: return linear(s, 0, 0, MOEC_ATTRS(s->g, n, SIZE)->value);
    case MOEC_OP_IOTA: return index[MOEC_ATTRS(s->g, n, IOTA)->axis];
    case MOEC_OP_GATHER: return gathered(s, n, index);
    default: return apply(s, n, index);
  }
}

/* ---- conjunctions ------------------------------------------------------------------------- */

/* Whether select |n| gives 0 where its condition holds and something hugely negative elsewhere. */
static bool hides(reader *s, moec_node n, const term *index) {
  if (moec_op_of(s->g, n) != MOEC_OP_SELECT) return false;
  return strcmp(value_of(s, moec_in(s->g, n, 1), index).text, "0") == 0 &&
         strcmp(value_of(s, moec_in(s->g, n, 2), index).text, "-inf") == 0;
}

static void conjuncts(reader *s, moec_value v, const term *index, moec_buf *out);

/* An added mask that is select(c, 0, -inf), or the comparison of one with 0: seen where c holds. */
static bool select_conjuncts(reader *s, moec_value v, const term *index, moec_buf *out) {
  moec_node n = moec_def(s->g, v);
  term inner[MOEC_MAX_RANK + 1];
  if (s->budget-- <= 0 || !n.i) return false;
  if (move_index(s, n, index, inner)) return select_conjuncts(s, moec_in(s->g, n, 0), inner, out);
  if (moec_op_of(s->g, n) == MOEC_OP_EQ && strcmp(value_of(s, moec_in(s->g, n, 1), index).text, "0") == 0)
    return select_conjuncts(s, moec_in(s->g, n, 0), index, out);
  if (!hides(s, n, index)) return false;
  conjuncts(s, moec_in(s->g, n, 0), index, out);
  return true;
}

/* Appends the conditions under which a key is seen, joined by "and". */
static void conjuncts(reader *s, moec_value v, const term *index, moec_buf *out) {
  moec_node n = moec_def(s->g, v);
  moec_op op = moec_op_of(s->g, n);
  term inner[MOEC_MAX_RANK + 1];
  bool added = moec_dtype_is_float(moec_ty(s->g, v).dtype);
  if (n.i && move_index(s, n, index, inner)) {
    conjuncts(s, moec_in(s->g, n, 0), inner, out);
  } else if (n.i && s->budget > 0 && (op == MOEC_OP_AND || (added && op == MOEC_OP_ADD))) {
    s->budget--;
    conjuncts(s, moec_in(s->g, n, 0), index, out);
    conjuncts(s, moec_in(s->g, n, 1), index, out);
  } else if (!select_conjuncts(s, v, index, out)) {
    term t;
    if (n.i && moec_op_cls(op) == MOEC_CLASS_COMPARE && s->budget > 0)
      t = compare(s, op, value_of(s, moec_in(s->g, n, 0), index), value_of(s, moec_in(s->g, n, 1), index), true);
    else
      t = value_of(s, v, index);
    if (strcmp(t.text, "true") == 0) return;
    moec_buf_printf(out, "%s%s", out->size ? " and " : "", t.text);
  }
}

void moec_report_mask(const report *r, const moec_graph *g, moec_value mask, moec_dim offset, report_mask *out) {
  reader s = {r, g, out, 400};
  moec_type_info t = moec_ty(g, mask);
  const term axes[] = {opaque("b"), opaque("h"), linear(&s, 1, 0, moec_dim_const(r->m, 0)),
                       linear(&s, 0, 1, moec_dim_const(r->m, 0))};
  term index[MOEC_MAX_RANK + 1];
  moec_buf b = {0};
  *out = (report_mask){.offset = offset};
  for (uint32_t i = 0; i < t.rank && i < 4; i++) index[i] = moec_dim_is(r->m, t.dims[i], 1) ? constant(&s, 0) : axes[i];
  conjuncts(&s, mask, index, &b);
  out->text = shorten(&s, moec_arena_strdup(r->arena, moec_buf_str(&b)));
  moec_buf_fini(&b);
}
