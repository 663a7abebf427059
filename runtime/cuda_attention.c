/* Attention through cuDNN where the plan says that a kernel is one and cuDNN has a plan for its sizes: which of the two
 * runs is decided when a program begins. Both read and write the same operands, the log-sum-exp of a forward too, so
 * each choice stands alone. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda.h"
#include "runtime/cudnn.h"

static_assert((int)MOEC_CUDNN_LSE == (int)MOEC_ATTENTION_LSE && (int)MOEC_CUDNN_DV == (int)MOEC_ATTENTION_DV,
              "operands of both have one order");

/* A step that may be cuDNN's. */
typedef struct call {
  const moec_plan_attention *record;
  uint32_t step;
  moec_cudnn_plan *plan; /* runs in this program; NULL: the kernel does */
  /* the last one's */
  moec_cudnn_descriptor pack;
  const moec_cudnn_plan *packed;
  void *operands[MOEC_CUDNN_OPERANDS], *workspace;
} call;

struct moec_rt_attention {
  moec_cudnn cudnn;
  call *calls; /* in order of steps */
  uint32_t n_calls;
  struct {
    moec_cudnn_plan *plan; /* one without a descriptor: cuDNN has none for it */
    uint64_t used;
  } plans[MOEC_RT_MAX_BINDINGS];
  uint64_t tick;
  char why[256]; /* cuDNN was not opened, or had no plan when it was asked last */
};

/* Keeps what |s|, which ends, says. */
static void note(struct moec_rt_attention *a, moec_status *s) {
  if (s) snprintf(a->why, sizeof a->why, "%s", moec_status_message(s));
  moec_status_free(s);
}

/* ---- opening ----------------------------------------------------------------------------- */

static moec_status *find_calls(moec_model *m, struct moec_rt_attention *a) {
  const moec_rt_plan *p = &m->plan;
  MOEC_TRY(MOEC_RT_NEW(&m->memory, a->calls, p->n_steps, "attention"));
  for (uint32_t i = p->schedule_begin[MOEC_AT_STEP]; i < p->n_steps; i++) {
    const moec_plan_attention *r = moec_rt_attention_of(p, &p->steps[i]);
    if (r) a->calls[a->n_calls++] = (call){.record = r, .step = i};
  }
  return NULL;
}

/* Without cuDNN the kernels run, which do the same. */
moec_status *moec_rt_cuda_attention_open(moec_model *m) {
  moec_rt_cuda *c = m->cuda;
  const char *off = getenv("MOEC_CUDNN");
  if (!m->plan.n_attentions || (off && !strcmp(off, "none"))) return NULL;
  MOEC_TRY(MOEC_RT_NEW(&m->memory, c->attention, 1, "attention"));
  MOEC_TRY(find_calls(m, c->attention));
  if (c->attention->n_calls) note(c->attention, moec_cudnn_open(c->stream, &c->attention->cudnn));
  return NULL;
}

/* Forgets plan |i|, and what was made for it. */
static void drop_plan(moec_model *m, uint32_t i) {
  struct moec_rt_attention *a = m->cuda->attention;
  moec_cudnn_plan *p = a->plans[i].plan;
  if (!p) return;
  for (uint32_t k = 0; k < a->n_calls; k++) {
    if (a->calls[k].packed == p) moec_cudnn_pack_drop(&a->cudnn, &a->calls[k].pack), a->calls[k].packed = NULL;
    if (a->calls[k].plan == p) a->calls[k].plan = NULL;
  }
  moec_cudnn_plan_drop(&a->cudnn, p);
  moec_rt_free(&m->memory, p);
  a->plans[i].plan = NULL;
}

void moec_rt_cuda_attention_close(moec_model *m) {
  struct moec_rt_attention *a = m->cuda->attention;
  if (!a) return;
  for (uint32_t i = 0; i < MOEC_RT_MAX_BINDINGS; i++) drop_plan(m, i);
  moec_cudnn_close(&a->cudnn);
  moec_rt_free(&m->memory, a->calls);
  moec_rt_free(&m->memory, a);
  m->cuda->attention = NULL;
}

/* ---- what a step is in some sizes ---------------------------------------------------------- */

static bool is_of_keys(int o) {
  return o == MOEC_ATTENTION_K || o == MOEC_ATTENTION_V || o == MOEC_ATTENTION_DK || o == MOEC_ATTENTION_DV;
}

static bool is_of_values(int o) {
  return o == MOEC_ATTENTION_V || o == MOEC_ATTENTION_Y || o == MOEC_ATTENTION_DY || o == MOEC_ATTENTION_DV;
}

/* The bytes between the first of |sizes| elements at |strides| and the end of the last, none of them negative. */
static bool reaches(int64_t offset, const int64_t *sizes, const int64_t *strides, int64_t width, int64_t *last) {
  bool fits = offset >= 0 && !__builtin_add_overflow(offset, width, last);
  for (int i = 0; i < 3 && fits; i++) {
    int64_t far;
    fits = strides[i] >= 0 && !__builtin_mul_overflow(sizes[i] - 1, strides[i], &far) &&
           !__builtin_add_overflow(*last, far, last);
  }
  return fits;
}

