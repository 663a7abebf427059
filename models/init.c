/* Seeded random weights, written tensor by tensor: a model of any size needs a megabyte of memory.
 *
 * Element i of a tensor is a function of the seed, the tensor's name and i, as the op `random` computes it
 * (docs/ir.md): the same bytes on every machine, whatever else the model has. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/outfile.h"
#include "models/checkpoint_internal.h"

enum { CHUNK = 1 << 18 }; /* elements */

static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static double value_of(moec_ck_init init, uint64_t seed, uint64_t i, double deviation) {
  uint64_t h = mix(mix(seed) + i);
  double u = (double)(h >> 40) * 0x1p-24, v = (double)(h >> 16 & 0xffffff) * 0x1p-24;
  switch (init) {
    case MOEC_CK_ZEROS: return 0;
    case MOEC_CK_ONES: return 1;
    case MOEC_CK_LOG_UNIFORM: return log(16 * (1 - u));
    case MOEC_CK_NORMAL: break;
  }
  return deviation * sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v);
}

/* {"name":{"dtype":"F32","shape":[...],"data_offsets":[b,e]},...}, padded to 8 bytes. */
static moec_status *write_header(const moec_checkpoint *ck, moec_outfile *f) {
  moec_buf b = {0};
  uint64_t at = 0, n;
  moec_buf_putc(&b, '{');
  for (size_t i = 0; i < ck->n_plans; i++) {
    const moec_planned *p = &ck->plans[i];
    moec_buf_printf(&b, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "", p->name, moec_dtype_get(ck->planned)->safetensors);
    for (uint32_t k = 0; k < p->rank; k++) moec_buf_printf(&b, "%s%lld", k ? "," : "", (long long)p->dims[k]);
    moec_buf_printf(&b, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at, (unsigned long long)(at + p->bytes));
    at += p->bytes;
  }
  moec_buf_putc(&b, '}');
  while (b.size % 8) moec_buf_putc(&b, ' ');
  n = b.size; /* little endian, as every host moec runs on */
  moec_status *s = moec_outfile_write(f, &n, sizeof n);
  if (!s) s = moec_outfile_write(f, moec_buf_str(&b), b.size);
  moec_buf_fini(&b);
  return s;
}

static moec_status *write_tensor(const moec_planned *p, moec_dtype t, moec_outfile *f, uint64_t seed, double deviation, void *chunk) {
  uint64_t size = moec_dtype_get(t)->bytes, count = p->bytes / size;
  seed = moec_hash(seed ^ MOEC_HASH_SEED, p->name, strlen(p->name));
  for (uint64_t at = 0; at < count; at += CHUNK) {
    size_t n = (size_t)(count - at < CHUNK ? count - at : CHUNK);
    for (size_t i = 0; i < n; i++) moec_store_f64(t, chunk, i, value_of(p->init, seed, at + i, deviation));
    MOEC_TRY(moec_outfile_write(f, chunk, n * size));
  }
  return NULL;
}

moec_status *moec_ck_write_random(const moec_checkpoint *ck, const char *path, uint64_t seed, double deviation) {
  moec_outfile *f;
  MOEC_TRY(moec_outfile_begin(path, 0644, &f));
  void *chunk = malloc(CHUNK * sizeof(double));
  moec_status *s = chunk ? write_header(ck, f) : moec_error(MOEC_OUT_OF_MEMORY, "no memory for random weights");
  for (size_t i = 0; !s && i < ck->n_plans; i++) s = write_tensor(&ck->plans[i], ck->planned, f, seed, deviation, chunk);
  free(chunk);
  return moec_outfile_end(f, s);
}
