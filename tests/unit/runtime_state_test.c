/* Files of training: states that are taken up again, wrong ones, killed writers, and weights. */
#include <math.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/safetensors.h"
#include "include/moec.h"
#include "tests/unit/train_sample.h"

static train_setup files;

static void train(moec_model *m, int from, int to) {
  train_io t;
  for (int i = from; i < to; i++) {
    train_fill(&t, i);
    train_give(m, "x", t.x, 24);
    train_give(m, "labels", t.other, 24);
    UNIT_OK(moec_loss_and_gradients(m, 0, NULL));
    UNIT_OK(moec_optimizer_step(m));
  }
}

static moec_optimizer adamw(void) {
  moec_optimizer o;
  moec_optimizer_defaults(MOEC_ADAMW, &o);
  o.lr = 0.02, o.weight_decay = 0.2, o.eps = 1e-6;
  return o;
}

static moec_optimizer momentum(void) {
  moec_optimizer o;
  moec_optimizer_defaults(MOEC_SGD, &o);
  o.lr = 1e-3, o.momentum = 0.9;
  return o;
}

/* ---- states ------------------------------------------------------------------------------ */

static void check_resumed(moec_optimizer o, bool choose_again) {
  uint8_t *a_file, *b_file;
  char path[256];
  moec_progress p;
  const uint64_t rng[2] = {12, UINT64_MAX};
  moec_model *a = train_open(&files, train_target(train_build()), 2, &a_file);
  unit_path(path, files.dir, "state");
  UNIT_OK(moec_optimizer_set(a, &o));
  train(a, 0, 3);
  UNIT_OK(moec_optimizer_set_lr(a, o.lr / 2));
  UNIT_OK(moec_progress_set_rng(a, rng));
  UNIT_OK(moec_save_state(a, path));
  train(a, 3, 6);
  moec_model *b = train_open(&files, train_target(train_build()), 1, &b_file);
  if (choose_again) UNIT_OK(moec_optimizer_set(b, &o));
  UNIT_OK(moec_load_state(b, path));
  UNIT_OK(moec_progress_get(b, &p));
  UNIT_TRUE(p.step == 3 && p.lr == o.lr / 2 && p.rng[0] == 12 && p.rng[1] == UINT64_MAX);
  train(b, 3, 6);
  const char *names[] = {"w", "t", "v", "c"};
  for (int i = 0; i < 4; i++) {
    UNIT_TRUE(!memcmp(train_parameter(a, names[i]), train_parameter(b, names[i]), 16));
  }
  UNIT_OK(moec_load_state(a, path)); /* and back to where it was */
  train(a, 3, 6);
  UNIT_TRUE(!memcmp(train_parameter(a, "w"), train_parameter(b, "w"), 16));
  moec_close(a);
  moec_close(b);
  free(a_file);
  free(b_file);
}

START_TEST(test_resuming_gives_the_same_bits) {
  moec_optimizer plain = momentum();
  plain.momentum = 0;
  check_resumed(adamw(), false);
  check_resumed(adamw(), true);
  check_resumed(momentum(), false);
  check_resumed(plain, true);
}
END_TEST

/* Halves gradients of an infinite norm and clips them, what a device does not say until something waits. */
static void clip_wild(moec_model *m, float v[4]) {
  train_io t;
  moec_view g;
  train_fill(&t, 1);
  t.x[3] = INFINITY;
  train_give(m, "x", t.x, 24);
  train_give(m, "labels", t.other, 24);
  UNIT_OK(moec_loss_and_gradients(m, 0, NULL));
  UNIT_OK(moec_gradient_of(m, "v", &g));
  memcpy(v, g.data, 4 * sizeof *v);
  UNIT_OK(moec_scale_gradients(m, 0.5));
  moec_status_free(moec_clip_gradients(m, 1, NULL));
}

