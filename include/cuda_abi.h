/* The kernels of a cubin that are not generated: what the library steps of include/plan.h, loading and the optimizer
 * launch. Their texts are codegen/kernels/UNIT.cu. Generated kernels: the end of include/plan.h.
 *
 * Parameters are passed by value; pointers point to device memory, at multiples of 16. T is the dtype in the kernel's
 * name: moec_dispatch_bf16. A cubin holds the kernels of the dtypes its plan has steps for; those without T are always
 * there. f16 and bf16 are computed with in f32 and rounded once. Where a pointer comes with a dtype, a moec_dtype of
 * base/dtype.h, its elements may be of any float dtype. |fault|: set to 1 where an index is out of range, which is
 * clamped then; nothing waits.
 *
 * Blocks have |threads| threads and no dynamic shared memory. Every kernel strides over its work, whose size is given
 * as "work: N per block": any number of blocks in x from 1 is right, more than ceil(work / N) are idle; where nothing
 * is to be done (no tokens, no columns) a launch does nothing and may be left out. Results don't depend on the number
 * of blocks. What has no rows - an expert without tokens - gets its zeros. PART: the elements of a row that a warp
 * works on at a time, 512 / sizeof(T); 32 where the row's bytes are no multiple of 16.
 *
 * fill.cu, always there
 *   moec_cast(void *y, int32_t y_dtype, const void *x, int32_t x_dtype, int64_t n)
 *                                            floats to floats; others to their own dtype. work: 2048 per block
 *   moec_normal(void *y, int32_t dtype, int32_t stored, uint64_t start, float scale, int64_t n)
 *                                            floats; NORMAL of base/fresh.h from |start| on, rounded to |stored|: f32,
 *                                            bf16 or f16. work: 2048 per block
 *
 * topk.cu    T: any dtype
 *   moec_topk_T(const T *x, T *values, int64_t *indices, int64_t outer, int64_t n, int64_t inner, int64_t k,
 *               int32_t largest)             x[outer, n, inner] -> [outer, k, inner]; values or indices may be NULL.
 *                                            MOE_SELECT: (s, NULL, i, tokens, experts, 1, k, 1)
 *                                            work: outer*inner, 4 per block
 * cumsum.cu  T: numbers
 *   moec_cumsum_T(const T *x, T *y, int64_t outer, int64_t n, int64_t inner, int32_t reverse, int32_t exclusive)
 *                                            work: outer*inner, 4 per block
 * order.cu   The rows of scatter_nd, i[rows, q], sorted by the slice of y they name: keys slice << bits | row, of slice
 *            |slices| (as many as y has) where an index is out of range; rows <= 1 << bits, keys fit int64_t.
 *   moec_order_chunks(const void *i, int32_t i_dtype, moec_cuda_shape y_shape, int64_t q, int64_t rows, int64_t slices,
 *                     int32_t bits, int64_t *chunks, int32_t *fault)
 *                                            chunks: of 1024 keys, the last filled up. work: rows, 1024 per block
 *   moec_order_merge(const int64_t *chunks, int64_t rows, int64_t *sorted)
 *                                            work: rows, 256 per block. One chunk is sorted already.
 * scatter.cu T: any dtype. y holds x when they start (copied before, unless y is its buffer), or zeros without x
 *   moec_scatter_elements_T(T *y, const void *i, int32_t i_dtype, const T *u, moec_cuda_shape y_shape,
 *                           moec_cuda_shape i_shape, int64_t axis, int32_t reduction, int32_t *fault)
 *                                            work: numel(i) / i_shape.dims[axis], 128 per block
 *   moec_scatter_nd_T(T *y, const T *u, const int64_t *sorted, int64_t rows, int64_t slices, int32_t bits,
 *                     int64_t size, int32_t reduction)
 *                                            size: elements of an update. work: rows * ceil(size / PART), 8 per block
 * random.cu  T: floats
 *   moec_random_T(T *y, int64_t n, int32_t kind, int64_t seed)           work: 1024 per block
 * conv.cu    T: floats
 *   moec_conv_T(const T *x, const T *w, T *y, moec_cuda_conv c)          work: numel(y), 256 per block
 *
 * plan.cu    MOE_PLAN, two launches in order, each of exactly ceil(n / per_block) blocks, at least 1; the first is not
 *            needed where there is one block. |per_block| is a multiple of 1024; counts: int32[blocks * experts],
 *            temporary. Forced routes: plan them as chosen ones.
 *   moec_plan_count(const int64_t *experts_of, int64_t n, int64_t experts, int64_t per_block, int32_t *counts)
 *   moec_plan_fill(const int64_t *experts_of, int64_t n, int64_t experts, int64_t per_block, const int32_t *counts,
 *                  int32_t *perm, int32_t *inv, int32_t *offsets, int32_t *fault)
 *            Every block reads all counts: more than 128 blocks are slow.
 *
 * rows.cu    T: floats. n = tokens * k assignments
 *   moec_dispatch_T(const T *x, const int32_t *perm, const void *w, int32_t w_dtype, T *rows, int64_t n, int64_t k,
 *                   int64_t width, int32_t *fault)
 *                                            MOE_DISPATCH; w NULL: none. MOE_WEIGHT with k = 0: row r of x is row r of
 *                                            the result. work: n, 8 per block
 *   moec_combine_T(const T *rows, const int32_t *inv, const void *w, int32_t w_dtype, const void *residual,
 *                  void *y, int32_t y_dtype, int64_t tokens, int64_t k, int64_t width, int32_t *fault)
 *                                            w, residual NULL: none. residual may be y. y_dtype: of both, T, or f32 for
 *                                            a narrower T.
 *                                            work: tokens * ceil(width / PART), 8 per block
 * grouped.cu T: floats. n rows of all experts; offsets[experts + 1]
 *   moec_grouped_dot_T(const T *rows, const T *w, const int32_t *offsets, const void *bias, int32_t bias_dtype,
 *                      void *y, int32_t y_dtype, int64_t n, int64_t experts, int64_t k, int64_t m, int32_t transposed)
 *                                            work: (ceil(n / 64) + experts) * ceil(m / 64), 1 per block
 *   moec_grouped_outer_T(const T *dy, const T *x, const int32_t *offsets, void *y, int32_t y_dtype, int64_t n,
 *                        int64_t experts, int64_t m, int64_t k)
 *                                            work: experts * ceil(m / 64) * ceil(k / 64), 1 per block
 * group_sum.cu  T: floats
 *   moec_group_sum_T(const T *x, const int32_t *offsets, void *y, int32_t y_dtype, int64_t n, int64_t experts,
 *                    int64_t m)
 *                                            work: experts * ceil(m / PART), 1 per block
 *
 * grouped_wgmma.cu, where products of experts are in bf16: MOEC_CUDA_WGMMA_KERNELS. The same results as grouped.cu's,
 *            bf16 or f32, for k and m that are multiples of 8, at most MOEC_CUDA_WGMMA_EXPERTS experts and 2^30 of
 *            anything else. Blocks of MOEC_CUDA_WGMMA_THREADS threads and MOEC_CUDA_WGMMA_SHARED bytes of dynamic
 *            shared memory, as many as there are multiprocessors. Tensor maps of bf16, 128 bytes swizzled: operands as
 *            stacks of matrices in boxes of 64 x 64, rows in a stack of one; y in boxes of 16 rows by 64, or any map
 *            where it is f32.
 *   moec_wgmma_dot_t, moec_wgmma_dot(moec_cuda_tensor_map rows, moec_cuda_tensor_map w, moec_cuda_tensor_map y_map,
 *            const int32_t *offsets, const void *bias, int32_t bias_dtype, void *y, int32_t y_dtype, int64_t experts,
 *            int64_t k, int64_t m, int32_t *turn)
 *                                            _t: transposed. turn: two zeros, which the next kernel finds again
 *   moec_wgmma_dot_t_K, moec_wgmma_dot_K(moec_cuda_tensor_map rows, moec_cuda_tensor_map w,
 *            moec_cuda_tensor_map y_map, moec_cuda_tensor_map a_map, const int32_t *offsets, const void *bias,
 *            int32_t bias_dtype, void *y, void *a, int64_t experts, int64_t k, int64_t m, int32_t *turn)
 *                                            grouped_activation.cu, for each MOE_GROUPED_DOT with generated kernel K
 *                                            as its activation: a, as K makes it of y, to the bit. y NULL: not stored,
 *                                            any map. Rows of y and a are multiples of 8; all bf16. a_map: as y's are;
 *                                            y_map of HALVES: a stack of n matrices [2, m / 2], in boxes of 16 x 1 x 64
 *   moec_wgmma_outer(moec_cuda_tensor_map dy, moec_cuda_tensor_map x, moec_cuda_tensor_map y_map,
 *            const int32_t *offsets, void *y, int32_t y_dtype, int64_t experts, int64_t m, int64_t k,
 *            int32_t *turn)
 * loss.cu    T: f32, f16, bf16
 *   moec_loss_T(T *logits, const int64_t *labels, const float *scale, float *nll, int64_t rows, int64_t v,
 *               int64_t lead, int64_t ignore, int32_t *fault)
 *                                            LINEAR_CROSS_ENTROPY: rows of |lead| elements, whole 16 bytes, become the
 *                                            gradients of scale[row] * nll[row]; nll NULL: none.
 *                                            work: rows, 1 per block
 *
 * update.cu  always there. Floats of |dtype| but f64, at multiples of 16. s NULL: a scale of 1. work: 2048 per block
 *   moec_add(float *to, int32_t more, const void *from, int32_t dtype, const moec_cuda_scale *s, int64_t n)
 *                                            to = (more ? to : 0) + from * s->scale. from may be to
 *   moec_square_sum(const void *x, int32_t dtype, int64_t n, double *sums)
 *                                            sums[ceil(n / 16384)]: of the squares of so many elements each.
 *                                            work: 16384 per block
 *   moec_clip(const double *sums, int64_t n, double max_norm, moec_cuda_scale *s)
 *                                            one block: s->norm = the root of all sums times |scale|; the scale
 *                                            becomes what makes the norm at most max_norm; where it is not finite, NaN.
 *                                            A scale that is NaN already counts as s->before
 *   moec_adamw(float *w, float *first, float *second, const void *g, int32_t g_dtype, void *copy, int32_t copy_dtype,
 *              int64_t n, const moec_cuda_update *u, const moec_cuda_scale *s)
 *   moec_sgd(float *w, float *first, const void *g, int32_t g_dtype, void *copy, int32_t copy_dtype, int64_t n,
 *            const moec_cuda_update *u, const moec_cuda_scale *s)
 *                                            w: f32 masters; copy: the compute copy that is refreshed, NULL: none;
 *                                            first NULL: no momentum; g is multiplied by the scale, and nothing happens
 *                                            where that is not finite
 */
