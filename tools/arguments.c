/* The command line of moec. */
#include "tools/arguments.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

typedef struct flag {
  const char *name;
  enum { TEXT, SWITCH, LIST, RULE } kind;
  size_t offset; /* in arguments; RULE: the sign of the rule */
  const char *commands;
  bool needs_train; /* means nothing without --train */
} flag;

static const flag flags[] = {
    {"-o", TEXT, offsetof(arguments, output), "import compile inspect", false},
    {"--init", TEXT, offsetof(arguments, init), "import", false},
    {"--seeded", SWITCH, offsetof(arguments, seeded), "import", false},
    {"--set", LIST, 0, "import", false},
    {"--weights", TEXT, offsetof(arguments, weights), "compile inspect", false},
    {"--target", TEXT, offsetof(arguments, target), "compile", false},
    {"--precision", TEXT, offsetof(arguments, precision), "compile", false},
    {"--format", TEXT, offsetof(arguments, format), "inspect", false},
    {"--dim", LIST, 0, "compile inspect", false},
    {"--dump-dir", TEXT, offsetof(arguments, dump_dir), "compile inspect", false},
    {"--remarks", SWITCH, offsetof(arguments, remarks), "compile", false},
    {"--embed-weights", SWITCH, offsetof(arguments, embed_weights), "compile", false},
    {"--combine-impl", TEXT, offsetof(arguments, combine), "compile", false},
    {"--train", SWITCH, offsetof(arguments, train), "compile inspect", false},
    {"--loss", TEXT, offsetof(arguments, loss), "compile inspect", true},
    {"--aux-loss", TEXT, offsetof(arguments, aux_loss), "compile inspect", true},
    {"--z-loss", TEXT, offsetof(arguments, z_loss), "compile inspect", true},
    {"--recompute", TEXT, offsetof(arguments, recompute), "compile inspect", true},
    {"--skip-recompute-combine", TEXT, offsetof(arguments, skip), "compile inspect", true},
    {"--train-params", RULE, '+', "compile inspect", true},
    {"--freeze", RULE, '-', "compile inspect", true},
};

static const flag *find_flag(const char *command, const char *name) {
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
    if (strcmp(flags[i].name, name) == 0 && strstr(flags[i].commands, command)) return &flags[i];
  return NULL;
}

moec_status *moec_usage_error(const char *what, const char *arg) {
  return moec_error(MOEC_INVALID_ARGUMENT, "%s \"%s\" (moec --help shows the usage)", what, arg);
}

static moec_status *add_rule(arguments *a, char sign, const char *glob) {
  if (a->n_rules == MAX_LIST) return moec_usage_error("too many values at", glob);
  char *text = a->rule_text[a->n_rules];
  if (snprintf(text, sizeof a->rule_text[0], "%c%s", sign, glob) >= (int)sizeof a->rule_text[0])
    return moec_usage_error("too long:", glob);
  a->rules[a->n_rules++] = text;
  return NULL;
}

/* The length of the name in "NAME=VALUE". */
static size_t name_length(const char *text) { return strcspn(text, "="); }

static moec_status *add_to_list(arguments *a, const char *name, const char *value) {
  size_t n = name_length(value);
  for (int i = 0; i < a->n_list; i++)
    if (name_length(a->list[i]) == n && memcmp(a->list[i], value, n) == 0)
      return moec_error(MOEC_INVALID_ARGUMENT, "%s %.*s was given twice", name, (int)n, value);
  if (a->n_list == MAX_LIST) return moec_usage_error("too many values at", value);
  a->list[a->n_list++] = value;
  return NULL;
}

static moec_status *set_text(const char **to, const char *name, const char *value) {
  if (*to) return moec_error(MOEC_INVALID_ARGUMENT, "%s was given twice: \"%s\" and \"%s\"", name, *to, value);
  *to = value;
  return NULL;
}

moec_status *moec_arguments_parse(int argc, char **argv, arguments *a) {
  *a = (arguments){0};
  for (int i = 2; i < argc; i++) {
    if (argv[i][0] != '-' || !argv[i][1]) {
      if (a->input) return moec_usage_error("unexpected argument", argv[i]);
      a->input = argv[i];
      continue;
    }
    const flag *f = find_flag(argv[1], argv[i]);
    if (!f) return moec_usage_error("unknown option", argv[i]);
    if (f->needs_train && !a->needs_train) a->needs_train = f->name;
    if (f->kind == SWITCH) {
      *(bool *)((char *)a + f->offset) = true;
      continue;
    }
    if (++i == argc) return moec_usage_error("a value is missing after", argv[i - 1]);
    if (f->kind == RULE) MOEC_TRY(add_rule(a, (char)f->offset, argv[i]));
    else if (f->kind == LIST) MOEC_TRY(add_to_list(a, f->name, argv[i]));
    else MOEC_TRY(set_text((const char **)((char *)a + f->offset), f->name, argv[i]));
  }
  if (!a->input) return moec_error(MOEC_INVALID_ARGUMENT, "%s: expected a file (moec --help shows the usage)", argv[1]);
  return NULL;
}

