#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISREG(mode)) return "a regular file";
  return "a device, pipe or socket";
}

/* Notes what a sparse file has besides holes. Without memory or the system's help: nothing. */
static void find_extents(int fd, moec_map *m) {
  off_t size = (off_t)m->size, at = 0;
  size_t capacity = 0;
  if (lseek(fd, 0, SEEK_HOLE) >= size) return; /* there is always one behind the end */
  while (at >= 0 && at < size && (at = lseek(fd, at, SEEK_DATA)) >= 0) {
    off_t end = lseek(fd, at, SEEK_HOLE);
    if (m->n_extents == capacity) {
      capacity = capacity ? 2 * capacity : 64;
      moec_extent *more = reallocarray(m->extents, capacity, sizeof *more);
      if (!more) break;
      m->extents = more;
    }
    m->extents[m->n_extents++] = (moec_extent){(size_t)at, (size_t)end};
    at = end;
  }
  if (at >= size || (at < 0 && errno == ENXIO)) return; /* ENXIO: a hole up to the end */
  free(m->extents);
  m->extents = NULL;
  m->n_extents = 0;
}

/* Maps the open file |fd| and closes it. |inner|: the path came from a file. */
static moec_status *map_fd(int fd, const char *path, bool inner, moec_map *out) {
  moec_code code = inner ? MOEC_INVALID_MODEL : MOEC_INVALID_ARGUMENT;
  moec_status *s = NULL;
  struct stat st;
  if (fstat(fd, &st)) {
    s = moec_error(MOEC_IO, "cannot examine %s: %s", path, strerror(errno));
  } else if (!S_ISREG(st.st_mode)) {
    s = moec_error(code, "expected a regular file, got %s: %s", kind_of(st.st_mode), path);
  } else if (inner && st.st_nlink != 1) {
    s = moec_error(code, "expected a file with one hard link, got %ju: %s", (uintmax_t)st.st_nlink,
                   path);
  } else {
    out->device = st.st_dev;
    out->inode = st.st_ino;
  }
  if (!s && st.st_size > 0) {
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) {
      s = moec_error(MOEC_IO, "cannot map %s: %s", path, strerror(errno));
    } else {
      out->data = p;
      out->size = (size_t)st.st_size;
      find_extents(fd, out);
    }
  }
  close(fd);
  return s;
}

moec_status *moec_map_user_file(const char *path, moec_map *out) {
  *out = (moec_map){0};
  if (!path || !*path) return moec_error(MOEC_INVALID_ARGUMENT, "expected a path, got none");
  /* O_NONBLOCK: opening a pipe must not wait for a writer. */
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) {
    moec_code code = errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG || errno == ELOOP
                         ? MOEC_INVALID_ARGUMENT
                         : MOEC_IO;
    return moec_error(code, "cannot open %s: %s", path, strerror(errno));
  }
  return map_fd(fd, path, false, out);
}

/* Checks the text of an inner path; what remains are plain names, "." and single slashes. */
static moec_status *check_inner(const char *rel) {
  const char *wrong = NULL;
  if (!*rel)
    wrong = "an empty one";
  else if (*rel == '/')
    wrong = "an absolute one";
  for (const char *p = rel; *p && !wrong;) {
    size_t n = strcspn(p, "/");
    if (n == 0)
      wrong = "an empty component";
    else if (n == 2 && p[0] == '.' && p[1] == '.')
      wrong = "a '..' component";
    else if (n > 255)
      wrong = "a component of more than 255 bytes";
    p += n;
    if (*p == '/' && !*++p) wrong = "an empty component";
  }
  if (!wrong) return NULL;
  return moec_error(MOEC_INVALID_MODEL,
                    "expected a path inside the model's folder, got %s: '%.200s'", wrong, rel);
}

/* Why openat() of |name| in |fd| failed, as a status. */
static moec_status *open_failed(int fd, const char *name, const char *dir, const char *rel) {
  int error = errno;
  struct stat st;
  if (!fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISLNK(st.st_mode)) {
    return moec_error(MOEC_INVALID_MODEL,
                      "expected a path without symbolic links, got the link '%s' in %s/%s", name,
                      dir, rel);
  }
  moec_code code = error == ENOENT || error == ENOTDIR ? MOEC_INVALID_MODEL : MOEC_IO;
  return moec_error(code, "cannot open %s/%s: %s", dir, rel, strerror(error));
}

moec_status *moec_map_inner_file(const char *dir, const char *rel, moec_map *out) {
  *out = (moec_map){0};
  if (!dir || !*dir) dir = ".";
  if (!rel) return moec_error(MOEC_INVALID_ARGUMENT, "expected a path, got none");
  MOEC_TRY(check_inner(rel));
  int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    return moec_error(MOEC_INVALID_ARGUMENT, "cannot open the folder %s: %s", dir, strerror(errno));
  }
  for (const char *p = rel;;) {
    char name[256];
    size_t n = strcspn(p, "/");
    memcpy(name, p, n); /* at most 255: check_inner() saw to it */
    name[n] = 0;
    bool last = !p[n];
    int how = last ? O_RDONLY | O_NONBLOCK | O_NOCTTY : O_PATH | O_DIRECTORY;
    int next = openat(fd, name, how | O_NOFOLLOW | O_CLOEXEC);
    moec_status *s = next < 0 ? open_failed(fd, name, dir, rel) : NULL;
    close(fd);
    if (s) return s;
    fd = next;
    if (last) break;
    p += n + 1;
  }
  return moec_context(map_fd(fd, rel, true, out), "%s", dir);
}

void moec_unmap(moec_map *m) {
  if (m->data) munmap((void *)(uintptr_t)m->data, m->size);
  free(m->extents);
  *m = (moec_map){0};
}
