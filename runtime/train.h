/* What training keeps beside a model: gradients, masters, moments, progress. All of it lies in the device's memory, and
 * what is done with it is started there; the host has copies of what was asked for. Like the model it belongs to one
 * thread at a time. */
#ifndef MOEC_RUNTIME_TRAIN_H
#define MOEC_RUNTIME_TRAIN_H

#include "base/dtype.h"
#include "base/status.h"
#include "include/cuda_abi.h"
#include "include/moec.h"
#include "runtime/plan_read.h"
#include "runtime/threads.h"

/* Something the optimizer updates: a parameter, or several tied ones that share their storage. */
typedef struct moec_rt_leaf {
  uint32_t param;        /* the first of its records in the plan */
  uint32_t weight, grad; /* buffers: the compute copy, the gradient as programs write it */
  int64_t n;             /* elements */
  moec_dtype type;       /* of both */
  uint64_t offset;       /* in arenas that have n floats for each leaf */
  uint32_t programs;     /* bit s: schedule s computes its gradient */
  bool has_grad;
  void *at;              /* the gradient, where there is one: as a program wrote it, or a sum in f32 */
  moec_dtype at_type;
  float *master;         /* the compute copy itself where that is f32; NULL: not writable yet */
  float *first, *second; /* moments; NULL: none */
  int64_t updates;
  double decay; /* NAN: the optimizer's */
} moec_rt_leaf;

typedef struct moec_rt_train {
  moec_rt_leaf *leaves;
  uint32_t n;
  uint32_t *leaf_of; /* by parameter; MOEC_NONE: it is not trained */
  uint8_t *derived;  /* by step: LOAD and BIND steps that depend on what is trained */
  uint64_t *offset;  /* by buffer: of gradients in |grads| */
  uint64_t grad_bytes, float_bytes; /* of |grads|; of n floats for each leaf */
  moec_rt_arena grads, sums;        /* of the last program; in f32: of parts, and where |grads| has another type */
  moec_rt_arena weights;            /* masters and compute copies that were moved */
  moec_rt_arena moments, chunks;    /* chunks: sums of them, for the norm */
  moec_rt_arena scalars;            /* a moec_cuda_scale, then a moec_cuda_update of each leaf */
  moec_cuda_update *next;           /* of the next update, by leaf: goes to |scalars| */
  bool scaled;                      /* gradients are what they are stored as times the scale */
  bool unchecked;                   /* nobody has seen whether the norm was finite */
  moec_rt_arena lent, copies;       /* the host's: gradients that were asked for; compute copies */
  bool is_lent, is_copied;          /* they are what the device has */
  bool pending;                     /* gradients were computed since the last update */
  bool chosen;                      /* an optimizer was */
  moec_optimizer optimizer;
  int64_t step;
  uint64_t rng[2];
  uint64_t backwards, updates; /* since opening */
} moec_rt_train;

struct moec_model;

/* ---- what a device does with arrays in its memory: started, not waited for ------------------- */

enum { MOEC_RT_SQUARES = 1 << 14 }; /* elements whose squares are added up by themselves, in f64 */

typedef struct moec_rt_update {
  bool adamw;
  float *w, *first, *second; /* first NULL: SGD without momentum */
  const void *g;
  moec_dtype g_type, copy_type;
  void *copy; /* to be refreshed; NULL: w is it */
  int64_t n;
  const moec_cuda_update *by;   /* in the device's memory, as |scale|: NULL for 1 */
  const moec_cuda_scale *scale;
} moec_rt_update;

