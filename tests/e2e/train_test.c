/* Training whole models through include/moec.h: against what transformers and torch computed, the loss, one AdamW
 * step and the loss after it; batches against their parts; routes of every kind; then the weights as transformers
 * would load them again. */
#include "tests/support/run.h"

#include "include/moec.h"

static const char *const families[] = {"qwen3_moe", "mixtral",    "deepseek_v2", "deepseek_v3",
                                       "gpt_oss",   "minimax_m3", "qwen3_5_moe"};
enum { N_FAMILIES = sizeof families / sizeof *families };

static const double LR = 0.01; /* of golden */

typedef struct run {
  const char *family;
  char *dir;
  moec_safetensors *golden;
  moec_model *m;
} run;

/* A model as it was compiled; the caller closes the one before. */
static moec_status *reopen(run *r) {
  char path[256], source[256];
  snprintf(source, sizeof source, "tests/data/%s", r->family);
  return moec_open(unit_path(path, r->dir, "exe"), &(moec_options){.weights_dir = source}, &r->m);
}

static run start(const char *family) {
  char path[512], source[256];
  run r = {.dir = unit_folder(), .family = family};
  snprintf(source, sizeof source, "tests/data/%s", family);
  RUN_OK(r.dir,
         "$MOEC import %s -o %s/model.onnx && $MOEC compile %s/model.onnx -o %s/exe --weights %s --target cpu"
         " --train",
         source, r.dir, r.dir, r.dir, source);
  snprintf(path, sizeof path, "%s/golden.safetensors", source);
  UNIT_OK(moec_safetensors_open(path, &r.golden));
  UNIT_OK(reopen(&r));
  return r;
}

static void stop(run *r) {
  moec_close(r->m);
  moec_safetensors_close(r->golden);
  unit_remove(r->dir);
}

static const moec_tensor *golden(const run *r, const char *name) {
  const moec_st_entry *e = moec_safetensors_find(r->golden, name);
  ck_assert_msg(e != NULL, "the golden results have no %s", name);
  return &e->tensor;
}

static void give_as(const run *r, const char *name, const moec_tensor *t) {
  uint32_t i;
  moec_view v = {t->data, (int)t->dtype, t->rank, {0}};
  memcpy(v.dims, t->dims, sizeof v.dims);
  UNIT_OK(moec_find(r->m, MOEC_INPUTS, name, &i));
  UNIT_OK(moec_input_copy(r->m, i, &v));
}

static void give(const run *r, const char *name) { give_as(r, name, golden(r, name)); }

static double loss(const run *r) {
  double x;
  UNIT_OK(moec_loss_and_gradients(r->m, 0, &x));
  return x;
}

static void check_loss(const run *r, const char *name, double got, double tolerance) {
  double want = moec_load_f64(golden(r, name)->dtype, golden(r, name)->data, 0);
  printf("%s: expected %.7f, got %.7f\n", name, want, got);
  ck_assert_msg(fabs(got - want) <= tolerance, "%s: expected %.7f, got %.7f", name, want, got);
}

static moec_view parameter(const run *r, const char *name) {
  moec_view v;
  uint32_t i;
  UNIT_OK(moec_find(r->m, MOEC_PARAMETERS, name, &i));
  UNIT_OK(moec_parameter(r->m, i, &v));
  return v;
}

/* Copies of all parameters, or of all gradients; n is 0 where a parameter has none. */
typedef struct snapshot {
  uint32_t n;
  struct {
    float *values;
    int64_t n;
  } *of;
} snapshot;

static snapshot take(const moec_model *m, bool gradients) {
  snapshot s = {.n = moec_count(m, MOEC_PARAMETERS)};
  s.of = calloc(s.n, sizeof *s.of);
  for (uint32_t i = 0; i < s.n; i++) {
    moec_description d;
    moec_view v;
    UNIT_OK(moec_describe(m, MOEC_PARAMETERS, i, &d));
    if (gradients && !d.has_gradient) continue;
    UNIT_OK(gradients ? moec_gradient(m, i, &v) : moec_parameter(m, i, &v));
    s.of[i].n = 1;
    for (uint32_t a = 0; a < v.rank; a++) s.of[i].n *= v.dims[a];
    s.of[i].values = malloc((size_t)s.of[i].n * sizeof(float) + 1);
    memcpy(s.of[i].values, v.data, (size_t)s.of[i].n * sizeof(float));
  }
  return s;
}

