/* What a step does in its expert regions, stage by stage. */
#ifndef MOEC_RUNTIME_CLI_STAGES_H
#define MOEC_RUNTIME_CLI_STAGES_H

#include "runtime/cli.h"
#include "runtime/plan_read.h"

enum { MOEC_RT_STAGES = 16 };
typedef struct moec_rt_stages {
  size_t n;
  struct {
    const char *name; /* "dispatch", "fc1", "fc2_input_gradient" */
    uint64_t calls;   /* in one step */
  } of[MOEC_RT_STAGES];
} moec_rt_stages;

/* The stage that step |s| is; NULL: it is none of experts. */
const char *moec_rt_stage_of(const moec_rt_plan *p, const moec_plan_step *s);
/* The stages of |program| that are there at all. */
void moec_rt_stages_count(const moec_model *m, moec_program program, moec_rt_stages *out);
void moec_rt_stages_print(const moec_model *m, moec_program program); /* one line to stdout */

#endif
