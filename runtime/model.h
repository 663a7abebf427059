/* An opened model. Everything in it belongs to one thread at a time. */
#ifndef MOEC_RUNTIME_MODEL_H
#define MOEC_RUNTIME_MODEL_H

#include "base/tensor.h"
#include "include/moec.h"
#include "runtime/device.h"
#include "runtime/kernels.h"
#include "runtime/ops.h"
#include "runtime/params.h"
#include "runtime/plan_read.h"
#include "runtime/threads.h"
#include "runtime/train.h"

/* What one set of sizes means for one schedule. */
typedef struct moec_rt_placement {
  bool ready, ran;   /* checked and placed; run since then */
  uint64_t bytes;    /* of its buffers in their arena */
  moec_rt_need need; /* the largest of any of its steps */
  uint64_t kernels, library, regions, in_regions, flops;
  struct {
    uint64_t steps, bytes, flops;
  } classes[MOEC_STEP_COUNT];
} moec_rt_placement;

/* What one set of sizes means: values of expressions, places of buffers, counts. Programs are
 * placed when they are first run. One block of memory; the arrays lie behind the struct. */
typedef struct moec_rt_binding {
  uint64_t used;    /* tick of the last use */
  int64_t *symbols; /* [n_symbols] */
  int64_t *values;  /* [n_exprs] */
  uint64_t *offset; /* [n_buffers]: in the arena of its kind */
  bool *alone;      /* [n_steps]: so little work that calling other threads costs more */
  moec_rt_placement of[MOEC_SCHEDULE_COUNT];
} moec_rt_binding;

/* An input or output as the user sees it: the one of this name of every program. */
typedef struct moec_rt_io {
  const char *name;
  uint32_t at[MOEC_SCHEDULE_COUNT]; /* index into the plan's inputs or outputs; MOEC_NONE */
} moec_rt_io;

typedef struct moec_rt_input {
  moec_tensor view;             /* dtype NONE: not set */
  void (*release)(void *owner); /* called when |view| is needed no more; NULL: nobody waits */
  void *owner;
  moec_rt_arena copy;
  moec_rt_arena fill; /* the input's default, as often as any step needed it */
} moec_rt_input;

enum { MOEC_RT_MAX_BINDINGS = 64 }; /* the least recently used one goes */

struct moec_model {
  moec_rt_memory memory;
  moec_rt_plan plan;
  moec_rt_pool *pool;
  const moec_rt_device *device;
  moec_rt_memory device_memory; /* of a device with memory of its own */
  moec_rt_kernels kernels;      /* cpu */
  struct moec_rt_cuda *cuda;    /* cuda */
  moec_rt_params params;
  bool timed;
  char **dim_text;        /* by expr; NULL where no input, output or parameter has it */
  void **buffers;         /* [n_buffers]: current addresses, of the device */
  void **host;            /* [n_buffers]: in the host's memory; |buffers| where that is the device's */
  moec_rt_copies *copies; /* NULL where the device works in the host's memory */
  void **input_data;      /* [n_ins]: likewise */
  void **args;            /* for kernels: room for the operands of any step */
  moec_rt_io *ins, *outs; /* the plan's inputs and outputs by name */
  uint32_t n_ins, n_outs;
  moec_rt_input *inputs; /* [n_ins] */
  moec_tensor *shapes;   /* [n_ins]: to solve for sizes */
  moec_rt_arena load, bind, step, scratch, shared; /* the device's, as the next two */
  moec_rt_arena device_params, device_inputs;
  moec_rt_need need;      /* what scratch (for each thread) and shared hold */
  moec_rt_binding *fixed; /* for the load schedule: no sizes but the fixed ones */
  moec_rt_binding *bindings[MOEC_RT_MAX_BINDINGS];
  uint32_t n_bindings;
  moec_rt_binding *bound; /* NULL: none */
  int64_t *symbols;       /* [n_symbols]: to work out sizes in */
  int64_t *values;        /* [n_exprs]: likewise */
  uint64_t tick, forwards, binds, placements, allocations_after_first;
  uint64_t attention_by_library; /* steps of the program that began last */
  uint64_t compilations;         /* plans that were asked of a library for it */
  const char *attention_note;    /* why kernels ran where a library may; NULL: they did not */
  moec_schedule ran; /* the program whose outputs are valid; MOEC_SCHEDULE_COUNT: none */
  moec_rt_traffic traffic;
  uint64_t *ns;    /* [n_steps]: spent in each while timed */
  uint64_t *marks; /* [n_steps + 1]: moments of a timed run; a device that has its own clock keeps them itself */
  uint64_t *between; /* [n_steps]: from one to the next */
  moec_rt_train train;
  moec_tensor *forced;   /* [n_steps]: indices that a moe.select takes; dtype NONE: it chooses */
  bool poison;           /* MOEC_POISON: what is not computed is NaN */
  _Atomic uint32_t refs; /* the caller's, and one for each tensor that another library holds */
};

/* ---- api.c ---- */
void moec_rt_release(moec_model *m); /* one reference less */

