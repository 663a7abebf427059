/* What a GPU computed against golden files, without the test framework: it runs where nothing is installed.
 *   moec-compare inputs GOLDEN DIR            writes DIR/ids.npy, DIR/labels.npy and DIR/golden-routes.safetensors
 *   moec-compare forward GOLDEN OUT.npy ROUTES.safetensors
 *   moec-compare grad GOLDEN OUT.safetensors
 *   moec-compare bf16 GOLDEN OUT.safetensors  of a bf16 model with golden's routes: logits and gradients in relative L2
 * One line of results; exit status 1 where a difference is above ten times the tolerance of the CPU tests, 2 for other
 * errors. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/safetensors.h"
#include "base/status.h"
#include "base/tensor.h"

typedef struct limits {
  bool relative; /* logits: L2 relative to golden's; else the largest difference */
  double logits, loss, gradient, weight;
} limits;
static const limits f32 = {false, 1e-3, 1e-4, 1e-3, 1e-4}, bf16 = {true, 1.5e-2, INFINITY, 4e-2, INFINITY};

static moec_status *wrong(const char *fmt, ...) MOEC_PRINTF(1, 2);
static moec_status *wrong(const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  moec_status *s = moec_errorv(MOEC_INVALID_ARGUMENT, fmt, args);
  va_end(args);
  return s;
}

static moec_status *find(const moec_safetensors *st, const char *name, const moec_tensor **out) {
  const moec_st_entry *e = moec_safetensors_find(st, name);
  *out = e ? &e->tensor : NULL;
  return e ? NULL : wrong("no tensor %s", name);
}

static double at(const moec_tensor *t, int64_t i) { return moec_load_f64(t->dtype, t->data, (size_t)i); }

static double norm(const moec_tensor *t) {
  double sum = 0;
  for (int64_t i = 0; i < moec_tensor_numel(t); i++) sum += at(t, i) * at(t, i);
  return sqrt(sum);
}

/* Differences of tensors of equal sizes: the largest, and the norm. NaN where a value is. */
static double differ(const moec_tensor *a, const moec_tensor *b, double *out_norm) {
  double most = 0, sum = 0;
  for (int64_t i = 0; i < moec_tensor_numel(a); i++) {
    double d = fabs(at(a, i) - at(b, i));
    if (!(d <= most)) most = d;
    sum += d * d;
    if (isnan(d)) return *out_norm = NAN, NAN;
  }
  *out_norm = sqrt(sum);
  return most;
}

/* ---- routes ------------------------------------------------------------------------------ */

/* Experts of a token in any order, with their weights; the number that are not golden's. */
static int64_t compare_row(const moec_tensor *idx, const moec_tensor *w, const moec_tensor *gold_idx,
                           const moec_tensor *gold_w, int64_t token, double *worst) {
  int64_t k = gold_idx->dims[1], other = 0;
  for (int64_t i = token * k; i < (token + 1) * k; i++) {
    int64_t j = token * k, end = (token + 1) * k;
    while (j < end && at(idx, j) != at(gold_idx, i)) j++;
    if (j == end) other++;
    else *worst = fmax(*worst, fabs(at(w, j) - at(gold_w, i)));
  }
  return other;
}

static moec_status *compare_routes(const limits *l, const moec_safetensors *golden, const moec_safetensors *got,
                                   bool *bad) {
  double worst = 0;
  int64_t other = 0, all = 0;
  int layer = 0;
  for (size_t i = 0; i < moec_safetensors_count(golden); i++) {
    const moec_st_entry *e = moec_safetensors_at(golden, i);
    const moec_tensor *gold_w, *idx, *w;
    char name[256];
    size_t n = strlen(e->name);
    if (strncmp(e->name, "router.", 7) || n < 2 || strcmp(e->name + n - 2, ".2")) continue;
    snprintf(name, sizeof name, "%.*s.1", (int)n - 2, e->name);
    MOEC_TRY(find(golden, name, &gold_w));
    snprintf(name, sizeof name, "route.%d.indices", layer);
    MOEC_TRY(find(got, name, &idx));
    snprintf(name, sizeof name, "route.%d.weights", layer++);
    MOEC_TRY(find(got, name, &w));
    if (moec_tensor_numel(idx) != moec_tensor_numel(&e->tensor)) return wrong("%s: another size", e->name);
    for (int64_t t = 0; t < e->tensor.dims[0]; t++) other += compare_row(idx, w, &e->tensor, gold_w, t, &worst);
    all += moec_tensor_numel(idx);
  }
  printf(" routes: %lld of %lld differ, weights off by %.2g", (long long)other, (long long)all, worst);
  *bad = *bad || other || !all || !(worst <= l->weight);
  return NULL;
}

enum { LAYERS = 64 };

/* What golden's routers chose, as `EXE grad --routes` takes it. */
static moec_status *write_routes(const moec_safetensors *golden, const char *path) {
  moec_tensor tensors[LAYERS];
  char names[LAYERS][40];
  const char *pointers[LAYERS];
  size_t layers = 0;
  for (size_t i = 0; i < moec_safetensors_count(golden) && layers < LAYERS; i++) {
    const moec_st_entry *e = moec_safetensors_at(golden, i);
    size_t n = strlen(e->name);
    if (strncmp(e->name, "router.", 7) || n < 2 || strcmp(e->name + n - 2, ".2")) continue;
    snprintf(names[layers], sizeof names[layers], "route.%zu.indices", layers);
    pointers[layers] = names[layers];
    tensors[layers++] = e->tensor;
  }
  return moec_safetensors_write(path, layers, pointers, tensors);
}

/* ---- the modes --------------------------------------------------------------------------- */

