/* One step of training on a GPU against golden files, without the test framework: it runs where nothing is installed.
 *   moec-step f32|bf16 EXE WEIGHTS_DIR GOLDEN TEMP_DIR
 * A batch twice, added up and halved, has the gradients of one (to the last bit in f32; attention of cuDNN does not
 * repeat its own); then one step of AdamW: what changed against torch's, f32 within ten times the tolerance of the CPU
 * tests, and the loss after it. One line of results; exit status 1 where something is off by more, 2 for other
 * errors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/safetensors.h"
#include "base/status.h"
#include "base/tensor.h"
#include "include/moec.h"

enum { NAME = 512, LAYERS = 64 };
static const double LR = 0.01; /* of golden */

typedef struct limits {
  const char *name;
  double parts;       /* in relative L2 */
  double delta, loss; /* delta: of every element; INFINITY: of most of them, see below */
} limits;
static const limits all_limits[] = {{"f32", 0, 2e-4, 5e-4}, {"bf16", 1e-2, INFINITY, 5e-2}};

typedef struct step {
  const limits *limits;
  const char *dir;
  moec_safetensors *golden, *before, *after;
  moec_model *m;
  moec_tensor routes[LAYERS];
  uint32_t layers;
  bool bad;
} step;

static moec_status *find(const moec_safetensors *st, const char *prefix, const char *name, const moec_tensor **out) {
  char full[NAME];
  snprintf(full, sizeof full, "%s%s", prefix, name);
  const moec_st_entry *e = moec_safetensors_find(st, full);
  *out = e ? &e->tensor : NULL;
  return e ? NULL : moec_wrong("no tensor %s", full);
}

static double at(const moec_tensor *t, int64_t i) { return moec_load_f64(t->dtype, t->data, (size_t)i); }

static moec_status *give(step *t, const char *name) {
  const moec_tensor *x;
  uint32_t i;
  MOEC_TRY(find(t->golden, "", name, &x));
  MOEC_TRY(moec_find(t->m, MOEC_INPUTS, name, &i));
  moec_view v = {x->data, (int)x->dtype, x->rank, {0}};
  memcpy(v.dims, x->dims, sizeof v.dims);
  return moec_input_copy(t->m, i, &v);
}

/* Golden's routes, by layer: a token that takes another expert would have other gradients. */
static moec_status *force(step *t) {
  for (size_t i = 0; i < moec_safetensors_count(t->golden) && t->layers < LAYERS; i++) {
    const moec_st_entry *e = moec_safetensors_at(t->golden, i);
    moec_tensor *r = &t->routes[t->layers];
    size_t n = strlen(e->name);
    if (strncmp(e->name, "router.", 7) || n < 2 || strcmp(e->name + n - 2, ".2")) continue;
    MOEC_TRY(moec_tensor_init(r, e->tensor.dtype, e->tensor.rank, e->tensor.dims)); /* in the file it is not aligned */
    memcpy(r->data, e->tensor.data, moec_tensor_bytes(r));
    const moec_view v = {r->data, (int)r->dtype, 2, {r->dims[0], r->dims[1]}};
    MOEC_TRY(moec_force_routes(t->m, t->layers++, &v));
  }
  return t->layers ? NULL : moec_wrong("no routes");
}

static moec_status *unforce(step *t) {
  for (uint32_t i = 0; i < t->layers; i++) MOEC_TRY(moec_force_routes(t->m, i, NULL));
  return NULL;
}

/* ---- parts of a batch ------------------------------------------------------------------------ */

static int64_t elements(const moec_view *v) {
  int64_t n = 1;
  for (uint32_t a = 0; a < v->rank; a++) n *= v->dims[a];
  return n;
}

/* All gradients, one behind the other; the caller frees them. */
static moec_status *copy_gradients(step *t, float **out, int64_t *out_n) {
  *out = NULL, *out_n = 0;
  for (uint32_t i = 0; i < moec_count(t->m, MOEC_PARAMETERS); i++) {
    moec_description d;
    moec_view v;
    MOEC_TRY(moec_describe(t->m, MOEC_PARAMETERS, i, &d));
    if (!d.has_gradient) continue;
    MOEC_TRY(moec_gradient(t->m, i, &v));
    float *grown = realloc(*out, (size_t)(*out_n + elements(&v)) * sizeof **out + 1);
    if (!grown) return moec_error(MOEC_OUT_OF_MEMORY, "no memory for gradients");
    memcpy(grown + *out_n, v.data, (size_t)elements(&v) * sizeof **out);
    *out = grown, *out_n += elements(&v);
  }
  return NULL;
}

static moec_status *check_parts(step *t, double *norm) {
  float *whole = NULL, *parts = NULL;
  int64_t n = 0, m = 0;
  double sum = 0, off = 0;
  moec_status *s = copy_gradients(t, &whole, &n);
  if (!s) s = moec_loss_and_gradients(t->m, 0, NULL);
  if (!s) s = moec_loss_and_gradients(t->m, 1, NULL);
  if (!s) s = moec_scale_gradients(t->m, 0.5);
  if (!s) s = copy_gradients(t, &parts, &m);
  for (int64_t i = 0; i < n && !s && n == m; i++) {
    off += pow((double)whole[i] - (double)parts[i], 2);
    sum += (double)whole[i] * (double)whole[i];
  }
  if (!s) printf(" sums of parts off by %.2g;", sqrt(off / sum));
  t->bad = t->bad || !(sqrt(off / sum) <= t->limits->parts) || n != m || !n;
  *norm = sqrt(sum); /* tied parameters twice */
  free(whole);
  free(parts);
  return s;
}

/* ---- the update ------------------------------------------------------------------------------ */

