/* Checkpoints of seven families: import, compile, run, and compare with what transformers computed from the same
 * files (tests/data); with a padded attention_mask too. Parameters are what transformers trains, by its names. */
#include "base/tensor.h"
#include "include/moec.h"
#include "models/models.h"
#include "tests/support/routes.h"

static const char *const families[] = {"mixtral", "qwen3_moe",  "deepseek_v2", "deepseek_v3",
                                       "gpt_oss", "minimax_m3", "qwen3_5_moe"};
enum { N_FAMILIES = sizeof families / sizeof *families };

static moec_safetensors *open_golden(const char *family) {
  char path[256];
  moec_safetensors *st = NULL;
  snprintf(path, sizeof path, "tests/data/%s/golden.safetensors", family);
  UNIT_OK(moec_safetensors_open(path, &st));
  return st;
}

static const moec_tensor *golden_tensor(const moec_safetensors *st, const char *name) {
  const moec_st_entry *e = moec_safetensors_find(st, name);
  if (!e) ck_abort_msg("golden.safetensors has no %s", name);
  return &e->tensor;
}

/* Imports and compiles |family|; the executable is in the folder returned. Every key and tensor is accounted for. */
static char *compile(const char *family) {
  char *dir = unit_folder(), checkpoint[256], model[256];
  moec_buf remarks = {0};
  snprintf(checkpoint, sizeof checkpoint, "tests/data/%s", family);
  const moec_checkpoint_options options = {.output = unit_path(model, dir, "model.onnx")};
  UNIT_OK(moec_import_checkpoint(checkpoint, &options, &remarks));
  char expected[1024]; /* that the model lies elsewhere, and nothing else */
  snprintf(expected, sizeof expected, "%s lies outside of %s: to compile it, say --weights %s\n", model, checkpoint,
           checkpoint);
  ck_assert_str_eq(moec_buf_str(&remarks), expected);
  moec_buf_fini(&remarks);
  RUN_OK(dir, "$MOEC compile %s -o %s/exe --target cpu --weights %s", model, dir, checkpoint);
  return dir;
}

/* Runs the executable on the golden tokens; |mask| NULL: left out, so all ones. */
static void run(const char *family, const char *dir, const moec_safetensors *golden, const moec_tensor *mask,
                moec_tensor *logits) {
  char path[256], more[512] = "";
  UNIT_OK(moec_npy_write(unit_path(path, dir, "ids.npy"), golden_tensor(golden, "input_ids")));
  if (mask) UNIT_OK(moec_npy_write(unit_path(path, dir, "mask.npy"), mask));
  if (mask) snprintf(more, sizeof more, "--input attention_mask=%s/mask.npy", dir);
  RUN_OK(dir, "MOEC_WEIGHTS=tests/data/%s %s/exe run --input input_ids=%s/ids.npy %s --output logits=%s/logits.npy "
              "--routes-out %s/routes.safetensors", family, dir, dir, more, dir, dir);
  UNIT_OK(moec_npy_read(unit_path(path, dir, "logits.npy"), logits));
}

/* Parameter |d| has a gradient in the golden file, of its shape, exactly if it is trainable. */
static void check_parameter(const char *family, const moec_safetensors *golden, const moec_description *d) {
  char key[256], size[32];
  snprintf(key, sizeof key, "grad.%s", d->name);
  const moec_st_entry *e = moec_safetensors_find(golden, key);
  if (!e != !d->trainable) ck_abort_msg("%s: %s: trainable is %d", family, d->name, d->trainable);
  if (!e) return;
  if (e->tensor.rank != d->rank)
    ck_abort_msg("%s: %s: expected rank %u, got %u", family, d->name, e->tensor.rank, d->rank);
  for (uint32_t a = 0; a < d->rank; a++) {
    snprintf(size, sizeof size, "%lld", (long long)e->tensor.dims[a]);
    if (strcmp(size, d->dims[a]) != 0)
      ck_abort_msg("%s: %s: axis %u: expected %s, got %s", family, d->name, a, size, d->dims[a]);
  }
}

/* Gradients are keyed by the names and shapes of parameters: those of transformers' named_parameters(). */
static void check_parameters(const char *family, const char *dir, const moec_safetensors *golden) {
  char exe[256], weights[256];
  moec_model *m;
  uint32_t trainable = 0, gradients = 0;
  snprintf(weights, sizeof weights, "tests/data/%s", family);
  UNIT_OK(moec_open(unit_path(exe, dir, "exe"), &(moec_options){.weights_dir = weights}, &m));
  for (uint32_t i = 0; i < moec_count(m, MOEC_PARAMETERS); i++) {
    moec_description d;
    UNIT_OK(moec_describe(m, MOEC_PARAMETERS, i, &d));
    check_parameter(family, golden, &d);
    trainable += d.trainable != 0;
  }
  for (size_t i = 0; i < moec_safetensors_count(golden); i++) {
    const char *key = moec_safetensors_at(golden, i)->name;
    gradients += strncmp(key, "grad.", 5) == 0 && strcmp(key, "grad.inputs_embeds") != 0;
  }
  ck_assert_uint_gt(gradients, 0);
  ck_assert_uint_eq(trainable, gradients); /* names are unique: none is missing */
  moec_close(m);
}

START_TEST(logits_and_routes_of_checkpoints) {
  const char *family = families[_i];
  char *dir = compile(family);
  moec_safetensors *golden = open_golden(family);
  moec_tensor logits;
  check_parameters(family, dir, golden);
  run(family, dir, golden, NULL, &logits);
  double error = max_abs_diff(&logits, golden_tensor(golden, "logits"));
  printf("%s: logits off by %.3g\n", family, error);
  if (!(error <= 1e-4)) ck_abort_msg("%s: logits off by %g", family, error);
  check_routes(family, golden, dir);
  moec_tensor_fini(&logits);
  run(family, dir, golden, golden_tensor(golden, "masked.attention_mask"), &logits);
  error = max_abs_diff(&logits, golden_tensor(golden, "masked.logits"));
  printf("%s: masked logits off by %.3g\n", family, error);
  if (!(error <= 1e-4)) ck_abort_msg("%s: masked logits off by %g", family, error);
  moec_tensor_fini(&logits);
  moec_safetensors_close(golden);
  unit_remove(dir);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("import");
  TCase *tcase = tcase_create("import");
  tcase_set_timeout(tcase, 0);
  tcase_add_loop_test(tcase, logits_and_routes_of_checkpoints, 0, N_FAMILIES);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
