/* include/moec.h: what a model has, and counters. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/model.h"
#include "runtime/sizes.h"

static moec_status *check_index(const char *what, uint32_t i, uint32_t n) {
  if (i < n) return NULL;
  return moec_error(MOEC_INVALID_ARGUMENT, "%s: expected an index below %u, got %u", what, n, i);
}

static const char *list_name(moec_list list) {
  static const char *const names[] = {"input", "output", "parameter"};
  return (unsigned)list < 3 ? names[list] : "entry";
}

uint32_t moec_count(const moec_model *m, moec_list list) {
  const uint32_t n[] = {m->n_ins, m->n_outs, m->plan.n_params};
  return (unsigned)list < 3 ? n[list] : 0;
}

/* Name and tensor of an entry that exists. */
static const char *entry(const moec_model *m, moec_list list, uint32_t i, uint32_t *tensor) {
  const moec_rt_plan *p = &m->plan;
  if (list == MOEC_PARAMETERS) {
    *tensor = p->params[i].tensor;
    return moec_rt_str(p, p->params[i].name);
  }
  const moec_rt_io *x = &(list == MOEC_INPUTS ? m->ins : m->outs)[i];
  *tensor = (list == MOEC_INPUTS ? p->inputs : p->outputs)[moec_rt_io_first(x)].tensor;
  return x->name;
}

static unsigned programs_of(const moec_rt_io *x) {
  unsigned bits = 0;
  for (unsigned k = 0; k < MOEC_PROGRAM_COUNT; k++) {
    if (x->at[MOEC_AT_STEP + k] != MOEC_NONE) bits |= 1u << k;
  }
  return bits;
}

moec_status *moec_describe(const moec_model *m, moec_list list, uint32_t i, moec_description *out) {
  const moec_rt_plan *p = &m->plan;
  *out = (moec_description){0};
  MOEC_TRY(check_index(list_name(list), i, moec_count(m, list)));
  uint32_t tensor;
  out->name = entry(m, list, i, &tensor);
  const moec_plan_tensor *t = &p->tensors[tensor];
  out->dtype = (int)t->dtype;
  out->dtype_name = moec_dtype_get((moec_dtype)t->dtype)->text;
  out->rank = t->rank;
  for (uint32_t a = 0; a < t->rank; a++) out->dims[a] = m->dim_text[p->pool[t->dims + a]];
  if (list == MOEC_INPUTS) {
    const moec_plan_io *io = moec_rt_default_of(m, i);
    out->has_default = io != NULL;
    out->default_value = io ? io->dflt : 0;
  }
  if (list == MOEC_PARAMETERS) {
    out->trainable = p->params[i].trainable != 0;
    out->expert = p->params[i].group == 1;
    out->has_gradient = m->train.leaf_of[i] != MOEC_NONE;
  } else {
    out->programs = programs_of(&(list == MOEC_INPUTS ? m->ins : m->outs)[i]);
  }
  return NULL;
}

moec_status *moec_find(const moec_model *m, moec_list list, const char *name, uint32_t *out) {
  char names[512] = "";
  size_t used = 0;
  uint32_t n = moec_count(m, list), tensor;
  for (uint32_t i = 0; i < n; i++) {
    const char *have = entry(m, list, i, &tensor);
    if (!strcmp(have, name)) {
      *out = i;
      return NULL;
    }
    int k = snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", have);
    used = k < 0 || (size_t)k >= sizeof names - used ? sizeof names - 1 : used + (size_t)k;
  }
  return moec_error(MOEC_INVALID_ARGUMENT, "%s \"%s\": the model has none of this name, but: %s",
                    list_name(list), name, n ? names : "none at all");
}

moec_status *moec_parameter(const moec_model *m, uint32_t i, moec_view *out) {
  const moec_rt_plan *p = &m->plan;
  *out = (moec_view){0};
  MOEC_TRY(check_index("parameter", i, p->n_params));
  moec_tensor t;
  MOEC_TRY(moec_rt_host_view(m, m->fixed, p->params[i].tensor, &t));
  *out = (moec_view){.data = t.data, .dtype = (int)t.dtype, .rank = t.rank};
  memcpy(out->dims, t.dims, sizeof out->dims);
  return NULL;
}