static moec_status *write_inputs(const moec_safetensors *golden, const char *dir) {
  static const char *const files[][2] = {{"input_ids", "ids"}, {"labels", "labels"}};
  char path[4096];
  for (int i = 0; i < 2; i++) {
    const moec_tensor *t;
    MOEC_TRY(find(golden, files[i][0], &t));
    snprintf(path, sizeof path, "%s/%s.npy", dir, files[i][1]);
    MOEC_TRY(moec_npy_write(path, t));
  }
  snprintf(path, sizeof path, "%s/golden-routes.safetensors", dir);
  return write_routes(golden, path);
}

static moec_status *compare_logits(const limits *l, const moec_safetensors *golden, const moec_tensor *got,
                                   bool *bad) {
  const moec_tensor *want;
  double l2;
  MOEC_TRY(find(golden, "logits", &want));
  if (moec_tensor_numel(want) != moec_tensor_numel(got)) return wrong("logits: another size");
  double error = differ(got, want, &l2);
  if (l->relative) error = l2 / norm(want);
  printf(" logits off by %.2g;", error);
  *bad = *bad || !(error <= l->logits);
  return NULL;
}

static moec_status *compare_forward(const moec_safetensors *golden, const char *logits, const char *routes, bool *bad) {
  moec_tensor t;
  moec_safetensors *st;
  MOEC_TRY(moec_npy_read(logits, &t));
  moec_status *s = compare_logits(&f32, golden, &t, bad);
  moec_tensor_fini(&t);
  if (s) return s;
  MOEC_TRY(moec_safetensors_open(routes, &st));
  s = compare_routes(&f32, golden, st, bad);
  moec_safetensors_close(st);
  return s;
}

/* "grad.m.model.x" is the parameter "model.x" of golden. */
static moec_status *gradient_of(const moec_safetensors *golden, const char *name, const moec_tensor **out) {
  char other[256];
  if (strncmp(name, "grad.m.", 7) || moec_safetensors_find(golden, name)) return find(golden, name, out);
  snprintf(other, sizeof other, "grad.%s", name + 7);
  return find(golden, other, out);
}

static moec_status *compare_gradients(const limits *l, const moec_safetensors *golden, const moec_safetensors *got,
                                      bool *bad) {
  double worst = 0, l2;
  size_t n = 0, want_n = 0;
  char where[256] = "none";
  for (size_t i = 0; i < moec_safetensors_count(golden); i++) {
    const char *name = moec_safetensors_at(golden, i)->name;
    want_n += !strncmp(name, "grad.", 5) && strcmp(name, "grad.inputs_embeds");
  }
  for (size_t i = 0; i < moec_safetensors_count(got); i++) {
    const moec_st_entry *e = moec_safetensors_at(got, i);
    const moec_tensor *want;
    if (strncmp(e->name, "grad.", 5)) continue;
    MOEC_TRY(gradient_of(golden, e->name, &want));
    if (moec_tensor_numel(want) != moec_tensor_numel(&e->tensor)) return wrong("%s: another size", e->name);
    (void)differ(&e->tensor, want, &l2);
    double error = norm(want) < 1e-7 ? l2 : l2 / norm(want); /* absolute where golden is about zero */
    n++;
    *bad = *bad || !(error <= l->gradient);
    if (error <= worst || isnan(worst)) continue;
    worst = error;
    snprintf(where, sizeof where, "%s", e->name);
  }
  printf(" %zu of %zu gradients, worst off by %.2g: %s;", n, want_n, worst, where);
  *bad = *bad || !n || n != want_n;
  return NULL;
}

static moec_status *compare_grad(const limits *l, const moec_safetensors *golden, const moec_safetensors *got,
                                 bool *bad) {
  const moec_tensor *loss, *want, *logits;
  MOEC_TRY(find(golden, "loss", &want));
  MOEC_TRY(find(got, "loss", &loss));
  double off = fabs(at(loss, 0) - at(want, 0));
  printf(" loss off by %.2g;", off);
  *bad = *bad || !(off <= l->loss);
  MOEC_TRY(find(got, "output.logits", &logits));
  MOEC_TRY(compare_logits(l, golden, logits, bad));
  MOEC_TRY(compare_gradients(l, golden, got, bad));
  return compare_routes(l, golden, got, bad);
}

static moec_status *work(int argc, char **argv, bool *bad) {
  moec_safetensors *golden, *got;
  const char *mode = argc > 1 ? argv[1] : "";
  int want = !strcmp(mode, "forward") ? 5 : 4;
  if (argc != want) return wrong("expected inputs, forward, grad or bf16 with their files");
  MOEC_TRY(moec_safetensors_open(argv[2], &golden));
  moec_status *s = NULL;
  if (!strcmp(mode, "inputs")) s = write_inputs(golden, argv[3]);
  else if (!strcmp(mode, "forward")) s = compare_forward(golden, argv[3], argv[4], bad);
  else if (strcmp(mode, "grad") && strcmp(mode, "bf16"))
    s = wrong("expected inputs, forward, grad or bf16, got %s", mode);
  else if (!(s = moec_safetensors_open(argv[3], &got))) {
    s = compare_grad(strcmp(mode, "bf16") ? &f32 : &bf16, golden, got, bad);
    moec_safetensors_close(got);
  }
  moec_safetensors_close(golden);
  return s;
}

int main(int argc, char **argv) {
  bool bad = false;
  moec_status *s = work(argc, argv, &bad);
  if (s) printf(" %s", moec_status_message(s));
  if (s || argc < 2 || strcmp(argv[1], "inputs")) putchar('\n');
  int status = s ? 2 : bad;
  moec_status_free(s);
  return status;
}
