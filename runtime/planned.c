/* What a session that runs one program in the bound sizes has in its device's memory, worked out before any of it is
 * allocated: for each block the formula of its owner. */
#include "runtime/model.h"

static uint64_t sum(const uint64_t *parts, size_t n) {
  uint64_t all = 0;
  for (size_t i = 0; i < n; i++)
    if (__builtin_add_overflow(all, parts[i], &all)) return UINT64_MAX;
  return all;
}

/* The largest of what the schedules that run work in. */
static moec_rt_need need_of(const moec_model *m, const moec_rt_placement *program) {
  const moec_rt_need all[] = {m->fixed->of[MOEC_AT_LOAD].need, m->bound->of[MOEC_AT_BIND].need, program->need};
  moec_rt_need most = {0};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    if (all[i].thread > most.thread) most.thread = all[i].thread;
    if (all[i].shared > most.shared) most.shared = all[i].shared;
  }
  return most;
}

uint64_t moec_rt_planned_bytes(const moec_model *m, moec_schedule program) {
  const moec_rt_placement *x = &m->bound->of[program];
  bool in_host = m->device->in_host, trains = program != MOEC_AT_STEP;
  if (!x->ready) return 0;
  const moec_rt_need need = need_of(m, x);
  const uint64_t parts[] = {
      in_host ? m->params.copies.size + m->params.mapped_bytes : m->device_params.size,
      m->fixed->of[MOEC_AT_LOAD].bytes,
      m->bound->of[MOEC_AT_BIND].bytes,
      x->bytes,
      moec_rt_scratch_bytes(m, &need),
      in_host ? 0 : moec_rt_copies_input_bytes(m, program), /* in the host's they are the caller's */
      m->device->own ? m->device->own(m) : 0,
      trains ? m->train.grad_bytes : 0,
      trains ? moec_rt_part_bytes(m, program) : 0,
  };
  return sum(parts, sizeof parts / sizeof *parts);
}
