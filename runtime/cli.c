#include "runtime/cli.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/number.h"

/* ---- flags ------------------------------------------------------------------------------- */

static moec_status *parse_int(const char *name, const char *text, int min, int *out) {
  char *end;
  errno = 0;
  long v = strtol(text, &end, 10);
  if (errno || end == text || *end || v < min || v > INT_MAX) {
    return moec_wrong("%s: expected an integer of at least %d, got '%s'", name, min, text);
  }
  *out = (int)v;
  return NULL;
}

static moec_status *parse_real(const char *name, const char *text, int min, double *out) {
  char *end;
  *out = moec_strtod(text, &end);
  if (end == text || *end || !isfinite(*out) || *out < min)
    return moec_wrong("%s: expected a number of at least %d, got '%s'", name, min, text);
  return NULL;
}

static moec_status *add_item(moec_rt_list *l, const char *item) {
  const char **items = realloc(l->items, (l->n + 1) * sizeof *items);
  if (!items) return moec_error(MOEC_OUT_OF_MEMORY, "no memory for the command line");
  l->items = items;
  l->items[l->n++] = item;
  return NULL;
}

static moec_status *set_flag(const moec_rt_flag *f, const char *value) {
  switch (f->kind) {
    case MOEC_RT_SWITCH: *(bool *)f->to = true; return NULL;
    case MOEC_RT_INT: return parse_int(f->name, value, f->min, f->to);
    case MOEC_RT_REAL: return parse_real(f->name, value, f->min, f->to);
    case MOEC_RT_LIST: return add_item(f->to, value);
    case MOEC_RT_TEXT: break;
  }
  if (!*value) return moec_wrong("%s: expected a value, got an empty one", f->name);
  *(const char **)f->to = value;
  return NULL;
}

static moec_status *find_flag(const moec_rt_flag *flags, size_t n, const char *arg,
                              const moec_rt_flag **out) {
  size_t length = strcspn(arg, "=");
  for (size_t i = 0; i < n; i++) {
    if (strlen(flags[i].name) == length && !memcmp(flags[i].name, arg, length)) {
      *out = &flags[i];
      return NULL;
    }
  }
  char known[512] = "";
  for (size_t i = 0; i < n; i++) {
    size_t used = strlen(known);
    snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", flags[i].name);
  }
  return moec_wrong("unknown argument '%s': expected one of %s", arg, known);
}

moec_status *moec_rt_flags_parse(const moec_rt_flag *flags, size_t n, int argc, char **argv) {
  uint64_t seen = 0; /* by flag */
  for (int i = 0; i < argc; i++) {
    const moec_rt_flag *f;
    MOEC_TRY(find_flag(flags, n, argv[i], &f));
    if (f->kind != MOEC_RT_LIST && seen >> (f - flags) & 1)
      return moec_wrong("%s was given twice", f->name);
    seen |= UINT64_C(1) << (f - flags);
    const char *value = strchr(argv[i], '=');
    if (f->kind == MOEC_RT_SWITCH) {
      if (value) return moec_wrong("%s: expected no value, got '%s'", f->name, value + 1);
    } else if (value) {
      value++;
    } else {
      if (i + 1 == argc) return moec_wrong("%s: expected a value, got none", f->name);
      value = argv[++i];
    }
    MOEC_TRY(set_flag(f, value));
  }
  return NULL;
}

void moec_rt_list_fini(moec_rt_list *l) {
  free(l->items);
  *l = (moec_rt_list){0};
}

moec_status *moec_rt_split(const char *flag, const char *text, char *name, size_t size,
                           const char **value) {
  const char *equals = strchr(text, '=');
  if (!equals || equals == text || !equals[1] || (size_t)(equals - text) >= size) {
    return moec_wrong("%s: expected NAME=VALUE, got '%s'", flag, text);
  }
  memcpy(name, text, (size_t)(equals - text));
  name[equals - text] = 0;
  *value = equals + 1;
  return NULL;
}

/* ---- the model --------------------------------------------------------------------------- */

/* Under its own name where that still leads to it: messages and the search for weights use it. */
moec_status *moec_rt_open_self(const moec_options *o, moec_model **out) {
  char path[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n < 0) return moec_error(MOEC_IO, "cannot find this executable: %s", strerror(errno));
  path[n] = 0;
  return moec_open(access(path, R_OK) ? "/proc/self/exe" : path, o, out);
}

