/* The cases of tests/unit/cuda_library_test.c on a GPU. */
#define LIBRARY_ON_GPU
#include "tests/support/gpu.h"
#include "tests/unit/cuda_library_test.c"
