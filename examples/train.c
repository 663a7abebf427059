/* Training a compiled model from C. Everything goes through include/moec.h; read this from main() upwards.
 *
 *     moec import CONFIG_DIR -o model.onnx --init 1 --set vocab_size=256
 *     moec compile model.onnx -o model --train
 *     example-train model text.txt 200 trained
 *
 * The model learns to predict the next byte of a text. `model train` does the same with more comfort; this is
 * for programs that want the loop to be their own. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/moec.h"

/* Sizes are free: the executable was compiled once and runs any batch and length. */
enum { BATCH = 4, LENGTH = 64, PARTS = 2 };

/* Functions that can fail return a status, NULL when all is well. This program passes every status up to main():
 * nothing in the library prints or exits. */
#define TRY(expr)                   \
  do {                              \
    moec_status *try_ = (expr);     \
    if (try_) return try_;          \
  } while (0)

typedef struct text {
  unsigned char *bytes;
  long size;
} text;

/* ---- data ---------------------------------------------------------------------------------------- */

static int read_text(const char *path, text *out) {
  FILE *f = fopen(path, "rb");
  if (!f) return 0;
  int ok = !fseek(f, 0, SEEK_END) && (out->size = ftell(f)) > LENGTH && !fseek(f, 0, SEEK_SET);
  if (ok) out->bytes = malloc((size_t)out->size);
  ok = ok && out->bytes && fread(out->bytes, 1, (size_t)out->size, f) == (size_t)out->size;
  fclose(f);
  return ok;
}

/* The loss a model gets that knows how often each byte occurs, and nothing else. Below it, it has learned to use
 * what stands before. */
static double unigram_entropy(const text *t) {
  double counts[256] = {0}, sum = 0;
  for (long i = 0; i < t->size; i++) counts[t->bytes[i]]++;
  for (int b = 0; b < 256; b++)
    if (counts[b] > 0) sum -= counts[b] / (double)t->size * log(counts[b] / (double)t->size);
  return sum;
}

/* Random pieces of the text, a byte a token. |state| is all the randomness there is: saved with the training, it
 * makes one that goes on see what it would have seen. */
static void draw_batch(const text *t, uint64_t *state, int64_t ids[BATCH][LENGTH]) {
  for (int b = 0; b < BATCH; b++) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    const unsigned char *from = t->bytes + (*state >> 33) % (uint64_t)(t->size - LENGTH);
    for (int i = 0; i < LENGTH; i++) ids[b][i] = from[i];
  }
}

/* ---- one step ------------------------------------------------------------------------------------ */

/* Four things: gradients, clipping, learning rate, update. */
static moec_status *train_step(moec_model *m, const text *t, uint64_t *random, int64_t ids[BATCH][LENGTH], int step,
                               double *loss) {
  const double top_lr = 3e-3, warmup = 20;
  double part, norm;
  *loss = 0;
  /* A batch that does not fit at once goes in parts: with 1 as second argument gradients are added to those that
   * are there. The inputs were borrowed in main(), so new ones only need to be written into the same memory. */
  for (int i = 0; i < PARTS; i++) {
    draw_batch(t, random, ids);
    TRY(moec_loss_and_gradients(m, i > 0, &part));
    *loss += part / PARTS;
  }
  TRY(moec_scale_gradients(m, 1.0 / PARTS)); /* a mean over the parts, like the loss */
  TRY(moec_clip_gradients(m, 1.0, &norm));
  TRY(moec_optimizer_set_lr(m, top_lr * fmin(1, (step + 1) / warmup)));
  TRY(moec_optimizer_step(m));
  if (step % 10 == 0) printf("step %4d  loss %.4f  gradient norm %.3f\n", step, *loss, norm);
  return NULL;
}

/* ---- all steps ----------------------------------------------------------------------------------- */

