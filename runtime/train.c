/* What of a plan is trained, and running the programs that compute gradients. */
#include <math.h>
#include <string.h>

#include "runtime/model.h"

/* ---- leaves ------------------------------------------------------------------------------ */

static uint32_t weight_of(const moec_rt_plan *p, uint32_t param) {
  return p->tensors[p->params[param].tensor].buffer;
}

/* The leaf whose storage parameter |i| shares, or MOEC_NONE. */
static uint32_t shared_leaf(const moec_model *m, uint32_t i) {
  const moec_rt_plan *p = &m->plan;
  const moec_rt_train *t = &m->train;
  for (uint32_t k = 0; p->params[i].tie && k < t->n; k++) {
    const moec_rt_leaf *l = &t->leaves[k];
    if (p->params[l->param].tie != p->params[i].tie) continue;
    if (m->buffers[l->weight] == m->buffers[weight_of(p, i)]) return k;
  }
  return MOEC_NONE;
}

/* Tied parameters that do not share their storage would drift apart. */
static moec_status *check_ties(const moec_model *m, uint32_t i) {
  const moec_rt_plan *p = &m->plan;
  for (uint32_t k = 0; p->params[i].tie && k < m->train.n; k++) {
    const moec_plan_param *o = &p->params[m->train.leaves[k].param];
    if (o->tie != p->params[i].tie) continue;
    return moec_error(MOEC_UNSUPPORTED, "training: expected tied parameters of one shape, got %s and %s of two",
                      moec_rt_str(p, o->name), moec_rt_str(p, p->params[i].name));
  }
  return NULL;
}

static moec_status *add_leaf(moec_model *m, uint32_t i) {
  const moec_rt_plan *p = &m->plan;
  moec_rt_train *t = &m->train;
  MOEC_TRY(check_ties(m, i));
  moec_rt_leaf *l = &t->leaves[t->n];
  *l = (moec_rt_leaf){.param = i, .weight = weight_of(p, i), .decay = NAN};
  l->grad = p->tensors[p->params[i].grad].buffer;
  l->type = (moec_dtype)p->tensors[p->params[i].grad].dtype;
  l->n = p->static_values[p->buffers[l->grad].bytes] / (int64_t)moec_dtype_get(l->type)->bytes;
  l->offset = t->float_bytes;
  uint64_t bytes = moec_rt_array((uint64_t)l->n, sizeof(float));
  if (bytes > PTRDIFF_MAX || __builtin_add_overflow(t->float_bytes, moec_rt_rounded(bytes), &t->float_bytes))
    return moec_rt_no_memory("gradients", UINT64_MAX);
  t->leaf_of[i] = t->n++;
  return NULL;
}

/* Parameters with a gradient first: what they are tied to may have none of its own. */
static moec_status *find_leaves(moec_model *m) {
  const moec_rt_plan *p = &m->plan;
  moec_rt_train *t = &m->train;
  for (uint32_t i = 0; i < p->n_params; i++) {
    t->leaf_of[i] = MOEC_NONE;
    if (p->params[i].grad == MOEC_NONE || !p->params[i].trainable) continue;
    t->leaf_of[i] = shared_leaf(m, i);
    if (t->leaf_of[i] == MOEC_NONE) MOEC_TRY(add_leaf(m, i));
  }
  for (uint32_t i = 0; i < p->n_params; i++) {
    if (t->leaf_of[i] == MOEC_NONE) t->leaf_of[i] = shared_leaf(m, i);
    if (t->leaf_of[i] == MOEC_NONE || p->params[i].grad == MOEC_NONE) continue;
    t->leaves[t->leaf_of[i]].programs |= p->written[p->tensors[p->params[i].grad].buffer];
  }
  return NULL;
}

static moec_status *place_gradients(moec_model *m) {
  const moec_rt_plan *p = &m->plan;
  uint64_t at = 0;
  for (uint32_t b = 0; b < p->n_buffers; b++) {
    if (p->buffers[b].kind != MOEC_BUFFER_GRAD) continue;
    m->train.offset[b] = at;
    uint64_t bytes = (uint64_t)p->static_values[p->buffers[b].bytes];
    if (__builtin_add_overflow(at, moec_rt_rounded(bytes), &at)) {
      return moec_rt_no_memory("gradients", UINT64_MAX);
    }
  }
  m->train.grad_bytes = at;
  return NULL;
}

