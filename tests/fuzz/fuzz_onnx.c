/* Arbitrary bytes as a model: what imports verifies, and its text gives the same text again. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/frontend.h"
#include "ir/ir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(moec_status *s) {
  if (!s) return;
  fprintf(stderr, "%s\n", moec_status_message(s));
  abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  moec_module *m, *again;
  if (size > 1 << 18) return 0;
  moec_status *s = moec_import_onnx_memory(data, size, &m);
  if (s) { /* one line that says something */
    if (!*moec_status_message(s) || strchr(moec_status_message(s), '\n') || moec_status_exit(s) != 2) {
      fprintf(stderr, "%d: '%s'\n", moec_status_exit(s), moec_status_message(s));
      abort();
    }
    moec_status_free(s);
    return 0;
  }
  must(moec_verify(m));
  moec_buf first = {0}, second = {0};
  moec_print(&first, m);
  must(moec_parse(moec_buf_str(&first), &again));
  must(moec_verify(again));
  moec_print(&second, again);
  if (strcmp(moec_buf_str(&first), moec_buf_str(&second)) != 0) {
    fprintf(stderr, "%s\n---\n%s\n", moec_buf_str(&first), moec_buf_str(&second));
    abort();
  }
  moec_buf_fini(&first), moec_buf_fini(&second);
  moec_module_destroy(m), moec_module_destroy(again);
  return 0;
}
