#include "runtime/device.h"

#include <string.h>

#include "runtime/model.h"

const moec_rt_device *moec_rt_device_of(const char *target, bool describe) {
  if (strncmp(target, "cuda:", 5)) return &moec_rt_device_cpu;
  return describe ? &moec_rt_device_sizes : &moec_rt_device_cuda;
}

moec_status *moec_rt_device_reserve(moec_model *m, moec_rt_arena *a, uint64_t bytes, const char *what) {
  if (a->data && a->size >= bytes) return NULL;
  moec_rt_device_release(m, a);
  a->data = m->device->alloc(m, bytes);
  if (!a->data) return moec_rt_no_memory(what, bytes);
  a->size = bytes;
  return NULL;
}

void moec_rt_device_release(moec_model *m, moec_rt_arena *a) {
  if (a->data) m->device->free(m, a->data, a->size);
  *a = (moec_rt_arena){0};
}
