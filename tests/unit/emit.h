/* Emitted kernels against the interpreter. A case is a function in text form; its composites are
 * inlined (all but attention, its gradient and block sums), it becomes a kernel, all kernels of a
 * table are compiled together, and each runs on random inputs that end at a page nobody may touch.
 *
 * With EMIT_CUDA defined they are printed as CUDA and run in tests/support/cuda_emulation.h.
 *
 * What an input holds follows from its name: "iN..." integers in [-N, N), "nan..." floats with some
 * NaN and infinities, "pos..." floats in (0.1, 2), "zero" zeros, else floats in (-2, 2), integers in [-20, 20]. */
#ifndef MOEC_TESTS_EMIT_H
#define MOEC_TESTS_EMIT_H

#include <dlfcn.h>
#include <math.h>
#include <sys/mman.h>

#include "codegen/cc.h"
#include "codegen/emit.h"
#include "include/plan.h"
#include "ir/builder.h"
#include "ir/interp.h"
#ifdef EMIT_CUDA
#include "tests/support/cuda_emulation.h"
#endif
#include "tests/unit/unit.h"

typedef struct emit_case {
  const char *name;
  const char *symbols; /* "B=3 S=5": in the order the text declares them */
  const char *rows;    /* of the fused call */
  const char *inputs;  /* "%1 \"x\" : f32[B, 8]" */
  const char *outputs; /* "%3 \"y\"" */
  const char *body;
  double tolerance; /* relative to the largest of 1 and the value; 0: 2e-6 */
} emit_case;

typedef struct emit_run {
  moec_module *m;
  moec_kernel *k;
  moec_kernel_fn fn;
  int64_t sizes[16];
  void *library;
#ifdef EMIT_CUDA
  emulation *cuda;
  void (*kernel)(moec_kernel_args args, int64_t rows);
  moec_cuda_launch launch;
#endif
} emit_run;

enum { EMIT_MAX = 12, EMIT_BLOCKS = 3 };

/* ---- building ------------------------------------------------------------------------------- */

static inline bool emit_keep(void *user, const moec_graph *g, moec_node n) {
  (void)user;
  moec_op op = moec_op_of(g, n);
  return op == MOEC_OP_ATTENTION || op == MOEC_OP_ATTENTION_GRAD || op == MOEC_OP_BLOCK_SUM;
}

