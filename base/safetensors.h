/* The safetensors container: u64 header length, JSON header, tensor bytes.
 * Rules checked on opening: header at most 100,000,000 bytes and inside the file, begins
 * with '{', no duplicate names, known dtype, dims >= 0, sizes without overflow equal to the
 * data range, ranges contiguous from 0 to the end of the file (no holes, no overlap).
 * Thread-safe once open. */
#ifndef MOEC_BASE_SAFETENSORS_H
#define MOEC_BASE_SAFETENSORS_H

#include "base/tensor.h"

typedef struct moec_safetensors moec_safetensors;

typedef struct moec_st_entry {
  const char *name;
  moec_tensor tensor;   /* data points into the mapping: borrowed */
  uint64_t file_offset; /* of the data, from the start of the file */
} moec_st_entry;

/* Maps |path| read-only. The user names the path: symlinks are followed. */
moec_status *moec_safetensors_open(const char *path, moec_safetensors **out) MOEC_MUST_USE;
void moec_safetensors_close(moec_safetensors *st); /* NULL is fine */
size_t moec_safetensors_count(const moec_safetensors *st);
/* In file order; NULL when out of range / not there. Valid until close. */
const moec_st_entry *moec_safetensors_at(const moec_safetensors *st, size_t i);
const moec_st_entry *moec_safetensors_find(const moec_safetensors *st, const char *name);

/* Writes the tensors in the given order (sorted by the caller if it cares) through a
 * temporary file and rename, so a killed writer leaves the old file whole. */
moec_status *moec_safetensors_write(const char *path, size_t n, const char *const *names,
                                    const moec_tensor *tensors) MOEC_MUST_USE;
/* The same where not all data is there at once: |data| gives that of tensor |i|, valid until it is called again. */
typedef moec_status *(*moec_st_data)(void *ctx, size_t i, const void **out);
moec_status *moec_safetensors_write_each(const char *path, size_t n, const char *const *names,
                                         const moec_tensor *tensors, moec_st_data data, void *ctx) MOEC_MUST_USE;

#endif
