/* Bodies of the expert region. Assignment a = token*k + slot; row r of the sorted assignments. */
#include "ir/body_internal.h"

static moec_value gather_rows(moec_builder *b, moec_value x, moec_value index) {
  moec_attrs_GATHER a = {.axis = 0};
  moec_value in[2] = {x, index};
  return moec_b_op(b, MOEC_OP_GATHER, &a, 2, in, 1);
}

void moec_body_moe_select(moec_body *k) {
  moec_attrs_TOPK a = {.k = moec_dim_const(k->m, ((const moec_attrs_MOE_SELECT *)k->attrs)->k),
                       .axis = 1,
                       .largest = true};
  moec_value best = moec_b_op(k->b, MOEC_OP_TOPK, &a, 1, k->in, 2);
  if (!k->b->error) k->out[0] = moec_out(k->b->g, moec_def(k->b->g, best), 1);
}

/* How many assignments go to experts below 0 .. E. */
static moec_value count_below(moec_body *k, moec_value experts, int64_t n_experts) {
  moec_builder *b = k->b;
  moec_dim e1 = moec_dim_const(k->m, n_experts + 1);
  moec_value below = moec_b_binary(b, MOEC_OP_LT, moec_b_unsqueeze(b, experts, -1),
                                   moec_b_iota(b, MOEC_I64, 1, &e1, 0));
  return moec_b_reduce(b, MOEC_OP_REDUCE_SUM, moec_b_cast(b, below, MOEC_I32), 0, false);
}

void moec_body_moe_plan(moec_body *k) {
  moec_builder *b = k->b;
  moec_dim n = moec_type_numel(k->m, moec_value_get(b->g, k->in[0])->type);
  moec_value experts = moec_b_reshape(b, k->in[0], 1, &n);
  moec_attrs_TOPK sort = {.k = n, .axis = 0, .largest = false}; /* of all elements: stable */
  moec_value sorted = moec_b_op(b, MOEC_OP_TOPK, &sort, 1, &experts, 2);
  if (b->error) return;
  moec_value perm = moec_out(b->g, moec_def(b->g, sorted), 1);
  moec_value rows = moec_b_iota(b, MOEC_I32, 1, &n, 0), in[3] = {rows, perm, rows};
  moec_attrs_SCATTER_ELEMENTS put = {.axis = 0};
  k->out[0] = moec_b_cast(b, perm, MOEC_I32);
  k->out[1] = moec_b_op(b, MOEC_OP_SCATTER_ELEMENTS, &put, 3, in, 1);
  k->out[2] = count_below(k, experts, ((const moec_attrs_MOE_PLAN *)k->attrs)->experts);
}

void moec_body_moe_dispatch(moec_body *k) {
  moec_builder *b = k->b;
  int64_t slots = ((const moec_attrs_MOE_DISPATCH *)k->attrs)->k;
  moec_value token = moec_b_binary(b, MOEC_OP_DIV, k->in[1], moec_b_scalar_i(b, MOEC_I32, slots));
  k->out[0] = gather_rows(b, k->in[0], token);
}

/* The expert of each of |n| rows: how many of offsets[1..E] are at most r. */
static moec_value row_experts(moec_body *k, moec_dim n, moec_value offsets) {
  moec_builder *b = k->b;
  moec_dim one = moec_dim_const(k->m, 1), e = moec_dim_sub(k->m, moec_b_dim(b, offsets, 0), one);
  moec_value ends = moec_b_slice(b, offsets, 0, one, e);
  moec_value row = moec_b_unsqueeze(b, moec_b_iota(b, MOEC_I32, 1, &n, 0), -1);
  moec_value passed = moec_b_cast(b, moec_b_binary(b, MOEC_OP_LE, ends, row), MOEC_I32);
  return moec_b_reduce(b, MOEC_OP_REDUCE_SUM, passed, 1, false);
}

void moec_body_moe_grouped_dot(moec_body *k) {
  moec_builder *b = k->b;
  bool transposed = ((const moec_attrs_MOE_GROUPED_DOT *)k->attrs)->transposed;
  moec_value bias = moec_body_in(k, 3);
  moec_value expert = row_experts(k, moec_b_dim(b, k->in[0], 0), k->in[2]);
  moec_dtype t = moec_b_ty(b, k->in[0]).dtype, inner = bias.i ? moec_wide(t) : t;
  moec_value w = gather_rows(b, moec_b_cast(b, k->in[1], inner), expert);
  moec_value in[2] = {moec_b_cast(b, k->in[0], inner), w};
  int64_t batch[1] = {0}, lc[1] = {1}, rc[1] = {transposed ? 2 : 1};
  moec_attrs_DOT dot = {.lhs_batch = {1, batch},
                        .rhs_batch = {1, batch},
                        .lhs_contract = {1, lc},
                        .rhs_contract = {1, rc}};
  moec_value y = moec_b_op(b, MOEC_OP_DOT, &dot, 2, in, 1);
  if (bias.i)
    y = moec_b_binary(b, MOEC_OP_ADD, y, gather_rows(b, moec_b_cast(b, bias, inner), expert));
  k->out[0] = moec_b_cast(b, y, t);
}