static bool reads_any(const moec_rt_plan *p, const moec_plan_step *s, const uint8_t *marks) {
  for (uint32_t k = 0; k < s->n_in; k++) {
    uint32_t t = p->pool[s->args + k];
    if (t != MOEC_NONE && marks[p->tensors[t].buffer]) return true;
  }
  return false;
}

/* Steps before the programs that an update makes stale. */
static void find_derived(const moec_model *m, uint8_t *marks) {
  const moec_rt_plan *p = &m->plan;
  for (uint32_t i = 0; i < p->n_params; i++) {
    if (m->train.leaf_of[i] != MOEC_NONE) marks[weight_of(p, i)] = 1;
  }
  for (uint32_t i = 0; i < p->schedule_begin[MOEC_AT_STEP]; i++) {
    const moec_plan_step *s = &p->steps[i];
    if (!reads_any(p, s, marks)) continue;
    m->train.derived[i] = 1;
    for (uint32_t k = s->n_in; k < s->n_in + s->n_out; k++) {
      uint32_t t = p->pool[s->args + k];
      if (t != MOEC_NONE) marks[p->tensors[t].buffer] = 1;
    }
  }
}

moec_status *moec_rt_train_init(moec_model *m) {
  moec_rt_train *t = &m->train;
  moec_rt_memory *mem = &m->memory;
  uint8_t *marks;
  MOEC_TRY(MOEC_RT_NEW(mem, t->leaves, m->plan.n_params, "training"));
  MOEC_TRY(MOEC_RT_NEW(mem, t->leaf_of, m->plan.n_params, "training"));
  MOEC_TRY(MOEC_RT_NEW(mem, t->offset, m->plan.n_buffers, "training"));
  MOEC_TRY(MOEC_RT_NEW(mem, t->derived, m->plan.n_steps, "training"));
  MOEC_TRY(find_leaves(m));
  MOEC_TRY(place_gradients(m));
  MOEC_TRY(MOEC_RT_NEW(mem, t->next, t->n, "training"));
  MOEC_TRY(MOEC_RT_NEW(mem, marks, m->plan.n_buffers, "training"));
  find_derived(m, marks);
  moec_rt_free(mem, marks);
  return NULL;
}

void moec_rt_train_fini(moec_model *m) {
  moec_rt_memory *mem = &m->memory;
  moec_rt_train *t = &m->train;
  moec_rt_arena *const arenas[] = {&t->grads, &t->sums, &t->weights, &t->moments, &t->chunks, &t->scalars};
  for (size_t i = 0; i < sizeof arenas / sizeof *arenas; i++) moec_rt_device_release(m, arenas[i]);
  moec_rt_arena_fini(mem, &t->lent);
  moec_rt_arena_fini(mem, &t->copies);
  void *const blocks[] = {t->leaves, t->leaf_of, t->offset, t->derived, t->next};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) moec_rt_free(mem, blocks[i]);
  *t = (moec_rt_train){0};
}

int moec_has_program(const moec_model *m, moec_program program) {
  if ((unsigned)program >= MOEC_PROGRAM_COUNT) return 0;
  uint32_t s = (uint32_t)MOEC_AT_STEP + (uint32_t)program;
  return program == MOEC_FORWARD || m->plan.schedule_begin[s + 1] > m->plan.schedule_begin[s];
}

moec_status *moec_rt_untrained(void) {
  return moec_error(
      MOEC_INVALID_ARGUMENT,
      "this model was compiled without --train: it has no gradients and no optimizer");
}

moec_status *moec_rt_need_training(const moec_model *m) {
  bool any = moec_has_program(m, MOEC_TRAIN) || moec_has_program(m, MOEC_VJP);
  return any ? NULL : moec_rt_untrained();
}

/* ---- running ----------------------------------------------------------------------------- */

/* |b|, which |program| may have written, is (a part of) the gradient of |l|. */
static moec_status *take_part(moec_model *m, moec_rt_leaf *l, uint32_t b, moec_schedule program) {
  moec_rt_train *t = &m->train;
  if (!(m->plan.written[b] >> program & 1)) return NULL;
  if (!l->has_grad) {
    l->at = m->buffers[b], l->at_type = l->type, l->has_grad = true;
    return NULL;
  }
  if (l->at_type != MOEC_F32) { /* sums are f32 */
    MOEC_TRY(moec_rt_device_reserve(m, &t->sums, t->float_bytes, "sums of gradients"));
    float *to = (void *)(t->sums.data + l->offset);
    MOEC_TRY(m->device->train->add(m, to, false, l->at_type, l->at, NULL, l->n));
    l->at = to, l->at_type = MOEC_F32;
  }
  return m->device->train->add(m, l->at, true, l->type, m->buffers[b], NULL, l->n);
}

