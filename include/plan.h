/* The artifact: what `moec compile` writes and the runtime reads.
 *
 * An executable is  [ runtime stub (ELF) | padding | payload | footer ].  The payload starts at
 * a multiple of MOEC_PAGE; the footer is the last sizeof(moec_footer) bytes of the file.
 * The payload is  [ plan | kernels (shared object or cubin, page aligned) | data (64-byte aligned blobs) | report ].
 *
 * The plan is one flat block of little-endian tables: moec_plan_header, then the sections it
 * points to. Records refer to each other by index only; index MOEC_NONE means "none". The reader checks
 * every offset, count and index once (runtime/plan_read.c) and never again.
 *
 * All sizes that depend on symbols are expressions: index into the expr table. */
#ifndef MOEC_PLAN_H
#define MOEC_PLAN_H

#include <stdint.h>

#define MOEC_PAGE 4096u
#define MOEC_NONE UINT32_MAX
#define MOEC_PLAN_MAGIC "MOECPLAN"
#define MOEC_FOOTER_MAGIC "MOECEXE\n"
#define MOEC_PLAN_VERSION 5u
#define MOEC_PLAN_MAX_RANK 12

typedef struct moec_footer {
  uint64_t payload_offset, payload_size;
  uint64_t plan_size;                     /* the plan is at payload_offset */
  uint64_t kernels_offset, kernels_size;  /* from payload_offset */
  uint64_t data_offset, data_size;        /* from payload_offset */
  uint64_t report_offset, report_size;    /* from payload_offset: the partition as JSON, for `moec inspect` */
  uint32_t version, reserved;
  uint8_t sha256[32];                     /* of the whole file up to this field */
  char magic[8];
} moec_footer;

/* Lists of steps. COMPILE results are constants in the plan; what LOAD and BIND compute is shared by the
 * programs, which are everything from STEP on. A file that was compiled without --train has STEP alone. */
typedef enum moec_schedule {
  MOEC_AT_LOAD,  /* values of parameters only: run on opening and after each update */
  MOEC_AT_BIND,  /* values of sizes only: run when sizes are bound                  */
  MOEC_AT_STEP,  /* forward                                                         */
  MOEC_AT_TRAIN, /* forward, loss and backward                                      */
  MOEC_AT_VJP,   /* forward, and backward from given gradients of the outputs       */
  MOEC_SCHEDULE_COUNT
} moec_schedule;

/* SECTION(field, record type) in file order. */
#define MOEC_PLAN_SECTIONS(SECTION)                                                     \
  SECTION(strings, char)            /* NUL-terminated; referred to by offset            */ \
  SECTION(exprs, moec_plan_expr)                                                        \
  SECTION(pool, uint32_t)           /* lists of indices                                 */ \
  SECTION(ints, int64_t)            /* lists of integers                                */ \
  SECTION(symbols, moec_plan_symbol)                                                    \
  SECTION(buffers, moec_plan_buffer)                                                    \
  SECTION(tensors, moec_plan_tensor)                                                    \
  SECTION(files, moec_plan_file)                                                        \
  SECTION(pieces, moec_plan_piece)                                                      \
  SECTION(params, moec_plan_param)                                                      \
  SECTION(consts, moec_plan_const)                                                      \
  SECTION(kernels, moec_plan_kernel)                                                    \
  SECTION(steps, moec_plan_step)    /* sorted by schedule, then order of execution      */ \
  SECTION(inputs, moec_plan_io)                                                         \
  SECTION(outputs, moec_plan_io)                                                        \
  SECTION(constraints, moec_plan_constraint)                                            \
  SECTION(moe_layers, moec_plan_moe)                                                    \
  SECTION(functions, moec_plan_function)                                                \
  SECTION(calls, moec_plan_call)                                                        \
  SECTION(attentions, moec_plan_attention) /* at most one a kernel                      */

typedef uint32_t moec_str_ref;  /* offset into strings */
typedef uint32_t moec_expr_ref; /* index into exprs */

typedef enum moec_expr_op {
  MOEC_EXPR_CONST,  /* imm */
  MOEC_EXPR_SYMBOL, /* a: index into symbols */
  MOEC_EXPR_ADD, MOEC_EXPR_SUB, MOEC_EXPR_MUL, MOEC_EXPR_FLOORDIV, MOEC_EXPR_MOD,
  MOEC_EXPR_MIN, MOEC_EXPR_MAX, /* a, b: exprs with lower indices */
  MOEC_EXPR_OP_COUNT
} moec_expr_op;

typedef struct moec_plan_expr { uint32_t op, a, b, reserved; int64_t imm; } moec_plan_expr;

