/* The cases of emit_random_test.c, printed as CUDA and run by fibers of the processor. */
#define EMIT_CUDA
#include "codegen/emit.h"
#include "ir/interp.h"
#include "tests/unit/emit_random_test.c"
