/* CUDA kernels whose threads take several elements at a time, rows that stay in registers, and sums in slices: run by
 * fibers of the processor, and what of the text says that they are of this kind. */
#define EMIT_CUDA
#include "codegen/emit.h"
#include "ir/interp.h"
#include "tests/unit/emit.h"

#define F32_EPS "{eps = 0x1.0c6f7ap-20}"

static const emit_case wide[] = {
    {"elements", "B=9", "B*16", "%1 \"x\" : f32[B, 16], %2 \"y\" : f32[B, 16]", "%3 \"z\"",
     "%3 = add(%1, %2) : f32[B, 16]\n", 0},
    {"elements of many types", "B=9", "B*8",
     "%1 \"x\" : bf16[B, 8], %2 \"y\" : f16[B, 8], %3 \"c\" : bool[B, 8], %4 \"i20\" : i8[B, 8]",
     "%8 \"z\", %9 \"d\", %10 \"j\"",
     "%5 = cast(%1) {dtype = f32} : f32[B, 8]\n%6 = cast(%2) {dtype = f32} : f32[B, 8]\n%7 = add(%5, %6) : f32[B, 8]\n"
     "%11 = select(%3, %7, %5) : f32[B, 8]\n%8 = cast(%11) {dtype = f16} : f16[B, 8]\n%9 = lt(%5, %6) : bool[B, 8]\n"
     "%10 = neg(%4) : i8[B, 8]\n",
     0},
    {"elements of eight bytes", "B=9", "B*4", "%1 \"i5\" : i64[B, 4], %2 \"x\" : f64[B, 4]", "%3 \"a\", %4 \"b\"",
     "%3 = mul(%1, %1) : i64[B, 4]\n%4 = neg(%2) : f64[B, 4]\n", 0},
    {"a row in registers", "B=3 S=4", "B*S", "%1 \"x\" : bf16[B, S, 2048], %2 \"w\" : f32[2048]", "%7 \"y\"",
     "%4 = cast(%1) {dtype = f32} : f32[B, S, 2048]\n%5 = rms_norm(%4, %2) " F32_EPS " : f32[B, S, 2048]\n"
     "%7 = cast(%5) {dtype = bf16} : bf16[B, S, 2048]\n",
     0},
    {"a row that threads don't share evenly", "B=5", "B", "%1 \"x\" : f32[B, 600], %2 \"w\" : f32[600]", "%3 \"y\"",
     "%3 = rms_norm(%1, %2) " F32_EPS " : f32[B, 600]\n", 1e-5},
    {"a row of a block", "B=5", "B", "%1 \"x\" : f32[B, 3000]", "%2 \"y\"",
     "%2 = softmax(%1) {axis = 1} : f32[B, 3000]\n",
     1e-5},
    {"a long row", "B=4", "B", "%1 \"x\" : f32[B, 20000]", "%2 \"y\"", "%2 = softmax(%1) {axis = 1} : f32[B, 20000]\n",
     1e-5},
    {"a row of any length", "B=5 H=37", "B", "%1 \"x\" : f32[B, 8*H], %2 \"w\" : f32[8*H]", "%3 \"y\"",
     "%3 = rms_norm(%1, %2) " F32_EPS " : f32[B, 8*H]\n", 1e-5},
    {"halves", "B=5", "B", "%1 \"x\" : f32[B, 128], %2 \"v\" : f32[]", "%6 \"z\"",
     "%3 = slice(%1) {start = [0, 64], size = [B, 64], step = [1, 1]} : f32[B, 64]\n"
     "%4 = slice(%1) {start = [0, 0], size = [B, 64], step = [1, 1]} : f32[B, 64]\n%5 = neg(%3) : f32[B, 64]\n"
     "%6 = concat(%5, %4) {axis = 1} : f32[B, 128]\n",
     0},
    {"a sum over what is joined", "B=5", "B", "%1 \"x\" : bf16[B, 64], %2 \"z\" : bf16[B, 64]", "%6 \"y\"",
     "%3 = concat(%1, %2) {axis = 1} : bf16[B, 128]\n%4 = cast(%3) {dtype = f32} : f32[B, 128]\n"
     "%5 = mul(%4, %4) : f32[B, 128]\n%6 = reduce_sum(%5) {axes = [1]} : f32[B]\n",
     1e-5},
    {"shifted by one", "B=5", "B", "%1 \"x\" : f32[B, 65], %2 \"y\" : f32[B, 64]", "%4 \"z\"",
     "%3 = slice(%1) {start = [0, 1], size = [B, 64], step = [1, 1]} : f32[B, 64]\n%4 = add(%3, %2) : f32[B, 64]\n", 0},
    {"a constant", "B=5", "B", "%1 \"x\" : f32[B, 8]", "%4 \"z\"",
     "%2 = const() {data = f32[8] [0x1p+0, 0x1p+1, 0x1p+2, 0x1p+3, 0x1p+4, 0x1p+5, 0x1p+6, 0x1p+7]} : f32[8]\n"
     "%3 = broadcast(%2) {shape = [B, 8], map = [1]} : f32[B, 8]\n%4 = mul(%1, %3) : f32[B, 8]\n",
     0},
    {"gathered rows", "B=7", "B*256", "%1 \"x\" : bf16[11, 256], %2 \"i11\" : i64[B]", "%3 \"y\"",
     "%3 = gather(%1, %2) {axis = 0} : bf16[B, 256]\n", 0},
    {"halves of a row in registers", "B=5", "B", "%1 \"x\" : bf16[B, 128], %2 \"w\" : f32[128]", "%9 \"y\"",
     "%3 = cast(%1) {dtype = f32} : f32[B, 128]\n%4 = rms_norm(%3, %2) " F32_EPS " : f32[B, 128]\n"
     "%5 = slice(%4) {start = [0, 64], size = [B, 64], step = [1, 1]} : f32[B, 64]\n"
     "%6 = slice(%4) {start = [0, 0], size = [B, 64], step = [1, 1]} : f32[B, 64]\n%7 = neg(%5) : f32[B, 64]\n"
     "%8 = concat(%7, %6) {axis = 1} : f32[B, 128]\n%9 = cast(%8) {dtype = bf16} : bf16[B, 128]\n",
     0},
};

