/* Mixture-of-experts layers: one local function a model, called by every layer.
 *
 *   MoE(x, router, [bias], gate_up, [bias], down, [bias])
 *     tokens [T,H] ─► router's product ─► scores ─► top k ─► weights [T,k], experts [T,k]
 *     rows of tokens [T*k,H] · gate_up[experts] ─► activation ─► · down[experts] ─► * weights ─► sum over k
 *
 * The body is in standard operators and gathers the weights of every assignment, which no engine should do for a big
 * model; moec recognises the pattern and never does. */
#include <string.h>

#include "models/layers.h"

enum { X, ROUTER, ROUTER_BIAS, CHOICE_BIAS, GATE_UP, GATE_UP_BIAS, DOWN, DOWN_BIAS, N_OPERANDS };
static const char *const operand_names[N_OPERANDS] = {"x",       "router",       "router_bias", "choice_bias",
                                                      "gate_up", "gate_up_bias", "down",        "down_bias"};

typedef struct body {
  moec_llm *m;
  moec_writer *w;
  const moec_moe *s;
  moec_wv in[N_OPERANDS];
} body;

/* ---- activation ------------------------------------------------------------------------------ */

moec_wv moec_l_swiglu_oai(moec_llm *m, moec_wv gate, moec_wv up, double alpha, double limit) {
  moec_writer *w = m->w;
  moec_wv none = {0}, top = moec_w_float(w, m->dtype, limit);
  gate = W(w, "Clip", gate, none, top);
  up = W(w, "Clip", up, moec_w_float(w, m->dtype, -limit), top);
  moec_wv glu = moec_l_mul(m, gate, W(w, "Sigmoid", moec_l_mul(m, gate, moec_w_float(w, m->dtype, alpha))));
  return moec_l_mul(m, moec_l_add(m, up, moec_w_float(w, m->dtype, 1)), glu);
}

/* [rows, 2*inner] to [rows, inner]. */
static moec_wv activation(const body *b, moec_wv h) {
  const moec_moe *s = b->s;
  moec_wv half[2];
  if (s->interleaved) {
    for (int64_t i = 0; i < 2; i++)
      half[i] = W(b->w, "Slice", h, W_I64(b->w, 1, i), W_I64(b->w, 1, INT64_MAX), W_I64(b->w, 1, 1), W_I64(b->w, 1, 2));
  } else {
    moec_w_node(b->w, "", "Split", W_ATTRS(W_INT("axis", -1), W_INT("num_outputs", 2)), 1, &h, 2, half, NULL);
  }
  if (s->act == MOEC_ACT_OAI) return moec_l_swiglu_oai(b->m, half[0], half[1], s->alpha, s->limit);
  return moec_l_mul(b->m, moec_l_silu(b->m, half[0]), half[1]);
}

/* ---- router ---------------------------------------------------------------------------------- */

static void top_k(const body *b, moec_wv x, int64_t k, moec_wv out[2]) {
  moec_wv in[2] = {x, W_I64(b->w, 1, k)};
  moec_w_node(b->w, "", "TopK", W_ATTRS(W_INT("axis", -1), W_INT("largest", 1), W_INT("sorted", 1)), 2, in, 2, out,
              NULL);
}

static moec_wv sum_last(const body *b, moec_wv x, bool keep) {
  return WA(b->w, "ReduceSum", W_ATTRS(W_INT("keepdims", keep)), x, W_I64(b->w, 1, -1));
}

