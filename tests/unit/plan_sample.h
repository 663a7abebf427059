/* A plan with every library step, every schedule but no kernel, and sizes that are symbols. */
#ifndef MOEC_TESTS_PLAN_SAMPLE_H
#define MOEC_TESTS_PLAN_SAMPLE_H

#include "tests/unit/plan_builder.h"

static inline uint32_t sample_add(plan_builder *b, moec_step_op op, uint32_t n_in, uint32_t a,
                                  uint32_t c, uint32_t d, moec_dtype dtype, uint32_t rank,
                                  const moec_expr_ref *dims, uint32_t n_ints, const int64_t *ints) {
  uint32_t y = pb_tensor(b, MOEC_BUFFER_STEP, dtype, rank, dims);
  const uint32_t in[] = {a, c, d};
  uint32_t args[4];
  memcpy(args, in, sizeof in);
  args[n_in] = y;
  pb_step(b, MOEC_AT_STEP, op, n_in, 1, args, n_ints, ints);
  return y;
}

static inline uint32_t sample_param(plan_builder *b, const char *name, moec_dtype storage,
                                    uint32_t rank, const int64_t *shape) {
  moec_tensor t = {.dtype = MOEC_F32, .rank = rank};
  static const uint8_t zeros[4096];
  moec_plan_piece p = {.file = MOEC_NONE, .dtype = storage, .rank = rank};
  size_t size = moec_dtype_get(storage)->bytes;
  for (uint32_t i = 0; i < rank; i++) {
    t.dims[i] = p.shape[i] = shape[i];
    p.perm[i] = i;
    size *= (size_t)shape[i];
  }
  p.offset = pb_data(b, zeros, size);
  uint32_t w = pb_static(b, MOEC_BUFFER_PARAM, &t), piece = PB_ADD(b, pieces, p);
  PB_ADD(b, params,
         (moec_plan_param){.name = pb_str(b, name),
                           .tensor = w,
                           .storage = storage,
                           .shard_axis = -1,
                           .pieces = piece,
                           .n_pieces = 1,
                           .grad = MOEC_NONE});
  return w;
}

/* x [tokens, 8] -> router -> 4 experts, 2 a token -> y; and the other steps on the side. */
static inline void sample_layer(plan_builder *b, moec_expr_ref tokens, uint32_t x) {
  moec_expr_ref c8 = pb_const(b, 8), c4 = pb_const(b, 4), c2 = pb_const(b, 2), c5 = pb_const(b, 5),
                c1 = pb_const(b, 1);
  moec_expr_ref n = pb_expr(b, MOEC_EXPR_MUL, tokens, c2);
  const moec_expr_ref scores[] = {tokens, c4}, chosen[] = {tokens, c2}, list[] = {n}, ends[] = {c5},
                      wide[] = {n, c8};
  const moec_expr_ref out[] = {tokens, c8};
  uint32_t router = sample_param(b, "router", MOEC_BF16, 2, (int64_t[]){4, 8});
  uint32_t experts = sample_param(b, "experts", MOEC_F32, 3, (int64_t[]){4, 8, 8});
  const int64_t gemm[] = {0, tokens, c4, c8, c8, c1, c1, c8};
  uint32_t s = sample_add(b, MOEC_STEP_GEMM, 2, x, router, 0, MOEC_F32, 2, scores, 8, gemm);
  uint32_t i = sample_add(b, MOEC_STEP_MOE_SELECT, 1, s, 0, 0, MOEC_I64, 2, chosen, 0, NULL);
  uint32_t v = pb_tensor(b, MOEC_BUFFER_STEP, MOEC_F32, 2, chosen);
  pb_step(b, MOEC_AT_STEP, MOEC_STEP_TOPK, 1, 2, (uint32_t[]){s, v, MOEC_NONE}, 2,
          (int64_t[]){1, 1});
  uint32_t perm = pb_tensor(b, MOEC_BUFFER_STEP, MOEC_I32, 1, list),
           inv = pb_tensor(b, MOEC_BUFFER_STEP, MOEC_I32, 1, list);
  uint32_t offsets = pb_tensor(b, MOEC_BUFFER_STEP, MOEC_I32, 1, ends);
  pb_step(b, MOEC_AT_STEP, MOEC_STEP_MOE_PLAN, 1, 3, (uint32_t[]){i, perm, inv, offsets}, 0, NULL)
      ->moe = 0;
  const int64_t k[] = {2};
  uint32_t rows = sample_add(b, MOEC_STEP_MOE_DISPATCH, 2, x, perm, 0, MOEC_F32, 2, wide, 1, k);
  uint32_t y = sample_add(b, MOEC_STEP_MOE_GROUPED_DOT, 3, rows, experts, offsets, MOEC_F32, 2,
                          wide, 1, (int64_t[]){1});
  uint32_t weighted =
      sample_add(b, MOEC_STEP_MOE_WEIGHT, 3, y, v, perm, MOEC_F32, 2, wide, 0, NULL);
  uint32_t sum = pb_tensor(b, MOEC_BUFFER_OUTPUT, MOEC_F32, 2, out);
  pb_step(b, MOEC_AT_STEP, MOEC_STEP_MOE_COMBINE, 4, 1,
          (uint32_t[]){weighted, inv, MOEC_NONE, x, sum}, 1, k)
      ->moe = 0;
  const moec_expr_ref gradient[] = {c4, c8, c8}, sums[] = {c4, c8};
  uint32_t back = sample_add(b, MOEC_STEP_MOE_DISPATCH, 3, x, perm, v, MOEC_F32, 2, wide, 1, k);
  sample_add(b, MOEC_STEP_MOE_GROUPED_OUTER, 3, back, rows, offsets, MOEC_F32, 3, gradient, 0, NULL);
  sample_add(b, MOEC_STEP_MOE_GROUP_SUM, 2, back, offsets, 0, MOEC_F32, 2, sums, 0, NULL);
  PB_ADD(b, moe_layers, (moec_plan_moe){i, v, offsets, 4, 2, 0, pb_str(b, "layer0"), MOEC_AT_STEP});
  pb_output(b, "y", sum);
}

