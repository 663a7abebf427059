/* The recognisers on exported models: how many of each composite, the same after the nodes were shuffled and every
 * name removed, and the logits of the reference. MOEC_GOLDEN: the folder of the models, tests/data where unset. */
#include <math.h>

#include "base/safetensors.h"
#include "frontend/frontend.h"
#include "ir/interp.h"
#include "passes/pass.h"
#include "tests/unit/unit.h"

typedef struct golden {
  const char *family, *file;
  int moe, attention, rms_norm, rope, swiglu;
} golden;

/* qwen3_5_moe: its gated norm, norm(x) * silu(z), is a swiglu too. */
static const golden files[] = {
    {"qwen3_moe", "model", 3, 3, 13, 6, 3},        {"qwen3_moe", "model_train", 3, 3, 13, 6, 3},
    {"qwen3_moe", "model_static", 3, 3, 13, 6, 3}, {"qwen3_moe", "model_bf16", 3, 3, 13, 6, 3},
    {"mixtral", "model", 3, 3, 7, 6, 3},           {"mixtral", "model_train", 3, 3, 7, 6, 3},
    {"deepseek_v3", "model", 2, 3, 13, 6, 5},      {"deepseek_v3", "model_train", 2, 3, 13, 6, 5},
    {"gpt_oss", "model", 3, 3, 7, 6, 3},           {"gpt_oss", "model_train", 3, 3, 7, 6, 3},
    {"minimax_m3", "model", 2, 3, 15, 8, 5},       {"minimax_m3", "model_train", 2, 3, 15, 8, 5},
    {"qwen3_5_moe", "model_static", 3, 1, 11, 2, 8},
};

static const char *const passes[] = {"simplify",  "raise_norm",   "raise_rope",    "raise_attention",
                                     "raise_moe", "raise_swiglu", "simplify_again"};

static const char *path_of(char out[512], const golden *f, const char *name, const char *suffix) {
  const char *root = getenv("MOEC_GOLDEN");
  snprintf(out, 512, "%s/%s/%s%s", root ? root : "tests/data", f->family, name, suffix);
  return out;
}

static moec_module *import(const golden *f) {
  char path[512];
  moec_module *m = NULL;
  moec_import_options options = {0};
  UNIT_OK(moec_import_onnx(path_of(path, f, f->file, ".onnx"), &options, &m));
  return m;
}

static void run_passes(const golden *f, moec_module *m) {
  moec_compile_options options = {.target = MOEC_TARGET_CPU};
  moec_pass_ctx cx = {.options = &options};
  for (size_t i = 0; i < sizeof passes / sizeof *passes; i++)
    UNIT_OK(moec_context(moec_run_pass(m, passes[i], &cx), "%s/%s", f->family, f->file));
  for (size_t i = 0; i < cx.remarks.n && getenv("MOEC_REMARKS"); i++)
    fprintf(stderr, "%s/%s: %s\n", f->family, f->file, cx.remarks.lines[i]);
}

static int count(const moec_module *m, moec_op op) {
  int n = 0;
  for (size_t k = 1; k < m->n_fns; k++)
    for (size_t i = 1; i < m->fns[k]->n_nodes; i++) n += m->fns[k]->nodes[i].op == op;
  return n;
}

static void check_counts(const golden *f, const moec_module *m, const char *when) {
  const struct { const char *what; int want, got; } c[] = {
      {"moe.select", f->moe, count(m, MOEC_OP_MOE_SELECT)},       {"moe.plan", f->moe, count(m, MOEC_OP_MOE_PLAN)},
      {"moe.dispatch", f->moe, count(m, MOEC_OP_MOE_DISPATCH)},   {"moe.grouped_dot", 2 * f->moe,
          count(m, MOEC_OP_MOE_GROUPED_DOT)},
      {"moe.weight", f->moe, count(m, MOEC_OP_MOE_WEIGHT)},       {"moe.combine", f->moe,
          count(m, MOEC_OP_MOE_COMBINE)},
      {"attention", f->attention, count(m, MOEC_OP_ATTENTION)},   {"rms_norm", f->rms_norm, count(m, MOEC_OP_RMS_NORM)},
      {"rope", f->rope, count(m, MOEC_OP_ROPE)},                  {"swiglu", f->swiglu, count(m, MOEC_OP_SWIGLU)}};
  for (size_t i = 0; i < sizeof c / sizeof *c; i++)
    if (c[i].want != c[i].got)
      ck_abort_msg("%s/%s%s: %d %s, expected %d", f->family, f->file, when, c[i].got, c[i].what, c[i].want);
}

