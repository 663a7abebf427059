/* bf16 as a graph, before any code is made of it: the reference models with --precision bf16, run by the reference
 * interpreter, against what transformers computed in f32: logits, loss and gradients as far apart as rounding to eight
 * bits makes them. */
#include "frontend/frontend.h"
#include "ir/interp.h"
#include "passes/pass.h"
#include "tests/support/gradients.h"

/* |logits|: how far all of them may be off. In the last two a token takes another expert than in f32, and in
 * qwen3_5_moe the tokens behind it remember. */
typedef struct subject {
  const char *family, *file;
  double logits;
} subject;

static const subject subjects[] = {{"mixtral", "model_train", 1.5e-2},     {"qwen3_moe", "model_train", 1.5e-2},
                                   {"deepseek_v3", "model_train", 1.5e-2}, {"gpt_oss", "model_train", 1.5e-2},
                                   {"minimax_m3", "model_train", 1.5e-2},  {"qwen3_moe", "model_bf16", 2.5e-2},
                                   {"qwen3_5_moe", "model_static", 0.3}};
enum { SUBJECTS = 7, WITH_NAMES = 5 }; /* the others' parameters have lost their names */

/* Every pass up to and with `grad`. */
static moec_module *compile(const subject *s, moec_precision precision, bool train) {
  static const char *const passes[] = {
#define PASS(name, what) #name,
#include "passes/passes.def"
#undef PASS
  };
  const moec_compile_options options = {.target = MOEC_TARGET_CUDA, .precision = precision, .train = train};
  moec_pass_ctx cx = {.options = &options};
  moec_import_options io = {0};
  char path[256];
  moec_module *m = NULL;
  snprintf(path, sizeof path, "tests/data/%s/%s.onnx", s->family, s->file);
  UNIT_OK(moec_import_onnx(path, &io, &m));
  for (size_t i = 0; i == 0 || strcmp(passes[i - 1], "grad") != 0; i++)
    UNIT_OK(moec_context(moec_run_pass(m, passes[i], &cx), "%s", s->family));
  return m;
}

static moec_safetensors *golden_of(const subject *s) {
  char path[256];
  moec_safetensors *golden = NULL;
  snprintf(path, sizeof path, "tests/data/%s/golden.safetensors", s->family);
  UNIT_OK(moec_safetensors_open(path, &golden));
  return golden;
}

/* |a - b| / |b| of elements first .. first + count, as vectors. */
static double part_apart(const moec_tensor *a, const moec_tensor *b, int64_t first, int64_t count) {
  double d = 0, n = 0;
  for (int64_t i = first; i < first + count; i++) {
    double x = moec_load_f64(a->dtype, a->data, (size_t)i), y = moec_load_f64(b->dtype, b->data, (size_t)i);
    d += (x - y) * (x - y), n += y * y;
  }
  return sqrt(d / n);
}

static double apart(const moec_tensor *a, const moec_tensor *b) {
  ck_assert_int_eq(moec_tensor_numel(a), moec_tensor_numel(b));
  return part_apart(a, b, 0, moec_tensor_numel(b));
}

static int by_size(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}

/* How far the logits of a token are off that a quarter of the tokens is nearer than. */
static double quarter_apart(const moec_tensor *a, const moec_tensor *b) {
  int64_t width = b->dims[2], tokens = moec_tensor_numel(b) / width;
  double *each = calloc((size_t)tokens, sizeof *each);
  for (int64_t t = 0; t < tokens; t++) each[t] = part_apart(a, b, t * width, width);
  qsort(each, (size_t)tokens, sizeof *each, by_size);
  double r = each[tokens / 4];
  free(each);
  return r;
}

START_TEST(logits_are_near) {
  const subject *s = &subjects[_i];
  moec_safetensors *golden = golden_of(s);
  moec_module *m = compile(s, MOEC_PRECISION_BF16, false);
  moec_tensor ids = moec_safetensors_find(golden, "input_ids")->tensor, out = {0};
  UNIT_OK(moec_interp_run(m, (moec_fn){1}, &ids, 1, &out, 1, NULL));
  ck_assert_int_eq(out.dtype, moec_ty(moec_main(m), moec_main(m)->outputs[0]).dtype);
  ck_assert_int_eq(out.dtype, MOEC_F32); /* the interface stays what it was */
  const moec_tensor *want = &moec_safetensors_find(golden, "logits")->tensor;
  double off = apart(&out, want), quarter = quarter_apart(&out, want);
  printf("%s %s: logits off by %.3g, of the nearest quarter of tokens %.3g\n", s->family, s->file, off, quarter);
  if (!(off > 0 && off < s->logits)) ck_abort_msg("%s: logits off by %g", s->family, off);
  if (!(quarter < 2.5e-2)) ck_abort_msg("%s: logits of most tokens off by %g", s->family, quarter);
  moec_tensor_fini(&out);
  moec_module_destroy(m);
  moec_safetensors_close(golden);
}
END_TEST

static moec_graph *entry(const moec_module *m, const char *name, moec_fn *fn) {
  for (uint32_t i = 1; i < m->n_fns; i++)
    if (strcmp(moec_sym_str(m, m->fns[i]->name), name) == 0) return *fn = (moec_fn){i}, m->fns[i];
  ck_abort_msg("no entry %s", name);
}

START_TEST(gradients_are_near) {
  const subject *s = &subjects[_i];
  moec_safetensors *golden = golden_of(s);
  moec_module *m = compile(s, MOEC_PRECISION_BF16, true);
  moec_fn fn;
  moec_graph *g = entry(m, "train", &fn);
  moec_tensor in[4], *out = calloc(g->n_outputs, sizeof *out);
  double worst = 0;
  for (size_t i = 0; i < g->n_inputs; i++) {
    const char *name = moec_sym_str(m, moec_value_get(g, g->inputs[i])->name);
    in[i] = moec_safetensors_find(golden, name)->tensor;
  }
  UNIT_OK(moec_interp_run(m, fn, in, g->n_inputs, out, g->n_outputs, NULL));
  double loss = fabs(moec_load_f64(out[0].dtype, out[0].data, 0) -
                     moec_load_f64(MOEC_F32, moec_safetensors_find(golden, "loss")->tensor.data, 0));
  for (size_t i = 1; i < g->n_outputs; i++) {
    const char *name = moec_sym_str(m, g->output_names[i]);
    const moec_st_entry *e = golden_gradient(golden, name);
    if (!e) ck_abort_msg("%s: %s is no gradient of golden", s->family, name);
    double off = apart(&out[i], &e->tensor);
    if (off > worst) worst = off;
    if (getenv("MOEC_SHOW")) printf("  %s %s off by %.3g\n", name, moec_dtype_get(out[i].dtype)->text, off);
  }
  printf("%s %s: loss off by %.3g, gradients by at most %.3g\n", s->family, s->file, loss, worst);
  if (!(loss < 5e-3)) ck_abort_msg("%s: loss off by %g", s->family, loss);
  if (!(worst < 6e-2)) ck_abort_msg("%s: a gradient off by %g", s->family, worst);
  for (size_t i = 0; i < g->n_outputs; i++) moec_tensor_fini(&out[i]);
  free(out);
  moec_module_destroy(m);
  moec_safetensors_close(golden);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("narrow_graph");
  TCase *tcase = tcase_create("narrow_graph");
  tcase_set_timeout(tcase, 0);
  tcase_add_loop_test(tcase, logits_are_near, 0, SUBJECTS);
  tcase_add_loop_test(tcase, gradients_are_near, 0, WITH_NAMES);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
