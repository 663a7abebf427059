/* The text form (docs/ir.md): what moec_parse reads back to the same bytes. */
#include <inttypes.h>
#include <string.h>

#include "ir/ir_internal.h"

/* Quoted; quotes, backslashes and bytes outside printable ASCII as \xHH. */
static void print_string(moec_buf *b, const char *s) {
  moec_buf_putc(b, '"');
  for (; *s; s++) {
    if (*s >= 32 && *s < 127 && *s != '"' && *s != '\\') moec_buf_putc(b, *s);
    else moec_buf_printf(b, "\\x%02x", (unsigned)(unsigned char)*s);
  }
  moec_buf_putc(b, '"');
}

static void print_float(moec_buf *b, double v) {
  if (v != v) moec_buf_puts(b, "nan");
  else moec_buf_printf(b, "%a", v); /* inf and -inf too */
}

static const char *dtype_text(moec_dtype t) { return t ? moec_dtype_get(t)->text : "none"; }

/* ---- constants ---------------------------------------------------------------------------- */

enum { MAX_LISTED = 64 };

static void print_base64(moec_buf *b, const uint8_t *p, size_t n) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < n; i += 3) {
    uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) | (i + 2 < n ? p[i + 2] : 0u);
    for (size_t k = 0; k < 4; k++) moec_buf_putc(b, i + k > n ? '=' : digits[v >> (18 - 6 * k) & 63]);
  }
}

static void print_const(moec_buf *b, const moec_module *m, const moec_const *c) {
  if (!c) {
    moec_buf_puts(b, "none[]");
    return;
  }
  moec_dtype t = moec_type_get(m, c->type).dtype;
  size_t n = c->size / moec_dtype_get(t)->bytes;
  moec_type_print(b, m, c->type);
  if (n > MAX_LISTED) {
    moec_buf_puts(b, " base64 \"");
    print_base64(b, c->bytes, c->size);
    moec_buf_putc(b, '"');
    return;
  }
  moec_buf_puts(b, " [");
  for (size_t i = 0; i < n; i++) {
    if (i) moec_buf_puts(b, ", ");
    if (moec_dtype_is_float(t)) print_float(b, moec_load_f64(t, c->bytes, i));
    else if (t == MOEC_U64) moec_buf_printf(b, "%" PRIu64, (uint64_t)moec_load_i64(t, c->bytes, i));
    else moec_buf_printf(b, "%" PRId64, moec_load_i64(t, c->bytes, i));
  }
  moec_buf_putc(b, ']');
}

/* ---- attributes --------------------------------------------------------------------------- */

static void print_list(moec_buf *b, const moec_module *m, const void *at, moec_attr_kind kind) {
  const moec_ints *ints = at;
  const moec_dims *dims = at;
  moec_buf_putc(b, '[');
  for (uint32_t i = 0; i < ints->n; i++) {
    if (i) moec_buf_puts(b, ", ");
    if (kind == MOEC_ATTR_INTS) moec_buf_printf(b, "%" PRId64, ints->v[i]);
    else moec_dim_print(b, m, dims->v[i]);
  }
  moec_buf_putc(b, ']');
}

/* The functions or parameters may share a name: "#2" is the second of that name. Broken modules print too,
 * for messages: what is out of range has no name. */
static void print_reference(moec_buf *b, const moec_module *m, moec_sym name, size_t which) {
  moec_buf_putc(b, '@');
  print_string(b, moec_sym_str(m, name));
  if (which > 1) moec_buf_printf(b, "#%zu", which);
}

static void print_fn_reference(moec_buf *b, const moec_module *m, moec_fn f) {
  moec_sym name = f.i && f.i < m->n_fns ? m->fns[f.i]->name : (moec_sym){0};
  size_t which = 1;
  for (size_t i = 1; i < f.i && i < m->n_fns; i++) which += m->fns[i]->name.i == name.i;
  print_reference(b, m, name, f.i < m->n_fns ? which : 1);
}

static void print_param_reference(moec_buf *b, const moec_module *m, moec_param p) {
  moec_sym name = p.i && p.i < m->n_params ? m->params[p.i].name : (moec_sym){0};
  size_t which = 1;
  for (size_t i = 1; i < p.i && i < m->n_params; i++) which += m->params[i].name.i == name.i;
  print_reference(b, m, name, p.i < m->n_params ? which : 1);
}

