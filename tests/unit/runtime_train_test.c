/* Programs that share a file: losses, gradients, micro-batches, optimizers, and what an update derives. */
#include <math.h>
#include <pthread.h>

#include "base/safetensors.h"
#include "base/tensor.h"
#include "include/moec.h"
#include "tests/unit/train_sample.h"

static train_setup files;

static moec_model *open_plan(plan_builder *b, int threads, uint8_t **file) {
  return train_open(&files, train_target(b), threads, file);
}

static float *gradient(moec_model *m, const char *name) {
  moec_view v;
  UNIT_OK(moec_gradient_of(m, name, &v));
  UNIT_TRUE(v.dtype == MOEC_DTYPE_F32);
  return v.data;
}

static void close_to(const float *got, const double *want, int64_t n, double tolerance) {
  for (int64_t i = 0; i < n; i++) {
    double off = fabs((double)got[i] - want[i]);
    ck_assert_msg(off <= tolerance * (1 + fabs(want[i])), "element %d: expected %.9g, got %.9g",
                  (int)i, want[i], (double)got[i]);
  }
}

static train_want step(moec_model *m, train_io *t, int64_t n, int accumulate, double *loss) {
  train_give(m, "x", t->x, n);
  train_give(m, "labels", t->other, n);
  train_want r =
      train_reference(n, train_parameter(m, "w"), train_parameter(m, "v"), t->x, t->other, NULL);
  UNIT_OK(moec_loss_and_gradients(m, accumulate, loss));
  return r;
}

START_TEST(test_loss_and_gradients) {
  for (int threads = 1; threads <= 3; threads++) {
    uint8_t *file;
    moec_model *m = open_plan(train_build(), threads, &file);
    train_io t;
    moec_view v;
    moec_counters c;
    uint32_t i;
    double loss;
    train_fill(&t, 1);
    for (int k = 0; k < 3; k++) { /* sizes come and go; programs share their memory */
      int64_t n = k == 1 ? 8 : 37;
      train_want r = step(m, &t, n, 0, &loss);
      UNIT_TRUE(fabs(loss - r.loss) < 1e-4 * r.loss);
      close_to(gradient(m, "w"), r.w, 4, 1e-5);
      UNIT_TRUE(gradient(m, "t") == gradient(m, "w"));
      close_to(gradient(m, "v"), r.v, 4, 1e-5);
      UNIT_OK(moec_find(m, MOEC_OUTPUTS, "grad.x", &i));
      UNIT_OK(moec_output(m, i, &v));
      UNIT_TRUE(v.dims[0] == n);
      close_to(v.data, r.dx, n, 1e-5);
      UNIT_FAILS(moec_output(m, 0, &v), MOEC_INVALID_ARGUMENT, "output \"y\": it is none of");
      moec_counters_get(m, &c);
      ck_assert_uint_eq(c.kernels_per_step, 3);
      UNIT_OK(moec_forward(m));
      UNIT_OK(moec_output(m, 0, &v));
      close_to(v.data, r.y, n, 1e-6);
      moec_counters_get(m, &c);
      ck_assert_uint_eq(c.kernels_per_step, 1);
      train_give(m, "grad.y", t.other, n);
      UNIT_OK(moec_vjp(m, 0));
      r = train_reference(n, train_w, train_v, t.x, NULL, t.other);
      close_to(gradient(m, "w"), r.w, 4, 1e-5);
      close_to(gradient(m, "v"), r.v, 4, 1e-5);
    }
    moec_counters_get(m, &c);
    UNIT_TRUE(c.forwards == 3 && c.backwards == 6 && c.updates == 0);
    ck_assert_uint_eq(c.allocations_after_first, 0);
    ck_assert_uint_eq(c.placements, 2);
    UNIT_TRUE(c.program_bytes[MOEC_FORWARD] < c.program_bytes[MOEC_TRAIN]);
    ck_assert_uint_eq(c.step_bytes, c.program_bytes[MOEC_TRAIN]);
    UNIT_TRUE(c.mapped_bytes == 2 * 16 && c.optimizer_bytes == 0);
    moec_close(m);
    free(file);
  }
}
END_TEST

