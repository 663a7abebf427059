/* Emitted text: golden files, the same bytes every time, faults and refusals. */
#include "codegen/emit.h"
#include "ir/interp.h"
#include "tests/unit/emit.h"

#define F32_EPS "{eps = 0x1.0c6f7ap-20}"

/* tests/emit/<name>.c holds the expected text; MOEC_UPDATE=1 writes it. */
static const emit_case goldens[] = {
    {"add_rms_norm", "B=3 S=2", "B*S",
     "%1 \"x\" : bf16[B, S, 64], %2 \"w\" : bf16[64], %3 \"r\" : bf16[B, S, 64]",
     "%4 \"h\", %5 \"y\"",
     "%4 = add(%1, %3) : bf16[B, S, 64]\n%5 = rms_norm(%4, %2) " F32_EPS " : bf16[B, S, 64]\n", 0},
    {"softmax", "B=3 S=70", "B", "%1 \"x\" : f32[B, S]", "%2 \"y\"",
     "%2 = softmax(%1) {axis = 1} : f32[B, S]\n", 0},
    {"softmax_middle", "B=3 S=70 N=5", "B", "%1 \"x\" : f32[B, S, N]", "%2 \"y\"",
     "%2 = softmax(%1) {axis = 1} : f32[B, S, N]\n", 0},
    {"column_sum", "B=300 N=200", "N", "%1 \"x\" : f32[B, N]", "%2 \"y\"",
     "%2 = reduce_sum(%1) {axes = [0]} : f32[N]\n", 0},
    {"rope", "B=2 S=3", "B*S",
     "%1 \"x\" : f32[B, 4, S, 16], %2 \"c\" : f32[B, S, 1, 8], %3 \"s\" : f32[B, S, 1, 8]",
     "%5 \"y\"",
     "%4 = transpose(%1) {perm = [0, 2, 1, 3]} : f32[B, S, 4, 16]\n%5 = rope(%4, %2, %3) {pairs_in "
     "= false, pairs_out = false} : f32[B, S, 4, 16]\n",
     0},
    {"gather_pad", "B=7 N=4", "B", "%1 \"x\" : f32[N, 6], %2 \"i\" : i64[B], %3 \"v\" : f32[]",
     "%5 \"y\"",
     "%4 = gather(%1, %2) {axis = 0} : f32[B, 6]\n%5 = pad(%4, %3) {lo = [0, 1], hi = [0, 0]} : "
     "f32[B, 7]\n",
     0},
    {"sum_beside", "B=5", "B", "%1 \"x\" : f32[B, 32], %2 \"y\" : f32[B, 32]", "%4 \"s\", %5 \"z\"",
     "%3 = mul(%1, %2) : f32[B, 32]\n%4 = reduce_sum(%3) {axes = [1]} : f32[B]\n"
     "%5 = sub(%3, %2) : f32[B, 32]\n",
     0},
};

static void emit_one(const emit_case *c, moec_buf *text) {
  emit_run r;
  UNIT_OK(emit_build(c, &r));
  moec_emit_c_kernel(text, r.k, c->name);
  moec_module_destroy(r.m);
}

START_TEST(test_golden) {
  const char *root = getenv("MOEC_SOURCE") ? getenv("MOEC_SOURCE") : ".";
  for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++) {
    moec_buf text = {0};
    char path[512];
    emit_one(&goldens[i], &text);
    snprintf(path, sizeof path, "%s/tests/emit/%s.c", root, goldens[i].name);
    if (getenv("MOEC_UPDATE")) {
      FILE *f = fopen(path, "w");
      ck_assert_ptr_ne(f, NULL);
      fputs(moec_buf_str(&text) + 1, f); /* without the blank line in front */
      fclose(f);
    } else {
      moec_map m = {0};
      UNIT_OK(moec_map_user_file(path, &m));
      if (m.size != text.size - 1 || memcmp(m.data, moec_buf_str(&text) + 1, m.size) != 0)
        ck_abort_msg("%s differs from what is emitted (MOEC_UPDATE=1 writes it):\n%s", path,
                     moec_buf_str(&text));
      moec_unmap(&m);
    }
    moec_buf_fini(&text);
  }
}
END_TEST

