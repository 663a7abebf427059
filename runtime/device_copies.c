/* Parameters and inputs to the device, results to the host. With a device that works in the host's memory there is one
 * copy of each. */
#include <stdatomic.h>
#include <string.h>

#include "runtime/model.h"
#include "runtime/pieces.h"

static uint64_t rounded(uint64_t bytes) { return (bytes + MOEC_RT_ALIGN - 1) / MOEC_RT_ALIGN * MOEC_RT_ALIGN; }

static uint64_t bytes_of(const moec_model *m, uint32_t buffer) {
  return (uint64_t)m->plan.static_values[m->plan.buffers[buffer].bytes];
}

static uint32_t buffer_of(const moec_model *m, uint32_t tensor) { return m->plan.tensors[tensor].buffer; }

/* The parameter before |i| that is tied to it and shares its storage, or |i|. */
static uint32_t shared_with(const moec_model *m, uint32_t i) {
  const moec_rt_plan *p = &m->plan;
  const void *at = m->host[buffer_of(m, p->params[i].tensor)];
  uint32_t type = p->tensors[p->params[i].tensor].dtype;
  for (uint32_t j = 0; p->params[i].tie && j < i; j++) {
    bool same = at || p->tensors[p->params[j].tensor].dtype == type; /* NULL: made on the device */
    if (!same || p->params[j].tie != p->params[i].tie) continue;
    if (m->host[buffer_of(m, p->params[j].tensor)] == at) return j;
  }
  return i;
}

/* A place for buffer |b| behind *at, unless it has one. */
static void place(const moec_model *m, uint32_t b, bool *placed, uint64_t *offset, uint64_t *at) {
  if (placed[b]) return;
  placed[b] = true;
  offset[b] = *at;
  *at += rounded(bytes_of(m, b)); /* all of it is mapped or in memory: no overflow */
}

/* Weights that are made from a seed are not in the host's memory. */
static moec_status *make(moec_model *m, uint32_t b) {
  uint32_t i = 0;
  while (i < m->plan.n_params && buffer_of(m, m->plan.params[i].tensor) != b) i++;
  if (i == m->plan.n_params || m->device->no_contents) return NULL;
  return moec_rt_param_stream(m, i);
}

static moec_status *upload(moec_model *m, uint32_t b) {
  if (!m->host[b]) return make(m, b);
  return m->device->write(m, m->buffers[b], m->host[b], bytes_of(m, b));
}

static moec_status *upload_all(moec_model *m, bool *placed, uint64_t *offset) {
  const moec_rt_plan *p = &m->plan;
  uint64_t total = 0;
  for (uint32_t i = 0; i < p->n_consts; i++) place(m, buffer_of(m, p->consts[i].tensor), placed, offset, &total);
  for (uint32_t i = 0; i < p->n_params; i++) {
    if (shared_with(m, i) == i) place(m, buffer_of(m, p->params[i].tensor), placed, offset, &total);
  }
  MOEC_TRY(moec_rt_device_reserve(m, &m->device_params, total, "parameters"));
  for (uint32_t b = 0; b < p->n_buffers; b++) {
    if (!placed[b]) continue;
    m->buffers[b] = m->device_params.data + offset[b];
    MOEC_TRY(upload(m, b));
  }
  for (uint32_t i = 0; i < p->n_params; i++) {
    uint32_t b = buffer_of(m, p->params[i].tensor);
    if (!placed[b]) m->buffers[b] = m->buffers[buffer_of(m, p->params[shared_with(m, i)].tensor)];
  }
  return NULL;
}

moec_status *moec_rt_copies_init(moec_model *m) {
  bool *placed;
  uint64_t *offset = NULL;
  if (m->device->in_host) return NULL;
  MOEC_TRY(MOEC_RT_NEW(&m->memory, m->copies, 1, "results"));
  m->copies->m = m;
  MOEC_TRY(MOEC_RT_NEW(&m->memory, m->copies->of, m->plan.n_buffers, "results"));
  MOEC_TRY(MOEC_RT_NEW(&m->memory, m->copies->ones, m->n_ins, "inputs"));
  MOEC_TRY(MOEC_RT_NEW(&m->memory, m->input_data, m->n_ins, "inputs"));
  MOEC_TRY(MOEC_RT_NEW(&m->memory, placed, m->plan.n_buffers, "parameters"));
  moec_status *s = MOEC_RT_NEW(&m->memory, offset, m->plan.n_buffers, "parameters");
  if (!s) s = upload_all(m, placed, offset);
  moec_rt_free(&m->memory, placed);
  moec_rt_free(&m->memory, offset);
  return s;
}

/* Inputs of the step before are gone, as it waited at its end; else, where it failed before that, now. Room for less
 * than |bytes| is given back, for none all. */
static moec_status *unstage(moec_model *m, uint64_t bytes) {
  moec_rt_arena *a = &m->copies->staging;
  moec_status *s = m->traffic.waits < m->copies->sent ? m->device->wait(m) : NULL;
  if (!a->data || (!s && bytes && a->size >= bytes)) return s;
  m->device->host_free(m, a->data, a->size);
  *a = (moec_rt_arena){0};
  return s;
}

