/* Arbitrary text as a module: what parses and verifies prints to a text that gives the same text again. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/ir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *text_of(const moec_module *m) {
  moec_buf b = {0};
  moec_print(&b, m);
  char *s = strdup(moec_buf_str(&b));
  moec_buf_fini(&b);
  if (!s) abort();
  return s;
}

/* The text of |m|, read and printed again; ends |m|. */
static char *once_more(moec_module *m, char *text) {
  moec_module *again;
  moec_module_destroy(m);
  moec_status *s = moec_parse(text, &again);
  if (s) {
    fprintf(stderr, "%s\n%s\n", moec_status_message(s), text);
    abort();
  }
  char *second = text_of(again);
  moec_module_destroy(again);
  return second;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size > 1 << 16) return 0;
  moec_module *m;
  char *text = malloc(size + 1);
  if (!text) abort();
  memcpy(text, data, size);
  text[size] = 0;
  moec_status *s = moec_parse(text, &m);
  if (!s) {
    s = moec_verify(m);
    if (!s) { /* a copy says the same */
      moec_module *copy = moec_module_clone(m);
      char *one = text_of(m), *two = text_of(copy);
      if (strcmp(one, two) != 0) abort();
      moec_module_destroy(copy);
      free(one), free(two);
    }
    bool valid = !s;
    char *first = text_of(m), *second = once_more(m, first);
    if (valid && strcmp(first, second) != 0) {
      fprintf(stderr, "%s\n---\n%s\n", first, second);
      abort();
    }
    free(first), free(second);
  }
  moec_status_free(s);
  free(text);
  return 0;
}
