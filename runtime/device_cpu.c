/* The processor: kernels are functions of a shared object, each on all threads. */
#include <string.h>
#include <time.h>

#include "runtime/model.h"

static moec_status *open_cpu(moec_model *m) { return moec_rt_kernels_load(&m->plan, &m->kernels); }

static void close_cpu(moec_model *m) {
  if (m->kernels.mem) moec_rt_kernels_fini(&m->kernels);
}

static void *alloc(moec_model *m, uint64_t bytes) { return moec_rt_alloc(&m->memory, bytes, false); }

static void release(moec_model *m, void *at, uint64_t bytes) {
  (void)bytes;
  moec_rt_free(&m->memory, at);
}

static moec_status *copy(moec_model *m, void *to, const void *from, uint64_t bytes) {
  (void)m;
  if (bytes) memcpy(to, from, bytes);
  return NULL;
}

static moec_status *fill(moec_model *m, void *to, uint8_t byte, uint64_t bytes) {
  (void)m;
  if (bytes) memset(to, byte, bytes);
  return NULL;
}

static moec_status *need_of(const moec_model *m, const moec_plan_step *s, const moec_rt_binding *b,
                            const moec_rt_call *call, moec_rt_need *need) {
  if (!call) need->thread = (uint64_t)b->values[m->plan.kernels[s->kernel].scratch];
  return NULL;
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

static moec_status *run_kernel(moec_model *m, uint32_t step, const moec_rt_binding *b) {
  const moec_rt_plan *p = &m->plan;
  const moec_plan_step *s = &p->steps[step];
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
  return moec_error(MOEC_INVALID_ARGUMENT, "node \"%s\": an index is out of range", moec_rt_str(p, s->where));
}

static moec_status *run_library(moec_model *m, const moec_rt_call *call) {
  (void)m;
  return moec_rt_op_get(call->step->op)->run(call);
}

static moec_status *begin(moec_model *m, moec_schedule schedule, const moec_rt_binding *b) {
  (void)m, (void)schedule, (void)b;
  return NULL;
}

static moec_status *end(moec_model *m, moec_schedule schedule) {
  (void)m, (void)schedule;
  return NULL;
}

static moec_status *wait_for(moec_model *m) {
  (void)m;
  return NULL;
}

static moec_status *mark(moec_model *m, uint32_t i) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  m->marks[i] = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
  return NULL;
}

static moec_status *marked(moec_model *m, uint32_t n, uint64_t *ns) {
  for (uint32_t i = 0; i < n; i++) ns[i] = m->marks[i + 1] - m->marks[i];
  return NULL;
}

const moec_rt_device moec_rt_device_cpu = {.name = "cpu",
                                           .train = &moec_rt_train_cpu,
                                           .in_host = true,
                                           .open = open_cpu,
                                           .close = close_cpu,
                                           .alloc = alloc,
                                           .free = release,
                                           .write = copy,
                                           .read = copy,
                                           .fill = fill,
                                           .need = need_of,
                                           .begin = begin,
                                           .kernel = run_kernel,
                                           .library = run_library,
                                           .end = end,
                                           .wait = wait_for,
                                           .mark = mark,
                                           .marked = marked};
