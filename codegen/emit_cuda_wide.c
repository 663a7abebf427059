/* Loops whose threads take several elements at a time, or a known number of times: first what is read, then a loop over
 * the elements with the body, last what is written.
 *
 *   #pragma unroll
 *   for (int i1 = 0; i1 < 8; i1++) {
 *     const int64_t d1 = (i1 * 32 + self) * 8;
 *     x0[i1] = moec_read_bf16x8(&b0[row * 2048 + d1]);         kept in registers for the loops that follow
 *     float o1[8];
 *   #pragma unroll
 *     for (int u = 0; u < 8; u++) {
 *       const int64_t c1 = d1 + u;
 *       o1[u] = moec_load_bf16(x0[i1].v[u]) * t2;
 *     }
 *     moec_write_bf16x8(&b2[row * 2048 + d1], o1);
 *   } */
#include <string.h>

#include "codegen/emit_cuda.h"

static const moec_cuda_share *share_of(const moec_lanes *l) { return &l->shares[l->open->loop->id]; }

/* ---- hooks -------------------------------------------------------------------------------------- */

void moec_wide_begin(moec_emit *e, const moec_kstmt *loop) {
  moec_lanes *l = e->lanes;
  l->open = MOEC_NEW(l->a, moec_cuda_open);
  *l->open = (moec_cuda_open){.loop = loop, .outer = e->b};
  e->b = &l->open->body;
  e->indent += l->shares[loop->id].v > 1;
}

/* The vector that holds wide load |x|, which the open loop reads unless it is there already: its number, and whether it
 * is one of those kept. */
static uint32_t number_of(moec_emit *e, moec_kx x, bool *kept) {
  moec_lanes *l = e->lanes;
  moec_cuda_open *o = l->open;
  uint32_t first = l->same[x.i].x.i;
  *kept = first && l->kept[first];
  if (*kept) return l->kept[first] - 1;
  for (size_t i = 0; i < o->n_loads; i++)
    if (o->loads[i].i == x.i) return o->numbers[i];
  *kept = l->keep[x.i];
  MOEC_PUSH(l->a, o->loads, o->n_loads, o->cap_loads, x);
  MOEC_PUSH(l->a, o->numbers, o->n_numbers, o->cap_numbers, l->n_vectors);
  if (l->keep[x.i]) { /* declared in front of the loop */
    l->kept[x.i] = l->n_vectors + 1;
    l->kept_at[x.i] = e->indent - 1 - (share_of(l)->v > 1);
  }
  return l->n_vectors++;
}

bool moec_wide_load(moec_emit *e, moec_kx x) {
  moec_lanes *l = e->lanes;
  if (!l->open || e->first_of || share_of(l)->v == 1) return false;
  if (!moec_vector_load(e->k, x, l->open->loop->id, share_of(l)->v)) return false;
  moec_dtype t = e->k->bufs[e->k->nodes[x.i].id].dtype;
  bool half = t == MOEC_F16 || t == MOEC_BF16;
  e->used_buf[e->k->nodes[x.i].id] = true;
  if (half) moec_buf_printf(e->b, "moec_load_%s(", moec_dtype_get(t)->text);
  bool kept;
  moec_buf_printf(e->b, "x%u", number_of(e, x, &kept));
  if (kept && l->same[x.i].later) moec_buf_printf(e->b, "[i%u + %u]", l->open->loop->id, l->same[x.i].later);
  else if (kept) moec_buf_printf(e->b, "[i%u]", l->open->loop->id);
  moec_buf_puts(e->b, half ? ".v[u])" : ".v[u]");
  return true;
}

bool moec_wide_store(moec_emit *e, const moec_kstmt *st) {
  moec_lanes *l = e->lanes;
  moec_cuda_open *o = l->open;
  if (!o || share_of(l)->v == 1 || !moec_vector_store(e->k, st, o->loop->id, share_of(l)->v)) return false;
  e->used_buf[st->id] = true;
  moec_emit_indent(e);
  moec_buf_printf(e->b, "o%zu[u] = ", o->n_stores);
  moec_emit_bare(e, moec_emit_unrounded(e, e->k->bufs[st->id].dtype, st->e));
  moec_buf_puts(e->b, ";\n");
  MOEC_PUSH(l->a, o->stores, o->n_stores, o->cap_stores, st);
  return true;
}