/* dx and dw of y = x * r * w over so many columns. */
#define NORM_BACKWARD(n, size) \
  "%5 = broadcast(%4) {shape = [T, " n "], map = [0]} : f32[T, " n "]\n" \
  "%20 = cast(%1) {dtype = f32} : f32[T, " n "]\n" \
  "%6 = mul(%20, %5) : f32[T, " n "]\n" \
  "%7 = broadcast(%2) {shape = [T, " n "], map = [1]} : f32[T, " n "]\n" \
  "%21 = cast(%3) {dtype = f32} : f32[T, " n "]\n%8 = mul(%21, %7) : f32[T, " n "]\n" \
  "%9 = mul(%8, %6) : f32[T, " n "]\n%10 = reduce_sum(%9) {axes = [1]} : f32[T]\n" \
  "%11 = broadcast(%10) {shape = [T, " n "], map = [0]} : f32[T, " n "]\n%12 = mul(%11, %6) : f32[T, " n "]\n" \
  "%13 = sub(%8, %12) : f32[T, " n "]\n%14 = mul(%13, %5) : f32[T, " n "]\n%15 = mul(%21, %6) : f32[T, " n "]\n" \
  "%16 = block_sum(%15) {leading = 1, size = " size "} : f32[ceildiv(T, " size "), " n "]\n"
#define NORM_INPUTS(n) \
  "%1 \"x\" : bf16[T, " n "], %2 \"w\" : f32[" n "], %3 \"dy\" : bf16[T, " n "], %4 \"r\" : f32[T]"

