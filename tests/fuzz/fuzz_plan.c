/* Arbitrary bytes as a plan: the last two bytes say how many before them are its data section, the
 * rest is the plan. What opens is run, where its sizes are small. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/status.h"
#include "include/moec.h"
#include "runtime/plan_read.h"
#include "runtime/sizes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SYMBOL = 3, MOST = 1 << 14 }; /* every size that is open; bytes of a buffer */

/* Whether running |p| takes little memory and time. */
static int is_small(const moec_rt_plan *p) {
  int64_t *symbols = calloc((size_t)p->n_symbols + 1, sizeof *symbols);
  int64_t *values = calloc((size_t)p->n_exprs + 1, sizeof *values);
  if (!symbols || !values) abort();
  for (uint32_t i = 0; i < p->n_symbols; i++)
    symbols[i] = p->symbols[i].fixed >= 0 ? p->symbols[i].fixed : SYMBOL;
  moec_rt_eval(p, symbols, values);
  int small = p->n_steps < 256 && p->n_params < 64 && p->n_pieces < 64;
  for (uint32_t i = 0; i < p->n_buffers; i++) small = small && values[p->buffers[i].bytes] <= MOST;
  for (uint32_t i = 0; i < p->n_exprs; i++) { /* and their text is fine */
    char text[MOEC_RT_EXPR_TEXT];
    moec_rt_expr_text(p, i, text, sizeof text);
  }
  free(symbols);
  free(values);
  return small;
}

static moec_status *train(moec_model *m) {
  moec_optimizer o;
  moec_optimizer_defaults(MOEC_ADAMW, &o);
  MOEC_TRY(moec_optimizer_set(m, &o));
  MOEC_TRY(moec_loss_and_gradients(m, 0, NULL));
  MOEC_TRY(moec_loss_and_gradients(m, 1, NULL));
  MOEC_TRY(moec_clip_gradients(m, 1, NULL));
  return moec_optimizer_step(m);
}

static moec_status *bind(moec_model *m) {
  const char *names[64];
  int64_t values[64];
  uint32_t n = moec_symbol_count(m);
  for (uint32_t i = 0; i < n && i < 64; i++) {
    MOEC_TRY(moec_symbol(m, i, &names[i], &values[i]));
    if (values[i] < 0) values[i] = SYMBOL;
  }
  return moec_bind_sizes(m, n < 64 ? n : 64, names, values);
}

static moec_status *run(moec_model *m) {
  static uint64_t zeros[MOST / 8];
  MOEC_TRY(bind(m));
  for (uint32_t i = 0; i < moec_count(m, MOEC_INPUTS); i++) {
    moec_view v;
    MOEC_TRY(moec_shape(m, MOEC_INPUTS, i, &v));
    v.data = zeros;
    MOEC_TRY(moec_input_borrow(m, i, &v));
  }
  if (moec_has_program(m, MOEC_TRAIN)) MOEC_TRY(train(m));
  return moec_forward(m);
}

/* Whether |file| is a plan of small sizes. */
static int opens(const uint8_t *file, size_t size) {
  moec_rt_memory mem = {0};
  moec_rt_plan p;
  moec_status *s = moec_rt_plan_open_memory(&mem, file, size, true, &p);
  int small = !s && is_small(&p);
  if (!s) moec_rt_plan_fini(&p);
  moec_status_free(s);
  if (mem.live) abort();
  return small;
}

static void try_file(const uint8_t *file, size_t size) {
  moec_model *m;
  moec_options o = {.threads = 1, .trust_weights = 1};
  if (!opens(file, size)) return;
  moec_status *s = moec_open_memory(file, size, &o, &m);
  if (!s) s = run(m);
  moec_status_free(s);
  moec_close(m);
}

/* What steps say of their operands, whatever the target: it is asked for before one runs. */
static void try_description(const uint8_t *file, size_t size) {
  moec_options o = {.threads = 1, .trust_weights = 1, .describe = 1};
  moec_model *m;
  if (!opens(file, size)) return;
  moec_status *s = moec_open_memory(file, size, &o, &m);
  if (!s) s = bind(m);
  if (!s) s = moec_place(m, moec_has_program(m, MOEC_TRAIN) ? MOEC_TRAIN : MOEC_FORWARD);
  moec_status_free(s);
  moec_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2 || size > 1 << 20) return 0;
  size_t tail = (size_t)data[size - 2] | (size_t)data[size - 1] << 8;
  size -= 2;
  if (tail > size) return 0;
  moec_footer f = {.plan_size = size - tail, .version = MOEC_PLAN_VERSION, .data_size = tail};
  f.kernels_offset = 0;
  f.data_offset = (f.plan_size + 63) & ~63ull;
  f.payload_size = f.data_offset + tail;
  memcpy(f.magic, MOEC_FOOTER_MAGIC, sizeof f.magic);
  size_t total = f.payload_size + sizeof f;
  uint8_t *file = aligned_alloc(64, (total + 63) & ~(size_t)63);
  if (!file) abort();
  memset(file, 0, total);
  memcpy(file, data, f.plan_size);
  if (tail) memcpy(file + f.data_offset, data + f.plan_size, tail);
  memcpy(file + f.payload_size, &f, sizeof f);
  try_file(file, total);
  f.kernels_size = f.plan_size; /* any bytes: they are not loaded to describe a model */
  memcpy(file + f.payload_size, &f, sizeof f);
  try_description(file, total);
  free(file);
  return 0;
}
