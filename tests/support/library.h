/* Library kernels of a cubin as launches of a machine, their tensors, and the steps of the cpu they are compared with.
 * The machine is fibers of the processor; with LIBRARY_ON_GPU defined, a GPU. */
#ifndef MOEC_TESTS_LIBRARY_H
#define MOEC_TESTS_LIBRARY_H

#include <math.h>

#include "codegen/emit.h"
#include "codegen/plan_build.h"
#include "include/cuda_abi.h"
#include "tests/unit/runtime_step.h"

enum { BLOCKS = 3 };

/* A launch: pointers, sizes and flags of a kernel, in the order of their kinds. */
typedef struct launch {
  void *p[8];
  int64_t n[8];
  int32_t i[4], fault, *fault_at;
  moec_cuda_shape shape[2];
  moec_cuda_conv conv;
} launch;

/* A machine has: BODY, which makes call_NAME(launch) of a kernel's parameters and arguments; machine_open(text) and
 * machine_close(); machine_has(name); machine_run(), which launches; room() for tensors, with release(). */
#ifdef LIBRARY_ON_GPU
#include "tests/support/library_gpu.h"
#else
#include "tests/support/library_emulated.h"
#endif

/* Every text, in every dtype of |dtypes|. */
static void open_library(void) {
  static const moec_dtype dtypes[] = {MOEC_F32, MOEC_F64, MOEC_BF16, MOEC_F16,
                                      MOEC_I64, MOEC_I32, MOEC_U8};
  enum { DTYPES = sizeof dtypes / sizeof *dtypes };
  moec_plan_tensor tensors[DTYPES] = {{0}};
  uint32_t pool[DTYPES * 4];
  moec_plan_step steps[DTYPES * MOEC_STEP_COUNT];
  moec_plan_tables t = {.tensors = tensors, .pool = pool, .steps = steps};
  for (uint32_t d = 0; d < DTYPES; d++) {
    tensors[d].dtype = (uint32_t)dtypes[d];
    for (uint32_t i = 0; i < 4; i++) pool[4 * d + i] = d;
    for (uint32_t op = 0; op < MOEC_STEP_COUNT; op++) {
      bool floats = op != MOEC_STEP_TOPK && op != MOEC_STEP_CUMSUM && op != MOEC_STEP_SCATTER_ND &&
                    op != MOEC_STEP_SCATTER_ELEMENTS;
      if (floats && !moec_dtype_is_float(dtypes[d])) continue;
      steps[t.n_steps++] = (moec_plan_step){.op = op, .args = 4 * d, .n_in = 3, .n_out = 1};
    }
  }
  moec_buf text = {0};
  moec_emit_cuda_prelude(&text);
  moec_emit_cuda_library(&text, &t);
  machine_open(&text);
  moec_buf_fini(&text);
}

/* ---- kernels ------------------------------------------------------------------------------- */

#define P void *
#define N int64_t
#define I int32_t
BODY(topk, (P, P, P, N, N, N, N, I),
     (l->p[0], l->p[1], l->p[2], l->n[0], l->n[1], l->n[2], l->n[3], l->i[0]))
BODY(cumsum, (P, P, N, N, N, I, I), (l->p[0], l->p[1], l->n[0], l->n[1], l->n[2], l->i[0], l->i[1]))
BODY(scatter_elements, (P, P, I, P, moec_cuda_shape, moec_cuda_shape, N, I, P),
     (l->p[0], l->p[1], l->i[0], l->p[2], l->shape[0], l->shape[1], l->n[0], l->i[1], l->fault_at))
BODY(order_chunks, (P, I, moec_cuda_shape, N, N, N, I, P, P),
     (l->p[1], l->i[0], l->shape[0], l->n[0], l->n[1], l->n[2], l->i[2], l->p[3], l->fault_at))
BODY(order_merge, (P, N, P), (l->p[3], l->n[1], l->p[4]))
BODY(scatter_nd, (P, P, P, N, N, I, N, I),
     (l->p[0], l->p[2], l->p[4], l->n[1], l->n[2], l->i[2], l->n[3], l->i[1]))
BODY(random, (P, N, I, N), (l->p[0], l->n[0], l->i[0], l->n[1]))
BODY(conv, (P, P, P, moec_cuda_conv), (l->p[0], l->p[1], l->p[2], l->conv))
BODY(plan_count, (P, N, N, N, P), (l->p[0], l->n[0], l->n[1], l->n[2], l->p[1]))
BODY(plan_fill, (P, N, N, N, P, P, P, P, P),
     (l->p[0], l->n[0], l->n[1], l->n[2], l->p[1], l->p[3], l->p[4], l->p[2], l->fault_at))
BODY(dispatch, (P, P, P, I, P, N, N, N, P),
     (l->p[0], l->p[1], l->p[2], l->i[0], l->p[3], l->n[0], l->n[1], l->n[2], l->fault_at))