uint32_t moec_symbol_count(const moec_model *m) { return m->plan.n_symbols; }

moec_status *moec_symbol(const moec_model *m, uint32_t i, const char **name, int64_t *value) {
  MOEC_TRY(check_index("size", i, m->plan.n_symbols));
  const moec_plan_symbol *s = &m->plan.symbols[i];
  int64_t v = m->bound ? m->bound->symbols[i] : s->fixed;
  if (name) *name = moec_rt_str(&m->plan, s->name);
  if (value) *value = v == MOEC_RT_UNKNOWN ? -1 : v;
  return NULL;
}

/* What is counted of a step: of the program that ran last, at first of forward. */
static const moec_rt_placement *latest(const moec_model *m) {
  if (!m->bound) return NULL;
  return &m->bound->of[m->ran == MOEC_SCHEDULE_COUNT ? MOEC_AT_STEP : m->ran];
}

const char *moec_attention_note(const moec_model *m) { return m->attention_note ? m->attention_note : ""; }

void moec_counters_get(const moec_model *m, moec_counters *out) {
  *out = (moec_counters){
      .forwards = m->forwards,
      .backwards = m->train.backwards,
      .updates = m->train.updates,
      .binds = m->binds,
      .placements = m->placements,
      .allocations = m->memory.allocations + m->device_memory.allocations,
      .allocations_after_first = m->allocations_after_first,
      .threads = (uint64_t)moec_rt_pool_threads(m->pool),
      .parameter_bytes = m->params.copies.size,
      .mapped_bytes = m->params.mapped_bytes,
      .load_bytes = m->load.size,
      .bind_bytes = m->bind.size,
      .step_bytes = m->step.size,
      .gradient_bytes = m->train.grads.size + m->train.sums.size,
      .optimizer_bytes =
          m->train.weights.size + m->train.moments.size + m->train.scalars.size + m->train.chunks.size,
      .live_bytes = m->memory.live,
      .peak_bytes = m->memory.peak,
      .device_bytes = m->device_memory.live,
      .device_peak_bytes = m->device_memory.peak,
      .device_waits = m->traffic.waits,
      .device_writes = m->traffic.writes,
      .device_write_bytes = m->traffic.write_bytes,
      .device_reads = m->traffic.reads,
      .device_read_bytes = m->traffic.read_bytes,
      .compilations = m->compilations,
      .attention_by_library = m->attention_by_library,
  };
  const moec_rt_placement *x = latest(m);
  if (!x) return;
  for (int k = 0; k < MOEC_PROGRAM_COUNT; k++) {
    out->program_bytes[k] = m->bound->of[MOEC_AT_STEP + k].bytes;
    out->planned_bytes[k] = moec_rt_planned_bytes(m, (moec_schedule)(MOEC_AT_STEP + k));
  }
  out->planned_accumulate_bytes = m->train.float_bytes - moec_rt_part_bytes(m, MOEC_AT_TRAIN);
  out->planned_update_bytes = moec_rt_update_bytes(m);
  out->kernels_per_step = x->kernels;
  out->library_per_step = x->library;
  out->moe_per_step = x->regions;
  out->steps_in_regions = x->in_regions;
  out->flops_per_step = x->flops;
}

uint32_t moec_step_class_count(const moec_model *m) {
  (void)m;
  return MOEC_STEP_COUNT;
}

moec_status *moec_step_class_get(const moec_model *m, uint32_t i, moec_step_class *out) {
  *out = (moec_step_class){0};
  MOEC_TRY(check_index("class of steps", i, MOEC_STEP_COUNT));
  out->name = moec_rt_op_get(i)->text;
  for (uint32_t k = 0; k < m->plan.n_steps; k++) out->ns += m->plan.steps[k].op == i ? m->ns[k] : 0;
  const moec_rt_placement *x = latest(m);
  if (!x) return NULL;
  out->steps = x->classes[i].steps;
  out->bytes = x->classes[i].bytes;
  out->flops = x->classes[i].flops;
  return NULL;
}

void moec_time_steps(moec_model *m, int on) {
  m->timed = on != 0;
  if (m->ns) memset(m->ns, 0, m->plan.n_steps * sizeof *m->ns);
}
