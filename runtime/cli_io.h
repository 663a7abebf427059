/* What the commands read and write: inputs from .npy files, tensors to .safetensors. */
#ifndef MOEC_RUNTIME_CLI_IO_H
#define MOEC_RUNTIME_CLI_IO_H

#include "runtime/cli.h"

enum { MOEC_RT_NAME = 1024 }; /* longest name of an input or output on a command line */

/* Reads and attaches the inputs of "--input NAME=FILE.npy" arguments. Each must be one of |programs|,
 * a set of bits 1 << moec_program, and each that these have must be given or have a default.
 * *out, by input, is ended with moec_rt_free_inputs(), also after an error. */
moec_status *moec_rt_read_inputs(moec_model *m, const moec_rt_list *arguments, unsigned programs,
                                 moec_tensor **out) MOEC_MUST_USE;
void moec_rt_free_inputs(const moec_model *m, moec_tensor *inputs); /* NULL is fine */

/* Tensors with names, on their way into a file. */
typedef struct moec_rt_bag {
  char **names;
  moec_tensor *tensors; /* owned */
  size_t n, room;
} moec_rt_bag;

/* Copies |view| as |dtype|; MOEC_DTYPE_NONE: as it is. */
moec_status *moec_rt_bag_add(moec_rt_bag *b, const char *prefix, const char *name,
                             const moec_view *view, moec_dtype dtype) MOEC_MUST_USE;
/* The outputs of what ran last, each with |prefix|. */
moec_status *moec_rt_bag_add_outputs(moec_rt_bag *b, const moec_model *m, moec_program ran,
                                     const char *prefix) MOEC_MUST_USE;
/* route.N.indices (i64) and route.N.weights (f32) of what ran last, [tokens, k]. */
moec_status *moec_rt_bag_add_routes(moec_rt_bag *b, const moec_model *m) MOEC_MUST_USE;
moec_status *moec_rt_bag_write(const moec_rt_bag *b, const char *path) MOEC_MUST_USE;
void moec_rt_bag_fini(moec_rt_bag *b);

#endif
