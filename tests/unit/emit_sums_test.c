/* Kernels that sum over rows: block sums alone, several at once, and next to results by row. */
#include "codegen/emit.h"
#include "ir/interp.h"
#include "tests/unit/emit.h"

#define F32_EPS "{eps = 0x1.0c6f7ap-20}"

static const emit_case sums[] = {
    {"columns", "T=71 H=13", "T", "%1 \"x\" : f32[T, H]", "%2 \"y\"",
     "%2 = block_sum(%1) {leading = 1, size = 8} : f32[ceildiv(T, 8), H]\n", 0},
    {"whole blocks", "T=64", "T", "%1 \"x\" : f32[T, 24]", "%2 \"y\"",
     "%2 = block_sum(%1) {leading = 1, size = 16} : f32[ceildiv(T, 16), 24]\n", 0},
    {"fewer rows than a block", "T=3", "T", "%1 \"x\" : f32[T, 24]", "%2 \"y\"",
     "%2 = block_sum(%1) {leading = 1, size = 32} : f32[ceildiv(T, 32), 24]\n", 0},
    {"no rows", "T=0", "T", "%1 \"x\" : f32[T, 24]", "%2 \"y\"",
     "%2 = block_sum(%1) {leading = 1, size = 32} : f32[ceildiv(T, 32), 24]\n", 0},
    {"scalars", "T=71", "T", "%1 \"x\" : f32[T]", "%3 \"y\"",
     "%2 = exp(%1) : f32[T]\n%3 = block_sum(%2) {leading = 1, size = 8} : f32[ceildiv(T, 8)]\n", 0},
    {"integers", "T=71", "T", "%1 \"x\" : i32[T, 3]", "%2 \"y\"",
     "%2 = block_sum(%1) {leading = 1, size = 8} : i32[ceildiv(T, 8), 3]\n", 0},
    {"two row axes", "B=3 S=11", "B*S", "%1 \"x\" : f32[B, S, 24], %2 \"d\" : f32[B, S, 24]", "%4 \"dw\"",
     "%3 = mul(%1, %2) : f32[B, S, 24]\n%4 = block_sum(%3) {leading = 2, size = 8} : f32[ceildiv(B*S, 8), 24]\n", 0},
    {"sums of rows", "T=40", "T", "%1 \"x\" : f32[T, 24]", "%3 \"y\"",
     "%2 = reduce_sum(%1) {axes = [1]} : f32[T]\n"
     "%3 = block_sum(%2) {leading = 1, size = 16} : f32[ceildiv(T, 16)]\n", 1e-5},
    {"two column axes", "T=40 H=3", "T", "%1 \"x\" : f32[T, H, 4], %2 \"m\" : f32[H, 4]", "%5 \"y\"",
     "%3 = broadcast(%2) {shape = [T, H, 4], map = [1, 2]} : f32[T, H, 4]\n%4 = mul(%1, %3) : f32[T, H, 4]\n"
     "%5 = block_sum(%4) {leading = 1, size = 16} : f32[ceildiv(T, 16), H, 4]\n", 0},
    {"the same for all columns", "T=40", "T", "%1 \"x\" : f32[T]", "%3 \"y\"",
     "%2 = broadcast(%1) {shape = [T, 24], map = [0]} : f32[T, 24]\n"
     "%3 = block_sum(%2) {leading = 1, size = 16} : f32[ceildiv(T, 16), 24]\n", 0},
    {"along one column axis", "T=40 H=3", "T", "%1 \"x\" : f32[T, H], %2 \"z\" : f32[T, H, 20]", "%4 \"y\", %5 \"n\"",
     "%3 = broadcast(%1) {shape = [T, H, 20], map = [0, 1]} : f32[T, H, 20]\n%5 = neg(%2) : f32[T, H, 20]\n"
     "%4 = block_sum(%3) {leading = 1, size = 16} : f32[ceildiv(T, 16), H, 20]\n", 0},
    {"padded columns", "T=40", "T", "%1 \"x\" : f32[T, 7], %2 \"v\" : f32[]", "%4 \"y\"",
     "%3 = pad(%1, %2) {lo = [0, 3], hi = [0, 2]} : f32[T, 12]\n"
     "%4 = block_sum(%3) {leading = 1, size = 16} : f32[ceildiv(T, 16), 12]\n", 0},
    {"joined columns next to rows", "T=40", "T", "%1 \"x\" : f32[T, 7], %2 \"z\" : f32[T, 20]", "%3 \"c\", %4 \"y\"",
     "%3 = concat(%1, %2) {axis = 1} : f32[T, 27]\n"
     "%4 = block_sum(%3) {leading = 1, size = 16} : f32[ceildiv(T, 16), 27]\n", 0},
    {"columns, a scalar and rows", "T=71", "T", "%1 \"x\" : f32[T, 24]", "%2 \"e\", %3 \"c\", %5 \"s\", %4 \"r\"",
     "%2 = exp(%1) : f32[T, 24]\n%3 = block_sum(%2) {leading = 1, size = 8} : f32[ceildiv(T, 8), 24]\n"
     "%4 = reduce_sum(%2) {axes = [1]} : f32[T]\n"
     "%5 = block_sum(%4) {leading = 1, size = 8} : f32[ceildiv(T, 8)]\n", 4e-6},
    {"a sum twice", "T=71", "T", "%1 \"x\" : f32[T, 24]", "%3 \"y\", %4 \"z\"",
     "%2 = exp(%1) : f32[T, 24]\n%3 = block_sum(%2) {leading = 1, size = 8} : f32[ceildiv(T, 8), 24]\n"
     "%4 = block_sum(%2) {leading = 1, size = 8} : f32[ceildiv(T, 8), 24]\n", 4e-6},
    {"narrow floats in f32", "T=71", "T", "%1 \"x\" : bf16[T, 24]", "%3 \"y\"",
     "%2 = cast(%1) {dtype = f32} : f32[T, 24]\n"
     "%3 = block_sum(%2) {leading = 1, size = 8} : f32[ceildiv(T, 8), 24]\n", 0},
};

