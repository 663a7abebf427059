/* include/moec.h: sizes, inputs, steps and outputs. */
#include <inttypes.h>
#include <string.h>

#include "runtime/model.h"
#include "runtime/sizes.h"

static moec_status *check_index(const char *what, uint32_t i, uint32_t n) {
  return i < n ? NULL : moec_wrong("%s: expected an index below %u, got %u", what, n, i);
}

static void view_from(const moec_tensor *t, moec_view *out) {
  *out = (moec_view){.data = t->data, .dtype = (int)t->dtype, .rank = t->rank};
  memcpy(out->dims, t->dims, sizeof out->dims);
}

/* ---- sizes ------------------------------------------------------------------------------- */

/* Binds m->symbols and makes room for |program|. */
static moec_status *bind_for(moec_model *m, moec_schedule program) {
  MOEC_TRY(moec_rt_bind(m, m->symbols));
  moec_status *s = moec_rt_prepare(m, program);
  if (s) m->bound = NULL;
  return s;
}

moec_status *moec_bind_sizes(moec_model *m, uint32_t n, const char *const *names,
                             const int64_t *values) {
  const moec_rt_plan *p = &m->plan;
  m->ran = MOEC_SCHEDULE_COUNT;
  moec_rt_symbols_fixed(p, m->symbols);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t k = 0;
    while (k < p->n_symbols && strcmp(moec_rt_str(p, p->symbols[k].name), names[i])) k++;
    if (k == p->n_symbols) return moec_wrong("size \"%s\": the model has no such size", names[i]);
    if (values[i] < 0) {
      return moec_wrong("size \"%s\": expected at least 0, got %" PRId64, names[i], values[i]);
    }
    if (p->symbols[k].fixed >= 0 && p->symbols[k].fixed != values[i]) {
      return moec_wrong("size \"%s\": expected %" PRId64
                        ", which the model was compiled for, got %" PRId64,
                        names[i], p->symbols[k].fixed, values[i]);
    }
    m->symbols[k] = values[i];
  }
  MOEC_TRY(moec_rt_bind(m, m->symbols));
  moec_status *s = moec_rt_placement_make(m, m->bound, MOEC_AT_STEP); /* the program that runs makes room for itself */
  if (s) m->bound = NULL;
  return s;
}

static moec_status *bind_tensors(moec_model *m, moec_schedule program, const moec_tensor *inputs) {
  m->ran = MOEC_SCHEDULE_COUNT;
  MOEC_TRY(moec_rt_solve(m, program, inputs, m->symbols));
  return bind_for(m, program);
}

static moec_status *to_tensor(const moec_view *v, const char *name, moec_tensor *out) {
  size_t bytes;
  if (v->rank > MOEC_MAX_DIMS)
    return moec_wrong("input \"%s\": expected rank %d at most, got %u", name, MOEC_MAX_DIMS,
                      v->rank);
  if (v->dtype <= MOEC_DTYPE_NONE || v->dtype >= MOEC_DTYPE_COUNT) {
    return moec_wrong("input \"%s\": expected a dtype from 1 to %d, got %d", name,
                      (int)MOEC_DTYPE_COUNT - 1, v->dtype);
  }
  *out = (moec_tensor){.dtype = (moec_dtype)v->dtype, .rank = v->rank, .data = v->data};
  memcpy(out->dims, v->dims, v->rank * sizeof *out->dims);
  return moec_context(moec_shape_bytes(out->dtype, out->rank, out->dims, &bytes), "input \"%s\"",
                      name);
}

moec_status *moec_bind_shapes(moec_model *m, const moec_view *inputs) {
  for (uint32_t i = 0; i < m->n_ins; i++) {
    m->shapes[i] = (moec_tensor){0};
    if (m->ins[i].at[MOEC_AT_STEP] == MOEC_NONE) continue;
    if (moec_rt_default_of(m, i) && inputs[i].dtype == MOEC_DTYPE_NONE) continue;
    MOEC_TRY(to_tensor(&inputs[i], m->ins[i].name, &m->shapes[i]));
  }
  return bind_tensors(m, MOEC_AT_STEP, m->shapes);
}

