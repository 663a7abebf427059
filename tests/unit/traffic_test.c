/* Bytes through memory. A region is what could be one kernel: kernels of one function that read each other's results
 * with no library call, attention or expert stage on the way. What its kernels read and write is at most 1.3 times
 * what the region must move: the values it takes from outside, weights among them, and those it gives away, each once.
 * */
#include "frontend/frontend.h"
#include "passes/pass.h"
#include "tests/unit/unit.h"

enum { BATCH = 2, SEQ = 64 };

typedef struct traffic {
  double moved, own;
} traffic;

static double bytes_of(const moec_graph *g, moec_value v, const int64_t *symbols) {
  moec_type_info t = moec_ty(g, v);
  double n = (double)moec_dtype_get(t.dtype)->bytes;
  for (uint32_t i = 0; i < t.rank; i++) {
    int64_t d = 0;
    UNIT_OK(moec_dim_eval(g->m, t.dims[i], symbols, &d));
    n *= (double)d;
  }
  return n;
}

/* |v| without the reshapes above it. */
static moec_value stored(const moec_graph *g, moec_value v) {
  while (moec_def_op(g, v) == MOEC_OP_RESHAPE) v = moec_in(g, moec_def(g, v), 0);
  return v;
}

/* Attention is a cut of its own: it loops over all keys of a query. */
static bool is_kernel(const moec_graph *g, uint32_t n) {
  if (g->nodes[n].op != MOEC_OP_FUSED) return false;
  const moec_graph *k = moec_fn_get(g->m, MOEC_ATTRS(g, (moec_node){n}, FUSED)->fn);
  for (size_t i = 1; i < k->n_nodes; i++)
    if (k->nodes[i].op == MOEC_OP_ATTENTION) return false;
  return true;
}

/* Whether a node that is no kernel stands between region |r| and node |n|, the last node so far. */
static bool call_between(const moec_graph *g, const uint32_t *region, uint32_t r, uint32_t n) {
  enum { BEHIND = 1, BEHIND_CALL = 2 };
  uint8_t *state = calloc(g->n_nodes, 1);
  ck_assert_ptr_nonnull(state);
  for (uint32_t k = 1; k <= n; k++) { /* array order is topological */
    for (uint32_t i = 0; i < g->nodes[k].n_in; i++) state[k] |= state[moec_def(g, moec_in(g, (moec_node){k}, i)).i];
    if (state[k] && !is_kernel(g, k) && g->nodes[k].op != MOEC_OP_RESHAPE) state[k] |= BEHIND_CALL;
    if (region[k] == r) state[k] |= BEHIND;
  }
  bool between = state[n] & BEHIND_CALL;
  free(state);
  return between;
}

/* By node: the first kernel of its region; 0 for what is none. */
static uint32_t *find_regions(const moec_graph *g) {
  uint32_t *region = calloc(g->n_nodes, sizeof *region);
  ck_assert_ptr_nonnull(region);
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    if (!is_kernel(g, n)) continue;
    region[n] = n;
    for (uint32_t i = 0; i < g->nodes[n].n_in; i++) {
      uint32_t from = region[moec_def(g, stored(g, moec_in(g, (moec_node){n}, i))).i], old = region[n];
      if (!from || from == old || call_between(g, region, from, n)) continue;
      for (uint32_t k = 1; k <= n; k++) region[k] = region[k] == old ? from : region[k];
    }
  }
  return region;
}

/* Whether something outside of region |r| reads |v|, maybe as another shape. */
static bool read_outside(const moec_graph *g, const uint32_t *region, uint32_t r, moec_value v) {
  if (moec_is_output(g, v)) return true;
  for (uint32_t n = 1; n < g->n_nodes; n++)
    for (uint32_t i = 0; i < g->nodes[n].n_in; i++) {
      if (moec_in(g, (moec_node){n}, i).i != v.i) continue;
      if (g->nodes[n].op != MOEC_OP_RESHAPE) {
        if (region[n] != r) return true;
      } else if (read_outside(g, region, r, moec_out(g, (moec_node){n}, 0))) {
        return true;
      }
    }
  return false;
}

