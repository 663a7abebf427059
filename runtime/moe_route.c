/* moe.select: the k best experts of each token. moe.plan: a stable sort of the assignments
 * by expert, as a counting sort over blocks of them. */
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "runtime/ops.h"
#include "runtime/order.h"

/* ---- select ------------------------------------------------------------------------------ */

moec_status *moec_rt_check_MOE_SELECT(const moec_rt_call *c, moec_rt_need *need) {
  const moec_tensor *s = moec_rt_in(c, 0), *i = moec_rt_out(c, 0);
  if (s->rank != 2 || !moec_dtype_is_float(s->dtype) || i->rank != 2 || i->dims[1] > s->dims[1]) {
    char a[MOEC_RT_SHAPE_TEXT], b[MOEC_RT_SHAPE_TEXT];
    return moec_rt_mismatch(
        c, "expected scores [tokens, experts] and at most as many choices, got %s -> %s",
        moec_rt_shape_text(s->dtype, s->rank, s->dims, a, sizeof a),
        moec_rt_shape_text(i->dtype, i->rank, i->dims, b, sizeof b));
  }
  const int64_t dims[] = {s->dims[0], i->dims[1]};
  need->thread = moec_rt_top_scratch(s->dims[1], i->dims[1]);
  return moec_rt_expect(c, "indices", i, MOEC_I64, 2, dims);
}

static void select_tokens(void *ctx, int64_t begin, int64_t end, int thread) {
  const moec_rt_call *c = ctx;
  const moec_tensor *s = moec_rt_in(c, 0), *out = moec_rt_out(c, 0);
  int64_t experts = s->dims[1], k = out->dims[1];
  size_t row = (size_t)experts * moec_dtype_get(s->dtype)->bytes;
  for (int64_t t = begin; t < end; t++) {
    moec_rt_item *best;
    moec_rt_top(s->dtype, (const uint8_t *)s->data + (size_t)t * row, 1, experts, k, true,
                moec_rt_scratch(c, thread), &best);
    for (int64_t j = 0; j < k; j++) ((int64_t *)out->data)[t * k + j] = best[j].index;
  }
}

moec_status *moec_rt_run_MOE_SELECT(const moec_rt_call *c) {
  const moec_tensor *s = moec_rt_in(c, 0);
  moec_rt_parallel_for(c->pool, s->dims[0], moec_rt_grain(s->dims[1] * 4), select_tokens,
                       (void *)(uintptr_t)c);
  return NULL;
}

/* ---- plan -------------------------------------------------------------------------------- */

/* Block b of the assignments counts its experts in counts[b * experts ...]; the sums over lower
 * experts and earlier blocks are where its rows begin. */
typedef struct sorting {
  const int64_t *experts_of; /* by assignment */
  int32_t *perm, *inv, *offsets;
  int64_t n, experts, block;
  int32_t *counts;
  _Atomic int64_t wrong; /* an assignment whose expert does not exist; -1: none */
} sorting;

enum { LEAST_BLOCK = 4096, MOST_BLOCKS = 64 };

static int64_t block_size(int64_t n) {
  int64_t even = (n + MOST_BLOCKS - 1) / MOST_BLOCKS;
  return even < LEAST_BLOCK ? LEAST_BLOCK : even;
}

moec_status *moec_rt_check_MOE_PLAN(const moec_rt_call *c, moec_rt_need *need) {
  const moec_tensor *i = moec_rt_in(c, 0), *offsets = moec_rt_out(c, 2);
  int64_t n = moec_tensor_numel(i);
  if (i->dtype != MOEC_I64 || i->rank != 2 || n > INT32_MAX) {
    char got[MOEC_RT_SHAPE_TEXT];
    return moec_rt_mismatch(c, "expected choices i64 [tokens, k], at most 2^31 - 1 of them, got %s",
                            moec_rt_shape_text(i->dtype, i->rank, i->dims, got, sizeof got));
  }
  if (offsets->dtype != MOEC_I32 || offsets->rank != 1 || offsets->dims[0] < 2) {
    return moec_rt_mismatch(c, "expected offsets i32 [experts + 1] of one expert or more");
  }
  int64_t blocks = (n + block_size(n) - 1) / block_size(n);
  need->shared = moec_rt_array((uint64_t)blocks * sizeof(int32_t), (uint64_t)offsets->dims[0]);
  MOEC_TRY(moec_rt_expect(c, "perm", moec_rt_out(c, 0), MOEC_I32, 1, &n));
  return moec_rt_expect(c, "inv", moec_rt_out(c, 1), MOEC_I32, 1, &n);
}

static void count_blocks(void *ctx, int64_t begin, int64_t end, int thread) {
  (void)thread;
  sorting *s = ctx;
  for (int64_t b = begin; b < end; b++) {
    int32_t *counts = s->counts + b * s->experts;
    int64_t last = (b + 1) * s->block < s->n ? (b + 1) * s->block : s->n;
    memset(counts, 0, (size_t)s->experts * sizeof *counts);
    for (int64_t a = b * s->block; a < last; a++) {
      int64_t e = s->experts_of[a];
      if (e >= 0 && e < s->experts)
        counts[e]++;
      else
        atomic_store_explicit(&s->wrong, a, memory_order_relaxed);
    }
  }
}

static void sum_counts(const sorting *s, int64_t blocks) {
  int32_t total = 0;
  for (int64_t e = 0; e < s->experts; e++) {
    s->offsets[e] = total;
    for (int64_t b = 0; b < blocks; b++) {
      int32_t n = s->counts[b * s->experts + e];
      s->counts[b * s->experts + e] = total;
      total += n;
    }
  }
  s->offsets[s->experts] = total;
}

static void fill_blocks(void *ctx, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const sorting *s = ctx;
  for (int64_t b = begin; b < end; b++) {
    int32_t *next = s->counts + b * s->experts;
    int64_t last = (b + 1) * s->block < s->n ? (b + 1) * s->block : s->n;
    for (int64_t a = b * s->block; a < last; a++) {
      int32_t row = next[s->experts_of[a]]++;
      s->perm[row] = (int32_t)a;
      s->inv[a] = row;
    }
  }
}

moec_status *moec_rt_run_MOE_PLAN(const moec_rt_call *c) {
  const moec_tensor *i = moec_rt_in(c, 0);
  sorting s = {.experts_of = i->data,
               .perm = moec_rt_out(c, 0)->data,
               .inv = moec_rt_out(c, 1)->data,
               .offsets = moec_rt_out(c, 2)->data,
               .n = moec_tensor_numel(i),
               .experts = moec_rt_out(c, 2)->dims[0] - 1,
               .counts = (int32_t *)(void *)c->shared,
               .wrong = -1};
  s.block = block_size(s.n);
  int64_t blocks = (s.n + s.block - 1) / s.block;
  moec_rt_parallel_for(c->pool, blocks, 1, count_blocks, &s);
  int64_t wrong = atomic_load(&s.wrong);
  if (wrong >= 0) {
    return moec_rt_op_error(c, MOEC_INVALID_ARGUMENT,
                            "token %" PRId64 ", choice %" PRId64
                            ": expected an expert below %" PRId64 ", got %" PRId64,
                            wrong / i->dims[1], wrong % i->dims[1], s.experts, s.experts_of[wrong]);
  }
  sum_counts(&s, blocks);
  moec_rt_parallel_for(c->pool, blocks, 1, fill_blocks, &s);
  return NULL;
}
