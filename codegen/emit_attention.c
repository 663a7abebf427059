/* Kernels of attention and of its gradient: operand functions, parameters, and the text of codegen/kernels/attention.c
 * or attention_grad.c. */
#include <math.h>

#include "codegen/embedded.h"
#include "codegen/emit_print.h"
#include "codegen/kernel_attention.h"

static const struct {
  const char *name, *params;
} operand_texts[MOEC_KOPERAND_COUNT] = {
    [MOEC_KOPERAND_Q] = {"q", "int64_t b, int64_t h, int64_t i"},
    [MOEC_KOPERAND_K] = {"k", "int64_t b, int64_t h, int64_t j0, int64_t j1"},
    [MOEC_KOPERAND_V] = {"v", "int64_t b, int64_t h, int64_t j0, int64_t j1"},
    [MOEC_KOPERAND_MASK] = {"mask", "int64_t b, int64_t h, int64_t i, int64_t j0, int64_t j1"},
    [MOEC_KOPERAND_SINK] = {"sink", "int64_t h"},
    [MOEC_KOPERAND_Y] = {"y", "int64_t b, int64_t h, int64_t i"},
    [MOEC_KOPERAND_LSE] = {"lse", "int64_t b, int64_t h, int64_t i"},
    [MOEC_KOPERAND_DY] = {"dy", "int64_t b, int64_t h, int64_t i"},
};

static void operand_function(moec_buf *b, moec_arena *a, const moec_kernel *k, const char *symbol, moec_koperand o,
                             const moec_emit_attention_text *text) {
  moec_buf name = {0}, head = {0};
  moec_emit e;
  moec_buf_printf(&name, "%s_%s", symbol, operand_texts[o].name);
  moec_buf_printf(&head, "%s %s(const moec_kernel_args *a, %s, float *%s out)", text->operand, moec_buf_str(&name),
                  operand_texts[o].params, text->target->restricted);
  moec_emit_init(&e, k, moec_buf_str(&name), b);
  e.target = text->target;
  if (text->lanes) e.lanes = text->lanes(a, k);
  moec_emit_function(&e, moec_buf_str(&head));
  moec_buf_fini(&name);
  moec_buf_fini(&head);
}

static void define_size(moec_emit *e, const char *name, moec_dim d) {
  moec_buf_printf(e->b, "#define %s ", name);
  moec_emit_dim(e, d);
  moec_buf_putc(e->b, '\n');
}

static void define_float(moec_buf *b, const char *name, double v) {
  moec_buf_printf(b, "#define %s ", name);
  moec_emit_number(b, MOEC_F32, v);
  moec_buf_putc(b, '\n');
}

/* Names that a kernel's text uses; they end with it. */
static const char *const names[] = {"NAME",    "KERNEL", "B",    "S",            "T",           "H",    "G",
                                    "D",       "E",      "SCALE", "SOFTCAP",     "CAUSAL",      "MASK", "MASK_BY_HEAD",
                                    "MASK_BY_ROW", "SINK", "LSE", "LSE_BUFFER",  "OUT",         "DQ",   "DK",
                                    "DV",      "DSINK",  "OUT_TYPE", "STORE", "SHARED", "MULTIPLY", "PAIR",
                                    "LOAD",    "Q_LINE", "K_LINE", "V_LINE", "Y_LINE", "LSE_LINE", "DY_LINE"};

static void define_sizes(moec_emit *e, const moec_kattention *t) {
  define_size(e, "B", t->b);
  define_size(e, "S", t->s);
  define_size(e, "T", t->t);
  define_size(e, "H", t->h);
  define_size(e, "G", t->g);
  moec_buf_printf(e->b, "#define D %lld\n#define E %lld\n", (long long)t->d, (long long)t->e);
}

static void define_scores(moec_buf *b, const moec_kattention *t) {
  bool mask = t->operands[MOEC_KOPERAND_MASK] != NULL;
  define_float(b, "SCALE", (double)t->scale);
  define_float(b, "SOFTCAP", (double)t->softcap);
  moec_buf_printf(b, "#define CAUSAL %d\n#define MASK %d\n", t->causal, !mask ? 0 : t->mask_bool ? 1 : 2);
  moec_buf_printf(b, "#define MASK_BY_HEAD %d\n#define MASK_BY_ROW %d\n", t->mask_by_head, t->mask_by_row);
  moec_buf_printf(b, "#define SINK %d\n", t->operands[MOEC_KOPERAND_SINK] != NULL);
}

