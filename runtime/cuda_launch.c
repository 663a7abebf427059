/* Launching kernels: how many blocks, where they find their operands, and what they complained about. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/cuda.h"

static moec_status *check(const moec_model *m, int error, const char *what) {
  return moec_cu_check(&m->cuda->cu, error, what);
}

/* ---- functions of the cubin -------------------------------------------------------------- */

static moec_status *check_launch(const moec_rt_plan *p, const moec_plan_kernel *k) {
  bool threads = k->threads && k->threads % 32 == 0 && k->threads <= 1024;
  if (threads && k->teams && k->threads % k->teams == 0) return NULL;
  return moec_error(MOEC_INVALID_MODEL,
                    "kernel %s: expected a multiple of 32 threads up to 1024 in teams of one size, got %u in %u",
                    moec_rt_str(p, k->name), k->threads, k->teams);
}

static moec_status *get_function(const moec_model *m, const char *name, moec_cu_function *out) {
  return moec_context(check(m, m->cuda->cu.module_function(out, m->cuda->module, name), "cuModuleGetFunction"),
                      "expected a kernel named '%s'", name);
}

moec_status *moec_rt_cuda_find_kernels(moec_model *m) {
  enum { ORDINARY = 48 << 10 }; /* bytes of shared memory that every kernel may have */
  const moec_rt_plan *p = &m->plan;
  moec_rt_cuda *c = m->cuda;
  MOEC_TRY(MOEC_RT_NEW(&m->memory, c->kernels, p->n_kernels, "kernels"));
  MOEC_TRY(MOEC_RT_NEW(&m->memory, c->library, MOEC_RT_CUDA_KERNELS, "kernels"));
  MOEC_TRY(MOEC_RT_NEW(&m->memory, c->activations, p->n_kernels, "kernels"));
  for (uint32_t i = 0; i < p->n_kernels; i++) {
    const moec_plan_kernel *k = &p->kernels[i];
    MOEC_TRY(check_launch(p, k));
    MOEC_TRY(get_function(m, moec_rt_str(p, k->name), &c->kernels[i]));
    if (k->shared <= ORDINARY) continue;
    int bytes = k->shared > INT32_MAX ? INT32_MAX : (int)k->shared; /* more than any device has: refused */
    int error = c->cu.function_set(c->kernels[i], MOEC_CU_FUNCTION_SHARED_BYTES, bytes);
    MOEC_TRY(moec_context(check(m, error, "cuFuncSetAttribute"), "kernel %s: %u bytes of shared memory",
                          moec_rt_str(p, k->name), k->shared));
  }
  return NULL;
}

static const struct {
  const char *name;
  bool typed;
  unsigned threads;
} library[] = {
#define ROW(unit, name, typed, threads) {name, typed, threads},
    MOEC_CUDA_KERNELS(ROW)
#undef ROW
};

static moec_status *find_library(moec_model *m, const char *name, moec_dtype type, moec_cu_function *out,
                                 unsigned *out_threads) {
  char symbol[64];
  uint32_t i = 0;
  while (i < MOEC_RT_CUDA_KERNELS && strcmp(library[i].name, name)) i++;
  if (i == MOEC_RT_CUDA_KERNELS) return moec_error(MOEC_INTERNAL, "no kernel is called %s", name);
  moec_cu_function *f = &m->cuda->library[i][type];
  snprintf(symbol, sizeof symbol, type ? "moec_%s_%s" : "moec_%s", name, moec_dtype_get(type)->text);
  if (!*f) MOEC_TRY(get_function(m, symbol, f));
  *out = *f;
  *out_threads = library[i].threads;
  return NULL;
}

/* ---- blocks ------------------------------------------------------------------------------ */

/* Blocks of so many threads that run at the same time, at most. */
static int64_t resident(const moec_rt_cuda *c, int64_t threads) { return c->multiprocessors * (c->threads / threads); }

static int64_t blocks_for(const moec_rt_cuda *c, int64_t work, int64_t per_block, int64_t threads) {
  enum { WAVES = 8 }; /* later ones even out what the first take longer for */
  int64_t all = work / per_block + (work % per_block != 0), most = resident(c, threads) * WAVES;
  return all < most ? all : most;
}

/* Blocks of a generated kernel. Those with scratch are not more than run at the same time, nor take much memory. */
static int64_t kernel_blocks(const moec_rt_cuda *c, const moec_plan_kernel *k, int64_t rows, uint64_t scratch) {
  const uint64_t most_bytes = 512u << 20;
  int64_t blocks = blocks_for(c, rows, k->teams, k->threads), most = resident(c, k->threads);
  if (!scratch) return blocks;
  if (blocks > most) blocks = most;
  uint64_t fit = most_bytes / k->teams / scratch;
  if ((uint64_t)blocks > fit) blocks = fit ? (int64_t)fit : 1;
  return blocks;
}