static traffic measure(const moec_graph *g, const uint32_t *region, uint32_t r, const int64_t *symbols) {
  traffic t = {0};
  bool *seen = calloc(g->n_values, sizeof *seen);
  ck_assert_ptr_nonnull(seen);
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    if (region[n] != r) continue;
    for (uint32_t i = 0; i < g->nodes[n].n_in; i++) {
      moec_value v = stored(g, moec_in(g, (moec_node){n}, i));
      if (!v.i) continue;
      t.moved += bytes_of(g, v, symbols);
      if (!seen[v.i] && region[moec_def(g, v).i] != r) t.own += bytes_of(g, v, symbols);
      seen[v.i] = true;
    }
    for (uint32_t i = 0; i < g->nodes[n].n_out; i++) {
      moec_value v = moec_out(g, (moec_node){n}, i);
      t.moved += bytes_of(g, v, symbols);
      if (read_outside(g, region, r, v)) t.own += bytes_of(g, v, symbols);
    }
  }
  free(seen);
  return t;
}

/* The worst region of |m|; *n_regions: how many there are. */
static double worst_ratio(const moec_module *m, const char *what, int *n_regions) {
  int64_t symbols[64];
  double worst = 0;
  ck_assert_uint_le(moec_dim_symbol_count(m), 64);
  for (uint32_t i = 0; i < moec_dim_symbol_count(m); i++)
    symbols[i] = strcmp(moec_dim_symbol_name(m, i), "batch") == 0 ? BATCH : SEQ;
  for (size_t f = 1; f < m->n_fns; f++) {
    moec_graph *g = m->fns[f];
    moec_build_uses(g);
    uint32_t *region = find_regions(g);
    for (uint32_t r = 1; r < g->n_nodes; r++) {
      if (region[r] != r || !g->nodes[r].n_in) continue; /* kernels of sizes alone run once */
      traffic t = measure(g, region, r, symbols);
      double ratio = t.moved / t.own;
      ++*n_regions;
      if (ratio > 1.001)
        printf("%s: %s, region of node %u: %.0f bytes moved, %.0f its own, %.2f times\n", what,
               moec_sym_str(m, g->name), r, t.moved, t.own, ratio);
      if (ratio > worst) worst = ratio;
    }
    free(region);
  }
  return worst;
}

/* minimax_m3: its indexer multiplies queries and keys by head, so norm and rope have other rows. */
static const struct { const char *model; double most; } cases[] = {
    {"qwen3_moe/model", 1.3},       {"qwen3_moe/model_train", 1.3},   {"qwen3_moe/model_bf16", 1.3},
    {"mixtral/model", 1.3},         {"mixtral/model_train", 1.3},     {"gpt_oss/model", 1.3},
    {"gpt_oss/model_train", 1.3},   {"deepseek_v3/model", 1.3},       {"deepseek_v3/model_train", 1.3},
    {"minimax_m3/model", 2},
};

START_TEST(each_region_moves_little_more_than_its_own) {
  char path[256];
  snprintf(path, sizeof path, "tests/data/%s.onnx", cases[_i].model);
  moec_module *m = NULL;
  moec_compile_options options = {.target = MOEC_TARGET_CPU, .precision = MOEC_PRECISION_F32};
  moec_pass_ctx cx = {.options = &options};
  int n = 0;
  UNIT_OK(moec_import_onnx(path, &(moec_import_options){0}, &m));
  UNIT_OK(moec_run_passes(m, &cx));
  double worst = worst_ratio(m, cases[_i].model, &n);
  printf("%s: %d regions, at most %.2f times their own bytes\n", cases[_i].model, n, worst);
  ck_assert_int_ge(n, 5);
  ck_assert_double_le(worst, cases[_i].most);
  moec_module_destroy(m);
}
END_TEST

/* Two kernels that should have been one: what lies between them is written and read for nothing. */
START_TEST(a_cut_too_many_is_seen) {
  static const char text[] =
      "module \"m\" {\n}\n"
      "fn @\"main\"(%1 \"x\" : f32[64]) -> (%3 \"y\") {\n"
      "  %2 = fused(%1) {fn = @\"k\", rows = 64} : f32[64]\n"
      "  %3 = fused(%2) {fn = @\"k\", rows = 64} : f32[64]\n"
      "}\n"
      "fn @\"k\"(%1 \"x\" : f32[64]) -> (%2 \"y\") {\n"
      "  %2 = exp(%1) : f32[64]\n"
      "}\n";
  moec_module *m = NULL;
  int n = 0;
  UNIT_OK(moec_parse(text, &m));
  UNIT_OK(moec_verify(m));
  ck_assert_double_eq_tol(worst_ratio(m, "two kernels", &n), 2, 1e-9);
  ck_assert_int_eq(n, 1);
  moec_module_destroy(m);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("traffic");
  TCase *tcase = tcase_create("traffic");
  tcase_add_loop_test(tcase, each_region_moves_little_more_than_its_own, 0, sizeof cases / sizeof *cases);
  tcase_add_test(tcase, a_cut_too_many_is_seen);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
