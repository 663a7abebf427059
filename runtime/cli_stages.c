#include "runtime/cli_stages.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/model.h"

/* Steps with experts' weights: what forward multiplies with last in its region is fc2, with anything else fc1. The
 * other direction of the same weights is the gradient of their input. */
static const char *dot_name(const moec_rt_plan *p, const moec_plan_step *s) {
  uint32_t weights = p->tensors[p->pool[s->args + 1]].buffer, moe = MOEC_NONE;
  const moec_plan_step *same = NULL, *last = NULL;
  uint32_t i = p->schedule_begin[MOEC_AT_STEP], end = p->schedule_begin[MOEC_AT_STEP + 1];
  for (; i < end; i++) {
    const moec_plan_step *x = &p->steps[i];
    if (x->op != MOEC_STEP_MOE_GROUPED_DOT) continue;
    if (same && x->moe != moe) continue;
    if (p->tensors[p->pool[x->args + 1]].buffer == weights && !same) same = x, moe = x->moe;
    if (same) last = x;
  }
  if (!same) return "grouped_dot";
  bool forward = p->ints[s->ints] == p->ints[same->ints];
  if (same == last) return forward ? "fc2" : "fc2_input_gradient";
  return forward ? "fc1" : "fc1_input_gradient";
}

/* A step's text without "moe.", except of the dots. */
const char *moec_rt_stage_of(const moec_rt_plan *p, const moec_plan_step *s) {
  const char *text = moec_rt_op_get(s->op)->text;
  if (s->op == MOEC_STEP_MOE_GROUPED_DOT) return dot_name(p, s);
  return strncmp(text, "moe.", 4) ? NULL : text + 4;
}

void moec_rt_stages_count(const moec_model *m, moec_program program, moec_rt_stages *out) {
  const moec_rt_plan *p = &m->plan;
  uint32_t schedule = (uint32_t)MOEC_AT_STEP + (uint32_t)program;
  *out = (moec_rt_stages){0};
  for (uint32_t i = p->schedule_begin[schedule]; i < p->schedule_begin[schedule + 1]; i++) {
    const char *name = moec_rt_stage_of(p, &p->steps[i]);
    if (!name) continue;
    size_t k = 0;
    while (k < out->n && strcmp(out->of[k].name, name)) k++;
    if (k == MOEC_RT_STAGES) continue; /* there are fewer kinds than that */
    if (k == out->n) out->of[out->n++].name = name;
    out->of[k].calls++;
  }
}

void moec_rt_stages_print(const moec_model *m, moec_program program) {
  moec_rt_stages all;
  moec_rt_stages_count(m, program, &all);
  if (!all.n) return;
  printf("expert stages per step:");
  for (size_t i = 0; i < all.n; i++)
    printf("%s %s %" PRIu64, i ? "," : "", all.of[i].name, all.of[i].calls);
  putchar('\n');
}
