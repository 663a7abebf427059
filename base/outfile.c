#include "base/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

struct moec_outfile {
  int fd;
  char *path; /* where the file goes: symlinks resolved */
  char *temp; /* its name until it is whole; NULL: unnamed, or |path| is written directly */
  bool unnamed;
};

static moec_status *failed(const char *what, const char *path) {
  int error = errno;
  /* A folder that is not there, or is a file, is the user's mistake; the rest is the system's. */
  moec_code code =
      error == ENOENT || error == ENOTDIR || error == EISDIR ? MOEC_INVALID_ARGUMENT : MOEC_IO;
  return moec_error(code, "cannot %s %s: %s", what, path, strerror(error));
}

static void destroy(moec_outfile *f) {
  if (f->fd >= 0) close(f->fd);
  if (f->temp) unlink(f->temp);
  free(f->path);
  free(f->temp);
  free(f);
}

/* Where f->path lies, with its slash; empty: the current folder. */
static int folder_length(const moec_outfile *f) {
  const char *slash = strrchr(f->path, '/');
  return slash ? (int)(slash - f->path) + 1 : 0;
}

/* Gives f's file the name |temp|; -1 and errno: not done. */
typedef int (*name_fn)(moec_outfile *f, const char *temp, unsigned mode);

/* open() rather than mkstemp(): it applies the umask to |mode|. */
static int create_named(moec_outfile *f, const char *temp, unsigned mode) {
  return f->fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, (mode_t)mode);
}

static int name_unnamed(moec_outfile *f, const char *temp, unsigned mode) {
  char link[40];
  (void)mode;
  snprintf(link, sizeof link, "/proc/self/fd/%d", f->fd);
  return linkat(AT_FDCWD, link, AT_FDCWD, temp, AT_SYMLINK_FOLLOW);
}

/* A name beside f->path that nothing has. */
static moec_status *with_temp(moec_outfile *f, name_fn name, unsigned mode) {
  for (int attempt = 0; attempt < 100; attempt++) {
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) break;
    char *temp = NULL;
    if (asprintf(&temp, "%.*s.moec-%016" PRIx64, folder_length(f), f->path, random) < 0) {
      return moec_error(MOEC_OUT_OF_MEMORY, "out of memory");
    }
    if (name(f, temp, mode) >= 0) {
      f->temp = temp;
      return NULL;
    }
    free(temp);
    if (errno != EEXIST) break;
  }
  return failed("write", f->path);
}

/* Without a name where the file system can: nothing is left when the process is killed. */
static moec_status *open_temp(moec_outfile *f, unsigned mode) {
  char *folder = NULL;
  if (asprintf(&folder, "%.*s.", folder_length(f), f->path) < 0) return moec_error(MOEC_OUT_OF_MEMORY, "out of memory");
  f->fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, (mode_t)mode);
  free(folder);
  f->unnamed = f->fd >= 0;
  return f->unnamed ? NULL : with_temp(f, create_named, mode);
}

static moec_status *open_target(moec_outfile *f, unsigned mode) {
  struct stat st;
  if (stat(f->path, &st) == 0) {
    if (S_ISDIR(st.st_mode)) {
      return moec_error(MOEC_INVALID_ARGUMENT, "expected a file to write, got the folder %s",
                        f->path);
    }
    if (!S_ISREG(st.st_mode)) {
      f->fd = open(f->path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
      return f->fd < 0 ? failed("write", f->path) : NULL;
    }
    char *real = realpath(f->path, NULL);
    if (!real) return failed("write", f->path);
    free(f->path);
    f->path = real;
  }
  return open_temp(f, mode);
}

moec_status *moec_outfile_begin(const char *path, unsigned mode, moec_outfile **out) {
  *out = NULL;
  if (!path || !*path) {
    return moec_error(MOEC_INVALID_ARGUMENT, "expected the path of a file to write, got none");
  }
  moec_outfile *f = calloc(1, sizeof *f);
  if (!f) return moec_error(MOEC_OUT_OF_MEMORY, "out of memory");
  f->fd = -1;
  f->path = strdup(path);
  moec_status *s = f->path ? open_target(f, mode) : moec_error(MOEC_OUT_OF_MEMORY, "out of memory");
  if (s)
    destroy(f);
  else
    *out = f;
  return s;
}

moec_status *moec_outfile_write(moec_outfile *f, const void *data, size_t size) {
  const char *p = data;
  while (size) {
    ssize_t n = write(f->fd, p, size < 1u << 30 ? size : 1u << 30);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("write", f->path);
    p += n;
    size -= (size_t)n;
  }
  return NULL;
}

moec_status *moec_outfile_zeros(moec_outfile *f, uint64_t size) {
  static const char zeros[1 << 16];
  if (f->temp || f->unnamed) { /* a regular file of our own: what lies behind its end reads as zeros */
    off_t at = size > INT64_MAX ? -1 : lseek(f->fd, (off_t)size, SEEK_CUR);
    return at < 0 || ftruncate(f->fd, at) ? failed("write", f->path) : NULL;
  }
  while (size) {
    size_t n = size < sizeof zeros ? (size_t)size : sizeof zeros;
    MOEC_TRY(moec_outfile_write(f, zeros, n));
    size -= n;
  }
  return NULL;
}

moec_status *moec_outfile_commit(moec_outfile *f) {
  moec_status *s = NULL;
  if ((f->temp || f->unnamed) && fsync(f->fd)) s = failed("write", f->path);
  if (!s && f->unnamed) s = with_temp(f, name_unnamed, 0);
  if (!s && f->temp) {
    if (rename(f->temp, f->path))
      s = failed("write", f->path);
    else {
      free(f->temp);
      f->temp = NULL; /* nothing is left to remove */
    }
  }
  destroy(f);
  return s;
}

void moec_outfile_discard(moec_outfile *f) {
  if (f) destroy(f);
}

moec_status *moec_outfile_end(moec_outfile *f, moec_status *s) {
  if (!s) return moec_outfile_commit(f);
  moec_outfile_discard(f);
  return s;
}

moec_status *moec_write_file(const char *path, const void *data, size_t size, unsigned mode) {
  moec_outfile *f;
  MOEC_TRY(moec_outfile_begin(path, mode, &f));
  return moec_outfile_end(f, moec_outfile_write(f, data, size));
}