START_TEST(test_inputs_and_outputs_of_programs) {
  uint8_t *file;
  moec_model *m = open_plan(train_build(), 1, &file);
  static const struct {
    moec_list list;
    const char *name;
    unsigned programs;
  } want[] = {{MOEC_INPUTS, "x", 7},  {MOEC_INPUTS, "labels", 2}, {MOEC_INPUTS, "grad.y", 4},
              {MOEC_OUTPUTS, "y", 1}, {MOEC_OUTPUTS, "loss", 2},  {MOEC_OUTPUTS, "grad.x", 6}};
  moec_description d;
  train_io t;
  ck_assert_uint_eq(moec_count(m, MOEC_INPUTS), 3);
  ck_assert_uint_eq(moec_count(m, MOEC_OUTPUTS), 3);
  for (uint32_t i = 0; i < 6; i++) {
    UNIT_OK(moec_describe(m, want[i].list, i % 3, &d));
    UNIT_TRUE(!strcmp(d.name, want[i].name) && d.programs == want[i].programs);
  }
  UNIT_OK(moec_describe(m, MOEC_PARAMETERS, 1, &d));
  UNIT_TRUE(d.trainable && d.has_gradient);
  UNIT_OK(moec_describe(m, MOEC_PARAMETERS, 3, &d));
  UNIT_TRUE(d.trainable && !d.has_gradient);
  train_fill(&t, 1);
  train_give(m, "x", t.x, 8);
  UNIT_OK(moec_forward(m)); /* needs no labels */
  UNIT_FAILS(moec_loss_and_gradients(m, 0, NULL), MOEC_INVALID_ARGUMENT,
             "input \"labels\" is missing");
  train_give(m, "labels", t.other, 9);
  UNIT_FAILS(moec_loss_and_gradients(m, 0, NULL), MOEC_INVALID_ARGUMENT,
             "input \"labels\": axis 0: expected size n = 8, got 9 with n = 8");
  UNIT_OK(moec_forward(m));
  moec_close(m);
  free(file);
}
END_TEST

START_TEST(test_parts_of_a_batch_add_up) {
  uint8_t *file;
  moec_model *m = open_plan(train_build(), 2, &file);
  train_io t;
  double w[4] = {0}, v[4] = {0}, norm;
  moec_view view;
  UNIT_FAILS(moec_gradient_of(m, "w", &view), MOEC_INVALID_ARGUMENT, "no gradient was computed");
  for (int part = 0; part < 4; part++) {
    train_fill(&t, part);
    train_want r = step(m, &t, 8 + 8 * (part & 1), 1, NULL);
    for (int i = 0; i < 4; i++) w[i] += r.w[i], v[i] += r.v[i];
    close_to(gradient(m, "w"), w, 4, 1e-5);
    close_to(gradient(m, "v"), v, 4, 1e-5);
  }
  t.other[3] = 1e7f; /* a part that fails leaves the sum as it was */
  UNIT_FAILS(moec_loss_and_gradients(m, 1, NULL), MOEC_INVALID_ARGUMENT, "out of range");
  close_to(gradient(m, "w"), w, 4, 1e-5);
  UNIT_OK(moec_scale_gradients(m, 0.25));
  double sum = 0;
  for (int i = 0; i < 4; i++) {
    w[i] /= 4, v[i] /= 4;
    sum += w[i] * w[i] + v[i] * v[i]; /* w and t are tied: once */
  }
  close_to(gradient(m, "w"), w, 4, 1e-5);
  UNIT_OK(moec_clip_gradients(m, INFINITY, &norm));
  UNIT_TRUE(fabs(norm - sqrt(sum)) < 1e-5 * norm);
  UNIT_OK(moec_clip_gradients(m, 2 * norm, NULL));
  close_to(gradient(m, "w"), w, 4, 1e-5);
  UNIT_OK(moec_clip_gradients(m, norm / 10, NULL));
  for (int i = 0; i < 4; i++) w[i] /= 10;
  close_to(gradient(m, "w"), w, 4, 1e-5);
  UNIT_FAILS(moec_gradient_of(m, "c", &view), MOEC_INVALID_ARGUMENT, "it has no gradient");
  gradient(m, "v")[2] = NAN;
  UNIT_FAILS(moec_clip_gradients(m, 1, &norm), MOEC_INVALID_ARGUMENT, "expected a finite norm");
  UNIT_TRUE(isnan(norm));
  train_fill(&t, 9); /* without the flag a step begins anew */
  train_want r = step(m, &t, 8, 0, NULL);
  close_to(gradient(m, "w"), r.w, 4, 1e-5);
  t.other[3] = 1e7f; /* and one that fails leaves none */
  UNIT_FAILS(moec_loss_and_gradients(m, 0, NULL), MOEC_INVALID_ARGUMENT, "out of range");
  UNIT_FAILS(moec_gradient_of(m, "w", &view), MOEC_INVALID_ARGUMENT, "no gradient was computed");
  UNIT_FAILS(moec_clip_gradients(m, 1, NULL), MOEC_INVALID_ARGUMENT, "expected gradients");
  moec_close(m);
  free(file);
}
END_TEST

