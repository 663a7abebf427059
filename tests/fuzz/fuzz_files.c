/* Arbitrary bytes as the file formats of base: the first byte picks the reader. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/json.h"
#include "base/safetensors.h"
#include "base/tensor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_safetensors(const char *path) {
  moec_safetensors *st;
  moec_status *s = moec_safetensors_open(path, &st);
  double sum = 0;
  for (size_t i = 0; !s && i < moec_safetensors_count(st); i++) {
    const moec_st_entry *e = moec_safetensors_at(st, i);
    int64_t n = moec_tensor_numel(&e->tensor);
    for (int64_t k = 0; k < n; k++) {
      sum += moec_load_f64(e->tensor.dtype, e->tensor.data, (size_t)k);
    }
    if (moec_safetensors_find(st, e->name) != e) abort();
  }
  if (sum == 0.5) fputs("", stderr); /* the sum must not be optimised away */
  moec_safetensors_close(st);
  moec_status_free(s);
}

static void read_npy(const char *path) {
  moec_tensor t;
  moec_status *s = moec_npy_read(path, &t);
  moec_tensor_fini(&t);
  moec_status_free(s);
}

static void read_json(const uint8_t *data, size_t size) {
  json_t *json;
  moec_status *s = moec_json_parse(data, size, &json);
  if (!s) json_decref(json);
  moec_status_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  uint8_t kind = *data++ % 3;
  size--;
  if (kind == 2) {
    read_json(data, size);
    return 0;
  }
  char path[64];
  int fd = memfd_create("fuzz", MFD_CLOEXEC);
  if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  if (kind == 0)
    read_safetensors(path);
  else
    read_npy(path);
  close(fd);
  return 0;
}
