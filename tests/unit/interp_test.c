/* The interpreter: every primitive against values worked out by hand. */
#include "ir/builder.h"
#include "tests/unit/opcase.h"

static const char *const leaf_cases[] = {
    "size() value=7 -> i64[] 7",
    "size() value=-2 -> i64[] -2",
    "iota() dtype=i64 shape=2,3 axis=1 -> i64[2,3] 0 1 2 0 1 2",
    "iota() dtype=f32 shape=2,3 axis=0 -> f32[2,3] 0 0 0 1 1 1",
    "iota() dtype=i32 shape=0,3 axis=1 -> i32[0,3]",
    "random() dtype=f32 shape=0 -> f32[0]",
};

static const char *const unary_cases[] = {
    "neg(f32[3] 1 -0 nan) -> f32[3] -1 0 nan",
    "neg(i8[2] -128 5) -> i8[2] -128 -5",
    "neg(f32[]  2) -> f32[] -2",
    "neg(f32[0,2]) -> f32[0,2]",
    "abs(f32[3] -2 -inf nan) -> f32[3] 2 inf nan",
    "abs(i64[2] -9223372036854775808 -3) -> i64[2] -9223372036854775808 3",
    "abs(u64[1] 18446744073709551615) -> u64[1] 18446744073709551615",
    "sign(f32[4] -2 0 7 nan) -> f32[4] -1 0 1 nan",
    "sign(i32[3] -2 0 7) -> i32[3] -1 0 1",
    "exp(f32[3] 0 1 -inf) -> f32[3] 1 2.718281828 0",
    "exp(f64[1] 1) -> f64[1] 2.718281828459045",
    "exp(i32[1] 1) ! expected floats, got i32",
    "expm1(f32[2] 0 1e-8) -> f32[2] 0 1e-8",
    "log(f32[3] 1 0 -1) -> f32[3] 0 -inf nan",
    "log1p(f32[2] 0 1e-8) -> f32[2] 0 1e-8",
    "sqrt(f32[3] 4 0 -1) -> f32[3] 2 0 nan",
    "rsqrt(f32[2] 4 0) -> f32[2] 0.5 inf",
    "recip(f32[2] 4 inf) -> f32[2] 0.25 0",
    "sin(f32[2] 0 1) -> f32[2] 0 0.841470985",
    "cos(f32[2] 0 1) -> f32[2] 1 0.540302306",
    "tan(f32[2] 0 1) -> f32[2] 0 1.557407725",
    "asin(f32[2] 1 2) -> f32[2] 1.570796327 nan",
    "acos(f32[1] 0) -> f32[1] 1.570796327",
    "atan(f32[1] 1) -> f32[1] 0.785398163",
    "sinh(f32[1] 1) -> f32[1] 1.175201194",
    "cosh(f32[1] 1) -> f32[1] 1.543080635",
    "asinh(f32[1] 1) -> f32[1] 0.881373587",
    "acosh(f32[2] 2 0) -> f32[2] 1.316957897 nan",
    "atanh(f32[2] 0.5 1) -> f32[2] 0.549306144 inf",
    "tanh(f32[2] 1 -inf) -> f32[2] 0.761594156 -1",
    "sigmoid(f32[4] 0 1 -1000 1000) -> f32[4] 0.5 0.731058579 0 1",
    "erf(f32[1] 1) -> f32[1] 0.842700793",
    "floor(f32[2] 1.5 -1.5) -> f32[2] 1 -2",
    "ceil(f32[2] 1.5 -1.5) -> f32[2] 2 -1",
    "round(f32[4] 0.5 1.5 2.5 -0.5) -> f32[4] 0 2 2 0",
    "not(bool[2] 0 1) -> bool[2] 1 0",
    "not(u8[2] 0 5) -> u8[2] 255 250",
    "isnan(f32[3] nan inf 0) -> bool[3] 1 0 0",
    "isinf(f32[4] nan inf -inf 0) -> bool[4] 0 1 1 0",
};

