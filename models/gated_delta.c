/* The gated delta rule of linear attention, for all positions at once.
 *
 *   S_t = e^{g_t} S_{t-1} + k_t (beta_t (v_t - k_t' e^{g_t} S_{t-1}))',   y_t = q_t' S_t
 *
 * Chunks of 64 positions, as transformers computes it. Inside a chunk the recurrence is the inverse of a unit lower
 * triangular matrix, built from the inverses of its diagonal blocks of 1, 2, 4, .. rows. Across chunks the state is
 * S -> A S + B; all prefixes of that come from log2(chunks) rounds of composing with the chunk 1, 2, 4, .. before,
 * so there is no loop and sequences of every length up to the model's are one graph. Longer ones fail: the state of
 * their later chunks would be wrong. Everything is f32. */
#include <math.h>

#include "models/family.h"

enum { CHUNK = 64, Q = 0, K, V, G, BETA, N_IN };

typedef struct rule {
  moec_llm *m;
  moec_writer *w;
  int64_t dk, dv;
} rule;

static moec_wv one_f(const rule *r, double v) { return moec_w_float(r->w, MOEC_F32, v); }

/* A constant [64, 64] of 0 and 1: |level| 0 the diagonal, -1 on and below it, -2 below it; else what joins two
 * diagonal blocks of |level| rows. */
static moec_wv pattern(const rule *r, int level) {
  const int64_t dims[2] = {CHUNK, CHUNK};
  float v[CHUNK * CHUNK];
  for (int i = 0; i < CHUNK; i++)
    for (int j = 0; j < CHUNK; j++) {
      bool on = level == 0    ? i == j
                : level == -1 ? j <= i
                : level == -2 ? j < i
                              : i / level % 2 == 1 && j / level == i / level - 1;
      v[i * CHUNK + j] = on;
    }
  return moec_w_const(r->w, MOEC_F32, 2, dims, v);
}

static moec_wv identity(const rule *r, int64_t n) {
  moec_wv rows = W(r->w, "Range", moec_w_int(r->w, 0), moec_w_int(r->w, n), moec_w_int(r->w, 1));
  return moec_l_cast(r->m, W(r->w, "Equal", rows, W(r->w, "Unsqueeze", rows, W_I64(r->w, 1, 1))), MOEC_BOOL, MOEC_F32);
}

static moec_wv mul(const rule *r, moec_wv a, moec_wv b) { return W(r->w, "Mul", a, b); }
static moec_wv dot(const rule *r, moec_wv a, moec_wv b) { return W(r->w, "MatMul", a, b); }
static moec_wv column(const rule *r, moec_wv x) { return W(r->w, "Unsqueeze", x, W_I64(r->w, 1, -1)); }
static moec_wv transposed(const rule *r, moec_wv x) {
  return WA(r->w, "Transpose", W_ATTRS(W_INTS("perm", 5, 0, 1, 2, 4, 3)), x);
}

/* x / |x| over the last axis */
static moec_wv unit(const rule *r, moec_wv x) {
  moec_wv sum = W(r->w, "ReduceSum", mul(r, x, x), W_I64(r->w, 1, -1));
  return mul(r, x, W(r->w, "Reciprocal", W(r->w, "Sqrt", W(r->w, "Add", sum, one_f(r, 1e-6)))));
}

/* [batch, heads, seq, ...] in whole chunks: [batch, heads, chunks, 64, ...]; zeros behind the end change nothing. */
static moec_wv in_chunks(const rule *r, moec_wv x, moec_wv missing, int64_t features) {
  moec_writer *w = r->w;
  const moec_wattr *joined = W_ATTRS(W_INT("axis", 0));
  moec_wv pads = features ? WA(w, "Concat", joined, W_I64(w, 6, 0, 0, 0, 0, 0, 0), missing, W_I64(w, 1, 0))
                          : WA(w, "Concat", joined, W_I64(w, 5, 0, 0, 0, 0, 0), missing);
  x = W(w, "Pad", x, pads);
  return features ? L_RESHAPE(r->m, x, 5, 0, 0, -1, CHUNK, features) : L_RESHAPE(r->m, x, 4, 0, 0, -1, CHUNK);
}

/* (1 + M)^-1 for strictly lower triangular M:  [A 0; C B]^-1 = [A^-1 0; -B^-1 C A^-1 B^-1] */
static moec_wv inverse(const rule *r, moec_wv lower) {
  moec_wv x = W(r->w, "Sub", pattern(r, 0), mul(r, lower, pattern(r, 1)));
  for (int level = 2; level < CHUNK; level *= 2)
    x = W(r->w, "Sub", x, dot(r, dot(r, x, mul(r, lower, pattern(r, level))), x));
  return x;
}

/* What lies |n| chunks before, zero where there is none. */
static moec_wv before(const rule *r, moec_wv x, int64_t n) {
  moec_wv padded = W(r->w, "Pad", x, W_I64(r->w, 10, 0, 0, n, 0, 0, 0, 0, 0, 0, 0));
  return moec_l_slice(r->m, padded, 2, 0, -n);
}

