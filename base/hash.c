/* 64-bit FNV-1a. */
#include "base/file.h"

uint64_t moec_hash(uint64_t seed, const void *data, size_t size) {
  const uint8_t *p = data;
  for (size_t i = 0; i < size; i++) seed = (seed ^ p[i]) * 1099511628211ull;
  return seed;
}