/* What |program| wrote becomes the leaf's gradient, or is added to it: its own, and those that the plan keeps apart
 * though their parameters are tied. */
static moec_status *take(moec_model *m, uint32_t k, moec_schedule program) {
  const moec_rt_plan *p = &m->plan;
  moec_rt_leaf *l = &m->train.leaves[k];
  MOEC_TRY(take_part(m, l, l->grad, program));
  for (uint32_t i = l->param + 1; p->params[l->param].tie && i < p->n_params; i++) {
    if (m->train.leaf_of[i] != k || p->params[i].grad == MOEC_NONE) continue;
    uint32_t b = p->tensors[p->params[i].grad].buffer;
    if (b != l->grad) MOEC_TRY(take_part(m, l, b, program));
  }
  return NULL;
}

uint64_t moec_rt_part_bytes(const moec_model *m, uint32_t program) {
  const moec_rt_plan *p = &m->plan;
  for (uint32_t k = 0; k < m->train.n; k++) {
    const moec_rt_leaf *l = &m->train.leaves[k];
    uint32_t parts = p->written[l->grad] >> program & 1;
    for (uint32_t i = l->param + 1; p->params[l->param].tie && i < p->n_params; i++) {
      if (m->train.leaf_of[i] != k || p->params[i].grad == MOEC_NONE) continue;
      uint32_t b = p->tensors[p->params[i].grad].buffer;
      parts += b != l->grad && p->written[b] >> program & 1;
    }
    if (parts > 1 && l->type != MOEC_F32) return m->train.float_bytes;
  }
  return 0;
}

static void forget(moec_rt_train *t) {
  t->pending = t->scaled = t->is_lent = false;
  for (uint32_t k = 0; k < t->n; k++) t->leaves[k].has_grad = false;
}

/* Room for what programs write. */
static moec_status *make_room(moec_model *m) {
  moec_rt_train *t = &m->train;
  MOEC_TRY(moec_rt_device_reserve(m, &t->grads, t->grad_bytes, "gradients"));
  for (uint32_t b = 0; b < m->plan.n_buffers; b++) {
    if (m->plan.buffers[b].kind == MOEC_BUFFER_GRAD) m->buffers[b] = t->grads.data + t->offset[b];
  }
  return NULL;
}

static moec_status *run(moec_model *m, moec_schedule program, bool accumulate) {
  moec_rt_train *t = &m->train;
  if (accumulate && t->pending) MOEC_TRY(moec_rt_gradients_sum(m));
  else forget(t);
  MOEC_TRY(make_room(m));
  MOEC_TRY(moec_rt_run_program(m, program));
  for (uint32_t k = 0; k < t->n; k++) MOEC_TRY(take(m, k, program));
  t->pending = true;
  t->backwards++;
  return moec_rt_check_norm(m);
}

static moec_status *read_loss(const moec_model *m, double *loss) {
  for (uint32_t i = 0; i < m->n_outs; i++) {
    uint32_t k = m->outs[i].at[MOEC_AT_TRAIN];
    if (k == MOEC_NONE || strcmp(m->outs[i].name, "loss")) continue;
    moec_tensor t;
    MOEC_TRY(moec_rt_host_view(m, m->bound, m->plan.outputs[k].tensor, &t));
    if (!moec_dtype_is_float(t.dtype) || moec_tensor_numel(&t) != 1) break;
    *loss = moec_load_f64(t.dtype, t.data, 0);
    return NULL;
  }
  return moec_error(MOEC_INVALID_MODEL, "expected an output \"loss\" of one float, got none");
}

moec_status *moec_loss_and_gradients(moec_model *m, int accumulate, double *loss) {
  if (!moec_has_program(m, MOEC_TRAIN)) return moec_rt_untrained();
  MOEC_TRY(run(m, MOEC_AT_TRAIN, accumulate != 0));
  return loss ? read_loss(m, loss) : NULL;
}

moec_status *moec_vjp(moec_model *m, int accumulate) {
  if (!moec_has_program(m, MOEC_VJP)) return moec_rt_untrained();
  return run(m, MOEC_AT_VJP, accumulate != 0);
}
