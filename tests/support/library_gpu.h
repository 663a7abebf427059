/* Library kernels on a GPU, for tests/support/library.h: compiled by NVRTC when the test begins; tensors in memory that
 * processor and GPU both reach. */
#ifndef MOEC_TESTS_LIBRARY_GPU_H
#define MOEC_TESTS_LIBRARY_GPU_H

#include "tests/support/gpu.h"

#undef UNIT_BEFORE
#define UNIT_BEFORE \
  if (!gpu_possible()) return 77;

typedef void (*machine_call)(launch *l, void **arguments);

static gpu machine;

#define A1(x) &x
#define A2(x, ...) &x, A1(__VA_ARGS__)
#define A3(x, ...) &x, A2(__VA_ARGS__)
#define A4(x, ...) &x, A3(__VA_ARGS__)
#define A5(x, ...) &x, A4(__VA_ARGS__)
#define A6(x, ...) &x, A5(__VA_ARGS__)
#define A7(x, ...) &x, A6(__VA_ARGS__)
#define A8(x, ...) &x, A7(__VA_ARGS__)
#define A9(x, ...) &x, A8(__VA_ARGS__)
#define A10(x, ...) &x, A9(__VA_ARGS__)
#define A11(x, ...) &x, A10(__VA_ARGS__)
#define A12(x, ...) &x, A11(__VA_ARGS__)
#define PICK(a, b, c, d, e, f, g, h, i, j, k, l, name, ...) name
#define ADDRESSES(...) PICK(__VA_ARGS__, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, )(__VA_ARGS__)

#define BODY(name, params, args)                          \
  static void call_##name(launch *l, void **arguments) {  \
    void *const addresses[] = {ADDRESSES args};           \
    memcpy(arguments, addresses, sizeof addresses);       \
  }

static void machine_open(moec_buf *text) { gpu_open(&machine, moec_buf_str(text)); }
static void machine_close(void) { gpu_close(&machine); }
static bool machine_has(const char *symbol) { return gpu_function(&machine, symbol) != NULL; }

static void machine_run(const char *symbol, unsigned blocks, unsigned threads, machine_call call, launch *l) {
  void *arguments[16];
  l->fault_at = gpu_room(&machine, sizeof *l->fault_at);
  *l->fault_at = l->fault;
  call(l, arguments);
  gpu_launch(&machine, symbol, blocks, threads, arguments);
  l->fault = *l->fault_at;
  gpu_release(&machine, l->fault_at);
}

static void *room(size_t bytes) { return gpu_room(&machine, bytes); }
static bool release(void *p) { return gpu_release(&machine, p); }

#endif
