/* runtime_train_test.c on a CUDA device. */
#define TRAIN_ON_CUDA
#include "tests/support/fake_device.h"
#include "tests/unit/runtime_train_test.c"
