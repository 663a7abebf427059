/* Inputs and outputs as the user sees them: programs that have one of the same name share it. */
#include <string.h>

#include "runtime/model.h"

enum { MOST = 4096 }; /* names are compared with each other */

static moec_rt_io *find(moec_rt_io *list, uint32_t n, const char *name) {
  for (uint32_t i = 0; i < n; i++) {
    if (!strcmp(list[i].name, name)) return &list[i];
  }
  return NULL;
}

/* The same name means the same thing: its type must be the same too. */
static moec_status *check_shared(const moec_rt_plan *p, const moec_rt_record *r,
                                 const moec_plan_io *ios, const moec_rt_io *x, uint32_t i) {
  const moec_plan_tensor *t = &p->tensors[ios[i].tensor];
  if (x->at[ios[i].schedule] != MOEC_NONE) {
    return moec_rt_bad(r, "expected a name of its own, got '%s' again", x->name);
  }
  for (uint32_t s = 0; s < MOEC_SCHEDULE_COUNT; s++) {
    if (x->at[s] == MOEC_NONE) continue;
    const moec_plan_tensor *o = &p->tensors[ios[x->at[s]].tensor];
    if (o->dtype != t->dtype || o->rank != t->rank)
      return moec_rt_bad(r, "'%s': expected %s of rank %u as in another program, got %s of rank %u", x->name,
                         moec_dtype_get((moec_dtype)o->dtype)->text, o->rank,
                         moec_dtype_get((moec_dtype)t->dtype)->text, t->rank);
    const moec_plan_io *a = &ios[x->at[s]], *b = &ios[i];
    if (a->has_default != b->has_default || a->dflt != b->dflt)
      return moec_rt_bad(r, "'%s': expected the default of another program, %g (%s), got %g (%s)", x->name, a->dflt,
                         a->has_default ? "used" : "unused", b->dflt, b->has_default ? "used" : "unused");
  }
  return NULL;
}

static moec_status *collect(const moec_rt_plan *p, const char *section, const moec_plan_io *ios,
                            uint32_t n, moec_rt_io *list, uint32_t *out_n) {
  for (uint32_t i = 0; i < n; i++) {
    const moec_rt_record r = {p, section, i};
    const char *name = moec_rt_str(p, ios[i].name);
    moec_rt_io *x = find(list, *out_n, name);
    if (x) {
      MOEC_TRY(check_shared(p, &r, ios, x, i));
    } else {
      x = &list[(*out_n)++];
      x->name = name;
      for (uint32_t s = 0; s < MOEC_SCHEDULE_COUNT; s++) x->at[s] = MOEC_NONE;
    }
    x->at[ios[i].schedule] = i;
  }
  return NULL;
}

moec_status *moec_rt_io_init(moec_model *m) {
  const moec_rt_plan *p = &m->plan;
  if (p->n_inputs > MOST || p->n_outputs > MOST) {
    return moec_error(MOEC_INVALID_MODEL, "expected at most %d inputs and outputs, got %u and %u",
                      (int)MOST, p->n_inputs, p->n_outputs);
  }
  MOEC_TRY(MOEC_RT_NEW(&m->memory, m->ins, p->n_inputs, "model"));
  MOEC_TRY(MOEC_RT_NEW(&m->memory, m->outs, p->n_outputs, "model"));
  MOEC_TRY(collect(p, "input", p->inputs, p->n_inputs, m->ins, &m->n_ins));
  return collect(p, "output", p->outputs, p->n_outputs, m->outs, &m->n_outs);
}
