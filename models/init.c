/* Weights made from nothing, written tensor by tensor: a model of any size needs a megabyte of memory.
 *
 * Element i of a tensor is a function of the seed, the tensor's name and i, by operations that are exact on every
 * machine: the same bytes everywhere, whatever else the model has. */
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

/* The sum of eight uniform 16-bit numbers, less its mean: close to a normal distribution (the density is off by less
 * than a hundredth, nothing lies beyond 4.9 deviations), quick, and no logarithm that libraries round differently. */
static int32_t draw(uint64_t h) {
  const uint64_t even = 0x0000ffff0000ffffu;
  uint64_t g = h * 0xd6e8feb86659fd93u;
  g ^= g >> 32;
  uint64_t pairs = (h & even) + (h >> 16 & even) + (g & even) + (g >> 16 & even);
  return (int32_t)(pairs & 0xffffffff) + (int32_t)(pairs >> 32) - 4 * 65535;
}

static void fill_normal(moec_dtype t, void *out, size_t n, uint64_t start, double deviation) {
  const float scale = (float)(deviation / sqrt(8 * 4294967295.0 / 12)); /* variance of one: (2^32 - 1) / 12 */
  float *f = out;
  uint16_t *half = out;
  switch (t) {
    case MOEC_F32:
      for (size_t i = 0; i < n; i++) f[i] = (float)draw(mix(start + i)) * scale;
      break;
    case MOEC_BF16:
      for (size_t i = 0; i < n; i++) half[i] = moec_f32_to_bf16((float)draw(mix(start + i)) * scale);
      break;
    default:
      for (size_t i = 0; i < n; i++) moec_store_f64(t, out, i, (double)((float)draw(mix(start + i)) * scale));
  }
}

static double log_uniform(uint64_t h) {
  double u = (double)(h >> 40) * 0x1p-24;
  return log(16 * (1 - u));
}

/* Elements start, start + 1, ... of the seed's sequence. */
static void fill(const moec_planned *p, moec_dtype t, void *out, size_t n, uint64_t start, double deviation) {
  switch (p->init) {
    case MOEC_CK_NORMAL: fill_normal(t, out, n, start, deviation); break;
    case MOEC_CK_ZEROS: memset(out, 0, n * moec_dtype_get(t)->bytes); break;
    case MOEC_CK_ONES:
      for (size_t i = 0; i < n; i++) moec_store_f64(t, out, i, 1);
      break;
    case MOEC_CK_LOG_UNIFORM:
      for (size_t i = 0; i < n; i++) moec_store_f64(t, out, i, log_uniform(mix(start + i)));
      break;
  }
}

/* {"name":{"dtype":"F32","shape":[...],"data_offsets":[b,e]},...}, padded to 8 bytes. */
static moec_status *write_header(const moec_checkpoint *ck, moec_outfile *f) {
  moec_buf b = {0};
  uint64_t at = 0, n;
  moec_buf_putc(&b, '{');
  for (size_t i = 0; i < ck->n_plans; i++) {
    const moec_planned *p = &ck->plans[i];
    moec_buf_printf(&b, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "", p->name,
                    moec_dtype_get(ck->planned)->safetensors);
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

static moec_status *write_tensor(const moec_planned *p, moec_dtype t, moec_outfile *f, const moec_ck_fresh *o,
                                 void *chunk) {
  uint64_t size = moec_dtype_get(t)->bytes, count = p->bytes / size;
  uint64_t seed = mix(moec_hash(o->seed ^ MOEC_HASH_SEED, p->name, strlen(p->name)));
  if (o->zeros && p->init == MOEC_CK_NORMAL) return moec_outfile_zeros(f, p->bytes);
  for (uint64_t at = 0; at < count; at += CHUNK) {
    size_t n = (size_t)(count - at < CHUNK ? count - at : CHUNK);
    fill(p, t, chunk, n, seed + at, o->deviation);
    MOEC_TRY(moec_outfile_write(f, chunk, n * size));
  }
  return NULL;
}

moec_status *moec_ck_write_fresh(const moec_checkpoint *ck, const char *path, const moec_ck_fresh *o) {
  moec_outfile *f;
  MOEC_TRY(moec_outfile_begin(path, 0644, &f));
  void *chunk = malloc(CHUNK * sizeof(double));
  moec_status *s = chunk ? write_header(ck, f) : moec_error(MOEC_OUT_OF_MEMORY, "no memory for fresh weights");
  for (size_t i = 0; !s && i < ck->n_plans; i++) s = write_tensor(&ck->plans[i], ck->planned, f, o, chunk);
  free(chunk);
  return moec_outfile_end(f, s);
}
