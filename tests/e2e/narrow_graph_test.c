/* bf16 as a graph, before any code is made of it: the reference models with --precision bf16, run by the reference
 * interpreter with the routes of transformers, against what those computed in f32: logits, loss and gradients as far
 * apart as rounding to eight bits makes them, and not much farther than torch's own bf16. */
#include "frontend/frontend.h"
#include "ir/interp.h"
#include "models/models.h"
#include "passes/pass.h"
#include "tests/support/gradients.h"

/* |file| NULL: the checkpoint, imported. */
typedef struct subject {
  const char *family, *file;
} subject;

static const subject subjects[] = {{"qwen3_moe", NULL},         {"mixtral", NULL},
                                   {"deepseek_v2", NULL},       {"deepseek_v3", NULL},
                                   {"gpt_oss", NULL},           {"minimax_m3", NULL},
                                   {"qwen3_5_moe", NULL},       {"qwen3_moe", "model_train"},
                                   {"qwen3_moe", "model_bf16"}, {"qwen3_5_moe", "model_static"}};
enum { SUBJECTS = sizeof subjects / sizeof *subjects, WITH_NAMES = 8 }; /* the others' parameters have lost them */

static moec_module *import(const subject *s) {
  char dir[128], path[256], *room = unit_folder();
  moec_import_options io = {.weights_dir = dir};
  moec_buf remarks = {0};
  moec_module *m = NULL;
  snprintf(dir, sizeof dir, "tests/data/%s", s->family);
  snprintf(path, sizeof path, "%s/%s.onnx", s->file ? dir : room, s->file ? s->file : "model");
  const moec_checkpoint_options co = {.output = path};
  if (!s->file) UNIT_OK(moec_import_checkpoint(dir, &co, &remarks));
  UNIT_OK(moec_import_onnx(path, &io, &m));
  moec_buf_fini(&remarks);
  unit_remove(room);
  return m;
}

/* Every pass up to and with `grad`. */
static moec_module *compile(const subject *s, bool train) {
  static const char *const passes[] = {
#define PASS(name, what) #name,
#include "passes/passes.def"
#undef PASS
  };
  const moec_compile_options options = {.target = MOEC_TARGET_CUDA, .precision = MOEC_PRECISION_BF16, .train = train};
  moec_pass_ctx cx = {.options = &options};
  moec_module *m = import(s);
  for (size_t i = 0; i == 0 || strcmp(passes[i - 1], "grad") != 0; i++)
    UNIT_OK(moec_context(moec_run_pass(m, passes[i], &cx), "%s", s->family));
  return m;
}

/* Parameters in bf16 after the pass, of a model that has some. */
static size_t narrowed(moec_precision precision, size_t *remarks) {
  const moec_compile_options options = {.target = MOEC_TARGET_CUDA, .precision = precision};
  moec_pass_ctx cx = {.options = &options};
  moec_module *m = import(&(subject){"qwen3_5_moe", NULL});
  size_t n = 0;
  for (size_t i = 1; i < m->n_params; i++) m->params[i].compute = MOEC_BF16;
  UNIT_OK(moec_run_pass(m, "precision", &cx));
  for (size_t i = 1; i < m->n_params; i++) n += m->params[i].compute == MOEC_BF16;
  *remarks = cx.remarks.n;
  moec_module_destroy(m);
  return n;
}

START_TEST(linear_attention_stays_as_it_is_asked_for) {
  size_t of_model, of_bf16;
  size_t all = narrowed(MOEC_PRECISION_MODEL, &of_model), some = narrowed(MOEC_PRECISION_BF16, &of_bf16);
  if (!(some > 0 && all > 2 * some)) ck_abort_msg("parameters in bf16: %zu of the model, %zu of bf16", all, some);
  ck_assert_uint_eq(of_model, 0);
  ck_assert_uint_eq(of_bf16, 1);
}
END_TEST

static moec_safetensors *golden_of(const subject *s) {
  char path[256];
  moec_safetensors *golden = NULL;
  snprintf(path, sizeof path, "tests/data/%s/golden.safetensors", s->family);
  UNIT_OK(moec_safetensors_open(path, &golden));
  return golden;
}

/* ---- routes ------------------------------------------------------------------------------ */

typedef struct routes {
  const moec_safetensors *golden;
  size_t at; /* in golden: behind the router of the layer before */
} routes;

static bool is_choice(const char *name) {
  size_t n = strlen(name);
  return strncmp(name, "router.", 7) == 0 && strcmp(name + n - 2, ".2") == 0;
}

/* Layers run in their order, each once: what the next one chose becomes what golden's did. */
static void force(void *user, const moec_graph *g, moec_node n, const moec_tensor *values) {
  routes *r = user;
  if (moec_op_of(g, n) != MOEC_OP_MOE_SELECT) return;
  while (!is_choice(moec_safetensors_at(r->golden, r->at)->name)) r->at++;
  const moec_tensor *t = &moec_safetensors_at(r->golden, r->at++)->tensor;
  ck_assert_int_eq(moec_tensor_numel(t), moec_tensor_numel(&values[0]));
  for (int64_t i = 0; i < moec_tensor_numel(t); i++)
    ((int64_t *)values[0].data)[i] = moec_load_i64(t->dtype, t->data, (size_t)i);
}