moec_status *moec_rt_cuda_need(const moec_model *m, const moec_plan_step *s, const moec_rt_binding *b,
                               const moec_rt_call *call, moec_rt_need *need) {
  *need = (moec_rt_need){0};
  if (call) {
    need->shared = moec_rt_cuda_room(call);
    return s->op == MOEC_STEP_GEMM ? moec_rt_cuda_gemm_check(call) : NULL;
  }
  const moec_plan_kernel *k = &m->plan.kernels[s->kernel];
  uint64_t scratch = (uint64_t)b->values[k->scratch];
  int64_t blocks = kernel_blocks(m->cuda, k, b->values[k->rows], scratch);
  need->shared = moec_rt_array(moec_rt_array((uint64_t)blocks, k->teams), scratch);
  return moec_rt_cuda_attention_need(m, s, b, need);
}

/* ---- operands ---------------------------------------------------------------------------- */

/* Operands of step |s| in its schedule's table; of an activation: the product, itself. */
static uint64_t words_of(const moec_plan_step *s) {
  if (s->op == MOEC_STEP_KERNEL) return (uint64_t)s->n_in + s->n_out;
  return moec_rt_has_kernel(s) ? s->n_out : 0;
}

static uint64_t faults_bytes(const moec_rt_plan *p) { return (uint64_t)p->n_steps * sizeof(int32_t); }

uint64_t moec_rt_cuda_tables_bytes(const moec_rt_plan *p) {
  uint64_t words = (uint64_t)MOEC_SCHEDULE_COUNT * p->n_symbols;
  for (uint32_t i = 0; i < p->n_steps; i++) words += words_of(&p->steps[i]);
  return words * sizeof(uint64_t) + faults_bytes(p);
}

static moec_status *make_table(moec_model *m, moec_schedule schedule) {
  const moec_rt_plan *p = &m->plan;
  moec_rt_cuda_table *t = &m->cuda->tables[schedule];
  t->n = p->n_symbols;
  for (uint32_t i = p->schedule_begin[schedule]; i < p->schedule_begin[schedule + 1]; i++) {
    m->cuda->first[i] = t->n;
    t->n += words_of(&p->steps[i]);
  }
  MOEC_TRY(MOEC_RT_NEW(&m->memory, t->words, t->n, "operands of kernels"));
  MOEC_TRY(MOEC_RT_NEW(&m->memory, t->sent, t->n, "operands of kernels"));
  return moec_rt_device_reserve(m, &t->on_device, t->n * sizeof *t->words, "operands of kernels");
}

moec_status *moec_rt_cuda_tables_make(moec_model *m) {
  moec_rt_cuda *c = m->cuda;
  MOEC_TRY(MOEC_RT_NEW(&m->memory, c->first, m->plan.n_steps, "operands of kernels"));
  MOEC_TRY(MOEC_RT_NEW(&m->memory, c->faults, m->plan.n_steps, "operands of kernels"));
  uint64_t bytes = faults_bytes(&m->plan);
  MOEC_TRY(moec_rt_device_reserve(m, &c->device_faults, bytes, "operands of kernels"));
  MOEC_TRY(m->device->fill(m, c->device_faults.data, 0, bytes));
  for (int s = 0; s < MOEC_SCHEDULE_COUNT; s++) MOEC_TRY(make_table(m, (moec_schedule)s));
  return NULL;
}

/* The table goes to the device only when something in it changed. */
moec_status *moec_rt_cuda_begin(moec_model *m, moec_schedule schedule, const moec_rt_binding *b) {
  const moec_rt_plan *p = &m->plan;
  moec_rt_cuda_table *t = &m->cuda->tables[schedule];
  MOEC_TRY(moec_rt_cuda_enter(m));
  MOEC_TRY(moec_rt_cuda_attention_begin(m, schedule, b));
  for (uint32_t i = 0; i < p->n_symbols; i++) t->words[i] = (uint64_t)b->symbols[i];
  for (uint32_t i = p->schedule_begin[schedule]; i < p->schedule_begin[schedule + 1]; i++) {
    const moec_plan_step *s = &p->steps[i];
    uint64_t *to = t->words + m->cuda->first[i];
    bool product = s->op != MOEC_STEP_KERNEL;
    uint32_t first = product ? s->n_in : 0;
    if (!moec_rt_has_kernel(s)) continue;
    for (uint32_t k = first; k < s->n_in + s->n_out; k++) {
      uint32_t x = p->pool[s->args + k];
      const void *at = x != MOEC_NONE ? m->buffers[p->tensors[x].buffer] : product ? m->shared.data : NULL;
      to[k - first] = (uint64_t)(uintptr_t)at;
    }
  }
  uint64_t bytes = t->n * sizeof *t->words;
  if (!t->n || (t->any && !memcmp(t->words, t->sent, bytes))) return NULL;
  t->any = false;
  MOEC_TRY(m->device->write(m, t->on_device.data, t->words, bytes));
  memcpy(t->sent, t->words, bytes);
  t->any = true;
  return NULL;
}

