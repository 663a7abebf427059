/* The vocabulary of decoder models, written with the ONNX writer. A model is a function over one moec_llm that reads
 * like the architecture (models/families.def). Values are [batch, seq, features] unless said otherwise. */
#ifndef MOEC_MODELS_LAYERS_H
#define MOEC_MODELS_LAYERS_H

#include "models/checkpoint.h"
#include "models/config.h"
#include "models/writer.h"

typedef struct moec_rope {
  int64_t dim;        /* rotated features of a head, even */
  moec_wv cos, sin;   /* [batch, seq, dim/2] */
  bool interleaved;   /* pairs (0,1), (2,3), ...; else (0, dim/2), ... */
  double mscale_all;  /* yarn's factor from mscale_all_dim; 1: none */
} moec_rope;

/* Names of older checkpoints: |now| at the beginning of a weight's name in its module is |then| there. */
typedef struct moec_l_alias {
  const char *now, *then;
} moec_l_alias;

typedef struct moec_llm {
  moec_writer *w;
  moec_config *c;       /* the text model's object of config.json */
  moec_checkpoint *ck;
  moec_buf *remarks;
  moec_arena *arena;
  moec_dtype dtype;     /* of activations: the embedding's */
  bool tied;            /* lm_head is the embedding */
  const char *stored_root; /* what the checkpoint has for "model" at the beginning of names */
  const char *stored_head; /* and for "lm_head" */
  const moec_l_alias *aliases; /* ended by a NULL; NULL: none */
  int64_t hidden, n_layers, vocab;
  double eps;
  bool centred;         /* norms scale by 1 + weight */
  const char *at, *stored; /* the module being written: as transformers names it, and as the checkpoint does */
  moec_wv ids, visible; /* [batch, seq]: token ids; where attention_mask is not 0 */
  moec_wv pad;          /* [batch, 1, seq, seq]: 0, or the least float for hidden keys */
} moec_llm;

/* ---- modules and weights -------------------------------------------------------------------- */

/* Following weights belong to this module below "model", "layers.3.self_attn"; the checkpoint calls it so too. */
void moec_l_at(moec_llm *m, const char *fmt, ...) MOEC_PRINTF(2, 3);
/* The last name of the module in the checkpoint, where it differs: "block_sparse_moe" for "mlp". */
void moec_l_stored_as(moec_llm *m, const char *last);
bool moec_l_has(moec_llm *m, const char *name); /* the checkpoint has this tensor of the module */
/* A weight of the module as |t|; |stored|: its name in the checkpoint, NULL: the same. */
moec_wv moec_l_weight(moec_llm *m, const char *name, const char *stored, moec_ck_init init, moec_dtype t, uint32_t rank,
                      const int64_t *dims);
/* A matrix of the module with an axis of size 1 in front: one expert of many. */
moec_wv moec_l_piece(moec_llm *m, const char *name, const char *stored, const int64_t dims[2]);
/* The weight |name| of the module is a buffer: training must leave it alone. */
void moec_l_untrained(moec_llm *m, const char *name);
moec_wv moec_l_vector(moec_llm *m, const char *name, moec_ck_init init, moec_dtype t, int64_t n);

/* Keys that mean nothing to any model here are none that are unknown. */
void moec_l_ignore_common(moec_config *c);

/* ---- the frame of every model ----------------------------------------------------------------- */

/* Common keys of config.json, inputs, masks; |d|: of the family. */
void moec_l_begin(moec_llm *m, const moec_cfg_default *d);
moec_wv moec_l_embed(moec_llm *m);
void moec_l_logits(moec_llm *m, moec_wv x);   /* final norm, lm_head, the output "logits" */

/* ---- layers ----------------------------------------------------------------------------------- */

moec_wv moec_l_cast(moec_llm *m, moec_wv x, moec_dtype from, moec_dtype to);
moec_wv moec_l_add(moec_llm *m, moec_wv x, moec_wv y);
moec_wv moec_l_mul(moec_llm *m, moec_wv x, moec_wv y);
moec_wv moec_l_reshape(moec_llm *m, moec_wv x, uint32_t rank, const int64_t *shape); /* 0: as in x, -1: the rest */
#define L_RESHAPE(m, x, n, ...) moec_l_reshape((m), (x), (n), (const int64_t[]){__VA_ARGS__})
moec_wv moec_l_slice(moec_llm *m, moec_wv x, int64_t axis, int64_t start, int64_t end); /* end: INT64_MAX: all */
/* Several linear layers of x whose weights [out, in] are stored apart, as one of the name |whole|. */
moec_wv moec_l_joined_linear(moec_llm *m, moec_wv x, const char *whole, const char *const *parts, uint32_t n,
                             int64_t in, int64_t out);