/* ---- optimizers against their formulas in f64 -------------------------------------------- */

typedef struct reference {
  double w[4], m[4], v[4];
} reference;

static void adamw(reference *r, const double *g, const moec_optimizer *o, double decay, int step) {
  for (int i = 0; i < 4; i++) {
    r->w[i] -= o->lr * decay * r->w[i];
    r->m[i] = o->beta1 * r->m[i] + (1 - o->beta1) * g[i];
    r->v[i] = o->beta2 * r->v[i] + (1 - o->beta2) * g[i] * g[i];
    double m = r->m[i] / (1 - pow(o->beta1, step)), v = r->v[i] / (1 - pow(o->beta2, step));
    r->w[i] -= o->lr * m / (sqrt(v) + o->eps);
  }
}

static void sgd(reference *r, const double *g, const moec_optimizer *o, double decay, int step) {
  for (int i = 0; i < 4; i++) {
    double d = g[i] + decay * r->w[i];
    r->m[i] = step == 1 ? d : o->momentum * r->m[i] + d;
    r->w[i] -= o->lr * r->m[i];
  }
}

/* Three steps with |o|; decay of w and v as given. What is derived, and other programs, follow. */
static void check_optimizer(const moec_optimizer *o, double decay_w, double decay_v) {
  uint8_t *file;
  moec_model *m = open_plan(train_build(), 2, &file);
  reference w = {0}, v = {0};
  moec_counters c;
  moec_view y;
  train_io t;
  for (int i = 0; i < 4; i++) w.w[i] = (double)train_w[i], v.w[i] = (double)train_v[i];
  UNIT_OK(moec_optimizer_set(m, o));
  if (o->decay_matrices_only) UNIT_OK(moec_optimizer_set_decay(m, 2, decay_v));
  for (int step_ = 1; step_ <= 3; step_++) {
    train_fill(&t, step_);
    if (step_ == 2) { /* in two parts */
      step(m, &t, 16, 1, NULL);
      step(m, &t, 8, 1, NULL);
    } else {
      step(m, &t, 24, 0, NULL);
    }
    double gw[4], gv[4];
    for (int i = 0; i < 4; i++) {
      gw[i] = (double)gradient(m, "w")[i], gv[i] = (double)gradient(m, "v")[i];
    }
    UNIT_OK(moec_optimizer_step(m));
    (o->kind == MOEC_ADAMW ? adamw : sgd)(&w, gw, o, decay_w, step_);
    (o->kind == MOEC_ADAMW ? adamw : sgd)(&v, gv, o, decay_v, step_);
    close_to(train_parameter(m, "w"), w.w, 4, 2e-6);
    close_to(train_parameter(m, "v"), v.w, 4, 2e-6);
    UNIT_TRUE(train_parameter(m, "t") == train_parameter(m, "w"));
    UNIT_TRUE(!memcmp(train_parameter(m, "c"), train_c, sizeof train_c));
    train_want r =
        train_reference(24, train_parameter(m, "w"), train_parameter(m, "v"), t.x, t.other, NULL);
    train_give(m, "x", t.x, 24);
    UNIT_OK(moec_forward(m));
    UNIT_OK(moec_output(m, 0, &y));
    close_to(y.data, r.y, 24, 1e-5);
  }
  moec_counters_get(m, &c);
  UNIT_TRUE(c.updates == 3 && c.allocations_after_first == 0);
  moec_progress p;
  UNIT_OK(moec_progress_get(m, &p));
  UNIT_TRUE(p.step == 3 && p.lr == o->lr);
  moec_close(m);
  free(file);
}