#ifndef MOEC_CUDA_ABI_H
#define MOEC_CUDA_ABI_H

#include <stdint.h>

typedef struct moec_cuda_shape {
  int64_t rank, dims[12]; /* MOEC_PLAN_MAX_RANK */
} moec_cuda_shape;

/* x[n, channels, in...], w[m, channels / groups, kernel...] -> y[n, m, out...] over |axes| axes. */
typedef struct moec_cuda_conv {
  int64_t n, channels, m, groups, axes;
  int64_t in[10], kernel[10], out[10], stride[10], pad[10], dilation[10];
} moec_cuda_conv;

/* What gradients as they are stored are to be multiplied by, in device memory. */
typedef struct moec_cuda_scale {
  double norm;         /* of the gradients when they were clipped last, times |before| */
  float scale, before; /* before: what it was then, if not NaN */
  int32_t bad, reserved; /* bad: a norm was not finite, since somebody looked */
} moec_cuda_scale;

/* What changes from step to step, of one parameter, in device memory. */
typedef struct moec_cuda_update {
  float lr;           /* AdamW: divided by the first bias correction */
  float keep;         /* AdamW: 1 - learning rate * weight decay */
  float decay;        /* SGD: weight decay */
  float beta2, eps;   /* AdamW */
  float grow1, grow2; /* AdamW: 1 - beta */
  float root;         /* AdamW: 1 / sqrt(the second bias correction) */
  float momentum;     /* SGD; 0 in the first step, which has no moment yet */
} moec_cuda_update;