/* The state at the beginning of each chunk, from S -> a S + b of each. */
static moec_wv states(const rule *r, moec_wv a, moec_wv b, int64_t longest) {
  for (int64_t n = 1; n * CHUNK < longest; n *= 2) {
    b = W(r->w, "Add", dot(r, a, before(r, b, n)), b);
    if (2 * n * CHUNK < longest) a = dot(r, a, before(r, a, n));
  }
  return before(r, b, 1);
}

/* x [batch, heads, seq, features], for seq up to |longest|: a reshape says so, as there is no operator that fails. */
static moec_wv limited(const rule *r, moec_wv x, moec_wv seq, int64_t features, int64_t longest) {
  moec_writer *w = r->w;
  const moec_wattr *joined = W_ATTRS(W_INT("axis", 0));
  moec_w_scope(w, "sequences_up_to_%lld", (long long)longest); /* a name for the message */
  moec_wv most = W(w, "Min", seq, W_I64(w, 1, longest));
  x = W(w, "Reshape", x, WA(w, "Concat", joined, W_I64(w, 2, 0, 0), most, W_I64(w, 1, features)));
  x = W(w, "Reshape", x, WA(w, "Concat", joined, W_I64(w, 2, 0, 0), seq, W_I64(w, 1, features)));
  moec_w_scope(w, "%s", "");
  return x;
}

static moec_wv body(const rule *r, const moec_wv *in, int64_t longest) {
  moec_writer *w = r->w;
  moec_wv seq = WA(w, "Shape", W_ATTRS(W_INT("start", 2), W_INT("end", 3)), in[Q]), size = W_I64(w, 1, CHUNK);
  moec_wv chunks = W(w, "Div", W(w, "Add", seq, W_I64(w, 1, CHUNK - 1)), size);
  moec_wv missing = W(w, "Sub", W(w, "Mul", chunks, size), seq);
  moec_wv q = mul(r, unit(r, limited(r, in[Q], seq, r->dk, longest)), one_f(r, 1 / sqrt((double)r->dk)));
  q = in_chunks(r, q, missing, r->dk);
  moec_wv k = in_chunks(r, unit(r, in[K]), missing, r->dk), v = in_chunks(r, in[V], missing, r->dv);
  moec_wv g = in_chunks(r, in[G], missing, 0), beta = column(r, in_chunks(r, in[BETA], missing, 0));
  g = W(w, "CumSum", g, moec_w_int(w, -1));
  moec_wv apart = W(w, "Sub", column(r, g), W(w, "Unsqueeze", g, W_I64(w, 1, -2)));
  moec_wv seen = moec_l_cast(r->m, pattern(r, -1), MOEC_F32, MOEC_BOOL);
  moec_wv decay = W(w, "Exp", W(w, "Where", seen, apart, one_f(r, -INFINITY)));
  moec_wv kt = transposed(r, k), kb = mul(r, k, beta), grown = column(r, W(w, "Exp", g));
  moec_wv inv = inverse(r, mul(r, mul(r, dot(r, kb, kt), decay), pattern(r, -2)));
  moec_wv u = dot(r, inv, mul(r, v, beta)), wk = dot(r, inv, mul(r, kb, grown));
  moec_wv last = moec_l_slice(r->m, g, 3, -1, INT64_MAX);
  moec_wv left = transposed(r, mul(r, k, column(r, W(w, "Exp", W(w, "Sub", last, g)))));
  moec_wv a = W(w, "Sub", mul(r, column(r, W(w, "Exp", last)), identity(r, r->dk)), dot(r, left, wk));
  moec_wv s = states(r, a, dot(r, left, u), longest);
  moec_wv fresh = W(w, "Sub", u, dot(r, wk, s));
  moec_wv y = W(w, "Add", dot(r, mul(r, q, grown), s), dot(r, mul(r, dot(r, q, kt), decay), fresh));
  y = L_RESHAPE(r->m, y, 4, 0, 0, -1, r->dv);
  return W(w, "Slice", y, W_I64(w, 1, 0), seq, W_I64(w, 1, 2));
}

moec_wv moec_l_gated_delta(moec_llm *m, const moec_wv in[5], int64_t dk, int64_t dv) {
  static const char *const names[N_IN] = {"q", "k", "v", "g", "beta"};
  moec_wv formal[N_IN];
  const char *scope = m->at;
  int64_t longest = moec_cfg_int_or(m->c, "max_position_embeddings", 0);
  if (longest < 1 << 16) longest = 1 << 16;
  rule r = {m, m->w, dk, dv};
  const char *doc = moec_arena_printf(m->arena, "the gated delta rule, for sequences up to %lld", (long long)longest);
  if (moec_w_fn_begin(m->w, "GatedDeltaRule", doc, N_IN, names, formal)) {
    moec_w_scope(m->w, "%s", "");
    moec_wv y = body(&r, formal, longest);
    moec_w_fn_end(m->w, 1, &y);
  }
  moec_w_scope(m->w, "%s", scope);
  return moec_w_call(m->w, "GatedDeltaRule", N_IN, in);
}
