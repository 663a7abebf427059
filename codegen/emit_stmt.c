/* Kernels as text: statements, and the function around them. What C and CUDA differ in is asked of the target. */
#include "codegen/emit_print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void moec_emit_init(moec_emit *e, const moec_kernel *k, const char *symbol, moec_buf *b) {
  *e = (moec_emit){.k = k, .symbol = symbol, .b = b, .indent = 1};
  e->named = calloc(k->n_nodes + 1, sizeof *e->named);
  e->used = calloc(moec_dim_symbol_count(k->m) + 1, sizeof *e->used);
  e->used_buf = calloc(k->n_bufs + 1, sizeof *e->used_buf);
  if (!e->named || !e->used || !e->used_buf) moec_die_out_of_memory();
}

void moec_emit_fini(moec_emit *e) {
  free(e->named);
  free(e->used);
  free(e->used_buf);
}

void moec_emit_indent(moec_emit *e) {
  for (int i = 0; i < e->indent; i++) moec_buf_puts(e->b, "  ");
}

void moec_emit_line(moec_emit *e, const char *fmt, ...) {
  va_list args;
  moec_emit_indent(e);
  va_start(args, fmt);
  moec_buf_vprintf(e->b, fmt, args);
  va_end(args);
  moec_buf_putc(e->b, '\n');
}

/* ---- reductions ----------------------------------------------------------------------------- */

moec_emit_accumulator moec_emit_accumulator_of(const moec_kx_node *n) {
  char cls = moec_dtype_get(n->dtype)->cls;
  const char *type = moec_emit_ctype(n->dtype);
  bool max = n->op == MOEC_OP_REDUCE_MAX, min = n->op == MOEC_OP_REDUCE_MIN,
       sum = n->op == MOEC_OP_REDUCE_SUM;
  if (cls == 'B')
    return max || sum ? (moec_emit_accumulator){"int", "|", "|="} : (moec_emit_accumulator){"int", "&", "&="};
  if (max) return (moec_emit_accumulator){type, cls == 'F' ? "moec_max" : "max", NULL};
  if (min) return (moec_emit_accumulator){type, cls == 'F' ? "moec_min" : "min", NULL};
  if (cls != 'F') type = "uint64_t"; /* wraps */
  return sum ? (moec_emit_accumulator){type, "+", "+="} : (moec_emit_accumulator){type, "*", "*="};
}

static void start_value(moec_buf *b, const moec_kx_node *n) {
  bool max = n->op == MOEC_OP_REDUCE_MAX, min = n->op == MOEC_OP_REDUCE_MIN,
       prod = n->op == MOEC_OP_REDUCE_PROD;
  unsigned bits = (unsigned)moec_dtype_get(n->dtype)->bytes * 8;
  char cls = moec_dtype_get(n->dtype)->cls;
  if (cls == 'F' && (max || min))
    moec_buf_puts(b, max ? "-INFINITY" : "INFINITY");
  else if (cls == 'B')
    moec_buf_puts(b, prod || min ? "1" : "0");
  else if (cls == 'I' && (max || min))
    moec_buf_printf(b, "INT%u_%s", bits, max ? "MIN" : "MAX");
  else if (min)
    moec_buf_printf(b, "UINT%u_MAX", bits);
  else
    moec_buf_puts(b, prod ? "1" : "0");
}

void moec_emit_join(moec_emit *e, const char *acc, const moec_kx_node *n, const char *operand, bool local) {
  moec_emit_accumulator how = moec_emit_accumulator_of(n);
  const char *args[2] = {acc, operand};
  if (local && how.update) {
    moec_buf_printf(e->b, "%s %s %s;", acc, how.update, operand);
    return;
  }
  moec_buf_printf(e->b, "%s = ", acc);
  moec_emit_op(e->b, moec_kx_join(n->op, n->dtype), n->dtype, 2, args);
  moec_buf_putc(e->b, ';');
}

/* acc = acc joined with the operand of reduction |n|. */
static void update(moec_emit *e, const char *acc, const moec_kx_node *n, bool local) {
  moec_buf operand = {0}, *b = e->b;
  e->b = &operand;
  if (local && moec_emit_accumulator_of(n).update)
    moec_emit_bare(e, n->args[0]);
  else
    moec_emit_expr(e, n->args[0]);
  e->b = b;
  moec_emit_join(e, acc, n, moec_buf_str(&operand), local);
  moec_buf_putc(b, '\n');
  moec_buf_fini(&operand);
}

/* ---- statements ----------------------------------------------------------------------------- */

static void statements(moec_emit *e, const moec_kstmts *s);
static void forget_names(moec_emit *e, const moec_kstmts *s);

static uint32_t name(moec_emit *e, moec_kx x) {
  e->named[x.i] = ++e->n_names;
  return e->n_names - 1;
}