static const char *const binary_cases[] = {
    "add(f32[2] 1 16777216; f32[2] 2 1) -> f32[2] 3 16777216",
    "add(bf16[1] 256; bf16[1] 1) -> bf16[1] 256",
    "add(i32[1] 2147483647; i32[1] 1) -> i32[1] -2147483648",
    "add(f32[]  1; f32[] 2) -> f32[] 3",
    "sub(u8[1] 0; u8[1] 1) -> u8[1] 255",
    "mul(i64[1] 4611686018427387904; i64[1] 2) -> i64[1] -9223372036854775808",
    "mul(f32[1] inf; f32[1] 0) -> f32[1] nan",
    "div(f32[2] 1 0; f32[2] 0 0) -> f32[2] inf nan",
    "div(i32[4] 7 -7 5 -2147483648; i32[4] 2 2 0 -1) -> i32[4] 3 -3 0 -2147483648",
    "div(u64[1] 18446744073709551615; u64[1] 2) -> u64[1] 9223372036854775807",
    "pow(f32[3] 2 -1 0; f32[3] 0.5 2 0) -> f32[3] 1.414213562 1 1",
    "pow(i64[4] 3 2 -1 2; i64[4] 4 -1 -3 0) -> i64[4] 81 0 -1 1",
    "mod(i64[4] 7 -7 7 -7; i64[4] 3 3 -3 -3) -> i64[4] 1 2 -2 -1",
    "mod(f32[3] 7 -7 -6; f32[3] 3 3 3) -> f32[3] 1 2 0",
    "mod(i64[2] 7 -9223372036854775808; i64[2] 0 -1) -> i64[2] 0 0",
    "rem(i64[4] 7 -7 7 -7; i64[4] 3 3 -3 -3) -> i64[4] 1 -1 1 -1",
    "rem(f32[2] -7 7; f32[2] 3 -3) -> f32[2] -1 1",
    "max(f32[4] 1 nan 2 -inf; f32[4] 2 1 nan -inf) -> f32[4] 2 nan nan -inf",
    "max(u64[1] 18446744073709551615; u64[1] 1) -> u64[1] 18446744073709551615",
    "min(f32[3] 1 nan 2; f32[3] 2 1 nan) -> f32[3] 1 nan nan",
    "min(i32[1] -1; i32[1] 1) -> i32[1] -1",
    "and(bool[4] 0 0 1 1; bool[4] 0 1 0 1) -> bool[4] 0 0 0 1",
    "or(bool[4] 0 0 1 1; bool[4] 0 1 0 1) -> bool[4] 0 1 1 1",
    "xor(bool[4] 0 0 1 1; bool[4] 0 1 0 1) -> bool[4] 0 1 1 0",
    "and(i32[1] 12; i32[1] 10) -> i32[1] 8",
    "eq(f32[3] 1 nan 0; f32[3] 1 nan -0) -> bool[3] 1 0 1",
    "ne(f32[3] 1 nan 0; f32[3] 1 nan 1) -> bool[3] 0 1 1",
    "lt(f32[3] 1 nan 1; f32[3] 2 1 1) -> bool[3] 1 0 0",
    "lt(u64[1] 1; u64[1] 18446744073709551615) -> bool[1] 1",
    "le(i64[3] 1 2 3; i64[3] 2 2 2) -> bool[3] 1 1 0",
    "gt(f32[2] nan 2; f32[2] 1 1) -> bool[2] 0 1",
    "ge(bool[2] 0 1; bool[2] 1 1) -> bool[2] 0 1",
    "select(bool[3] 1 0 1; f32[3] 1 2 3; f32[3] 4 5 nan) -> f32[3] 1 5 3",
    "select(bool[] 0; i64[] 1; i64[] 9007199254740993) -> i64[] 9007199254740993",
    "cast(f32[5] 1.9 -1.9 nan 300 -300) dtype=i8 -> i8[5] 1 -1 0 127 -128",
    "cast(f32[3] -1 inf nan) dtype=u64 -> u64[3] 0 18446744073709551615 0",
    "cast(f32[3] 0 0.5 nan) dtype=bool -> bool[3] 0 1 1",
    "cast(i64[2] 3 256) dtype=bool -> bool[2] 1 1",
    "cast(i64[2] 300 -1) dtype=u8 -> u8[2] 44 255",
    "cast(bool[2] 0 1) dtype=f32 -> f32[2] 0 1",
    "cast(f32[2] 1.00390625 257) dtype=bf16 -> bf16[2] 1 256",
    "cast(i64[1] 9007199791611905) dtype=f32 -> f32[1] 9007200328482816",
    "cast(u64[1] 18446744073709551615) dtype=f64 -> f64[1] 18446744073709551616",
};

