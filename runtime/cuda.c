/* The CUDA device: opening, memory, copies. Everything is started on one stream; only read(), end() and wait() wait. */
#include "runtime/cuda.h"

#include <inttypes.h>
#include <stdio.h>

static moec_status *check(const moec_model *m, int error, const char *what) {
  return moec_cu_check(&m->cuda->cu, error, what);
}

/* ---- opening ----------------------------------------------------------------------------- */

static moec_status *find_device(moec_model *m) {
  moec_rt_cuda *c = m->cuda;
  int count = 0;
  int error = c->cu.init(0);
  if (!error) error = c->cu.device_count(&count);
  if (error == MOEC_CU_NO_DEVICE || (!error && !count))
    return moec_error(MOEC_UNSUPPORTED, "needs a CUDA device: the driver has none");
  MOEC_TRY(moec_context(check(m, error, "cuInit"), "needs a CUDA device"));
  return check(m, c->cu.device_get(&c->device, 0), "cuDeviceGet"); /* the first: CUDA_VISIBLE_DEVICES chooses it */
}

static moec_status *read_attributes(moec_model *m) {
  moec_rt_cuda *c = m->cuda;
  int multiprocessors = 0, threads = 0;
  MOEC_TRY(check(m, c->cu.device_attribute(&multiprocessors, MOEC_CU_ATTRIBUTE_MULTIPROCESSORS, c->device),
                 "cuDeviceGetAttribute"));
  MOEC_TRY(check(m, c->cu.device_attribute(&threads, MOEC_CU_ATTRIBUTE_THREADS_OF_MULTIPROCESSOR, c->device),
                 "cuDeviceGetAttribute"));
  c->multiprocessors = multiprocessors < 1 ? 1 : multiprocessors;
  c->threads = threads < 1024 ? 1024 : threads;
  return NULL;
}

/* The cubin is for one architecture: the message says which this device has. */
static moec_status *load_module(moec_model *m) {
  moec_rt_cuda *c = m->cuda;
  char name[128] = "?";
  int major = 0, minor = 0;
  if (!m->plan.kernel_object)
    return moec_error(MOEC_INVALID_MODEL, "%s: expected a cubin with its kernels, got none", m->plan.file);
  int error = c->cu.module_load(&c->module, m->plan.kernel_object);
  if (!error) return NULL;
  c->module = NULL;
  (void)c->cu.device_name(name, sizeof name, c->device); /* for the message alone */
  (void)c->cu.device_attribute(&major, MOEC_CU_ATTRIBUTE_MAJOR, c->device);
  (void)c->cu.device_attribute(&minor, MOEC_CU_ATTRIBUTE_MINOR, c->device);
  return moec_context(check(m, error, "cuModuleLoadData"), "%s: kernels for %s on %s, sm_%d%d", m->plan.file,
                      moec_rt_str(&m->plan, m->plan.header->target), name, major, minor);
}

