/* include/moec.h: the state of training in a file. Names of its tensors:
 *   moec.model          u8 [32]   which model it belongs to
 *   moec.optimizer      f64 [8]   the fields of moec_optimizer in order; kind -1: none was chosen
 *   progress.step       i64 [1]
 *   progress.rng        u64 [2]
 *   parameter.NAME      f32
 *   updates.NAME        i64 [1]   of this parameter
 *   first.NAME, second.NAME   f32: moments, where there are any
 * NAME: of every parameter that is trained, the first one of tied ones. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/safetensors.h"
#include "runtime/model.h"
#include "runtime/pieces.h"

enum { FIXED = 4, PER_LEAF = 4, OPTIONS = 8, NAME = 1024 };

/* ---- which model ------------------------------------------------------------------------- */

/* Another compilation of the same model with the same weights has the same identity, whatever its
 * options; the order of parameters does not matter. */
static void identity(const moec_model *m, uint8_t out[32]) {
  const moec_rt_plan *p = &m->plan;
  uint64_t sum[4] = {p->n_params, p->n_files, 0, 0};
  for (uint32_t i = 0; i < p->n_params; i++) {
    const char *name = moec_rt_str(p, p->params[i].name);
    const moec_plan_tensor *t = &p->tensors[p->params[i].tensor];
    uint64_t h = moec_hash(MOEC_HASH_SEED, name, strlen(name) + 1);
    for (uint32_t a = 0; a < t->rank; a++) {
      h = moec_hash(h, &p->static_values[p->pool[t->dims + a]], sizeof(int64_t));
    }
    sum[2] += h;
  }
  for (uint32_t i = 0; i < p->n_files; i++) {
    const char *name = moec_rt_str(p, p->files[i].name);
    uint64_t h = moec_hash(MOEC_HASH_SEED, name, strlen(name) + 1);
    sum[3] += moec_hash(h, p->files[i].sha256, sizeof p->files[i].sha256);
  }
  for (uint32_t i = 0; i < p->n_pieces; i++) { /* another seed is another model */
    if (p->pieces[i].file != MOEC_NONE && moec_rt_piece_made(&m->params, &p->pieces[i]))
      sum[3] += moec_hash(MOEC_HASH_SEED, &p->pieces[i].offset, sizeof p->pieces[i].offset);
  }
  moec_sha256(sum, sizeof sum, out);
}

/* ---- saving ------------------------------------------------------------------------------ */

/* Where the data of a tensor comes from. */
typedef struct source {
  const moec_rt_leaf *leaf; /* NULL: the tensor has its data */
  const float *at;          /* a moment, in the device's memory; NULL: the leaf's values */
} source;

typedef struct table {
  const moec_model *m;
  size_t n;
  char (*names)[NAME];
  moec_tensor *tensors;
  source *sources;
  float *room; /* of the host, for one tensor of a leaf */
  uint8_t model[32];
  double options[OPTIONS];
} table;

static void to_options(const moec_rt_train *t, double out[OPTIONS]) {
  const moec_optimizer *o = &t->optimizer;
  const double all[OPTIONS] = {t->chosen ? (double)o->kind : -1,
                               o->lr,
                               o->weight_decay,
                               (double)o->decay_matrices_only,
                               o->beta1,
                               o->beta2,
                               o->eps,
                               o->momentum};
  memcpy(out, all, sizeof all);
}

static void from_options(const double in[OPTIONS], moec_optimizer *out) {
  *out = (moec_optimizer){.kind = in[0] == 1 ? MOEC_SGD : MOEC_ADAMW,
                          .lr = in[1],
                          .weight_decay = in[2],
                          .decay_matrices_only = in[3] != 0,
                          .beta1 = in[4],
                          .beta2 = in[5],
                          .eps = in[6],
                          .momentum = in[7]};
}