moec_status *moec_place(moec_model *m, moec_program program) {
  if (!moec_has_program(m, program)) return moec_rt_untrained();
  if (!m->bound) return moec_wrong("expected sizes to be bound first, got none");
  return moec_rt_placement_make(m, m->bound, (moec_schedule)(MOEC_AT_STEP + (int)program));
}

moec_status *moec_shape(const moec_model *m, moec_list list, uint32_t i, moec_view *out) {
  const moec_rt_plan *p = &m->plan;
  *out = (moec_view){0};
  if (list == MOEC_PARAMETERS) return moec_parameter(m, i, out);
  MOEC_TRY(check_index(list == MOEC_INPUTS ? "input" : "output", i, moec_count(m, list)));
  if (!m->bound) return moec_wrong("expected sizes to be bound before shapes are read, got none");
  moec_tensor t;
  uint32_t k = moec_rt_io_first(&(list == MOEC_INPUTS ? m->ins : m->outs)[i]);
  moec_rt_tensor_view(m, m->bound, (list == MOEC_INPUTS ? p->inputs : p->outputs)[k].tensor, &t);
  view_from(&t, out);
  out->data = NULL;
  return NULL;
}

/* ---- inputs ------------------------------------------------------------------------------ */

static moec_status *check_input(const moec_model *m, uint32_t i, const moec_view *view,
                                moec_tensor *out) {
  const moec_rt_plan *p = &m->plan;
  MOEC_TRY(check_index("input", i, m->n_ins));
  const char *name = m->ins[i].name;
  const moec_plan_tensor *t = &p->tensors[p->inputs[moec_rt_io_first(&m->ins[i])].tensor];
  MOEC_TRY(to_tensor(view, name, out));
  if ((uint32_t)out->dtype != t->dtype || out->rank != t->rank) {
    return moec_wrong("input \"%s\": expected %s of rank %u, got %s of rank %u", name,
                      moec_dtype_get((moec_dtype)t->dtype)->text, t->rank,
                      moec_dtype_get(out->dtype)->text, out->rank);
  }
  if (!out->data && moec_tensor_numel(out) != 0) {
    return moec_wrong("input \"%s\": expected data, got NULL", name);
  }
  return NULL;
}

moec_status *moec_input_omit(moec_model *m, uint32_t i) {
  MOEC_TRY(check_index("input", i, m->n_ins));
  if (!moec_rt_default_of(m, i))
    return moec_wrong("input \"%s\": it has no default", m->ins[i].name);
  moec_rt_input_release(&m->inputs[i]);
  m->inputs[i].view = (moec_tensor){0};
  return NULL;
}

moec_status *moec_input_borrow(moec_model *m, uint32_t i, const moec_view *view) {
  moec_tensor t;
  MOEC_TRY(check_input(m, i, view, &t));
  size_t align = moec_dtype_get(t.dtype)->bytes;
  if ((uintptr_t)t.data % align) {
    return moec_wrong("input \"%s\": expected data aligned to %zu bytes, got %p", m->ins[i].name,
                      align, t.data);
  }
  moec_rt_input_release(&m->inputs[i]);
  m->inputs[i].view = t;
  return NULL;
}

moec_status *moec_input_copy(moec_model *m, uint32_t i, const moec_view *view) {
  moec_tensor t;
  MOEC_TRY(check_input(m, i, view, &t));
  moec_rt_input *in = &m->inputs[i];
  if (in->view.data && in->view.data == in->copy.data) in->view.dtype = MOEC_DTYPE_NONE;
  size_t bytes = moec_tensor_bytes(&t);
  MOEC_TRY(moec_rt_arena_reserve(&m->memory, &in->copy, bytes, "input"));
  if (bytes) memcpy(in->copy.data, t.data, bytes);
  moec_rt_input_release(in);
  t.data = in->copy.data;
  in->view = t;
  return NULL;
}

/* ---- steps ------------------------------------------------------------------------------- */

