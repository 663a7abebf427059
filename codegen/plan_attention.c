/* What the plan says of attention kernels to libraries that could run in their place. */
#include "codegen/kernel_attention.h"
#include "codegen/plan_build.h"

/* Results are dense. */
static moec_plan_view result(moec_plan_tables *t, const moec_kattention *a, uint32_t buffer, bool keys, int64_t width) {
  moec_plan_view v = {.arg = MOEC_NONE};
  moec_dim head = moec_dim_const(t->m, width), row = moec_dim_mul(t->m, head, keys ? a->g : a->h);
  if (buffer == MOEC_NO_BUFFER) return v;
  v.arg = buffer;
  v.offset = moec_plan_expr_const(t, 0);
  v.strides[0] = moec_plan_expr_of(t, moec_dim_mul(t->m, row, keys ? a->t : a->s));
  v.strides[1] = moec_plan_expr_of(t, row);
  v.strides[2] = moec_plan_expr_of(t, head);
  return v;
}

static moec_plan_view operand(moec_plan_tables *t, const moec_kview *x) {
  moec_plan_view v = {.arg = x->arg, .offset = moec_plan_expr_of(t, x->offset)};
  for (int i = 0; i < 3; i++) v.strides[i] = moec_plan_expr_of(t, x->strides[i]);
  return v;
}

/* Results of a forward kernel: y, lse; of a gradient: dq, dk, dv, all of which a library makes at once. */
static void add_results(moec_plan_tables *t, const moec_kattention *a, moec_plan_view *to) {
  if (a->grad) {
    to[MOEC_ATTENTION_DQ] = result(t, a, a->results[0], false, a->d);
    to[MOEC_ATTENTION_DK] = result(t, a, a->results[1], true, a->d);
    to[MOEC_ATTENTION_DV] = result(t, a, a->results[2], true, a->e);
  } else {
    to[MOEC_ATTENTION_Y] = result(t, a, a->results[0], false, a->e);
    to[MOEC_ATTENTION_LSE] = result(t, a, a->results[1], false, 1);
  }
}

static bool fits(const moec_kattention *a) {
  bool masked = a->operands[MOEC_KOPERAND_MASK] != NULL;
  if (a->softcap > 0 || a->operands[MOEC_KOPERAND_SINK] || (masked && a->seen == MOEC_KMASK_ANY)) return false;
  if (a->dtype != MOEC_F16 && a->dtype != MOEC_BF16) return false;
  for (int o = 0; o < MOEC_KOPERAND_COUNT; o++)
    if (a->operands[o] && o != MOEC_KOPERAND_MASK && !a->views[o].is) return false;
  for (int i = 0; i < 3 && a->grad; i++)
    if (a->results[i] == MOEC_NO_BUFFER) return false;
  return true;
}

void moec_plan_add_attention(moec_plan_tables *t, const moec_kernel *k, uint32_t kernel) {
  static const struct {
    moec_koperand from;
    moec_attention_operand to;
  } operands[] = {{MOEC_KOPERAND_Q, MOEC_ATTENTION_Q},     {MOEC_KOPERAND_K, MOEC_ATTENTION_K},
                  {MOEC_KOPERAND_V, MOEC_ATTENTION_V},     {MOEC_KOPERAND_Y, MOEC_ATTENTION_Y},
                  {MOEC_KOPERAND_LSE, MOEC_ATTENTION_LSE}, {MOEC_KOPERAND_DY, MOEC_ATTENTION_DY}};
  const moec_kattention *a = k->attention;
  if (!a || !fits(a)) return;
  const moec_dim sizes[] = {a->b, a->s, a->t, a->h, a->g, moec_dim_const(t->m, a->d), moec_dim_const(t->m, a->e)};
  moec_plan_attention r = {.kernel = kernel, .grad = a->grad, .dtype = (uint32_t)a->dtype, .scale = a->scale};
  moec_expr_ref *to[] = {&r.b, &r.s, &r.t, &r.h, &r.g, &r.d, &r.e};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) *to[i] = moec_plan_expr_of(t, sizes[i]);
  r.causal = a->causal || a->seen == MOEC_KMASK_CAUSAL;
  r.ones = moec_plan_pool(t, a->n_ones, a->ones), r.n_ones = a->n_ones;
  for (int o = 0; o < MOEC_ATTENTION_OPERANDS; o++) r.operands[o] = (moec_plan_view){.arg = MOEC_NONE};
  for (size_t i = 0; i < sizeof operands / sizeof *operands; i++)
    if (a->views[operands[i].from].is) r.operands[operands[i].to] = operand(t, &a->views[operands[i].from]);
  add_results(t, a, r.operands);
  MOEC_TABLE_ADD(t, attentions, r);
}
