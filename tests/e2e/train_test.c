/* Training whole models through include/moec.h, against what transformers and torch computed: the loss, one AdamW
 * step, the loss after it; then the weights as transformers would load them again. */
#include "tests/support/run.h"

#include "include/moec.h"

static const char *const families[] = {"qwen3_moe", "mixtral",    "deepseek_v2", "deepseek_v3",
                                       "gpt_oss",   "minimax_m3", "qwen3_5_moe"};
enum { N_FAMILIES = sizeof families / sizeof *families };

typedef struct run {
  char *dir;
  moec_safetensors *golden;
  moec_model *m;
} run;

static run start(const char *family) {
  char path[512], source[256];
  run r = {.dir = unit_folder()};
  snprintf(source, sizeof source, "tests/data/%s", family);
  RUN_OK(r.dir,
         "$MOEC import %s -o %s/model.onnx && $MOEC compile %s/model.onnx -o %s/exe --weights %s --target cpu"
         " --train",
         source, r.dir, r.dir, r.dir, source);
  snprintf(path, sizeof path, "%s/golden.safetensors", source);
  UNIT_OK(moec_safetensors_open(path, &r.golden));
  UNIT_OK(moec_open(unit_path(path, r.dir, "exe"), &(moec_options){.weights_dir = source}, &r.m));
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

static void give(const run *r, const char *name) {
  const moec_tensor *t = golden(r, name);
  uint32_t i;
  moec_view v = {t->data, (int)t->dtype, t->rank, {0}};
  memcpy(v.dims, t->dims, sizeof v.dims);
  UNIT_OK(moec_find(r->m, MOEC_INPUTS, name, &i));
  UNIT_OK(moec_input_copy(r->m, i, &v));
}

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

/* AdamW divides by the size of the gradient: where that is nothing but rounding, so is the direction. An element
 * may be off by what its own gradient is uncertain by. */
static size_t check_deltas(const run *r, float *const *before) {
  size_t checked = 0;
  for (uint32_t i = 0; i < moec_count(r->m, MOEC_PARAMETERS); i++) {
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
    for (int64_t k = 0; k < n; k++) {
      double want = moec_load_f64(MOEC_F32, e->tensor.data, (size_t)k),
             size = fabs(moec_load_f64(MOEC_F32, g->data, (size_t)k));
      double got = (double)after[k] - (double)before[i][k];
      if (size < 1e-5) continue;
      ck_assert_msg(fabs(got - want) < 2e-5, "%s[%d]: expected %g, got %g, gradient %g", d.name, (int)k, want, got,
                    size);
    }
    checked += (size_t)n;
  }
  return checked;
}

START_TEST(one_step_of_adamw) {
  run r = start(families[_i]);
  uint32_t n = moec_count(r.m, MOEC_PARAMETERS);
  float **before = calloc(n, sizeof *before);
  moec_optimizer o;
  give(&r, "input_ids");
  give(&r, "labels");
  check_loss(&r, "loss", loss(&r), 2e-5);
  for (uint32_t i = 0; i < n; i++) {
    moec_view v;
    UNIT_OK(moec_parameter(r.m, i, &v));
    moec_tensor t = {.dtype = (moec_dtype)v.dtype, .rank = v.rank};
    memcpy(t.dims, v.dims, sizeof t.dims);
    before[i] = malloc(moec_tensor_bytes(&t) + 1);
    memcpy(before[i], v.data, moec_tensor_bytes(&t));
  }
  moec_optimizer_defaults(MOEC_ADAMW, &o);
  o.lr = 0.01, o.beta2 = 0.95, o.weight_decay = 0.1;
  UNIT_OK(moec_optimizer_set(r.m, &o));
  UNIT_OK(moec_optimizer_step(r.m));
  ck_assert_uint_gt(check_deltas(&r, before), 500);
  check_loss(&r, "loss_after_adamw", loss(&r), 5e-5);
  check_saved(&r);
  for (uint32_t i = 0; i < n; i++) free(before[i]);
  free(before);
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
  suite_add(s, "adamw", one_step_of_adamw);
  return unit_run(s);
}
