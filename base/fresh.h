/* Weights made from nothing. Element i of a tensor is a function of a seed, the tensor's name and i, by operations that
 * are exact on every machine: the same bytes everywhere, whatever else the model has. Thread-safe.
 *
 * In place of a weights file a model may name how its tensors are made, "moec.init:normal:0.02", and say with the
 * offset where in the sequence a tensor starts. */
#ifndef MOEC_BASE_FRESH_H
#define MOEC_BASE_FRESH_H

#include "base/dtype.h"
#include "base/status.h"

/* KIND(NAME, text) */
#define MOEC_FRESH_KINDS(KIND)                                                       \
  KIND(NORMAL, "normal") /* mean 0 and the deviation, nothing beyond 4.9 of them  */ \
  KIND(ZEROS, "zeros")                                                               \
  KIND(ONES, "ones")                                                                 \
  KIND(LOG_UNIFORM, "log_uniform") /* log of uniform(0, 16): decay rates of linear attention */

typedef enum moec_fresh_kind {
#define MOEC_FRESH_ENUM(name, text) MOEC_FRESH_##name,
  MOEC_FRESH_KINDS(MOEC_FRESH_ENUM)
#undef MOEC_FRESH_ENUM
  MOEC_FRESH_COUNT
} moec_fresh_kind;

typedef struct moec_fresh {
  moec_fresh_kind kind;
  double deviation; /* NORMAL */
} moec_fresh;

/* Where the sequence of tensor |name| starts. */
uint64_t moec_fresh_start(uint64_t seed, const char *name);
/* Elements from place |start| of the sequence on; |t| is a float type. */
void moec_fresh_fill(const moec_fresh *f, moec_dtype t, void *out, size_t n, uint64_t start);

/* NORMAL: what the integers that are drawn are multiplied by, for those who draw themselves. */
float moec_fresh_scale(const moec_fresh *f);

enum { MOEC_FRESH_TEXT = 64 };
void moec_fresh_print(const moec_fresh *f, char out[MOEC_FRESH_TEXT]);
/* Whether |name| is one of these and no file's; what follows may still be wrong. */
bool moec_fresh_is(const char *name);
moec_status *moec_fresh_parse(const char *name, moec_fresh *out) MOEC_MUST_USE;

#endif
