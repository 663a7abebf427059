/* Activations that a product of experts computes: which kernels are, and that their elements are those of the kernels,
 * to the bit. */
#define EMIT_CUDA
#include "codegen/kernel_activation.h"
#include "tests/unit/emit.h"

#define BF16(n, columns) " : bf16[" n ", " columns "]\n"
#define F32(n, columns) " : f32[" n ", " columns "]\n"
#define PART(to, start, step)                                                                                 \
  to "0 = slice(%1) {start = [0, " start "], size = [N, 24], step = [1, " step "]}" BF16("N", "24") to " = cast(" to \
     "0) {dtype = f32}" F32("N", "24")
#define SWIGLU                                                                                               \
  "%4 = sigmoid(%2)" F32("N", "24") "%5 = mul(%2, %4)" F32("N", "24") "%6 = mul(%5, %3)" F32("N", "24")      \
  "%7 = cast(%6) {dtype = bf16}" BF16("N", "24")

typedef struct activation_case {
  emit_case c;
  moec_activation_form form;
} activation_case;

static const activation_case fitting[] = {
    {{"swiglu of halves", "N=37", "24*N", "%1 \"y\" : bf16[N, 48]", "%7 \"a\"",
      PART("%2", "0", "1") PART("%3", "24", "1") SWIGLU, 0}, MOEC_ACTIVATION_HALVES},
    {{"swiglu of halves, gate last", "N=37", "24*N", "%1 \"y\" : bf16[N, 48]", "%7 \"a\"",
      PART("%2", "24", "1") PART("%3", "0", "1") SWIGLU, 0}, MOEC_ACTIVATION_HALVES},
    {{"swiglu of neighbours", "N=37", "24*N", "%1 \"y\" : bf16[N, 48]", "%7 \"a\"",
      PART("%2", "0", "2") PART("%3", "1", "2") SWIGLU, 0}, MOEC_ACTIVATION_NEIGHBOURS},
    {{"silu", "N=37", "48*N", "%1 \"y\" : bf16[N, 48]", "%5 \"a\"",
      "%2 = cast(%1) {dtype = f32}" F32("N", "48") "%3 = sigmoid(%2)" F32("N", "48") "%4 = mul(%2, %3)" F32("N", "48")
      "%5 = cast(%4) {dtype = bf16}" BF16("N", "48"), 0}, MOEC_ACTIVATION_EACH},
    {{"rounded on the way", "N=37", "48*N", "%1 \"y\" : bf16[N, 48]", "%3 \"a\"",
      "%2 = mul(%1, %1)" BF16("N", "48") "%3 = add(%2, %1)" BF16("N", "48"), 0}, MOEC_ACTIVATION_EACH},
};
enum { N_FITTING = sizeof fitting / sizeof *fitting };

static const emit_case others[] = {
    {"a sum of the row", "N=5", "N", "%1 \"y\" : bf16[N, 48]", "%3 \"a\"",
     "%2 = reduce_sum(%1) {axes = [1]} : bf16[N]\n%3 = neg(%2) : bf16[N]\n", 0},
    {"two operands", "N=5", "48*N", "%1 \"y\" : bf16[N, 48], %2 \"w\" : bf16[N, 48]", "%3 \"a\"",
     "%3 = mul(%1, %2)" BF16("N", "48"), 0},
    {"two results", "N=5", "48*N", "%1 \"y\" : bf16[N, 48]", "%2 \"a\", %3 \"b\"",
     "%2 = neg(%1)" BF16("N", "48") "%3 = mul(%1, %1)" BF16("N", "48"), 0},
    {"f32", "N=5", "48*N", "%1 \"y\" : f32[N, 48]", "%2 \"a\"", "%2 = neg(%1)" F32("N", "48"), 0},
    {"the last half alone", "N=5", "24*N", "%1 \"y\" : bf16[N, 40]", "%2 \"a\"",
     "%2 = slice(%1) {start = [0, 16], size = [N, 24], step = [1, 1]}" BF16("N", "24"), 0},
    {"from the middle on", "N=5", "24*N", "%1 \"y\" : bf16[N, 48]", "%7 \"a\"",
     PART("%2", "0", "1") PART("%3", "12", "1") SWIGLU, 0},
    {"the first halves of two parts", "N=5", "48*N", "%1 \"y\" : bf16[N, 96]", "%4 \"a\"",
     "%2 = reshape(%1) {shape = [N, 2, 48]} : bf16[N, 2, 48]\n"
     "%3 = slice(%2) {start = [0, 0, 0], size = [N, 2, 24], step = [1, 1, 1]} : bf16[N, 2, 24]\n"
     "%4 = reshape(%3) {shape = [N, 48]}" BF16("N", "48"), 0},
    {"zeros in front", "N=5", "48*N", "%1 \"y\" : bf16[N, 48]", "%4 \"a\"",
     "%2 = slice(%1) {start = [0, 8], size = [N, 40], step = [1, 1]}" BF16("N", "40")
     "%3 = const() {data = bf16[] [0]} : bf16[]\n%4 = pad(%2, %3) {lo = [0, 8], hi = [0, 0]}" BF16("N", "48"), 0},
    {"every third", "N=5", "16*N", "%1 \"y\" : bf16[N, 48]", "%2 \"a\"",
     "%2 = slice(%1) {start = [0, 0], size = [N, 16], step = [1, 3]}" BF16("N", "16"), 0},
    {"a column's number", "N=5", "48*N", "%1 \"y\" : bf16[N, 48]", "%4 \"a\"",
     "%2 = iota() {dtype = i64, shape = [N, 48], axis = 1} : i64[N, 48]\n%3 = cast(%2) {dtype = bf16}" BF16("N", "48")
     "%4 = mul(%1, %3)" BF16("N", "48"), 0},
    {"rows in another order", "N=5", "48*N", "%1 \"y\" : bf16[N, 48]", "%2 \"a\"",
     "%2 = reverse(%1) {axes = [0]}" BF16("N", "48"), 0},
};

