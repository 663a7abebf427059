#include "codegen/embedded.h"

#include <string.h>

const moec_embedded_file *moec_embedded_find(const char *name) {
  for (const moec_embedded_file *f = moec_embedded_files; f->name; f++) {
    if (!strcmp(f->name, name)) return f;
  }
  return NULL;
}

void moec_embedded_write(moec_buf *b, const char *name) {
  static const char include[] = "#include \"codegen/kernels/";
  const moec_embedded_file *f = moec_embedded_find(name);
  if (!f) return;
  for (const char *line = f->begin, *next; *line; line = next) {
    size_t n = strcspn(line, "\n");
    next = line + n + (line[n] == '\n');
    if (strncmp(line, include, sizeof include - 1) != 0) {
      moec_buf_write(b, line, (size_t)(next - line));
      continue;
    }
    char other[64] = {0};
    const char *from = line + sizeof include - 1;
    size_t size = strcspn(from, "\"");
    if (size >= sizeof other) return;
    memcpy(other, from, size);
    moec_embedded_write(b, other);
  }
}