BODY(combine, (P, P, P, I, P, P, I, N, N, N, P),
     (l->p[0], l->p[1], l->p[2], l->i[0], l->p[3], l->p[4], l->i[1], l->n[0], l->n[1], l->n[2], l->fault_at))
BODY(grouped_dot, (P, P, P, P, I, P, I, N, N, N, N, I),
     (l->p[0], l->p[1], l->p[2], l->p[3], l->i[0], l->p[4], l->i[1], l->n[0], l->n[1], l->n[2],
      l->n[3], l->i[2]))
BODY(grouped_outer, (P, P, P, P, I, N, N, N, N),
     (l->p[0], l->p[1], l->p[2], l->p[3], l->i[0], l->n[0], l->n[1], l->n[2], l->n[3]))
BODY(group_sum, (P, P, P, I, N, N, N),
     (l->p[0], l->p[1], l->p[2], l->i[0], l->n[0], l->n[1], l->n[2]))
BODY(loss, (P, P, P, P, N, N, N, N, P),
     (l->p[0], l->p[1], l->p[2], l->p[3], l->n[0], l->n[1], l->n[2], l->n[3], l->fault_at))
#undef P
#undef N
#undef I

/* |dtype| NONE: the name has none. */
static void run(const char *name, moec_dtype dtype, unsigned blocks, unsigned threads, machine_call call, launch *l) {
  char symbol[64];
  snprintf(symbol, sizeof symbol, dtype ? "moec_%s_%s" : "moec_%s", name, moec_dtype_get(dtype)->text);
  if (!machine_has(symbol)) ck_abort_msg("no kernel %s", symbol);
  machine_run(symbol, blocks, threads, call, l);
}

/* ---- tensors ------------------------------------------------------------------------------- */

static uint64_t state = 1;
static double uniform(void) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (double)(state >> 33) / 0x1p31;
}

static moec_tensor shaped(moec_dtype t, uint32_t rank, const int64_t *dims) {
  moec_tensor r = {.dtype = t, .rank = rank};
  memcpy(r.dims, dims, rank * sizeof *dims);
  return r;
}

static moec_tensor make(moec_dtype t, uint32_t rank, const int64_t *dims) {
  moec_tensor r = shaped(t, rank, dims);
  r.data = room(moec_tensor_bytes(&r));
  return r;
}

/* Tensors of make() and results of the cpu. */
static void drop(moec_tensor *t) {
  if (!release(t->data)) moec_tensor_fini(t);
}

/* Floats in (-2, 2) of which some are equal; integers in [0, limit). */
static moec_tensor fill(moec_dtype t, uint32_t rank, const int64_t *dims, int64_t limit) {
  moec_tensor r = make(t, rank, dims);
  for (int64_t i = 0; i < moec_tensor_numel(&r); i++) {
    if (moec_dtype_is_float(t))
      moec_store_f64(t, r.data, (size_t)i, floor(uniform() * 256) / 64 - 2);
    else
      moec_store_i64(t, r.data, (size_t)i, (int64_t)(uniform() * (double)limit));
  }
  return r;
}

static void same(const char *what, const moec_tensor *got, const moec_tensor *want,
                 double tolerance) {
  for (int64_t i = 0; i < moec_tensor_numel(want); i++) {
    double g = moec_load_f64(got->dtype, got->data, (size_t)i),
           w = moec_load_f64(want->dtype, want->data, (size_t)i);
    bool equal = (isnan(g) && isnan(w)) || g == w || fabs(g - w) <= tolerance * fmax(1, fabs(w));
    if (!equal) ck_abort_msg("%s: element %lld: got %.9g, expected %.9g", what, (long long)i, g, w);
  }
}

static double tolerance_of(moec_dtype t) {
  return t == MOEC_BF16 ? 1.0 / 64 : t == MOEC_F16 ? 1.0 / 512 : 2e-6;
}

#define DIMS(...) \
  (const int64_t[]) { __VA_ARGS__ }
#define RANK(...) (uint32_t)(sizeof(DIMS(__VA_ARGS__)) / sizeof(int64_t))
#define MAKE(t, ...) make(t, RANK(__VA_ARGS__), DIMS(__VA_ARGS__))
#define FILL(t, limit, ...) fill(t, RANK(__VA_ARGS__), DIMS(__VA_ARGS__), limit)

/* The cpu's result number |i| of |s|; further results are dropped. */
static moec_tensor cpu(one_step *s, uint32_t i) {
  UNIT_OK(step_run(s, 1));
  for (uint32_t k = 0; k < s->n_out; k++)
    if (k != i && s->out[k].dtype != MOEC_DTYPE_NONE) moec_tensor_fini(&s->out[k]);
  return s->out[i];
}

#define SHAPED(t, ...) shaped(t, RANK(__VA_ARGS__), DIMS(__VA_ARGS__))

#endif
