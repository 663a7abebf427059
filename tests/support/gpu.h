/* A GPU for tests: kernels of a text, memory that both sides reach, launches that are waited for. */
#ifndef MOEC_TESTS_GPU_H
#define MOEC_TESTS_GPU_H

#include <dlfcn.h>

#include "codegen/nvrtc.h"
#include "runtime/cuda_driver.h"
#include "tests/unit/unit.h"

enum { GPU_ROOMS = 64 };

typedef struct gpu {
  moec_cu cu;
  moec_cu_module module;
  int (*managed)(moec_cu_address *out, size_t bytes, unsigned flags);
  void *rooms[GPU_ROOMS];
} gpu;

static inline void gpu_check(const gpu *g, int error, const char *what) { UNIT_OK(moec_cu_check(&g->cu, error, what)); }

/* Whether there are a device and NVRTC; else says what is not there. */
static inline bool gpu_possible(void) {
  moec_cu cu;
  moec_buf cubin = {0};
  int n = 0;
  moec_status *s = moec_cu_load(&cu);
  if (!s && (cu.init(0) || cu.device_count(&n) || !n)) s = moec_error(MOEC_UNSUPPORTED, "no CUDA device");
  if (!s) s = moec_nvrtc_cubin("__global__ void k() {}\n", "sm_90a", &cubin, NULL);
  if (s) printf("skipped: %s\n", moec_status_message(s));
  moec_buf_fini(&cubin);
  bool possible = !s;
  moec_status_free(s);
  return possible;
}


/* The device's context, which models that are opened meanwhile need not make again. */
static inline void gpu_hold(gpu *g) {
  moec_cu_context context;
  int device;
  *g = (gpu){0};
  UNIT_OK(moec_cu_load(&g->cu));
  gpu_check(g, g->cu.init(0), "cuInit");
  gpu_check(g, g->cu.device_get(&device, 0), "cuDeviceGet");
  gpu_check(g, g->cu.context_retain(&context, device), "cuDevicePrimaryCtxRetain");
  gpu_check(g, g->cu.context_set(context), "cuCtxSetCurrent");
}

static inline void gpu_let_go(gpu *g) {
  gpu_check(g, g->cu.context_release(0), "cuDevicePrimaryCtxRelease");
  moec_cu_unload(&g->cu);
}

static inline void gpu_open(gpu *g, const char *text) {
  moec_buf cubin = {0};
  gpu_hold(g);
  void *managed = dlsym(g->cu.library, "cuMemAllocManaged");
  ck_assert_ptr_nonnull(managed);
  memcpy(&g->managed, &managed, sizeof managed);
  UNIT_OK(moec_nvrtc_cubin(text, "sm_90a", &cubin, NULL));
  gpu_check(g, g->cu.module_load(&g->module, cubin.data), "cuModuleLoadData");
  moec_buf_fini(&cubin);
}

static inline void gpu_close(gpu *g) {
  for (int i = 0; i < GPU_ROOMS; i++) ck_assert_ptr_null(g->rooms[i]);
  gpu_check(g, g->cu.module_unload(g->module), "cuModuleUnload");
  gpu_let_go(g);
}

static inline moec_cu_function gpu_function(const gpu *g, const char *symbol) {
  moec_cu_function f = NULL;
  return g->cu.module_function(&f, g->module, symbol) ? NULL : f;
}

/* Filled with ones: NaN, or an index that is out of range. */
static inline void *gpu_room(gpu *g, size_t bytes) {
  enum { EVERYWHERE = 1 };
  moec_cu_address at;
  gpu_check(g, g->managed(&at, bytes ? bytes : 1, EVERYWHERE), "cuMemAllocManaged");
  void *p = (void *)(uintptr_t)at;
  memset(p, 0xff, bytes);
  for (int i = 0; i < GPU_ROOMS; i++)
    if (!g->rooms[i]) return g->rooms[i] = p;
  ck_abort_msg("too many tensors");
}

static inline bool gpu_release(gpu *g, void *p) {
  for (int i = 0; i < GPU_ROOMS && p; i++) {
    if (g->rooms[i] != p) continue;
    gpu_check(g, g->cu.free((moec_cu_address)(uintptr_t)p), "cuMemFree");
    g->rooms[i] = NULL;
    return true;
  }
  return false;
}

static inline void gpu_launch(const gpu *g, const char *symbol, unsigned blocks, unsigned threads, void **arguments) {
  moec_cu_function f = gpu_function(g, symbol);
  if (!f) ck_abort_msg("no kernel %s", symbol);
  gpu_check(g, g->cu.launch(f, blocks, 1, 1, threads, 1, 1, 0, NULL, arguments, NULL), symbol);
  gpu_check(g, g->cu.stream_wait(NULL), symbol);
}

#endif