static void drop(snapshot *s) {
  for (uint32_t i = 0; i < s->n; i++) free(s->of[i].values);
  free(s->of);
}

/* The weights as they are now, saved, imported and compiled again, give the same logits to the last bit. */
static void check_saved(const run *r) {
  char path[256];
  uint32_t i;
  moec_view v;
  moec_tensor logits;
  UNIT_OK(moec_save_weights(r->m, unit_path(path, r->dir, "out")));
  UNIT_OK(moec_npy_write(unit_path(path, r->dir, "ids.npy"), golden(r, "input_ids")));
  RUN_OK(r->dir,
         "cd %s && $MOEC import out -o m.onnx && $MOEC compile m.onnx -o again --weights out --target cpu &&"
         " ./again run --weights out --input input_ids=ids.npy --output logits=l.npy",
         r->dir);
  UNIT_OK(moec_npy_read(unit_path(path, r->dir, "l.npy"), &logits));
  UNIT_OK(moec_forward(r->m));
  UNIT_OK(moec_find(r->m, MOEC_OUTPUTS, "logits", &i));
  UNIT_OK(moec_output(r->m, i, &v));
  UNIT_TRUE(!memcmp(v.data, logits.data, moec_tensor_bytes(&logits)));
  UNIT_TRUE(max_abs_diff(golden(r, "logits"), &logits) > 1e-3); /* it did change */
  moec_tensor_fini(&logits);
}

static double rms_of(const moec_tensor *t) {
  double sum = 0;
  int64_t n = moec_tensor_numel(t);
  for (int64_t k = 0; k < n; k++) sum += pow(moec_load_f64(t->dtype, t->data, (size_t)k), 2);
  return sqrt(sum / (double)n);
}

/* AdamW divides by the size of the gradient: an element whose gradient is nothing but rounding has a direction of
 * nothing but rounding. */
static size_t check_deltas(const run *r, const snapshot *before) {
  size_t checked = 0;
  for (uint32_t i = 0; i < before->n; i++) {
    char name[256];
    moec_description d;
    UNIT_OK(moec_describe(r->m, MOEC_PARAMETERS, i, &d));
    snprintf(name, sizeof name, "adamw_delta.%s", d.name);
    const moec_st_entry *e = moec_safetensors_find(r->golden, name);
    if (!e) continue;
    snprintf(name, sizeof name, "grad.%s", d.name);
    const moec_tensor *g = golden(r, name);
    const float *after = parameter(r, d.name).data;
    int64_t n = moec_tensor_numel(&e->tensor);
    double rms = rms_of(g);
    for (int64_t k = 0; k < n; k++) {
      double want = moec_load_f64(MOEC_F32, e->tensor.data, (size_t)k),
             size = fabs(moec_load_f64(MOEC_F32, g->data, (size_t)k));
      double got = (double)after[k] - (double)before->of[i].values[k];
      if (size <= 1e-3 * rms || size < 1e-7) continue;
      ck_assert_msg(fabs(got - want) < 2e-3 * LR, "%s[%d]: expected %g, got %g, gradient %g", d.name, (int)k, want,
                    got, size);
      checked++;
    }
  }
  return checked;
}

static void one_step_of_adamw(run *r) {
  moec_optimizer o;
  give(r, "input_ids");
  give(r, "labels");
  check_loss(r, "loss", loss(r), 1e-5);
  snapshot before = take(r->m, false);
  moec_optimizer_defaults(MOEC_ADAMW, &o);
  o.lr = LR, o.beta2 = 0.95, o.weight_decay = 0.1;
  UNIT_OK(moec_optimizer_set(r->m, &o));
  UNIT_OK(moec_optimizer_step(r->m));
  ck_assert_uint_gt(check_deltas(r, &before), 500);
  check_loss(r, "loss_after_adamw", loss(r), 5e-5);
  drop(&before);
}

