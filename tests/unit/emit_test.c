/* Emitted C kernels: pointwise, movement, gathers, reductions. Expected values come from the interpreter. */
#include "codegen/emit.h"
#include "ir/interp.h"
#include "tests/unit/emit.h"

#define F32_EPS "{eps = 0x1.0c6f7ap-20}"

static const emit_case pointwise[] = {
    {"add", "B=3 N=37", "B*N", "%1 \"x\" : f32[B, N], %2 \"y\" : f32[B, N]", "%3 \"z\"",
     "%3 = add(%1, %2) : f32[B, N]\n", 0},
    {"scalar", "", "1", "%1 \"x\" : f32[], %2 \"y\" : f32[]", "%3 \"z\"",
     "%3 = mul(%1, %2) : f32[]\n", 0},
    {"bias", "B=3 N=37", "B", "%1 \"x\" : f32[B, N], %2 \"y\" : f32[N]", "%4 \"z\"",
     "%3 = broadcast(%2) {shape = [B, N], map = [1]} : f32[B, N]\n%4 = add(%1, %3) : f32[B, N]\n",
     0},
    {"bias flat", "B=3 N=37", "B*N", "%1 \"x\" : f32[B, N], %2 \"y\" : f32[N]", "%4 \"z\"",
     "%3 = broadcast(%2) {shape = [B, N], map = [1]} : f32[B, N]\n%4 = add(%1, %3) : f32[B, N]\n",
     0},
    {"transposed", "B=3 N=37", "N", "%1 \"x\" : f32[B, N], %2 \"y\" : f32[N, B]", "%4 \"z\"",
     "%3 = transpose(%1) {perm = [1, 0]} : f32[N, B]\n%4 = mul(%3, %2) : f32[N, B]\n", 0},
    {"swiglu", "B=3", "B", "%1 \"g\" : f32[B, 24], %2 \"u\" : f32[B, 24]", "%3 \"y\"",
     "%3 = swiglu(%1, %2) {alpha = 0x1.b3p+0, beta = 0x1p+0, limit = 0x1p+0} : f32[B, 24]\n", 0},
    {"bf16", "B=3", "B", "%1 \"x\" : bf16[B, 24], %2 \"y\" : bf16[B, 24]", "%4 \"z\"",
     "%3 = sigmoid(%1) : bf16[B, 24]\n%4 = mul(%3, %2) : bf16[B, 24]\n", 0},
    {"f16", "B=3", "B", "%1 \"x\" : f16[B, 24]", "%3 \"z\"",
     "%2 = cast(%1) {dtype = f32} : f32[B, 24]\n%3 = cast(%2) {dtype = f16} : f16[B, 24]\n", 0},
    {"two outputs", "B=3", "B", "%1 \"x\" : f32[B, 24]", "%2 \"y\", %3 \"z\"",
     "%2 = exp(%1) : f32[B, 24]\n%3 = neg(%1) : f32[B, 24]\n", 0},
    {"output is input", "B=3", "B", "%1 \"x\" : i32[B, 5]", "%2 \"y\", %1 \"z\"",
     "%2 = neg(%1) : i32[B, 5]\n", 0},
    {"bools", "B=50", "B", "%1 \"x\" : f32[B], %2 \"y\" : f32[B], %3 \"c\" : bool[B]",
     "%7 \"z\", %6 \"d\"",
     "%4 = lt(%1, %2) : bool[B]\n%5 = not(%3) : bool[B]\n%6 = xor(%4, %5) : bool[B]\n%7 = "
     "select(%6, %1, %2) : f32[B]\n",
     0},
    {"ints", "B=50", "B", "%1 \"x\" : i32[B], %2 \"i5\" : i32[B]",
     "%3 \"a\", %4 \"b\", %5 \"c\", %6 \"d\", %7 \"e\", %8 \"f\"",
     "%3 = div(%1, %2) : i32[B]\n%4 = mod(%1, %2) : i32[B]\n%5 = rem(%1, %2) : i32[B]\n%6 = "
     "max(%1, %2) : i32[B]\n"
     "%7 = and(%1, %2) : i32[B]\n%8 = mul(%3, %4) : i32[B]\n",
     0},
    {"int8", "B=50", "B", "%1 \"i128\" : i8[B], %2 \"i128\" : i8[B]",
     "%3 \"a\", %4 \"b\", %5 \"c\", %6 \"d\"",
     "%3 = add(%1, %2) : i8[B]\n%4 = mul(%1, %2) : i8[B]\n%5 = neg(%1) : i8[B]\n%6 = cast(%1) "
     "{dtype = u8} : u8[B]\n",
     0},
    {"casts", "B=50", "B", "%1 \"nan\" : f32[B]", "%2 \"a\", %4 \"b\", %5 \"c\", %6 \"d\"",
     "%2 = cast(%1) {dtype = i32} : i32[B]\n%3 = const() {data = f32[] [0x1p+20]} : f32[]\n"
     "%7 = broadcast(%3) {shape = [B], map = []} : f32[B]\n%8 = mul(%1, %7) : f32[B]\n%4 = "
     "cast(%8) {dtype = i8} : i8[B]\n"
     "%5 = cast(%8) {dtype = u16} : u16[B]\n%6 = cast(%1) {dtype = bool} : bool[B]\n",
     0},
    {"f64", "B=50", "B", "%1 \"pos\" : f64[B]", "%4 \"y\"",
     "%2 = log(%1) : f64[B]\n%3 = tanh(%2) : f64[B]\n%4 = pow(%1, %3) : f64[B]\n", 1e-14},
    {"functions", "B=40", "B", "%1 \"pos\" : f32[B]",
     "%2 \"a\", %3 \"b\", %4 \"c\", %5 \"d\", %6 \"e\", %7 \"f\", %8 \"g\", %9 \"h\"",
     "%2 = erf(%1) : f32[B]\n%3 = log(%1) : f32[B]\n%4 = expm1(%1) : f32[B]\n%10 = tanh(%1) : "
     "f32[B]\n%5 = atanh(%10) : f32[B]\n%6 = rsqrt(%1) : f32[B]\n"
     "%7 = round(%1) : f32[B]\n%8 = sign(%1) : f32[B]\n%9 = sin(%1) : f32[B]\n",
     1e-5},
    {"max nan", "B=60", "B", "%1 \"nan1\" : f32[B], %2 \"nan2\" : f32[B]",
     "%3 \"a\", %4 \"b\", %5 \"c\"",
     "%3 = max(%1, %2) : f32[B]\n%4 = min(%1, %2) : f32[B]\n%5 = isnan(%1) : bool[B]\n", 0},
    {"empty", "B=0", "B", "%1 \"x\" : f32[B, 4]", "%2 \"y\"", "%2 = exp(%1) : f32[B, 4]\n", 0},
    {"iota size", "B=6", "B", "%1 \"x\" : f32[B, 5]", "%6 \"y\", %8 \"z\"",
     "%2 = iota() {dtype = i64, shape = [B, 5], axis = 0} : i64[B, 5]\n%3 = iota() {dtype = i64, "
     "shape = [B, 5], axis = 1} : i64[B, 5]\n"
     "%4 = le(%3, %2) : bool[B, 5]\n%5 = neg(%1) : f32[B, 5]\n%6 = select(%4, %1, %5) : f32[B, 5]\n"
     "%7 = size() {value = 2*B + 1} : i64[]\n%9 = broadcast(%7) {shape = [B, 5], map = []} : "
     "i64[B, 5]\n%8 = mul(%9, %3) : i64[B, 5]\n",
     0},
};