/* "NAME=N" with N >= 0. */
moec_status *moec_arguments_dim(const char *text, moec_dim_setting *out) {
  const char *eq = strchr(text, '=');
  char *end = NULL;
  if (eq && eq != text && eq[1] >= '0' && eq[1] <= '9') {
    errno = 0;
    long long v = strtoll(eq + 1, &end, 10);
    if (!errno && !*end && (size_t)(eq - text) < sizeof out->name) {
      memcpy(out->name, text, (size_t)(eq - text));
      out->name[eq - text] = '\0';
      out->value = v;
      return NULL;
    }
  }
  return moec_error(MOEC_INVALID_ARGUMENT, "--dim: expected NAME=N with N >= 0, got \"%s\"", text);
}

/* |text|'s place among |n| words; |dflt| where the flag was not given. */
moec_status *moec_arguments_choice(const char *flag_name, const char *text, int n, const char *const *words, int dflt,
                                 int *out) {
  moec_buf all = {0};
  *out = dflt;
  if (!text) return NULL;
  for (int i = 0; i < n; i++) {
    if (strcmp(text, words[i]) == 0) *out = i;
    moec_buf_printf(&all, "%s%s", i == 0 ? "" : i + 1 < n ? ", " : " or ", words[i]);
  }
  bool found = *out >= 0 && strcmp(text, words[*out]) == 0;
  moec_status *s =
      found ? NULL
            : moec_error(MOEC_INVALID_ARGUMENT, "%s: expected %s, got \"%s\"", flag_name, moec_buf_str(&all), text);
  moec_buf_fini(&all);
  return s;
}

static moec_status *parse_coefficient(const char *flag_name, const char *text, double *out) {
  char *end = NULL;
  *out = 0;
  if (!text) return NULL;
  *out = moec_strtod(text, &end);
  if (end != text && !*end && isfinite(*out) && *out >= 0) return NULL;
  return moec_error(MOEC_INVALID_ARGUMENT, "%s: expected a number of at least 0, got \"%s\"", flag_name, text);
}

const char *const moec_recompute_words[2] = {"none", "block"}, *const moec_skip_words[3] = {"auto", "off", "on"};

static moec_status *parse_training(const arguments *a, moec_compile_options *out) {
  int choice;
  out->train = a->train;
  out->loss = a->loss;
  out->rules = a->rules;
  out->n_rules = (size_t)a->n_rules;
  if (a->needs_train && !a->train) return moec_error(MOEC_INVALID_ARGUMENT, "%s needs --train", a->needs_train);
  MOEC_TRY(parse_coefficient("--aux-loss", a->aux_loss, &out->aux_loss));
  MOEC_TRY(parse_coefficient("--z-loss", a->z_loss, &out->z_loss));
  MOEC_TRY(moec_arguments_choice("--recompute", a->recompute, 2, moec_recompute_words, 0, &choice));
  out->recompute = (moec_recompute)choice;
  MOEC_TRY(moec_arguments_choice("--skip-recompute-combine", a->skip, 3, moec_skip_words, 0, &choice));
  out->skip_combine = (moec_skip)choice;
  return NULL;
}

/* The architecture of --target cuda[:ARCH]; NULL: another target. */
const char *moec_arguments_cuda(const arguments *a) {
  if (!a->target || strcmp(a->target, "cuda") == 0) return a->target ? "sm_90a" : NULL;
  return strcmp(a->target, "cuda:sm_90a") == 0 ? a->target + strlen("cuda:") : NULL;
}

moec_status *moec_arguments_options(const arguments *a, moec_compile_options *out) {
  static const struct { const char *name; moec_precision p; } precisions[] = {
      {"f32", MOEC_PRECISION_F32}, {"bf16", MOEC_PRECISION_BF16}, {"f16", MOEC_PRECISION_F16}};
  *out = (moec_compile_options){.target = MOEC_TARGET_CPU, .precision = MOEC_PRECISION_MODEL};
  MOEC_TRY(parse_training(a, out));
  if (moec_arguments_cuda(a)) out->target = MOEC_TARGET_CUDA;
  else if (a->target && strcmp(a->target, "cpu") != 0)
    return moec_error(MOEC_INVALID_ARGUMENT, "--target: expected cpu, cuda or cuda:sm_90a, got \"%s\"", a->target);
  if (!a->precision) return NULL;
  for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++)
    if (strcmp(a->precision, precisions[i].name) == 0) out->precision = precisions[i].p;
  if (out->precision == MOEC_PRECISION_MODEL)
    return moec_error(MOEC_INVALID_ARGUMENT, "--precision: expected f32 or bf16, got \"%s\"", a->precision);
  if (out->precision == MOEC_PRECISION_F32 || (out->precision == MOEC_PRECISION_BF16 && moec_arguments_cuda(a)))
    return NULL;
  return moec_error(MOEC_UNSUPPORTED, "--precision %s: the %s", a->precision,
                    moec_arguments_cuda(a) ? "cuda target computes in f32 or bf16" : "cpu target computes in f32");
}
