/* Emitted CUDA on the processor: its text, compiled as C++ (tests/support/cuda_shim.h), run with a fiber for each
 * thread of a block, one block after the other. A fiber runs until it waits for others, so that a missing barrier
 * shows: what one thread should have waited for has not happened at all. Threads run in rising or in falling order. */
#ifndef MOEC_TESTS_CUDA_EMULATION_H
#define MOEC_TESTS_CUDA_EMULATION_H

#include <dlfcn.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/dtype.h"
#include "base/file.h"
#include "tests/unit/unit.h"

enum { EMULATED_THREADS = 1024, EMULATED_STACK = 128 * 1024 };

/* As tests/support/cuda_shim.h has it. */
typedef struct emulated {
  struct {
    unsigned x, y, z;
  } thread, block, grid, size;
  void (*wait)(unsigned mates);
  unsigned long long *slot;
} emulated;

typedef struct emulated_barrier {
  unsigned arrived, size, generation;
} emulated_barrier;

typedef struct emulation {
  void *library;
  emulated **now;
  emulated threads[EMULATED_THREADS];
  enum { EMULATED_NEW, EMULATED_RUNNING, EMULATED_DONE } state[EMULATED_THREADS];
  ucontext_t
      fibers[EMULATED_THREADS]; /* how they begin; then jumps, which ask nothing of the system */
  jmp_buf at[EMULATED_THREADS], scheduler;
  char *stacks;
  unsigned long long slots[EMULATED_THREADS];
  emulated_barrier warps[EMULATED_THREADS], block; /* by the first of those who meet */
  unsigned current, left, waits; /* waits since something moved */
  void (*body)(void *user);
  void *user;
  bool falling;
} emulation;

static emulation *emulation_current; /* fibers have no argument */

/* Until all lanes |mates| of the warp, 0: all threads of the block, have come here. */
static void emulation_wait(unsigned mates) {
  emulation *e = emulation_current;
  unsigned me = e->current;
  unsigned first = mates ? me / 32 * 32 + (unsigned)__builtin_ctz(mates) : 0;
  emulated_barrier *const b = mates ? &e->warps[first] : &e->block;
  ck_assert_msg(!mates || mates >> me % 32 & 1, "thread %u waits for others but not for itself", me);
  if (mates) b->size = (unsigned)__builtin_popcount(mates);
  unsigned generation = b->generation;
  if (++b->arrived == b->size) {
    b->arrived = 0, b->generation++, e->waits = 0;
    return;
  }
  while (b->generation == generation) {
    if (++e->waits > 4 * EMULATED_THREADS)
      ck_abort_msg("thread %u waits for threads that never come", me);
    if (!_setjmp(e->at[me])) _longjmp(e->scheduler, 1);
  }
}

static void emulation_fiber(void) {
  emulation *e = emulation_current;
  unsigned me = e->current;
  e->body(e->user);
  e->state[me] = EMULATED_DONE, e->waits = 0;
  _longjmp(e->scheduler, 1);
}

static inline void emulation_start(emulation *e, unsigned block, unsigned blocks,
                                   unsigned threads) {
  e->block = (emulated_barrier){.size = threads};
  e->left = threads;
  for (unsigned i = 0; i < threads; i++) {
    e->threads[i] = (emulated){{i, 0, 0},       {block, 0, 0},  {blocks, 1, 1},
                               {threads, 1, 1}, emulation_wait, e->slots};
    e->warps[i] = (emulated_barrier){0};
    e->state[i] = EMULATED_NEW;
    getcontext(&e->fibers[i]);
    e->fibers[i].uc_stack.ss_sp = e->stacks + (size_t)i * EMULATED_STACK;
    e->fibers[i].uc_stack.ss_size = EMULATED_STACK;
    e->fibers[i].uc_link = NULL;
    makecontext(&e->fibers[i], emulation_fiber, 0);
  }
}

static inline void emulation_switch(emulation *e, unsigned thread) {
  e->current = thread;
  *e->now = &e->threads[thread];
  if (!_setjmp(e->scheduler)) {
    if (e->state[thread] == EMULATED_RUNNING) _longjmp(e->at[thread], 1);
    e->state[thread] = EMULATED_RUNNING;
    setcontext(&e->fibers[thread]);
  }
  e->left -= e->state[e->current] == EMULATED_DONE;
}

static inline void emulation_block(emulation *e, unsigned block, unsigned blocks,
                                   unsigned threads) {
  emulation_start(e, block, blocks, threads);
  while (e->left)
    for (unsigned i = 0; i < threads; i++) {
      unsigned at = e->falling ? threads - 1 - i : i;
      if (e->state[at] != EMULATED_DONE) emulation_switch(e, at);
    }
}

