/* What a function of the model is follows from what it computes, never from its name. */
#include "ir/half.h"

#include "tests/unit/unit.h"

#define IN2 "(%%1 \"x\" : f32[4, 4], %%2 \"w\" : f32[4, 4])"
#define TYPE " : f32[4, 4]\n"
#define DOT " {lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0]}" TYPE

/* The second input is a parameter's value where |computed| is false. */
static moec_half half_of(const char *body, const char *result, bool computed) {
  char text[4096];
  snprintf(text, sizeof text, "module \"m\" {\n}\nfn @\"mlp0\"" IN2 " -> (%s \"y\") {\n%s}\n%s", result, body,
           "fn @\"k0\"(%1 \"q\" : f32[1, 2, 2, 4]) -> (%2 \"o\") {\n"
           "  %2 = attention(%1, %1, %1, _, _) {scale = 0x1p-1, softcap = 0x0p+0, causal = true} : f32[1, 2, 2, 4]\n"
           "}\n");
  moec_module *m = NULL;
  UNIT_OK(moec_parse(text, &m));
  UNIT_OK(moec_verify(m));
  moec_half half = moec_half_of(moec_main(m), (const bool[]){true, computed});
  moec_module_destroy(m);
  return half;
}

START_TEST(products) {
  static const char once[] = "  %3 = dot(%1, %2)" DOT;
  static const char twice[] = "  %3 = dot(%1, %2)" DOT "  %4 = dot(%1, %3)" DOT;
  ck_assert_str_eq(moec_half_text(half_of(once, "%3", false)), "mlp");
  ck_assert_str_eq(moec_half_text(half_of(once, "%3", true)), "mixer");
  ck_assert_str_eq(moec_half_text(half_of(twice, "%4", false)), "mixer"); /* what a computed value gave is computed */
}
END_TEST

START_TEST(scans) {
  static const char body[] = "  %3 = cumsum(%1) {axis = 0, reverse = false, exclusive = false}" TYPE;
  ck_assert_str_eq(moec_half_text(half_of(body, "%3", false)), "mixer");
}
END_TEST

START_TEST(attention_in_a_kernel) {
  static const char body[] =
      "  %3 = reshape(%1) {shape = [1, 2, 2, 4]} : f32[1, 2, 2, 4]\n"
      "  %4 = fused(%3) {fn = @\"k0\", rows = 2} : f32[1, 2, 2, 4]\n";
  moec_half half = half_of(body, "%4", false);
  ck_assert_str_eq(moec_half_text(half), "attention");
  ck_assert(moec_half_starts_block(half));
}
END_TEST

START_TEST(expert_region) {
  static const char body[] =
      "  %3 = moe.select(%1) {k = 2} : i64[4, 2]\n"
      "  %4, %5, %6 = moe.plan(%3) {experts = 4} : i32[8], i32[8], i32[5]\n"
      "  %7 = moe.dispatch(%1, %4) {k = 2} : f32[8, 4]\n"
      "  %8 = moe.combine(%7, %5) {k = 2}" TYPE;
  moec_half half = half_of(body, "%8", false);
  ck_assert_str_eq(moec_half_text(half), "moe");
  ck_assert(!moec_half_starts_block(half));
}
END_TEST

UNIT_MAIN("half", products, scans, attention_in_a_kernel, expert_region)