/* Behind kernel |i|, a function that does the same through its element. */
static void add_element(moec_buf *source, emit_run *r, size_t i) {
  static const char *const args[MOEC_ACTIVATION_FORMS] = {"LOAD(j), 0", "LOAD(j), LOAD(j + m / 2)",
                                                          "LOAD(2 * j), LOAD(2 * j + 1)"};
  char symbol[32];
  moec_kactivation a;
  snprintf(symbol, sizeof symbol, "k%zu", i);
  ck_assert_msg(moec_kernel_activation(r->m->arena, r->k, &a), "%s: no activation", fitting[i].c.name);
  ck_assert_msg(a.form == fitting[i].form, "%s: got form %d", fitting[i].c.name, (int)a.form);
  moec_emit_cuda_element(source, r->k, &a, symbol);
  moec_buf_printf(source,
                  "#define LOAD(c) moec_load_bf16(y[row * m + (c)])\n"
                  "extern \"C\" void w%zu(const uint16_t *y, uint16_t *out, int64_t n, int64_t m, int64_t columns) {\n"
                  "  for (int64_t row = 0; row < n; row++)\n"
                  "    for (int64_t j = 0; j < columns; j++)\n"
                  "      out[row * columns + j] = moec_store_bf16(%s_element(%s));\n}\n#undef LOAD\n",
                  i, symbol, args[a.form]);
}

START_TEST(elements) {
  emit_run runs[N_FITTING];
  moec_buf source = {0};
  emit_begin(&source);
  for (size_t i = 0; i < N_FITTING; i++) {
    char symbol[32];
    snprintf(symbol, sizeof symbol, "k%zu", i);
    UNIT_OK(emit_build(&fitting[i].c, &runs[i]));
    emit_kernel(&source, &runs[i], symbol);
    add_element(&source, &runs[i], i);
  }
  emit_open(&source, runs, N_FITTING);
  for (size_t i = 0; i < N_FITTING; i++) {
    void (*through)(const void *y, void *out, int64_t n, int64_t m, int64_t columns);
    char symbol[32];
    emit_memory x;
    emit_check(&fitting[i].c, &runs[i], i);
    emit_alloc(&x, &runs[i], i);
    snprintf(symbol, sizeof symbol, "w%zu", i);
    void *at = dlsym(runs[i].library, symbol), *out = malloc(moec_tensor_bytes(&x.t[1]));
    UNIT_TRUE(at != NULL && out != NULL && emit_call(&runs[i], &x) == 0);
    memcpy(&through, &at, sizeof through);
    through(x.buf[0], out, x.t[0].dims[0], x.t[0].dims[1], x.t[1].dims[1]);
    ck_assert_msg(!memcmp(out, x.buf[1], moec_tensor_bytes(&x.t[1])), "%s: other bits", fitting[i].c.name);
    free(out);
    emit_free(&x);
  }
  emit_close(runs);
  for (size_t i = 0; i < N_FITTING; i++) moec_module_destroy(runs[i].m);
}
END_TEST

START_TEST(no_activations) {
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    emit_run r;
    moec_kactivation a;
    moec_status *s = emit_build(&others[i], &r);
    if (s) ck_abort_msg("%s: %s", others[i].name, moec_status_message(s));
    ck_assert_msg(!moec_kernel_activation(r.m->arena, r.k, &a), "%s: is one", others[i].name);
    moec_module_destroy(r.m);
  }
}
END_TEST

UNIT_MAIN("emit_cuda_activation", elements, no_activations)