START_TEST(test_optimizers) {
  moec_optimizer o;
  moec_optimizer_defaults(MOEC_ADAMW, &o);
  o.lr = 0.05;
  check_optimizer(&o, 0.01, 0.01);
  o.weight_decay = 0.3, o.beta1 = 0.8, o.beta2 = 0.95, o.eps = 1e-3;
  check_optimizer(&o, 0.3, 0.3);
  o.decay_matrices_only = 1;
  check_optimizer(&o, 0, 0.3);
  check_optimizer(&o, 0, 0.7);
  moec_optimizer_defaults(MOEC_SGD, &o);
  check_optimizer(&o, 0, 0);
  o.weight_decay = 0.1, o.momentum = 0.9;
  check_optimizer(&o, 0.1, 0.1);
}
END_TEST

/* A plan with one parameter w of |type|, stored as |storage|, whose gradient is always |gradient|. */
static uint8_t *narrow_plan(moec_dtype type, moec_dtype storage, double value, double gradient, size_t *size) {
  plan_builder *b = pb_create();
  const float scalar = 1;
  uint64_t stored[4] = {0}, gradients[4] = {0};
  const moec_tensor t = {.dtype = type, .rank = 1, .dims = {4}}, one = {.dtype = MOEC_F32};
  size_t bytes = 4 * moec_dtype_get(storage)->bytes, narrow = 4 * moec_dtype_get(type)->bytes;
  for (size_t i = 0; i < 4; i++) {
    moec_store_f64(storage, stored, i, value);
    moec_store_f64(type, gradients, i, gradient);
  }
  moec_plan_piece piece = {.file = MOEC_NONE, .dtype = storage, .rank = 1, .shape = {4}};
  piece.offset = pb_data(b, stored, bytes);
  PB_ADD(b, pieces, piece);
  moec_plan_param p = {.name = pb_str(b, "w"), .storage = storage, .shard_axis = -1, .trainable = 1, .n_pieces = 1};
  p.tensor = pb_static(b, MOEC_BUFFER_PARAM, &t);
  p.grad = pb_static(b, MOEC_BUFFER_GRAD, &t);
  PB_ADD(b, params, p);
  uint32_t c = pb_static(b, MOEC_BUFFER_CONST, &t), s = pb_static(b, MOEC_BUFFER_CONST, &one);
  PB_ADD(b, consts, (moec_plan_const){c, 0, pb_data(b, gradients, narrow), narrow});
  PB_ADD(b, consts, (moec_plan_const){s, 0, pb_data(b, &scalar, sizeof scalar), sizeof scalar});
  b->program = MOEC_AT_TRAIN;
  uint32_t loss = pb_static(b, MOEC_BUFFER_OUTPUT, &one);
  pb_step(b, MOEC_AT_TRAIN, MOEC_STEP_COPY, 1, 1, (uint32_t[]){c, p.grad}, 0, NULL);
  pb_step(b, MOEC_AT_TRAIN, MOEC_STEP_COPY, 1, 1, (uint32_t[]){s, loss}, 0, NULL);
  pb_output(b, "loss", loss);
  uint8_t *file = pb_finish(train_target(b), NULL, &files.object, size);
  free(b);
  return file;
}

static const moec_dtype narrow_types[] = {MOEC_BF16, MOEC_F16};

/* Weights that kernels read in 16 bits have f32 masters: steps too small for 16 bits add up, and a state keeps them. */
START_TEST(test_masters_of_narrow_weights) {
  for (int k = 0; k < 2; k++) {
    moec_dtype type = narrow_types[k];
    size_t size;
    uint8_t *file = narrow_plan(type, type, 1, 1, &size);
    moec_model *m, *again;
    moec_view v, w;
    moec_optimizer o;
    char path[256];
    UNIT_OK(moec_open_memory(file, size, NULL, &m));
    moec_optimizer_defaults(MOEC_SGD, &o);
    o.lr = 0x1p-16; /* 16 bits hold no 1 - 2^-16 */
    UNIT_OK(moec_optimizer_set(m, &o));
    for (int i = 1; i <= 512; i++) {
      UNIT_OK(moec_loss_and_gradients(m, 0, NULL));
      UNIT_OK(moec_optimizer_step(m));
      UNIT_OK(moec_parameter(m, 0, &v));
      uint16_t want;
      moec_store_f64(type, &want, 0, 1 - i * 0x1p-16);
      UNIT_TRUE(((uint16_t *)v.data)[0] == want && ((uint16_t *)v.data)[3] == want);
      if (i == 3) UNIT_OK(moec_save_state(m, unit_path(path, files.dir, "narrow")));
    }
    UNIT_OK(moec_open_memory(file, size, NULL, &again));
    UNIT_OK(moec_load_state(again, path));
    for (int i = 4; i <= 512; i++) {
      UNIT_OK(moec_loss_and_gradients(again, 0, NULL));
      UNIT_OK(moec_optimizer_step(again));
    }
    UNIT_OK(moec_parameter(again, 0, &w));
    UNIT_TRUE(!memcmp(v.data, w.data, 4 * sizeof(uint16_t)));
    moec_close(m);
    moec_close(again);
    free(file);
  }
}
END_TEST