static const char *const reduce_cases[] = {
    "reduce_sum(f32[2,3] 1 2 3 4 5 6) axes=1 -> f32[2] 6 15",
    "reduce_sum(f32[2,3] 1 2 3 4 5 6) axes=0 -> f32[3] 5 7 9",
    "reduce_sum(f32[2,3] 1 2 3 4 5 6) axes=0,1 -> f32[] 21",
    "reduce_sum(f32[2] 1 2) -> f32[2] 1 2",
    "reduce_sum(f32[2,0]) axes=1 -> f32[2] 0 0",
    "reduce_sum(f32[0,2]) axes=1 -> f32[0]",
    "reduce_sum(f32[] 3) -> f32[] 3",
    "reduce_sum(i8[2] 100 100) axes=0 -> i8[] -56",
    "reduce_sum(f32[3] 1e8 1 -1e8) axes=0 -> f32[] 1",
    "reduce_sum(i64[2,1,2] 1 2 3 4) axes=0,1 -> i64[2] 4 6",
    "reduce_prod(f32[3] 2 3 4) axes=0 -> f32[] 24",
    "reduce_prod(i64[0]) axes=0 -> i64[] 1",
    "reduce_max(f32[2,2] 1 nan 2 -inf) axes=1 -> f32[2] nan 2",
    "reduce_max(f32[0]) axes=0 -> f32[] -inf",
    "reduce_max(i32[0]) axes=0 -> i32[] -2147483648",
    "reduce_max(bool[2,2] 0 0 0 1) axes=1 -> bool[2] 0 1",
    "reduce_max(u64[2] 1 18446744073709551615) axes=0 -> u64[] 18446744073709551615",
    "reduce_min(f32[0]) axes=0 -> f32[] inf",
    "reduce_min(i8[0]) axes=0 -> i8[] 127",
    "reduce_min(u64[0]) axes=0 -> u64[] 18446744073709551615",
    "reduce_min(f32[3] 3 nan 1) axes=0 -> f32[] nan",
    "reduce_min(bool[2,2] 1 1 0 1) axes=1 -> bool[2] 1 0",
    "cumsum(f32[2,3] 1 2 3 4 5 6) axis=1 -> f32[2,3] 1 3 6 4 9 15",
    "cumsum(i64[3,2] 1 2 3 4 5 6) axis=0 exclusive=1 -> i64[3,2] 0 0 1 2 4 6",
    "cumsum(f32[3] 1 2 3) axis=0 reverse=1 -> f32[3] 6 5 3",
    "cumsum(f32[3] 1 inf 3) axis=0 exclusive=1 -> f32[3] 0 1 inf",
    "cumsum(f32[3] 1 2 3) axis=0 reverse=1 exclusive=1 -> f32[3] 5 3 0",
    "cumsum(i32[0]) axis=0 -> i32[0]",
    "topk(f32[4] 3 nan 1 3) k=3 axis=0 largest=1 -> f32[3] nan 3 3; i64[3] 1 0 3",
    "topk(f32[4] 3 nan 1 3) k=4 axis=0 largest=0 -> f32[4] 1 3 3 nan; i64[4] 2 0 3 1",
    "topk(f32[3,2] 1 2 3 4 5 0) k=1 axis=0 largest=1 -> f32[1,2] 5 4; i64[1,2] 2 1",
    "topk(i64[2,3] 1 1 1 3 2 1) k=2 axis=1 largest=1 -> i64[2,2] 1 1 3 2; i64[2,2] 0 1 0 1",
    "topk(u64[2] 1 18446744073709551615) k=1 axis=0 largest=0 -> u64[1] 1; i64[1] 0",
    "topk(f32[4] 0 -0 -inf inf) k=4 axis=0 largest=0 -> f32[4] -inf 0 0 inf; i64[4] 2 0 1 3",
    "topk(f32[2,0]) k=0 axis=1 -> f32[2,0]; i64[2,0]",
    "topk(f32[0,2] ) k=1 axis=1 -> f32[0,1]; i64[0,1]",
};

