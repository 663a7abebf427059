#include "tests/support/fake_cuda.h"

#include <stdlib.h>
#include <string.h>

typedef struct function {
  char name[FAKE_NAME];
} function;
enum { FUNCTIONS = 256 };

static fake_cuda fake = {.devices = 1};
static function functions[FUNCTIONS];
static char stream, module, context;

/* Memory of the host that is page-locked. From other memory the real driver copies no more than STAGED bytes without
 * waiting. */
typedef struct block {
  void *at;
  size_t bytes;
} block;
enum { LOCKED = 16, STAGED = 64 << 10 };
static block locked[LOCKED];

fake_cuda *fake_cuda_get(void) { return &fake; }

/* ---- the driver's interface ---------------------------------------------------------------- */

int cuInit(unsigned flags);
int cuDeviceGetCount(int *out);
int cuDeviceGet(int *out, int ordinal);
int cuDeviceGetName(char *name, int size, int device);
int cuDeviceGetAttribute(int *out, int attribute, int device);
int cuDevicePrimaryCtxRetain(void **out, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxSetCurrent(void *c);
int cuStreamCreate(void **out, unsigned flags);
int cuStreamDestroy_v2(void *s);
int cuStreamSynchronize(void *s);
int cuMemAlloc_v2(unsigned long long *out, size_t bytes);
int cuMemFree_v2(unsigned long long at);
int cuMemHostAlloc(void **out, size_t bytes, unsigned flags);
int cuMemFreeHost(void *at);
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes, void *s);
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes, void *s);
int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t bytes, void *s);
int cuMemsetD8Async(unsigned long long to, unsigned char byte, size_t bytes, void *s);
int cuTensorMapEncodeTiled(void *out, int type, uint32_t rank, void *at, const uint64_t *dims, const uint64_t *strides,
                           const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion,
                           int fill);
int cuModuleLoadData(void **out, const void *image);
int cuModuleUnload(void *m);
int cuModuleGetFunction(void **out, void *m, const char *name);
int cuFuncSetAttribute(void *f, int attribute, int value);
int cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *s, void **parameters, void **extra);
int cuEventCreate(void **out, unsigned flags);
int cuEventDestroy_v2(void *event);
int cuEventRecord(void *event, void *s);
int cuEventElapsedTime(float *ms, void *from, void *to);
int cuStreamBeginCapture_v2(void *s, int mode);
int cuStreamEndCapture(void *s, void **out);
int cuGraphGetNodes(void *graph, void **nodes, size_t *n);
int cuGraphNodeGetType(void *node, int *out);
int cuGraphDestroy(void *graph);
int cuGetErrorName(int error, const char **out);
int cuGetErrorString(int error, const char **out);

enum { OK, INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONTEXT = 201, NOT_FOUND = 500 };
static _Thread_local void *current;

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : OK; }
int cuDeviceGetCount(int *out) { return *out = fake.devices, OK; }
int cuDeviceGet(int *out, int ordinal) { return *out = ordinal, ordinal < fake.devices ? OK : INVALID_VALUE; }
int cuDeviceGetName(char *name, int size, int device) {
  if (size < 5 || device) return INVALID_VALUE;
  return memcpy(name, "fake", 5), OK;
}
int cuDeviceGetAttribute(int *out, int attribute, int device) {
  *out = attribute == 16 ? 4 : attribute == 39 ? 2048 : 9; /* multiprocessors, their threads */
  return device ? INVALID_VALUE : OK;
}
int cuDevicePrimaryCtxRetain(void **out, int device) {
  return *out = &context, fake.live++, device ? INVALID_VALUE : OK;
}
int cuDevicePrimaryCtxRelease_v2(int device) { return fake.live--, device ? INVALID_VALUE : OK; }
int cuCtxSetCurrent(void *c) { return current = c, c == &context ? OK : INVALID_CONTEXT; }
int cuStreamCreate(void **out, unsigned flags) { return *out = &stream, fake.live++, flags > 1 ? INVALID_VALUE : OK; }
int cuStreamDestroy_v2(void *s) { return fake.live--, s == &stream ? OK : INVALID_VALUE; }
int cuStreamSynchronize(void *s) { return fake.waits++, s == &stream && !fake.recording ? OK : INVALID_VALUE; }

