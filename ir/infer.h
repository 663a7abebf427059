/* Small helpers shared by the type inference files. */
#ifndef MOEC_IR_INFER_H
#define MOEC_IR_INFER_H

#include "ir/ir_internal.h"

#define INFER(name)                                                                                    \
  moec_status *moec_infer_##name(moec_module *m, const void *attrs, uint32_t n_in, const moec_type *in, \
                                 uint32_t n_out, moec_type *out)
#define UNUSED_INFER_ARGS (void)m, (void)attrs, (void)n_in, (void)in, (void)n_out, (void)out

/* INVALID_MODEL with printf text. */
#define BAD(...) moec_error(MOEC_INVALID_MODEL, __VA_ARGS__)

/* The type as text in the module's arena, for messages. */
const char *moec_type_text(moec_module *m, moec_type t);
const char *moec_dim_text(moec_module *m, moec_dim d);

/* Axis in [0, rank). */
moec_status *moec_check_axis(int64_t axis, uint32_t rank, const char *what) MOEC_MUST_USE;
/* Axes ascending, in [0, rank). */
moec_status *moec_check_axes(moec_ints axes, uint32_t rank, const char *what) MOEC_MUST_USE;
/* A result of another dtype than that of narrow operands is f32. */
moec_status *moec_check_result(moec_dtype operands, moec_dtype result) MOEC_MUST_USE;
/* Sizes that are provably different are an error; sizes that may differ are the caller's
 * business (a constraint was recorded when the graph was built). */
moec_status *moec_check_dims(moec_module *m, moec_dim a, moec_dim b, const char *what) MOEC_MUST_USE;
moec_status *moec_check_rank(moec_module *m, moec_type t, uint32_t rank, const char *what) MOEC_MUST_USE;

#endif
