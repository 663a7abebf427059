/* The system's C compiler as a child process. */
#include "codegen/cc.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"

extern char **environ;

const char *moec_cc_cpu(void) {
#if defined(__x86_64__)
  return "x86-64-v3";
#else
  return "baseline";
#endif
}

/* -fopenmp-simd obeys the simd pragmas of the kernels, reductions included, without -ffast-math;
 * math functions neither set errno nor trap, which is what lets them vectorise. */
static const char *const flags[] = {
    "-x", "c", "-std=gnu17", "-O3", "-fPIC", "-shared", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math",
    "-ffp-contract=fast", "-fno-ident", "-w", "-Wl,--build-id=none", "-Wl,-z,noexecstack",
#if defined(__x86_64__)
    "-march=x86-64-v3", "-mtune=generic",
#endif
    "-o", "kernels.so", "kernels.c", "-lm",
};
enum { N_FLAGS = sizeof flags / sizeof *flags };

/* Runs |argv| in |dir| with its messages going to messages.txt there. */
static moec_status *run(const char *dir, char *const *argv) {
  posix_spawn_file_actions_t actions;
  pid_t pid;
  int state = 0;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, dir);
  posix_spawn_file_actions_addopen(&actions, 2, "messages.txt", O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 2, 1);
  int err = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (err)
    return moec_error(MOEC_IO, "cannot run the C compiler \"%s\": %s (install one or set CC)", argv[0], strerror(err));
  while (waitpid(pid, &state, 0) < 0)
    if (errno != EINTR) return moec_error(MOEC_IO, "waiting for the C compiler: %s", strerror(errno));
  if (WIFEXITED(state) && WEXITSTATUS(state) == 0) return NULL;
  moec_map text = {0};
  char path[4200];
  snprintf(path, sizeof path, "%s/messages.txt", dir);
  moec_status_free(moec_map_user_file(path, &text));
  int n = text.size > 2000 ? 2000 : (int)text.size;
  moec_status *s = MOEC_BUG("the C compiler \"%s\" failed on emitted kernels: %.*s", argv[0], n,
                            text.data ? (const char *)text.data : "");
  moec_unmap(&text);
  return s;
}

static moec_status *compile_in(const char *dir, const char *source, moec_buf *out) {
  char path[4200];
  char *argv[N_FLAGS + 2];
  const char *cc = getenv("CC");
  argv[0] = (char *)(uintptr_t)(cc && *cc ? cc : "cc");
  for (size_t i = 0; i < N_FLAGS; i++) argv[i + 1] = (char *)(uintptr_t)flags[i];
  argv[N_FLAGS + 1] = NULL;
  snprintf(path, sizeof path, "%s/kernels.c", dir);
  MOEC_TRY(moec_write_file(path, source, strlen(source), 0644));
  MOEC_TRY(run(dir, argv));
  moec_map so;
  snprintf(path, sizeof path, "%s/kernels.so", dir);
  MOEC_TRY(moec_map_user_file(path, &so));
  moec_buf_write(out, so.data, so.size);
  moec_unmap(&so);
  return NULL;
}

moec_status *moec_cc_shared(const char *source, moec_buf *out) {
  const char *tmp = getenv("TMPDIR");
  char dir[4096], path[4200];
  if (snprintf(dir, sizeof dir, "%s/moec-XXXXXX", tmp && *tmp ? tmp : "/tmp") >= (int)sizeof dir)
    return moec_error(MOEC_INVALID_ARGUMENT, "TMPDIR is too long");
  if (!mkdtemp(dir)) return moec_error(MOEC_IO, "cannot make a temporary folder \"%s\": %s", dir, strerror(errno));
  moec_status *s = compile_in(dir, source, out);
  static const char *const files[] = {"kernels.c", "kernels.so", "messages.txt"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    snprintf(path, sizeof path, "%s/%s", dir, files[i]);
    unlink(path);
  }
  rmdir(dir);
  return s;
}