static const char *const move_cases[] = {
    "reshape(f32[2,3] 1 2 3 4 5 6) shape=3,2 -> f32[3,2] 1 2 3 4 5 6",
    "reshape(f32[1] 5) -> f32[] 5",
    "reshape(f32[0,3]) shape=3,0 -> f32[3,0]",
    "transpose(f32[2,3] 1 2 3 4 5 6) perm=1,0 -> f32[3,2] 1 4 2 5 3 6",
    "transpose(i64[1,2,2] 1 2 3 4) perm=2,0,1 -> i64[2,1,2] 1 3 2 4",
    "transpose(f32[] 1) -> f32[] 1",
    "broadcast(f32[2] 1 2) shape=2,3 map=0 -> f32[2,3] 1 1 1 2 2 2",
    "broadcast(f32[2] 1 2) shape=3,2 map=1 -> f32[3,2] 1 2 1 2 1 2",
    "broadcast(f32[1,2] 1 2) shape=2,2 map=0,1 -> f32[2,2] 1 2 1 2",
    "broadcast(f32[] 7) shape=2 -> f32[2] 7 7",
    "broadcast(f32[1] 7) shape=0 map=0 -> f32[0]",
    "slice(f32[5] 0 1 2 3 4) start=1 size=2 step=2 -> f32[2] 1 3",
    "slice(f32[2,3] 0 1 2 3 4 5) start=1,0 size=1,2 step=1,2 -> f32[1,2] 3 5",
    "slice(f32[2] 0 1) start=2 size=0 step=1 -> f32[0]",
    "slice(f32[2] 0 1) start=1 size=2 step=1 ! axis 0",
    "pad(f32[2] 1 2; f32[] 9) lo=1 hi=2 -> f32[5] 9 1 2 9 9",
    "pad(i64[1,2] 1 2; i64[] 0) lo=1,0 hi=0,1 -> i64[2,3] 0 0 0 1 2 0",
    "pad(f32[0]; f32[] 9) lo=1 hi=0 -> f32[1] 9",
    "concat(f32[1,2] 1 2; f32[2,2] 3 4 5 6) axis=0 -> f32[3,2] 1 2 3 4 5 6",
    "concat(f32[2,1] 1 2; f32[2,0]; f32[2,2] 3 4 5 6) axis=1 -> f32[2,3] 1 3 4 2 5 6",
    "reverse(f32[2,2] 1 2 3 4) axes=1 -> f32[2,2] 2 1 4 3",
    "reverse(f32[2,2] 1 2 3 4) axes=0,1 -> f32[2,2] 4 3 2 1",
    "reverse(f32[0]) axes=0 -> f32[0]",
};

static const char *const index_cases[] = {
    "gather(f32[3] 1 2 3; i64[2] 2 -3) axis=0 -> f32[2] 3 1",
    "gather(f32[2,3] 1 2 3 4 5 6; i32[] 1) axis=1 -> f32[2] 2 5",
    "gather(f32[2,2] 1 2 3 4; i64[1,2] 1 0) axis=0 -> f32[1,2,2] 3 4 1 2",
    "gather(f32[3] 1 2 3; i64[0]) axis=0 -> f32[0]",
    "gather(f32[3] 1 2 3; i64[1] 3) axis=0 ! index 3 is out of range for axis 0 of size 3",
    "gather(f32[3] 1 2 3; i64[1] -4) axis=0 ! index -4 is out of range",
    "gather(f32[0]; i64[1] 0) axis=0 ! out of range",
    "gather_elements(f32[2,2] 1 2 3 4; i64[2,1] 1 0) axis=1 -> f32[2,1] 2 3",
    "gather_elements(f32[2,2] 1 2 3 4; i64[1,2] 1 -2) axis=0 -> f32[1,2] 3 2",
    "gather_elements(f32[2] 1 2; i64[1] 2) axis=0 ! index 2 is out of range",
    "gather_elements(f32[1,2] 1 2; i64[2,1] 0 0) axis=1 ! axis 0 of the indices is 2",
    "gather_nd(f32[2,2] 1 2 3 4; i64[2,2] 0 1 1 -2) -> f32[2] 2 3",
    "gather_nd(f32[2,2] 1 2 3 4; i64[1,1] 1) -> f32[1,2] 3 4",
    "gather_nd(f32[2,2] 1 2 3 4; i64[2,1] 1 0) batch_dims=1 -> f32[2] 2 3",
    "gather_nd(f32[2,2] 1 2 3 4; i64[1,2] 0 2) ! index 2 is out of range for axis 1 of size 2",
    "scatter_elements(f32[3] 1 2 3; i64[3] 0 2 0; f32[3] 7 8 9) axis=0 -> f32[3] 9 2 8",
    "scatter_elements(f32[3] 1 2 3; i64[2] 0 0; f32[2] 7 8) axis=0 reduction=1 -> f32[3] 16 2 3",
    ("scatter_elements(i64[2,2] 1 2 3 4; i64[1,2] 1 0; i64[1,2] 5 6) axis=0 reduction=2"
     " -> i64[2,2] 1 12 15 4"),
    "scatter_elements(f32[2] 1 2; i64[2] 0 1; f32[2] nan 1) axis=0 reduction=3 -> f32[2] nan 2",
    "scatter_elements(f32[2] 1 2; i64[2] 0 -1; f32[2] 0 3) axis=0 reduction=4 -> f32[2] 0 2",
    "scatter_elements(f32[2] 1 2; i64[1] 2; f32[1] 0) axis=0 ! index 2 is out of range",
    "scatter_nd(f32[2,2] 1 2 3 4; i64[1,1] 1; f32[1,2] 7 8) -> f32[2,2] 1 2 7 8",
    "scatter_nd(f32[2] 1 2; i64[2,1] 0 0; f32[2] 5 6) -> f32[2] 6 2",
    "scatter_nd(f32[2] 1 2; i64[2,1] 0 0; f32[2] 5 6) reduction=1 -> f32[2] 12 2",
    "scatter_nd(f32[2] 1 2; i64[1,1] 5; f32[1] 5) ! index 5 is out of range",
};

