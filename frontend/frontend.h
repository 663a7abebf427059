/* ONNX files into modules. */
#ifndef MOEC_FRONTEND_FRONTEND_H
#define MOEC_FRONTEND_FRONTEND_H

#include "ir/ir.h"

/* A size given on the command line: --dim NAME=N. */
typedef struct moec_dim_setting {
  char name[128];
  int64_t value;
} moec_dim_setting;

typedef struct moec_import_options {
  const char *weights_dir;      /* where external data lies: plain names only, links are followed; NULL: beside the
                                   model */
  const moec_dim_setting *dims; /* symbols with a fixed value */
  size_t n_dims;
} moec_import_options;

/* Reads a model. The file is mapped for the module's lifetime: inline weights are not copied.
 * Everything in the file is untrusted; external data beside it is opened through moec_map_inner_file()
 * only. All unsupported nodes are named in one error. Messages start with the path. */
moec_status *moec_import_onnx(const char *path, const moec_import_options *options, moec_module **out) MOEC_MUST_USE;

/* The same from memory, for tests and fuzzing; |data| must outlive the module. No external data. */
moec_status *moec_import_onnx_memory(const void *data, size_t size, moec_module **out) MOEC_MUST_USE;

#endif