typedef struct moec_plan_symbol {
  moec_str_ref name;
  uint32_t reserved;
  int64_t fixed; /* --dim; -1: free */
} moec_plan_symbol;

typedef enum moec_buffer_kind {
  MOEC_BUFFER_PARAM, /* a parameter's compute copy; lives from open to close        */
  MOEC_BUFFER_CONST, /* points into the data section                                */
  MOEC_BUFFER_INPUT, /* bound to the caller's memory, or a copy of it               */
  MOEC_BUFFER_LOAD,  /* written by the load schedule                                */
  MOEC_BUFFER_BIND,  /* written by the bind schedule                                */
  MOEC_BUFFER_STEP,  /* placed in the arena of programs between |first| and |last|  */
  MOEC_BUFFER_OUTPUT,/* an output of a program: lives until the next run of any     */
  MOEC_BUFFER_GRAD,  /* a parameter's gradient: written by TRAIN and VJP, lives from their first run to close */
  MOEC_BUFFER_KIND_COUNT
} moec_buffer_kind;

typedef struct moec_plan_buffer {
  uint32_t kind;
  moec_expr_ref bytes;
  uint32_t first, last; /* STEP: indices of the first writing and last reading step of the program's steps */
  uint32_t schedule;    /* INPUT, STEP, OUTPUT: the program it belongs to */
} moec_plan_buffer;

/* A dense row-major view of a whole buffer. Several tensors may view one buffer (reshapes). */
typedef struct moec_plan_tensor {
  uint32_t buffer;
  uint32_t dtype; /* moec_dtype of base/dtype.h */
  uint32_t rank;
  uint32_t dims;  /* pool offset: rank expr indices */
  moec_str_ref name;
} moec_plan_tensor;

typedef struct moec_plan_file {
  moec_str_ref name;
  uint32_t reserved;
  uint64_t size;
  uint8_t sha256[32]; /* moec_map_digest() of it */
} moec_plan_file;

/* See moec_piece in ir/ir.h. file MOEC_NONE: |offset| is into the data section. */
typedef struct moec_plan_piece {
  uint32_t file, dtype, rank;
  moec_str_ref name;
  uint64_t offset;
  int64_t shape[MOEC_PLAN_MAX_RANK], start[MOEC_PLAN_MAX_RANK];
  uint32_t perm[MOEC_PLAN_MAX_RANK];
} moec_plan_piece;

typedef struct moec_plan_param {
  moec_str_ref name;
  uint32_t tensor;    /* of the compute copy */
  uint32_t storage;   /* moec_dtype of the source */
  uint32_t group;     /* 0 dense, 1 expert */
  int32_t shard_axis; /* -1: replicated */
  uint32_t trainable, tie;
  uint32_t pieces, n_pieces; /* index of the first, count */
  uint32_t grad;      /* tensor of kind GRAD, of the compute copy's type; MOEC_NONE: not trainable, no gradient
                         path, or compiled without --train */
} moec_plan_param;

typedef struct moec_plan_const { uint32_t tensor, reserved; uint64_t offset, size; } moec_plan_const;

/* A generated kernel: symbol |name| of the shared object, a moec_kernel_fn; or with a cuda target, of the cubin. */
typedef struct moec_plan_kernel {
  moec_str_ref name;
  moec_str_ref what;     /* what it computes, for people */
  moec_expr_ref rows;    /* range of the parallel index */
  moec_expr_ref scratch; /* bytes of scratch a thread needs; CUDA: a team */
  moec_expr_ref flops;   /* of one launch */
  uint32_t grain;        /* rows a thread should take at least; CUDA: 0 */
  uint32_t threads;      /* CUDA, else 0: threads of a block, a multiple of 32 up to 1024 */
  uint32_t teams;        /* CUDA, else 0: teams of a block, each of threads / teams threads */
  uint32_t shared;       /* CUDA, else 0: bytes of dynamic shared memory of a block */
} moec_plan_kernel;

/* STEP(NAME, text, operands -> results; integer attributes in |ints|).
 * Tensors in |args|: inputs first, then outputs; MOEC_NONE where an optional one is absent. */