/* Strides of operand |o|, which lies inside of its tensor; |aligned|: as cuDNN wants it. */
static moec_status *view_operand(const moec_model *m, const moec_plan_step *s, const moec_rt_binding *b,
                                 const moec_plan_view *v, int o, moec_cudnn_attention *a, bool *aligned) {
  const bool keys = is_of_keys(o), lse = o == MOEC_ATTENTION_LSE;
  const int64_t sizes[3] = {a->b, keys ? a->t : a->s, keys ? a->g : a->h}, offset = b->values[v->offset];
  int64_t *strides = a->strides[o], last = 0;
  moec_tensor t;
  for (int i = 0; i < 3; i++) strides[i] = b->values[v->strides[i]];
  moec_rt_tensor_view(m, b, m->plan.pool[s->args + v->arg], &t);
  if (!reaches(offset, sizes, strides, lse ? 1 : is_of_values(o) ? a->e : a->d, &last) || last > moec_tensor_numel(&t))
    return moec_error(MOEC_INVALID_MODEL, "node \"%s\": attention: operand %d: expected a view inside its tensor",
                      moec_rt_str(&m->plan, s->where), o);
  for (int i = 0; i < 3 && !lse; i++) *aligned = *aligned && strides[i] % 8 == 0;
  *aligned = *aligned && (lse ? offset % 4 == 0 : offset % 8 == 0);
  return NULL;
}

/* *fits: cuDNN may have a plan for it. Sizes come from the file's owner or the user: nothing is known of them. */
static moec_status *describe(const moec_model *m, const call *x, const moec_rt_binding *b, moec_cudnn_attention *a,
                             bool *fits) {
  enum { MOST = 256 }; /* of a head */
  const moec_plan_attention *r = x->record;
  const moec_expr_ref from[] = {r->b, r->s, r->t, r->h, r->g, r->d, r->e};
  int64_t *const to[] = {&a->b, &a->s, &a->t, &a->h, &a->g, &a->d, &a->e};
  memset(a, 0, sizeof *a);
  *fits = true;
  for (int i = 0; i < 7; i++) {
    *to[i] = b->values[from[i]];
    *fits = *fits && *to[i] > 0 && *to[i] <= INT32_MAX;
  }
  *fits = *fits && a->h % a->g == 0 && a->d % 8 == 0 && a->e % 8 == 0 && a->d <= MOST && a->e <= MOST;
  *fits = *fits && (!r->causal || a->s == a->t);
  int64_t scores; /* cuDNN is told their strides */
  *fits = *fits && !__builtin_mul_overflow(a->b * a->h, a->s, &scores) && scores <= INT64_MAX / a->t;
  a->scale = r->scale, a->dtype = r->dtype, a->grad = r->grad, a->causal = r->causal;
  a->lse = r->operands[MOEC_ATTENTION_LSE].arg != MOEC_NONE;
  for (int o = 0; o < MOEC_ATTENTION_OPERANDS && *fits; o++) {
    if (r->operands[o].arg == MOEC_NONE) continue;
    MOEC_TRY(view_operand(m, &m->plan.steps[x->step], b, &r->operands[o], o, a, fits));
  }
  return NULL;
}

/* ---- plans ------------------------------------------------------------------------------- */

/* Room for another: that of the one not used for the longest time. */
static uint32_t make_room(moec_model *m) {
  struct moec_rt_attention *a = m->cuda->attention;
  uint32_t oldest = 0;
  for (uint32_t i = 0; i < MOEC_RT_MAX_BINDINGS; i++) {
    if (!a->plans[i].plan) return i;
    if (a->plans[i].used < a->plans[oldest].used) oldest = i;
  }
  drop_plan(m, oldest);
  return oldest;
}

/* The plan for |of|, made when it is first asked for; cuDNN has none: NULL. */
static moec_status *find_plan(moec_model *m, const moec_cudnn_attention *of, moec_cudnn_plan **out) {
  struct moec_rt_attention *a = m->cuda->attention;
  uint32_t i = 0;
  *out = NULL;
  while (i < MOEC_RT_MAX_BINDINGS && (!a->plans[i].plan || memcmp(&a->plans[i].plan->of, of, sizeof *of))) i++;
  if (i == MOEC_RT_MAX_BINDINGS) {
    moec_cudnn_plan *p;
    MOEC_TRY(moec_rt_cuda_enter(m));
    MOEC_TRY(MOEC_RT_NEW(&m->memory, p, 1, "attention"));
    i = make_room(m);
    a->plans[i].plan = p;
    m->compilations++;
    note(a, moec_cudnn_plan_make(&a->cudnn, of, p)); /* whatever it was: the kernel runs */
    p->of = *of;
  }
  a->plans[i].used = ++a->tick;
  if (a->plans[i].plan->plan) *out = a->plans[i].plan;
  return NULL;
}

static bool is_open(const moec_model *m) { return m->cuda->attention && m->cuda->attention->cudnn.handle; }