static moec_status *give_input(moec_model *m, const char *name, int64_t ids[BATCH][LENGTH]) {
  const moec_view v = {ids, MOEC_DTYPE_I64, 2, {BATCH, LENGTH}};
  uint32_t i;
  TRY(moec_find(m, MOEC_INPUTS, name, &i)); /* inputs, outputs and parameters have the source model's names */
  return moec_input_borrow(m, i, &v);       /* not copied: |ids| must outlive the steps */
}

/* Gradients can be looked at by name, and parameters with moec_parameter(). Routers have one too: they learn where to
 * send tokens. */
static moec_status *print_router(moec_model *m) {
  for (uint32_t i = 0; i < moec_count(m, MOEC_PARAMETERS); i++) {
    moec_description d;
    moec_view g;
    double sum = 0;
    TRY(moec_describe(m, MOEC_PARAMETERS, i, &d));
    if (!d.has_gradient || d.rank != 2 || !strstr(d.name, "mlp.gate.weight")) continue;
    TRY(moec_gradient_of(m, d.name, &g)); /* always f32, dense, in the parameter's shape */
    const float *values = g.data;
    for (int64_t k = 0; k < g.dims[0] * g.dims[1]; k++) sum += (double)values[k] * (double)values[k];
    printf("gradient of %s [%s, %s]: norm %.4g\n", d.name, d.dims[0], d.dims[1], sqrt(sum));
    return NULL;
  }
  return NULL;
}

static moec_status *train(moec_model *m, const text *t, int steps, const char *folder) {
  static int64_t ids[BATCH][LENGTH]; /* until moec_close() */
  moec_optimizer adamw;
  moec_progress progress;
  uint64_t random = 1;
  double loss = 0;
  char state[4096];

  /* Labels are the tokens themselves: the loss compares position i with label i + 1. A label of -100 does not
   * count. Inputs with a default, like attention_mask, can be left out. */
  TRY(give_input(m, "input_ids", ids));
  TRY(give_input(m, "labels", ids));

  moec_optimizer_defaults(MOEC_ADAMW, &adamw); /* torch's */
  adamw.weight_decay = 0.1;
  adamw.decay_matrices_only = 1;
  TRY(moec_optimizer_set(m, &adamw));

  for (int step = 0; step < steps; step++) TRY(train_step(m, t, &random, ids, step, &loss));
  TRY(print_router(m));

  /* The state of training: parameters, moments, step, and two words for the caller. moec_load_state() takes it up
   * again; a program killed in the middle of saving leaves the old file whole. */
  TRY(moec_progress_set_rng(m, (uint64_t[2]){random, 0}));
  snprintf(state, sizeof state, "%s.state.safetensors", folder);
  TRY(moec_save_state(m, state));
  /* The weights alone, named and laid out as in the files they came from, config.json beside them. */
  TRY(moec_save_weights(m, folder));
  TRY(moec_progress_get(m, &progress));
  printf("%d steps, loss %.4f, unigram entropy of the text %.4f\n", (int)progress.step, loss, unigram_entropy(t));
  return NULL;
}

int main(int argc, char **argv) {
  moec_model *m = NULL;
  text t = {NULL, 0};
  int steps = argc == 5 ? atoi(argv[3]) : 0;
  if (steps < 1) {
    fprintf(stderr, "usage: %s MODEL TEXT STEPS FOLDER\n", argv[0]);
    return 2;
  }
  if (!read_text(argv[2], &t)) {
    fprintf(stderr, "%s: expected a file of more than %d bytes\n", argv[2], LENGTH);
    free(t.bytes);
    return 2;
  }
  moec_status *s = moec_open(argv[1], NULL, &m); /* the file that `moec compile` wrote */
  if (!s) s = train(m, &t, steps, argv[4]);
  if (s) fprintf(stderr, "%s\n", moec_status_message(s));
  int failed = s != NULL;
  moec_status_free(s);
  moec_close(m);
  free(t.bytes);
  return failed;
}