/* |body|, which calls a kernel of the library, as each thread of |blocks| blocks. */
static inline void emulation_launch(emulation *e, unsigned blocks, unsigned threads,
                                    void (*body)(void *user), void *user) {
  ck_assert_uint_le(threads, EMULATED_THREADS);
  ck_assert_uint_eq(threads % 32, 0);
  e->body = body, e->user = user;
  emulation_current = e;
  for (unsigned b = 0; b < blocks; b++)
    emulation_block(e, e->falling ? blocks - 1 - b : b, blocks, threads);
}

static inline void emulation_replace(moec_buf *text, const char *from, const char *to) {
  moec_buf out = {0};
  const char *at = moec_buf_str(text), *hit = strstr(at, from);
  if (!hit) ck_abort_msg("expected the emitted text to have: %s", from);
  moec_buf_write(&out, at, (size_t)(hit - at));
  moec_buf_puts(&out, to);
  moec_buf_puts(&out, hit + strlen(from));
  moec_buf_fini(text);
  *text = out;
}

static inline const char *emulation_compiler(void) {
  const char *cxx = getenv("CXX");
  return cxx && *cxx ? cxx : "c++";
}

/* Without a C++ compiler nothing can be emulated: the test is skipped. */
static inline bool emulation_possible(void) {
  char command[512];
  snprintf(command, sizeof command, "%s --version >/dev/null 2>&1", emulation_compiler());
  return system(command) == 0;
}

/* A library of emitted text; |text| is changed. */
static inline emulation *emulation_open(moec_buf *text) {
  char dir[] = "/tmp/moec-cuda-XXXXXX", source[64], object[64], command[1024];
  emulation *e = calloc(1, sizeof *e);
  emulation_replace(text, "extern __shared__ float4 moec_dynamic[];",
                    "static float4 moec_dynamic[16384];");
  emulation_replace(text, "asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(v) : \"f\"(f));",
                    "v = moec_emulated_to_bf16(f);");
  emulation_replace(text, "asm(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(v) : \"f\"(high), \"f\"(low));",
                    "v = moec_emulated_to_bf16(low) | (uint32_t)moec_emulated_to_bf16(high) << 16;");
  emulation_replace(text, "asm(\"cvt.rn.f16x2.f32 %0, %1, %2;\" : \"=r\"(v) : \"f\"(high), \"f\"(low));",
                    "v = moec_emulated_to_f16(low) | (uint32_t)moec_emulated_to_f16(high) << 16;");
  emulation_replace(text, "asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(f) : \"h\"(v));",
                    "f = moec_emulated_from_f16(v);");
  emulation_replace(text, "asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(v) : \"f\"(f));",
                    "v = moec_emulated_to_f16(f);");
  if (strstr(moec_buf_str(text), "ex2.approx"))
    emulation_replace(text, "asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x));", "y = exp2f(x);");
  ck_assert_ptr_ne(mkdtemp(dir), NULL);
  snprintf(source, sizeof source, "%s/k.cc", dir);
  snprintf(object, sizeof object, "%s/k.so", dir);
  UNIT_OK(moec_write_file(source, moec_buf_str(text), text->size, 0600));
  snprintf(command, sizeof command,
           "%s -std=c++17 -O1 -w -fPIC -shared -ffp-contract=off -include "
           "tests/support/cuda_shim.h -o %s %s -lm",
           emulation_compiler(), object, source);
  if (system(command) != 0) ck_abort_msg("the C++ compiler refused emitted CUDA: %s", source);
  e->library = dlopen(object, RTLD_NOW | RTLD_LOCAL);
  if (!e->library) ck_abort_msg("%s", dlerror());
  unlink(source), unlink(object), rmdir(dir);
  e->now = dlsym(e->library, "moec_emulated_now");
  float (**from)(uint16_t) = dlsym(e->library, "moec_emulated_from_f16");
  uint16_t (**to)(float) = dlsym(e->library, "moec_emulated_to_f16");
  uint16_t (**to_bf16)(float) = dlsym(e->library, "moec_emulated_to_bf16");
  *from = moec_f16_to_f32, *to = moec_f32_to_f16, *to_bf16 = moec_f32_to_bf16;
  e->stacks = malloc((size_t)EMULATED_THREADS * EMULATED_STACK);
  return e;
}

static inline void emulation_close(emulation *e) {
  dlclose(e->library);
  free(e->stacks);
  free(e);
}

#endif
