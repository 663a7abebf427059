/* The importer of com.microsoft::MoE: routing, then the expert region. */
#include <math.h>
#include <string.h>

#include "frontend/ops.h"

/* Operands by their place. */
enum { X, ROUTER, FC1, FC1_BIAS, FC2, FC2_BIAS, FC3, FC3_BIAS, N_OPERANDS };

typedef struct moe {
  moec_onnx *n;
  moec_value in[N_OPERANDS];
  int64_t k, experts;
  moec_value perm, inv, offsets;
} moe;

/* ---- activations -------------------------------------------------------------------------- */

static moec_value relu(moec_onnx *n, moec_value x) { return moec_with(n->b, MOEC_OP_MAX, x, 0); }
static moec_value gelu(moec_onnx *n, moec_value x) { return moec_gelu(n->b, x, true); }
static moec_value silu(moec_onnx *n, moec_value x) { return moec_swish(n->b, x, 1); }
static moec_value identity(moec_onnx *n, moec_value x) { return n->b->error ? (moec_value){0} : x; }

static const struct activation {
  const char *name;
  moec_value (*fn)(moec_onnx *n, moec_value x); /* NULL: swiglu, which has two operands */
} activations[] = {
    {"relu", relu}, {"gelu", gelu}, {"silu", silu}, {"identity", identity}, {"swiglu", NULL}};

static const struct activation *find_activation(const char *name) {
  for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
    if (strcmp(activations[i].name, name) == 0) return &activations[i];
  return NULL;
}

/* ---- what the node says ------------------------------------------------------------------- */

/* Earlier versions of the operator had other layouts: [E, H, inter], and fc2's weights as operand 3. */
static moec_status *check_weights(moe *e) {
  moec_onnx *n = e->n;
  static const uint32_t at[3] = {FC1, FC2, FC3};
  for (int i = 0; i < 3; i++) {
    if (!e->in[at[i]].i) continue;
    if (moec_b_ty(n->b, e->in[at[i]]).rank != 3)
      return moec_onnx_unsupported(
          n, "operand %u: expected weights [E, out, in], got %s (an early version of MoE?)", at[i],
          moec_onnx_text(n, e->in[at[i]]));
  }
  static const uint32_t bias_at[3] = {FC1_BIAS, FC2_BIAS, FC3_BIAS};
  for (int i = 0; i < 3; i++)
    if (e->in[bias_at[i]].i && moec_b_ty(n->b, e->in[bias_at[i]]).rank != 2)
      return moec_onnx_unsupported(
          n, "operand %u: expected a bias [E, out], got %s (an early version of MoE?)", bias_at[i],
          moec_onnx_text(n, e->in[bias_at[i]]));
  moec_dim hidden = moec_b_dim(n->b, e->in[X], -1);
  int64_t h, in;
  for (int i = 0; i < 3; i += 2) { /* FC1 and FC3 read the hidden state */
    moec_value w = e->in[at[i]];
    if (w.i && moec_dim_is_const(n->m, hidden, &h) &&
        moec_dim_is_const(n->m, moec_b_dim(n->b, w, 2), &in) && h != in)
      return moec_onnx_unsupported(
          n, "operand %u: expected weights [E, out, %lld], got %s (an early version of MoE?)",
          at[i], (long long)h, moec_onnx_text(n, w));
  }
  if (!moec_dim_is_const(n->m, moec_b_dim(n->b, e->in[FC1], 0), &e->experts))
    return moec_onnx_unsupported(n, "operand 2: the number of experts must be constant");
  return NULL;
}

static moec_status *read_moe(moe *e) {
  moec_onnx *n = e->n;
  e->k = moec_attr_int(n, "k", 1);
  if (moec_attr_int(n, "use_sparse_mixer", 0))
    return moec_onnx_unsupported(n, "use_sparse_mixer = 1");
  MOEC_TRY(moec_onnx_operands(n, 3, N_OPERANDS, e->in));
  if (!e->in[FC2].i) return moec_onnx_bad(n, "operand 4 (fc2_experts_weights) is missing");
  uint32_t rank = moec_b_ty(n->b, e->in[X]).rank;
  if (rank != 2 && rank != 3)
    return moec_onnx_bad(n, "operand 0: expected rank 2 or 3, got %s", moec_onnx_text(n, e->in[X]));
  if (moec_b_ty(n->b, e->in[ROUTER]).rank < 2)
    return moec_onnx_bad(n, "operand 1: expected [tokens, E], got %s",
                         moec_onnx_text(n, e->in[ROUTER]));
  MOEC_TRY(check_weights(e));
  if (e->k < 1 || e->k > e->experts)
    return moec_onnx_bad(n, "k: expected 1..%lld, got %lld", (long long)e->experts,
                         (long long)e->k);
  return NULL;
}

