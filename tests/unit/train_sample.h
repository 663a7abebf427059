/* A plan with all programs, whose gradients are easy to work out by hand:
 *
 *   w2 = 2 w (at load)         y[i] = x[i] w2[i % 4] + t[i % 4] + v[i % 2, i / 2 % 2]
 *   loss = sum (y - labels)^2 / 2                      c: trainable, but nothing depends on it
 *
 * t is tied to w: one storage, but two gradients. In weights.bin: w and c are f32, v is bf16 with its
 * axes swapped; t names the bytes of w. */
#ifndef MOEC_TESTS_TRAIN_SAMPLE_H
#define MOEC_TESTS_TRAIN_SAMPLE_H

#include "tests/unit/plan_builder.h"

#include "include/moec.h"
#ifdef TRAIN_ON_CUDA
#include "tests/support/fake_device.h"
#endif

static const char train_source[] =
    "#include \"include/plan.h\"\n"
    "#define IN(i) ((const float *)a->buf[i])\n"
    "#define OUT(i) ((float *)a->buf[i])\n"
    "#define ROWS int64_t i = begin; i < end; i++\n"
    "void twice(const moec_kernel_args *a, int64_t begin, int64_t end) {\n"
    "  for (ROWS) OUT(1)[i] = 2 * IN(0)[i];\n"
    "}\n"
    "void forward(const moec_kernel_args *a, int64_t begin, int64_t end) {\n" /* x w2 t v -> y */
    "  for (ROWS) OUT(4)[i] = IN(0)[i] * IN(1)[i % 4] + IN(2)[i % 4] + IN(3)[i % 2 * 2 + i / 2 % "
    "2];\n"
    "}\n"
    "void loss(const moec_kernel_args *a, int64_t begin, int64_t end) {\n" /* y labels -> loss dy */
    "  (void)begin, (void)end, OUT(2)[0] = 0;\n"
    "  for (int64_t i = 0; i < a->sym[0]; i++) {\n"
    "    float d = IN(0)[i] - IN(1)[i];\n"
    "    OUT(3)[i] = d, OUT(2)[0] += d * d / 2;\n"
    "    if (IN(1)[i] > 1e6f) *a->fault = 1;\n" /* as a label out of range */
    "  }\n"
    "}\n"
    "void backward(const moec_kernel_args *a, int64_t begin, int64_t end) {\n" /* dy x w2 -> dw dt dv dx */
    "  (void)begin, (void)end;\n"
    "  for (int i = 0; i < 4; i++) OUT(3)[i] = OUT(4)[i] = OUT(5)[i] = 0;\n"
    "  for (int64_t i = 0; i < a->sym[0]; i++) {\n"
    "    OUT(3)[i % 4] += 2 * IN(1)[i] * IN(0)[i];\n"
    "    OUT(4)[i % 4] += IN(0)[i];\n"
    "    OUT(5)[i % 2 * 2 + i / 2 % 2] += IN(0)[i];\n"
    "    OUT(6)[i] = IN(0)[i] * IN(2)[i % 4];\n"
    "  }\n"
    "}\n";

enum { TRAIN_W = 64, TRAIN_V = 128, TRAIN_C = 160, TRAIN_FILE = 200 };
static const float train_w[4] = {1, -2, 3, 0.5f}, train_v[4] = {0.25f, -1, 2, 4},
                   train_c[4] = {7, 8, 9, 10};

static inline void train_weights(uint8_t bytes[TRAIN_FILE]) {
  for (size_t i = 0; i < TRAIN_FILE; i++) bytes[i] = (uint8_t)i;
  memcpy(bytes + TRAIN_W, train_w, sizeof train_w);
  memcpy(bytes + TRAIN_C, train_c, sizeof train_c);
  for (size_t i = 0; i < 4; i++) /* stored [j, i] */
    moec_store_f64(MOEC_BF16, bytes + TRAIN_V, i % 2 * 2 + i / 2, (double)train_v[i]);
}

