/* Gradients as graphs, before any code is made of them: the entry `train` after the pass `grad`, run by the reference
 * interpreter, against the loss and every gradient that transformers computed (tests/data). */
#include "frontend/frontend.h"
#include "ir/interp.h"
#include "models/models.h"
#include "passes/pass.h"
#include "tests/support/gradients.h"

typedef struct subject {
  const char *family, *file; /* file NULL: the checkpoint, imported */
} subject;

static const subject subjects[] = {{"mixtral", NULL},
                                   {"qwen3_moe", NULL},
                                   {"deepseek_v2", NULL},
                                   {"deepseek_v3", NULL},
                                   {"gpt_oss", NULL},
                                   {"minimax_m3", NULL},
                                   {"qwen3_5_moe", NULL},
                                   {"mixtral", "model_train.onnx"},
                                   {"qwen3_moe", "model_train.onnx"},
                                   {"deepseek_v3", "model_train.onnx"},
                                   {"gpt_oss", "model_train.onnx"},
                                   {"minimax_m3", "model_train.onnx"}};
enum { N_SUBJECTS = sizeof subjects / sizeof *subjects, N_FAMILIES = 7 };

static moec_module *import(const subject *s, const char *dir) {
  char checkpoint[256], model[256];
  moec_module *m = NULL;
  moec_buf remarks = {0};
  snprintf(checkpoint, sizeof checkpoint, "tests/data/%s", s->family);
  const moec_checkpoint_options options = {.output = unit_path(model, dir, "model.onnx")};
  moec_import_options io = {.weights_dir = checkpoint};
  if (s->file) {
    snprintf(model, sizeof model, "tests/data/%s/%s", s->family, s->file);
    io = (moec_import_options){0};
  } else {
    UNIT_OK(moec_import_checkpoint(checkpoint, &options, &remarks));
  }
  UNIT_OK(moec_import_onnx(model, &io, &m));
  moec_buf_fini(&remarks);
  return m;
}

/* Every pass up to and with `grad`. */
static moec_fn differentiate(moec_module *m, moec_recompute mode, double aux) {
  static const char *const passes[] = {
#define PASS(name, what) #name,
#include "passes/passes.def"
#undef PASS
  };
  const moec_compile_options options = {.train = true, .recompute = mode, .aux_loss = aux};
  moec_pass_ctx cx = {.options = &options};
  for (size_t i = 0; i == 0 || strcmp(passes[i - 1], "grad") != 0; i++) UNIT_OK(moec_run_pass(m, passes[i], &cx));
  for (uint32_t i = 1; i < m->n_fns; i++)
    if (strcmp(moec_sym_str(m, m->fns[i]->name), "train") == 0) return (moec_fn){i};
  ck_abort_msg("no entry train");
}

/* The inputs of |g| from golden: |prefix| and the name, else the name; a mask that is not there is all ones. */
static void golden_inputs(const moec_graph *g, const moec_safetensors *golden, const char *prefix, moec_tensor *in) {
  const moec_tensor *ids = &moec_safetensors_find(golden, "input_ids")->tensor;
  for (size_t i = 0; i < g->n_inputs; i++) {
    char name[256];
    snprintf(name, sizeof name, "%s%s", prefix, moec_sym_str(g->m, moec_value_get(g, g->inputs[i])->name));
    const moec_st_entry *e = moec_safetensors_find(golden, name);
    if (!e) e = moec_safetensors_find(golden, name + strlen(prefix));
    UNIT_OK(moec_tensor_init(&in[i], MOEC_I64, 2, ids->dims));
    for (int64_t k = 0; k < moec_tensor_numel(ids); k++)
      ((int64_t *)in[i].data)[k] = e ? moec_load_i64(e->tensor.dtype, e->tensor.data, (size_t)k) : 1;
  }
}

static void compare(const subject *s, const moec_graph *g, const moec_tensor *out, const moec_safetensors *golden) {
  size_t compared = 0, expected = 0;
  double worst = 0;
  const char *worst_name = "";
  double loss = fabs(moec_load_f64(out[0].dtype, out[0].data, 0) -
                     moec_load_f64(MOEC_F32, moec_safetensors_find(golden, "loss")->tensor.data, 0));
  if (!(loss <= 1e-5)) ck_abort_msg("%s: loss off by %g", s->family, loss);
  for (size_t i = 1; i < g->n_outputs; i++) {
    const char *name = moec_sym_str(g->m, g->output_names[i]);
    const moec_st_entry *e = golden_gradient(golden, name);
    if (!e) ck_abort_msg("%s: %s is no gradient of golden", s->family, name);
    double error = gradient_error(name, &out[i], &e->tensor);
    if (!(error <= 1e-4)) ck_abort_msg("%s: %s off by %g", s->family, name, error);
    if (error > worst) worst = error, worst_name = name;
    if (strstr(name, "gate.weight") || strstr(name, "router.weight")) ck_assert(norm(&out[i]) > 0);
    compared++;
  }
  for (size_t i = 0; i < moec_safetensors_count(golden); i++) {
    const char *name = moec_safetensors_at(golden, i)->name;
    bool of_parameter = strncmp(name, "grad.", 5) == 0 && strcmp(name, "grad.inputs_embeds") != 0;
    /* a parameter without a gradient path has no gradient here, and zeros there */
    expected += of_parameter && norm(&moec_safetensors_at(golden, i)->tensor) > 0;
  }
  printf("%s %s: loss off by %.2g, %zu of %zu gradients, worst %.2g %s\n", s->family, s->file ? s->file : "", loss,
         compared, expected, worst, worst_name);
  ck_assert_uint_eq(compared, expected);
}

