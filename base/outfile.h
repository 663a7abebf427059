/* Writing a file piece by piece so that it appears whole or not at all: the bytes go to a
 * file in the same folder without a name, or with a temporary one, which is renamed on commit. Until then, and after
 * any error, |path| is as it was. A symlink at |path| is followed; a device, pipe or socket
 * there (/dev/stdout) is written directly. Thread-compatible. */
#ifndef MOEC_BASE_OUTFILE_H
#define MOEC_BASE_OUTFILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct moec_outfile moec_outfile;

/* |mode|: 0644 or 0755, less the process's umask. */
moec_status *moec_outfile_begin(const char *path, unsigned mode, moec_outfile **out) MOEC_MUST_USE;
moec_status *moec_outfile_write(moec_outfile *f, const void *data, size_t size) MOEC_MUST_USE;
/* |size| zeros; a hole, which takes no place on the disk, where the file system has them. */
moec_status *moec_outfile_zeros(moec_outfile *f, uint64_t size) MOEC_MUST_USE;
/* Both end |f|. Commit returns once the bytes are on the disk. */
moec_status *moec_outfile_commit(moec_outfile *f) MOEC_MUST_USE;
void moec_outfile_discard(moec_outfile *f); /* NULL is fine */

/* The common end of a writer: commits when |s| is NULL, else discards and returns |s|. */
moec_status *moec_outfile_end(moec_outfile *f, moec_status *s) MOEC_MUST_USE;

#endif
