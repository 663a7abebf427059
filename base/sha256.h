/* The compression function of SHA-256, by which moec_sha256() of base/file.h chooses. */
#ifndef MOEC_BASE_SHA256_H
#define MOEC_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

/* Takes |n| blocks of 64 bytes into the state |h|. Thread-safe. */
typedef void moec_sha256_fn(uint32_t h[8], const uint8_t *blocks, size_t n);

/* On any processor. */
void moec_sha256_plain(uint32_t h[8], const uint8_t *blocks, size_t n);
/* By instructions that this processor has for it; NULL: it has none. */
moec_sha256_fn *moec_sha256_native(void);

#endif