static void define_results(moec_buf *b, const moec_kattention *t) {
  static const char *const grads[] = {"DQ", "DK", "DV", "DSINK"};
  bool lse = !t->grad && t->results[1] != MOEC_NO_BUFFER;
  for (int i = 0; i < 4 && t->grad; i++)
    moec_buf_printf(b, "#define %s %d\n", grads[i], t->results[i] == MOEC_NO_BUFFER ? -1 : (int)t->results[i]);
  if (!t->grad)
    moec_buf_printf(b, "#define OUT %u\n#define LSE %d\n#define LSE_BUFFER %u\n", t->results[0], lse,
                    lse ? t->results[1] : 0);
  bool half = t->dtype == MOEC_F16 || t->dtype == MOEC_BF16;
  moec_buf_printf(b, "#define OUT_TYPE %s\n#define STORE(x) ", moec_dtype_get(t->dtype)->c);
  if (half) moec_buf_printf(b, "moec_store_%s(x)\n", moec_dtype_get(t->dtype)->text);
  else moec_buf_puts(b, "(x)\n");
}

/* Where vectors begin, and what tensor cores do with their elements. */
static void define_views(moec_emit *e, const moec_kattention *t) {
  static const struct {
    moec_koperand o;
    const char *name;
  } lines[] = {{MOEC_KOPERAND_Q, "Q_LINE"}, {MOEC_KOPERAND_K, "K_LINE"},     {MOEC_KOPERAND_V, "V_LINE"},
               {MOEC_KOPERAND_Y, "Y_LINE"}, {MOEC_KOPERAND_LSE, "LSE_LINE"}, {MOEC_KOPERAND_DY, "DY_LINE"}};
  const char *type = moec_dtype_get(t->dtype)->text;
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    const moec_kview *v = &t->views[lines[i].o];
    if (!v->is) continue;
    moec_buf_printf(e->b, "#define %s(b, i, h) ((const %s *)a->buf[%u] + ", lines[i].name,
                    lines[i].o == MOEC_KOPERAND_LSE ? "float" : moec_dtype_get(t->dtype)->c, v->arg);
    moec_emit_dim(e, v->offset);
    for (int k = 0; k < 3; k++) {
      moec_buf_printf(e->b, " + (%c) * ", "bih"[k]);
      moec_emit_dim(e, v->strides[k]);
    }
    moec_buf_puts(e->b, ")\n");
  }
  moec_buf_printf(e->b, "#define MULTIPLY moec_multiply_%s\n#define PAIR moec_pair_%s\n#define LOAD moec_load_%s\n",
                  type, type, type);
}

static bool needs_function(const moec_emit_attention_text *text, moec_koperand o) {
  return !text->views || o == MOEC_KOPERAND_MASK || o == MOEC_KOPERAND_SINK;
}

void moec_emit_attention(moec_buf *b, moec_arena *a, const moec_kernel *k, const char *symbol,
                         const moec_emit_attention_text *text) {
  const moec_kattention *t = k->attention;
  moec_emit e;
  for (int o = 0; o < MOEC_KOPERAND_COUNT; o++)
    if (t->operands[o] && needs_function(text, (moec_koperand)o))
      operand_function(b, a, t->operands[o], symbol, (moec_koperand)o, text);
  moec_emit_init(&e, k, symbol, b);
  e.direct = true;
  moec_buf_printf(b, "#define NAME(x) %s_##x\n#define KERNEL %s\n", symbol, symbol);
  define_sizes(&e, t);
  define_scores(b, t);
  define_results(b, t);
  if (text->shared) moec_buf_printf(b, "#define SHARED %u\n", text->shared);
  if (text->views) define_views(&e, t);
  const char *name = t->grad ? text->gradient : text->forward;
  const moec_embedded_file *file = moec_embedded_find(name);
  if (text->views) moec_embedded_write(b, name);
  else if (file) moec_buf_write(b, file->begin, file->size); /* what it includes is for checks of it alone */
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    moec_buf_printf(b, "#undef %s\n", names[i]);
  moec_emit_fini(&e);
}