static const emit_case moves[] = {
    {"slice reverse", "B=3 N=10", "B", "%1 \"x\" : f32[B, N, 8]", "%4 \"y\"",
     "%2 = slice(%1) {start = [0, 1, 1], size = [B, N - 1, 3], step = [1, 1, 2]} : f32[B, N - 1, "
     "3]\n"
     "%3 = reverse(%2) {axes = [1, 2]} : f32[B, N - 1, 3]\n%4 = neg(%3) : f32[B, N - 1, 3]\n",
     0},
    {"pad", "B=3", "B", "%1 \"x\" : f32[B, 7], %2 \"v\" : f32[]", "%4 \"y\"",
     "%3 = pad(%1, %2) {lo = [0, 2], hi = [0, 3]} : f32[B, 12]\n%4 = exp(%3) : f32[B, 12]\n", 0},
    {"pad rows", "B=3", "B + 3", "%1 \"x\" : f32[B, 7], %2 \"v\" : f32[]", "%4 \"y\"",
     "%3 = pad(%1, %2) {lo = [2, 0], hi = [1, 0]} : f32[B + 3, 7]\n%4 = neg(%3) : f32[B + 3, 7]\n",
     0},
    {"pad everything", "B=3", "B + 5", "%1 \"x\" : f32[B, 7], %2 \"v\" : f32[]", "%4 \"y\"",
     "%3 = pad(%1, %2) {lo = [2, 1], hi = [3, 4]} : f32[B + 5, 12]\n%4 = neg(%3) : f32[B + 5, "
     "12]\n",
     0},
    {"concat columns", "B=3 M=2", "B", "%1 \"x\" : f32[B, M, 3], %2 \"y\" : f32[B, M, 5]",
     "%5 \"z\"",
     "%3 = neg(%1) : f32[B, M, 3]\n%4 = concat(%3, %2, %1) {axis = 2} : f32[B, M, 11]\n%5 = "
     "neg(%4) : f32[B, M, 11]\n",
     0},
    {"concat cache", "B=2 P=3 S=4", "B*P + B*S", "%1 \"k\" : f32[B, P, 6], %2 \"n\" : f32[B, S, 6]",
     "%3 \"z\"", "%3 = concat(%1, %2) {axis = 1} : f32[B, P + S, 6]\n", 0},
    {"concat symbolic columns", "B=2 P=3 S=4", "B",
     "%1 \"k\" : f32[B, P, 6], %2 \"n\" : f32[B, S, 6]", "%3 \"z\"",
     "%3 = concat(%1, %2) {axis = 1} : f32[B, P + S, 6]\n", 0},
    {"concat empty", "B=2 P=0 S=4", "B*P + B*S", "%1 \"k\" : f32[B, P, 6], %2 \"n\" : f32[B, S, 6]",
     "%3 \"z\"", "%3 = concat(%1, %2) {axis = 1} : f32[B, P + S, 6]\n", 0},
    {"concat slice pad", "B=3", "B", "%1 \"x\" : f32[B, 8], %2 \"v\" : f32[]", "%7 \"z\"",
     "%3 = concat(%1, %1) {axis = 1} : f32[B, 16]\n%4 = slice(%3) {start = [0, 5], size = [B, 9], "
     "step = [1, 1]} : f32[B, 9]\n"
     "%5 = pad(%4, %2) {lo = [0, 1], hi = [0, 1]} : f32[B, 11]\n%6 = reverse(%5) {axes = [1]} : "
     "f32[B, 11]\n%7 = neg(%6) : f32[B, 11]\n",
     0},
    {"reshape mixes", "B=4", "B", "%1 \"x\" : f32[B, 6, 10]", "%3 \"y\"",
     "%2 = reshape(%1) {shape = [B, 4, 15]} : f32[B, 4, 15]\n%3 = exp(%2) : f32[B, 4, 15]\n", 0},
    {"reshape transpose", "B=4 S=5", "B*S", "%1 \"x\" : f32[B, 3, S, 8]", "%4 \"y\"",
     "%2 = transpose(%1) {perm = [0, 2, 1, 3]} : f32[B, S, 3, 8]\n%3 = reshape(%2) {shape = [B, S, "
     "24]} : f32[B, S, 24]\n"
     "%4 = neg(%3) : f32[B, S, 24]\n",
     0},
    {"reshape outputs", "B=4 S=5", "B*S", "%1 \"x\" : f32[B, S, 8]", "%2 \"y\", %3 \"z\"",
     "%2 = exp(%1) : f32[B, S, 8]\n%3 = reshape(%2) {shape = [B*S, 8]} : f32[B*S, 8]\n", 0},
    {"interleave", "B=4", "B", "%1 \"x\" : f32[B, 8], %2 \"y\" : f32[B, 8]", "%6 \"z\"",
     "%3 = reshape(%1) {shape = [B, 8, 1]} : f32[B, 8, 1]\n%4 = reshape(%2) {shape = [B, 8, 1]} : "
     "f32[B, 8, 1]\n"
     "%5 = concat(%3, %4) {axis = 2} : f32[B, 8, 2]\n%6 = reshape(%5) {shape = [B, 16]} : f32[B, "
     "16]\n",
     0},
    {"gather", "B=7", "B", "%1 \"x\" : f32[11, 6], %2 \"i11\" : i64[B]", "%4 \"y\"",
     "%3 = gather(%1, %2) {axis = 0} : f32[B, 6]\n%4 = neg(%3) : f32[B, 6]\n", 0},
    {"gather columns", "B=7", "B", "%1 \"x\" : f32[B, 11], %2 \"i11\" : i32[3]", "%3 \"y\"",
     "%3 = gather(%1, %2) {axis = 1} : f32[B, 3]\n", 0},
    {"gather elements", "B=7", "B", "%1 \"x\" : f32[B, 11], %2 \"i11\" : i64[B, 4]", "%3 \"y\"",
     "%3 = gather_elements(%1, %2) {axis = 1} : f32[B, 4]\n", 0},
    {"gather nd", "B=7", "B", "%1 \"x\" : f32[B, 5, 5, 3], %2 \"i5\" : i64[B, 4, 2]", "%3 \"y\"",
     "%3 = gather_nd(%1, %2) {batch_dims = 1} : f32[B, 4, 3]\n", 0},
    {"padded gather", "B=7", "B", "%1 \"x\" : f32[11], %2 \"v\" : f32[], %7 \"u\" : f32[B]",
     "%5 \"y\", %7 \"w\"",
     "%3 = iota() {dtype = i64, shape = [11], axis = 0} : i64[11]\n%4 = gather(%1, %3) {axis = 0} "
     ": f32[11]\n"
     "%6 = broadcast(%4) {shape = [B, 11], map = [1]} : f32[B, 11]\n%5 = pad(%6, %2) {lo = [0, 2], "
     "hi = [0, 2]} : f32[B, 15]\n",
     0},
    {"constant", "B=7", "B", "%1 \"x\" : f32[B, 4]", "%4 \"y\"",
     "%2 = const() {data = f32[4] [0x1p+0, -inf, nan, 0x1.8p+1]} : f32[4]\n%3 = broadcast(%2) "
     "{shape = [B, 4], map = [1]} : f32[B, 4]\n"
     "%4 = mul(%1, %3) : f32[B, 4]\n",
     0},
};

