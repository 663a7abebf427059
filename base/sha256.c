/* SHA-256 (FIPS 180-4). Weights of tens of gigabytes go through here: where the processor has instructions for the
 * rounds, they do about 2 GB/s, the plain loop a fifth of that. */
#include "base/sha256.h"

#include <string.h>

#include "base/file.h"

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

/* ---- any processor ------------------------------------------------------------------------ */

static inline uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

static inline uint32_t load(const uint8_t *p) {
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Word |i| of the schedule; |w| holds the last 16 of them. */
static inline uint32_t next_word(uint32_t w[16], int i) {
  uint32_t a = w[(i + 1) % 16], b = w[(i + 14) % 16];
  w[i % 16] += w[(i + 9) % 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
  return w[i % 16];
}

/* Round |i|: unrolled, no value moves, only the roles of the eight state words turn. */
#define AT(k) s[((k) - i) & 7]
static inline void one_round(uint32_t s[8], int i, uint32_t word) {
  uint32_t t = AT(7) + (rotate(AT(4), 6) ^ rotate(AT(4), 11) ^ rotate(AT(4), 25)) +
               (AT(6) ^ (AT(4) & (AT(5) ^ AT(6)))) + round_constants[i] + word;
  AT(3) += t;
  AT(7) =
      t + (rotate(AT(0), 2) ^ rotate(AT(0), 13) ^ rotate(AT(0), 22)) + ((AT(0) & AT(1)) | (AT(2) & (AT(0) | AT(1))));
}
#undef AT

void moec_sha256_plain(uint32_t h[8], const uint8_t *blocks, size_t n) {
  for (; n; n--, blocks += 64) {
    uint32_t w[16], s[8];
    memcpy(s, h, sizeof s);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) one_round(s, i, w[i] = load(blocks + 4 * i));
#pragma GCC unroll 48
    for (int i = 16; i < 64; i++) one_round(s, i, next_word(w, i));
    for (int i = 0; i < 8; i++) h[i] += s[i];
  }
}

/* ---- x86-64 with the SHA extensions --------------------------------------------------------- */

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

/* The instructions want the state as words (f, e, b, a) and (h, g, d, c), lowest first, and do two rounds each. */
__attribute__((target("sha,sse4.1"))) static void native(uint32_t h[8], const uint8_t *blocks, size_t n) {
  const __m128i big_endian = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
  const __m128i *k = (const __m128i *)(const void *)round_constants;
  __m128i low = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)h), 0xb1);        /* b a d c */
  __m128i high = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)(h + 4)), 0x1b); /* h g f e */
  __m128i abef = _mm_alignr_epi8(low, high, 8), cdgh = _mm_blend_epi16(high, low, 0xf0);
  for (; n; n--, blocks += 64) {
    __m128i w[4], a = abef, c = cdgh;
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) { /* four rounds and the four words they take */
      __m128i *next = &w[i % 4], *last = &w[(i + 3) % 4];
      if (i < 4) {
        *next = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(blocks + 16 * i)), big_endian);
      } else {
        __m128i sum =
            _mm_add_epi32(_mm_sha256msg1_epu32(*next, w[(i + 1) % 4]), _mm_alignr_epi8(*last, w[(i + 2) % 4], 4));
        *next = _mm_sha256msg2_epu32(sum, *last);
      }
      __m128i x = _mm_add_epi32(*next, _mm_loadu_si128(k + i));
      c = _mm_sha256rnds2_epu32(c, a, x);
      a = _mm_sha256rnds2_epu32(a, c, _mm_shuffle_epi32(x, 0x0e));
    }
    abef = _mm_add_epi32(abef, a);
    cdgh = _mm_add_epi32(cdgh, c);
  }
  low = _mm_shuffle_epi32(abef, 0x1b);  /* a b e f */
  high = _mm_shuffle_epi32(cdgh, 0xb1); /* g h c d */
  _mm_storeu_si128((__m128i *)(void *)h, _mm_blend_epi16(low, high, 0xf0));
  _mm_storeu_si128((__m128i *)(void *)(h + 4), _mm_alignr_epi8(high, low, 8));
}

moec_sha256_fn *moec_sha256_native(void) {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSE4_1) || !(c & bit_SSSE3)) return NULL;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA) ? native : NULL;
}
#else
moec_sha256_fn *moec_sha256_native(void) { return NULL; }
#endif

/* ---- whole messages ------------------------------------------------------------------------- */

void moec_sha256(const void *data, size_t size, uint8_t out[32]) {
  uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                   0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  moec_sha256_fn *take = moec_sha256_native();
  if (!take) take = moec_sha256_plain;
  size_t left = size % 64;
  take(h, data, size / 64);
  /* The rest, a one bit, zeros and the length in bits fill one or two last blocks. */
  uint8_t tail[128] = {0};
  if (left) memcpy(tail, (const uint8_t *)data + (size - left), left);
  tail[left] = 0x80;
  size_t end = left < 56 ? 64 : 128;
  uint64_t bits = (uint64_t)size * 8;
  for (size_t i = 0; i < 8; i++) tail[end - 1 - i] = (uint8_t)(bits >> 8 * i);
  take(h, tail, end / 64);
  for (size_t i = 0; i < 32; i++) out[i] = (uint8_t)(h[i / 4] >> (24 - i % 4 * 8));
}

void moec_sha256_hex(const void *data, size_t size, char out[65]) {
  uint8_t raw[32];
  moec_sha256(data, size, raw);
  for (size_t i = 0; i < 64; i++) out[i] = "0123456789abcdef"[raw[i / 2] >> (i % 2 ? 0 : 4) & 15];
  out[64] = 0;
}