static void put(table *t, const char *prefix, const char *name, moec_dtype type, uint32_t rank,
                const int64_t *dims, const void *data) {
  moec_tensor *x = &t->tensors[t->n];
  snprintf(t->names[t->n++], NAME, "%s%s", prefix, name);
  *x = (moec_tensor){.dtype = type, .rank = rank, .data = (void *)(uintptr_t)data};
  memcpy(x->dims, dims, rank * sizeof *dims);
}

static void put_leaf(table *t, const moec_rt_leaf *l, const char *prefix, const float *at) {
  const moec_rt_plan *p = &t->m->plan;
  moec_tensor v;
  t->sources[t->n] = (source){l, at};
  moec_rt_tensor_view(t->m, t->m->fixed, p->params[l->param].tensor, &v);
  put(t, prefix, moec_rt_str(p, p->params[l->param].name), MOEC_F32, v.rank, v.dims, NULL);
}

static void fill(table *t) {
  const moec_rt_train *x = &t->m->train;
  const int64_t one = 1, two = 2, bytes = sizeof t->model, options = OPTIONS;
  identity(t->m, t->model);
  to_options(x, t->options);
  put(t, "", "moec.model", MOEC_U8, 1, &bytes, t->model);
  put(t, "", "moec.optimizer", MOEC_F64, 1, &options, t->options);
  put(t, "", "progress.step", MOEC_I64, 1, &one, &x->step);
  put(t, "", "progress.rng", MOEC_U64, 1, &two, x->rng);
  for (uint32_t k = 0; k < x->n; k++) {
    const moec_rt_leaf *l = &x->leaves[k];
    put_leaf(t, l, "parameter.", NULL);
    put(t, "updates.", moec_rt_str(&t->m->plan, t->m->plan.params[l->param].name), MOEC_I64, 1,
        &one, &l->updates);
    if (l->first) put_leaf(t, l, "first.", l->first);
    if (l->second) put_leaf(t, l, "second.", l->second);
  }
}

static moec_status *data_of(void *ctx, size_t i, const void **out) {
  const table *t = ctx;
  const source *x = &t->sources[i];
  *out = x->leaf ? t->room : t->tensors[i].data;
  if (!x->leaf) return NULL;
  if (!x->at) return moec_rt_leaf_values(t->m, x->leaf, t->room);
  moec_model *m = (moec_model *)(uintptr_t)t->m;
  return m->device->read(m, t->room, x->at, (uint64_t)x->leaf->n * sizeof(float));
}

static moec_status *write(const char *path, table *t) {
  const char **names = calloc(t->n, sizeof *names);
  if (!names) return moec_error(MOEC_OUT_OF_MEMORY, "no memory for the state");
  for (size_t i = 0; i < t->n; i++) names[i] = t->names[i];
  moec_status *s = moec_safetensors_write_each(path, t->n, names, t->tensors, data_of, t);
  free(names);
  return s;
}

moec_status *moec_save_state(const moec_model *m, const char *path) {
  MOEC_TRY(moec_rt_need_training(m));
  MOEC_TRY(moec_rt_check_norm((moec_model *)(uintptr_t)m));
  size_t leaves = m->train.n, most = FIXED + PER_LEAF * leaves;
  int64_t largest = 1;
  for (size_t k = 0; k < leaves; k++) largest = m->train.leaves[k].n > largest ? m->train.leaves[k].n : largest;
  table t = {.m = m};
  t.names = calloc(most, sizeof *t.names);
  t.tensors = calloc(most, sizeof *t.tensors);
  t.sources = calloc(most, sizeof *t.sources);
  t.room = malloc((size_t)largest * sizeof *t.room);
  moec_status *s = NULL;
  if (!t.names || !t.tensors || !t.sources || !t.room)
    s = moec_error(MOEC_OUT_OF_MEMORY, "no memory for the state");
  if (!s) fill(&t);
  if (!s) s = write(path, &t);
  void *const blocks[] = {t.names, t.tensors, t.sources, t.room};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) free(blocks[i]);
  return moec_context(s, "state of training");
}

