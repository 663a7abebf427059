/* A CUDA device for models of tests/unit/plan_builder.h, on machines without a GPU: the driver of fake_cuda.h. Kernels
 * of a plan are the C functions that the CPU runs, so results must be those of the CPU; those of training are the
 * emitted ones, run by fibers. */
#ifndef MOEC_TESTS_FAKE_DEVICE_H
#define MOEC_TESTS_FAKE_DEVICE_H

#include <dlfcn.h>

#include "codegen/emit.h"
#include "codegen/plan_build.h"
#include "include/cuda_abi.h"
#include "tests/support/cuda_emulation.h"
#include "tests/support/fake_cuda.h"
#include "tests/unit/plan_builder.h"

static fake_cuda *fake;
static void *fake_object;       /* the plan's kernels */
static emulation *fake_library; /* the runtime's */

/* ---- kernels of training ----------------------------------------------------------------- */

typedef struct fake_call {
  void *fn;
  void **p;
} fake_call;

#define P(i) (*(void **)c->p[i])
#define I(i) (*(int32_t *)c->p[i])
#define N(i) (*(int64_t *)c->p[i])
#define D(i) (*(double *)c->p[i])
#define FAKE_KERNEL(name, types, ...)         \
  static void fake_##name(void *user) {       \
    const fake_call *c = user;                \
    void(*f) types;                           \
    memcpy(&f, &c->fn, sizeof f);             \
    f(__VA_ARGS__);                           \
  }
FAKE_KERNEL(add, (void *, int32_t, void *, int32_t, void *, int64_t), P(0), I(1), P(2), I(3), P(4), N(5))
FAKE_KERNEL(cast, (void *, int32_t, void *, int32_t, int64_t), P(0), I(1), P(2), I(3), N(4))
FAKE_KERNEL(square_sum, (void *, int32_t, int64_t, void *), P(0), I(1), N(2), P(3))
FAKE_KERNEL(clip, (void *, int64_t, double, void *), P(0), N(1), D(2), P(3))
FAKE_KERNEL(adamw, (void *, void *, void *, void *, int32_t, void *, int32_t, int64_t, void *, void *), P(0), P(1),
            P(2), P(3), I(4), P(5), I(6), N(7), P(8), P(9))
FAKE_KERNEL(sgd, (void *, void *, void *, int32_t, void *, int32_t, int64_t, void *, void *), P(0), P(1), P(2), I(3),
            P(4), I(5), N(6), P(7), P(8))
#undef P
#undef I
#undef N
#undef D

static inline bool fake_run_library(const char *name, const fake_launch *l, void **parameters) {
  static const struct {
    const char *name;
    void (*body)(void *);
  } all[] = {{"moec_add", fake_add},   {"moec_cast", fake_cast},   {"moec_square_sum", fake_square_sum},
             {"moec_clip", fake_clip}, {"moec_adamw", fake_adamw}, {"moec_sgd", fake_sgd}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    if (strcmp(name, all[i].name)) continue;
    fake_call c = {dlsym(fake_library->library, name), parameters};
    UNIT_TRUE(c.fn != NULL);
    fake_library->falling = !fake_library->falling;
    emulation_launch(fake_library, l->blocks, l->threads, all[i].body, &c);
    return true;
  }
  return false;
}

static inline void fake_run(const char *name, const fake_launch *l, void **parameters) {
  moec_kernel_fn fn;
  if (fake_run_library(name, l, parameters)) return;
  void *symbol = dlsym(fake_object, name);
  UNIT_TRUE(symbol != NULL && l->blocks && l->threads == 64);
  memcpy(&fn, &symbol, sizeof fn);
  fn(parameters[0], 0, *(int64_t *)parameters[1]);
}

/* ---- the device -------------------------------------------------------------------------- */

/* Test code is the driver's only user: it must have been given everything back. */
static inline void fake_begin(void (*kernel)(const char *, const fake_launch *, void **)) {
  UNIT_TRUE(fake->live == 0);
  *fake = (fake_cuda){.devices = 1, .kernel = kernel};
}

/* The plan for a device of this kind. */
static inline plan_builder *fake_target(plan_builder *b) {
  b->target = pb_str(b, "cuda:sm_90a");
  for (uint32_t i = 0; i < b->n_kernels; i++) b->kernels[i].threads = b->kernels[i].teams = 64;
  return b;
}

static inline emulation *fake_open_library(void) {
  moec_plan_tables none = {0};
  moec_buf text = {0};
  moec_emit_cuda_prelude(&text);
  moec_emit_cuda_library(&text, &none);
  emulation *e = emulation_open(&text);
  moec_buf_fini(&text);
  return e;
}

/* The driver, which stays loaded; |dir| has the kernels of a plan. */
static inline void fake_load(const char *dir) {
  char path[512];
  const char *build = getenv("MOEC_BUILD");
  ck_assert_ptr_nonnull(build);
  snprintf(path, sizeof path, "%s/fake/libcuda.so.1", build);
  void *driver = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  ck_assert_msg(driver != NULL, "%s", dlerror());
  snprintf(path, sizeof path, "%s/fake/libcublas.so.13", build);
  ck_assert_msg(dlopen(path, RTLD_NOW | RTLD_GLOBAL) != NULL, "%s", dlerror());
  void *symbol = dlsym(driver, "fake_cuda_get");
  fake_cuda *(*get)(void);
  ck_assert_ptr_nonnull(symbol);
  memcpy(&get, &symbol, sizeof get);
  fake = get();
  snprintf(path, sizeof path, "%s/kernels.so", dir);
  fake_object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  ck_assert_ptr_nonnull(fake_object);
  fake_library = fake_open_library();
  fake_begin(fake_run);
}

static inline void fake_unload(void) {
  UNIT_TRUE(fake->live == 0);
  emulation_close(fake_library);
  dlclose(fake_object);
}

#endif