/* dx and dw of y = x * r * w, r = rsqrt(mean(x*x) + eps): one pass over x and dy. */
static const emit_case backward[] = {
    {"rms norm", "B=3 S=21", "B*S",
     "%1 \"x\" : f32[B, S, 64], %2 \"w\" : f32[64], %3 \"dy\" : f32[B, S, 64], %4 \"r\" : f32[B, S]",
     "%14 \"dx\", %16 \"dw\"",
     "%5 = broadcast(%4) {shape = [B, S, 64], map = [0, 1]} : f32[B, S, 64]\n%6 = mul(%1, %5) : f32[B, S, 64]\n"
     "%7 = broadcast(%2) {shape = [B, S, 64], map = [2]} : f32[B, S, 64]\n%8 = mul(%3, %7) : f32[B, S, 64]\n"
     "%9 = mul(%8, %6) : f32[B, S, 64]\n%10 = reduce_sum(%9) {axes = [2]} : f32[B, S]\n"
     "%11 = broadcast(%10) {shape = [B, S, 64], map = [0, 1]} : f32[B, S, 64]\n%12 = mul(%11, %6) : f32[B, S, 64]\n"
     "%13 = sub(%8, %12) : f32[B, S, 64]\n%14 = mul(%13, %5) : f32[B, S, 64]\n"
     "%15 = mul(%3, %6) : f32[B, S, 64]\n"
     "%16 = block_sum(%15) {leading = 2, size = 32} : f32[ceildiv(B*S, 32), 64]\n", 2e-5},
};

/* Other adjoints: of softmax, of a gated activation with the bias behind it, of a rotation of halves, of slices and a
 * concatenation, of a broadcast in the middle, of a mask, and dlogits of a cross entropy next to its sum. */
