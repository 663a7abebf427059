/* Whether this machine has a CUDA device. */
#ifndef MOEC_TOOLS_SEE_CUDA_H
#define MOEC_TOOLS_SEE_CUDA_H

#include <stdbool.h>

/* Asks the driver, where there is one, how many devices it has; nothing is opened on them. */
bool moec_sees_cuda(void);

#endif
