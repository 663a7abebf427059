/* The files of codegen/kernels/, carried inside the compiler (cmake/embed.cmake). */
#ifndef MOEC_CODEGEN_EMBEDDED_H
#define MOEC_CODEGEN_EMBEDDED_H

#include <stddef.h>

#include "base/buf.h"

typedef struct moec_embedded_file {
  const char *name;  /* "grouped_gemm.cu": without the folder */
  const char *begin; /* the text; a NUL follows it */
  size_t size;       /* without that NUL */
} moec_embedded_file;

/* Sorted by name; ends with a record whose name is NULL. Constant: thread-safe. */
extern const moec_embedded_file moec_embedded_files[] __attribute__((visibility("hidden")));

/* NULL when there is no such file. */
const moec_embedded_file *moec_embedded_find(const char *name);
/* Writes the file; a line of it that includes another one of the folder is replaced by that one. */
void moec_embedded_write(moec_buf *b, const char *name);

#endif