/* ---- loading ----------------------------------------------------------------------------- */

static moec_status *bad(const char *fmt, ...) MOEC_PRINTF(1, 2);
static moec_status *bad(const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  moec_status *s = moec_errorv(MOEC_INVALID_MODEL, fmt, args);
  va_end(args);
  return s;
}

/* The tensor |prefix||name|, of this type and shape. */
static moec_status *get(const moec_safetensors *st, const char *prefix, const char *name,
                        moec_dtype type, uint32_t rank, const int64_t *dims, const void **out) {
  char full[NAME], want[MOEC_RT_SHAPE_TEXT], got[MOEC_RT_SHAPE_TEXT];
  snprintf(full, sizeof full, "%s%s", prefix, name);
  const moec_st_entry *e = moec_safetensors_find(st, full);
  if (!e) return bad("expected a tensor %s, got none", full);
  const moec_tensor *t = &e->tensor;
  bool same = t->dtype == type && t->rank == rank;
  for (uint32_t a = 0; same && a < rank; a++) same = t->dims[a] == dims[a];
  *out = t->data;
  if (same) return NULL;
  return bad("tensor %s: expected %s, got %s", full,
             moec_rt_shape_text(type, rank, dims, want, sizeof want),
             moec_rt_shape_text(t->dtype, t->rank, t->dims, got, sizeof got));
}

/* What a file says, checked; tensors are borrowed from it. Data in files is not aligned. */
typedef struct loaded {
  double options[OPTIONS];
  int64_t step;
  uint64_t rng[2];
  const void **values; /* by leaf: values, updates, first and second moments */
} loaded;

enum { VALUES, UPDATES, FIRST, SECOND };

static moec_status *get_fixed(const moec_model *m, const moec_safetensors *st, loaded *x) {
  const int64_t one = 1, two = 2, bytes = 32, options = OPTIONS;
  const void *at;
  uint8_t want[32];
  identity(m, want);
  MOEC_TRY(get(st, "", "moec.model", MOEC_U8, 1, &bytes, &at));
  if (memcmp(at, want, sizeof want)) {
    return bad("expected the state of this model, compiled from the same weights, got another's");
  }
  MOEC_TRY(get(st, "", "moec.optimizer", MOEC_F64, 1, &options, &at));
  memcpy(x->options, at, sizeof x->options);
  MOEC_TRY(get(st, "", "progress.step", MOEC_I64, 1, &one, &at));
  memcpy(&x->step, at, sizeof x->step);
  MOEC_TRY(get(st, "", "progress.rng", MOEC_U64, 1, &two, &at));
  memcpy(x->rng, at, sizeof x->rng);
  double kind = x->options[0];
  if ((kind == -1 || kind == MOEC_ADAMW || kind == MOEC_SGD) && x->step >= 0) return NULL;
  return bad("expected an optimizer and a step, got %g and %" PRId64, kind, x->step);
}

static moec_status *get_leaf(const moec_model *m, const moec_safetensors *st, uint32_t k,
                             loaded *x) {
  const moec_rt_plan *p = &m->plan;
  const moec_plan_param *param = &p->params[m->train.leaves[k].param];
  const char *name = moec_rt_str(p, param->name);
  static const char *const moments[] = {"first.", "second."};
  const void **at = &x->values[PER_LEAF * k];
  const int64_t one = 1;
  moec_tensor v;
  moec_rt_tensor_view(m, m->fixed, param->tensor, &v);
  MOEC_TRY(get(st, "parameter.", name, MOEC_F32, v.rank, v.dims, &at[VALUES]));
  MOEC_TRY(get(st, "updates.", name, MOEC_I64, 1, &one, &at[UPDATES]));
  for (int i = 0; i < 2; i++) {
    char full[NAME];
    snprintf(full, sizeof full, "%s%s", moments[i], name);
    if (!moec_safetensors_find(st, full)) continue;
    MOEC_TRY(get(st, moments[i], name, MOEC_F32, v.rank, v.dims, &at[FIRST + i]));
  }
  bool adamw = x->options[0] == MOEC_ADAMW && x->step;
  bool sgd = x->options[0] == MOEC_SGD && x->step && x->options[7] != 0;
  if (!at[FIRST] == !(adamw || sgd) && !at[SECOND] == !adamw) return NULL;
  return bad("parameter %s: expected the moments of its optimizer, got others", name);
}

