/* Opening, mapping and writing files: the one place where paths meet the system. */
#ifndef MOEC_BASE_FILE_H
#define MOEC_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct moec_extent {
  size_t begin, end;
} moec_extent;

/* A read-only mapping of a whole regular file; or other memory, with nothing but |data| and |size|, which only
 * moec_map_digest() takes. */
typedef struct moec_map {
  const uint8_t *data; /* NULL when size is 0 */
  size_t size;
  uint64_t device, inode; /* which file it is; 0: none was opened */
  moec_extent *extents;   /* of a sparse file: what is not a hole; NULL: the file has none */
  size_t n_extents;
} moec_map;

/* A path the user named: symlinks are followed; must be a regular file. A file that another
 * process cuts short while it is mapped raises SIGBUS on access. */
moec_status *moec_map_user_file(const char *path, moec_map *out) MOEC_MUST_USE;

/* A path named inside a file: relative to |dir|, no absolute path, no "..", no empty
 * component, no symlink in any component, a regular file with one hard link. Every component
 * is opened by itself with O_NOFOLLOW, so the file stays below |dir| whatever happens to the
 * folders meanwhile. This is the only function that opens such paths. |dir| itself is the
 * user's: its symlinks are followed. */
moec_status *moec_map_inner_file(const char *dir, const char *rel, moec_map *out) MOEC_MUST_USE;
void moec_unmap(moec_map *m);

/* Writes |size| bytes as |path|, whole or not at all: see base/outfile.h. */
moec_status *moec_write_file(const char *path, const void *data, size_t size,
                             unsigned mode) MOEC_MUST_USE;

/* SHA-256: the 32 bytes, or 64 hex digits and a NUL. */
void moec_sha256(const void *data, size_t size, uint8_t out[32]);
void moec_sha256_hex(const void *data, size_t size, char out[65]);
/* The digest by which a large file is known: SHA-256 over the SHA-256s of its blocks of 4 MiB. On |threads| threads, at
 * least 1. Pages of a file that were read are given back to the system. */
moec_status *moec_map_digest(const moec_map *m, int threads, uint8_t out[32]) MOEC_MUST_USE;
/* A 64-bit FNV-1a hash, for tables and structural hashes; start with MOEC_HASH_SEED. */
#define MOEC_HASH_SEED 14695981039346656037ull
uint64_t moec_hash(uint64_t seed, const void *data, size_t size);

#endif