static void print_attr(moec_buf *b, const moec_module *m, const moec_attr_info *info, const void *at) {
  moec_buf_printf(b, "%s = ", info->name);
  switch (info->kind) {
    case MOEC_ATTR_I: moec_buf_printf(b, "%" PRId64, *(const int64_t *)at); break;
    case MOEC_ATTR_F: print_float(b, *(const double *)at); break;
    case MOEC_ATTR_B: moec_buf_puts(b, *(const bool *)at ? "true" : "false"); break;
    case MOEC_ATTR_E: moec_buf_puts(b, dtype_text(*(const moec_dtype *)at)); break;
    case MOEC_ATTR_S: print_string(b, moec_sym_str(m, *(const moec_sym *)at)); break;
    case MOEC_ATTR_INTS:
    case MOEC_ATTR_DIMS: print_list(b, m, at, info->kind); break;
    case MOEC_ATTR_DIM: moec_dim_print(b, m, *(const moec_dim *)at); break;
    case MOEC_ATTR_FN: print_fn_reference(b, m, *(const moec_fn *)at); break;
    case MOEC_ATTR_PARAM: print_param_reference(b, m, *(const moec_param *)at); break;
    case MOEC_ATTR_DATA: print_const(b, m, *(const moec_const *const *)at); break;
  }
}

/* ---- functions ---------------------------------------------------------------------------- */

typedef struct numbering {
  const moec_graph *g;
  uint32_t *number; /* by value; 0: of no input and no node */
} numbering;

/* Inputs first, then results in the order of the nodes. An operand may stand before its definition. */
static numbering number_values(const moec_graph *g) {
  numbering k = {g, MOEC_NEW_ARRAY(g->m->arena, uint32_t, g->n_values + 1)};
  uint32_t next = 0;
  for (size_t i = 0; i < g->n_inputs; i++) k.number[g->inputs[i].i] = ++next;
  for (size_t n = 1; n < g->n_nodes; n++)
    for (uint32_t i = 0; g->nodes[n].op && i < g->nodes[n].n_out; i++)
      k.number[g->edges[g->nodes[n].out + i].i] = ++next;
  return k;
}

static void print_value(moec_buf *b, const numbering *k, moec_value v) {
  if (v.i) moec_buf_printf(b, "%%%u", v.i < k->g->n_values ? k->number[v.i] : 0);
  else moec_buf_putc(b, '_');
}

/* A dtype that is left to the operands: not there by default. */
static bool is_left_out(const moec_graph *g, moec_op op, const moec_attr_info *info, const void *at) {
  if (info->kind != MOEC_ATTR_E || *(const moec_dtype *)at) return false;
  char *attrs = moec_arena_alloc(g->m->arena, moec_op_get(op)->attrs_size);
  moec_attrs_default(op, attrs);
  return !*(const moec_dtype *)(const void *)(attrs + info->offset);
}

static void print_node(moec_buf *b, const numbering *k, const moec_node_info *p) {
  const moec_graph *g = k->g;
  const moec_op_info *info = moec_op_get(p->op);
  moec_buf_puts(b, "  ");
  for (uint32_t i = 0; i < p->n_out; i++) {
    if (i) moec_buf_puts(b, ", ");
    print_value(b, k, g->edges[p->out + i]);
  }
  moec_buf_printf(b, "%s%s(", p->n_out ? " = " : "", info->text);
  for (uint32_t i = 0; i < p->n_in; i++) {
    if (i) moec_buf_puts(b, ", ");
    print_value(b, k, g->edges[p->in + i]);
  }
  moec_buf_putc(b, ')');
  bool any = false;
  for (uint32_t i = 0; i < info->n_attrs; i++) {
    const void *at = (const char *)p->attrs + info->attrs[i].offset;
    if (is_left_out(g, p->op, &info->attrs[i], at)) continue;
    moec_buf_puts(b, any ? ", " : " {");
    print_attr(b, g->m, &info->attrs[i], at);
    any = true;
  }
  if (any) moec_buf_putc(b, '}');
  for (uint32_t i = 0; i < p->n_out; i++) {
    moec_buf_puts(b, i ? ", " : " : ");
    moec_type_print(b, g->m, g->values[g->edges[p->out + i].i].type);
  }
  if (p->loc.i) {
    moec_buf_puts(b, " @");
    print_string(b, moec_sym_str(g->m, p->loc));
  }
  moec_buf_putc(b, '\n');
}

