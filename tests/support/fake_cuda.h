/* A CUDA driver, a cuBLAS and a cuDNN for tests on machines without a GPU: memory is the host's, products are computed,
 * kernels are the test's own functions, everything is counted. build/fake/libcuda.so.1, libcublas.so.13 and
 * libcudnn.so.9 stand for the real ones once they are loaded, or with LD_LIBRARY_PATH. */
#ifndef MOEC_TESTS_FAKE_CUDA_H
#define MOEC_TESTS_FAKE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

enum { FAKE_LAUNCHES = 256, FAKE_NAME = 64 };

typedef struct fake_launch {
  char name[FAKE_NAME];
  unsigned blocks, threads, shared;
} fake_launch;

typedef struct fake_cuda {
  int devices; /* there are */
  unsigned fail_allocs; /* the next ones */
  unsigned fail_launch; /* this one of the next launches; 0: none */
  int64_t live; /* blocks of memory, of the host too, contexts, streams, modules, handles: 0 when all are given back */
  uint64_t allocs, writes, reads, fills, copies, waits, n_launches, gemms, gemm_batch, maps;
  bool recording; /* what is started is counted in graph[] and does not run */
  uint64_t graph[3]; /* kernels, copies, fills; n_launches and the like stay as they are */
  fake_launch launches[FAKE_LAUNCHES]; /* the first ones */
  void (*kernel)(const char *name, const fake_launch *l, void **parameters); /* NULL: nothing runs */
  uint64_t attentions; /* graphs that cuDNN ran */
  bool no_engine;      /* cuDNN has none for any graph */
} fake_cuda;

fake_cuda *fake_cuda_get(void); /* of libcuda.so.1: found with dlsym() */

#endif