static const emit_case sliced[] = {
    {"rows of a chunk", "T=71", "T", NORM_INPUTS("768"), "%14 \"dx\", %16 \"dw\"", NORM_BACKWARD("768", "32"), 1e-4},
    {"short rows of a chunk", "T=700", "T", NORM_INPUTS("128"), "%14 \"dx\", %16 \"dw\"", NORM_BACKWARD("128", "256"),
     1e-4},
    {"a chunk smaller than its slices", "T=7", "T", NORM_INPUTS("64"), "%14 \"dx\", %16 \"dw\"",
     NORM_BACKWARD("64", "4"), 1e-4},
    {"no rows", "T=0", "T", NORM_INPUTS("128"), "%14 \"dx\", %16 \"dw\"", NORM_BACKWARD("128", "32"), 0},
    {"sums of whole numbers", "T=71", "T", "%1 \"x\" : i32[T, 64]", "%2 \"y\"",
     "%2 = block_sum(%1) {leading = 1, size = 32} : i32[ceildiv(T, 32), 64]\n", 0},
    {"columns and the rows' own sums", "T=71", "T", "%1 \"x\" : f32[T, 64]", "%3 \"c\", %5 \"s\"",
     "%2 = exp(%1) : f32[T, 64]\n%3 = block_sum(%2) {leading = 1, size = 32} : f32[ceildiv(T, 32), 64]\n"
     "%4 = reduce_sum(%2) {axes = [1]} : f32[T]\n%5 = block_sum(%4) {leading = 1, size = 32} : f32[ceildiv(T, 32)]\n",
     1e-5},
    {"down a column", "T=333", "70", "%1 \"x\" : f32[T, 70]", "%2 \"y\"",
     "%2 = reduce_sum(%1) {axes = [0]} : f32[70]\n",
     1e-5},
    {"the greatest of a column", "T=33 H=5", "H", "%1 \"nan\" : f32[T, H]", "%2 \"y\"",
     "%2 = reduce_max(%1) {axes = [0]} : f32[H]\n", 0},
    {"softmax down a column", "T=33 H=45", "H", "%1 \"x\" : f32[T, H]", "%3 \"y\"",
     "%2 = transpose(%1) {perm = [1, 0]} : f32[H, T]\n%3 = softmax(%2) {axis = 1} : f32[H, T]\n", 1e-5},
};

START_TEST(test_wide) { emit_check_all(wide, sizeof wide / sizeof *wide); }
END_TEST
START_TEST(test_sliced) { emit_check_all(sliced, sizeof sliced / sizeof *sliced); }
END_TEST

/* The text of a case, without the prelude. */
static void print(const emit_case *c, moec_buf *text) {
  emit_run r;
  UNIT_OK(emit_build(c, &r));
  emit_kernel(text, &r, "k");
  moec_module_destroy(r.m);
}

START_TEST(test_text) {
  static const struct {
    const emit_case *c;
    const char *has;
  } expect[] = {
      {&wide[0], "moec_read_f32x4(&b0[d0])"},
      {&wide[1], "moec_write_f16x8(&b4[d0], "},
      {&wide[2], "moec_read_i64x2(&b0[d0])"},
      {&wide[3], "moec_bf16x8 x0[8];"},
      {&wide[6], "moec_read_f32x4(&b0[row * 20000 + d"},
      {&wide[7], "moec_read_f32x4(&b0[row * (8 * s1) + d"},
      {&wide[13], "moec_load_bf16(x0[i1].v[u])"},
      {&wide[13], "moec_load_bf16(x0[i1 + 1].v[u])"},
      {&wide[9], ") x0 = moec_read_bf16x8("},
      {&sliced[0], "MOEC_SLICES_JOIN(float, w0 + i, 8, 32, 8, "},
      {&sliced[1], "MOEC_SLICED_TEAM(8, "},
      {&sliced[6], "MOEC_SLICES_JOIN(float, w0 + i, 1, 32, 32, "},
  };
  for (size_t i = 0; i < sizeof expect / sizeof *expect; i++) {
    moec_buf text = {0};
    print(expect[i].c, &text);
    if (!strstr(moec_buf_str(&text), expect[i].has))
      ck_abort_msg("%s: expected %s in\n%s", expect[i].c->name, expect[i].has, moec_buf_str(&text));
    moec_buf_fini(&text);
  }
}
END_TEST

UNIT_MAIN("emit_cuda_wide", test_wide, test_sliced, test_text)
