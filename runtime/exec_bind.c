/* Binding sizes: everything about a step that depends on sizes is worked out and checked here,
 * once for each set of them. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "runtime/model.h"
#include "runtime/sizes.h"

/* ---- one binding ------------------------------------------------------------------------- */

static moec_status *allocate(moec_model *m, moec_rt_binding **out) {
  const moec_rt_plan *p = &m->plan;
  uint64_t words = (uint64_t)p->n_symbols + p->n_exprs + p->n_buffers;
  uint64_t bytes = words * sizeof(int64_t) + p->n_steps * sizeof(bool);
  uint8_t *block = moec_rt_alloc(&m->memory, sizeof **out + bytes, true);
  *out = (moec_rt_binding *)(void *)block;
  if (!block) return moec_rt_no_memory("sizes", bytes);
  moec_rt_binding *b = *out;
  b->symbols = (int64_t *)(void *)(block + sizeof *b);
  b->values = b->symbols + p->n_symbols;
  b->offset = (uint64_t *)(b->values + p->n_exprs);
  b->alone = (bool *)(b->offset + p->n_buffers);
  return NULL;
}

/* A size that must be known and not negative. */
static moec_status *need_size(const moec_model *m, const moec_rt_binding *b, moec_expr_ref e,
                              const char *what, const char *name) {
  if (b->values[e] >= 0) return NULL;
  char text[MOEC_RT_EXPR_TEXT], sizes[256];
  moec_rt_expr_text(&m->plan, e, text, sizeof text);
  moec_rt_sizes_text(m, b->symbols, e, e, sizes, sizeof sizes);
  if (b->values[e] == MOEC_RT_UNKNOWN) {
    return moec_error(MOEC_INVALID_ARGUMENT, "%s %s: expected a size that is known and below 2^63, got %s%s", what,
                      name, text, sizes);
  }
  return moec_error(MOEC_INVALID_ARGUMENT,
                    "%s %s: expected a size of at least 0, got %s = %" PRId64 "%s", what, name,
                    text, b->values[e], sizes);
}

/* Strides count too: a tensor without elements may have axes whose product is none of 64 bits. Here they are refused,
 * and steps multiply without looking. */
static moec_status *check_tensor(const moec_model *m, const moec_rt_binding *b, uint32_t tensor) {
  const moec_rt_plan *p = &m->plan;
  const moec_plan_tensor *t = &p->tensors[tensor];
  const char *name = moec_rt_str(p, t->name);
  int64_t bytes = (int64_t)moec_dtype_get((moec_dtype)t->dtype)->bytes;
  MOEC_TRY(need_size(m, b, p->buffers[t->buffer].bytes, "tensor", name));
  bool none = false;
  for (uint32_t a = 0; a < t->rank; a++) {
    moec_expr_ref e = p->pool[t->dims + a];
    MOEC_TRY(need_size(m, b, e, "tensor", name));
    none = none || b->values[e] == 0;
    if (b->values[e] && !moec_mul_i64(bytes, b->values[e], &bytes)) {
      return moec_error(MOEC_INVALID_ARGUMENT,
                        "tensor %s: expected strides of 64 bits, got axes from %u on that are larger", name, a);
    }
  }
  bytes = none ? 0 : bytes;
  if (bytes == b->values[p->buffers[t->buffer].bytes]) return NULL;
  return moec_error(MOEC_INVALID_MODEL,
                    "tensor %s: expected a buffer of its size, got %" PRId64 " bytes for %" PRId64,
                    name, b->values[p->buffers[t->buffer].bytes], bytes);
}

static void raise_need(moec_rt_need *to, const moec_rt_need *by) {
  if (by->thread > to->thread) to->thread = by->thread;
  if (by->shared > to->shared) to->shared = by->shared;
}