static inline uint32_t train_param(plan_builder *b, const char *name, uint32_t rank,
                                   const int64_t *dims, moec_plan_piece piece, uint32_t tie,
                                   bool gradient) {
  moec_tensor t = {.dtype = MOEC_F32, .rank = rank};
  memcpy(t.dims, dims, rank * sizeof *dims);
  piece.name = pb_str(b, name);
  uint32_t w = pb_static(b, MOEC_BUFFER_PARAM, &t), at = PB_ADD(b, pieces, piece);
  moec_plan_param p = {.name = pb_str(b, name), .tensor = w, .storage = piece.dtype};
  p.shard_axis = -1, p.trainable = 1, p.tie = tie, p.pieces = at, p.n_pieces = 1;
  p.grad = gradient ? pb_static(b, MOEC_BUFFER_GRAD, &t) : MOEC_NONE;
  PB_ADD(b, params, p);
  return w;
}

typedef struct train_plan {
  moec_expr_ref n, one, none;
  uint32_t w, t, v, w2, kernels[4], grads[3];
} train_plan;

/* The steps of |program|: forward, and backward from |dy| or from the loss. */
static inline void train_program(plan_builder *b, const train_plan *p, moec_schedule program) {
  const moec_expr_ref line[] = {p->n};
  b->program = program;
  bool forward = program == MOEC_AT_STEP, loss = program == MOEC_AT_TRAIN;
  uint32_t x = pb_tensor(b, MOEC_BUFFER_INPUT, MOEC_F32, 1, line);
  uint32_t y = pb_tensor(b, forward ? MOEC_BUFFER_OUTPUT : MOEC_BUFFER_STEP, MOEC_F32, 1, line);
  pb_input(b, "x", x);
  pb_launch(b, program, p->kernels[1], 4, 1, (uint32_t[]){x, p->w2, p->t, p->v, y});
  if (forward) pb_output(b, "y", y);
  if (forward) return;
  uint32_t other = pb_tensor(b, MOEC_BUFFER_INPUT, MOEC_F32, 1, line), dy = other;
  pb_input(b, loss ? "labels" : "grad.y", other);
  if (loss) {
    uint32_t l = pb_tensor(b, MOEC_BUFFER_OUTPUT, MOEC_F32, 0, NULL);
    dy = pb_tensor(b, MOEC_BUFFER_STEP, MOEC_F32, 1, line);
    pb_launch(b, program, p->kernels[2], 2, 2, (uint32_t[]){y, other, l, dy});
    pb_output(b, "loss", l);
  }
  uint32_t dx = pb_tensor(b, MOEC_BUFFER_OUTPUT, MOEC_F32, 1, line);
  pb_launch(b, program, p->kernels[3], 3, 4,
            (uint32_t[]){dy, x, p->w2, p->grads[0], p->grads[1], p->grads[2], dx});
  pb_output(b, "grad.x", dx);
}

/* |train| false: as it is compiled without --train. */
static inline plan_builder *train_build_as(bool train) {
  static const char *const names[] = {"twice", "forward", "loss", "backward"};
  plan_builder *b = pb_create();
  uint8_t bytes[TRAIN_FILE];
  const int64_t four = 4, square[] = {2, 2};
  moec_plan_file f = {.name = pb_str(b, "weights.bin"), .size = TRAIN_FILE};
  train_weights(bytes);
  UNIT_OK(moec_map_digest(&(moec_map){.data = bytes, .size = sizeof bytes}, 1, f.sha256));
  PB_ADD(b, files, f);
  train_plan p = {.n = pb_symbol(b, "n", -1), .one = pb_const(b, 1), .none = pb_const(b, 0)};
  const moec_plan_piece line = {.dtype = MOEC_F32, .rank = 1, .shape = {4}, .offset = TRAIN_W};
  moec_plan_piece other = line, turned = {.dtype = MOEC_BF16,
                                          .rank = 2,
                                          .shape = {2, 2},
                                          .perm = {1, 0},
                                          .offset = TRAIN_V};
  other.offset = TRAIN_C;
  p.w = train_param(b, "w", 1, &four, line, 1, train);
  p.t = train_param(b, "t", 1, &four, line, 1, train);
  p.v = train_param(b, "v", 2, square, turned, 0, train);
  train_param(b, "c", 1, &four, other, 0, false);
  const moec_expr_ref table[] = {pb_const(b, 4)};
  p.w2 = pb_tensor(b, MOEC_BUFFER_LOAD, MOEC_F32, 1, table);
  const moec_expr_ref rows[] = {table[0], p.n, p.one, p.one};
  for (int i = 0; i < 4; i++) p.kernels[i] = pb_kernel(b, names[i], rows[i], p.none);
  for (int i = 0; i < 3; i++) p.grads[i] = b->params[i].grad;
  pb_launch(b, MOEC_AT_LOAD, p.kernels[0], 1, 1, (uint32_t[]){p.w, p.w2});
  train_program(b, &p, MOEC_AT_STEP);
  if (!train) return b;
  train_program(b, &p, MOEC_AT_TRAIN);
  train_program(b, &p, MOEC_AT_VJP);
  return b;
}
static inline plan_builder *train_build(void) { return train_build_as(true); }