/* ---- faults ------------------------------------------------------------------------------ */

static moec_status *fault_of(moec_model *m, const moec_plan_step *s) {
  bool kernel = s->op == MOEC_STEP_KERNEL;
  return moec_error(MOEC_INVALID_ARGUMENT, "node \"%s\": %s%san index is out of range", moec_rt_str(&m->plan, s->where),
                    kernel ? "" : moec_rt_op_get(s->op)->text, kernel ? "" : ": ");
}

/* Waits for the steps; the first that complained is named. */
moec_status *moec_rt_cuda_end(moec_model *m, moec_schedule schedule) {
  const moec_rt_plan *p = &m->plan;
  moec_rt_cuda *c = m->cuda;
  uint32_t begin = p->schedule_begin[schedule], n = p->schedule_begin[schedule + 1] - begin;
  int32_t *on_device = (int32_t *)(void *)c->device_faults.data + begin;
  if (!n) return NULL;
  MOEC_TRY(m->device->read(m, c->faults + begin, on_device, n * sizeof *c->faults));
  for (uint32_t i = begin; i < begin + n; i++) {
    if (!c->faults[i]) continue;
    MOEC_TRY(m->device->fill(m, on_device, 0, n * sizeof *c->faults));
    return fault_of(m, &p->steps[i]);
  }
  return NULL;
}

/* ---- launches ---------------------------------------------------------------------------- */

moec_status *moec_rt_cuda_kernel(moec_model *m, uint32_t step, const moec_rt_binding *b) {
  const moec_plan_step *s = &m->plan.steps[step];
  bool done;
  if (b->values[m->plan.kernels[s->kernel].rows] <= 0) return NULL;
  MOEC_TRY(moec_rt_cuda_attention_run(m, step, &done));
  return done ? NULL : moec_rt_cuda_generated(m, s, b->values);
}

moec_status *moec_rt_cuda_generated(moec_model *m, const moec_plan_step *s, const int64_t *values) {
  moec_rt_cuda *c = m->cuda;
  const moec_plan_kernel *k = &m->plan.kernels[s->kernel];
  const uint8_t *table = c->tables[s->schedule].on_device.data;
  int64_t rows = values[k->rows];
  if (rows <= 0) return NULL;
  int64_t blocks = kernel_blocks(c, k, rows, (uint64_t)values[k->scratch]);
  uint64_t first = c->first[s - m->plan.steps] * sizeof(uint64_t);
  moec_kernel_args args = {.buf = (void *const *)(const void *)(table + first),
                           .sym = (const int64_t *)(const void *)table,
                           .scratch = m->shared.data,
                           .fault = moec_rt_cuda_fault(m, s)};
  void *parameters[] = {&args, &rows};
  int error = c->cu.launch(c->kernels[s->kernel], (unsigned)blocks, 1, 1, k->threads, 1, 1, k->shared, c->stream,
                           parameters, NULL);
  return moec_context(check(m, error, "cuLaunchKernel"), "node \"%s\"", moec_rt_str(&m->plan, s->where));
}

moec_status *moec_rt_cuda_launch_blocks(moec_model *m, const char *name, moec_dtype type, int64_t blocks,
                                        void **parameters) {
  moec_cu_function f;
  unsigned threads;
  MOEC_TRY(find_library(m, name, type, &f, &threads));
  int error = m->cuda->cu.launch(f, (unsigned)blocks, 1, 1, threads, 1, 1, 0, m->cuda->stream, parameters, NULL);
  return moec_context(check(m, error, "cuLaunchKernel"), "moec_%s", name);
}

moec_status *moec_rt_cuda_launch(moec_model *m, const char *name, moec_dtype type, int64_t work, int64_t per_block,
                                 void **parameters) {
  moec_cu_function f;
  unsigned threads;
  if (work <= 0) return NULL;
  MOEC_TRY(find_library(m, name, type, &f, &threads));
  return moec_rt_cuda_launch_blocks(m, name, type, blocks_for(m->cuda, work, per_block, threads), parameters);
}
