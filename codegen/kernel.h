/* Kernel IR: one fused function as loops over expressions. Built from a graph here
 * (codegen/kernel_*.c); printed as C by
 * codegen/emit_c.c.
 *
 * Expressions form a hash-consed DAG: equal expressions have equal handles. Movement ops leave
 * no trace but index arithmetic, which is kept in a normal form (sums of size * atom), so that
 * reshapes cancel. Every expression may be evaluated anywhere its variables are bound: loads carry
 * the condition under which their index is valid, integer division is total. Hoisting is therefore
 * always allowed.
 *
 * Statements name expressions (LET), loop, and write. An expression that has no name where it is
 * used is printed in place. */
#ifndef MOEC_CODEGEN_KERNEL_H
#define MOEC_CODEGEN_KERNEL_H

#include "ir/ir.h"

typedef struct {
  uint32_t i;
} moec_kx; /* an expression; 0: none */

typedef enum moec_kx_kind {
  MOEC_KX_NONE,
  /* integers of known range, computed in 64 bits; they never overflow */
  MOEC_KX_SUM, /* dim + coeffs[0] * args[0] + ...; no args: the size itself */
  MOEC_KX_VAR, /* loop variable |id| */
  MOEC_KX_DIV, /* floor(args[0] / dim) */
  MOEC_KX_MOD, /* args[0] - dim * floor(args[0] / dim) */
  /* values */
  MOEC_KX_INT,   /* a constant of any integer dtype or bool: |num_i| */
  MOEC_KX_NUM,   /* a float constant: |num| */
  MOEC_KX_LOAD,  /* buffers[id][args[0]], 0 where args[1], if given, is false */
  MOEC_KX_WRAP,  /* index args[0] into an axis of size |dim|: negative from the end; out of range
                    (while args[1], if given, holds) sets the fault flag and is clamped */
  MOEC_KX_APPLY, /* op(args...): elementwise ops of ops.def */
  MOEC_KX_REDUCE /* op (REDUCE_SUM ...) of args[0] over variable |id| */
} moec_kx_kind;

/* f16 and bf16 values are floats while they are computed with: |dtype| is F32 then, and a CAST to
 * F16 or BF16 rounds a float to that precision. */
typedef struct moec_kx_node {
  moec_kx_kind kind;
  moec_op op;
  moec_dtype dtype;
  uint32_t id, n_args;
  const moec_kx *args;
  const moec_dim *coeffs;
  moec_dim dim;
  double num;
  int64_t num_i;
  /* derived */
  moec_dim lo, hi; /* inclusive range; both {0}: unknown */
  uint64_t vars;   /* free variables, one bit each */
  uint64_t divs;   /* those a DIV or MOD depends on */
  uint32_t level;  /* depth of reductions feeding each other; equal levels do not */
  uint32_t cost;   /* of one evaluation, reductions taken as given; saturates */
} moec_kx_node;

/* The elementwise op that joins two partial results of reduction |op|. */
moec_op moec_kx_join(moec_op op, moec_dtype t);

typedef enum moec_kvar_kind {
  MOEC_KVAR_ROW,   /* the parallel index: begin .. end */
  MOEC_KVAR_BLOCK, /* the parallel index in steps of MOEC_KERNEL_LANES */
  MOEC_KVAR_LANE,  /* 0 .. min(MOEC_KERNEL_LANES, end - block) */
  MOEC_KVAR_LOOP,  /* lo .. hi */
  MOEC_KVAR_CHUNK, /* the parallel index in a kernel with |chunk|: blocks of rows */
  MOEC_KVAR_CHUNK_ROW, /* its rows: chunk * k->chunk .. min(+ k->chunk, hi) */
  MOEC_KVAR_PARAM, /* a parameter of the function: number |copy| (codegen/kernel_attention.h) */
  MOEC_KVAR_KEY    /* loop over keys j0 .. j1, given as parameters */
} moec_kvar_kind;
#define MOEC_KERNEL_LANES 128

typedef struct moec_kvar {
  moec_kvar_kind kind;
  moec_dim lo, hi; /* hi is exclusive */
  uint32_t copy;   /* several variables of one range, for nests */
} moec_kvar;

typedef struct moec_kbuf {
  moec_dtype dtype;
  bool output, local;     /* local: the parameter |out| of an operand function */
  const moec_const *data; /* a constant array; NULL: argument number |arg| */
  uint32_t arg;
} moec_kbuf;

/* A per-row array indexed by |vars|; in the thread's scratch at |offset| unless |on_stack|. */
typedef struct moec_ktemp {
  moec_dtype dtype;
  uint32_t n_vars;
  uint32_t vars[8];
  bool on_stack;
  moec_dim count, offset; /* elements; bytes */
} moec_ktemp;

typedef enum moec_kstmt_kind {
  MOEC_KSTMT_LET,    /* name |e| from here to the end of the enclosing loop */
  MOEC_KSTMT_STORE,  /* buffers[id][index] = e */
  MOEC_KSTMT_LOOP,   /* over variable |id|; |accs|: reductions it computes, named afterwards */
  MOEC_KSTMT_SAVE,   /* temps[id][its vars] = e, which has a name */
  MOEC_KSTMT_RECALL, /* name |e|, read from temps[id] */
  MOEC_KSTMT_RESET,  /* temps[id] = start value of reduction |e| */
  MOEC_KSTMT_GATHER  /* temps[id] = temps[id] op operand of reduction |e| */
} moec_kstmt_kind;

typedef struct moec_kstmt moec_kstmt;
typedef struct moec_kstmts {
  moec_kstmt *v;
  size_t n, cap;
} moec_kstmts;
struct moec_kstmt {
  moec_kstmt_kind kind;
  moec_kx e, index;
  uint32_t id;
  moec_kstmts body;
  uint32_t n_accs;
  moec_kx *accs;
  bool simd; /* innermost: iterations are independent but for |accs| */
};

typedef struct moec_kernel {
  moec_module *m;
  const char *what; /* "exp*2+reduce_sum f32[batch, seq, 64]" */
  moec_dim range;   /* of the parallel index */
  int64_t chunk;    /* rows a step of the parallel index handles, one after the other; 0: it is the row */
  moec_dim scratch; /* bytes a thread */
  moec_dim flops;
  uint32_t grain;
  uint32_t n_in, n_out; /* arguments: inputs, then outputs */
  moec_kx_node *nodes;
  size_t n_nodes;
  moec_kvar *vars;
  size_t n_vars;
  moec_kbuf *bufs; /* arguments in order, then constants */
  size_t n_bufs, cap_bufs;
  moec_ktemp *temps;
  size_t n_temps, cap_temps;
  moec_kstmts body;
  struct moec_kattention
      *attention; /* not NULL: a flash attention kernel (codegen/emit_attention.c) */
} moec_kernel;

/* Kernel IR of fused function |fn|, whose inputs are dense row-major tensors. |rows|: the product
 * of the row axes of each result (docs/ir.md, `fused`). UNSUPPORTED: an op that has no place in a
 * kernel, or an attention operand that needs more than movement; the caller materialises it. The
 * kernel lives in |a| and refers to the module. Buffers given to it must not overlap. */
moec_status *moec_kernel_build(moec_arena *a, moec_module *m, const moec_graph *fn, moec_dim rows,
                               moec_kernel **out) MOEC_MUST_USE;

#endif
