/* train: next-token training on plain text, a byte a token. Each step draws windows of the text, adds up the
 * gradients of its parts, clips them and updates. What a step does depends on the settings, the state and the
 * number of windows drawn before it, on nothing else: so a training that was stopped goes on as if it had not been. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"
#include "runtime/cli_train.h"

enum { SHOWN = 20 }; /* steps whose mean loss is shown */

typedef struct train {
  moec_rt_settings settings;
  const char *save; /* a folder; NULL: nothing is saved */
  bool resume;
  moec_options options;
  moec_model *m;
  moec_rt_text text;
  moec_tensor ids, labels;
  moec_rt_curve curve;
  moec_rt_bar bar;
  uint64_t windows; /* drawn so far */
} train;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A file of the folder to save to; its length was checked. */
static const char *beside(const train *t, const char *name, char out[PATH_MAX]) {
  snprintf(out, PATH_MAX, "%s/%s", t->save, name);
  return out;
}

/* ---- stopping ------------------------------------------------------------------------------------ */

/* All that a signal handler can reach. */
static volatile sig_atomic_t stop_asked;

static void ask_to_stop(int signal) {
  (void)signal;
  stop_asked = 1;
}

/* Ctrl-C and SIGTERM wait until the step is done, unless whoever started this wants them ignored. A second one ends
 * the program at once. */