/* Numbers the values of |text| in order of definition, so that cases may number them freely. */
static inline void emit_renumber(moec_buf *out, const char *text) {
  int map[64] = {0}, n = 0;
  const char *body = strstr(text, ") -> (");
  for (const char *p = strstr(text, "(%"); p && p < body; p++)
    if (*p == '%') map[atoi(p + 1)] = ++n;
  for (const char *line = body; line && *line;
       line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
    for (const char *p = line; *line == '%' && *p != '='; p++)
      if (*p == '%') map[atoi(p + 1)] = ++n;
  while (*text) {
    moec_buf_putc(out, *text);
    if (*text++ != '%') continue;
    char *end;
    moec_buf_printf(out, "%d", map[strtol(text, &end, 10)]);
    text = end;
  }
}

static inline moec_module *emit_module(const emit_case *c, int64_t *sizes) {
  moec_buf b = {0};
  moec_module *m = NULL;
  moec_buf_puts(&b, "module \"t\" {\n");
  for (const char *p = c->symbols; *p; p = strchr(p, ' ') ? strchr(p, ' ') + 1 : p + strlen(p))
    moec_buf_printf(&b, "%s%.*s", p == c->symbols ? "  symbols " : ", ", (int)strcspn(p, "="), p);
  moec_buf_printf(&b, "%s}\nfn @\"main\"(%s) -> (%s) {\n%s}\n", *c->symbols ? "\n" : "", c->inputs,
                  c->outputs, c->body);
  moec_buf text = {0};
  emit_renumber(&text, moec_buf_str(&b));
  moec_status *s = moec_parse(moec_buf_str(&text), &m);
  moec_buf_fini(&text);
  if (s) ck_abort_msg("%s: %s\n%s", c->name, moec_status_message(s), moec_buf_str(&b));
  for (const char *p = c->symbols; (p = strchr(p, '=')); p++) *sizes++ = strtoll(p + 1, NULL, 10);
  moec_buf_fini(&b);
  UNIT_OK(moec_inline_composites(m, emit_keep, NULL));
  moec_compact_all(m);
  return m;
}

static inline moec_status *emit_build(const emit_case *c, emit_run *r) {
  moec_dim rows;
  *r = (emit_run){0};
  r->m = emit_module(c, r->sizes);
  UNIT_OK(moec_dim_parse(r->m, c->rows, &rows));
  return moec_kernel_build(r->m->arena, r->m, moec_main(r->m), rows, &r->k);
}

static inline void *emit_load(const char *source) {
  char path[] = "/tmp/moec-emit-XXXXXX";
  moec_buf so = {0};
  UNIT_OK(moec_cc_shared(source, &so));
  int fd = mkstemp(path);
  ck_assert_int_ge(fd, 0);
  ck_assert_int_eq(write(fd, so.data, so.size), (ssize_t)so.size);
  close(fd);
  void *lib = dlopen(path, RTLD_NOW);
  if (!lib) ck_abort_msg("%s", dlerror());
  unlink(path);
  moec_buf_fini(&so);
  return lib;
}

/* The beginning of a text, and kernel |symbol| of it. */
static inline void emit_begin(moec_buf *source) {
#ifdef EMIT_CUDA
  moec_emit_cuda_prelude(source);
#else
  moec_emit_c_prelude(source);
#endif
}

static inline void emit_kernel(moec_buf *source, emit_run *r, const char *symbol) {
#ifdef EMIT_CUDA
  UNIT_OK(moec_emit_cuda_kernel(source, r->m->arena, r->k, symbol, &r->launch));
#else
  moec_emit_c_kernel(source, r->k, symbol);
#endif
}

/* Compiles the text of |n| kernels k0, k1, ..., which ends. */
static inline void emit_open(moec_buf *source, emit_run *runs, size_t n) {
  if (getenv("MOEC_EMIT_SHOW")) fputs(moec_buf_str(source), stderr);
#ifdef EMIT_CUDA
  emulation *cuda = emulation_open(source);
  void *lib = cuda->library;
#else
  void *lib = emit_load(moec_buf_str(source));
#endif
  for (size_t i = 0; i < n; i++) {
    char symbol[32];
    snprintf(symbol, sizeof symbol, "k%zu", i);
    void *kernel = dlsym(lib, symbol);
    ck_assert_ptr_ne(kernel, NULL);
#ifdef EMIT_CUDA
    runs[i].cuda = cuda;
    memcpy(&runs[i].kernel, &kernel, sizeof kernel);
#else
    memcpy(&runs[i].fn, &kernel, sizeof kernel);
#endif
    runs[i].library = lib;
  }
  moec_buf_fini(source);
}

static inline void emit_close(emit_run *runs) {
#ifdef EMIT_CUDA
  emulation_close(runs[0].cuda);
#else
  dlclose(runs[0].library);
#endif
}

/* ---- running -------------------------------------------------------------------------------- */

/* |bytes| that end where an inaccessible page begins; for CUDA at a multiple of 16, as plan buffers lie. */
static inline void *emit_guarded(size_t bytes, void **base, size_t *whole) {
#ifdef EMIT_CUDA
  bytes = (bytes + 15) / 16 * 16;
#endif
  size_t page = 4096, size = (bytes + page - 1) / page * page;
  *whole = size + 2 * page;
  char *p = mmap(NULL, *whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ck_assert_ptr_ne(p, MAP_FAILED);
  ck_assert_int_eq(mprotect(p, page, PROT_NONE), 0);
  ck_assert_int_eq(mprotect(p + page + size, page, PROT_NONE), 0);
  *base = p;
  return p + page + size - bytes;
}

static inline uint32_t emit_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}

static inline void emit_fill(moec_tensor *t, const char *name, uint64_t *state) {
  int64_t n = moec_tensor_numel(t), limit = name[0] == 'i' ? atoll(name + 1) : 0;
  for (int64_t i = 0; i < n; i++) {
    double u = emit_random(state) / 0x1p31;
    if (t->dtype == MOEC_BOOL)
      moec_store_i64(t->dtype, t->data, (size_t)i, u < 0.5);
    else if (!moec_dtype_is_float(t->dtype) && limit)
      moec_store_i64(t->dtype, t->data, (size_t)i, (int64_t)(u * 2 * (double)limit) - limit);
    else if (!moec_dtype_is_float(t->dtype))
      moec_store_i64(t->dtype, t->data, (size_t)i, (int64_t)(u * 41) - 20);
    else if (!strncmp(name, "nan", 3) && u < 0.1)
      moec_store_f64(t->dtype, t->data, (size_t)i,
                     u < 0.05   ? (double)NAN
                     : u < 0.07 ? HUGE_VAL
                                : -HUGE_VAL);
    else if (!strncmp(name, "pos", 3))
      moec_store_f64(t->dtype, t->data, (size_t)i, 0.1 + u * 1.9);
    else if (strcmp(name, "zero"))
      moec_store_f64(t->dtype, t->data, (size_t)i, u * 4 - 2);
  }
}

static inline void emit_compare(const emit_case *c, const moec_tensor *got, const moec_tensor *want,
                                size_t output) {
  bool half = got->dtype == MOEC_BF16 || got->dtype == MOEC_F16;
  double tol = c->tolerance > 0 ? c->tolerance : half ? 1.0 / 128 : 2e-6;
  ck_assert_int_eq((int)got->dtype, (int)want->dtype);
  for (int64_t i = 0, n = moec_tensor_numel(want); i < n; i++) {
    double g = moec_load_f64(got->dtype, got->data, (size_t)i),
           w = moec_load_f64(want->dtype, want->data, (size_t)i);
    bool same = (isnan(g) && isnan(w)) || g == w;
    if (moec_dtype_is_float(got->dtype))
      same = same || fabs(g - w) <= tol * fmax(1, fabs(w));
    else
      same = moec_load_i64(got->dtype, got->data, (size_t)i) ==
             moec_load_i64(want->dtype, want->data, (size_t)i);
    if (!same)
      ck_abort_msg("%s: output %zu element %lld of %lld: got %.9g, expected %.9g", c->name, output,
                   (long long)i, (long long)n, g, w);
  }
}

static inline int64_t emit_eval(const moec_module *m, moec_dim d, const int64_t *sizes) {
  int64_t v = 0;
  UNIT_OK(moec_dim_eval(m, d, sizes, &v));
  return v;
}

typedef struct emit_memory {
  moec_tensor t[2 * EMIT_MAX];
  void *base[2 * EMIT_MAX], *scratch;
  size_t whole[2 * EMIT_MAX];
  void *buf[2 * EMIT_MAX];
  size_t n_in, n_out;
  bool falling; /* the order of threads */
} emit_memory;

static inline void emit_alloc(emit_memory *x, const emit_run *r, uint64_t seed) {
  const moec_graph *g = moec_main(r->m);
  x->n_in = g->n_inputs, x->n_out = g->n_outputs, x->falling = seed % 2 != 0;
  for (size_t i = 0; i < x->n_in + x->n_out; i++) {
    moec_value v = i < x->n_in ? g->inputs[i] : g->outputs[i - x->n_in];
    moec_type_info t = moec_ty(g, v);
    x->t[i] = (moec_tensor){.dtype = t.dtype, .rank = t.rank};
    for (uint32_t k = 0; k < t.rank; k++) x->t[i].dims[k] = emit_eval(r->m, t.dims[k], r->sizes);
    x->t[i].data = x->buf[i] = emit_guarded(moec_tensor_bytes(&x->t[i]), &x->base[i], &x->whole[i]);
    if (i < x->n_in)
      emit_fill(&x->t[i], moec_sym_str(r->m, moec_value_get(g, v)->name), &seed);
    else
      memset(x->t[i].data, 0xa5, moec_tensor_bytes(&x->t[i]));
  }
#ifdef EMIT_CUDA
  int64_t scratch = emit_eval(r->m, r->launch.scratch, r->sizes) * r->launch.teams * EMIT_BLOCKS;
#else
  int64_t scratch = emit_eval(r->m, r->k->scratch, r->sizes);
#endif
  x->scratch = aligned_alloc(64, (size_t)(scratch + 64) / 64 * 64);
}

static inline void emit_free(emit_memory *x) {
  for (size_t i = 0; i < x->n_in + x->n_out; i++) munmap(x->base[i], x->whole[i]);
  free(x->scratch);
}

#ifdef EMIT_CUDA
typedef struct emit_launch {
  const emit_run *r;
  moec_kernel_args args;
  int64_t rows;
} emit_launch;

static inline void emit_thread(void *user) {
  const emit_launch *l = user;
  l->r->kernel(l->args, l->rows);
}

static inline int32_t emit_call_in_order(const emit_run *r, emit_memory *x, unsigned blocks, bool falling) {
  int32_t fault = 0;
  emit_launch l = {r, {x->buf, r->sizes, x->scratch, &fault}, emit_eval(r->m, r->launch.rows, r->sizes)};
  r->cuda->falling = falling;
  memset(x->scratch, 0xff, (size_t)(emit_eval(r->m, r->launch.scratch, r->sizes) * r->launch.teams * blocks));
  emulation_launch(r->cuda, blocks, r->launch.threads, emit_thread, &l);
  return fault;
}

/* Runs the kernel; returns the fault flag. Shared memory still holds what the inputs before left there, which shows
 * where a thread reads too early. */
static inline int32_t emit_call(const emit_run *r, emit_memory *x) {
  return emit_call_in_order(r, x, EMIT_BLOCKS, x->falling);
}
/* With its parts in another order. */
static inline void emit_call_backwards(const emit_run *r, emit_memory *x) {
  emit_call_in_order(r, x, 1, !x->falling);
}
#else
/* Row after row, the last first. */
static inline void emit_call_backwards(const emit_run *r, emit_memory *x) {
  int32_t fault = 0;
  moec_kernel_args args = {x->buf, r->sizes, x->scratch, &fault};
  for (int64_t n = emit_eval(r->m, r->k->range, r->sizes); n > 0; n--) r->fn(&args, n - 1, n);
}

/* Runs the kernel in three ranges; returns the fault flag. */
static inline int32_t emit_call(const emit_run *r, emit_memory *x) {
  int32_t fault = 0;
  moec_kernel_args args = {x->buf, r->sizes, x->scratch, &fault};
  int64_t n = emit_eval(r->m, r->k->range, r->sizes), cuts[4] = {0, n / 3, n / 3 + n / 2, n};
  for (int i = 0; i < 3; i++)
    if (cuts[i] < cuts[i + 1]) r->fn(&args, cuts[i], cuts[i + 1]);
  return fault;
}
#endif

static inline void emit_check(const emit_case *c, const emit_run *r, uint64_t seed) {
  emit_memory x;
  moec_tensor want[EMIT_MAX];
  emit_alloc(&x, r, seed);
  moec_status *s = moec_interp_run(r->m, (moec_fn){1}, x.t, x.n_in, want, x.n_out, NULL);
  if (s) ck_abort_msg("%s: interpreter: %s", c->name, moec_status_message(s));
  int32_t fault = emit_call(r, &x);
  if (fault) ck_abort_msg("%s: fault", c->name);
  for (size_t i = 0; i < x.n_out; i++) {
    emit_compare(c, &x.t[x.n_in + i], &want[i], i);
    moec_tensor_fini(&want[i]);
  }
  emit_free(&x);
}

/* Builds and compiles all |n| cases as one library. */
static inline void emit_compile(const emit_case *cases, size_t n, emit_run *runs) {
  moec_buf source = {0};
  emit_begin(&source);
  for (size_t i = 0; i < n; i++) {
    char symbol[32];
    moec_status *s = emit_build(&cases[i], &runs[i]);
    if (s) ck_abort_msg("%s: %s", cases[i].name, moec_status_message(s));
    snprintf(symbol, sizeof symbol, "k%zu", i);
    emit_kernel(&source, &runs[i], symbol);
  }
  emit_open(&source, runs, n);
}

static inline void emit_check_all(const emit_case *cases, size_t n) {
  emit_run *runs = calloc(n, sizeof *runs);
  emit_compile(cases, n, runs);
  for (uint64_t seed = 1; seed <= 2; seed++)
    for (size_t i = 0; i < n; i++) emit_check(&cases[i], &runs[i], seed);
  emit_close(runs);
  for (size_t i = 0; i < n; i++) moec_module_destroy(runs[i].m);
  free(runs);
}

#ifdef EMIT_CUDA
#undef UNIT_BEFORE
#define UNIT_BEFORE \
  if (!emulation_possible()) return puts("skipped: no C++ compiler"), 77;
#endif

#endif
