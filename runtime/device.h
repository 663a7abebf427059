/* Where a model's buffers are and its steps run. m->buffers[] holds addresses of the device; what people, files and the
 * optimizer read and write lies in the host's memory: m->host[], which with a device that works there is the same
 * array. One device a model, chosen by the plan's target on opening. Like the model one thread at a time. */
#ifndef MOEC_RUNTIME_DEVICE_H
#define MOEC_RUNTIME_DEVICE_H

#include "base/tensor.h"
#include "include/plan.h"
#include "runtime/memory.h"
#include "runtime/ops.h"

struct moec_model;
struct moec_rt_binding;

/* What a device was given. */
typedef struct moec_rt_launches {
  uint32_t kernels, copies, fills, others;
} moec_rt_launches;

/* What passed between the host and the device since opening. */
typedef struct moec_rt_traffic {
  uint64_t writes, write_bytes, reads, read_bytes, waits; /* writes: to the device */
} moec_rt_traffic;

typedef struct moec_rt_device {
  const char *name;
  bool in_host;     /* its memory is the host's: nothing is copied */
  bool no_contents; /* its memory holds nothing: only sizes are asked for */
  const struct moec_rt_train_ops *train; /* runtime/train.h; NULL: nothing can be trained there */
  /* Finds the device and loads the kernels. What it made is undone by close(), also after an error. */
  moec_status *(*open)(struct moec_model *m);
  void (*close)(struct moec_model *m);
  /* Bytes of its memory that it has for itself from opening on, a function of the plan. NULL: none. */
  uint64_t (*own)(const struct moec_model *m);
  /* Memory aligned to 256 bytes (in the host's: MOEC_RT_ALIGN); NULL: there is none. */
  void *(*alloc)(struct moec_model *m, uint64_t bytes);
  void (*free)(struct moec_model *m, void *at, uint64_t bytes);
  /* Memory of the host that write() copies from without waiting, however much it is, and that must not change before a
   * wait. NULL: its memory is the host's. */
  void *(*host_alloc)(struct moec_model *m, uint64_t bytes);
  void (*host_free)(struct moec_model *m, void *at, uint64_t bytes);
  /* From and to the host; in order with the steps. |from| of write() may change when it returns, but for memory of
   * host_alloc(); read() waits. */
  moec_status *(*write)(struct moec_model *m, void *to, const void *from, uint64_t bytes);
  moec_status *(*read)(struct moec_model *m, void *to, const void *from, uint64_t bytes);
  moec_status *(*fill)(struct moec_model *m, void *to, uint8_t byte, uint64_t bytes);
  /* Temporary memory of step |s| in the sizes of |b|; |call| is what its check was given, NULL for a kernel. |need|
   * comes as the check left it. */
  moec_status *(*need)(const struct moec_model *m, const moec_plan_step *s, const struct moec_rt_binding *b,
                       const moec_rt_call *call, moec_rt_need *need);
  /* Around steps of |schedule|: addresses do not change in between, and only end() waits for what was started. */
  moec_status *(*begin)(struct moec_model *m, moec_schedule schedule, const struct moec_rt_binding *b);
  moec_status *(*kernel)(struct moec_model *m, uint32_t step, const struct moec_rt_binding *b);
  moec_status *(*library)(struct moec_model *m, const moec_rt_call *call);
  moec_status *(*end)(struct moec_model *m, moec_schedule schedule);
  moec_status *(*wait)(struct moec_model *m); /* for everything that was started */
  /* Weights made from a seed, NORMAL of base/fresh.h times |scale|, from place |start| of their sequence on and rounded
   * to |stored|, f32, bf16 or f16. NULL: it makes none. */
  moec_status *(*normal)(struct moec_model *m, void *y, moec_dtype type, moec_dtype stored, uint64_t start, float scale,
                         int64_t n);
  /* Moments, from 0, in the order of what is started; after a wait the nanoseconds from each of |n| to the next. */
  moec_status *(*mark)(struct moec_model *m, uint32_t i);
  moec_status *(*marked)(struct moec_model *m, uint32_t n, uint64_t *ns);
  /* What is started between these two does not run but is counted, as the device would see it. NULL: nothing is
   * launched on this device. */
  moec_status *(*count_begin)(struct moec_model *m);
  moec_status *(*count_end)(struct moec_model *m, moec_rt_launches *out);
} moec_rt_device;

extern const moec_rt_device moec_rt_device_cpu;   /* device_cpu.c: on all threads */
extern const moec_rt_device moec_rt_device_cuda;  /* cuda.c: one GPU, one stream */
extern const moec_rt_device moec_rt_device_sizes; /* device_sizes.c: nothing is there and nothing runs */

/* The device of a plan's target; |describe|: the model is only asked about. */
const moec_rt_device *moec_rt_device_of(const char *target, bool describe);

/* An arena in the device's memory. */
moec_status *moec_rt_device_reserve(struct moec_model *m, moec_rt_arena *a, uint64_t bytes,
                                    const char *what) MOEC_MUST_USE;
void moec_rt_device_release(struct moec_model *m, moec_rt_arena *a);

/* ---- device_copies.c: what is in both memories ----------------------------------------------- */

/* Copies of results in the host's memory, made when they are asked for. */
typedef struct moec_rt_copies {
  struct moec_model *m;
  uint64_t run; /* counts what ran; a copy of an earlier run is stale */
  moec_rt_arena staging; /* inputs as they go to the device: of its host_alloc() */
  uint64_t sent;         /* staged inputs are on their way while m->traffic.waits is less than this */
  bool *ones;   /* [n_ins]: all elements of the input, as it was copied to the device last, are one */
  struct {
    moec_rt_arena data;
    uint64_t run;
  } *of; /* by buffer */
} moec_rt_copies;

/* Parameters and constants, which are in the host's memory, to the device; m->host and m->copies. */
moec_status *moec_rt_copies_init(struct moec_model *m) MOEC_MUST_USE;
void moec_rt_copies_fini(struct moec_model *m);
/* What inputs of |program| take there in the bound sizes; UINT64_MAX: more than can be. */
uint64_t moec_rt_copies_input_bytes(const struct moec_model *m, moec_schedule program);
/* Inputs of |program| into the device's memory; |data| by m->ins, NULL for inputs of other programs. */
moec_status *moec_rt_copies_inputs(struct moec_model *m, moec_schedule program, void *const *data) MOEC_MUST_USE;
/* A tensor of the plan whose data the caller may read, until the next run. */
moec_status *moec_rt_host_view(const struct moec_model *m, const struct moec_rt_binding *b, uint32_t tensor,
                               moec_tensor *out) MOEC_MUST_USE;

#endif