moec_status *moec_rt_bind_dims(moec_model *m, const moec_rt_list *dims) {
  enum { MAX_DIMS = 64, NAME = 256 };
  if (dims->n > MAX_DIMS)
    return moec_wrong("--dim: expected at most %d, got %zu", (int)MAX_DIMS, dims->n);
  char names[MAX_DIMS][NAME];
  const char *pointers[MAX_DIMS];
  int64_t values[MAX_DIMS];
  for (size_t i = 0; i < dims->n; i++) {
    const char *value;
    int v = 0;
    MOEC_TRY(moec_rt_split("--dim", dims->items[i], names[i], NAME, &value));
    MOEC_TRY(parse_int("--dim", value, 0, &v));
    for (size_t k = 0; k < i; k++)
      if (!strcmp(names[k], names[i])) return moec_wrong("--dim %s was given twice", names[i]);
    values[i] = v;
    pointers[i] = names[i];
  }
  for (uint32_t i = 0; i < moec_symbol_count(m); i++) {
    const char *name;
    int64_t fixed;
    MOEC_TRY(moec_symbol(m, i, &name, &fixed));
    bool given = fixed >= 0;
    for (size_t k = 0; k < dims->n && !given; k++) given = !strcmp(names[k], name);
    if (!given) return moec_wrong("expected --dim %s=N, got none", name);
  }
  return moec_bind_sizes(m, (uint32_t)dims->n, pointers, values);
}

moec_tensor moec_rt_as_tensor(const moec_view *v) {
  moec_tensor t = {.dtype = (moec_dtype)v->dtype, .rank = v->rank, .data = v->data};
  memcpy(t.dims, v->dims, sizeof t.dims);
  return t;
}

/* ---- subcommands ------------------------------------------------------------------------- */

static const char usage[] =
    "usage:\n"
    "  run    --input NAME=FILE.npy ... [--output NAME=FILE.npy ...] [--routes-out "
    "FILE.safetensors]\n"
    "  bench  --dim NAME=N ... [--mode forward|train|step] [--steps N] [--warmup N] [--seed N]\n"
    "         [--json OUT] [--kernels]\n"
    "  info   [--dim NAME=N ...]\n"
    "of models compiled with --train:\n"
    "  grad   --input NAME=FILE.npy ... -o OUT.safetensors [--routes FILE.safetensors] [--outputs]\n"
    "  train  --data FILE --steps N [--batch N] [--seq N] [--accumulate N] [--optimizer adamw|sgd]\n"
    "         [--lr X] [--weight-decay X] [--beta1 X] [--beta2 X] [--eps X] [--warmup N] [--clip X]\n"
    "         [--seed N] [--save DIR [--resume] [--save-every N]] [--log-every N]\n"
    "everywhere: --weights DIR  --threads N  --trust-weights\n";

static const struct {
  const char *name;
  moec_status *(*run)(int argc, char **argv);
} commands[] = {
    {"run", moec_rt_cli_run}, {"bench", moec_rt_cli_bench}, {"info", moec_rt_cli_info},
    {"grad", moec_rt_cli_grad}, {"train", moec_rt_cli_train},
};

static moec_status *dispatch(int argc, char **argv) {
  if (argc < 2)
    return moec_wrong("expected a command: run, bench, info, grad or train; --help shows more");
  if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "help")) {
    fputs(usage, stdout);
    return NULL;
  }
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    if (!strcmp(argv[1], commands[i].name)) return commands[i].run(argc - 2, argv + 2);
  }
  return moec_wrong("unknown command '%s': expected run, bench, info, grad or train", argv[1]);
}

int moec_rt_cli_main(int argc, char **argv) {
  moec_status *s = dispatch(argc, argv);
  if (!s && fflush(stdout)) s = moec_error(MOEC_IO, "cannot write: %s", strerror(errno));
  if (!s) return 0;
  int code = moec_status_exit(s);
  fprintf(stderr, "moec: error: %s\n", moec_status_message(s));
  moec_status_free(s);
  return code;
}
