/* conv: x[N, C, D...], w[M, C/groups, K...] -> y[N, M, O...], directly: each output plane is summed
 * tap by tap along its last axis, which suits the short depthwise convolutions of
 * linear attention. Sums are f32 (f64 for f64) and in one order. */
#include <inttypes.h>
#include <string.h>

#include "base/size.h"
#include "runtime/convert.h"
#include "runtime/ops.h"

enum { MAX_SPATIAL = MOEC_PLAN_MAX_RANK - 2 };

typedef struct axis {
  int64_t in, kernel, out, stride, pad, dilation;
} axis;

typedef struct conv {
  const moec_rt_call *c;
  const moec_tensor *x, *w, *y;
  uint32_t d;
  axis axes[MAX_SPATIAL + 1]; /* at least one: a rank-2 convolution has an axis of size 1 */
  int64_t groups, in_plane, taps, out_plane;
  moec_dtype sum; /* f32 or f64 */
} conv;

static conv read_conv(const moec_rt_call *c) {
  conv v = {.c = c, .x = moec_rt_in(c, 0), .w = moec_rt_in(c, 1), .y = moec_rt_out(c, 0)};
  const int64_t *ints = c->ints + 1;
  v.d = (uint32_t)c->ints[0];
  v.groups = c->ints[c->step->n_ints - 1];
  v.in_plane = v.taps = v.out_plane = 1;
  for (uint32_t i = 0; i < v.d; i++) {
    v.axes[i] = (axis){v.x->dims[2 + i], v.w->dims[2 + i], v.y->dims[2 + i],
                       ints[i],          ints[v.d + i],    ints[3 * v.d + i]};
    v.in_plane *= v.axes[i].in;
    v.taps *= v.axes[i].kernel;
    v.out_plane *= v.axes[i].out;
  }
  if (v.d == 0) {
    v.d = 1;
    v.axes[0] = (axis){1, 1, 1, 1, 0, 1};
  }
  v.sum = v.x->dtype == MOEC_F64 ? MOEC_F64 : MOEC_F32;
  return v;
}

/* y's size along an axis: every window that starts inside the padded x. */
static bool check_axis(const moec_rt_call *c, uint32_t i) {
  const int64_t *ints = c->ints + 1;
  int64_t d = c->ints[0], in = moec_rt_in(c, 0)->dims[2 + i], k = moec_rt_in(c, 1)->dims[2 + i];
  int64_t reach, padded = in + ints[d + i] + ints[2 * d + i];
  if (k < 1 || !moec_mul_i64(k - 1, ints[3 * d + i], &reach) || reach == INT64_MAX) return false;
  int64_t room = padded - (reach + 1);
  return moec_rt_out(c, 0)->dims[2 + i] == (room < 0 ? 0 : room / ints[i] + 1);
}

moec_status *moec_rt_check_CONV(const moec_rt_call *c, moec_rt_need *need) {
  const moec_tensor *x = moec_rt_in(c, 0), *w = moec_rt_in(c, 1), *y = moec_rt_out(c, 0);
  uint32_t rank = (uint32_t)c->ints[0] + 2;
  int64_t groups = c->ints[c->step->n_ints - 1];
  bool fits = x->rank == rank && w->rank == rank && y->rank == rank && w->dtype == x->dtype &&
              y->dtype == x->dtype && moec_dtype_is_float(x->dtype) && y->dims[0] == x->dims[0] &&
              y->dims[1] == w->dims[0] && w->dims[0] % groups == 0 && x->dims[1] % groups == 0 &&
              w->dims[1] == x->dims[1] / groups;
  for (uint32_t i = 0; fits && i + 2 < rank; i++) fits = check_axis(c, i);
  if (!fits) {
    char a[MOEC_RT_SHAPE_TEXT], b[MOEC_RT_SHAPE_TEXT], r[MOEC_RT_SHAPE_TEXT];
    return moec_rt_mismatch(c, "%s, %s with %" PRId64 " groups do not give %s",
                            moec_rt_shape_text(x->dtype, x->rank, x->dims, a, sizeof a),
                            moec_rt_shape_text(w->dtype, w->rank, w->dims, b, sizeof b), groups,
                            moec_rt_shape_text(y->dtype, y->rank, y->dims, r, sizeof r));
  }
  conv v = read_conv(c);
  need->thread = moec_rt_array((uint64_t)v.out_plane + (uint64_t)v.in_plane, sizeof(double));
  return NULL;
}