int cuMemAlloc_v2(unsigned long long *out, size_t bytes) {
  if (current != &context) return INVALID_CONTEXT;
  if (!bytes) return INVALID_VALUE;
  if (fake.fail_allocs && fake.fail_allocs--) return OUT_OF_MEMORY;
  void *at = aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (!at) return OUT_OF_MEMORY;
  fake.allocs++, fake.live++;
  return *out = (unsigned long long)(uintptr_t)at, OK;
}
int cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
  int i = 0;
  while (i < LOCKED && locked[i].at) i++;
  if (current != &context) return INVALID_CONTEXT;
  if (!bytes || flags || i == LOCKED) return INVALID_VALUE;
  if (fake.fail_allocs && fake.fail_allocs--) return OUT_OF_MEMORY;
  locked[i] = (block){malloc(bytes), bytes};
  fake.allocs++, fake.live++;
  return *out = locked[i].at, *out ? OK : OUT_OF_MEMORY;
}
int cuMemFreeHost(void *at) {
  int i = 0;
  while (i < LOCKED && locked[i].at != at) i++;
  if (i == LOCKED) return INVALID_VALUE;
  locked[i].at = NULL;
  return free(at), fake.live--, OK;
}
static bool is_locked(const char *from, size_t bytes) {
  for (int i = 0; i < LOCKED; i++) {
    const char *at = locked[i].at;
    if (at && from >= at && from + bytes <= at + locked[i].bytes) return true;
  }
  return false;
}

int cuMemFree_v2(unsigned long long at) { return free((void *)(uintptr_t)at), fake.live--, OK; }

static int move(void *to, const void *from, size_t bytes, const void *s) {
  if (fake.recording) return INVALID_VALUE; /* no step reads or writes the host's memory */
  return memmove(to, from, bytes), current == &context && s == &stream ? OK : INVALID_CONTEXT;
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes, void *s) {
  if (bytes > STAGED && !is_locked(from, bytes)) fake.waits++;
  return fake.writes++, move((void *)(uintptr_t)to, from, bytes, s);
}
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes, void *s) {
  return fake.reads++, move(to, (void *)(uintptr_t)from, bytes, s);
}
int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t bytes, void *s) {
  if (fake.recording) return fake.graph[1]++, OK;
  return fake.copies++, move((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes, s);
}
int cuMemsetD8Async(unsigned long long to, unsigned char byte, size_t bytes, void *s) {
  if (fake.recording) return fake.graph[2]++, OK;
  memset((void *)(uintptr_t)to, byte, bytes);
  return fake.fills++, current == &context && s == &stream ? OK : INVALID_CONTEXT;
}

/* What the real one asks for, of maps of bf16 with rows of 128 bytes. */
int cuTensorMapEncodeTiled(void *out, int type, uint32_t rank, void *at, const uint64_t *dims, const uint64_t *strides,
                           const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion,
                           int fill) {
  enum { BF16 = 9, SWIZZLE_128 = 3 };
  if ((uintptr_t)out % 64 || (uintptr_t)at % 16 || type != BF16 || rank < 2 || rank > 5) return INVALID_VALUE;
  if (interleave || swizzle != SWIZZLE_128 || box[0] != 64 || promotion < 0 || promotion > 3 || fill)
    return INVALID_VALUE;
  for (uint32_t i = 0; i < rank; i++)
    if (!dims[i] || dims[i] > 1ull << 32 || !box[i] || box[i] > 256 || steps[i] != 1) return INVALID_VALUE;
  for (uint32_t i = 0; i + 1 < rank; i++)
    if (strides[i] % 16 || strides[i] >= 1ull << 40) return INVALID_VALUE;
  return memset(out, 0, 128), fake.maps++, OK;
}

int cuModuleLoadData(void **out, const void *image) { return *out = &module, fake.live++, image ? OK : INVALID_VALUE; }
int cuModuleUnload(void *m) { return fake.live--, m == &module ? OK : INVALID_VALUE; }

int cuModuleGetFunction(void **out, void *m, const char *name) {
  int i = 0;
  if (m != &module || strlen(name) >= FAKE_NAME || !strncmp(name, "absent", 6)) return NOT_FOUND;
  while (i < FUNCTIONS - 1 && functions[i].name[0] && strcmp(functions[i].name, name)) i++;
  strcpy(functions[i].name, name);
  return *out = &functions[i], OK;
}
int cuFuncSetAttribute(void *f, int attribute, int value) {
  return f && attribute == 8 && value > 0 ? OK : INVALID_VALUE;
}

int cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *s, void **parameters, void **extra) {
  fake_launch l = {.blocks = x, .threads = bx, .shared = shared};
  if (!x || y != 1 || z != 1 || !bx || bx > 1024 || by != 1 || bz != 1 || s != &stream || extra) return INVALID_VALUE;
  if (current != &context) return INVALID_CONTEXT;
  if (fake.recording) return fake.graph[0]++, OK;
  if (fake.fail_launch && !--fake.fail_launch) return OUT_OF_MEMORY;
  memcpy(l.name, ((function *)f)->name, sizeof l.name);
  if (fake.n_launches < FAKE_LAUNCHES) fake.launches[fake.n_launches] = l;
  fake.n_launches++;
  if (fake.kernel) fake.kernel(l.name, &l, parameters);
  return OK;
}