moec_wv moec_l_linear(moec_llm *m, moec_wv x, const char *name, int64_t in, int64_t out, bool bias);
moec_wv moec_l_norm(moec_llm *m, moec_wv x, const char *name, int64_t n);          /* over the last axis */
moec_wv moec_l_norm_eps(moec_llm *m, moec_wv x, const char *name, int64_t n, double eps, bool centred);
moec_wv moec_l_silu(moec_llm *m, moec_wv x);
/* down(silu(gate(x)) * up(x)) with weights name.gate_proj, ... */
moec_wv moec_l_swiglu_mlp(moec_llm *m, moec_wv x, const char *name, int64_t inner);

/* [batch, seq, heads*dim] as [batch, heads, seq, dim], and back. */
moec_wv moec_l_heads(moec_llm *m, moec_wv x, int64_t heads, int64_t dim);
moec_wv moec_l_join_heads(moec_llm *m, moec_wv x, int64_t width);

/* Tables from config.json for heads of |head_dim| features (models/rope.c). */
void moec_l_rope_tables(moec_llm *m, int64_t head_dim, moec_rope *out);
moec_wv moec_l_rotate(moec_llm *m, const moec_rope *r, moec_wv x, int64_t heads); /* [batch, heads, seq, dim] */

/* Causal attention over heads [batch, heads, seq, dim]; fewer key heads are shared; window 0: none. */
moec_wv moec_l_attention(moec_llm *m, moec_wv q, moec_wv k, moec_wv v, double scale, int64_t window);
/* The same where |mask|, added to the scores, says what is hidden beyond the causal rule. */
moec_wv moec_l_masked_attention(moec_llm *m, moec_wv q, moec_wv k, moec_wv v, double scale, moec_wv mask);
/* 0 where |seen| is true and attention_mask is not 0, else the least float; bool [batch, heads, seq, seq]. */
moec_wv moec_l_hide(moec_llm *m, moec_wv seen);
/* [batch, 1, seq, seq]: 0, or the least float where a query must not look: causal, window, attention_mask. */
moec_wv moec_l_causal_mask(moec_llm *m, int64_t window);
/* bool [seq, seq]: key <= query (and key > query - window). */
moec_wv moec_l_causal(moec_llm *m, int64_t window);

/* Whether layer |i| is of the kind |name| in the list |key|; without a list |dflt|. Other kinds than |known|
 * (a list ended by NULL) are refused. */
bool moec_l_layer_is(moec_llm *m, const char *key, int64_t i, const char *name, const char *const *known, bool dflt);

/* Whether layer |i| has a number other than 0 in the list |key| of |c|; without a list, or |c| NULL: |dflt|. */
bool moec_l_layer_flag(moec_llm *m, moec_config *c, const char *key, int64_t i, bool dflt);

/* ---- mixture of experts (models/moe.c) ---------------------------------------------------------- */

typedef struct moec_moe {
  int64_t experts, k, inner;
  enum { MOEC_SCORE_SOFTMAX, MOEC_SCORE_SIGMOID, MOEC_SCORE_SOFTMAX_OF_CHOSEN } score;
  bool normalise;          /* weights are divided by their sum */
  double sum_eps, scale;   /* added to that sum; factor of the weights, 1: none */
  bool wide_router;        /* operands of the router's product are f32 */
  bool choice_bias;        /* gate.e_score_correction_bias, for the choice only */
  int64_t groups, groups_kept; /* 0: none */
  enum { MOEC_GROUP_BY_MAX, MOEC_GROUP_BY_TOP2 } group_score;
  double excluded;         /* what scores outside the kept groups become */
  enum { MOEC_ACT_SWIGLU, MOEC_ACT_OAI } act;
  bool interleaved;        /* gate and up alternate along their axis; else gate first */
  double alpha, limit;     /* MOEC_ACT_OAI: min(gate, limit) * sigmoid(alpha gate) * (clamp(up, limit) + 1) */
  bool input_major;        /* weights are [E, in, out]; else [E, out, in] */
  bool bias;               /* router and experts */
  const char *gate, *router_bias; /* names: "gate.weight"; "router.bias" */
  const char *const *expert;      /* stored one tensor an expert: names of gate, up and down; NULL: never */
} moec_moe;

/* The layer of the current module. */
moec_wv moec_l_moe(moec_llm *m, moec_wv x, const moec_moe *spec);
/* min(gate, limit) * sigmoid(alpha gate) * (clamp(up, +-limit) + 1) */
moec_wv moec_l_swiglu_oai(moec_llm *m, moec_wv gate, moec_wv up, double alpha, double limit);

#endif