/* w3[c1 - 8], rows of several variables flattened */
static void temp_place(moec_emit *e, uint32_t id) {
  const moec_ktemp *t = &e->k->temps[id];
  if (e->target->place && e->target->place(e, id)) return;
  moec_buf_printf(e->b, "w%u[", id);
  for (uint32_t i = 0; i < t->n_vars; i++) {
    const moec_kvar *v = &e->k->vars[t->vars[i]];
    if (i) moec_buf_puts(e->b, " + ");
    bool shifted = v->kind == MOEC_KVAR_LOOP && !moec_dim_is(e->k->m, v->lo, 0);
    if (shifted) moec_buf_putc(e->b, '(');
    moec_emit_var(e, t->vars[i]);
    if (shifted) moec_buf_puts(e->b, " - "), moec_emit_dim(e, v->lo), moec_buf_putc(e->b, ')');
    for (uint32_t k = i + 1; k < t->n_vars; k++) {
      const moec_kvar *u = &e->k->vars[t->vars[k]];
      moec_buf_puts(e->b, " * ");
      if (u->kind == MOEC_KVAR_LANE)
        moec_buf_printf(e->b, "%d", MOEC_KERNEL_LANES);
      else
        moec_emit_dim(e, moec_dim_sub(e->k->m, u->hi, u->lo));
    }
  }
  moec_buf_putc(e->b, ']');
}

static void loop(moec_emit *e, const moec_kstmt *st) {
  for (uint32_t i = 0; i < st->n_accs; i++) {
    const moec_kx_node *n = &e->k->nodes[st->accs[i].i];
    moec_emit_indent(e);
    moec_buf_printf(e->b, "%s a%u = ", moec_emit_accumulator_of(n).type, name(e, st->accs[i]));
    start_value(e->b, n);
    moec_buf_puts(e->b, ";\n");
  }
  e->target->loop(e, st);
  e->indent++;
  statements(e, &st->body);
  for (uint32_t i = 0; i < st->n_accs; i++) {
    char acc[16];
    snprintf(acc, sizeof acc, "a%u", e->named[st->accs[i].i] - 1);
    moec_emit_indent(e);
    update(e, acc, &e->k->nodes[st->accs[i].i], true);
  }
  forget_names(e, &st->body);
  e->indent--;
  if (e->target->close) e->target->close(e, st);
  else moec_emit_line(e, "}");
  for (uint32_t i = 0; i < st->n_accs; i++) {
    const moec_kx_node *r = &e->k->nodes[st->accs[i].i];
    const char *type = moec_emit_ctype(r->dtype), *have = moec_emit_accumulator_of(r).type;
    uint32_t n = e->named[st->accs[i].i] - 1;
    char acc[16];
    snprintf(acc, sizeof acc, "a%u", n);
    if (e->target->join) e->target->join(e, st, acc, r);
    if (strcmp(type, have))
      moec_emit_line(e, "const %s t%u = (%s)a%u;", type, n, type, n);
    else
      moec_emit_line(e, "const %s t%u = a%u;", type, n, n);
  }
}

/* The indent of an assignment that one of those who run the kernel does. */
static void guarded(moec_emit *e, const moec_kstmt *st) {
  moec_emit_indent(e);
  if (e->target->guard) moec_buf_puts(e->b, e->target->guard(e, st));
}

static void assignment(moec_emit *e, const moec_kstmt *st) {
  const moec_kx_node *n = &e->k->nodes[st->e.i];
  if (st->kind == MOEC_KSTMT_STORE && e->target->store && e->target->store(e, st)) return;
  if (st->kind == MOEC_KSTMT_LET || st->kind == MOEC_KSTMT_RECALL) moec_emit_indent(e);
  else guarded(e, st);
  if (st->kind == MOEC_KSTMT_STORE) {
    e->used_buf[st->id] = true;
    if (e->k->bufs[st->id].local)
      moec_buf_puts(e->b, "out[");
    else
      moec_buf_printf(e->b, "b%u[", st->id);
    moec_emit_bare(e, st->index);
    moec_buf_puts(e->b, "] = ");
    moec_emit_stored(e, e->k->bufs[st->id].dtype, st->e);
  } else if (st->kind == MOEC_KSTMT_LET) { /* printed before it has a name */
    moec_buf_printf(e->b, "const %s t%u = ", moec_emit_ctype(n->dtype), e->n_names);
    moec_emit_bare(e, st->e);
    name(e, st->e);
  } else if (st->kind == MOEC_KSTMT_RECALL) {
    moec_buf_printf(e->b, "const %s t%u = ", moec_emit_ctype(n->dtype), name(e, st->e));
    temp_place(e, st->id);
  } else {
    temp_place(e, st->id);
    moec_buf_puts(e->b, " = ");
    if (st->kind == MOEC_KSTMT_RESET)
      start_value(e->b, n);
    else
      moec_emit_bare(e, st->e);
  }
  moec_buf_puts(e->b, ";\n");
}

