/* The losses of routers against their formulas, and what the pass `loss` refuses. */
#include <math.h>

#include "ir/interp.h"
#include "passes/pass.h"
#include "tests/unit/unit.h"

enum { TOKENS = 5, EXPERTS = 4, K = 2 };

/* Two routers over the same logits, one of them in a function that is called. */
static const char text[] =
    "module \"\" {\n}\n"
    "fn @\"main\"(%1 \"x\" : f32[5, 4], %2 \"attention_mask\" : i64[1, 5]) -> (%8 \"l\") {\n"
    "  %3 = call(%1) {fn = @\"layer\"} : f32[5, 2]\n"
    "  %4 = softmax(%1) {axis = 1} : f32[5, 4]\n"
    "  %5 = moe.select(%4) {k = 2} : i64[5, 2]\n"
    "  %6 = gather_elements(%4, %5) {axis = 1} : f32[5, 2]\n"
    "  %7 = mul(%3, %6) : f32[5, 2]\n"
    "  %8 = reduce_sum(%7) {axes = [0, 1]} : f32[]\n"
    "}\n"
    "fn @\"layer\"(%1 \"x\" : f32[5, 4]) -> (%4 \"w\") {\n"
    "  %2 = softmax(%1) {axis = 1} : f32[5, 4]\n"
    "  %3 = moe.select(%2) {k = 2} : i64[5, 2]\n"
    "  %4 = gather_elements(%2, %3) {axis = 1} : f32[5, 2]\n"
    "}\n";

static moec_module *parse(void) {
  moec_module *m = NULL;
  UNIT_OK(moec_parse(text, &m));
  return m;
}

static const float x[TOKENS][EXPERTS] = {
    {1, 0.5f, -1, 2}, {0, 3, 1, -2}, {-1, 0.25f, 0.5f, 0}, {2, 2.5f, -3, 1}, {0.125f, -0.5f, 4, 1.5f}};
static const int64_t mask[TOKENS] = {1, 1, 1, 0, 1};

/* The load balancing loss of one token set, seen by two equal layers, and the z-loss summed over them. */
static void formulas(double *aux, double *z) {
  double mass[EXPERTS] = {0}, chosen[EXPERTS] = {0}, count = 0, squares = 0;
  for (int t = 0; t < TOKENS; t++) {
    double sum = 0;
    if (!mask[t]) continue;
    for (int e = 0; e < EXPERTS; e++) sum += exp(x[t][e]);
    for (int e = 0; e < EXPERTS; e++) {
      int better = 0;
      for (int o = 0; o < EXPERTS; o++) better += x[t][o] > x[t][e];
      chosen[e] += better < K;
      mass[e] += exp(x[t][e]) / sum;
    }
    squares += log(sum) * log(sum);
    count++;
  }
  *aux = 0;
  for (int e = 0; e < EXPERTS; e++) *aux += EXPERTS * chosen[e] / count * mass[e] / count;
  *z = 2 * squares / count;
}

static moec_fn train_of(const moec_module *m) {
  for (uint32_t i = 1; i < m->n_fns; i++)
    if (strcmp(moec_sym_str(m, m->fns[i]->name), "train") == 0) return (moec_fn){i};
  ck_abort_msg("no entry train");
}

START_TEST(router_losses_follow_their_formulas) {
  const moec_compile_options options = {.train = true, .loss = "l", .aux_loss = 0.5, .z_loss = 0.25};
  moec_pass_ctx cx = {.options = &options};
  moec_module *m = parse();
  moec_tensor in[2], plain[1], out[3];
  UNIT_OK(moec_tensor_init(&in[0], MOEC_F32, 2, (int64_t[]){TOKENS, EXPERTS}));
  UNIT_OK(moec_tensor_init(&in[1], MOEC_I64, 2, (int64_t[]){1, TOKENS}));
  memcpy(in[0].data, x, sizeof x);
  memcpy(in[1].data, mask, sizeof mask);
  UNIT_OK(moec_interp_run(m, (moec_fn){1}, in, 2, plain, 1, NULL));
  UNIT_OK(moec_run_pass(m, "loss", &cx));
  UNIT_OK(moec_interp_run(m, train_of(m), in, 2, out, 3, NULL));
  double aux, z, own = moec_load_f64(MOEC_F32, plain[0].data, 0);
  formulas(&aux, &z);
  ck_assert(fabs(moec_load_f64(MOEC_F32, out[1].data, 0) - aux) <= 1e-5);
  ck_assert(fabs(moec_load_f64(MOEC_F32, out[2].data, 0) - z) <= 1e-4);
  ck_assert(fabs(moec_load_f64(MOEC_F32, out[0].data, 0) - (own + 0.5 * aux + 0.25 * z)) <= 1e-4);
  for (int i = 0; i < 2; i++) moec_tensor_fini(&in[i]);
  for (int i = 0; i < 3; i++) moec_tensor_fini(&out[i]);
  moec_tensor_fini(&plain[0]);
  moec_module_destroy(m);
}
END_TEST

START_TEST(wrong_losses_are_refused) {
  static const struct { const char *loss, *error; } wrong[] = {
      {NULL, "expected an output \"logits\", the model has \"l\""},
      {"loss", "expected an output \"loss\", the model has \"l\""}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    const moec_compile_options options = {.train = true, .loss = wrong[i].loss};
    moec_pass_ctx cx = {.options = &options};
    moec_module *m = parse();
    UNIT_FAILS(moec_run_pass(m, "loss", &cx), MOEC_INVALID_ARGUMENT, wrong[i].error);
    moec_module_destroy(m);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("loss");
  TCase *tcase = tcase_create("loss");
  tcase_add_test(tcase, router_losses_follow_their_formulas);
  tcase_add_test(tcase, wrong_losses_are_refused);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