bool moec_wide_place(moec_emit *e, uint32_t temp) {
  const moec_lanes *l = e->lanes;
  if (!l->temps[temp].registers || !l->open) return false;
  uint32_t var = l->open->loop->id;
  if (share_of(l)->v > 1) moec_buf_printf(e->b, "w%u[i%u * %u + u]", temp, var, share_of(l)->v);
  else moec_buf_printf(e->b, "w%u[i%u]", temp, var);
  return true;
}

void moec_wide_forget(moec_emit *e) {
  moec_lanes *l = e->lanes;
  for (size_t i = 0; i < e->k->n_nodes; i++)
    if (l->kept[i] && l->kept_at[i] > e->indent) l->kept[i] = 0;
}

/* ---- what stands around the body -------------------------------------------------------------------- */

static void vector_type(moec_emit *e, const char *verb, moec_dtype t, uint32_t v) {
  moec_buf_printf(e->b, "moec_%s%sx%u", verb, moec_dtype_get(t)->text, v);
}

/* Of load |x|, the first of its neighbours: &b0[row * 2048 + d1] */
static void address(moec_emit *e, uint32_t buffer, moec_kx index) {
  if (e->k->bufs[buffer].data) moec_buf_printf(e->b, "&%s_k%u[", e->symbol, buffer);
  else moec_buf_printf(e->b, "&b%u[", buffer);
  moec_emit_bare(e, index);
  moec_buf_putc(e->b, ']');
}

static void declare_kept(moec_emit *e, const moec_cuda_open *o, const moec_cuda_share *s) {
  const moec_lanes *l = e->lanes;
  for (size_t i = 0; i < o->n_loads; i++) {
    if (!l->kept[o->loads[i].i]) continue;
    moec_emit_indent(e);
    vector_type(e, "", e->k->bufs[e->k->nodes[o->loads[i].i].id].dtype, s->v);
    moec_buf_printf(e->b, " x%u[%u];\n", o->numbers[i], s->trips);
  }
}

static void read(moec_emit *e, moec_kx x, uint32_t number, uint32_t v) {
  const moec_lanes *l = e->lanes;
  const moec_kx_node *n = &e->k->nodes[x.i];
  moec_dtype t = e->k->bufs[n->id].dtype;
  bool kept = l->kept[x.i] > 0, guard = n->n_args > 1;
  moec_emit_indent(e);
  if (!kept) {
    moec_buf_puts(e->b, guard ? "" : "const ");
    vector_type(e, "", t, v);
    moec_buf_putc(e->b, ' ');
  }
  moec_buf_printf(e->b, "x%u", number);
  if (kept) moec_buf_printf(e->b, "[i%u]", l->open->loop->id);
  if (guard) {
    moec_buf_puts(e->b, " = {};\n");
    moec_emit_indent(e);
    moec_buf_puts(e->b, "if (");
    moec_emit_bare(e, n->args[1]);
    moec_buf_printf(e->b, ") x%u", number);
    if (kept) moec_buf_printf(e->b, "[i%u]", l->open->loop->id);
  }
  moec_buf_puts(e->b, " = ");
  vector_type(e, l->again[x.i] && !kept && l->width < 32 ? "reread_" : "read_", t, v);
  moec_buf_putc(e->b, '(');
  address(e, n->id, n->args[0]);
  moec_buf_puts(e->b, ");\n");
}

static void declare_written(moec_emit *e, const moec_kstmt *st, size_t number, uint32_t v) {
  moec_dtype t = e->k->bufs[st->id].dtype;
  bool half = t == MOEC_F16 || t == MOEC_BF16;
  moec_emit_line(e, "%s o%zu[%u];", half ? "float" : moec_dtype_get(t)->c, number, v);
}

