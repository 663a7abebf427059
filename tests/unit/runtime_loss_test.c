/* The step of a linear layer's loss on the processor, in chunks of every kind, against the interpreter. */
#include <math.h>

#include "base/tensor.h"
#include "include/moec.h"
#include "ir/builder.h"
#include "ir/interp.h"
#include "tests/unit/runtime_step.h"

enum { IGNORE = -100 };

typedef struct loss_case {
  int64_t tokens, hidden, vocabulary, chunk;
  bool transposed;
  int64_t every; /* one of so many tokens counts */
} loss_case;

static const loss_case cases[] = {
    {7, 5, 11, 7, true, 1},    {7, 5, 11, 7, false, 1},  {7, 5, 11, 3, true, 2},   {7, 5, 11, 3, false, 2},
    {8, 4, 16, 4, true, 1},    {1, 3, 9, 1, true, 1},    {5, 3, 9, 2, true, 1000}, /* none counts but the first */
    {300, 33, 130, 128, true, 3}, {300, 33, 130, 64, false, 3}, {6, 1, 1, 4, true, 1}, {0, 4, 9, 0, true, 1},
    {0, 4, 9, 3, false, 1}};
enum { N_CASES = sizeof cases / sizeof *cases };

typedef struct operands {
  moec_tensor in[4];
} operands;

static operands make(const loss_case *k, bool none) {
  operands o;
  unsigned seed = 7;
  const int64_t x[] = {k->tokens, k->hidden};
  const int64_t w[] = {k->transposed ? k->vocabulary : k->hidden, k->transposed ? k->hidden : k->vocabulary};
  o.in[0] = step_random(MOEC_F32, 2, x, &seed);
  o.in[1] = step_random(MOEC_F32, 2, w, &seed);
  o.in[3] = step_random(MOEC_F32, 1, x, &seed);
  UNIT_OK(moec_tensor_init(&o.in[2], MOEC_I64, 1, x));
  int64_t *label = o.in[2].data;
  for (int64_t t = 0; t < k->tokens; t++) {
    seed = seed * 1664525u + 1013904223u;
    label[t] = none || t % k->every ? IGNORE : (int64_t)(seed >> 8) % k->vocabulary;
  }
  return o;
}

static void release(operands *o) {
  for (int i = 0; i < 4; i++) moec_tensor_fini(&o->in[i]);
}

static one_step step_of(const loss_case *k, const operands *o) {
  const int64_t room[] = {k->chunk, (k->vocabulary + 3) / 4 * 4};
  one_step s = {.op = MOEC_STEP_LINEAR_CROSS_ENTROPY, .n_in = 4, .n_out = 4, .n_ints = 2,
                .ints = {k->transposed, IGNORE}};
  for (int i = 0; i < 4; i++) s.in[i] = &o->in[i];
  s.out[0] = step_tensor(MOEC_F32, 1, o->in[0].dims);
  s.out[1] = step_tensor(MOEC_F32, 2, o->in[0].dims);
  s.out[2] = step_tensor(MOEC_F32, 2, o->in[1].dims);
  s.out[3] = step_tensor(MOEC_F32, 2, room);
  return s;
}

/* The same bytes on 1, 2 and 3 threads; what lies behind the logits in their room doesn't count. */
static void run_all(one_step *s) {
  one_step first = *s;
  UNIT_OK(step_run(&first, 1));
  for (int threads = 2; threads <= 3; threads++) {
    one_step next = *s;
    UNIT_OK(step_run(&next, threads));
    for (uint32_t i = 0; i < 3; i++)
      if (s->out[i].dtype != MOEC_DTYPE_NONE)
        UNIT_TRUE(!memcmp(first.out[i].data, next.out[i].data, moec_tensor_bytes(&first.out[i])));
    step_fini(&next);
  }
  *s = first;
}

/* By its meaning. */
static void interpret(const loss_case *k, const operands *o, moec_tensor want[3]) {
  moec_module *m = moec_module_create();
  moec_builder b = moec_builder_on(moec_fn_get(m, moec_fn_add(m, "main")));
  moec_attrs_LINEAR_CROSS_ENTROPY a = {.transposed = k->transposed, .ignore = IGNORE, .chunk = moec_dim_const(m, 1)};
  moec_value v[4];
  for (int i = 0; i < 4; i++) {
    moec_dim dims[2];
    for (uint32_t d = 0; d < o->in[i].rank; d++) dims[d] = moec_dim_const(m, o->in[i].dims[d]);
    v[i] = moec_add_input(b.g, "x", moec_type_make(m, o->in[i].dtype, o->in[i].rank, dims));
  }
  moec_value y = moec_b_op(&b, MOEC_OP_LINEAR_CROSS_ENTROPY, &a, 4, v, 3);
  UNIT_OK(moec_builder_end(&b));
  for (uint32_t i = 0; i < 3; i++) moec_add_output(b.g, "y", moec_out(b.g, moec_def(b.g, y), i));
  UNIT_OK(moec_interp_run(m, (moec_fn){1}, o->in, 4, want, 3, NULL));
  moec_module_destroy(m);
}

