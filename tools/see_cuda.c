#include "tools/see_cuda.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

/* A function of the driver's library; ISO C has no cast from data to code. */
static bool find(void *library, const char *name, void *slot) {
  void *f = dlsym(library, name);
  memcpy(slot, &f, sizeof f);
  return f != NULL;
}

bool moec_sees_cuda(void) {
  int (*init)(unsigned flags) = NULL;
  int (*count_devices)(int *count) = NULL;
  int count = 0;
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); /* it leaves threads behind */
  if (!library) return false;
  bool sees = find(library, "cuInit", &init) && find(library, "cuDeviceGetCount", &count_devices) && init(0) == 0 &&
              count_devices(&count) == 0 && count > 0;
  dlclose(library);
  return sees;
}
