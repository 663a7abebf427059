/* The steps: their operands, and that everything is written before it is read, by a schedule
 * that may, within its lifetime. */
#include <string.h>

#include "runtime/ops.h"
#include "runtime/plan_read.h"

#define BIT(kind) (1u << MOEC_BUFFER_##kind)

/* What the steps of a schedule may read and write; of programs' buffers only its own. */
static const struct {
  uint32_t reads, writes;
} access_of[MOEC_SCHEDULE_COUNT] = {
    [MOEC_AT_LOAD] = {BIT(PARAM) | BIT(CONST) | BIT(LOAD), BIT(LOAD)},
    [MOEC_AT_BIND] = {BIT(PARAM) | BIT(CONST) | BIT(LOAD) | BIT(BIND), BIT(BIND)},
    [MOEC_AT_STEP] = {~BIT(GRAD), BIT(STEP) | BIT(OUTPUT)},
    [MOEC_AT_TRAIN] = {~0u, BIT(STEP) | BIT(OUTPUT) | BIT(GRAD)},
    [MOEC_AT_VJP] = {~0u, BIT(STEP) | BIT(OUTPUT) | BIT(GRAD)},
};

/* What a step of |schedule| may read must have been written: LOAD and BIND buffers by any earlier
 * step, the others by this very program, which may run without the other ones. */
static bool is_there(const moec_rt_plan *p, uint32_t buffer, uint32_t schedule) {
  switch (p->buffers[buffer].kind) {
    case MOEC_BUFFER_LOAD:
    case MOEC_BUFFER_BIND: return p->written[buffer] != 0;
    case MOEC_BUFFER_STEP:
    case MOEC_BUFFER_OUTPUT:
    case MOEC_BUFFER_GRAD: return p->written[buffer] >> schedule & 1;
    default: return true;
  }
}

static bool optional(uint32_t mask, uint32_t i) { return i < 32 && (mask >> i & 1); }

static moec_status *check_count(const moec_rt_record *r, const char *what, uint32_t n, uint32_t min,
                                uint32_t max) {
  if (n >= min && n <= max) return NULL;
  return moec_rt_bad(r, "%s: expected %u to %u %s, got %u",
                     moec_rt_op_get(r->p->steps[r->i].op)->text, min, max, what, n);
}

/* The record says what its kernel does with the args of this step; of which types they are is said here. */
static moec_status *check_attention(const moec_rt_record *r, const moec_plan_step *s, const moec_plan_attention *a) {
  const moec_rt_plan *p = r->p;
  for (uint32_t i = 0; i < a->n_ones; i++)
    MOEC_TRY(moec_rt_check_index(r, "attention: ones", p->pool[a->ones + i], s->n_in));
  for (int o = 0; o < MOEC_ATTENTION_OPERANDS; o++) {
    uint32_t arg = a->operands[o].arg;
    bool lse = o == MOEC_ATTENTION_LSE, out = a->grad ? o >= MOEC_ATTENTION_DQ : o >= MOEC_ATTENTION_Y;
    if (arg == MOEC_NONE) continue;
    MOEC_TRY(moec_rt_check_index(r, "attention: operand", arg, s->n_in + s->n_out));
    uint32_t t = p->pool[s->args + arg];
    MOEC_TRY(moec_rt_check_index(r, "attention: operand", t, p->n_tensors));
    moec_dtype type = lse ? MOEC_F32 : (moec_dtype)a->dtype, got = (moec_dtype)p->tensors[t].dtype;
    if (out != (arg >= s->n_in) || got != type)
      return moec_rt_bad(r, "attention: operand %d: expected %s of type %s, got %s of type %s", o,
                         out ? "a result" : "an operand", moec_dtype_get(type)->text,
                         arg >= s->n_in ? "a result" : "an operand", moec_dtype_get(got)->text);
  }
  return NULL;
}

const moec_plan_attention *moec_rt_attention_of(const moec_rt_plan *p, const moec_plan_step *s) {
  for (uint32_t i = 0; s->op == MOEC_STEP_KERNEL && i < p->n_attentions; i++)
    if (p->attentions[i].kernel == s->kernel) return &p->attentions[i];
  return NULL;
}

