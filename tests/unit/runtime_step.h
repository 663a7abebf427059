/* Runs one library step on tensors, through a plan with nothing else in it. */
#ifndef MOEC_TESTS_RUNTIME_STEP_H
#define MOEC_TESTS_RUNTIME_STEP_H

#include "include/moec.h"
#include "tests/unit/plan_builder.h"

typedef struct one_step {
  moec_step_op op;
  uint32_t n_in, n_out, n_ints;
  const moec_tensor *in[6]; /* NULL: absent */
  moec_tensor
      out[4]; /* dtype and shape given (NONE: absent); data owned by the caller afterwards */
  int64_t ints[48];
  bool ints_are_sizes; /* gemm: all but the first become expressions */
} one_step;

/* |target| NULL: the cpu; else with |object|, the target's kernels. |kernel|: one of them that the step names, with so
 * many rows and bytes of scratch; NULL: none. */
static inline uint8_t *step_file_needing(one_step *s, const char *kernel, int64_t kernel_rows, int64_t scratch,
                                         const char *target, const moec_map *object, size_t *size) {
  plan_builder *b = pb_create();
  if (target) b->target = pb_str(b, target);
  uint32_t args[10];
  char name[16];
  for (uint32_t i = 0; i < s->n_in; i++) {
    args[i] = MOEC_NONE;
    if (!s->in[i]) continue;
    args[i] = pb_static(b, MOEC_BUFFER_INPUT, s->in[i]);
    snprintf(name, sizeof name, "in%u", i);
    pb_input(b, name, args[i]);
  }
  for (uint32_t i = 0; i < s->n_out; i++) {
    args[s->n_in + i] = MOEC_NONE;
    if (s->out[i].dtype == MOEC_DTYPE_NONE) continue;
    args[s->n_in + i] = pb_static(b, MOEC_BUFFER_OUTPUT, &s->out[i]);
    snprintf(name, sizeof name, "out%u", i);
    pb_output(b, name, args[s->n_in + i]);
  }
  int64_t ints[48];
  for (uint32_t i = 0; i < s->n_ints; i++) {
    ints[i] = s->ints_are_sizes && i > 0 ? (int64_t)pb_const(b, s->ints[i]) : s->ints[i];
  }
  moec_plan_step *step = pb_step(b, MOEC_AT_STEP, s->op, s->n_in, s->n_out, args, s->n_ints, ints);
  if (kernel) {
    step->kernel = pb_kernel(b, kernel, pb_const(b, kernel_rows), pb_const(b, scratch));
    b->kernels[step->kernel].threads = b->kernels[step->kernel].teams = 64;
  }
  uint8_t *file = pb_finish(b, NULL, target ? object : NULL, size);
  free(b);
  return file;
}

static inline uint8_t *step_file_naming(one_step *s, const char *kernel, int64_t kernel_rows, const char *target,
                                        const moec_map *object, size_t *size) {
  return step_file_needing(s, kernel, kernel_rows, 0, target, object, size);
}

static inline uint8_t *step_file_with(one_step *s, const char *target, const moec_map *object, size_t *size) {
  return step_file_naming(s, NULL, 0, target, object, size);
}

static inline uint8_t *step_file_for(one_step *s, const char *target, size_t *size) {
  static const uint8_t cubin[] = "cubin";
  const moec_map object = {.data = cubin, .size = sizeof cubin};
  return step_file_with(s, target, &object, size);
}

static inline uint8_t *step_file(one_step *s, size_t *size) { return step_file_for(s, NULL, size); }

static inline moec_view step_view(const moec_tensor *t) {
  moec_view v = {.data = t->data, .dtype = (int)t->dtype, .rank = t->rank};
  memcpy(v.dims, t->dims, sizeof v.dims);
  return v;
}

static inline moec_status *step_forward(one_step *s, moec_model *m) {
  uint32_t k = 0;
  for (uint32_t i = 0; i < s->n_in; i++) {
    if (!s->in[i]) continue;
    moec_view v = step_view(s->in[i]);
    MOEC_TRY(moec_input_borrow(m, k++, &v));
  }
  MOEC_TRY(moec_forward(m));
  k = 0;
  for (uint32_t i = 0; i < s->n_out; i++) {
    moec_view v;
    if (s->out[i].dtype == MOEC_DTYPE_NONE) continue;
    MOEC_TRY(moec_output(m, k++, &v));
    MOEC_TRY(moec_tensor_init(&s->out[i], s->out[i].dtype, v.rank, v.dims));
    if (moec_tensor_bytes(&s->out[i]))
      memcpy(s->out[i].data, v.data, moec_tensor_bytes(&s->out[i]));
  }
  return NULL;
}

static inline moec_status *step_run(one_step *s, int threads) {
  size_t size;
  moec_model *m;
  moec_options o = {.threads = threads};
  uint8_t *file = step_file(s, &size);
  moec_status *r = moec_open_memory(file, size, &o, &m);
  if (!r) r = step_forward(s, m);
  moec_close(m);
  free(file);
  return r;
}

/* The same step on 1, 2 and 3 threads gives the same bytes; the outputs of the last stay. */
static inline void step_run_all(one_step *s) {
  one_step first = *s;
  UNIT_OK(step_run(&first, 1));
  for (int threads = 2; threads <= 3; threads++) {
    one_step next = *s;
    UNIT_OK(step_run(&next, threads));
    for (uint32_t i = 0; i < s->n_out; i++) {
      if (s->out[i].dtype == MOEC_DTYPE_NONE) continue;
      UNIT_TRUE(!memcmp(first.out[i].data, next.out[i].data, moec_tensor_bytes(&first.out[i])));
      moec_tensor_fini(&next.out[i]);
    }
  }
  *s = first;
}

/* Frees what a run gave; the step can be run again. */
static inline void step_fini(one_step *s) {
  for (uint32_t i = 0; i < s->n_out; i++) {
    moec_tensor done = s->out[i];
    s->out[i].data = NULL;
    moec_tensor_fini(&done);
  }
}

/* Small numbers that bf16 holds exactly, so that sums of a few of them are exact too. */
static inline moec_tensor step_random(moec_dtype t, uint32_t rank, const int64_t *dims,
                                      unsigned *seed) {
  moec_tensor x;
  UNIT_OK(moec_tensor_init(&x, t, rank, dims));
  for (int64_t i = 0; i < moec_tensor_numel(&x); i++) {
    *seed = *seed * 1664525u + 1013904223u;
    moec_store_f64(t, x.data, (size_t)i, (double)(int)(*seed >> 28) / 4 - 2);
  }
  return x;
}

static inline moec_tensor step_tensor(moec_dtype t, uint32_t rank, const int64_t *dims) {
  moec_tensor x = {.dtype = t, .rank = rank};
  for (uint32_t i = 0; i < rank; i++) x.dims[i] = dims[i];
  return x;
}

static inline double step_at(const moec_tensor *t, int64_t i) {
  return moec_load_f64(t->dtype, t->data, (size_t)i);
}

#endif
