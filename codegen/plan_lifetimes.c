/* Order, aliasing and lifetimes: the last part of plan building. */
#include <string.h>

#include "codegen/plan_build.h"

/* Steps by schedule, order of appearance kept. */
static void sort_steps(moec_plan_tables *t) {
  moec_plan_step *sorted = MOEC_NEW_ARRAY(t->arena, moec_plan_step, t->n_steps + 1);
  size_t n = 0;
  for (uint32_t at = 0; at < MOEC_SCHEDULE_COUNT; at++)
    for (size_t i = 0; i < t->n_steps; i++)
      if (t->steps[i].schedule == at) sorted[n++] = t->steps[i];
  t->steps = sorted;
  t->cap_steps = t->n_steps + 1;
}

static moec_plan_buffer *buffer_of(moec_plan_tables *t, uint32_t tensor) {
  return &t->buffers[t->tensors[tensor].buffer];
}

static void note_use(moec_plan_tables *t, uint32_t tensor, uint32_t step) {
  if (tensor == MOEC_NONE) return;
  moec_plan_buffer *b = buffer_of(t, tensor);
  if (b->first == MOEC_NONE) b->first = step;
  if (step > b->last) b->last = step;
}

/* Steps of the programs, which have lifetimes; LOAD and BIND steps have none. */
static bool of_program(const moec_plan_step *s) { return s->schedule >= MOEC_AT_STEP; }

/* Step indices count within a program. */
static void find_lifetimes(moec_plan_tables *t) {
  uint32_t n[MOEC_SCHEDULE_COUNT] = {0};
  for (size_t i = 0; i < t->n_buffers; i++) t->buffers[i].first = MOEC_NONE, t->buffers[i].last = 0;
  for (size_t i = 0; i < t->n_steps; i++) {
    const moec_plan_step *s = &t->steps[i];
    if (!of_program(s)) continue;
    for (uint32_t k = 0; k < s->n_in + s->n_out; k++) note_use(t, t->pool[s->args + k], n[s->schedule]);
    n[s->schedule]++;
  }
  for (size_t i = 0; i < t->n_moe_layers; i++) { /* routes can be read after the step */
    const moec_plan_moe *layer = &t->moe_layers[i];
    note_use(t, layer->indices, n[layer->schedule]);
    note_use(t, layer->weights, n[layer->schedule]);
    note_use(t, layer->offsets, n[layer->schedule]);
  }
}

/* The operand that a step adds its result to, or MOEC_NONE. */
static uint32_t accumulator(const moec_plan_tables *t, const moec_plan_step *s) {
  if (s->op == MOEC_STEP_GEMM) return t->pool[s->args + 2];
  if (s->op == MOEC_STEP_MOE_COMBINE) return t->pool[s->args + 3];
  return MOEC_NONE;
}

/* y = a*b + c where nobody reads c afterwards: y takes c's buffer and the step adds in place. */
static void alias_accumulators(moec_plan_tables *t) {
  uint32_t n[MOEC_SCHEDULE_COUNT] = {0};
  for (size_t i = 0; i < t->n_steps; i++) {
    const moec_plan_step *s = &t->steps[i];
    if (!of_program(s)) continue;
    uint32_t step = n[s->schedule]++;
    uint32_t c = accumulator(t, s), y = t->pool[s->args + s->n_in];
    if (c != MOEC_NONE) {
      uint32_t from = t->tensors[c].buffer, to = t->tensors[y].buffer;
      bool reads_c_elsewhere = false; /* as another operand of this very step */
      for (uint32_t k = 0; k < s->n_in; k++) {
        uint32_t a = t->pool[s->args + k];
        reads_c_elsewhere |= a != MOEC_NONE && a != c && t->tensors[a].buffer == from;
      }
      moec_plan_buffer *b = &t->buffers[from];
      if (b->kind == MOEC_BUFFER_STEP && b->last == step && !reads_c_elsewhere && t->buffers[to].bytes == b->bytes) {
        b->kind = t->buffers[to].kind; /* an output stays one */
        b->last = t->buffers[to].last;
        for (size_t k = 0; k < t->n_tensors; k++)
          if (t->tensors[k].buffer == to) t->tensors[k].buffer = from;
        t->buffers[to].first = MOEC_NONE;
      }
    }
  }
}

/* Removes buffers no tensor views. */
static void drop_unused_buffers(moec_plan_tables *t) {
  uint32_t *order = MOEC_NEW_ARRAY(t->arena, uint32_t, t->n_buffers + 1), n = 0;
  uint8_t *used = MOEC_NEW_ARRAY(t->arena, uint8_t, t->n_buffers + 1);
  for (size_t i = 0; i < t->n_tensors; i++) used[t->tensors[i].buffer] = 1;
  for (size_t i = 0; i < t->n_buffers; i++)
    if (used[i]) {
      t->buffers[n] = t->buffers[i];
      order[i] = n++;
    }
  t->n_buffers = n;
  for (size_t i = 0; i < t->n_tensors; i++) t->tensors[i].buffer = order[t->tensors[i].buffer];
}

void moec_plan_lifetimes(moec_plan_tables *t) {
  sort_steps(t);
  find_lifetimes(t);
  alias_accumulators(t);
  drop_unused_buffers(t);
}
