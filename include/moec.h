/* moec: run a compiled model from C.
 *
 *     moec_model *m;
 *     moec_status *s = moec_open("model", NULL, &m);
 *     if (!s) s = moec_input_borrow(m, 0, &ids);
 *     if (!s) s = moec_forward(m);
 *     if (!s) s = moec_output(m, 0, &logits);
 *     if (s) fprintf(stderr, "%s\n", moec_status_message(s));
 *     moec_status_free(s);
 *     moec_close(m);
 *
 * Errors: a function that can fail returns a moec_status, NULL meaning that it did what it
 * says. After an error the model is as before the call unless the function says otherwise.
 * Nothing here prints, exits or aborts.
 * Threads: a model is used by one thread at a time; different models are independent.
 * Tensors are dense and row-major; sizes are in elements, memory in bytes, times in ns. */
#ifndef MOEC_H
#define MOEC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors ------------------------------------------------------------------------------ */

#ifndef MOEC_BASE_STATUS_H /* inside moec the same declarations are there already */
typedef enum moec_code {
  MOEC_OK = 0,
  MOEC_INVALID_MODEL,    /* a file breaks its format's rules         */
  MOEC_UNSUPPORTED,      /* legal, but moec has no such thing        */
  MOEC_INVALID_ARGUMENT, /* the caller is wrong                      */
  MOEC_OUT_OF_MEMORY,    /* host or device memory, or a byte limit   */
  MOEC_IO,               /* the operating system refused             */
  MOEC_DEVICE,           /* the accelerator or its driver refused    */
  MOEC_INTERNAL          /* a broken invariant: a bug in moec        */
} moec_code;
/* Owned by whoever received it; ended with moec_status_free(). */
typedef struct moec_status moec_status;
moec_code moec_status_code(const moec_status *s);      /* NULL gives MOEC_OK */
const char *moec_status_message(const moec_status *s); /* one line; valid until |s| is freed */
void moec_status_free(moec_status *s);                 /* NULL is fine */
#endif

/* ---- opening ----------------------------------------------------------------------------- */

typedef struct moec_model moec_model;

typedef struct moec_options {
  const char *weights_dir; /* where weights files are; NULL: MOEC_WEIGHTS, then beside the model */
  int threads;             /* the caller's included; 0: MOEC_THREADS, then one a processor */
  int trust_weights;       /* 1: do not compute the hashes of the model and its weights; sizes are
                              checked always */
} moec_options;

/* Opens the executable or payload |path|: checks it, loads its kernels and parameters, runs
 * what depends on parameters only. |options|: NULL: all zero. *out is the caller's, ended with
 * moec_close(); NULL on error. Errors: MOEC_INVALID_MODEL, MOEC_INVALID_ARGUMENT (a path,
 * weights), MOEC_UNSUPPORTED (this machine), MOEC_OUT_OF_MEMORY, MOEC_IO. */
moec_status *moec_open(const char *path, const moec_options *options, moec_model **out);
/* The same from |size| bytes in memory, borrowed until moec_close(). Weights files are not
 * looked for beside them. */
moec_status *moec_open_memory(const void *bytes, size_t size, const moec_options *options,
                              moec_model **out);
void moec_close(moec_model *m); /* frees everything it gave out; NULL is fine */

/* ---- what there is ----------------------------------------------------------------------- */

#define MOEC_MAX_DIMS 12

/* Element types; f16 and bf16 are two bytes, bool is one byte, 0 or 1. */
/* clang-format off */
enum {
  MOEC_DTYPE_F32 = 1, MOEC_DTYPE_F64, MOEC_DTYPE_F16, MOEC_DTYPE_BF16,
  MOEC_DTYPE_I64, MOEC_DTYPE_I32, MOEC_DTYPE_I16, MOEC_DTYPE_I8,
  MOEC_DTYPE_U64, MOEC_DTYPE_U32, MOEC_DTYPE_U16, MOEC_DTYPE_U8, MOEC_DTYPE_BOOL
};
/* clang-format on */

typedef enum moec_list { MOEC_INPUTS, MOEC_OUTPUTS, MOEC_PARAMETERS } moec_list;

typedef struct moec_description {
  const char *name;       /* as in the source model */
  int dtype;              /* MOEC_DTYPE_F32 ... */
  const char *dtype_name; /* "f32" */
  uint32_t rank;
  const char *dims[MOEC_MAX_DIMS]; /* "64", "batch", "2*seq + 1" */
  int trainable, expert;           /* parameters: 1 if so */
  int has_default;                 /* inputs: 1 if it may be left out, */
  double default_value;            /* each of its elements is this then */
} moec_description;

/* How many entries |list| has. Never fails. */
uint32_t moec_count(const moec_model *m, moec_list list);
/* Entry |i|; its strings are valid until moec_close(). Error: MOEC_INVALID_ARGUMENT where |i|
 * is out of range. */
moec_status *moec_describe(const moec_model *m, moec_list list, uint32_t i, moec_description *out);
/* The index of the entry called |name|. Error: MOEC_INVALID_ARGUMENT, listing the names. */
moec_status *moec_find(const moec_model *m, moec_list list, const char *name, uint32_t *out);

/* A dense tensor in memory that the model or the caller owns. */
typedef struct moec_view {
  void *data;
  int dtype;
  uint32_t rank;
  int64_t dims[MOEC_MAX_DIMS];
} moec_view;

/* Parameter |i| as kernels read it; valid until moec_close(), not to be written to. */
moec_status *moec_parameter(const moec_model *m, uint32_t i, moec_view *out);