START_TEST(test_same_bytes) {
  moec_buf a = {0}, b = {0};
  for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++) emit_one(&goldens[i], &a);
  void *hole = malloc(12345); /* other addresses the second time */
  for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++) emit_one(&goldens[i], &b);
  free(hole);
  ck_assert_str_eq(moec_buf_str(&a), moec_buf_str(&b));
  moec_buf_fini(&a);
  moec_buf_fini(&b);
}
END_TEST

/* Index |index| into 4 rows. */
static int32_t gather_fault(const emit_run *r, int64_t index, float *first) {
  float x[24], y[7], v = 9;
  int32_t fault = 0;
  for (int i = 0; i < 24; i++) x[i] = (float)i;
  void *buf[4] = {x, &index, &v, y};
  moec_kernel_args args = {buf, r->sizes, NULL, &fault};
  r->fn(&args, 0, 1);
  ck_assert(y[0] == 9);
  *first = y[1];
  return fault;
}

START_TEST(test_fault) {
  static const struct {
    int64_t index;
    int32_t fault;
    float first;
  } cases[] = {{0, 0, 0},  {3, 0, 18}, {-1, 0, 18},        {-4, 0, 0},
               {4, 1, 18}, {-5, 1, 0}, {INT64_MAX, 1, 18}, {INT64_MIN, 1, 0}};
  emit_run r;
  emit_compile(&goldens[5], 1, &r);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    float first;
    ck_assert_int_eq(gather_fault(&r, cases[i].index, &first), cases[i].fault);
    ck_assert(first == cases[i].first);
  }
  dlclose(r.library);
  moec_module_destroy(r.m);
}
END_TEST

static void refuses(const emit_case *c, moec_code code, const char *text) {
  emit_run r;
  UNIT_FAILS(emit_build(c, &r), code, text);
  moec_module_destroy(r.m);
}

START_TEST(test_refusals) {
  static const emit_case dot = {"dot",
                                "B=2",
                                "B",
                                "%1 \"x\" : f32[B, 4], %2 \"w\" : f32[4, 8]",
                                "%3 \"y\"",
                                "%3 = dot(%1, %2) {lhs_batch = [], rhs_batch = [], lhs_contract = "
                                "[1], rhs_contract = [0]} : f32[B, 8]\n",
                                0};
  static const emit_case rows = {
      "rows", "B=2 N=3", "N", "%1 \"x\" : f32[B, N]", "%2 \"y\"", "%2 = neg(%1) : f32[B, N]\n", 0};
  static const emit_case scaled = {
      "scaled",
      "B=2 S=3",
      "B*S*2",
      "%1 \"q\" : f32[B, S, 2, 4], %2 \"k\" : f32[B, S, 2, 4], %3 \"v\" : f32[B, S, 2, 4]",
      "%5 \"y\"",
      "%4 = exp(%1) : f32[B, S, 2, 4]\n%5 = attention(%4, %2, %3) {scale = 0x1p+0, softcap = "
      "0x0p+0, causal = true} : f32[B, S, 2, 4]\n",
      0};
  static const emit_case wide = {
      "wide",
      "B=2 S=3",
      "B*S*2",
      "%1 \"q\" : f64[B, S, 2, 4], %2 \"k\" : f64[B, S, 2, 4], %3 \"v\" : f64[B, S, 2, 4]",
      "%4 \"y\"",
      "%4 = attention(%1, %2, %3) {scale = 0x1p+0, softcap = 0x0p+0, causal = true} : f64[B, S, 2, "
      "4]\n",
      0};
  refuses(&dot, MOEC_UNSUPPORTED, "dot is not an op of fused functions");
  refuses(&rows, MOEC_INTERNAL, "leading axes");
  refuses(&scaled, MOEC_UNSUPPORTED, "q needs more than movement");
  refuses(&wide, MOEC_UNSUPPORTED, "f64");
}
END_TEST

UNIT_MAIN("emit_text", test_golden, test_same_bytes, test_fault, test_refusals)
