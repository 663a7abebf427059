/* The command line of a compiled model: docs/design.md, section "Command line". Unlike the rest of
 * the runtime this prints: results to stdout, one line a message to stderr. */
#ifndef MOEC_RUNTIME_CLI_H
#define MOEC_RUNTIME_CLI_H

#include <stdbool.h>
#include <stddef.h>

#include "base/tensor.h"
#include "include/moec.h"

/* Exit status: 0 done, 1 failed while running, 2 wrong usage or wrong input. */
int moec_rt_cli_main(int argc, char **argv);

/* ---- what the subcommands share ---------------------------------------------------------- */

typedef enum moec_rt_flag_kind {
  MOEC_RT_TEXT,
  MOEC_RT_INT,
  MOEC_RT_REAL,
  MOEC_RT_SWITCH,
  MOEC_RT_LIST
} moec_rt_flag_kind;

typedef struct moec_rt_list {
  const char **items; /* arguments, borrowed; the array is freed by moec_rt_list_fini() */
  size_t n;
} moec_rt_list;

/* One flag: --name VALUE or --name=VALUE. |to|: const char **, int *, double *, bool * or moec_rt_list *. */
typedef struct moec_rt_flag {
  const char *name; /* with its dashes */
  moec_rt_flag_kind kind;
  void *to;
  int min; /* least value of an INT or REAL */
} moec_rt_flag;

moec_status *moec_rt_flags_parse(const moec_rt_flag *flags, size_t n, int argc,
                                 char **argv) MOEC_MUST_USE;
void moec_rt_list_fini(moec_rt_list *l);

/* "NAME=VALUE" in two; |name| is cut to |size|. Error naming |flag| unless both are there. */
moec_status *moec_rt_split(const char *flag, const char *text, char *name, size_t size,
                           const char **value) MOEC_MUST_USE;

/* Opens the running executable. */
moec_status *moec_rt_open_self(const moec_options *o, moec_model **out) MOEC_MUST_USE;
/* Binds the sizes of "--dim NAME=N" arguments. */
moec_status *moec_rt_bind_dims(moec_model *m, const moec_rt_list *dims) MOEC_MUST_USE;
/* A view as a tensor that borrows its data. */
moec_tensor moec_rt_as_tensor(const moec_view *v);

moec_status *moec_rt_cli_run(int argc, char **argv) MOEC_MUST_USE;
moec_status *moec_rt_cli_grad(int argc, char **argv) MOEC_MUST_USE;
moec_status *moec_rt_cli_train(int argc, char **argv) MOEC_MUST_USE;
moec_status *moec_rt_cli_bench(int argc, char **argv) MOEC_MUST_USE;
moec_status *moec_rt_cli_info(int argc, char **argv) MOEC_MUST_USE;

#endif