/* ---- exec_io.c ---- */
/* Tells the owner of the input's memory, if one waits. */
static inline void moec_rt_input_release(moec_rt_input *in) {
  if (in->release) in->release(in->owner);
  in->release = NULL;
}
/* Fills m->ins and m->outs. */
moec_status *moec_rt_io_init(moec_model *m) MOEC_MUST_USE;
/* The index in the plan of the first program that has |x|. */
static inline uint32_t moec_rt_io_first(const moec_rt_io *x) {
  uint32_t s = MOEC_AT_STEP;
  while (x->at[s] == MOEC_NONE) s++;
  return x->at[s];
}

/* The record that says what fills input |i| where it is left out; NULL: it must be given. */
static inline const moec_plan_io *moec_rt_default_of(const moec_model *m, uint32_t i) {
  const moec_plan_io *io = &m->plan.inputs[moec_rt_io_first(&m->ins[i])];
  return io->has_default ? io : NULL;
}

/* ---- exec_symbols.c ---- */
/* symbols[] from the shapes of the inputs that |program| has, and the checks of these against sizes.
 * |inputs| by m->ins. */
moec_status *moec_rt_solve(moec_model *m, moec_schedule program, const moec_tensor *inputs,
                           int64_t *symbols) MOEC_MUST_USE;
/* "with batch = 2, seq = 6" of the symbols in |a| and |b|; "" where there are none. */
const char *moec_rt_sizes_text(const moec_model *m, const int64_t *symbols, moec_expr_ref a,
                               moec_expr_ref b, char *out, size_t size);

/* ---- exec_bind.c ---- */
/* A new binding, with nothing placed. */
moec_status *moec_rt_binding_make(moec_model *m, const int64_t *symbols,
                                  moec_rt_binding **out) MOEC_MUST_USE;
/* Checks the steps of |schedule| for the sizes of |b| and places its buffers, once for each. */
moec_status *moec_rt_placement_make(moec_model *m, moec_rt_binding *b,
                                    moec_schedule schedule) MOEC_MUST_USE;
/* What m->scratch and m->shared take for |need|. */
uint64_t moec_rt_scratch_bytes(const moec_model *m, const moec_rt_need *need);
/* Makes m->scratch and m->shared large enough. */
moec_status *moec_rt_reserve_scratch(moec_model *m, const moec_rt_need *need) MOEC_MUST_USE;
/* Makes the sizes |symbols| the bound ones. */
moec_status *moec_rt_bind(moec_model *m, const int64_t *symbols) MOEC_MUST_USE;
/* Memory and addresses for |program| in the bound sizes. */
moec_status *moec_rt_prepare(moec_model *m, moec_schedule program) MOEC_MUST_USE;

/* What the operands of |s| hold, read or written. */
uint64_t moec_rt_operand_bytes(const moec_model *m, const moec_rt_binding *b, const moec_plan_step *s);

/* ---- exec_place.c ---- */
/* Whether |b| is placed in the arena of programs when |program| runs. */
static inline bool moec_rt_placed(const moec_plan_buffer *b, moec_schedule program) {
  return (b->kind == MOEC_BUFFER_STEP || b->kind == MOEC_BUFFER_OUTPUT) &&
         b->schedule == (uint32_t)program;
}
/* Offsets of all STEP and OUTPUT buffers of |program|; bytes[] by buffer. */
moec_status *moec_rt_place(moec_model *m, moec_schedule program, const uint64_t *bytes,
                           uint64_t *offset, uint64_t *out_total) MOEC_MUST_USE;

/* ---- planned.c ---- */
/* What |program| alone takes of the device's memory in the bound sizes; 0: it is not placed yet. */
uint64_t moec_rt_planned_bytes(const moec_model *m, moec_schedule program);

/* ---- routes.c ---- */
/* moe.select with its result given. */
moec_status *moec_rt_run_forced(moec_model *m, const moec_rt_call *c, const moec_tensor *indices) MOEC_MUST_USE;

/* ---- exec.c ---- */
moec_status *moec_rt_run_schedule(moec_model *m, moec_schedule schedule,
                                  const moec_rt_binding *b) MOEC_MUST_USE;
/* What each step of |program| gives the device in the bound sizes, counted without running it; |out| by step of the
 * plan. Error where the device launches nothing. */
moec_status *moec_rt_census(moec_model *m, moec_schedule program, moec_rt_launches *out) MOEC_MUST_USE;
/* Step |i| of the plan alone, between begin() and end() of the device. */
moec_status *moec_rt_run_step(moec_model *m, uint32_t i, const moec_rt_binding *b) MOEC_MUST_USE;
/* The operands of library step |s|; data from m->buffers, or NULL when |addresses| is false. */
void moec_rt_call_init(const moec_model *m, const moec_plan_step *s, const moec_rt_binding *b,
                       bool addresses, moec_rt_call *out);
/* Runs |program| on the inputs given: binds their sizes, places it, attaches them. (api_run.c) */
moec_status *moec_rt_run_program(moec_model *m, moec_schedule program) MOEC_MUST_USE;
/* A tensor of the plan for the sizes of |b|, with the device's address. */
void moec_rt_tensor_view(const moec_model *m, const moec_rt_binding *b, uint32_t tensor,
                         moec_tensor *out);

#endif