static void gather(moec_emit *e, const moec_kstmt *st) {
  moec_buf place = {0}, *b = e->b;
  e->b = &place;
  temp_place(e, st->id);
  e->b = b;
  guarded(e, st);
  update(e, moec_buf_str(&place), &e->k->nodes[st->e.i], false);
  moec_buf_fini(&place);
}

static void statements(moec_emit *e, const moec_kstmts *s) {
  for (size_t i = 0; i < s->n; i++) {
    if (e->target->enter) e->target->enter(e, &s->v[i]);
    if (s->v[i].kind == MOEC_KSTMT_LOOP)
      loop(e, &s->v[i]);
    else if (s->v[i].kind == MOEC_KSTMT_GATHER)
      gather(e, &s->v[i]);
    else
      assignment(e, &s->v[i]);
    if (e->target->leave) e->target->leave(e, &s->v[i]);
  }
}

/* Names end with the block. */
static void forget_names(moec_emit *e, const moec_kstmts *s) {
  for (size_t i = 0; i < s->n; i++) {
    if (s->v[i].kind == MOEC_KSTMT_LET || s->v[i].kind == MOEC_KSTMT_RECALL)
      e->named[s->v[i].e.i] = 0;
    for (uint32_t k = 0; s->v[i].kind == MOEC_KSTMT_LOOP && k < s->v[i].n_accs; k++)
      e->named[s->v[i].accs[k].i] = 0;
  }
}

/* ---- functions ------------------------------------------------------------------------------ */

static void constant_array(moec_buf *b, const moec_emit *e, uint32_t id) {
  const moec_kbuf *buf = &e->k->bufs[id];
  const moec_dtype_info *t = moec_dtype_get(buf->dtype);
  size_t n = buf->data->size / t->bytes;
  moec_buf_printf(b, "%s %s %s_k%u[%zu] = {", e->target->constant, t->c, e->symbol, id, n);
  for (size_t i = 0; i < n; i++) {
    moec_buf_puts(b, i % 8 ? " " : "\n  ");
    if (buf->dtype == MOEC_F16 || buf->dtype == MOEC_BF16)
      moec_emit_integer(b, MOEC_U16, moec_load_i64(MOEC_U16, buf->data->bytes, i));
    else if (t->cls == 'F')
      moec_emit_number(b, buf->dtype, moec_load_f64(buf->dtype, buf->data->bytes, i));
    else
      moec_emit_integer(b, buf->dtype, moec_load_i64(buf->dtype, buf->data->bytes, i));
    moec_buf_putc(b, ',');
  }
  moec_buf_puts(b, "\n};\n");
}

/* Symbols, buffers and row temporaries, as far as they are used. */
static void locals(moec_emit *e) {
  const moec_kernel *k = e->k;
  moec_buf temps = {0}, *b = e->b;
  e->b = &temps; /* their sizes may use symbols */
  e->target->temps(e);
  e->b = b;
  for (uint32_t i = 0; i < moec_dim_symbol_count(k->m); i++)
    if (e->used[i]) moec_emit_line(e, "const int64_t s%u = a->sym[%u];", i, i);
  for (uint32_t i = 0; i < k->n_bufs; i++) {
    const char *type = moec_dtype_get(k->bufs[i].dtype)->c, *c = k->bufs[i].output ? "" : "const ";
    if (!e->used_buf[i] || k->bufs[i].data || k->bufs[i].local) continue;
    moec_emit_indent(e);
    moec_buf_printf(b, "%s%s *%s const b%u = ", c, type, e->target->restricted, i);
    if (e->target->cxx) moec_buf_printf(b, "(%s%s *)", c, type);
    moec_buf_printf(b, "a->buf[%u];\n", i);
  }
  moec_buf_puts(b, moec_buf_str(&temps));
  moec_buf_fini(&temps);
}

moec_dim moec_emit_chunked_rows(const moec_kernel *k) {
  for (size_t i = 0; i < k->n_vars; i++)
    if (k->vars[i].kind == MOEC_KVAR_CHUNK_ROW) return k->vars[i].hi;
  return moec_dim_const(k->m, 0);
}

void moec_emit_function(moec_emit *e, const char *head) {
  moec_buf body = {0}, *b = e->b;
  e->b = &body;
  statements(e, &e->k->body);
  for (uint32_t i = 0; i < e->k->n_bufs; i++)
    if (e->k->bufs[i].data && e->used_buf[i]) constant_array(b, e, i);
  moec_buf_printf(b, "%s {\n", head);
  e->b = b;
  if (e->first) moec_emit_line(e, "%s", e->first);
  locals(e);
  moec_buf_puts(b, moec_buf_str(&body));
  moec_buf_puts(b, "}\n");
  moec_buf_fini(&body);
  moec_emit_fini(e);
}
