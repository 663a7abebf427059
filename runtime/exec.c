/* Running a schedule: steps in order, on the device. */
#include "runtime/model.h"

#include <time.h>

void moec_rt_tensor_view(const moec_model *m, const moec_rt_binding *b, uint32_t tensor,
                         moec_tensor *out) {
  const moec_plan_tensor *t = &m->plan.tensors[tensor];
  *out =
      (moec_tensor){.dtype = (moec_dtype)t->dtype, .rank = t->rank, .data = m->buffers[t->buffer]};
  for (uint32_t a = 0; a < t->rank; a++) out->dims[a] = b->values[m->plan.pool[t->dims + a]];
}

void moec_rt_call_init(const moec_model *m, const moec_plan_step *s, const moec_rt_binding *b,
                       bool addresses, moec_rt_call *out) {
  out->plan = &m->plan;
  out->step = s;
  out->values = b->values;
  out->ints = m->plan.ints + s->ints;
  out->pool = m->pool;
  out->scratch = m->scratch.data;
  out->scratch_size = m->need.thread;
  out->shared = m->shared.data;
  for (uint32_t k = 0; k < s->n_in + s->n_out; k++) {
    uint32_t t = m->plan.pool[s->args + k];
    out->arg[k].dtype = MOEC_DTYPE_NONE;
    if (t != MOEC_NONE) moec_rt_tensor_view(m, b, t, &out->arg[k]);
    if (!addresses) out->arg[k].data = NULL;
  }
}

/* The bytes of results, except of those that are operands too: all bits set is NaN in every float
 * type, and an index that is out of range. */
static moec_status *poison(moec_model *m, const moec_plan_step *s, const moec_rt_binding *b) {
  const moec_rt_plan *p = &m->plan;
  for (uint32_t k = s->n_in; k < s->n_in + s->n_out; k++) {
    uint32_t t = p->pool[s->args + k];
    if (t == MOEC_NONE) continue;
    uint32_t buffer = p->tensors[t].buffer;
    bool in_place = false;
    for (uint32_t i = 0; i < s->n_in && !in_place; i++) {
      uint32_t in = p->pool[s->args + i];
      in_place = in != MOEC_NONE && p->tensors[in].buffer == buffer;
    }
    uint64_t bytes = (uint64_t)b->values[p->buffers[buffer].bytes];
    if (!in_place) MOEC_TRY(m->device->fill(m, m->buffers[buffer], 0xff, bytes));
  }
  return NULL;
}

static moec_status *dispatch(moec_model *m, uint32_t i, const moec_rt_binding *b) {
  const moec_plan_step *s = &m->plan.steps[i];
  if (s->op == MOEC_STEP_KERNEL) return m->device->kernel(m, i, b);
  moec_rt_call call;
  moec_rt_call_init(m, s, b, true, &call);
  if (m->forced && m->forced[i].dtype != MOEC_DTYPE_NONE) {
    return moec_rt_run_forced(m, &call, &m->forced[i]);
  }
  return m->device->library(m, &call);
}

moec_status *moec_rt_run_step(moec_model *m, uint32_t i, const moec_rt_binding *b) {
  if (m->poison) MOEC_TRY(poison(m, &m->plan.steps[i], b));
  moec_rt_pool_alone(m->pool, b->alone[i]);
  moec_status *s = dispatch(m, i, b);
  moec_rt_pool_alone(m->pool, false);
  return s;
}

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

moec_status *moec_rt_run_schedule(moec_model *m, moec_schedule schedule, const moec_rt_binding *b) {
  const moec_rt_plan *p = &m->plan;
  if (m->poison && schedule >= MOEC_AT_STEP && b->of[schedule].bytes) {
    MOEC_TRY(m->device->fill(m, m->step.data, 0xff, b->of[schedule].bytes));
  }
  MOEC_TRY(m->device->begin(m, schedule, b));
  bool timed = m->timed && schedule >= MOEC_AT_STEP;
  for (uint32_t i = p->schedule_begin[schedule]; i < p->schedule_begin[schedule + 1]; i++) {
    uint64_t start = timed ? now() : 0;
    MOEC_TRY(moec_rt_run_step(m, i, b));
    if (timed) MOEC_TRY(m->device->wait(m));
    if (timed) m->ns[p->steps[i].op] += now() - start;
  }
  return m->device->end(m, schedule);
}