/* Which groups are the best, as bool [T, groups, 1]. */
static moec_wv best_groups(const body *b, moec_wv choice) {
  const moec_moe *s = b->s;
  moec_wv top[2], score, groups = L_RESHAPE(b->m, choice, 3, -1, s->groups, s->experts / s->groups);
  if (s->group_score == MOEC_GROUP_BY_TOP2) {
    top_k(b, groups, 2, top);
    score = sum_last(b, top[0], false);
  } else {
    score = WA(b->w, "ReduceMax", W_ATTRS(W_INT("keepdims", 0)), groups, W_I64(b->w, 1, -1));
  }
  top_k(b, score, s->groups_kept, top);
  moec_wv zero = moec_w_float(b->w, MOEC_F32, 0), one = moec_w_float(b->w, MOEC_F32, 1);
  moec_wv none = W(b->w, "Expand", zero, W(b->w, "Shape", score));
  moec_wv kept = WA(b->w, "ScatterElements", W_ATTRS(W_INT("axis", 1)), none, top[1],
                    W(b->w, "Expand", one, W(b->w, "Shape", top[1])));
  return W(b->w, "Unsqueeze", moec_l_cast(b->m, kept, MOEC_F32, MOEC_BOOL), W_I64(b->w, 1, -1));
}

/* Scores [T,E] outside the kept groups replaced. */
static moec_wv exclude_groups(const body *b, moec_wv choice) {
  const moec_moe *s = b->s;
  moec_wv kept = best_groups(b, choice);
  moec_wv all = W(b->w, "Expand", kept, W_I64(b->w, 3, 1, 1, s->experts / s->groups));
  return W(b->w, "Where", L_RESHAPE(b->m, all, 2, -1, s->experts), choice, moec_w_float(b->w, MOEC_F32, s->excluded));
}

static moec_wv logits_of(const body *b, moec_wv tokens) {
  moec_dtype t = b->s->wide_router ? MOEC_F32 : b->m->dtype;
  moec_wv x = moec_l_cast(b->m, tokens, b->m->dtype, t);
  moec_wv y = W(b->w, "MatMul", x, WA(b->w, "Transpose", W_ATTRS(W_INTS("perm", 2, 1, 0)), b->in[ROUTER]));
  if (b->s->bias) y = moec_l_add(b->m, y, b->in[ROUTER_BIAS]);
  return moec_l_cast(b->m, y, t, MOEC_F32);
}

/* Weights [T,k] in f32 and experts [T,k]. */
static moec_wv route(const body *b, moec_wv tokens, moec_wv *experts) {
  const moec_moe *s = b->s;
  moec_wv top[2], weights, scores = logits_of(b, tokens), choice;
  const moec_wattr *last = W_ATTRS(W_INT("axis", -1));
  if (s->score == MOEC_SCORE_SOFTMAX) scores = WA(b->w, "Softmax", last, scores);
  if (s->score == MOEC_SCORE_SIGMOID) scores = W(b->w, "Sigmoid", scores);
  choice = s->choice_bias ? moec_l_add(b->m, scores, b->in[CHOICE_BIAS]) : scores;
  bool own = !s->choice_bias && !s->groups; /* the chosen values are the scores */
  if (s->groups) choice = exclude_groups(b, choice);
  top_k(b, choice, s->k, top);
  weights = own ? top[0] : WA(b->w, "GatherElements", W_ATTRS(W_INT("axis", 1)), scores, top[1]);
  if (s->score == MOEC_SCORE_SOFTMAX_OF_CHOSEN) weights = WA(b->w, "Softmax", last, weights);
  if (s->normalise) {
    moec_wv sum = sum_last(b, weights, true);
    if (s->sum_eps != 0) sum = moec_l_add(b->m, sum, moec_w_float(b->w, MOEC_F32, s->sum_eps));
    weights = W(b->w, "Div", weights, sum);
  }
  if (s->scale != 1) weights = moec_l_mul(b->m, weights, moec_w_float(b->w, MOEC_F32, s->scale));
  *experts = top[1];
  return weights;
}

/* ---- experts --------------------------------------------------------------------------------- */