static moec_tensor *run(const moec_module *m, moec_fn fn, const moec_safetensors *golden) {
  const moec_graph *g = moec_fn_get(m, fn);
  moec_tensor in[4], ids = moec_safetensors_find(golden, "input_ids")->tensor, ones = {0};
  moec_tensor *out = calloc(g->n_outputs, sizeof *out);
  routes r = {.golden = golden};
  const moec_interp_options options = {.trace = force, .user = &r};
  UNIT_OK(moec_tensor_init(&ones, MOEC_I64, 2, ids.dims));
  for (int64_t i = 0; i < moec_tensor_numel(&ones); i++) ((int64_t *)ones.data)[i] = 1;
  for (size_t i = 0; i < g->n_inputs; i++) {
    const moec_st_entry *e = moec_safetensors_find(golden, moec_sym_str(m, moec_value_get(g, g->inputs[i])->name));
    in[i] = e ? e->tensor : ones; /* attention_mask */
  }
  UNIT_OK(moec_interp_run(m, fn, in, g->n_inputs, out, g->n_outputs, &options));
  moec_tensor_fini(&ones);
  return out;
}

/* ---- limits ------------------------------------------------------------------------------ */

/* |a - b| / |b|, as vectors. */
static double apart(const moec_tensor *a, const moec_tensor *b) {
  double d = 0, n = 0;
  ck_assert_int_eq(moec_tensor_numel(a), moec_tensor_numel(b));
  for (size_t i = 0; i < (size_t)moec_tensor_numel(b); i++) {
    double x = moec_load_f64(a->dtype, a->data, i), y = moec_load_f64(b->dtype, b->data, i);
    d += (x - y) * (x - y), n += y * y;
  }
  return sqrt(d / n);
}

/* 1.3 times what torch's bf16 is off by: "logits", "median" or "worst", of gradients. */
static double of_torch(const subject *s, const char *what) {
  char path[256], name[32];
  double value;
  snprintf(path, sizeof path, "tests/data/%s/torch_bf16.txt", s->family);
  FILE *f = fopen(path, "r");
  ck_assert_ptr_nonnull(f);
  while (fscanf(f, "%31s %lf", name, &value) == 2 && strcmp(name, what) != 0) continue;
  fclose(f);
  ck_assert_str_eq(name, what);
  return 1.3 * value;
}

START_TEST(logits_are_near) {
  const subject *s = &subjects[_i];
  moec_safetensors *golden = golden_of(s);
  moec_module *m = compile(s, false);
  moec_tensor *out = run(m, (moec_fn){1}, golden);
  ck_assert_int_eq(out->dtype, MOEC_F32); /* the interface stays what it was */
  double off = apart(out, &moec_safetensors_find(golden, "logits")->tensor);
  printf("%s %s: logits off by %.3g\n", s->family, s->file ? s->file : "", off);
  if (!(off > 0 && off <= fmin(1.5e-2, of_torch(s, "logits")))) ck_abort_msg("%s: logits off by %g", s->family, off);
  moec_tensor_fini(out);
  free(out);
  moec_module_destroy(m);
  moec_safetensors_close(golden);
}
END_TEST

static moec_fn entry(const moec_module *m, const char *name) {
  for (uint32_t i = 1; i < m->n_fns; i++)
    if (strcmp(moec_sym_str(m, m->fns[i]->name), name) == 0) return (moec_fn){i};
  ck_abort_msg("no entry %s", name);
}

static int by_size(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}

/* How far gradients are off, ascending; their number. */
static size_t gradients_apart(const moec_module *m, const moec_graph *g, const moec_safetensors *golden,
                              const moec_tensor *out, double *off) {
  size_t n = 0;
  for (size_t i = 1; i < g->n_outputs; i++) {
    const char *name = moec_sym_str(m, g->output_names[i]);
    const moec_st_entry *e = golden_gradient(golden, name);
    if (!e) ck_abort_msg("%s is no gradient of golden", name);
    off[n] = norm(&e->tensor) < 1e-7 ? norm(&out[i]) : apart(&out[i], &e->tensor);
    if (getenv("MOEC_SHOW")) printf("  %s %s off by %.3g\n", name, moec_dtype_get(out[i].dtype)->text, off[n]);
    n++;
  }
  qsort(off, n, sizeof *off, by_size);
  return n;
}

START_TEST(gradients_are_near) {
  const subject *s = &subjects[_i];
  moec_safetensors *golden = golden_of(s);
  moec_module *m = compile(s, true);
  moec_fn fn = entry(m, "train");
  const moec_graph *g = moec_fn_get(m, fn);
  moec_tensor *out = run(m, fn, golden);
  double *off = calloc(g->n_outputs, sizeof *off);
  double loss = fabs(moec_load_f64(out[0].dtype, out[0].data, 0) -
                     moec_load_f64(MOEC_F32, moec_safetensors_find(golden, "loss")->tensor.data, 0));
  size_t n = gradients_apart(m, g, golden, out, off);
  ck_assert_uint_gt(n, 10);
  double median = off[n / 2], worst = off[n - 1];
  printf("%s %s: loss off by %.3g, gradients by %.3g, at most %.3g\n", s->family, s->file ? s->file : "", loss, median,
         worst);
  if (!(loss < 5e-3)) ck_abort_msg("%s: loss off by %g", s->family, loss);
  if (!(worst <= fmin(4e-2, of_torch(s, "worst")))) ck_abort_msg("%s: a gradient off by %g", s->family, worst);
  if (!(median <= of_torch(s, "median"))) ck_abort_msg("%s: half of the gradients off by %g", s->family, median);
  for (size_t i = 0; i < g->n_outputs; i++) moec_tensor_fini(&out[i]);
  free(out);
  free(off);
  moec_module_destroy(m);
  moec_safetensors_close(golden);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("narrow_graph");
  TCase *tcase = tcase_create("narrow_graph");
  tcase_set_timeout(tcase, 0);
  tcase_add_test(tcase, linear_attention_stays_as_it_is_asked_for);
  tcase_add_loop_test(tcase, logits_are_near, 0, SUBJECTS);
  tcase_add_loop_test(tcase, gradients_are_near, 0, WITH_NAMES);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