/* ---- events and graphs -------------------------------------------------------------------- */

/* The clock goes on by a millisecond with each launch. */
int cuEventCreate(void **out, unsigned flags) {
  uint64_t *event = flags ? NULL : calloc(1, sizeof *event);
  if (!event) return INVALID_VALUE;
  fake.live++;
  return *out = event, OK;
}
int cuEventDestroy_v2(void *event) { return free(event), fake.live--, OK; }
int cuEventRecord(void *event, void *s) {
  return *(uint64_t *)event = 1 + fake.n_launches, s == &stream && !fake.recording ? OK : INVALID_VALUE;
}
int cuEventElapsedTime(float *ms, void *from, void *to) {
  uint64_t a = *(uint64_t *)from, b = *(uint64_t *)to;
  return *ms = (float)(b - a), a && b >= a ? OK : INVALID_VALUE;
}

int cuStreamBeginCapture_v2(void *s, int mode) {
  if (s != &stream || fake.recording || mode != 1) return INVALID_VALUE;
  memset(fake.graph, 0, sizeof fake.graph);
  return fake.recording = true, OK;
}
int cuStreamEndCapture(void *s, void **out) {
  if (s != &stream || !fake.recording) return INVALID_VALUE;
  return fake.recording = false, fake.live++, *out = fake.graph, OK;
}
int cuGraphGetNodes(void *graph, void **nodes, size_t *n) {
  size_t all = 0;
  for (size_t kind = 0; kind < 3; kind++) {
    for (uint64_t i = 0; i < fake.graph[kind]; i++, all++)
      if (nodes && all < *n) nodes[all] = &fake.graph[kind];
  }
  return *n = all, graph == fake.graph ? OK : INVALID_VALUE;
}
int cuGraphNodeGetType(void *node, int *out) {
  return *out = (int)((uint64_t *)node - fake.graph), OK;
}
int cuGraphDestroy(void *graph) { return fake.live--, graph == fake.graph ? OK : INVALID_VALUE; }

int cuGetErrorName(int error, const char **out) {
  return *out = error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR", OK;
}
int cuGetErrorString(int error, const char **out) { return *out = error == NOT_FOUND ? "not found" : "failed", OK; }
