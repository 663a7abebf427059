/* Inside the C printer. */
#ifndef MOEC_CODEGEN_EMIT_C_H
#define MOEC_CODEGEN_EMIT_C_H

#include "codegen/emit.h"

/* Prints expressions of one kernel. */
typedef struct moec_emit {
  const moec_kernel *k;
  const char *symbol;
  moec_buf *b;
  uint32_t *named; /* by expression: 1 + number of its name; 0: printed in place */
  uint32_t n_names;
  bool *used;     /* symbols */
  bool *used_buf; /* buffers */
  int indent;
  bool direct; /* symbols are read where they are used */
} moec_emit;

void moec_emit_init(moec_emit *e, const moec_kernel *k, const char *symbol, moec_buf *b);
void moec_emit_fini(moec_emit *e);
void moec_emit_line(moec_emit *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void moec_emit_indent(moec_emit *e);

/* The statements of the kernel and, in front of them, its constant arrays, as the body of a function
 * whose first line is |head|. */
void moec_emit_function(moec_buf *b, const moec_kernel *k, const char *symbol, const char *head);
/* codegen/emit_attention.c */
void moec_emit_attention(moec_buf *b, const moec_kernel *k, const char *symbol);

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
/* A value of dtype |t| as it is stored in a buffer of dtype |t|. */
void moec_emit_stored(moec_emit *e, moec_dtype t, moec_kx x);

#endif