static const emit_case reduces[] = {
    {"rms_norm", "B=3 S=2", "B*S", "%1 \"x\" : f32[B, S, 64], %2 \"w\" : f32[64]",
     "%3 \"y\", %4 \"r\"", "%3, %4 = rms_norm(%1, %2) " F32_EPS " : f32[B, S, 64], f32[B, S, 1]\n",
     0},
    {"add rms_norm", "B=3 S=2 H=50", "B*S",
     "%1 \"x\" : f32[B, S, H], %2 \"w\" : f32[H], %3 \"r\" : f32[B, S, H]", "%4 \"h\", %5 \"y\"",
     "%4 = add(%1, %3) : f32[B, S, H]\n%5 = rms_norm(%4, %2) " F32_EPS " : f32[B, S, H]\n", 0},
    {"bf16 rms_norm", "B=3 S=2", "B*S", "%1 \"x\" : bf16[B, S, 64], %2 \"w\" : bf16[64]",
     "%3 \"y\"", "%3 = rms_norm(%1, %2) " F32_EPS " : bf16[B, S, 64]\n", 0},
    {"head norm", "B=3 S=2", "B*S", "%1 \"x\" : f32[B, S, 4, 24], %2 \"w\" : f32[24]", "%3 \"y\"",
     "%3 = rms_norm(%1, %2) " F32_EPS " : f32[B, S, 4, 24]\n", 0},
    {"softmax", "B=3 S=2", "B*S", "%1 \"x\" : f32[B, S, 37]", "%2 \"y\"",
     "%2 = softmax(%1) {axis = 2} : f32[B, S, 37]\n", 0},
    {"softmax symbolic", "B=3 S=70", "B", "%1 \"x\" : f32[B, S]", "%2 \"y\"",
     "%2 = softmax(%1) {axis = 1} : f32[B, S]\n", 0},
    {"softmax middle", "B=3 S=70 N=5", "B", "%1 \"x\" : f32[B, S, N]", "%2 \"y\"",
     "%2 = softmax(%1) {axis = 1} : f32[B, S, N]\n", 0},
    {"softmax middle 4", "B=3 S=70 N=5", "B", "%1 \"x\" : f32[B, S, N, 4]", "%2 \"y\"",
     "%2 = softmax(%1) {axis = 1} : f32[B, S, N, 4]\n", 0},
    {"softmax nan", "B=20 S=11", "B", "%1 \"nan\" : f32[B, S]", "%2 \"y\"",
     "%2 = softmax(%1) {axis = 1} : f32[B, S]\n", 0},
    {"sum leading", "B=300 N=200", "N", "%1 \"x\" : f32[B, N]", "%2 \"y\"",
     "%2 = reduce_sum(%1) {axes = [0]} : f32[N]\n", 1e-5},
    {"sum leading one row", "B=300 N=200", "1", "%1 \"x\" : f32[B, N]", "%2 \"y\"",
     "%2 = reduce_sum(%1) {axes = [0]} : f32[N]\n", 1e-5},
    {"sum middle", "B=3 M=30 N=20", "B", "%1 \"x\" : f32[B, M, N]", "%2 \"y\"",
     "%2 = reduce_sum(%1) {axes = [1]} : f32[B, N]\n", 1e-5},
    {"sum all", "B=3 M=30", "1", "%1 \"x\" : f32[B, M]", "%2 \"y\"",
     "%2 = reduce_sum(%1) {axes = [0, 1]} : f32[]\n", 1e-5},
    {"sum apart", "B=3 M=30", "B", "%1 \"x\" : f32[9, B, M]", "%2 \"y\"",
     "%2 = reduce_sum(%1) {axes = [0, 2]} : f32[B]\n", 1e-5},
    {"sum last", "B=130 M=30", "B", "%1 \"x\" : f32[B, M]", "%2 \"y\"",
     "%2 = reduce_sum(%1) {axes = [1]} : f32[B]\n", 1e-5},
    {"sum few", "B=130", "B", "%1 \"x\" : f32[B, 4]", "%2 \"y\"",
     "%2 = reduce_sum(%1) {axes = [1]} : f32[B]\n", 0},
    {"normalise few", "B=130", "B", "%1 \"pos\" : f32[B, 4]", "%4 \"y\"",
     "%2 = reduce_sum(%1) {axes = [1]} : f32[B]\n%3 = broadcast(%2) {shape = [B, 4], map = [0]} : "
     "f32[B, 4]\n%4 = div(%1, %3) : f32[B, 4]\n",
     0},
    {"max min prod", "B=20", "B", "%1 \"nan\" : f32[B, 17], %2 \"i9\" : i32[B, 17]",
     "%3 \"a\", %4 \"b\", %5 \"c\", %6 \"d\", %7 \"e\"",
     "%3 = reduce_max(%1) {axes = [1]} : f32[B]\n%4 = reduce_min(%1) {axes = [1]} : f32[B]\n%5 = "
     "reduce_prod(%2) {axes = [1]} : i32[B]\n"
     "%6 = reduce_max(%2) {axes = [1]} : i32[B]\n%7 = reduce_sum(%2) {axes = [1]} : i32[B]\n",
     0},
    {"any all", "B=20 N=3", "B", "%1 \"c\" : bool[B, N]", "%2 \"a\", %3 \"b\"",
     "%2 = reduce_max(%1) {axes = [1]} : bool[B]\n%3 = reduce_min(%1) {axes = [1]} : bool[B]\n", 0},
    {"empty range", "B=20 N=0", "B", "%1 \"x\" : f32[B, N], %5 \"i\" : i8[B, N]",
     "%2 \"a\", %3 \"b\", %4 \"c\", %6 \"d\"",
     "%2 = reduce_max(%1) {axes = [1]} : f32[B]\n%3 = reduce_sum(%1) {axes = [1]} : f32[B]\n%4 = "
     "reduce_prod(%1) {axes = [1]} : f32[B]\n"
     "%6 = reduce_max(%5) {axes = [1]} : i8[B]\n",
     0},
    {"sum of concat", "B=20", "B", "%1 \"x\" : f32[B, 12], %2 \"y\" : f32[B, 9]", "%6 \"z\"",
     "%3 = concat(%1, %2) {axis = 1} : f32[B, 21]\n%4 = reduce_sum(%3) {axes = [1]} : f32[B]\n"
     "%5 = broadcast(%4) {shape = [B, 21], map = [0]} : f32[B, 21]\n%6 = mul(%3, %5) : f32[B, "
     "21]\n",
     1e-5},
    {"norm of norm", "B=5", "B", "%1 \"x\" : f32[B, 40]", "%3 \"y\"",
     "%2 = rms_norm(%1, _) " F32_EPS " : f32[B, 40]\n%3 = softmax(%2) {axis = 1} : f32[B, 40]\n",
     0},
    {"gated norm", "B=5", "B", "%1 \"x\" : f32[B, 40], %2 \"z\" : f32[B, 40]", "%5 \"y\"",
     "%3 = sigmoid(%2) : f32[B, 40]\n%4 = mul(%1, %3) : f32[B, 40]\n%5 = rms_norm(%4, _) " F32_EPS
     " : f32[B, 40]\n",
     0},
    {"big row", "B=3", "B", "%1 \"x\" : f32[B, 40000]", "%2 \"y\"",
     "%2 = softmax(%1) {axis = 1} : f32[B, 40000]\n", 1e-5},
    {"f16 sum", "B=3", "B", "%1 \"x\" : f16[B, 400]", "%2 \"y\"",
     "%2 = reduce_sum(%1) {axes = [1]} : f16[B]\n", 0},
    {"f64 sum", "B=3", "B", "%1 \"x\" : f64[B, 400]", "%2 \"y\"",
     "%2 = reduce_sum(%1) {axes = [1]} : f64[B]\n", 1e-13},
};