START_TEST(test_loading_forgets_a_norm) {
  uint8_t *file;
  char path[256];
  float v[4];
  double norm;
  moec_optimizer o = adamw();
  moec_model *m = train_open(&files, train_target(train_build()), 1, &file);
  UNIT_OK(moec_optimizer_set(m, &o));
  train(m, 0, 2);
  UNIT_OK(moec_save_state(m, unit_path(path, files.dir, "state")));
  clip_wild(m, v);
  UNIT_OK(moec_load_state(m, path));
  UNIT_OK(moec_save_state(m, path));
  train(m, 2, 3);
  UNIT_OK(moec_clip_gradients(m, 1, &norm));
  UNIT_TRUE(isfinite(norm));
  moec_close(m);
  free(file);
}
END_TEST

/* What was found not to be finite is as it was before it was clipped, a factor of the caller's included. */
START_TEST(test_a_norm_that_is_not_finite_leaves_the_scale) {
  uint8_t *file;
  char path[256];
  float v[4];
  int finite = 0;
  moec_view g;
  moec_optimizer o = adamw();
  moec_model *m = train_open(&files, train_target(train_build()), 1, &file);
  UNIT_OK(moec_optimizer_set(m, &o));
  clip_wild(m, v);
  moec_status_free(moec_save_state(m, unit_path(path, files.dir, "state"))); /* where somebody has to look */
  UNIT_OK(moec_gradient_of(m, "v", &g));
  for (int i = 0; i < 4; i++) {
    if (!isfinite(v[i])) continue;
    UNIT_TRUE(((float *)g.data)[i] == v[i] / 2);
    finite++;
  }
  UNIT_TRUE(finite > 0);
  moec_close(m);
  free(file);
}
END_TEST

/* Back at the first step another kind may be chosen: its moments are its own. */
START_TEST(test_another_optimizer) {
  uint8_t *file, *fresh_file;
  char begin[256], path[256];
  const moec_optimizer kinds[] = {momentum(), adamw(), momentum()};
  moec_model *m = train_open(&files, train_target(train_build()), 1, &file);
  unit_path(begin, files.dir, "begin");
  unit_path(path, files.dir, "state");
  UNIT_OK(moec_save_state(m, begin));
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    moec_model *fresh = train_open(&files, train_target(train_build()), 1, &fresh_file);
    UNIT_OK(moec_optimizer_set(m, &kinds[i]));
    UNIT_OK(moec_optimizer_set(fresh, &kinds[i]));
    train(m, 0, 2);
    train(fresh, 0, 2);
    UNIT_TRUE(!memcmp(train_parameter(m, "w"), train_parameter(fresh, "w"), 16));
    UNIT_OK(moec_save_state(m, path));
    UNIT_OK(moec_load_state(fresh, path));
    UNIT_OK(moec_load_state(m, begin));
    moec_close(fresh);
    free(fresh_file);
  }
  moec_close(m);
  free(file);
}
END_TEST

/* The state |from| without the tensor |name|, or with |value| in its place. */
static void rewrite(const char *from, const char *to, const char *name, const moec_tensor *value) {
  enum { MOST_TENSORS = 32 };
  const char *names[MOST_TENSORS];
  moec_tensor tensors[MOST_TENSORS];
  moec_safetensors *st;
  size_t n = 0;
  bool found = false;
  UNIT_OK(moec_safetensors_open(from, &st));
  for (size_t i = 0; i < moec_safetensors_count(st); i++) {
    const moec_st_entry *e = moec_safetensors_at(st, i);
    bool this = !strcmp(e->name, name);
    found = found || this;
    if (this && !value) continue;
    names[n] = e->name;
    tensors[n++] = this ? *value : e->tensor;
  }
  UNIT_TRUE(found);
  UNIT_OK(moec_safetensors_write(to, n, names, tensors));
  moec_safetensors_close(st);
}