static moec_status *open_cuda(moec_model *m) {
  MOEC_TRY(MOEC_RT_NEW(&m->memory, m->cuda, 1, "device"));
  moec_rt_cuda *c = m->cuda;
  MOEC_TRY(moec_cu_load(&c->cu));
  MOEC_TRY(find_device(m));
  MOEC_TRY(read_attributes(m));
  int error = c->cu.context_retain(&c->context, c->device);
  if (error) c->context = NULL;
  MOEC_TRY(check(m, error, "cuDevicePrimaryCtxRetain"));
  MOEC_TRY(check(m, c->cu.context_set(c->context), "cuCtxSetCurrent"));
  MOEC_TRY(check(m, c->cu.stream_create(&c->stream, MOEC_CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
  MOEC_TRY(load_module(m));
  MOEC_TRY(moec_rt_cuda_find_kernels(m));
  MOEC_TRY(moec_rt_cuda_tables_make(m));
  MOEC_TRY(moec_rt_cuda_grouped_open(m));
  MOEC_TRY(MOEC_RT_NEW(&m->memory, c->marks, m->plan.n_steps + 1u, "device"));
  MOEC_TRY(moec_rt_cuda_attention_open(m));
  return moec_rt_cuda_blas_open(m);
}

/* Errors of the driver are of no use here. */
static void close_cuda(moec_model *m) {
  moec_rt_cuda *c = m->cuda;
  if (!c) return;
  if (c->context) (void)c->cu.context_set(c->context);
  moec_rt_cuda_blas_close(m);
  moec_rt_cuda_attention_close(m);
  moec_rt_device_release(m, &c->workspace);
  moec_rt_device_release(m, &c->device_faults);
  moec_rt_device_release(m, &c->turn);
  for (int s = 0; s < MOEC_SCHEDULE_COUNT; s++) {
    moec_rt_device_release(m, &c->tables[s].on_device);
    moec_rt_free(&m->memory, c->tables[s].words);
    moec_rt_free(&m->memory, c->tables[s].sent);
  }
  moec_rt_cuda_marks_fini(m);
  if (c->module) (void)c->cu.module_unload(c->module);
  if (c->stream) (void)c->cu.stream_destroy(c->stream);
  if (c->context) (void)c->cu.context_release(c->device);
  void *const blocks[] = {c->kernels, c->library, c->activations, c->first, c->faults, c->marks};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) moec_rt_free(&m->memory, blocks[i]);
  moec_cu_unload(&c->cu);
  moec_rt_free(&m->memory, c);
  m->cuda = NULL;
}

/* ---- memory ------------------------------------------------------------------------------ */

uint64_t moec_rt_cuda_own_bytes(const moec_model *m) {
  return moec_rt_cuda_tables_bytes(&m->plan) + moec_rt_cuda_grouped_bytes() + moec_rt_cuda_blas_bytes(&m->plan);
}

moec_status *moec_rt_cuda_enter(moec_model *m) {
  return check(m, m->cuda->cu.context_set(m->cuda->context), "cuCtxSetCurrent");
}

static void *alloc(moec_model *m, uint64_t bytes) {
  moec_rt_memory *mem = &m->device_memory;
  moec_cu_address at = 0;
  if (bytes > PTRDIFF_MAX || m->cuda->cu.context_set(m->cuda->context)) return NULL;
  if (m->cuda->cu.alloc(&at, bytes ? (size_t)bytes : 1)) return NULL;
  mem->allocations++;
  mem->live += bytes;
  if (mem->live > mem->peak) mem->peak = mem->live;
  return (void *)(uintptr_t)at;
}

static void release(moec_model *m, void *at, uint64_t bytes) {
  (void)m->cuda->cu.context_set(m->cuda->context);
  (void)m->cuda->cu.stream_wait(m->cuda->stream); /* steps that were started may still use it */
  m->traffic.waits++;
  (void)m->cuda->cu.free(moec_rt_address(at));
  m->device_memory.live -= bytes;
}

/* Page-locked: the device reads it by itself. */
static void *host_alloc(moec_model *m, uint64_t bytes) {
  moec_rt_memory *mem = &m->memory;
  void *at = NULL;
  if (bytes > PTRDIFF_MAX || m->cuda->cu.context_set(m->cuda->context)) return NULL;
  if (m->cuda->cu.host_alloc(&at, bytes ? (size_t)bytes : 1, 0)) return NULL;
  mem->allocations++;
  mem->live += bytes;
  if (mem->live > mem->peak) mem->peak = mem->live;
  return at;
}

static void host_free(moec_model *m, void *at, uint64_t bytes) {
  (void)m->cuda->cu.context_set(m->cuda->context);
  (void)m->cuda->cu.host_free(at);
  m->memory.live -= bytes;
}

static moec_status *wait_for(moec_model *m) {
  m->traffic.waits++;
  return check(m, m->cuda->cu.stream_wait(m->cuda->stream), "steps on the device");
}

/* From memory that is not page-locked the driver has taken the bytes when it returns; of more than 64 KiB it waits for
 * the stream before that. */
static moec_status *write_to(moec_model *m, void *to, const void *from, uint64_t bytes) {
  if (!bytes) return NULL;
  MOEC_TRY(moec_rt_cuda_enter(m));
  m->traffic.writes++, m->traffic.write_bytes += bytes;
  return check(m, m->cuda->cu.write(moec_rt_address(to), from, bytes, m->cuda->stream), "copying to the device");
}

static moec_status *read_from(moec_model *m, void *to, const void *from, uint64_t bytes) {
  if (!bytes) return NULL;
  MOEC_TRY(moec_rt_cuda_enter(m));
  m->traffic.reads++, m->traffic.read_bytes += bytes;
  MOEC_TRY(check(m, m->cuda->cu.read(to, moec_rt_address(from), bytes, m->cuda->stream), "copying from the device"));
  return wait_for(m);
}

static moec_status *fill(moec_model *m, void *to, uint8_t byte, uint64_t bytes) {
  if (!bytes) return NULL;
  MOEC_TRY(moec_rt_cuda_enter(m));
  return check(m, m->cuda->cu.fill(moec_rt_address(to), byte, bytes, m->cuda->stream), "filling memory of the device");
}

static moec_status *normal(moec_model *m, void *y, moec_dtype type, moec_dtype stored, uint64_t start, float scale,
                           int64_t n) {
  int32_t types[2] = {(int32_t)type, (int32_t)stored};
  void *parameters[] = {&y, &types[0], &types[1], &start, &scale, &n};
  MOEC_TRY(moec_rt_cuda_enter(m));
  return moec_rt_cuda_launch(m, "normal", MOEC_DTYPE_NONE, n, 2048, parameters);
}

const moec_rt_device moec_rt_device_cuda = {.name = "cuda",
                                            .train = &moec_rt_train_cuda,
                                            .open = open_cuda,
                                            .close = close_cuda,
                                            .own = moec_rt_cuda_own_bytes,
                                            .alloc = alloc,
                                            .free = release,
                                            .host_alloc = host_alloc,
                                            .host_free = host_free,
                                            .write = write_to,
                                            .read = read_from,
                                            .fill = fill,
                                            .need = moec_rt_cuda_need,
                                            .begin = moec_rt_cuda_begin,
                                            .kernel = moec_rt_cuda_kernel,
                                            .library = moec_rt_cuda_library,
                                            .end = moec_rt_cuda_end,
                                            .wait = wait_for,
                                            .normal = normal,
                                            .mark = moec_rt_cuda_mark,
                                            .marked = moec_rt_cuda_marked,
                                            .count_begin = moec_rt_cuda_count_begin,
                                            .count_end = moec_rt_cuda_count_end};