static moec_status *check_step(moec_model *m, const moec_rt_binding *b, const moec_plan_step *s,
                               moec_rt_need *most) {
  const moec_rt_plan *p = &m->plan;
  moec_rt_need need = {0};
  for (uint32_t k = 0; k < s->n_in + s->n_out; k++) {
    uint32_t t = p->pool[s->args + k];
    if (t != MOEC_NONE) MOEC_TRY(check_tensor(m, b, t));
  }
  if (moec_rt_has_kernel(s)) {
    const moec_plan_kernel *k = &p->kernels[s->kernel];
    MOEC_TRY(need_size(m, b, k->rows, "kernel", moec_rt_str(p, k->name)));
    MOEC_TRY(need_size(m, b, k->scratch, "kernel", moec_rt_str(p, k->name)));
  }
  if (s->op == MOEC_STEP_KERNEL) {
    MOEC_TRY(m->device->need(m, s, b, NULL, &need));
  } else {
    moec_rt_call call;
    moec_rt_call_init(m, s, b, false, &call);
    MOEC_TRY(moec_rt_op_get(s->op)->check(&call, &need));
    MOEC_TRY(m->device->need(m, s, b, &call, &need));
  }
  raise_need(most, &need);
  return NULL;
}

static moec_status *check_constraints(const moec_model *m, const moec_rt_binding *b) {
  const moec_rt_plan *p = &m->plan;
  for (uint32_t i = 0; i < p->n_constraints; i++) {
    const moec_plan_constraint *c = &p->constraints[i];
    int64_t x = b->values[c->a], y = b->values[c->b];
    if (x != MOEC_RT_UNKNOWN && x == y) continue;
    char sizes[256];
    moec_rt_sizes_text(m, b->symbols, c->a, c->b, sizes, sizeof sizes);
    bool unknown = x == MOEC_RT_UNKNOWN || y == MOEC_RT_UNKNOWN;
    return moec_error(MOEC_INVALID_ARGUMENT, "node \"%s\": %s: needs %s, which %s%s",
                      moec_rt_str(p, c->where), moec_rt_str(p, c->what), moec_rt_str(p, c->text),
                      unknown ? "is not known" : "does not hold", sizes);
  }
  return NULL;
}

uint64_t moec_rt_operand_bytes(const moec_model *m, const moec_rt_binding *b, const moec_plan_step *s) {
  uint64_t total = 0;
  for (uint32_t k = 0; k < s->n_in + s->n_out; k++) {
    moec_tensor t;
    if (m->plan.pool[s->args + k] == MOEC_NONE) continue;
    moec_rt_tensor_view(m, b, m->plan.pool[s->args + k], &t);
    total += moec_tensor_bytes(&t);
  }
  return total;
}

/* About 16 microseconds, what it can take until another thread begins. */
static bool is_little(uint64_t flops, uint64_t bytes) {
  enum { FLOPS_A_US = 16000, BYTES_A_US = 8000, LITTLE_US = 16 };
  return flops / FLOPS_A_US + bytes / BYTES_A_US < LITTLE_US;
}

static void count(const moec_model *m, const moec_rt_binding *b, moec_schedule schedule,
                  moec_rt_placement *out) {
  const moec_rt_plan *p = &m->plan;
  for (uint32_t i = p->schedule_begin[schedule]; i < p->schedule_begin[schedule + 1]; i++) {
    const moec_plan_step *s = &p->steps[i];
    uint64_t flops = b->values[s->flops] > 0 ? (uint64_t)b->values[s->flops] : 0;
    uint64_t bytes = moec_rt_operand_bytes(m, b, s);
    b->alone[i] = is_little(flops, bytes);
    out->classes[s->op].steps++;
    out->classes[s->op].bytes += bytes;
    out->classes[s->op].flops += flops;
    out->flops += flops;
    if (s->op == MOEC_STEP_MOE_PLAN) out->regions++;
    if (s->moe != MOEC_NONE) /* the plan step opens the region and stands for all of it */
      out->in_regions += s->op != MOEC_STEP_MOE_PLAN;
    else if (s->op == MOEC_STEP_KERNEL)
      out->kernels++;
    else if (s->op != MOEC_STEP_MOE_PLAN)
      out->library++;
  }
}

static uint64_t aligned(uint64_t bytes) {
  return bytes > UINT64_MAX - MOEC_RT_ALIGN ? bytes
                                            : (bytes + MOEC_RT_ALIGN - 1) & ~(MOEC_RT_ALIGN - 1ull);
}