static const char *const dot_cases[] = {
    "dot(f32[2,2] 1 2 3 4; f32[2,2] 5 6 7 8) lhs_contract=1 rhs_contract=0"
    " -> f32[2,2] 19 22 43 50",
    "dot(f32[2,2] 1 2 3 4; f32[2,2] 5 6 7 8) lhs_contract=1 rhs_contract=1"
    " -> f32[2,2] 17 23 39 53",
    "dot(f32[5,1] 1 2 3 4 5; f32[2,1] 1 2) lhs_contract=1 rhs_contract=1"
    " -> f32[5,2] 1 2 2 4 3 6 4 8 5 10",
    "dot(f32[2] 1 2; f32[2] 3 4) lhs_contract=0 rhs_contract=0 -> f32[] 11",
    "dot(f32[2] 1 2; f32[2] 3 4) -> f32[2,2] 3 4 6 8",
    "dot(f32[2,1,2] 1 2 3 4; f32[2,2,1] 5 6 7 8) lhs_batch=0 rhs_batch=0 lhs_contract=2"
    " rhs_contract=1 -> f32[2,1,1] 17 53",
    "dot(f32[2,2] 1 2 3 4; f32[2,2] 1 1 2 2) lhs_batch=1 rhs_batch=0 lhs_contract=0"
    " rhs_contract=1 -> f32[2] 4 12",
    "dot(f32[2,0]; f32[0,2]) lhs_contract=1 rhs_contract=0 -> f32[2,2] 0 0 0 0",
    "dot(f32[0,2]; f32[2,2] 1 2 3 4) lhs_contract=1 rhs_contract=0 -> f32[0,2]",
    "dot(i8[1,2] 100 100; i8[2,1] 1 1) lhs_contract=1 rhs_contract=0 -> i8[1,1] -56",
    "dot(f32[1,5] 1 1 1 1 1; f32[5,6] 1 2 3 4 5 6 1 2 3 4 5 6 1 2 3 4 5 6 1 2 3 4 5 6 1 2 3 4 5 6)"
    " lhs_contract=1 rhs_contract=0 -> f32[1,6] 5 10 15 20 25 30",
    "dot(f32[1,2] 1 2; f32[5,2] 1 1 2 2 3 3 4 4 5 5) lhs_contract=1 rhs_contract=1"
    " -> f32[1,5] 3 6 9 12 15",
    "dot(f32[1,2] nan 1; f32[2,1] 0 1) lhs_contract=1 rhs_contract=0 -> f32[1,1] nan",
    "conv(f32[1,1,3] 1 2 3; f32[1,1,2] 1 10) strides=1 pads=0,0 dilations=1 -> f32[1,1,2] 21 32",
    "conv(f32[1,1,3] 1 2 3; f32[1,1,2] 1 10) strides=2 pads=1,1 dilations=1 -> f32[1,1,2] 10 32",
    "conv(f32[1,1,3] 1 2 3; f32[1,1,2] 1 10) strides=1 pads=0,0 dilations=2 -> f32[1,1,1] 31",
    "conv(f32[1,2,2] 1 2 3 4; f32[2,1,1] 2 3) strides=1 pads=0,0 dilations=1 groups=2"
    " -> f32[1,2,2] 2 4 9 12",
    "conv(f32[1,1,2,2] 1 2 3 4; f32[1,1,2,2] 1 1 1 1) strides=1,1 pads=0,0,0,0 dilations=1,1"
    " -> f32[1,1,1,1] 10",
    "conv(i32[1,1,2] 1 2; i32[1,1,1] 3) strides=1 pads=0,0 dilations=1 -> i32[1,1,2] 3 6",
};

