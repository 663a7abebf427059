/* What a step does and where its time goes: by kernel, and by what launches it. */
#ifndef MOEC_RUNTIME_CLI_CENSUS_H
#define MOEC_RUNTIME_CLI_CENSUS_H

#include <jansson.h>

#include "runtime/cli.h"
#include "runtime/device.h"

typedef enum moec_rt_kind {
  MOEC_RT_GENERATED, /* kernels of the model's own */
  MOEC_RT_LIBRARY,   /* products, sorting and the like */
  MOEC_RT_MOE,       /* stages of experts */
  MOEC_RT_COPYING,   /* steps that do nothing else */
  MOEC_RT_KINDS
} moec_rt_kind;

/* Steps of a program that do the same in the same function. */
typedef struct moec_rt_row {
  char *what;           /* operands and results, or the kernel's own text */
  const char *name;     /* "k12", "gemm", "fc1" */
  const char *function; /* "attention0_fwd" */
  moec_rt_kind kind;
  uint64_t steps, ns, bytes, flops; /* of one run; bytes: what the operands hold */
  moec_rt_launches launches;
} moec_rt_row;

typedef struct moec_rt_table {
  moec_rt_row *rows; /* the longest first */
  size_t n;
  bool counted; /* launches are there: a device has them */
} moec_rt_table;

/* Of |program|, which has run, timed |runs| times. */
moec_status *moec_rt_table_take(moec_model *m, moec_program program, int runs, moec_rt_table *out)
    MOEC_MUST_USE;
void moec_rt_table_fini(moec_rt_table *t);
void moec_rt_table_print(const moec_rt_table *t);  /* a line a row */
void moec_rt_census_print(const moec_rt_table *t);   /* launches by kind, where they are counted */
json_t *moec_rt_table_json(const moec_rt_table *t);
json_t *moec_rt_census_json(const moec_rt_table *t);

#endif
