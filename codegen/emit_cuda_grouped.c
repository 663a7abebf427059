/* Products of experts on matrix units (codegen/kernels/grouped_wgmma.cu): wgmma and TMA, which no other processor
 * stands in for, so they are apart from the other library kernels. Where they have activations, a kernel for each,
 * which calls what is printed here of the activation's own kernel. */
#include "codegen/embedded.h"
#include "codegen/emit_print.h"
#include "codegen/kernel_activation.h"
#include "codegen/plan_build.h"

/* ---- the element of an activation --------------------------------------------------------------- */

static bool load(moec_emit *e, moec_kx x) {
  moec_buf_printf(e->b, "x%d", moec_kactivation_operand(e->k, e->lanes, x));
  return true;
}
static const moec_emit_target target = {.load = load};

static void names(moec_emit *e, const moec_kactivation *a, const moec_kstmts *body) {
  for (size_t i = 0; i < body->n; i++) {
    const moec_kstmt *st = &body->v[i];
    if (st->kind == MOEC_KSTMT_LOOP) names(e, a, &st->body);
    if (st->kind != MOEC_KSTMT_LET || !a->needs[st->e.i]) continue;
    moec_emit_indent(e);
    moec_buf_printf(e->b, "const %s t%u = ", moec_emit_ctype(e->k->nodes[st->e.i].dtype), e->n_names);
    moec_emit_bare(e, st->e);
    moec_buf_puts(e->b, ";\n");
    e->named[st->e.i] = ++e->n_names;
  }
}

void moec_emit_cuda_element(moec_buf *b, const moec_kernel *k, moec_kactivation *a, const char *symbol) {
  moec_emit e;
  moec_emit_init(&e, k, symbol, b);
  e.target = &target, e.lanes = a, e.rough = true;
  moec_buf_printf(b, "\nMOEC_INLINE float %s_element(float x0, float x1) {\n", symbol);
  names(&e, a, &k->body);
  moec_buf_puts(b, "  return ");
  moec_emit_bare(&e, moec_emit_unrounded(&e, MOEC_BF16, a->store->e));
  moec_buf_puts(b, ";\n}\n");
  moec_emit_fini(&e);
}

/* ---- kernels ------------------------------------------------------------------------------------ */

static bool has_activation(const moec_plan_step *s) {
  return s->op == MOEC_STEP_MOE_GROUPED_DOT && s->n_out == 2;
}

static const moec_kernel *kernel_of(const moec_kernel_set *set, uint32_t index) {
  for (size_t i = 0; i < set->n; i++)
    if (set->kernels[i] && set->plan_index[i] == index) return set->kernels[i];
  return NULL;
}

/* Whether a step before number |n| has that one's activation, and with |transposed| set the same kernel. */
static bool seen(const moec_plan_tables *t, size_t n, bool transposed) {
  const moec_plan_step *s = &t->steps[n];
  for (size_t i = 0; i < n; i++) {
    const moec_plan_step *x = &t->steps[i];
    if (!has_activation(x) || x->kernel != s->kernel) continue;
    if (!transposed || t->ints[x->ints] == t->ints[s->ints]) return true;
  }
  return false;
}

static void activations(moec_buf *b, const moec_plan_tables *t, const moec_kernel_set *set) {
  static const char *const forms[MOEC_ACTIVATION_FORMS] = {"EACH", "HALVES", "NEIGHBOURS"};
  bool any = false;
  for (size_t i = 0; i < t->n_steps; i++) {
    const moec_plan_step *s = &t->steps[i];
    moec_kactivation a;
    if (!has_activation(s)) continue;
    const moec_kernel *k = kernel_of(set, s->kernel);
    const char *symbol = moec_plan_text(t, t->kernels[s->kernel].name);
    if (!k || !moec_kernel_activation(t->arena, k, &a)) continue;
    if (!any) moec_embedded_write(b, "grouped_activation.cu");
    any = true;
    if (!seen(t, i, false)) moec_emit_cuda_element(b, k, &a, symbol);
    bool transposed = t->ints[s->ints];
    if (!seen(t, i, true))
      moec_buf_printf(b, "MOEC_WG_ACTIVATION(moec_wgmma_dot%s_%s, MOEC_WG_DOT%s, MOEC_WG_%s, %s_element)\n",
                      transposed ? "_t" : "", symbol, transposed ? "_T" : "", forms[a.form], symbol);
  }
}

void moec_emit_cuda_grouped(moec_buf *b, const moec_plan_tables *t, const moec_kernel_set *kernels) {
  for (size_t i = 0; i < t->n_steps; i++) {
    const moec_plan_step *s = &t->steps[i];
    bool product = s->op == MOEC_STEP_MOE_GROUPED_DOT || s->op == MOEC_STEP_MOE_GROUPED_OUTER;
    if (!product || t->tensors[t->pool[s->args]].dtype != (uint32_t)MOEC_BF16) continue;
    moec_embedded_write(b, "grouped_wgmma.cu");
    if (kernels) activations(b, t, kernels);
    return;
  }
}