static moec_status *save(step *t, const char *name, moec_safetensors **out) {
  char path[NAME];
  snprintf(path, sizeof path, "%s/%s", t->dir, name);
  MOEC_TRY(moec_save_state(t->m, path));
  return moec_safetensors_open(path, out);
}

static bool is_zero(const moec_tensor *t) {
  int64_t i = 0, n = moec_tensor_numel(t);
  while (i < n && at(t, i) == 0) i++;
  return i == n;
}

/* AdamW divides by the size of the gradient: an element whose gradient is nothing but rounding has a direction of
 * nothing but rounding. With gradients of bf16 the larger ones must go the right way. */
static moec_status *check_delta(step *t, const char *name, const moec_tensor *want, double *worst, int64_t *checked,
                                int64_t *astray) {
  const moec_tensor *g, *before, *after;
  double sum = 0;
  if (is_zero(want)) return NULL; /* no gradient path: no update, not even decay */
  MOEC_TRY(find(t->golden, "grad.", name, &g));
  MOEC_TRY(find(t->before, "parameter.", name, &before));
  MOEC_TRY(find(t->after, "parameter.", name, &after));
  int64_t n = moec_tensor_numel(want);
  if (moec_tensor_numel(before) != n) return moec_wrong("%s: another size", name);
  for (int64_t i = 0; i < n; i++) sum += at(g, i) * at(g, i);
  double rms = sqrt(sum / (double)n);
  for (int64_t i = 0; i < n; i++) {
    double size = fabs(at(g, i)), off = fabs(at(after, i) - at(before, i) - at(want, i));
    bool exact = isfinite(t->limits->delta);
    if (size <= (exact ? 1e-3 : 0.3) * rms || size < 1e-7) continue;
    if (off > *worst) *worst = off;
    *astray += !(off <= (exact ? t->limits->delta : 1e-2 * LR));
    ++*checked;
  }
  return NULL;
}

static moec_status *check_deltas(step *t) {
  double worst = 0;
  int64_t checked = 0, astray = 0;
  for (size_t i = 0; i < moec_safetensors_count(t->golden); i++) {
    const moec_st_entry *e = moec_safetensors_at(t->golden, i);
    if (strncmp(e->name, "adamw_delta.", 12)) continue;
    MOEC_TRY(check_delta(t, e->name + 12, &e->tensor, &worst, &checked, &astray));
  }
  printf(" %lld of %lld updates off, worst by %.2g of the rate;", (long long)astray, (long long)checked, worst / LR);
  t->bad = t->bad || checked < 500 || (double)astray > (isfinite(t->limits->delta) ? 0 : 0.01 * (double)checked);
  return NULL;
}

static moec_status *check_loss(step *t, const char *name) {
  const moec_tensor *want;
  double loss;
  MOEC_TRY(find(t->golden, "", name, &want));
  MOEC_TRY(moec_loss_and_gradients(t->m, 0, &loss));
  printf(" %s off by %.2g;", name, fabs(loss - at(want, 0)));
  t->bad = t->bad || !(fabs(loss - at(want, 0)) <= t->limits->loss);
  return NULL;
}

static moec_status *run(step *t) {
  double norm, sum;
  moec_optimizer o;
  moec_counters c, d;
  MOEC_TRY(give(t, "input_ids"));
  MOEC_TRY(give(t, "labels"));
  MOEC_TRY(force(t));
  MOEC_TRY(check_loss(t, "loss"));
  MOEC_TRY(check_parts(t, &sum));
  MOEC_TRY(save(t, "before", &t->before));
  moec_optimizer_defaults(MOEC_ADAMW, &o);
  o.lr = LR, o.beta2 = 0.95, o.weight_decay = 0.1;
  MOEC_TRY(moec_optimizer_set(t->m, &o));
  MOEC_TRY(moec_clip_gradients(t->m, INFINITY, &norm));
  t->bad = t->bad || !(fabs(norm - sum) <= (1e-5 + t->limits->parts) * sum);
  MOEC_TRY(moec_clip_gradients(t->m, INFINITY, NULL)); /* again, without waiting */
  MOEC_TRY(moec_optimizer_step(t->m));
  MOEC_TRY(save(t, "after", &t->after));
  MOEC_TRY(check_deltas(t));
  MOEC_TRY(unforce(t));
  MOEC_TRY(check_loss(t, "loss_after_adamw"));
  moec_counters_get(t->m, &c);
  MOEC_TRY(moec_optimizer_step(t->m));
  moec_counters_get(t->m, &d);
  printf(" norm %.4g, by hand %.4g", norm, sum);
  t->bad = t->bad || c.allocations != d.allocations;
  return NULL;
}

static moec_status *work(step *t, int argc, char **argv) {
  if (argc != 6)
    return moec_wrong(
        "expected f32 or bf16, an executable, a folder of weights, a golden file and a folder");
  for (size_t i = 0; i < 2; i++) t->limits = strcmp(argv[1], all_limits[i].name) ? t->limits : &all_limits[i];
  if (!t->limits) return moec_wrong("expected f32 or bf16, got %s", argv[1]);
  t->dir = argv[5];
  MOEC_TRY(moec_safetensors_open(argv[4], &t->golden));
  MOEC_TRY(moec_open(argv[2], &(moec_options){.weights_dir = argv[3]}, &t->m));
  return run(t);
}

int main(int argc, char **argv) {
  step t = {0};
  moec_status *s = work(&t, argc, argv);
  printf("%s%s\n", s ? " " : "", s ? moec_status_message(s) : "");
  int status = s ? 2 : t.bad;
  moec_status_free(s);
  moec_close(t.m);
  moec_safetensors_close(t.golden);
  moec_safetensors_close(t.before);
  moec_safetensors_close(t.after);
  for (uint32_t i = 0; i < t.layers; i++) moec_tensor_fini(&t.routes[i]);
  return status;
}
