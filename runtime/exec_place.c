/* Where buffers of a program lie in the arena of programs: by their lifetimes. */
#include "base/first_fit.h"
#include "runtime/model.h"

/* Lifetimes that the plan leaves open: outputs, from their first writer on to the end; and routes,
 * which can be read after the step. */
static void find_lifetimes(const moec_model *m, moec_schedule program, moec_interval *of) {
  const moec_rt_plan *p = &m->plan;
  uint32_t begin = p->schedule_begin[program];
  for (uint32_t b = 0; b < p->n_buffers; b++) {
    bool output = p->buffers[b].kind == MOEC_BUFFER_OUTPUT;
    of[b] = (moec_interval){.id = b,
                            .first = output ? UINT32_MAX : p->buffers[b].first,
                            .last = output ? UINT32_MAX : p->buffers[b].last};
  }
  for (uint32_t i = begin; i < p->schedule_begin[program + 1]; i++) {
    const moec_plan_step *s = &p->steps[i];
    for (uint32_t k = s->n_in; k < s->n_in + s->n_out; k++) {
      uint32_t t = p->pool[s->args + k];
      if (t == MOEC_NONE) continue;
      moec_interval *x = &of[p->tensors[t].buffer];
      if (x->first > i - begin) x->first = i - begin;
    }
  }
  for (uint32_t i = 0; i < p->n_moe_layers; i++) {
    const moec_plan_moe *l = &p->moe_layers[i];
    const uint32_t kept[] = {l->indices, l->weights, l->offsets};
    if (l->schedule != (uint32_t)program) continue;
    for (int k = 0; k < 3; k++) {
      if (kept[k] != MOEC_NONE) of[p->tensors[kept[k]].buffer].last = UINT32_MAX;
    }
  }
}

static moec_status *place(moec_model *m, moec_schedule program, const uint64_t *bytes,
                          moec_interval *all, moec_interval *placed, uint64_t *offset,
                          uint64_t *out_total) {
  const moec_rt_plan *p = &m->plan;
  uint32_t n = 0;
  find_lifetimes(m, program, all);
  for (uint32_t b = 0; b < p->n_buffers; b++) {
    if (!moec_rt_placed(&p->buffers[b], program)) continue;
    if (all[b].first == UINT32_MAX) continue; /* nothing writes it */
    all[n] = all[b];
    all[n++].size = bytes[b];
  }
  if (!moec_first_fit(all, placed, n, out_total)) {
    return moec_rt_no_memory("step buffers", UINT64_MAX);
  }
  for (uint32_t i = 0; i < n; i++) offset[placed[i].id] = placed[i].offset;
  return NULL;
}

moec_status *moec_rt_place(moec_model *m, moec_schedule program, const uint64_t *bytes,
                           uint64_t *offset, uint64_t *out_total) {
  moec_interval *all = NULL, *placed = NULL;
  moec_status *s = MOEC_RT_NEW(&m->memory, all, m->plan.n_buffers, "placement");
  if (!s) s = MOEC_RT_NEW(&m->memory, placed, m->plan.n_buffers, "placement");
  if (!s) s = place(m, program, bytes, all, placed, offset, out_total);
  moec_rt_free(&m->memory, all);
  moec_rt_free(&m->memory, placed);
  return s;
}
