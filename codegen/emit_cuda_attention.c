/* The forms of attention kernels: on tensor cores where operands are halves that can be copied 16 bytes at a time, else
 * in f32, which takes every operand there is. */
#include "codegen/emit_cuda.h"
#include "codegen/kernel_attention.h"

/* ---- which ---------------------------------------------------------------------------------- */

static bool is_multiple_of_8(moec_module *m, moec_dim d) {
  return moec_dim_known(moec_dim_exact_div(m, d, moec_dim_const(m, 8)));
}

static bool has_whole_pieces(moec_module *m, const moec_kview *v) {
  bool whole = v->is && is_multiple_of_8(m, v->offset);
  for (int i = 0; i < 3; i++) whole = whole && is_multiple_of_8(m, v->strides[i]);
  return whole;
}

/* Larger heads have more sums than there are registers. */
static bool is_half(moec_module *m, const moec_kattention *t) {
  enum { MOST = 256 };
  if (t->dtype != MOEC_F16 && t->dtype != MOEC_BF16) return false;
  if (t->d % 8 || t->e % 8 || t->d > MOST || t->e > MOST) return false;
  for (int o = 0; o < MOEC_KOPERAND_COUNT; o++) {
    bool vector = o != MOEC_KOPERAND_MASK && o != MOEC_KOPERAND_SINK && o != MOEC_KOPERAND_LSE;
    if (vector && t->operands[o] && !has_whole_pieces(m, &t->views[o])) return false;
  }
  return !t->grad || t->views[MOEC_KOPERAND_LSE].is;
}

/* ---- shared memory -------------------------------------------------------------------------- */

static int64_t mask_bytes(const moec_kattention *t, int64_t lines, int64_t keys) {
  if (!t->operands[MOEC_KOPERAND_MASK]) return 0;
  return 4 * keys * (t->mask_by_head || t->mask_by_row ? lines : 1);
}

static int64_t half_bytes(const moec_kattention *t) {
  enum { LINES = 64, KEYS = 64 };
  int64_t d = (t->d + 15) / 16 * 16 + 8, e = (t->e + 15) / 16 * 16 + 8;
  int64_t bytes = 2 * ((LINES + KEYS) * d + KEYS * e) + mask_bytes(t, LINES, KEYS);
  return t->grad ? bytes + 2 * LINES * e + 2 * 4 * LINES : bytes;
}

static int64_t float_bytes(const moec_kattention *t) {
  int64_t d = t->d | 1, e = t->grad ? t->e | 1 : (t->e + 15) / 16 * 16;
  if (t->grad) return 4 * (2 * 32 * (d + e) + 2 * 32 * 33 + 8 * t->e + 2 * 32) + mask_bytes(t, 32, 32);
  return 4 * ((64 + 32) * d + 32 * e + 64 * 33 + 3 * 64) + mask_bytes(t, 64, 32);
}

/* ---- tasks ---------------------------------------------------------------------------------- */

static moec_dim blocks_of(moec_module *m, const moec_kattention *t, moec_dim n, int64_t size) {
  moec_dim pairs = moec_dim_mul(m, t->b, t->g);
  return moec_dim_mul(m, pairs, moec_dim_ceildiv(m, n, moec_dim_const(m, size)));
}

static moec_dim tasks_of(moec_module *m, const moec_kattention *t, bool half) {
  moec_dim lines = moec_dim_mul(m, t->s, moec_dim_floordiv(m, t->h, t->g)), n = moec_dim_const(m, 0);
  const uint32_t none = MOEC_NO_BUFFER;
  const int64_t tile = half ? 64 : 32; /* of a gradient */
  if (!t->grad) return blocks_of(m, t, lines, 64);
  if (t->results[1] != none || t->results[2] != none) n = blocks_of(m, t, t->t, tile);
  if (t->results[0] != none) n = moec_dim_add(m, n, blocks_of(m, t, lines, tile));
  return t->results[3] != none ? moec_dim_add(m, n, t->h) : n;
}

moec_cuda_attention moec_cuda_attention_of(moec_module *m, const moec_kattention *t) {
  moec_cuda_attention a = {.half = is_half(m, t)};
  a.shared = a.half ? half_bytes(t) : float_bytes(t);
  a.threads = a.half ? 128 : 256;
  a.rows = tasks_of(m, t, a.half);
  return a;
}
