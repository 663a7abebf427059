/* Writing ONNX graphs with few words: nodes, external tensors, local functions, one file at the end.
 *
 * A writer keeps the first error and does nothing afterwards (values become {0}), so a sequence of calls needs
 * one check at its end: moec_writer_end(). Everything lives in the writer's arena. Thread-compatible. */
#ifndef MOEC_MODELS_WRITER_H
#define MOEC_MODELS_WRITER_H

#include "base/arena.h"
#include "base/tensor.h"

typedef struct moec_writer moec_writer;

/* A value of the graph or function being written; {0}: absent. */
typedef struct moec_wv {
  const char *name;
} moec_wv;

/* An attribute of a node. */
typedef struct moec_wattr {
  const char *name; /* NULL ends a list */
  enum { MOEC_W_I, MOEC_W_F, MOEC_W_S, MOEC_W_IS } kind;
  int64_t i; /* of MOEC_W_IS: the number of ints */
  double f;
  const char *s;
  const int64_t *ints;
} moec_wattr;
#define W_INT(n, v) {.name = (n), .kind = MOEC_W_I, .i = (v)}
#define W_FLOAT(n, v) {.name = (n), .kind = MOEC_W_F, .f = (v)}
#define W_STRING(n, v) {.name = (n), .kind = MOEC_W_S, .s = (v)}
#define W_INTS(n, count, ...) {.name = (n), .kind = MOEC_W_IS, .i = (count), .ints = (const int64_t[]){__VA_ARGS__}}
#define W_ATTRS(...) ((const moec_wattr[]){__VA_ARGS__, {.name = NULL}})

moec_writer *moec_writer_create(void);
void moec_writer_destroy(moec_writer *w);
moec_arena *moec_writer_arena(moec_writer *w);
void moec_w_fail(moec_writer *w, moec_status *s); /* keeps the first; frees later ones; NULL is fine */
bool moec_w_failed(const moec_writer *w);
moec_status *moec_writer_end(moec_writer *w) MOEC_MUST_USE; /* the first error, handed out */

/* What following nodes and unnamed values belong to, a prefix of their names: "model.layers.0.mlp". */
void moec_w_scope(moec_writer *w, const char *fmt, ...) MOEC_PRINTF(2, 3);

/* Graph inputs and outputs; dims are names of symbols or decimal numbers. */
moec_wv moec_w_input(moec_writer *w, const char *name, moec_dtype t, uint32_t rank, const char *const *dims);
void moec_w_output(moec_writer *w, const char *name, moec_wv v, moec_dtype t, uint32_t rank, const char *const *dims);
void moec_w_metadata(moec_writer *w, const char *key, const char *value);

/* A tensor whose bytes lie in |file| (a plain name, beside the model) from |offset| on. */
moec_wv moec_w_external(moec_writer *w, const char *name, moec_dtype t, uint32_t rank, const int64_t *dims,
                        const char *file, uint64_t offset);
/* Small constants, in the graph or function being written; equal ones are written once. */
moec_wv moec_w_const(moec_writer *w, moec_dtype t, uint32_t rank, const int64_t *dims, const void *data);
moec_wv moec_w_ints(moec_writer *w, uint32_t n, const int64_t *v); /* i64[n] */
#define W_I64(w, count, ...) moec_w_ints((w), (count), (const int64_t[]){__VA_ARGS__})
moec_wv moec_w_int(moec_writer *w, int64_t v);                     /* i64[] */
moec_wv moec_w_float(moec_writer *w, moec_dtype t, double v);      /* t[] */

/* A node; absent operands at the end are dropped. Results are named after the scope and the operator, or as
 * |names| says (NULL, or NULL entries: no wish). */
void moec_w_node(moec_writer *w, const char *domain, const char *op, const moec_wattr *attrs, uint32_t n_in,
                 const moec_wv *in, uint32_t n_out, moec_wv *out, const char *const *names);
moec_wv moec_w_op(moec_writer *w, const char *op, const moec_wattr *attrs, uint32_t n_in, const moec_wv *in);
/* W(w, "Add", x, y); WA(w, "Concat", W_ATTRS(W_INT("axis", 1)), x, y) */
#define W_ARGS(...) (uint32_t)(sizeof((moec_wv[]){__VA_ARGS__}) / sizeof(moec_wv)), (const moec_wv[]){__VA_ARGS__}
#define W(w, op, ...) moec_w_op((w), (op), NULL, W_ARGS(__VA_ARGS__))
#define WA(w, op, attrs, ...) moec_w_op((w), (op), (attrs), W_ARGS(__VA_ARGS__))

/* Local functions of the domain "moec". Between begin and end nodes go to the function, whose operands are
 * in |in|. Begin returns false, and nothing is to be written, when a function of that name exists already. */
bool moec_w_fn_begin(moec_writer *w, const char *name, const char *doc, uint32_t n_in, const char *const *in_names,
                     moec_wv *in);
void moec_w_fn_end(moec_writer *w, uint32_t n_out, const moec_wv *out);
moec_wv moec_w_call(moec_writer *w, const char *name, uint32_t n_in, const moec_wv *in);

/* Packs the model and writes it as |path|, whole or not at all. */
moec_status *moec_writer_save(moec_writer *w, const char *path, const char *graph_name) MOEC_MUST_USE;

#endif