/* LOAD and BIND buffers lie one behind the other; those of programs are placed by lifetime. */
static moec_status *place(moec_model *m, moec_rt_binding *b, moec_schedule schedule,
                          uint64_t *bytes, uint64_t *out_total) {
  static const moec_buffer_kind kinds[] = {MOEC_BUFFER_LOAD, MOEC_BUFFER_BIND};
  const moec_rt_plan *p = &m->plan;
  bool program = schedule >= MOEC_AT_STEP;
  for (uint32_t i = 0; i < p->n_buffers; i++) {
    const moec_plan_buffer *x = &p->buffers[i];
    if (program ? !moec_rt_placed(x, schedule) : x->kind != (uint32_t)kinds[schedule]) continue;
    int64_t size = b->values[x->bytes];
    bytes[i] = size > 0 ? aligned((uint64_t)size) : 0; /* unknown: no step uses it */
    if (program) continue;
    b->offset[i] = *out_total;
    if (__builtin_add_overflow(*out_total, bytes[i], out_total)) {
      return moec_rt_no_memory("buffers", UINT64_MAX);
    }
  }
  return program ? moec_rt_place(m, schedule, bytes, b->offset, out_total) : NULL;
}

static moec_status *check_io(const moec_model *m, const moec_rt_binding *b, moec_schedule program) {
  const moec_rt_plan *p = &m->plan;
  for (uint32_t i = 0; i < p->n_inputs; i++) {
    if (p->inputs[i].schedule == (uint32_t)program)
      MOEC_TRY(check_tensor(m, b, p->inputs[i].tensor));
  }
  for (uint32_t i = 0; i < p->n_outputs; i++) {
    if (p->outputs[i].schedule == (uint32_t)program)
      MOEC_TRY(check_tensor(m, b, p->outputs[i].tensor));
  }
  for (uint32_t i = 0; i < p->n_moe_layers; i++) {
    const moec_plan_moe *l = &p->moe_layers[i];
    const uint32_t tensors[] = {l->indices, l->weights, l->offsets};
    for (int k = 0; k < 3 && l->schedule == (uint32_t)program; k++) {
      if (tensors[k] != MOEC_NONE) MOEC_TRY(check_tensor(m, b, tensors[k]));
    }
  }
  return NULL;
}

moec_status *moec_rt_binding_make(moec_model *m, const int64_t *symbols, moec_rt_binding **out) {
  MOEC_TRY(allocate(m, out));
  memcpy((*out)->symbols, symbols, m->plan.n_symbols * sizeof *symbols);
  moec_rt_eval(&m->plan, symbols, (*out)->values);
  return NULL;
}

moec_status *moec_rt_placement_make(moec_model *m, moec_rt_binding *b, moec_schedule schedule) {
  const moec_rt_plan *p = &m->plan;
  moec_rt_placement made = {.ready = true};
  if (b->of[schedule].ready) return NULL;
  if (schedule == MOEC_AT_BIND) MOEC_TRY(check_constraints(m, b));
  if (schedule >= MOEC_AT_STEP) MOEC_TRY(check_io(m, b, schedule));
  for (uint32_t i = p->schedule_begin[schedule]; i < p->schedule_begin[schedule + 1]; i++) {
    MOEC_TRY(check_step(m, b, &p->steps[i], &made.need));
  }
  count(m, b, schedule, &made);
  uint64_t *bytes;
  MOEC_TRY(MOEC_RT_NEW(&m->memory, bytes, p->n_buffers, "sizes"));
  moec_status *s = place(m, b, schedule, bytes, &made.bytes);
  moec_rt_free(&m->memory, bytes);
  if (!s) b->of[schedule] = made;
  return s;
}

/* ---- the bound sizes --------------------------------------------------------------------- */

static moec_rt_binding *find(moec_model *m, const int64_t *symbols) {
  for (uint32_t i = 0; i < m->n_bindings; i++) {
    moec_rt_binding *b = m->bindings[i];
    if (!memcmp(b->symbols, symbols, m->plan.n_symbols * sizeof *symbols)) return b;
  }
  return NULL;
}

