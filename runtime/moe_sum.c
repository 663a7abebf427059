/* moe.group_sum: the bias gradient of each expert, the sum of its rows. Threads take parts of the
 * columns of experts; each sums its rows in order, in f32 (f64 where the rows are), rounded once. */
#include "base/size.h"
#include "runtime/convert.h"
#include "runtime/moe_groups.h"

enum { PART = 256 }; /* columns worked on at a time: their sums stay in the first cache */

typedef struct summing {
  const moec_tensor *x, *y;
  moec_rt_groups groups;
  int64_t width, parts;
} summing;

static summing read_sum(const moec_rt_call *c) {
  summing s = {.x = moec_rt_in(c, 0), .y = moec_rt_out(c, 0)};
  s.groups = (moec_rt_groups){moec_rt_in(c, 1)->data, moec_rt_in(c, 1)->dims[0] - 1, NULL};
  s.width = s.x->dims[1];
  s.parts = (s.width + PART - 1) / PART;
  return s;
}

moec_status *moec_rt_check_MOE_GROUP_SUM(const moec_rt_call *c, moec_rt_need *need) {
  (void)need;
  const moec_tensor *x = moec_rt_in(c, 0), *offsets = moec_rt_in(c, 1), *y = moec_rt_out(c, 0);
  char got[MOEC_RT_SHAPE_TEXT];
  if (x->rank != 2 || !moec_dtype_is_float(x->dtype)) {
    return moec_rt_mismatch(c, "expected rows [n, m] of floats, got %s",
                            moec_rt_shape_text(x->dtype, x->rank, x->dims, got, sizeof got));
  }
  if (offsets->dtype != MOEC_I32 || offsets->rank != 1 || offsets->dims[0] < 1)
    return moec_rt_mismatch(c, "expected offsets i32 [experts + 1]");
  if (!moec_dtype_is_float(y->dtype)) return moec_rt_mismatch(c, "expected a float result");
  const int64_t out[] = {offsets->dims[0] - 1, x->dims[1]};
  return moec_rt_expect(c, "a result", y, y->dtype, 2, out);
}

/* SUM(type, dtype): the loop in one type. */
#define SUM(type, wide)                                                                       \
  MOEC_RT_VECTOR static void sum_##type(void *ctx, int64_t begin, int64_t end, int thread) {  \
    (void)thread;                                                                             \
    const summing *s = ctx;                                                                   \
    int64_t size = (int64_t)moec_dtype_get(s->x->dtype)->bytes;                               \
    int64_t y_size = (int64_t)moec_dtype_get(s->y->dtype)->bytes;                             \
    type sum[PART], room[PART];                                                               \
    for (int64_t i = begin; i < end; i++) {                                                   \
      int64_t e = i / s->parts, from = i % s->parts * PART;                                   \
      int64_t n = s->width - from < PART ? s->width - from : PART;                            \
      for (int64_t j = 0; j < n; j++) sum[j] = 0;                                             \
      for (int64_t r = s->groups.offsets[e]; r < s->groups.offsets[e + 1]; r++) {             \
        const uint8_t *at = (const uint8_t *)s->x->data + (r * s->width + from) * size;       \
        const type *x = room;                                                                 \
        if (s->x->dtype == wide)                                                              \
          x = (const type *)(const void *)at;                                                 \
        else                                                                                  \
          moec_rt_convert(wide, room, 1, s->x->dtype, at, 1, n);                              \
        for (int64_t j = 0; j < n; j++) sum[j] += x[j];                                       \
      }                                                                                       \
      moec_rt_convert(s->y->dtype, (uint8_t *)s->y->data + (e * s->width + from) * y_size, 1, \
                      wide, sum, 1, n);                                                       \
    }                                                                                         \
  }
SUM(float, MOEC_F32)
SUM(double, MOEC_F64)

moec_status *moec_rt_run_MOE_GROUP_SUM(const moec_rt_call *c) {
  summing s = read_sum(c);
  int64_t tasks = s.groups.experts * s.parts;
  MOEC_TRY(moec_rt_groups_check(c, &s.groups, s.x->dims[0]));
  if (tasks == 0) return NULL;
  int64_t cost = (s.x->dims[0] / s.groups.experts + 1) * PART / 4;
  moec_rt_parallel_for(c->pool, tasks, moec_rt_grain(cost),
                       s.x->dtype == MOEC_F64 ? sum_double : sum_float, &s);
  return NULL;
}
