/* The weights in a folder of the Hugging Face hub: model.safetensors, or the shards that
 * model.safetensors.index.json names. The user names the folder: symlinks are followed (hub caches).
 *
 * A *planned* checkpoint has no files: it notes every tensor that is asked for, and can then be written with fresh
 * values. Thread-compatible. */
#ifndef MOEC_MODELS_CHECKPOINT_H
#define MOEC_MODELS_CHECKPOINT_H

#include "base/buf.h"
#include "base/fresh.h"
#include "base/tensor.h"

typedef struct moec_checkpoint moec_checkpoint;

/* What a fresh model has in a tensor. */
typedef enum moec_ck_init {
  MOEC_CK_NORMAL = MOEC_FRESH_NORMAL, /* of deviation initializer_range */
  MOEC_CK_ZEROS = MOEC_FRESH_ZEROS,
  MOEC_CK_ONES = MOEC_FRESH_ONES,
  MOEC_CK_LOG_UNIFORM = MOEC_FRESH_LOG_UNIFORM
} moec_ck_init;

typedef struct moec_ck_tensor {
  moec_dtype dtype;
  const char *file; /* plain name, inside the folder; or how it is made (base/fresh.h) */
  uint64_t offset;  /* of the bytes, from the start of the file; or of the sequence */
} moec_ck_tensor;

moec_status *moec_checkpoint_open(const char *dir, moec_checkpoint **out) MOEC_MUST_USE;
/* One file anywhere; its tensors are said to lie in its plain name. */
moec_status *moec_checkpoint_open_file(const char *path, moec_checkpoint **out) MOEC_MUST_USE;
moec_checkpoint *moec_checkpoint_plan(moec_dtype dtype);
/* The same, but its tensors say how they are made, so that a model needs no file of them. */
moec_checkpoint *moec_checkpoint_made(moec_dtype dtype, uint64_t seed, double deviation);
void moec_checkpoint_close(moec_checkpoint *ck); /* NULL is fine */

/* Whether the tensor is there; a planned checkpoint has none yet. */
bool moec_ck_has(const moec_checkpoint *ck, const char *name);
/* Finds a tensor of f32, bf16 or f16 of exactly this shape, and marks it as used. */
moec_status *moec_ck_find(moec_checkpoint *ck, const char *name, moec_ck_init init, uint32_t rank, const int64_t *dims,
                          moec_ck_tensor *out) MOEC_MUST_USE;
/* One line on tensors that nobody asked for, appended to |out|; nothing when there are none. */
void moec_ck_unused(const moec_checkpoint *ck, moec_buf *out);

typedef struct moec_ck_fresh {
  uint64_t seed;
  double deviation; /* of normal tensors */
  bool zeros;       /* normal tensors are zeros instead, which take no place on the disk */
} moec_ck_fresh;

/* Writes a planned checkpoint, streaming: values depend on the seed, the tensor's name and the element's place only. */
moec_status *moec_ck_write_fresh(const moec_checkpoint *ck, const char *path, const moec_ck_fresh *o) MOEC_MUST_USE;

#endif
