#include "base/fresh.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/number.h"
#include "base/random.h"

/* The sum of eight uniform 16-bit numbers, less its mean: close to a normal distribution (the density is off by less
 * than a hundredth, nothing lies beyond 4.9 deviations), quick, and no logarithm that libraries round differently. */
static int32_t draw(uint64_t h) {
  const uint64_t even = 0x0000ffff0000ffffu;
  uint64_t g = h * 0xd6e8feb86659fd93u;
  g ^= g >> 32;
  uint64_t pairs = (h & even) + (h >> 16 & even) + (g & even) + (g >> 16 & even);
  return (int32_t)(pairs & 0xffffffff) + (int32_t)(pairs >> 32) - 4 * 65535;
}

float moec_fresh_scale(const moec_fresh *f) {
  return (float)(f->deviation / sqrt(8 * 4294967295.0 / 12)); /* variance of one: (2^32 - 1) / 12 */
}

static void fill_normal(moec_dtype t, void *out, size_t n, uint64_t start, float scale) {
  float *f = out;
  uint16_t *half = out;
  switch (t) {
    case MOEC_F32:
      for (size_t i = 0; i < n; i++) f[i] = (float)draw(moec_mix(start + i)) * scale;
      break;
    case MOEC_BF16:
      for (size_t i = 0; i < n; i++)
        half[i] = moec_f32_to_bf16((float)draw(moec_mix(start + i)) * scale);
      break;
    default:
      for (size_t i = 0; i < n; i++)
        moec_store_f64(t, out, i, (double)((float)draw(moec_mix(start + i)) * scale));
  }
}

static double log_uniform(uint64_t h) {
  double u = (double)(h >> 40) * 0x1p-24;
  return log(16 * (1 - u));
}

void moec_fresh_fill(const moec_fresh *f, moec_dtype t, void *out, size_t n, uint64_t start) {
  switch (f->kind) {
    case MOEC_FRESH_NORMAL: fill_normal(t, out, n, start, moec_fresh_scale(f)); break;
    case MOEC_FRESH_ONES:
      for (size_t i = 0; i < n; i++) moec_store_f64(t, out, i, 1);
      break;
    case MOEC_FRESH_LOG_UNIFORM:
      for (size_t i = 0; i < n; i++) moec_store_f64(t, out, i, log_uniform(moec_mix(start + i)));
      break;
    default: memset(out, 0, n * moec_dtype_get(t)->bytes);
  }
}

uint64_t moec_fresh_start(uint64_t seed, const char *name) {
  return moec_mix(moec_hash(seed ^ MOEC_HASH_SEED, name, strlen(name)));
}

/* ---- as text ----------------------------------------------------------------------------- */

static const char prefix[] = "moec.init:";
static const char *const kinds[MOEC_FRESH_COUNT] = {
#define TEXT(name, text) text,
    MOEC_FRESH_KINDS(TEXT)
#undef TEXT
};

void moec_fresh_print(const moec_fresh *f, char out[MOEC_FRESH_TEXT]) {
  int n = snprintf(out, MOEC_FRESH_TEXT, "%s%s", prefix, kinds[f->kind]);
  if (f->kind == MOEC_FRESH_NORMAL) moec_snprintf(out + n, MOEC_FRESH_TEXT - (size_t)n, ":%.17g", f->deviation);
}

bool moec_fresh_is(const char *name) { return !strncmp(name, prefix, sizeof prefix - 1); }

moec_status *moec_fresh_parse(const char *name, moec_fresh *out) {
  const char *kind = moec_fresh_is(name) ? name + sizeof prefix - 1 : "", *colon = strchr(kind, ':');
  size_t n = colon ? (size_t)(colon - kind) : strlen(kind);
  *out = (moec_fresh){0};
  while (out->kind < MOEC_FRESH_COUNT && (strlen(kinds[out->kind]) != n || memcmp(kinds[out->kind], kind, n)))
    out->kind++;
  bool good = out->kind < MOEC_FRESH_COUNT && (out->kind == MOEC_FRESH_NORMAL) == (colon != NULL);
  if (good && colon) {
    char *end;
    out->deviation = moec_strtod(colon + 1, &end);
    good = colon[1] >= '0' && colon[1] <= '9' && !*end && isfinite(out->deviation);
  }
  if (good) return NULL;
  return moec_error(MOEC_INVALID_MODEL, "weights made from a seed: expected %snormal:DEVIATION, %szeros, %sones or "
                    "%slog_uniform, got \"%.60s\"", prefix, prefix, prefix, prefix, name);
}