/* *why, if given: why there is none. */
static moec_status *plan_of(moec_model *m, const call *x, const moec_rt_binding *b, moec_cudnn_plan **out,
                            const char **why) {
  moec_cudnn_attention a;
  bool fits;
  *out = NULL;
  MOEC_TRY(describe(m, x, b, &a, &fits));
  if (fits) MOEC_TRY(find_plan(m, &a, out));
  if (why && !*out) *why = fits ? m->cuda->attention->why : "cuDNN has no attention of these sizes and strides";
  return NULL;
}

static call *call_of(const moec_model *m, uint32_t step) {
  struct moec_rt_attention *a = m->cuda->attention;
  for (uint32_t i = 0; is_open(m) && i < a->n_calls; i++)
    if (a->calls[i].step == step) return &a->calls[i];
  return NULL;
}

moec_status *moec_rt_cuda_attention_need(const moec_model *m, const moec_plan_step *s, const moec_rt_binding *b,
                                         moec_rt_need *need) {
  call *x = call_of(m, (uint32_t)(s - m->plan.steps));
  moec_cudnn_plan *p;
  if (!x) return NULL;
  MOEC_TRY(plan_of(m->copies->m, x, b, &p, NULL)); /* where plans are kept */
  if (p && p->workspace > need->shared) need->shared = p->workspace;
  return NULL;
}

/* ---- runs -------------------------------------------------------------------------------- */

/* Whether the mask of |x| hides nothing: what it reads are inputs, and these are ones. */
static bool sees_all(const moec_model *m, const call *x) {
  const moec_rt_plan *p = &m->plan;
  const moec_plan_step *s = &p->steps[x->step];
  for (uint32_t i = 0; i < x->record->n_ones; i++) {
    uint32_t buffer = p->tensors[p->pool[s->args + p->pool[x->record->ones + i]]].buffer, k = 0;
    while (k < m->n_ins && (m->ins[k].at[s->schedule] == MOEC_NONE ||
                            p->tensors[p->inputs[m->ins[k].at[s->schedule]].tensor].buffer != buffer))
      k++;
    if (k == m->n_ins || !m->copies->ones[k]) return false;
  }
  return true;
}

/* The pack of |x| for the addresses that its operands have now. */
static moec_status *pack(moec_model *m, call *x, const moec_rt_binding *b) {
  const moec_rt_plan *p = &m->plan;
  const moec_plan_step *s = &p->steps[x->step];
  struct moec_rt_attention *a = m->cuda->attention;
  void *operands[MOEC_CUDNN_OPERANDS] = {0};
  for (int o = 0; o < MOEC_ATTENTION_OPERANDS; o++) {
    const moec_plan_view *v = &x->record->operands[o];
    if (v->arg == MOEC_NONE) continue;
    int64_t size = o == MOEC_ATTENTION_LSE ? 4 : 2;
    operands[o] = (char *)m->buffers[p->tensors[p->pool[s->args + v->arg]].buffer] + b->values[v->offset] * size;
  }
  if (x->packed == x->plan && x->workspace == m->shared.data && !memcmp(operands, x->operands, sizeof operands))
    return NULL;
  moec_cudnn_pack_drop(&a->cudnn, &x->pack);
  x->packed = NULL;
  MOEC_TRY(moec_cudnn_pack_make(&a->cudnn, x->plan, operands, m->shared.data, &x->pack));
  x->packed = x->plan, x->workspace = m->shared.data;
  memcpy(x->operands, operands, sizeof operands);
  return NULL;
}

moec_status *moec_rt_cuda_attention_begin(moec_model *m, moec_schedule schedule, const moec_rt_binding *b) {
  struct moec_rt_attention *a = m->cuda->attention;
  if (schedule < MOEC_AT_STEP) return NULL;
  m->attention_by_library = 0, m->attention_note = NULL;
  if (!a && m->plan.n_attentions) m->attention_note = "MOEC_CUDNN=none";
  if (a && !is_open(m)) m->attention_note = a->why;
  if (!is_open(m)) return NULL;
  for (uint32_t i = 0; i < a->n_calls; i++) {
    call *x = &a->calls[i];
    if (m->plan.steps[x->step].schedule != (uint32_t)schedule) continue;
    x->plan = NULL;
    if (sees_all(m, x)) MOEC_TRY(plan_of(m, x, b, &x->plan, &m->attention_note));
    else m->attention_note = "cuDNN knows no mask but the causal one, and an input of the mask is not all ones";
    if (!x->plan) continue;
    MOEC_TRY(pack(m, x, b));
    m->attention_by_library++;
  }
  return NULL;
}

moec_status *moec_rt_cuda_attention_run(moec_model *m, uint32_t step, bool *done) {
  call *x = call_of(m, step);
  *done = x && x->plan;
  if (!*done) return NULL;
  return moec_context(moec_cudnn_run(&m->cuda->attention->cudnn, x->plan, x->pack), "node \"%s\"",
                      moec_rt_str(&m->plan, m->plan.steps[step].where));
}
