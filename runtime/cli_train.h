/* What the command train is made of: settings, text, the loss curve, the progress bar. */
#ifndef MOEC_RUNTIME_CLI_TRAIN_H
#define MOEC_RUNTIME_CLI_TRAIN_H

#include <jansson.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/file.h"
#include "runtime/cli.h"

/* ---- cli_train_settings.c: what a training is, kept beside its state ---------------------------- */

typedef struct moec_rt_settings {
  const char *data; /* the text's absolute path, once it was opened */
  const char *optimizer;
  int steps, batch, seq, accumulate, warmup, seed, save_every;
  double lr, weight_decay, beta1, beta2, eps;
  double clip;  /* 0: gradients are not clipped */
  json_t *file; /* owns strings that were read */
} moec_rt_settings;

enum { MOEC_RT_SETTINGS = 15 }; /* flags at most */

/* Nothing is given yet; writes a flag for each setting to |out| and returns how many. */
size_t moec_rt_settings_flags(moec_rt_settings *s, moec_rt_flag out[MOEC_RT_SETTINGS]);
/* What was not given comes from a file that moec_rt_settings_write() wrote. |digest|: of the text. */
moec_status *moec_rt_settings_read(moec_rt_settings *s, const char *path, char digest[65]) MOEC_MUST_USE;
/* What is still not given gets its default. Errors: no text, no number of steps, an unknown optimizer,
 * a setting that this optimizer has not. */
moec_status *moec_rt_settings_default(moec_rt_settings *s, int batch, int seq) MOEC_MUST_USE;
moec_status *moec_rt_settings_write(const moec_rt_settings *s, const char *path,
                                    const char digest[65]) MOEC_MUST_USE;
/* The optimizer that these settings describe. */
moec_optimizer moec_rt_settings_optimizer(const moec_rt_settings *s);
/* The learning rate of step |step|, counted from 0: it grows over the first |warmup| steps. */
double moec_rt_settings_lr(const moec_rt_settings *s, int64_t step);
void moec_rt_settings_fini(moec_rt_settings *s);

/* ---- cli_train_text.c: bytes as tokens ------------------------------------------------------------ */

typedef struct moec_rt_text {
  moec_map map;
  uint64_t counts[256]; /* of each byte */
  double entropy;       /* nats a byte, of these counts */
  char digest[65];
} moec_rt_text;

moec_status *moec_rt_text_open(const char *path, moec_rt_text *out) MOEC_MUST_USE;
void moec_rt_text_close(moec_rt_text *t);
/* Error naming a byte that is no token of a vocabulary of this size, or where the text is shorter than |seq|. */
moec_status *moec_rt_text_check(const moec_rt_text *t, const char *path, int64_t vocabulary,
                                int seq) MOEC_MUST_USE;
/* Where window |i| of |seed| begins: any place that leaves |seq| bytes, each as likely. Which one depends
 * on nothing else, so a training that goes on sees what one without a break sees. */
uint64_t moec_rt_text_window(const moec_rt_text *t, int64_t seed, uint64_t i, int seq);

/* ---- cli_train_curve.c, cli_train_svg.c: the loss by step ----------------------------------------- */

typedef struct moec_rt_point {
  double loss, norm, lr;
} moec_rt_point;

typedef struct moec_rt_curve {
  moec_rt_point *points; /* of step 1, 2, ... */
  size_t n, room;
} moec_rt_curve;

moec_status *moec_rt_curve_add(moec_rt_curve *c, moec_rt_point p) MOEC_MUST_USE;
/* The mean loss of the last |steps| steps, or of all where there are fewer; NAN of none. */
double moec_rt_curve_mean(const moec_rt_curve *c, size_t steps);
/* step,loss,gradient_norm,lr: what is read and written again is the same to the last byte. */
moec_status *moec_rt_curve_write_csv(const moec_rt_curve *c, const char *path) MOEC_MUST_USE;
/* The first |steps| rows: a training that was killed may have written more than its state knows. */
moec_status *moec_rt_curve_read_csv(moec_rt_curve *c, const char *path, size_t steps) MOEC_MUST_USE;
/* A drawing of at least one step, with |entropy| as a line. */
void moec_rt_curve_svg(const moec_rt_curve *c, double entropy, moec_buf *out);
void moec_rt_curve_fini(moec_rt_curve *c);

/* ---- cli_train_bar.c: what is seen meanwhile -------------------------------------------------------- */

typedef struct moec_rt_bar {
  FILE *to;
  bool terminal;      /* one line that is drawn again and again; else a line from time to time */
  int columns;        /* of the terminal */
  int64_t from, until; /* steps made before; of all */
  int64_t tokens;     /* of one step */
  int every;          /* steps between two lines */
  double start, drawn; /* seconds */
} moec_rt_bar;

/* |now|: seconds since any moment. */
void moec_rt_bar_start(moec_rt_bar *b, FILE *to, double now);
void moec_rt_bar_step(moec_rt_bar *b, int64_t step, double loss, double now);
/* Makes room for a line of text. */
void moec_rt_bar_end(moec_rt_bar *b);

#endif
