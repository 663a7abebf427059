/* Attention and its gradient on tensor cores, printed as CUDA and run by fibers of the processor. */
#define EMIT_CUDA
#define EMIT_HALVES
#include "codegen/emit.h"
#include "ir/interp.h"
#include "tests/unit/emit_attention_grad_test.c"