#define MOEC_PLAN_STEPS(STEP)                                                                                 \
  STEP(KERNEL, "kernel")                   /* any -> any; |kernel| says which                              */ \
  STEP(COPY, "copy")                       /* x -> y of equal bytes                                        */ \
  STEP(GEMM, "gemm")                       /* a, b, c? -> y; ints: moec_gemm_ints as expr refs             */ \
  STEP(CONV, "conv")                       /* x, w -> y; ints: d, strides[d], pads[2d], dilations[d], groups */ \
  STEP(CUMSUM, "cumsum")                   /* x -> y; ints: axis, reverse, exclusive                       */ \
  STEP(TOPK, "topk")                       /* x -> values?, indices?; ints: axis, largest                  */ \
  STEP(SCATTER_ELEMENTS, "scatter_elements") /* x?, i, u -> y; ints: axis, reduction; no x: zeros          */ \
  STEP(SCATTER_ND, "scatter_nd")           /* x?, i, u -> y; ints: reduction; no x: zeros                  */ \
  STEP(RANDOM, "random")                   /* -> y; ints: kind, seed                                       */ \
  STEP(MOE_SELECT, "moe.select")           /* s -> i                                                       */ \
  STEP(MOE_PLAN, "moe.plan")               /* i -> perm, inv, offsets                                      */ \
  STEP(MOE_DISPATCH, "moe.dispatch")       /* x, perm, w? -> rows; ints: k. With w: rows times weights     */ \
  STEP(MOE_GROUPED_DOT, "moe.grouped_dot") /* rows, w, offsets, bias? -> y; ints: transposed. CUDA: or     \
                                              -> y?, activation; ints: transposed, moec_activation_form    */ \
  STEP(MOE_WEIGHT, "moe.weight")           /* rows, w, perm -> y                                           */ \
  STEP(MOE_COMBINE, "moe.combine")         /* rows, inv, w?, residual? -> y; ints: k. With w: the fused    \
                                              weighted restore; residual is added last                     */ \
  STEP(MOE_GROUPED_OUTER, "moe.grouped_outer") /* dy, x, offsets -> dw                                     */ \
  STEP(MOE_GROUP_SUM, "moe.group_sum")     /* x, offsets -> sums                                           */ \
  STEP(LINEAR_CROSS_ENTROPY, "linear_cross_entropy") /* x, w, labels, scale -> nll?, dx?, dw?, room; ints:  \
                                              transposed, ignore. room [chunk, lead]: logits of so many    \
                                              tokens at a time, in rows of whole 16 bytes                  */

typedef enum moec_step_op {
#define MOEC_STEP_ENUM(name, text) MOEC_STEP_##name,
  MOEC_PLAN_STEPS(MOEC_STEP_ENUM)
#undef MOEC_STEP_ENUM
  MOEC_STEP_COUNT
} moec_step_op;

typedef struct moec_plan_step {
  uint32_t op, schedule;
  uint32_t kernel;           /* KERNEL, and MOE_GROUPED_DOT with an activation: index into kernels */
  uint32_t args, n_in, n_out;/* pool offset of n_in + n_out tensor indices */
  uint32_t ints, n_ints;     /* ints offset, count */
  uint32_t call;             /* index into calls: the instance this step belongs to */
  uint32_t moe;              /* index into moe_layers for steps of an expert region, else MOEC_NONE */
  moec_str_ref where;        /* source node, for messages */
  moec_expr_ref flops;       /* of this step */
} moec_plan_step;

/* An activation of y[n, m], both of the type of the rows: its kernel reads y alone and needs no scratch; an element
 * is a function of one or two elements of its row of y. Where y is no result it is temporary, or nowhere. */
typedef enum moec_activation_form {
  MOEC_ACTIVATION_EACH,       /* [n, m]: element j of j                         */
  MOEC_ACTIVATION_HALVES,     /* [n, m / 2]: element j of j and j + m / 2       */
  MOEC_ACTIVATION_NEIGHBOURS, /* [n, m / 2]: element j of 2 * j and 2 * j + 1   */
  MOEC_ACTIVATION_FORMS
} moec_activation_form;

/* GEMM: y[batch..., M, N] = A[batch..., M, K] * B[batch..., K, N] (+ c, same shape as y).
 * ints = { n_batch, then expr refs: M, N, K, a_m, a_k, b_k, b_n, then for each batch axis: size, a_stride,
 * b_stride }. Strides are in elements; one of a_m, a_k and one of b_k, b_n is the constant 1, or
 * the axis it belongs to has size 1. */

/* An input or output of the program |schedule|. Inputs of several programs that share a name are one input to the
 * user. An input with |has_default| may be left out: all its elements are |dflt| then, which its dtype has exactly. */
typedef struct moec_plan_io { moec_str_ref name; uint32_t tensor, has_default, schedule; double dflt; } moec_plan_io;

/* a == b is checked at bind; |text| says it to readers: "seq >= 1". */
typedef struct moec_plan_constraint { moec_expr_ref a, b; moec_str_ref where, what, text; } moec_plan_constraint;