static void check_close(const moec_tensor *got, const moec_tensor *want, const loss_case *k, int result) {
  for (int64_t i = 0; i < moec_tensor_numel(want); i++) {
    double x = step_at(got, i), y = step_at(want, i);
    if (!(fabs(x - y) <= 2e-5 * fmax(1, fabs(y))))
      ck_abort_msg("case %td, result %d, element %lld: got %.9g, expected %.9g", k - cases, result, (long long)i, x, y);
  }
}

START_TEST(every_chunk) {
  for (int none = 0; none < 2; none++)
    for (size_t i = 0; i < N_CASES; i++) {
      operands o = make(&cases[i], none);
      one_step s = step_of(&cases[i], &o);
      moec_tensor want[3];
      interpret(&cases[i], &o, want);
      run_all(&s);
      for (int r = 0; r < 3; r++) check_close(&s.out[r], &want[r], &cases[i], r), moec_tensor_fini(&want[r]);
      step_fini(&s);
      release(&o);
    }
}
END_TEST

/* Each result alone is what it is with the others. */
START_TEST(results_alone) {
  const loss_case *k = &cases[2];
  operands o = make(k, false);
  one_step all = step_of(k, &o);
  run_all(&all);
  for (int r = 0; r < 3; r++) {
    one_step s = step_of(k, &o);
    for (int i = 0; i < 3; i++)
      if (i != r) s.out[i].dtype = MOEC_DTYPE_NONE;
    run_all(&s);
    UNIT_TRUE(!memcmp(s.out[r].data, all.out[r].data, moec_tensor_bytes(&all.out[r])));
    step_fini(&s);
  }
  step_fini(&all);
  release(&o);
}
END_TEST

/* Logits without bounds: rows as the interpreter has them. */
START_TEST(infinities) {
  const loss_case k = {4, 1, 3, 2, true, 1};
  operands o = make(&k, false);
  const float x[] = {1, 1e4f, -1, 1}, w[] = {-INFINITY, 2, 3}, top[] = {-INFINITY, -INFINITY, -INFINITY};
  for (int round = 0; round < 2; round++) {
    memcpy(o.in[0].data, x, sizeof x);
    memcpy(o.in[1].data, round ? top : w, sizeof w);
    for (int64_t t = 0; t < 4; t++) ((int64_t *)o.in[2].data)[t] = t % 3;
    moec_tensor want[3];
    one_step s = step_of(&k, &o);
    interpret(&k, &o, want);
    run_all(&s);
    for (int64_t t = 0; t < 4; t++) {
      double got = step_at(&s.out[0], t), y = step_at(&want[0], t);
      if (!((isnan(got) && isnan(y)) || got == y || fabs(got - y) <= 1e-5 * fabs(y)))
        ck_abort_msg("token %lld: got %g, expected %g", (long long)t, got, y);
    }
    for (int r = 0; r < 3; r++) moec_tensor_fini(&want[r]);
    step_fini(&s);
  }
  release(&o);
}
END_TEST

START_TEST(wrong_labels) {
  static const int64_t wrong[] = {-1, 11, INT64_MAX, INT64_MIN};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    operands o = make(&cases[2], false);
    one_step s = step_of(&cases[2], &o);
    ((int64_t *)o.in[2].data)[5] = wrong[i];
    UNIT_FAILS(step_run(&s, 1), MOEC_INVALID_ARGUMENT,
               "an index is out of range: expected labels below 11, token 5 has");
    release(&o);
  }
}
END_TEST

START_TEST(wrong_operands) {
  const int64_t narrow[] = {3, 8}, uneven[] = {3, 13}, none[] = {0, 12};
  operands o = make(&cases[2], false);
  one_step s = step_of(&cases[2], &o);
  s.out[3] = step_tensor(MOEC_F32, 2, narrow);
  UNIT_FAILS(step_run(&s, 1), MOEC_INVALID_MODEL, "expected room for logits f32[tokens, 11 or more]");
  s.out[3] = step_tensor(MOEC_F32, 2, uneven);
  UNIT_FAILS(step_run(&s, 1), MOEC_INVALID_MODEL, "in rows of 16 bytes, got f32[3, 13]");
  s.out[3] = step_tensor(MOEC_F32, 2, none);
  UNIT_FAILS(step_run(&s, 1), MOEC_INVALID_MODEL, "expected room for logits");
  s = step_of(&cases[2], &o);
  s.ints[0] = 0;
  UNIT_FAILS(step_run(&s, 1), MOEC_INVALID_MODEL, "expected w f32[5, 5], got f32[11, 5]");
  s = step_of(&cases[2], &o);
  s.in[3] = &o.in[0];
  UNIT_FAILS(step_run(&s, 1), MOEC_INVALID_MODEL, "expected scale f32[7], got f32[7, 5]");
  s = step_of(&cases[2], &o);
  s.out[2] = step_tensor(MOEC_F32, 2, o.in[0].dims);
  UNIT_FAILS(step_run(&s, 1), MOEC_INVALID_MODEL, "expected the gradient of w f32[11, 5], got f32[7, 5]");
  release(&o);
}
END_TEST

UNIT_MAIN("runtime_loss", every_chunk, results_alone, infinities, wrong_labels, wrong_operands)