#define COUNT(a) (sizeof(a) / sizeof *(a))
static const struct {
  const char *const *cases;
  size_t n;
} tables[] = {
    {leaf_cases, COUNT(leaf_cases)},     {unary_cases, COUNT(unary_cases)},
    {binary_cases, COUNT(binary_cases)}, {reduce_cases, COUNT(reduce_cases)},
    {move_cases, COUNT(move_cases)},     {index_cases, COUNT(index_cases)},
    {dot_cases, COUNT(dot_cases)},
};

/* ---- ops that a line of text cannot hold -------------------------------------------------- */

static moec_graph *add_fn(moec_module *m, const char *name) {
  return moec_fn_get(m, moec_fn_add(m, name));
}

static moec_type vector(moec_module *m, moec_dtype t, moec_dim d) {
  return moec_type_make(m, t, 1, &d);
}

static moec_tensor tensor(const char *text) {
  moec_tensor t;
  opcase_tensor(&text, &t);
  return t;
}

/* Runs main on inputs as text, NULL at the end, and compares its outputs. */
static void expect(const moec_module *m, const char *const *in, const char *const *want) {
  moec_tensor inputs[OPCASE_MAX], got[OPCASE_MAX];
  size_t n_in = 0, n_out = 0;
  for (; in[n_in]; n_in++) inputs[n_in] = tensor(in[n_in]);
  while (want[n_out]) n_out++;
  UNIT_OK(moec_interp_run(m, (moec_fn){1}, inputs, n_in, got, n_out, NULL));
  for (uint32_t i = 0; i < n_out; i++) {
    moec_tensor t = tensor(want[i]);
    opcase_compare(want[i], i, &got[i], &t, 1e-6);
    moec_tensor_fini(&t);
    moec_tensor_fini(&got[i]);
  }
  for (size_t i = 0; i < n_in; i++) moec_tensor_fini(&inputs[i]);
}
#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})
#define NOTHING ((const char *const[]){NULL})

static void check_param(void) {
  static const float stored[6] = {1, 2, 3, 4, 5, 6};
  moec_module *m = moec_module_create();
  moec_builder b = moec_builder_on(add_fn(m, "main"));
  moec_dim dims[2] = {moec_dim_const(m, 3), moec_dim_const(m, 2)};
  moec_piece piece = {.file = UINT32_MAX,
                      .inline_bytes = stored,
                      .dtype = MOEC_F32,
                      .rank = 2,
                      .shape = {2, 3},
                      .perm = {1, 0}};
  moec_param_info info = {.type = moec_type_make(m, MOEC_F32, 2, dims),
                          .storage = MOEC_F32,
                          .n_pieces = 1,
                          .pieces = &piece};
  moec_attrs_PARAM a = {.param = moec_param_add(m, &info)};
  moec_add_output(b.g, "w", moec_b_op(&b, MOEC_OP_PARAM, &a, 0, NULL, 1));
  UNIT_OK(moec_builder_end(&b));
  expect(m, NOTHING, LIST("f32[3,2] 1 4 2 5 3 6"));
  moec_module_destroy(m);
}

static void check_const(void) {
  static const uint8_t bytes[3] = {1, 255, 3};
  moec_module *m = moec_module_create();
  moec_builder b = moec_builder_on(add_fn(m, "main"));
  moec_value c = moec_b_const(&b, vector(m, MOEC_I8, moec_dim_const(m, 3)), bytes, 3);
  moec_add_output(b.g, "c", c);
  moec_add_output(b.g, "again", c);
  moec_add_output(b.g, "empty", moec_b_const(&b, vector(m, MOEC_F32, moec_dim_const(m, 0)), "", 0));
  UNIT_OK(moec_builder_end(&b));
  expect(m, NOTHING, LIST("i8[3] 1 -1 3", "i8[3] 1 -1 3", "f32[0]"));
  moec_module_destroy(m);
}