static double golden_number(const moec_safetensors *golden, const char *name) {
  const moec_st_entry *e = moec_safetensors_find(golden, name);
  if (!e) ck_abort_msg("golden.safetensors has no %s", name);
  return moec_load_f64(e->tensor.dtype, e->tensor.data, 0);
}

static const moec_tensor *output(const moec_graph *g, const moec_tensor *out, const char *name) {
  for (size_t i = 0; i < g->n_outputs; i++)
    if (strcmp(moec_sym_str(g->m, g->output_names[i]), name) == 0) return &out[i];
  ck_abort_msg("no output %s", name);
}

/* The load balancing loss, and the gradients of the routers with it. */
static void compare_aux(const subject *s, const moec_graph *g, const moec_tensor *out,
                        const moec_safetensors *golden) {
  size_t compared = 0;
  double aux =
      fabs(moec_load_f64(MOEC_F32, output(g, out, "aux_loss")->data, 0) - golden_number(golden, "aux.aux_loss"));
  double loss = fabs(moec_load_f64(MOEC_F32, out[0].data, 0) - golden_number(golden, "aux.loss"));
  if (!(aux <= 1e-5 && loss <= 1e-5)) ck_abort_msg("%s: aux_loss off by %g, loss off by %g", s->family, aux, loss);
  for (size_t i = 0; i < moec_safetensors_count(golden); i++) {
    const moec_st_entry *e = moec_safetensors_at(golden, i);
    if (strncmp(e->name, "aux.grad.", 9) != 0) continue;
    double error = gradient_error(e->name, output(g, out, e->name + 4), &e->tensor);
    if (!(error <= 1e-4)) ck_abort_msg("%s: %s off by %g", s->family, e->name, error);
    compared++;
  }
  printf("%s: aux_loss off by %.2g, %zu router gradients\n", s->family, aux, compared);
  ck_assert_uint_gt(compared, 0);
}

typedef enum setting { PLAIN, MASKED, AUX } setting;

static void check(const subject *s, moec_recompute mode, setting what) {
  char path[256], *dir = unit_folder();
  moec_safetensors *golden = NULL;
  moec_module *m = import(s, dir);
  moec_fn fn = differentiate(m, mode, what == AUX ? 0.05 : 0);
  const moec_graph *g = moec_fn_get(m, fn);
  snprintf(path, sizeof path, "tests/data/%s/golden.safetensors", s->family);
  UNIT_OK(moec_safetensors_open(path, &golden));
  moec_tensor *in = calloc(g->n_inputs, sizeof *in), *out = calloc(g->n_outputs, sizeof *out);
  golden_inputs(g, golden, what == MASKED ? "masked." : "", in);
  UNIT_OK(moec_interp_run(m, fn, in, g->n_inputs, out, g->n_outputs, NULL));
  if (what == AUX)
    compare_aux(s, g, out, golden);
  else if (what == PLAIN)
    compare(s, g, out, golden);
  else
    ck_assert(fabs(moec_load_f64(MOEC_F32, out[0].data, 0) - golden_number(golden, "masked.loss")) <= 1e-5);
  for (size_t i = 0; i < g->n_inputs; i++) moec_tensor_fini(&in[i]);
  for (size_t i = 0; i < g->n_outputs; i++) moec_tensor_fini(&out[i]);
  free(in);
  free(out);
  moec_safetensors_close(golden);
  moec_module_destroy(m);
  unit_remove(dir);
}

START_TEST(gradients_with_everything_saved) {
  check(&subjects[_i], MOEC_RECOMPUTE_NONE, PLAIN);
}
END_TEST

START_TEST(gradients_with_blocks_recomputed) {
  check(&subjects[_i], MOEC_RECOMPUTE_BLOCK, PLAIN);
}
END_TEST

START_TEST(losses_with_padding) {
  check(&subjects[_i], MOEC_RECOMPUTE_BLOCK, MASKED);
} /* of checkpoints: they take a mask */
END_TEST

START_TEST(router_losses) {
  const char *family = subjects[_i].family;
  if (strncmp(family, "deepseek", 8) != 0)
    check(&subjects[_i], MOEC_RECOMPUTE_BLOCK, AUX); /* transformers has none there */
}
END_TEST

int main(void) {
  Suite *suite = suite_create("gradient_graph");
  TCase *tcase = tcase_create("gradient_graph");
  tcase_set_timeout(tcase, 0);
  tcase_add_loop_test(tcase, gradients_with_everything_saved, 0, N_SUBJECTS);
  tcase_add_loop_test(tcase, gradients_with_blocks_recomputed, 0, N_SUBJECTS);
  tcase_add_loop_test(tcase, losses_with_padding, 0, N_FAMILIES);
  tcase_add_loop_test(tcase, router_losses, 0, N_FAMILIES);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
