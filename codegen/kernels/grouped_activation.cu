/* ---- products of experts with their activation ---------------------------------------------------
 * An element of the activation is computed from the products of a thread, rounded as they are when they are stored:
 *
 *   EACH        a[n, j] = element(y[n, j])
 *   HALVES      a[n, j] = element(y[n, j], y[n, j + m / 2])    a tile has 128 columns of each half
 *   NEIGHBOURS  a[n, j] = element(y[n, 2 j], y[n, 2 j + 1])    a thread has pairs of columns
 *
 * y itself is stored where something else reads it. */

enum { MOEC_WG_EACH, MOEC_WG_HALVES, MOEC_WG_NEIGHBOURS }; /* moec_activation_form of include/plan.h */

MOEC_INLINE float moec_wg_low(uint32_t pair) { return __uint_as_float(pair << 16); }
MOEC_INLINE float moec_wg_high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

/* Of 8 neighbours, lane l of four has number l in the low half of |v| and 4 + l in the high one: numbers 2 l and
 * 2 l + 1. */
MOEC_INLINE uint32_t moec_wg_neighbours(uint32_t v) {
  const int lane = threadIdx.x % 4;
  const uint32_t a = __shfl_sync(0xffffffffu, v, 2 * lane % 4, 4), b = __shfl_sync(0xffffffffu, v, 2 * lane % 4 + 1, 4);
  return __byte_perm(a, b, lane < 2 ? 0x5410 : 0x7632);
}

/* A warp's 16 rows from |row| of a tile, as far as there are |rows|: box |c| of the products. */
MOEC_INLINE void moec_wg_store_product(const moec_wg_task *t, const moec_wg_tile *w, int row, int c,
                                       const uint32_t *v) {
  const int half = t->half ? c / 2 : 0, in = t->half ? c % 2 : c;
  const int32_t x = w->column + 64 * in, n = w->row + row;
  const moec_wg_box box = {t->y_map, x, t->half ? half : n, t->half ? n : 0, w->rows - row, moec_wg_end(t) - x,
                           (uint16_t *)t->y + (int64_t)n * t->columns + half * t->half + x, t->columns};
  moec_wg_store_box(&box, c, v);
}

/* Box |c| of the activation, which has |columns|; those of a tile begin at |column|. */
MOEC_INLINE void moec_wg_store_activation(const moec_cuda_tensor_map *map, void *to, const moec_wg_tile *w,
                                          int32_t column, int64_t columns, int row, int c, const uint32_t *v) {
  const int32_t x = column + 64 * c, n = w->row + row;
  const moec_wg_box box = {map, x, n, 0, w->rows - row, (int32_t)columns - x,
                           (uint16_t *)to + (int64_t)n * columns + x, columns};
  moec_wg_store_box(&box, c, v);
}

/* The kernel |name|, and what it calls. */
#define MOEC_WG_ACTIVATION(name, form, layout, element)                                                              \
  /* p: pairs of products, each two registers of which are 8 columns; becomes those of the activation. */            \
  MOEC_INLINE void name##_apply(uint32_t *p) {                                                                       \
    _Pragma("unroll") for (int i = 0; i < (layout == MOEC_WG_EACH ? 64 : 32); i++) {                                 \
      const int at = layout == MOEC_WG_NEIGHBOURS ? i / 2 * 4 + i % 2 : i;                                           \
      if (layout == MOEC_WG_EACH) {                                                                                  \
        p[i] = moec_wg_pack(element(moec_wg_low(p[at]), 0), element(moec_wg_high(p[at]), 0));                        \
      } else if (layout == MOEC_WG_HALVES) {                                                                         \
        p[i] = moec_wg_pack(element(moec_wg_low(p[at]), moec_wg_low(p[at + 32])),                                    \
                            element(moec_wg_high(p[at]), moec_wg_high(p[at + 32])));                                 \
      } else {                                                                                                       \
        p[i] = moec_wg_neighbours(moec_wg_pack(element(moec_wg_low(p[at]), moec_wg_high(p[at])),                     \
                                               element(moec_wg_low(p[at + 2]), moec_wg_high(p[at + 2]))));           \
      }                                                                                                              \
    }                                                                                                                \
  }                                                                                                                  \
  MOEC_INLINE void name##_consume(const moec_wg_task *t, const moec_cuda_tensor_map *map, void *to) {                \
    const int g = moec_wg_group(), row = moec_wg_row(g), boxes = layout == MOEC_WG_EACH ? 4 : 2;                     \
    const int64_t columns = layout == MOEC_WG_EACH ? t->columns : t->columns / 2;                                    \
    moec_wg_ring ring = {0, 0};                                                                                      \
    moec_wg_tile w;                                                                                                  \
    float d[128];                                                                                                    \
    while (moec_wg_take(form, t, g, &ring, &w, d)) {                                                                 \
      uint32_t p[64];                                                                                                \
      _Pragma("unroll") for (int i = 0; i < 64; i++) p[i] = moec_wg_pack(d[2 * i], d[2 * i + 1]);                    \
      if (t->y) {                                                                                                    \
        _Pragma("unroll") for (int c = 0; c < 4; c++) moec_wg_store_product(t, &w, row, c, p + 16 * c);              \
      }                                                                                                              \
      name##_apply(p);                                                                                               \
      _Pragma("unroll") for (int c = 0; c < boxes; c++)                                                              \
        moec_wg_store_activation(map, to, &w, layout == MOEC_WG_NEIGHBOURS ? w.column / 2 : w.column, columns, row,  \
                                 c, p + 16 * c);                                                                     \
    }                                                                                                                \
    if (threadIdx.x % 32 == 0) MOEC_WG_STORES_LEFT(0);                                                               \
  }                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(MOEC_WG_THREADS, 1)                                                   \
  name(const __grid_constant__ moec_cuda_tensor_map rows, const __grid_constant__ moec_cuda_tensor_map w,            \
       const __grid_constant__ moec_cuda_tensor_map y_map, const __grid_constant__ moec_cuda_tensor_map to_map,      \
       const int32_t *__restrict__ offsets, const void *__restrict__ bias, int32_t bias_dtype, void *y, void *to,    \
       int64_t experts, int64_t k, int64_t m, int32_t *turn) {                                                       \
    const int64_t half = layout == MOEC_WG_HALVES ? m / 2 : 0;                                                       \
    const moec_wg_task t = {&rows, &w, &y_map, bias, y, turn, bias_dtype, MOEC_BF16, experts, 0, m, k, half};        \
    MOEC_WG_RUN(form, &t, offsets, name##_consume(&t, &to_map, to))                                                  \
  }