/* ---- running it -------------------------------------------------------------------------- */

typedef struct train_setup {
  char *dir; /* weights.bin is here */
  moec_map object;
} train_setup;

static inline bool train_possible(void) {
#ifdef TRAIN_ON_CUDA
  return emulation_possible();
#else
  return true;
#endif
}

/* For the device that these tests are about. */
static inline plan_builder *train_target(plan_builder *b) {
#ifdef TRAIN_ON_CUDA
  return fake_target(b);
#else
  return b;
#endif
}

static inline train_setup train_start(void) {
  char path[256];
  uint8_t bytes[TRAIN_FILE];
  train_setup s = {.dir = unit_folder()};
  s.object = pb_compile(s.dir, train_source);
  train_weights(bytes);
  UNIT_OK(moec_write_file(unit_path(path, s.dir, "weights.bin"), bytes, sizeof bytes, 0644));
#ifdef TRAIN_ON_CUDA
  fake_load(s.dir);
#endif
  return s;
}

static inline void train_stop(train_setup *s) {
#ifdef TRAIN_ON_CUDA
  fake_unload();
#endif
  moec_unmap(&s->object);
  unit_remove(s->dir);
}

/* Opens |b|, which goes; |file| is freed after the model is closed. */
static inline moec_model *train_open(const train_setup *s, plan_builder *b, int threads,
                                     uint8_t **file) {
  size_t size;
  moec_model *m;
  moec_options o = {.threads = threads, .weights_dir = s->dir};
  *file = pb_finish(b, NULL, &s->object, &size);
  free(b);
  UNIT_OK(moec_open_memory(*file, size, &o, &m));
  return m;
}

static inline void train_give(moec_model *m, const char *name, float *data, int64_t n) {
  uint32_t i;
  moec_view v = {data, MOEC_DTYPE_F32, 1, {n}};
  UNIT_OK(moec_find(m, MOEC_INPUTS, name, &i));
  UNIT_OK(moec_input_borrow(m, i, &v));
}

enum { TRAIN_MOST = 64 };
typedef struct train_io {
  float x[TRAIN_MOST], other[TRAIN_MOST];
} train_io;

static inline void train_fill(train_io *t, int seed) {
  for (int i = 0; i < TRAIN_MOST; i++) {
    t->x[i] = (float)((i * 7 + seed) % 11) / 4 - 1;
    t->other[i] = (float)((i * 5 + seed) % 13) / 2 - 3;
  }
}

static inline const float *train_parameter(moec_model *m, const char *name) {
  uint32_t i;
  moec_view v;
  UNIT_OK(moec_find(m, MOEC_PARAMETERS, name, &i));
  UNIT_OK(moec_parameter(m, i, &v));
  return v.data;
}

/* ---- the same by hand -------------------------------------------------------------------- */

typedef struct train_want {
  double loss, w[4], v[4]; /* gradients; w: of w and t together */
  double dx[64], y[64];
} train_want;

static inline train_want train_reference(int64_t n, const float *w, const float *v, const float *x,
                                         const float *labels, const float *dy) {
  train_want r = {0};
  for (int64_t i = 0; i < n; i++) {
    int64_t k = i % 2 * 2 + i / 2 % 2;
    r.y[i] = (double)x[i] * 2 * (double)w[i % 4] + (double)w[i % 4] + (double)v[k];
    double d = dy ? (double)dy[i] : r.y[i] - (double)labels[i];
    r.loss += d * d / 2;
    r.w[i % 4] += 2 * (double)x[i] * d + d;
    r.v[k] += d;
    r.dx[i] = d * 2 * (double)w[i % 4];
  }
  return r;
}

#endif
