/* Import, compile and inspect of a model in its real size: its 48 layers are calls, not copies, so they take little
 * memory and few seconds, whatever the weights weigh (57 GiB, here holes of a sparse file). Processor time and the
 * peak of memory are bounded: others may keep the machine busy. */
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/unit/unit.h"

#if defined(__SANITIZE_ADDRESS__)
enum { SLOWER = 10 }; /* and larger: memory that was freed is kept a while */
#else
enum { SLOWER = 1 };
#endif

/* Runs moec with these arguments, the last NULL: at most so many seconds of processor time and MiB of memory. */
static void bounded(double seconds, long mebibytes, ...) {
  const char *moec = getenv("MOEC");
  char *argv[12] = {(char *)(uintptr_t)(moec ? moec : "build/release/moec")};
  struct rusage used;
  int status;
  va_list args;
  va_start(args, mebibytes);
  for (int i = 1; i < 11 && (argv[i] = va_arg(args, char *)); i++) {}
  va_end(args);
  pid_t child = fork();
  if (child == 0) {
    execv(argv[0], argv);
    _exit(127);
  }
  ck_assert_int_eq(wait4(child, &status, 0, &used), child);
  ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "moec %s failed", argv[1]);
  double time = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
  printf("moec %s: %.2f s of processor time, %ld MiB\n", argv[1], time, used.ru_maxrss / 1024);
  ck_assert_msg(time < seconds * SLOWER && used.ru_maxrss / 1024 < mebibytes * SLOWER,
                "moec %s: expected at most %g s and %ld MiB, got %g s and %ld MiB", argv[1], seconds * SLOWER,
                mebibytes * SLOWER, time, used.ru_maxrss / 1024);
}

static void same_files(const char *a, const char *b, const char *word) {
  moec_map x, y;
  UNIT_OK(moec_map_user_file(a, &x));
  UNIT_OK(moec_map_user_file(b, &y));
  ck_assert_uint_eq(x.size, y.size);
  ck_assert(memcmp(x.data, y.data, x.size) == 0);
  ck_assert(memmem(x.data, x.size, word, strlen(word)));
  moec_unmap(&x);
  moec_unmap(&y);
}

START_TEST(real_size_with_holes_for_weights) {
  char *dir = unit_folder(), model[256], exe[256], of_model[256], of_exe[256], weights[256];
  struct stat info;
  unit_path(model, dir, "m.onnx");
  unit_path(exe, dir, "m");
  bounded(2, 100, "import", "models/configs/qwen3-30b-a3b", "-o", model, "--init", "zeros", NULL);
  ck_assert_int_eq(stat(unit_path(weights, dir, "m.safetensors"), &info), 0);
  ck_assert_int_gt(info.st_size, 61000000000);
  if (info.st_blocks > 1 << 18) { /* this file system has no holes */
    unit_remove(dir);
    exit(77);
  }
  bounded(30, 400, "compile", model, "-o", exe, NULL);
  bounded(5, 200, "inspect", model, "-o", unit_path(of_model, dir, "of-model"), NULL);
  bounded(5, 200, "inspect", exe, "-o", unit_path(of_exe, dir, "of-exe"), NULL);
  same_files(of_model, of_exe, "A x48");
  unit_remove(dir);
}
END_TEST

UNIT_MAIN("size", real_size_with_holes_for_weights)
