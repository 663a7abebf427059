/* Library kernels by fibers of the processor (cuda_emulation.h), for tests/support/library.h. */
#ifndef MOEC_TESTS_LIBRARY_EMULATED_H
#define MOEC_TESTS_LIBRARY_EMULATED_H

#include "tests/support/cuda_emulation.h"

#undef UNIT_BEFORE
#define UNIT_BEFORE \
  if (!emulation_possible()) return puts("skipped: no C++ compiler"), 77;

typedef void (*machine_call)(void *launch);

static emulation *machine;
static void *machine_function;

#define BODY(name, params, args)                        \
  static void call_##name(void *user) {                 \
    launch *l = user;                                   \
    void(*f) params;                                    \
    memcpy(&f, &machine_function, sizeof f);            \
    f args;                                             \
  }

static void machine_open(moec_buf *text) { machine = emulation_open(text); }
static void machine_close(void) { emulation_close(machine); }
static bool machine_has(const char *symbol) { return dlsym(machine->library, symbol) != NULL; }

/* Threads in either order by turns. */
static void machine_run(const char *symbol, unsigned blocks, unsigned threads, machine_call call, launch *l) {
  machine_function = dlsym(machine->library, symbol);
  machine->falling = !machine->falling;
  l->fault_at = &l->fault;
  emulation_launch(machine, blocks, threads, call, l);
}

static void *room(size_t bytes) {
  void *p = malloc(bytes ? bytes : 1);
  ck_assert_ptr_nonnull(p);
  return p;
}

/* Whether it is done: here moec_tensor_fini() frees both. */
static bool release(void *p) {
  (void)p;
  return false;
}

#endif
