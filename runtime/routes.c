/* include/moec.h: what MoE layers decided, and deciding for them. */
#include <inttypes.h>
#include <string.h>

#include "runtime/model.h"

/* ---- reading ----------------------------------------------------------------------------- */

/* Layer |n| of |program|, NULL where it has fewer; counts them in *count. */
static const moec_plan_moe *find(const moec_rt_plan *p, uint32_t program, uint32_t n,
                                 uint32_t *count) {
  const moec_plan_moe *found = NULL;
  uint32_t k = 0;
  for (uint32_t i = 0; i < p->n_moe_layers; i++) {
    if (p->moe_layers[i].schedule != program) continue;
    if (k++ == n) found = &p->moe_layers[i];
  }
  if (count) *count = k;
  return found;
}

static uint32_t latest(const moec_model *m) {
  return m->ran == MOEC_SCHEDULE_COUNT ? (uint32_t)MOEC_AT_STEP : (uint32_t)m->ran;
}

uint32_t moec_route_count(const moec_model *m) {
  uint32_t n;
  find(&m->plan, latest(m), 0, &n);
  return n;
}

static moec_status *layer_of(const moec_model *m, uint32_t program, uint32_t layer,
                             const moec_plan_moe **out) {
  uint32_t n;
  *out = find(&m->plan, program, layer, &n);
  return *out ? NULL : moec_wrong("MoE layer: expected an index below %u, got %u", n, layer);
}

static moec_status *view_optional(const moec_model *m, uint32_t tensor, moec_view *out) {
  moec_tensor t;
  if (tensor == MOEC_NONE) return NULL;
  MOEC_TRY(moec_rt_host_view(m, m->bound, tensor, &t));
  *out = (moec_view){.data = t.data, .dtype = (int)t.dtype, .rank = t.rank};
  memcpy(out->dims, t.dims, sizeof out->dims);
  return NULL;
}

moec_status *moec_route(const moec_model *m, uint32_t layer, moec_layer_routes *out) {
  const moec_plan_moe *l;
  *out = (moec_layer_routes){0};
  MOEC_TRY(layer_of(m, latest(m), layer, &l));
  if (m->ran == MOEC_SCHEDULE_COUNT) {
    return moec_wrong("expected a step for these sizes before its results are read");
  }
  out->name = moec_rt_str(&m->plan, l->name);
  out->experts = l->experts;
  MOEC_TRY(view_optional(m, l->indices, &out->indices));
  MOEC_TRY(view_optional(m, l->weights, &out->weights));
  return view_optional(m, l->offsets, &out->offsets);
}

/* ---- forcing ----------------------------------------------------------------------------- */

moec_status *moec_rt_run_forced(moec_model *m, const moec_rt_call *c, const moec_tensor *indices) {
  const moec_tensor *out = moec_rt_out(c, 0);
  if (indices->dims[0] != out->dims[0] || indices->dims[1] != out->dims[1]) {
    char want[MOEC_RT_SHAPE_TEXT], got[MOEC_RT_SHAPE_TEXT];
    return moec_rt_op_error(
        c, MOEC_INVALID_ARGUMENT, "expected routes %s, got %s",
        moec_rt_shape_text(out->dtype, out->rank, out->dims, want, sizeof want),
        moec_rt_shape_text(indices->dtype, indices->rank, indices->dims, got, sizeof got));
  }
  return m->device->write(m, out->data, indices->data, moec_tensor_bytes(out));
}

/* The step of |l|'s program that chooses its experts. */
static moec_status *chooser(const moec_rt_plan *p, const moec_plan_moe *l, uint32_t layer,
                            uint32_t *out) {
  uint32_t i = p->schedule_begin[l->schedule], end = p->schedule_begin[l->schedule + 1];
  for (; l->indices != MOEC_NONE && i < end; i++) {
    const moec_plan_step *s = &p->steps[i];
    if (s->op != MOEC_STEP_MOE_SELECT) continue;
    if (p->tensors[p->pool[s->args + 1]].buffer != p->tensors[l->indices].buffer) continue;
    *out = i;
    return NULL;
  }
  return moec_wrong(
      "MoE layer %u, %s: its experts are not chosen by a moe.select: cannot force them", layer,
      moec_rt_str(p, l->name));
}

static moec_status *check_row(const int64_t *row, uint32_t layer, int64_t token, int64_t k,
                              int64_t experts) {
  for (int64_t j = 0; j < k; j++) {
    if (row[j] < 0 || row[j] >= experts) {
      return moec_wrong("MoE layer %u: token %" PRId64 ", choice %" PRId64
                        ": expected an expert below %" PRId64 ", got %" PRId64,
                        layer, token, j, experts, row[j]);
    }
    for (int64_t i = 0; i < j; i++) {
      if (row[i] != row[j]) continue;
      return moec_wrong("MoE layer %u: token %" PRId64
                        ": expected experts that differ, got %" PRId64 " twice",
                        layer, token, row[j]);
    }
  }
  return NULL;
}

static moec_status *check_indices(const moec_view *v, uint32_t layer, const moec_plan_moe *l) {
  if (v->dtype != MOEC_DTYPE_I64 || v->rank != 2 || v->dims[1] != (int64_t)l->k || v->dims[0] < 0 ||
      (!v->data && v->dims[0])) {
    return moec_wrong("MoE layer %u: expected indices i64 [tokens, %u], got another shape or type",
                      layer, l->k);
  }
  const int64_t *row = v->data;
  for (int64_t t = 0; t < v->dims[0]; t++) {
    MOEC_TRY(check_row(row + t * v->dims[1], layer, t, v->dims[1], l->experts));
  }
  return NULL;
}

moec_status *moec_force_routes(moec_model *m, uint32_t layer, const moec_view *indices) {
  const moec_rt_plan *p = &m->plan;
  uint32_t steps[MOEC_SCHEDULE_COUNT], n = 0;
  for (uint32_t s = MOEC_AT_STEP; s < MOEC_SCHEDULE_COUNT; s++) {
    const moec_plan_moe *l;
    if (!moec_has_program(m, (moec_program)(s - MOEC_AT_STEP))) continue;
    MOEC_TRY(layer_of(m, s, layer, &l));
    MOEC_TRY(chooser(p, l, layer, &steps[n++]));
    if (indices) MOEC_TRY(check_indices(indices, layer, l));
  }
  if (!m->forced) MOEC_TRY(MOEC_RT_NEW(&m->memory, m->forced, p->n_steps, "routes"));
  moec_tensor t = {0};
  if (indices) {
    t = (moec_tensor){.dtype = MOEC_I64, .rank = 2, .data = indices->data};
    t.dims[0] = indices->dims[0], t.dims[1] = indices->dims[1];
  }
  for (uint32_t i = 0; i < n; i++) m->forced[steps[i]] = t;
  return NULL;
}
