#include "runtime/cuda_driver.h"

#include <dlfcn.h>
#include <string.h>

/* Never unloaded: drivers leave threads and handlers behind. */
enum { FLAGS = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE };

typedef struct function {
  const char *symbol;
  size_t offset; /* of the pointer in the table */
} function;

/* Fills the pointers of |table| from |library|. */
static moec_status *find_all(void *library, const char *file, const function *list, size_t n, void *table) {
  for (size_t i = 0; i < n; i++) {
    void *at = dlsym(library, list[i].symbol);
    if (!at) return moec_error(MOEC_UNSUPPORTED, "expected a newer %s: it has no %s", file, list[i].symbol);
    memcpy((char *)table + list[i].offset, &at, sizeof at); /* ISO C has no cast from data to code */
  }
  return NULL;
}

#define ENTRY(type, field, symbol) {symbol, offsetof(type, field)},

moec_status *moec_cu_load(moec_cu *out) {
#define ROW(field, symbol, parameters) ENTRY(moec_cu, field, symbol)
  static const function list[] = {MOEC_CU_FUNCTIONS(ROW)};
#undef ROW
  *out = (moec_cu){.library = dlopen("libcuda.so.1", FLAGS)};
  if (!out->library) return moec_error(MOEC_UNSUPPORTED, "needs a CUDA device: libcuda.so.1 not found");
  moec_status *s = find_all(out->library, "libcuda.so.1", list, sizeof list / sizeof *list, out);
  if (s) moec_cu_unload(out);
  return s;
}

void moec_cu_unload(moec_cu *c) {
  if (c->library) dlclose(c->library);
  *c = (moec_cu){0};
}

moec_status *moec_cublas_load(moec_cublas *out) {
#define ROW(field, symbol, parameters) ENTRY(moec_cublas, field, symbol)
  static const function list[] = {MOEC_CUBLAS_FUNCTIONS(ROW)};
#undef ROW
  static const char *const files[] = {"libcublas.so.13", "libcublas.so.12"};
  const char *file = NULL;
  *out = (moec_cublas){0};
  for (int i = 0; i < 2 && !out->library; i++) {
    file = files[i];
    out->library = dlopen(file, FLAGS);
  }
  if (!out->library) {
    return moec_error(MOEC_UNSUPPORTED, "needs cuBLAS: neither libcublas.so.13 nor libcublas.so.12 found: put its "
                      "folder into LD_LIBRARY_PATH");
  }
  moec_status *s = find_all(out->library, file, list, sizeof list / sizeof *list, out);
  if (s) moec_cublas_unload(out);
  return s;
}

void moec_cublas_unload(moec_cublas *c) {
  if (c->library) dlclose(c->library);
  *c = (moec_cublas){0};
}

moec_status *moec_cu_check(const moec_cu *c, int error, const char *what) {
  enum { NO_MEMORY = 2 };
  const char *name = NULL, *text = NULL;
  if (!error) return NULL;
  if (c->error_name(error, &name) || !name) name = "an error without a name";
  if (c->error_text(error, &text) || !text) text = "no text";
  return moec_error(error == NO_MEMORY ? MOEC_OUT_OF_MEMORY : MOEC_DEVICE, "CUDA: %s: %s (%d): %s", what, name,
                    error, text);
}