/* Parts of a batch are added up in f32: 300 needs nine bits, and 256 + 1 in bf16 stays 256. */
START_TEST(test_sums_of_narrow_gradients) {
  for (int k = 0; k < 2; k++) {
    size_t size;
    uint8_t *file = narrow_plan(narrow_types[k], narrow_types[k], 1, 1, &size);
    moec_model *m;
    double norm;
    UNIT_OK(moec_open_memory(file, size, NULL, &m));
    UNIT_OK(moec_loss_and_gradients(m, 1, NULL));
    UNIT_TRUE(gradient(m, "w")[3] == 1);
    for (int i = 1; i < 300; i++) UNIT_OK(moec_loss_and_gradients(m, 1, NULL));
    UNIT_TRUE(gradient(m, "w")[0] == 300 && gradient(m, "w")[3] == 300);
    UNIT_OK(moec_clip_gradients(m, 300, &norm));
    UNIT_TRUE(fabs(norm - 600) < 1e-9 && fabsf(gradient(m, "w")[1] - 150) < 1e-4f);
    moec_close(m);
    free(file);
  }
}
END_TEST

/* Masters begin as what the file has, not as its narrow copy. */
START_TEST(test_masters_are_exact) {
  size_t size;
  uint8_t *file = narrow_plan(MOEC_BF16, MOEC_F32, 1 + 0x1p-20, 1, &size);
  moec_model *m;
  moec_optimizer o;
  moec_safetensors *st;
  char path[256];
  UNIT_OK(moec_open_memory(file, size, NULL, &m));
  moec_optimizer_defaults(MOEC_SGD, &o);
  o.lr = 0x1p-21;
  UNIT_OK(moec_optimizer_set(m, &o));
  UNIT_OK(moec_loss_and_gradients(m, 0, NULL));
  UNIT_OK(moec_optimizer_step(m));
  UNIT_OK(moec_save_state(m, unit_path(path, files.dir, "exact")));
  UNIT_OK(moec_safetensors_open(path, &st));
  const moec_st_entry *e = moec_safetensors_find(st, "parameter.w");
  UNIT_TRUE(e && moec_load_f64(MOEC_F32, e->tensor.data, 3) == 1 + 0x1p-21);
  moec_safetensors_close(st);
  moec_close(m);
  free(file);
}
END_TEST

/* What is done with gradients, all memory for it being there. */
static void *work_elsewhere(void *model) {
  moec_status *s = moec_clip_gradients(model, 1e-3, NULL);
  if (!s) s = moec_scale_gradients(model, 2);
  return s ? s : moec_optimizer_step(model);
}

/* A model is used by one thread at a time, not always by the same. */
START_TEST(test_another_thread) {
  uint8_t *file;
  moec_model *m = open_plan(train_build(), 1, &file);
  moec_optimizer o;
  pthread_t other;
  train_io t;
  void *s;
  moec_optimizer_defaults(MOEC_ADAMW, &o);
  UNIT_OK(moec_optimizer_set(m, &o));
  train_fill(&t, 1);
  for (int i = 0; i < 2; i++) {
    step(m, &t, 24, 0, NULL);
    if (!i) UNIT_OK(work_elsewhere(m));
  }
  ck_assert_int_eq(pthread_create(&other, NULL, work_elsewhere, m), 0);
  ck_assert_int_eq(pthread_join(other, &s), 0);
  UNIT_OK((moec_status *)s);
  moec_close(m);
  free(file);
}
END_TEST

