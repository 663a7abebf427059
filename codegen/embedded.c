#include "codegen/embedded.h"

#include <string.h>

const moec_embedded_file *moec_embedded_find(const char *name) {
  for (const moec_embedded_file *f = moec_embedded_files; f->name; f++) {
    if (!strcmp(f->name, name)) return f;
  }
  return NULL;
}