static const emit_case ropes[] = {
    {"rope halves", "B=2 S=3", "B*S",
     "%1 \"x\" : f32[B, 4, S, 16], %2 \"c\" : f32[B, S, 1, 8], %3 \"s\" : f32[B, S, 1, 8]",
     "%5 \"y\"",
     "%4 = transpose(%1) {perm = [0, 2, 1, 3]} : f32[B, S, 4, 16]\n%5 = rope(%4, %2, %3) {pairs_in "
     "= false, pairs_out = false} : f32[B, S, 4, 16]\n",
     0},
    {"rope pairs in", "B=2 S=3", "B*S",
     "%1 \"x\" : f32[B, S, 64], %2 \"c\" : f32[B, S, 1, 8], %3 \"s\" : f32[B, S, 1, 8]", "%5 \"y\"",
     "%4 = reshape(%1) {shape = [B, S, 4, 16]} : f32[B, S, 4, 16]\n%5 = rope(%4, %2, %3) {pairs_in "
     "= true, pairs_out = false} : f32[B, S, 4, 16]\n",
     0},
    {"rope pairs", "B=2 S=3", "B*S",
     "%1 \"x\" : f32[B, S, 4, 16], %2 \"c\" : f32[B, S, 1, 8], %3 \"s\" : f32[B, S, 1, 8]",
     "%6 \"y\"",
     "%5 = rope(%1, %2, %3) {pairs_in = true, pairs_out = true} : f32[B, S, 4, 16]\n%6 = "
     "reshape(%5) {shape = [B, S, 64]} : f32[B, S, 64]\n",
     0},
    {"norm rope", "B=2 S=3", "B*S",
     "%1 \"x\" : bf16[B, S, 4, 16], %2 \"c\" : bf16[B, S, 1, 8], %3 \"s\" : bf16[B, S, 1, 8], %4 "
     "\"w\" : bf16[16]",
     "%6 \"y\"",
     "%5 = rms_norm(%1, %4) " F32_EPS " : bf16[B, S, 4, 16]\n%6 = rope(%5, %2, %3) {pairs_in = "
                                      "false, pairs_out = false} : bf16[B, S, 4, 16]\n",
     1.0 / 40},
    {"head norm flat", "B=2 S=3", "B*S",
     "%1 \"x\" : f32[B, S, 4, 24], %2 \"w\" : f32[24], %3 \"z\" : f32[B, S, 96]", "%7 \"y\"",
     "%4 = rms_norm(%1, %2) " F32_EPS
     " : f32[B, S, 4, 24]\n%5 = reshape(%4) {shape = [B, S, 96]} : f32[B, S, 96]\n"
     "%6 = sigmoid(%3) : f32[B, S, 96]\n%7 = mul(%5, %6) : f32[B, S, 96]\n",
     0},
    {"rope flat", "B=2 S=3 H=5", "B*S",
     "%1 \"x\" : f32[B, S, H, 16], %2 \"c\" : f32[B, S, 1, 8], %3 \"s\" : f32[B, S, 1, 8]",
     "%6 \"y\"",
     "%5 = rope(%1, %2, %3) {pairs_in = false, pairs_out = false} : f32[B, S, H, 16]\n%6 = "
     "reshape(%5) {shape = [B, S, 16*H]} : f32[B, S, 16*H]\n",
     0},
    {"repeat heads", "B=2 S=3", "B*S", "%1 \"x\" : f32[B, S, 2, 24]", "%4 \"y\"",
     "%2 = broadcast(%1) {shape = [B, S, 2, 3, 24], map = [0, 1, 2, 4]} : f32[B, S, 2, 3, 24]\n"
     "%3 = reshape(%2) {shape = [B, S, 6, 24]} : f32[B, S, 6, 24]\n%4 = neg(%3) : f32[B, S, 6, "
     "24]\n",
     0},
    {"partial rope", "B=2 S=3", "B*S*4",
     "%1 \"x\" : f32[B, S, 4, 24], %2 \"c\" : f32[B, S, 1, 4], %3 \"s\" : f32[B, S, 1, 4]",
     "%7 \"y\"",
     "%4 = slice(%1) {start = [0, 0, 0, 0], size = [B, S, 4, 8], step = [1, 1, 1, 1]} : f32[B, S, "
     "4, 8]\n"
     "%5 = slice(%1) {start = [0, 0, 0, 8], size = [B, S, 4, 16], step = [1, 1, 1, 1]} : f32[B, S, "
     "4, 16]\n"
     "%6 = rope(%4, %2, %3) {pairs_in = false, pairs_out = false} : f32[B, S, 4, 8]\n%7 = "
     "concat(%6, %5) {axis = 3} : f32[B, S, 4, 24]\n",
     0},
};

