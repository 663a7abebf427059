/* What a program of a finished plan will cost at given sizes: counted and placed as the runtime does it on binding
 * (runtime/exec_place.c), so that it can be known without an executable. */
#include "base/first_fit.h"
#include "base/size.h"
#include "codegen/plan_build.h"

enum { ALIGN = 64 }; /* MOEC_RT_ALIGN */

typedef struct pricer {
  const moec_plan_tables *t;
  const int64_t *symbols;
  moec_dim *dim_of; /* by expr, {0}: it is a constant */
} pricer;

/* Sizes come from dims; constants may have been made without one. */
static void find_dims(pricer *p, moec_arena *a) {
  p->dim_of = MOEC_NEW_ARRAY(a, moec_dim, p->t->n_exprs + 1);
  for (uint32_t d = 0; d < p->t->n_expr_of_dim; d++)
    if (p->t->expr_of_dim[d] != MOEC_NONE) p->dim_of[p->t->expr_of_dim[d]] = (moec_dim){d};
}

/* False where |e| has no value at these sizes. */
static bool value_of(const pricer *p, moec_expr_ref e, int64_t *out) {
  if (p->t->exprs[e].op == MOEC_EXPR_CONST) {
    *out = p->t->exprs[e].imm;
    return true;
  }
  moec_status *s = moec_dim_eval(p->t->m, p->dim_of[e], p->symbols, out);
  bool known = !s;
  moec_status_free(s);
  return known;
}

static void count(const pricer *p, moec_schedule program, moec_plan_cost *out) {
  for (size_t i = 0; i < p->t->n_steps; i++) {
    const moec_plan_step *s = &p->t->steps[i];
    int64_t flops;
    if (s->schedule != (uint32_t)program) continue;
    out->steps++;
    out->kernels += s->op == MOEC_STEP_KERNEL;
    if (out->flops >= 0 && !(value_of(p, s->flops, &flops) && moec_add_i64(out->flops, flops, &out->flops)))
      out->flops = -1;
  }
}

/* Outputs live until the next run, and so do the routes, whose last use the plan puts behind the last step. */
static int64_t peak_of(const pricer *p, moec_schedule program, moec_interval *all, moec_interval *placed) {
  uint32_t n = 0;
  uint64_t total;
  for (uint32_t b = 0; b < p->t->n_buffers; b++) {
    const moec_plan_buffer *x = &p->t->buffers[b];
    int64_t bytes;
    if (x->schedule != (uint32_t)program || x->first == MOEC_NONE) continue;
    if (x->kind != MOEC_BUFFER_STEP && x->kind != MOEC_BUFFER_OUTPUT) continue;
    if (!value_of(p, x->bytes, &bytes) || bytes < 0 || bytes > INT64_MAX - ALIGN) return -1;
    all[n++] = (moec_interval){.id = b,
                               .first = x->first,
                               .last = x->kind == MOEC_BUFFER_OUTPUT ? UINT32_MAX : x->last,
                               .size = moec_align_up((size_t)bytes, ALIGN)};
  }
  return moec_first_fit(all, placed, n, &total) && total <= INT64_MAX ? (int64_t)total : -1;
}

moec_plan_cost moec_plan_cost_of(const moec_plan_tables *t, moec_schedule program, const int64_t *symbols) {
  pricer p = {.t = t, .symbols = symbols};
  moec_plan_cost r = {0};
  moec_arena *a = moec_arena_create();
  find_dims(&p, a);
  count(&p, program, &r);
  r.peak = peak_of(&p, program, MOEC_NEW_ARRAY(a, moec_interval, t->n_buffers + 1),
                   MOEC_NEW_ARRAY(a, moec_interval, t->n_buffers + 1));
  moec_arena_destroy(a);
  return r;
}