/* ---- the graph ---------------------------------------------------------------------------- */

/* The last axis kept, the others joined. */
static moec_value as_rows(moec_onnx *n, moec_value x) {
  moec_type_info t = moec_b_ty(n->b, x);
  moec_dim dims[2] = {t.dims[0], t.dims[t.rank - 1]};
  for (uint32_t i = 1; i + 1 < t.rank; i++) dims[0] = moec_dim_mul(n->m, dims[0], t.dims[i]);
  return moec_b_reshape(n->b, x, 2, dims);
}

/* The operand named "router_probs" holds logits. Returns the weights [T, k] and sorts the assignments. Of experts with
 * equal probability the lower index is chosen; onnxruntime's CPU kernel takes the higher one (docs/onnx.md). */
static moec_value route(moe *e) {
  moec_onnx *n = e->n;
  moec_builder *b = n->b;
  moec_value logits = as_rows(n, e->in[ROUTER]);
  moec_same_size(n, moec_b_dim(b, logits, 1), moec_dim_const(n->m, e->experts),
                 "MoE: experts of router and weights");
  moec_attrs_SOFTMAX soft = {.axis = 1};
  moec_value wide = moec_b_cast(b, logits, moec_inner(moec_b_ty(b, logits).dtype));
  moec_value probs = moec_b_op(b, MOEC_OP_SOFTMAX, &soft, 1, &wide, 1);
  moec_attrs_MOE_SELECT select = {.k = e->k};
  moec_value best = moec_b_op(b, MOEC_OP_MOE_SELECT, &select, 1, &probs, 1), in[2] = {probs, best};
  moec_attrs_GATHER_ELEMENTS gather = {.axis = 1};
  moec_value w = moec_b_op(b, MOEC_OP_GATHER_ELEMENTS, &gather, 2, in, 1);
  if (moec_attr_int(n, "normalize_routing_weights", 0))
    w = moec_b_binary(b, MOEC_OP_DIV, w, moec_b_reduce(b, MOEC_OP_REDUCE_SUM, w, 1, true));
  moec_attrs_MOE_PLAN plan = {.experts = e->experts};
  e->perm = moec_b_op(b, MOEC_OP_MOE_PLAN, &plan, 1, &best, 3);
  if (b->error) return (moec_value){0};
  moec_node at = moec_def(b->g, e->perm);
  e->inv = moec_out(b->g, at, 1), e->offsets = moec_out(b->g, at, 2);
  return w;
}

/* Every expert's matrix on its rows. Symbolic sizes of weights do not occur, so inference checks them. */
static moec_value linear(moe *e, moec_value rows, int weights) {
  moec_value in[4] = {rows, e->in[weights], e->offsets, e->in[weights + 1]};
  moec_attrs_MOE_GROUPED_DOT a = {.transposed = true};
  return moec_b_op(e->n->b, MOEC_OP_MOE_GROUPED_DOT, &a, in[3].i ? 4 : 3, in, 1);
}

/* Gate and value of a fused fc1: rows [g, l, g, l ...] (form 1) or [g ... | l ...] (form 2). */
static moec_status *split_fused(moe *e, moec_value rows, int64_t form, moec_value out[2]) {
  moec_onnx *n = e->n;
  moec_builder *b = n->b;
  moec_dim half = moec_dim_exact_div(n->m, moec_b_dim(b, rows, 1), moec_dim_const(n->m, 2));
  if (!moec_dim_known(half))
    return moec_onnx_bad(n, "operand 2: expected an even number of rows for swiglu_fusion, got %s",
                         moec_onnx_text(n, e->in[FC1]));
  for (int i = 0; i < 2; i++)
    out[i] = form == 1 ? moec_b_slice_by(b, rows, 1, moec_dim_const(n->m, i), half, 2)
                       : moec_b_slice(b, rows, 1, i ? half : moec_dim_const(n->m, 0), half);
  return moec_builder_end(b);
}

