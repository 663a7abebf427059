/* Weights made from nothing, written tensor by tensor: a model of any size needs a megabyte of memory. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/outfile.h"
#include "models/checkpoint_internal.h"

enum { CHUNK = 1 << 18 }; /* elements */

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
  const moec_fresh fresh = {(moec_fresh_kind)p->init, o->deviation};
  uint64_t start = moec_fresh_start(o->seed, p->name);
  if (o->zeros && p->init == MOEC_CK_NORMAL) return moec_outfile_zeros(f, p->bytes);
  for (uint64_t at = 0; at < count; at += CHUNK) {
    size_t n = (size_t)(count - at < CHUNK ? count - at : CHUNK);
    moec_fresh_fill(&fresh, t, chunk, n, start + at);
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