START_TEST(test_wrong_states_change_nothing) {
  uint8_t *file;
  char good[256], bad[256];
  float w[4], five[5] = {0};
  int64_t minus = -1;
  uint8_t other[32] = {0};
  double kind[8] = {7};
  moec_progress p;
  moec_optimizer o = adamw();
  moec_model *m = train_open(&files, train_target(train_build()), 1, &file);
  unit_path(good, files.dir, "good");
  unit_path(bad, files.dir, "bad");
  UNIT_OK(moec_optimizer_set(m, &o));
  train(m, 0, 1);
  UNIT_OK(moec_save_state(m, good));
  train(m, 1, 2);
  memcpy(w, train_parameter(m, "w"), sizeof w);
  const struct {
    const char *name, *text;
    moec_tensor value; /* dtype NONE: the tensor is not there */
  } wrong[] = {
      {"parameter.v", "expected a tensor parameter.v, got none", {0}},
      {"updates.w", "expected a tensor updates.w, got none", {0}},
      {"first.w", "parameter w: expected the moments of its optimizer, got others", {0}},
      {"parameter.w", "tensor parameter.w: expected f32[4], got f32[5]", {MOEC_F32, 1, {5}, five}},
      {"moec.model", "expected the state of this model", {MOEC_U8, 1, {32}, other}},
      {"moec.optimizer", "expected an optimizer and a step, got 7", {MOEC_F64, 1, {8}, kind}},
      {"progress.step", "got 0 and -1", {MOEC_I64, 1, {1}, &minus}},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    rewrite(good, bad, wrong[i].name, wrong[i].value.dtype ? &wrong[i].value : NULL);
    UNIT_FAILS(moec_load_state(m, bad), MOEC_INVALID_MODEL, wrong[i].text);
  }
  UNIT_FAILS(moec_load_state(m, "/nonexistent/state"), MOEC_INVALID_ARGUMENT, "/nonexistent");
  UNIT_FAILS(moec_save_state(m, "/nonexistent/state"), MOEC_INVALID_ARGUMENT, "/nonexistent");
  UNIT_TRUE(!memcmp(w, train_parameter(m, "w"), sizeof w));
  UNIT_OK(moec_progress_get(m, &p));
  ck_assert_int_eq(p.step, 2);
  moec_close(m);
  free(file);
  m = train_open(&files, train_target(train_build()), 1, &file);
  o = momentum();
  UNIT_OK(moec_optimizer_set(m, &o));
  UNIT_FAILS(moec_load_state(m, good), MOEC_INVALID_ARGUMENT, "expected a state of optimizer 1");
  moec_close(m);
  free(file);
}
END_TEST

/* A writer killed at any time leaves a whole state. */
START_TEST(test_killed_writers) {
  uint8_t *file;
  char path[256];
  moec_optimizer o = adamw();
  moec_progress p;
  moec_model *m = train_open(&files, train_target(train_build()), 1, &file);
  UNIT_OK(moec_optimizer_set(m, &o));
  train(m, 0, 1);
  UNIT_OK(moec_save_state(m, unit_path(path, files.dir, "killed")));
  for (int i = 0; i < 30; i++) {
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (!child) {
      for (;;) moec_status_free(moec_save_state(m, path));
    }
    usleep((useconds_t)(500 + 137 * i));
    ck_assert_int_eq(kill(child, SIGKILL), 0);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    UNIT_OK(moec_load_state(m, path));
    UNIT_OK(moec_progress_get(m, &p));
    ck_assert_int_eq(p.step, 1);
  }
  moec_close(m);
  free(file);
}
END_TEST

/* ---- weights ----------------------------------------------------------------------------- */

