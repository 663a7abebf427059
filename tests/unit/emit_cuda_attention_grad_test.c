/* The cases of emit_attention_grad_test.c, printed as CUDA and run by fibers of the processor. */
#define EMIT_CUDA
#include "codegen/emit.h"
#include "ir/interp.h"
#include "tests/unit/emit_attention_grad_test.c"
