/* Running a schedule: steps in order, each on all threads. */
#include "runtime/model.h"

#include <string.h>
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

typedef struct launch {
  moec_kernel_fn fn;
  moec_kernel_args args;
  uint8_t *scratch;
  uint64_t scratch_size;
} launch;

static void run_rows(void *ctx, int64_t begin, int64_t end, int thread) {
  const launch *l = ctx;
  moec_kernel_args args = l->args;
  args.scratch = l->scratch + (uint64_t)thread * l->scratch_size;
  l->fn(&args, begin, end);
}

static moec_status *run_kernel(moec_model *m, const moec_plan_step *s, const moec_rt_binding *b) {
  const moec_rt_plan *p = &m->plan;
  const moec_plan_kernel *k = &p->kernels[s->kernel];
  int32_t fault = 0;
  for (uint32_t i = 0; i < s->n_in + s->n_out; i++) {
    uint32_t t = p->pool[s->args + i];
    m->args[i] = t == MOEC_NONE ? NULL : m->buffers[p->tensors[t].buffer];
  }
  launch l = {m->kernels.fn[s->kernel],
              {.buf = m->args, .sym = b->symbols, .fault = &fault},
              m->scratch.data,
              m->need.thread};
  moec_rt_parallel_for(m->pool, b->values[k->rows], k->grain ? k->grain : 1, run_rows, &l);
  if (!fault) return NULL;
  return moec_error(MOEC_INVALID_ARGUMENT, "node \"%s\": an index is out of range",
                    moec_rt_str(p, s->where));
}

/* The bytes of results, except of those that are operands too: all bits set is NaN in every float
 * type, and an index that is out of range. */
static void poison(moec_model *m, const moec_plan_step *s, const moec_rt_binding *b) {
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
    size_t bytes = (size_t)b->values[p->buffers[buffer].bytes];
    if (!in_place && bytes) memset(m->buffers[buffer], 0xff, bytes);
  }
}

static moec_status *dispatch(moec_model *m, uint32_t i, const moec_rt_binding *b) {
  const moec_plan_step *s = &m->plan.steps[i];
  if (s->op == MOEC_STEP_KERNEL) return run_kernel(m, s, b);
  moec_rt_call call;
  moec_rt_call_init(m, s, b, true, &call);
  if (m->forced && m->forced[i].dtype != MOEC_DTYPE_NONE) {
    return moec_rt_run_forced(&call, &m->forced[i]);
  }
  return moec_rt_op_get(s->op)->run(&call);
}

moec_status *moec_rt_run_step(moec_model *m, uint32_t i, const moec_rt_binding *b) {
  if (m->poison) poison(m, &m->plan.steps[i], b);
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
    memset(m->step.data, 0xff, b->of[schedule].bytes);
  }
  bool timed = m->timed && schedule >= MOEC_AT_STEP;
  for (uint32_t i = p->schedule_begin[schedule]; i < p->schedule_begin[schedule + 1]; i++) {
    uint64_t start = timed ? now() : 0;
    MOEC_TRY(moec_rt_run_step(m, i, b));
    if (timed) m->ns[p->steps[i].op] += now() - start;
  }
  return NULL;
}