static const emit_case adjoints[] = {
    {"softmax", "T=40", "T", "%1 \"y\" : f32[T, 33], %2 \"dy\" : f32[T, 33]", "%7 \"dx\"",
     "%3 = mul(%1, %2) : f32[T, 33]\n%4 = reduce_sum(%3) {axes = [1]} : f32[T]\n"
     "%5 = broadcast(%4) {shape = [T, 33], map = [0]} : f32[T, 33]\n%6 = sub(%2, %5) : f32[T, 33]\n"
     "%7 = mul(%6, %1) : f32[T, 33]\n", 2e-5},
    {"silu and bias", "T=40", "T", "%1 \"g\" : f32[T, 24], %2 \"u\" : f32[T, 24], %3 \"dy\" : f32[T, 24]",
     "%11 \"dg\", %12 \"du\", %13 \"db\"",
     "%4 = sigmoid(%1) : f32[T, 24]\n%5 = mul(%1, %4) : f32[T, 24]\n%12 = mul(%3, %5) : f32[T, 24]\n"
     "%6 = sub(%1, %5) : f32[T, 24]\n%7 = mul(%6, %4) : f32[T, 24]\n%8 = add(%7, %4) : f32[T, 24]\n"
     "%9 = mul(%3, %2) : f32[T, 24]\n%11 = mul(%9, %8) : f32[T, 24]\n"
     "%13 = block_sum(%11) {leading = 1, size = 16} : f32[ceildiv(T, 16), 24]\n", 1e-5},
    {"rotation", "T=7", "T", "%1 \"dy\" : f32[T, 4, 16], %2 \"c\" : f32[T, 8], %3 \"s\" : f32[T, 8]", "%14 \"dx\"",
     "%4 = slice(%1) {start = [0, 0, 0], size = [T, 4, 8], step = [1, 1, 1]} : f32[T, 4, 8]\n"
     "%5 = slice(%1) {start = [0, 0, 8], size = [T, 4, 8], step = [1, 1, 1]} : f32[T, 4, 8]\n"
     "%6 = broadcast(%2) {shape = [T, 4, 8], map = [0, 2]} : f32[T, 4, 8]\n"
     "%7 = broadcast(%3) {shape = [T, 4, 8], map = [0, 2]} : f32[T, 4, 8]\n%8 = mul(%4, %6) : f32[T, 4, 8]\n"
     "%9 = mul(%5, %7) : f32[T, 4, 8]\n%10 = add(%8, %9) : f32[T, 4, 8]\n%11 = mul(%5, %6) : f32[T, 4, 8]\n"
     "%12 = mul(%4, %7) : f32[T, 4, 8]\n%13 = sub(%11, %12) : f32[T, 4, 8]\n"
     "%15 = const() {data = f32[] [0x0p+0]} : f32[]\n"
     "%16 = pad(%10, %15) {lo = [0, 0, 0], hi = [0, 0, 8]} : f32[T, 4, 16]\n"
     "%17 = pad(%13, %15) {lo = [0, 0, 8], hi = [0, 0, 0]} : f32[T, 4, 16]\n%14 = add(%16, %17) : f32[T, 4, 16]\n", 0},
    {"tokens shifted by one", "B=2 S=5", "B*S", "%1 \"dy\" : f32[B, S - 1, 12]", "%3 \"dx\"",
     "%2 = const() {data = f32[] [0x0p+0]} : f32[]\n"
     "%3 = pad(%1, %2) {lo = [0, 1, 0], hi = [0, 0, 0]} : f32[B, S, 12]\n", 0},
    {"a broadcast in the middle", "B=3 S=50", "B*S", "%1 \"dy\" : f32[B, S, 6, 8]", "%2 \"dk\"",
     "%2 = reduce_sum(%1) {axes = [2]} : f32[B, S, 8]\n", 0},
    {"a broadcast over tokens", "B=3 S=50", "B", "%1 \"dy\" : f32[B, S, 200]", "%2 \"dx\"",
     "%2 = reduce_sum(%1) {axes = [1]} : f32[B, 200]\n", 1e-5},
    {"a mask", "T=40", "T", "%1 \"x\" : f32[T, 24], %2 \"dy\" : f32[T, 24]", "%7 \"dx\", %8 \"db\"",
     "%3 = const() {data = f32[] [0x1p-1]} : f32[]\n%4 = broadcast(%3) {shape = [T, 24], map = []} : f32[T, 24]\n"
     "%5 = lt(%1, %4) : bool[T, 24]\n%6 = sub(%4, %4) : f32[T, 24]\n%7 = select(%5, %2, %6) : f32[T, 24]\n"
     "%8 = block_sum(%7) {leading = 1, size = 32} : f32[ceildiv(T, 32), 24]\n", 1e-5},
    {"cross entropy", "T=40", "T", "%1 \"x\" : f32[T, 50], %2 \"i25\" : i64[T], %3 \"lse\" : f32[T], %4 \"d\" : f32[T]",
     "%13 \"dx\", %14 \"sum\"",
     "%5 = broadcast(%3) {shape = [T, 50], map = [0]} : f32[T, 50]\n%6 = sub(%1, %5) : f32[T, 50]\n"
     "%7 = exp(%6) : f32[T, 50]\n%8 = iota() {dtype = i64, shape = [T, 50], axis = 1} : i64[T, 50]\n"
     "%9 = broadcast(%2) {shape = [T, 50], map = [0]} : i64[T, 50]\n%10 = eq(%8, %9) : bool[T, 50]\n"
     "%15 = cast(%10) {dtype = f32} : f32[T, 50]\n%11 = sub(%7, %15) : f32[T, 50]\n"
     "%12 = broadcast(%4) {shape = [T, 50], map = [0]} : f32[T, 50]\n%13 = mul(%11, %12) : f32[T, 50]\n"
     "%14 = block_sum(%4) {leading = 1, size = 32} : f32[ceildiv(T, 32)]\n", 1e-4},
};

START_TEST(test_sums) { emit_check_all(sums, sizeof sums / sizeof *sums); }
END_TEST
START_TEST(test_backward) { emit_check_all(backward, sizeof backward / sizeof *backward); }
END_TEST
START_TEST(test_adjoints) { emit_check_all(adjoints, sizeof adjoints / sizeof *adjoints); }
END_TEST

UNIT_MAIN("emit_sums", test_sums, test_backward, test_adjoints)
