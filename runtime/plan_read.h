/* The plan of include/plan.h, opened and checked once: whoever holds a moec_rt_plan may follow
 * every index, offset and string in it without looking. What the checks cannot promise is
 * that a kernel keeps to its operands; kernels are as trusted as the file's owner.
 * Thread-safe once open. */
#ifndef MOEC_RUNTIME_PLAN_READ_H
#define MOEC_RUNTIME_PLAN_READ_H

#include "base/dtype.h"
#include "base/file.h"
#include "base/status.h"
#include "include/plan.h"
#include "runtime/memory.h"

typedef struct moec_rt_plan {
  moec_rt_memory *mem;
  moec_map map; /* of a file; else the caller's bytes or |copy| are used */
  void *copy;   /* of bytes that were not aligned */
  char *file;   /* for messages */
  const uint8_t *payload;
  moec_footer footer;
  const moec_plan_header *header;
#define MOEC_RT_SECTION(field, type) \
  const type *field;                 \
  uint32_t n_##field;
  MOEC_PLAN_SECTIONS(MOEC_RT_SECTION)
#undef MOEC_RT_SECTION
  const uint8_t *kernel_object; /* the shared object; NULL when there is none */
  const uint8_t *data;
  uint32_t schedule_begin[MOEC_SCHEDULE_COUNT + 1]; /* steps of schedule s: [s] .. [s + 1] */
  uint8_t *written; /* by buffer: a bit for each schedule that writes it */
  int64_t *static_values; /* by expr: its value without sizes, MOEC_RT_UNKNOWN where it needs one */
} moec_rt_plan;

/* Reads the executable or payload |path|, or |bytes|, which are borrowed until the plan's end.
 * |trust|: the payload's hash is not computed. Errors name |path|. */
moec_status *moec_rt_plan_open(moec_rt_memory *mem, const char *path, bool trust,
                               moec_rt_plan *out) MOEC_MUST_USE;
moec_status *moec_rt_plan_open_memory(moec_rt_memory *mem, const void *bytes, size_t size,
                                      bool trust, moec_rt_plan *out) MOEC_MUST_USE;
void moec_rt_plan_fini(moec_rt_plan *p);

/* Whether buffers of |kind| belong to one program, the buffer's schedule. */
static inline bool moec_rt_of_program(uint32_t kind) {
  return kind == MOEC_BUFFER_INPUT || kind == MOEC_BUFFER_STEP || kind == MOEC_BUFFER_OUTPUT;
}

/* Whether step |s| names a generated kernel: it is one, or a product of experts with its activation. */
static inline bool moec_rt_has_kernel(const moec_plan_step *s) {
  return s->op == MOEC_STEP_KERNEL || (s->op == MOEC_STEP_MOE_GROUPED_DOT && s->n_out == 2);
}

static inline const char *moec_rt_str(const moec_rt_plan *p, moec_str_ref s) {
  return p->strings + s;
}
static inline const moec_plan_buffer *moec_rt_buffer_of(const moec_rt_plan *p, uint32_t tensor) {
  return &p->buffers[p->tensors[tensor].buffer];
}

/* What step |s| does, where it is an attention that a library may do; else NULL. */
const moec_plan_attention *moec_rt_attention_of(const moec_rt_plan *p, const moec_plan_step *s);

/* The parts of the check: records (plan_check.c), parameters (plan_params.c), and the steps
 * with what they read and write (plan_flow.c). */
moec_status *moec_rt_check_records(const moec_rt_plan *p) MOEC_MUST_USE;
moec_status *moec_rt_check_params(const moec_rt_plan *p) MOEC_MUST_USE;
moec_status *moec_rt_check_steps(moec_rt_plan *p) MOEC_MUST_USE;

/* One record under check: helpers whose errors read "step 12: args: expected ..., got ...". */
typedef struct moec_rt_record {
  const moec_rt_plan *p;
  const char *section;
  uint32_t i;
} moec_rt_record;

moec_status *moec_rt_bad(const moec_rt_record *r, const char *fmt, ...) MOEC_PRINTF(2, 3);
moec_status *moec_rt_check_index(const moec_rt_record *r, const char *field, uint32_t v,
                                 uint32_t n) MOEC_MUST_USE;
/* The same, or MOEC_NONE. */
moec_status *moec_rt_check_optional(const moec_rt_record *r, const char *field, uint32_t v,
                                    uint32_t n) MOEC_MUST_USE;
moec_status *moec_rt_check_range(const moec_rt_record *r, const char *field, uint32_t first,
                                 uint64_t count, uint32_t n) MOEC_MUST_USE;
moec_status *moec_rt_check_string(const moec_rt_record *r, const char *field,
                                  moec_str_ref s) MOEC_MUST_USE;

#endif