/* The optimizer the file goes with: the caller's with the file's learning rate, or the file's. */
static moec_status *choose(const moec_model *m, const loaded *x, moec_optimizer *out) {
  const moec_rt_train *t = &m->train;
  moec_optimizer o;
  from_options(x->options, &o);
  *out = t->chosen ? t->optimizer : o;
  if (out->kind != o.kind || (o.kind == MOEC_SGD && (out->momentum != 0) != (o.momentum != 0))) {
    return moec_error(MOEC_INVALID_ARGUMENT, "expected a state of optimizer %d, got one of %d",
                      (int)out->kind, (int)o.kind);
  }
  out->lr = o.lr;
  return NULL;
}

/* Moments that the file has not are zero: it was made before the first step. */
static moec_status *copy(moec_model *m, const moec_rt_leaf *l, float *to, const void *from) {
  uint64_t bytes = (uint64_t)l->n * sizeof *to;
  if (!to) return NULL;
  return from ? m->device->write(m, to, from, bytes) : m->device->fill(m, to, 0, bytes);
}

static moec_status *take(moec_model *m, const loaded *x) {
  moec_rt_train *t = &m->train;
  bool chosen = x->options[0] >= 0;
  moec_optimizer o = t->optimizer;
  if (chosen) MOEC_TRY(choose(m, x, &o));
  MOEC_TRY(moec_rt_masters_make(m));
  if (chosen && x->step) MOEC_TRY(moec_rt_moments_make(m, &o));
  for (uint32_t k = 0; k < t->n; k++) {
    moec_rt_leaf *l = &t->leaves[k];
    const void *const *at = &x->values[PER_LEAF * k];
    MOEC_TRY(copy(m, l, l->master, at[VALUES]));
    MOEC_TRY(copy(m, l, l->first, at[FIRST]));
    MOEC_TRY(copy(m, l, l->second, at[SECOND]));
    memcpy(&l->updates, at[UPDATES], sizeof l->updates);
  }
  t->optimizer = o;
  t->chosen = t->chosen || chosen;
  t->step = x->step;
  memcpy(t->rng, x->rng, sizeof t->rng);
  MOEC_TRY(moec_rt_gradients_forget(m));
  return moec_rt_masters_apply(m);
}

static moec_status *load(moec_model *m, const moec_safetensors *st, loaded *x) {
  x->values = calloc(PER_LEAF * ((size_t)m->train.n + 1), sizeof *x->values);
  if (!x->values) return moec_error(MOEC_OUT_OF_MEMORY, "no memory for the state");
  MOEC_TRY(get_fixed(m, st, x));
  for (uint32_t k = 0; k < m->train.n; k++) MOEC_TRY(get_leaf(m, st, k, x));
  return take(m, x);
}

moec_status *moec_load_state(moec_model *m, const char *path) {
  moec_safetensors *st;
  loaded x = {0};
  MOEC_TRY(moec_rt_need_training(m));
  if (!m->device->train) return moec_error(MOEC_UNSUPPORTED, "expected a model that was opened to be run");
  MOEC_TRY(moec_safetensors_open(path, &st));
  moec_status *s = load(m, st, &x);
  free(x.values);
  moec_safetensors_close(st);
  return moec_context(s, "%s", path);
}