void moec_print_fn(moec_buf *b, const moec_graph *g) {
  numbering k = number_values(g);
  moec_buf_puts(b, "fn @");
  print_string(b, moec_sym_str(g->m, g->name));
  moec_buf_putc(b, '(');
  for (size_t i = 0; i < g->n_inputs; i++) {
    moec_value v = g->inputs[i];
    if (i) moec_buf_puts(b, ", ");
    print_value(b, &k, v);
    moec_buf_putc(b, ' ');
    print_string(b, moec_sym_str(g->m, g->values[v.i].name));
    moec_buf_puts(b, " : ");
    moec_type_print(b, g->m, g->values[v.i].type);
    if (g->values[v.i].has_default) moec_buf_puts(b, " = "), print_float(b, g->values[v.i].dflt);
  }
  moec_buf_puts(b, ") -> (");
  for (size_t i = 0; i < g->n_outputs; i++) {
    if (i) moec_buf_puts(b, ", ");
    print_value(b, &k, g->outputs[i]);
    moec_buf_putc(b, ' ');
    print_string(b, moec_sym_str(g->m, g->output_names[i]));
  }
  moec_buf_puts(b, g->entry ? ") entry {\n" : ") {\n");
  for (size_t n = 1; n < g->n_nodes; n++)
    if (g->nodes[n].op) print_node(b, &k, &g->nodes[n]);
  moec_buf_puts(b, "}\n");
}

/* ---- the module --------------------------------------------------------------------------- */

static void print_numbers(moec_buf *b, const char *name, uint32_t n, const int64_t *v) {
  moec_buf_printf(b, "%s = [", name);
  for (uint32_t i = 0; i < n; i++) moec_buf_printf(b, "%s%" PRId64, i ? ", " : "", v[i]);
  moec_buf_putc(b, ']');
}

static void print_piece(moec_buf *b, const moec_module *m, const moec_piece *p) {
  int64_t perm[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < p->rank; i++) perm[i] = p->perm[i];
  moec_buf_puts(b, "{name = ");
  print_string(b, moec_sym_str(m, p->name));
  if (p->file == UINT32_MAX) moec_buf_puts(b, ", file = none");
  else moec_buf_printf(b, ", file = %u", p->file);
  moec_buf_printf(b, ", offset = %" PRIu64 ", dtype = %s, ", p->file == UINT32_MAX ? 0 : p->offset,
                  dtype_text(p->dtype));
  print_numbers(b, "shape", p->rank, p->shape);
  moec_buf_puts(b, ", ");
  print_numbers(b, "perm", p->rank, perm);
  moec_buf_puts(b, ", ");
  print_numbers(b, "start", p->rank, p->start);
  moec_buf_putc(b, '}');
}

static void print_param(moec_buf *b, const moec_module *m, const moec_param_info *p) {
  moec_buf_puts(b, "  param @");
  print_string(b, moec_sym_str(m, p->name));
  moec_buf_puts(b, " : ");
  moec_type_print(b, m, p->type);
  moec_buf_printf(
      b, " {trainable = %s, group = %s, shard_axis = %d, tie = %u, storage = %s, compute = %s, master = %s, pieces = [",
      p->trainable ? "true" : "false", p->group == MOEC_GROUP_EXPERT ? "expert" : "dense", (int)p->shard_axis, p->tie,
      dtype_text(p->storage), dtype_text(p->compute), dtype_text(p->master));
  for (uint32_t i = 0; i < p->n_pieces; i++) {
    if (i) moec_buf_puts(b, ", ");
    print_piece(b, m, &p->pieces[i]);
  }
  moec_buf_puts(b, "]}\n");
}

void moec_print(moec_buf *b, const moec_module *m) {
  moec_buf_puts(b, "module ");
  print_string(b, moec_sym_str(m, m->name));
  moec_buf_puts(b, " {\n");
  for (uint32_t i = 0; i < moec_dim_symbol_count(m); i++)
    moec_buf_printf(b, "%s%s%s", i ? ", " : "  symbols ", moec_dim_symbol_name(m, i),
                    i + 1 == moec_dim_symbol_count(m) ? "\n" : "");
  for (size_t i = 0; i < m->n_constraints; i++) {
    const moec_constraint *c = &m->constraints[i];
    moec_buf_puts(b, "  constraint ");
    moec_dim_print(b, m, c->a);
    moec_buf_puts(b, " == ");
    moec_dim_print(b, m, c->b);
    moec_buf_puts(b, " at ");
    print_string(b, moec_sym_str(m, c->where));
    moec_buf_puts(b, " : ");
    print_string(b, moec_sym_str(m, c->what));
    moec_buf_putc(b, '\n');
  }
  for (size_t i = 0; i < m->n_files; i++) {
    moec_buf_puts(b, "  file ");
    print_string(b, moec_sym_str(m, m->files[i].name));
    moec_buf_putc(b, '\n');
  }
  for (size_t i = 1; i < m->n_params; i++) print_param(b, m, &m->params[i]);
  moec_buf_puts(b, "}\n");
  for (size_t i = 1; i < m->n_fns; i++) moec_print_fn(b, m->fns[i]);
}