/* Outputs o of |a| whose input o * stride + shift lies inside: [*first, *last). */
static void valid(const axis *a, int64_t shift, int64_t *first, int64_t *last) {
  *first = shift >= 0 ? 0 : (-shift + a->stride - 1) / a->stride;
  int64_t room = a->in - shift;
  *last = room <= 0 ? 0 : (room - 1) / a->stride + 1;
  if (*last > a->out) *last = a->out;
}

/* SUM(name, type): plane += w[tap] * x shifted by the tap, for every tap. */
#define SUM(name, type)                                                                           \
  MOEC_RT_VECTOR static void name(const conv *v, const type *x, const void *weights,              \
                                  int64_t first_tap, type *plane) {                               \
    uint32_t last = v->d - 1;                                                                     \
    const axis *in = &v->axes[last];                                                              \
    for (int64_t tap = 0; tap < v->taps; tap++) {                                                 \
      type w;                                                                                     \
      moec_rt_convert(v->sum, &w, 1, v->w->dtype,                                                 \
                      (const uint8_t *)weights +                                                  \
                          (size_t)(first_tap + tap) * moec_dtype_get(v->w->dtype)->bytes,         \
                      1, 1);                                                                      \
      int64_t shift[MAX_SPATIAL + 1], left = tap, lines = v->out_plane / (in->out ? in->out : 1); \
      for (uint32_t i = v->d; i-- > 0; left /= v->axes[i].kernel) {                               \
        shift[i] = left % v->axes[i].kernel * v->axes[i].dilation - v->axes[i].pad;               \
      }                                                                                           \
      int64_t begin, end;                                                                         \
      valid(in, shift[last], &begin, &end);                                                       \
      for (int64_t line = 0; line < lines; line++) {                                              \
        int64_t rest = line, from = 0, scale = 1;                                                 \
        bool inside = true;                                                                       \
        for (uint32_t i = last; i-- > 0; rest /= v->axes[i].out) {                                \
          int64_t p = rest % v->axes[i].out * v->axes[i].stride + shift[i];                       \
          inside = inside && p >= 0 && p < v->axes[i].in;                                         \
          from += p * scale;                                                                      \
          scale *= v->axes[i].in;                                                                 \
        }                                                                                         \
        if (!inside || begin >= end) continue;                                                    \
        const type *s = x + from * in->in + begin * in->stride + shift[last];                     \
        type *y = plane + line * in->out + begin;                                                 \
        if (in->stride == 1)                                                                      \
          for (int64_t o = 0; o < end - begin; o++) y[o] += w * s[o];                             \
        else                                                                                      \
          for (int64_t o = 0; o < end - begin; o++) y[o] += w * s[o * in->stride];                \
      }                                                                                           \
    }                                                                                             \
  }
SUM(sum_f32, float)
SUM(sum_f64, double)

static void planes(void *ctx, int64_t begin, int64_t end, int thread) {
  const conv *v = ctx;
  int64_t m = v->w->dims[0], each = v->w->dims[1],
          bytes = (int64_t)moec_dtype_get(v->x->dtype)->bytes;
  size_t wide = moec_dtype_get(v->sum)->bytes;
  uint8_t *plane = moec_rt_scratch(v->c, thread), *line = plane + (size_t)v->out_plane * wide;
  for (int64_t i = begin; i < end; i++) {
    int64_t n = i / m, channel = i % m, group = channel / (m / v->groups);
    memset(plane, 0, (size_t)v->out_plane * wide);
    for (int64_t k = 0; k < each; k++) {
      int64_t from = (n * v->x->dims[1] + group * each + k) * v->in_plane;
      const void *x = (const uint8_t *)v->x->data + from * bytes;
      if (v->x->dtype != v->sum) { /* narrow: widened once */
        moec_rt_convert(v->sum, line, 1, v->x->dtype, x, 1, v->in_plane);
        x = line;
      }
      int64_t tap = (channel * each + k) * v->taps;
      if (v->sum == MOEC_F64)
        sum_f64(v, x, v->w->data, tap, (double *)(void *)plane);
      else
        sum_f32(v, x, v->w->data, tap, (float *)(void *)plane);
    }
    moec_rt_convert(v->y->dtype, (uint8_t *)v->y->data + i * v->out_plane * bytes, 1, v->sum, plane,
                    1, v->out_plane);
  }
}

moec_status *moec_rt_run_CONV(const moec_rt_call *c) {
  conv v = read_conv(c);
  if (v.out_plane == 0) return NULL;
  int64_t cost = v.out_plane * v.taps / 4 * v.w->dims[1];
  moec_rt_parallel_for(c->pool, v.y->dims[0] * v.y->dims[1], moec_rt_grain(cost), planes, &v);
  return NULL;
}