/* Each row with the matrix of its expert: [N, in] to [N, out]. */
static moec_wv product(const body *b, moec_wv rows, moec_wv expert, int weights, int bias) {
  int64_t axis = b->s->input_major ? 1 : -1; /* where a row becomes a matrix */
  moec_wv gathered = WA(b->w, "Gather", W_ATTRS(W_INT("axis", 0)), b->in[weights], expert);
  moec_wv matrix = W(b->w, "Unsqueeze", rows, W_I64(b->w, 1, axis));
  moec_wv y = b->s->input_major ? W(b->w, "MatMul", matrix, gathered) : W(b->w, "MatMul", gathered, matrix);
  y = W(b->w, "Squeeze", y, W_I64(b->w, 1, axis));
  if (!b->s->bias) return y;
  return moec_l_add(b->m, y, WA(b->w, "Gather", W_ATTRS(W_INT("axis", 0)), b->in[bias], expert));
}

static moec_wv write_body(const body *b) {
  moec_llm *m = b->m;
  int64_t k = b->s->k;
  moec_wv chosen, tokens = L_RESHAPE(m, b->in[X], 2, -1, m->hidden);
  moec_wv weights = moec_l_cast(m, route(b, tokens, &chosen), MOEC_F32, m->dtype);
  moec_wv expert = L_RESHAPE(m, chosen, 1, -1);
  moec_wv repeated = W(b->w, "Expand", W(b->w, "Unsqueeze", tokens, W_I64(b->w, 1, 1)), W_I64(b->w, 3, 1, k, 1));
  moec_wv rows = L_RESHAPE(m, repeated, 2, -1, m->hidden);
  rows = activation(b, product(b, rows, expert, GATE_UP, GATE_UP_BIAS));
  rows = product(b, rows, expert, DOWN, DOWN_BIAS);
  rows = moec_l_mul(m, rows, L_RESHAPE(m, weights, 2, -1, 1));
  moec_wv sum =
      WA(b->w, "ReduceSum", W_ATTRS(W_INT("keepdims", 0)), L_RESHAPE(m, rows, 3, -1, k, m->hidden), W_I64(b->w, 1, 1));
  return W(b->w, "Reshape", sum, W(b->w, "Shape", b->in[X]));
}

/* ---- weights ----------------------------------------------------------------------------------- */

/* One tensor an expert, [1, out, in] each, joined along axis 0 (or, with two names, first along 1). */
static moec_wv stack(moec_llm *m, const moec_moe *s, const char *name, const char *const *parts, int n_parts,
                     int64_t out, int64_t in) {
  const int64_t dims[2] = {out, in};
  moec_wv *v = MOEC_NEW_ARRAY(m->arena, moec_wv, (size_t)s->experts), part[2], y;
  moec_w_scope(m->w, "%s", m->at);
  for (int p = 0; p < n_parts; p++) {
    for (int64_t e = 0; e < s->experts; e++) {
      const char *tensor = moec_arena_printf(m->arena, "experts.%lld.%s.weight", (long long)e, parts[p]);
      v[e] = moec_l_piece(m, tensor, NULL, dims);
    }
    const char *whole = n_parts == 1 ? moec_arena_printf(m->arena, "%s.%s", m->at, name) : NULL;
    moec_w_node(m->w, "", "Concat", W_ATTRS(W_INT("axis", 0)), (uint32_t)s->experts, v, 1, &part[p], &whole);
  }
  const char *both = moec_arena_printf(m->arena, "%s.%s", m->at, name);
  if (n_parts == 2) moec_w_node(m->w, "", "Concat", W_ATTRS(W_INT("axis", 1)), 2, part, 1, &y, &both);
  return n_parts == 2 ? y : part[0];
}