static bool sizes_fit(const moec_model *m, moec_schedule program) {
  for (uint32_t k = 0; k < m->n_ins; k++) {
    moec_tensor want;
    const moec_tensor *got = &m->inputs[k].view;
    uint32_t i = m->ins[k].at[program];
    if (i == MOEC_NONE) continue;
    if (got->dtype == MOEC_DTYPE_NONE && m->plan.inputs[i].has_default) continue;
    moec_rt_tensor_view(m, m->bound, m->plan.inputs[i].tensor, &want);
    if (got->dtype != want.dtype || !moec_rt_same_shape(got, &want)) return false;
  }
  return true;
}

/* Binds the sizes that the inputs of |program| have, where they are others. */
static moec_status *bind_inputs(moec_model *m, moec_schedule program) {
  if (m->bound && sizes_fit(m, program)) return moec_rt_prepare(m, program);
  for (uint32_t i = 0; i < m->n_ins; i++) m->shapes[i] = m->inputs[i].view;
  return bind_tensors(m, program, m->shapes);
}

/* Where the data of input |k| is, which |io| is in the program about to run. A default fills room
 * that grows with the sizes and keeps its content. */
static moec_status *input_data(moec_model *m, uint32_t k, const moec_plan_io *io, void **out) {
  moec_rt_input *in = &m->inputs[k];
  moec_tensor t;
  *out = in->view.data;
  if (in->view.dtype != MOEC_DTYPE_NONE) return NULL;
  moec_rt_tensor_view(m, m->bound, io->tensor, &t);
  size_t bytes = moec_tensor_bytes(&t), n = (size_t)moec_tensor_numel(&t);
  bool full = in->fill.data && in->fill.size >= bytes;
  MOEC_TRY(moec_rt_arena_reserve(&m->memory, &in->fill, bytes, "input"));
  for (size_t e = 0; !full && e < n; e++) moec_store_f64(t.dtype, in->fill.data, e, io->dflt);
  *out = in->fill.data;
  return NULL;
}

moec_status *moec_rt_run_program(moec_model *m, moec_schedule program) {
  uint64_t before = m->memory.allocations + m->device_memory.allocations;
  const moec_rt_plan *p = &m->plan;
  m->ran = MOEC_SCHEDULE_COUNT;
  MOEC_TRY(bind_inputs(m, program));
  for (uint32_t k = 0; k < m->n_ins; k++) {
    uint32_t i = m->ins[k].at[program];
    if (i == MOEC_NONE) continue;
    const moec_plan_io *io = &p->inputs[i];
    void **at = m->device->in_host ? &m->buffers[p->tensors[io->tensor].buffer] : &m->input_data[k];
    MOEC_TRY(input_data(m, k, io, at));
  }
  if (!m->device->in_host) MOEC_TRY(moec_rt_copies_inputs(m, program, m->input_data));
  MOEC_TRY(moec_rt_run_schedule(m, program, m->bound));
  moec_rt_placement *x = &m->bound->of[program];
  if (x->ran) m->allocations_after_first += m->memory.allocations + m->device_memory.allocations - before;
  x->ran = true;
  if (m->copies) m->copies->run++;
  m->ran = program;
  return NULL;
}

moec_status *moec_forward(moec_model *m) {
  MOEC_TRY(moec_rt_run_program(m, MOEC_AT_STEP));
  m->forwards++;
  return NULL;
}

static moec_status *need_step(const moec_model *m) {
  if (m->ran != MOEC_SCHEDULE_COUNT) return NULL;
  return moec_wrong("expected a step for these sizes before its results are read");
}

moec_status *moec_output(const moec_model *m, uint32_t i, moec_view *out) {
  *out = (moec_view){0};
  MOEC_TRY(check_index("output", i, m->n_outs));
  MOEC_TRY(need_step(m));
  uint32_t k = m->outs[i].at[m->ran];
  if (k == MOEC_NONE) {
    return moec_wrong("output \"%s\": it is none of what ran last", m->outs[i].name);
  }
  moec_tensor t;
  MOEC_TRY(moec_rt_host_view(m, m->bound, m->plan.outputs[k].tensor, &t));
  view_from(&t, out);
  return NULL;
}
