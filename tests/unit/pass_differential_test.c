/* Each case of tests/passes computes the same before and after its pass, on random inputs of several sizes, some with
 * NaN, infinities and zeros of both signs. In f64 without rounding, so that a reordered sum is no difference; constants
 * of the model are f32 still, and what a pass computes from them may be exact. */
#include <math.h>

#include "ir/interp.h"
#include "passes/pass.h"
#include "tests/unit/pass_cases.h"

static uint64_t state;

static uint64_t next(void) { /* xorshift64* */
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 2685821657736338717u;
}

static double random_float(bool special) {
  static const double odd[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1.0, -1.0};
  if (special && next() % 4 == 0) return odd[next() % 7];
  return (double)(next() >> 11) / 9007199254740992.0 * 4 - 2;
}

static void fill(moec_tensor *t, bool special) {
  for (int64_t i = 0; i < moec_tensor_numel(t); i++) {
    if (moec_dtype_is_float(t->dtype)) moec_store_f64(t->dtype, t->data, (size_t)i, random_float(special));
    else moec_store_i64(t->dtype, t->data, (size_t)i, (int64_t)(next() % 2)); /* an index that fits most axes */
  }
}

/* Parsed modules have no bytes for their parameters: gives them some. */
static void fill_params(moec_module *m) {
  for (uint32_t i = 1; i <= moec_param_count(m); i++) {
    moec_param_info *p = moec_param_get(m, (moec_param){i});
    moec_type_info t = moec_type_get(m, p->type);
    moec_piece *piece = MOEC_NEW(m->arena, moec_piece);
    *piece = (moec_piece){.file = UINT32_MAX, .dtype = p->storage, .rank = t.rank};
    for (uint32_t k = 0; k < t.rank; k++) {
      ck_assert(moec_dim_is_const(m, t.dims[k], &piece->shape[k]));
      piece->perm[k] = k;
    }
    moec_tensor data;
    UNIT_OK(moec_tensor_init(&data, p->storage, t.rank, piece->shape));
    fill(&data, false);
    piece->inline_bytes = moec_arena_copy(m->arena, data.data, moec_tensor_bytes(&data));
    moec_tensor_fini(&data);
    p->pieces = piece, p->n_pieces = 1;
  }
}

enum { MAX_VALUES = 32 };

static void make_inputs(const moec_module *m, const int64_t *symbols, bool special, moec_tensor *in) {
  const moec_graph *g = moec_main(m);
  for (size_t i = 0; i < g->n_inputs; i++) {
    moec_type_info t = moec_ty(g, g->inputs[i]);
    int64_t dims[MOEC_MAX_RANK] = {0};
    for (uint32_t k = 0; k < t.rank; k++) UNIT_OK(moec_dim_eval(m, t.dims[k], symbols, &dims[k]));
    UNIT_OK(moec_tensor_init(&in[i], t.dtype, t.rank, dims));
    fill(&in[i], special);
  }
}

static bool close_enough(double a, double b) {
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
  return a == b || fabs(a - b) <= 1e-6 * (1 + fabs(a) + fabs(b));
}

static void compare(const pass_case *c, const moec_tensor *a, const moec_tensor *b, size_t output) {
  bool same = a->dtype == b->dtype && a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof a->dims[0]) == 0;
  if (!same) ck_abort_msg("%s: output %zu changed its type", c->file, output);
  for (int64_t i = 0; i < moec_tensor_numel(a); i++) {
    double x = moec_load_f64(a->dtype, a->data, (size_t)i), y = moec_load_f64(b->dtype, b->data, (size_t)i);
    if (!close_enough(x, y))
      ck_abort_msg("%s: output %zu, element %lld: %.17g became %.17g", c->file, output, (long long)i, x, y);
  }
}

/* False: these sizes or indices are not for this model. */
static bool run_both(const pass_case *c, const moec_module *before, const moec_module *after, bool special,
                     const int64_t *symbols) {
  const moec_graph *g = moec_main(before);
  moec_interp_options options = {.f64 = true};
  moec_tensor in[MAX_VALUES] = {0}, x[MAX_VALUES] = {0}, y[MAX_VALUES] = {0};
  ck_assert(g->n_inputs <= MAX_VALUES && g->n_outputs <= MAX_VALUES);
  make_inputs(before, symbols, special, in);
  moec_status *s = moec_interp_run(before, (moec_fn){1}, in, g->n_inputs, x, g->n_outputs, &options);
  bool ran = !s;
  if (s && moec_status_code(s) == MOEC_INTERNAL) ck_abort_msg("%s: %s", c->file, moec_status_message(s));
  moec_status_free(s);
  if (ran) {
    UNIT_OK(
        moec_context(moec_interp_run(after, (moec_fn){1}, in, g->n_inputs, y, g->n_outputs, &options), "%s", c->file));
    for (size_t i = 0; i < g->n_outputs; i++) compare(c, &x[i], &y[i], i);
  }
  for (size_t i = 0; i < MAX_VALUES; i++) {
    moec_tensor_fini(&in[i]);
    moec_tensor_fini(&x[i]);
    moec_tensor_fini(&y[i]);
  }
  return ran;
}

static void check_values(pass_case *c) {
  state = 88172645463325252u;
  moec_module *before = pass_case_parse(c);
  fill_params(before);
  moec_module *after = moec_module_clone(before);
  pass_case_run(c, after);
  int ran = 0;
  bool special = strncmp(c->head, "; finite: ", 10) != 0; /* the case is about finite numbers only */
  for (int64_t round = 0; round < 12; round++) {
    int64_t symbols[64];
    ck_assert_uint_le(moec_dim_symbol_count(before), 64);
    for (uint32_t i = 0; i < moec_dim_symbol_count(before); i++) symbols[i] = (int64_t)(next() % 6);
    if (round == 0) /* the usual sizes */
      for (uint32_t i = 0; i < moec_dim_symbol_count(before); i++) symbols[i] = 2 + (int64_t)i;
    ran += run_both(c, before, after, special && round % 3 == 2, symbols);
  }
  if (ran == 0) ck_abort_msg("%s: ran for no sizes", c->file);
  moec_module_destroy(after);
  moec_module_destroy(before);
}

START_TEST(every_case_keeps_its_values) { pass_case_each(check_values); }
END_TEST

UNIT_MAIN("pass_differential", every_case_keeps_its_values)