/* One MoE layer of a program, in the order in which they run. */
typedef struct moec_plan_moe {
  uint32_t indices, weights, offsets; /* tensors: i64 [tokens, k], float [tokens, k], i32 [E+1] */
  uint32_t experts, k;
  uint32_t call;
  moec_str_ref name;
  uint32_t schedule;
} moec_plan_moe;

/* A unit of reuse, compiled once. */
typedef struct moec_plan_function { moec_str_ref name; uint32_t n_calls, n_kernels, reserved; } moec_plan_function;
typedef struct moec_plan_call { uint32_t function; } moec_plan_call;

/* What a kernel does, where it is `attention` or `attention_grad` of docs/ir.md and nothing else: a library that has
 * the same may do it instead, on the same operands. Only kernels without softcap and sink are here, whose operands are
 * views of arguments of one type, f16 or bf16 (lse: f32). Where all elements of the arguments |ones| are one, the mask
 * hides and adds nothing but what |causal| says: it hides keys j > i + T - S. */
typedef enum moec_attention_operand {
  MOEC_ATTENTION_Q,   /* [B, S, H, D] */
  MOEC_ATTENTION_K,   /* [B, T, G, D] */
  MOEC_ATTENTION_V,   /* [B, T, G, E] */
  MOEC_ATTENTION_Y,   /* [B, S, H, E] */
  MOEC_ATTENTION_LSE, /* [B, S, H] */
  MOEC_ATTENTION_DY,
  MOEC_ATTENTION_DQ,
  MOEC_ATTENTION_DK,
  MOEC_ATTENTION_DV,
  MOEC_ATTENTION_OPERANDS
} moec_attention_operand;

/* Element [b, row, head, c] is at offset + b * strides[0] + row * strides[1] + head * strides[2] + c, in elements. */
typedef struct moec_plan_view {
  uint32_t arg; /* position in the args of the kernel's steps; MOEC_NONE: no such operand, or not wanted */
  moec_expr_ref offset, strides[3];
} moec_plan_view;

typedef struct moec_plan_attention {
  uint32_t kernel;
  uint32_t grad, causal;
  uint32_t dtype; /* of all operands but lse */
  moec_expr_ref b, s, t, h, g, d, e;
  uint32_t ones, n_ones; /* pool offset, count: positions in the args of the kernel's steps */
  float scale;
  moec_plan_view operands[MOEC_ATTENTION_OPERANDS];
} moec_plan_attention;

typedef struct moec_plan_section { uint64_t offset; uint64_t count; } moec_plan_section;

typedef struct moec_plan_header {
  char magic[8];
  uint32_t version, header_size;
  uint64_t size; /* of the whole plan */
  moec_str_ref model, options; /* for `info` */
  moec_str_ref target;         /* "cpu" or "cuda:sm_90a" */
  moec_str_ref cpu;            /* instruction set that kernels in a shared object need, "x86-64-v3"; else "" */
#define MOEC_SECTION_FIELD(field, type) moec_plan_section field;
  MOEC_PLAN_SECTIONS(MOEC_SECTION_FIELD)
#undef MOEC_SECTION_FIELD
} moec_plan_header;

/* ---- the kernel calling convention ---------------------------------------------------------
 * A generated kernel handles rows [begin, end) of its parallel index; the runtime calls it from several threads
 * with disjoint ranges. It allocates nothing and writes nothing but its outputs, scratch and fault.
 *
 * In a cubin a generated kernel is   extern "C" __global__ void NAME(moec_kernel_args args, int64_t rows)
 * and is launched with blocks of |threads| threads, |shared| bytes of dynamic shared memory (more than 48 KiB need
 * CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) and any number of blocks in x, from 1. A team of threads works on
 * one row at a time and takes every (blocks * teams)-th, so blocks beyond ceil(rows / teams) are idle; with rows = 0
 * there is nothing to launch. |args| is passed by value and points to device memory: buf and sym are arrays there, so
 * that what they hold can change under a CUDA graph; scratch is blocks * teams * |scratch| bytes at a multiple of 256,
 * which the launches before and after it in the stream may use too; buffers lie at multiples of 16. The library kernels
 * of the cubin are listed in include/cuda_abi.h. */
typedef struct moec_kernel_args {
  void *const *buf;   /* inputs, then outputs, in the order of the step's args */
  const int64_t *sym; /* symbol values by index into symbols */
  void *scratch;      /* 64-byte aligned, of this thread; CUDA: of all teams */
  int32_t *fault;     /* set to 1 where an index is out of range (the access itself is clamped) */
} moec_kernel_args;
typedef void (*moec_kernel_fn)(const moec_kernel_args *args, int64_t begin, int64_t end);

#endif
