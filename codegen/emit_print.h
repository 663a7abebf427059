/* Inside the printers of kernels as C and as CUDA. */
#ifndef MOEC_CODEGEN_EMIT_PRINT_H
#define MOEC_CODEGEN_EMIT_PRINT_H

#include "codegen/emit.h"

typedef struct moec_emit moec_emit;

/* What two targets say differently. Expressions are one text in both: their preludes define what it needs. */
typedef struct moec_emit_target {
  const char *restricted; /* the word in front of a pointer that has no aliases */
  const char *constant;   /* in front of a constant array */
  bool cxx;               /* a void * does not become another pointer by itself */
  /* "for (...) {" and what belongs in front of it */
  void (*loop)(moec_emit *e, const moec_kstmt *st);
  /* Behind a loop: accumulator |acc|, "a3", of reduction |n| becomes that of all who shared the loop. NULL: one did. */
  void (*join)(moec_emit *e, const moec_kstmt *st, const char *acc, const moec_kx_node *n);
  /* Declares the row temporaries. */
  void (*temps)(moec_emit *e);
  /* In front of an assignment, on its line: who does it. NULL: everyone. */
  const char *(*guard)(moec_emit *e, const moec_kstmt *st);
  /* Lines in front of a statement and behind it. NULL: none. */
  void (*enter)(moec_emit *e, const moec_kstmt *st);
  void (*leave)(moec_emit *e, const moec_kstmt *st);
  /* The end of a loop. NULL: "}". */
  void (*close)(moec_emit *e, const moec_kstmt *st);
  /* A load, a store, an element of a temporary in the target's own words; false: there are none. NULL: never. */
  bool (*load)(moec_emit *e, moec_kx x);
  bool (*store)(moec_emit *e, const moec_kstmt *st);
  bool (*place)(moec_emit *e, uint32_t temp);
} moec_emit_target;

/* Prints one kernel. */
struct moec_emit {
  const moec_kernel *k;
  const moec_emit_target *target;
  void *lanes; /* of the target: who does what */
  const char *symbol;
  moec_buf *b;
  uint32_t *named; /* by expression: 1 + number of its name; 0: printed in place */
  uint32_t n_names;
  bool *used;     /* symbols */
  bool *used_buf; /* buffers */
  int indent;
  bool direct; /* symbols are read where they are used */
  bool rough; /* exponentials may be off by a few units in the last place: halves go in or out */
  uint32_t first_of; /* 1 + a variable that stands for the first of several iterations, and what depends on it is
                        printed in place; 0: none */
  const char *first; /* the function's first line; NULL: none */
};

/* emit_stmt.c */
void moec_emit_init(moec_emit *e, const moec_kernel *k, const char *symbol, moec_buf *b);
void moec_emit_fini(moec_emit *e);
void moec_emit_line(moec_emit *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void moec_emit_indent(moec_emit *e);

/* The statements of |e|'s kernel and, in front of them, its constant arrays, as the body of a function whose first
 * lines are |head|. Ends |e|. */
void moec_emit_function(moec_emit *e, const char *head);
/* acc = acc joined with |operand|; |local|: acc is a variable of the type that accumulates. */
void moec_emit_join(moec_emit *e, const char *acc, const moec_kx_node *n, const char *operand, bool local);
/* How a reduction accumulates: its C type, the clause of a simd pragma, the operator of its update or NULL. */
typedef struct moec_emit_accumulator {
  const char *type, *clause, *update;
} moec_emit_accumulator;
moec_emit_accumulator moec_emit_accumulator_of(const moec_kx_node *n);
/* The rows of all chunks. */
moec_dim moec_emit_chunked_rows(const moec_kernel *k);

/* emit_attention.c: a kernel of attention in one of the languages. */
typedef struct moec_emit_attention_text {
  const moec_emit_target *target;
  const char *forward, *gradient; /* files of codegen/kernels */
  const char *operand;            /* what stands in front of an operand function */
  void *(*lanes)(moec_arena *a, const moec_kernel *operand); /* NULL: none */
  uint32_t shared;                                           /* bytes the text may use; 0: it has no such limit */
  bool views; /* operands of 16 bits are views: the text wants to know where they are, not functions that copy them */
} moec_emit_attention_text;
void moec_emit_attention(moec_buf *b, moec_arena *a, const moec_kernel *k, const char *symbol,
                         const moec_emit_attention_text *text);

const char *moec_emit_ctype(moec_dtype t); /* of a local: halves are floats */
/* emit_expr.c */
void moec_emit_dim(moec_emit *e, moec_dim d); /* parenthesised where it must be */
void moec_emit_expr(moec_emit *e, moec_kx x); /* an operand: parenthesised where it must be */
void moec_emit_bare(moec_emit *e,
                    moec_kx x); /* where parentheses already stand around it, or nothing does */
void moec_emit_var(moec_emit *e, uint32_t var);
/* Text of an op on operands given as text. */
void moec_emit_op(moec_buf *b, moec_op op, moec_dtype operands, uint32_t n,
                  const char *const *args);
void moec_emit_number(moec_buf *b, moec_dtype t, double v);
void moec_emit_integer(moec_buf *b, moec_dtype t, int64_t v);
/* What of |x| is printed where it is then rounded to |t|. */
moec_kx moec_emit_unrounded(const moec_emit *e, moec_dtype t, moec_kx x);
/* A value of dtype |t| as it is stored in a buffer of dtype |t|. */
void moec_emit_stored(moec_emit *e, moec_dtype t, moec_kx x);

#endif
