/* What training keeps beside a model: gradients, moments, progress. Like the model it belongs to one
 * thread at a time. */
#ifndef MOEC_RUNTIME_TRAIN_H
#define MOEC_RUNTIME_TRAIN_H

#include "base/dtype.h"
#include "base/status.h"
#include "include/moec.h"
#include "runtime/plan_read.h"
#include "runtime/threads.h"

/* Something the optimizer updates: a parameter, or several tied ones that share their storage. */
typedef struct moec_rt_leaf {
  uint32_t param;        /* the first of its records in the plan */
  uint32_t weight, grad; /* buffers: the compute copy, the gradient */
  int64_t n;             /* elements */
  moec_dtype type;       /* of the compute copy and the gradient */
  uint32_t programs;     /* bit s: schedule s computes its gradient */
  bool has_grad;
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
  uint64_t *offset;  /* by buffer: of gradients in their arenas */
  uint64_t grad_bytes;
  moec_rt_arena grads, held;   /* in the host's memory; the second: of earlier parts while a part is run */
  moec_rt_arena on_device;     /* gradients of the last program, where a device has its own memory */
  bool away;                   /* they are nowhere else yet */
  uint32_t away_program;
  moec_rt_arena weights;       /* masters and compute copies that were moved */
  moec_rt_arena moments, sums; /* sums: of chunks, for the norm */
  bool pending;                /* gradients were computed since the last update */
  bool chosen;                 /* an optimizer was */
  moec_optimizer optimizer;
  int64_t step;
  uint64_t rng[2];
  uint64_t backwards, updates; /* since opening */
} moec_rt_train;

struct moec_model;

/* ---- train.c ---- */
/* The leaves of the plan; none where it was compiled without --train. */
moec_status *moec_rt_train_init(struct moec_model *m) MOEC_MUST_USE;
void moec_rt_train_fini(struct moec_model *m);
/* The gradients of the last program into the host's memory, where parts are summed, scaled and read. */
moec_status *moec_rt_gradients_fetch(struct moec_model *m) MOEC_MUST_USE;
/* "compiled without --train": as an error, and unless the model was compiled with it. */
moec_status *moec_rt_untrained(void);
moec_status *moec_rt_need_training(const struct moec_model *m) MOEC_MUST_USE;
/* fn(ctx, begin, end, thread) on the elements of a leaf, on all threads. */
void moec_rt_each(moec_rt_pool *pool, int64_t n, moec_rt_range_fn fn, void *ctx);
/* Gradients are read and written in f32, a chunk at a time. */
enum { MOEC_RT_CHUNK = 256 };
/* Elements i, i + 1 ... of |data|; where they are not f32 they are converted into |room|. */
const float *moec_rt_floats(moec_dtype type, const void *data, int64_t i, int64_t n, float *room);
/* The inverse, for what was put into |room| or |data| itself. */
void moec_rt_floats_back(moec_dtype type, void *data, int64_t i, int64_t n, const float *room);

/* ---- masters.c ---- */
/* Gives every leaf a master that may be written to. */
moec_status *moec_rt_masters_make(struct moec_model *m) MOEC_MUST_USE;
/* Compute copies from masters, then what is derived from them. */
moec_status *moec_rt_masters_apply(struct moec_model *m) MOEC_MUST_USE;
/* Moments for an optimizer like |o|, zeroed. */
moec_status *moec_rt_moments_make(struct moec_model *m, const moec_optimizer *o) MOEC_MUST_USE;

#endif