void moec_rt_copies_fini(moec_model *m) {
  if (!m->copies) return;
  for (uint32_t b = 0; m->copies->of && b < m->plan.n_buffers; b++)
    moec_rt_arena_fini(&m->memory, &m->copies->of[b].data);
  moec_status_free(unstage(m, 0)); /* of an error nobody is left to be told */
  moec_rt_free(&m->memory, m->copies->of);
  moec_rt_free(&m->memory, m->copies->ones);
  moec_rt_free(&m->memory, m->copies);
  moec_rt_free(&m->memory, m->input_data);
}

/* The first element is, and each is as the one before it. */
static bool all_ones(moec_dtype t, const uint8_t *data, uint64_t bytes) {
  size_t each = moec_dtype_get(t)->bytes;
  return bytes >= each && moec_load_f64(t, data, 0) == 1 && !memcmp(data, data + each, (size_t)bytes - each);
}

uint64_t moec_rt_copies_input_bytes(const moec_model *m, moec_schedule program) {
  uint64_t total = 0;
  for (uint32_t k = 0; k < m->n_ins; k++) {
    uint32_t i = m->ins[k].at[program];
    if (i == MOEC_NONE) continue;
    int64_t bytes = m->bound->values[m->plan.buffers[buffer_of(m, m->plan.inputs[i].tensor)].bytes];
    if (bytes < 0 || __builtin_add_overflow(total, rounded((uint64_t)bytes), &total)) return UINT64_MAX;
  }
  return total;
}

/* Room for |bytes| of inputs. */
static moec_status *stage(moec_model *m, uint64_t bytes) {
  moec_rt_arena *a = &m->copies->staging;
  MOEC_TRY(unstage(m, bytes));
  if (a->data) return NULL;
  a->data = m->device->host_alloc(m, bytes);
  if (!a->data) return moec_rt_no_memory("inputs on their way to the device", bytes);
  a->size = bytes;
  return NULL;
}

/* All of them in one copy, as they lie on the device. */
moec_status *moec_rt_copies_inputs(moec_model *m, moec_schedule program, void *const *data) {
  const moec_rt_plan *p = &m->plan;
  uint64_t total = moec_rt_copies_input_bytes(m, program), at = 0;
  MOEC_TRY(moec_rt_device_reserve(m, &m->device_inputs, total, "inputs"));
  MOEC_TRY(stage(m, total ? total : 1));
  for (uint32_t k = 0; k < m->n_ins; k++) {
    uint32_t i = m->ins[k].at[program];
    if (i == MOEC_NONE) continue;
    uint32_t b = buffer_of(m, p->inputs[i].tensor);
    uint64_t bytes = (uint64_t)m->bound->values[p->buffers[b].bytes];
    m->copies->ones[k] = all_ones((moec_dtype)p->tensors[p->inputs[i].tensor].dtype, data[k], bytes);
    if (bytes) memcpy(m->copies->staging.data + at, data[k], bytes);
    memset(m->copies->staging.data + at + bytes, 0, rounded(bytes) - bytes);
    m->buffers[b] = m->device_inputs.data + at;
    at += rounded(bytes);
  }
  m->copies->sent = m->traffic.waits + 1;
  return m->device->write(m, m->device_inputs.data, m->copies->staging.data, total);
}

/* Buffers whose contents the host has, as they are now. */
static bool is_kept(const moec_model *m, uint32_t b) {
  uint32_t kind = m->plan.buffers[b].kind;
  return m->device->in_host || ((kind == MOEC_BUFFER_PARAM || kind == MOEC_BUFFER_CONST) && m->host[b]);
}

moec_status *moec_rt_host_view(const moec_model *m, const moec_rt_binding *b, uint32_t tensor, moec_tensor *out) {
  uint32_t buffer = buffer_of(m, tensor);
  if (m->plan.buffers[buffer].kind == MOEC_BUFFER_PARAM) MOEC_TRY(moec_rt_copies_fetch((moec_model *)(uintptr_t)m));
  moec_rt_tensor_view(m, b, tensor, out);
  out->data = m->host[buffer];
  if (is_kept(m, buffer)) return NULL;
  moec_rt_copies *c = m->copies;
  moec_rt_arena *a = &c->of[buffer].data;
  uint64_t bytes = moec_tensor_bytes(out);
  if (a->data && bytes > a->size && atomic_load(&m->refs) > 1) {
    return moec_error(MOEC_INVALID_ARGUMENT,
                      "expected the tensors that other libraries hold to be released before results grow");
  }
  if (!a->data || c->of[buffer].run != c->run) {
    MOEC_TRY(moec_rt_arena_reserve(&c->m->memory, a, bytes, "a result"));
    MOEC_TRY(m->device->read(c->m, a->data, m->buffers[buffer], bytes));
    c->of[buffer].run = c->run;
  }
  out->data = a->data;
  return NULL;
}