static void write(moec_emit *e, const moec_kstmt *st, size_t number, uint32_t v) {
  moec_emit_indent(e);
  moec_buf_puts(e->b, moec_cuda_guard(e, st));
  vector_type(e, "write_", e->k->bufs[st->id].dtype, v);
  moec_buf_putc(e->b, '(');
  address(e, st->id, st->index);
  moec_buf_printf(e->b, ", o%zu);\n", number);
}

/* The loop over what a thread takes; its index is d1, or c1 where it takes one at a time. */
static void turns(moec_emit *e, const moec_cuda_share *s, uint32_t var) {
  const moec_lanes *l = e->lanes;
  const uint32_t v = s->v, width = l->width;
  moec_buf lo = {0}, hi = {0}, name = {0}, *b = e->b;
  bool row = e->k->vars[var].kind == MOEC_KVAR_ROW;
  e->b = &name;
  e->first_of = v > 1 ? var + 1 : 0;
  moec_emit_var(e, var);
  e->b = b;
  const char *d = moec_buf_str(&name);
  if (!row) moec_cuda_bounds(e, var, &lo, &hi);
  bool zero = row || strcmp(moec_buf_str(&lo), "0") == 0;
  const char *plus = zero ? "" : " + ", *from = zero ? "" : moec_buf_str(&lo);
  if (row) {
    moec_emit_line(e, "for (int64_t %s = team * %u; %s < n_rows * %u; %s += n_teams * %u) {", d, v, d, v, d, v);
  } else if (!s->trips) {
    moec_buf_puts(e->b, "#pragma unroll 4\n");
    moec_emit_line(e, "for (int64_t %s = %s%sself * %u; %s < %s; %s += %u) {", d, from, plus, v, d, moec_buf_str(&hi),
                   d, width * v);
  } else {
    moec_buf_puts(e->b, "#pragma unroll\n");
    moec_emit_line(e, "for (int i%u = 0; i%u < %u; i%u++) {", var, var, s->trips, var);
    if (v > 1) moec_emit_line(e, "  const int64_t %s = %s%s(i%u * %u + self) * %u;", d, from, plus, var, width, v);
    else moec_emit_line(e, "  const int64_t %s = %s%si%u * %u + self;", d, from, plus, var, width);
    if (!s->exact) moec_emit_line(e, "  if (%s >= %s) break;", d, moec_buf_str(&hi));
  }
  moec_buf_fini(&lo), moec_buf_fini(&hi), moec_buf_fini(&name);
}

void moec_wide_end(moec_emit *e) {
  moec_lanes *l = e->lanes;
  moec_cuda_open *o = l->open;
  const moec_cuda_share *s = share_of(l);
  uint32_t var = o->loop->id;
  e->b = o->outer;
  e->indent -= s->v > 1;
  declare_kept(e, o, s);
  turns(e, s, var); /* from here on indices are those of the first */
  e->indent++;
  for (size_t i = 0; i < o->n_loads; i++) read(e, o->loads[i], o->numbers[i], s->v);
  for (size_t i = 0; i < o->n_stores; i++) declare_written(e, o->stores[i], i, s->v);
  if (s->v > 1) {
    moec_buf_puts(e->b, "#pragma unroll\n");
    moec_emit_line(e, "for (int u = 0; u < %u; u++) {", s->v);
    e->first_of = 0;
    moec_emit_indent(e);
    moec_buf_puts(e->b, "  const int64_t ");
    moec_emit_var(e, var);
    moec_buf_printf(e->b, " = d%u + u;\n", var);
    e->first_of = var + 1;
  }
  moec_buf_puts(e->b, moec_buf_str(&o->body));
  if (s->v > 1) moec_emit_line(e, "}");
  for (size_t i = 0; i < o->n_stores; i++) write(e, o->stores[i], i, s->v);
  e->first_of = 0;
  e->indent--;
  moec_emit_line(e, "}");
  moec_buf_fini(&o->body);
  l->open = NULL;
}