/* CUtensorMap. */
typedef struct moec_cuda_tensor_map {
  _Alignas(64) uint64_t words[16];
} moec_cuda_tensor_map;

/* KERNEL(name) */
#define MOEC_CUDA_WGMMA_KERNELS(KERNEL) \
  KERNEL(wgmma_dot_t)                   \
  KERNEL(wgmma_dot)                     \
  KERNEL(wgmma_outer)
enum { MOEC_CUDA_WGMMA_EXPERTS = 512, MOEC_CUDA_WGMMA_THREADS = 384, MOEC_CUDA_WGMMA_SHARED = 231680 };

/* KERNEL(unit, name, T, threads); T: the name ends with the dtype */
#define MOEC_CUDA_KERNELS(KERNEL)              \
  KERNEL("fill.cu", "cast", 0, 256)            \
  KERNEL("fill.cu", "normal", 0, 256)          \
  KERNEL("topk.cu", "topk", 1, 128)            \
  KERNEL("cumsum.cu", "cumsum", 1, 128)        \
  KERNEL("order.cu", "order_chunks", 0, 512)   \
  KERNEL("order.cu", "order_merge", 0, 256)    \
  KERNEL("scatter.cu", "scatter_elements", 1, 128) \
  KERNEL("scatter.cu", "scatter_nd", 1, 256)   \
  KERNEL("random.cu", "random", 1, 256)        \
  KERNEL("conv.cu", "conv", 1, 256)            \
  KERNEL("plan.cu", "plan_count", 0, 1024)     \
  KERNEL("plan.cu", "plan_fill", 0, 1024)      \
  KERNEL("rows.cu", "dispatch", 1, 256)        \
  KERNEL("rows.cu", "combine", 1, 256)         \
  KERNEL("grouped.cu", "grouped_dot", 1, 256)  \
  KERNEL("grouped.cu", "grouped_outer", 1, 256) \
  KERNEL("group_sum.cu", "group_sum", 1, 256)  \
  KERNEL("loss.cu", "loss", 1, 1024)           \
  KERNEL("update.cu", "add", 0, 256)           \
  KERNEL("update.cu", "square_sum", 0, 256)    \
  KERNEL("update.cu", "clip", 0, 1024)         \
  KERNEL("update.cu", "adamw", 0, 256)         \
  KERNEL("update.cu", "sgd", 0, 256)

#endif
