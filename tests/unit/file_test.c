#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/outfile.h"
#include "base/sha256.h"
#include "tests/unit/unit.h"

static void write_text(const char *dir, const char *name, const char *text) {
  char path[256];
  UNIT_OK(moec_write_file(unit_path(path, dir, name), text, strlen(text), 0644));
}

static size_t files_in(const char *dir) {
  size_t n = 0;
  DIR *d = opendir(dir);
  while (readdir(d)) n++;
  closedir(d);
  return n - 2; /* "." and ".." */
}

START_TEST(maps_user_files) {
  char *dir = unit_folder(), path[256], link[256];
  moec_map m;
  write_text(dir, "a", "hello");
  UNIT_OK(moec_map_user_file(unit_path(path, dir, "a"), &m));
  ck_assert(m.size == 5 && !memcmp(m.data, "hello", 5));
  moec_unmap(&m);
  moec_unmap(&m);
  ck_assert_int_eq(symlink("a", unit_path(link, dir, "l")), 0);
  UNIT_OK(moec_map_user_file(link, &m));
  moec_unmap(&m);
  write_text(dir, "empty", "");
  UNIT_OK(moec_map_user_file(unit_path(path, dir, "empty"), &m));
  ck_assert(m.size == 0 && !m.data);
  moec_unmap(&m);
  unit_remove(dir);
}
END_TEST

START_TEST(refuses_user_files_that_are_none) {
  char *dir = unit_folder(), path[256];
  moec_map m;
  UNIT_FAILS(moec_map_user_file("", &m), MOEC_INVALID_ARGUMENT, "none");
  UNIT_FAILS(moec_map_user_file(NULL, &m), MOEC_INVALID_ARGUMENT, "none");
  UNIT_FAILS(moec_map_user_file(dir, &m), MOEC_INVALID_ARGUMENT, "a folder");
  UNIT_FAILS(moec_map_user_file("/dev/null", &m), MOEC_INVALID_ARGUMENT, "a device");
  UNIT_FAILS(moec_map_user_file(unit_path(path, dir, "none"), &m), MOEC_INVALID_ARGUMENT, path);
  ck_assert_int_eq(mkfifo(unit_path(path, dir, "pipe"), 0600), 0);
  UNIT_FAILS(moec_map_user_file(path, &m), MOEC_INVALID_ARGUMENT, "pipe");
  unit_remove(dir);
}
END_TEST

START_TEST(maps_inner_files) {
  char *dir = unit_folder(), path[256];
  moec_map m;
  ck_assert_int_eq(mkdir(unit_path(path, dir, "sub"), 0755), 0);
  write_text(dir, "sub/w.bin", "w");
  write_text(dir, "..w", "dots");
  static const char *const good[] = {"sub/w.bin", "./sub/w.bin", "sub/./w.bin", "..w"};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    UNIT_OK(moec_map_inner_file(dir, good[i], &m));
    moec_unmap(&m);
  }
  unit_remove(dir);
}
END_TEST

START_TEST(refuses_inner_paths_by_their_text) {
  char *dir = unit_folder();
  moec_map m;
  write_text(dir, "w", "w");
  static const char *const bad[] = {"",     "/w",     "/etc/passwd", "..",  "../w",
                                    "w/..", "a/../w", "a//w",        "w/",  "//",
                                    "./",   "a/..",   "./../w",      "w//", "a/b/../../../w"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    UNIT_FAILS(moec_map_inner_file(dir, bad[i], &m), MOEC_INVALID_MODEL, "inside the model's");
  }
  char longer[5000];
  memset(longer, 'x', sizeof longer - 1);
  longer[sizeof longer - 1] = 0;
  UNIT_FAILS(moec_map_inner_file(dir, longer, &m), MOEC_INVALID_MODEL, "255");
  UNIT_FAILS(moec_map_inner_file("/nowhere", "w", &m), MOEC_INVALID_ARGUMENT, "/nowhere");
  UNIT_FAILS(moec_map_inner_file(dir, "none", &m), MOEC_INVALID_MODEL, "none");
  UNIT_FAILS(moec_map_inner_file(dir, "w/x", &m), MOEC_INVALID_MODEL, "w/x");
  UNIT_FAILS(moec_map_inner_file(dir, ".", &m), MOEC_INVALID_MODEL, "a folder");
  unit_remove(dir);
}
END_TEST