static void hold_signals(void) {
  static const int stops[] = {SIGINT, SIGTERM};
  for (size_t i = 0; i < 2; i++) {
    struct sigaction a;
    if (sigaction(stops[i], NULL, &a) || a.sa_handler == SIG_IGN) continue;
    a = (struct sigaction){.sa_handler = ask_to_stop, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    sigemptyset(&a.sa_mask);
    sigaction(stops[i], &a, NULL);
  }
}

/* ---- setting up ---------------------------------------------------------------------------------- */

static moec_status *check_folder(const train *t) {
  char path[PATH_MAX];
  if (!t->save && t->resume)
    return moec_wrong("--resume: expected --save DIR, where the state is, got none");
  if (!t->save && t->settings.save_every > 0)
    return moec_wrong("--save-every means nothing without --save DIR");
  if (!t->save) return NULL;
  if (strlen(t->save) > PATH_MAX / 2) return moec_wrong("--save: expected a shorter path");
  if (t->resume) return NULL;
  if (mkdir(t->save, 0777) && errno != EEXIST)
    return moec_wrong("--save: cannot make the folder %s: %s", t->save, strerror(errno));
  if (access(beside(t, "state.safetensors", path), F_OK)) return NULL;
  return moec_wrong(
      "%s has the state of a training: expected --resume, to go on with it, or another folder",
      t->save);
}

/* A size of the model's input that is fixed, or |otherwise|. */
static int fixed_size(const moec_description *d, uint32_t axis, int otherwise) {
  char *end;
  long v = axis < d->rank ? strtol(d->dims[axis], &end, 10) : 0;
  return axis < d->rank && end != d->dims[axis] && !*end && v > 0 && v <= INT_MAX ? (int)v : otherwise;
}

/* All that training needs must be tokens and labels. */
static moec_status *check_inputs(const train *t, moec_description *ids) {
  uint32_t i;
  if (!moec_has_program(t->m, MOEC_TRAIN)) return moec_loss_and_gradients(t->m, 0, NULL); /* says why */
  for (i = 0; i < moec_count(t->m, MOEC_INPUTS); i++) {
    moec_description d;
    MOEC_TRY(moec_describe(t->m, MOEC_INPUTS, i, &d));
    bool ours = !strcmp(d.name, "input_ids") || !strcmp(d.name, "labels");
    if (ours && d.rank == 2 && d.dtype == MOEC_DTYPE_I64) continue;
    if (!ours && (d.has_default || !(d.programs >> MOEC_TRAIN & 1))) continue;
    return moec_wrong("input \"%s\": train gives only input_ids and labels, i64 of rank 2", d.name);
  }
  MOEC_TRY(moec_find(t->m, MOEC_INPUTS, "labels", &i));
  MOEC_TRY(moec_find(t->m, MOEC_INPUTS, "input_ids", &i));
  return moec_describe(t->m, MOEC_INPUTS, i, ids);
}

static moec_status *attach(train *t, const char *name, moec_tensor *to) {
  const int64_t dims[2] = {t->settings.batch, t->settings.seq};
  uint32_t i;
  MOEC_TRY(moec_find(t->m, MOEC_INPUTS, name, &i));
  MOEC_TRY(moec_tensor_init(to, MOEC_I64, 2, dims));
  const moec_view v = {to->data, MOEC_DTYPE_I64, 2, {dims[0], dims[1]}};
  return moec_input_borrow(t->m, i, &v);
}

/* Binds the sizes; the vocabulary is the last axis of the logits. */
static moec_status *find_vocabulary(const train *t, int64_t *out) {
  uint32_t n = moec_count(t->m, MOEC_INPUTS), i;
  *out = 0;
  moec_view logits, *shapes = calloc((size_t)n + 1, sizeof *shapes);
  if (!shapes) return moec_error(MOEC_OUT_OF_MEMORY, "no memory for shapes");
  moec_status *s = moec_find(t->m, MOEC_INPUTS, "input_ids", &i);
  if (!s) shapes[i] = (moec_view){NULL, MOEC_DTYPE_I64, 2, {t->settings.batch, t->settings.seq}};
  if (!s) s = moec_bind_shapes(t->m, shapes);
  free(shapes);
  if (s) return s;
  MOEC_TRY(moec_find(t->m, MOEC_OUTPUTS, "logits", &i));
  MOEC_TRY(moec_shape(t->m, MOEC_OUTPUTS, i, &logits));
  if (!logits.rank) return moec_wrong("output \"logits\": expected a vocabulary, got rank 0");
  *out = logits.dims[logits.rank - 1];
  return NULL;
}

static moec_status *open_text(train *t, const char *digest) {
  int64_t vocabulary;
  MOEC_TRY(moec_rt_text_open(t->settings.data, &t->text));
  if (*digest && strcmp(digest, t->text.digest) != 0)
    return moec_wrong("%s: expected the text that the training in %s began with, got another",
                      t->settings.data, t->save);
  MOEC_TRY(find_vocabulary(t, &vocabulary));
  return moec_rt_text_check(&t->text, t->settings.data, vocabulary, t->settings.seq);
}

/* Where the training that is gone on with stands. */
static moec_status *load(train *t) {
  char path[PATH_MAX];
  moec_progress p;
  MOEC_TRY(moec_load_state(t->m, beside(t, "state.safetensors", path)));
  MOEC_TRY(moec_progress_get(t->m, &p));
  if (p.step >= t->settings.steps)
    return moec_wrong("--steps: expected more than the %" PRId64 " steps that were made, got %d",
                      p.step, t->settings.steps);
  t->windows = p.rng[1];
  t->bar.from = p.step;
  return moec_rt_curve_read_csv(&t->curve, beside(t, "loss.csv", path), (size_t)p.step);
}

static moec_status *write_settings(train *t) {
  char path[PATH_MAX];
  const char *given = t->settings.data;
  char *whole = realpath(given, NULL);
  t->settings.data = whole ? whole : given;
  moec_status *s = moec_rt_settings_write(&t->settings, beside(t, "train.json", path), t->text.digest);
  t->settings.data = given;
  free(whole);
  return s;
}

static moec_status *set_up(train *t) {
  enum { BATCH = 8, SEQ = 128 };
  char path[PATH_MAX], digest[65] = "";
  moec_description ids;
  MOEC_TRY(check_folder(t));
  if (t->resume) MOEC_TRY(moec_rt_settings_read(&t->settings, beside(t, "train.json", path), digest));
  MOEC_TRY(moec_rt_open_self(&t->options, &t->m));
  MOEC_TRY(check_inputs(t, &ids));
  MOEC_TRY(moec_rt_settings_default(&t->settings, fixed_size(&ids, 0, BATCH), fixed_size(&ids, 1, SEQ)));
  const moec_optimizer o = moec_rt_settings_optimizer(&t->settings);
  MOEC_TRY(moec_optimizer_set(t->m, &o));
  MOEC_TRY(open_text(t, digest));
  MOEC_TRY(attach(t, "input_ids", &t->ids));
  MOEC_TRY(attach(t, "labels", &t->labels));
  if (t->resume) MOEC_TRY(load(t));
  return t->save ? write_settings(t) : NULL;
}

/* ---- steps --------------------------------------------------------------------------------------- */

static void fill(train *t) {
  const moec_rt_settings *s = &t->settings;
  int64_t *ids = t->ids.data;
  for (int64_t b = 0; b < s->batch; b++) {
    const uint8_t *from = t->text.map.data + moec_rt_text_window(&t->text, s->seed, t->windows++, s->seq);
    for (int64_t i = 0; i < s->seq; i++) ids[b * s->seq + i] = from[i];
  }
  memcpy(t->labels.data, ids, moec_tensor_bytes(&t->ids)); /* the loss shifts them */
}

static moec_status *step(train *t, int64_t n) {
  const moec_rt_settings *s = &t->settings;
  moec_rt_point p = {.lr = moec_rt_settings_lr(s, n)};
  for (int a = 0; a < s->accumulate; a++) {
    double loss;
    fill(t);
    MOEC_TRY(moec_loss_and_gradients(t->m, a > 0, &loss));
    p.loss += loss / s->accumulate;
  }
  if (!isfinite(p.loss))
    return moec_wrong("the loss is not finite; a smaller --lr or more --warmup may help");
  if (s->accumulate > 1) MOEC_TRY(moec_scale_gradients(t->m, 1.0 / s->accumulate));
  MOEC_TRY(moec_clip_gradients(t->m, s->clip > 0 ? s->clip : INFINITY, &p.norm));
  MOEC_TRY(moec_optimizer_set_lr(t->m, p.lr));
  MOEC_TRY(moec_optimizer_step(t->m));
  return moec_rt_curve_add(&t->curve, p);
}

/* The curve before the state: of steps that the state has there must be losses. */
static moec_status *save(train *t) {
  char path[PATH_MAX];
  const uint64_t rng[2] = {(uint64_t)t->settings.seed, t->windows};
  moec_buf svg = {0};
  if (!t->save) return NULL;
  MOEC_TRY(moec_rt_curve_write_csv(&t->curve, beside(t, "loss.csv", path)));
  if (t->curve.n) {
    moec_rt_curve_svg(&t->curve, t->text.entropy, &svg);
    moec_status *s = moec_write_file(beside(t, "loss.svg", path), svg.data, svg.size, 0644);
    moec_buf_fini(&svg);
    if (s) return s;
  }
  MOEC_TRY(moec_progress_set_rng(t->m, rng));
  return moec_save_state(t->m, beside(t, "state.safetensors", path));
}

static moec_status *steps(train *t, int64_t *made) {
  for (*made = t->bar.from; *made < t->settings.steps && !stop_asked;) {
    moec_status *s = step(t, *made);
    if (s) return moec_context(s, "step %" PRId64, *made + 1);
    ++*made;
    moec_rt_bar_step(&t->bar, *made, moec_rt_curve_mean(&t->curve, SHOWN), now());
    if (*made % t->settings.save_every == 0 && *made < t->settings.steps) MOEC_TRY(save(t));
  }
  return save(t);
}

/* ---- the command --------------------------------------------------------------------------------- */

static moec_status *finish(train *t, int64_t made) {
  char path[PATH_MAX];
  if (made < t->settings.steps) {
    printf("stopped after step %" PRId64 " of %d; ", made, t->settings.steps);
    if (!t->save) printf("nothing was saved: that takes --save DIR\n");
    else printf("saved in %s: the same command%s goes on\n", t->save, t->resume ? "" : " with --resume");
    return NULL;
  }
  printf("loss %.4f, the mean of the last %d steps; unigram entropy of the text %.4f\n",
         moec_rt_curve_mean(&t->curve, SHOWN), t->curve.n < SHOWN ? (int)t->curve.n : (int)SHOWN, t->text.entropy);
  if (!t->save) return NULL;
  MOEC_TRY(moec_save_weights(t->m, beside(t, "weights", path)));
  printf("saved in %s: loss.csv, loss.svg, state.safetensors, weights\n", t->save);
  return NULL;
}

static moec_status *work(train *t, int argc, char **argv) {
  bool trust = false;
  moec_rt_flag flags[MOEC_RT_SETTINGS + 6];
  size_t n = moec_rt_settings_flags(&t->settings, flags);
  int64_t made;
  t->bar.every = 10;
  flags[n++] = (moec_rt_flag){"--save", MOEC_RT_TEXT, &t->save, 0};
  flags[n++] = (moec_rt_flag){"--resume", MOEC_RT_SWITCH, &t->resume, 0};
  flags[n++] = (moec_rt_flag){"--log-every", MOEC_RT_INT, &t->bar.every, 1};
  flags[n++] = (moec_rt_flag){"--weights", MOEC_RT_TEXT, &t->options.weights_dir, 0};
  flags[n++] = (moec_rt_flag){"--threads", MOEC_RT_INT, &t->options.threads, 1};
  flags[n++] = (moec_rt_flag){"--trust-weights", MOEC_RT_SWITCH, &trust, 0};
  MOEC_TRY(moec_rt_flags_parse(flags, n, argc, argv));
  t->options.trust_weights = trust;
  MOEC_TRY(set_up(t));
  t->bar.until = t->settings.steps;
  t->bar.tokens = (int64_t)t->settings.batch * t->settings.accumulate * t->settings.seq;
  printf("%s: %zu bytes, unigram entropy %.4f nats a byte; %d steps of %" PRId64 " bytes\n", t->settings.data,
         t->text.map.size, t->text.entropy, t->settings.steps, t->bar.tokens);
  moec_rt_bar_start(&t->bar, stdout, now());
  hold_signals();
  moec_status *s = steps(t, &made);
  moec_rt_bar_end(&t->bar);
  return s ? s : finish(t, made);
}

moec_status *moec_rt_cli_train(int argc, char **argv) {
  train t = {0};
  moec_status *s = work(&t, argc, argv);
  moec_close(t.m);
  moec_tensor_fini(&t.ids);
  moec_tensor_fini(&t.labels);
  moec_rt_text_close(&t.text);
  moec_rt_curve_fini(&t.curve);
  moec_rt_settings_fini(&t.settings);
  return s;
}