static inline plan_builder *sample_build(void) {
  plan_builder *b = pb_create();
  moec_expr_ref batch = pb_symbol(b, "batch", -1), seq = pb_symbol(b, "seq", -1),
                c1 = pb_const(b, 1), c8 = pb_const(b, 8);
  moec_expr_ref tokens = pb_expr(b, MOEC_EXPR_MUL, batch, seq), c4 = pb_const(b, 4);
  moec_expr_ref padded = pb_expr(b, MOEC_EXPR_SUB, pb_expr(b, MOEC_EXPR_ADD, seq, c4), c1);
  const moec_expr_ref flat[] = {tokens, c8}, square[] = {batch, seq}, planes[] = {batch, c8, seq},
                      index[] = {c1, c1};
  const moec_expr_ref line[] = {c8}, grown[] = {batch, c8, padded};
  PB_ADD(b, functions, (moec_plan_function){.name = pb_str(b, "main"), .n_calls = 1});
  PB_ADD(b, calls, (moec_plan_call){0});
  uint32_t w = sample_param(b, "w", MOEC_F32, 1, (int64_t[]){8}),
           loaded = pb_tensor(b, MOEC_BUFFER_LOAD, MOEC_F32, 1, line);
  uint32_t kernel = sample_param(b, "kernel", MOEC_F32, 3, (int64_t[]){8, 1, 4});
  pb_step(b, MOEC_AT_LOAD, MOEC_STEP_COPY, 1, 1, (uint32_t[]){w, loaded}, 0, NULL);
  uint32_t bound = pb_tensor(b, MOEC_BUFFER_BIND, MOEC_F32, 1, line);
  pb_step(b, MOEC_AT_BIND, MOEC_STEP_CUMSUM, 1, 1, (uint32_t[]){loaded, bound}, 3,
          (int64_t[]){0, 1, 0});
  uint32_t x = pb_tensor(b, MOEC_BUFFER_INPUT, MOEC_F32, 2, flat),
           ids = pb_tensor(b, MOEC_BUFFER_INPUT, MOEC_I64, 2, square);
  pb_input(b, "x", x), pb_input(b, "ids", ids);
  sample_layer(b, tokens, x);
  uint32_t r =
      sample_add(b, MOEC_STEP_RANDOM, 0, 0, 0, 0, MOEC_F32, 3, planes, 2, (int64_t[]){1, 5});
  uint32_t c = sample_add(b, MOEC_STEP_CONV, 2, r, kernel, 0, MOEC_F32, 3, grown, 6,
                          (int64_t[]){1, 1, 3, 3, 1, 8});
  const int64_t zero = 0;
  moec_tensor one = {.dtype = MOEC_I64, .rank = 2, .dims = {1, 1}};
  uint32_t at = pb_static(b, MOEC_BUFFER_CONST, &one);
  PB_ADD(b, consts, (moec_plan_const){at, 0, pb_data(b, &zero, 8), 8});
  uint32_t u =
      sample_add(b, MOEC_STEP_RANDOM, 0, 0, 0, 0, MOEC_F32, 2, index, 2, (int64_t[]){0, 6});
  uint32_t e = sample_add(b, MOEC_STEP_SCATTER_ELEMENTS, 3, x, at, u, MOEC_F32, 2, flat, 2,
                          (int64_t[]){1, 1});
  const moec_expr_ref row[] = {c1, c8};
  uint32_t rows =
      sample_add(b, MOEC_STEP_RANDOM, 0, 0, 0, 0, MOEC_F32, 2, row, 2, (int64_t[]){0, 7});
  sample_add(b, MOEC_STEP_SCATTER_ND, 3, e, at, rows, MOEC_F32, 2, flat, 1, (int64_t[]){0});
  uint32_t z = pb_tensor(b, MOEC_BUFFER_OUTPUT, MOEC_F32, 3, grown);
  pb_step(b, MOEC_AT_STEP, MOEC_STEP_COPY, 1, 1, (uint32_t[]){c, z}, 0, NULL);
  pb_output(b, "z", z);
  PB_ADD(b, constraints,
         (moec_plan_constraint){tokens, pb_expr(b, MOEC_EXPR_MUL, seq, batch), pb_str(b, "n"),
                                pb_str(b, "w"), pb_str(b, "a == b")});
  return b;
}

#endif
