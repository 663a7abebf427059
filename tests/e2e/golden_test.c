/* Whole models: compile, run, compare with what transformers computed (tests/data), and at other
 * sizes with the reference interpreter run on the graph as imported. */
#include "frontend/frontend.h"
#include "ir/interp.h"
#include "tests/support/routes.h"

typedef struct model {
  const char *family, *file;
  double logits_tolerance; /* max abs; bf16: relative L2 */
  bool bf16, fixed;        /* fixed: batch 2, seq 16 */
} model;

static const model models[] = {
    {"qwen3_moe", "model.onnx", 1e-4, false, false},        {"qwen3_moe", "model_train.onnx", 1e-4, false, false},
    {"qwen3_moe", "model_static.onnx", 1e-4, false, true},  {"qwen3_moe", "model_bf16.onnx", 1.5e-2, true, false},
    {"mixtral", "model.onnx", 1e-4, false, false},          {"mixtral", "model_train.onnx", 1e-4, false, false},
    {"deepseek_v3", "model.onnx", 1e-4, false, false},      {"deepseek_v3", "model_train.onnx", 1e-4, false, false},
    {"gpt_oss", "model.onnx", 1e-4, false, false},          {"gpt_oss", "model_train.onnx", 1e-4, false, false},
    {"minimax_m3", "model.onnx", 1e-4, false, false},       {"minimax_m3", "model_train.onnx", 1e-4, false, false},
    {"qwen3_5_moe", "model_static.onnx", 1e-4, false, true},
};
enum { N_MODELS = sizeof models / sizeof *models };

static moec_safetensors *open_golden(const model *m) {
  char path[256];
  moec_safetensors *st = NULL;
  snprintf(path, sizeof path, "tests/data/%s/golden.safetensors", m->family);
  UNIT_OK(moec_safetensors_open(path, &st));
  return st;
}

static char *compile(const model *m) {
  char *dir = unit_folder();
  RUN_OK(dir, "$MOEC compile tests/data/%s/%s -o %s/exe --target cpu", m->family, m->file, dir);
  return dir;
}

START_TEST(golden_logits_and_routes) {
  const model *m = &models[_i];
  char *dir = compile(m), path[256];
  moec_safetensors *golden = open_golden(m);
  moec_tensor logits;
  UNIT_OK(moec_npy_write(unit_path(path, dir, "ids.npy"), &moec_safetensors_find(golden, "input_ids")->tensor));
  RUN_OK(dir,
         "%s/exe run --input input_ids=%s/ids.npy --output logits=%s/logits.npy --routes-out %s/routes.safetensors",
         dir, dir, dir, dir);
  UNIT_OK(moec_npy_read(unit_path(path, dir, "logits.npy"), &logits));
  const moec_tensor *want = &moec_safetensors_find(golden, "logits")->tensor;
  double error = m->bf16 ? relative_l2(&logits, want) : max_abs_diff(&logits, want);
  printf("%s/%s: logits off by %.3g\n", m->family, m->file, error);
  if (!(error <= m->logits_tolerance)) ck_abort_msg("%s/%s: logits off by %g", m->family, m->file, error);
  if (!m->bf16) check_routes(m->file, golden, dir); /* in bf16 a near tie may fall the other way */
  moec_tensor_fini(&logits);
  moec_safetensors_close(golden);
  unit_remove(dir);
}
END_TEST

/* Token ids of shape [batch, seq] from a small counter-based generator. */
static void make_ids(moec_tensor *ids, int64_t batch, int64_t seq) {
  UNIT_OK(moec_tensor_init(ids, MOEC_I64, 2, (int64_t[]){batch, seq}));
  uint64_t x = (uint64_t)(batch * 1000 + seq);
  for (int64_t i = 0; i < batch * seq; i++) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    ((int64_t *)ids->data)[i] = (int64_t)(x >> 33) % 199;
  }
}

START_TEST(one_executable_runs_every_size) {
  static const int64_t sizes[][2] = {{1, 4}, {2, 16}, {7, 64}};
  const model *m = &models[_i];
  char *dir = compile(m), path[256], file[256];
  moec_module *as_imported = NULL;
  moec_import_options options = {0};
  snprintf(file, sizeof file, "tests/data/%s/%s", m->family, m->file);
  UNIT_OK(moec_import_onnx(file, &options, &as_imported));
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    moec_tensor ids, want, got;
    if (m->fixed && s != 1) continue;
    make_ids(&ids, sizes[s][0], sizes[s][1]);
    UNIT_OK(moec_npy_write(unit_path(path, dir, "ids.npy"), &ids));
    RUN_OK(dir, "%s/exe run --input input_ids=%s/ids.npy --output logits=%s/logits.npy", dir, dir, dir);
    UNIT_OK(moec_npy_read(unit_path(path, dir, "logits.npy"), &got));
    /* the cpu computes a bf16 model in f32: its oracle is the graph without the roundings */
    const moec_interp_options exact = {.f64 = true};
    UNIT_OK(moec_interp_run(as_imported, (moec_fn){1}, &ids, 1, &want, 1, m->bf16 ? &exact : NULL));
    double error = max_abs_diff(&got, &want);
    if (!(error <= 1e-5))
      ck_abort_msg("%s at (%lld, %lld): off by %g", file, (long long)sizes[s][0], (long long)sizes[s][1], error);
    moec_tensor_fini(&ids);
    moec_tensor_fini(&got);
    moec_tensor_fini(&want);
  }
  moec_module_destroy(as_imported);
  unit_remove(dir);
}
END_TEST

START_TEST(a_size_the_model_cannot_take_is_one_clear_error) {
  const model m = {"minimax_m3", "model.onnx", 0, false, false};
  char *dir = compile(&m), path[256];
  moec_tensor ids;
  make_ids(&ids, 1, 6);
  UNIT_OK(moec_npy_write(unit_path(path, dir, "ids.npy"), &ids));
  int status = run_command(dir, "%s/exe run --input input_ids=%s/ids.npy", dir, dir);
  ck_assert_int_eq(status, 2);
  ck_assert_ptr_nonnull(strstr(run_log(dir), "node"));
  ck_assert_ptr_nonnull(strstr(run_log(dir), "seq = 6"));
  moec_tensor_fini(&ids);
  unit_remove(dir);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("golden");
  TCase *tcase = tcase_create("golden");
  tcase_set_timeout(tcase, 0);
  tcase_add_loop_test(tcase, golden_logits_and_routes, 0, N_MODELS);
  tcase_add_loop_test(tcase, one_executable_runs_every_size, 0, N_MODELS);
  tcase_add_test(tcase, a_size_the_model_cannot_take_is_one_clear_error);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