START_TEST(refuses_inner_files_that_lead_elsewhere) {
  char *dir = unit_folder(), path[256], other[256];
  moec_map m;
  write_text(dir, "w", "w");
  ck_assert_int_eq(symlink("w", unit_path(path, dir, "link")), 0);
  UNIT_FAILS(moec_map_inner_file(dir, "link", &m), MOEC_INVALID_MODEL, "link");
  ck_assert_int_eq(symlink("/etc", unit_path(path, dir, "etc")), 0);
  UNIT_FAILS(moec_map_inner_file(dir, "etc/passwd", &m), MOEC_INVALID_MODEL, "link");
  ck_assert_int_eq(symlink(".", unit_path(path, dir, "here")), 0);
  UNIT_FAILS(moec_map_inner_file(dir, "here/w", &m), MOEC_INVALID_MODEL, "link");
  ck_assert_int_eq(mkfifo(unit_path(path, dir, "pipe"), 0600), 0);
  UNIT_FAILS(moec_map_inner_file(dir, "pipe", &m), MOEC_INVALID_MODEL, "pipe");
  ck_assert_int_eq(link(unit_path(path, dir, "w"), unit_path(other, dir, "hard")), 0);
  UNIT_FAILS(moec_map_inner_file(dir, "w", &m), MOEC_INVALID_MODEL, "hard link");
  unit_remove(dir);
}
END_TEST

START_TEST(writes_whole_files) {
  char *dir = unit_folder(), path[256];
  struct stat st;
  mode_t mask = umask(022);
  unit_path(path, dir, "exe");
  UNIT_OK(moec_write_file(path, "one", 3, 0644));
  UNIT_OK(moec_write_file(path, "three", 5, 0755));
  ck_assert(stat(path, &st) == 0 && st.st_size == 5 && (st.st_mode & 0777) == 0755);
  ck_assert_uint_eq(files_in(dir), 1);
  umask(mask);
  unit_remove(dir);
}
END_TEST

START_TEST(discarded_file_leaves_the_old_one) {
  char *dir = unit_folder(), path[256];
  moec_outfile *f;
  moec_map m;
  write_text(dir, "a", "old");
  unit_path(path, dir, "a");
  UNIT_OK(moec_outfile_begin(path, 0644, &f));
  UNIT_OK(moec_outfile_write(f, "new", 3));
  UNIT_FAILS(moec_outfile_end(f, moec_error(MOEC_IO, "stop")), MOEC_IO, "stop");
  UNIT_OK(moec_map_user_file(path, &m));
  ck_assert(m.size == 3 && !memcmp(m.data, "old", 3));
  moec_unmap(&m);
  ck_assert_uint_eq(files_in(dir), 1);
  moec_outfile_discard(NULL);
  unit_remove(dir);
}
END_TEST

/* A process that ends at once, as when it is killed. */
START_TEST(interrupted_write_leaves_nothing) {
  char *dir = unit_folder(), path[256];
  int probe = open(dir, O_TMPFILE | O_WRONLY, 0600), state = 0;
  if (probe >= 0) { /* elsewhere a temporary name stays */
    pid_t child = fork();
    if (child == 0) {
      moec_outfile *f = NULL;
      moec_status *s = moec_outfile_begin(unit_path(path, dir, "a"), 0644, &f);
      if (!s) s = moec_outfile_write(f, "half", 4);
      _exit(s != NULL);
    }
    ck_assert_int_eq(waitpid(child, &state, 0), child);
    ck_assert_int_eq(state, 0);
    ck_assert_uint_eq(files_in(dir), 0);
    close(probe);
  }
  unit_remove(dir);
}
END_TEST

START_TEST(writes_through_links_and_devices) {
  char *dir = unit_folder(), path[256];
  struct stat st;
  write_text(dir, "a", "old");
  ck_assert_int_eq(symlink("a", unit_path(path, dir, "l")), 0);
  write_text(dir, "l", "newer");
  ck_assert(lstat(path, &st) == 0 && S_ISLNK(st.st_mode));
  ck_assert(stat(unit_path(path, dir, "a"), &st) == 0 && st.st_size == 5);
  UNIT_OK(moec_write_file("/dev/null", "x", 1, 0644));
  ck_assert(stat("/dev/null", &st) == 0 && S_ISCHR(st.st_mode));
  UNIT_FAILS(moec_write_file("/dev/full", "x", 1, 0644), MOEC_IO, "/dev/full");
  unit_remove(dir);
}
END_TEST

START_TEST(refuses_places_to_write) {
  char *dir = unit_folder(), path[256];
  UNIT_FAILS(moec_write_file(dir, "x", 1, 0644), MOEC_INVALID_ARGUMENT, "folder");
  UNIT_FAILS(moec_write_file("", "x", 1, 0644), MOEC_INVALID_ARGUMENT, "none");
  UNIT_FAILS(moec_write_file(unit_path(path, dir, "no/x"), "x", 1, 0644), MOEC_INVALID_ARGUMENT,
             "no/x");
  ck_assert_uint_eq(files_in(dir), 0);
  unit_remove(dir);
}
END_TEST

