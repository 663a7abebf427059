/* include/moec.h: AdamW and SGD: their settings, and what they do with each parameter. Elements are updated by the
 * device. */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>

#include "runtime/model.h"

/* ---- options ----------------------------------------------------------------------------- */

void moec_optimizer_defaults(moec_optimizer_kind kind, moec_optimizer *out) {
  *out = (moec_optimizer){.kind = kind, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
  if (kind == MOEC_ADAMW) out->weight_decay = 0.01;
}

static const struct {
  const char *name;
  size_t offset;
  double low, below;
} ranges[] = {
    {"lr", offsetof(moec_optimizer, lr), 0, INFINITY},
    {"weight_decay", offsetof(moec_optimizer, weight_decay), 0, INFINITY},
    {"beta1", offsetof(moec_optimizer, beta1), 0, 1},
    {"beta2", offsetof(moec_optimizer, beta2), 0, 1},
    {"eps", offsetof(moec_optimizer, eps), 0, INFINITY},
    {"momentum", offsetof(moec_optimizer, momentum), 0, INFINITY},
};

moec_status *moec_optimizer_set(moec_model *m, const moec_optimizer *o) {
  moec_rt_train *t = &m->train;
  MOEC_TRY(moec_rt_need_training(m));
  if (o->kind != MOEC_ADAMW && o->kind != MOEC_SGD) {
    return moec_wrong("optimizer: expected kind %d or %d, got %d", (int)MOEC_ADAMW, (int)MOEC_SGD,
                      (int)o->kind);
  }
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
    double v = *(const double *)(const void *)((const char *)o + ranges[i].offset);
    if (v >= ranges[i].low && v < ranges[i].below) continue;
    return moec_wrong("optimizer: %s: expected at least %g and below %g, got %g", ranges[i].name,
                      ranges[i].low, ranges[i].below, v);
  }
  if (t->step && (o->kind != t->optimizer.kind ||
                  (o->kind == MOEC_SGD && (o->momentum != 0) != (t->optimizer.momentum != 0)))) {
    return moec_wrong("optimizer: expected the kind that made the first %" PRId64
                      " steps, whose moments there are, got another",
                      t->step);
  }
  t->optimizer = *o;
  t->chosen = true;
  return NULL;
}

static moec_status *need_optimizer(const moec_model *m) {
  MOEC_TRY(moec_rt_need_training(m));
  return m->train.chosen ? NULL
                         : moec_wrong("expected moec_optimizer_set() first, got no optimizer");
}

moec_status *moec_optimizer_set_lr(moec_model *m, double lr) {
  MOEC_TRY(need_optimizer(m));
  moec_optimizer o = m->train.optimizer;
  o.lr = lr;
  return moec_optimizer_set(m, &o);
}

moec_status *moec_optimizer_set_decay(moec_model *m, uint32_t i, double weight_decay) {
  MOEC_TRY(moec_rt_need_training(m));
  if (i >= m->plan.n_params) {
    return moec_wrong("parameter: expected an index below %u, got %u", m->plan.n_params, i);
  }
  if (!(weight_decay >= 0 && weight_decay < INFINITY)) {
    return moec_wrong("weight_decay: expected at least 0, got %g", weight_decay);
  }
  uint32_t k = m->train.leaf_of[i];
  if (k == MOEC_NONE) {
    return moec_wrong("parameter \"%s\": it is not trained",
                      moec_rt_str(&m->plan, m->plan.params[i].name));
  }
  m->train.leaves[k].decay = weight_decay;
  return NULL;
}

static double decay_of(const moec_model *m, const moec_rt_leaf *l) {
  const moec_optimizer *o = &m->train.optimizer;
  if (!isnan(l->decay)) return l->decay;
  uint32_t rank = m->plan.tensors[m->plan.params[l->param].tensor].rank;
  return o->decay_matrices_only && rank < 2 ? 0 : o->weight_decay;
}

/* ---- updates ----------------------------------------------------------------------------- */

/* What the next update of |l| has of its own, worked out in f64. */
static moec_cuda_update scalars_of(const moec_model *m, const moec_rt_leaf *l) {
  const moec_optimizer *o = &m->train.optimizer;
  double decay = decay_of(m, l), step = (double)l->updates + 1;
  moec_cuda_update u = {.lr = (float)o->lr,
                        .decay = (float)decay,
                        .momentum = l->updates ? (float)o->momentum : 0};
  if (o->kind != MOEC_ADAMW) return u;
  u.keep = (float)(1 - o->lr * decay);
  u.beta2 = (float)o->beta2, u.eps = (float)o->eps;
  u.grow1 = (float)(1 - o->beta1), u.grow2 = (float)(1 - o->beta2);
  u.lr = (float)(o->lr / (1 - pow(o->beta1, step)));
  u.root = (float)(1 / sqrt(1 - pow(o->beta2, step)));
  return u;
}

static moec_status *update_leaf(moec_model *m, uint32_t k) {
  const moec_rt_train *t = &m->train;
  const moec_rt_leaf *l = &t->leaves[k];
  const uint8_t *by = t->scalars.data + sizeof(moec_cuda_scale) + k * sizeof(moec_cuda_update);
  const moec_rt_update u = {.adamw = t->optimizer.kind == MOEC_ADAMW,
                            .w = l->master,
                            .first = l->first,
                            .second = l->second,
                            .g = l->at,
                            .g_type = l->at_type,
                            .copy = l->type == MOEC_F32 ? NULL : m->buffers[l->weight],
                            .copy_type = l->type,
                            .n = l->n,
                            .by = (const void *)by,
                            .scale = moec_rt_scale(m)};
  return m->device->train->update(m, &u);
}

moec_status *moec_optimizer_step(moec_model *m) {
  moec_rt_train *t = &m->train;
  bool any = false;
  MOEC_TRY(need_optimizer(m));
  for (uint32_t k = 0; k < t->n; k++) any = any || t->leaves[k].has_grad;
  if (!any) return moec_wrong("expected gradients to be computed before an update, got none");
  MOEC_TRY(moec_rt_gradients_return(m));
  MOEC_TRY(moec_rt_masters_make(m));
  MOEC_TRY(moec_rt_moments_make(m, &t->optimizer));
  MOEC_TRY(moec_rt_scalars_make(m));
  for (uint32_t k = 0; k < t->n; k++) t->next[k] = scalars_of(m, &t->leaves[k]);
  MOEC_TRY(m->device->write(m, t->scalars.data + sizeof(moec_cuda_scale), t->next, t->n * sizeof *t->next));
  for (uint32_t k = 0; k < t->n; k++) {
    if (!t->leaves[k].has_grad) continue;
    MOEC_TRY(update_leaf(m, k));
    t->leaves[k].updates++;
  }
  t->step++;
  t->updates++;
  t->pending = t->is_copied = false;
  return moec_rt_derive(m);
}

/* ---- progress ---------------------------------------------------------------------------- */

moec_status *moec_progress_get(const moec_model *m, moec_progress *out) {
  *out = (moec_progress){0};
  MOEC_TRY(moec_rt_need_training(m));
  const moec_rt_train *t = &m->train;
  *out = (moec_progress){t->step, t->optimizer.lr, {t->rng[0], t->rng[1]}};
  return NULL;
}

moec_status *moec_progress_set_rng(moec_model *m, const uint64_t rng[2]) {
  MOEC_TRY(moec_rt_need_training(m));
  m->train.rng[0] = rng[0];
  m->train.rng[1] = rng[1];
  return NULL;
}
