/* The command line of moec: one table of flags, read into one struct; words become options. */
#ifndef MOEC_TOOLS_ARGUMENTS_H
#define MOEC_TOOLS_ARGUMENTS_H

#include "frontend/frontend.h"
#include "passes/pass.h"

enum { MAX_LIST = 64 };

typedef struct arguments {
  const char *input, *output, *weights, *target, *precision, *format, *dump_dir, *init;
  const char *list[MAX_LIST]; /* of --dim or --set */
  int n_list;
  const char *loss, *aux_loss, *z_loss, *recompute, *skip, *combine;
  const char *rules[MAX_LIST]; /* "+GLOB" of --train-params, "-GLOB" of --freeze, in order */
  int n_rules;
  char rule_text[MAX_LIST][256];
  bool remarks, train, seeded, embed_weights;
  const char *needs_train; /* the first flag given that does */
} arguments;

/* "WHAT "ARG"", and where help is. */
moec_status *moec_usage_error(const char *what, const char *arg);
/* What follows `moec COMMAND`. Pointers go into argv; |a| lives as long as its options are used. */
moec_status *moec_arguments_parse(int argc, char **argv, arguments *a) MOEC_MUST_USE;
/* "NAME=N" of --dim, with N >= 0. */
moec_status *moec_arguments_dim(const char *text, moec_dim_setting *out) MOEC_MUST_USE;
/* |text|'s place among |n| words; |dflt| where the flag was not given. */
moec_status *moec_arguments_choice(const char *flag_name, const char *text, int n, const char *const *words, int dflt,
                                   int *out) MOEC_MUST_USE;
/* Target, precision and training, checked. */
moec_status *moec_arguments_options(const arguments *a, moec_compile_options *out) MOEC_MUST_USE;
/* The architecture of --target cuda, "sm_90a"; NULL: another target. */
const char *moec_arguments_cuda(const arguments *a);
/* Words by moec_recompute and moec_skip. */
extern const char *const moec_recompute_words[2], *const moec_skip_words[3];

#endif
