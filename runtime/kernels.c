#include "runtime/kernels.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- the processor ----------------------------------------------------------------------- */

typedef struct feature {
  const char *name;
  bool present;
} feature;

/* __builtin_cpu_supports() wants a literal, so the table is made on the stack. Features that
 * come with these on every processor (lzcnt, movbe, f16c) are not asked for. */
#define FEATURE(name) \
  { name, __builtin_cpu_supports(name) != 0 }

static moec_status *check_features(const char *level, int version) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const feature features[][6] = {
      {{NULL, true}},
      {FEATURE("sse3"), FEATURE("ssse3"), FEATURE("sse4.1"), FEATURE("sse4.2"), FEATURE("popcnt")},
      {FEATURE("avx"), FEATURE("avx2"), FEATURE("bmi"), FEATURE("bmi2"), FEATURE("fma")},
      {FEATURE("avx512f"), FEATURE("avx512bw"), FEATURE("avx512cd"), FEATURE("avx512dq"),
       FEATURE("avx512vl")},
  };
  for (int v = 0; v < version; v++) {
    for (const feature *f = features[v]; f->name; f++) {
      if (!f->present) {
        return moec_error(MOEC_UNSUPPORTED,
                          "expected a processor of level %s, got one without %s: compile the model "
                          "for this machine",
                          level, f->name);
      }
    }
  }
  return NULL;
#else
  (void)version;
  return moec_error(MOEC_UNSUPPORTED, "expected a processor of level %s, got another kind", level);
#endif
}

moec_status *moec_rt_check_cpu(const char *level) {
  static const char *const levels[] = {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
  if (!*level) return NULL;
  for (int i = 0; i < 4; i++) {
    if (!strcmp(level, levels[i])) return check_features(level, i + 1);
  }
  return moec_error(MOEC_UNSUPPORTED,
                    "expected a processor level from x86-64 to x86-64-v4, got '%s'", level);
}

/* ---- the shared object ------------------------------------------------------------------- */

static moec_status *write_all(int fd, const uint8_t *bytes, size_t size) {
  while (size) {
    ssize_t n = write(fd, bytes, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return moec_error(MOEC_IO, "cannot copy the kernels: %s", strerror(errno));
    bytes += n;
    size -= (size_t)n;
  }
  return NULL;
}

static moec_status *open_object(const moec_rt_plan *p, moec_rt_kernels *k) {
  k->fd = memfd_create("moec-kernels", MFD_CLOEXEC);
  if (k->fd < 0) return moec_error(MOEC_IO, "cannot make room for kernels: %s", strerror(errno));
  MOEC_TRY(write_all(k->fd, p->kernel_object, (size_t)p->footer.kernels_size));
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", k->fd);
  k->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!k->handle) return moec_error(MOEC_INVALID_MODEL, "cannot load the kernels: %s", dlerror());
  return NULL;
}

static moec_status *find_kernels(const moec_rt_plan *p, moec_rt_kernels *k) {
  MOEC_TRY(MOEC_RT_NEW(p->mem, k->fn, p->n_kernels, "kernels"));
  for (uint32_t i = 0; i < p->n_kernels; i++) {
    const char *name = moec_rt_str(p, p->kernels[i].name);
    void *symbol = dlsym(k->handle, name);
    if (!symbol)
      return moec_error(MOEC_INVALID_MODEL, "expected a kernel named '%s', got none", name);
    memcpy(&k->fn[i], &symbol, sizeof symbol); /* ISO C has no cast from data to code */
  }
  return NULL;
}

moec_status *moec_rt_kernels_load(const moec_rt_plan *p, moec_rt_kernels *out) {
  *out = (moec_rt_kernels){.mem = p->mem, .fd = -1};
  if (!p->n_kernels) return NULL;
  moec_status *s = moec_rt_check_cpu(moec_rt_str(p, p->header->cpu));
  if (!s) s = open_object(p, out);
  if (!s) s = find_kernels(p, out);
  if (s) moec_rt_kernels_fini(out);
  return moec_context(s, "%s", p->file);
}

/* The descriptor stays open as long as the object is loaded: dlopen() knows objects by path, and
 * a second model whose descriptor got the same number would be given this model's kernels. */
void moec_rt_kernels_fini(moec_rt_kernels *k) {
  if (k->handle) dlclose(k->handle);
  if (k->handle || k->fd > 0) close(k->fd);
  moec_rt_free(k->mem, k->fn);
  *k = (moec_rt_kernels){.fd = -1};
}