/* A learning rate of 1 moves every parameter by its gradient: an update that a parameter does not get, or that what
 * is derived from it does not see, cannot hide. */
static void one_step_of_sgd(run *r) {
  moec_optimizer o;
  moec_model *first = r->m;
  UNIT_OK(reopen(r));
  give(r, "input_ids");
  give(r, "labels");
  double old = loss(r);
  snapshot before = take(r->m, false), gradients = take(r->m, true);
  moec_optimizer_defaults(MOEC_SGD, &o);
  o.lr = 1;
  UNIT_OK(moec_optimizer_set(r->m, &o));
  UNIT_OK(moec_optimizer_step(r->m));
  snapshot after = take(r->m, false);
  for (uint32_t i = 0; i < before.n; i++) {
    for (int64_t k = 0; k < gradients.of[i].n; k++) {
      float want = before.of[i].values[k] - gradients.of[i].values[k];
      UNIT_TRUE(after.of[i].values[k] == want);
    }
  }
  double now = loss(r);
  ck_assert_msg(fabs(now - old) > 1e-3, "the loss was %g and is %g", old, now);
  drop(&before), drop(&gradients), drop(&after);
  moec_close(r->m);
  r->m = first;
}

/* ---- batches that are taken apart ------------------------------------------------------------------- */

/* Row |row| of |prefix|input_ids and labels, its first |length| tokens, as a batch of one. */
static double one_row(const run *r, const char *prefix, int64_t row, int64_t length, snapshot *gradients,
                      double *labels) {
  const char *const names[] = {"input_ids", "labels"};
  *labels = 0;
  for (int i = 0; i < 2; i++) {
    char name[64];
    snprintf(name, sizeof name, "%s%s", i ? prefix : "", names[i]);
    const moec_tensor *t = golden(r, name);
    const int64_t *from = (const int64_t *)t->data + row * t->dims[1];
    give_as(r, names[i], &(moec_tensor){MOEC_I64, 2, {1, length}, (void *)(uintptr_t)from});
    for (int64_t k = 1; i && k < length; k++) *labels += from[k] != -100;
  }
  double x = loss(r);
  *gradients = take(r->m, true);
  return x;
}

/* The loss and the gradients of a batch of two are the mean of those of its rows, by labels. Rows run with their own
 * number of tokens to each expert, and |lengths| leaves padding out. */
static void check_rows(const run *r, const char *prefix, const int64_t lengths[2], double whole_loss) {
  snapshot whole = take(r->m, true), rows[2];
  double labels[2], losses[2];
  for (int i = 0; i < 2; i++) losses[i] = one_row(r, prefix, i, lengths[i], &rows[i], &labels[i]);
  double a = labels[0] / (labels[0] + labels[1]), b = 1 - a;
  ck_assert(a > 0 && b > 0);
  ck_assert_msg(fabs(a * losses[0] + b * losses[1] - whole_loss) < 1e-5, "rows: %g and %g, both: %g", losses[0],
                losses[1], whole_loss);
  for (uint32_t i = 0; i < whole.n; i++) {
    double off = 0, size = 0;
    for (int64_t k = 0; k < whole.of[i].n; k++) {
      double want = a * (double)rows[0].of[i].values[k] + b * (double)rows[1].of[i].values[k];
      off += pow((double)whole.of[i].values[k] - want, 2);
      size += want * want;
    }
    moec_description d;
    UNIT_OK(moec_describe(r->m, MOEC_PARAMETERS, i, &d));
    ck_assert_msg(sqrt(off) <= 1e-4 * sqrt(size) + 1e-7, "%s%s: off by %g of %g", prefix, d.name, sqrt(off),
                  sqrt(size));
  }
  drop(&whole), drop(&rows[0]), drop(&rows[1]);
}