typedef struct moec_rt_train_ops {
  /* to = from, or to += from, times the scale. |from| may be |to|. */
  moec_status *(*add)(struct moec_model *m, float *to, bool more, moec_dtype type, const void *from,
                      const moec_cuda_scale *scale, int64_t n);
  /* to = from, rounded. */
  moec_status *(*narrow)(struct moec_model *m, moec_dtype type, void *to, const float *from, int64_t n);
  /* sums[c] of the c-th MOEC_RT_SQUARES elements. */
  moec_status *(*squares)(struct moec_model *m, moec_dtype type, const void *from, int64_t n, double *sums);
  /* As moec_clip of include/cuda_abi.h. */
  moec_status *(*clip)(struct moec_model *m, const double *sums, int64_t n, double max_norm, moec_cuda_scale *scale);
  moec_status *(*update)(struct moec_model *m, const moec_rt_update *u);
} moec_rt_train_ops;

extern const moec_rt_train_ops moec_rt_train_cpu;  /* train_cpu.c */
extern const moec_rt_train_ops moec_rt_train_cuda; /* cuda_train.c */

/* ---- train.c ---- */
/* The leaves of the plan; none where it was compiled without --train. */
moec_status *moec_rt_train_init(struct moec_model *m) MOEC_MUST_USE;
void moec_rt_train_fini(struct moec_model *m);
/* "compiled without --train": as an error, and unless the model was compiled with it. */
moec_status *moec_rt_untrained(void);
moec_status *moec_rt_need_training(const struct moec_model *m) MOEC_MUST_USE;
/* What gradients of |program| are summed up in where it computes several of one leaf; 0: none is. */
uint64_t moec_rt_part_bytes(const struct moec_model *m, uint32_t program);
static inline uint64_t moec_rt_rounded(uint64_t bytes) { return (bytes / MOEC_RT_ALIGN + 1) * MOEC_RT_ALIGN; }

/* ---- gradients.c ---- */
/* Gradients that were lent may have been written to: the device gets them back. */
moec_status *moec_rt_gradients_return(struct moec_model *m) MOEC_MUST_USE;
/* All gradients into |sums|, in f32 and as they are: programs may then write |grads|. */
moec_status *moec_rt_gradients_sum(struct moec_model *m) MOEC_MUST_USE;
/* What gradients are multiplied by; NULL: nothing. */
const moec_cuda_scale *moec_rt_scale(const struct moec_model *m);
/* Memory for scalars, and for what the norm is summed up in. */
uint64_t moec_rt_scalars_bytes(const struct moec_model *m);
uint64_t moec_rt_norm_bytes(const struct moec_model *m);
moec_status *moec_rt_scalars_make(struct moec_model *m) MOEC_MUST_USE;
/* There are none, nor a scale or a norm of them. */
moec_status *moec_rt_gradients_forget(struct moec_model *m) MOEC_MUST_USE;
/* Unless a norm that nobody looked at was not finite: they are then what they were before they were clipped. */
moec_status *moec_rt_check_norm(struct moec_model *m) MOEC_MUST_USE;

/* ---- masters.c ---- */
/* Gives every leaf a master that may be written to. */
moec_status *moec_rt_masters_make(struct moec_model *m) MOEC_MUST_USE;
/* Compute copies from masters, then what is derived from them. */
moec_status *moec_rt_masters_apply(struct moec_model *m) MOEC_MUST_USE;
/* After compute copies were refreshed: what is derived from them, again. */
moec_status *moec_rt_derive(struct moec_model *m) MOEC_MUST_USE;
/* Moments for an optimizer like |o|, zeroed. */
moec_status *moec_rt_moments_make(struct moec_model *m, const moec_optimizer *o) MOEC_MUST_USE;
/* What updates need beside gradients, in the optimizer that was chosen or AdamW. */
uint64_t moec_rt_update_bytes(const struct moec_model *m);
/* The values of a leaf in f32 into |to|, of the host. */
moec_status *moec_rt_leaf_values(const struct moec_model *m, const moec_rt_leaf *l, float *to) MOEC_MUST_USE;
/* Compute copies that were updated into the host's memory. */
moec_status *moec_rt_copies_fetch(struct moec_model *m) MOEC_MUST_USE;

#endif
