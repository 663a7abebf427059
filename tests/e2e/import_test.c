/* Checkpoints of seven families: import, compile, run, and compare with what transformers computed from the same
 * files (tests/data); with a padded attention_mask too. */
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
  if (remarks.size) ck_abort_msg("%s: unexpected remarks: %s", family, moec_buf_str(&remarks));
  moec_buf_fini(&remarks);
  RUN_OK(dir, "$MOEC compile %s -o %s/exe --target cpu --weights %s", model, dir, checkpoint);
  return dir;
}

/* Runs the executable on the golden tokens; |mask| NULL: all ones. */
static void run(const char *family, const char *dir, const moec_safetensors *golden, const moec_tensor *mask, moec_tensor *logits) {
  char path[256];
  moec_tensor ones;
  const moec_tensor *ids = golden_tensor(golden, "input_ids");
  UNIT_OK(moec_tensor_init(&ones, MOEC_I64, 2, ids->dims));
  for (int64_t i = 0; i < moec_tensor_numel(&ones); i++) ((int64_t *)ones.data)[i] = 1;
  UNIT_OK(moec_npy_write(unit_path(path, dir, "ids.npy"), ids));
  UNIT_OK(moec_npy_write(unit_path(path, dir, "mask.npy"), mask ? mask : &ones));
  RUN_OK(dir, "MOEC_WEIGHTS=tests/data/%s %s/exe run --input input_ids=%s/ids.npy --input attention_mask=%s/mask.npy "
              "--output logits=%s/logits.npy --routes-out %s/routes.safetensors", family, dir, dir, dir, dir, dir);
  UNIT_OK(moec_npy_read(unit_path(path, dir, "logits.npy"), logits));
  moec_tensor_fini(&ones);
}

START_TEST(logits_and_routes_of_checkpoints) {
  const char *family = families[_i];
  char *dir = compile(family);
  moec_safetensors *golden = open_golden(family);
  moec_tensor logits;
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