#define QKV(T, b, s, t, h, g, d, e)                                                          \
  "%1 \"q\" : " #T "[" #b ", " #s ", " #h ", " #d "], %2 \"k\" : " #T "[" #b ", " #t ", " #g \
  ", " #d "], %3 \"v\" : " #T "[" #b ", " #t ", " #g ", " #e "]"
#define ATT(s, c, k) "{scale = " s ", softcap = " c ", causal = " #k "}"

static const emit_case attentions[] = {
    {"attention", "B=2 S=5 T=7", "B*S*4", QKV(f32, B, S, T, 4, 4, 24, 12), "%4 \"y\"",
     "%4 = attention(%1, %2, %3) " ATT("0x1p-2", "0x0p+0", false) " : f32[B, S, 4, 12]\n", 1e-5},
    {"gqa causal", "B=2 S=70", "B*S*8", QKV(f32, B, S, S, 8, 2, 16, 16), "%4 \"y\", %5 \"l\"",
     "%4, %5 = attention(%1, %2, %3) " ATT("0x1p-2", "0x0p+0",
                                           true) " : f32[B, S, 8, 16], f32[B, S, 8]\n",
     1e-5},
    {"causal T > S", "B=2 S=9 T=150", "B*S*2", QKV(f32, B, S, T, 2, 1, 7, 5), "%4 \"y\"",
     "%4 = attention(%1, %2, %3) " ATT("0x1p-2", "0x0p+0", true) " : f32[B, S, 2, 5]\n", 1e-5},
    {"causal T < S", "B=2 S=40 T=9", "B*S*2", QKV(f32, B, S, T, 2, 2, 7, 9), "%4 \"y\", %5 \"l\"",
     "%4, %5 = attention(%1, %2, %3) " ATT("0x1p-2", "0x0p+0",
                                           true) " : f32[B, S, 2, 9], f32[B, S, 2]\n",
     1e-5},
    {"decode", "B=2 S=1 T=150", "B*S*8", QKV(f32, B, S, T, 8, 2, 64, 64), "%4 \"y\"",
     "%4 = attention(%1, %2, %3) " ATT("0x1p-3", "0x0p+0", true) " : f32[B, S, 8, 64]\n", 1e-5},
    {"decode many heads", "B=2 S=1 T=150", "B*S*12", QKV(f32, B, S, T, 12, 1, 64, 64), "%4 \"y\"",
     "%4 = attention(%1, %2, %3) " ATT("0x1p-3", "0x0p+0", true) " : f32[B, S, 12, 64]\n", 1e-5},
    {"wide heads", "B=1 S=33 T=40", "B*S*2", QKV(f32, B, S, T, 2, 2, 192, 128), "%4 \"y\"",
     "%4 = attention(%1, %2, %3) " ATT("0x1p-4", "0x0p+0", true) " : f32[B, S, 2, 128]\n", 1e-5},
    {"softcap sink", "B=2 S=20", "B*S*4", QKV(f32, B, S, S, 4, 2, 24, 12) ", %5 \"s\" : f32[4]",
     "%4 \"y\", %6 \"l\"",
     "%4, %6 = attention(%1, %2, %3, _, %5) " ATT("0x1p+0", "0x1.8p+1",
                                                  true) " : f32[B, S, 4, 12], f32[B, S, 4]\n",
     1e-5},
    {"bf16 attention", "B=2 S=40", "B*S*4", QKV(bf16, B, S, S, 4, 2, 24, 12), "%4 \"y\"",
     "%4 = attention(%1, %2, %3) " ATT("0x1p-2", "0x0p+0", true) " : bf16[B, S, 4, 12]\n", 0},
    {"f16 attention", "B=2 S=40", "B*S*4", QKV(f16, B, S, S, 4, 2, 24, 12), "%4 \"y\"",
     "%4 = attention(%1, %2, %3) " ATT("0x1p-2", "0x0p+0", true) " : f16[B, S, 4, 12]\n", 0},
    {"added mask", "B=2 S=20 T=90", "B*S*4",
     QKV(f32, B, S, T, 4, 2, 24, 12) ", %5 \"m\" : f32[B, 1, S, T]", "%4 \"y\"",
     "%4 = attention(%1, %2, %3, %5) " ATT("0x1p-2", "0x0p+0", false) " : f32[B, S, 4, 12]\n",
     1e-5},
    {"added mask by head", "B=2 S=20 T=90", "B*S*4",
     QKV(f32, B, S, T, 4, 2, 24, 12) ", %5 \"m\" : f32[1, 4, 1, T]", "%4 \"y\"",
     "%4 = attention(%1, %2, %3, %5) " ATT("0x1p-2", "0x0p+0", false) " : f32[B, S, 4, 12]\n",
     1e-5},
    {"bool mask", "B=2 S=20 T=90", "B*S*4",
     QKV(f32, B, S, T, 4, 2, 24, 12) ", %5 \"m\" : bool[B, 1, 1, T]", "%4 \"y\"",
     "%4 = attention(%1, %2, %3, %5) " ATT("0x1p-2", "0x0p+0", true) " : f32[B, S, 4, 12]\n", 1e-5},
    {"hidden rows", "B=2 S=20", "B*S*4",
     QKV(f32, B, S, S, 4, 2, 24, 12) ", %5 \"m\" : bool[B, 1, S, 1]", "%4 \"y\", %6 \"l\"",
     "%4, %6 = attention(%1, %2, %3, %5) " ATT("0x1p-2", "0x0p+0",
                                               true) " : f32[B, S, 4, 12], f32[B, S, 4]\n",
     1e-5},
    {"window", "B=2 S=100 T=170", "B*S*4",
     QKV(f32, B, S, T, 4, 2, 24, 12) ", %5 \"p\" : bool[B, T]", "%4 \"y\"",
     "%6 = iota() {dtype = i64, shape = [B, 1, S, T], axis = 2} : i64[B, 1, S, T]\n"
     "%7 = iota() {dtype = i64, shape = [B, 1, S, T], axis = 3} : i64[B, 1, S, T]\n"
     "%8 = size() {value = T - S} : i64[]\n%9 = broadcast(%8) {shape = [B, 1, S, T], map = []} : "
     "i64[B, 1, S, T]\n"
     "%10 = add(%6, %9) : i64[B, 1, S, T]\n%11 = le(%7, %10) : bool[B, 1, S, T]\n%12 = sub(%10, "
     "%7) : i64[B, 1, S, T]\n"
     "%13 = const() {data = i64[] [16]} : i64[]\n%14 = broadcast(%13) {shape = [B, 1, S, T], map = "
     "[]} : i64[B, 1, S, T]\n"
     "%15 = lt(%12, %14) : bool[B, 1, S, T]\n%16 = and(%11, %15) : bool[B, 1, S, T]\n"
     "%17 = broadcast(%5) {shape = [B, 1, S, T], map = [0, 3]} : bool[B, 1, S, T]\n%18 = and(%16, "
     "%17) : bool[B, 1, S, T]\n"
     "%4 = attention(%1, %2, %3, %18) " ATT("0x1p-2", "0x0p+0", false) " : f32[B, S, 4, 12]\n",
     1e-5},
    {"moved operands", "B=2 P=11 S=6", "B*S*4",
     "%1 \"q\" : f32[B, 4, S, 24], %2 \"k\" : f32[B, 2, P, 24], %3 \"n\" : f32[B, 2, S, 24], %4 "
     "\"v\" : f32[B, P + S, 24]",
     "%10 \"y\"",
     "%5 = transpose(%1) {perm = [0, 2, 1, 3]} : f32[B, S, 4, 24]\n%6 = concat(%2, %3) {axis = 2} "
     ": f32[B, 2, P + S, 24]\n"
     "%7 = transpose(%6) {perm = [0, 2, 1, 3]} : f32[B, P + S, 2, 24]\n%8 = reshape(%4) {shape = "
     "[B, P + S, 2, 12]} : f32[B, P + S, 2, 12]\n"
     "%9 = attention(%5, %7, %8) " ATT(
         "0x1p-2", "0x0p+0",
         true) " : f32[B, S, 4, 12]\n%10 = reshape(%9) {shape = [B, S, 48]} : f32[B, S, 48]\n",
     1e-5},
    {"nan", "B=2 S=20", "B*S*2",
     "%1 \"nan\" : f32[B, S, 2, 3], %2 \"k\" : f32[B, S, 2, 3], %3 \"v\" : f32[B, S, 2, 8]",
     "%4 \"y\"", "%4 = attention(%1, %2, %3) " ATT("0x1p-2", "0x0p+0", true) " : f32[B, S, 2, 8]\n",
     1e-5},
};

#define TABLE_TEST(table)                                                           \
  START_TEST(test_##table) { emit_check_all(table, sizeof table / sizeof *table); } \
  END_TEST
TABLE_TEST(pointwise)
TABLE_TEST(moves)
TABLE_TEST(reduces)
TABLE_TEST(ropes)
TABLE_TEST(attentions)

UNIT_MAIN("emit", test_pointwise, test_moves, test_reduces, test_ropes, test_attentions)