/* A masked batch is its rows without their padding. */
static void padding(const run *r) {
  const moec_tensor *mask = golden(r, "masked.attention_mask");
  int64_t lengths[2] = {0, 0};
  uint32_t i;
  for (int64_t k = 0; k < moec_tensor_numel(mask); k++) lengths[k / mask->dims[1]] += ((const int64_t *)mask->data)[k];
  ck_assert(lengths[1] < mask->dims[1]);
  give(r, "input_ids");
  give_as(r, "labels", golden(r, "masked.labels"));
  give_as(r, "attention_mask", mask);
  double x = loss(r);
  check_loss(r, "masked.loss", x, 1e-5);
  UNIT_OK(moec_find(r->m, MOEC_INPUTS, "attention_mask", &i));
  UNIT_OK(moec_input_omit(r->m, i));
  check_rows(r, "masked.", lengths, x);
}

/* All tokens go to the first experts; the others get none, and no gradient. */
static void skewed_routes(const run *r) {
  enum { TOKENS = 32, MOST = 8 };
  static int64_t first[MOST][TOKENS][MOST];
  uint32_t layers = moec_route_count(r->m);
  give(r, "input_ids");
  give(r, "labels");
  loss(r);
  for (uint32_t l = 0; l < layers; l++) {
    moec_layer_routes route;
    UNIT_OK(moec_route(r->m, l, &route));
    int64_t k = route.indices.dims[1];
    ck_assert(layers <= MOST && k <= MOST && route.indices.dims[0] == TOKENS);
    for (int64_t t = 0; t < TOKENS * k; t++) ((int64_t *)first[l])[t] = t % k;
    UNIT_OK(moec_force_routes(r->m, l, &(moec_view){first[l], MOEC_DTYPE_I64, 2, {TOKENS, k}}));
  }
  ck_assert(isfinite(loss(r)));
  for (uint32_t i = 0; i < moec_count(r->m, MOEC_PARAMETERS); i++) {
    moec_description d;
    moec_view g;
    moec_layer_routes route;
    UNIT_OK(moec_describe(r->m, MOEC_PARAMETERS, i, &d));
    if (!d.expert || !d.has_gradient) continue;
    UNIT_OK(moec_route(r->m, 0, &route));
    UNIT_OK(moec_gradient(r->m, i, &g));
    int64_t n = 1, k = route.indices.dims[1];
    for (uint32_t x = 1; x < g.rank; x++) n *= g.dims[x];
    ck_assert_int_lt(k, g.dims[0]);
    for (int64_t e = 0; e < g.dims[0]; e++) {
      double sum = 0;
      for (int64_t x = 0; x < n; x++) sum += fabs((double)((const float *)g.data)[e * n + x]);
      ck_assert_msg((sum > 0) == (e < k), "%s: expert %d has a gradient of %g", d.name, (int)e, sum);
    }
  }
  for (uint32_t l = 0; l < layers; l++) UNIT_OK(moec_force_routes(r->m, l, NULL));
}

static void no_valid_label(const run *r) {
  int64_t none[32];
  for (int i = 0; i < 32; i++) none[i] = -100;
  give(r, "input_ids");
  give_as(r, "labels", &(moec_tensor){MOEC_I64, 2, {2, 16}, none});
  ck_assert(loss(r) == 0);
  snapshot g = take(r->m, true);
  for (uint32_t i = 0; i < g.n; i++)
    for (int64_t k = 0; k < g.of[i].n; k++) UNIT_TRUE(g.of[i].values[k] == 0);
  drop(&g);
}

/* From the gradient of the first position's logits: what comes later has no part in it, so a batch of one token and
 * a longer one give the same. (Queries and keys have no part in it either: there is one key. Theirs is rounding.) */
