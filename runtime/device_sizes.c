/* No device: what a model made for another machine has and needs can be asked here, nothing can be run. Addresses are
 * made up, contents are nowhere. */
#include "runtime/cuda.h"

static moec_status *nothing(moec_model *m) {
  (void)m;
  return NULL;
}

static void close_sizes(moec_model *m) { (void)m; }

static void *alloc(moec_model *m, uint64_t bytes) {
  m->device_memory.allocations++;
  m->device_memory.live += bytes;
  if (m->device_memory.live > m->device_memory.peak) m->device_memory.peak = m->device_memory.live;
  return (void *)(uintptr_t)MOEC_PAGE;
}

static void release(moec_model *m, void *at, uint64_t bytes) {
  (void)at;
  m->device_memory.live -= bytes;
}

static void *host_alloc(moec_model *m, uint64_t bytes) { return moec_rt_alloc(&m->memory, bytes, false); }

static void host_free(moec_model *m, void *at, uint64_t bytes) {
  (void)bytes;
  moec_rt_free(&m->memory, at);
}

static moec_status *keep(moec_model *m, void *to, const void *from, uint64_t bytes) {
  (void)m, (void)to, (void)from, (void)bytes;
  return NULL;
}

static moec_status *unreadable(moec_model *m, void *to, const void *from, uint64_t bytes) {
  (void)m, (void)to, (void)from, (void)bytes;
  return moec_error(MOEC_UNSUPPORTED, "expected a model that was opened to be run, got one to be described");
}

static moec_status *fill(moec_model *m, void *to, uint8_t byte, uint64_t bytes) {
  (void)m, (void)to, (void)byte, (void)bytes;
  return NULL;
}

static moec_status *need_of(const moec_model *m, const moec_plan_step *s, const moec_rt_binding *b,
                            const moec_rt_call *call, moec_rt_need *need) {
  (void)m, (void)s, (void)b, (void)call;
  *need = (moec_rt_need){0};
  return NULL;
}

/* The schedules before the programs are passed over; programs are refused. */
static moec_status *begin(moec_model *m, moec_schedule schedule, const moec_rt_binding *b) {
  (void)b;
  return schedule < MOEC_AT_STEP ? NULL : unreadable(m, NULL, NULL, 0);
}

static moec_status *run_kernel(moec_model *m, uint32_t step, const moec_rt_binding *b) {
  (void)m, (void)step, (void)b;
  return NULL;
}

static moec_status *run_library(moec_model *m, const moec_rt_call *call) {
  (void)m, (void)call;
  return NULL;
}

static moec_status *end(moec_model *m, moec_schedule schedule) {
  (void)m, (void)schedule;
  return NULL;
}

static moec_status *mark(moec_model *m, uint32_t i) {
  (void)i;
  return unreadable(m, NULL, NULL, 0);
}

static moec_status *marked(moec_model *m, uint32_t n, uint64_t *ns) {
  (void)n, (void)ns;
  return unreadable(m, NULL, NULL, 0);
}

const moec_rt_device moec_rt_device_sizes = {.name = "none",
                                             .no_contents = true,
                                             .open = nothing,
                                             .close = close_sizes,
                                             .own = moec_rt_cuda_own_bytes,
                                             .alloc = alloc,
                                             .free = release,
                                             .host_alloc = host_alloc,
                                             .host_free = host_free,
                                             .write = keep,
                                             .read = unreadable,
                                             .fill = fill,
                                             .need = need_of,
                                             .begin = begin,
                                             .kernel = run_kernel,
                                             .library = run_library,
                                             .end = end,
                                             .wait = nothing,
                                             .mark = mark,
                                             .marked = marked};