START_TEST(test_weights_go_back_as_they_came) {
  uint8_t *file, want[TRAIN_FILE];
  char path[256], out[256];
  moec_map got;
  moec_optimizer o = adamw();
  moec_model *m = train_open(&files, train_target(train_build()), 2, &file);
  unit_path(out, files.dir, "out");
  UNIT_OK(moec_write_file(unit_path(path, files.dir, "config.json"), "{}", 2, 0644));
  train_weights(want);
  UNIT_OK(moec_optimizer_set(m, &o));
  for (int round = 0; round < 3; round++) { /* the first time nothing was updated */
    if (round) {
      train(m, round, round + 1);
      UNIT_TRUE(memcmp(want + TRAIN_W, train_parameter(m, "w"), 16) != 0);
      memcpy(want + TRAIN_W, train_parameter(m, "w"), 16);
      for (size_t i = 0; i < 4; i++) {
        double v = (double)train_parameter(m, "v")[i];
        moec_store_f64(MOEC_BF16, want + TRAIN_V, i % 2 * 2 + i / 2, v);
      }
    }
    UNIT_OK(moec_save_weights(m, out));
    UNIT_OK(moec_map_user_file(unit_path(path, out, "weights.bin"), &got));
    UNIT_TRUE(got.size == TRAIN_FILE && !memcmp(got.data, want, TRAIN_FILE));
    moec_unmap(&got);
  }
  UNIT_OK(moec_map_user_file(unit_path(path, out, "config.json"), &got));
  ck_assert_uint_eq(got.size, 2);
  moec_unmap(&got);
  UNIT_FAILS(moec_save_weights(m, files.dir), MOEC_INVALID_ARGUMENT, "expected another folder");
  UNIT_FAILS(moec_save_weights(m, "/nonexistent/a/b"), MOEC_INVALID_ARGUMENT, "cannot make");
  UNIT_FAILS(moec_save_weights(m, ""), MOEC_INVALID_ARGUMENT, "expected the path of a folder");
  moec_close(m);
  free(file);
}
END_TEST

START_TEST(test_inline_weights) {
  uint8_t *file, bytes[TRAIN_FILE];
  char path[256], out[256];
  moec_safetensors *st;
  moec_optimizer o = adamw();
  plan_builder *b = train_build();
  train_weights(bytes);
  for (uint32_t i = 2; i < 4; i++) { /* v and c */
    b->pieces[i].file = MOEC_NONE;
    b->pieces[i].offset = pb_data(b, bytes + b->pieces[i].offset, 16);
  }
  moec_model *m = train_open(&files, train_target(b), 1, &file);
  UNIT_OK(moec_optimizer_set(m, &o));
  train(m, 0, 1);
  UNIT_OK(moec_save_weights(m, unit_path(out, files.dir, "inline")));
  UNIT_OK(moec_safetensors_open(unit_path(path, out, "test.safetensors"), &st));
  ck_assert_uint_eq(moec_safetensors_count(st), 2);
  const moec_st_entry *v = moec_safetensors_find(st, "v"), *c = moec_safetensors_find(st, "c");
  UNIT_TRUE(v && c && v->tensor.dtype == MOEC_BF16 && v->tensor.rank == 2);
  UNIT_TRUE(!memcmp(c->tensor.data, train_c, sizeof train_c));
  for (size_t i = 0; i < 4; i++) {
    uint16_t stored;
    memcpy(&stored, (const uint8_t *)v->tensor.data + 2 * (i % 2 * 2 + i / 2), 2);
    ck_assert_uint_eq(stored, moec_f32_to_bf16(train_parameter(m, "v")[i]));
  }
  moec_safetensors_close(st);
  moec_close(m);
  free(file);
}
END_TEST

static void setup(void) { files = train_start(); }
static void teardown(void) { train_stop(&files); }

int main(void) {
  if (!train_possible()) return puts("skipped: no C++ compiler"), 77;
  Suite *suite = suite_create("state");
  TCase *tcase = tcase_create("state");
  const TTest *const tests[] = {test_resuming_gives_the_same_bits, test_loading_forgets_a_norm,
                                test_a_norm_that_is_not_finite_leaves_the_scale, test_another_optimizer,
                                test_wrong_states_change_nothing, test_killed_writers,
                                test_weights_go_back_as_they_came, test_inline_weights};
  tcase_set_timeout(tcase, 0); /* ctest has one */
  tcase_add_unchecked_fixture(tcase, setup, teardown);
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(tcase, tests[i]);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
