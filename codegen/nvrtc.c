#include "codegen/nvrtc.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The part of nvrtc.h that is used. A result of 0 is success. */
typedef struct nvrtc_program *program;
typedef struct nvrtc {
  void *library;
  int (*version)(int *major, int *minor);
  const char *(*error)(int result);
  int (*create)(program *p, const char *source, const char *name, int n, const char *const *headers,
                const char *const *names);
  int (*compile)(program p, int n, const char *const *options);
  int (*log_size)(program p, size_t *size);
  int (*log)(program p, char *log);
  int (*cubin_size)(program p, size_t *size);
  int (*cubin)(program p, char *cubin);
  int (*destroy)(program *p);
} nvrtc;

static moec_status *find_symbols(nvrtc *n, const char *file) {
  const struct {
    const char *name;
    void *slot;
  } symbols[] = {{"nvrtcVersion", &n->version},
                 {"nvrtcGetErrorString", &n->error},
                 {"nvrtcCreateProgram", &n->create},
                 {"nvrtcCompileProgram", &n->compile},
                 {"nvrtcGetProgramLogSize", &n->log_size},
                 {"nvrtcGetProgramLog", &n->log},
                 {"nvrtcGetCUBINSize", &n->cubin_size},
                 {"nvrtcGetCUBIN", &n->cubin},
                 {"nvrtcDestroyProgram", &n->destroy}};
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    void *f = dlsym(n->library, symbols[i].name);
    if (!f)
      return moec_error(MOEC_UNSUPPORTED, "%s: expected the function %s of NVRTC", file,
                        symbols[i].name);
    memcpy(symbols[i].slot, &f, sizeof f); /* ISO C has no cast from data to code */
  }
  return NULL;
}

/* It stays in memory once it was there: it keeps allocations that it frees at the end of the process, not when it is
 * unloaded. */
enum { HOW = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE };

static moec_status *load(nvrtc *n) {
  static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
  const char *given = getenv("MOEC_NVRTC"), *file = given;
  *n = (nvrtc){0};
  if (given && *given) {
    n->library = dlopen(given, HOW);
    if (!n->library)
      return moec_error(MOEC_UNSUPPORTED, "MOEC_NVRTC: cannot load NVRTC: %s", dlerror());
  }
  for (size_t i = 0; !n->library && i < sizeof names / sizeof *names; i++)
    n->library = dlopen(file = names[i], HOW);
  if (!n->library)
    return moec_error(MOEC_UNSUPPORTED,
                      "--target cuda: expected NVIDIA's run-time compiler libnvrtc.so.13 where the "
                      "loader finds it, or "
                      "its path in MOEC_NVRTC, got none");
  return find_symbols(n, file);
}

static moec_status *failed(const nvrtc *n, const char *what, int result) {
  return moec_error(MOEC_INTERNAL, "NVRTC: %s: %s", what, n->error(result));
}

/* What the compiler says of an emitted text that it refuses. */
static moec_status *refused(const nvrtc *n, program p) {
  size_t size = 0;
  if (n->log_size(p, &size) || size == 0)
    return MOEC_BUG("NVRTC failed on emitted kernels without a message");
  char *log = calloc(size + 1, 1);
  if (!log) return moec_error(MOEC_OUT_OF_MEMORY, "reading the messages of NVRTC");
  moec_status *s = n->log(p, log) ? failed(n, "messages", 0)
                                  : MOEC_BUG("NVRTC failed on emitted kernels: %.2000s", log);
  free(log);
  return s;
}

static moec_status *take(const nvrtc *n, program p, moec_buf *out) {
  size_t size = 0;
  int result = n->cubin_size(p, &size);
  if (result || size == 0) return failed(n, "cubin", result);
  char *cubin = malloc(size);
  if (!cubin) return moec_error(MOEC_OUT_OF_MEMORY, "reading a cubin of %zu bytes", size);
  result = n->cubin(p, cubin);
  if (!result) moec_buf_write(out, cubin, size);
  free(cubin);
  return result ? failed(n, "cubin", result) : NULL;
}

static moec_status *compile(const nvrtc *n, const char *source, const char *arch, moec_buf *out,
                            moec_buf *how) {
  char architecture[64];
  int major = 0, minor = 0;
  if (snprintf(architecture, sizeof architecture, "--gpu-architecture=%s", arch) >=
      (int)sizeof architecture)
    return moec_error(MOEC_INVALID_ARGUMENT, "--target cuda: got an architecture of a long name");
  const char *const options[] = {architecture, "--std=c++17", "--disable-warnings"};
  enum { N_OPTIONS = sizeof options / sizeof *options };
  program p = NULL;
  int result = n->version(&major, &minor);
  if (!result) result = n->create(&p, source, "kernels.cu", 0, NULL, NULL);
  if (result) return failed(n, "cannot begin", result);
  for (size_t i = 0; how && i < N_OPTIONS; i++) {
    if (i == 0) moec_buf_printf(how, "nvrtc %d.%d", major, minor);
    moec_buf_printf(how, " %s", options[i]);
  }
  moec_status *s = n->compile(p, N_OPTIONS, options) ? refused(n, p) : take(n, p, out);
  n->destroy(&p);
  return s;
}

moec_status *moec_nvrtc_cubin(const char *source, const char *arch, moec_buf *out, moec_buf *how) {
  nvrtc n;
  moec_status *s = load(&n);
  if (!s) s = compile(&n, source, arch, out, how);
  if (n.library) dlclose(n.library);
  return s;
}