START_TEST(composites_are_counted) {
  moec_module *m = import(&files[_i]);
  run_passes(&files[_i], m);
  check_counts(&files[_i], m, "");
  moec_module_destroy(m);
}
END_TEST

/* ---- renamed, stripped and shuffled ----------------------------------------------------------- */

static uint64_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

static void scramble(moec_graph *g, uint64_t state) {
  for (size_t i = 1; i < g->n_nodes; i++) g->nodes[i].loc = (moec_sym){0};
  for (size_t i = 1; i < g->n_values; i++) g->values[i].name = (moec_sym){0};
  for (size_t i = g->n_nodes - 1; i > 1; i--) {
    size_t k = 1 + next_random(&state) % i;
    moec_node_info n = g->nodes[i];
    g->nodes[i] = g->nodes[k];
    g->nodes[k] = n;
  }
  for (uint32_t i = 1; i < g->n_nodes; i++)
    for (uint32_t k = 0; k < g->nodes[i].n_out; k++) g->values[g->edges[g->nodes[i].out + k].i].def = (moec_node){i};
}

START_TEST(order_and_names_do_not_matter) {
  moec_module *m = import(&files[_i]);
  for (size_t k = 1; k < m->n_fns; k++) scramble(m->fns[k], 7 + (uint64_t)_i);
  for (uint32_t i = 1; i <= moec_param_count(m); i++) {
    char name[32];
    snprintf(name, sizeof name, "p%u", i);
    moec_param_get(m, (moec_param){i})->name = moec_sym_make(m, name);
  }
  run_passes(&files[_i], m);
  check_counts(&files[_i], m, " scrambled");
  moec_module_destroy(m);
}
END_TEST

/* ---- logits ----------------------------------------------------------------------------------- */

static double difference(const moec_tensor *a, const moec_tensor *b) {
  double worst = 0;
  ck_assert_int_eq(moec_tensor_numel(a), moec_tensor_numel(b));
  for (int64_t i = 0; i < moec_tensor_numel(a); i++) {
    double d = fabs(moec_load_f64(a->dtype, a->data, (size_t)i) - moec_load_f64(b->dtype, b->data, (size_t)i));
    if (!(d <= worst)) worst = isnan(d) ? INFINITY : d;
  }
  return worst;
}

static moec_tensor logits_of(const golden *f, const moec_module *m, const moec_tensor *ids) {
  moec_tensor out = {0};
  moec_interp_options options = {.f64 = true};
  UNIT_OK(moec_context(moec_interp_run(m, (moec_fn){1}, ids, 1, &out, 1, &options), "%s/%s", f->family, f->file));
  return out;
}

START_TEST(logits_stay) {
  const golden *f = &files[_i];
  char path[512];
  moec_safetensors *s = NULL;
  UNIT_OK(moec_safetensors_open(path_of(path, f, "golden", ".safetensors"), &s));
  moec_tensor ids = moec_safetensors_find(s, "input_ids")->tensor, want = moec_safetensors_find(s, "logits")->tensor;
  moec_module *m = import(f);
  moec_tensor before = logits_of(f, m, &ids);
  run_passes(f, m);
  moec_tensor after = logits_of(f, m, &ids);
  double moved = difference(&after, &before), off = difference(&after, &want);
  if (!(moved < 1e-4)) ck_abort_msg("%s/%s: the passes moved a logit by %g", f->family, f->file, moved);
  if (!strstr(f->file, "bf16") && !(off < 1e-4)) ck_abort_msg("%s/%s: a logit is off by %g", f->family, f->file, off);
  moec_tensor_fini(&before);
  moec_tensor_fini(&after);
  moec_module_destroy(m);
  moec_safetensors_close(s);
}
END_TEST

int main(void) {
  int n = sizeof files / sizeof *files;
  Suite *suite = suite_create("raise_golden");
  TCase *tcase = tcase_create("raise_golden");
  tcase_add_loop_test(tcase, composites_are_counted, 0, n);
  tcase_add_loop_test(tcase, order_and_names_do_not_matter, 0, n);
  tcase_add_loop_test(tcase, logits_stay, 0, n);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
