/* Running a schedule: steps in order, on the device. */
#include "runtime/model.h"

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

static moec_status *add_times(moec_model *m, moec_schedule schedule) {
  uint32_t first = m->plan.schedule_begin[schedule], n = m->plan.schedule_begin[schedule + 1] - first;
  MOEC_TRY(m->device->marked(m, n, m->between));
  for (uint32_t i = 0; i < n; i++) m->ns[first + i] += m->between[i];
  return NULL;
}

static moec_status *poison_arena(moec_model *m, moec_schedule schedule, const moec_rt_binding *b) {
  if (!m->poison || schedule < MOEC_AT_STEP || !b->of[schedule].bytes) return NULL;
  return m->device->fill(m, m->step.data, 0xff, b->of[schedule].bytes);
}

static moec_status *run_steps(moec_model *m, moec_schedule schedule, const moec_rt_binding *b, bool timed) {
  uint32_t first = m->plan.schedule_begin[schedule];
  if (timed) MOEC_TRY(m->device->mark(m, 0));
  for (uint32_t i = first; i < m->plan.schedule_begin[schedule + 1]; i++) {
    MOEC_TRY(moec_rt_run_step(m, i, b));
    if (timed) MOEC_TRY(m->device->mark(m, i - first + 1));
  }
  return NULL;
}

moec_status *moec_rt_run_schedule(moec_model *m, moec_schedule schedule, const moec_rt_binding *b) {
  bool timed = m->timed && schedule >= MOEC_AT_STEP;
  MOEC_TRY(poison_arena(m, schedule, b));
  MOEC_TRY(m->device->begin(m, schedule, b));
  moec_status *s = run_steps(m, schedule, b, timed), *ended = m->device->end(m, schedule);
  if (s) moec_status_free(ended); /* what was started before it is over, and complains of nothing later */
  if (s || ended) return s ? s : ended;
  return timed ? add_times(m, schedule) : NULL;
}

moec_status *moec_rt_census(moec_model *m, moec_schedule program, moec_rt_launches *out) {
  const moec_rt_plan *p = &m->plan;
  if (!m->device->count_begin || !m->bound || !m->bound->of[program].ran)
    return moec_error(MOEC_INTERNAL, "expected a device that launches, and a run for these sizes");
  MOEC_TRY(m->device->begin(m, program, m->bound));
  for (uint32_t i = p->schedule_begin[program]; i < p->schedule_begin[program + 1]; i++) {
    MOEC_TRY(m->device->count_begin(m));
    moec_status *s = moec_rt_run_step(m, i, m->bound);
    moec_status *ended = m->device->count_end(m, &out[i]);
    if (s) moec_status_free(ended);
    if (s || ended) return s ? s : ended;
  }
  return m->device->end(m, program);
}