/* ---- sizes ------------------------------------------------------------------------------- */

/* The sizes that the inputs' shapes leave open: "batch", "seq". */
uint32_t moec_symbol_count(const moec_model *m);
/* Name (valid until moec_close()) and value, -1 where none is bound; each may be NULL. */
moec_status *moec_symbol(const moec_model *m, uint32_t i, const char **name, int64_t *value);

/* Binds sizes: checks them, places all buffers and runs what depends on sizes only. The first
 * time for a set of sizes this allocates; bound again later it does not. moec_forward() does
 * it by itself, from the shapes of its inputs; done before, it takes that time out of the first
 * step. Outputs read earlier are no longer valid. After an error no sizes are bound.
 * Errors: MOEC_INVALID_ARGUMENT, naming the node that needs another size; MOEC_OUT_OF_MEMORY. */
moec_status *moec_bind_sizes(moec_model *m, uint32_t n, const char *const *names,
                             const int64_t *values);
/* The same from the shapes of all inputs, in order: only dtype, rank and dims are read. An input
 * with a default may be left out: dtype 0. */
moec_status *moec_bind_shapes(moec_model *m, const moec_view *inputs);

/* The dims of input or output |i| for the sizes bound; data is NULL. Errors:
 * MOEC_INVALID_ARGUMENT: no sizes are bound, or |i| is out of range. */
moec_status *moec_shape(const moec_model *m, moec_list list, uint32_t i, moec_view *out);

/* ---- running ----------------------------------------------------------------------------- */

/* Input |i| for the next steps. Borrowed: |view|'s data is read by moec_forward(), never written,
 * and must live until another input takes its place or the model is closed; it must be
 * aligned to its element. Copied: the caller's memory may go at once; the copy is allocated when
 * the input grows. Shapes are checked by moec_forward(). Errors: MOEC_INVALID_ARGUMENT: index,
 * dtype, rank, alignment; MOEC_OUT_OF_MEMORY. */
moec_status *moec_input_borrow(moec_model *m, uint32_t i, const moec_view *view);
moec_status *moec_input_copy(moec_model *m, uint32_t i, const moec_view *view);
/* Leaves input |i| out of the next steps: its default fills it, in the sizes that the other inputs
 * give. So it is at first. Error: MOEC_INVALID_ARGUMENT: index, or an input without a default. */
moec_status *moec_input_omit(moec_model *m, uint32_t i);

/* One step: computes all outputs from the inputs. Error: MOEC_INVALID_ARGUMENT: an input
 * without a default is missing, shapes disagree, or a value makes an index point outside ('node "X": an index is out of
 * range'); outputs are then not valid. */
moec_status *moec_forward(moec_model *m);

/* Output |i| of the last step: valid until the next moec_forward() or binding of sizes. Error:
 * MOEC_INVALID_ARGUMENT: index, or no step was made. */
moec_status *moec_output(const moec_model *m, uint32_t i, moec_view *out);

/* What a MoE layer decided in the last step. */
typedef struct moec_layer_routes {
  const char *name;
  uint32_t experts;
  moec_view indices; /* i64 [tokens, k]: experts */
  moec_view weights; /* float [tokens, k]; data NULL where the model has none */
  moec_view offsets; /* i32 [experts + 1]: rows before each expert; data NULL where not there */
} moec_layer_routes;

/* Layers in the order in which they run. */
uint32_t moec_route_count(const moec_model *m);
/* Valid like outputs. Errors: MOEC_INVALID_ARGUMENT: index, or no step was made. */
moec_status *moec_route(const moec_model *m, uint32_t layer, moec_layer_routes *out);

/* ---- counters ---------------------------------------------------------------------------- */

typedef struct moec_counters {
  uint64_t forwards;                /* steps made */
  uint64_t binds, placements;       /* sizes bound; those that were new */
  uint64_t compilations;            /* on this machine since opening: always 0 */
  uint64_t allocations;             /* of the runtime since opening */
  uint64_t allocations_after_first; /* in all steps but the first of new sizes: 0 */
  uint64_t threads;
  /* of the sizes bound, 0 where none are: */
  uint64_t kernels_per_step; /* launches of generated kernels outside of expert regions */
  uint64_t library_per_step; /* other steps outside of expert regions */
  uint64_t moe_per_step;     /* expert regions, plan to combine: one a MoE layer */
  uint64_t steps_in_regions; /* the kernels and library steps inside of them */
  uint64_t flops_per_step;
  /* memory: */
  uint64_t parameter_bytes, mapped_bytes;      /* copied; used in place from files */
  uint64_t load_bytes, bind_bytes, step_bytes; /* arenas */
  uint64_t live_bytes, peak_bytes;             /* all allocations of the runtime */
} moec_counters;
/* Never fails. */
void moec_counters_get(const moec_model *m, moec_counters *out);

/* One kind of step, for the sizes bound. */
typedef struct moec_step_class {
  const char *name;      /* "gemm" */
  uint64_t steps;        /* in one forward */
  uint64_t bytes, flops; /* read and written by operands; of one forward */
  uint64_t ns;           /* spent so far, while timing is on */
} moec_step_class;
uint32_t moec_step_class_count(const moec_model *m);
moec_status *moec_step_class_get(const moec_model *m, uint32_t i, moec_step_class *out);
/* Turns the timing of each step on (1) or off (0) and sets the times to 0. Off at first. */
void moec_time_steps(moec_model *m, int on);

#ifdef __cplusplus
}
#endif
#endif