START_TEST(sha256_of_known_texts) {
  char hex[65], *many = malloc(1000000);
  moec_sha256_hex(NULL, 0, hex);
  ck_assert_str_eq(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  moec_sha256_hex("abc", 3, hex);
  ck_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  moec_sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, hex);
  ck_assert_str_eq(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  memset(many, 'a', 1000000);
  moec_sha256_hex(many, 1000000, hex);
  ck_assert_str_eq(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  free(many);
}
END_TEST

/* Both ways to take blocks, where this processor has both, agree on every number of them. */
START_TEST(sha256_native_and_plain) {
  moec_sha256_fn *native = moec_sha256_native();
  uint8_t blocks[9 * 64];
  for (size_t i = 0; i < sizeof blocks; i++) blocks[i] = (uint8_t)(i * i * 7 + i / 3);
  for (size_t n = 0; native && n <= 9; n++) {
    uint32_t a[8] = {1, 2, 3, 4, 0x80000000, 6, 0xffffffff, 8}, b[8];
    memcpy(b, a, sizeof b);
    moec_sha256_plain(a, blocks, n);
    native(b, blocks, n);
    ck_assert_mem_eq(a, b, sizeof a);
  }
  uint32_t abc[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  moec_sha256_plain(abc, (const uint8_t[64]){'a', 'b', 'c', 0x80, [63] = 24}, 1);
  ck_assert_uint_eq(abc[0], 0xba7816bf);
  ck_assert_uint_eq(abc[7], 0xf20015ad);
}
END_TEST

static void digest_of(const char *path, int threads, char hex[65]) {
  moec_map m;
  uint8_t raw[32];
  UNIT_OK(moec_map_user_file(path, &m));
  UNIT_OK(moec_map_digest(&m, threads, raw));
  for (int i = 0; i < 32; i++) sprintf(hex + 2 * i, "%02x", raw[i]);
  moec_unmap(&m);
}

/* Nine blocks and a bit: as a file of holes but for a few bytes in block 2 and at the end, and written in full. */
START_TEST(digest_of_blocks_and_holes) {
  enum { BLOCK = 1 << 22, SIZE = 9 * BLOCK + 5 };
  char *dir = unit_folder(), path[256], one[65], many[65], full[65], want[65];
  uint8_t *bytes = calloc(1, SIZE), sums[10][32];
  memcpy(bytes + 2 * BLOCK + 77, "abc", 3);
  bytes[SIZE - 1] = 9;
  for (size_t i = 0; i < 10; i++) moec_sha256(bytes + i * BLOCK, i < 9 ? BLOCK : 5, sums[i]);
  moec_sha256_hex(sums, sizeof sums, want);

  int fd = open(unit_path(path, dir, "holes"), O_WRONLY | O_CREAT, 0644);
  ck_assert_int_eq(pwrite(fd, "abc", 3, 2 * BLOCK + 77), 3);
  ck_assert_int_eq(pwrite(fd, "\x09", 1, SIZE - 1), 1);
  close(fd);
  digest_of(path, 1, one);
  digest_of(path, 3, many);
  UNIT_OK(moec_write_file(unit_path(path, dir, "full"), bytes, SIZE, 0644));
  digest_of(path, 3, full);
  ck_assert_str_eq(one, want);
  ck_assert_str_eq(many, want);
  ck_assert_str_eq(full, want);

  UNIT_OK(moec_write_file(unit_path(path, dir, "empty"), "", 0, 0644));
  digest_of(path, 2, one);
  moec_sha256_hex(NULL, 0, want);
  ck_assert_str_eq(one, want);
  free(bytes);
  unit_remove(dir);
}
END_TEST

/* Pages of a file can be read again; those of other memory can't. */
START_TEST(digest_of_memory_leaves_it) {
  size_t size = 3 * (size_t)sysconf(_SC_PAGESIZE);
  uint8_t *bytes = aligned_alloc(size / 3, size), first[32], second[32];
  memset(bytes, 7, size);
  UNIT_OK(moec_map_digest(&(moec_map){.data = bytes, .size = size}, 1, first));
  UNIT_OK(moec_map_digest(&(moec_map){.data = bytes, .size = size}, 1, second));
  ck_assert_mem_eq(first, second, sizeof first);
  ck_assert(bytes[0] == 7 && bytes[size - 1] == 7);
  free(bytes);
}
END_TEST

START_TEST(fnv1a_of_known_texts) {
  ck_assert_uint_eq(moec_hash(MOEC_HASH_SEED, "", 0), 0xcbf29ce484222325u);
  ck_assert_uint_eq(moec_hash(MOEC_HASH_SEED, "foobar", 6), 0x85944171f73967e8u);
  ck_assert_uint_eq(moec_hash(moec_hash(MOEC_HASH_SEED, "foo", 3), "bar", 3), 0x85944171f73967e8u);
}
END_TEST

UNIT_MAIN("file", maps_user_files, interrupted_write_leaves_nothing, refuses_user_files_that_are_none, maps_inner_files,
          refuses_inner_paths_by_their_text, refuses_inner_files_that_lead_elsewhere,
          writes_whole_files, discarded_file_leaves_the_old_one, writes_through_links_and_devices,
          refuses_places_to_write, sha256_of_known_texts, sha256_native_and_plain, digest_of_blocks_and_holes,
          digest_of_memory_leaves_it, fnv1a_of_known_texts)
