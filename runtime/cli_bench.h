/* What bench measured. */
#ifndef MOEC_RUNTIME_CLI_BENCH_H
#define MOEC_RUNTIME_CLI_BENCH_H

#include "runtime/cli.h"
#include "runtime/cli_census.h"

typedef struct moec_rt_bench {
  const char *mode; /* "train" */
  moec_program program;
  bool updates; /* a step ends with one */
  moec_rt_list dims;
  const char *mode_name, *json;
  int steps, warmup, seed;
  bool kernels; /* the table is asked for */
  moec_options options;
  moec_model *m;
  moec_tensor *inputs;
  int64_t ids; /* integer inputs are below this */
  double *ms;  /* by step; behind them the same, sorted */
  double open_ms, bind_ms, first_ms;
  uint64_t allocations; /* after the first step */
  moec_counters before, after; /* the steps that were measured */
  int timed;                   /* steps that were timed kernel by kernel */
  moec_rt_table table;
} moec_rt_bench;

/* Error where the measured steps did what steps must not do once sizes are known. */
moec_status *moec_rt_bench_check(const moec_rt_bench *b) MOEC_MUST_USE;
void moec_rt_bench_print(const moec_rt_bench *b);
moec_status *moec_rt_bench_write(const moec_rt_bench *b) MOEC_MUST_USE; /* --json */

#endif
