/* The reference models as imported, run in the interpreter: what import got wrong shows here and nowhere later. */
#include "base/safetensors.h"
#include "frontend/frontend.h"
#include "ir/interp.h"
#include "tests/unit/unit.h"

#include <math.h>

static const struct model {
  const char *file;
  double tolerance; /* max abs; bf16: relative L2 */
  bool bf16;        /* weights; computed without rounding, since one rounded near tie sends a token to another expert */
  uint32_t frozen; /* floats that are no weights: torch says so */
} models[] = {
    {"qwen3_moe/model.onnx", 1e-4, false, 0},         {"qwen3_moe/model_train.onnx", 1e-4, false, 1},
    {"qwen3_moe/model_static.onnx", 1e-4, false, 0},  {"qwen3_moe/model_bf16.onnx", 1e-2, true, 0},
    {"mixtral/model.onnx", 1e-4, false, 0},           {"mixtral/model_train.onnx", 1e-4, false, 1},
    {"deepseek_v3/model.onnx", 1e-4, false, 2},       {"deepseek_v3/model_train.onnx", 1e-4, false, 3},
    {"gpt_oss/model.onnx", 1e-4, false, 0},           {"gpt_oss/model_train.onnx", 1e-4, false, 1},
    {"minimax_m3/model.onnx", 1e-4, false, 2},        {"minimax_m3/model_train.onnx", 1e-4, false, 3},
    {"qwen3_5_moe/model_static.onnx", 1e-4, false, 0},
};
enum { N_MODELS = sizeof models / sizeof *models };

static const char *folder(void) {
  const char *named = getenv("MOEC_GOLDEN");
  return named ? named : "tests/data";
}

static moec_safetensors *open_golden(const struct model *m) {
  char path[512];
  moec_safetensors *st = NULL;
  snprintf(path, sizeof path, "%s/%.*s/golden.safetensors", folder(), (int)strcspn(m->file, "/"), m->file);
  UNIT_OK(moec_safetensors_open(path, &st));
  return st;
}

static double distance(const moec_tensor *a, const moec_tensor *b, bool relative) {
  double most = 0, error = 0, size = 0;
  ck_assert_int_eq(moec_tensor_numel(a), moec_tensor_numel(b));
  for (size_t i = 0; i < (size_t)moec_tensor_numel(a); i++) {
    double x = moec_load_f64(a->dtype, a->data, i), y = moec_load_f64(b->dtype, b->data, i);
    if (!(fabs(x - y) <= most)) most = fabs(x - y);
    error += (x - y) * (x - y), size += y * y;
  }
  return relative ? sqrt(error / size) : most;
}

START_TEST(logits_of_the_imported_graph) {
  const struct model *g = &models[_i];
  char path[512];
  moec_module *m = NULL;
  moec_tensor logits;
  moec_import_options options = {0};
  moec_interp_options run = {.f64 = g->bf16};
  snprintf(path, sizeof path, "%s/%s", folder(), g->file);
  UNIT_OK(moec_import_onnx(path, &options, &m));
  moec_safetensors *golden = open_golden(g);
  ck_assert_uint_eq(moec_main(m)->n_outputs, 1);
  UNIT_OK(moec_interp_run(m, (moec_fn){1}, &moec_safetensors_find(golden, "input_ids")->tensor, 1, &logits, 1, &run));
  double error = distance(&logits, &moec_safetensors_find(golden, "logits")->tensor, g->bf16);
  if (!(error <= g->tolerance)) ck_abort_msg("%s: logits off by %g", g->file, error);
  uint32_t frozen = 0;
  for (uint32_t i = 1; i <= moec_param_count(m); i++) {
    const moec_param_info *p = moec_param_get(m, (moec_param){i});
    frozen += !p->trainable;
    ck_assert_uint_eq(p->n_pieces, 1);
    ck_assert_uint_eq(p->pieces[0].file, 0); /* the bytes are those of the mapped model */
  }
  ck_assert_uint_eq(frozen, g->frozen);
  moec_tensor_fini(&logits);
  moec_safetensors_close(golden);
  moec_module_destroy(m);
}
END_TEST

int main(void) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", folder(), models[0].file);
  if (access(path, R_OK) != 0) {
    fprintf(stderr, "skipped: no reference models in %s\n", folder());
    return 77;
  }
  Suite *suite = suite_create("frontend golden");
  TCase *tcase = tcase_create("frontend golden");
  tcase_set_timeout(tcase, 120);
  tcase_add_loop_test(tcase, logits_of_the_imported_graph, 0, N_MODELS);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