/* gate_up [E, 2I, H] and down [E, H, I], or their transposes, from either way to store them. */
static void expert_weights(moec_llm *m, const moec_moe *s, moec_wv *in) {
  const int64_t major = s->input_major;
  const int64_t gate_up[3] = {s->experts, major ? m->hidden : 2 * s->inner, major ? 2 * s->inner : m->hidden};
  const int64_t down[3] = {s->experts, major ? s->inner : m->hidden, major ? m->hidden : s->inner};
  const char *first = s->expert ? moec_arena_printf(m->arena, "experts.0.%s.weight", s->expert[0]) : NULL;
  if (first && moec_l_has(m, first)) {
    in[GATE_UP] = stack(m, s, "experts.gate_up_proj", s->expert, 2, s->inner, m->hidden);
    in[DOWN] = stack(m, s, "experts.down_proj", s->expert + 2, 1, m->hidden, s->inner);
  } else {
    in[GATE_UP] = moec_l_weight(m, "experts.gate_up_proj", NULL, MOEC_CK_NORMAL, m->dtype, 3, gate_up);
    in[DOWN] = moec_l_weight(m, "experts.down_proj", NULL, MOEC_CK_NORMAL, m->dtype, 3, down);
  }
  if (!s->bias) return;
  in[GATE_UP_BIAS] = moec_l_weight(m, "experts.gate_up_proj_bias", NULL, MOEC_CK_ZEROS, m->dtype, 2,
                                   (int64_t[]){s->experts, 2 * s->inner});
  in[DOWN_BIAS] =
      moec_l_weight(m, "experts.down_proj_bias", NULL, MOEC_CK_ZEROS, m->dtype, 2, (int64_t[]){s->experts, m->hidden});
}

static moec_status *check(const moec_moe *s) {
  if (s->k > s->experts)
    return moec_error(MOEC_INVALID_MODEL,
                      "config.json: num_experts_per_tok: expected at most the %lld experts, got %lld",
                      (long long)s->experts, (long long)s->k);
  if (s->groups && (s->experts % s->groups || s->groups_kept > s->groups || s->groups_kept < 1 ||
                    s->k > s->experts / s->groups * s->groups_kept ||
                    (s->group_score == MOEC_GROUP_BY_TOP2 && s->experts / s->groups < 2)))
    return moec_error(MOEC_INVALID_MODEL,
                      "config.json: n_group, topk_group: %lld of %lld groups cannot give %lld of %lld experts",
                      (long long)s->groups_kept, (long long)s->groups, (long long)s->k, (long long)s->experts);
  return NULL;
}

moec_wv moec_l_moe(moec_llm *m, moec_wv x, const moec_moe *s) {
  moec_wv given[N_OPERANDS] = {[X] = x}, in[N_OPERANDS];
  const char *names[N_OPERANDS];
  const int64_t router[2] = {s->experts, m->hidden};
  body b = {.m = m, .w = m->w, .s = s};
  uint32_t n = 0;
  moec_w_fail(m->w, check(s));
  given[ROUTER] = moec_l_weight(m, s->gate, NULL, MOEC_CK_NORMAL, s->wide_router ? MOEC_F32 : m->dtype, 2, router);
  if (s->bias) given[ROUTER_BIAS] = moec_l_vector(m, s->router_bias, MOEC_CK_ZEROS, m->dtype, s->experts);
  if (s->choice_bias)
    given[CHOICE_BIAS] = moec_l_vector(m, "gate.e_score_correction_bias", MOEC_CK_ZEROS, MOEC_F32, s->experts);
  if (s->choice_bias) moec_l_untrained(m, "gate.e_score_correction_bias");
  expert_weights(m, s, given);
  for (int i = 0; i < N_OPERANDS; i++)
    if (given[i].name) names[n] = operand_names[i], in[n++] = given[i];
  moec_wv formal[N_OPERANDS];
  const char *scope = m->at;
  if (moec_w_fn_begin(m->w, "MoE", "a mixture-of-experts layer: router, top k, experts, weighted sum", n, names,
                      formal)) {
    moec_w_scope(m->w, "%s", "");
    for (uint32_t i = 0, k = 0; i < N_OPERANDS; i++)
      if (given[i].name) b.in[i] = formal[k++];
    moec_wv y = write_body(&b);
    moec_w_fn_end(m->w, 1, &y);
  }
  moec_w_scope(m->w, "%s", scope);
  return moec_w_call(m->w, "MoE", n, in);
}