static moec_status *check_shape(const moec_rt_record *r, const moec_plan_step *s) {
  const moec_rt_plan *p = r->p;
  const moec_rt_op *op = moec_rt_op_get(s->op);
  MOEC_TRY(moec_rt_check_string(r, "where", s->where));
  MOEC_TRY(moec_rt_check_optional(r, "call", s->call, p->n_calls));
  MOEC_TRY(moec_rt_check_optional(r, "moe", s->moe, p->n_moe_layers));
  MOEC_TRY(moec_rt_check_index(r, "flops", s->flops, p->n_exprs));
  MOEC_TRY(moec_rt_check_range(r, "args", s->args, (uint64_t)s->n_in + s->n_out, p->n_pool));
  MOEC_TRY(moec_rt_check_range(r, "ints", s->ints, s->n_ints, p->n_ints));
  if (moec_rt_has_kernel(s))
    MOEC_TRY(moec_rt_check_index(r, "kernel", s->kernel, p->n_kernels));
  MOEC_TRY(check_count(r, "inputs", s->n_in, op->min_in, op->max_in));
  MOEC_TRY(check_count(r, "outputs", s->n_out, op->min_out, op->max_out));
  MOEC_TRY(check_count(r, "integers", s->n_ints, op->min_ints, op->max_ints));
  return op->check_ints ? op->check_ints(r, &p->ints[s->ints], s->n_ints) : NULL;
}

static moec_status *check_args(const moec_rt_record *r, const moec_plan_step *s) {
  const moec_rt_plan *p = r->p;
  const moec_rt_op *op = moec_rt_op_get(s->op);
  uint32_t at = r->i - p->schedule_begin[s->schedule];
  for (uint32_t k = 0; k < s->n_in + s->n_out; k++) {
    uint32_t t = p->pool[s->args + k];
    bool in = k < s->n_in;
    bool may_miss = in ? optional(op->optional_in, k) : optional(op->optional_out, k - s->n_in);
    if (t == MOEC_NONE && may_miss) continue;
    MOEC_TRY(moec_rt_check_index(r, "operand", t, p->n_tensors));
    uint32_t b = p->tensors[t].buffer, kind = p->buffers[b].kind;
    uint32_t allowed = in ? access_of[s->schedule].reads : access_of[s->schedule].writes;
    if (!(allowed >> kind & 1)) {
      return moec_rt_bad(r, "operand %u: expected a buffer that schedule %u can %s, got one of kind %u", k,
                         s->schedule, in ? "read" : "write", kind);
    }
    const moec_plan_buffer *x = &p->buffers[b];
    if (moec_rt_of_program(kind) && x->schedule != s->schedule) {
      return moec_rt_bad(r, "operand %u: expected a buffer of program %u, got one of program %u", k,
                         s->schedule, x->schedule);
    }
    if (in && !is_there(p, b, s->schedule)) {
      return moec_rt_bad(r, "operand %u: expected a buffer that was written before, got %u", k, b);
    }
    if (!in) p->written[b] |= (uint8_t)(1u << s->schedule);
    if (kind == MOEC_BUFFER_STEP && (at < x->first || at > x->last)) {
      return moec_rt_bad(r, "operand %u: expected a step from %u to %u, while buffer %u lives, got step %u", k,
                         x->first, x->last, b, at);
    }
  }
  return NULL;
}

static moec_status *check_outputs(const moec_rt_plan *p) {
  for (uint32_t i = 0; i < p->n_outputs; i++) {
    const moec_rt_record r = {p, "output", i};
    uint32_t b = p->tensors[p->outputs[i].tensor].buffer;
    if (!is_there(p, b, p->outputs[i].schedule)) {
      return moec_rt_bad(&r, "expected a buffer that a step writes, got %u", b);
    }
  }
  return NULL;
}

moec_status *moec_rt_check_steps(moec_rt_plan *p) {
  uint32_t schedule = 0;
  MOEC_TRY(MOEC_RT_NEW(p->mem, p->written, p->n_buffers, "plan"));
  for (uint32_t i = 0; i < p->n_steps; i++) {
    const moec_plan_step *s = &p->steps[i];
    const moec_rt_record r = {p, "step", i};
    MOEC_TRY(moec_rt_check_index(&r, "op", s->op, MOEC_STEP_COUNT));
    MOEC_TRY(moec_rt_check_index(&r, "schedule", s->schedule, MOEC_SCHEDULE_COUNT));
    if (s->schedule < schedule)
      return moec_rt_bad(&r, "expected steps sorted by schedule, got one of %u behind %u", s->schedule, schedule);
    while (schedule < s->schedule) p->schedule_begin[++schedule] = i;
    MOEC_TRY(check_shape(&r, s));
    MOEC_TRY(check_args(&r, s));
    const moec_plan_attention *a = moec_rt_attention_of(p, s);
    if (a) MOEC_TRY(check_attention(&r, s, a));
  }
  while (schedule < MOEC_SCHEDULE_COUNT) p->schedule_begin[++schedule] = p->n_steps;
  return check_outputs(p);
}
