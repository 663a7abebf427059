/* EXE grad: loss, every gradient and the routes of whole models against what transformers computed, in every mode of
 * recompute and combine. The arena is poisoned: a value that was skipped but is read shows. */
#include "tests/support/gradients.h"
#include "tests/support/routes.h"

typedef struct subject {
  const char *family, *file; /* file NULL: the checkpoint, imported */
  const char *options;
} subject;

static const subject subjects[] = {
    {"qwen3_moe", NULL, "--recompute block --skip-recompute-combine on"},
    {"deepseek_v3", NULL, "--recompute block"},
    {"gpt_oss", NULL, "--recompute block"},
    {"minimax_m3", NULL, "--recompute block"},
    {"qwen3_5_moe", NULL, "--recompute block"},
    {"qwen3_moe", "model_train.onnx", "--recompute none --combine-impl weighted_sum"},
    {"qwen3_moe", "model_train.onnx", "--recompute block --combine-impl legacy_bmm"},
    {"qwen3_moe", "model.onnx", "--recompute block"},
    {"qwen3_moe", "model_train.onnx", "--recompute block --skip-recompute-combine off --combine-impl weighted_sum"},
};
enum { N_SUBJECTS = sizeof subjects / sizeof *subjects };

static void write_npy(const moec_safetensors *golden, const char *name, const char *dir, const char *file) {
  char path[256];
  UNIT_OK(moec_npy_write(unit_path(path, dir, file), &moec_safetensors_find(golden, name)->tensor));
}

/* Compiled in |dir|; its weights are found through the environment. */
static void compile(const subject *s, const char *dir) {
  if (s->file) {
    RUN_OK(dir, "$MOEC compile tests/data/%s/%s -o %s/exe --target cpu --train %s", s->family, s->file, dir,
           s->options);
    return;
  }
  RUN_OK(dir,
         "$MOEC import tests/data/%s -o %s/model.onnx && $MOEC compile %s/model.onnx --weights tests/data/%s -o %s/exe"
         " --target cpu --train %s",
         s->family, dir, dir, s->family, dir, s->options);
}

static double number(const moec_safetensors *st, const char *name) {
  const moec_st_entry *e = moec_safetensors_find(st, name);
  if (!e) ck_abort_msg("no tensor %s", name);
  return moec_load_f64(e->tensor.dtype, e->tensor.data, 0);
}

/* Each expert got as many tokens as the routes say: they are counted once, also where the forward pass is replayed. */
static void check_counts(const moec_safetensors *got) {
  char name[64];
  for (int layer = 0; layer < 2; layer++) {
    snprintf(name, sizeof name, "route.%d.indices", layer);
    const moec_st_entry *routes = moec_safetensors_find(got, name);
    snprintf(name, sizeof name, "tokens_per_expert.%d", layer);
    const moec_st_entry *counts = moec_safetensors_find(got, name);
    ck_assert(routes && counts);
    for (int64_t e = 0; e < moec_tensor_numel(&counts->tensor); e++) {
      int64_t n = 0;
      for (int64_t i = 0; i < moec_tensor_numel(&routes->tensor); i++)
        n += moec_load_i64(MOEC_I64, routes->tensor.data, (size_t)i) == e;
      UNIT_TRUE(moec_load_i64(MOEC_I64, counts->tensor.data, (size_t)e) == n);
    }
  }
}

static void check_gradients(const subject *s, const moec_safetensors *golden, const moec_safetensors *got) {
  size_t compared = 0;
  double worst = 0;
  bool folded = s->file && strcmp(s->file, "model.onnx") == 0; /* the exporter renamed what it folded */
  ck_assert(fabs(number(got, "loss") - number(golden, "loss")) <= 1e-5);
  for (size_t i = 0; i < moec_safetensors_count(got); i++) {
    const moec_st_entry *e = moec_safetensors_at(got, i);
    if (strncmp(e->name, "grad.", 5) != 0) continue;
    const moec_st_entry *want = golden_gradient(golden, e->name);
    if (!want && folded) continue;
    if (!want) ck_abort_msg("%s: %s is no gradient of golden", s->family, e->name);
    double error = gradient_error(e->name, &e->tensor, &want->tensor);
    if (!(error <= 1e-4)) ck_abort_msg("%s %s: %s off by %g", s->family, s->options, e->name, error);
    if (strstr(e->name, "mlp.gate.weight") || strstr(e->name, "router.weight")) ck_assert(norm(&e->tensor) > 0);
    worst = fmax(worst, error);
    compared++;
  }
  if (folded) ck_assert_uint_ge(compared, 10);
  if (folded) compared = 0;
  for (size_t i = 0; !folded && i < moec_safetensors_count(golden); i++) { /* as many as there are */
    const char *name = moec_safetensors_at(golden, i)->name;
    compared -= strncmp(name, "grad.", 5) == 0 && strcmp(name, "grad.inputs_embeds") != 0;
  }
  ck_assert_uint_eq(compared, 0);
  printf("%s %s %s: worst gradient off by %.2g\n", s->family, s->file ? s->file : "", s->options, worst);
}

START_TEST(loss_gradients_and_routes) {
  const subject *s = &subjects[_i];
  char path[256], *dir = unit_folder();
  moec_safetensors *golden = NULL, *got = NULL;
  snprintf(path, sizeof path, "tests/data/%s/golden.safetensors", s->family);
  UNIT_OK(moec_safetensors_open(path, &golden));
  write_npy(golden, "input_ids", dir, "ids.npy");
  write_npy(golden, "labels", dir, "labels.npy");
  compile(s, dir);
  RUN_OK(dir,
         "MOEC_POISON=1 MOEC_WEIGHTS=tests/data/%s %s/exe grad --input input_ids=%s/ids.npy"
         " --input labels=%s/labels.npy -o %s/out.safetensors",
         s->family, dir, dir, dir, dir);
  UNIT_OK(moec_safetensors_open(unit_path(path, dir, "out.safetensors"), &got));
  check_gradients(s, golden, got);
  check_counts(got);
  moec_safetensors_close(got);
  moec_safetensors_close(golden);
  unit_remove(dir);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("grad");
  TCase *tcase = tcase_create("grad");
  tcase_set_timeout(tcase, 0);
  tcase_add_loop_test(tcase, loss_gradients_and_routes, 0, N_SUBJECTS);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
