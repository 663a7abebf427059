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
  int describe;            /* 1: names, shapes, sizes and memory are asked for, nothing is run: a model for a device
                              that this machine has not opens too */
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
/* Frees everything it gave out, except what moec_dlpack() gave: that lives until its deleter is
 * called. NULL is fine. */
void moec_close(moec_model *m);

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

/* What a model can run. All have forward; the others need `moec compile --train`. Inputs and
 * outputs of the same name are one entry, whichever programs have them. */
typedef enum moec_program {
  MOEC_FORWARD, /* moec_forward()            */
  MOEC_TRAIN,   /* moec_loss_and_gradients() */
  MOEC_VJP,     /* moec_vjp()                */
  MOEC_PROGRAM_COUNT
} moec_program;
/* 1 if |m| has |program|. Never fails. */
int moec_has_program(const moec_model *m, moec_program program);

typedef struct moec_description {
  const char *name;       /* as in the source model */
  int dtype;              /* MOEC_DTYPE_F32 ... */
  const char *dtype_name; /* "f32" */
  uint32_t rank;
  const char *dims[MOEC_MAX_DIMS]; /* "64", "batch", "2*seq + 1" */
  int trainable, expert;           /* parameters: 1 if so */
  int has_default;                 /* inputs: 1 if it may be left out, */
  double default_value;            /* each of its elements is this then */
  int has_gradient;                /* parameters: 1 where training computes one */
  unsigned programs;               /* inputs and outputs: bit 1 << program for each that has it */
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

/* Parameter |i| as kernels read it, not to be written to. Valid until moec_close() or, of a
 * parameter with a gradient, until the first moec_optimizer_step() or moec_load_state(), which
 * move it to memory of its own. On a device with memory of its own that is a copy, made when it is
 * asked for, and until the next of these. */
moec_status *moec_parameter(const moec_model *m, uint32_t i, moec_view *out);

/* ---- sizes ------------------------------------------------------------------------------- */

/* The sizes that the inputs' shapes leave open: "batch", "seq". */
uint32_t moec_symbol_count(const moec_model *m);
/* Name (valid until moec_close()) and value, -1 where none is bound; each may be NULL. */
moec_status *moec_symbol(const moec_model *m, uint32_t i, const char **name, int64_t *value);

/* Binds sizes: checks them, places the buffers of forward and runs what depends on sizes only. The
 * first time for a set of sizes this allocates; bound again later it does not. Room for the buffers
 * of a program is made when it first runs: one that never runs needs none. moec_forward() does
 * all this by itself, from the shapes of its inputs; done before, it takes that time out of the first
 * step. Outputs read earlier are no longer valid. After an error no sizes are bound.
 * Errors: MOEC_INVALID_ARGUMENT, naming the node that needs another size; MOEC_OUT_OF_MEMORY. */
moec_status *moec_bind_sizes(moec_model *m, uint32_t n, const char *const *names,
                             const int64_t *values);
/* The same from the shapes of all inputs of forward: only dtype, rank and dims are read. An input
 * with a default may be left out: dtype 0. Entries that forward has not are not looked at. */
moec_status *moec_bind_shapes(moec_model *m, const moec_view *inputs);

/* Checks and places |program| for the sizes bound, without making room for it: running it does
 * both. moec_counters_get() then says what it needs. Errors: as of moec_bind_sizes(). */
moec_status *moec_place(moec_model *m, moec_program program);

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

/* One step: computes all outputs from the inputs. Error: MOEC_INVALID_ARGUMENT: an input without a
 * default is missing, shapes disagree, or a value makes an index point outside ('node "X": an
 * index is out of range'); outputs are then not valid. */
moec_status *moec_forward(moec_model *m);

/* Output |i| of what ran last: valid until any program runs or sizes are bound. Error:
 * MOEC_INVALID_ARGUMENT: index, no step was made, or the program that ran has no such output. */
moec_status *moec_output(const moec_model *m, uint32_t i, moec_view *out);

/* What a MoE layer decided in the last step. */
typedef struct moec_layer_routes {
  const char *name;
  uint32_t experts;
  moec_view indices; /* i64 [tokens, k]: experts */
  moec_view weights; /* float [tokens, k]; data NULL where the model has none */
  moec_view offsets; /* i32 [experts + 1]: rows before each expert; data NULL where not there */
} moec_layer_routes;

/* Layers in the order in which they run, of what ran last (before that: of forward). */
uint32_t moec_route_count(const moec_model *m);
/* Valid like outputs. Errors: MOEC_INVALID_ARGUMENT: index, or no step was made. */
moec_status *moec_route(const moec_model *m, uint32_t layer, moec_layer_routes *out);
/* Makes layer |layer| of every program use |indices|, i64 [tokens, k], instead of choosing; NULL:
 * choose again. The memory is borrowed until other indices take its place or the model is closed.
 * Errors: MOEC_INVALID_ARGUMENT: index, dtype or shape, an expert that does not exist or that a
 * token has twice; a program where other steps than moe.select choose. The number of tokens is
 * checked by the step. */
moec_status *moec_force_routes(moec_model *m, uint32_t layer, const moec_view *indices);

/* ---- gradients ---------------------------------------------------------------------------- */

/* All of this needs a model compiled with --train: MOEC_INVALID_ARGUMENT where it was not. */

/* One step of MOEC_TRAIN: loss and gradients from the inputs, `labels` among them. |accumulate| 0:
 * the gradients are this step's; 1: they are added to those since the last
 * moec_optimizer_step(), for a batch in several parts. |loss|: where this step's loss goes; may be
 * NULL. Errors: as of moec_forward(); with |accumulate| the gradients are as before then, else
 * there are none. */
moec_status *moec_loss_and_gradients(moec_model *m, int accumulate, double *loss);
/* One step of MOEC_VJP: the same from the inputs `grad.OUTPUT`, the gradients of the outputs. */
moec_status *moec_vjp(moec_model *m, int accumulate);

/* The gradient of parameter |i|: f32 in the parameter's shape, borrowed. It may be written to, for
 * clipping of another kind say. Valid until the next moec_loss_and_gradients(), moec_vjp(),
 * moec_scale_gradients() or moec_clip_gradients(). A device's are copied when they are asked for.
 * Tied parameters have one gradient, under each of their names. Gradients of inputs are outputs,
 * `grad.INPUT`. Error: MOEC_INVALID_ARGUMENT: index, no gradient path, or none was computed. */
moec_status *moec_gradient(const moec_model *m, uint32_t i, moec_view *out);
/* The same by the parameter's name. */
moec_status *moec_gradient_of(const moec_model *m, const char *name, moec_view *out);

/* Multiplies all gradients by |factor|: 1 / parts after adding up the parts of a batch. */
moec_status *moec_scale_gradients(moec_model *m, double factor);
/* The L2 norm of all gradients as of one vector, each tied parameter once, added up in f64; when
 * it is above |max_norm|, scales them by max_norm / (norm + 1e-6). INFINITY only measures. |norm|
 * may be NULL. Error: MOEC_INVALID_ARGUMENT: no gradients, or the norm is not finite; the
 * gradients are then as they were, and *norm is set. Without |norm| nothing waits for a device:
 * where its norm is not finite the next update leaves everything as it is, and the next
 * moec_loss_and_gradients(), moec_vjp() or moec_save_state() says so. */
moec_status *moec_clip_gradients(moec_model *m, double max_norm, double *norm);

/* ---- the optimizer ------------------------------------------------------------------------ */

typedef enum moec_optimizer_kind { MOEC_ADAMW, MOEC_SGD } moec_optimizer_kind;

typedef struct moec_optimizer {
  moec_optimizer_kind kind;
  double lr;
  double weight_decay;      /* AdamW: decoupled; SGD: added to the gradient */
  int decay_matrices_only;  /* 1: none for parameters of rank below 2 (norms, biases) */
  double beta1, beta2, eps; /* AdamW */
  double momentum;          /* SGD; 0: none */
} moec_optimizer;

/* The defaults of torch.optim.AdamW and torch.optim.SGD: lr 1e-3; AdamW: betas 0.9 and 0.999, eps
 * 1e-8, weight decay 0.01; SGD: no momentum, no decay. */
void moec_optimizer_defaults(moec_optimizer_kind kind, moec_optimizer *out);
/* Chooses the optimizer; called again it changes the numbers and keeps the moments. Errors:
 * MOEC_INVALID_ARGUMENT: a number out of its range, or another kind after the first step. */
moec_status *moec_optimizer_set(moec_model *m, const moec_optimizer *options);
moec_status *moec_optimizer_set_lr(moec_model *m, double lr);
/* The weight decay of parameter |i| alone, from now on. */
moec_status *moec_optimizer_set_decay(moec_model *m, uint32_t i, double weight_decay);

/* Updates every parameter that has a gradient, then what is derived from parameters. A parameter
 * without one stays as it is, without decay too. The first time parameters move to memory of
 * their own (mapped files are never written to) and moments are allocated; masters are f32,
 * whatever the weights are stored as. Gradients stay readable; the next accumulating step starts
 * anew. Outputs stay valid. Errors: MOEC_INVALID_ARGUMENT: no optimizer, no gradients;
 * MOEC_OUT_OF_MEMORY. */
moec_status *moec_optimizer_step(moec_model *m);

/* Where training is. |rng|: two words for the caller's own random numbers (which data comes next),
 * kept in the state for it. */
typedef struct moec_progress {
  int64_t step; /* optimizer steps made */
  double lr;
  uint64_t rng[2];
} moec_progress;
moec_status *moec_progress_get(const moec_model *m, moec_progress *out);
moec_status *moec_progress_set_rng(moec_model *m, const uint64_t rng[2]);

/* ---- files of training ------------------------------------------------------------------- */

/* The state of training as one .safetensors file: parameters (f32), moments, progress. It is
 * written beside |path|, brought to the disk and renamed: whenever the process is killed, |path|
 * holds the old state or the new one, whole. Errors: MOEC_INVALID_ARGUMENT, MOEC_IO. */
moec_status *moec_save_state(const moec_model *m, const char *path);
/* Takes up the state of |path|. Its model must be this one: the same parameters by name and shape,
 * compiled from the same weights files. Where no optimizer was chosen, the file's kind is, with
 * its defaults and the file's lr. Gradients are gone, and so is their norm. Errors: MOEC_INVALID_ARGUMENT or
 * MOEC_INVALID_MODEL, naming what differs; MOEC_OUT_OF_MEMORY. */
moec_status *moec_load_state(moec_model *m, const char *path);

/* Writes the weights as they were read: into the folder |dir|, made if need be, go a copy of each
 * weights file with the bytes of every updated parameter replaced, in the layout and type they had;
 * the .json files beside them, so that transformers loads the folder; and, for weights that were
 * inside the model's file, MODEL.safetensors under their own names (MODEL.inline.safetensors where
 * a weights file has that name). Each file appears whole or not at all. The executable itself keeps
 * wanting the weights it was compiled with. Errors: MOEC_INVALID_ARGUMENT: |dir| is where the
 * weights were read from; MOEC_IO. */
moec_status *moec_save_weights(const moec_model *m, const char *dir);

/* ---- DLPack ------------------------------------------------------------------------------- */

/* Tensors to and from other libraries without a copy: https://github.com/dmlc/dlpack, whose header
 * declares these. */
struct DLManagedTensor;          /* of versions before 1.0 */
struct DLManagedTensorVersioned; /* of 1.x */

/* Input |i| as moec_input_borrow(). The model keeps |t| and calls its deleter when another input
 * takes its place or the model is closed; after an error |t| is the caller's still. Errors: as of
 * moec_input_borrow(), and MOEC_UNSUPPORTED: not in this machine's memory, not dense and
 * row-major, or of another major version. */
moec_status *moec_input_dlpack(moec_model *m, uint32_t i, struct DLManagedTensorVersioned *t);
moec_status *moec_input_dlpack_unversioned(moec_model *m, uint32_t i, struct DLManagedTensor *t);

/* *out = |view|, which came from |m|, for another library; it ends with its deleter, which may run
 * on any thread. The memory lives until then, also when the model is closed before, but what is
 * in it changes when the view's own comment says so. While any is out, buffers cannot grow: a
 * step of larger sizes is then an error. */
moec_status *moec_dlpack(moec_model *m, const moec_view *view,
                         struct DLManagedTensorVersioned **out);
moec_status *moec_dlpack_unversioned(moec_model *m, const moec_view *view,
                                     struct DLManagedTensor **out);

/* ---- counters ---------------------------------------------------------------------------- */

typedef struct moec_counters {
  uint64_t forwards;                /* steps made: moec_forward() */
  uint64_t backwards, updates;      /* loss and gradients, or vjp; optimizer steps */
  uint64_t binds, placements;       /* sizes bound; those that were new */
  uint64_t compilations;            /* since opening: plans of a library for attention, in new sizes; nothing else */
  uint64_t allocations;             /* of the runtime since opening */
  uint64_t allocations_after_first; /* in all steps but the first of new sizes: 0 */
  uint64_t threads;
  /* of what ran last, before that of forward, for the sizes bound; 0 where none are: */
  uint64_t kernels_per_step; /* launches of generated kernels outside of expert regions */
  uint64_t library_per_step; /* other steps outside of expert regions */
  uint64_t moe_per_step;     /* expert regions, plan to combine: one a MoE layer */
  uint64_t steps_in_regions; /* the kernels and library steps inside of them */
  uint64_t attention_by_library; /* of the kernels: attention and its gradient that a library ran in the last step */
  uint64_t flops_per_step;
  /* memory: */
  uint64_t parameter_bytes, mapped_bytes;      /* copied; used in place from files */
  uint64_t load_bytes, bind_bytes, step_bytes; /* arenas; the last is shared by the programs */
  uint64_t program_bytes[MOEC_PROGRAM_COUNT];  /* what each needs of it; 0: not placed yet */
  uint64_t planned_bytes[MOEC_PROGRAM_COUNT];  /* all that each alone has in its device's memory, known before */
  uint64_t planned_accumulate_bytes;           /* beside these, where gradients are added to those of steps before */
  uint64_t planned_update_bytes;               /* beside these, for the optimizer that was chosen, or AdamW */
  uint64_t gradient_bytes, optimizer_bytes;    /* optimizer: moments, masters, copies of parameters */
  uint64_t live_bytes, peak_bytes;             /* all allocations of the runtime in the host's memory */
  uint64_t device_bytes, device_peak_bytes;    /* and in that of a device which has its own; else 0 */
  /* between the host and such a device, since opening: */
  uint64_t device_waits;                         /* of the host: one at the end of a step, and with each read */
  uint64_t device_writes, device_write_bytes;    /* to the device: parameters, inputs */
  uint64_t device_reads, device_read_bytes;      /* from it: faults at the end of a step, results asked for */
} moec_counters;
/* Why kernels of the model did attention in the last step where a library could have; "" where they didn't. Valid until
 * the next. */
const char *moec_attention_note(const moec_model *m);
/* Never fails. */
void moec_counters_get(const moec_model *m, moec_counters *out);

/* One kind of step, of what ran last for the sizes bound. */
typedef struct moec_step_class {
  const char *name;      /* "gemm" */
  uint64_t steps;        /* in one step */
  uint64_t bytes, flops; /* read and written by operands; of one step */
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