static moec_status *swiglu(moe *e, moec_value rows, moec_value *out) {
  moec_onnx *n = e->n;
  int64_t form = moec_attr_int(n, "swiglu_fusion", 0);
  double limit = moec_attr_float(n, "swiglu_limit", INFINITY);
  moec_attrs_SWIGLU a = {.alpha = moec_attr_float(n, "activation_alpha", 1),
                         .beta = moec_attr_float(n, "activation_beta", 0),
                         .limit = isfinite(limit) ? limit : 0};
  moec_value in[2] = {linear(e, rows, FC1), {0}};
  MOEC_TRY(moec_builder_end(n->b));
  if (limit <= 0 || isnan(limit))
    return moec_onnx_bad(n, "swiglu_limit: expected a positive number, got %g", limit);
  if (form < 0 || form > 2)
    return moec_onnx_bad(n, "swiglu_fusion: expected 0, 1 or 2, got %lld", (long long)form);
  if (form == 0 && !e->in[FC3].i)
    return moec_onnx_bad(n, "operand 6 (fc3_experts_weights) is missing for swiglu_fusion = 0");
  if (form != 0 && e->in[FC3].i)
    return moec_onnx_bad(n,
                         "operand 6 (fc3_experts_weights) is given although swiglu_fusion = %lld",
                         (long long)form);
  if (form == 0)
    in[1] = linear(e, rows, FC3);
  else
    MOEC_TRY(split_fused(e, in[0], form, in));
  *out = moec_b_op(n->b, MOEC_OP_SWIGLU, &a, 2, in, 1);
  return moec_builder_end(n->b);
}

/* With fc3 its result is multiplied by the activation: silu and fc3 are Mixtral's gated unit. */
static moec_status *experts(moe *e, moec_value rows, moec_value *out) {
  moec_onnx *n = e->n;
  const char *name = moec_attr_string(n, "activation_type", "relu");
  const struct activation *act = find_activation(name);
  if (!act)
    return moec_onnx_unsupported(
        n, "activation_type: expected relu, gelu, silu, swiglu or identity, got \"%s\"", name);
  if (!act->fn) return swiglu(e, rows, out);
  moec_value in[2] = {linear(e, rows, FC1), {0}};
  if (e->in[FC3].i) in[1] = linear(e, rows, FC3);
  moec_attrs_SWIGLU gated = {.alpha = 1};
  if (in[1].i && act->fn == silu) {
    *out = moec_b_op(n->b, MOEC_OP_SWIGLU, &gated, 2, in, 1);
  } else {
    *out = act->fn(n, in[0]);
    if (in[1].i) *out = moec_b_binary(n->b, MOEC_OP_MUL, *out, in[1]);
  }
  return moec_builder_end(n->b);
}

IMPORTER(moe) {
  moec_builder *b = n->b;
  moe e = {.n = n};
  moec_value hidden = {0};
  MOEC_TRY(read_moe(&e));
  moec_type_info whole = moec_b_ty(b, e.in[X]);
  moec_value w = route(&e), in[2] = {as_rows(n, e.in[X]), e.perm};
  moec_same_size(n, moec_b_dim(b, in[0], 0), moec_b_dim(b, w, 0),
                 "MoE: tokens of operands 0 and 1");
  moec_attrs_MOE_DISPATCH dispatch = {.k = e.k};
  moec_value rows = moec_b_op(b, MOEC_OP_MOE_DISPATCH, &dispatch, 2, in, 1);
  MOEC_TRY(moec_builder_end(b));
  MOEC_TRY(experts(&e, rows, &hidden));
  moec_value weigh[3] = {linear(&e, hidden, FC2), w, e.perm};
  moec_value combine_in[2] = {moec_b_op(b, MOEC_OP_MOE_WEIGHT, NULL, 3, weigh, 1), e.inv};
  moec_attrs_MOE_COMBINE combine = {.k = e.k};
  moec_value y = moec_b_op(b, MOEC_OP_MOE_COMBINE, &combine, 2, combine_in, 1);
  return moec_onnx_result(n, moec_b_reshape(b, y, whole.rank, whole.dims));
}
