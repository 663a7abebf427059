/* What the files of the checkpoint share. */
#ifndef MOEC_MODELS_CHECKPOINT_INTERNAL_H
#define MOEC_MODELS_CHECKPOINT_INTERNAL_H

#include <jansson.h>

#include "base/arena.h"
#include "base/safetensors.h"
#include "models/checkpoint.h"

typedef struct moec_shard {
  const char *name;
  moec_safetensors *st;
} moec_shard;

typedef struct moec_planned {
  const char *name;
  moec_ck_init init;
  uint32_t rank;
  int64_t dims[MOEC_MAX_RANK];
  size_t bytes;
} moec_planned;

struct moec_checkpoint {
  moec_arena *arena;
  const char *dir;
  json_t *map;        /* weight_map; NULL: one file, shards[0] */
  json_t *used;       /* names that were asked for */
  moec_shard *shards; /* opened files */
  size_t n_shards, cap_shards;
  moec_dtype planned; /* NONE: files */
  bool made;          /* planned tensors are made, from: */
  uint64_t seed;
  double deviation;
  moec_planned *plans;
  size_t n_plans, cap_plans;
};

#endif
