/* Kernels as C functions over a range of rows. */
#include "codegen/embedded.h"
#include "codegen/emit_print.h"

/* Whether a load steps by more than a few elements as variable |var| counts. gcc obeys a simd pragma
 * at any cost: two loads 4096 elements apart become one group of 4096 lanes, which it shuffles for
 * hours. Without the pragma it weighs such loops itself, and leaves them scalar. */
static bool far_apart(const moec_emit *e, uint32_t var) {
  enum { FAR = 16 };
  for (size_t i = 1; i < e->k->n_nodes; i++) {
    const moec_kx_node *load = &e->k->nodes[i];
    if (load->kind != MOEC_KX_LOAD) continue;
    const moec_kx_node *at = &e->k->nodes[load->args[0].i];
    for (uint32_t k = 0; at->kind == MOEC_KX_SUM && k < at->n_args; k++) {
      const moec_kx_node *x = &e->k->nodes[at->args[k].i];
      int64_t step;
      if (x->kind == MOEC_KX_VAR && x->id == var && moec_dim_is_const(e->k->m, at->coeffs[k], &step) &&
          (step > FAR || step < -FAR))
        return true;
    }
  }
  return false;
}

static void loop_head(moec_emit *e, const moec_kstmt *st) {
  const moec_kvar *v = &e->k->vars[st->id];
  if (st->simd && !far_apart(e, st->id)) {
    moec_buf_puts(e->b, "#pragma omp simd");
    for (uint32_t i = 0; i < st->n_accs; i++) {
      const moec_kx_node *n = &e->k->nodes[st->accs[i].i];
      moec_buf_printf(e->b, " reduction(%s : a%u)", moec_emit_accumulator_of(n).clause,
                      e->named[st->accs[i].i] - 1);
    }
    moec_buf_putc(e->b, '\n');
  }
  if (v->kind == MOEC_KVAR_ROW) {
    moec_emit_line(e, "for (int64_t row = begin; row < end; row++) {");
  } else if (v->kind == MOEC_KVAR_BLOCK) {
    moec_emit_line(e, "for (int64_t block = begin; block < end; block += %d) {", MOEC_KERNEL_LANES);
    moec_emit_line(e, "  const int64_t lanes = moec_least(end - block, %d);", MOEC_KERNEL_LANES);
  } else if (v->kind == MOEC_KVAR_CHUNK) {
    moec_emit_line(e, "for (int64_t chunk = begin; chunk < end; chunk++) {");
    moec_emit_indent(e);
    moec_buf_printf(e->b, "  const int64_t rows = moec_least(chunk * %lld + %lld, ", (long long)e->k->chunk,
                    (long long)e->k->chunk);
    moec_emit_dim(e, moec_emit_chunked_rows(e->k));
    moec_buf_puts(e->b, ");\n");
  } else if (v->kind == MOEC_KVAR_CHUNK_ROW) {
    moec_emit_line(e, "for (int64_t row = chunk * %lld; row < rows; row++) {", (long long)e->k->chunk);
  } else if (v->kind == MOEC_KVAR_KEY) {
    moec_emit_line(e, "for (int64_t j = j0; j < j1; j++) {");
  } else if (v->kind == MOEC_KVAR_LANE) {
    moec_emit_line(e, "for (int64_t lane = 0; lane < lanes; lane++) {");
  } else {
    moec_emit_indent(e);
    moec_buf_printf(e->b, "for (int64_t c%u = ", st->id);
    moec_emit_dim(e, v->lo);
    moec_buf_printf(e->b, "; c%u < ", st->id);
    moec_emit_dim(e, v->hi);
    moec_buf_printf(e->b, "; c%u++) {\n", st->id);
  }
}

void moec_emit_c_prelude(moec_buf *b) {
  moec_embedded_write(b, "prelude.c");
}

static void temps(moec_emit *e) {
  for (uint32_t i = 0; i < e->k->n_temps; i++) {
    const moec_ktemp *t = &e->k->temps[i];
    const char *type = moec_emit_ctype(t->dtype);
    moec_emit_indent(e);
    moec_buf_printf(
        e->b, t->on_stack ? "%s w%u[" : "%s *restrict const w%u = (void *)((char *)a->scratch + ", type, i);
    moec_emit_dim(e, t->on_stack ? t->count : t->offset);
    moec_buf_puts(e->b, t->on_stack ? "] __attribute__((aligned(64)));\n" : ");\n");
  }
}

static const moec_emit_target target = {
    .restricted = "restrict", .constant = "static const", .loop = loop_head, .temps = temps};

void moec_emit_c_kernel(moec_buf *b, const moec_kernel *k, const char *symbol) {
  static const moec_emit_attention_text attention = {.target = &target,
                                                     .forward = "attention.c",
                                                     .gradient = "attention_grad.c",
                                                     .operand = "static void"};
  moec_buf_printf(b, "\n/* %s: %s */\n", symbol, k->what);
  if (k->attention) {
    moec_emit_attention(b, NULL, k, symbol, &attention);
    return;
  }
  moec_emit e;
  moec_buf head = {0};
  moec_buf_printf(&head, "void %s(const moec_kernel_args *a, int64_t begin, int64_t end)", symbol);
  moec_emit_init(&e, k, symbol, b);
  e.target = &target;
  moec_emit_function(&e, moec_buf_str(&head));
  moec_buf_fini(&head);
}