/* main calls double(x) = x + x twice. */
static void check_calls(moec_op op) {
  moec_module *m = moec_module_create();
  moec_graph *g = add_fn(m, "main");
  moec_fn fn = moec_fn_add(m, "double");
  moec_type t = vector(m, MOEC_F32, moec_dim_symbol(m, "n"));
  moec_builder b = moec_builder_on(moec_fn_get(m, fn));
  moec_value x = moec_add_input(b.g, "x", t);
  moec_add_output(b.g, "y", moec_b_binary(&b, MOEC_OP_ADD, x, x));
  moec_add_output(b.g, "x", x);
  UNIT_OK(moec_builder_end(&b));
  b = moec_builder_on(g);
  moec_attrs_CALL a = {.fn = fn};
  moec_attrs_FUSED f = {.fn = fn, .rows = moec_dim_symbol(m, "n")};
  const void *attrs = op == MOEC_OP_CALL ? (const void *)&a : &f;
  x = moec_add_input(g, "x", t);
  moec_value y = moec_b_op(&b, op, attrs, 1, &x, 2), z = moec_b_op(&b, op, attrs, 1, &y, 2);
  moec_add_output(g, "z", z);
  moec_add_output(g, "y", moec_out(g, moec_def(g, z), 1));
  UNIT_OK(moec_builder_end(&b));
  expect(m, LIST("f32[2] 1 2"), LIST("f32[2] 4 8", "f32[2] 2 4"));
  moec_module_destroy(m);
}
static void check_call(void) { check_calls(MOEC_OP_CALL); }
static void check_fused(void) { check_calls(MOEC_OP_FUSED); }

static void check_if(void) {
  moec_module *m = moec_module_create();
  moec_graph *g = add_fn(m, "main");
  moec_type t = moec_type_scalar(m, MOEC_F32);
  moec_fn fns[2];
  for (int i = 0; i < 2; i++) {
    fns[i] = moec_fn_add(m, i ? "else" : "then");
    moec_builder b = moec_builder_on(moec_fn_get(m, fns[i]));
    moec_value x = moec_add_input(b.g, "x", t);
    moec_add_output(b.g, "y", i ? x : moec_b_unary(&b, MOEC_OP_NEG, x));
    UNIT_OK(moec_builder_end(&b));
  }
  moec_builder b = moec_builder_on(g);
  moec_attrs_IF a = {.then_fn = fns[0], .else_fn = fns[1]};
  moec_value c = moec_add_input(g, "c", moec_type_scalar(m, MOEC_BOOL));
  moec_value in[2] = {c, moec_add_input(g, "x", t)};
  moec_add_output(g, "y", moec_b_op(&b, MOEC_OP_IF, &a, 2, in, 1));
  UNIT_OK(moec_builder_end(&b));
  expect(m, LIST("bool[] 1", "f32[] 3"), LIST("f32[] -3"));
  expect(m, LIST("bool[] 0", "f32[] 3"), LIST("f32[] 3"));
  moec_module_destroy(m);
}

/* x doubles each round while it is below the captured limit; scanned: x + the round's number. */
static moec_module *doubling_loop(bool scanned) {
  moec_module *m = moec_module_create();
  moec_graph *g = add_fn(m, "main");
  moec_type i64 = moec_type_scalar(m, MOEC_I64), truth = moec_type_scalar(m, MOEC_BOOL);
  moec_fn body = moec_fn_add(m, "body");
  moec_builder b = moec_builder_on(moec_fn_get(m, body));
  moec_value i = moec_add_input(b.g, "i", i64);
  moec_add_input(b.g, "c", truth);
  moec_value x = moec_add_input(b.g, "x", i64), limit = moec_add_input(b.g, "limit", i64);
  moec_value twice = moec_b_binary(&b, MOEC_OP_ADD, x, x);
  moec_add_output(b.g, "c", moec_b_binary(&b, MOEC_OP_LT, twice, limit));
  moec_add_output(b.g, "x", twice);
  if (scanned) moec_add_output(b.g, "s", moec_b_binary(&b, MOEC_OP_ADD, x, i));
  UNIT_OK(moec_builder_end(&b));
  b = moec_builder_on(g);
  moec_attrs_LOOP a = {.body = body, .carried = 1, .trips = moec_dim_const(m, 3)};
  moec_value in[4];
  static const char *const names[4] = {"trip", "c", "x", "limit"};
  for (int k = 0; k < 4; k++) in[k] = moec_add_input(g, names[k], k == 1 ? truth : i64);
  moec_value y = moec_b_op(&b, MOEC_OP_LOOP, &a, 4, in, scanned ? 2 : 1);
  moec_add_output(g, "x", y);
  if (scanned) moec_add_output(g, "s", moec_out(g, moec_def(g, y), 1));
  UNIT_OK(moec_builder_end(&b));
  return m;
}

