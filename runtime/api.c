/* include/moec.h: opening and closing. */
#include <cblas.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/model.h"
#include "runtime/sizes.h"

/* The public names of types are those of base/dtype.h. */
#define SAME(name, text, bytes, cls, onnx, st, c) \
  _Static_assert((int)MOEC_DTYPE_##name == (int)MOEC_##name, "moec.h: " text);
MOEC_DTYPES(SAME)
#undef SAME
_Static_assert(MOEC_MAX_DIMS == MOEC_PLAN_MAX_RANK && MOEC_MAX_DIMS == MOEC_MAX_RANK, "ranks");

/* The folder of |path|, its symlinks followed: an installed model may be a link to where its
 * weights are. */
static const char *folder_of(const char *path, char out[PATH_MAX]) {
  if (!path || !realpath(path, out)) return NULL;
  char *slash = strrchr(out, '/');
  if (!slash) return NULL;
  slash[slash == out] = 0;
  return out;
}

static moec_status *load_params(moec_model *m, const char *path, const moec_options *o) {
  char folder[PATH_MAX];
  const char *env = getenv("MOEC_WEIGHTS");
  moec_rt_weights w = {.dirs = {o->weights_dir, env && *env ? env : NULL, folder_of(path, folder)},
                       .elsewhere = !m->device->in_host,
                       .trust = o->trust_weights != 0};
  MOEC_TRY(moec_rt_params_load(&m->plan, m->pool, &w, m->host, &m->params));
  return moec_rt_copies_init(m);
}

static void mark_dims(const moec_rt_plan *p, uint32_t tensor, uint8_t *marks) {
  for (uint32_t a = 0; a < p->tensors[tensor].rank; a++) {
    marks[p->pool[p->tensors[tensor].dims + a]] = 1;
  }
}

static moec_status *make_dim_text(moec_model *m, uint8_t *marks) {
  const moec_rt_plan *p = &m->plan;
  for (uint32_t i = 0; i < p->n_inputs; i++) mark_dims(p, p->inputs[i].tensor, marks);
  for (uint32_t i = 0; i < p->n_outputs; i++) mark_dims(p, p->outputs[i].tensor, marks);
  for (uint32_t i = 0; i < p->n_params; i++) mark_dims(p, p->params[i].tensor, marks);
  for (uint32_t e = 0; e < p->n_exprs; e++) {
    if (!marks[e]) continue;
    char text[MOEC_RT_EXPR_TEXT];
    moec_rt_expr_text(p, e, text, sizeof text);
    size_t n = strlen(text) + 1;
    MOEC_TRY(MOEC_RT_NEW(&m->memory, m->dim_text[e], n, "text of sizes"));
    memcpy(m->dim_text[e], text, n);
  }
  return NULL;
}

static moec_status *allocate(moec_model *m) {
  const moec_rt_plan *p = &m->plan;
  uint32_t operands = 0;
  uint8_t *marks;
  for (uint32_t i = 0; i < p->n_steps; i++) {
    uint32_t n = p->steps[i].n_in + p->steps[i].n_out;
    if (n > operands) operands = n;
  }
  MOEC_TRY(MOEC_RT_NEW(&m->memory, m->buffers, p->n_buffers, "model"));
  m->host = m->buffers;
  if (!m->device->in_host) MOEC_TRY(MOEC_RT_NEW(&m->memory, m->host, p->n_buffers, "model"));
  MOEC_TRY(MOEC_RT_NEW(&m->memory, m->args, operands, "model"));
  MOEC_TRY(MOEC_RT_NEW(&m->memory, m->ns, p->n_steps, "model"));
  MOEC_TRY(MOEC_RT_NEW(&m->memory, m->marks, p->n_steps + 1u, "model"));
  MOEC_TRY(MOEC_RT_NEW(&m->memory, m->between, p->n_steps, "model"));
  MOEC_TRY(moec_rt_io_init(m));
  MOEC_TRY(MOEC_RT_NEW(&m->memory, m->inputs, m->n_ins, "model"));
  MOEC_TRY(MOEC_RT_NEW(&m->memory, m->shapes, m->n_ins, "model"));
  MOEC_TRY(MOEC_RT_NEW(&m->memory, m->symbols, p->n_symbols, "model"));
  MOEC_TRY(MOEC_RT_NEW(&m->memory, m->values, p->n_exprs, "model"));
  MOEC_TRY(MOEC_RT_NEW(&m->memory, m->dim_text, p->n_exprs, "model"));
  MOEC_TRY(MOEC_RT_NEW(&m->memory, marks, p->n_exprs, "model"));
  moec_status *s = make_dim_text(m, marks);
  moec_rt_free(&m->memory, marks);
  return s;
}

static moec_status *run_load(moec_model *m) {
  moec_rt_symbols_fixed(&m->plan, m->symbols);
  MOEC_TRY(moec_rt_binding_make(m, m->symbols, &m->fixed));
  MOEC_TRY(moec_rt_placement_make(m, m->fixed, MOEC_AT_LOAD));
  const moec_rt_placement *x = &m->fixed->of[MOEC_AT_LOAD];
  MOEC_TRY(moec_rt_device_reserve(m, &m->load, x->bytes, "buffers of parameters"));
  MOEC_TRY(moec_rt_reserve_scratch(m, &x->need));
  for (uint32_t i = 0; i < m->plan.n_buffers; i++) {
    if (m->plan.buffers[i].kind == MOEC_BUFFER_LOAD)
      m->buffers[i] = m->load.data + m->fixed->offset[i];
  }
  return moec_rt_run_schedule(m, MOEC_AT_LOAD, m->fixed);
}

/* Everything after the plan is read. */
static moec_status *start(moec_model *m, const char *path, const moec_options *o) {
  /* Threads are ours: one library call works on one tile. */
  openblas_set_num_threads(1);
  const char *poison = getenv("MOEC_POISON");
  m->poison = poison && *poison && strcmp(poison, "0");
  m->ran = MOEC_SCHEDULE_COUNT;
  m->device = moec_rt_device_of(moec_rt_str(&m->plan, m->plan.header->target), o->describe != 0);
  MOEC_TRY(moec_rt_pool_create(&m->memory, o->threads, &m->pool));
  MOEC_TRY(allocate(m));
  MOEC_TRY(m->device->open(m));
  MOEC_TRY(load_params(m, path, o));
  MOEC_TRY(moec_context(moec_rt_train_init(m), "%s", m->plan.file));
  return moec_context(run_load(m), "%s", m->plan.file);
}

static moec_status *open_any(const char *path, const void *bytes, size_t size,
                             const moec_options *options, moec_model **out) {
  static const moec_options none = {0};
  const moec_options *o = options ? options : &none;
  *out = NULL;
  moec_model *m = calloc(1, sizeof *m);
  if (!m) return moec_rt_no_memory("model", sizeof *m);
  m->refs = 1;
  bool trust = o->trust_weights != 0;
  moec_status *s = path ? moec_rt_plan_open(&m->memory, path, trust, &m->plan)
                        : moec_rt_plan_open_memory(&m->memory, bytes, size, trust, &m->plan);
  if (!s) s = start(m, path, o);
  if (s) {
    moec_close(m);
    return s;
  }
  *out = m;
  return NULL;
}

moec_status *moec_open(const char *path, const moec_options *options, moec_model **out) {
  *out = NULL;
  if (!path) return moec_error(MOEC_INVALID_ARGUMENT, "expected the path of a model, got none");
  return open_any(path, NULL, 0, options, out);
}

moec_status *moec_open_memory(const void *bytes, size_t size, const moec_options *options,
                              moec_model **out) {
  return open_any(NULL, bytes, size, options, out);
}

static void destroy(moec_model *m) {
  moec_rt_memory *mem = &m->memory;
  moec_rt_pool_destroy(m->pool);
  if (m->params.mem) moec_rt_params_fini(&m->params);
  moec_rt_copies_fini(m);
  moec_rt_train_fini(m);
  for (uint32_t i = 0; m->dim_text && i < m->plan.n_exprs; i++) moec_rt_free(mem, m->dim_text[i]);
  for (uint32_t i = 0; m->inputs && i < m->n_ins; i++) {
    moec_rt_arena_fini(mem, &m->inputs[i].copy);
    moec_rt_arena_fini(mem, &m->inputs[i].fill);
  }
  for (uint32_t i = 0; i < m->n_bindings; i++) moec_rt_free(mem, m->bindings[i]);
  moec_rt_arena *const arenas[] = {&m->load,   &m->bind,          &m->step,         &m->scratch,
                                   &m->shared, &m->device_params, &m->device_inputs};
  for (size_t i = 0; i < sizeof arenas / sizeof *arenas; i++) moec_rt_device_release(m, arenas[i]);
  if (m->device) m->device->close(m);
  if (m->host != m->buffers) moec_rt_free(mem, m->host);
  void *const blocks[] = {m->dim_text, m->buffers, m->args, m->inputs, m->shapes, m->forced,
                          m->fixed,    m->symbols, m->values, m->ins,  m->outs,   m->ns,
                          m->marks,    m->between};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) moec_rt_free(mem, blocks[i]);
  if (m->plan.mem) moec_rt_plan_fini(&m->plan);
  free(m);
}

void moec_rt_release(moec_model *m) {
  if (atomic_fetch_sub(&m->refs, 1) == 1) destroy(m);
}

void moec_close(moec_model *m) {
  if (!m) return;
  for (uint32_t i = 0; m->inputs && i < m->n_ins; i++) moec_rt_input_release(&m->inputs[i]);
  moec_rt_release(m);
}