static void remember(moec_model *m, moec_rt_binding *b) {
  if (m->n_bindings < MOEC_RT_MAX_BINDINGS) {
    m->bindings[m->n_bindings++] = b;
    return;
  }
  uint32_t oldest = 0;
  for (uint32_t i = 1; i < m->n_bindings; i++) {
    if (m->bindings[i]->used < m->bindings[oldest]->used) oldest = i;
  }
  moec_rt_free(&m->memory, m->bindings[oldest]);
  m->bindings[oldest] = b;
}

static uint64_t scratch_of_threads(const moec_model *m, uint64_t thread) {
  return moec_rt_array(aligned(thread), (uint64_t)moec_rt_pool_threads(m->pool));
}

uint64_t moec_rt_scratch_bytes(const moec_model *m, const moec_rt_need *need) {
  uint64_t total;
  return __builtin_add_overflow(scratch_of_threads(m, need->thread), need->shared, &total) ? UINT64_MAX : total;
}

moec_status *moec_rt_reserve_scratch(moec_model *m, const moec_rt_need *need) {
  uint64_t thread = aligned(need->thread > m->need.thread ? need->thread : m->need.thread);
  uint64_t shared = need->shared > m->need.shared ? need->shared : m->need.shared;
  MOEC_TRY(moec_rt_device_reserve(m, &m->scratch, scratch_of_threads(m, thread), "scratch of threads"));
  MOEC_TRY(moec_rt_device_reserve(m, &m->shared, shared, "scratch of steps"));
  m->need = (moec_rt_need){thread, shared};
  return NULL;
}

/* The addresses of all buffers that |schedule| writes and that are not there from opening on. */
static void set_addresses(moec_model *m, const moec_rt_binding *b, moec_schedule schedule) {
  for (uint32_t i = 0; i < m->plan.n_buffers; i++) {
    const moec_plan_buffer *x = &m->plan.buffers[i];
    if (schedule == MOEC_AT_BIND && x->kind == MOEC_BUFFER_BIND)
      m->buffers[i] = m->bind.data + b->offset[i];
    if (moec_rt_placed(x, schedule)) m->buffers[i] = m->step.data + b->offset[i];
  }
}

static moec_status *make(moec_model *m, const int64_t *symbols, moec_rt_binding **out) {
  MOEC_TRY(moec_rt_binding_make(m, symbols, out));
  moec_status *s = moec_rt_placement_make(m, *out, MOEC_AT_BIND);
  if (s) moec_rt_free(&m->memory, *out);
  if (s) return s;
  remember(m, *out);
  m->placements++;
  return NULL;
}

moec_status *moec_rt_bind(moec_model *m, const int64_t *symbols) {
  m->ran = MOEC_SCHEDULE_COUNT;
  moec_rt_binding *b = find(m, symbols);
  if (m->bound && b == m->bound) return NULL;
  m->bound = NULL;
  if (!b) MOEC_TRY(make(m, symbols, &b));
  const moec_rt_placement *x = &b->of[MOEC_AT_BIND];
  b->used = ++m->tick;
  MOEC_TRY(moec_rt_device_reserve(m, &m->bind, x->bytes, "buffers of these sizes"));
  MOEC_TRY(moec_rt_reserve_scratch(m, &x->need));
  set_addresses(m, b, MOEC_AT_BIND);
  MOEC_TRY(moec_rt_run_schedule(m, MOEC_AT_BIND, b));
  m->bound = b;
  m->binds++;
  return NULL;
}

moec_status *moec_rt_prepare(moec_model *m, moec_schedule program) {
  MOEC_TRY(moec_rt_placement_make(m, m->bound, program));
  const moec_rt_placement *x = &m->bound->of[program];
  m->ran = MOEC_SCHEDULE_COUNT; /* programs share their arena */
  if (x->bytes > m->step.size && atomic_load(&m->refs) > 1) {
    return moec_error(MOEC_INVALID_ARGUMENT,
                      "expected the tensors that other libraries hold to be released before the "
                      "buffers of a step grow to %" PRIu64 " bytes",
                      x->bytes);
  }
  MOEC_TRY(moec_rt_device_reserve(m, &m->step, x->bytes, "buffers of a step"));
  MOEC_TRY(moec_rt_reserve_scratch(m, &x->need));
  set_addresses(m, m->bound, program);
  return NULL;
}
