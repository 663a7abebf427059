/* What a GPU computed against golden files, without the test framework: it runs where nothing is installed.
 *   moec-compare inputs GOLDEN DIR            writes DIR/ids.npy, DIR/labels.npy and DIR/golden-routes.safetensors
 *   moec-compare forward GOLDEN OUT.npy ROUTES.safetensors
 *   moec-compare grad GOLDEN OUT.safetensors
 *   moec-compare bf16 GOLDEN OUT.safetensors TORCH.txt
 *                                             of a bf16 model with golden's routes: logits and gradients, relative L2,
 *                                             within 1.5e-2 and 4e-2, and 1.3 times what torch's bf16 is off by
 * One line of results; exit status 1 where a difference is above ten times the tolerance of the CPU tests, or above
 * those of bf16, 2 for other errors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/safetensors.h"
#include "base/status.h"
#include "base/tensor.h"

typedef struct limits {
  bool relative; /* logits: L2 relative to golden's; else the largest difference */
  double logits, loss, gradient, median, weight; /* gradient: of each, median: of all of them */
} limits;
static const limits f32 = {false, 1e-3, 1e-4, 1e-3, 1e-3, 1e-4}, bf16 = {true, 1.5e-2, INFINITY, 4e-2, 4e-2, INFINITY};

static moec_status *find(const moec_safetensors *st, const char *name, const moec_tensor **out) {
  const moec_st_entry *e = moec_safetensors_find(st, name);
  *out = e ? &e->tensor : NULL;
  return e ? NULL : moec_wrong("no tensor %s", name);
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
    if (moec_tensor_numel(idx) != moec_tensor_numel(&e->tensor))
      return moec_wrong("%s: another size", e->name);
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
  if (moec_tensor_numel(want) != moec_tensor_numel(got)) return moec_wrong("logits: another size");
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

static int by_size(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}

/* "grad.m.model.x" is the parameter "model.x" of golden. */
static moec_status *gradient_of(const moec_safetensors *golden, const char *name, const moec_tensor **out) {
  char other[256];
  if (strncmp(name, "grad.m.", 7) || moec_safetensors_find(golden, name)) return find(golden, name, out);
  snprintf(other, sizeof other, "grad.%s", name + 7);
  return find(golden, other, out);
}

static size_t count_gradients(const moec_safetensors *golden) {
  size_t n = 0;
  for (size_t i = 0; i < moec_safetensors_count(golden); i++) {
    const char *name = moec_safetensors_at(golden, i)->name;
    n += !strncmp(name, "grad.", 5) && strcmp(name, "grad.inputs_embeds");
  }
  return n;
}

/* Relative to golden's, or absolute where that is about zero. */
static moec_status *gradient_error(const moec_safetensors *golden, const moec_st_entry *got,
                                   double *out) {
  const moec_tensor *want;
  double l2;
  MOEC_TRY(gradient_of(golden, got->name, &want));
  if (moec_tensor_numel(want) != moec_tensor_numel(&got->tensor))
    return moec_wrong("%s: another size", got->name);
  (void)differ(&got->tensor, want, &l2);
  double size = norm(want);
  *out = size < 1e-7 ? l2 : l2 / size;
  return NULL;
}

/* errors[i]: of the i-th gradient of |got|, how many there are, and the name of the worst. */
static moec_status *collect_errors(const moec_safetensors *golden, const moec_safetensors *got, double *errors,
                                   size_t *out_n, const char **out_worst) {
  double worst = 0;
  *out_n = 0, *out_worst = "none";
  for (size_t i = 0; i < moec_safetensors_count(got); i++) {
    const moec_st_entry *e = moec_safetensors_at(got, i);
    double error = NAN;
    if (strncmp(e->name, "grad.", 5)) continue;
    MOEC_TRY(gradient_error(golden, e, &error));
    errors[(*out_n)++] = error;
    if (error <= worst || isnan(worst)) continue;
    worst = error;
    *out_worst = e->name;
  }
  return NULL;
}

static moec_status *compare_gradients(const limits *l, const moec_safetensors *golden, const moec_safetensors *got,
                                      bool *bad) {
  size_t n, want_n = count_gradients(golden);
  const char *where;
  double *errors = calloc(moec_safetensors_count(got) + 1, sizeof *errors);
  if (!errors) return moec_error(MOEC_OUT_OF_MEMORY, "no memory for errors");
  moec_status *s = collect_errors(golden, got, errors, &n, &where);
  *bad = *bad || !n || n != want_n;
  for (size_t i = 0; i < n; i++) *bad = *bad || !(errors[i] <= l->gradient); /* NaN too */
  qsort(errors, n, sizeof *errors, by_size);
  *bad = *bad || !(errors[n / 2] <= l->median);
  printf(" %zu of %zu gradients, median off by %.2g, worst by %.2g: %s;", n, want_n, errors[n / 2],
         errors[n ? n - 1 : 0], where);
  free(errors);
  return s;
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

/* The limits of bf16, lowered to 1.3 times what torch's is off by. */
static moec_status *read_limits(const char *path, limits *out) {
  const struct {
    const char *name;
    double *to;
  } rows[] = {{"logits", &out->logits}, {"median", &out->median}, {"worst", &out->gradient}};
  FILE *f = fopen(path, "r");
  size_t n = 0;
  char name[32];
  double value;
  *out = bf16;
  if (!f) return moec_wrong("%s: cannot be read", path);
  while (n < 3 && fscanf(f, "%31s %lf", name, &value) == 2 && !strcmp(name, rows[n].name)) {
    *rows[n].to = fmin(*rows[n].to, 1.3 * value);
    n++;
  }
  fclose(f);
  return n == 3 ? NULL : moec_wrong("%s: expected logits, median and worst", path);
}

static moec_status *compare_file(const char *mode, int argc, char **argv, const moec_safetensors *golden,
                                 bool *bad) {
  limits l = f32;
  moec_safetensors *got;
  if (!strcmp(mode, "bf16")) MOEC_TRY(read_limits(argv[argc - 1], &l));
  MOEC_TRY(moec_safetensors_open(argv[3], &got));
  moec_status *s = compare_grad(&l, golden, got, bad);
  moec_safetensors_close(got);
  return s;
}

static moec_status *work(int argc, char **argv, bool *bad) {
  static const struct {
    const char *mode;
    int argc;
  } modes[] = {{"inputs", 4}, {"forward", 5}, {"grad", 4}, {"bf16", 5}};
  moec_safetensors *golden;
  size_t k = 0;
  while (k < 4 && (argc < 2 || strcmp(argv[1], modes[k].mode))) k++;
  if (k == 4 || argc != modes[k].argc)
    return moec_wrong("expected inputs, forward, grad or bf16 with their files");
  MOEC_TRY(moec_safetensors_open(argv[2], &golden));
  moec_status *s;
  if (k == 0) s = write_inputs(golden, argv[3]);
  else if (k == 1) s = compare_forward(golden, argv[3], argv[4], bad);
  else s = compare_file(argv[1], argc, argv, golden, bad);
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
