/* Text as tokens: a byte is a token. */
#include <inttypes.h>
#include <math.h>

#include "base/random.h"
#include "base/status.h"
#include "runtime/cli_train.h"

moec_status *moec_rt_text_open(const char *path, moec_rt_text *out) {
  static const char digits[] = "0123456789abcdef";
  uint8_t digest[32];
  *out = (moec_rt_text){0};
  MOEC_TRY(moec_map_user_file(path, &out->map));
  moec_status *s = moec_map_digest(&out->map, 1, digest);
  if (s) {
    moec_unmap(&out->map);
    return s;
  }
  for (size_t i = 0; i < 64; i++) out->digest[i] = digits[digest[i / 2] >> (i % 2 ? 0 : 4) & 15];
  for (size_t i = 0; i < out->map.size; i++) out->counts[out->map.data[i]]++;
  for (size_t b = 0; b < 256; b++) {
    double p = (double)out->counts[b] / (double)out->map.size;
    if (out->counts[b]) out->entropy -= p * log(p);
  }
  return NULL;
}

void moec_rt_text_close(moec_rt_text *t) { moec_unmap(&t->map); }

moec_status *moec_rt_text_check(const moec_rt_text *t, const char *path, int64_t vocabulary, int seq) {
  if (t->map.size < (size_t)seq)
    return moec_error(MOEC_INVALID_ARGUMENT, "%s: expected at least --seq %d bytes, got %zu", path, seq, t->map.size);
  for (size_t i = 0; vocabulary < 256 && i < t->map.size; i++) {
    if (t->map.data[i] < vocabulary) continue;
    return moec_error(MOEC_INVALID_ARGUMENT,
                      "%s: byte %zu is %d: expected bytes below %" PRId64 ", the tokens of this model's vocabulary",
                      path, i, t->map.data[i], vocabulary);
  }
  return NULL;
}

/* 24 random bits. */
static uint64_t draw(int64_t seed, uint64_t i) {
  return (uint64_t)(moec_random(MOEC_F32, 0, seed, (int64_t)i) * 0x1p24);
}

uint64_t moec_rt_text_window(const moec_rt_text *t, int64_t seed, uint64_t i, int seq) {
  uint64_t places = t->map.size - (uint64_t)seq + 1, bits = draw(seed, 2 * i) << 24 | draw(seed, 2 * i + 1);
  return (uint64_t)((unsigned __int128)bits * places >> 48);
}
