/* Hugging Face checkpoints into ONNX files. */
#ifndef MOEC_MODELS_MODELS_H
#define MOEC_MODELS_MODELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

typedef struct moec_checkpoint_options {
  const char *output;      /* the .onnx file; weights stay in the checkpoint's files */
  bool init;               /* fresh weights beside the output, from config.json alone */
  uint64_t seed;           /* of random ones */
  bool seeded;             /* the model says how they are made, in place of a file with them */
  bool zeros;              /* matrices of zeros, a file of holes: for models too large to fill */
  const char *const *sets; /* "KEY=VALUE" texts that overrule config.json */
  size_t n_sets;
} moec_checkpoint_options;

/* Reads |dir|/config.json and the safetensors files there, and writes a model whose external data are those files
 * (by plain name: the model wants to lie in |dir|, or to be compiled with --weights |dir|). Lines about what was
 * left out are appended to |remarks|. Symlinks in |dir| are followed. */
moec_status *moec_import_checkpoint(const char *dir, const moec_checkpoint_options *options,
                                    moec_buf *remarks) MOEC_MUST_USE;

#endif