static void one_token(const run *r) {
  snapshot of[2];
  size_t large = 0;
  int64_t vocabulary = golden(r, "logits")->dims[2];
  float *dy = calloc((size_t)(8 * vocabulary), sizeof *dy);
  for (int64_t i = 0; i < vocabulary; i++) dy[i] = (float)sin((double)i);
  for (int i = 0; i < 2; i++) {
    int64_t length = i ? 8 : 1;
    give_as(r, "input_ids", &(moec_tensor){MOEC_I64, 2, {1, length}, golden(r, "input_ids")->data});
    give_as(r, "grad.logits", &(moec_tensor){MOEC_F32, 3, {1, length, vocabulary}, dy});
    UNIT_OK(moec_vjp(r->m, 0));
    of[i] = take(r->m, true);
  }
  for (uint32_t i = 0; i < of[0].n; i++) {
    double off = 0, size = 0;
    for (int64_t k = 0; k < of[0].of[i].n; k++) {
      off += pow((double)of[0].of[i].values[k] - (double)of[1].of[i].values[k], 2);
      size += pow((double)of[0].of[i].values[k], 2);
    }
    ck_assert_msg(sqrt(off) <= 1e-4 * sqrt(size) + 2e-5, "parameter %u: off by %g of %g", i, sqrt(off), sqrt(size));
    large += size > 0.01;
  }
  ck_assert_uint_gt(large, of[0].n / 2);
  drop(&of[0]), drop(&of[1]);
  free(dy);
}

/* ---- three steps ------------------------------------------------------------------------------------ */

static void copy_routes(const moec_model *m, int64_t out[1024]) {
  size_t n = 0;
  memset(out, 0, 1024 * sizeof *out);
  for (uint32_t l = 0; l < moec_route_count(m); l++) {
    moec_layer_routes route;
    UNIT_OK(moec_route(m, l, &route));
    size_t count = (size_t)(route.indices.dims[0] * route.indices.dims[1]);
    ck_assert_uint_le(n + count, 1024);
    memcpy(out + n, route.indices.data, count * sizeof *out);
    n += count;
  }
}

/* Routes change from step to step. A model that made all of the steps computes to the last bit what one does that
 * begins with the last: nothing of earlier routes stays. */
static void changing_routes(run *r) {
  char path[256];
  int64_t routes[2][1024], ids[32];
  moec_model *first = r->m;
  unit_path(path, r->dir, "state");
  for (int step = 0; step < 3; step++) {
    const int64_t *from = golden(r, "input_ids")->data;
    for (int i = 0; i < 32; i++) ids[i] = from[(i + 5 * step) % 32];
    const moec_tensor t = {MOEC_I64, 2, {2, 16}, ids};
    give_as(r, "input_ids", &t), give_as(r, "labels", &t);
    UNIT_OK(moec_save_state(r->m, path));
    double old = loss(r);
    copy_routes(r->m, routes[step % 2]);
    if (step) UNIT_TRUE(memcmp(routes[0], routes[1], sizeof routes[0]) != 0);
    snapshot a = take(r->m, true);
    UNIT_OK(reopen(r));
    UNIT_OK(moec_load_state(r->m, path));
    give_as(r, "input_ids", &t), give_as(r, "labels", &t);
    ck_assert(loss(r) == old);
    snapshot b = take(r->m, true);
    for (uint32_t i = 0; i < a.n; i++) {
      UNIT_TRUE(!a.of[i].n || !memcmp(a.of[i].values, b.of[i].values, (size_t)a.of[i].n * sizeof(float)));
    }
    drop(&a), drop(&b);
    moec_close(r->m);
    r->m = first;
    UNIT_OK(moec_optimizer_step(r->m));
  }
}

START_TEST(training) {
  run r = start(families[_i]);
  const int64_t lengths[2] = {16, 16};
  give(&r, "input_ids");
  give(&r, "labels");
  check_rows(&r, "", lengths, loss(&r));
  padding(&r);
  skewed_routes(&r);
  no_valid_label(&r);
  one_token(&r);
  one_step_of_sgd(&r);
  one_step_of_adamw(&r);
  check_saved(&r);
  changing_routes(&r);
  stop(&r);
}
END_TEST

static void suite_add(Suite *s, const char *name, const TTest *test) {
  TCase *c = tcase_create(name);
  tcase_set_timeout(c, 0); /* ctest has one */
  tcase_add_loop_test(c, test, 0, N_FAMILIES);
  suite_add_tcase(s, c);
}

int main(void) {
  Suite *s = suite_create("train");
  suite_add(s, "training", training);
  return unit_run(s);
}