static void check_loop(void) {
  moec_module *m = doubling_loop(false);
  expect(m, LIST("i64[] 9", "bool[] 1", "i64[] 1", "i64[] 10"), LIST("i64[] 16"));
  expect(m, LIST("i64[] 2", "bool[] 1", "i64[] 1", "i64[] 10"), LIST("i64[] 4"));
  expect(m, LIST("i64[] 9", "bool[] 0", "i64[] 5", "i64[] 10"), LIST("i64[] 5"));
  moec_module_destroy(m);
  m = doubling_loop(true);
  expect(m, LIST("i64[] 3", "bool[] 1", "i64[] 1", "i64[] 99"), LIST("i64[] 8", "i64[3] 1 3 6"));
  moec_tensor in[4] = {tensor("i64[] 9"), tensor("bool[] 1"), tensor("i64[] 1"),
                       tensor("i64[] 99")},
              out[2];
  UNIT_FAILS(moec_interp_run(m, (moec_fn){1}, in, 4, out, 2, NULL), MOEC_INVALID_ARGUMENT,
             "round 3 does not fit");
  *(int64_t *)in[0].data = 2;
  UNIT_FAILS(moec_interp_run(m, (moec_fn){1}, in, 4, out, 2, NULL), MOEC_INVALID_ARGUMENT,
             "expected 3 rounds, got 2");
  for (int i = 0; i < 4; i++) moec_tensor_fini(&in[i]);
  moec_module_destroy(m);
}

static moec_tensor draw(moec_dtype t, int64_t kind, int64_t seed) {
  moec_module *m = moec_module_create();
  moec_builder b = moec_builder_on(add_fn(m, "main"));
  moec_dim n = moec_dim_const(m, 4096);
  moec_attrs_RANDOM a = {.dtype = t, .shape = {1, &n}, .kind = kind, .seed = seed};
  moec_tensor out;
  moec_add_output(b.g, "r", moec_b_op(&b, MOEC_OP_RANDOM, &a, 0, NULL, 1));
  UNIT_OK(moec_builder_end(&b));
  UNIT_OK(moec_interp_run(m, (moec_fn){1}, NULL, 0, &out, 1, NULL));
  moec_module_destroy(m);
  return out;
}

static void check_random(void) {
  static const moec_dtype types[] = {MOEC_F32, MOEC_BF16, MOEC_F16, MOEC_F64};
  for (size_t k = 0; k < 2 * COUNT(types); k++) {
    moec_dtype t = types[k / 2];
    moec_tensor x = draw(t, k % 2, 7), same = draw(t, k % 2, 7), other = draw(t, k % 2, 8);
    ck_assert_mem_eq(x.data, same.data, moec_tensor_bytes(&x));
    ck_assert(memcmp(x.data, other.data, moec_tensor_bytes(&x)) != 0);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < 4096; i++) {
      double v = moec_load_f64(t, x.data, i);
      if (k % 2 == 0) UNIT_TRUE(v >= 0 && v < 1);
      sum += v, squares += v * v;
    }
    ck_assert(fabs(sum / 4096 - (k % 2 ? 0 : 0.5)) < 0.05);
    ck_assert(fabs(squares / 4096 - (k % 2 ? 1 : 1.0 / 3)) < 0.05);
    moec_tensor_fini(&x);
    moec_tensor_fini(&same);
    moec_tensor_fini(&other);
  }
}

static const struct {
  moec_op op;
  void (*check)(void);
} specials[] = {
    {MOEC_OP_PARAM, check_param},   {MOEC_OP_CONST, check_const}, {MOEC_OP_CALL, check_call},
    {MOEC_OP_FUSED, check_fused},   {MOEC_OP_IF, check_if},       {MOEC_OP_LOOP, check_loop},
    {MOEC_OP_RANDOM, check_random},
};

/* Every op but composites, which tests/unit/body_test.c covers, has a case. */
START_TEST(test_every_op) {
  bool covered[MOEC_OP_COUNT] = {false};
  for (size_t t = 0; t < COUNT(tables); t++)
    for (size_t i = 0; i < tables[t].n; i++) covered[opcase_run(tables[t].cases[i], NULL)] = true;
  for (size_t i = 0; i < COUNT(specials); i++) {
    specials[i].check();
    covered[specials[i].op] = true;
  }
  for (int op = 1; op < MOEC_OP_COUNT; op++)
    if (!covered[op] && moec_op_cls((moec_op)op) < MOEC_CLASS_COMPOSITE)
      ck_abort_msg("op %s has no case", moec_op_get((moec_op)op)->text);
}
END_TEST

UNIT_MAIN("interp", test_every_op)