START_TEST(test_optimizer_errors) {
  uint8_t *file;
  moec_model *m = open_plan(train_build(), 1, &file);
  moec_optimizer o;
  train_io t;
  train_fill(&t, 2);
  UNIT_FAILS(moec_optimizer_step(m), MOEC_INVALID_ARGUMENT, "expected moec_optimizer_set()");
  moec_optimizer_defaults(MOEC_ADAMW, &o);
  o.beta2 = 1;
  UNIT_FAILS(moec_optimizer_set(m, &o), MOEC_INVALID_ARGUMENT, "beta2: expected at least 0");
  o.beta2 = 0.9, o.lr = NAN;
  UNIT_FAILS(moec_optimizer_set(m, &o), MOEC_INVALID_ARGUMENT, "lr: expected at least 0");
  o.lr = 0.1;
  UNIT_OK(moec_optimizer_set(m, &o));
  UNIT_FAILS(moec_optimizer_step(m), MOEC_INVALID_ARGUMENT, "expected gradients");
  UNIT_FAILS(moec_optimizer_set_decay(m, 3, 0.1), MOEC_INVALID_ARGUMENT,
             "\"c\": it is not trained");
  step(m, &t, 8, 0, NULL);
  UNIT_OK(moec_optimizer_step(m));
  o.kind = MOEC_SGD;
  UNIT_FAILS(moec_optimizer_set(m, &o), MOEC_INVALID_ARGUMENT, "the first 1 steps");
  UNIT_OK(moec_optimizer_set_lr(m, 0.01));
  moec_close(m);
  free(file);
}
END_TEST

START_TEST(test_models_without_train) {
  uint8_t *file;
  moec_model *m = open_plan(train_build_as(false), 1, &file);
  moec_view v;
  train_io t;
  train_fill(&t, 0);
  train_give(m, "x", t.x, 8);
  UNIT_OK(moec_forward(m));
  UNIT_TRUE(!moec_has_program(m, MOEC_TRAIN) && moec_has_program(m, MOEC_FORWARD));
  UNIT_FAILS(moec_loss_and_gradients(m, 0, NULL), MOEC_INVALID_ARGUMENT,
             "compiled without --train");
  UNIT_FAILS(moec_vjp(m, 0), MOEC_INVALID_ARGUMENT, "compiled without --train");
  UNIT_FAILS(moec_gradient(m, 0, &v), MOEC_INVALID_ARGUMENT, "compiled without --train");
  UNIT_FAILS(moec_optimizer_step(m), MOEC_INVALID_ARGUMENT, "compiled without --train");
  UNIT_FAILS(moec_save_state(m, "x"), MOEC_INVALID_ARGUMENT, "compiled without --train");
  moec_close(m);
  free(file);
}
END_TEST

/* With MOEC_POISON what no step computes is NaN: here y, since its kernel has no rows. */
START_TEST(test_poison) {
  for (int on = 0; on <= 1; on++) {
    uint8_t *file;
    plan_builder *b = train_build();
    b->kernels[1].rows = pb_const(b, 8);
    ck_assert_int_eq(on ? setenv("MOEC_POISON", "1", 1) : unsetenv("MOEC_POISON"), 0);
    moec_model *m = open_plan(b, 1, &file);
    moec_view v;
    train_io t;
    train_fill(&t, 0);
    train_give(m, "x", t.x, 8);
    UNIT_OK(moec_forward(m));
    UNIT_OK(moec_output(m, 0, &v));
    for (int i = 0; i < 8; i++) UNIT_TRUE(isfinite(((float *)v.data)[i]));
    train_give(m, "x", t.x, 12);
    UNIT_OK(moec_forward(m));
    UNIT_OK(moec_output(m, 0, &v));
    for (int i = 0; i < 12; i++) UNIT_TRUE(!on || isnan(((float *)v.data)[i]) == (i >= 8));
    moec_close(m);
    free(file);
  }
  ck_assert_int_eq(unsetenv("MOEC_POISON"), 0);
}
END_TEST

static void setup(void) { files = train_start(); }
static void teardown(void) { train_stop(&files); }

int main(void) {
  if (!train_possible()) return puts("skipped: no C++ compiler"), 77;
  Suite *suite = suite_create("train");
  TCase *tcase = tcase_create("train");
  const TTest *const tests[] = {test_loss_and_gradients,      test_inputs_and_outputs_of_programs,
                                test_parts_of_a_batch_add_up, test_optimizers,
                                test_optimizer_errors,        test_masters_of_narrow_weights,
                                test_sums_of_narrow_gradients, test_masters_are_exact,
                                test_models_without_train,    test_poison,
                                test_another_thread};
  tcase_set_timeout(tcase, 0); /* ctest has one */
  tcase_add_unchecked_fixture(tcase, setup, teardown);
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(tcase, tests[i]);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