void moec_body_moe_weight(moec_body *k) {
  moec_builder *b = k->b;
  moec_type w_type = moec_value_get(b->g, k->in[1])->type;
  moec_dtype t = moec_b_ty(b, k->in[0]).dtype, w_t = moec_b_ty(b, k->in[1]).dtype;
  moec_dtype wide = t == MOEC_F64 || w_t == MOEC_F64 ? MOEC_F64 : MOEC_F32;
  moec_dim n = moec_type_numel(k->m, w_type);
  moec_value w = moec_b_reshape(b, moec_b_cast(b, k->in[1], wide), 1, &n);
  w = moec_b_unsqueeze(b, gather_rows(b, w, k->in[2]), -1);
  moec_value y = moec_b_binary(b, MOEC_OP_MUL, moec_b_cast(b, k->in[0], wide), w);
  k->out[0] = moec_b_cast(b, y, t);
}

/* One addition a slot, since a sum of several would leave their order open. */
void moec_body_moe_combine(moec_body *k) {
  moec_builder *b = k->b;
  int64_t slots = ((const moec_attrs_MOE_COMBINE *)k->attrs)->k;
  moec_dtype t = moec_b_ty(b, k->in[0]).dtype;
  moec_dim count = moec_dim_const(k->m, slots), one = moec_dim_const(k->m, 1);
  moec_dim dims[3] = {moec_dim_exact_div(k->m, moec_b_dim(b, k->in[0], 0), count), count,
                      moec_b_dim(b, k->in[0], 1)};
  moec_value rows = moec_b_reshape(b, gather_rows(b, k->in[0], k->in[1]), 3, dims), sum = {0};
  rows = moec_b_cast(b, rows, moec_wide(t));
  for (int64_t j = 0; j < slots && !b->error; j++) {
    moec_value x = moec_b_squeeze(b, moec_b_slice(b, rows, 1, moec_dim_const(k->m, j), one), 1);
    sum = j ? moec_b_binary(b, MOEC_OP_ADD, sum, x) : x;
  }
  moec_dtype dtype = ((const moec_attrs_MOE_COMBINE *)k->attrs)->dtype;
  k->out[0] = moec_b_cast(b, sum, dtype ? dtype : t);
}

/* x[N, M] once an expert, [E, N, M] in |t|: zeros where the row belongs to another. A product with a
 * mask instead would let NaN and infinities of one expert into all. */
static moec_value split_groups(moec_body *k, moec_value x, moec_value offsets, moec_dtype t) {
  moec_builder *b = k->b;
  moec_dim one = moec_dim_const(k->m, 1);
  moec_dim e = moec_dim_sub(k->m, moec_b_dim(b, offsets, 0), one);
  moec_value expert = row_experts(k, moec_b_dim(b, x, 0), offsets); /* [N] */
  moec_value of = moec_b_unsqueeze(b, moec_b_iota(b, MOEC_I32, 1, &e, 0), -1);
  moec_value own =
      moec_b_unsqueeze(b, moec_b_binary(b, MOEC_OP_EQ, of, expert), -1); /* [E, N, 1] */
  return moec_b_select(b, own, moec_b_cast(b, x, t), moec_b_scalar_f(b, t, 0));
}

void moec_body_moe_grouped_outer(moec_body *k) {
  moec_builder *b = k->b;
  moec_dtype t = moec_b_ty(b, k->in[0]).dtype, wide = moec_wide(t);
  moec_value in[2] = {split_groups(k, k->in[0], k->in[2], wide),
                      split_groups(k, k->in[1], k->in[2], wide)};
  int64_t batch[1] = {0}, rows[1] = {1};
  moec_attrs_DOT dot = {.lhs_batch = {1, batch},
                        .rhs_batch = {1, batch},
                        .lhs_contract = {1, rows},
                        .rhs_contract = {1, rows}};
  k->out[0] = moec_b_cast(b, moec_b_op(b, MOEC_OP_DOT, &dot, 2, in, 1), t);
}

void moec_body_moe_group_sum(moec_body *k) {
  moec_dtype t = moec_b_ty(k->b, k->in[0]).dtype;
  moec_value x = split_groups(k, k->in[0], k->in[1], moec_wide(t));
  k->out[0] = moec_b_cast(k->b, moec_b_reduce(k->b, MOEC_OP_REDUCE_SUM, x, 1, false), t);
}
